//! Kubernetes objects as they are on the wire, parsed into the model.
//!
//! [`parse`] reads what a cluster holds: it takes what an API server would have taken, and what only a controller would
//! find fault with makes the object not ready. [`validate`] reads what a person wrote: it names everything that anybody
//! would refuse, ignore or fail on, each with its path.

pub mod field;
pub(crate) mod metadata;
pub(crate) mod requirement;
pub(crate) mod taint;
pub(crate) mod condition;
pub mod hash;
pub(crate) mod nodepool;
pub(crate) mod nodeclaim;
pub(crate) mod ec2nodeclass;
pub(crate) mod kubelet;
pub(crate) mod nodeoverlay;
pub(crate) mod capacitybuffer;

use serde_json::Value;

pub use field::{FieldError, Stage};

use crate::model::claim::NodeClaim;
use crate::model::pool::NodePool;
use crate::model::symbol::Symbol;
use field::{Field, Findings};

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
        (version, "CapacityBuffer") if version.starts_with(BUFFER_GROUP) => capacitybuffer::check(object),
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

/// A NodePool as the API server would hold it.
pub fn render_node_pool(pool: &NodePool) -> Value {
    nodepool::render(pool)
}

/// A NodeClaim as Karpenter would write it.
pub fn render_node_claim(claim: &NodeClaim) -> Value {
    nodeclaim::render(claim)
}
