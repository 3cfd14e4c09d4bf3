//! Moves that were to save money and saved none: pods had to leave their node, and another one was bought for their like.
//!
//! kube-scheduler puts pods where it likes. One may take the room that was meant for another, which then needs a new node; what
//! stands empty then would be given back in the same way, again and again. So the nodes with pods of that kind are left alone
//! for an hour, and for a week if it happens again. The memory is that of the process.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::model::name::{ObjectKey, Uid};
use crate::model::pod::Pod;

/// Who needs a node so soon after a move needs it because of the move: by then the last pods of most nodes have left.
const LINKED_FOR: SignedDuration = SignedDuration::from_mins(30);
const FIRST: SignedDuration = SignedDuration::from_hours(1);
const AGAIN: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Who was moved in vain once, and long ago, begins anew.
const REMEMBERED_FOR: SignedDuration = SignedDuration::from_hours(24);

#[derive(Clone, Debug, Default)]
pub(super) struct Regrets {
    /// By the controller of pods that were moved last: when, and how many of its pods had a node.
    moved: BTreeMap<Uid, (Timestamp, usize)>,
    /// How long the nodes with its pods are left alone, and how long that is remembered.
    kept: BTreeMap<Uid, Regret>,
}

#[derive(Clone, Copy, Debug)]
struct Regret {
    until: Timestamp,
    forgotten: Timestamp,
}

impl Regrets {
    /// `pods` are moved to save money.
    pub fn note_moved(&mut self, pods: impl Iterator<Item = ObjectKey>, cluster: &Cluster, now: Timestamp) {
        self.moved.retain(|_, (at, _)| now < *at + LINKED_FOR);
        let mut counts: BTreeMap<Uid, usize> =
            pods.filter_map(|key| Some((cluster.pods.get(&key)?.controller()?.uid, 0))).collect();
        // Those that waited for a node then need one anyway.
        count(cluster, &mut counts, |pod| pod.node.is_some());
        self.moved.extend(counts.into_iter().map(|(controller, pods)| (controller, (now, pods))));
    }

    /// A node is bought for `pods`: those of a controller that has no more pods than had a node when some of them were moved were moved in vain.
    pub fn note_bought<'p>(
        &mut self,
        pods: impl Iterator<Item = &'p Pod>,
        cluster: &Cluster,
        now: Timestamp,
    ) {
        let controllers = pods.filter_map(|pod| Some(pod.controller()?.uid));
        let linked = controllers
            .filter(|controller| self.moved.get(controller).is_some_and(|(at, _)| now < *at + LINKED_FOR));
        let mut counts: BTreeMap<Uid, usize> = linked.map(|controller| (controller, 0)).collect();
        count(cluster, &mut counts, |_| true);
        for (controller, pods) in counts {
            if self.moved.get(&controller).is_none_or(|(_, before)| pods > *before) {
                continue;
            }
            self.moved.remove(&controller);
            let is_repeated = self.kept.get(&controller).is_some_and(|known| now < known.forgotten);
            let until = now + if is_repeated { AGAIN } else { FIRST };
            self.kept.insert(controller, Regret { until, forgotten: until + REMEMBERED_FOR });
        }
        self.kept.retain(|_, regret| now < regret.forgotten);
    }

    /// Controllers whose pods are not moved to save money, and until when.
    pub fn at(&self, now: Timestamp) -> BTreeMap<Uid, Timestamp> {
        let kept = self.kept.iter().filter(|(_, regret)| now < regret.until);
        kept.map(|(controller, regret)| (*controller, regret.until)).collect()
    }
}

/// How many pods of each of these controllers run or want to, of those that are `meant`.
fn count(cluster: &Cluster, counts: &mut BTreeMap<Uid, usize>, is_meant: impl Fn(&Pod) -> bool) {
    if counts.is_empty() {
        return;
    }
    for pod in cluster.pods.values().filter(|pod| pod.is_active() && is_meant(pod)) {
        if let Some(count) = pod.controller().and_then(|controller| counts.get_mut(&controller.uid)) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::pod::{Owner, PodShape};

    fn shape() -> PodShape {
        PodShape {
            namespace: "default".into(),
            labels: Default::default(),
            requests: Default::default(),
            node_selector: Default::default(),
            node_required: Vec::new(),
            node_preferred: Vec::new(),
            affinity_required: Vec::new(),
            affinity_preferred: Vec::new(),
            anti_affinity_required: Vec::new(),
            anti_affinity_preferred: Vec::new(),
            spreads: Vec::new(),
            tolerations: Vec::new(),
            host_ports: Vec::new(),
            volumes: Vec::new(),
            has_resource_claims: false,
            priority: 0,
            scheduler_name: "default-scheduler".into(),
            termination_grace_seconds: 30,
            do_not_disrupt: None,
            deletion_cost: 0,
        }
    }

    /// A pod of the one controller.
    fn pod(name: &str, node: Option<&str>) -> Arc<Pod> {
        let owner = Owner {
            kind: "ReplicaSet".into(),
            api_version: "apps/v1".into(),
            name: "web".into(),
            uid: "web-uid".into(),
            is_controller: true,
        };
        let new = Pod::new(ObjectKey::new("default", name), Uid::new(name), Arc::new(shape()), vec![owner]);
        Arc::new(Pod { node: node.map(Into::into), ..new })
    }

    /// Whether a move is regretted after which `later` is there for a node that is bought, `before` having been there when it began.
    fn is_regretted(before: &[Arc<Pod>], later: &[Arc<Pod>]) -> bool {
        let now = Timestamp::UNIX_EPOCH;
        let (mut regrets, mut cluster) = (Regrets::default(), Cluster::default());
        before.iter().for_each(|pod| cluster.put_pod(pod.clone()));
        regrets.note_moved([before[0].key].into_iter(), &cluster, now);
        cluster.remove_pod(before[0].key);
        later.iter().for_each(|pod| cluster.put_pod(pod.clone()));
        regrets.note_bought(later.iter().map(|pod| &**pod), &cluster, now + SignedDuration::from_mins(1));
        !regrets.at(now + SignedDuration::from_mins(30)).is_empty()
    }

    #[test]
    fn a_node_for_one_that_came_in_place_of_one_that_was_moved_is_regretted() {
        assert!(is_regretted(&[pod("a", Some("x")), pod("b", Some("y"))], &[pod("c", None)]));
    }

    #[test]
    fn a_node_for_one_that_waited_already_or_came_besides_is_not() {
        let before = [pod("a", Some("x")), pod("b", Some("y")), pod("waits", None)];
        assert!(!is_regretted(&before, &[pod("c", None)]), "it waited while others were moved");
        let two = [pod("c", None), pod("d", None)];
        assert!(!is_regretted(&before[..2], &two), "there are more of them now");
    }
}
