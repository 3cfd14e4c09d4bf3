//! Why a pod has no place: one stable word and one sentence per pool.
//!
//! The solver refuses far more often than anybody asks why, so a refusal is kept as facts and becomes a sentence only
//! for the pods that are left over.

use std::fmt;
use std::sync::Arc;

use super::topology::RuleId;
use super::volumes::VolumeFault;
use crate::model::label;
use crate::model::name::PoolName;
use crate::model::near::nearest;
use crate::model::quantity::Resources;
use crate::model::requirement::{Conflict, Requirements};
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;

/// What stands in the way, as a word that never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub enum Code {
    // The pod itself.
    AvoidsManagedNodes,
    RestrictedLabel,
    InvalidRequirement,
    FieldSelector,
    VolumeNotUsable,
    NeedsDevices,
    // The pools as a whole.
    NoUsablePool,
    PoolNotReady,
    PoolWithoutTypes,
    // One pool.
    TaintNotTolerated,
    LabelNotDefined,
    RequirementsConflict,
    VolumeElsewhere,
    HostPortTaken,
    TopologySpread,
    PodAffinity,
    PodAntiAffinity,
    NoTypeMatchesRequirements,
    ResourcesExceedEveryType,
    NoOfferingAvailable,
    NoTypeMatchesEverything,
    MinValuesNotMet,
    LimitReached,
    ReservedCapacityWaits,
}

impl Code {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AvoidsManagedNodes => "AvoidsManagedNodes",
            Self::RestrictedLabel => "RestrictedLabel",
            Self::InvalidRequirement => "InvalidRequirement",
            Self::FieldSelector => "FieldSelector",
            Self::VolumeNotUsable => "VolumeNotUsable",
            Self::NeedsDevices => "NeedsDevices",
            Self::NoUsablePool => "NoUsablePool",
            Self::PoolNotReady => "PoolNotReady",
            Self::PoolWithoutTypes => "PoolWithoutTypes",
            Self::TaintNotTolerated => "TaintNotTolerated",
            Self::LabelNotDefined => "LabelNotDefined",
            Self::RequirementsConflict => "RequirementsConflict",
            Self::VolumeElsewhere => "VolumeElsewhere",
            Self::HostPortTaken => "HostPortTaken",
            Self::TopologySpread => "TopologySpread",
            Self::PodAffinity => "PodAffinity",
            Self::PodAntiAffinity => "PodAntiAffinity",
            Self::NoTypeMatchesRequirements => "NoTypeMatchesRequirements",
            Self::ResourcesExceedEveryType => "ResourcesExceedEveryType",
            Self::NoOfferingAvailable => "NoOfferingAvailable",
            Self::NoTypeMatchesEverything => "NoTypeMatchesEverything",
            Self::MinValuesNotMet => "MinValuesNotMet",
            Self::LimitReached => "LimitReached",
            Self::ReservedCapacityWaits => "ReservedCapacityWaits",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

/// Why one pool, or (`None`) every pool, does not take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub pool: Option<PoolName>,
    pub code: Code,
    pub message: String,
}

impl Refusal {
    /// `its nodes carry taint gpu (gpu, ml); the pool may have no more nodes (web)`: pools that say the same together.
    pub fn tell(reasons: &[Self]) -> String {
        let mut said: Vec<(&str, Vec<PoolName>)> = Vec::new();
        for reason in reasons {
            match said.iter_mut().find(|(message, _)| *message == reason.message) {
                Some((_, pools)) => pools.extend(reason.pool),
                None => said.push((&reason.message, reason.pool.into_iter().collect())),
            }
        }
        let sentence = |(message, pools): &(&str, Vec<PoolName>)| match &pools[..] {
            [] => (*message).to_owned(),
            pools => {
                let pools: Vec<String> = pools.iter().map(ToString::to_string).collect();
                format!("{message} ({})", pools.join(", "))
            }
        };
        said.iter().map(sentence).collect::<Vec<_>>().join("; ")
    }
}

