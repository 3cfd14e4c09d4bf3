//! `provisor review`: what a proposal would do to the fleet, before anybody merges it.
//!
//! Both revisions are read from Git and never checked out; the proposal is merged onto the base in memory. Everything that
//! decides whether it may pass comes from the command line and from the base.

mod demand;
mod earlier;
mod life;
mod text;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::catalog::CatalogArgs;
use super::plan::read_input;
use super::repository::{CommitArgs, Proposal, open_proposal};
use super::validate::settings;
use crate::api::Reader;
use crate::gitops::desired::DesiredState;
use crate::gitops::diagnostic::Diagnostic;
use crate::gitops::guardrail::{Guardrails, RULES_CHANGE};
use crate::gitops::render::{
    Judged, Judging, RenderSettings, Report, list_environments, render_and_judge, validate_repository,
};
use crate::model::count::counted;
use crate::model::money::UsdPerHour;
use crate::model::near::nearest;
use crate::model::observation::Observation;
use crate::model::repository::{Repository, Revision};
use crate::model::time::parse_duration;
use crate::review::finding::{Findings, Level};
use crate::review::forms::{github, gitlab, junit, sarif};
use crate::review::gate::{CostIncrease, Gates, judge};
use crate::review::headline::headline;
use crate::review::impact::{Demand, Wanted, compare, remark};
use crate::review::markdown::{markdown, refusal};
use crate::review::merge::{Conflict, merge};
use crate::review::policy::{Rules, policies};
use crate::review::report::{Head, Mode, Remark, Review, Side, Verdict};
use crate::review::saved::read_saved;
use crate::ui::console::{Console, Output};
use crate::ui::exit::{Exit, Failure};
use crate::ui::progress::Progress;
use demand::{Played, Source};

/// Snapshots that are older say little about what runs now.
const SNAPSHOT_AGE_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Say what a proposal would do: nodes replaced and by which field, pods moved, dollars before and after
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is reviewed is the proposal merged onto the base, in memory. Without --snapshot the demand of the fleet's
simulation.toml (the base's, at its peak) is played; without either, only objects are compared.
--output markdown writes one comment for a forge, with a hidden marker in its first line; sarif, junit, gitlab (code
quality) and github (annotations) are for programs that collect findings.

Exit codes: 0 pass, 1 a gate failed or the proposal cannot be merged, 2 the proposal is not valid or the input is wrong,
3 the outside world failed, 5 the snapshot is too old and no gate failed.

Examples:
  provisor review --base origin/main --head HEAD
  provisor review --base origin/main --head HEAD --output markdown > comment.md
  provisor review --base main --head next --env prod --snapshot cluster.yaml --max-cost-increase 5%
  provisor review --repo https://git.example.com/fleet.git --base main --head refs/pull/7/head --output json")]
pub struct Args {
    /// What the proposal is made for: a branch, a tag, a full reference, a commit, or a way back from one (main~1)
    #[arg(long, value_name = "REV", required_unless_present = "from")]
    base: Option<String>,
    /// The proposal
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    head: String,
    /// The repository: a directory that is one, or its address
    #[arg(long, value_name = "PATH_OR_URL", default_value = ".", env = "PROVISOR_REPO")]
    repo: String,
    /// The directory of the fleet inside the repository
    #[arg(long, value_name = "DIR")]
    path: Option<String>,
    /// Accept `http://` addresses, where anyone on the way can change the content
    #[arg(long)]
    allow_insecure_http: bool,
    /// Accept more, or less, than usual: `files=10000`, `total_bytes=20MiB`, `fetch_timeout=2m`
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    limits: Vec<String>,
    /// One environment by name, or all
    #[arg(long, value_name = "NAME|all", default_value = "all")]
    env: String,
    /// Kubernetes objects of the cluster that the environment runs, as for `provisor plan`
    #[arg(long, value_name = "FILE")]
    snapshot: Option<std::path::PathBuf>,
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The moment to take as the present; by default the latest one in the snapshot, else the script's start
    #[arg(long, value_name = "RFC3339")]
    now: Option<Timestamp>,
    /// Exit with 5 if the snapshot is older than this; without it a snapshot of more than seven days is only a warning
    #[arg(long, value_name = "DURATION", requires = "snapshot", value_parser = duration)]
    max_snapshot_age: Option<SignedDuration>,
    /// Treat a snapshot that is too old as stale
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    gates: GateArgs,
    /// Tells this comment from those of other pipelines under the same proposal
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = set_name)]
    set: String,
    /// Print nothing if nothing changes, so that no comment is written
    #[arg(long)]
    skip_no_diff: bool,
    /// Review nothing, and say whether an earlier review, as --output json wrote it, still holds: 5 if the proposal is another
    /// or the base has changed something that it read
    #[arg(long, value_name = "FILE")]
    earlier: Option<std::path::PathBuf>,
    /// Review nothing, and show a review that --output json wrote, in another form: nothing in it is believed, so it may come
    /// from the pipeline of a fork
    #[arg(long, value_name = "FILE", conflicts_with_all = ["base", "head", "earlier", "snapshot"])]
    from: Option<std::path::PathBuf>,
}

