//! Processes that die at any moment while machines are bought and given back: what EC2 and the objects say is enough to go on.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::region::{Region, environment, is_true};
use crate::bench::{PATIENCE, Running, text};

/// Moments that look like chance and are the same in every run.
fn moments(seed: u64) -> impl Iterator<Item = Duration> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis(400 + (state >> 33) % 2200)
    })
}

/// Kills and restarts `times` times, then waits until `is_so`. What is dropped is killed.
fn survive(region: &Region, what: &str, (seed, times): (u64, usize), is_so: impl Fn() -> bool) -> Running {
    let begun = Instant::now();
    for moment in moments(seed).take(times) {
        let running = region.start(&["--no-lease"]);
        std::thread::sleep(moment);
        drop(running);
        assert!(begun.elapsed() < PATIENCE, "{what}");
    }
    let running = region.start(&["--no-lease"]);
    region.bench.wait(what, is_so);
    running
}

#[test]
fn twenty_processes_that_are_killed_buy_and_end_each_machine_once() {
    let region = Region::new();
    let bench = &region.bench;
    let (strangers, others) = (bench.plant_strangers(), region.plant_others());
    // What was bought shows late, and an answer takes its time: the worst moments are longer.
    region.control("delays", json!({ "running": 0.5, "terminated": 0.5, "visible": 1.5 }));
    bench.deploy("web", 24, "900m", "1Gi");
    let running = survive(&region, "all running", (20_261_121, 8), || {
        bench.all_run(24)
            && bench.claims().iter().all(|claim| is_true(claim, "Initialized"))
            && region.are_one_to_one()
    });
    drop(running);
    region.expect_one_machine_a_claim();
    let cpus: f64 = bench
        .nodes()
        .iter()
        .filter_map(|node| node["status"]["capacity"]["cpu"].as_str()?.parse::<f64>().ok())
        .sum();
    assert!(cpus < 24.0 * 0.9 * 2.0, "nothing was bought twice: {cpus} CPUs for 24 pods of 0.9");

    let bought = bench.claims().len();
    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two"))]);
    let is_new = |node: &Value| text(node, "/metadata/labels/generation") == "two";
    let running = survive(&region, "rolled", (7_331, 6), || {
        bench.nodes().iter().all(is_new)
            && bench.all_run(24)
            && bench.claims().iter().all(|claim| is_true(claim, "Initialized"))
            && region.are_one_to_one()
    });
    drop(running);
    region.expect_one_machine_a_claim();

    bench.scale("web", 0);
    let running = survive(&region, "empty", (4_187, 6), || region.is_empty());
    region.expect_one_machine_a_claim();
    bench.expect_moved_once(24);
    let made = bench.claims_made();
    assert!(made.len() <= 2 * bought, "no machine is replaced twice: {made:?}");
    bench.expect_untouched(&strangers);
    region.expect_others(&others);
    drop(running);
}
