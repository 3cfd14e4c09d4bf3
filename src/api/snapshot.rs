//! A file that stands for a whole cluster: what `kubectl get … -o yaml` prints, or manifests written by hand.
//!
//! Objects are read one at a time, so that a hundred thousand pods cost their records and not their text as a tree. A
//! controller without pods in the file is desired state: its pods are made up, waiting for a place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::de::DeserializeSeed;
use serde_json::Value;

use super::document::{Found, Unwrap, yaml_options};
use super::field::{FieldError, Stage};
use super::pod::PodShapes;
use super::workload::Workload;
use super::{Object, Reader, metadata, position};
use crate::model::name::{ObjectKey, Uid};
use crate::model::pod::{Owner, Pod, PodVolume};
use crate::model::symbol::Symbol;
use crate::model::workload::{PersistentVolumeClaim, StorageClass, default_class};

/// A cluster as a file describes it.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// In the order of the file; made-up pods and claims at the end.
    pub objects: Vec<Object>,
    /// The objects of Karpenter's kinds as they were written, for comparison with what should be.
    pub manifests: Vec<Value>,
    /// What a person should know: fields without effect, objects that are not valid, kinds that were skipped.
    pub notices: Vec<String>,
    /// Where each of them stands: line and column, from 1.
    pub noticed_at: Vec<Option<(u32, u32)>>,
    /// Shapes of all pods: hand them to whoever reads more pods.
    pub shapes: PodShapes,
}

/// One thing wrong with a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub file: String,
    /// Line and column, from 1.
    pub position: Option<(u32, u32)>,
    /// The object, such as `Pod default/web`.
    pub object: Option<String>,
    pub error: FieldError,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.file)?;
        if let Some((line, column)) = self.position {
            write!(out, ":{line}:{column}")?;
        }
        match &self.object {
            Some(object) => write!(out, ": {object}: {}", self.error),
            None => write!(out, ": {}", self.error),
        }
    }
}

/// Everything wrong with a snapshot, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SnapshotError {
    pub problems: Vec<Problem>,
    /// How many more there are.
    pub omitted: usize,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let line_end = if index > 0 { "\n" } else { "" };
            write!(out, "{line_end}{problem}")?;
        }
        if self.omitted > 0 {
            write!(out, "\nand {} more", self.omitted)?;
        }
        Ok(())
    }
}

/// How many problems of a file are told: more help nobody.
const PROBLEMS_MAX: usize = 20;

/// How many pods may be made up for the controllers of a file, unless somebody says otherwise: twice the largest
/// cluster that Kubernetes promises to carry.
pub const PODS_MAX: u32 = 300_000;

/// Reads the objects of `text`: YAML documents, JSON values, lists of objects. `file` names it in messages.
pub fn read(text: &str, file: &str) -> Result<Snapshot, SnapshotError> {
    read_up_to(text, file, PODS_MAX)
}

/// The same, with another limit for the pods that are made up.
pub fn read_up_to(text: &str, file: &str, pods_max: u32) -> Result<Snapshot, SnapshotError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reading = Reading::new(file, pods_max);
    // Pods name their class, and the class may stand after them.
    if text.contains("PriorityClass") {
        each_object(text, |_, found| {
            if found.value.get("kind").and_then(Value::as_str) == Some("PriorityClass")
                && let Ok(Object::PriorityClass(class)) = reading.reader.parse(&found.value)
            {
                reading.reader.add_priority(&class);
            }
        })
        .ok();
    }
    if let Err(failure) = each_object(text, |document, found| reading.take(document, found)) {
        reading.failures.push(failure);
    }
    reading.finish()
}

/// Hands every object of `text` to `sink` as it is written.
pub(crate) fn each_value(text: &str, file: &str, mut sink: impl FnMut(Value)) -> Result<(), SnapshotError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    each_object(text, |_, found| sink(found.value)).map_err(|failure| {
        let mut reading = Reading::new(file, PODS_MAX);
        reading.failures.push(failure);
        reading.explain()
    })
}

