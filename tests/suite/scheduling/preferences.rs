//! Wishes: held as long as something meets them, then given up one by one.

use provisor::capacity::scheduling::PreferencePolicy;
use provisor::model::requirement::Operator::*;
use provisor::model::taint::Effect;

use super::world::*;

fn indifferent(mut world: World) -> World {
    world.settings.preferences = PreferencePolicy::Ignore;
    world
}

#[test]
fn sch_084_the_last_required_term_is_never_dropped() {
    let mut world = World::of(pool("default").require(ZONE, In, &[Z1]));
    world.run(&[pod("a").or(&[(ZONE, In, &["invalid"])])]);
    assert!(!world.is_bound("a"));
}

#[test]
fn sch_085_required_terms_are_tried_in_their_order() {
    let mut world = World::plain();
    let invalid: &[&str] = &["invalid"];
    world.run(&[pod("a")
        .or(&[(ZONE, In, invalid)])
        .or(&[(ZONE, In, invalid)])
        .or(&[(ZONE, In, &[Z1])])
        .or(&[(ZONE, In, &[Z2])])]);
    assert_eq!(world.value_of("a", ZONE), Some(Z1));
}

/// A term is dropped before any wish is; one that only a wish kept from being met is tried again without it.
#[test]
fn a_term_that_was_refused_for_a_wish_is_met_without_it() {
    let zone = |zone: &'static str| -> Vec<(&str, provisor::model::requirement::Operator, &[&str])> {
        match zone {
            Z1 => vec![(ZONE, In, &[Z1])],
            Z2 => vec![(ZONE, In, &[Z2])],
            _ => vec![(ZONE, In, &["invalid"])],
        }
    };
    let cases: [(&[&str], Option<&str>); 5] = [
        (&[Z1, "invalid"], Some(Z1)),
        (&["invalid", Z2, "invalid"], Some(Z2)),
        (&[Z1, Z2, "invalid"], Some(Z1)),
        // As before: the last term needs no second try.
        (&[Z1, Z2], Some(Z2)),
        (&["invalid", "invalid"], None),
    ];
    for (terms, expected) in cases {
        let one = terms.iter().fold(pod("a"), |pod, term| pod.or(&zone(term)));
        let mut wished = World::plain();
        wished.run(&[one.clone().prefer(1, INSTANCE_TYPE, In, &["invalid"])]);
        assert_eq!(wished.value_of("a", ZONE), expected, "{terms:?} and a wish");
        let mut soft = World::of(pool("default").taint("foo", "bar", Effect::PreferNoSchedule));
        soft.run(std::slice::from_ref(&one));
        assert_eq!(soft.value_of("a", ZONE), expected, "{terms:?} and a soft taint");
    }
}

/// Rows: SCH-086, SCH-087
#[test]
fn impossible_preferences_give_way_from_the_heaviest() {
    let mut world = World::plain();
    world.run(&[pod("a").prefer(1, ZONE, In, &["invalid"]).prefer(1, INSTANCE_TYPE, In, &["invalid"])]);
    assert!(world.is_bound("a"));
    let mut world = World::of(pool("default").require(ZONE, In, &[Z1, Z2]));
    world.run(&[pod("a").prefer(100, INSTANCE_TYPE, In, &[Z3]).prefer(50, ZONE, In, &[Z2]).prefer(
        1,
        ZONE,
        In,
        &[Z1],
    )]);
    assert_eq!(world.value_of("a", ZONE), Some(Z2));
}

/// Rows: SCH-088, SCH-096
#[test]
fn a_soft_taint_is_the_last_resort() {
    let soft = pool("default").taint("foo", "bar", Effect::PreferNoSchedule);
    let mut world = World::of(soft.clone());
    world.run(&[pod("a").prefer(1, ZONE, In, &["invalid"]).prefer(1, INSTANCE_TYPE, In, &["invalid"])]);
    assert!(world.is_bound("a"));
    let mut world = World::new(vec![soft, pool("a-plain")], assorted());
    world.run(&[pod("a")]);
    assert_eq!(world.value_of("a", NODEPOOL), Some("a-plain"));
}

