//! Two processes over one cluster: one acts, and the other takes over.

use super::bench::{Bench, POOLS};

#[test]
fn of_two_replicas_one_acts_and_the_other_takes_over() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let first = bench.start(&[]);
    bench.wait("pool applied", || bench.plane.api.get(&format!("{POOLS}/general")).is_success());
    let second = bench.start(&[]);
    bench.wait("second waits", || second.log().contains("this replica waits"));
    bench.deploy("web", 6, "900m", "1Gi");
    bench.wait("all running", || bench.all_run(6));
    assert!(!second.log().contains("launch"), "only the first acts: {}", second.log());

    first.stop();
    bench.scale("web", 0);
    bench.wait("empty", || bench.nodes().is_empty() && bench.claims().is_empty());
    assert!(second.log().contains("gone"), "the second acts now");
    bench.expect_untouched(&strangers);
}
