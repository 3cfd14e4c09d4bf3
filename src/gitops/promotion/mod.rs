//! Values that proved themselves in one environment are proposed for the next: observe how stages stand, decide what to propose.
//!
//! A stage is an environment. It is *verified* while its objects are what its commit wants and it is as healthy as the
//! rules ask; its values may be promoted once it was verified without a break for the soak time. Whatever breaks that, a
//! degraded stage or another commit that changes it, starts the soak again from zero. No clock: time comes as an argument.
//!
//! Nothing is ever promoted silently. The answer is a [`Proposal`], a list of fields with their values before and after,
//! for a person or a forge to make a commit of.

pub mod changes;
mod memory;
pub mod rules;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::gitops::desired::DesiredState;
use crate::gitops::diagnostic::Diagnostics;
use crate::gitops::sync::{Health, Rollout, SyncState, SyncStatus};
use crate::model::repository::{Repository, Revision};
use crate::model::time::render_duration;
pub use changes::{FieldChange, Offer, offer};
pub use memory::Memory;
use memory::Remembered;
pub use rules::{Match, Require, Rules};

/// Values of a stage that are remembered, to notice when somebody goes back to one of them.
const PAST_MAX: usize = 50;

/// How an environment stands at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// What it is to be: the digest of its rendered objects. Another digest is another thing to verify.
    pub digest: Arc<str>,
    pub revision: Revision,
    pub sync: SyncState,
    pub health: Health,
    pub rollout: Rollout,
}

impl Standing {
    pub fn of(status: &SyncStatus, desired: &DesiredState) -> Self {
        Self {
            digest: desired.digest.clone(),
            revision: desired.revision.clone(),
            sync: status.sync,
            health: status.health,
            rollout: status.rollout.clone(),
        }
    }

    /// Why it does not count as verified, if so.
    fn doubt(&self, require: Require) -> Option<String> {
        if self.sync != SyncState::Synced {
            return Some(format!("is {:?}", self.sync));
        }
        if self.health != Health::Healthy {
            return Some(format!("is {:?}", self.health));
        }
        let is_rolled_out = matches!(self.rollout, Rollout::Complete | Rollout::NotApplicable);
        (require == Require::HealthyAndRolledOut && !is_rolled_out).then(|| format!("is {}", self.rollout))
    }
}

/// What a promotion can learn.
#[derive(Clone, Debug)]
pub enum PromotionEvent {
    /// How a stage stands that values come from.
    Stood {
        stage: Arc<str>,
        standing: Standing,
    },
    /// A commit was read: its rules, and what its environments differ in.
    Read {
        rules: Rules,
        offer: Offer,
    },
    /// Somebody undid a promotion by hand. Until that is released, nothing is proposed.
    RolledBack {
        actor: Arc<str>,
        revision: Revision,
    },
    Released,
    /// A person answers for what is not verified. Holds for what is offered now.
    Bypassed {
        actor: Arc<str>,
        reason: Arc<str>,
    },
}

/// What somebody is asked to commit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    pub environment: Arc<str>,
    /// The one file that changes.
    pub file: Arc<str>,
    /// The stages that vouch for it.
    pub from: Vec<Arc<str>>,
    pub changes: Vec<FieldChange>,
    /// Who takes responsibility in place of the soak, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bypass: Option<String>,
}

impl fmt::Display for Proposal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} from {}: ", self.file, self.from.join(" and "))?;
        let changes: Vec<String> = self.changes.iter().map(ToString::to_string).collect();
        out.write_str(&changes.join(", "))?;
        self.bypass.as_ref().map_or(Ok(()), |bypass| write!(out, " ({bypass})"))
    }
}

/// Why nothing is proposed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "code", rename_all_fields = "camelCase")]
pub enum Refusal {
    /// No stage has a promoted value that the environment could take.
    NothingToPromote { why: String },
    /// The stages did not stand long enough.
    Soaking { remaining: String, until: Timestamp },
    /// A stage is not what the rules ask.
    NotVerified { why: String },
    /// Stages that must all vouch want different values.
    StagesDisagree { field: String },
    /// Somebody went back by hand.
    HeldAfterRollback { by: Arc<str>, commit: String, file: Arc<str> },
}

