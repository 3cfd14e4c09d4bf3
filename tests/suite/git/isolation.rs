//! The settings of a user and a machine have no effect. They are read from the environment, so the test that has them
//! runs again as a process of its own.

use std::process::Command;

use provisor::io::git::{self, Source};

use super::fixture::{Fixture, texts};
use super::server::{HttpServer, RUN_COMMAND, fake_ssh, status};

const ADDRESS: &str = "PROVISOR_TEST_ADDRESS";

#[test]
fn git_034_netrc_credential_helpers_and_git_variables_are_not_consulted() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let closed = HttpServer::scripted(fixture.dir.path(), |_| {
        status("401 Unauthorized", "WWW-Authenticate: Basic realm=\"git\"\r\n")
    });
    let home = fixture.dir.path().join("home");
    std::fs::create_dir(&home).expect("a directory");
    let trap = fixture.dir.path().join("trap");
    let command = format!("touch {}", trap.display());
    let config = format!(
        "[credential]\nhelper = \"!{command}; echo username=ada; echo password=secret\"\n[core]\nsshCommand = {command}\n\
         [http]\nextraHeader = \"X-Trap: 1\"\n[url \"http://127.0.0.1:1/\"]\ninsteadOf = http://127.0.0.1:{}/\n",
        closed.port
    );
    std::fs::write(home.join(".gitconfig"), &config).expect("written");
    std::fs::write(home.join(".netrc"), "machine 127.0.0.1 login ada password secret\n").expect("written");
    // Which hosts are known is the one thing that a person's own files say.
    std::fs::create_dir(home.join(".ssh")).expect("a directory");
    std::fs::write(home.join(".ssh/known_hosts"), "").expect("written");
    // A program named `ssh` on the path is what is started, and nothing else.
    let program = fake_ssh(&home, RUN_COMMAND);
    std::fs::rename(program, home.join("ssh")).expect("renamed");
    let path = std::env::var("PATH").expect("a path");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "git::isolation::with_everything_set", "--ignored", "--nocapture"])
        .env(ADDRESS, format!("{}\n{}", closed.url(), fixture.work_tree().display()))
        .env("PATH", format!("{}:{path}", home.display()))
        .env("HOME", &home)
        .env("XDG_CONFIG_HOME", &home)
        .env("GIT_CONFIG_GLOBAL", home.join(".gitconfig"))
        .env("GIT_SSH_COMMAND", &command)
        .env("GIT_SSH", "/nonexistent")
        .env("GIT_ASKPASS", &command)
        .env("GIT_DIR", "/nonexistent")
        .env("GIT_OBJECT_DIRECTORY", "/nonexistent")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "http.extraHeader")
        .env("GIT_CONFIG_VALUE_0", "X-Trap: 2")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert!(!trap.exists(), "nothing that was configured ran");
    let asked = closed.asked();
    assert_eq!(asked.len(), 1, "asked once, without trying credentials");
    assert!(
        !asked[0].headers.contains_key("authorization") && !asked[0].headers.contains_key("x-trap"),
        "{asked:?}"
    );
}

#[test]
#[ignore = "started by the test above, in an environment full of traps"]
fn with_everything_set() {
    let given = std::env::var(ADDRESS).expect("two addresses");
    let (closed, work_tree) = given.split_once('\n').expect("two addresses");
    let cache = tempfile::tempdir().expect("a directory");
    let closed = Source { allow_insecure_http: true, ..Source::new(closed) };
    let error = git::open(&closed, cache.path()).expect("opened").resolve().expect_err("closed");
    assert_eq!(error.reason(), "AuthenticationFailed", "{error}");
    for address in [work_tree.to_owned(), format!("ssh://git@example.com{work_tree}")] {
        let source = git::open(&Source::new(&address), cache.path()).expect("opened");
        let resolved = source.resolve().expect(&address);
        let repository = source.fetch(&resolved, &|_| (), &false.into()).expect(&address);
        assert_eq!(texts(&repository)["fleet.toml"], "x");
    }
}
