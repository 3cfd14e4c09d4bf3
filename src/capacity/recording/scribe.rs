//! Events as lines, and what each speaks of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::decided::{Abridger, Decided, Done};
use super::{Committed, Event, Header, Key};
use crate::capacity::decision::Decision;
use crate::model::action::Subject;
use crate::model::catalog::{Catalog, CatalogChange};
use crate::model::class::NodeClass;
use crate::model::name::{NodeName, ObjectKey, Uid};
use crate::model::observation::Observation;
use crate::model::pod::{Owner, Pod, PodPhase, PodShape};
use crate::model::symbol::Symbol;

/// Lines that belong together, and the numbers of the keys by which they are found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub at: Timestamp,
    /// Each line ends with its newline.
    pub text: String,
    pub keys: Vec<u32>,
}

/// Writes the lines of one segment after the other. The same events give the same lines.
#[derive(Clone, Debug, Default)]
pub struct Scribe {
    abridger: Abridger,
    shapes: BTreeMap<Arc<PodShape>, u32>,
    catalog: Option<Arc<Catalog>>,
    /// Nodes and claims that the segment has spoken of.
    met: BTreeSet<Symbol>,
}

/// A line. `super::reader` has the same, to be read.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Wire<'a> {
    Header(&'a Header),
    Shape {
        id: u32,
        shape: &'a PodShape,
    },
    Seen {
        at: Timestamp,
        what: &'a Observation,
    },
    Pod {
        at: Timestamp,
        pod: PodRecord,
    },
    Catalog {
        at: Timestamp,
        change: CatalogChange,
    },
    Decided {
        at: Timestamp,
        decision: &'a Decided,
    },
    Committed {
        at: Timestamp,
        commit: &'a Committed,
    },
    #[serde(rename_all = "camelCase")]
    Picture {
        at: Timestamp,
        is_over: bool,
    },
}

/// A pod, its shape by number.
#[derive(Clone, Debug, Serialize, serde::Deserialize)]
pub(super) struct PodRecord {
    pub key: ObjectKey,
    pub uid: Uid,
    pub shape: u32,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub owners: Vec<Owner>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub created: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deleted: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<NodeName>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nominated_node: Option<NodeName>,
    pub phase: PodPhase,
    #[serde(skip_serializing_if = "is_false", default)]
    pub is_ready: bool,
    #[serde(skip_serializing_if = "is_false", default)]
    pub is_unschedulable: bool,
    #[serde(skip_serializing_if = "is_false", default)]
    pub is_gated: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(fact: &bool) -> bool {
    !*fact
}

impl Scribe {
    /// Begins a segment: what was written in former ones is not relied upon.
    pub fn begin(&mut self, header: &Header, at: Timestamp) -> Page {
        *self = Self::default();
        let mut page = Page { at, ..Page::default() };
        page.line(&Wire::Header(header));
        page
    }

    /// The objects that are there, and the commit that is in force.
    pub fn picture(&mut self, at: Timestamp, objects: &[Observation], commit: Option<&Committed>) -> Page {
        let mut page = Page { at, ..Page::default() };
        page.line(&Wire::Picture { at, is_over: false });
        objects.iter().for_each(|what| self.seen(at, what, &mut page));
        if let Some(commit) = commit {
            self.committed(at, commit, &mut page);
        }
        page.line(&Wire::Picture { at, is_over: true });
        page
    }

    pub fn write(&mut self, event: &Event) -> Page {
        match event {
            Event::Seen { at, what } => {
                let mut page = Page { at: *at, ..Page::default() };
                self.seen(*at, what, &mut page);
                page
            }
            Event::Decided { at, decision } => self.decided(*at, decision),
            Event::Committed { at, commit } => {
                let mut page = Page { at: *at, ..Page::default() };
                self.committed(*at, commit, &mut page);
                page
            }
        }
    }

    /// A decision alone.
    pub fn decided(&mut self, at: Timestamp, decision: &Decision) -> Page {
        let decided = self.abridger.abridge(decision);
        let mut page = Page { at, ..Page::default() };
        page.line(&Wire::Decided { at, decision: &decided });
        for done in decided.actions.iter().filter(|done| is_turn(done)) {
            subjects_of(done, |name| page.about(name));
        }
        decided.stays.iter().for_each(|stay| page.about(&stay.subject.to_string()));
        for command in &decided.started {
            command.nodes.iter().for_each(|node| page.about(node.as_str()));
            command.claims.iter().for_each(|claim| page.about(claim.as_str()));
        }
        page.keys.extend(decided.kept.iter().map(|kept| Key::Kept(kept.node.as_str()).number()));
        page
    }

    fn committed(&mut self, at: Timestamp, commit: &Committed, page: &mut Page) {
        page.line(&Wire::Committed { at, commit });
        page.keys.push(Key::Commit.number());
    }

