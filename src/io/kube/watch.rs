//! Everything that is observed, listed once and then watched, for as long as the program runs.
//!
//! A watch that breaks goes on where it was; one that is too far behind lists again, and what is missing from the second list is
//! reported as gone. Whoever listens sees one stream of changes and need not know about any of that.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::intake::{Intake, gone, key_of};
use super::record::Version;
use super::trim::Trimmed;
use super::{Change, Kind, Kube, KubeError};
use crate::model::name::ObjectKey;

/// Objects in one page of a list.
const PAGE: u32 = 500;
/// A watch is begun anew after so long, so that a connection that died silently is noticed.
const WATCH_SECONDS: u32 = 240;
const PAUSE_LEAST: Duration = Duration::from_millis(200);
const PAUSE_MOST: Duration = Duration::from_secs(10);
/// Changes that may wait for whoever decides.
const WAITING_MAX: usize = 8192;

/// What a watch has to say.
#[derive(Debug)]
pub enum Event {
    Changed(Box<Change>),
    /// The first list of this kind is complete.
    Listed(Kind),
    /// There was no such kind, and there is now.
    Defined(Kind),
}

/// The watches of all kinds. They end when this is dropped.
#[derive(Debug)]
pub struct Watches {
    events: mpsc::Receiver<Event>,
    _tasks: JoinSet<()>,
}

impl Watches {
    /// Finds out whether the kinds that only our definitions bring are there, and starts watching; what says which pods belong
    /// together only for somebody who `wants_companions`.
    pub async fn start(kube: &Kube, wants_companions: bool) -> Result<Self, KubeError> {
        let has_buffers = expect_definitions(kube).await?;
        let (sender, events) = mpsc::channel(WAITING_MAX);
        let (told, priorities_known) = watch::channel(false);
        let told = Arc::new(told);
        let (buffers_told, buffers_known) = watch::channel(has_buffers);
        let buffers_told = Arc::new(buffers_told);
        let intake = Arc::new(Intake::default());
        let mut tasks = JoinSet::new();
        for kind in Kind::ALL {
            if !kind.is_watched(true, wants_companions) {
                drop(sender.send(Event::Listed(kind)).await);
                continue;
            }
            // What matters to buffers only is read once somebody can make one; whether somebody can is asked all the while.
            let waits_for_buffers = kind != Kind::Buffer && !kind.is_watched(false, wants_companions);
            let mut watcher = Watcher {
                kind,
                kube: kube.clone(),
                intake: intake.clone(),
                events: sender.clone(),
                known: BTreeSet::new(),
                is_listed: false,
                is_known_missing: kind == Kind::Buffer && !has_buffers,
                complained: BTreeSet::new(),
            };
            let (told, mut priorities_known) = (told.clone(), priorities_known.clone());
            let (buffers_told, mut buffers_known) = (buffers_told.clone(), buffers_known.clone());
            if waits_for_buffers && !has_buffers {
                watcher.announce().await;
            }
            tasks.spawn(async move {
                // The priority of a DaemonSet's pods is that of the class that it names.
                if kind == Kind::DaemonSet && priorities_known.wait_for(|known| *known).await.is_err() {
                    return;
                }
                if waits_for_buffers && buffers_known.wait_for(|known| *known).await.is_err() {
                    return;
                }
                let listed = || match kind {
                    Kind::PriorityClass => drop(told.send_replace(true)),
                    Kind::Buffer => drop(buffers_told.send_replace(true)),
                    _ => {}
                };
                if kind.is_synced() {
                    watcher.run::<Whole>(listed).await;
                } else {
                    watcher.run::<Trimmed>(listed).await;
                }
            });
        }
        Ok(Self { events, _tasks: tasks })
    }

    /// The next event; `None` never comes while the watches run.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// An event that is there already.
    pub fn next_ready(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }
}

