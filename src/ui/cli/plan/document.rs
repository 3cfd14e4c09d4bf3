//! The answer of `provisor plan` as other programs read it. Renaming a field raises `version`; adding one does not.
//!
//! Every list is ordered: new nodes in the order in which they were opened, existing nodes and pods by name, commands in
//! the order in which they would start, `kept` by node.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::gitops::plan::PlanRow;

pub const VERSION: u32 = 1;

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanDocument {
    pub version: u32,
    /// The moment that the plan takes as the present.
    pub now: String,
    pub capacity: Capacity,
    /// What would change in the cluster's objects; empty without a repository.
    pub sync: Sync,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    pub provisioning: Provisioning,
    pub disruption: Disruption,
    /// Only with `--until-settled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provisioning {
    pub new_nodes: Vec<NewNode>,
    /// Waiting pods that nodes which exist already will take.
    pub existing_nodes: Vec<ExistingNode>,
    pub unschedulable: Vec<Unschedulable>,
    /// The room that CapacityBuffers keep, by namespace and name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<Buffer>,
    /// The pools that keep a number of nodes, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub static_pools: Vec<StaticPool>,
    /// What all of `newNodes` cost together, as launched.
    pub usd_per_hour: String,
    /// No nodes that carry the pods of `newNodes` cost less together, whatever the plan. Rules about other pods, volumes, ports, limits, weights and
    /// wishes are left out of it, so not every plan can come down to it.
    pub lower_bound_usd_per_hour: String,
    /// By how much `usdPerHour` exceeds `lowerBoundUsdPerHour`, as a part of the latter, rounded up: `0.0317` is 3.17 %. Absent if the bound is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<String>,
}

/// A node that would be bought.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewNode {
    /// `new-1`, `new-2`, …, counted over the whole plan.
    pub id: String,
    pub pool: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// The capacity type of `launch`.
    pub capacity_type: String,
    /// All that are open, if there is more than one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capacity_types: Vec<String>,
    /// All that are open.
    pub zones: Vec<String>,
    /// All that are open, cheapest first.
    pub instance_types: Vec<String>,
    pub launch: Launch,
    /// Why it is this type: `the cheapest of 36 ways to buy it`.
    pub why: String,
    /// The cheapest way to buy each of the next types that would do, cheapest first; at most three.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next_best: Vec<Launch>,
    /// Sum of its pods and of the daemons that will run there, as Kubernetes quantities.
    pub requests: BTreeMap<String, String>,
    pub pods: Vec<String>,
    /// Pods that do not exist and stand for the room that a CapacityBuffer keeps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buffer_pods: Vec<String>,
    /// Why a node without pods is bought: `StaticPool`. Absent where its pods are the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A NodePool with `replicas`, and what becomes of the nodes that it lacks or has too many.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticPool {
    pub pool: String,
    pub replicas: u32,
    /// How many it has, those under way included.
    pub nodes: u64,
    /// How many of `newNodes` are for it.
    pub new_nodes: usize,
    /// `Complete`, `Missing` or `Excess`; or a word for what keeps it from having all its nodes, such as `LimitReached`.
    pub reason: String,
    pub message: String,
}

/// A CapacityBuffer and what becomes of the room that it asks for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Buffer {
    /// `namespace/name`.
    pub buffer: String,
    /// How many pods it keeps room for; 0 if it cannot be acted upon.
    pub pods: u32,
    /// How many of them have room on what is there.
    pub fitting: u32,
    /// How many of them get room on new nodes.
    pub on_new_nodes: u32,
    /// The reason of its condition `ReadyForProvisioning` if that is false, else of `Provisioning`.
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    pub effect: String,
}

/// The offering bought if every one is available: the cheapest.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    pub usd_per_hour: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExistingNode {
    /// A Node, or a NodeClaim on its way to become one.
    pub node: String,
    pub pods: Vec<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unschedulable {
    /// `namespace/name`.
    pub pod: String,
    /// Never empty.
    pub reasons: Vec<Reason>,
    /// The smallest edit of a pool with which the pod, if it were alone, would get a new node. Absent if none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
}

