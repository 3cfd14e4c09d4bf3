//! Room that is there already: nodes that run, nodes under way, and nodes that go.

use std::collections::{BTreeMap, BTreeSet};

use provisor::capacity::scheduling::{self, Mode, Place, Request, is_reschedulable};
use provisor::model::label;
use provisor::model::name::{NodeName, ObjectKey};
use provisor::model::pod::{PodPhase, Selector};
use provisor::model::requirement::Operator::*;
use provisor::model::taint::{Effect, Taint};
use provisor::model::workload::{CountOrPercent, PodDisruptionBudget};

use super::world::*;

const ROOM: &[(&str, &str)] = &[("cpu", "10"), ("memory", "10Gi"), ("pods", "110")];

fn taint(key: &str, effect: Effect) -> Taint {
    Taint::new(key, "", effect)
}

/// Rows: SCH-171, SCH-189, SCH-197
#[test]
fn a_node_under_way_takes_the_next_pod() {
    let mut world = World::plain();
    world.run(&[pod("a").cpu("10m")]);
    world.run(&[pod("b").cpu("10m")]);
    assert_eq!(world.host_of("a"), world.host_of("b"));
}

#[test]
fn sch_172_a_node_under_way_keeps_its_zone() {
    let mut world = World::plain();
    world.run(&[pod("a").select(ZONE, Z2)]);
    world.run(&[pod("b").or(&[(ZONE, In, &[Z1, Z2])])]);
    world.run(&[pod("c").or(&[(ZONE, In, &[Z1, Z3])])]);
    assert_eq!(world.host_of("a"), world.host_of("b"));
    assert_ne!(world.host_of("a"), world.host_of("c"));
    assert!(world.is_bound("c"));
}

/// Rows: SCH-173, SCH-174
#[test]
fn a_node_under_way_takes_only_what_fits() {
    let mut world = World::plain();
    world.run(&[pod("a").cpu("1001m")]);
    world.run(&[pod("b").cpu("1")]);
    assert_ne!(world.host_of("a"), world.host_of("b"));
    let mut world = World::of(pool("default").require(ARCH, In, &["amd64", "arm64"]));
    world.run(&[pod("a").select(ARCH, "amd64")]);
    world.run(&[pod("b").select(ARCH, "arm64")]);
    assert_ne!(world.host_of("a"), world.host_of("b"));
}

#[test]
fn sch_175_a_node_that_is_gone_takes_nothing() {
    let mut world = World::plain();
    world.run(&[pod("a")]);
    let first = world.node_of("a").unwrap().name;
    let claim = world.cluster.claim_of(&world.cluster.nodes[&first]).unwrap().name;
    world.cluster.remove_node(first);
    world.cluster.remove_claim(claim);
    world.run(&[pod("b")]);
    assert!(world.host_of("b").is_some_and(|host| host != first.as_str()));
}

/// Rows: SCH-179, SCH-180, SCH-184, SCH-478, SCH-479
#[test]
fn taints_of_a_start_are_ignored_until_the_node_is_initialized() {
    let starting = [
        taint("node.kubernetes.io/not-ready", Effect::NoExecute),
        taint("node.kubernetes.io/unreachable", Effect::NoSchedule),
        taint("node.cloudprovider.kubernetes.io/uninitialized", Effect::NoSchedule),
        taint("readiness.k8s.io/thing", Effect::NoSchedule),
    ];
    let mut world = World::plain();
    world.run(&[pod("a")]);
    let node = world.host_of("a").unwrap();
    world.edit_node(node, |node| node.taints.extend(starting));
    world.run(&[pod("b")]);
    assert_eq!(world.host_of("b"), Some(node));
    world.initialize(node);
    world.edit_node(node, |node| node.taints.extend(starting));
    world.run(&[pod("c")]);
    assert_ne!(world.host_of("c"), Some(node));
}

/// Rows: SCH-181, SCH-182, SCH-183
#[test]
fn startup_taints_are_ignored_until_the_node_is_initialized() {
    let mut starting = pool("default");
    starting.template().startup_taints.push(taint("foo.com/startup", Effect::NoSchedule));
    let mut world = World::of(starting);
    world.run(&[pod("a")]);
    let node = world.host_of("a").unwrap();
    world.run(&[pod("b")]);
    assert_eq!(world.host_of("b"), Some(node));
    world.initialize(node);
    world.edit_node(node, |node| node.taints.push(taint("foo.com/startup", Effect::NoSchedule)));
    world.run(&[pod("c")]);
    assert_ne!(world.host_of("c"), Some(node));
}

