mod reference;

use serde_json::{Value, json};

use super::*;
use crate::api;
use crate::capacity::decision::Planned;
use crate::capacity::disruption::balanced::Score;
use crate::io::cloud::simulated::{Kubelet, SimulatedProvider, SimulatedSettings};
use crate::io::kube::{Address, Kube};
use crate::model::catalog::Catalog;
use crate::model::pool::{DisruptionReason, PoolUse};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn after(seconds: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(seconds)
}

fn seen(object: &Value) -> Observation {
    let parsed = api::parse(object).unwrap_or_else(|errors| panic!("{errors:?}"));
    parsed.into_observation().expect("it is observed")
}

/// A claim of the pool `web` that became the node `n1`.
fn claim(name: &str, more: Value) -> Observation {
    let mut object = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {
            "karpenter.sh/nodepool": "web", "karpenter.sh/capacity-type": "on-demand",
            "topology.kubernetes.io/zone": "us-east-1a", "node.kubernetes.io/instance-type": "m5.large",
        }},
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        },
        "status": {"nodeName": "n1"},
    });
    merge(&mut object, more);
    seen(&object)
}

fn merge(into: &mut Value, more: Value) {
    let Value::Object(more) = more else { return *into = more };
    for (key, value) in more {
        merge(&mut into[key], value);
    }
}

fn made(claim: &Observation) -> Arc<NodeClaim> {
    let Observation::Claim(claim) = claim else { panic!("{claim:?}") };
    claim.clone()
}

fn pool(name: &str, spec: Value) -> Observation {
    let mut object = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        }}},
    });
    merge(&mut object["spec"], spec);
    seen(&object)
}

fn owned(mut pool: Observation, owner: Owner) -> Observation {
    let Observation::Pool(inner) = &mut pool else { panic!("{pool:?}") };
    Arc::make_mut(inner).owner = Some(owner);
    pool
}

/// Two cores and 8 GiB, of which 100m and 1 GiB are the system's.
fn node(name: &str, labels: Value) -> Observation {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": NOW.to_string(), "labels": {
            "karpenter.sh/nodepool": "web", "karpenter.sh/registered": "true",
            "topology.kubernetes.io/zone": "us-east-1a", "kubernetes.io/arch": "amd64",
        }},
        "status": {
            "capacity": {"cpu": "2", "memory": "8Gi"}, "allocatable": {"cpu": "1900m", "memory": "7Gi"},
        },
    });
    merge(&mut object["metadata"]["labels"], labels);
    seen(&object)
}

fn pod(node: Option<&str>, phase: &str, more: Value) -> Observation {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "u1", "creationTimestamp": NOW.to_string(),
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true},
            ],
        },
        "spec": {"containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "950m"}}}]},
        "status": {"phase": phase},
    });
    if let Some(node) = node {
        object["spec"]["nodeName"] = node.into();
    }
    merge(&mut object, more);
    seen(&object)
}

fn decision(action: Action, code: &'static str) -> Decision {
    Decision { actions: vec![Planned::new(action, code, "")], ..Decision::default() }
}

#[track_caller]
fn says(metrics: &Metrics, line: &str) {
    says_at(metrics, NOW, line);
}

#[track_caller]
fn says_at(metrics: &Metrics, now: Timestamp, line: &str) {
    let text = metrics.text(now);
    assert!(text.lines().any(|known| known == line), "no `{line}` in\n{text}");
}

#[track_caller]
fn is_silent(metrics: &Metrics, what: &str) {
    let text = metrics.text(NOW);
    assert!(!text.contains(what), "`{what}` in\n{text}");
}

/// Rows: DIS-345, OBS-017
#[test]
fn a_claim_is_counted_when_it_is_made_given_back_and_gone() {
    let metrics = Metrics::new();
    let grace =
        json!({"spec": {"terminationGracePeriod": "1h"}, "metadata": {"deletionTimestamp": NOW.to_string()}});
    let seen = claim("web-1", grace);
    let claim = made(&seen);
    metrics.see(NOW, &pool("web", json!({"disruption": {"consolidateAfter": "1m", "consolidationPolicy": "WhenEmptyOrUnderutilized"}})));
    metrics.decided(NOW, &decision(Action::CreateClaim(claim.clone()), "Provisioned"));
    metrics.see(NOW, &seen);
    metrics.see(NOW, &pod(Some("n1"), "Running", json!({})));
    for code in ["RegistrationTimeout", "Underutilized", "Terminating"] {
        metrics.decided(NOW, &decision(Action::DeleteClaim { claim: claim.name }, code));
    }
    metrics.see(after(5), &Observation::ClaimGone(claim.name));
    // Told twice, counted once.
    metrics.see(after(6), &Observation::ClaimGone(claim.name));
    says(
        &metrics,
        "karpenter_nodeclaims_created_total{reason=\"provisioned\",nodepool=\"web\",min_values_relaxed=\"false\"} 1",
    );
    for (reason, policy) in [("registration_timeout", ""), ("underutilized", "when_empty_or_underutilized")] {
        for name in ["nodeclaims_disrupted", "pods_disruption_initiated"] {
            let labels = format!(
                "reason=\"{reason}\",nodepool=\"web\",capacity_type=\"on-demand\",\
                 consolidation_policy=\"{policy}\",termination_mode=\"eventual\""
            );
            says(&metrics, &format!("karpenter_{name}_total{{{labels}}} 1"));
        }
    }
    is_silent(&metrics, "terminating");
    says(
        &metrics,
        "karpenter_nodeclaims_terminated_total{nodepool=\"web\",capacity_type=\"on-demand\",zone=\"us-east-1a\"} 1",
    );
    says(&metrics, "karpenter_nodeclaims_termination_duration_seconds_sum{nodepool=\"web\"} 5.0");
}

