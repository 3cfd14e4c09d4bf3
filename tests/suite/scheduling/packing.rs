//! Which types a node is bought as: what fits, together and by price.

use provisor::capacity::scheduling::Code;
use provisor::model::name::Zone;
use provisor::model::offering::{CapacityType, InstanceType};
use provisor::model::requirement::Operator::*;

use super::world::*;

/// The type launched for one pod.
fn launched(types: Vec<InstanceType>, one: A) -> Option<&'static str> {
    let mut world = World::new(vec![pool("default")], types);
    let name = one.name.clone();
    world.run(&[one]);
    world.value_of(&name, INSTANCE_TYPE)
}

/// Rows: SCH-145, SCH-166
#[test]
fn what_no_type_holds_waits_and_says_so() {
    for one in [pod("a").cpu("512"), pod("a").memory("2Ti")] {
        let mut world = World::plain();
        let round = world.run(&[one]);
        assert_eq!(round.codes("a"), [Code::ResourcesExceedEveryType]);
        assert!(round.message("a").contains("no instance type is large enough"));
    }
}

/// Rows: SCH-146, SCH-150, SCH-151, SCH-152
#[test]
fn pods_of_different_kinds_get_nodes_of_their_own() {
    let both = || World::of(pool("default").require(ARCH, In, &["arm64", "amd64"]));
    let pairs = [
        ((ARCH, "amd64"), (ARCH, "arm64")),
        ((OS, "linux"), (OS, "windows")),
        (
            ("beta.kubernetes.io/instance-type", "small-instance-type"),
            (INSTANCE_TYPE, "default-instance-type"),
        ),
        ((ZONE, Z1), (ZONE, Z2)),
    ];
    for (one, other) in pairs {
        let mut world = both();
        world.run(&[pod("a").select(one.0, one.1), pod("b").select(other.0, other.1)]);
        assert!(world.is_bound("a") && world.is_bound("b"), "{one:?} {other:?}");
        assert_ne!(world.host_of("a"), world.host_of("b"), "{one:?} {other:?}");
    }
}

/// Rows: SCH-147, SCH-148, SCH-149
#[test]
fn what_only_another_architecture_has_is_out_of_reach() {
    let amd64 = || World::of(pool("default").require(ARCH, In, &["amd64"]));
    for one in [
        pod("a").or(&[(INSTANCE_TYPE, In, &["arm-instance-type"])]),
        pod("a").or(&[(OS, In, &["ios"])]),
        pod("a").cpu("14"),
    ] {
        let mut world = amd64();
        world.run(&[one]);
        assert!(!world.is_bound("a"));
    }
}

/// Rows: SCH-153, SCH-154
#[test]
fn extended_resources_choose_the_type() {
    let types = || {
        let mut types = ladder(5);
        for (at, name) in [(0, "x.com/x"), (1, "x.com/y")] {
            types[at].capacity.add(&amounts(&[(name, "25")]));
            types[at].allocatable.add(&amounts(&[(name, "25")]));
        }
        types
    };
    let mut world = World::new(vec![pool("default")], types());
    let round = world.run(&[pod("x").request("x.com/x", "1"), pod("y").request("x.com/y", "1")]);
    assert_eq!(round.new_nodes().len(), 2);
    assert_eq!(launched(types(), pod("a").request("x.com/x", "1").request("x.com/y", "1")), None);
}

/// Rows: SCH-155, SCH-156, SCH-157, SCH-158
#[test]
fn labels_of_types_choose_the_type() {
    assert_eq!(launched(ladder(5), pod("a").select(SIZE, "large")), Some("fake-it-4"));
    assert_eq!(launched(ladder(5), pod("a").select(SIZE, "small")), Some("fake-it-0"));
    assert_eq!(launched(ladder(5), pod("a").select(SIZE, "large").select(INSTANCE_TYPE, "fake-it-0")), None);
    assert_eq!(launched(ladder(5), pod("a").select(SIZE, "small").select(INSTANCE_TYPE, "fake-it-4")), None);
    assert_eq!(launched(ladder(5), pod("a").or(&[(SPECIAL, Exists, &[])])), Some("fake-it-4"));
    let without = launched(ladder(5), pod("a").or(&[(SPECIAL, DoesNotExist, &[])]));
    assert!(without.is_some_and(|name| name != "fake-it-4"));
}

