//! Local repositories: references, commits, histories.

use std::sync::atomic::AtomicBool;

use provisor::io::git::{
    self, DroppedCommit, ErrorClass, GitError, History, Purpose, Reference, ReferenceFields, Rewrite, Source,
    Subdirectory,
};
use provisor::model::repository::CommitId;

use super::fixture::{Fixture, git_in, texts, told};

fn chosen(fields: ReferenceFields) -> Reference {
    fields.choose(Purpose::Production).expect("valid fields")
}

fn branch(name: &str) -> Reference {
    chosen(ReferenceFields { branch: Some(name.into()), ..ReferenceFields::default() })
}

fn tag(name: &str) -> Reference {
    chosen(ReferenceFields { tag: Some(name.into()), ..ReferenceFields::default() })
}

#[test]
fn the_files_of_a_commit_are_read_without_a_checkout() {
    let fixture =
        Fixture::with(&[("fleet.toml", "name = 'shop'\n"), ("environments/prod.toml", "[pools.a]\n")]);
    // What lies in the work tree and in the index does not count.
    fixture.write("fleet.toml", b"name = 'edited'");
    fixture.write("new.toml", b"");
    fixture.git(&["add", "new.toml"]);
    let repository = fixture.read(&fixture.source()).expect("read");
    let expected = [("environments/prod.toml", "[pools.a]\n"), ("fleet.toml", "name = 'shop'\n")];
    assert_eq!(texts(&repository), expected.map(|(path, text)| (path.into(), text.into())).into());
    assert_eq!(repository.revision.reference.as_deref(), Some("refs/heads/main"));
    assert_eq!(&*repository.revision.subject, "first");
    assert_eq!(&*repository.revision.author, "Ada <ada@example.com>");
    assert_eq!(repository.revision.commit.as_str(), fixture.git(&["rev-parse", "HEAD"]));
}

#[test]
fn bare_repositories_file_addresses_and_linked_work_trees_are_read_alike() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let parent = fixture.dir.path();
    git_in(parent, &["clone", "--quiet", "--bare", "fleet", "bare.git"], b"");
    fixture.git(&["worktree", "add", "--quiet", "../linked"]);
    fixture.git(&["gc", "--quiet"]);
    let expected = fixture.read(&fixture.source()).expect("read").files;
    for path in ["bare.git", "linked", "fleet/.git", "fleet"] {
        let plain = parent.join(path).to_str().expect("UTF-8").to_owned();
        for url in [format!("file://{plain}"), plain] {
            let repository = fixture.read(&Source::new(&url)).expect(&url);
            assert_eq!(repository.files, expected, "{url}");
        }
    }
}

#[test]
fn a_directory_inside_a_work_tree_means_that_part_of_the_commit() {
    let fixture =
        Fixture::with(&[("infra/nodes/fleet.toml", "x"), ("infra/nodes/a/b.toml", "y"), ("README.md", "z")]);
    let inside = Source::new(fixture.work_tree().join("infra/nodes").to_str().expect("UTF-8"));
    let named =
        Source { subdirectory: Subdirectory::parse("infra/nodes/").expect("inside"), ..fixture.source() };
    for source in [inside, named] {
        let repository = fixture.read(&source).expect("read");
        assert_eq!(texts(&repository).into_keys().collect::<Vec<_>>(), ["a/b.toml", "fleet.toml"]);
    }
    let missing =
        Source { subdirectory: Subdirectory::parse("infra/node").expect("inside"), ..fixture.source() };
    let error = fixture.read(&missing).expect_err("missing");
    let name = fixture.work_tree().display().to_string();
    let short = &fixture.git(&["rev-parse", "HEAD"])[..7];
    assert_eq!(
        told(&error),
        format!("`{name}` has no directory `infra/node` at commit {short}\nThere is `infra/nodes`.")
    );
    let file = Source { subdirectory: Subdirectory::parse("README.md").expect("inside"), ..fixture.source() };
    let error = fixture.read(&file).expect_err("a file");
    assert_eq!(error.to_string(), format!("`README.md` of `{name}` is a file, not a directory"));
}

#[test]
fn without_a_reference_head_is_followed() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    fixture.git(&["checkout", "--quiet", "-b", "trunk"]);
    let on_trunk = fixture.commit("second", &[("fleet.toml", "y")]);
    let resolved = fixture.resolve(&fixture.source()).expect("resolved");
    assert_eq!(
        (resolved.commit.as_str(), resolved.reference.as_deref()),
        (on_trunk.as_str(), Some("refs/heads/trunk"))
    );
    fixture.git(&["checkout", "--quiet", "--detach"]);
    let resolved = fixture.resolve(&fixture.source()).expect("resolved");
    assert_eq!((resolved.commit.as_str(), resolved.reference), (on_trunk.as_str(), None));
}