/// Which rule of topology has no domain left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopologyRule {
    Spread,
    Affinity,
    AntiAffinity,
    /// Another pod's anti-affinity.
    Shunned,
    /// Each rule has a domain, but no domain suits all of them.
    Together,
}

/// A refusal as facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Taint(Taint),
    Requirements(Conflict),
    Volume(Conflict),
    VolumeFault(VolumeFault),
    HostPort(u16),
    DaemonPort(u16),
    /// What an existing node has left is not enough. Nobody asks a node why.
    NodeFull,
    Topology {
        rule: TopologyRule,
        key: Symbol,
        /// The rule, if it is one; and pods by domain once somebody wants to know.
        group: Option<RuleId>,
        domains: Vec<(Symbol, i64)>,
    },
    Types(Arc<NoTypes>),
    /// Refused in every domain that topology leaves; it may leave others later.
    InDomain(Box<Refused>),
    MinValues {
        key: Symbol,
        wanted: u32,
        found: u32,
    },
    NodesLimit,
    Limits,
    Reserved,
    Devices,
}

/// Why no instance type is left, by the smallest set of criteria that rules out every one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoTypes {
    pub code: Code,
    pub requirements: Requirements,
    /// With daemons: the least and the most that a type of the pool would have to hold.
    pub requests: (Resources, Resources),
}

impl Refused {
    /// Whether nothing that happens later in the same solve can lift it for the same node: room and requirements only
    /// ever shrink, while counts of pods by domain move both ways, and reservations may be given back.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Topology { .. } | Self::InDomain(_) | Self::Reserved)
    }

    fn code(&self) -> Code {
        match self {
            Self::Taint(_) => Code::TaintNotTolerated,
            Self::Requirements(Conflict::Undefined { .. }) => Code::LabelNotDefined,
            Self::Requirements(Conflict::Contradiction { .. } | Conflict::Disjoint { .. }) => {
                Code::RequirementsConflict
            }
            Self::Volume(_) => Code::VolumeElsewhere,
            Self::VolumeFault(_) => Code::VolumeNotUsable,
            Self::HostPort(_) | Self::DaemonPort(_) => Code::HostPortTaken,
            Self::NodeFull => Code::ResourcesExceedEveryType,
            Self::Topology { rule, .. } => match rule {
                TopologyRule::Spread | TopologyRule::Together => Code::TopologySpread,
                TopologyRule::Affinity => Code::PodAffinity,
                TopologyRule::AntiAffinity | TopologyRule::Shunned => Code::PodAntiAffinity,
            },
            Self::Types(none) => none.code,
            Self::InDomain(refused) => refused.code(),
            Self::MinValues { .. } => Code::MinValuesNotMet,
            Self::NodesLimit | Self::Limits => Code::LimitReached,
            Self::Reserved => Code::ReservedCapacityWaits,
            Self::Devices => Code::NeedsDevices,
        }
    }

    pub fn of_pool(&self, pool: PoolName) -> Refusal {
        Refusal { pool: Some(pool), code: self.code(), message: self.to_string() }
    }

    pub fn of_every_pool(&self) -> Refusal {
        Refusal { pool: None, code: self.code(), message: self.to_string() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taint(taint) => write!(out, "its nodes carry taint {taint}, which the pod does not tolerate"),
            Self::Requirements(conflict) => write!(out, "{conflict}{}", hint(conflict)),
            Self::Volume(conflict) => write!(out, "a volume of the pod is elsewhere: {conflict}"),
            Self::VolumeFault(fault) => fault.fmt(out),
            Self::HostPort(port) => write!(out, "host port {port} is taken"),
            Self::DaemonPort(port) => write!(out, "host port {port} is taken by a DaemonSet on every type"),
            Self::NodeFull => out.write_str("not enough room"),
            Self::Topology { rule, key, domains, .. } => topology_sentence(out, *rule, *key, domains),
            Self::Types(none) => none.fmt(out),
            Self::InDomain(refused) => write!(out, "{refused}, in every domain that its topology rules leave"),
            Self::MinValues { key, wanted, found } => {
                write!(out, "minValues of {key} is not met: {wanted} distinct values are wanted, {found} would be left")
            }
            Self::NodesLimit => out.write_str("the pool may have no more nodes"),
            Self::Limits => out.write_str("every instance type would exceed its limits"),
            Self::Reserved => {
                out.write_str("waits for the next round: other nodes may still take the reserved capacity that it could use")
            }
            Self::Devices => out.write_str("asks for devices through resource claims, which are not planned for"),
        }
    }
}

