//! Which nodes may go, each rule with a cluster that it decides.

use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::disruption::{self, Destination, Kind, Method};
use provisor::capacity::engine::EngineSettings;
use provisor::capacity::scheduling::{Place, Supply};
use provisor::model::claim::{ConditionStatus, ConditionType};
use provisor::model::label::{self, annotation};
use provisor::model::money::UsdPerHour;
use provisor::model::name::NodeName;
use provisor::model::pool::{Budget, BudgetNodes, ConsolidationPolicy, DisruptionReason, NodePool};
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::taint::{Taint, Toleration, TolerationOperator};
use provisor::model::time::Patience;
use provisor::simulator::settle::settle;

use super::town::*;

fn minutes(count: i64) -> Patience {
    Patience::of(SignedDuration::from_mins(count))
}

fn open_to_spot(pool: &mut NodePool) {
    let both = Requirement::new(Operator::In, ["spot".into(), "on-demand".into()]);
    Arc::make_mut(&mut pool.template).requirements.replace(*label::CAPACITY_TYPE, both);
}

fn count(nodes: u32) -> Vec<Budget> {
    vec![Budget { nodes: BudgetNodes::Count(nodes), reasons: Vec::new(), window: None }]
}

/// Rows: DIS-143, DIS-147, DIS-148, DIS-146
#[test]
fn dis_143_empty_nodes_go_in_one_command_and_others_stay() {
    let mut town = Town::with(|pool| pool.disruption.policy = ConsolidationPolicy::WhenEmpty);
    for name in ["n1", "n2", "n3"] {
        town.node(name, "m5.large");
    }
    let mut daemon = pod("agent", Some("n2"), shape("agent", "100m"));
    daemon.owners = vec![owned_by("DaemonSet")];
    town.cluster.put_pod(Arc::new(daemon));
    town.run("web", "n3", shape("web", "100m"));
    let command = town.command();
    assert_eq!(command.method, Method::Emptiness);
    assert_eq!(command.reason(), DisruptionReason::Empty);
    assert_eq!(command.nodes, [NodeName::new("n1"), NodeName::new("n2")]);
    assert_eq!(command.savings, UsdPerHour(192_000));
    assert_eq!(town.kept("n3"), "PolicyWhenEmpty");
}

/// Rows: DIS-149, DIS-150
#[test]
fn dis_149_a_pod_that_ends_does_not_keep_a_node_unless_its_name_comes_back() {
    for (kind, expected) in [("ReplicaSet", vec!["n1"]), ("StatefulSet", vec![])] {
        let mut town = Town::with(|pool| pool.disruption.policy = ConsolidationPolicy::WhenEmpty);
        town.node("n1", "m5.large");
        let mut ending = pod("web", Some("n1"), shape("web", "100m"));
        ending.deleted = Some(town.now);
        ending.owners = vec![owned_by(kind)];
        town.cluster.put_pod(Arc::new(ending));
        assert_eq!(town.gone(), expected, "{kind}");
    }
}

/// Rows: DIS-145, DIS-043
#[test]
fn dis_145_only_the_value_true_protects_a_node() {
    let mut town = Town::with(|_| ());
    for (name, value) in [("n1", "true"), ("n2", "false"), ("n3", "1h")] {
        town.node(name, "m5.large");
        town.change_node(name, |node| {
            node.annotations.insert(*annotation::DO_NOT_DISRUPT, value.into());
        });
    }
    assert_eq!(town.gone(), ["n2", "n3"]);
    assert_eq!(town.kept("n1"), "DoNotDisrupt");
}

/// Rows: DIS-028, DIS-029, DIS-030, DIS-144
#[test]
fn dis_030_a_recent_pod_event_keeps_an_empty_node() {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = minutes(5));
    for (name, ago) in [("n1", Some(1)), ("n2", Some(6)), ("n3", None)] {
        town.node(name, "m5.large");
        let last = ago.map(|ago| town.now - SignedDuration::from_mins(ago));
        town.change_claim(name, |claim| claim.last_pod_event = last);
    }
    assert_eq!(town.gone(), ["n2", "n3"]);
    assert_eq!(town.kept("n1"), "NotConsolidatable");
}

