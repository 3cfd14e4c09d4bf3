//! A message of the interruption queue: it is for us, or it is dropped with a reason.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use provisor::api::ec2::event::parse;

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(body) = std::str::from_utf8(data) else { return Corpus::Reject };
    if let Err(why) = parse(body) {
        drop(why.to_string());
    }
    Corpus::Keep
});
