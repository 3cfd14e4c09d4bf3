//! Nodes that pods wait for open in waves, each as soon as all pods of its nodes were seen to know where they belong.
//!
//! kube-scheduler tries whoever is next: where a node opens while others have not heard of theirs, they take its room. So first all
//! pods are told for which there is a node, and then the nodes open. Those that get ready meanwhile make the next wave. A
//! node that comes alone is a wave of its own, and waits for two requests.

use std::collections::{BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use crate::model::name::NodeName;
use crate::model::taint::Taint;

/// No more pods are told in one wave, but those of its first node: the longer it takes, the more kube-scheduler tries in vain meanwhile.
const WAVE_MOST: usize = 1_000;
/// A wave opens without the pods that were not seen to hear of it, when none was for so long. An API server with next to no processor
/// left takes a second.
const QUIET: SignedDuration = SignedDuration::from_secs(2);
/// So long the next wave waits for nodes of the last that could not open.
const OPENING_MOST: SignedDuration = SignedDuration::from_secs(5);

#[derive(Clone, Debug, Default)]
pub(crate) struct Openings {
    wave: Option<Wave>,
    /// Nodes that could open otherwise, the first to come first.
    waiting: VecDeque<NodeName>,
}

#[derive(Clone, Debug)]
struct Wave {
    /// Those that are not open, as far as is known.
    nodes: BTreeSet<NodeName>,
    /// Those of which not all pods are known to have heard.
    deaf: BTreeSet<NodeName>,
    is_open: bool,
    /// When nothing of it is waited for any more.
    until: Timestamp,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// A wave begins: the pods of these nodes are to be told.
    Tell(Vec<NodeName>),
    /// They have heard.
    Open(Vec<NodeName>),
}

impl Openings {
    /// `node` could open, and keeps room for pods: whether it does.
    pub fn admits(&mut self, node: NodeName) -> bool {
        if let Some(wave) = self.wave.as_ref().filter(|wave| wave.nodes.contains(&node)) {
            return wave.is_open;
        }
        if !self.waiting.contains(&node) {
            self.waiting.push_back(node);
        }
        false
    }

    /// `pods` says how many are to be told at a node, and `is_heard` whether all of them have heard; some pod did `last`.
    pub fn due(
        &mut self,
        cluster: &Cluster,
        now: Timestamp,
        last: Option<Timestamp>,
        pods: impl Fn(NodeName) -> usize,
        is_heard: impl Fn(NodeName) -> bool,
    ) -> Due {
        if let Some(wave) = &mut self.wave {
            wave.nodes.retain(|node| is_closed(*node, cluster));
            if !wave.is_open {
                wave.until = last.map_or(wave.until, |last| wave.until.max(last + QUIET));
                wave.is_open = now >= wave.until || wave.has_heard(is_heard);
                if !wave.is_open {
                    return Due::Nothing;
                }
                wave.until = now + OPENING_MOST;
                return Due::Open(wave.nodes.iter().copied().collect());
            }
            if !wave.nodes.is_empty() && now < wave.until {
                return Due::Nothing;
            }
        }
        let nodes = self.next_wave(cluster, pods);
        self.wave = Some(Wave { deaf: nodes.clone(), nodes, is_open: false, until: now + QUIET })
            .filter(|wave| !wave.nodes.is_empty());
        self.wave.as_ref().map_or(Due::Nothing, |wave| Due::Tell(wave.nodes.iter().copied().collect()))
    }

    fn next_wave(&mut self, cluster: &Cluster, pods: impl Fn(NodeName) -> usize) -> BTreeSet<NodeName> {
        let mut nodes = BTreeSet::new();
        let mut told = 0;
        while let Some(next) = self.waiting.front().copied() {
            told += pods(next);
            if told > WAVE_MOST && !nodes.is_empty() {
                break;
            }
            self.waiting.pop_front();
            if is_closed(next, cluster) {
                nodes.insert(next);
            }
        }
        nodes
    }

    /// When to look again, whatever happens.
    pub fn next(&self) -> Option<Timestamp> {
        self.wave.as_ref().map(|wave| wave.until)
    }

    /// Whether no node waits for anything here.
    pub fn is_empty(&self) -> bool {
        self.wave.is_none() && self.waiting.is_empty()
    }
}

impl Wave {
    fn has_heard(&mut self, is_heard: impl Fn(NodeName) -> bool) -> bool {
        while let Some(node) = self.deaf.first().copied()
            && (is_heard(node) || !self.nodes.contains(&node))
        {
            self.deaf.remove(&node);
        }
        self.deaf.is_empty()
    }
}

fn is_closed(node: NodeName, cluster: &Cluster) -> bool {
    cluster.nodes.get(&node).is_some_and(|node| {
        let claim = cluster.claim_of(node).filter(|claim| claim.deleted.is_none());
        claim.is_some() && node.deleted.is_none() && node.taints.iter().any(Taint::keeps_closed)
    })
}
