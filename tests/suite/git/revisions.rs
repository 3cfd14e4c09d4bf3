//! Which commit the words of a command line name, in repositories here and on a server.

use std::path::Path;
use std::process::Output;

use provisor::io::git::{ErrorClass, GitError, Reference, Source};

use super::fixture::{Fixture, texts, told};
use super::server::HttpServer;

fn word(source: Source, text: &str) -> Source {
    Source { reference: Reference::any(text).expect(text), ..source }
}

/// Three commits of `a` on `main`, then a merge of a side branch.
fn history() -> (Fixture, Vec<String>) {
    let fixture = Fixture::with(&[("a", "1")]);
    let mut commits = vec![fixture.git(&["rev-parse", "HEAD"])];
    commits.push(fixture.commit("second", &[("a", "2")]));
    commits.push(fixture.commit("third", &[("a", "3")]));
    fixture.git(&["checkout", "--quiet", "-b", "side", "HEAD~2"]);
    commits.push(fixture.commit("side", &[("b", "side")]));
    fixture.git(&["checkout", "--quiet", "main"]);
    fixture.git(&["merge", "--quiet", "--no-ff", "-m", "merge", "side"]);
    commits.push(fixture.git(&["rev-parse", "HEAD"]));
    fixture.git(&["tag", "-a", "v1.0", "-m", "one", "HEAD~1"]);
    (fixture, commits)
}

/// What Git notes beside the references is a name here, and none on a server.
#[test]
fn what_was_fetched_last_has_a_name() {
    let (fixture, commits) = history();
    let error = fixture.read(&word(fixture.source(), "FETCH_HEAD")).expect_err("nothing was fetched");
    assert!(told(&error).contains("has no branch or tag `FETCH_HEAD`"), "{}", told(&error));
    let path = fixture.work_tree().display().to_string();
    fixture.git(&["fetch", "--quiet", &path, "side"]);
    fixture.git(&["update-ref", "ORIG_HEAD", &commits[1]]);
    for (text, commit) in
        [("FETCH_HEAD", &commits[3]), ("ORIG_HEAD", &commits[1]), ("FETCH_HEAD~1", &commits[0])]
    {
        let repository = fixture.read(&word(fixture.source(), text)).expect(text);
        assert_eq!(
            (repository.revision.commit.as_str(), repository.revision.reference),
            (commit.as_str(), None)
        );
    }
    let server = HttpServer::start(fixture.dir.path());
    let remote = Source { allow_insecure_http: true, ..Source::new(server.url()) };
    assert!(fixture.read(&word(remote, "FETCH_HEAD")).is_err());
}

#[test]
fn the_way_back_from_a_commit_is_walked_as_git_walks_it_here_and_on_a_server() {
    let (fixture, _) = history();
    let server = HttpServer::start(fixture.dir.path());
    let remote = Source { allow_insecure_http: true, ..Source::new(server.url()) };
    for text in
        ["HEAD~1", "@^", "main^2", "main~2", "main^^", "v1.0~1", "v1.0^0", "main^2~1", "refs/heads/main~3"]
    {
        let wanted = fixture.git(&["rev-parse", &format!("{text}^{{commit}}")]);
        for source in [fixture.source(), remote.clone()] {
            let repository = fixture.read(&word(source, text)).expect(text);
            assert_eq!(repository.revision.commit.as_str(), wanted, "{text}");
            assert_eq!(repository.revision.reference, None, "{text}");
        }
    }
    let fetches = server.fetches();
    fixture.read(&word(remote.clone(), "main~2")).expect("known");
    assert_eq!(server.fetches(), fetches, "what is here is not fetched again");
    for (text, said) in [
        ("HEAD~9", "has no `HEAD~9`: commit"),
        ("main~3^2", "is the first one"),
        ("main~1^2", "has one parent"),
        ("main^3", "has 2 parents"),
        ("gone~1", "has no branch or tag `gone`"),
    ] {
        for source in [fixture.source(), remote.clone()] {
            let error = fixture.read(&word(source, text)).expect_err(text);
            assert!(told(&error).contains(said), "{text}: {}", told(&error));
        }
    }
}