impl Refusal {
    /// A stable word, as in conditions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NothingToPromote { .. } => "NothingToPromote",
            Self::Soaking { .. } => "Soaking",
            Self::NotVerified { .. } => "NotVerified",
            Self::StagesDisagree { .. } => "StagesDisagree",
            Self::HeldAfterRollback { .. } => "HeldAfterRollback",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingToPromote { why } => write!(out, "nothing to promote: {why}"),
            Self::Soaking { remaining, until } => {
                write!(out, "not yet: {remaining} of the soak remain, until {until}")
            }
            Self::NotVerified { why } => write!(out, "not yet: {why}"),
            Self::StagesDisagree { field } => {
                write!(out, "not at all: the stages disagree about `{field}`")
            }
            Self::HeldAfterRollback { by, commit, file } => write!(
                out,
                "held: {by} went back to earlier values with {commit}; to release that, set `release = \"{commit}\"` in [promotion] of {file}"
            ),
        }
    }
}

/// What is proposed for one environment now, or why nothing is.
#[derive(Clone, Debug, PartialEq)]
pub struct PromotionDecision {
    pub environment: Arc<str>,
    pub outcome: Result<Arc<Proposal>, Refusal>,
    /// Whether it is worth a line to a person: something else than the last time.
    pub is_news: bool,
    /// Decide again by then.
    pub wake_at: Option<Timestamp>,
}

impl PromotionDecision {
    /// A stable word.
    pub fn code(&self) -> &'static str {
        self.outcome.as_ref().map_or_else(Refusal::code, |_| "Proposed")
    }
}

impl fmt::Display for PromotionDecision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(proposal) => write!(out, "{}: proposes {proposal}", self.environment),
            Err(refusal) => write!(out, "{}: {refusal}", self.environment),
        }
    }
}

/// Since when a stage is verified, or why it is not.
#[derive(Clone, Debug)]
struct Watch {
    digest: Arc<str>,
    verified: Result<Timestamp, String>,
}

#[derive(Clone, Debug)]
struct Hold {
    actor: Arc<str>,
    revision: Revision,
}

/// The promotion into one environment.
#[derive(Clone, Debug)]
pub struct Promotion {
    rules: Rules,
    offer: Offer,
    stages: BTreeMap<Arc<str>, Watch>,
    hold: Option<Hold>,
    /// The promoted values that the environment had, oldest first; the last are today's.
    past: Vec<Arc<str>>,
    bypass: Option<(Offer, String)>,
    /// What was said last.
    said: Option<String>,
}

impl Promotion {
    pub fn new(rules: Rules, offer: Offer) -> Self {
        let past = vec![offer.values.clone()];
        Self { rules, offer, stages: BTreeMap::new(), hold: None, past, bypass: None, said: None }
    }

    /// Takes in what happened at `at`.
    pub fn observe(&mut self, at: Timestamp, event: PromotionEvent) {
        match event {
            PromotionEvent::Stood { stage, standing } => self.take_standing(at, stage, &standing),
            PromotionEvent::Read { rules, offer } => self.take_commit(rules, offer),
            PromotionEvent::RolledBack { actor, revision } => self.hold = Some(Hold { actor, revision }),
            PromotionEvent::Released => self.hold = None,
            PromotionEvent::Bypassed { actor, reason } => {
                self.bypass = Some((self.offer.clone(), format!("{actor} answers for it: {reason}")));
            }
        }
    }

    fn take_standing(&mut self, at: Timestamp, stage: Arc<str>, standing: &Standing) {
        let doubt = standing.doubt(self.rules.require);
        let known = self.stages.get(&stage).filter(|watch| watch.digest == standing.digest);
        let verified = match (doubt, known.map(|watch| &watch.verified)) {
            (Some(doubt), _) => Err(format!("{stage} {doubt}")),
            (None, Some(Ok(since))) => Ok(*since),
            (None, _) => Ok(at),
        };
        self.stages.insert(stage, Watch { digest: standing.digest.clone(), verified });
    }

