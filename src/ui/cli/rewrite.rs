//! Files of a fleet on disk, written all or not at all: each beside its place first, then moved there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::io::git::{Limits, Symlinks, read_directory};
use crate::model::repository::Repository;
use crate::ui::exit::Failure;

/// Reads a fleet that is to be rewritten: a directory of this machine.
pub fn read(dir: &Path) -> Result<Repository, Failure> {
    if !dir.is_dir() {
        return Err(Failure::input(format!("`{}` is not a directory", dir.display()))
            .help("files are rewritten in a directory: clone the repository and name the clone"));
    }
    Ok(read_directory(dir, &Limits::default(), Symlinks::Refused)?)
}

/// Writes `files`, by path below `dir`.
pub fn write(dir: &Path, files: &BTreeMap<Arc<str>, Arc<[u8]>>) -> Result<(), Failure> {
    if let Some(path) = files.keys().map(|path| dir.join(&**path)).find(|path| path.is_dir()) {
        return Err(Failure::outside(format!(
            "`{}` is a directory, where a file is to be written",
            path.display()
        ))
        .help("move it away"));
    }
    let mut ready: Vec<(PathBuf, PathBuf)> = Vec::new();
    let written = files.iter().try_for_each(|(path, bytes)| {
        let target = dir.join(&**path);
        let mut beside = target.clone().into_os_string();
        beside.push(format!(".{}.new", std::process::id()));
        let beside = PathBuf::from(beside);
        ready.push((beside.clone(), target.clone()));
        fs::write(&beside, bytes)?;
        if let Ok(old) = fs::metadata(&target) {
            fs::set_permissions(&beside, old.permissions())?;
        }
        Ok::<(), std::io::Error>(())
    });
    let moved =
        written.and_then(|()| ready.iter().try_for_each(|(beside, target)| fs::rename(beside, target)));
    moved.map_err(|error| {
        for (beside, _) in &ready {
            drop(fs::remove_file(beside));
        }
        Failure::outside(format!("`{}` cannot be written", dir.display()))
            .caused_by(&error)
            .help("check the space and the rights")
    })
}
