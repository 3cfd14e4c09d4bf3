//! What the picture of the cluster says of nodes, claims and their pods, whatever order the news came in.

use std::sync::Arc;

use provisor::capacity::scheduling::{is_going, moving_pods, usage_by_pool};
use provisor::model::claim::{ConditionStatus, ConditionType};
use provisor::model::name::{ClaimName, NodeName, ObjectKey, PoolName, ProviderId};
use provisor::model::pod::{Pod, PodPhase};
use provisor::model::quantity::{Resources, resource};
use provisor::model::requirement::Operator::In;
use provisor::model::taint::{Effect, Taint};

use super::world::*;

/// Whether a pod of so many thousandths of a core that may go nowhere else has room on `node`.
fn fits(world: &World, node: &str, millis: i64) -> bool {
    let mut probe = World::new(Vec::new(), Vec::new());
    probe.cluster = world.cluster.clone();
    probe.cluster.pools.clear();
    probe.drop_waiting();
    let one = pod("probe").cpu(&format!("{millis}m")).select("called", node);
    probe.put_pods(&[one.tolerate("", None, None)]);
    !probe.plan().solution.existing.is_empty()
}

/// Thousandths of a core that pods can still have on `node`.
fn left(world: &World, node: &str) -> i64 {
    let (mut most, mut too_much) = (0, 1 << 13);
    while too_much - most > 1 {
        let middle = (most + too_much) / 2;
        if fits(world, node, middle) { most = middle } else { too_much = middle }
    }
    most
}

fn has_left(world: &World, node: &str, millis: i64) -> bool {
    fits(world, node, millis) && !fits(world, node, millis + 1)
}

const FOUR_CORES: &[(&str, &str)] = &[("cpu", "4"), ("memory", "16Gi"), ("pods", "200")];

fn town(nodes: &[&str]) -> World {
    let mut world = World::plain();
    for node in nodes {
        world.put_node(node, &[(ZONE, Z1), ("called", node)], FOUR_CORES);
    }
    world
}

fn remove(world: &mut World, pod: &str) {
    world.cluster.remove_pod(ObjectKey::new("default", pod));
}

#[test]
fn sch_464_what_a_node_has_left_follows_binding() {
    let mut world = town(&["n1"]);
    let (small, large) = (pod("small").cpu("1.5"), pod("large").cpu("2"));
    world.put_pods(&[small.clone(), large.clone()]);
    assert_eq!(left(&world, "n1"), 4000, "nothing is bound");
    world.put_pods(&[small.clone().on("n1")]);
    assert_eq!(left(&world, "n1"), 2500);
    world.put_pods(&[large.clone().on("n1")]);
    assert_eq!(left(&world, "n1"), 500);
    remove(&mut world, "large");
    assert_eq!(left(&world, "n1"), 2500);
    remove(&mut world, "small");
    assert_eq!(left(&world, "n1"), 4000);
    for phase in [PodPhase::Succeeded, PodPhase::Failed] {
        world.put_pods(&[A { phase, ..small.clone().on("n1") }]);
        assert_eq!(left(&world, "n1"), 4000, "{phase:?}");
    }
}

#[test]
fn sch_465_a_pod_that_came_back_elsewhere_leaves_nothing_behind() {
    let mut world = town(&["n1", "n2"]);
    world.put_pods(&[pod("web").cpu("1.5").on("n1")]);
    let mut again = (*pod("web").cpu("2.5").on("n2").build()).clone();
    again.uid = "another".into();
    world.cluster.put_pod(Arc::new(again));
    assert_eq!((left(&world, "n1"), left(&world, "n2")), (4000, 1500));
}

