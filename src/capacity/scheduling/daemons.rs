//! The pods that DaemonSets will put on every node that suits them: room that no other pod can have.

use std::sync::Arc;

use super::pods::{is_selected, required_alternatives, tolerates};
use crate::capacity::cluster::Cluster;
use crate::model::name::{ObjectKey, Uid};
use crate::model::node::Node;
use crate::model::pod::{Pod, PodShape};
use crate::model::requirement::{Requirements, Undefined};
use crate::model::taint::{Taint, Toleration};

const NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";

/// The pod of one DaemonSet, as it is planned for.
pub(super) struct Daemon {
    pub set: ObjectKey,
    pub uid: Uid,
    pub shape: Arc<PodShape>,
    /// Node selector with each required affinity term; one of them must hold.
    alternatives: Vec<Requirements>,
}

impl Daemon {
    /// Whether its pod will run on a node with these taints and requirements. Soft taints never stop it.
    pub fn runs_on(&self, taints: &[Taint], node: &Requirements, undefined: Undefined) -> bool {
        tolerates(&self.shape, taints)
            && self.alternatives.iter().any(|wanted| node.compatible(wanted, undefined).is_ok())
    }

    /// Whether one of its terms can hold on a type with these requirements as well as on `node`.
    pub fn runs_on_type(&self, node: &Requirements, kind: &Requirements) -> bool {
        self.alternatives.iter().any(|wanted| {
            node.compatible(wanted, Undefined::WellKnown).is_ok() && kind.intersects(wanted).is_ok()
        })
    }

    /// Whether room that is kept for one is room for the other.
    pub fn is(&self, other: &Self) -> bool {
        (self.set, self.uid) == (other.set, other.uid) && self.shape == other.shape
    }

    pub fn owns(&self, pod: &Pod) -> bool {
        pod.key.namespace == self.set.namespace
            && pod.owners.iter().any(|owner| {
                &*owner.kind == "DaemonSet" && (owner.uid == self.uid || owner.name == self.set.name)
            })
    }
}

/// Whether a DaemonSet would have its pod on `node` but for the taint that keeps it closed: it may be what makes the node ready.
pub(crate) fn is_kept_from_daemons(cluster: &Cluster, node: &Node) -> bool {
    let tolerated = Toleration::of_daemons();
    let matters = |taint: &&Taint| {
        // Pods on the network of their node tolerate it too, and which those are is not known.
        &*taint.key != NETWORK_UNAVAILABLE && !tolerated.iter().any(|toleration| toleration.tolerates(taint))
    };
    let (closing, others): (Vec<&Taint>, Vec<&Taint>) =
        node.taints.iter().filter(matters).partition(|taint| taint.keeps_closed());
    let mut shapes = cluster.daemon_sets.values().map(|set| &set.shape);
    shapes.any(|shape| {
        tolerates(shape, others.iter().copied())
            && !tolerates(shape, closing.iter().copied())
            && is_selected(node, shape)
    })
}

/// One daemon per DaemonSet. A real pod counts more than the template, because webhooks may have changed it; but its
/// affinity is pinned to its node, so the template's is used. Daemons that need devices are left out.
pub(super) fn daemons(cluster: &Cluster) -> Vec<Daemon> {
    let mut found = Vec::new();
    for set in cluster.daemon_sets.values() {
        let mut shape = cluster.newest_daemon(set.key).map_or(&set.shape, |pod| &pod.shape).clone();
        if shape.node_required != set.shape.node_required
            && (!set.shape.node_required.is_empty() || shape.node_required.iter().any(|term| term.has_fields))
        {
            Arc::make_mut(&mut shape).node_required = set.shape.node_required.clone();
        }
        if !shape.has_resource_claims {
            let alternatives = required_alternatives(&shape);
            found.push(Daemon { set: set.key, uid: set.uid, shape, alternatives });
        }
    }
    found
}
