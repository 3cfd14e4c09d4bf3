//! `Environment` of `provisor.dev`, the one kind of ours: which part of which repository a cluster follows, and under
//! which rules.
//!
//! It belongs to the cluster's operators, never to the repository: a commit cannot change its own judge. A repository may
//! add rules, and each of them can only forbid more (`policy.rs`).

mod definition;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use definition::definition;

use super::policy::{AdoptMode, BlastLimits, IgnoreRule, PruneMode, SyncMode, SyncPolicy, UnselectiveRule};
use super::sync::GitEvent;
use super::window::{WindowError, WindowSpec, Windows};
use crate::api::crd::{self, Definition};
use crate::model::count::counted;

pub const API_VERSION: &str = "provisor.dev/v1alpha1";
pub const KIND: &str = "Environment";

/// What an Environment asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvironmentSpec {
    pub source: SourceSpec,
    /// The directory of the fleet inside the repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Which of the fleet's environments; the object's own name if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    #[serde(default)]
    pub verification: Verification,
    #[serde(default)]
    pub sync: SyncCeilings,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<WindowSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<Suspension>,
}

/// A repository and what of it is followed; the first reference that is set wins, in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceSpec {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// A full name such as `refs/heads/main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag_prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default = "interval_default")]
    pub interval: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// A Secret beside the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRef {
    pub name: String,
}

fn interval_default() -> String {
    INTERVAL_DEFAULT.to_owned()
}

const INTERVAL_DEFAULT: &str = "1m";

/// Whose signature a commit needs before it is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Verification {
    #[serde(default)]
    pub mode: VerificationMode,
    /// The Secret that holds the trusted keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VerificationMode {
    #[default]
    None,
    /// The commit.
    Head,
    /// The annotated tag.
    Tag,
    TagAndHead,
    /// Every commit since the last one that was applied.
    Range,
}

/// The most that a sync of this environment may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SyncCeilings {
    pub mode: SyncMode,
    pub prune: PruneMode,
    /// The most that a person may ask for.
    pub prune_ceiling: PruneMode,
    pub adopt: AdoptMode,
    pub allow_empty: bool,
    pub confirm_prune: bool,
    pub read_only: bool,
    /// Pools that stay whatever Git says; names with `*` and `?`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<Ignored>,
    pub limits: Limits,
}

impl Default for SyncCeilings {
    fn default() -> Self {
        let SyncPolicy { mode, prune, prune_ceiling, adopt, allow_empty, confirm_prune, read_only, .. } =
            SyncPolicy::new("");
        Self {
            mode,
            prune,
            prune_ceiling,
            adopt,
            allow_empty,
            confirm_prune,
            read_only,
            protected: Vec::new(),
            ignore: Vec::new(),
            limits: Limits::default(),
        }
    }
}

/// A field that somebody else may keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ignored {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub path: String,
}

/// How much one plan may take away without a person's word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    pub pools_max: u32,
    pub pools_percent: u32,
    pub nodes_percent: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_nodes_max: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        let BlastLimits { pools_max, pools_percent, nodes_percent, nodes_max, roll_nodes_max } =
            BlastLimits::default();
        Self { pools_max, pools_percent, nodes_percent, nodes_max, roll_nodes_max }
    }
}

/// Nothing is written until it is taken away or its end has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Suspension {
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<jiff::Timestamp>,
}

/// What an Environment says against applying commits; what it does not have says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restrictions {
    suspend: Option<Suspension>,
    windows: Vec<WindowSpec>,
}

impl Restrictions {
    /// Of an object as the API server holds it. What cannot be read suspends: it may have been meant to.
    pub fn of(object: Option<&Value>) -> Self {
        #[derive(Deserialize)]
        struct Said {
            #[serde(default)]
            suspend: Option<Suspension>,
            #[serde(default)]
            windows: Vec<WindowSpec>,
        }
        let Some(spec) = object.and_then(|object| object.get("spec")) else { return Self::default() };
        match Said::deserialize(spec) {
            Ok(Said { suspend, windows }) => Self { suspend, windows },
            Err(error) => {
                let reason = format!("its `suspend` and `windows` cannot be read: {error}");
                Self { suspend: Some(Suspension { reason, until: None }), windows: Vec::new() }
            }
        }
    }