    fn take_commit(&mut self, rules: Rules, offer: Offer) {
        let is_other = self.past.last() != Some(&offer.values);
        // Going back to what was there before is somebody's word, unless the stages want the same by now.
        if is_other && self.past.contains(&offer.values) && !offer.is_in_step() {
            self.hold = Some(Hold { actor: author_of(&offer.revision), revision: offer.revision.clone() });
        }
        if is_other {
            self.past.push(offer.values.clone());
            if self.past.len() > PAST_MAX {
                self.past.remove(0);
            }
        }
        let is_released = |hold: &Hold| {
            let wanted = rules.release.as_deref();
            wanted
                .is_some_and(|wanted| hold.revision.commit.as_str().starts_with(&wanted.to_ascii_lowercase()))
        };
        if self.hold.as_ref().is_some_and(is_released) {
            self.hold = None;
        }
        if self.rules.require != rules.require {
            // What was verified by other rules is verified anew.
            self.stages.clear();
        }
        self.rules = rules;
        self.offer = offer;
    }

    /// What to propose now. The same state and moment always give the same answer.
    pub fn decide(&mut self, now: Timestamp) -> PromotionDecision {
        let outcome = self.judge(now);
        let wake_at = match &outcome {
            Err(Refusal::Soaking { until, .. }) => Some(*until),
            _ => None,
        };
        // The remaining time changes with every look and is no news.
        let said = match &outcome {
            Err(Refusal::Soaking { until, .. }) => format!("Soaking until {until}"),
            Err(refusal) => refusal.to_string(),
            Ok(proposal) => proposal.to_string(),
        };
        let is_news = self.said.as_ref() != Some(&said);
        self.said = Some(said);
        PromotionDecision {
            environment: self.rules.environment.clone(),
            outcome: outcome.map(Arc::new),
            is_news,
            wake_at,
        }
    }

    fn judge(&self, now: Timestamp) -> Result<Proposal, Refusal> {
        let offer = &self.offer;
        if let Some(why) = offer.in_step(&self.rules.environment) {
            return Err(Refusal::NothingToPromote { why });
        }
        let bypass = self.bypass.as_ref().filter(|(known, _)| known.by_stage == offer.by_stage);
        if let Some((_, why)) = bypass {
            let stages: Vec<Arc<str>> = self.rules.from.clone();
            return self.propose(&stages, Some(why.clone()));
        }
        if let Some(hold) = &self.hold {
            return Err(Refusal::HeldAfterRollback {
                by: hold.actor.clone(),
                commit: hold.revision.commit.short().to_owned(),
                file: self.rules.file.clone(),
            });
        }
        match self.rules.matching {
            Match::All => {
                let mut ready_at = now;
                for stage in &self.rules.from {
                    ready_at = ready_at.max(self.ready_at(stage)?);
                }
                if let Some(soaking) = soaking(ready_at, now) {
                    return Err(soaking);
                }
                self.propose(&self.rules.from, None)
            }
            Match::OneOf => {
                let offering =
                    self.rules.from.iter().filter(|stage| offer.changes_of(stage).next().is_some());
                let mut first: Option<Timestamp> = None;
                let mut doubts = Vec::new();
                for stage in offering {
                    match self.ready_at(stage) {
                        Ok(at) if at <= now => return self.propose(std::slice::from_ref(stage), None),
                        Ok(at) => first = Some(first.map_or(at, |known| known.min(at))),
                        Err(Refusal::NotVerified { why }) => doubts.push(why),
                        Err(other) => return Err(other),
                    }
                }
                Err(first
                    .and_then(|at| soaking(at, now))
                    .unwrap_or_else(|| Refusal::NotVerified { why: doubts.join("; ") }))
            }
        }
    }

    /// When a stage has soaked.
    fn ready_at(&self, stage: &Arc<str>) -> Result<Timestamp, Refusal> {
        match self.stages.get(stage).map(|watch| &watch.verified) {
            Some(Ok(since)) => Ok(since.checked_add(self.rules.soak).unwrap_or(Timestamp::MAX)),
            Some(Err(why)) => Err(Refusal::NotVerified { why: why.clone() }),
            None => Err(Refusal::NotVerified { why: format!("nothing is known of {stage}") }),
        }
    }

