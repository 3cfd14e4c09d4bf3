//! `provisor why` answers from a recording.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::{SHOP, decision, json, packed, provisor, talk, text};

fn why(kind: &str, name: &str, at: Option<&str>) -> Value {
    why_in(&SHOP.path, kind, name, at)
}

/// The answer from a file or directory.
pub(crate) fn why_in(recording: &Path, kind: &str, name: &str, at: Option<&str>) -> Value {
    let mut words = vec!["why", kind, name, "--recording", text(recording), "--output", "json"];
    words.extend(at.into_iter().flat_map(|at| ["--at", at]));
    let output = provisor(&words);
    assert_eq!(output.status.code(), Some(0), "{kind} {name} {at:?}: {}", talk(&output));
    json(&output)
}

/// What an action is done to: kind and name; pools and machines are not asked about.
fn subject(action: &Value) -> Option<(&'static str, String)> {
    let (kind, body) = action["do"].as_object()?.iter().next()?;
    let word = |key: &str| body.pointer(key).and_then(Value::as_str).map(str::to_owned);
    match kind.as_str() {
        "CreateClaim" => Some(("claim", word("/name")?)),
        "Launch" | "UpdateClaim" | "DeleteClaim" | "FinalizeClaim" => Some(("claim", word("/claim")?)),
        "UpdateNode" | "DeleteNode" | "FinalizeNode" => Some(("node", word("/node")?)),
        "NominatePod" | "Evict" | "DeletePod" => Some(("pod", word("/pod")?)),
        "Publish" => {
            let (kind, name) = body["subject"].as_object()?.iter().next()?;
            let kind = match kind.as_str() {
                "Node" => "node",
                "Claim" => "claim",
                "Pod" => "pod",
                _ => return None,
            };
            Some((kind, name.as_str()?.to_owned()))
        }
        _ => None,
    }
}

/// Bookkeeping that comes again and again: that a pod came, that a node has been quiet.
fn is_bookkeeping(action: &Value) -> bool {
    let why = action["why"].as_str().unwrap_or_default();
    action["code"] == "PodEvent" || (action["code"] == "Marked" && !why.starts_with("Drifted"))
}

/// Asks about whatever an action of these lines was done to, and expects the action and its reason in the answer. How many were
/// answered.
pub(crate) fn expect_every_action_answered(recording: &Path, lines: &[String]) -> usize {
    let mut asked: BTreeMap<(&str, String), Vec<Value>> = BTreeMap::new();
    for action in lines
        .iter()
        .filter_map(|line| decision(line))
        .flat_map(|decision| decision["actions"].as_array().cloned().unwrap_or_default())
    {
        if let Some(subject) = subject(&action).filter(|_| !is_bookkeeping(&action)) {
            asked.entry(subject).or_default().push(action);
        }
    }
    let mut answered = 0;
    for ((kind, name), actions) in &asked {
        let told = why_in(recording, kind, name, None);
        let events = told["events"].as_array().expect("a list");
        for action in actions {
            let what = action["do"].as_object().and_then(|action| action.keys().next()).expect("a kind");
            let is_it = |event: &&Value| {
                event["what"] == **what && event["code"] == action["code"] && event["why"] == action["why"]
            };
            assert!(
                events.iter().any(|event| is_it(&event)),
                "{kind} {name}: nothing says {action:#}\n{told:#}"
            );
            answered += 1;
        }
    }
    answered
}

#[test]
fn every_action_of_a_run_is_answered_with_its_reason() {
    let answered = expect_every_action_answered(&SHOP.path, &SHOP.lines);
    assert!(answered > 300, "{answered} actions");
}

#[test]
fn every_node_that_stays_is_answered_with_what_keeps_it() {
    let mut kept: BTreeMap<String, Value> = BTreeMap::new();
    let mut gone: BTreeSet<String> = BTreeSet::new();
    for line in &SHOP.lines {
        for one in decision(line)
            .iter()
            .flat_map(|decision| decision["kept"].as_array().cloned().unwrap_or_default())
        {
            kept.insert(one["node"].as_str().expect("a name").to_owned(), one);
        }
        let line: Value = serde_json::from_str(line).expect("JSON");
        gone.extend(line.pointer("/seen/what/NodeGone").and_then(Value::as_str).map(str::to_owned));
    }
    let staying: Vec<_> = kept.iter().filter(|(name, _)| !gone.contains(*name)).collect();
    assert!(staying.len() >= 3, "{staying:?}");
    for (name, one) in staying {
        let told = why("node", name, None);
        assert_eq!((&told["kept"]["code"], &told["kept"]["why"]), (&one["code"], &one["why"]), "{told:#}");
        assert!(told["bought"]["machine"]["usdPerHour"].is_string(), "{told:#}");
        assert!(
            told["bought"]["alternatives"].as_array().is_some_and(|others| !others.is_empty()),
            "{told:#}"
        );
        assert!(told["commit"]["subject"].is_string() && told["gone"] == false, "{told:#}");
    }
}

