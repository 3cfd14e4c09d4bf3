//! Breaches that people agreed to bear for a while: who counts, how long, and for what.

use serde_json::Value;

use super::{Proposal, environment, said};

const FLEET: &str = "name = \"shop\"\n[defaults]\nregion = \"us-east-1\"\n";
const POOL: &str = "strategy = \"on-demand\"\nlimits = { cpu = \"100\" }\n";
const TERMS: &str = "allowed = true, max-days = 14, approvals = 2, author-may-approve = false";
const NOON: &str = "2026-03-05T12:00:00Z";

fn rule(terms: &str) -> String {
    format!(
        "[[guardrail]]\nid = \"floor\"\ncheck = \"'on-demand' in pool.capacityTypes\"\nmessage = \"'pool ' + pool.name + ' has no on-demand machines'\"\nwaiver = {{ {terms} }}\n"
    )
}

fn waiver(until: &str, approvers: &str, violations: &[String]) -> String {
    format!(
        "[[waiver]]\nrule = \"floor\"\nenvironments = [\"prod\"]\nreason = \"the migration\"\nfrom = \"2026-03-01\"\nuntil = \"{until}\"\nauthor = \"ada\"\napprovers = {approvers}\nviolations = {violations:?}\n"
    )
}

/// A fleet of three pools with a rule, and a proposal that makes `spot` of them spot.
fn proposal(policy: &str, spot: &[&str]) -> Proposal {
    let file = |pools: &[&str]| {
        let pool = |name: &str| {
            let is_spot = pools.contains(&name);
            let words = if is_spot { POOL.replace("on-demand", "spot") } else { POOL.to_owned() };
            format!("[pools.{name}]\n{words}")
        };
        ["a", "b", "c"].map(pool).concat()
    };
    let mut proposal = Proposal::new(&[
        ("fleet.toml", FLEET),
        ("environments/prod.toml", &file(&[])),
        ("policies/floor.toml", policy),
    ]);
    proposal.commit(&[("environments/prod.toml", Some(&file(spot)))]);
    proposal.git(&["branch", "base", "HEAD~1"]);
    proposal
}

fn policies(review: &Value) -> Vec<Value> {
    environment(review, "prod")["policies"].as_array().expect("a list").clone()
}

/// What people have to approve: the names of the breaches.
fn violations(spot: &[&str]) -> Vec<String> {
    let review = proposal(&rule(TERMS), spot).json(&format!("--base base --now {NOON}"), 1);
    policies(&review).iter().map(|policy| policy["violation"].as_str().expect("a name").to_owned()).collect()
}

#[track_caller]
fn verdict(waiver: &str, spot: &[&str], now: &str, code: i32) -> Value {
    proposal(&format!("{}{waiver}", rule(TERMS)), spot).json(&format!("--base base --now {now}"), code)
}

/// Rows: REV-030
#[test]
fn rev_030_waivers_end_with_their_last_day_and_each_person_counts_once() {
    let names = violations(&["a"]);
    let two = "[\"bob\", \"eve\"]";
    let good = waiver("2026-03-14", two, &names);
    let review = verdict(&good, &["a"], "2026-03-14T23:59:59Z", 0);
    let waived = &policies(&review)[0];
    assert_eq!((&waived["severity"], &waived["waived"]["until"]), (&"warn".into(), &"2026-03-14".into()));
    assert_eq!(waived["waived"]["approvers"], serde_json::json!(["bob", "eve"]));
    let review = verdict(&good, &["a"], "2026-03-15T00:00:00Z", 1);
    assert_eq!(
        (&policies(&review)[0]["severity"], &policies(&review)[0]["waived"]),
        (&"deny".into(), &Value::Null)
    );
    verdict(&good, &["a"], "2026-02-28T23:59:59Z", 1);
    // One person under two spellings, and the author, are not two people.
    for approvers in ["[\"bob\", \"@Bob \"]", "[\"bob\", \"Ada\"]", "[\"bob\", \"\"]", "[]"] {
        verdict(&waiver("2026-03-14", approvers, &names), &["a"], NOON, 1);
    }
    // A day more than the rule allows.
    verdict(&waiver("2026-03-15", two, &names), &["a"], NOON, 1);
    // Of another rule's terms.
    for (terms, code) in [
        ("allowed = true, author-may-approve = true, approvals = 2", 0),
        ("allowed = true", 0),
        ("allowed = false", 1),
    ] {
        let text = format!("{}{}", rule(terms), waiver("2026-03-14", "[\"ada\", \"bob\"]", &names));
        proposal(&text, &["a"]).json(&format!("--base base --now {NOON}"), code);
    }
    // The comment tells both: what to approve, and what is approved.
    let comment = |text: &str| {
        let line = format!("--base base --now {NOON} --output markdown");
        String::from_utf8(proposal(text, &["a"]).review(&line).stdout).expect("text")
    };
    assert!(comment(&rule(TERMS)).contains(&format!("violation `{}`", names[0])));
    let told = comment(&format!("{}{good}", rule(TERMS)));
    assert!(
        told.contains("waived, else denied by `floor`") && told.contains("until 2026-03-14 by bob, eve"),
        "{told}"
    );
}

/// Rows: REV-031
#[test]
fn rev_031_what_was_approved_may_shrink_and_not_change() {
    let names = violations(&["a", "b"]);
    assert_eq!(names.len(), 2);
    let good = waiver("2026-03-14", "[\"bob\", \"eve\"]", &names);
    verdict(&good, &["a", "b"], NOON, 0);
    let review = verdict(&good, &["a"], NOON, 0);
    assert_eq!(policies(&review).len(), 1);
    // With one that nobody has seen, the approval of the other is void too.
    let review = verdict(&good, &["a", "c"], NOON, 1);
    let denied = policies(&review).iter().filter(|policy| policy["severity"] == "deny").count();
    assert_eq!(denied, 2, "{review:#}");
}

#[test]
fn a_proposal_does_not_waive_what_it_breaks() {
    let names = violations(&["a"]);
    let good = format!("{}{}", rule(TERMS), waiver("2026-03-14", "[\"bob\", \"eve\"]", &names));
    let mut own = proposal(&rule(TERMS), &["a"]);
    own.commit(&[("policies/floor.toml", Some(&good))]);
    own.json(&format!("--base base --now {NOON}"), 1);
    // Merged, it counts for what comes next.
    own.edit("environments/prod.toml", "cpu = \"100\"", "cpu = \"200\"");
    own.json(&format!("--base main~1 --now {NOON}"), 0);
    // Without one that holds, the commit itself is refused, with the place of the one that does not.
    let validated = assert_cmd::Command::cargo_bin("provisor")
        .expect("the binary")
        .arg("validate")
        .arg(own.path())
        .output();
    let validated = validated.expect("it runs");
    assert_eq!(validated.status.code(), Some(2), "{}", said(&validated));
    assert!(
        said(&validated).contains("this waiver does not hold: it ended with 2026-03-14"),
        "{}",
        said(&validated)
    );
}

#[test]
fn waivers_of_nothing_are_mistakes() {
    for (from, to, why) in [
        ("rule = \"floor\"", "rule = \"flor\"", "there is no guardrail `flor`"),
        ("2026-03-14", "14.3.2026", "`14.3.2026` is no day"),
        ("2026-03-14", "2026-02-30", "`2026-02-30` is no day"),
    ] {
        let text = waiver("2026-03-14", "[\"bob\"]", &[]).replace(from, to);
        let output = proposal(&format!("{}{text}", rule(TERMS)), &["a"]).review("--base base");
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
}
