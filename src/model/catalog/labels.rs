//! The label values that nodes of a type can have (aws.md 3.4). A provider label that is known not to apply is
//! `DoesNotExist`; one about which nothing is known is left out and so agrees with anything.

use crate::model::class::AmiFamily;
use crate::model::label;
use crate::model::name::Zone;
use crate::model::requirement::{Operator, Requirement, Requirements};
use crate::model::symbol::Symbol;

use super::capacity::{Boot, is_windows};
use super::facts::{Capability, TypeFacts};

pub(super) fn of(facts: &TypeFacts, region: &str, zones: &[Zone], boot: &Boot) -> Requirements {
    let mut labels = Requirements::new();
    let one = |value: &str| Requirement::one(Symbol::new(value));
    let os = if is_windows(boot.family) { "windows" } else { "linux" };
    labels.add(*label::INSTANCE_TYPE, Requirement::one(facts.name.0));
    labels.add(*label::ARCH, Requirement::one(facts.arch));
    labels.add(*label::OS, one(os));
    labels.add(*label::REGION, one(region));
    labels.add(*label::ZONE, Requirement::new(Operator::In, zones.iter().map(|zone| zone.0)));
    let sold = facts.prices.keys().map(|capacity_type| capacity_type.symbol());
    labels.add(*label::CAPACITY_TYPE, Requirement::new(Operator::In, sold));
    let build = match boot.family {
        AmiFamily::Windows2019 => one("10.0.17763"),
        AmiFamily::Windows2022 => one("10.0.20348"),
        AmiFamily::Windows2025 => one("10.0.26100"),
        _ => Requirement::nothing(),
    };
    labels.add(*label::WINDOWS_BUILD, build);

    let mut set = |name: &str, value: Option<String>| {
        let requirement = value.map_or_else(Requirement::nothing, |value| one(&value));
        labels.add(Symbol::new(&format!("karpenter.k8s.aws/{name}")), requirement);
    };
    set("instance-category", Some(facts.category().to_string()));
    set("instance-family", Some(facts.family().to_string()));
    set("instance-generation", facts.generation().map(|generation| generation.to_string()));
    set("instance-size", Some(facts.size().to_string()));
    set("instance-capability-flex", Some(facts.family().contains("-flex").to_string()));
    set("instance-cpu", Some(facts.vcpus.to_string()));
    set("instance-memory", Some(facts.memory_mib.to_string()));
    set("instance-gpu-count", facts.gpu.map(|gpu| gpu.count.to_string()));
    set("instance-gpu-manufacturer", facts.gpu.map(|gpu| gpu.manufacturer.to_string()));
    if facts.gpu.is_none_or(|gpu| gpu.name.is_some()) {
        set("instance-gpu-name", facts.gpu.and_then(|gpu| gpu.name).map(|name| name.to_string()));
        set("instance-gpu-memory", facts.gpu.and_then(|gpu| gpu.memory_mib).map(|memory| memory.to_string()));
    }
    set("instance-accelerator-count", facts.accelerator.map(|device| device.count.to_string()));
    set("instance-accelerator-manufacturer", facts.accelerator.map(|device| device.manufacturer.to_string()));
    if facts.accelerator.is_none_or(|device| device.name.is_some()) {
        set(
            "instance-accelerator-name",
            facts.accelerator.and_then(|device| device.name).map(|name| name.to_string()),
        );
    }
    if let Capability::Described {
        cpu_manufacturer,
        cpu_clock_mhz,
        hypervisor,
        encrypts_in_transit,
        ebs_mbps,
        network_mbps,
        local_nvme_gib,
        ..
    } = &facts.details
    {
        set("instance-cpu-manufacturer", Some(cpu_manufacturer.to_string()));
        set("instance-cpu-sustained-clock-speed-mhz", cpu_clock_mhz.map(|clock| clock.to_string()));
        set("instance-hypervisor", Some(hypervisor.to_string()));
        set("instance-encryption-in-transit-supported", Some(encrypts_in_transit.to_string()));
        set("instance-ebs-bandwidth", ebs_mbps.map(|rate| rate.to_string()));
        set("instance-network-bandwidth", network_mbps.map(|rate| rate.to_string()));
        set("instance-local-nvme", local_nvme_gib.map(|size| size.to_string()));
        set("instance-tenancy", Some("default".to_string()));
    }
    labels.add(*label::RESERVATION_ID, Requirement::nothing());
    labels
}
