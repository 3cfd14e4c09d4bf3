//! What counts as a difference, and which nodes it replaces.

use std::sync::Arc;

use provisor::gitops::desired::ObjectRef;
use provisor::gitops::diff::{DiffKind, NodeImpact, diff_object, diff_states};
use provisor::gitops::live::{LiveObject, LiveState};
use provisor::gitops::plan::ChangeAction;
use serde_json::{Value, json};

use super::bench::*;

/// The impact of turning `before` into `after` on four nodes of pool `web`, all of class `default`.
fn impact(before: Value, after: Value) -> NodeImpact {
    let mut fleet = fleet([("web", 4), ("batch", 2)]);
    let live = LiveState::from_manifests(
        [pool("web"), with(pool("batch"), "/spec/template/spec/nodeClassRef/name", json!("other"))],
        fleet.clone(),
    );
    fleet.index_classes(&live.objects);
    let desired = commit(1, [after]);
    let (object, wanted) = desired.objects.iter().next().expect("one object");
    diff_object(object, Some(&LiveObject::new(before)), Some(wanted), Some(&fleet)).impact
}

const ALL: NodeImpact = NodeImpact::Rolls { nodes: Some(4) };

#[test]
fn syn_003_behaviour_rolls_nothing_and_the_template_rolls_the_pool() {
    let template = "/spec/template/spec";
    for (pointer, value) in [
        ("/spec/disruption", json!({ "consolidateAfter": "5m", "budgets": [{ "nodes": "50%" }] })),
        ("/spec/weight", json!(10)),
        ("/spec/limits/cpu", json!("200")),
        ("/spec/limits/nodes", json!(20)),
    ] {
        assert_eq!(impact(pool("web"), with(pool("web"), pointer, value)), NodeImpact::NoRoll, "{pointer}");
    }
    for (pointer, value) in [
        (format!("{template}/expireAfter"), json!("24h")),
        (format!("{template}/terminationGracePeriod"), json!("1h")),
        (format!("{template}/taints"), json!([{ "key": "gpu", "effect": "NoSchedule" }])),
        (format!("{template}/startupTaints"), json!([{ "key": "cni", "effect": "NoSchedule" }])),
        (format!("{template}/nodeClassRef/name"), json!("other")),
        ("/spec/template/metadata/labels".into(), json!({ "team": "shop" })),
        ("/spec/template/metadata/annotations".into(), json!({ "note": "x" })),
    ] {
        assert_eq!(impact(pool("web"), with(pool("web"), &pointer, value)), ALL, "{pointer}");
    }
    let taints = json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "b", "effect": "NoExecute" }]);
    let turned = json!([{ "key": "b", "effect": "NoExecute" }, { "key": "a", "effect": "NoSchedule" }]);
    let pointer = format!("{template}/taints");
    assert_eq!(
        impact(with(pool("web"), &pointer, taints), with(pool("web"), &pointer, turned)),
        NodeImpact::NoRoll
    );
}

