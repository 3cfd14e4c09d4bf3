//! `provisor run`: follow a Git repository and keep a cluster as its commits want it.

mod commits;
mod ec2;
mod live;
mod memory;
mod provisioner;
mod stop;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

pub use live::LiveArgs;

use memory::PromotionMemory;

use super::line::LineDocument;
use super::recording::RecordDirectoryArgs;
use super::repository::{CommitArgs, cache};
use super::simulate::tell_notices;
use crate::controllers::source::{Answer, FollowSettings, Follower, Question, Told};
use crate::gitops::desired::ObjectRef;
use crate::gitops::plan::{ChangeAction, Consent, SyncPlan, Verdict};
use crate::gitops::policy::{PruneMode, SyncMode, SyncPolicy};
use crate::gitops::reads::WatchPath;
use crate::gitops::render::RenderSettings;
use crate::gitops::source::SourcePolicy;
use crate::gitops::sync::{GitEvent, SyncRequest};
use crate::io::clock::{self, Stopwatch};
use crate::io::git::{self, Acknowledgement, GitError, GitSource, INTERVAL_MIN, Lookout, Remembered};
use crate::model::repository::Revision;
use crate::model::time::parse_duration;
use crate::ui::console::{Console, Tone};
use crate::ui::exit::{Exit, Failure};
use crate::ui::interrupt::{Ending, Endings};
use crate::ui::play::{Chosen, Play, engine_notice, price_notice, script_of};
use crate::ui::story::{Narrator, say};

/// Follow a Git repository and keep a cluster as its commits want it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a kubeconfig the cluster is simulated, and the first line says so: commits of the repository are real, nodes and
pods are not. The workloads and events of the fleet's simulation.toml are played in real time, or faster with --speed.

With --kubeconfig the cluster is real: NodePools are applied, and machines made for its pods, simulated ones with
--cloud simulated, EC2's with --cloud aws. Replicas share a lease, so that one of them acts.

With --output json every line is one document (`provisor schema output/run`).

What a commit no longer has stays, unless --prune says otherwise; and if more than one pool or a tenth of the nodes would go
with it, that waits for a person: type `confirm PLAN` with the digits that the plan shows. On a real cluster the annotation
`provisor.dev/confirm` of the Environment object says the same.

Ctrl-C, a closed terminal and SIGTERM end it in order.

A commit that cannot be used changes nothing: the last good state stays, and the mistake is shown.

Examples:
  provisor run --repo my-fleet                     then edit, commit, and watch
  provisor run --repo my-fleet --env dev --speed 60 --for 30s
  provisor run --repo https://git.example.com/fleet.git --branch main
  provisor run --repo https://git.example.com/fleet.git --semver 1.x --tag-prefix prod/   the newest release of prod
  provisor run --repo my-fleet --env dev --kubeconfig ~/.kube/config --cloud simulated
  provisor run --repo my-fleet --env prod --kubeconfig ~/.kube/config --cloud aws --cluster-name prod")]
pub struct Args {
    /// The fleet: the address or path of a Git repository
    #[arg(long, value_name = "PATH_OR_URL", default_value = ".", env = "PROVISOR_REPO")]
    repo: String,
    #[command(flatten)]
    at: CommitArgs,
    /// The environment; needed if there are several and no simulation.toml names one
    #[arg(long, value_name = "NAME")]
    env: Option<String>,
    /// What chance begins with
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Simulated seconds for each second
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    speed: u32,
    /// Stop after so long, such as 30s or 10m; forever by default
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<String>,
    /// How often a repository that cannot be watched is asked, at least 10s
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    interval: String,
    /// Further paths whose changes count, such as shared/**; repeat it for more
    #[arg(long, value_name = "GLOB")]
    watch: Vec<String>,
    /// What becomes of objects that a commit no longer has: they stay, are emptied and deleted, or are deleted at once
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Prune::Off)]
    prune: Prune,
    /// Hold rewritten history and moved tags back until `provisor ack` names the commit
    #[arg(long)]
    protected: bool,
    #[command(flatten)]
    recording: RecordDirectoryArgs,
    #[command(flatten)]
    live: Box<LiveArgs>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Prune {
    /// They stay, and the environment stays out of sync
    Off,
    /// Pools are emptied within their budgets, then deleted
    Retire,
    /// They are deleted at once, with their nodes
    Now,
}

