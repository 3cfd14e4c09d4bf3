//! The page of a run: its figures are those of the run, its words those of `provisor why`, and nothing in it can do harm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use base64::Engine as _;
use jiff::Timestamp;
use provisor::capacity::ledger::{Account, Spent, Statement};
use provisor::capacity::recording::{Committed, Decided, Done, Event, Header, Joins, Line, Reader, Started};
use provisor::io::git::{Limits, Symlinks, read_directory};
use provisor::model::money::{Usd, UsdPerHour};
use provisor::model::name::{ClaimName, PoolName};
use provisor::model::observation::{InterruptionNotice, Observation};
use provisor::model::offering::CapacityType;
use provisor::simulator::chronicle::{Chronicle, MachineStory, Moment, Move, Peaks, Run, Turn};
use provisor::ui::metrics::Metrics;
use provisor::ui::play::{Play, script_of, scripted_policy};
use provisor::ui::report::{About, page};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::capacity::town::{Town, catalog, pod, pool, shape};
use crate::recording::{lines_in, provisor, talk, text, unbegun};

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What is embedded in a page.
fn data(page: &str) -> Value {
    let (_, rest) =
        page.split_once("<script type=\"application/json\" id=\"data\">").expect("a block of data");
    let (json, _) = rest.split_once("</script>").expect("it ends");
    serde_json::from_str(json).expect("JSON")
}

/// The built-in example: its page, its answer and its recording.
struct Shop {
    _folder: TempDir,
    page: String,
    answer: Value,
    recording: PathBuf,
}

static SHOP: LazyLock<Shop> = LazyLock::new(|| {
    let folder = TempDir::new().expect("a directory");
    let (file, recording) = (folder.path().join("run.html"), folder.path().join("run.jsonl.zst"));
    let output =
        provisor(&["simulate", "--output", "json", "--report", text(&file), "--record", text(&recording)]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    assert!(talk(&output).contains("run.html"), "{}", talk(&output));
    let answer = serde_json::from_slice(&output.stdout).expect("JSON");
    Shop { page: read(&file), answer, recording, _folder: folder }
});

fn list<'v>(value: &'v Value, key: &str) -> &'v Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no list `{key}`"))
}

fn last(value: &Value) -> f64 {
    value.as_array().and_then(|all| all.last()).and_then(Value::as_f64).expect("numbers")
}

fn amount(value: &Value) -> f64 {
    value.as_str().and_then(|text| text.parse().ok()).expect("an amount")
}

#[test]
fn the_figures_of_the_page_are_those_of_the_answer() {
    let Shop { page, answer, .. } = &*SHOP;
    let cost = &answer["cost"];
    let told = |key: &str| cost[key].as_str().expect("an amount");
    assert!(page.contains(&format!("<b>${}</b>", told("totalUsd"))), "spent");
    assert!(page.contains(&format!("<b>${}&#x2f;h</b>", told("usdPerHourAtEnd"))), "an hour");
    assert!(page.contains(&format!("id=\"total-usd\">{}</td>", told("totalUsd"))), "the sum of the table");
    let accounts = list(cost, "accounts");
    assert!(accounts.len() >= 2, "{accounts:?}");
    for account in accounts {
        let cell = |key: &str| account[key].as_str().expect("a word");
        let row = format!("<th scope=\"row\">{}</th><td>{}</td>", cell("pool"), cell("capacityType"));
        let (_, rest) = page.split_once(&row).unwrap_or_else(|| panic!("no row {row}"));
        let (rest, _) = rest.split_once("</tr>").expect("a row");
        assert!(rest.contains(&format!("<td class=\"number\">{}</td>", cell("usd"))), "{rest}");
        assert_eq!(cell("environment"), "prod");
    }
    let parts: f64 = accounts.iter().map(|account| amount(&account["usd"])).sum();
    assert!((parts - amount(&cost["totalUsd"])).abs() < 1e-9, "the accounts come to the total");

    let data = data(page);
    let points = &data["points"];
    let nodes: f64 = list(points, "nodes").iter().map(last).sum();
    assert_eq!(nodes, list(answer, "nodes").len() as f64);
    assert_eq!(last(&points["waiting"]), answer["pendingPods"].as_f64().expect("a count"));
    assert_eq!(last(&points["usdPerHour"]), amount(&cost["usdPerHourAtEnd"]));
    assert_eq!(last(&points["usd"]), amount(&cost["totalUsd"]));
    let spent: Vec<f64> = list(points, "usd").iter().filter_map(Value::as_f64).collect();
    assert!(spent.windows(2).all(|pair| pair[0] <= pair[1]), "money that is spent stays spent");
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for event in list(&data, "events") {
        *kinds.entry(event["kind"].as_str().expect("a kind")).or_default() += 1;
    }
    let count = |kind: &str| answer["counts"][kind].as_u64().expect("a count");
    assert_eq!(kinds["launch"], count("Launched"));
    assert_eq!(kinds["interruption"], count("SpotWarning"));
    // The first commit came into force too.
    assert_eq!(kinds["commit"], count("Commit") + 1);
    assert!(kinds["drift"] > 0 && kinds["consolidation"] > 0, "{kinds:?}");
}

