//! The order in which placements are tried.
//!
//! Large pods first; for each, nodes that are there, then nodes opened for earlier pods (the emptiest first), then a new
//! one from the heaviest pool that can. A pod that finds no place goes to the back of the queue with all its wishes,
//! until a whole cycle brings nothing.
//!
//! Where not all pods find a place, less important ones may have taken it. Then they are placed again, the most important first, and
//! that answer is given if it serves those better.
//!
//! Filling one node before the next is opened makes the largest machines, which are not the cheapest. So pods that new nodes are bought for are
//! placed again, many by price ([`by_price`]), few by what each adds to the bill ([`by_increase`]), and the cheaper answer is given.
//!
//! Equal pods are one demand, and what a demand was refused is remembered: rooms and new nodes only ever shrink, so all but
//! topology's refusals are final. What is left to ask is a set of marks, and the first mark is asked first.

mod by_increase;
mod by_price;
mod by_priority;
mod chain;
mod keeping;
mod footing;
mod turn;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

pub(crate) use self::chain::{Chain, Link, To};
pub(crate) use self::footing::{Differences, Footing, Relied};
use self::turn::{By, Turn, sooner};
use super::amounts::{self, Amounts};
use super::bin::{Admission, Bin, Guest, Surroundings};
use super::bound::lower_bound;
use super::demand::{Demand, DemandId, Level};
use super::explain::{Refusal, Refused};
use super::ground::{Ground, removed};
use super::layout::Layout;
use super::marks::Marks;
use super::outlook::OutlookId;
use super::reservations::Reservations;
use super::sellers::new_node;
use super::topology::{HostId, Leaving, RuleId, Sight, Spot, Stance, Topology};
use super::{Mode, Request, Settings, Solution, Unschedulable};
use crate::model::hash::FastMap;
use crate::model::money::UsdPerHour;
use crate::model::name::{ObjectKey, PoolName};
use crate::model::pod::{HostPort, Pod};
use crate::model::quantity::{Resources, resource};
use crate::model::taint::{Effect, Taint, first_untolerated};

/// Places the pods of `request`; where nodes are bought for many, as cheap as is found in a fixed amount of work.
pub fn solve(request: &Request) -> Solution {
    solve_on(&mut Ground::new(request.cluster, request.supply, request.pods), request)
}

/// The same, with the least that any new nodes cost which carry the pods that new nodes get here.
pub fn solve_bounded(request: &Request) -> (Solution, UsdPerHour) {
    let mut ground = Ground::new(request.cluster, request.supply, request.pods);
    let solution = solve_on(&mut ground, request);
    let bound = lower_bound(&ground, request, &solution);
    (solution, bound)
}

/// The same in a picture that is prepared: `ground` is that of the request's cluster.
pub(crate) fn solve_on(ground: &mut Ground, request: &Request) -> Solution {
    let first = answer(ground, request, Turn::BY_SIZE);
    if matches!(request.mode, Mode::Simulation { .. }) {
        return first;
    }
    let (solution, turn) = match by_priority::fairer(ground, request, &first) {
        Some(fairer) => (fairer, Turn::BY_PRIORITY),
        None => (first, Turn::BY_SIZE),
    };
    let (solution, turn, grievances) = match by_priority::left_over_first(ground, request, &solution, turn) {
        Some((second, grievances)) => (second, Turn { by: By::Grievance, ..turn }, grievances),
        None => (solution, turn, Grievances::default()),
    };
    let solution = by_price::cheaper(ground, request, &solution, turn, &grievances).unwrap_or(solution);
    by_increase::better(ground, request, &solution, turn).unwrap_or(solution)
}

fn answer(ground: &mut Ground, request: &Request, turn: Turn) -> Solution {
    let mut search = Search { turn, ..Search::begin(request, ground) };
    search.run();
    search.solution()
}

/// How badly pods fared in an earlier answer, those that did at all.
type Grievances = FastMap<ObjectKey, i64>;

/// Which of the new nodes that take a pod it gets, where it has no room on those that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fit {
    /// The first; a node is opened when there is none.
    First,
    /// The one that it makes dearer by the least, be it one that is opened for it.
    Cheapest,
    /// The one that it makes dearer by the least; a node is opened when there is none.
    CheapestOpen,
    /// None: the search ends with the first pod that would need one.
    Nothing,
}