/// Rows: SCH-159, SCH-160, SCH-161
#[test]
fn the_smallest_type_that_fits_is_bought() {
    for memory in ["100M", "2000M"] {
        assert_eq!(launched(assorted(), pod("a").memory(memory)), Some("small-instance-type"));
    }
    // Overhead of a RuntimeClass is part of the pod's request: 1 CPU and 2 more.
    assert_eq!(launched(assorted(), pod("a").cpu("1").cpu("2")), Some("default-instance-type"));
    let mut world = World::plain();
    world.run(&many(5, &pod("a").memory("10M")));
    assert_eq!(world.cluster.nodes.len(), 1);
    assert_eq!(world.value_of("a-001", INSTANCE_TYPE), Some("small-instance-type"));
}

/// Rows: SCH-162, SCH-163, SCH-167
#[test]
fn pods_are_packed_large_ones_first() {
    let amd64 = || World::of(pool("default").require(ARCH, In, &["amd64"]));
    let large = many(40, &pod("large").memory("1.8G"));
    let mut world = amd64();
    world.run(&large);
    assert_eq!(world.cluster.nodes.len(), 20);
    let mut world = amd64();
    world.run(&large.iter().cloned().chain(many(20, &pod("small").memory("400M"))).collect::<Vec<_>>());
    assert_eq!(world.cluster.nodes.len(), 20);
    assert!(
        world.cluster.nodes.values().all(|node| node.labels[&INSTANCE_TYPE.into()].starts_with("default"))
    );
    let mut world = amd64();
    world.run(&many(25, &pod("tiny")));
    assert_eq!(world.cluster.nodes.len(), 5);
    assert!(world.cluster.nodes.values().all(|node| node.labels[&INSTANCE_TYPE.into()].starts_with("small")));
}

#[test]
fn sch_164_a_large_and_a_small_pod_take_two_types() {
    let mut world = World::new(vec![pool("default")], ladder(5));
    world.run(&[pod("large").cpu("4.5"), pod("small").cpu("1")]);
    assert_ne!(world.value_of("large", INSTANCE_TYPE), world.value_of("small", INSTANCE_TYPE));
}

#[test]
fn sch_165_nothing_of_an_unknown_resource_is_no_demand() {
    assert!(launched(assorted(), pod("a").request("unknown.com/thing", "0")).is_some());
}

/// Rows: SCH-170, SCH-357
#[test]
fn price_decides_among_what_fits() {
    let everywhere_at = |name, size: (&str, &str), price| {
        machine(name, &[("cpu", size.0), ("memory", size.1), ("pods", "5")], &everywhere(price))
    };
    let types = vec![
        everywhere_at("medium", ("2", "2Gi"), 3.0),
        everywhere_at("small", ("1", "1Gi"), 2.0),
        everywhere_at("large", ("4", "4Gi"), 1.0),
    ];
    let mut world = World::new(vec![pool("default")], types);
    let round = world.run(&[pod("a")]);
    assert_eq!(world.value_of("a", INSTANCE_TYPE), Some("large"));
    assert_eq!(types_of(round.claim()), ["large", "medium", "small"]);
    let size: &[(&str, &str)] = &[("cpu", "2"), ("memory", "2Gi"), ("pods", "5")];
    let types = vec![
        machine("one", size, &[(Z1, CapacityType::OnDemand, 1.0), (Z1, CapacityType::Spot, 0.2)]),
        machine("two", size, &[(Z1, CapacityType::OnDemand, 1.3), (Z1, CapacityType::Spot, 0.1)]),
    ];
    let mut world = World::new(vec![pool("default").require(CAPACITY_TYPE, In, &["on-demand"])], types);
    world.run(&[pod("a")]);
    assert_eq!(world.value_of("a", INSTANCE_TYPE), Some("one"), "only what may be bought has a price");
}

