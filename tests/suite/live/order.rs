//! In what order pods leave two nodes that have to be gone by a deadline, beside pods that are deaf, protected or in nobody's way.
//!
//! The kubelets go on while Provisor is killed in the middle.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::bench::{Bench, CLAIMS, DEAF, environment, text};
use super::chronicle::{Chronicle, Moment, Story};
use super::kubelets::{Kubelets, LEFT_TO_US};
use crate::plane::collection_of;

const TIME: SignedDuration = SignedDuration::from_secs(30);
const ZONE: &str = "topology.kubernetes.io/zone";
/// Where pods leave in their order, and where the deadline tells when.
const QUIET: &str = "us-east-1a";
const HURRIED: &str = "us-east-1b";
const CRITICAL: &str = "system-cluster-critical";
const HELD: &str = "tests.provisor.dev/held";
/// So long before the deadline the protected pod has to be told.
const GRACE: i64 = 8;

fn spec(zone: &str, grace: i64) -> Value {
    json!({
        "terminationGracePeriodSeconds": grace, "nodeSelector": { ZONE: zone },
        "containers": [{ "name": "main", "image": "pause", "resources": { "requests": { "cpu": "100m" } } }],
    })
}

fn pod(bench: &Bench, name: &str, zone: &str, grace: i64, more: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": bench.namespace }, "spec": spec(zone, grace),
    });
    json_patch(&mut pod, more);
    pod
}

