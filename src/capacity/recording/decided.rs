//! A decision as it is recorded: what was done and why, and of what stays what is new.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::capacity::decision::{Decision, Planned};
use crate::capacity::disruption::{self, Alternative, Command, DisruptionPlan};
use crate::model::action::{Action, LaunchOption, Subject};
use crate::model::money::UsdPerHour;
use crate::model::name::{ClaimName, NodeName};
use crate::model::pool::DisruptionReason;

/// So many ways to buy a machine are written out, each of another type or capacity type; of all of them the digest.
const WAYS_TOLD: usize = 6;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Decided {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Done>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<Stayed>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub started: Vec<Started>,
    /// Disruption that did not stand a second look: by which method, and how many nodes stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withdrawn: Vec<(String, usize)>,
    /// Nodes that stay, and of which there is something else to say than was recorded last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
}

/// An action and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// An [`Action`] under its name; of a launch a [`Purchase`].
    #[serde(rename = "do")]
    pub action: Value,
    pub code: String,
    pub why: String,
}

/// A launch, without most of the ways in which it may be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Purchase {
    pub claim: ClaimName,
    /// How many ways there were.
    pub ways: usize,
    /// The cheapest way of each type and capacity type, of the cheapest few.
    pub best: Vec<LaunchOption>,
    /// Of all ways, in order.
    pub digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stayed {
    pub subject: Subject,
    pub code: String,
    pub why: String,
}

/// Disruption that began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub method: String,
    pub nodes: Vec<NodeName>,
    pub claims: Vec<ClaimName>,
    /// The cheapest way to buy each replacement.
    pub replacements: Vec<LaunchOption>,
    pub savings: UsdPerHour,
    /// How many pods move.
    pub pods: usize,
    pub why: String,
    /// What moving them has to be worth, where that counts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub least: Option<UsdPerHour>,
    /// What it was preferred to.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub over: Vec<Beaten>,
}

/// What might have been done instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beaten {
    pub nodes: Vec<NodeName>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub replacements: Vec<LaunchOption>,
    pub savings: UsdPerHour,
    pub pods: usize,
    pub code: String,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub node: NodeName,
    pub code: String,
    pub why: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held_for: Option<DisruptionReason>,
    /// Since when, if that was known then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since: Option<Timestamp>,
    /// It may have been so before.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub or_earlier: bool,
    /// When time alone may let it go.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_look: Option<Timestamp>,
}

impl Kept {
    fn of(kept: &disruption::Kept) -> Self {
        Self {
            node: kept.node,
            code: kept.code.into(),
            why: kept.message.clone(),
            held_for: kept.held_for,
            since: kept.since.map(|since| since.at),
            or_earlier: kept.since.is_some_and(|since| since.or_earlier),
            next_look: kept.next_look,
        }
    }

    /// Whether it says of the node what `kept` does.
    fn says(&self, kept: &disruption::Kept) -> bool {
        self.code == kept.code
            && self.why == kept.message
            && self.since == kept.since.map(|since| since.at)
            && self.next_look == kept.next_look
    }
}

impl Done {
    /// The kind of action, such as `CreateClaim`.
    pub fn kind(&self) -> &str {
        let named = self.action.as_object().and_then(|action| action.keys().next());
        named.map_or("", String::as_str)
    }

    /// What is in it.
    pub fn body(&self) -> &Value {
        let inside = self.action.as_object().and_then(|action| action.values().next());
        inside.unwrap_or(&Value::Null)
    }

    fn of(planned: &Planned) -> Self {
        let action = match &planned.action {
            Action::Launch { claim, options } => json!({ "Launch": Purchase::of(*claim, options) }),
            action => serde_json::to_value(action).unwrap_or(Value::Null),
        };
        Self { action, code: planned.reason.code.into(), why: planned.reason.message.clone() }
    }
}

impl Purchase {
    fn of(claim: ClaimName, options: &[LaunchOption]) -> Self {
        let mut best: Vec<LaunchOption> = Vec::new();
        for option in options {
            let is_told = best.iter().any(|told| {
                told.instance_type == option.instance_type && told.capacity_type == option.capacity_type
            });
            if !is_told {
                best.push(*option);
            }
            if best.len() == WAYS_TOLD {
                break;
            }
        }
        let mut hash = Sha256::new();
        for LaunchOption { price, instance_type, zone, capacity_type, reservation } in options {
            let reservation = reservation.map_or("", |id| id.as_str());
            hash.update(format!("{price} {instance_type} {zone} {capacity_type} {reservation}\n"));
        }
        let digest = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { claim, ways: options.len(), best, digest }
    }
}

impl Started {
    fn of(command: &Command) -> Self {
        Self {
            method: command.method.as_str().into(),
            nodes: command.nodes.clone(),
            claims: command.claims.clone(),
            replacements: command.replacements.iter().map(|node| *node.launch()).collect(),
            savings: command.savings,
            pods: command.pods.len(),
            why: command.why(),
            least: command.least_savings,
            over: command.alternatives.iter().map(Beaten::of).collect(),
        }
    }
}

impl Beaten {
    fn of(one: &Alternative) -> Self {
        Self {
            nodes: one.nodes.clone(),
            replacements: one.replacements.clone(),
            savings: one.savings,
            pods: one.pods,
            code: one.code.into(),
            why: one.message.clone(),
        }
    }
}

/// Turns decisions into what is recorded of them. Which nodes stay and why is long and seldom new: only what is new is written.
#[derive(Clone, Debug, Default)]
pub struct Abridger {
    /// The last that was looked at.
    judged: Option<Arc<DisruptionPlan>>,
    kept: BTreeMap<NodeName, Kept>,
}

impl Abridger {
    pub fn abridge(&mut self, decision: &Decision) -> Decided {
        Decided {
            actions: decision.actions.iter().map(Done::of).collect(),
            stays: decision
                .stays
                .iter()
                .map(|stay| Stayed {
                    subject: stay.subject,
                    code: stay.reason.code.into(),
                    why: stay.reason.message.clone(),
                })
                .collect(),
            started: decision.started.iter().map(Started::of).collect(),
            withdrawn: decision
                .withdrawn
                .iter()
                .map(|(method, nodes)| (method.as_str().into(), *nodes))
                .collect(),
            kept: self.news(&decision.plan.disruption),
            wake: decision.wake_at,
        }
    }

    /// Nodes of which there is something else to say than before, by name.
    fn news(&mut self, plan: &Arc<DisruptionPlan>) -> Vec<Kept> {
        if self.judged.as_ref().is_some_and(|judged| Arc::ptr_eq(judged, plan)) {
            return Vec::new();
        }
        self.judged = Some(plan.clone());
        let mut former = std::mem::take(&mut self.kept);
        let mut news = Vec::new();
        for kept in &plan.kept {
            let known = match former.entry(kept.node) {
                Entry::Occupied(known) if known.get().says(kept) => known.remove(),
                _ => {
                    let told = Kept::of(kept);
                    news.push(told.clone());
                    told
                }
            };
            self.kept.insert(kept.node, known);
        }
        news
    }
}