impl Args {
    fn base(&self) -> &str {
        self.base.as_deref().unwrap_or_default()
    }
}

/// What fails a review.
#[derive(Clone, Debug, clap::Args)]
struct GateArgs {
    /// Fail on pods that lose their place, on pools removed with nodes, on new warnings. What a guardrail denies, and an
    /// environment whose base is not valid, fail whatever is named here; but `none` stands for nothing at all
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',', default_value = "unschedulable", help_heading = GATES)]
    fail_on: Vec<FailOn>,
    /// Fail if an environment comes to more dollars per hour
    #[arg(long, value_name = "USD", help_heading = GATES)]
    max_usd_per_hour: Option<UsdPerHour>,
    /// Fail if an environment gets dearer by more dollars a month (`500`), or by more than a share (`5%`)
    #[arg(long, value_name = "USD|PERCENT", value_parser = cost_increase, help_heading = GATES)]
    max_cost_increase: Option<CostIncrease>,
    /// Fail if more nodes of an environment are replaced or removed
    #[arg(long, value_name = "COUNT", help_heading = GATES)]
    max_nodes_replaced: Option<usize>,
    /// Fail if a pool of this name (`*` and `?` stand for any letters) is removed or has its nodes replaced
    #[arg(long, value_name = "POOL", help_heading = GATES)]
    protect: Vec<String>,
}

const GATES: &str = "Gates";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    Deny,
    Unschedulable,
    Destructive,
    Warn,
    None,
}

impl GateArgs {
    fn gates(&self) -> Gates {
        let fails_on = |what| self.fail_on.contains(&what) && !self.fail_on.contains(&FailOn::None);
        Gates {
            denials: !self.fail_on.contains(&FailOn::None),
            unknown_bases: !self.fail_on.contains(&FailOn::None),
            unschedulable: fails_on(FailOn::Unschedulable),
            destructive: fails_on(FailOn::Destructive),
            findings: fails_on(FailOn::Warn),
            protected: self.protect.clone(),
            spend_ceiling: self.max_usd_per_hour,
            cost_increase: self.max_cost_increase,
            nodes_replaced: self.max_nodes_replaced,
        }
    }
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    // Days are how people speak of snapshots.
    if let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<i64>().ok()) {
        return days
            .checked_mul(24)
            .map(SignedDuration::from_hours)
            .ok_or_else(|| "that is too long".to_owned());
    }
    parse_duration(text).map_err(|error| error.to_string())
}

fn set_name(text: &str) -> Result<String, String> {
    let is_plain =
        !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if is_plain { Ok(text.to_owned()) } else { Err("letters, digits and `_` only".into()) }
}

/// `500`, `12.50` or `5%`.
fn cost_increase(text: &str) -> Result<CostIncrease, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{error}; or a share such as `5%`");
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: UsdPerHour =
                percent.trim().parse().map_err(|_| format!("`{text}` is no percentage"))?;
            Ok(CostIncrease::Share(percent.0 / 100))
        }
        None => {
            let dollars: UsdPerHour = text.parse().map_err(|error| wrong(&error))?;
            Ok(CostIncrease::Monthly(dollars.0))
        }
    }
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let at = CommitArgs {
        reference: None,
        path: args.path.clone(),
        allow_insecure_http: args.allow_insecure_http,
        limits: args.limits.clone(),
        ..CommitArgs::default()
    };
    if let Some(file) = &args.from {
        let (bytes, name) = read_input(file)?;
        // Its verdict is what its maker says: nothing is judged here.
        return match read_saved(&bytes) {
            Ok(review) => print(args, &review, console).map(|()| Exit::Done),
            Err(error) => {
                // A comment that stood there before is of another proposal. Of what is in the file not a word is repeated.
                if console.output == Output::Markdown {
                    let why = "the pipeline of the proposal left no review; its log says why";
                    console.data(&refusal(why, std::iter::empty(), &args.set))?;
                }
                let message = format!("{name} cannot be shown: {error}");
                Err(Failure::input(message).help(earlier::WRITTEN_BY))
            }
        };
    }
    if let Some(file) = &args.earlier {
        return earlier::still_holds(args, file, &at, console);
    }
    review(args, &at, console).or_else(|failure| Err(refused(args, failure, console)?))
}

