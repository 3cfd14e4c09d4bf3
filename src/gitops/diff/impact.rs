//! What a changed field does to running nodes.
//!
//! Karpenter replaces a node when its NodeClaim is *drifted*, and a claim drifts in three ways: the hash of the pool's
//! template (or of the class) moved on, the claim's labels no longer meet the pool's requirements, or the running
//! instance is not one that the class would make today. Everything else is behaviour, and replaces nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::gitops::live::{Fleet, NodeFacts};
use crate::model::label::canonical;
use crate::model::requirement::{Operator, Requirement};
use crate::model::symbol::Symbol;

/// What happens to running nodes, mildest first. `nodes` is `None` when the fleet is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "impact", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum NodeImpact {
    #[serde(rename = "none")]
    NoRoll,
    /// Decided per instance by what a selector finds: at most this many are replaced.
    #[serde(rename = "may-roll-nodes")]
    MayRoll { nodes: Option<u32> },
    /// Replaced one by one, within disruption budgets.
    #[serde(rename = "rolls-nodes")]
    Rolls { nodes: Option<u32> },
    /// Taken away without a replacement from the same pool.
    Destructive { nodes: Option<u32> },
}

impl NodeImpact {
    /// How many nodes; `None` when the fleet is not known.
    pub fn nodes(self) -> Option<u32> {
        match self {
            Self::NoRoll => Some(0),
            Self::MayRoll { nodes } | Self::Rolls { nodes } | Self::Destructive { nodes } => nodes,
        }
    }

    /// The same kind of impact, without a number.
    pub(crate) fn of_unknown(self) -> Self {
        match self {
            Self::NoRoll => Self::NoRoll,
            Self::MayRoll { .. } => Self::MayRoll { nodes: None },
            Self::Rolls { .. } => Self::Rolls { nodes: None },
            Self::Destructive { .. } => Self::Destructive { nodes: None },
        }
    }

    /// The same kind of impact on another number of nodes.
    pub(crate) fn with_nodes(self, count: usize) -> Self {
        let nodes = Some(u32::try_from(count).unwrap_or(u32::MAX));
        match self {
            Self::NoRoll => Self::NoRoll,
            Self::MayRoll { .. } => Self::MayRoll { nodes },
            Self::Rolls { .. } => Self::Rolls { nodes },
            Self::Destructive { .. } => Self::Destructive { nodes },
        }
    }
}

impl fmt::Display for NodeImpact {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, nodes) = match self {
            Self::NoRoll => return out.write_str("no roll"),
            Self::MayRoll { nodes } => ("may roll", nodes),
            Self::Rolls { nodes } => ("rolls", nodes),
            Self::Destructive { nodes } => ("removes", nodes),
        };
        match nodes {
            None => write!(out, "{verb} nodes"),
            Some(1) => write!(out, "{verb} 1 node"),
            Some(nodes) => write!(out, "{verb} {nodes} nodes"),
        }
    }
}

/// Which nodes a field replaces when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rolling {
    Never,
    /// Part of the pool's template hash: every node of the pool.
    Pool,
    /// Compared with each node's labels: those that no longer fit.
    Requirements,
    /// A static pool's size: nodes beyond it go away.
    Replicas,
    /// Part of the class's hash: every node of every pool that uses the class.
    Class,
    /// Compared with each running instance of the class: unknown until the selector is resolved.
    ClassInstances,
    /// As `ClassInstances`, but only instances that run in a capacity reservation.
    ClassReservations,
    /// The image family that results from the field is part of the class's hash, the field itself is not.
    ClassFamily,
}

/// One line of the table of fields.
#[derive(Clone, Copy, Debug)]
pub struct FieldRule {
    pub kind: &'static str,
    /// The field and everything below it.
    pub path: &'static str,
    pub rolling: Rolling,
    pub why: &'static str,
}

const fn rule(kind: &'static str, path: &'static str, rolling: Rolling, why: &'static str) -> FieldRule {
    FieldRule { kind, path, rolling, why }
}

const HASHED: &str = "in the pool's template hash (karpenter.sh/nodepool-hash v3)";
const CLASS_HASHED: &str = "in the class's hash (karpenter.k8s.aws/ec2nodeclass-hash v6)";
const BEHAVIOUR: &str = "read when deciding, never written on a node";

