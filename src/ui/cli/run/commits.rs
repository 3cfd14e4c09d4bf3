//! The commits of a repository as events for a live cluster, and as lines for whoever watches.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Args, ask, next_change, open, say_commit, settings};
use crate::controllers::source::{Answer, Follower, Question, Told};
use crate::gitops::render::list_environments;
use crate::gitops::sync::GitEvent;
use crate::io::clock::{self, Stopwatch};
use crate::io::git::{self, Acknowledgement, Change};
use crate::model::repository::Repository;
use crate::ui::cli::repository::cache;
use crate::ui::console::Console;
use crate::ui::exit::Failure;
use crate::ui::play::{cloud_of, region_of};
use crate::ui::story::say;

/// A source whose first commit was read and can be used.
pub(super) struct Commits {
    follower: Follower,
    environment: String,
    region: Option<String>,
    cloud: Option<String>,
    first: Vec<GitEvent>,
    introduction: String,
}

impl Commits {
    pub async fn open(args: &Args) -> Result<Self, Failure> {
        let source = open(args)?;
        let answer = ask(Question::first(source.clone())).await?;
        let Answer::Head { repository, .. } = &answer else { unreachable!("no commit was seen before") };
        let environment = chosen(repository, args.env.as_deref())?;
        let region = region_of(repository, &environment);
        let cloud = cloud_of(repository, &environment);
        let acknowledgement = Acknowledgement::of(&source, &environment, &cache());
        let seed = clock::now().as_nanosecond().unsigned_abs() as u64;
        let mut follower = Follower::new(source, settings(args, &environment)?, acknowledgement, seed);
        let revision = &repository.revision;
        let introduction = format!(
            "following {} at {} \"{}\", environment {environment}\n",
            follower.source().name(),
            revision.commit.short(),
            revision.subject
        );
        let heard = follower.hear(clock::now(), Ok(answer));
        // The first commit must be usable: without it there is no last good state to keep.
        if let Told::Followed { rendered: Err(diagnostics), .. } = heard.told {
            return Err(diagnostics.into());
        }
        Ok(Self { follower, environment, region, cloud, first: heard.events, introduction })
    }

    /// Says what is followed.
    pub fn introduce(&self, console: &Console) -> Result<(), Failure> {
        say(console, &self.introduction)
    }

    pub fn environment(&self) -> &str {
        &self.environment
    }

    /// The region that the environment names, if it does.
    pub fn region(&self) -> Option<String> {
        self.region.clone()
    }

    /// Who sells the environment's machines, if it says so.
    pub fn cloud(&self) -> Option<&str> {
        self.cloud.as_deref()
    }

    /// Goes on following, in the background.
    pub fn follow(self, console: Console) -> Following {
        let (sender, events) = mpsc::unbounded_channel();
        let newest = Arc::new(Mutex::new(self.first));
        let task = tokio::spawn(follow(self.follower, console, sender, newest.clone()));
        Following { events, newest, task }
    }
}

/// The events of a source that is followed.
pub(super) struct Following {
    events: mpsc::UnboundedReceiver<GitEvent>,
    /// What a replica that begins anew has to be told first.
    newest: Arc<Mutex<Vec<GitEvent>>>,
    task: JoinHandle<()>,
}

impl Following {
    /// The newest state of the source; events that led to it are forgotten.
    pub fn newest(&mut self) -> Vec<GitEvent> {
        let newest = self.newest.lock().expect("no holder of the newest commit panics");
        while self.events.try_recv().is_ok() {}
        newest.clone()
    }

    pub fn events(&mut self) -> &mut mpsc::UnboundedReceiver<GitEvent> {
        &mut self.events
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Asks the source whenever it is due, or a watch says that it moved.
async fn follow(
    mut follower: Follower,
    console: Console,
    events: mpsc::UnboundedSender<GitEvent>,
    newest: Arc<Mutex<Vec<GitEvent>>>,
) {
    let mut watch = follower.source().local_path().and_then(|path: &Path| git::watch(path).ok());
    let clock = Stopwatch::start();
    // Asked at once: a commit may have come between the first reading and the watch.
    let mut next_poll = Duration::ZERO;
    loop {
        tokio::select! {
            change = next_change(&mut watch) => if change != Change::Moved { watch = None },
            () = tokio::time::sleep(next_poll.saturating_sub(clock.elapsed())) => {}
        }
        let answer = ask(follower.question()).await;
        let heard = follower.hear(clock::now(), answer);
        next_poll = clock.elapsed() + heard.next_delay;
        {
            let mut newest = newest.lock().expect("no holder of the newest commit panics");
            let is_head = heard
                .events
                .iter()
                .any(|event| matches!(event, GitEvent::Rendered { .. } | GitEvent::RenderFailed { .. }));
            if is_head {
                // A commit that cannot be used leaves the last good one in force, so that is told too.
                newest.retain(|event| {
                    matches!(event, GitEvent::Rendered { .. })
                        && !heard.events.iter().any(|event| matches!(event, GitEvent::Rendered { .. }))
                });
                newest.extend(heard.events.iter().cloned());
            }
            for event in heard.events {
                if events.send(event).is_err() {
                    return;
                }
            }
        }
        if tell(&console, heard.told).is_err() {
            return;
        }
    }
}

/// What became of the last question to the source.
pub(super) fn tell(console: &Console, told: Told) -> Result<(), Failure> {
    match told {
        Told::Nothing => {}
        Told::Advanced(revision) => {
            say_commit(console, &revision)?;
            say(console, "it touches nothing that the environment reads\n")?;
        }
        Told::Held { revision, notice } => {
            say_commit(console, &revision)?;
            console.notice(&format!("{}: {}", notice.reason, notice.message));
        }
        Told::Followed { revision, notice, rendered } => {
            say_commit(console, &revision)?;
            if let Some(notice) = notice {
                console.notice(&format!("{}: {}", notice.reason, notice.message));
            }
            if let Err(diagnostics) = rendered {
                let mut failure = Failure::from(diagnostics);
                failure.message = "this commit cannot be used; the last good state stays in force".into();
                console.complain(&failure);
            }
        }
        Told::Failed { error, .. } => console.complain(&Failure::from(error)),
    }
    Ok(())
}

/// Ctrl-C, or the request to end that a cluster sends to its pods.
pub(super) async fn interrupted() {
    let mut asked = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(asked) => asked,
        Err(_) => return drop(tokio::signal::ctrl_c().await),
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = asked.recv() => {}
    }
}

/// The environment that is named, or the only one there is.
fn chosen(repository: &Repository, name: Option<&str>) -> Result<String, Failure> {
    let known: Vec<String> = list_environments(repository)?
        .into_iter()
        .filter(|known| !known.is_abstract)
        .map(|known| known.name.to_string())
        .collect();
    match (name, known.as_slice()) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, [only]) => Ok(only.clone()),
        (None, _) => {
            let help = format!("add --env with one of {}", known.join(", "));
            Err(Failure::usage("the repository has several environments").help(help))
        }
    }
}
