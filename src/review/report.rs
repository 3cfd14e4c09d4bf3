//! What a review says, as a value: the document of `--output json`, and all that the Markdown and the tables are made from.
//!
//! Money is decimal text, lists are sorted, and what is not known is `null` and never zero.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::money::UsdPerHour;

/// Hours that a month counts, by the custom of price lists.
pub const HOURS_PER_MONTH: i64 = 730;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    pub version: u32,
    pub verdict: Verdict,
    /// One sentence that says all.
    pub headline: String,
    pub base: Side,
    /// What the base would become: the proposal, merged onto it in memory.
    pub head: Head,
    pub mode: Mode,
    /// Whose pods were played, in a sentence.
    pub demand: String,
    /// The moment that a snapshot speaks of; null without one.
    pub data_as_of: Option<String>,
    /// By name; the unchanged ones too.
    pub environments: Vec<EnvironmentReview>,
    pub gates: Vec<GateVerdict>,
    /// What is worth a look and changes no number.
    pub diagnostics: Vec<Remark>,
    /// What was taken for granted.
    pub assumptions: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    Pass,
    Fail,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    pub commit: String,
    /// The reference that was followed, if one was named.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    #[serde(flatten)]
    pub side: Side,
    /// 64 digits that stand for the files of the merge; null if the proposal already contains the base.
    pub merge_result: Option<String>,
}

/// Where the numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// There are none: only the objects are compared.
    Static,
    /// The fleet's own `simulation.toml`.
    Simulation,
    Snapshot,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentReview {
    pub name: String,
    pub change: Change,
    pub rendered_digest: Digests,
    /// Objects that differ.
    pub objects: Vec<ObjectReview>,
    /// Warnings of the checks that the base does not have.
    pub findings: Vec<Remark>,
    /// What guardrails say against it: those of the base, and those of the proposal.
    pub policies: Vec<PolicyReview>,
    /// Null if the environment was not played, or what changes is not known.
    pub nodes: Option<NodesReview>,
    pub cost: Option<CostReview>,
    pub pods: Option<PodsReview>,
    pub roll: Option<RollReview>,
    /// How wide the choice of machines is.
    pub choice: Option<ChoiceReview>,
    /// Pools that use more than their limits allow, or that pods wait for because of them.
    pub limits: Option<Vec<LimitReview>>,
    /// What else chance may make of it: a simulated cluster lives through the change once for each seed. Null where nothing is left to
    /// chance, and where nothing is played.
    pub draws: Option<Vec<DrawReview>>,
}

impl EnvironmentReview {
    /// Nodes that are replaced or removed, or should be: the most that any run of the simulated cluster came to. `None`: not known.
    pub fn nodes_replaced(&self) -> Option<usize> {
        let drawn = self.draws.iter().flatten().map(|draw| draw.nodes_replaced);
        self.nodes.iter().map(NodesReview::replaced).chain(drawn).max()
    }
}