#[test]
fn sch_466_repeated_news_keep_sums_exact() {
    let mut world = town(&["n1"]);
    let mut state: u64 = 17;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut sum = 0;
    let mut bound: Vec<(String, i64)> = Vec::new();
    for at in 0..100 {
        let millis = 1 + i64::try_from(next(39)).unwrap();
        let name = format!("web-{at}");
        let one = pod(&name).cpu(&format!("{millis}m")).on("n1");
        for _ in 0..=next(3) {
            world.put_pods(std::slice::from_ref(&one));
        }
        sum += millis;
        bound.push((name.clone(), millis));
        assert!(has_left(&world, "n1", 4000 - sum), "{sum} of {name}");
    }
    while !bound.is_empty() {
        let at = usize::try_from(next(bound.len() as u64)).unwrap();
        let (name, millis) = bound.swap_remove(at);
        for _ in 0..=next(3) {
            remove(&mut world, &name);
        }
        sum -= millis;
        assert!(has_left(&world, "n1", 4000 - sum), "{sum} of {name}");
    }
    assert_eq!(left(&world, "n1"), 4000);
}

#[test]
fn sch_467_what_daemons_have_is_known_apart_and_in_the_sum() {
    let mut world = town(&["n1"]);
    let agent = pod("agent").cpu("1").memory("2Gi");
    world.put_daemon("agent", &agent);
    assert_eq!(left(&world, "n1"), 3000, "one is expected");
    world.put_pods(&[agent.clone().owned_by("DaemonSet", "agent").on("n1")]);
    assert_eq!(left(&world, "n1"), 3000, "it came");
    world.put_pods(&[pod("web").cpu("1.5").on("n1")]);
    assert_eq!(left(&world, "n1"), 1500);
    remove(&mut world, "agent");
    assert_eq!(left(&world, "n1"), 1500, "another is expected");
    world.cluster.daemon_sets.clear();
    assert_eq!(left(&world, "n1"), 2500);
}

/// The daemon pod `name` of `set` with these requests, made so many minutes ago.
fn daemon_pod(name: &str, set: &str, cpu: &str, minutes: i64) -> Pod {
    let mut pod = (*pod(name).cpu(cpu).owned_by("DaemonSet", set).on("elsewhere").build()).clone();
    pod.created = Some(now() - jiff::SignedDuration::from_mins(minutes));
    pod
}

#[test]
fn sch_477_the_newest_pod_of_a_daemon_set_is_what_is_planned_for() {
    let mut world = town(&["n1"]);
    world.put_daemon("agent", &pod("agent").cpu("1"));
    assert_eq!(left(&world, "n1"), 3000, "the template, as there is no pod");
    let put = |world: &mut World, pod: Pod| world.cluster.put_pod(Arc::new(pod));
    put(&mut world, daemon_pod("foreign", "other", "3", 0));
    assert_eq!(left(&world, "n1"), 3000, "a pod of another set says nothing");
    put(&mut world, daemon_pod("z", "agent", "1.5", 20));
    assert_eq!(left(&world, "n1"), 2500);
    put(&mut world, daemon_pod("a", "agent", "2", 10));
    assert_eq!(left(&world, "n1"), 2000, "the newer one");
    remove(&mut world, "a");
    assert_eq!(left(&world, "n1"), 2500);
    remove(&mut world, "z");
    assert_eq!(left(&world, "n1"), 3000);
}

#[test]
fn sch_468_a_node_whose_object_or_claim_is_being_deleted_is_on_its_way_out() {
    for of_claim in [false, true] {
        let mut world = World::plain();
        world.run(&[pod("a").cpu("1")]);
        if of_claim {
            world.edit_claim_of("node-001", |claim| claim.deleted = Some(now()));
        } else {
            // Nobody manages this one.
            let claims: Vec<ClaimName> = world.cluster.claims.keys().copied().collect();
            claims.into_iter().for_each(|claim| world.cluster.remove_claim(claim));
            world.edit_node("node-001", |node| {
                node.provider_id = None;
                node.deleted = Some(now());
            });
        }
        let node = &world.cluster.nodes[&NodeName::new("node-001")];
        assert!(is_going(&world.cluster, node), "of claim: {of_claim}");
        let moving = moving_pods(&world.cluster, now());
        assert_eq!(moving.iter().map(|pod| pod.key.name.as_str()).collect::<Vec<_>>(), ["a"]);
        world.run(&[pod("b").cpu("1")]);
        assert_ne!(world.host_of("b"), Some("node-001"), "it takes nothing more");
    }
}

