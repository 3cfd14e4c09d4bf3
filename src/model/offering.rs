//! An instance type as the scheduler sees it, and the ways to buy it.

use std::fmt;
use std::sync::{Arc, LazyLock};

use super::label::{self, Labels};
use super::money::UsdPerHour;
use super::name::{TypeName, Zone};
use super::quantity::Resources;
use super::requirement::{Requirement, Requirements};
use super::symbol::Symbol;

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    Reserved,
    Spot,
    OnDemand,
}

impl CapacityType {
    pub const ALL: [Self; 3] = [Self::Reserved, Self::Spot, Self::OnDemand];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    pub fn symbol(self) -> Symbol {
        static SYMBOLS: LazyLock<[Symbol; 3]> =
            LazyLock::new(|| CapacityType::ALL.map(|kind| Symbol::new(kind.as_str())));
        SYMBOLS[self as usize]
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

/// A capacity reservation that an offering draws on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reservation {
    pub id: Symbol,
    /// Instances that it still has room for.
    pub remaining: u32,
}

/// One way to buy an instance type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offering {
    pub zone: Zone,
    pub capacity_type: CapacityType,
    pub price: UsdPerHour,
    /// `false` while EC2 says that it has none.
    pub is_available: bool,
    pub reservation: Option<Reservation>,
}

impl Offering {
    /// What a node bought this way is labelled with.
    pub fn requirements(&self) -> Requirements {
        let mut requirements = Requirements::new();
        requirements.add(*label::ZONE, Requirement::one(self.zone.0));
        requirements.add(*label::CAPACITY_TYPE, Requirement::one(self.capacity_type.symbol()));
        if let Some(reservation) = self.reservation {
            requirements.add(*label::RESERVATION_ID, Requirement::one(reservation.id));
        }
        requirements
    }
}

/// A machine shape as one node class would boot it: the same EC2 type may hold fewer pods under another class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceType {
    pub name: TypeName,
    /// The label values that a node of this type can have. A label of the provider that the type lacks is `DoesNotExist`.
    /// Shared by the copies of a type that pools keep, which differ in what they may buy.
    pub requirements: Arc<Requirements>,
    pub capacity: Resources,
    /// `capacity` less what kubelet and system keep: what pods and daemons share.
    pub allocatable: Resources,
    /// The volumes of pods that it can attach, by CSI driver. A driver that is not listed has no limit, or none is known.
    pub volumes_max: Vec<(Symbol, u32)>,
    /// Ordered by price, then zone, then capacity type.
    pub offerings: Vec<Offering>,
}

impl InstanceType {
    /// Its cheapest available offering that `requirements` allow.
    pub fn cheapest(&self, requirements: &Requirements) -> Option<&Offering> {
        self.offerings
            .iter()
            .filter(|offering| offering.is_available && offering.suits(requirements))
            .min_by_key(|offering| (offering.price, offering.capacity_type, offering.zone))
    }

    /// What a node of this type is labelled with that was bought to meet `wanted`. What the catalogue does not tell of the type
    /// was taken to be as wanted when it was chosen, and so it stays: without the label the machine would have drifted at once,
    /// and so would the next.
    pub fn labels_for(&self, wanted: &Requirements) -> Labels {
        let own = self.requirements.iter().filter_map(|(key, values)| Some((key, values.single()?)));
        let open = wanted.iter().filter(|(key, wanted)| {
            self.requirements.get(*key).is_none() && label::is_well_known(*key) && !wanted.accepts_absence()
        });
        own.chain(open.filter_map(|(key, wanted)| Some((key, wanted.some_value()?)))).collect()
    }
}

impl Offering {
    /// Whether a node with `requirements` may be bought this way.
    pub fn suits(&self, requirements: &Requirements) -> bool {
        let allows = |key: Symbol, value: Symbol| requirements.get(key).is_none_or(|asked| asked.has(value));
        allows(*label::ZONE, self.zone.0)
            && allows(*label::CAPACITY_TYPE, self.capacity_type.symbol())
            && match self.reservation {
                Some(reservation) => allows(*label::RESERVATION_ID, reservation.id),
                None => requirements.get(*label::RESERVATION_ID).is_none_or(Requirement::accepts_absence),
            }
    }
}
