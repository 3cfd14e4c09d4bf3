//! Writes segments, and deletes the oldest when all of them together grow too large.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use zstd::stream::raw::CParameter;
use zstd::stream::write::Encoder;

use super::{BLOCK_TEXT, INDEX, PAGE_MAX, PREFIX, RecordingError, SKIPPABLE, SUFFIX, segments};

/// How hard the packer tries: 3 is zstd's own measure, quick enough to be nothing beside deciding.
const LEVEL: i32 = 3;

/// How much may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// All segments of a directory together.
    pub total: u64,
    /// A segment that has so much is closed, and another begun.
    pub segment: u64,
}

impl Cap {
    /// Sixteen segments, none larger than is good to copy.
    pub fn of(total: u64) -> Self {
        Self { total, segment: (total / 16).clamp(1 << 20, 64 << 20) }
    }
}

/// The name of a segment in a directory. By name they are in the order of time.
pub fn name_of(run: &str, segment: u32) -> String {
    format!("{PREFIX}{run}-{segment:06}{SUFFIX}")
}

/// Deletes the oldest segments of a directory until what is left has room below `cap` for one more. The newest stays.
pub fn make_room(directory: &Path, cap: Cap) -> Result<(), RecordingError> {
    let Ok(mut files) = segments(directory) else { return Ok(()) };
    files.pop();
    let size = |path: &PathBuf| path.metadata().map_or(0, |data| data.len());
    let mut total: u64 = segments(directory)?.iter().map(size).sum();
    for path in files {
        if total.saturating_add(cap.segment) <= cap.total {
            break;
        }
        total = total.saturating_sub(size(&path));
        std::fs::remove_file(&path).map_err(|source| RecordingError::Io { path, what: "deleted", source })?;
    }
    Ok(())
}

/// One file that is being written.
pub struct SegmentWriter {
    path: PathBuf,
    file: File,
    /// What the file has by now.
    size: u64,
    block: Option<OpenBlock>,
}

/// A frame that is not closed yet.
struct OpenBlock {
    packer: Encoder<'static, Vec<u8>>,
    text: usize,
    first: Timestamp,
    last: Timestamp,
    keys: Vec<u32>,
    has_unwritten: bool,
}

impl SegmentWriter {
    /// Makes the file, readable by its owner alone. A file that is there is replaced.
    pub fn create(path: &Path) -> Result<Self, RecordingError> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|source| RecordingError::Io {
            path: path.to_owned(),
            what: "written",
            source,
        })?;
        Ok(Self { path: path.to_owned(), file, size: 0, block: None })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds lines of the moment `at`, to be found by `keys`.
    pub fn append(&mut self, at: Timestamp, text: &str, keys: &[u32]) -> Result<(), RecordingError> {
        if text.len() > PAGE_MAX {
            return Err(RecordingError::TooLong { size: text.len() });
        }
        let block = match &mut self.block {
            Some(block) => block,
            none => none.insert(OpenBlock::new(at).map_err(|error| cannot(&self.path, error))?),
        };
        block.packer.write_all(text.as_bytes()).map_err(|error| cannot(&self.path, error))?;
        block.text += text.len();
        block.last = at;
        block.keys.extend_from_slice(keys);
        block.has_unwritten = true;
        if block.text >= BLOCK_TEXT { self.close_block() } else { Ok(()) }
    }

    /// Hands everything to the operating system, so that a crash of this process loses nothing.
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        let Some(block) = self.block.as_mut().filter(|block| block.has_unwritten) else { return Ok(()) };
        block.has_unwritten = false;
        block.packer.flush().map_err(|error| cannot(&self.path, error))?;
        let packed = std::mem::take(block.packer.get_mut());
        self.put(&packed)
    }

    /// Closes the file in order.
    pub fn finish(mut self) -> Result<(), RecordingError> {
        self.close_block()
    }

    fn close_block(&mut self) -> Result<(), RecordingError> {
        let Some(mut block) = self.block.take() else { return Ok(()) };
        block.keys.sort_unstable();
        block.keys.dedup();
        let mut index = INDEX.to_vec();
        for moment in [block.first, block.last] {
            index.extend(moment.as_millisecond().to_le_bytes());
        }
        block.keys.iter().for_each(|key| index.extend(key.to_le_bytes()));
        let mut packed = block.packer.finish().map_err(|error| cannot(&self.path, error))?;
        packed.extend(SKIPPABLE.to_le_bytes());
        packed.extend(u32::try_from(index.len()).unwrap_or(u32::MAX).to_le_bytes());
        packed.extend(index);
        self.put(&packed)
    }

    fn put(&mut self, packed: &[u8]) -> Result<(), RecordingError> {
        self.file.write_all(packed).map_err(|error| cannot(&self.path, error))?;
        self.size += packed.len() as u64;
        Ok(())
    }
}

impl OpenBlock {
    fn new(at: Timestamp) -> io::Result<Self> {
        let mut packer = Encoder::new(Vec::new(), LEVEL)?;
        packer.set_parameter(CParameter::ChecksumFlag(true))?;
        Ok(Self { packer, text: 0, first: at, last: at, keys: Vec::new(), has_unwritten: false })
    }
}

fn cannot(path: &Path, source: io::Error) -> RecordingError {
    RecordingError::Io { path: path.to_owned(), what: "written", source }
}
