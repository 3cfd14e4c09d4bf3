//! The flight recorder's files: lines of JSON in zstd frames, each followed by an index of what it speaks of.
//!
//! A frame holds about a megabyte of lines and ends with a checksum; `zstd -dc` prints them. The index is a skippable frame, so
//! other readers pass over it; ours passes over the frames that do not speak of what is asked. What was written last may be torn
//! by a crash: then the lines that are whole count, and whoever reads is told. Nothing here knows what a line says.

mod error;
mod read;
mod write;

pub use error::RecordingError;
pub use read::{Block, Segment, Text, segments};
pub use write::{Cap, SegmentWriter, make_room, name_of};

/// What a frame of lines may unpack to: whoever asks for more is up to no good.
const BLOCK_MAX: usize = 96 << 20;
/// A frame is closed when it has so much text.
const BLOCK_TEXT: usize = 1 << 20;
/// The longest text that is written at once.
pub const PAGE_MAX: usize = BLOCK_MAX - BLOCK_TEXT;
/// Unpacking may look back so far (2^23 bytes): more than we ever write.
const WINDOW_LOG_MAX: u32 = 23;
/// What one file may have: what is recorded into one file alone, or stored by somebody else, may be large.
const SEGMENT_MAX: u64 = 4 << 30;
/// How segments of a directory are named.
const PREFIX: &str = "provisor-";
const SUFFIX: &str = ".jsonl.zst";

/// The index of a frame: `PVIX`, first and last moment in milliseconds, then the numbers, in order.
const INDEX: &[u8; 4] = b"PVIX";
/// One of the magic numbers of skippable frames.
const SKIPPABLE: u32 = 0x184D_2A5E;
