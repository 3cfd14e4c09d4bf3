//! Commits to a local repository, noticed as they happen.
//!
//! Only what names commits is watched: HEAD, the references and their packed form. A commit writes several of these files
//! within milliseconds, so a burst is told once. A watch is a hint like a webhook: it hurries polling and never replaces
//! it, and when it is lost the poller alone goes on.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::error::GitError;
use super::local::{find, open};

/// A burst has ended when nothing happens for this long.
const QUIET: Duration = Duration::from_millis(50);
/// A change is told after this at the latest, however long the burst.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// References may have moved: ask the source where they lead.
    Moved,
    /// The watch has ended, with the reason; polling has to do alone.
    Lost(String),
}

/// A running watch; dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    changes: mpsc::Receiver<Change>,
    _watcher: RecommendedWatcher,
}

impl Watch {
    /// The next change; `None` after [`Change::Lost`].
    pub async fn next(&mut self) -> Option<Change> {
        self.changes.recv().await
    }

    /// The same for a thread that may wait.
    pub fn next_blocking(&mut self) -> Option<Change> {
        self.changes.blocking_recv()
    }
}

/// Watches the references of the repository that is at `path` or around it.
pub fn watch(path: &Path) -> Result<Watch, GitError> {
    let found = find(path)?;
    let repo = open(&found.path, path)?;
    let real = |place: &Path| place.canonicalize().unwrap_or_else(|_| place.to_owned());
    let watched = Watched { git_dir: real(repo.git_dir()), common_dir: real(repo.common_dir()) };
    let cannot = |error: notify::Error| GitError::Watch { path: path.into(), why: error.to_string() };

    let (seen, events) = channel();
    let mut watcher = notify::recommended_watcher(seen).map_err(cannot)?;
    for (place, mode) in watched.places() {
        watcher.watch(&place, mode).map_err(cannot)?;
    }
    let (tell, changes) = mpsc::channel(2);
    std::thread::Builder::new()
        .name("git watch".into())
        .spawn(move || forward(&watched, &events, &tell))
        .map_err(|error| GitError::Watch { path: path.into(), why: error.to_string() })?;
    Ok(Watch { changes, _watcher: watcher })
}

/// The directories that name commits; they differ for a linked work tree, which has a HEAD of its own.
struct Watched {
    git_dir: PathBuf,
    common_dir: PathBuf,
}

impl Watched {
    fn places(&self) -> Vec<(PathBuf, RecursiveMode)> {
        let mut places = vec![(self.git_dir.clone(), RecursiveMode::NonRecursive)];
        if self.common_dir != self.git_dir {
            places.push((self.common_dir.clone(), RecursiveMode::NonRecursive));
        }
        let deep = ["refs", "reftable"].map(|name| self.common_dir.join(name));
        places.extend(
            deep.into_iter().filter(|place| place.is_dir()).map(|place| (place, RecursiveMode::Recursive)),
        );
        places
    }

    /// True for files that name commits, and not for their locks.
    fn names_commits(&self, path: &Path) -> bool {
        if path.extension().is_some_and(|extension| extension == "lock") {
            return false;
        }
        path == self.git_dir.join("HEAD")
            || path == self.common_dir.join("packed-refs")
            || ["refs", "reftable"].iter().any(|name| path.starts_with(self.common_dir.join(name)))
    }

    fn is_gone(&self) -> bool {
        !(self.git_dir.is_dir() && self.common_dir.join("refs").is_dir())
    }
}

enum Seen {
    Nothing,
    Commits,
    Lost(String),
}

fn judged(watched: &Watched, event: notify::Result<notify::Event>) -> Seen {
    match event {
        Err(error) => Seen::Lost(error.to_string()),
        Ok(event) if matches!(event.kind, EventKind::Remove(_)) && watched.is_gone() => {
            Seen::Lost("the repository was removed".into())
        }
        Ok(event) if matches!(event.kind, EventKind::Access(_)) => Seen::Nothing,
        // The queue of the kernel overflowed: anything may have happened.
        Ok(event) if event.need_rescan() => Seen::Commits,
        Ok(event) => match event.paths.iter().any(|path| watched.names_commits(path)) {
            true => Seen::Commits,
            false => Seen::Nothing,
        },
    }
}

fn forward(watched: &Watched, events: &Receiver<notify::Result<notify::Event>>, tell: &mpsc::Sender<Change>) {
    while let Ok(event) = events.recv() {
        match judged(watched, event) {
            Seen::Nothing => continue,
            Seen::Commits => {}
            Seen::Lost(why) => return drop(tell.blocking_send(Change::Lost(why))),
        }
        let lost = wait_for_quiet(watched, events);
        // A full channel already holds a change that nobody has taken: one is enough.
        if let Err(mpsc::error::TrySendError::Closed(_)) = tell.try_send(Change::Moved) {
            return;
        }
        if let Some(why) = lost {
            return drop(tell.blocking_send(Change::Lost(why)));
        }
    }
}

/// Swallows the rest of a burst; says why if the watch was lost meanwhile.
#[expect(
    clippy::disallowed_methods,
    reason = "this thread has nothing else to do; the burst is what it waits for"
)]
fn wait_for_quiet(watched: &Watched, events: &Receiver<notify::Result<notify::Event>>) -> Option<String> {
    let rounds_max = PATIENCE.as_millis() / QUIET.as_millis();
    for _ in 0..rounds_max {
        std::thread::sleep(QUIET);
        let mut is_quiet = true;
        while let Ok(event) = events.try_recv() {
            match judged(watched, event) {
                Seen::Nothing => {}
                Seen::Commits => is_quiet = false,
                Seen::Lost(why) => return Some(why),
            }
        }
        if is_quiet {
            break;
        }
    }
    None
}
