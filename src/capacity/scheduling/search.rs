//! The order in which placements are tried.
//!
//! Large pods first; for each, nodes that are there, then nodes opened for earlier pods (the emptiest first), then a new
//! one from the heaviest pool that can. A pod that finds no place goes to the back of the queue with all its wishes,
//! until a whole cycle brings nothing.
//!
//! Equal pods are one demand, and what a demand was refused is remembered: rooms and new nodes only ever shrink, so all but
//! topology's refusals are final. What is left to ask is a set of marks, and the first mark is asked first.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::amounts::{self, Amounts};
use super::bin::{Admission, Bin, Guest, Surroundings};
use super::demand::{Demand, DemandId, Level};
use super::explain::{Refusal, Refused};
use super::ground::{Ground, removed};
use super::marks::Marks;
use super::outlook::OutlookId;
use super::reservations::Reservations;
use super::template::Template;
use super::topology::{RuleId, Sight, Spot, Topology};
use super::volumes::Attached;
use super::{Mode, NewNode, Request, Settings, Solution, Unschedulable};
use crate::model::action::LaunchOption;
use crate::model::hash::FastMap;
use crate::model::label::{self, Labels};
use crate::model::offering::CapacityType;
use crate::model::pod::{HostPort, Pod};
use crate::model::quantity::{Resources, resource};
use crate::model::requirement::{Operator, Requirement, Requirements};
use crate::model::symbol::Symbol;

/// Places the pods of `request`, as few nodes and as cheap as first-fit finds them.
pub fn solve(request: &Request) -> Solution {
    solve_on(&mut Ground::new(request.cluster, request.supply, request.pods), request)
}

/// The same in a picture that is prepared: `ground` is that of the request's cluster.
pub(crate) fn solve_on(ground: &mut Ground, request: &Request) -> Solution {
    let mut search = Search::new(request, ground);
    search.run();
    search.finish()
}

/// Puts pods into the order in which they are placed.
pub(crate) fn arrange(pods: &mut [Arc<Pod>]) {
    pods.sort_by(|one, other| sooner(one, other));
}

/// CPU, then memory, largest first; then the older; then by uid and name.
fn sooner(one: &Pod, other: &Pod) -> Ordering {
    let size = |pod: &Pod| (pod.shape.requests.cpu(), pod.shape.requests.memory());
    size(other).cmp(&size(one)).then_with(|| {
        let rest = |pod: &Pod| (pod.created.is_none(), pod.created, pod.uid, pod.key);
        rest(one).cmp(&rest(other))
    })
}

/// What became of one demand so far.
#[derive(Default)]
struct Record {
    memory: Vec<Memory>,
    failure: Option<Failure>,
}

/// Who refused a level for good.
#[derive(Clone, Default)]
struct Memory {
    rooms: Marks,
    bins: Marks,
    templates: BTreeMap<usize, Refused>,
}

/// Why a group has no place, and until when that holds.
#[derive(Clone)]
struct Failure {
    reasons: Rc<Vec<Refusal>>,
    is_deferred: bool,
    /// Nothing that follows can change it.
    is_final: bool,
    /// Number of pods placed when it was found.
    at: usize,
}

/// Rooms, less what was placed on them.
struct Rooms {
    /// A row for each, one after the other.
    left: Vec<i64>,
    width: usize,
    /// Ports and volumes, where they are not what they were.
    changed: FastMap<usize, (Vec<HostPort>, Attached)>,
    /// Those that take pods at all; and those that take pods that have a place.
    open: Marks,
    settled: Marks,
}

/// New nodes by number of pods, then age.
#[derive(Default)]
struct Order {
    by_pods: Vec<(usize, Marks)>,
}

impl Order {
    fn put(&mut self, bin: usize, pods: usize) {
        if pods >= self.by_pods.len() {
            self.by_pods.resize(pods + 1, Default::default());
        }
        self.by_pods[pods].0 += 1;
        self.by_pods[pods].1.insert(bin);
    }

    fn take(&mut self, bin: usize, pods: usize) {
        self.by_pods[pods].0 -= 1;
        self.by_pods[pods].1.remove(bin);
    }

    fn levels(&self) -> impl Iterator<Item = &Marks> {
        self.by_pods.iter().filter(|(count, _)| *count > 0).map(|(_, bins)| bins)
    }
}

