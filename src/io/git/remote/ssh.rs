//! Git over ssh, by starting the `ssh` program, which does nothing that is not said here.
//!
//! It reads no configuration, neither of the person nor of the machine, never asks a person, and never learns a host key by
//! itself: the one file of known hosts is ours to name. Without a key of ours it may use the agent and the usual key files.
//! `GIT_SSH`, `GIT_SSH_COMMAND` and the other variables of Git are not passed on.

use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use gix::protocol::transport::Protocol;
use gix::protocol::transport::client::git::{ConnectMode, blocking_io::Connection};

use super::Means;
use super::wire::{Metered, Wire};
use crate::io::git::error::GitError;
use crate::io::git::url::SshPath;

/// What is kept of the program's complaints.
const STDERR_BYTES_MAX: u64 = 64 << 10;

pub(super) struct Destination<'a> {
    pub(super) user: Option<&'a str>,
    pub(super) host: &'a str,
    pub(super) port: Option<u16>,
    pub(super) path: &'a SshPath,
}

impl Destination<'_> {
    /// As `known_hosts` writes it, so that it can be looked for there.
    pub(super) fn shown(&self) -> String {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        match self.port {
            Some(port) if port != 22 => format!("[{host}]:{port}"),
            _ => host.to_owned(),
        }
    }
}

/// Where the little program that answers for a passphrase finds it.
const PASSPHRASE_FILE: &str = "PROVISOR_SSH_PASSPHRASE_FILE";

/// A program for `SSH_ASKPASS`: a passphrase is never an argument, and never in a variable.
struct Asker {
    directory: PathBuf,
    file: PathBuf,
}

impl Asker {
    fn new(file: &Path) -> std::io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("provisor-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let asker = Self { directory: std::env::temp_dir().join(name), file: std::fs::canonicalize(file)? };
        std::fs::DirBuilder::new().mode(0o700).create(&asker.directory)?;
        let mut options = std::fs::OpenOptions::new();
        let mut script = options.write(true).create_new(true).mode(0o700).open(asker.path())?;
        script.write_all(format!("#!/bin/sh\nexec cat \"${PASSPHRASE_FILE}\"\n").as_bytes())?;
        Ok(asker)
    }

