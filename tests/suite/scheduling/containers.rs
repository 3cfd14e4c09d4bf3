//! Containers that start before others, as they are written in manifests: what they make of the machine that is bought.

use std::sync::Arc;

use provisor::api::{self, Object};
use provisor::model::offering::InstanceType;
use provisor::model::pod::PodShape;
use provisor::model::workload::DaemonSet;
use serde_json::{Value, json};

use super::world::*;

fn requests(cpu: &str, memory: &str) -> Value {
    json!({ "requests": { "cpu": cpu, "memory": memory } })
}

fn main(cpu: &str, memory: &str) -> Value {
    json!([{ "name": "main", "resources": requests(cpu, memory) }])
}

fn init(cpu: &str, memory: &str) -> Value {
    json!({ "name": "init", "resources": requests(cpu, memory) })
}

fn sidecar(cpu: &str, memory: &str) -> Value {
    json!({ "name": "sidecar", "restartPolicy": "Always", "resources": requests(cpu, memory) })
}

fn shape_of(spec: Value) -> Arc<PodShape> {
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": spec });
    match api::parse(&pod) {
        Ok(Object::Pod(pod)) => pod.shape,
        other => panic!("{other:?}"),
    }
}

fn daemon_of(spec: Value) -> DaemonSet {
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "agent", "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": { "metadata": { "labels": { "app": "agent" } }, "spec": spec },
        },
    });
    match api::parse(&set) {
        Ok(Object::DaemonSet(set)) => set,
        other => panic!("{other:?}"),
    }
}

/// The type that is launched for a pod of `spec` on a cluster with these daemons.
fn launched(types: Vec<InstanceType>, daemons: Option<DaemonSet>, spec: Value) -> Option<&'static str> {
    let mut world = World::new(vec![pool("default")], types);
    if let Some(set) = daemons {
        world.cluster.daemon_sets.insert(set.key, Arc::new(set));
    }
    let mut one = pod("a");
    one.shape = (*shape_of(spec)).clone();
    one.shape.namespace = "default".into();
    world.run(&[one]);
    world.value_of("a", INSTANCE_TYPE)
}

/// The usual types, and three that differ by a core and a Gi.
fn by_size() -> Vec<InstanceType> {
    let sized =
        [("10", "4Gi", 10.0), ("11", "5Gi", 11.0), ("12", "6Gi", 12.0)].map(|(cpu, memory, price)| {
            let name = format!("of-{cpu}");
            let mut kind =
                machine(&name, &[("cpu", cpu), ("memory", memory), ("pods", "5")], &everywhere(price / 10.0));
            kind.allocatable.subtract(&amounts(&[("cpu", "100m"), ("memory", "10Mi")]));
            kind
        });
    assorted().into_iter().chain(sized).collect()
}

/// Rows: SCH-022, SCH-023, SCH-024, SCH-025
#[test]
fn what_runs_at_once_decides_the_size_of_the_machine() {
    let kind_for = |spec: Value| launched(by_size(), None, spec);
    let before = json!({
        "containers": main("6", "2Gi"),
        "initContainers": [init("10", "4Gi"), sidecar("4.9", "2.9Gi")],
    });
    // Initialization alone would do with the smaller one, but for what the system keeps of it.
    assert_eq!(kind_for(before), Some("of-11"));
    let first = json!({
        "containers": main("6", "2Gi"),
        "initContainers": [sidecar("4.9", "2.9Gi"), init("5", "1Gi")],
    });
    assert_eq!(kind_for(first), Some("of-11"));
    let beside = json!({
        "containers": main("5", "1Gi"),
        "initContainers": [sidecar("4.9", "2.9Gi"), init("6", "2Gi")],
    });
    assert_eq!(kind_for(beside), Some("of-11"));
    let whole = json!({
        "resources": requests("9.9", "3.9Gi"),
        "containers": main("5", "1Gi"),
        "initContainers": [init("6", "2Gi"), sidecar("4", "2Gi")],
    });
    assert_eq!(kind_for(whole), Some("of-10"));
}

/// Rows: SCH-168, SCH-169
#[test]
fn what_runs_before_may_need_the_larger_machine() {
    let with_init = |cpu: &str, memory: &str| {
        let spec = json!({ "containers": main("1", "1Gi"), "initContainers": [init(cpu, memory)] });
        launched(assorted(), None, spec)
    };
    assert_eq!(with_init("1", "1Gi"), Some("small-instance-type"));
    assert_eq!(with_init("2", "1Gi"), Some("default-instance-type"));
    assert_eq!(with_init("1", "1Ti"), None);
}

/// Rows: SCH-054, SCH-055, SCH-056, SCH-057
#[test]
fn limits_of_daemons_stand_in_for_what_they_do_not_request() {
    let beside = |daemon: Value| {
        let pod = json!({ "containers": [{ "name": "main" }] });
        launched(assorted(), Some(daemon_of(daemon)), pod)
    };
    let limits = |cpu: &str, memory: &str| json!({ "limits": { "cpu": cpu, "memory": memory } });
    let container = |resources: Value| json!([{ "name": "agent", "resources": resources }]);
    let mostly =
        |cpu: &str, memory: &str| json!({ "requests": { "cpu": cpu }, "limits": { "memory": memory } });

    let mut asks_little = limits("10000", "10000Gi");
    asks_little["requests"] = json!({ "cpu": "1" });
    assert_eq!(beside(json!({ "containers": container(asks_little) })), None);
    let daemon = |init_memory: &str| {
        json!({
            "containers": container(mostly("1", "1Gi")),
            "initContainers": container(mostly("3", init_memory)),
        })
    };
    assert_eq!(beside(daemon("3Gi")), Some("default-instance-type"));
    assert_eq!(beside(daemon("10000Gi")), None);
    let only_init = json!({
        "containers": [{ "name": "agent" }], "initContainers": container(limits("10000", "10000Gi")),
    });
    assert_eq!(beside(only_init), None);
}
