//! What consolidation says of nodes that it does not even look at.
//!
//! Both of its methods say it, and what a node is told it is told once.

use jiff::SignedDuration;
use provisor::model::claim::{ConditionStatus, ConditionType};
use provisor::model::label;
use provisor::model::observation::Observation;
use provisor::model::pool::{Budget, BudgetNodes, ConsolidationPolicy, NodePool};
use provisor::model::time::Patience;

use super::town::*;

/// A node whose pod fits on a smaller one, and a budget that lets it stay for the moment.
fn oversized(change: impl FnOnce(&mut NodePool)) -> Town {
    let budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: None }];
    let mut town = Town::with(|pool| {
        pool.disruption.budgets = budgets;
        change(pool);
    });
    town.node("n1", "m5.2xlarge");
    town.run("web", "n1", shape("web", "500m"));
    town
}

fn told(town: &Town) -> Vec<(String, String, String)> {
    let mut told = events(&town.engine().decide(town.now));
    told.retain(|(_, word, _)| word == "Unconsolidatable");
    told
}

fn at_both(message: &str) -> Vec<(String, String, String)> {
    ["n1", "n1-claim"].map(|subject| (subject.into(), "Unconsolidatable".into(), message.into())).into()
}

/// Rows: DIS-198, DIS-199, DIS-200
#[test]
fn dis_199_a_policy_that_leaves_a_node_alone_is_told_at_the_node_and_its_claim() {
    assert_eq!(told(&oversized(|_| ())), []);
    let town = oversized(|pool| pool.disruption.policy = ConsolidationPolicy::WhenEmpty);
    let why = "NodePool \"default\" has consolidation policy WhenEmpty, but node is not empty";
    assert_eq!(told(&town), at_both(why));
    let town = oversized(|pool| pool.disruption.consolidate_after = Patience::never());
    assert_eq!(told(&town), at_both("NodePool \"default\" has consolidation disabled"));
}

/// Where machines come and go for others, what speaks against a node changes with each: a node in a large cluster is not told each time.
#[test]
fn another_reason_why_nothing_is_saved_is_told_after_a_quarter_of_an_hour() {
    let mut town = oversized(|pool| pool.disruption.policy = ConsolidationPolicy::WhenEmpty);
    let mut engine = town.engine();
    let mut told_after = |seconds: i64, seen: Option<Observation>| {
        let now = at(NOW) + SignedDuration::from_secs(seconds);
        seen.into_iter().for_each(|seen| engine.observe(now, seen));
        let mut told = events(&engine.decide(now));
        told.retain(|(subject, word, _)| subject == "n1" && word == "Unconsolidatable");
        told.into_iter().map(|(_, _, message)| message).next()
    };
    assert!(told_after(0, None).is_some_and(|message| message.contains("WhenEmpty")));
    town.change_pool("default", |pool| pool.disruption.consolidate_after = Patience::never());
    assert_eq!(
        told_after(10, Some(Observation::Pool(town.cluster.pools.values().next().unwrap().clone()))),
        None
    );
    let (seconds, message) = (20..3_000)
        .step_by(10)
        .find_map(|seconds| told_after(seconds, None).map(|message| (seconds, message)))
        .expect("it is told");
    assert_eq!(message, "NodePool \"default\" has consolidation disabled");
    assert!((900..1_260).contains(&seconds), "{seconds}: at the first look after a quarter of an hour");
}

#[test]
fn dis_201_a_node_whose_price_nobody_can_know_is_told() {
    for (key, value, why) in [
        (*label::INSTANCE_TYPE, Some("z9.huge"), "Instance Type \"z9.huge\" not found"),
        (*label::INSTANCE_TYPE, None, "Instance Type \"\" not found"),
        (*label::CAPACITY_TYPE, None, "Node does not have label \"karpenter.sh/capacity-type\""),
        (*label::ZONE, None, "Node does not have label \"topology.kubernetes.io/zone\""),
    ] {
        let mut town = oversized(|_| ());
        town.change_node("n1", |node| match value {
            Some(value) => {
                node.labels.insert(key, value.into());
            }
            None => {
                node.labels.remove(&key);
            }
        });
        assert_eq!(told(&town), at_both(why));
    }
}

/// Rows: DIS-202, DIS-203
#[test]
fn dis_202_a_node_that_is_not_quiet_or_of_a_static_pool_is_not_considered() {
    let open = |pool: &mut NodePool| pool.disruption.budgets[0].nodes = BudgetNodes::Percent(100);
    let mut busy = oversized(|pool| {
        open(pool);
        pool.disruption.consolidate_after = Patience::of(SignedDuration::from_hours(1));
    });
    let now = busy.now;
    for status in [None, Some(ConditionStatus::False), Some(ConditionStatus::True)] {
        busy.change_claim("n1", |claim| {
            claim.last_pod_event = Some(now);
            claim.conditions.clear(ConditionType::Consolidatable);
            if let Some(status) = status {
                claim.conditions.set(ConditionType::Consolidatable, status, "", "", now);
            }
        });
        assert_eq!((busy.gone(), busy.kept("n1"), told(&busy)), (vec![], "NotConsolidatable", vec![]));
    }
    let mut fixed = oversized(|pool| {
        open(pool);
        pool.replicas = Some(1);
    });
    fixed.change_claim("n1", |claim| {
        claim.conditions.set(ConditionType::Consolidatable, ConditionStatus::True, "", "", now);
    });
    assert_eq!((fixed.gone(), fixed.kept("n1"), told(&fixed)), (vec![], "StaticPool", vec![]));
    // The same node goes where nothing of that holds.
    let free = oversized(open);
    assert_eq!(free.gone(), ["n1"]);
}
