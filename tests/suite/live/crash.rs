//! Processes that die and processes that are two: the objects alone say how it goes on.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::bench::{Bench, CLAIMS, POOLS, Running, is_true, text};

/// Twenty moments that look like chance and are the same in every run.
fn moments() -> impl Iterator<Item = Duration> {
    let mut state: u64 = 20_261_121;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis(300 + (state >> 33) % 1700)
    })
}

/// Kills and restarts until `is_so`, at least `times` times.
fn survive(bench: &Bench, what: &str, times: usize, is_so: impl Fn() -> bool) -> Running {
    let begun = Instant::now();
    for (count, moment) in moments().enumerate() {
        let running = bench.start(&["--no-lease"]);
        if count >= times {
            bench.wait(what, &running, is_so);
            return running;
        }
        std::thread::sleep(moment);
        running.kill();
        assert!(begun.elapsed() < super::bench::PATIENCE, "{what}");
    }
    unreachable!("moments never end")
}

#[test]
fn a_process_that_is_killed_again_and_again_comes_to_the_same_end() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    bench.deploy("web", 24, "900m", "1Gi");
    let running = survive(&bench, "all running", 10, || bench.all_run(24));
    bench.wait("all initialized", &running, || {
        let claims = bench.list(CLAIMS);
        !claims.is_empty() && claims.iter().all(|claim| is_true(claim, "Initialized"))
    });
    running.kill();

    let (claims, nodes) = (bench.list(CLAIMS), bench.nodes());
    let instances: BTreeSet<&str> = nodes.iter().map(|node| text(node, "/spec/providerID")).collect();
    let claimed: BTreeSet<&str> = claims.iter().map(|claim| text(claim, "/status/providerID")).collect();
    assert_eq!(instances, claimed, "no machine without a claim, no claim without a machine");
    assert_eq!(claims.len(), claimed.len(), "no machine twice");
    let wanted: f64 = 24.0 * 0.9;
    let bought: f64 = nodes.iter().map(|node| text(node, "/status/capacity/cpu").parse().unwrap_or(0.0)).sum();
    assert!(bought < wanted * 1.8, "nothing was bought twice: {bought} CPUs for {wanted}");

    bench.scale("web", 0);
    let running = survive(&bench, "empty", 10, || {
        bench.pods().is_empty() && bench.nodes().is_empty() && bench.list(CLAIMS).is_empty()
    });
    bench.expect_untouched(&strangers);
    drop(running);
}

#[test]
fn of_two_replicas_one_acts_and_the_other_takes_over() {
    let bench = Bench::new();
    let first = bench.start(&[]);
    bench.wait("pool applied", &first, || bench.plane.api.get(&format!("{POOLS}/general")).is_success());
    let second = bench.start(&[]);
    bench.wait("second waits", &second, || second.log().contains("this replica waits"));
    bench.deploy("web", 6, "900m", "1Gi");
    bench.wait("all running", &first, || bench.all_run(6));
    assert!(!second.log().contains("launch"), "only the first acts: {}", second.log());

    first.stop();
    bench.scale("web", 0);
    bench.wait("empty", &second, || bench.nodes().is_empty() && bench.list(CLAIMS).is_empty());
    assert!(second.log().contains("gone"), "the second acts now");
}
