//! The `simulation.toml` of a fleet: read, and judged as the strategies are, every mistake at its place.
//!
//! Words and forms are checked against the same schema that editors use. What they speak of (workloads, zones, types,
//! environments, files) is looked up in the fleet and the catalogue, so that no event happens to nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use jiff::SignedDuration;

use crate::api::Object;
use crate::api::snapshot::{self, PODS_MAX, SnapshotError};
use crate::gitops::credential;
use crate::gitops::diagnostic::{Diagnostic, Diagnostics, Place, Source, listed};
use crate::gitops::fleet::refused;
use crate::gitops::read::{Format, document, text_of};
use crate::gitops::render::list_environments;
use crate::gitops::shape::{Shape, head};
use crate::gitops::tree::Node;
use crate::model::catalog::Catalog;
use crate::model::near::nearest;
use crate::model::repository::Repository;
use crate::model::time::{parse_duration, render_duration};
use crate::simulator::script::{Scale, Script, schema};
use crate::ui::exit::Failure;

/// Where the script of a fleet stands.
pub const SCRIPT: &str = "simulation.toml";

/// The longest play: a season. Whoever needs more plays the part that matters.
pub const DURATION_MAX: SignedDuration = SignedDuration::from_hours(90 * 24);

static SHAPE: LazyLock<Shape> = LazyLock::new(|| Shape::compile(&schema()));

/// The script of a repository, if it has one, and its warnings.
pub fn read(repository: &Repository) -> Result<(Option<Script>, Diagnostics), Diagnostics> {
    let mut found = Vec::new();
    let script = judge(repository, &mut found);
    let mut diagnostics = Diagnostics::default();
    diagnostics.extend(found);
    match diagnostics.has_errors() {
        true => Err(diagnostics.sorted()),
        false => Ok((script, diagnostics.sorted())),
    }
}

/// What a workload of the script says.
pub fn workload(repository: &Repository, path: &str) -> Result<String, Failure> {
    let Some(bytes) = repository.files.get(path) else {
        return Err(Failure::input(format!("{SCRIPT}: there is no file {path} in the repository")).help(
            format!("Add it, or correct `workloads` in {SCRIPT}: paths begin at the directory of the fleet."),
        ));
    };
    String::from_utf8(bytes.to_vec())
        .map_err(|_| Failure::input(format!("{path} is not UTF-8")).help("Save it as UTF-8."))
}

/// What to do about manifests that cannot be read.
pub const MANIFESTS: &str = "Write them as `kubectl apply` would take them.";

/// The same, with every mistake and warning pushed to `found`; `None` if there is no script, or if it cannot be read.
pub fn judge(repository: &Repository, found: &mut Vec<Diagnostic>) -> Option<Script> {
    let path: Arc<str> = SCRIPT.into();
    if let Some(refusal) = repository.refused.get(&path) {
        found.push(refused(&path, *refusal));
    }
    let source = text_of(&path, repository.files.get(&path)?, found)?;
    let before = found.len();
    let tree = document(&source, Format::Toml, found);
    credential::check(&source, tree.as_ref(), tree.is_some(), found);
    let tree = tree?;
    SHAPE.check(&tree, found);
    Judge { repository, tree: &tree, found }.judge();
    if found[before..].iter().any(Diagnostic::is_error) {
        return None;
    }
    match serde_json::from_value(tree.to_json()) {
        Ok(script) => Some(script),
        Err(error) => {
            let message = format!("the script cannot be played: {error}");
            let help = "docs/guide/simulate.md describes every word of a script";
            found.push(Diagnostic::error("PRV1901", Place::start_of(&source), message).help(help));
            None
        }
    }
}

/// What an event may do, one at a time.
const ACTS: [&str; 5] = ["scale", "reclaim", "shortage", "lose-zone", "commit"];

/// A line and a column, from 1; the file as a whole if they are not known.
fn place_at(source: &Arc<Source>, position: Option<(u32, u32)>) -> Place {
    let Some((line, column)) = position else { return Place::start_of(source) };
    let (line, column) = (line as usize, (column as usize).saturating_sub(1));
    let bytes: usize = source.line(line).chars().take(column).map(char::len_utf8).sum();
    let start = source.line_start(line) + bytes;
    Place::new(source, start..start)
}