    fn seen(&mut self, at: Timestamp, what: &Observation, page: &mut Page) {
        match what {
            Observation::Pod(pod) => {
                let shape = self.shape(&pod.shape, page);
                page.line(&Wire::Pod { at, pod: record(pod, shape) });
                page.about(&pod.key.to_string());
                return;
            }
            Observation::Catalog(catalog) => {
                let change = catalog.change_since(self.catalog.as_deref());
                self.catalog = Some(catalog.clone());
                return page.line(&Wire::Catalog { at, change });
            }
            Observation::Class(class) => {
                let what = Observation::Class(without_user_data(class));
                return page.line(&Wire::Seen { at, what: &what });
            }
            what => page.line(&Wire::Seen { at, what }),
        }
        match what {
            Observation::Claim(claim) => self.meet(claim.name.0, page),
            Observation::Node(node) => self.meet(node.name.0, page),
            Observation::ClaimGone(name) => page.about(name.as_str()),
            Observation::NodeGone(name) => page.about(name.as_str()),
            Observation::Launched { claim, .. } | Observation::LaunchFailed { claim, .. } => {
                page.about(claim.as_str());
            }
            Observation::Terminated { instance } | Observation::Interruption { instance, .. } => {
                page.about(instance.as_str());
            }
            Observation::PodGone(pod)
            | Observation::Evicted { pod }
            | Observation::EvictionBlocked { pod, .. } => page.about(&pod.to_string()),
            _ => {}
        }
    }

    /// A node or claim is found by where it is first spoken of.
    fn meet(&mut self, name: Symbol, page: &mut Page) {
        if self.met.insert(name) {
            page.about(&name);
        }
    }

    fn shape(&mut self, shape: &Arc<PodShape>, page: &mut Page) -> u32 {
        if let Some(known) = self.shapes.get(shape) {
            return *known;
        }
        let id = u32::try_from(self.shapes.len()).unwrap_or(u32::MAX);
        page.line(&Wire::Shape { id, shape });
        self.shapes.insert(shape.clone(), id);
        id
    }
}

impl Page {
    fn line(&mut self, wire: &Wire<'_>) {
        // Nothing in a line has a key that is no text, so it can be written.
        self.text.push_str(&serde_json::to_string(wire).unwrap_or_default());
        self.text.push('\n');
    }

    fn about(&mut self, name: &str) {
        self.keys.push(Key::About(name).number());
    }
}

fn record(pod: &Pod, shape: u32) -> PodRecord {
    let Pod {
        key,
        uid,
        shape: _,
        owners,
        created,
        deleted,
        started,
        node,
        nominated_node,
        phase,
        is_ready,
        is_unschedulable,
        is_gated,
    } = pod;
    PodRecord {
        key: *key,
        uid: *uid,
        shape,
        owners: owners.clone(),
        created: *created,
        deleted: *deleted,
        started: *started,
        node: *node,
        nominated_node: *nominated_node,
        phase: *phase,
        is_ready: *is_ready,
        is_unschedulable: *is_unschedulable,
        is_gated: *is_gated,
    }
}

/// User data may hold anything. Whether it changed is all that decisions ask, and that its digest says too.
fn without_user_data(class: &Arc<NodeClass>) -> Arc<NodeClass> {
    let Some(text) = class.spec.get("userData").and_then(Value::as_str) else { return class.clone() };
    let digest: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut spec = (*class.spec).clone();
    spec["userData"] = json!(format!("sha256:{digest}"));
    Arc::new(NodeClass { spec: Arc::new(spec), ..(**class).clone() })
}

/// Whether an action is a turn in the life of what it is done to, and no bookkeeping that comes again and again.
pub fn is_turn(done: &Done) -> bool {
    match done.kind() {
        "UpdatePool" | "UpdateOverlay" | "UpdateBuffer" | "ResolveClass" | "NameMachine" => false,
        "UpdateClaim" => {
            let is_bookkeeping = ["PodEvent", "Named"].contains(&done.code.as_str());
            !is_bookkeeping && (done.code != "Marked" || done.why.starts_with("Drifted"))
        }
        _ => true,
    }
}

/// The names of what an action is done to.
pub fn subjects_of(done: &Done, mut tell: impl FnMut(&str)) {
    let body = done.body();
    let mut told = |at: &str| {
        if let Some(name) = body.pointer(at).and_then(Value::as_str) {
            tell(name);
        }
    };
    match done.kind() {
        "CreateClaim" => told("/name"),
        "Publish" => {
            let subject = body.get("subject").cloned();
            if let Some(subject) = subject.and_then(|subject| serde_json::from_value::<Subject>(subject).ok())
            {
                tell(&subject.to_string());
            }
        }
        _ => ["/claim", "/node", "/pod", "/instance", "/change/node"].into_iter().for_each(told),
    }
}
