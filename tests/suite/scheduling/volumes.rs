//! Volumes: where they are, and how many of them a node can attach.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use provisor::api::{self, Object};
use provisor::capacity::scheduling::{Code, UnsupportedStorage};
use provisor::model::name::{NodeName, ObjectKey};
use provisor::model::pod::{NodeTerm, PodVolume};
use provisor::model::requirement::Operator::*;
use provisor::model::requirement::Requirements;
use provisor::model::symbol::Symbol;
use provisor::model::workload::{CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass};

use serde_json::{Value, json};

use super::world::*;

const DRIVER: &str = "fake-csi.provider.com";

fn in_zones(zones: &[&str]) -> Requirements {
    [(Symbol::new(ZONE), requirement(In, zones))].into_iter().collect()
}

fn zone_term(zone: &str) -> NodeTerm {
    term(&[(ZONE, In, &[zone])])
}

fn class(name: &str, topologies: Vec<Requirements>) -> StorageClass {
    StorageClass {
        name: name.into(),
        provisioner: DRIVER.into(),
        binds_immediately: false,
        topologies,
        is_default: false,
        created: None,
    }
}

fn claim(name: &str, volume: Option<&str>, class: Option<&str>) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        key: ObjectKey::new("default", name),
        volume: volume.map(Symbol::new),
        storage_class: class.map(Symbol::new),
        is_lost: false,
        is_deleting: false,
        is_bind_completed: true,
    }
}

fn volume(name: &str, terms: Vec<NodeTerm>) -> PersistentVolume {
    PersistentVolume {
        name: name.into(),
        terms,
        is_local: false,
        driver: Some(DRIVER.into()),
        is_deleting: false,
    }
}

/// A plain world with class `zonal` (second and third zone) and the given claims and volumes.
fn world(claims: Vec<PersistentVolumeClaim>, volumes: Vec<PersistentVolume>) -> World {
    let mut world = World::plain();
    let zonal = class("zonal", vec![in_zones(&[Z2, Z3])]);
    world.cluster.storage_classes.insert(zonal.name, Arc::new(zonal));
    for claim in claims {
        world.cluster.volume_claims.insert(claim.key, Arc::new(claim));
    }
    for volume in volumes {
        world.cluster.volumes.insert(volume.name, Arc::new(volume));
    }
    world
}

/// Rows: SCH-070, SCH-071, SCH-072, SCH-073, SCH-074, SCH-213, SCH-214, SCH-215
#[test]
fn volumes_that_cannot_be_used_hold_their_pod_back() {
    let bound = |edit: fn(&mut PersistentVolumeClaim)| {
        let mut bound = claim("data", Some("pv"), Some("zonal"));
        edit(&mut bound);
        bound
    };
    let free = || vec![volume("pv", Vec::new())];
    let gone = || vec![PersistentVolume { is_deleting: true, ..volume("pv", Vec::new()) }];
    let cases = [
        ("no claim", vec![], vec![], false),
        ("bound, class empty", vec![claim("data", Some("pv"), Some(""))], free(), true),
        ("unbound, class empty", vec![claim("data", None, Some(""))], vec![], false),
        ("bound, class missing", vec![claim("data", Some("pv"), Some("missing"))], free(), true),
        ("unbound, class missing", vec![claim("data", None, Some("missing"))], vec![], false),
        ("unbound, class immediate", vec![claim("data", None, Some("immediate"))], vec![], false),
        ("claim being deleted", vec![bound(|claim| claim.is_deleting = true)], free(), false),
        ("claim lost", vec![bound(|claim| claim.is_lost = true)], free(), false),
        ("volume missing", vec![bound(|_| {})], vec![], false),
        ("volume being deleted", vec![bound(|_| {})], gone(), false),
        ("bound", vec![bound(|_| {})], free(), true),
        ("not really bound", vec![bound(|claim| claim.is_bind_completed = false)], free(), false),
    ];
    for (what, claims, volumes, is_placed) in cases {
        let mut world = world(claims, volumes);
        let immediate = StorageClass { binds_immediately: true, ..class("immediate", Vec::new()) };
        world.cluster.storage_classes.insert(immediate.name, Arc::new(immediate));
        let round = world.run(&[pod("a").claim("data"), pod("healthy")]);
        assert_eq!(world.is_bound("a"), is_placed, "{what}");
        assert_eq!(round.rejected.get("a"), (!is_placed).then_some(&Code::VolumeNotUsable), "{what}");
        assert!(world.is_bound("healthy"), "{what}");
    }
}

