//! A drain that a disruption budget of pods holds up: it stops, says by which budget, and goes on when the budget lets it.

use serde_json::{Value, json};

use super::bench::{Bench, CLAIMS, EVICTED_UID, text};
use super::chronicle::{Chronicle, revision_of};
use crate::plane::{collection_of, path_of};

const GUARD: &str = "two-at-least";

fn labelled<'v>(pods: &'v [Value], app: &str) -> Vec<&'v Value> {
    pods.iter().filter(|pod| text(pod, "/metadata/labels/app") == app).collect()
}

fn is_available(pod: &Value) -> bool {
    let is_ready = crate::plane::has_condition(pod, "Ready");
    is_ready && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Processes are killed while the budget holds, and after it has let one pod go.
///
/// Rows: TER-007, TER-014, TER-025, TER-033
#[test]
fn ter_014_a_drain_stops_at_a_disruption_budget_and_goes_on_when_that_allows_it() {
    let bench = Bench::new();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": GUARD, "namespace": bench.namespace },
        "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "guarded" } } },
    });
    // It says itself that nobody may move it.
    let protected = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "protected", "namespace": bench.namespace, "labels": { "app": "protected" },
            "annotations": { "karpenter.sh/do-not-disrupt": "true" },
        },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "main", "image": "pause", "resources": { "requests": { "cpu": "200m" } } }],
        },
    });
    for object in [&budget, &protected] {
        bench.plane.api.post(&collection_of(object), object).expect("it is accepted");
    }
    bench.deploy("guarded", 2, "300m", "256Mi");
    bench.deploy("free", 1, "300m", "256Mi");
    let running = bench.start(&["--no-lease"]);
    bench.wait("running", || bench.all_run(4));
    let [node] = &bench.nodes()[..] else { panic!("one node for all of them: {:?}", bench.nodes().len()) };
    let old = text(node, "/metadata/name").to_owned();
    let [claim] = &bench.claims()[..] else { panic!("one claim") };
    let claim = text(claim, "/metadata/name").to_owned();
    let all: Vec<Value> = bench.pods();
    let uids =
        |app| labelled(&all, app).into_iter().map(|pod| text(pod, "/metadata/uid")).collect::<Vec<_>>();
    let guarded = uids("guarded");
    let chronicle = Chronicle::begin(&bench);

    // Somebody deletes the claim: what may go goes, the others are asked again and again.
    bench.plane.api.delete(&format!("{CLAIMS}/{claim}")).expect("deleted");
    let asked = |code: u64| {
        let mut requests = bench.requests();
        requests.retain(|request| {
            request["objectRef"]["subresource"] == "eviction"
                && request["responseStatus"]["code"] == code
                && guarded.contains(&text(request, EVICTED_UID))
        });
        requests.len()
    };
    bench.wait("refused", || asked(429) >= 6);
    bench.wait("the free pod runs elsewhere", || {
        labelled(&bench.pods(), "free").iter().any(|pod| {
            let is_elsewhere = !["", old.as_str()].contains(&text(pod, "/spec/nodeName"));
            is_elsewhere && text(pod, "/status/phase") == "Running"
        })
    });
    running.kill();
    let refused = asked(429);
    let running = bench.start(&["--no-lease"]);
    bench.wait("refused again", || asked(429) >= refused + 6);
    let stays = |pods: &[Value]| {
        let of = |app| labelled(pods, app).into_iter().filter(|pod| text(pod, "/spec/nodeName") == old);
        of("guarded")
            .chain(of("protected"))
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .count()
    };
    assert_eq!(stays(&bench.pods()), 3, "nobody is moved past the budget\n{}", bench.logs());
    let node = bench.plane.api.get(&format!("/api/v1/nodes/{old}")).expect("it stays");
    let excluded = "/metadata/labels/node.kubernetes.io~1exclude-from-external-load-balancers";
    assert_eq!(text(&node, excluded), "karpenter");
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let is_closed =
        |taint: &Value| taint["key"] == "karpenter.sh/disrupted" && taint["effect"] == "NoSchedule";
    assert!(taints.iter().any(is_closed), "nothing new may land on it: {taints:?}");

    // The budget lets one go at a time, the next once the first runs elsewhere.
    let change = json!({ "spec": { "minAvailable": 1 } });
    let loosened = bench.plane.api.patch(&path_of(&budget), &change).expect("loosened");
    bench.wait("one is granted", || asked(201) >= 1);
    running.kill();
    let running = bench.start(&["--no-lease"]);
    bench.wait("both have moved", || {
        let pods = bench.pods();
        let moved = labelled(&pods, "guarded");
        moved.len() == 2 && moved.iter().all(|pod| is_available(pod) && text(pod, "/spec/nodeName") != old)
    });
    // Of what says that it may not be moved nobody asks.
    assert_eq!(stays(&bench.pods()), 1, "it is still there");
    let word = json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": null } } });
    bench.plane.api.patch(&path_of(&protected), &word).expect("it may be moved now");
    bench.wait("the node is gone", || !bench.plane.api.get(&format!("/api/v1/nodes/{old}")).is_success());
    bench.wait("settled", || bench.all_run(3) && bench.claims().len() == bench.nodes().len());
    bench.expect_one_machine_for_each_claim();
    let moved = bench.moved_once();
    assert_eq!(moved.len(), 4, "all were, and no others: {moved:?}\n{}", bench.logs());
    assert!(bench.claims_made().len() <= 3, "no machine is bought twice: {:?}", bench.claims_made());

    let story = chronicle.end();
    let says_which = |moment: &super::chronicle::Moment| {
        text(&moment.object, "/reason") == "FailedDraining"
            && text(&moment.object, "/involvedObject/name").starts_with("guarded-")
            && text(&moment.object, "/message").contains(&format!("The disruption budget {GUARD} needs 2"))
    };
    story.first("an event at the pod names the budget", "events", says_which);
    story.first("an event at the node says that it waits", "events", |moment| {
        text(&moment.object, "/reason") == "FailedDraining"
            && text(&moment.object, "/involvedObject/name") == old
    });
    story.first("a condition says that it drains", "nodeclaims", |moment| {
        let conditions = moment.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let drained = conditions.into_iter().find(|condition| condition["type"] == "Drained");
        drained.is_some_and(|drained| drained["status"] == "Unknown" && drained["reason"] == "Draining")
    });
    let loosened = revision_of(&loosened);
    story.replay(|moment, picture| {
        let pods = picture.iter().filter(|((kind, _), _)| *kind == "pods").map(|(_, pod)| *pod);
        let guarded: Vec<&Value> =
            pods.filter(|pod| text(pod, "/metadata/labels/app") == "guarded").collect();
        let available = guarded.iter().filter(|pod| is_available(pod)).count();
        let least = if moment.revision < loosened { 2 } else { 1 };
        // The chronicle begins with a list, which is in no order.
        let is_whole = guarded.len() >= 2;
        assert!(!is_whole || available >= least, "{available} at revision {}", moment.revision);
    });
    drop(running);
}