/// Where a question ended: others about more pods of the same picture go on from there.
pub(crate) struct Beginning {
    pub solution: Solution,
    layout: Layout,
    /// By room: which placement it was, and of whom.
    on_rooms: FastMap<usize, Vec<(usize, Arc<Pod>)>>,
}

/// Rules of the request's pods count from here on, once for all questions that come after.
fn prepare(layout: &mut Layout, ground: &mut Ground, request: &Request) {
    let pods = request.pods.iter().map(|pod| ground.demand(request, pod));
    for id in pods.collect::<BTreeSet<DemandId>>() {
        let Ground { demands, book, outlooks, templates, places, has_soft_taints, .. } = &mut *ground;
        let (policy, rooms) = (request.settings.preferences, places.rooms());
        let demand = demands.get(id);
        let level = demands.level(&demand, 0, policy, *has_soft_taints, request.cluster, book, rooms);
        for (rule, _) in level.iter().flat_map(|level| &level.owned) {
            layout.topology.take_up(*rule, &mut Sight { book, outlooks, templates, rooms });
        }
    }
}

/// Places the pods of `request`, for others to come after them.
pub(crate) fn begin(ground: &mut Ground, request: &Request) -> Beginning {
    let mut search = Search::begin(request, ground);
    search.run();
    let on_rooms = search.on_rooms.iter().map(|(room, pods)| {
        let pods = pods.iter().map(|(placement, pod)| (*placement, request.pods[*pod].clone()));
        (*room, pods.collect())
    });
    let on_rooms = on_rooms.collect();
    Beginning { solution: search.solution(), layout: search.layout, on_rooms }
}

/// Places the pods of `request` after those of `beginning`, which stay where they are; but those on nodes that are
/// taken away now are placed again. New nodes of the beginning are among those of the solution, and of its pods only those that
/// were placed again.
pub(crate) fn go_on(ground: &mut Ground, beginning: &mut Beginning, request: &Request, fit: Fit) -> Solution {
    prepare(&mut beginning.layout, ground, request);
    let mut change = Change::of(ground, request);
    let mut pods = request.pods.to_vec();
    for room in &change.closed {
        for (placement, pod) in beginning.on_rooms.get(room).into_iter().flatten() {
            change.withdrawn.push(*placement);
            pods.push(pod.clone());
        }
    }
    let request = Request { pods: &pods, ..*request };
    let mut search = Search { fit, ..Search::new(&request, ground, beginning.layout.clone(), change) };
    search.run();
    search.solution()
}

/// Puts pods into the order in which they are placed.
pub(crate) fn arrange(pods: &mut [Arc<Pod>]) {
    pods.sort_by(|one, other| sooner(one, other));
}

/// What became of one demand so far.
#[derive(Default)]
struct Record {
    /// Rules of others that keep its pods away.
    shunned: Option<Rc<Vec<RuleId>>>,
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

struct Search<'a, 'g> {
    request: &'a Request<'a>,
    turn: Turn,
    fit: Fit,
    settings: &'a Settings,
    ground: &'g mut Ground,
    layout: Layout,
    demands: Vec<DemandId>,
    /// Pods of the request that are to be placed, if not all.
    waiting: Option<Rc<[usize]>>,
    records: Vec<Record>,
    /// By room: which placement it was, and of which pod of the request.
    on_rooms: FastMap<usize, Vec<(usize, usize)>>,
    /// New nodes, and which pod of the request each took.
    on_bins: Vec<(usize, usize)>,
    failed: Vec<(usize, Failure)>,
    /// Pods that were tried, some more than once.
    tried: Vec<usize>,
    /// A pod needs a new node, and none was to be given.
    needs_new: bool,
    /// Pools without limits are asked before those with, whatever their weight.
    spares_limits: bool,
    /// How badly pods fared in an earlier answer.
    grievances: Grievances,
    /// Pods for which new nodes are packed first.
    packing: Option<by_price::Packing>,
    /// By affinity rule: whether it selects pods that are not bound by it.
    has_free_members: FastMap<RuleId, bool>,
    /// Some pod waits for others, and all that could come before has.
    has_waited: bool,
    is_last_call: bool,
}

/// A new node that takes a pod: what it is, what it becomes, and what is asked of it then.
struct Taker<'b> {
    index: usize,
    bin: &'b Bin,
    becomes: Admission,
    requests: &'b [i64],
}

