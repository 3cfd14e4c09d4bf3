//! `provisor demo`: the whole job on a simulated cluster, told as it happens.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Timestamp;

use super::line::{LineDocument, OutcomeDocument};
use super::recording::RecordFileArgs;
use super::report::{Drawing, ReportArgs};
use super::simulate::{cost_of, cost_table, expectations_of, nodes_of, nodes_table};
use crate::gitops::render::list_environments;
use crate::io::clock;
use crate::io::git::{self, Author, Change, GitSource, Source, Watch};
use crate::model::count::{agreeing, counted};
use crate::model::repository::Repository;
use crate::simulator::script::Commit;
use crate::ui::console::{Console, Tone};
use crate::ui::example;
use crate::ui::exit::{Exit, Failure};
use crate::ui::interrupt::end_on_interrupt;
use crate::ui::play::{Play, engine_notice, price_notice, script_of, scripted_policy};
use crate::ui::report::{About, ReportFile};
use crate::ui::story::{Narrator, say};

/// Watch the whole job on a simulated cluster: a commit becomes running nodes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A real Git repository of node strategies is made in a temporary directory, read, validated, rendered and synced into a
simulated cluster. Pods get simulated EC2 nodes, a commit is pushed and rolled out, EC2 takes a spot machine back, idle
nodes go. No cloud, no cluster, no cost. It takes less than a minute.

Examples:
  provisor demo
  provisor demo --no-wait              as fast as it can be told
  provisor demo --output json          for programs: one document a line
  provisor demo --keep ./my-fleet      leave the repository there, to edit and to run")]
pub struct Args {
    /// What chance begins with
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Tell everything at once instead of at a pace that can be followed
    #[arg(long)]
    no_wait: bool,
    /// Make the repository in this directory, which must not exist or be empty, and leave it there
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    recording: RecordFileArgs,
    #[command(flatten)]
    report: ReportArgs,
}

/// How long the telling may take, pauses included.
const TELLING: Duration = Duration::from_secs(38);
/// Between two lines at most.
const PAUSE_MOST: Duration = Duration::from_millis(700);
/// How long a commit may take to be noticed before the repository is asked.
const NOTICE_PATIENCE: Duration = Duration::from_secs(2);

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let page = args.report.prepare()?;
    let place = Place::make(args.keep.as_deref())?;
    end_on_interrupt({
        let place = place.clone();
        move || place.clear()
    });
    let outcome = tell(args, page, console, &place.path);
    place.clear();
    outcome
}