#[test]
fn a_node_tells_since_when_it_stays_and_what_would_change_that_and_what_was_not_done_instead() {
    let early = why("node", "node-5e1f0003", Some("2026-03-02T08:06:00Z"))["kept"].clone();
    assert_eq!((&early["code"], &early["orEarlier"]), (&"PodDisruptionBudget".into(), &false.into()));
    assert_eq!(early["waitsFor"], "the PodDisruptionBudget allows an eviction");
    let next = early["nextLook"].as_str().expect("it becomes thirty days old");
    assert!(next.starts_with("2026-04-01T08:00:01"), "{next}");
    // The first moment of the reason, not the last time that it was written down.
    let later = |at: &str| why("node", "node-5e1f0003", Some(at))["kept"].clone();
    let (soon, late) = (later("2026-03-02T08:07:00Z"), later("2026-03-02T08:11:00Z"));
    assert_eq!((&soon["code"], &soon["since"]), (&late["code"], &late["since"]));
    assert!(late["since"].as_str().is_some_and(|since| since < "2026-03-02T08:07:00Z"), "{late:#}");
    let before = why("node", "node-5e1f0003", Some("2026-03-02T08:02:00Z"))["kept"].clone();
    assert_eq!(before["code"], "NotConsolidatable", "{before:#}");
    let instead = why("node", "node-5e1f0003", None)["disrupted"][0]["alternatives"].clone();
    let codes: Vec<&str> =
        instead.as_array().expect("a list").iter().filter_map(|one| one["code"].as_str()).collect();
    assert_eq!(codes, ["NeedsReplacement", "SavesLess"], "{instead:#}");
    let output = provisor(&["why", "node", "node-5e1f0003", "--recording", text(&SHOP.path)]);
    let told = String::from_utf8(output.stdout).expect("text");
    assert!(told.contains("\n  instead  of delete (would save $"), "{told}");
}

#[test]
fn a_node_is_told_in_about_ten_lines() {
    let text_of = |words: &[&str]| {
        let output = provisor(words);
        assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let path = text(&SHOP.path);
    let told = text_of(&["why", "node", "node-5e1f0003", "--recording", path]);
    let rows: Vec<&str> =
        told.lines().map(|line| line.split_whitespace().next().unwrap_or_default()).collect();
    assert!(told.lines().count() <= 14, "{told}");
    for word in ["is", "bought", "for", "over", "went", "gone", "commit"] {
        assert!(rows.contains(&word), "{word} is missing:\n{told}");
    }
    assert!(told.contains("environment prod (simulated)") && told.contains("/h (+$"), "{told}");
    // Before it went it stayed.
    let early = ["--at", "2026-03-02T08:06:00Z"];
    let told = text_of(&[&["why", "node", "node-5e1f0003", "--recording", path][..], &early].concat());
    assert!(told.contains("\n  stays") && !told.contains("\n  went"), "{told}");
    assert!(told.contains("the built-in example"), "the commit of then: {told}");
    // The same by its claim, and of a pod.
    let claim = why("node", "node-5e1f0003", None)["claim"].as_str().expect("its claim").to_owned();
    let told = text_of(&["why", "claim", &claim, "--recording", path]);
    assert!(told.contains("node node-5e1f0003"), "{told}");
    let told = text_of(&[&["why", "pod", "shop/store-1", "--recording", path][..], &early].concat());
    assert!(told.contains("\n  planned") && told.contains("\n  runs     on node-5e1f0003"), "{told}");
}

#[test]
fn a_pod_is_told_from_its_making_to_its_end() {
    let at = |at: &str| why("pod", "shop/store-1", Some(at))["pod"].clone();
    assert_eq!(at("2026-03-02T08:00:00.5Z")["node"], Value::Null);
    let planned = at("2026-03-02T08:00:10Z");
    assert!(
        planned["planned"].as_str().is_some_and(|place| place.starts_with("nodeclaim/general-")),
        "{planned:#}"
    );
    assert_eq!(at("2026-03-02T08:06:00Z")["node"], "node-5e1f0003");
    let end = why("pod", "shop/store-1", None);
    assert_eq!(end["gone"], true, "{end:#}");
    let evicted =
        |event: &Value| event["what"] == "Evict" && event["why"].as_str().is_some_and(|why| !why.is_empty());
    assert!(end["events"].as_array().is_some_and(|events| events.iter().any(evicted)), "{end:#}");
}

#[test]
fn a_name_that_nothing_speaks_of_is_answered_with_what_is_near() {
    for (words, says) in [
        (vec!["why", "node", "node-5e1f000z"], "did you mean `node-5e1f000"),
        (vec!["why", "pod", "store-1"], "did you mean `shop/store-1`"),
        (vec!["why", "claim", "node-5e1f0003"], "speaks of no claim"),
        (vec!["why", "node", "node-5e1f0003", "--at", "2026-03-02T08:00:01Z"], "it came later"),
    ] {
        let output = provisor(&[&words[..], &["--recording", text(&SHOP.path)]].concat());
        let said = talk(&output);
        assert!(output.status.code() == Some(2) && said.contains(says), "{words:?}: {said}");
    }
    let output = provisor(&["why", "node", "a", "--at", "noon", "--recording", text(&SHOP.path)]);
    assert_eq!(output.status.code(), Some(64));
}

/// Without an index everything is looked at; the answer is the same.
#[test]
fn the_index_changes_no_answer() {
    let folder = TempDir::new().expect("a directory");
    let plain = packed(folder.path(), &SHOP.lines);
    for (kind, name) in [("node", "node-5e1f0003"), ("node", "node-5e1f0009"), ("pod", "shop/store-14")] {
        let mut with = why(kind, name, Some("2026-03-02T08:50:00Z"));
        let output = provisor(&[
            "why",
            kind,
            name,
            "--recording",
            text(&plain),
            "--output",
            "json",
            "--at",
            "2026-03-02T08:50:00Z",
        ]);
        let mut without = json(&output);
        for told in [&mut with, &mut without] {
            told.as_object_mut().expect("a document").remove("at");
        }
        assert_eq!(with, without, "{kind} {name}");
    }
}