/// How one life of the simulated cluster went. Machines boot slower or faster in each, and pods meet other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrawReview {
    /// What chance began with, as for `provisor simulate --seed`.
    pub seed: u64,
    /// All other numbers of the review are those of this life.
    pub is_shown: bool,
    /// Running with the base, and once the change has been carried out.
    pub nodes_before: usize,
    pub nodes_after: usize,
    /// Nodes that go because of the change.
    pub nodes_gone: usize,
    /// Nodes that are replaced or removed, or should be and are kept by something.
    pub nodes_replaced: usize,
    /// Why it never ends by itself: so many causes.
    pub blockers: usize,
    /// Pods that are on another node in the end, however often they moved.
    pub pods_moved: usize,
    /// How often pods were evicted until the change was carried out, and how many machines were bought: more than is to be seen in the end,
    /// where one move made another worth it.
    #[serde(default)]
    pub evictions: usize,
    #[serde(default)]
    pub machines_bought: usize,
    /// Pods that lose their place because of the change.
    pub pods_lost: usize,
    /// Pods without a node in the end.
    pub pods_waiting: usize,
    pub running_usd_per_hour: String,
    pub reached_usd_per_hour: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    Unchanged,
    Changed,
    Added,
    Removed,
    /// The base is not valid, so that there is nothing to compare with.
    Unknown,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Digests {
    pub before: Option<String>,
    pub after: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReview {
    pub kind: String,
    pub name: String,
    /// `create`, `update` or `delete`.
    pub action: String,
    pub fields: Vec<FieldReview>,
    /// `none`, `may-roll-nodes`, `rolls-nodes` or `destructive`.
    pub impact: String,
    /// Nodes that it touches; null if no cluster was played.
    pub nodes: Option<u32>,
    pub origin: Option<OriginReview>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldReview {
    pub path: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub impact: String,
    pub nodes: Option<u32>,
    pub origin: Option<OriginReview>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OriginReview {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remark {
    /// A name that never changes its meaning.
    pub code: String,
    pub message: String,
    pub origin: Option<OriginReview>,
}

/// One guardrail that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReview {
    /// The rule.
    pub id: String,
    /// `deny` or `warn`; what is waived only warns.
    pub severity: String,
    pub message: String,
    /// Its name, by which a waiver approves it.
    pub violation: String,
    /// Null if no waiver holds.
    pub waived: Option<WaivedReview>,
    /// What it is about.
    pub origin: Option<OriginReview>,
    /// Where the rule stands, in the base or in the proposal.
    pub rule: Option<OriginReview>,
    /// The base does not break it.
    pub is_new: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaivedReview {
    /// The last day of it, in UTC.
    pub until: String,
    pub reason: String,
    pub approvers: Vec<String>,
}

/// How many offerings pods may land on, and how many nodes hang on one of them, with the same pods on nodes bought anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChoiceReview {
    /// Triples of instance type, zone and capacity type that any pool may buy.
    pub offerings: Counts,
    /// The part of all nodes that is of the one offering with the most nodes, such as `0.17`.
    pub largest_share: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    pub before: usize,
    pub after: usize,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodesReview {
    /// Of all the cluster, somebody else's included: once the base has come to rest, and once the change was carried out.
    pub before: usize,
    pub after: usize,
    pub created: usize,
    /// Replaced because they are not what their pool would make now.
    pub drifted: usize,
    /// Moved away with their pool, or because a static pool shrinks.
    pub retired: usize,
    /// Given back because their pods now fit elsewhere for less.
    pub consolidated: usize,
    pub untouched: usize,
    /// Should be replaced, and are kept by something.
    pub stuck: Vec<StuckNode>,
    pub names: NodeNames,
}

impl NodesReview {
    pub fn replaced(&self) -> usize {
        self.drifted + self.retired + self.stuck.len()
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNames {
    pub drifted: Vec<String>,
    pub retired: Vec<String>,
    pub consolidated: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StuckNode {
    pub node: String,
    pub pool: Option<String>,
    pub code: String,
    pub message: String,
}

/// Dollars of the steady state: what the demand costs once everything has come to rest, on nodes bought anew.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostReview {
    pub currency: String,
    pub hours_per_month: String,
    /// A month.
    pub before: String,
    pub after: String,
    pub delta: String,
    pub usd_per_hour: Span,
    /// What the cluster that runs now costs per hour.
    pub running_usd_per_hour: String,
    /// What the cluster that runs now comes to by the change itself, per hour; differs from `after` where the pools do not
    /// let nodes be replaced by cheaper ones.
    pub reached_usd_per_hour: String,
    pub by_pool: Vec<PoolCost>,
    /// Monthly differences; they add up to `delta`.
    pub by_capacity_type: CapacityTypeCost,
    /// Types without a price; the nodes are not in any sum.
    pub unpriced: Vec<String>,
    /// Pods that find no node anew, and so are in no sum.
    pub unplaced: Counts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    pub before: String,
    pub after: String,
    pub delta: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CapacityTypeCost {
    pub spot: String,
    pub on_demand: String,
    pub reserved: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolCost {
    pub pool: String,
    /// A month.
    pub before: String,
    pub after: String,
    pub delta: String,
    pub nodes_before: usize,
    pub nodes_after: usize,
    /// Pairs of type, zone and capacity type that it may buy.
    pub offerings_before: usize,
    pub offerings_after: usize,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodsReview {
    /// Pods that change their node.
    pub moved: usize,
    /// The first hundred of them.
    pub moved_names: Vec<String>,
    /// Pods that have a place now, or would have one, and then have none.
    pub new_unschedulable: Vec<WaitingPod>,
    /// Pods that get a place by the change.
    pub fixed: Vec<String>,
    /// Pods that would have been on spot machines, and find none any more that fits: they are on demand.
    pub fallback_only: Vec<String>,
    /// Pods that wait with and without it.
    pub waiting_anyway: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingPod {
    pub pod: String,
    /// No pool takes it any more, room or not.
    pub lost_only_pool: bool,
    /// It keeps running where it is, but would find no place again.
    pub still_runs: bool,
    pub reasons: Vec<WaitingReason>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingReason {
    pub pool: Option<String>,
    pub code: String,
    pub message: String,
}

/// How the nodes go, within the budgets, from the moment of the change on.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollReview {
    pub pools: Vec<PoolRoll>,
    /// Why it never ends by itself, a sentence for each cause.
    pub blockers: Vec<String>,
    /// Nodes that become too old while it goes on; no budget holds them.
    pub expiring: Vec<ExpiringNode>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolRoll {
    pub pool: String,
    /// `drifted`: replaced. `retired`: moved away before their pool goes. Both within its budgets; what a static pool has too much
    /// is retired at once.
    pub reason: String,
    pub nodes: usize,
    pub at_once: usize,
    /// Null if some of them never go.
    pub waves: Option<usize>,
    /// When the last wave is through, at five minutes a wave; null if some of them never go.
    pub ends: Option<String>,
    /// While a window of a budget lets none go.
    pub pauses: Vec<Pause>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pause {
    pub from: String,
    pub until: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpiringNode {
    pub node: String,
    pub at: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitReview {
    pub pool: String,
    pub resource: String,
    pub used: String,
    pub limit: String,
    /// More is in use than the limit allows; else the limit is only full.
    pub is_exceeded: bool,
    /// Pods that wait because of it.
    pub waiting_pods: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateVerdict {
    pub gate: String,
    pub passed: bool,
    /// What was found, and what is allowed.
    pub message: String,
}

/// What an hourly price comes to in a month, exactly.
pub fn monthly(price: UsdPerHour) -> String {
    decimal(i128::from(price.0) * i128::from(HOURS_PER_MONTH))
}

/// Micro-dollars as dollars: two decimals, more only if they are there.
pub fn decimal(micros: i128) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let (whole, fraction) = (micros.unsigned_abs() / 1_000_000, micros.unsigned_abs() % 1_000_000);
    let digits = format!("{fraction:06}");
    let kept = digits.trim_end_matches('0').len().max(2);
    format!("{sign}{whole}.{}", &digits[..kept])
}

impl EnvironmentReview {
    /// The same where the base is not valid: what the proposal says, and nothing of what changes by it.
    pub fn without_base(self) -> Self {
        Self {
            change: Change::Unknown,
            objects: Vec::new(),
            nodes: None,
            cost: None,
            pods: None,
            roll: None,
            choice: None,
            limits: None,
            draws: None,
            ..self
        }
    }
}

impl Review {
    /// Whether anything differs that a person should know.
    pub fn says_something(&self) -> bool {
        self.verdict == Verdict::Fail
            || self.environments.iter().any(|environment| {
                environment.change != Change::Unchanged
                    || !environment.findings.is_empty()
                    || !environment.policies.is_empty()
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: REV-015
    #[test]
    fn rev_015_months_are_exact() {
        let before = UsdPerHour(10 * 100_000);
        let after = UsdPerHour(10 * 120_000);
        assert_eq!(monthly(after - before), "146.00");
        assert_eq!(monthly(before - after), "-146.00");
        assert_eq!(monthly(UsdPerHour(1)), "0.00073");
        assert_eq!(monthly(UsdPerHour(i64::MAX)), "6733061586903986.33911");
    }
}
