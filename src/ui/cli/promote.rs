//! `provisor promote`: what an environment would take over from others, and whether it may by now.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::document::OriginDocument;
use super::repository::RepositoryArgs;
use crate::gitops::diagnostic::listed;
use crate::gitops::diff::show;
use crate::gitops::promotion::{
    FieldChange, Match, Promotion, PromotionEvent, Refusal, Rules, Standing, offer, rules,
};
use crate::gitops::render::{RenderSettings, list_environments, render_environment};
use crate::gitops::sync::{Health, Rollout, SyncState};
use crate::io::clock;
use crate::model::count::counted;
use crate::model::near::nearest;
use crate::model::repository::Repository;
use crate::model::time::render_duration;
use crate::ui::console::{Console, Tone};
use crate::ui::exit::{Exit, Failure};
use crate::ui::table::Table;

/// Propose the values that an environment takes over from others, once they have proven themselves there
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The environment's [promotion] says which values, from where, and after how long. Files alone do not tell how an
environment stands: say with --verified since when it stands without a break as `require` asks. Nothing is written; the
answer names the file, the fields and their values.

Exit codes: 0 proposed, or nothing to promote; 2 the input is wrong; 3 not yet: the soak, a stage, or the stages disagree.

Examples:
  provisor promote prod                                            what would change
  provisor promote prod --verified dev=2026-03-04T08:00:00Z        may it by now?
  provisor promote prod --bypass \"incident 4711\" --output json     without the soak, and on the record")]
pub struct Args {
    /// The environment that takes values over
    #[arg(value_name = "ENV")]
    environment: String,
    /// Since when another environment stands as the rules ask; once for each
    #[arg(long, value_name = "ENV=RFC3339", value_parser = verified)]
    verified: Vec<(String, Timestamp)>,
    /// The moment to take as the present; the clock by default
    #[arg(long, value_name = "RFC3339")]
    now: Option<Timestamp>,
    /// Propose although it is not verified, for this reason
    #[arg(long, value_name = "REASON")]
    bypass: Option<String>,
    #[command(flatten)]
    repository: RepositoryArgs,
}

fn verified(text: &str) -> Result<(String, Timestamp), String> {
    let (name, since) = text.split_once('=').ok_or("write ENV=TIME, such as dev=2026-03-04T08:00:00Z")?;
    let since = since.parse().map_err(|_| format!("`{since}` is no moment such as 2026-03-04T08:00:00Z"))?;
    Ok((name.to_owned(), since))
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromoteDocument {
    version: u32,
    environment: String,
    /// The file that would change.
    file: String,
    from: Vec<String>,
    soak: String,
    require: String,
    now: String,
    proposed: bool,
    /// `Proposed`, `NothingToPromote`, `Soaking`, `NotVerified` or `StagesDisagree`.
    code: String,
    message: String,
    /// How much of the soak is left; null unless that is the reason.
    remaining: Option<String>,
    /// When the soak is over; null unless that is the reason.
    ready_at: Option<String>,
    /// Who answers for it in place of the soak.
    bypass: Option<String>,
    /// What the environment lacks of its stages, proposed or not.
    changes: Vec<PromotedField>,
}

/// A value to change.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotedField {
    /// Keys with dots between them.
    pub field: String,
    /// Null if there is none today.
    pub from: Value,
    /// Null if it is to be taken away.
    pub to: Value,
    /// The line that sets it today.
    pub set_at: Option<OriginDocument>,
    /// The line that it comes from.
    pub comes_from: Option<OriginDocument>,
}

