//! The second construction: new nodes that are bought for their price, for pods that no rule binds to others.
//!
//! Which machines to buy, and whom for, is worked out as if pods had nothing but requests and machines that they may be on
//! ([`packing`](super::packing)). The nodes are then opened one by one and take their pods in like all others, so whatever is not legal is refused;
//! pods that were refused, and all that was not asked here, come after them in the usual order. Nodes that were opened for their price
//! take those only as far as it lasts.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::super::amounts::Amounts;
use super::super::bin::Guest;
use super::super::bound::{Market, Ways};
use super::super::demand::{DemandId, Level};
use super::super::ground::Ground;
use super::super::packing::pack;
use super::super::{NewNode, Request, Solution};
use super::by_priority::{unserved, unserved_requests};
use super::{Grievances, Search, Turn, surroundings};
use crate::model::action::LaunchOption;
use crate::model::hash::{FastMap, FastSet};
use crate::model::money::UsdPerHour;
use crate::model::name::{ObjectKey, TypeName};
use crate::model::offering::CapacityType;
use crate::model::pod::PodShape;

/// Fewer pods than this on new nodes are left as they are: a few large nodes are easier to keep to than many small ones, and there
/// is little to save. So are all if most are under rules.
const PODS_MIN: usize = 100;

/// More types than this make no difference to what may happen to a node.
const TYPES_AMPLE: usize = 20;

/// How often what was refused is packed again.
const ROUNDS: usize = 6;

/// What new nodes are packed for.
#[derive(Default)]
pub(super) struct Packing {
    /// Pods of the request that get new nodes anyway.
    pods: FastSet<usize>,
    /// Those of the others that are placed before.
    before: FastSet<usize>,
    /// What the nodes of `pods` cost so far, if they are worth packing only for less.
    bill: Option<UsdPerHour>,
    has_opened: bool,
}

impl Packing {
    /// Nothing was packed, and the answer would be the one that is known.
    pub fn is_idle(&self) -> bool {
        !self.has_opened
    }
}

/// Pods for one new node.
struct Bundle {
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
pub(super) fn cheaper(
    ground: &mut Ground,
    request: &Request,
    first: &Solution,
    turn: Turn,
    grievances: &Grievances,
) -> Option<Solution> {
    let packings = packings(request, first);
    let answers = packings.into_iter().filter_map(|packing| {
        let grievances = grievances.clone();
        let mut search =
            Search { turn, grievances, packing: Some(packing), ..Search::begin(request, ground) };
        search.run();
        let is_idle = search.packing.as_ref().is_none_or(Packing::is_idle);
        (!is_idle).then(|| search.solution())
    });
    answers.filter(|second| saves(request, second, first, UsdPerHour::ZERO)).min_by_key(with_risk)
}

/// Whether `second` costs less by more than `least`, and nobody has to pay for that otherwise.
pub(super) fn saves(request: &Request, second: &Solution, first: &Solution, least: UsdPerHour) -> bool {
    serves(request, second, first)
        && keeps_to_weights(request, second, first)
        && cost(second).0 < cost(first).0 - least.0
        && with_risk(second).0 < with_risk(first).0 - least.0
}

/// Whether no fewer pods have a place, and, where they are as many, none that ask for less.
fn serves(request: &Request, second: &Solution, first: &Solution) -> bool {
    match unserved(request, second).cmp(&unserved(request, first)) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal => {
            let (cpu, memory) = unserved_requests(request, second);
            let (cpu_before, memory_before) = unserved_requests(request, first);
            cpu <= cpu_before && memory <= memory_before
        }
    }
}

