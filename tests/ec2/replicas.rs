//! Two processes over one cluster and one account: one acts, and the other takes over. Who acted is what both sides say.

use serde_json::Value;

use super::region::{Region, environment};
use crate::bench::{LEASE, POOLS, text};
use crate::plane::AUDITED;

/// Who asked EC2 for anything, one after the other.
fn callers(region: &Region) -> Vec<String> {
    let mut callers: Vec<String> =
        region.own_calls().iter().map(|call: &Value| text(call, "/who").to_owned()).collect();
    callers.dedup();
    callers
}

#[test]
fn of_two_replicas_one_asks_ec2_for_anything_and_the_other_takes_over() {
    let region = Region::new();
    let bench = &region.bench;
    let (strangers, others) = (bench.plant_strangers(), region.plant_others());
    let first = region.start_as(0, &[]);
    bench.wait("pool applied", || bench.plane.api.get(&format!("{POOLS}/general")).is_success());
    let second = region.start_as(1, &[]);
    bench.wait("second waits", || second.log().contains("this replica waits"));
    // Each pod of 9 CPUs needs a machine of its own.
    bench.deploy("early", 3, "9", "1Gi");
    bench.wait("all running", || bench.all_run(3) && region.are_one_to_one());
    // A notice is taken by whoever acts.
    let taken = text(&region.living()[0], "/id").to_owned();
    region.warn_of_spot(&taken);
    bench.wait("replaced", || {
        region.state_of(&taken) == "terminated" && bench.all_run(3) && region.are_one_to_one()
    });
    bench.expect_tenures(&AUDITED[..1]);
    assert_eq!(callers(&region), AUDITED[..1], "whoever waits asks for nothing");

    // It dies while it buys: what it ordered is its successor's.
    bench.deploy("late", 2, "9", "1Gi");
    bench.wait("ordered", || region.machines().len() > 4);
    first.kill();
    bench.wait("all running again", || bench.all_run(5) && region.are_one_to_one());
    ["early", "late"].iter().for_each(|name| bench.scale(name, 0));
    bench.wait("all machines ended", || region.living().is_empty());
    // That a machine has ended is seen when all are listed, every two minutes.
    bench.wait("empty", || region.is_empty());
    let tenures = bench.expect_tenures(&AUDITED);
    let waited = tenures[1].begun.duration_since(tenures[0].renewed);
    assert!(waited >= LEASE, "the lease was taken from a holder after {waited}");
    assert_eq!(callers(&region), AUDITED, "and no other way\n{}", bench.logs());
    assert_eq!(region.machines().len(), 6, "one for each pod, and one more that was taken back");
    region.expect_one_machine_a_claim();
    region.expect_permitted();
    bench.expect_untouched(&strangers);
    region.expect_others(&others);
}

/// Whatever the command line says, and whatever ran before.
#[test]
fn nothing_is_bought_at_a_commit_that_wants_simulated_machines() {
    let region = Region::new();
    let bench = &region.bench;
    let running = region.start(&[]);
    bench.wait("applied", || bench.plane.api.get(&format!("{POOLS}/general")).is_success());
    running.stop();
    let simulated = format!("cloud = \"simulated\"\n{}", environment("one"));
    bench.fleet.commit("simulated", &[("environments/dev.toml", &simulated)]);
    let running = region.start(&[]);
    bench.wait("told", || running.log().contains("--cloud aws would buy machines for dev"));
    assert_eq!(running.stop(), 64, "it has ended");
}
