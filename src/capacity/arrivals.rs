//! Pods that are yet to be made.
//!
//! Who scales a Deployment to thousands of pods gets them one after the other, for seconds or minutes: kube-controller-manager makes
//! no more at a time. Machines that are bought when the last of them is there come so much later. So once pods of a ReplicaSet
//! wait, those that it still lacks are planned with them, as far as they are made while a machine boots. A stand-in is planned
//! for each; it exists nowhere else, and the next pod that is made takes over its place.
//!
//! A pod may never come: a quota refuses it, or somebody changes his mind. Then nobody stands in for it any more, and what
//! was bought goes the way of any other empty node. Two things keep that small: a set that the API server refused a pod stops to
//! count at once, and no more is bought than comes within [`AHEAD`] at the set's own pace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use crate::model::buffer::Scalable;
use crate::model::name::{ObjectKey, Uid};
use crate::model::pod::{Owner, Pod, PodShape, PodVolume};
use crate::model::symbol::Symbol;

/// What makes the pods that are foreseen. A StatefulSet mostly waits for each of its pods, and a Job may end before its last.
const KIND: &str = "ReplicaSet";
/// From a set that made no pod for so long none is expected. An API server with next to no processor left takes a second for one.
const PAUSE_MOST: SignedDuration = SignedDuration::from_secs(5);
/// Pods count that come within so long, if the set goes on as it does: whoever comes while machines boot loses nothing. On EC2 it was
/// measured to take 45 to 65 seconds (<https://kube.fm/faster-eks-node-and-pod-startup-jan>).
const AHEAD: SignedDuration = SignedDuration::from_secs(45);
/// A set that lost a pod so lately makes it anew, and it was planned for where it was.
const LOSING: SignedDuration = SignedDuration::from_secs(30);
/// A set that turns out to be quicker is planned for once more when so many more of its pods come in that time. As many fill machines of
/// their own.
const BEHIND: usize = 100;

#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    /// ReplicaSets that have pods.
    sets: BTreeMap<ObjectKey, Set>,
    /// Those that made some lately, or have stand-ins.
    making: BTreeSet<ObjectKey>,
    /// Stand-ins that stand for nobody any more.
    outdated: Vec<ObjectKey>,
    /// By stand-in: its set.
    stand_ins: BTreeMap<ObjectKey, ObjectKey>,
}

#[derive(Clone, Debug, Default)]
struct Set {
    /// Its pods that are neither finished nor on their way out.
    pods: u32,
    streak: Option<Streak>,
    stand_ins: BTreeSet<ObjectKey>,
    /// When it last lost a pod: as many are made anew, and planned for where they were.
    lost: Option<Timestamp>,
    /// How many stand-ins there were.
    named: u64,
}

/// Pods that were made without a long pause.
#[derive(Clone, Debug)]
struct Streak {
    first: Timestamp,
    last: Timestamp,
    made: u32,
    foremost: Uid,
    shape: Arc<PodShape>,
    owner: Owner,
}

impl Streak {
    /// When nothing is expected any more if nothing comes.
    fn end(&self) -> Timestamp {
        self.last + PAUSE_MOST
    }

    /// One that has yet to come, as it will wait.
    fn pod(&self, stand_in: ObjectKey) -> Arc<Pod> {
        let pod = Pod::new(stand_in, Uid(stand_in.name), self.shape.clone(), vec![self.owner]);
        Arc::new(Pod { is_unschedulable: true, ..pod })
    }

    /// How many are waited for at the most: a set that slows down is given twice as long.
    fn most_ahead(&self, now: Timestamp) -> Option<u32> {
        (now >= self.first + AHEAD).then(|| self.ahead(now).saturating_mul(2))
    }

    /// How many more come within [`AHEAD`].
    fn ahead(&self, now: Timestamp) -> u32 {
        let lasted = now.duration_since(self.first).as_millis().max(1_000);
        let ahead = i128::from(self.made) * AHEAD.as_millis() / lasted;
        u32::try_from(ahead).unwrap_or(u32::MAX)
    }
}

