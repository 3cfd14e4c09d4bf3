//! One environment, before and after: which objects differ, and what a cluster makes of it.
//!
//! The cluster is played four times with the same decisions: as it is with the base, so that what would happen anyway is
//! not blamed on the change; as it is with the change; and both once more from nothing, because only that is what each of
//! them costs in the long run. A demand without a cluster may have been lived through elsewhere, which says more. Where there is no cluster and no demand, objects are compared and nothing is made up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::lives::typical;
use super::report::{
    CapacityTypeCost, Change, ChoiceReview, CostReview, Counts, Digests, EnvironmentReview, ExpiringNode,
    FieldReview, LimitReview, NodeNames, NodesReview, ObjectReview, OriginReview, Pause, PodsReview,
    PoolCost, PoolRoll, Remark, RollReview, Span, StuckNode, WaitingPod, WaitingReason, decimal, monthly,
};
use crate::gitops::desired::{DesiredState, Origin, class_of};
use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::diff::{DiffKind, NodeImpact, ObjectDiff, diff_states, without_bookkeeping};
use crate::gitops::guardrail::Breach;
use crate::gitops::live::{Fleet, NodeFacts};
use crate::model::money::UsdPerHour;
use crate::model::name::{NodeName, ObjectKey, PoolName};
use crate::model::observation::Observation;
use crate::model::offering::CapacityType;
use crate::model::provisioner::Provisioner;
use crate::simulator::roll::WAVE;
use crate::simulator::stage::{Managed, Reason, Scene, Stage};

/// A change of what an environment says of itself.
const OTHER_SURROUNDINGS: &str = "PRV1808";
/// Names of moved pods that are listed; all are counted.
const MOVED_MAX: usize = 100;

/// What one revision wants for an environment.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub state: DesiredState,
    /// The same objects, parsed.
    pub objects: Vec<Observation>,
    pub warnings: Vec<Diagnostic>,
    /// What guardrails say against it.
    pub breaches: Vec<Breach>,
    /// What rules see of the environment, and where it stands.
    pub subject: Value,
    pub place: Place,
}

/// On what an environment is played.
#[derive(Clone, Debug)]
pub enum Demand {
    /// On nothing.
    None,
    /// Pods without a cluster: the base runs them first.
    Pods(Stage),
    /// The same, on a cluster that has lived through both, once for each of several seeds.
    Lived(Lived),
    /// A cluster that runs.
    Cluster(Stage),
}

/// A cluster that came to rest with the base, and once more with the proposal: several lives of it.
#[derive(Clone, Debug)]
pub struct Lived {
    /// The pods, and not one node.
    pub nothing: Stage,
    /// At least one.
    pub lives: Vec<Life>,
}

/// One life, with the chances that its seed gives.
#[derive(Clone, Debug)]
pub struct Life {
    pub seed: u64,
    pub start: Stage,
    /// As late as `with`, had nobody proposed anything. In both pods have the names of `start`.
    pub without: Stage,
    pub with: Stage,
    pub course: Course,
}

/// What is done until a proposal is carried out, and would not have been done without it. A pod that moves twice counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course {
    pub evictions: usize,
    pub machines_bought: usize,
}

impl Course {
    pub fn without(self, anyway: Self) -> Self {
        Self {
            evictions: self.evictions.saturating_sub(anyway.evictions),
            machines_bought: self.machines_bought.saturating_sub(anyway.machines_bought),
        }
    }
}

