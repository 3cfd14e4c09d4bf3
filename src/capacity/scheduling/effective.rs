//! In which zone pods that wait can come to run, as their own words and the pods that are there have it: what people watch to see which
//! zone is asked for.
//!
//! Nothing is placed for this, and no price or room is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Request;
use super::demand::Demand;
use super::ground::Ground;
use super::topology::{Sight, Topology};
use crate::model::hash::FastMap;
use crate::model::label;
use crate::model::name::Zone;
use crate::model::pod::Pod;
use crate::model::requirement::Requirement;
use crate::model::symbol::Symbol;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EffectiveZone {
    /// There and nowhere else.
    In(Zone),
    Flexible,
    /// What is asked for contradicts itself, or what is there.
    Nowhere,
}

/// How many of the request's pods that wait in its cluster have which zone.
pub fn effective_zones(request: &Request) -> BTreeMap<EffectiveZone, usize> {
    effective_zones_on(&mut Ground::new(request.cluster, request.supply, request.pods), request)
}

pub(crate) fn effective_zones_on(ground: &mut Ground, request: &Request) -> BTreeMap<EffectiveZone, usize> {
    let mut topology = Topology::default();
    let mut known: FastMap<usize, EffectiveZone> = FastMap::default();
    let mut counts = BTreeMap::new();
    let waits = |pod: &&Arc<Pod>| pod.node.is_none() && request.cluster.pods.contains_key(&pod.key);
    for pod in request.pods.iter().filter(waits) {
        let id = ground.demand(request, pod);
        let zone = *known.entry(id).or_insert_with(|| {
            let demand = ground.demands.get(id);
            zone_of(&demand, &mut topology, ground, request)
        });
        *counts.entry(zone).or_default() += 1;
    }
    counts
}

fn zone_of(
    demand: &Demand,
    topology: &mut Topology,
    ground: &mut Ground,
    request: &Request,
) -> EffectiveZone {
    let Ground { demands, book, outlooks, templates, places, has_soft_taints, .. } = ground;
    let rooms = places.rooms();
    let policy = request.settings.preferences;
    let level = demands.level(demand, 0, policy, *has_soft_taints, request.cluster, book, rooms);
    let level = level.expect("a demand has at least one level");
    let sight = &mut Sight { book, outlooks, templates, rooms };
    let permitted = topology.permitted(&level.owned, level.asked(), *label::ZONE, sight);
    let asked = level.strict.get(*label::ZONE);
    let of_volumes: Vec<Option<&Requirement>> = demand.volumes.as_ref().map_or_else(
        |_| Vec::new(),
        |volumes| volumes.alternatives.iter().map(|place| place.get(*label::ZONE)).collect(),
    );
    let list = |requirement: Option<&Requirement>| Some(requirement?.listed()?.to_vec());
    let all_of_volumes: Option<Vec<Vec<Symbol>>> =
        of_volumes.iter().map(|place| list(*place)).collect::<Option<Vec<_>>>().filter(|all| !all.is_empty());
    let candidates = list(asked)
        .or_else(|| all_of_volumes.map(|all| all.into_iter().flatten().collect()))
        .or_else(|| permitted.clone());
    let Some(candidates) = candidates else { return EffectiveZone::Flexible };
    let suits = |zone: &Symbol| {
        let suits_volumes = of_volumes.is_empty()
            || of_volumes.iter().any(|place| place.is_none_or(|place| place.has(*zone)));
        asked.is_none_or(|asked| asked.has(*zone))
            && suits_volumes
            && permitted.as_ref().is_none_or(|permitted| permitted.contains(zone))
    };
    let left: BTreeSet<Symbol> = candidates.into_iter().filter(suits).collect();
    match left.len() {
        0 => EffectiveZone::Nowhere,
        1 => left.first().map_or(EffectiveZone::Nowhere, |zone| EffectiveZone::In(Zone(*zone))),
        _ => EffectiveZone::Flexible,
    }
}
