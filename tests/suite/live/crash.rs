//! Processes that die: the objects alone say how it goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, Running, environment, is_true, text};

/// Moments that look like chance and are the same in every run.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis(400 + (self.0 >> 33) % 2200)
    }
}

/// Kills and restarts `times` times, and lets the last process come to where `is_so`.
fn survive(
    bench: &Bench,
    moments: &mut Moments,
    what: &str,
    times: usize,
    is_so: impl Fn() -> bool,
) -> Running {
    for _ in 0..times {
        let running = bench.start(&["--no-lease"]);
        std::thread::sleep(moments.next());
        running.kill();
    }
    let running = bench.start(&["--no-lease"]);
    bench.wait(what, is_so);
    running
}

#[test]
fn a_process_that_is_killed_again_and_again_comes_to_the_same_end() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let mut moments = Moments(20_261_121);
    bench.deploy_on("web", 24, "900m", "1Gi", json!({ "topology.kubernetes.io/zone": "us-east-1a" }));
    // An old claim goes after its node: only when it is gone, too, nothing is on its way.
    let is_settled = || {
        let claims = bench.claims();
        bench.all_run(24)
            && claims.len() == bench.nodes().len()
            && claims.iter().all(|claim| is_true(claim, "Initialized"))
    };
    let running = survive(&bench, &mut moments, "running", 6, is_settled);
    running.kill();
    expect_one_machine_for_each_claim(&bench);
    let bought = bench.claims().len();
    assert_eq!(bought, 2, "24 pods of 900m fit on two machines of 16 CPUs\n{}", bench.logs());

    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two"))]);
    let is_new = |node: &Value| text(node, "/metadata/labels/generation") == "two";
    let running =
        survive(&bench, &mut moments, "rolled", 8, || bench.nodes().iter().all(is_new) && is_settled());
    running.kill();
    expect_one_machine_for_each_claim(&bench);

    bench.scale("web", 0);
    let running = survive(&bench, &mut moments, "empty", 6, || {
        bench.pods().is_empty() && bench.nodes().is_empty() && bench.claims().is_empty()
    });
    bench.expect_moved_once(24);
    let made = bench.claims_made();
    assert_eq!(made.len(), made.iter().collect::<BTreeSet<_>>().len(), "no claim is made twice: {made:?}");
    assert!(made.len() <= 2 * bought, "no machine is replaced twice: {made:?}\n{}", bench.logs());
    bench.expect_untouched(&strangers);
    drop(running);
}

fn expect_one_machine_for_each_claim(bench: &Bench) {
    let (claims, nodes) = (bench.claims(), bench.nodes());
    let machines: BTreeSet<&str> = nodes.iter().map(|node| text(node, "/spec/providerID")).collect();
    let claimed: BTreeSet<&str> = claims.iter().map(|claim| text(claim, "/status/providerID")).collect();
    let logs = bench.logs();
    assert_eq!(machines, claimed, "no machine without a claim, no claim without a machine\n{logs}");
    assert_eq!(claims.len(), claimed.len(), "no machine twice");
}
