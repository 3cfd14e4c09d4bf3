//! The labels that nodes of a type will have, as requirements (aws.md 3.4).
//!
//! Two kinds of catalogue speak differently of what they do not mention. The built-in one knows all about a type, so a label
//! that does not apply is `DoesNotExist`. A catalogue file knows little: a label that neither the name nor a column tells is
//! left out, and so agrees with whatever is asked.

use std::sync::LazyLock;

use super::facts::{NameParts, TypeFacts};
use crate::model::class::AmiFamily;
use crate::model::label;
use crate::model::name::Zone;
use crate::model::offering::Offering;
use crate::model::requirement::{Operator, Requirement, Requirements};
use crate::model::symbol::Symbol;

macro_rules! keys {
    ($($name:ident = $text:literal),* $(,)?) => {$(
        static $name: LazyLock<Symbol> = LazyLock::new(|| Symbol::new($text));
    )*};
}

keys! {
    CATEGORY = "karpenter.k8s.aws/instance-category",
    FAMILY = "karpenter.k8s.aws/instance-family",
    GENERATION = "karpenter.k8s.aws/instance-generation",
    SIZE = "karpenter.k8s.aws/instance-size",
    FLEX = "karpenter.k8s.aws/instance-capability-flex",
    CPU = "karpenter.k8s.aws/instance-cpu",
    CPU_MANUFACTURER = "karpenter.k8s.aws/instance-cpu-manufacturer",
    CPU_CLOCK = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz",
    MEMORY = "karpenter.k8s.aws/instance-memory",
    EBS_BANDWIDTH = "karpenter.k8s.aws/instance-ebs-bandwidth",
    NETWORK_BANDWIDTH = "karpenter.k8s.aws/instance-network-bandwidth",
    HYPERVISOR = "karpenter.k8s.aws/instance-hypervisor",
    ENCRYPTION = "karpenter.k8s.aws/instance-encryption-in-transit-supported",
    ENCLAVES = "karpenter.k8s.aws/instance-nitro-enclaves-supported",
    TENANCY = "karpenter.k8s.aws/instance-tenancy",
    LOCAL_NVME = "karpenter.k8s.aws/instance-local-nvme",
    GPU_NAME = "karpenter.k8s.aws/instance-gpu-name",
    GPU_MANUFACTURER = "karpenter.k8s.aws/instance-gpu-manufacturer",
    GPU_COUNT = "karpenter.k8s.aws/instance-gpu-count",
    GPU_MEMORY = "karpenter.k8s.aws/instance-gpu-memory",
    ACCELERATOR_NAME = "karpenter.k8s.aws/instance-accelerator-name",
    ACCELERATOR_MANUFACTURER = "karpenter.k8s.aws/instance-accelerator-manufacturer",
    ACCELERATOR_COUNT = "karpenter.k8s.aws/instance-accelerator-count",
    RESERVATION_TYPE = "karpenter.k8s.aws/capacity-reservation-type",
    RESERVATION_INTERRUPTIBLE = "karpenter.k8s.aws/capacity-reservation-interruptible",
    PLACEMENT_GROUP = "karpenter.k8s.aws/placement-group-id",
    PLACEMENT_PARTITION = "karpenter.k8s.aws/placement-group-partition",
    ZONE_ID = "topology.k8s.aws/zone-id",
}

fn one(value: impl std::fmt::Display) -> Requirement {
    Requirement::one(Symbol::new(&value.to_string()))
}

fn one_or_none(value: Option<impl std::fmt::Display>) -> Requirement {
    value.map_or_else(Requirement::nothing, one)
}

fn any_of(values: impl IntoIterator<Item = Symbol>) -> Requirement {
    Requirement::new(Operator::In, values)
}

/// Everything that EC2's description of a type tells, whatever the class.
pub(super) fn of_facts(facts: &TypeFacts, region: Symbol) -> Requirements {
    let mut labels = of_name_and_size(facts);
    let mut add = |key: &LazyLock<Symbol>, requirement| labels.replace(**key, requirement);
    add(&label::REGION, Requirement::one(region));
    add(&CPU_MANUFACTURER, one_or_none(facts.cpu_manufacturer));
    add(&CPU_CLOCK, one_or_none(facts.cpu_clock_mhz));
    add(&EBS_BANDWIDTH, one_or_none(facts.ebs_bandwidth_mbps));
    add(&NETWORK_BANDWIDTH, one_or_none(facts.network_bandwidth_mbps));
    // Bare metal is labelled with an empty hypervisor.
    add(&HYPERVISOR, one(facts.hypervisor.map_or("", Symbol::as_str)));
    add(&ENCRYPTION, one(facts.has_encryption_in_transit));
    add(&LOCAL_NVME, one_or_none(facts.local_nvme_gb));
    if let Some(has_enclaves) = facts.has_nitro_enclaves {
        add(&ENCLAVES, one(has_enclaves));
    }
    let gpus = facts.gpus;
    add(&GPU_NAME, one_or_none(gpus.map(|gpus| gpus.name)));
    add(&GPU_MANUFACTURER, one_or_none(gpus.map(|gpus| gpus.manufacturer)));
    add(&GPU_COUNT, one_or_none(gpus.map(|gpus| gpus.count)));
    add(&GPU_MEMORY, one_or_none(gpus.map(|gpus| gpus.memory_mib)));
    let devices = facts.accelerators;
    add(&ACCELERATOR_NAME, one_or_none(devices.map(|devices| devices.name)));
    add(&ACCELERATOR_MANUFACTURER, one_or_none(devices.map(|devices| devices.manufacturer)));
    add(&ACCELERATOR_COUNT, one_or_none(devices.map(|devices| devices.count)));
    for key in [&label::RESERVATION_ID, &RESERVATION_TYPE, &RESERVATION_INTERRUPTIBLE] {
        add(key, Requirement::nothing());
    }
    labels
}

