//! The commits of a repository as events for a live cluster, and as lines for whoever watches.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Args, SourceTrouble, ask, next_change, open, say_commit, settings};
use crate::controllers::source::{Answer, Follower, Question, Told};
use crate::gitops::desired::DesiredState;
use crate::gitops::diagnostic::Diagnostics;
use crate::gitops::render::list_environments;
use crate::gitops::sync::GitEvent;
use crate::io::clock::{self, Stopwatch};
use crate::io::git::{Acknowledgement, Lookout};
use crate::model::provisioner::Provisioner;
use crate::model::repository::Repository;
use crate::ui::cli::repository::cache;
use crate::ui::console::Console;
use crate::ui::exit::Failure;
use crate::ui::play::{cloud_of, region_of};
use crate::ui::story::say;

const UNUSABLE: &str = "this commit cannot be used; the last good state stays in force";

/// Says of a commit that can be rendered why this process cannot go by it.
pub(super) trait Judge: Fn(&DesiredState) -> Result<(), Failure> + Send + 'static {}

impl<F: Fn(&DesiredState) -> Result<(), Failure> + Send + 'static> Judge for F {}

/// A commit that can be rendered as one that cannot be used.
fn refused(event: GitEvent, failure: &Failure) -> GitEvent {
    match event {
        GitEvent::Rendered { desired, .. } => GitEvent::RenderFailed {
            revision: desired.revision.clone(),
            errors: vec![failure.message.clone()],
        },
        other => other,
    }
}

/// A source that was asked once.
pub(super) struct Commits {
    follower: Follower,
    environment: String,
    region: Option<String>,
    cloud: Option<String>,
    provisioner: Option<Provisioner>,
    first: Vec<GitEvent>,
    introduction: String,
    warnings: Diagnostics,
    trouble: Option<Failure>,
}

impl Commits {
    pub async fn open(args: &Args) -> Result<Self, Failure> {
        let source = open(args)?;
        let answer = ask(Question::first(source.clone())).await;
        let repository = match &answer {
            Ok(Answer::Head { repository, .. }) => Some(repository),
            Ok(Answer::Unchanged) | Err(_) => None,
        };
        let environment = match (repository, &args.env) {
            (Some(repository), name) => chosen(repository, name.as_deref())?,
            (None, Some(name)) => name.clone(),
            (None, None) => return Err(answer.expect_err("nothing was seen before").into()),
        };
        let region = repository.and_then(|repository| region_of(repository, &environment));
        let cloud = repository.and_then(|repository| cloud_of(repository, &environment));
        let acknowledgement = Acknowledgement::of(&source, &environment, &cache());
        let seed = clock::now().as_nanosecond().unsigned_abs() as u64;
        let at = repository.map_or_else(String::new, |Repository { revision, .. }| {
            format!(" at {} \"{}\"", revision.commit.short(), revision.subject)
        });
        let introduction = format!("following {}{at}, environment {environment}\n", source.name());
        let mut follower = Follower::new(source, settings(args, &environment)?, acknowledgement, seed);
        let heard = follower.hear(clock::now(), answer);
        let mut warnings = Diagnostics::default();
        let trouble = match heard.told {
            Told::Followed { rendered: Ok(usable), .. } => {
                warnings = usable.warnings;
                None
            }
            Told::Followed { rendered: Err(diagnostics), .. } => Some(Failure::from(diagnostics)),
            Told::Failed { error, .. } => Some(Failure::from(error)),
            _ => None,
        };
        let first = heard.events;
        let provisioner = provisioner_in(&first);
        Ok(Self { follower, environment, region, cloud, provisioner, first, introduction, warnings, trouble })
    }

    /// Why nothing can be applied yet. A cluster that was synced before goes on as it is; a new one has nothing to go on with.
    pub fn trouble(&mut self) -> Option<Failure> {
        self.trouble.take()
    }

    /// The first commit cannot be used by this process.
    pub fn refuse(&mut self, failure: Failure) {
        self.first =
            std::mem::take(&mut self.first).into_iter().map(|event| refused(event, &failure)).collect();
        self.provisioner = None;
        self.trouble = Some(failure);
    }

