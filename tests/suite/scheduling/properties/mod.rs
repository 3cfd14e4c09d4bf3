//! What holds of every placement, in thousands of random clusters.
//!
//! `PROVISOR_CASES=100000 cargo test --test suite -- scheduling::properties` tries more than the usual ten thousand.

mod referee;

use std::collections::BTreeMap;

use provisor::capacity::scheduling::{NewNode, Solution};
use provisor::model::money::UsdPerHour;
use provisor::model::name::{ObjectKey, PoolName};
use provisor::model::requirement::Operator::*;
use provisor::model::symbol::Symbol;
use provisor::model::taint::Effect;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::world::*;

/// Of all parts together.
const CASES: u64 = 10_000;
const PARTS: u64 = 5;

/// Draws a cluster.
struct Draw(ChaCha8Rng);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn zone(&mut self) -> &'static str {
        self.of(&[Z1, Z2, Z3])
    }

    fn key(&mut self) -> &'static str {
        self.of(&[ZONE, HOSTNAME])
    }

    fn world(&mut self) -> World {
        let types = if self.one_in(3) { assorted() } else { ladder(2 + self.below(7) as i64) };
        let mut world = World::new(Vec::new(), types);
        for at in 0..1 + self.below(3) {
            let mut pool = pool(&format!("pool-{at}")).weight(self.below(3) as u32);
            if self.one_in(4) {
                pool = pool.taint("team", "a", self.of(&[Effect::NoSchedule, Effect::NoExecute]));
            }
            if self.one_in(4) {
                let zones: Vec<&str> = [Z1, Z2, Z3].into_iter().filter(|_| self.one_in(2)).collect();
                if !zones.is_empty() {
                    pool = pool.require(ZONE, In, &zones);
                }
            }
            if self.one_in(4) {
                pool = pool.require(CAPACITY_TYPE, In, &[self.of(&["spot", "on-demand"])]);
            }
            if self.one_in(4) {
                pool = pool.label("tier", self.of(&["front", "back"]));
            }
            if self.one_in(5) {
                pool = pool.limit("cpu", self.of(&["4", "9", "20"]));
            }
            if self.one_in(8) {
                pool = pool.limit("nodes", self.of(&["1", "3"]));
            }
            world.put_pool(pool);
        }
        for at in 0..self.below(4) {
            let labels =
                [(ZONE, self.zone()), (ARCH, "amd64"), (OS, "linux"), ("tier", self.of(&["front", "back"]))];
            let room = [("cpu", self.of(&["2", "4", "8"])), ("memory", "16Gi"), ("pods", "10")];
            world.put_node(&format!("node-{at}"), &labels, &room);
        }
        if self.one_in(4) {
            world.put_daemon("agent", &pod("agent").cpu("300m"));
        }
        let groups = 1 + self.below(5);
        for group in 0..groups {
            self.put_group(&mut world, group);
        }
        world
    }

    /// Equal pods, some of which run already.
    fn put_group(&mut self, world: &mut World, group: usize) {
        let app = format!("app-{group}");
        let cpu = self.of(&["100m", "500m", "900m", "1500m", "3", "7"]);
        let memory = self.of(&["100Mi", "1Gi", "3Gi"]);
        let mut one = pod(&app).label("app", &app).cpu(cpu).memory(memory);
        one.owner = Some(("ReplicaSet", app.clone()));
        let of_itself = with_label("app", &app);
        for _ in 0..self.below(3) {
            one = match self.below(10) {
                0 => one.select(ZONE, self.zone()),
                1 => one.or(&[(ZONE, NotIn, &[self.zone()])]),
                2 => one.or(&[("tier", In, &["front"])]).or(&[(CAPACITY_TYPE, In, &["on-demand"])]),
                3 => one.tolerate("team", Some("a"), None),
                4 | 5 if one.shape.spreads.is_empty() => {
                    one.spread(spread(self.key(), 1 + self.below(2) as u32, of_itself.clone()))
                }
                6 => one.far(near(self.key(), of_itself.clone())),
                7 => one.near(near(self.key(), of_itself.clone())),
                8 => {
                    let other = format!("app-{}", self.below(group + 1));
                    one.near(near(self.key(), with_label("app", &other)))
                }
                9 if one.shape.host_ports.is_empty() => one.host_port(8080),
                _ => one,
            };
        }
        let mut pods = many(1 + self.below(5), &one);
        let nodes: Vec<_> = world.cluster.nodes.values().collect();
        if !nodes.is_empty() && self.one_in(3) {
            let node = self.of(&nodes);
            if referee::wants(&one.shape, &node.labels) {
                pods[0] = pods[0].clone().on(node.name.as_str());
            }
        }
        world.put_pods(&pods);
    }
}

fn cases(part: u64, mut check: impl FnMut(u64, &World)) {
    let asked = std::env::var("PROVISOR_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    for seed in (0..asked).filter(|seed| seed % PARTS == part) {
        check(seed, &Draw(ChaCha8Rng::seed_from_u64(seed)).world());
    }
}

fn cost(solution: &Solution) -> UsdPerHour {
    solution.new_nodes.iter().map(NewNode::price).sum()
}

/// What a placement comes to, whoever the pods are: nodes with how many pods of which app, and how many of each are left over.
type Outline = (Vec<(String, BTreeMap<Symbol, usize>)>, BTreeMap<Symbol, usize>);

