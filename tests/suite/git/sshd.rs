//! A real OpenSSH server: host keys, authorities, passphrases, as `ssh` itself judges them.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jiff::SignedDuration;
use provisor::controllers::source::Told;
use provisor::gitops::source::SourcePolicy;
use provisor::io::git::{self, Access, GitError, NextStep, Source};

use super::fixture::{Fixture, texts, told};
use super::following::{Bench, PROD, prod};
use super::server::fake_ssh;

/// The server of one fixture, ended with it.
struct Sshd {
    child: Child,
    port: u16,
    dir: PathBuf,
}

fn program() -> PathBuf {
    let places = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd", "/sbin/sshd"];
    let found = places.into_iter().map(PathBuf::from).find(|place| place.exists());
    found.expect("these tests need OpenSSH's server: install `openssh-server`, as .ci/run does")
}

fn keygen(args: &[&str], dir: &Path) {
    let output = Command::new("ssh-keygen").args(args).current_dir(dir).output().expect("ssh-keygen starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Sshd {
    /// Makes a key for the host and one for the person, and starts.
    fn start(fixture: &Fixture) -> Self {
        let dir = fixture.dir.path().join("sshd");
        fs::create_dir(&dir).expect("a directory");
        keygen(&["-q", "-t", "ed25519", "-N", "", "-C", "host", "-f", "host"], &dir);
        keygen(&["-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", "person"], &dir);
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|taken| taken.local_addr()).expect("a port").port();
        Self::listen(dir, port, "")
    }

    #[expect(clippy::disallowed_methods, reason = "a server needs a moment to listen")]
    fn listen(dir: PathBuf, port: u16, more: &str) -> Self {
        let at = dir.display();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nAuthorizedKeysFile {at}/person.pub\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nAcceptEnv GIT_PROTOCOL\nLogLevel DEBUG1\n{more}"
        );
        fs::write(dir.join("config"), config).expect("written");
        // The server of a system makes this directory when it starts.
        drop(fs::create_dir_all("/run/sshd"));
        let log = fs::File::create(dir.join("log")).expect("a file");
        let child = Command::new(program())
            .args(["-D", "-e", "-f"])
            .arg(dir.join("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("sshd starts");
        let server = Self { child, port, dir };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return server;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("sshd does not listen: {}", server.log());
    }

    /// The same place with another key of the host.
    fn with_another_key(mut self) -> Self {
        self.stop();
        for name in ["host", "host.pub"] {
            fs::remove_file(self.dir.join(name)).expect("removed");
        }
        keygen(&["-q", "-t", "ed25519", "-N", "", "-C", "host", "-f", "host"], &self.dir);
        Self::listen(self.dir.clone(), self.port, "")
    }

    fn stop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).expect("a log")
    }

    /// Type and content of the host's public key, as `known_hosts` has it.
    fn host_key(&self) -> String {
        let text = fs::read_to_string(self.dir.join("host.pub")).expect("a key");
        text.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }

    fn fingerprint(&self) -> String {
        let args = ["-l", "-f", "host.pub"];
        let output =
            Command::new("ssh-keygen").args(args).current_dir(&self.dir).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split(' ').nth(1).expect("a fingerprint").to_owned()
    }

    fn entry(&self) -> String {
        format!("[127.0.0.1]:{} {}\n", self.port, self.host_key())
    }

    /// A mounted Secret with the person's key and these host keys.
    fn source(&self, fixture: &Fixture, known_hosts: &str) -> Source {
        let secret = fixture.dir.path().join("secret");
        fs::create_dir_all(&secret).expect("a directory");
        if !secret.join("identity").exists() {
            fs::copy(self.dir.join("person"), secret.join("identity")).expect("copied");
        }
        fs::write(secret.join("known_hosts"), known_hosts).expect("written");
        let user = Command::new("id").arg("-un").output().expect("id starts").stdout;
        let user = String::from_utf8_lossy(&user).trim().to_owned();
        Source {
            access: Access { credentials: Some(secret), known_hosts: None, ..Access::default() },
            ..Source::new(format!("ssh://{user}@127.0.0.1:{}{}", self.port, fixture.work_tree().display()))
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn git_022_ssh_needs_known_hosts_and_names_the_field() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let source = Source {
        ssh_program: fake_ssh(fixture.dir.path(), "exit 1"),
        access: Access { known_hosts: None, ..Access::default() },
        ..Source::new("ssh://git@example.com/fleet")
    };
    let error = git::open(&source, &fixture.cache()).expect_err("nobody vouches for the host");
    assert_eq!(
        error.to_string(),
        "`ssh://git@example.com/fleet` is reached by ssh, and `known_hosts` is missing"
    );
    assert!(error.help().contains("`--known-hosts FILE`"), "{}", error.help());
    assert_eq!(error.next_step(), NextStep::NeedsPerson);
    assert!(!fixture.dir.path().join("ssh-args").exists(), "nothing was started");
}

#[test]
fn git_023_an_unknown_host_shows_its_fingerprint_and_nobody_logs_in() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let server = Sshd::start(&fixture);
    let source = server.source(&fixture, "");
    let error = fixture.resolve(&source).expect_err("unknown");
    assert!(matches!(error, GitError::HostKeyUnknown { .. }), "{error}");
    assert!(told(&error).contains(&server.fingerprint()), "{}", told(&error));
    assert!(told(&error).contains(&format!("[127.0.0.1]:{}", server.port)), "{}", told(&error));
    assert_eq!(error.next_step(), NextStep::NeedsPerson);
    let log = server.log();
    assert!(log.contains("Connection from 127.0.0.1"), "{log}");
    assert!(!log.contains("userauth-request"), "{log}");

    let source = server.source(&fixture, &server.entry());
    assert_eq!(texts(&fixture.read(&source).expect("read"))["fleet.toml"], "x");
    assert!(server.log().contains("userauth-request"), "a login is seen in the log");
}

