//! One table of exit codes for every verb, and the failure that carries one of them to the edge.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done; planned; same; pass |
//! | 1 | the answer is no: differs, failed, not healthy |
//! | 2 | the input is wrong |
//! | 3 | the outside world failed or refuses for now; a retry may help |
//! | 4 | only with `--detailed-exitcode`: there is something to do |
//! | 5 | stale or out of time |
//! | 64 | the command line is wrong |
//! | 130 | interrupted |

use std::error::Error;
use std::process::ExitCode;

use crate::gitops::diagnostic::Diagnostics;
use crate::io::git::{AccessError, ErrorClass, GitError, UrlError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done,
    /// The answer is no: differs, failed, not healthy.
    No,
    /// The input is wrong: file, line, column, why, what to do.
    Input,
    /// The outside world failed or refuses for now; a retry may help.
    Outside,
    /// Only with `--detailed-exitcode`: there is something to do.
    ToDo,
    /// The base moved, the snapshot is too old, a timeout passed.
    Stale,
    /// The command line is wrong.
    Usage,
    Interrupted,
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Input => 2,
            Self::Outside => 3,
            Self::ToDo => 4,
            Self::Stale => 5,
            Self::Usage => 64,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// Why a verb could not do its work, in words a person can act on.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    /// One sentence; empty if the diagnostics say it all, or if nobody listens any more.
    pub message: String,
    /// The chain of sources, nearest first.
    pub causes: Vec<String>,
    /// What to do.
    pub help: Option<String>,
    /// Mistakes in files, with their places.
    pub diagnostics: Diagnostics,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            causes: Vec::new(),
            help: None,
            diagnostics: Diagnostics::default(),
        }
    }

    pub fn input(message: impl Into<String>) -> Self {
        Self::new(Exit::Input, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub fn outside(message: impl Into<String>) -> Self {
        Self::new(Exit::Outside, message)
    }

    /// The reader of our output went away (`| head`): no mistake, and nobody is left to tell.
    pub fn closed() -> Self {
        Self::new(Exit::Done, "")
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds `error` and what caused it to the chain.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn Error) -> Self {
        let mut next = Some(error);
        while let Some(cause) = next {
            self.causes.push(cause.to_string());
            next = cause.source();
        }
        self
    }
}

impl From<Diagnostics> for Failure {
    fn from(diagnostics: Diagnostics) -> Self {
        Self { diagnostics, ..Self::input("") }
    }
}

impl From<GitError> for Failure {
    fn from(error: GitError) -> Self {
        let exit = match (&error, error.class()) {
            // What an option cannot mean, whatever the repository has.
            (GitError::Reference(_) | GitError::Limit(_) | GitError::BadSubdirectory { .. }, _)
            | (GitError::Access(AccessError::Template { .. } | AccessError::Proxy { .. }), _)
            | (GitError::Url(UrlError::Empty), _) => Exit::Usage,
            (_, ErrorClass::Input) => Exit::Input,
            (_, ErrorClass::Outside) => Exit::Outside,
        };
        let mut failure = Self::new(exit, error.to_string()).help(error.help());
        if let Some(cause) = error.source() {
            failure = failure.caused_by(cause);
        }
        failure
    }
}
