//! Broken repositories and addresses through the real program: one clear error with its place, the right exit code, nothing applied.

use std::process::Output;

use super::fixture::Fixture;
use super::server::{HttpServer, status};

const FLEET: (&str, &str) = ("fleet.toml", "name = \"shop\"\n");
const PROD: (&str, &str) = ("environments/prod.toml", "[pools.general]\nstrategy = \"spot\"\n");

fn fleet() -> Fixture {
    Fixture::with(&[FLEET, PROD])
}

fn provisor(fixture: &Fixture, words: &[&str]) -> Output {
    let mut command = assert_cmd::Command::cargo_bin("provisor").expect("the program is built");
    command
        .env("XDG_CACHE_HOME", fixture.cache())
        .env("HOME", fixture.dir.path())
        .env_remove("PROVISOR_REPO");
    command.current_dir(fixture.dir.path()).args(words).output().expect("it runs")
}

/// Both the verb that judges and the one that applies say the same, once, and nothing is applied.
fn refused(fixture: &Fixture, place: &str, more: &[&str], code: i32, says: &[&str]) {
    let validate = [&["validate", place], more].concat();
    let run = [&["run", "--for", "1s", "--repo", place], more].concat();
    for words in [validate, run] {
        let output = provisor(fixture, &words);
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let context = format!("{words:?}\n{stdout}\n{stderr}");
        assert_eq!(output.status.code(), Some(code), "{context}");
        for text in says {
            assert!(stderr.contains(text), "no `{text}` in: {context}");
        }
        let errors = stderr.lines().filter(|line| line.starts_with("error")).count();
        assert_eq!(errors, 1, "one error: {context}");
        assert!(stderr.contains("help: "), "{context}");
        assert!(!stderr.contains("panicked"), "{context}");
        for applied in ["created", "NodePool/", "applied"] {
            assert!(!stdout.contains(applied), "something was done: {context}");
        }
    }
}

/// The commit in a local repository, named by its address so that the files on disk do not count.
fn committed(fixture: &Fixture, says: &[&str]) {
    refused(fixture, &format!("file://{}", fixture.work_tree().display()), &[], 2, says);
}

