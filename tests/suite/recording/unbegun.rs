//! Recordings whose oldest files had to make room: from when on they are judged is said, and what differs after it is found.

use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use provisor::controllers::recorder::Place;
use provisor::io::git::{Limits, Symlinks, read_directory};
use provisor::io::recording::{Cap, segments};
use provisor::simulator::script::{Scale, ScriptEvent};
use provisor::ui::play::{Play, script_of, scripted_policy};
use serde_json::Value;
use tempfile::TempDir;

use super::{json, packed, provisor, talk, text, unpacked};

const HOURS: i64 = 3;

/// Hours of a shop that is busy and quiet in turns, in many files.
pub(crate) fn recorded(folder: &Path) -> Vec<PathBuf> {
    let fleet = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/eks-shop");
    let repository = read_directory(&fleet, &Limits::default(), Symlinks::Refused).expect("a fleet");
    let mut script = script_of(&repository, Some("prod")).expect("a script").script;
    script.duration = SignedDuration::from_hours(HOURS);
    script.expect.clear();
    let scale = |number: i64| ScriptEvent {
        at: SignedDuration::from_mins(20 * number + 5),
        scale: Some(Scale { workload: "shop/store".into(), to: if number % 2 == 0 { 30 } else { 4 } }),
        reclaim: None,
        shortage: None,
        lose_zone: None,
        commit: None,
    };
    script.events = (0..3 * HOURS - 1).map(scale).collect();
    let mut play = Play::new(repository.clone(), script, None, scripted_policy()).expect("a stage");
    // Each file begins with the catalogue of a region: 90 KiB.
    let cap = Cap { total: 1 << 30, segment: 110 << 10 };
    play.reconciler.record(Place::Directory { path: folder.to_owned(), cap }, "one".into());
    play.take_commit(repository).expect("it renders");
    let end = play.start() + SignedDuration::from_hours(HOURS);
    play.reconciler.run_until(end, |_, _| ());
    play.reconciler.end_recording().expect("written");
    segments(folder).expect("files")
}

fn replayed(place: &Path, code: i32) -> Value {
    let output = provisor(&["replay", text(place), "--output", "json"]);
    assert_eq!(output.status.code(), Some(code), "{}", talk(&output));
    json(&output)
}

#[test]
fn without_its_beginning_a_run_is_judged_from_when_on_that_is_said() {
    let folder = TempDir::new().expect("a directory");
    let files = recorded(folder.path());
    assert!(files.len() > 2, "{} files", files.len());
    let whole = replayed(folder.path(), 0);
    assert!(whole["unjudged"] == 0 && whole["notices"].as_array().is_some_and(Vec::is_empty), "{whole:#}");
    for gone in &files[..2] {
        std::fs::remove_file(gone).expect("deleted");
        let told = replayed(folder.path(), 0);
        let said = told["notices"][0].as_str().unwrap_or_default();
        eprintln!("{} of {} decisions are not judged: {said}", told["unjudged"], told["decisions"]);
        assert!(said.contains("beginning of run one is missing"), "{said}");
        assert!(said.contains("judged is what is done from 2026-03-02T"), "{said}");
        assert!(told["unjudged"].as_u64() < told["decisions"].as_u64(), "{told:#}");
    }
}

#[test]
fn what_differs_after_that_is_found() {
    let folder = TempDir::new().expect("a directory");
    let files = recorded(folder.path());
    // The last purchase, long after the beginning of the file that is the first now.
    let mut lines: Vec<String> = files[1..].iter().flat_map(|path| unpacked(path)).collect();
    let buys = |line: &String| line.starts_with("{\"decided\"") && line.contains("\"CreateClaim\"");
    let at = lines.iter().rposition(buys).expect("something is bought");
    lines[at] = lines[at].replace("need a node", "need a palace").replace("needs a node", "needs a palace");
    let told = replayed(&packed(folder.path(), &lines), 1);
    let difference = &told["difference"];
    assert!(difference["recorded"].as_str().is_some_and(|said| said.contains("a palace")), "{told:#}");
    assert_eq!(difference["approximate"], true, "{told:#}");
}
