//! The command line as a person and a program meet it: exit codes, streams, documents, help.

mod confirming;
mod fleet_verbs;
mod hostile;
mod plan;
mod running;
pub mod schema;
mod script;
mod settings;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Verbs and a command line of each that works in a fresh fleet.
const VERBS: [(&str, &str); 12] = [
    ("validate", "validate"),
    ("render", "render dev"),
    ("diff", "diff"),
    ("plan", "plan dev --now 2026-03-04T10:30:00Z"),
    ("review", "review --base HEAD"),
    ("explain", "explain prod general"),
    ("init", "init new"),
    ("simulate", "simulate --for 10m"),
    ("schema", "schema"),
    ("catalog", "catalog show m7i"),
    ("completion", "completion bash"),
    ("version", "version"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn command(dir: &Path, line: &str) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::cargo_bin("provisor").expect("the program is built");
    command.current_dir(dir).args(line.split_whitespace());
    for name in [
        "NO_COLOR",
        "CLICOLOR_FORCE",
        "PROVISOR_REPO",
        "PROVISOR_LOG",
        "AWS_REGION",
        "FEATURE_GATES",
        "SCHEDULER_CONFIG",
    ] {
        command.env_remove(name);
    }
    command
}

fn run(dir: &Path, line: &str) -> Output {
    command(dir, line).output().expect("the program starts")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("the program ends by itself")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("stdout is text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("stderr is text")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// A directory with the starter fleet in `fleet`.
fn fleet() -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a temporary directory");
    let made = run(dir.path(), "init fleet --name shop");
    assert_eq!(code(&made), 0, "{}", err(&made));
    let fleet = dir.path().join("fleet");
    (dir, fleet)
}

fn edit(fleet: &Path, file: &str, from: &str, to: &str) {
    let path = fleet.join(file);
    let text = std::fs::read_to_string(&path).expect("the starter has this file");
    assert!(text.contains(from), "{file} has no `{from}`");
    std::fs::write(&path, text.replace(from, to)).expect("the fleet can be written");
}

/// Compares with a recorded file, or rewrites it if `UPDATE` is set.
fn recorded(path: &str, text: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().expect("it is below the root")).expect("folders can be made");
        std::fs::write(&file, text).expect("recorded files can be written");
        return;
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(known == text, "{path} is stale: `UPDATE=1 cargo test cli` rewrites it");
}

#[test]
fn the_reference_page_is_what_the_program_says() {
    recorded("docs/reference/cli.md", &provisor::ui::cli::reference());
}

#[test]
fn every_verb_has_help_with_examples() {
    let dir = TempDir::new().expect("a temporary directory");
    for (verb, _) in VERBS {
        let verb = if verb == "catalog" { "catalog show" } else { verb };
        let help = run(dir.path(), &format!("{verb} --help"));
        assert_eq!(code(&help), 0, "{verb}");
        assert!(out(&help).contains("Example"), "{verb} has no examples");
    }
}

#[test]
fn syn_067_every_verb_works_on_a_starter_fleet_and_colours_no_pipe() {
    let (_dir, fleet) = fleet();
    for (verb, line) in VERBS {
        let done = run(&fleet, line);
        assert_eq!(code(&done), 0, "{verb}: {}", err(&done));
        assert!(!out(&done).contains('\u{1b}') && !err(&done).contains('\u{1b}'), "{verb} colours a pipe");
        assert!(verb == "diff" || !out(&done).is_empty(), "{verb} says nothing");
    }
    assert_eq!(out(&run(&fleet, "validate")), "3 files, 2 environments, 3 pools: ok\n");
}

#[test]
fn syn_066_exit_codes_mean_the_same_for_every_verb() {
    let (_dir, fleet) = fleet();
    for (line, expected) in [
        ("", 64),
        ("plam", 64),
        ("plan", 64),
        ("plan dev --now yesterday", 64),
        ("plan dev --feature-gates SpotToSpot=true", 64),
        ("plan dev --feature-gates NodeRepair", 64),
        ("plan --repo .", 64),
        ("plan dev --region moon-1", 64),
        ("validate --output yaml", 64),
        ("schema nonsense", 64),
        ("completion tcsh", 64),
        ("catalog refresh", if cfg!(feature = "aws") { 3 } else { 64 }),
        ("diff --env dev", 64),
        ("review", 64),
        ("review --base HEAD --max-cost-increase much", 64),
        ("validate --output markdown", 64),
        ("review --base no-such-branch", 2),
        ("review --base HEAD --env no-such-environment", 2),
        ("explain prod", 64),
        ("init new --name Shop!", 64),
        ("--help", 0),
        ("--version", 0),
        ("validate nowhere", 2),
        ("validate fleet.toml", 2),
        ("validate . --ref no-such-branch", 2),
        ("validate ext::sh", 2),
        ("render nowhere", 2),
        ("explain prod generl", 2),
        ("explain prod general weigth", 2),
        ("plan --snapshot nowhere.yaml", 2),
        ("plan --snapshot .", 2),
        ("plan dev --catalog nowhere.csv", 2),
        ("plan dev --catalog fleet.toml", 2),
        ("catalog show m99", 2),
        ("init .", 2),
        ("init fleet.toml", 2),
        ("validate https://127.0.0.1:9/fleet.git", 3),
        ("diff --env dev --env prod", 1),
        ("diff --env dev --env prod --no-exit-code", 0),
        ("diff --env dev --env dev", 0),
        ("diff", 0),
        ("plan dev --detailed-exitcode", 4),
    ] {
        let done = run(&fleet, line);
        assert_eq!(code(&done), expected, "`{line}` said {}", err(&done));
        if expected >= 2 && expected != 4 && !line.is_empty() {
            assert!(out(&done).is_empty() && err(&done).contains("error"), "`{line}` said {}", err(&done));
        }
        assert!(!err(&done).contains("panicked"), "`{line}` said {}", err(&done));
    }
}

#[test]
fn errors_for_programs_are_json_with_the_same_codes() {
    let (_dir, fleet) = fleet();
    for (line, expected) in [
        ("plam -o json", 64),
        ("validate nowhere --output json", 2),
        ("render nowhere --output=json", 2),
        ("plan -ojson", 64),
    ] {
        let done = run(&fleet, line);
        assert_eq!(code(&done), expected, "{line}");
        let document = json(&err(&done));
        schema::conforms("error", &document);
        assert_eq!(document["error"]["exitCode"], expected, "{line}");
        assert!(out(&done).is_empty(), "{line}");
    }
}

#[test]
fn every_verb_names_the_forms_that_it_prints() {
    let dir = TempDir::new().expect("a temporary directory");
    let forms_of = |line: &str| {
        let done = run(dir.path(), line);
        assert_eq!(code(&done), 64, "{line}");
        let said = err(&done);
        let (_, rest) = said.split_once("[possible values: ").unwrap_or_else(|| panic!("{line}: {said}"));
        rest.split_once(']').expect("the list ends").0.to_owned()
    };
    for (verb, line) in VERBS {
        let forms = match verb {
            "review" => "text, json, markdown, sarif, junit, gitlab, github",
            _ => "text, json",
        };
        assert_eq!(forms_of(&format!("{line} --output xml")), forms, "{line}");
    }
    // A name is no verb, and other lists are what they are.
    assert_eq!(
        forms_of("--output xml review --base HEAD"),
        "text, json, markdown, sarif, junit, gitlab, github"
    );
    assert_eq!(forms_of("plan review --output xml"), "text, json");
    assert_eq!(forms_of("review --base HEAD --color pink"), "auto, always, never");
}

#[test]
fn a_misspelt_verb_is_guessed() {
    let dir = TempDir::new().expect("a temporary directory");
    assert!(err(&run(dir.path(), "plam")).contains("'plan'"));
}

#[test]
fn syn_067_every_mistake_is_told_with_its_place_and_json_stays_one_document() {
    let (_dir, fleet) = fleet();
    edit(&fleet, "environments/dev.toml", "limits = {", "limts = {");
    edit(&fleet, "environments/prod.toml", "weight = 10", "weight = \"heavy\"");
    let done = run(&fleet, "validate");
    assert_eq!(code(&done), 2);
    let said = err(&done);
    for part in [
        "environments/dev.toml:14:1",
        "limts",
        "`limits`",
        "──",
        "environments/prod.toml:12:10",
        "2 errors in 3 files",
    ] {
        assert!(said.contains(part), "`{part}` is missing in\n{said}");
    }
    assert!(out(&done).is_empty());

    let done = run(&fleet, "validate --output json");
    assert_eq!(code(&done), 2);
    let report = json(&out(&done));
    schema::conforms("validate", &report);
    assert_eq!(report["valid"], false);
    let first = &report["diagnostics"][0];
    assert_eq!(
        (&first["file"], &first["line"], &first["column"]),
        (&"environments/dev.toml".into(), &14.into(), &1.into())
    );
    assert_eq!(json(&err(&done))["error"]["diagnostics"], report["diagnostics"]);
}

#[test]
fn colour_is_a_persons_choice() {
    let (_dir, fleet) = fleet();
    let colored = |line: &str, env: &[(&str, &str)]| {
        let done = command(&fleet, line).envs(env.iter().copied()).output().expect("the program starts");
        out(&done).contains('\u{1b}')
    };
    assert!(!colored("validate", &[]));
    assert!(colored("validate --color always", &[]));
    assert!(colored("validate", &[("CLICOLOR_FORCE", "1")]));
    assert!(!colored("validate", &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!colored("validate --color never", &[("CLICOLOR_FORCE", "1")]));
    assert!(!colored("validate --color always --output json", &[]));
}

#[test]
fn a_closed_pipe_is_no_reason_to_panic() {
    let (_dir, fleet) = fleet();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("provisor"))
        .current_dir(&fleet)
        .args(["schema", "environment"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let done = child.wait_with_output().expect("the program ends");
    assert_eq!((code(&done), err(&done).as_str()), (0, ""));
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_with_130() {
    let dir = TempDir::new().expect("a temporary directory");
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("provisor"))
        .current_dir(dir.path())
        .args(["plan", "--snapshot", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let stays_open = child.stdin.take();
    // It waits for standard input; a second is ample for it to come that far.
    let script = format!("sleep 1; kill -INT {}", child.id());
    std::process::Command::new("sh").args(["-c", &script]).status().expect("there is a shell");
    let done = child.wait_with_output().expect("the program ends");
    assert_eq!(code(&done), 130);
    drop(stays_open);
}

#[test]
fn the_readme_shows_what_the_demo_prints() {
    let dir = TempDir::new().expect("a temporary directory");
    let printed = out(&run(dir.path(), "demo --no-wait"));
    let readme = include_str!("../../../README.md");
    let (_, capture) = readme.split_once("$ make demo\n").expect("it begins with the demo");
    let (capture, _) = capture.split_once("```").expect("it ends");
    // Paths, commits and how long a commit takes to be seen differ in every run.
    let differs = |line: &&str| line.contains("main at") || line.contains("main is now") || *line == "   …";
    let shown: Vec<&str> = capture.lines().filter(|line| !line.is_empty() && !differs(line)).collect();
    let missing: Vec<&&str> =
        shown.iter().filter(|line| !printed.lines().any(|other| other == **line)).collect();
    assert!(shown.len() > 15 && missing.is_empty(), "not printed: {missing:#?}");
}

#[cfg(unix)]
#[test]
fn a_demo_that_is_broken_off_leaves_nothing_behind() {
    for (signal, expected) in [("INT", 130), ("TERM", 143)] {
        let dir = TempDir::new().expect("a temporary directory");
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("provisor"))
            .arg("demo")
            .env("TMPDIR", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut told = std::io::BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("main at") {
            line.clear();
            assert!(
                std::io::BufRead::read_line(&mut told, &mut line).expect("text") > 0,
                "it tells its place"
            );
        }
        let script = format!("kill -{signal} {}", child.id());
        std::process::Command::new("sh").args(["-c", &script]).status().expect("there is a shell");
        assert_eq!(child.wait().expect("it ends").code(), Some(expected));
        assert_eq!(dir.path().read_dir().expect("a directory").count(), 0, "{signal}");
    }
}

#[test]
fn init_leaves_what_is_there_alone() {
    let (dir, fleet) = fleet();
    let again = run(dir.path(), "init fleet");
    assert_eq!(code(&again), 2);
    assert!(err(&again).contains("not empty"));
    assert!(fleet.join(".git").is_dir());
    let committed = run(&fleet, "validate . --ref main");
    assert_eq!(code(&committed), 0, "{}", err(&committed));

    // What was cloned before anything was pushed is as good as an empty directory, and stays on its branch.
    let clone = dir.path().join("clone");
    std::fs::create_dir(&clone).expect("a directory");
    schema::git(&clone, &["init", "--quiet", "--initial-branch", "trunk"]);
    schema::git(&clone, &["remote", "add", "origin", "https://git.example.com/fleet.git"]);
    assert!(err(&run(&clone, "validate")).contains("provisor init"), "it is advised");
    let made = run(&clone, "init . --name shop");
    assert_eq!(code(&made), 0, "{}", err(&made));
    assert_eq!(schema::git(&clone, &["status", "--short", "--branch"]), "## trunk");
    assert!(schema::git(&clone, &["remote", "-v"]).contains("git.example.com"));
    assert_eq!(code(&run(&clone, "validate")), 0);
    // Nothing is left of a work tree whose repository has commits: that is no empty repository.
    schema::git(&clone, &["rm", "--quiet", "-r", "."]);
    assert_eq!(code(&run(&clone, "init .")), 2);

    let plain = run(dir.path(), "init plain --no-git --output json");
    schema::conforms("init", &json(&out(&plain)));
    assert!(!dir.path().join("plain/.git").exists());
    assert_eq!(code(&run(dir.path(), "validate plain")), 0);
}

#[test]
fn rendered_yaml_reads_back_as_the_same_objects() {
    let (_dir, fleet) = fleet();
    edit(
        &fleet,
        "environments/dev.toml",
        "[pools.general]",
        "[pools.general]\nannotations = { a = \"1.10\", b = \"no\", c = \"~\", d = \"x: y # z\" }",
    );
    let document = json(&out(&run(&fleet, "render dev --output json")));
    let objects = document["environments"][0]["objects"].as_array().expect("objects");
    let yaml = out(&run(&fleet, "render dev --origins"));
    let read: Vec<Value> = serde_saphyr::from_multiple(&yaml).expect("YAML reads back");
    let written: Vec<&Value> = objects.iter().map(|object| &object["manifest"]).collect();
    assert_eq!(read.iter().collect::<Vec<_>>(), written);
    assert!(yaml.contains("# environments/dev.toml:"));
}

#[test]
fn diff_names_the_field_and_the_line_that_changed_it() {
    let (_dir, fleet) = fleet();
    edit(&fleet, "environments/prod.toml", "cpu = \"200\"", "cpu = \"300\"");
    let done = run(&fleet, "diff");
    assert_eq!(code(&done), 1, "{}", err(&done));
    let said = out(&done);
    for part in
        ["prod", "NodePool/general", "~ changed", "limits.cpu", "200", "300", "environments/prod.toml:10:"]
    {
        assert!(said.contains(part), "`{part}` is missing in\n{said}");
    }
    assert!(!said.contains("dev"), "{said}");
    let document = json(&out(&run(&fleet, "diff prod --output json")));
    assert_eq!(document["comparisons"][0]["objects"][0]["fields"][0]["path"], "spec.limits.cpu");
    // Files on disk are no commit.
    let (base, head) = (&document["comparisons"][0]["base"], &document["comparisons"][0]["head"]);
    assert_eq!((base["commit"].as_str().map(str::len), &base["files"]), (Some(40), &Value::Null));
    assert_eq!((&head["commit"], head["files"].as_str().map(str::len)), (&Value::Null, Some(64)));
    edit(&fleet, "environments/prod.toml", "cpu = \"300\"", "cpu = \"200000m\"");
    assert_eq!(code(&run(&fleet, "diff")), 0);
}

#[test]
fn what_goes_away_is_not_blamed_on_what_stands_in_its_place() {
    let (_dir, fleet) = fleet();
    edit(
        &fleet,
        "environments/prod.toml",
        "[pools.steady]\n",
        "[pools.steady]\ninstance-families = [\"m7i\"]\n",
    );
    let text = std::fs::read_to_string(fleet.join("environments/prod.toml")).expect("it is there");
    let line = 1 + text.lines().position(|line| line == "[pools.steady]").expect("a pool");
    let document = json(&out(&run(&fleet, "diff prod --output json")));
    let fields = document["comparisons"][0]["objects"][0]["fields"].as_array().expect("fields");
    let gone: Vec<&Value> = fields.iter().filter(|field| field["to"].is_null()).collect();
    assert_eq!(gone.len(), 2, "{fields:#?}");
    for field in gone {
        assert_eq!(field["origin"]["file"], "environments/prod.toml", "{field:#}");
        assert_eq!(field["origin"]["line"], line, "{field:#}");
    }
}

#[test]
fn explain_shows_every_layer_of_a_value() {
    let (_dir, fleet) = fleet();
    let said = out(&run(&fleet, "explain dev general consolidate-after"));
    for part in ["30s", "environments/dev.toml:16:21", "was 1m", "fleet.toml:10:21"] {
        assert!(said.contains(part), "`{part}` is missing in\n{said}");
    }
    let help = err(&run(&fleet, "explain dev genral"));
    assert!(help.contains("general"), "{help}");
}

#[test]
fn explain_shows_the_line_behind_a_template_and_behind_an_override() {
    let (_dir, fleet) = fleet();
    let made = [
        (
            "environments/qa.toml",
            "extends = \"dev\"\n[pools.quick]\nstrategy = \"mine\"\nlimits.cpu = 4\noverrides.\"spec.limits.cpu\" = 5\n",
        ),
        (
            "templates/mine.yaml.j2",
            "{%- set policy = \"WhenEmpty\" -%}\n{%- include \"nodepool.yaml.j2\" -%}\n",
        ),
    ];
    std::fs::create_dir_all(fleet.join("templates")).expect("it can be made");
    made.iter().for_each(|(path, text)| std::fs::write(fleet.join(path), text).expect("it can be written"));
    let policy = out(&run(&fleet, "explain qa quick spec.disruption.consolidationPolicy"));
    assert!(policy.contains("WhenEmpty") && policy.contains("templates/mine.yaml.j2:1:18"), "{policy}");
    let said = out(&run(&fleet, "explain qa quick spec.limits.cpu"));
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("environments/qa.toml")).collect();
    assert!(lines[0].contains('5') && lines[0].ends_with("environments/qa.toml:5:31"), "{said}");
    assert!(lines[1].contains("(was 4)") && lines[1].ends_with("environments/qa.toml:4:14"), "{said}");
    let help = err(&run(&fleet, "explain qa quick spec.tempalte"));
    assert!(help.contains("did you mean `spec.template`?"), "{help}");
    let nowhere = err(&run(&fleet, "explain prdo quick"));
    assert!(nowhere.contains("on disk") && !nowhere.contains("commit"), "{nowhere}");
}

#[test]
fn only_what_is_near_is_proposed() {
    let (_dir, fleet) = fleet();
    let far = run(&fleet, "catalog show --region mars-1");
    assert_eq!(code(&far), 64);
    assert!(
        !err(&far).contains("did you mean") && err(&far).contains("it knows af-south-1, "),
        "{}",
        err(&far)
    );
    assert!(err(&run(&fleet, "catalog show --region ca-wset-1")).contains("did you mean `ca-west-1`?"));
    let script = "region = \"mars-1\"\nenvironment = \"dev\"\nduration = \"10m\"\n";
    std::fs::write(fleet.join("simulation.toml"), script).expect("it can be written");
    let far = run(&fleet, "simulate --repo .");
    assert!(err(&far).contains("mars-1") && !err(&far).contains("did you mean"), "{}", err(&far));
}

#[test]
fn an_instance_family_that_does_not_exist_is_found_before_any_cloud_is_asked() {
    let (_dir, fleet) = fleet();
    edit(&fleet, "environments/dev.toml", "limits = {", "instance-families = [\"m7i\", \"m9z\"]\nlimits = {");
    let done = run(&fleet, "validate");
    assert_eq!(code(&done), 2);
    for part in ["`m9z`", "environments/dev.toml:14:29", "did you mean"] {
        assert!(err(&done).contains(part), "`{part}` is missing in\n{}", err(&done));
    }
}

#[test]
fn a_fleet_of_any_region_knows_the_same_instance_types() {
    let (_dir, fleet) = fleet();
    edit(
        &fleet,
        "environments/dev.toml",
        "[\"us-west-2a\", \"us-west-2b\", \"us-west-2c\"]",
        "[\"ap-northeast-2a\"]",
    );
    edit(&fleet, "environments/dev.toml", "us-west-2", "ap-northeast-2");
    assert_eq!(code(&run(&fleet, "validate")), 0);
    assert_eq!(code(&run(&fleet, "render dev --check-determinism")), 0);
}
