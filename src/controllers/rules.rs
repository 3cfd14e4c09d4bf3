//! Follows what the Environment object says about applying commits: that it is suspended, when changes may pass, how.
//!
//! It is known before anything is written. Afterwards what was said last holds while nobody answers.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::gitops::environment::SyncRules;
use crate::gitops::policy::SyncPolicy;
use crate::gitops::sync::GitEvent;
use crate::io::kube::lease::Permit;
use crate::io::kube::{Kube, KubeError, Resource};

/// How often the object is looked at, and how often where nobody has made one.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const LOOK_FOR_ONE: Duration = Duration::from_secs(30);

/// What is said of one environment.
pub(super) struct Rules {
    actor: String,
    /// What holds where nothing is said.
    policy: SyncPolicy,
    known: SyncRules,
    /// The identity and the generation of the object that was heard last.
    of: Option<(String, i64)>,
    first: Vec<GitEvent>,
    objects: mpsc::UnboundedReceiver<Option<Value>>,
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
        let known = SyncRules::default();
        let mut rules = Self { actor, policy, known, of: None, first: Vec::new(), objects };
        rules.first = rules.hear(object.as_ref());
        let look = Look { name: environment.to_owned(), kube, permit, is_there: object.is_some() };
        tokio::spawn(look_again(look, sender));
        Ok(rules)
    }

    /// What was said when they were read.
    pub fn take_first(&mut self) -> Vec<GitEvent> {
        std::mem::take(&mut self.first)
    }

    /// What is new, all of which is to be heard before anything is decided.
    pub async fn next(&mut self) -> Option<Vec<GitEvent>> {
        let object = self.objects.recv().await?;
        Some(self.hear(object.as_ref()))
    }

    /// The same of the object as somebody else read it. What is older than what was heard says nothing.
    pub fn hear(&mut self, object: Option<&Value>) -> Vec<GitEvent> {
        let of = object.and_then(identity);
        let is_older =
            of.as_ref().zip(self.of.as_ref()).is_some_and(|(of, known)| of.0 == known.0 && of.1 < known.1);
        if is_older {
            return Vec::new();
        }
        let seen = SyncRules::of(object);
        seen.told(&self.known).iter().for_each(|said| tracing::warn!("{} {said}", self.actor));
        let changes = seen.changes(&self.known, &self.policy, &self.actor);
        (self.known, self.of) = (seen, of);
        changes
    }
}

fn identity(object: &Value) -> Option<(String, i64)> {
    let metadata = object.get("metadata")?;
    Some((metadata.get("uid")?.as_str()?.to_owned(), metadata.get("generation")?.as_i64()?))
}

/// Who looks.
struct Look {
    name: String,
    kube: Kube,
    permit: Permit,
    is_there: bool,
}

async fn look_again(mut look: Look, objects: mpsc::UnboundedSender<Option<Value>>) {
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
        match look.kube.get(Resource::ENVIRONMENT, None, &look.name).await {
            Ok(object) => {
                complained.clear();
                look.is_there = object.is_some();
                drop(objects.send(object));
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

    #[test]
    fn what_was_read_earlier_and_heard_later_says_nothing() {
        let (_, objects) = mpsc::unbounded_channel();
        let mut rules = Rules {
            actor: "Environment/prod".into(),
            policy: SyncPolicy::new("one"),
            known: SyncRules::default(),
            of: None,
            first: Vec::new(),
            objects,
        };
        let object = |uid: &str, generation: i64, sync: Value| json!({ "metadata": { "uid": uid, "generation": generation }, "spec": { "sync": sync } });
        let strict = object("a", 2, json!({ "readOnly": true }));
        assert_eq!(rules.hear(Some(&strict)).len(), 1);
        assert!(rules.hear(Some(&strict)).is_empty(), "it is known");
        assert!(rules.hear(Some(&object("a", 1, Value::Null))).is_empty(), "it is older");
        assert_eq!(rules.hear(Some(&object("a", 3, Value::Null))).len(), 1);
        assert_eq!(rules.hear(Some(&strict)).len(), 0);
        assert_eq!(rules.hear(Some(&object("b", 1, json!({ "readOnly": true })))).len(), 1, "another object");
        assert_eq!(rules.hear(None).len(), 1, "it is gone");
    }
}