/// Rows: DIS-339, DIS-340, DIS-341, DIS-342
#[test]
fn a_decision_is_counted_once_and_in_each_of_its_pools() {
    let metrics = Metrics::new();
    let command = |method, pools: &[&str], replacements| Command {
        method,
        nodes: Vec::new(),
        claims: Vec::new(),
        pools: pools.iter().map(|name| PoolName::new(name)).collect(),
        replacements,
        savings: crate::model::money::UsdPerHour::ZERO,
        pods: Vec::new(),
        least_savings: None,
        alternatives: Vec::new(),
    };
    let started = vec![
        command(Method::Emptiness, &["web", "web", "batch"], Vec::new()),
        command(Method::Drift, &["web"], Vec::new()),
        command(Method::MultiNodeConsolidation, &["web"], Vec::new()),
        command(Method::Expiration, &["web"], Vec::new()),
    ];
    metrics.decided(NOW, &Decision { started, ..Decision::default() });
    for (reason, kind) in [("empty", "empty"), ("drifted", ""), ("underutilized", "multi")] {
        let own = format!("decision=\"delete\",reason=\"{reason}\",consolidation_type=\"{kind}\"");
        says(&metrics, &format!("karpenter_voluntary_disruption_decisions_total{{{own}}} 1"));
        let name = "karpenter_voluntary_disruption_decisions_by_nodepool_total";
        says(&metrics, &format!("{name}{{nodepool=\"web\",{own}}} 1"));
    }
    is_silent(&metrics, "expired");
}

/// Rows: OBS-011
#[test]
fn obs_011_limits_and_usage_are_in_whole_units_and_go_with_their_pool() {
    let us = Owner::new("provisor", "dev");
    let metrics = Metrics::of(Watched { owner: Some(us), hides_objects: false });
    let ours = |limits: Value| owned(pool("web", json!({"limits": limits})), us);
    metrics.see(NOW, &ours(json!({"cpu": "1500m", "nodes": 3})));
    says(&metrics, "karpenter_nodepools_limit{nodepool=\"web\",resource_type=\"cpu\"} 1.5");
    metrics.see(NOW, &ours(json!({"nodes": 4})));
    says(&metrics, "karpenter_nodepools_limit{nodepool=\"web\",resource_type=\"nodes\"} 4.0");
    is_silent(&metrics, "resource_type=\"cpu\"");
    let mut used = PoolUse { nodes: 2, ..PoolUse::default() };
    used.resources.set(*crate::model::quantity::resource::CPU, 2500);
    let change = crate::model::action::PoolChange { used: Some(used), ..Default::default() };
    metrics.decided(NOW, &decision(Action::UpdatePool { pool: PoolName::new("web"), change }, "Counted"));
    says(&metrics, "karpenter_nodepools_usage{nodepool=\"web\",resource_type=\"cpu\"} 2.5");
    says(&metrics, "karpenter_nodepools_usage{nodepool=\"web\",resource_type=\"nodes\"} 2.0");
    metrics.see(NOW, &pool("theirs", json!({"limits": {"cpu": "9"}})));
    is_silent(&metrics, "theirs");
    metrics.see(NOW, &Observation::PoolGone(PoolName::new("web")));
    is_silent(&metrics, "nodepools_limit{");
    is_silent(&metrics, "nodepools_usage{");
}

