//! Ctrl-C ends a verb that only computes, with the code that shells expect.

use std::thread;

use super::exit::Exit;

/// From now on an interrupt ends the program with 130. For verbs that have nothing to put away.
pub fn end_on_interrupt() {
    // Without the thread an interrupt ends the program too, by the signal itself: nothing depends on it.
    drop(thread::Builder::new().name("interrupt".into()).spawn(wait));
}

#[expect(
    clippy::disallowed_methods,
    reason = "the work may be deep inside a computation that no flag can reach"
)]
fn wait() {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
        std::process::exit(i32::from(Exit::Interrupted.code()));
    }
}