#[test]
fn sch_075_a_broken_volume_holds_up_nobody_else() {
    let mut world = world(Vec::new(), Vec::new());
    world.run(&[pod("broken").claim("none"), pod("healthy")]);
    assert!(world.is_bound("healthy") && !world.is_bound("broken"));
}

fn ephemeral(name: &str, volume: &str) -> A {
    let mut one = pod(name);
    one.shape
        .volumes
        .push(PodVolume::Ephemeral { volume: volume.into(), storage_class: Some("zonal".into()) });
    one
}

/// Rows: SCH-076, SCH-077, SCH-078
#[test]
fn the_class_of_an_unbound_claim_narrows_the_zones() {
    let named = || (vec![claim("data", None, Some("zonal"))], pod("a").claim("data"));
    let inline = || (vec![claim("a-data", None, Some("zonal"))], ephemeral("a", "data"));
    for (claims, one) in [named(), inline()] {
        let mut world = world(claims, Vec::new());
        world.run(&[one.or(&[(ZONE, In, &[Z1, Z3])])]);
        assert_eq!(world.value_of("a", ZONE), Some(Z3));
    }
    for (claims, one) in [named(), inline()] {
        let mut world = world(claims, Vec::new());
        let round = world.run(&[one.select(ZONE, Z1)]);
        assert_eq!(round.codes("a"), [Code::VolumeElsewhere]);
    }
}

/// Rows: SCH-079, SCH-082
#[test]
fn a_bound_volume_pins_the_zone() {
    let mut there = world(vec![claim("data", Some("pv"), None)], vec![volume("pv", vec![zone_term(Z3)])]);
    there.run(&[pod("a").claim("data")]);
    assert_eq!(there.value_of("a", ZONE), Some(Z3));
    let mut elsewhere = world(vec![claim("data", Some("pv"), None)], vec![volume("pv", vec![zone_term(Z3)])]);
    elsewhere.run(&[pod("a").claim("data").select(ZONE, Z1)]);
    assert!(!elsewhere.is_bound("a"));
}

/// Rows: SCH-080, SCH-081, SCH-204
#[test]
fn the_host_of_a_local_volume_is_not_waited_for() {
    let on_host = || vec![term(&[(HOSTNAME, In, &["gone"])])];
    for (is_local, is_placed) in [(true, true), (false, false)] {
        let disk = PersistentVolume { is_local, ..volume("pv", on_host()) };
        let mut world = world(vec![claim("data", Some("pv"), None)], vec![disk]);
        world.run(&[pod("a").claim("data")]);
        assert_eq!(world.is_bound("a"), is_placed);
    }
    let mut terms = on_host();
    terms.push(zone_term("invalid"));
    let disk = PersistentVolume { is_local: true, ..volume("pv", terms) };
    let mut world = world(vec![claim("data", Some("pv"), None)], vec![disk]);
    world.run(&[pod("a").claim("data")]);
    assert!(world.is_bound("a"));
}

#[test]
fn sch_083_the_zone_of_a_volume_survives_dropped_terms() {
    let mut world = world(vec![claim("data", Some("pv"), None)], vec![volume("pv", vec![zone_term(Z3)])]);
    let one =
        pod("a").claim("data").or(&[("unknown", In, &["x"])]).or(&[(CAPACITY_TYPE, In, &["on-demand"])]);
    world.run(&[one]);
    assert_eq!(world.value_of("a", ZONE), Some(Z3));
}

fn spacious(node: &str, limit: u32, world: &mut World) {
    world.put_node(node, &[(ZONE, Z1)], &[("cpu", "1024"), ("memory", "1024Gi"), ("pods", "1024")]);
    let name = NodeName::new(node);
    let csi = CsiNode { node: name, limits: vec![(DRIVER.into(), limit)] };
    world.cluster.csi_nodes.insert(name, Arc::new(csi));
}

