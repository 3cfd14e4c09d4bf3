//! What would help a pod that has no place: the smallest edit of a pool, tried before it is told.
//!
//! Each refusal of a pool suggests the edit that lifts it. Edits are made to a copy of the pool until a node of it takes the
//! pod; the pool that needs the least is told, of those the one whose node costs least.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::daemons::{Daemon, daemons};
use super::pods::full_and_strict;
use super::template::requirements_of;
use super::{Code, Mode, Request, Settings, Solution, Supply, Unschedulable, solve};
use crate::capacity::cluster::Cluster;
use crate::model::action::LaunchOption;
use crate::model::label;
use crate::model::name::{ObjectKey, PoolName};
use crate::model::offering::{InstanceType, Offering};
use crate::model::pod::{NodeTerm, Pod, PodShape};
use crate::model::pool::NodePool;
use crate::model::quantity::{ResourceName, Resources, resource};
use crate::model::requirement::{Operator, Requirement, Requirements, Undefined};
use crate::model::symbol::Symbol;
use crate::model::taint::{Effect, Taint};

/// Edits of one pool that may be needed together.
const EDITS_MAX: usize = 4;
/// Pods and nodes that all trials together may look at, so that asking stays cheaper than planning.
const LOOKS_MAX: usize = 2_000_000;

/// One change of a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edit {
    RemoveTaint(Taint),
    AddLabel {
        key: Symbol,
        value: Symbol,
    },
    /// A requirement lets the value pass, too.
    Allow {
        key: Symbol,
        value: Symbol,
    },
    RaiseLimit {
        name: ResourceName,
        from: i64,
        to: i64,
    },
    LowerMinValues {
        key: Symbol,
        from: u32,
        to: u32,
    },
}

impl Edit {
    /// Who tainted nodes meant to keep pods away: that is the last thing to change.
    fn weight(&self) -> usize {
        if matches!(self, Self::RemoveTaint(_)) { 3 } else { 1 }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RemoveTaint(taint) => write!(out, "take taint {taint} off its nodes"),
            Self::AddLabel { key, value } => write!(out, "label its nodes {key}={value}"),
            Self::Allow { key, value } => write!(out, "allow {key} {value}"),
            Self::RaiseLimit { name, from, to } => {
                write!(out, "raise limit {name} from {} to {}", name.render(*from), name.render(*to))
            }
            Self::LowerMinValues { key, from, to } => {
                write!(out, "lower minValues of {key} from {from} to {to}")
            }
        }
    }
}

/// Edits of a pool with which a pod, if it were alone, would get a new node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    pub pool: PoolName,
    /// Never empty.
    pub edits: Vec<Edit>,
    /// How the node would be bought.
    pub launch: LaunchOption,
}

impl fmt::Display for Advice {
    /// `in pool default: raise limit cpu from 64 to 66; it would run on m5.large (us-west-2a, on-demand, $0.096/h)`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edits: Vec<String> = self.edits.iter().map(ToString::to_string).collect();
        let LaunchOption { instance_type, zone, capacity_type, price, .. } = &self.launch;
        write!(
            out,
            "in pool {}: {}; it would run on {instance_type} ({zone}, {capacity_type}, ${price}/h)",
            self.pool,
            edits.join(", ")
        )
    }
}

/// What can be said of a pod without a place, beyond the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Help {
    /// How near pools come to taking it.
    pub nearest: BTreeMap<PoolName, String>,
    /// `None`: no edit of a pool is known to help.
    pub advice: Option<Advice>,
}

/// What would help each pod that `solution` leaves without a place. Equal pods get the same answer; in large clusters, only the first
/// kinds get advice.
pub fn help(
    cluster: &Cluster,
    supply: &Supply,
    now: Timestamp,
    settings: &Settings,
    solution: &Solution,
    used: &BTreeMap<PoolName, Resources>,
) -> BTreeMap<ObjectKey, Help> {
    let looks = cluster.nodes.len() + cluster.pods.len() + 1_000;
    let mut adviser = Adviser {
        pools: cluster.pools.values().filter(|pool| !pool.is_static() && pool.is_ready).cloned().collect(),
        view: cluster.clone(),
        daemons: daemons(cluster),
        supply,
        now,
        settings,
        used,
        trials_left: (LOOKS_MAX / looks).max(10),
    };
    let mut known: BTreeMap<Arc<PodShape>, Help> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for left in &solution.unschedulable {
        let Some(pod) = cluster.pods.get(&left.pod) else { continue };
        if left.reasons.iter().all(|reason| reason.pool.is_none()) {
            continue;
        }
        let help = known.entry(pod.shape.clone()).or_insert_with(|| adviser.help(pod, left));
        found.insert(left.pod, help.clone());
    }
    found
}

