//! Keeps the map true: who may use whom, what the pure half may not touch, and that every path on the map exists.
//!
//! Sources are read as words, without comments and string contents, so a sentence about the clock is no clock. Every rule
//! says what was found, where, and what to do instead.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The modules in reading order, and whom each may use besides itself.
const TABLE: [(&str, &[&str]); 9] = [
    ("model", &[]),
    ("api", &["model"]),
    ("gitops", &["api", "model"]),
    ("capacity", &["model"]),
    ("simulator", &["capacity", "model"]),
    ("review", &["gitops", "simulator", "model"]),
    ("io", &["api", "model"]),
    ("controllers", &["io", "gitops", "capacity", "model"]),
    ("ui", &["model", "api", "gitops", "capacity", "simulator", "review", "io", "controllers"]),
];

/// Values in, values out: the half of the program that can be printed, simulated, replayed and reviewed.
const PURE: [&str; 6] = ["model", "api", "gitops", "capacity", "simulator", "review"];

/// The one place that lets the simulated cluster, or its cloud alone, stand where a real one would.
const SIMULATED_CLUSTER: &str = "io/cloud/simulated";

/// What the pure half may not touch: a run of words in a path, what touching it means, and what to do instead.
///
/// Words can be renamed. What reads a clock or chance under another name is found by Clippy, which resolves names (`clippy.toml`).
const BANS: [(&[&str], &str, &str); 26] = [
    (&["async"], "waits", "decisions never wait, return an Action"),
    (&["await"], "waits", "decisions never wait, return an Action"),
    (&["std", "fs"], "touches files", "pass the contents in"),
    (
        &["std", "path"],
        "leads to files, and a path can be asked whether it exists",
        "names of files are texts here",
    ),
    (&["std", "env"], "reads the environment", "pass the setting in"),
    (&["std", "net"], "touches the network", "take Observations, return Actions"),
    (&["std", "thread"], "starts or stops threads", "decisions are one computation"),
    (&["std", "process"], "starts or ends processes", "return the result to whoever asked"),
    (&["std", "io", "stdin"], "reads the terminal", "pass the text in"),
    (&["std", "io", "stdout"], "writes to the terminal", "return the text"),
    (&["std", "io", "stderr"], "writes to the terminal", "return the text"),
    (&["SystemTime"], "reads the clock", "pass the time in"),
    (&["Instant"], "reads the clock", "pass the time in"),
    (&["Timestamp", "now"], "reads the clock", "pass the time in"),
    (&["Zoned", "now"], "reads the clock", "pass the time in"),
    (&["TimeZone", "system"], "reads the machine's zone", "zones are named in the strategy"),
    (&["RandomState"], "draws unseeded chance", "use an ordered map, or `model::hash`"),
    (&["rand", "rng"], "draws unseeded chance", "pass a seeded generator in"),
    (&["thread_rng"], "draws unseeded chance", "pass a seeded generator in"),
    (&["OsRng"], "draws unseeded chance", "pass a seeded generator in"),
    (&["from_os_rng"], "draws unseeded chance", "pass a seeded generator in"),
    (&["println!"], "prints", "return the text"),
    (&["print!"], "prints", "return the text"),
    (&["eprintln!"], "prints", "return the text"),
    (&["eprint!"], "prints", "return the text"),
    (&["dbg!"], "prints", "return the text"),
];

/// The crates of others that the pure half may use: they compute, and touch nothing.
const PURE_CRATES: [&str; 19] = [
    "base64",
    "cel",
    "croner",
    "fixedbitset",
    "granit_parser",
    "indexmap",
    "jiff",
    "minijinja",
    "rand_chacha",
    "schemars",
    "serde",
    "serde_json",
    "serde_saphyr",
    "sha2",
    "similar",
    "stacker",
    "strsim",
    "thiserror",
    "toml",
];

const LINES_MAX: usize = 900;
const VAGUE_NAMES: [&str; 8] = ["util", "utils", "helper", "helpers", "common", "misc", "shared", "stuff"];

#[test]
fn modules_use_only_what_stands_above_them() {
    expect_silence(sources("src").iter().flat_map(|(path, text)| judge_uses(path, text)));
}

