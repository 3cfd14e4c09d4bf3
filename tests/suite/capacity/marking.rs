//! What is written on claims about their future: that they have drifted, and why; that their pods are quiet.

use std::sync::Arc;

use jiff::SignedDuration;
use provisor::api;
use provisor::capacity::engine::Engine;
use provisor::model::action::Action;
use provisor::model::catalog::Catalog;
use provisor::model::claim::{ConditionStatus, ConditionType};
use provisor::model::label::{self, annotation};
use provisor::model::name::{ClaimName, PoolName};
use provisor::model::observation::{LaunchFailure, Observation, Shortage};
use provisor::model::offering::CapacityType;
use provisor::model::pool::{Budget, BudgetNodes, NodePool};
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::time::Patience;
use serde_json::{Value, json};

use super::town::*;
use ConditionStatus::{False, True, Unknown};

const OS: &str = "kubernetes.io/os";
const SIZE: &str = "example.com/size";

/// A town that nothing leaves, so that what is written stays to be seen.
fn town(change: impl FnOnce(&mut NodePool)) -> Town {
    Town::with(|pool| {
        pool.disruption.budgets =
            vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: None }];
        change(pool);
    })
}

fn with_node(change: impl FnOnce(&mut Town)) -> Town {
    let mut town = town(|_| ());
    town.node("n1", "m5.large");
    change(&mut town);
    town
}

fn seen(town: &Town) -> Engine {
    let mut engine = town.engine();
    engine.decide(town.now);
    echo(&mut engine, town.now);
    engine.decide(town.now);
    engine
}

/// Why the node has drifted, as its claim says.
fn drift_of(engine: &Engine, node: &str) -> Option<&'static str> {
    let claim = &engine.cluster().claims[&ClaimName::new(&format!("{node}-claim"))];
    let found = claim.conditions.get(ConditionType::Drifted);
    found.filter(|drifted| drifted.status == True).map(|drifted| drifted.reason.as_str())
}

fn is_quiet(engine: &Engine, node: &str) -> bool {
    let claim = &engine.cluster().claims[&ClaimName::new(&format!("{node}-claim"))];
    claim.conditions.is_true(ConditionType::Consolidatable)
}

/// It was made from another template than its pool has now.
fn outdate(town: &mut Town, node: &str) {
    town.change_claim(node, |claim| {
        claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
        claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
    });
}

/// Its class would make another machine now.
fn outdate_class(town: &mut Town, node: &str) {
    let mut changed = class("default");
    changed.hash = Some("2".into());
    changed.hash_version = Some("v1".into());
    town.cluster.classes.insert("default".into(), Arc::new(changed));
    town.change_claim(node, |claim| {
        claim.annotations.insert(*annotation::CLASS_HASH, "1".into());
        claim.annotations.insert(*annotation::CLASS_HASH_VERSION, "v1".into());
    });
}

fn label_claim(town: &mut Town, node: &str, key: &str, value: &str) {
    town.change_claim(node, |claim| {
        claim.labels.insert(key.into(), value.into());
    });
}

fn require(town: &mut Town, key: &str, operator: Operator, values: &[&str]) {
    let values: Vec<_> = values.iter().map(|value| (*value).into()).collect();
    town.change_pool("default", |pool| {
        let requirements = &mut Arc::make_mut(&mut pool.template).requirements;
        requirements.replace(key.into(), Requirement::new(operator, values));
    });
}

#[test]
fn dis_001_the_drift_of_a_class_is_written_with_its_reason() {
    let engine = seen(&with_node(|town| outdate_class(town, "n1")));
    assert_eq!(drift_of(&engine, "n1"), Some("NodeClassDrifted"));
    let unmanaged = with_node(|town| {
        outdate_class(town, "n1");
        town.change_claim("n1", |claim| {
            claim.labels.remove(&*label::NODEPOOL);
        });
    });
    assert_eq!(drift_of(&seen(&unmanaged), "n1"), None, "of no pool");
}

