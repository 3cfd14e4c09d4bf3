//! Which news is believed: never what is older than our own writes, never what is known already.

use std::collections::HashMap;
use std::sync::Arc;

use crate::capacity::cluster::Cluster;
use crate::controllers::perform::ObjectId;
use crate::io::kube::{Change, Kind, Version};
use crate::model::observation::Observation;

/// What is known of objects that we write.
#[derive(Debug, Default)]
pub(super) struct Believed {
    objects: HashMap<ObjectId, Written>,
}

#[derive(Debug, Default)]
struct Written {
    /// Rows of actions that write it and are not through.
    under_way: usize,
    /// The newest that was seen meanwhile.
    held: Option<Change>,
    /// What was believed last.
    floor: Version,
}

impl Believed {
    /// These objects are about to be written.
    pub fn writing(&mut self, objects: &[ObjectId]) {
        for object in objects {
            self.objects.entry(*object).or_default().under_way += 1;
        }
    }

    /// News of the watches; what is believed now.
    pub fn watched(&mut self, change: Change) -> Option<Change> {
        self.take(change)
    }

    /// An answer to a write: as good as news.
    pub fn answered(&mut self, change: Change) -> Option<Change> {
        self.take(change)
    }

    fn take(&mut self, change: Change) -> Option<Change> {
        let at = (change.kind, change.key);
        // Few, and written without a word beforehand: an answer may come after what the watch told later.
        let is_remembered =
            matches!(change.kind, Kind::NodePool | Kind::NodeOverlay | Kind::NodeClass | Kind::Buffer);
        if is_remembered {
            self.objects.entry(at).or_default();
        }
        let Some(known) = self.objects.get_mut(&at) else { return Some(change) };
        if known.under_way == 0 {
            let is_newer = change.version > known.floor;
            if change.is_gone {
                self.objects.remove(&at);
                return Some(change);
            }
            known.floor = known.floor.max(change.version);
            return is_newer.then_some(change);
        }
        // Letting the last finalizer go and being gone are one version.
        let is_newer = |held: &Change| {
            held.version < change.version || (held.version == change.version && change.is_gone)
        };
        if known.held.as_ref().is_none_or(is_newer) {
            known.held = Some(change);
        }
        None
    }

    /// Whether more is decided about the object than was carried out.
    pub fn is_writing(&self, object: &ObjectId) -> bool {
        self.objects.get(object).is_some_and(|known| known.under_way > 0)
    }

    /// These were written, or not; what was held back is believed if nothing else is under way.
    pub fn written(&mut self, objects: &[ObjectId]) -> Vec<Change> {
        let mut believed = Vec::new();
        for object in objects {
            let Some(known) = self.objects.get_mut(object) else { continue };
            known.under_way = known.under_way.saturating_sub(1);
            if known.under_way > 0 {
                continue;
            }
            if let Some(change) =
                known.held.take().filter(|change| change.is_gone || change.version > known.floor)
            {
                known.floor = change.version;
                if change.is_gone {
                    self.objects.remove(object);
                }
                believed.push(change);
            }
        }
        believed
    }
}

/// Whether a claim or node is known exactly so: a heartbeat changes nothing about a machine.
pub(super) fn is_same_machine(seen: &Observation, cluster: &Cluster) -> bool {
    match seen {
        Observation::Claim(claim) => cluster.claims.get(&claim.name).is_some_and(|known| known == claim),
        Observation::Node(node) => {
            let is_legible = !cluster.strangers.unreadable_nodes.contains_key(&node.name);
            is_legible && cluster.nodes.get(&node.name).is_some_and(|known| known == node)
        }
        _ => false,
    }
}