struct Judge<'a> {
    repository: &'a Repository,
    tree: &'a Node,
    found: &'a mut Vec<Diagnostic>,
}

impl Judge<'_> {
    fn judge(&mut self) {
        self.environment();
        let catalog = self.catalog();
        let workloads = self.workloads();
        let end = self.tree.get("duration").and_then(span);
        if let Some(node) = self.tree.get("duration")
            && end.is_some_and(|end| end > DURATION_MAX)
        {
            let message = format!(
                "the duration {} is longer than a simulation may be ({})",
                node.shown(),
                render_duration(DURATION_MAX)
            );
            self.error("PRV1903", node, message, "play the hours that matter; weeks repeat themselves");
        }
        if let Some(node) = self.tree.get("duration")
            && end.is_some_and(|end| !end.is_positive())
        {
            let message = format!("in {} nothing can happen", node.shown());
            self.error("PRV1903", node, message, "write how long to play, such as `30m`");
        }
        for event in self.tree.get("events").and_then(Node::as_list).unwrap_or_default() {
            self.event(event, end, workloads.as_ref(), catalog.as_ref());
        }
        for expectation in self.tree.get("expect").and_then(Node::as_list).unwrap_or_default() {
            self.within(expectation, end, "expectation");
            if let Some(catalog) = &catalog {
                self.types(expectation.get("families"), catalog, true);
                self.zones(expectation.get("zones"), catalog);
            }
            if let Some(nodes) = expectation.get("nodes") {
                self.count(nodes);
            }
            if let Some(pending) = expectation.get("pending") {
                self.count(pending);
            }
        }
    }

    fn error(&mut self, code: &'static str, node: &Node, message: String, help: impl Into<String>) {
        self.found.push(Diagnostic::error(code, head(node), message).help(help));
    }

    fn environment(&mut self) {
        let Some(node) = self.tree.get("environment") else { return };
        let (Some(name), Ok(known)) = (node.as_text(), list_environments(self.repository)) else { return };
        let playable = || known.iter().filter(|known| !known.is_abstract).map(|known| &*known.name);
        if playable().any(|known| known == &**name) {
            return;
        }
        let message = match known.iter().any(|known| known.name == *name) {
            true => {
                format!("the environment `{name}` is abstract: it is only extended, and cannot be played")
            }
            false => format!("there is no environment `{name}`"),
        };
        let help = match nearest(name, playable()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there is {}", listed(playable())),
        };
        self.error("PRV1103", node, message, help);
    }

    fn catalog(&mut self) -> Option<Catalog> {
        let node = self.tree.get("region");
        let region = node.and_then(Node::as_text).map_or("us-east-1", |text| text);
        match Catalog::builtin(region) {
            Ok(catalog) => Some(catalog),
            Err(error) => {
                let help = error.help();
                self.error("PRV1624", node?, error.to_string(), help);
                None
            }
        }
    }

    /// The names of what can be scaled, `NAMESPACE/NAME`; `None` if not all of it could be read.
    fn workloads(&mut self) -> Option<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        let mut is_whole = true;
        let mut pods: u64 = 0;
        for node in self.tree.get("workloads").and_then(Node::as_list).unwrap_or_default() {
            let Some(path) = node.as_text() else { continue };
            let Some(bytes) = self.file(node, path) else {
                is_whole = false;
                continue;
            };
            let Some(source) = text_of(path, &bytes, self.found) else {
                is_whole = false;
                continue;
            };
            credential::check_text(&source, self.found);
            match snapshot::read(&source.text, path) {
                Ok(read) => {
                    let told = read.notices.iter().zip(&read.noticed_at).map(|(notice, at)| {
                        Diagnostic::warning("PRV1907", place_at(&source, *at), notice.clone())
                            .also("a workload of the simulation", node.place.clone())
                            .help("leave it out, or play it as a kind that is known: a Job for a CronJob")
                    });
                    self.found.extend(told);
                    for object in &read.objects {
                        if let Object::Workload(workload) = object {
                            names.insert(workload.key.to_string());
                            pods += u64::from(workload.pods);
                        }
                    }
                    if pods > u64::from(PODS_MAX) {
                        let message = format!("the workloads want more than {PODS_MAX} pods together");
                        self.error("PRV1906", node, message, "play a part of them");
                        return None;
                    }
                }
                Err(error) => {
                    is_whole = false;
                    self.manifest(&source, node, &error);
                }
            }
        }
        is_whole.then_some(names)
    }

    /// The content of a file of the repository that `node` names by its path.
    fn file(&mut self, node: &Node, path: &str) -> Option<Arc<[u8]>> {
        if let Some(bytes) = self.repository.files.get(path) {
            return Some(bytes.clone());
        }
        match self.repository.refusal_of(path) {
            Some((refused, refusal)) => {
                self.error("PRV1612", node, format!("`{refused}` {refusal}"), refusal.help());
            }
            None => {
                let known = self.repository.files.keys().map(|known| &**known);
                let help = match nearest(path, known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => {
                        "paths begin at the directory of the fleet, and have `/` between parts".to_owned()
                    }
                };
                self.error("PRV1612", node, format!("there is no file `{path}` in the fleet"), help);
            }
        }
        None
    }

    fn manifest(&mut self, source: &Arc<Source>, node: &Node, error: &SnapshotError) {
        for problem in &error.problems {
            let place = place_at(source, problem.position);
            let object = problem.object.as_ref().map(|object| format!("{object}: ")).unwrap_or_default();
            self.found.push(
                Diagnostic::error("PRV1906", place, format!("{object}{}", problem.error))
                    .also("a workload of the simulation", node.place.clone())
                    .help("write it as `kubectl apply` would take it"),
            );
        }
    }

    fn event(
        &mut self,
        event: &Node,
        end: Option<SignedDuration>,
        workloads: Option<&BTreeSet<String>>,
        catalog: Option<&Catalog>,
    ) {
        let Some(map) = event.as_map() else { return };
        let acts: Vec<_> = map.iter().filter(|(key, _)| ACTS.contains(&&***key)).collect();
        let help = format!("an event does one of {}; write another for the rest", listed(ACTS));
        match acts.as_slice() {
            [_] => {}
            [] => self.error("PRV1901", event, "the event does nothing".into(), help),
            [(first, _), (second, entry), ..] => {
                let message = format!("the event does `{first}` and `{second}`, and may do one thing");
                self.found.push(Diagnostic::error("PRV1901", entry.key.clone(), message).help(help));
            }
        }
        self.within(event, end, "event");
        if let Some(node) = event.at(["scale", "workload"])
            && let Some(text) = node.as_text()
        {
            self.workload(node, text, workloads);
        }
        let Some(catalog) = catalog else { return self.commit(event) };
        if let Some(zone) = event.get("lose-zone") {
            self.zone(zone, catalog);
        }
        if let Some(shortage) = event.get("shortage") {
            self.types(shortage.get("types"), catalog, false);
            self.zones(shortage.get("zones"), catalog);
        }
        self.commit(event);
    }

    fn within(&mut self, entry: &Node, end: Option<SignedDuration>, what: &str) {
        let Some(node) = entry.get("at") else { return };
        if let (Some(at), Some(end)) = (span(node), end)
            && at > end
        {
            let message =
                format!("the {what} at {} is after the end at {}", node.shown(), render_duration(end));
            self.error("PRV1902", node, message, "move it, or let the simulation last longer");
        }
    }

    fn workload(&mut self, node: &Node, text: &str, known: Option<&BTreeSet<String>>) {
        let scale = Scale { workload: text.to_owned(), to: 0 };
        if scale.workload().is_none() {
            let help = "write it like \"default/web\"";
            return self.error("PRV1203", node, format!("{} is not NAMESPACE/NAME", node.shown()), help);
        }
        let Some(known) = known.filter(|known| !known.contains(text)) else { return };
        let names = || known.iter().map(String::as_str);
        let help = match (nearest(text, names()), known.is_empty()) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, true) => "name the file of its manifest in `workloads`".to_owned(),
            (None, false) => format!("the workloads are {}", listed(names())),
        };
        self.error("PRV1904", node, format!("there is no workload `{text}`"), help);
    }

    fn commit(&mut self, event: &Node) {
        let Some(files) = event.at(["commit", "files"]).and_then(Node::as_map) else { return };
        for (target, entry) in files.iter() {
            if !is_inside(target) {
                let message = format!("\"{}\" is not a path inside the fleet", target.escape_debug());
                let help = "write it like \"environments/prod.toml\": relative, with `/` between parts, without `..`";
                self.found.push(Diagnostic::error("PRV1905", entry.key.clone(), message).help(help));
            }
            if let Some(from) = entry.node.as_text() {
                self.file(&entry.node, from);
            }
        }
    }

    fn zones(&mut self, zones: Option<&Node>, catalog: &Catalog) {
        for zone in zones.and_then(Node::as_list).unwrap_or_default() {
            self.zone(zone, catalog);
        }
    }

    fn zone(&mut self, node: &Node, catalog: &Catalog) {
        let Some(text) = node.as_text() else { return };
        let known: BTreeSet<&str> =
            catalog.facts().iter().flat_map(|facts| facts.zones.iter().map(|zone| zone.as_str())).collect();
        if !known.contains(&**text) {
            let message = format!("the region {} has no zone `{text}`", catalog.region);
            self.error("PRV1626", node, message, format!("its zones are {}", listed(known)));
        }
    }

    /// Names of instance types, or families: bare, or with `.*` behind them.
    fn types(&mut self, names: Option<&Node>, catalog: &Catalog, is_family: bool) {
        for node in names.and_then(Node::as_list).unwrap_or_default() {
            let Some(text) = node.as_text() else { continue };
            let family = if is_family { Some(&**text) } else { text.strip_suffix(".*") };
            let names = || catalog.facts().iter().map(|facts| facts.name.as_str());
            let families = || names().filter_map(|name| name.split_once('.')).map(|(family, _)| family);
            let (is_known, near, what) = match family {
                Some(family) => {
                    (families().any(|known| known == family), nearest(family, families()), "family")
                }
                None => (names().any(|known| known == &**text), nearest(text, names()), "type"),
            };
            if is_known {
                continue;
            }
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the catalogue of {} does not have it", catalog.region),
            };
            self.error("PRV1618", node, format!("there is no instance {what} `{text}`"), help);
        }
    }

    fn count(&mut self, node: &Node) {
        let number = |key| node.get(key).map(Node::to_json).and_then(|number| number.as_i64());
        if let (Some(least), Some(most)) = (number("least"), number("most"))
            && least > most
        {
            let message = format!("no count is {least} or more and at most {most}");
            self.error("PRV1206", node, message, "write the smaller one as `least`");
        }
    }
}

