//! What waits for a person: said with the words that let it happen, and done once they are typed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::edit;
use super::schema::git;

const POOLS: &str = "region = \"us-east-1\"\n[pools.a]\nstrategy = \"spot\"\n";
const OTHER: &str = "[pools.other]\nstrategy = \"spot\"\n";
const MORE: &str = "[pools.b]\nstrategy = \"spot\"\n[pools.c]\nstrategy = \"spot\"\n";

#[test]
fn what_a_plan_asks_for_is_done_once_its_digits_are_typed() {
    let dir = TempDir::new().expect("a temporary directory");
    let fleet = dir.path();
    std::fs::create_dir(fleet.join("environments")).expect("a directory");
    std::fs::write(fleet.join("fleet.toml"), "name = \"shop\"\n").expect("written");
    std::fs::write(fleet.join("environments/dev.toml"), format!("{POOLS}{MORE}")).expect("written");
    git(fleet, &["init", "--quiet", "--initial-branch", "main"]);
    git(fleet, &["add", "."]);
    git(fleet, &["commit", "--quiet", "-m", "three pools"]);
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("provisor"))
        .args(["run", "--repo", ".", "--prune", "retire", "--for", "60s"])
        .current_dir(fleet)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("it starts");
    let mut typed = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut until = |part: &str| {
        let found = lines.find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("it ended before it said `{part}`"))
    };
    until("the cluster is as the commit wants it");
    // What needs nobody's word is done before anybody can type, and the digits that were shown still count.
    edit(fleet, "environments/dev.toml", MORE, OTHER);
    git(fleet, &["commit", "--quiet", "-a", "-m", "another pool"]);
    let invitation = until("to let it happen, type `confirm ");
    let digits = invitation.split('`').nth(1).and_then(|words| words.split(' ').nth(1)).expect("digits");
    assert!(!until("asks before it may delete NodePool/b").ends_with(&format!("; this is plan {digits}")));
    writeln!(typed, "confirm {digits}").expect("it listens");
    until("delete NodePool/b");
    until("delete NodePool/c");
    until("the cluster is as the commit wants it");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}
