//! When a round of provisioning begins: pods come in crowds, and planning for the crowd is cheaper than for each of them.
//!
//! A window opens with the first trigger, stays open while new ones keep coming, and never longer than its maximum.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::model::name::Uid;

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BatchWindow {
    /// Without news for so long, the round begins.
    pub idle: SignedDuration,
    /// It begins at the latest so long after the first trigger.
    pub longest: SignedDuration,
}

impl Default for BatchWindow {
    /// One second and ten, as in Karpenter.
    fn default() -> Self {
        Self { idle: SignedDuration::from_secs(1), longest: SignedDuration::from_secs(10) }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    /// First trigger, and the last new one.
    open: Option<(Timestamp, Timestamp)>,
    seen: BTreeSet<Uid>,
}

impl Batch {
    /// A repeated trigger does not keep the window open.
    pub fn trigger(&mut self, who: Uid, now: Timestamp) {
        let is_new = self.seen.insert(who);
        match &mut self.open {
            None => self.open = Some((now, now)),
            Some((_, last)) if is_new => *last = now,
            Some(_) => {}
        }
    }

    /// When the window closes.
    pub fn ripe_at(&self, window: BatchWindow) -> Option<Timestamp> {
        self.open.map(|(first, last)| (last + window.idle).min(first + window.longest))
    }

    /// Closes the window if its time has come.
    pub fn take(&mut self, window: BatchWindow, now: Timestamp) -> bool {
        let is_ripe = self.ripe_at(window).is_some_and(|at| at <= now);
        if is_ripe {
            self.open = None;
            self.seen.clear();
        }
        is_ripe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_772_620_200_000 + millis).unwrap()
    }

    #[test]
    fn sch_001_a_window_closes_when_nothing_new_comes_for_a_second() {
        let mut batch = Batch::default();
        let window = BatchWindow::default();
        batch.trigger("a".into(), at(0));
        batch.trigger("b".into(), at(800));
        batch.trigger("b".into(), at(1500));
        assert!(!batch.take(window, at(1799)), "the repetition of b did not count, b itself did");
        assert!(batch.take(window, at(1800)));
        assert!(batch.ripe_at(window).is_none());
    }

    /// Five seconds of silence, ten at the longest.
    const SLOW: BatchWindow =
        BatchWindow { idle: SignedDuration::from_secs(5), longest: SignedDuration::from_secs(10) };

    #[test]
    fn sch_002_a_known_pod_keeps_no_window_open() {
        let mut batch = Batch::default();
        batch.trigger("a".into(), at(0));
        batch.trigger("a".into(), at(3000));
        assert!(!batch.take(SLOW, at(4999)));
        assert!(batch.take(SLOW, at(6000)));
        batch.trigger("a".into(), at(7000));
        assert_eq!(batch.ripe_at(SLOW), Some(at(12_000)), "in the next window it is new again");
    }

    #[test]
    fn sch_003_another_pod_restarts_the_wait() {
        let mut batch = Batch::default();
        batch.trigger("a".into(), at(0));
        batch.trigger("b".into(), at(3000));
        assert!(!batch.take(SLOW, at(6000)));
        assert!(batch.take(SLOW, at(9000)));
    }

    #[test]
    fn sch_004_a_trickle_is_waited_for_no_longer_than_the_longest() {
        let mut batch = Batch::default();
        for step in 0..4 {
            assert!(!batch.take(SLOW, at(3000 * step)));
            batch.trigger(Uid::new(&format!("pod-{step}")), at(3000 * step));
        }
        assert!(!batch.take(SLOW, at(9999)));
        assert!(batch.take(SLOW, at(10_000)));
    }

    #[test]
    fn a_window_never_stays_open_for_more_than_ten_seconds() {
        let mut batch = Batch::default();
        for step in 0..30 {
            batch.trigger(Uid::new(&format!("pod-{step}")), at(step * 500));
        }
        assert_eq!(batch.ripe_at(BatchWindow::default()), Some(at(10_000)));
    }
}