/// Rows: DIS-002, DIS-003, DIS-005, DIS-006
#[test]
fn dis_003_a_type_that_is_not_sold_any_more_is_drift_after_an_hour() {
    const SOME: &str = "\
instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types
m5.large,amd64,2,8192,1930m,6903Mi,29,,,0.096,,us-west-2a us-west-2b,on-demand
";
    let (kind, zone, way) =
        (label::INSTANCE_TYPE.as_str(), label::ZONE.as_str(), label::CAPACITY_TYPE.as_str());
    for (key, value, minutes, expected) in [
        (kind, Some("m5.large"), 120, None),
        (kind, None, 120, Some("InstanceTypeNotFound")),
        (kind, None, 59, None),
        (kind, Some("m4.large"), 120, Some("InstanceTypeNotFound")),
        (kind, Some("m4.large"), 60, Some("InstanceTypeNotFound")),
        (kind, Some("m4.large"), 59, None),
        (zone, Some("us-west-2c"), 120, Some("InstanceTypeNotFound")),
        (zone, Some("us-west-2b"), 120, None),
        (way, Some("spot"), 120, Some("InstanceTypeNotFound")),
        (way, Some("spot"), 30, None),
    ] {
        let mut town = with_node(|town| {
            let created = town.now - SignedDuration::from_mins(minutes);
            town.change_claim("n1", |claim| {
                claim.created = Some(created);
                match value {
                    Some(value) => {
                        claim.labels.insert(key.into(), value.into());
                    }
                    None => {
                        claim.labels.remove(&key.into());
                    }
                }
            });
        });
        require(&mut town, way, Operator::In, &["spot", "on-demand"]);
        let sold = Catalog::parse_csv(SOME, "types.csv").expect("the table is well formed");
        town.cluster.catalog = Some(Arc::new(sold));
        let mut engine = seen(&town);
        assert_eq!(drift_of(&engine, "n1"), expected, "{key}={value:?} after {minutes} minutes");
        if minutes < 60 {
            let later = town.now + SignedDuration::from_mins(60 - minutes);
            engine.decide(later);
            let expected = Some("InstanceTypeNotFound");
            assert_eq!(drift_of(&engine, "n1"), expected, "{key}={value:?} once it is an hour old");
        }
    }
}

#[test]
fn dis_007_what_is_sold_out_is_still_sold() {
    let town = with_node(|_| ());
    let mut engine = town.engine();
    let of_zone = |zone: &str| ("m5.large".into(), zone.into(), CapacityType::OnDemand);
    let offerings = ["us-west-2a", "us-west-2b"].map(of_zone).into_iter().collect();
    let until = town.now + SignedDuration::from_mins(3);
    let shortage = Shortage { offerings, until, advice: None };
    let failure = LaunchFailure::InsufficientCapacity(shortage.into());
    engine.observe(town.now, Observation::LaunchFailed { claim: "other".into(), failure });
    engine.decide(town.now);
    assert_eq!(drift_of(&engine, "n1"), None);
}

/// Rows: DIS-008, DIS-009
#[test]
fn dis_008_the_first_reason_that_is_found_is_told() {
    let both = with_node(|town| {
        outdate(town, "n1");
        outdate_class(town, "n1");
    });
    assert_eq!(drift_of(&seen(&both), "n1"), Some("NodePoolDrifted"));
    let both = with_node(|town| {
        outdate_class(town, "n1");
        require(town, "example.com/team", Operator::In, &["green"]);
    });
    assert_eq!(drift_of(&seen(&both), "n1"), Some("RequirementsDrifted"));
}

#[test]
fn dis_010_what_is_not_launched_has_not_drifted() {
    for status in [Unknown, False] {
        let town = with_node(|town| {
            outdate(town, "n1");
            town.drift("n1", NOW);
            let now = town.now;
            town.change_claim("n1", |claim| {
                claim.created = Some(now);
                claim.conditions.set(ConditionType::Launched, status, "Launching", "", now);
            });
        });
        assert_eq!(drift_of(&seen(&town), "n1"), None, "{status:?}");
    }
}

#[test]
fn dis_011_without_its_pool_nobody_judges_a_claim() {
    for is_known in [false, true] {
        let town = with_node(|town| {
            outdate(town, "n1");
            if is_known {
                town.drift("n1", NOW);
            }
            town.cluster.pools.clear();
        });
        assert_eq!(drift_of(&seen(&town), "n1").is_some(), is_known, "it stays as it is");
    }
}

