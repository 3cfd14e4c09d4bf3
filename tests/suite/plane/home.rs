//! A folder per plane below `target/tmp`, removed when the plane ends; what killed tests left is removed by the next one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Home(PathBuf);

impl Home {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let planes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planes");
        fs::create_dir_all(&planes).expect("the target folder can be written");
        sweep(&planes);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let home = planes.join(format!("{}-{count}", std::process::id()));
        fs::create_dir(&home).expect("nobody else has this process id");
        Self(home)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("the plane's folder can be written");
        path
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A test that failed wants the servers' logs.
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.0).ok();
        }
    }
}

/// Removes folders whose process is gone.
fn sweep(planes: &Path) {
    for entry in fs::read_dir(planes).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split('-').next()).unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}
