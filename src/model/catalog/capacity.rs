//! How much of a machine pods can use: facts × node class, by the formulas of EKS images and Karpenter (aws.md 3.2, 3.3).
//!
//! Nothing here is a table of results: capacity is what EC2 describes less what the hypervisor takes, and allocatable is
//! capacity less what kubelet and system keep and what the kubelet would evict for.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::facts::{EniLimits, TypeFacts};
use crate::model::class::{AmiFamily, EvictionThreshold, InstanceStorePolicy, KubeletSettings, NodeClass};
use crate::model::quantity::{Bytes, Quantity, ResourceName, Resources, resource};
use crate::model::symbol::Symbol;

/// Cluster-wide settings that change what a machine holds (aws.md 8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CapacitySettings {
    /// What the hypervisor takes of the advertised memory, in hundredths of a percent.
    pub vm_memory_overhead: u32,
    /// Network interfaces that pods may not use.
    pub reserved_enis: u32,
}

impl Default for CapacitySettings {
    /// 7.5 % and none, as in Karpenter.
    fn default() -> Self {
        Self { vm_memory_overhead: 750, reserved_enis: 0 }
    }
}

/// Pods of a machine whose number of addresses is not the limit, as the kubelet's own default.
const PODS_DEFAULT: u32 = 110;
/// Memory that arm64 machines lack of what EC2 advertises.
const ARM64_MISSING_MIB: i64 = 64;
const ROOT_VOLUME: Bytes = Bytes::gibi(20);
const WINDOWS_ROOT_VOLUME: Bytes = Bytes::gibi(50);
const KUBE_RESERVED_STORAGE: Bytes = Bytes::gibi(1);
const EVICTION_MEMORY: Bytes = Bytes::mebi(100);
/// Of ephemeral storage, in hundredths of a percent.
const EVICTION_STORAGE: u32 = 1_000;

macro_rules! extended {
    ($($name:ident = $text:literal),* $(,)?) => {$(
        pub static $name: LazyLock<ResourceName> = LazyLock::new(|| ResourceName::new($text));
    )*};
}

extended! {
    NVIDIA_GPU = "nvidia.com/gpu",
    AMD_GPU = "amd.com/gpu",
    GAUDI = "habana.ai/gaudi",
    NEURON = "aws.amazon.com/neuron",
    NEURON_CORE = "aws.amazon.com/neuroncore",
    EFA = "vpc.amazonaws.com/efa",
    POD_ENI = "vpc.amazonaws.com/pod-eni",
    PRIVATE_IPV4 = "vpc.amazonaws.com/PrivateIPv4Address",
}

static EBS_DRIVER: LazyLock<Symbol> = LazyLock::new(|| Symbol::new("ebs.csi.aws.com"));

/// What a node class makes of any machine. Two classes for which this is equal have the same shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    pub family: AmiFamily,
    kubelet: KubeletSettings,
    root_volume: Option<Bytes>,
    instance_store: InstanceStorePolicy,
    /// Of the system, attached from the start.
    volumes: u32,
    interfaces: Interfaces,
    settings: CapacitySettings,
}

/// What the class's `networkInterfaces` ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Interfaces {
    is_listed: bool,
    efa_only: u32,
    efa_only_on_default_card: u32,
    /// The highest network card asked for.
    last_card: u32,
    /// The highest device asked for on the default card.
    last_device: u32,
}

impl Machine {
    pub(super) fn of(class: Option<&NodeClass>, settings: CapacitySettings) -> Self {
        Self {
            family: class.map_or(AmiFamily::Al2023, |class| class.ami_family),
            kubelet: class.map(|class| class.kubelet.clone()).unwrap_or_default(),
            root_volume: class.and_then(|class| class.root_volume),
            instance_store: class.map_or(InstanceStorePolicy::None, |class| class.instance_store),
            volumes: own_volumes(class),
            interfaces: class.map_or_else(Interfaces::default, |class| Interfaces::of(&class.spec)),
            settings,
        }
    }

