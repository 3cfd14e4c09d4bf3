//! What is written on pools, overlays and buffers: looked at when something about them changed, written when it differs.

use jiff::Timestamp;

use super::Engine;
use crate::capacity::buffers::{self, Hosting};
use crate::capacity::decision::Steps;
use crate::capacity::disruption::roll;
use crate::capacity::pool_status;
use crate::model::action::{Action, Notice, PoolChange, Subject};
use crate::model::buffer::{BufferSource, BufferStatus};
use crate::model::condition::ConditionStatus;
use crate::model::count::counted;
use crate::model::name::{ObjectKey, PoolName};
use crate::model::pool::{NodePool, OverlayCondition, PoolUse};
use crate::model::symbol::Symbol;

impl Engine {
    /// Buffers whose source is called `named` and is of the right kind are looked up again.
    pub(super) fn touch_buffers(&mut self, named: ObjectKey, is_kind: impl Fn(&BufferSource) -> bool) {
        let concerned = self.cluster.buffers.values().filter(|buffer| {
            let name_of = |source: &BufferSource| match source {
                BufferSource::Template(name) | BufferSource::Scalable { name, .. } => *name,
            };
            buffer.key.namespace == named.namespace
                && buffer.source.is_some_and(|source| name_of(&source) == named.name && is_kind(&source))
        });
        self.buffers_changed.extend(concerned.map(|buffer| buffer.key));
    }

    pub(super) fn touch_scalable(&mut self, wanted: Symbol, key: ObjectKey) {
        let is_kind =
            |source: &BufferSource| matches!(source, BufferSource::Scalable { kind, .. } if *kind == wanted);
        self.touch_buffers(key, is_kind);
    }

    /// A write of ours to the object that `subject` names, alone or after a slash or a space, did not succeed: what was
    /// reported on it is not there.
    pub(super) fn report_again(&mut self, subject: &str) {
        let name = subject.rsplit(['/', ' ']).next().unwrap_or(subject);
        let pool = PoolName::new(name);
        if let Some(known) = self.cluster.pools.get_mut(&pool) {
            let known = std::sync::Arc::make_mut(known);
            (known.used, known.conditions) = (None, Default::default());
            if known.roll_failures.is_some() {
                self.tries.doubt(pool);
            }
            self.pools_changed.insert(pool);
        }
        if let Some(known) = self.cluster.overlays.get_mut(&Symbol::new(name)) {
            std::sync::Arc::make_mut(known).conditions = Default::default();
            self.overlays_changed = true;
        }
        for (key, known) in &mut self.cluster.buffers {
            if key.name.as_str() == name {
                std::sync::Arc::make_mut(known).status = BufferStatus::default();
                self.buffers_changed.insert(*key);
            }
        }
    }

    /// Brings the hashes of pools, and those of their claims, to our version.
    pub(super) fn stamp_pools(&mut self, now: Timestamp, out: &mut Steps) {
        let mut steps = Steps::default();
        for pool in self.pools_changed.iter().filter_map(|name| self.cluster.pools.get(name)) {
            if is_ours(pool) {
                pool_status::stamp(&self.cluster, pool, &mut steps);
            }
        }
        self.take(steps, now, out);
    }

    /// Says how pools are. What they are is what pods are planned by.
    pub(super) fn judge_pools(&mut self, now: Timestamp, out: &mut Steps) {
        let mut steps = Steps::default();
        for name in std::mem::take(&mut self.pools_changed) {
            let Some(pool) = self.cluster.pools.get(&name).filter(|pool| is_ours(pool)) else { continue };
            pool_status::report_conditions(&self.cluster, pool, &mut self.registrations, now, &mut steps);
            self.uncounted.insert(name);
        }
        self.take(steps, now, out);
    }

    /// Writes how pools are at once, and what their nodes come to every now and then.
    pub(super) fn report_pools(&mut self, now: Timestamp, out: &mut Steps) {
        self.judge_pools(now, out);
        let mut steps = Steps::default();
        for name in self.tries.take_unwritten() {
            let failures = self.cluster.pools.get(&name).and_then(|pool| pool.roll_failures);
            if let Some(failures) = failures {
                steps.push(
                    roll::remember(name, failures),
                    "RollFailures",
                    "it is not written at the pool yet",
                );
            }
        }
        self.take(steps, now, out);
        let mut unreported = std::mem::take(&mut self.uncounted);
        unreported.extend(self.tally.catch_up(&self.cluster));
        unreported.retain(|name| {
            self.cluster
                .pools
                .get(name)
                .is_some_and(|pool| is_ours(pool) && pool.used.as_ref() != Some(&self.use_of(pool)))
        });
        if unreported.is_empty() {
            return;
        }
        if let Err(at) = self.provisioning.is_reporting(now) {
            self.uncounted = unreported;
            return out.wake(at);
        }
        let mut steps = Steps::default();
        for pool in unreported {
            let Some(used) = self.cluster.pools.get(&pool).map(|pool| self.use_of(pool)) else { continue };
            let message = counted(used.nodes, "node");
            let change = PoolChange { used: Some(used), ..PoolChange::default() };
            steps.push(Action::UpdatePool { pool, change }, "PoolStatus", message);
        }
        self.take(steps, now, out);
    }

