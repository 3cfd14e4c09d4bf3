//! The objects of a cluster with nothing but what decides about nodes: no environment, no command, no Secret, no note of anybody.
//!
//! What may stay is listed, field by field; everything else goes, also what nobody has thought of yet. A plan made from what is
//! left is the same.

use serde_json::{Map, Value};

use super::snapshot::{SnapshotError, each_value};

/// What stays of a value; of a list, of each of its items.
enum Keep {
    All,
    Only(&'static [(&'static str, Keep)]),
    /// Of annotations: those that decide something.
    Annotations,
}

use Keep::{All, Annotations, Only};

/// Annotations that decide something, or that begin with one of [`OURS`].
const ANNOTATIONS: [&str; 5] = [
    "controller.kubernetes.io/pod-deletion-cost",
    "pv.kubernetes.io/bind-completed",
    "storageclass.beta.kubernetes.io/is-default-class",
    "storageclass.kubernetes.io/is-default-class",
    "volume.beta.kubernetes.io/storage-class",
];
const OURS: [&str; 3] = ["karpenter.sh/", "karpenter.k8s.aws/", "provisor.dev/"];
/// Says that the hash of a class cannot be computed any more, because its user data is not there.
const HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";

const METADATA: Keep = Only(&[
    ("name", All),
    ("generateName", All),
    ("namespace", All),
    ("uid", All),
    ("generation", All),
    ("labels", All),
    ("annotations", Annotations),
    ("creationTimestamp", All),
    ("deletionTimestamp", All),
    ("deletionGracePeriodSeconds", All),
    ("finalizers", All),
    ("ownerReferences", All),
]);
const CONDITIONS: Keep = Only(&[
    ("type", All),
    ("status", All),
    ("reason", All),
    ("lastTransitionTime", All),
    ("observedGeneration", All),
]);
const CLAIM: Keep = Only(&[
    ("accessModes", All),
    ("resources", All),
    ("selector", All),
    ("storageClassName", All),
    ("volumeMode", All),
    ("volumeName", All),
]);
const CLAIM_TEMPLATE: Keep = Only(&[("metadata", METADATA), ("spec", CLAIM)]);
const CONTAINER: Keep = Only(&[
    ("name", All),
    ("resources", All),
    ("restartPolicy", All),
    ("ports", Only(&[("containerPort", All), ("hostIP", All), ("hostPort", All), ("protocol", All)])),
]);
const VOLUME: Keep = Only(&[
    ("name", All),
    ("persistentVolumeClaim", All),
    ("ephemeral", Only(&[("volumeClaimTemplate", CLAIM_TEMPLATE)])),
]);
const POD: Keep = Only(&[
    ("affinity", All),
    ("containers", CONTAINER),
    ("hostNetwork", All),
    ("initContainers", CONTAINER),
    ("nodeName", All),
    ("nodeSelector", All),
    ("overhead", All),
    ("preemptionPolicy", All),
    ("priority", All),
    ("priorityClassName", All),
    ("resourceClaims", All),
    ("resources", All),
    ("runtimeClassName", All),
    ("schedulerName", All),
    ("schedulingGates", All),
    ("terminationGracePeriodSeconds", All),
    ("tolerations", All),
    ("topologySpreadConstraints", All),
    ("volumes", VOLUME),
]);
const POD_TEMPLATE: Keep = Only(&[("metadata", METADATA), ("spec", POD)]);
const CONTAINER_STATUS: Keep = Only(&[("name", All), ("resources", All), ("allocatedResources", All)]);
const POD_STATUS: Keep = Only(&[
    ("phase", All),
    ("startTime", All),
    ("nominatedNodeName", All),
    ("resize", All),
    ("conditions", CONDITIONS),
    ("containerStatuses", CONTAINER_STATUS),
    ("initContainerStatuses", CONTAINER_STATUS),
]);
const WORKLOAD: Keep = Only(&[
    ("replicas", All),
    ("parallelism", All),
    ("completions", All),
    ("suspend", All),
    ("selector", All),
    ("template", POD_TEMPLATE),
    ("volumeClaimTemplates", CLAIM_TEMPLATE),
]);
const WORKLOAD_STATUS: Keep = Only(&[
    ("replicas", All),
    ("readyReplicas", All),
    ("succeeded", All),
    ("completionTime", All),
    ("conditions", CONDITIONS),
]);
const NODE: Keep = Only(&[("providerID", All), ("taints", All), ("unschedulable", All)]);
const NODE_STATUS: Keep = Only(&[("capacity", All), ("allocatable", All), ("conditions", CONDITIONS)]);
const VOLUME_SPEC: Keep = Only(&[
    ("accessModes", All),
    ("capacity", All),
    ("claimRef", Only(&[("name", All), ("namespace", All), ("uid", All)])),
    ("nodeAffinity", All),
    ("storageClassName", All),
    ("volumeMode", All),
    // Of where the bytes are only the kind of place.
    ("local", Only(&[])),
    ("hostPath", Only(&[])),
    ("csi", Only(&[("driver", All)])),
    ("awsElasticBlockStore", Only(&[])),
    ("gcePersistentDisk", Only(&[])),
    ("azureDisk", Only(&[])),
    ("azureFile", Only(&[])),
    ("cinder", Only(&[])),
    ("vsphereVolume", Only(&[])),
]);