#[test]
fn sch_185_room_is_what_bound_pods_leave() {
    let mut world = World::plain();
    world.put_daemon("agent", &pod("agent").cpu("1"));
    let arm = |pod: A| pod.select(INSTANCE_TYPE, "arm-instance-type");
    world.run(&[arm(pod("a").cpu("10"))]);
    let node = world.host_of("a").unwrap();
    world.remove_pods(|_| false);
    let bound = A { name: "agent-1".into(), ..pod("agent").cpu("1").owned_by("DaemonSet", "agent").on(node) };
    world.put_pods(&[bound]);
    world.run(&[arm(pod("b").cpu("14.9"))]);
    assert_eq!(world.host_of("b"), Some(node));
}

#[test]
fn sch_186_unexpected_daemons_make_no_room() {
    let mut world = World::plain();
    world.put_daemon("stranger", &pod("stranger").cpu("1").select("later", "yes"));
    world.put_daemon("agent", &pod("agent").cpu("1m"));
    let arm = |pod: A| pod.select(INSTANCE_TYPE, "arm-instance-type");
    world.run(&[arm(pod("a").cpu("10"))]);
    let node = world.host_of("a").unwrap();
    world.remove_pods(|_| false);
    world.put_pods(&[A {
        name: "s-1".into(),
        ..pod("s").cpu("1").owned_by("DaemonSet", "stranger").on(node)
    }]);
    world.run(&[arm(pod("b").cpu("15.5"))]);
    assert_ne!(world.host_of("b"), Some(node));
}

/// Rows: SCH-190, SCH-194
#[test]
fn initialized_nodes_are_filled_first() {
    let mut world = World::plain();
    let one = pod("a").label("app", "a").far(near(HOSTNAME, with_label("app", "a")));
    world.run(&many(20, &one));
    world.remove_pods(|_| false);
    let nodes: Vec<&str> = world.cluster.nodes.keys().map(|name| name.as_str()).collect();
    world.initialize(nodes[13]);
    world.run(&[pod("b")]);
    assert_eq!(world.host_of("b"), Some(nodes[13]));
}

#[test]
fn sch_191_a_host_port_is_taken_once_per_node() {
    let mut world = World::plain();
    world.run(&many(2, &pod("a").host_port(8080)));
    assert_ne!(world.host_of("a-001"), world.host_of("a-002"));
    world.run(&[pod("b").host_port(8080)]);
    assert_eq!(world.cluster.nodes.len(), 3);
}

/// Rows: SCH-192, SCH-193, SCH-911
#[test]
fn nodes_that_nobody_manages_are_used() {
    let mut world = World::plain();
    world.put_node("own", &[], ROOM);
    let round = world.run(&many(100, &pod("a").cpu("10m")));
    assert!(round.new_nodes().is_empty());
    assert_eq!(round.solution.existing[&Place::Node(NodeName::new("own"))].len(), 100);
}

/// Rows: SCH-195, SCH-196
#[test]
fn a_node_without_a_zone_is_in_no_zone() {
    let mut world = World::new(Vec::new(), assorted());
    world.put_node("bare", &[], &[("cpu", "1"), ("memory", "1Gi"), ("pods", "10")]);
    world.run(&[pod("a").select(ZONE, Z1)]);
    assert!(!world.is_bound("a"));
    world.put_pool(pool("default"));
    world.run(&[]);
    assert!(world.is_bound("a"));
    let mut world = World::plain();
    world.put_node("bare", &[], &[("cpu", "1"), ("memory", "1Gi"), ("pods", "10")]);
    world.put_daemon("zonal", &pod("zonal").cpu("100").select(ZONE, Z1));
    world.run(&[pod("first").cpu("1").memory("1Gi")]);
    world.run(&[pod("second").cpu("1").memory("1Gi")]);
    assert_eq!(world.host_of("first"), Some("bare"));
    assert!(!world.is_bound("second"), "every new node would hold the daemon");
}

#[test]
fn sch_198_a_device_that_is_not_reported_yet_is_expected() {
    let mut world = World::plain();
    let gpu = |name: &str| pod(name).request("fake.com/vendor-a", "1");
    world.run(&[gpu("a")]);
    let node = world.host_of("a").unwrap();
    world.edit_node(node, |node| {
        node.allocatable.set(amounts(&[("fake.com/vendor-a", "1")]).iter().next().unwrap().0, 0)
    });
    world.run(&[gpu("b")]);
    assert_eq!(world.host_of("b"), Some(node));
}

#[test]
fn sch_199_a_herd_is_founded_where_its_first_node_is() {
    let mut world = World::plain();
    world.run(&[pod("opener").select(ZONE, Z2)]);
    let herd = pod("herd").label("app", "herd").near(near(ZONE, with_label("app", "herd")));
    world.run(&[herd]);
    assert_eq!(world.cluster.nodes.len(), 1);
}