#[test]
fn dis_012_a_drift_whose_cause_is_gone_is_taken_back() {
    let reason = |reason: &str| {
        let town = with_node(|town| {
            let now = town.now;
            town.change_claim("n1", |claim| {
                claim.conditions.set(ConditionType::Drifted, True, reason, "", now)
            });
        });
        drift_of(&seen(&town), "n1")
    };
    assert_eq!(reason("RequirementsDrifted"), None);
    assert_eq!(reason("NodeClassDrifted"), None);
    assert_eq!(reason("MovedHouse"), Some("MovedHouse"), "whoever found it judges it");
}

/// Rows: DIS-015, DIS-017, DIS-018
#[test]
fn dis_017_every_operator_is_compared_with_the_label() {
    use Operator::*;
    let cases: [(&str, &str, Operator, &[&str], bool); 13] = [
        (OS, "linux", In, &["linux", "windows"], false),
        (OS, "linux", In, &["windows"], true),
        (OS, "linux", NotIn, &["linux"], true),
        (OS, "linux", Exists, &[], false),
        (OS, "linux", DoesNotExist, &[], true),
        (SIZE, "5", Gt, &["2"], false),
        (SIZE, "5", Gt, &["10"], true),
        (SIZE, "2", Lt, &["5"], false),
        (SIZE, "2", Lt, &["1"], true),
        (SIZE, "5", Gte, &["5"], false),
        (SIZE, "5", Gte, &["6"], true),
        (SIZE, "5", Lte, &["5"], false),
        (SIZE, "5", Lte, &["4"], true),
    ];
    for (key, value, operator, values, is_drifted) in cases {
        let town = with_node(|town| {
            label_claim(town, "n1", key, value);
            require(town, key, operator, values);
        });
        let expected = is_drifted.then_some("RequirementsDrifted");
        assert_eq!(drift_of(&seen(&town), "n1"), expected, "{key}={value}: {operator:?} {values:?}");
    }
}

#[test]
fn dis_019_only_the_claim_that_is_excluded_drifts_and_reverting_takes_it_back() {
    let mut town = town(|_| ());
    for (name, os) in [("n1", "linux"), ("n2", "windows")] {
        town.node(name, "m5.large");
        label_claim(&mut town, name, OS, os);
    }
    require(&mut town, OS, Operator::In, &["linux", "windows"]);
    let mut engine = seen(&town);
    let mut drifts = |values: &[&str]| {
        require(&mut town, OS, Operator::In, values);
        let pool = town.cluster.pools[&PoolName::new("default")].clone();
        engine.observe(town.now, Observation::Pool(pool));
        engine.decide(town.now);
        ["n1", "n2"].map(|node| drift_of(&engine, node))
    };
    assert_eq!(drifts(&["linux", "windows"]), [None, None]);
    assert_eq!(drifts(&["linux"]), [None, Some("RequirementsDrifted")]);
    assert_eq!(drifts(&["linux", "windows"]), [None, None]);
}

fn written() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "uid": "default"},
        "spec": {
            "template": {
                "metadata": {"labels": {"example.com/team": "green"}, "annotations": {"example.com/note": "a"}},
                "spec": {
                    "requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    ],
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "taints": [{"key": "example.com/a", "effect": "NoSchedule"}],
                    "startupTaints": [{"key": "example.com/b", "effect": "NoSchedule"}],
                    "expireAfter": "720h", "terminationGracePeriod": "1h",
                },
            },
            "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]},
            "limits": {"cpu": "100"}, "weight": 10,
        },
    })
}

fn parsed(pool: &Value) -> NodePool {
    match api::parse(pool) {
        Ok(api::Object::NodePool(pool)) => pool,
        other => panic!("{other:?}"),
    }
}