struct Adviser<'a> {
    pools: Vec<Arc<NodePool>>,
    view: Cluster,
    daemons: Vec<Daemon>,
    supply: &'a Supply,
    now: Timestamp,
    settings: &'a Settings,
    used: &'a BTreeMap<PoolName, Resources>,
    trials_left: usize,
}

/// A way to buy, with what it is called in requirements.
#[derive(Clone, Copy)]
struct Way<'t> {
    kind: &'t InstanceType,
    offering: &'t Offering,
}

impl Way<'_> {
    /// The value of the label on a node that is bought this way.
    fn value(&self, key: Symbol) -> Option<Symbol> {
        if key == *label::ZONE {
            Some(self.offering.zone.0)
        } else if key == *label::CAPACITY_TYPE {
            Some(self.offering.capacity_type.symbol())
        } else if key == *label::INSTANCE_TYPE {
            Some(self.kind.name.0)
        } else {
            self.kind.requirements.get(key)?.single()
        }
    }

    fn order(&self) -> impl Ord + use<> {
        (self.offering.price, self.kind.name, self.offering.capacity_type, self.offering.zone)
    }
}

impl Adviser<'_> {
    fn help(&mut self, pod: &Arc<Pod>, left: &Unschedulable) -> Help {
        let wanted = full_and_strict(&pod.shape).1;
        let mut nearest = BTreeMap::new();
        for reason in &left.reasons {
            let Some(pool) = self.pools.iter().find(|pool| Some(pool.name) == reason.pool) else { continue };
            let said = match reason.code {
                Code::LimitReached => self.almost_within_limits(pool, pod, &wanted),
                Code::ResourcesExceedEveryType => self.almost_large_enough(pool, pod, &wanted),
                _ => None,
            };
            nearest.extend(said.map(|said| (pool.name, said)));
        }
        let pools = self.pools.clone();
        let mut best: Option<Advice> = None;
        for pod in alternatives(pod) {
            let wanted = full_and_strict(&pod.shape).1;
            let found = pools.iter().filter_map(|pool| self.advise(pool, &pod, &wanted));
            best = best.into_iter().chain(found).min_by_key(|advice| {
                let weight: usize = advice.edits.iter().map(Edit::weight).sum();
                (weight, advice.launch.price, advice.pool)
            });
        }
        Help { nearest, advice: best }
    }

    /// The edits with which `pool` takes `pod`.
    fn advise(&mut self, pool: &NodePool, pod: &Arc<Pod>, wanted: &Requirements) -> Option<Advice> {
        let mut pool = pool.clone();
        let mut edits: Vec<Edit> = Vec::new();
        while edits.len() <= EDITS_MAX {
            let solution = self.tried(&pool, pod)?;
            if let Some(node) = solution.new_nodes.first() {
                let launch = *node.launch();
                return (!edits.is_empty()).then_some(Advice { pool: pool.name, edits, launch });
            }
            let refusal = solution.unschedulable.first()?.reasons.first()?;
            let more = self.edits(refusal.code, &pool, pod, wanted);
            if more.is_empty() {
                return None;
            }
            more.iter().for_each(|edit| make(&mut pool, edit));
            for edit in more {
                merge(&mut edits, edit);
            }
        }
        None
    }

    /// What happens to `pod` if `pool` is the only one; `None` once nobody should ask any more.
    fn tried(&mut self, pool: &NodePool, pod: &Arc<Pod>) -> Option<Solution> {
        self.trials_left = self.trials_left.checked_sub(1)?;
        self.view.pools = [(pool.name, Arc::new(pool.clone()))].into_iter().collect();
        Some(solve(&Request {
            cluster: &self.view,
            supply: &self.supply.edited(pool),
            now: self.now,
            pods: std::slice::from_ref(pod),
            departing: &[],
            without_nodes: &BTreeSet::new(),
            without_claims: &BTreeSet::new(),
            shut_claims: &BTreeSet::new(),
            planned: &BTreeMap::new(),
            used_at_least: self.used,
            settings: self.settings,
            mode: Mode::Simulation { settling: &BTreeSet::new() },
        }))
    }

    /// What lifts a refusal of `pool`; nothing if no edit does.
    fn edits(&self, code: Code, pool: &NodePool, pod: &Pod, wanted: &Requirements) -> Vec<Edit> {
        match code {
            Code::TaintNotTolerated => {
                let keeps_away = |taint: &&Taint| {
                    taint.effect != Effect::PreferNoSchedule
                        && !pod.shape.tolerations.iter().any(|toleration| toleration.tolerates(taint))
                };
                let taints = pool.template.taints.iter().filter(keeps_away);
                taints.map(|taint| Edit::RemoveTaint(*taint)).collect()
            }
            Code::LabelNotDefined => {
                let defined = requirements_of(pool);
                let is_missing = |(key, asked): &(Symbol, &Requirement)| {
                    defined.get(*key).is_none() && !label::is_well_known(*key) && !asked.accepts_absence()
                };
                let label = |(key, asked): (Symbol, &Requirement)| {
                    let value = asked.some_value().filter(|value| label::is_label_value(value))?;
                    let is_free = !label::is_restricted(key) && !key.starts_with("karpenter.k8s.aws/");
                    (is_free && label::is_qualified_name(&key)).then_some(Edit::AddLabel { key, value })
                };
                // One that no node may have is not made up for by the others.
                let labels: Option<Vec<Edit>> = wanted.iter().filter(is_missing).map(label).collect();
                labels.unwrap_or_default()
            }
            Code::RequirementsConflict
            | Code::NoTypeMatchesRequirements
            | Code::ResourcesExceedEveryType
            | Code::NoOfferingAvailable
            | Code::NoTypeMatchesEverything
            | Code::PoolWithoutTypes => self.widened(pool, pod, wanted, |_| true),
            Code::TopologySpread | Code::PodAffinity | Code::PodAntiAffinity => {
                let zones = pool.template.requirements.get(*label::ZONE).cloned();
                let zones = zones.unwrap_or_else(Requirement::anything);
                self.widened(pool, pod, wanted, |way| !zones.has(way.offering.zone.0))
            }
            Code::LimitReached => self.raised(pool, pod, wanted),
            Code::MinValuesNotMet => {
                let types = self.supply.edited(pool).types(pool.name);
                let ways: Vec<Way> = self.ways(pool, &types, pod, wanted).collect();
                let short = pool.template.requirements.iter().filter_map(|(key, asked)| {
                    let values: BTreeSet<Symbol> = ways.iter().filter_map(|way| way.value(key)).collect();
                    let found = u32::try_from(values.len()).unwrap_or(u32::MAX);
                    let from = asked.min_values.filter(|least| found > 0 && *least > found)?;
                    Some(Edit::LowerMinValues { key, from, to: found })
                });
                short.collect()
            }
            _ => Vec::new(),
        }
    }

    /// What has to be allowed for the way to buy a node for `pod` that needs least of it, of those that `serves` lets pass.
    fn widened(
        &self,
        pool: &NodePool,
        pod: &Pod,
        wanted: &Requirements,
        serves: impl Fn(&Way) -> bool,
    ) -> Vec<Edit> {
        let asked = &pool.template.requirements;
        // Labels that no machine decides.
        let mut edits = Vec::new();
        for (key, ours) in asked.iter().filter(|(key, _)| !label::is_well_known(*key)) {
            if let Some(theirs) = wanted.get(key).filter(|theirs| !ours.agrees_with(theirs)) {
                let Some(value) = theirs.some_value() else { return Vec::new() };
                edits.push(Edit::Allow { key, value });
            }
        }
        let types = self.supply.sold(pool.name);
        let missing = |way: &Way| -> Option<Vec<Edit>> {
            let known = asked.iter().filter(|(key, _)| label::is_well_known(*key));
            let closed = known.filter(|(key, ours)| match way.value(*key) {
                Some(value) => !ours.has(value),
                None => !ours.accepts_absence(),
            });
            closed.map(|(key, _)| Some(Edit::Allow { key, value: way.value(key)? })).collect()
        };
        let ways = self.ways(pool, &types, pod, wanted).filter(serves);
        let best = ways.filter_map(|way| Some((missing(&way)?, way)));
        match best.min_by_key(|(missing, way)| (missing.len(), way.order())) {
            Some((missing, _)) => edits.extend(missing),
            None => return Vec::new(),
        }
        edits
    }

    /// Ways to buy a node that is large enough for `pod` and is what it wants.
    fn ways<'t>(
        &self,
        pool: &NodePool,
        types: &'t [InstanceType],
        pod: &Pod,
        wanted: &Requirements,
    ) -> impl Iterator<Item = Way<'t>> {
        let suits = |kind: &&InstanceType| {
            kind.requirements.intersects(wanted).is_ok()
                && lacking(&self.needed(pool, kind, pod), kind).is_none()
        };
        let kinds: Vec<&InstanceType> = types.iter().filter(suits).collect();
        kinds.into_iter().flat_map(move |kind| {
            let offerings = kind.offerings.iter();
            let offerings = offerings.filter(|offering| offering.is_available && offering.suits(wanted));
            offerings.map(move |offering| Way { kind, offering }).collect::<Vec<_>>()
        })
    }

    /// What the pod and the daemons of a node of this type ask for.
    fn needed(&self, pool: &NodePool, kind: &InstanceType, pod: &Pod) -> Resources {
        let mut needed = pod.shape.requests.clone();
        let node = requirements_of(pool);
        let runs = |daemon: &&Daemon| {
            daemon.runs_on(&pool.template.taints, &node, Undefined::WellKnown)
                && daemon.runs_on_type(&node, &kind.requirements)
        };
        self.daemons.iter().filter(runs).for_each(|daemon| needed.add(&daemon.shape.requests));
        needed
    }

    /// The cheapest way to buy a node for `pod` in `pool`, limits aside.
    fn cheapest<'t>(
        &self,
        pool: &NodePool,
        types: &'t [InstanceType],
        pod: &Pod,
        wanted: &Requirements,
    ) -> Option<Way<'t>> {
        self.ways(pool, types, pod, wanted).min_by_key(Way::order)
    }

    /// Limits that a node of the cheapest type would exceed: the limit, what is in use, and what the node adds.
    fn exceeded(&self, pool: &NodePool, kind: &InstanceType) -> Vec<(ResourceName, i64, i64, i64)> {
        let used = |name| self.used.get(&pool.name).map_or(0, |used| used.get(name));
        let adds = |name| if name == *resource::NODES { 1 } else { kind.capacity.get(name) };
        let limits = pool.limits.iter().flat_map(Resources::iter);
        let all = limits.map(|(name, limit)| (name, limit, used(name), adds(name)));
        all.filter(|(_, limit, used, adds)| used.saturating_add(*adds) > *limit).collect()
    }

    fn raised(&self, pool: &NodePool, pod: &Pod, wanted: &Requirements) -> Vec<Edit> {
        let types = self.supply.edited(pool).types(pool.name);
        let Some(Way { kind, .. }) = self.cheapest(pool, &types, pod, wanted) else { return Vec::new() };
        let exceeded = self.exceeded(pool, kind).into_iter();
        let raise =
            |(name, from, used, adds): (_, _, i64, i64)| Edit::RaiseLimit { name, from, to: used + adds };
        exceeded.map(raise).collect()
    }

    /// `fits m5.2xlarge (cpu 8), but of limit cpu 64 only 6 are left`.
    fn almost_within_limits(&self, pool: &NodePool, pod: &Pod, wanted: &Requirements) -> Option<String> {
        let types = self.supply.types(pool.name);
        let Way { kind, offering } = self.cheapest(pool, &types, pod, wanted)?;
        let (name, limit, used, adds) = *self.exceeded(pool, kind).first()?;
        let left = name.render((limit - used).max(0));
        Some(match name == *resource::NODES {
            true => format!(
                "fits {} (${}/h), but its limit of nodes, {limit}, is reached",
                kind.name, offering.price
            ),
            false => format!(
                "fits {} (${}/h), which has {name} {}, but of limit {name} {} only {left} is left",
                kind.name,
                offering.price,
                name.render(adds),
                name.render(limit)
            ),
        })
    }

    /// `m5.24xlarge comes nearest: it leaves cpu 95690m of 100`.
    fn almost_large_enough(&self, pool: &NodePool, pod: &Pod, wanted: &Requirements) -> Option<String> {
        let types = self.supply.types(pool.name);
        let suiting = types.iter().filter(|kind| kind.requirements.intersects(wanted).is_ok());
        let lacking = suiting.filter_map(|kind| Some((kind, lacking(&self.needed(pool, kind, pod), kind)?)));
        let (kind, (name, has, needs)) = lacking.max_by(|(one, a), (other, b)| {
            // Shares as products, so that nothing is rounded.
            let share = i128::from(a.1.max(0)) * i128::from(b.2);
            let rival = i128::from(b.1.max(0)) * i128::from(a.2);
            share.cmp(&rival).then_with(|| other.name.cmp(&one.name))
        })?;
        Some(match has {
            0 => format!("{} comes nearest, but has no {name}", kind.name),
            _ => format!(
                "{} comes nearest: it has {name} {} for pods, {} are asked for",
                kind.name,
                name.render(has),
                name.render(needs)
            ),
        })
    }
}

