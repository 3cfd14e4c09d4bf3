//! The second construction: new nodes that are bought for their price, for pods that no rule binds to others.
//!
//! Which machines to buy, and whom for, is worked out as if pods had nothing but requests and machines that they may be on
//! ([`packing`](super::packing)). The nodes are then opened one by one and take their pods in like all others, so whatever is not legal is refused;
//! pods that were refused, and all that was not asked here, come after them in the usual order. Nodes that were opened for their price
//! take those only as far as it lasts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::super::bin::Guest;
use super::super::bound::{Market, Ways};
use super::super::demand::{DemandId, Level};
use super::super::ground::Ground;
use super::super::packing::pack;
use super::super::{NewNode, Request, Solution};
use super::{Search, surroundings};
use crate::model::action::LaunchOption;
use crate::model::hash::{FastMap, FastSet};
use crate::model::money::UsdPerHour;
use crate::model::name::{ObjectKey, TypeName};
use crate::model::offering::CapacityType;

/// Fewer pods than this on new nodes are left as they are: a few large nodes are easier to keep to than many small ones, and there
/// is little to save. So are all if most are under rules.
const PODS_MIN: usize = 100;

/// More types than this make no difference to what may happen to a node.
const TYPES_AMPLE: usize = 20;

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
    let is_better = second.unschedulable.len() <= first.unschedulable.len()
        && by_weight(request, &second) >= by_weight(request, first)
        && cost(&second) < cost(first)
        && with_risk(&second) < with_risk(first);
    is_better.then_some(second)
}

/// How many pods get new nodes of the heaviest pools, of the next ones, and so on: what limits charge for many small nodes
/// may leave a pool less room than for a few large ones.
fn by_weight(request: &Request, solution: &Solution) -> Vec<usize> {
    let pools = &request.cluster.pools;
    let mut counts: BTreeMap<Reverse<u32>, usize> =
        pools.values().map(|pool| (Reverse(pool.weight), 0)).collect();
    for node in &solution.new_nodes {
        let weight = pools.get(&node.pool).map_or(0, |pool| pool.weight);
        *counts.entry(Reverse(weight)).or_default() += node.pods.len();
    }
    counts.into_values().collect()
}

fn cost(solution: &Solution) -> UsdPerHour {
    solution.new_nodes.iter().map(NewNode::price).sum()
}

/// The same with what it is worth that a spot node may be many types: one that can be of a single type counts for a tenth more, of ten
/// for a hundredth.
fn with_risk(solution: &Solution) -> UsdPerHour {
    let mut types: FastMap<*const Vec<LaunchOption>, i64> = FastMap::default();
    let risk = |node: &NewNode| {
        if node.launch().capacity_type != CapacityType::Spot {
            return UsdPerHour::ZERO;
        }
        let count = types.entry(Arc::as_ptr(&node.options)).or_insert_with(|| {
            let mut seen: FastSet<TypeName> = FastSet::default();
            for option in node.options.iter() {
                seen.insert(option.instance_type);
                if seen.len() == TYPES_AMPLE {
                    break;
                }
            }
            seen.len() as i64
        });
        UsdPerHour(node.price().0 / (10 * *count))
    };
    let risk: UsdPerHour = solution.new_nodes.iter().map(risk).sum();
    cost(solution) + risk
}

impl Search<'_, '_> {
    /// What to buy for those pods that `first` puts on new nodes and that no rule binds.
    fn bundles_for(&mut self, first: &Solution) -> Vec<Bundle> {
        let on_new: FastSet<ObjectKey> =
            first.new_nodes.iter().flat_map(|node| node.pods.iter().copied()).collect();
        let mut offered: FastMap<DemandId, Option<Offered>> = FastMap::default();
        let mut waiting: BTreeMap<DemandId, Vec<usize>> = BTreeMap::new();
        let ordered = self.ordered();
        for (rank, pod) in ordered.iter().enumerate() {
            let asks = &self.request.pods[*pod];
            if asks.buffer().is_some() || !on_new.contains(&asks.key) {
                continue;
            }
            let id = self.demands[*pod];
            if offered.entry(id).or_insert_with(|| self.offered(id)).is_some() {
                waiting.entry(id).or_default().push(rank);
            }
        }
        let offered = |id: &DemandId| offered[id].as_ref().expect("only those with an offer wait");
        // Numbers follow from what they stand for: it does not matter who was met first.
        let companies: BTreeSet<&Ways> = waiting.keys().map(|id| &offered(id).ways).collect();
        let companies: Vec<Ways> = companies.into_iter().cloned().collect();
        let wanted = waiting.iter().map(|(id, pods)| {
            let company = companies.binary_search(&offered(id).ways).expect("it is one of them");
            (company, self.ground.demands.get(*id).requests.clone(), pods.len() as i64)
        });
        let wanted = wanted.collect();
        let (market, groups) = Market::carrying(self.ground, self.settings, &companies, wanted);
        let mut members: Vec<Vec<(usize, usize)>> = vec![Vec::new(); market.groups.len()];
        for ((id, ranks), group) in waiting.iter().zip(groups) {
            members[group].extend(ranks.iter().map(|rank| (*rank, offered(id).level)));
        }
        // The first of the order are taken from the end.
        members.iter_mut().for_each(|pods| pods.sort_unstable_by(|one, other| other.cmp(one)));
        let count: usize = members.iter().map(Vec::len).sum();
        if 2 * count < on_new.len() {
            return Vec::new();
        }
        let is_all = count == on_new.len();
        let bundles = pack(&market, is_all.then_some(cost(first).0)).into_iter().map(|bundle| {
            let machine = &market.machines[bundle.machine];
            let mut pods = Vec::new();
            for (group, count) in bundle.pods {
                let from = members[group].len() - count as usize;
                let taken = members[group].drain(from..).rev();
                pods.extend(taken.map(|(rank, level)| (ordered[rank], level)));
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
        let templates = self.ground.templates.iter();
        let sold: Vec<(u32, usize)> = templates.map(|one| (one.pool.weight, one.open.len())).collect();
        let mut heaviest = None;
        let mut ways = Ways::with_capacity(sold.len());
        for (index, (weight, length)) in sold.into_iter().enumerate() {
            let mut open = FixedBitSet::with_capacity(length);
            if heaviest.is_none_or(|heaviest| heaviest == weight)
                && let Ok((_, admission)) = self.open_bin(index, guest)
            {
                heaviest = Some(weight);
                open.union_with(&self.ground.outlooks.get(admission.outlook()).open);
            }
            ways.push(open);
        }
        heaviest.map(|_| ways)
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
