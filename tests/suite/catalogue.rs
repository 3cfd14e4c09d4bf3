//! The catalogue of behaviours: every row of the specifications, and the tests that prove it.
//!
//! A test says which rows it proves, by its name (`git_004_commit_wins`) or by a doc line (`Rows: GIT-004, GIT-005`); a
//! scenario says so in a line `# Rows: SCH-001`. The tables in `tests/catalogue/` are the index of that, so they are checked
//! in both directions and rewritten by `UPDATE=1 cargo test catalogue`. Titles and the reasons of rows that do not apply are
//! written by people; status and proof follow from the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// One table of the catalogue: its file, the prefix of its rows, and what they are about.
struct Area {
    file: &'static str,
    prefix: &'static str,
    about: &'static str,
}

const AREAS: [Area; 12] = [
    Area { file: "scheduling", prefix: "SCH", about: "which pod goes where, and what is bought for it" },
    Area { file: "disruption", prefix: "DIS", about: "which node may go, when, and in whose place" },
    Area { file: "lifecycle", prefix: "LIF", about: "a claim from launch to a working node" },
    Area { file: "termination", prefix: "TER", about: "draining, deleting and repairing nodes" },
    Area {
        file: "aws",
        prefix: "AWS",
        about: "node classes, images, instance types, launching, interruption",
    },
    Area { file: "observability", prefix: "OBS", about: "settings, metrics, events, readiness" },
    Area { file: "api", prefix: "API", about: "objects, their defaults and their validation" },
    Area { file: "git", prefix: "GIT", about: "repositories, references, fetching, trust" },
    Area { file: "rendering", prefix: "REN", about: "strategies and templates into objects" },
    Area { file: "sync", prefix: "SYN", about: "diff, apply, prune, health, operations" },
    Area { file: "review", prefix: "REV", about: "what a pull request will cost and move" },
    Area {
        file: "weaknesses",
        prefix: "WEA",
        about: "what Karpenter's scheduler is known to do badly, done better or left so for a reason",
    },
];

const TITLE_CHARS_MAX: usize = 120;
const PROVEN: &str = "proven";
const NOT_YET: &str = "not yet";
const NOT_APPLICABLE: &str = "not applicable";

/// One line of a table. `proof` holds the names of the tests, or the reason why the row does not apply.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Row {
    id: String,
    title: String,
    status: String,
    proof: String,
}

/// Which tests claim to prove which row: test names, and scenario files as `scenarios/…/name.yaml`.
type Proofs = BTreeMap<String, BTreeSet<String>>;

#[test]
fn catalogue_knows_every_row_and_every_proof() {
    let specification = specification_ids();
    let proofs = proofs_in_the_source_tree();
    let mut complaints = Vec::new();
    let mut rows = Vec::new();
    for area in &AREAS {
        let path = root().join(format!("tests/catalogue/{}.csv", area.file));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut table = match parse_table(&text) {
            Ok(table) => table,
            Err(error) => {
                complaints.push(format!("{}.csv: {error}", area.file));
                continue;
            }
        };
        if is_updating() {
            table = refresh(table, &proofs);
            fs::write(&path, print_table(&table)).expect("the catalogue is writable");
        }
        complaints.extend(judge(area, &table, &specification, &proofs));
        rows.extend(table);
    }
    complaints.extend(strangers(&proofs, &specification));
    assert!(
        complaints.is_empty(),
        "{}\n\nTests decide status and proof: `UPDATE=1 cargo test catalogue` writes them into the tables.",
        complaints.join("\n")
    );

    let path = root().join("docs/reference/catalogue.md");
    let page = print_summary(&rows);
    if is_updating() {
        fs::create_dir_all(path.parent().expect("a file stands in a folder")).expect("docs are writable");
        fs::write(&path, &page).expect("docs are writable");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/catalogue.md is stale: `UPDATE=1 cargo test catalogue` rewrites it"
    );
}

// ---------------------------------------------------------------------------------------------------- the judgement