/// Every kind of ours that nothing is decided without; tells whether there are buffers, too.
async fn expect_definitions(kube: &Kube) -> Result<bool, KubeError> {
    let mut missing = Vec::new();
    let mut has_buffers = true;
    for kind in [Kind::NodePool, Kind::NodeClaim, Kind::NodeClass, Kind::Buffer] {
        match kube.list::<Value>(kind.resource(), &ListParams::default().limit(1)).await {
            Err(error) if error.is_missing() && kind == Kind::Buffer => has_buffers = false,
            Err(error) if error.is_missing() => missing.push(kind.resource().kind),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    if missing.is_empty() {
        Ok(has_buffers)
    } else {
        Err(KubeError::NoDefinitions { kinds: missing.join(", ") })
    }
}

/// How an object is decoded.
trait Wire: DeserializeOwned + Clone + Send + 'static {
    fn value(self) -> Value;
}

impl Wire for Trimmed {
    fn value(self) -> Value {
        self.0
    }
}

/// An object with everything that the API server says of it.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
struct Whole(Value);

impl Wire for Whole {
    fn value(self) -> Value {
        self.0
    }
}

#[derive(Deserialize)]
struct Page<T> {
    metadata: PageMetadata,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    r#continue: Option<String>,
}

struct Watcher {
    kind: Kind,
    kube: Kube,
    intake: Arc<Intake>,
    events: mpsc::Sender<Event>,
    known: BTreeSet<ObjectKey>,
    is_listed: bool,
    /// There is no such kind, and it was said.
    is_known_missing: bool,
    /// Objects that were complained about, so that each is named once.
    complained: BTreeSet<ObjectKey>,
}

/// Why a watch ended.
enum End {
    /// It goes on from this version.
    Resumable(String),
    /// What happened meanwhile is forgotten; only a new list helps.
    TooOld,
}

impl Watcher {
    async fn run<T: Wire>(&mut self, listed: impl Fn()) {
        let mut pause = PAUSE_LEAST;
        while !self.events.is_closed() {
            let mut version = match self.list::<T>().await {
                Ok(version) => version,
                // A kind that is not there may come later, and is no reason to wait with everything else.
                Err(error) if error.is_missing() => {
                    if !std::mem::replace(&mut self.is_known_missing, true) {
                        let plural = self.kind.resource().plural;
                        tracing::warn!("{error}; {plural} count from when there are any");
                    }
                    self.announce().await;
                    rest(&mut pause).await;
                    continue;
                }
                Err(error) => {
                    self.complain(&error);
                    rest(&mut pause).await;
                    continue;
                }
            };
            pause = PAUSE_LEAST;
            if std::mem::take(&mut self.is_known_missing) {
                drop(self.events.send(Event::Defined(self.kind)).await);
            }
            self.announce().await;
            listed();
            loop {
                match self.watch::<T>(version.clone()).await {
                    Ok(End::Resumable(next)) => {
                        if next == version {
                            rest(&mut pause).await;
                        } else {
                            pause = PAUSE_LEAST;
                        }
                        version = next;
                    }
                    Ok(End::TooOld) => break self.tell_too_old(),
                    Err(error) if error.is_expired() => break self.tell_too_old(),
                    Err(error) => {
                        self.complain(&error);
                        rest(&mut pause).await;
                    }
                }
                if self.events.is_closed() {
                    return;
                }
            }
        }
    }

    fn complain(&self, error: &KubeError) {
        tracing::warn!("{error}; trying again");
    }

    fn tell_too_old(&self) {
        let plural = self.kind.resource().plural;
        tracing::info!("{plural} changed meanwhile, and how is forgotten (410): they are listed anew");
    }

    async fn announce(&mut self) {
        if !std::mem::replace(&mut self.is_listed, true) {
            drop(self.events.send(Event::Listed(self.kind)).await);
        }
    }

    /// Reads all objects there are, page by page; the version from which to watch.
    async fn list<T: Wire>(&mut self) -> Result<String, KubeError> {
        let mut seen = BTreeSet::new();
        let mut parameters = ListParams::default().limit(PAGE);
        loop {
            let page: Page<T> = self.kube.list(self.kind.resource(), &parameters).await?;
            for item in page.items {
                let object = item.value();
                seen.insert(key_of(&object));
                // If no further page comes, it was told of all the same.
                self.known.insert(key_of(&object));
                self.tell(object).await;
            }
            match page.metadata.r#continue.filter(|token| !token.is_empty()) {
                Some(token) => parameters = ListParams::default().limit(PAGE).continue_token(&token),
                None => {
                    let version = Version(page.metadata.resource_version.parse().unwrap_or_default());
                    for key in std::mem::replace(&mut self.known, seen.clone()).difference(&seen) {
                        let change = gone(self.kind, *key, version);
                        drop(self.events.send(Event::Changed(Box::new(change))).await);
                    }
                    return Ok(page.metadata.resource_version);
                }
            }
        }
    }

    async fn watch<T: Wire>(&mut self, mut version: String) -> Result<End, KubeError> {
        let plural = self.kind.resource().plural;
        let what = || format!("watching {plural}");
        let unreachable = |message: String| KubeError::Unreachable { what: what(), message };
        let parameters = WatchParams::default().timeout(WATCH_SECONDS);
        let request = Request::new(self.kind.resource().path(None)).watch(&parameters, &version);
        let request = request.map_err(|error| unreachable(error.to_string()))?;
        let stream = match self.kube.raw().request_events::<T>(request).await {
            Ok(stream) => stream,
            Err(error) => return Err(KubeError::of(what(), error)),
        };
        let mut stream = pin!(stream);
        let silence = Duration::from_secs(u64::from(WATCH_SECONDS) + 10);
        loop {
            let next = match tokio::time::timeout(silence, stream.try_next()).await {
                Ok(Ok(Some(event))) => event,
                // Ended, broken or silent: what was read so far counts.
                Ok(Ok(None)) | Err(_) => return Ok(End::Resumable(version)),
                Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Ok(End::TooOld),
                Ok(Err(error)) => {
                    tracing::debug!("{}: {error}", what());
                    return Ok(End::Resumable(version));
                }
            };
            match next {
                WatchEvent::Added(item) | WatchEvent::Modified(item) => {
                    let object = item.value();
                    note_version(&object, &mut version);
                    self.known.insert(key_of(&object));
                    self.tell(object).await;
                }
                WatchEvent::Deleted(item) => {
                    let object = item.value();
                    note_version(&object, &mut version);
                    let key = key_of(&object);
                    self.known.remove(&key);
                    let change = gone(self.kind, key, Version::of(&object));
                    drop(self.events.send(Event::Changed(Box::new(change))).await);
                }
                WatchEvent::Bookmark(mark) => version = mark.metadata.resource_version,
                WatchEvent::Error(status) if status.code == 410 => return Ok(End::TooOld),
                // What was told until then stands: from an older version pods that are gone would be told of again.
                WatchEvent::Error(status) => {
                    self.complain(&unreachable(status.message));
                    return Ok(End::Resumable(version));
                }
            }
        }
    }

    async fn tell(&mut self, object: Value) {
        let (change, misread) = self.intake.read(self.kind, object);
        match misread {
            Some(misread) => {
                if self.complained.insert(misread.key) {
                    tracing::warn!("{misread}");
                }
            }
            None => drop(self.complained.remove(&change.key)),
        }
        drop(self.events.send(Event::Changed(Box::new(change))).await);
    }
}