/// Rows: WEA-019
#[test]
fn a_claim_whose_launch_is_not_answered_is_planned_with() {
    let mut world = World::plain();
    world.put_pods(&many(3, &pod("a").cpu("1").select(ZONE, Z2)));
    let first = world.plan();
    for (claim, _) in &first.purchase.claims {
        world.cluster.put_claim(claim.clone());
    }
    let second = world.plan();
    assert!(second.new_nodes().is_empty(), "{:?}", second.solution);
    assert_eq!(second.solution.existing.values().map(Vec::len).sum::<usize>(), 3);
    // It may not become what its requirements leave open.
    world.put_pods(&[pod("b").cpu("1m").select(ZONE, Z2).select(CAPACITY_TYPE, "spot")]);
    assert_eq!(world.plan().new_nodes().len(), 1);
}

#[test]
fn sch_188_round_after_round_hardly_any_room_is_left_over() {
    let kind = machine("only", &[("cpu", "4.25"), ("memory", "64Gi"), ("pods", "4")], &everywhere(1.0));
    let mut world = World::new(vec![pool("default")], vec![kind]);
    for (at, count) in [7, 3, 9, 1, 5, 8, 2, 6, 4, 9].into_iter().enumerate() {
        world.run(&many(count, &A { name: format!("batch-{at}"), ..pod("a").cpu("1") }));
        assert_eq!(world.waiting(), 0);
        let has_room = |node: &&NodeName| world.cluster.pods_of(**node).count() < 4;
        let names: Vec<NodeName> = world.cluster.nodes.keys().copied().collect();
        assert!(names.iter().filter(has_room).count() <= 1, "after batch {at}");
    }
}

#[test]
fn a_cordoned_node_takes_nothing() {
    let mut world = World::plain();
    world.put_node("own", &[], ROOM);
    world.edit_node("own", |node| node.is_cordoned = true);
    world.run(&[pod("a")]);
    assert_ne!(world.host_of("a"), Some("own"));
}

fn on_dying_node(one: &A) -> usize {
    let mut world = World::of(pool("default").require(INSTANCE_TYPE, In, &["small-instance-type"]));
    world.run(&[pod("opener")]);
    let node = world.host_of("opener").unwrap();
    world.remove_pods(|_| false);
    world.put_pods(&[A { name: "moving".into(), ..one.clone().on(node) }]);
    world.edit_claim_of(node, |claim| claim.deleted = Some(now()));
    world.plan().new_nodes().len()
}

/// Rows: SCH-219, SCH-220, SCH-221, SCH-222
#[test]
fn pods_of_dying_nodes_that_come_back_get_a_place() {
    assert_eq!(on_dying_node(&pod("a")), 1);
    let terminating = |one: A| A { is_terminating: true, ..one };
    assert_eq!(on_dying_node(&terminating(A { owner: None, ..pod("a") })), 0);
    assert_eq!(on_dying_node(&terminating(pod("a"))), 0);
    assert_eq!(on_dying_node(&pod("a").owned_by("DaemonSet", "d")), 0);
    assert_eq!(on_dying_node(&terminating(pod("a").owned_by("StatefulSet", "s"))), 1);
}

fn budget(name: &str, min: Option<CountOrPercent>, max: Option<CountOrPercent>) -> PodDisruptionBudget {
    PodDisruptionBudget {
        key: ObjectKey::new("default", name),
        selector: Some(Selector::default()),
        min_available: min,
        max_unavailable: max,
        disruptions_allowed: None,
        always_allows_unhealthy: false,
    }
}

/// Rows: SCH-223, SCH-496, SCH-497, SCH-498
#[test]
fn budgets_that_allow_nothing_hold_pods_where_they_are() {
    use CountOrPercent::{Count, Percent};
    let running = pod("a").on("n1").build();
    let holds = |budgets: Vec<PodDisruptionBudget>| {
        let mut world = World::plain();
        for budget in budgets {
            world.cluster.budgets.insert(budget.key, std::sync::Arc::new(budget));
        }
        !is_reschedulable(&world.cluster, &running, now())
    };
    assert!(!holds(Vec::new()));
    assert!(holds(vec![budget("a", None, Some(Count(0)))]));
    assert!(holds(vec![budget("a", None, Some(Percent(0)))]));
    assert!(holds(vec![budget("a", Some(Percent(100)), None)]));
    assert!(!holds(vec![budget("a", Some(Percent(50)), None)]));
    assert!(holds(vec![budget("a", None, Some(Count(1))), budget("b", None, Some(Count(1)))]));
    let mut elsewhere = budget("a", None, Some(Count(0)));
    elsewhere.key = ObjectKey::new("other", "a");
    assert!(!holds(vec![elsewhere]));
    let mut lenient = budget("a", Some(Percent(100)), None);
    let mut unready = (*running).clone();
    unready.is_ready = false;
    let mut world = World::plain();
    for (allows, comes) in [(false, false), (true, true)] {
        lenient.always_allows_unhealthy = allows;
        world.cluster.budgets.insert(lenient.key, std::sync::Arc::new(lenient.clone()));
        assert_eq!(is_reschedulable(&world.cluster, &unready, now()), comes);
    }
}

