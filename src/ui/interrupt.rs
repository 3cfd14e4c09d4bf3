//! Requests to end: Ctrl-C, SIGTERM, a terminal that was closed. A verb that only computes ends at once, with the code that
//! shells expect; one that goes on for ever says a last word.

use std::io;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Exit;

/// What a shell makes of a program that a signal ended.
const BY_SIGNAL: i32 = 128;

/// Who wants the program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Ctrl-C.
    Typed,
    /// SIGTERM.
    Told,
    /// SIGHUP: the terminal is gone.
    HungUp,
}

impl Ending {
    /// The beginning of a last word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Typed => "interrupted",
            Self::Told => "told to end",
            Self::HungUp => "the terminal is closed",
        }
    }
}

/// The requests that come from now on. Without it each of them ends the program by the signal itself.
pub struct Endings {
    typed: Signal,
    told: Signal,
    hung_up: Option<Signal>,
}

impl Endings {
    pub fn listen() -> io::Result<Self> {
        let hung_up = minds_its_terminal().then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self { typed: signal(SignalKind::interrupt())?, told: signal(SignalKind::terminate())?, hung_up })
    }

    /// The next one; nothing is lost if it is not waited for to the end.
    pub async fn next(&mut self) -> Ending {
        let hung_up = async {
            match &mut self.hung_up {
                Some(hung_up) => drop(hung_up.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.typed.recv() => Ending::Typed,
            _ = self.told.recv() => Ending::Told,
            () = hung_up => Ending::HungUp,
        }
    }
}

/// Whether a closed terminal is to end the program: not under `nohup`. Where that cannot be known the signal does what it
/// would do without us.
fn minds_its_terminal() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    // The first bit is the first signal, SIGHUP.
    ignored.is_some_and(|signals| signals & 1 == 0)
}

/// From now on an interrupt ends the program with 130, SIGTERM with 143 and SIGHUP with 129, after `put_away`.
pub fn end_on_interrupt(put_away: impl FnOnce() + Send + 'static) {
    // Without the thread each ends the program too, by the signal itself; then nothing is put away.
    drop(thread::Builder::new().name("interrupt".into()).spawn(|| wait(put_away)));
}

#[expect(
    clippy::disallowed_methods,
    reason = "the work may be deep inside a computation that no flag can reach"
)]
fn wait(put_away: impl FnOnce()) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    let asked = runtime.block_on(async {
        let mut endings = Endings::listen().ok()?;
        Some(endings.next().await)
    });
    let Some(asked) = asked else { return };
    put_away();
    std::process::exit(match asked {
        Ending::Typed => Exit::Interrupted.code().into(),
        Ending::Told => BY_SIGNAL + 15,
        Ending::HungUp => BY_SIGNAL + 1,
    });
}
