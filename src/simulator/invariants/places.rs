//! Where pods could run, as anybody can find out who sees all of the world: on nodes that are there, or on a machine that can
//! be bought.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::capacity::disruption::has_to_move;
use crate::model::label;
use crate::model::name::{NodeName, ObjectKey, PoolName, Zone};
use crate::model::observation::Observation;
use crate::model::offering::InstanceType;
use crate::model::pod::{Pod, PodPhase, PodShape};
use crate::model::quantity::{Resources, resource};
use crate::model::requirement::{Requirement, Requirements};
use crate::model::taint::{Effect, first_untolerated};
use crate::simulator::scheduler;
use crate::simulator::world::World;

/// Chance decides among equal nodes: one of so many tries has to work.
const TRIES: u64 = 24;

/// The first pod that finds no node among the others when `nodes` go; `None`: all of them do, in some order.
pub(super) fn homeless_without(world: &World, nodes: &BTreeSet<NodeName>) -> Option<ObjectKey> {
    let mut cluster = world.objects().clone();
    let mut moving: Vec<Arc<Pod>> = Vec::new();
    for name in nodes {
        let pods: Vec<Arc<Pod>> = cluster.pods_of(*name).cloned().collect();
        for pod in pods {
            cluster.observe(world.now(), &Observation::PodGone(pod.key));
            if has_to_move(&pod) {
                let waits = Pod { node: None, phase: PodPhase::Pending, ..(*pod).clone() };
                moving.push(Arc::new(waits));
            }
        }
        cluster.observe(world.now(), &Observation::NodeGone(*name));
    }
    if moving.is_empty() {
        return None;
    }
    // What is large is placed first: kube-scheduler goes by age, so each is as old as it is small.
    moving.sort_by_key(|pod| (std::cmp::Reverse(pod.shape.requests.cpu()), pod.key));
    let aged: Vec<Arc<Pod>> = moving
        .iter()
        .enumerate()
        .map(|(at, pod)| {
            let created = Timestamp::from_second(at as i64).ok();
            Arc::new(Pod { created, ..(**pod).clone() })
        })
        .collect();
    let mut homeless = None;
    for seed in 0..TRIES {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let list = if seed % 2 == 0 { &aged } else { &moving };
        let bound = scheduler::bind(&cluster, list, &mut rng);
        homeless = list.iter().map(|pod| pod.key).find(|key| !bound.contains_key(key));
        if homeless.is_none() {
            break;
        }
    }
    homeless
}

/// What could be bought now for a pod alone.
#[derive(Default)]
pub(super) struct Places {
    types: Option<Arc<Vec<InstanceType>>>,
    /// What is left of limits, by pool; pools without are not there.
    left: BTreeMap<PoolName, Resources>,
    answers: BTreeMap<Arc<PodShape>, bool>,
}

impl Places {
    /// Takes in what is left of limits; answers are found anew.
    pub fn look_at(&mut self, world: &World) {
        self.answers.clear();
        let objects = world.objects();
        let class = objects.classes.values().next();
        self.types =
            objects.catalog.as_ref().map(|catalog| catalog.instance_types(class.map(|class| &**class)));
        self.left.clear();
        for pool in objects.pools.values() {
            let Some(limits) = &pool.limits else { continue };
            let mut left = limits.clone();
            for claim in objects.claims_of(pool.name) {
                // One that is not launched yet may become anything that is sold.
                let capacity = match claim.provider_id {
                    Some(_) => claim.capacity.clone(),
                    None => self.largest(),
                };
                left.subtract(&capacity);
                left.set(*resource::NODES, left.get(*resource::NODES) - 1);
            }
            self.left.insert(pool.name, left);
        }
    }

    fn largest(&self) -> Resources {
        let mut largest = Resources::new();
        self.types.iter().flat_map(|types| types.iter()).for_each(|kind| largest.raise(&kind.capacity));
        largest
    }

    /// Whether a machine for `pod` alone can be bought, wherever rules about other pods want it to be.
    pub fn has_place(&mut self, world: &World, pod: &Pod) -> bool {
        if let Some(known) = self.answers.get(&pod.shape) {
            return *known;
        }
        let objects = world.objects();
        let zones = objects.catalog.as_ref().map(|catalog| catalog.zones()).unwrap_or_default();
        let is_spread = pod.shape.spreads.iter().any(|spread| spread.is_required);
        let answer = match is_spread {
            true => zones.iter().all(|zone| self.can_be_bought(world, pod, Some(*zone))),
            false => self.can_be_bought(world, pod, None),
        };
        self.answers.insert(pod.shape.clone(), answer);
        answer
    }

    fn can_be_bought(&self, world: &World, pod: &Pod, zone: Option<Zone>) -> bool {
        let objects = world.objects();
        let mut wanted = Requirements::of_labels(&pod.shape.node_selector);
        if let Some(zone) = zone {
            wanted.add(*label::ZONE, Requirement::one(zone.0));
        }
        let mut needs = pod.shape.requests.clone();
        objects.daemon_sets.values().for_each(|set| needs.add(&set.shape.requests));
        let usable = objects.pools.values().filter(|pool| pool.is_ready && !pool.is_static());
        usable
            .filter(|pool| {
                let hard: Vec<_> = pool
                    .template
                    .taints
                    .iter()
                    .filter(|taint| taint.effect != Effect::PreferNoSchedule)
                    .copied()
                    .collect();
                first_untolerated(&hard, &pod.shape.tolerations).is_none()
            })
            .any(|pool| {
                let mut requirements = pool.template.requirements.clone();
                if requirements.intersects(&wanted).is_err() {
                    return false;
                }
                requirements.add_all(&wanted);
                let types = self.types.iter().flat_map(|types| types.iter());
                types.filter(|kind| kind.requirements.intersects(&requirements).is_ok()).any(|kind| {
                    let has_room = needs.fits(&kind.allocatable);
                    let is_within = self.left.get(&pool.name).is_none_or(|left| {
                        let limits = pool.limits.iter().flat_map(Resources::iter);
                        limits.map(|(name, _)| name).all(|name| {
                            let takes = if name == *resource::NODES { 1 } else { kind.capacity.get(name) };
                            takes <= left.get(name)
                        })
                    });
                    has_room
                        && is_within
                        && kind.offerings.iter().any(|offering| {
                            let key = (kind.name, offering.zone, offering.capacity_type);
                            offering.is_available
                                && offering.suits(&requirements)
                                && !world.cloud().is_dry(world.now(), key)
                        })
                })
            })
    }
}
