//! What is embedded in a page: curves thinned to what a screen can show, and events with their reasons, as many as can be read.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::capacity::ledger::Account;
use crate::model::count::counted;
use crate::model::time::render_duration;
use crate::simulator::chronicle::{MachineStory, Moment, Move, Run, Turn};
use crate::ui::cli::why::{Row, name_of_commit, row_of_commit, rows_of_claim, rows_of_disruption};

/// Points of a curve: more than this no screen shows.
const POINTS_MAX: usize = 600;
/// Curves of their own: more than this nobody tells apart.
const SERIES_MAX: usize = 8;
/// Events and nodes that are told of, each with its reasons.
const EVENTS_MAX: usize = 1_500;
const MACHINES_MAX: usize = 1_500;
/// Nodes of one event whose reasons are told.
const MACHINES_OF_EVENT_MAX: usize = 12;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Data {
    /// Milliseconds since 1970.
    start: i64,
    /// All other moments are seconds since the start.
    seconds: f64,
    series: Vec<Series>,
    points: Points,
    /// Each point stands for so many seconds; absent if the curves have every change.
    #[serde(skip_serializing_if = "Option::is_none")]
    point_seconds: Option<i64>,
    kinds: Vec<KindLabel>,
    events: Vec<EventData>,
    machines: Vec<MachineData>,
    #[serde(skip)]
    pub notes: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Series {
    pool: String,
    capacity_type: String,
    /// Pools have the same colour in every curve.
    colour: usize,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Points {
    at: Vec<f64>,
    /// For each series its nodes at each point.
    nodes: Vec<Vec<u32>>,
    waiting: Vec<usize>,
    usd_per_hour: Vec<f64>,
    usd: Vec<f64>,
}

#[derive(Serialize)]
struct KindLabel {
    key: &'static str,
    label: &'static str,
}

#[derive(Serialize)]
struct EventData {
    at: f64,
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pool: String,
    /// The node or claim, if it is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    subject: String,
    what: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<Row>,
    /// Places of machines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    machines: Vec<usize>,
    /// Nodes that it concerns and that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    more: usize,
    /// So many events are told as one, the last of them at `until`.
    #[serde(skip_serializing_if = "is_zero")]
    count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MachineData {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pool: String,
    instance_type: String,
    capacity_type: String,
    zone: String,
    usd_per_hour: String,
    from: Option<f64>,
    to: Option<f64>,
    rows: Vec<Row>,
}

/// The kinds of events, in the order of their rows in the picture.
const KINDS: [KindLabel; 12] = [
    KindLabel { key: "commit", label: "Commit" },
    KindLabel { key: "launch", label: "Launch" },
    KindLabel { key: "failure", label: "Launch failed" },
    KindLabel { key: "interruption", label: "Interruption" },
    KindLabel { key: "lost", label: "Node lost" },
    KindLabel { key: "drift", label: "Drift" },
    KindLabel { key: "consolidation", label: "Consolidation" },
    KindLabel { key: "return", label: "Back to spot" },
    KindLabel { key: "expiration", label: "Expiration" },
    KindLabel { key: "scale-down", label: "Scale-down" },
    KindLabel { key: "repair", label: "Repair" },
    KindLabel { key: "other", label: "Given up" },
];

fn kind_of(what: &Turn) -> &'static str {
    match what {
        Turn::Committed(_) => "commit",
        Turn::Launched => "launch",
        Turn::LaunchFailed(_) => "failure",
        Turn::Interrupted(_) => "interruption",
        Turn::Lost => "lost",
        Turn::Disrupted(started) => match started.method.as_str() {
            "drift" | "static-drift" => "drift",
            "expiration" | "renewal" => "expiration",
            "return" => "return",
            "static-scale-down" => "scale-down",
            _ => "consolidation",
        },
        Turn::GivenUp { code, .. } => match code.as_str() {
            "Unhealthy" => "repair",
            "Expired" => "expiration",
            "Drifted" => "drift",
            "Empty" | "Underutilized" => "consolidation",
            _ => "other",
        },
    }
}

impl Data {
    pub fn of(run: &Run) -> Self {
        let mut notes = Vec::new();
        let (shown, series) = series(run, &mut notes);
        let (moments, point_seconds) = thinned(run);
        if let Some(seconds) = point_seconds {
            notes.push(format!(
                "The curves have a point for every {}: nodes and money as they stood at its end (the figures above have the most of all), and the most pods that waited in it.",
                render_duration(SignedDuration::from_secs(seconds))
            ));
        }
        let points = points(run, &moments, &shown);
        let groups = groups(run, &mut notes);
        let (listed, machines) = machines(run, &groups, &mut notes);
        let place = |machine: &usize| listed.get(machine).copied();
        let events: Vec<EventData> = groups.iter().map(|group| event(run, group, &place)).collect();
        let used: BTreeSet<&str> = events.iter().map(|event| event.kind).collect();
        Self {
            start: run.from.as_millisecond(),
            seconds: since(run, run.to),
            series,
            points,
            point_seconds,
            kinds: KINDS.into_iter().filter(|kind| used.contains(kind.key)).collect(),
            events,
            machines,
            notes,
        }
    }
}

/// Seconds since the start, to the millisecond.
fn since(run: &Run, at: Timestamp) -> f64 {
    at.duration_since(run.from).as_millis() as f64 / 1000.0
}

/// Which series each account belongs to, and the series in the order of the stack.
fn series(run: &Run, notes: &mut Vec<String>) -> (BTreeMap<Account, usize>, Vec<Series>) {
    let mut by_use: Vec<Account> = run.accounts.clone();
    let used = |account: &Account| run.spent.accounts.get(account).map_or(0, |spent| spent.machine_seconds);
    by_use.sort_by_key(|account| (std::cmp::Reverse(used(account)), *account));
    let has_rest = by_use.len() > SERIES_MAX;
    let own = if has_rest { SERIES_MAX - 1 } else { by_use.len() };
    let rest = by_use.split_off(own);
    by_use.sort();
    let pool_of = |account: &Account| account.pool.map_or_else(|| "-".to_owned(), |pool| pool.to_string());
    let mut colours: BTreeMap<String, usize> = BTreeMap::new();
    let mut shown = BTreeMap::new();
    let mut series = Vec::new();
    for account in by_use {
        let next = colours.len();
        let colour = *colours.entry(pool_of(&account)).or_insert(next);
        shown.insert(account, series.len());
        series.push(Series {
            pool: pool_of(&account),
            capacity_type: account.capacity_type.to_string(),
            colour,
        });
    }
    if has_rest {
        notes.push(format!(
            "The {} series with the least use are drawn as one; the table of costs has each of them.",
            rest.len()
        ));
        shown.extend(rest.iter().map(|account| (*account, series.len())));
        series.push(Series {
            pool: "all others".to_owned(),
            capacity_type: "any".to_owned(),
            colour: SERIES_MAX - 1,
        });
    }
    (shown, series)
}

/// The moments that are drawn, and how long each is if they are not all there are.
fn thinned(run: &Run) -> (Vec<Moment>, Option<i64>) {
    if run.curve.len() <= POINTS_MAX && !run.is_thinned {
        return (run.curve.clone(), None);
    }
    let whole = run.to.duration_since(run.from).as_secs().max(1);
    let step = whole / POINTS_MAX as i64 + 1;
    let bucket_of = |at: Timestamp| at.duration_since(run.from).as_secs() / step;
    let mut drawn: Vec<Moment> = Vec::new();
    for moment in &run.curve {
        let bucket = bucket_of(moment.at);
        match drawn.last_mut().filter(|last| bucket_of(last.at) == bucket) {
            Some(last) => {
                let waiting_pods = last.waiting_pods.max(moment.waiting_pods);
                *last = Moment { waiting_pods, ..moment.clone() };
            }
            None => drawn.push(moment.clone()),
        }
    }
    (drawn, Some(step))
}

fn points(run: &Run, moments: &[Moment], shown: &BTreeMap<Account, usize>) -> Points {
    let series = shown.values().max().map_or(0, |most| most + 1);
    let mut points = Points { nodes: vec![Vec::new(); series], ..Points::default() };
    for moment in moments {
        points.at.push(since(run, moment.at));
        points.waiting.push(moment.waiting_pods);
        points.usd_per_hour.push(moment.usd_per_hour.0 as f64 / 1e6);
        points.usd.push(moment.usd.0 as f64 / 1e6);
        let mut nodes = vec![0; series];
        for (account, machines) in run.accounts.iter().zip(&moment.machines) {
            if let Some(place) = shown.get(account) {
                nodes[*place] += machines;
            }
        }
        nodes.into_iter().enumerate().for_each(|(place, count)| points.nodes[place].push(count));
    }
    points
}

/// Events that are told as one: of one kind and pool, close together.
struct Group<'r> {
    kind: &'static str,
    pool: String,
    moves: Vec<&'r Move>,
}

fn pool_of(run: &Run, one: &Move) -> String {
    let pools: BTreeSet<&str> = one
        .machines
        .iter()
        .filter_map(|machine| run.machines.get(*machine)?.found.pool.as_deref())
        .filter(|pool| !pool.is_empty())
        .collect();
    pools.into_iter().collect::<Vec<_>>().join(", ")
}

/// Every event alone, if there are not too many.
fn groups<'r>(run: &'r Run, notes: &mut Vec<String>) -> Vec<Group<'r>> {
    let told: Vec<(&'static str, String, &Move)> =
        run.moves.iter().map(|one| (kind_of(&one.what), pool_of(run, one), one)).collect();
    let alone = |(kind, pool, one): (&'static str, String, &'r Move)| Group { kind, pool, moves: vec![one] };
    if told.len() <= EVENTS_MAX {
        return told.into_iter().map(alone).collect();
    }
    let whole = run.to.duration_since(run.from).as_secs().max(1);
    let mut step = whole / 500 + 1;
    loop {
        let mut groups: BTreeMap<(i64, &'static str, &str), Group<'r>> = BTreeMap::new();
        for (kind, pool, one) in &told {
            let bucket = one.at.duration_since(run.from).as_secs() / step;
            let new = || Group { kind, pool: pool.clone(), moves: Vec::new() };
            groups.entry((bucket, kind, pool)).or_insert_with(new).moves.push(one);
        }
        let is_least = step > whole;
        if groups.len() > EVENTS_MAX && !is_least {
            step *= 2;
            continue;
        }
        let mut groups: Vec<Group<'r>> = groups.into_values().collect();
        groups.sort_by_key(|group| group.moves[0].at);
        let step = render_duration(SignedDuration::from_secs(step));
        notes.push(format!(
            "There were {}: those of one kind and pool within {step} are told as one.",
            counted(told.len(), "event")
        ));
        if groups.len() > EVENTS_MAX {
            notes.push(format!("Only the first {EVENTS_MAX} of {} are listed.", groups.len()));
            groups.truncate(EVENTS_MAX);
        }
        return groups;
    }
}

/// The nodes that are told of, with their places in the page: first those of events.
fn machines(
    run: &Run,
    groups: &[Group<'_>],
    notes: &mut Vec<String>,
) -> (BTreeMap<usize, usize>, Vec<MachineData>) {
    let of_events = groups.iter().flat_map(|group| {
        let machines = group.moves.iter().flat_map(|one| &one.machines);
        machines.copied().take(MACHINES_OF_EVENT_MAX)
    });
    let mut chosen = BTreeSet::new();
    for machine in of_events.chain(0..run.machines.len()) {
        if chosen.len() == MACHINES_MAX {
            break;
        }
        chosen.insert(machine);
    }
    if chosen.len() < run.machines.len() {
        notes.push(format!(
            "There were {}: {} of them are listed, those of the events first. `provisor why` tells of each from a recording.",
            counted(run.machines.len(), "claim"),
            chosen.len()
        ));
    }
    let listed = chosen.iter().enumerate().map(|(place, machine)| (*machine, place)).collect();
    let machines = chosen.iter().filter_map(|machine| run.machines.get(*machine));
    (listed, machines.map(|machine| machine_data(run, machine)).collect())
}

fn name_of(machine: &MachineStory) -> String {
    machine.found.node.clone().unwrap_or_else(|| machine.claim.clone())
}

fn machine_data(run: &Run, machine: &MachineStory) -> MachineData {
    let bought = machine.found.bought.as_ref().and_then(|bought| bought.machine.as_ref());
    let word = |word: Option<String>| word.unwrap_or_else(|| "-".to_owned());
    MachineData {
        name: name_of(machine),
        pool: machine.found.pool.clone().unwrap_or_default(),
        instance_type: word(bought.map(|machine| machine.instance_type.to_string())),
        capacity_type: word(bought.map(|machine| machine.capacity_type.to_string())),
        zone: word(bought.map(|machine| machine.zone.to_string())),
        usd_per_hour: word(machine.usd_per_hour.map(|price| price.to_string())),
        from: machine.from.map(|at| since(run, at)),
        to: machine.to.map(|at| since(run, at)),
        rows: rows_of_claim(&machine.claim, &machine.found, run.to),
    }
}

fn event(run: &Run, group: &Group<'_>, place: &dyn Fn(&usize) -> Option<usize>) -> EventData {
    let (first, last) = (group.moves[0], group.moves[group.moves.len() - 1]);
    let all: Vec<usize> = group.moves.iter().flat_map(|one| one.machines.iter().copied()).collect();
    let machines: Vec<usize> = all.iter().take(MACHINES_OF_EVENT_MAX).filter_map(place).collect();
    let is_one = group.moves.len() == 1;
    let subject = match all.as_slice() {
        [one] => run.machines.get(*one).map(name_of).unwrap_or_default(),
        _ => String::new(),
    };
    let mut rows = Vec::new();
    if is_one {
        if let Turn::Disrupted(started) = &first.what {
            rows.extend(rows_of_disruption(first.at, started));
            let saved = started.savings;
            let word = if saved.0 < 0 { "costs" } else { "saves" };
            rows.push((word, format!("${} an hour", if saved.0 < 0 { -saved } else { saved })));
        }
        if let Turn::GivenUp { code, why } = &first.what {
            rows.push(("went", format!("{code}: {why}")));
        }
        if let Some((since, commit)) = run.commit_at(first.at) {
            rows.push(row_of_commit(*since, commit));
        }
    }
    let what = sentence(run, first);
    EventData {
        at: since(run, first.at),
        kind: group.kind,
        pool: group.pool.clone(),
        subject,
        what: if is_one { what } else { format!("{} times; the first: {what}", group.moves.len()) },
        rows,
        more: all.len() - machines.len(),
        machines,
        count: if is_one { 0 } else { group.moves.len() },
        until: (!is_one).then(|| since(run, last.at)),
    }
}

/// What happened, in one sentence.
fn sentence(run: &Run, one: &Move) -> String {
    match &one.what {
        Turn::Committed(commit) => name_of_commit(commit),
        Turn::Launched => {
            let machine = one.machines.first().and_then(|machine| run.machines.get(*machine));
            let bought = machine.and_then(|machine| machine.found.bought.as_ref());
            let Some(kind) = bought.and_then(|bought| bought.machine.as_ref()) else {
                return "a machine was launched".to_owned();
            };
            let price = machine.and_then(|machine| machine.usd_per_hour);
            let price = price.map_or_else(String::new, |price| format!(", ${price} an hour"));
            let pods = match bought.map_or(0, |bought| bought.pods.len()) {
                0 => String::new(),
                pods => format!(", for {}", counted(pods, "pod")),
            };
            format!("{} in {}, {}{price}{pods}", kind.instance_type, kind.zone, kind.capacity_type)
        }
        Turn::LaunchFailed(why) | Turn::Interrupted(why) => why.clone(),
        Turn::Lost => "its machine is gone, and nobody had told it to end".to_owned(),
        Turn::Disrupted(started) => match started.nodes.len() {
            0 | 1 => started.why.clone(),
            nodes => format!("{nodes} nodes: {}", started.why),
        },
        Turn::GivenUp { code, why } => format!("{code}: {why}"),
    }
}