fn tell(args: &Args, page: Option<ReportFile>, console: &Console, place: &Path) -> Result<Exit, Failure> {
    let heading = |text: &str| say(console, &format!("\n{}\n", console.paint(Tone::Strong, text)));
    say(
        console,
        &format!(
            "{} everything below happens in memory. No cloud, no cluster, no cost.\n",
            console.paint(Tone::Notice, "Simulated:")
        ),
    )?;

    heading("1. A Git repository says which nodes an environment may have")?;
    let mut fleet = Fleet::publish(place)?;
    let repository = fleet.read()?;
    let revision = &repository.revision;
    say(
        console,
        &format!("   {}  main at {}  \"{}\"\n", place.display(), revision.commit.short(), revision.subject),
    )?;
    for environment in list_environments(&repository)?.iter().filter(|known| !known.is_abstract) {
        say(console, &format!("   environments/{}.toml\n", environment.name))?;
    }

    heading("2. Read, validated, rendered, and compared with what is live")?;
    let script = script_of(&repository, None)?.script;
    let mut play = Play::new(repository.clone(), script, args.seed, scripted_policy())?;
    args.recording.begin(&mut play);
    let drawing = Drawing::begin(page, &mut play);
    if let Some(notice) = price_notice(&play.prices, &play.script.region) {
        say(console, &format!("   {notice}\n"))?;
    }
    if let Some(notice) = engine_notice(&repository, &play.script.environment) {
        say(console, &format!("   {notice}\n"))?;
    }
    let desired = play.take_commit(repository)?;
    let objects = counted(desired.objects.len(), "object");
    say(console, &format!("   {} becomes {objects}:", play.script.environment))?;
    let names: Vec<String> = desired.objects.keys().map(ToString::to_string).collect();
    say(console, &format!(" {}\n", names.join(", ")))?;

    heading("3. Synced; pods wait, nodes are bought, pods run")?;
    let mut pace = Pace::new(args.no_wait, play.start(), play.end());
    let mut narrator = Narrator::new(console, play.start());
    let mut failure = None;
    loop {
        let commit = play.run_to_commit(|reconciler, turn| {
            if failure.is_none() {
                failure = narrator.tell(reconciler, turn, |at| pace.until(at)).err();
            }
        });
        if let Some(failure) = failure.take() {
            return Err(failure);
        }
        let Some(commit) = commit else { break };
        heading(&format!("4. A commit: {}", commit.message))?;
        let took = fleet.push(&play, &commit)?;
        let repository = fleet.read()?;
        let short = repository.revision.commit.short().to_string();
        say(console, &format!("   main is now {short}, seen after {} ms\n", took.as_millis()))?;
        play.take_commit(repository)?;
        if let Some(plan) = play.reconciler.preview() {
            if console.is_json() {
                LineDocument::plan(&plan).tell(console)?;
            } else {
                for line in plan.to_string().lines() {
                    say(console, &format!("   {line}\n"))?;
                }
            }
        }
        heading("5. Rolled out within its budgets; then EC2 takes a machine back, and it gets quiet")?;
    }

    args.recording.end(&mut play)?;
    if let Some(drawing) = drawing {
        let notices = [
            engine_notice(play.repository(), &play.script.environment),
            price_notice(&play.prices, &play.script.region),
        ];
        let about = About {
            notices: notices.into_iter().flatten().collect(),
            expectations: expectations_of(&play),
            command: format!("provisor demo --seed {}", play.script.seed),
            ..About::default()
        };
        drawing.end(&play, about, console)?;
    }
    heading("6. What came of it")?;
    let nodes = nodes_of(&play);
    if !console.is_json() {
        say(console, &format!("{}\n{}", nodes_table(&nodes), cost_table(&cost_of(&play))))?;
    }
    let world = play.reconciler.cluster().world();
    let ledger = play.reconciler.spent();
    let parts: Vec<String> =
        ledger.by_capacity_type.iter().map(|(kind, usd)| format!("${usd} {kind}")).collect();
    let bought = world.story().count("Launched");
    let sum = format!(
        "{} {} bought, {} taken back, {} moved; ${} simulated dollars in {} ({})",
        counted(bought, "machine"),
        agreeing(bought, "was", "were"),
        world.story().count("SpotWarning"),
        counted(world.story().count("Evicted"), "pod"),
        ledger.total_usd,
        play.elapsed(play.end()),
        parts.join(", "),
    );
    if console.is_json() {
        let outcome = OutcomeDocument { nodes, cost: cost_of(&play), expectations: expectations_of(&play) };
        LineDocument { outcome: Some(outcome), ..LineDocument::new("Outcome", sum) }.tell(console)?;
    } else {
        say(console, &format!("\n{sum}\n"))?;
    }
    let broken: Vec<_> = play.verdicts().iter().filter(|verdict| !verdict.failures.is_empty()).collect();
    for verdict in play.verdicts() {
        let (tone, word) =
            if verdict.failures.is_empty() { (Tone::Good, "held") } else { (Tone::Bad, "broken") };
        let why = if verdict.failures.is_empty() {
            String::new()
        } else {
            format!(": {}", verdict.failures.join("; "))
        };
        say(console, &format!("{}  {}{why}\n", console.paint(tone, word), verdict.about))?;
    }
    say(
        console,
        "\nNext: provisor init my-fleet && provisor validate my-fleet && provisor simulate --repo my-fleet\n",
    )?;
    Ok(if broken.is_empty() { Exit::Done } else { Exit::No })
}