/// Compares what two revisions want for one environment; `None`: it does not exist on that side.
pub fn compare(
    name: &str,
    base: Option<&Wanted>,
    head: Option<&Wanted>,
    demand: &Demand,
) -> EnvironmentReview {
    let nothing = |other: &Wanted| DesiredState { objects: BTreeMap::new(), ..other.state.clone() };
    let before = base.map(|side| side.state.clone()).or_else(|| head.map(nothing));
    let after = head.map(|side| side.state.clone()).or_else(|| base.map(nothing));
    let differences = |fleet: Option<&Fleet>| -> Vec<ObjectDiff> {
        let (Some(before), Some(after)) = (&before, &after) else { return Vec::new() };
        diff_states(before, after, fleet).into_iter().filter_map(without_bookkeeping).collect()
    };
    let digest = |side: Option<&Wanted>| side.map(|side| side.state.digest.to_string());
    let mut review = EnvironmentReview {
        name: name.to_owned(),
        change: Change::Unchanged,
        rendered_digest: Digests { before: digest(base), after: digest(head) },
        objects: Vec::new(),
        findings: new_findings(base, head).into_iter().chain(other_surroundings(base, head)).collect(),
        policies: Vec::new(),
        nodes: None,
        cost: None,
        pods: None,
        roll: None,
        choice: None,
        limits: None,
        draws: None,
    };
    let found = differences(None);
    review.change = match (base, head) {
        (None, Some(_)) => Change::Added,
        (Some(_), None) => Change::Removed,
        _ if found.is_empty() => Change::Unchanged,
        _ => Change::Changed,
    };
    let played = match demand {
        Demand::None => Vec::new(),
        _ if review.change == Change::Unchanged => Vec::new(),
        demand => Played::all(demand, base, head),
    };
    let told = |played: &Played| {
        let found = differences(Some(&played.fleet(base)));
        let nodes = played.nodes(&found);
        EnvironmentReview {
            objects: found.iter().map(object_review).collect(),
            roll: Some(played.roll(&nodes)),
            cost: Some(played.cost()),
            pods: Some(played.pods()),
            choice: Some(played.choice()),
            limits: Some(played.limits()),
            nodes: Some(nodes),
            ..review.clone()
        }
    };
    let lives: Vec<(Option<(u64, Course)>, EnvironmentReview)> =
        played.iter().map(|played| (played.chance, told(played))).collect();
    typical(lives).unwrap_or_else(|| {
        review.objects = found.iter().map(object_review).collect();
        review
    })
}

/// Warnings that the base does not have. A warning that only moved to another line is an old one.
fn new_findings(base: Option<&Wanted>, head: Option<&Wanted>) -> Vec<Remark> {
    let name = |warning: &Diagnostic| (warning.code, warning.message.clone(), warning.place.file().clone());
    let mut known: BTreeMap<_, usize> = BTreeMap::new();
    for warning in base.into_iter().flat_map(|side| &side.warnings) {
        *known.entry(name(warning)).or_default() += 1;
    }
    let is_new = |warning: &&Diagnostic| match known.get_mut(&name(warning)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    let warnings = head.into_iter().flat_map(|side| &side.warnings).filter(is_new);
    warnings.map(remark).collect()
}

/// What an environment says of itself and no object shows: who provisions it, and where.
fn other_surroundings(base: Option<&Wanted>, head: Option<&Wanted>) -> Vec<Remark> {
    let (Some(base), Some(head)) = (base, head) else { return Vec::new() };
    let changed = ["engine", "cloud", "region", "cluster"].into_iter().filter_map(|field| {
        let word = |side: &Wanted| side.subject[field].as_str().unwrap_or_default().to_owned();
        let (before, after) = (word(base), word(head));
        (before != after).then(|| match field {
            "engine" => format!("who provisions changes from {before} to {after}: {}", of_engine(head)),
            _ => {
                format!("`{field}` changes from {} to {}: {}", named(&before), named(&after), of_place(field))
            }
        })
    });
    let place = Some(origin_review(&head.place.origin()));
    let told = |message| Remark { code: OTHER_SURROUNDINGS.into(), message, origin: place.clone() };
    changed.map(told).collect()
}

fn of_engine(head: &Wanted) -> &'static str {
    match head.state.provisioner {
        Provisioner::Karpenter => {
            "Provisor still writes the objects, and no longer buys, moves or ends a machine; what is counted here is what \
             Provisor would do, not what that Karpenter would choose"
        }
        Provisioner::Provisor => {
            "Provisor begins to buy, move and end machines as soon as no Karpenter holds its lease in the cluster"
        }
    }
}

fn of_place(field: &str) -> &'static str {
    match field {
        "cloud" => {
            "a process that runs with machines of another cloud writes nothing of such a commit until it is started anew"
        }
        _ => "a process that runs keeps to what it began with",
    }
}