/// Rows: OBS-014
#[test]
fn obs_014_the_cost_of_a_pool_follows_its_claims_and_prices() {
    let metrics = Metrics::new();
    let catalog = Catalog::builtin("us-east-1").expect("a region");
    metrics.see(NOW, &Observation::Catalog(Arc::new(catalog.clone())));
    metrics.see(NOW, &pool("web", json!({})));
    says(&metrics, "karpenter_nodepools_cost_total{nodepool=\"web\"} 0.0");
    metrics.see(NOW, &claim("a", json!({})));
    metrics.see(NOW, &claim("b", json!({})));
    says(&metrics, "karpenter_nodepools_cost_total{nodepool=\"web\"} 0.192");
    // What is bought is not known yet; what nobody sells has no price.
    let label = |value: Value| json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": value}}});
    let mut open = made(&claim("c", json!({})));
    Arc::make_mut(&mut open).labels.remove(&*label::INSTANCE_TYPE);
    metrics.see(NOW, &Observation::Claim(open));
    is_silent(&metrics, "cost_tracker_errors_total{");
    for _ in 0..2 {
        metrics.see(NOW, &claim("d", label(json!("z9.huge"))));
    }
    says(&metrics, "karpenter_nodepools_cost_tracker_errors_total{nodepool=\"web\"} 1");
    says(&metrics, "karpenter_nodepools_cost_total{nodepool=\"web\"} 0.192");
    let kind = crate::model::offering::CapacityType::OnDemand;
    let dearer = [(("m5.large".into(), kind), Some(crate::model::money::UsdPerHour(500_000)))];
    metrics.see(NOW, &Observation::Catalog(Arc::new(catalog.with_prices(&dearer.into()))));
    says(&metrics, "karpenter_nodepools_cost_total{nodepool=\"web\"} 1.0");
    metrics.see(NOW, &Observation::ClaimGone(ClaimName::new("a")));
    says(&metrics, "karpenter_nodepools_cost_total{nodepool=\"web\"} 0.5");
    metrics.see(NOW, &Observation::PoolGone(PoolName::new("web")));
    is_silent(&metrics, "nodepools_cost_total{");
}

#[test]
fn money_is_counted_for_machines_of_ours_and_only_ever_grows() {
    let (us, them) = (Owner::new("provisor", "prod"), Owner::new("provisor", "dev"));
    let metrics = Metrics::of(Watched { owner: Some(us), hides_objects: true });
    metrics.see(NOW, &Observation::Catalog(Arc::new(Catalog::builtin("us-east-1").expect("a region"))));
    metrics.see(NOW, &owned(pool("web", json!({})), us));
    metrics.see(NOW, &owned(pool("theirs", json!({})), them));
    let bought = |name: &str, pool: &str| {
        let label = json!({"metadata": {"labels": {"karpenter.sh/nodepool": pool}}});
        let mut seen = claim(name, label);
        if let Observation::Claim(claim) = &mut seen {
            Arc::make_mut(claim).provider_id = Some(format!("aws:///us-east-1a/i-{name}").as_str().into());
        }
        seen
    };
    metrics.see(NOW, &bought("a", "web"));
    metrics.see(NOW, &bought("b", "theirs"));
    let series = "{nodepool=\"web\",environment=\"prod\",capacity_type=\"on-demand\"}";
    let at = |seconds: i64| metrics.text(after(seconds));
    let has = |text: &str, name: &str, value: &str| {
        let line = format!("karpenter_nodepools_{name}_total{series} {value}\n");
        assert!(text.contains(&line), "no {line} in\n{text}");
    };
    has(&at(3600), "spent_usd", "0.096");
    has(&at(3600), "machine_seconds", "3600.0");
    assert!(!at(3600).contains("nodepool=\"theirs\""), "others count their own");
    // The clock jumps back, and the cluster is read anew: a counter that fell would read as a restart.
    has(&at(-60), "spent_usd", "0.096");
    metrics.begin(after(3600));
    has(&at(7200), "spent_usd", "0.096");
    metrics.see(after(7200), &owned(pool("web", json!({})), us));
    let catalog = Catalog::builtin("us-east-1").expect("a region");
    metrics.see(after(7200), &Observation::Catalog(Arc::new(catalog)));
    metrics.see(after(7200), &bought("a", "web"));
    has(&at(10_800), "spent_usd", "0.192");
    metrics.decided(
        after(10_800),
        &decision(Action::Terminate { instance: "aws:///us-east-1a/i-a".into() }, "Empty"),
    );
    metrics.see(after(14_400), &Observation::ClaimGone(ClaimName::new("a")));
    has(&at(20_000), "spent_usd", "0.192");
}

