//! How time is taken by all benchmarks: the best of several runs, which is what the machine can do and not what else it did.

use std::time::{Duration, Instant};

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub fn best_of(runs: usize, mut work: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..runs {
        let since = Instant::now();
        work();
        best = best.min(since.elapsed());
    }
    best
}