/// Rows: DIS-031, DIS-154
#[test]
fn dis_154_never_means_never_and_static_pools_keep_what_they_keep() {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n1", "m5.large");
    assert_eq!((town.gone(), town.kept("n1")), (vec![], "ConsolidationDisabled"));
    let mut town = Town::with(|pool| pool.replicas = Some(1));
    town.node("n1", "m5.large");
    assert_eq!((town.gone(), town.kept("n1")), (vec![], "StaticPool"));
}

/// Rows: DIS-039, DIS-040
#[test]
fn dis_039_what_is_not_ours_not_ready_or_going_is_no_candidate() {
    let mut town = Town::with(|_| ());
    for name in ["foreign", "new", "going"] {
        town.node(name, "m5.large");
    }
    town.cluster.remove_claim("foreign-claim".into());
    town.change_node("new", |node| node.labels.retain(|key, _| *key != *label::INITIALIZED));
    let now = town.now;
    town.change_claim("going", |claim| claim.deleted = Some(now));
    assert!(town.gone().is_empty());
    assert_eq!(
        ["foreign", "new", "going"].map(|name| town.kept(name)),
        ["NotManaged", "NotInitialized", "Deleting"]
    );
}

/// Rows: DIS-151
#[test]
fn dis_151_an_empty_node_that_a_waiting_pod_needs_stays() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.2xlarge");
    town.cluster.put_pod(Arc::new(pod("big", None, shape("big", "6"))));
    assert_eq!((town.gone(), town.kept("n1")), (vec![], "Nominated"));
}

/// Rows: DIS-050
#[test]
fn dis_050_pods_protect_their_node_as_long_as_they_say() {
    for (value, started_ago, is_kept) in [
        ("true", 10_000, true),
        ("10m", 5, true),
        ("5m", 10, false),
        ("0s", 1, false),
        ("nonsense", 1, false),
        ("false", 1, false),
    ] {
        let mut town = Town::with(|_| ());
        town.node("n1", "m5.xlarge");
        town.node("n2", "m5.xlarge");
        town.change_node("n2", |node| {
            node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
        });
        let mut one = pod("web", Some("n1"), shape("web", "500m"));
        Arc::make_mut(&mut one.shape).do_not_disrupt = Some(value.into());
        one.started = Some(town.now - SignedDuration::from_mins(started_ago));
        town.run("other", "n2", shape("other", "500m"));
        town.cluster.put_pod(Arc::new(one.clone()));
        let expected = if is_kept { "PodDoNotDisrupt" } else { "gone" };
        assert_eq!(town.kept("n1"), expected, "{value} after {started_ago} minutes");
        one.deleted = Some(town.now);
        town.cluster.put_pod(Arc::new(one));
        assert_eq!(town.kept("n1"), "gone", "a pod that ends protects nothing");
    }
}

/// Rows: DIS-060, DIS-061, DIS-062, DIS-065, DIS-213
#[test]
fn dis_213_budgets_of_pods_keep_their_node() {
    let base = || {
        let mut town = Town::with(|_| ());
        town.node("n1", "m5.2xlarge");
        town.run("web", "n1", shape("web", "500m"));
        town
    };
    assert_eq!(base().kept("n1"), "gone", "a cheaper node would do");
    let mut town = base();
    town.add_budget(pdb("web", "web", 0));
    assert_eq!(town.kept("n1"), "PodDisruptionBudget");
    let mut town = base();
    town.add_budget(pdb("a", "web", 1));
    town.add_budget(pdb("b", "web", 1));
    assert_eq!(town.kept("n1"), "PodDisruptionBudgets");
    let mut town = base();
    let mut elsewhere = pdb("web", "web", 0);
    elsewhere.key.namespace = "other".into();
    town.add_budget(elsewhere);
    assert_eq!(town.kept("n1"), "gone");
    for (always, expected) in [(true, "gone"), (false, "PodDisruptionBudget")] {
        let mut town = base();
        let mut unhealthy = pod("web", Some("n1"), shape("web", "500m"));
        unhealthy.is_ready = false;
        town.cluster.put_pod(Arc::new(unhealthy));
        let mut budget = pdb("web", "web", 1);
        budget.disruptions_allowed = Some(0);
        budget.always_allows_unhealthy = always;
        town.add_budget(budget);
        assert_eq!(town.kept("n1"), expected);
    }
    let mut town = base();
    let mut tolerant = shape("web", "500m");
    tolerant.tolerations.push(Toleration {
        key: Taint::disrupted().key,
        operator: TolerationOperator::Exists,
        value: "".into(),
        effect: None,
    });
    town.run("web", "n1", tolerant);
    town.add_budget(pdb("web", "web", 0));
    assert_eq!(town.kept("n1"), "gone");
}

