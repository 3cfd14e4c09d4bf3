//! Verbs that keep a fleet in order: migrate, lock, promote.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::schema::git;
use super::{code, command, edit, err, fleet, json as parsed, out, run};

fn made(files: &[(&str, &str)]) -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a temporary directory");
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().expect("it is below the root")).expect("folders can be made");
        fs::write(path, text).expect("files can be written");
    }
    let path = dir.path().to_owned();
    (dir, path)
}

fn text(fleet: &Path, file: &str) -> String {
    fs::read_to_string(fleet.join(file)).expect("the file is there")
}

#[test]
fn ren_037_validate_offers_migrate_and_migrate_rewrites_the_words() {
    let (_dir, fleet) = fleet();
    edit(&fleet, "fleet.toml", "format_version = 1", "format_version = 0 # first");
    edit(
        &fleet,
        "fleet.toml",
        "consolidate-after = \"1m\"",
        "consolidate-after = \"1m\"\nmin-instance-cpu = 2 # enough",
    );
    let before = text(&fleet, "fleet.toml");
    let validated = run(&fleet, "validate");
    assert_eq!(code(&validated), 0, "{}", err(&validated));
    assert!(err(&validated).contains("PRV1209") && err(&validated).contains("provisor migrate"));
    let checked = run(&fleet, "migrate --check");
    assert_eq!(code(&checked), 1);
    assert_eq!(text(&fleet, "fleet.toml"), before, "--check writes nothing");
    let rendered = out(&run(&fleet, "render dev"));
    let migrated = run(&fleet, "migrate --output json");
    assert_eq!(code(&migrated), 0, "{}", err(&migrated));
    let changes = &parsed(&out(&migrated))["files"][0]["changes"];
    assert_eq!(changes[1]["to"], "instance-cpu-min", "{changes}");
    let wanted = before
        .replace("format_version = 0", "format_version = 1")
        .replace("min-instance-cpu", "instance-cpu-min");
    assert_eq!(text(&fleet, "fleet.toml"), wanted);
    assert_eq!(out(&run(&fleet, "render dev")), rendered, "it means the same");
    assert_eq!((code(&run(&fleet, "migrate --check")), code(&run(&fleet, "validate --strict"))), (0, 0));
    edit(&fleet, "fleet.toml", "format_version = 1", "format_version = 7");
    assert_eq!(code(&run(&fleet, "migrate")), 2);
    assert_eq!(code(&run(&fleet, "migrate nowhere")), 2);
}