/// Which field replaces nodes. The longest path that holds a field decides; a field of `spec` that no line names is taken
/// to be hashed, because an unexpected roll is worse than an unneeded warning.
///
/// Sources: `NodePool.Hash` and `areRequirementsDrifted` of sigs.k8s.io/karpenter v1; `EC2NodeClass.Hash` (struct tags
/// `hash:"ignore"`) and `pkg/cloudprovider/drift.go` of aws/karpenter-provider-aws v1.
pub const FIELD_RULES: &[FieldRule] = &[
    rule("NodePool", "spec.template", Rolling::Pool, HASHED),
    rule(
        "NodePool",
        "spec.template.spec.requirements",
        Rolling::Requirements,
        "left out of the hash; compared with each node's labels",
    ),
    rule("NodePool", "spec.disruption", Rolling::Never, BEHAVIOUR),
    rule("NodePool", "spec.limits", Rolling::Never, BEHAVIOUR),
    rule("NodePool", "spec.weight", Rolling::Never, BEHAVIOUR),
    rule("NodePool", "spec.replicas", Rolling::Replicas, "the wanted number of a static pool's nodes"),
    rule("EC2NodeClass", "spec", Rolling::Class, CLASS_HASHED),
    rule(
        "EC2NodeClass",
        "spec.subnetSelectorTerms",
        Rolling::ClassInstances,
        "drifts instances whose subnet is no longer found",
    ),
    rule(
        "EC2NodeClass",
        "spec.securityGroupSelectorTerms",
        Rolling::ClassInstances,
        "drifts instances whose set of security groups differs",
    ),
    rule(
        "EC2NodeClass",
        "spec.amiSelectorTerms",
        Rolling::ClassInstances,
        "drifts instances whose image is no longer the one chosen",
    ),
    rule(
        "EC2NodeClass",
        "spec.capacityReservationSelectorTerms",
        Rolling::ClassReservations,
        "drifts instances that run in a reservation no longer found",
    ),
    rule("EC2NodeClass", "spec.amiFamily", Rolling::ClassFamily, "the resolved family is hashed"),
    rule("EC2NodeClass", "spec.ipPrefixCount", Rolling::Never, "neither hashed nor compared"),
    rule("NodeOverlay", "spec", Rolling::Never, "changes what is launched next, never what runs"),
];

/// The line of the table that speaks for a field, by its path with `[]` for list elements.
pub fn field_rule(kind: &str, path: &str) -> Option<&'static FieldRule> {
    FIELD_RULES
        .iter()
        .filter(|rule| rule.kind == kind)
        .filter(|rule| {
            path.strip_prefix(rule.path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
        .max_by_key(|rule| rule.path.len())
}

/// One object before and after, and the nodes that depend on it.
pub(super) struct Scope<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    pub live: Option<&'a Value>,
    pub desired: Option<&'a Value>,
    pub fleet: Option<&'a Fleet>,
}

type Touched = (NodeImpact, BTreeSet<Arc<str>>);

impl Scope<'_> {
    /// What removing the whole object takes away.
    pub(super) fn of_removal(&self) -> Touched {
        if self.kind != "NodePool" {
            return (NodeImpact::NoRoll, BTreeSet::new());
        }
        self.touched(NodeImpact::Destructive { nodes: None }, |_| true)
    }

    /// What changing one field does. `element` is the identity of the list element that holds it.
    pub(super) fn of_field(&self, pattern: &str, element: Option<&str>) -> Touched {
        let none = (NodeImpact::NoRoll, BTreeSet::new());
        let rolling = match field_rule(self.kind, pattern) {
            Some(rule) => rule.rolling,
            None if self.kind == "NodePool" && pattern.starts_with("spec.") => Rolling::Pool,
            None => Rolling::Never,
        };
        let rolls = NodeImpact::Rolls { nodes: None };
        let may_roll = NodeImpact::MayRoll { nodes: None };
        match rolling {
            Rolling::Never => none,
            Rolling::Pool | Rolling::Class => self.touched(rolls, |_| true),
            Rolling::Requirements => {
                let (before, after) = (requirements(self.live), requirements(self.desired));
                let keys = match element {
                    Some(key) => BTreeSet::from([canonical(Symbol::new(key))]),
                    None => before.iter().chain(after).filter_map(key_of).collect(),
                };
                // What only widens replaces nothing, whatever runs.
                if keys.iter().all(|key| admits(&together(after, *key), &together(before, *key))) {
                    return none;
                }
                // Which labels the nodes have is known to the fleet alone.
                if self.fleet.is_none() {
                    return (may_roll, BTreeSet::new());
                }
                let touched = self.touched(rolls, |node| {
                    keys.iter().any(|key| fits(before, *key, node) && !fits(after, *key, node))
                });
                if touched.1.is_empty() { none } else { touched }
            }
            Rolling::Replicas => self.of_replicas(),
            Rolling::ClassFamily | Rolling::ClassInstances
                if family(self.live) != family(self.desired) && pattern.starts_with("spec.ami") =>
            {
                self.touched(rolls, |_| true)
            }
            Rolling::ClassFamily => none,
            Rolling::ClassInstances => self.touched(may_roll, |_| true),
            Rolling::ClassReservations => self.touched(may_roll, |node| {
                node.labels.get("karpenter.sh/capacity-type").is_some_and(|value| &**value == "reserved")
            }),
        }
    }

    fn touched(&self, impact: NodeImpact, is_touched: impl Fn(&NodeFacts) -> bool) -> Touched {
        let Some(fleet) = self.fleet else { return (impact, BTreeSet::new()) };
        let nodes: BTreeSet<Arc<str>> = if self.kind == "NodePool" {
            fleet
                .nodes_of(self.name)
                .iter()
                .filter(|node| is_touched(node))
                .map(|node| node.name.clone())
                .collect()
        } else {
            fleet
                .nodes_of_class(self.name)
                .filter(|node| is_touched(node))
                .map(|node| node.name.clone())
                .collect()
        };
        (impact.with_nodes(nodes.len()), nodes)
    }

    /// A static pool that shrinks gives nodes back; which ones is decided later, so none are named.
    fn of_replicas(&self) -> Touched {
        let count = |side: Option<&Value>| side.and_then(|side| side.pointer("/spec/replicas")?.as_u64());
        let (Some(before), Some(after)) = (count(self.live), count(self.desired)) else {
            return (NodeImpact::NoRoll, BTreeSet::new());
        };
        if after >= before {
            return (NodeImpact::NoRoll, BTreeSet::new());
        }
        let Some(fleet) = self.fleet else {
            return (NodeImpact::Destructive { nodes: None }, BTreeSet::new());
        };
        let after = usize::try_from(after).unwrap_or(usize::MAX);
        let mut names: Vec<Arc<str>> =
            fleet.nodes_of(self.name).iter().map(|node| node.name.clone()).collect();
        names.sort();
        let gone: BTreeSet<Arc<str>> = names.into_iter().skip(after).collect();
        (NodeImpact::Destructive { nodes: None }.with_nodes(gone.len()), gone)
    }
}

