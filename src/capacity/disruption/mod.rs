//! Which node may go, why, and what comes in its place.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::decision::Steps;
use super::scheduling::{self, NewNode, Place, Supply};
use crate::model::action::Action;
use crate::model::claim::ConditionType;
use crate::model::money::UsdPerHour;
use crate::model::name::{NodeName, ObjectKey};
use crate::model::pool::DisruptionReason;

/// How often nodes are judged while nothing happens, as in Karpenter.
const JUDGE_EVERY: SignedDuration = SignedDuration::from_secs(10);

#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Replace spot machines by cheaper spot machines.
    pub spot_to_spot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Delete,
    Replace,
}

/// Nodes that go together, and what comes in their place.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    pub verb: Verb,
    pub reason: DisruptionReason,
    /// A stable word: `emptiness`, `drift`, `single-node-consolidation`…
    pub method: &'static str,
    pub nodes: Vec<NodeName>,
    pub replacements: Vec<NewNode>,
    pub savings: UsdPerHour,
    pub pods: Vec<(ObjectKey, Destination)>,
}

/// Where a pod of a disrupted node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Place(Place),
    /// The replacement with this place in the command's list.
    Replacement(usize),
}

/// A node that stays, and the first reason why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub node: NodeName,
    pub code: &'static str,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DisruptionPlan {
    pub commands: Vec<Command>,
    pub kept: Vec<Kept>,
}

/// What a judgement looks at.
pub(crate) struct View<'a> {
    pub cluster: &'a Cluster,
    pub supply: &'a Supply,
    pub now: Timestamp,
    pub scheduling: &'a scheduling::Settings,
    pub settings: &'a Settings,
    /// Nodes that pods are expected on, until when.
    pub nominated: &'a BTreeMap<Place, Timestamp>,
    pub seed: u64,
}

/// Commands under way, and when nodes were judged last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disruptions {
    is_touched: bool,
    judged: Option<Timestamp>,
}

impl Disruptions {
    /// Something changed that may let a node go.
    pub fn touch(&mut self) {
        self.is_touched = true;
    }

    /// Judges nodes if it is time to. `Some` if it did.
    pub fn step(&mut self, view: &View, is_batch_open: bool, steps: &mut Steps) -> Option<DisruptionPlan> {
        let due = self.judged.map_or(view.now, |judged| judged + JUDGE_EVERY);
        if is_batch_open || (!self.is_touched && view.now < due) || view.now < due {
            steps.wake(due.max(view.now + SignedDuration::from_secs(1)));
            return None;
        }
        self.is_touched = false;
        self.judged = Some(view.now);
        steps.wake(view.now + JUDGE_EVERY);
        let plan = plan_emptiness(view);
        for command in &plan.commands {
            for node in &command.nodes {
                let claim = view.cluster.nodes.get(node).and_then(|node| view.cluster.claim_of(node));
                if let Some(claim) = claim {
                    steps.push(Action::DeleteClaim { claim: claim.name }, "Empty", "no pods run on it");
                }
            }
        }
        Some(plan)
    }
}

fn plan_emptiness(view: &View) -> DisruptionPlan {
    let mut plan = DisruptionPlan::default();
    for node in view.cluster.nodes.values() {
        let Some(claim) = view.cluster.claim_of(node) else { continue };
        let Some(pool) = claim.pool().and_then(|pool| view.cluster.pools.get(&pool)) else { continue };
        let mut keep = |code, message: String| plan.kept.push(Kept { node: node.name, code, message });
        let busy =
            view.cluster.pods_of(node.name).filter(|pod| !pod.is_daemon() && !pod.is_terminal()).count();
        let since = claim.last_pod_event.or(claim.conditions.true_since(ConditionType::Initialized));
        if claim.deleted.is_some() {
            keep("Deleting", "it is on its way out".to_string());
        } else if !claim.conditions.is_true(ConditionType::Initialized) {
            keep("NotInitialized", "it is not initialized yet".to_string());
        } else if view.nominated.contains_key(&Place::Node(node.name)) {
            keep("Nominated", "waiting pods are expected on it".to_string());
        } else if busy > 0 {
            keep("RunsPods", format!("{busy} pods run on it"));
        } else if pool
            .disruption
            .consolidate_after
            .duration
            .is_none_or(|wait| since.is_none_or(|since| view.now < since + wait))
        {
            keep("TooBrief", "it has been quiet for too short a time".to_string());
        } else {
            plan.commands.push(Command {
                verb: Verb::Delete,
                reason: DisruptionReason::Empty,
                method: "emptiness",
                nodes: vec![node.name],
                replacements: Vec::new(),
                savings: UsdPerHour::ZERO,
                pods: Vec::new(),
            });
        }
    }
    plan
}