/// Rows: DIS-115, DIS-116
#[test]
fn dis_115_a_budget_limits_how_many_go() {
    for (percent, expected) in [(30, 3), (100, 10), (0, 0)] {
        let budgets =
            vec![Budget { nodes: BudgetNodes::Percent(percent), reasons: Vec::new(), window: None }];
        let mut town = Town::with(|pool| pool.disruption.budgets = budgets);
        (0..10).for_each(|index| town.node(&format!("n{index}"), "m5.large"));
        assert_eq!(town.gone().len(), expected, "{percent} %");
        if percent == 0 {
            assert_eq!(town.kept("n0"), "BudgetExhausted");
        }
    }
}

/// Rows: DIS-111, DIS-112
#[test]
fn dis_111_nodes_that_are_away_use_the_budget_up() {
    let mut town = Town::with(|pool| pool.disruption.budgets = count(3));
    (0..6).for_each(|index| town.node(&format!("n{index}"), "m5.large"));
    town.change_claim("n0", |claim| claim.deleted = claim.created);
    town.change_node("n1", |node| {
        node.conditions = vec![ready("False")];
        node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
    });
    assert_eq!(town.gone().len(), 1);
}

/// Rows: DIS-128
#[test]
fn dis_128_a_budget_for_drift_does_not_hold_what_is_empty() {
    let only_drift =
        Budget { nodes: BudgetNodes::Count(0), reasons: vec![DisruptionReason::Drifted], window: None };
    let mut town = Town::with(|pool| pool.disruption.budgets = vec![only_drift]);
    town.node("n1", "m5.large");
    town.drift("n1", NOW);
    assert_eq!(town.command().reason(), DisruptionReason::Empty);
}

/// Rows: DIS-182, DIS-183
#[test]
fn dis_182_a_drifted_node_is_replaced_whatever_the_price() {
    let mut town = Town::with(|pool| {
        pool.disruption.consolidate_after = minutes(60);
        let named = Requirement::new(Operator::In, ["m5.xlarge".into()]);
        Arc::make_mut(&mut pool.template).requirements.add(*label::INSTANCE_TYPE, named);
    });
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "1500m"));
    let command = town.command();
    assert_eq!((command.method, command.kind()), (Method::Drift, Kind::Replace));
    assert_eq!(command.savings, UsdPerHour(-96_000));
    assert_eq!(command.pods[0].1, Destination::Replacement(0));
    assert_eq!(command.replacements[0].pods.len(), 1);
}

#[test]
fn dis_169_a_drifted_node_whose_pods_fit_elsewhere_is_deleted() {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n1", "m5.large");
    town.node("n2", "m5.large");
    town.run("web", "n1", shape("web", "500m"));
    town.drift("n1", NOW);
    let command = town.command();
    assert_eq!((command.method, command.kind()), (Method::Drift, Kind::Delete));
    assert_eq!(command.nodes, [NodeName::new("n1")]);
}

