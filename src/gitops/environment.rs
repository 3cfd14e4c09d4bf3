//! `Environment` of `provisor.dev`, the one kind of ours: which part of which repository a cluster follows, and under
//! which rules.
//!
//! It belongs to the cluster's operators, never to the repository: a commit cannot change its own judge. A repository may
//! add rules, and each of them can only forbid more (`policy.rs`).

mod definition;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use definition::definition;

use super::policy::{AdoptMode, BlastLimits, IgnoreRule, PruneMode, SyncMode, SyncPolicy, UnselectiveRule};
use super::window::{WindowError, WindowSpec, Windows};
use crate::api::crd::{self, Definition};

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
}
