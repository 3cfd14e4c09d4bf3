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
    first: Vec<GitEvent>,
    news: mpsc::UnboundedReceiver<GitEvent>,
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
        let known = SyncRules::of(object.as_ref());
        let actor = format!("Environment/{environment}");
        let first = known.changes(&SyncRules::default(), &policy, &actor);
        tell(&known, &SyncRules::default(), &actor);
        let (sender, news) = mpsc::unbounded_channel();
        tokio::spawn(look_again(Look { actor, policy, kube, permit, known, object }, sender));
        Ok(Self { first, news })
    }

    /// What was said when they were read.
    pub fn take_first(&mut self) -> Vec<GitEvent> {
        std::mem::take(&mut self.first)
    }

    pub async fn next(&mut self) -> Option<GitEvent> {
        self.news.recv().await
    }
}

/// Who looks, and what was seen last.
struct Look {
    actor: String,
    policy: SyncPolicy,
    kube: Kube,
    permit: Permit,
    known: SyncRules,
    object: Option<Value>,
}

async fn look_again(mut look: Look, news: mpsc::UnboundedSender<GitEvent>) {
    let mut complained = String::new();
    loop {
        let pause = if look.object.is_some() { LOOK_AGAIN } else { LOOK_FOR_ONE };
        tokio::select! {
            () = news.closed() => return,
            () = tokio::time::sleep(pause) => {}
        }
        if !look.permit.is_valid() {
            continue;
        }
        let name = look.actor.rsplit('/').next().unwrap_or_default();
        match look.kube.get(Resource::ENVIRONMENT, None, name).await {
            Ok(object) => {
                complained.clear();
                let seen = SyncRules::of(object.as_ref());
                look.object = object;
                tell(&seen, &look.known, &look.actor);
                for change in seen.changes(&look.known, &look.policy, &look.actor) {
                    drop(news.send(change));
                }
                look.known = seen;
            }
            Err(error) => {
                let message =
                    format!("what {} says is not known, so what it said holds: {error}", look.actor);
                if message != complained {
                    tracing::warn!("{message}");
                    complained = message;
                }
            }
        }
    }
}

/// Says what is new.
fn tell(seen: &SyncRules, known: &SyncRules, actor: &str) {
    seen.told(known).iter().for_each(|said| tracing::warn!("{actor} {said}"));
}