#[test]
fn git_008_an_ambiguous_word_names_both_references() {
    let fixture = Fixture::with(&[("a", "1")]);
    fixture.git(&["branch", "release-1"]);
    let old = fixture.git(&["rev-parse", "HEAD"]);
    fixture.commit("second", &[("a", "2")]);
    fixture.git(&["tag", "release-1"]);
    assert_eq!(
        fixture.resolve(&fixture.following(branch("release-1"))).expect("branch").commit.as_str(),
        old
    );
    let word = Reference::any("release-1").expect("a word");
    let error = fixture.resolve(&fixture.following(word)).expect_err("ambiguous");
    let name = fixture.work_tree().display().to_string();
    assert_eq!(
        told(&error),
        format!(
            "`release-1` is both a branch and a tag of `{name}`: `refs/heads/release-1` and `refs/tags/release-1`\n\
             Name it in full: `refs/heads/release-1` or `refs/tags/release-1`."
        )
    );
    assert_eq!(error.class(), ErrorClass::Input);
}

#[test]
fn git_009_annotated_tags_are_peeled_and_both_ids_kept() {
    let fixture = Fixture::with(&[("a", "1")]);
    fixture.git(&["tag", "light"]);
    fixture.git(&["tag", "-a", "v1", "-m", "one"]);
    fixture.git(&["tag", "-a", "v1-again", "-m", "a tag of a tag", "v1"]);
    let commit = fixture.git(&["rev-parse", "HEAD"]);
    for name in ["v1", "v1-again"] {
        let resolved = fixture.resolve(&fixture.following(tag(name))).expect(name);
        assert_eq!(resolved.commit.as_str(), commit);
        assert_eq!(resolved.tag.expect("annotated").as_str(), fixture.git(&["rev-parse", name]));
    }
    assert_eq!(fixture.resolve(&fixture.following(tag("light"))).expect("light").tag, None);
    // A tag may also name a file; that is no revision.
    let blob = fixture.git(&["rev-parse", "HEAD:a"]);
    fixture.git(&["tag", "file", &blob]);
    let error = fixture.resolve(&fixture.following(tag("file"))).expect_err("a blob");
    assert!(error.to_string().starts_with("`refs/tags/file` of `"), "{error}");
    assert!(error.to_string().ends_with("is a blob, not a commit"), "{error}");
}

#[test]
fn git_005_versions_are_looked_for_among_tags() {
    let fixture = Fixture::with(&[("a", "1")]);
    for name in ["v1.2.3", "v1.3.0", "v2.0.0-rc.1", "prod/v1.0.1", "nonsense"] {
        fixture.git(&["tag", name]);
    }
    let range = |range: &str, prefix: Option<&str>| {
        chosen(ReferenceFields {
            semver: Some(range.into()),
            tag_prefix: prefix.map(Into::into),
            ..ReferenceFields::default()
        })
    };
    let name =
        |reference| fixture.resolve(&fixture.following(reference)).expect("found").reference.expect("a tag");
    assert_eq!(&*name(range(">=1.0.0", None)), "refs/tags/v1.3.0");
    assert_eq!(&*name(range(">=1.0.0-0", None)), "refs/tags/v2.0.0-rc.1");
    assert_eq!(&*name(range("1.x", Some("prod/"))), "refs/tags/prod/v1.0.1");
    let error = fixture.resolve(&fixture.following(range("3.x", None))).expect_err("none");
    assert_eq!(
        error.help(),
        "The newest versions are `v2.0.0-rc.1`, `v1.3.0` and `v1.2.3`. A pre-release counts only if the range names one."
    );
}

#[test]
fn git_012_a_commit_must_be_part_of_the_branch_named_with_it() {
    let fixture = Fixture::with(&[("a", "1")]);
    let first = fixture.git(&["rev-parse", "HEAD"]);
    fixture.git(&["checkout", "--quiet", "-b", "side"]);
    let side = fixture.commit("aside", &[("a", "2")]);
    let at = |commit: &str, branch: Option<&str>| {
        let fields = ReferenceFields {
            commit: Some(commit.into()),
            branch: branch.map(Into::into),
            ..ReferenceFields::default()
        };
        fixture.resolve(&fixture.following(chosen(fields)))
    };
    assert_eq!(at(&first, Some("main")).expect("part of it").commit.as_str(), first);
    assert_eq!(at(&side, None).expect("no branch named").commit.as_str(), side);
    let error = at(&side, Some("main")).expect_err("not part of it");
    let name = fixture.work_tree().display().to_string();
    assert_eq!(error.to_string(), format!("commit {side} of `{name}` is not part of the branch `main`"));
    let unknown = "0123456789abcdef0123456789abcdef01234567";
    let error = at(unknown, None).expect_err("unknown");
    assert_eq!(error.to_string(), format!("`{name}` has no commit {unknown}"));
}