/// The latest moment that the objects speak of: when things were made, started or changed. Deletion times of pods do not
/// count, because they lie in the future by the grace period.
pub fn latest_moment(objects: &[Object]) -> Option<Timestamp> {
    let of_object = |object: &Object| -> Option<Timestamp> {
        match object {
            Object::NodePool(pool) => pool.created,
            Object::NodeClaim(claim) => {
                let changes = claim.conditions.iter().filter_map(|(_, condition)| condition.since);
                let moments = [claim.created, claim.deleted, claim.last_pod_event];
                moments.into_iter().flatten().chain(changes).max()
            }
            Object::Node(node) => {
                let changes = node.conditions.iter().filter_map(|condition| condition.since);
                [node.created, node.deleted].into_iter().flatten().chain(changes).max()
            }
            Object::Pod(pod) => pod.created.max(pod.started),
            _ => None,
        }
    };
    objects.iter().filter_map(of_object).max()
}

// ------------------------------------------------------------------------------------------------------- the documents

/// A part of the text that is one document, and the line it begins on, from 0.
#[derive(Clone, Copy)]
struct Document<'t> {
    text: &'t str,
    first_line: u32,
}

impl Document<'_> {
    /// Where a path of it stands in the file.
    fn position(&self, path: &str) -> Option<(u32, u32)> {
        let (line, column) = position::locate(self.text, path)?;
        Some((line + self.first_line, column))
    }
}

/// Text that is neither YAML nor JSON.
struct Failure {
    position: Option<(u32, u32)>,
    message: String,
}

fn each_object<'t>(text: &'t str, mut sink: impl FnMut(Document<'t>, Found)) -> Result<(), Failure> {
    if text.trim().is_empty() {
        let message = "there is nothing in it; did what should have written it fail?".into();
        return Err(Failure { position: None, message });
    }
    let whole = Document { text, first_line: 0 };
    if text.trim_start().starts_with(['{', '[']) {
        // JSON is read faster as such; what is only nearly JSON gets its chance, and its message, as YAML.
        let is_json = serde_json::Deserializer::from_str(text)
            .into_iter::<serde::de::IgnoredAny>()
            .all(|value| value.is_ok());
        if is_json {
            let mut values = serde_json::Deserializer::from_str(text);
            while values.end().is_err() {
                Unwrap(&mut |found| sink(whole, found)).deserialize(&mut values).map_err(|error| {
                    Failure {
                        position: u32::try_from(error.line()).ok().zip(u32::try_from(error.column()).ok()),
                        message: error.to_string(),
                    }
                })?;
            }
            return Ok(());
        }
    }
    for document in documents(text) {
        let read =
            serde_saphyr::with_deserializer_from_str_with_options(document.text, yaml_options(), |from| {
                Unwrap(&mut |found| sink(document, found)).deserialize(from)
            });
        read.map_err(|error| {
            let position = error.location().and_then(position::position);
            Failure {
                position: position.map(|(line, column)| (line + document.first_line, column)),
                message: plain_message(&error),
            }
        })?;
    }
    Ok(())
}

/// The parser's message without the position, which is told in front of it.
fn plain_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    if let Some(rest) = first.strip_prefix("duplicate mapping key: ") {
        let key = rest.split(", set ").next().unwrap_or(rest);
        return format!("the key `{key}` is set twice");
    }
    if first.contains("breached: Depth") {
        return "is nested more than 128 levels deep".into();
    }
    if first.contains("budget breached") || first.contains("alias replay") {
        return "its aliases repeat more than a file of objects may; write the repeated parts out".into();
    }
    let cut = first.find(" at line ").unwrap_or(first.len());
    first[..cut].to_owned()
}

/// Splits YAML at its `---` lines, which cannot stand inside a document. Documents of nothing but comments are left out.
fn documents(text: &str) -> Vec<Document<'_>> {
    let mut documents = Vec::new();
    let (mut start, mut first_line) = (0, 0);
    let mut offset = 0;
    let mut push = |from: usize, to: usize, first_line: u32| {
        let chunk = &text[from..to];
        let says_something = chunk.lines().any(|line| {
            let line = line.strip_prefix("---").unwrap_or(line).trim();
            !line.is_empty() && !line.starts_with('#') && line != "..."
        });
        if says_something {
            documents.push(Document { text: chunk, first_line });
        }
    };
    for (number, line) in (0..).zip(text.split_inclusive('\n')) {
        let is_marker = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if is_marker && offset > start {
            push(start, offset, first_line);
            (start, first_line) = (offset, number);
        }
        offset += line.len();
    }
    push(start, text.len(), first_line);
    documents
}