fn span(node: &Node) -> Option<SignedDuration> {
    parse_duration(node.as_text()?).ok()
}

/// Whether a file of this path can be in a commit.
fn is_inside(path: &str) -> bool {
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.eq_ignore_ascii_case(".git");
    !path.contains('\\') && !path.chars().any(char::is_control) && path.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::repository::{CommitId, Revision};

    #[test]
    fn a_workload_that_cannot_be_read_says_what_to_do() {
        let revision = Revision {
            commit: CommitId::parse(&"a".repeat(40)).expect("forty digits"),
            reference: None,
            subject: "test".into(),
            author: "nobody".into(),
        };
        let files = [("good.yaml", &b"kind: Pod"[..]), ("bad.yaml", &b"\xff"[..])];
        let files = files.into_iter().map(|(path, bytes)| (Arc::from(path), Arc::from(bytes))).collect();
        let repository = Repository { revision, files, refused: Default::default() };
        assert_eq!(workload(&repository, "good.yaml").ok().as_deref(), Some("kind: Pod"));
        for (path, advice) in [("bad.yaml", "UTF-8"), ("none.yaml", "`workloads` in simulation.toml")] {
            let failure = workload(&repository, path).expect_err("it cannot be read");
            assert!(failure.help.is_some_and(|help| help.contains(advice)), "{path}");
        }
    }
}