    fn is_windows(&self) -> bool {
        matches!(self.family, AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025)
    }

    /// Whether an image of the class starts on this type, and the type has the interfaces that the class wants.
    pub(super) fn boots(&self, facts: &TypeFacts) -> bool {
        // A file is taken at its word.
        if facts.stated.is_some() {
            return true;
        }
        let is_left_behind = self.family == AmiFamily::Al2023 && facts.name.as_str().starts_with("a1.");
        let is_wrong_arch = self.is_windows() && facts.arch.as_str() != "amd64";
        let cards = facts.eni.map_or(1, |eni| eni.network_cards);
        let lacks_interfaces = self.interfaces.is_listed
            && (self.interfaces.efa_only > facts.efa_interfaces
                || self.interfaces.last_card >= cards
                || facts.eni.is_some_and(|eni| self.interfaces.last_device >= eni.interfaces));
        !(is_left_behind || is_wrong_arch || lacks_interfaces)
    }

    /// Capacity, and what is left of it for pods and daemons.
    pub(super) fn amounts(&self, facts: &TypeFacts) -> (Resources, Resources) {
        let stated = facts.stated;
        let pods = self.pods(facts);
        // Whoever states what is left has counted the hypervisor's share already.
        let memory = match stated.and_then(|stated| stated.memory) {
            Some(_) => Bytes::mebi(i64::try_from(facts.memory_mib).unwrap_or(i64::MAX >> 20)),
            None => self.memory(facts),
        };
        let storage = self.storage(facts);
        let mut capacity = self.extended(facts);
        capacity.set(*resource::CPU, i64::from(facts.vcpus) * 1000);
        capacity.set(*resource::MEMORY, memory.0);
        capacity.set(*resource::PODS, pods);
        capacity.set(*resource::EPHEMERAL_STORAGE, storage.0);

        let mut allocatable = capacity.clone();
        for name in [*resource::CPU, *resource::MEMORY, *resource::EPHEMERAL_STORAGE] {
            let kept = self.kube_reserved(name, facts, pods)
                + self.system_reserved(name)
                + self.eviction(name, memory, storage);
            allocatable.set(name, allocatable.get(name) - kept);
        }
        let stated = stated.unwrap_or_default();
        for (name, amount) in [(*resource::CPU, stated.cpu), (*resource::MEMORY, stated.memory)] {
            if let Some(amount) = amount {
                allocatable.set(name, amount);
                capacity.set(name, capacity.get(name).max(amount));
            }
        }
        (capacity, allocatable)
    }

    /// The volumes of pods that it can attach, by CSI driver, as the EBS CSI driver reports it of a node that has just started.
    pub(super) fn volumes_max(&self, facts: &TypeFacts) -> Vec<(Symbol, u32)> {
        let Some(limit) = facts.ebs_attachments else { return Vec::new() };
        // The one with the addresses of pods, which the VPC CNI attaches at once.
        let has_second_interface = facts.eni.is_none_or(|eni| eni.interfaces > 1);
        let of_interfaces = u32::from(!limit.is_dedicated && has_second_interface);
        let left = limit.count.saturating_sub(self.volumes).saturating_sub(of_interfaces);
        vec![(*EBS_DRIVER, left.max(1))]
    }

    fn memory(&self, facts: &TypeFacts) -> Bytes {
        let missing = if facts.arch.as_str() == "arm64" { ARM64_MISSING_MIB } else { 0 };
        let advertised = (i64::try_from(facts.memory_mib).unwrap_or(i64::MAX >> 20) - missing).max(0);
        let taken = (advertised * i64::from(self.settings.vm_memory_overhead)).div_euclid(10_000)
            + i64::from((advertised * i64::from(self.settings.vm_memory_overhead)) % 10_000 != 0);
        Bytes::mebi((advertised - taken).max(0))
    }