/// What a row of a catalogue file tells: the name, the size, and whether there are GPUs and Neuron devices. `known` is the
/// type of that name in the built-in catalogue, which names the GPU.
pub(super) fn of_row(facts: &TypeFacts, region: Option<Symbol>, known: Option<&TypeFacts>) -> Requirements {
    let mut labels = of_name_and_size(facts);
    let mut add = |key: &LazyLock<Symbol>, requirement| labels.replace(**key, requirement);
    if let Some(region) = region {
        add(&label::REGION, Requirement::one(region));
    }
    match facts.gpus {
        Some(gpus) => {
            add(&GPU_COUNT, one(gpus.count));
            add(&GPU_MANUFACTURER, one(gpus.manufacturer));
            if let Some(known) = known.and_then(|known| known.gpus) {
                add(&GPU_NAME, one(known.name));
            }
        }
        None => {
            for key in [&GPU_NAME, &GPU_MANUFACTURER, &GPU_COUNT] {
                add(key, Requirement::nothing());
            }
        }
    }
    match facts.accelerators {
        Some(devices) => {
            add(&ACCELERATOR_COUNT, one(devices.count));
            add(&ACCELERATOR_MANUFACTURER, one(devices.manufacturer));
            if let Some(known) = known.and_then(|known| known.accelerators) {
                add(&ACCELERATOR_NAME, one(known.name));
            }
        }
        None => {
            for key in [&ACCELERATOR_NAME, &ACCELERATOR_MANUFACTURER, &ACCELERATOR_COUNT] {
                add(key, Requirement::nothing());
            }
        }
    }
    labels
}

fn of_name_and_size(facts: &TypeFacts) -> Requirements {
    let mut labels = Requirements::new();
    let mut add = |key: &LazyLock<Symbol>, requirement| labels.replace(**key, requirement);
    // Machines are launched with shared tenancy and into no placement group; ids of zones are an account's own.
    add(&TENANCY, one("default"));
    for key in [&ZONE_ID, &PLACEMENT_GROUP, &PLACEMENT_PARTITION] {
        add(key, Requirement::nothing());
    }
    add(&label::INSTANCE_TYPE, Requirement::one(facts.name.0));
    add(&label::ARCH, Requirement::one(facts.arch));
    add(&CPU, one(facts.vcpus));
    add(&MEMORY, one(facts.memory_mib));
    if let Some(parts) = NameParts::of(facts.name.as_str()) {
        add(&CATEGORY, one(parts.category));
        add(&FAMILY, one(parts.family));
        add(&GENERATION, one(parts.generation));
        add(&SIZE, one(parts.size));
        add(&FLEX, one(parts.is_flex()));
    }
    labels
}

/// Operating system, zones and capacity types: what the class and the offerings say.
pub(super) fn add_class_dependent(
    labels: &mut Requirements,
    offerings: &[Offering],
    is_reachable: impl Fn(&Zone) -> bool,
    family: AmiFamily,
) {
    let build = windows_build(family);
    let system = if build.is_some() { "windows" } else { "linux" };
    labels.replace(*label::OS, one(system));
    labels.replace(*label::WINDOWS_BUILD, one_or_none(build));
    let zones = offerings.iter().map(|offering| offering.zone).filter(is_reachable).map(|zone| zone.0);
    labels.replace(*label::ZONE, any_of(zones));
    let ways = offerings.iter().map(|offering| offering.capacity_type.symbol());
    labels.replace(*label::CAPACITY_TYPE, any_of(ways));
}

fn windows_build(family: AmiFamily) -> Option<&'static str> {
    match family {
        AmiFamily::Windows2019 => Some("10.0.17763"),
        AmiFamily::Windows2022 => Some("10.0.20348"),
        AmiFamily::Windows2025 => Some("10.0.26100"),
        AmiFamily::Al2 | AmiFamily::Al2023 | AmiFamily::Bottlerocket | AmiFamily::Custom => None,
    }
}