#[test]
fn an_unchanged_reference_resolves_to_the_same_value() {
    let fixture = Fixture::with(&[("a", "1")]);
    let source = git::open(&fixture.source(), &fixture.cache()).expect("opened");
    let before = source.resolve().expect("resolved");
    assert_eq!(source.resolve().expect("resolved"), before);
    fixture.commit("second", &[("a", "2")]);
    assert_ne!(source.resolve().expect("resolved"), before);
}

#[test]
fn commits_outside_the_subdirectory_do_not_change_the_content() {
    let fixture = Fixture::with(&[("nodes/fleet.toml", "x"), ("docs/a.md", "1")]);
    let source = Source { subdirectory: Subdirectory::parse("nodes").expect("inside"), ..fixture.source() };
    let before = fixture.read(&source).expect("read");
    fixture.commit("docs only", &[("docs/a.md", "2")]);
    let after = fixture.read(&source).expect("read");
    assert_ne!(before.revision.commit, after.revision.commit);
    assert_eq!(before.content_digest(), after.content_digest());
    fixture.commit("nodes", &[("nodes/fleet.toml", "y")]);
    assert_ne!(fixture.read(&source).expect("read").content_digest(), before.content_digest());
}

#[test]
fn a_missing_branch_is_an_error_with_the_names_there_are() {
    let fixture = Fixture::with(&[("a", "1")]);
    fixture.git(&["branch", "staging"]);
    let error = fixture.resolve(&fixture.following(branch("stagin"))).expect_err("missing");
    let name = fixture.work_tree().display().to_string();
    assert_eq!(told(&error), format!("`{name}` has no branch `stagin`\nThere is `staging` and `main`."));
    assert_eq!((error.class(), error.reason()), (ErrorClass::Input, "RefNotFound"));
}

#[test]
fn an_empty_repository_says_so() {
    let fixture = Fixture::empty();
    let name = fixture.work_tree().display().to_string();
    for reference in [Reference::Head, branch("main"), Reference::any("main").expect("a word")] {
        let error = fixture.resolve(&fixture.following(reference)).expect_err("empty");
        assert_eq!(
            told(&error),
            format!(
                "`{name}` is empty: it has no commit yet\nCommit and push the fleet; `provisor init` writes a first one."
            )
        );
        assert_eq!(error.class(), ErrorClass::Input);
    }
}

#[test]
fn an_unborn_head_names_the_branches_that_exist() {
    let fixture = Fixture::with(&[("a", "1")]);
    fixture.git(&["symbolic-ref", "HEAD", "refs/heads/trunk"]);
    let error = fixture.resolve(&fixture.source()).expect_err("unborn");
    let name = fixture.work_tree().display().to_string();
    assert_eq!(
        told(&error),
        format!(
            "HEAD of `{name}` names the branch `trunk`, which has no commit yet\n\
             Commit to it, or follow another reference: there is `main`."
        )
    );
}

#[test]
fn what_is_not_a_repository_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("file"), "x").expect("written");
    let open = |path: &str| {
        let path = dir.path().join(path);
        let error = git::open(&Source::new(path.to_str().expect("UTF-8")), dir.path()).expect_err("refused");
        assert_eq!(error.class(), ErrorClass::Input);
        error.to_string().replace(dir.path().to_str().expect("UTF-8"), "DIR")
    };
    assert_eq!(open("nothing"), "there is nothing at `DIR/nothing`");
    assert_eq!(open("file"), "`DIR/file` is not a directory");
    assert_eq!(open(""), "`DIR/` is not a Git repository");
}

#[test]
fn sha_256_repositories_are_named_as_unsupported() {
    let dir = tempfile::tempdir().expect("a directory");
    git_in(dir.path(), &["init", "--quiet", "--object-format=sha256"], b"");
    let error =
        git::open(&Source::new(dir.path().to_str().expect("UTF-8")), dir.path()).expect_err("refused");
    let name = dir.path().display();
    assert_eq!(error.to_string(), format!("`{name}` uses SHA-256 object ids, which is not supported"));
}