/// Rows: SCH-200, SCH-461
#[test]
fn a_node_attaches_no_more_than_it_can() {
    let claims = (0..12).map(|at| claim(&format!("data-{at}"), None, Some("anywhere"))).collect();
    let mut world = world(claims, Vec::new());
    let anywhere = class("anywhere", Vec::new());
    world.cluster.storage_classes.insert(anywhere.name, Arc::new(anywhere));
    spacious("n1", 10, &mut world);
    let pods: Vec<A> = (0..6)
        .map(|at| {
            pod(&format!("a-{at}")).claim(&format!("data-{}", 2 * at)).claim(&format!("data-{}", 2 * at + 1))
        })
        .collect();
    world.run(&pods);
    assert_eq!((0..6).filter(|at| world.host_of(&format!("a-{at}")) == Some("n1")).count(), 5);
    assert_eq!(world.waiting(), 0);
    world.run(&[pod("again").claim("data-0")]);
    assert_eq!(world.host_of("again"), Some("n1"), "what is attached already costs nothing");
}

#[test]
fn sch_201_a_shared_claim_counts_once() {
    let mut world = world(vec![claim("data", Some("pv"), None)], vec![volume("pv", Vec::new())]);
    spacious("n1", 1, &mut world);
    world.run(&many(100, &pod("a").claim("data")));
    assert_eq!(world.cluster.nodes.len(), 1);
}

#[test]
fn sch_202_volumes_without_a_driver_are_not_counted() {
    let nfs = PersistentVolume { driver: None, ..volume("pv", Vec::new()) };
    let mut world = world(vec![claim("data", Some("pv"), Some(""))], vec![nfs]);
    spacious("n1", 0, &mut world);
    world.run(&many(5, &pod("a").claim("data").claim("data")));
    assert_eq!(world.cluster.nodes.len(), 1);
    assert_eq!(world.waiting(), 0);
}

/// Rows: SCH-203, SCH-205
#[test]
fn alternatives_of_a_volume_leave_room_for_anti_affinity() {
    let alone = |name: &str, claim: &str| {
        pod(name).claim(claim).label("app", "x").far(near(ZONE, with_label("app", "x")))
    };
    let either = || vec![zone_term(Z1), zone_term(Z2)];
    let claims = vec![claim("one", Some("pv-1"), None), claim("two", Some("pv-2"), None)];
    let mut bound = world(claims, vec![volume("pv-1", either()), volume("pv-2", either())]);
    bound.run(&[alone("a", "one"), alone("b", "two")]);
    assert_eq!(bound.skew(ZONE, "app", "x"), [1, 1]);
    let claims = vec![claim("one", None, Some("either")), claim("two", None, Some("either"))];
    let mut unbound = world(claims, Vec::new());
    let either = class("either", vec![in_zones(&[Z1]), in_zones(&[Z2])]);
    unbound.cluster.storage_classes.insert(either.name, Arc::new(either));
    unbound.run(&[alone("a", "one"), alone("b", "two")]);
    assert_eq!(unbound.skew(ZONE, "app", "x"), [1, 1]);
}

#[test]
fn sch_206_the_alternatives_of_two_volumes_are_combined() {
    let asks = |entries: &[(&str, &str)]| -> Requirements {
        entries.iter().map(|(key, value)| (Symbol::new(key), requirement(In, &[value]))).collect()
    };
    let a = class("a", vec![asks(&[(SPECIAL, "required")]), asks(&[(SPECIAL, "optional")])]);
    let b = class(
        "b",
        vec![asks(&[(ZONE, Z1), (SPECIAL, "optional")]), asks(&[(ZONE, Z2), (SPECIAL, "required")])],
    );
    let mut world = world(vec![claim("one", None, Some("a")), claim("two", None, Some("b"))], Vec::new());
    world.types = ladder(5);
    for class in [a, b] {
        world.cluster.storage_classes.insert(class.name, Arc::new(class));
    }
    world.run(&[pod("x").claim("one").claim("two")]);
    assert_eq!((world.value_of("x", ZONE), world.value_of("x", SPECIAL)), (Some(Z1), Some("optional")));
}