/// Rows: DIS-174, DIS-175
#[test]
fn dis_174_the_empty_drifted_node_goes_first_then_the_oldest_drift() {
    let mut town = Town::with(|pool| {
        pool.disruption.consolidate_after = Patience::never();
        pool.disruption.budgets = count(2);
    });
    for (name, since, is_empty) in [
        ("late", "2026-03-04T09:00:00Z", false),
        ("early", "2026-03-04T08:00:00Z", false),
        ("empty", "2026-03-04T10:00:00Z", true),
    ] {
        town.node(name, "m5.large");
        town.drift(name, since);
        if !is_empty {
            town.run(&format!("pod-{name}"), name, shape("web", "1500m"));
        }
    }
    let order: Vec<_> = town.plan().commands.iter().map(|command| command.nodes[0].as_str()).collect();
    assert_eq!(order, ["empty", "early"]);
    assert_eq!(town.kept("late"), "BudgetExhausted");
}

/// Rows: DIS-166, DIS-167, DIS-052, DIS-053, DIS-054
#[test]
fn dis_167_a_deadline_lets_drift_take_what_pods_protect() {
    for (grace, expected) in [(None, "PodDoNotDisrupt"), (Some(SignedDuration::from_hours(1)), "gone")] {
        let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
        town.node("n1", "m5.large");
        town.change_claim("n1", |claim| claim.spec.termination_grace = grace);
        let mut one = shape("web", "500m");
        one.do_not_disrupt = Some("true".into());
        town.run("web", "n1", one);
        town.drift("n1", NOW);
        assert_eq!(town.kept("n1"), expected);
        if grace.is_some() {
            let command = town.command();
            assert!(command.replacements.is_empty(), "nothing is bought for a pod that cannot move yet");
            assert_eq!(command.pods[0].1, Destination::Nowhere);
        }
    }
}

/// Rows: DIS-021, DIS-022
#[test]
fn dis_021_hashes_of_one_version_that_differ_are_drift() {
    for (hash, version, is_drifted) in [
        (Some("18"), Some("v3"), true),
        (Some("17"), Some("v3"), false),
        (Some("18"), Some("v2"), false),
        (None, None, false),
    ] {
        let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
        town.node("n1", "m5.large");
        town.run("web", "n1", shape("web", "1500m"));
        town.change_claim("n1", |claim| {
            claim.annotations.extend(hash.map(|hash| (*annotation::NODEPOOL_HASH, hash.into())));
            claim.annotations.extend(version.map(|one| (*annotation::NODEPOOL_HASH_VERSION, one.into())));
        });
        assert_eq!(town.gone() == ["n1"], is_drifted, "{hash:?} {version:?}");
    }
}

/// Rows: DIS-013, DIS-014, DIS-016
#[test]
fn dis_013_requirements_that_a_node_no_longer_meets_are_drift() {
    let narrowed = |key: &'static str, values: &'static [&'static str]| {
        move |pool: &mut NodePool| {
            pool.disruption.consolidate_after = Patience::never();
            let values = values.iter().map(|value| provisor::model::symbol::Symbol::new(value));
            let wanted = Requirement::new(Operator::In, values);
            Arc::make_mut(&mut pool.template).requirements.replace(key.into(), wanted);
        }
    };
    for (change, is_drifted) in [
        (narrowed("karpenter.sh/capacity-type", &["spot"]), true),
        (narrowed("example.com/team", &["green"]), true),
        (narrowed("karpenter.sh/capacity-type", &["spot", "on-demand"]), false),
    ] {
        let mut town = Town::with(|_| ());
        town.node("n1", "m5.large");
        town.run("web", "n1", shape("web", "1500m"));
        town.change_pool("default", change);
        let drifted = town.plan().commands.iter().any(|one| one.reason() == DisruptionReason::Drifted)
            || town.kept("n1") == "CannotReschedule";
        assert_eq!(drifted, is_drifted);
    }
}

/// Rows: DIS-206
#[test]
fn dis_206_an_oversized_node_is_replaced_by_a_cheaper_type() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.2xlarge");
    town.run("web", "n1", shape("web", "2500m"));
    let command = town.command();
    assert_eq!((command.method, command.kind()), (Method::SingleNodeConsolidation, Kind::Replace));
    let types: Vec<_> = command.replacements[0].instance_types();
    assert_eq!(types, ["m5.xlarge".into()]);
    assert_eq!(command.savings, UsdPerHour(192_000));
}