/// What nobody wrote has no name.
fn named(word: &str) -> String {
    if word.is_empty() { "none".into() } else { format!("`{word}`") }
}

pub fn remark(diagnostic: &Diagnostic) -> Remark {
    Remark {
        code: diagnostic.code.into(),
        message: diagnostic.message.clone(),
        origin: Some(origin_review(&diagnostic.place.origin())),
    }
}

pub(super) fn origin_review(origin: &Origin) -> OriginReview {
    OriginReview { file: origin.file.to_string(), line: origin.line, column: origin.column }
}

fn object_review(diff: &ObjectDiff) -> ObjectReview {
    let field = |field: &crate::gitops::diff::FieldChange| FieldReview {
        path: field.path.clone(),
        before: field.from.clone(),
        after: field.to.clone(),
        impact: word(field.impact).into(),
        nodes: field.impact.nodes(),
        // A value that a built-in template sets comes from whoever chose the template.
        origin: field
            .origin
            .as_ref()
            .filter(|origin| !origin.file.starts_with("built-in:"))
            .or(diff.origin.as_ref())
            .map(origin_review),
    };
    ObjectReview {
        kind: diff.object.kind.to_string(),
        name: diff.object.name.to_string(),
        action: match diff.kind {
            DiffKind::Added => "create",
            DiffKind::Removed => "delete",
            DiffKind::Changed | DiffKind::Same => "update",
        }
        .into(),
        fields: diff.fields.iter().map(field).collect(),
        impact: word(diff.impact).into(),
        nodes: diff.impact.nodes(),
        origin: diff.origin.as_ref().map(origin_review),
    }
}

fn word(impact: NodeImpact) -> &'static str {
    match impact {
        NodeImpact::NoRoll => "none",
        NodeImpact::MayRoll { .. } => "may-roll-nodes",
        NodeImpact::Rolls { .. } => "rolls-nodes",
        NodeImpact::Destructive { .. } => "destructive",
    }
}

/// The same question, asked of the base and of the head.
struct Played {
    /// What chance began with, and what was done on the way; `None`: nothing is left to it.
    chance: Option<(u64, Course)>,
    /// What runs when the change arrives.
    start: Scene,
    /// What the base makes of it.
    without: Scene,
    /// What the head makes of it.
    with: Scene,
    /// What each of them buys for the same pods from nothing.
    steady_before: Scene,
    steady_after: Scene,
    choices_before: BTreeMap<PoolName, usize>,
    choices_after: BTreeMap<PoolName, usize>,
    /// Pools that the base has and the head has not.
    leaving: BTreeSet<PoolName>,
    /// The change has arrived and nothing has been done yet.
    arriving: Stage,
    wave: BTreeMap<PoolName, usize>,
}

impl Played {
    /// One for each life; none where there is nothing to play on.
    fn all(demand: &Demand, base: Option<&Wanted>, head: Option<&Wanted>) -> Vec<Self> {
        let objects = |side: Option<&'_ Wanted>| side.map_or_else(Vec::new, |side| side.objects.clone());
        let (before, after) = (objects(base), objects(head));
        let managed = Managed::of([&before[..], &after[..]]);
        let pools = |objects: &[Observation]| -> BTreeSet<PoolName> {
            let name = |object: &Observation| match object {
                Observation::Pool(pool) => Some(pool.name),
                _ => None,
            };
            objects.iter().filter_map(name).collect()
        };
        let leaving = &pools(&before) - &pools(&after);
        let nothing = match demand {
            Demand::None => return Vec::new(),
            Demand::Pods(stage) | Demand::Cluster(stage) => stage.emptied(),
            Demand::Lived(lived) => lived.nothing.emptied(),
        };
        let base_fresh = nothing.wanting(&before, &managed).at_rest();
        let head_fresh = nothing.wanting(&after, &managed).at_rest();
        let (steady_before, steady_after) = (base_fresh.scene(), head_fresh.scene());
        let (choices_before, choices_after) = (base_fresh.choices(), head_fresh.choices());
        let played =
            |chance: Option<(u64, Course)>, start: &Stage, arriving: Stage, without: &Stage, with: &Stage| {
                Self {
                    chance,
                    start: start.scene(),
                    without: without.scene(),
                    with: with.scene(),
                    steady_before: steady_before.clone(),
                    steady_after: steady_after.clone(),
                    choices_before: choices_before.clone(),
                    choices_after: choices_after.clone(),
                    leaving: leaving.clone(),
                    wave: arriving.first_wave(),
                    arriving,
                }
            };
        let start = match demand {
            Demand::None => return Vec::new(),
            Demand::Lived(lived) => {
                let of_life = |life: &Life| {
                    let arriving = life.start.wanting(&after, &managed);
                    played(Some((life.seed, life.course)), &life.start, arriving, &life.without, &life.with)
                };
                return lived.lives.iter().map(of_life).collect();
            }
            Demand::Cluster(stage) => stage.wanting(&before, &managed),
            Demand::Pods(_) => base_fresh.clone(),
        };
        let arriving = start.wanting(&after, &managed);
        let with = arriving.at_rest();
        // What becomes due while the change is carried out would have become due without it.
        let without = start.at_rest_by(with.now());
        vec![played(None, &start, arriving, &without, &with)]
    }

