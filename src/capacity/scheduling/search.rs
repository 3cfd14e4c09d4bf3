//! The order in which placements are tried.
//!
//! Large pods first; for each, nodes that are there, then nodes opened for earlier pods (the emptiest first), then a new
//! one from the heaviest pool that can. A pod that finds no place goes to the back of the queue with all its wishes,
//! until a whole cycle brings nothing.
//!
//! Equal pods are one group, and what a group was refused is remembered: rooms and new nodes only ever shrink, so all but
//! topology's refusals are final.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::amounts::{self, Amounts, Columns};
use super::bin::{Admission, Bin, Guest, Surroundings};
use super::daemons::{Daemon, daemons};
use super::explain::{Code, Refusal, Refused};
use super::pods::full_and_strict;
use super::relax;
use super::reservations::Reservations;
use super::room::{NodeFacts, Room, node_facts, used_by_pool};
use super::template::Template;
use super::topology::{GroupId, Owned, Spot, Topology, View};
use super::volumes::{PodVolumes, VolumeFault, volumes_of};
use super::{Mode, NewNode, Place, Request, Settings, Solution, Unschedulable};
use crate::model::action::LaunchOption;
use crate::model::label::{self, Labels};
use crate::model::name::NodeName;
use crate::model::offering::CapacityType;
use crate::model::pod::{Pod, PodShape};
use crate::model::quantity::Resources;
use crate::model::requirement::{Operator, Requirement, Requirements};
use crate::model::symbol::Symbol;
use crate::model::taint::Effect;

/// Places the pods of `request`, as few nodes and as cheap as first-fit finds them.
pub fn solve(request: &Request) -> Solution {
    let facts = node_facts(request.cluster, request.supply);
    let daemons = daemons(request.cluster);
    let mut search = Search::new(request, &facts, &daemons);
    search.run();
    search.finish()
}

/// Pods that differ in nothing that matters.
struct Group {
    shape: Arc<PodShape>,
    requests: Amounts,
    volumes: Result<PodVolumes, VolumeFault>,
    /// Runs nowhere, or its node is going away.
    is_homeless: bool,
    shunned: Vec<GroupId>,
    /// The shape with fewer and fewer wishes, as far as anybody had to look.
    levels: Vec<Rc<Level>>,
    memory: Vec<Memory>,
    failure: Option<Failure>,
}

/// One state of a group's wishes.
struct Level {
    shape: PodShape,
    full: Requirements,
    strict: Requirements,
    owned: Vec<Owned>,
}

/// Who refused a level for good.
#[derive(Default)]
struct Memory {
    rooms: FixedBitSet,
    bins: FixedBitSet,
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

struct Search<'a> {
    request: &'a Request<'a>,
    settings: &'a Settings,
    columns: Columns,
    templates: Vec<Template>,
    /// Pools that take part in name only, and why.
    skipped: Vec<Refusal>,
    has_soft_taints: bool,
    rooms: Vec<Room>,
    on_rooms: BTreeMap<Place, Vec<usize>>,
    bins: Vec<Bin>,
    /// Bins by number of pods, then age.
    order: BTreeSet<(usize, usize)>,
    topology: Topology<'a>,
    reservations: Reservations,
    groups: Vec<Group>,
    group_of: Vec<usize>,
    placed: usize,
    failed: Vec<(usize, Failure)>,
}

/// What a failed try came to.
struct Refusals {
    by_pool: Vec<Refusal>,
    is_final: bool,
    is_deferred: bool,
}

