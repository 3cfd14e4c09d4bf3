//! The source of one environment: asked, judged, rendered, and told to the Git half.
//!
//! Asking may take long, so it is a value of its own ([`Question`]) that can wait elsewhere. What came of it is heard here, in
//! order: an unchanged head is no work, a head that touches nothing of the environment is noted, one that may not be followed
//! is held, and only what remains is rendered.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::gitops::desired::DesiredState;
use crate::gitops::diagnostic::Diagnostics;
use crate::gitops::guardrail::Guardrails;
use crate::gitops::plan::RenderProof;
use crate::gitops::reads::{Fingerprint, Reads, WatchPath};
use crate::gitops::render::{RenderSettings, render_concrete, render_environment};
use crate::gitops::source::{SourceGate, SourceNotice, SourcePolicy, SourceVerdict};
use crate::gitops::sync::GitEvent;
use crate::io::git::{Acknowledgement, AfterFailure, GitError, GitSource, NextStep, Poller};
use crate::model::history::{History, Rewrite};
use crate::model::repository::{CommitId, Repository, Revision};

/// How one environment follows its source, from the cluster's configuration.
#[derive(Clone, Debug)]
pub struct FollowSettings {
    pub environment: Arc<str>,
    /// Paths besides the environment's own whose changes count.
    pub watched: Vec<WatchPath>,
    pub policy: SourcePolicy,
    pub interval: Duration,
    pub render: RenderSettings,
}

/// What is asked of the source at one moment.
#[derive(Clone, Debug)]
pub struct Question {
    source: Arc<GitSource>,
    /// The head that needs no second look.
    seen: Option<CommitId>,
    /// The head that waits for a person, if it is the one seen.
    held: Option<CommitId>,
    followed: Option<CommitId>,
    acknowledgement: Option<Acknowledgement>,
}

/// What the source said.
#[derive(Clone, Debug)]
pub enum Answer {
    Unchanged,
    Head {
        repository: Repository,
        history: History,
        /// The commit that a person acknowledged, this one or another.
        acknowledged: Option<CommitId>,
    },
}

/// What came of an answer: events for the Git half, and the same for people.
#[derive(Debug)]
pub struct Heard {
    pub events: Vec<GitEvent>,
    /// The commit, if it is the one that counts now, also if it touches nothing of the environment: what it says of other
    /// environments may be new.
    pub in_force: Option<Repository>,
    pub told: Told,
    /// When to ask again.
    pub next_delay: Duration,
}

#[derive(Debug)]
pub enum Told {
    Nothing,
    /// A new commit touches nothing that the environment reads.
    Advanced(Revision),
    /// A head waits for a person.
    Held {
        revision: Revision,
        notice: SourceNotice,
    },
    Followed {
        revision: Revision,
        notice: Option<SourceNotice>,
        rendered: Result<Usable, Diagnostics>,
    },
    Failed {
        error: GitError,
        after: AfterFailure,
    },
}

/// A commit that can be used, and what is worth a look although it can.
#[derive(Debug)]
pub struct Usable {
    pub desired: Arc<DesiredState>,
    pub warnings: Diagnostics,
}

/// The rendering that is in force, or the failed one that came last.
#[derive(Clone, Debug)]
struct LastRender {
    reads: Reads,
    fingerprint: Fingerprint,
    is_good: bool,
}

pub struct Follower {
    source: Arc<GitSource>,
    settings: FollowSettings,
    acknowledgement: Acknowledgement,
    gate: SourceGate,
    seen: Option<CommitId>,
    held: Option<(Revision, SourceNotice)>,
    last: Option<LastRender>,
    /// The guardrails of the commit in force, which judge the next one too.
    standing: Option<Arc<Guardrails>>,
    poller: Poller,
    rng: ChaCha8Rng,
}

impl Question {
    /// The first one, before anything is known.
    pub fn first(source: Arc<GitSource>) -> Self {
        Self { source, seen: None, held: None, followed: None, acknowledgement: None }
    }

    /// Asks and waits for the answer.
    pub fn ask(&self) -> Result<Answer, GitError> {
        let resolved = self.source.resolve()?;
        let acknowledged = self.acknowledgement.as_ref().and_then(Acknowledgement::read);
        let is_released = self.held.is_some() && acknowledged == self.held;
        if self.seen.as_ref() == Some(&resolved.commit) && !is_released {
            return Ok(Answer::Unchanged);
        }
        let never = AtomicBool::new(false);
        let repository = self.source.fetch(&resolved, &|_| {}, &never)?;
        let history = match &self.followed {
            None => History::Same,
            // Whether a head is continued must be known before it is followed; if it cannot be known, it is told.
            Some(before) => self.source.history(before, &resolved.commit, &never).unwrap_or_else(|_| {
                let (old, new) = (before.clone(), resolved.commit.clone());
                History::Rewritten { old, new, how: Rewrite::Unknown, dropped: Vec::new() }
            }),
        };
        Ok(Answer::Head { repository, history, acknowledged })
    }
}