#[test]
fn sch_349_a_volume_decides_the_zone_and_the_spread_still_counts_all_three() {
    let mut rule = spread(ZONE, 1, with_label("app", "x"));
    rule.min_domains = Some(3);
    let one = pod("x").label("app", "x").spread(rule);
    let mut world = world(vec![claim("data", Some("pv"), None)], vec![volume("pv", vec![zone_term(Z1)])]);
    world.put_pool(pool("default").require(CAPACITY_TYPE, In, &["on-demand"]));
    world.run(&many(3, &one));
    world.run(&[A { name: "last".into(), ..one.claim("data") }]);
    assert_eq!(world.value_of("last", ZONE), Some(Z1));
    assert_eq!(world.skew(ZONE, "app", "x"), [1, 1, 2]);
}

#[test]
fn sch_936_a_volume_and_a_spread_that_disagree_leave_the_pod_waiting() {
    let one = pod("x").label("app", "x").spread(spread(ZONE, 1, with_label("app", "x")));
    let mut world = world(vec![claim("data", Some("pv"), None)], vec![volume("pv", vec![zone_term(Z1)])]);
    world.run(&[A { name: "first".into(), ..one.clone().select(ZONE, Z1) }]);
    let round = world.run(&[A { name: "second".into(), ..one.claim("data") }]);
    assert_eq!(round.codes("second"), [Code::TopologySpread]);
}

#[test]
fn sch_939_a_topology_key_that_no_pool_defines_is_out_of_reach() {
    let mut world = world(vec![claim("data", None, Some("racked"))], Vec::new());
    let racked = class("racked", vec![[("rack".into(), requirement(In, &["r1"]))].into_iter().collect()]);
    world.cluster.storage_classes.insert(racked.name, Arc::new(racked));
    world.run(&[pod("a").claim("data")]);
    assert!(!world.is_bound("a"));
    world.put_pool(pool("default").require("rack", In, &["r1", "r2"]));
    world.run(&[]);
    assert_eq!(world.value_of("a", "rack"), Some("r1"));
}

/// Ephemeral volumes `data` of these pods, whose claims of a class are there.
fn with_scratch(world: &mut World, pods: &[&str], storage_class: Option<&str>) -> Vec<A> {
    let one = |name: &&str| {
        let claim = claim(&format!("{name}-data"), None, storage_class);
        world.cluster.volume_claims.insert(claim.key, Arc::new(claim));
        let mut pod = pod(name);
        let storage_class = storage_class.map(Symbol::new);
        pod.shape.volumes.push(PodVolume::Ephemeral { volume: "data".into(), storage_class });
        pod
    };
    pods.iter().map(one).collect()
}

/// A world with one node that can attach so many volumes of each driver.
fn limited(limits: &[(&str, u32)], classes: Vec<StorageClass>) -> World {
    let mut world = world(Vec::new(), Vec::new());
    spacious("n1", 0, &mut world);
    let limits = limits.iter().map(|(driver, limit)| (Symbol::new(driver), *limit)).collect();
    let csi = CsiNode { node: NodeName::new("n1"), limits };
    world.cluster.csi_nodes.insert(csi.node, Arc::new(csi));
    for class in classes {
        world.cluster.storage_classes.insert(class.name, Arc::new(class));
    }
    world
}

/// Each pod in a round of its own.
fn one_by_one(world: &mut World, pods: &[A]) {
    for pod in pods {
        world.run(std::slice::from_ref(pod));
    }
}

const ROOMY: &str = "roomy-csi.provider.com";

fn default_of(name: &str, provisioner: &str, created: Option<&str>) -> StorageClass {
    StorageClass {
        provisioner: provisioner.into(),
        is_default: true,
        created: created.map(|at| at.parse().expect("a moment")),
        ..class(name, Vec::new())
    }
}

#[test]
fn sch_207_an_ephemeral_volume_uses_the_driver_of_its_class() {
    let classes = vec![class("named", Vec::new()), default_of("standard", ROOMY, None)];
    let mut world = limited(&[(DRIVER, 1), (ROOMY, 10)], classes);
    let pods = with_scratch(&mut world, &["a", "b"], Some("named"));
    one_by_one(&mut world, &pods);
    assert_eq!((world.host_of("a"), world.cluster.nodes.len()), (Some("n1"), 2));
}