#[test]
fn the_page_says_that_it_is_simulated_and_how_it_is_made_again() {
    let page = &SHOP.page;
    assert!(page.contains("<title>Simulated run of prod</title>"));
    assert!(page.contains("<strong>Simulated.</strong> Nothing on this page ever happened"));
    assert!(page.contains("<code>provisor simulate --seed 7</code>"));
    assert!(page.contains("stand in for those of ap-northeast-2"), "whose prices they are");
    assert!(page.contains("<b>held</b> at 38m: what EC2 took back is replaced"), "what was expected");
}

/// What the page names is played again by a shell, and is the same run.
#[cfg(unix)]
#[test]
fn the_command_that_makes_the_page_again_plays_what_was_played() {
    let folder = TempDir::new().expect("a directory");
    let fleet = folder.path().join("it's a fleet");
    std::fs::create_dir_all(fleet.join("lab one")).expect("made");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/inflate-lab"), &fleet.join("lab one"));
    let git = |words: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(words);
        let output = command.current_dir(&fleet).output().expect("git is there");
        assert!(output.status.success(), "{}", talk(&output));
    };
    git(&["init", "--quiet", "--initial-branch", "main"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "the lab"]);
    git(&["rm", "--quiet", "-r", "."]);
    git(&["commit", "--quiet", "--allow-empty", "--message", "nothing is left"]);
    let file = folder.path().join("run.html");
    let words = ["--repo", text(&fleet), "--ref", "HEAD~1", "--path", "lab one", "--for", "10m"];
    let more = ["--limit", "files=5000", "--symlinks", "within-repo", "--seed", "5"];
    let output = provisor(&[&["simulate"], &words[..], &more, &["--report", text(&file)]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let first = read(&file);
    let (_, rest) = first.split_once("<code>provisor simulate ").expect("a command");
    let (command, _) = rest.split_once("</code>").expect("it ends");
    let command = command.replace("&#x27;", "'").replace("&#x2f;", "/").replace("&quot;", "\"");
    for word in
        ["--ref 'HEAD~1'", "--path 'lab one'", "--limit 'files=5000'", "--symlinks within-repo", "--seed 5"]
    {
        assert!(command.contains(word), "no {word} in {command}");
    }
    let again = folder.path().join("again.html");
    let program = assert_cmd::cargo::cargo_bin("provisor");
    let line = format!("\"$0\" simulate {command} --report \"$1\"");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &line, text(&program), text(&again)]).env_remove("PROVISOR_REPO");
    let output = shell.output().expect("a shell");
    assert_eq!(output.status.code(), Some(0), "{command}: {}", talk(&output));
    assert!(read(&again) == first, "another run: {command}");
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let folder = TempDir::new().expect("a directory");
    let played = |name: &str, seed: &str| {
        let file = folder.path().join(name);
        let output = provisor(&["simulate", "--seed", seed, "--report", text(&file)]);
        assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
        read(&file)
    };
    assert!(played("a.html", "7") == SHOP.page, "the same seed");
    assert!(played("b.html", "8") != SHOP.page, "another seed");
}

