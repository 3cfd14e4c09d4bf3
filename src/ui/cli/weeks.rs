//! `provisor simulate --weeks`: weeks of made-up fleets in which everything goes wrong, and whether the engine kept its promises.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::capacity::ledger::Statement;
use crate::model::count::{agreeing, counted};
use crate::model::money::Usd;
use crate::model::time::render_duration;
use crate::simulator::invariants::Promise;
use crate::simulator::shrink::shrink;
use crate::simulator::trial::{Outcome, Trial};
use crate::ui::console::{Console, Tone};
use crate::ui::exit::{Exit, Failure};
use crate::ui::progress::Progress;
use crate::ui::table::Table;

/// A trial file is a few events; more is none.
const TRIAL_BYTES_MAX: u64 = 1 << 20;
/// Broken weeks that are told one by one.
const TOLD_MAX: usize = 50;

#[derive(Debug, clap::Args)]
pub struct TrialArgs {
    /// Play so many weeks of made-up fleets with faults, one seed each, instead of a fleet
    #[arg(long, value_name = "N", conflicts_with_all = ["repo", "env", "duration", "report", "trial", "shrink"], value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    weeks: Option<u64>,
    /// Find a short list of events that breaks what the week of --seed breaks, and write it to --to
    #[arg(long, requires = "seed", conflicts_with_all = ["repo", "env", "duration", "report", "trial"])]
    shrink: bool,
    /// Play a file that --shrink wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["repo", "env", "duration", "report", "seed"])]
    trial: Option<PathBuf>,
    /// Where --shrink writes what it found, instead of trial-SEED.toml
    #[arg(long, value_name = "FILE", requires = "shrink")]
    to: Option<PathBuf>,
}

/// The answer of `simulate --weeks N`, `--shrink` and `--trial FILE` with `--output json`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrialsDocument {
    /// 1.
    pub version: u32,
    /// Always true: nothing of this happened.
    pub simulated: bool,
    /// Weeks, or shorter trials, that were played.
    pub trials: u64,
    /// The first of the seeds, which follow each other.
    pub first_seed: u64,
    /// Promises that were not kept, by seed; at most fifty.
    pub broken: Vec<BrokenDocument>,
    /// How many trials broke one.
    pub broken_trials: u64,
    /// How many of all of them broke each promise: `broken` tells of the first only.
    #[serde(skip)]
    pub broken_by_promise: BTreeMap<&'static str, u64>,
    /// How often each kind of thing happened or was done, in all trials.
    pub counts: BTreeMap<String, u64>,
    /// The most machines that ran at one time.
    pub most_machines: usize,
    pub cost: TrialsCost,
    /// A hash of all that happened and was decided. The same seeds and version give the same.
    pub trace: String,
    /// The lines that it is the hash of, if one trial was played.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// The file that --shrink wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<String>,
}

/// What was paid in all trials, in US dollars.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrialsCost {
    pub total_usd: String,
    pub by_capacity_type: BTreeMap<String, String>,
    pub machine_seconds: i64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokenDocument {
    pub seed: u64,
    /// A stable word, such as `keeps-limits`.
    pub promise: String,
    /// The promise in one sentence.
    pub says: String,
    /// How long after the start.
    pub after: String,
    pub what: String,
    /// The command that repeats it.
    pub repeat: String,
}

impl TrialArgs {
    /// Whether trials are asked for, and not a fleet.
    pub fn is_asked(&self) -> bool {
        self.weeks.is_some() || self.shrink || self.trial.is_some()
    }
}

pub fn run(args: &TrialArgs, seed: Option<u64>, console: &Console) -> Result<Exit, Failure> {
    let first = seed.unwrap_or(1);
    if let Some(path) = &args.trial {
        let trial = read(path)?;
        let again = format!("provisor simulate --trial {}", path.display());
        let mut played = Played::new(trial.seed);
        played.add(trial.seed, trial.play_traced(), true, |_| again.clone());
        return played.tell(console, None);
    }
    if args.shrink {
        return shrunk(first, args.to.clone(), console);
    }
    let weeks = args.weeks.unwrap_or(1);
    if first.checked_add(weeks).is_none() {
        return Err(Failure::usage(format!("there are no {weeks} seeds from {first} on"))
            .help("choose a smaller --seed"));
    }
    play_weeks(first, weeks, console)?.tell(console, None)
}