struct Search<'a, 'g> {
    request: &'a Request<'a>,
    settings: &'a Settings,
    ground: &'g mut Ground,
    /// What the limits of each template still allow, and the ways to buy within them.
    limits: Vec<Option<(Resources, Rc<FixedBitSet>)>>,
    rooms: Rooms,
    on_rooms: FastMap<usize, Vec<usize>>,
    bins: Vec<Bin>,
    order: Order,
    topology: Topology,
    reservations: Reservations,
    demands: Vec<DemandId>,
    records: Vec<Record>,
    /// By size of requests: rooms and bins that are too full.
    too_full: Vec<(Marks, Marks)>,
    /// What opening a node takes from limits, by what it may become and the size of its first pod.
    charges: FastMap<(OutlookId, usize), Resources>,
    placed: usize,
    failed: Vec<(usize, Failure)>,
}

/// What a new node looks at before it takes a pod.
fn surroundings<'s>(
    ground: &'s mut Ground,
    topology: &'s Topology,
    reservations: &'s Reservations,
    request: &'s Request,
) -> Surroundings<'s> {
    let Ground { book, outlooks, templates, rooms, columns, .. } = ground;
    Surroundings {
        sight: Sight { book, outlooks, templates, rooms },
        topology,
        reservations,
        settings: request.settings,
        columns,
        insists_on_reserved: matches!(request.mode, Mode::Provisioning),
    }
}

/// What a failed try came to.
struct Refusals {
    by_pool: Vec<(usize, Refused)>,
    is_final: bool,
    is_deferred: bool,
}

impl<'a, 'g> Search<'a, 'g> {
    fn new(request: &'a Request<'a>, ground: &'g mut Ground) -> Self {
        let demands: Vec<DemandId> = request.pods.iter().map(|pod| ground.demand(request, pod)).collect();
        let leaving = ground.leaving(request);
        let topology = Topology::new(leaving, removed(ground, request), &mut ground.book);
        let limits = ground.templates.iter().map(|template| {
            let left = template.left.clone()?;
            let within = template.within_limits(&left);
            Some((left, within))
        });
        let mut search = Self {
            settings: request.settings,
            request,
            limits: limits.collect(),
            rooms: Rooms::new(ground, request),
            on_rooms: FastMap::default(),
            bins: Vec::new(),
            order: Order::default(),
            topology,
            reservations: ground.reservations.clone(),
            demands,
            records: Vec::new(),
            too_full: Vec::new(),
            charges: FastMap::default(),
            placed: 0,
            failed: Vec::new(),
            ground,
        };
        search.records.resize_with(search.ground.demands.len(), Record::default);
        search.take_up_rules();
        search
    }

    /// Rules of pods that wait count from the start.
    fn take_up_rules(&mut self) {
        let mut demands = self.demands.clone();
        demands.sort_unstable();
        demands.dedup();
        for id in demands {
            let demand = self.ground.demands.get(id);
            for rule in demand.shunned(&self.ground.book).iter() {
                self.take_up(*rule);
            }
            self.level(&demand, 0);
        }
    }

    fn take_up(&mut self, rule: RuleId) {
        let Ground { book, outlooks, templates, rooms, .. } = &mut *self.ground;
        self.topology.take_up(rule, &mut Sight { book, outlooks, templates, rooms });
    }

    /// Pods that stand for room come after all others, and get what those leave.
    fn run(&mut self) {
        let (room, pods): (Vec<usize>, Vec<usize>) =
            self.ordered().into_iter().partition(|at| self.request.pods[*at].buffer().is_some());
        for queue in [pods, room] {
            self.run_through(queue.into());
        }
    }

    fn run_through(&mut self, mut queue: VecDeque<usize>) {
        let mut length_at_push: FastMap<usize, usize> = FastMap::default();
        let mut last: FastMap<usize, Failure> = FastMap::default();
        while let Some(pod) = queue.front().copied() {
            if length_at_push.get(&pod) == Some(&queue.len()) {
                break;
            }
            queue.pop_front();
            match self.attempt(pod) {
                Ok(()) => drop(last.remove(&pod)),
                Err(failure) if failure.is_final => self.failed.push((pod, failure)),
                Err(failure) => {
                    last.insert(pod, failure);
                    queue.push_back(pod);
                    length_at_push.insert(pod, queue.len());
                }
            }
        }
        for pod in queue {
            let failure = last.remove(&pod).expect("a pod is queued again only with its failure");
            self.failed.push((pod, failure));
        }
    }

