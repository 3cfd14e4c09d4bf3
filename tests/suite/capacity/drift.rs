//! Nodes that are not what their pool would make now, and what comes in their place.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::disruption::{Destination, Kind, Method};
use provisor::capacity::engine::Engine;
use provisor::capacity::scheduling::Place;
use provisor::model::action::Action;
use provisor::model::claim::{ConditionStatus, ConditionType, NodeClaim};
use provisor::model::label::{self, annotation};
use provisor::model::name::{ClaimName, NodeName, ObjectKey};
use provisor::model::node::Node;
use provisor::model::observation::Observation;
use provisor::model::pod::Pod;
use provisor::model::pool::DisruptionReason;
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::taint::Taint;
use provisor::model::time::Patience;

use super::town::*;
use ConditionType::{Drifted, Initialized, Launched, Registered};

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

/// A town in which nothing goes to save money.
fn town() -> Town {
    Town::with(|pool| pool.disruption.consolidate_after = Patience::never())
}

/// Its node was made from another template than its pool has now.
fn outdate(town: &mut Town, node: &str) {
    town.change_claim(node, |claim| {
        claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
        claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
    });
}

/// A node that is outdated and full.
fn outdated() -> Town {
    let mut town = town();
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "1500m"));
    outdate(&mut town, "n1");
    town
}

fn protect(town: &mut Town, node: &str, value: &str) {
    town.change_node(node, |node| {
        node.annotations.insert(*annotation::DO_NOT_DISRUPT, value.into());
    });
}

fn claim_of(engine: &Engine, node: &str) -> Option<Arc<NodeClaim>> {
    engine.cluster().claims.get(&ClaimName::new(&format!("{node}-claim"))).cloned()
}

fn is_going(engine: &Engine, node: &str) -> bool {
    claim_of(engine, node).is_none_or(|claim| claim.deleted.is_some())
}

fn is_tainted(engine: &Engine, node: &str) -> bool {
    let node = &engine.cluster().nodes[&NodeName::new(node)];
    node.taints.iter().any(|taint| taint.is_same(&Taint::disrupted()))
}

/// Claims that are not of a node of the town, by name.
fn replacements(engine: &Engine) -> Vec<Arc<NodeClaim>> {
    let claims = engine.cluster().claims.values();
    claims.filter(|claim| !claim.name.as_str().ends_with("-claim")).cloned().collect()
}

/// The claim has come so far.
fn reach(engine: &mut Engine, claim: &NodeClaim, kinds: &[ConditionType], now: Timestamp) {
    let mut claim = claim.clone();
    for kind in kinds {
        claim.conditions.set(*kind, ConditionStatus::True, kind.as_str(), "", now);
    }
    engine.observe(now, Observation::Claim(Arc::new(claim)));
}

/// Rows: DIS-164, DIS-165
#[test]
fn dis_164_only_what_has_drifted_and_is_not_protected_is_replaced() {
    let with = |drifted: Option<ConditionStatus>, protected: Option<&str>| {
        let mut town = town();
        town.node("n1", "m5.large");
        town.run("web", "n1", shape("web", "1500m"));
        if let Some(status) = drifted {
            let now = town.now;
            town.change_claim("n1", |claim| claim.conditions.set(Drifted, status, "Moved", "", now));
        }
        protected.into_iter().for_each(|value| protect(&mut town, "n1", value));
        let commands = town.plan().commands;
        commands.iter().map(|command| (command.method, command.kind())).collect::<Vec<_>>()
    };
    let replaced = [(Method::Drift, Kind::Replace)];
    let is_true = Some(ConditionStatus::True);
    assert_eq!(with(is_true, None), replaced);
    assert_eq!(with(None, None), []);
    assert_eq!(with(Some(ConditionStatus::False), None), []);
    assert_eq!(with(Some(ConditionStatus::Unknown), None), []);
    assert_eq!(with(is_true, Some("true")), []);
    assert_eq!(with(is_true, Some("false")), replaced);
}

