//! What the planner found, in the words of the document.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::document::{
    Advice, Alternative, Buffer, Capacity, Command, Disruption, ExistingNode, Kept, Launch, Move, NewNode,
    Provisioning, Reason, Settled, SettledNode, SettledStep, StaticPool, Taint, Unschedulable,
};
use crate::capacity::buffers::{self, Hosting, virtual_pods};
use crate::capacity::cluster::Cluster;
use crate::capacity::decision::Plan;
use crate::capacity::disruption::{self, Destination, DisruptionPlan, Kind, stays};
use crate::capacity::engine::EngineSettings;
use crate::capacity::planning;
use crate::capacity::scheduling::{self, Help, Refusal, moving_pods, provisionable_pods};
use crate::capacity::static_capacity::Keeping;
use crate::model::action::LaunchOption;
use crate::model::buffer::{BufferCondition, CapacityBuffer};
use crate::model::condition::ConditionStatus;
use crate::model::count::counted;
use crate::model::money::UsdPerHour;
use crate::model::name::{ObjectKey, PoolName};
use crate::simulator::settle::{self, settle};

pub fn answer(cluster: &Cluster, now: Timestamp, settings: &EngineSettings, until_settled: bool) -> Capacity {
    let (plan, bound) = planning::bounded_plan(cluster, now, settings);
    let waiting = provisionable_pods(cluster, &settings.scheduling).0;
    let moving = moving_pods(cluster, now);
    let waiting: BTreeSet<ObjectKey> = waiting.iter().chain(&moving).map(|pod| pod.key).collect();
    let mut ids = Ids::default();
    let mut provisioning = provisioning(&plan, bound, &waiting, &mut ids);
    let help = planning::help(cluster, now, settings, &plan);
    provisioning.unschedulable = plan
        .provisioning
        .unschedulable
        .iter()
        .filter(|pod| waiting.contains(&pod.pod))
        .map(|pod| unschedulable(&pod.pod, &pod.reasons, help.get(&pod.pod)))
        .collect();
    let room = virtual_pods(cluster, &settings.scheduling);
    let names: BTreeSet<ObjectKey> = room.iter().map(|pod| pod.key).collect();
    for (shown, node) in provisioning.new_nodes.iter_mut().zip(&plan.provisioning.new_nodes) {
        shown.buffer_pods = self::names(&node.pods, Some(&names));
    }
    if settings.scheduling.capacity_buffer {
        let hosting = Hosting::of(&room, &plan.provisioning);
        let buffers = cluster.buffers.values();
        provisioning.buffers = buffers.map(|one| buffer(cluster, one, &hosting, now)).collect();
    }
    for pod in &plan.rejected {
        provisioning.unschedulable.push(unschedulable(&pod.pod, &pod.reasons, None));
    }
    provisioning.unschedulable.sort_by(|a, b| a.pod.cmp(&b.pod));
    let settled = until_settled.then(|| settled(&settle(cluster, now, settings)));
    Capacity { provisioning, disruption: disruption_of(&plan.disruption, &names, &mut ids), settled }
}

fn buffer(cluster: &Cluster, buffer: &CapacityBuffer, hosting: &Hosting, now: Timestamp) -> Buffer {
    let status = buffers::judged(cluster, buffer, hosting, now);
    let told = |kind| status.conditions.get(kind).filter(|_| buffers::is_active(buffer));
    let ready = told(BufferCondition::ReadyForProvisioning);
    let shown = match ready {
        Some(ready) if ready.status == ConditionStatus::True => told(BufferCondition::Provisioning),
        ready => ready,
    };
    let (fitting, on_new_nodes) = hosting.split(buffer.key);
    Buffer {
        buffer: buffer.key.to_string(),
        pods: status.replicas.filter(|_| buffers::is_active(buffer)).unwrap_or(0),
        fitting,
        on_new_nodes,
        reason: shown.map_or_else(|| "NotActive".to_owned(), |shown| shown.reason.to_string()),
        message: match shown {
            Some(shown) => shown.message.to_string(),
            None => format!("its provisioning strategy is {}", buffer.strategy),
        },
    }
}

