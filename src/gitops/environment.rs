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
use super::sync::{GitEvent, may_change};
use super::window::{WindowSpec, Windows};
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

/// How commits are applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SyncCeilings {
    /// Unset: every new commit, and every drift.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<SyncMode>,
    /// Unset: as the command line says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prune: Option<PruneMode>,
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
        let SyncPolicy { prune_ceiling, adopt, allow_empty, confirm_prune, read_only, .. } =
            SyncPolicy::new("");
        Self {
            mode: None,
            prune: None,
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

/// What an Environment says about applying commits; what it does not have says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyncRules {
    suspend: Option<Suspension>,
    windows: Vec<WindowSpec>,
    sync: Option<SyncCeilings>,
}

impl SyncRules {
    /// Of an object as the API server holds it. What cannot be read suspends: it may have been meant to. So does a demand
    /// for signatures, which nobody looks at.
    pub fn of(object: Option<&Value>) -> Self {
        #[derive(Deserialize)]
        struct Said {
            #[serde(default)]
            suspend: Option<Suspension>,
            #[serde(default)]
            windows: Vec<WindowSpec>,
            #[serde(default)]
            sync: Option<SyncCeilings>,
            #[serde(default)]
            verification: Verification,
        }
        let Some(spec) = object.and_then(|object| object.get("spec")) else { return Self::default() };
        let suspended = |reason| Some(Suspension { reason, until: None });
        let Said { suspend, windows, sync, verification } = match Said::deserialize(spec) {
            Ok(said) => said,
            Err(error) => {
                let reason = format!("what its `spec` says of applying commits cannot be read: {error}");
                return Self { suspend: suspended(reason), ..Self::default() };
            }
        };
        let suspend = match sync.as_ref().map(SyncCeilings::ignored) {
            Some(Err(error)) => suspended(error.to_string()),
            _ if verification.mode != VerificationMode::None => {
                suspended("spec.verification asks for signed commits, and no signature is looked at".into())
            }
            _ => suspend,
        };
        Self { suspend, windows, sync }
    }

    /// What a sync under `policy` has to hear where it knows of `former`, all of it before it decides anything: between two of
    /// them more might pass than under either. `actor` is who says it.
    pub fn changes(&self, former: &Self, policy: &SyncPolicy, actor: &str) -> Vec<GitEvent> {
        let mut changes = Vec::new();
        if let Some(Suspension { reason, until }) = &self.suspend
            && self.suspend != former.suspend
        {
            let (reason, actor) = (reason.as_str().into(), actor.into());
            changes.push(GitEvent::Suspended { reason, actor, until: *until });
        }
        if self.windows != former.windows || self.sync != former.sync {
            changes.push(GitEvent::PolicyChanged(self.over(policy)));
        }
        if self.suspend.is_none() && former.suspend.is_some() {
            changes.push(GitEvent::Resumed);
        }
        changes
    }

    /// `policy`, by these rules.
    fn over(&self, policy: &SyncPolicy) -> SyncPolicy {
        let policy = match &self.sync {
            Some(sync) => sync.over(policy.clone()),
            None => policy.clone(),
        };
        policy.with_windows(Windows::new(self.windows.iter().cloned()))
    }

    /// Whether a commit may change who provisions by itself, where `policy` holds if they say nothing.
    pub fn let_provisioner_change(
        &self,
        policy: &SyncPolicy,
        environment: &str,
        now: jiff::Timestamp,
    ) -> bool {
        let suspended = self.suspend.as_ref();
        let is_suspended = suspended.is_some_and(|suspend| suspend.until.is_none_or(|until| now < until));
        !is_suspended && may_change(&self.over(policy), environment, now)
    }