#[test]
fn the_beginning_of_an_id_names_the_one_commit_that_begins_so() {
    let (fixture, commits) = history();
    let server = HttpServer::start(fixture.dir.path());
    let remote = Source { allow_insecure_http: true, ..Source::new(server.url()) };
    for commit in &commits {
        for source in [fixture.source(), remote.clone()] {
            for text in [&commit[..10], &commit[..10].to_uppercase()] {
                let repository = fixture.read(&word(source.clone(), text)).expect(text);
                assert_eq!(repository.revision.commit.as_str(), commit, "{text}");
            }
            let before = fixture.read(&word(source, &format!("{}^0", &commit[..12]))).expect("found");
            assert_eq!(before.revision.commit.as_str(), commit);
        }
    }
    for source in [fixture.source(), remote.clone()] {
        let error = fixture.read(&word(source, "00000000")).expect_err("no such commit");
        assert!(
            matches!(&error, GitError::RefNotFound { wanted, .. } if wanted == "branch, tag or commit `00000000`")
        );
    }
    // A branch is meant if there is one: Git reads it so too.
    let digits = commits[0][..8].to_owned();
    fixture.git(&["branch", &digits, "main"]);
    for source in [fixture.source(), remote] {
        let repository = fixture.read(&word(source, &digits)).expect("a branch");
        assert_eq!(repository.revision.commit.as_str(), commits[4]);
    }
}

#[test]
fn digits_that_begin_two_commits_are_an_error_that_lists_them() {
    let fixture = Fixture::with(&[("a", "1")]);
    // Among some hundred commits two begin with the same four digits soon; the seed of chance is the count.
    fixture.grow(1200);
    let all = fixture.git(&["rev-list", "main"]);
    let mut ids: Vec<&str> = all.lines().collect();
    ids.sort_unstable();
    let pair = ids.windows(2).find(|pair| pair[0][..4] == pair[1][..4]).expect("birthdays coincide");
    let server = HttpServer::start(fixture.dir.path());
    let remote = Source { allow_insecure_http: true, ..Source::new(server.url()) };
    for source in [fixture.source(), remote] {
        let error = fixture.read(&word(source, &pair[0][..4])).expect_err("two");
        assert!(matches!(&error, GitError::AmbiguousCommit { count, .. } if *count >= 2), "{error}");
        assert!(told(&error).contains(pair[0]) && told(&error).contains(pair[1]), "{}", told(&error));
    }
}

#[test]
fn a_shallow_clone_says_that_its_history_is_cut_off() {
    let (fixture, commits) = history();
    let clone = fixture.dir.path().join("clone");
    let url = format!("file://{}", fixture.work_tree().display());
    super::fixture::git_in(
        fixture.dir.path(),
        &["clone", "--quiet", "--depth=1", &url, clone.to_str().expect("UTF-8")],
        b"",
    );
    let source = || Source::new(clone.to_str().expect("UTF-8"));
    let error = fixture.read(&word(source(), &commits[0])).expect_err("cut off");
    assert!(matches!(&error, GitError::CommitCutOff { .. }), "{error}");
    assert!(error.help().starts_with("It is a shallow clone: "), "{}", error.help());
    assert_eq!(error.class(), ErrorClass::Outside, "what is missing can be fetched");
    let whole = fixture.source();
    let error = fixture.read(&word(whole, &"0".repeat(40))).expect_err("no such commit");
    assert_eq!(error.class(), ErrorClass::Input, "{error}");
    let error = fixture.read(&word(source(), "HEAD~1")).expect_err("cut off");
    assert_eq!(error.class(), ErrorClass::Outside);
    assert_eq!(
        told(&error).lines().last(),
        Some("Is it a shallow clone? `git fetch --unshallow` there brings the rest.")
    );
}

#[test]
fn a_head_on_no_branch_is_no_empty_repository() {
    let fixture = Fixture::with(&[("a", "1")]);
    fixture.git(&["checkout", "--quiet", "--detach"]);
    fixture.git(&["branch", "--quiet", "-D", "main"]);
    let error = fixture.read(&word(fixture.source(), "main")).expect_err("deleted");
    assert!(error.to_string().ends_with("has no branch or tag `main`"), "{error}");
    assert_eq!(
        error.help(),
        "The repository has no branch and no tag of that kind; push one, or name another."
    );
    assert_eq!(texts(&fixture.read(&fixture.source()).expect("HEAD"))["a"], "1");
}

fn provisor(dir: &Path, words: &[&str]) -> Output {
    let mut command = assert_cmd::Command::cargo_bin("provisor").expect("the program is built");
    command.current_dir(dir).args(words).env_remove("PROVISOR_REPO");
    command.output().expect("it runs")
}