#[test]
fn dis_168_a_pod_that_a_budget_holds_for_ever_is_bought_nothing_before_its_deadline() {
    let mut town = outdated();
    town.add_budget(pdb("web", "web", 0));
    assert_eq!(town.kept("n1"), "PodDisruptionBudget");
    town.change_claim("n1", |claim| claim.spec.termination_grace = Some(minutes(60)));
    let command = town.command();
    assert_eq!((command.method, command.kind()), (Method::Drift, Kind::Delete));
    assert_eq!(command.pods[0].1, Destination::Nowhere);
    let mut engine = town.engine();
    decisions(&mut engine, town.now, town.now + minutes(5));
    assert!(is_going(&engine, "n1") && claim_of(&engine, "n1").is_some(), "it is drained");
    assert_eq!(engine.cluster().claims.len(), 1);
}

#[test]
fn dis_171_a_node_goes_once_all_of_its_replacements_are_there() {
    let mut town = Town::with(|pool| {
        pool.disruption.consolidate_after = Patience::never();
        let small = Requirement::new(Operator::In, ["m5.large".into()]);
        Arc::make_mut(&mut pool.template).requirements.add(*label::INSTANCE_TYPE, small);
    });
    town.node("n1", "m5.2xlarge");
    (0..3).for_each(|index| town.run(&format!("web-{index}"), "n1", shape("web", "1800m")));
    let mut engine = town.engine();
    engine.decide(town.now);
    echo(&mut engine, town.now);
    let new = replacements(&engine);
    assert_eq!(new.len(), 3);
    for (second, claim) in new.iter().enumerate() {
        let now = town.now + seconds(10 * (second as i64 + 1));
        engine.decide(now);
        assert!(!is_going(&engine, "n1"), "{second} of 3 are there");
        reach(&mut engine, claim, &[Launched, Registered, Initialized], now);
    }
    engine.decide(town.now + seconds(31));
    assert!(is_going(&engine, "n1"));
}

#[test]
fn dis_172_a_node_whose_pods_have_no_place_is_told_and_the_next_one_is_handled() {
    let mut town = town();
    for (node, since) in [("n1", "2026-03-04T08:00:00Z"), ("n2", "2026-03-04T09:00:00Z")] {
        town.node(node, "m5.large");
        let now = at(since);
        town.change_claim(node, |claim| {
            claim.conditions.set(Drifted, ConditionStatus::True, "Moved", "", now)
        });
    }
    town.change_node("n1", |node| {
        node.labels.insert("example.com/slot".into(), "1".into());
    });
    let mut pinned = shape("web", "1500m");
    pinned.node_selector.insert("example.com/slot".into(), "1".into());
    town.run("pinned", "n1", pinned);
    town.run("web", "n2", shape("web", "1500m"));
    let command = town.command();
    assert_eq!((command.method, command.nodes.as_slice()), (Method::Drift, [NodeName::new("n2")].as_slice()));
    let mut engine = town.engine();
    let said = events(&engine.decide(town.now));
    let blocked: Vec<_> = said.iter().filter(|(_, word, _)| word == "DisruptionBlocked").collect();
    let subjects: Vec<_> = blocked.iter().map(|(subject, ..)| subject.as_str()).collect();
    assert_eq!(subjects, ["n1", "n1-claim"], "{said:?}");
    assert!(blocked[0].2.contains("Drifted, but pod default/pinned would have no place: "), "{blocked:?}");
    assert!(is_tainted(&engine, "n2") && !is_tainted(&engine, "n1"));
}

/// Rows: DIS-173, DIS-176, DIS-135
#[test]
fn dis_135_an_empty_node_that_has_drifted_goes_once_for_the_first_reason_that_takes_it() {
    for (consolidates, expected) in [(true, DisruptionReason::Empty), (false, DisruptionReason::Drifted)] {
        let mut town = town();
        if consolidates {
            town.change_pool("default", |pool| pool.disruption.consolidate_after = Patience::of(seconds(0)));
        }
        town.node("n1", "m5.large");
        outdate(&mut town, "n1");
        let command = town.command();
        assert_eq!((command.kind(), command.reason()), (Kind::Delete, expected));
        let all = decisions(&mut town.engine(), town.now, town.now + minutes(2));
        let deleted = all.iter().flat_map(|(_, decision)| &decision.actions);
        let reasons: Vec<_> = deleted
            .filter(|one| matches!(one.action, Action::DeleteClaim { .. }))
            .map(|one| one.reason.code)
            .collect();
        assert_eq!(reasons, [expected.as_str()]);
    }
}