/// Rows: SCH-208, SCH-209
#[test]
fn a_volume_without_a_class_is_of_the_newest_default() {
    let mut one = limited(&[(DRIVER, 1)], vec![default_of("standard", DRIVER, None)]);
    let pods = with_scratch(&mut one, &["a", "b"], None);
    one_by_one(&mut one, &pods);
    assert_eq!((one.host_of("a"), one.cluster.nodes.len()), (Some("n1"), 2));
    for (newest_driver, nodes) in [(DRIVER, 2), (ROOMY, 1)] {
        let older = if newest_driver == DRIVER { ROOMY } else { DRIVER };
        let classes = vec![
            default_of("a-new", newest_driver, Some("2026-02-01T00:00:00Z")),
            default_of("z-old", older, Some("2026-01-01T00:00:00Z")),
        ];
        let mut two = limited(&[(DRIVER, 1), (ROOMY, 10)], classes);
        let pods = with_scratch(&mut two, &["a", "b"], None);
        one_by_one(&mut two, &pods);
        assert_eq!(two.cluster.nodes.len(), nodes, "{newest_driver}");
        assert_eq!(two.waiting(), 0);
    }
}

/// Rows: SCH-210, SCH-211, SCH-212
#[test]
fn no_node_is_bought_for_volumes_that_it_could_not_have() {
    let drivers = UnsupportedStorage { drivers: [DRIVER.into()].into(), ..UnsupportedStorage::default() };
    let keys = UnsupportedStorage { topology_keys: [ZONE.into()].into(), ..UnsupportedStorage::default() };
    let bound = || vec![claim("bound", Some("pv"), None)];
    for (unsupported, codes) in [
        (UnsupportedStorage::default(), [None, None]),
        (drivers, [Some(&Code::VolumeNotUsable), Some(&Code::VolumeNotUsable)]),
        (keys, [Some(&Code::VolumeNotUsable), None]),
    ] {
        let mut world = world(bound(), vec![volume("pv", vec![zone_term(Z1)])]);
        world.settings.unsupported_storage = unsupported;
        let mut pods = with_scratch(&mut world, &["scratch"], Some("zonal"));
        pods.push(pod("b").claim("bound"));
        pods.push(pod("healthy"));
        let round = world.run(&pods);
        assert_eq!([round.rejected.get("scratch"), round.rejected.get("b")], codes);
        assert_eq!([world.is_bound("scratch"), world.is_bound("b")], codes.map(|code| code.is_none()));
        assert!(world.is_bound("healthy"));
    }
}

/// Rows: SCH-216, SCH-217
#[test]
fn an_ephemeral_volume_needs_its_class_until_it_is_bound() {
    for storage_class in ["non-existent", ""] {
        let mut bound = world(Vec::new(), vec![volume("pv", Vec::new())]);
        let pods = with_scratch(&mut bound, &["a"], Some(storage_class));
        let claim = claim("a-data", Some("pv"), Some(storage_class));
        bound.cluster.volume_claims.insert(claim.key, Arc::new(claim));
        bound.run(&pods);
        assert_eq!(bound.cluster.nodes.len(), 1, "{storage_class}");
        let mut missing = world(Vec::new(), Vec::new());
        let pods = with_scratch(&mut missing, &["a"], Some(storage_class));
        missing.cluster.volume_claims.clear();
        missing.run(&pods);
        assert_eq!(missing.cluster.nodes.len(), 0, "{storage_class}");
    }
}

/// A world in which new machines attach three volumes each, or ten for twice the price.
fn world_of_limits(claims: &[String]) -> World {
    let claims = claims.iter().map(|name| claim(name, None, Some("anywhere"))).collect();
    let mut world = world(claims, Vec::new());
    let anywhere = class("anywhere", Vec::new());
    world.cluster.storage_classes.insert(anywhere.name, Arc::new(anywhere));
    world.types = [("few", 3, 1.0), ("more", 10, 2.0)]
        .map(|(name, most, price)| {
            let mut kind =
                machine(name, &[("cpu", "64"), ("memory", "64Gi"), ("pods", "110")], &everywhere(price));
            kind.volumes_max = vec![(DRIVER.into(), most)];
            kind
        })
        .into();
    world
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{prefix}-{at}")).collect()
}

