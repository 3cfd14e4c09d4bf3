//! Two processes over one cluster: one acts, and the other takes over. Who acted is what the API server says.

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, LEASE, POOLS, environment, text};
use super::moments::{Killer, Stage};
use crate::plane::AUDITED;

/// So few requests a second that forty evictions take a while.
const SLOW: &str = "25";

#[test]
fn of_two_replicas_one_acts_and_the_other_takes_over() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let first = bench.start(&[]);
    bench.wait("pool applied", || bench.plane.api.get(&format!("{POOLS}/general")).is_success());
    let second = bench.start_as(1, "1s", &[]);
    bench.wait("second waits", || second.log().contains("this replica waits"));
    bench.deploy("web", 6, "900m", "1Gi");
    bench.wait("all running", || bench.all_run(6));
    assert!(!second.log().contains("launch"), "only the first acts: {}", second.log());
    bench.expect_tenures(&AUDITED[..1]);

    first.stop();
    bench.scale("web", 0);
    bench.wait("empty", || bench.nodes().is_empty() && bench.claims().is_empty());
    assert!(second.log().contains("gone"), "the second acts now");
    let tenures = bench.expect_tenures(&AUDITED);
    let waited = tenures[1].begun.duration_since(tenures[0].renewed);
    assert!(waited < LEASE, "what is given back is taken at once, not after {waited}");
    bench.expect_untouched(&strangers);
}

/// One stands still for longer than its lease, and then is there again; the other is killed.
#[test]
fn whoever_was_frozen_does_nothing_once_another_acts_and_whoever_was_killed_is_succeeded() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let none = || Vec::new();
    let mut killer = Killer::new(&bench, 4_187, &none);
    // Each pod of 9 CPUs needs a machine of its own.
    bench.deploy("early", 3, "9", "1Gi");
    bench.deploy("many", 40, "50m", "64Mi");
    let first = bench.start_as(0, "3s", &["--kube-qps", SLOW]);
    bench.wait("running", || bench.all_run(43));
    let second = bench.start_as(1, "3s", &[]);
    bench.wait("second waits", || second.log().contains("this replica waits"));
    // It stands still in the middle of evictions: others wait for their turn to be sent.
    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two"))]);
    bench.wait("evictions", || bench.evictions_granted().len() > 3);
    first.freeze();
    let asked = bench.evictions_granted().len();
    assert!(asked < 43, "all were asked to go already: {asked}");
    let is_new = |node: &Value| text(node, "/metadata/labels/generation") == "two";
    bench.wait("rolled", || {
        bench.nodes().iter().all(is_new) && bench.all_run(43) && bench.claims().len() == 3
    });
    assert_eq!(bench.claims_made().len(), 6, "what the first began is carried on\n{}", bench.logs());

    bench.deploy("later", 2, "9", "1Gi");
    first.thaw();
    bench.wait("the first knows", || first.log().contains("the lease is lost"));
    bench.wait("all running", || bench.all_run(45));
    bench.expect_tenures(&AUDITED);

    bench.deploy("last", 1, "9", "1Gi");
    killer.strike(second, Some(Stage::Booting));
    bench.wait("all running", || bench.all_run(46));
    assert_eq!(bench.claims_made().len(), 9, "one for each pod\n{}", bench.logs());
    for name in ["early", "many", "later", "last"] {
        bench.scale(name, 0);
    }
    bench.wait("empty", || bench.nodes().is_empty() && bench.claims().is_empty());
    let [one, two] = AUDITED;
    let tenures = bench.expect_tenures(&[one, two, one]);
    for pair in tenures.windows(2) {
        let waited = pair[1].begun.duration_since(pair[0].renewed);
        assert!(waited >= LEASE, "the lease was taken from a holder after {waited}");
    }
    bench.expect_untouched(&strangers);
}

/// A lease in another namespace is another lease: each looks for the other's.
#[test]
fn of_two_for_one_environment_with_leases_apart_one_acts() {
    let bench = Bench::new();
    let first = bench.start(&[]);
    bench.deploy("web", 1, "900m", "1Gi");
    bench.wait("all running", || bench.all_run(1));
    let second = bench.start_elsewhere("default");
    let told = "another process acts for this installation and environment";
    bench.wait("second waits", || second.log().contains(told));
    bench.deploy("more", 2, "9", "1Gi");
    bench.wait("all running", || bench.all_run(3));
    assert_eq!(bench.claims_made().len(), 3, "one for each pod");
    assert!(!second.log().contains("launch") && !first.log().contains(told), "{}", bench.logs());

    // Who stops for so long that its lease is lost is second from then on.
    first.freeze();
    std::thread::sleep(Duration::from_secs(12));
    first.thaw();
    bench.deploy("later", 1, "9", "1Gi");
    bench.wait("one acts", || bench.all_run(4));

    // Who is started anew at once finds the other, and one of them goes on.
    first.kill();
    let first = bench.start(&[]);
    bench.deploy("last", 1, "9", "1Gi");
    bench.wait("one acts", || bench.all_run(5));
    bench.wait("the first waits", || first.log().contains(told));

    // Nor do both wait for ever for a Karpenter that came and went.
    let theirs = bench.plant_lease_of_karpenter();
    let of_karpenter = "Karpenter acts in this cluster";
    bench.wait("told", || second.log().contains(of_karpenter));
    bench.plane.api.patch(&theirs, &json!({ "spec": { "holderIdentity": "" } })).expect("given back");
    bench.deploy("after", 1, "9", "1Gi");
    bench.wait("one acts", || bench.all_run(6));
    assert_eq!(bench.claims().len(), 6, "one for each pod");
}