#[test]
fn git_024_a_changed_host_key_keeps_the_last_good_state() {
    let fixture = Fixture::with(&[("fleet.toml", "name = \"shop\"\n"), (PROD, &prod(10, false))]);
    let server = Sshd::start(&fixture);
    let source = server.source(&fixture, &server.entry());
    let mut bench = Bench::new(&fixture, &source, SourcePolicy::open());
    let before = bench.writes();
    fixture.commit("heavier", &[(PROD, &prod(20, false))]);
    let server = server.with_another_key();
    for failures in 1..=4u32 {
        let Told::Failed { error, after } = bench.poll() else { panic!("another key") };
        assert_eq!(error.reason(), "HostKeyMismatch", "{error}");
        assert!(told(&error).contains(&server.fingerprint()), "{}", told(&error));
        assert_eq!(error.next_step(), NextStep::Retry { after: None });
        assert_eq!(after.failures, failures);
        assert!(after.next_delay <= Duration::from_secs(1 << (failures - 1)), "{after:?}");
    }
    bench.live(SignedDuration::from_hours(1));
    assert_eq!(bench.writes(), before, "the last good state is kept");
    fs::write(fixture.dir.path().join("secret/known_hosts"), server.entry()).expect("written");
    assert!(
        matches!(bench.poll(), Told::Followed { rendered: Ok(_), .. }),
        "the owner announced the new key"
    );
}

