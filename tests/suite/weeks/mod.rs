//! Weeks of made-up fleets in which everything goes wrong: no promise is broken, and each promise can be.

mod promises;
mod repeating;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use provisor::simulator::trial::Trial;

/// How many weeks the suite plays, from seed 1 on; `PROVISOR_WEEKS=1000` plays others.
const WEEKS: u64 = 300;

#[test]
fn weeks_break_no_promise() {
    let weeks = std::env::var("PROVISOR_WEEKS").ok();
    let weeks = weeks.map_or(WEEKS, |weeks| weeks.parse().expect("PROVISOR_WEEKS is a number"));
    let next = AtomicU64::new(1);
    let (broken, most) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > weeks {
                        return;
                    }
                    let outcome = Trial::drawn(seed).play();
                    most.fetch_max(outcome.most_machines as u64, Ordering::Relaxed);
                    if let Some(found) = outcome.broken {
                        let line = format!(
                            "seed {seed} at {}: {}: {}\n  provisor simulate --weeks 1 --seed {seed}",
                            found.at, found.promise, found.what
                        );
                        broken.lock().expect("nobody died").push(line);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().expect("nobody died");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let most = most.into_inner();
    // Fleets of up to 60 nodes, and what comes before what it replaces has gone.
    assert!((10..=90).contains(&most), "the largest fleet has {most} machines");
}
