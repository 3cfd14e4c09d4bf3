//! Repositories written by us, judged by the `git` program.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use provisor::io::git::{Author, Source, commit_changes, commit_files, init_repository};

use super::fixture::{Fixture, texts};

fn ada() -> Author {
    Author { name: "Ada".into(), email: "ada@example.com".into() }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("in range")
}

fn files(files: &[(&str, &str)]) -> BTreeMap<Arc<str>, Arc<[u8]>> {
    files.iter().map(|(path, text)| ((*path).into(), text.as_bytes().into())).collect()
}

#[test]
fn written_commits_are_what_git_would_have_written() {
    let fixture = Fixture { dir: tempfile::tempdir().expect("a directory") };
    let path = fixture.work_tree();
    init_repository(&path).expect("created");
    let first = files(&[
        ("fleet.toml", "name = 'x'\n"),
        ("environments/dev.toml", ""),
        ("environments/prod.toml", ""),
    ]);
    let first = commit_files(&path, &first, "Start the fleet\n\nBody.\n", &ada(), at(0)).expect("committed");
    assert_eq!(fixture.git(&["status", "--porcelain"]), "", "a clean checkout");
    assert_eq!(fixture.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(
        fixture.git(&["log", "--format=%H %an %ae %at %s"]),
        format!("{first} Ada ada@example.com 1800000000 Start the fleet")
    );

    let change = BTreeMap::from([
        ("fleet.toml".into(), Some("name = 'y'\n".as_bytes().into())),
        ("environments/dev.toml".into(), None),
    ]);
    let second = commit_changes(&path, &change, "Rename", &ada(), at(60)).expect("committed");
    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    assert_eq!(fixture.git(&["rev-parse", "HEAD^"]), first.as_str());
    assert_eq!(fixture.git(&["ls-tree", "-r", "--name-only", "HEAD"]), "environments/prod.toml\nfleet.toml");
    assert!(!path.join("environments/dev.toml").exists());
    fixture.git(&["fsck", "--strict"]);
    assert!(fixture.git(&["reflog"]).contains("Rename"));

    let read = fixture.read(&Source::new(path.to_str().expect("UTF-8"))).expect("read");
    assert_eq!(read.revision.commit, second);
    assert_eq!(texts(&read)["fleet.toml"], "name = 'y'\n");

    // A person goes on with git, and we after them.
    fixture.commit("By hand", &[("fleet.toml", "name = 'z'\n")]);
    commit_files(&path, &files(&[("a", "1")]), "Again", &ada(), at(120)).expect("committed");
    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    assert_eq!(fixture.git(&["show", "HEAD:fleet.toml"]), "name = 'z'");
}

#[test]
fn the_same_commit_has_the_same_id_everywhere() {
    let ids: Vec<_> = (0..2)
        .map(|_| {
            let dir = tempfile::tempdir().expect("a directory");
            init_repository(dir.path()).expect("created");
            commit_files(dir.path(), &files(&[("a", "1")]), "One", &ada(), at(0)).expect("committed")
        })
        .collect();
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn existing_files_are_kept_and_escapes_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("notes.txt"), "mine").expect("written");
    init_repository(dir.path()).expect("beside files");
    assert!(init_repository(dir.path()).is_err(), "there is one already");
    for path in ["../x", "/x", ".git/hooks/post-commit", "a//b", ""] {
        let error = commit_files(dir.path(), &files(&[(path, "x")]), "m", &ada(), at(0)).expect_err(path);
        assert!(error.to_string().contains("is not a path inside it"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("notes.txt")).expect("kept"), "mine");
}