/// Rows: SCH-490, SCH-491, SCH-492, SCH-493, SCH-494, SCH-495, SCH-499
#[test]
fn do_not_disrupt_protects_for_ever_or_for_a_while() {
    let cluster = World::plain().cluster;
    let comes = |value: Option<&str>, started: Option<&str>, phase: PodPhase| {
        let mut one = pod("a").on("n1");
        one.shape.do_not_disrupt = value.map(Into::into);
        one.phase = phase;
        let mut built = (*one.build()).clone();
        built.started = started.map(|text| text.parse().unwrap());
        (is_reschedulable(&cluster, &built, now()), scheduling::is_protected(&built, now()))
    };
    let ten_minutes_ago = Some("2026-03-04T10:20:00Z");
    let running = PodPhase::Running;
    assert_eq!(comes(None, ten_minutes_ago, running), (true, false));
    assert_eq!(comes(Some("true"), ten_minutes_ago, running), (false, true));
    for invalid in ["invalid-format", "0s", "-5m"] {
        assert_eq!(comes(Some(invalid), ten_minutes_ago, running), (true, false), "{invalid}");
    }
    assert_eq!(comes(Some("15m"), ten_minutes_ago, running), (false, true));
    assert_eq!(comes(Some("5m"), ten_minutes_ago, running), (true, false));
    assert_eq!(comes(Some("5m"), None, running), (false, true));
    assert!(!comes(Some("true"), ten_minutes_ago, PodPhase::Succeeded).1);
}

#[test]
fn sch_918_a_settling_node_takes_only_pods_without_a_place() {
    let mut world = World::new(Vec::new(), assorted());
    world.put_node("settling", &[], ROOM);
    world.put_node("leaving", &[], ROOM);
    world.put_pods(&[pod("running").on("leaving"), pod("waiting")]);
    let settling = BTreeSet::from([NodeName::new("settling")]);
    let candidates = BTreeSet::from([NodeName::new("leaving")]);
    let pods: Vec<_> = world.cluster.pods.values().cloned().collect();
    let supply = world.supply();
    let solution = scheduling::solve(&Request {
        cluster: &world.cluster,
        supply: &supply,
        now: now(),
        pods: &pods,
        departing: &[],
        without_nodes: &candidates,
        without_claims: &BTreeSet::new(),
        shut_claims: &BTreeSet::new(),
        planned: &BTreeMap::new(),
        used_at_least: &BTreeMap::new(),
        settings: &world.settings,
        mode: Mode::Simulation { settling: &settling },
    });
    assert_eq!(
        solution.existing[&Place::Node(NodeName::new("settling"))],
        [ObjectKey::new("default", "waiting")]
    );
    assert_eq!(solution.unschedulable[0].pod, ObjectKey::new("default", "running"));
}

#[test]
fn sch_904_pods_that_nobody_refused_yet_are_left_alone() {
    let mut world = World::plain();
    let mut nominated = (*pod("nominated").build()).clone();
    nominated.nominated_node = Some(NodeName::new("n1"));
    let mut gated = (*pod("gated").build()).clone();
    (gated.is_gated, gated.is_unschedulable) = (true, false);
    let mut fresh = (*pod("fresh").build()).clone();
    fresh.is_unschedulable = false;
    for pod in [nominated, gated, fresh] {
        world.cluster.put_pod(std::sync::Arc::new(pod));
    }
    let round = world.plan();
    assert!(round.new_nodes().is_empty() && round.solution.unschedulable.is_empty());
}

#[test]
fn labels_of_a_node_before_its_registration_are_those_of_its_claim() {
    let mut world = World::plain();
    world.run(&[pod("a").select(ZONE, Z2)]);
    let node = world.host_of("a").unwrap();
    world.edit_node(node, |node| {
        node.labels.clear();
        node.taints.push(taint("karpenter.sh/unregistered", Effect::NoExecute));
    });
    assert!(!world.cluster.nodes[&NodeName::new(node)].labels.contains_key(&*label::ZONE));
    world.run(&[pod("b").select(ZONE, Z2)]);
    assert_eq!(world.host_of("b"), Some(node));
}
