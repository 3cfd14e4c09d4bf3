//! A plan for people: rows of a table, one line per change, and a sentence that sums it up.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::{ChangeAction, PlannedChange, SyncPlan, Verdict};
use crate::gitops::desired::Origin;
use crate::gitops::diff::{FieldChange, NodeImpact, is_mark, show};

/// One line of a plan's table. Texts are whole; the table decides nothing but their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRow {
    pub object: String,
    /// `create`, `update`, `adopt`, `retire`, `delete`, `waits`, `confirm` or `refused`.
    pub change: &'static str,
    /// The field, or the reason where there is no field to show; `-` for neither.
    pub field: String,
    pub from: String,
    pub to: String,
    pub impact: NodeImpact,
    pub origin: Option<Origin>,
}

/// How many changes of each kind. Serialised as numbers under stable names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    pub create: u32,
    pub update: u32,
    pub adopt: u32,
    pub retire: u32,
    pub delete: u32,
    pub waiting: u32,
    pub needs_confirmation: u32,
    pub refused: u32,
    pub unchanged: u32,
    /// Of the changes that proceed.
    pub nodes_rolled: u32,
    pub nodes_may_roll: u32,
    pub nodes_removed: u32,
}

impl SyncPlan {
    pub fn summary(&self) -> PlanSummary {
        let mut sum = PlanSummary { unchanged: self.unchanged, ..PlanSummary::default() };
        for change in &self.changes {
            let counter = match (&change.verdict, change.action) {
                (Verdict::Waits { .. }, _) => &mut sum.waiting,
                (Verdict::NeedsConfirmation { .. }, _) => &mut sum.needs_confirmation,
                (Verdict::Refused { .. }, _) => &mut sum.refused,
                (Verdict::Proceed, ChangeAction::Create) => &mut sum.create,
                (Verdict::Proceed, ChangeAction::Update) => &mut sum.update,
                (Verdict::Proceed, ChangeAction::Adopt) => &mut sum.adopt,
                (Verdict::Proceed, ChangeAction::Retire) => &mut sum.retire,
                (Verdict::Proceed, ChangeAction::Delete) => &mut sum.delete,
            };
            *counter += 1;
            if change.verdict == Verdict::Proceed {
                match change.impact {
                    NodeImpact::NoRoll => {}
                    NodeImpact::MayRoll { nodes } => sum.nodes_may_roll += nodes.unwrap_or(0),
                    NodeImpact::Rolls { nodes } => sum.nodes_rolled += nodes.unwrap_or(0),
                    NodeImpact::Destructive { nodes } => sum.nodes_removed += nodes.unwrap_or(0),
                }
            }
        }
        sum
    }

    /// The plan as a table's content, in order. What is held back has a row for the reason, then one for each field.
    pub fn rows(&self) -> Vec<PlanRow> {
        self.changes.iter().flat_map(rows).collect()
    }
}

fn rows(change: &PlannedChange) -> Vec<PlanRow> {
    let word = match &change.verdict {
        Verdict::Proceed => change.action.as_str(),
        Verdict::Waits { .. } => "waits",
        Verdict::NeedsConfirmation { .. } => "confirm",
        Verdict::Refused { .. } => "refused",
    };
    let row = |field: String, from: String, to: String, impact: NodeImpact, origin: Option<Origin>| PlanRow {
        object: change.object.to_string(),
        change: word,
        field,
        from,
        to,
        impact,
        origin,
    };
    let none = || String::from("-");
    let mut rows = Vec::new();
    if change.verdict != Verdict::Proceed {
        let reason = format!("{}: {}", change.action.as_str(), change.verdict.message());
        rows.push(row(reason, none(), none(), change.impact, change.origin.clone()));
    } else if change.fields.is_empty() {
        let field = change.renamed.as_ref().map_or_else(none, |other: &Arc<str>| match change.action {
            ChangeAction::Create => format!("renamed from {other}"),
            _ => format!("renamed to {other}"),
        });
        rows.push(row(field, none(), none(), change.impact, change.origin.clone()));
    }
    // Whoever is asked to adopt an object wants to see what differs, not that our marks are missing.
    let is_shown = |field: &&FieldChange| change.action != ChangeAction::Adopt || !is_mark(&field.path);
    rows.extend(change.fields.iter().filter(is_shown).map(|field| {
        let (from, to) = (show(field.from.as_ref()).into_owned(), show(field.to.as_ref()).into_owned());
        row(field.short_path().into(), from, to, field.impact, field.origin.clone())
    }));
    if rows.is_empty() {
        rows.push(row("tracking marks".into(), none(), none(), change.impact, change.origin.clone()));
    }
    rows
}

impl fmt::Display for PlanSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.create, "to create"),
            (self.update, "to update"),
            (self.adopt, "to adopt"),
            (self.retire, "to retire"),
            (self.delete, "to delete"),
            (self.waiting, "waiting"),
            (self.needs_confirmation, "to confirm"),
            (self.refused, "refused"),
        ];
        let mut said: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if said.is_empty() {
            said.push("nothing to do".into());
        }
        out.write_str(&said.join(", "))
    }
}

/// `update NodePool/batch  disruption.budgets[0].nodes 10% → 25%`: one line per change of a field or object.
impl fmt::Display for SyncPlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.rows() {
            write!(out, "{:<8} {}", row.change, row.object)?;
            if row.field != "-" {
                write!(out, "  {}", row.field)?;
            }
            if row.from != "-" || row.to != "-" {
                write!(out, "  {} → {}", row.from, row.to)?;
            }
            if row.impact != NodeImpact::NoRoll {
                write!(out, "  {}", row.impact)?;
            }
            writeln!(out)?;
        }
        write!(out, "{}", self.summary())
    }
}
