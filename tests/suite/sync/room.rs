//! Room for pods to come: a CapacityBuffer, and the PodTemplate of which the API server makes more than was written.

use provisor::gitops::diff::{DiffKind, ObjectDiff, diff_object};
use provisor::gitops::live::{LiveObject, LiveState};
use provisor::gitops::plan::Verdict;
use provisor::gitops::policy::{PruneMode, SyncPolicy};
use provisor::gitops::sync::{GitEvent, Outcome, SyncState};
use serde_json::{Value, json};

use super::bench::*;

fn template(requests: Value) -> Value {
    let container = json!({ "name": "room", "image": "pause", "resources": { "requests": requests } });
    json!({
        "apiVersion": "v1", "kind": "PodTemplate",
        "metadata": { "name": "room", "namespace": "shop", "annotations": {}, "labels": {} },
        "template": { "spec": { "containers": [container] } },
    })
}

fn buffer(version: &str) -> Value {
    json!({
        "apiVersion": format!("autoscaling.x-k8s.io/{version}"), "kind": "CapacityBuffer",
        "metadata": { "name": "room", "namespace": "shop", "annotations": {}, "labels": {} },
        "spec": { "podTemplateRef": { "name": "room" }, "replicas": 2 },
    })
}

/// What Kubernetes 1.36 answers when the template is applied.
fn filled_in(mut template: Value) -> Value {
    let spec = &mut template["template"]["spec"];
    for (key, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("terminationGracePeriodSeconds", json!(30)),
    ] {
        spec[key] = value;
    }
    for (key, value) in [
        ("imagePullPolicy", "IfNotPresent"),
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
    ] {
        spec["containers"][0][key] = json!(value);
    }
    template["template"]["metadata"] = json!({ "creationTimestamp": null });
    template
}

fn difference(live: Value, wanted: Value) -> ObjectDiff {
    let desired = commit(1, [wanted]);
    let (object, wanted) = desired.objects.iter().next().expect("one object");
    diff_object(object, Some(&LiveObject::new(live)), Some(wanted), None)
}

#[test]
fn syn_006_what_the_api_server_fills_into_a_pod_template_is_no_difference() {
    let diff = difference(filled_in(template(json!({ "cpu": "1" }))), template(json!({ "cpu": "1000m" })));
    assert_eq!(diff.kind, DiffKind::Same, "{:?}", diff.fields);
    let diff = difference(filled_in(template(json!({ "cpu": "2" }))), template(json!({ "cpu": "1" })));
    let paths: Vec<&str> = diff.fields.iter().map(|field| field.path.as_str()).collect();
    assert_eq!(paths, ["template.spec.containers[room].resources.requests.cpu"]);
}

