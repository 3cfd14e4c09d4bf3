//! Whether the answer is good enough to be merged: what nobody may do whatever the reason, decided by who asks.
//!
//! Gates come from the command line of the base's own pipeline, never from the files under review: a proposal does not
//! weaken its judge. A gate that needs numbers fails where there are none, because not knowing is no pass.

use std::collections::{BTreeMap, BTreeSet};

use super::headline::is_new_warning;
use super::report::{Change, EnvironmentReview, GateVerdict, HOURS_PER_MONTH, decimal};
use crate::gitops::window::matches;
use crate::model::count::counted;
use crate::model::money::UsdPerHour;

const UNCOMPARED: &str = "not known, because the base is not valid";

/// Why the numbers of an environment are not known.
fn unknown(environment: &EnvironmentReview) -> &'static str {
    match environment.change {
        Change::Unknown => UNCOMPARED,
        _ => "not known without a snapshot or a simulation.toml for it",
    }
}

fn uncompared(without_base: &[&str]) -> String {
    format!("{}: {UNCOMPARED}", without_base.join(", "))
}

/// Whether pods may lose their place although no pool of theirs is seen to go.
fn may_lose(environment: &EnvironmentReview) -> bool {
    matches!(environment.change, Change::Removed | Change::Unknown)
}

/// How much more a proposal may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostIncrease {
    /// Micro-dollars a month.
    Monthly(i64),
    /// Millionths of what it costs before: 5 % is 50,000.
    Share(i64),
}

/// What fails a review.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gates {
    /// What a guardrail denies.
    pub denials: bool,
    /// Environments whose base is not valid, so that nothing is known of what changes.
    pub unknown_bases: bool,
    /// Pods that lose their place; and, where nobody knows of pods, pools that go.
    pub unschedulable: bool,
    /// Pools with running nodes that are removed.
    pub destructive: bool,
    /// Warnings that the base does not have.
    pub findings: bool,
    /// Names of pools, with `*` and `?`, that may not be removed or rolled.
    pub protected: Vec<String>,
    /// The most that any environment may cost, per hour.
    pub spend_ceiling: Option<UsdPerHour>,
    pub cost_increase: Option<CostIncrease>,
    /// The most nodes that may be replaced or removed.
    pub nodes_replaced: Option<usize>,
}