    /// What a sync under `policy` has to hear where it knows of `former`; `actor` is who says it.
    pub fn changes(&self, former: &Self, policy: &SyncPolicy, actor: &str) -> Vec<GitEvent> {
        let mut changes = Vec::new();
        if self.windows != former.windows {
            let windows = Windows::new(self.windows.iter().cloned());
            changes.push(GitEvent::PolicyChanged(policy.clone().with_windows(windows)));
        }
        if self.suspend != former.suspend {
            changes.push(match &self.suspend {
                Some(Suspension { reason, until }) => {
                    GitEvent::Suspended { reason: reason.as_str().into(), actor: actor.into(), until: *until }
                }
                None => GitEvent::Resumed,
            });
        }
        changes
    }

    /// The same for people, each to be read after the name of the object.
    pub fn told(&self, former: &Self) -> Vec<String> {
        let mut told = Vec::new();
        if self.suspend != former.suspend {
            told.push(match &self.suspend {
                Some(Suspension { reason, until: None }) => {
                    format!(
                        "is suspended, so no commit is applied until spec.suspend is taken away: {reason}"
                    )
                }
                Some(Suspension { reason, until: Some(until) }) => {
                    format!("is suspended, so no commit is applied until {until}: {reason}")
                }
                None => "is suspended no more".into(),
            });
        }
        if self.windows != former.windows {
            told.push(match self.windows.len() {
                0 => "has no windows any more".into(),
                count => format!("has {}: commits are applied as they allow", counted(count, "window")),
            });
            let windows = Windows::new(self.windows.iter().cloned());
            told.extend(windows.errors().iter().map(|error| {
                format!("has a window that cannot be read, so nothing passes: spec.windows: {error}")
            }));
        }
        told
    }
}

/// Every kind that an API server is taught: Karpenter's and ours.
pub fn definitions() -> Vec<Definition> {
    let mut all = crd::definitions();
    all.push(definition());
    all
}

/// What an API server cannot find wrong with an Environment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    #[error("spec.sync.ignore[{index}]: {error}")]
    Ignore { index: usize, error: UnselectiveRule },
    #[error("spec.windows: {0}")]
    Window(WindowError),
}