#[test]
fn syn_003_narrower_requirements_roll_exactly_the_nodes_that_no_longer_fit() {
    let mut fleet = fleet([("web", 5)]);
    let nodes = fleet.nodes_by_pool.get_mut("web").expect("made");
    for node in &mut nodes[3..] {
        Arc::make_mut(&mut node.labels).insert("karpenter.sh/capacity-type".into(), "on-demand".into());
    }
    let narrowed = with(pool("web"), "/spec/template/spec/requirements/0/values", json!(["spot"]));
    let desired = commit(1, [narrowed]);
    let (object, wanted) = desired.objects.iter().next().expect("one object");
    let diff = diff_object(object, Some(&LiveObject::new(pool("web"))), Some(wanted), Some(&fleet));
    assert_eq!(diff.impact, NodeImpact::Rolls { nodes: Some(2) });
    assert_eq!(diff.affected, ["web-3".into(), "web-4".into()]);
    assert_eq!(diff.fields.len(), 1);
    assert_eq!(diff.fields[0].short_path(), "template.spec.requirements[karpenter.sh/capacity-type].values");

    let wider = with(pool("web"), "/spec/template/spec/requirements/1/values", json!(["amd64", "arm64"]));
    assert_eq!(impact(pool("web"), wider.clone()), NodeImpact::NoRoll);
    // Without a fleet what widens replaces nothing, and what narrows may replace some.
    let unknown = |before: Value, after: Value| {
        let desired = commit(1, [after]);
        let (object, wanted) = desired.objects.iter().next().expect("one object");
        diff_object(object, Some(&LiveObject::new(before)), Some(wanted), None).impact
    };
    assert_eq!(unknown(pool("web"), wider.clone()), NodeImpact::NoRoll);
    assert_eq!(unknown(wider, pool("web")), NodeImpact::MayRoll { nodes: None });
    // Narrower than it was, but every node still fits.
    let narrowed = with(pool("web"), "/spec/template/spec/requirements/0/values", json!(["spot"]));
    assert_eq!(impact(pool("web"), narrowed), NodeImpact::NoRoll);
    let requires = |more: Value| {
        let mut pool = pool("web");
        let list = pool["spec"]["template"]["spec"]["requirements"].as_array_mut().expect("a list");
        list.push(more);
        pool
    };
    let above = |least: &str| requires(json!({ "key": "cpus", "operator": "Gt", "values": [least] }));
    let without = |values: &[&str]| requires(json!({ "key": "team", "operator": "NotIn", "values": values }));
    let may = NodeImpact::MayRoll { nodes: None };
    for (before, after, wanted) in [
        (above("4"), above("2"), NodeImpact::NoRoll),
        (above("2"), above("4"), may),
        (above("2"), pool("web"), NodeImpact::NoRoll),
        (pool("web"), above("2"), may),
        (without(&["a", "b"]), without(&["a"]), NodeImpact::NoRoll),
        (without(&["a"]), without(&["a", "b"]), may),
        (
            requires(json!({ "key": "team", "operator": "In", "values": ["c"] })),
            without(&["a"]),
            NodeImpact::NoRoll,
        ),
        (without(&["a"]), requires(json!({ "key": "team", "operator": "Exists" })), may),
    ] {
        assert_eq!(unknown(before.clone(), after.clone()), wanted, "{before} {after}");
    }
    // A node without the label does not meet a new requirement.
    let mut asks_more = pool("web");
    let list = asks_more["spec"]["template"]["spec"]["requirements"].as_array_mut().expect("a list");
    list.push(json!({ "key": "team", "operator": "Exists" }));
    assert_eq!(impact(pool("web"), asks_more), ALL);
}

#[test]
fn syn_003_a_class_rolls_by_hash_or_by_what_its_selectors_find() {
    let changed =
        |pointer: &str, value: Value| impact(class("default"), with(class("default"), pointer, value));
    assert_eq!(changed("/spec/userData", json!("#!/bin/sh")), ALL);
    assert_eq!(changed("/spec/role", json!("others")), ALL);
    assert_eq!(changed("/spec/tags", json!({ "team": "shop" })), ALL);
    assert_eq!(changed("/spec/kubelet", json!({ "maxPods": 20 })), ALL);
    assert_eq!(changed("/spec/metadataOptions", json!({ "httpTokens": "optional" })), ALL);
    let may = NodeImpact::MayRoll { nodes: Some(4) };
    assert_eq!(changed("/spec/subnetSelectorTerms", json!([{ "id": "subnet-1" }])), may);
    assert_eq!(changed("/spec/amiSelectorTerms", json!([{ "alias": "al2023@v20260101" }])), may);
    assert_eq!(changed("/spec/amiSelectorTerms", json!([{ "alias": "bottlerocket@latest" }])), ALL);
    assert_eq!(changed("/spec/amiFamily", json!("AL2023")), NodeImpact::NoRoll);
    assert_eq!(changed("/spec/ipPrefixCount", json!(1)), NodeImpact::NoRoll);
    let none_reserved = NodeImpact::MayRoll { nodes: Some(0) };
    assert_eq!(changed("/spec/capacityReservationSelectorTerms", json!([{ "id": "cr-1" }])), none_reserved);
}

