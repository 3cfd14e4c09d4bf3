//! When changes may be applied: cron-shaped windows in a time zone, as a question with an answer.
//!
//! No window that speaks of a change: allowed. Some allow it: only while one of those is open. An open denial always wins.
//! A window that cannot be read denies: a freeze must not end because of a typing error.
//!
//! Schedules are read in civil time. A start that the clock skips happens when the clock goes on; one that the clock
//! repeats happens once, the first time. Time zones are the bundled ones, so that an answer is the same on every machine.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use croner::Cron;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use crate::model::time::parse_duration;

/// What a change does, for windows that tell kinds of change apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeClass {
    /// A new object.
    Additive,
    /// Replaces no node.
    Behavioural,
    /// Replaces nodes within their budgets.
    Rolling,
    /// Takes objects or nodes away.
    Destructive,
}

impl ChangeClass {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Additive => "additive",
            Self::Behavioural => "behavioural",
            Self::Rolling => "rolling",
            Self::Destructive => "destructive",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WindowKind {
    Allow,
    Deny,
}

/// A window as it is written. Empty selectors mean all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WindowSpec {
    pub kind: WindowKind,
    /// Five cron fields or a macro such as `@daily`.
    pub schedule: String,
    pub duration: String,
    #[serde(default = "utc")]
    pub time_zone: String,
    /// Names with `*` and `?`.
    #[serde(default)]
    pub environments: Vec<String>,
    #[serde(default)]
    pub pools: Vec<String>,
    #[serde(default)]
    pub classes: BTreeSet<ChangeClass>,
    /// A person's own sync may pass.
    #[serde(default)]
    pub manual: bool,
    /// A sync that runs when the window turns against it may finish.
    #[serde(default)]
    pub overrun: bool,
}

fn utc() -> String {
    "UTC".into()
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    #[error(
        "`{schedule}` is no schedule: {why}. Write five cron fields, such as `0 22 * * 1-5`, or `@daily`"
    )]
    Schedule { schedule: String, why: String },
    #[error("`{0}` is no duration of a window; write hours and minutes, such as `8h` or `1h30m`")]
    Duration(String),
    #[error("`{0}` is no time zone of the IANA database; write a name such as `Europe/Amsterdam`, or `UTC`")]
    Zone(String),
}

/// A window that can be asked.
#[derive(Clone, Debug)]
pub struct Window {
    pub spec: WindowSpec,
    cron: Cron,
    duration: SignedDuration,
    zone: TimeZone,
}

impl PartialEq for Window {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

/// An hour that the clock repeats or skips is at most this long (Antarctica/Troll: two hours).
const CLOCK_SHIFT_MAX_HOURS: i64 = 3;

impl Window {
    pub fn parse(spec: WindowSpec) -> Result<Self, WindowError> {
        let bad_schedule = |why: String| WindowError::Schedule { schedule: spec.schedule.clone(), why };
        let is_macro = spec.schedule.trim().starts_with('@');
        if !is_macro && spec.schedule.split_whitespace().count() != 5 {
            return Err(bad_schedule("it has not five fields".into()));
        }
        let cron = Cron::from_str(&spec.schedule).map_err(|error| bad_schedule(error.to_string()))?;
        let duration = parse_duration(&spec.duration).ok().filter(|duration| duration.is_positive());
        let duration = duration.ok_or_else(|| WindowError::Duration(spec.duration.clone()))?;
        let zone = TimeZoneDatabase::bundled()
            .get(&spec.time_zone)
            .map_err(|_| WindowError::Zone(spec.time_zone.clone()))?;
        Ok(Self { spec, cron, duration, zone })
    }

    /// Until when the window is open, if it is open at `at`.
    pub fn open_until(&self, at: Timestamp) -> Option<Timestamp> {
        let start = self.last_start(at)?;
        let end = start.checked_add(self.duration).ok()?;
        (at < end).then_some(end)
    }

    /// The next moment after `at` at which the window starts.
    pub fn next_start(&self, at: Timestamp) -> Option<Timestamp> {
        let mut civil = self.civil(at).checked_sub(CLOCK_SHIFT_MAX_HOURS.hours()).ok()?;
        loop {
            civil = self.cron.find_next_occurrence(&civil, false).ok()?;
            let start = self.instant(civil)?;
            if start > at {
                return Some(start);
            }
        }
    }

    fn last_start(&self, at: Timestamp) -> Option<Timestamp> {
        let mut civil = self.civil(at).checked_add(CLOCK_SHIFT_MAX_HOURS.hours()).ok()?;
        loop {
            civil = self.cron.find_previous_occurrence(&civil, false).ok()?;
            let start = self.instant(civil)?;
            if start <= at {
                return Some(start);
            }
        }
    }