/// Whether an object is known exactly so, and nothing waits for it to be confirmed: the API server tells of every heartbeat, and
/// most of what it tells decides nothing.
pub(super) fn is_known(seen: &Observation, cluster: &Cluster) -> bool {
    fn same<K: Ord, V: PartialEq>(
        map: &std::collections::BTreeMap<K, Arc<V>>,
        key: &K,
        value: &Arc<V>,
    ) -> bool {
        map.get(key).is_some_and(|known| known == value)
    }
    match seen {
        Observation::Pool(pool) => same(&cluster.pools, &pool.name, pool),
        Observation::Class(class) => same(&cluster.classes, &class.name, class),
        Observation::Overlay(overlay) => same(&cluster.overlays, &overlay.name, overlay),
        Observation::Pod(pod) => same(&cluster.pods, &pod.key, pod),
        Observation::DaemonSet(set) => same(&cluster.daemon_sets, &set.key, set),
        Observation::Budget(budget) => same(&cluster.budgets, &budget.key, budget),
        Observation::VolumeClaim(claim) => same(&cluster.volume_claims, &claim.key, claim),
        Observation::Volume(volume) => same(&cluster.volumes, &volume.name, volume),
        Observation::StorageClass(class) => same(&cluster.storage_classes, &class.name, class),
        Observation::CsiNode(node) => same(&cluster.csi_nodes, &node.node, node),
        Observation::VolumeAttachment(attached) => same(&cluster.attachments, &attached.name, attached),
        Observation::Namespace(namespace) => same(&cluster.namespaces, &namespace.name, namespace),
        Observation::Buffer(buffer) => same(&cluster.buffers, &buffer.key, buffer),
        Observation::PodTemplate(template) => same(&cluster.pod_templates, &template.key, template),
        Observation::ScalableGone { kind, key } => !cluster.scalables.contains_key(&(*kind, *key)),
        Observation::Scalable(scalable) => same(&cluster.scalables, &(scalable.kind, scalable.key), scalable),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::name::ObjectKey;

    fn change(version: u64) -> Change {
        Change {
            kind: Kind::Node,
            key: ObjectKey::new("", "n"),
            version: Version(version),
            is_gone: false,
            observation: None,
            record: None,
            manifest: None,
        }
    }

    /// Of a pool the write is not announced.
    #[test]
    fn an_answer_that_comes_after_newer_news_is_not_believed() {
        let mut believed = Believed::default();
        let pool = |version| Change { kind: Kind::NodePool, ..change(version) };
        assert!(believed.watched(pool(9)).is_some());
        assert!(believed.watched(pool(11)).is_some());
        assert!(believed.answered(pool(10)).is_none());
        assert!(believed.answered(pool(12)).is_some() && believed.watched(pool(12)).is_none());
        let gone = Change { is_gone: true, ..pool(13) };
        assert!(believed.watched(gone).is_some() && believed.watched(pool(14)).is_some());
    }

    #[test]
    fn what_is_older_than_our_own_write_is_not_believed() {
        let mut believed = Believed::default();
        let object = (Kind::Node, ObjectKey::new("", "n"));
        assert!(believed.watched(change(1)).is_some(), "nothing of it is written");
        assert!(!believed.is_writing(&object));
        believed.writing(&[object, object]);
        assert!(believed.watched(change(2)).is_none());
        assert!(believed.answered(change(5)).is_none());
        assert!(believed.watched(change(3)).is_none(), "the watch is slower than the answer");
        assert!(believed.written(&[object]).is_empty(), "another write is under way");
        assert!(believed.is_writing(&object));
        let told = believed.written(&[object]);
        assert!(!believed.is_writing(&object));
        assert_eq!(told.iter().map(|change| change.version.0).collect::<Vec<_>>(), [5]);
        assert!(believed.watched(change(5)).is_none(), "known already");
        assert!(believed.watched(change(6)).is_some());
        let gone = || Change { is_gone: true, ..change(7) };
        assert!(believed.watched(gone()).is_some());

        // The answer to the last write and the end of the object have the same version, and come in any order.
        for first in [change(7), gone()] {
            believed.writing(&[object]);
            assert!(believed.watched(first).is_none());
            assert!(believed.answered(change(7)).is_none() && believed.watched(gone()).is_none());
            let told = believed.written(&[object]);
            assert!(told.len() == 1 && told[0].is_gone, "{told:?}");
        }
    }
}