    fn ordered(&self) -> Vec<usize> {
        let pods = self.request.pods;
        let mut order: Vec<usize> = (0..pods.len()).collect();
        // Runs that are in order already cost next to nothing.
        order.sort_by(|one, other| sooner(&pods[*one], &pods[*other]));
        order
    }

    fn attempt(&mut self, pod: usize) -> Result<(), Failure> {
        let id = self.demands[pod];
        if let Some(failure) = &self.records[id].failure
            && (failure.is_final || failure.at == self.placed)
        {
            return Err(failure.clone());
        }
        let demand = self.ground.demands.get(id);
        let fault = match &demand.volumes {
            Err(fault) => Some(Refused::VolumeFault(fault.clone())),
            Ok(_) if demand.shape.has_resource_claims => Some(Refused::Devices),
            Ok(_) => None,
        };
        let failure = if let Some(refused) = fault {
            self.failure(vec![refused.of_every_pool()], true, false)
        } else {
            let mut are_all_final = true;
            let mut last = None;
            let mut at = 0;
            while let Some(level) = self.level(&demand, at) {
                match self.place(pod, &demand, at, &level) {
                    Ok(()) => return Ok(()),
                    Err(tried) => {
                        are_all_final &= tried.is_final;
                        let is_deferred = tried.is_deferred;
                        last = Some(tried);
                        if is_deferred {
                            break;
                        }
                    }
                }
                at += 1;
            }
            let refusals = last.expect("a demand has at least one level");
            let told = refusals.by_pool.into_iter().map(|(template, refused)| {
                self.detailed(refused).of_pool(self.ground.templates[template].pool.name)
            });
            self.failure(told.collect(), are_all_final, refusals.is_deferred)
        };
        self.records[id].failure = Some(failure.clone());
        Err(failure)
    }

    fn failure(&self, reasons: Vec<Refusal>, is_final: bool, is_deferred: bool) -> Failure {
        Failure { reasons: Rc::new(reasons), is_deferred, is_final, at: self.placed }
    }

    /// With the counts that a rule refused by.
    fn detailed(&self, refused: Refused) -> Refused {
        match refused {
            Refused::Topology { rule, key, group: Some(group), .. } => {
                let domains = self.topology.shown(group, &self.ground.book);
                Refused::Topology { rule, key, group: Some(group), domains }
            }
            other => other,
        }
    }

    /// The demand's wishes after `level` were given up; its rules count from now on.
    fn level(&mut self, demand: &Demand, level: usize) -> Option<Rc<Level>> {
        let Ground { demands, book, rooms, has_soft_taints, .. } = &mut *self.ground;
        let (policy, cluster) = (self.settings.preferences, self.request.cluster);
        let found = demands.level(demand, level, policy, *has_soft_taints, cluster, book, rooms)?;
        let memory = &mut self.records[demand.id].memory;
        if level >= memory.len() {
            memory.push(Memory::default());
            for (rule, _) in &found.owned {
                self.take_up(*rule);
            }
        }
        Some(found)
    }

    fn place(&mut self, pod: usize, demand: &Demand, at: usize, level: &Level) -> Result<(), Refusals> {
        if demand.size >= self.too_full.len() {
            self.too_full.resize(demand.size + 1, Default::default());
        }
        let shunned = demand.shunned(&self.ground.book);
        let stances = self.topology.stances(&level.owned, &shunned, &level.strict, &self.ground.book);
        let volumes = demand.volumes.as_ref().expect("pods with broken volumes are not tried");
        let guest = Guest { demand, level, volumes, stances: &stances };
        if let Some(room) = self.first_room(at, &guest) {
            self.rooms.take(room, &self.ground.rooms[room], &guest);
            self.on_rooms.entry(room).or_default().push(pod);
            self.record(demand, Spot::Room(room));
            return Ok(());
        }
        let (index, admission) = match self.first_bin(at, &guest) {
            Some(found) => found,
            None => self.new_bin(at, &guest)?,
        };
        let bin = &mut self.bins[index];
        let held = bin.held.clone();
        bin.take(pod, &guest, admission);
        self.reservations.exchange(&held, &bin.held);
        let (pods, template, outlook) = (bin.pods.len(), bin.template, bin.outlook);
        if pods == 1 {
            self.charge(index, demand.size);
        } else {
            self.order.take(index, pods - 1);
        }
        self.order.put(index, pods);
        debug_assert!(self.ground.outlooks.get(outlook).template == template);
        let Ground { book, outlooks, templates, rooms, .. } = &mut *self.ground;
        self.topology.see_bin(index, outlook, &mut Sight { book, outlooks, templates, rooms });
        self.record(demand, Spot::Bin(index));
        Ok(())
    }

