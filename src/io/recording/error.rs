//! What can be wrong with the files of a recording.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("{path} cannot be {what}", path = .path.display())]
    Io { path: PathBuf, what: &'static str, source: std::io::Error },
    #[error("{path} has no recording: no file there is named `provisor-….jsonl.zst`", path = .path.display())]
    Empty { path: PathBuf },
    #[error("{path} has {size} bytes, and no more than {max} are read", path = .path.display(), max = super::SEGMENT_MAX)]
    TooLarge { path: PathBuf, size: u64 },
    #[error("{path} is no recording: it does not begin with zstd-packed lines", path = .path.display())]
    NoRecording { path: PathBuf },
    #[error("{size} bytes at once are more than a recording takes ({max})", max = super::PAGE_MAX)]
    TooLong { size: usize },
}

impl RecordingError {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Io { .. } => "look whether it exists, and whether the disk has room and lets you",
            Self::Empty { .. } => {
                "name the directory of `provisor run --record DIR`, or a file of `--record FILE`"
            }
            Self::TooLarge { .. } => "record into a directory: its files are smaller",
            Self::NoRecording { .. } => "name a file that `--record` wrote",
            Self::TooLong { .. } => "report it: no decision should be that long",
        }
    }
}