impl<'a> Search<'a> {
    fn new(request: &'a Request<'a>, facts: &[NodeFacts], daemons: &[Daemon]) -> Self {
        let columns = columns_of(request, facts, daemons);
        let (templates, skipped) = templates_of(request, facts, daemons, &columns);
        let going: BTreeSet<NodeName> = facts
            .iter()
            .filter(|facts| facts.is_going)
            .filter_map(|facts| match facts.place {
                Place::Node(name) => Some(name),
                Place::Claim(_) => None,
            })
            .collect();
        let staying = facts.iter().filter(|facts| stays(facts, request));
        let rooms: Vec<Room> =
            staying.clone().map(|facts| Room::new(facts, request, daemons, &columns)).collect();
        let staying: BTreeSet<NodeName> = staying
            .filter_map(|facts| match facts.place {
                Place::Node(name) => Some(name),
                Place::Claim(_) => None,
            })
            .collect();
        let sights = rooms.iter().map(|room| (room.requirements.clone(), room.taints.clone())).collect();
        let topology = Topology::new(request.cluster, request.pods, &templates, sights, staying);
        let (groups, group_of) = groups_of(request, &going, &columns, &topology);
        Self {
            settings: request.settings,
            has_soft_taints: templates
                .iter()
                .flat_map(|template| template.taints())
                .any(|taint| taint.effect == Effect::PreferNoSchedule),
            reservations: Reservations::of(&templates),
            request,
            columns,
            templates,
            skipped,
            rooms,
            on_rooms: BTreeMap::new(),
            bins: Vec::new(),
            order: BTreeSet::new(),
            topology,
            groups,
            group_of,
            placed: 0,
            failed: Vec::new(),
        }
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
        let mut length_at_push: HashMap<usize, usize> = HashMap::new();
        let mut last: HashMap<usize, Failure> = HashMap::new();
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

    /// CPU, then memory, largest first; then the older; then by uid and name.
    fn ordered(&self) -> Vec<usize> {
        let pods = self.request.pods;
        let mut order: Vec<usize> = (0..pods.len()).collect();
        order.sort_by_cached_key(|at| {
            let pod = &pods[*at];
            let requests = &pod.shape.requests;
            (
                std::cmp::Reverse((requests.cpu(), requests.memory())),
                pod.created.is_none(),
                pod.created,
                pod.uid,
                pod.key,
            )
        });
        order
    }

    fn attempt(&mut self, pod: usize) -> Result<(), Failure> {
        let group = self.group_of[pod];
        if let Some(failure) = &self.groups[group].failure
            && (failure.is_final || failure.at == self.placed)
        {
            return Err(failure.clone());
        }
        let fault = match &self.groups[group].volumes {
            Err(fault) => Some(Refused::VolumeFault(fault.clone())),
            Ok(_) if self.groups[group].shape.has_resource_claims => Some(Refused::Devices),
            Ok(_) => None,
        };
        let mut refusals = fault.map(|refused| Refusals {
            by_pool: vec![refused.of_every_pool()],
            is_final: true,
            is_deferred: false,
        });
        if refusals.is_none() {
            let mut are_all_final = true;
            let mut level = 0;
            while let Some(wishes) = self.level(group, level) {
                match self.place(pod, group, level, &wishes) {
                    Ok(()) => return Ok(()),
                    Err(tried) => {
                        are_all_final &= tried.is_final;
                        let is_deferred = tried.is_deferred;
                        refusals = Some(tried);
                        if is_deferred {
                            break;
                        }
                    }
                }
                level += 1;
            }
            if let Some(refusals) = &mut refusals {
                refusals.is_final = are_all_final;
            }
        }
        let refusals = refusals.expect("a group has at least one level");
        let failure = Failure {
            reasons: Rc::new(refusals.by_pool),
            is_deferred: refusals.is_deferred,
            is_final: refusals.is_final,
            at: self.placed,
        };
        self.groups[group].failure = Some(failure.clone());
        Err(failure)
    }

    /// The group's wishes after `level` were given up.
    fn level(&mut self, group: usize, level: usize) -> Option<Rc<Level>> {
        let levels = &self.groups[group].levels;
        if let Some(known) = levels.get(level) {
            return Some(known.clone());
        }
        let shape = match levels.last() {
            None => relax::first_try(&self.groups[group].shape, self.settings.preferences),
            Some(last) => relax::relaxed(&last.shape, self.has_soft_taints)?,
        };
        let (full, strict) = full_and_strict(&shape);
        let owned = self.topology.adopt(&shape);
        let level = Rc::new(Level { shape, full, strict, owned });
        let group = &mut self.groups[group];
        group.levels.push(level.clone());
        group
            .memory
            .push(Memory { rooms: FixedBitSet::with_capacity(self.rooms.len()), ..Memory::default() });
        Some(level)
    }

    fn place(&mut self, pod: usize, group: usize, at: usize, level: &Level) -> Result<(), Refusals> {
        let facts = &mut self.groups[group];
        let memory = &mut facts.memory[at];
        let volumes = facts.volumes.as_ref().expect("pods with broken volumes are not tried");
        let guest = Guest {
            shape: &level.shape,
            full: &level.full,
            requests: &facts.requests,
            volumes,
            view: View { owned: &level.owned, shunned: &facts.shunned, strict: &level.strict },
        };
        let mut is_final = true;
        for (index, room) in self.rooms.iter_mut().enumerate() {
            if memory.rooms.contains(index) {
                continue;
            }
            match room.admits(&guest, facts.is_homeless, &self.topology) {
                Ok(()) => {
                    room.take(&guest);
                    self.on_rooms.entry(room.place).or_default().push(pod);
                    self.topology.record(&facts.shape, Spot::Room(index));
                    self.placed += 1;
                    return Ok(());
                }
                Err(refused) if refused.is_final() => memory.rooms.insert(index),
                Err(_) => is_final = false,
            }
        }
        let around = Surroundings {
            topology: &self.topology,
            reservations: &self.reservations,
            settings: self.settings,
            columns: &self.columns,
            insists_on_reserved: matches!(self.request.mode, Mode::Provisioning),
        };
        memory.bins.grow(self.bins.len());
        let mut found: Option<(usize, Admission)> = None;
        for (_, index) in &self.order {
            if memory.bins.contains(*index) {
                continue;
            }
            let bin = &self.bins[*index];
            match bin.admits(&self.templates[bin.template], &guest, &around) {
                Ok(admission) => {
                    found = Some((*index, admission));
                    break;
                }
                Err(refused) if refused.is_final() => memory.bins.insert(*index),
                Err(_) => is_final = false,
            }
        }
        let mut by_pool = Vec::new();
        let mut is_deferred = false;
        if found.is_none() {
            let host = Symbol::new(&format!("provisor.dev/new-{}", self.bins.len() + 1));
            for (index, template) in self.templates.iter().enumerate() {
                let opened = match memory.templates.get(&index) {
                    Some(refused) => Err(refused.clone()),
                    None => open_bin(index, template, host, &guest, &around),
                };
                match opened {
                    Ok((bin, admission)) => {
                        self.bins.push(bin);
                        found = Some((self.bins.len() - 1, admission));
                        break;
                    }
                    Err(refused) => {
                        by_pool.push(refused.of_pool(template.pool.name));
                        is_deferred = refused == Refused::Reserved;
                        if is_deferred {
                            break;
                        }
                        if refused.is_final() {
                            memory.templates.insert(index, refused);
                        } else {
                            is_final = false;
                        }
                    }
                }
            }
        }
        let Some((index, admission)) = found else {
            return Err(Refusals { by_pool, is_final: is_final && !is_deferred, is_deferred });
        };
        let bin = &mut self.bins[index];
        let template = &mut self.templates[bin.template];
        let (held, pods) = (bin.held.clone(), bin.pods.len());
        bin.take(pod, &guest, admission, template, &self.columns);
        self.reservations.exchange(&held, &bin.held);
        if pods == 0 {
            template.charge(&bin.open);
        } else {
            self.order.remove(&(pods, index));
        }
        self.order.insert((pods + 1, index));
        self.topology.see_bin(index, &bin.requirements, template.taints());
        self.topology.record(&facts.shape, Spot::Bin(index));
        self.placed += 1;
        Ok(())
    }

    fn finish(self) -> Solution {
        let pods = self.request.pods;
        let key = |at: &usize| pods[*at].key;
        let new_nodes = self.bins.iter().map(|bin| {
            let template = &self.templates[bin.template];
            new_node(bin, template, pods, self.settings, &self.columns)
        });
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
            new_nodes: new_nodes.collect(),
            existing: self
                .on_rooms
                .iter()
                .map(|(place, pods)| (*place, pods.iter().map(key).collect()))
                .collect(),
            unschedulable,
        }
    }

