//! Capacity that is reserved: held for one node at a time.

use std::collections::{BTreeMap, BTreeSet};

use provisor::capacity::scheduling::{self, Code, Mode, Request};
use provisor::model::money::UsdPerHour;
use provisor::model::name::Zone;
use provisor::model::offering::{CapacityType, InstanceType, Offering, Reservation};
use provisor::model::pool::NodePool;
use provisor::model::requirement::Operator::*;

use super::world::*;

const RESERVATION: &str = "karpenter.k8s.aws/capacity-reservation-id";

fn reserve(kind: &mut InstanceType, id: &str, remaining: u32) {
    kind.offerings.push(Offering {
        zone: Zone::new(Z1),
        capacity_type: CapacityType::Reserved,
        price: UsdPerHour(1),
        is_available: true,
        reservation: Some(Reservation { id: id.into(), remaining }),
    });
    let kinds = requirement(In, &["reserved", "spot", "on-demand"]);
    label(kind, CAPACITY_TYPE, kinds);
}

/// Large without a reservation, medium and small with one machine each.
fn types() -> Vec<InstanceType> {
    let kind = |name: &str, size: &str, price| {
        let memory = format!("{size}Gi");
        machine(name, &[("cpu", size), ("memory", &memory), ("pods", "10")], &everywhere(price))
    };
    let mut types = vec![kind("large", "6", 6.0), kind("medium", "3", 3.0), kind("small", "2", 2.0)];
    reserve(&mut types[1], "r-medium", 1);
    reserve(&mut types[2], "r-small", 1);
    types
}

fn open_pool(name: &str) -> NodePool {
    pool(name).require(CAPACITY_TYPE, In, &["spot", "on-demand", "reserved"])
}

fn alone() -> A {
    pod("a").label("app", "a").far(near(HOSTNAME, with_label("app", "a"))).select(INSTANCE_TYPE, "small")
}

#[test]
fn sch_237_reserved_machines_are_used_one_round_at_a_time() {
    let mut world = World::new(vec![open_pool("default")], types());
    let one = pod("a").cpu("1800m").label("app", "a").far(near(HOSTNAME, with_label("app", "a")));
    let first = world.run(&many(3, &one));
    assert_eq!(first.new_nodes().len(), 1);
    assert_eq!(world.waiting(), 2);
    assert!(first.solution.unschedulable.iter().all(|left| left.is_deferred));
    assert_eq!(first.codes("a-002"), [Code::ReservedCapacityWaits]);
    world.run(&[]);
    world.run(&[]);
    let bought: Vec<_> = ["a-001", "a-002", "a-003"]
        .map(|pod| {
            (
                world.value_of(pod, INSTANCE_TYPE).unwrap(),
                world.value_of(pod, CAPACITY_TYPE).unwrap() == "reserved",
            )
        })
        .into();
    assert_eq!(bought.iter().filter(|(_, is_reserved)| *is_reserved).count(), 2);
    assert_eq!(bought[2], ("small", false));
}

/// Rows: SCH-238, SCH-239
#[test]
fn pools_share_a_reservation_by_its_id() {
    let mut world = World::new(vec![open_pool("np-1"), open_pool("np-2")], types());
    let of = |name: &str, pool: &str| A { name: name.into(), ..alone().select(NODEPOOL, pool) };
    let round = world.run(&[of("x", "np-1"), of("y", "np-2")]);
    assert_eq!(round.new_nodes().len(), 1);
    world.run(&[]);
    let kinds = [world.value_of("x", CAPACITY_TYPE), world.value_of("y", CAPACITY_TYPE)];
    assert_eq!(kinds.iter().filter(|kind| **kind == Some("reserved")).count(), 1);
    assert!(kinds.iter().all(Option::is_some));
}

#[test]
fn sch_240_each_machine_of_a_reservation_is_used() {
    let mut types = types();
    reserve(&mut types[2], "r-small-2", 2);
    let mut world = World::new(vec![open_pool("default")], types);
    let mut placed = Vec::new();
    world.put_pods(&many(4, &alone()));
    for _ in 0..4 {
        let before = world.waiting();
        world.run(&[]);
        placed.push(before - world.waiting());
    }
    assert_eq!(placed.iter().sum::<usize>(), 4);
    let reserved =
        (1..=4).filter(|at| world.value_of(&format!("a-{at:03}"), CAPACITY_TYPE) == Some("reserved")).count();
    assert_eq!(reserved, 3);
}