/// Every combination of size, zone, capacity type, system and architecture, one offering each.
pub(super) fn grid() -> Vec<InstanceType> {
    let mut types = Vec::new();
    for cpu in [1, 4, 16] {
        for gib in [1, 8, 64] {
            for zone in [Z1, Z2, Z3] {
                for kind in [CapacityType::Spot, CapacityType::OnDemand] {
                    for os in ["linux", "windows"] {
                        for arch in ["amd64", "arm64"] {
                            let name = format!("{cpu}-{gib}-{zone}-{kind}-{os}-{arch}");
                            let (cpus, memory) = (cpu.to_string(), format!("{gib}Gi"));
                            let price = 0.1 * f64::from(cpu) + 0.01 * f64::from(gib);
                            let size = [("cpu", &*cpus), ("memory", &*memory), ("pods", "100")];
                            let mut one = machine(&name, &size, &[(zone, kind, price)]);
                            label(&mut one, OS, requirement(In, &[os]));
                            label(&mut one, ARCH, requirement(In, &[arch]));
                            types.push(one);
                        }
                    }
                }
            }
        }
    }
    types
}

/// Rows: SCH-350, SCH-351, SCH-352, SCH-353
#[test]
fn every_listed_type_meets_every_constraint_and_the_cheapest_is_launched() {
    let words: &[(&str, &str)] = &[
        (ARCH, "amd64"),
        (ARCH, "arm64"),
        (OS, "windows"),
        (OS, "linux"),
        (ZONE, Z2),
        (CAPACITY_TYPE, "spot"),
    ];
    type Words = Vec<(&'static str, &'static str)>;
    let mut cases: Vec<(Words, Words)> = vec![(vec![], vec![])];
    for word in words {
        cases.push((vec![*word], vec![]));
        cases.push((vec![], vec![*word]));
    }
    cases.push((vec![(CAPACITY_TYPE, "on-demand"), (ZONE, Z1)], vec![]));
    cases.push((vec![], vec![(CAPACITY_TYPE, "spot"), (ZONE, Z1)]));
    cases.push((vec![(CAPACITY_TYPE, "spot")], vec![(ZONE, Z2)]));
    cases.push((vec![(ARCH, "arm64"), (OS, "windows"), (CAPACITY_TYPE, "on-demand"), (ZONE, Z1)], vec![]));
    cases.push((vec![(ARCH, "amd64"), (OS, "linux")], vec![(CAPACITY_TYPE, "spot"), (ZONE, Z2)]));
    for (of_pool, of_pod) in cases {
        let mut asked = pool("default");
        for (key, value) in &of_pool {
            asked = asked.require(key, In, &[value]);
        }
        let mut one = pod("a").cpu("0.5").memory("0.5Gi");
        for (key, value) in &of_pod {
            one = one.select(key, value);
        }
        let mut world = World::new(vec![asked], grid());
        let round = world.run(&[one]);
        assert!(world.value_of("a", INSTANCE_TYPE).is_some_and(|name| name.starts_with("1-1-")));
        for name in types_of(round.claim()) {
            for (_, value) in of_pool.iter().chain(&of_pod) {
                assert!(name.contains(value), "{name} is listed although {value} is asked for");
            }
        }
    }
}

/// Rows: SCH-354, SCH-355
#[test]
fn what_is_not_sold_is_not_bought() {
    let without =
        |gone: fn(&InstanceType) -> bool| grid().into_iter().filter(|kind| !gone(kind)).collect::<Vec<_>>();
    let mut world = World::new(vec![pool("default")], without(|kind| kind.name.as_str().contains("arm64")));
    let round = world.run(&[pod("a").select(ARCH, "arm64")]);
    assert_eq!(round.codes("a"), [Code::NoTypeMatchesRequirements]);
    let in_zone = |kind: &InstanceType| {
        kind.name.as_str().contains("arm64") && kind.offerings.iter().any(|one| one.zone == Zone::new(Z2))
    };
    for (asked, one) in [
        (pool("default"), pod("a").select(ARCH, "arm64").select(ZONE, Z2)),
        (pool("default").require(ARCH, In, &["arm64"]), pod("a").select(ZONE, Z2)),
    ] {
        let mut world = World::new(vec![asked], without(in_zone));
        let round = world.run(&[one]);
        assert!(round.new_nodes().is_empty() && !world.is_bound("a"));
    }
}