/// One verdict for each gate that is closed by something, or that was asked for by name. `without_base` are environments
/// whose base is not valid.
pub fn judge(gates: &Gates, environments: &[EnvironmentReview], without_base: &[&str]) -> Vec<GateVerdict> {
    let mut verdicts = Vec::new();
    let mut say = |gate: &str, passed: bool, message: String| {
        verdicts.push(GateVerdict { gate: gate.into(), passed, message });
    };
    let changed: Vec<&EnvironmentReview> =
        environments.iter().filter(|environment| environment.change != Change::Unchanged).collect();
    let denied = |environment: &&EnvironmentReview| {
        environment.policies.iter().any(|policy| policy.severity == "deny")
    };
    if gates.denials && environments.iter().any(|environment| denied(&environment)) {
        let of_one = |environment: &EnvironmentReview| {
            let rules = environment.policies.iter().filter(|policy| policy.severity == "deny");
            let rules: BTreeSet<&str> = rules.map(|policy| policy.id.as_str()).collect();
            format!("{} by {}", environment.name, rules.into_iter().collect::<Vec<_>>().join(", "))
        };
        let all: Vec<String> = environments.iter().filter(denied).map(of_one).collect();
        say("deny", false, format!("denied by guardrails: {}", all.join("; ")));
    }
    if gates.unknown_bases && !without_base.is_empty() {
        let names = without_base.join(", ");
        let advice = "compare with the last commit that was, or agree to it with --fail-on none and without other gates";
        say("base", false, format!("the base is not valid, so what changes is not known: {names}; {advice}"));
    }
    if gates.unschedulable {
        let lost = changed.iter().filter_map(|environment| {
            let count = environment.pods.as_ref()?.new_unschedulable.len();
            (count > 0).then(|| format!("{} in {}", counted(count, "pod"), environment.name))
        });
        let lost: Vec<String> = lost.collect();
        let doubtful: Vec<&EnvironmentReview> =
            changed.iter().filter(|environment| environment.pods.is_none()).copied().collect();
        // Where a pool goes, so may the only place of some pod.
        let is_in_doubt =
            doubtful.iter().any(|environment| may_lose(environment) || !destroyed(environment).is_empty());
        let mut why: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for environment in &doubtful {
            why.entry(unknown(environment)).or_default().push(&environment.name);
        }
        let why: Vec<String> =
            why.iter().map(|(why, names)| format!("{}: {why}", names.join(", "))).collect();
        let message = match (lost.is_empty(), why.is_empty()) {
            (false, _) => format!("without a place: {}", lost.join(", ")),
            (true, true) => "no pod loses its place".into(),
            (true, false) => why.join("; "),
        };
        say("unschedulable", lost.is_empty() && !is_in_doubt, message);
    }
    if gates.destructive {
        let gone: Vec<String> = changed.iter().flat_map(|environment| destroyed(environment)).collect();
        let message = match (gone.is_empty(), without_base.is_empty()) {
            (true, true) => "no pool with nodes is removed".into(),
            (true, false) => uncompared(without_base),
            (false, _) => format!("removed with nodes: {}", gone.join(", ")),
        };
        say("destructive", gone.is_empty() && without_base.is_empty(), message);
    }
    if gates.findings {
        let new = |environment: &EnvironmentReview| {
            let policies = environment.policies.iter();
            let warned = policies.filter(|policy| is_new_warning(policy)).count();
            environment.findings.len() + warned
        };
        let count: usize = environments.iter().map(new).sum();
        say("warn", count == 0, format!("{} that the base does not have", counted(count, "warning")));
    }
    if !gates.protected.is_empty() {
        let touched: BTreeSet<String> =
            changed.iter().flat_map(|environment| touched(environment, &gates.protected)).collect();
        let passed = touched.is_empty() && without_base.is_empty();
        let message = match (touched.is_empty(), without_base.is_empty()) {
            (true, true) => "no protected pool is touched".into(),
            (true, false) => uncompared(without_base),
            (false, _) => format!("protected: {}", touched.into_iter().collect::<Vec<_>>().join(", ")),
        };
        say("protect", passed, message);
    }
    for environment in &changed {
        let name = &environment.name;
        let unknown = format!("{name}: {}", unknown(environment));
        if let Some(ceiling) = gates.spend_ceiling {
            let (passed, message) = match costs(environment) {
                Some((_, after)) => (after <= ceiling, format!("{name}: ${after}/h of ${ceiling}/h")),
                None => (false, unknown.clone()),
            };
            say("max-usd-per-hour", passed, message);
        }
        if let Some(increase) = gates.cost_increase {
            let (passed, message) = match costs(environment) {
                Some((before, after)) => judge_increase(name, before, after, increase),
                None => (false, unknown.clone()),
            };
            say("max-cost-increase", passed, message);
        }
        if let Some(most) = gates.nodes_replaced {
            let (passed, message) = match environment.nodes_replaced() {
                Some(count) => (
                    count <= most,
                    format!(
                        "{name}: {} replaced or removed{}; {most} allowed",
                        counted(count, "node"),
                        by_chance(environment, count)
                    ),
                ),
                None => (false, unknown),
            };
            say("max-nodes-replaced", passed, message);
        }
    }
    verdicts
}

/// Where not every run of the simulated cluster replaces as many nodes.
fn by_chance(environment: &EnvironmentReview, replaced: usize) -> String {
    let draws = environment.draws.as_deref().unwrap_or_default();
    let so_many = draws.iter().filter(|draw| draw.nodes_replaced == replaced).count();
    match so_many < draws.len() {
        true => format!(" in {so_many} of {}", counted(draws.len(), "run")),
        false => String::new(),
    }
}

/// Dollars per hour before and after; `None` if they are not known, in part or at all.
fn costs(environment: &EnvironmentReview) -> Option<(UsdPerHour, UsdPerHour)> {
    let cost = environment.cost.as_ref().filter(|cost| cost.unpriced.is_empty())?;
    Some((cost.usd_per_hour.before.parse().ok()?, cost.usd_per_hour.after.parse().ok()?))
}

fn judge_increase(name: &str, before: UsdPerHour, after: UsdPerHour, most: CostIncrease) -> (bool, String) {
    let delta = i128::from((after - before).0);
    let a_month = delta * i128::from(HOURS_PER_MONTH);
    match most {
        CostIncrease::Monthly(limit) => {
            let (found, limit_text) = (decimal(a_month), decimal(i128::from(limit)));
            (a_month <= i128::from(limit), format!("{name}: ${found} a month more; ${limit_text} allowed"))
        }
        CostIncrease::Share(limit) => {
            let (left, right) = (delta * 1_000_000, i128::from(limit) * i128::from(before.0));
            let found = match before.0 {
                0 => "from nothing".to_owned(),
                before => format!("{} %", decimal(delta * 100_000_000 / i128::from(before))),
            };
            (left <= right, format!("{name}: {found} more; {} % allowed", decimal(i128::from(limit) * 100)))
        }
    }
}