    /// The nodes that run when the change arrives, as the comparison of objects knows them.
    fn fleet(&self, base: Option<&Wanted>) -> Fleet {
        let mut fleet = Fleet::default();
        for (name, node) in &self.start.nodes {
            let labels = node.labels.iter();
            fleet.nodes_by_pool.entry(node.pool.as_str().into()).or_default().push(NodeFacts {
                name: name.as_str().into(),
                labels: Arc::new(
                    labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
                ),
                ..NodeFacts::default()
            });
        }
        for (object, wanted) in base.into_iter().flat_map(|side| &side.state.objects) {
            if &*object.kind == "NodePool"
                && let Some(class) = class_of(&wanted.manifest)
            {
                let pools = fleet.pools_by_class.entry(class.into()).or_default();
                pools.insert(object.name.clone());
            }
        }
        fleet
    }

    fn nodes(&self, found: &[ObjectDiff]) -> NodesReview {
        let rolled: BTreeSet<&Arc<str>> = found
            .iter()
            .filter(|diff| matches!(diff.impact, NodeImpact::Rolls { .. } | NodeImpact::MayRoll { .. }))
            .flat_map(|diff| &diff.affected)
            .collect();
        // Drifted before, and kept by the base alone: by a budget, a window or a paused roll.
        let is_held = |name: &NodeName| self.without.nodes.get(name).is_some_and(|node| node.is_drifted);
        let mut names = NodeNames::default();
        for (name, node) in &self.start.nodes {
            if self.with.nodes.contains_key(name) || !self.without.nodes.contains_key(name) {
                continue;
            }
            let list = if self.leaving.contains(&node.pool) {
                &mut names.retired
            } else if rolled.contains(&Arc::from(name.as_str())) || is_held(name) {
                &mut names.drifted
            } else if node.is_static {
                &mut names.retired
            } else {
                &mut names.consolidated
            };
            list.push(name.to_string());
        }
        // What the change surely replaces and what is still there has something that keeps it.
        let must_go: BTreeSet<&str> = found
            .iter()
            .filter(|diff| matches!(diff.impact, NodeImpact::Rolls { .. }))
            .flat_map(|diff| diff.affected.iter().map(|name| &**name))
            .collect();
        let is_to_go = |node: &NodeName| {
            let pool = self.start.nodes.get(node).map(|node| node.pool);
            must_go.contains(node.as_str()) || pool.is_some_and(|pool| self.leaving.contains(&pool))
        };
        let stuck =
            self.with.kept.iter().filter(|(node, _)| is_to_go(node) && self.without.nodes.contains_key(node));
        let new =
            |scene: &Scene| scene.nodes.keys().filter(|name| !self.start.nodes.contains_key(name)).count();
        NodesReview {
            before: self.without.nodes.len(),
            after: self.with.nodes.len(),
            created: new(&self.with).saturating_sub(new(&self.without)),
            drifted: names.drifted.len(),
            retired: names.retired.len(),
            consolidated: names.consolidated.len(),
            untouched: self.start.nodes.keys().filter(|name| self.with.nodes.contains_key(name)).count(),
            stuck: stuck.map(|(node, reason)| stuck_node(*node, reason)).collect(),
            names,
        }
    }

