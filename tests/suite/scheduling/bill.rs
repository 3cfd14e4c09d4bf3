//! What a plan costs, and the least that any plan could.

use provisor::capacity::scheduling::{NewNode, Solution, solve_bounded};
use provisor::model::money::UsdPerHour;
use provisor::model::offering::{CapacityType, InstanceType};
use provisor::model::requirement::Operator::*;
use provisor::model::taint::Effect;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::world::*;

struct Chance(ChaCha8Rng);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const ZONES: [&str; 2] = [Z1, Z2];

/// A few machines at any prices.
fn types(chance: &mut Chance) -> Vec<InstanceType> {
    (0..1 + chance.below(6))
        .map(|at| {
            let cpu = chance.one_of(&["1", "2", "3500m", "4", "7", "8", "16"]);
            let memory = chance.one_of(&["1Gi", "3Gi", "4Gi", "9Gi", "16Gi", "60Gi"]);
            let pods = chance.one_of(&["2", "4", "8", "50"]);
            let mut offered = Vec::new();
            for zone in ZONES {
                for kind in [CapacityType::Spot, CapacityType::OnDemand] {
                    if chance.below(3) > 0 {
                        offered.push((zone, kind, (1 + chance.below(400)) as f64 / 1000.0));
                    }
                }
            }
            let name = format!("type-{at}");
            machine(&name, &[("cpu", cpu), ("memory", memory), ("pods", pods)], &offered)
        })
        .filter(|kind| !kind.offerings.is_empty())
        .collect()
}

fn some_pod(chance: &mut Chance, name: &str) -> A {
    let mut one = pod(name)
        .cpu(chance.one_of(&["100m", "400m", "1", "1300m", "2", "3"]))
        .memory(chance.one_of(&["100Mi", "700Mi", "1Gi", "2Gi", "5Gi"]));
    if chance.below(4) == 0 {
        one = one.select(ZONE, chance.one_of(&ZONES));
    }
    if chance.below(4) == 0 {
        one = one.select(CAPACITY_TYPE, "on-demand");
    }
    if chance.below(3) == 0 {
        one = one.tolerate("team", None, None);
    }
    one
}

/// Two pools, one of them tainted; sometimes a daemon.
fn some_world(chance: &mut Chance) -> World {
    let mut tainted =
        pool("tainted").taint("team", "blue", Effect::NoSchedule).weight(chance.below(2) as u32);
    if chance.below(2) == 0 {
        tainted = tainted.require(CAPACITY_TYPE, In, &["spot"]);
    }
    let mut world = World::new(vec![pool("plain"), tainted], types(chance));
    if chance.below(2) == 0 {
        world.put_daemon("agent", &pod("agent").cpu("150m").memory("50Mi"));
    }
    world
}

fn price(nodes: &[NewNode]) -> UsdPerHour {
    nodes.iter().map(NewNode::price).sum()
}

