//! A person's word about one commit, on its way to the process that follows the repository on the same machine.
//!
//! A file in the cache: whoever may write there may also stop the process. Losing it only means saying it again.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::GitSource;
use super::error::GitError;
use crate::model::repository::CommitId;

/// The place for one environment of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    path: PathBuf,
}

impl Acknowledgement {
    pub fn of(source: &GitSource, environment: &str, cache: &Path) -> Self {
        Self { path: cache.join("acknowledged").join(name_of(source, environment)) }
    }

    /// Says that `commit` is wanted, whatever it does to history. It takes the place of what was said before.
    pub fn write(&self, commit: &CommitId) -> Result<(), GitError> {
        let written = match self.path.parent() {
            Some(directory) => std::fs::create_dir_all(directory)
                .and_then(|()| std::fs::write(&self.path, format!("{commit}\n"))),
            None => Ok(()),
        };
        written.map_err(|source| GitError::Cache { path: self.path.clone(), source })
    }

    /// What was said last; what cannot be read was not said.
    pub fn read(&self) -> Option<CommitId> {
        CommitId::parse(std::fs::read_to_string(&self.path).ok()?.trim())
    }
}

/// A name that no other environment of any other source has.
pub(super) fn name_of(source: &GitSource, environment: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(source.identity());
    hash.update([0]);
    hash.update(environment);
    hash.finalize().iter().take(20).map(|byte| format!("{byte:02x}")).collect()
}
