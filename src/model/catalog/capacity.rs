//! How much a node of a type holds, and how much of it is left for pods: the formulas of EKS images (aws.md 3.2, 3.3).

use crate::model::class::{AmiFamily, EvictionThreshold, InstanceStorePolicy, KubeletSettings, NodeClass};
use crate::model::name::Zone;
use crate::model::quantity::{Bytes, Quantity, ResourceName, Resources, resource};
use crate::model::symbol::Symbol;

use super::facts::{Capability, Nics, TypeFacts};

/// Share of the advertised memory that the hypervisor and the firmware keep: 7.5 %, Karpenter's
/// `VM_MEMORY_OVERHEAD_PERCENT`, in thousandths.
const VM_OVERHEAD_PERMILLE: i64 = 75;
/// Pods of a node whose network does not limit them.
const PODS_WITHOUT_LIMIT: u32 = 110;
/// What the kubelet keeps for evictions unless told otherwise.
const EVICTION_MEMORY: Bytes = Bytes::mebi(100);

/// What a node class says about how its nodes boot, with defaults filled in.
#[derive(Clone, Debug)]
pub(super) struct Boot {
    pub family: AmiFamily,
    kubelet: KubeletSettings,
    root_volume: Bytes,
    instance_store: InstanceStorePolicy,
    /// Empty: every zone.
    zones: Vec<Zone>,
}

impl Boot {
    pub fn of(class: Option<&NodeClass>) -> Self {
        let family = class.map_or(AmiFamily::Al2023, |class| class.ami_family);
        let default_root = if is_windows(family) { Bytes::gibi(50) } else { Bytes::gibi(20) };
        Self {
            family,
            kubelet: class.map(|class| class.kubelet.clone()).unwrap_or_default(),
            root_volume: class.and_then(|class| class.root_volume).unwrap_or(default_root),
            instance_store: class.map(|class| class.instance_store).unwrap_or_default(),
            zones: class.map(|class| class.zones.clone()).unwrap_or_default(),
        }
    }

    pub fn reaches(&self, zone: Zone) -> bool {
        self.zones.is_empty() || self.zones.contains(&zone)
    }

    /// Whether the image can boot on the type: AL2023 does not run on the first Graviton.
    pub fn suits(&self, facts: &TypeFacts) -> bool {
        !(self.family == AmiFamily::Al2023 && facts.family() == "a1")
    }
}

pub(super) fn is_windows(family: AmiFamily) -> bool {
    matches!(family, AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025)
}

/// Capacity and allocatable of a type under a class.
pub(super) fn of(facts: &TypeFacts, boot: &Boot) -> (Resources, Resources) {
    match &facts.details {
        Capability::Given { allocatable } => given(facts, allocatable, boot),
        Capability::Described { .. } => described(facts, boot),
    }
}

/// A type of a file: what is left for pods is stated, only the number of pods follows the class.
fn given(facts: &TypeFacts, allocatable: &Resources, boot: &Boot) -> (Resources, Resources) {
    let mut allocatable = allocatable.clone();
    let pods = cap_pods(allocatable.pods(), facts, boot);
    allocatable.set(*resource::PODS, pods);
    let mut capacity = allocatable.clone();
    capacity.set(*resource::CPU, i64::from(facts.vcpus) * 1000);
    capacity.set(*resource::MEMORY, Bytes::mebi(facts.memory_mib as i64).0);
    if allocatable.listed(*resource::EPHEMERAL_STORAGE).is_none() {
        capacity.set(*resource::EPHEMERAL_STORAGE, boot.root_volume.0);
        let kept = storage_overhead(boot.root_volume.0, boot);
        allocatable.set(*resource::EPHEMERAL_STORAGE, boot.root_volume.0 - kept);
    }
    (capacity, allocatable)
}

fn cap_pods(limit: i64, facts: &TypeFacts, boot: &Boot) -> i64 {
    let mut pods = boot.kubelet.max_pods.map_or(limit, |most| limit.min(i64::from(most)));
    if let Some(density) = boot.kubelet.pods_per_core.filter(|density| *density > 0 && honours_density(boot))
    {
        pods = pods.min(i64::from(density) * i64::from(facts.vcpus));
    }
    pods
}

/// Bottlerocket's settings have no pods per core.
fn honours_density(boot: &Boot) -> bool {
    boot.family != AmiFamily::Bottlerocket
}

