//! What monitoring is told of disruption: what might go, what budgets let, what did not stand a second look.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::disruption::Method;
use provisor::capacity::engine::Engine;
use provisor::model::action::Action;
use provisor::model::claim::{ConditionStatus, ConditionType};
use provisor::model::label::annotation;
use provisor::model::name::{ClaimName, ObjectKey, PoolName};
use provisor::model::observation::Observation;
use provisor::model::pool::{Budget, BudgetNodes};
use provisor::model::time::Patience;
use provisor::ui::metrics::Metrics;

use super::town::*;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn only(nodes: BudgetNodes) -> Vec<Budget> {
    vec![Budget { nodes, reasons: Vec::new(), window: None }]
}

/// The figure of `series`.
fn figure(metrics: &Metrics, series: &str) -> Option<i64> {
    let text = metrics.text(at(NOW));
    let line =
        text.lines().find_map(|line| line.strip_prefix(&format!("karpenter_{series} ")).map(str::to_owned));
    line.map(|value| value.parse().expect("a whole number"))
}

fn eligible(metrics: &Metrics, reason: &str) -> Option<i64> {
    figure(metrics, &format!("voluntary_disruption_eligible_nodes{{reason=\"{reason}\"}}"))
}

/// Lets the engine live for so long; it is heard by `metrics`.
fn pass_time(engine: &mut Engine, metrics: &Metrics, from: Timestamp, lasts: SignedDuration) -> Timestamp {
    let until = from + lasts;
    for (now, decision) in decisions(engine, from, until) {
        metrics.decided(now, &decision);
    }
    until
}

/// Rows: DIS-114, DIS-118
#[test]
fn dis_118_what_budgets_allow_and_what_uses_them_up_is_told_by_pool_and_reason() {
    let pools = [("default", 30), ("closed", 0)].map(|(name, percent)| {
        let mut pool = pool(name);
        pool.disruption.consolidate_after = Patience::never();
        pool.disruption.budgets = only(BudgetNodes::Percent(percent));
        pool
    });
    let mut town = Town::new(pools.into());
    for index in 0..10 {
        let node = format!("n{index}");
        town.node(&node, "m5.large");
        town.run(&format!("web-{index}"), &node, shape("web", "1500m"));
        town.change_claim(&node, |claim| {
            claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
            claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
        });
    }
    let (metrics, mut engine) = (Metrics::new(), town.engine());
    let of = |name: &str, pool: &str, reason: &str| {
        figure(&metrics, &format!("nodepools_{name}{{nodepool=\"{pool}\",reason=\"{reason}\"}}"))
    };
    metrics.decided(town.now, &engine.decide(town.now));
    for reason in ["Empty", "Drifted", "Underutilized"] {
        assert_eq!(of("allowed_disruptions", "default", reason), Some(3), "{reason}");
        assert_eq!(of("nodes_consuming_budgets", "default", reason), Some(0), "{reason}");
        assert_eq!(of("allowed_disruptions", "closed", reason), Some(0), "{reason}");
    }
    assert_eq!(eligible(&metrics, "drifted"), Some(10), "whatever budgets say");
    // Three are on their way out when nodes are judged again.
    engine.observe(town.now, Observation::Pod(Arc::new(pod("late", Some("n9"), shape("web", "10m")))));
    pass_time(&mut engine, &metrics, town.now, seconds(15));
    assert_eq!(of("allowed_disruptions", "default", "Empty"), Some(3));
    assert_eq!(of("nodes_consuming_budgets", "default", "Empty"), Some(3), "for whatever reason they go");
    assert_eq!(of("nodes_consuming_budgets", "closed", "Drifted"), Some(0));
    // A pool that is gone is not told of any more.
    engine.observe(town.now + seconds(15), Observation::PoolGone(PoolName::new("closed")));
    pass_time(&mut engine, &metrics, town.now + seconds(15), seconds(15));
    assert_eq!(of("allowed_disruptions", "closed", "Empty"), None);
}

#[test]
fn dis_162_a_node_is_eligible_as_empty_once_its_pod_is_gone() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "1500m"));
    let (metrics, mut engine) = (Metrics::new(), town.engine());
    let now = pass_time(&mut engine, &metrics, town.now, seconds(1));
    assert_eq!(eligible(&metrics, "empty"), Some(0));
    engine.observe(now, Observation::PodGone(ObjectKey::new("default", "web")));
    pass_time(&mut engine, &metrics, now, seconds(15));
    assert_eq!(eligible(&metrics, "empty"), Some(1));
    assert_eq!(eligible(&metrics, "underutilized"), Some(0), "that is not the same");
}

#[test]
fn dis_184_a_node_is_eligible_for_drift_if_it_has_drifted_and_nothing_protects_it() {
    let count = |is_drifted: bool, is_protected: bool, replicas: Option<u32>| {
        let mut town = Town::with(|pool| {
            pool.disruption.consolidate_after = Patience::never();
            pool.disruption.budgets = only(BudgetNodes::Count(0));
            pool.replicas = replicas;
        });
        town.node("n1", "m5.large");
        town.run("web", "n1", shape("web", "1500m"));
        if is_drifted {
            town.drift("n1", NOW);
            town.change_claim("n1", |claim| {
                claim.conditions.set(ConditionType::Drifted, ConditionStatus::True, "Moved", "", at(NOW));
            });
        }
        if is_protected {
            town.change_node("n1", |node| {
                node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
            });
        }
        let metrics = Metrics::new();
        metrics.decided(town.now, &town.engine().decide(town.now));
        eligible(&metrics, "drifted")
    };
    assert_eq!(count(false, false, None), Some(0));
    assert_eq!(count(true, true, None), Some(0));
    assert_eq!(count(true, false, None), Some(1));
    assert_eq!(count(true, false, Some(1)), Some(1), "of a static pool");
}

