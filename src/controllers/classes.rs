//! Keeps node classes: what each selects, as the cloud says, in its status; and a class that is deleted until nothing is left of it in the
//! cloud. The engine hears of it like of any other change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::perform::Answer;
use crate::capacity::cluster::Cluster;
use crate::capacity::engine::Engine;
use crate::io::clock;
use crate::io::cloud::CloudProvider;
use crate::io::kube::apply::{CLASS_FINALIZER, Writer, Written};
use crate::io::kube::events::{self, Told};
use crate::io::kube::lease::Permit;
use crate::io::kube::{Change, Kind, status};
use crate::model::class::{ClassStatus, NodeClass};
use crate::model::label::annotation;
use crate::model::name::{ClassName, Namespace, ObjectKey};

/// How often the cloud is asked again what a class selects.
const REPEAT: SignedDuration = SignedDuration::from_mins(5);
/// How soon after the cloud or the API server did not answer.
const RETRY: SignedDuration = SignedDuration::from_secs(15);
/// How often is looked whether a deleted class has still claims.
const CLAIMS_PERIOD: SignedDuration = SignedDuration::from_secs(2);
/// How often is told why a deleted class does not go.
const TOLD_PERIOD: SignedDuration = SignedDuration::from_mins(10);
/// What a class is held for, as its annotation says.
const PROFILES: &str = "profiles";
const TEMPLATES: &str = "templates";
/// Upstream's word for a class that has still claims.
const WAITING: &str = "WaitingOnNodeClaimTermination";

pub(super) struct Classes<P> {
    provider: Arc<P>,
    writer: Writer,
    permit: Permit,
    answers: mpsc::UnboundedSender<Answer>,
    /// As they are.
    manifests: BTreeMap<ClassName, Value>,
    /// Something is under way for these.
    busy: BTreeSet<ClassName>,
    /// The specification that was resolved last, and when the next time is.
    resolved: BTreeMap<ClassName, (Arc<Value>, Timestamp)>,
    /// When a class is to be held or let go again that could not be.
    later: BTreeMap<ClassName, Timestamp>,
    /// What was told last of a deleted class, and when.
    told: BTreeMap<ClassName, (String, Timestamp)>,
    has_changed: bool,
    tasks: JoinSet<(ClassName, Done)>,
}

enum Done {
    Resolved {
        spec: Arc<Value>,
        status: Option<ClassStatus>,
    },
    /// Held or let go; `None`: it could not be.
    Written(Option<Box<Change>>),
    /// It cannot go, for this reason.
    Stays(String),
}

impl<P: CloudProvider> Classes<P> {
    pub fn new(
        provider: Arc<P>,
        writer: Writer,
        permit: Permit,
        answers: mpsc::UnboundedSender<Answer>,
    ) -> Self {
        Self {
            provider,
            writer,
            permit,
            answers,
            manifests: BTreeMap::new(),
            busy: BTreeSet::new(),
            resolved: BTreeMap::new(),
            later: BTreeMap::new(),
            told: BTreeMap::new(),
            has_changed: false,
            tasks: JoinSet::new(),
        }
    }

    pub fn observe(&mut self, change: &Change) {
        if change.kind != Kind::NodeClass {
            return;
        }
        let name = ClassName(change.key.name);
        match &change.manifest {
            Some(manifest) => drop(self.manifests.insert(name, manifest.clone())),
            None => {
                self.manifests.remove(&name);
                self.resolved.remove(&name);
                self.later.remove(&name);
                self.told.remove(&name);
            }
        }
        self.has_changed = true;
    }

    /// Something has come back.
    pub async fn tend(&mut self) {
        let Some(done) = self.tasks.join_next().await else { return std::future::pending().await };
        let Ok((class, done)) = done else { return };
        self.busy.remove(&class);
        let now = clock::now();
        match done {
            Done::Resolved { spec, status } => {
                let wait = if status.is_some() { REPEAT } else { RETRY };
                self.resolved.insert(class, (spec, after(now, wait)));
                if let (Some(found), Some(object)) = (status, self.manifests.get(&class))
                    && let Some(missing) = status::of_class(object, &found, now)
                {
                    self.write(class, missing);
                }
            }
            Done::Written(Some(change)) => {
                self.later.remove(&class);
                drop(self.answers.send(Answer::Changed(change)));
            }
            Done::Written(None) => drop(self.later.insert(class, after(now, RETRY))),
            Done::Stays(why) => {
                self.later.insert(class, after(now, RETRY));
                self.tell(class, "NodeClassTerminationFailed", why, now);
            }
        }
    }

    /// Starts what is due; when to be asked again.
    pub fn decide(&mut self, engine: &Engine, now: Timestamp) -> Option<Timestamp> {
        let has_changed = std::mem::take(&mut self.has_changed);
        let has_belongings = self.provider.has_belongings();
        let mut wakes = Vec::new();
        for class in engine.own_classes().filter(|class| !class.is_deleting) {
            if has_belongings && !self.holds(class) {
                wakes.extend(self.hold(class, now));
                continue;
            }
            let due = self
                .resolved
                .get(&class.name)
                .is_none_or(|(spec, next)| *next <= now || (has_changed && *spec != class.spec));
            if due && self.busy.insert(class.name) {
                self.resolve(class.clone());
            }
            wakes.extend(self.resolved.get(&class.name).map(|(_, next)| *next));
        }
        // It may be that no pool says any more whose they are. What another cloud holds is let go by whom the class belongs to.
        let is_ours = |class: &Arc<NodeClass>| match has_belongings {
            true => engine.may_let_go(class),
            false => engine.own_classes().any(|own| own.name == class.name),
        };
        let deleted = engine.cluster().classes.values().filter(|class| class.is_deleting);
        for class in deleted.filter(|class| is_ours(class)) {
            if self.mark_of(class.name).is_some() {
                wakes.extend(self.let_go(class, engine.cluster(), now));
            }
        }
        wakes.into_iter().min()
    }

