//! All that is served at once: that the reference page tells of it, and what can be left out.

use std::path::Path;

use super::*;
use crate::io::cloud::{Notices, Received};

/// Rows: OBS-020
#[test]
fn obs_020_series_of_single_objects_can_be_left_out_alone() {
    let told = |hides_objects| {
        let metrics = Metrics::of(Watched { owner: None, hides_objects });
        a_day(&metrics);
        names(&metrics.text(after(10)))
    };
    let (all, few) = (told(false), told(true));
    let is_of_objects = |name: &str| {
        if name.starts_with("operator_") {
            return true;
        }
        let is_gauge = |prefix: &str| {
            name.starts_with(prefix) && !name.contains("duration") && !name.ends_with("_total")
        };
        let of_pods = name.starts_with("karpenter_pods_") && !name.ends_with("_total");
        of_pods
            || is_gauge("karpenter_nodes_")
            || name == "karpenter_cluster_utilization_percent"
            || ["limit", "usage", "cost_total"]
                .iter()
                .any(|last| name == format!("karpenter_nodepools_{last}"))
    };
    let missing: Vec<&String> = all.keys().filter(|name| !few.contains_key(*name)).collect();
    assert!(missing.iter().all(|name| is_of_objects(name)), "{missing:?}");
    let left: Vec<&String> = few.keys().filter(|name| is_of_objects(name)).collect();
    assert!(left.is_empty() && missing.len() > 15, "{left:?} {missing:?}");
}

/// The page lists all that is served, each with its type and its labels, and nothing else.
#[test]
fn the_reference_page_has_every_metric_with_its_type_and_labels() {
    let metrics = Metrics::new();
    a_day(&metrics);
    let served = names(&metrics.text(after(10)));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let rows =
        page.lines().filter(|line| line.starts_with("| `karpenter_") || line.starts_with("| `operator_"));
    let told: BTreeMap<String, (String, BTreeSet<String>)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let words =
                |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
            (words(cells[0])[0].clone(), (cells[1].to_owned(), words(cells[2]).into_iter().collect()))
        })
        .collect();
    let difference = |one: &BTreeMap<_, _>, other: &BTreeMap<String, _>| {
        one.keys().filter(|name| !other.contains_key(*name)).cloned().collect::<Vec<String>>()
    };
    assert_eq!(difference(&served, &told), Vec::<String>::new(), "not on the page");
    assert_eq!(difference(&told, &served), Vec::<String>::new(), "not served");
    for (name, (kind, labels)) in &served {
        assert_eq!((kind, labels), (&told[name].0, &told[name].1), "{name}");
    }
}