#[test]
fn how_a_pool_is_rolled_rolls_nothing_and_what_the_engine_remembers_is_no_difference() {
    let annotated = |key: &str, text: &str| {
        let mut pool = pool("web");
        pool["metadata"]["annotations"][key] = json!(text);
        pool
    };
    let rolled = annotated("provisor.dev/roll", r#"{"paused":true}"#);
    let of = |before: Value, after: Value| {
        let desired = commit(1, [after]);
        let (object, wanted) = desired.objects.iter().next().expect("one object");
        let diff = diff_object(object, Some(&LiveObject::new(before)), Some(wanted), None);
        (diff.kind, diff.impact)
    };
    let changed = (DiffKind::Changed, NodeImpact::NoRoll);
    assert_eq!(of(pool("web"), rolled.clone()), changed);
    assert_eq!(of(rolled, pool("web")), changed, "it goes as it came");
    let failed = annotated("provisor.dev/roll-failures", r#"{"failures":3,"goal":"a"}"#);
    assert_eq!(of(failed, pool("web")), (DiffKind::Same, NodeImpact::NoRoll));
}

#[test]
fn syn_006_values_that_mean_the_same_are_no_difference() {
    let same = |before: Value, after: Value| {
        let desired = commit(1, [after]);
        let (object, wanted) = desired.objects.iter().next().expect("one object");
        let diff = diff_object(object, Some(&LiveObject::new(before)), Some(wanted), None);
        assert_eq!(diff.kind, DiffKind::Same, "{:?}", diff.fields);
    };
    let pools: [(&str, Value, Value); 9] = [
        ("/spec/limits/cpu", json!("1000m"), json!("1")),
        ("/spec/limits/cpu", json!(4), json!("4")),
        ("/spec/limits/memory", json!("1Gi"), json!("1024Mi")),
        ("/spec/template/spec/expireAfter", json!("60m"), json!("1h")),
        ("/spec/template/spec/expireAfter", json!("720h"), Value::Null),
        (
            "/spec/disruption",
            json!({ "consolidateAfter": "0s", "budgets": [{ "nodes": "10%" }] }),
            Value::Null,
        ),
        ("/spec/template/spec/taints", json!([]), Value::Null),
        (
            "/spec/template/spec/requirements/0/values",
            json!(["on-demand", "spot"]),
            json!(["spot", "on-demand"]),
        ),
        ("/spec/weight", json!(0), Value::Null),
    ];
    for (pointer, before, after) in pools {
        same(with(pool("web"), pointer, before.clone()), with(pool("web"), pointer, after.clone()));
        same(with(pool("web"), pointer, after), with(pool("web"), pointer, before));
    }
    let mut turned = pool("web");
    turned["spec"]["template"]["spec"]["requirements"].as_array_mut().expect("a list").reverse();
    same(pool("web"), turned);
    let terms = json!([{ "id": "subnet-a" }, { "id": "subnet-b" }]);
    let swapped = json!([{ "id": "subnet-b" }, { "id": "subnet-a" }]);
    same(
        with(class("default"), "/spec/subnetSelectorTerms", terms),
        with(class("default"), "/spec/subnetSelectorTerms", swapped),
    );
    let options = json!({ "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "required" });
    same(with(class("default"), "/spec/metadataOptions", options), class("default"));
    // `Never` is not a duration like others, and a kubelet's texts are not quantities everywhere.
    let never = with(pool("web"), "/spec/template/spec/expireAfter", json!("Never"));
    assert_eq!(impact(pool("web"), never), ALL);
}

#[test]
fn syn_006_what_was_applied_is_synced_and_is_not_written_again() {
    let mut bench = Bench::new(policy());
    let wanted = with(pool("web"), "/spec/limits", json!({ "cpu": "1000m", "memory": "1024Mi" }));
    bench.push(&commit(1, [class("default"), wanted]));
    bench.run();
    assert_eq!(bench.writes().len(), 2);
    bench.server.edit("web", "/spec/limits", json!({ "cpu": "1", "memory": "1Gi" }), "api-server");
    bench.run();
    assert!(bench.writes().is_empty());
    assert!(bench.sync.plan().expect("planned").is_in_sync());
}

#[test]
fn syn_004_a_field_that_left_git_goes_unless_somebody_else_applies_it() {
    let mut bench = Bench::new(policy());
    let first = with(with(pool("web"), "/spec/weight", json!(10)), "/spec/limits/memory", json!("1Gi"));
    bench.push(&commit(1, [first]));
    bench.run();
    let theirs = json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "web" }, "spec": { "weight": 10 } });
    bench.server.put(&theirs, "terraform", "Apply");
    bench.push(&commit(2, [pool("web")]));
    bench.run();
    let live = bench.server.get("web");
    assert_eq!(live["spec"]["limits"], json!({ "cpu": "100" }));
    assert_eq!(live["spec"]["weight"], json!(10));
    bench.writes();
    bench.run();
    assert!(bench.writes().is_empty(), "what others hold is no difference any more");
}

#[test]
fn syn_005_fields_of_a_client_side_apply_are_taken_over_and_can_go() {
    let mut bench = Bench::new(policy());
    let by_hand = annotated(
        with(pool("web"), "/spec/weight", json!(10)),
        "provisor.dev/tracking-id",
        "main:prod:karpenter.sh/NodePool:/web",
    );
    bench.server.put(&by_hand, "kubectl-client-side-apply", "Update");
    bench.push(&commit(1, [pool("web")]));
    bench.run();
    assert_eq!(bench.server.get("web")["spec"]["weight"], Value::Null);
    assert!(bench.sync.plan().expect("planned").is_in_sync());
}

#[test]
fn what_others_add_is_kept_and_named() {
    let mut bench = Bench::new(policy());
    bench.push(&commit(1, [pool("web")]));
    bench.run();
    bench.server.edit("web", "/spec/weight", json!(50), "cost-tool");
    let live = bench.server.live(&bench.fleet);
    let object = bench.server.named("web");
    let wanted = commit(1, [pool("web")]);
    let diff = diff_object(&object, live.objects.get(&object), wanted.objects.get(&object), None);
    let kept: Vec<_> = diff.kept.iter().map(|kept| (kept.path.as_str(), kept.manager.as_deref())).collect();
    assert!(kept.contains(&("spec.weight", Some("cost-tool"))), "{kept:?}");
}

#[test]
fn two_commits_are_compared_without_a_cluster() {
    let base = commit(1, [class("default"), pool("web"), pool("old")]);
    let wider = with(pool("web"), "/spec/disruption", json!({ "budgets": [{ "nodes": "25%" }] }));
    let head = commit(2, [class("default"), wider, pool("new")]);
    let diffs = diff_states(&base, &head, None);
    let kinds: Vec<_> = diffs.iter().map(|diff| (&*diff.object.name, diff.kind)).collect();
    assert_eq!(kinds, [("new", DiffKind::Added), ("old", DiffKind::Removed), ("web", DiffKind::Changed)]);
    assert_eq!(diffs[1].impact, NodeImpact::Destructive { nodes: None });
    let field = &diffs[2].fields[0];
    assert_eq!(field.short_path(), "disruption.budgets[0].nodes");
    assert_eq!((&field.from, &field.to), (&Some(json!("10%")), &Some(json!("25%"))));
    assert_eq!(field.to_string(), "disruption.budgets[0].nodes  10% → 25%");
    assert_eq!(field.origin.as_ref().expect("a line").to_string(), "environments/prod/web.toml:1:1");
}

#[test]
fn two_environments_do_not_differ_in_their_own_names() {
    let mark = |environment: &str| {
        with(pool("web"), "/metadata/labels", json!({ "provisor.dev/environment": environment }))
    };
    assert!(diff_states(&commit(1, [mark("dev")]), &commit(1, [mark("prod")]), None).is_empty());
}

#[test]
fn every_value_of_an_object_may_be_of_a_wrong_kind() {
    for broken in [json!("text"), json!([1, "two"]), json!({ "a": [{}] }), json!(7), Value::Null, json!(true)]
    {
        for pointer in [
            "/spec",
            "/spec/limits",
            "/spec/template",
            "/spec/template/spec/requirements",
            "/spec/template/spec/requirements/0/values",
            "/spec/disruption/budgets",
            "/metadata/annotations",
            "/metadata/managedFields",
        ] {
            let odd = with(pool("web"), pointer, broken.clone());
            let desired = commit(1, [pool("web")]);
            let live = LiveState::from_manifests([odd.clone()], fleet([("web", 2)]));
            plan(&desired, &live, &policy());
            let desired = commit(1, [odd]);
            let live = LiveState::from_manifests([pool("web")], fleet([("web", 2)]));
            plan(&desired, &live, &policy());
        }
    }
}

#[test]
fn syn_002_a_commit_that_only_changes_comments_writes_nothing() {
    let mut bench = Bench::new(policy());
    bench.fleet = fleet([("web", 3)]);
    bench.push(&commit(1, [class("default"), pool("web")]));
    bench.run();
    bench.writes();
    let first = bench.server.get("web").clone();
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.run();
    assert!(bench.writes().is_empty());
    let plan = bench.sync.plan().expect("planned");
    assert!(plan.is_noop() && plan.is_in_sync());
    assert_eq!(*bench.server.get("web"), first);
    assert_eq!(
        bench.sync.status(bench.now).last_applied_revision.as_deref(),
        Some(revision(2).commit.as_str())
    );
}

#[test]
fn a_static_pool_says_how_many_nodes_it_gives_back() {
    let sized = |count: u32| with(pool("web"), "/spec/replicas", json!(count));
    assert_eq!(impact(sized(4), sized(3)), NodeImpact::Destructive { nodes: Some(1) });
    assert_eq!(impact(sized(4), sized(6)), NodeImpact::NoRoll);
}

#[test]
fn a_plan_is_named_by_its_content_alone() {
    let live = LiveState::of_commit(&commit(1, [class("default"), pool("web")]), "main", fleet([("web", 3)]));
    let wider = with(pool("web"), "/spec/limits/cpu", json!("200"));
    let one = plan(&commit(2, [class("default"), wider.clone()]), &live, &policy());
    let other = plan(&commit(3, [class("default"), wider]), &live, &policy());
    assert_eq!(one.hash, other.hash, "the commit's name does not matter, what it wants does");
    assert_eq!(change(&one, "web").action, ChangeAction::Update);
    let different = plan(
        &commit(4, [class("default"), with(pool("web"), "/spec/limits/cpu", json!("300"))]),
        &live,
        &policy(),
    );
    assert_ne!(one.hash, different.hash);
    assert_eq!(one.to_string(), "update   NodePool/web  limits.cpu  100 → 200\n1 to update");
    let json = serde_json::to_value(&one).expect("serialises");
    assert_eq!(json["changes"][0]["action"], "update");
    assert_eq!(json["changes"][0]["impact"], "none");
    assert_eq!(json["changes"][0]["verdict"], json!({ "status": "proceed" }));
    assert_eq!(json["changes"][0]["fields"][0]["path"], "spec.limits.cpu");
    assert_eq!(
        ObjectRef::of(&json["changes"][0]["manifest"]).expect("an object").to_string(),
        "NodePool/web"
    );
}
