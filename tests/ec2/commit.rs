//! The whole story once, on a real control plane and the wire of EC2, with what is nobody's of ours beside it. Tests begin in the order of
//! their names, and this one takes longest: so it is no late one.

use std::cell::Cell;
use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::region::{Others, Region, environment, is_true};
use crate::bench::{EVICTED_UID, POOLS, Running, text};
use crate::mixed;
use crate::story::{GROUPS, Story};

/// So old a machine is before the lack of a claim counts. EC2 tells in whole seconds when it was bought.
const GRACE_SECONDS: f64 = 29.0;

const CLASSES: &str = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses";

#[test]
fn a_commit_becomes_machines_for_pods_and_nothing_is_left_running() {
    let region = Region::new();
    let bench = &region.bench;
    let (strangers, others) = (bench.plant_strangers(), region.plant_others());
    let (leaked, leaked_since) = (region.plant_leaked(), Timestamp::now());
    let running = region.start_shipped();

    bench.wait("pool and class ready", || {
        is_true(&bench.plane.api.get(&format!("{POOLS}/general")).body, "Ready")
            && bench.list(CLASSES).iter().any(|class| is_true(class, "Ready"))
    });
    let log = running.log();
    assert!(
        log.lines().next().is_some_and(|line| line.contains("bought from EC2")),
        "the first line says so: {log}"
    );

    // Fifty pods of three sizes wait, get machines, and run where the plan wanted them.
    Story::deploy(bench);
    bench.wait("all running", || bench.all_run(50));
    bench.wait("all initialized", || {
        bench.claims().iter().all(|claim| is_true(claim, "Initialized")) && region.are_one_to_one()
    });
    let nodes = bench.nodes();
    assert_eq!(nodes.len(), GROUPS.len(), "one machine is bought for each group");
    let names: BTreeSet<&str> = nodes.iter().map(|node| text(node, "/metadata/name")).collect();
    for pod in bench.pods() {
        assert!(names.contains(text(&pod, "/spec/nodeName")), "every pod is on a node of ours");
    }
    assert_eq!(bench.deleted_for_taints(), Vec::<String>::new(), "they came to nodes that were not open");
    let log = running.log();
    assert_eq!(bench.pods_elsewhere(&log), 0, "all pods run where they were planned\n{log}");
    for node in &nodes {
        let label = |key: &str| node["metadata"]["labels"][key].as_str().unwrap_or_default();
        assert_eq!((label("karpenter.sh/nodepool"), label("generation")), ("general", "one"));
        assert_eq!(label("karpenter.sh/capacity-type"), "spot");
        assert!(
            node.pointer("/spec/taints").is_none_or(|taints| taints.as_array().is_none_or(Vec::is_empty))
        );
    }

    // A second commit rolls the pool within its budget.
    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two"))]);
    let excess = Cell::new(None);
    bench.wait("rolled", || {
        let (nodes, claims) = (bench.nodes(), bench.claims());
        let is_going = |claim: &&Value| !claim["metadata"]["deletionTimestamp"].is_null();
        // Rounded up, as Karpenter does; replacements count as nodes.
        let (going, allowed) = (claims.iter().filter(is_going).count(), (claims.len() * 2).div_ceil(5));
        if going > allowed {
            excess.set(Some((going, claims.len())));
        }
        nodes.iter().all(|node| text(node, "/metadata/labels/generation") == "two")
            && bench.all_run(50)
            && region.are_one_to_one()
    });
    assert_eq!(excess.get(), None, "so many of so many nodes went at once");

    a_spot_machine_is_taken_back(&region);
    every_notice_is_heard_and_what_is_none_is_dropped(&region, &running, &others);

    // What no claim belongs to is ended once it had time to get one.
    bench.wait("the leaked machine is gone", || region.state_of(&leaked) == "terminated");
    let ended = region.ended_at(&leaked).expect("it was ended by us");
    let age = ended - leaked_since.as_millisecond() as f64 / 1000.0;
    assert!(age > GRACE_SECONDS, "it was {age} seconds old");

    // Without pods there are no nodes, claims or machines.
    GROUPS.iter().for_each(|(name, ..)| bench.scale(name, 0));
    let is_going = |claim: &Value| claim.pointer("/metadata/deletionTimestamp").is_some();
    bench.wait("all on their way out", || bench.claims().iter().all(is_going));
    bench.wait("empty", || region.is_empty());
    region.expect_one_machine_a_claim();
    bench.expect_untouched(&strangers);
    region.expect_others(&others);
    region.expect_permitted();
    assert_eq!(running.stop(), 130, "asked to end, it ends");
}

#[test]
fn fifty_mixed_pods_run_on_what_was_planned_for_them() {
    let region = Region::new();
    let bench = &region.bench;
    let (strangers, others) = (bench.plant_strangers(), region.plant_others());
    let running = region.start(&["--output", "json"]);
    bench.wait("pool ready", || is_true(&bench.plane.api.get(&format!("{POOLS}/general")).body, "Ready"));
    mixed::expect_where_planned(bench, &running);
    region.expect_one_machine_a_claim();
    bench.expect_untouched(&strangers);
    region.expect_others(&others);
    region.expect_permitted();
}