impl From<Prune> for PruneMode {
    fn from(prune: Prune) -> Self {
        match prune {
            Prune::Off => Self::Off,
            Prune::Retire => Self::Retire,
            Prune::Now => Self::Now,
        }
    }
}

/// How often the simulated cluster is looked at.
const TICK: Duration = Duration::from_millis(200);

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    if args.live.is_wanted() {
        return live::run(args, console);
    }
    if let Some(failure) = args.live.in_vain() {
        return Err(failure);
    }
    say(
        console,
        &format!(
            "{} no kubeconfig, so nodes, pods and EC2 are simulated; commits are real\n",
            console.paint(Tone::Notice, "Simulated:")
        ),
    )?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::outside("the event loop cannot be started").caused_by(&error))?;
    let source = open(args)?;
    runtime.block_on(follow(args, console, source))
}

/// Opens the repository; nothing is asked yet.
fn open(args: &Args) -> Result<Arc<GitSource>, Failure> {
    let source = args.at.source(&args.repo)?;
    Ok(Arc::new(git::open(&source, &cache())?))
}

/// How the environment follows it.
fn settings(args: &Args, environment: &str) -> Result<FollowSettings, Failure> {
    let watched: Result<Vec<WatchPath>, _> = args.watch.iter().map(|text| WatchPath::parse(text)).collect();
    let interval = parse_duration(&args.interval).map_err(|error| Failure::usage(error.to_string()))?;
    let interval = Duration::try_from(interval).ok().filter(|interval| *interval >= INTERVAL_MIN);
    let interval = interval.ok_or_else(|| {
        let least = INTERVAL_MIN.as_secs();
        Failure::usage(format!("--interval {}: a repository is asked every {least} s at most", args.interval))
    })?;
    Ok(FollowSettings {
        environment: environment.into(),
        watched: watched.map_err(|error| Failure::usage(error.to_string()))?,
        policy: if args.protected { SourcePolicy::protected() } else { SourcePolicy::open() },
        interval,
        render: RenderSettings::default(),
    })
}

/// After how long to stop.
fn deadline(args: &Args) -> Result<Option<Duration>, Failure> {
    let Some(text) = &args.duration else { return Ok(None) };
    let duration = parse_duration(text).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Duration::try_from(duration).ok())
}

/// Waits for the answer where waiting is allowed.
async fn ask(question: Question) -> Result<Answer, GitError> {
    tokio::task::spawn_blocking(move || question.ask()).await.expect("reading a repository does not panic")
}

