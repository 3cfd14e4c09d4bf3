//! A second look at a decision after a pause: pods may have come, budgets may have been used up, room may be gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;

use super::balanced::Totals;
use super::candidates::{Candidate, Class, admit};
use super::command::{Command, Method};
use super::round::Round;
use super::{consolidation, emptiness, removal};
use crate::capacity::scheduling::NewNode;
use crate::model::action::LaunchOption;
use crate::model::money::UsdPerHour;

/// How long a decision to save money waits: fifteen seconds, as in Karpenter.
pub const PAUSE: SignedDuration = SignedDuration::from_secs(15);

/// What has changed so that a decision does not stand, by Karpenter's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A node is no candidate any more.
    Churn,
    /// Budgets are used up, or a node is about to get pods.
    Budget,
    /// Pods would go elsewhere, or need something else.
    Scheduling,
}

impl Change {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Churn => "churn",
            Self::Budget => "budget",
            Self::Scheduling => "scheduling",
        }
    }
}

/// What has changed, and what that comes to, for people.
pub(crate) type Withdrawn = (Change, String);

/// The part of `command` that still holds in `round`, or why nothing of it does.
pub(crate) fn validate(round: &mut Round, command: &Command) -> Result<Command, Withdrawn> {
    let mut standing = Vec::new();
    for node in &command.nodes {
        match again(round, *node, command.method) {
            Ok(candidate) => standing.push(candidate),
            Err(_) if command.method == Method::Emptiness => {}
            Err((change, why)) => return Err((change, format!("{node}: {why}"))),
        }
    }
    let mut allowances = round.allowances(command.reason());
    let mut within = Vec::new();
    for candidate in standing {
        let allowance = allowances.entry(candidate.pool).or_default();
        if allowance.remaining() > 0 {
            allowance.take();
            within.push(candidate);
        } else if command.method != Method::Emptiness {
            return Err((Change::Budget, allowance.why(candidate.pool, command.reason())));
        }
    }
    if within.is_empty() {
        return Err((Change::Churn, "none of its nodes may go any more".into()));
    }
    if command.method == Method::Emptiness {
        return Ok(emptiness::command(round, &within));
    }
    let destinations = consolidation::destinations_of(command);
    let found = removal::decide(round, &Totals::of(round), &within, &destinations);
    let found = found.map_err(|(_, why)| (Change::Scheduling, why))?;
    if found.replacements.len() != command.replacements.len() {
        return Err((Change::Scheduling, "scheduling simulation produced new results".into()));
    }
    let nodes = found.replacements.iter().zip(&command.replacements);
    let Some(replacements) = nodes.map(|(found, planned)| still(found, planned)).collect::<Option<Vec<_>>>()
    else {
        return Err((Change::Scheduling, "some of its instance types no longer suit".into()));
    };
    let spent: UsdPerHour = replacements.iter().map(NewNode::price).sum();
    let planned: UsdPerHour = command.replacements.iter().map(NewNode::price).sum();
    let savings = found.savings + found.replacements.iter().map(NewNode::price).sum() - spent;
    if !replacements.is_empty() && savings < command.savings {
        let why =
            format!("what it was to buy for ${planned} an hour costs ${spent} now, and it would save less");
        return Err((Change::Scheduling, why));
    }
    // What it was preferred to was looked at the first time.
    let (least_savings, alternatives) = (command.least_savings, command.alternatives.clone());
    Ok(Command { replacements, savings, least_savings, alternatives, ..found })
}

/// Judges a node of the command as if for the first time.
fn again(
    round: &mut Round,
    node: crate::model::name::NodeName,
    method: Method,
) -> Result<Candidate, Withdrawn> {
    let churn = |why: &str| (Change::Churn, why.to_owned());
    let node = round.cluster.nodes.get(&node).cloned().ok_or_else(|| churn("the node is gone"))?;
    let candidate = admit(round, &node, Class::Graceful).map_err(|reason| match reason.code {
        "Nominated" => (Change::Budget, reason.message),
        _ => (Change::Churn, reason.message),
    })?;
    let wants = match method {
        Method::Emptiness => emptiness::wants(round, &candidate),
        _ => removal::wants(round, &candidate).is_ok(),
    };
    if wants { Ok(candidate) } else { Err(churn("it is no longer a candidate")) }
}

/// `found` with the ways to buy it that were planned: they are on offer, and cost what they cost now. `None`: some planned type does not
/// suit any more, or nothing that was planned is on offer.
fn still(found: &NewNode, planned: &NewNode) -> Option<NewNode> {
    let types = found.instance_types();
    let way =
        |option: &LaunchOption| (option.instance_type, option.zone, option.capacity_type, option.reservation);
    let ways: BTreeSet<_> = planned.options.iter().map(way).collect();
    let mut node = found.clone();
    Arc::make_mut(&mut node.options).retain(|option| ways.contains(&way(option)));
    let suit = planned.instance_types().iter().all(|name| types.contains(name));
    (suit && !node.options.is_empty()).then_some(node)
}