/// Lays `more` over `object`, table by table.
fn json_patch(object: &mut Value, more: Value) {
    match (object, more) {
        (Value::Object(object), Value::Object(more)) => {
            for (key, value) in more {
                json_patch(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, more) => *object = more,
    }
}

fn daemon(bench: &Bench, name: &str, more: Value) -> Value {
    let labels = json!({ "app": name });
    let mut pod = spec(QUIET, 1);
    json_patch(&mut pod, more);
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": name, "namespace": bench.namespace },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    })
}

/// What Provisor asked of one pod: the requests of a kind.
fn asked(bench: &Bench, verb: &str, name: &str) -> Vec<Value> {
    let mut requests = bench.requests();
    requests.retain(|request| {
        request["verb"] == verb
            && request["objectRef"]["resource"] == "pods"
            && text(request, "/objectRef/name") == name
            && text(request, "/objectRef/subresource") != "status"
    });
    requests
}

/// Who is evicted has the time that it asks for itself: the request names it, and none is taken.
fn expect_own_grace(story: &Story, name: &str, eviction: &Value) {
    let options = &eviction["requestObject"]["deleteOptions"];
    assert!(options["preconditions"]["uid"].is_string(), "{eviction}");
    let leaves = story.first("it is on its way out", "pods", |moment| {
        moment.name() == name && !moment.object["metadata"]["deletionTimestamp"].is_null()
    });
    let (given, own) = ("/metadata/deletionGracePeriodSeconds", "/spec/terminationGracePeriodSeconds");
    assert!(leaves.object.pointer(own).is_some_and(Value::is_u64), "{leaves:?}");
    assert_eq!(leaves.object.pointer(given), leaves.object.pointer(own), "{name}");
    assert_eq!(Some(&options["gracePeriodSeconds"]), leaves.object.pointer(own), "{eviction}");
}

fn moment_of(value: &Value, pointer: &str) -> Timestamp {
    text(value, pointer).parse().unwrap_or_else(|_| panic!("{pointer} is no moment: {value}"))
}

/// Rows: TER-009, TER-012, TER-015, TER-021, TER-022, TER-023, TER-024
#[test]
fn ter_015_pods_leave_in_their_order_and_in_time_and_nobody_waits_for_those_that_stay() {
    let bench = Bench::of(&format!("{}termination-grace-period = \"30s\"\n", environment("one")));
    let _kubelets = Kubelets::start(&bench);
    let critical = json!({ "spec": { "priorityClassName": CRITICAL } });
    let deaf = json!({ "metadata": { "labels": { DEAF: "yes" } }, "spec": critical["spec"] });
    let tolerant = json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } });
    let pods = [
        pod(&bench, "plain", QUIET, 1, json!({ "metadata": { "finalizers": [HELD] } })),
        pod(&bench, "critical", QUIET, 1, critical),
        pod(&bench, "tolerant", QUIET, 1, tolerant),
        pod(&bench, "finished", QUIET, 1, json!({})),
        pod(&bench, "quick", HURRIED, 1, json!({})),
        pod(
            &bench,
            "protected",
            HURRIED,
            GRACE,
            json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }),
        ),
        pod(&bench, "deaf", HURRIED, 600, deaf.clone()),
        pod(&bench, "stopping", HURRIED, 3600, deaf),
    ];
    let daemons = [
        daemon(&bench, "daemon", json!({})),
        daemon(&bench, "critical-daemon", json!({ "priorityClassName": "system-node-critical" })),
    ];
    for object in daemons.iter().chain(&pods) {
        bench.plane.api.post(&collection_of(object), object).expect("it is accepted");
    }
    let options = ["--no-lease", LEFT_TO_US];
    let running = bench.start(&options);
    bench.wait("running", || bench.all_run(10) && bench.nodes().len() == 2);
    let path = |name: &str| format!("/api/v1/namespaces/{}/pods/{name}", bench.namespace);
    let status = json!({ "status": { "phase": "Succeeded" } });
    bench.plane.api.patch(&format!("{}/status", path("finished")), &status).expect("it is done");
    let node_in = |zone: &str| {
        let nodes = bench.nodes();
        let node =
            nodes.iter().find(|node| text(node, "/metadata/labels/topology.kubernetes.io~1zone") == zone);
        text(node.expect("a node in each zone"), "/metadata/name").to_owned()
    };
    let (quiet, hurried) = (node_in(QUIET), node_in(HURRIED));
    let chronicle = Chronicle::begin(&bench);

    // One is on its way out already, and has an hour for it.
    bench.plane.api.delete(&path("stopping")).expect("asked to go");
    for claim in bench.claims() {
        bench.plane.api.delete(&format!("{CLAIMS}/{}", text(&claim, "/metadata/name"))).expect("deleted");
    }
    let is_going = |name: &str| {
        let pod = bench.plane.api.get(&path(name));
        !pod.is_success() || !pod.body["metadata"]["deletionTimestamp"].is_null()
    };
    // All whose turn it is: of a request that a killed process had not heard of, nobody can say whether it was heard.
    bench.wait("the first are asked", || {
        ["plain", "deaf", "quick"].into_iter().all(is_going) && asked(&bench, "delete", "stopping").len() == 1
    });
    running.kill();
    let running = bench.start(&options);
    // Time enough to look around and to ask, were it its turn.
    std::thread::sleep(Duration::from_secs(3));
    let others = ["critical", "tolerant", "finished", "protected"];
    for name in others {
        assert!(
            asked(&bench, "create", name).is_empty(),
            "{name} is asked before its turn\n{}",
            bench.logs()
        );
    }
    let let_go = json!({ "metadata": { "finalizers": null } });
    bench.plane.api.patch(&path("plain"), &let_go).expect("nothing holds it any more");
    let is_gone = |name: &str| !bench.plane.api.get(&format!("/api/v1/nodes/{name}")).is_success();
    bench.wait("both nodes are gone", || is_gone(&quiet) && is_gone(&hurried));
    bench.wait("both claims are gone", || bench.claims().is_empty());
    let story = chronicle.end();

    // In four steps, each after the former is gone.
    let named = |begin: &str| {
        let is_it = |moment: &Moment| {
            moment.name().starts_with(begin) && text(&moment.object, "/spec/nodeName") == quiet
        };
        story.first("a pod of the DaemonSet", "pods", is_it).name().to_owned()
    };
    let order = ["plain".to_owned(), named("daemon-"), "critical".to_owned(), named("critical-daemon-")];
    for pair in order.windows(2) {
        let (gone, next) = (story.gone("pods", &pair[0]), story.asked("pods", &pair[1]));
        assert!(gone < next, "{} is asked while {} is there\n{}", pair[1], pair[0], bench.logs());
    }
    for name in &order {
        let [eviction] = &asked(&bench, "create", name)[..] else { panic!("{name} is asked once") };
        expect_own_grace(&story, name, eviction);
        assert!(asked(&bench, "delete", name).is_empty(), "there was time enough for {name}");
    }
    // Neither asked nor waited for.
    let gone = story.gone("nodes", &quiet);
    for name in ["tolerant", "finished"] {
        assert!(
            asked(&bench, "create", name).is_empty() && asked(&bench, "delete", name).is_empty(),
            "{name}"
        );
        let leaves = story.of("pods").find(|moment| moment.name() == name && moment.is_gone);
        assert!(leaves.is_none_or(|moment| moment.revision > gone), "{name} stays as long as its node");
    }

    // By the deadline, which nobody moved.
    let mut deadlines: Vec<(Timestamp, Timestamp)> = Vec::new();
    for moment in story.of("nodeclaims") {
        let key = "/metadata/annotations/karpenter.sh~1nodeclaim-termination-timestamp";
        if text(&moment.object, "/status/nodeName") == hurried && !text(&moment.object, key).is_empty() {
            let begun = moment_of(&moment.object, "/metadata/deletionTimestamp");
            deadlines.push((begun, moment_of(&moment.object, key)));
        }
    }
    deadlines.dedup();
    let [(begun, deadline)] = deadlines[..] else { panic!("one deadline, not {deadlines:?}") };
    assert_eq!(deadline, begun + TIME);
    assert!(asked(&bench, "create", "protected").is_empty(), "what protects it is heeded until then");
    for (name, earliest) in [
        ("protected", deadline - SignedDuration::from_secs(GRACE)),
        // There is no time to lose for those that would take longer than there is.
        ("deaf", begun),
        ("stopping", begun),
    ] {
        let [told] = &asked(&bench, "delete", name)[..] else {
            panic!("{name} is told once: {:?}\n{}", asked(&bench, "delete", name), bench.logs())
        };
        let at = moment_of(told, "/requestReceivedTimestamp");
        assert!(at >= earliest, "{name} is told at {at}, and had until {earliest}");
        let grace = told["requestObject"]["gracePeriodSeconds"].as_i64().expect("the time that is left");
        // A second may pass on the way to a busy API server.
        let left = deadline.duration_since(at).as_secs() + 1;
        assert!((1..=left.max(1)).contains(&grace), "{name} gets {grace} s of {left} s");
    }
    for name in ["deaf", "stopping"] {
        let last = story.of("pods").filter(|moment| moment.name() == name).last().expect("it was there");
        assert!(
            last.is_gone
                && moment_of(&last.object, "/metadata/deletionTimestamp")
                    <= deadline + SignedDuration::from_secs(1),
            "{last:?}"
        );
        assert!(last.revision < story.gone("nodes", &hurried), "{name} has its time");
    }
    let [eviction] = &asked(&bench, "create", "quick")[..] else { panic!("it is asked once") };
    expect_own_grace(&story, "quick", eviction);
    drop(running);
}
