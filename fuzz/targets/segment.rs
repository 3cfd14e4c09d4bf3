//! A file of a recording, whatever its bytes: its frames are found, and each is unpacked or torn.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use provisor::io::recording::Segment;

fuzz_target!(|data: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(data).expect("it can be written");
    let Ok(segment) = Segment::open(file.path()) else { return };
    for block in &segment.blocks {
        block.period();
        block.speaks_of(&[1]);
        drop(segment.text(block));
    }
});
