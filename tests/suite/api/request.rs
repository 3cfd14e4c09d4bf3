//! What one pod asks for.

use provisor::api::{self, Object};
use provisor::model::pod::Pod;
use serde_json::{Value, json};

fn parse_pod(object: &Value) -> Pod {
    match api::parse(object) {
        Ok(Object::Pod(pod)) => pod,
        other => panic!("{other:?}"),
    }
}

fn pod(spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": spec })
}

/// CPU and memory of a pod, in whole cores and Gi.
fn asked(spec: Value) -> (i64, i64) {
    let requests = parse_pod(&pod(spec)).shape.requests.clone();
    assert_eq!(requests.pods(), 1);
    assert_eq!((requests.cpu().0 % 1000, requests.memory().0 % (1 << 30)), (0, 0));
    (requests.cpu().0 / 1000, requests.memory().0 >> 30)
}

fn resources((cpu, memory): (i64, i64)) -> Value {
    json!({ "cpu": cpu, "memory": format!("{memory}Gi") })
}

/// A pod of a main container and init containers: `s` restarts always and so is a sidecar, `i` runs to its end.
fn of(main: (i64, i64), init: &[(char, i64, i64)], overhead: Option<(i64, i64)>) -> (i64, i64) {
    let container = |asked| json!({ "name": "c", "resources": { "requests": resources(asked) } });
    let init = init.iter().map(|(kind, cpu, memory)| {
        let mut container = container((*cpu, *memory));
        if *kind == 's' {
            container["restartPolicy"] = "Always".into();
        }
        container
    });
    let mut spec = json!({ "containers": [container(main)], "initContainers": init.collect::<Value>() });
    if let Some(overhead) = overhead {
        spec["overhead"] = resources(overhead);
    }
    asked(spec)
}

/// Rows: SCH-410, SCH-411, SCH-412, SCH-413, SCH-414, SCH-415, SCH-416, SCH-417, SCH-418, SCH-419, SCH-420, SCH-421
#[test]
fn init_containers_and_sidecars_count_in_order() {
    assert_eq!(of((2, 1), &[('s', 1, 2)], None), (3, 3));
    assert_eq!(of((2, 1), &[('i', 4, 2), ('s', 3, 3)], Some((5, 1))), (10, 5));
    assert_eq!(of((2, 1), &[('s', 4, 2), ('i', 10, 2)], None), (14, 4));
    assert_eq!(of((2, 2), &[('s', 4, 2), ('i', 1, 1)], None), (6, 4));
    let same = |kind, amount| (kind, amount, amount);
    let sidecars = |last| [same('s', 2), same('s', 1), same('s', 3), same('s', 5), same('i', last)];
    assert_eq!(of((3, 3), &sidecars(20), None), (31, 31));
    assert_eq!(of((3, 3), &sidecars(1), None), (14, 14));
    let mixed = [('i', 25), ('s', 1), ('i', 3), ('i', 1), ('s', 5), ('i', 1), ('i', 1), ('s', 1)];
    assert_eq!(of((3, 3), &mixed.map(|(kind, amount)| same(kind, amount)), None), (25, 25));
    let mixed = [('i', 2), ('s', 1), ('i', 3), ('i', 1), ('s', 5), ('i', 1), ('i', 1), ('s', 1)];
    let mut mixed = mixed.map(|(kind, amount)| same(kind, amount)).to_vec();
    mixed.push(('i', 2, 1));
    assert_eq!(of((3, 3), &mixed, None), (10, 10));
    assert_eq!(of((3, 3), &[('i', 25, 4), ('s', 1, 1), ('s', 5, 5)], None), (25, 9));
    assert_eq!(of((3, 3), &[('i', 4, 25), ('s', 1, 1), ('s', 5, 5)], None), (9, 25));
    assert_eq!(of((2, 4), &[('s', 4, 2), ('i', 10, 2)], None), (14, 6));
    assert_eq!(of((10, 2), &[('s', 4, 2), ('i', 2, 4)], None), (14, 6));
}

/// Rows: SCH-422, SCH-423, SCH-424
#[test]
fn what_the_pod_asks_for_as_a_whole_replaces_its_containers() {
    let main =
        json!({ "name": "m", "resources": { "requests": resources((1, 1)), "limits": resources((3, 3)) } });
    let sidecar =
        json!({ "name": "s", "restartPolicy": "Always", "resources": { "requests": resources((1, 1)) } });
    let whole = |resources: Value, init: Value| {
        asked(json!({ "containers": [main], "initContainers": init, "resources": resources }))
    };
    assert_eq!(
        whole(json!({ "requests": resources((2, 2)), "limits": resources((4, 4)) }), json!([])),
        (2, 2)
    );
    assert_eq!(whole(json!({ "requests": resources((5, 5)) }), json!([sidecar])), (5, 5));
    let bare = json!({ "containers": [{ "name": "m" }], "resources": { "limits": resources((10, 10)) } });
    assert_eq!(asked(bare), (10, 10));
}