/// For whom new nodes may be packed: all who have one in `first`; and, if limits hold some of those nodes back, all but their pods, because
/// packing for those as well may leave heavier pools with fewer.
fn packings(request: &Request, first: &Solution) -> Vec<Packing> {
    let is_limited =
        |node: &&NewNode| request.cluster.pools.get(&node.pool).is_some_and(|pool| pool.limits.is_some());
    let (limited, free): (Vec<&NewNode>, Vec<&NewNode>) = first.new_nodes.iter().partition(is_limited);
    let pods_of = |nodes: &[&NewNode]| -> FastSet<usize> {
        let keys: FastSet<ObjectKey> = nodes.iter().flat_map(|node| node.pods.iter().copied()).collect();
        let is_one = |pod: &usize| {
            let pod = &request.pods[*pod];
            pod.buffer().is_none() && keys.contains(&pod.key)
        };
        (0..request.pods.len()).filter(is_one).collect()
    };
    let (of_limited, of_free) = (pods_of(&limited), pods_of(&free));
    let mut packings = Vec::new();
    if limited.is_empty() {
        let bill = Some(cost(first));
        packings.push(Packing { pods: of_free, bill, ..Packing::default() });
    } else {
        let all = of_limited.union(&of_free).copied().collect();
        packings.push(Packing { pods: all, ..Packing::default() });
        packings.push(Packing { pods: of_free, before: of_limited, ..Packing::default() });
    }
    packings.retain(|packing| {
        let bound = packing.pods.iter().filter(|pod| is_bound(&request.pods[**pod].shape)).count();
        packing.pods.len() >= PODS_MIN && packing.pods.len() - bound >= least_free(packing.pods.len())
    });
    packings
}

/// Whether pods of this shape are never packed, whatever wishes they give up.
fn is_bound(shape: &PodShape) -> bool {
    let has_rules = !shape.affinity_required.is_empty() || !shape.anti_affinity_required.is_empty();
    let is_spread = shape.spreads.iter().any(|spread| spread.is_required);
    has_rules || is_spread || shape.has_resource_claims || !shape.host_ports.is_empty()
}

/// So many of the pods have to be free of rules for them to be packed.
fn least_free(pods: usize) -> usize {
    pods.div_ceil(2)
}

/// Whether `second` gives no fewer pods new nodes of the heaviest pools, of the next ones, and so on. A pod that has room that is there
/// instead is none that its pool lost.
fn keeps_to_weights(request: &Request, second: &Solution, first: &Solution) -> bool {
    let (before, mut after) = (by_weight(request, first, |_| true), by_weight(request, second, |_| true));
    if after >= before {
        return true;
    }
    let there: FastSet<ObjectKey> = second.existing.values().flatten().copied().collect();
    let spared = by_weight(request, first, |pod| there.contains(pod));
    after.iter_mut().zip(spared).for_each(|(count, spared)| *count += spared);
    after >= before
}

/// How many pods get new nodes of the heaviest pools, of the next ones, and so on: what limits charge for many small nodes
/// may leave a pool less room than for a few large ones.
fn by_weight(request: &Request, solution: &Solution, counts_for: impl Fn(&ObjectKey) -> bool) -> Vec<usize> {
    let pools = &request.cluster.pools;
    let mut counts: BTreeMap<Reverse<u32>, usize> =
        pools.values().map(|pool| (Reverse(pool.weight), 0)).collect();
    for node in &solution.new_nodes {
        let weight = pools.get(&node.pool).map_or(0, |pool| pool.weight);
        *counts.entry(Reverse(weight)).or_default() += node.pods.iter().filter(|pod| counts_for(pod)).count();
    }
    counts.into_values().collect()
}