#[test]
fn dis_204_a_node_is_eligible_as_underutilized_once_its_pods_let_it_go() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.2xlarge");
    let mut shape = shape("web", "500m");
    shape.do_not_disrupt = Some("2m".into());
    let protected = provisor::model::pod::Pod { started: Some(town.now), ..pod("web", Some("n1"), shape) };
    town.cluster.put_pod(Arc::new(protected));
    let (metrics, mut engine) = (Metrics::new(), town.engine());
    let now = pass_time(&mut engine, &metrics, town.now, seconds(110));
    assert_eq!(eligible(&metrics, "underutilized"), Some(0));
    pass_time(&mut engine, &metrics, now, seconds(20));
    assert_eq!(eligible(&metrics, "underutilized"), Some(1));
}

/// What is decided to be empty, and is not any more after the pause, is counted and looked at again soon.
#[test]
fn dis_159_empty_nodes_that_are_needed_after_all_stay() {
    for case in ["pods come", "pods are sent there", "the budget closes"] {
        let mut town = Town::with(|_| ());
        let nodes = ["n1", "n2"];
        nodes.into_iter().for_each(|node| town.node(node, "m5.large"));
        let (metrics, mut engine) = (Metrics::new(), town.engine());
        let now = pass_time(&mut engine, &metrics, town.now, seconds(5));
        for node in nodes {
            let name = format!("on-{node}");
            match case {
                "pods come" => {
                    let bound = pod(&name, Some(node), shape("web", "1500m"));
                    engine.observe(now, Observation::Pod(Arc::new(bound)));
                }
                "pods are sent there" => {
                    let waits = pod(&name, None, shape("web", "1500m"));
                    engine.observe(now, Observation::Pod(Arc::new(waits)));
                }
                _ => {
                    town.change_pool("default", |pool| pool.disruption.budgets = only(BudgetNodes::Count(0)));
                    let pool = town.cluster.pools[&PoolName::new("default")].clone();
                    engine.observe(now, Observation::Pool(pool));
                }
            }
        }
        let all = decisions(&mut engine, now, town.now + seconds(16));
        let withdrawn: Vec<_> = all.iter().flat_map(|(_, decision)| decision.withdrawn.clone()).collect();
        assert_eq!(withdrawn, [(Method::Emptiness, 2)], "{case}");
        all.iter().for_each(|(at, decision)| metrics.decided(*at, decision));
        let failed = "voluntary_disruption_failed_validations_total{consolidation_type=\"empty\"}";
        assert_eq!(figure(&metrics, failed), Some(2), "{case}");
        let gives_back = |one: &Action| matches!(one, Action::DeleteClaim { .. });
        assert!(!all.iter().any(|(_, decision)| decision.actions.iter().any(|one| gives_back(&one.action))));
        // Nothing is remembered of it: as soon as they are free they go.
        let now = town.now + seconds(16);
        nodes.iter().for_each(|node| {
            engine.observe(now, Observation::PodGone(ObjectKey::new("default", &format!("on-{node}"))));
        });
        town.change_pool("default", |pool| pool.disruption.budgets = only(BudgetNodes::Percent(100)));
        let pool = town.cluster.pools[&PoolName::new("default")].clone();
        engine.observe(now, Observation::Pool(pool));
        let gone: usize = decisions(&mut engine, now, now + seconds(60))
            .iter()
            .flat_map(|(_, decision)| &decision.actions)
            .filter(|one| gives_back(&one.action))
            .count();
        assert_eq!(gone, 2, "{case}");
    }
}

/// Of what is found in one pass each part is judged again for itself.
#[test]
fn dis_158_one_of_two_empty_nodes_that_gets_a_pod_stays_alone() {
    let mut town = Town::with(|_| ());
    ["n1", "n2"].into_iter().for_each(|node| town.node(node, "m5.large"));
    let (metrics, mut engine) = (Metrics::new(), town.engine());
    let now = pass_time(&mut engine, &metrics, town.now, seconds(14));
    engine.observe(now, Observation::Pod(Arc::new(pod("late", Some("n1"), shape("web", "1500m")))));
    let pass = engine.plan().disruption.clone();
    pass_time(&mut engine, &metrics, now, seconds(2));
    let is_going = |node: &str| {
        engine
            .cluster()
            .claims
            .get(&ClaimName::new(&format!("{node}-claim")))
            .is_none_or(|claim| claim.deleted.is_some())
    };
    assert_eq!((is_going("n1"), is_going("n2")), (false, true));
    let failed = "voluntary_disruption_failed_validations_total{consolidation_type=\"empty\"}";
    assert_eq!(figure(&metrics, failed), Some(1));
    assert!(!Arc::ptr_eq(&pass, &engine.plan().disruption), "nodes are judged again at once");
}
