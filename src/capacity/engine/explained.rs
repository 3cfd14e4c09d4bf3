//! What is to be read at nodes, their claims and pods: why a node stays, and for how long a pod keeps it.
//!
//! A node is told by Karpenter's two words: `DisruptionBlocked` if nothing may take it, `Unconsolidatable` if giving it back would
//! save nothing. Whoever has only to wait, for its turn or for quiet, is told nothing. What the policy `Balanced` lets go is told with its score.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::capacity::decision::Planned;
use crate::capacity::disruption::balanced::{FACTOR, Score};
use crate::capacity::disruption::{DisruptionPlan, Kept};
use crate::capacity::scheduling::Protection;
use crate::model::action::{Action, Notice, Subject};
use crate::model::label::annotation;
use crate::model::pool::DisruptionReason;

/// The same is published again once an API server with its own settings has forgotten it (`--event-ttl`, an hour): in a large cluster
/// most nodes have something to say, and hardly ever anything new. Another reason is told sooner.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_hours(1);
const CHANGE_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// Why nothing is saved changes with every machine that comes for others, at all nodes at once: told as seldom as in Karpenter.
const SAVINGS_CHANGE_AFTER: SignedDuration = SignedDuration::from_mins(15);

#[derive(Clone, Debug, Default)]
pub(super) struct Explained {
    /// The code that was last published, by the word that it went under.
    told: BTreeMap<(Subject, &'static str), (&'static str, Timestamp)>,
    notices: Vec<Planned>,
}

impl Explained {
    /// Takes in what a pass at `now` found in `cluster`.
    pub fn learn(&mut self, plan: &DisruptionPlan, cluster: &Cluster, now: Timestamp) {
        for kept in &plan.kept {
            let Some(word) = word_for(kept) else { continue };
            let claim = cluster.nodes.get(&kept.node).and_then(|node| cluster.claim_of(node));
            let subjects = [Some(Subject::Node(kept.node)), claim.map(|claim| Subject::Claim(claim.name))];
            for subject in subjects.into_iter().flatten() {
                self.tell(subject, word, kept.code, now, || sentence(&kept.message));
            }
        }
        for claim in &plan.unjoined {
            let message = || "Nodeclaim does not have an associated node".into();
            self.tell(Subject::Claim(*claim), "DisruptionBlocked", "NoNode", now, message);
        }
        for (pod, protection) in &plan.protections {
            let value = cluster.pods.get(pod).and_then(|pod| pod.shape.do_not_disrupt);
            if let Some((word, message)) = said_of(*protection, value.map_or("", |value| value.as_str())) {
                self.tell(Subject::Pod(*pod), word, word, now, || message.clone());
            }
        }
        self.told.retain(|_, (_, at)| now.duration_since(*at) < REPEAT_AFTER);
    }

    /// Tells what balanced pools gain by what `plan` would do: of one node at that node, of several at each of their pools.
    pub fn approve(&mut self, plan: &DisruptionPlan, cluster: &Cluster) {
        for one in plan.moves.iter().filter(|one| one.is_approved()) {
            for score in &one.scores {
                let subjects = match one.nodes.as_slice() {
                    [node] => {
                        let known = cluster.nodes.get(node).and_then(|node| cluster.claim_of(node));
                        let claim = known.map(|claim| Subject::Claim(claim.name));
                        [Some(Subject::Node(*node)), claim]
                    }
                    _ => [Some(Subject::Pool(score.pool)), None],
                };
                let message = approval(score);
                for subject in subjects.into_iter().flatten() {
                    let word = "ConsolidationApproved";
                    let (reason, said) = (word.into(), message.as_str().into());
                    let notice = Notice { subject, is_warning: false, reason, message: said };
                    self.notices.push(Planned::new(Action::Publish(notice), word, message.clone()));
                }
            }
        }
    }

    fn tell(
        &mut self,
        subject: Subject,
        word: &'static str,
        code: &'static str,
        now: Timestamp,
        message: impl Fn() -> String,
    ) {
        let is_known = self.told.get(&(subject, word)).is_some_and(|(known, at)| {
            let patience = match word {
                _ if *known == code => REPEAT_AFTER,
                "Unconsolidatable" => SAVINGS_CHANGE_AFTER,
                _ => CHANGE_AFTER,
            };
            now.duration_since(*at) < patience
        });
        if is_known {
            return;
        }
        self.told.insert((subject, word), (code, now));
        let message = message();
        let is_warning = word == "InvalidDoNotDisruptAnnotation";
        let notice = Notice { subject, is_warning, reason: word.into(), message: message.as_str().into() };
        self.notices.push(Planned::new(Action::Publish(notice), word, message));
    }

    /// What is to be published since this was last asked.
    pub fn take_notices(&mut self) -> Vec<Planned> {
        std::mem::take(&mut self.notices)
    }
}

fn approval(score: &Score) -> String {
    format!(
        "score {:.2} >= threshold {:.2} (k: {FACTOR}, savings {:.1}%, disruption {:.1}% of NodePool {})",
        score.value(),
        1.0 / f64::from(FACTOR),
        score.saved() * 100.0,
        score.disrupted() * 100.0,
        score.pool
    )
}

/// The word that people are told why a node stays by; `None`: it is not said.
fn word_for(kept: &Kept) -> Option<&'static str> {
    match kept.code {
        "NotInitialized"
        | "Deleting"
        | "Nominated"
        | "DoNotDisrupt"
        | "NoPoolLabel"
        | "PoolNotFound"
        | "PodDoNotDisrupt"
        | "PodDisruptionBudget"
        | "PodDisruptionBudgets"
        | "RollHalted"
        | "RollPaused"
        | "RollUnreadable" => Some("DisruptionBlocked"),
        "CannotReschedule" if kept.held_for == Some(DisruptionReason::Drifted) => Some("DisruptionBlocked"),
        "BufferPods"
        | "PodsExpected"
        | "InstanceTypeNotFound"
        | "LabelMissing"
        | "ConsolidationDisabled"
        | "PolicyWhenEmpty"
        | "CannotReschedule"
        | "NeedsSeveralReplacements"
        | "NeededByWaitingPods"
        | "NoCheaperReplacement"
        | "SoldOutLately"
        | "MovedInVain"
        | "TooLittleSaved"
        | "MinValuesNotMet"
        | "SpotToSpotDisabled"
        | "SpotToSpotFlexibility" => Some("Unconsolidatable"),
        _ => None,
    }
}

/// What the `value` of a pod's annotation comes to, for people; what holds for ever says so itself.
fn said_of(protection: Protection, value: &str) -> Option<(&'static str, String)> {
    let key = *annotation::DO_NOT_DISRUPT;
    Some(match protection {
        Protection::Forever => return None,
        Protection::Until(None) => {
            ("DoNotDisruptUntil", "It may not be disrupted yet: its time begins when it starts".into())
        }
        Protection::Until(Some(end)) => ("DoNotDisruptUntil", format!("It may be disrupted from {end} on")),
        Protection::Over => (
            "DoNotDisruptGracePeriodElapsed",
            format!("The time that {key} asks for is over: it may be disrupted"),
        ),
        Protection::Unreadable => (
            "InvalidDoNotDisruptAnnotation",
            format!("{key}: \"{value}\" protects nothing: write \"true\" or a time such as \"10m\""),
        ),
    })
}

/// `message` as a sentence of its own, as Karpenter has it.
fn sentence(message: &str) -> String {
    if let Some(rest) = message.strip_prefix("nodepool") {
        return format!("NodePool{rest}");
    }
    let mut letters = message.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
