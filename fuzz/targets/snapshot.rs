//! A snapshot is read, and what can be read is planned.
#![no_main]

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use libfuzzer_sys::{Corpus, fuzz_target};
use provisor::api::Object;
use provisor::api::snapshot::{latest_moment, read_up_to};
use provisor::capacity::cluster::Cluster;
use provisor::capacity::engine::EngineSettings;
use provisor::capacity::planning;
use provisor::model::catalog::Catalog;
use provisor::model::observation::Observation;

/// More objects than this make one input slow, not wrong.
const OBJECTS_MAX: usize = 100;

static CATALOG: LazyLock<Arc<Catalog>> =
    LazyLock::new(|| Arc::new(Catalog::builtin("us-west-2").expect("the region is built in")));

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let Ok(snapshot) = read_up_to(text, "snapshot.yaml", OBJECTS_MAX as u32) else { return Corpus::Keep };
    if snapshot.objects.len() > OBJECTS_MAX {
        return Corpus::Keep;
    }
    let now = latest_moment(&snapshot.objects).unwrap_or(Timestamp::UNIX_EPOCH);
    let mut cluster = Cluster::default();
    for object in snapshot.objects {
        let seen = match object {
            Object::NodePool(pool) => Observation::Pool(Arc::new(pool)),
            Object::NodeClass(class) => Observation::Class(Arc::new(class)),
            Object::NodeClaim(claim) => Observation::Claim(Arc::new(*claim)),
            Object::NodeOverlay(overlay) => Observation::Overlay(Arc::new(overlay)),
            Object::Node(node) => Observation::Node(Arc::new(node)),
            Object::Pod(pod) => Observation::Pod(Arc::new(pod)),
            Object::DaemonSet(set) => Observation::DaemonSet(Arc::new(set)),
            Object::PodDisruptionBudget(budget) => Observation::Budget(Arc::new(budget)),
            Object::PersistentVolume(volume) => Observation::Volume(Arc::new(volume)),
            Object::PersistentVolumeClaim(claim) => Observation::VolumeClaim(Arc::new(claim)),
            Object::StorageClass(class) => Observation::StorageClass(Arc::new(class)),
            Object::Namespace(namespace) => Observation::Namespace(Arc::new(namespace)),
            _ => continue,
        };
        cluster.observe(now, &seen);
    }
    cluster.observe(now, &Observation::Catalog(CATALOG.clone()));
    planning::plan(&cluster, now, &EngineSettings::default());
    Corpus::Keep
});