fn review(args: &Args, at: &CommitArgs, console: &Console) -> Result<Exit, Failure> {
    let Proposal { base, head, ancestor } = open_proposal(&args.repo, args.base(), &args.head, at, console)?;
    let is_merged = ancestor.revision.commit != base.revision.commit;
    let merged = match is_merged.then(|| merge(&ancestor, &base, &head)) {
        None => head.clone(),
        Some(Ok(merged)) => merged,
        Some(Err(conflicts)) => return Err(conflict(&conflicts)),
    };
    let now = args.now.unwrap_or_else(crate::io::clock::now_in_seconds);
    let settings = RenderSettings { judging: Judging::Told, now: Some(now), ..settings() };
    let report = validate_repository(&merged, &settings);
    let former = validate_repository(&base, &settings);
    if !report.is_valid() {
        return Err(not_valid(report, &former));
    }
    let names = chosen(args, &base, &merged)?;
    let rules = Rules { standing: Guardrails::read(&base), proposed: Guardrails::read(&merged) };
    let judged = RenderSettings { standing: Some(Arc::new(Guardrails::read(&base))), ..settings.clone() };
    let source = demand::source(args, &base, &merged, &names, console)?;
    let stale = stale(args, &source, console);
    let progress = Progress::start(console, "playing both revisions");
    let mut environments = Vec::new();
    let mut diagnostics: Vec<Remark> =
        rules.standing.changed_in(&rules.proposed).iter().map(remark).collect();
    diagnostics.extend(repository_remarks(&former, &report));
    // A base whose environments cannot even be listed is not known to lack any.
    let is_base_listed = concrete(&base).is_ok();
    let mut without_base = Vec::new();
    for name in &names {
        progress.step("playing", name);
        let before = one(&base, name, &settings);
        let is_unknown = !is_base_listed || matches!(before, Some(Err(_)));
        let before = before.and_then(Result::ok).map(wanted).transpose()?;
        let after = one(&merged, name, &judged).transpose().map_err(Failure::from)?;
        let after = after.map(wanted).transpose()?;
        let state = |side: &Option<Wanted>| side.as_ref().map(|side| side.state.clone());
        let mut environment = if is_unknown {
            without_base.push(name.as_str());
            compare(name, None, after.as_ref(), &Demand::None).without_base()
        } else {
            let demand = source.of(name, state(&before).as_ref(), state(&after).as_ref());
            compare(name, before.as_ref(), after.as_ref(), &demand)
        };
        environment.policies = policies(&environment, before.as_ref(), after.as_ref(), &rules, now);
        environments.push(environment);
    }
    drop(progress);
    let told: BTreeSet<(String, String)> = environments
        .iter()
        .flat_map(|environment| &environment.findings)
        .map(|finding| (finding.code.clone(), finding.message.clone()))
        .collect();
    diagnostics.retain(|remark| !told.contains(&(remark.code.clone(), remark.message.clone())));
    diagnostics.extend(source.remarks.iter().cloned());
    diagnostics.extend(stale.clone());
    let gates = judge(&args.gates.gates(), &environments, &without_base);
    let passed = gates.iter().all(|gate| gate.passed);
    let review = Review {
        version: 1,
        verdict: if passed { Verdict::Pass } else { Verdict::Fail },
        headline: headline(&environments, &without_base),
        base: side(&base.revision),
        head: Head { side: side(&head.revision), merge_result: is_merged.then(|| merged.content_digest()) },
        mode: source.mode(),
        demand: source.sentence.clone(),
        data_as_of: source.data_as_of.map(|moment| moment.to_string()),
        environments,
        gates,
        diagnostics,
        assumptions: source.assumptions(),
    };
    print(args, &review, console)?;
    Ok(match (passed, stale) {
        (true, None) => Exit::Done,
        (true, Some(_)) => Exit::Stale,
        (false, None) => Exit::No,
        // "No" is an answer; that it may be out of date is said beside it.
        (false, Some(_)) => {
            console.notice("a gate failed, on a snapshot that is too old: the exit code is that of the gate");
            Exit::No
        }
    })
}

