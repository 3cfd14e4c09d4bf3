//! The kinds of objects that are read or written, and where the API server keeps them.

/// Where objects of one kind are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub is_namespaced: bool,
}

const fn cluster(api_version: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource { api_version, kind, plural, is_namespaced: false }
}

const fn namespaced(api_version: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource { api_version, kind, plural, is_namespaced: true }
}

impl Resource {
    pub const LEASE: Self = namespaced("coordination.k8s.io/v1", "Lease", "leases");
    pub const CONFIG_MAP: Self = namespaced("v1", "ConfigMap", "configmaps");
    pub const ENVIRONMENT: Self = cluster("provisor.dev/v1alpha1", "Environment", "environments");
    pub const EVENT: Self = namespaced("v1", "Event", "events");
    pub const SERVICE: Self = namespaced("v1", "Service", "services");
    pub const SERVICE_CIDR: Self = cluster("networking.k8s.io/v1", "ServiceCIDR", "servicecidrs");
    const OLD_BUFFER: Self = namespaced("autoscaling.x-k8s.io/v1alpha1", "CapacityBuffer", "capacitybuffers");

    /// The path of the collection, of one namespace or of all.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let prefix = if self.api_version.contains('/') { "apis" } else { "api" };
        match namespace.filter(|name| self.is_namespaced && !name.is_empty()) {
            Some(namespace) => {
                format!("/{prefix}/{}/namespaces/{namespace}/{}", self.api_version, self.plural)
            }
            None => format!("/{prefix}/{}/{}", self.api_version, self.plural),
        }
    }

    /// What a manifest names, if it is of a kind that a repository may hold.
    pub fn of_manifest(api_version: &str, kind: &str) -> Option<Self> {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_synced()).map(Kind::resource);
        let mut all = kinds.chain([Self::OLD_BUFFER]);
        all.find(|resource| resource.api_version == api_version && resource.kind == kind)
    }
}

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    // First, because the priority of a DaemonSet's pods is read from it.
    PriorityClass,
    Namespace,
    NodePool,
    NodeClass,
    NodeOverlay,
    NodeClaim,
    Node,
    Pod,
    DaemonSet,
    Budget,
    VolumeClaim,
    Volume,
    StorageClass,
    CsiNode,
    VolumeAttachment,
    Buffer,
    PodTemplate,
    Deployment,
    StatefulSet,
    ReplicaSet,
    ReplicationController,
    Service,
}

impl Kind {
    pub const ALL: [Self; 22] = [
        Self::PriorityClass,
        Self::Namespace,
        Self::NodePool,
        Self::NodeClass,
        Self::NodeOverlay,
        Self::NodeClaim,
        Self::Node,
        Self::Pod,
        Self::DaemonSet,
        Self::Budget,
        Self::VolumeClaim,
        Self::Volume,
        Self::StorageClass,
        Self::CsiNode,
        Self::VolumeAttachment,
        Self::Buffer,
        Self::PodTemplate,
        Self::Deployment,
        Self::StatefulSet,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::Service,
    ];