/// Everything wrong with one table, as sentences.
fn judge(area: &Area, rows: &[Row], specification: &BTreeSet<String>, proofs: &Proofs) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut known = BTreeSet::new();
    let mut previous = "";
    for Row { id, title, status, proof } in rows {
        if row_prefix(id) != Some(area.prefix) {
            complaints
                .push(format!("{id}: not an id of {}.csv, those look like {}-001", area.file, area.prefix));
        } else if !specification.contains(id) {
            complaints.push(format!("{id}: no specification has this row"));
        }
        if !known.insert(id.clone()) {
            complaints.push(format!("{id}: listed twice"));
        } else if id.as_str() < previous {
            complaints.push(format!("{id}: stands after {previous}; rows are in order"));
        }
        previous = id;
        if title.trim().is_empty() || title.chars().count() > TITLE_CHARS_MAX {
            complaints.push(format!("{id}: a title has 1 to {TITLE_CHARS_MAX} characters"));
        }

        let named: BTreeSet<String> = proof.split_whitespace().map(str::to_owned).collect();
        let claiming = proofs.get(id).cloned().unwrap_or_default();
        match status.as_str() {
            PROVEN => {
                if named.is_empty() {
                    complaints.push(format!("{id}: proven, but by no test"));
                }
                for name in named.difference(&claiming) {
                    complaints.push(format!("{id}: proven by `{name}`, but no such test claims this row"));
                }
                for name in claiming.difference(&named) {
                    complaints.push(format!("{id}: `{name}` proves it too, and the table does not say so"));
                }
            }
            NOT_YET => {
                if !named.is_empty() {
                    complaints.push(format!("{id}: not yet proven, so its proof is empty"));
                }
                for name in &claiming {
                    complaints.push(format!("{id}: called not yet, but `{name}` proves it"));
                }
            }
            NOT_APPLICABLE => {
                if named.is_empty() {
                    complaints.push(format!("{id}: not applicable, but no reason is given"));
                }
                for name in &claiming {
                    complaints.push(format!("{id}: called not applicable, but `{name}` tests it"));
                }
            }
            other => complaints.push(format!(
                "{id}: status is `{other}`; it can be `{PROVEN}`, `{NOT_YET}` or `{NOT_APPLICABLE}`"
            )),
        }
    }
    for id in specification.iter().filter(|id| row_prefix(id) == Some(area.prefix)) {
        if !known.contains(id) {
            complaints.push(format!("{id}: in the specification, missing from {}.csv", area.file));
        }
    }
    complaints
}

/// Tests that claim rows which no specification has.
fn strangers(proofs: &Proofs, specification: &BTreeSet<String>) -> Vec<String> {
    let unknown = proofs.iter().filter(|(id, _)| !specification.contains(*id));
    unknown
        .flat_map(|(id, names)| {
            names.iter().map(move |name| format!("`{name}` claims {id}, which is no row"))
        })
        .collect()
}

/// The table with status and proof as the tests have them now.
fn refresh(rows: Vec<Row>, proofs: &Proofs) -> Vec<Row> {
    let refreshed = rows.into_iter().map(|mut row| {
        if row.status != NOT_APPLICABLE {
            let names = proofs.get(&row.id).cloned().unwrap_or_default();
            row.status = if names.is_empty() { NOT_YET } else { PROVEN }.into();
            row.proof = Vec::from_iter(names).join(" ");
        }
        row
    });
    refreshed.collect()
}

// ------------------------------------------------------------------------------------------------ finding the tests