    /// The changes that all of `stages` want.
    fn propose(&self, stages: &[Arc<str>], bypass: Option<String>) -> Result<Proposal, Refusal> {
        let mut changes: BTreeMap<&str, &FieldChange> = BTreeMap::new();
        for (at, stage) in stages.iter().enumerate() {
            let own: BTreeMap<&str, &FieldChange> =
                self.offer.changes_of(stage).map(|change| (&*change.field, change)).collect();
            let disagrees = |(field, change): (&&str, &&FieldChange)| {
                (changes.get(field).map(|known| &known.to) != Some(&change.to)).then(|| (*field).to_owned())
            };
            let missing =
                || changes.keys().find(|field| !own.contains_key(**field)).map(|field| (*field).to_owned());
            if at > 0
                && let Some(field) = own.iter().find_map(disagrees).or_else(missing)
            {
                return Err(Refusal::StagesDisagree { field });
            }
            changes = own;
        }
        Ok(Proposal {
            environment: self.rules.environment.clone(),
            file: self.rules.file.clone(),
            from: stages.to_vec(),
            changes: changes.into_values().cloned().collect(),
            bypass,
        })
    }
}

fn soaking(ready_at: Timestamp, now: Timestamp) -> Option<Refusal> {
    let left = ready_at.duration_since(now);
    (left > SignedDuration::ZERO)
        .then(|| Refusal::Soaking { remaining: render_duration(left), until: ready_at })
}

fn author_of(revision: &Revision) -> Arc<str> {
    if revision.author.is_empty() { "somebody".into() } else { revision.author.clone() }
}

/// The promotions of a fleet that one environment vouches for.
#[derive(Clone, Debug, Default)]
pub struct Promotions {
    by_environment: BTreeMap<Arc<str>, Promotion>,
    /// What a former process knew of environments that no commit of this one spoke of yet.
    remembered: BTreeMap<Arc<str>, Remembered>,
}

impl Promotions {
    /// Takes in the rules and values of a commit. With a mistake in them nothing changes.
    pub fn take_commit(
        &mut self,
        at: Timestamp,
        repository: &Repository,
        stage: &str,
    ) -> Result<(), Diagnostics> {
        let mut known = std::mem::take(&mut self.by_environment);
        let read = rules::rules_of(repository).and_then(|all| {
            let concerned = all.into_iter().filter(|rules| rules.from.iter().any(|from| **from == *stage));
            concerned
                .map(|rules| Ok((offer(repository, &rules)?, rules)))
                .collect::<Result<Vec<_>, Diagnostics>>()
        });
        let read = match read {
            Ok(read) => read,
            Err(found) => {
                self.by_environment = known;
                return Err(found);
            }
        };
        for (offer, rules) in read {
            let name = rules.environment.clone();
            let promotion = match known.remove(&name) {
                Some(mut promotion) => {
                    promotion.observe(at, PromotionEvent::Read { rules, offer });
                    promotion
                }
                None => {
                    let mut promotion = Promotion::new(rules.clone(), offer.clone());
                    if let Some(remembered) = self.remembered.remove(&name) {
                        promotion.take_up(at, remembered);
                        promotion.observe(at, PromotionEvent::Read { rules, offer });
                    }
                    promotion
                }
            };
            self.by_environment.insert(name, promotion);
        }
        Ok(())
    }

    pub fn observe(&mut self, at: Timestamp, stage: &str, standing: &Standing) {
        for promotion in self.by_environment.values_mut() {
            let event = PromotionEvent::Stood { stage: stage.into(), standing: standing.clone() };
            promotion.observe(at, event);
        }
    }

    pub fn decide(&mut self, now: Timestamp) -> Vec<PromotionDecision> {
        self.by_environment.values_mut().map(|promotion| promotion.decide(now)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.by_environment.is_empty()
    }
}