/// EventBridge warns of a machine: its pods, which nothing protects, have a new one before the first of them leaves.
fn a_spot_machine_is_taken_back(region: &Region) {
    let bench = &region.bench;
    let on = |node: &Value| {
        let name = text(node, "/metadata/name").to_owned();
        let mut pods = bench.pods();
        pods.retain(|pod| {
            text(pod, "/spec/nodeName") == name && text(pod, "/metadata/labels/app") == "large"
        });
        pods
    };
    let crowded = bench.nodes().into_iter().max_by_key(|node| on(node).len()).expect("there are nodes");
    let leaving: BTreeSet<String> =
        on(&crowded).iter().map(|pod| text(pod, "/metadata/uid").to_owned()).collect();
    assert!(leaving.len() > 1, "it runs pods that go nowhere else: {leaving:?}");
    let instance = id_of(&crowded);
    let before: BTreeSet<String> =
        region.living().iter().map(|machine| text(machine, "/id").to_owned()).collect();
    region.warn_of_spot(&instance);
    bench.wait("taken back", || !["running", "pending"].contains(&&*region.state_of(&instance)));
    let mut claims = bench.claims();
    claims.retain(|claim| {
        !before.contains(text(claim, "/status/providerID").rsplit('/').next().unwrap_or_default())
    });
    let [replacement] = claims.as_slice() else {
        panic!("one takes its place: {claims:#?}\n{}", bench.logs())
    };
    let conditions = replacement["status"]["conditions"].as_array().expect("it says how far it is");
    let initialized =
        conditions.iter().find(|one| one["type"] == "Initialized").expect("it says whether it is");
    assert_eq!(initialized["status"], "True");
    // In whole seconds.
    let ready: Timestamp = text(initialized, "/lastTransitionTime").parse().expect("a moment");
    let mut evicted = bench.evictions_granted();
    evicted.retain(|request| leaving.contains(text(request, EVICTED_UID)));
    let asked = || {
        evicted.iter().map(|request| (text(request, EVICTED_UID), text(request, "/requestReceivedTimestamp")))
    };
    let each: BTreeSet<&str> = asked().map(|(uid, _)| uid).collect();
    assert_eq!(each.len(), leaving.len(), "each of its pods was asked");
    assert_eq!(evicted.len(), leaving.len(), "none was asked twice: {:#?}", asked().collect::<Vec<_>>());
    let moment = |request: &Value| text(request, "/requestReceivedTimestamp").parse().expect("a moment");
    let first: Timestamp = evicted.iter().map(moment).min().expect("it had pods");
    assert!(ready <= first, "ready at {ready}, and the first pod was asked to leave at {first}");
    bench.wait("all running after the warning", || bench.all_run(50) && region.are_one_to_one());
    assert!(region.ended_at(&instance).is_some(), "it was ended by us");
}

fn id_of(node: &Value) -> String {
    text(node, "/spec/providerID").rsplit('/').next().expect("an id").to_owned()
}

/// What else the queue tells: a machine that may be taken stays, those that will not last go, and what nobody understands or
/// what is about somebody else's machine comes to nothing.
fn every_notice_is_heard_and_what_is_none_is_dropped(region: &Region, running: &Running, others: &Others) {
    let bench = &region.bench;
    let nodes = bench.nodes();
    let [advised, failing, stopping] = &nodes[..3] else { panic!("there are three nodes") };
    let made = bench.claims_made().len();
    region.send("not json".into());
    region.tell("aws.s3", "Object Created", json!({ "object": { "key": "x" } }));
    for machine in &others.machines {
        region.warn_of_spot(text(machine, "/id"));
    }
    region.tell("aws.ec2", "EC2 Instance Rebalance Recommendation", json!({ "instance-id": id_of(advised) }));
    let health = json!({
        "service": "EC2", "eventTypeCategory": "scheduledChange",
        "affectedEntities": [{ "entityValue": id_of(failing) }],
    });
    region.tell("aws.health", "AWS Health Event", health);
    let state = json!({ "instance-id": id_of(stopping), "state": "stopping" });
    region.tell("aws.ec2", "EC2 Instance State-change Notification", state);

    bench.wait("both gone", || {
        [failing, stopping].iter().all(|node| region.state_of(&id_of(node)) == "terminated")
    });
    bench.wait("all running after the notices", || bench.all_run(50) && region.are_one_to_one());
    let events = || bench.list("/api/v1/namespaces/default/events");
    for (node, reason) in [
        (advised, "SpotRebalanceRecommendation"),
        (failing, "InstanceUnhealthy"),
        (stopping, "InstanceStopping"),
    ] {
        let name = text(node, "/metadata/name");
        let is_it =
            |event: &Value| text(event, "/involvedObject/name") == name && text(event, "/reason") == reason;
        bench.wait("told at its node", || events().iter().any(is_it));
    }
    assert_eq!(region.state_of(&id_of(advised)), "running", "advice is not followed");
    // One for each, and one more where kube-scheduler gave the room that was bought for a pod to another.
    let bought = bench.claims_made().split_off(made);
    assert!(bought.len() <= 4, "for two nodes {bought:?} were bought\n{}", running.log());
    bench.wait("the queue is empty", || region.waiting_messages() == 0);
    let log = running.log();
    let dropped: Vec<&str> = log.lines().filter(|line| line.contains("in the queue was dropped")).collect();
    assert_eq!(dropped.len(), 2, "{dropped:#?}");
    assert!(dropped.iter().any(|line| line.contains("it is not JSON")), "{dropped:#?}");
    assert!(dropped.iter().any(|line| line.contains("`Object Created` of `aws.s3`")), "{dropped:#?}");
}
