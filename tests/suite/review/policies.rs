//! Guardrails as gates: the rules of the base judge a proposal, whatever it does to them.

use provisor::io::git::{Limits, Symlinks, read_directory};
use provisor::ui::play::{Play, script_of, scripted_policy};
use serde_json::Value;

use super::{Proposal, environment, said};

const FLEET: &str = "name = \"shop\"\n[defaults]\nregion = \"us-east-1\"\n";
const PROD: &str = "[pools.general]\nstrategy = \"on-demand\"\nlimits = { cpu = \"100\" }\n";
const SCRIPT: &str = "environment = \"prod\"\nduration = \"30m\"\nworkloads = [\"web.yaml\"]\n";
const WEB: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: web, namespace: shop }\nspec:\n  replicas: 4\n  selector: { matchLabels: { app: web } }\n  template:\n    metadata: { labels: { app: web } }\n    spec:\n      containers: [{ name: web, image: web, resources: { requests: { cpu: \"1\", memory: 1Gi } } }]\n";

/// `severity`, `check` and `message` of one rule.
fn policy(severity: &str, check: &str, message: &str) -> String {
    format!(
        "[[guardrail]]\nid = \"floor\"\nseverity = \"{severity}\"\ncheck = \"{check}\"\nmessage = \"{message}\"\n"
    )
}

const ON_DEMAND: &str = "'on-demand' in pool.capacityTypes";
const WHY: &str = "'pool ' + pool.name + ' has no on-demand machines'";

fn fleet(policy: &str) -> Proposal {
    Proposal::new(&[
        ("fleet.toml", FLEET),
        ("environments/prod.toml", PROD),
        ("policies/floor.toml", policy),
        ("simulation.toml", SCRIPT),
        ("web.yaml", WEB),
    ])
}

fn to_spot(proposal: &mut Proposal) {
    proposal.edit("environments/prod.toml", "\"on-demand\"", "\"spot\"");
    proposal.git(&["branch", "base", "HEAD~1"]);
}

fn codes(review: &Value) -> Vec<&str> {
    review["diagnostics"].as_array().unwrap().iter().map(|one| one["code"].as_str().unwrap()).collect()
}

/// Rows: REV-023
#[test]
fn rev_023_a_denial_stops_the_proposal_and_a_warning_does_not() {
    let mut proposal = fleet(&policy("deny", ON_DEMAND, WHY));
    to_spot(&mut proposal);
    let review = proposal.json("--base base", 1);
    let prod = environment(&review, "prod");
    let said_by = &prod["policies"][0];
    assert_eq!((&said_by["id"], &said_by["severity"]), (&"floor".into(), &"deny".into()));
    assert_eq!(said_by["message"], "pool general has no on-demand machines");
    assert_eq!(
        (&said_by["origin"]["file"], &said_by["origin"]["line"]),
        (&"environments/prod.toml".into(), &1.into())
    );
    assert_eq!(
        (&said_by["rule"]["file"], &said_by["rule"]["line"]),
        (&"policies/floor.toml".into(), &2.into())
    );
    assert_eq!((&review["gates"][0]["gate"], &review["gates"][0]["passed"]), (&"deny".into(), &false.into()));
    // What it would do is told all the same.
    assert!(prod["nodes"]["drifted"].as_u64() > Some(0), "{prod:#}");
    let comment = String::from_utf8(proposal.review("--base base --output markdown").stdout).unwrap();
    let line = comment.lines().find(|line| line.contains("denied by `floor`")).expect("a line of its own");
    for word in
        ["pool general has no on-demand machines", "`environments/prod.toml:1:", "`policies/floor.toml:2:"]
    {
        assert!(line.contains(word), "{word} in {line}");
    }
    // Other gates do not open this one; only none at all does.
    assert_eq!(proposal.review("--base base --fail-on destructive").status.code(), Some(1));
    assert_eq!(proposal.review("--base base --fail-on none").status.code(), Some(0));

    let mut proposal = fleet(&policy("warn", ON_DEMAND, WHY));
    to_spot(&mut proposal);
    let review = proposal.json("--base base", 0);
    assert_eq!(environment(&review, "prod")["policies"][0]["severity"], "warn");
    assert_eq!(proposal.review("--base base --fail-on warn").status.code(), Some(1));
}

/// Rows: REV-025
#[test]
fn rev_025_a_rule_judges_its_own_deletion() {
    let rule = policy("deny", ON_DEMAND, WHY);
    let mut proposal = fleet(&rule);
    let spot = PROD.replace("\"on-demand\"", "\"spot\"");
    proposal.commit(&[("policies/floor.toml", None), ("environments/prod.toml", Some(&spot))]);
    proposal.git(&["branch", "base", "HEAD~1"]);
    let review = proposal.json("--base base", 1);
    assert_eq!(environment(&review, "prod")["policies"][0]["id"], "floor");
    assert_eq!(codes(&review), ["PRV1806"]);

    // To delete it alone is no breach, and does not go unnoticed.
    let mut proposal = fleet(&rule);
    proposal.commit(&[("policies/floor.toml", None)]);
    proposal.git(&["branch", "base", "HEAD~1"]);
    assert_eq!(codes(&proposal.json("--base base", 0)), ["PRV1806"]);

    // A rule that comes with the proposal counts as well.
    let mut proposal = fleet("");
    proposal.commit(&[("policies/floor.toml", Some(&policy("deny", "pool.weight > 0", "'no weight'")))]);
    proposal.git(&["branch", "base", "HEAD~1"]);
    assert_eq!(environment(&proposal.json("--base base", 1), "prod")["policies"][0]["message"], "no weight");
}

/// Rows: REV-019
#[test]
fn rev_019_a_narrower_choice_is_shown_and_can_warn() {
    let check = "review.offeringsAfter * 2 >= review.offeringsBefore";
    let message = "'from ' + string(review.offeringsBefore) + ' to ' + string(review.offeringsAfter)";
    let mut proposal = fleet(&policy("warn", check, message));
    let narrow = "strategy = \"on-demand\"\ninstance-families = [\"m5\"]";
    proposal.edit("environments/prod.toml", "strategy = \"on-demand\"", narrow);
    proposal.git(&["branch", "base", "HEAD~1"]);
    let review = proposal.json("--base base", 0);
    let prod = environment(&review, "prod");
    let count = |side: &str| prod["choice"]["offerings"][side].as_u64().expect("a count");
    assert!(count("after") * 2 < count("before"), "{prod:#}");
    assert!(prod["choice"]["largestShare"]["after"].as_str().is_some_and(|share| share.contains('.')));
    assert_eq!(prod["policies"][0]["message"], format!("from {} to {}", count("before"), count("after")));
    let comment = String::from_utf8(proposal.review("--base base --output markdown").stdout).unwrap();
    assert!(comment.contains(&format!("offerings {} → {}", count("before"), count("after"))), "{comment}");
}

#[test]
fn a_rule_about_numbers_that_nobody_knows_denies() {
    let rule = policy("deny", "review.costIncrease <= 0.0", "'dearer'");
    let mut proposal = fleet(&rule);
    to_spot(&mut proposal);
    // Spot is cheaper; the other way round it is not.
    assert_eq!(proposal.review("--base base --head main").status.code(), Some(0));
    let review = proposal.json("--base main --head base", 0);
    assert_eq!(environment(&review, "prod")["change"], "unchanged", "main already contains it");
    proposal.edit("environments/prod.toml", "\"spot\"", "\"on-demand\"");
    let former = proposal.git(&["rev-parse", "HEAD~1"]);
    let review = proposal.json(&format!("--base {former}"), 1);
    assert_eq!(environment(&review, "prod")["policies"][0]["message"], "dearer");

    let mut proposal = Proposal::new(&[
        ("fleet.toml", FLEET),
        ("environments/prod.toml", PROD),
        ("policies/floor.toml", &rule),
    ]);
    to_spot(&mut proposal);
    let review = proposal.json("--base base", 1);
    let why = environment(&review, "prod")["policies"][0]["message"].as_str().expect("words").to_owned();
    assert!(why.contains("cannot be judged"), "{why}");
}

/// Rows: REV-029
#[test]
fn rev_029_rules_hold_against_pushes_that_nobody_reviewed() {
    let mut proposal = fleet(&policy("deny", ON_DEMAND, WHY));
    to_spot(&mut proposal);
    let read = || read_directory(proposal.path(), &Limits::default(), Symlinks::Refused).expect("a fleet");
    let after = read();
    proposal.git(&["checkout", "--quiet", "base"]);
    let before = read();
    let script = script_of(&before, None).expect("a script").script;
    let mut play = Play::new(before.clone(), script, None, scripted_policy()).expect("a stage");
    play.take_commit(before).expect("the base keeps its rules");
    let start = play.start();
    play.reconciler.run_until(start + jiff::SignedDuration::from_mins(5), |_, _| ());
    let kinds = |play: &Play| {
        let pool = play.reconciler.cluster().manifest("NodePool", "general").expect("the pool is there");
        pool["spec"]["template"]["spec"]["requirements"].to_string()
    };
    let good = kinds(&play);
    assert!(play.take_commit(after).is_err());
    play.reconciler.run_until(start + jiff::SignedDuration::from_mins(10), |_, _| ());
    assert_eq!(kinds(&play), good);
}

/// Rows: REV-004
#[test]
fn rev_004_only_a_base_that_changed_what_was_read_makes_a_review_stale() {
    let mut proposal = fleet("");
    proposal.commit(&[("environments/dev.toml", Some(PROD))]);
    proposal.git(&["checkout", "--quiet", "-b", "next"]);
    proposal.edit("environments/prod.toml", "\"on-demand\"", "\"spot\"");
    let review = proposal.review("--base main --head next --output json");
    assert_eq!(review.status.code(), Some(0), "{}", said(&review));
    let file = proposal.path().join("review.json");
    std::fs::write(&file, &review.stdout).expect("written");
    let line = "--base main --head next --earlier review.json";
    let code = |proposal: &Proposal| proposal.review(line).status.code();
    assert_eq!(code(&proposal), Some(0));
    proposal.git(&["checkout", "--quiet", "main"]);
    proposal.edit("environments/dev.toml", "cpu = \"100\"", "cpu = \"200\"");
    assert_eq!(code(&proposal), Some(0), "prod reads nothing of dev");
    proposal.edit("environments/prod.toml", "cpu = \"100\"", "cpu = \"200\"");
    let output = proposal.review(line);
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("prod"));
    // Another proposal is another question.
    proposal.git(&["reset", "--quiet", "--hard", "HEAD~2"]);
    assert_eq!(code(&proposal), Some(0));
    proposal.git(&["checkout", "--quiet", "next"]);
    proposal.edit("environments/prod.toml", "\"spot\"", "\"spot-with-on-demand-fallback\"");
    assert_eq!(code(&proposal), Some(5));
    std::fs::write(&file, "{}").expect("written");
    assert_eq!(code(&proposal), Some(2));
}

#[test]
fn a_comment_says_what_is_wrong_with_a_proposal_that_cannot_be_reviewed() {
    let mut proposal = fleet("");
    proposal.edit("environments/prod.toml", "cpu = \"100\"", "cpu = \"many\"");
    proposal.git(&["branch", "base", "HEAD~1"]);
    let output = proposal.review("--base base --output markdown");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let comment = String::from_utf8(output.stdout).unwrap();
    assert!(comment.starts_with("<!-- provisor:review set=default -->\n### ❌ provisor: "), "{comment}");
    assert!(comment.contains("`environments/prod.toml:3:"), "{comment}");
    // A conflict has the code of a gate.
    proposal.branch_from_first("next");
    proposal.edit("environments/prod.toml", "cpu = \"100\"", "cpu = \"300\"");
    let output = proposal.review("--base main --head next --output markdown");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let comment = String::from_utf8(output.stdout).unwrap();
    assert!(comment.contains("conflict in environments/prod.toml:3"), "{comment}");
}
