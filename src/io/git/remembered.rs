//! What a process that follows a repository leaves for the next one on the same machine.
//!
//! A file in the cache, replaced as a whole: whoever reads it finds the old text or the new one. Losing it loses no object and no
//! commit; what is remembered is waited for again.

use std::io;
use std::path::{Path, PathBuf};

use super::GitSource;
use super::acknowledged::name_of;

/// The place for one environment of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    path: PathBuf,
}

/// More was not written by us.
const BYTES_MAX: u64 = 1 << 20;

impl Remembered {
    /// `what` tells several memories apart, such as `promotions`.
    pub fn of(source: &GitSource, environment: &str, what: &str, cache: &Path) -> Self {
        Self { path: cache.join("remembered").join(what).join(name_of(source, environment)) }
    }

    pub fn write(&self, text: &str) -> io::Result<()> {
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let new = self.path.with_extension(format!("new-{}", std::process::id()));
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.path))
    }

    /// What cannot be read was not written.
    pub fn read(&self) -> Option<String> {
        let size = std::fs::metadata(&self.path).ok()?.len();
        if size > BYTES_MAX { None } else { std::fs::read_to_string(&self.path).ok() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}
