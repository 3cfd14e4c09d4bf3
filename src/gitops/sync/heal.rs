//! When drift is put back: after a moment, ever more slowly, and not for ever.
//!
//! A field that is changed back again and again belongs to somebody who will not stop. After three times in a quarter of an
//! hour we do: that field is left to them for an hour, by name, and everything else goes on being healed.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::operation::back_off;
use super::{SyncReason, reason};
use crate::gitops::desired::{DesiredObject, ObjectRef};
use crate::gitops::diff::{FieldChange, diff_object, last_writer};
use crate::gitops::live::{LiveObject, LiveState};
use crate::gitops::plan::PlannedChange;
use crate::gitops::policy::IgnoreRule;

/// Several changes of one moment are healed together.
const DEBOUNCE: SignedDuration = SignedDuration::from_secs(1);
/// Pause after a heal before the next; it triples up to `PAUSE_MAX` (as Argo CD).
const PAUSE: SignedDuration = SignedDuration::from_secs(2);
const PAUSE_MAX: SignedDuration = SignedDuration::from_secs(300);
/// How often one field is put back within `FIGHT_SPAN` before it is left alone for `FIGHT_TRUCE`.
const FIGHT_HEALS: usize = 3;
const FIGHT_SPAN: SignedDuration = SignedDuration::from_mins(15);
const FIGHT_TRUCE: SignedDuration = SignedDuration::from_hours(1);

#[derive(Clone, Debug, Default)]
pub(super) struct Healing {
    noticed: Option<Timestamp>,
    last: Option<Timestamp>,
    times: u32,
    fields: BTreeMap<(ObjectRef, String), Contested>,
}

/// A field that was put back.
#[derive(Clone, Debug, Default)]
struct Contested {
    healed: Vec<Timestamp>,
    truce_until: Option<Timestamp>,
    manager: Option<String>,
    /// The very answer to our write already differed: something in the API server changes it, not a controller later.
    is_unstable: bool,
}

fn after(moment: Timestamp, wait: SignedDuration) -> Timestamp {
    moment.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// How long to rest after something was put back for the `times`th time.
pub(super) fn pause(times: u32) -> SignedDuration {
    back_off(PAUSE, 3, times.saturating_sub(1), PAUSE_MAX)
}

impl Healing {
    /// Nothing drifts any more.
    pub(super) fn calm(&mut self) {
        self.noticed = None;
    }

    /// How long the drift seen now has to wait, if it has to.
    pub(super) fn hold_until(&mut self, now: Timestamp) -> Option<Timestamp> {
        let noticed = *self.noticed.get_or_insert(now);
        if self.last.is_some_and(|last| after(last, FIGHT_SPAN) <= now) {
            self.times = 0;
        }
        let rested = match self.last {
            Some(last) if self.times > 0 => after(last, pause(self.times)),
            _ => noticed,
        };
        let earliest = after(noticed, DEBOUNCE).max(rested);
        (now < earliest).then_some(earliest)
    }

    /// Remembers that these changes are put back now.
    pub(super) fn healed(&mut self, now: Timestamp, changes: &[&PlannedChange]) {
        self.noticed = None;
        self.last = Some(now);
        self.times += 1;
        for change in changes {
            for field in &change.fields {
                self.fields.entry(key(change, field)).or_default().healed.push(now);
            }
        }
    }

    /// Leaves to others the fields that they changed back too often. Whether there were any.
    pub(super) fn give_up_fights(
        &mut self,
        now: Timestamp,
        changes: &[&PlannedChange],
        live: &LiveState,
    ) -> bool {
        let mut is_any = false;
        for change in changes {
            for field in &change.fields {
                let Some(contested) = self.fields.get_mut(&key(change, field)) else { continue };
                contested.healed.retain(|healed| after(*healed, FIGHT_SPAN) > now);
                if contested.healed.len() >= FIGHT_HEALS {
                    contested.healed.clear();
                    contested.truce_until = Some(after(now, FIGHT_TRUCE));
                    let live = live.objects.get(&change.object);
                    let writer = live.and_then(|live| last_writer(live, field.whole_list()));
                    contested.manager = writer.or(contested.manager.take());
                    is_any = true;
                }
            }
        }
        is_any
    }

    /// Compares the API server's answer with what was sent.
    pub(super) fn answered(&mut self, change: &PlannedChange, live: &LiveObject) {
        let Some(manifest) = &change.manifest else { return };
        let sent = DesiredObject { manifest: manifest.clone(), origins: BTreeMap::new() };
        let diff = diff_object(&change.object, Some(live), Some(&sent), None);
        for field in diff.fields {
            let contested = self.fields.entry(key(change, &field)).or_default();
            contested.is_unstable = true;
            contested.manager = last_writer(live, field.whole_list());
        }
    }

    /// Fields that are left to others at `now`, as rules for the plan.
    pub(super) fn paused_fields(&self, now: Timestamp) -> Vec<IgnoreRule> {
        self.truces(now)
            .filter_map(|((object, path), _)| {
                IgnoreRule::new(Some(&object.kind), Some(&object.name), path).ok()
            })
            .collect()
    }

    /// Whether no field is left to others.
    pub(super) fn is_at_peace(&self) -> bool {
        self.fields.values().all(|contested| contested.truce_until.is_none())
    }

    fn truces(&self, now: Timestamp) -> impl Iterator<Item = (&(ObjectRef, String), &Contested)> {
        self.fields
            .iter()
            .filter(move |(_, contested)| contested.truce_until.is_some_and(|until| until > now))
    }

    /// Forgets truces that are over. Whether there were any.
    pub(super) fn expire(&mut self, now: Timestamp) -> bool {
        let before = self.fields.len();
        self.fields.retain(|_, contested| contested.truce_until.is_none_or(|until| until > now));
        self.fields.len() != before
    }

    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.fields.values().filter_map(|contested| contested.truce_until).min()
    }

    /// `DriftFight` and `UnstableDiff`, each with the field and its other writer.
    pub(super) fn conditions(&self, now: Timestamp) -> Vec<SyncReason> {
        let unstable = self.fields.iter().filter(|(_, contested)| contested.is_unstable);
        let unstable = unstable.map(|((object, path), contested)| {
            let who = contested.manager.as_deref().unwrap_or("the API server");
            reason("UnstableDiff", format!("{object} {path} is changed by {who} whenever it is applied"))
        });
        let fights = self.truces(now).filter(|(_, contested)| !contested.is_unstable);
        let fights = fights.map(|((object, path), contested)| {
            let who = contested.manager.as_deref().unwrap_or("somebody");
            let until = contested.truce_until.map(|until| until.to_string()).unwrap_or_default();
            reason(
                "DriftFight",
                format!("{object} {path} is changed back by {who}; left alone until {until}"),
            )
        });
        unstable.chain(fights).collect()
    }
}

fn key(change: &PlannedChange, field: &FieldChange) -> (ObjectRef, String) {
    (change.object.clone(), field.path.clone())
}

/// What drifted, and who changed it as far as the object tells.
pub(super) fn describe(change: &PlannedChange, live: &LiveState) -> Vec<SyncReason> {
    if change.fields.is_empty() {
        return vec![reason("Drifted", format!("{} is gone: {}", change.object, change.reasons.join("; ")))];
    }
    let object = live.objects.get(&change.object);
    let fields = change.fields.iter();
    fields
        .map(|field| {
            let writer = object.and_then(|live| last_writer(live, field.whole_list()));
            let who = writer.unwrap_or_else(|| "somebody".into());
            reason("Drifted", format!("{} {field}: changed by {who}", change.object))
        })
        .collect()
}
