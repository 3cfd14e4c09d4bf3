//! What was planned for a pod holds until it runs: no machine is bought twice for it, and none is bought for nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::disruption::{Destination, Kind};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::capacity::planning;
use provisor::capacity::scheduling::Place;
use provisor::model::action::Action;
use provisor::model::label;
use provisor::model::name::{NodeName, ObjectKey};
use provisor::model::observation::Observation;
use provisor::model::pod::{PodShape, PodTerm, Selector, SelectorTerm, Spread};
use provisor::model::pool::{ConsolidationPolicy, DisruptionReason, NodePool};
use provisor::model::quantity::{ResourceName, resource};
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::time::Patience;
use provisor::simulator::workload::{Workload, WorkloadKind};
use provisor::simulator::world::{Habits, World};

use super::town::*;

fn in_zone(app: &str, cpu: &str, zone: &str) -> PodShape {
    PodShape { node_selector: [(*label::ZONE, zone.into())].into_iter().collect(), ..shape(app, cpu) }
}

fn only(kinds: &[&str]) -> impl Fn(&mut NodePool) {
    let kinds: Vec<_> = kinds.iter().map(|kind| (*kind).into()).collect();
    move |pool| {
        let wanted = Requirement::new(Operator::In, kinds.iter().copied());
        Arc::make_mut(&mut pool.template).requirements.add(*label::INSTANCE_TYPE, wanted);
    }
}

fn wait(town: &mut Town, name: &str, shape: PodShape) {
    town.cluster.put_pod(Arc::new(pod(name, None, shape)));
}

fn limit(pool: &mut NodePool, name: ResourceName, amount: i64) {
    pool.limits = Some([(name, amount)].into_iter().collect());
}

/// Every node is bought for somebody, carries what its pods ask for and no more, and no pod is sent to a node that goes.
fn check(town: &Town) {
    let plan = planning::plan(&town.cluster, town.now, &town.settings);
    let going: BTreeSet<NodeName> =
        plan.disruption.commands.iter().flat_map(|command| command.nodes.clone()).collect();
    let bought = plan.disruption.commands.iter().flat_map(|command| &command.replacements);
    for node in bought.chain(&plan.provisioning.new_nodes) {
        assert!(!node.pods.is_empty(), "a node is bought for nobody: {node:?}");
        let pods = node.pods.iter().map(|pod| town.cluster.pods[pod].shape.requests.cpu().0);
        assert_eq!(node.requests.cpu().0, pods.sum::<i64>(), "{node:?}");
    }
    let sent = plan.disruption.commands.iter().flat_map(|command| &command.pods);
    let sent = sent.filter_map(|(pod, to)| match to {
        Destination::Existing(place) => Some((place.name(), *pod)),
        _ => None,
    });
    let waiting = plan.provisioning.existing.iter();
    let waiting = waiting.flat_map(|(place, pods)| pods.iter().map(|pod| (place.name(), *pod)));
    let mut left: BTreeMap<_, i64> =
        town.cluster.nodes.values().map(|node| (node.name.0, node.allocatable.cpu().0)).collect();
    let present = town.cluster.pods.values().filter_map(|pod| Some((pod.node?.0, pod.key)));
    let placed: BTreeSet<_> = present.chain(sent).chain(waiting).collect();
    for (place, pod) in placed {
        if let Some(left) = left.get_mut(&place) {
            *left -= town.cluster.pods[&pod].shape.requests.cpu().0;
            assert!(*left >= 0, "{place} has no room for {pod}");
        }
    }
    for place in plan.provisioning.existing.keys() {
        assert!(!going.contains(&NodeName(place.name())), "pods wait for {place}, which goes");
    }
    for (pod, to) in plan.disruption.commands.iter().flat_map(|command| &command.pods) {
        if let Destination::Existing(place) = to {
            assert!(!going.contains(&NodeName(place.name())), "{pod} is sent to {place}, which goes");
        }
    }
}