fn disruption_of(plan: &DisruptionPlan, room: &BTreeSet<ObjectKey>, ids: &mut Ids) -> Disruption {
    let commands = plan.commands.iter().map(|command| {
        let replacements: Vec<NewNode> =
            command.replacements.iter().map(|node| replacement(node, room, ids)).collect();
        let moves = command.pods.iter().map(|(pod, destination)| Move {
            pod: pod.to_string(),
            to: match destination {
                Destination::Existing(place) => Some(place.to_string()),
                Destination::Nowhere => None,
                Destination::Replacement(index) => replacements.get(*index).map(|node| node.id.clone()),
            },
        });
        let moves = moves.collect();
        Command {
            decision: word_for(command.kind()),
            reason: command.reason().as_str().to_owned(),
            method: command.method.as_str().to_owned(),
            nodes: command.nodes.iter().map(ToString::to_string).collect(),
            replacements,
            savings_usd_per_hour: command.savings.to_string(),
            least_savings_usd_per_hour: command.least_savings.map(|least| least.to_string()),
            pods: moves,
            alternatives: command.alternatives.iter().map(alternative).collect(),
        }
    });
    let kept = plan.kept.iter().map(|kept| Kept {
        node: kept.node.to_string(),
        code: kept.code.to_owned(),
        message: kept.message.clone(),
        since: kept.since.map(|since| since.at.to_string()),
        next_look: kept.next_look.map(|at| at.to_string()),
        waits_for: stays::awaited(kept.code).to_owned(),
    });
    Disruption { commands: commands.collect(), kept: kept.collect() }
}

fn word_for(kind: Kind) -> String {
    match kind {
        Kind::Delete => "delete",
        Kind::Replace => "replace",
    }
    .to_owned()
}

fn alternative(one: &disruption::Alternative) -> Alternative {
    Alternative {
        decision: word_for(one.kind()),
        nodes: one.nodes.iter().map(ToString::to_string).collect(),
        replacements: one.replacements.iter().map(launch_of).collect(),
        savings_usd_per_hour: one.savings.to_string(),
        pods: one.pods,
        code: one.code.to_owned(),
        message: one.message.clone(),
    }
}

/// Pods that stand for `room` are told apart.
fn replacement(node: &scheduling::NewNode, room: &BTreeSet<ObjectKey>, ids: &mut Ids) -> NewNode {
    let own = node.pods.iter().filter(|pod| !room.contains(*pod)).copied().collect();
    NewNode { buffer_pods: names(&node.pods, Some(room)), ..new_node(node, Some(&own), ids) }
}

fn settled(end: &settle::Settled) -> Settled {
    let node = |node: &settle::SettledNode| SettledNode {
        name: node.name.to_string(),
        pool: node.pool.map(|pool| pool.to_string()),
        instance_type: node.instance_type.map_or_else(String::new, |name| name.to_string()),
        zone: node.zone.map_or_else(String::new, |zone| zone.to_string()),
        capacity_type: node.capacity_type.map_or_else(String::new, |kind| kind.to_string()),
        usd_per_hour: node.pool.map(|_| node.price.to_string()),
        pods: node.pods as u64,
    };
    let step = |done: &settle::Done| SettledStep {
        at: done.at.to_string(),
        method: done.what.as_str().to_owned(),
        nodes: done.removed as u64,
        new_nodes: done.started as u64,
        pods: (done.evictions + done.bound) as u64,
        usd_per_hour: done.bill.to_string(),
    };
    let sum = |count: fn(&settle::Done) -> usize| end.history.iter().map(count).sum::<usize>() as u64;
    let bill: UsdPerHour = end.nodes.iter().map(|node| node.price).sum();
    Settled {
        nodes: end.nodes.iter().map(node).collect(),
        steps: end.steps,
        quiescent: end.quiescent,
        until: end.until.to_string(),
        start_usd_per_hour: end.before.to_string(),
        usd_per_hour: bill.to_string(),
        evictions: sum(|done| done.evictions),
        bound: sum(|done| done.bound),
        pending: end.pending as u64,
        nodes_removed: sum(|done| done.removed),
        nodes_started: sum(|done| done.started),
        history: end.history.iter().map(step).collect(),
    }
}

/// Counts new nodes over the whole plan.
#[derive(Debug, Default)]
pub struct Ids(usize);

impl Ids {
    fn next(&mut self) -> String {
        self.0 += 1;
        format!("new-{}", self.0)
    }
}

fn provisioning(
    Plan { provisioning: solution, kept, .. }: &Plan,
    bound: UsdPerHour,
    waiting: &BTreeSet<ObjectKey>,
    ids: &mut Ids,
) -> Provisioning {
    let mut new_nodes: Vec<NewNode> =
        solution.new_nodes.iter().map(|node| new_node(node, Some(waiting), ids)).collect();
    for pool in kept {
        new_nodes.extend(pool.new_nodes.iter().map(|node| NewNode {
            reason: Some("StaticPool".to_owned()),
            message: Some(pool.why()),
            ..new_node(node, None, ids)
        }));
    }
    let bought = solution.new_nodes.iter().chain(kept.iter().flat_map(|pool| &pool.new_nodes));
    let total: UsdPerHour = bought.map(scheduling::NewNode::price).sum();
    let existing = solution
        .existing
        .iter()
        .map(|(place, pods)| ExistingNode { node: place.to_string(), pods: names(pods, Some(waiting)) });
    Provisioning {
        new_nodes,
        existing_nodes: existing.filter(|node| !node.pods.is_empty()).collect(),
        unschedulable: Vec::new(),
        buffers: Vec::new(),
        static_pools: kept.iter().map(static_pool).collect(),
        usd_per_hour: total.to_string(),
        lower_bound_usd_per_hour: bound.to_string(),
        gap: gap(total, bound),
    }
}