#[test]
fn the_pure_half_touches_nothing() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a package has a manifest");
    let crates = dependencies(&manifest);
    assert!(
        PURE_CRATES.iter().all(|pure| crates.contains(*pure)),
        "{PURE_CRATES:?} has one that is not in {crates:?}"
    );
    expect_silence(sources("src").iter().flat_map(|(path, text)| judge_purity(path, text, &crates)));
}

#[test]
fn files_are_small_and_named_for_an_idea() {
    let everywhere = ["src", "tests"].map(sources).into_iter().flatten();
    expect_silence(everywhere.flat_map(|(path, text)| judge_shape(&path, &text)));
}

#[test]
fn every_path_on_the_map_exists_and_every_module_is_on_it() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md"))
        .expect("ARCHITECTURE.md is the map of this repository");
    let modules = TABLE.map(|(module, _)| module);
    expect_silence(judge_map(&map, &all_paths(), &modules));
}

#[test]
fn the_table_lists_exactly_the_modules_there_are() {
    let listed: BTreeSet<&str> = TABLE.iter().map(|(module, _)| *module).collect();
    let found: BTreeSet<String> = sources("src")
        .keys()
        .filter_map(|path| path.split('/').next())
        .map(|name| name.trim_end_matches(".rs").to_owned())
        .filter(|name| name != "lib" && name != "main")
        .collect();
    assert!(listed.iter().eq(found.iter()), "src has {found:?}; the table above knows {listed:?}");
}

// -------------------------------------------------------------------------------------------------------- the rules

/// Uses of modules the table does not grant, one sentence each. Paths are below `src`.
fn judge_uses(path: &str, text: &str) -> Vec<String> {
    let place: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let Some((module, allowed)) = TABLE.iter().find(|(module, _)| *module == place[0]) else {
        return Vec::new();
    };
    let depth = if place.last() == Some(&"mod") { place.len() - 1 } else { place.len() };
    let mut complaints = BTreeMap::new();
    for Mention { words, line } in mentions(text) {
        let climbed = words.iter().take_while(|word| **word == "super").count();
        let inner = match words.first() {
            Some(&"crate") => &words[1..],
            Some(&"super") if climbed >= depth => &words[climbed..],
            _ => continue,
        };
        let Some(used) = inner.first() else { continue };
        if *used == "*" {
            complaints
                .entry("*")
                .or_insert(format!("`{path}:{line}` uses the whole crate: name what it needs"));
        }
        let is_ours = TABLE.iter().any(|(module, _)| module == used);
        let wraps_world = path.starts_with(SIMULATED_CLUSTER) && *used == "simulator";
        if !is_ours || used == module || allowed.contains(used) || wraps_world {
            continue;
        }
        complaints.entry(used).or_insert_with(|| {
            let reason = if PURE.contains(module) && !PURE.contains(used) {
                "decisions are pure, pass the value in".to_owned()
            } else if allowed.is_empty() {
                format!("`{module}` may use nothing of ours")
            } else {
                format!("`{module}` may use only {}", allowed.join(", "))
            };
            format!("`{path}:{line}` uses `{used}`: {reason}")
        });
    }
    complaints.into_values().collect()
}

/// Effects in a file of the pure half, and crates that have some. Its tests are held to the same.
fn judge_purity(path: &str, text: &str, crates: &BTreeSet<String>) -> Vec<String> {
    if !path.split('/').next().is_some_and(|module| PURE.contains(&module.trim_end_matches(".rs"))) {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for Mention { words, line } in mentions(text) {
        let ban = BANS.iter().find(|(banned, ..)| words.windows(banned.len()).any(|run| run == *banned));
        if let Some((banned, meaning, remedy)) = ban {
            complaints.push(format!("`{path}:{line}` {meaning} (`{}`): {remedy}", banned.join("::")));
        } else if words.len() > 1 && crates.contains(words[0]) && !PURE_CRATES.contains(&words[0]) {
            let remedy = "take Observations, return Actions; a crate that only computes is added to the list";
            complaints.push(format!("`{path}:{line}` uses `{}`, which may have effects: {remedy}", words[0]));
        } else if words == ["std", "*"] {
            complaints.push(format!("`{path}:{line}` uses all of `std`: name what it needs"));
        }
    }
    complaints
}

/// The crates that the program depends on, as its source calls them.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let names = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name.replace('-', "_")).collect()
}