    fn record(&mut self, demand: &Demand, spot: Spot) {
        let Ground { book, outlooks, templates, rooms, .. } = &mut *self.ground;
        let mut sight = Sight { book, outlooks, templates, rooms };
        self.topology.record(&demand.standing, spot, &mut sight);
        self.placed += 1;
    }

    /// The limits of the pool lose the new node, which has one pod of this size.
    fn charge(&mut self, bin: usize, size: usize) {
        let bin = &self.bins[bin];
        if let Some((left, within)) = &mut self.limits[bin.template] {
            let template = &self.ground.templates[bin.template];
            let charge = self.charges.entry((bin.outlook, size)).or_insert_with(|| {
                template.charge(&bin.open(template, &self.ground.outlooks.get(bin.outlook).open))
            });
            *left =
                left.iter().map(|(name, amount)| (name, amount.saturating_sub(charge.get(name)))).collect();
            *within = template.within_limits(left);
        }
    }

    /// The first existing node that takes the pod.
    fn first_room(&mut self, at: usize, guest: &Guest) -> Option<usize> {
        let Guest { demand, level, volumes, stances } = guest;
        let Ground { book, outlooks, templates, rooms, .. } = &mut *self.ground;
        if rooms.is_empty() {
            return None;
        }
        let memory = &mut self.records[demand.id].memory[at];
        let too_full = &mut self.too_full[demand.size].0;
        let mut open = if demand.is_homeless { self.rooms.open.clone() } else { self.rooms.settled.clone() };
        open.take_away(&memory.rooms);
        open.take_away(too_full);
        let (asked, refused) = &mut *level.asked.borrow_mut();
        open.take_away(refused);
        self.topology.narrow_rooms(stances, &mut open, book);
        let mut sight = Sight { book, outlooks, templates, rooms };
        let mut next = open.first_from(0);
        while let Some(index) = next {
            next = open.first_from(index + 1);
            let room = &rooms[index];
            if !asked.contains(index) {
                asked.insert(index);
                if !room.suits(demand, level) {
                    refused.insert(index);
                    continue;
                }
            }
            if !amounts::fits(&demand.requests, self.rooms.row(index)) {
                too_full.insert(index);
                continue;
            }
            let (ports, attached) = match self.rooms.changed.get(&index) {
                Some((ports, attached)) => (ports, attached),
                None => (&room.ports, &room.attached),
            };
            let taken = |port: &HostPort| ports.iter().any(|present| present.clashes_with(port));
            if level.shape.host_ports.iter().any(taken) || attached.exceeded_by(&volumes.attached).is_some() {
                memory.rooms.insert(index);
                continue;
            }
            if stances.is_empty() || self.topology.admits_room(stances, index, &mut sight) {
                return Some(index);
            }
        }
        None
    }

    /// The first of the new nodes that takes the pod, the emptiest and then the oldest first.
    fn first_bin(&mut self, at: usize, guest: &Guest) -> Option<(usize, Admission)> {
        if self.bins.is_empty() {
            return None;
        }
        let memory = &mut self.records[guest.demand.id].memory[at];
        let too_full = &mut self.too_full[guest.demand.size].1;
        let mut open = Marks::all(self.bins.len());
        open.take_away(&memory.bins);
        open.take_away(too_full);
        self.topology.narrow_bins(guest.stances, &mut open, &self.ground.book);
        let mut requests: Amounts = Vec::new();
        for level in self.order.levels() {
            while let Some(index) = level.first_common(&open) {
                open.remove(index);
                let bin = &self.bins[index];
                requests.clone_from(&bin.requests);
                amounts::add(&mut requests, &guest.demand.requests);
                if !self.ground.outlooks.get(bin.outlook).has_room(&requests) {
                    too_full.insert(index);
                    continue;
                }
                let mut around = surroundings(self.ground, &self.topology, &self.reservations, self.request);
                match bin.admits(index, guest, &mut around) {
                    Ok(admission) => return Some((index, admission)),
                    Err(refused) if refused.is_final() => memory.bins.insert(index),
                    Err(_) => {}
                }
            }
        }
        None
    }

