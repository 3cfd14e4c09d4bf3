//! How much a pool may buy.

use provisor::capacity::scheduling::Code;
use provisor::model::requirement::Operator::*;
use provisor::model::taint::Effect;

use super::world::*;

#[test]
fn sch_042_usage_above_a_limit_stops_new_nodes() {
    let mut world = World::of(pool("default").limit("cpu", "20"));
    world.put_node("big", &[(NODEPOOL, "default")], &[("cpu", "100"), ("memory", "1Gi")]);
    let round = world.run(&[pod("a").cpu("1")]);
    assert_eq!(round.codes("a"), [Code::LimitReached]);
}

/// Rows: SCH-043, SCH-045
#[test]
fn a_limit_lets_small_types_through() {
    let mut world = World::of(pool("default").limit("cpu", "2"));
    world.run(&[pod("a").cpu("1.75")]);
    assert_eq!(world.value_of("a", INSTANCE_TYPE), Some("small-instance-type"));
    let mut world = World::of(pool("default").limit("cpu", "2"));
    let round = world.run(&[pod("a").cpu("2.1")]);
    assert_eq!(round.codes("a"), [Code::LimitReached]);
}

#[test]
fn sch_044_a_limit_holds_within_one_batch() {
    let mut world = World::of(pool("default").limit("cpu", "3"));
    let one = pod("a").cpu("1.5").label("app", "a").far(near(HOSTNAME, with_label("app", "a")));
    world.run(&many(2, &one));
    assert_eq!(world.waiting(), 1);
}

#[test]
fn sch_046_a_limit_on_pods_judges_what_a_type_can_hold() {
    let mut world = World::of(pool("default").limit("pods", "1"));
    world.run(&[pod("a").request("fake.com/vendor-a", "1")]);
    assert!(!world.is_bound("a"));
}

#[test]
fn sch_047_a_limit_used_up_in_one_round_holds_in_the_next() {
    let mut world = World::of(pool("default").limit("cpu", "2"));
    world.run(&[pod("a").cpu("1.75")]);
    world.run(&[pod("b").cpu("1.75")]);
    assert!(world.is_bound("a") && !world.is_bound("b"));
}

#[test]
fn sch_048_a_limit_on_nodes_counts_nodes() {
    let mut world = World::of(pool("default").limit("nodes", "2"));
    let one = pod("a").label("app", "a").far(near(HOSTNAME, with_label("app", "a")));
    for pod in many(3, &one) {
        world.run(&[pod]);
    }
    assert_eq!(world.waiting(), 1);
}

/// Rows: WEA-007
#[test]
fn a_limit_on_nodes_holds_within_one_round() {
    let mut world = World::of(pool("default").limit("nodes", "2"));
    let one = pod("a").label("app", "a").far(near(HOSTNAME, with_label("app", "a")));
    let round = world.run(&many(5, &one));
    assert_eq!(round.new_nodes().len(), 2);
    assert_eq!(world.waiting(), 3);
}

/// Rows: SCH-906
#[test]
fn using_all_of_a_limit_is_allowed() {
    let mut world =
        World::of(pool("default").limit("cpu", "4").require(INSTANCE_TYPE, In, &["default-instance-type"]));
    world.run(&[pod("a").cpu("3")]);
    assert!(world.is_bound("a"));
    let round = world.run(&[pod("b").cpu("3")]);
    assert!(round.purchase.dropped.is_empty());
    assert_eq!(round.codes("b"), [Code::LimitReached]);
}

#[test]
fn sch_907_an_overdrawn_limit_excludes_every_type() {
    let mut world = World::of(pool("default").limit("fake.com/vendor-a", "1"));
    world.put_node("gpus", &[(NODEPOOL, "default")], &[("fake.com/vendor-a", "2")]);
    let round = world.run(&[pod("a").cpu("1")]);
    assert_eq!(round.codes("a"), [Code::LimitReached]);
}

#[test]
fn sch_908_an_open_node_is_charged_as_its_largest_type() {
    let mut world = World::of(pool("default").limit("cpu", "20").require(ARCH, In, &["amd64", "arm64"]));
    let one = pod("a").label("app", "a").far(near(HOSTNAME, with_label("app", "a")));
    let round = world.run(&many(2, &one));
    let second = &round.purchase.claims[1].0;
    assert!(!types_of(second).contains(&"arm-instance-type"), "16 of 20 CPU are spoken for");
    assert!(types_of(&round.purchase.claims[0].0).contains(&"arm-instance-type"));
}

#[test]
fn another_pool_is_used_when_one_is_exhausted() {
    let mut world = World::new(
        vec![
            pool("small").weight(10).limit("cpu", "2"),
            pool("large").require(INSTANCE_TYPE, In, &["default-instance-type"]),
        ],
        assorted(),
    );
    world.run(&[pod("a").cpu("3")]);
    assert_eq!(world.value_of("a", NODEPOOL), Some("large"));
}

/// The heavier pool comes first and could buy one node anywhere, but only it may buy one in the third zone.
#[test]
fn what_a_limit_leaves_is_kept_for_pods_that_need_it() {
    let heavy = pool("heavy").weight(10).limit("nodes", "1").require(CAPACITY_TYPE, In, &["on-demand"]);
    let light = pool("light").require(CAPACITY_TYPE, In, &["spot"]);
    let mut world = World::new(vec![heavy, light], ladder(4));
    let one = pod("a")
        .cpu("100m")
        .label("app", "a")
        .or(&[(ZONE, NotIn, &["test-zone-3"])])
        .or(&[(CAPACITY_TYPE, In, &["on-demand"])])
        .spread(spread(ZONE, 1, with_label("app", "a")));
    world.run(&many(3, &one));
    assert_eq!(world.waiting(), 0);
}

/// Many large pods could be on the heavier pool and elsewhere, some small ones on that pool only, and it may have one node: more pods than are
/// placed again in several orders.
#[test]
fn what_a_limit_allows_goes_first_to_those_who_were_left_over_for_it() {
    let team = pool("team").weight(10).taint("team", "a", Effect::NoSchedule).label("team", "a");
    let mut world = World::new(vec![team.limit("nodes", "1"), pool("other")], ladder(8));
    let member = |name: &str| pod(name).tolerate("team", Some("a"), None);
    world.put_pods(&many(2_050, &member("any").cpu("970m")));
    world.put_pods(&many(5, &member("bound").cpu("100m").select("team", "a")));
    let left = world.plan().solution.unschedulable;
    assert!(left.is_empty(), "{left:?}");
}