fn judge_shape(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        complaints
            .push(format!("`{path}` has {lines} lines: it holds a second idea, give that its own file"));
    }
    if let Some(name) = path.trim_end_matches(".rs").split('/').find(|name| VAGUE_NAMES.contains(name)) {
        complaints.push(format!("`{path}` is called `{name}`: name it for the idea, or put it on the type"));
    }
    complaints
}

/// Dead paths on the map, and modules missing from it. `existing` holds files and folders, relative to the repository.
fn judge_map(map: &str, existing: &BTreeSet<String>, modules: &[&str]) -> Vec<String> {
    let named = paths_on_map(map);
    let exists = |path: &str| {
        let below_src = format!("src/{path}");
        // A bare file name may stand anywhere: the text around it says where.
        let is_bare_file = !path.contains('/') && path.contains('.');
        let ending = format!("/{path}");
        existing.contains(path)
            || existing.contains(&below_src)
            || (is_bare_file && existing.iter().any(|file| file.ends_with(&ending)))
    };
    let mut complaints: Vec<String> = named
        .iter()
        .filter(|path| !exists(path))
        .map(|path| format!("ARCHITECTURE.md names `{path}`, which does not exist"))
        .collect();
    for module in modules {
        if !named.iter().any(|path| path == module || *path == format!("src/{module}")) {
            complaints.push(format!("ARCHITECTURE.md says nothing about `src/{module}/`"));
        }
    }
    complaints
}

// ---------------------------------------------------------------------------------------------------- reading a map

/// All that looks like a path: in backquotes, in links, and in drawn trees, where the drawing gives the folder.
fn paths_on_map(map: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_fenced = false;
    let mut branch: Vec<String> = Vec::new();
    for line in map.lines() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
            branch.clear();
        } else if is_fenced {
            found.extend(paths_in_tree_line(line, &mut branch));
        } else {
            let spans = line.split('`').skip(1).step_by(2).filter(|span| looks_like_path(span));
            let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let links = links.filter(|link| !link.contains(':') && !link.starts_with('#'));
            let paths = spans.chain(links).map(|path| path.split('#').next().unwrap_or_default());
            found.extend(paths.map(|path| path.trim_end_matches('/').to_owned()));
        }
    }
    found
}

/// The folder or the files one line of a drawn tree begins with; `branch` is where the lines before have led.
fn paths_in_tree_line(line: &str, branch: &mut Vec<String>) -> Vec<String> {
    let drawn = |letter: &char| " │├└─".contains(*letter);
    let Some(content) = line.char_indices().find(|(_, letter)| !drawn(letter)) else { return Vec::new() };
    if !line.contains(['│', '├', '└']) {
        return Vec::new();
    }
    branch.truncate((line.chars().take_while(drawn).count() / 4).saturating_sub(1));
    let place = |name: &str| branch.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join("/");
    let mut words = line[content.0..].split_whitespace();
    match words.clone().next().and_then(|word| word.strip_suffix('/')) {
        Some(folder) => {
            let path = place(folder);
            branch.push(folder.to_owned());
            vec![path]
        }
        None => words.by_ref().take_while(|word| has_extension(word)).map(place).collect(),
    }
}

fn looks_like_path(span: &str) -> bool {
    let is_plain = span.chars().all(|letter| letter.is_ascii_alphanumeric() || "._/-".contains(letter));
    let first = span.split('/').next().unwrap_or_default();
    let is_label = first.contains('.') && !first.starts_with('.');
    let is_module = TABLE.iter().any(|(module, _)| *module == span);
    is_plain
        && (is_module || has_extension(span) || (span.contains('/') && !is_label && !span.starts_with('/')))
}

fn has_extension(word: &str) -> bool {
    let endings = [".rs", ".md", ".toml", ".yaml", ".j2", ".csv", ".txt", ".json"];
    endings.iter().any(|ending| word.len() > ending.len() && word.ends_with(ending))
}

// ------------------------------------------------------------------------------------------------- reading a source