/// The pod that may be anywhere comes first, and the machine in the zone of the other one has its room.
#[test]
fn sch_189_197_machines_under_way_are_for_the_pods_that_they_were_bought_for() {
    for seed in 0..10 {
        let mut world = World::new(seed, at(NOW), catalog(), Habits::default());
        world.apply(Observation::Class(Arc::new(class("default"))));
        let mut default = pool("default");
        only(&["m5.xlarge"])(&mut default);
        world.apply(Observation::Pool(Arc::new(default)));
        let shapes =
            [("anywhere", shape("anywhere", "2500m")), ("bound", in_zone("bound", "2500m", "us-west-2b"))];
        for (name, shape) in shapes {
            let key = ObjectKey::new("default", name);
            world.add_workload(Workload::new(key, WorkloadKind::Deployment, Arc::new(shape), 1));
        }
        let settings = EngineSettings { nominates: true, foresees_pods: true, ..EngineSettings::default() };
        let mut engine = Engine::new(settings);
        let (mut claims, until) = (BTreeSet::new(), world.now() + SignedDuration::from_mins(4));
        live(&mut world, &mut engine, until, |_, decision| {
            claims.extend(decision.actions.iter().filter_map(|planned| match &planned.action {
                Action::CreateClaim(claim) => Some(claim.name),
                _ => None,
            }));
        });
        assert_eq!(claims.len(), 2, "seed {seed}");
        assert!(world.objects().pods.values().all(|pod| pod.is_ready), "seed {seed}");
    }
}

#[test]
fn nothing_is_bought_for_an_empty_node_that_has_drifted_while_pods_wait() {
    for case in 0..8 {
        let mut town = Town::with(only(&["m5.xlarge"]));
        let mut outdated = pool("outdated");
        outdated.disruption.consolidate_after = Patience::never();
        only(&["m5.large"])(&mut outdated);
        town.cluster.pools.insert(outdated.name, Arc::new(outdated));
        town.node_of("outdated", "n1", "m5.large", "on-demand");
        town.drift("n1", NOW);
        // Their names decide how machines are called, and so in which order those are asked.
        wait(&mut town, &format!("a{case}"), shape("a", "2500m"));
        wait(&mut town, "b", in_zone("b", "2500m", "us-west-2b"));
        let command = town.command();
        assert_eq!((command.kind(), command.reason()), (Kind::Delete, DisruptionReason::Drifted));
        check(&town);
    }
}

#[test]
fn what_comes_for_a_node_that_is_too_old_is_for_its_own_pods() {
    let mut town = Town::with(only(&["m5.large", "m5.xlarge"]));
    for (node, app) in [("n1", "one"), ("n2", "two")] {
        town.node(node, "m5.large");
        town.change_claim(node, |claim| {
            claim.spec.expire_after = Patience::of(SignedDuration::from_hours(1))
        });
        town.run(app, node, shape(app, "500m"));
    }
    wait(&mut town, "waits", shape("waits", "500m"));
    let plan = town.plan();
    let kinds: Vec<_> = plan.commands.iter().map(|command| (command.reason(), command.kind())).collect();
    assert_eq!(kinds, [(DisruptionReason::Expired, Kind::Replace); 2]);
    check(&town);
}

/// A pod that cannot come with its node is nobody's neighbour any more.
#[test]
fn a_pod_without_a_place_keeps_no_other_from_one() {
    let mut town = Town::with(only(&["m5.xlarge"]));
    town.node("n1", "m5.xlarge");
    town.node("n2", "m5.xlarge");
    town.change_claim("n1", |claim| claim.spec.expire_after = Patience::of(SignedDuration::from_hours(1)));
    let lost = PodShape {
        node_selector: [("rack".into(), "none".into())].into_iter().collect(),
        ..shape("lost", "100m")
    };
    town.run("lost", "n1", lost);
    town.run("moves", "n1", shape("moves", "1"));
    wait(&mut town, "waits", shape("waits", "2500m"));
    let plan = planning::plan(&town.cluster, town.now, &town.settings);
    let to: BTreeMap<_, _> = plan.disruption.commands[0].pods.iter().copied().collect();
    assert_eq!(to[&ObjectKey::new("default", "lost")], Destination::Nowhere);
    let there =
        plan.provisioning.existing.values().flatten().filter(|pod| pod.name == "waits".into()).count();
    let new = plan.provisioning.new_nodes.iter().flat_map(|node| &node.pods).count();
    assert_eq!(there + new, 1);
    check(&town);
}

