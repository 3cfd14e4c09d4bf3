//! What promotions must not forget when the program ends: how long stages soaked, who went back, and which values were there.
//!
//! A value that can be written down and read again. Soaks are remembered as lengths, not as moments: the time in which nobody
//! looked vouches for nothing, and a simulated cluster begins its days anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Hold, Promotion, Promotions, Watch};
use crate::model::repository::{CommitId, Revision};

/// Another version is not understood, and forgotten.
const VERSION: u32 = 1;

/// Everything that is remembered, by environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    version: u32,
    environments: BTreeMap<Arc<str>, Remembered>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remembered {
    /// As the rules had it: what was verified by other rules is verified anew.
    require: String,
    stages: BTreeMap<Arc<str>, Soaked>,
    hold: Option<Held>,
    /// Promoted values that the environment had, oldest first.
    past: Vec<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Soaked {
    digest: Arc<str>,
    seconds: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    by: Arc<str>,
    commit: String,
    subject: Arc<str>,
}

impl Memory {
    /// Reads what was written; `None` if it is not understood.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|memory: &Self| memory.version == VERSION)
    }

    pub fn render(&self) -> String {
        serde_json::to_string(self).expect("names, numbers and words can be written")
    }

    /// Whether anything but the length of a soak is another.
    pub fn is_news_to(&self, other: &Self) -> bool {
        let plain = |memory: &Self| {
            let mut memory = memory.clone();
            let stages = memory.environments.values_mut().flat_map(|one| one.stages.values_mut());
            stages.for_each(|soaked| soaked.seconds = 0);
            memory
        };
        plain(self) != plain(other)
    }
}

impl Promotions {
    pub fn memory(&self, now: Timestamp) -> Memory {
        // What was remembered of an environment that no commit spoke of yet stays remembered.
        let mut environments = self.remembered.clone();
        environments.extend(
            self.by_environment.iter().map(|(name, promotion)| (name.clone(), promotion.remembered(now))),
        );
        Memory { version: VERSION, environments }
    }

    /// Takes up what a former process remembered, before the first commit is read.
    pub fn recall(&mut self, memory: Memory) {
        self.remembered = memory.environments;
    }
}

impl Promotion {
    fn remembered(&self, now: Timestamp) -> Remembered {
        let soaked = |(stage, watch): (&Arc<str>, &Watch)| {
            let since = watch.verified.as_ref().ok()?;
            let seconds = now.duration_since(*since).as_secs().max(0);
            Some((stage.clone(), Soaked { digest: watch.digest.clone(), seconds }))
        };
        Remembered {
            require: self.rules.require.as_str().to_owned(),
            stages: self.stages.iter().filter_map(soaked).collect(),
            hold: self.hold.as_ref().map(|hold| Held {
                by: hold.actor.clone(),
                commit: hold.revision.commit.to_string(),
                subject: hold.revision.subject.clone(),
            }),
            past: self.past.clone(),
        }
    }

    /// Goes on where a former process stopped. The commit of today is read afterwards, as any other.
    pub(super) fn take_up(&mut self, now: Timestamp, remembered: Remembered) {
        if !remembered.past.is_empty() {
            self.past = remembered.past;
        }
        if remembered.require == self.rules.require.as_str() {
            for (stage, Soaked { digest, seconds }) in remembered.stages {
                let soaked = SignedDuration::from_secs(seconds.max(0));
                let since = now.checked_sub(soaked).unwrap_or(Timestamp::MIN);
                self.stages.insert(stage, Watch { digest, verified: Ok(since) });
            }
        }
        self.hold = remembered.hold.and_then(|held| {
            let commit = CommitId::parse(&held.commit)?;
            let revision =
                Revision { commit, reference: None, subject: held.subject, author: held.by.clone() };
            Some(Hold { actor: held.by, revision })
        });
    }
}