/// Plays the weeks of `weeks` seeds from `first` on, on as many threads as there are processors. What comes of it does not
/// depend on how many these are.
fn play_weeks(first: u64, weeks: u64, console: &Console) -> Result<Played, Failure> {
    let keeps_lines = weeks == 1;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(weeks as usize);
    let progress = Progress::start(console, "playing weeks");
    let next = AtomicU64::new(0);
    let all = Mutex::new((Played::new(first), BTreeMap::new(), 0_u64));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= weeks {
                        return;
                    }
                    let trial = Trial::drawn(first + number);
                    let outcome = if keeps_lines { trial.play_traced() } else { trial.play() };
                    let Ok(mut all) = all.lock() else { return };
                    let (played, early, done) = &mut *all;
                    early.insert(first + number, outcome);
                    *done += 1;
                    // They are added up in the order of their seeds.
                    while let Some(outcome) = early.remove(&(first + played.trials)) {
                        let seed = first + played.trials;
                        played.add(seed, outcome, keeps_lines, |seed| {
                            format!("provisor simulate --weeks 1 --seed {seed}")
                        });
                    }
                    let detail = format!("{done} of {weeks}, {} broken", played.broken_trials);
                    progress.step("weeks", &detail);
                }
            });
        }
    });
    drop(progress);
    let (played, ..) =
        all.into_inner().map_err(|_| Failure::outside("a thread that played weeks has died"))?;
    Ok(played)
}

fn shrunk(seed: u64, to: Option<PathBuf>, console: &Console) -> Result<Exit, Failure> {
    let path = to.unwrap_or_else(|| PathBuf::from(format!("trial-{seed}.toml")));
    let progress = Progress::start(console, "shrinking");
    let found = shrink(&Trial::drawn(seed), &mut |trial| trial.play().broken, &mut |trial| {
        let events = counted(trial.events.len(), "event");
        progress.step("shrinking", &format!("{events} in {} left", render_duration(trial.duration.0)));
    });
    drop(progress);
    let Some(found) = found else {
        console.notice(&format!("the week of seed {seed} breaks no promise: there is nothing to shrink"));
        return play_weeks(seed, 1, console)?.tell(console, None);
    };
    let about = format!("Seed {seed}: {}.", found.broken.promise.says());
    let trial = Trial { about, ..found.trial };
    let text = toml::to_string(&trial)
        .map_err(|error| Failure::outside("what was found cannot be written").caused_by(&error))?;
    fs::write(&path, text).map_err(|error| {
        Failure::outside(format!("{} cannot be written", path.display()))
            .caused_by(&error)
            .help("name another file with --to")
    })?;
    let again = format!("provisor simulate --trial {}", path.display());
    let mut played = Played::new(seed);
    played.add(seed, trial.play_traced(), true, |_| again.clone());
    played.tell(console, Some(path.display().to_string()))
}