#[test]
fn git_035_nothing_of_a_repository_is_executed_and_blobs_are_verbatim() {
    let fixture = Fixture::with(&[
        (".gitattributes", "*.toml text eol=crlf ident export-ignore filter=evil\n"),
        ("fleet.toml", "id = '$Id$'\n"),
    ]);
    let trap = fixture.dir.path().join("trap");
    let command = format!("touch {}", trap.display());
    for key in [
        "core.fsmonitor",
        "filter.evil.smudge",
        "filter.evil.clean",
        "core.sshCommand",
        "core.alternateRefsCommand",
    ] {
        fixture.git(&["config", key, &command]);
    }
    fixture.git(&["config", "filter.evil.required", "true"]);
    fixture.git(&["config", "include.path", "/nonexistent"]);
    for hook in ["post-checkout", "reference-transaction", "post-index-change"] {
        fixture.write(&format!(".git/hooks/{hook}"), format!("#!/bin/sh\n{command}\n").as_bytes());
    }
    let repository = fixture.read(&fixture.source()).expect("read");
    assert_eq!(texts(&repository)["fleet.toml"], "id = '$Id$'\n");
    assert!(!trap.exists(), "nothing ran");
}

#[test]
fn replaced_objects_do_not_change_what_a_commit_says() {
    let fixture = Fixture::with(&[("a", "truth")]);
    let blob = fixture.git(&["rev-parse", "HEAD:a"]);
    let other = fixture.git_with_input(&["hash-object", "-w", "--stdin"], b"lies");
    fixture.git(&["replace", &blob, &other]);
    assert_eq!(texts(&fixture.read(&fixture.source()).expect("read"))["a"], "truth");
}

#[test]
fn a_damaged_object_is_named_and_never_used() {
    let fixture = Fixture::with(&[("a", "good")]);
    let blob = fixture.git(&["rev-parse", "HEAD:a"]);
    let other = fixture.git_with_input(&["hash-object", "-w", "--stdin"], b"evil");
    let loose = |id: &str| fixture.work_tree().join(".git/objects").join(&id[..2]).join(&id[2..]);
    let (damaged, intact) = (loose(&blob), loose(&other));
    let name = fixture.work_tree().display().to_string();
    std::fs::remove_file(&damaged).expect("removed");
    let error = fixture.read(&fixture.source()).expect_err("missing");
    assert_eq!(error.to_string(), format!("object {blob} of `{name}` is missing"));
    // A well-formed object under a wrong name: only hashing shows it.
    std::fs::copy(&intact, &damaged).expect("copied");
    let error = fixture.read(&fixture.source()).expect_err("wrong content");
    assert_eq!(
        told(&error),
        format!(
            "object {blob} of `{name}` is damaged: its content does not match its id\n\
             Run `git fsck` there, and fetch or clone the repository again."
        )
    );
    std::fs::remove_file(&damaged).expect("removed");
    std::fs::write(&damaged, b"not zlib at all").expect("written");
    let error = fixture.read(&fixture.source()).expect_err("garbage");
    assert!(matches!(error, GitError::Corrupt { .. }), "{error}");
    assert_eq!(error.class(), ErrorClass::Input);
}

#[test]
fn rewritten_history_is_told_apart() {
    let fixture = Fixture::with(&[("a", "1")]);
    let first = fixture.git(&["rev-parse", "HEAD"]);
    let second = fixture.commit("second", &[("a", "2")]);
    fixture.git(&["reset", "--quiet", "--hard", &first]);
    let other = fixture.commit("other", &[("a", "3")]);
    fixture.git(&["checkout", "--quiet", "--orphan", "new"]);
    let unrelated = fixture.commit("unrelated", &[("a", "4")]);
    let source = git::open(&fixture.source(), &fixture.cache()).expect("opened");
    let id = |text: &str| CommitId::parse(text).expect("an id");
    let history = |old: &str, new: &str| {
        source.history(&id(old), &id(new), &AtomicBool::new(false)).expect("both are here")
    };
    let rewritten = |old: &str, new: &str, how, dropped: &[(&str, &str)]| {
        let dropped = dropped
            .iter()
            .map(|(commit, subject)| DroppedCommit { commit: id(commit), subject: (*subject).into() });
        History::Rewritten { old: id(old), new: id(new), how, dropped: dropped.collect() }
    };
    assert_eq!(history(&first, &first), History::Same);
    assert_eq!(history(&first, &second), History::FastForward);
    assert_eq!(
        history(&second, &first),
        rewritten(&second, &first, Rewrite::Rewound, &[(&second, "second")])
    );
    assert_eq!(
        history(&second, &other),
        rewritten(&second, &other, Rewrite::Diverged, &[(&second, "second")])
    );
    let all = [(&*second, "second"), (&*first, "first")];
    assert_eq!(history(&second, &unrelated), rewritten(&second, &unrelated, Rewrite::Unrelated, &all));
    let gone = "0123456789abcdef0123456789abcdef01234567";
    assert_eq!(history(gone, &first), rewritten(gone, &first, Rewrite::Unknown, &[]));
}