/// Rows: DIS-209
#[test]
fn dis_209_a_replacement_that_may_be_spot_must_be_spot() {
    let mut town = Town::with(open_to_spot);
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "1500m"));
    let command = town.command();
    let kinds: Vec<_> =
        command.replacements[0].capacity_types().into_iter().map(|one| one.as_str()).collect();
    assert_eq!(kinds, ["spot"]);
}

#[test]
fn dis_217_a_type_of_the_same_price_is_no_replacement() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "500m"));
    assert_eq!((town.gone(), town.kept("n1")), (vec![], "NoCheaperReplacement"));
}

#[test]
fn a_spot_node_is_not_replaced_by_spot_unless_asked_for() {
    let mut town = Town::with(open_to_spot);
    town.node_of("default", "n1", "m5.2xlarge", "spot");
    town.run("web", "n1", shape("web", "500m"));
    assert_eq!(town.kept("n1"), "SpotToSpotDisabled");
    let mut settings = EngineSettings::default();
    settings.disruption.spot_to_spot = true;
    town.settings = settings;
    assert_eq!(town.kept("n1"), "SpotToSpotFlexibility", "two cheaper types are not fifteen");
}

/// Rows: DIS-220, DIS-086, DIS-250
#[test]
fn dis_220_of_two_nodes_that_fit_on_one_the_emptier_goes() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town.node("n2", "m5.large");
    town.run("a", "n1", shape("web", "400m"));
    town.run("b", "n1", shape("web", "400m"));
    town.run("c", "n2", shape("web", "400m"));
    let command = town.command();
    assert_eq!((command.kind(), command.nodes.as_slice()), (Kind::Delete, [NodeName::new("n2")].as_slice()));
}

/// Rows: DIS-249
#[test]
fn dis_249_three_dear_nodes_become_one() {
    let mut town = Town::with(|_| ());
    for name in ["n1", "n2", "n3"] {
        town.node(name, "m5.2xlarge");
        town.run(&format!("pod-{name}"), name, shape("web", "500m"));
    }
    let command = town.command();
    assert_eq!(command.method, Method::MultiNodeConsolidation);
    assert_eq!((command.nodes.len(), command.replacements.len()), (3, 1));
    assert_eq!(command.savings, UsdPerHour(3 * 384_000 - 96_000));
}

#[test]
fn room_on_a_node_that_is_not_initialized_does_not_count() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town.node("n2", "m5.2xlarge");
    town.run("web", "n1", shape("web", "500m"));
    town.change_node("n2", |node| node.labels.retain(|key, _| *key != *label::INITIALIZED));
    town.change_claim("n2", |claim| {
        claim.conditions.clear(provisor::model::claim::ConditionType::Initialized);
    });
    assert_eq!((town.gone(), town.kept("n1")), (vec![], "CannotReschedule"));
}

#[test]
fn dis_229_a_pod_that_fits_nowhere_does_not_hold_up_the_others() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town.node("n2", "m5.large");
    town.run("web", "n1", shape("web", "500m"));
    town.run("api", "n2", shape("api", "500m"));
    town.cluster.put_pod(Arc::new(pod("huge", None, shape("huge", "500"))));
    assert_eq!(town.gone().len(), 1);
}

/// Rows: DIS-233, DIS-234
#[test]
fn dis_233_a_destination_whose_pods_are_fresh_takes_no_more() {
    for (wait, expected) in [(minutes(1), 0), (minutes(0), 1)] {
        let mut other = pool("other");
        other.disruption.consolidate_after = wait;
        let mut town = Town::new(vec![pool("default"), other]);
        town.node_of("default", "n1", "m5.large", "on-demand");
        town.node_of("other", "n2", "m5.large", "on-demand");
        town.run("a", "n1", shape("web", "400m"));
        town.run("b", "n2", shape("web", "400m"));
        town.run("c", "n2", shape("web", "400m"));
        let now = town.now;
        town.change_claim("n2", |claim| claim.last_pod_event = Some(now));
        assert_eq!(town.gone().iter().filter(|name| **name == "n1").count(), expected);
    }
}

