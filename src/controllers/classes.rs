//! Keeps the status of node classes: what each selects, as the cloud says. The engine hears of it like of any other change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::perform::Answer;
use crate::capacity::engine::Engine;
use crate::io::clock;
use crate::io::cloud::CloudProvider;
use crate::io::kube::apply::Writer;
use crate::io::kube::lease::Permit;
use crate::io::kube::{Change, Kind, status};
use crate::model::class::NodeClass;
use crate::model::name::ClassName;

/// How often the cloud is asked again what a class selects.
const REPEAT: Duration = Duration::from_secs(5 * 60);
/// How soon after the cloud did not answer.
const RETRY: Duration = Duration::from_secs(15);

pub(super) struct Classes<P> {
    provider: Arc<P>,
    writer: Writer,
    permit: Permit,
    answers: mpsc::UnboundedSender<Answer>,
    /// As they are.
    manifests: BTreeMap<ClassName, Value>,
    resolving: BTreeSet<ClassName>,
    /// The specification that was resolved last, and when the next time is.
    resolved: BTreeMap<ClassName, (Arc<Value>, Timestamp)>,
    has_changed: bool,
    tasks: JoinSet<Resolved>,
}

struct Resolved {
    class: ClassName,
    spec: Arc<Value>,
    status: Option<crate::model::class::ClassStatus>,
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
            resolving: BTreeSet::new(),
            resolved: BTreeMap::new(),
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
            None => drop(self.manifests.remove(&name)),
        }
        self.has_changed = true;
    }

    /// What a class selects has come back.
    pub async fn tend(&mut self) {
        let Some(done) = self.tasks.join_next().await else { return std::future::pending().await };
        let Ok(Resolved { class, spec, status }) = done else { return };
        self.resolving.remove(&class);
        let wait = if status.is_some() { REPEAT } else { RETRY };
        let next = clock::now().saturating_add(wait).unwrap_or(Timestamp::MAX);
        self.resolved.insert(class, (spec, next));
        if let (Some(found), Some(object)) = (status, self.manifests.get(&class))
            && let Some(missing) = status::of_class(object, &found, clock::now())
        {
            self.write(class, missing);
        }
    }

    /// Starts what is due; when to be asked again.
    pub fn decide(&mut self, engine: &Engine, now: Timestamp) -> Option<Timestamp> {
        let has_changed = std::mem::take(&mut self.has_changed);
        for class in engine.own_classes() {
            let due = self
                .resolved
                .get(&class.name)
                .is_none_or(|(spec, next)| *next <= now || (has_changed && *spec != class.spec));
            if due && self.resolving.insert(class.name) {
                self.resolve(class.clone());
            }
        }
        engine.own_classes().filter_map(|class| self.resolved.get(&class.name)).map(|(_, next)| *next).min()
    }

    fn resolve(&mut self, class: Arc<NodeClass>) {
        let provider = self.provider.clone();
        self.tasks.spawn(async move {
            let answer = provider.resolve(class.clone()).await;
            if let Err(error) = &answer {
                tracing::warn!("what EC2NodeClass {} selects is not known: {error}", class.name);
            }
            Resolved { class: class.name, spec: class.spec.clone(), status: answer.ok() }
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
