//! `provisor simulate`: a stretch of a fleet's life, lived in a moment, with what came of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::promote::PromotedField;
use super::recording::RecordFileArgs;
use super::report::{Drawing, ReportArgs, command_line};
use super::repository::{CommitArgs, open};
use super::weeks;
use crate::capacity::cluster::Cluster;
use crate::capacity::ledger::Statement;
use crate::gitops::promotion::PromotionDecision;
use crate::model::action::Subject;
use crate::model::count::{agreeing, counted};
use crate::model::label;
use crate::model::money::UsdPerHour;
use crate::model::time::{parse_duration, render_duration};
use crate::simulator::story::Happening;
use crate::ui::console::{Console, Tone};
use crate::ui::example;
use crate::ui::exit::{Exit, Failure};
use crate::ui::play::{
    Chosen, Play, engine_notice, price_notice, provisioner_of, script_of, scripted_policy,
};
use crate::ui::progress::Progress;
use crate::ui::report::About;
use crate::ui::script::DURATION_MAX;
use crate::ui::story::{Decided, decided, stays};
use crate::ui::table::Table;

/// Play a fleet on a simulated cluster: hours in a moment, the same seed always the same story
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything is simulated: no cluster, no cloud, no cost. The fleet's simulation.toml says what happens and what must come
of it; without a fleet the built-in example is played. With --weeks, fleets are made up, one for each seed, and everything goes
wrong that can; what has to hold all the same is in docs/reference/reliability.md.

Exit codes: 0 all expectations and promises held, 1 one did not, 2 the fleet, its script or a trial is wrong.

Examples:
  provisor simulate
  provisor simulate --repo examples/gpu-studio --seed 7
  provisor simulate --seed 42 --output json | jq .cost.totalUsd
  provisor simulate --record day.jsonl.zst && provisor why node web-x7x2c --recording day.jsonl.zst
  provisor simulate --report run.html                       a picture of the run, for a browser
  provisor simulate --weeks 1000 --seed 1
  provisor simulate --seed 17 --shrink --to trial.toml && provisor simulate --trial trial.toml")]
pub struct Args {
    /// The fleet: a directory or the address of a Git repository; the built-in example if absent
    #[arg(long, value_name = "PATH_OR_URL")]
    repo: Option<String>,
    #[command(flatten)]
    at: CommitArgs,
    /// The environment to play, instead of the script's
    #[arg(long, value_name = "NAME")]
    env: Option<String>,
    /// What chance begins with, instead of the script's seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How long to play, instead of the script's duration, such as 2h or 30m
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<String>,
    #[command(flatten)]
    recording: RecordFileArgs,
    #[command(flatten)]
    report: ReportArgs,
    #[command(flatten)]
    trials: weeks::TrialArgs,
}