/// Rows: OBS-010
#[test]
fn obs_010_a_node_is_measured_while_it_is_there_and_all_of_them_by_their_use() {
    let metrics = Metrics::new();
    metrics.see(NOW, &Observation::Synced);
    metrics.see(NOW, &node("n1", json!({})));
    metrics.see(NOW, &pod(Some("n1"), "Running", json!({})));
    let own =
        "node_name=\"n1\",phase=\"\",managed=\"true\",nodepool=\"web\",arch=\"amd64\",zone=\"us-east-1a\"";
    let text = metrics.text(after(60));
    let figure = |name: &str, resource: &str| {
        let wanted = format!("karpenter_{name}{{");
        let mut lines = text.lines().filter(|line| line.starts_with(&wanted) && line.contains(resource));
        let line = lines.next().unwrap_or_else(|| panic!("no {name} of {resource} in\n{text}"));
        for label in own.split(',').filter(|_| name.starts_with("nodes_")) {
            assert!(line.contains(label), "no {label} in {line}");
        }
        line.rsplit(' ').next().and_then(|figure| figure.parse::<f64>().ok()).expect("a figure")
    };
    assert_eq!(figure("nodes_allocatable", "\"cpu\""), 1.9);
    assert_eq!(figure("nodes_allocatable", "\"memory\""), 7.0 * 1024.0 * 1024.0 * 1024.0);
    assert_eq!(figure("nodes_total_pod_requests", "\"cpu\""), 0.95);
    assert_eq!(figure("nodes_total_daemon_requests", "\"cpu\""), 0.0);
    assert_eq!(figure("nodes_system_overhead", "\"cpu\""), 0.1);
    assert_eq!(figure("nodes_current_lifetime_seconds", "n1"), 60.0);
    assert_eq!(figure("cluster_utilization_percent", "\"cpu\""), 50.0);
    says(&metrics, "karpenter_nodes_created_total{nodepool=\"web\",zone=\"us-east-1a\"} 1");
    let mut going = node("n1", json!({}));
    if let Observation::Node(node) = &mut going {
        Arc::make_mut(node).deleted = Some(after(60));
    }
    metrics.see(after(60), &going);
    metrics.see(after(90), &Observation::NodeGone("n1".into()));
    is_silent(&metrics, "node_name=");
    says(&metrics, "karpenter_nodes_terminated_total{nodepool=\"web\",zone=\"us-east-1a\"} 1");
    says(&metrics, "karpenter_nodes_termination_duration_seconds_sum{nodepool=\"web\"} 30.0");
    says(&metrics, "karpenter_nodes_lifetime_duration_seconds_sum{nodepool=\"web\"} 90.0");
    says(&metrics, "karpenter_cluster_state_node_count 0");
}

/// Rows: OBS-012, OBS-013
#[test]
fn a_pod_is_told_of_as_it_is_and_how_long_it_waits() {
    let metrics = Metrics::new();
    metrics.see(NOW, &node("n1", json!({"node.kubernetes.io/instance-type": "m5.large"})));
    metrics.see(NOW, &pod(None, "Pending", json!({})));
    let state = |node: &str, scheduled: bool, words: [&str; 4], phase: &str, managed: bool| {
        let [pool, zone, arch, kind] = words;
        format!(
            "karpenter_pods_state{{name=\"web-0\",namespace=\"shop\",\
             owner=\"/apis/apps/v1/namespaces/shop/replicasets/web\",node=\"{node}\",scheduled=\"{scheduled}\",\
             nodepool=\"{pool}\",zone=\"{zone}\",arch=\"{arch}\",capacity_type=\"\",instance_type=\"{kind}\",\
             phase=\"{phase}\",ready=\"false\",managed=\"{managed}\"}} 1.0"
        )
    };
    let own = "{name=\"web-0\",namespace=\"shop\"}";
    says(&metrics, &state("", false, [""; 4], "Pending", false));
    says_at(&metrics, after(3), &format!("karpenter_pods_unbound_time_seconds{own} 3.0"));
    says_at(&metrics, after(4), &format!("karpenter_pods_unstarted_time_seconds{own} 4.0"));
    says_at(
        &metrics,
        after(4),
        &format!("karpenter_pods_provisioning_scheduling_undecided_time_seconds{own} 4.0"),
    );

    metrics.see(after(7), &pod(Some("n1"), "Pending", json!({})));
    let words = ["web", "us-east-1a", "amd64", "m5.large"];
    says(&metrics, &state("n1", true, words, "Pending", true));
    is_silent(&metrics, "pods_unbound_time_seconds{");
    is_silent(&metrics, "undecided_time_seconds{");
    says(&metrics, "karpenter_pods_bound_duration_seconds_sum 7.0");
    says_at(&metrics, after(8), &format!("karpenter_pods_unstarted_time_seconds{own} 8.0"));

    metrics.see(after(9), &pod(Some("n1"), "Running", json!({})));
    metrics.see(after(20), &pod(Some("n1"), "Running", json!({})));
    says(&metrics, &state("n1", true, words, "Running", true));
    is_silent(&metrics, "phase=\"Pending\"");
    is_silent(&metrics, "pods_unstarted_time_seconds{");
    says_at(&metrics, after(20), "karpenter_pods_startup_duration_seconds{quantile=\"0.5\"} 9.0");
    says(&metrics, "karpenter_pods_startup_duration_seconds_count 1");
    says(&metrics, "karpenter_pods_bound_duration_seconds_count 1");

    metrics.see(after(30), &Observation::PodGone(ObjectKey::new("shop", "web-0")));
    is_silent(&metrics, "pods_state{");
}

