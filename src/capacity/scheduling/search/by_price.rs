//! The second construction: new nodes that are bought for their price, for pods that no rule binds to others.
//!
//! Which machines to buy, and whom for, is worked out as if pods had nothing but requests and machines that they may be on
//! ([`packing`](super::packing)). The nodes are then opened one by one and take their pods in like all others, so whatever is not legal is refused;
//! pods that were refused, and all that was not asked here, come after them in the usual order. Nodes that were opened for their price
//! take those only as far as it lasts.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::super::amounts::Amounts;
use super::super::bin::Guest;
use super::super::bound::{Market, Ways};
use super::super::demand::{DemandId, Level};
use super::super::ground::Ground;
use super::super::packing::pack;
use super::super::{Request, Solution};
use super::{Search, surroundings};
use crate::model::hash::{FastMap, FastSet};
use crate::model::money::UsdPerHour;
use crate::model::name::ObjectKey;

/// Fewer pods than this on new nodes are left as they are.
const PODS_MIN: usize = 50;

/// Pods for one new node.
pub(super) struct Bundle {
    template: usize,
    price: UsdPerHour,
    /// Each with the number of wishes that it has given up.
    pods: Vec<(usize, usize)>,
}

/// What a demand could have by itself.
struct Offered {
    /// The number of wishes that it has given up.
    level: usize,
    ways: Ways,
}

/// An answer to `request` that is cheaper than `first`, and in which no more pods have no place.
pub(super) fn cheaper(ground: &mut Ground, request: &Request, first: &Solution) -> Option<Solution> {
    let count: usize = first.new_nodes.iter().map(|node| node.pods.len()).sum();
    if count < PODS_MIN {
        return None;
    }
    let mut search = Search::begin(request, ground);
    search.bundles = search.bundles_for(first);
    if search.bundles.is_empty() {
        return None;
    }
    search.run();
    let second = search.solution();
    let cost =
        |solution: &Solution| -> UsdPerHour { solution.new_nodes.iter().map(|node| node.price()).sum() };
    let is_better = second.unschedulable.len() <= first.unschedulable.len() && cost(&second) < cost(first);
    is_better.then_some(second)
}

impl Search<'_, '_> {
    /// What to buy for those pods that `first` puts on new nodes and that no rule binds.
    fn bundles_for(&mut self, first: &Solution) -> Vec<Bundle> {
        let on_new: FastSet<ObjectKey> =
            first.new_nodes.iter().flat_map(|node| node.pods.iter().copied()).collect();
        let mut offered: FastMap<DemandId, Option<Offered>> = FastMap::default();
        let mut waiting: BTreeMap<DemandId, VecDeque<usize>> = BTreeMap::new();
        for pod in self.ordered() {
            let asks = &self.request.pods[pod];
            if asks.buffer().is_some() || !on_new.contains(&asks.key) {
                continue;
            }
            let id = self.demands[pod];
            if offered.entry(id).or_insert_with(|| self.offered(id)).is_some() {
                waiting.entry(id).or_default().push_back(pod);
            }
        }
        let offered = |id: &DemandId| offered[id].as_ref().expect("only those with an offer wait");
        let mut numbers: BTreeMap<&Ways, usize> = BTreeMap::new();
        let mut wanted: Vec<(usize, Amounts, i64)> = Vec::with_capacity(waiting.len());
        for (id, pods) in &waiting {
            let next = numbers.len();
            let company = *numbers.entry(&offered(id).ways).or_insert(next);
            wanted.push((company, self.ground.demands.get(*id).requests.clone(), pods.len() as i64));
        }
        let mut companies: Vec<(usize, Ways)> =
            numbers.into_iter().map(|(ways, number)| (number, ways.clone())).collect();
        companies.sort_by_key(|(number, _)| *number);
        let companies: Vec<Ways> = companies.into_iter().map(|(_, ways)| ways).collect();
        let (market, groups) = Market::carrying(self.ground, self.settings, &companies, wanted);
        let mut members: Vec<Vec<(usize, usize)>> = vec![Vec::new(); market.groups.len()];
        for ((id, pods), group) in waiting.iter().zip(groups) {
            let level = offered(id).level;
            members[group].extend(pods.iter().map(|pod| (*pod, level)));
        }
        members.iter_mut().for_each(|pods| pods.reverse());
        let bundles = pack(&market).into_iter().map(|bundle| {
            let machine = &market.machines[bundle.machine];
            let mut pods = Vec::new();
            for (group, count) in bundle.pods {
                let from = members[group].len() - count as usize;
                pods.extend(members[group].drain(from..).rev());
            }
            Bundle { template: machine.template, price: UsdPerHour(machine.price), pods }
        });
        bundles.collect()
    }