    pub const fn resource(self) -> Resource {
        match self {
            Self::PriorityClass => cluster("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"),
            Self::Namespace => cluster("v1", "Namespace", "namespaces"),
            Self::NodePool => cluster("karpenter.sh/v1", "NodePool", "nodepools"),
            Self::NodeClass => cluster("karpenter.k8s.aws/v1", "EC2NodeClass", "ec2nodeclasses"),
            Self::NodeOverlay => cluster("karpenter.sh/v1alpha1", "NodeOverlay", "nodeoverlays"),
            Self::NodeClaim => cluster("karpenter.sh/v1", "NodeClaim", "nodeclaims"),
            Self::Node => cluster("v1", "Node", "nodes"),
            Self::Pod => namespaced("v1", "Pod", "pods"),
            Self::DaemonSet => namespaced("apps/v1", "DaemonSet", "daemonsets"),
            Self::Budget => namespaced("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
            Self::VolumeClaim => namespaced("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Self::Volume => cluster("v1", "PersistentVolume", "persistentvolumes"),
            Self::StorageClass => cluster("storage.k8s.io/v1", "StorageClass", "storageclasses"),
            Self::CsiNode => cluster("storage.k8s.io/v1", "CSINode", "csinodes"),
            Self::VolumeAttachment => cluster("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments"),
            Self::Buffer => namespaced("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", "capacitybuffers"),
            Self::PodTemplate => namespaced("v1", "PodTemplate", "podtemplates"),
            Self::Deployment => namespaced("apps/v1", "Deployment", "deployments"),
            Self::StatefulSet => namespaced("apps/v1", "StatefulSet", "statefulsets"),
            Self::ReplicaSet => namespaced("apps/v1", "ReplicaSet", "replicasets"),
            Self::ReplicationController => {
                namespaced("v1", "ReplicationController", "replicationcontrollers")
            }
            Self::Service => Resource::SERVICE,
        }
    }

    /// Kinds that a repository describes: the Git half compares them field by field, so they are kept whole.
    pub const fn is_synced(self) -> bool {
        use Kind::*;
        matches!(self, NodePool | NodeClass | NodeOverlay | Buffer | PodTemplate)
    }

    /// Kinds that matter to buffers.
    const fn is_for_buffers(self) -> bool {
        matches!(self, Self::Buffer | Self::PodTemplate | Self::Deployment | Self::StatefulSet)
    }

    /// Kinds that say which pods are spread among each other by default.
    const fn is_for_companions(self) -> bool {
        matches!(self, Self::Service | Self::ReplicationController | Self::StatefulSet)
    }

    /// Whether it is watched in a cluster that has buffers or not, by somebody who wants to know companions or does not.
    pub const fn is_watched(self, has_buffers: bool, wants_companions: bool) -> bool {
        match (self.is_for_buffers(), self.is_for_companions()) {
            (false, false) => true,
            (is_for_buffers, is_for_companions) => {
                (is_for_buffers && has_buffers) || (is_for_companions && wants_companions)
            }
        }
    }

    /// Kinds that are there only once our CustomResourceDefinitions are installed.
    pub const fn is_custom(self) -> bool {
        use Kind::*;
        matches!(self, NodePool | NodeClass | NodeOverlay | NodeClaim | Buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asks_for_is_not_watched() {
        let watched = |has_buffers, wants_companions| {
            let all = Kind::ALL.into_iter().filter(|kind| kind.is_watched(has_buffers, wants_companions));
            all.filter(|kind| kind.is_for_buffers() || kind.is_for_companions()).collect::<Vec<_>>()
        };
        use Kind::*;
        assert_eq!(watched(false, false), []);
        assert_eq!(watched(true, false), [Buffer, PodTemplate, Deployment, StatefulSet]);
        assert_eq!(watched(false, true), [StatefulSet, ReplicationController, Service]);
        assert!(Pod.is_watched(false, false));
        assert!(ReplicaSet.is_watched(false, false), "it says which pods are yet to come");
    }

    #[test]
    fn paths_are_those_of_the_api_server() {
        assert_eq!(Kind::Pod.resource().path(None), "/api/v1/pods");
        assert_eq!(Kind::Pod.resource().path(Some("shop")), "/api/v1/namespaces/shop/pods");
        assert_eq!(Kind::NodePool.resource().path(Some("shop")), "/apis/karpenter.sh/v1/nodepools");
        assert_eq!(Resource::of_manifest("karpenter.sh/v1", "NodePool"), Some(Kind::NodePool.resource()));
        assert_eq!(Resource::of_manifest("v1", "PodTemplate"), Some(Kind::PodTemplate.resource()));
        assert_eq!(Resource::of_manifest("v1", "Secret"), None);
    }
}
