//! What monitoring reads: `/metrics` under Karpenter's names where Karpenter has the figure, `/healthz` and `/readyz`.
//!
//! Figures are counted from what the node half hears and decides; nothing here is asked for it, so a scrape costs nothing but
//! its own text.

mod endpoints;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::capacity::decision::Decision;
use crate::capacity::scheduling::{EffectiveZone, Place};
use crate::model::action::Action;
use crate::model::label::{self, Labels, annotation};
use crate::model::name::{ClaimName, NodeName, PoolName};
use crate::model::observation::Observation;
use crate::model::pool::{PoolCondition, PoolUse};
use crate::model::quantity::{ResourceName, Resources, Unit};

pub use endpoints::{EndpointArgs, serve};
use waiting::WaitingPods;

type Series = Vec<(&'static str, String)>;
type Counts = Family<Series, Counter>;
/// Cores are fractions, so gauges of resources are not whole.
type Amounts = Family<Series, Gauge<f64, AtomicU64>>;

/// What is counted; clones count together.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    is_ready: AtomicBool,
    claims_created: Counts,
    claims_terminated: Counts,
    claims_disrupted: Counts,
    nodes_created: Counts,
    nodes_terminated: Counts,
    eviction_requests: Counts,
    launch_failures: Counts,
    pool_limit: Amounts,
    pool_usage: Amounts,
    node_count: Gauge,
    is_synced: Gauge,
    unschedulable: Gauge,
    decision_seconds: Histogram,
    bound_seconds: Histogram,
    planning_seconds: Family<Series, Histogram, fn() -> Histogram>,
    pending_zones: Family<Series, Gauge>,
    known: Mutex<Known>,
}