/// The directory of the demo's repository.
#[derive(Clone)]
struct Place {
    path: PathBuf,
    is_kept: bool,
}

impl Place {
    fn make(keep: Option<&Path>) -> Result<Self, Failure> {
        let cannot = |path: &Path, error: &std::io::Error| {
            Failure::outside(format!("{} cannot be made", path.display())).caused_by(error)
        };
        if let Some(path) = keep {
            let is_taken = path.read_dir().is_ok_and(|mut entries| entries.next().is_some());
            if is_taken {
                return Err(Failure::input(format!("{} is not empty", path.display()))
                    .help("name a directory that does not exist yet"));
            }
            std::fs::create_dir_all(path).map_err(|error| cannot(path, &error))?;
            return Ok(Self { path: path.to_owned(), is_kept: true });
        }
        let name = format!("provisor-demo-{}-{}", std::process::id(), clock::now().as_millisecond());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(|error| cannot(&path, &error))?;
        Ok(Self { path, is_kept: false })
    }

    fn clear(&self) {
        if !self.is_kept {
            drop(std::fs::remove_dir_all(&self.path));
        }
    }
}

/// The demo's repository, and the source and watch that a reconciler has of it.
struct Fleet {
    path: PathBuf,
    source: GitSource,
    watch: Option<Watch>,
    author: Author,
    runtime: tokio::runtime::Runtime,
}

impl Fleet {
    fn publish(path: &Path) -> Result<Self, Failure> {
        let author = Author { name: "Provisor demo".into(), email: "demo@provisor.dev".into() };
        git::init_repository(path)?;
        git::commit_files(
            path,
            &example::files(),
            "fleet: a shop with development and production",
            &author,
            clock::now(),
        )?;
        let source = git::open(&Source::new(path.display().to_string()), &std::env::temp_dir())?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| Failure::outside("the clock of the demo cannot be started").caused_by(&error))?;
        // Without a watch a commit is found by asking.
        let watch = git::watch(path).ok();
        Ok(Self { path: path.to_owned(), source, watch, author, runtime })
    }

    fn read(&self) -> Result<Repository, Failure> {
        let resolved = self.source.resolve()?;
        Ok(self.source.fetch(&resolved, &|_| {}, &AtomicBool::new(false))?)
    }

    /// Commits, and waits until the watch tells of it. How long that took.
    fn push(&mut self, play: &Play, commit: &Commit) -> Result<Duration, Failure> {
        let files = play.changed_files(commit)?;
        git::commit_files(&self.path, &files, &commit.message, &self.author, clock::now())?;
        let since = clock::Stopwatch::start();
        if let Some(watch) = &mut self.watch {
            let noticed =
                self.runtime.block_on(async { tokio::time::timeout(NOTICE_PATIENCE, watch.next()).await });
            if !matches!(noticed, Ok(Some(Change::Moved))) {
                self.watch = None;
            }
        }
        Ok(since.elapsed())
    }
}

/// Lets virtual time pass so that a person can follow: the whole story in about forty seconds.
struct Pace {
    runtime: Option<tokio::runtime::Runtime>,
    last: Timestamp,
    /// Virtual milliseconds for one of ours.
    speed: i128,
}

impl Pace {
    fn new(no_wait: bool, start: Timestamp, end: Timestamp) -> Self {
        let runtime = (!no_wait)
            .then(|| tokio::runtime::Builder::new_current_thread().enable_time().build().ok())
            .flatten();
        let speed =
            (end.duration_since(start).as_millis() / i128::try_from(TELLING.as_millis()).unwrap_or(1)).max(1);
        Self { runtime, last: start, speed }
    }

    fn until(&mut self, at: Timestamp) {
        let gap = at.duration_since(self.last).as_millis().max(0) / self.speed;
        self.last = at;
        let pause = Duration::from_millis(u64::try_from(gap).unwrap_or(0)).min(PAUSE_MOST);
        if let Some(runtime) = self.runtime.as_ref().filter(|_| !pause.is_zero()) {
            runtime.block_on(async { tokio::time::sleep(pause).await });
        }
    }
}