/// The tests of one Rust file with the rows each claims. Ignored tests prove nothing and are left out.
fn tests_in(source: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut tests = Vec::new();
    let mut rows = BTreeSet::new();
    let mut is_listing = false;
    let mut is_test = false;
    let mut is_ignored = false;
    for line in source.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            let doc = doc.trim();
            // The list may run on over lines that hold nothing but ids.
            let listed = doc.strip_prefix("Rows:").or_else(|| (is_listing && is_all_ids(doc)).then_some(doc));
            is_listing = listed.is_some();
            rows.extend(words(listed.unwrap_or_default()).filter(|id| row_prefix(id).is_some()));
            continue;
        }
        is_listing = false;
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            is_ignored |= line.starts_with("#[ignore");
        } else if let Some(name) = function_name(line) {
            if is_test && !is_ignored {
                rows.extend(rows_in_name(name));
                tests.push((name.to_owned(), std::mem::take(&mut rows)));
            }
            (rows, is_test, is_ignored) = (BTreeSet::new(), false, false);
        } else if line.ends_with('}') || line.ends_with(';') {
            (rows, is_test, is_ignored) = (BTreeSet::new(), false, false);
        }
    }
    tests
}

fn function_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    let (name, _) = line.strip_prefix("fn ")?.split_once(['(', '<'])?;
    Some(name.trim())
}

/// The rows a test is named for: `sch_123_sch_124_both_hold` is named for two.
fn rows_in_name(name: &str) -> Vec<String> {
    let parts: Vec<&str> = name.split('_').collect();
    let ids = parts.chunks_exact(2).map(|pair| format!("{}-{}", pair[0].to_uppercase(), pair[1]));
    ids.take_while(|id| row_prefix(id).is_some()).collect()
}

/// The rows a scenario claims in its comment lines `# Rows: …`.
fn rows_in_scenario(text: &str) -> BTreeSet<String> {
    let lists = text.lines().filter_map(|line| line.trim().strip_prefix('#')?.trim().strip_prefix("Rows:"));
    lists.flat_map(words).filter(|id| row_prefix(id).is_some()).collect()
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split([',', ' ', '.']).filter(|word| !word.is_empty()).map(str::to_owned)
}

fn is_all_ids(text: &str) -> bool {
    !text.is_empty() && words(text).all(|word| row_prefix(&word).is_some())
}

/// The prefix of a well-formed id: `SCH` of `SCH-123`. Nothing for any other text.
fn row_prefix(id: &str) -> Option<&'static str> {
    let (prefix, number) = id.split_once('-')?;
    let is_number = number.len() == 3 && number.bytes().all(|byte| byte.is_ascii_digit());
    AREAS.iter().map(|area| area.prefix).find(|known| is_number && *known == prefix)
}

// ------------------------------------------------------------------------------------------------------------- text

fn parse_table(text: &str) -> Result<Vec<Row>, csv::Error> {
    csv::Reader::from_reader(text.as_bytes()).deserialize().collect()
}

fn print_table(rows: &[Row]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).expect("a row of four texts is a line of CSV");
    }
    String::from_utf8(writer.into_inner().expect("memory does not fail")).expect("rows are text")
}

fn print_summary(rows: &[Row]) -> String {
    let mut page = String::from(
        "# Catalogue of behaviours\n\n\
         <!-- Generated by `UPDATE=1 cargo test catalogue`; edit the tables, not this page. -->\n\n\
         Every behaviour Provisor is specified to have is a row in `tests/catalogue/`, with a title and the tests that\n\
         prove it. This page counts them. A row is *proven* when a test that runs says so, *not yet* when none does, and\n\
         *not applicable* when Provisor is built in a way that leaves the question no meaning, or does otherwise on\n\
         purpose.\n\n\
         | Rows | About | Proven | Not yet | Not applicable | All |\n\
         | --- | --- | ---: | ---: | ---: | ---: |\n",
    );
    let count = |prefix: Option<&str>, status: Option<&str>| {
        let of_area = |row: &&Row| prefix.is_none() || row_prefix(&row.id) == prefix;
        rows.iter().filter(of_area).filter(|row| status.is_none_or(|status| row.status == status)).count()
    };
    let mut line = |name: String, about: &str, prefix: Option<&str>| {
        let [proven, not_yet, not_applicable] =
            [PROVEN, NOT_YET, NOT_APPLICABLE].map(|status| count(prefix, Some(status)));
        let all = count(prefix, None);
        let cells = format!("{proven} | {not_yet} | {not_applicable} | {all}");
        writeln!(page, "| {name} | {about} | {cells} |").expect("memory does not fail");
    };
    for area in &AREAS {
        let link = format!("[{}](../../tests/catalogue/{}.csv)", area.prefix, area.file);
        line(link, area.about, Some(area.prefix));
    }
    line("All".into(), "", None);

    page.push_str("\n## What does not apply, and why\n\n");
    for row in rows.iter().filter(|row| row.status == NOT_APPLICABLE) {
        writeln!(page, "- {}, {}: {}", row.id, row.title, row.proof).expect("memory does not fail");
    }
    page
}

