//! The lines of a recording are replayed: each is refused, or the engine is told what it says.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use provisor::simulator::replay::Replay;

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let mut replay = Replay::default();
    for line in text.lines() {
        match replay.take(line) {
            Ok(true) => {}
            Ok(false) | Err(_) => break,
        }
    }
    Corpus::Keep
});