impl Set {
    /// How many pods that it is about to make are to be planned for: their equals wait.
    fn wanted(&self, key: &ObjectKey, cluster: &Cluster, now: Timestamp) -> usize {
        let streak = self.streak.as_ref().filter(|streak| cluster.wait_as(&streak.shape));
        streak.map_or(0, |streak| self.lacks(key, cluster, now).min(streak.ahead(now)) as usize)
    }

    /// How many pods it is about to make: none if it cannot.
    fn lacks(&self, key: &ObjectKey, cluster: &Cluster, now: Timestamp) -> u32 {
        let is_losing = self.lost.is_some_and(|lost| now < lost + LOSING);
        let is_making = !is_losing && self.streak.as_ref().is_some_and(|streak| now < streak.end());
        let scalable = scalable_of(key, cluster).filter(|scalable| is_making && !scalable.is_refused);
        scalable.map_or(0, |scalable| scalable.replicas.saturating_sub(self.pods))
    }
}

impl Arrivals {
    /// A pod was seen at `at`, which was known as `former`; who stood in for it.
    pub fn see(&mut self, former: Option<&Arc<Pod>>, pod: &Arc<Pod>, at: Timestamp) -> Option<ObjectKey> {
        let known = former.filter(|former| former.uid == pod.uid);
        let is_same = |known: &Pod| known.is_active() == pod.is_active() && set_of(known) == set_of(pod);
        if known.is_some_and(|known| is_same(known)) {
            return None;
        }
        former.into_iter().for_each(|former| self.see_gone(former));
        let (key, owner) = set_of(pod)?;
        if !pod.is_active() {
            self.sets.get_mut(&key).into_iter().for_each(|set| set.lost = Some(at));
            return None;
        }
        let set = self.sets.entry(key).or_default();
        set.pods += 1;
        if known.is_some() || !is_followed(pod) {
            return None;
        }
        match set.streak.as_mut().filter(|streak| at < streak.end() && streak.shape == pod.shape) {
            Some(streak) => {
                (streak.first, streak.last) = (streak.first.min(at), streak.last.max(at));
                streak.made += 1;
            }
            None => {
                let (shape, owner) = (pod.shape.clone(), *owner);
                set.streak = Some(Streak { first: at, last: at, made: 1, foremost: pod.uid, shape, owner });
                self.making.insert(key);
                // They stood in for pods that were otherwise.
                self.outdated.extend(std::mem::take(&mut set.stand_ins));
            }
        }
        let stand_in = set.stand_ins.pop_first()?;
        self.stand_ins.remove(&stand_in);
        Some(stand_in)
    }

    /// Whether `pod` was to be expected: its set has made others before, and wants as many.
    pub fn announced(&self, pod: &Pod, cluster: &Cluster) -> bool {
        let Some((key, _)) = set_of(pod) else { return false };
        let streak = self.sets.get(&key).and_then(|set| Some((set, set.streak.as_ref()?)));
        let scalable = scalable_of(&key, cluster).filter(|scalable| !scalable.is_refused);
        streak.zip(scalable).is_some_and(|((set, streak), scalable)| {
            streak.foremost != pod.uid && streak.shape == pod.shape && set.pods <= scalable.replicas
        })
    }

    /// `former` is no more.
    pub fn see_gone(&mut self, former: &Pod) {
        let Some((key, _)) = set_of(former).filter(|_| former.is_active()) else { return };
        let Some(set) = self.sets.get_mut(&key) else { return };
        set.pods = set.pods.saturating_sub(1);
        if set.pods == 0 && set.stand_ins.is_empty() {
            self.sets.remove(&key);
            self.making.remove(&key);
        }
    }

    /// One for each pod that is about to be made and is to be planned for: its equals wait.
    pub fn stand_ins(&mut self, cluster: &Cluster, now: Timestamp) -> Vec<Arc<Pod>> {
        let mut all = Vec::new();
        for key in &self.making {
            let Some(set) = self.sets.get_mut(key) else { continue };
            let wanted = set.wanted(key, cluster, now);
            let Some(streak) = set.streak.as_ref() else { continue };
            while set.stand_ins.len() < wanted {
                set.named = if set.stand_ins.is_empty() { 1 } else { set.named + 1 };
                // No object can have this name, and it comes after those of the set's own pods.
                let name = Symbol::new(&format!("{}~{:05}", key.name, set.named));
                set.stand_ins.insert(ObjectKey { namespace: key.namespace, name });
            }
            self.stand_ins.extend(set.stand_ins.iter().map(|stand_in| (*stand_in, *key)));
            all.extend(set.stand_ins.iter().map(|stand_in| streak.pod(*stand_in)));
        }
        all
    }