// -------------------------------------------------------------------------------------------------------- the reading

struct Wrong<'t> {
    document: Document<'t>,
    path: String,
    object: String,
    errors: Vec<FieldError>,
}

struct Reading<'t> {
    file: String,
    pods_max: u32,
    reader: Reader,
    snapshot: Snapshot,
    seen: BTreeSet<(Symbol, Symbol, Symbol)>,
    skipped: BTreeMap<(Symbol, Symbol), usize>,
    /// Where the first of them begins.
    skipped_at: Option<(u32, u32)>,
    wrong: Vec<Wrong<'t>>,
    failures: Vec<Failure>,
    notices: Vec<(String, Option<(u32, u32)>)>,
}

impl<'t> Reading<'t> {
    fn new(file: &str, pods_max: u32) -> Self {
        Self {
            file: file.into(),
            pods_max,
            reader: Reader::default(),
            snapshot: Snapshot::default(),
            seen: BTreeSet::new(),
            skipped: BTreeMap::new(),
            skipped_at: None,
            wrong: Vec::new(),
            failures: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn take(&mut self, document: Document<'t>, found: Found) {
        let Found { value, path } = found;
        let text = |at: Option<&Value>| at.and_then(Value::as_str).unwrap_or_default().to_owned();
        let metadata = value.get("metadata");
        let (kind, name) = (text(value.get("kind")), text(metadata.and_then(|it| it.get("name"))));
        let namespace = text(metadata.and_then(|it| it.get("namespace")));
        let label = || match (name.as_str(), namespace.as_str()) {
            ("", _) => kind.clone(),
            (name, "") => format!("{kind} {name}"),
            (name, namespace) => format!("{kind} {namespace}/{name}"),
        };
        match self.reader.parse_noting(&value) {
            Ok((Object::Unknown(unknown), _)) if &*unknown.kind == "Status" => {
                let said = text(value.get("message"));
                let error = FieldError {
                    path: "kind".into(),
                    message: format!("is the refusal of an API server instead of what was asked for: {said}"),
                    help: Some("see to it that who exports may list these objects, and export again".into()),
                    stage: Stage::Admission,
                    is_of_key: false,
                };
                self.wrong.push(Wrong { document, path, object: label(), errors: vec![error] });
            }
            Ok((Object::Unknown(unknown), _)) => {
                let count = self.skipped.entry((unknown.api_version, unknown.kind)).or_default();
                *count += 1;
                if self.skipped_at.is_none() {
                    self.skipped_at = document.position(&format!("{path}.kind"));
                }
            }
            Ok((object, passed)) => {
                self.notices.extend(passed.iter().map(|error| {
                    let at = document.position(&format!("{path}.{}", error.path));
                    (format!("{}: {error}", label()), at)
                }));
                let key = (Symbol::new(&kind), Symbol::new(&namespace), Symbol::new(&name));
                if !self.seen.insert(key) {
                    let error = FieldError {
                        path: String::new(),
                        message: "is in the file twice".into(),
                        help: Some("remove one of the two".into()),
                        stage: Stage::Admission,
                        is_of_key: false,
                    };
                    self.wrong.push(Wrong { document, path, object: label(), errors: vec![error] });
                    return;
                }
                if let Object::Workload(workload) = &object
                    && workload.pods > self.pods_max
                {
                    let path_of_count = if kind == "Job" { "spec.parallelism" } else { "spec.replicas" };
                    let mut error = too_many_pods("wants", u64::from(workload.pods), self.pods_max);
                    error.path = path_of_count.into();
                    self.wrong.push(Wrong { document, path, object: label(), errors: vec![error] });
                    return;
                }
                if object.is_karpenter() {
                    self.snapshot.manifests.push(value);
                }
                self.snapshot.objects.push(object);
            }
            Err(errors) => self.wrong.push(Wrong { document, path, object: label(), errors }),
        }
    }

    fn finish(mut self) -> Result<Snapshot, SnapshotError> {
        if !self.wrong.is_empty() || !self.failures.is_empty() {
            return Err(self.explain());
        }
        let omitted = self.notices.len().saturating_sub(PROBLEMS_MAX);
        self.notices.truncate(PROBLEMS_MAX);
        if omitted > 0 {
            self.notices.push((format!("{omitted} more fields have no effect or are not valid"), None));
        }
        self.notices.extend(notice_of_skipped(&self.skipped).map(|notice| (notice, self.skipped_at)));
        (self.snapshot.notices, self.snapshot.noticed_at) = self.notices.into_iter().unzip();
        self.snapshot.shapes = self.reader.shapes;
        let with_pods = with_pods(&self.snapshot.objects);
        let pods = self.snapshot.objects.iter().filter_map(|object| match object {
            Object::Workload(workload) if !with_pods.contains(&(workload.kind, workload.key)) => {
                Some(u64::from(workload.pods))
            }
            _ => None,
        });
        let pods: u64 = pods.sum();
        if pods > u64::from(self.pods_max) {
            let error = too_many_pods("the controllers want", pods, self.pods_max);
            let problem = Problem { file: self.file, position: None, object: None, error };
            return Err(SnapshotError { problems: vec![problem], omitted: 0 });
        }
        make_up_pods(&mut self.snapshot, &with_pods);
        Ok(self.snapshot)
    }

    fn explain(self) -> SnapshotError {
        let mut problems = Vec::new();
        let mut omitted = 0;
        for wrong in &self.wrong {
            for error in &wrong.errors {
                if problems.len() == PROBLEMS_MAX {
                    omitted += 1;
                    continue;
                }
                let path = format!("{}.{}", wrong.path, error.path);
                let position = wrong.document.position(&path);
                problems.push(Problem {
                    file: self.file.clone(),
                    position,
                    object: Some(wrong.object.clone()).filter(|object| !object.is_empty()),
                    error: error.clone(),
                });
            }
        }
        for failure in self.failures {
            problems.push(Problem {
                file: self.file.clone(),
                position: failure.position,
                object: None,
                error: FieldError {
                    path: String::new(),
                    message: failure.message,
                    help: None,
                    stage: Stage::Admission,
                    is_of_key: false,
                },
            });
        }
        SnapshotError { problems, omitted }
    }
}

fn too_many_pods(wants: &str, pods: u64, pods_max: u32) -> FieldError {
    FieldError {
        path: String::new(),
        message: format!("{wants} {pods} pods, and {pods_max} may be made up for a file"),
        help: Some("lower the count, or accept more with `provisor plan --max-pods N`".into()),
        stage: Stage::Admission,
        is_of_key: false,
    }
}

/// One sentence for all that was skipped.
fn notice_of_skipped(skipped: &BTreeMap<(Symbol, Symbol), usize>) -> Option<String> {
    if skipped.is_empty() {
        return None;
    }
    let each = skipped.iter().map(|((version, kind), count)| format!("{count} {kind} ({version})"));
    let listed = each.collect::<Vec<_>>().join(", ");
    let old = skipped.keys().find_map(|(version, kind)| super::replaced(version, kind));
    let help = old.map(|(message, help)| format!("; {message}: {help}")).unwrap_or_default();
    Some(format!("skipped {listed}: nothing here is decided by them{help}"))
}

// --------------------------------------------------------------------------------------------------- pods that are made up

/// Controllers whose pods are in the file, or are another controller's business.
fn with_pods(objects: &[Object]) -> BTreeSet<(Symbol, ObjectKey)> {
    let mut with_pods: BTreeSet<(Symbol, ObjectKey)> = BTreeSet::new();
    let key =
        |owner: &Owner, of: &ObjectKey| (owner.kind, ObjectKey { namespace: of.namespace, name: owner.name });
    for object in objects {
        match object {
            Object::Pod(pod) => {
                for owner in &pod.owners {
                    with_pods.insert(key(owner, &pod.key));
                    // Its ReplicaSet need not be in the file; its name is the Deployment's and a hash.
                    if let (true, Some((deployment, _))) =
                        (&*owner.kind == "ReplicaSet", owner.name.as_str().rsplit_once('-'))
                    {
                        let name = Symbol::new(deployment);
                        let deployment = ObjectKey { namespace: pod.key.namespace, name };
                        with_pods.insert((Symbol::new("Deployment"), deployment));
                    }
                }
            }
            // What a Deployment wants, its ReplicaSets want already.
            Object::Workload(workload) => {
                for owner in &workload.owners {
                    with_pods.insert(key(owner, &workload.key));
                }
            }
            _ => {}
        }
    }
    with_pods
}

/// Adds the pods of controllers that have none, and the volume claims that come with them.
fn make_up_pods(snapshot: &mut Snapshot, with_pods: &BTreeSet<(Symbol, ObjectKey)>) {
    let mut taken: BTreeSet<ObjectKey> = BTreeSet::new();
    let mut claims: BTreeSet<ObjectKey> = BTreeSet::new();
    let mut classes: Vec<&StorageClass> = Vec::new();
    for object in &snapshot.objects {
        match object {
            Object::Pod(pod) => {
                taken.insert(pod.key);
            }
            Object::PersistentVolumeClaim(claim) => {
                claims.insert(claim.key);
            }
            Object::StorageClass(class) => classes.push(class),
            _ => {}
        }
    }
    let late_classes: BTreeSet<Symbol> =
        classes.iter().filter(|class| !class.binds_immediately).map(|class| class.name).collect();
    let default_class = default_class(classes).map(|class| class.name);
    let mut made: Vec<Object> = Vec::new();
    let mut shapes = std::mem::take(&mut snapshot.shapes);
    for object in &snapshot.objects {
        let Object::Workload(workload) = object else { continue };
        if with_pods.contains(&(workload.kind, workload.key)) {
            continue;
        }
        for index in 0..workload.pods {
            let mut pod = make_up_pod(workload, index);
            if !taken.insert(pod.key) {
                continue;
            }
            // A claim is only known to tie the pod to a place if the file has its class, and the class waits for the pod.
            let templates = workload.claim_templates.iter().filter_map(|(volume, class)| {
                let class = class.or(default_class).filter(|class| late_classes.contains(class))?;
                Some((Symbol::new(&format!("{volume}-{}", pod.key.name)), class))
            });
            let templates: Vec<(Symbol, Symbol)> = templates.collect();
            if !templates.is_empty() {
                let mut shape = (*pod.shape).clone();
                shape.volumes.extend(templates.iter().map(|(name, _)| PodVolume::Claim(*name)));
                pod.shape = shapes.share(shape);
            }
            for (name, class) in templates {
                let key = ObjectKey { namespace: pod.key.namespace, name };
                if claims.insert(key) {
                    made.push(Object::PersistentVolumeClaim(PersistentVolumeClaim {
                        key,
                        volume: None,
                        storage_class: Some(class),
                        is_lost: false,
                        is_deleting: false,
                        is_bind_completed: false,
                    }));
                }
            }
            made.push(Object::Pod(pod));
        }
    }
    snapshot.shapes = shapes;
    snapshot.objects.append(&mut made);
}

/// The pod that a controller would make next, waiting for a place.
fn make_up_pod(workload: &Workload, index: u32) -> Pod {
    let name = format!("{}-{index}", workload.key.name);
    let key = ObjectKey { namespace: workload.key.namespace, name: Symbol::new(&name) };
    let uid: Uid = metadata::made_up_uid(&key.namespace.0, &key.name);
    let owner = Owner {
        kind: workload.kind,
        api_version: workload.api_version,
        name: workload.key.name,
        uid: workload.uid,
        is_controller: true,
    };
    Pod { is_unschedulable: true, ..Pod::new(key, uid, workload.shape.clone(), vec![owner]) }
}
