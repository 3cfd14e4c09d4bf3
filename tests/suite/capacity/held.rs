//! Budgets that let nothing go: what is told of them, and that nothing else comes of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::decision::{Decision, Stay};
use provisor::capacity::disruption::Method;
use provisor::capacity::disruption::budgets::allowances;
use provisor::model::action::{Action, Subject};
use provisor::model::claim::{ConditionStatus, ConditionType};
use provisor::model::label::{self, annotation};
use provisor::model::name::PoolName;
use provisor::model::node::Node;
use provisor::model::observation::Observation;
use provisor::model::pool::{Budget, BudgetNodes, BudgetWindow, ConsolidationPolicy, DisruptionReason};
use provisor::model::taint::Taint;
use provisor::model::time::Patience;

use super::town::*;

const OPENS: &str = "2026-03-04T11:02:00Z";

fn only(nodes: BudgetNodes) -> Vec<Budget> {
    vec![Budget { nodes, reasons: Vec::new(), window: None }]
}

fn closed() -> Vec<Budget> {
    only(BudgetNodes::Count(0))
}

/// Closed for an hour, in the middle of which a town begins. Its end is no moment at which nodes are judged anyway.
fn closed_for_now() -> Vec<Budget> {
    let window = BudgetWindow { schedule: "2 10 * * *".into(), duration: SignedDuration::from_hours(1) };
    vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: Some(window) }]
}

/// The node was made from another template than its pool has now.
fn outdate(town: &mut Town, node: &str) {
    town.change_claim(node, |claim| {
        claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
        claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
    });
}

/// What is published at pools.
fn notices(decision: &Decision) -> Vec<(String, String)> {
    let told = decision.actions.iter().filter_map(|one| match &one.action {
        Action::Publish(notice) if matches!(notice.subject, Subject::Pool(_)) => {
            assert_eq!((&*notice.reason, notice.is_warning), ("DisruptionBlocked", false));
            Some((notice.subject.to_string(), notice.message.to_string()))
        }
        _ => None,
    });
    told.collect()
}

fn words(stays: &[Stay]) -> Vec<(String, &'static str, String)> {
    let word = |stay: &Stay| (stay.subject.to_string(), stay.reason.code, stay.reason.message.clone());
    stays.iter().map(word).collect()
}

fn gives_up(decision: &Decision) -> bool {
    decision.actions.iter().any(|one| match &one.action {
        Action::UpdateNode { change, .. } => change.add_taints.contains(&Taint::disrupted()),
        one => matches!(one, Action::DeleteClaim { .. }),
    })
}

/// Rows: DIS-113
#[test]
fn dis_113_a_budget_of_zero_is_told_at_pools_whose_nodes_would_go() {
    let pools = ["default", "bare", "busy"].map(|name| {
        let mut pool = pool(name);
        pool.disruption.budgets = closed();
        pool
    });
    let mut town = Town::new(pools.into());
    town.change_pool("busy", |pool| pool.disruption.consolidate_after = Patience::never());
    town.node("empty", "m5.large");
    town.node("old", "m5.large");
    town.run("web", "old", shape("web", "1"));
    outdate(&mut town, "old");
    town.node_of("busy", "idle", "m5.large", "on-demand");
    let mut engine = town.engine();

    let until = town.now + SignedDuration::from_mins(44);
    let all = decisions(&mut engine, town.now, until);
    let at_pools: Vec<_> =
        all.iter().flat_map(|(at, decision)| notices(decision).into_iter().map(|one| (*at, one))).collect();
    let said = ["Empty", "Drifted"].map(|reason| {
        let message = format!("No allowed disruptions for disruption reason {reason} due to blocking budget");
        ("default".to_string(), message)
    });
    let first: Vec<_> =
        at_pools.iter().take_while(|(at, _)| *at == town.now).map(|(_, one)| one.clone()).collect();
    assert_eq!(first, said, "each reason, and neither a pool without nodes nor one that asks for nothing");
    assert_eq!(at_pools.len(), 6, "it is told again every quarter of an hour: {at_pools:#?}");

    let stays: Vec<Stay> = all.iter().flat_map(|(_, decision)| decision.stays.clone()).collect();
    let expected = [
        (said[0].0.clone(), "DisruptionBlocked", said[0].1.clone()),
        (said[1].0.clone(), "DisruptionBlocked", said[1].1.clone()),
        (
            "empty".into(),
            "BudgetExhausted",
            "the budgets of pool default allow no disruption for reason Empty now".into(),
        ),
        (
            "old".into(),
            "BudgetExhausted",
            "drifted, but the budgets of pool default allow no disruption for reason Drifted now".into(),
        ),
    ];
    assert_eq!(words(&stays), expected, "people are told once");
    assert!(all.iter().all(|(_, decision)| !gives_up(decision)));
}