#[test]
fn sch_356_every_listed_type_holds_all_pods() {
    for cpu in ["0.1", "1", "2", "2.5", "4", "5"] {
        for memory in ["0.1Gi", "1Gi", "4Gi", "16Gi", "20Gi"] {
            let mut world = World::new(vec![pool("default")], grid());
            let round = world.run(&many(3, &pod("a").cpu(cpu).memory(memory)));
            assert!(!round.new_nodes().is_empty());
            for (claim, _) in &round.purchase.claims {
                for kind in world.types.iter().filter(|kind| types_of(claim).contains(&kind.name.as_str())) {
                    assert!(
                        claim.spec.requests.fits(&kind.allocatable),
                        "{} holds {}",
                        kind.name,
                        claim.spec.requests
                    );
                }
            }
        }
    }
}

#[test]
fn an_offering_that_is_sold_out_is_no_way_to_buy() {
    let mut types = ladder(1);
    for offering in &mut types[0].offerings {
        offering.is_available = offering.zone == Zone::new(Z2);
    }
    let mut world = World::new(vec![pool("default")], types.clone());
    let round = world.run(&[pod("a")]);
    assert!(round.new_nodes()[0].zones().iter().all(|zone| zone.as_str() == Z2));
    let mut world = World::new(vec![pool("default")], types);
    let round = world.run(&[pod("b").select(ZONE, Z1)]);
    assert_eq!(round.codes("b"), [Code::NoOfferingAvailable]);
}

/// Rows: SCH-910
#[test]
fn the_emptiest_open_node_is_filled_first() {
    let mut world = World::new(vec![pool("default").require(ZONE, In, &[Z1, Z2])], ladder(8));
    let mut pods = many(3, &pod("one").cpu("1").select(ZONE, Z1));
    // It makes neither of the two nodes dearer.
    pods.push(pod("two").cpu("1.5").select(ZONE, Z2));
    pods.push(pod("free").cpu("0.3"));
    world.run(&pods);
    assert_eq!(world.host_of("free"), world.host_of("two"));
}

#[test]
fn sch_916_a_claim_lists_the_six_hundred_cheapest_types() {
    let types = (0..700)
        .map(|at| {
            machine(&format!("t-{at:03}"), &[("cpu", "2"), ("pods", "5")], &everywhere(f64::from(at) + 1.0))
        })
        .collect();
    let mut world = World::new(vec![pool("default")], types);
    let round = world.run(&[pod("a")]);
    let listed = types_of(round.claim());
    assert_eq!(listed.len(), 600);
    assert!(listed.contains(&"t-000") && listed.contains(&"t-599") && !listed.contains(&"t-600"));
    assert!(listed.is_sorted());
}

/// Rows: SCH-933, SCH-934
#[test]
fn a_refusal_prints_what_was_asked_for() {
    let round = World::plain().run(&[pod("a").cpu("1000000")]);
    assert!(round.message("a").contains("did you write M"), "{}", round.message("a"));
    let mut world = World::plain();
    world.put_daemon("small", &pod("d").cpu("1").or(&[(SIZE, In, &["small"])]));
    world.put_daemon("large", &pod("d").cpu("2").or(&[(SIZE, In, &["large"])]));
    let message = world.run(&[pod("a").cpu("512")]).message("a");
    assert!(message.contains("513") && message.contains("514"), "{message}");
}

#[test]
fn sch_935_of_equal_pods_the_older_is_first() {
    let mut world = World::of(pool("default").limit("nodes", "1"));
    let one = pod("a").label("app", "a").far(near(HOSTNAME, with_label("app", "a")));
    world.put_pods(&many(2, &one));
    let mut older = (*world.cluster.pods.values().last().unwrap().clone()).clone();
    older.created = Some("2026-03-01T00:00:00Z".parse().unwrap());
    world.cluster.put_pod(std::sync::Arc::new(older));
    world.run(&[]);
    assert!(world.is_bound("a-002") && !world.is_bound("a-001"));
}

/// Rows: WEA-018
#[test]
fn pods_that_fit_nowhere_hide_none_behind_them() {
    let mut world = World::new(vec![pool("default")], ladder(50));
    world.put_pods(&many(5_000, &pod("huge").cpu("1000")));
    world.put_pods(&many(20, &pod("small").cpu("100m")));
    let round = world.plan();
    assert_eq!(round.new_nodes().iter().map(|node| node.pods.len()).sum::<usize>(), 20);
    assert_eq!(round.solution.unschedulable.len(), 5_000);
    assert!(round.solution.unschedulable.iter().all(|left| !left.reasons.is_empty()));
}
