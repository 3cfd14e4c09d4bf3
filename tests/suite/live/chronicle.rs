//! What became of the objects of a cluster, state by state, in the order of the API server's revisions: those count every
//! write, of whatever kind. So what came first is known, however little later the other came.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use super::bench::{Bench, is_true, text};
use crate::plane::Api;

/// What is watched; a moment names its kind by the last part.
const WATCHED: [&str; 5] = [
    "/api/v1/pods",
    "/api/v1/nodes",
    "/api/v1/events",
    "/apis/karpenter.sh/v1/nodeclaims",
    "/apis/storage.k8s.io/v1/volumeattachments",
];

/// Where a claim names what replaces it.
pub const REPLACED_BY: &str = "/metadata/annotations/provisor.dev~1replaced-by";

/// Writes down what happens from when it begins.
pub struct Chronicle {
    is_over: Arc<AtomicBool>,
    watchers: Vec<JoinHandle<Vec<Moment>>>,
}

/// One object after one write.
#[derive(Debug)]
pub struct Moment {
    pub revision: u64,
    /// Such as `pods`.
    pub kind: &'static str,
    /// The object was removed; this is how it looked last.
    pub is_gone: bool,
    pub object: Value,
}

impl Moment {
    pub fn name(&self) -> &str {
        text(&self.object, "/metadata/name")
    }

    /// Whether it is there and asked to go.
    pub fn is_going(&self) -> bool {
        !self.is_gone && !self.object["metadata"]["deletionTimestamp"].is_null()
    }
}

/// All that happened, in its order.
pub struct Story(Vec<Moment>);

/// Every object as it was at one moment, by kind and uid.
pub type Picture<'s> = BTreeMap<(&'static str, &'s str), &'s Value>;

impl Chronicle {
    pub fn begin(bench: &Bench) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let kubeconfig = bench.plane.kubeconfig();
        let watchers = WATCHED.map(|path| {
            let (is_over, kubeconfig) = (is_over.clone(), kubeconfig.to_owned());
            std::thread::spawn(move || watch(path, &kubeconfig, &is_over))
        });
        Self { is_over, watchers: watchers.into() }
    }

    /// Everything up to now.
    pub fn end(mut self) -> Story {
        self.is_over.store(true, Ordering::Relaxed);
        let watchers = std::mem::take(&mut self.watchers).into_iter();
        let mut moments: Vec<Moment> =
            watchers.flat_map(|watcher| watcher.join().expect("it could watch")).collect();
        moments.sort_by_key(|moment| moment.revision);
        Story(moments)
    }
}

impl Drop for Chronicle {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Follows what is at `path`, one second at a time, and once more after it is over.
fn watch(path: &'static str, kubeconfig: &Path, is_over: &AtomicBool) -> Vec<Moment> {
    let api = Api::of(kubeconfig);
    let kind = path.rsplit('/').next().unwrap_or(path);
    let moment = |is_gone, object: Value| Moment { revision: revision_of(&object), kind, is_gone, object };
    let list = api.get(path).expect("a list");
    let mut revision = text(&list, "/metadata/resourceVersion").to_owned();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let mut moments: Vec<Moment> = items.into_iter().map(|item| moment(false, item)).collect();
    loop {
        let is_last = is_over.load(Ordering::Relaxed);
        let query =
            format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion={revision}");
        let Some(answer) = api.try_send("GET", &query, "application/json", Vec::new()) else {
            return moments;
        };
        // One event alone is JSON, several are lines of it, and none is nothing.
        let lines = match &answer.body {
            Value::String(lines) => lines.clone(),
            one => one.to_string(),
        };
        for event in lines.lines().filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_str(event).expect("an event");
            let object = event["object"].clone();
            text(&object, "/metadata/resourceVersion").clone_into(&mut revision);
            match text(&event, "/type") {
                "ADDED" | "MODIFIED" => moments.push(moment(false, object)),
                "DELETED" => moments.push(moment(true, object)),
                "BOOKMARK" => {}
                _ => panic!("{path} can be watched no longer: {event}"),
            }
        }
        if is_last {
            return moments;
        }
    }
}

/// The write that made it so.
pub fn revision_of(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().expect("etcd counts its writes")
}

impl Story {
    pub fn of(&self, kind: &str) -> impl Iterator<Item = &Moment> {
        self.0.iter().filter(move |moment| moment.kind == kind)
    }

    /// The first moment of a kind at which it is so.
    #[track_caller]
    pub fn first(&self, what: &str, kind: &str, is_so: impl Fn(&Moment) -> bool) -> &Moment {
        let found = self.of(kind).find(|moment| is_so(moment));
        found.unwrap_or_else(|| panic!("never: {what}"))
    }

    /// When an object was asked to go.
    #[track_caller]
    pub fn asked(&self, kind: &str, name: &str) -> u64 {
        let what = format!("{kind}/{name} is asked to go");
        self.first(&what, kind, |moment| moment.name() == name && moment.is_going()).revision
    }

    /// When an object was gone.
    #[track_caller]
    pub fn gone(&self, kind: &str, name: &str) -> u64 {
        let what = format!("{kind}/{name} is gone");
        self.first(&what, kind, |moment| moment.name() == name && moment.is_gone).revision
    }

    /// Each of the claims `old` was asked to go, and what replaces it was a ready node by then; `look` sees both.
    pub fn expect_replaced_first(&self, old: &BTreeSet<String>, look: impl Fn(&Value, &Value)) {
        let mut went = BTreeSet::new();
        self.replay(|moment, picture| {
            let name = moment.name();
            if !old.contains(name) || !moment.is_going() || !went.insert(name.to_owned()) {
                return;
            }
            let find = |kind: &str, name: &str| {
                let of_kind = picture.iter().filter(|((of, _), _)| *of == kind);
                of_kind.map(|(_, object)| *object).find(|object| text(object, "/metadata/name") == name)
            };
            let claim = find("nodeclaims", text(&moment.object, REPLACED_BY));
            let claim = claim.unwrap_or_else(|| panic!("{name} goes without a replacement"));
            let node = find("nodes", text(claim, "/status/nodeName"));
            assert!(node.is_some_and(|node| is_true(node, "Ready")), "{name} goes before {claim:#} is ready");
            look(&moment.object, claim);
        });
        assert_eq!(&went, old, "all of them went");
    }

    /// Shows every moment with all objects as they are then.
    pub fn replay(&self, mut look: impl FnMut(&Moment, &Picture<'_>)) {
        let mut picture = Picture::new();
        for moment in &self.0 {
            let key = (moment.kind, text(&moment.object, "/metadata/uid"));
            match moment.is_gone {
                true => drop(picture.remove(&key)),
                false => drop(picture.insert(key, &moment.object)),
            }
            look(moment, &picture);
        }
    }
}
