//! A run as one page that needs nothing else: curves of nodes, waiting pods and money, and everything that was done, each with why.
//!
//! The page is plain SVG, drawn by a short script of its own from the data that is embedded in it: no network, no library. Its content
//! policy names the one script and the one style by their digests, so that nothing else could run, whatever a pool is called.

mod data;
mod file;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::cli::simulate::{ExpectationDocument, in_hours};
use crate::model::count::counted;
use crate::model::money::Usd;
use crate::model::time::render_duration;
use crate::simulator::chronicle::{Peak, Run, Turn};
use data::Data;
pub use file::ReportFile;

const PAGE: &str = include_str!("report/page.html");
const STYLE: &str = include_str!("report/page.css");
const SCRIPT: &str = include_str!("report/page.js");

/// What is to be known of a run beside what happened in it.
#[derive(Debug, Default)]
pub struct About {
    pub region: Option<String>,
    pub seed: Option<u64>,
    /// Sentences, such as that prices of another region stand in.
    pub notices: Vec<String>,
    pub expectations: Vec<ExpectationDocument>,
    /// How the page is made again.
    pub command: String,
}

/// A figure above the curves.
#[derive(Serialize)]
struct Tile {
    label: &'static str,
    value: String,
    more: String,
}

#[derive(Serialize)]
struct AccountRow {
    pool: String,
    capacity_type: String,
    node_hours: String,
    usd: String,
}

#[derive(Serialize)]
struct ExpectationRow {
    at: String,
    word: &'static str,
    about: String,
    why: String,
}

/// What the template is filled with.
#[derive(Serialize)]
struct Context<'r> {
    policy: String,
    style: &'static str,
    script: &'static str,
    simulated: bool,
    environment: &'r str,
    region: Option<&'r str>,
    seed: Option<u64>,
    from: String,
    to: String,
    length: String,
    tiles: Vec<Tile>,
    accounts: Vec<AccountRow>,
    total_usd: Usd,
    total_hours: String,
    expectations: Vec<ExpectationRow>,
    notes: Vec<String>,
    command: &'r str,
    version: &'static str,
    data: Data,
}

/// The page. The same run gives the same bytes.
pub fn page(run: &Run, about: &About) -> String {
    let mut environment = minijinja::Environment::new();
    environment.add_template("page.html", PAGE).expect("the page is a template");
    let template = environment.get_template("page.html").expect("it was just added");
    let data = Data::of(run);
    let accounts: Vec<AccountRow> = run
        .spent
        .accounts
        .iter()
        .map(|(account, spent)| AccountRow {
            pool: account.pool.map_or_else(|| "-".to_owned(), |pool| pool.to_string()),
            capacity_type: account.capacity_type.to_string(),
            node_hours: in_hours(spent.machine_seconds),
            usd: spent.usd.to_string(),
        })
        .collect();
    let elapsed = |at: &str| {
        let at = at.parse::<Timestamp>().unwrap_or(run.from);
        render_duration(at.duration_since(run.from))
    };
    let expectations: Vec<ExpectationRow> = about
        .expectations
        .iter()
        .map(|one| ExpectationRow {
            at: elapsed(&one.at),
            word: if one.holds { "held" } else { "broken" },
            about: one.about.clone(),
            why: one.failures.join("; "),
        })
        .collect();
    let notes = [&about.notices, &run.notes, &data.notes].into_iter().flatten().cloned().collect();
    let context = Context {
        policy: policy(),
        style: STYLE,
        script: SCRIPT,
        simulated: run.is_simulated,
        environment: &run.environment,
        region: about.region.as_deref(),
        seed: about.seed,
        from: to_the_second(run.from),
        to: to_the_second(run.to),
        length: render_duration(run.to.duration_since(run.from)),
        tiles: tiles(run),
        accounts,
        total_usd: run.spent.total_usd,
        total_hours: in_hours(run.spent.machine_seconds),
        expectations,
        notes,
        command: &about.command,
        version: env!("CARGO_PKG_VERSION"),
        data,
    };
    template.render(minijinja::value::Serde(&context)).expect("every value of the page is there")
}

fn to_the_second(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// Nothing is loaded, and nothing runs but the script and the style of the page itself.
fn policy() -> String {
    let digest = |text: &str| STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        digest(SCRIPT),
        digest(STYLE)
    )
}

fn tiles(run: &Run) -> Vec<Tile> {
    let count = |is_it: fn(&Turn) -> bool| run.moves.iter().filter(|one| is_it(&one.what)).count();
    let nodes = |machines: &[u32]| machines.iter().sum::<u32>();
    let elapsed = |at: Timestamp| render_duration(at.duration_since(run.from));
    let at_most = |peak: Peak<String>| {
        peak.map_or_else(String::new, |(at, most)| format!("at most {most}, after {}", elapsed(at)))
    };
    let last = run.curve.last();
    let launched = count(|what| matches!(what, Turn::Launched));
    let failed = count(|what| matches!(what, Turn::LaunchFailed(_)));
    let lost = count(|what| matches!(what, Turn::Lost));
    let moved: usize = run
        .moves
        .iter()
        .map(|one| match &one.what {
            Turn::Disrupted(started) => started.nodes.len().max(started.claims.len()),
            Turn::GivenUp { .. } => 1,
            _ => 0,
        })
        .sum();
    vec![
        Tile {
            label: "Spent",
            value: format!("${}", run.spent.total_usd),
            more: format!("{} node-hours", in_hours(run.spent.machine_seconds)),
        },
        Tile {
            label: "Cost at the end",
            value: format!("${}/h", run.usd_per_hour),
            more: at_most(run.peaks.usd_per_hour.map(|(at, most)| (at, format!("${most}/h")))),
        },
        Tile {
            label: "Nodes at the end",
            value: last.map_or(0, |moment| nodes(&moment.machines)).to_string(),
            more: at_most(run.peaks.machines.map(|(at, most)| (at, most.to_string()))),
        },
        Tile {
            label: "Pods without a node at the end",
            value: last.map_or(0, |moment| moment.waiting_pods).to_string(),
            more: at_most(run.peaks.waiting_pods.map(|(at, most)| (at, most.to_string()))),
        },
        Tile {
            label: "Nodes bought",
            value: launched.to_string(),
            more: match failed {
                0 => "no launch failed".to_owned(),
                failed => format!("{} failed", counted(failed, "launch")),
            },
        },
        Tile {
            label: "Nodes given back",
            value: moved.to_string(),
            more: "drift, consolidation, age, repair".to_owned(),
        },
        Tile {
            label: "Interruptions",
            value: count(|what| matches!(what, Turn::Interrupted(_))).to_string(),
            more: match lost {
                0 => "no node was lost unasked".to_owned(),
                lost => format!("{} lost unasked", counted(lost, "node")),
            },
        },
    ]
}