    /// Says what is followed, and what is worth a look in its first commit.
    pub fn introduce(&self, console: &Console) -> Result<(), Failure> {
        say(console, &self.introduction)?;
        console.warn(&self.warnings);
        Ok(())
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

    /// Who provisions, as the commit says; `None` if it cannot be used.
    pub fn provisioner(&self) -> Option<Provisioner> {
        self.provisioner
    }

    /// Goes on following, in the background. What `judge` refuses cannot be used.
    pub fn follow(self, console: Console, judge: impl Judge) -> Following {
        let (sender, events) = mpsc::unbounded_channel();
        let words = sender.downgrade();
        let newest = Arc::new(Mutex::new(self.first));
        let task = tokio::spawn(follow(self.follower, console, judge, sender, newest.clone()));
        Following { events, words: Words(words), newest, task }
    }
}

/// Where the words of whoever sits at the terminal go. It does not outlive the source of commits.
#[derive(Clone)]
pub(super) struct Words(mpsc::WeakUnboundedSender<GitEvent>);

impl Words {
    /// Says yes to the plan of these digits.
    pub fn confirm(&self, named: &str) {
        if let Some(sender) = self.0.upgrade() {
            drop(sender.send(GitEvent::Confirmed { named: named.into(), actor: "terminal".into() }));
        }
    }
}

/// The events of a source that is followed.
pub(super) struct Following {
    events: mpsc::UnboundedReceiver<GitEvent>,
    words: Words,
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

    /// Who provisions, as the last commit says that can be used; `None` if there was none.
    pub fn provisioner(&self) -> Option<Provisioner> {
        provisioner_in(&self.newest.lock().expect("no holder of the newest commit panics"))
    }

    /// Where a person's words go.
    pub fn words(&self) -> Words {
        self.words.clone()
    }

    pub fn events(&mut self) -> &mut mpsc::UnboundedReceiver<GitEvent> {
        &mut self.events
    }
}

fn provisioner_in(events: &[GitEvent]) -> Option<Provisioner> {
    events.iter().rev().find_map(|event| match event {
        GitEvent::Rendered { desired, .. } => Some(desired.provisioner),
        _ => None,
    })
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
    judge: impl Judge,
    events: mpsc::UnboundedSender<GitEvent>,
    newest: Arc<Mutex<Vec<GitEvent>>>,
) {
    let mut lookout = follower.source().local_path().map(|path: &Path| Lookout::new(path));
    let clock = Stopwatch::start();
    // Asked at once: a commit may have come between the first reading and the watch.
    let mut next_poll = Duration::ZERO;
    let mut trouble = SourceTrouble::default();
    loop {
        tokio::select! {
            () = next_change(&mut lookout) => {}
            () = tokio::time::sleep(next_poll.saturating_sub(clock.elapsed())) => {}
        }
        let answer = ask(follower.question()).await;
        let mut heard = follower.hear(clock::now(), answer);
        next_poll = clock.elapsed() + heard.next_delay;
        let mut refusal = None;
        for event in &mut heard.events {
            if let GitEvent::Rendered { desired, .. } = event
                && let Err(failure) = judge(desired)
            {
                *event = refused(event.clone(), &failure);
                refusal = Some(failure);
            }
        }
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
        let told = trouble.tell(heard.told, follower.source().name(), &console);
        if tell(&console, told).is_err() {
            return;
        }
        if let Some(mut failure) = refusal {
            failure.message = format!("{UNUSABLE}: {}", failure.message);
            console.complain(&failure);
        }
    }
}

/// What became of the last question to the source.
pub(super) fn tell(console: &Console, told: Told) -> Result<(), Failure> {
    match told {
        // Trouble with the source is told once, not at every attempt.
        Told::Nothing | Told::Failed { .. } => {}
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
            match rendered {
                Ok(usable) => console.warn(&usable.warnings),
                Err(diagnostics) => {
                    let mut failure = Failure::from(diagnostics);
                    failure.message = UNUSABLE.into();
                    console.complain(&failure);
                }
            }
        }
    }
    Ok(())
}

/// The environment that is named, or the only one there is.
fn chosen(repository: &Repository, name: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let known: Vec<String> = list_environments(repository)?
        .into_iter()
        .filter(|known| !known.is_abstract)
        .map(|known| known.name.to_string())
        .collect();
    match known.as_slice() {
        [only] => Ok(only.clone()),
        _ => {
            let help = format!("add --env with one of {}", known.join(", "));
            Err(Failure::usage("the repository has several environments").help(help))
        }
    }
}