    /// What pods of the demand could have for themselves, if no rule, port or volume and no reservation plays a part.
    fn offered(&mut self, id: DemandId) -> Option<Offered> {
        let demand = self.ground.demands.get(id);
        let volumes = demand.volumes.as_ref().ok()?;
        let is_free = volumes.alternatives.is_empty() && volumes.attached.is_empty();
        if !is_free || demand.shape.has_resource_claims || !self.shunned(&demand).is_empty() {
            return None;
        }
        let mut at = 0;
        while let Some(level) = self.level(&demand, at) {
            if !level.owned.is_empty() || !level.shape.host_ports.is_empty() {
                return None;
            }
            let guest = Guest { demand: &demand, level: &level, volumes, stances: &[] };
            if let Some(ways) = self.ways(&guest) {
                let templates = &self.ground.templates;
                let draws = |(of, ways): (usize, &FixedBitSet)| {
                    templates[of].reserved().iter().any(|at| ways.contains(*at))
                };
                let is_reserved = ways.iter().enumerate().any(draws);
                return (!is_reserved).then_some(Offered { level: at, ways });
            }
            at += 1;
        }
        None
    }

    /// Of the heaviest pools that take the guest, those of equal weight: the ways to buy a node for it.
    fn ways(&mut self, guest: &Guest) -> Option<Ways> {
        let count = self.ground.templates.len();
        let mut ways: Option<Ways> = None;
        let mut weight = None;
        for index in 0..count {
            let template = &self.ground.templates[index];
            let (of, length) = (template.pool.weight, template.open.len());
            if weight.is_some_and(|weight| weight != of) {
                break;
            }
            if let Ok((bin, admission)) = self.open_bin(index, guest) {
                weight = Some(of);
                let none =
                    || self.ground.templates.iter().map(|one| FixedBitSet::with_capacity(one.open.len()));
                let mut open = (*self.ground.outlooks.get(admission.outlook()).open).clone();
                debug_assert!(bin.template == index && open.len() == length);
                ways.get_or_insert_with(|| none().collect())[index].union_with(&std::mem::take(&mut open));
            }
        }
        ways
    }

    /// Opens the nodes that were worked out, and gives back the pods that are still without a place.
    pub(super) fn open_bundles(&mut self, ordered: Vec<usize>) -> Vec<usize> {
        let bundles = std::mem::take(&mut self.bundles);
        let mut placed: FastSet<usize> = FastSet::default();
        let waiting: FastSet<usize> = match bundles.is_empty() {
            true => FastSet::default(),
            false => ordered.iter().copied().collect(),
        };
        for bundle in bundles {
            let mut bin = None;
            for (pod, at) in bundle.pods.iter().filter(|(pod, _)| waiting.contains(pod)) {
                if self.put_in(*pod, *at, &mut bin, &bundle) {
                    placed.insert(*pod);
                }
            }
        }
        ordered.into_iter().filter(|pod| !placed.contains(pod)).collect()
    }

    /// Puts the pod onto the bundle's node, the number of which is in `bin` once it is opened.
    fn put_in(&mut self, pod: usize, at: usize, bin: &mut Option<usize>, bundle: &Bundle) -> bool {
        let demand = self.ground.demands.get(self.demands[pod]);
        let level: Arc<Level> = self.level(&demand, at).expect("it was asked for before");
        let volumes = demand.volumes.as_ref().expect("pods with broken volumes are in no bundle");
        let guest = Guest { demand: &demand, level: &level, volumes, stances: &[] };
        match *bin {
            None => {
                let Ok((mut opened, admission)) = self.open_bin(bundle.template, &guest) else {
                    return false;
                };
                opened.price_max = Some(bundle.price);
                let index = self.layout.bins.len();
                self.layout.bins.push(Rc::new(opened));
                self.take_bin(pod, index, &guest, admission);
                *bin = Some(index);
                true
            }
            Some(index) => {
                let known = self.layout.bins[index].clone();
                let mut around =
                    surroundings(self.ground, &self.layout.topology, &self.layout.reservations, self.request);
                let Ok(admission) = known.admits(index, &guest, &mut around) else { return false };
                self.take_bin(pod, index, &guest, admission);
                true
            }
        }
    }
}