async fn follow(args: &Args, console: &Console, source: Arc<GitSource>) -> Result<Exit, Failure> {
    let deadline = deadline(args)?;
    // The first commit must be usable: without it there is no last good state to keep.
    let answer = ask(Question::first(source.clone())).await?;
    let Answer::Head { repository, .. } = &answer else { unreachable!("no commit was seen before") };
    // Before anything is said: whoever reads that it runs may end it. A source that does not answer is left by the signal itself.
    let mut endings = listen()?;
    let Chosen { mut script, notice, warnings } = script_of(repository, args.env.as_deref())?;
    console.warn(&warnings);
    if let Some(notice) = notice {
        console.notice(&notice);
    }
    // Events play at their time, and the cluster goes on after the last.
    script.duration = SignedDuration::MAX / 4;
    script.expect.clear();
    script.events.retain(|event| event.commit.is_none());
    let policy =
        SyncPolicy { mode: SyncMode::AutoHeal, prune: args.prune.into(), ..SyncPolicy::new("simulated") };
    let mut play = Play::new(repository.clone(), script, args.seed, policy)?;
    args.recording.begin(&mut play)?;
    let settings = settings(args, &play.script.environment)?;
    let acknowledgement = Acknowledgement::of(&source, &play.script.environment, &cache());
    let seed = clock::now().as_nanosecond().unsigned_abs() as u64;
    let remembered = Remembered::of(&source, &play.script.environment, "promotions", &cache());
    let mut memory = PromotionMemory::recall(remembered, &mut play);
    let mut follower = Follower::new(source, settings, acknowledgement, seed);
    let revision = &repository.revision;
    say(
        console,
        &format!(
            "following {} at {} \"{}\", environment {}\n",
            follower.source().name(),
            revision.commit.short(),
            revision.subject,
            play.script.environment
        ),
    )?;
    if let Some(notice) = price_notice(&play.prices, &play.script.region) {
        say(console, &format!("{notice}\n"))?;
    }
    let mut told = Known::default();
    told.tell_engine(engine_notice(repository, &play.script.environment), console);
    let heard = follower.hear(clock::now(), Ok(answer));
    heard.events.into_iter().for_each(|event| play.reconciler.observe(event));
    if let Some(repository) = &heard.in_force {
        play.take_rules(repository);
    }
    if let Told::Followed { rendered, .. } = heard.told {
        console.warn(&rendered?.warnings);
    }
    tell_notices(&mut play, console);

    let mut lookout = follower.source().local_path().map(|path: &Path| Lookout::new(path));
    let mut narrator = Narrator::new(console, play.start());
    // The first commit is carried out before the next is asked for: a broken second one must find it in force.
    let start = play.start();
    live(&mut play, &mut narrator, start)?;
    let clock = Stopwatch::start();
    // Asked at once: a commit may have come between the first reading and the watch.
    let mut next_poll = Duration::ZERO;
    let mut tick = tokio::time::interval(TICK);
    let mut words = typed();
    let exit = loop {
        let is_asked = tokio::select! {
            ending = endings.next() => {
                console.talk(&format!("{}; the simulated cluster is gone with this program", ending.word()));
                break match ending {
                    Ending::Typed | Ending::HungUp => Exit::Interrupted,
                    Ending::Told => Exit::Done,
                };
            }
            Some(line) = words.recv() => {
                obey(&line, &mut play, &told, console);
                false
            }
            () = next_change(&mut lookout) => true,
            _ = tick.tick() => clock.elapsed() >= next_poll,
        };
        if is_asked {
            next_poll = clock.elapsed() + take_news(&mut follower, &mut play, &mut told, console).await?;
        }
        let lived = SignedDuration::try_from(clock.elapsed()).unwrap_or(SignedDuration::MAX);
        let now = play.start() + lived * i32::try_from(args.speed).unwrap_or(1);
        live(&mut play, &mut narrator, now)?;
        memory.keep(&play, clock.elapsed(), console);
        if deadline.is_some_and(|deadline| clock.elapsed() >= deadline) {
            break Exit::Done;
        }
    };
    memory.end(&play, console);
    args.recording.end(&mut play, console);
    Ok(exit)
}

/// Requests to end, from now on.
fn listen() -> Result<Endings, Failure> {
    Endings::listen().map_err(|error| Failure::outside("signals cannot be received").caused_by(&error))
}

/// Lines typed by whoever runs this. A thread of its own, because reading a terminal cannot be given up.
fn typed() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// What a typed line says.
enum Said<'l> {
    Nothing,
    /// Yes to the plan of these digits.
    Confirm(&'l str),
    Other,
}

impl<'l> Said<'l> {
    fn read(line: &'l str) -> Self {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (None, ..) => Self::Nothing,
            (Some("confirm"), Some(named), None) => Self::Confirm(named),
            _ => Self::Other,
        }
    }
}

fn not_understood(line: &str) -> String {
    format!("`{line}` is not understood; there is `confirm PLAN`")
}

/// Carries out a typed word.
fn obey(line: &str, play: &mut Play, told: &Known, console: &Console) {
    match Said::read(line) {
        Said::Nothing => {}
        Said::Confirm(named) => match play.reconciler.preview() {
            Some(plan) if plan.hash.is_named_by(named) || told.showed(named, &plan) => {
                play.reconciler.observe(GitEvent::Requested(SyncRequest {
                    actor: "terminal".into(),
                    prune: None,
                    consent: Consent { plan: Some(plan.hash.clone()), override_protection: None },
                }));
            }
            Some(plan) => console.notice(&format!(
                "`{named}` is not the current plan, which is {}; nothing is confirmed",
                plan.hash.short()
            )),
            None => console.notice("there is no plan to confirm"),
        },
        Said::Other => console.notice(&not_understood(line)),
    }
}

/// Lets the cluster live until `until` and tells what happens.
fn live(play: &mut Play, narrator: &mut Narrator<'_>, until: Timestamp) -> Result<(), Failure> {
    let mut failure = None;
    play.reconciler.run_until(until, |reconciler, turn| {
        if failure.is_none() {
            failure = narrator.tell(reconciler, &turn, |_| {}).err();
        }
    });
    failure.map_or(Ok(()), Err)
}