    fn path(&self) -> PathBuf {
        self.directory.join("answer")
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        // A leftover holds no secret.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A path as an option of ssh takes it: quoted, and with `%` not meaning anything.
fn quoted_path(path: &Path) -> String {
    let text = path.to_string_lossy().replace('%', "%%").replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

/// How long the program may take to end after its connection broke.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the program writes to its standard error, told when it has ended.
pub(super) struct Complaints(Receiver<String>);

pub(super) type SshLine = Connection<Metered<ChildStdout>, ChildStdin>;

pub(super) fn connect(
    means: &Means,
    to: &Destination<'_>,
    wire: &Arc<Wire>,
) -> Result<(SshLine, Complaints), GitError> {
    let mut command = Command::new(&means.ssh_program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"GIT_") {
            command.env_remove(name);
        }
    }
    let seconds = wire.connect_timeout.as_secs().max(1);
    command.env("GIT_PROTOCOL", "version=2").env_remove("SSH_ASKPASS");
    let credentials = &means.credentials;
    let mut options = vec![
        "StrictHostKeyChecking=yes".to_owned(),
        "GlobalKnownHostsFile=/dev/null".to_owned(),
        "UpdateHostKeys=no".to_owned(),
        "ForwardAgent=no".to_owned(),
        "ClearAllForwardings=yes".to_owned(),
        "SendEnv=GIT_PROTOCOL".to_owned(),
        // The only level at which it tells which key a host showed.
        "LogLevel=DEBUG1".to_owned(),
        format!("ConnectTimeout={seconds}"),
    ];
    if let Some(path) = &credentials.known_hosts {
        options.push(format!("UserKnownHostsFile={}", quoted_path(path)));
    }
    if let Some(path) = &credentials.identity {
        options.push(format!("IdentityFile={}", quoted_path(path)));
        options.push("IdentitiesOnly=yes".to_owned());
        options.push("IdentityAgent=none".to_owned());
    }
    let asker = match &credentials.passphrase_file {
        Some(file) => {
            Some(Asker::new(file).map_err(|source| GitError::Cache { path: file.clone(), source })?)
        }
        None => None,
    };
    match &asker {
        Some(asker) => {
            command.env("SSH_ASKPASS", asker.path()).env("SSH_ASKPASS_REQUIRE", "force");
            command.env(PASSPHRASE_FILE, &asker.file);
            options.push("NumberOfPasswordPrompts=1".to_owned());
            options.push("PreferredAuthentications=publickey".to_owned());
        }
        None => options.push("BatchMode=yes".to_owned()),
    }
    command.arg("-F").arg("none");
    for option in options {
        command.arg("-o").arg(option);
    }
    if let Some(port) = to.port {
        command.arg("-p").arg(port.to_string());
    }
    let host = to.host.trim_start_matches('[').trim_end_matches(']');
    let destination = to.user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
    // The path goes through a shell on the other side.
    let quoted = to.path.0.replace('\'', "'\\''").replace('!', "'\\!'");
    command.arg("--").arg(destination).arg(format!("git-upload-pack '{quoted}'"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());

    let mut child = command
        .spawn()
        .map_err(|source| GitError::SshMissing { source_name: wire.source_name.clone(), source })?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        unreachable!("all three were piped")
    };
    wire.adopt(child);
    let (tell, complaints) = channel();
    let keep = move || {
        // Answers until the program has ended.
        let _asker = asker;
        let mut stderr = stderr;
        let mut text = Vec::new();
        let _ = stderr.by_ref().take(STDERR_BYTES_MAX).read_to_end(&mut text);
        // Whatever follows is swallowed, so that the program does not hang on a full pipe.
        let _ = std::io::copy(&mut stderr, &mut std::io::sink());
        // After a conversation that went well nobody listens.
        let _ = tell.send(String::from_utf8_lossy(&text).into_owned());
    };
    if let Err(error) = std::thread::Builder::new().name("ssh complaints".into()).spawn(keep) {
        return Err(GitError::Protocol { source_name: wire.source_name.clone(), why: error.to_string() });
    }
    let stdout = Metered { inner: stdout, wire: wire.clone() };
    let line = Connection::new(
        stdout,
        stdin,
        Protocol::V2,
        to.path.0.as_str(),
        None::<(&str, _)>,
        ConnectMode::Process,
        false,
    );
    Ok((line, Complaints(complaints)))
}

impl Complaints {
    /// What the program's words mean, once the conversation has failed.
    pub(super) fn explain(self, wire: &Wire, host: &str) -> Option<GitError> {
        let text = self.0.recv_timeout(LAST_WORDS).or_else(|_| {
            // It still runs, so its words are not its last ones; they have to do.
            wire.halt();
            self.0.recv_timeout(LAST_WORDS)
        });
        let text = text.ok()?;
        let source_name = wire.source_name.clone();
        let offered = text.lines().find_map(|line| line.strip_prefix("debug1: Server host key: "));
        let offered = offered.map(|key| printable(key.trim()));
        let said: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_chatter(line)).collect();
        let has = |words: &str| said.iter().any(|line| line.contains(words));
        let last = said.last()?;
        let host = host.to_owned();
        Some(if has("REVOKED HOST KEY") || has("was marked as revoked") || has("is marked as revoked") {
            GitError::HostKeyRevoked { host, offered }
        } else if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
            GitError::HostKeyMismatch { host, offered }
        } else if has("Host key verification failed") || has("host key is known for") {
            GitError::HostKeyUnknown { host, offered }
        } else if has("Permission denied") {
            GitError::AuthenticationFailed { source_name, why: line_with(&said, "Permission denied") }
        } else if has("does not appear to be a git repository") || has("not found") || has("No such file") {
            GitError::NotFoundOnServer { source_name, why: line_with(&said, "not") }
        } else if has("not our ref") {
            return None;
        } else {
            GitError::Unreachable { source_name, why: printable(last) }
        })
    }
}

/// What the program says to itself, and about itself.
fn is_chatter(line: &str) -> bool {
    let is_banner = |line: &str| line.starts_with("OpenSSH_") && line.contains("SSL");
    let is_tally = line.starts_with("Transferred: sent ") || line.starts_with("Bytes per second: ");
    let is_login = line.starts_with("Authenticated to ");
    line.starts_with("debug1: ") || is_banner(line) || is_tally || is_login
}

fn line_with(said: &[&str], words: &str) -> String {
    printable(said.iter().find(|line| line.contains(words)).unwrap_or(&""))
}

fn printable(line: &str) -> String {
    line.chars().filter(|letter| !letter.is_control()).take(300).collect()
}