/// What makes new nodes the same to most pods: what they may become, what is asked of them, their price if they keep to one, and whether
/// rules permit the pod there.
type Alike<'b> = (OutlookId, &'b [i64], Option<UsdPerHour>, bool);

/// What a new node looks at before it takes a pod.
fn surroundings<'s>(
    ground: &'s mut Ground,
    topology: &'s Topology,
    reservations: &'s Reservations,
    request: &'s Request,
) -> Surroundings<'s> {
    let Ground { book, outlooks, templates, places, columns, .. } = ground;
    Surroundings {
        sight: Sight { book, outlooks, templates, rooms: places.rooms() },
        topology,
        reservations,
        settings: request.settings,
        columns,
        insists_on_reserved: matches!(request.mode, Mode::Provisioning),
    }
}

/// What `request` takes away from its picture.
#[derive(Default)]
struct Change {
    /// Rooms that are not there.
    closed: BTreeSet<usize>,
    /// Rooms that take no more pods.
    shut: BTreeSet<usize>,
    /// What limits get back for those that are not there.
    returned: BTreeMap<PoolName, Resources>,
    leaving: Vec<Leaving>,
    removed: Vec<HostId>,
    /// Earlier placements that do not hold any more.
    withdrawn: Vec<usize>,
}

impl Change {
    fn of(ground: &mut Ground, request: &Request) -> Self {
        let gone = request.gone();
        let shut = request.shut_claims.iter().map(|name| request.place_of(*name)).collect();
        Self {
            closed: ground.numbers(&gone),
            shut: ground.numbers(&shut),
            returned: ground.used_at(&gone),
            leaving: ground.leaving(request),
            removed: removed(ground, request),
            withdrawn: Vec::new(),
        }
    }
}

/// What a failed try came to.
struct Refusals {
    by_pool: Vec<(usize, Refused)>,
    is_final: bool,
    is_deferred: bool,
    /// Nothing was tried: others come first.
    waits: bool,
}

impl<'a, 'g> Search<'a, 'g> {
    fn begin(request: &'a Request<'a>, ground: &'g mut Ground) -> Self {
        let layout = Layout::new(ground, request);
        let change = Change::of(ground, request);
        Self::new(request, ground, layout, change)
    }