/// A node that was launched for the replacement, as far as it came.
fn machine(claim: &NodeClaim, name: &str, now: Timestamp) -> Node {
    let mut town = Town::with(|_| ());
    town.node(name, "m5.large");
    let mut node = (*town.cluster.nodes[&NodeName::new(name)]).clone();
    node.labels.remove(&*label::INITIALIZED);
    node.conditions = vec![ready("False")];
    node.created = Some(now);
    node.provider_id = claim.provider_id;
    node
}

/// Rows: DIS-178, DIS-179
#[test]
fn dis_178_a_replacement_that_does_not_come_leaves_the_old_node_as_it_was() {
    for joins in [false, true] {
        let town = outdated();
        let mut engine = town.engine();
        engine.decide(town.now);
        echo(&mut engine, town.now);
        let new = replacements(&engine).pop().expect("its replacement");
        let mut elsewhere = Town::with(|_| ());
        elsewhere.node("x", "m5.large");
        let instance =
            provisor::model::observation::Instance { claim: Some(new.name), ..elsewhere.instance("x") };
        engine.observe(town.now, Observation::Launched { claim: new.name, instance, shortage: None });
        engine.decide(town.now);
        echo(&mut engine, town.now);
        let launched = engine.cluster().claims[&new.name].clone();
        assert!(launched.conditions.is_true(Launched));
        if joins {
            let node = machine(&launched, "new", town.now);
            engine.observe(town.now, Observation::Node(Arc::new(node)));
            engine.decide(town.now);
            echo(&mut engine, town.now);
            assert!(engine.cluster().claims[&new.name].conditions.is_true(Registered));
        }
        decisions(&mut engine, town.now, town.now + minutes(10));
        assert!(is_tainted(&engine, "n1") && !is_going(&engine, "n1"), "ten minutes are not over");
        decisions(&mut engine, town.now + minutes(10), town.now + minutes(14));
        assert!(!is_tainted(&engine, "n1") && !is_going(&engine, "n1"), "joins: {joins}");
        let claim = claim_of(&engine, "n1").expect("it serves on");
        assert!(claim.conditions.get(ConditionType::DisruptionReason).is_none());
        assert_eq!(replacements(&engine).len(), 1, "nothing else is bought meanwhile");
        // What never registers is given up after a quarter of an hour.
        engine.decide(town.now + minutes(15));
        let is_given_up = engine.cluster().claims.get(&new.name).is_none_or(|claim| claim.deleted.is_some());
        assert_eq!(is_given_up, !joins);
        assert!(!is_going(&engine, "n1"), "and the old node is there");
    }
}

#[test]
fn dis_180_pods_that_are_not_well_hold_their_node() {
    let mut town = outdated();
    let unwell = Pod { is_ready: false, ..pod("web", Some("n1"), shape("web", "1500m")) };
    town.cluster.put_pod(Arc::new(unwell));
    let mut budget = pdb("web", "web", 1);
    budget.disruptions_allowed = Some(0);
    town.add_budget(budget.clone());
    assert_eq!(town.kept("n1"), "PodDisruptionBudget");
    // Counted from the pods themselves it is the same: one may be away, and one is.
    town.add_budget(provisor::model::workload::PodDisruptionBudget { disruptions_allowed: None, ..budget });
    assert_eq!(town.kept("n1"), "PodDisruptionBudget");
}

