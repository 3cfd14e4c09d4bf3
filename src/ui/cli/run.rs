//! `provisor run`: follow a Git repository and keep a cluster as its commits want it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::repository::{CommitArgs, cache};
use crate::io::clock::{self, Stopwatch};
use crate::io::git::{
    self, Change, GitError, GitSource, History, INTERVAL, NextStep, Poller, Reference, Rewrite, Source,
    Subdirectory,
};
use crate::model::repository::{CommitId, Repository};
use crate::model::time::parse_duration;
use crate::ui::console::{Console, Tone};
use crate::ui::exit::{Exit, Failure};
use crate::ui::play::{Play, price_notice, script_of};
use crate::ui::story::{Narrator, say};

/// Follow a Git repository and keep a cluster as its commits want it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a kubeconfig the cluster is simulated, and the first line says so: commits of the repository are real, nodes and
pods are not. The workloads and events of the fleet's simulation.toml are played in real time, or faster with --speed.

With --output json every line is one document.

A commit that cannot be used changes nothing: the last good state stays, and the mistake is shown.

Examples:
  provisor run --repo my-fleet                     then edit, commit, and watch
  provisor run --repo my-fleet --env dev --speed 60 --for 30s
  provisor run --repo https://git.example.com/fleet.git --ref main")]
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
}

/// How often the simulated cluster is looked at.
const TICK: Duration = Duration::from_millis(200);

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
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
    let follower = Follower::open(args)?;
    runtime.block_on(follow(args, console, follower))
}

/// The source, and how it is asked.
struct Follower {
    source: Arc<GitSource>,
    seen: Option<CommitId>,
    poller: Poller,
    rng: ChaCha8Rng,
}

impl Follower {
    fn open(args: &Args) -> Result<Self, Failure> {
        let reference = match &args.at.reference {
            Some(word) => Reference::any(word).map_err(GitError::from)?,
            None => Reference::Head,
        };
        let source = Source {
            reference,
            subdirectory: Subdirectory::parse(args.at.path.as_deref().unwrap_or_default())?,
            limits: args.at.limits()?,
            allow_insecure_http: args.at.allow_insecure_http,
            ..Source::new(args.repo.as_str())
        };
        let interval = parse_duration(&args.interval).map_err(|error| Failure::usage(error.to_string()))?;
        let interval = Duration::try_from(interval).unwrap_or(INTERVAL);
        let seed = clock::now().as_nanosecond().unsigned_abs() as u64;
        Ok(Self {
            source: Arc::new(git::open(&source, &cache())?),
            seen: None,
            poller: Poller::new(interval),
            rng: ChaCha8Rng::seed_from_u64(seed),
        })
    }

    /// The files of the newest commit, if it is another than the last, and how the two relate.
    async fn ask(&mut self) -> Result<Option<(Repository, History)>, GitError> {
        let (source, seen) = (self.source.clone(), self.seen.clone());
        let asked = tokio::task::spawn_blocking(move || {
            let resolved = source.resolve()?;
            if seen.as_ref() == Some(&resolved.commit) {
                return Ok(None);
            }
            let never = AtomicBool::new(false);
            let repository = source.fetch(&resolved, &|_| {}, &never)?;
            let before = seen.as_ref().unwrap_or(&resolved.commit);
            // A commit that can be read is not held back by a past that cannot.
            let history = source.history(before, &resolved.commit, &never).unwrap_or_else(|_| {
                let (old, new) = (before.clone(), resolved.commit.clone());
                History::Rewritten { old, new, how: Rewrite::Unknown }
            });
            Ok::<_, GitError>(Some((repository, history)))
        });
        let answer = asked.await.expect("reading a repository does not panic")?;
        if let Some((repository, _)) = &answer {
            self.seen = Some(repository.revision.commit.clone());
        }
        Ok(answer)
    }
}

