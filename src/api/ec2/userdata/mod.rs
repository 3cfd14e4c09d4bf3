//! What a machine is told on its first boot, in the form of its image family (aws.md 2.5, 2.6).
//!
//! What people wrote into the node class comes first and is kept; what joins the machine to the cluster comes last and
//! wins. The text says all of it in a fixed order, so equal machines get equal text and share a launch template.

pub mod bottlerocket;
mod mime;
mod nodeadm;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Cluster;
use super::spec::ClassSpec;
use crate::model::claim::NodeClaim;
use crate::model::class::{AmiFamily, InstanceStorePolicy, NodeClass};
use crate::model::label;
use crate::model::name::ClassName;
use crate::model::offering::CapacityType;
use crate::model::quantity::Quantity;
use crate::model::requirement::Operator;
use crate::model::symbol::Symbol;
use crate::model::taint::{Taint, merge_taints};

/// EC2 takes no more, before it is put into base64.
pub const BYTES_MAX: usize = 16_384;

/// What the script of `self-managed` leaves open: the endpoint of the cluster, a token to join it with, the hash of its authority.
const NOT_FILLED_IN: [&str; 3] = ["${CLUSTER_ENDPOINT}", "${BOOTSTRAP_TOKEN}", "${CA_CERT_HASH}"];

/// Whose labels the kubelet may not set on its own node.
const FOREIGN_DOMAINS: [&str; 3] = ["kubernetes.io", "k8s.io", "node-restriction.kubernetes.io"];

/// Everything that the text depends on.
#[derive(Clone, Debug)]
pub struct Boot<'a> {
    pub cluster: &'a Cluster,
    pub class: &'a NodeClass,
    pub spec: &'a ClassSpec,
    pub labels: BTreeMap<Symbol, Symbol>,
    pub taints: Vec<Taint>,
    /// Pods that the machine takes, as the plan counted them.
    pub max_pods: i64,
    /// Of the image, where it is known: `latest`, or such as `1.46.0`.
    pub image_version: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    #[error(
        "the range of Service addresses is not known, and an AL2023 node cannot be configured without it"
    )]
    NoServiceCidr,
    #[error("`userData` is no MIME archive of several parts: {0}")]
    Mime(String),
    #[error("`userData` is not TOML: {0}")]
    Toml(String),
    #[error("`userData` cannot be merged: {0}")]
    Merge(String),
    #[error("the user data has {0} bytes; EC2 takes {BYTES_MAX}")]
    TooLong(usize),
    #[error(
        "`userData` has {0}, which nothing fills in yet, so that its machines would not join; let the script find it out itself"
    )]
    Unfilled(&'static str),
    #[error("machines of the family {0:?} cannot be bought yet; AL2023, Bottlerocket and Custom can")]
    Family(AmiFamily),
}

/// The user data of one machine; empty if there is nothing to say.
pub fn render(boot: &Boot<'_>) -> Result<String, UserDataError> {
    let own = boot.spec.user_data.as_deref().unwrap_or_default();
    let text = match boot.class.ami_family {
        AmiFamily::Al2023 => nodeadm::render(boot, own)?,
        AmiFamily::Bottlerocket => bottlerocket::render(boot, own)?,
        AmiFamily::Custom => match NOT_FILLED_IN.iter().find(|name| own.contains(**name)) {
            Some(name) => return Err(UserDataError::Unfilled(name)),
            None => own.to_owned(),
        },
        family => return Err(UserDataError::Family(family)),
    };
    if text.len() > BYTES_MAX {
        return Err(UserDataError::TooLong(text.len()));
    }
    Ok(text)
}

/// The labels that the kubelet gives its node: those of the claim, and what its requirements leave only one value for.
/// Kubernetes' own domains are left out, because it refuses them from a kubelet.
pub fn labels(
    claim: &NodeClaim,
    class: ClassName,
    family: AmiFamily,
    capacity_type: CapacityType,
) -> BTreeMap<Symbol, Symbol> {
    let mut labels = BTreeMap::new();
    for (key, requirement) in claim.spec.requirements.iter() {
        if requirement.operator() == Operator::In
            && let Some(value) = requirement.single()
        {
            labels.insert(key, value);
        }
    }
    labels.extend(claim.labels.iter().map(|(key, value)| (*key, *value)));
    labels.insert(*label::EC2_NODE_CLASS, class.0);
    labels.insert(*label::CAPACITY_TYPE, capacity_type.symbol());
    if family != AmiFamily::Custom {
        labels.insert(*label::DO_NOT_SYNC_TAINTS, "true".into());
    }
    labels.retain(|key, _| !is_foreign(key));
    labels
}

fn is_foreign(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    FOREIGN_DOMAINS.iter().any(|foreign| {
        domain == *foreign || domain.strip_suffix(foreign).is_some_and(|rest| rest.ends_with('.'))
    })
}

/// The taints that the kubelet registers with: the last of them keeps pods away until the node is known to be ours.
pub fn taints(claim: &NodeClaim) -> Vec<Taint> {
    let mut taints = Vec::new();
    // A kubelet that is told of one twice does not start.
    merge_taints(&mut taints, claim.spec.taints.iter().chain(&claim.spec.startup_taints).copied());
    merge_taints(&mut taints, [Taint::unregistered()]);
    taints
}

impl Boot<'_> {
    fn uses_raid(&self) -> bool {
        self.class.instance_store == InstanceStorePolicy::Raid0
    }

    /// The kubelet settings of the class, without what could not be resolved to an amount.
    fn kubelet(&self) -> Map<String, Value> {
        let mut kubelet = self.spec.kubelet.clone();
        let resolved = [
            ("kubeReserved", &self.class.kubelet.kube_reserved),
            ("systemReserved", &self.class.kubelet.system_reserved),
        ];
        for (key, amounts) in resolved {
            keep_known(&mut kubelet, key, amounts);
        }
        kubelet.insert("maxPods".into(), self.max_pods.into());
        if let (Some(dns), false) = (&self.cluster.dns, kubelet.contains_key("clusterDNS")) {
            kubelet.insert("clusterDNS".into(), vec![dns.clone()].into());
        }
        kubelet
    }
}

fn keep_known(kubelet: &mut Map<String, Value>, key: &str, amounts: &BTreeMap<Symbol, Quantity>) {
    let Some(Value::Object(entries)) = kubelet.get_mut(key) else { return };
    entries.retain(|name, _| amounts.contains_key(&Symbol::new(name)));
    if entries.is_empty() {
        kubelet.remove(key);
    }
}

#[cfg(test)]
mod tests;