fn note_version(object: &Value, version: &mut String) {
    if let Some(newer) = object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
        newer.clone_into(version);
    }
}

async fn rest(pause: &mut Duration) {
    tokio::time::sleep(*pause).await;
    *pause = (*pause * 2).min(PAUSE_MOST);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::kube::Address;
    use serde_json::json;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};

    /// The first line of a request.
    fn asked(stream: &TcpStream) -> String {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        lines.take_while(|line| !line.is_empty()).for_each(drop);
        first
    }

    fn answer(mut stream: TcpStream, documents: &[Value]) {
        let body: String = documents.iter().map(|document| format!("{document}\n")).collect();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("somebody listens");
    }

    /// A server, a kubeconfig that names it, and the folder that holds it.
    fn listening() -> (TcpListener, std::path::PathBuf, tempfile::TempDir) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let folder = tempfile::TempDir::new().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        let file = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://{address}") } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        std::fs::write(&kubeconfig, file.to_string()).expect("written");
        (listener, kubeconfig, folder)
    }

    async fn watcher(kubeconfig: std::path::PathBuf) -> (Watcher, mpsc::Receiver<Event>) {
        let address = Address { kubeconfig: Some(kubeconfig), context: None };
        let kube = Kube::connect(&address, 1000).await.expect("a connection");
        let (sender, events) = mpsc::channel(WAITING_MAX);
        let watcher = Watcher {
            kind: Kind::Pod,
            kube,
            intake: Arc::new(Intake::default()),
            events: sender,
            known: BTreeSet::new(),
            is_listed: false,
            is_known_missing: false,
            complained: BTreeSet::new(),
        };
        (watcher, events)
    }

    /// What was told of objects: the version, and whether it is gone.
    fn told(events: &mut mpsc::Receiver<Event>) -> Vec<(u64, bool)> {
        let mut told = Vec::new();
        while let Ok(event) = events.try_recv() {
            if let Event::Changed(change) = event {
                told.push((change.version.0, change.is_gone));
            }
        }
        told
    }

    #[tokio::test]
    async fn a_watch_that_breaks_with_an_error_goes_on_from_what_it_had_told() {
        let (listener, kubeconfig, _folder) = listening();
        let server = std::thread::spawn(move || {
            let next = || {
                let (stream, _) = listener.accept().expect("a connection");
                (asked(&stream), stream)
            };
            let (_, list) = next();
            answer(list, &[json!({ "metadata": { "resourceVersion": "10" }, "items": [] })]);
            let (first, watch) = next();
            let pod = |version: &str| {
                json!({
                    "apiVersion": "v1", "kind": "Pod", "spec": { "containers": [] }, "status": {},
                    "metadata": { "name": "a", "namespace": "b", "uid": "c", "resourceVersion": version },
                })
            };
            let status = json!({
                "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
                "message": "etcdserver: leader changed", "reason": "InternalError", "code": 500,
            });
            let news = [("ADDED", pod("11")), ("DELETED", pod("12")), ("ERROR", status)];
            answer(watch, &news.map(|(kind, object)| json!({ "type": kind, "object": object })));
            (first, next().0)
        });
        let (mut watcher, mut events) = watcher(kubeconfig).await;
        let watching = tokio::spawn(async move { watcher.run::<Trimmed>(|| ()).await });
        let (first, next) =
            tokio::task::spawn_blocking(|| server.join()).await.expect("it ends").expect("both");
        watching.abort();
        assert!(first.contains("watch=") && first.contains("resourceVersion=10"), "{first}");
        assert!(next.contains("watch=") && next.contains("resourceVersion=12"), "{next}");
        assert_eq!(told(&mut events), [(11, false), (12, true)]);
    }

    /// Objects of a list that broke off were told of; what becomes of them is told, too.
    #[tokio::test]
    async fn what_an_unfinished_list_told_of_is_gone_if_the_next_has_it_not() {
        let (listener, kubeconfig, _folder) = listening();
        let server = std::thread::spawn(move || {
            let next = || {
                let (stream, _) = listener.accept().expect("a connection");
                asked(&stream);
                stream
            };
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "spec": { "containers": [] }, "status": {},
                "metadata": { "name": "a", "namespace": "b", "uid": "c", "resourceVersion": "9" },
            });
            let more = json!({ "resourceVersion": "10", "continue": "more" });
            answer(next(), &[json!({ "metadata": more, "items": [pod] })]);
            // The second page never comes.
            drop(next());
            answer(next(), &[json!({ "metadata": { "resourceVersion": "12" }, "items": [] })]);
            next()
        });
        let (mut watcher, mut events) = watcher(kubeconfig).await;
        let watching = tokio::spawn(async move { watcher.run::<Trimmed>(|| ()).await });
        let _watch = tokio::task::spawn_blocking(|| server.join()).await.expect("it ends").expect("all");
        watching.abort();
        assert_eq!(told(&mut events), [(9, false), (12, true)]);
    }
}