/// A path a source mentions, `["std", "fs", "read"]`, and where. Groups in `use` are written out; `println!` is one word.
#[derive(Debug, PartialEq, Eq)]
struct Mention<'a> {
    words: Vec<&'a str>,
    line: usize,
}

fn mentions(text: &str) -> Vec<Mention<'_>> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].0 == "use" {
            at += 1;
            read_use(&tokens, &mut at, &[], &mut found);
        } else if is_word(tokens[at].0) {
            let line = tokens[at].1;
            let mut words = vec![tokens[at].0];
            at += 1;
            while at + 1 < tokens.len() && tokens[at].0 == "::" && is_word(tokens[at + 1].0) {
                words.push(tokens[at + 1].0);
                at += 2;
            }
            if let [.., (last, _), ("!", _)] = tokens[..tokens.len().min(at + 1)] {
                words.pop();
                words.push(MACROS.iter().find(|name| name.strip_suffix('!') == Some(last)).unwrap_or(&last));
            }
            found.push(Mention { words, line });
        } else {
            at += 1;
        }
    }
    found
}

/// The macros that print; only their words carry the `!` on.
const MACROS: [&str; 5] = ["println!", "print!", "eprintln!", "eprint!", "dbg!"];

/// One branch of a `use` tree, up to the `,`, `}` or `;` that ends it.
fn read_use<'a>(
    tokens: &[(&'a str, usize)],
    at: &mut usize,
    prefix: &[&'a str],
    found: &mut Vec<Mention<'a>>,
) {
    let mut words = prefix.to_vec();
    let mut is_group = false;
    while let Some((token, line)) = tokens.get(*at).copied() {
        match token {
            "," | "}" | ";" => {
                if !is_group && words.len() > prefix.len() {
                    // A crate under another name lends all that it has to that name.
                    match words[..] {
                        ["crate" | "std"] => words.push("*"),
                        ["crate" | "std", "self"] => words[1] = "*",
                        _ => {}
                    }
                    found.push(Mention { words, line });
                }
                return;
            }
            "{" => {
                is_group = true;
                *at += 1;
                while *at < tokens.len() && tokens[*at].0 != "}" {
                    read_use(tokens, at, &words, found);
                    if tokens.get(*at).is_some_and(|(token, _)| *token != "}") {
                        *at += 1;
                    }
                }
            }
            // The new name of `x as y` is no part of the path.
            "as" => *at += 1,
            "*" => words.push(token),
            word if is_word(word) => words.push(word),
            _ => {}
        }
        *at += 1;
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_')
}

/// The words and signs of a source with their lines, without comments, strings, characters and lifetimes.
fn tokens(text: &str) -> Vec<(&str, usize)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    let mut line = 1;
    while at < bytes.len() {
        let rest = &text[at..];
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = string(rest) {
            length
        } else if rest.starts_with('\'') {
            character_or_lifetime(rest)
        } else {
            let word =
                rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
            let length = match word {
                0 if rest.starts_with("::") => 2,
                0 => rest.chars().next().map_or(1, char::len_utf8),
                word => word,
            };
            if !rest[..length].trim().is_empty() {
                found.push((&rest[..length], line));
            }
            length
        };
        line += rest[..length].matches('\n').count();
        at += length;
    }
    found
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let tail = &rest.as_bytes()[at..];
        let step = if tail.starts_with(b"/*") {
            depth += 1;
            2
        } else if tail.starts_with(b"*/") {
            depth -= 1;
            2
        } else {
            1
        };
        at += step;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The length of the string literal that starts here, if one does: plain, byte, C or raw.
fn string(rest: &str) -> Option<usize> {
    let prefix = rest.find(|letter: char| !"brc".contains(letter))?;
    let is_raw = rest[..prefix].ends_with('r');
    let hashes = if is_raw { rest[prefix..].len() - rest[prefix..].trim_start_matches('#').len() } else { 0 };
    let body = prefix + hashes + 1;
    if prefix > 2 || !rest[prefix + hashes..].starts_with('"') {
        return None;
    }
    if is_raw {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(rest[body..].find(&end).map_or(rest.len(), |found| body + found + end.len()));
    }
    let mut is_escaped = false;
    for (at, byte) in rest.bytes().enumerate().skip(body) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

fn character_or_lifetime(rest: &str) -> usize {
    let mut letters = rest.char_indices().skip(1);
    match (letters.next(), letters.next()) {
        (Some((_, '\\')), Some((escaped, letter))) => {
            let after = escaped + letter.len_utf8();
            rest[after..].find('\'').map_or(rest.len(), |found| after + found + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

// ---------------------------------------------------------------------------------------------------- the real files

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Rust files below `folder`, by their path in it.
fn sources(folder: &str) -> BTreeMap<String, String> {
    let prefix = format!("{folder}/");
    let files = all_paths().into_iter().filter(|path| path.ends_with(".rs"));
    files
        .filter_map(|path| {
            let text = fs::read_to_string(root().join(&path)).expect("sources are text");
            Some((path.strip_prefix(&prefix)?.to_owned(), text))
        })
        .collect()
}

/// Every file and folder of the repository, but what is built or hidden by git.
fn all_paths() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![String::new()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("folders can be listed").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if folder.is_empty() && (name == "target" || name == ".git") {
                continue;
            }
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

fn expect_silence(complaints: impl IntoIterator<Item = String>) {
    let complaints: Vec<String> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

// ------------------------------------------------------------------------------------------------ the rules, checked

/// Cargo finds tests by where they are, `make test` by their names.
#[test]
fn make_test_runs_every_test_there_is() {
    let script = fs::read_to_string(root().join("tests/all")).expect("`make test` is a script");
    let named: BTreeSet<&str> =
        script.split("--test ").skip(1).filter_map(|rest| rest.split([' ', ')', '\n']).next()).collect();
    let of_path =
        |path: &String| path.strip_suffix("/main.rs").or_else(|| path.strip_suffix(".rs")).map(str::to_owned);
    let are_one_level_deep = |name: &String| !name.contains('/');
    let found: BTreeSet<String> =
        sources("tests").keys().filter_map(of_path).filter(are_one_level_deep).collect();
    assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), named);
}

#[test]
fn a_decision_that_uses_the_outside_world_is_reported() {
    assert_eq!(
        judge_uses("capacity/termination.rs", "use crate::model::pod::Pod;\nuse crate::io::git;\n"),
        ["`capacity/termination.rs:2` uses `io`: decisions are pure, pass the value in"]
    );
}

#[test]
fn a_module_that_uses_one_below_it_is_reported() {
    assert_eq!(
        judge_uses("model/pod.rs", "fn f() { crate::capacity::engine::run() }"),
        ["`model/pod.rs:1` uses `capacity`: `model` may use nothing of ours"]
    );
    assert_eq!(
        judge_uses("controllers/sync.rs", "use crate::{model::pod, ui as screen};"),
        ["`controllers/sync.rs:1` uses `ui`: `controllers` may use only io, gitops, capacity, model"]
    );
}

#[test]
fn climbing_out_of_a_module_is_seen_through() {
    let climbing = "use super::super::io;";
    assert_eq!(judge_uses("capacity/engine.rs", climbing).len(), 1);
    assert_eq!(judge_uses("capacity/disruption/drift.rs", climbing).len(), 0);
    assert_eq!(judge_uses("capacity/mod.rs", "use super::io;").len(), 1);
    assert_eq!(judge_uses("capacity/mod.rs", "use crate::*;").len(), 1);
    assert_eq!(judge_uses("capacity/mod.rs", "use crate as c;").len(), 1);
}

#[test]
fn only_one_file_wraps_the_simulated_cluster() {
    let wrapping = "use crate::simulator::world::World;";
    assert_eq!(judge_uses("io/cloud/simulated.rs", wrapping), Vec::<String>::new());
    assert_eq!(judge_uses("io/cloud/mod.rs", wrapping).len(), 1);
}

#[test]
fn a_pure_module_that_reads_the_clock_is_reported() {
    assert_eq!(
        judge_purity("capacity/engine.rs", "fn f() {\n    let now = jiff::Timestamp::now();\n}", &[].into()),
        ["`capacity/engine.rs:2` reads the clock (`Timestamp::now`): pass the time in"]
    );
    assert!(judge_purity("io/clock.rs", "fn f() { jiff::Timestamp::now(); }", &[].into()).is_empty());
}

#[test]
fn every_other_effect_in_a_pure_module_is_reported() {
    let effects = [
        "async fn f() {}",
        "fn f() { g().await }",
        "use tokio::sync::mpsc;",
        "use std::{fmt, fs, time::Instant as Clock};",
        "fn f() { ::std::env::var(\"HOME\"); }",
        "use std::{collections::{BTreeMap, BTreeSet}, process::Command};",
        "use aws_sdk_ec2::Client;",
        "use kube::client::Client as C;",
        "fn f() { reqwest::blocking::get(\"http://x\"); }",
        "use std as s;",
        "use std::{self as s, fmt};",
        "fn f(path: &std::path::Path) -> bool { path.exists() }",
        "fn f() { jiff::tz::TimeZone::system(); }",
        "use std::collections::hash_map::RandomState;",
        "fn f() { dbg!(1); }",
        "fn f() { let rng = rand::rng(); }",
        "fn f() { ChaCha8Rng::from_os_rng(); }",
        "fn f() { println!(\"hello\"); }",
        "#[cfg(test)]\nmod tests {\n    use std::thread;\n}",
    ];
    for effect in effects {
        let crates = ["tokio", "aws_sdk_ec2", "kube", "reqwest"].map(String::from).into();
        assert!(!judge_purity("simulator/world.rs", effect, &crates).is_empty(), "{effect} went unseen");
    }
}

#[test]
fn talk_of_effects_is_no_effect() {
    let talk = r##"
        //! Never calls Timestamp::now. /* nor std::fs */
        /* nor /* ever */ tokio */
        const TALK: &str = "std::env \" crate::io";
        const RAW: &str = r#"std::net " crate::ui"#;
        const QUOTE: char = '"';
        const BYTES: &[u8] = b"println!";
        fn f<'a>(now: &'a Timestamp) -> char { '\'' }
        pub(crate) fn print(asynchronous: bool) { writeln!(out, "x") }
    "##;
    let crates = ["tokio".to_owned()].into();
    assert_eq!(judge_purity("model/time.rs", talk, &crates), Vec::<String>::new());
    assert_eq!(judge_uses("model/time.rs", talk), Vec::<String>::new());
}

#[test]
fn long_and_vaguely_named_files_are_reported() {
    assert_eq!(judge_shape("model/pod.rs", &"\n".repeat(900)), Vec::<String>::new());
    assert_eq!(judge_shape("model/pod.rs", &"\n".repeat(901)).len(), 1);
    assert_eq!(judge_shape("model/utils.rs", "").len(), 1);
    assert_eq!(judge_shape("io/common/retry.rs", "").len(), 1);
}

#[test]
fn dead_paths_and_missing_modules_on_the_map_are_reported() {
    let existing = ["src", "src/model", "src/model/pod.rs", "docs", "README.md"].map(String::from).into();
    let map =
        "`model` and `model/pod.rs`, [docs](docs/), `pod.rs`, `karpenter.sh/v1`, `a b/c`, <https://x.y/z>";
    assert_eq!(judge_map(map, &existing, &["model"]), Vec::<String>::new());
    assert_eq!(
        judge_map("see `src/model/node.rs` and [this](gone.md)", &existing, &["model"]),
        [
            "ARCHITECTURE.md names `gone.md`, which does not exist",
            "ARCHITECTURE.md names `src/model/node.rs`, which does not exist",
            "ARCHITECTURE.md says nothing about `src/model/`",
        ]
    );
}

#[test]
fn trees_on_the_map_are_read_as_drawn() {
    let map = "```text\nprovisor/\n├── README.md     start here\n└── src/\n    ├── main.rs   a/b\n    ├── model/    words\n    │   ├── pod.rs  node.rs\n    │   └── action.rs   what (it) may do\n    └── io/   kube/ in it comes later\n```\n";
    let expected = [
        "README.md",
        "src",
        "src/io",
        "src/main.rs",
        "src/model",
        "src/model/action.rs",
        "src/model/node.rs",
        "src/model/pod.rs",
    ];
    assert!(paths_on_map(map).iter().eq(expected.iter()), "{:?}", paths_on_map(map));
}