impl fmt::Display for NoTypes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, requirements, requests: (least, most) } = self;
        match code {
            Code::NoTypeMatchesRequirements => write!(out, "no instance type matches {requirements}"),
            Code::ResourcesExceedEveryType => {
                write!(out, "no instance type is large enough for {}", range(least, most))
            }
            Code::NoOfferingAvailable => write!(out, "nothing that matches {requirements} is on sale"),
            _ => write!(
                out,
                "no instance type has all of: {requirements}; room for {}; an available offering",
                range(least, most)
            ),
        }?;
        // Nobody asks for a million cores on purpose: `1M` was written for `1m`.
        if most.cpu().0 >= 1_000_000_000 {
            out.write_str(" (did you write M, a million, for m, a thousandth?)")?;
        }
        Ok(())
    }
}

fn range(least: &Resources, most: &Resources) -> String {
    if least == most {
        format!("{least} (with daemons)")
    } else {
        format!("{least} to {most} (with daemons)")
    }
}

fn topology_sentence(
    out: &mut fmt::Formatter<'_>,
    rule: TopologyRule,
    key: Symbol,
    domains: &[(Symbol, i64)],
) -> fmt::Result {
    if domains.is_empty() && rule != TopologyRule::Affinity {
        return write!(out, "nothing defines a value of {key} that the pod could use");
    }
    match rule {
        TopologyRule::Spread => write!(out, "spread by {key} allows no domain")?,
        TopologyRule::Affinity => write!(out, "no domain of {key} holds a pod that it must be near")?,
        TopologyRule::AntiAffinity => {
            write!(out, "every domain of {key} may hold a pod that it must not be near")?
        }
        TopologyRule::Shunned => {
            write!(out, "every domain of {key} may hold a pod that must not be near it")?
        }
        TopologyRule::Together => write!(out, "no domain of {key} suits all of its rules")?,
    }
    if !domains.is_empty() {
        let shown: Vec<String> = domains.iter().map(|(domain, count)| format!("{domain}: {count}")).collect();
        write!(out, " (pods: {})", shown.join(", "))?;
    }
    Ok(())
}

/// Which label was probably meant, when the key is a piece of a known one or ends like it.
fn hint(conflict: &Conflict) -> String {
    let Conflict::Undefined { key, .. } = conflict else { return String::new() };
    const KNOWN: &[&str] = &[
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "karpenter.sh/nodepool",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "karpenter.sh/capacity-type",
    ];
    let name = key.rsplit('/').next().unwrap_or(key);
    if key.starts_with("karpenter.k8s.aws/") {
        let near = nearest(name, label::OF_AWS);
        return near.map_or_else(String::new, |near| format!("; did you mean karpenter.k8s.aws/{near}?"));
    }
    let is_near = |known: &&&str| {
        let known_name = known.rsplit('/').next().unwrap_or(known);
        name == known_name
            || (key.len() >= 4 && known.contains(key.as_str()))
            || (name.len() >= 4 && known_name.starts_with(name))
    };
    KNOWN.iter().find(is_near).map_or_else(String::new, |known| format!("; did you mean {known}?"))
}