#[test]
fn the_reasons_of_a_node_are_those_of_why() {
    let Shop { page, recording, .. } = &*SHOP;
    let data = data(page);
    let machines = list(&data, "machines");
    for name in ["node-5e1f0003", "node-5e1f0001"] {
        let machine = machines.iter().find(|machine| machine["name"] == name).expect("it is listed");
        let rows = list(machine, "rows");
        let is = rows[0][1].as_str().expect("a text");
        let output = provisor(&["why", "node", name, "--recording", text(recording)]);
        let why = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(rows.len() >= 6, "{rows:?}");
        for row in &rows[1..] {
            let (word, words) = (row[0].as_str().expect("a word"), row[1].as_str().expect("a text"));
            assert!(why.contains(&format!("  {word:<8} {words}\n")), "{word}: {words}\nis not in\n{why}");
        }
        assert!(is.contains(name) && is.contains("pool "), "{is}");
    }
    let events = list(&data, "events");
    let drift = events.iter().find(|event| event["kind"] == "drift").expect("a node drifted");
    let words: Vec<&str> = list(drift, "rows").iter().filter_map(|row| row[0].as_str()).collect();
    assert_eq!(words, ["went", "replaced", "instead", "saves", "commit"]);
    let commit = list(drift, "rows")[4][1].as_str().expect("a text");
    assert!(commit.contains("prod: label nodes for the log collector"), "the commit in force: {commit}");
}

#[test]
fn a_recording_has_the_same_picture() {
    let folder = TempDir::new().expect("a directory");
    let file = folder.path().join("again.html");
    let output = provisor(&["replay", text(&SHOP.recording), "--report", text(&file)]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let again = read(&file);
    let (mine, theirs) = (data(&SHOP.page), data(&again));
    for key in ["start", "seconds", "series", "points", "events", "machines"] {
        assert_eq!(mine[key], theirs[key], "{key}");
    }
    assert!(
        again.contains("<strong>Simulated.</strong>"),
        "a recorded simulation is none the less simulated"
    );
    let total = SHOP.answer["cost"]["totalUsd"].as_str().expect("an amount");
    assert!(again.contains(&format!("id=\"total-usd\">{total}</td>")));
}

/// A fleet whose people write whatever they like.
fn hostile() -> TempDir {
    let folder = TempDir::new().expect("a directory");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/inflate-lab");
    copy(&example, folder.path());
    let script = folder.path().join("simulation.toml");
    let mut words = read(&script);
    words.push_str(
        "\n[[events]]\nat = \"2m\"\n[events.commit]\nmessage = '</script><script>alert(1)</script><!--<script> {{ 7 * 7 }} & \u{2028}'\n\
         files = { \"notes.txt\" = \"fleet.toml\" }\n\n[[expect]]\nat = \"3m\"\nabout = '<img src=x onerror=alert(2)>'\npending = 9\n",
    );
    std::fs::write(&script, words).expect("written");
    folder
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).expect("made");
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[test]
fn names_and_messages_are_text_and_nothing_else() {
    let fleet = hostile();
    let file = fleet.path().join("run.html");
    let output = provisor(&["simulate", "--repo", text(fleet.path()), "--report", text(&file)]);
    assert_eq!(output.status.code(), Some(1), "an expectation is broken: {}", talk(&output));
    let page = read(&file);
    assert_eq!(page.matches("<script").count(), 2, "the data and the script of the page");
    assert_eq!(page.matches("</script").count(), 2);
    assert!(!page.contains("<img") && !page.contains("<!--"));
    assert!(page.contains("&lt;img src=x onerror=alert(2)&gt;"));
    let data = data(&page);
    let told = |event: &&Value| {
        event["what"].as_str().is_some_and(|what| what.contains("</script><script>alert(1)"))
    };
    let event = list(&data, "events").iter().find(told).expect("the commit is told as it is");
    assert!(event["what"].as_str().expect("a text").contains("{{ 7 * 7 }} &"), "no template of ours");
}

/// Nothing is loaded, and nothing runs but what the page came with.
#[test]
fn the_page_needs_nothing_else_and_runs_nothing_else() {
    let page = &SHOP.page;
    let between = |start: &str, end: &str| {
        let (_, rest) = page.split_once(start).unwrap_or_else(|| panic!("no {start}"));
        rest.split_once(end).expect("it ends").0
    };
    let policy = between("http-equiv=\"Content-Security-Policy\" content=\"", "\">");
    let policy = policy.replace("&#x27;", "'").replace("&#39;", "'").replace("&#x2f;", "/");
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    let digest = |text: &str| base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text));
    assert!(policy.contains(&format!("script-src 'sha256-{}'", digest(between("<script>", "</script>")))));
    assert!(policy.contains(&format!("style-src 'sha256-{}'", digest(between("<style>", "</style>")))));
    assert!(!page.contains("querySelector('"), "no selector is made of what an address holds");
    for word in [" src=", "@import", "<link", "fetch(", "innerHTML", "onclick=", " style="] {
        assert!(!page.contains(word), "{word}");
    }
    let addresses: Vec<&str> = page.match_indices("http").map(|(at, _)| &page[at..at + 26]).collect();
    let is_known =
        |one: &&str| one.starts_with("http://www.w3.org/2000/svg") || one.starts_with("http-equiv");
    assert!(addresses.iter().all(is_known), "{addresses:?}");
}

