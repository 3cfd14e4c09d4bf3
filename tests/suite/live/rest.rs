//! How little is asked while nothing happens, how soon something is done when it does, and what a lost connection costs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use super::bench::{Bench, text};
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

    // Nobody made an Environment object, and it is not looked for with each change.
    let looked = after.iter().filter(|request| request["objectRef"]["resource"] == "environments").count();
    assert!(looked as u64 <= 1 + start.elapsed().as_secs() / 30, "{looked} times");
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
