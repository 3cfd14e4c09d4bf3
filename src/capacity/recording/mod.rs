//! What an engine was told and what it decided, in order, as lines of JSON: enough for another engine to decide the same again.
//!
//! A recording is a list of segments. Each begins with a [`Header`] that says how the engine behaves; those after the first go on
//! with a picture of the objects as they were, so that a segment can be read when the ones before it are gone. Pods name their
//! shape by a number, and of a catalogue only what changed is written: both would be most of the text otherwise. Nothing secret
//! comes in: of pods the model keeps no variables, Secrets are never observed, and user data is replaced by its digest.

mod scribe;
mod reader;
mod decided;
mod key;
mod moments;

use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::decision::Decision;
use super::engine::EngineSettings;
use crate::model::observation::Observation;

pub use decided::{Abridger, Beaten, Decided, Done, Kept, Purchase, Started, Stayed};
pub use key::Key;
pub use reader::{Glance, Line, PodGlance, Reader, Unreadable, glance};
pub use scribe::{Page, Scribe, is_turn, subjects_of};

/// The form of the lines. A reader refuses newer ones.
pub const FORMAT: u32 = 1;

/// How a segment begins.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    pub format: u32,
    /// The version of the program.
    pub provisor: String,
    /// The life of the engine that it belongs to.
    pub run: String,
    /// Its place in that life, from 0.
    pub segment: u32,
    pub environment: String,
    pub is_simulated: bool,
    pub joins: Joins,
    pub settings: EngineSettings,
}

/// How a segment joins what was before it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Joins {
    /// Nothing was: the engine begins here.
    Beginning,
    /// The segment before it, without anything missing.
    Previous,
    /// Something was not recorded, for this reason.
    Gap(String),
}

/// The commit by which the cluster is kept.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Committed {
    pub id: Arc<str>,
    /// The first line of its message; empty where nobody knows.
    pub subject: Arc<str>,
}

/// What is recorded.
#[derive(Clone, Debug)]
pub enum Event {
    Seen {
        at: Timestamp,
        what: Observation,
    },
    Decided {
        at: Timestamp,
        decision: Decision,
    },
    /// The Git half has applied a commit.
    Committed {
        at: Timestamp,
        commit: Committed,
    },
}

/// The objects of a cluster as the news that would lead to them; a catalogue first, because prices are asked for at once.
pub fn picture(cluster: &Cluster) -> Vec<Observation> {
    let mut news: Vec<Observation> = Vec::new();
    news.extend(cluster.catalog.iter().cloned().map(Observation::Catalog));
    news.extend(cluster.pools.values().cloned().map(Observation::Pool));
    news.extend(cluster.classes.values().cloned().map(Observation::Class));
    news.extend(cluster.overlays.values().cloned().map(Observation::Overlay));
    news.extend(cluster.claims.values().cloned().map(Observation::Claim));
    news.extend(cluster.nodes.values().cloned().map(Observation::Node));
    news.extend(cluster.namespaces.values().cloned().map(Observation::Namespace));
    news.extend(cluster.storage_classes.values().cloned().map(Observation::StorageClass));
    news.extend(cluster.volumes.values().cloned().map(Observation::Volume));
    news.extend(cluster.volume_claims.values().cloned().map(Observation::VolumeClaim));
    news.extend(cluster.csi_nodes.values().cloned().map(Observation::CsiNode));
    news.extend(cluster.attachments.values().cloned().map(Observation::VolumeAttachment));
    news.extend(cluster.daemon_sets.values().cloned().map(Observation::DaemonSet));
    news.extend(cluster.budgets.values().cloned().map(Observation::Budget));
    news.extend(cluster.services.values().cloned().map(Observation::Service));
    news.extend(cluster.scalables.values().cloned().map(Observation::Scalable));
    news.extend(cluster.pod_templates.values().cloned().map(Observation::PodTemplate));
    news.extend(cluster.buffers.values().cloned().map(Observation::Buffer));
    news.extend(cluster.pods.values().cloned().map(Observation::Pod));
    news.push(Observation::Synced);
    news
}