    /// What a class that we hold is held for.
    fn mark_of(&self, class: ClassName) -> Option<&str> {
        let object = self.manifests.get(&class)?;
        let finalizers = object.pointer("/metadata/finalizers")?.as_array()?;
        let mark = object.pointer("/metadata/annotations")?.get(annotation::HELD.as_str())?.as_str()?;
        finalizers.iter().any(|name| name == CLASS_FINALIZER).then_some(mark)
    }

    /// Whether all that is made for a class would be cleared away. One that had a role once had a profile.
    fn holds(&self, class: &NodeClass) -> bool {
        self.mark_of(class.name).is_some_and(|mark| mark == PROFILES || !has_role(class))
    }

    /// When it is to be tried again.
    fn hold(&mut self, class: &NodeClass, now: Timestamp) -> Option<Timestamp> {
        let (name, what) = (class.name, if has_role(class) { PROFILES } else { TEMPLATES });
        if let Some(later) = self.later.get(&name).filter(|later| **later > now) {
            return Some(*later);
        }
        if self.permit.is_valid() && self.busy.insert(name) {
            let writer = self.writer.clone();
            self.tasks.spawn(async move { (name, written(name, writer.hold_class(name, what).await)) });
        }
        None
    }

    /// Clears away what was made for a class, once it has no claims any more. When it is to be tried again.
    fn let_go(&mut self, class: &Arc<NodeClass>, cluster: &Cluster, now: Timestamp) -> Option<Timestamp> {
        let name = class.name;
        if self.busy.contains(&name) {
            return None;
        }
        if let Some(later) = self.later.get(&name).filter(|later| **later > now) {
            return Some(*later);
        }
        let claims = cluster.claims.values().chain(cluster.strangers.claims.values());
        let claims =
            claims.filter(|claim| claim.spec.class.is_ours() && claim.spec.class.name == name).count();
        if claims > 0 {
            let message = format!("It stays until the {claims} NodeClaims that use it are gone.");
            self.tell(name, WAITING, message, now);
            let later = after(now, CLAIMS_PERIOD);
            self.later.insert(name, later);
            return Some(later);
        }
        if self.permit.is_valid() {
            self.busy.insert(name);
            let had_role = self.mark_of(name) == Some(PROFILES);
            if had_role && !self.provider.has_belongings() {
                tracing::warn!(
                    "EC2NodeClass {name} goes; the instance profiles that were made for it in AWS stay"
                );
            }
            let (provider, writer, class) = (self.provider.clone(), self.writer.clone(), class.clone());
            self.tasks.spawn(async move {
                if let Err(error) = provider.clear(class, had_role).await {
                    return (
                        name,
                        Done::Stays(format!("It stays until what was made for it is deleted: {error}")),
                    );
                }
                (name, written(name, writer.finalize_class(name).await))
            });
        }
        None
    }

    /// Says at a class why it does not go, once in a while.
    fn tell(&mut self, class: ClassName, reason: &'static str, message: String, now: Timestamp) {
        let is_warning = reason != WAITING;
        // How many it waits for is told once in a while, another refusal at once.
        let word = if is_warning { message.clone() } else { reason.to_owned() };
        let told = self.told.get(&class).filter(|(former, _)| *former == word);
        if told.is_some_and(|(_, at)| now.duration_since(*at) < TOLD_PERIOD) || !self.permit.is_valid() {
            return;
        }
        self.told.insert(class, (word, now));
        if is_warning {
            tracing::warn!("EC2NodeClass {class}: {message}");
        }
        let key = ObjectKey { namespace: Namespace::new(""), name: class.0 };
        let (kube, uid) = (self.writer.kube().clone(), self.writer.uid_of(Kind::NodeClass, key));
        tokio::spawn(async move {
            let told = Told { is_warning, reason, message: &message };
            if let Err(error) = events::tell(&kube, (Kind::NodeClass, key), uid, told, now).await {
                tracing::debug!("an event about EC2NodeClass {class} is not written: {error}");
            }
        });
    }

    fn resolve(&mut self, class: Arc<NodeClass>) {
        let provider = self.provider.clone();
        self.tasks.spawn(async move {
            let answer = provider.resolve(class.clone()).await;
            if let Err(error) = &answer {
                tracing::warn!("what EC2NodeClass {} selects is not known: {error}", class.name);
            }
            (class.name, Done::Resolved { spec: class.spec.clone(), status: answer.ok() })
        });
    }

    fn write(&self, class: ClassName, status: Value) {
        if !self.permit.is_valid() {
            return;
        }
        let (writer, answers) = (self.writer.clone(), self.answers.clone());
        tokio::spawn(async move {
            match writer.write_status(Kind::NodeClass, class.0, &status).await {
                Ok(Some(change)) => drop(answers.send(Answer::Changed(Box::new(change)))),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!("the status of EC2NodeClass {class} is not written: {error}");
                }
            }
        });
    }
}

fn written(class: ClassName, written: Written) -> Done {
    match written {
        Ok(change) => Done::Written(change.map(Box::new)),
        Err(error) => {
            tracing::warn!("the finalizer of EC2NodeClass {class} is not written: {error}");
            Done::Written(None)
        }
    }
}

fn has_role(class: &NodeClass) -> bool {
    class.spec["role"].as_str().is_some_and(|role| !role.is_empty())
}

fn after(now: Timestamp, wait: SignedDuration) -> Timestamp {
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}
