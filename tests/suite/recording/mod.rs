//! The flight recorder: what is written, that it is decided again the same, what a torn or hostile file does, and `provisor why`.

mod files;
mod keeping;
mod replaying;
pub(crate) mod unbegun;
pub(crate) mod why;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::LazyLock;

use assert_cmd::Command;
use provisor::io::recording::{Segment, segments};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) fn provisor(words: &[&str]) -> Output {
    let mut command = Command::cargo_bin("provisor").expect("the binary is built for the tests");
    command.args(words).env_remove("PROVISOR_REPO").env_remove("PROVISOR_RECORD");
    command.output().expect("it runs")
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}

/// What was said to people beside the data.
pub(crate) fn talk(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {}", talk(output)))
}

/// The built-in example, recorded once for all tests, with its lines.
struct Recorded {
    _folder: TempDir,
    path: PathBuf,
    lines: Vec<String>,
}

static SHOP: LazyLock<Recorded> = LazyLock::new(|| {
    let folder = TempDir::new().expect("a directory");
    let path = folder.path().join("shop.jsonl.zst");
    let output = provisor(&["simulate", "--record", text(&path)]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let lines = unpacked(&path);
    Recorded { _folder: folder, path, lines }
});

fn unpacked(path: &Path) -> Vec<String> {
    let bytes = zstd::decode_all(std::fs::File::open(path).expect("it is there")).expect("zstd frames");
    String::from_utf8(bytes).expect("text").lines().map(str::to_owned).collect()
}

/// All whole lines of a recording, torn or not.
pub(crate) fn lines_in(recording: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for path in segments(recording).expect("files") {
        let segment = Segment::open(&path).expect("it is there");
        for block in &segment.blocks {
            let text = segment.text(block).expect("whole lines");
            lines.extend(text.lines.lines().map(str::to_owned));
        }
    }
    lines
}

/// A recording of these lines, without an index.
fn packed(folder: &Path, lines: &[String]) -> PathBuf {
    let path = folder.join("changed.jsonl.zst");
    let mut file = std::fs::File::create(&path).expect("made");
    for block in lines.chunks(400) {
        let mut text = block.join("\n");
        text.push('\n');
        file.write_all(&zstd::encode_all(text.as_bytes(), 3).expect("packed")).expect("written");
    }
    path
}

/// The decision of a line, if it is one.
fn decision(line: &str) -> Option<Value> {
    let line: Value = serde_json::from_str(line).expect("a line of JSON");
    line.pointer("/decided/decision").cloned()
}