/// What stays of an object besides its kind and its metadata, by field; `None`: nothing at all.
fn fields_of(kind: &str) -> Option<&'static [(&'static str, Keep)]> {
    Some(match kind {
        "Pod" => &[("spec", POD), ("status", POD_STATUS)],
        "Node" => &[("spec", NODE), ("status", NODE_STATUS)],
        "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet" | "Job" | "ReplicationController" => {
            &[("spec", WORKLOAD), ("status", WORKLOAD_STATUS)]
        }
        "NodePool" | "NodeClaim" | "NodeOverlay" | "CapacityBuffer" => &[("spec", All), ("status", All)],
        "EC2NodeClass" => &[("spec", All), ("status", All)],
        "PodTemplate" => &[("template", POD_TEMPLATE)],
        "PodDisruptionBudget" => &[("spec", All), ("status", All)],
        "PriorityClass" => &[("value", All), ("globalDefault", All), ("preemptionPolicy", All)],
        "Service" => &[("spec", Only(&[("selector", All)]))],
        "Namespace" => &[],
        "PersistentVolume" => &[("spec", VOLUME_SPEC), ("status", Only(&[("phase", All)]))],
        "PersistentVolumeClaim" => &[("spec", CLAIM), ("status", Only(&[("phase", All)]))],
        "StorageClass" => &[("provisioner", All), ("volumeBindingMode", All), ("allowedTopologies", All)],
        "CSINode" => &[("spec", All)],
        "VolumeAttachment" => {
            &[("spec", Only(&[("attacher", All), ("nodeName", All), ("source", All)])), ("status", Only(&[]))]
        }
        _ => return None,
    })
}

/// A cluster without its secrets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reduced {
    pub objects: Vec<Value>,
    /// Objects of kinds that decide nothing.
    pub left_out: usize,
}

/// Reads the objects of `text` and keeps of each what decides about nodes. `file` names it in messages.
pub fn reduce(text: &str, file: &str) -> Result<Reduced, SnapshotError> {
    let mut reduced = Reduced::default();
    each_value(text, file, |object| match reduce_object(object) {
        Some(object) => reduced.objects.push(object),
        None => reduced.left_out += 1,
    })?;
    Ok(reduced)
}

fn reduce_object(object: Value) -> Option<Value> {
    let Value::Object(mut object) = object else { return None };
    let kind = object.get("kind")?.as_str()?.to_owned();
    let fields = fields_of(&kind)?;
    let mut left = Map::new();
    for key in ["apiVersion", "kind"] {
        left.extend(object.remove_entry(key));
    }
    left.extend(object.remove("metadata").map(|metadata| ("metadata".to_owned(), kept(metadata, &METADATA))));
    for (key, keep) in fields {
        left.extend(object.remove(*key).map(|value| ((*key).to_owned(), kept(value, keep))));
    }
    if kind == "EC2NodeClass" {
        leave_user_data(&mut left);
    }
    Some(Value::Object(left))
}

/// User data may hold tokens. It is part of the class's hash, so that a hash without it must not be compared.
fn leave_user_data(class: &mut Map<String, Value>) {
    let spec = class.get_mut("spec").and_then(Value::as_object_mut);
    if spec.and_then(|spec| spec.remove("userData")).is_none() {
        return;
    }
    let metadata = class.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.entry("karpenter.k8s.aws/ec2nodeclass-hash").or_insert("none".into());
        annotations.insert(HASH_VERSION.into(), "without-user-data".into());
    }
}

fn kept(value: Value, keep: &Keep) -> Value {
    match (value, keep) {
        (value, All) => value,
        (Value::Array(items), keep) => items.into_iter().map(|item| kept(item, keep)).collect(),
        (Value::Object(mut map), Only(fields)) => {
            let some = fields.iter().filter_map(|(key, keep)| {
                let value = map.remove(*key)?;
                Some(((*key).to_owned(), kept(value, keep)))
            });
            Value::Object(some.collect())
        }
        (Value::Object(map), Annotations) => {
            let decides =
                |key: &str| ANNOTATIONS.contains(&key) || OURS.iter().any(|prefix| key.starts_with(prefix));
            Value::Object(map.into_iter().filter(|(key, _)| decides(key)).collect())
        }
        // What should be a table and is none says nothing, unless it is not set.
        (Value::Null, _) => Value::Null,
        (_, Only(_) | Annotations) => Value::Object(Map::new()),
    }
}
