//! When to ask a source again: a value that is told how it went and answers with a delay.
//!
//! Regular polls are spread and jittered so that many sources do not ask at once. Failures back off exponentially with
//! full jitter, and what the server asks for wins over both. Nothing here waits or reads a clock.

use std::time::Duration;

use jiff::Timestamp;
use rand_chacha::rand_core::Rng;

pub const INTERVAL_MIN: Duration = Duration::from_secs(10);
const JITTER_PERCENT: u64 = 10;
const BACK_OFF_FIRST: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(15 * 60);
/// Single failures are normal on a network; this many in a row are worth an event, and then one an hour.
const FAILURES_BEFORE_EVENT: u32 = 5;
const EVENT_EVERY: Duration = Duration::from_secs(60 * 60);

/// The rhythm of one source.
#[derive(Clone, Debug)]
pub struct Poller {
    interval: Duration,
    failures: u32,
    reported_at: Option<Timestamp>,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterFailure {
    pub next_delay: Duration,
    /// Failures in a row, this one included.
    pub failures: u32,
    /// Raise an event now: the fifth failure in a row, then one each hour.
    pub is_event_due: bool,
}

impl Poller {
    /// Intervals below ten seconds are raised to ten: a forge would start to refuse us.
    pub fn new(interval: Duration) -> Self {
        Self { interval: interval.max(INTERVAL_MIN), failures: 0, reported_at: None }
    }

    /// The delay before the first poll: anywhere in one interval, so that sources started together spread out.
    pub fn first_delay(&self, rng: &mut impl Rng) -> Duration {
        below(self.interval, rng)
    }

    /// The delay after a success: the interval, give or take a tenth. Forgets earlier failures.
    pub fn succeeded(&mut self, rng: &mut impl Rng) -> Duration {
        self.failures = 0;
        self.reported_at = None;
        let spread = self.interval * 2 * u32::try_from(JITTER_PERCENT).unwrap_or(0) / 100;
        self.interval - spread / 2 + below(spread, rng)
    }

    /// The delay after a failure: anywhere up to a limit that doubles each time, never sooner than the server asked.
    pub fn failed(
        &mut self,
        retry_after: Option<Duration>,
        now: Timestamp,
        rng: &mut impl Rng,
    ) -> AfterFailure {
        self.failures = self.failures.saturating_add(1);
        let doublings = (self.failures - 1).min(16);
        let limit = (BACK_OFF_FIRST * 2u32.pow(doublings)).min(BACK_OFF_MAX);
        let next_delay = below(limit, rng).max(retry_after.unwrap_or_default());
        let is_event_due = self.failures >= FAILURES_BEFORE_EVENT
            && self.reported_at.is_none_or(|at| now.duration_since(at).unsigned_abs() >= EVENT_EVERY);
        if is_event_due {
            self.reported_at = Some(now);
        }
        AfterFailure { next_delay, failures: self.failures, is_event_due }
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Uniform in `[0, limit)`, to the microsecond.
fn below(limit: Duration, rng: &mut impl Rng) -> Duration {
    let micros = limit.as_micros();
    let drawn = (u128::from(rng.next_u64()) * micros) >> 64;
    Duration::from_micros(u64::try_from(drawn).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(60);
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("in range")
    }

    #[test]
    fn git_065_failures_double_the_limit_and_a_success_resets_it() {
        let mut rng = ChaCha8Rng::seed_from_u64(65);
        for limit_of in [|n: u32| Duration::from_secs(1 << n.min(20)).min(BACK_OFF_MAX)] {
            let mut poller = Poller::new(INTERVAL);
            let mut events = Vec::new();
            for failure in 0..30u32 {
                let after = poller.failed(None, at(i64::from(failure) * 60), &mut rng);
                assert!(after.next_delay < limit_of(failure), "failure {failure}: {after:?}");
                if after.is_event_due {
                    events.push(after.failures);
                }
            }
            assert_eq!(events, [5], "one event within the first hour");
            assert!(poller.failed(None, at(4 * 60 + 3600), &mut rng).is_event_due, "and one each hour");
            poller.succeeded(&mut rng);
            assert_eq!(poller.failures(), 0);
            assert!(poller.failed(None, at(9000), &mut rng).next_delay < Duration::from_secs(1));
        }
    }

    #[test]
    fn git_065_the_jitter_is_full() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut delays: Vec<_> = (0..1000)
            .map(|_| {
                let mut poller = Poller { failures: 9, ..Poller::new(INTERVAL) };
                poller.failed(None, at(0), &mut rng).next_delay.as_secs()
            })
            .collect();
        delays.sort_unstable();
        assert!(
            delays[100] < 80 && delays[900] > 430 && delays[999] < 512,
            "{} {}",
            delays[100],
            delays[900]
        );
    }

    #[test]
    fn git_066_what_the_server_asks_for_wins() {
        let mut rng = ChaCha8Rng::seed_from_u64(66);
        let mut poller = Poller::new(INTERVAL);
        for _ in 0..20 {
            let asked = Duration::from_secs(120);
            assert!(poller.failed(Some(asked), at(0), &mut rng).next_delay >= asked);
        }
    }

    #[test]
    fn git_067_sources_started_together_spread_out() {
        let mut rng = ChaCha8Rng::seed_from_u64(67);
        let mut polls: Vec<Duration> =
            (0..100).map(|_| Poller::new(INTERVAL).first_delay(&mut rng)).collect();
        assert!(polls.iter().all(|delay| *delay < INTERVAL));
        assert!(busiest_twentieth(&polls) <= 25, "first polls are spread");
        for _ in 0..10 {
            for poll in &mut polls {
                let delay = Poller::new(INTERVAL).succeeded(&mut rng);
                assert!(delay >= INTERVAL * 9 / 10 && delay <= INTERVAL * 11 / 10, "{delay:?}");
                *poll += delay;
            }
        }
        assert!(busiest_twentieth(&polls) <= 25, "and stay so");
    }

    /// How many polls fall into the busiest window of 5 % of the interval.
    fn busiest_twentieth(polls: &[Duration]) -> usize {
        let window = INTERVAL / 20;
        let busy =
            |start: &Duration| polls.iter().filter(|poll| *poll >= start && **poll < *start + window).count();
        polls.iter().map(busy).max().unwrap_or(0)
    }

    #[test]
    fn too_eager_intervals_are_raised() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        assert!(Poller::new(Duration::from_millis(1)).succeeded(&mut rng) >= INTERVAL_MIN * 9 / 10);
    }
}