fn print(args: &Args, review: &Review, console: &Console) -> Result<(), Failure> {
    // Programs want a document, even if there is nothing in it.
    let is_for_people = matches!(console.output, Output::Text | Output::Markdown);
    if args.skip_no_diff && !review.says_something() && is_for_people {
        return Ok(());
    }
    match console.output {
        Output::Json => console.json(review),
        Output::Markdown => console.data(&markdown(review, &args.set)),
        Output::Text => console.data(&text::render(review, console)),
        form => print_findings(form, &Findings::of(review, &args.set, args.path.as_deref()), console),
    }
}

/// Why there is no review, whatever stopped it. A comment that stood there before would be of another proposal, so this one
/// says so too.
fn refused(args: &Args, failure: Failure, console: &Console) -> Result<Failure, Failure> {
    match console.output {
        Output::Text | Output::Json => {}
        Output::Markdown => {
            console.data(&refusal(&failure.message, failure.diagnostics.iter().map(remark), &args.set))?;
        }
        form => {
            let level = |mistake: &Diagnostic| if mistake.is_error() { Level::Error } else { Level::Warning };
            let mistakes = failure.diagnostics.iter().map(|mistake| (remark(mistake), level(mistake)));
            let findings = Findings::refusal(&failure.message, mistakes, &args.set, args.path.as_deref());
            print_findings(form, &findings, console)?;
        }
    }
    Ok(failure)
}

fn print_findings(form: Output, findings: &Findings, console: &Console) -> Result<(), Failure> {
    match form {
        Output::Sarif => console.json(&sarif(findings, env!("CARGO_PKG_VERSION"))),
        Output::Gitlab => console.json(&gitlab(findings)),
        Output::Junit => console.data(&junit(findings)),
        Output::Github => console.data(&github(findings)),
        Output::Text | Output::Json | Output::Markdown => unreachable!("these are no lists of findings"),
    }
}

/// Why what would be merged is not valid: what is wrong with it, and whose mistakes they are.
fn not_valid(report: Report, former: &Report) -> Failure {
    let name =
        |mistake: &Diagnostic| (mistake.code, mistake.message.clone(), mistake.place.source.path.clone());
    let known: BTreeSet<_> = former.diagnostics.iter().filter(|one| one.is_error()).map(name).collect();
    let errors = || report.diagnostics.iter().filter(|one| one.is_error());
    let old = errors().filter(|mistake| known.contains(&name(mistake))).count();
    let all = errors().count();
    let message = match (old, all - old) {
        (0, _) => String::new(),
        (_, 0) => "the base is not valid, and the proposal leaves it so".to_owned(),
        (old, new) => {
            let old = counted(old, "mistake");
            format!("the proposal adds {} to {old} of the base, which is not valid", counted(new, "mistake"))
        }
    };
    Failure { diagnostics: report.diagnostics, ..Failure::input(message) }
}

fn conflict(conflicts: &[Conflict]) -> Failure {
    let places: Vec<String> = conflicts
        .iter()
        .map(|conflict| match conflict.line {
            Some(line) => format!("{}:{line}", conflict.path),
            None => conflict.path.to_string(),
        })
        .collect();
    Failure::new(Exit::No, format!("the proposal cannot be merged: conflict in {}", places.join(", ")))
        .help("Merge or rebase it by hand; nothing is reviewed until then.")
}

/// The environments that are reviewed: those that either side has, by name.
fn chosen(args: &Args, base: &Repository, head: &Repository) -> Result<Vec<String>, Failure> {
    let mut names: BTreeSet<String> = concrete(head)?.into_iter().collect();
    // A base that cannot be read has no environments to compare with.
    names.extend(concrete(base).unwrap_or_default());
    if args.env == "all" {
        return Ok(names.into_iter().collect());
    }
    if names.contains(&args.env) {
        return Ok(vec![args.env.clone()]);
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let help = match nearest(&args.env, all.iter().copied()) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("There are {}, or `all`.", all.join(", ")),
    };
    Err(Failure::input(format!("there is no environment `{}`", args.env)).help(help))
}

