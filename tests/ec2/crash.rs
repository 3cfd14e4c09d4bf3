//! Processes that die at any moment while machines are bought, missing, taken back and given back: what EC2 and the objects say is
//! enough to go on.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::region::{Region, environment, is_true};
use crate::bench::text;
use crate::moments::{Killer, LINGER, Stage};
use crate::story::Story;

/// Whoever dies with the lease keeps its successor waiting for 15 seconds: some do, as those of users.
const WITH_LEASE: usize = 3;

/// A region in which moments last, so that a busy machine sees them: what was bought shows late and runs later, and an answer takes its
/// time.
fn slow() -> Region {
    slow_with(&slowly("one"))
}

fn slow_with(environment: &str) -> Region {
    let region = Region::of(environment);
    let delays = json!({ "running": 1.5, "terminated": 0.5, "visible": 1.5, "answered": 0.4 });
    region.control("delays", delays);
    region
}

/// One machine is replaced at a time, so that each kill on the way hits something.
fn slowly(generation: &str) -> String {
    let environment = environment(generation);
    let slow = environment.replace(r#"nodes = "40%""#, r#"nodes = "1""#);
    assert_ne!(slow, environment, "the budget is there to be narrowed");
    slow
}

/// One pod that needs a machine of its own, and some that fit beside it.
fn deploy(region: &Region, at: usize) {
    region.bench.deploy_lingering(&format!("large-{at}"), 1, "9", "1Gi", LINGER);
    region.bench.deploy_lingering(&format!("small-{at}"), 3, "250m", "256Mi", LINGER);
}

/// All of the first so many deployments run, each on a machine of its own, and nothing is on its way.
fn is_settled(region: &Region, deployments: usize) -> bool {
    let claims = region.bench.claims();
    region.bench.all_run(4 * deployments)
        && claims.len() == deployments
        && claims.iter().all(|claim| is_true(claim, "Initialized"))
        && region.are_one_to_one()
}

/// So many claims were ever made, each with one machine.
fn expect_machines(region: &Region, count: usize) {
    region.expect_one_machine_a_claim();
    let made = region.bench.claims_made();
    let logs = region.bench.logs();
    assert_eq!(made.len(), count, "no machine is wanted twice: {made:?}\n{logs}");
    assert_eq!(region.machines().len(), count, "no machine is bought twice\n{logs}");
}

#[test]
fn twenty_processes_that_are_killed_at_work_buy_and_end_each_machine_once() {
    let region = slow();
    let bench = &region.bench;
    let (strangers, others) = (bench.plant_strangers(), region.plant_others());
    let machines = || region.machines();
    let mut killer = Killer::new(bench, 20_261_121, &machines);

    let stages =
        [Some(Stage::Bought), None, None, Some(Stage::Booting), Some(Stage::Bought), None, None, None];
    let bought = stages.len();
    for (at, stage) in stages.into_iter().enumerate() {
        if at == WITH_LEASE {
            // Two more die while they start: one waits for the lease of a dead one, the other for nothing.
            [&[][..], &["--no-lease"]].into_iter().for_each(|more| killer.strike_early(region.start(more)));
        }
        deploy(&region, at);
        killer.strike(region.start(if at < WITH_LEASE { &[] } else { &["--no-lease"] }), stage);
    }
    let running = region.start(&["--no-lease"]);
    bench.wait("all running", || is_settled(&region, bought));
    drop(running);
    expect_machines(&region, bought);

    bench.fleet.commit("second", &[("environments/dev.toml", &slowly("two"))]);
    let stages = [Stage::Condemned, Stage::Bought, Stage::Draining];
    for stage in stages.into_iter().map(Some).chain([None; 5]) {
        killer.strike(region.start(&["--no-lease"]), stage);
        killer.strike_early(region.start(&["--no-lease"]));
    }
    let running = region.start(&["--no-lease"]);
    let is_new = |node: &Value| text(node, "/metadata/labels/generation") == "two";
    bench.wait("rolled", || bench.nodes().iter().all(is_new) && is_settled(&region, bought));
    drop(running);
    expect_machines(&region, 2 * bought);
    bench.expect_moved_once(4 * bought);

    (0..bought).for_each(|at| bench.scale(&format!("small-{at}"), 0));
    for at in 0..4 {
        bench.scale(&format!("large-{at}"), 0);
        killer.strike(region.start(&["--no-lease"]), None);
    }
    (4..bought).for_each(|at| bench.scale(&format!("large-{at}"), 0));
    let running = region.start(&["--no-lease"]);
    bench.wait("empty", || region.is_empty());
    let stages = [Stage::Waiting, Stage::Bought, Stage::Booting, Stage::Condemned, Stage::Draining];
    killer.expect_struck(20, &stages);
    expect_machines(&region, 2 * bought);
    bench.expect_moved_once(4 * bought);
    bench.expect_untouched(&strangers);
    region.expect_others(&others);
    drop(running);
}

#[test]
fn the_whole_story_is_told_by_twenty_processes_that_are_killed_at_any_moment() {
    let region = slow_with(&environment("one"));
    let (strangers, others) = (region.bench.plant_strangers(), region.plant_others());
    let machines = || region.machines();
    let mut killer = Killer::by_chance(&region.bench, &machines);
    let story = Story {
        bench: &region.bench,
        start: &|more| region.start(more),
        are_one_to_one: &|| region.are_one_to_one(),
        is_empty: &|| region.is_empty(),
        second: &environment("two"),
    };
    story.tell(&mut killer);
    killer.expect_struck_by_chance(20);
    region.expect_one_machine_a_claim();
    let (machines, claims) = (region.machines().len(), region.bench.claims_made().len());
    assert_eq!(machines, claims, "no machine is bought twice\n{}", region.bench.logs());
    region.bench.expect_untouched(&strangers);
    region.expect_others(&others);
}

#[test]
fn twenty_processes_that_are_killed_while_machines_are_missing_or_taken_back_replace_each_once() {
    let region = slow();
    let bench = &region.bench;
    let (strangers, others) = (bench.plant_strangers(), region.plant_others());
    let machines = || region.machines();
    let mut killer = Killer::new(bench, 7_331, &machines);

    // Nothing is sold as spot in one zone, then nowhere: each order passes over what is not there.
    let stages = [None, Some(Stage::Bought), Some(Stage::Booting), None, None];
    for (at, stage) in stages.into_iter().chain(stages).enumerate() {
        let zone = if at < stages.len() { "us-east-1a" } else { "*" };
        region.control("no-capacity", json!([["*", zone, "spot"]]));
        deploy(&region, at);
        killer.strike(region.start(&["--no-lease"]), stage);
    }
    let bought = 2 * stages.len();
    let running = region.start(&["--no-lease"]);
    bench.wait("all running", || is_settled(&region, bought));
    drop(running);
    expect_machines(&region, bought);
    let kinds: BTreeSet<String> =
        region.machines().iter().map(|machine| text(machine, "/lifecycle").to_owned()).collect();
    assert_eq!(kinds.len(), 2, "some as spot, and the rest on demand");

    // All that were bought are taken back, each while others are still being replaced.
    region.control("no-capacity", json!([]));
    let warned: Vec<String> = region.living().iter().map(|machine| text(machine, "/id").to_owned()).collect();
    let stages = [Some(Stage::Draining), Some(Stage::Booting), None, Some(Stage::Bought), None];
    for (id, stage) in warned.iter().zip(stages.repeat(2)) {
        region.warn_of_spot(id);
        killer.strike(region.start(&["--no-lease"]), stage);
    }
    let running = region.start(&["--no-lease"]);
    bench.wait("replaced", || {
        is_settled(&region, bought) && warned.iter().all(|id| region.state_of(id) == "terminated")
    });
    bench.wait("the queue is empty", || region.waiting_messages() == 0);
    killer.expect_struck(20, &[Stage::Waiting, Stage::Bought, Stage::Booting, Stage::Draining]);
    expect_machines(&region, bought + warned.len());
    bench.expect_moved_once(warned.len());
    assert!(warned.iter().all(|id| region.ended_at(id).is_some()), "each was ended by us");
    bench.expect_untouched(&strangers);
    region.expect_others(&others);
    drop(running);
}
