//! Writes down what a node engine is told and decides, beside the loop that runs it and never in its way.
//!
//! A recording may be lost, and reconciliation may not: where the disk is full, slow or gone, what happens is not recorded until
//! it answers again, with a warning and a count. After a gap, and whenever a file is full, the next file begins with a picture of
//! the objects. Nothing that is recorded ever comes back to the engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use jiff::Timestamp;

use crate::capacity::cluster::Cluster;
use crate::capacity::engine::EngineSettings;
use crate::capacity::recording::{Committed, Event, FORMAT, Header, Joins, Page, Scribe, picture};
use crate::io::clock::Stopwatch;
use crate::io::recording::{Cap, RecordingError, SegmentWriter, make_room, name_of};
use crate::model::observation::Observation;

/// Events that may wait for the disk: the first listing of a large cluster comes at once.
const WAITING_MAX: usize = 1 << 17;
/// What was recorded is handed to the operating system at least so often.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// A disk that failed is tried again after so long.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// At the end the disk is waited for so long, and no longer: another replica may act by then.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// What is recorded, and where.
#[derive(Clone, Debug)]
pub struct RecordingSettings {
    pub place: Place,
    /// Names this life of the engine: that of another must have another name.
    pub run: String,
    pub environment: String,
    pub is_simulated: bool,
    pub engine: EngineSettings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// All of it in one file.
    File(PathBuf),
    /// File after file; the oldest go when there is too much.
    Directory { path: PathBuf, cap: Cap },
}

/// How the recording is doing, for metrics.
#[derive(Debug, Default)]
pub struct RecordingHealth {
    /// Bytes that were written.
    pub written: AtomicU64,
    /// Events that were not recorded.
    pub dropped: AtomicU64,
}

/// Writes where it stands: for simulated clusters, whose time waits.
pub struct Journal {
    settings: RecordingSettings,
    scribe: Scribe,
    writer: Option<SegmentWriter>,
    segment: u32,
    commit: Option<Committed>,
    /// Why the next file does not follow on the one before.
    gap: Option<String>,
    failed: Option<(RecordingError, Stopwatch)>,
    flushed: Stopwatch,
    health: Arc<RecordingHealth>,
}

impl Journal {
    pub fn new(settings: RecordingSettings) -> Self {
        Self::counted(settings, Arc::default())
    }

    fn counted(settings: RecordingSettings, health: Arc<RecordingHealth>) -> Self {
        Self {
            settings,
            scribe: Scribe::default(),
            writer: None,
            segment: 0,
            commit: None,
            gap: None,
            failed: None,
            flushed: Stopwatch::start(),
            health,
        }
    }

    /// Begins the next file with the objects, if that is what recording waits for.
    pub fn tend(&mut self, at: Timestamp, cluster: &Cluster) {
        if self.wants_picture() {
            self.take_picture(at, &picture(cluster));
        }
        self.flush_in_time();
    }

    /// Into a directory what happens now is recorded, and a crash may come; a file alone is the same whenever it is written.
    fn flush_in_time(&mut self) {
        let is_live = matches!(self.settings.place, Place::Directory { .. });
        if is_live && self.flushed.elapsed() >= FLUSH_EVERY {
            self.flushed = Stopwatch::start();
            self.flush();
        }
    }

    /// Whether nothing can be written before the objects are known: the file is full, or something is missing.
    fn wants_picture(&self) -> bool {
        let is_rested = self.failed.as_ref().is_none_or(|(_, since)| since.elapsed() >= RETRY_AFTER);
        match (&self.writer, &self.settings.place) {
            (Some(writer), Place::Directory { cap, .. }) => {
                self.gap.is_some() || writer.size() >= cap.segment
            }
            (None, Place::Directory { .. }) => self.segment > 0 && is_rested,
            (_, Place::File(_)) => false,
        }
    }

    /// Begins a file with `objects`.
    fn take_picture(&mut self, at: Timestamp, objects: &[Observation]) {
        if let Err(error) = self.turn_over(at, Some(objects)) {
            self.give_up(error);
        }
    }

    /// Writes an event down.
    pub fn record(&mut self, event: &Event) {
        if let Event::Committed { commit, .. } = event {
            self.commit = Some(commit.clone());
        }
        let is_first = self.writer.is_none() && self.segment == 0 && self.failed.is_none();
        let outcome = if is_first { self.turn_over(at_of(event), None) } else { Ok(()) };
        let outcome = outcome.and_then(|()| match self.writer.is_some() {
            true => {
                let page = self.scribe.write(event);
                self.put(&page)
            }
            false => {
                self.health.dropped.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        });
        if let Err(error) = outcome {
            self.health.dropped.fetch_add(1, Ordering::Relaxed);
            self.give_up(error);
        }
    }

    /// Closes the file and begins the next.
    fn turn_over(&mut self, at: Timestamp, objects: Option<&[Observation]>) -> Result<(), RecordingError> {
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
        }
        let path = match &self.settings.place {
            Place::File(path) => path.clone(),
            Place::Directory { path, cap } => {
                std::fs::create_dir_all(path).map_err(|source| RecordingError::Io {
                    path: path.clone(),
                    what: "made",
                    source,
                })?;
                make_room(path, *cap)?;
                path.join(name_of(&self.settings.run, self.segment))
            }
        };
        let joins = match self.gap.take() {
            Some(why) => Joins::Gap(why),
            None if self.segment == 0 => Joins::Beginning,
            None => Joins::Previous,
        };
        let header = Header {
            format: FORMAT,
            provisor: env!("CARGO_PKG_VERSION").into(),
            run: self.settings.run.clone(),
            segment: self.segment,
            environment: self.settings.environment.clone(),
            is_simulated: self.settings.is_simulated,
            joins,
            settings: self.settings.engine.clone(),
        };
        self.segment += 1;
        self.writer = Some(SegmentWriter::create(&path)?);
        let page = self.scribe.begin(&header, at);
        self.put(&page)?;
        if let Some(objects) = objects {
            let page = self.scribe.picture(at, objects, self.commit.as_ref());
            self.put(&page)?;
        }
        if self.failed.take().is_some() {
            tracing::warn!("{} is recorded into again; what happened meanwhile is missing", path.display());
        }
        Ok(())
    }

