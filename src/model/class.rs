//! EC2NodeClass, as far as decisions need it: how a type's capacity is cut, where it may run, what makes nodes drift.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::condition::Condition;
use super::name::{ClassName, Zone};
use super::owner::Owner;
use super::quantity::{Bytes, Quantity};
use super::requirement::Requirements;
use super::symbol::Symbol;

/// The image family: decides default overheads, devices and the form of the user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum AmiFamily {
    Al2,
    Al2023,
    Bottlerocket,
    Windows2019,
    Windows2022,
    Windows2025,
    Custom,
}

/// An amount, or a share of the machine's memory or storage in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum EvictionThreshold {
    Amount(Quantity),
    Share(u32),
}

/// The kubelet settings that change what pods can use (aws.md 1.4 and 3.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct KubeletSettings {
    pub max_pods: Option<u32>,
    pub pods_per_core: Option<u32>,
    pub kube_reserved: BTreeMap<Symbol, Quantity>,
    pub system_reserved: BTreeMap<Symbol, Quantity>,
    /// By signal, such as `memory.available`.
    pub eviction_hard: BTreeMap<Symbol, EvictionThreshold>,
    pub eviction_soft: BTreeMap<Symbol, EvictionThreshold>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum InstanceStorePolicy {
    #[default]
    None,
    /// Local disks become one RAID 0 that serves as ephemeral storage.
    Raid0,
}

/// What the selectors of a class find in the cloud: the status of an EC2NodeClass (aws.md 1.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassStatus {
    /// Newest first.
    pub images: Vec<Image>,
    pub subnets: Vec<Subnet>,
    pub security_groups: Vec<SecurityGroup>,
    pub instance_profile: Option<Symbol>,
    /// By condition type, such as `SubnetsReady`; a class is ready if all of them are.
    pub conditions: BTreeMap<Symbol, Condition>,
}

/// A machine image, and the nodes that it suits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub id: Symbol,
    pub name: Symbol,
    pub is_deprecated: bool,
    pub requirements: Requirements,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    pub id: Symbol,
    pub zone: Zone,
    pub zone_id: Symbol,
    pub addresses_free: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityGroup {
    pub id: Symbol,
    pub name: Symbol,
}

/// What a class is held for: what is made for it in the cloud, and has to be cleared away before it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Holding {
    Templates,
    /// Instance profiles as well: it has a role, or had one.
    Profiles,
}

/// What has a class stay until it is let go; Karpenter's own name for it.
pub const FINALIZER: &str = "karpenter.k8s.aws/termination";

impl Holding {
    /// As the annotation `provisor.dev/held` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Templates => "templates",
            Self::Profiles => "profiles",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeClass {
    pub name: ClassName,
    /// Whose repository describes it; `None`: nobody says so.
    pub owner: Option<Owner>,
    /// The condition `Ready`; an object without conditions counts as ready.
    pub is_ready: bool,
    /// The same as its status has it, for pools to repeat; `None`: nobody said anything.
    pub readiness: Option<Condition>,
    pub is_deleting: bool,
    /// It has our finalizer; `None`: it may go at any time.
    pub held: Option<Holding>,
    pub ami_family: AmiFamily,
    pub kubelet: KubeletSettings,
    /// Size of the root volume; `None`: the family's default (20 GiB).
    pub root_volume: Option<Bytes>,
    pub instance_store: InstanceStorePolicy,
    /// Zones of the resolved subnets (status); empty: not resolved, so every zone of the catalogue.
    pub zones: Vec<Zone>,
    /// Of the fields whose change drifts nodes (aws.md 1.5).
    pub hash: Option<Symbol>,
    pub hash_version: Option<Symbol>,
    /// The `spec` as written, for whoever launches.
    pub spec: Arc<serde_json::Value>,
}
