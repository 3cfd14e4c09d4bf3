//! Processes that die: the objects alone say how it goes on.

use serde_json::Value;

use super::bench::{Bench, environment, is_true, text};
use super::kubelets::{Kubelets, LEFT_TO_US};
use super::moments::{Killer, LINGER, Stage};
use super::story::Story;

/// So long a machine takes to join: most kills are to hit something on its way.
const BOOT: &str = "2s";
/// Whoever dies with the lease keeps its successor waiting for 15 seconds: some do, as those of users.
const WITH_LEASE: usize = 3;

/// One machine is replaced at a time, so that each kill on the way hits something.
fn slowly(generation: &str) -> String {
    environment(generation).replace("40%", "1")
}

#[test]
fn twenty_processes_that_are_killed_at_work_come_to_the_same_end() {
    let bench = Bench::of(&slowly("one"));
    let strangers = bench.plant_strangers();
    let none = || Vec::new();
    let mut killer = Killer::new(&bench, 20_261_121, &none);
    // Pods take their time to leave, whoever plays the machines of EC2.
    let _kubelets = Kubelets::start(&bench);
    let start = |more: &[&str]| bench.start_as(0, BOOT, &[&[LEFT_TO_US], more].concat());

    // Each gets new pods: one that needs a machine of its own, and some that fit beside it.
    let stages = [Some(Stage::Booting), None, None, Some(Stage::Booting), None, None, None, None];
    let bought = stages.len();
    for (at, stage) in stages.into_iter().enumerate() {
        if at == WITH_LEASE {
            // Two more die while they start: one waits for the lease of a dead one, the other for nothing.
            [&[][..], &["--no-lease"]].into_iter().for_each(|more| killer.strike_early(start(more)));
        }
        bench.deploy_lingering(&format!("large-{at}"), 1, "9", "1Gi", LINGER);
        bench.deploy_lingering(&format!("small-{at}"), 3, "250m", "256Mi", LINGER);
        let running = start(if at < WITH_LEASE { &[] } else { &["--no-lease"] });
        killer.strike(running, stage);
    }
    // An old claim goes after its node: only when it is gone, too, nothing is on its way.
    let is_settled = || {
        let claims = bench.claims();
        bench.all_run(4 * bought)
            && claims.len() == bench.nodes().len()
            && claims.iter().all(|claim| is_true(claim, "Initialized"))
    };
    let running = start(&["--no-lease"]);
    bench.wait("running", is_settled);
    running.kill();
    bench.expect_one_machine_for_each_claim();
    expect_claims(&bench, bought);

    bench.fleet.commit("second", &[("environments/dev.toml", &slowly("two"))]);
    let stages = [Stage::Condemned, Stage::Booting, Stage::Draining];
    for stage in stages.into_iter().map(Some).chain([None; 5]) {
        killer.strike(start(&["--no-lease"]), stage);
        killer.strike_early(start(&["--no-lease"]));
    }
    let running = start(&["--no-lease"]);
    let is_new = |node: &Value| text(node, "/metadata/labels/generation") == "two";
    bench.wait("rolled", || bench.nodes().iter().all(is_new) && is_settled());
    running.kill();
    bench.expect_one_machine_for_each_claim();
    expect_claims(&bench, 2 * bought);
    bench.expect_moved_once(4 * bought);

    (0..bought).for_each(|at| bench.scale(&format!("small-{at}"), 0));
    for at in 0..4 {
        bench.scale(&format!("large-{at}"), 0);
        killer.strike(start(&["--no-lease"]), None);
    }
    (4..bought).for_each(|at| bench.scale(&format!("large-{at}"), 0));
    let running = start(&["--no-lease"]);
    bench.wait("empty", || bench.pods().is_empty() && bench.nodes().is_empty() && bench.claims().is_empty());
    killer.expect_struck(20, &[Stage::Waiting, Stage::Booting, Stage::Condemned, Stage::Draining]);
    expect_claims(&bench, 2 * bought);
    bench.expect_moved_once(4 * bought);
    bench.expect_untouched(&strangers);
    drop(running);
}

#[test]
fn the_whole_story_is_told_by_twenty_processes_that_are_killed_at_any_moment() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let none = || Vec::new();
    let mut killer = Killer::by_chance(&bench, &none);
    let are_one_to_one = || bench.claims().len() == bench.nodes().len();
    let story = Story {
        bench: &bench,
        start: &|more| bench.start_as(0, BOOT, more),
        are_one_to_one: &are_one_to_one,
        is_empty: &|| bench.pods().is_empty() && bench.nodes().is_empty() && bench.claims().is_empty(),
        second: &environment("two"),
    };
    story.tell(&mut killer);
    killer.expect_struck_by_chance(20);
    bench.expect_untouched(&strangers);
}

/// So many claims were ever made.
fn expect_claims(bench: &Bench, count: usize) {
    let made = bench.claims_made();
    assert_eq!(made.len(), count, "no machine is bought or replaced twice: {made:?}\n{}", bench.logs());
}