#[test]
fn ren_046_what_the_lock_lacks_is_an_error_with_the_command_that_adds_it() {
    let (_dir, fleet) = made(&[
        ("fleet.toml", "name = 'shop'\ndefaults.region = 'us-east-1'\n"),
        ("environments/prod.toml", "[pools.a]\nstrategy = 'own'\n[classes.default]\nami = 'al2023@locked'\n"),
        (
            "templates/own.yaml.j2",
            "{%- set price = catalog(\"m7i.large\").on_demand_usd_per_hour -%}\n{%- include \"built-in/spot.yaml.j2\" %}\n  # {{ price | tojson }}\n",
        ),
    ]);
    let missing = run(&fleet, "render prod");
    assert_eq!(code(&missing), 2);
    let said = err(&missing);
    assert!(out(&missing).is_empty(), "nothing is rendered");
    for words in [
        "provisor.lock has no version of the image `al2023`",
        "provisor lock --image al2023=VERSION",
        "provisor.lock has no instance type `m7i.large` of us-east-1",
        "run `provisor lock` in the repository",
        "templates/own.yaml.j2:1:",
        "environments/prod.toml:4:7",
    ] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
    let unknown = run(&fleet, "lock");
    assert_eq!(code(&unknown), 2);
    assert!(err(&unknown).contains("provisor lock --image al2023=VERSION"), "{}", err(&unknown));
    assert!(!fleet.join("provisor.lock").exists(), "nothing is half written");
    let unasked = run(&fleet, "lock --image al2024=v20250920");
    assert_eq!(code(&unasked), 2);
    assert!(err(&unasked).contains("did you mean al2023?"), "{}", err(&unasked));
    assert_eq!(code(&run(&fleet, "lock --image al2023=v20250920 --check")), 1);
    let locked = run(&fleet, "lock --image al2023=v20250920 --output json");
    assert_eq!(code(&locked), 0, "{}", err(&locked));
    let entries: Vec<String> = parsed(&out(&locked))["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| change["entry"].as_str().expect("a text").to_owned())
        .collect();
    assert_eq!(entries, ["images.al2023", "catalog.us-east-1.m7i.large"]);
    let rendered = run(&fleet, "render prod");
    assert_eq!(code(&rendered), 0, "{}", err(&rendered));
    assert!(out(&rendered).contains("al2023@v20250920"), "{}", out(&rendered));
    assert_eq!(code(&run(&fleet, "lock --check")), 0);
    // What is locked stays until somebody asks for today's.
    let lock = text(&fleet, "provisor.lock");
    let price =
        lock.lines().find(|line| line.starts_with("on-demand-usd-per-hour")).expect("a price").to_owned();
    edit(&fleet, "provisor.lock", &price, "on-demand-usd-per-hour = \"9.99\"");
    assert_eq!(code(&run(&fleet, "lock --check")), 0);
    assert_eq!(code(&run(&fleet, "lock --update")), 0);
    assert_eq!(text(&fleet, "provisor.lock"), lock);
    // What nobody asks for goes.
    fs::write(fleet.join("environments/prod.toml"), "[pools.a]\nstrategy = 'spot'\n")
        .expect("it can be written");
    assert_eq!(code(&run(&fleet, "lock")), 0);
    assert!(!text(&fleet, "provisor.lock").contains("al2023"));
    fs::write(fleet.join("provisor.lock"), "version = 1\nimages = 3\n").expect("it can be written");
    let broken = run(&fleet, "validate");
    assert_eq!(code(&broken), 2);
    assert!(err(&broken).contains("provisor.lock:2:10"), "{}", err(&broken));
}

const PROMOTION: [(&str, &str); 3] = [
    ("fleet.toml", "name = 'shop'\n"),
    ("environments/dev.toml", "[pools.general]\nstrategy = 'spot'\nlimits = { cpu = 200 }\n"),
    (
        "environments/prod.toml",
        "[pools.general]\nstrategy = 'spot'\nlimits = { cpu = 100 }\n[promotion]\nfrom = ['dev']\npaths = ['pools.*.limits']\nsoak = '2h'\n",
    ),
];

#[test]
fn ren_047_promote_refuses_with_the_remaining_time_and_then_proposes() {
    let (_dir, fleet) = made(&PROMOTION);
    assert_eq!(code(&run(&fleet, "promote prod")), 3, "nothing is known of dev");
    let line =
        |now: &str| format!("promote prod --verified dev=2026-03-04T08:00:00Z --now {now} --output json");
    let early = run(&fleet, &line("2026-03-04T09:00:00Z"));
    assert_eq!(code(&early), 3, "{}", err(&early));
    let early = parsed(&out(&early));
    assert_eq!((&early["code"], &early["remaining"]), (&json!("Soaking"), &json!("1h")));
    assert_eq!(early["readyAt"], "2026-03-04T10:00:00Z");
    let ripe = run(&fleet, &line("2026-03-04T10:00:00Z"));
    assert_eq!(code(&ripe), 0, "{}", err(&ripe));
    let ripe = parsed(&out(&ripe));
    assert_eq!((&ripe["proposed"], &ripe["file"]), (&json!(true), &json!("environments/prod.toml")));
    let change = &ripe["changes"][0];
    assert_eq!(
        (&change["field"], &change["from"], &change["to"]),
        (&json!("pools.general.limits.cpu"), &json!(100), &json!(200))
    );
    let people = run(&fleet, "promote prod --verified dev=2026-03-04T08:00:00Z --now 2026-03-04T10:00:00Z");
    assert!(out(&people).contains("proposed: 1 change to environments/prod.toml"), "{}", out(&people));
    let bypassed = run(&fleet, "promote prod --bypass incident --output json");
    assert_eq!(code(&bypassed), 0, "{}", err(&bypassed));
    assert!(parsed(&out(&bypassed))["bypass"].as_str().is_some_and(|why| why.ends_with("incident")));
    for (line, expected) in [
        ("promote dev", 2),
        ("promote prdo", 2),
        ("promote prod --verified qa=2026-03-04T08:00:00Z", 64),
        ("promote prod --verified dev", 64),
        ("promote prod --verified dev=2999-03-04T08:00:00Z", 64),
    ] {
        assert_eq!(code(&run(&fleet, line)), expected, "{line}");
    }
    edit(&fleet, "environments/prod.toml", "cpu = 100", "cpu = 200");
    assert_eq!(code(&run(&fleet, "promote prod")), 0, "there is nothing to promote");
    for verb in ["promote", "lock", "migrate"] {
        assert!(out(&run(&fleet, &format!("{verb} --help"))).contains("Examples:"), "{verb}");
    }
}

/// Rows: REN-047, REN-049
#[test]
fn ren_047_ren_049_a_simulated_stage_soaks_and_a_rollback_holds() {
    let prod = |cpu: u32| PROMOTION[2].1.replace("cpu = 100", &format!("cpu = {cpu}"));
    let (old, new) = (prod(100), prod(200));
    let script = "environment = 'dev'\nduration = '6h'\n\
        [[events]]\nat = '3h'\ncommit = { message = 'promoted', files = { 'environments/prod.toml' = 'later/new.toml' } }\n\
        [[events]]\nat = '4h'\ncommit = { message = 'back', files = { 'environments/prod.toml' = 'later/old.toml' } }\n";
    let mut files = PROMOTION.to_vec();
    files.extend([("later/new.toml", &*new), ("later/old.toml", &*old), ("simulation.toml", script)]);
    let (_dir, fleet) = made(&files);
    let played = run(&fleet, "simulate --repo . --output json");
    assert_eq!(code(&played), 0, "{}", err(&played));
    let document = parsed(&out(&played));
    let promotions = document["promotions"].as_array().expect("a list");
    let codes: Vec<&str> = promotions.iter().map(|one| one["code"].as_str().expect("a text")).collect();
    let ends = ["Soaking", "Proposed", "NothingToPromote", "HeldAfterRollback"];
    assert!(codes.ends_with(&ends), "{codes:?}");
    let at = |code: &str| {
        let found = promotions.iter().find(|one| one["code"] == code).expect("it is told");
        found["at"].as_str().expect("a text").parse::<jiff::Timestamp>().expect("a moment")
    };
    assert_eq!(at("Proposed").duration_since(at("Soaking")), jiff::SignedDuration::from_hours(2));
    let proposed = promotions.iter().find(|one| one["code"] == "Proposed").expect("it is told");
    assert_eq!(proposed["changes"][0]["field"], "pools.general.limits.cpu");
}

/// Rows: REN-047, REN-049
#[test]
fn ren_047_ren_049_a_run_remembers_promotions_of_the_run_before() {
    let (dir, fleet) = made(&PROMOTION);
    let cache = TempDir::new().expect("a temporary directory");
    git(&fleet, &["init", "--quiet", "--initial-branch", "main"]);
    let commit = |subject: &str| {
        git(&fleet, &["add", "--all"]);
        git(&fleet, &["commit", "--quiet", "--allow-empty", "-m", subject]);
    };
    // What the run says of promotions: code and sentence.
    let follow = || {
        let done = command(&fleet, "run --repo . --env dev --speed 900 --for 2s --output json")
            .env("XDG_CACHE_HOME", cache.path())
            .output()
            .expect("the program starts");
        assert_eq!(code(&done), 0, "{}", err(&done));
        let lines: Vec<serde_json::Value> = out(&done).lines().map(parsed).collect();
        let promotions = lines.iter().filter(|line| line["subject"] == "prod");
        let word = |line: &serde_json::Value, key: &str| line[key].as_str().expect("a text").to_owned();
        promotions.map(|line| (word(line, "kind"), word(line, "message"))).collect::<Vec<_>>()
    };
    let last = |said: &[(String, String)]| said.last().expect("something is said").clone();
    commit("one");
    let (kind, message) = last(&follow());
    assert!(kind == "Soaking" && message.contains(" 2h of the soak"), "{message}");
    let (kind, message) = last(&follow());
    assert!(kind == "Soaking" && message.contains(" 1h"), "the second run goes on: {message}");
    edit(&fleet, "environments/prod.toml", "cpu = 100", "cpu = 200");
    commit("promoted");
    assert_eq!(last(&follow()).0, "NothingToPromote");
    edit(&fleet, "environments/prod.toml", "cpu = 200", "cpu = 100");
    commit("back");
    for _ in 0..2 {
        let (kind, message) = last(&follow());
        assert!(kind == "HeldAfterRollback" && message.contains("Ada"), "{kind}: {message}");
    }
    drop(dir);
}

#[test]
fn the_reason_of_a_failure_is_its_first_error_and_no_warning_before_it() {
    let prod = "region = 'us-east-1'\n[pools.a]\nstrategy = 'spot'\nheadroom.cpu = 10000\n[classes.default]\nami = ''\n";
    let (_dir, path) = made(&[("fleet.toml", "name = 'shop'\n"), ("environments/prod.toml", prod)]);
    let output = run(&path, "validate --output json");
    assert_eq!(code(&output), 2);
    let error = &parsed(&err(&output))["error"];
    assert_eq!(error["diagnostics"][0]["code"], "PRV1630", "{error}");
    assert_eq!(error["diagnostics"][0]["documentation"], "docs/guide/strategy.md#prv1630");
    assert!(error["message"].as_str().is_some_and(|message| message.contains("empty text")), "{error}");
}

#[test]
fn ren_036_render_and_diff_show_the_healthy_environments_and_tell_of_the_broken_one() {
    let pool = |weight: u32| format!("[pools.a]\nstrategy = 'spot'\nweight = {weight}\n");
    let broken = "[pools.a]\nstrategy = 'spott'\n";
    let (_dir, fleet) = made(&[
        ("fleet.toml", "name = 'shop'\n"),
        ("environments/a.toml", &pool(1)),
        ("environments/b.toml", &pool(2)),
        ("environments/c.toml", &pool(3)),
    ]);
    git(&fleet, &["init", "--quiet", "--initial-branch", "main"]);
    git(&fleet, &["add", "."]);
    git(&fleet, &["commit", "--quiet", "-m", "first"]);
    fs::write(fleet.join("environments/a.toml"), pool(11)).expect("written");
    fs::write(fleet.join("environments/b.toml"), broken).expect("written");

    let rendered = run(&fleet, "render");
    assert_eq!(code(&rendered), 2);
    let shown = out(&rendered);
    assert!(shown.contains("# Environment a\n") && shown.contains("weight: 11"), "{shown}");
    assert!(shown.contains("# Environment c\n") && !shown.contains("# Environment b\n"), "{shown}");
    let told = err(&rendered);
    assert!(
        told.contains("PRV1401") && told.contains("`b` is not rendered; the other environments are"),
        "{told}"
    );

    let differs = run(&fleet, "diff");
    assert_eq!(code(&differs), 2);
    assert!(out(&differs).contains("NodePool/a") && out(&differs).contains("11"), "{}", out(&differs));
    assert!(err(&differs).contains("`b` is not compared; the other environments are"), "{}", err(&differs));
    assert_eq!(code(&run(&fleet, "diff --no-exit-code")), 2);

    for (verb, list, name) in [("render", "environments", "name"), ("diff", "comparisons", "head")] {
        let done = run(&fleet, &format!("{verb} --output json"));
        assert_eq!(code(&done), 2);
        let document = parsed(&out(&done));
        super::schema::conforms(verb, &document);
        assert_eq!(document["broken"], json!(["b"]), "{document}");
        let shown = document[list].as_array().expect("a list").iter();
        let names = shown.map(|one| one[name]["environment"].as_str().or(one[name].as_str()));
        assert_eq!(names.collect::<Vec<_>>(), [Some("a"), Some("c")], "{document}");
        assert_eq!(parsed(&err(&done))["error"]["diagnostics"][0]["code"], "PRV1401");
        // Alone it is an error and nothing else.
        let alone = run(&fleet, &format!("{verb} b --output json"));
        assert_eq!((code(&alone), out(&alone)), (2, String::new()));
    }
    for name in ["a", "c"] {
        fs::write(fleet.join(format!("environments/{name}.toml")), broken).expect("written");
    }
    for verb in ["render", "diff"] {
        let done = run(&fleet, verb);
        assert_eq!((code(&done), out(&done)), (2, String::new()), "nothing is left to show");
        assert!(err(&done).contains("PRV1401"));
    }
}

#[test]
fn a_commit_that_does_not_render_is_not_mistaken_for_the_file_on_disk() {
    let right = "[pools.general]\nstrategy = \"spot\"\n";
    let (_dir, fleet) = made(&[
        ("fleet.toml", "name = \"shop\"\n"),
        ("environments/bad.toml", &format!("{right}limts = {{ cpu = 1 }}\n")),
        ("environments/good.toml", right),
    ]);
    git(&fleet, &["init", "--quiet", "--initial-branch", "main"]);
    git(&fleet, &["add", "."]);
    git(&fleet, &["commit", "--quiet", "-m", "first"]);
    fs::write(fleet.join("environments/bad.toml"), right).expect("written");
    for line in ["diff bad", "diff"] {
        let done = run(&fleet, line);
        let told = err(&done);
        assert!(code(&done) == 2 && told.contains("limts"), "{line}: {told}");
        assert!(
            told.contains("the file as commit ") && told.contains("not the one on disk"),
            "{line}: {told}"
        );
    }
    // What is wrong on disk says nothing of the kind.
    git(&fleet, &["commit", "--quiet", "-am", "second"]);
    fs::write(fleet.join("environments/bad.toml"), format!("{right}limts = 1\n")).expect("written");
    let told = err(&run(&fleet, "diff bad"));
    assert!(told.contains("limts") && !told.contains("not the one on disk"), "{told}");
}

#[test]
fn slips_on_the_command_line_of_rewriting_verbs_are_told() {
    let (_dir, bare) = made(&[("README.md", "nothing\n")]);
    let migrated = run(&bare, "migrate");
    assert_eq!(code(&migrated), 2);
    assert!(err(&migrated).contains("there is no fleet.toml"), "{}", err(&migrated));

    let (_dir, fleet) = made(&[
        ("fleet.toml", "name = 'shop'\n"),
        (
            "environments/dev.toml",
            "[pools.a]\nstrategy = 'spot'\nlimits = { cpu = 2 }\n[classes.default]\nami = 'al2023@locked'\n",
        ),
        (
            "environments/prod.toml",
            "[promotion]\nfrom = ['dev']\npaths = ['pools.*.limits']\n[pools.a]\nstrategy = 'spot'\n",
        ),
    ]);
    let twice = "promote prod --verified dev=2026-03-04T08:00:00Z --verified dev=2026-03-04T09:00:00Z";
    let twice = run(&fleet, twice);
    assert_eq!(code(&twice), 64);
    assert!(err(&twice).contains("given twice for `dev`"), "{}", err(&twice));
    let bare = run(&fleet, "lock --image al2023=20250920");
    assert_eq!(code(&bare), 64);
    assert!(err(&bare).contains("such as v20250920"), "{}", err(&bare));
    fs::create_dir_all(fleet.join("provisor.lock/inner")).expect("made");
    let onto = run(&fleet, "lock --image al2023=v20250920");
    assert!(code(&onto) != 0 && err(&onto).contains("provisor.lock"), "{}", err(&onto));
}