pub(super) fn cost(solution: &Solution) -> UsdPerHour {
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
    /// Opens nodes that are worked out for many pods at once, and gives back the pods that are still without a place. What the limits
    /// of a pool refuse is packed again, for whoever still sells to it.
    pub(super) fn pack(&mut self, mut ordered: Vec<usize>) -> Vec<usize> {
        let Some(mut packing) = self.packing.take() else { return ordered };
        ordered.retain(|pod| !packing.before.contains(pod) || self.attempt(*pod).is_err());
        for round in 0..ROUNDS {
            let is_waiting = |pod: &usize| packing.pods.contains(pod);
            let waiting: Vec<usize> = ordered.iter().copied().filter(is_waiting).collect();
            let pods_min = if round == 0 { least_free(waiting.len()) } else { 1 };
            let bundles = self.bundles_for(&waiting, pods_min, packing.bill.take());
            let placed = self.open_bundles(bundles);
            if placed.is_empty() {
                break;
            }
            packing.has_opened = true;
            ordered.retain(|pod| !placed.contains(pod));
        }
        self.packing = Some(packing);
        ordered
    }

    /// What to buy for those of `pods` that no rule binds; nothing if they are fewer than `pods_min`, or if nothing is to be gained on
    /// a bill of `bill` for all of them.
    fn bundles_for(&mut self, pods: &[usize], pods_min: usize, bill: Option<UsdPerHour>) -> Vec<Bundle> {
        let mut offered: FastMap<DemandId, Option<Offered>> = FastMap::default();
        let mut waiting: BTreeMap<DemandId, Vec<usize>> = BTreeMap::new();
        for (rank, pod) in pods.iter().enumerate() {
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
        if count < pods_min {
            return Vec::new();
        }
        let bill = bill.filter(|_| count == pods.len()).map(|bill| bill.0);
        let bundles = pack(&market, bill).into_iter().map(|bundle| {
            let machine = &market.machines[bundle.machine];
            let mut its_pods = Vec::new();
            for (group, count) in bundle.pods {
                let from = members[group].len() - count as usize;
                let taken = members[group].drain(from..).rev();
                its_pods.extend(taken.map(|(rank, level)| (pods[rank], level)));
            }
            Bundle { template: machine.template, price: UsdPerHour(machine.price), pods: its_pods }
        });
        bundles.collect()
    }

    /// What pods of the demand could have for themselves, if no rule, port or volume and no reservation plays a part.
    fn offered(&mut self, id: DemandId) -> Option<Offered> {
        let demand = self.ground.demands.get(id);
        let volumes = demand.volumes.as_ref().ok()?;
        let is_free = volumes.alternatives.is_empty() && volumes.attached.is_empty();
        // Whoever keeps its pods away from its own node only is not on a node that is opened for them.
        let (shunned, topology) = (self.shunned(&demand), &self.layout.topology);
        let is_kept_from_domains = shunned.iter().any(|rule| !topology.is_by_host(*rule));
        if !is_free || demand.shape.has_resource_claims || is_kept_from_domains {
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

    /// Opens the nodes that were worked out; the pods that got a place there.
    fn open_bundles(&mut self, bundles: Vec<Bundle>) -> FastSet<usize> {
        let mut placed: FastSet<usize> = FastSet::default();
        for bundle in bundles {
            let mut bin = None;
            for (pod, at) in &bundle.pods {
                if self.put_in(*pod, *at, &mut bin, &bundle) {
                    placed.insert(*pod);
                }
            }
        }
        placed
    }

    /// Puts the pod onto the bundle's node, the number of which is in `bin` once it is opened.
    fn put_in(&mut self, pod: usize, at: usize, bin: &mut Option<usize>, bundle: &Bundle) -> bool {
        let demand = self.ground.demands.get(self.demands[pod]);
        let level: Arc<Level> = self.level(&demand, at).expect("it was asked for before");
        let volumes = demand.volumes.as_ref().expect("pods with broken volumes are in no bundle");
        let (shunned, topology) = (self.shunned(&demand), &self.layout.topology);
        let stances = topology.stances(&level.owned, &shunned, level.asked(), &self.ground.book);
        let guest = Guest { demand: &demand, level: &level, volumes, stances: &stances };
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
                let bin = &self.layout.bins[index];
                let mut requests = Amounts::new();
                bin.sum_with(&guest, &self.ground.columns, &mut requests);
                let mut around =
                    surroundings(self.ground, &self.layout.topology, &self.layout.reservations, self.request);
                let Ok(admission) = bin.admits(index, &guest, &requests, &mut around) else { return false };
                self.take_bin(pod, index, &guest, admission);
                true
            }
        }
    }
}
