//! Ctrl-C, or the request to end, ends a verb that only computes, with the code that shells expect.

use std::thread;

use tokio::signal::unix::{SignalKind, signal};

use super::exit::Exit;

/// What a shell makes of a program that SIGTERM ended.
const TERMINATED: i32 = 128 + 15;

/// From now on an interrupt ends the program with 130 and SIGTERM with 143, after `put_away`.
pub fn end_on_interrupt(put_away: impl FnOnce() + Send + 'static) {
    // Without the thread either ends the program too, by the signal itself; then nothing is put away.
    drop(thread::Builder::new().name("interrupt".into()).spawn(|| wait(put_away)));
}

#[expect(
    clippy::disallowed_methods,
    reason = "the work may be deep inside a computation that no flag can reach"
)]
fn wait(put_away: impl FnOnce()) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    let came = runtime.block_on(async {
        let mut asked = signal(SignalKind::terminate()).ok()?;
        let mut typed = signal(SignalKind::interrupt()).ok()?;
        tokio::select! {
            seen = typed.recv() => seen.map(|()| i32::from(Exit::Interrupted.code())),
            seen = asked.recv() => seen.map(|()| TERMINATED),
        }
    });
    if let Some(code) = came {
        put_away();
        std::process::exit(code);
    }
}
