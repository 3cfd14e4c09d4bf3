//! How little is asked while nothing happens, how soon something is done when it does, and what a lost connection costs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use super::bench::{Bench, EVICTED_UID, PATIENCE, POOLS, environment, text};
use crate::plane::Server;

/// Everybody's requests are named once, at whatever stage they were recorded.
fn asked(requests: &[Value]) -> BTreeSet<&str> {
    requests.iter().map(|request| text(request, "/auditID")).collect()
}

#[test]
fn a_pod_gets_its_claim_soon_and_a_cluster_at_rest_is_left_in_peace() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let start = Instant::now();
    let _running = bench.start(&[]);
    bench.wait("pool applied", || bench.pool_is_ready());

    // Each pod needs a machine of its own.
    let mut waits: Vec<Duration> = Vec::new();
    for name in ["one", "two", "three"] {
        let (known, begun) = (bench.claims_made().len(), Timestamp::now());
        bench.deploy(name, 1, "9", "1Gi");
        bench.wait("a claim", || bench.claims_made().len() > known);
        let made = bench.requests_for("nodeclaims", "create").pop().expect("it was made");
        let at: Timestamp = text(&made, "/requestReceivedTimestamp").parse().expect("a moment");
        waits.push(Duration::try_from(at.duration_since(begun)).unwrap_or_default());
    }
    waits.sort();
    eprintln!("from a pod to its claim, a quiet second included: {waits:?}");
    assert!(waits[1] < Duration::from_secs(4), "{waits:?}");
    bench.wait("all running", || bench.all_run(3));

    // Pools report their use for some seconds more.
    std::thread::sleep(Duration::from_secs(12));
    let before = bench.requests();
    let seconds = 15;
    std::thread::sleep(Duration::from_secs(seconds));
    let after = bench.requests();
    let known = asked(&before);
    let new: Vec<&Value> =
        after.iter().filter(|request| !known.contains(text(request, "/auditID"))).collect();
    let uris: Vec<&str> = new.iter().map(|request| text(request, "/requestURI")).collect();
    eprintln!("at rest: {} requests in {seconds} s", uris.len());
    assert!(uris.len() < 2 * seconds as usize, "{uris:#?}");

    // Nobody made an Environment object, and it is not looked for with each change: half a minute apart, for its rules and for its status.
    let looked = after.iter().filter(|request| request["objectRef"]["resource"] == "environments").count();
    assert!(looked as u64 <= 2 * (1 + start.elapsed().as_secs() / 30), "{looked} times");
    bench.expect_untouched(&strangers);
}

#[test]
fn what_happened_while_nobody_listened_is_found_out() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let running = bench.start(&["--no-lease", "-v"]);
    bench.deploy("web", 3, "900m", "1Gi");
    bench.wait("all running", || bench.all_run(3));
    assert!(!bench.nodes().is_empty());

    // A new API server has no memory of what was before it: watches cannot go on from where they were.
    let lists = || bench.requests_for("pods", "list").len();
    let before = lists();
    running.freeze();
    bench.plane.kill(Server::Api);
    bench.plane.forget_history();
    bench.plane.revive(Server::Api);
    bench.scale("web", 0);
    // Their kubelets are frozen, too: nobody else lets the pods go.
    bench.wait("without pods", || {
        for pod in bench.pods() {
            let (namespace, name) = (&bench.namespace, text(&pod, "/metadata/name"));
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0");
            bench.plane.api.delete(&path);
        }
        bench.pods().is_empty()
    });
    running.thaw();
    bench.wait("empty", || bench.nodes().is_empty() && bench.claims().is_empty());
    assert!(lists() > before, "what is gone is only missing in a new list");
    assert!(
        running.log().contains("pods changed meanwhile, and how is forgotten (410)"),
        "{}",
        running.log()
    );

    // And it still listens.
    bench.scale("web", 2);
    bench.wait("all running", || bench.all_run(2));
    bench.expect_untouched(&strangers);
    assert_eq!(running.stop(), 130);
}

/// One process, from its start to its end: while it drains and buys, nobody answers it for a while, and then nobody knows any
/// more what happened meanwhile.
#[test]
fn a_process_that_drains_and_buys_lives_through_an_outage_after_which_history_is_forgotten() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let running = bench.start_as(0, "3s", &["-v"]);
    // Each pod of 9 CPUs needs a machine of its own.
    bench.deploy("early", 3, "9", "1Gi");
    bench.wait("all running", || bench.all_run(3));
    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two"))]);
    // What is bought for the late ones is of the second commit, too.
    let generation = "/spec/template/metadata/labels/generation";
    let pool = || bench.plane.api.get(&format!("{POOLS}/general")).body;
    bench.wait("the pool is written anew", || text(&pool(), generation) == "two");
    bench.deploy("late", 2, "9", "1Gi");
    bench.wait("a node is drained while others are bought", || {
        !bench.evictions_granted().is_empty() && bench.claims_made().len() > 3
    });
    let lists = || bench.requests_for("pods", "list").len();
    let before = lists();
    let cut_off = Timestamp::now();
    bench.plane.kill(Server::Api);
    let begun = Instant::now();
    while running.log().matches("; trying again").count() < 3 {
        assert!(begun.elapsed() < PATIENCE, "nobody answers, and nobody says so\n{}", running.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    bench.plane.forget_history();
    bench.plane.revive(Server::Api);
    bench.scale("late", 3);
    bench.wait("listed anew", || {
        let is_told = running.log().contains("pods changed meanwhile, and how is forgotten (410)");
        is_told && lists() > before
    });

    let is_new = |node: &Value| text(node, "/metadata/labels/generation") == "two";
    bench.wait("rolled, and all running", || {
        let nodes = bench.nodes();
        bench.all_run(6) && nodes.len() == 6 && nodes.iter().all(is_new) && bench.claims().len() == 6
    });
    bench.expect_one_machine_for_each_claim();
    // Three at first, three for those that came later, and one for each of the first when it went.
    let made = bench.claims_made();
    assert_eq!(made.len(), 9, "{made:?}\n{}", bench.logs());
    // Of an eviction that was granted just then the answer may have been lost: that it is asked for again is as it should be.
    let mut asked: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
    for request in bench.evictions_granted() {
        let at = text(&request, "/stageTimestamp").parse().expect("a moment");
        asked.entry(text(&request, EVICTED_UID).to_owned()).or_default().push(at);
    }
    for (uid, times) in &asked {
        let is_lost = |at: &Timestamp| cut_off.duration_since(*at).abs().as_secs() < 2;
        let others = times.iter().filter(|at| !is_lost(at)).count();
        assert!(others <= 1 && times.len() <= 2, "{uid} is evicted twice: {times:?}\n{}", bench.logs());
    }
    bench.expect_untouched(&strangers);
    assert_eq!(running.stop(), 130);
}