// ---------------------------------------------------------------------------------------------------- the real files

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn is_updating() -> bool {
    std::env::var_os("UPDATE").is_some()
}

fn specification_ids() -> BTreeSet<String> {
    let text =
        fs::read_to_string(root().join("tests/catalogue/specification.txt")).expect("the list of all rows");
    text.lines().map(str::to_owned).collect()
}

fn proofs_in_the_source_tree() -> Proofs {
    let mut proofs = Proofs::new();
    for path in files(&["src", "tests"], "rs") {
        for (name, rows) in tests_in(&fs::read_to_string(&path).expect("sources are text")) {
            claim(&mut proofs, &name, rows);
        }
    }
    for path in files(&["tests/scenarios"], "yaml") {
        let name = path.strip_prefix(root().join("tests")).expect("found below tests").display().to_string();
        claim(&mut proofs, &name, rows_in_scenario(&fs::read_to_string(&path).expect("scenarios are text")));
    }
    proofs
}

fn claim(proofs: &mut Proofs, name: &str, rows: BTreeSet<String>) {
    for id in rows {
        proofs.entry(id).or_default().insert(name.to_owned());
    }
}

fn files(folders: &[&str], extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|end| end == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

// ------------------------------------------------------------------------------------------------ the check, checked

fn git() -> &'static Area {
    AREAS.iter().find(|area| area.prefix == "GIT").expect("listed above")
}

fn row(id: &str, status: &str, proof: &str) -> Row {
    Row { id: id.into(), title: "Something holds".into(), status: status.into(), proof: proof.into() }
}

