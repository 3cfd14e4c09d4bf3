//! What must hold for any two commits: carried out, a plan leaves nothing to plan, and the way there does not matter.

use proptest::prelude::*;
use provisor::gitops::desired::DesiredObject;
use provisor::gitops::diff::{DiffKind, diff_object};
use provisor::gitops::live::LiveObject;
use provisor::gitops::policy::{BlastLimits, PruneMode, SyncPolicy};
use serde_json::{Value, json};

use super::bench::*;

fn quantity() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!("100")),
        Just(json!("100000m")),
        Just(json!(4)),
        Just(json!("1Gi")),
        Just(json!("1.5"))
    ]
}

fn duration() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!("720h")),
        Just(json!("60m")),
        Just(json!("1h")),
        Just(json!("Never")),
        Just(Value::Null)
    ]
}

fn requirement() -> impl Strategy<Value = Value> {
    let keys = prop_oneof![
        Just("karpenter.sh/capacity-type"),
        Just("kubernetes.io/arch"),
        Just("beta.kubernetes.io/arch"),
        Just("team")
    ];
    let values = prop::sample::subsequence(vec!["spot", "on-demand", "amd64", "arm64"], 1..4).prop_shuffle();
    (keys, prop_oneof![Just("In"), Just("NotIn")], values)
        .prop_map(|(key, operator, values)| json!({ "key": key, "operator": operator, "values": values }))
}

fn taint() -> impl Strategy<Value = Value> {
    let effect = prop_oneof![Just("NoSchedule"), Just("NoExecute")];
    (
        prop_oneof![Just("a"), Just("b")],
        effect,
        prop_oneof![Just(json!("x")), Just(json!("")), Just(Value::Null)],
    )
        .prop_map(|(key, effect, value)| json!({ "key": key, "effect": effect, "value": value }))
}

fn budget() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({ "nodes": "10%" })),
        Just(json!({ "nodes": "0", "reasons": ["Drifted", "Empty"] })),
        Just(json!({ "nodes": "0", "reasons": ["Empty", "Drifted"] })),
        Just(json!({ "nodes": "5", "schedule": "@daily", "duration": "60m" })),
    ]
}

prop_compose! {
    fn any_pool()(
        name in prop_oneof![Just("a"), Just("b"), Just("c")],
        limits in prop::collection::btree_map(prop_oneof![Just("cpu"), Just("memory"), Just("nvidia.com/gpu")], quantity(), 0..3),
        weight in prop_oneof![Just(Value::Null), Just(json!(0)), Just(json!(7))],
        expire in duration(),
        consolidate in duration(),
        requirements in prop::collection::vec(requirement(), 0..4),
        taints in prop::collection::vec(taint(), 0..3),
        budgets in prop::collection::vec(budget(), 0..3),
        wave in prop_oneof![Just("0"), Just("-1"), Just("3")],
        labels in prop::collection::btree_map(prop_oneof![Just("example.com/team"), Just("plain")], prop_oneof![Just("x"), Just("")], 0..3),
    ) -> Value {
        let mut pool = annotated(pool(name), "provisor.dev/wave", wave);
        pool["spec"]["limits"] = json!(limits);
        pool["spec"]["weight"] = weight;
        pool["spec"]["disruption"] = json!({ "consolidateAfter": consolidate, "budgets": budgets });
        pool["spec"]["template"]["metadata"]["labels"] = json!(labels);
        let template = &mut pool["spec"]["template"]["spec"];
        template["expireAfter"] = expire;
        template["requirements"] = json!(requirements);
        template["taints"] = json!(taints);
        without_null(pool)
    }
}

/// Manifests hold no null: the renderer leaves it out.
fn without_null(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, inner)| !inner.is_null())
            .map(|(key, inner)| (key, without_null(inner)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_null).collect(),
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_carried_out_leaves_nothing_to_plan(
        first in prop::collection::vec(any_pool(), 0..4),
        second in prop::collection::vec(any_pool(), 1..4),
        nodes in 0usize..3,
    ) {
        let mut bench = Bench::new(SyncPolicy { prune: PruneMode::Now, limits: bench_limits(), ..policy() });
        bench.fleet = fleet([("a", nodes)]);
        bench.push(&commit(1, first));
        bench.run_for(120);
        let wanted = commit(2, second.clone());
        bench.push(&wanted);
        bench.run_for(120);
        let plan = bench.sync.plan().expect("planned").clone();
        prop_assert!(plan.is_in_sync(), "{plan}");
        bench.writes();
        bench.push(&commit(3, second.clone()));
        bench.run_for(120);
        prop_assert!(bench.writes().is_empty());

        // Straight to the second commit, the cluster wants the same.
        let mut direct = Bench::new(SyncPolicy { prune: PruneMode::Now, limits: bench_limits(), ..policy() });
        direct.push(&commit(2, second));
        direct.run_for(120);
        prop_assert_eq!(direct.server.objects.len(), bench.server.objects.len());
        for (object, straight) in &direct.server.objects {
            let detour = DesiredObject { manifest: unmanaged(&bench.server.objects[object]), origins: Default::default() };
            let diff = diff_object(object, Some(&LiveObject::new(unmanaged(straight))), Some(&detour), None);
            prop_assert!(diff.kind == DiffKind::Same, "{:?}", diff.fields);
        }
        let again = super::bench::plan(&wanted, &bench.server.live(&direct.fleet), &policy());
        prop_assert!(again.is_in_sync(), "{again}");
    }
}

/// Without a record of who set what, every field counts.
fn unmanaged(live: &Value) -> Value {
    let mut live = live.clone();
    live["metadata"].as_object_mut().expect("a map").remove("managedFields");
    live
}

fn bench_limits() -> BlastLimits {
    BlastLimits { pools_max: 9, nodes_percent: 100, ..BlastLimits::default() }
}