/// How many different claims of `pods` each node holds.
fn attached(world: &World, pods: &[A]) -> Vec<usize> {
    let mut by_node: BTreeMap<String, BTreeSet<PodVolume>> = BTreeMap::new();
    for pod in pods {
        let host = world.host_of(&pod.name).expect("it has a place").to_owned();
        by_node.entry(host).or_default().extend(pod.shape.volumes.iter().cloned());
    }
    by_node.into_values().map(|claims| claims.len()).collect()
}

/// Rows: WEA-026
#[test]
fn wea_026_a_new_node_gets_no_more_volumes_than_its_machine_can_attach() {
    let claims = names("data", 25);
    let mut world = world_of_limits(&claims);
    let pods: Vec<A> = claims.iter().map(|name| pod(name).claim(name)).collect();
    let round = world.run(&pods[..14]);
    assert_eq!(world.waiting(), 0);
    for node in round.new_nodes() {
        let most = if node.launch().instance_type.0.as_str() == "few" { 3 } else { 10 };
        assert!(node.pods.len() <= most, "{} on {}", node.pods.len(), node.launch().instance_type);
        assert!(node.requests.iter().all(|(name, _)| !name.0.contains("volumes")), "nobody sells volumes");
    }
    // Nodes whose kubelet said nothing of drivers yet hold what their machines can attach, then others come.
    let before = world.cluster.nodes.len();
    world.run(&pods[14..]);
    assert_eq!(world.waiting(), 0);
    assert!(world.cluster.nodes.len() > before);
    assert!(attached(&world, &pods).iter().all(|count| *count <= 10));
    // Without volumes all of them are on one.
    let mut free = world_of_limits(&[]);
    free.run(&many(25, &pod("a")));
    assert_eq!(free.cluster.nodes.len(), 1);
}

/// Rows: WEA-026
#[test]
fn wea_026_a_pod_with_many_volumes_gets_a_machine_that_attaches_them() {
    for (count, machine) in
        [(2, Some("few")), (3, Some("few")), (4, Some("more")), (10, Some("more")), (11, None)]
    {
        let claims = names("data", count);
        let mut world = world_of_limits(&claims);
        let one = claims.iter().fold(pod("a"), |pod, name| pod.claim(name));
        let round = world.run(&[one]);
        assert_eq!(world.value_of("a", INSTANCE_TYPE), machine, "{count}");
        if machine.is_none() {
            assert_eq!(round.codes("a"), [Code::ResourcesExceedEveryType]);
            let message = round.message("a");
            assert!(message.contains(&format!("attachable-volumes-csi-{DRIVER} 11")), "{message}");
        }
    }
}

/// Rows: WEA-026
#[test]
fn wea_026_a_volume_that_pods_share_counts_once_on_a_new_node() {
    let claims = names("data", 11);
    let mut shared = world_of_limits(&claims);
    shared.run(&many(40, &pod("a").claim("data-0").claim("data-1")));
    assert_eq!((shared.cluster.nodes.len(), shared.value_of("a-001", INSTANCE_TYPE)), (1, Some("few")));
    // All of them hold the same two and one more of their own.
    let mut mixed = world_of_limits(&claims);
    let pods: Vec<A> =
        claims[2..10].iter().map(|own| pod(own).claim("data-0").claim("data-1").claim(own)).collect();
    let together = A { shape: pods[0].shape.clone(), ..pod("last") };
    mixed.run(&[pods.clone(), vec![together]].concat());
    assert_eq!(mixed.waiting(), 0);
    assert!(attached(&mixed, &pods).iter().all(|count| *count <= 10));
    assert!(mixed.cluster.nodes.len() < 8, "{} nodes for eight pods", mixed.cluster.nodes.len());
}