fn read(path: &Path) -> Result<Trial, Failure> {
    let unreadable = |error: &std::io::Error| {
        Failure::input(format!("{} cannot be read", path.display()))
            .caused_by(error)
            .help("name a file that `provisor simulate --seed N --shrink` wrote")
    };
    let size = fs::metadata(path).map_err(|error| unreadable(&error))?.len();
    if size > TRIAL_BYTES_MAX {
        return Err(Failure::input(format!("{} is larger than a trial may be (1 MiB)", path.display())));
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    let trial: Trial = toml::from_str(&text).map_err(|error| {
        Failure::input(format!("{} is not a trial", path.display()))
            .caused_by(&error)
            .help("docs/reference/reliability.md says what a trial is made of")
    })?;
    trial.check().map_err(|what| Failure::input(format!("{}: {what}", path.display())))?;
    Ok(trial)
}

/// Trials added up in the order of their seeds.
struct Played {
    first: u64,
    trials: u64,
    broken: Vec<BrokenDocument>,
    broken_trials: u64,
    broken_by_promise: BTreeMap<&'static str, u64>,
    counts: BTreeMap<String, u64>,
    most_machines: usize,
    cost: Statement,
    trace: Sha256,
    events: Vec<String>,
}

impl Played {
    fn new(first: u64) -> Self {
        Self {
            first,
            trials: 0,
            broken: Vec::new(),
            broken_trials: 0,
            broken_by_promise: BTreeMap::new(),
            counts: BTreeMap::new(),
            most_machines: 0,
            cost: Statement::default(),
            trace: Sha256::new(),
            events: Vec::new(),
        }
    }

    fn add(&mut self, seed: u64, outcome: Outcome, keeps_lines: bool, repeat: impl Fn(u64) -> String) {
        self.trials += 1;
        self.trace.update(outcome.trace.as_bytes());
        for (kind, count) in outcome.counts {
            *self.counts.entry(kind.to_owned()).or_default() += count;
        }
        self.most_machines = self.most_machines.max(outcome.most_machines);
        self.cost.total_usd += outcome.ledger.total_usd;
        self.cost.machine_seconds += outcome.ledger.machine_seconds;
        for (kind, cost) in outcome.ledger.by_capacity_type {
            *self.cost.by_capacity_type.entry(kind).or_default() += cost;
        }
        if keeps_lines {
            self.events = outcome.lines;
        }
        let Some(broken) = outcome.broken else { return };
        self.broken_trials += 1;
        *self.broken_by_promise.entry(broken.promise.word()).or_default() += 1;
        if self.broken.len() < TOLD_MAX {
            self.broken.push(BrokenDocument {
                seed,
                promise: broken.promise.word().to_owned(),
                says: broken.promise.says().to_owned(),
                after: render_duration(broken.at.duration_since(Trial::start())),
                what: broken.what,
                repeat: repeat(seed),
            });
        }
    }

    fn tell(self, console: &Console, written: Option<String>) -> Result<Exit, Failure> {
        let exit = if self.broken.is_empty() { Exit::Done } else { Exit::No };
        let dollars = |usd: &Usd| usd.to_string();
        let kinds = self.cost.by_capacity_type.iter();
        let trace = self.trace.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let document = TrialsDocument {
            version: 1,
            simulated: true,
            trials: self.trials,
            first_seed: self.first,
            broken: self.broken,
            broken_trials: self.broken_trials,
            broken_by_promise: self.broken_by_promise,
            counts: self.counts,
            most_machines: self.most_machines,
            cost: TrialsCost {
                total_usd: dollars(&self.cost.total_usd),
                by_capacity_type: kinds.map(|(kind, usd)| (kind.to_string(), dollars(usd))).collect(),
                machine_seconds: self.cost.machine_seconds,
            },
            trace,
            events: self.events,
            written,
        };
        if console.is_json() {
            console.json(&document)?;
        } else {
            console.data(&text(&document, console))?;
        }
        Ok(exit)
    }
}

fn text(document: &TrialsDocument, console: &Console) -> String {
    let trials = usize::try_from(document.trials).unwrap_or(usize::MAX);
    let mut text = format!(
        "{} {} of made-up fleets from seed {}, up to {}\n\n",
        console.paint(Tone::Notice, "simulated:"),
        counted(trials, "trial"),
        document.first_seed,
        counted(document.most_machines, "machine"),
    );
    let mut table = Table::new(&["PROMISE", "BROKEN", "WHAT IT SAYS"]);
    for promise in Promise::ALL {
        let count = document.broken_by_promise.get(promise.word()).copied().unwrap_or_default();
        table.row([promise.to_string(), count.to_string(), promise.says().to_owned()]);
    }
    text.push_str(&table.to_string());
    for broken in &document.broken {
        text.push_str(&format!(
            "\n{} seed {} after {}: {}: {}\n  {}\n",
            console.paint(Tone::Bad, "broken"),
            broken.seed,
            broken.after,
            broken.promise,
            broken.what,
            broken.repeat
        ));
    }
    let untold = document.broken_trials - document.broken.len() as u64;
    if untold > 0 {
        text.push_str(&format!("\nand {untold} more\n"));
    }
    if let Some(written) = &document.written {
        text.push_str(&format!("\nwritten: {written}\n"));
    }
    let broken = usize::try_from(document.broken_trials).unwrap_or(usize::MAX);
    text.push_str(&format!(
        "\n{} {} broken, ${} spent in {} machine hours (simulated); trace {}\n",
        counted(broken, "trial"),
        agreeing(broken, "is", "are"),
        document.cost.total_usd,
        document.cost.machine_seconds / 3600,
        document.trace,
    ));
    text
}