/// Waits for the next hint that the source is worth asking; for ever, if it is not on this machine.
async fn next_change(lookout: &mut Option<Lookout>) {
    match lookout {
        Some(lookout) => lookout.next().await,
        None => std::future::pending().await,
    }
}

/// What was told and need not be told again.
#[derive(Default)]
struct Known {
    engine: Option<String>,
    source: SourceTrouble,
    /// The plan whose digits were shown last.
    plan: Option<Arc<SyncPlan>>,
}

/// Why the source does not answer, as it was told.
#[derive(Default)]
struct SourceTrouble(Option<String>);

impl SourceTrouble {
    /// Tells a trouble once, and its end; hands back what else there is to tell.
    fn tell(&mut self, told: Told, source: &str, console: &Console) -> Told {
        let Told::Failed { error, .. } = told else {
            if self.0.take().is_some() {
                console.notice(&format!("{source} answers again"));
            }
            return told;
        };
        let text = error.to_string();
        if self.0.as_ref() != Some(&text) {
            self.0 = Some(text);
            console.complain(&Failure::from(error));
            console.talk(
                "the last good commit stays in force; the source is asked again, more rarely each time",
            );
        }
        Told::Nothing
    }
}

impl Known {
    /// Whether `named` is a plan that was shown and asked for the same as `plan` does: what needed nobody's word is done since.
    fn showed(&self, named: &str, plan: &SyncPlan) -> bool {
        let shown = self.plan.as_deref().filter(|shown| shown.hash.is_named_by(named));
        shown.is_some_and(|shown| waiting(shown).eq(waiting(plan)))
    }

    fn tell_engine(&mut self, notice: Option<String>, console: &Console) {
        if let Some(text) = notice.as_ref().filter(|_| notice != self.engine) {
            console.notice(text);
        }
        self.engine = notice;
    }
}

/// Asks the source and takes what is new. How long until it is asked again.
async fn take_news(
    follower: &mut Follower,
    play: &mut Play,
    known: &mut Known,
    console: &Console,
) -> Result<Duration, Failure> {
    let answer = ask(follower.question()).await;
    let heard = follower.hear(clock::now(), answer);
    heard.events.into_iter().for_each(|event| play.reconciler.observe(event));
    if let Some(repository) = &heard.in_force {
        play.take_rules(repository);
        known.tell_engine(engine_notice(repository, &play.script.environment), console);
    }
    let told = known.source.tell(heard.told, follower.source().name(), console);
    let is_taken = matches!(told, Told::Advanced(_) | Told::Followed { rendered: Ok(_), .. });
    let is_rendered = is_taken && !matches!(told, Told::Advanced(_));
    commits::tell(console, told)?;
    if is_taken {
        tell_notices(play, console);
    }
    if let Some(plan) = play.reconciler.preview().filter(|_| is_rendered) {
        say_plan(console, &plan)?;
        known.plan = Some(plan);
    }
    Ok(heard.next_delay)
}

fn say_commit(console: &Console, revision: &Revision) -> Result<(), Failure> {
    if console.is_json() {
        return LineDocument::commit(revision).tell(console);
    }
    let word = console.paint(Tone::Strong, "commit");
    say(console, &format!("\n{word} {} \"{}\"\n", revision.commit.short(), revision.subject))
}

fn say_plan(console: &Console, plan: &SyncPlan) -> Result<(), Failure> {
    match console.is_json() {
        true => LineDocument::plan(plan).tell(console),
        false => say(console, &format!("{plan}\n{}", invitation(plan))),
    }
}

/// How to say yes, if anything of `plan` waits for it.
fn invitation(plan: &SyncPlan) -> String {
    match waiting(plan).next() {
        Some(_) => format!("to let it happen, type `confirm {}`\n", plan.hash.short()),
        None => String::new(),
    }
}

/// What of `plan` waits for a person's word: the object, what becomes of it, and the nodes that it takes away.
fn waiting(plan: &SyncPlan) -> impl Iterator<Item = (&ObjectRef, ChangeAction, &[Arc<str>])> {
    let changes = plan.changes.iter();
    let waiting = changes.filter(|change| matches!(change.verdict, Verdict::NeedsConfirmation { .. }));
    waiting.map(|change| (&change.object, change.action, change.affected.as_slice()))
}
