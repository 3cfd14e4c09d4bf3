//! Commits to a local repository, noticed as they happen.
//!
//! Only what names commits is watched: HEAD, the references and their packed form. A commit writes several of these files
//! within milliseconds, so a burst is told once. A watch is a hint like a webhook: it hurries polling and never replaces
//! it. The kernel says nothing of a directory that is moved away with all that is above the watched files, so that is looked
//! at now and then; and a [`Lookout`] watches again once a repository is back at its path.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::error::GitError;
use super::local::{find, open};

/// A burst has ended when nothing happens for this long.
const QUIET: Duration = Duration::from_millis(50);
/// A change is told after this at the latest, however long the burst.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often a watched repository is looked for, and one that went away.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

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

/// Watches a path for as long as it is followed, also while no repository is there.
#[derive(Debug)]
pub struct Lookout {
    path: PathBuf,
    state: State,
}

#[derive(Debug)]
enum State {
    Watching(Watch),
    /// The repository is gone, or is another one: looked for at every beat.
    Lost(Interval),
    /// It is there and cannot be watched.
    Blind,
}

impl Lookout {
    /// Begins inside a runtime.
    pub fn new(path: &Path) -> Self {
        let state = begin(path).unwrap_or_else(State::lost);
        Self { path: path.into(), state }
    }

    /// Waits until the source is worth asking: it may have moved, it went away, or it is back. Nothing is lost if it is not
    /// waited for to the end.
    pub async fn next(&mut self) {
        match &mut self.state {
            State::Watching(watch) => {
                if watch.next().await != Some(Change::Moved) {
                    self.state = State::lost();
                }
            }
            State::Lost(beat) => loop {
                beat.tick().await;
                if let Some(state) = begin(&self.path) {
                    self.state = state;
                    return;
                }
            },
            State::Blind => std::future::pending().await,
        }
    }
}

impl State {
    fn lost() -> Self {
        let mut beat = interval(LOOK_AGAIN);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beat.reset();
        Self::Lost(beat)
    }
}

/// Watches the repository, if it is there.
fn begin(path: &Path) -> Option<State> {
    match watch(path) {
        Ok(watch) => Some(State::Watching(watch)),
        Err(GitError::Watch { .. }) => Some(State::Blind),
        Err(_) => None,
    }
}

/// Watches the references of the repository that is at `path` or around it.
pub fn watch(path: &Path) -> Result<Watch, GitError> {
    let found = find(path)?;
    let repo = open(&found.path, path)?;
    let real = |place: &Path| place.canonicalize().unwrap_or_else(|_| place.to_owned());
    let (git_dir, common_dir) = (real(repo.git_dir()), real(repo.common_dir()));
    let watched = Watched { identity: identity(&found.path), path: found.path, git_dir, common_dir };
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
    /// The work tree, or the bare repository.
    path: PathBuf,
    /// What was at `path` when the watch began.
    identity: Option<Identity>,
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

    /// Why there is nothing more to be heard, as far as a look tells.
    fn lost(&self) -> Option<String> {
        if self.is_gone() {
            return Some(REMOVED.into());
        }
        let now = identity(&self.path);
        (now != self.identity).then(|| match now {
            None => "the repository was moved away".into(),
            Some(_) => "another directory is in the repository's place".into(),
        })
    }
}

const REMOVED: &str = "the repository was removed";

/// Tells a directory from another that came in its place: device and number.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;

    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
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
            Seen::Lost(REMOVED.into())
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
    loop {
        let event = match events.recv_timeout(LOOK_AGAIN) {
            Ok(event) => event,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => match watched.lost() {
                Some(why) => return drop(tell.blocking_send(Change::Lost(why))),
                // Whoever listened is gone.
                None if tell.is_closed() => return,
                None => continue,
            },
        };
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
