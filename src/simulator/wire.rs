//! The way between a world and an engine: news that comes late or not at all, writes that are refused.
//!
//! What the driver of a real cluster promises holds here, too: news of one kind of object keeps its order, an object is never
//! believed to be older than our own last write to it, and after a connection was lost everything is listed again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::chance;
use super::faults::Incident;
use crate::capacity::cluster::Cluster;
use crate::model::action::Action;
use crate::model::name::{ClaimName, NodeName};
use crate::model::observation::Observation;

/// The kinds of objects that are watched one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pool,
    Class,
    Claim,
    Node,
    Pod,
    DaemonSet,
    Budget,
    Scalable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Written {
    Claim(ClaimName),
    Node(NodeName),
}

#[derive(Debug)]
pub(super) struct Wire {
    rng: ChaCha8Rng,
    /// By when it arrives.
    under_way: BTreeMap<(Timestamp, u64), Observation>,
    sent: u64,
    /// When the last news of a kind arrives.
    last: BTreeMap<Kind, Timestamp>,
    /// Up to which news our own writes were answered.
    floors: BTreeMap<Written, u64>,
    lag: (SignedDuration, Timestamp),
    torn_until: Option<Timestamp>,
    refused: (u32, Timestamp),
}

impl Wire {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            under_way: BTreeMap::new(),
            sent: 0,
            last: BTreeMap::new(),
            floors: BTreeMap::new(),
            lag: (SignedDuration::ZERO, Timestamp::MIN),
            torn_until: None,
            refused: (0, Timestamp::MIN),
        }
    }

    pub fn suffer(&mut self, what: &Incident, now: Timestamp) {
        match what {
            Incident::WritesRefused { permille, lasts } => self.refused = (*permille, now + lasts.0),
            Incident::WatchesLag { by, lasts } => self.lag = (by.0, now + lasts.0),
            Incident::WatchesLost { lasts } => self.torn_until = Some(now + lasts.0),
            _ => {}
        }
    }

    /// Takes news of the world. What `action` wrote is answered at once; a claim or node does not lag behind it any more.
    pub fn send(&mut self, news: Vec<(Timestamp, Observation)>, now: Timestamp, action: Option<&Action>) {
        let own = action.and_then(written_by);
        for (_, seen) in news {
            self.sent += 1;
            let Some(kind) = kind_of(&seen) else {
                self.under_way.insert((now, self.sent), seen);
                continue;
            };
            let object = object_of(&seen);
            if own.is_some() && object == own {
                self.floors.extend(object.map(|object| (object, self.sent)));
                self.under_way.insert((now, self.sent), seen);
                continue;
            }
            if self.torn_until.is_some() {
                continue;
            }
            let (most, until) = self.lag;
            let late = match now < until {
                true => chance::between(&mut self.rng, SignedDuration::ZERO, most),
                false => SignedDuration::ZERO,
            };
            let after = self.last.get(&kind).copied().unwrap_or(now);
            let at = (now + late).max(after);
            self.last.insert(kind, at);
            self.under_way.insert((at, self.sent), seen);
        }
    }

    /// What has arrived.
    pub fn due(&mut self, now: Timestamp) -> Vec<Observation> {
        let mut due = Vec::new();
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, number), seen) = entry.remove_entry();
            let floor = object_of(&seen).and_then(|object| self.floors.get(&object));
            if floor.is_none_or(|floor| number >= *floor) {
                due.push(seen);
            }
        }
        due
    }

    /// When the next news arrives, or the connection is there again.
    pub fn next(&self) -> Option<Timestamp> {
        let first = self.under_way.first_key_value().map(|((at, _), _)| *at);
        [first, self.torn_until].into_iter().flatten().min()
    }

    /// Whether whoever listens knows all that there is to know.
    pub fn is_clear(&self) -> bool {
        self.under_way.is_empty() && self.torn_until.is_none()
    }

    /// Everything as it is now, if the connection was lost and is there again; `known` is what is believed meanwhile.
    pub fn list_again(&mut self, now: Timestamp, known: &Cluster, world: &Cluster) -> Vec<Observation> {
        if self.torn_until.is_none_or(|until| now < until) {
            return Vec::new();
        }
        self.torn_until = None;
        self.under_way.retain(|_, seen| kind_of(seen).is_none());
        let mut seen = everything(world);
        let gone = known.claims.keys().filter(|name| !world.claims.contains_key(name));
        seen.extend(gone.map(|name| Observation::ClaimGone(*name)));
        let gone = known.nodes.keys().filter(|name| !world.nodes.contains_key(name));
        seen.extend(gone.map(|name| Observation::NodeGone(*name)));
        let gone = known.pods.keys().filter(|key| !world.pods.contains_key(key));
        seen.extend(gone.map(|key| Observation::PodGone(*key)));
        seen
    }

    /// Nobody listens any more.
    pub fn cut(&mut self) {
        self.under_way.clear();
        self.last.clear();
        self.floors.clear();
        self.torn_until = None;
    }

    /// Whether the API server refuses to carry out `action`.
    pub fn refuses(&mut self, action: &Action, now: Timestamp) -> bool {
        let (permille, until) = self.refused;
        let is_of_the_cloud = matches!(action, Action::Launch { .. } | Action::Terminate { .. });
        now < until && !is_of_the_cloud && chance::happens(&mut self.rng, permille)
    }
}