fn expire(town: &mut Town, node: &str) {
    let life = Patience::of(SignedDuration::from_hours(1));
    town.change_claim(node, |claim| claim.spec.expire_after = life);
}

fn near_its_kind(app: &str) -> PodTerm {
    let named = SelectorTerm { key: "app".into(), operator: Operator::In, values: vec![app.into()] };
    PodTerm {
        selector: Some(Selector { terms: vec![named] }),
        topology_key: *label::ZONE,
        namespaces: Vec::new(),
        namespace_selector: None,
        match_label_keys: Vec::new(),
        mismatch_label_keys: Vec::new(),
    }
}

/// A pod that leaves its node and has no place keeps others of its kind from none, whatever else goes.
#[test]
fn what_a_pod_without_a_place_does_not_bear_is_put_where_it_was_planned() {
    let mut town = Town::with(only(&["m5.large"]));
    let mut fixed = pool("fixed");
    fixed.replicas = Some(0);
    town.cluster.pools.insert(fixed.name, Arc::new(fixed));
    town.node("n0", "m5.large");
    town.node("n1", "m5.2xlarge");
    expire(&mut town, "n1");
    town.node_of("fixed", "s1", "m5.large", "on-demand");
    let alone = PodShape { anti_affinity_required: vec![near_its_kind("db")], ..shape("db", "5") };
    town.run("alone", "n1", alone);
    town.run("moves", "n1", shape("db", "1200m"));
    town.run("other", "s1", shape("other", "1200m"));
    let plan = planning::plan(&town.cluster, town.now, &town.settings);
    let moves = plan.disruption.commands.iter().flat_map(|command| command.pods.iter().copied());
    let moves: BTreeMap<ObjectKey, Destination> = moves.collect();
    assert_eq!(moves[&ObjectKey::new("default", "alone")], Destination::Nowhere);
    assert_eq!(
        moves[&ObjectKey::new("default", "moves")],
        Destination::Existing(Place::Node(NodeName::new("n0")))
    );
    assert!(plan.provisioning.new_nodes.is_empty(), "{:?}", plan.provisioning.new_nodes);
    check(&town);
}

/// The one that wants to be near the other goes where that one will be, not where it still is.
#[test]
fn a_pod_follows_another_whose_node_is_too_old_as_well() {
    let mut town = Town::with(only(&["m5.large"]));
    for (node, zone) in [("n1", "us-west-2a"), ("n2", "us-west-2b"), ("n3", "us-west-2b")] {
        town.node(node, "m5.large");
        town.change_node(node, |node| {
            node.labels.insert(*label::ZONE, zone.into());
        });
        town.change_claim(node, |claim| {
            claim.labels.insert(*label::ZONE, zone.into());
        });
    }
    expire(&mut town, "n1");
    expire(&mut town, "n2");
    town.change_claim("n2", |claim| claim.created = Some(at("2026-01-01T00:00:00Z")));
    town.run("leads", "n1", shape("job", "1500m"));
    town.run(
        "follows",
        "n2",
        PodShape { affinity_required: vec![near_its_kind("job")], ..shape("job", "1") },
    );
    let plan = planning::plan(&town.cluster, town.now, &town.settings);
    let nodes: Vec<_> = plan.disruption.commands.iter().flat_map(|command| &command.nodes).collect();
    assert_eq!(nodes, [&NodeName::new("n1"), &NodeName::new("n2")]);
    assert!(plan.provisioning.new_nodes.is_empty(), "{:?}", plan.provisioning.new_nodes);
    let zones = plan.disruption.commands[1].replacements[0].zones();
    assert_eq!(zones.iter().map(|zone| zone.as_str()).collect::<Vec<_>>(), ["us-west-2b"]);
    check(&town);
}