#[test]
fn dis_181_nodes_of_static_pools_are_left_to_their_own_method() {
    let mut fixed = pool("fixed");
    fixed.replicas = Some(1);
    let mut default = pool("default");
    default.disruption.consolidate_after = Patience::never();
    let mut town = Town::new(vec![default, fixed]);
    for (pool, node) in [("default", "n1"), ("fixed", "n2")] {
        town.node_of(pool, node, "m5.large", "on-demand");
        town.run(&format!("on-{node}"), node, shape("web", "1500m"));
        outdate(&mut town, node);
    }
    let commands = town.plan().commands;
    let by_node: BTreeSet<_> =
        commands.iter().map(|command| (command.nodes[0].as_str(), command.method)).collect();
    assert_eq!(by_node, BTreeSet::from([("n1", Method::Drift), ("n2", Method::StaticDrift)]));
    let of_fixed =
        commands.iter().find(|command| command.method == Method::StaticDrift).expect("it is there");
    assert_eq!(of_fixed.replacements[0].pool, "fixed".into(), "made from its own template");
}

/// Rows: DIS-137
#[test]
fn dis_137_pods_of_a_node_that_waits_for_its_replacement_are_bought_nothing_more() {
    let mut town = town();
    town.node("n1", "m5.xlarge");
    (0..3).for_each(|index| town.run(&format!("web-{index}"), "n1", shape("web", "1200m")));
    outdate(&mut town, "n1");
    let mut engine = town.engine();
    decisions(&mut engine, town.now, town.now + seconds(90));
    assert!(is_tainted(&engine, "n1") && engine.rounds() > 0, "there was a round of provisioning");
    assert_eq!(replacements(&engine).len(), 1);
}

/// Rows: DIS-136
#[test]
fn dis_136_each_command_counts_with_what_the_ones_before_it_bring() {
    let mut town = town();
    for index in 0..10 {
        let node = format!("n{index}");
        town.node(&node, "m5.large");
        town.run(&format!("web-{index}"), &node, shape("web", "1500m"));
        outdate(&mut town, &node);
    }
    let commands = town.plan().commands;
    assert_eq!(commands.len(), 10);
    for command in &commands {
        assert_eq!((command.nodes.len(), command.replacements.len()), (1, 1));
        assert_eq!(command.replacements[0].pods.len(), 1, "nobody else's pod comes along");
    }
    // Two small ones, each beside a daemon that leaves no room for the other, fit onto one replacement. On that nobody can rely
    // before it is there. Of one pool they would go together.
    let mut small = Town::new(["a", "b"].map(pool).to_vec());
    for (of, node) in [("a", "n1"), ("b", "n2")] {
        small.change_pool(of, |pool| pool.disruption.consolidate_after = Patience::never());
        small.node_of(of, node, "m5.large", "on-demand");
        small.run(&format!("on-{node}"), node, shape("web", "600m"));
        let agent = pod(&format!("agent-{node}"), Some(node), shape("agent", "1200m"));
        small.cluster.put_pod(Arc::new(Pod { owners: vec![owned_by("DaemonSet")], ..agent }));
        outdate(&mut small, node);
    }
    let plan = small.plan();
    let found: Vec<_> =
        plan.commands.iter().map(|command| (command.nodes[0].as_str(), command.kind())).collect();
    assert_eq!(found, [("n1", Kind::Replace)]);
    let kept = plan.kept.iter().find(|kept| kept.node == NodeName::new("n2")).expect("it stays");
    assert!(kept.message.contains("only about to be bought"), "{}", kept.message);
}

#[test]
fn pods_of_what_has_drifted_keep_off_what_consolidation_gives_back_next() {
    let mut town = Town::new(vec![pool("default")]);
    for (node, kind) in [("n1", "m5.large"), ("n2", "m5.2xlarge"), ("n3", "m5.xlarge")] {
        town.node(node, kind);
        town.run(&format!("{node}-web"), node, shape("web", "500m"));
    }
    outdate(&mut town, "n1");
    protect(&mut town, "n3", "true");
    let commands = town.plan().commands;
    let to_n3 = Destination::Existing(Place::Node("n3".into()));
    assert_eq!(commands[0].method, Method::Drift);
    assert_eq!(commands[0].pods, [(ObjectKey::new("default", "n1-web"), to_n3)], "n3 stays in any case");
    assert_eq!(&*commands[1].nodes, [NodeName::new("n2")], "nothing came to it");
}
