//! The same pods with Karpenter in Provisor's place: one pool, one list of machines and prices, the same kubelets, a control plane each.
//! Who is dearer is judged here, how long it takes is told; memory and 5,000 pods are measured by hand (`benches/peer-kwok`).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::bench::{Bench, CLAIMS, POOLS, is_true, text};
use super::karpenter;
use super::kubelets::{Kubelets, LEFT_TO_US};
use crate::plane::collection_of;

const POOL: &str = "default";
/// Half of the pods: CPUs and GiB of memory that each asks for.
const PODS: [(&str, u32, f64, f64); 2] = [("small", 150, 0.9, 3.0), ("large", 150, 3.5, 28.0)];
const USD_PER_CPU: f64 = 0.025;
/// Of 10⁹ bytes.
const USD_PER_GB: f64 = 0.001;
/// GiB for each CPU, by the first letter of a type's name.
const FAMILIES: [(&str, f64); 3] = [("c", 2.0), ("s", 4.0), ("m", 8.0)];

/// What became of the pods.
struct Burst {
    last_claim: Duration,
    all_run: Duration,
    claims: usize,
    nodes: usize,
    /// Nodes on which one of the pods runs.
    used: usize,
    usd_per_hour: f64,
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { last_claim, all_run, claims, nodes, used, usd_per_hour } = self;
        let over = usd_per_hour / floor();
        write!(
            f,
            "{claims} claims, the last after {last_claim:.1?}; all run after {all_run:.1?}; {used} of {nodes} nodes are used, "
        )?;
        write!(f, "{usd_per_hour:.3} $/h, {over:.3} of what was asked for")
    }
}

fn usd(cpus: f64, gib: f64) -> f64 {
    USD_PER_CPU * cpus + USD_PER_GB * gib * f64::from(1 << 30) / 1e9
}

/// Prices are linear: no machines are cheaper than what the pods ask for.
fn floor() -> f64 {
    PODS.iter().map(|(_, count, cpus, gib)| f64::from(*count) * usd(*cpus, *gib)).sum()
}

/// By the name of its type, such as `c-16x-amd64-linux`, whatever its buyer believes.
fn price_of(node: &Value) -> f64 {
    assert_eq!(text(node, "/metadata/labels/karpenter.sh~1capacity-type"), "on-demand");
    let kind = text(node, "/metadata/labels/node.kubernetes.io~1instance-type");
    let mut parts = kind.split('-');
    let gib = parts.next().and_then(|family| FAMILIES.iter().find(|(name, _)| *name == family));
    let cpus = parts.next().and_then(|size| size.strip_suffix('x')?.parse().ok());
    let (Some((_, gib)), Some(cpus)) = (gib, cpus) else { panic!("{kind:?} is no type of theirs") };
    usd(cpus, gib * cpus)
}

/// Asks for the pods at once, and waits until all of them run.
fn burst(bench: &Bench) -> Burst {
    let _kubelets = Kubelets::start(bench);
    let start = Instant::now();
    for (name, count, cpus, gib) in PODS {
        bench.deploy(name, count, &format!("{}m", cpus * 1000.0), &format!("{gib}Gi"));
    }
    let (known, last_claim) = (Cell::new(0), Cell::new(Duration::ZERO));
    let count = PODS.iter().map(|(_, count, ..)| *count as usize).sum();
    let all_run = bench.wait("all running", || {
        let claims = bench.claims_of(POOL).len();
        if claims > known.replace(claims) {
            last_claim.set(start.elapsed());
        }
        bench.all_run(count)
    });
    bench.wait("a node for each claim", || bench.claims_of(POOL).len() == bench.nodes().len());
    let nodes = bench.nodes();
    let used: BTreeSet<String> =
        bench.pods().iter().map(|pod| text(pod, "/spec/nodeName").to_owned()).collect();
    Burst {
        last_claim: last_claim.get(),
        all_run,
        claims: bench.claims_of(POOL).len(),
        usd_per_hour: nodes.iter().map(price_of).sum(),
        nodes: nodes.len(),
        used: used.len(),
    }
}

fn with_provisor(environment: &str) -> Burst {
    let bench = Bench::of(environment);
    let catalog = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peer-kwok/catalog.py"))
        .output()
        .expect("Python runs");
    assert!(catalog.status.success(), "{catalog:?}");
    let path = bench.fleet.dir.path().join("catalog.csv");
    std::fs::write(&path, catalog.stdout).expect("our folder");
    let path = path.to_str().expect("a path of letters");
    let said = ["--catalog", path, "--simulated-boot", "0s", LEFT_TO_US];
    let running = bench.run_as(0, &said, &[]);
    let pool = format!("{POOLS}/{POOL}");
    bench.wait("pool ready", || is_true(&bench.plane.api.get(&pool).body, "Ready"));
    let burst = burst(&bench);
    assert_eq!(running.stop(), 130, "asked to end, it ends");
    burst
}

fn with_karpenter() -> Burst {
    let bench = Bench::new();
    karpenter::install(&bench);
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": POOL },
        "spec": {
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s",
                "budgets": [{ "nodes": "100%" }],
            },
            "template": { "spec": {
                "expireAfter": "Never",
                "nodeClassRef": { "group": karpenter::GROUP, "kind": "KWOKNodeClass", "name": karpenter::CLASS },
                "requirements": [
                    { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                    { "key": "karpenter.kwok.sh/instance-size", "operator": "Lt", "values": ["32"] },
                ],
            } },
        },
    });
    bench.plane.api.post(&collection_of(&pool), &pool).expect("a pool");
    let _karpenter = karpenter::start(&bench);
    let ready = format!("{POOLS}/{POOL}");
    bench.wait("pool ready", || is_true(&bench.plane.api.get(&ready).body, "Ready"));
    let burst = burst(&bench);
    let is_theirs = |claim: &Value| text(claim, "/spec/nodeClassRef/group") == karpenter::GROUP;
    assert!(bench.list(CLAIMS).iter().all(is_theirs), "Karpenter made them");
    burst
}

#[test]
fn a_burst_of_pods_costs_no_more_than_with_karpenter() {
    let environment = include_str!("../../../benches/peer-kwok/fleet/environments/kwok.toml");
    let (ours, theirs) = (with_provisor(environment), with_karpenter());
    eprintln!("Provisor:  {ours}\nKarpenter: {theirs}");
    assert!(ours.usd_per_hour <= theirs.usd_per_hour, "Provisor: {ours}\nKarpenter: {theirs}");
    assert!(theirs.used > 1 && theirs.usd_per_hour >= floor(), "Karpenter had the same pods");
}
