//! Writes how the environment stands on its Environment object, if somebody made one: seldom, and only what changed.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::gitops::live::Inventory;
use crate::gitops::standing::render_standing;
use crate::gitops::sync::SyncStatus;
use crate::io::clock::Stopwatch;
use crate::io::kube::lease::Permit;
use crate::io::kube::{Kube, KubeError, Resource};

/// While objects are written the status changes with each of them.
const REST: SignedDuration = SignedDuration::from_secs(2);
/// Health and rollout change without anything being decided.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// How the environment stands, and what was applied.
pub(super) type Standing = (SyncStatus, Option<Inventory>);

/// Says when the status has to be looked at, and hands it to whoever writes.
pub(super) struct Teller {
    due: Option<Timestamp>,
    newest: mpsc::UnboundedSender<Standing>,
}

impl Teller {
    pub fn new(environment: &str, kube: Kube, permit: Permit) -> Self {
        let (newest, waiting) = mpsc::unbounded_channel();
        tokio::spawn(keep(environment.to_owned(), waiting, kube, permit));
        Self { due: Some(Timestamp::MIN), newest }
    }

    /// Something about it may have changed.
    pub fn touch(&mut self, now: Timestamp) {
        let soon = now + REST;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// Tells if it is due; when to be asked again.
    pub fn tell(&mut self, now: Timestamp, standing: impl FnOnce() -> Standing) -> Option<Timestamp> {
        if self.due.is_none_or(|due| due <= now) {
            self.due = Some(now + LOOK_AGAIN);
            drop(self.newest.send(standing()));
        }
        self.due
    }
}

/// The object as it was answered last.
#[derive(Default)]
struct Known {
    object: Option<Value>,
    /// Since nobody had made one.
    missed: Option<Stopwatch>,
}

impl Known {
    /// The object, asked for if it is not known; one that is not there is not asked for again at once.
    async fn find(&mut self, kube: &Kube, name: &str) -> Result<Option<&Value>, KubeError> {
        let is_due = self.missed.is_none_or(|missed| missed.elapsed() >= LOOK_AGAIN.unsigned_abs());
        if self.object.is_none() && is_due {
            self.object = kube.get(Resource::ENVIRONMENT, None, name).await?;
            self.missed = self.object.is_none().then(Stopwatch::start);
        }
        Ok(self.object.as_ref())
    }
}

async fn keep(name: String, mut waiting: mpsc::UnboundedReceiver<Standing>, kube: Kube, permit: Permit) {
    let mut known = Known::default();
    let mut complained = String::new();
    while let Some(mut standing) = waiting.recv().await {
        while let Ok(newer) = waiting.try_recv() {
            standing = newer;
        }
        if !permit.is_valid() {
            continue;
        }
        match write(&kube, &name, &standing, &mut known).await {
            Ok(()) => complained.clear(),
            Err(error) => {
                known = Known::default();
                let message = error.to_string();
                if message != complained {
                    tracing::warn!("how the environment stands is not written: {message}");
                    complained = message;
                }
            }
        }
    }
}

/// Writes what differs from the object as it was answered last.
async fn write(
    kube: &Kube,
    name: &str,
    (status, inventory): &Standing,
    known: &mut Known,
) -> Result<(), KubeError> {
    // Nobody made one: everything that it would say is in the log, too.
    let Some(object) = known.find(kube, name).await? else { return Ok(()) };
    let wanted = render_standing(status, inventory.as_ref(), object);
    if object.get("status") == Some(&wanted) {
        return Ok(());
    }
    let mut patch = wanted.clone();
    take_away(object.get("status"), &mut patch);
    match kube.merge(Resource::ENVIRONMENT, None, name, Some("status"), &json!({ "status": patch })).await {
        Ok(object) => known.object = Some(object),
        Err(error) if error.is_missing() => known.object = None,
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What `former` says and `patch` does not has to be taken away by name, at whatever depth: objects are merged, lists replaced.
fn take_away(former: Option<&Value>, patch: &mut Value) {
    let (Some(former), Some(patch)) = (former.and_then(Value::as_object), patch.as_object_mut()) else {
        return;
    };
    for (field, former) in former {
        match patch.get_mut(field) {
            Some(value) => take_away(Some(former), value),
            None => drop(patch.insert(field.clone(), Value::Null)),
        }
    }
}