#[test]
fn the_way_from_a_place_to_running_is_told_while_it_lasts_and_then_counted() {
    use crate::capacity::decision::Plan;
    use crate::capacity::scheduling::Solution;
    let metrics = Metrics::new();
    let mut healthy = pool("web", json!({}));
    if let Observation::Pool(pool) = &mut healthy {
        let (kind, status) =
            (PoolCondition::NodeRegistrationHealthy, crate::model::claim::ConditionStatus::True);
        Arc::make_mut(pool).conditions.set(kind, status, "Told", "", NOW);
    }
    metrics.see(NOW, &healthy);
    metrics.see(NOW, &node("n1", json!({})));
    metrics.see(NOW, &pod(None, "Pending", json!({})));
    let key = ObjectKey::new("shop", "web-0");
    let existing = [(Place::Node("n1".into()), vec![key])].into_iter().collect();
    let provisioning = Solution { existing, ..Solution::default() };
    let plan = Arc::new(Plan { provisioning, ..Plan::default() });
    metrics.decided(after(1), &Decision { plan, ..Decision::default() });
    let own = "{name=\"web-0\",namespace=\"shop\"}";
    let [unbound, unstarted] =
        ["unbound", "unstarted"].map(|word| format!("pods_provisioning_{word}_time_seconds"));
    says_at(&metrics, after(3), &format!("karpenter_{unbound}{own} 2.0"));
    metrics.see(after(5), &pod(Some("n1"), "Pending", json!({})));
    is_silent(&metrics, &format!("{unbound}{{"));
    says_at(&metrics, after(6), &format!("karpenter_{unstarted}{own} 5.0"));
    metrics.see(after(9), &pod(Some("n1"), "Running", json!({})));
    is_silent(&metrics, &format!("{unstarted}{{"));
    says(&metrics, "karpenter_pods_provisioning_bound_duration_seconds_sum 4.0");
    says(&metrics, "karpenter_pods_provisioning_startup_duration_seconds_sum 8.0");
}

/// Rows: TER-033, TER-034
#[test]
fn evictions_are_counted_by_their_answer() {
    let metrics = Metrics::new();
    let pod = ObjectKey::new("shop", "web-0");
    metrics.see(NOW, &Observation::Evicted { pod });
    metrics.see(
        NOW,
        &Observation::EvictionBlocked { pod, why: EvictionBlock::Budget, message: "its budget".into() },
    );
    metrics.see(
        NOW,
        &Observation::EvictionBlocked { pod, why: EvictionBlock::Budget, message: "its budget".into() },
    );
    says(&metrics, "karpenter_pods_eviction_requests_total{code=\"201\"} 1");
    says(&metrics, "karpenter_pods_eviction_requests_total{code=\"429\"} 2");
    metrics.see(
        NOW,
        &Observation::EvictionBlocked { pod, why: EvictionBlock::Fault, message: "two budgets".into() },
    );
    says(&metrics, "karpenter_pods_eviction_requests_total{code=\"500\"} 1");
}

/// A claim that became the machine `i-1` of the node `n1`, with these conditions.
fn claim_with(conditions: Value) -> Observation {
    claim(
        "web-1",
        json!({"status": {"providerID": "aws:///us-east-1a/i-1", "imageID": "ami-1", "conditions": conditions}}),
    )
}

fn true_since(kind: &str, reason: &str, at: Timestamp) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": at.to_string()})
}

fn node_of_claim(conditions: Value) -> Observation {
    let mut node = node("n1", json!({}));
    let Observation::Node(inner) = &mut node else { panic!("{node:?}") };
    let read = seen(&json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"},
        "spec": {"providerID": "aws:///us-east-1a/i-1"}, "status": {"conditions": conditions},
    }));
    let Observation::Node(read) = read else { panic!("{read:?}") };
    let changed = Arc::make_mut(inner);
    (changed.provider_id, changed.conditions) = (read.provider_id, read.conditions.clone());
    node
}

/// Rows: TER-030, LIF-056
#[test]
fn ter_030_a_node_that_is_drained_and_a_machine_that_ends_are_measured_once() {
    let metrics = Metrics::new();
    metrics.see(NOW, &claim_with(json!([])));
    metrics.see(NOW, &node_of_claim(json!([])));
    is_silent(&metrics, "nodes_drained_total{");
    let drained = json!([true_since("Drained", "Drained", after(5))]);
    metrics.see(after(5), &claim_with(drained));
    let ending = json!([
        true_since("Drained", "Drained", after(5)),
        true_since("InstanceTerminating", "InstanceTerminating", after(6))
    ]);
    for _ in 0..2 {
        metrics.see(after(6), &claim_with(ending.clone()));
    }
    says(&metrics, "karpenter_nodes_drained_total{nodepool=\"web\"} 1");
    metrics.see(after(40), &Observation::NodeGone("n1".into()));
    let mut going = made(&claim_with(ending));
    Arc::make_mut(&mut going).deleted = Some(NOW);
    metrics.see(after(41), &Observation::Claim(going.clone()));
    for _ in 0..2 {
        metrics.see(after(46), &Observation::ClaimGone(going.name));
    }
    says(&metrics, "karpenter_nodes_terminated_total{nodepool=\"web\",zone=\"us-east-1a\"} 1");
    says(&metrics, "karpenter_nodes_lifetime_duration_seconds_count{nodepool=\"web\"} 1");
    says(&metrics, "karpenter_nodeclaims_instance_termination_duration_seconds_sum{nodepool=\"web\"} 40.0");
    says(&metrics, "karpenter_nodeclaims_instance_termination_duration_seconds_count{nodepool=\"web\"} 1");
    says(&metrics, "karpenter_nodeclaims_termination_duration_seconds_sum{nodepool=\"web\"} 46.0");
    says(&metrics, "karpenter_nodeclaims_termination_duration_seconds_count{nodepool=\"web\"} 1");
}

