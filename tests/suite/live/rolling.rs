//! A roll by commits: replacements first and within its surge, a canary, a pause, and a halt that outlives the process.
//!
//! The kubelets go on while Provisor is killed in the middle.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::bench::{Bench, CLAIMS, POOLS, is_true, text};
use super::chronicle::{Chronicle, Story};
use super::kubelets::{BROKEN, Kubelets, LEFT_TO_US};
use super::moments::{Killer, Stage};

const NODES: usize = 3;
const SOAK: SignedDuration = SignedDuration::from_secs(6);
const OPTIONS: [&str; 2] = ["--no-lease", LEFT_TO_US];

/// Budgets would let all go at once: the roll itself says how it goes on.
fn environment(generation: &str, labels: &str, roll: &str) -> String {
    format!(
        r#"
        region = "us-east-1"
        [pools.general]
        strategy = "on-demand"
        limits = {{ cpu = "200" }}
        instance-cpu-max = 16
        consolidation-policy = "WhenEmpty"
        consolidate-after = "1s"
        labels = {{ generation = "{generation}"{labels} }}
        budgets = [{{ nodes = "100%" }}]
        roll = {{ canary = 1, soak = "{}s", surge = 1, halt-after = 1{roll} }}
        "#,
        SOAK.as_secs()
    )
}

fn generation(object: &Value) -> &str {
    text(object, "/metadata/labels/generation")
}

/// Claims that are on their way, or will be replaced by something.
fn names(claims: &[Value], of_generation: &str) -> BTreeSet<String> {
    let of_generation = claims.iter().filter(|claim| generation(claim) == of_generation);
    of_generation.map(|claim| text(claim, "/metadata/name").to_owned()).collect()
}

fn moment(object: &Value, pointer: &str) -> Timestamp {
    text(object, pointer).parse().unwrap_or_else(|_| panic!("{pointer} of {object}"))
}