/// The labels of what is there, because what is gone cannot be asked any more.
#[derive(Debug, Default)]
struct Known {
    claims: BTreeMap<ClaimName, Labels>,
    nodes: BTreeMap<NodeName, Labels>,
    limits: BTreeMap<PoolName, Vec<Series>>,
    usage: BTreeMap<PoolName, Vec<Series>>,
    /// Pools whose machines come to be nodes.
    healthy: BTreeSet<PoolName>,
    waiting: WaitingPods,
    is_synced: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("karpenter");
        let mut counts = |name: &str, help: &str| {
            let family = Counts::default();
            registry.register(name, help, family.clone());
            family
        };
        let claims_created = counts("nodeclaims_created", "NodeClaims that were made");
        let claims_terminated = counts("nodeclaims_terminated", "NodeClaims that are gone");
        let claims_disrupted = counts("nodeclaims_disrupted", "NodeClaims that were given back or replaced");
        let nodes_created = counts("nodes_created", "Nodes that registered");
        let nodes_terminated = counts("nodes_terminated", "Nodes that are gone");
        let eviction_requests = counts("pods_eviction_requests", "Evictions asked for, by the answer");
        let launch_failures = counts("cloudprovider_errors", "Requests to the cloud that failed");
        let mut amounts = |name: &str, help: &str| {
            let family = Amounts::default();
            registry.register(name, help, family.clone());
            family
        };
        let pool_limit = amounts("nodepools_limit", "The most that a pool's nodes may add up to");
        let pool_usage = amounts("nodepools_usage", "What a pool's nodes add up to");
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let node_count = gauge("cluster_state_node_count", "Nodes in the picture of the cluster");
        let is_synced = gauge("cluster_state_synced", "Whether the picture of the cluster is complete");
        let unschedulable = gauge("scheduler_unschedulable_pods_count", "Pods that fit no pool");
        let decision_seconds = Histogram::new(waiting::SECONDS);
        registry.register(
            "pods_scheduling_decision_duration_seconds",
            "From when a pod was first seen without a node to the first decision about it",
            decision_seconds.clone(),
        );
        let bound_seconds = Histogram::new(waiting::SECONDS);
        registry.register(
            "pods_provisioning_bound_duration_seconds",
            "From when there was first a place for a pod, of a pool whose machines join, to when it was bound",
            bound_seconds.clone(),
        );
        let new: fn() -> Histogram = || Histogram::new(waiting::SECONDS);
        let planning_seconds = Family::new_with_constructor(new);
        registry.register(
            "scheduler_scheduling_duration_seconds",
            "How long a round of planning took",
            planning_seconds.clone(),
        );
        let pending_zones = Family::<Series, Gauge>::default();
        registry.register(
            "scheduler_pending_pods_by_effective_zone_count",
            "Pods without a node, by the zone that they can come to run in",
            pending_zones.clone(),
        );
        let build = Family::<Series, Gauge>::default();
        registry.register("build_info", "The program that answers", build.clone());
        let labels = vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("goarch", std::env::consts::ARCH.to_owned()),
        ];
        build.get_or_create(&labels).set(1);
        Self(Arc::new(Inner {
            registry,
            is_ready: AtomicBool::new(false),
            claims_created,
            claims_terminated,
            claims_disrupted,
            nodes_created,
            nodes_terminated,
            eviction_requests,
            launch_failures,
            pool_limit,
            pool_usage,
            node_count,
            is_synced,
            unschedulable,
            decision_seconds,
            bound_seconds,
            planning_seconds,
            pending_zones,
            known: Mutex::default(),
        }))
    }

    /// Ready to serve: everything is listed, or another replica acts and this one waits.
    pub fn set_ready(&self) {
        self.0.is_ready.store(true, Ordering::Relaxed);
    }

    pub fn is_ready(&self) -> bool {
        self.0.is_ready.load(Ordering::Relaxed)
    }

    /// In the text format of OpenMetrics, which Prometheus reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.registry).expect("writing to memory does not fail");
        text
    }

    /// Takes in what the node half hears, and when.
    pub fn see(&self, at: Timestamp, seen: &Observation) {
        let inner = &*self.0;
        let mut known = inner.known.lock().unwrap_or_else(PoisonError::into_inner);
        match seen {
            Observation::Synced => {
                known.is_synced = true;
                inner.is_synced.set(1);
                self.set_ready();
            }
            Observation::Claim(claim) => drop(known.claims.insert(claim.name, claim.labels.clone())),
            Observation::ClaimGone(name) => {
                if let Some(labels) = known.claims.remove(name) {
                    inner.claims_terminated.get_or_create(&claim_series(&labels)).inc();
                }
            }
            Observation::Node(node) => {
                let is_new = !known.nodes.contains_key(&node.name);
                if node.labels.contains_key(&*label::REGISTERED) || !is_new {
                    known.nodes.insert(node.name, node.labels.clone());
                }
                // What was there before we were is not counted as made.
                if is_new && known.nodes.contains_key(&node.name) && known.is_synced {
                    inner.nodes_created.get_or_create(&node_series(&node.labels)).inc();
                }
            }
            Observation::NodeGone(name) => {
                if let Some(labels) = known.nodes.remove(name) {
                    inner.nodes_terminated.get_or_create(&node_series(&labels)).inc();
                }
            }
            Observation::Pool(pool) => {
                let limits = pool.limits.clone().unwrap_or_default();
                let series = write(&inner.pool_limit, pool.name, &limits);
                forget(&inner.pool_limit, known.limits.insert(pool.name, series.clone()), &series);
                if pool.conditions.is_true(PoolCondition::NodeRegistrationHealthy) {
                    known.healthy.insert(pool.name);
                } else {
                    known.healthy.remove(&pool.name);
                }
            }
            Observation::Pod(pod) => {
                if let Some(seconds) = known.waiting.see(at, pod) {
                    inner.bound_seconds.observe(seconds);
                }
            }
            Observation::PodGone(pod) => known.waiting.forget(pod),
            Observation::PoolGone(name) => {
                forget(&inner.pool_limit, known.limits.remove(name), &[]);
                forget(&inner.pool_usage, known.usage.remove(name), &[]);
                known.healthy.remove(name);
            }
            Observation::Evicted { .. } => count_eviction(inner, "201"),
            Observation::EvictionBlocked { .. } => count_eviction(inner, "429"),
            Observation::LaunchFailed { .. } => {
                let series =
                    vec![("method", "Create".to_owned()), ("controller", "nodeclaim.lifecycle".to_owned())];
                inner.launch_failures.get_or_create(&series).inc();
            }
            _ => {}
        }
        inner.node_count.set(i64::try_from(known.nodes.len()).unwrap_or(i64::MAX));
    }

    /// Takes in what the node half wants done, and when it said so.
    pub fn decided(&self, at: Timestamp, decision: &Decision) {
        let inner = &*self.0;
        let mut known = inner.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { waiting, healthy, nodes, claims, .. } = &mut *known;
        let pool_of = |place: &Place| {
            let labels = match place {
                Place::Node(node) => nodes.get(node),
                Place::Claim(claim) => claims.get(claim),
            };
            Some(PoolName(*labels?.get(&*label::NODEPOOL)?))
        };
        for seconds in waiting.decided(at, &decision.plan, |pool| healthy.contains(&pool), pool_of) {
            inner.decision_seconds.observe(seconds);
        }
        // What stands for room is nobody's pod, and one that is put off has not failed.
        let left = decision.plan.provisioning.unschedulable.iter().filter(|left| !left.is_deferred);
        let unschedulable = left.filter(|left| known.waiting.knows(&left.pod)).count();
        drop(known);
        inner.pending_zones.clear();
        for (zone, count) in &decision.plan.pending_zones {
            let zone = match zone {
                EffectiveZone::In(zone) => zone.to_string(),
                EffectiveZone::Flexible => "flexible".to_owned(),
                EffectiveZone::Nowhere => "none".to_owned(),
            };
            let series = vec![("controller", "provisioner".to_owned()), ("zone", zone)];
            inner.pending_zones.get_or_create(&series).set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        for planned in &decision.actions {
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
                Action::DeleteClaim { claim } => self.count_disruption(*claim, planned.reason.code),
                Action::UpdatePool { pool, change } => {
                    let Some(PoolUse { resources, nodes }) = &change.used else { continue };
                    let mut used = resources.clone();
                    used.set(ResourceName::new("nodes"), i64::from(*nodes));
                    let series = write(&inner.pool_usage, *pool, &used);
                    let mut known = inner.known.lock().unwrap_or_else(PoisonError::into_inner);
                    forget(&inner.pool_usage, known.usage.insert(*pool, series.clone()), &series);
                }
                _ => {}
            }
        }
        inner.unschedulable.set(i64::try_from(unschedulable).unwrap_or(i64::MAX));
    }

    /// A round of provisioning took so long.
    pub fn planned(&self, took: Duration) {
        let series = vec![("controller", "provisioner".to_owned())];
        self.0.planning_seconds.get_or_create(&series).observe(took.as_secs_f64());
    }

    fn count_disruption(&self, claim: ClaimName, code: &str) {
        let reason = snake_case(code);
        // Deleted by whoever deleted its node: nobody's disruption of ours.
        if reason == "terminating" {
            return;
        }
        let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = known.claims.get(&claim).cloned().unwrap_or_default();
        let series = vec![
            ("reason", reason),
            ("nodepool", text(&labels, *label::NODEPOOL)),
            ("capacity_type", text(&labels, *label::CAPACITY_TYPE)),
        ];
        self.0.claims_disrupted.get_or_create(&series).inc();
    }
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