fn environment(weight: u32) -> String {
    format!("[classes.default]\nrole = \"shop\"\n\n[pools.general]\nstrategy = \"spot\"\nweight = {weight}\n")
}

#[test]
fn every_verb_takes_a_version_range_a_tag_a_branch_and_a_commit() {
    let fixture =
        Fixture::with(&[("fleet.toml", "name = \"shop\"\n"), ("environments/prod.toml", &environment(1))]);
    fixture.git(&["tag", "prod/v1.0.0"]);
    let next = |weight: u32| fixture.commit("next", &[("environments/prod.toml", &environment(weight))]);
    let second = next(2);
    fixture.git(&["tag", "prod/v1.1.0"]);
    next(3);
    fixture.git(&["tag", "prod/v2.0.0-rc.1"]);
    fixture.git(&["branch", "release"]);
    next(4);
    fixture.git(&["tag", "release"]);
    next(5);
    let weight = |words: &[&str]| {
        let mut line = vec!["render", "prod", "-o", "json"];
        line.extend(words);
        let done = provisor(&fixture.work_tree(), &line);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let document: serde_json::Value = serde_json::from_slice(&done.stdout).expect(&said);
        let text = document.to_string();
        let at = text.find("\"weight\":").expect("a pool") + 9;
        text[at..=at].to_owned()
    };
    for (words, expected) in [
        (&["--semver", "1.x", "--tag-prefix", "prod/"][..], "2"),
        (&["--semver", ">=1.0.0-0", "--tag-prefix", "prod/"], "3"),
        (&["--semver", "<1.1", "--tag-prefix", "prod/", "--tag", "release"], "1"),
        (&["--branch", "release"], "3"),
        (&["--tag", "release"], "4"),
        (&["--tag", "release", "--branch", "main"], "4"),
        (&["--commit", &second, "--branch", "main"], "2"),
        (&["--ref", "HEAD~1"], "4"),
        (&["--ref", &second[..9]], "2"),
        (&[], "5"),
    ] {
        assert_eq!(weight(words), expected, "{words:?}");
    }
    for verb in [
        &["validate"][..],
        &["render", "prod"],
        &["diff", "prod", "--no-exit-code"],
        &["explain", "prod", "general"],
        &["plan", "prod"],
        &["simulate", "--for", "1m"],
        &["run", "--for", "1s"],
    ] {
        let on = |more: &[&str]| {
            let mut line = verb.to_vec();
            match verb[0] {
                "validate" | "simulate" | "plan" | "render" | "diff" | "explain" | "run" => line.extend(more),
                _ => unreachable!(),
            }
            let done = provisor(&fixture.work_tree(), &line);
            (done.status.code().expect("it ends"), String::from_utf8_lossy(&done.stderr).into_owned())
        };
        let found = on(&["--semver", "1.x", "--tag-prefix", "prod/"]);
        assert_eq!(found.0, 0, "{verb:?}: {}", found.1);
        let (code, said) = on(&["--semver", "3.x", "--tag-prefix", "prod/"]);
        assert_eq!(code, 2, "{verb:?}: {said}");
        assert!(
            said.contains("is a version in the range `3.x` after the prefix `prod/`"),
            "{verb:?}: {said}"
        );
        assert!(said.contains("`prod/v1.1.0`"), "{verb:?}: {said}");
        for wrong in [
            &["--ref", ""][..],
            &["--ref", "a..b"],
            &["--ref", "HEAD~x"],
            &["--ref", "main", "--branch", "main"],
            &["--tag-prefix", "prod/"],
            &["--semver", "one"],
            &["--branch", ""],
            &["--commit", "8c1f0a9"],
            &["--limit", "file=1", "--ref", "main"],
            &["--limit", "files=x"],
            &["--path", "../x"],
            &["--submodules", "nonsense", "--ref", "main"],
            &["--credential-template", "x", "--ref", "main"],
        ] {
            let (code, said) = on(wrong);
            assert_eq!(code, 64, "{verb:?} {wrong:?}: {said}");
            assert!(said.contains("error"), "{verb:?} {wrong:?}: {said}");
        }
    }
    let (code, said) = {
        let done = provisor(&fixture.work_tree(), &["validate", "--ref", ">=1.0.0"]);
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    assert_eq!(code, Some(2));
    assert!(said.contains("`--semver '>=1.0.0'`"), "{said}");
    assert_eq!(provisor(&fixture.work_tree(), &["validate", ""]).status.code(), Some(64));
}
