//! What two environments differ in, as far as it is to be promoted: fields with their values before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::rules::Rules;
use crate::gitops::desired::Origin;
use crate::gitops::diagnostic::{Diagnostics, Place};
use crate::gitops::diff::show;
use crate::gitops::engine::Engine;
use crate::gitops::fleet::{Fleet, Resolved};
use crate::gitops::overrides::{leads_into, written};
use crate::gitops::render::{RenderSettings, before_overrides};
use crate::gitops::rendered::joined;
use crate::gitops::tree::Node;
use crate::model::repository::{Repository, Revision};

/// One value that would change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// `pools.general.limits.cpu`.
    pub field: String,
    /// The value today; absent if there is none.
    pub from: Option<Value>,
    /// The value to come; absent if the field is to be taken away.
    pub to: Option<Value>,
    /// The line that sets it today.
    pub set_at: Option<Origin>,
    /// The line of the stage that it comes from.
    pub comes_from: Option<Origin>,
}

impl fmt::Display for FieldChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} → {}", self.field, show(self.from.as_ref()), show(self.to.as_ref()))
    }
}

/// What every stage would change, at one commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    pub revision: Revision,
    /// Names the promoted values that the environment has.
    pub values: Arc<str>,
    pub by_stage: BTreeMap<Arc<str>, Vec<FieldChange>>,
    /// Why stages without changes have none.
    pub empty: BTreeMap<Arc<str>, Empty>,
}

/// Why a stage offers nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Empty {
    /// Whatever it has, the environment has too.
    Same,
    /// It has none of the values that are promoted, where the environment could take them.
    Nothing,
    /// What it has instead is not its own to give, or not the environment's to take.
    Decided,
}

impl Offer {
    pub fn changes_of(&self, stage: &str) -> impl Iterator<Item = &FieldChange> {
        self.by_stage.get(stage).into_iter().flatten()
    }

    /// Whether no stage has anything that the environment lacks.
    pub fn is_in_step(&self) -> bool {
        self.by_stage.values().all(Vec::is_empty)
    }

    /// The same as a sentence, if it is so.
    pub(super) fn in_step(&self, environment: &str) -> Option<String> {
        if !self.is_in_step() {
            return None;
        }
        let of = |why: Empty| -> Vec<&str> {
            self.empty.iter().filter(|(_, own)| **own == why).map(|(stage, _)| &**stage).collect()
        };
        let (nothing, decided) = (of(Empty::Nothing), of(Empty::Decided));
        Some(if !decided.is_empty() {
            let stages = decided.join(" and ");
            format!("where {environment} differs from {stages}, overrides or marks as final decide")
        } else if nothing.len() == self.empty.len() {
            let verb = if nothing.len() == 1 { "has" } else { "have" };
            format!("{} {verb} none of the values that are promoted to {environment}", nothing.join(" and "))
        } else {
            let stages: Vec<&str> = of(Empty::Same);
            format!("{environment} has all that is promoted from {}", stages.join(" and "))
        })
    }
}

