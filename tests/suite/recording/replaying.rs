//! Decided again, the same; and where not, the first difference is named.

use std::path::Path;

use provisor::controllers::recorder::Place;
use provisor::io::git::{Limits, Symlinks, read_directory};
use provisor::ui::play::{Play, script_of, scripted_policy};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{SHOP, decision, json as answer, packed, provisor, talk, text};

#[test]
fn the_same_seed_in_two_processes_is_recorded_alike_to_the_byte() {
    let folder = TempDir::new().expect("a directory");
    let again = folder.path().join("again.jsonl.zst");
    assert_eq!(provisor(&["simulate", "--record", text(&again)]).status.code(), Some(0));
    let bytes = |path: &Path| std::fs::read(path).expect("recorded");
    assert_eq!(bytes(&SHOP.path), bytes(&again));
    let other = folder.path().join("other.jsonl.zst");
    provisor(&["simulate", "--seed", "8", "--record", text(&other)]);
    assert_ne!(bytes(&again), bytes(&other), "another seed is another story");
}

/// What they have in common, such as the names that are known, is met in another order each time.
#[test]
fn the_same_seed_in_threads_side_by_side_is_recorded_alike_to_the_byte() {
    let folder = TempDir::new().expect("a directory");
    let fleet = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kubeadm-keda");
    let alone = folder.path().join("alone.jsonl.zst");
    provisor(&["simulate", "--repo", text(&fleet), "--record", text(&alone)]);
    let expected = std::fs::read(&alone).expect("recorded");
    let record = |path: &Path| {
        let repository = read_directory(&fleet, &Limits::default(), Symlinks::Refused).expect("a fleet");
        let script = script_of(&repository, None).expect("a script").script;
        let mut play = Play::new(repository.clone(), script, None, scripted_policy()).expect("a stage");
        let run = format!("seed-{}", play.script.seed);
        play.reconciler.record(Place::File(path.to_owned()), run);
        play.take_commit(repository).expect("it renders");
        while let Some(commit) = play.run_to_commit(|_, _| ()) {
            let repository = play.committed(&commit).expect("a commit");
            play.take_commit(repository).expect("it renders");
        }
        play.reconciler.end_recording().expect("written");
        std::fs::read(path).expect("recorded")
    };
    std::thread::scope(|scope| {
        let paths = (0..3).map(|number| folder.path().join(format!("thread-{number}.jsonl.zst")));
        let threads: Vec<_> = paths
            .map(|path| {
                scope.spawn({
                    let record = &record;
                    move || record(&path)
                })
            })
            .collect();
        for thread in threads {
            assert!(thread.join().expect("it ends") == expected, "the recordings differ");
        }
    });
}

#[test]
fn every_example_is_decided_again_the_same() {
    let folder = TempDir::new().expect("a directory");
    for fleet in ["bottlerocket-arm64", "inflate-lab", "kubeadm-keda", "gpu-studio"] {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(fleet);
        let path = folder.path().join(format!("{fleet}.jsonl.zst"));
        provisor(&["simulate", "--repo", text(&place), "--record", text(&path)]);
        let output = provisor(&["replay", text(&path), "--output", "json"]);
        let told = answer(&output);
        assert_eq!(output.status.code(), Some(0), "{fleet}: {told:#}");
        assert!(told["same"] == true && told["actions"].as_u64() > Some(40), "{fleet}: {told:#}");
        assert_eq!(told["notices"], json!([]), "{fleet}");
    }
    let output = provisor(&["replay", text(&SHOP.path)]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("same: "), "{}", talk(&output));
}

/// The line of the first decision that buys something.
fn purchase() -> usize {
    let buys = |line: &String| line.starts_with("{\"decided\"") && line.contains("\"CreateClaim\"");
    SHOP.lines.iter().position(buys).expect("something is bought")
}