    /// Pools that could not even be asked are named too, unless the pod itself is at fault.
    fn skipped_for(&self, failure: &Failure) -> impl Iterator<Item = &Refusal> {
        let is_at_fault = failure.reasons.iter().any(|reason| reason.pool.is_none());
        self.skipped.iter().filter(move |_| !is_at_fault)
    }
}

fn open_bin(
    index: usize,
    template: &Template,
    host: Symbol,
    guest: &Guest,
    around: &Surroundings,
) -> Result<(Bin, Admission), Refused> {
    let fresh = |open| Bin::new(index, template, host, open, around.columns);
    if !template.has_nodes_left() {
        // A pod that the pool would not take anyway is told so; the limit is not its obstacle.
        fresh(template.open.clone()).admits(template, guest, around)?;
        return Err(Refused::NodesLimit);
    }
    let open = template.within_limits(&template.open);
    let bin = fresh(open);
    match bin.admits(template, guest, around) {
        Ok(admission) => Ok((bin, admission)),
        Err(refused) if bin.open == template.open => Err(refused),
        Err(refused) => match fresh(template.open.clone()).admits(template, guest, around) {
            Ok(_) => Err(if refused.is_final() { Refused::Limits } else { refused }),
            Err(refused) => Err(refused),
        },
    }
}