/// Rows: DIS-020, DIS-024
#[test]
fn dis_020_what_a_node_is_made_from_drifts_and_how_it_is_treated_does_not() {
    let of_template = [
        ("/spec/template/metadata/annotations", json!({"example.com/note": "b"})),
        ("/spec/template/metadata/labels", json!({"example.com/team": "green", "example.com/more": "1"})),
        ("/spec/template/spec/taints/0/effect", json!("NoExecute")),
        ("/spec/template/spec/startupTaints", json!([])),
        ("/spec/template/spec/nodeClassRef/name", json!("other")),
        ("/spec/template/spec/expireAfter", json!("100h")),
        ("/spec/template/spec/terminationGracePeriod", json!("2h")),
    ];
    let of_treatment = [
        ("/spec/disruption", json!({"consolidateAfter": "1m", "budgets": [{"nodes": "0"}]})),
        ("/spec/limits", json!({"cpu": "50"})),
        ("/spec/weight", json!(20)),
    ];
    let all = of_template.map(|change| (change, true)).into_iter();
    for ((path, value), is_drift) in all.chain(of_treatment.map(|change| (change, false))) {
        let mut town = Town::new(vec![parsed(&written())]);
        town.cluster.classes.insert("other".into(), Arc::new(class("other")));
        town.node("n1", "m5.large");
        let mut engine = seen(&town);
        let pool = engine.cluster().pools[&PoolName::new("default")].clone();
        let stamp = [pool.hash, pool.hash_version].map(|text| text.expect("it is stamped").to_string());
        assert_eq!(drift_of(&engine, "n1"), None);
        let mut changed = written();
        changed["metadata"]["annotations"] =
            json!({"karpenter.sh/nodepool-hash": stamp[0], "karpenter.sh/nodepool-hash-version": stamp[1]});
        *changed.pointer_mut(path).expect("it is written") = value;
        engine.observe(town.now, Observation::Pool(Arc::new(parsed(&changed))));
        engine.decide(town.now);
        assert_eq!(drift_of(&engine, "n1"), is_drift.then_some("NodePoolDrifted"), "{path}");
    }
}

#[test]
fn dis_027_nodes_of_static_pools_drift_like_others() {
    let mut town = town(|pool| pool.replicas = Some(2));
    for node in ["n1", "n2"] {
        town.node(node, "m5.large");
    }
    outdate(&mut town, "n1");
    let engine = seen(&town);
    assert_eq!(["n1", "n2"].map(|node| drift_of(&engine, node)), [Some("NodePoolDrifted"), None]);
}

/// Rows: DIS-032, DIS-033, DIS-034
#[test]
fn dis_032_only_initialized_nodes_of_dynamic_pools_are_consolidatable() {
    let quiet = |change: &dyn Fn(&mut Town)| {
        let town = with_node(|town| {
            let now = town.now;
            town.change_claim("n1", |claim| {
                claim.conditions.set(ConditionType::Consolidatable, True, "Consolidatable", "", now);
            });
            change(town);
        });
        is_quiet(&seen(&town), "n1")
    };
    assert!(quiet(&|_| ()));
    for status in [Unknown, False] {
        let uninitialized = |town: &mut Town| {
            town.change_node("n1", |node| node.conditions = vec![ready("False")]);
            let now = town.now;
            town.change_claim("n1", |claim| {
                claim.conditions.set(ConditionType::Initialized, status, "NodeNotReady", "", now);
            });
        };
        assert!(!quiet(&uninitialized), "{status:?}");
    }
    assert!(!quiet(&|town| town.change_pool("default", |pool| pool.replicas = Some(1))), "static");
    let unmanaged = with_node(|town| {
        town.change_claim("n1", |claim| {
            claim.labels.remove(&*label::NODEPOOL);
        });
    });
    assert!(!is_quiet(&seen(&unmanaged), "n1"), "of no pool");
}

#[test]
fn dis_035_both_marks_are_written_in_one_go_and_taken_back_in_one_go() {
    let mut town = town(|pool| {
        pool.disruption.consolidate_after = Patience::of(SignedDuration::from_mins(5));
    });
    town.node("n1", "m5.large");
    outdate(&mut town, "n1");
    let mut engine = town.engine();
    let written = |engine: &mut Engine| {
        let actions = engine.decide(town.now).actions;
        let marks = actions.iter().filter(|one| one.reason.code == "Marked");
        marks.filter(|one| matches!(one.action, Action::UpdateClaim { .. })).count()
    };
    assert_eq!(written(&mut engine), 1);
    assert_eq!((drift_of(&engine, "n1"), is_quiet(&engine, "n1")), (Some("NodePoolDrifted"), true));
    let mut claim = (*engine.cluster().claims[&ClaimName::new("n1-claim")]).clone();
    claim.annotations.insert(*annotation::NODEPOOL_HASH, "17".into());
    claim.last_pod_event = Some(town.now);
    engine.observe(town.now, Observation::Claim(Arc::new(claim)));
    assert_eq!(written(&mut engine), 1);
    assert_eq!((drift_of(&engine, "n1"), is_quiet(&engine, "n1")), (None, false));
}
