//! What an Environment says against applying commits holds from the first moment, and as long as it says so.

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
