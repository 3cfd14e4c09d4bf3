//! Follows what the Environment object says about applying commits: that it is suspended, when changes may pass, how.
//!
//! It is known before anything is written. Afterwards what was said last holds while nobody answers.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::gitops::environment::SyncRules;
use crate::gitops::policy::SyncPolicy;
use crate::gitops::sync::GitEvent;
use crate::io::kube::lease::Permit;
use crate::io::kube::{Kube, KubeError, Resource, Version};

/// How often the object is looked at, and how often where nobody has made one.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const LOOK_FOR_ONE: Duration = Duration::from_secs(30);

/// What is said of one environment.
pub(super) struct Rules {
    actor: String,
    /// What holds where nothing is said.
    policy: SyncPolicy,
    known: SyncRules,
    /// The newest object that was heard, and whether it was heard since that there is none.
    newest: Version,
    is_gone: bool,
    heard_at: Instant,
    first: Vec<GitEvent>,
    objects: mpsc::UnboundedReceiver<Found>,
}

/// What was found by a look that began then.
struct Found {
    asked: Instant,
    object: Option<Value>,
}

impl Rules {
    /// Reads them once, and follows them as long as this value lives. `policy` holds where they say nothing.
    pub async fn follow(
        environment: &str,
        policy: SyncPolicy,
        kube: Kube,
        permit: Permit,
    ) -> Result<Self, KubeError> {
        let object = kube.get(Resource::ENVIRONMENT, None, environment).await?;
        let actor = format!("Environment/{environment}");
        let (sender, objects) = mpsc::unbounded_channel();
        let mut rules = Self::new(actor, policy, objects);
        rules.first = rules.hear(object.as_ref());
        let look = Look { name: environment.to_owned(), kube, permit, is_there: object.is_some() };
        tokio::spawn(look_again(look, sender));
        Ok(rules)
    }

    fn new(actor: String, policy: SyncPolicy, objects: mpsc::UnboundedReceiver<Found>) -> Self {
        let (newest, is_gone) = (Version::default(), true);
        let known = SyncRules::default();
        Self { actor, policy, known, newest, is_gone, heard_at: Instant::now(), first: Vec::new(), objects }
    }

    /// What was said when they were read.
    pub fn take_first(&mut self) -> Vec<GitEvent> {
        std::mem::take(&mut self.first)
    }

    /// What is new, all of which is to be heard before anything is decided.
    pub async fn next(&mut self) -> Option<Vec<GitEvent>> {
        let Found { asked, object } = self.objects.recv().await?;
        // One was heard of since it was asked.
        if object.is_none() && asked < self.heard_at {
            return Some(Vec::new());
        }
        Some(self.hear(object.as_ref()))
    }

    /// The same of the object as somebody else read it. What is older than what was heard says nothing.
    pub fn hear(&mut self, object: Option<&Value>) -> Vec<GitEvent> {
        if let Some(version) = object.map(Version::of) {
            if version < self.newest || (self.is_gone && version == self.newest) {
                return Vec::new();
            }
            (self.newest, self.heard_at) = (version, Instant::now());
        }
        self.is_gone = object.is_none();
        let seen = SyncRules::of(object);
        seen.told(&self.known).iter().for_each(|said| tracing::warn!("{} {said}", self.actor));
        let changes = seen.changes(&self.known, &self.policy, &self.actor);
        self.known = seen;
        changes
    }
}

/// Who looks.
struct Look {
    name: String,
    kube: Kube,
    permit: Permit,
    is_there: bool,
}

async fn look_again(mut look: Look, objects: mpsc::UnboundedSender<Found>) {
    let mut complained = String::new();
    loop {
        let pause = if look.is_there { LOOK_AGAIN } else { LOOK_FOR_ONE };
        tokio::select! {
            () = objects.closed() => return,
            () = tokio::time::sleep(pause) => {}
        }
        if !look.permit.is_valid() {
            continue;
        }
        let asked = Instant::now();
        let (kind, name) = (Resource::ENVIRONMENT, &*look.name);
        let found = match look.is_there {
            // That nobody serves its kind does not say that it is gone.
            true => look.kube.get_of_kind(kind, None, name).await,
            false => look.kube.get(kind, None, name).await,
        };
        match found {
            Ok(object) => {
                complained.clear();
                look.is_there = object.is_some();
                drop(objects.send(Found { asked, object }));
            }
            Err(error) => {
                let message = format!(
                    "what Environment/{} says is not known, so what it said holds: {error}",
                    look.name
                );
                if message != complained {
                    tracing::warn!("{message}");
                    complained = message;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> (Rules, mpsc::UnboundedSender<Found>) {
        let (sender, objects) = mpsc::unbounded_channel();
        (Rules::new("Environment/prod".into(), SyncPolicy::new("one"), objects), sender)
    }

    fn object(version: u64, sync: Value) -> Value {
        json!({ "metadata": { "resourceVersion": version.to_string() }, "spec": { "sync": sync } })
    }

    #[test]
    fn what_was_read_earlier_and_heard_later_says_nothing() {
        let (mut rules, _looks) = rules();
        let strict = object(7, json!({ "readOnly": true }));
        assert_eq!(rules.hear(Some(&strict)).len(), 1);
        assert!(rules.hear(Some(&strict)).is_empty(), "it is known");
        assert!(rules.hear(Some(&object(6, Value::Null))).is_empty(), "it is older");
        assert_eq!(rules.hear(Some(&object(9, Value::Null))).len(), 1);
        assert_eq!(rules.hear(Some(&strict)).len(), 0, "of one that was replaced, too");
        assert_eq!(rules.hear(Some(&object(10, json!({ "readOnly": true })))).len(), 1);
        assert_eq!(rules.hear(None).len(), 1, "it is gone");
        assert_eq!(rules.hear(Some(&object(10, json!({ "readOnly": true })))).len(), 0, "it was before");
        assert_eq!(rules.hear(Some(&object(12, json!({ "readOnly": true })))).len(), 1, "another one");
    }

    #[tokio::test]
    async fn that_there_is_none_is_old_news_once_one_was_heard_of() {
        let (mut rules, looks) = rules();
        let asked = Instant::now();
        assert_eq!(rules.hear(Some(&object(7, json!({ "readOnly": true })))).len(), 1);
        let found = |asked| looks.send(Found { asked, object: None }).expect("somebody listens");
        found(asked);
        assert_eq!(rules.next().await.map(|said| said.len()), Some(0));
        found(Instant::now());
        assert_eq!(rules.next().await.map(|said| said.len()), Some(1));
    }
}
