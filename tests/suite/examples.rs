//! The six fleets of `examples/`: each is right, and each comes to what its script expects.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

const FLEETS: [&str; 6] =
    ["eks-shop", "spot-fallback", "bottlerocket-arm64", "inflate-lab", "kubeadm-keda", "gpu-studio"];

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

fn provisor(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("provisor").expect("the binary is built for the tests");
    command.args(arguments).env_remove("PROVISOR_REPO");
    command
}

fn played(name: &str) -> Value {
    played_at(name, &example(name))
}

fn played_at(name: &str, place: &Path) -> Value {
    let output = provisor(&["simulate", "--output", "json", "--repo", &place.display().to_string()])
        .output()
        .expect("the program runs");
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
    let broken: Vec<&Value> = answer["expectations"]
        .as_array()
        .expect("expectations are a list")
        .iter()
        .filter(|expectation| expectation["holds"] != true)
        .collect();
    assert!(broken.is_empty(), "{name}: {broken:#?}");
    assert_eq!(output.status.code(), Some(0), "{name}");
    answer
}

#[test]
fn every_example_is_valid() {
    for name in FLEETS {
        provisor(&["validate", &example(name).display().to_string()]).assert().success();
    }
}

#[test]
fn every_folder_of_examples_is_played() {
    let folders = std::fs::read_dir(example("")).expect("examples are there");
    let mut names: Vec<String> = folders
        .map(|entry| entry.expect("a readable entry"))
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut known = FLEETS.map(str::to_string);
    known.sort();
    assert_eq!(names, known);
}

#[test]
fn the_shop_rolls_a_commit_and_survives_an_interruption() {
    let answer = played("eks-shop");
    assert_eq!(answer["simulated"], true);
    assert_eq!(answer["counts"]["SpotWarning"], 1);
    // The commit at twelve minutes replaced every node of its pool that was there.
    let rolled = answer["events"].as_array().unwrap().iter().filter(|event| {
        let at = event["at"].as_str().unwrap();
        event["kind"] == "Launched" && ("2026-03-02T08:12:00Z".."2026-03-02T08:34:00Z").contains(&at)
    });
    assert!(rolled.count() >= 2, "replacements are bought for the roll");
}

/// Whoever makes the class is not asked: what is made elsewhere is there.
#[test]
fn the_shop_runs_on_a_class_that_is_made_elsewhere() {
    let place = tempfile::tempdir().expect("a folder");
    let copied =
        std::process::Command::new("cp").arg("-r").arg(example("eks-shop")).arg(place.path()).status();
    assert!(copied.expect("cp runs").success());
    let shop = place.path().join("eks-shop");
    let base = shop.join("environments/base.toml");
    let written = std::fs::read_to_string(&base).expect("it can be read");
    let (rest, _) = written.split_once("[classes.default]").expect("the shop has a class");
    std::fs::write(&base, format!("{rest}[classes.default]\nexternal = true\n")).expect("it can be written");
    let answer = played_at("eks-shop", &shop);
    assert_eq!(answer["counts"]["SpotWarning"], 1);
}

