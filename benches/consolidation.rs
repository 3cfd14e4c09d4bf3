//! How fast it is found which nodes may go: `cargo bench --bench consolidation [-- DIRECTORY…]`.
//!
//! Of each cluster three things are measured, on one thread and without reading files: what would start now, nothing of it known before;
//! the way to rest; and the passes of an engine that keeps what it knows, in the cluster at rest, each after one pod was replaced by
//! its like. Without directories the clusters are made here: bought by Provisor itself, after which half of the pods go.

mod inputs;
mod timing;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use provisor::api::Reader;
use provisor::capacity::cluster::Cluster;
use provisor::capacity::disruption::{Step, next_step};
use provisor::capacity::engine::EngineSettings;
use provisor::capacity::scheduling::Supply;
use provisor::model::name::{ObjectKey, Uid};
use provisor::model::observation::Observation;
use provisor::model::pod::Pod;
use provisor::simulator::settle::{Patience, come_to_rest};
use serde_json::json;

use inputs::{cluster_of, engine_of, parse, pool_of, read};
use timing::best_of;

/// So many passes are timed of a cluster at rest.
const PASSES: usize = 60;

fn main() {
    let directories: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let header =
        ["cluster", "nodes", "pods", "decision", "commands", "rest", "evictions", "pass", "middle", "most"];
    let [cluster, nodes, pods, decision, commands, rest, evictions, pass, middle, most] = header;
    println!(
        "{cluster:<32} {nodes:>6} {pods:>7} {decision:>11} {commands:>8} {rest:>9} {evictions:>9} {pass:>10} {middle:>10} {most:>10}"
    );
    for directory in &directories {
        let (cluster, now) = read(directory);
        measure(directory, &cluster, now);
    }
    if directories.is_empty() {
        for (nodes, pods) in [(1_000, 15_000), (5_000, 100_000)] {
            let (cluster, now) = half_empty(nodes, pods);
            measure(&format!("{nodes} nodes, half empty"), &cluster, now);
        }
    }
}

fn measure(name: &str, cluster: &Cluster, now: Timestamp) {
    let settings = EngineSettings::default();
    let supply = Supply::of(cluster, &settings.scheduling);
    let mut step = Step::default();
    let decision = best_of(3, || {
        step = next_step(cluster, &supply, &settings.scheduling, &settings.disruption, now);
    });
    let mut rest = None;
    let settled = best_of(1, || rest = Some(come_to_rest(cluster, now, &settings, &Patience::default())));
    let rest = rest.expect("it was measured");
    assert!(rest.quiescent, "it comes to rest");
    let evictions: usize = rest.history.iter().map(|done| done.evictions).sum();
    let passes = passes(&rest.cluster, rest.now);
    let [least, middle, most] =
        [passes.first(), passes.get(passes.len() / 2), passes.last()].map(milliseconds);
    println!(
        "{name:<32} {:>6} {:>7} {:>8.1} ms {:>8} {:>7.1} s {evictions:>9} {least:>7.2} ms {middle:>7.2} ms {most:>7.2} ms",
        cluster.nodes.len(),
        cluster.pods.len(),
        decision.as_secs_f64() * 1e3,
        step.commands.len(),
        settled.as_secs_f64(),
    );
}

fn milliseconds(duration: Option<&Duration>) -> f64 {
    duration.map_or(f64::NAN, |duration| duration.as_secs_f64() * 1e3)
}

/// How long passes take that find nothing, the shortest first, the first of all left out. Before each a pod is replaced by its like.
fn passes(cluster: &Cluster, now: Timestamp) -> Vec<Duration> {
    let mut engine = engine_of(cluster, now);
    let mut at = now;
    let mut took = Vec::new();
    let mut pods: Vec<Arc<Pod>> = cluster.pods.values().cloned().collect();
    for run in 0..=PASSES {
        let at_pod = run * 7919 % pods.len();
        let former = pods[at_pod].clone();
        let key = ObjectKey { name: format!("like-{run:04}").as_str().into(), ..former.key };
        let pod = Arc::new(Pod { key, uid: Uid(key.name), ..(*former).clone() });
        engine.observe(at, Observation::PodGone(former.key));
        engine.observe(at, Observation::Pod(pod.clone()));
        pods[at_pod] = pod;
        let before = engine.plan().disruption.clone();
        let lasts = best_of(1, || drop(engine.decide(at)));
        let plan = &engine.plan().disruption;
        assert!(!Arc::ptr_eq(&before, plan), "it is time for a pass");
        assert!(plan.commands.is_empty(), "a cluster at rest: {:?}", plan.commands);
        if run > 0 {
            took.push(lasts);
        }
        at += SignedDuration::from_secs(10);
    }
    took.sort_unstable();
    took
}

/// So many nodes of 16 CPUs at the most, bought for twice as many pods as are left on them.
fn half_empty(nodes: usize, pods: usize) -> (Cluster, Timestamp) {
    let mut reader = Reader::default();
    let mut objects = pool_of(
        &mut reader,
        json!([
            { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
        ]),
    );
    let mut catalog = String::from(
        "instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,\
         on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types\n",
    );
    for (family, memory, price) in [("c9", 2, 85), ("m9", 4, 100), ("r9", 8, 130)] {
        for cpu in [2, 4, 8, 16] {
            let mebibytes = cpu * memory * 1024;
            catalog.push_str(&format!(
                "{family}.{cpu}x,amd64,{cpu},{mebibytes},{}m,{}Mi,110,,,0.{:03},,zone-a zone-b zone-c,on-demand\n",
                cpu * 1000 - 100,
                mebibytes - 500,
                cpu * price / 2,
            ));
        }
    }
    let each = 16_000 * nodes / (2 * pods);
    for at in 0..2 * pods {
        let app = format!("app-{:03}", at % 100);
        let (cpu, memory) = (each * (60 + at % 100 * 5 / 6) / 100, 2 * each * (60 + at % 7 * 12) / 100);
        objects.push(parse(&mut reader, &json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "default", "name": format!("pod-{at:06}"), "labels": { "app": app },
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": true,
                }],
            },
            "spec": { "containers": [{ "name": "main", "image": "main", "resources": { "requests": {
                "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi"),
            } } }] },
            "status": { "phase": "Pending", "conditions": [
                { "type": "PodScheduled", "status": "False", "reason": "Unschedulable" },
            ] },
        })));
    }
    let now: Timestamp = "2026-03-02T08:00:00Z".parse().expect("a moment");
    let waiting = cluster_of(objects, &catalog, now);
    let full = come_to_rest(&waiting, now, &EngineSettings::default(), &Patience::default());
    let mut cluster = full.cluster;
    let names: Vec<ObjectKey> = cluster.pods.keys().copied().collect();
    for (at, key) in names.into_iter().enumerate() {
        // By halves of no order that the purchase had.
        if at * 2_654_435_761 % 4_294_967_296 >= 1 << 31 {
            cluster.observe(full.now, &Observation::PodGone(key));
        }
    }
    (cluster, full.now + SignedDuration::from_mins(10))
}