    /// The same for people, each to be read after the name of the object.
    pub fn told(&self, former: &Self) -> Vec<String> {
        let mut told = Vec::new();
        if self.suspend != former.suspend {
            told.push(match &self.suspend {
                Some(Suspension { reason, until: None }) => {
                    format!("is suspended, so no commit is applied until that is taken away: {reason}")
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
        if self.sync != former.sync {
            let said = self.sync.as_ref().map(SyncCeilings::unusual).unwrap_or_default();
            told.push(match &said[..] {
                [] => "says nothing of its own in spec.sync any more".into(),
                said => format!("says how commits are applied: {}", said.join(", ")),
            });
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

/// A rule of `spec.sync.ignore` that selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.sync.ignore[{index}]: {error}")]
pub struct IgnoreError {
    pub index: usize,
    pub error: UnselectiveRule,
}

impl SyncCeilings {
    /// `policy`, by these rules. Where one of `ignore` cannot be a rule there is none.
    pub fn over(&self, policy: SyncPolicy) -> SyncPolicy {
        let Limits { pools_max, pools_percent, nodes_percent, nodes_max, roll_nodes_max } = self.limits;
        SyncPolicy {
            mode: self.mode.unwrap_or(policy.mode),
            prune: self.prune.unwrap_or(policy.prune),
            prune_ceiling: self.prune_ceiling,
            adopt: self.adopt,
            allow_empty: self.allow_empty,
            confirm_prune: self.confirm_prune,
            read_only: self.read_only,
            protected: self.protected.iter().cloned().collect(),
            ignore: self.ignored().unwrap_or_default(),
            limits: BlastLimits { pools_max, pools_percent, nodes_percent, nodes_max, roll_nodes_max },
            ..policy
        }
    }

    fn ignored(&self) -> Result<Vec<IgnoreRule>, IgnoreError> {
        let rules = self.ignore.iter().enumerate();
        rules
            .map(|(index, Ignored { kind, name, path })| {
                IgnoreRule::new(kind.as_deref(), name.as_deref(), path)
                    .map_err(|error| IgnoreError { index, error })
            })
            .collect()
    }

    /// What is not as it is where nothing is said: `prune: "retire"`.
    fn unusual(&self) -> Vec<String> {
        let [said, usual] =
            [self, &Self::default()].map(|sync| serde_json::to_value(sync).unwrap_or_default());
        let fields = said.as_object().into_iter().flatten();
        fields
            .filter(|(name, value)| usual.get(name.as_str()) != Some(value))
            .map(|(name, value)| format!("{name}: {value}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sync(said: serde_json::Value) -> SyncCeilings {
        serde_json::from_value(said).expect("rules")
    }

    #[test]
    fn silence_means_the_rules_of_the_command_line() {
        let policy =
            SyncPolicy { mode: SyncMode::AutoHeal, prune: PruneMode::Retire, ..SyncPolicy::new("one") };
        assert_eq!(sync(json!({})).over(policy.clone()), policy);
        assert!(sync(json!({})).unusual().is_empty());
    }

    #[test]
    fn what_is_said_becomes_the_rule() {
        let said = sync(json!({
            "mode": "manual", "prune": "retire", "pruneCeiling": "retire", "adopt": "match", "allowEmpty": true,
            "confirmPrune": true, "readOnly": true, "protected": ["db-*"],
            "ignore": [{ "kind": "NodePool", "path": "/spec/limits" }], "limits": { "nodesMax": 3 },
        }));
        let policy = said.over(SyncPolicy { mode: SyncMode::AutoHeal, ..SyncPolicy::new("one") });
        let rule = IgnoreRule::new(Some("NodePool"), None, "/spec/limits").expect("a rule");
        let wanted = SyncPolicy {
            mode: SyncMode::Manual,
            prune: PruneMode::Retire,
            prune_ceiling: PruneMode::Retire,
            adopt: AdoptMode::Match,
            allow_empty: true,
            confirm_prune: true,
            read_only: true,
            protected: ["db-*".into()].into(),
            ignore: vec![rule],
            limits: BlastLimits { nodes_max: Some(3), ..BlastLimits::default() },
            ..SyncPolicy::new("one")
        };
        assert_eq!(policy, wanted);
        assert_eq!(said.unusual().len(), 10, "{:?}", said.unusual());
    }

    #[test]
    fn what_cannot_be_a_rule_and_what_nobody_looks_at_lets_nothing_pass() {
        let ignore = json!([{ "kind": "NodePool", "path": "/spec/limits" }, { "path": "/spec" }]);
        for (spec, why) in [
            (json!({ "sync": { "ignore": ignore } }), "spec.sync.ignore[1]: a rule that ignores"),
            (
                json!({ "sync": { "mode": "sometimes" } }),
                "what its `spec` says of applying commits cannot be read",
            ),
            (
                json!({ "verification": { "mode": "head", "secretRef": { "name": "keys" } } }),
                "spec.verification asks",
            ),
        ] {
            let changes = SyncRules::of(Some(&object(spec))).changes(
                &SyncRules::default(),
                &SyncPolicy::new("one"),
                "Environment/prod",
            );
            let [GitEvent::Suspended { reason, until: None, .. }, ..] = &changes[..] else {
                panic!("{changes:?}")
            };
            assert!(reason.starts_with(why), "{reason}");
        }
        let signed_or_not = object(json!({ "verification": { "mode": "none" } }));
        assert_eq!(SyncRules::of(Some(&signed_or_not)), SyncRules::default());
    }

    fn object(spec: serde_json::Value) -> serde_json::Value {
        json!({ "metadata": { "name": "prod" }, "spec": spec })
    }

    #[test]
    fn restrictions_are_told_once_and_taken_back() {
        let policy = SyncPolicy::new("one");
        let none = SyncRules::of(None);
        assert_eq!(none, SyncRules::of(Some(&object(json!({ "source": { "url": "x" } })))));
        let window = json!({ "kind": "deny", "schedule": "@daily", "duration": "1h" });
        let said = SyncRules::of(Some(&object(json!({
            "suspend": { "reason": "freeze", "until": "2026-12-27T00:00:00Z" }, "windows": [window],
        }))));
        let changes = said.changes(&none, &policy, "Environment/prod");
        let [GitEvent::Suspended { reason, actor, until }, GitEvent::PolicyChanged(restricted)] =
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

        let ruled =
            SyncRules::of(Some(&object(json!({ "sync": { "prune": "retire", "protected": ["db-*"] } }))));
        let changes = ruled.changes(&none, &policy, "Environment/prod");
        let [GitEvent::PolicyChanged(changed)] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!((changed.prune, changed.is_protected("db-one")), (PruneMode::Retire, true));
        let told = "says how commits are applied: prune: \"retire\", protected: [\"db-*\"]";
        assert_eq!(ruled.told(&none), [told]);
        let back = none.changes(&ruled, &policy, "Environment/prod");
        let [GitEvent::PolicyChanged(changed)] = &back[..] else { panic!("{back:?}") };
        assert_eq!((changed.prune, changed.is_protected("db-one")), (PruneMode::Off, false));
        assert_eq!(none.told(&ruled), ["says nothing of its own in spec.sync any more"]);
    }

    #[test]
    fn what_cannot_be_read_lets_nothing_pass() {
        let policy = SyncPolicy::new("one");
        let odd = SyncRules::of(Some(&object(json!({ "suspend": "yes" }))));
        let changes = odd.changes(&SyncRules::default(), &policy, "Environment/prod");
        assert!(matches!(&changes[..], [GitEvent::Suspended { until: None, .. }]), "{changes:?}");
        let window = json!({ "kind": "allow", "schedule": "whenever", "duration": "1h" });
        let odd = SyncRules::of(Some(&object(json!({ "windows": [window] }))));
        let told = odd.told(&SyncRules::default());
        assert!(told.iter().any(|said| said.contains("so nothing passes")), "{told:?}");
    }
}
