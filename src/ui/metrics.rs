//! What monitoring reads: `/metrics` under Karpenter's names where Karpenter has the figure, `/healthz` and `/readyz`.
//!
//! Figures are counted from what the node half hears and decides; nothing here is asked for it, so a scrape costs nothing but
//! its own text. `docs/reference/metrics.md` lists them.

mod calls;
mod conditions;
mod endpoints;
mod messages;
mod page;
mod state;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use crate::capacity::decision::Decision;
use crate::capacity::disruption::balanced::Move;
use crate::capacity::disruption::command::reason_of;
use crate::capacity::disruption::{Command, DisruptionPlan, Kind, Method, Outlook, has_to_move};
use crate::capacity::ledger::{Ledger, Spent, Statement};
use crate::capacity::repair::first_due;
use crate::capacity::scheduling::{EffectiveZone, Place};
use crate::controllers::recorder::RecordingHealth;
use crate::model::action::Action;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::label::{self, Labels, annotation};
use crate::model::name::{ClaimName, ObjectKey, PoolName, Uid};
use crate::model::node::Node;
use crate::model::observation::{EvictionBlock, Observation};
use crate::model::owner::Owner;
use crate::model::pod::{Pod, PodPhase};
use crate::model::pool::PoolCondition;

use calls::Call;
pub use calls::Metered;
use conditions::Changes;
pub use endpoints::{EndpointArgs, serve};
use messages::Messages;
use page::{KARPENTER, OPERATOR, Page, Summary, labels};
use state::{State, pod_labels, seconds};
use waiting::WaitingPods;

type Series = Vec<(&'static str, String)>;
type Counts = Family<Series, Counter>;
type Durations = Family<Series, Histogram, fn() -> Histogram>;

/// How long nodes live, in seconds: from a quarter of an hour to thirty days, as Karpenter has it.
const LIFETIMES: [f64; 21] = {
    let (minute, hour, day) = (60.0, 3600.0, 86400.0);
    [
        15.0 * minute,
        30.0 * minute,
        45.0 * minute,
        hour,
        2.0 * hour,
        4.0 * hour,
        6.0 * hour,
        8.0 * hour,
        10.0 * hour,
        12.0 * hour,
        16.0 * hour,
        20.0 * hour,
        day,
        2.0 * day,
        3.0 * day,
        5.0 * day,
        10.0 * day,
        15.0 * day,
        20.0 * day,
        25.0 * day,
        30.0 * day,
    ]
};

/// Scores of moves; one half is enough.
const SCORES: [f64; 8] = [0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0];

/// What is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched {
    /// Whose pools and machines are counted; `None`: everybody's.
    pub owner: Option<Owner>,
    /// No series for single pods, nodes and pools.
    pub hides_objects: bool,
}

/// What is counted; clones count together.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    /// What is told of conditions.
    operator: Registry,
    watched: Watched,
    is_ready: AtomicBool,
    claim_changes: Changes,
    pool_changes: Changes,
    claim_terminations: Durations,
    messages: Messages,
    claims_created: Counts,
    claims_terminated: Counts,
    claims_disrupted: Counts,
    claims_unhealthy: Counts,
    claim_endings: Durations,
    machine_endings: Durations,
    nodes_created: Counts,
    nodes_terminated: Counts,
    nodes_drained: Counts,
    node_lives: Durations,
    eviction_requests: Counts,
    pods_disrupted: Counts,
    pods_drained: Counts,
    disruptions: Counts,
    disruptions_by_pool: Counts,
    withdrawn: Counts,
    moves: Counts,
    scores: Durations,
    eligible: Family<Series, Gauge>,
    allowed_disruptions: Family<Series, Gauge>,
    consuming_budgets: Family<Series, Gauge>,
    cost_errors: Counts,
    call_seconds: Durations,
    call_errors: Counts,
    node_count: Gauge,
    is_synced: Gauge,
    unschedulable: Family<Series, Gauge>,
    ignored: Gauge,
    decision_seconds: Histogram,
    bound_seconds: Histogram,
    placed_bound_seconds: Histogram,
    placed_running_seconds: Histogram,
    planning_seconds: Durations,
    pending_zones: Family<Series, Gauge>,
    recording: Arc<RecordingHealth>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    state: State,
    /// Pools whose machines come to be nodes.
    healthy: BTreeSet<PoolName>,
    waiting: WaitingPods,
    is_synced: bool,
    /// What was judged last.
    judged: Option<Arc<DisruptionPlan>>,
    /// Since when the picture is being made.
    unsynced: Option<Timestamp>,
    /// Pods that were deleted past their budgets, and counted.
    forced: BTreeSet<Uid>,
    startups: Summary,
    node_endings: BTreeMap<String, Summary>,
    /// What machines of ours cost since the process began.
    ledger: Ledger,
}