/// Compares the environment of `rules` with each of its stages.
pub fn offer(repository: &Repository, rules: &Rules) -> Result<Offer, Diagnostics> {
    let fleet = Fleet::load(repository)?;
    let resolved = fleet.resolve(&rules.environment)?;
    let own = &resolved.tree;
    let (mut by_stage, mut empty) = (BTreeMap::new(), BTreeMap::new());
    let mut overridden = Overridden { repository, fleet: &fleet, resolved: &resolved, fed: BTreeMap::new() };
    for stage in &rules.from {
        let stage_resolved = fleet.resolve(stage)?;
        let mut never_ran =
            Overridden { repository, fleet: &fleet, resolved: &stage_resolved, fed: BTreeMap::new() };
        let theirs = &stage_resolved.tree;
        let mut changes = BTreeMap::new();
        let mut is_sealed = false;
        for path in &rules.paths {
            walk(Names::Shared, Some(theirs), Some(own), path, "", &mut |field, to, from| {
                // Nobody could commit what a file below marked as final.
                if sealed(&resolved, &field.split('.').collect::<Vec<_>>()).is_some() {
                    is_sealed = true;
                    return;
                }
                let change = FieldChange {
                    field: field.to_owned(),
                    from: from.map(Node::to_json),
                    to: to.map(Node::to_json),
                    set_at: from.map(|node| node.place.origin()),
                    comes_from: to.map(|node| node.place.origin()),
                };
                changes.insert(field.to_owned(), change);
            });
        }
        // Of a value that an override decides another one would change nothing, and one that an override of the stage
        // decides was never in force there.
        let is_decided = is_sealed || !changes.is_empty();
        let changes = changes.into_values().filter(|change| {
            !overridden.decides(&change.field, change.set_at.as_ref())
                && !never_ran.decides(&change.field, change.comes_from.as_ref())
        });
        let changes: Vec<FieldChange> = changes.collect();
        if changes.is_empty() {
            let why = match () {
                () if is_decided => Empty::Decided,
                () if rules.paths.iter().any(|path| shares(theirs, own, path)) => Empty::Same,
                () => Empty::Nothing,
            };
            empty.insert(stage.clone(), why);
        }
        by_stage.insert(stage.clone(), changes);
    }
    let mut hash = Sha256::new();
    for path in &rules.paths {
        walk(Names::All, Some(own), None, path, "", &mut |field, value, _| {
            hash.update(field);
            hash.update([0]);
            hash.update(value.map(Node::to_json).unwrap_or_default().to_string());
            hash.update([0]);
        });
    }
    let values: String = hash.finalize().iter().take(20).map(|byte| format!("{byte:02x}")).collect();
    Ok(Offer { revision: repository.revision.clone(), values: values.into(), by_stage, empty })
}

/// Which lines of the environment feed fields of an object that `overrides` replace.
struct Overridden<'a> {
    repository: &'a Repository,
    fleet: &'a Fleet<'a>,
    resolved: &'a Resolved,
    /// By pool.
    fed: BTreeMap<String, BTreeSet<Origin>>,
}

impl Overridden<'_> {
    /// Whether overrides decide the field in place of the line that sets it.
    fn decides(&mut self, field: &str, set_at: Option<&Origin>) -> bool {
        let pool = field.strip_prefix("pools.").and_then(|rest| rest.split('.').next());
        let (Some(pool), Some(set_at)) = (pool, set_at) else { return false };
        if !self.fed.contains_key(pool) {
            let fed = self.fed_of(pool).unwrap_or_default();
            self.fed.insert(pool.to_owned(), fed);
        }
        self.fed[pool].contains(set_at)
    }

    fn fed_of(&self, pool: &str) -> Option<BTreeSet<Origin>> {
        let overrides = written(self.resolved.tree.at(["pools", pool, "overrides"])?);
        let engine = Engine::new(self.repository);
        let before = before_overrides(self.fleet, &engine, self.resolved, &RenderSettings::default(), pool)?;
        let is_replaced = |path: &str| overrides.iter().any(|(over, _)| leads_into(over, path));
        let (gone, left): (Vec<_>, Vec<_>) = before.origins.iter().partition(|(path, _)| is_replaced(path));
        let left: BTreeSet<&Origin> = left.into_iter().map(|(_, origin)| origin).collect();
        let gone = gone.into_iter().map(|(_, origin)| origin);
        Some(gone.filter(|origin| !left.contains(origin)).cloned().collect())
    }
}

/// The mark by which a file below the environment's own keeps a field as it is.
pub(super) fn sealed<'r>(resolved: &'r Resolved, field: &[&str]) -> Option<&'r Place> {
    // What one marks as final its own file may still change.
    let below = resolved.layers.split_last().map_or([].as_slice(), |(_, below)| below);
    let mut marks = below.iter().flat_map(|layer| &layer.finals);
    marks.find(|(path, _)| covers(path, field)).map(|(_, place)| place)
}