fn concrete(repository: &Repository) -> Result<Vec<String>, Failure> {
    let environments = list_environments(repository)?;
    let concrete = environments.into_iter().filter(|environment| !environment.is_abstract);
    Ok(concrete.map(|environment| environment.name.to_string()).collect())
}

type Outcome = Result<Judged, crate::gitops::diagnostic::Diagnostics>;

/// One environment of one revision; `None` if the revision does not have it.
fn one(repository: &Repository, name: &str, settings: &RenderSettings) -> Option<Outcome> {
    let is_there = concrete(repository).is_ok_and(|names| names.iter().any(|known| known == name));
    is_there.then(|| render_and_judge(repository, name, settings))
}

fn wanted(judged: Judged) -> Result<Wanted, Failure> {
    let Judged { state, mut warnings, breaches, subject, place } = judged;
    // That rules change is said once, and not of every environment.
    warnings.retain(|warning| warning.code != RULES_CHANGE);
    let objects = objects(&state)?;
    Ok(Wanted { state, objects, warnings, breaches, subject, place })
}

/// The rendered objects as news of a cluster.
fn objects(state: &DesiredState) -> Result<Vec<Observation>, Failure> {
    let mut reader = Reader::default();
    let mut objects = Vec::new();
    for (name, wanted) in &state.objects {
        let object = reader.parse(&wanted.manifest).map_err(|errors| {
            let origin = wanted.origin("").map(|origin| format!("{origin}: ")).unwrap_or_default();
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Failure::input(format!("{origin}{name} cannot be used: {}", errors.join("; ")))
        })?;
        objects.extend(object.into_observation());
    }
    Ok(objects)
}

/// Warnings about the repository as a whole that the base does not have.
fn repository_remarks(before: &Report, after: &Report) -> Vec<Remark> {
    let name = |warning: &Diagnostic| (warning.code, warning.message.clone());
    let known: BTreeSet<_> = before.diagnostics.iter().map(name).collect();
    after.diagnostics.iter().filter(|warning| !known.contains(&name(warning))).map(remark).collect()
}

fn side(revision: &Revision) -> Side {
    Side {
        commit: revision.commit.to_string(),
        reference: revision.reference.as_ref().map(ToString::to_string),
    }
}

/// Why the snapshot is too old to be believed; if it is merely old, a notice says so.
fn stale(args: &Args, source: &Source, console: &Console) -> Option<Remark> {
    let moment = source.data_as_of?;
    let now = args.now.unwrap_or_else(crate::io::clock::now_in_seconds);
    let age = now.duration_since(moment);
    let most = args.max_snapshot_age.unwrap_or(SNAPSHOT_AGE_MAX);
    if age <= most {
        return None;
    }
    let ago = match age.as_hours() {
        0 => counted(age.as_mins(), "minute"),
        hours @ 1..24 => counted(hours, "hour"),
        hours => counted(hours / 24, "day"),
    };
    let message = format!("the snapshot is of {moment}, {ago} ago: the cluster may look different by now");
    console.notice(&message);
    let is_strict = args.strict || args.max_snapshot_age.is_some();
    is_strict.then(|| Remark { code: "SnapshotTooOld".into(), message, origin: None })
}

impl Source {
    fn mode(&self) -> Mode {
        match &self.played {
            Played::Nothing => Mode::Static,
            Played::Script(_) => Mode::Simulation,
            Played::Snapshot { .. } => Mode::Snapshot,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowances_are_amounts_or_shares() {
        assert_eq!(cost_increase("500"), Ok(CostIncrease::Monthly(500_000_000)));
        assert_eq!(cost_increase("5%"), Ok(CostIncrease::Share(50_000)));
        assert_eq!(cost_increase("3.1 %"), Ok(CostIncrease::Share(31_000)));
        assert!(cost_increase("five").is_err() && cost_increase("five%").is_err());
    }

    #[test]
    fn ages_may_be_days() {
        assert_eq!(duration("7d"), Ok(SignedDuration::from_hours(168)));
        assert_eq!(duration("12h"), Ok(SignedDuration::from_hours(12)));
        assert!(duration("soon").is_err() && duration("9999999999999999999d").is_err());
    }
}