fn ids(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn proofs(source: &str) -> Proofs {
    let mut proofs = Proofs::new();
    for (name, rows) in tests_in(source) {
        claim(&mut proofs, &name, rows);
    }
    proofs
}

const COMMIT_WINS: &str = "#[test]\nfn git_004_commit_wins() {}\n";

#[test]
fn a_true_table_is_left_in_peace() {
    let rows = [row("GIT-004", PROVEN, "git_004_commit_wins"), row("GIT-005", NOT_YET, "")];
    let complaints = judge(git(), &rows, &ids(&["GIT-004", "GIT-005", "SYN-001"]), &proofs(COMMIT_WINS));
    assert_eq!(complaints, Vec::<String>::new());
}

#[test]
fn a_proven_row_whose_test_is_missing_is_reported() {
    let rows = [row("GIT-004", PROVEN, "git_004_commit_wins")];
    let complaints = judge(git(), &rows, &ids(&["GIT-004"]), &proofs("fn git_004_commit_wins() {}"));
    assert_eq!(complaints, ["GIT-004: proven by `git_004_commit_wins`, but no such test claims this row"]);
}

#[test]
fn an_ignored_test_proves_nothing() {
    assert_eq!(proofs("#[test]\n#[ignore = \"slow\"]\nfn git_004_commit_wins() {}"), Proofs::new());
}

#[test]
fn an_id_missing_from_the_table_is_reported() {
    let complaints =
        judge(git(), &[row("GIT-004", NOT_YET, "")], &ids(&["GIT-004", "GIT-005"]), &Proofs::new());
    assert_eq!(complaints, ["GIT-005: in the specification, missing from git.csv"]);
}

#[test]
fn a_test_the_table_does_not_mention_is_reported() {
    let rows = [row("GIT-004", NOT_YET, "")];
    let complaints = judge(git(), &rows, &ids(&["GIT-004"]), &proofs(COMMIT_WINS));
    assert_eq!(complaints, ["GIT-004: called not yet, but `git_004_commit_wins` proves it"]);
}

#[test]
fn a_test_for_a_row_nobody_specified_is_reported() {
    let complaints = strangers(&proofs(COMMIT_WINS), &ids(&["GIT-001"]));
    assert_eq!(complaints, ["`git_004_commit_wins` claims GIT-004, which is no row"]);
}

#[test]
fn rows_that_do_not_apply_have_a_reason_and_no_tests() {
    let rows = [row("GIT-004", NOT_APPLICABLE, ""), row("GIT-005", NOT_APPLICABLE, "There are no branches.")];
    let complaints = judge(git(), &rows, &ids(&["GIT-004", "GIT-005"]), &proofs(COMMIT_WINS));
    assert_eq!(
        complaints,
        [
            "GIT-004: not applicable, but no reason is given",
            "GIT-004: called not applicable, but `git_004_commit_wins` tests it",
        ]
    );
}

#[test]
fn malformed_rows_are_reported() {
    let mut untitled = row("GIT-002", "maybe", "");
    untitled.title = String::new();
    let rows =
        [row("GIT-3", NOT_YET, ""), untitled, row("GIT-001", NOT_YET, ""), row("GIT-001", NOT_YET, "")];
    let complaints = judge(git(), &rows, &ids(&["GIT-001", "GIT-002"]), &Proofs::new());
    assert_eq!(
        complaints,
        [
            "GIT-3: not an id of git.csv, those look like GIT-001",
            "GIT-002: stands after GIT-3; rows are in order",
            "GIT-002: a title has 1 to 120 characters",
            "GIT-002: status is `maybe`; it can be `proven`, `not yet` or `not applicable`",
            "GIT-001: stands after GIT-002; rows are in order",
            "GIT-001: listed twice",
        ]
    );
}

#[test]
fn updating_follows_the_tests_in_both_directions() {
    let rows = vec![
        row("GIT-004", NOT_YET, ""),
        row("GIT-005", PROVEN, "git_005_vanished"),
        row("GIT-006", NOT_APPLICABLE, "There are no tags."),
    ];
    let refreshed = refresh(rows.clone(), &proofs(COMMIT_WINS));
    assert_eq!(refreshed[0], row("GIT-004", PROVEN, "git_004_commit_wins"));
    assert_eq!(refreshed[1], row("GIT-005", NOT_YET, ""));
    assert_eq!(refreshed[2], rows[2]);
}

#[test]
fn one_test_may_prove_several_rows() {
    let by_name = "#[test]\nfn git_004_syn_010_both_hold() {}";
    let by_line = "/// Both hold.\n///\n/// Rows: GIT-004,\n/// SYN-010\n/// and more talk of GIT-001\n#[tokio::test]\nasync fn both_hold() {}";
    assert_eq!(tests_in(by_name), [("git_004_syn_010_both_hold".to_owned(), ids(&["GIT-004", "SYN-010"]))]);
    assert_eq!(tests_in(by_line), [("both_hold".to_owned(), ids(&["GIT-004", "SYN-010"]))]);
    assert_eq!(rows_in_scenario("about: x\n# Rows: SCH-001, SCH-002\n"), ids(&["SCH-001", "SCH-002"]));
}

#[test]
fn a_property_counts_as_a_test_and_plain_functions_do_not() {
    let source = "proptest! {\n    #[test]\n    fn git_005_holds(x in 0..9) {}\n}\n/// Rows: GIT-006\nstruct S;\n#[test]\nfn other() {}";
    assert_eq!(
        tests_in(source),
        [("git_005_holds".to_owned(), ids(&["GIT-005"])), ("other".to_owned(), ids(&[]))]
    );
}

#[test]
fn tables_survive_being_read_and_written() {
    let text = "id,title,status,proof\nGIT-004,\"One, two\",proven,a b\nGIT-005,Three,not yet,\n";
    assert_eq!(print_table(&parse_table(text).expect("valid")), text);
}