/// Such a node may stay for long, and whoever drains it buys for its pods.
#[test]
fn pods_of_somebody_elses_node_that_goes_are_not_bought_for() {
    let mut world = World::plain();
    world.run(&[pod("a").cpu("1")]);
    let claims: Vec<ClaimName> = world.cluster.claims.keys().copied().collect();
    claims.into_iter().for_each(|claim| world.cluster.remove_claim(claim));
    world.edit_node("node-001", |node| node.deleted = Some(now()));
    assert_eq!(moving_pods(&world.cluster, now()).len(), 1, "nobody is known to look after it");
    world.cluster.strangers.pools.insert(PoolName::new("default"));
    assert!(moving_pods(&world.cluster, now()).is_empty());
}

#[test]
fn sch_470_a_provider_id_that_comes_late_makes_no_second_node() {
    let mut world = World::plain();
    world.run(&[pod("a").cpu("1")]);
    let id = world.cluster.nodes[&NodeName::new("node-001")].provider_id;
    world.edit_node("node-001", |node| node.provider_id = None);
    world.edit_node("node-001", |node| node.provider_id = id);
    assert_eq!(nodes_of(&world, "default"), 1);
    let node = &world.cluster.nodes[&NodeName::new("node-001")];
    assert!(world.cluster.claim_of(node).is_some());
}

#[test]
fn sch_471_who_must_be_alone_is_known_as_long_as_it_is_there() {
    let alone = pod("alone").label("app", "alone");
    let visitor = pod("visitor").label("app", "visitor").select("called", "n1");
    let term = || near(HOSTNAME, with_label("app", "visitor"));
    let admits = |world: &mut World| {
        world.drop_waiting();
        world.put_pods(std::slice::from_ref(&visitor));
        !world.plan().solution.existing.is_empty()
    };
    let mut wishing = alone.clone();
    wishing.shape.anti_affinity_preferred.push((100, term()));
    let mut world = town(&["n1"]);
    world.put_pods(&[wishing.on("n1")]);
    assert!(admits(&mut world), "a wish keeps nobody away");
    world.put_pods(&[alone.clone().far(term()).on("n1")]);
    assert!(!admits(&mut world));
    remove(&mut world, "alone");
    assert!(admits(&mut world));
    world.put_pods(&[alone.far(term()).on("n1")]);
    world.cluster.remove_node(NodeName::new("n1"));
    let mut elsewhere = visitor.clone();
    elsewhere.shape.node_selector.clear();
    world.drop_waiting();
    world.put_pods(&[elsewhere]);
    assert_eq!(world.plan().new_nodes().len(), 1, "a node that is gone keeps nobody away either");
}

#[test]
fn sch_480_a_node_that_nobody_manages_means_all_of_its_taints() {
    let ephemeral = Taint::new("node.kubernetes.io/not-ready", "", Effect::NoSchedule);
    for is_initialized in [false, true] {
        let mut world = town(&["n1"]);
        world.edit_node("n1", |node| {
            node.taints.push(ephemeral);
            if is_initialized {
                node.labels.insert("karpenter.sh/initialized".into(), "true".into());
            }
        });
        world.run(&[pod("a")]);
        assert_ne!(world.host_of("a"), Some("n1"), "{is_initialized}");
        world.run(&[pod("b").tolerate("node.kubernetes.io/not-ready", None, None).select("called", "n1")]);
        assert_eq!(world.host_of("b"), Some("n1"));
    }
}

fn used(world: &World, pool: &str) -> Resources {
    usage_by_pool(&world.cluster, &world.supply()).remove(&PoolName::new(pool)).unwrap_or_default()
}

fn cores_of(world: &World, pool: &str) -> i64 {
    used(world, pool).cpu().0 / 1000
}

fn nodes_of(world: &World, pool: &str) -> i64 {
    used(world, pool).get(*resource::NODES)
}