/// Whether a mark is about a field: for all pools it is about their defaults too, and for variables about those of pools.
fn covers(mark: &[String], field: &[&str]) -> bool {
    let is_same = |(a, b): (&String, &&str)| a == "*" || a == b;
    let is_over = |field: &[&str]| mark.len() <= field.len() && mark.iter().zip(field).all(is_same);
    match field {
        ["defaults", kind @ ("pool" | "class"), rest @ ..] => {
            let table = if *kind == "pool" { "pools" } else { "classes" };
            is_over(field) || is_over(&[&[table, "*"], rest].concat())
        }
        ["pools" | "classes", _, rest @ ..] if rest.first() == Some(&"variables") => {
            is_over(field) || is_over(rest)
        }
        _ => is_over(field),
    }
}

/// Whether a stage has anything at a path.
pub(super) fn has(resolved: &Resolved, path: &[String]) -> bool {
    let mut any = false;
    walk(Names::All, Some(&resolved.tree), None, path, "", &mut |_, _, _| any = true);
    any
}

/// Whether a stage has anything that the environment could have from it.
fn shares(theirs: &Node, own: &Node, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    let Some(map) = theirs.as_map() else { return false };
    map.iter().filter(|(name, _)| first == "*" || name.as_ref() == first).any(|(name, entry)| {
        let ours = own.get(name);
        rest.is_empty() || ours.is_some_and(|ours| shares(&entry.node, ours, rest))
    })
}

/// What `*` stands for on the way to a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    All,
    Shared,
}

/// Every value below `path` that the two trees do not share, as `(field, theirs, ours)`.
///
/// A shared `*` stands for names that both have, and at the end of a path for all that they have: a pool that only we have is
/// ours to keep, a single field of a pool that we lack makes no pool, and where they have nothing there is nothing to take.
fn walk<'n>(
    stars: Names,
    theirs: Option<&'n Node>,
    ours: Option<&'n Node>,
    path: &[String],
    at: &str,
    report: &mut impl FnMut(&str, Option<&'n Node>, Option<&'n Node>),
) {
    let Some((first, rest)) = path.split_first() else {
        // Who has nothing there at all vouches for nothing: a ceiling does not go because somebody else has none.
        return if theirs.is_some() {
            differ(theirs, ours, at, report)
        };
    };
    let names: Vec<&str> = match (first.as_str(), theirs.and_then(Node::as_map)) {
        ("*", Some(map)) => {
            map.iter().map(|(name, _)| &**name).filter(|name| !name.starts_with("x-")).collect()
        }
        ("*", None) => Vec::new(),
        (name, _) => vec![name],
    };
    for name in names {
        let (theirs, ours_inner) =
            (theirs.and_then(|node| node.get(name)), ours.and_then(|node| node.get(name)));
        let is_meant = stars == Names::All || ours_inner.is_some() || rest.is_empty();
        if first != "*" || is_meant {
            walk(stars, theirs, ours_inner, rest, &joined(at, name), report);
        }
    }
}

fn differ<'n>(
    theirs: Option<&'n Node>,
    ours: Option<&'n Node>,
    at: &str,
    report: &mut impl FnMut(&str, Option<&'n Node>, Option<&'n Node>),
) {
    let (their_map, our_map) = (theirs.and_then(Node::as_map), ours.and_then(Node::as_map));
    let is_tables = their_map.is_some() && (our_map.is_some() || ours.is_none());
    if let Some(their_map) = their_map.filter(|map| is_tables && !map.is_empty()) {
        let of = |map: &'n crate::gitops::tree::Map| map.iter().map(|(name, _)| &**name);
        let names: BTreeSet<&str> = of(their_map).chain(our_map.into_iter().flat_map(of)).collect();
        for name in names.into_iter().filter(|name| !name.starts_with("x-")) {
            let ours = our_map.and_then(|map| map.get(name));
            differ(their_map.get(name), ours, &joined(at, name), report);
        }
        return;
    }
    if theirs.map(Node::to_json) != ours.map(Node::to_json) {
        report(at, theirs, ours);
    }
}