    fn civil(&self, at: Timestamp) -> DateTime {
        self.zone.to_datetime(at)
    }

    fn instant(&self, civil: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(civil);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok(),
            AmbiguousOffset::Gap { .. } => {
                let before_the_skip = ambiguous.earlier().ok()?;
                Some(self.zone.following(before_the_skip).next()?.timestamp())
            }
        }
    }

    fn concerns(&self, question: &Question<'_>) -> bool {
        let any =
            |globs: &[String], name: &str| globs.is_empty() || globs.iter().any(|glob| matches(glob, name));
        any(&self.spec.environments, question.environment)
            && (self.spec.pools.is_empty() || question.pool.is_some_and(|pool| any(&self.spec.pools, pool)))
            && (self.spec.classes.is_empty() || self.spec.classes.contains(&question.class))
    }
}

/// Whether `name` fits `glob`, in which `*` stands for any text and `?` for one character.
pub fn matches(glob: &str, name: &str) -> bool {
    let glob: Vec<char> = glob.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut seen) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while seen < name.len() {
        if at < glob.len() && (glob[at] == '?' || glob[at] == name[seen]) && glob[at] != '*' {
            at += 1;
            seen += 1;
        } else if at < glob.len() && glob[at] == '*' {
            star = Some((at, seen));
            at += 1;
        } else if let Some((back, taken)) = star {
            star = Some((back, taken + 1));
            at = back + 1;
            seen = taken + 1;
        } else {
            return false;
        }
    }
    glob[at..].iter().all(|rest| *rest == '*')
}

/// One change, as windows see it.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub environment: &'a str,
    /// The pool, or `None` for other kinds of objects.
    pub pool: Option<&'a str>,
    pub class: ChangeClass,
    /// A person asked for this sync.
    pub is_manual: bool,
    /// When the running sync started, if it is not new.
    pub started: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Open,
    /// Closed, why, and when to ask again if a schedule tells.
    Closed {
        why: String,
        until: Option<Timestamp>,
    },
}

/// The windows of one authority. Several authorities must all agree: see `policy`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Windows {
    windows: Vec<Arc<Window>>,
    broken: Vec<WindowError>,
}

impl Windows {
    /// Reads all windows; those that cannot be read close everything until they are mended.
    pub fn new(specs: impl IntoIterator<Item = WindowSpec>) -> Self {
        let mut windows = Self::default();
        for spec in specs {
            match Window::parse(spec) {
                Ok(window) => windows.windows.push(Arc::new(window)),
                Err(error) => windows.broken.push(error),
            }
        }
        windows
    }

    /// What is wrong with the windows, for whoever loads them.
    pub fn errors(&self) -> &[WindowError] {
        &self.broken
    }

    pub fn ask(&self, question: &Question<'_>, now: Timestamp) -> Answer {
        if let Some(error) = self.broken.first() {
            return Answer::Closed { why: format!("a sync window cannot be read: {error}"), until: None };
        }
        let concerned = |kind: WindowKind| {
            self.windows.iter().filter(move |window| window.spec.kind == kind && window.concerns(question))
        };
        let passes = |window: &Window| {
            (question.is_manual && window.spec.manual)
                || question
                    .started
                    .is_some_and(|started| window.spec.overrun && self.was_for(window, started))
        };
        let denied = concerned(WindowKind::Deny)
            .filter(|window| !passes(window))
            .filter_map(|window| Some((window.open_until(now)?, window)))
            .max_by_key(|(end, _)| *end);
        if let Some((end, window)) = denied {
            let why =
                format!("a window denies {} changes ({})", question.class.as_str(), describe(&window.spec));
            return Answer::Closed { why, until: Some(end) };
        }
        let allows: Vec<&Arc<Window>> = concerned(WindowKind::Allow).collect();
        let is_open = allows.iter().any(|window| window.open_until(now).is_some());
        if is_open || allows.iter().all(|window| passes(window)) {
            return Answer::Open;
        }
        let until = allows.iter().filter_map(|window| window.next_start(now)).min();
        let windows: Vec<String> = allows.iter().map(|window| describe(&window.spec)).collect();
        let why = format!("{} changes wait for a window ({})", question.class.as_str(), windows.join("; "));
        Answer::Closed { why, until }
    }

    /// Whether the window was in favour when a sync started: only then may the sync overrun it.
    fn was_for(&self, window: &Window, started: Timestamp) -> bool {
        match window.spec.kind {
            WindowKind::Allow => window.open_until(started).is_some(),
            WindowKind::Deny => window.open_until(started).is_none(),
        }
    }
}

fn describe(spec: &WindowSpec) -> String {
    format!("{} for {} {}", spec.schedule, spec.duration, spec.time_zone)
}