    fn new(request: &'a Request<'a>, ground: &'g mut Ground, mut layout: Layout, change: Change) -> Self {
        let demands: Vec<DemandId> = request.pods.iter().map(|pod| ground.demand(request, pod)).collect();
        change.closed.iter().for_each(|room| layout.rooms.close(*room));
        change.shut.iter().for_each(|room| layout.rooms.shut(*room));
        layout.give_back(&change.returned, &ground.templates);
        let Ground { book, outlooks, templates, places, .. } = &mut *ground;
        let mut sight = Sight { book, outlooks, templates, rooms: places.rooms() };
        layout.topology.depart(change.leaving, change.removed, change.withdrawn, &mut sight);
        let mut search = Self {
            settings: request.settings,
            request,
            turn: Turn::BY_SIZE,
            fit: Fit::First,
            layout,
            on_rooms: FastMap::default(),
            on_bins: Vec::new(),
            demands,
            waiting: None,
            records: Vec::new(),
            failed: Vec::new(),
            tried: Vec::new(),
            needs_new: false,
            spares_limits: false,
            grievances: FastMap::default(),
            packing: None,
            has_free_members: FastMap::default(),
            has_waited: false,
            is_last_call: false,
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
        self.want_templates(&demands);
        for id in &demands {
            self.layout.topology.shun(&self.ground.demands.get(*id).standing.shuns);
        }
        for id in demands {
            let demand = self.ground.demands.get(id);
            for rule in self.shunned(&demand).iter() {
                self.take_up(*rule);
            }
            self.level(&demand, 0);
        }
    }

    /// Which templates one of `demands` may have nodes of, for all that their taints say.
    fn want_templates(&mut self, demands: &[DemandId]) {
        for (at, template) in self.ground.templates.iter().enumerate() {
            if self.layout.topology.is_wanted(at) {
                continue;
            }
            let stops = |taint: &&Taint| taint.effect != Effect::PreferNoSchedule;
            let taints: Vec<Taint> = template.taints().iter().filter(stops).cloned().collect();
            let tolerates = |id: &DemandId| {
                first_untolerated(&taints, &self.ground.demands.get(*id).shape.tolerations).is_none()
            };
            if taints.is_empty() || demands.iter().any(tolerates) {
                self.layout.topology.want(at);
            }
        }
    }

    fn shunned(&mut self, demand: &Demand) -> Rc<Vec<RuleId>> {
        let (topology, book) = (&self.layout.topology, &mut self.ground.book);
        let known = &mut self.records[demand.id].shunned;
        known.get_or_insert_with(|| Rc::new(topology.shunned(demand.standing.class, book))).clone()
    }

    fn take_up(&mut self, rule: RuleId) {
        let Ground { book, outlooks, templates, places, .. } = &mut *self.ground;
        self.layout.topology.take_up(rule, &mut Sight { book, outlooks, templates, rooms: places.rooms() });
    }

    /// Pods that were planned before come first, and pods that stand for room after all others: they get what those leave.
    fn run(&mut self) {
        let ordered = self.ordered();
        let ordered = self.keep_plans(ordered);
        let ordered = self.pack(ordered);
        if self.packing.as_ref().is_some_and(by_price::Packing::is_idle) {
            return;
        }
        let (room, pods): (Vec<usize>, Vec<usize>) =
            ordered.into_iter().partition(|at| self.request.pods[*at].buffer().is_some());
        for queue in [pods, room] {
            if !self.needs_new {
                self.run_through(queue.into());
            }
        }
    }

    fn run_through(&mut self, mut queue: VecDeque<usize>) {
        let mut length_at_push: FastMap<usize, usize> = FastMap::default();
        let mut last: FastMap<usize, Failure> = FastMap::default();
        (self.has_waited, self.is_last_call) = (false, false);
        while let Some(pod) = queue.front().copied() {
            if length_at_push.get(&pod) == Some(&queue.len()) {
                if self.is_last_call || !self.has_waited {
                    break;
                }
                self.is_last_call = true;
                length_at_push.clear();
                self.records.iter_mut().for_each(|record| record.failure = None);
            }
            queue.pop_front();
            self.tried.push(pod);
            match self.attempt(pod) {
                Ok(()) if self.needs_new => return,
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

    fn attempt(&mut self, pod: usize) -> Result<(), Failure> {
        let id = self.demands[pod];
        if let Some(failure) = &self.records[id].failure
            && (failure.is_final || failure.at == self.layout.placed)
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
                        let is_over = tried.is_deferred || tried.waits;
                        last = Some(tried);
                        if is_over {
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
        Failure { reasons: Rc::new(reasons), is_deferred, is_final, at: self.layout.placed }
    }

    /// With the counts that a rule refused by.
    fn detailed(&self, refused: Refused) -> Refused {
        match refused {
            Refused::Topology { rule, key, group: Some(group), .. } => {
                let domains = self.layout.topology.shown(group, &self.ground.book);
                Refused::Topology { rule, key, group: Some(group), domains }
            }
            other => other,
        }
    }

    /// The demand's wishes after `level` were given up; its rules count from now on.
    fn level(&mut self, demand: &Demand, level: usize) -> Option<Arc<Level>> {
        let Ground { demands, book, places, has_soft_taints, .. } = &mut *self.ground;
        let (policy, cluster) = (self.settings.preferences, self.request.cluster);
        let found = demands.level(demand, level, policy, *has_soft_taints, cluster, book, places.rooms())?;
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
        let shunned = self.shunned(demand);
        let stances = self.layout.topology.stances(&level.owned, &shunned, level.asked(), &self.ground.book);
        let volumes = demand.volumes.as_ref().expect("pods with broken volumes are not tried");
        let guest = Guest { demand, level, volumes, stances: &stances };
        if self.is_too_early(&guest) {
            self.has_waited = true;
            return Err(Refusals { by_pool: Vec::new(), is_final: false, is_deferred: false, waits: true });
        }
        if let Some(room) = self.first_room(at, &guest, None) {
            self.take_room(pod, room, &guest);
            return Ok(());
        }
        let found = match self.fit {
            Fit::First | Fit::Nothing => self.first_bin(at, &guest),
            Fit::Cheapest | Fit::CheapestOpen => self.cheapest_bin(at, &guest),
        };
        let (index, admission) = match found {
            Some(found) => found,
            None => {
                let (bin, admission) = self.new_bin(at, &guest)?;
                self.layout.bins.push(Rc::new(bin));
                (self.layout.bins.len() - 1, admission)
            }
        };
        // Room that is kept may be on a node that is opened for it already.
        if self.fit == Fit::Nothing && self.request.pods[pod].buffer().is_none() {
            self.needs_new = true;
            return Ok(());
        }
        self.take_bin(pod, index, &guest, admission);
        Ok(())
    }

    fn take_bin(&mut self, pod: usize, index: usize, guest: &Guest, admission: Admission) {
        let demand = guest.demand;
        let bin = Rc::make_mut(&mut self.layout.bins[index]);
        let held = bin.held.clone();
        bin.take(self.request.pods[pod].key, guest, admission, &self.ground.columns);
        self.layout.reservations.exchange(&held, &bin.held);
        let (pods, template, outlook) = (bin.pods.len(), bin.template, bin.outlook);
        if pods == 1 {
            self.charge(index, demand.size);
        } else {
            self.layout.order.take(index, pods - 1);
        }
        self.layout.order.put(index, pods);
        debug_assert!(self.ground.outlooks.get(outlook).template == template);
        let Ground { book, outlooks, templates, places, .. } = &mut *self.ground;
        self.layout.topology.see_bin(
            index,
            outlook,
            &mut Sight { book, outlooks, templates, rooms: places.rooms() },
        );
        self.on_bins.push((index, pod));
        self.record(demand, Spot::Bin(index));
    }

    /// Whether the pod would settle where pods are to be that may be elsewhere and have no place yet: it follows those.
    fn is_too_early(&mut self, guest: &Guest) -> bool {
        !self.is_last_call
            && guest.stances.iter().filter_map(Stance::founded).any(|rule| self.has_free_members(rule))
    }

    fn has_free_members(&mut self, rule: RuleId) -> bool {
        if let Some(known) = self.has_free_members.get(&rule) {
            return *known;
        }
        let mut demands = self.demands.clone();
        demands.sort_unstable();
        demands.dedup();
        let has = demands.into_iter().any(|id| {
            let demand = self.ground.demands.get(id);
            self.ground.book.selects(rule, demand.standing.class)
                && self
                    .level(&demand, 0)
                    .is_some_and(|level| level.owned.iter().all(|(owned, _)| *owned != rule))
        });
        self.has_free_members.insert(rule, has);
        has
    }

    fn take_room(&mut self, pod: usize, room: usize, guest: &Guest) {
        self.layout.rooms.take(room, self.ground.places.room(room), guest, self.request.cluster);
        self.on_rooms.entry(room).or_default().push((self.layout.placed, pod));
        self.record(guest.demand, Spot::Room(room));
    }

    fn record(&mut self, demand: &Demand, spot: Spot) {
        let Ground { book, outlooks, templates, places, .. } = &mut *self.ground;
        let mut sight = Sight { book, outlooks, templates, rooms: places.rooms() };
        self.layout.topology.record(&demand.standing, spot, &mut sight);
        self.layout.placed += 1;
    }

    /// The limits of the pool lose the new node, which has one pod of this size.
    fn charge(&mut self, bin: usize, size: usize) {
        let bin = &self.layout.bins[bin];
        if let Some((left, within)) = &mut self.layout.limits[bin.template] {
            let Ground { templates, outlooks, charges, .. } = &mut *self.ground;
            let template = &templates[bin.template];
            let charge = charges
                .entry((bin.outlook, size))
                .or_insert_with(|| template.charge(&bin.open(template, &outlooks.get(bin.outlook).open)));
            *left =
                left.iter().map(|(name, amount)| (name, amount.saturating_sub(charge.get(name)))).collect();
            *within = template.within_limits(left);
        }
    }

    fn surroundings(&mut self) -> Surroundings<'_> {
        surroundings(self.ground, &self.layout.topology, &self.layout.reservations, self.request)
    }

    /// The first existing node that takes the pod, or whether `only` that one does.
    fn first_room(&mut self, at: usize, guest: &Guest, only: Option<usize>) -> Option<usize> {
        let Guest { demand, level, volumes, stances } = guest;
        if demand.size >= self.layout.too_full.len() {
            self.layout.too_full.resize(demand.size + 1, Default::default());
        }
        let Ground { book, outlooks, templates, places, demands, .. } = &mut *self.ground;
        let Layout { rooms, topology, too_full, .. } = &mut self.layout;
        let memory = &mut self.records[demand.id].memory[at];
        let too_full = &mut too_full[demand.size];
        let all = if demand.is_homeless { &rooms.open } else { &rooms.settled };
        let mut open = match only {
            Some(room) => {
                [room].into_iter().filter(|room| all.contains(*room) || rooms.shut.contains(*room)).collect()
            }
            None => all.clone(),
        };
        open.take_away(&memory.rooms);
        open.take_away(&too_full.0);
        let (asked, refused) = demands.asked(level.id);
        open.take_away(refused);
        topology.narrow_rooms(stances, &mut open, book);
        if open.is_clear() {
            return None;
        }
        let mut sight = Sight { book, outlooks, templates, rooms: places.rooms() };
        let given = rooms.order.iter().flat_map(|order| order.of(&open));
        let by_name = rooms.order.is_none().then(|| places.in_order(&open)).into_iter().flatten();
        for index in given.chain(by_name) {
            let room = places.room(index);
            if !asked.contains(index) {
                asked.insert(index);
                if !room.suits(demand, level) {
                    refused.insert(index);
                    continue;
                }
            }
            if !amounts::fits(&demand.requests, rooms.row(index)) {
                Rc::make_mut(too_full).0.insert(index);
                continue;
            }
            if !(level.shape.host_ports.is_empty() && volumes.attached.is_empty()) {
                let (ports, attached) = rooms.held(index, room, self.request.cluster);
                let taken = |port: &HostPort| ports.iter().any(|present| present.clashes_with(port));
                if level.shape.host_ports.iter().any(taken)
                    || attached.exceeded_by(&volumes.attached).is_some()
                {
                    memory.rooms.insert(index);
                    continue;
                }
            }
            if stances.is_empty() || topology.admits_room(stances, index, &mut sight) {
                return Some(index);
            }
        }
        None
    }

    /// The first of the new nodes that takes the pod, the emptiest and then the oldest first.
    fn first_bin(&mut self, at: usize, guest: &Guest) -> Option<(usize, Admission)> {
        self.find_bin(at, guest, |_, _| true)
    }

    /// The first of the new nodes, in that order, that takes the pod and is wanted.
    fn find_bin(
        &mut self,
        at: usize,
        guest: &Guest,
        mut is_wanted: impl FnMut(&Taker, &mut Surroundings) -> bool,
    ) -> Option<(usize, Admission)> {
        if self.layout.bins.is_empty() {
            return None;
        }
        let memory = &mut self.records[guest.demand.id].memory[at];
        let too_full = &mut Rc::make_mut(&mut self.layout.too_full[guest.demand.size]).1;
        let mut open = Marks::all(self.layout.bins.len());
        open.take_away(&memory.bins);
        open.take_away(too_full);
        self.layout.topology.narrow_bins(guest.stances, &mut open, &self.ground.book);
        let mut requests: Amounts = Vec::new();
        // What one of several equal nodes answered, all of them do.
        let are_alike = guest.is_plain()
            && self.layout.reservations.is_empty()
            && !self.layout.topology.tells_bins_apart(guest.stances);
        let mut asked: FastMap<Alike, bool> = FastMap::default();
        for level in self.layout.order.levels() {
            while let Some(index) = level.first_common(&open) {
                open.remove(index);
                let bin = &self.layout.bins[index];
                bin.sum_with(guest, &self.ground.columns, &mut requests);
                if !self.ground.outlooks.get(bin.outlook).has_room(&requests) {
                    // Others of its size may share a volume with pods that are there.
                    let full =
                        if guest.volumes.attached.is_empty() { &mut *too_full } else { &mut memory.bins };
                    full.insert(index);
                    continue;
                }
                let is_permitted = self.layout.topology.permits_host(guest.stances, index);
                let alike = (bin.outlook, &*bin.requests, bin.price_max, is_permitted);
                if are_alike && let Some(is_final) = asked.get(&alike) {
                    if *is_final {
                        memory.bins.insert(index);
                    }
                    continue;
                }
                let mut is_final = false;
                let mut around =
                    surroundings(self.ground, &self.layout.topology, &self.layout.reservations, self.request);
                match bin.admits(index, guest, &requests, &mut around) {
                    Ok(admission) if !bin.affords(&admission, &requests, &mut around) => {}
                    Ok(becomes) => {
                        let taker = Taker { index, bin, becomes, requests: &requests };
                        if is_wanted(&taker, &mut around) {
                            return Some((index, taker.becomes));
                        }
                    }
                    Err(refused) if refused.is_final() => {
                        memory.bins.insert(index);
                        is_final = true;
                    }
                    Err(_) => {}
                }
                if are_alike {
                    asked.insert(alike, is_final);
                }
            }
        }
        None
    }

    /// A new node of the heaviest pool that can.
    fn new_bin(&mut self, at: usize, guest: &Guest) -> Result<(Bin, Admission), Refusals> {
        // With rules, some nodes that refused now may not refuse later.
        let mut is_final = guest.stances.is_empty() && self.layout.reservations.is_empty();
        let mut by_pool = Vec::new();
        let comes_last = |index: &usize| self.spares_limits && self.layout.limits[*index].is_some();
        let (last, first): (Vec<usize>, Vec<usize>) = (0..self.ground.templates.len()).partition(comes_last);
        for index in first.into_iter().chain(last) {
            let known = self.records[guest.demand.id].memory[at].templates.get(&index).cloned();
            let opened = match known {
                Some(refused) => Err(refused),
                None => self.open_bin(index, guest),
            };
            match opened {
                Ok(opened) => return Ok(opened),
                Err(refused) => {
                    let is_deferred = refused == Refused::Reserved;
                    by_pool.push((index, refused.clone()));
                    if is_deferred {
                        return Err(Refusals { by_pool, is_final: false, is_deferred, waits: false });
                    }
                    if refused.is_final() {
                        self.records[guest.demand.id].memory[at].templates.insert(index, refused);
                    } else {
                        is_final = false;
                    }
                }
            }
        }
        by_pool.sort_by_key(|(index, _)| *index);
        Err(Refusals { by_pool, is_final, is_deferred: false, waits: false })
    }

    fn open_bin(&mut self, index: usize, guest: &Guest) -> Result<(Bin, Admission), Refused> {
        let number = self.layout.bins.len();
        let mut around =
            surroundings(self.ground, &self.layout.topology, &self.layout.reservations, self.request);
        let template = &around.sight.templates[index];
        let mut tried = |open: &Arc<FixedBitSet>| {
            let bin = Bin::new(index, around.sight.outlooks.fresh(index, template, open), around.columns);
            let admission = bin.admits(number, guest, &guest.demand.requests, &mut around)?;
            Ok((bin, admission))
        };
        let Some((left, within)) = &self.layout.limits[index] else { return tried(&template.open) };
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

    fn solution(&mut self) -> Solution {
        let pods = self.request.pods;
        let key = |at: &usize| pods[*at].key;
        let new_nodes = self.layout.bins.iter().map(|bin| new_node(bin, self.settings, self.ground));
        let new_nodes = new_nodes.collect();
        Solution {
            new_nodes,
            existing: self
                .on_rooms
                .iter()
                .map(|(room, pods)| {
                    (self.ground.places.room(*room).place, pods.iter().map(|(_, pod)| key(pod)).collect())
                })
                .collect(),
            unschedulable: self.unschedulable(),
        }
    }

    /// By name.
    fn unschedulable(&self) -> Vec<Unschedulable> {
        let left = self.failed.iter().map(|(pod, failure)| Unschedulable {
            pod: self.request.pods[*pod].key,
            reasons: failure.reasons.iter().chain(self.skipped_for(failure)).cloned().collect(),
            is_deferred: failure.is_deferred,
        });
        let mut left: Vec<Unschedulable> = left.collect();
        left.sort_by_key(|left| left.pod);
        left
    }

    /// Pools that could not even be asked are named too, unless the pod itself is at fault.
    fn skipped_for(&self, failure: &Failure) -> impl Iterator<Item = &Refusal> {
        let is_at_fault = failure.reasons.iter().any(|reason| reason.pool.is_none());
        self.ground.skipped.iter().filter(move |_| !is_at_fault)
    }
}