    fn roll(&self, nodes: &NodesReview) -> RollReview {
        let by_pool = |names: &mut dyn Iterator<Item = &String>| {
            let mut by_pool: BTreeMap<PoolName, usize> = BTreeMap::new();
            for node in names.filter_map(|name| self.start.nodes.get(&NodeName::new(name))) {
                *by_pool.entry(node.pool).or_default() += 1;
            }
            by_pool
        };
        let stuck = nodes.stuck.iter().map(|node| &node.node);
        let is_static =
            |name: &&String| self.start.nodes.get(&NodeName::new(name)).is_some_and(|node| node.is_static);
        let (surplus, retired): (Vec<_>, Vec<_>) = nodes.names.retired.iter().partition(is_static);
        let rolling = by_pool(&mut nodes.names.drifted.iter().chain(stuck).chain(retired));
        let surplus = by_pool(&mut surplus.into_iter());
        let with_stuck: BTreeSet<&str> = nodes.stuck.iter().filter_map(|node| node.pool.as_deref()).collect();
        let start = self.arriving.now();
        let mut ends = start;
        let mut pools: Vec<PoolRoll> = Vec::new();
        for (pool, nodes) in rolling {
            let at_once = self.wave.get(&pool).copied().unwrap_or(0).min(nodes);
            // Where budgets would let more go than really can, more will not go later either.
            let allowed = self.arriving.allowed_now(pool);
            let most = if allowed == 0 { u32::MAX } else { at_once as u32 };
            let table = self.arriving.timetable(pool, nodes as u32, most);
            ends = table.end().map_or(ends, |end| end.max(ends));
            let pause = |(from, until): &(Timestamp, Timestamp)| Pause {
                from: from.to_string(),
                until: until.to_string(),
            };
            let is_stuck = with_stuck.contains(pool.as_str());
            pools.push(PoolRoll {
                pool: pool.to_string(),
                reason: if self.leaving.contains(&pool) { "retired" } else { "drifted" }.into(),
                nodes,
                at_once,
                waves: (table.left == 0 && !is_stuck).then_some(table.waves.len()),
                ends: table.end().filter(|_| !is_stuck).map(|end| end.to_string()),
                pauses: table.pauses.iter().map(pause).collect(),
            });
        }
        pools.extend(surplus.into_iter().map(|(pool, nodes)| PoolRoll {
            pool: pool.to_string(),
            reason: "retired".into(),
            nodes,
            at_once: nodes,
            waves: Some(1),
            ends: start.checked_add(WAVE).ok().map(|end| end.to_string()),
            pauses: Vec::new(),
        }));
        let blockers: BTreeSet<String> = nodes
            .stuck
            .iter()
            .map(|node| match &node.pool {
                Some(pool) => format!("{pool}: {}", node.message),
                None => node.message.clone(),
            })
            .collect();
        let mut blockers: Vec<String> = blockers.into_iter().collect();
        if !self.with.is_settled {
            blockers
                .push("the cluster does not come to rest: nodes are bought and given back for ever".into());
        }
        let mut expiring: Vec<(Timestamp, &NodeName)> = self
            .start
            .nodes
            .iter()
            .filter_map(|(name, node)| Some((node.expires?, name)))
            .filter(|(at, _)| *at > start && *at <= ends)
            .collect();
        expiring.sort();
        let expiring = expiring
            .into_iter()
            .map(|(at, node)| ExpiringNode { node: node.to_string(), at: at.to_string() });
        RollReview { pools, blockers, expiring: expiring.collect() }
    }