    fn storage(&self, facts: &TypeFacts) -> Bytes {
        match (self.instance_store, facts.instance_store_gb) {
            (InstanceStorePolicy::Raid0, Some(gigabytes)) if gigabytes > 0 => {
                Bytes(i64::from(gigabytes) * 1_000_000_000)
            }
            _ => {
                self.root_volume.unwrap_or(if self.is_windows() { WINDOWS_ROOT_VOLUME } else { ROOT_VOLUME })
            }
        }
    }

    fn pods(&self, facts: &TypeFacts) -> i64 {
        let asked = self.kubelet.max_pods.map(i64::from);
        let by_addresses = || match facts.eni {
            Some(eni) if !self.is_windows() => {
                let taken =
                    self.settings.reserved_enis.saturating_add(self.interfaces.efa_only_on_default_card);
                i64::from(pods_by_addresses(eni, taken))
            }
            _ => i64::from(PODS_DEFAULT),
        };
        let pods = asked.or(facts.stated.and_then(|stated| stated.pods)).unwrap_or_else(by_addresses);
        let per_core = self.kubelet.pods_per_core.filter(|count| *count > 0);
        match per_core {
            Some(count) if self.family != AmiFamily::Bottlerocket => {
                pods.min(i64::from(count) * i64::from(facts.vcpus))
            }
            _ => pods,
        }
    }

    fn kube_reserved(&self, name: ResourceName, facts: &TypeFacts, pods: i64) -> i64 {
        if let Some(asked) = amount(&self.kubelet.kube_reserved, name) {
            return asked;
        }
        if name == *resource::CPU {
            return kube_reserved_millicores(facts.vcpus);
        }
        if name == *resource::EPHEMERAL_STORAGE {
            return KUBE_RESERVED_STORAGE.0;
        }
        // Linux images of EKS size the reservation by what the addresses would allow, even if the class allows fewer pods.
        let is_by_addresses = matches!(self.family, AmiFamily::Al2 | AmiFamily::Al2023 | AmiFamily::Custom);
        let slots = match facts.eni {
            Some(eni) if is_by_addresses => i64::from(pods_by_addresses(eni, 0)),
            _ => pods,
        };
        kube_reserved_memory(slots).0
    }

    fn system_reserved(&self, name: ResourceName) -> i64 {
        amount(&self.kubelet.system_reserved, name).unwrap_or(0)
    }

    /// What the kubelet starts to evict for. Soft thresholds evict later and never count.
    fn eviction(&self, name: ResourceName, memory: Bytes, storage: Bytes) -> i64 {
        let (signal, of, default) = if name == *resource::MEMORY {
            ("memory.available", memory, EvictionThreshold::Amount(Quantity::from_units(EVICTION_MEMORY.0)))
        } else if name == *resource::EPHEMERAL_STORAGE {
            ("nodefs.available", storage, EvictionThreshold::Share(EVICTION_STORAGE))
        } else {
            return 0;
        };
        let asked = self.kubelet.eviction_hard.get(&Symbol::new(signal)).copied();
        match asked.unwrap_or(default) {
            EvictionThreshold::Amount(quantity) => quantity.units(),
            EvictionThreshold::Share(10_000..) => 0,
            EvictionThreshold::Share(share) => {
                let exact = i128::from(of.0) * i128::from(share);
                let rounded_up = exact / 10_000 + i128::from(exact % 10_000 != 0);
                i64::try_from(rounded_up).unwrap_or(i64::MAX)
            }
        }
    }