#[test]
fn a_node_that_stays_for_another_reason_is_told_again() {
    let mut town = Town::with(|pool| pool.disruption.budgets = closed());
    town.node("n1", "m5.large");
    let mut engine = town.engine();
    assert_eq!(engine.decide(town.now).stays.len(), 2, "the pool and the node");
    outdate(&mut town, "n1");
    let (_, claim) = town.cluster.claims.first_key_value().expect("it is there");
    engine.observe(town.now, Observation::Claim(claim.clone()));
    let later = decisions(&mut engine, town.now, town.now + SignedDuration::from_mins(1));
    let stays: Vec<Stay> = later.iter().flat_map(|(_, decision)| decision.stays.clone()).collect();
    let about = |stay: &&Stay| matches!(stay.subject, Subject::Node(_));
    let told: Vec<_> = stays.iter().filter(about).map(|stay| &*stay.reason.message).collect();
    assert_eq!(told, ["drifted, but the budgets of pool default allow no disruption for reason Drifted now"]);
}

#[test]
fn only_nodes_that_would_go_are_told_to_stay() {
    for is_open in [false, true] {
        let budgets = if is_open { only(BudgetNodes::Percent(100)) } else { closed() };
        let mut town = Town::with(|pool| pool.disruption.budgets = budgets);
        town.node("large", "m5.2xlarge");
        town.run("little", "large", shape("little", "500m"));
        town.node("full", "m5.large");
        let mut much = shape("much", "1900m");
        much.node_selector.insert(*label::INSTANCE_TYPE, "m5.large".into());
        town.run("much", "full", much);
        let kept = |node: &str| {
            let plan = town.plan();
            plan.kept.into_iter().find(|kept| &*kept.node.0 == node).map(|kept| kept.held_for)
        };
        assert_eq!(kept("full"), Some(None), "it is no dearer than its pods need");
        let expected = if is_open { None } else { Some(Some(DisruptionReason::Underutilized)) };
        assert_eq!(kept("large"), expected);
        let blocked = town.plan().blocked;
        assert_eq!(blocked.is_empty(), is_open);
    }
}

/// Nodes that go one after the other are no news.
#[test]
fn a_budget_that_is_used_up_by_what_goes_holds_nobody() {
    for (is_leaving, expected) in [(true, None), (false, Some(DisruptionReason::Empty))] {
        let mut town = Town::with(|pool| pool.disruption.budgets = only(BudgetNodes::Count(1)));
        ["n1", "n2"].into_iter().for_each(|name| town.node(name, "m5.large"));
        match is_leaving {
            true => town.change_claim("n1", |claim| claim.deleted = claim.created),
            false => town.change_node("n1", |node| {
                node.conditions = vec![ready("False")];
                node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
            }),
        }
        let plan = town.plan();
        let kept = plan.kept.iter().find(|kept| &*kept.node.0 == "n2").expect("it stays");
        assert_eq!((kept.code, kept.held_for), ("BudgetExhausted", expected));
        assert_eq!(plan.blocked, BTreeSet::new(), "the budget allows one");
    }
}