/// Rows: WEA-026
#[test]
fn wea_026_a_machine_on_its_way_keeps_its_limit_until_its_node_tells_one() {
    let claims = names("data", 6);
    let of = |name: &String| pod(name).claim(name);
    for (told, here) in [(None, 3), (Some(5), 5), (Some(2), 2)] {
        let mut world = world_of_limits(&claims);
        world.types.truncate(1);
        world.run(&[of(&claims[0])]);
        let host = NodeName::new(world.host_of("data-0").expect("it is bound"));
        if let Some(limit) = told {
            let csi = CsiNode { node: host, limits: vec![(DRIVER.into(), limit)] };
            world.cluster.csi_nodes.insert(host, Arc::new(csi));
        }
        let more: Vec<A> = claims[1..].iter().map(of).collect();
        world.run(&more);
        let count = claims.iter().filter(|name| world.host_of(name) == Some(host.0.as_str())).count();
        assert_eq!(count, here, "{told:?}");
        assert_eq!(world.waiting(), 0);
    }
}

fn read(object: Value) -> Object {
    api::parse(&object).expect("it is valid")
}

#[test]
fn sch_218_volumes_of_old_plugins_count_for_the_driver_that_does_their_work() {
    let Object::StorageClass(old) = read(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "old"},
        "provisioner": "kubernetes.io/aws-ebs", "volumeBindingMode": "WaitForFirstConsumer",
    })) else {
        panic!("a class")
    };
    let Object::PersistentVolume(disk) = read(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
        "spec": {"awsElasticBlockStore": {"volumeID": "vol-1"}, "capacity": {"storage": "1Gi"}},
    })) else {
        panic!("a volume")
    };
    for is_ephemeral in [false, true] {
        let mut world = limited(&[("ebs.csi.aws.com", 1)], vec![old.clone()]);
        world.cluster.volumes.insert(disk.name, Arc::new(disk.clone()));
        for claim in [claim("first", Some("pv"), Some("old")), claim("second", None, Some("old"))] {
            world.cluster.volume_claims.insert(claim.key, Arc::new(claim));
        }
        let second = match is_ephemeral {
            true => with_scratch(&mut world, &["b"], Some("old")).remove(0),
            false => pod("b").claim("second"),
        };
        one_by_one(&mut world, &[pod("a").claim("first"), second]);
        assert_eq!((world.host_of("a"), world.cluster.nodes.len()), (Some("n1"), 2), "{is_ephemeral}");
        assert_eq!(world.waiting(), 0);
    }
}

/// A volume may be in two zones: the node that is there suits the second, although a new one would suit the first.
#[test]
fn sch_937_each_candidate_is_asked_for_every_alternative() {
    let zoned = pool("default").require(ZONE, In, &[Z1]);
    let disk = volume("pv", vec![zone_term(Z1), zone_term(Z2)]);
    let mut there = world(vec![claim("data", Some("pv"), None)], vec![disk.clone()]);
    there.put_pool(zoned.clone());
    there.put_node("n2", &[(ZONE, Z2)], &[("cpu", "4"), ("memory", "4Gi"), ("pods", "5")]);
    there.run(&[pod("a").claim("data")]);
    assert_eq!((there.host_of("a"), there.cluster.nodes.len()), (Some("n2"), 1));
    let mut new = world(vec![claim("data", Some("pv"), None)], vec![disk]);
    new.put_pool(zoned.weight(2));
    new.put_pool(pool("other").require(ZONE, In, &[Z2]));
    new.run(&[
        pod("far").cpu("1").select(ZONE, Z2),
        pod("near").cpu("1").select(ZONE, Z1),
        pod("a").claim("data").select(NODEPOOL, "other"),
    ]);
    assert_eq!(
        new.host_of("a"),
        new.host_of("far"),
        "of the open nodes the second suits it, by the second alternative"
    );
}

/// Pods that move are not judged before, as those that wait are.
///
/// Rows: WEA-030
#[test]
fn a_pod_that_moves_and_has_lost_its_volume_is_left_out_with_the_reason() {
    let mut world = world(Vec::new(), Vec::new());
    world.run(&[pod("opener")]);
    let node = world.host_of("opener").unwrap();
    world.put_pods(&[pod("moving").claim("none").on(node)]);
    world.edit_claim_of(node, |claim| claim.deleted = Some(now()));
    let round = world.plan();
    assert_eq!(round.codes("moving"), [Code::VolumeNotUsable]);
    assert!(round.new_nodes().iter().flat_map(|node| &node.pods).all(|pod| &*pod.name != "moving"));
}
