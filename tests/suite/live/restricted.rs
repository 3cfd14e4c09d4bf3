//! What an Environment says about applying commits holds from the first moment, and as long as it says so.

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, POOLS, environment, text};

/// As long as a commit is seen and applied several times over: the repository is asked every 100 ms, the object every 5 s.
const WELL_AFTER: Duration = Duration::from_secs(7);

#[test]
fn nothing_is_applied_while_the_environment_is_suspended_or_its_windows_are_closed() {
    let bench = Bench::new();
    let path = bench.plant_environment();
    let say = |spec: Value| {
        bench.plane.api.patch(&path, &json!({ "spec": spec })).expect("the object takes it");
    };
    let generations = || {
        let pools = bench.list(POOLS);
        let of = |pool: &Value| text(pool, "/spec/template/metadata/labels/generation").to_owned();
        pools.iter().map(of).collect::<Vec<_>>()
    };
    say(json!({ "suspend": { "reason": "the migration" } }));
    let running = bench.start(&[]);
    bench.wait("told", || running.log().contains("Environment/dev is suspended"));
    assert!(running.log().contains("the migration"), "and why: {}", running.log());
    std::thread::sleep(WELL_AFTER);
    assert_eq!(generations(), [""; 0], "nothing is applied\n{}", running.log());

    say(json!({ "suspend": null }));
    bench.wait("applied", || generations() == ["one"]);

    let never = json!([{ "kind": "deny", "schedule": "0 0 * * *", "duration": "24h" }]);
    say(json!({ "windows": never }));
    bench.wait("told of windows", || running.log().contains("Environment/dev has 1 window"));
    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two"))]);
    std::thread::sleep(WELL_AFTER);
    assert_eq!(generations(), ["one"], "no change passes\n{}", running.log());
    running.kill();
    let successor = bench.start(&[]);
    bench.wait("told", || successor.log().contains("Environment/dev has 1 window"));
    std::thread::sleep(WELL_AFTER);
    assert_eq!(generations(), ["one"], "nor does it for a successor\n{}", successor.log());

    say(json!({ "windows": null }));
    bench.wait("applied", || generations() == ["two"]);
    let log = successor.log();
    assert!(!log.to_lowercase().contains("forbidden"), "it lacks a right: {log}");
}

#[test]
fn commits_are_applied_as_the_environment_says() {
    let with = |generation: &str, names: &[&str]| {
        let more: String =
            names.iter().map(|name| format!("\n[pools.{name}]\nstrategy = \"spot\"\n")).collect();
        format!("{}{more}", environment(generation))
    };
    let bench = Bench::of(&with("one", &["second", "third"]));
    let path = bench.plant_environment();
    let patch = |body: Value| drop(bench.plane.api.patch(&path, &body).expect("the object takes it"));
    let say = |sync: Value| patch(json!({ "spec": { "sync": sync } }));
    let commit = |text: &str| drop(bench.fleet.commit("another", &[("environments/dev.toml", text)]));
    let pools = || {
        let names = bench.list(POOLS).into_iter().map(|pool| text(&pool, "/metadata/name").to_owned());
        names.collect::<Vec<_>>()
    };

    say(json!({ "mode": "manual", "prune": "retire", "protected": ["sec*"] }));
    let running = bench.start(&[]);
    let invitation = "kubectl annotate environments.provisor.dev dev provisor.dev/confirm=";
    bench.wait("asked", || running.log().contains(invitation));
    assert!(running.log().contains("a person starts each sync"), "{}", running.log());
    assert_eq!(pools(), [""; 0], "nobody said yes");
    let digits =
        running.log().split(invitation).nth(1).and_then(|rest| rest.get(..7)).expect("digits").to_owned();
    bench.wait("the question is listened to", || {
        patch(json!({ "metadata": { "annotations": { "provisor.dev/confirm": digits } } }));
        std::thread::sleep(Duration::from_secs(3));
        patch(json!({ "metadata": { "annotations": { "provisor.dev/confirm": null } } }));
        pools() == ["general", "second", "third"]
    });

    // Every commit again, and what left Git goes without a word of the command line; but not what is protected.
    say(json!({ "mode": null }));
    bench.wait("told", || {
        running.log().contains(r#"says how commits are applied: prune: "retire", protected: ["sec*"]"#)
    });
    commit(&with("one", &[]));
    bench.wait("gone", || pools() == ["general", "second"]);
    bench.wait("told", || running.log().contains("NodePool/second: is protected by `spec.sync.protected`"));

    // What nobody tracks is taken over if nothing differs.
    let mut theirs = bench.plane.api.get(&format!("{POOLS}/general")).body;
    let origin = json!({ "provisor.dev/origin": "environments/dev.toml#pools.theirs" });
    theirs["metadata"] = json!({ "name": "theirs", "annotations": origin });
    bench.plane.api.post(POOLS, &theirs).expect("a pool");
    let owned = || {
        bench
            .plane
            .api
            .get(&format!("{POOLS}/theirs"))
            .body
            .pointer("/metadata/annotations/provisor.dev~1tracking-id")
            .is_some()
    };
    let spec = environment("one").replace("pools.general", "pools.theirs");
    let theirs_too = format!(
        "{}\n{}",
        environment("one"),
        spec.split_once("[pools.theirs]").map(|(_, rest)| format!("[pools.theirs]{rest}")).expect("a pool")
    );
    commit(&theirs_too);
    bench.wait("refused", || running.log().contains("refused to adopt NodePool/theirs"));
    assert!(!owned());
    say(json!({ "adopt": "match" }));
    bench.wait("taken over", owned);

    // Nothing is written while the cluster says so, nor where it asks for what nobody looks at.
    say(json!({ "readOnly": true }));
    bench.wait("told", || running.log().contains("readOnly: true"));
    let general = || {
        text(
            &bench.plane.api.get(&format!("{POOLS}/general")).body,
            "/spec/template/metadata/labels/generation",
        )
        .to_owned()
    };
    commit(&theirs_too.replace("one", "two"));
    bench.wait("told", || running.log().contains("this installation only reads"));
    std::thread::sleep(WELL_AFTER);
    assert_eq!(general(), "one");
    patch(json!({ "spec": { "verification": { "mode": "head", "secretRef": { "name": "keys" } } } }));
    bench.wait("told", || running.log().contains("spec.verification asks for signed commits"));
    say(Value::Null);
    std::thread::sleep(WELL_AFTER);
    assert_eq!(general(), "one");
    patch(json!({ "spec": { "verification": null } }));
    bench.wait("applied", || general() == "two");

    // The end of a suspension and a word against writing, in one: nothing passes between them.
    patch(json!({ "spec": { "suspend": { "reason": "the migration" } } }));
    bench.wait("told", || running.log().contains("the migration"));
    commit(&theirs_too.replace("one", "three"));
    std::thread::sleep(WELL_AFTER);
    let over = json!({ "reason": "it is over", "until": "2020-01-01T00:00:00Z" });
    patch(json!({ "spec": { "suspend": over, "sync": { "readOnly": true } } }));
    bench.wait("told", || running.log().contains("it is over"));
    std::thread::sleep(WELL_AFTER);
    assert_eq!(general(), "two");
    say(Value::Null);
    bench.wait("applied", || general() == "three");
    let log = running.log();
    assert!(!log.to_lowercase().contains("forbidden"), "it lacks a right: {log}");
}