impl From<&FieldChange> for PromotedField {
    fn from(change: &FieldChange) -> Self {
        Self {
            field: change.field.clone(),
            from: change.from.clone().unwrap_or_default(),
            to: change.to.clone().unwrap_or_default(),
            set_at: change.set_at.as_ref().map(OriginDocument::from),
            comes_from: change.comes_from.as_ref().map(OriginDocument::from),
        }
    }
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let repository = args.repository.open(console)?;
    let rules = rules_for(&repository, &args.environment)?;
    let now = args.now.unwrap_or_else(clock::now);
    if args.bypass.as_ref().is_some_and(|reason| reason.trim().is_empty()) {
        return Err(
            Failure::usage("`--bypass` needs a reason").help("say why, such as --bypass \"incident 4711\"")
        );
    }
    for (at, (stage, _)) in args.verified.iter().enumerate() {
        if args.verified[..at].iter().any(|(other, _)| other == stage) {
            return Err(Failure::usage(format!("`--verified` is given twice for `{stage}`"))
                .help("an environment stands since one moment: keep the one that is true"));
        }
    }
    let offer = offer(&repository, &rules)?;
    let mut promotion = Promotion::new(rules.clone(), offer.clone());
    for (stage, since) in &args.verified {
        if !rules.from.iter().any(|from| **from == **stage) {
            let known = listed(rules.from.iter().map(|from| &**from));
            return Err(Failure::usage(format!("`{}` takes nothing from `{stage}`", rules.environment))
                .help(format!("--verified takes {known}")));
        }
        if *since > now {
            return Err(Failure::usage(format!("`{stage}` cannot be verified since {since}: it is {now}"))
                .help("give a moment of the past"));
        }
        let (state, _) = render_environment(&repository, stage, &RenderSettings::at(now))?;
        let standing = Standing {
            digest: state.digest,
            revision: state.revision,
            sync: SyncState::Synced,
            health: Health::Healthy,
            rollout: Rollout::Complete,
        };
        promotion.observe(*since, PromotionEvent::Stood { stage: stage.as_str().into(), standing });
    }
    if let Some(reason) = &args.bypass {
        let actor = actor();
        promotion
            .observe(now, PromotionEvent::Bypassed { actor: actor.into(), reason: reason.as_str().into() });
    }
    let decision = promotion.decide(now);
    let mut changes: Vec<PromotedField> = Vec::new();
    match &decision.outcome {
        Ok(proposal) => changes.extend(proposal.changes.iter().map(PromotedField::from)),
        Err(_) => {
            for stage in &rules.from {
                changes.extend(offer.changes_of(stage).map(PromotedField::from));
            }
        }
    }
    let (remaining, ready_at) = match &decision.outcome {
        Err(Refusal::Soaking { remaining, until }) => (Some(remaining.clone()), Some(until.to_string())),
        _ => (None, None),
    };
    let exit = match &decision.outcome {
        Ok(_) | Err(Refusal::NothingToPromote { .. }) => Exit::Done,
        Err(_) => Exit::Outside,
    };
    let document = PromoteDocument {
        version: 1,
        environment: rules.environment.to_string(),
        file: rules.file.to_string(),
        from: rules.from.iter().map(ToString::to_string).collect(),
        soak: render_duration(rules.soak),
        require: rules.require.as_str().into(),
        now: now.to_string(),
        proposed: decision.outcome.is_ok(),
        code: decision.code().into(),
        message: match &decision.outcome {
            Ok(proposal) => proposal.to_string(),
            Err(refusal) => refusal.to_string(),
        },
        remaining,
        ready_at,
        bypass: decision.outcome.as_ref().ok().and_then(|proposal| proposal.bypass.clone()),
        changes,
    };
    match console.is_json() {
        true => console.json(&document)?,
        false => console.data(&text(&document, &rules, console))?,
    }
    Ok(exit)
}

/// Whoever runs the program, for the record.
fn actor() -> String {
    let named = ["GIT_AUTHOR_NAME", "USER"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()));
    named.unwrap_or_else(|| "somebody".to_owned())
}

fn rules_for(repository: &Repository, environment: &str) -> Result<Rules, Failure> {
    let all = rules::rules_of(repository)?;
    if let Some(found) = all.into_iter().find(|rules| *rules.environment == *environment) {
        return Ok(found);
    }
    let known = list_environments(repository)?;
    let names = || known.iter().map(|known| &*known.name);
    if !names().any(|name| name == environment) {
        let help = match nearest(environment, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the environments are {}", listed(names())),
        };
        return Err(Failure::input(format!("there is no environment `{environment}`")).help(help));
    }
    Err(Failure::input(format!("`{environment}` takes values from nowhere: its file has no `promotion`"))
        .help("add `[promotion]` with `from` and `paths`; docs/guide/promotion.md shows how"))
}

fn text(document: &PromoteDocument, rules: &Rules, console: &Console) -> String {
    let mut out = String::new();
    if !document.changes.is_empty() {
        let mut table = Table::new(&["FIELD", "FROM", "TO", "SET BY", "COMES FROM"]);
        for change in &document.changes {
            let shown = |value: &Value| show(Some(value)).into_owned();
            let place = |origin: &Option<OriginDocument>| {
                origin.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
            };
            table.row([
                change.field.clone(),
                shown(&change.from),
                shown(&change.to),
                place(&change.set_at),
                place(&change.comes_from),
            ]);
        }
        out.push_str(&format!("{table}\n"));
    }
    let joint = if rules.matching == Match::OneOf { " or " } else { " and " };
    let stages = document.from.join(joint);
    if document.proposed {
        let what = counted(document.changes.len(), "change");
        let why = match &document.bypass {
            Some(bypass) => bypass.clone(),
            None => format!("{stages} {} for {}", document.require, document.soak),
        };
        let word = console.paint(Tone::Good, "proposed:");
        out.push_str(&format!("{word} {what} to {} ({why})\n", document.file));
    } else {
        let word = console.paint(Tone::Notice, &format!("{}:", document.environment));
        out.push_str(&format!("{word} {}\n", document.message));
        if document.code == "NotVerified" {
            let stage = document.from.first().map_or("dev", String::as_str);
            out.push_str(&format!(
                "It waits for {stages} to be {} for {}; --verified {stage}=TIME tells since when that holds.\n",
                document.require, document.soak
            ));
        }
    }
    out
}
