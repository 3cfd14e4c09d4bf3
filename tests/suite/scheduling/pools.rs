//! Several pools: labels, weights, static ones, and those without anything to buy.

use provisor::capacity::scheduling::Code;
use provisor::model::requirement::Operator::*;

use super::world::*;

fn weighted() -> World {
    World::new(vec![pool("none"), pool("light").weight(20), pool("heavy").weight(100)], assorted())
}

/// Rows: SCH-094, SCH-095
#[test]
fn a_pod_chooses_a_pool_by_name_or_label() {
    let mut world = World::new(vec![pool("a").label("foo", "bar"), pool("b")], assorted());
    world.run(&[pod("by-name").select(NODEPOOL, "a")]);
    world.run(&[pod("by-label").select("foo", "bar")]);
    assert_eq!(world.value_of("by-name", NODEPOOL), Some("a"));
    assert_eq!(world.value_of("by-label", NODEPOOL), Some("a"));
}

/// Rows: SCH-097, SCH-455
#[test]
fn the_heaviest_pool_is_asked_first() {
    let mut world = weighted();
    world.run(&many(3, &pod("a")));
    for pod in ["a-001", "a-002", "a-003"] {
        assert_eq!(world.value_of(pod, NODEPOOL), Some("heavy"));
    }
}

#[test]
fn sch_098_a_pod_may_ask_for_a_light_pool() {
    let mut world = weighted();
    world.run(&[pod("a").select(NODEPOOL, "none")]);
    assert_eq!(world.value_of("a", NODEPOOL), Some("none"));
}

/// Rows: SCH-099, SCH-100
#[test]
fn a_static_pool_takes_no_demand() {
    let mut fixed = pool("fixed");
    fixed.replicas = Some(2);
    let mut world = World::new(vec![fixed], assorted());
    let round = world.run(&[pod("a")]);
    assert_eq!(round.codes("a"), [Code::NoUsablePool]);
    world.drop_waiting();
    world.put_pool(pool("dynamic"));
    world.run(&[pod("b")]);
    assert_eq!(world.value_of("b", NODEPOOL), Some("dynamic"));
}

/// Rows: SCH-249, SCH-250
#[test]
fn a_pool_without_types_is_said_to_have_none() {
    for empty in [
        pool("default").require(INSTANCE_TYPE, In, &["none-such"]),
        pool("default").require(ARCH, In, &["none-such"]),
        pool("default").require(ZONE, In, &["none-such"]),
        pool("default").require(ARCH, In, &["amd64"]).require(ARCH, In, &["arm64"]),
    ] {
        let mut world = World::of(empty);
        let round = world.run(&many(3, &pod("a").cpu("1")));
        assert_eq!(round.codes("a-001"), [Code::PoolWithoutTypes]);
        assert!(round.message("a-003").contains("filter out every instance type"));
        world.drop_waiting();
        world.put_node("old", &[], &[("cpu", "10"), ("memory", "10Gi"), ("pods", "10")]);
        world.run(&[pod("b").cpu("1")]);
        assert_eq!(world.host_of("b"), Some("old"));
    }
}

/// Rows: API-049
#[test]
fn sch_456_of_equal_weights_the_later_name_is_first() {
    let mut world = World::new(vec![pool("a"), pool("b")], assorted());
    world.run(&[pod("x")]);
    assert_eq!(world.value_of("x", NODEPOOL), Some("b"));
    let mut world = World::new(vec![pool("a").weight(10), pool("b").weight(5)], assorted());
    world.run(&[pod("x")]);
    assert_eq!(world.value_of("x", NODEPOOL), Some("a"), "the heavier one before that");
}

#[test]
fn sch_909_a_pod_joins_an_open_node_of_a_light_pool() {
    let mut world = World::new(vec![pool("light"), pool("heavy").weight(10)], assorted());
    world.run(&[pod("first").cpu("1").select(NODEPOOL, "light"), pod("second")]);
    assert_eq!(world.host_of("first"), world.host_of("second"));
}

#[test]
fn sch_930_an_unready_pool_is_passed_over() {
    let mut unready = pool("unready").weight(50);
    unready.is_ready = false;
    let mut world = World::new(vec![unready, pool("ready")], assorted());
    world.run(&[pod("a")]);
    assert_eq!(world.value_of("a", NODEPOOL), Some("ready"));
}

#[test]
fn sch_938_a_label_against_the_pools_own_requirements_leaves_no_type() {
    let mut world = World::of(pool("default").require(ZONE, In, &[Z1]).label(ZONE, Z2));
    let round = world.run(&[pod("a")]);
    assert_eq!(round.codes("a"), [Code::PoolWithoutTypes]);
}

/// Rows: WEA-029
#[test]
fn existing_nodes_are_tried_without_any_pool() {
    let mut world = World::new(Vec::new(), assorted());
    world.put_node("old", &[], &[("cpu", "10"), ("memory", "10Gi"), ("pods", "10")]);
    let round = world.run(&[pod("fits").cpu("1"), pod("too-large").cpu("20")]);
    assert_eq!(world.host_of("fits"), Some("old"));
    assert_eq!(round.codes("too-large"), [Code::NoUsablePool]);
}
