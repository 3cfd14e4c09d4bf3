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
    /// By the controller of pods that were moved last: when, and how many pods it had.
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
        count(cluster, &mut counts);
        self.moved.extend(counts.into_iter().map(|(controller, pods)| (controller, (now, pods))));
    }

    /// A node is bought for `pods`: those of a controller that has no more pods than when some of them were moved were moved in vain.
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
        count(cluster, &mut counts);
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

/// How many pods of each of these controllers run or want to.
fn count(cluster: &Cluster, counts: &mut BTreeMap<Uid, usize>) {
    if counts.is_empty() {
        return;
    }
    for pod in cluster.pods.values().filter(|pod| pod.is_active()) {
        if let Some(count) = pod.controller().and_then(|controller| counts.get_mut(&controller.uid)) {
            *count += 1;
        }
    }
}
