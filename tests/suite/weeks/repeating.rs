//! The same seed is the same story, and a story that went wrong can be cut down and told again.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use provisor::model::action::Action;
use provisor::simulator::invariants::Promise;
use provisor::simulator::shrink::shrink;
use provisor::simulator::trial::Trial;

fn provisor() -> Command {
    Command::cargo_bin("provisor").expect("the binary is built")
}

#[test]
fn two_processes_tell_the_same_story_byte_for_byte() {
    let play = || {
        let output = provisor()
            .args(["simulate", "--weeks", "1", "--seed", "11", "--output", "json"])
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let (first, second) = (play(), play());
    assert_eq!(first, second);
    let document: serde_json::Value = serde_json::from_slice(&first).expect("JSON");
    let events = document["events"].as_array().expect("one week has its events");
    assert!(events.len() > 200, "a week has more than {} lines", events.len());
    let count = |kind: &str| document["counts"][kind].as_u64().unwrap_or(0);
    assert!(
        count("Incident") > 3 && count("Action") > 50 && count("Launched") > 3,
        "{:?}",
        document["counts"]
    );
    // What the library says in this process is the same.
    let outcome = Trial::drawn(11).play_traced();
    let lines: Vec<&str> = events.iter().filter_map(|line| line.as_str()).collect();
    assert_eq!(lines, outcome.lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(document["cost"]["totalUsd"], outcome.ledger.total_usd.to_string());
}

#[test]
fn weeks_do_not_depend_on_who_plays_them() {
    let weeks = |first: u64, count: u64| {
        let output = provisor()
            .args([
                "simulate",
                "--output",
                "json",
                "--weeks",
                &count.to_string(),
                "--seed",
                &first.to_string(),
            ])
            .output()
            .expect("it runs");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
    };
    let together = weeks(3, 2);
    let apart = [weeks(3, 1), weeks(4, 1)];
    let sum = |of: &dyn Fn(&serde_json::Value) -> i64| apart.iter().map(of).sum::<i64>();
    let seconds =
        |document: &serde_json::Value| document["cost"]["machineSeconds"].as_i64().expect("a number");
    assert_eq!(seconds(&together), sum(&seconds));
    let launched = |document: &serde_json::Value| document["counts"]["Launched"].as_i64().unwrap_or(0);
    assert_eq!(launched(&together), sum(&launched));
}

#[test]
fn a_week_that_goes_wrong_is_cut_down_to_what_matters() {
    // An engine that deletes pods instead of evicting them.
    let mut play = |trial: &Trial| {
        trial
            .play_spoiled(false, &mut |_, actions| {
                for one in actions.iter_mut() {
                    if let Action::Evict { pod, uid } = one.action {
                        let grace = jiff::SignedDuration::from_secs(1);
                        one.action = Action::DeletePod { pod, uid, grace };
                    }
                }
            })
            .broken
    };
    let week = (1..20)
        .map(Trial::drawn)
        .find(|week| play(week).is_some_and(|broken| broken.promise == Promise::ProtectsPods));
    let week = week.expect("one of them breaks it");
    let found = shrink(&week, &mut play, &mut |_| {}).expect("it is broken");
    assert_eq!(found.broken.promise, Promise::ProtectsPods);
    let trial = &found.trial;
    assert!(trial.events.len() <= 2, "{:#?}", trial.events);
    assert!(trial.events.len() < week.events.len() && trial.duration < week.duration);
    assert!(trial.fleet.workloads.len() <= 1 && trial.fleet.pools.len() <= 1, "{:#?}", trial.fleet);
    // It is written, read, and the same.
    let text = toml::to_string(trial).expect("it can be written");
    assert_eq!(&toml::from_str::<Trial>(&text).expect("it can be read"), trial, "{text}");
}

#[test]
fn every_scenario_is_played_and_keeps_all_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("the folder exists")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let text = fs::read_to_string(&path).expect("it can be read");
        let trial: Trial =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        trial.check().unwrap_or_else(|what| panic!("{}: {what}", path.display()));
        assert!(!trial.about.is_empty(), "{} says what it shows", path.display());
        let broken = trial.play().broken;
        assert_eq!(broken, None, "{}", path.display());
    }
}

#[test]
fn a_trial_file_that_is_none_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trial.toml");
    let cases = [
        ("seed = 1", "duration"),
        ("seed = 1\nduration = \"1h\"\nwheather = 3", "wheather"),
        ("seed = 1\nduration = \"1h\"\n[[events]]\nat = \"5m\"\nstorm = { permille = 10, zone = 3 }", "zone"),
        ("seed = 1\nduration = \"1h\"\n[[events]]\nat = \"2h\"\nstorm = { permille = 10 }", "after its end"),
        ("seed = 1\nduration = \"9999h\"", "four weeks"),
    ];
    for (text, word) in cases {
        fs::write(&path, text).expect("it is written");
        let output = provisor().args(["simulate", "--trial"]).arg(&path).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}: {said}");
        assert!(said.contains(word) && said.contains("trial.toml"), "{text}: {said}");
    }
    let output = provisor().args(["simulate", "--trial", "no-such-file.toml"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
}