impl Follower {
    /// `seed` spreads the polls of many followers.
    pub fn new(
        source: Arc<GitSource>,
        settings: FollowSettings,
        acknowledgement: Acknowledgement,
        seed: u64,
    ) -> Self {
        Self {
            gate: SourceGate::new(settings.environment.clone(), settings.policy),
            poller: Poller::new(settings.interval),
            source,
            settings,
            acknowledgement,
            seen: None,
            held: None,
            last: None,
            standing: None,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    pub fn source(&self) -> &GitSource {
        &self.source
    }

    /// Takes settings that changed. The next answer is rendered, whether or not the head is another one.
    pub fn configure(&mut self, settings: FollowSettings) {
        self.gate.set_policy(settings.policy);
        self.poller = Poller::new(settings.interval);
        self.settings = settings;
        self.seen = None;
        self.last = None;
    }

    pub fn question(&self) -> Question {
        Question {
            source: self.source.clone(),
            seen: self.seen.clone(),
            held: self.held.as_ref().map(|(revision, _)| revision.commit.clone()),
            followed: self.gate.followed().cloned(),
            acknowledgement: Some(self.acknowledgement.clone()),
        }
    }

    /// Takes in what the source said.
    pub fn hear(&mut self, now: Timestamp, answer: Result<Answer, GitError>) -> Heard {
        match answer {
            Err(error) => {
                let retry_after = match error.next_step() {
                    NextStep::Retry { after } => after,
                    NextStep::NeedsPerson => None,
                };
                let after = self.poller.failed(retry_after, now, &mut self.rng);
                let event = GitEvent::FetchFailed { error: format!("{}: {error}", error.reason()) };
                Heard {
                    events: vec![event],
                    in_force: None,
                    next_delay: after.next_delay,
                    told: Told::Failed { error, after },
                }
            }
            Ok(Answer::Unchanged) => {
                let event = match &self.held {
                    Some((revision, notice)) => {
                        GitEvent::Held { revision: revision.clone(), notice: notice.clone() }
                    }
                    None => GitEvent::Unchanged { revision: None },
                };
                self.heard(vec![event], Told::Nothing)
            }
            Ok(Answer::Head { repository, history, acknowledged }) => {
                if let Some(commit) = acknowledged {
                    self.gate.acknowledge(commit);
                }
                self.hear_head(now, &repository, &history)
            }
        }
    }

    fn hear_head(&mut self, now: Timestamp, repository: &Repository, history: &History) -> Heard {
        let revision = repository.revision.clone();
        self.seen = Some(revision.commit.clone());
        let notice = match self.gate.judge(&revision, history) {
            SourceVerdict::Hold(notice) => {
                self.held = Some((revision.clone(), notice.clone()));
                let event = GitEvent::Held { revision: revision.clone(), notice: notice.clone() };
                return self.heard(vec![event], Told::Held { revision, notice });
            }
            SourceVerdict::Follow { notice } => notice,
        };
        self.held = None;
        let same = self.last.as_ref().filter(|last| last.reads.fingerprint(repository) == last.fingerprint);
        if let Some(last) = same {
            let is_good = last.is_good;
            if is_good {
                self.gate.accept(revision.clone());
            }
            let mut events = vec![GitEvent::Unchanged { revision: Some(revision.clone()) }];
            events.extend(notice.map(GitEvent::Noticed));
            let in_force = is_good.then(|| repository.clone());
            return Heard { in_force, ..self.heard(events, Told::Advanced(revision)) };
        }
        let FollowSettings { environment, watched, render, .. } = &self.settings;
        let render = RenderSettings { standing: self.standing.clone(), now: Some(now), ..render.clone() };
        let (event, rendered) = render_commit(repository, environment, &render);
        let reads = Reads::of(repository, environment, watched);
        let fingerprint = reads.fingerprint(repository);
        self.last = Some(LastRender { reads, fingerprint, is_good: rendered.is_ok() });
        if rendered.is_ok() {
            self.gate.accept(revision.clone());
            self.standing = Some(Arc::new(Guardrails::read(repository)));
        }
        let in_force = rendered.is_ok().then(|| repository.clone());
        let mut events = vec![event];
        events.extend(notice.clone().map(GitEvent::Noticed));
        Heard { in_force, ..self.heard(events, Told::Followed { revision, notice, rendered }) }
    }

    fn heard(&mut self, events: Vec<GitEvent>, told: Told) -> Heard {
        Heard { events, in_force: None, told, next_delay: self.poller.succeeded(&mut self.rng) }
    }
}

/// Renders an environment of a commit, twice: a set that cannot be repeated removes nothing.
pub fn render_commit(
    repository: &Repository,
    environment: &str,
    settings: &RenderSettings,
) -> (GitEvent, Result<Usable, Diagnostics>) {
    match render_concrete(repository, environment, settings) {
        Ok((desired, found)) => {
            let again = render_environment(repository, environment, settings);
            let proof =
                again.map_or(RenderProof::Once, |(again, _)| RenderProof::Twice { digest: again.digest });
            let desired = Arc::new(desired);
            let mut warnings = Diagnostics::default();
            warnings.extend(found);
            (GitEvent::Rendered { desired: desired.clone(), proof }, Ok(Usable { desired, warnings }))
        }
        Err(diagnostics) => {
            let errors = diagnostics.iter().filter(|one| one.is_error()).map(ToString::to_string).collect();
            let revision = repository.revision.clone();
            (GitEvent::RenderFailed { revision, errors }, Err(diagnostics))
        }
    }
}