    /// A new node of the heaviest pool that can.
    fn new_bin(&mut self, at: usize, guest: &Guest) -> Result<(usize, Admission), Refusals> {
        // With rules, some nodes that refused now may not refuse later.
        let mut is_final = guest.stances.is_empty() && self.reservations.is_empty();
        let mut by_pool = Vec::new();
        for index in 0..self.ground.templates.len() {
            let known = self.records[guest.demand.id].memory[at].templates.get(&index).cloned();
            let opened = match known {
                Some(refused) => Err(refused),
                None => self.open_bin(index, guest),
            };
            match opened {
                Ok((bin, admission)) => {
                    self.bins.push(bin);
                    return Ok((self.bins.len() - 1, admission));
                }
                Err(refused) => {
                    let is_deferred = refused == Refused::Reserved;
                    by_pool.push((index, refused.clone()));
                    if is_deferred {
                        return Err(Refusals { by_pool, is_final: false, is_deferred });
                    }
                    if refused.is_final() {
                        self.records[guest.demand.id].memory[at].templates.insert(index, refused);
                    } else {
                        is_final = false;
                    }
                }
            }
        }
        Err(Refusals { by_pool, is_final, is_deferred: false })
    }

    fn open_bin(&mut self, index: usize, guest: &Guest) -> Result<(Bin, Admission), Refused> {
        let number = self.bins.len();
        let mut around = surroundings(self.ground, &self.topology, &self.reservations, self.request);
        let template = &around.sight.templates[index];
        let mut tried = |open: &Rc<FixedBitSet>| {
            let bin = Bin::new(index, around.sight.outlooks.fresh(index, template, open), around.columns);
            let admission = bin.admits(number, guest, &mut around)?;
            Ok((bin, admission))
        };
        let Some((left, within)) = &self.limits[index] else { return tried(&template.open) };
        if left.listed(*resource::NODES).is_some_and(|nodes| nodes <= 0) {
            // A pod that the pool would not take anyway is told so; the limit is not its obstacle.
            tried(&template.open)?;
            return Err(Refused::NodesLimit);
        }
        match tried(within) {
            Err(refused) if *within != template.open => match tried(&template.open) {
                Ok(_) => Err(if refused.is_final() { Refused::Limits } else { refused }),
                Err(refused) => Err(refused),
            },
            decided => decided,
        }
    }

    fn finish(self) -> Solution {
        let pods = self.request.pods;
        let key = |at: &usize| pods[*at].key;
        let new_nodes = self.bins.iter().map(|bin| new_node(bin, pods, self.settings, self.ground));
        let new_nodes = new_nodes.collect();
        let mut unschedulable: Vec<Unschedulable> = self
            .failed
            .iter()
            .map(|(pod, failure)| Unschedulable {
                pod: key(pod),
                reasons: failure.reasons.iter().chain(self.skipped_for(failure)).cloned().collect(),
                is_deferred: failure.is_deferred,
            })
            .collect();
        unschedulable.sort_by_key(|left| left.pod);
        Solution {
            new_nodes,
            existing: self
                .on_rooms
                .iter()
                .map(|(room, pods)| (self.ground.rooms[*room].place, pods.iter().map(key).collect()))
                .collect(),
            unschedulable,
        }
    }

    /// Pools that could not even be asked are named too, unless the pod itself is at fault.
    fn skipped_for(&self, failure: &Failure) -> impl Iterator<Item = &Refusal> {
        let is_at_fault = failure.reasons.iter().any(|reason| reason.pool.is_none());
        self.ground.skipped.iter().filter(move |_| !is_at_fault)
    }
}

impl Rooms {
    fn new(ground: &Ground, request: &Request) -> Self {
        let mut open = Marks::all(ground.rooms.len());
        for room in ground.closed(request) {
            open.remove(room);
        }
        let mut settled = open.clone();
        if let Mode::Simulation { settling } = request.mode {
            for room in settling.iter().filter_map(|node| ground.room(*node)) {
                settled.remove(room);
            }
        }
        Self {
            left: ground.rooms.iter().flat_map(|room| &room.left).copied().collect(),
            width: ground.columns.len(),
            changed: FastMap::default(),
            open,
            settled,
        }
    }

    fn row(&self, at: usize) -> &[i64] {
        &self.left[at * self.width..(at + 1) * self.width]
    }

    fn take(&mut self, at: usize, room: &super::room::Room, guest: &Guest) {
        amounts::subtract(&mut self.left[at * self.width..(at + 1) * self.width], &guest.demand.requests);
        let ports = &guest.level.shape.host_ports;
        if !ports.is_empty() || !guest.volumes.attached.is_empty() {
            let changed = self.changed.entry(at);
            let (held, attached) = changed.or_insert_with(|| (room.ports.clone(), room.attached.clone()));
            held.extend(ports.iter().copied());
            attached.attach(&guest.volumes.attached);
        }
    }
}

