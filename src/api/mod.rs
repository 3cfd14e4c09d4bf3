//! Kubernetes objects as they are on the wire, parsed into the model.
//!
//! [`parse`] reads what a cluster holds: it takes what an API server would have taken, and what only a controller would
//! find fault with makes the object not ready. [`validate`] reads what a person wrote: it names everything that anybody
//! would refuse, ignore or fail on, each with its path.

pub mod field;
pub(crate) mod metadata;
mod render;
pub(crate) mod requirement;
pub(crate) mod taint;
pub(crate) mod condition;
pub mod hash;
pub(crate) mod nodepool;
pub(crate) mod roll;
pub(crate) mod terms;
pub(crate) mod nodeclaim;
pub(crate) mod ec2nodeclass;
pub(crate) mod kubelet;
pub(crate) mod nodeoverlay;
pub(crate) mod capacitybuffer;
pub(crate) mod selector;
pub(crate) mod request;
pub mod pod;
pub(crate) mod node;
pub(crate) mod volume;
pub mod workload;
pub mod scheduler_config;
mod observation;
pub(crate) mod document;
pub(crate) mod position;
pub mod snapshot;
pub mod reduced;
pub mod ec2;
pub mod status;
pub(crate) mod change;
pub mod crd;

use serde_json::Value;

pub use change::validate_change;
pub use field::{FieldError, Stage};
pub use kubelet::{KubeletError, check_kubelet, unusable_in_kubelet};

use crate::model::buffer::{BufferStatus, CapacityBuffer, PodTemplate};
use crate::model::claim::NodeClaim;
use crate::model::class::NodeClass;
use crate::model::condition::{ConditionKind, ConditionSet};
use crate::model::name::Namespace;
use crate::model::node::Node;
use crate::model::pod::Pod;
use crate::model::pool::{NodeOverlay, NodePool};
use crate::model::quantity::Resources;
use crate::model::roll::RollFailures;
use crate::model::symbol::Symbol;
use crate::model::workload::{
    CsiNode, DaemonSet, NamespaceFacts, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget,
    Service, StorageClass, VolumeAttachment,
};
use field::{Field, Findings};
use pod::{PodShapes, Priorities};
use workload::Workload;

const OVERLAY_VERSION: &str = "karpenter.sh/v1alpha1";
const BUFFER_GROUP: &str = "autoscaling.x-k8s.io/";

/// Everything wrong with a manifest of a kind that Karpenter defines, in the order of its fields' paths. Other kinds get the
/// checks that hold for every object. An old version is named with the way to the new one.
pub fn validate(manifest: &Value) -> Vec<FieldError> {
    let findings = Findings::default();
    let object = Field::root(manifest, &findings);
    check(&object);
    let mut errors = findings.into_errors();
    errors.sort();
    errors.dedup();
    errors
}

fn check(object: &Field<'_, '_>) {
    if object.map().is_none() {
        return;
    }
    let api_version = object.get("apiVersion").required_text();
    let kind = object.get("kind").required_text();
    let (Some(api_version), Some(kind)) = (api_version, kind) else { return };
    metadata::check(object);
    match (api_version, kind) {
        (nodepool::API_VERSION, "NodePool") => {
            nodepool::read(object);
        }
        (nodepool::API_VERSION, "NodeClaim") => {
            nodeclaim::read(object);
        }
        (ec2nodeclass::API_VERSION, "EC2NodeClass") => {
            ec2nodeclass::read(object);
        }
        (OVERLAY_VERSION, "NodeOverlay") => {
            nodeoverlay::read(object);
        }
        (version, "CapacityBuffer") if version.starts_with(BUFFER_GROUP) => {
            capacitybuffer::read(object);
        }
        ("v1", "PodTemplate") => {
            capacitybuffer::read_template(object, &mut PodShapes::default(), &Priorities::default());
        }
        _ => match replaced(api_version, kind) {
            Some((message, help)) => object.get("apiVersion").error_with_help(message, help),
            None => {
                metadata::read(object);
            }
        },
    }
}