/// Rows: DIS-123, DIS-124, DIS-125, DIS-126
#[test]
fn dis_126_what_a_window_holds_goes_when_it_is_over() {
    let cases = [DisruptionReason::Empty, DisruptionReason::Drifted, DisruptionReason::Underutilized];
    for (reason, pools) in cases.into_iter().flat_map(|reason| [(reason, 1), (reason, 10)]) {
        let names: Vec<String> = (0..pools).map(|index| format!("pool-{index}")).collect();
        let pools = names.iter().map(|name| {
            let mut pool = pool(name);
            pool.disruption.budgets = closed_for_now();
            pool
        });
        let mut town = Town::new(pools.collect());
        for name in &names {
            let node = format!("{name}-node");
            town.node_of(name, &node, "m5.2xlarge", "on-demand");
            if reason != DisruptionReason::Empty {
                // Alone on its kind of node, so that nothing but a cheaper one can take it.
                let mut shape = shape("web", "1500m");
                shape.node_selector.insert(*label::NODEPOOL, (&**name).into());
                town.run(&format!("{name}-web"), &node, shape);
            }
            if reason == DisruptionReason::Drifted {
                town.change_pool(name, |pool| pool.disruption.consolidate_after = Patience::never());
                outdate(&mut town, &node);
            }
        }
        let mut engine = town.engine();
        let opens = at(OPENS);
        let all = decisions(&mut engine, town.now, opens + SignedDuration::from_secs(40));
        let first = all.iter().find(|(_, decision)| gives_up(decision)).map(|(at, _)| *at);
        let first = first.unwrap_or_else(|| panic!("{reason:?} of {names:?}: it goes"));
        let pause = first.duration_since(opens);
        assert!(!pause.is_negative() && pause <= SignedDuration::from_secs(25), "{reason:?}: {pause} after");
        let told: Vec<Stay> = all.iter().flat_map(|(_, decision)| decision.stays.clone()).collect();
        assert_eq!(told.len(), names.len() * 2, "{reason:?}: each pool and each node once: {told:#?}");
        let message = format!("allow no disruption for reason {} now", reason.as_str());
        let of_nodes = told.iter().filter(|stay| matches!(stay.subject, Subject::Node(_)));
        of_nodes.for_each(|stay| assert!(stay.reason.message.contains(&message), "{stay:?}"));
    }
}

/// Rows: DIS-107, DIS-108, DIS-109, DIS-110
#[test]
fn dis_107_only_nodes_that_serve_enlarge_a_percentage() {
    let ten = |percent: u8, change: &dyn Fn(&mut Town)| {
        let budgets = only(BudgetNodes::Percent(percent));
        let mut town = Town::with(|pool| pool.disruption.budgets = budgets);
        (0..10).for_each(|index| town.node(&format!("n{index}"), "m5.large"));
        change(&mut town);
        let found = allowances(&town.cluster, DisruptionReason::Empty, town.now);
        let found = &found[&PoolName::new("default")];
        (found.nodes, found.allowed, found.remaining())
    };
    assert_eq!(ten(100, &|_| ()), (10, 10, 10));
    let foreign = |town: &mut Town| {
        town.node("more", "m5.large");
        town.cluster.remove_claim("more-claim".into());
    };
    assert_eq!(ten(100, &foreign), (10, 10, 10), "of somebody else");
    let starting = |town: &mut Town| {
        town.node("more", "m5.large");
        town.change_claim("more", |claim| claim.conditions.clear(ConditionType::Initialized));
    };
    assert_eq!(ten(100, &starting), (10, 10, 10), "not initialized");
    let ending = |town: &mut Town| {
        town.node("more", "m5.large");
        let (kind, now) = (ConditionType::InstanceTerminating, town.now);
        town.change_claim("more", |claim| {
            claim.conditions.set(kind, ConditionStatus::True, "InstanceTerminating", "", now);
        });
    };
    assert_eq!(ten(100, &ending), (10, 10, 10), "its machine is ending");
    let leaving = |town: &mut Town| {
        let names: Vec<String> = (0..10).map(|index| format!("n{index}")).collect();
        names.iter().for_each(|name| town.change_claim(name, |claim| claim.deleted = claim.created));
    };
    assert_eq!(ten(10, &leaving), (10, 1, 0), "never below zero");
}

/// Rows: DIS-117
#[test]
fn dis_117_each_pool_of_one_command_has_its_own_budget() {
    for (percent, expected) in [(50, 20), (100, 30), (0, 0)] {
        let names: Vec<String> = (0..10).map(|index| format!("pool-{index}")).collect();
        let pools = names.iter().map(|name| {
            let mut pool = pool(name);
            pool.disruption.budgets = only(BudgetNodes::Percent(percent));
            pool
        });
        let mut town = Town::new(pools.collect());
        for (name, index) in names.iter().flat_map(|name| (0..3).map(move |index| (name, index))) {
            town.node_of(name, &format!("{name}-{index}"), "m5.large", "on-demand");
        }
        let commands = town.plan().commands;
        assert_eq!(commands.len(), usize::from(expected > 0), "{percent} %");
        assert_eq!(town.gone().len(), expected, "{percent} %");
        for name in &names {
            let of_pool = town.gone().iter().filter(|node| node.starts_with(&format!("{name}-"))).count();
            assert_eq!(of_pool, expected / 10, "{percent} %: {name}");
        }
    }
}

