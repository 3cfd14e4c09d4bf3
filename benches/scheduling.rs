//! How fast pods find their places: `cargo bench --bench scheduling [-- DIRECTORY…]`.
//!
//! A directory holds `snapshot.json` and `catalog.csv`, as Karpenter's benchmark inputs are written for both sides. What is
//! measured is the solver's state and the solution, on one thread, without reading files. Without directories only the cluster
//! that is made here is measured: a large one with many shapes of pods.

mod inputs;
mod timing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use provisor::api::{Object, Reader};
use provisor::capacity::cluster::Cluster;
use provisor::capacity::engine::EngineSettings;
use provisor::capacity::planning;
use provisor::capacity::scheduling::{
    Mode, Place, Request, Settings, Solution, Supply, provisionable_pods, solve,
};
use provisor::model::money::UsdPerHour;
use provisor::model::name::{NodeName, ObjectKey, Uid};
use provisor::model::node::Node;
use provisor::model::observation::Observation;
use provisor::model::pod::{Pod, PodPhase};
use provisor::model::quantity::{Resources, resource};
use serde_json::json;

use inputs::{cluster_of, engine_of, parse, pool_of, read};
use timing::best_of;

fn main() {
    let (plans, directories): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).filter(|word| word != "--bench").partition(|word| word == "--plan");
    let header = ["input", "pods", "best", "pods/s", "nodes", "$/h", "unplaced"];
    let [input, pods, best, rate, nodes, bill, unplaced] = header;
    println!("{input:<44} {pods:>8} {best:>10} {rate:>12} {nodes:>7} {bill:>12} {unplaced:>8}");
    for directory in &directories {
        let (cluster, now) = read(directory);
        measure(directory, &cluster, now, 5);
        if !plans.is_empty() {
            let took = best_of(1, || drop(planning::plan(&cluster, now, &EngineSettings::default())));
            println!("{:<44} {:>8} {:>7} ms", "  with what may go", "", took.as_millis());
        }
    }
    if directories.is_empty() {
        let mut cluster = large_cluster(100_000, 2_000, 5_000);
        let now = Timestamp::UNIX_EPOCH;
        measure("100,000 pods, 2,000 shapes, 5,000 nodes", &cluster, now, 5);
        let waiting: Vec<ObjectKey> = cluster.waiting_pods().skip(1).map(|pod| pod.key).collect();
        for pod in waiting {
            cluster.observe(now, &Observation::PodGone(pod));
        }
        measure("one more pod, 5,000 nodes, state made anew", &cluster, now, 5);
        measure_kept(&cluster, now, 40);
    }
}

fn measure(name: &str, cluster: &Cluster, now: Timestamp, runs: usize) {
    let settings = Settings::default();
    let supply = Supply::of(cluster, &settings);
    let mut solution = Solution::default();
    let mut count = 0;
    let took = best_of(runs, || {
        let pods = provisionable_pods(cluster, &settings).0;
        count = pods.len();
        solution = solve(&Request {
            cluster,
            supply: &supply,
            now,
            pods: &pods,
            departing: &[],
            without_nodes: &BTreeSet::new(),
            without_claims: &BTreeSet::new(),
            shut_claims: &BTreeSet::new(),
            planned: &BTreeMap::new(),
            used_at_least: &BTreeMap::new(),
            settings: &settings,
            mode: Mode::Provisioning,
        });
    });
    let bill: UsdPerHour = solution.new_nodes.iter().map(|node| node.price()).sum();
    let rate = count as f64 / took.as_secs_f64();
    let best = took.as_secs_f64() * 1e3;
    let (nodes, unplaced) = (solution.new_nodes.len(), solution.unschedulable.len());
    println!("{name:<44} {count:>8} {best:>7.1} ms {rate:>12.0} {nodes:>7} {bill:>12} {unplaced:>8}");
}

