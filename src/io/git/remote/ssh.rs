//! Git over ssh, by starting the `ssh` program: keys, agents and `known_hosts` are its business.
//!
//! It never asks a person and never learns a host key by itself. `GIT_SSH`, `GIT_SSH_COMMAND` and the other variables of
//! Git are not passed on.

use std::io::Read;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use gix::protocol::transport::Protocol;
use gix::protocol::transport::client::git::{ConnectMode, blocking_io::Connection};

use super::wire::{Metered, Wire};
use crate::io::git::error::GitError;
use crate::io::git::url::SshPath;

/// What is kept of the program's complaints.
const STDERR_BYTES_MAX: u64 = 16 << 10;

pub(super) struct Destination<'a> {
    pub(super) user: Option<&'a str>,
    pub(super) host: &'a str,
    pub(super) port: Option<u16>,
    pub(super) path: &'a SshPath,
}

/// How long the program may take to end after its connection broke.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the program writes to its standard error, told when it has ended.
pub(super) struct Complaints(Receiver<String>);

pub(super) type SshLine = Connection<Metered<ChildStdout>, ChildStdin>;

pub(super) fn connect(
    program: &Path,
    to: &Destination<'_>,
    wire: &Arc<Wire>,
) -> Result<(SshLine, Complaints), GitError> {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"GIT_") {
            command.env_remove(name);
        }
    }
    let seconds = wire.connect_timeout.as_secs().max(1);
    command.env("GIT_PROTOCOL", "version=2").env_remove("SSH_ASKPASS");
    for option in [
        "BatchMode=yes".to_owned(),
        "StrictHostKeyChecking=yes".to_owned(),
        "ForwardAgent=no".to_owned(),
        "ClearAllForwardings=yes".to_owned(),
        "SendEnv=GIT_PROTOCOL".to_owned(),
        format!("ConnectTimeout={seconds}"),
    ] {
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
        let has = |words: &str| text.contains(words);
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        let host = host.to_owned();
        Some(if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
            GitError::HostKeyMismatch { host }
        } else if has("Host key verification failed") || has("host key is known for") {
            let offered = text.split_whitespace().find(|word| word.starts_with("SHA256:"));
            GitError::HostKeyUnknown { host, offered: offered.map(|key| key.trim_end_matches('.').into()) }
        } else if has("Permission denied") {
            GitError::AuthenticationFailed { source_name, why: line_with(&text, "Permission denied") }
        } else if has("does not appear to be a git repository") || has("not found") || has("No such file") {
            GitError::NotFoundOnServer { source_name, why: line_with(&text, "not") }
        } else if has("not our ref") {
            return None;
        } else {
            GitError::Unreachable { source_name, why: printable(last) }
        })
    }
}

fn line_with(text: &str, words: &str) -> String {
    printable(text.lines().find(|line| line.contains(words)).unwrap_or_default().trim())
}

fn printable(line: &str) -> String {
    line.chars().filter(|letter| !letter.is_control()).take(300).collect()
}