#[test]
fn sch_089_a_relaxed_pod_joins_an_open_node() {
    let mut world = World::plain();
    world.run(&[pod("a").cpu("2"), pod("b").cpu("1").prefer(1, ZONE, In, &["invalid"])]);
    assert_eq!(world.host_of("a"), world.host_of("b"));
}

/// Rows: SCH-090, SCH-093
#[test]
fn ignored_preferences_move_nothing() {
    let mut world = indifferent(World::plain());
    let far = pod("far").cpu("3").label("app", "far").select(ZONE, Z2);
    let mut wishing = pod("wish").cpu("1").prefer(1, ZONE, In, &[Z2]);
    wishing.shape.affinity_preferred.push((1, near(ZONE, with_label("app", "far"))));
    wishing.shape.affinity_preferred.push((1, near(HOSTNAME, with_label("app", "far"))));
    world.run(&[pod("here").cpu("2").select(ZONE, Z1), wishing]);
    world.run(&many(2, &far));
    assert_eq!(world.host_of("wish"), world.host_of("here"));
}

/// Rows: SCH-091, SCH-092
#[test]
fn ignored_spreads_and_aversions_separate_nothing() {
    for key in [ZONE, HOSTNAME] {
        let mut soft = spread(key, 1, with_label("app", "a"));
        soft.is_required = false;
        let spreading = pod("a").label("app", "a").spread(soft);
        let mut averse = pod("b").label("app", "b");
        averse.shape.anti_affinity_preferred.push((1, near(key, with_label("app", "b"))));
        for one in [spreading, averse] {
            let mut world = indifferent(World::plain());
            assert_eq!(world.run(&many(5, &one)).new_nodes().len(), 1, "{key}");
        }
    }
}

#[test]
fn sch_912_a_pod_keeps_its_wishes_for_a_later_try() {
    let mut world = World::of(pool("default").require(ZONE, In, &[Z1, Z2]));
    // The first pod must be near the second, which comes later in the queue because it is smaller.
    let first =
        pod("first").cpu("1").near(near(ZONE, with_label("app", "target"))).prefer(1, ZONE, In, &[Z2]);
    let second = pod("second").label("app", "target").select(ZONE, Z2);
    world.run(&[first, second]);
    assert_eq!(world.value_of("first", ZONE), Some(Z2));
}

#[test]
fn sch_913_or_terms_go_before_wishes() {
    let mut world = World::plain();
    let one = pod("a").or(&[(ZONE, In, &["invalid"])]).or(&[(ZONE, In, &[Z1, Z2])]).prefer(
        1,
        CAPACITY_TYPE,
        In,
        &["on-demand"],
    );
    world.run(&[one]);
    assert_eq!(world.value_of("a", CAPACITY_TYPE), Some("on-demand"), "the wish outlives the first term");
}

#[test]
fn sch_914_equal_weights_keep_their_order() {
    let mut world = World::plain();
    world.run(&[pod("a").prefer(5, ZONE, In, &[Z1]).prefer(5, ZONE, In, &[Z2])]);
    assert_eq!(world.value_of("a", ZONE), Some(Z1));
    world.run(&[pod("b").prefer(5, ZONE, In, &["invalid"]).prefer(5, ZONE, In, &[Z3]).prefer(
        5,
        ZONE,
        In,
        &[Z2],
    )]);
    assert_eq!(world.value_of("b", ZONE), Some(Z3));
}

#[test]
fn sch_915_a_soft_taint_of_a_node_alone_is_never_softened() {
    let mut world = World::plain();
    world.put_node("soft", &[], &[("cpu", "10"), ("memory", "10Gi"), ("pods", "10")]);
    world.edit_node("soft", |node| {
        node.taints.push(provisor::model::taint::Taint::new("foo", "", Effect::PreferNoSchedule));
    });
    world.run(&[pod("a")]);
    assert_ne!(world.host_of("a"), Some("soft"));
}

#[test]
fn sch_925_under_ignore_a_soft_tainted_pool_is_still_used() {
    let mut world = indifferent(World::of(pool("default").taint("foo", "", Effect::PreferNoSchedule)));
    world.run(&[pod("a").prefer(1, ZONE, In, &["invalid"])]);
    assert!(world.is_bound("a"));
}