async fn follow(args: &Args, console: &Console, mut follower: Follower) -> Result<Exit, Failure> {
    let deadline = match &args.duration {
        Some(text) => {
            let duration = parse_duration(text).map_err(|error| Failure::usage(error.to_string()))?;
            Duration::try_from(duration).ok()
        }
        None => None,
    };
    // The first commit must be usable: without it there is no last good state to keep.
    let (repository, _) = follower.ask().await?.expect("no commit was seen before");
    let (mut script, notice) = script_of(&repository, args.env.as_deref())?;
    if let Some(notice) = notice {
        console.notice(&notice);
    }
    // Events play at their time, and the cluster goes on after the last.
    script.duration = SignedDuration::MAX / 4;
    script.expect.clear();
    script.events.retain(|event| event.commit.is_none());
    let mut play = Play::new(repository.clone(), script, args.seed)?;
    let revision = &repository.revision;
    say(
        console,
        &format!(
            "following {} at {} \"{}\", environment {}\n",
            follower.source.name(),
            revision.commit.short(),
            revision.subject,
            play.script.environment
        ),
    )?;
    if let Some(notice) = price_notice(&play.prices, &play.script.region) {
        say(console, &format!("{notice}\n"))?;
    }
    play.take_commit(repository)?;

    let mut watch = follower.source.local_path().and_then(|path: &Path| git::watch(path).ok());
    let mut narrator = Narrator::new(console, play.start());
    // The first commit is carried out before the next is asked for: a broken second one must find it in force.
    let start = play.start();
    live(&mut play, &mut narrator, start)?;
    let clock = Stopwatch::start();
    // Asked at once: a commit may have come between the first reading and the watch.
    let mut next_poll = Duration::ZERO;
    let mut tick = tokio::time::interval(TICK);
    loop {
        let is_asked = tokio::select! {
            _ = tokio::signal::ctrl_c() => {
                console.talk("interrupted; the simulated cluster is gone with this program");
                return Ok(Exit::Interrupted);
            }
            change = next_change(&mut watch) => {
                if change != Change::Moved {
                    watch = None;
                }
                true
            }
            _ = tick.tick() => clock.elapsed() >= next_poll,
        };
        if is_asked {
            next_poll = clock.elapsed() + take_news(&mut follower, &mut play, console).await?;
        }
        let lived = SignedDuration::try_from(clock.elapsed()).unwrap_or(SignedDuration::MAX);
        let now = play.start() + lived * i32::try_from(args.speed).unwrap_or(1);
        live(&mut play, &mut narrator, now)?;
        if deadline.is_some_and(|deadline| clock.elapsed() >= deadline) {
            return Ok(Exit::Done);
        }
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

/// The next hint of the watch; never, without one.
async fn next_change(watch: &mut Option<git::Watch>) -> Change {
    match watch {
        Some(watch) => watch.next().await.unwrap_or(Change::Lost("the watch ended".into())),
        None => std::future::pending().await,
    }
}

/// Asks the source and takes what is new. How long until it is asked again.
async fn take_news(follower: &mut Follower, play: &mut Play, console: &Console) -> Result<Duration, Failure> {
    match follower.ask().await {
        Ok(None) => Ok(follower.poller.succeeded(&mut follower.rng)),
        Ok(Some((repository, history))) => {
            let revision = repository.revision.clone();
            say(
                console,
                &format!(
                    "\n{} {} \"{}\"\n",
                    console.paint(Tone::Strong, "commit"),
                    revision.commit.short(),
                    revision.subject
                ),
            )?;
            if let History::Rewritten { old, how, .. } = history {
                console.notice(&rewrite_notice(&old, how));
            }
            match play.take_commit(repository) {
                Ok(_) => {
                    if let Some(plan) = play.reconciler.preview() {
                        say(console, &format!("{plan}\n"))?;
                    }
                }
                Err(diagnostics) => {
                    let mut failure = Failure::from(diagnostics);
                    failure.message = "this commit cannot be used; the last good state stays in force".into();
                    console.complain(&failure);
                }
            }
            Ok(follower.poller.succeeded(&mut follower.rng))
        }
        Err(error) => {
            let retry_after = match error.next_step() {
                NextStep::Retry { after } => after,
                _ => None,
            };
            console.complain(&Failure::from(error));
            Ok(follower.poller.failed(retry_after, clock::now(), &mut follower.rng).next_delay)
        }
    }
}

/// History that was rewritten is followed, and never silently.
fn rewrite_notice(old: &CommitId, how: Rewrite) -> String {
    let what = match how {
        Rewrite::Rewound => "it goes back to before",
        Rewrite::Diverged => "it does not descend from",
        Rewrite::Unrelated => "it shares no history with",
        Rewrite::Unknown => "it is not known to descend from",
    };
    format!("history was rewritten: {what} {}", old.short())
}