/// Rows: LIF-072
#[test]
fn lif_072_an_expired_claim_goes_in_spite_of_budgets() {
    let mut town = Town::with(|pool| pool.disruption.budgets = count(0));
    town.node("old", "m5.large");
    town.node("young", "m5.large");
    town.run("web", "old", shape("web", "1500m"));
    town.run("api", "young", shape("api", "1500m"));
    town.change_claim("old", |claim| claim.spec.expire_after = Patience::of(SignedDuration::from_hours(24)));
    town.change_claim("young", |claim| {
        claim.spec.expire_after = Patience::of(SignedDuration::from_hours(720))
    });
    let command = town.command();
    assert_eq!((command.reason(), command.nodes[0].as_str()), (DisruptionReason::Expired, "old"));
    assert_eq!(command.replacements.len(), 1);
}

#[test]
fn every_node_of_ours_is_named_once() {
    let mut town = Town::with(|pool| pool.disruption.budgets = count(2));
    for index in 0..8 {
        let name = format!("n{index}");
        town.node(&name, ["m5.large", "m5.2xlarge"][index % 2]);
        if index > 2 {
            town.run(&format!("pod-{index}"), &name, shape("web", "700m"));
        }
    }
    let plan = town.plan();
    let mut named: Vec<_> = plan.commands.iter().flat_map(|command| command.nodes.clone()).collect();
    named.extend(plan.kept.iter().map(|kept| kept.node));
    named.sort();
    assert_eq!(named, town.cluster.nodes.keys().copied().collect::<Vec<_>>());
    assert!(plan.kept.iter().all(|kept| !kept.code.is_empty() && !kept.message.is_empty()));
    assert_eq!(plan, town.plan(), "the same picture gives the same plan");
}

#[test]
fn a_plan_carried_out_leaves_nothing_to_do() {
    let mut town = Town::with(|_| ());
    for index in 0..6 {
        let name = format!("n{index}");
        town.node(&name, "m5.2xlarge");
        town.run(&format!("pod-{index}"), &name, shape("web", "300m"));
    }
    town.cluster.put_pod(Arc::new(pod("new", None, shape("new", "500m"))));
    let end = settle(&town.cluster, town.now, &town.settings);
    assert!(end.quiescent, "{end:?}");
    assert_eq!(end.nodes.len(), 1, "{end:?}");
}

/// Pods that wait have their places before anybody asks which node may go; what waits for a place on that very node needs another.
#[test]
fn a_place_that_a_waiting_pod_counts_on_is_not_given_away_twice() {
    let next = |waiting: &str| {
        let mut town = Town::with(|_| ());
        for node in ["node-1", "node-2"] {
            town.node(node, "m5.large");
            town.change_claim(node, |claim| {
                claim.conditions.set(ConditionType::Consolidatable, ConditionStatus::True, "", "", at(NOW));
            });
            town.run(&format!("pod-of-{node}"), node, shape("web", "600m"));
        }
        town.cluster.put_pod(Arc::new(pod("waits", None, shape("web", waiting))));
        let settings = EngineSettings::default();
        let supply = Supply::of(&town.cluster, &settings.scheduling);
        disruption::next_step(&town.cluster, &supply, &settings.scheduling, &settings.disruption, town.now)
    };
    // Either node has room for it, but then not for the pod of the other.
    assert_eq!(next("1200m").commands, []);
    let commands = next("500m").commands;
    assert_eq!(commands.len(), 1, "{commands:?}");
    assert!(commands[0].replacements.is_empty());
    let other = if commands[0].nodes[0].as_str() == "node-1" { "node-2" } else { "node-1" };
    let to = Destination::Existing(Place::Node(NodeName::new(other)));
    assert!(commands[0].pods.iter().all(|(_, place)| *place == to), "{commands:?}");
}
