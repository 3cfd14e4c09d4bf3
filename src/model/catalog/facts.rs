//! An instance type as EC2 describes it, before any node class has a say.

use std::collections::BTreeMap;

use crate::model::money::UsdPerHour;
use crate::model::name::{TypeName, Zone};
use crate::model::offering::CapacityType;
use crate::model::symbol::Symbol;

/// Raw facts of a type, and for how much it is sold. A fact that is `None` is "EC2 says that there is none" in the built-in
/// catalogue, and "the file does not say" in a catalogue file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TypeFacts {
    pub name: TypeName,
    /// `amd64` or `arm64`, as Kubernetes says it.
    pub arch: Symbol,
    pub vcpus: u32,
    /// As EC2 advertises it: before hypervisor and kernel take their part.
    pub memory_mib: u64,
    /// Where it is sold.
    pub zones: Vec<Zone>,
    /// In US dollars an hour. A capacity type that is absent is not sold.
    pub prices: BTreeMap<CapacityType, UsdPerHour>,
    /// Where a zone differs from `prices`; `None`: not sold there that way.
    #[serde(with = "pairs")]
    pub zone_prices: BTreeMap<(Zone, CapacityType), Option<UsdPerHour>>,
    /// Whether the spot price is worked out from the on-demand price, because nobody recorded one.
    pub is_spot_estimated: bool,
    pub cpu_manufacturer: Option<Symbol>,
    pub cpu_clock_mhz: Option<u32>,
    /// `nitro` or `xen`; bare metal has none.
    pub hypervisor: Option<Symbol>,
    pub has_encryption_in_transit: bool,
    /// `None`: not known.
    pub has_nitro_enclaves: Option<bool>,
    /// At most, and only if optimised for EBS by default.
    pub ebs_bandwidth_mbps: Option<u32>,
    /// `None`: not known.
    pub ebs_attachments: Option<EbsAttachments>,
    /// The baseline.
    pub network_bandwidth_mbps: Option<u32>,
    pub eni: Option<EniLimits>,
    /// Network interfaces that a trunk can carry for pods with their own security groups; `None`: no trunk.
    pub branch_enis: Option<u32>,
    pub efa_interfaces: u32,
    /// All local disks together, in decimal gigabytes.
    pub instance_store_gb: Option<u32>,
    /// Those of them that are NVMe.
    pub local_nvme_gb: Option<u32>,
    pub gpus: Option<Gpus>,
    pub accelerators: Option<Accelerators>,
    /// `Some` for a row of a catalogue file, which states what is left for pods.
    pub stated: Option<Stated>,
}

impl TypeFacts {
    /// What a zone asks for it; `None`: not sold there that way.
    pub fn price(&self, zone: Zone, capacity_type: CapacityType) -> Option<UsdPerHour> {
        match self.zone_prices.get(&(zone, capacity_type)) {
            Some(price) => *price,
            None => self.prices.get(&capacity_type).copied().filter(|_| self.zones.contains(&zone)),
        }
    }

    /// Every way to buy it, cheapest first, then by zone and capacity type.
    pub(super) fn offers(&self) -> Vec<(UsdPerHour, Zone, CapacityType)> {
        let mut offers: Vec<_> = self
            .zones
            .iter()
            .flat_map(|zone| CapacityType::ALL.map(|capacity_type| (*zone, capacity_type)))
            .filter_map(|(zone, capacity_type)| {
                self.price(zone, capacity_type).map(|price| (price, zone, capacity_type))
            })
            .collect();
        offers.sort_unstable();
        offers
    }
}

/// What a catalogue file says is left for pods, in place of the formulas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stated {
    /// Thousandths of a core.
    pub cpu: Option<i64>,
    /// Bytes.
    pub memory: Option<i64>,
    pub pods: Option<i64>,
}

/// How many EBS volumes a machine can attach, that of its system included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EbsAttachments {
    pub count: u32,
    /// `false`: each network interface after the first takes the place of one.
    pub is_dedicated: bool,
}

/// Interfaces of the default network card, and addresses of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EniLimits {
    pub interfaces: u32,
    pub ipv4_per_interface: u32,
    pub network_cards: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Gpus {
    pub name: Symbol,
    /// `nvidia`, `amd` or `habana`.
    pub manufacturer: Symbol,
    /// Zero where a type has only a share of one.
    pub count: u32,
    /// Of each.
    pub memory_mib: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Accelerators {
    pub name: Symbol,
    pub manufacturer: Symbol,
    pub count: u32,
    /// Neuron cores of each; zero if it is no Neuron device.
    pub cores: u32,
}

/// What the name of a type says: `m7i-flex.large` is category `m`, family `m7i-flex`, generation `7`, size `large`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameParts<'a> {
    pub category: &'a str,
    pub family: &'a str,
    pub generation: &'a str,
    pub size: &'a str,
}

impl<'a> NameParts<'a> {
    /// `None` if the name is not built like one of EC2: letters, perhaps `-6tb` in between, digits, the rest, a dot, a size.
    pub fn of(name: &'a str) -> Option<Self> {
        let (family, size) = name.split_once('.')?;
        let is_word = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        let letters = family.find(|letter: char| !letter.is_ascii_lowercase())?;
        let (category, rest) = family.split_at(letters);
        // `u-6tb1`: how much memory, then the generation.
        let rest = match rest.strip_prefix('-').and_then(|memory| memory.split_once("tb")) {
            Some((amount, rest)) if amount.bytes().all(|byte| byte.is_ascii_digit()) => rest,
            _ => rest,
        };
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let generation = &rest[..digits];
        let is_named = !category.is_empty() && !generation.is_empty() && is_word(family) && is_word(size);
        is_named.then_some(Self { category, family, generation, size })
    }

    pub fn is_flex(&self) -> bool {
        self.family.contains("-flex")
    }
}

/// A map as a list of pairs, for forms whose keys are texts.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer, K: Serialize, V: Serialize>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, K: Deserialize<'de> + Ord, V: Deserialize<'de>>(
        from: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_category_family_generation_and_size() {
        let parts = |name| NameParts::of(name).map(|parts| (parts.category, parts.generation, parts.size));
        assert_eq!(parts("m7i-flex.large"), Some(("m", "7", "large")));
        assert_eq!(parts("u-6tb1.metal"), Some(("u", "1", "metal")));
        assert_eq!(parts("u7i-12tb.224xlarge"), Some(("u", "7", "224xlarge")));
        assert_eq!(parts("inf2.xlarge"), Some(("inf", "2", "xlarge")));
        assert_eq!(parts("mac-m4.metal"), None, "no digits follow the letters");
        for name in ["", "large", "m5", "m5.", ".large", "5m.large", "M5.large", "m5.x large"] {
            assert_eq!(parts(name), None, "{name}");
        }
    }
}