/// One more pod through the border that the live driver uses: it is seen, and what to do is asked once its window is over. Every
/// ten seconds of the cluster's time all nodes are judged as well; that is shown by itself.
fn measure_kept(cluster: &Cluster, now: Timestamp, runs: u32) {
    let mut engine = engine_of(cluster, now);
    let mut at = now;
    let first = cluster.waiting_pods().next().expect("a pod waits").clone();
    let mut took: Vec<(Duration, bool)> = Vec::new();
    for run in 0..runs {
        let name = format!("late-{run:04}");
        let key = ObjectKey { name: name.as_str().into(), ..first.key };
        let pod = Arc::new(Pod { key, uid: Uid(key.name), ..(*first).clone() });
        let before = engine.plan().disruption.clone();
        let mut lasts = best_of(1, || engine.observe(at, Observation::Pod(pod.clone())));
        lasts += best_of(1, || drop(engine.decide(at)));
        at += SignedDuration::from_secs(1);
        lasts += best_of(1, || drop(engine.decide(at)));
        took.push((lasts, !Arc::ptr_eq(&before, &engine.plan().disruption)));
        // It is bound to where it was expected.
        let node = engine.plan().provisioning.existing.iter().find_map(|(place, pods)| match place {
            Place::Node(node) if pods.contains(&key) => Some(*node),
            _ => None,
        });
        let bound = Pod { node, is_unschedulable: false, phase: PodPhase::Running, ..(*pod).clone() };
        engine.observe(at, Observation::Pod(Arc::new(bound)));
    }
    for (name, judges) in [("one more pod, state kept", false), ("the same, all nodes judged", true)] {
        let mut all: Vec<Duration> =
            took[1..].iter().filter(|(_, judged)| *judged == judges).map(|(lasts, _)| *lasts).collect();
        all.sort_unstable();
        if let (Some(best), Some(middle)) = (all.first(), all.get(all.len() / 2)) {
            let (best, middle) = (best.as_secs_f64() * 1e3, middle.as_secs_f64() * 1e3);
            println!("{name:<44} {:>8} {best:>7.2} ms {middle:>7.2} ms in the middle of {}", 1, all.len());
        }
    }
}

/// `pods` that wait, of so many `shapes`, and `nodes` half of whose room is taken; 1,000 types in three zones.
fn large_cluster(pods: usize, shapes: usize, nodes: usize) -> Cluster {
    let mut reader = Reader::default();
    let objects = pool_of(&mut reader, json!([]));
    let mut catalog = String::from(
        "instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,\
         on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types\n",
    );
    for at in 0..1000_u64 {
        let (cpu, memory) = (2 + 2 * (at % 50), (2 + 2 * (at % 50)) * (2 + at / 250 * 2) * 1024);
        let micros = cpu * 20_000 + memory * 3 + at;
        catalog.push_str(&format!(
            "t{at}.x,amd64,{cpu},{memory},{}m,{}Mi,110,,,{}.{:06},{}.{:06},zone-a zone-b zone-c,on-demand spot\n",
            cpu * 1000 - 100,
            memory - 200,
            micros / 1_000_000,
            micros % 1_000_000,
            micros * 2 / 5 / 1_000_000,
            micros * 2 / 5 % 1_000_000,
        ));
    }
    let mut cluster = cluster_of(objects, &catalog, Timestamp::UNIX_EPOCH);
    let mut templates = Vec::new();
    for at in 0..shapes {
        let app = format!("app-{at:04}");
        let mut spec = json!({
            "containers": [{ "name": "main", "image": "main", "resources": { "requests": {
                "cpu": format!("{}m", 100 + 50 * (at % 17)), "memory": format!("{}Mi", 128 + 64 * (at % 23)),
            } } }],
        });
        if at % 4 == 0 {
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": app } },
            }]);
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": "default", "name": app, "labels": { "app": app } },
            "spec": spec,
            "status": { "phase": "Pending", "conditions": [
                { "type": "PodScheduled", "status": "False", "reason": "Unschedulable" },
            ] },
        });
        let Object::Pod(pod) = parse(&mut reader, &pod) else { unreachable!("a Pod is read as a Pod") };
        templates.push(pod);
    }
    for at in 0..nodes {
        let name = NodeName::new(&format!("node-{at:05}"));
        let zone = ["zone-a", "zone-b", "zone-c"][at % 3];
        let room: Resources =
            [(*resource::CPU, 16_000), (*resource::MEMORY, 64 << 30), (*resource::PODS, 110)]
                .into_iter()
                .collect();
        let node = Node {
            name,
            uid: Uid(name.0),
            labels: [("topology.kubernetes.io/zone", zone), ("kubernetes.io/hostname", name.as_str())]
                .map(|(key, value)| (key.into(), value.into()))
                .into(),
            annotations: Default::default(),
            created: None,
            deleted: None,
            has_finalizer: false,
            provider_id: None,
            taints: Vec::new(),
            is_cordoned: false,
            capacity: room.clone(),
            allocatable: room,
            conditions: Vec::new(),
        };
        cluster.observe(Timestamp::UNIX_EPOCH, &Observation::Node(Arc::new(node)));
    }
    let mut put = |at: usize, node: Option<NodeName>| {
        let template = &templates[at % shapes];
        let key = ObjectKey { name: format!("pod-{at:06}").as_str().into(), ..template.key };
        let is_unschedulable = node.is_none();
        let pod = Pod { key, uid: Uid(key.name), node, is_unschedulable, ..template.clone() };
        cluster.observe(Timestamp::UNIX_EPOCH, &Observation::Pod(Arc::new(pod)));
    };
    for at in 0..pods {
        put(at, None);
    }
    for at in 0..nodes * 8 {
        put(pods + at, Some(NodeName::new(&format!("node-{:05}", at % nodes))));
    }
    cluster
}