#[test]
fn git_025_hashed_authority_and_revoked_entries_are_honoured() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let mut server = Sshd::start(&fixture);
    let dir = server.dir.clone();
    let is_read = |server: &Sshd, known_hosts: &str| fixture.read(&server.source(&fixture, known_hosts));

    fs::write(dir.join("hashed"), server.entry()).expect("written");
    keygen(&["-H", "-f", "hashed"], &dir);
    let hashed = fs::read_to_string(dir.join("hashed")).expect("hashed");
    assert!(hashed.starts_with("|1|"), "{hashed}");
    is_read(&server, &hashed).expect("a hashed entry");

    let revoked = format!("{}@revoked * {}\n", server.entry(), server.host_key());
    let error = is_read(&server, &revoked).expect_err("revoked");
    assert!(matches!(error, GitError::HostKeyRevoked { .. }), "{error}");
    assert_eq!(error.reason(), "HostKeyMismatch");

    keygen(&["-q", "-t", "ed25519", "-N", "", "-C", "ca", "-f", "authority"], &dir);
    keygen(&["-q", "-s", "authority", "-I", "host", "-h", "-n", "127.0.0.1", "host.pub"], &dir);
    server.stop();
    let more = format!("HostCertificate {}/host-cert.pub\n", dir.display());
    let server = Sshd::listen(dir.clone(), server.port, &more);
    let authority = fs::read_to_string(dir.join("authority.pub")).expect("a key");
    let by_authority = format!("@cert-authority [127.0.0.1]:{} {authority}", server.port);
    is_read(&server, &by_authority).expect("the authority vouches for the host");
    let by_another = format!("@cert-authority [127.0.0.1]:{} {}\n", server.port, {
        fs::read_to_string(dir.join("person.pub")).expect("a key").trim().to_owned()
    });
    let error = is_read(&server, &by_another).expect_err("another authority");
    assert!(matches!(error, GitError::HostKeyUnknown { .. }), "{error}");
}

#[test]
fn git_026_an_encrypted_key_needs_its_passphrase() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let server = Sshd::start(&fixture);
    let source = server.source(&fixture, &server.entry());
    let identity = fixture.dir.path().join("secret/identity");
    let expected =
        format!("the private key `{}` is encrypted, and there is no passphrase", identity.display());
    for (form, is_kept) in [("RFC4716", true), ("PKCS8", false)] {
        let file = identity.display().to_string();
        if is_kept {
            keygen(&["-q", "-p", "-P", "", "-N", "a phrase", "-f", &file], &server.dir);
        } else {
            fs::remove_file(&identity).expect("removed");
            keygen(&["-q", "-t", "ecdsa", "-N", "a phrase", "-m", form, "-f", &file], &server.dir);
        }
        let error = git::open(&source, &fixture.cache()).expect_err("no passphrase");
        assert_eq!(error.to_string(), expected, "{form}");
        assert_eq!(error.next_step(), NextStep::NeedsPerson);
    }
    fs::remove_file(&identity).expect("removed");
    fs::remove_file(identity.with_extension("pub")).expect("removed");
    fs::copy(server.dir.join("person"), &identity).expect("copied");
    keygen(&["-q", "-p", "-P", "", "-N", "a phrase", "-f", &identity.display().to_string()], &server.dir);
    fs::write(fixture.dir.path().join("secret/password"), "a phrase\n").expect("written");
    assert_eq!(texts(&fixture.read(&source).expect("with its passphrase"))["fleet.toml"], "x");
    fs::write(fixture.dir.path().join("secret/password"), "another\n").expect("written");
    let error = fixture.resolve(&source).expect_err("not its passphrase");
    assert_eq!(error.reason(), "AuthenticationFailed", "{error}");
}

#[test]
fn nobodys_ssh_configuration_counts() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let server = Sshd::start(&fixture);
    let source = server.source(&fixture, &server.entry());
    let home = fixture.dir.path().join("home");
    fs::create_dir_all(home.join(".ssh")).expect("a directory");
    let trap = fixture.dir.path().join("trap");
    let config = format!("Host *\n  ProxyCommand touch {}\n", trap.display());
    fs::write(home.join(".ssh/config"), config).expect("written");
    let output = assert_cmd::Command::cargo_bin("provisor")
        .expect("the program is built")
        .env("HOME", &home)
        .env("XDG_CACHE_HOME", fixture.dir.path())
        .args(["validate", &source.url, "--credentials"])
        .arg(fixture.dir.path().join("secret"))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "the fleet was read and is none: {said}");
    assert!(said.contains("fleet.toml:1:1"), "{said}");
    assert!(!trap.exists());
}