#[test]
fn a_planted_difference_is_found_and_named() {
    let folder = TempDir::new().expect("a directory");
    let mut lines = SHOP.lines.clone();
    let at = purchase();
    lines[at] =
        lines[at].replacen("needs a node", "needs a palace", 1).replacen("need a node", "need a palace", 1);
    let path = packed(folder.path(), &lines);
    let output = provisor(&["replay", text(&path), "--output", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", talk(&output));
    let difference = &answer(&output)["difference"];
    let moment: Value = serde_json::from_str(&lines[at]).expect("JSON");
    assert_eq!(difference["at"], moment["decided"]["at"]);
    let word = |key: &str| difference[key].as_str().unwrap_or_default().to_owned();
    assert!(
        word("recorded").contains("a palace") && word("recorded").starts_with("CreateClaim"),
        "{difference:#}"
    );
    assert!(word("replayed").contains("a node") && difference["approximate"] == false, "{difference:#}");
    let told = provisor(&["replay", text(&path)]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("differs") && told.contains("recorded: CreateClaim"), "{told}");
}

#[test]
fn what_the_engine_was_told_decides() {
    let folder = TempDir::new().expect("a directory");
    // One observation before the purchase is left out: that of a pod that waits.
    let is_waiting =
        |line: &String| line.starts_with("{\"pod\"") && line.contains("\"is_unschedulable\":true");
    let missing = SHOP.lines.iter().position(is_waiting).expect("a pod waits");
    let mut lines = SHOP.lines.clone();
    lines.remove(missing);
    let output = provisor(&["replay", text(&packed(folder.path(), &lines)), "--output", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", talk(&output));
}

#[test]
fn a_missing_decision_and_a_dropped_reason_are_differences_too() {
    let folder = TempDir::new().expect("a directory");
    let changed = |change: &dyn Fn(&mut Value) -> bool| {
        let mut lines = SHOP.lines.clone();
        for line in &mut lines {
            let mut whole: Value = serde_json::from_str(line).expect("JSON");
            let Some(decision) = whole.pointer_mut("/decided/decision") else { continue };
            if change(decision) {
                *line = whole.to_string();
                break;
            }
        }
        let output = provisor(&["replay", text(&packed(folder.path(), &lines)), "--output", "json"]);
        assert_eq!(output.status.code(), Some(1), "{}", talk(&output));
        answer(&output)["difference"].clone()
    };
    let kept = changed(&|decision| {
        let first = decision.pointer_mut("/kept/0/code");
        first.map(|code| *code = json!("Moonlight")).is_some()
    });
    assert!(kept["what"].as_str().is_some_and(|what| what.contains("kept")), "{kept:#}");
    let stays =
        changed(&|decision| decision.as_object_mut().is_some_and(|all| all.remove("stays").is_some()));
    assert!(stays["recorded"].is_null() && stays["replayed"].is_string(), "{stays:#}");
    let wake = changed(&|decision| {
        let wake = decision.get_mut("wake");
        wake.map(|wake| *wake = json!("2026-03-02T09:00:00Z")).is_some()
    });
    assert!(wake["what"].as_str().is_some_and(|what| what.contains("asks again")), "{wake:#}");
}

#[test]
fn nothing_of_what_is_recorded_is_secret_and_all_of_it_is_json() {
    assert!(SHOP.lines.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert!(SHOP.lines.iter().any(|line| decision(line).is_some()));
    assert!(SHOP.lines.iter().all(|line| !line.contains("\"env\"") && !line.contains("\"Secret\"")));
}

#[test]
fn what_if_names_what_would_have_been_different_and_what_it_comes_to() {
    let ask = |change: &str, code: i32| {
        let output = provisor(&["replay", text(&SHOP.path), "--what-if", change, "--output", "json"]);
        assert_eq!(output.status.code(), Some(code), "{change}: {}", talk(&output));
        answer(&output)
    };
    // Nothing is bought for a pool that may have no node, from the first purchase on.
    let told = ask("pools.general.limits.nodes=0", 1);
    let moment: Value = serde_json::from_str(&SHOP.lines[purchase()]).expect("JSON");
    assert_eq!(told["difference"]["at"], moment["decided"]["at"], "{told:#}");
    let dollars =
        |side: &str| told["whatIf"][side]["usdPerHour"].as_str().and_then(|usd| usd.parse::<f64>().ok());
    assert!(dollars("asItIs") > Some(0.1), "{told:#}");
    // What says the same as the pool does changes nothing.
    let told = ask("pools.checkout.weight=0", 0);
    let sides = (&told["whatIf"]["asItIs"], &told["whatIf"]["changed"]);
    assert!(told["same"] == true && sides.0 == sides.1, "{told:#}");
    // Without the patience that nodes are left alone with, more goes and sooner.
    assert_eq!(ask("pools.general.consolidate-after=0s", 1)["same"], false);
    for (change, code, says) in [
        ("pools.general.colour=red", 64, "consolidate-after"),
        ("pools.general.weight=heavy", 64, "no value of weight"),
        ("pools.nobody.weight=3", 2, "it has checkout, general"),
    ] {
        let output = provisor(&["replay", text(&SHOP.path), "--what-if", change]);
        assert!(
            output.status.code() == Some(code) && talk(&output).contains(says),
            "{change}: {}",
            talk(&output)
        );
    }
}