fn described(facts: &TypeFacts, boot: &Boot) -> (Resources, Resources) {
    let Capability::Described { nics, local_nvme_gib, efa_interfaces, branch_interfaces, .. } =
        &facts.details
    else {
        unreachable!("only described types come here");
    };
    let address_pods = match nics {
        Nics::Limits { interfaces: 0, .. } => 0,
        Nics::Limits { interfaces, addresses } => interfaces * addresses.saturating_sub(1) + 2,
        Nics::Pods(pods) => *pods,
    };
    let usual_pods = if is_windows(boot.family) { PODS_WITHOUT_LIMIT } else { address_pods };
    let pods = match boot.kubelet.max_pods {
        Some(most) => i64::from(most),
        None => i64::from(usual_pods),
    };
    let pods = match boot.kubelet.pods_per_core.filter(|density| *density > 0 && honours_density(boot)) {
        Some(density) => pods.min(i64::from(density) * i64::from(facts.vcpus)),
        None => pods,
    };

    let mut capacity = Resources::new();
    let put = |capacity: &mut Resources, name: &str, amount: i64| {
        if amount > 0 {
            capacity.set(ResourceName::new(name), amount);
        }
    };
    capacity.set(*resource::CPU, i64::from(facts.vcpus) * 1000);
    capacity.set(*resource::MEMORY, usable_memory(facts).0);
    capacity.set(*resource::PODS, pods);
    let storage = match (boot.instance_store, local_nvme_gib) {
        (InstanceStorePolicy::Raid0, Some(gib)) => (*gib as i64) * 1_000_000_000,
        _ => boot.root_volume.0,
    };
    capacity.set(*resource::EPHEMERAL_STORAGE, storage);
    if let Some(gpu) = facts.gpu {
        let name = match gpu.manufacturer.as_str() {
            "amd" => "amd.com/gpu",
            "habana" => "habana.ai/gaudi",
            _ => "nvidia.com/gpu",
        };
        put(&mut capacity, name, i64::from(gpu.count));
    }
    if let Some(accelerator) = facts.accelerator {
        put(&mut capacity, "aws.amazon.com/neuron", i64::from(accelerator.neuron_devices));
    }
    put(&mut capacity, "vpc.amazonaws.com/efa", i64::from(*efa_interfaces));
    put(&mut capacity, "vpc.amazonaws.com/pod-eni", i64::from(*branch_interfaces));

    // The images of these families compute the reservation from the addresses, whatever `maxPods` says.
    let counts_addresses = matches!(boot.family, AmiFamily::Al2 | AmiFamily::Al2023 | AmiFamily::Custom);
    let reserved_pods = if counts_addresses { i64::from(address_pods) } else { pods };
    let mut allocatable = capacity.clone();
    allocatable.subtract(&overhead(facts, boot, &capacity, reserved_pods));
    (capacity, allocatable)
}

/// Advertised memory, less 64 MiB on arm64, less the hypervisor's share rounded up to a MiB.
fn usable_memory(facts: &TypeFacts) -> Bytes {
    let advertised = facts.memory_mib as i64 - if &*facts.arch == "arm64" { 64 } else { 0 };
    let overhead = (advertised * VM_OVERHEAD_PERMILLE + 999) / 1000;
    Bytes::mebi(advertised - overhead)
}

/// What kubelet, system and eviction threshold keep.
fn overhead(facts: &TypeFacts, boot: &Boot, capacity: &Resources, reserved_pods: i64) -> Resources {
    let reserved =
        |settings: &std::collections::BTreeMap<Symbol, Quantity>, name: ResourceName, usual: i64| {
            settings.get(&name.0).map_or(usual, |quantity| name.amount(*quantity))
        };
    let kubelet = &boot.kubelet;
    let mut kept = Resources::new();
    let usual_memory = Bytes::mebi(11 * reserved_pods + 255).0;
    for (name, usual) in [
        (*resource::CPU, reserved_cpu(facts.vcpus)),
        (*resource::MEMORY, usual_memory),
        (*resource::EPHEMERAL_STORAGE, Bytes::gibi(1).0),
    ] {
        kept.set(
            name,
            reserved(&kubelet.kube_reserved, name, usual) + reserved(&kubelet.system_reserved, name, 0),
        );
    }
    let memory = capacity.get(*resource::MEMORY);
    let eviction = threshold(kubelet, "memory.available", memory).unwrap_or(EVICTION_MEMORY.0);
    kept.set(*resource::MEMORY, kept.get(*resource::MEMORY) + eviction);
    let storage = capacity.get(*resource::EPHEMERAL_STORAGE);
    let eviction = threshold(kubelet, "nodefs.available", storage).unwrap_or((storage + 9) / 10);
    kept.set(*resource::EPHEMERAL_STORAGE, kept.get(*resource::EPHEMERAL_STORAGE) + eviction);
    kept
}

fn storage_overhead(storage: i64, boot: &Boot) -> i64 {
    Bytes::gibi(1).0 + threshold(&boot.kubelet, "nodefs.available", storage).unwrap_or((storage + 9) / 10)
}

/// A hard eviction threshold in bytes; `100%` switches the signal off. Soft thresholds reserve nothing.
fn threshold(kubelet: &KubeletSettings, signal: &str, capacity: i64) -> Option<i64> {
    match kubelet.eviction_hard.get(&Symbol::new(signal))? {
        EvictionThreshold::Amount(quantity) => Some(quantity.units()),
        EvictionThreshold::Share(10_000) => Some(0),
        EvictionThreshold::Share(share) => Some(
            (capacity / 10_000) * i64::from(*share)
                + (capacity % 10_000 * i64::from(*share) + 9_999) / 10_000,
        ),
    }
}

/// Millicores that the kubelet keeps: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.
fn reserved_cpu(vcpus: u32) -> i64 {
    let total = i64::from(vcpus) * 1000;
    let band = |from: i64, to: i64, per_hundred_thousand: i64| {
        (total.min(to) - from).max(0) * per_hundred_thousand / 100_000
    };
    band(0, 1000, 6000) + band(1000, 2000, 1000) + band(2000, 4000, 500) + band(4000, i64::MAX, 250)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_keeps_a_falling_share_of_cores() {
        for (vcpus, kept) in [(1, 60), (2, 70), (4, 80), (8, 90), (16, 110), (96, 310)] {
            assert_eq!(reserved_cpu(vcpus), kept, "{vcpus} vCPUs");
        }
    }
}