/// Rows: TER-032, TER-035, DIS-326
#[test]
fn ter_035_pods_that_leave_are_counted_by_the_reason_of_their_node() {
    let metrics = Metrics::new();
    let key = ObjectKey::new("shop", "web-0");
    let evict = || metrics.see(NOW, &Observation::Evicted { pod: key });
    metrics.see(NOW, &pod(Some("n1"), "Running", json!({})));
    evict();
    says(&metrics, "karpenter_pods_drained_total{reason=\"\"} 1");
    metrics.see(NOW, &node_of_claim(json!([])));
    metrics.see(NOW, &claim_with(json!([])));
    evict();
    says(&metrics, "karpenter_pods_drained_total{reason=\"Forceful Termination\"} 1");
    metrics.see(NOW, &claim_with(json!([true_since("DisruptionReason", "Drifted", NOW)])));
    evict();
    says(&metrics, "karpenter_pods_drained_total{reason=\"Drifted\"} 1");
    // One that is deleted past its budgets, however often that has to be said.
    let force = || {
        let grace = SignedDuration::from_secs(1);
        let action = Action::DeletePod { pod: key, uid: Uid::new("u1"), grace };
        metrics.decided(NOW, &decision(action, "DeadlineReached"));
    };
    force();
    force();
    says(&metrics, "karpenter_pods_drained_total{reason=\"Drifted\"} 2");
    metrics.see(NOW, &Observation::PodGone(key));
    // One that was evicted before is only hurried.
    metrics
        .see(NOW, &pod(Some("n1"), "Running", json!({"metadata": {"deletionTimestamp": NOW.to_string()}})));
    force();
    says(&metrics, "karpenter_pods_drained_total{reason=\"Drifted\"} 2");
}

/// Rows: LIF-007, LIF-071, LIF-073, TER-043
#[test]
fn lif_073_pods_that_a_claim_takes_along_are_counted() {
    let metrics = Metrics::new();
    metrics.see(NOW, &claim_with(json!([])));
    let sick = json!([{"type": "KernelReady", "status": "False", "lastTransitionTime": NOW.to_string()}]);
    metrics.see(NOW, &node_of_claim(sick));
    for (name, owner) in
        [("a", "ReplicaSet"), ("b", "ReplicaSet"), ("c", "StatefulSet"), ("d", "DaemonSet"), ("e", "Node")]
    {
        let mut object = pod(Some("n1"), "Running", json!({"metadata": {"name": name, "uid": name}}));
        let Observation::Pod(inner) = &mut object else { panic!("{object:?}") };
        Arc::make_mut(inner).owners[0].kind = owner.into();
        if owner == "Node" {
            Arc::make_mut(inner).owners[0].api_version = "v1".into();
        }
        metrics.see(NOW, &object);
    }
    let name = ClaimName::new("web-1");
    for code in ["Expired", "Unhealthy", "NodeclassNotReady"] {
        metrics.decided(NOW, &decision(Action::DeleteClaim { claim: name }, code));
    }
    let labels = |reason: &str| {
        format!(
            "reason=\"{reason}\",nodepool=\"web\",capacity_type=\"on-demand\",\
             consolidation_policy=\"\",termination_mode=\"graceful\""
        )
    };
    for reason in ["expired", "unhealthy", "nodeclass_not_ready"] {
        says(&metrics, &format!("karpenter_nodeclaims_disrupted_total{{{}}} 1", labels(reason)));
        says(&metrics, &format!("karpenter_pods_disruption_initiated_total{{{}}} 3", labels(reason)));
    }
    let own = "condition=\"kernel_ready\",nodepool=\"web\",capacity_type=\"on-demand\",image_id=\"ami-1\"";
    says(&metrics, &format!("karpenter_nodeclaims_unhealthy_disrupted_total{{{own}}} 1"));
}

/// Rows: WEA-040
#[test]
fn wea_040_what_was_decided_in_a_round_is_no_second_sample_of_it() {
    use crate::capacity::decision::Plan;
    let metrics = Metrics::new();
    let count = "karpenter_scheduler_scheduling_duration_seconds_count{controller=\"provisioner\"}";
    for round in 1..=3 {
        // As the live loop tells it: what was decided, and how long it took.
        metrics.decided(after(round), &Decision { plan: Arc::new(Plan::default()), ..Decision::default() });
        metrics.planned(Duration::from_millis(5));
        says(&metrics, &format!("{count} {round}"));
    }
    // A pass that planned for nobody.
    metrics.decided(after(9), &Decision::default());
    says(&metrics, &format!("{count} 3"));
}

#[test]
fn sch_226_every_round_is_timed() {
    let metrics = Metrics::new();
    metrics.planned(Duration::from_millis(120));
    let name = "karpenter_scheduler_scheduling_duration_seconds";
    says(&metrics, &format!("{name}_count{{controller=\"provisioner\"}} 1"));
    says(&metrics, &format!("{name}_sum{{controller=\"provisioner\"}} 0.12"));
}