fn outline(world: &World, solution: &Solution) -> Outline {
    let apps = |pods: &[ObjectKey]| {
        let mut counts = BTreeMap::new();
        for pod in pods {
            *counts.entry(world.cluster.pods[pod].shape.labels[&Symbol::new("app")]).or_default() += 1;
        }
        counts
    };
    let new = solution
        .new_nodes
        .iter()
        .map(|node| (format!("{} {:?}", node.pool, node.launch()), apps(&node.pods)));
    let existing = solution.existing.iter().map(|(place, pods)| (place.to_string(), apps(pods)));
    let mut nodes: Vec<_> = new.chain(existing).collect();
    nodes.sort();
    let left: Vec<ObjectKey> = solution.unschedulable.iter().map(|left| left.pod).collect();
    (nodes, apps(&left))
}

#[test]
fn no_rule_is_broken_and_every_pod_is_placed_once_or_explained() {
    cases(0, |seed, world| {
        let faults = referee::faults(world, &world.plan().solution);
        assert!(faults.is_empty(), "seed {seed}: {faults:#?}");
    });
}

/// Hundreds of pods have room that is there, and keep it while others are placed in several orders.
#[test]
fn no_rule_is_broken_where_most_pods_have_room_that_is_there() {
    let mut stayed = 0;
    for seed in 0..20 {
        let mut draw = Draw(ChaCha8Rng::seed_from_u64(seed));
        let mut world = draw.world();
        for at in 0..18 {
            let labels = [(ZONE, draw.zone()), (ARCH, "amd64"), (OS, "linux"), ("tier", "front")];
            let room = [("cpu", "6"), ("memory", "64Gi"), ("pods", "60")];
            world.put_node(&format!("large-{at:02}"), &labels, &room);
        }
        let one = pod("crowd").label("app", "crowd").cpu("100m").memory("100Mi");
        let spread = spread(ZONE, 1, with_label("app", "crowd"));
        world.put_pods(&many(560, &if seed % 2 == 0 { one } else { one.spread(spread) }));
        for group in 5..15 {
            draw.put_group(&mut world, group);
        }
        let solution = world.plan().solution;
        let kept: usize = solution.existing.values().map(Vec::len).sum();
        stayed += usize::from(kept >= 500);
        let faults = referee::faults(&world, &solution);
        assert!(faults.is_empty(), "seed {seed}: {faults:#?}");
    }
    assert!(stayed >= 10, "{stayed} of 20 have so many");
}

/// Pods come in another order and under other names.
///
/// Rows: WEA-032
#[test]
fn names_and_order_decide_nothing() {
    cases(1, |seed, world| {
        let mut renamed = World::new(Vec::new(), world.types.clone());
        renamed.cluster = world.cluster.clone();
        renamed.remove_pods(|_| false);
        for (at, pod) in world.cluster.pods.values().rev().enumerate() {
            let mut pod = (**pod).clone();
            let name = format!("{:04}-{}", (at as u64 * 7919 + seed) % 10_007, pod.key.name);
            (pod.key.name, pod.uid.0) = (Symbol::new(&name), Symbol::new(&name));
            renamed.cluster.put_pod(std::sync::Arc::new(pod));
        }
        let (one, other) = (world.plan().solution, renamed.plan().solution);
        assert_eq!(outline(world, &one), outline(&renamed, &other), "seed {seed}");
    });
}

#[test]
fn a_pool_that_no_pod_may_use_changes_nothing() {
    cases(2, |seed, world| {
        let before = world.plan().solution;
        let mut more = World::new(Vec::new(), world.types.clone());
        more.cluster = world.cluster.clone();
        let mut unrelated = world.cluster.pools.values().next().expect("there is one").as_ref().clone();
        unrelated.name = PoolName::new("unrelated");
        more.put_pool(unrelated.weight(50).taint("nobody", "tolerates", Effect::NoSchedule));
        let after = more.plan().solution;
        assert!(cost(&after) <= cost(&before), "seed {seed}");
        assert_eq!(outline(world, &before), outline(&more, &after), "seed {seed}");
    });
}

/// But for pods that want to be near others, or apart, by zone: as long as a new node may be in any of several zones it is in
/// none of them for those who come after, so they wait a round. And but for limits, which reckon with the largest machine that
/// a new node may turn out to be.
#[test]
fn a_plan_that_is_carried_out_leaves_nothing_to_plan() {
    cases(3, |seed, world| {
        if world.cluster.pools.values().any(|pool| pool.limits.is_some()) {
            return;
        }
        let mut carried_out = World::new(Vec::new(), world.types.clone());
        carried_out.cluster = world.cluster.clone();
        carried_out.run(&[]);
        let rest = carried_out.plan().solution;
        let placed = rest.new_nodes.iter().map(|node| &node.pods).chain(rest.existing.values()).flatten();
        let minds_zones = |pod: &&ObjectKey| {
            let shape = &world.cluster.pods[*pod].shape;
            let mut terms = shape.anti_affinity_required.iter().chain(&shape.affinity_required);
            terms.any(|term| &*term.topology_key == ZONE)
        };
        let placed: Vec<_> = placed.filter(|pod| !minds_zones(pod)).collect();
        assert!(placed.is_empty(), "seed {seed}: {placed:?}");
    });
}

#[test]
fn the_lower_bound_is_one() {
    cases(4, |seed, world| {
        let (solution, bound) = world.asking(provisor::capacity::scheduling::solve_bounded);
        assert!(bound <= cost(&solution), "seed {seed}: {bound} is above {}", cost(&solution));
    });
}
