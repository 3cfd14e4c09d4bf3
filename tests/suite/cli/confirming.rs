//! What waits for a person or a budget: said with the words that let it happen, or the rule that keeps it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use tempfile::{NamedTempFile, TempDir};

use super::edit;
use super::schema::git;

pub(super) const POOLS: &str = "region = \"us-east-1\"\n[pools.a]\nstrategy = \"spot\"\n";
pub(super) const OTHER: &str = "[pools.other]\nstrategy = \"spot\"\n";
pub(super) const MORE: &str = "[pools.b]\nstrategy = \"spot\"\n[pools.c]\nstrategy = \"spot\"\n";

/// `provisor run` on a repository of its own, and what it says.
pub(super) struct Run {
    pub fleet: TempDir,
    pub child: Child,
    pub lines: Box<dyn Iterator<Item = String>>,
    /// What it says to people beside its data.
    talk: NamedTempFile,
}

impl Run {
    pub fn of(environment: &str, more: &[&str]) -> Self {
        Self::under(&[], environment, more)
    }

    /// The same, started by another program.
    pub fn under(starter: &[&str], environment: &str, more: &[&str]) -> Self {
        Self::start(starter, &[("environments/dev.toml", environment)], more)
    }

    /// In a fleet of these files.
    pub fn start(starter: &[&str], files: &[(&str, &str)], more: &[&str]) -> Self {
        let fleet = TempDir::new().expect("a temporary directory");
        let dir = fleet.path();
        for (path, text) in [("fleet.toml", "name = \"shop\"\n")].iter().chain(files) {
            std::fs::create_dir_all(dir.join(path).parent().expect("a directory")).expect("made");
            std::fs::write(dir.join(path), text).expect("written");
        }
        git(dir, &["init", "--quiet", "--initial-branch", "main"]);
        git(dir, &["add", "."]);
        git(dir, &["commit", "--quiet", "-m", "first"]);
        let talk = NamedTempFile::new().expect("a temporary file");
        let program = assert_cmd::cargo::cargo_bin!("provisor").as_os_str();
        let mut words = starter.iter().map(OsStr::new).chain([program]);
        let mut child = Command::new(words.next().expect("the program at least"))
            .args(words)
            .args(["run", "--repo", ".", "--for", "60s"])
            .args(more)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(talk.reopen().expect("it is there"))
            .spawn()
            .expect("it starts");
        let told = BufReader::new(child.stdout.take().expect("piped"));
        Self { fleet, child, lines: Box::new(told.lines().map_while(Result::ok)), talk }
    }

    pub fn change(&self, from: &str, to: &str) {
        edit(self.fleet.path(), "environments/dev.toml", from, to);
        git(self.fleet.path(), &["commit", "--quiet", "-a", "-m", "changed"]);
    }

    /// The next line that contains `part`.
    pub fn until(&mut self, part: &str) -> String {
        let found = self.lines.find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("it ended before it said `{part}`: {}", self.talk()))
    }

    pub fn talk(&self) -> String {
        std::fs::read_to_string(self.talk.path()).expect("UTF-8")
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn what_a_plan_asks_for_is_done_once_its_digits_are_typed() {
    let mut run = Run::of(&format!("{POOLS}{MORE}"), &["--prune", "retire"]);
    run.until("the cluster is as the commit wants it");
    // What needs nobody's word is done before anybody can type, and the digits that were shown still count.
    run.change(MORE, OTHER);
    let invitation = run.until("to let it happen, type `confirm ");
    let digits = invitation.split('`').nth(1).and_then(|words| words.split(' ').nth(1)).expect("digits");
    assert!(
        !run.until("asks before it may delete NodePool/b").ends_with(&format!("; this is plan {digits}"))
    );
    writeln!(run.child.stdin.as_ref().expect("piped"), "confirm {digits}").expect("it listens");
    run.until("delete NodePool/b");
    run.until("delete NodePool/c");
    run.until("the cluster is as the commit wants it");
}

#[test]
fn a_node_that_should_go_and_may_not_tells_why() {
    let pool = format!("{POOLS}budgets = [{{ nodes = 0 }}]\nlabels = {{ round = \"one\" }}\n");
    let mut run = Run::of(&pool, &["--speed", "60"]);
    run.until("  ready ");
    run.change("one", "two");
    // While pods are on their way to the node, they are what keeps it.
    while !run.until("  stays ").contains("drifted, but the budgets of pool a allow no") {}
}
