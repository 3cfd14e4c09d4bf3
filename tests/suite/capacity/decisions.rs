//! Disruption that the engine begins, as monitoring counts it.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use provisor::model::label::annotation;
use provisor::model::pool::{Budget, BudgetNodes};
use provisor::model::time::Patience;
use provisor::ui::metrics::Metrics;

use super::town::*;

/// What is counted of the first half minute, by what was decided, why and how.
fn decided(town: &Town) -> BTreeMap<String, String> {
    let (mut engine, metrics) = (town.engine(), Metrics::new());
    for second in 0..30 {
        let now = town.now + SignedDuration::from_secs(second);
        metrics.decided(now, &engine.decide(now));
    }
    let text = metrics.text(town.now);
    let lines =
        text.lines().filter_map(|line| line.strip_prefix("karpenter_voluntary_disruption_decisions_total{"));
    let split =
        |line: &str| line.split_once("} ").map(|(labels, count)| (labels.to_owned(), count.to_owned()));
    lines.filter_map(split).collect()
}

fn once(decision: &str, reason: &str, kind: &str) -> BTreeMap<String, String> {
    let labels = format!("decision=\"{decision}\",reason=\"{reason}\",consolidation_type=\"{kind}\"");
    BTreeMap::from([(labels, "1".to_owned())])
}

fn town() -> Town {
    Town::with(|pool| {
        pool.disruption.budgets =
            vec![Budget { nodes: BudgetNodes::Percent(100), reasons: Vec::new(), window: None }];
    })
}

/// Rows: DIS-339, DIS-341
#[test]
fn empty_nodes_that_go_together_are_one_decision() {
    for count in [1, 3] {
        let mut town = town();
        (0..count).for_each(|number| town.node(&format!("n{number}"), "m5.large"));
        assert_eq!(decided(&town), once("delete", "empty", "empty"), "{count} nodes");
    }
}

/// Rows: DIS-340
#[test]
fn a_drifted_node_is_deleted_or_replaced() {
    for (has_room, decision) in [(true, "delete"), (false, "replace")] {
        let mut town = town();
        town.change_pool("default", |pool| pool.disruption.consolidate_after = Patience::never());
        town.node("old", "m5.large");
        town.run("web", "old", shape("web", "1"));
        town.change_claim("old", |claim| {
            claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
            claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
        });
        if has_room {
            town.node("roomy", "m5.2xlarge");
            town.run("other", "roomy", shape("other", "1"));
        }
        assert_eq!(decided(&town), once(decision, "drifted", ""));
    }
}

/// Rows: DIS-342
#[test]
fn nodes_that_are_merged_are_one_decision() {
    for (has_room, decision) in [(true, "delete"), (false, "replace")] {
        let mut town = town();
        for node in ["a", "b"] {
            town.node(node, "m5.2xlarge");
            town.run(&format!("web-{node}"), node, shape("web", "300m"));
        }
        if has_room {
            town.node("full", "m5.large");
            town.run("other", "full", shape("other", "1"));
        }
        assert_eq!(decided(&town), once(decision, "underutilized", "multi"));
    }
}