/// Three machines in each of three pools, of 2, 4 and 6 cores.
fn three_pools() -> World {
    let sizes = ["2", "4", "6"];
    let types = sizes.map(|cpu| {
        machine(&format!("of-{cpu}"), &[("cpu", cpu), ("memory", "64Gi"), ("pods", "9")], &everywhere(1.0))
    });
    let pools = sizes.map(|cpu| {
        pool(&format!("pool-{cpu}")).require(INSTANCE_TYPE, In, &[&format!("of-{cpu}")]).label("pool", cpu)
    });
    let mut world = World::new(pools.into(), types.into());
    for cpu in sizes {
        let apart = |at: usize| {
            let name = format!("of-{cpu}-{at}");
            pod(&name).label("app", "a").far(near(HOSTNAME, with_label("app", "a"))).select("pool", cpu)
        };
        world.run(&(0..3).map(apart).collect::<Vec<A>>());
    }
    world
}

fn nodes_in(world: &World, pool: &str) -> Vec<NodeName> {
    let of_pool =
        world.cluster.nodes.values().filter(|node| node.label(NODEPOOL.into()) == Some(pool.into()));
    of_pool.map(|node| node.name).collect()
}

fn drop_claims(world: &mut World, pool: &str, count: usize) {
    let names: Vec<ClaimName> =
        world.cluster.claims_of(PoolName::new(pool)).take(count).map(|claim| claim.name).collect();
    names.into_iter().for_each(|claim| world.cluster.remove_claim(claim));
}

#[test]
fn sch_481_what_a_pool_uses_follows_its_claims_and_nodes() {
    let mut world = three_pools();
    let all = |world: &World| ["pool-2", "pool-4", "pool-6"].map(|pool| cores_of(world, pool));
    assert_eq!(all(&world), [6, 12, 18]);
    for pool in ["pool-2", "pool-4", "pool-6"] {
        for node in nodes_in(&world, pool) {
            world.cluster.remove_node(node);
        }
    }
    assert_eq!(all(&world), [6, 12, 18], "their claims still stand for machines");
    for (left, expected) in [(2, [4, 8, 12]), (1, [2, 4, 6]), (0, [0, 0, 0])] {
        for pool in ["pool-2", "pool-4", "pool-6"] {
            drop_claims(&mut world, pool, 1);
        }
        assert_eq!(all(&world), expected, "{left} claims are left");
    }
}

#[test]
fn sch_482_a_registered_node_says_itself_whose_it_is() {
    let mut world = World::plain();
    world.run(&[pod("a").cpu("1")]);
    world.edit_claim_of("node-001", |claim| {
        claim.labels.insert(NODEPOOL.into(), "other".into());
    });
    assert_eq!((nodes_of(&world, "default"), nodes_of(&world, "other")), (1, 0));
    world.edit_node("node-001", |node| {
        node.labels.insert(NODEPOOL.into(), "other".into());
    });
    assert_eq!((nodes_of(&world, "default"), nodes_of(&world, "other")), (0, 1));
}

#[test]
fn sch_483_node_and_claim_that_disagree_on_the_machine_are_two() {
    let mut world = World::plain();
    world.run(&[pod("a").cpu("1")]);
    let once = cores_of(&world, "default");
    let new = Some(ProviderId::new("fake:///elsewhere"));
    world.edit_claim_of("node-001", |claim| claim.provider_id = new);
    assert_eq!((nodes_of(&world, "default"), cores_of(&world, "default")), (2, 2 * once));
    world.edit_node("node-001", |node| node.provider_id = new);
    assert_eq!((nodes_of(&world, "default"), cores_of(&world, "default")), (1, once));
}

/// A machine whose node says it has one core, and whose claim says two.
fn at_odds() -> World {
    let mut world = World::plain();
    world.run(&[pod("a").cpu("1")]);
    world.initialize("node-001");
    world.edit_node("node-001", |node| node.capacity = amounts(&[("cpu", "1")]));
    world.edit_claim_of("node-001", |claim| claim.capacity = amounts(&[("cpu", "2")]));
    world
}

