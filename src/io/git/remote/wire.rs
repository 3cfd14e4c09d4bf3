//! The limits of one conversation with a server: time, bytes, and the wish of the caller to stop.
//!
//! The conversation runs in a thread of its own. The caller waits here, and leaves at the deadline even if the other
//! thread hangs in the network; that thread finds the wire halted at its next byte and ends.

use std::io::{self, Read};
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::io::git::error::{GitError, Phase};
use crate::io::git::{Progress, Step};

/// How often the waiting caller looks at the clock and the wish to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) struct Wire {
    pub(super) source_name: String,
    pub(super) phase: Phase,
    pub(super) time_max: Duration,
    pub(super) connect_timeout: Duration,
    bytes: AtomicU64,
    bytes_max: u64,
    /// Set when the conversation must end; handed to the library too.
    pub(super) halted: AtomicBool,
    fault: Mutex<Option<GitError>>,
    child: Mutex<Option<Child>>,
}

impl Wire {
    pub(super) fn new(
        source_name: &str,
        phase: Phase,
        time_max: Duration,
        connect_timeout: Duration,
        bytes_max: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            source_name: source_name.into(),
            phase,
            time_max,
            connect_timeout,
            bytes: AtomicU64::new(0),
            bytes_max,
            halted: AtomicBool::new(false),
            fault: Mutex::new(None),
            child: Mutex::new(None),
        })
    }

    /// Notes what went wrong, if nothing did before, and ends the conversation. The first fault is the cause.
    pub(super) fn fail(&self, fault: GitError) -> io::Error {
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(fault);
        drop(first);
        self.halt();
        io::Error::other("the conversation was ended")
    }

    /// The cause, once: for the caller who leaves.
    fn fault(&self) -> Option<GitError> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes care that a started program ends with the conversation.
    pub(super) fn adopt(&self, child: Child) {
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        if self.halted.load(Ordering::Relaxed) {
            self.halt();
        }
    }

    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::Relaxed);
        if let Some(mut child) = self.child.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It may have ended by itself, which is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.halted.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the conversation was ended")),
            false => Ok(()),
        }
    }

    fn count(&self, received: usize) -> io::Result<()> {
        let received = received as u64;
        let sum = self.bytes.fetch_add(received, Ordering::Relaxed) + received;
        if sum <= self.bytes_max {
            return Ok(());
        }
        let (source_name, limit) = (self.source_name.clone(), self.bytes_max);
        Err(self.fail(match self.phase {
            Phase::Listing => GitError::TooManyReferences { source_name, limit },
            Phase::Fetching => GitError::RepositoryTooLarge { source_name, limit },
        }))
    }
}

/// A reader that obeys the limits of its wire.
pub(super) struct Metered<R> {
    pub(super) inner: R,
    pub(super) wire: Arc<Wire>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wire.check()?;
        let received = self.inner.read(buffer)?;
        self.wire.check()?;
        self.wire.count(received)?;
        Ok(received)
    }
}

/// Runs one conversation, and leaves it when time is up or the caller wants to stop.
#[expect(clippy::disallowed_methods, reason = "how long a server takes is measured where it is waited for")]
pub(super) fn converse<T: Send + 'static>(
    wire: &Arc<Wire>,
    progress: &Progress<'_>,
    should_stop: &AtomicBool,
    conversation: impl FnOnce() -> Result<T, GitError> + Send + 'static,
) -> Result<T, GitError> {
    let deadline = Instant::now() + wire.time_max;
    let (done, outcome) = channel();
    let spawned = std::thread::Builder::new().name("git wire".into()).spawn(move || {
        // Nobody listens any more if the caller has left.
        let _ = done.send(conversation());
    });
    if let Err(error) = spawned {
        return Err(GitError::Protocol { source_name: wire.source_name.clone(), why: error.to_string() });
    }
    let mut told = 0;
    loop {
        match outcome.recv_timeout(LOOK_EVERY) {
            Ok(outcome) => {
                wire.halt();
                // What the wire saw is the cause of what the library reports.
                return match (outcome, wire.fault()) {
                    (Err(_), Some(fault)) => Err(fault),
                    (outcome, _) => outcome,
                };
            }
            Err(RecvTimeoutError::Disconnected) => {
                let why = "the conversation ended unexpectedly".into();
                return Err(wire
                    .fault()
                    .unwrap_or(GitError::Protocol { source_name: wire.source_name.clone(), why }));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let bytes = wire.bytes.load(Ordering::Relaxed);
        if wire.phase == Phase::Fetching && bytes != told {
            told = bytes;
            progress(Step::Receiving { bytes });
        }
        let (source_name, phase) = (wire.source_name.clone(), wire.phase);
        if should_stop.load(Ordering::Relaxed) {
            wire.fail(GitError::Stopped { source_name, phase });
        } else if Instant::now() >= deadline {
            wire.fail(GitError::Timeout { source_name, phase, limit: wire.time_max });
        }
        // A halt without a fault is a normal end, whose outcome is on its way.
        if wire.halted.load(Ordering::Relaxed)
            && let Some(fault) = wire.fault()
        {
            return Err(fault);
        }
    }
}