/// The first comes to a node where it is the only one of its kind; the second minds no company and is the larger one.
#[test]
fn what_was_planned_first_is_put_there_first() {
    let mut town = Town::with(only(&["m5.large"]));
    for node in ["n0", "n1", "n2"] {
        town.node(node, "m5.large");
    }
    expire(&mut town, "n1");
    expire(&mut town, "n2");
    town.change_claim("n1", |claim| claim.created = Some(at("2026-01-01T00:00:00Z")));
    let spread = Spread {
        max_skew: 1,
        topology_key: *label::HOSTNAME,
        is_required: true,
        selector: near_its_kind("web").selector,
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Vec::new(),
    };
    town.run("minds", "n1", PodShape { spreads: vec![spread], ..shape("web", "500m") });
    town.run("larger", "n2", shape("web", "600m"));
    let plan = planning::plan(&town.cluster, town.now, &town.settings);
    assert!(plan.provisioning.new_nodes.is_empty(), "{:?}", plan.provisioning.new_nodes);
    check(&town);
}

/// Where a fixed number of nodes is too high by one, that one takes no more pods.
#[test]
fn nothing_is_put_on_a_node_that_its_pool_has_too_much() {
    let with_fixed = |waits: bool, expires: bool| {
        let mut town = Town::with(only(&["m5.large"]));
        let mut fixed = pool("fixed");
        fixed.replicas = Some(0);
        town.cluster.pools.insert(fixed.name, Arc::new(fixed));
        town.node_of("fixed", "s1", "m5.xlarge", "on-demand");
        town.node("n1", "m5.large");
        town.run("web", "n1", shape("web", "500m"));
        if waits {
            wait(&mut town, "waits", shape("waits", "1500m"));
        }
        if expires {
            let life = Patience::of(SignedDuration::from_hours(1));
            town.change_claim("n1", |claim| claim.spec.expire_after = life);
        }
        town
    };
    for (waits, expires) in [(true, false), (false, true), (true, true)] {
        let town = with_fixed(waits, expires);
        let reasons: BTreeSet<_> = town.plan().commands.iter().map(|command| command.reason()).collect();
        assert!(reasons.contains(&DisruptionReason::ScaledDown));
        assert_eq!(reasons.contains(&DisruptionReason::Expired), expires);
        check(&town);
    }
}

/// What a drifted node leaves of a limit is its replacement's, and that is no larger than its own pods need.
#[test]
fn a_replacement_is_not_made_larger_for_pods_that_wait_in_vain() {
    let mut town = Town::with(|pool| {
        only(&["m5.large", "m5.xlarge"])(pool);
        limit(pool, *resource::CPU, 6_000);
    });
    for (node, kind) in [("n1", "m5.large"), ("n2", "m5.xlarge")] {
        town.node(node, kind);
        town.drift(node, NOW);
    }
    town.run("web", "n1", shape("web", "1500m"));
    wait(&mut town, "waits", shape("waits", "3900m"));
    wait(&mut town, "also", shape("also", "2300m"));
    check(&town);
}

/// A node that goes makes room for its replacement under the limits of its pool.
#[test]
fn a_pool_at_its_limit_is_rolled_and_consolidated() {
    let full = |kind: &'static str, change: fn(&mut NodePool)| {
        let mut town = Town::with(|pool| {
            only(&["m5.large", "m5.xlarge"])(pool);
            change(pool);
        });
        town.node("n1", kind);
        town.run("web", "n1", shape("web", "1500m"));
        town
    };
    let mut drifted = full("m5.large", |pool| limit(pool, *resource::CPU, 2_000));
    drifted.drift("n1", NOW);
    assert_eq!(drifted.command().kind(), Kind::Replace);
    let by_count = full("m5.xlarge", |pool| limit(pool, *resource::NODES, 1));
    assert_eq!(by_count.command().reason(), DisruptionReason::Underutilized);
    let mut expired = full("m5.large", |pool| limit(pool, *resource::CPU, 2_000));
    expired.change_claim("n1", |claim| claim.spec.expire_after = Patience::of(SignedDuration::from_hours(1)));
    assert_eq!(expired.command().kind(), Kind::Replace);
    let mut crowded = full("m5.large", |pool| limit(pool, *resource::CPU, 2_000));
    crowded.change_pool("default", |pool| pool.disruption.policy = ConsolidationPolicy::WhenEmpty);
    wait(&mut crowded, "more", shape("more", "1500m"));
    let plan = planning::plan(&crowded.cluster, crowded.now, &crowded.settings);
    assert_eq!(plan.provisioning.unschedulable.len(), 1, "for others the limit holds");
}
