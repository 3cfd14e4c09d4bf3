//! What may not happen, whoever asks: prune guards, protection, adoption, blast radius, windows.
//!
//! The cluster's configuration is the ceiling. A repository may add rules of its own, and each of them can only forbid
//! more: a commit never weakens its own judge.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::live::Fleet;
use super::source::STALE_AFTER;
use super::window::{Answer, Question, WindowSpec, Windows, matches};
use crate::model::count::counted;

/// Who starts a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SyncMode {
    /// A person, each time.
    Manual,
    /// Every new commit; what drifts afterwards is reported.
    Auto,
    /// Every new commit, and every drift.
    AutoHeal,
}

/// What happens to objects that left Git.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PruneMode {
    /// They stay, and the environment stays out of sync.
    Off,
    /// Pools are emptied within their budgets, then deleted.
    Retire,
    /// They are deleted at once, with their nodes.
    Now,
}

/// What happens to live objects of a wanted name that nobody tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AdoptMode {
    /// Refused, with the difference shown.
    Fail,
    /// Taken over if nothing differs.
    Match,
    /// Taken over once a person confirms or the object's own annotation names the environment.
    Take,
}

/// How much one plan may take away without a person's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlastLimits {
    /// Pools: this many, or `pools_percent` of all, whichever is larger.
    pub pools_max: u32,
    pub pools_percent: u32,
    /// Share of the cluster's nodes, and of its cores.
    pub nodes_percent: u32,
    /// Nodes in absolute terms, if that is limited too.
    pub nodes_max: Option<u32>,
    /// Nodes that one plan may replace within budgets, if that is limited at all.
    pub roll_nodes_max: Option<u32>,
}

impl Default for BlastLimits {
    fn default() -> Self {
        Self { pools_max: 1, pools_percent: 20, nodes_percent: 10, nodes_max: None, roll_nodes_max: None }
    }
}

impl BlastLimits {
    /// No limits: for a cluster that is only imagined, in which nobody could be asked.
    pub fn none() -> Self {
        Self {
            pools_max: u32::MAX,
            pools_percent: 100,
            nodes_percent: 100,
            nodes_max: None,
            roll_nodes_max: None,
        }
    }
}

/// A field that somebody else may keep, on the objects that the selectors name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoreRule {
    kind: Option<String>,
    name: Option<String>,
    /// Dotted path; everything below it is meant too.
    path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rule that ignores `{path}` selects no object; name its kind, its name or both")]
pub struct UnselectiveRule {
    pub path: String,
}

impl IgnoreRule {
    /// Takes a JSON pointer (`/spec/limits`) or a dotted path. A rule for everything is refused.
    pub fn new(kind: Option<&str>, name: Option<&str>, path: &str) -> Result<Self, UnselectiveRule> {
        let path = match path.strip_prefix('/') {
            Some(pointer) => pointer.replace('/', ".").replace("~1", "/").replace("~0", "~"),
            None => path.to_owned(),
        };
        if kind.is_none() && name.is_none() {
            return Err(UnselectiveRule { path });
        }
        Ok(Self { kind: kind.map(Into::into), name: name.map(Into::into), path })
    }

