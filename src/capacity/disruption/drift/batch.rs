//! Drifted nodes of one pool that are replaced together, because what comes for all of them costs less than what would come for
//! each: one machine that is full instead of several that are not.
//!
//! Nothing is moved that would not move anyway, so any saving will do. Nodes that nothing came of before go alone: one with trouble
//! must not hold up others.

use super::super::candidates::Candidate;
use super::super::command::Command;
use super::super::roll::Room;
use super::super::round::Round;
use super::replace;
use crate::capacity::scheduling::Fit;
use crate::model::money::UsdPerHour;
use crate::model::name::NodeName;

/// The most nodes that go together: if one replacement is late, all of them stay.
const NODES_MAX: usize = 8;

/// `alone`, which replaces `first`; or a command that replaces it together with some of `others` for less money, at most so many
/// nodes in all.
pub(super) fn together(
    round: &Round,
    (first, alone): (&Candidate, Command),
    others: &[Candidate],
    nodes_max: usize,
    room: &Room,
) -> Command {
    let is_fit = |candidate: &&Candidate| round.tries.failures_of(candidate.claim) == 0;
    if alone.replacements.is_empty() || room.is_canary || !is_fit(&first) {
        return alone;
    }
    round.alone.borrow_mut().insert(first.node, Some(cost(&alone)));
    let nodes_max = nodes_max.min(NODES_MAX);
    let mut set = vec![first.clone()];
    for candidate in others.iter().filter(|other| other.pool == first.pool).filter(is_fit) {
        if set.len() >= nodes_max {
            break;
        }
        if cost_alone(round, candidate, room).is_some() {
            set.push(candidate.clone());
        }
    }
    while set.len() > 1 {
        let apart: UsdPerHour = set.iter().filter_map(|one| cost_alone(round, one, room)).sum();
        if let Ok(command) = replace(round, &set, room, Fit::Cheapest)
            && cost(&command) < apart
        {
            return command;
        }
        set.pop();
    }
    alone
}

/// What would come for `candidate` if it went alone; `None`: nothing has to, or it cannot. Other commands of a pass hardly change it.
fn cost_alone(round: &Round, candidate: &Candidate, room: &Room) -> Option<UsdPerHour> {
    let known = round.alone.borrow().get(&candidate.node).copied();
    known.unwrap_or_else(|| {
        let alone = replace(round, std::slice::from_ref(candidate), room, Fit::First).ok();
        let cost = alone.filter(|command| !command.replacements.is_empty()).map(|command| cost(&command));
        round.alone.borrow_mut().insert(candidate.node, cost);
        cost
    })
}

fn cost(command: &Command) -> UsdPerHour {
    command.replacements.iter().map(|node| node.price()).sum()
}

/// What nodes would cost to replace one by one, as far as it was asked.
pub(crate) type Alone = std::collections::BTreeMap<NodeName, Option<UsdPerHour>>;
