//! NodePool: the policy that new nodes follow, and the overlay that corrects prices.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::condition::{ConditionKind, ConditionSet};
use super::label::Labels;
use super::money::UsdPerHour;
use super::name::{ClassName, PoolName, Uid};
use super::owner::Owner;
use super::quantity::Resources;
use super::requirement::Requirements;
use super::roll::{Roll, RollFailures, RollFault};
use super::schedule::Schedule;
use super::symbol::Symbol;
use super::taint::Taint;
use super::terms::Terms;
use super::time::Patience;

/// What a pool's nodes are made from.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeTemplate {
    pub labels: Labels,
    pub annotations: Labels,
    pub taints: Vec<Taint>,
    /// Removed by some agent after boot: pods need not tolerate them.
    pub startup_taints: Vec<Taint>,
    /// As written; template labels are not merged in.
    pub requirements: Requirements,
    pub class: ClassRef,
    /// `None`: a drain may take for ever.
    pub termination_grace: Option<SignedDuration>,
    pub expire_after: Patience,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ClassRef {
    pub group: Symbol,
    pub kind: Symbol,
    pub name: ClassName,
}

impl ClassRef {
    /// Whether it names a class of the kind that we provision from; what others refer to is not ours to touch.
    pub fn is_ours(&self) -> bool {
        &*self.group == "karpenter.k8s.aws" && &*self.kind == "EC2NodeClass"
    }

    /// The label that names the class on a node: `karpenter.k8s.aws/ec2nodeclass`.
    pub fn label_key(&self) -> Symbol {
        Symbol::new(&format!("{}/{}", self.group, self.kind.to_lowercase()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ConsolidationPolicy {
    WhenEmpty,
    WhenEmptyOrUnderutilized,
    Balanced,
}

impl ConsolidationPolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WhenEmpty => "WhenEmpty",
            Self::WhenEmptyOrUnderutilized => "WhenEmptyOrUnderutilized",
            Self::Balanced => "Balanced",
        }
    }
}

/// Why a node goes although it works. Budgets may name the first three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum DisruptionReason {
    Empty,
    Underutilized,
    Drifted,
    Expired,
    Interrupted,
    Unhealthy,
    ScaledDown,
}

impl DisruptionReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Underutilized => "Underutilized",
            Self::Drifted => "Drifted",
            Self::Expired => "Expired",
            Self::Interrupted => "Interrupted",
            Self::Unhealthy => "Unhealthy",
            Self::ScaledDown => "ScaledDown",
        }
    }

    pub const ALL: [Self; 7] = [
        Self::Empty,
        Self::Underutilized,
        Self::Drifted,
        Self::Expired,
        Self::Interrupted,
        Self::Unhealthy,
        Self::ScaledDown,
    ];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum BudgetNodes {
    Count(u32),
    /// 0 to 100, of the pool's nodes, rounded up.
    Percent(u8),
}

/// When a budget counts: five cron fields or a macro such as `@daily`, in UTC, and for how long from then.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BudgetWindow {
    pub schedule: Schedule,
    pub duration: SignedDuration,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Budget {
    pub nodes: BudgetNodes,
    /// Empty: all reasons.
    pub reasons: Vec<DisruptionReason>,
    /// `None`: always.
    pub window: Option<BudgetWindow>,
}

impl Budget {
    pub fn applies_to(&self, reason: DisruptionReason) -> bool {
        self.reasons.is_empty() || self.reasons.contains(&reason)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Disruption {
    /// How long after the last pod event a node is left alone.
    pub consolidate_after: Patience,
    pub policy: ConsolidationPolicy,
    pub budgets: Vec<Budget>,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodePool {
    pub name: PoolName,
    pub uid: Uid,
    pub created: Option<Timestamp>,
    /// Whose repository describes it; `None`: nobody says so.
    pub owner: Option<Owner>,
    pub is_deleting: bool,
    pub template: Arc<NodeTemplate>,
    pub disruption: Disruption,
    /// What it asks for beyond Karpenter's words.
    pub terms: Box<Terms>,
    /// Upper limits of summed capacity; the pseudo-resource `nodes` limits their number. `None`: unlimited.
    pub limits: Option<Resources>,
    /// 1 to 100, absent counts as 0; heavier pools are tried first.
    pub weight: u32,
    /// `Some`: a static pool that keeps so many nodes and takes no demand.
    pub replicas: Option<u32>,
    /// How its drifted nodes are replaced; one that cannot be read lets none be.
    pub roll: Result<Roll, RollFault>,
    /// Tries to replace its nodes that failed in a row.
    pub roll_failures: Option<RollFailures>,
    /// The condition `Ready`; an object without conditions counts as ready, so that plain manifests can be planned with.
    pub is_ready: bool,
    /// Of `template` without requirements (api.md 9), as annotated on the object; else computed by the reader.
    pub hash: Option<Symbol>,
    pub hash_version: Option<Symbol>,
    /// What belongs into the annotations instead, if they say something else.
    pub new_stamp: Option<HashStamp>,
    /// Why a controller cannot accept it, though an API server did.
    pub fault: Option<Symbol>,
    /// As its status has them; empty before anybody wrote them.
    pub conditions: PoolConditions,
    /// The condition `Ready` was judged on an earlier generation: whoever waits for it does not know how the pool is now.
    #[serde(default)]
    pub is_judged_earlier: bool,
    /// As its status has it.
    pub used: Option<PoolUse>,
}

impl NodePool {
    pub fn is_static(&self) -> bool {
        self.replicas.is_some()
    }

    /// Whether `other` differs from this in nothing but its status, and what we remember at it.
    pub fn is_same_but_for_status(&self, other: &Self) -> bool {
        let stripped = |pool: &Self| Self {
            is_ready: true,
            roll_failures: None,
            conditions: PoolConditions::default(),
            is_judged_earlier: false,
            used: None,
            ..pool.clone()
        };
        stripped(self) == stripped(other)
    }
}

/// A hash of the version that we compute, to be written on a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HashStamp {
    pub hash: Symbol,
    pub version: Symbol,
    /// The pool carried another version or none: its claims follow. Else it was edited, and they differ from it rightly.
    pub is_new_version: bool,
}

/// What a pool's nodes come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PoolUse {
    /// Sums of capacity; the resources that every node has are there even if they are zero.
    pub resources: Resources,
    pub nodes: u32,
}

/// The condition types of a pool (api.md 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum PoolCondition {
    ValidationSucceeded,
    NodeClassReady,
    /// Whether its machines come to be nodes; it is used all the same.
    NodeRegistrationHealthy,
    /// Whether its drifted nodes can be replaced; said only once they could not.
    RollHealthy,
    /// False if it asks for something in words of ours that nobody can read; it is used all the same. Not there otherwise.
    TermsUnderstood,
    Ready,
}

