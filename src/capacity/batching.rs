//! When a round of provisioning begins: pods come in crowds, and planning for the crowd is cheaper than for each of them.
//!
//! A window opens with the first trigger, stays open while new ones keep coming, and never longer than its maximum. How long a
//! silence has to be before it closes depends on what comes. Of a few pods nothing is known, and the whole idle time is waited.
//! A crowd has a pace: once it is silent for as long as a hundred of it took to come, it is over, or so late that it fills
//! machines of its own.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::model::name::Uid;

/// From so many triggers on they are a crowd. As many again fill machines of their own: plans for 500 pods cost up to 1.2 %
/// more than they must, and those for more hardly less (docs/reference/performance.md).
const CROWD: i32 = 100;

/// The shortest silence that ends a crowd, as a part of the idle time: kube-controller-manager mostly pauses for less than 0.2 s
/// while it makes 1,000 pods (docs/reference/performance.md).
const SHORTEST_PART: i32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BatchWindow {
    /// Without news for so long, the round begins; of a crowd that comes fast, sooner.
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
    open: Option<Open>,
    seen: BTreeSet<Uid>,
    /// Of the last crowd: its last trigger, and the silence that ended it.
    crowd: Option<(Timestamp, SignedDuration)>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    first: Timestamp,
    last: Timestamp,
    triggers: i32,
}

impl Open {
    /// The silence that ends the crowd; none for few.
    fn silence(&self, idle: SignedDuration) -> Option<SignedDuration> {
        let pace =
            (self.triggers >= CROWD).then(|| self.last.duration_since(self.first) / (self.triggers - 1))?;
        Some((pace * CROWD).clamp(idle / SHORTEST_PART, idle))
    }
}

impl Batch {
    /// A repeated trigger does not keep the window open.
    pub fn trigger(&mut self, who: Uid, now: Timestamp) {
        let is_new = self.seen.insert(who);
        match &mut self.open {
            None => self.open = Some(Open { first: now, last: now, triggers: 1 }),
            Some(open) if is_new => {
                open.last = now;
                open.triggers = open.triggers.saturating_add(1);
            }
            Some(_) => {}
        }
    }

    /// One that was to be expected: who closes the window has reckoned with it.
    pub fn join(&mut self, who: Uid, now: Timestamp) {
        match self.open {
            None => self.trigger(who, now),
            Some(_) => drop(self.seen.insert(who)),
        }
    }

    /// When the window closes.
    pub fn ripe_at(&self, window: BatchWindow) -> Option<Timestamp> {
        let open = self.open?;
        Some((open.last + self.silence(&open, window)).min(open.first + window.longest))
    }

    /// Stragglers of a crowd, less than the idle time behind it, wait no longer than it did.
    fn silence(&self, open: &Open, window: BatchWindow) -> SignedDuration {
        let follows = |last: &Timestamp| open.first.duration_since(*last) < window.idle;
        let inherited = self.crowd.filter(|(last, _)| follows(last)).map(|(_, silence)| silence);
        open.silence(window.idle).or(inherited).unwrap_or(window.idle)
    }

    /// Closes the window if its time has come.
    pub fn take(&mut self, window: BatchWindow, now: Timestamp) -> bool {
        let is_ripe = self.ripe_at(window).is_some_and(|at| at <= now);
        if let Some(open) = self.open.take_if(|_| is_ripe) {
            self.crowd = open.silence(window.idle).map(|silence| (open.last, silence)).or(self.crowd);
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

    fn crowd(batch: &mut Batch, of: i32, from: i64, every: i64) {
        (0..i64::from(of))
            .for_each(|i| batch.trigger(Uid::new(&format!("{from}-{i}")), at(from + i * every)));
    }

    #[test]
    fn a_crowd_is_over_once_it_is_silent_for_as_long_as_a_hundred_took() {
        let mut batch = Batch::default();
        crowd(&mut batch, 200, 0, 5);
        assert_eq!(batch.ripe_at(BatchWindow::default()), Some(at(995 + 500)));
        let mut fast = Batch::default();
        crowd(&mut fast, 1000, 0, 1);
        assert_eq!(fast.ripe_at(BatchWindow::default()), Some(at(999 + 250)), "a hiccup does not end it");
        let mut slow = Batch::default();
        crowd(&mut slow, 200, 0, 40);
        assert_eq!(
            slow.ripe_at(BatchWindow::default()),
            Some(at(7960 + 1000)),
            "never longer than the idle time"
        );
        let mut few = Batch::default();
        crowd(&mut few, 99, 0, 1);
        assert_eq!(few.ripe_at(BatchWindow::default()), Some(at(98 + 1000)), "of a few no pace is known");
    }

    #[test]
    fn stragglers_of_a_crowd_wait_no_longer_than_it_did() {
        let mut batch = Batch::default();
        let window = BatchWindow::default();
        crowd(&mut batch, 1000, 0, 1);
        assert!(batch.take(window, at(1249)));
        crowd(&mut batch, 7, 1500, 1);
        assert_eq!(batch.ripe_at(window), Some(at(1506 + 250)));
        assert!(batch.take(window, at(1756)));
        batch.trigger("later".into(), at(1999));
        assert_eq!(batch.ripe_at(window), Some(at(2999)), "a second behind the crowd they are on their own");
    }
}
