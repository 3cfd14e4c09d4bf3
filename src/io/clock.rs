//! The one place that reads a clock. Everything else is told the time.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// The present moment.
#[expect(
    clippy::disallowed_methods,
    reason = "somebody has to look: this is the clock that the ban speaks of"
)]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// The present moment as people write it: in whole seconds.
pub fn now_in_seconds() -> Timestamp {
    let now = now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Measures how long something takes, whatever happens to the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "the clock that the ban speaks of")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