    fn choice(&self) -> ChoiceReview {
        let sum = |choices: &BTreeMap<PoolName, usize>| choices.values().sum();
        let share = |scene: &Scene| {
            let mut by_offering: BTreeMap<_, i128> = BTreeMap::new();
            for node in scene.nodes.values() {
                *by_offering.entry((node.instance_type, node.zone, node.capacity_type)).or_default() += 1;
            }
            let most = by_offering.values().copied().max().unwrap_or(0);
            // To the hundredth, halves upwards.
            let nodes = scene.nodes.len().max(1) as i128;
            (most * 200 + nodes) / (2 * nodes)
        };
        let (before, after) = (share(&self.steady_before), share(&self.steady_after));
        let text = |hundredths: i128| decimal(hundredths * 10_000);
        ChoiceReview {
            offerings: Counts { before: sum(&self.choices_before), after: sum(&self.choices_after) },
            largest_share: Span { before: text(before), after: text(after), delta: text(after - before) },
        }
    }

    fn cost(&self) -> CostReview {
        let (before, after) = (&self.steady_before, &self.steady_after);
        let delta = after.price() - before.price();
        let of_kind = |kind: CapacityType| {
            let sum = |scene: &Scene| -> UsdPerHour {
                let nodes = scene.nodes.values().filter(|node| node.capacity_type == Some(kind));
                nodes.filter_map(|node| node.price).sum()
            };
            monthly(sum(after) - sum(before))
        };
        let unpriced: BTreeSet<String> = [before, after, &self.with]
            .into_iter()
            .flat_map(|scene| scene.nodes.values())
            .filter(|node| node.price.is_none())
            .map(|node| node.instance_type.map_or_else(|| "unknown".to_owned(), |kind| kind.to_string()))
            .collect();
        CostReview {
            currency: "USD".into(),
            hours_per_month: super::report::HOURS_PER_MONTH.to_string(),
            before: monthly(before.price()),
            after: monthly(after.price()),
            delta: monthly(delta),
            usd_per_hour: Span {
                before: before.price().to_string(),
                after: after.price().to_string(),
                delta: delta.to_string(),
            },
            running_usd_per_hour: self.without.price().to_string(),
            reached_usd_per_hour: self.with.price().to_string(),
            by_pool: self.pool_costs(),
            by_capacity_type: CapacityTypeCost {
                spot: of_kind(CapacityType::Spot),
                on_demand: of_kind(CapacityType::OnDemand),
                reserved: of_kind(CapacityType::Reserved),
            },
            unpriced: unpriced.into_iter().collect(),
            unplaced: Counts { before: before.waiting.len(), after: after.waiting.len() },
        }
    }

    fn pool_costs(&self) -> Vec<PoolCost> {
        let of = |scene: &Scene, pool: PoolName| {
            let nodes: Vec<_> = scene.nodes.values().filter(|node| node.pool == pool).collect();
            (nodes.len(), nodes.iter().filter_map(|node| node.price).sum::<UsdPerHour>())
        };
        let pools: BTreeSet<PoolName> =
            self.choices_before.keys().chain(self.choices_after.keys()).copied().collect();
        let cost = |pool: PoolName| {
            let (nodes_before, before) = of(&self.steady_before, pool);
            let (nodes_after, after) = of(&self.steady_after, pool);
            PoolCost {
                pool: pool.to_string(),
                before: monthly(before),
                after: monthly(after),
                delta: monthly(after - before),
                nodes_before,
                nodes_after,
                offerings_before: self.choices_before.get(&pool).copied().unwrap_or(0),
                offerings_after: self.choices_after.get(&pool).copied().unwrap_or(0),
            }
        };
        pools.into_iter().map(cost).collect()
    }