    fn put(&mut self, page: &Page) -> Result<(), RecordingError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let before = writer.size();
        writer.append(page.at, &page.text, &page.keys)?;
        self.health.written.fetch_add(writer.size() - before, Ordering::Relaxed);
        Ok(())
    }

    /// Hands what is written to the operating system.
    pub fn flush(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        let before = writer.size();
        match writer.flush() {
            Ok(()) => drop(self.health.written.fetch_add(writer.size() - before, Ordering::Relaxed)),
            Err(error) => self.give_up(error),
        }
    }

    /// Nothing is recorded until the disk had time to recover.
    fn give_up(&mut self, error: RecordingError) {
        if self.failed.is_none() {
            tracing::warn!("nothing is recorded for now, which changes nothing else: {}", with_cause(&error));
        }
        self.gap = Some(with_cause(&error));
        // A first file that cannot be made is tried again like every other.
        self.segment = self.segment.max(1);
        self.writer = None;
        self.failed = Some((error, Stopwatch::start()));
    }

    /// Ends the recording in order; the last trouble, if there is one.
    pub fn finish(mut self) -> Result<(), RecordingError> {
        let ended = self.writer.take().map_or(Ok(()), SegmentWriter::finish);
        match self.failed {
            Some((error, _)) => Err(error),
            None => ended,
        }
    }
}

fn with_cause(error: &RecordingError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn at_of(event: &Event) -> Timestamp {
    match event {
        Event::Seen { at, .. } | Event::Decided { at, .. } | Event::Committed { at, .. } => *at,
    }
}

enum Message {
    Event(Event),
    Picture { at: Timestamp, objects: Vec<Observation>, gap: Option<String> },
}

/// Writes in a thread of its own: whoever records never waits.
pub struct Recorder {
    sender: Option<SyncSender<Box<Message>>>,
    /// Says when everything is written.
    written: Receiver<()>,
    wants_picture: Arc<AtomicBool>,
    /// Something could not be handed over: nothing is, until a picture was.
    has_gap: bool,
    health: Arc<RecordingHealth>,
}

impl Recorder {
    /// What is written and dropped is counted in `health`.
    pub fn start(settings: RecordingSettings, health: Arc<RecordingHealth>) -> std::io::Result<Self> {
        Self::with_room(settings, health, WAITING_MAX)
    }

    fn with_room(
        settings: RecordingSettings,
        health: Arc<RecordingHealth>,
        waiting_max: usize,
    ) -> std::io::Result<Self> {
        let journal = Journal::counted(settings, health.clone());
        let wants_picture = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = sync_channel(waiting_max);
        let wants = wants_picture.clone();
        let (end, written) = sync_channel(1);
        std::thread::Builder::new().name("recorder".into()).spawn(move || {
            keep(journal, &receiver, &wants);
            drop(end);
        })?;
        Ok(Self { sender: Some(sender), written, wants_picture, has_gap: false, health })
    }

    pub fn record(&mut self, event: Event) {
        if self.has_gap || !self.send(Message::Event(event)) {
            self.has_gap = true;
            self.health.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands over the objects, if that is what recording waits for.
    pub fn tend(&mut self, at: Timestamp, cluster: &Cluster) {
        if !self.has_gap && !self.wants_picture.load(Ordering::Relaxed) {
            return;
        }
        let gap = self.has_gap.then(|| "the disk was too slow".to_owned());
        if self.send(Message::Picture { at, objects: picture(cluster), gap }) {
            self.wants_picture.store(false, Ordering::Relaxed);
            self.has_gap = false;
        }
    }

    fn send(&self, message: Message) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.try_send(Box::new(message)).is_ok())
    }
}

/// What was recorded has a moment to reach the disk.
impl Drop for Recorder {
    fn drop(&mut self) {
        self.sender = None;
        let _ended = self.written.recv_timeout(END_PATIENCE);
    }
}

/// The thread: writes until nobody records any more.
fn keep(mut journal: Journal, receiver: &Receiver<Box<Message>>, wants_picture: &AtomicBool) {
    loop {
        match receiver.recv_timeout(FLUSH_EVERY).map(|message| *message) {
            Ok(Message::Event(event)) => journal.record(&event),
            Ok(Message::Picture { at, objects, gap }) => {
                journal.gap = gap.or(journal.gap.take());
                journal.take_picture(at, &objects);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if journal.wants_picture() {
            wants_picture.store(true, Ordering::Relaxed);
        }
        journal.flush_in_time();
    }
    if let Err(error) = journal.finish() {
        tracing::warn!("the end is not recorded: {}", with_cause(&error));
    }
}
