//! In which zone pods that wait can come to run, as it is counted for monitoring.

use std::collections::BTreeMap;
use std::sync::Arc;

use provisor::capacity::decision::{Decision, Plan};
use provisor::capacity::scheduling::{EffectiveZone, effective_zones};
use provisor::model::name::{ObjectKey, Zone};
use provisor::model::requirement::Operator::In;
use provisor::model::requirement::Requirements;
use provisor::model::symbol::Symbol;
use provisor::model::workload::{PersistentVolumeClaim, StorageClass};
use provisor::ui::metrics::Metrics;

use super::world::*;
use EffectiveZone::{Flexible, Nowhere};

fn only(zone: &str) -> EffectiveZone {
    EffectiveZone::In(Zone::new(zone))
}

/// What is counted for these pods, beside what the world has.
fn zones(world: &mut World, pods: &[A]) -> BTreeMap<EffectiveZone, usize> {
    world.drop_waiting();
    world.put_pods(pods);
    world.asking(effective_zones)
}

fn counted(pairs: &[(EffectiveZone, usize)]) -> BTreeMap<EffectiveZone, usize> {
    pairs.iter().copied().collect()
}

/// A world in which each of these zones has so many pods with the label `app=x`.
fn with_targets(counts: &[(&str, usize)]) -> World {
    let mut world = World::plain();
    for (zone, count) in counts {
        let node = format!("in-{zone}");
        world.put_node(&node, &[(ZONE, zone)], &[("cpu", "64"), ("memory", "64Gi"), ("pods", "64")]);
        let one = A { name: format!("target-{zone}"), ..pod("target").label("app", "x").on(&node) };
        world.put_pods(&many(*count, &one));
    }
    world
}

/// Rows: SCH-229, SCH-230, SCH-231
#[test]
fn what_a_pod_selects_is_its_zone_and_what_it_wishes_is_not() {
    let mut world = World::plain();
    assert_eq!(zones(&mut world, &many(2, &pod("free"))), counted(&[(Flexible, 2)]));
    assert_eq!(zones(&mut world, &many(3, &pod("a").select(ZONE, Z2))), counted(&[(only(Z2), 3)]));
    let both = [pod("one").select(ZONE, Z1), pod("two").or(&[(ZONE, In, &[Z2])])];
    assert_eq!(zones(&mut world, &both), counted(&[(only(Z1), 1), (only(Z2), 1)]));
    let wishing = pod("wishing").prefer(1, ZONE, In, &[Z1]);
    assert_eq!(zones(&mut world, &[wishing]), counted(&[(Flexible, 1)]));
    let either = pod("either").or(&[(ZONE, In, &[Z1, Z2])]);
    assert_eq!(zones(&mut world, &[either]), counted(&[(Flexible, 1)]));
}

#[test]
fn sch_228_the_zones_of_a_volume_are_those_of_its_pod() {
    for (allowed, selected, expected) in [
        (&[Z1, Z2][..], None, Flexible),
        (&[Z1][..], None, only(Z1)),
        (&[Z2][..], Some(Z1), Nowhere),
        (&[Z1, Z2][..], Some(Z1), only(Z1)),
    ] {
        let mut world = World::plain();
        let place: Requirements = [(Symbol::new(ZONE), requirement(In, allowed))].into_iter().collect();
        let class = StorageClass {
            name: "zonal".into(),
            provisioner: "csi".into(),
            binds_immediately: false,
            topologies: vec![place],
            is_default: false,
            created: None,
        };
        let claim = PersistentVolumeClaim {
            key: ObjectKey::new("default", "data"),
            volume: None,
            storage_class: Some(class.name),
            is_lost: false,
            is_deleting: false,
            is_bind_completed: false,
        };
        world.cluster.storage_classes.insert(class.name, Arc::new(class));
        world.cluster.volume_claims.insert(claim.key, Arc::new(claim));
        let one = pod("a").claim("data");
        let one = match selected {
            Some(zone) => one.select(ZONE, zone),
            None => one,
        };
        assert_eq!(zones(&mut world, &[one]), counted(&[(expected, 1)]), "{allowed:?} {selected:?}");
    }
}

/// Rows: SCH-232, SCH-233, SCH-236
#[test]
fn other_pods_may_leave_one_zone_or_none() {
    let follower = pod("follower").near(near(ZONE, with_label("app", "x")));
    let loner = pod("loner").far(near(ZONE, with_label("app", "x")));
    let mut one = with_targets(&[(Z1, 1)]);
    assert_eq!(zones(&mut one, std::slice::from_ref(&follower)), counted(&[(only(Z1), 1)]));
    let mut two = with_targets(&[(Z1, 1), (Z2, 1)]);
    assert_eq!(zones(&mut two, std::slice::from_ref(&loner)), counted(&[(only(Z3), 1)]));
    assert_eq!(zones(&mut two, std::slice::from_ref(&follower)), counted(&[(Flexible, 1)]));
    let mut none = World::plain();
    assert_eq!(zones(&mut none, &[follower]), counted(&[(Nowhere, 1)]));
    let mut all = with_targets(&[(Z1, 1), (Z2, 1), (Z3, 1)]);
    assert_eq!(zones(&mut all, &[loner]), counted(&[(Nowhere, 1)]));
}

/// Rows: SCH-234, SCH-235
#[test]
fn a_spread_leaves_the_zones_that_may_grow() {
    let spreading = pod("a").label("app", "x").spread(spread(ZONE, 1, with_label("app", "x")));
    let mut uneven = with_targets(&[(Z1, 1), (Z2, 1)]);
    assert_eq!(zones(&mut uneven, std::slice::from_ref(&spreading)), counted(&[(only(Z3), 1)]));
    let mut even = with_targets(&[(Z1, 2), (Z2, 2), (Z3, 2)]);
    assert_eq!(zones(&mut even, std::slice::from_ref(&spreading)), counted(&[(Flexible, 1)]));
    let mut too_few = spreading;
    too_few.shape.spreads[0].min_domains = Some(4);
    assert_eq!(zones(&mut even, &[too_few]), counted(&[(Nowhere, 1)]));
}

#[test]
fn what_is_counted_is_shown_until_the_next_round() {
    let metrics = Metrics::new();
    let show = |zones: &[(EffectiveZone, usize)]| {
        let plan = Plan { pending_zones: counted(zones), ..Plan::default() };
        metrics.decided(now(), &Decision { plan: Arc::new(plan), ..Decision::default() });
        let name =
            "karpenter_scheduler_pending_pods_by_effective_zone_count{controller=\"provisioner\",zone=";
        let text = metrics.text(now());
        let lines = text.lines().filter_map(|line| line.strip_prefix(name).map(str::to_owned));
        let mut lines: Vec<String> = lines.collect();
        lines.sort();
        lines
    };
    assert_eq!(
        show(&[(only(Z1), 3), (Flexible, 2), (Nowhere, 1)]),
        ["\"flexible\"} 2", "\"none\"} 1", "\"test-zone-1\"} 3"]
    );
    assert_eq!(show(&[(Flexible, 5)]), ["\"flexible\"} 5"]);
}
