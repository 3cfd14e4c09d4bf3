//! Writing for as long as a cluster lives: files that follow on each other, room that is made, disks that refuse.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::capacity::recording::{Committed, Event};
use provisor::controllers::recorder::{Journal, Place, Recorder, RecordingHealth, RecordingSettings};
use provisor::io::recording::{Cap, segments};
use provisor::model::catalog::Catalog;
use provisor::model::label::Labels;
use provisor::model::name::Namespace;
use provisor::model::observation::Observation;
use provisor::model::workload::NamespaceFacts;
use tempfile::TempDir;

use super::{json, provisor, talk, text, unpacked};

const CAP: Cap = Cap { total: 12 << 10, segment: 2 << 10 };

fn settings(place: Place) -> RecordingSettings {
    RecordingSettings {
        place,
        run: "one".into(),
        environment: "dev".into(),
        is_simulated: true,
        engine: EngineSettings { seed: 5, ..EngineSettings::default() },
    }
}

fn directory(path: &Path, cap: Cap) -> Place {
    Place::Directory { path: path.to_owned(), cap }
}

fn start() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().expect("a moment")
}

fn namespace(number: usize) -> Observation {
    let label =
        |kind: &str| format!("{kind}-{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).as_str().into();
    let labels = Labels::from([("team".into(), label("team")), ("cost".into(), label("cost"))]);
    Observation::Namespace(Arc::new(NamespaceFacts { name: Namespace(label("ns")), labels }))
}

/// A small catalogue: the whole of a region in every file would hide the rest.
fn catalog() -> Arc<Catalog> {
    let text = "instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,\
                on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types\n\
                m5.large,amd64,2,8192,,,,,,0.096,,us-east-1a,on-demand\n";
    Arc::new(Catalog::parse_csv(text, "prices.csv").expect("a catalogue"))
}

/// An engine that is told of so many namespaces, a second apart, and recorded.
fn live(journal: &mut Journal, count: usize) {
    let mut engine = Engine::new(EngineSettings { seed: 5, ..EngineSettings::default() });
    for (number, what) in [Observation::Catalog(catalog()), Observation::Synced]
        .into_iter()
        .chain((0..count).map(namespace))
        .enumerate()
    {
        let at = start() + SignedDuration::from_secs(number as i64);
        journal.record(&Event::Seen { at, what: what.clone() });
        engine.observe(at, what);
        journal.tend(at, engine.cluster());
        journal.record(&Event::Decided { at, decision: engine.decide(at) });
        if number == 3 {
            let commit = Committed { id: "abc1234".into(), subject: "more".into() };
            journal.record(&Event::Committed { at, commit });
        }
        // Real ones are written down every second, and else the packer would hold everything back.
        journal.flush();
    }
}

#[test]
fn files_follow_on_each_other_and_are_replayed_as_one() {
    let folder = TempDir::new().expect("a directory");
    let mut journal = Journal::new(settings(directory(folder.path(), Cap { total: 1 << 30, ..CAP })));
    live(&mut journal, 200);
    journal.finish().expect("written");
    let files = segments(folder.path()).expect("files");
    assert!(files.len() > 3, "{} files", files.len());
    let told = json(&provisor(&["replay", text(folder.path()), "--output", "json"]));
    assert!(told["same"] == true && told["runs"] == 1 && told["decisions"] == 202, "{told:#}");
    assert_eq!(told["notices"], serde_json::json!([]));
    // Later files know what came before them: the objects and the commit.
    let last = unpacked(files.last().expect("one"));
    assert!(last[0].contains("\"previous\"") && last.iter().any(|line| line.contains("abc1234")));
    assert!(last.iter().filter(|line| line.contains("\"Namespace\"")).count() > 100);
    // Without the beginning it is said, and what can be compared is.
    std::fs::remove_file(&files[0]).expect("deleted");
    let told = json(&provisor(&["replay", text(folder.path()), "--output", "json"]));
    assert!(told["notices"][0].as_str().is_some_and(|said| said.contains("beginning of run one is missing")));
    assert!(told["decisions"].as_u64() > Some(100) || told["difference"]["approximate"] == true, "{told:#}");
    // With a hole in the middle too.
    std::fs::remove_file(&files[2]).expect("deleted");
    let told = json(&provisor(&["replay", text(folder.path()), "--output", "json"]));
    assert!(told["notices"].as_array().is_some_and(|said| !said.is_empty()), "{told:#}");
}

#[test]
fn the_oldest_files_go_when_there_is_too_much() {
    let folder = TempDir::new().expect("a directory");
    // Pictures grow with what is there, so that the cap is in sight soon.
    let cap = Cap { total: 60 << 10, segment: 2 << 10 };
    let mut journal = Journal::new(settings(directory(folder.path(), cap)));
    live(&mut journal, 400);
    journal.finish().expect("written");
    let files = segments(folder.path()).expect("files");
    let size: u64 = files.iter().map(|path| path.metadata().expect("there").len()).sum();
    let largest = files.iter().map(|path| path.metadata().expect("there").len()).max().unwrap_or(0);
    assert!(size <= cap.total + largest, "{size} bytes in {} files", files.len());
    let first = files[0].file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(first > "provisor-one-000000", "{first} is not the first that was written");
}

#[test]
fn a_disk_that_refuses_costs_the_recording_and_nothing_else() {
    let folder = TempDir::new().expect("a directory");
    let taken = folder.path().join("taken");
    std::fs::write(&taken, "a file, where a directory should be").expect("written");
    let mut journal = Journal::new(settings(directory(&taken, CAP)));
    live(&mut journal, 20);
    assert!(journal.finish().is_err());
    // The program says so, and does not call it done.
    for place in ["/dev/full", "/nowhere/at/all"] {
        let output = provisor(&["simulate", "--record", place]);
        assert_eq!(output.status.code(), Some(3), "{}", talk(&output));
        assert!(talk(&output).contains("cannot be written"), "{}", talk(&output));
    }
}

#[test]
fn whoever_records_never_waits_and_what_is_lost_is_counted() {
    let folder = TempDir::new().expect("a directory");
    let taken = folder.path().join("taken");
    std::fs::write(&taken, "a file, where a directory should be").expect("written");
    let health = Arc::new(RecordingHealth::default());
    let mut recorder = Recorder::start(settings(directory(&taken, CAP)), health.clone()).expect("a thread");
    let engine = Engine::new(EngineSettings::default());
    for number in 0..50 {
        recorder.record(Event::Seen { at: start(), what: namespace(number) });
        recorder.tend(start(), engine.cluster());
    }
    drop(recorder);
    assert_eq!((health.dropped.load(Ordering::Relaxed), health.written.load(Ordering::Relaxed)), (50, 0));
}

#[test]
fn a_thread_writes_what_a_loop_hands_over() {
    let folder = TempDir::new().expect("a directory");
    let health = Arc::new(RecordingHealth::default());
    let place = directory(folder.path(), Cap { total: 1 << 30, segment: 1 << 20 });
    let mut recorder = Recorder::start(settings(place), health.clone()).expect("a thread");
    let mut engine = Engine::new(EngineSettings { seed: 5, ..EngineSettings::default() });
    for what in [Observation::Catalog(catalog()), Observation::Synced, namespace(1)] {
        recorder.record(Event::Seen { at: start(), what: what.clone() });
        engine.observe(start(), what);
        recorder.tend(start(), engine.cluster());
        recorder.record(Event::Decided { at: start(), decision: engine.decide(start()) });
    }
    // A crash would lose a second at most: it is on the disk before anybody says that it ends.
    let since = Instant::now();
    while health.written.load(Ordering::Relaxed) == 0 && since.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let told = json(&provisor(&["replay", text(folder.path()), "--output", "json"]));
    assert!(told["same"] == true && told["decisions"] == 3, "{told:#}");
    drop(recorder);
    let told = json(&provisor(&["replay", text(folder.path()), "--output", "json"]));
    assert_eq!((&told["same"], &told["notices"]), (&serde_json::json!(true), &serde_json::json!([])));
    assert_eq!(health.dropped.load(Ordering::Relaxed), 0);
}

#[cfg(unix)]
#[test]
fn a_recording_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().expect("a directory");
    let mut journal = Journal::new(settings(directory(folder.path(), CAP)));
    live(&mut journal, 2);
    journal.finish().expect("written");
    let files = segments(folder.path()).expect("files");
    assert_eq!(files[0].metadata().expect("there").permissions().mode() & 0o777, 0o600);
}