    fn pods(&self) -> PodsReview {
        let moves = |to: &Scene, pod: &ObjectKey, from: &NodeName| to.places.get(pod) != Some(from);
        let moved = self.start.places.iter().filter(|(pod, from)| {
            moves(&self.with, pod, from)
                && !moves(&self.without, pod, from)
                && self.with.places.contains_key(pod)
        });
        let moved: Vec<String> = moved.map(|(pod, _)| pod.to_string()).collect();
        // Who waits now, and who would if it had to start again.
        let mut waiting: BTreeMap<ObjectKey, WaitingPod> = BTreeMap::new();
        for (after, before) in [(&self.with, &self.without), (&self.steady_after, &self.steady_before)] {
            for (pod, reasons) in &after.waiting {
                if !before.waiting.contains_key(pod) {
                    waiting.entry(*pod).or_insert_with(|| self.waiting_pod(*pod, reasons));
                }
            }
        }
        let fixed = self.without.waiting.keys().filter(|pod| !self.with.waiting.contains_key(pod));
        let (before, after) = (&self.steady_before.on_fallback, &self.steady_after.on_fallback);
        let was_on_spot = |pod: &&ObjectKey| match self.steady_before.places.get(*pod) {
            Some(node) => self
                .steady_before
                .nodes
                .get(node)
                .is_some_and(|node| node.capacity_type == Some(CapacityType::Spot)),
            None => true,
        };
        let fallback = after.difference(before).filter(was_on_spot);
        let anyway = self.with.waiting.keys().filter(|pod| self.without.waiting.contains_key(pod));
        PodsReview {
            moved: moved.len(),
            moved_names: moved.into_iter().take(MOVED_MAX).collect(),
            new_unschedulable: waiting.into_values().collect(),
            fixed: fixed.map(ToString::to_string).collect(),
            fallback_only: fallback.map(ToString::to_string).collect(),
            waiting_anyway: anyway.count(),
        }
    }

    fn waiting_pod(&self, pod: ObjectKey, reasons: &[Reason]) -> WaitingPod {
        let said = |reason: &Reason| WaitingReason {
            pool: reason.pool.map(|pool| pool.to_string()),
            code: reason.code.into(),
            message: reason.message.clone(),
        };
        WaitingPod {
            pod: pod.to_string(),
            lost_only_pool: !reasons.is_empty() && reasons.iter().all(Reason::is_refusal),
            still_runs: self.with.places.contains_key(&pod),
            reasons: reasons.iter().map(said).collect(),
        }
    }

    /// Limits that are exceeded, or that keep pods waiting, and were or did not before.
    fn limits(&self) -> Vec<LimitReview> {
        let waits_for = |scene: &Scene, pool: PoolName| {
            let waits = |reasons: &&Vec<Reason>| {
                reasons.iter().any(|reason| reason.is_limit && reason.pool == Some(pool))
            };
            scene.waiting.values().filter(waits).count()
        };
        let mut limits = Vec::new();
        // What a pool that goes is told, so that it buys nothing more, is no limit of anybody's.
        for (pool, (used, allowed)) in
            self.with.limits.iter().filter(|(pool, _)| !self.leaving.contains(pool))
        {
            let old = self.without.excesses(*pool);
            let mut exceeded = self.with.excesses(*pool);
            exceeded.retain(|resource, _| !old.contains_key(resource));
            if !exceeded.is_empty() {
                limits.extend(exceeded.into_iter().map(|(resource, (used, limit))| LimitReview {
                    pool: pool.to_string(),
                    resource: resource.to_string(),
                    used: resource.render(used),
                    limit: resource.render(limit),
                    is_exceeded: true,
                    waiting_pods: waits_for(&self.with, *pool),
                }));
                continue;
            }
            let waiting = waits_for(&self.with, *pool);
            if waiting <= waits_for(&self.without, *pool) {
                continue;
            }
            // The fullest one is the one that stands in the way.
            let fullest = allowed.iter().max_by_key(|(name, limit)| {
                (i128::from(used.get(*name)) * 1000).checked_div(i128::from((*limit).max(1)))
            });
            if let Some((resource, limit)) = fullest {
                limits.push(LimitReview {
                    pool: pool.to_string(),
                    resource: resource.to_string(),
                    used: resource.render(used.get(resource)),
                    limit: resource.render(limit),
                    is_exceeded: false,
                    waiting_pods: waiting,
                });
            }
        }
        limits
    }
}

fn stuck_node(node: NodeName, reason: &Reason) -> StuckNode {
    StuckNode {
        node: node.to_string(),
        pool: reason.pool.map(|pool| pool.to_string()),
        code: reason.code.into(),
        message: reason.message.clone(),
    }
}
