//! What an engine remembers of earlier passes spares it work and changes nothing: one that begins anew with the same objects decides
//! the same, byte for byte.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::buffer::{BufferSource, BufferStatus, CapacityBuffer, PodTemplate};
use provisor::model::catalog::Catalog;
use provisor::model::name::{ObjectKey, Uid};
use provisor::model::observation::Observation;
use provisor::model::pod::{Pod, PodShape, PodTerm, Selector, SelectorTerm, Spread};
use provisor::model::pool::{Budget, BudgetNodes, ConsolidationPolicy};
use provisor::model::requirement::Operator;
use provisor::model::taint::{Effect, Taint};
use provisor::model::time::Patience;
use provisor::model::workload::PodDisruptionBudget;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::town::*;

struct Chance(ChaCha8Rng);

impl Chance {
    fn below(&mut self, count: usize) -> usize {
        (self.0.next_u64() % count as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Few kinds of pods, some of which look at others.
    fn shape(&mut self) -> PodShape {
        let app = self.of(&["a", "b", "c", "d"]);
        let mut shape = shape(app, self.of(&["100m", "250m", "400m", "700m", "900m", "1300m"]));
        let term = SelectorTerm { key: "app".into(), operator: Operator::In, values: vec![app.into()] };
        let selector = Some(Selector { terms: vec![term] });
        match self.below(16) {
            0 => shape.spreads.push(Spread {
                max_skew: 1,
                topology_key: "topology.kubernetes.io/zone".into(),
                is_required: true,
                selector,
                min_domains: None,
                honors_affinity: true,
                honors_taints: false,
                match_label_keys: Vec::new(),
            }),
            1 => shape.anti_affinity_required.push(PodTerm {
                selector,
                topology_key: "kubernetes.io/hostname".into(),
                namespaces: Vec::new(),
                namespace_selector: None,
                match_label_keys: Vec::new(),
                mismatch_label_keys: Vec::new(),
            }),
            2 => shape.do_not_disrupt = Some("5m".into()),
            _ => {}
        }
        shape
    }
}

fn town(chance: &mut Chance) -> Town {
    let mut town = Town::with(|pool| {
        pool.disruption.consolidate_after = Patience::of(SignedDuration::from_secs(chance.of(&[0, 0, 30])));
        let nodes = chance.of(&[BudgetNodes::Percent(100), BudgetNodes::Count(1), BudgetNodes::Percent(0)]);
        pool.disruption.budgets = vec![Budget { nodes, reasons: Vec::new(), window: None }];
        if chance.one_in(4) {
            pool.disruption.policy = ConsolidationPolicy::Balanced;
        }
    });
    for at in 0..4 + chance.below(9) {
        let (name, kind) = (format!("n{at:02}"), chance.of(&["m5.large", "m5.large", "m5.xlarge"]));
        town.node_in(chance.of(&["us-west-2a", "us-west-2b"]), "default", &name, kind, "on-demand");
        let mut left: i64 = if kind == "m5.large" { 1930 } else { 3920 };
        for slot in 0..8 {
            let shape = chance.shape();
            let asked = shape.requests.cpu().0;
            if asked <= left {
                left -= asked;
                town.run(&format!("{name}-{slot}"), &name, shape);
            }
        }
    }
    town
}

/// Something happens.
fn news(engine: &Engine, chance: &mut Chance, step: usize, now: Timestamp) -> Vec<Observation> {
    let cluster = engine.cluster();
    let nodes: Vec<_> = cluster.nodes.values().cloned().collect();
    let pods: Vec<_> = cluster.pods.values().cloned().collect();
    let (Some(node), Some(some)) =
        (nodes.get(chance.below(nodes.len().max(1))), pods.get(chance.below(pods.len().max(1))))
    else {
        return Vec::new();
    };
    let pod = |pod: Pod| vec![Observation::Pod(Arc::new(pod))];
    let changed = |change: &dyn Fn(&mut provisor::model::node::Node)| {
        let mut node = (**node).clone();
        change(&mut node);
        vec![Observation::Node(Arc::new(node))]
    };
    match chance.below(16) {
        0 | 1 => vec![Observation::PodGone(some.key)],
        2 | 3 => {
            let late = super::town::pod(&format!("late-{step}"), Some(node.name.as_str()), chance.shape());
            pod(Pod { started: Some(now), ..late })
        }
        4 => pod(super::town::pod(&format!("late-{step}"), None, chance.shape())),
        5 => pod(Pod { is_ready: !some.is_ready, ..(**some).clone() }),
        6 if some.node.is_none() => {
            let here = super::town::pod("here", Some(node.name.as_str()), shape("a", "100m"));
            pod(Pod { key: some.key, uid: some.uid, shape: some.shape.clone(), ..here })
        }
        7 => changed(&|node| node.is_cordoned = !node.is_cordoned),
        8 => changed(&|node| match node.taints.pop() {
            Some(_) => {}
            None => node.taints.push(Taint::new("kept", "", Effect::NoSchedule)),
        }),
        9 => {
            let app = chance.of(&["a", "b"]);
            vec![Observation::Budget(Arc::new(pdb(app, app, chance.of(&[0, 1, 5]))))]
        }
        10 => vec![Observation::BudgetGone(pdb("a", "a", 1).key)],
        12 => {
            // How many may be away is counted from the pods.
            let counted = PodDisruptionBudget { disruptions_allowed: None, ..pdb("b", "b", 1) };
            vec![Observation::Budget(Arc::new(counted))]
        }
        13 => vec![Observation::Catalog(chance.of(&[catalog, other_prices])())],
        11 => {
            let Some(gone) = cluster.claims.values().find(|claim| claim.deleted.is_some()) else {
                return Vec::new();
            };
            let node = cluster.node_of(gone).map(|node| node.name);
            let mut news: Vec<Observation> = Vec::new();
            if let Some(node) = node {
                news.extend(cluster.pods_of(node).map(|pod| Observation::PodGone(pod.key)));
                news.push(Observation::NodeGone(node));
            }
            news.push(Observation::ClaimGone(gone.name));
            news
        }
        _ => Vec::new(),
    }
}

fn other_prices() -> Arc<Catalog> {
    sold(
        "m5.large,amd64,2,8192,1930m,6903Mi,29,,,0.120,0.045,us-west-2a us-west-2b,on-demand spot\n\
         m5.xlarge,amd64,4,16384,3920m,14162Mi,58,,,0.180,0.06,us-west-2a us-west-2b,on-demand spot\n\
         m5.2xlarge,amd64,8,32768,7910m,29317Mi,58,,,0.384,0.14,us-west-2a us-west-2b,on-demand spot",
    )
}

#[test]
fn who_remembers_decides_what_who_begins_anew_decides() {
    let mut judged = 0;
    for seed in 0..24 {
        let chance = &mut Chance(ChaCha8Rng::seed_from_u64(seed));
        let town = town(chance);
        let mut now = town.now;
        let mut engine = engine_of(&town.cluster, now, EngineSettings::default());
        for step in 0..60 {
            for _ in 0..chance.below(3) {
                for seen in news(&engine, chance, step, now) {
                    engine.observe(now, seen);
                }
            }
            now += SignedDuration::from_secs(chance.of(&[1, 10, 10, 10, 10, 20, 40, 310]));
            let mut anew = engine.clone();
            let (one, other) = (engine.decide(now), anew.decide(now));
            let where_it_is = format!("seed {seed}, step {step}");
            assert_eq!(one.actions, other.actions, "{where_it_is}");
            assert_eq!(one.stays, other.stays, "{where_it_is}");
            assert_eq!(one.plan, other.plan, "{where_it_is}");
            assert_eq!(one.wake_at, other.wake_at, "{where_it_is}");
            judged += one.plan.disruption.kept.len();
        }
    }
    assert!(judged > 2_000, "nodes were judged");
}

/// What goes without anything new is not looked into again, and debug builds hold that against looking (`consolidation::start`). Here many
/// nodes go one by one, room is kept, pods wait without a plan, and some look at others.
#[test]
fn what_is_found_to_go_is_what_would_be_found_after_all_that_goes_before() {
    let mut commands = 0;
    for seed in 100..160 {
        let chance = &mut Chance(ChaCha8Rng::seed_from_u64(seed));
        let looks_at_others = chance.one_in(2);
        let mut town = Town::with(|pool| {
            pool.disruption.consolidate_after = Patience::of(SignedDuration::ZERO);
            let nodes = chance.of(&[BudgetNodes::Percent(100), BudgetNodes::Count(5)]);
            pool.disruption.budgets = vec![Budget { nodes, reasons: Vec::new(), window: None }];
        });
        for at in 0..24 + chance.below(9) {
            let name = format!("n{at:02}");
            let kind = chance.of(&["m5.large", "m5.large", "m5.xlarge"]);
            town.node_in(chance.of(&["us-west-2a", "us-west-2b"]), "default", &name, kind, "on-demand");
            for slot in 0..1 + chance.below(3) {
                let cpu = chance.of(&["100m", "250m", "400m", "600m"]);
                let shape = if looks_at_others { chance.shape() } else { shape("a", cpu) };
                town.run(&format!("{name}-{slot}"), &name, shape);
            }
        }
        for at in 0..chance.below(6) {
            let waiting =
                super::town::pod(&format!("waits-{at}"), None, shape("a", chance.of(&["400m", "900m"])));
            town.cluster.observe(town.now, &Observation::Pod(Arc::new(waiting)));
        }
        for (at, cpu) in ["300m", "700m", "1100m"].into_iter().enumerate().take(chance.below(4)) {
            let key = ObjectKey::new("default", &format!("spare-{at}"));
            let unit = PodTemplate { key, generation: 1, shape: Arc::new(shape("unit", cpu)) };
            town.cluster.observe(town.now, &Observation::PodTemplate(Arc::new(unit)));
            let buffer = CapacityBuffer {
                key,
                uid: Uid(key.name),
                created: None,
                is_deleting: false,
                strategy: "buffer.x-k8s.io/active-capacity".into(),
                source: Some(BufferSource::Template(key.name)),
                replicas: Some(3),
                percentage: None,
                limits: None,
                status: BufferStatus::default(),
            };
            town.cluster.observe(town.now, &Observation::Buffer(Arc::new(buffer)));
        }
        let mut engine = engine_of(&town.cluster, town.now, EngineSettings::default());
        commands += engine.decide(town.now).plan.disruption.commands.len();
    }
    assert!(commands > 100, "{commands} commands");
}