/// Ways to buy that nodes have in common, with the daemons that will certainly run.
#[derive(Default)]
pub(super) struct Sellers {
    by_open: FastMap<(usize, FixedBitSet), Seller>,
    /// By what a node may become and what it holds, where reservations play no part.
    by_outlook: FastMap<(OutlookId, Amounts), Seller>,
}

#[derive(Clone)]
struct Seller {
    options: Arc<Vec<LaunchOption>>,
    daemons: Option<Amounts>,
}

impl Sellers {
    fn of(&mut self, bin: &Bin, template: &Template, open: &FixedBitSet, settings: &Settings) -> Seller {
        let is_plain = template.reserved().is_empty();
        if is_plain && let Some(known) = self.by_outlook.get(&(bin.outlook, bin.requests.clone())) {
            return known.clone();
        }
        let mut open = bin.open(template, open);
        if settings.reserved_capacity {
            for at in template.reserved() {
                let reservation = template.offering(*at).reservation.map(|reservation| reservation.id);
                if open.contains(*at) && !reservation.is_some_and(|id| bin.held.contains(&id)) {
                    open.set(*at, false);
                }
            }
            if !bin.held.is_empty() {
                open.intersect_with(&template.reserved_set());
            }
        }
        let seller = self.by_open.entry((bin.template, open)).or_insert_with_key(|(_, open)| Seller {
            options: Arc::new(template.options(open)),
            daemons: template.least_daemons(open),
        });
        if is_plain {
            self.by_outlook.insert((bin.outlook, bin.requests.clone()), seller.clone());
        }
        seller.clone()
    }
}

fn new_node(bin: &Bin, pods: &[Arc<Pod>], settings: &Settings, ground: &mut Ground) -> NewNode {
    let Ground { templates, outlooks, columns, sellers, .. } = ground;
    let template = &templates[bin.template];
    let outlook = outlooks.get(bin.outlook);
    let mut requirements = (*outlook.requirements).clone();
    requirements.remove(*label::HOSTNAME);
    if settings.reserved_capacity && !bin.held.is_empty() {
        requirements.add(*label::CAPACITY_TYPE, Requirement::one(CapacityType::Reserved.symbol()));
        let ids = Requirement::new(Operator::In, bin.held.iter().copied());
        requirements.add(*label::RESERVATION_ID, ids);
    }
    let Seller { options, daemons } = sellers.of(bin, template, &outlook.open, settings);
    let mut requests = bin.requests.clone();
    if let Some(daemons) = daemons {
        amounts::add(&mut requests, &daemons);
    }
    let requests: Resources = columns.resources(&requests);
    NewNode {
        pool: template.pool.name,
        labels: labels_of(template, &requirements),
        requirements,
        taints: template.taints().to_vec(),
        requests,
        pods: bin.pods.iter().map(|at| pods[*at].key).collect(),
        options,
        is_min_values_relaxed: bin.is_min_values_relaxed,
    }
}

/// The pool's labels, and one value for every other label of the user's that the node must have. Where any number will
/// do, the smallest that is allowed.
fn labels_of(template: &Template, requirements: &Requirements) -> Labels {
    let pool = &template.pool;
    let mut labels = pool.template.labels.clone();
    labels.insert(*label::NODEPOOL, pool.name.0);
    labels.insert(pool.template.class.label_key(), pool.template.class.name.0);
    for (key, requirement) in requirements.iter() {
        let is_of_pool = template.requirements.get(key).is_some();
        if is_of_pool
            && !label::is_well_known(key)
            && !label::is_restricted(key)
            && let Some(value) = some_value(requirement)
        {
            labels.entry(key).or_insert(value);
        }
    }
    labels
}

fn some_value(requirement: &Requirement) -> Option<Symbol> {
    if let Some(values) = requirement.listed() {
        return values.first().copied();
    }
    let excluded = requirement.excluded().map_or(0, <[Symbol]>::len) as i64;
    let upper = requirement.upper().unwrap_or(i64::MAX);
    let start = requirement.lower().unwrap_or_else(|| 0.min(upper.saturating_sub(excluded)));
    (start..=upper)
        .take(excluded as usize + 1)
        .map(|number| Symbol::new(&number.to_string()))
        .find(|value| requirement.has(*value))
}