#[test]
fn a_node_goes_back_to_spot_and_later_the_second_time() {
    let answer = played("spot-fallback");
    assert_eq!(answer["counts"]["SpotWarning"], 1);
    let launched = answer["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "Launched");
    assert_eq!(launched.count(), 4, "on-demand, spot, on-demand, spot: nothing was tried in vain");
}

#[test]
fn bottlerocket_runs_on_graviton() {
    let answer = played("bottlerocket-arm64");
    assert!(answer["counts"]["Launched"].as_u64().unwrap() >= 2);
}

#[test]
fn inflate_goes_from_zero_to_five_to_zero() {
    let answer = played("inflate-lab");
    assert_eq!(answer["nodes"].as_array().unwrap().len(), 0);
    assert_eq!(answer["counts"]["Bound"], 5);
}

#[test]
fn workers_of_a_queue_come_and_go_within_their_limit() {
    played("kubeadm-keda");
}

#[test]
fn gpus_are_bought_when_they_are_needed_and_not_kept() {
    let answer = played("gpu-studio");
    assert_eq!(answer["counts"]["SpotWarning"], 1);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let play = |seed: &str| {
        let place = example("inflate-lab").display().to_string();
        provisor(&["simulate", "--seed", seed, "--output", "json", "--repo", &place]).output().unwrap().stdout
    };
    let once = play("42");
    assert!(!once.is_empty());
    assert_eq!(once, play("42"));
    assert_ne!(once, play("43"), "another seed is another story");
}

#[test]
fn the_demo_tells_its_whole_story() {
    let output = provisor(&["demo", "--no-wait"]).output().unwrap();
    let story = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{story}");
    for part in [
        "Simulated:",
        "main at",
        "3 to create",
        "launch",
        "$",
        "A commit:",
        "rolls",
        "warning",
        "give back",
        "What came of it",
        "simulated dollars",
    ] {
        assert!(story.contains(part), "`{part}` is missing in:\n{story}");
    }
    assert!(!story.contains("broken"), "{story}");
}

#[test]
fn programs_are_told_the_same_story_one_document_a_line() {
    let output = provisor(&["demo", "--no-wait", "--output", "json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let story = String::from_utf8(output.stdout).unwrap();
    let kinds: Vec<String> = story
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .inspect(|document| assert_eq!(document["simulated"], true))
        .map(|document| document["kind"].as_str().expect("every document has a kind").to_string())
        .collect();
    for kind in ["Note", "Launched", "Bound", "SpotWarning", "Evicted", "Terminating"] {
        assert!(kinds.iter().any(|known| known == kind), "{kind} is missing");
    }
}

/// A commit that cannot be used leaves the last good state in force, and the mistake is shown with its place.
#[test]
fn a_broken_commit_changes_nothing() {
    let fleet = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let status =
            std::process::Command::new("git").args(arguments).current_dir(fleet.path()).status().unwrap();
        assert!(status.success(), "git {arguments:?}");
    };
    let write = |path: &str, text: &str| {
        let path = fleet.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    git(&["init", "-q", "-b", "main"]);
    git(&["config", "user.email", "a@example.com"]);
    git(&["config", "user.name", "a"]);
    write("fleet.toml", "name = \"one\"\n");
    write("environments/dev.toml", "[pools.general]\nstrategy = \"spot\"\n");
    git(&["add", "-A"]);
    git(&["commit", "-qm", "good"]);
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("provisor"))
        .args(["run", "--for", "12s", "--speed", "40", "--repo"])
        .arg(fleet.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut out, &mut first).unwrap();
    assert!(first.contains("simulated"), "{first}");
    let mut line = String::new();
    while !line.contains("following") {
        line.clear();
        assert!(
            std::io::BufRead::read_line(&mut out, &mut line).unwrap() > 0,
            "the run follows the repository"
        );
    }
    write("environments/dev.toml", "[pools.general]\nstrategy = \"spott\"\n");
    git(&["commit", "-qam", "broken"]);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    let mut complaints = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut complaints).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}{complaints}");
    assert!(rest.contains("broken"), "the commit is told: {rest}");
    assert!(complaints.contains("environments/dev.toml:2:"), "{complaints}");
    assert!(complaints.contains("last good state"), "{complaints}");
    assert!(rest.contains("launch"), "nodes are bought all the same: {rest}");
}

/// Editors check `simulation.toml` with the schema that the program reads it by.
#[test]
fn the_schema_of_scripts_is_up_to_date() {
    let latest = provisor::simulator::script::schema();
    let draft4 = provisor::gitops::schema::lowered(latest.clone());
    for (name, schema) in [("simulation", latest), ("simulation.draft4", draft4)] {
        let name = format!("config-schema/{name}.schema.json");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
        let wanted = format!("{schema:#}\n");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &wanted).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == wanted, "{name} is stale: run `make accept`");
    }
}