impl EnvironmentSpec {
    /// The rules for a sync, with everything that is wrong with them. A window that cannot be read closes everything.
    pub fn policy(&self, installation: &str) -> (SyncPolicy, Vec<EnvironmentError>) {
        let mut errors = Vec::new();
        let mut ignore = Vec::new();
        for (index, Ignored { kind, name, path }) in self.sync.ignore.iter().enumerate() {
            match IgnoreRule::new(kind.as_deref(), name.as_deref(), path) {
                Ok(rule) => ignore.push(rule),
                Err(error) => errors.push(EnvironmentError::Ignore { index, error }),
            }
        }
        let windows = Windows::new(self.windows.iter().cloned());
        errors.extend(windows.errors().iter().cloned().map(EnvironmentError::Window));
        let Limits { pools_max, pools_percent, nodes_percent, nodes_max, roll_nodes_max } = self.sync.limits;
        let policy = SyncPolicy {
            mode: self.sync.mode,
            prune: self.sync.prune,
            prune_ceiling: self.sync.prune_ceiling,
            adopt: self.sync.adopt,
            allow_empty: self.sync.allow_empty,
            confirm_prune: self.sync.confirm_prune,
            read_only: self.sync.read_only,
            protected: self.sync.protected.iter().cloned().collect(),
            ignore,
            limits: BlastLimits { pools_max, pools_percent, nodes_percent, nodes_max, roll_nodes_max },
            windows: vec![windows],
            ..SyncPolicy::new(installation)
        };
        (policy, errors)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(more: serde_json::Value) -> EnvironmentSpec {
        let mut spec = json!({"source": {"url": "https://git.example/fleet.git", "branch": "main"}});
        for (key, value) in more.as_object().expect("a table") {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).expect("an environment")
    }

    #[test]
    fn silence_means_the_usual_rules() {
        let (policy, errors) = spec(json!({})).policy("one");
        assert_eq!(errors, []);
        assert_eq!(policy, SyncPolicy { windows: vec![Windows::default()], ..SyncPolicy::new("one") });
    }

    #[test]
    fn what_is_said_becomes_the_rule() {
        let (policy, errors) = spec(json!({
            "sync": {"mode": "manual", "prune": "retire", "protected": ["db-*"], "limits": {"nodesMax": 3}},
            "windows": [{"kind": "deny", "schedule": "0 8 * * *", "duration": "1h"}],
        }))
        .policy("one");
        assert_eq!(errors, []);
        assert_eq!((policy.mode, policy.prune), (SyncMode::Manual, PruneMode::Retire));
        assert!(policy.protected.contains("db-*"));
        assert_eq!(policy.limits, BlastLimits { nodes_max: Some(3), ..BlastLimits::default() });
        assert_eq!(policy.windows.len(), 1);
    }

    #[test]
    fn what_cannot_be_a_rule_is_named() {
        let (_, errors) = spec(json!({
            "sync": {"ignore": [{"kind": "NodePool", "path": "/spec/limits"}, {"path": "/spec"}]},
            "windows": [{"kind": "deny", "schedule": "whenever", "duration": "1h"}],
        }))
        .policy("one");
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(texts[0].starts_with("spec.sync.ignore[1]: a rule that ignores"), "{texts:?}");
        assert!(texts[1].starts_with("spec.windows: `whenever` is no schedule"), "{texts:?}");
    }

    fn object(spec: serde_json::Value) -> serde_json::Value {
        json!({ "metadata": { "name": "prod" }, "spec": spec })
    }

    #[test]
    fn restrictions_are_told_once_and_taken_back() {
        let policy = SyncPolicy::new("one");
        let none = Restrictions::of(None);
        assert_eq!(none, Restrictions::of(Some(&object(json!({ "source": { "url": "x" } })))));
        let window = json!({ "kind": "deny", "schedule": "@daily", "duration": "1h" });
        let said = Restrictions::of(Some(&object(json!({
            "suspend": { "reason": "freeze", "until": "2026-12-27T00:00:00Z" }, "windows": [window],
        }))));
        let changes = said.changes(&none, &policy, "Environment/prod");
        let [GitEvent::PolicyChanged(restricted), GitEvent::Suspended { reason, actor, until }] =
            &changes[..]
        else {
            panic!("{changes:?}")
        };
        assert_eq!((restricted.windows.len(), &restricted.mode), (1, &policy.mode));
        assert_eq!((&**reason, &**actor), ("freeze", "Environment/prod"));
        assert_eq!(until.map(|at| at.to_string()).as_deref(), Some("2026-12-27T00:00:00Z"));
        assert!(said.changes(&said, &policy, "Environment/prod").is_empty());
        let back = none.changes(&said, &policy, "Environment/prod");
        assert!(matches!(&back[..], [GitEvent::PolicyChanged(_), GitEvent::Resumed]), "{back:?}");
        assert_eq!(said.told(&none).len(), 2);
        assert_eq!(none.told(&said), ["is suspended no more", "has no windows any more"]);
    }

    #[test]
    fn what_cannot_be_read_lets_nothing_pass() {
        let policy = SyncPolicy::new("one");
        let odd = Restrictions::of(Some(&object(json!({ "suspend": "yes" }))));
        let changes = odd.changes(&Restrictions::default(), &policy, "Environment/prod");
        assert!(matches!(&changes[..], [GitEvent::Suspended { until: None, .. }]), "{changes:?}");
        let window = json!({ "kind": "allow", "schedule": "whenever", "duration": "1h" });
        let odd = Restrictions::of(Some(&object(json!({ "windows": [window] }))));
        let told = odd.told(&Restrictions::default());
        assert!(told.iter().any(|said| said.contains("so nothing passes")), "{told:?}");
    }
}
