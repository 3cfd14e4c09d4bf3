//! Clusters to measure with: those of directories, as Karpenter's benchmark inputs are written for both sides, and what those made here
//! have in common.

use std::sync::Arc;

use jiff::Timestamp;
use provisor::api::snapshot::{PODS_MAX, latest_moment, read_up_to};
use provisor::api::{Object, Reader};
use provisor::capacity::cluster::Cluster;
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::catalog::Catalog;
use provisor::model::observation::Observation;
use serde_json::{Value, json};

/// The cluster of `snapshot.json` and `catalog.csv` in a directory, and the latest moment that its objects speak of.
pub fn read(directory: &str) -> (Cluster, Timestamp) {
    let text = |name: &str| {
        let path = format!("{directory}/{name}");
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let snapshot = read_up_to(&text("snapshot.json"), directory, PODS_MAX).expect("the snapshot can be read");
    let now = latest_moment(&snapshot.objects).unwrap_or(Timestamp::UNIX_EPOCH);
    (cluster_of(snapshot.objects, &text("catalog.csv"), now), now)
}

pub fn cluster_of(objects: Vec<Object>, catalog: &str, now: Timestamp) -> Cluster {
    let mut cluster = Cluster::default();
    for object in objects {
        if let Some(seen) = object.into_observation() {
            cluster.observe(now, &seen);
        }
    }
    let catalog = Catalog::parse_csv(catalog, "catalog").expect("the catalogue can be read");
    cluster.observe(now, &Observation::Catalog(Arc::new(catalog)));
    cluster
}

/// A class and a pool of it that may buy whatever satisfies `requirements`.
pub fn pool_of(reader: &mut Reader, requirements: Value) -> Vec<Object> {
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": { "name": "default" },
        "spec": {
            "amiSelectorTerms": [{ "alias": "al2023@latest" }], "role": "nodes",
            "securityGroupSelectorTerms": [{ "tags": { "a": "b" } }],
            "subnetSelectorTerms": [{ "tags": { "a": "b" } }],
        },
    });
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
        "spec": {
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                "requirements": requirements,
            } },
            "disruption": { "consolidateAfter": "30s", "budgets": [{ "nodes": "100%" }] },
        },
    });
    [class, pool].iter().map(|value| parse(reader, value)).collect()
}

pub fn parse(reader: &mut Reader, value: &Value) -> Object {
    reader.parse(value).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// An engine that has seen `cluster`.
pub fn engine_of(cluster: &Cluster, at: Timestamp) -> Engine {
    let mut engine = Engine::new(EngineSettings::default());
    let mut see = |seen| engine.observe(at, seen);
    cluster.catalog.iter().for_each(|one| see(Observation::Catalog(one.clone())));
    cluster.classes.values().for_each(|one| see(Observation::Class(one.clone())));
    cluster.pools.values().for_each(|one| see(Observation::Pool(one.clone())));
    cluster.claims.values().for_each(|one| see(Observation::Claim(one.clone())));
    cluster.nodes.values().for_each(|one| see(Observation::Node(one.clone())));
    cluster.budgets.values().for_each(|one| see(Observation::Budget(one.clone())));
    cluster.pods.values().for_each(|one| see(Observation::Pod(one.clone())));
    see(Observation::Synced);
    engine
}
