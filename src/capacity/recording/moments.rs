//! Moments and durations of a recording that sums can be made of: the engine adds to them, and time has an end.

use jiff::{SignedDuration, Timestamp};

use super::reader::Unreadable;
use crate::capacity::engine::EngineSettings;
use crate::model::claim::Condition;
use crate::model::observation::{InterruptionNotice, LaunchFailure, Observation};

/// Seconds since 1970 of the year 2300.
const LAST: i64 = 10_413_792_000;
const LONGEST: SignedDuration = SignedDuration::from_hours(300 * 366 * 24);

pub(super) fn check(at: Timestamp) -> Result<(), Unreadable> {
    if (0..LAST).contains(&at.as_second()) { Ok(()) } else { Err(Unreadable::Moment(at)) }
}

fn check_all(moments: impl IntoIterator<Item = Option<Timestamp>>) -> Result<(), Unreadable> {
    moments.into_iter().flatten().try_for_each(check)
}

fn check_duration(duration: Option<SignedDuration>) -> Result<(), Unreadable> {
    let is_fine = duration.is_none_or(|duration| (SignedDuration::ZERO..=LONGEST).contains(&duration));
    if is_fine { Ok(()) } else { Err(Unreadable::Duration) }
}

fn since<'c, K>(conditions: impl Iterator<Item = (K, &'c Condition)>) -> Result<(), Unreadable> {
    check_all(conditions.map(|(_, condition)| condition.since))
}

pub(super) fn check_settings(settings: &EngineSettings) -> Result<(), Unreadable> {
    let EngineSettings { batch, patience, scheduling, .. } = settings;
    let durations = [batch.idle, batch.longest, patience.launch, patience.registration];
    durations.into_iter().map(Some).chain([scheduling.termination_grace]).try_for_each(check_duration)
}

pub(super) fn check_observation(what: &Observation) -> Result<(), Unreadable> {
    match what {
        Observation::Pool(pool) => {
            check_all([pool.created])?;
            since(pool.conditions.iter())?;
            check_duration(pool.template.termination_grace)?;
            check_duration(pool.template.expire_after.duration)?;
            check_duration(pool.disruption.consolidate_after.duration)?;
            let windows = pool.disruption.budgets.iter().filter_map(|budget| budget.window.as_ref());
            windows.map(|window| Some(window.duration)).try_for_each(check_duration)
        }
        Observation::Class(class) => check_all(class.readiness.iter().map(|condition| condition.since)),
        Observation::Overlay(overlay) => since(overlay.conditions.iter()),
        Observation::Claim(claim) => {
            check_all([claim.created, claim.deleted, claim.last_pod_event])?;
            since(claim.conditions.iter())?;
            check_duration(claim.spec.termination_grace)?;
            check_duration(claim.spec.expire_after.duration)
        }
        Observation::Node(node) => {
            check_all([node.created, node.deleted])?;
            check_all(node.conditions.iter().map(|condition| condition.since))
        }
        Observation::Pod(pod) => check_all([pod.created, pod.deleted, pod.started]),
        Observation::StorageClass(class) => check_all([class.created]),
        Observation::Buffer(buffer) => {
            check_all([buffer.created])?;
            since(buffer.status.conditions.iter())
        }
        Observation::Launched { instance, shortage, .. } => {
            check_all([Some(instance.launched), shortage.as_ref().map(|shortage| shortage.until)])
        }
        Observation::LaunchFailed { failure: LaunchFailure::InsufficientCapacity(shortage), .. } => {
            check(shortage.until)
        }
        Observation::Instances(instances) => {
            check_all(instances.iter().map(|instance| Some(instance.launched)))
        }
        Observation::Interruption { notice: InterruptionNotice::SpotReclaim { at }, .. } => check(*at),
        _ => Ok(()),
    }
}
