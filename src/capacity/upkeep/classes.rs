//! When a node class is held, asked about, and let go.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Upkeep;
use crate::capacity::cluster::Cluster;
use crate::capacity::decision::Steps;
use crate::model::action::{Action, Notice, Subject};
use crate::model::class::{Holding, NodeClass};
use crate::model::name::ClassName;

/// How often the cloud is asked again what a class selects.
const REPEAT: SignedDuration = SignedDuration::from_mins(5);
/// How soon after the cloud or the API server refused something it is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(15);
/// How long an answer may take before it counts as lost. A cloud that cannot be reached is given up after minutes.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// How often is looked whether a deleted class has still claims.
const CLAIMS_PERIOD: SignedDuration = SignedDuration::from_secs(2);
/// Upstream's word for a class that has still claims.
const WAITING: &str = "WaitingOnNodeClaimTermination";

/// What was asked for classes, and when more is due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    known: BTreeMap<ClassName, Known>,
    /// When something is due by itself.
    next: Option<Timestamp>,
    has_changed: bool,
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// The specification that was asked about last, and when to ask again.
    asked: Option<(Arc<Value>, Timestamp)>,
    /// It is not held or let go before.
    later: Option<Timestamp>,
}

/// A class as it is to be judged.
pub(crate) enum Asked {
    /// Its status is ours to keep.
    Kept(Arc<NodeClass>),
    /// It is deleted, and it is for us to let it go.
    Going(Arc<NodeClass>),
}

impl Classes {
    /// What was waited for on it has come, or does not matter any more, if it is another than `known`.
    pub fn see(&mut self, known: Option<&Arc<NodeClass>>, class: &NodeClass) {
        let is_other = known.is_none_or(|known| {
            (known.held, known.is_deleting) != (class.held, class.is_deleting)
                || !is_same(&known.spec, &class.spec)
        });
        if let Some(remembered) = self.known.get_mut(&class.name).filter(|_| is_other) {
            remembered.later = None;
        }
        self.touch();
    }

    /// A class, or whose it is, may be another than before.
    pub fn touch(&mut self) {
        self.has_changed = true;
    }

    pub fn forget(&mut self, class: ClassName) {
        self.known.remove(&class);
    }

    /// The cloud said what a class selects, or nothing that helps.
    pub fn resolved(&mut self, class: ClassName, is_known: bool, now: Timestamp) {
        let asked = self.known.get_mut(&class).and_then(|known| known.asked.as_mut());
        asked.into_iter().for_each(|(_, next)| *next = now + if is_known { REPEAT } else { RETRY });
        self.touch();
    }

    /// A class could not be written, or what was made for it not be cleared away.
    pub fn refused(&mut self, class: ClassName, now: Timestamp) {
        self.known.entry(class).or_default().later = Some(now + RETRY);
        self.touch();
    }

    pub fn is_due(&self, now: Timestamp) -> bool {
        self.has_changed || self.next.is_some_and(|next| next <= now)
    }

    pub fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// What is due for `classes`, which are all that are ours.
    pub fn tend(
        &mut self,
        upkeep: Upkeep,
        classes: impl IntoIterator<Item = Asked>,
        cluster: &Cluster,
        now: Timestamp,
        steps: &mut Steps,
    ) {
        self.has_changed = false;
        self.next = None;
        for class in classes {
            let next = match class {
                Asked::Kept(class) if upkeep == Upkeep::Belongings && !is_held(&class) => {
                    self.hold(&class, now, steps)
                }
                Asked::Kept(class) => self.ask(&class, now, steps),
                Asked::Going(class) => self.let_go(&class, cluster, now, steps),
            };
            self.next = [self.next, next].into_iter().flatten().min();
        }
    }

    /// Each answers when it is to be looked at again.
    fn hold(&mut self, class: &NodeClass, now: Timestamp, steps: &mut Steps) -> Option<Timestamp> {
        let known = self.known.entry(class.name).or_default();
        if let Some(later) = known.later.filter(|later| *later > now) {
            return Some(later);
        }
        known.later = Some(now + RETRY);
        let what = wanted(class);
        let message = "it stays until what is made for it in the cloud is cleared away";
        steps.push(Action::HoldClass { class: class.name, what }, "Held", message);
        known.later
    }

    fn ask(&mut self, class: &NodeClass, now: Timestamp, steps: &mut Steps) -> Option<Timestamp> {
        let known = self.known.entry(class.name).or_default();
        match &known.asked {
            Some((spec, next)) if *next > now && is_same(spec, &class.spec) => Some(*next),
            former => {
                let why = match former {
                    None => "nobody asked yet",
                    Some((spec, _)) if !is_same(spec, &class.spec) => "it is written differently",
                    Some(_) => "what it selects may have changed",
                };
                let next = now + PATIENCE;
                known.asked = Some((class.spec.clone(), next));
                steps.push(Action::ResolveClass { class: class.name }, "Resolving", why);
                Some(next)
            }
        }
    }

    fn let_go(
        &mut self,
        class: &NodeClass,
        cluster: &Cluster,
        now: Timestamp,
        steps: &mut Steps,
    ) -> Option<Timestamp> {
        let holding = class.held?;
        let known = self.known.entry(class.name).or_default();
        if let Some(later) = known.later.filter(|later| *later > now) {
            return Some(later);
        }
        let claims = cluster.claims.values().chain(cluster.strangers.claims.values());
        let claims =
            claims.filter(|claim| claim.spec.class.is_ours() && claim.spec.class.name == class.name).count();
        if claims > 0 {
            let message = format!("It stays until the {claims} NodeClaims that use it are gone.");
            let notice = Notice {
                subject: Subject::Class(class.name),
                is_warning: false,
                reason: WAITING.into(),
                message: message.as_str().into(),
            };
            steps.push(Action::Publish(notice), WAITING, message);
            return Some(now + CLAIMS_PERIOD);
        }
        known.later = Some(now + PATIENCE);
        steps.push(
            Action::ClearClass { class: class.name, holding },
            "Cleared",
            "it is deleted, and no claim uses it",
        );
        known.later
    }
}

/// Whether all that is made for a class would be cleared away. One that had a role once had a profile.
fn is_held(class: &NodeClass) -> bool {
    class.held.is_some_and(|held| held == Holding::Profiles || held == wanted(class))
}

/// What is made for a class as it is written.
fn wanted(class: &NodeClass) -> Holding {
    match class.spec["role"].as_str().is_some_and(|role| !role.is_empty()) {
        true => Holding::Profiles,
        false => Holding::Templates,
    }
}

fn is_same(one: &Arc<Value>, other: &Arc<Value>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}
