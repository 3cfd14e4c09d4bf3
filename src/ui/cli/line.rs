//! What `run` and `demo` tell programs: one document a line, all of one shape.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::document::OriginDocument;
use super::simulate::{CostDocument, ExpectationDocument, NodeDocument};
use crate::gitops::diff::{FieldChange, NodeImpact};
use crate::gitops::plan::{PlannedChange, SyncPlan, Verdict};
use crate::gitops::promotion::PromotionDecision;
use crate::model::repository::Revision;
use crate::ui::console::Console;
use crate::ui::exit::Failure;

/// A line of `run --output json` and `demo --output json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LineDocument {
    /// 1.
    pub version: u32,
    /// Whether the machines of this line exist in memory only.
    pub simulated: bool,
    /// `Note` (about the telling itself), `Commit`, `Plan`, `Outcome`, or a stable word for what was decided or happened.
    pub kind: String,
    /// When, on the clock of the cluster; absent from what is no part of its life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// What it is about: an environment, a pool, a claim, a node, a pod, a commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// A sentence for people.
    pub message: String,
    /// Of a `Commit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitDocument>,
    /// Of a `Plan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<SyncPlanDocument>,
    /// Of `Proposed`: the values that another environment would take over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Value>,
    /// Of an `Outcome`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeDocument>,
}

/// A commit that was seen.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CommitDocument {
    /// All digits of its id.
    pub id: String,
    /// The reference that led to it; null for a commit that was named by its id.
    pub reference: Option<String>,
    /// The first line of its message.
    pub subject: String,
    pub author: String,
}

/// What a commit changes in the cluster, in the order in which it is done.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncPlanDocument {
    /// Names this very plan: `confirm` takes its first digits.
    pub hash: String,
    pub environment: String,
    pub commit: String,
    /// Of all that the commit wants.
    pub digest: String,
    /// Whether a person's word covers it.
    pub confirmed: bool,
    /// How many changes of each kind: `create`, `update`, `adopt`, `retire`, `delete`, `waiting`, `needsConfirmation`,
    /// `refused`, `unchanged`, and of the changes that proceed `nodesRolled`, `nodesMayRoll` and `nodesRemoved`.
    pub summary: BTreeMap<String, u64>,
    pub changes: Vec<SyncChangeDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncChangeDocument {
    /// `NodePool/general`.
    pub object: String,
    /// `create`, `update`, `adopt`, `retire` or `delete`.
    pub action: String,
    /// `proceed`, `waits`, `confirm` or `refused`.
    pub verdict: String,
    /// Why it does not proceed, as a stable word; null if it does.
    pub code: Option<String>,
    /// The same as a sentence.
    pub message: Option<String>,
    /// What to do about a refusal.
    pub help: Option<String>,
    /// Why it is wanted.
    pub reasons: Vec<String>,
    /// What it does to nodes: `no-roll`, `may-roll`, `rolls-nodes` or `destructive`.
    pub impact: String,
    /// How many nodes, if that is known.
    pub nodes: Option<u64>,
    pub fields: Vec<SyncFieldDocument>,
    /// The line that asks for it; null for what left the repository.
    pub origin: Option<OriginDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncFieldDocument {
    pub path: String,
    /// Null if it is new.
    pub from: Value,
    /// Null if it goes.
    pub to: Value,
    pub impact: String,
    pub origin: Option<OriginDocument>,
}

/// Where a demo ends.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OutcomeDocument {
    pub nodes: Vec<NodeDocument>,
    pub cost: CostDocument,
    pub expectations: Vec<ExpectationDocument>,
}

impl LineDocument {
    pub fn new(kind: &str, message: impl Into<String>) -> Self {
        Self {
            version: 1,
            simulated: true,
            kind: kind.to_owned(),
            at: None,
            subject: None,
            message: message.into(),
            commit: None,
            plan: None,
            proposal: None,
            outcome: None,
        }
    }

    /// Something of the cluster's life.
    pub fn event(at: Timestamp, kind: &str, subject: String, message: String) -> Self {
        Self { at: Some(at.to_string()), subject: Some(subject), ..Self::new(kind, message) }
    }

    pub fn commit(revision: &Revision) -> Self {
        Self {
            subject: Some(revision.commit.to_string()),
            commit: Some(CommitDocument {
                id: revision.commit.to_string(),
                reference: revision.reference.as_ref().map(ToString::to_string),
                subject: revision.subject.to_string(),
                author: revision.author.to_string(),
            }),
            ..Self::new("Commit", &*revision.subject)
        }
    }

    pub fn plan(plan: &SyncPlan) -> Self {
        Self {
            subject: Some(plan.environment.to_string()),
            plan: Some(SyncPlanDocument::from(plan)),
            ..Self::new("Plan", plan.summary().to_string())
        }
    }

    pub fn promotion(at: Timestamp, decision: &PromotionDecision) -> Self {
        let (subject, message) = (decision.environment.to_string(), decision.to_string());
        Self {
            proposal: decision.outcome.as_ref().ok().map(|proposal| json!(proposal)),
            ..Self::event(at, decision.code(), subject, message)
        }
    }

    /// Writes it to stdout.
    pub fn tell(self, console: &Console) -> Result<(), Failure> {
        let line = Self { simulated: console.is_simulated(), ..self };
        console.json_text(&format!("{}\n", json!(line)))
    }
}

impl From<&SyncPlan> for SyncPlanDocument {
    fn from(plan: &SyncPlan) -> Self {
        let summary = json!(plan.summary());
        let counts = summary.as_object().into_iter().flatten();
        Self {
            hash: plan.hash.to_string(),
            environment: plan.environment.to_string(),
            commit: plan.commit.to_string(),
            digest: plan.digest.to_string(),
            confirmed: plan.is_confirmed,
            summary: counts.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or(0))).collect(),
            changes: plan.changes.iter().map(SyncChangeDocument::from).collect(),
        }
    }
}

impl From<&PlannedChange> for SyncChangeDocument {
    fn from(change: &PlannedChange) -> Self {
        let (verdict, code, help) = match &change.verdict {
            Verdict::Proceed => ("proceed", None, None),
            Verdict::Waits { code, .. } => ("waits", Some(code), None),
            Verdict::NeedsConfirmation { code, .. } => ("confirm", Some(code), None),
            Verdict::Refused { code, help, .. } => ("refused", Some(code), Some(help.clone())),
        };
        let (impact, nodes) = impact(change.impact);
        Self {
            object: change.object.to_string(),
            action: change.action.as_str().into(),
            verdict: verdict.into(),
            code: code.map(|code| code.as_str().into()),
            message: code.map(|_| change.verdict.message().to_string()),
            help,
            reasons: change.reasons.clone(),
            impact,
            nodes,
            fields: change.fields.iter().map(SyncFieldDocument::from).collect(),
            origin: change.origin.as_ref().map(OriginDocument::from),
        }
    }
}

impl From<&FieldChange> for SyncFieldDocument {
    fn from(change: &FieldChange) -> Self {
        Self {
            path: change.path.clone(),
            from: change.from.clone().unwrap_or_default(),
            to: change.to.clone().unwrap_or_default(),
            impact: impact(change.impact).0,
            origin: change.origin.as_ref().map(OriginDocument::from),
        }
    }
}

fn impact(impact: NodeImpact) -> (String, Option<u64>) {
    let written = json!(impact);
    (written["impact"].as_str().unwrap_or_default().to_owned(), written["nodes"].as_u64())
}