/// Rows: DIS-133, DIS-170, DIS-177
#[test]
fn a_roll_brings_replacements_first_proves_itself_and_halts_when_they_fail() {
    let bench = Bench::of(&environment("one", "", ""));
    let _kubelets = Kubelets::start(&bench);
    // Each pod needs a machine of its own.
    bench.deploy("large", NODES as u32, "9", "1Gi");
    let running = bench.start_as(0, "2s", &OPTIONS);
    bench.wait("running", || {
        bench.all_run(NODES) && bench.claims().iter().all(|claim| is_true(claim, "Initialized"))
    });
    let old = names(&bench.claims(), "one");
    assert_eq!(old.len(), NODES);
    let chronicle = Chronicle::begin(&bench);
    running.kill();

    // Two processes die in the middle.
    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two", "", ""))]);
    let none = || Vec::new();
    let mut killer = Killer::new(&bench, 20_261_124, &none);
    for stage in [Stage::Booting, Stage::Draining] {
        killer.strike(bench.start_as(0, "2s", &OPTIONS), Some(stage));
    }
    let running = bench.start_as(0, "2s", &OPTIONS);
    bench.wait("rolled", || {
        let claims = bench.claims();
        bench.all_run(NODES)
            && claims.len() == NODES
            && names(&claims, "two").len() == NODES
            && bench.nodes().len() == NODES
    });
    bench.expect_one_machine_for_each_claim();
    bench.expect_moved_once(NODES);
    assert_eq!(bench.claims_made().len(), 2 * NODES, "one for each\n{}", bench.logs());
    expect_orderly(&chronicle.end(), &old);

    // A pause holds the next one.
    let paused = environment("three", &format!(", {BROKEN} = \"yes\""), ", paused = true");
    bench.fleet.commit("third, paused", &[("environments/dev.toml", &paused)]);
    let condition = |claim: &Value, kind: &str| crate::plane::has_condition(claim, kind);
    bench.wait("drifted", || bench.claims().iter().all(|claim| condition(claim, "Drifted")));
    let events = || bench.list("/api/v1/namespaces/default/events");
    bench.wait("told that it is paused", || {
        events().iter().any(|event| {
            text(event, "/involvedObject/kind") == "Node"
                && text(event, "/reason") == "DisruptionBlocked"
                && text(event, "/message").contains("roll of pool general is paused")
        })
    });
    assert_eq!(bench.claims_made().len(), 2 * NODES, "nothing is replaced\n{}", bench.logs());

    // Then it goes on, and what comes never becomes ready: somebody takes it away.
    let broken = environment("three", &format!(", {BROKEN} = \"yes\""), "");
    bench.fleet.commit("third", &[("environments/dev.toml", &broken)]);
    bench.wait("a replacement joined", || {
        let claims = bench.claims();
        claims.iter().any(|claim| generation(claim) == "three" && is_true(claim, "Registered"))
    });
    let three = names(&bench.claims(), "three");
    assert_eq!(three.len(), 1, "one is tried first: {three:?}");
    let broken = three.first().expect("it is there");
    bench.plane.api.delete(&format!("{CLAIMS}/{broken}")).expect("deleted");
    let pool = || bench.plane.api.get(&format!("{POOLS}/general")).expect("the pool");
    let halted = || {
        let conditions = pool()["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| {
            condition["type"] == "RollHealthy"
                && condition["status"] == "False"
                && condition["reason"] == "RollHalted"
        })
    };
    bench.wait("halted", halted);
    bench.wait("what failed is gone", || {
        names(&bench.claims(), "three").is_empty() && bench.nodes().len() == NODES
    });
    let halts = |event: &Value| {
        text(event, "/reason") == "RollHalted" && text(event, "/involvedObject/name") == "general"
    };
    bench.wait("an event says so", || events().iter().any(halts));
    running.kill();

    // Whoever comes next knows that, although nobody remembers.
    let running = bench.start_as(0, "2s", &OPTIONS);
    bench.wait("told again", || running.log().contains("the roll of pool general is halted"));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(bench.claims_made().len(), 2 * NODES + 1, "nothing more is tried\n{}", bench.logs());
    assert!(halted());
    let nodes = bench.nodes();
    let serves = |node: &&Value| generation(node) == "two" && node["spec"]["taints"].is_null();
    assert_eq!(nodes.iter().filter(serves).count(), NODES, "the old ones serve on: {nodes:#?}");
    assert!(bench.all_run(NODES));
    bench.expect_moved_once(NODES);

    // Another goal begins anew.
    bench.fleet.commit("fourth", &[("environments/dev.toml", &environment("four", "", ""))]);
    bench.wait("it goes on", || {
        bench.claims().iter().any(|claim| generation(claim) == "four" && is_true(claim, "Initialized"))
    });
    drop(running);
}

/// Of `old` claims each went when its replacement was ready, one at a time, the second after the first new node had proved itself.
fn expect_orderly(story: &Story, old: &BTreeSet<String>) {
    story.expect_replaced_first(old, |_, _| ());
    let mut most = 0;
    story.replay(|_, picture| {
        most = most.max(picture.keys().filter(|(kind, _)| *kind == "nodeclaims").count());
    });
    assert_eq!(most, NODES + 1, "one at a time stands beside what it replaces");
    let created = |name: &str| {
        let claim = story.first(name, "nodeclaims", |moment| moment.name() == name);
        moment(&claim.object, "/metadata/creationTimestamp")
    };
    let new = story.of("nodeclaims").filter(|moment| !old.contains(moment.name()));
    let new: BTreeSet<(Timestamp, String)> =
        new.map(|moment| (created(moment.name()), moment.name().to_owned())).collect();
    let [(_, canary), (second, _), ..] = &new.iter().collect::<Vec<_>>()[..] else { panic!("{new:?}") };
    let initialized = story.first("the canary is ready", "nodeclaims", |moment| {
        moment.name() == canary && is_true(&moment.object, "Initialized")
    });
    let conditions = initialized.object["status"]["conditions"].as_array().expect("conditions");
    let condition = conditions.iter().find(|condition| condition["type"] == "Initialized").expect("it is");
    let since = moment(condition, "/lastTransitionTime");
    // Both are to the second.
    assert!(
        second.duration_since(since) >= SOAK - SignedDuration::from_secs(1),
        "the canary had from {since} to {second}"
    );
}
