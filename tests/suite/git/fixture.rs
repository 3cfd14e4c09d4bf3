//! A repository made for one test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use provisor::io::git::{self, GitError, Reference, Resolved, Source};
use provisor::model::repository::Repository;
use tempfile::TempDir;

/// A work tree with a repository, and beside it an empty directory for caches.
pub struct Fixture {
    pub dir: TempDir,
}

impl Fixture {
    /// An empty repository whose HEAD names `main`.
    pub fn empty() -> Self {
        let fixture = Self { dir: tempfile::tempdir().expect("a temporary directory") };
        std::fs::create_dir(fixture.work_tree()).expect("a directory");
        fixture.git(&["init", "--quiet", "--initial-branch=main"]);
        fixture
    }

    /// A repository with one commit of these files on `main`.
    pub fn with(files: &[(&str, &str)]) -> Self {
        let fixture = Self::empty();
        fixture.commit("first", files);
        fixture
    }

    pub fn work_tree(&self) -> PathBuf {
        self.dir.path().join("fleet")
    }

    pub fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    pub fn write(&self, path: &str, content: &[u8]) {
        let file = self.work_tree().join(path);
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("directories");
        std::fs::write(file, content).expect("written");
    }

    /// Commits the files and returns the id.
    pub fn commit(&self, message: &str, files: &[(&str, &str)]) -> String {
        for (path, content) in files {
            self.write(path, content.as_bytes());
        }
        self.git(&["add", "--all", "--force"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Adds commits to `main`, each with another content of the file `a`, in one go.
    pub fn grow(&self, count: usize) {
        let tip = self.git(&["rev-parse", "main"]);
        let stream: String = (1..=count)
            .map(|number| {
                let from = if number == 1 { format!("from {tip}\n") } else { String::new() };
                let content = number.to_string();
                format!(
                    "commit refs/heads/main\ncommitter Ada <ada@example.com> {number} +0000\ndata 4\nmore\n\
                     {from}M 100644 inline a\ndata {}\n{content}\n",
                    content.len()
                )
            })
            .collect();
        self.git_with_input(&["fast-import", "--quiet"], stream.as_bytes());
        self.git(&["reset", "--quiet", "--hard", "main"]);
    }

    /// Runs `git` in the work tree, without anybody's configuration, and returns what it prints.
    pub fn git(&self, args: &[&str]) -> String {
        git_in(&self.work_tree(), args, b"")
    }

    pub fn git_with_input(&self, args: &[&str], input: &[u8]) -> String {
        git_in(&self.work_tree(), args, input)
    }

    pub fn source(&self) -> Source {
        Source::new(self.work_tree().to_str().expect("UTF-8"))
    }

    pub fn following(&self, reference: Reference) -> Source {
        Source { reference, ..self.source() }
    }

    pub fn resolve(&self, source: &Source) -> Result<Resolved, GitError> {
        git::open(source, &self.cache())?.resolve()
    }

    pub fn read(&self, source: &Source) -> Result<Repository, GitError> {
        let source = git::open(source, &self.cache())?;
        source.fetch(&source.resolve()?, &|_| (), &AtomicBool::new(false))
    }
}

pub fn git_in(place: &Path, args: &[&str], input: &[u8]) -> String {
    use std::io::Write as _;
    let mut child = Command::new("git")
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(place)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git starts");
    child.stdin.take().expect("piped").write_all(input).expect("git reads its input");
    let output = child.wait_with_output().expect("git ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}

/// The files as text, for comparing.
pub fn texts(repository: &Repository) -> BTreeMap<String, String> {
    repository
        .files
        .iter()
        .map(|(path, content)| (path.to_string(), String::from_utf8_lossy(content).into_owned()))
        .collect()
}

/// What a person reads: the error and the help.
pub fn told(error: &GitError) -> String {
    format!("{error}\n{}", error.help())
}
