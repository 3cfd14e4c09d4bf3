//! Moves that were to save money and saved little: pods had to leave their nodes, and at least half as many were bought for their like.
//!
//! kube-scheduler puts pods where it likes. One may take the room that was meant for another, which then needs a new node; what
//! stands empty then would be given back in the same way, again and again. So the nodes with pods of that kind are left alone
//! for an hour, and for a week if it happens again. The memory is that of the process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::model::name::{ObjectKey, Uid};
use crate::model::pod::Pod;

/// Who needs a node so soon after a move needs it because of the move: by then the last pods of most nodes have left.
const LINKED_FOR: SignedDuration = SignedDuration::from_mins(30);
/// As much as the clocks of a process and of the API server usually differ; the latter tells whole seconds.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(2);
/// How long nodes are left alone whose pods moved in vain, the first time.
pub const LEFT_ALONE: SignedDuration = SignedDuration::from_hours(1);
const AGAIN: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Who was moved in vain once, and long ago, begins anew.
const REMEMBERED_FOR: SignedDuration = SignedDuration::from_hours(24);

#[derive(Clone, Debug, Default)]
pub(super) struct Regrets {
    /// By the controller of pods that were moved lately.
    moved: BTreeMap<Uid, Moves>,
    /// How long the nodes with its pods are left alone, and how long that is remembered.
    kept: BTreeMap<Uid, Regret>,
}

/// Moves of pods of one controller, and what they came to.
#[derive(Clone, Debug, Default)]
struct Moves {
    /// How many of its pods had a node when some were moved last.
    pods: usize,
    /// Those that had to move, and when.
    moved: BTreeMap<Uid, Timestamp>,
    /// How many nodes fewer there were after each, or more.
    nodes: VecDeque<(Timestamp, i64)>,
}

impl Moves {
    fn note(&mut self, nodes: i64, now: Timestamp) {
        self.forget(now);
        self.nodes.push_back((now, nodes));
    }

    fn forget(&mut self, now: Timestamp) {
        self.moved.retain(|_, at| now < *at + LINKED_FOR);
        self.nodes.retain(|(at, _)| now < *at + LINKED_FOR);
    }

    /// Whether `pod` needs a place because of a move: it has to move itself, or could be there in place of one that was moved, because it
    /// was not made before.
    fn has_to_do_with(&self, pod: &Pod) -> bool {
        let began = self.nodes.front().map(|(at, _)| *at);
        began.zip(pod.created).is_none_or(|(began, created)| began <= created + CLOCKS_DIFFER)
            || self.moved.contains_key(&pod.uid)
    }

    /// Whether at least half of what they gave back was bought again.
    fn are_in_vain(&self) -> bool {
        let of = |sign: i64| self.nodes.iter().map(|(_, nodes)| (sign * nodes).max(0)).sum::<i64>();
        let (given_back, bought) = (of(1), of(-1));
        2 * bought >= given_back
    }
}

#[derive(Clone, Copy, Debug)]
struct Regret {
    until: Timestamp,
    forgotten: Timestamp,
}

impl Regrets {
    /// `pods` are moved to save money, which takes so many `nodes` more than it brings.
    pub fn note_moved(
        &mut self,
        pods: impl Iterator<Item = ObjectKey>,
        nodes: i64,
        cluster: &Cluster,
        now: Timestamp,
    ) {
        self.moved.retain(|_, moves| {
            moves.forget(now);
            !moves.nodes.is_empty()
        });
        let mut moved: BTreeMap<Uid, Vec<Uid>> = BTreeMap::new();
        for pod in pods.filter_map(|key| cluster.pods.get(&key)) {
            if let Some(controller) = pod.controller() {
                moved.entry(controller.uid).or_default().push(pod.uid);
            }
        }
        let mut counts: BTreeMap<Uid, usize> = moved.keys().map(|controller| (*controller, 0)).collect();
        // Those that waited for a node then need one anyway.
        count(cluster, &mut counts, |pod| pod.node.is_some());
        for (controller, pods) in counts {
            let moves = self.moved.entry(controller).or_default();
            moves.pods = pods;
            moves.note(nodes, now);
            moves.moved.extend(moved[&controller].iter().map(|pod| (*pod, now)));
        }
    }