fn requirements(pool: Option<&Value>) -> &[Value] {
    pool.and_then(|pool| pool.pointer("/spec/template/spec/requirements")?.as_array())
        .map_or(&[], Vec::as_slice)
}

/// Whether the node's labels meet all requirements on one key. A missing label meets only `NotIn` and `DoesNotExist`.
fn fits(requirements: &[Value], key: Symbol, node: &NodeFacts) -> bool {
    let label = node.labels.get(key.as_str()).map(|value| Symbol::new(value));
    requirements.iter().filter_map(|item| read_requirement(item, key)).all(|requirement| match label {
        Some(label) => requirement.has(label),
        None => requirement.accepts_absence(),
    })
}

fn key_of(item: &Value) -> Option<Symbol> {
    Some(canonical(Symbol::new(item.get("key")?.as_str()?)))
}

/// All requirements on one key; `None` if there is none, and then every label fits and so does a missing one.
fn together(requirements: &[Value], key: Symbol) -> Option<Vec<Requirement>> {
    let all: Vec<Requirement> = requirements.iter().filter_map(|item| read_requirement(item, key)).collect();
    (!all.is_empty()).then_some(all)
}

/// Whether every node that fits `before` surely fits `after`.
fn admits(after: &Option<Vec<Requirement>>, before: &Option<Vec<Requirement>>) -> bool {
    let (Some(after), before) = (after, before) else { return true };
    let Some(before) = before else { return false };
    let old = before.iter().skip(1).fold(before[0].clone(), |all, one| all.intersection(one));
    let takes_missing = |all: &[Requirement]| all.iter().all(Requirement::accepts_absence);
    (!takes_missing(before) || takes_missing(after)) && after.iter().all(|new| contains(new, &old))
}

/// Whether every value of `inner` is one of `outer`.
fn contains(outer: &Requirement, inner: &Requirement) -> bool {
    if let Some(values) = inner.listed() {
        return values.iter().all(|value| outer.has(*value));
    }
    let Some(excluded) = outer.excluded() else { return false };
    outer.lower().is_none_or(|lower| inner.lower().is_some_and(|own| own >= lower))
        && outer.upper().is_none_or(|upper| inner.upper().is_some_and(|own| own <= upper))
        && excluded.iter().all(|value| !inner.has(*value))
}

fn read_requirement(item: &Value, key: Symbol) -> Option<Requirement> {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    if canonical(Symbol::new(text("key")?)) != key {
        return None;
    }
    let values = item.get("values").and_then(Value::as_array).into_iter().flatten();
    Some(Requirement::new(
        Operator::parse(text("operator")?)?,
        values.filter_map(Value::as_str).map(Symbol::new),
    ))
}

/// The image family of a class: `amiFamily`, else that of an alias such as `al2023@latest`.
fn family(class: Option<&Value>) -> Option<String> {
    let spec = class?.get("spec")?;
    if let Some(family) = spec.get("amiFamily").and_then(Value::as_str) {
        return Some(family.to_ascii_lowercase());
    }
    let terms = spec.get("amiSelectorTerms")?.as_array()?;
    let alias = terms.iter().find_map(|term| term.get("alias")?.as_str())?;
    Some(alias.split('@').next().unwrap_or(alias).to_ascii_lowercase())
}