/// The answer of `simulate --output json`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SimulationDocument {
    /// 1.
    pub version: u32,
    /// Always true: nothing of this happened.
    pub simulated: bool,
    pub environment: String,
    pub region: String,
    /// Who provisions the environment in its cluster: `provisor` or `karpenter`.
    pub engine: String,
    /// Set if that is not who provisions here.
    pub engine_notice: Option<String>,
    /// Set if the prices are not those of the region.
    pub price_notice: Option<String>,
    pub seed: u64,
    pub start: String,
    pub end: String,
    /// What was decided and what happened, in order.
    pub events: Vec<EventDocument>,
    pub expectations: Vec<ExpectationDocument>,
    /// What was proposed for environments that take values from this one, and why nothing was.
    pub promotions: Vec<PromotionDocument>,
    pub nodes: Vec<NodeDocument>,
    /// Pods without a node at the end.
    pub pending_pods: usize,
    pub cost: CostDocument,
    /// How often each kind of event happened.
    pub counts: BTreeMap<String, usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventDocument {
    pub at: String,
    pub kind: String,
    pub subject: String,
    pub message: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpectationDocument {
    pub at: String,
    pub about: String,
    pub holds: bool,
    pub failures: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionDocument {
    pub at: String,
    pub environment: String,
    /// `Proposed`, or the reason why nothing is.
    pub code: String,
    pub message: String,
    /// The fields to change; empty without a proposal.
    pub changes: Vec<PromotedField>,
}

impl PromotionDocument {
    fn of(at: Timestamp, decision: &PromotionDecision) -> Self {
        Self {
            at: at.to_string(),
            environment: decision.environment.to_string(),
            code: decision.code().into(),
            message: decision.to_string(),
            changes: decision
                .outcome
                .iter()
                .flat_map(|found| &found.changes)
                .map(PromotedField::from)
                .collect(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeDocument {
    pub name: String,
    pub pool: String,
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    /// US dollars an hour.
    pub usd_per_hour: String,
    pub pods: usize,
    /// It is to go, and was not told to end yet.
    pub leaving: bool,
}

/// What was paid, in US dollars.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostDocument {
    pub total_usd: String,
    pub usd_per_hour_at_end: String,
    pub by_pool: BTreeMap<String, String>,
    pub by_capacity_type: BTreeMap<String, String>,
    /// Whole seconds of every node, from its launch until it was told to end.
    pub machine_seconds: i64,
    /// The same by environment, pool and capacity type. The amounts come to the total.
    pub accounts: Vec<AccountDocument>,
}

/// What was paid for the nodes of a pool and capacity type.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountDocument {
    pub environment: String,
    /// Null for machines that no pool asked for.
    pub pool: Option<String>,
    pub capacity_type: String,
    pub machine_seconds: i64,
    pub usd: String,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    if args.trials.is_asked() {
        return weeks::run(&args.trials, args.seed, console);
    }
    let page = args.report.prepare()?;
    let repository = match &args.repo {
        Some(place) => open(place, &args.at, console)?,
        None if args.at.is_asked()? => open(".", &args.at, console)?,
        None => example::repository(),
    };
    let Chosen { mut script, notice, warnings } = script_of(&repository, args.env.as_deref())?;
    console.warn(&warnings);
    if let Some(notice) = notice {
        console.notice(&notice);
    }
    if let Some(text) = &args.duration {
        script.duration = parse_duration(text).map_err(|error| Failure::usage(error.to_string()))?;
        if script.duration > DURATION_MAX {
            return Err(Failure::usage(format!(
                "`--for {text}` is longer than a simulation may be ({})",
                render_duration(DURATION_MAX)
            )));
        }
        script.events.retain(|event| event.at <= script.duration);
        script.expect.retain(|expectation| expectation.at <= script.duration);
    }
    let mut play = Play::new(repository.clone(), script, args.seed, scripted_policy())?;
    args.recording.begin(&mut play);
    let drawing = Drawing::begin(page, &mut play);
    play.take_commit(repository)?;
    tell_notices(&mut play, console);
    let mut promotions = Vec::new();
    let progress = Progress::start(console, "simulating");
    let mut decisions = Vec::new();
    loop {
        let start = play.start();
        let commit = play.run_to_commit(|reconciler, turn| {
            let now = reconciler.now();
            promotions.extend(turn.promotions.iter().map(|decision| PromotionDocument::of(now, decision)));
            progress.step("simulating", &render_duration(now.duration_since(start)));
            let told = decided(reconciler, turn).into_iter().chain(stays(turn));
            decisions.extend(told.map(|one| (now, one)));
        });
        let Some(commit) = commit else { break };
        let repository = play.committed(&commit)?;
        let (id, message) = (repository.revision.commit.short(), commit.message.clone());
        let committed = Decided { kind: "Commit".to_string(), subject: id.to_string(), message };
        decisions.push((play.reconciler.now(), committed));
        play.take_commit(repository)?;
        tell_notices(&mut play, console);
    }
    drop(progress);
    args.recording.end(&mut play)?;
    let events = told_in_order(&play, decisions);
    let document = document(&play, &events, promotions);
    if let Some(drawing) = drawing {
        drawing.end(&play, about(&document, args), console)?;
    }
    if console.is_json() {
        console.json(&document)?;
    } else {
        console.data(&text(&play, &document, &events, console))?;
    }
    let failed = play.verdicts().iter().any(|verdict| !verdict.failures.is_empty());
    Ok(if failed { Exit::No } else { Exit::Done })
}

/// What a page says of the run beside what happened in it.
fn about(document: &SimulationDocument, args: &Args) -> About {
    let mut words = vec!["provisor".to_owned(), "simulate".to_owned()];
    let mut say = |word: &str, value: &Option<String>| {
        words.extend(value.iter().flat_map(|value| [word.to_owned(), value.clone()]));
    };
    say("--repo", &args.repo);
    say("--env", &args.env);
    say("--seed", &Some(document.seed.to_string()));
    say("--for", &args.duration);
    words.extend(args.at.words());
    About {
        notices: [&document.engine_notice, &document.price_notice].into_iter().flatten().cloned().collect(),
        expectations: document.expectations.clone(),
        command: command_line(words),
        ..About::default()
    }
}

/// Tells what is to be known of a commit that is carried out.
pub(super) fn tell_notices(play: &mut Play, console: &Console) {
    console.warn(&play.take_notices());
}

/// Something that happened or was decided.
struct Event {
    at: Timestamp,
    told: Decided,
    /// Whether people want to read it too; programs get everything.
    is_for_people: bool,
}

/// What was decided and what happened, in order; of one moment the decisions come first.
fn told_in_order(play: &Play, decisions: Vec<(Timestamp, Decided)>) -> Vec<Event> {
    let mut events: Vec<Event> = decisions
        .into_iter()
        .map(|(at, told)| Event { at, is_for_people: told.kind != "Provisioned", told })
        .collect();
    for (at, happening) in play.reconciler.cluster().world().story().iter() {
        let told = Decided {
            kind: happening.kind().to_string(),
            subject: happening.subject(),
            message: happening.message(),
        };
        events.push(Event { at: *at, told, is_for_people: is_told(happening) });
    }
    events.sort_by_key(|event| event.at);
    events.dedup_by(|next, former| next.at == former.at && next.told == former.told);
    events
}

fn document(play: &Play, events: &[Event], promotions: Vec<PromotionDocument>) -> SimulationDocument {
    let world = play.reconciler.cluster().world();
    let mut counts = BTreeMap::new();
    for event in events {
        *counts.entry(event.told.kind.clone()).or_default() += 1;
    }
    SimulationDocument {
        version: 1,
        simulated: true,
        environment: play.script.environment.clone(),
        region: play.script.region.clone(),
        engine: provisioner_of(play.repository(), &play.script.environment).as_str().to_owned(),
        engine_notice: engine_notice(play.repository(), &play.script.environment),
        price_notice: price_notice(&play.prices, &play.script.region),
        seed: play.script.seed,
        start: play.start().to_string(),
        end: play.end().to_string(),
        events: events.iter().map(event_document).collect(),
        expectations: expectations_of(play),
        promotions,
        nodes: nodes_of(play),
        pending_pods: pending(world.objects()),
        cost: cost_of(play),
        counts,
    }
}

/// What the script expected, and whether it held.
pub(super) fn expectations_of(play: &Play) -> Vec<ExpectationDocument> {
    let verdicts = play.verdicts().iter();
    verdicts
        .map(|verdict| ExpectationDocument {
            at: verdict.at.to_string(),
            about: verdict.about.clone(),
            holds: verdict.failures.is_empty(),
            failures: verdict.failures.clone(),
        })
        .collect()
}

/// What was paid until now.
pub(super) fn cost_of(play: &Play) -> CostDocument {
    let ledger = play.reconciler.spent();
    let hourly = play.reconciler.usd_per_hour();
    CostDocument::of(&ledger, hourly, &play.script.environment)
}

impl CostDocument {
    pub fn of(ledger: &Statement, hourly: UsdPerHour, environment: &str) -> Self {
        let accounts = ledger.accounts.iter().map(|(account, spent)| AccountDocument {
            environment: environment.to_owned(),
            pool: account.pool.map(|pool| pool.to_string()),
            capacity_type: account.capacity_type.to_string(),
            machine_seconds: spent.machine_seconds,
            usd: spent.usd.to_string(),
        });
        Self {
            total_usd: ledger.total_usd.to_string(),
            usd_per_hour_at_end: hourly.to_string(),
            by_pool: ledger.by_pool.iter().map(|(pool, usd)| (pool.to_string(), usd.to_string())).collect(),
            by_capacity_type: ledger
                .by_capacity_type
                .iter()
                .map(|(kind, usd)| (kind.to_string(), usd.to_string()))
                .collect(),
            machine_seconds: ledger.machine_seconds,
            accounts: accounts.collect(),
        }
    }
}

fn event_document(event: &Event) -> EventDocument {
    let Decided { kind, subject, message } = &event.told;
    EventDocument {
        at: event.at.to_string(),
        kind: kind.clone(),
        subject: subject.clone(),
        message: message.clone(),
    }
}

fn pending(cluster: &Cluster) -> usize {
    cluster.pods.values().filter(|pod| pod.node.is_none() && pod.is_active()).count()
}

/// Machines that are paid for at the end, by pool and name.
pub(super) fn nodes_of(play: &Play) -> Vec<NodeDocument> {
    let world = play.reconciler.cluster().world();
    let cluster = world.objects();
    let mut nodes: Vec<NodeDocument> = cluster
        .claims
        .values()
        .filter_map(|claim| {
            let machine =
                world.cloud().machine(claim.provider_id?).filter(|machine| machine.ended.is_none())?;
            let node = cluster.node_of(claim);
            let pods =
                node.map_or(0, |node| cluster.pods_of(node.name).filter(|pod| !pod.is_daemon()).count());
            Some(NodeDocument {
                name: node.map_or(claim.name.to_string(), |node| node.name.to_string()),
                pool: claim.labels.get(&*label::NODEPOOL).map_or("-".to_string(), ToString::to_string),
                instance_type: machine.instance.instance_type.to_string(),
                zone: machine.instance.zone.to_string(),
                capacity_type: machine.instance.capacity_type.to_string(),
                usd_per_hour: machine.price.to_string(),
                pods,
                leaving: claim.deleted.is_some(),
            })
        })
        .collect();
    nodes.sort_by(|a, b| (&a.pool, &a.name).cmp(&(&b.pool, &b.name)));
    nodes
}

/// Whether a person who reads the story wants to see it; the rest is in the JSON.
pub(super) fn is_told(happening: &Happening) -> bool {
    match happening {
        Happening::Bound { .. } | Happening::NodeJoined { .. } | Happening::ClaimCreated { .. } => false,
        Happening::Notice(notice) => notice.is_warning && !matches!(notice.subject, Subject::Node(_)),
        _ => true,
    }
}

fn text(play: &Play, document: &SimulationDocument, events: &[Event], console: &Console) -> String {
    let mut text = format!(
        "{} {} on a simulated cluster in {}, seed {}, {} from {}\n",
        console.paint(Tone::Notice, "simulated:"),
        document.environment,
        document.region,
        document.seed,
        render_duration(play.script.duration),
        document.start
    );
    for notice in [&document.engine_notice, &document.price_notice].into_iter().flatten() {
        text.push_str(&format!("{notice}\n"));
    }
    text.push('\n');
    let mut story = Table::new(&["AT", "WHAT", "SUBJECT", "DETAIL"]);
    for event in events.iter().filter(|event| event.is_for_people) {
        let Decided { kind, subject, message } = &event.told;
        story.row([play.elapsed(event.at), kind.clone(), subject.clone(), message.clone()]);
    }
    text.push_str(&story.to_string());
    if !document.promotions.is_empty() {
        let mut table = Table::new(&["AT", "PROMOTION"]);
        for promotion in &document.promotions {
            let at = promotion.at.parse().map_or_else(|_| promotion.at.clone(), |at| play.elapsed(at));
            table.row([at, promotion.message.clone()]);
        }
        text.push_str(&format!("\n{table}"));
    }
    if !document.nodes.is_empty() {
        text.push('\n');
        text.push_str(&nodes_table(&document.nodes).to_string());
    }
    if !document.cost.accounts.is_empty() {
        text.push_str(&format!("\n{}", cost_table(&document.cost)));
    }
    text.push('\n');
    for verdict in play.verdicts() {
        let at = play.elapsed(verdict.at);
        if verdict.failures.is_empty() {
            text.push_str(&format!("{} at {at}: {}\n", console.paint(Tone::Good, "held"), verdict.about));
        } else {
            let failures = verdict.failures.join("; ");
            text.push_str(&format!(
                "{} at {at}: {}: {failures}\n",
                console.paint(Tone::Bad, "broken"),
                verdict.about
            ));
        }
    }
    text.push_str(&format!(
        "\n{}, {} {}, ${} spent ({} simulated)\n",
        counted(document.nodes.len(), "node"),
        counted(document.pending_pods, "pod"),
        agreeing(document.pending_pods, "waits", "wait"),
        document.cost.total_usd,
        render_duration(play.script.duration)
    ));
    text
}

/// What was paid, by pool and capacity type.
pub(super) fn cost_table(cost: &CostDocument) -> Table {
    let mut table = Table::new(&["POOL", "CAPACITY", "NODE-HOURS", "USD"]);
    for account in &cost.accounts {
        table.row([
            account.pool.clone().unwrap_or_else(|| "-".to_owned()),
            account.capacity_type.clone(),
            in_hours(account.machine_seconds),
            account.usd.clone(),
        ]);
    }
    table
}

/// Seconds in hours, to the hundredth: `1.25`.
pub fn in_hours(seconds: i64) -> String {
    let hundredths = seconds.max(0) / 36;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

pub(super) fn nodes_table(nodes: &[NodeDocument]) -> Table {
    let mut table = Table::new(&["NODE", "POOL", "TYPE", "ZONE", "CAPACITY", "USD/H", "PODS"]);
    for node in nodes {
        let leaving = if node.leaving { " (leaving)" } else { "" };
        table.row([
            format!("{}{leaving}", node.name),
            node.pool.clone(),
            node.instance_type.clone(),
            node.zone.clone(),
            node.capacity_type.clone(),
            node.usd_per_hour.clone(),
            node.pods.to_string(),
        ]);
    }
    table
}
