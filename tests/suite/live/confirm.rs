//! A plan that needs a person's word gets it from the Environment object, with the rights that are shipped and no others.

use std::time::Duration;

use serde_json::json;

use super::bench::{Bench, POOLS, environment, text};

const MORE: &str = "
        [pools.second]
        strategy = \"spot\"
        [pools.third]
        strategy = \"spot\"
";

/// Rows: SYN-021
#[test]
fn syn_021_a_word_on_the_environment_lets_one_plan_happen_and_no_other() {
    let bench = Bench::of(&format!("{}{MORE}", environment("one")));
    let path = bench.plant_environment();
    let annotate = |digits: &str| {
        let word = json!({ "metadata": { "annotations": { "provisor.dev/confirm": digits } } });
        bench.plane.api.patch(&path, &word).expect("annotated");
    };
    let pools =
        || bench.list(POOLS).iter().map(|pool| text(pool, "/metadata/name").to_owned()).collect::<Vec<_>>();
    // From before anything was asked: no answer to it.
    annotate("1234567");
    let running = bench.start(&["--prune", "retire"]);
    bench.wait("three pools", || pools().len() == 3);

    bench.fleet.commit("fewer", &[("environments/dev.toml", &environment("one"))]);
    let invitation = "kubectl annotate environments.provisor.dev dev provisor.dev/confirm=";
    bench.wait("asked", || running.log().contains(invitation));
    let log = running.log();
    let digits =
        log.split(invitation).nth(1).and_then(|rest| rest.get(..7)).expect("seven digits").to_owned();
    assert!(log.contains(&format!("; this is plan {digits}")), "{log}");
    assert!(!log.contains("type `confirm"), "nobody can type here: {log}");

    bench.wait("the old word is seen", || {
        running.log().contains("confirm=1234567 was on Environment/dev before")
    });
    annotate("7654321");
    bench.wait("refused", || running.log().contains("`7654321` does not name the plan"));
    assert_eq!(pools().len(), 3, "nothing is removed without the right word");

    annotate(&digits);
    bench.wait("removed", || pools() == ["general"]);
    bench.wait("told", || running.log().contains("asked for by provisor.dev/confirm of Environment/dev"));
    let log = running.log();
    assert!(!log.to_lowercase().contains("forbidden"), "it lacks a right: {log}");

    // It stops looking while nothing waits.
    std::thread::sleep(Duration::from_secs(5));

    // The same wish once more is asked about once more, although the word is still there.
    bench.fleet.commit("more", &[("environments/dev.toml", &format!("{}{MORE}", environment("one")))]);
    bench.wait("three pools again", || pools().len() == 3);
    bench.fleet.commit("fewer", &[("environments/dev.toml", &environment("one"))]);
    bench.wait("asked again", || running.log().matches(invitation).count() == 2);
    let left = format!("confirm={digits} was on Environment/dev before");
    bench.wait("the spent word is seen", || running.log().contains(&left));
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(pools().len(), 3, "a word counts once");
}