/// Something of everything.
fn a_day(metrics: &Metrics) {
    use crate::capacity::decision::Plan;
    use crate::capacity::scheduling::Solution;
    metrics.see(NOW, &Observation::Catalog(Arc::new(Catalog::builtin("us-east-1").expect("a region"))));
    metrics.see(NOW, &Observation::Synced);
    let mut healthy = pool("web", json!({"limits": {"cpu": "9"}}));
    if let Observation::Pool(pool) = &mut healthy {
        let (kind, status) =
            (PoolCondition::NodeRegistrationHealthy, crate::model::claim::ConditionStatus::True);
        let pool = Arc::make_mut(pool);
        pool.conditions.set(kind, status, "Told", "", NOW);
        let mut used = PoolUse { nodes: 1, ..PoolUse::default() };
        used.resources.set(*crate::model::quantity::resource::CPU, 1000);
        pool.used = Some(used);
    }
    let mut unhealthy = healthy.clone();
    if let Observation::Pool(pool) = &mut unhealthy {
        let (kind, status) =
            (PoolCondition::NodeRegistrationHealthy, crate::model::claim::ConditionStatus::False);
        Arc::make_mut(pool).conditions.set(kind, status, "Told", "", NOW);
    }
    metrics.see(NOW, &unhealthy);
    metrics.see(NOW, &healthy);
    let bought = json!({"status": {"providerID": "aws:///us-east-1a/i-1"}});
    let first = made(&claim("a", bought));
    metrics.see(NOW, &Observation::Claim(first.clone()));
    metrics.see(NOW, &claim("c", standing("Registered", "Unknown", "AwaitingReconciliation", 0)));
    let mut going = standing("Registered", "True", "Registered", 0);
    going["metadata"] = json!({"deletionTimestamp": NOW.to_string()});
    metrics.see(NOW, &claim("c", going));
    let received = vec![Received { kind: "no_op", sent: NOW }];
    metrics.0.messages.heard(NOW, &Notices { received, ..Notices::default() });
    metrics.decided(NOW, &decision(Action::CreateClaim(first.clone()), "Provisioned"));
    let label = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "z9.huge"}}});
    let gone = json!({"metadata": {"deletionTimestamp": NOW.to_string()}});
    for seen in [claim("a", gone), claim("b", label)] {
        metrics.see(NOW, &seen);
    }
    metrics.decided(NOW, &decision(Action::DeleteClaim { claim: first.name }, "Empty"));
    metrics.decided(NOW, &decision(Action::DeleteClaim { claim: first.name }, "Unhealthy"));
    let ended = ["Drained", "InstanceTerminating"].map(|kind| true_since(kind, kind, NOW));
    let gone = json!({"metadata": {"deletionTimestamp": NOW.to_string()}, "status": {"conditions": ended}});
    metrics.see(NOW, &claim("a", gone));
    metrics.see(NOW, &Observation::ClaimGone(first.name));
    let mut going = node("n0", json!({}));
    if let Observation::Node(node) = &mut going {
        Arc::make_mut(node).deleted = Some(NOW);
    }
    for seen in [going, Observation::NodeGone("n0".into()), node("n1", json!({}))] {
        metrics.see(NOW, &seen);
    }
    let key = ObjectKey::new("shop", "web-0");
    metrics.see(NOW, &Observation::Evicted { pod: key });
    metrics.planned(Duration::from_millis(1));
    let call = Call { controller: "nodeclaim.lifecycle", method: "Create" };
    metrics.called("aws", call, Duration::from_millis(1), Some(""));
    // One pod waits for a plan, the other has a place.
    let other = json!({"metadata": {"name": "web-1", "uid": "u2"}});
    metrics.see(NOW, &pod(None, "Pending", json!({})));
    let reason = DisruptionReason::Empty;
    let allowances = [((PoolName::new("web"), reason), Default::default())].into();
    let outlook = Outlook { allowances, eligible: [(reason, 1)].into() };
    let judged = DisruptionPlan { outlook, moves: vec![weighed("web", 1)], ..DisruptionPlan::default() };
    let started = vec![Command {
        method: Method::Emptiness,
        nodes: Vec::new(),
        claims: Vec::new(),
        pools: vec![PoolName::new("web")],
        replacements: Vec::new(),
        savings: crate::model::money::UsdPerHour::ZERO,
        pods: Vec::new(),
        least_savings: None,
        alternatives: Vec::new(),
    }];
    let existing = [(Place::Node("n1".into()), vec![key])].into_iter().collect();
    let plan = Plan {
        provisioning: Solution { existing, ..Solution::default() },
        pending_zones: [(EffectiveZone::Flexible, 1)].into(),
        disruption: Arc::new(judged),
        ..Plan::default()
    };
    let withdrawn = vec![(Method::SingleNodeConsolidation, 1)];
    metrics.decided(NOW, &Decision { started, withdrawn, plan: Arc::new(plan), ..Decision::default() });
    metrics.see(NOW, &pod(None, "Pending", other));
}

/// The families of a text with their types and the labels of their series.
fn names(text: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut families: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(told) = line.strip_prefix("# TYPE ") {
            let (name, kind) = told.split_once(' ').expect("a name and a type");
            // Counters are named without what every line of theirs ends in.
            family = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
            families.insert(family.clone(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((_, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let labels = labels.split("\",").filter_map(|label| label.split_once("=\"")).map(|(key, _)| key);
            // What the form itself needs is no label of the metric.
            let labels = labels.filter(|key| !["le", "quantile"].contains(key)).map(str::to_owned);
            families.get_mut(&family).expect("its family is named first").1.extend(labels);
        }
    }
    families
}