/// What became of a kind of an old or unknown version of Karpenter's API.
pub(crate) fn replaced(api_version: &str, kind: &str) -> Option<(String, &'static str)> {
    let (group, version) = api_version.split_once('/')?;
    let is_karpenter = group == "karpenter.sh" || group == "karpenter.k8s.aws";
    let message = format!("{kind} of {api_version} is not served any more");
    let help = match (kind, version) {
        _ if !is_karpenter => return None,
        ("Provisioner", _) => "rewrite it as a NodePool of karpenter.sh/v1",
        ("Machine", _) => "Machines became NodeClaims of karpenter.sh/v1, which the provisioner creates",
        ("AWSNodeTemplate", _) => "rewrite it as an EC2NodeClass of karpenter.k8s.aws/v1",
        ("NodePool" | "NodeClaim", "v1beta1") => "v1beta1 was removed; rewrite it for karpenter.sh/v1",
        ("EC2NodeClass", "v1beta1") => "v1beta1 was removed; rewrite it for karpenter.k8s.aws/v1",
        ("NodePool" | "NodeClaim", _) => {
            return Some((
                format!("there is no {kind} of {api_version}"),
                "write apiVersion: karpenter.sh/v1",
            ));
        }
        ("EC2NodeClass", _) => {
            return Some((
                format!("there is no {kind} of {api_version}"),
                "write apiVersion: karpenter.k8s.aws/v1",
            ));
        }
        ("NodeOverlay", _) => {
            return Some((
                format!("there is no {kind} of {api_version}"),
                "write apiVersion: karpenter.sh/v1alpha1",
            ));
        }
        _ => return Some((format!("there is no {kind} of {api_version}"), "check the spelling of `kind`")),
    };
    Some((message, help))
}

/// The kind of an object that has no place in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnknownKind {
    pub api_version: Symbol,
    pub kind: Symbol,
}

/// What a PriorityClass says about the pods that name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityClass {
    pub name: Symbol,
    pub value: i32,
    pub is_default: bool,
}

/// An object, parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    NodePool(NodePool),
    NodeClaim(Box<NodeClaim>),
    NodeClass(NodeClass),
    NodeOverlay(NodeOverlay),
    CapacityBuffer(CapacityBuffer),
    PodTemplate(PodTemplate),
    Node(Node),
    Pod(Pod),
    DaemonSet(DaemonSet),
    Workload(Workload),
    PodDisruptionBudget(PodDisruptionBudget),
    PersistentVolume(PersistentVolume),
    PersistentVolumeClaim(PersistentVolumeClaim),
    StorageClass(StorageClass),
    CsiNode(CsiNode),
    VolumeAttachment(VolumeAttachment),
    Service(Service),
    Namespace(NamespaceFacts),
    PriorityClass(PriorityClass),
    /// Nothing here is decided by it.
    Unknown(UnknownKind),
}

impl Object {
    /// Whether it is of a kind that Karpenter defines, or that its objects refer to and a fleet may hold.
    pub fn is_karpenter(&self) -> bool {
        matches!(
            self,
            Self::NodePool(_)
                | Self::NodeClaim(_)
                | Self::NodeClass(_)
                | Self::NodeOverlay(_)
                | Self::CapacityBuffer(_)
                | Self::PodTemplate(_)
        )
    }
}

/// Parses objects one after the other and remembers what they share: pod shapes, priorities.
#[derive(Debug, Default)]
pub struct Reader {
    pub shapes: PodShapes,
    pub priorities: Priorities,
}

impl Reader {
    /// Later pods that name this class get its value.
    pub fn add_priority(&mut self, class: &PriorityClass) {
        self.priorities.by_class.insert(class.name, class.value);
        if class.is_default {
            self.priorities.default = class.value;
        }
    }

    /// Parses an object that an API server holds or would take; else everything that it would refuse.
    pub fn parse(&mut self, value: &Value) -> Result<Object, Vec<FieldError>> {
        self.parse_noting(value).map(|(object, _)| object)
    }

    /// Like [`parse`](Self::parse), with what an API server lets pass: fields that have no effect, and what the controller
    /// will find fault with.
    pub fn parse_noting(&mut self, value: &Value) -> Result<(Object, Vec<FieldError>), Vec<FieldError>> {
        let findings = Findings::of_printed();
        let object = Field::root(value, &findings);
        let parsed = self.read(&object);
        let mut errors = findings.into_errors();
        errors.sort();
        errors.dedup();
        let (refused, passed): (Vec<_>, Vec<_>) =
            errors.into_iter().partition(|error| error.stage == Stage::Admission);
        match parsed {
            Some(parsed) if refused.is_empty() => Ok((parsed, passed)),
            _ => Err(refused),
        }
    }

    /// As much of an object as can be understood, as if the rest were not there: for who must not act as if all of it were not.
    pub fn parse_legible(&mut self, value: &Value) -> Option<Object> {
        self.read(&Field::root(value, &Findings::of_printed()))
    }