/// The cheapest way of all to carry `pods`, by trying every one: each pod alone, and each set together.
fn cheapest(world: &World, pods: &[A]) -> Option<i64> {
    let daemon = world.cluster.daemon_sets.values().next().map(|set| set.shape.requests.clone());
    let tolerates = |one: &A| !one.shape.tolerations.is_empty();
    let machine_for = |set: usize| -> Option<i64> {
        let members: Vec<&A> =
            (0..pods.len()).filter(|at| set & (1 << at) != 0).map(|at| &pods[at]).collect();
        let mut best: Option<i64> = None;
        for pool in world.cluster.pools.values() {
            let is_tainted = !pool.template.taints.is_empty();
            if is_tainted && !members.iter().all(|one| tolerates(one)) {
                continue;
            }
            let is_spot_only = pool.template.requirements.iter().any(|(key, _)| &*key == CAPACITY_TYPE);
            for kind in &world.types {
                let mut sum = amounts(&[]);
                members.iter().for_each(|one| sum.add(&one.shape.requests));
                // The daemon tolerates nothing.
                daemon.iter().filter(|_| !is_tainted).for_each(|daemon| sum.add(daemon));
                if sum.iter().any(|(name, amount)| amount > kind.allocatable.get(name)) {
                    continue;
                }
                for offering in &kind.offerings {
                    let is_asked = |one: &&A| {
                        one.shape.node_selector.iter().all(|(key, value)| match &**key {
                            ZONE => offering.zone.0 == *value,
                            _ => offering.capacity_type.symbol() == *value,
                        })
                    };
                    let is_sold = !is_spot_only || offering.capacity_type == CapacityType::Spot;
                    if is_sold && members.iter().all(is_asked) {
                        let price = offering.price.0;
                        best = Some(best.map_or(price, |known| known.min(price)));
                    }
                }
            }
        }
        best
    };
    let all = 1_usize << pods.len();
    let prices: Vec<Option<i64>> = (0..all).map(machine_for).collect();
    let mut least: Vec<Option<i64>> = vec![None; all];
    least[0] = Some(0);
    for set in 1..all {
        let mut part = set;
        while part > 0 {
            if let (Some(price), Some(rest)) = (prices[part], least[set & !part]) {
                least[set] = Some(least[set].map_or(price + rest, |known| known.min(price + rest)));
            }
            part = (part - 1) & set;
        }
    }
    least[all - 1]
}

fn bounded(world: &World) -> (Solution, UsdPerHour) {
    world.asking(solve_bounded)
}

#[test]
fn no_way_to_carry_pods_costs_less_than_the_bound() {
    let mut ratios = Vec::new();
    for seed in 0..200 {
        let mut chance = Chance::new(seed);
        let mut world = some_world(&mut chance);
        let pods: Vec<A> =
            (0..1 + chance.below(7)).map(|at| some_pod(&mut chance, &format!("pod-{at}"))).collect();
        world.put_pods(&pods);
        let (solution, bound) = bounded(&world);
        let placed: Vec<A> = pods
            .into_iter()
            .filter(|one| {
                let is_it = |key: &provisor::model::name::ObjectKey| *key.name == *one.name;
                solution.new_nodes.iter().any(|node| node.pods.iter().any(is_it))
            })
            .collect();
        if placed.is_empty() {
            assert_eq!(bound, UsdPerHour::ZERO);
            continue;
        }
        let least = cheapest(&world, &placed).expect("the plan is one way");
        assert!(bound.0 <= least, "seed {seed}: the bound is {bound}, but {} is enough", UsdPerHour(least));
        assert!(least <= price(&solution.new_nodes).0, "seed {seed}: no plan is cheaper than the cheapest");
        ratios.push(bound.0 as f64 / least as f64);
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(mean > 0.85, "the bound is of use: {mean}");
}

#[test]
fn no_plan_costs_less_than_its_bound() {
    let mut plans = 0;
    for seed in 0..1_000 {
        let mut chance = Chance::new(10_000 + seed);
        let mut world = some_world(&mut chance);
        if chance.below(3) == 0 {
            world.put_node("there", &[(ZONE, Z1)], &[("cpu", "4"), ("memory", "8Gi"), ("pods", "10")]);
        }
        let pods: Vec<A> = (0..1 + chance.below(40))
            .map(|at| {
                let mut one = some_pod(&mut chance, &format!("pod-{at}"));
                match chance.below(12) {
                    0 => one = one.host_port(8080),
                    1 => one = one.label("app", "a").far(near(HOSTNAME, with_label("app", "a"))),
                    2 => one = one.label("app", "b").spread(spread(ZONE, 1, with_label("app", "b"))),
                    _ => {}
                }
                one
            })
            .collect();
        world.put_pods(&pods);
        let (solution, bound) = bounded(&world);
        assert!(bound <= price(&solution.new_nodes), "seed {seed}: {bound}");
        assert_eq!(bound > UsdPerHour::ZERO, !solution.new_nodes.is_empty(), "seed {seed}");
        plans += usize::from(!solution.new_nodes.is_empty());
    }
    assert!(plans > 600, "{plans}");
}
