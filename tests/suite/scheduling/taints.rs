//! Taints of pools and what tolerates them.

use provisor::model::pod::Pod;
use provisor::model::requirement::Operator::In;
use provisor::model::taint::{Effect, Taint, Toleration, TolerationOperator};

use super::world::*;

fn key_taint() -> Taint {
    Taint::new("nvidia.com/gpu", "true", Effect::NoSchedule)
}

#[test]
fn sch_345_nodes_carry_the_taints_of_their_pool() {
    let mut world = World::of(pool("default").taint("nvidia.com/gpu", "true", Effect::NoSchedule));
    let round = world.run(&[pod("a").tolerate("nvidia.com/gpu", None, Some(Effect::NoSchedule))]);
    assert_eq!(round.new_nodes()[0].taints, [key_taint()]);
    assert!(world.node_of("a").unwrap().taints.contains(&key_taint()));
}

#[test]
fn sch_346_only_tolerations_that_match_pass_the_taint_of_a_pool() {
    let mut world = World::of(pool("default").taint("k", "v", Effect::NoSchedule));
    let equal = |name: &str, key: &str, value: &str, effect| {
        let mut one = pod(name);
        let operator = TolerationOperator::Equal;
        one.shape.tolerations.push(Toleration { key: key.into(), operator, value: value.into(), effect });
        one
    };
    let tolerating = [
        pod("exists").tolerate("k", None, Some(Effect::NoSchedule)),
        equal("equal", "k", "v", Some(Effect::NoSchedule)),
    ];
    let refused = [
        pod("none"),
        pod("other-key").tolerate("other", None, Some(Effect::NoSchedule)),
        equal("no-value", "k", "", Some(Effect::NoSchedule)),
    ];
    let all: Vec<A> = tolerating.iter().chain(&refused).cloned().collect();
    world.run(&all);
    let waits = |pod: &&A| !world.is_bound(&pod.name);
    assert_eq!(tolerating.iter().filter(waits).count(), 0);
    assert_eq!(refused.iter().filter(waits).count(), 3);
}

#[test]
fn sch_347_startup_taints_need_no_toleration() {
    let mut starting = pool("default");
    starting.template().startup_taints.push(Taint::new("ignore-me", "v", Effect::NoSchedule));
    let mut world = World::of(starting);
    let round = world.run(&[pod("a")]);
    assert!(world.is_bound("a"));
    assert_eq!(round.claim().spec.startup_taints.len(), 1, "the claim carries it all the same");
}

#[test]
fn sch_348_a_toleration_invents_no_taint() {
    let mut world = World::plain();
    let round = world.run(&[pod("a").tolerate("", None, Some(Effect::NoExecute))]);
    assert!(world.is_bound("a"));
    assert!(round.claim().spec.taints.is_empty() && round.new_nodes()[0].taints.is_empty());
}

/// A node of ours that has joined and does not serve yet, with these taints on it.
fn starting(taints: &[Taint]) -> World {
    let mut world = World::plain();
    world.run(&[pod("first").cpu("1")]);
    world.remove_pods(|_: &Pod| false);
    world.edit_node("node-001", |node| node.taints = taints.to_vec());
    world
}

/// Rows: SCH-454
#[test]
fn taints_of_a_starting_node_are_waited_out_and_others_are_not() {
    let lasting = Effect::NoSchedule;
    for (key, effect, is_waited_out) in [
        ("node.kubernetes.io/not-ready", Effect::NoSchedule, true),
        ("node.kubernetes.io/not-ready", Effect::NoExecute, true),
        ("node.kubernetes.io/unreachable", Effect::NoSchedule, true),
        ("node.cloudprovider.kubernetes.io/uninitialized", Effect::NoSchedule, true),
        ("karpenter.sh/unregistered", Effect::NoExecute, true),
        ("readiness.k8s.io/network", Effect::NoSchedule, true),
        ("readiness.k8s.io/network", Effect::NoExecute, true),
        ("readiness.k8s.io/network", Effect::PreferNoSchedule, true),
        ("example.com/other", lasting, false),
        ("example.com/readiness.k8s.io", lasting, false),
        ("node.kubernetes.io/unreachable", Effect::NoExecute, false),
    ] {
        let taint = Taint::new(key, "", effect);
        let mut world = starting(&[taint]);
        world.run(&[pod("a")]);
        assert_eq!(world.host_of("a") == Some("node-001"), is_waited_out, "{taint}");
    }
    let mut none = starting(&[]);
    none.run(&[pod("a")]);
    assert_eq!(none.host_of("a"), Some("node-001"));
}

#[test]
fn sch_178_a_node_that_lost_its_taints_takes_a_pod() {
    let mut world = World::of(pool("default").taint("gone.com/soon", "", Effect::NoSchedule));
    world.run(&[pod("first").tolerate("gone.com/soon", None, None)]);
    world.remove_pods(|_: &Pod| false);
    world.run(&[A { name: "refused".into(), ..pod("refused") }]);
    assert!(!world.is_bound("refused"), "the taint is there");
    world.edit_node("node-001", |node| node.taints.clear());
    world.put_pool(pool("default").require(ZONE, In, &["nowhere"]));
    world.run(&[]);
    assert_eq!(world.host_of("refused"), Some("node-001"));
}