    pub(crate) fn ignores(&self, kind: &str, name: &str, path: &str) -> bool {
        self.kind.as_deref().is_none_or(|wanted| wanted == kind)
            && self.name.as_deref().is_none_or(|glob| matches(glob, name))
            && path
                .strip_prefix(&*self.path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// All rules for one environment: what the cluster's configuration says, tightened by the repository.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncPolicy {
    /// Names this installation of Provisor on the objects it applies.
    pub installation: Arc<str>,
    pub mode: SyncMode,
    pub prune: PruneMode,
    /// The most that a person may ask for.
    pub prune_ceiling: PruneMode,
    /// Whether a commit that wants nothing at all may remove everything, once confirmed.
    pub allow_empty: bool,
    pub adopt: AdoptMode,
    pub limits: BlastLimits,
    /// Pools that stay whatever Git says; names with `*` and `?`.
    pub protected: BTreeSet<Arc<str>>,
    /// Removing a pool that has nodes asks a person first.
    pub confirm_prune: bool,
    pub ignore: Vec<IgnoreRule>,
    /// Compute and report, write nothing.
    pub read_only: bool,
    /// How long a pool may take to empty before a person is asked.
    pub retire_timeout: SignedDuration,
    /// Pause between two waves.
    pub wave_delay: SignedDuration,
    /// Whether a wave waits for the Ready condition of its objects. Off for stores in which nothing sets it.
    pub wait_ready: bool,
    /// How long a wave may take to become ready.
    pub health_timeout: SignedDuration,
    /// One set for each authority, all of which must let a change pass.
    pub windows: Vec<Windows>,
    /// How long the source may be silent before health says so.
    pub stale_after: SignedDuration,
}

impl SyncPolicy {
    /// The defaults: automatic, nothing pruned, nothing adopted.
    pub fn new(installation: &str) -> Self {
        Self {
            installation: installation.into(),
            mode: SyncMode::Auto,
            prune: PruneMode::Off,
            prune_ceiling: PruneMode::Now,
            allow_empty: false,
            adopt: AdoptMode::Fail,
            limits: BlastLimits::default(),
            protected: BTreeSet::new(),
            confirm_prune: false,
            ignore: Vec::new(),
            read_only: false,
            retire_timeout: SignedDuration::from_hours(24),
            wave_delay: SignedDuration::from_secs(2),
            wait_ready: true,
            health_timeout: SignedDuration::from_mins(10),
            windows: Vec::new(),
            stale_after: STALE_AFTER,
        }
    }

    /// Adds the windows of one authority; those of all authorities must be open.
    pub fn with_windows(mut self, windows: Windows) -> Self {
        self.windows.push(windows);
        self
    }

    /// These rules with the repository's on top. What would loosen a rule is left as it was and returned in words.
    pub fn tightened_by(&self, wishes: &RepositoryRules) -> (Self, Vec<String>) {
        let mut policy = self.clone();
        let mut ignored = Vec::new();
        let mut strictest = |what: &str, is_stricter: bool| {
            if !is_stricter {
                ignored.push(format!(
                    "the repository's `{what}` is looser than the cluster's configuration allows and has no effect"
                ));
            }
            is_stricter
        };
        if let Some(mode) = wishes.mode
            && strictest("mode", mode <= self.mode)
        {
            policy.mode = mode;
        }
        if let Some(prune) = wishes.prune
            && strictest("prune", prune <= self.prune)
        {
            policy.prune = prune;
        }
        if let Some(adopt) = wishes.adopt
            && strictest("adopt", adopt <= self.adopt)
        {
            policy.adopt = adopt;
        }
        let limits = &mut policy.limits;
        for (what, wish, limit) in [
            ("poolsMax", wishes.pools_max, &mut limits.pools_max),
            ("poolsPercent", wishes.pools_percent, &mut limits.pools_percent),
            ("nodesPercent", wishes.nodes_percent, &mut limits.nodes_percent),
        ] {
            if let Some(wish) = wish
                && strictest(what, wish <= *limit)
            {
                *limit = wish;
            }
        }
        for (what, wish, limit) in [
            ("nodesMax", wishes.nodes_max, &mut limits.nodes_max),
            ("rollNodesMax", wishes.roll_nodes_max, &mut limits.roll_nodes_max),
        ] {
            if let Some(wish) = wish
                && strictest(what, limit.is_none_or(|limit| wish <= limit))
            {
                *limit = Some(wish);
            }
        }
        policy.protected.extend(wishes.protected.iter().cloned());
        policy.confirm_prune |= wishes.confirm_prune;
        if !wishes.windows.is_empty() {
            policy.windows.push(Windows::new(wishes.windows.iter().cloned()));
        }
        (policy, ignored)
    }

    /// Windows are asked before each step of a sync; all else was settled when it was planned.
    pub(crate) fn is_same_but_for_windows(&self, other: &Self) -> bool {
        let stripped = |policy: &Self| Self { windows: Vec::new(), ..policy.clone() };
        stripped(self) == stripped(other)
    }

    /// Whether all windows let a change pass now.
    pub fn ask_windows(&self, question: &Question<'_>, now: Timestamp) -> Answer {
        let mut worst = Answer::Open;
        for windows in &self.windows {
            let answer = windows.ask(question, now);
            worst = match (worst, answer) {
                (Answer::Open, answer) => answer,
                (closed, Answer::Open) => closed,
                (Answer::Closed { why, until: a }, Answer::Closed { until: b, .. }) => {
                    let until = a.zip(b).map(|(a, b)| a.max(b));
                    Answer::Closed { why, until }
                }
            };
        }
        worst
    }

    pub fn is_protected(&self, pool: &str) -> bool {
        self.protected.iter().any(|glob| matches(glob, pool))
    }

    pub(crate) fn is_ignored(&self, kind: &str, name: &str, path: &str) -> bool {
        self.ignore.iter().any(|rule| rule.ignores(kind, name, path))
    }
}

/// What a repository may say about its own sync. Each wish counts only if it forbids more than the cluster does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RepositoryRules {
    pub mode: Option<SyncMode>,
    pub prune: Option<PruneMode>,
    pub adopt: Option<AdoptMode>,
    pub pools_max: Option<u32>,
    pub pools_percent: Option<u32>,
    pub nodes_percent: Option<u32>,
    pub nodes_max: Option<u32>,
    pub roll_nodes_max: Option<u32>,
    pub protected: Vec<Arc<str>>,
    pub confirm_prune: bool,
    pub windows: Vec<WindowSpec>,
}

/// What a plan would take away, all removals together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blast {
    pub pools: u32,
    pub nodes: u32,
    pub cpu_millis: u64,
}

/// Why removals of this size need a person's word, if they do.
pub(crate) fn blast_excess(
    blast: &Blast,
    pools_total: u32,
    fleet: &Fleet,
    limits: &BlastLimits,
) -> Option<String> {
    let share = |part: u64, whole: u64| part * 100 > whole * u64::from(limits.nodes_percent);
    let pools_allowed = limits.pools_max.max(pools_total.saturating_mul(limits.pools_percent) / 100);
    if blast.pools > pools_allowed {
        return Some(format!(
            "removes {} of {}; the limit is {pools_allowed}",
            blast.pools,
            counted(pools_total, "pool")
        ));
    }
    if let Some(limit) = limits.nodes_max
        && blast.nodes > limit
    {
        return Some(format!("removes {}; the limit is {limit}", counted(blast.nodes, "running node")));
    }
    let nodes_total = fleet.node_count();
    if blast.nodes > 0 && share(blast.nodes.into(), nodes_total.into()) {
        return Some(format!(
            "removes {} of {}; the limit is {} %",
            blast.nodes,
            counted(nodes_total, "running node"),
            limits.nodes_percent
        ));
    }
    let cpu_total: u64 = fleet.nodes_by_pool.values().flatten().map(|node| node.cpu_millis).sum();
    if blast.cpu_millis > 0 && share(blast.cpu_millis, cpu_total) {
        return Some(format!(
            "removes {} of {}; the limit is {} %",
            blast.cpu_millis / 1000,
            counted(cpu_total / 1000, "core"),
            limits.nodes_percent
        ));
    }
    None
}