/// Every object, as whoever comes anew lists it.
pub(super) fn everything(world: &Cluster) -> Vec<Observation> {
    let mut seen = Vec::new();
    seen.extend(world.catalog.iter().map(|one| Observation::Catalog(one.clone())));
    seen.extend(world.classes.values().map(|one| Observation::Class(one.clone())));
    seen.extend(world.pools.values().map(|one| Observation::Pool(one.clone())));
    seen.extend(world.claims.values().map(|one| Observation::Claim(one.clone())));
    seen.extend(world.nodes.values().map(|one| Observation::Node(one.clone())));
    seen.extend(world.daemon_sets.values().map(|one| Observation::DaemonSet(one.clone())));
    seen.extend(world.budgets.values().map(|one| Observation::Budget(one.clone())));
    seen.extend(world.scalables.values().map(|one| Observation::Scalable(one.clone())));
    seen.extend(world.pods.values().map(|one| Observation::Pod(one.clone())));
    seen
}

fn kind_of(seen: &Observation) -> Option<Kind> {
    match seen {
        Observation::Pool(_) | Observation::PoolGone(_) => Some(Kind::Pool),
        Observation::Class(_) | Observation::ClassGone(_) => Some(Kind::Class),
        Observation::Claim(_) | Observation::ClaimGone(_) => Some(Kind::Claim),
        Observation::Node(_) | Observation::NodeGone(_) => Some(Kind::Node),
        Observation::Pod(_) | Observation::PodGone(_) => Some(Kind::Pod),
        Observation::DaemonSet(_) | Observation::DaemonSetGone(_) => Some(Kind::DaemonSet),
        Observation::Budget(_) | Observation::BudgetGone(_) => Some(Kind::Budget),
        Observation::Scalable(_) => Some(Kind::Scalable),
        _ => None,
    }
}

fn object_of(seen: &Observation) -> Option<Written> {
    match seen {
        Observation::Claim(claim) => Some(Written::Claim(claim.name)),
        Observation::ClaimGone(name) => Some(Written::Claim(*name)),
        Observation::Node(node) => Some(Written::Node(node.name)),
        Observation::NodeGone(name) => Some(Written::Node(*name)),
        _ => None,
    }
}

fn written_by(action: &Action) -> Option<Written> {
    match action {
        Action::CreateClaim(claim) => Some(Written::Claim(claim.name)),
        Action::DeleteClaim { claim }
        | Action::UpdateClaim { claim, .. }
        | Action::FinalizeClaim { claim } => Some(Written::Claim(*claim)),
        Action::UpdateNode { node, .. } | Action::DeleteNode { node } | Action::FinalizeNode { node } => {
            Some(Written::Node(*node))
        }
        _ => None,
    }
}

/// The name under which a failure of `action` is told.
pub(super) fn subject_of(action: &Action) -> Option<String> {
    match action {
        Action::Evict { pod, .. } | Action::DeletePod { pod, .. } => Some(format!("Pod {pod}")),
        Action::UpdatePool { pool, .. } => Some(format!("NodePool {pool}")),
        _ => written_by(action).map(|object| match object {
            Written::Claim(name) => format!("NodeClaim {name}"),
            Written::Node(name) => format!("Node {name}"),
        }),
    }
}

/// The claims and nodes that `actions` are about, for [`Observation::CarriedOut`].
pub(super) fn objects_of<'a>(actions: impl Iterator<Item = &'a Action>) -> (Vec<ClaimName>, Vec<NodeName>) {
    let (mut claims, mut nodes) = (Vec::new(), Vec::new());
    for written in actions.filter_map(written_by) {
        match written {
            Written::Claim(name) => claims.push(name),
            Written::Node(name) => nodes.push(name),
        }
    }
    (claims, nodes)
}