    /// What the nodes of `pool` come to. What it says it used once is zero rather than left out: a status is merged into the one that is there.
    fn use_of(&self, pool: &NodePool) -> PoolUse {
        let mut used = self.tally.of(pool.name);
        let said = pool.used.iter().flat_map(|known| known.resources.iter());
        for (name, _) in said {
            used.resources.set(name, used.resources.get(name));
        }
        used
    }

    /// Writes which overlays have an effect, after anything about them or about what pools could buy changed.
    pub(super) fn report_overlays(&mut self, now: Timestamp, out: &mut Steps) {
        if !std::mem::take(&mut self.overlays_changed)
            || !self.settings.scheduling.node_overlay
            || self.cluster.overlays.is_empty()
        {
            return;
        }
        let supply = self.supply();
        let mut steps = Steps::default();
        for overlay in self.cluster.overlays.values().filter(|overlay| self.owns(overlay.owner)) {
            let mut conditions = overlay.conditions.clone();
            let kind = OverlayCondition::ValidationSucceeded;
            let mut set =
                |status, reason: &str, message: &str| conditions.set(kind, status, reason, message, now);
            if let Some(fault) = overlay.fault {
                set(ConditionStatus::False, "RuntimeValidation", &fault);
            } else if supply.overlay_conflicts().contains(&overlay.name) {
                set(ConditionStatus::False, "Conflict", "conflict with another overlay");
            } else {
                set(ConditionStatus::True, "ValidationSucceeded", "");
            }
            conditions.conclude(OverlayCondition::Ready, &[kind], now);
            if conditions != overlay.conditions || overlay.is_judged_earlier {
                let valid = conditions.get(kind).map_or("", |valid| valid.reason.as_str());
                let message = format!("overlay {}: {valid}", overlay.name);
                steps.push(
                    Action::UpdateOverlay { overlay: overlay.name, conditions },
                    "OverlayStatus",
                    message,
                );
            }
        }
        for (pool, why) in supply.unlisted() {
            let message = format!("overlays are not applied to pool {pool}: {why}");
            let notice = Notice {
                subject: Subject::Pool(*pool),
                is_warning: true,
                reason: "InstanceTypesUnknown".into(),
                message: message.as_str().into(),
            };
            steps.push(Action::Publish(notice), "InstanceTypesUnknown", message);
        }
        self.take(steps, now, out);
    }

    /// Looks up what buffers refer to; one whose room changed wakes provisioning.
    pub(super) fn tend_buffers(&mut self, now: Timestamp, out: &mut Steps) {
        if !self.settings.scheduling.capacity_buffer {
            return;
        }
        let mut steps = Steps::default();
        for key in std::mem::take(&mut self.buffers_changed) {
            let former = self.rooms.remove(&key);
            let Some(buffer) = self.cluster.buffers.get(&key) else {
                self.drop_room(key);
                continue;
            };
            let resolved = buffers::resolve(&self.cluster, buffer);
            let status = buffers::resolved_status(buffer, &resolved, now);
            let uid = buffer.uid;
            let is_active = buffers::is_active(buffer);
            if status != buffer.status {
                let message = match &resolved {
                    Ok(room) => format!("keeps room for {}", counted(room.replicas, "pod")),
                    Err(why) => why.message.clone(),
                };
                steps.push(Action::UpdateBuffer { buffer: key, status }, "BufferStatus", message);
            }
            match resolved {
                Ok(room) if is_active => {
                    if former.as_ref() != Some(&room) {
                        self.batch.trigger(uid, now);
                        self.revision += 1;
                    }
                    self.rooms.insert(key, room);
                }
                _ => self.drop_room(key),
            }
        }
        self.take(steps, now, out);
    }

    /// Nothing keeps room for `buffer` any more: what only it kept may go.
    fn drop_room(&mut self, buffer: ObjectKey) {
        self.provisioning.hosting.forget(buffer);
        self.revision += 1;
    }

    /// Writes whether there is the room that buffers ask for.
    pub(super) fn report_room(&self, hosting: &Hosting, now: Timestamp, steps: &mut Steps) {
        for (key, room) in &self.rooms {
            let Some(buffer) = self.cluster.buffers.get(key) else { continue };
            let status = buffers::placed_status(buffer, room, hosting, now);
            if status != buffer.status {
                let kind = crate::model::buffer::BufferCondition::Provisioning;
                let message = status.conditions.get(kind).map_or("", |found| found.message.as_str());
                let message = message.to_owned();
                steps.push(Action::UpdateBuffer { buffer: *key, status }, "BufferStatus", message);
            }
        }
    }
}

/// Whether `pool` refers to a class of ours; others belong to another installation.
fn is_ours(pool: &NodePool) -> bool {
    pool.template.class.is_ours()
}
