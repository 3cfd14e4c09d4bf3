//! Reviews of proposals: what is said, what stops them, and whether it comes true.

mod pairs;
mod verdicts;
mod policies;
mod forms;
mod waivers;
mod reduced;
mod snapshots;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use assert_cmd::Command;
use provisor::io::git::{Author, commit_changes, init_repository};
use serde_json::Value;
use tempfile::TempDir;

/// A fleet in a repository of its own, whose commits always have the same ids.
pub(crate) struct Proposal {
    dir: TempDir,
    commits: i64,
}

impl Proposal {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        init_repository(dir.path()).expect("a repository");
        let mut proposal = Self { dir, commits: 0 };
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, Some(*text))).collect();
        proposal.commit(&files);
        proposal
    }

    fn of_example(name: &str) -> Self {
        let mut files = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
        read_all(&root, &root, &mut files);
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        Self::new(&files)
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Commits onto what is checked out; `None` removes a file.
    fn commit(&mut self, files: &[(&str, Option<&str>)]) -> String {
        let changes: BTreeMap<Arc<str>, Option<Arc<[u8]>>> = files
            .iter()
            .map(|(path, text)| (Arc::from(*path), text.map(|text| Arc::from(text.as_bytes()))))
            .collect();
        let author = Author { name: "Ada".into(), email: "ada@example.com".into() };
        self.commits += 1;
        let at = jiff::Timestamp::from_second(1_772_000_000 + self.commits).expect("a moment");
        commit_changes(self.path(), &changes, "a change", &author, at).expect("committed").to_string()
    }

    pub(crate) fn edit(&mut self, path: &str, from: &str, to: &str) -> String {
        let text = std::fs::read_to_string(self.path().join(path)).expect("the file is there");
        assert!(text.contains(from), "{path} has no `{from}`");
        self.commit(&[(path, Some(&text.replace(from, to)))])
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        let output = std::process::Command::new("git")
            .args(args)
            .current_dir(self.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .expect("git runs");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Goes back to the first commit and begins a branch there.
    fn branch_from_first(&self, name: &str) {
        let first = self.git(&["rev-list", "--max-parents=0", "HEAD"]);
        self.git(&["checkout", "--quiet", "-b", name, &first]);
    }

    pub(crate) fn review(&self, line: &str) -> Output {
        let mut command = Command::cargo_bin("provisor").expect("the binary is built for the tests");
        command.current_dir(self.path()).arg("review").args(line.split_whitespace());
        for name in ["PROVISOR_REPO", "AWS_REGION", "CLICOLOR_FORCE", "NO_COLOR", "FEATURE_GATES"] {
            command.env_remove(name);
        }
        command.output().expect("the program runs")
    }

    /// The answer as a document; the exit code is checked.
    fn json(&self, line: &str, code: i32) -> Value {
        let output = self.review(&format!("{line} --output json"));
        assert_eq!(output.status.code(), Some(code), "{line}: {}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(&output)))
    }
}

fn read_all(root: &Path, directory: &Path, files: &mut Vec<(String, String)>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(directory)
        .expect("readable")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read_all(root, &path, files);
        } else {
            let name = path.strip_prefix(root).expect("below the root").display().to_string();
            files.push((name, std::fs::read_to_string(&path).expect("text")));
        }
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn environment<'a>(review: &'a Value, name: &str) -> &'a Value {
    review["environments"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|environment| environment["name"] == name)
        .unwrap_or_else(|| panic!("{name} is not in {review:#}"))
}

/// Compares with a recorded review, or rewrites it if `UPDATE` is set.
fn recorded(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/review/expected").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, text).expect("the expectation can be written");
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(expected == text, "{name} differs; `UPDATE=1 cargo test review` rewrites it:\n{text}");
}