    fn read(&mut self, object: &Field<'_, '_>) -> Option<Object> {
        object.map()?;
        let api_version = object.get("apiVersion").required_text();
        let kind = object.get("kind").required_text();
        let (api_version, kind) = (api_version?, kind?);
        let (shapes, priorities) = (&mut self.shapes, &self.priorities);
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Some(match (group, kind) {
            ("karpenter.sh", "NodePool") if api_version == nodepool::API_VERSION => {
                Object::NodePool(nodepool::read(object)?)
            }
            ("karpenter.sh", "NodeClaim") if api_version == nodepool::API_VERSION => {
                Object::NodeClaim(Box::new(nodeclaim::read(object)?))
            }
            ("karpenter.k8s.aws", "EC2NodeClass") if api_version == ec2nodeclass::API_VERSION => {
                Object::NodeClass(ec2nodeclass::read(object)?)
            }
            ("karpenter.sh", "NodeOverlay") if api_version == OVERLAY_VERSION => {
                Object::NodeOverlay(nodeoverlay::read(object)?)
            }
            ("autoscaling.x-k8s.io", "CapacityBuffer") => {
                Object::CapacityBuffer(capacitybuffer::read(object)?)
            }
            ("", "PodTemplate") => {
                Object::PodTemplate(capacitybuffer::read_template(object, shapes, priorities))
            }
            ("", "Node") => Object::Node(node::read(object)),
            ("", "Pod") => Object::Pod(pod::read(object, shapes, priorities)),
            ("apps", "DaemonSet") => Object::DaemonSet(workload::read_daemon_set(object, shapes, priorities)),
            ("apps", "Deployment" | "ReplicaSet" | "StatefulSet")
            | ("batch", "Job")
            | ("", "ReplicationController") => Object::Workload(workload::read(object, shapes, priorities)?),
            ("policy", "PodDisruptionBudget") => Object::PodDisruptionBudget(workload::read_budget(object)),
            ("", "PersistentVolume") => Object::PersistentVolume(volume::read(object)),
            ("", "PersistentVolumeClaim") => Object::PersistentVolumeClaim(volume::read_claim(object)),
            ("storage.k8s.io", "StorageClass") => Object::StorageClass(volume::read_storage_class(object)),
            ("storage.k8s.io", "CSINode") => Object::CsiNode(node::read_csi_node(object)),
            ("storage.k8s.io", "VolumeAttachment") => {
                Object::VolumeAttachment(node::read_volume_attachment(object)?)
            }
            ("", "Service") => Object::Service(workload::read_service(object)),
            ("", "Namespace") => {
                let metadata = metadata::read(object);
                Object::Namespace(NamespaceFacts { name: Namespace(metadata.name), labels: metadata.labels })
            }
            ("scheduling.k8s.io", "PriorityClass") => Object::PriorityClass(read_priority_class(object)),
            _ => {
                let (api_version, kind) = (Symbol::new(api_version), Symbol::new(kind));
                Object::Unknown(UnknownKind { api_version, kind })
            }
        })
    }
}

/// Parses one object on its own.
pub fn parse(value: &Value) -> Result<Object, Vec<FieldError>> {
    Reader::default().parse(value)
}

fn read_priority_class(object: &Field<'_, '_>) -> PriorityClass {
    let value = object.get("value").required().integer();
    PriorityClass {
        name: metadata::read(object).name,
        value: value.and_then(|value| value.try_into().ok()).unwrap_or(0),
        is_default: object.get("globalDefault").boolean().unwrap_or(false),
    }
}

/// The object as the API server would hold it, for the kinds that we write ourselves.
pub fn to_value(object: &Object) -> Option<Value> {
    match object {
        Object::NodePool(pool) => Some(render_node_pool(pool)),
        Object::NodeClaim(claim) => Some(render_node_claim(claim)),
        Object::Node(node) => Some(render_node(node)),
        _ => None,
    }
}

/// A NodePool as the API server would hold it.
pub fn render_node_pool(pool: &NodePool) -> Value {
    nodepool::render(pool)
}

/// The status of a NodePool as the API server would hold it.
pub fn render_node_pool_status(pool: &NodePool) -> Value {
    nodepool::render_status(pool)
}

/// The text that remembers tries to replace nodes of a pool which failed; `None`: there is nothing to remember.
pub fn render_roll_failures(failures: &RollFailures) -> Option<String> {
    roll::render_failures(failures)
}

/// The status of a NodeOverlay.
pub fn render_overlay_status(overlay: &NodeOverlay) -> Value {
    serde_json::json!({ "conditions": condition::render(&overlay.conditions) })
}

/// The status of a CapacityBuffer.
pub fn render_buffer_status(status: &BufferStatus) -> Value {
    capacitybuffer::render_status(status)
}

/// A NodeClaim as Karpenter would write it.
pub fn render_node_claim(claim: &NodeClaim) -> Value {
    nodeclaim::render(claim)
}

/// A Node as its kubelet would report it.
pub fn render_node(node: &Node) -> Value {
    node::render(node)
}

/// Amounts by resource, as quantities.
pub fn render_resources(resources: &Resources) -> Value {
    render::resources(resources)
}

/// The conditions of an object as a list.
pub fn render_conditions<K: ConditionKind>(conditions: &ConditionSet<K>) -> Value {
    condition::render(conditions)
}
