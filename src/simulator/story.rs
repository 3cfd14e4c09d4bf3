//! What happened in a world, in order: for people to read and for two runs to be compared.

use jiff::Timestamp;

use crate::model::action::Notice;
use crate::model::money::UsdPerHour;
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName, ProviderId, TypeName, Zone};
use crate::model::offering::CapacityType;

#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    ClaimCreated {
        claim: ClaimName,
        pool: Option<PoolName>,
    },
    Launched {
        claim: ClaimName,
        instance: ProviderId,
        instance_type: TypeName,
        zone: Zone,
        capacity_type: CapacityType,
        price: UsdPerHour,
    },
    NoCapacity {
        claim: ClaimName,
        offerings: usize,
    },
    NodeJoined {
        node: NodeName,
        instance: ProviderId,
    },
    NodeReady {
        node: NodeName,
    },
    Bound {
        pod: ObjectKey,
        node: NodeName,
    },
    Scaled {
        workload: ObjectKey,
        from: u32,
        to: u32,
    },
    SpotWarning {
        instance: ProviderId,
        instance_type: TypeName,
        zone: Zone,
    },
    Shortage {
        offerings: usize,
        until: Timestamp,
    },
    ZoneLost {
        zone: Zone,
    },
    Evicted {
        pod: ObjectKey,
        node: Option<NodeName>,
    },
    Terminating {
        instance: ProviderId,
    },
    NodeGone {
        node: NodeName,
    },
    Notice(Notice),
}

impl Happening {
    /// A stable word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ClaimCreated { .. } => "ClaimCreated",
            Self::Launched { .. } => "Launched",
            Self::NoCapacity { .. } => "NoCapacity",
            Self::NodeJoined { .. } => "NodeJoined",
            Self::NodeReady { .. } => "NodeReady",
            Self::Bound { .. } => "Bound",
            Self::Scaled { .. } => "Scaled",
            Self::SpotWarning { .. } => "SpotWarning",
            Self::Shortage { .. } => "Shortage",
            Self::ZoneLost { .. } => "ZoneLost",
            Self::Evicted { .. } => "Evicted",
            Self::Terminating { .. } => "Terminating",
            Self::NodeGone { .. } => "NodeGone",
            Self::Notice(_) => "Notice",
        }
    }

    /// What it happened to.
    pub fn subject(&self) -> String {
        match self {
            Self::ClaimCreated { claim, .. }
            | Self::Launched { claim, .. }
            | Self::NoCapacity { claim, .. } => claim.to_string(),
            Self::NodeJoined { node, .. } | Self::NodeReady { node } | Self::NodeGone { node } => {
                node.to_string()
            }
            Self::Bound { pod, .. } | Self::Evicted { pod, .. } => pod.to_string(),
            Self::Scaled { workload, .. } => workload.to_string(),
            Self::SpotWarning { instance, .. } | Self::Terminating { instance } => {
                instance.instance().to_string()
            }
            Self::Shortage { .. } => "ec2".to_string(),
            Self::ZoneLost { zone } => zone.to_string(),
            Self::Notice(notice) => notice.subject.to_string(),
        }
    }

    /// A sentence for people.
    pub fn message(&self) -> String {
        match self {
            Self::ClaimCreated { pool, .. } => match pool {
                Some(pool) => format!("asked for by pool {pool}"),
                None => "asked for".to_string(),
            },
            Self::Launched { instance, instance_type, zone, capacity_type, price, .. } => {
                format!("{instance_type} in {zone}, {capacity_type}, ${price}/h ({})", instance.instance())
            }
            Self::NoCapacity { offerings, .. } => {
                format!("none of the {offerings} offerings asked for has capacity")
            }
            Self::NodeJoined { instance, .. } => format!("joined from {}", instance.instance()),
            Self::NodeReady { .. } => "ready".to_string(),
            Self::Bound { node, .. } => format!("bound to {node}"),
            Self::Scaled { from, to, .. } => format!("scaled from {from} to {to}"),
            Self::SpotWarning { instance_type, zone, .. } => {
                format!("EC2 takes this spot {instance_type} in {zone} back in two minutes")
            }
            Self::Shortage { offerings, until } => {
                format!("{offerings} offerings have no capacity until {until}")
            }
            Self::ZoneLost { .. } => "every machine of the zone is gone".to_string(),
            Self::Evicted { node, .. } => match node {
                Some(node) => format!("evicted from {node}"),
                None => "evicted".to_string(),
            },
            Self::Terminating { .. } => "told to end; billing stops".to_string(),
            Self::NodeGone { .. } => "gone".to_string(),
            Self::Notice(notice) => notice.message.to_string(),
        }
    }
}

/// All that happened so far.
#[derive(Clone, Debug, Default)]
pub struct Story(Vec<(Timestamp, Happening)>);

impl Story {
    pub(super) fn add(&mut self, at: Timestamp, happening: Happening) {
        self.0.push((at, happening));
    }

    pub fn iter(&self) -> impl Iterator<Item = &(Timestamp, Happening)> {
        self.0.iter()
    }

    /// What came after the first `seen` entries.
    pub fn since(&self, seen: usize) -> &[(Timestamp, Happening)] {
        self.0.get(seen..).unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count(&self, kind: &str) -> usize {
        self.0.iter().filter(|(_, happening)| happening.kind() == kind).count()
    }
}