fn stays(facts: &NodeFacts, request: &Request) -> bool {
    let claim_of =
        |name: NodeName| request.cluster.nodes.get(&name).and_then(|node| request.cluster.claim_of(node));
    let is_removed = match facts.place {
        Place::Node(name) => {
            request.without_nodes.contains(&name)
                || claim_of(name).is_some_and(|claim| request.without_claims.contains(&claim.name))
        }
        Place::Claim(name) => request.without_claims.contains(&name),
    };
    !facts.is_going && !is_removed
}

fn columns_of(request: &Request, facts: &[NodeFacts], daemons: &[Daemon]) -> Columns {
    let cluster = request.cluster;
    let types: Vec<_> = cluster.pools.keys().map(|pool| request.supply.types(*pool)).collect();
    let of_types = types.iter().flat_map(|types| types.iter()).map(|kind| &kind.allocatable);
    let of_pods = request.pods.iter().map(|pod| &pod.shape.requests);
    let of_daemons = daemons.iter().map(|daemon| &daemon.shape.requests);
    let of_nodes = facts.iter().map(|facts| &facts.allocatable);
    Columns::of(of_types.chain(of_pods).chain(of_daemons).chain(of_nodes))
}

/// Templates of the pools that take demand, heaviest first, later names first among equals; and why others take none.
fn templates_of(
    request: &Request,
    facts: &[NodeFacts],
    daemons: &[Daemon],
    columns: &Columns,
) -> (Vec<Template>, Vec<Refusal>) {
    let cluster = request.cluster;
    let used = used_by_pool(facts);
    let mut pools: Vec<_> =
        cluster.pools.values().filter(|pool| !pool.is_static() && !pool.is_deleting).collect();
    pools.sort_by_key(|pool| std::cmp::Reverse((pool.weight, pool.name)));
    let (mut templates, mut skipped) = (Vec::new(), Vec::new());
    for pool in pools {
        let class = cluster.classes.get(&pool.template.class.name);
        let mut skip = |code, message: &str| {
            skipped.push(Refusal { pool: Some(pool.name), code, message: message.into() });
        };
        if !pool.is_ready {
            skip(Code::PoolNotReady, "the pool is not ready; its conditions say why");
        } else if class.is_some_and(|class| !class.is_ready || class.is_deleting) {
            skip(Code::PoolNotReady, "its node class is not ready; its conditions say why");
        } else {
            let usage = used.get(&pool.name).cloned().unwrap_or_default();
            let template = Template::new(pool, request.supply.types(pool.name), daemons, columns, &usage);
            if template.open.is_clear() {
                skip(
                    Code::PoolWithoutTypes,
                    "the pool's requirements filter out every instance type that is available",
                );
            } else {
                templates.push(template);
            }
        }
    }
    if templates.is_empty() && skipped.is_empty() {
        let message =
            "no NodePool takes waiting pods: there is none, or each has a fixed number of nodes".into();
        skipped.push(Refusal { pool: None, code: Code::NoUsablePool, message });
    }
    (templates, skipped)
}