    /// Nodes are bought, each for some pods: where that takes back half of what was saved by moving pods of a controller lately, and it has no
    /// more pods than had a node then, they were moved in vain.
    pub fn note_bought<'p, P: Iterator<Item = &'p Arc<Pod>>>(
        &mut self,
        nodes: impl Iterator<Item = P>,
        cluster: &Cluster,
        now: Timestamp,
    ) {
        let mut bought: BTreeMap<Uid, i64> = BTreeMap::new();
        for pods in nodes {
            let linked = pods.filter_map(|pod| {
                let controller = pod.controller()?.uid;
                self.moved.get(&controller)?.has_to_do_with(pod).then_some(controller)
            });
            for controller in linked.collect::<BTreeSet<Uid>>() {
                *bought.entry(controller).or_default() += 1;
            }
        }
        let mut counts: BTreeMap<Uid, usize> = bought.keys().map(|controller| (*controller, 0)).collect();
        count(cluster, &mut counts, |_| true);
        for (controller, pods) in counts {
            let Some(moves) = self.moved.get_mut(&controller).filter(|moves| pods <= moves.pods) else {
                continue;
            };
            moves.forget(now);
            if moves.nodes.is_empty() {
                continue;
            }
            moves.note(-bought[&controller], now);
            if moves.are_in_vain() {
                self.moved.remove(&controller);
                let is_repeated = self.kept.get(&controller).is_some_and(|known| now < known.forgotten);
                let until = now + if is_repeated { AGAIN } else { LEFT_ALONE };
                self.kept.insert(controller, Regret { until, forgotten: until + REMEMBERED_FOR });
            }
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

    /// Whether a move that gives back so many `nodes` is regretted after which `later` is there for a node that is bought, `before` having
    /// been there when it began.
    fn is_regretted(nodes: i64, before: &[Arc<Pod>], later: &[Arc<Pod>]) -> bool {
        let now = Timestamp::UNIX_EPOCH;
        let (mut regrets, mut cluster) = (Regrets::default(), Cluster::default());
        before.iter().for_each(|pod| cluster.put_pod(pod.clone()));
        regrets.note_moved([before[0].key].into_iter(), nodes, &cluster, now);
        cluster.remove_pod(before[0].key);
        later.iter().for_each(|pod| cluster.put_pod(pod.clone()));
        regrets.note_bought([later.iter()].into_iter(), &cluster, now + SignedDuration::from_mins(1));
        !regrets.at(now + SignedDuration::from_mins(30)).is_empty()
    }

    #[test]
    fn a_node_for_one_that_came_in_place_of_one_that_was_moved_is_regretted() {
        let before = [pod("a", Some("x")), pod("b", Some("y"))];
        assert!(is_regretted(1, &before, &[pod("c", None)]));
        assert!(is_regretted(0, &before, &[pod("c", None)]), "a cheaper node came for it");
        assert!(!is_regretted(3, &before, &[pod("c", None)]), "two of three nodes were saved");
    }

    #[test]
    fn a_node_for_one_that_was_made_before_is_not() {
        let before = [pod("a", Some("x")), pod("b", Some("y"))];
        let made = |seconds: i64| {
            let created = Some(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds));
            Arc::new(Pod { created, ..(*pod("c", None)).clone() })
        };
        assert!(is_regretted(1, &before, &[made(1)]));
        assert!(!is_regretted(1, &before, &[made(-60)]), "its room was lost in another way");
    }

    #[test]
    fn a_node_for_one_that_has_to_move_and_has_not_left_yet_is_regretted() {
        let made_before = |name: &str, node: &str| {
            let created = Some(Timestamp::UNIX_EPOCH - SignedDuration::from_mins(1));
            Arc::new(Pod { created, ..(*pod(name, Some(node))).clone() })
        };
        let before = [made_before("a", "x"), made_before("b", "y")];
        let regrets = |needs: &Arc<Pod>| {
            let now = Timestamp::UNIX_EPOCH;
            let (mut regrets, mut cluster) = (Regrets::default(), Cluster::default());
            before.iter().for_each(|pod| cluster.put_pod(pod.clone()));
            regrets.note_moved([before[0].key].into_iter(), 1, &cluster, now);
            regrets.note_bought(
                [[needs].into_iter()].into_iter(),
                &cluster,
                now + SignedDuration::from_mins(1),
            );
            !regrets.at(now + SignedDuration::from_mins(30)).is_empty()
        };
        assert!(regrets(&before[0]), "its room was taken before it came");
        assert!(!regrets(&before[1]), "it has to leave for another reason");
    }

    #[test]
    fn a_node_for_one_that_waited_already_or_came_besides_is_not() {
        let before = [pod("a", Some("x")), pod("b", Some("y")), pod("waits", None)];
        assert!(!is_regretted(1, &before, &[pod("c", None)]), "it waited while others were moved");
        let two = [pod("c", None), pod("d", None)];
        assert!(!is_regretted(1, &before[..2], &two), "there are more of them now");
    }
}
