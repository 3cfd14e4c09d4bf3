//! Commits to a local repository are noticed at once.

use std::time::{Duration, Instant};

use provisor::io::git::{Change, Lookout, Watch, watch};

use super::fixture::{Fixture, git_in};

/// The next change, if it comes in time.
fn within(watch: &mut Watch, limit: Duration) -> Option<Change> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(limit, watch.next()).await.ok().flatten() })
}

const SOON: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_millis(700);

#[test]
#[expect(clippy::disallowed_methods, reason = "the promise is one of real time")]
fn a_commit_is_seen_in_under_a_second_and_told_once() {
    let fixture = Fixture::with(&[("a", "1")]);
    let mut watch = watch(&fixture.work_tree()).expect("watched");
    for content in ["2", "3"] {
        fixture.commit("next", &[("a", content)]);
        let committed = Instant::now();
        assert_eq!(within(&mut watch, SOON), Some(Change::Moved));
        assert!(committed.elapsed() < SOON);
        assert_eq!(within(&mut watch, QUIET), None, "one commit, one change");
    }
}

#[test]
fn edits_that_are_not_commits_are_not_told() {
    let fixture = Fixture::with(&[("a", "1")]);
    let mut watch = watch(&fixture.work_tree()).expect("watched");
    fixture.write("a", b"edited");
    fixture.git(&["add", "a"]);
    assert_eq!(within(&mut watch, QUIET), None);
}

#[test]
fn branches_switches_packing_and_pushes_are_seen() {
    let fixture = Fixture::with(&[("a", "1")]);
    let bare = fixture.dir.path().join("bare.git");
    git_in(fixture.dir.path(), &["clone", "--quiet", "--bare", "fleet", "bare.git"], b"");
    let mut at_bare = watch(&bare).expect("watched");
    fixture.commit("pushed", &[("a", "2")]);
    fixture.git(&["push", "--quiet", bare.to_str().expect("UTF-8"), "main"]);
    assert_eq!(within(&mut at_bare, SOON), Some(Change::Moved));

    let mut here = watch(&fixture.work_tree()).expect("watched");
    fixture.git(&["branch", "team/deep/name"]);
    assert_eq!(within(&mut here, SOON), Some(Change::Moved), "a branch in new directories");
    fixture.git(&["checkout", "--quiet", "team/deep/name"]);
    assert_eq!(within(&mut here, SOON), Some(Change::Moved), "HEAD names another branch");
    fixture.git(&["pack-refs", "--all"]);
    assert_eq!(within(&mut here, SOON), Some(Change::Moved), "references are packed");

    fixture.git(&["worktree", "add", "--quiet", "../linked", "main"]);
    let linked = fixture.dir.path().join("linked");
    let mut at_linked = watch(&linked).expect("watched");
    git_in(&linked, &["commit", "--quiet", "--allow-empty", "-m", "there"], b"");
    assert_eq!(within(&mut at_linked, SOON), Some(Change::Moved), "the branch lives in the main repository");
}

#[test]
fn a_removed_repository_ends_the_watch_with_a_reason() {
    let fixture = Fixture::with(&[("a", "1")]);
    let mut watch = watch(&fixture.work_tree()).expect("watched");
    std::fs::remove_dir_all(fixture.work_tree()).expect("removed");
    let lost = Change::Lost("the repository was removed".into());
    let changes: Vec<_> = std::iter::from_fn(|| within(&mut watch, SOON)).collect();
    assert_eq!(changes.last(), Some(&lost), "{changes:?}");
}

#[test]
fn a_repository_that_goes_away_and_comes_back_is_noticed() {
    let fixture = Fixture::with(&[("a", "1")]);
    let (here, there) = (fixture.work_tree(), fixture.dir.path().join("elsewhere"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut lookout = runtime.block_on(async { Lookout::new(&here) });
    let mut noticed = |limit: Duration| {
        runtime.block_on(async { tokio::time::timeout(limit, lookout.next()).await.is_ok() })
    };
    let soon = Duration::from_secs(2);
    fixture.commit("next", &[("a", "2")]);
    assert!(noticed(soon), "a commit");

    std::fs::rename(&here, &there).expect("moved");
    assert!(noticed(soon), "moved away");
    assert!(!noticed(QUIET), "told once");
    std::fs::rename(&there, &here).expect("moved");
    assert!(noticed(soon), "back");
    fixture.commit("next", &[("a", "3")]);
    assert!(noticed(soon), "a commit, after it was back");

    std::fs::remove_dir_all(&here).expect("removed");
    while noticed(QUIET) {}
    // Nothing is noticed of a repository that is only half there.
    std::fs::create_dir_all(here.join(".git")).expect("made");
    assert!(!noticed(QUIET), "no repository yet");
    std::fs::remove_dir_all(&here).expect("removed");
    git_in(fixture.dir.path(), &["init", "--quiet", here.to_str().expect("UTF-8")], b"");
    assert!(noticed(soon), "another repository in its place");

    // What comes in its place within a moment is not what was watched.
    let other = fixture.dir.path().join("other");
    git_in(fixture.dir.path(), &["init", "--quiet", "other"], b"");
    std::fs::rename(&here, &there).expect("moved");
    std::fs::rename(&other, &here).expect("moved");
    assert!(noticed(soon), "it is another one");
    assert!(noticed(soon), "and that one is watched now");
}