/// Rows: OBS-015
#[test]
fn obs_015_whether_the_picture_is_complete_is_told_and_for_how_long_it_is_not() {
    let metrics = Metrics::new();
    // Nobody reads the cluster yet.
    says_at(&metrics, after(100), "karpenter_cluster_state_unsynced_time_seconds 0.0");
    for start in [100, 1000] {
        metrics.begin(after(start));
        says(&metrics, "karpenter_cluster_state_synced 0");
        for more in [3, 8] {
            let line = format!("karpenter_cluster_state_unsynced_time_seconds {more}.0");
            says_at(&metrics, after(start + more), &line);
        }
        metrics.see(after(start + 8), &node("n1", json!({})));
        metrics.see(after(start + 9), &Observation::Synced);
        assert!(metrics.is_ready());
        says(&metrics, "karpenter_cluster_state_synced 1");
        says(&metrics, "karpenter_cluster_state_node_count 1");
        says_at(&metrics, after(start + 50), "karpenter_cluster_state_unsynced_time_seconds 0.0");
        is_silent(&metrics, "nodes_created_total{");
    }
    // Another replica acts meanwhile: what was there may be gone.
    metrics.begin(after(2000));
    says(&metrics, "karpenter_cluster_state_node_count 0");
}

/// A claim or a pool whose condition `kind` stands so since then.
fn standing(kind: &str, status: &str, reason: &str, since: i64) -> Value {
    json!({"status": {"conditions": [{
        "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": after(since).to_string(),
    }]}})
}

#[test]
fn conditions_are_told_as_they_stand_and_counted_when_they_change() {
    let us = Owner::new("provisor", "prod");
    let metrics = Metrics::of(Watched { owner: Some(us), hides_objects: false });
    metrics.see(NOW, &owned(pool("web", json!({})), us));
    metrics.see(NOW, &pool("theirs", json!({})));
    let of = |pool: &str, mut more: Value| {
        more["metadata"]["labels"] =
            json!({"karpenter.sh/nodepool": pool, "karpenter.k8s.aws/ec2nodeclass": "default"});
        claim(pool, more)
    };
    for pool in ["web", "theirs"] {
        metrics.see(NOW, &of(pool, standing("Registered", "Unknown", "AwaitingReconciliation", 0)));
        metrics.see(after(9), &of(pool, standing("Registered", "True", "Registered", 7)));
        // Told again, nothing changes.
        metrics.see(after(9), &of(pool, standing("Registered", "True", "Registered", 7)));
    }
    let prefix = "operator_nodeclaim_status_condition";
    let extras = "karpenter_k8s_aws_ec2nodeclass=\"default\",karpenter_sh_nodepool=\"web\"";
    let stands = "namespace=\"\",name=\"web\",type=\"Registered\",status=\"True\",reason=\"Registered\"";
    says(&metrics, &format!("{prefix}_count{{{stands},{extras}}} 1.0"));
    says_at(&metrics, after(10), &format!("{prefix}_current_status_seconds{{{stands},{extras}}} 3.0"));
    let became = "type=\"Registered\",status=\"True\",reason=\"Registered\"";
    says(&metrics, &format!("{prefix}_transitions_total{{{became},{extras}}} 1"));
    let was = "type=\"Registered\",status=\"Unknown\"";
    says(&metrics, &format!("{prefix}_transition_seconds_sum{{{was},{extras}}} 7.0"));

    for (status, since) in [("False", 2), ("True", 5)] {
        let mut seen = pool("web", json!({}));
        if let Observation::Pool(pool) = &mut seen {
            let pool = Arc::make_mut(pool);
            let status = match status {
                "True" => crate::model::claim::ConditionStatus::True,
                _ => crate::model::claim::ConditionStatus::False,
            };
            pool.conditions.set(PoolCondition::NodeRegistrationHealthy, status, "Told", "", after(since));
        }
        metrics.see(after(since), &owned(seen, us));
    }
    let was = "type=\"NodeRegistrationHealthy\",status=\"False\"";
    says(&metrics, &format!("operator_nodepool_status_condition_transition_seconds_sum{{{was}}} 3.0"));

    let mut going = standing("Registered", "True", "Registered", 7);
    going["metadata"] = json!({"deletionTimestamp": after(20).to_string()});
    metrics.see(after(20), &of("web", going));
    let own = format!("namespace=\"\",name=\"web\",{extras}");
    let line = format!("operator_nodeclaim_termination_current_time_seconds{{{own}}} 4.0");
    says_at(&metrics, after(24), &line);
    metrics.see(after(26), &Observation::ClaimGone(ClaimName::new("web")));
    says(&metrics, &format!("operator_nodeclaim_termination_duration_seconds_sum{{{extras}}} 6.0"));
    is_silent(&metrics, "name=\"web\",karpenter");
    is_silent(&metrics, "theirs");
}

