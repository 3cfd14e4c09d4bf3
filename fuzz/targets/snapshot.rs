//! A snapshot is read, and what can be read is planned.
#![no_main]

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use libfuzzer_sys::{Corpus, fuzz_target};
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
        if let Some(seen) = object.into_observation() {
            cluster.observe(now, &seen);
        }
    }
    cluster.observe(now, &Observation::Catalog(CATALOG.clone()));
    planning::plan(&cluster, now, &EngineSettings::default());
    Corpus::Keep
});