#[test]
fn a_file_of_a_hundred_megabytes() {
    let fixture = Fixture::with(&[FLEET]);
    let big = std::fs::File::create(fixture.work_tree().join("prod.toml")).expect("a file");
    big.set_len(100 << 20).expect("a sparse file");
    std::fs::create_dir(fixture.work_tree().join("environments")).expect("a directory");
    std::fs::rename(
        fixture.work_tree().join("prod.toml"),
        fixture.work_tree().join("environments/prod.toml"),
    )
    .expect("moved");
    let says = ["environments/prod.toml:1:1", "PRV1003", "104857600 bytes, and a file may have 1048576"];
    let output = provisor(&fixture, &["validate", "fleet"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(says.iter().all(|text| stderr.contains(text)), "{stderr}");
    fixture.commit("big", &[]);
    committed(&fixture, &says);
}

#[test]
fn a_symbolic_link_in_place_of_an_environment() {
    for (target, more, says) in [
        ("../real.toml", &[][..], "the path is a symbolic link"),
        ("/etc/passwd", &["--symlinks", "within-repo"], "the path is a symbolic link to an absolute path"),
        (
            "../../../x",
            &["--symlinks", "within-repo"],
            "the path is a symbolic link that leaves the repository",
        ),
        (
            "prod.toml",
            &["--symlinks", "within-repo"],
            "the path is a symbolic link that leads back to itself",
        ),
    ] {
        let fixture = Fixture::with(&[FLEET, ("real.toml", PROD.1)]);
        std::fs::create_dir(fixture.work_tree().join("environments")).expect("a directory");
        std::os::unix::fs::symlink(target, fixture.work_tree().join(PROD.0)).expect("a link");
        fixture.commit("link", &[]);
        let address = format!("file://{}", fixture.work_tree().display());
        refused(&fixture, &address, more, 2, &["environments/prod.toml:1:1", "PRV1004", says]);
    }
}

#[test]
fn a_submodule_in_place_of_the_templates() {
    let fixture = fleet();
    super::fixture::git_in(fixture.dir.path(), &["clone", "--quiet", "fleet", "other"], b"");
    fixture.git(&["submodule", "--quiet", "add", "../other", "templates"]);
    fixture.commit("submodule", &[]);
    committed(&fixture, &["templates:1:1", "PRV1005", "a submodule or a nested repository"]);
    let address = format!("file://{}", fixture.work_tree().display());
    let more = ["--submodules", "https://git.example.com/team"];
    refused(&fixture, &address, &more, 2, &["the submodule `templates`", "refused"]);
}

#[test]
fn a_pointer_to_large_file_storage() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    let fixture = Fixture::with(&[FLEET, (PROD.0, pointer)]);
    committed(&fixture, &["environments/prod.toml:1:1", "PRV1006", "a Git LFS pointer"]);
}

#[test]
fn a_name_that_cannot_be_a_path() {
    let fixture = Fixture::with(&[FLEET, PROD]);
    fixture.git(&["mv", "environments/prod.toml", "environments/prod\\x.toml"]);
    fixture.commit("name", &[]);
    committed(&fixture, &["environments/prod\\x.toml", "PRV1007", "cannot be used safely"]);
}

#[test]
fn repositories_without_a_commit_or_a_fleet() {
    let empty = Fixture::empty();
    committed(&empty, &["is empty: it has no commit yet", "provisor init"]);
    let unborn = fleet();
    unborn.git(&["symbolic-ref", "HEAD", "refs/heads/later"]);
    committed(&unborn, &["names the branch `later`, which has no commit yet", "`main`"]);
    let no_fleet = Fixture::with(&[("README.md", "x")]);
    committed(&no_fleet, &["fleet.toml:1:1", "PRV1101", "there is no fleet.toml"]);
    let elsewhere = Fixture::with(&[("infra/fleet.toml", FLEET.1), ("infra/environments/prod.toml", PROD.1)]);
    committed(&elsewhere, &["fleet.toml:1:1", "there is one in `infra`"]);
}

#[test]
fn references_that_lead_nowhere() {
    let fixture = fleet();
    fixture.git(&["branch", "staging"]);
    fixture.git(&["tag", "staging"]);
    let blob = fixture.git(&["rev-parse", "HEAD:fleet.toml"]);
    fixture.git(&["tag", "blob", &blob]);
    for (reference, says) in [
        ("mian", "has no branch or tag `mian`"),
        ("refs/heads/stagin", "has no reference `refs/heads/stagin`"),
        ("staging", "is both a branch and a tag"),
        ("blob", "is a blob, not a commit"),
        (&"8".repeat(40), "has no commit 8888888888888888888888888888888888888888"),
    ] {
        let more = [format!("--ref={reference}")];
        refused(&fixture, "fleet", &[&more[0]], 2, &[says]);
    }
    for reference in ["-x", "a..b", ""] {
        let more = [format!("--ref={reference}")];
        refused(&fixture, "fleet", &[&more[0]], 64, &[reference]);
    }
}

#[test]
fn directories_that_are_not_there() {
    let fixture = fleet();
    refused(
        &fixture,
        "fleet",
        &["--ref", "main", "--path", "environment"],
        2,
        &["has no directory `environment`", "`environments`"],
    );
    refused(
        &fixture,
        "fleet",
        &["--ref", "main", "--path", "../x"],
        64,
        &["is not a path inside a repository"],
    );
    refused(
        &fixture,
        "fleet",
        &["--ref", "main", "--path", "fleet.toml"],
        2,
        &["is a file, not a directory"],
    );
    refused(&fixture, "nowhere", &["--ref", "main"], 2, &["there is nothing at"]);
    std::fs::create_dir(fixture.dir.path().join("plain")).expect("a directory");
    refused(&fixture, "plain", &["--ref", "main"], 2, &["is not a Git repository", "git init"]);
}

#[test]
fn addresses_that_are_no_addresses() {
    let fixture = fleet();
    for (address, says) in [
        ("https://ada:secret@git.example.com/fleet", "has a password in it"),
        ("git://git.example.com/fleet", "uses the git protocol"),
        ("http://git.example.com/fleet", "is not encrypted"),
        ("ext::sh -c true", "names a program to run"),
        ("ssh://-oProxyCommand=true/fleet", "begins with `-`"),
        ("git@git.example.com:2222/fleet", "looks like a port"),
        ("https://git.example.com", "names no repository"),
        ("https://", "names no host"),
    ] {
        refused(&fixture, address, &[], 2, &[says]);
        let output = provisor(&fixture, &["validate", address]);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"), "{address}");
    }
}

#[test]
fn limits_and_settings_that_stop_it() {
    let fixture = fleet();
    let address = format!("file://{}", fixture.work_tree().display());
    for (more, says) in [
        (&["--limit", "files=1"][..], "has more than 1 directories to consider"),
        (&["--limit", "total_bytes=10"], "are more than 10 bytes together"),
    ] {
        refused(&fixture, &address, more, 2, &[says]);
    }
    let https = "https://127.0.0.1:1/fleet";
    refused(
        &fixture,
        https,
        &["--credentials", "nowhere"],
        2,
        &["the credentials `nowhere` could not be read"],
    );
    for (more, says) in [
        (&["--limit", "filez=1"][..], "there is no limit `filez`"),
        (&["--limit", "files=many"], "`many` is not a count above zero"),
        (&["--credential-template", "https://127.0.0.1:1"], "is not `PREFIX=DIRECTORY`"),
        (&["--submodules", "ext::sh"], "names a program to run"),
    ] {
        refused(&fixture, https, more, 64, &[says]);
    }
    refused(&fixture, "ssh://git@127.0.0.1:1/fleet", &[], 2, &["`known_hosts` is missing"]);
    refused(
        &fixture,
        "ssh://git@127.0.0.1:1/fleet",
        &["--known-hosts", "none"],
        2,
        &["`none` does not exist"],
    );
}

#[test]
fn damaged_objects() {
    let fixture = fleet();
    let blob = fixture.git(&["rev-parse", "HEAD:environments/prod.toml"]);
    let file = fixture.work_tree().join(".git/objects").join(&blob[..2]).join(&blob[2..]);
    let mut permissions = std::fs::metadata(&file).expect("a loose object").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
    std::fs::set_permissions(&file, permissions).expect("writable");
    std::fs::write(&file, b"garbage").expect("written");
    committed(&fixture, &[&blob, "git fsck"]);
    std::fs::remove_file(&file).expect("removed");
    committed(&fixture, &[&blob, "missing"]);
}

#[test]
fn failures_of_the_world_outside_have_their_own_code() {
    let fixture = fleet();
    let insecure = "--allow-insecure-http";
    for (line, says) in [
        ("401 Unauthorized", "asks for credentials (HTTP 401)"),
        ("403 Forbidden", "refuses access (HTTP 403)"),
        ("404 Not Found", "the server has no repository at"),
        ("429 Too Many Requests", "limits the rate of requests (HTTP 429)"),
        ("503 Service Unavailable", "failed (HTTP 503)"),
        ("200 OK", "is not a Git repository"),
    ] {
        let server = HttpServer::scripted(fixture.dir.path(), move |_| status(line, ""));
        refused(&fixture, &server.url(), &[insecure], 3, &[says]);
    }
    refused(&fixture, "http://127.0.0.1:1/fleet", &[insecure], 3, &["cannot be reached"]);
}

#[test]
fn a_commit_that_does_not_parse() {
    let fixture = fleet();
    fixture.commit("broken", &[(PROD.0, "[pools.general]\nstrategy = \"spot\n")]);
    committed(&fixture, &["environments/prod.toml:2:", "PRV1009"]);
}