/// Rows: SCH-425, SCH-426
#[test]
fn a_resize_counts_at_its_larger_end() {
    let resized = |spec: Value, allocated: Value, condition: Option<&str>| {
        let mut object = pod(json!({ "containers": [{ "name": "m", "resources": { "requests": spec } }] }));
        object["status"] = json!({
            "phase": "Running",
            "containerStatuses": [
                { "name": "m", "allocatedResources": allocated, "resources": { "requests": allocated } },
            ],
        });
        if let Some(reason) = condition {
            object["status"]["conditions"] =
                json!([{ "type": "PodResizePending", "status": "True", "reason": reason }]);
        }
        parse_pod(&object).shape.requests.clone()
    };
    let shrinking = resized(json!({ "cpu": "2", "memory": "512Mi" }), resources((6, 2)), None);
    assert_eq!((shrinking.cpu().0, shrinking.memory().0), (6000, 2 << 30));
    let growing = resized(resources((8, 4)), resources((2, 1)), None);
    assert_eq!((growing.cpu().0, growing.memory().0), (8000, 4 << 30));
    let refused = resized(resources((8, 4)), resources((2, 1)), Some("Infeasible"));
    assert_eq!((refused.cpu().0, refused.memory().0), (2000, 1 << 30));
}

#[test]
fn limits_count_where_no_request_is_written() {
    let template = json!({ "spec": { "containers": [
        { "name": "a", "resources": { "limits": { "cpu": "500m", "nvidia.com/gpu": 1 } } },
        { "name": "b", "resources": { "requests": { "cpu": "250m" }, "limits": { "cpu": "1" } } },
    ] } });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "agent" }, "spec": { "template": template },
    });
    let Ok(Object::DaemonSet(set)) = api::parse(&set) else { panic!("a DaemonSet") };
    assert_eq!(set.shape.requests.to_string(), "cpu 750m, nvidia.com/gpu 1, pods 1");
}

#[test]
fn host_ports_are_those_of_regular_containers() {
    let object = pod(json!({
        "containers": [{ "name": "m", "ports": [{ "containerPort": 80, "hostPort": 8080 }, { "containerPort": 81 }] }],
        "initContainers": [{ "name": "i", "ports": [{ "containerPort": 90, "hostPort": 9090 }] }],
    }));
    let ports = parse_pod(&object).shape.host_ports.clone();
    assert_eq!(ports.len(), 1);
    assert_eq!((ports[0].port, &*ports[0].ip, &*ports[0].protocol), (8080, "0.0.0.0", "TCP"));
}

#[test]
fn label_selectors_come_out_as_terms() {
    let object = pod(json!({
        "containers": [],
        "topologySpreadConstraints": [{
            "maxSkew": 2,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {
                "matchLabels": { "app": "web" },
                "matchExpressions": [{ "key": "tier", "operator": "Exists" }],
            },
            "matchLabelKeys": ["pod-template-hash"],
            "nodeTaintsPolicy": "Honor",
        }],
    }));
    let spread = parse_pod(&object).shape.spreads[0].clone();
    assert_eq!(
        (spread.max_skew, spread.is_required, spread.honors_affinity, spread.honors_taints),
        (2, false, true, true)
    );
    let selector = spread.selector.expect("written");
    assert!(selector.selects(&[("app".into(), "web".into()), ("tier".into(), "x".into())].into()));
    assert!(!selector.selects(&[("app".into(), "web".into())].into()));
    assert_eq!(spread.match_label_keys, ["pod-template-hash".into()]);
}

/// An eviction gives a pod the time that it asks for itself: none may come out shorter than it is written.
#[test]
fn a_pod_asks_for_its_own_time_to_end() {
    let asked = |seconds: Value| {
        let spec = json!({ "containers": [], "terminationGracePeriodSeconds": seconds });
        parse_pod(&pod(spec)).shape.termination_grace_seconds
    };
    assert_eq!(asked(json!(0)), 0);
    assert_eq!(asked(json!(90)), 90);
    assert_eq!(asked(json!(9_999_999_999_i64)), u32::MAX);
    assert_eq!(asked(json!(-5)), 1);
    assert_eq!(asked(Value::Null), 30);
}