/// Two types draw on one reservation, and say differently how much of it is left.
#[test]
fn sch_247_of_two_counts_of_one_reservation_the_smaller_holds() {
    let mut types = types();
    for kind in &mut types[1..] {
        kind.offerings.retain(|offering| offering.reservation.is_none());
    }
    reserve(&mut types[1], "r", 3);
    reserve(&mut types[2], "r", 2);
    let mut world = World::new(vec![open_pool("default")], types);
    world.put_pods(&many(4, &pod("a").label("app", "a").far(near(HOSTNAME, with_label("app", "a")))));
    let round = world.plan();
    let reserved = |node: &&scheduling::NewNode| node.launch().capacity_type == CapacityType::Reserved;
    assert_eq!(round.new_nodes().iter().filter(reserved).count(), 2);
}

#[test]
fn sch_241_a_heavier_pool_is_waited_for() {
    let pools = vec![open_pool("primary").weight(100), open_pool("fallback").weight(50)];
    let mut world = World::new(pools, types());
    world.run(&many(2, &alone()));
    assert_eq!(world.waiting(), 1);
    world.run(&[]);
    assert_eq!(world.value_of("a-001", NODEPOOL), Some("primary"));
    assert_eq!(world.value_of("a-002", NODEPOOL), Some("primary"));
}

#[test]
fn sch_242_waiting_gives_up_no_wish() {
    let pools = vec![open_pool("np-1"), open_pool("np-2")];
    let mut world = World::new(pools, types());
    world.run(&many(2, &alone().prefer(1, NODEPOOL, In, &["np-1"])));
    world.run(&[]);
    for pod in ["a-001", "a-002"] {
        assert_eq!(world.value_of(pod, NODEPOOL), Some("np-1"));
    }
}

#[test]
fn sch_243_pods_share_a_reserved_node() {
    let mut world = World::new(vec![open_pool("default")], types());
    let one = pod("a")
        .label("app", "a")
        .or(&[(CAPACITY_TYPE, In, &["reserved"]), (ZONE, In, &[Z1]), (INSTANCE_TYPE, In, &["small"])])
        .near(near(ZONE, with_label("app", "a")));
    let round = world.run(&many(2, &one));
    assert_eq!(round.new_nodes().len(), 1);
    assert_eq!(values_of(round.claim(), RESERVATION), ["r-small"]);
    assert_eq!(values_of(round.claim(), CAPACITY_TYPE), ["reserved"]);
}

#[test]
fn sch_244_without_the_gate_nothing_is_held() {
    let mut world = World::new(vec![open_pool("default")], types());
    world.settings.reserved_capacity = false;
    let round = world.run(&many(2, &alone()));
    assert_eq!(round.new_nodes().len(), 2);
    assert!(round.purchase.claims.iter().all(|(claim, _)| values_of(claim, RESERVATION).is_empty()));
}

#[test]
fn a_question_falls_back_to_what_is_not_reserved() {
    let mut world = World::new(vec![open_pool("default")], types());
    world.put_pods(&many(2, &alone()));
    let pods: Vec<_> = world.cluster.pods.values().cloned().collect();
    let (supply, nobody) = (world.supply(), BTreeSet::new());
    let solution = scheduling::solve(&Request {
        cluster: &world.cluster,
        supply: &supply,
        now: now(),
        pods: &pods,
        departing: &[],
        without_nodes: &nobody,
        without_claims: &BTreeSet::new(),
        shut_claims: &BTreeSet::new(),
        planned: &BTreeMap::new(),
        used_at_least: &BTreeMap::new(),
        settings: &world.settings,
        mode: Mode::Simulation { settling: &nobody },
    });
    assert_eq!(solution.new_nodes.len(), 2);
    let kinds: Vec<_> = solution.new_nodes.iter().map(|node| node.launch().capacity_type).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == CapacityType::Reserved).count(), 1);
}

#[test]
fn sch_901_a_lighter_pool_is_not_asked_while_a_heavier_one_waits() {
    let mut other = types();
    other.truncate(3);
    let pools = vec![open_pool("heavy").weight(10), pool("light").require(CAPACITY_TYPE, In, &["on-demand"])];
    let mut world = World::new(pools, other);
    let round = world.run(&many(2, &alone()));
    assert_eq!(round.new_nodes().len(), 1);
    assert_eq!(world.value_of("a-001", NODEPOOL), Some("heavy"));
    assert!(!world.is_bound("a-002"));
}