    /// Those that there are.
    pub fn standing(&self) -> impl Iterator<Item = Arc<Pod>> {
        let sets = self.making.iter().filter_map(|key| self.sets.get(key));
        let streaks = sets.filter_map(|set| Some((set.streak.as_ref()?, &set.stand_ins)));
        streaks.flat_map(|(streak, stand_ins)| stand_ins.iter().map(|stand_in| streak.pod(*stand_in)))
    }

    /// A set of which many more pods are to be planned for than were when it had made fewer.
    pub fn behind(&self, cluster: &Cluster, now: Timestamp) -> Option<Uid> {
        let sets = self.making.iter().filter_map(|key| Some((key, self.sets.get(key)?)));
        let mut planned = sets.filter(|(_, set)| !set.stand_ins.is_empty());
        let (_, behind) =
            planned.find(|(key, set)| set.wanted(key, cluster, now) >= set.stand_ins.len() + BEHIND)?;
        behind.streak.as_ref().map(|streak| streak.owner.uid)
    }

    /// Whether nobody stands in for anybody.
    pub fn is_empty(&self) -> bool {
        self.stand_ins.is_empty()
    }

    /// Whether it is one.
    pub fn stands_in(&self, pod: &ObjectKey) -> bool {
        self.stand_ins.contains_key(pod)
    }

    /// Stand-ins for pods that will not come, which are none any more.
    pub fn give_up(&mut self, cluster: &Cluster, now: Timestamp) -> Vec<ObjectKey> {
        let mut void = std::mem::take(&mut self.outdated);
        let sets = &mut self.sets;
        self.making.retain(|key| {
            let Some(set) = sets.get_mut(key) else { return false };
            let most = set.streak.as_ref().and_then(|streak| streak.most_ahead(now)).unwrap_or(u32::MAX);
            let most = set.lacks(key, cluster, now).min(most) as usize;
            while set.stand_ins.len() > most {
                void.extend(set.stand_ins.pop_last());
            }
            if set.streak.as_ref().is_some_and(|streak| streak.end() <= now) {
                set.streak = None;
            }
            if set.pods == 0 && set.streak.is_none() {
                sets.remove(key);
                return false;
            }
            set.streak.is_some()
        });
        for stand_in in &void {
            self.stand_ins.remove(stand_in);
        }
        void
    }

    /// When the next stand-in is given up if no pod comes.
    pub fn next(&self) -> Option<Timestamp> {
        let sets = self.making.iter().filter_map(|key| self.sets.get(key));
        let awaited = sets.filter(|set| !set.stand_ins.is_empty());
        awaited.filter_map(|set| set.streak.as_ref().map(Streak::end)).min()
    }
}

/// Whether others like `pod` can be planned for before they are there. One that is held back by a gate may wait for hours, and a
/// volume of its own is made after the pod.
fn is_followed(pod: &Pod) -> bool {
    let is_own = |volume: &PodVolume| matches!(volume, PodVolume::Ephemeral { .. });
    pod.needs_place() && !pod.shape.volumes.iter().any(is_own)
}

/// The ReplicaSet that made `pod`.
fn set_of(pod: &Pod) -> Option<(ObjectKey, &Owner)> {
    let owner =
        pod.controller().filter(|owner| &*owner.kind == KIND && owner.api_version.starts_with("apps/"))?;
    Some((ObjectKey { namespace: pod.key.namespace, name: owner.name }, owner))
}

fn scalable_of<'c>(set: &ObjectKey, cluster: &'c Cluster) -> Option<&'c Arc<Scalable>> {
    cluster.scalables.get(&(Symbol::new(KIND), *set))
}
