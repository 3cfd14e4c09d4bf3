//! The documents of `--output json`: what they share, and their schemas.

use std::fmt;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::Value;

use crate::gitops::desired::Origin;
use crate::gitops::diagnostic::{Diagnostic, Link};

/// One mistake in a file that a person edits.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiagnosticDocument {
    /// A name that never changes its meaning.
    pub code: String,
    /// `error` or `warning`.
    pub severity: String,
    pub message: String,
    pub file: String,
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    pub end_line: u32,
    /// Just behind the last character.
    pub end_column: u32,
    /// The line of the file; of a long one the part around the mistake.
    pub excerpt: String,
    /// Other places that belong to it, from the nearest to the farthest.
    pub chain: Vec<LinkDocument>,
    /// What to do.
    pub help: Option<String>,
    /// Where the code is explained, in the documentation that comes with the program.
    pub documentation: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct LinkDocument {
    pub message: String,
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl From<&Diagnostic> for DiagnosticDocument {
    fn from(diagnostic: &Diagnostic) -> Self {
        let (line, column) = diagnostic.place.position();
        let (end_line, end_column) = diagnostic.place.end_position();
        Self {
            code: diagnostic.code.into(),
            severity: diagnostic.severity.to_string(),
            message: diagnostic.message.clone(),
            file: diagnostic.place.file().to_string(),
            line,
            column,
            end_line,
            end_column,
            excerpt: diagnostic.place.excerpt().text,
            chain: diagnostic.chain.iter().map(LinkDocument::from).collect(),
            help: diagnostic.help.clone(),
            documentation: diagnostic.documentation(),
        }
    }
}

impl From<&Link> for LinkDocument {
    fn from(link: &Link) -> Self {
        let (line, column) = link.place.position();
        Self { message: link.message.clone(), file: link.place.file().to_string(), line, column }
    }
}

/// A place in a file that a person edits.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OriginDocument {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl From<&Origin> for OriginDocument {
    fn from(origin: &Origin) -> Self {
        Self { file: origin.file.to_string(), line: origin.line, column: origin.column }
    }
}

impl fmt::Display for OriginDocument {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// What goes to stderr under `--output json` when a verb fails.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ErrorDocument {
    pub version: u32,
    pub error: ErrorBody,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// The same as the exit status.
    pub exit_code: u8,
    pub message: String,
    /// What the error comes from, nearest first.
    pub causes: Vec<String>,
    /// What to do.
    pub help: Option<String>,
    /// Mistakes in files, at most fifty.
    pub diagnostics: Vec<DiagnosticDocument>,
    /// How many more there are.
    pub hidden: usize,
}

/// What goes to stderr under `--output json` beside errors, a line each: a sentence, or warnings.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NoticeDocument {
    pub version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Mistakes that stop nothing, at most fifty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<DiagnosticDocument>,
    /// How many more there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<usize>,
}

/// The schemas of all answers by name: one per verb, `error` and `notice` for what goes to stderr.
pub fn output_schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("ack", of::<super::ack::AckDocument>()),
        ("catalog", of::<super::catalog::CatalogDocument>()),
        ("completion", of::<super::completion::CompletionDocument>()),
        ("demo", of::<super::line::LineDocument>()),
        ("diff", of::<super::diff::DiffDocument>()),
        ("error", of::<ErrorDocument>()),
        ("explain", of::<super::explain::ExplainDocument>()),
        ("init", of::<super::init::InitDocument>()),
        ("lock", of::<super::lock::LockDocument>()),
        ("migrate", of::<super::migrate::MigrateDocument>()),
        ("notice", of::<NoticeDocument>()),
        ("plan", of::<super::plan::document::PlanDocument>()),
        ("promote", of::<super::promote::PromoteDocument>()),
        ("render", of::<super::render::RenderDocument>()),
        ("replay", of::<super::replay::ReplayDocument>()),
        ("review", of::<crate::review::report::Review>()),
        ("run", of::<super::line::LineDocument>()),
        ("schema", of::<super::schema::SchemaDocument>()),
        ("simulate", of::<super::simulate::SimulationDocument>()),
        ("snapshot", of::<super::snapshot::SnapshotDocument>()),
        ("trials", of::<super::weeks::TrialsDocument>()),
        ("validate", of::<super::validate::ValidateDocument>()),
        ("version", of::<super::version::VersionDocument>()),
        ("why", of::<super::why::WhyDocument>()),
    ]
}

fn of<T: JsonSchema>() -> Value {
    let schema: Schema =
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    schema.to_value()
}