/// Pools that are removed while nodes of them run.
fn destroyed(environment: &EnvironmentReview) -> Vec<String> {
    let pools = environment.objects.iter().filter(|object| object.kind == "NodePool");
    let gone = pools.filter(|object| object.impact == "destructive" && object.nodes != Some(0));
    gone.map(|object| match object.nodes {
        Some(nodes) => format!("{}/{} ({})", environment.name, object.name, counted(nodes as usize, "node")),
        None => format!("{}/{}", environment.name, object.name),
    })
    .collect()
}

/// Protected pools that are removed, or whose nodes are replaced.
fn touched(environment: &EnvironmentReview, protected: &[String]) -> Vec<String> {
    let is_protected = |name: &str| protected.iter().any(|glob| matches(glob, name));
    let mut touched = Vec::new();
    for object in
        environment.objects.iter().filter(|object| object.kind == "NodePool" && is_protected(&object.name))
    {
        let what = match (object.action.as_str(), object.impact.as_str()) {
            ("delete", _) => "is removed",
            (_, "destructive") => "loses nodes",
            (_, "rolls-nodes") if object.nodes != Some(0) => "has its nodes replaced",
            _ => continue,
        };
        touched.push(format!("{}/{} {what}", environment.name, object.name));
    }
    let rolled = environment.roll.iter().flat_map(|roll| &roll.pools);
    for pool in rolled.filter(|pool| pool.reason == "drifted" && is_protected(&pool.pool)) {
        touched.push(format!("{}/{} has its nodes replaced", environment.name, pool.pool));
    }
    touched
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Rows: REV-043
    #[test]
    fn rev_043_cost_gates_are_exact() {
        let before = UsdPerHour(1_000_000);
        let five = CostIncrease::Share(50_000);
        assert!(judge_increase("prod", before, UsdPerHour(1_031_000), five).0);
        assert!(judge_increase("prod", before, UsdPerHour(1_050_000), five).0);
        let (passed, message) = judge_increase("prod", before, UsdPerHour(1_050_100), five);
        assert!(!passed);
        assert_eq!(message, "prod: 5.01 % more; 5.00 % allowed");
        let most = CostIncrease::Monthly(73_000_000);
        assert!(judge_increase("prod", before, UsdPerHour(1_100_000), most).0);
        assert!(!judge_increase("prod", before, UsdPerHour(1_100_001), most).0);
        assert!(!judge_increase("prod", UsdPerHour::ZERO, UsdPerHour(1), five).0);
    }

    #[test]
    fn a_roll_is_judged_by_the_largest_that_chance_made_of_it() {
        let draw = |seed: u64, replaced: usize| {
            json!({
                "seed": seed, "isShown": seed == 1, "nodesBefore": 4, "nodesAfter": 4, "nodesGone": replaced,
                "nodesReplaced": replaced, "blockers": 0, "podsMoved": 9, "podsLost": 0, "podsWaiting": 0,
                "runningUsdPerHour": "0.4", "reachedUsdPerHour": "0.4",
            })
        };
        let environment: EnvironmentReview = serde_json::from_value(json!({
            "name": "prod", "change": "changed", "renderedDigest": { "before": null, "after": null },
            "objects": [], "findings": [], "policies": [],
            "nodes": {
                "before": 4, "after": 4, "created": 2, "drifted": 2, "retired": 0, "consolidated": 0,
                "untouched": 2, "stuck": [], "names": { "drifted": [], "retired": [], "consolidated": [] },
            },
            "draws": [draw(1, 2), draw(2, 3), draw(3, 2)],
        }))
        .expect("a review");
        let verdict = |most: usize| {
            let gates = Gates { nodes_replaced: Some(most), ..Gates::default() };
            let verdicts = judge(&gates, std::slice::from_ref(&environment), &[]);
            let verdict = verdicts.into_iter().find(|verdict| verdict.gate == "max-nodes-replaced");
            verdict.map(|verdict| (verdict.passed, verdict.message))
        };
        let said = |most: usize| format!("prod: 3 nodes replaced or removed in 1 of 3 runs; {most} allowed");
        assert_eq!(verdict(2), Some((false, said(2))));
        assert_eq!(verdict(3), Some((true, said(3))));
    }
}
