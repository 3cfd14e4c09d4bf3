//! Repositories behind `ssh`, with a program in its place that runs the remote command here.

use std::path::PathBuf;

use provisor::io::git::{Access, ErrorClass, GitError, NextStep, Source};

use super::fixture::{Fixture, texts};
use super::server::{RUN_COMMAND, fake_ssh};

/// A file of host keys; who only plays ssh does not look into it.
fn known_hosts(fixture: &Fixture) -> Access {
    let file = fixture.dir.path().join("known hosts");
    std::fs::write(&file, "").expect("written");
    Access { known_hosts: Some(file), ..Access::default() }
}

fn source(fixture: &Fixture, script: &str) -> Source {
    let ssh_program = fake_ssh(fixture.dir.path(), script);
    Source {
        ssh_program,
        access: known_hosts(fixture),
        ..Source::new(format!("ssh://git@example.com:2222{}", fixture.work_tree().display()))
    }
}

#[test]
fn a_repository_is_read_over_ssh_without_anybodys_settings() {
    let fixture = Fixture::with(&[("fleet.toml", "x"), ("a dir/it's.toml", "y")]);
    let source = source(&fixture, RUN_COMMAND);
    let first = fixture.read(&source).expect("read");
    assert_eq!(first, fixture.read(&fixture.source()).expect("read"));
    fixture.commit("second", &[("fleet.toml", "z")]);
    assert_eq!(texts(&fixture.read(&source).expect("read again"))["fleet.toml"], "z");

    let noted = |name: &str| std::fs::read_to_string(fixture.dir.path().join(name)).expect("noted");
    let path = fixture.work_tree().display().to_string();
    let arguments = noted("ssh-args");
    let arguments: Vec<&str> = arguments.lines().collect();
    let command = format!("git-upload-pack '{path}'");
    let hosts = format!("UserKnownHostsFile=\"{}\"", fixture.dir.path().join("known hosts").display());
    let options = [
        "StrictHostKeyChecking=yes",
        "GlobalKnownHostsFile=/dev/null",
        "UpdateHostKeys=no",
        "ForwardAgent=no",
        "ClearAllForwardings=yes",
        "SendEnv=GIT_PROTOCOL",
        "LogLevel=DEBUG1",
        "ConnectTimeout=10",
        &hosts,
        "BatchMode=yes",
    ];
    let mut expected = vec!["-F", "none"];
    expected.extend(options.iter().flat_map(|option| ["-o", *option]));
    expected.extend(["-p", "2222", "--", "git@example.com", &command]);
    assert_eq!(arguments, expected);
    let variables = noted("ssh-env");
    let of_git: Vec<&str> = variables.lines().filter(|line| line.starts_with("GIT_")).collect();
    assert_eq!(of_git, ["GIT_PROTOCOL=version=2"]);
}

#[test]
fn the_scp_form_counts_from_the_home_directory() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let home = fixture.dir.path().display().to_string();
    let ssh_program = fake_ssh(fixture.dir.path(), &format!("cd '{home}'\n{RUN_COMMAND}"));
    let access = known_hosts(&fixture);
    let source = Source { ssh_program, access, ..Source::new("git@example.com:fleet") };
    assert_eq!(texts(&fixture.read(&source).expect("read"))["fleet.toml"], "x");
}

#[test]
fn old_servers_that_know_no_version_2_are_understood() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    fixture.git(&["tag", "-a", "v1", "-m", "one"]);
    let source = source(&fixture, &format!("unset GIT_PROTOCOL\n{RUN_COMMAND}"));
    assert_eq!(texts(&fixture.read(&source).expect("read"))["fleet.toml"], "x");
    fixture.commit("second", &[("fleet.toml", "y")]);
    assert_eq!(texts(&fixture.read(&source).expect("read again"))["fleet.toml"], "y");
}

#[test]
fn what_ssh_says_becomes_an_error_of_ours() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let error_of = |script: &str| fixture.resolve(&source(&fixture, script)).expect_err(script);

    let error = error_of("echo 'WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!' >&2; exit 255");
    assert_eq!(
        error.to_string(),
        "the host key of [example.com]:2222 is not the known one: somebody may be in between"
    );
    assert_eq!((error.reason(), error.next_step()), ("HostKeyMismatch", NextStep::Retry { after: None }));

    let words = "No ED25519 host key is known for example.com and you have requested strict checking.";
    let error = error_of(&format!("echo '{words}' >&2; echo 'Host key verification failed.' >&2; exit 255"));
    assert_eq!(error.to_string(), "the host key of [example.com]:2222 is not known");
    assert_eq!(error.next_step(), NextStep::NeedsPerson);

    let error = error_of("echo 'git@example.com: Permission denied (publickey).' >&2; exit 255");
    assert!(
        error.to_string().ends_with("asks for credentials (git@example.com: Permission denied (publickey).)"),
        "{error}"
    );

    let words = "ssh: Could not resolve hostname example.com: Name or service not known";
    let error = error_of(&format!("echo '{words}' >&2; exit 255"));
    assert!(matches!(error, GitError::Unreachable { .. }), "{error}");
    assert!(error.to_string().ends_with(words), "{error}");
    assert_eq!(error.class(), ErrorClass::Outside);

    let missing =
        Source { url: "ssh://git@example.com/nonexistent/repo".into(), ..source(&fixture, RUN_COMMAND) };
    let error = fixture.resolve(&missing).expect_err("no such repository");
    assert!(matches!(error, GitError::NotFoundOnServer { .. }), "{error}");
}

#[test]
fn a_machine_without_ssh_is_told_what_to_install() {
    let fixture = Fixture::empty();
    let (ssh_program, access) = (PathBuf::from("/nonexistent/ssh"), known_hosts(&fixture));
    let source = Source { ssh_program, access, ..Source::new("git@example.com:fleet") };
    let error = fixture.resolve(&source).expect_err("no program");
    assert_eq!(
        error.to_string(),
        "the program `ssh` is needed for `ssh://git@example.com/fleet` and could not be started"
    );
    assert_eq!(error.help(), "Install OpenSSH's client, or use an `https://` address.");
    assert_eq!(error.class(), ErrorClass::Outside);
}

#[test]
fn git_064_a_silent_ssh_is_ended_at_the_deadline() {
    let fixture = Fixture::empty();
    let mut source = source(&fixture, "echo $$ > \"$(dirname \"$0\")/pid\"; exec sleep 600");
    source.limits.list_timeout = std::time::Duration::from_millis(400);
    let error = fixture.resolve(&source).expect_err("silent");
    assert!(matches!(error, GitError::Timeout { .. }), "{error}");
    let pid = std::fs::read_to_string(fixture.dir.path().join("pid")).expect("it ran");
    assert!(!std::path::Path::new("/proc").join(pid.trim()).exists(), "and it is gone");
}
