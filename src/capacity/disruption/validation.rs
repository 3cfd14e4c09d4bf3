//! A second look at a decision after a pause: pods may have come, budgets may have been used up, room may be gone.

use jiff::SignedDuration;

use super::balanced::Totals;
use super::budgets::allowances;
use super::candidates::{Candidate, Class, admit};
use super::command::{Command, Kind, Method};
use super::round::Round;
use super::{consolidation, emptiness, removal};

/// How long a decision to save money waits: fifteen seconds, as in Karpenter.
pub const PAUSE: SignedDuration = SignedDuration::from_secs(15);

/// The part of `command` that still holds in `round`, or why nothing of it does.
pub(crate) fn validate(round: &mut Round, command: &Command) -> Result<Command, String> {
    let mut standing = Vec::new();
    for node in &command.nodes {
        match again(round, *node, command.method) {
            Ok(candidate) => standing.push(candidate),
            Err(_) if command.method == Method::Emptiness => {}
            Err(why) => return Err(format!("{node}: {why}")),
        }
    }
    let mut allowances = allowances(&round.cluster, command.reason(), round.now);
    let mut within = Vec::new();
    for candidate in standing {
        let allowance = allowances.entry(candidate.pool).or_default();
        if allowance.remaining() > 0 {
            allowance.take();
            within.push(candidate);
        } else if command.method != Method::Emptiness {
            return Err(allowance.why(candidate.pool, command.reason()));
        }
    }
    if within.is_empty() {
        return Err("none of its nodes may go any more".into());
    }
    if command.method == Method::Emptiness {
        return Ok(emptiness::command(round, &within));
    }
    let destinations = consolidation::destinations_of(command);
    let found = removal::decide(round, &Totals::of(round), &within, &destinations);
    let found = found.map_err(|(_, why)| why)?;
    if found.kind() != command.kind() {
        return Err("scheduling simulation produced new results".into());
    }
    if command.kind() == Kind::Replace && !offers_all(&found, command) {
        return Err("some of its instance types no longer suit".into());
    }
    Ok(Command { replacements: command.replacements.clone(), savings: command.savings, ..found })
}

/// Judges a node of the command as if for the first time.
fn again(round: &mut Round, node: crate::model::name::NodeName, method: Method) -> Result<Candidate, String> {
    let node = round.cluster.nodes.get(&node).cloned().ok_or("the node is gone")?;
    let candidate = admit(round, &node, Class::Graceful).map_err(|reason| reason.message)?;
    let wants = match method {
        Method::Emptiness => emptiness::wants(round, &candidate),
        _ => removal::wants(round, &candidate).is_ok(),
    };
    if wants { Ok(candidate) } else { Err("it is no longer a candidate".into()) }
}

/// Whether every type that `planned` may launch is still among those of `found`.
fn offers_all(found: &Command, planned: &Command) -> bool {
    found.replacements.iter().zip(&planned.replacements).all(|(found, planned)| {
        let types = found.instance_types();
        planned.instance_types().iter().all(|name| types.contains(name))
    })
}