/// A metric of this name that is served from now on.
fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn durations(registry: &mut Registry, name: &str, help: &str, new: fn() -> Histogram) -> Durations {
    register(registry, name, help, Family::new_with_constructor(new))
}

fn moments() -> Histogram {
    Histogram::new(waiting::SECONDS)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Of everybody, with everything.
    pub fn new() -> Self {
        Self::of(Watched::default())
    }

    pub fn of(watched: Watched) -> Self {
        let mut registry = Registry::with_prefix(KARPENTER);
        let mut operator = Registry::with_prefix(OPERATOR);
        let all = &mut registry;
        let counts = |all: &mut Registry, name, help| register(all, name, help, Counts::default());
        let gauge = |all: &mut Registry, name, help| register(all, name, help, Gauge::default());
        let gauges =
            |all: &mut Registry, name, help| register(all, name, help, Family::<Series, Gauge>::default());
        let build = gauges(all, "build_info", "The program that answers");
        let labels = vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("goversion", env!("PROVISOR_RUSTC").to_owned()),
            ("goarch", std::env::consts::ARCH.to_owned()),
            ("commit", option_env!("PROVISOR_COMMIT").unwrap_or_default().to_owned()),
        ];
        build.get_or_create(&labels).set(1);
        // Those of single pods are served with the pods themselves.
        let of_pods = |all: &mut Registry, name, help| match watched.hides_objects {
            true => moments(),
            false => register(all, name, help, moments()),
        };
        Self(Arc::new(Inner {
            claim_changes: Changes::of(&mut operator, "nodeclaim"),
            pool_changes: Changes::of(&mut operator, "nodepool"),
            claim_terminations: conditions::endings(&mut operator),
            messages: Messages::of(all),
            claims_created: counts(all, "nodeclaims_created", "NodeClaims that were made"),
            claims_terminated: counts(all, "nodeclaims_terminated", "NodeClaims that are gone"),
            claims_disrupted: counts(
                all,
                "nodeclaims_disrupted",
                "NodeClaims that were given back or replaced",
            ),
            claims_unhealthy: counts(
                all,
                "nodeclaims_unhealthy_disrupted",
                "NodeClaims whose nodes were sick for too long",
            ),
            machine_endings: durations(
                all,
                "nodeclaims_instance_termination_duration_seconds",
                "From when a machine was told to stop to when it was gone",
                || Histogram::new(exponential_buckets(1.0, 2.0, 11)),
            ),
            claim_endings: durations(
                all,
                "nodeclaims_termination_duration_seconds",
                "From when a NodeClaim was to go to when it was gone",
                || Histogram::new(exponential_buckets(1.0, 2.0, 12)),
            ),
            nodes_created: counts(all, "nodes_created", "Nodes that registered"),
            nodes_terminated: counts(all, "nodes_terminated", "Nodes that are gone"),
            nodes_drained: counts(all, "nodes_drained", "Nodes whose pods are gone, so that they may go"),
            node_lives: durations(all, "nodes_lifetime_duration_seconds", "How long nodes lived", || {
                Histogram::new(LIFETIMES)
            }),
            eviction_requests: counts(all, "pods_eviction_requests", "Evictions asked for, by the answer"),
            pods_disrupted: counts(
                all,
                "pods_disruption_initiated",
                "Pods that have to move because their node goes",
            ),
            pods_drained: counts(
                all,
                "pods_drained",
                "Pods that had to leave their node, by the reason of it",
            ),
            disruptions: counts(all, "voluntary_disruption_decisions", "Disruption that was begun"),
            disruptions_by_pool: counts(
                all,
                "voluntary_disruption_decisions_by_nodepool",
                "Disruption that was begun, in each pool that it concerns",
            ),
            withdrawn: counts(
                all,
                "voluntary_disruption_failed_validations",
                "Nodes that were to go and stay after a second look",
            ),
            moves: counts(
                all,
                "consolidation_moves",
                "What consolidation would do and what it turned down, in each pool that it concerns",
            ),
            scores: durations(
                all,
                "consolidation_score",
                "What moves were worth to pools with the policy Balanced",
                || Histogram::new(SCORES),
            ),
            eligible: gauges(
                all,
                "voluntary_disruption_eligible_nodes",
                "Nodes that might go for a reason, whatever budgets say",
            ),
            allowed_disruptions: gauges(
                all,
                "nodepools_allowed_disruptions",
                "Nodes of a pool that its budgets let be away for a reason",
            ),
            consuming_budgets: gauges(
                all,
                "nodepools_nodes_consuming_budgets",
                "Nodes of a pool that are away and use its budgets up",
            ),
            cost_errors: counts(
                all,
                "nodepools_cost_tracker_errors",
                "NodeClaims of types that nobody sells",
            ),
            call_seconds: durations(
                all,
                "cloudprovider_duration_seconds",
                "How long requests to the cloud took",
                moments,
            ),
            call_errors: counts(all, "cloudprovider_errors", "Requests to the cloud that failed"),
            node_count: gauge(all, "cluster_state_node_count", "Nodes in the picture of the cluster"),
            is_synced: gauge(all, "cluster_state_synced", "Whether the picture of the cluster is complete"),
            unschedulable: gauges(all, "scheduler_unschedulable_pods_count", "Pods that fit no pool"),
            ignored: gauge(
                all,
                "scheduler_ignored_pods_count",
                "Pods that cannot be planned for as they are written",
            ),
            planning_seconds: durations(
                all,
                "scheduler_scheduling_duration_seconds",
                "How long a round of planning took",
                moments,
            ),
            pending_zones: gauges(
                all,
                "scheduler_pending_pods_by_effective_zone_count",
                "Pods without a node, by the zone that they can come to run in",
            ),
            decision_seconds: of_pods(
                all,
                "pods_scheduling_decision_duration_seconds",
                "From when a pod was first seen without a node to the first decision about it",
            ),
            bound_seconds: of_pods(
                all,
                "pods_bound_duration_seconds",
                "From when a pod was made to when it was bound",
            ),
            placed_bound_seconds: of_pods(
                all,
                "pods_provisioning_bound_duration_seconds",
                "From when there was first a place for a pod, of a pool whose machines join, to when it was bound",
            ),
            placed_running_seconds: of_pods(
                all,
                "pods_provisioning_startup_duration_seconds",
                "From when there was first a place for a pod, of a pool whose machines join, to when it ran",
            ),
            watched,
            is_ready: AtomicBool::new(false),
            recording: Arc::default(),
            known: Mutex::new(Known { state: State::of(watched.owner), ..Known::default() }),
            registry,
            operator,
        }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster is read anew: what was known of it does not count any more.
    pub fn begin(&self, now: Timestamp) {
        let mut known = self.known();
        let (startups, node_endings) =
            (std::mem::take(&mut known.startups), std::mem::take(&mut known.node_endings));
        let mut ledger = std::mem::take(&mut known.ledger);
        ledger.let_go(now);
        let state = State::of(self.0.watched.owner);
        *known = Known { state, unsynced: Some(now), startups, node_endings, ledger, ..Known::default() };
        self.0.is_synced.set(0);
        self.0.node_count.set(0);
    }

    /// Ready to serve: everything is listed, or another replica acts and this one waits.
    pub fn set_ready(&self) {
        self.0.is_ready.store(true, Ordering::Relaxed);
    }

    pub fn is_ready(&self) -> bool {
        self.0.is_ready.load(Ordering::Relaxed)
    }

    /// Where a recorder counts.
    pub fn recording(&self) -> Arc<RecordingHealth> {
        self.0.recording.clone()
    }

    /// In the text format of OpenMetrics, which Prometheus reads.
    pub fn text(&self, now: Timestamp) -> String {
        let mut page = Page::default();
        encode_registry(&mut page.0, &self.0.registry).expect("writing to memory does not fail");
        let mut known = self.known();
        known.ledger.reach(now);
        self.write_spent(&known.ledger.statement(now), &mut page);
        let unsynced = known.unsynced.map_or(0.0, |since| seconds(since, now));
        page.family(
            "cluster_state_unsynced_time_seconds",
            "gauge",
            "How long the picture of the cluster is incomplete",
        );
        page.line("cluster_state_unsynced_time_seconds", "", unsynced);
        let RecordingHealth { written, dropped } = &*self.0.recording;
        for (name, help, count) in [
            ("recorder_written_bytes", "Bytes of the recording that were written", written),
            ("recorder_dropped_events", "Events that the recording lacks", dropped),
        ] {
            page.family(name, "counter", help);
            page.line(&format!("{name}_total"), "", count.load(Ordering::Relaxed) as f64);
        }
        if !known.node_endings.is_empty() {
            let name = "nodes_termination_duration_seconds";
            page.family(name, "summary", "From when a node was to go to when it was gone");
            for (pool, summary) in &known.node_endings {
                summary.write(&mut page, name, &labels([("nodepool", pool.as_str())]), now);
            }
        }
        if !self.0.watched.hides_objects {
            let name = "pods_startup_duration_seconds";
            page.family(name, "summary", "From when a pod was made to when it ran");
            known.startups.write(&mut page, name, "", now);
            let (state, delays) = (known.state.clone(), known.waiting.delays(now));
            // The rest takes its time in large clusters.
            drop(known);
            state.write(now, &mut page);
            encode_registry(&mut page.0, &self.0.operator).expect("writing to memory does not fail");
            conditions::write(&state, now, &mut page);
            for (name, help, delays) in [
                (
                    "pods_provisioning_scheduling_undecided_time_seconds",
                    "How long a pod waits of which no plan spoke",
                    delays.undecided,
                ),
                (
                    "pods_provisioning_unbound_time_seconds",
                    "How long a pod waits to be bound for which there is a place",
                    delays.unbound,
                ),
                (
                    "pods_provisioning_unstarted_time_seconds",
                    "How long a pod waits to run for which there is a place",
                    delays.unstarted,
                ),
            ] {
                page.gauges(name, help, delays.iter().map(|(pod, seconds)| (pod_labels(pod), *seconds)));
            }
        }
        encode_eof(&mut page.0).expect("writing to memory does not fail");
        page.0
    }

    /// What was spent. A series stays as long as the process, because it only ever grows.
    fn write_spent(&self, spent: &Statement, page: &mut Page) {
        let environment = self.0.watched.owner.map_or("", |owner| owner.environment.as_str());
        let series = |figure: &dyn Fn(&Spent) -> f64| {
            let lines = spent.accounts.iter().map(|(account, spent)| {
                let own = [
                    ("nodepool", account.pool.map_or("", |pool| pool.0.as_str())),
                    ("environment", environment),
                    ("capacity_type", account.capacity_type.as_str()),
                ];
                (labels(own), figure(spent))
            });
            lines.collect::<Vec<_>>()
        };
        page.counters(
            "nodepools_spent_usd",
            "What machines cost since the process began, in US dollars",
            series(&|spent| spent.usd.0 as f64 / 1e6),
        );
        page.counters(
            "nodepools_machine_seconds",
            "How long machines ran since the process began, each for itself",
            series(&|spent| spent.machine_seconds as f64),
        );
    }

    /// Takes in what the node half hears, and when.
    pub fn see(&self, at: Timestamp, seen: &Observation) {
        let inner = &*self.0;
        let mut known = self.known();
        if !matches!(seen, Observation::Claim(claim) if !known.state.owns(claim)) {
            known.ledger.observe(at, seen);
        }
        match seen {
            Observation::Synced => {
                known.is_synced = true;
                known.unsynced = None;
                inner.is_synced.set(1);
                self.set_ready();
            }
            Observation::Catalog(catalog) => {
                known.state.catalog = Some(catalog.clone());
                let claims: Vec<_> = known.state.claims.values().cloned().collect();
                claims.iter().for_each(|claim| inner.price(&mut known, claim));
            }
            Observation::Claim(claim) => {
                inner.price(&mut known, claim);
                let former = known.state.claims.insert(claim.name, claim.clone());
                if let Some(former) = former.as_ref().filter(|former| former.uid == claim.uid)
                    && known.state.owns(claim)
                {
                    let own = conditions::claim_series(claim);
                    inner.claim_changes.see(&former.conditions, &claim.conditions, &own);
                }
                let was_drained =
                    former.is_none_or(|former| former.conditions.is_true(ConditionType::Drained));
                if claim.conditions.is_true(ConditionType::Drained) && !was_drained && known.state.owns(claim)
                {
                    let series = vec![("nodepool", text(&claim.labels, *label::NODEPOOL))];
                    inner.nodes_drained.get_or_create(&series).inc();
                }
            }
            Observation::ClaimGone(name) => {
                let gone = known.state.forget_claim(*name).filter(|claim| known.state.owns(claim));
                if let Some(claim) = gone {
                    inner.claims_terminated.get_or_create(&claim_series(&claim.labels)).inc();
                    if let Some(deleted) = claim.deleted {
                        let series = vec![("nodepool", text(&claim.labels, *label::NODEPOOL))];
                        inner.claim_endings.get_or_create(&series).observe(seconds(deleted, at));
                        let series = conditions::claim_series(&claim);
                        inner.claim_terminations.get_or_create(&series).observe(seconds(deleted, at));
                    }
                    if let Some(told) = claim.conditions.true_since(ConditionType::InstanceTerminating) {
                        let series = vec![("nodepool", text(&claim.labels, *label::NODEPOOL))];
                        inner.machine_endings.get_or_create(&series).observe(seconds(told, at));
                    }
                }
            }
            Observation::Node(node) => {
                let former = known.state.nodes.insert(node.name, node.clone());
                let is_new = is_registered(node) && !former.is_some_and(|former| is_registered(&former));
                // What was there before we were is not counted as made.
                if is_new && known.is_synced && known.state.is_managed(node) {
                    inner.nodes_created.get_or_create(&node_series(&node.labels)).inc();
                }
            }
            Observation::NodeGone(name) => {
                let gone = known.state.nodes.remove(name);
                let gone = gone.filter(|node| is_registered(node) && known.state.is_managed(node));
                if let Some(node) = gone {
                    inner.nodes_terminated.get_or_create(&node_series(&node.labels)).inc();
                    let pool = text(&node.labels, *label::NODEPOOL);
                    if let Some(created) = node.created {
                        let series = vec![("nodepool", pool.clone())];
                        inner.node_lives.get_or_create(&series).observe(seconds(created, at));
                    }
                    if let Some(deleted) = node.deleted {
                        known.node_endings.entry(pool).or_default().observe(at, seconds(deleted, at));
                    }
                }
            }
            Observation::Pool(pool) => {
                if let Some(used) = &pool.used {
                    known.state.usage.insert(pool.name, used.clone());
                }
                let former = known.state.pools.insert(pool.name, pool.clone());
                if let Some(former) = former.filter(|former| former.uid == pool.uid)
                    && known.state.owns_pool(pool)
                {
                    inner.pool_changes.see(&former.conditions, &pool.conditions, &[]);
                }
                if pool.conditions.is_true(PoolCondition::NodeRegistrationHealthy) {
                    known.healthy.insert(pool.name);
                } else {
                    known.healthy.remove(&pool.name);
                }
            }
            Observation::PoolGone(name) => {
                known.state.pools.remove(name);
                known.state.usage.remove(name);
                known.healthy.remove(name);
            }
            Observation::Pod(pod) => {
                let former = known.state.pods.insert(pod.key, pod.clone());
                let former = former.filter(|former| former.uid == pod.uid);
                if let (Some(former), Some(created)) = (former, pod.created) {
                    let is_now = |is_so: fn(&Pod) -> bool| !is_so(&former) && is_so(pod);
                    if is_now(|pod| pod.node.is_some()) {
                        inner.bound_seconds.observe(seconds(created, at));
                    }
                    if former.phase == PodPhase::Pending && pod.phase == PodPhase::Running {
                        known.startups.observe(at, seconds(created, at));
                    }
                }
                let reached = known.waiting.see(at, pod);
                reached.bound.into_iter().for_each(|seconds| inner.placed_bound_seconds.observe(seconds));
                reached.running.into_iter().for_each(|seconds| inner.placed_running_seconds.observe(seconds));
            }
            Observation::PodGone(pod) => {
                if let Some(former) = known.state.pods.remove(pod) {
                    known.forced.remove(&former.uid);
                }
                known.waiting.forget(pod);
            }
            Observation::Evicted { pod } => {
                count_eviction(inner, "201");
                inner.count_drained(&known.state, *pod);
            }
            Observation::EvictionBlocked { why: EvictionBlock::Budget, .. } => count_eviction(inner, "429"),
            Observation::EvictionBlocked { why: EvictionBlock::Fault, .. } => count_eviction(inner, "500"),
            _ => {}
        }
        inner.node_count.set(i64::try_from(known.state.nodes.len()).unwrap_or(i64::MAX));
    }

    /// Takes in what the node half wants done, and when it said so.
    pub fn decided(&self, at: Timestamp, decision: &Decision) {
        let inner = &*self.0;
        let mut known = self.known();
        let Known { state, waiting, healthy, .. } = &mut *known;
        let pool_of = |place: &Place| {
            let labels = match place {
                Place::Node(node) => state.nodes.get(node).map(|node| &node.labels),
                Place::Claim(claim) => state.claims.get(claim).map(|claim| &claim.labels),
            };
            Some(PoolName(*labels?.get(&*label::NODEPOOL)?))
        };
        for seconds in waiting.decided(at, &decision.plan, |pool| healthy.contains(&pool), pool_of) {
            inner.decision_seconds.observe(seconds);
        }
        // What stands for room is nobody's pod, and one that is put off has not failed.
        let left = decision.plan.provisioning.unschedulable.iter().filter(|left| !left.is_deferred);
        let unschedulable = left.filter(|left| known.waiting.knows(&left.pod)).count();
        let provisioner = vec![("controller", "provisioner".to_owned())];
        inner.unschedulable.get_or_create(&provisioner).set(whole(unschedulable));
        inner.ignored.set(whole(decision.plan.rejected.len()));
        inner.pending_zones.clear();
        for (zone, count) in &decision.plan.pending_zones {
            let zone = match zone {
                EffectiveZone::In(zone) => zone.to_string(),
                EffectiveZone::Flexible => "flexible".to_owned(),
                EffectiveZone::Nowhere => "none".to_owned(),
            };
            let series = vec![("controller", "provisioner".to_owned()), ("zone", zone)];
            inner.pending_zones.get_or_create(&series).set(whole(*count));
        }
        decision.started.iter().for_each(|command| inner.count_command(command));
        for (method, nodes) in &decision.withdrawn {
            let series = vec![("consolidation_type", consolidation_type(*method).to_owned())];
            let nodes = u64::try_from(*nodes).unwrap_or(u64::MAX);
            inner.withdrawn.get_or_create(&series).inc_by(nodes);
        }
        // Most decisions judge no node anew.
        let judged = &decision.plan.disruption;
        if !known.judged.as_ref().is_some_and(|last| Arc::ptr_eq(last, judged)) {
            inner.tell_outlook(&judged.outlook);
            judged.moves.iter().for_each(|one| inner.count_move(&known.state, one));
            known.judged = Some(judged.clone());
        }
        for planned in &decision.actions {
            known.ledger.decide(at, &planned.action);
            match &planned.action {
                Action::CreateClaim(claim) => {
                    let relaxed = claim.annotations.get(&*annotation::MIN_VALUES_RELAXED);
                    let series = vec![
                        ("reason", planned.reason.code.to_lowercase()),
                        ("nodepool", text(&claim.labels, *label::NODEPOOL)),
                        ("min_values_relaxed", relaxed.map_or("false".to_owned(), ToString::to_string)),
                    ];
                    inner.claims_created.get_or_create(&series).inc();
                }
                Action::DeleteClaim { claim } => {
                    inner.count_disruption(&known, *claim, planned.reason.code);
                    if planned.reason.code == "Unhealthy" {
                        inner.count_unhealthy(&known.state, *claim);
                    }
                }
                Action::DeletePod { pod, uid, .. } => {
                    // One that was evicted before is only hurried.
                    let is_new = known.state.pods.get(pod).is_some_and(|pod| pod.deleted.is_none());
                    if is_new && known.forced.insert(*uid) {
                        inner.count_drained(&known.state, *pod);
                    }
                }
                Action::UpdatePool { pool, change } => {
                    if let Some(used) = &change.used {
                        known.state.usage.insert(*pool, used.clone());
                    }
                }
                _ => {}
            }
        }
    }

    /// A round of provisioning took so long.
    pub fn planned(&self, took: Duration) {
        let series = vec![("controller", "provisioner".to_owned())];
        self.0.planning_seconds.get_or_create(&series).observe(took.as_secs_f64());
    }

    /// A request to the cloud `provider` took so long; `error`: it failed, and what type of error that is.
    fn called(&self, provider: &str, call: Call, took: Duration, error: Option<&str>) {
        let mut series = vec![
            ("controller", call.controller.to_owned()),
            ("method", call.method.to_owned()),
            ("provider", provider.to_owned()),
        ];
        self.0.call_seconds.get_or_create(&series).observe(took.as_secs_f64());
        if let Some(error) = error {
            series.push(("error", error.to_owned()));
            self.0.call_errors.get_or_create(&series).inc();
        }
    }
}

impl Inner {
    /// Counts a claim whose price cannot be known.
    fn price(&self, known: &mut Known, claim: &NodeClaim) {
        if known.state.owns(claim) && known.state.is_newly_unpriced(claim) {
            let series = vec![("nodepool", text(&claim.labels, *label::NODEPOOL))];
            self.cost_errors.get_or_create(&series).inc();
        }
    }

    /// Disruption that somebody chose: what is too old or too many goes by itself.
    fn count_command(&self, command: &Command) {
        if matches!(command.method, Method::Expiration | Method::StaticScaleDown) {
            return;
        }
        let kind = consolidation_type(command.method);
        let decision = match command.kind() {
            Kind::Delete => "delete",
            Kind::Replace => "replace",
        };
        let series = vec![
            ("decision", decision.to_owned()),
            ("reason", command.reason().as_str().to_lowercase()),
            ("consolidation_type", kind.to_owned()),
        ];
        self.disruptions.get_or_create(&series).inc();
        for pool in command.pools.iter().collect::<BTreeSet<_>>() {
            let own = std::iter::once(("nodepool", pool.to_string()));
            self.disruptions_by_pool.get_or_create(&own.chain(series.iter().cloned()).collect()).inc();
        }
    }

    /// Gauges of what might go and how many are let.
    fn tell_outlook(&self, outlook: &Outlook) {
        self.eligible.clear();
        for (reason, nodes) in &outlook.eligible {
            let series = vec![("reason", reason.as_str().to_lowercase())];
            self.eligible.get_or_create(&series).set(whole(*nodes));
        }
        self.allowed_disruptions.clear();
        self.consuming_budgets.clear();
        for ((pool, reason), allowance) in &outlook.allowances {
            let series = vec![("nodepool", pool.to_string()), ("reason", reason.as_str().to_owned())];
            self.allowed_disruptions.get_or_create(&series).set(allowance.allowed.into());
            self.consuming_budgets.get_or_create(&series).set(allowance.away.into());
        }
    }

    fn count_move(&self, state: &State, one: &Move) {
        let series = |pool: PoolName, is_approved: bool| {
            let policy = state.pools.get(&pool).map_or("", |pool| pool.disruption.policy.as_str());
            let decision = if is_approved { "approved" } else { "rejected" };
            vec![
                ("decision", decision.to_owned()),
                ("nodepool", pool.to_string()),
                ("policy", policy.to_owned()),
            ]
        };
        for pool in &one.pools {
            self.moves.get_or_create(&series(*pool, one.is_approved())).inc();
        }
        for score in &one.scores {
            self.scores.get_or_create(&series(score.pool, score.is_enough())).observe(score.value());
        }
    }

    /// A pod left its node because that goes.
    fn count_drained(&self, state: &State, pod: ObjectKey) {
        let node = state.pods.get(&pod).and_then(|pod| state.nodes.get(&pod.node?));
        let machine = node.and_then(|node| node.provider_id);
        let claim = state.claims.values().find(|claim| machine.is_some() && claim.provider_id == machine);
        let reason = claim.map_or("", |claim| reason_of(claim)).to_owned();
        self.pods_drained.get_or_create(&vec![("reason", reason)]).inc();
    }

    fn count_unhealthy(&self, state: &State, name: ClaimName) {
        let Some(claim) = state.claims.get(&name) else { return };
        let mut nodes = state.nodes.values().filter(|node| node.provider_id == claim.provider_id);
        let sickness = nodes.find_map(|node| first_due(node));
        let series = vec![
            ("condition", sickness.map_or_else(String::new, |(_, policy)| snake_case(policy.condition))),
            ("nodepool", text(&claim.labels, *label::NODEPOOL)),
            ("capacity_type", text(&claim.labels, *label::CAPACITY_TYPE)),
            ("image_id", claim.image.map(|image| image.to_string()).unwrap_or_default()),
        ];
        self.claims_unhealthy.get_or_create(&series).inc();
    }

    fn count_disruption(&self, known: &Known, claim: ClaimName, code: &str) {
        let reason = snake_case(code);
        // Deleted by whoever deleted its node: nobody's disruption of ours.
        if reason == "terminating" {
            return;
        }
        let claim = known.state.claims.get(&claim);
        let nothing = Labels::new();
        let labels = claim.map_or(&nothing, |claim| &claim.labels);
        let pool = claim.and_then(|claim| known.state.pools.get(&claim.pool()?));
        let is_consolidated = matches!(reason.as_str(), "empty" | "underutilized");
        let policy = pool.filter(|_| is_consolidated).map_or("", |pool| pool.disruption.policy.as_str());
        let mode = match claim.and_then(|claim| claim.spec.termination_grace) {
            None => "graceful",
            Some(grace) if grace > SignedDuration::ZERO => "eventual",
            Some(_) => "forceful",
        };
        let series = vec![
            ("reason", reason),
            ("nodepool", text(labels, *label::NODEPOOL)),
            ("capacity_type", text(labels, *label::CAPACITY_TYPE)),
            ("consolidation_policy", snake_case(policy)),
            ("termination_mode", mode.to_owned()),
        ];
        self.claims_disrupted.get_or_create(&series).inc();
        let moved = claim
            .and_then(|claim| claim.node)
            .map_or(0, |node| known.state.pods_on(node).filter(|pod| has_to_move(pod)).count());
        self.pods_disrupted.get_or_create(&series).inc_by(u64::try_from(moved).unwrap_or(u64::MAX));
    }
}

/// By what kind of saving `method` finds nodes; what saves nothing has none.
fn consolidation_type(method: Method) -> &'static str {
    match method {
        Method::Expiration
        | Method::StaticScaleDown
        | Method::StaticDrift
        | Method::Drift
        | Method::Renewal => "",
        Method::Emptiness => "empty",
        Method::Return => "return",
        Method::MultiNodeConsolidation => "multi",
        Method::SingleNodeConsolidation => "single",
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn is_registered(node: &Node) -> bool {
    node.labels.contains_key(&*label::REGISTERED)
}

fn text(labels: &Labels, key: crate::model::symbol::Symbol) -> String {
    labels.get(&key).map(ToString::to_string).unwrap_or_default()
}

fn claim_series(labels: &Labels) -> Series {
    vec![
        ("nodepool", text(labels, *label::NODEPOOL)),
        ("capacity_type", text(labels, *label::CAPACITY_TYPE)),
        ("zone", text(labels, *label::ZONE)),
    ]
}

fn node_series(labels: &Labels) -> Series {
    vec![("nodepool", text(labels, *label::NODEPOOL)), ("zone", text(labels, *label::ZONE))]
}

fn count_eviction(inner: &Inner, code: &str) {
    inner.eviction_requests.get_or_create(&vec![("code", code.to_owned())]).inc();
}

/// `RegistrationTimeout` as labels have it: `registration_timeout`.
fn snake_case(code: &str) -> String {
    let mut out = String::new();
    for (at, letter) in code.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests;