#[test]
fn a_page_that_cannot_be_written_is_told_before_anything_is_played() {
    let folder = TempDir::new().expect("a directory");
    let missing = folder.path().join("no/such/run.html");
    for words in [vec!["simulate"], vec!["demo", "--no-wait"], vec!["replay", text(&SHOP.recording)]] {
        let output = provisor(&[words, vec!["--report", text(&missing)]].concat());
        assert_eq!(output.status.code(), Some(3), "{}", talk(&output));
        assert!(output.stdout.is_empty(), "nothing was played");
        let said = talk(&output);
        assert!(
            said.contains("no/such/run.html` cannot be written") && said.contains("make the directory"),
            "{said}"
        );
    }
    let output = provisor(&["simulate", "--report", text(folder.path())]);
    assert_eq!(output.status.code(), Some(2), "{}", talk(&output));
    assert!(talk(&output).contains("is a directory"), "{}", talk(&output));
    let output = provisor(&["simulate", "--weeks", "1", "--report", "x.html"]);
    assert_eq!(output.status.code(), Some(64), "{}", talk(&output));
}

#[test]
fn an_old_page_stays_until_the_new_one_is_whole() {
    let folder = TempDir::new().expect("a directory");
    let file = folder.path().join("run.html");
    std::fs::write(&file, "old").expect("written");
    let output = provisor(&["simulate", "--env", "nowhere", "--report", text(&file)]);
    assert_eq!(output.status.code(), Some(2), "{}", talk(&output));
    assert_eq!(read(&file), "old");
    let output = provisor(&["simulate", "--for", "1s", "--report", text(&file)]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    assert!(read(&file).starts_with("<!doctype html>"));
    let names: Vec<_> = std::fs::read_dir(folder.path()).expect("a directory").flatten().collect();
    assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
}

#[test]
fn the_demo_draws_itself_too() {
    let folder = TempDir::new().expect("a directory");
    let file = folder.path().join("demo.html");
    let output = provisor(&["demo", "--no-wait", "--output", "json", "--report", text(&file)]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut documents = lines.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let outcome = documents.find(|line| line["kind"] == "Outcome").expect("it ends");
    let total = outcome["outcome"]["cost"]["totalUsd"].as_str().expect("an amount");
    assert!(read(&file).contains(&format!("<b>${total}</b>")));
}

// ------------------------------------------------------------------------------------------------ made-up runs

fn moment(second: i64) -> Timestamp {
    Timestamp::from_second(1_772_000_000 + second).expect("a moment")
}

fn empty() -> Run {
    Run {
        environment: "prod".into(),
        is_simulated: true,
        from: moment(0),
        to: moment(0),
        accounts: Vec::new(),
        curve: Vec::new(),
        is_thinned: false,
        peaks: Peaks::default(),
        moves: Vec::new(),
        machines: Vec::new(),
        commits: Vec::new(),
        spent: Statement::default(),
        usd_per_hour: UsdPerHour::ZERO,
        notes: Vec::new(),
    }
}

#[test]
fn a_run_in_which_nothing_happens_is_a_page_too() {
    let page = page(&empty(), &About::default());
    assert!(page.contains("Nothing was bought."));
    assert_eq!(list(&data(&page), "events").len(), 0);
    assert!(!page.contains("· seed") && !page.contains("· region"), "what is not known is not told");
}

/// A week in which a node comes every minute, in so many pools.
fn week(pools: usize) -> Run {
    let accounts: Vec<Account> = (0..pools)
        .map(|pool| Account {
            pool: Some(PoolName::new(&format!("pool-{pool:02}"))),
            capacity_type: CapacityType::Spot,
        })
        .collect();
    let minutes = 7 * 24 * 60;
    let curve = (0..minutes).map(|minute| Moment {
        at: moment(minute * 60),
        machines: vec![1; pools],
        // A single minute in which many wait.
        waiting_pods: if minute == 5_000 { 777 } else { 0 },
        usd_per_hour: UsdPerHour(100_000),
        usd: Usd(minute),
    });
    let commit = Committed { id: "1234567".into(), subject: "once".into() };
    let mut moves = vec![Move { at: moment(0), what: Turn::Committed(commit.clone()), machines: Vec::new() }];
    moves.extend((0..minutes).map(|minute| Move {
        at: moment(minute * 60),
        what: Turn::Interrupted("EC2 takes the spot machine back".into()),
        machines: vec![minute as usize],
    }));
    let machines = (0..minutes).map(|minute| MachineStory {
        claim: format!("claim-{minute}"),
        found: Default::default(),
        from: Some(moment(minute * 60)),
        to: None,
        usd_per_hour: None,
    });
    let spent = Spent { usd: Usd(1), machine_seconds: 1 };
    Run {
        to: moment(minutes * 60),
        curve: curve.collect(),
        machines: machines.collect(),
        commits: vec![(moment(0), commit)],
        spent: Statement {
            accounts: accounts.iter().map(|account| (*account, spent)).collect(),
            ..Statement::default()
        },
        accounts,
        moves,
        ..empty()
    }
}

#[test]
fn a_long_run_is_thinned_and_says_so() {
    let page = page(&week(20), &About::default());
    let data = data(&page);
    let points = &data["points"];
    let at = list(points, "at");
    assert!((300..=601).contains(&at.len()), "{} points", at.len());
    assert!(list(points, "waiting").iter().any(|count| count == 777), "a peak is never thinned out");
    assert!(page.contains("The curves have a point for every"));
    let nodes = list(points, "nodes");
    assert_eq!(nodes.len(), 8, "seven pools, and all others");
    assert_eq!(nodes[7][0], 13, "all others are 13 nodes");
    let events = list(&data, "events");
    assert!(events.len() <= 1_500, "{} events", events.len());
    let told: u64 = events.iter().map(|event| event["count"].as_u64().unwrap_or(1)).sum();
    assert_eq!(told, 10_081, "every event is in one that is told");
    assert!(page.contains("There were 10081 events: those of one kind and pool within"));
    assert_eq!(list(&data, "machines").len(), 1_500);
    assert!(page.contains("There were 10080 claims: 1500 of them are listed"));
    let places = list(&events[1], "machines").iter().filter_map(Value::as_u64);
    assert!(places.max() < Some(1_500), "only nodes that are listed are linked");
    assert!(page.len() < 4_000_000, "{} bytes", page.len());
}

// ------------------------------------------------------------------------------------------------ lines of recordings

/// The page of what is recorded there.
fn drawn(recording: &Path) -> String {
    let folder = TempDir::new().expect("a directory");
    let file = folder.path().join("drawn.html");
    let output = provisor(&["replay", text(recording), "--report", text(&file)]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    read(&file)
}

#[test]
fn what_is_missing_of_a_recording_is_said() {
    let folder = TempDir::new().expect("a directory");
    let files = unbegun::recorded(folder.path());
    assert!(files.len() > 2, "{} files", files.len());
    assert!(!drawn(folder.path()).contains("missing"), "it is whole");
    let second = std::fs::read(&files[1]).expect("it is there");
    std::fs::remove_file(&files[1]).expect("deleted");
    let page = drawn(folder.path());
    assert!(page.contains(
        "Something of run one is missing before its segment 2: it is not drawn, and not in what was spent."
    ));
    assert!(!page.contains("The beginning"));
    std::fs::write(&files[1], second).expect("written");
    std::fs::remove_file(&files[0]).expect("deleted");
    let page = drawn(folder.path());
    assert!(page.contains(
        "The beginning of run one is missing: what was before its segment 1 is not drawn, and not in what was spent."
    ));
    assert!(!page.contains("Something"), "the rest is whole");
}

/// The header of a segment.
fn header(run: &str, segment: u32, joins: Joins) -> Line<Decided> {
    static FIRST: LazyLock<String> = LazyLock::new(|| lines_in(&SHOP.recording)[0].clone());
    let Ok(Some(Line::Header(header))) = Reader::default().read::<Decided>(&FIRST) else {
        panic!("a recording begins with a header")
    };
    Line::Header(Box::new(Header { run: run.into(), segment, joins, ..*header }))
}

fn seen(second: i64, what: Observation) -> Line<Decided> {
    Line::Seen { at: moment(second), what }
}

fn done(second: i64, action: Value, code: &str) -> Line<Decided> {
    let done = Done { action, code: code.into(), why: "it is so".into() };
    Line::Decided { at: moment(second), decision: Decided { actions: vec![done], ..Decided::default() } }
}

/// Two nodes, `a` and `b`, and a chronicle that saw their machines come.
fn pair() -> (Town, Chronicle) {
    let mut town = Town::new(vec![pool("web")]);
    let mut chronicle = Chronicle::default();
    chronicle.read(header("one", 0, Joins::Beginning));
    chronicle.read(seen(0, Observation::Catalog(catalog())));
    chronicle.read(seen(0, Observation::Synced));
    for name in ["a", "b"] {
        town.node_of("web", name, "m5.2xlarge", "on-demand");
        let instance = town.instance(name);
        let claim = instance.claim.expect("it has one");
        chronicle.read(seen(1, Observation::Launched { claim, instance, shortage: None }));
        chronicle.read(seen(2, Observation::Claim(town.cluster.claims[&claim].clone())));
    }
    (town, chronicle)
}

#[test]
fn a_node_that_goes_after_mere_advice_or_what_was_taken_back_is_given_back() {
    let (town, _) = pair();
    let instance = town.instance("a").provider_id;
    let claim = ClaimName::new("a-claim");
    let notice = |notice| vec![seen(5, Observation::Interruption { instance, notice })];
    let started = Started {
        method: "drift".into(),
        nodes: Vec::new(),
        claims: vec![claim],
        replacements: Vec::new(),
        savings: UsdPerHour::ZERO,
        pods: 0,
        why: "it drifted".into(),
        least: None,
        over: Vec::new(),
    };
    let starts = Decided { started: vec![started], ..Decided::default() };
    let starts = || Line::Decided { at: moment(5), decision: starts.clone() };
    let takes_back =
        || done(6, json!({ "UpdateClaim": { "claim": "a-claim", "change": {} } }), "DisruptionFailed");
    for (before, is_given_up) in [
        (vec![], true),
        (notice(InterruptionNotice::RebalanceRecommendation), true),
        (notice(InterruptionNotice::ScheduledChange), false),
        (notice(InterruptionNotice::SpotReclaim { at: moment(100) }), false),
        (vec![starts()], false),
        (vec![starts(), takes_back()], true),
        (vec![starts(), takes_back(), starts()], false),
    ] {
        let (_, mut chronicle) = pair();
        let told = format!("{before:?}");
        before.into_iter().for_each(|line| chronicle.read(line));
        for second in [10, 11] {
            chronicle.read(done(second, json!({ "DeleteClaim": { "claim": "a-claim" } }), "Expired"));
        }
        let run = chronicle.finish(None).expect("a run");
        let is_it = |one: &&Move| matches!(&one.what, Turn::GivenUp { code, .. } if code == "Expired");
        assert_eq!(run.moves.iter().filter(is_it).count(), usize::from(is_given_up), "{told}");
    }
}

#[test]
fn machines_that_ended_between_two_lives_do_not_run_on() {
    for joins in [Joins::Beginning, Joins::Gap("the disk was full".into())] {
        let (town, mut chronicle) = pair();
        chronicle.read(header("two", 1, joins));
        let claim = |name: &str| town.cluster.claims[&ClaimName::new(name)].clone();
        chronicle.read(seen(600, Observation::Claim(claim("b-claim"))));
        chronicle.read(seen(601, Observation::Synced));
        // What comes later is news like any other.
        chronicle.read(seen(700, Observation::Synced));
        let run = chronicle.finish(Some(moment(900))).expect("a run");
        let lived: Vec<_> =
            run.machines.iter().map(|one| (one.claim.as_str(), one.to, one.found.is_gone)).collect();
        assert_eq!(lived, [("a-claim", Some(moment(601)), true), ("b-claim", None, false)]);
    }
    let (_, mut chronicle) = pair();
    chronicle.read(header("one", 1, Joins::Previous));
    chronicle.read(seen(601, Observation::Synced));
    let run = chronicle.finish(None).expect("a run");
    assert!(run.machines.iter().all(|one| one.to.is_none()), "the same life has missed nothing");
}

/// Of a run with very many changes a part is kept while it is read: the peaks are exact, and so is what was spent.
#[test]
fn of_a_run_with_very_many_changes_a_part_is_kept() {
    let (_, mut chronicle) = pair();
    let waits = |name: &str| Observation::Pod(Arc::new(pod(name, None, shape("web", "100m"))));
    let goes = |name: &str| Observation::PodGone(pod(name, None, shape("web", "100m")).key);
    for second in 10..30_010 {
        chronicle.read(seen(second, if second % 2 == 0 { waits("p") } else { goes("p") }));
        for name in ["q", "r"] {
            match second {
                17_776 => chronicle.read(seen(second, waits(name))),
                17_777 => chronicle.read(seen(second, goes(name))),
                _ => {}
            }
        }
    }
    let run = chronicle.finish(Some(moment(40_000))).expect("a run");
    assert!(run.is_thinned);
    assert!((4_000..10_000).contains(&run.curve.len()), "{} moments", run.curve.len());
    assert_eq!(run.peaks.waiting_pods, Some((moment(17_776), 3)));
    assert_eq!(run.peaks.machines.map(|(_, most)| most), Some(2));
    assert!(run.curve.iter().any(|one| one.waiting_pods == 3), "a peak stays in the curve");
    assert!(run.curve.windows(2).all(|pair| pair[0].at <= pair[1].at), "in order");
    for one in run.curve.iter().filter(|one| one.at > moment(1)) {
        let each = UsdPerHour(384_000).over(one.at.duration_since(moment(0)));
        assert_eq!((one.usd, one.machines.as_slice()), (each + each, &[2][..]), "at {}", one.at);
    }
    let last = run.curve.last().expect("it has an end");
    assert_eq!((last.at, last.waiting_pods, last.usd), (moment(40_000), 0, run.spent.total_usd));
    assert!(page(&run, &About::default()).contains("The curves have a point for every"));
}

// ------------------------------------------------------------------------------------------------ one ledger

/// The bill of the simulated cloud, the ledger of the reconciler and the counters of monitoring come to the same.
#[test]
fn the_cloud_the_answer_and_the_metrics_count_the_same_money() {
    for name in ["inflate-lab", "spot-fallback", "gpu-studio"] {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
        let repository = read_directory(&place, &Limits::default(), Symlinks::Refused).expect("a fleet");
        let script = script_of(&repository, None).unwrap_or_else(|_| panic!("{name}")).script;
        let mut play = Play::new(repository.clone(), script, Some(3), scripted_policy()).expect("a play");
        let metrics = Arc::new(Mutex::new(Metrics::new()));
        let told = metrics.clone();
        play.reconciler.listen(move |event| {
            let metrics = told.lock().expect("one thread");
            match event {
                Event::Seen { at, what } => metrics.see(*at, what),
                Event::Decided { at, decision } => metrics.decided(*at, decision),
                Event::Committed { .. } => {}
            }
        });
        assert!(play.take_commit(repository).is_ok(), "{name}");
        while let Some(commit) = play.run_to_commit(|_, _| {}) {
            let repository = play.committed(&commit).expect("its files are there");
            assert!(play.take_commit(repository).is_ok(), "{name}");
        }
        let (spent, bill) = (play.reconciler.spent(), play.reconciler.cluster().world().bill());
        assert!(spent.total_usd > Usd(0), "{name}: something was bought");
        assert_eq!(spent, bill, "{name}");
        assert_eq!(play.reconciler.usd_per_hour(), play.reconciler.cluster().world().cloud().price_now());
        let served = metrics.lock().expect("one thread").text(play.reconciler.now());
        for (account, Spent { usd, machine_seconds }) in &spent.accounts {
            let pool = account.pool.expect("it has one");
            let labels = format!(
                "{{nodepool=\"{pool}\",environment=\"\",capacity_type=\"{}\"}}",
                account.capacity_type
            );
            let line = format!("karpenter_nodepools_spent_usd_total{labels} {:?}\n", usd.0 as f64 / 1e6);
            assert!(served.contains(&line), "{name}: no {line}");
            let line =
                format!("karpenter_nodepools_machine_seconds_total{labels} {:?}\n", *machine_seconds as f64);
            assert!(served.contains(&line), "{name}: no {line}");
        }
    }
}
