//! One instance type as EC2 describes it.

use std::collections::BTreeMap;

use crate::model::money::UsdPerHour;
use crate::model::name::{TypeName, Zone};
use crate::model::offering::CapacityType;
use crate::model::quantity::Resources;
use crate::model::symbol::Symbol;

/// What is known about a type. An absent fact is unknown, unless its documentation says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeFacts {
    pub name: TypeName,
    /// `amd64` or `arm64`.
    pub arch: Symbol,
    pub vcpus: u32,
    /// As EC2 advertises it: before hypervisor and kernel take their part.
    pub memory_mib: u64,
    pub zones: Vec<Zone>,
    /// In US dollars an hour. A capacity type that is absent is not sold.
    pub prices: BTreeMap<CapacityType, UsdPerHour>,
    /// Whether the spot price is a guess from types of the same category, because no dated price was at hand.
    pub is_spot_estimated: bool,
    /// `None` without a GPU.
    pub gpu: Option<Gpu>,
    /// `None` without an accelerator that is no GPU.
    pub accelerator: Option<Accelerator>,
    pub details: Capability,
}

/// How much is known beyond processors, memory and devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Described by EC2.
    Described {
        nics: Nics,
        cpu_manufacturer: Symbol,
        cpu_clock_mhz: Option<u32>,
        /// `nitro`, `xen`, or empty for bare metal.
        hypervisor: Symbol,
        encrypts_in_transit: bool,
        ebs_mbps: Option<u64>,
        network_mbps: Option<u64>,
        /// Size of all local NVMe disks; `None` without one.
        local_nvme_gib: Option<u64>,
        efa_interfaces: u32,
        /// Branch interfaces for security groups of pods; 0 if the type cannot trunk.
        branch_interfaces: u32,
    },
    /// Given by a file with what is left for pods; everything else is unknown.
    Given { allocatable: Resources },
}

/// How many pods can have an address of the VPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nics {
    /// Interfaces of the default network card, and IPv4 addresses of each.
    Limits { interfaces: u32, addresses: u32 },
    /// No limits are published, but the number of pods is.
    Pods(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// `None`: unknown.
    pub name: Option<Symbol>,
    /// `nvidia`, `amd` or `habana`.
    pub manufacturer: Symbol,
    pub count: u32,
    /// Of each.
    pub memory_mib: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accelerator {
    pub name: Option<Symbol>,
    pub manufacturer: Symbol,
    pub count: u32,
    /// Neuron devices among them.
    pub neuron_devices: u32,
}

impl TypeFacts {
    /// The letters a name starts with: `m` of `m7i.large`.
    pub fn category(&self) -> &'static str {
        let name = self.name.as_str();
        &name[..name.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(name.len())]
    }

    /// Before the dot: `m7i`.
    pub fn family(&self) -> &'static str {
        self.name.as_str().split_once('.').map_or(self.name.as_str(), |(family, _)| family)
    }

    /// After the dot: `large`; empty without one.
    pub fn size(&self) -> &'static str {
        self.name.as_str().split_once('.').map_or("", |(_, size)| size)
    }

    /// The digits after the category: 7 of `m7i`. In `u-6tb1` the terabytes are skipped. `None` without digits.
    pub fn generation(&self) -> Option<u32> {
        let rest = &self.family()[self.category().len()..];
        let rest = match rest.strip_prefix('-').and_then(|rest| rest.split_once("tb")) {
            Some((terabytes, rest)) if terabytes.bytes().all(|byte| byte.is_ascii_digit()) => rest,
            _ => rest,
        };
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> TypeFacts {
        TypeFacts {
            name: TypeName::new(name),
            arch: "amd64".into(),
            vcpus: 2,
            memory_mib: 8192,
            zones: Vec::new(),
            prices: BTreeMap::new(),
            is_spot_estimated: false,
            gpu: None,
            accelerator: None,
            details: Capability::Given { allocatable: Resources::new() },
        }
    }

    #[test]
    fn a_name_tells_category_family_generation_and_size() {
        for (name, category, family, generation, size) in [
            ("m7i.large", "m", "m7i", 7, "large"),
            ("m7i-flex.8xlarge", "m", "m7i-flex", 7, "8xlarge"),
            ("g4dn.12xlarge", "g", "g4dn", 4, "12xlarge"),
            ("u-6tb1.metal", "u", "u-6tb1", 1, "metal"),
            ("u7i-12tb.224xlarge", "u", "u7i-12tb", 7, "224xlarge"),
            ("inf2.xlarge", "inf", "inf2", 2, "xlarge"),
            ("c8gd.metal-24xl", "c", "c8gd", 8, "metal-24xl"),
        ] {
            let facts = named(name);
            assert_eq!((facts.category(), facts.family(), facts.size()), (category, family, size), "{name}");
            assert_eq!(facts.generation(), Some(generation), "{name}");
        }
    }
}