/// Rows: DIS-119
#[test]
fn dis_119_five_passes_replace_no_more_drifted_nodes_than_the_budget_lets() {
    let mut town = Town::with(|pool| {
        pool.disruption.budgets = only(BudgetNodes::Percent(30));
        pool.disruption.consolidate_after = Patience::never();
    });
    for index in 0..10 {
        let node = format!("n{index}");
        town.node(&node, "m5.large");
        town.run(&format!("web-{index}"), &node, shape("web", "1500m"));
        if index < 5 {
            outdate(&mut town, &node);
        }
    }
    let mut engine = town.engine();
    for pass in 0..5 {
        engine.decide(town.now + SignedDuration::from_secs(pass * 10));
        echo(&mut engine, town.now + SignedDuration::from_secs(pass * 10));
    }
    let nodes = engine.cluster().nodes.values();
    let tainted = nodes.filter(|node| node.taints.contains(&Taint::disrupted())).count();
    assert_eq!(tainted, 3);
    assert_eq!(engine.cluster().claims.len(), 13, "each is replaced first");
}

/// Rows: DIS-120
#[test]
fn dis_120_each_pool_drifts_within_its_own_budget() {
    let names: Vec<String> = (0..10).map(|index| format!("pool-{index}")).collect();
    let pools = names.iter().map(|name| {
        let mut pool = pool(name);
        pool.disruption.budgets = only(BudgetNodes::Count(1));
        pool.disruption.consolidate_after = Patience::never();
        pool
    });
    let mut town = Town::new(pools.collect());
    for (name, index) in names.iter().flat_map(|name| (0..3).map(move |index| (name, index))) {
        let node = format!("{name}-{index}");
        town.node_of(name, &node, "m5.large", "on-demand");
        outdate(&mut town, &node);
        town.drift(&node, NOW);
        if index > 0 {
            town.run(&format!("{node}-web"), &node, shape("web", "100m"));
        }
    }
    let commands = town.plan().commands;
    assert!(commands.iter().all(|command| command.method == Method::Drift && command.nodes.len() == 1));
    let gone = town.gone();
    let expected: Vec<String> = names.iter().map(|name| format!("{name}-0")).collect();
    assert_eq!(gone, expected, "of each pool the one without pods");
}

/// Rows: DIS-121
#[test]
fn dis_121_several_nodes_at_once_are_no_more_than_the_budget_lets() {
    for (percent, expected) in [(30, 3), (100, 9)] {
        let mut town = Town::with(|pool| {
            pool.disruption.budgets = only(BudgetNodes::Percent(percent));
            pool.disruption.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
        });
        for index in 0..10 {
            town.node(&format!("n{index}"), "m5.large");
            town.run(&format!("web-{index}"), &format!("n{index}"), shape("web", "100m"));
        }
        let first = town.plan().commands.remove(0);
        assert_eq!(first.method, Method::MultiNodeConsolidation);
        assert_eq!((first.nodes.len(), first.replacements.len()), (expected, 0), "{percent} %");
        assert_eq!(town.gone().len(), expected, "{percent} %");
    }
}

/// Rows: DIS-127
#[test]
fn dis_127_never_more_go_at_a_time_than_the_budget_lets() {
    for has_pods in [false, true] {
        let mut town = Town::with(|pool| {
            pool.disruption.budgets = only(BudgetNodes::Percent(50));
            pool.disruption.consolidate_after = Patience::never();
        });
        for index in 0..10 {
            let node = format!("n{index}");
            town.node(&node, "m5.large");
            outdate(&mut town, &node);
            if has_pods {
                town.run(&format!("web-{index}"), &node, shape("web", "100m"));
            }
        }
        let mut engine = town.engine();
        let mut most = 0;
        let mut now = town.now;
        for _ in 0..60 {
            engine.decide(now);
            let cluster = engine.cluster();
            let leaving = |node: &&Arc<Node>| {
                let claim = cluster.claim_of(node);
                // What has no machine any more is no node that anybody could miss.
                node.taints.contains(&Taint::disrupted())
                    && claim
                        .is_some_and(|claim| !claim.conditions.is_true(ConditionType::InstanceTerminating))
            };
            most = most.max(cluster.nodes.values().filter(leaving).count());
            now += SignedDuration::from_secs(5);
            echo(&mut engine, now);
        }
        assert_eq!(most, 5, "has pods: {has_pods}");
    }
}
