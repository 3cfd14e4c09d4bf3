//! The room of a new node is kept for the pods that it was bought for.
//!
//! A node opens to every pod that waits: kube-scheduler spreads small ones over it, those that it was bought for find it full,
//! and another is bought for them. A pod's `status.nominatedNodeName` makes kube-scheduler try that node first for the pod,
//! and keep its room from pods of the same or a lower priority (KEP-1923; KEP-5278 says that a provisioner may write it).
//! It stays a wish: kube-scheduler clears it when it tries the pod before the node is ready, and a pod that does not fit there
//! after all is placed like any other, by kube-scheduler and by us.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::decision::Steps;
use super::plans::Plans;
use crate::model::action::Action;
use crate::model::claim::ConditionType;
use crate::model::name::{ClaimName, NodeName, ObjectKey, Uid};
use crate::model::pod::Pod;

/// So long after a node is ready for pods kube-scheduler has surely tried it.
const PATIENCE: SignedDuration = SignedDuration::from_secs(20);

#[derive(Clone, Debug)]
pub(crate) struct Nominations {
    /// If not, nobody is told.
    is_wanted: bool,
    /// Waiting pods whose nomination is from us.
    told: BTreeMap<Uid, NodeName>,
}

impl Nominations {
    pub fn new(is_wanted: bool) -> Self {
        Self { is_wanted, told: BTreeMap::new() }
    }

    /// The machine of `claim` has become `node`: the pods that are planned there are told before it opens to all, and have their
    /// room from now on.
    pub fn tell(&mut self, plans: &Plans, claim: ClaimName, node: NodeName, cluster: &mut Cluster) -> Steps {
        let mut steps = Steps::default();
        for key in plans.pods_of(claim).filter(|_| self.is_wanted) {
            let waiting = cluster.pods.get(&key).filter(|pod| pod.node.is_none() && pod.deleted.is_none());
            let Some(pod) = waiting.filter(|pod| pod.nominated_node.is_none()) else { continue };
            let uid = pod.uid;
            self.told.insert(uid, node);
            cluster.expect(key, node);
            let message = format!("{claim} was bought for it");
            steps.push(Action::NominatePod { pod: key, uid, node }, "Nominated", message);
        }
        steps
    }

    /// Lets those wait again whose node is no more, or has been open to them for long enough; when the next ones are due.
    pub fn give_up(&self, cluster: &mut Cluster, now: Timestamp) -> (Vec<ObjectKey>, Option<Timestamp>) {
        let (mut void, mut next) = (Vec::new(), None::<Timestamp>);
        for (name, pods) in cluster.hosts() {
            let node = cluster.nodes.get(&name).filter(|node| node.deleted.is_none());
            let claim = node.and_then(|node| cluster.claim_of(node)).filter(|claim| claim.deleted.is_none());
            match claim.map(|claim| claim.conditions.true_since(ConditionType::Initialized)) {
                Some(None) => {}
                Some(Some(since)) if now < since + PATIENCE => {
                    next = Some(next.map_or(since + PATIENCE, |next| next.min(since + PATIENCE)));
                }
                Some(Some(_)) | None => void.extend(pods),
            }
        }
        void.iter().for_each(|pod| cluster.expect_no_more(*pod));
        (void, next)
    }

    /// `pod` as it counts: one that we nominated waits like any other until it is bound. One that kube-scheduler nominated
    /// puts others out and needs nothing.
    pub fn as_counted(&self, pod: Arc<Pod>) -> Arc<Pod> {
        match pod.nominated_node.is_some() && self.told.get(&pod.uid) == pod.nominated_node.as_ref() {
            true => Arc::new(Pod { nominated_node: None, ..(*pod).clone() }),
            false => pod,
        }
    }

    /// Takes over what a former process nominated; pods that count otherwise from now on. Who nominated is not written
    /// anywhere, but those whom kube-scheduler puts out are still leaving that node.
    pub fn take_over(&mut self, cluster: &Cluster) -> Vec<Arc<Pod>> {
        if !self.is_wanted {
            return Vec::new();
        }
        let nominated = cluster.pods.values().filter(|pod| pod.node.is_none() && pod.deleted.is_none());
        let ours = nominated.filter_map(|pod| {
            let node = pod.nominated_node?;
            let is_left = cluster.pods_of(node).any(|other| other.deleted.is_some());
            (!is_left).then_some((pod.clone(), node))
        });
        let ours: Vec<(Arc<Pod>, NodeName)> = ours.collect();
        self.told.extend(ours.iter().map(|(pod, node)| (pod.uid, *node)));
        ours.into_iter().map(|(pod, _)| self.as_counted(pod)).collect()
    }

    /// `pod` runs somewhere, or is gone.
    pub fn forget(&mut self, pod: &Pod) {
        self.told.remove(&pod.uid);
    }
}