#[test]
fn syn_004_fields_of_a_container_have_owners_of_their_own() {
    let mut live = template(json!({ "cpu": "1", "memory": "1Gi" }));
    live["template"]["spec"]["containers"][0]["tty"] = json!(true);
    let containers = live["template"]["spec"]["containers"].as_array_mut().expect("a list");
    containers.push(json!({ "name": "theirs", "image": "pause" }));
    let ours = json!({ "f:name": {}, "f:image": {}, "f:resources": { "f:requests": { "f:cpu": {}, "f:memory": {} } } });
    let of = |fields: Value| json!({ "f:template": { "f:spec": { "f:containers": { r#"k:{"name":"room"}"#: fields } } } });
    live["metadata"]["managedFields"] = json!([
        { "manager": "provisor", "operation": "Apply", "fieldsV1": of(ours) },
        { "manager": "kubectl-edit-by-hand", "operation": "Update", "fieldsV1": of(json!({ "f:tty": {} })) },
        { "manager": "sidecars", "operation": "Update", "fieldsV1": { "f:template": { "f:spec": { "f:containers": {
            r#"k:{"name":"theirs"}"#: { ".": {}, "f:name": {}, "f:image": {} },
        } } } } },
    ]);
    let diff = difference(live, template(json!({ "cpu": "1" })));
    let paths: Vec<&str> = diff.fields.iter().map(|field| field.path.as_str()).collect();
    assert_eq!(paths, ["template.spec.containers[room].resources.requests.memory"], "it left Git");
    let kept: Vec<_> = diff.kept.iter().map(|kept| (kept.path.as_str(), kept.manager.as_deref())).collect();
    let theirs = [
        ("template.spec.containers[room].tty", Some("kubectl-edit-by-hand")),
        ("template.spec.containers[theirs]", Some("sidecars")),
    ];
    assert_eq!(kept, theirs);
}

#[test]
fn syn_004_where_no_owners_are_kept_what_was_applied_last_tells_whose_a_field_is() {
    let mut live = template(json!({ "cpu": "1", "memory": "1Gi" }));
    live["template"]["spec"]["containers"][0]["tty"] = json!(true);
    let mut known = LiveObject::new(live);
    known.last_applied = Some(template(json!({ "cpu": "1", "memory": "1Gi" })));
    let desired = commit(1, [template(json!({ "cpu": "1" }))]);
    let (object, wanted) = desired.objects.iter().next().expect("one object");
    let diff = diff_object(object, Some(&known), Some(wanted), None);
    let paths: Vec<&str> = diff.fields.iter().map(|field| field.path.as_str()).collect();
    assert_eq!(paths, ["template.spec.containers[room].resources.requests.memory"]);
}

/// Teams keep buffers of their own, of which the fleet says nothing.
#[test]
fn room_that_left_git_goes_and_rooms_of_others_stay() {
    let before =
        commit(1, [class("default"), pool("web"), template(json!({ "cpu": "1" })), buffer("v1beta1")]);
    let after = commit(2, [class("default"), pool("web")]);
    let mut live = LiveState::of_commit(&before, "main", fleet([("web", 1)]));
    let mut foreign = [template(json!({ "cpu": "1" })), buffer("v1beta1")];
    for object in &mut foreign {
        object["metadata"]["name"] = json!("theirs");
    }
    live.objects.extend(LiveState::from_manifests(foreign, fleet([])).objects);
    let pruning = SyncPolicy { prune: PruneMode::Retire, ..policy() };
    let removed = |policy: &SyncPolicy| {
        let plan = plan(&after, &live, policy);
        assert!(plan.unmanaged.is_empty(), "{:?}", plan.unmanaged);
        let removals = plan.changes.iter().filter(|change| change.action.is_removal());
        removals
            .map(|change| (change.object.to_string(), change.verdict == Verdict::Proceed))
            .collect::<Vec<_>>()
    };
    let names = ["CapacityBuffer/shop/room", "PodTemplate/shop/room"].map(str::to_owned);
    assert_eq!(removed(&pruning), names.clone().map(|name| (name, true)));
    assert_eq!(
        removed(&policy()),
        names.map(|name| (name, false)),
        "nobody said that anything may be removed"
    );
}

#[test]
fn an_object_that_is_named_by_an_older_version_is_the_one_that_is_there() {
    let wanted = [class("default"), pool("web"), template(json!({ "cpu": "1" })), buffer("v1alpha1")];
    let desired = commit(1, wanted);
    let live = LiveState::of_commit(
        &commit(1, [class("default"), pool("web"), template(json!({ "cpu": "1" })), buffer("v1beta1")]),
        "main",
        fleet([("web", 1)]),
    );
    let plan = plan(&desired, &live, &SyncPolicy { prune: PruneMode::Retire, ..policy() });
    assert!(plan.is_in_sync(), "{:?}", plan.changes);
}

#[test]
fn what_was_refused_for_want_of_its_kind_or_namespace_is_tried_again_when_that_is_there() {
    let kind = |kind: &str| GitEvent::KindDefined { kind: kind.into() };
    let namespace = |name: &str| GitEvent::NamespaceChanged { namespace: name.into() };
    let written = ["apply NodePool/web", "apply CapacityBuffer/shop/room"];
    for (stranger, what, during) in [
        (namespace("other"), namespace("shop"), false),
        (kind("NodeOverlay"), kind("CapacityBuffer"), false),
        (namespace("other"), namespace("shop"), true),
        (kind("NodeOverlay"), kind("CapacityBuffer"), true),
    ] {
        let mut bench = Bench::new(policy());
        bench.server.denied.insert("room".into());
        bench.push(&commit(1, [class("default"), pool("web"), buffer("v1beta1")]));
        if during {
            bench.look();
            // It comes while the operation still runs, which was refused already or is yet to be.
            for _ in 0..2 {
                assert_eq!(bench.decide().actions.len(), 1);
            }
            bench.sync.observe(bench.now, what.clone());
            bench.decide();
        } else {
            bench.run_for(3600);
            bench.sync.observe(bench.now, what.clone());
        }
        bench.server.denied.clear();
        bench.run_for(60);
        assert_eq!(bench.writes()[1..], written, "{what:?}");

        bench = Bench::new(policy());
        bench.server.denied.insert("room".into());
        bench.push(&commit(1, [pool("web"), buffer("v1beta1")]));
        bench.run_for(60);
        bench.server.denied.clear();
        bench.sync.observe(bench.now, stranger);
        bench.run_for(3600);
        assert_eq!(bench.writes(), written[..1], "nothing that it needs came");
    }
}

#[test]
fn no_room_is_kept_for_a_template_of_somebody_else() {
    let mut bench = Bench::new(policy());
    bench.server.put(&template(json!({ "cpu": "3" })), "kubectl", "Update");
    let mut paused = annotated(template(json!({ "cpu": "3" })), "provisor.dev/reconcile", "disabled");
    paused["metadata"]["name"] = json!("paused");
    bench.server.put(&paused, "kubectl", "Update");
    bench.writes();
    let of_paused = |mut object: Value| {
        object["metadata"]["name"] = json!("paused");
        if object["kind"] == "CapacityBuffer" {
            object["spec"]["podTemplateRef"]["name"] = json!("paused");
        }
        object
    };
    let mut other = buffer("v1beta1");
    other["metadata"]["name"] = json!("other");
    other["spec"]["podTemplateRef"]["name"] = json!("another");
    let [third, fourth] = [template(json!({ "cpu": "1" })), buffer("v1beta1")].map(of_paused);
    bench.push(&commit(1, [template(json!({ "cpu": "1" })), buffer("v1beta1"), other, third, fourth]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply CapacityBuffer/shop/other"]);
    let plan = bench.sync.plan().expect("planned");
    let held = plan.changes.iter().filter(|change| &*change.object.kind == "CapacityBuffer").count();
    assert_eq!(held, 2, "{:?}", plan.changes);
    let mut buffers = plan.changes.iter().filter(|change| &*change.object.kind == "CapacityBuffer");
    let message =
        buffers.find(|change| &*change.object.name == "room").expect("still wanted").verdict.message();
    assert!(
        message.starts_with("it would keep room for PodTemplate/shop/room, which is not applied: "),
        "{message}"
    );
}

/// Who replaces a template under its name does not say how much room the fleet keeps.
#[test]
fn a_standing_buffer_keeps_no_room_while_somebody_else_has_its_template() {
    let wanted = commit(1, [pool("web"), template(json!({ "cpu": "1" })), buffer("v1beta1")]);
    let mut live = LiveState::of_commit(&wanted, "main", fleet([("web", 1)]));
    let object =
        |kind: &str| wanted.objects.keys().find(|object| &*object.kind == kind).expect("wanted").clone();
    let [measure, room] = ["PodTemplate", "CapacityBuffer"].map(object);
    let ours = live.objects[&measure].clone();
    let planned = |live: &LiveState| {
        let plan = plan(&wanted, live, &policy());
        let mut buffers = plan.changes.into_iter().filter(|change| change.object == room);
        let change = buffers.next();
        assert!(buffers.next().is_none(), "one change of one object");
        change.map(|change| {
            (change.verdict.clone(), change.manifest.expect("a write")["spec"]["replicas"].clone())
        })
    };
    assert_eq!(planned(&live), None);

    let foreign = [
        template(json!({ "cpu": "7" })),
        annotated(template(json!({ "cpu": "7" })), "provisor.dev/reconcile", "disabled"),
    ];
    for theirs in foreign {
        let theirs = with(theirs, "/metadata/uid", json!("theirs"));
        live.objects.insert(measure.clone(), LiveObject::new(theirs));
        assert_eq!(planned(&live), Some((Verdict::Proceed, json!(0))));
        let mut emptied = live.clone();
        emptied.objects.get_mut(&room).expect("live").manifest["spec"]["replicas"] = json!(0);
        let (verdict, _) = planned(&emptied).expect("it is not as the commit wants it");
        assert!(verdict.message().starts_with("it would keep room for PodTemplate/shop/room"), "{verdict:?}");
        emptied.objects.insert(measure.clone(), ours.clone());
        assert_eq!(planned(&emptied), Some((Verdict::Proceed, json!(2))), "kept again");

        // Nobody's buffer is touched, nor one that a person took into their own hands.
        for hands_off in
            [("provisor.dev/reconcile", "disabled"), ("provisor.dev/tracking-id", "other:main:x")]
        {
            let mut held = live.clone();
            let manifest = held.objects[&room].manifest.clone();
            let marked = annotated(manifest, hands_off.0, hands_off.1);
            held.objects.insert(room.clone(), LiveObject::new(marked));
            assert!(!planned(&held).is_some_and(|(verdict, _)| verdict == Verdict::Proceed), "{hands_off:?}");
        }
    }
}

#[test]
fn what_a_right_is_missing_for_is_tried_again_every_minute() {
    let mut bench = Bench::new(policy());
    let forbidden = || Outcome::Forbidden("pods is forbidden: User \"provisor\" cannot patch".into());
    bench.server.failures.insert("web".into(), (0..3).map(|_| forbidden()).collect());
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(59);
    assert!(bench.writes().is_empty());
    assert_eq!(bench.server.failures["web"].len(), 2, "not hotly");
    let status = bench.sync.status(bench.now);
    assert_eq!(status.sync, SyncState::PartiallySynced);
    bench.run_for(61);
    assert_eq!(bench.server.failures["web"].len(), 0);
    bench.run_for(120);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    assert_eq!(bench.sync.status(bench.now).sync, SyncState::Synced);
}
