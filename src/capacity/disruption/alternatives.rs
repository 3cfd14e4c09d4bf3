//! What might be done instead of a command, and why it is not: no more than what was looked at on the way to the command.
//!
//! Consolidation offers its candidates in several ways and judges several sets; what those came to is kept until the best is known, and
//! costs nothing but its memory. That nodes might go without anything in their place, and what the next type would cost, is read off
//! the command itself.

use std::cmp::Reverse;

use super::candidates::Candidate;
use super::command::{Command, Destination, Kind, Method};
use super::round::Round;
use crate::capacity::scheduling::NewNode;
use crate::model::action::LaunchOption;
use crate::model::count::{agreeing, counted};
use crate::model::money::UsdPerHour;
use crate::model::name::NodeName;

/// So many are told of each command.
const TOLD: usize = 3;

/// Nodes that might go, and what would come for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// By name.
    pub nodes: Vec<NodeName>,
    /// The cheapest way to buy each replacement.
    pub replacements: Vec<LaunchOption>,
    /// Price of the nodes less that of the replacements.
    pub savings: UsdPerHour,
    /// How many pods would move.
    pub pods: usize,
    /// Why it is not done: a word for programs, a sentence for people.
    pub code: &'static str,
    pub message: String,
}

impl Alternative {
    pub fn kind(&self) -> Kind {
        if self.replacements.is_empty() { Kind::Delete } else { Kind::Replace }
    }

    /// Whether it is what `command` does.
    fn is_same(&self, command: &Command) -> bool {
        let launches = command.replacements.iter().map(NewNode::launch);
        self.nodes == command.nodes && self.replacements.iter().eq(launches)
    }
}

/// A set of nodes as it was found on the way.
#[derive(Clone, Debug)]
pub(super) struct Rival {
    /// By name.
    pub nodes: Vec<NodeName>,
    pub replacements: Vec<LaunchOption>,
    pub savings: UsdPerHour,
    /// What all that would be started with it saves, less what moving pods has to be worth.
    pub worth: UsdPerHour,
}

impl Rival {
    pub fn of(candidates: &[Candidate], savings: UsdPerHour, worth: UsdPerHour) -> Self {
        let mut nodes: Vec<NodeName> = candidates.iter().map(|candidate| candidate.node).collect();
        nodes.sort_unstable();
        Self { nodes, replacements: Vec::new(), savings, worth }
    }

    pub fn with(self, replacements: Vec<LaunchOption>) -> Self {
        Self { replacements, ..self }
    }
}

/// Notes at `command`, of a choice that is worth `worth` in all, what `rivals` would have done to its nodes, and why they lost.
pub(super) fn note<'r>(
    round: &Round,
    command: &mut Command,
    worth: UsdPerHour,
    rivals: impl Iterator<Item = &'r Rival>,
) {
    for rival in rivals {
        let pods = rival.nodes.iter().map(|node| round.leaving_pods(*node).len()).sum();
        let (code, message) = lost(command, worth, rival, pods);
        command.alternatives.push(Alternative {
            nodes: rival.nodes.clone(),
            replacements: rival.replacements.clone(),
            savings: rival.savings,
            pods,
            code,
            message,
        });
    }
}

fn lost(command: &Command, worth: UsdPerHour, rival: &Rival, pods: usize) -> (&'static str, String) {
    let less = command.savings - rival.savings;
    if less > UsdPerHour::ZERO {
        return ("SavesLess", format!("it saves ${less} an hour less"));
    }
    if rival.worth < worth {
        let more = pods.saturating_sub(command.pods.len());
        if less == UsdPerHour::ZERO && more > 0 {
            return ("MovesMorePods", format!("it saves as much and moves {} more", counted(more, "pod")));
        }
        let message = format!(
            "all that would go with it is worth ${} an hour, and what goes now ${worth}, moving pods taken off",
            rival.worth
        );
        return ("LessInAll", message);
    }
    ("NoBetter", "in all it is worth no more, and was found later".into())
}

/// The other of two ways to fill what comes for the nodes of `command`.
pub(super) fn note_other_fit(command: &mut Command, other: &Command) {
    let alternative = Alternative {
        nodes: other.nodes.clone(),
        replacements: other.replacements.iter().map(|node| *node.launch()).collect(),
        savings: other.savings,
        pods: other.pods.len(),
        code: "SavesLess",
        message: format!("it saves ${} an hour less", command.savings - other.savings),
    };
    if !alternative.is_same(command) && other.savings < command.savings {
        command.alternatives.push(alternative);
    }
}

/// Adds what the command itself tells, and keeps the few that come nearest: what would save most, then what moves least.
pub(super) fn complete(round: &Round, command: &mut Command) {
    let is_static = |name| round.cluster.pools.get(name).is_some_and(|pool| pool.is_static());
    // What a node goes back from is not asked to take its pods.
    if !command.pools.iter().any(is_static) && command.method != Method::Return {
        command.alternatives.extend(without_replacements(command));
    }
    command.alternatives.extend(next_type(command));
    let mut all = std::mem::take(&mut command.alternatives);
    all.retain(|one| !one.is_same(command));
    all.sort_by(|a, b| {
        let key = |one: &Alternative| (Reverse(one.savings), one.pods, one.nodes.len());
        key(a)
            .cmp(&key(b))
            .then_with(|| a.nodes.cmp(&b.nodes))
            .then_with(|| a.replacements.cmp(&b.replacements))
    });
    all.dedup_by(|later, first| later.nodes == first.nodes && later.replacements == first.replacements);
    all.truncate(TOLD);
    command.alternatives = all;
}

/// That nothing comes for the nodes: it was the first thing to be asked.
fn without_replacements(command: &Command) -> Option<Alternative> {
    let homeless = command.pods.iter().filter(|(_, to)| matches!(to, Destination::Replacement(_))).count();
    if homeless == 0 {
        return None;
    }
    let spent: UsdPerHour = command.replacements.iter().map(NewNode::price).sum();
    Some(Alternative {
        nodes: command.nodes.clone(),
        replacements: Vec::new(),
        savings: command.savings + spent,
        pods: command.pods.len(),
        code: "NeedsReplacement",
        message: match (homeless, command.pods.len()) {
            (1, 1) => "its pod finds no place on what stays".into(),
            (all, pods) if all == pods => format!("none of its {pods} pods finds a place on what stays"),
            (some, pods) => {
                format!(
                    "{some} of its {pods} pods {} no place on what stays",
                    agreeing(some, "finds", "find")
                )
            }
        },
    })
}

/// The cheapest of the other types that would do.
fn next_type(command: &Command) -> Option<Alternative> {
    let [node] = command.replacements.as_slice() else { return None };
    let launch = node.launch();
    let next = node.options.iter().find(|option| option.instance_type != launch.instance_type)?;
    let dearer = next.price - launch.price;
    let (code, message) = match dearer > UsdPerHour::ZERO {
        true => ("SavesLess", format!("it saves ${dearer} an hour less")),
        false => ("NoBetter", "it costs as much, and comes later by name".into()),
    };
    Some(Alternative {
        nodes: command.nodes.clone(),
        replacements: vec![*next],
        savings: command.savings - dearer,
        pods: command.pods.len(),
        code,
        message,
    })
}