#[test]
fn sch_484_without_its_node_a_machine_counts_as_its_claim_says() {
    let mut without_node = at_odds();
    assert_eq!(cores_of(&without_node, "default"), 1);
    without_node.cluster.remove_node(NodeName::new("node-001"));
    assert_eq!(cores_of(&without_node, "default"), 2);
    let mut without_claim = at_odds();
    drop_claims(&mut without_claim, "default", 1);
    assert_eq!(cores_of(&without_claim, "default"), 1);
}

#[test]
fn sch_485_what_goes_is_not_used_any_more() {
    let mut world = World::plain();
    world.run(&[pod("a").cpu("1")]);
    assert_eq!(cores_of(&world, "default"), 2);
    let stop = |world: &mut World, status| {
        let kind = ConditionType::InstanceTerminating;
        world.edit_claim_of("node-001", |claim| claim.conditions.set(kind, status, "Stopping", "", now()));
    };
    stop(&mut world, ConditionStatus::True);
    assert_eq!(cores_of(&world, "default"), 0);
    stop(&mut world, ConditionStatus::False);
    assert_eq!(cores_of(&world, "default"), 2);
    world.edit_claim_of("node-001", |claim| claim.deleted = Some(now()));
    assert_eq!(cores_of(&world, "default"), 0);
    drop_claims(&mut world, "default", 1);
    world.cluster.remove_node(NodeName::new("node-001"));
    assert_eq!((cores_of(&world, "default"), nodes_of(&world, "default")), (0, 0));
}

/// Rows: SCH-463, SCH-488
#[test]
fn a_machine_is_one_node_whatever_is_known_of_it() {
    let mut world = World::plain();
    world.run(&[pod("a").cpu("1")]);
    assert_eq!(nodes_of(&world, "default"), 1, "joined");
    world.initialize("node-001");
    assert_eq!(nodes_of(&world, "default"), 1, "initialized");
    let node = world.cluster.nodes[&NodeName::new("node-001")].clone();
    world.cluster.remove_node(node.name);
    assert_eq!(nodes_of(&world, "default"), 1, "only claimed");
    // The claim and the node of one machine may have one name.
    let claim = (**world.cluster.claims.values().next().unwrap()).clone();
    world.cluster.remove_claim(claim.name);
    let same = ClaimName::new("node-001");
    world.cluster.put_claim(Arc::new(provisor::model::claim::NodeClaim { name: same, ..claim }));
    world.cluster.put_node(node.clone());
    assert_eq!(nodes_of(&world, "default"), 1);
    world.cluster.remove_claim(same);
    assert_eq!(nodes_of(&world, "default"), 1, "the node is still there");
    world.cluster.remove_node(node.name);
    assert_eq!(nodes_of(&world, "default"), 0);
}

/// Rows: SCH-428
#[test]
fn of_a_machine_that_is_not_known_yet_the_least_is_counted_on() {
    let first =
        machine("one", &[("cpu", "4"), ("memory", "2Gi"), ("pods", "9"), ("x.com/a", "1")], &everywhere(1.0));
    let second = machine("two", &[("cpu", "2"), ("memory", "8Gi"), ("pods", "9")], &everywhere(1.0));
    let mut world = World::new(vec![pool("default")], vec![first, second]);
    world.put_pods(&[pod("opener").cpu("1").memory("1Gi")]);
    let round = world.plan();
    world.cluster.put_claim(round.purchase.claims[0].0.clone());
    world.drop_waiting();
    world.put_pool(pool("default").require(ZONE, In, &["nowhere"]));
    let fits = |world: &mut World, one: A| {
        world.drop_waiting();
        world.put_pods(&[one]);
        !world.plan().solution.existing.is_empty()
    };
    assert!(fits(&mut world, pod("both").cpu("2").memory("2Gi")));
    assert!(!fits(&mut world, pod("cpu").cpu("2.1")));
    assert!(!fits(&mut world, pod("memory").memory("3Gi")));
    assert!(!fits(&mut world, pod("device").request("x.com/a", "1")));
}
