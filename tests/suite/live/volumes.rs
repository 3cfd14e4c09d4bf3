//! Volumes that are attached to a node hold its machine, until a driver detaches them or the node's time is over.
//!
//! There is no driver on the plane: what one would write is written here, with the finalizer that holds an attachment until the
//! volume is really detached.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::bench::{Bench, environment, text};
use super::chronicle::Chronicle;
use crate::plane::{collection_of, path_of};

const TIME: SignedDuration = SignedDuration::from_secs(15);
const DRIVER: &str = "ebs.csi.aws.com";
const FINALIZER: &str = "external-attacher/ebs-csi-aws-com";
const POOL: &str = "karpenter.sh/nodepool";

/// A pod of `pool` with a volume of the same name.
fn plant_pod(bench: &Bench, name: &str, pool: &str, tolerations: Value) {
    let namespace = &bench.namespace;
    let size = json!({ "storage": "1Gi" });
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
            "spec": {
                "capacity": size, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": { "namespace": namespace, "name": name },
                "csi": { "driver": DRIVER, "volumeHandle": format!("vol-{name}") },
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": name, "namespace": namespace },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
                "resources": { "requests": size },
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace },
            "spec": {
                "terminationGracePeriodSeconds": 1, "nodeSelector": { POOL: pool }, "tolerations": tolerations,
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": name } }],
                "containers": [{
                    "name": "main", "image": "pause", "resources": { "requests": { "cpu": "300m" } },
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                }],
            },
        }),
    ];
    for object in &objects {
        bench.plane.api.post(&collection_of(object), object).expect("it is accepted");
    }
}

/// What a driver writes when it attaches `source` to `node`.
fn attach(bench: &Bench, name: &str, node: &str, source: Value) -> String {
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": name, "finalizers": [FINALIZER] },
        "spec": { "attacher": DRIVER, "nodeName": node, "source": source },
    });
    bench.plane.api.post(&collection_of(&attachment), &attachment).expect("it is attached");
    path_of(&attachment)
}

/// One process is killed while it waits for a volume.
///
/// Rows: TER-027, TER-028, TER-029
#[test]
fn ter_027_volumes_hold_a_machine_until_they_are_detached_or_its_time_is_over() {
    let general = environment("one");
    let bounded = general.split_once("[pools.general]").map(|(_, pool)| {
        format!("[pools.bounded]{pool}termination-grace-period = \"{}s\"\n", TIME.as_secs())
    });
    let bench = Bench::of(&format!("{general}{}", bounded.expect("a pool")));
    plant_pod(&bench, "data", "general", json!([]));
    // Such a pod stays as long as its machine, and its volume with it.
    plant_pod(&bench, "agent", "general", json!([{ "operator": "Exists" }]));
    plant_pod(&bench, "late", "bounded", json!([]));
    let running = bench.start(&["--no-lease"]);
    bench.wait("running", || bench.all_run(3));
    let node_of = |pod: &str| {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}", bench.namespace);
        text(&bench.plane.api.get(&path).expect("it runs"), "/spec/nodeName").to_owned()
    };
    let (free, hurried) = (node_of("data"), node_of("late"));
    assert_eq!(node_of("agent"), free, "both are on one node");
    let of_volume = |name: &str| json!({ "persistentVolumeName": name });
    let inline = json!({ "inlineVolumeSpec": {
        "accessModes": ["ReadWriteOnce"], "csi": { "driver": DRIVER, "volumeHandle": "vol-inline" },
    } });
    let data = attach(&bench, "data", &free, of_volume("data"));
    attach(&bench, "agent", &free, of_volume("agent"));
    attach(&bench, "inline", &free, inline);
    attach(&bench, "late", &hurried, of_volume("late"));
    let chronicle = Chronicle::begin(&bench);
    let all = || [bench.claims_of("general"), bench.claims_of("bounded")].concat();
    let claims: Vec<Value> = all();
    for claim in &claims {
        bench
            .plane
            .api
            .delete(&path_of(&json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": claim["metadata"],
            })))
            .expect("deleted");
    }

    let detached = |claim: &Value| {
        let conditions = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition["type"] == "VolumesDetached");
        found.map(|found| (text(&found, "/status").to_owned(), text(&found, "/reason").to_owned()))
    };
    let awaits = ("Unknown".to_owned(), "AwaitingVolumeDetachment".to_owned());
    bench.wait("volumes are waited for", || {
        all().iter().filter(|claim| detached(claim).as_ref() == Some(&awaits)).count() == 2
    });
    running.kill();
    let running = bench.start(&["--no-lease"]);
    let is_gone = |node: &str| !bench.plane.api.get(&format!("/api/v1/nodes/{node}")).is_success();
    bench.wait("the one whose time is over is gone", || is_gone(&hurried));
    assert!(!is_gone(&free), "the other waits on\n{}", bench.logs());

    // Asked to detach, the driver takes a while.
    bench.plane.api.delete(&data).expect("asked to detach");
    std::thread::sleep(Duration::from_secs(2));
    assert!(!is_gone(&free), "the volume is still attached\n{}", bench.logs());
    let let_go = json!({ "metadata": { "finalizers": null } });
    bench.plane.api.patch(&data, &let_go).expect("detached");
    bench.wait("the other is gone", || is_gone(&free));
    let is_old =
        |claim: &Value| claims.iter().any(|old| text(old, "/metadata/uid") == text(claim, "/metadata/uid"));
    bench.wait("their claims are gone", || !all().iter().any(is_old));
    // The agent may need another place when its machine ends.
    assert!(bench.claims_made().len() <= 3, "what is bought for it is bought once\n{}", bench.logs());
    let evictions = bench.evictions();
    assert!(evictions.len() == 2 && evictions.values().all(|times| *times == 1), "{evictions:?}");

    let story = chronicle.end();
    let is_told_to_end = |claim: &Value| crate::plane::has_condition(claim, "InstanceTerminating");
    let told = |node: &str| {
        story.first("the machine is told to end", "nodeclaims", |moment| {
            text(&moment.object, "/status/nodeName") == node && is_told_to_end(&moment.object)
        })
    };
    let told_free = told(&free);
    assert!(told_free.revision > story.gone("volumeattachments", "data"), "the volume comes first");
    let gone =
        |name: &str| story.of("volumeattachments").any(|moment| moment.name() == name && moment.is_gone);
    assert!(["agent", "inline", "late"].iter().all(|name| !gone(name)), "these were never detached");
    story.first("an event says how many are left", "events", |moment| {
        text(&moment.object, "/reason") == "AwaitingVolumeDetachment"
            && text(&moment.object, "/involvedObject/name") == free
            && text(&moment.object, "/message") == "1 volume is still attached"
    });
    let told_hurried = &told(&hurried).object;
    assert_eq!(detached(told_hurried), Some(("False".into(), "TerminationGracePeriodElapsed".into())));
    let begun: Timestamp = text(told_hurried, "/metadata/deletionTimestamp").parse().expect("a moment");
    let conditions = told_hurried["status"]["conditions"].as_array().expect("conditions");
    let over =
        conditions.iter().find(|condition| condition["type"] == "VolumesDetached").expect("it is told");
    let over: Timestamp = text(over, "/lastTransitionTime").parse().expect("a moment");
    assert!(over >= begun + TIME, "its volume had until {}, and was given up at {over}", begun + TIME);
    drop(running);
}