fn static_pool(pool: &Keeping) -> StaticPool {
    let missing = u64::from(pool.replicas).saturating_sub(pool.nodes);
    let (reason, message) = match &pool.refusal {
        Some(refusal) => (refusal.code.as_str(), refusal.message.clone()),
        None if missing > 0 => {
            ("Missing", format!("it lacks {}, launched at once", counted(missing, "node")))
        }
        None if pool.excess > 0 => ("Excess", format!("it has {} too many", counted(pool.excess, "node"))),
        None => ("Complete", "it has all its nodes".to_owned()),
    };
    StaticPool {
        pool: pool.pool.to_string(),
        replicas: pool.replicas,
        nodes: pool.nodes,
        new_nodes: pool.new_nodes.len(),
        reason: reason.to_owned(),
        message,
    }
}

/// By how much `total` exceeds `bound`, in parts of it with four decimals, rounded up.
fn gap(total: UsdPerHour, bound: UsdPerHour) -> Option<String> {
    let (excess, bound) = (i128::from(total.0) - i128::from(bound.0), i128::from(bound.0));
    if bound <= 0 || excess < 0 {
        return None;
    }
    let parts = (excess * 10_000 + bound - 1) / bound;
    Some(format!("{}.{:04}", parts / 10_000, parts % 10_000))
}

fn new_node(node: &scheduling::NewNode, shown: Option<&BTreeSet<ObjectKey>>, ids: &mut Ids) -> NewNode {
    let launch = node.launch();
    let capacity_types: Vec<String> = node.capacity_types().iter().map(ToString::to_string).collect();
    NewNode {
        id: ids.next(),
        pool: node.pool.to_string(),
        labels: node.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        taints: node
            .taints
            .iter()
            .map(|taint| Taint {
                key: taint.key.to_string(),
                value: Some(taint.value.to_string()).filter(|value| !value.is_empty()),
                effect: taint.effect.as_str().to_owned(),
            })
            .collect(),
        capacity_type: launch.capacity_type.to_string(),
        capacity_types: if capacity_types.len() > 1 { capacity_types } else { Vec::new() },
        zones: node.zones().iter().map(ToString::to_string).collect(),
        instance_types: node.instance_types().iter().map(ToString::to_string).collect(),
        launch: launch_of(launch),
        why: why(node),
        next_best: next_best(node),
        requests: node
            .requests
            .iter()
            .map(|(name, amount)| (name.to_string(), name.render(amount)))
            .collect(),
        pods: names(&node.pods, shown),
        buffer_pods: Vec::new(),
        reason: None,
        message: None,
    }
}

/// Of `pods`, those that are to be `shown`, by name.
fn names(pods: &[ObjectKey], shown: Option<&BTreeSet<ObjectKey>>) -> Vec<String> {
    let is_shown = |pod: &&ObjectKey| shown.is_none_or(|shown| shown.contains(*pod));
    let mut names: Vec<String> = pods.iter().filter(is_shown).map(ToString::to_string).collect();
    names.sort();
    names
}

fn unschedulable(pod: &ObjectKey, reasons: &[Refusal], help: Option<&Help>) -> Unschedulable {
    let nearest = |pool: &PoolName| help?.nearest.get(pool).cloned();
    let reasons = reasons.iter().map(|reason| Reason {
        pool: reason.pool.map(|pool| pool.to_string()),
        code: reason.code.as_str().to_owned(),
        message: reason.message.clone(),
        nearest: reason.pool.as_ref().and_then(nearest),
    });
    let advice = help.and_then(|help| help.advice.as_ref()).map(|advice| Advice {
        pool: advice.pool.to_string(),
        edits: advice.edits.iter().map(ToString::to_string).collect(),
        launch: launch_of(&advice.launch),
        message: advice.to_string(),
    });
    Unschedulable { pod: pod.to_string(), reasons: reasons.collect(), advice }
}

fn launch_of(option: &LaunchOption) -> Launch {
    Launch {
        instance_type: option.instance_type.to_string(),
        zone: option.zone.to_string(),
        capacity_type: option.capacity_type.to_string(),
        usd_per_hour: option.price.to_string(),
    }
}

/// The cheapest way to buy each of the types after the one that is launched.
fn next_best(node: &scheduling::NewNode) -> Vec<Launch> {
    const SHOWN: usize = 3;
    let mut seen = BTreeSet::from([node.launch().instance_type]);
    let others = node.options.iter().filter(|option| seen.insert(option.instance_type));
    others.take(SHOWN).map(launch_of).collect()
}

fn why(node: &scheduling::NewNode) -> String {
    match node.options.len() {
        1 => "the only way to buy it".to_owned(),
        ways => format!("the cheapest of {ways} ways to buy it"),
    }
}