/// The pod with each of its required node affinity terms alone: one of them is enough.
fn alternatives(pod: &Arc<Pod>) -> Vec<Arc<Pod>> {
    let terms = &pod.shape.node_required;
    if terms.len() < 2 {
        return vec![pod.clone()];
    }
    let with = |term: &NodeTerm| {
        let shape = PodShape { node_required: vec![term.clone()], ..(*pod.shape).clone() };
        Arc::new(Pod { shape: Arc::new(shape), ..(**pod).clone() })
    };
    terms.iter().map(with).collect()
}

/// Of what `needed` has more than `kind`, the most lacking: what is there and what is needed.
fn lacking(needed: &Resources, kind: &InstanceType) -> Option<(ResourceName, i64, i64)> {
    let all = needed.iter().map(|(name, needs)| (name, kind.allocatable.get(name), needs));
    all.filter(|(_, has, needs)| has < needs).min_by(|a, b| {
        let share = i128::from(a.1.max(0)) * i128::from(b.2);
        share.cmp(&(i128::from(b.1.max(0)) * i128::from(a.2)))
    })
}

fn make(pool: &mut NodePool, edit: &Edit) {
    let template = Arc::make_mut(&mut pool.template);
    match edit {
        Edit::RemoveTaint(taint) => template.taints.retain(|present| present != taint),
        Edit::AddLabel { key, value } => {
            template.labels.insert(*key, *value);
        }
        Edit::Allow { key, value } => {
            let Some(ours) = template.requirements.get(*key) else { return };
            let widened = match (ours.listed(), ours.excluded()) {
                (Some(listed), _) => Requirement::new(Operator::In, listed.iter().copied().chain([*value])),
                (_, Some(excluded)) if ours.lower().is_none() && ours.upper().is_none() => {
                    Requirement::new(Operator::NotIn, excluded.iter().copied().filter(|other| other != value))
                }
                _ => Requirement::one(*value),
            };
            let min_values = ours.min_values;
            template.requirements.replace(*key, widened.with_min_values(min_values));
        }
        Edit::RaiseLimit { name, to, .. } => {
            if let Some(limits) = &mut pool.limits {
                limits.set(*name, *to);
            }
        }
        Edit::LowerMinValues { key, to, .. } => {
            if let Some(ours) = template.requirements.get(*key).cloned() {
                template.requirements.replace(*key, ours.with_min_values(Some(*to)));
            }
        }
    }
}

/// Of two edits of the same number, one is told.
fn merge(edits: &mut Vec<Edit>, edit: Edit) {
    for earlier in edits.iter_mut() {
        match (earlier, &edit) {
            (Edit::LowerMinValues { key, to, .. }, Edit::LowerMinValues { key: other, to: lower, .. })
                if key == other =>
            {
                *to = *lower;
                return;
            }
            (Edit::RaiseLimit { name, to, .. }, Edit::RaiseLimit { name: other, to: higher, .. })
                if name == other =>
            {
                *to = *higher;
                return;
            }
            _ => {}
        }
    }
    edits.push(edit);
}
