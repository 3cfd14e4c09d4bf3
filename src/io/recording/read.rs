//! Reads segments: all of it, or only the frames that speak of something.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use zstd::stream::read::Decoder;
use zstd::zstd_safe::find_frame_compressed_size;

use super::{BLOCK_MAX, INDEX, PREFIX, RecordingError, SEGMENT_MAX, SKIPPABLE, SUFFIX, WINDOW_LOG_MAX};

/// The files of a recording, oldest first: those of a directory, or the one file.
pub fn segments(path: &Path) -> Result<Vec<PathBuf>, RecordingError> {
    let cannot = |source| RecordingError::Io { path: path.to_owned(), what: "read", source };
    if !path.metadata().map_err(cannot)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in path.read_dir().map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(RecordingError::Empty { path: path.to_owned() });
    }
    files.sort();
    Ok(files)
}

/// One file: where its frames are, and what each speaks of.
pub struct Segment {
    pub path: PathBuf,
    pub blocks: Vec<Block>,
}

/// A frame of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    place: Range<usize>,
    /// `None`: the frame was not closed, so that nobody knows what is in it.
    index: Option<Index>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Index {
    /// In milliseconds since 1970.
    first: i64,
    last: i64,
    /// In order.
    keys: Vec<u32>,
}

/// What a frame unpacks to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Whole lines.
    pub lines: String,
    /// Why something is missing behind them, if so.
    pub torn: Option<String>,
}

impl Index {
    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_prefix(INDEX)?;
        let (first, bytes) = bytes.split_first_chunk::<8>()?;
        let (last, bytes) = bytes.split_first_chunk::<8>()?;
        let keys = bytes.as_chunks::<4>().0.iter().map(|key| u32::from_le_bytes(*key));
        Some(Self {
            first: i64::from_le_bytes(*first),
            last: i64::from_le_bytes(*last),
            keys: keys.collect(),
        })
    }
}

impl Block {
    /// When its lines begin and end, in milliseconds since 1970; `None` if that is not known.
    pub fn period(&self) -> Option<(i64, i64)> {
        self.index.as_ref().map(|index| (index.first, index.last))
    }

    /// Whether it may speak of one of `keys`.
    pub fn speaks_of(&self, keys: &[u32]) -> bool {
        let Some(index) = &self.index else { return true };
        keys.iter().any(|key| index.keys.binary_search(key).is_ok())
    }
}

impl Segment {
    /// Looks where the frames are. What follows a frame that was torn is not looked at.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let cannot = |source| RecordingError::Io { path: path.to_owned(), what: "read", source };
        let size = path.metadata().map_err(cannot)?.len();
        if size > SEGMENT_MAX {
            return Err(RecordingError::TooLarge { path: path.to_owned(), size });
        }
        let mut bytes = Vec::new();
        File::open(path).and_then(|file| file.take(SEGMENT_MAX).read_to_end(&mut bytes)).map_err(cannot)?;
        Ok(Self { path: path.to_owned(), blocks: blocks(&bytes) })
    }

    /// Unpacks a frame. Of the first one something has to be there.
    pub fn text(&self, block: &Block) -> Result<Text, RecordingError> {
        let cannot = |source| RecordingError::Io { path: self.path.clone(), what: "read", source };
        let mut packed = vec![0; block.place.len()];
        let mut file = File::open(&self.path).map_err(cannot)?;
        file.seek(SeekFrom::Start(block.place.start as u64))
            .and_then(|_| file.read_exact(&mut packed))
            .map_err(cannot)?;
        let text = unpack(&packed);
        if block.place.start == 0 && text.lines.is_empty() {
            return Err(RecordingError::NoRecording { path: self.path.clone() });
        }
        Ok(text)
    }
}

fn blocks(bytes: &[u8]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let is_skippable = rest.starts_with(&SKIPPABLE.to_le_bytes());
        let end = match find_frame_compressed_size(rest) {
            Ok(size) if size > 0 && size <= rest.len() => at + size,
            // Only an index is missing, and no line.
            _ if is_skippable => break,
            _ => {
                blocks.push(Block { place: at..bytes.len(), index: None });
                break;
            }
        };
        if !is_skippable {
            blocks.push(Block { place: at..end, index: None });
        } else if let Some(block) = blocks.last_mut() {
            block.index = bytes[at..end].get(8..).and_then(Index::read);
        }
        at = end;
    }
    blocks
}

fn unpack(packed: &[u8]) -> Text {
    let torn = |why: String| Text { lines: String::new(), torn: Some(why) };
    let mut unpacker = match Decoder::with_buffer(packed) {
        Ok(unpacker) => unpacker.single_frame(),
        Err(error) => return torn(error.to_string()),
    };
    if let Err(error) = unpacker.window_log_max(WINDOW_LOG_MAX) {
        return torn(error.to_string());
    }
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    let mut why = loop {
        match unpacker.read(&mut chunk) {
            Ok(0) => break None,
            Ok(count) if bytes.len() + count > BLOCK_MAX => {
                break Some(format!("more than {BLOCK_MAX} bytes are packed into one frame"));
            }
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) => break Some(error.to_string()),
        }
    };
    let mut lines = match String::from_utf8(bytes) {
        Ok(lines) => lines,
        Err(error) => {
            why = Some("there is something that is no text".into());
            let valid = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(valid);
            String::from_utf8(bytes).unwrap_or_default()
        }
    };
    let whole = lines.rfind('\n').map_or(0, |at| at + 1);
    if whole < lines.len() && why.is_none() {
        why = Some("the last line has no end".into());
    }
    lines.truncate(whole);
    Text { lines, torn: why }
}