impl ConditionKind for PoolCondition {
    fn all() -> &'static [Self] {
        &[
            Self::ValidationSucceeded,
            Self::NodeClassReady,
            Self::NodeRegistrationHealthy,
            Self::RollHealthy,
            Self::TermsUnderstood,
            Self::Ready,
        ]
    }

    fn word(self) -> &'static str {
        match self {
            Self::ValidationSucceeded => "ValidationSucceeded",
            Self::NodeClassReady => "NodeClassReady",
            Self::NodeRegistrationHealthy => "NodeRegistrationHealthy",
            Self::RollHealthy => "RollHealthy",
            Self::TermsUnderstood => "TermsUnderstood",
            Self::Ready => "Ready",
        }
    }
}

pub type PoolConditions = ConditionSet<PoolCondition>;

/// The condition types of an overlay (api.md 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum OverlayCondition {
    ValidationSucceeded,
    Ready,
}

impl ConditionKind for OverlayCondition {
    fn all() -> &'static [Self] {
        &[Self::ValidationSucceeded, Self::Ready]
    }

    fn word(self) -> &'static str {
        match self {
            Self::ValidationSucceeded => "ValidationSucceeded",
            Self::Ready => "Ready",
        }
    }
}

pub type OverlayConditions = ConditionSet<OverlayCondition>;

/// How an overlay changes a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PriceChange {
    Set(UsdPerHour),
    Add(UsdPerHour),
    /// In hundredths of a percent: `-2000` is 20 % less.
    Scale(i64),
}

impl PriceChange {
    /// The price after the change, never below zero, rounded to the micro-dollar.
    pub fn of(self, price: UsdPerHour) -> UsdPerHour {
        const WHOLE: i128 = 10_000;
        let changed = match self {
            Self::Set(price) => price,
            Self::Add(difference) => price + difference,
            Self::Scale(hundredths) => {
                let scaled = i128::from(price.0) * (WHOLE + i128::from(hundredths));
                let rounded = (scaled + WHOLE / 2).div_euclid(WHOLE);
                UsdPerHour(i64::try_from(rounded).unwrap_or(if rounded < 0 { 0 } else { i64::MAX }))
            }
        };
        changed.max(UsdPerHour::ZERO)
    }
}

/// NodeOverlay: corrects prices of offerings, adds extended resources to types.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeOverlay {
    pub name: Symbol,
    /// Whose repository describes it; `None`: nobody says so.
    pub owner: Option<Owner>,
    pub requirements: Requirements,
    pub price: Option<PriceChange>,
    pub capacity: Resources,
    /// 1 to 10,000, absent counts as 0.
    pub weight: u32,
    /// Why a controller cannot accept it, though an API server did: it has no effect then.
    pub fault: Option<Symbol>,
    /// As its status has them.
    pub conditions: OverlayConditions,
    /// The condition `Ready` was judged on an earlier generation.
    #[serde(default)]
    pub is_judged_earlier: bool,
}

impl NodeOverlay {
    /// Whether `other` differs from this in nothing but its status.
    pub fn is_same_but_for_status(&self, other: &Self) -> bool {
        let stripped = |overlay: &Self| Self {
            conditions: OverlayConditions::default(),
            is_judged_earlier: false,
            ..overlay.clone()
        };
        stripped(self) == stripped(other)
    }
}