/// An edit that was tried, and what would come of it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    pub pool: String,
    /// Needed together; never empty. `raise limit cpu from 64 to 66`, `allow topology.kubernetes.io/zone us-west-2c`,
    /// `label its nodes team=a`, `take taint …`, `lower minValues of …`.
    pub edits: Vec<String>,
    /// What would be bought for the pod.
    pub launch: Launch,
    /// The same in one sentence.
    pub message: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// Null when the reason lies in the pod itself or in all pools together.
    pub pool: Option<String>,
    /// A word that never changes its meaning.
    pub code: String,
    pub message: String,
    /// How near the pool comes to taking the pod: `fits m5.large ($0.096/h), which has cpu 2, but of limit cpu 64 only 1 is left`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// All that would start now, in order.
    pub commands: Vec<Command>,
    /// Every owned node that no command names, with the first reason that keeps it.
    pub kept: Vec<Kept>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// `delete` or `replace`.
    pub decision: String,
    /// `Empty`, `Underutilized`, `Drifted`, `Expired`, `Interrupted`, `Unhealthy` or `ScaledDown`.
    pub reason: String,
    pub method: String,
    pub nodes: Vec<String>,
    pub replacements: Vec<NewNode>,
    pub savings_usd_per_hour: String,
    /// What moving its pods has to be worth: a replacement that saves less is not made. Absent where that does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_savings_usd_per_hour: Option<String>,
    pub pods: Vec<Move>,
    /// What it was preferred to, of what was looked at: first what would save most, then what moves least. At most three.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
}

/// What might be done instead of a command, and why it is not.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Alternative {
    /// `delete` or `replace`.
    pub decision: String,
    pub nodes: Vec<String>,
    /// The cheapest way to buy each replacement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replacements: Vec<Launch>,
    /// Negative if it costs more than what goes.
    pub savings_usd_per_hour: String,
    /// How many pods would move.
    pub pods: usize,
    /// `NeedsReplacement`: what stays has no room for all pods. `SavesLess`, `MovesMorePods`: as it says. `LessInAll`: it saves no less, but not everything
    /// else that goes now could go with it. `NoBetter`: it is worth no more, and comes later in order.
    pub code: String,
    pub message: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    pub pod: String,
    /// A node, or the id of a replacement; null for a pod that has no place yet.
    pub to: Option<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub node: String,
    /// A word that never changes its meaning.
    pub code: String,
    pub message: String,
    /// Since when it stays for this reason, as far as the objects tell; null if they do not.
    pub since: Option<String>,
    /// When time alone may let it go: the reason ends by itself, or the node becomes too old. Null: only something else than time can.
    pub next_look: Option<String>,
    /// What has to happen first, time aside: `its replacement is ready, or is given up`.
    pub waits_for: String,
}

/// The cluster once nothing is left to do.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Settled {
    pub nodes: Vec<SettledNode>,
    pub steps: u64,
    /// Whether really nothing was left to do when it ended.
    pub quiescent: bool,
    /// How late it is by then.
    pub until: String,
    /// What the nodes of pools cost before the first step, and at the end.
    pub start_usd_per_hour: String,
    pub usd_per_hour: String,
    /// Pods that had to leave a node, each time counted.
    pub evictions: u64,
    /// Pods that waited and got a place.
    pub bound: u64,
    /// Pods that wait at the end.
    pub pending: u64,
    pub nodes_removed: u64,
    pub nodes_started: u64,
    /// One entry for each thing that was carried out, in order.
    pub history: Vec<SettledStep>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettledStep {
    pub at: String,
    /// `provisioning`, `termination`, or the method of a command.
    pub method: String,
    /// Nodes that went, nodes that came.
    pub nodes: u64,
    pub new_nodes: u64,
    /// Pods that moved or got a place.
    pub pods: u64,
    /// What the nodes of pools cost afterwards.
    pub usd_per_hour: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettledNode {
    pub name: String,
    /// Null for a node that no pool owns.
    pub pool: Option<String>,
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    /// Absent for a node that no pool owns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<String>,
    /// Without those of DaemonSets.
    pub pods: u64,
}

/// What the repository would change in the cluster. All fields are absent without a repository.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("additionalProperties" = true))]
pub struct Sync {
    /// Numbers of changes by kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Value>,
    /// The plan as the sync loop would carry it out: hash, environment, commit, digest, changes, skipped, unmanaged.
    #[serde(flatten)]
    #[schemars(skip)]
    pub plan: Option<Value>,
    /// The same for people.
    #[serde(skip)]
    pub rows: Vec<PlanRow>,
    /// `2 to create, 1 refused`.
    #[serde(skip)]
    pub changes: Option<String>,
}

impl PlanDocument {
    /// Whether carrying the plan out would change nothing.
    pub fn is_empty(&self) -> bool {
        let capacity = &self.capacity;
        let changes = self.sync.plan.as_ref().and_then(|plan| plan.get("changes")).and_then(Value::as_array);
        capacity.provisioning.new_nodes.is_empty()
            && capacity.disruption.commands.is_empty()
            && changes.is_none_or(Vec::is_empty)
    }
}