    fn extended(&self, facts: &TypeFacts) -> Resources {
        let mut pieces: Vec<(ResourceName, u32)> = Vec::new();
        if let Some(gpus) = facts.gpus {
            let name = match gpus.manufacturer.as_str() {
                "nvidia" => Some(*NVIDIA_GPU),
                "amd" => Some(*AMD_GPU),
                "habana" => Some(*GAUDI),
                _ => None,
            };
            pieces.extend(name.map(|name| (name, gpus.count)));
        }
        if let Some(devices) = facts.accelerators.filter(|devices| devices.manufacturer.as_str() == "aws") {
            pieces.push((*NEURON, devices.count));
            pieces.push((*NEURON_CORE, devices.count * devices.cores));
        }
        let efa = if self.interfaces.is_listed { self.interfaces.efa_only } else { facts.efa_interfaces };
        pieces.push((*EFA, efa));
        pieces.push((*POD_ENI, facts.branch_enis.unwrap_or(0)));
        if let Some(eni) = facts.eni.filter(|_| self.is_windows()) {
            pieces.push((*PRIVATE_IPV4, eni.ipv4_per_interface.saturating_sub(1)));
        }
        pieces
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name, i64::from(count)))
            .collect()
    }
}

impl Interfaces {
    fn of(spec: &Value) -> Self {
        let listed = spec.get("networkInterfaces").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let index = |entry: &Value, key: &str| {
            let number = entry.get(key).and_then(Value::as_u64).unwrap_or(0);
            u32::try_from(number).unwrap_or(u32::MAX)
        };
        let is_efa = |entry: &&Value| entry.get("interfaceType").and_then(Value::as_str) == Some("efa-only");
        let is_on_default_card = |entry: &&Value| index(entry, "networkCardIndex") == 0;
        let count = |entries: usize| u32::try_from(entries).unwrap_or(u32::MAX);
        let on_default_card = || listed.iter().filter(is_on_default_card);
        Self {
            is_listed: !listed.is_empty(),
            efa_only: count(listed.iter().filter(is_efa).count()),
            efa_only_on_default_card: count(on_default_card().filter(is_efa).count()),
            last_card: listed.iter().map(|entry| index(entry, "networkCardIndex")).max().unwrap_or(0),
            last_device: on_default_card().map(|entry| index(entry, "deviceIndex")).max().unwrap_or(0),
        }
    }
}

fn own_volumes(class: Option<&NodeClass>) -> u32 {
    let listed = class.and_then(|class| class.spec.get("blockDeviceMappings")?.as_array());
    // Bottlerocket has one for itself and one for pods.
    let default = if class.is_some_and(|class| class.ami_family == AmiFamily::Bottlerocket) { 2 } else { 1 };
    listed.map_or(default, |listed| u32::try_from(listed.len()).unwrap_or(u32::MAX).max(1))
}

fn amount(amounts: &BTreeMap<Symbol, Quantity>, name: ResourceName) -> Option<i64> {
    amounts.get(&name.0).map(|quantity| name.amount(*quantity))
}

/// Pods that have an address each: one address of every interface is the interface's own, and two pods use the host's.
fn pods_by_addresses(eni: EniLimits, taken: u32) -> u32 {
    match eni.interfaces.saturating_sub(taken) {
        0 => 0,
        usable => usable * eni.ipv4_per_interface.saturating_sub(1) + 2,
    }
}

/// Memory the kubelet keeps for itself: 255 MiB + 11 MiB per pod slot (`kubeReserved` of the EKS images).
fn kube_reserved_memory(pod_slots: i64) -> Bytes {
    Bytes::mebi(pod_slots.saturating_mul(11).saturating_add(255))
}

/// CPU the kubelet keeps for itself: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest,
/// each share cut to whole millicores.
fn kube_reserved_millicores(vcpu: u32) -> i64 {
    let millicores = i64::from(vcpu) * 1000;
    let share = |from: i64, to: i64, per_ten_thousand: i64| {
        (millicores.min(to) - from).max(0) * per_ten_thousand / 10_000
    };
    share(0, 1000, 600) + share(1000, 2000, 100) + share(2000, 4000, 50) + share(4000, i64::MAX, 25)
}
