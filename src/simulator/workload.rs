//! Controllers of pods: so many alike, made again when they go.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::model::name::{ObjectKey, Uid};
use crate::model::pod::{Owner, Pod, PodShape};

/// What kind of controller keeps the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// A Deployment: pods are replaced when they go.
    Deployment,
    /// A Job: every pod runs once for so long and is done. It ends when so many have succeeded; without a number, no more are
    /// made once one has.
    Job { runs_for: SignedDuration, completions: Option<u32> },
}

/// Pods that somebody wants.
#[derive(Clone, Debug)]
pub struct Workload {
    pub key: ObjectKey,
    pub kind: WorkloadKind,
    pub shape: Arc<PodShape>,
    pub replicas: u32,
    /// Its pods end only when they are killed.
    pub ignores_sigterm: bool,
    /// Pods made so far, for their names.
    pub(super) made: u64,
    /// Pods of a Job that have succeeded.
    pub(super) succeeded: u32,
}

impl Workload {
    pub fn new(key: ObjectKey, kind: WorkloadKind, shape: Arc<PodShape>, replicas: u32) -> Self {
        Self { key, kind, shape, replicas, ignores_sigterm: false, made: 0, succeeded: 0 }
    }

    pub(super) fn uid(&self) -> Uid {
        Uid::new(&format!("{}-uid", self.key))
    }

    /// Its next pod, not looked at by the scheduler yet.
    pub(super) fn next_pod(&mut self, now: Timestamp) -> Pod {
        self.made += 1;
        let name = format!("{}-{}", self.key.name, self.made);
        let (kind, api_version) = match self.kind {
            WorkloadKind::Deployment => ("ReplicaSet", "apps/v1"),
            WorkloadKind::Job { .. } => ("Job", "batch/v1"),
        };
        let owner = Owner {
            kind: kind.into(),
            api_version: api_version.into(),
            name: self.key.name,
            uid: self.uid(),
            is_controller: true,
        };
        new_pod(ObjectKey::new(self.key.namespace.as_str(), &name), self.shape.clone(), owner, now)
    }

    /// Whether a pod is one of those that it wants so many of.
    pub(super) fn counts(&self, pod: &Pod) -> bool {
        let is_mine = pod.controller().is_some_and(|owner| owner.uid == self.uid());
        is_mine && pod.is_active()
    }

    /// How many pods it wants now, `running` of which are there.
    fn wanted(&self, running: usize) -> usize {
        let at_once = self.replicas as usize;
        match self.kind {
            WorkloadKind::Deployment => at_once,
            WorkloadKind::Job { completions: Some(all), .. } => {
                at_once.min(all.saturating_sub(self.succeeded) as usize)
            }
            WorkloadKind::Job { completions: None, .. } if self.succeeded > 0 => at_once.min(running),
            WorkloadKind::Job { completions: None, .. } => at_once,
        }
    }

    /// How its pods must change: so many to make, and these to delete, those that wait first, then the youngest. `mine` are
    /// the pods that count.
    pub(super) fn correction(&self, mine: &BTreeSet<ObjectKey>, cluster: &Cluster) -> (u32, Vec<ObjectKey>) {
        let wanted = self.wanted(mine.len());
        if mine.len() <= wanted {
            return ((wanted - mine.len()) as u32, Vec::new());
        }
        let mut mine: Vec<&Arc<Pod>> = mine.iter().filter_map(|key| cluster.pods.get(key)).collect();
        mine.sort_by_key(|pod| (pod.node.is_some(), std::cmp::Reverse(pod.created), pod.key));
        (0, mine.iter().take(mine.len() - wanted).map(|pod| pod.key).collect())
    }
}

pub(super) fn new_pod(key: ObjectKey, shape: Arc<PodShape>, owner: Owner, now: Timestamp) -> Pod {
    let uid = Uid::new(&format!("{key}-uid"));
    Pod { created: Some(now), ..Pod::new(key, uid, shape, vec![owner]) }
}
