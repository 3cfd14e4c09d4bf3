//! PersistentVolume, PersistentVolumeClaim and StorageClass: where a pod's data ties it to.

use super::field::Field;
use super::{metadata, selector};
use crate::model::name::ObjectKey;
use crate::model::requirement::{Operator, Requirement, Requirements};
use crate::model::symbol::Symbol;
use crate::model::workload::{PersistentVolume, PersistentVolumeClaim, StorageClass};

/// Volume plugins that were once part of Kubernetes: their field in a PersistentVolume, their provisioner, and the CSI
/// driver that does their work now.
const IN_TREE: [(&str, &str, &str); 6] = [
    ("awsElasticBlockStore", "kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("gcePersistentDisk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("azureDisk", "kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("azureFile", "kubernetes.io/azure-file", "file.csi.azure.com"),
    ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("vsphereVolume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

pub(crate) fn read(object: &Field<'_, '_>) -> PersistentVolume {
    let metadata = metadata::read(object);
    let spec = object.get("spec").required();
    let affinity = spec.get("nodeAffinity");
    let required = affinity.get("required");
    let terms = required.get("nodeSelectorTerms");
    let in_tree = IN_TREE.iter().find(|(field, ..)| spec.get(field).is_present());
    PersistentVolume {
        name: metadata.name,
        terms: terms.items().map(|term| selector::read_node_term(&term)).collect(),
        is_local: spec.get("local").is_present() || spec.get("hostPath").is_present(),
        driver: spec
            .get("csi")
            .get("driver")
            .symbol()
            .or_else(|| in_tree.map(|(.., driver)| Symbol::new(driver))),
        is_deleting: metadata.deleted.is_some(),
    }
}

pub(crate) fn read_claim(object: &Field<'_, '_>) -> PersistentVolumeClaim {
    /// What carried the class before there was a field for it.
    const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
    let metadata = metadata::read(object);
    let annotations = metadata::read_annotations(object);
    let spec = object.get("spec").required();
    let annotated = annotations.get(&Symbol::new(CLASS_ANNOTATION)).copied();
    PersistentVolumeClaim {
        key: ObjectKey::new(&metadata.namespace, &metadata.name),
        volume: spec.get("volumeName").symbol().filter(|name| !name.is_empty()),
        storage_class: annotated.or_else(|| spec.get("storageClassName").symbol()),
        is_lost: object.get("status").get("phase").text() == Some("Lost"),
        is_deleting: metadata.deleted.is_some(),
        is_bind_completed: annotations.contains_key(&Symbol::new("pv.kubernetes.io/bind-completed")),
    }
}

pub(crate) fn read_storage_class(object: &Field<'_, '_>) -> StorageClass {
    let metadata = metadata::read(object);
    let annotations = metadata::read_annotations(object);
    let is_default = |key: &str| annotations.get(&Symbol::new(key)).is_some_and(|value| &**value == "true");
    let provisioner = object.get("provisioner").required_text().unwrap_or_default();
    let in_tree = IN_TREE.iter().find(|(_, name, _)| *name == provisioner);
    let mode = object.get("volumeBindingMode").choice(&["Immediate", "WaitForFirstConsumer"]);
    let topologies = object.get("allowedTopologies");
    StorageClass {
        name: metadata.name,
        provisioner: in_tree.map_or(provisioner, |(.., driver)| driver).into(),
        binds_immediately: mode != Some("WaitForFirstConsumer"),
        topologies: topologies.items().map(|term| read_topology(&term)).collect(),
        is_default: is_default("storageclass.kubernetes.io/is-default-class")
            || is_default("storageclass.beta.kubernetes.io/is-default-class"),
        created: metadata.created,
    }
}

fn read_topology(term: &Field<'_, '_>) -> Requirements {
    let expressions = term.get("matchLabelExpressions");
    let read = |entry: Field<'_, '_>| {
        let values: Vec<Symbol> = entry.get("values").items().filter_map(|value| value.symbol()).collect();
        Some((Symbol::new(entry.get("key").required_text()?), Requirement::new(Operator::In, values)))
    };
    expressions.items().filter_map(read).collect()
}