fn groups_of(
    request: &Request,
    going: &BTreeSet<NodeName>,
    columns: &Columns,
    topology: &Topology,
) -> (Vec<Group>, Vec<usize>) {
    type Identity<'a> = (&'a PodShape, Option<PodVolumes>, bool);
    let mut groups: Vec<Group> = Vec::new();
    let mut by_identity: BTreeMap<Identity, usize> = BTreeMap::new();
    let mut by_address: HashMap<(*const PodShape, bool), usize> = HashMap::new();
    let mut group_of = Vec::with_capacity(request.pods.len());
    for pod in request.pods {
        let is_homeless =
            pod.node.is_none_or(|node| going.contains(&node) && !request.without_nodes.contains(&node));
        let address = (Arc::as_ptr(&pod.shape), is_homeless);
        let has_volumes = !pod.shape.volumes.is_empty();
        if let Some(known) = by_address.get(&address).filter(|_| !has_volumes) {
            group_of.push(*known);
            continue;
        }
        let volumes = if has_volumes { volumes_of(request.cluster, pod) } else { Ok(PodVolumes::default()) };
        let identity = (&*pod.shape, volumes.as_ref().ok().cloned(), is_homeless);
        let known = *by_identity.entry(identity).or_insert_with(|| {
            groups.push(Group {
                shape: pod.shape.clone(),
                requests: columns.row(&pod.shape.requests),
                volumes,
                is_homeless,
                shunned: topology.shunning(&pod.shape),
                levels: Vec::new(),
                memory: Vec::new(),
                failure: None,
            });
            groups.len() - 1
        });
        by_address.insert(address, known);
        group_of.push(known);
    }
    (groups, group_of)
}

fn new_node(
    bin: &Bin,
    template: &Template,
    pods: &[Arc<Pod>],
    settings: &Settings,
    columns: &Columns,
) -> NewNode {
    let mut requirements = (*bin.requirements).clone();
    requirements.remove(*label::HOSTNAME);
    let mut open = bin.open.clone();
    if settings.reserved_capacity {
        for at in bin.open.ones() {
            let reservation = template.offering(at).reservation.map(|reservation| reservation.id);
            let is_wanted = match reservation {
                Some(id) => bin.held.contains(&id),
                None => bin.held.is_empty(),
            };
            open.set(at, is_wanted);
        }
        if !bin.held.is_empty() {
            requirements.add(*label::CAPACITY_TYPE, Requirement::one(CapacityType::Reserved.symbol()));
            let ids = Requirement::new(Operator::In, bin.held.iter().copied());
            requirements.add(*label::RESERVATION_ID, ids);
        }
    }
    let mut requests = bin.requests.clone();
    if let Some(daemons) = template.least_daemons(&open) {
        amounts::add(&mut requests, &daemons);
    }
    let mut options: Vec<LaunchOption> = open
        .ones()
        .map(|at| {
            let offering = template.offering(at);
            LaunchOption {
                price: offering.price,
                instance_type: template.types[template.positions[at].0].name,
                zone: offering.zone,
                capacity_type: offering.capacity_type,
                reservation: offering.reservation.map(|reservation| reservation.id),
            }
        })
        .collect();
    options.sort_by_key(|option| {
        (option.price, option.instance_type, option.capacity_type, option.zone, option.reservation)
    });
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
    let excluded = requirement.excluded().map_or(0, std::collections::BTreeSet::len) as i64;
    let upper = requirement.upper().unwrap_or(i64::MAX);
    let start = requirement.lower().unwrap_or_else(|| 0.min(upper.saturating_sub(excluded)));
    (start..=upper)
        .take(excluded as usize + 1)
        .map(|number| Symbol::new(&number.to_string()))
        .find(|value| requirement.has(*value))
}
