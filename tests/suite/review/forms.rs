//! What programs that collect findings get: each form by its own schema, and all of them the same findings.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Proposal, environment, said};
use crate::plane::made_by;

const FLEET: &str = "name = \"shop\"\n[defaults]\nregion = \"us-east-1\"\n";
const PROD: &str = "[pools.general]\nstrategy = \"on-demand\"\nlimits = { cpu = \"100\" }\n";
const DEV: &str = "[pools.general]\nstrategy = \"spot\"\nlimits = { cpu = \"100\" }\n";
const SCRIPT: &str = "environment = \"prod\"\nduration = \"30m\"\nworkloads = [\"web.yaml\"]\n";
const WEB: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: web, namespace: shop }\nspec:\n  replicas: 2\n  selector: { matchLabels: { app: web } }\n  template:\n    metadata: { labels: { app: web } }\n    spec:\n      nodeSelector: { karpenter.sh/capacity-type: on-demand }\n      containers: [{ name: web, image: web, resources: { requests: { cpu: \"1\", memory: 1Gi } } }]\n";
/// Two rules that spot machines break, with words that every form has to keep from being obeyed.
const RULES: &str = r##"
[[guardrail]]
id = "floor"
check = "'on-demand' in pool.capacityTypes"
message = "'100%, <b> & \"quotes\" ]]> [here](http://x) {0}\\n::error::forged: ' + pool.name"

[[guardrail]]
id = "hint"
severity = "warn"
check = "'on-demand' in pool.capacityTypes"
"##;

const FORMS: [&str; 4] = ["sarif", "junit", "gitlab", "github"];

/// What a reader of the form finds: level, rule, sentence, file, line. Fails if the report is not of its schema.
fn read(form: &str, report: &[u8]) -> Vec<Value> {
    let python = made_by("python-tool", &["report-forms"]).expect("a Python");
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report-forms/read.py");
    let mut command = Command::new(python);
    let mut child = command
        .arg(reader)
        .arg(form)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    child.stdin.take().expect("a pipe").write_all(report).expect("it listens");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{form}: {}\n{}", said(&output), String::from_utf8_lossy(report));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn found(form: &str, proposal: &Proposal, line: &str, code: i32) -> Vec<Value> {
    let output = proposal.review(&format!("{line} --output {form}"));
    assert_eq!(output.status.code(), Some(code), "{form}: {}", said(&output));
    read(form, &output.stdout)
}

/// A sentence as SARIF writes it, where brackets before an address would be a link.
fn plain(finding: &Value) -> (String, String, String) {
    let text = |index: usize| finding[index].as_str().expect("text").to_owned();
    (text(0), text(1), text(2).replace("\\[", "[").replace("\\]", "]").replace("\\\\", "\\"))
}

/// Rows: REV-044
#[test]
fn rev_044_every_form_is_of_its_schema_and_says_the_same() {
    let mut proposal = Proposal::new(&[
        ("fleet.toml", FLEET),
        ("environments/prod.toml", PROD),
        ("environments/dev.toml", DEV),
        ("policies/rules.toml", RULES),
        ("simulation.toml", SCRIPT),
        ("web.yaml", WEB),
    ]);
    proposal.edit("environments/prod.toml", "\"on-demand\"", "\"spot\"");
    proposal.git(&["branch", "base", "HEAD~1"]);
    let line = "--base base --max-nodes-replaced 0 --fail-on unschedulable,warn";
    let review = proposal.json(line, 1);
    // What the document says, counted by hand.
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let mut expected: Vec<(String, String)> = Vec::new();
    let mut expect = |level: &str, rule: String| expected.push((level.to_owned(), rule));
    for gate in list(&review["gates"]).iter().filter(|gate| gate["passed"] == false) {
        expect("error", format!("gate/{}", gate["gate"].as_str().expect("a name")));
    }
    for one in list(&review["environments"]) {
        for policy in list(&one["policies"]) {
            let level = if policy["severity"] == "deny" { "error" } else { "warning" };
            expect(level, format!("guardrail/{}", policy["id"].as_str().expect("a name")));
        }
        for _ in one["pods"]["newUnschedulable"].as_array().into_iter().flatten() {
            expect("error", "pod/without-place".into());
        }
        for _ in one["roll"]["blockers"].as_array().into_iter().flatten() {
            expect("warning", "roll/blocked".into());
        }
        for _ in one["limits"].as_array().into_iter().flatten() {
            expect("warning", "pool/limit".into());
        }
        for finding in list(&one["findings"]) {
            expect("warning", finding["code"].as_str().expect("a code").to_owned());
        }
    }
    for remark in list(&review["diagnostics"]) {
        expect("warning", remark["code"].as_str().expect("a code").to_owned());
    }
    expected.sort();
    for rule in ["gate/deny", "guardrail/floor", "guardrail/hint", "pod/without-place"] {
        assert!(expected.iter().any(|(_, known)| known == rule), "{rule} in {expected:?}");
    }
    let readings = FORMS.map(|form| found(form, &proposal, line, 1));
    for (form, reading) in FORMS.iter().zip(&readings) {
        let mut rules: Vec<(String, String)> =
            reading.iter().map(|finding| (plain(finding).0, plain(finding).1)).collect();
        rules.sort();
        assert_eq!(rules, expected, "{form}");
    }
    let sorted = |reading: &Vec<Value>| {
        let mut all: Vec<_> = reading.iter().map(plain).collect();
        all.sort();
        all
    };
    let [of_sarif, others @ ..] = &readings;
    for other in others {
        assert_eq!(sorted(other), sorted(of_sarif));
    }
    // The words of the rule are in all of them, in one line, and nothing of them was obeyed.
    let denied = |reading: &Vec<Value>| {
        let all = reading.iter().filter(|finding| finding[1] == "guardrail/floor");
        all.map(|finding| (plain(finding).2, finding[3].clone(), finding[4].clone())).collect::<Vec<_>>()
    };
    let place = &environment(&review, "prod")["policies"][0]["origin"];
    let words = "100%, <b> & \"quotes\" ]]> [here](http://x) {0} ::error::forged: general";
    for reading in &readings {
        let prod = format!("prod: {words}");
        let of_prod: Vec<_> = denied(reading).into_iter().filter(|(text, ..)| *text == prod).collect();
        assert_eq!(of_prod, [(prod, place["file"].clone(), place["line"].clone())]);
    }
}

#[test]
fn a_proposal_that_cannot_be_reviewed_is_a_finding_too() {
    let mut proposal = Proposal::new(&[("fleet.toml", FLEET), ("environments/prod.toml", PROD)]);
    proposal.edit("environments/prod.toml", "cpu = \"100\"", "cpu = \"many\"");
    proposal.git(&["branch", "base", "HEAD~1"]);
    for form in FORMS {
        let findings = found(form, &proposal, "--base base", 2);
        assert_eq!(findings.len(), 1, "{form}: {findings:?}");
        assert_eq!((&findings[0][0], &findings[0][3]), (&json!("error"), &json!("environments/prod.toml")));
        assert_eq!(findings[0][4], 3, "{form}");
        // Nothing to say is a report as well.
        assert_eq!(found(form, &proposal, "--base base --head base --skip-no-diff", 0), [Value::Null; 0]);
        // A conflict or a missing revision has no place of its own.
        let findings = found(form, &proposal, "--base nowhere", 2);
        assert_eq!((findings.len(), &findings[0][1]), (1, &json!("review/refused")), "{form}");
    }
    let other = assert_cmd::Command::cargo_bin("provisor")
        .expect("the binary")
        .args(["version", "-o", "sarif"])
        .output();
    let other = other.expect("it runs");
    assert_eq!(other.status.code(), Some(64), "{}", said(&other));
}
