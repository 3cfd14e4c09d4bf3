//! Where a page goes: beside its place first, so that the place is known to be writable before anything is played, and what was
//! there before stays until the new page is whole.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ui::exit::Failure;

/// A page that is to be written.
#[derive(Debug)]
pub struct ReportFile {
    target: PathBuf,
    beside: PathBuf,
}

impl ReportFile {
    /// Makes sure that a page can be written to `target`.
    pub fn prepare(target: &Path) -> Result<Self, Failure> {
        let refused = |why: &str, help: &str| {
            Err(Failure::input(format!("`{}` {why}, so no page can be written there", target.display()))
                .help(help))
        };
        if target.is_dir() {
            return refused("is a directory", "name a file in it, such as `run.html`");
        }
        if target.file_name().is_none() {
            return refused("names no file", "write it such as `run.html`");
        }
        let mut beside = target.as_os_str().to_owned();
        beside.push(format!(".{}.new", std::process::id()));
        let beside = PathBuf::from(beside);
        let tried = fs::write(&beside, "").and_then(|()| fs::remove_file(&beside));
        tried.map_err(|error| cannot_write(target, &error))?;
        Ok(Self { target: target.to_owned(), beside })
    }

    /// Its name, as it was given.
    pub fn place(&self) -> String {
        self.target.display().to_string()
    }

    /// Puts the page in its place.
    pub fn write(self, page: &str) -> Result<(), Failure> {
        let written = fs::write(&self.beside, page).and_then(|()| {
            if let Ok(old) = fs::metadata(&self.target) {
                fs::set_permissions(&self.beside, old.permissions())?;
            }
            fs::rename(&self.beside, &self.target)
        });
        written.map_err(|error| {
            drop(fs::remove_file(&self.beside));
            cannot_write(&self.target, &error)
        })
    }
}

fn cannot_write(target: &Path, error: &std::io::Error) -> Failure {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let help = match folder {
        Some(folder) if !folder.exists() => format!("make the directory `{}` first", folder.display()),
        _ => "check the space and the rights, or name another file".to_owned(),
    };
    Failure::outside(format!("the page `{}` cannot be written", target.display())).caused_by(error).help(help)
}