#[test]
fn messages_of_the_queue_are_counted_by_their_kind_and_when_they_are_deleted() {
    use crate::io::cloud::{Notices, Received};
    let metrics = Metrics::new();
    let received = [("spot_interrupted", 1), ("no_op", 4), ("spot_interrupted", 5)];
    let received = received.map(|(kind, sent)| Received { kind, sent: after(sent) }).to_vec();
    metrics.0.messages.heard(after(5), &Notices { received, dropped: 2, ..Notices::default() });
    metrics.0.messages.forgot(1);
    let received = "karpenter_interruption_received_messages_total";
    says(&metrics, &format!("{received}{{message_type=\"spot_interrupted\"}} 2"));
    says(&metrics, &format!("{received}{{message_type=\"no_op\"}} 1"));
    says(&metrics, "karpenter_interruption_deleted_messages_total 3");
    says(&metrics, "karpenter_interruption_message_queue_duration_seconds_sum 5.0");
}

/// Rows: OBS-016
#[tokio::test]
async fn obs_016_requests_to_the_cloud_are_timed_and_their_errors_have_types() {
    use crate::io::cloud::{CloudProvider, LaunchOrder};
    let metrics = Metrics::new();
    let catalog = Arc::new(Catalog::builtin("us-east-1").expect("a region"));
    // No request reaches this address: nothing is bought.
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    });
    std::fs::write(file.path(), config.to_string()).expect("a file");
    let address = Address { kubeconfig: Some(file.path().to_owned()), context: None };
    let kubelet = Kubelet::new(Kube::connect(&address, 1).await.expect("a kubeconfig"), false);
    let cloud = Arc::new(SimulatedProvider::new(SimulatedSettings::default(), catalog, kubelet));
    let cloud = Metered::new(cloud, "simulated", metrics.clone());
    cloud.catalog().await.expect("a catalogue");
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "machines",
            "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}],
        },
    });
    let Observation::Class(class) = seen(&class) else { panic!("{class}") };
    let order = LaunchOrder { claim: made(&claim("a", json!({}))), class, options: Vec::new() };
    cloud.launch(order).await.expect_err("nothing is asked for");
    let own = |controller: &str, method: &str| {
        format!("controller=\"{controller}\",method=\"{method}\",provider=\"simulated\"")
    };
    let [asked, launched] = [own("provisioner", "GetInstanceTypes"), own("nodeclaim.lifecycle", "Create")];
    for labels in [&asked, &launched] {
        says(&metrics, &format!("karpenter_cloudprovider_duration_seconds_count{{{labels}}} 1"));
    }
    let errors = "karpenter_cloudprovider_errors_total";
    says(&metrics, &format!("{errors}{{{launched},error=\"InsufficientCapacityError\"}} 1"));
    is_silent(&metrics, &format!("{errors}{{{asked}"));
}

/// A move that saves a tenth of `pool` and moves so many tenths of its pods.
fn weighed(pool: &str, tenths: i64) -> Move {
    use crate::model::money::UsdPerHour;
    let prices = (UsdPerHour(1), UsdPerHour(1));
    let score = |pool| Score {
        pool,
        savings: UsdPerHour(1),
        prices,
        moved: tenths << 27,
        total: (UsdPerHour(10), 10 << 27),
    };
    let pool = PoolName::new(pool);
    Move { nodes: vec!["n1".into()], pools: vec![pool], scores: vec![score(pool)] }
}

/// What is weighed in one pass is counted once, however often the same pass is told.
#[test]
fn moves_are_counted_with_their_pool_policy_and_score() {
    let metrics = Metrics::new();
    let balanced = json!({"disruption": {"consolidateAfter": "0s", "consolidationPolicy": "Balanced"}});
    metrics.see(NOW, &pool("web", balanced));
    metrics.see(NOW, &pool("batch", json!({})));
    let free = Move { nodes: Vec::new(), pools: vec![PoolName::new("batch")], scores: Vec::new() };
    let moves = vec![weighed("web", 1), weighed("web", 4), free];
    let judged = Arc::new(DisruptionPlan { moves, ..DisruptionPlan::default() });
    for _ in 0..2 {
        let plan = crate::capacity::decision::Plan { disruption: judged.clone(), ..Default::default() };
        metrics.decided(NOW, &Decision { plan: Arc::new(plan), ..Decision::default() });
    }
    let of = |decision: &str, pool: &str, policy: &str| {
        format!("decision=\"{decision}\",nodepool=\"{pool}\",policy=\"{policy}\"")
    };
    let (approved, rejected) = (of("approved", "web", "Balanced"), of("rejected", "web", "Balanced"));
    let free = of("approved", "batch", "WhenEmptyOrUnderutilized");
    for series in [&approved, &rejected, &free] {
        says(&metrics, &format!("karpenter_consolidation_moves_total{{{series}}} 1"));
    }
    says(&metrics, &format!("karpenter_consolidation_score_sum{{{approved}}} 1.0"));
    says(&metrics, &format!("karpenter_consolidation_score_sum{{{rejected}}} 0.25"));
    is_silent(&metrics, &format!("karpenter_consolidation_score_sum{{{free}"));
}