/// Writes one gauge for each resource; which they are.
fn write(family: &Amounts, pool: PoolName, resources: &Resources) -> Vec<Series> {
    let mut written = Vec::new();
    for (name, amount) in resources.iter() {
        let value = match name.unit() {
            Unit::Millicores => amount as f64 / 1000.0,
            Unit::Bytes | Unit::Pieces => amount as f64,
        };
        let kind = name.0.to_lowercase().replace('-', "_");
        let series = vec![("nodepool", pool.to_string()), ("resource_type", kind)];
        family.get_or_create(&series).set(value);
        written.push(series);
    }
    written
}

/// Removes gauges that were written before and are not written any more.
fn forget(family: &Amounts, before: Option<Vec<Series>>, now: &[Series]) {
    for series in before.into_iter().flatten().filter(|series| !now.contains(series)) {
        family.remove(&series);
    }
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
mod tests {
    use super::*;
    use crate::api::{self, Object};
    use crate::capacity::decision::Planned;
    use crate::model::claim::NodeClaim;
    use crate::model::name::ObjectKey;
    use serde_json::json;

    fn claim(name: &str) -> Arc<NodeClaim> {
        let object = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "labels": {
                "karpenter.sh/nodepool": "web", "karpenter.sh/capacity-type": "spot",
                "topology.kubernetes.io/zone": "a",
            }},
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            },
        });
        match api::parse(&object) {
            Ok(Object::NodeClaim(claim)) => Arc::new(*claim),
            other => panic!("{other:?}"),
        }
    }

    fn pool(limits: serde_json::Value) -> Observation {
        let object = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "web"},
            "spec": {"limits": limits, "template": {"spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            }}},
        });
        match api::parse(&object) {
            Ok(Object::NodePool(pool)) => Observation::Pool(Arc::new(pool)),
            other => panic!("{other:?}"),
        }
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[track_caller]
    fn says(metrics: &Metrics, line: &str) {
        let text = metrics.text();
        assert!(text.lines().any(|known| known == line), "no `{line}` in\n{text}");
    }

    #[test]
    fn a_claim_is_counted_when_it_is_made_given_back_and_gone() {
        let metrics = Metrics::new();
        let claim = claim("web-1");
        let decision =
            |action, code| Decision { actions: vec![Planned::new(action, code, "")], ..Decision::default() };
        metrics.decided(NOW, &decision(Action::CreateClaim(claim.clone()), "Provisioned"));
        metrics.see(NOW, &Observation::Claim(claim.clone()));
        metrics.decided(NOW, &decision(Action::DeleteClaim { claim: claim.name }, "RegistrationTimeout"));
        metrics.see(NOW, &Observation::ClaimGone(claim.name));
        // Told twice, counted once.
        metrics.see(NOW, &Observation::ClaimGone(claim.name));
        says(
            &metrics,
            "karpenter_nodeclaims_created_total{reason=\"provisioned\",nodepool=\"web\",min_values_relaxed=\"false\"} 1",
        );
        says(
            &metrics,
            "karpenter_nodeclaims_disrupted_total{reason=\"registration_timeout\",nodepool=\"web\",capacity_type=\"spot\"} 1",
        );
        says(
            &metrics,
            "karpenter_nodeclaims_terminated_total{nodepool=\"web\",capacity_type=\"spot\",zone=\"a\"} 1",
        );
    }

    #[test]
    fn limits_are_in_whole_units_and_go_with_their_pool() {
        let metrics = Metrics::new();
        metrics.see(NOW, &pool(json!({"cpu": "1500m", "nodes": 3})));
        says(&metrics, "karpenter_nodepools_limit{nodepool=\"web\",resource_type=\"cpu\"} 1.5");
        metrics.see(NOW, &pool(json!({"nodes": 4})));
        says(&metrics, "karpenter_nodepools_limit{nodepool=\"web\",resource_type=\"nodes\"} 4.0");
        assert!(!metrics.text().contains("resource_type=\"cpu\""), "{}", metrics.text());
        metrics.see(NOW, &Observation::PoolGone(PoolName::new("web")));
        assert!(!metrics.text().contains("nodepools_limit{"), "{}", metrics.text());
    }

    #[test]
    fn evictions_are_counted_by_their_answer() {
        let metrics = Metrics::new();
        let pod = ObjectKey::new("shop", "web-0");
        metrics.see(NOW, &Observation::Evicted { pod });
        metrics.see(NOW, &Observation::EvictionBlocked { pod, message: "its budget".into() });
        metrics.see(NOW, &Observation::EvictionBlocked { pod, message: "its budget".into() });
        says(&metrics, "karpenter_pods_eviction_requests_total{code=\"201\"} 1");
        says(&metrics, "karpenter_pods_eviction_requests_total{code=\"429\"} 2");
    }

    #[test]
    fn sch_226_every_round_is_timed() {
        let metrics = Metrics::new();
        metrics.planned(Duration::from_millis(120));
        let name = "karpenter_scheduler_scheduling_duration_seconds";
        says(&metrics, &format!("{name}_count{{controller=\"provisioner\"}} 1"));
        says(&metrics, &format!("{name}_sum{{controller=\"provisioner\"}} 0.12"));
    }

    #[test]
    fn the_picture_is_ready_once_it_is_complete() {
        let metrics = Metrics::new();
        assert!(!metrics.is_ready());
        says(&metrics, "karpenter_cluster_state_synced 0");
        metrics.see(NOW, &Observation::Synced);
        assert!(metrics.is_ready());
        says(&metrics, "karpenter_cluster_state_synced 1");
    }
}
