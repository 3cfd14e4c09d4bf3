//! What EC2 has none of: the next best is bought, and how soon an order leaves after a pod begins to wait.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::region::{Region, is_true, quantiles};
use crate::bench::{POOLS, text};

/// Pods that need a machine each.
const CPU: &str = "9";
/// How long the engine waits for further pods.
const WINDOW_MS: u128 = 1000;
/// Orders whose time is taken.
const ROUNDS: usize = 12;

/// Type and zone of each offer of an order, the best first.
fn offers(order: &Value) -> Vec<(String, String)> {
    let parameters = order["parameters"].as_object().expect("parameters");
    let mut offers: Vec<(f64, String, String)> = Vec::new();
    for (name, priority) in parameters {
        let Some(stem) = name.strip_suffix(".Priority").filter(|name| name.contains(".Overrides.")) else {
            continue;
        };
        let of = |field: &str| parameters[&format!("{stem}.{field}")].as_str().expect("a text").to_owned();
        let priority = priority.as_str().and_then(|priority| priority.parse().ok()).expect("a number");
        offers.push((priority, of("InstanceType"), of("AvailabilityZone")));
    }
    offers.sort_by(|one, other| one.0.total_cmp(&other.0));
    offers.into_iter().map(|(_, kind, zone)| (kind, zone)).collect()
}

/// One more pod, and the machine that it gets.
fn bought_for(region: &Region, name: &str) -> Value {
    let before: Vec<Value> = region.machines();
    region.bench.deploy(name, 1, CPU, "1Gi");
    let runs = || {
        let mut pods = region.bench.pods();
        pods.retain(|pod| text(pod, "/metadata/labels/app") == name);
        pods.iter().any(|pod| text(pod, "/status/phase") == "Running")
    };
    region.bench.wait("pod running", runs);
    let is_new = |machine: &Value| !before.iter().any(|known| known["id"] == machine["id"]);
    let new: Vec<Value> = region.machines().into_iter().filter(is_new).collect();
    assert_eq!(new.len(), 1, "one machine for one pod: {new:?}");
    new[0].clone()
}

#[test]
fn what_has_no_capacity_is_passed_over_and_orders_leave_soon() {
    let region = Region::new();
    let (strangers, others) = (region.bench.plant_strangers(), region.plant_others());
    let running = region.start(&[]);
    region.bench.wait("pool ready", || {
        is_true(&region.bench.plane.api.get(&format!("{POOLS}/general")).body, "Ready")
    });
    let place = |machine: &Value| (text(machine, "/type").to_owned(), text(machine, "/zone").to_owned());

    let first = bought_for(&region, "first");
    let ranked = offers(&region.calls("CreateFleet")[0]);
    assert!(ranked.len() > 8, "there is a choice: {ranked:?}");
    assert_eq!((place(&first), text(&first, "/lifecycle")), (ranked[0].clone(), "spot"));

    let dry: Vec<Value> = ranked[..3].iter().map(|(kind, zone)| json!([kind, zone, "spot"])).collect();
    region.control("no-capacity", json!(dry));
    let second = bought_for(&region, "second");
    assert_eq!(
        (place(&second), text(&second, "/lifecycle")),
        (ranked[3].clone(), "spot"),
        "the fourth of {ranked:?}"
    );

    region.control("no-capacity", json!([["*", "*", "spot"]]));
    let third = bought_for(&region, "third");
    assert_eq!(text(&third, "/lifecycle"), "on-demand");
    let claim = text(&third, "/tags/karpenter.sh~1nodeclaim");
    let claim = region.bench.plane.api.get(&format!("{}/{claim}", crate::bench::CLAIMS)).expect("its claim");
    assert_eq!(claim["metadata"]["labels"]["karpenter.sh/capacity-type"], "on-demand");

    region.control("no-capacity", json!([]));
    let before = region.calls("CreateFleet").len();
    let begun: Vec<f64> = (0..ROUNDS).map(|round| pod_that_runs(&region, round)).collect();
    let orders = region.calls("CreateFleet").split_off(before);
    assert_eq!(orders.len(), ROUNDS, "one order for each pod");
    let left = |order: &Value| order["at"].as_f64().expect("a time");
    let times: Vec<Duration> = begun
        .iter()
        .zip(&orders)
        .map(|(begun, order)| Duration::from_secs_f64((left(order) - begun).max(0.0)))
        .collect();
    let (middle, slow) = quantiles(times.clone());
    let [middle_ms, slow_ms] = [middle, slow].map(|time| time.as_millis());
    println!(
        "pending pod to CreateFleet sent, of {ROUNDS}: p50 {middle_ms} ms, p95 {slow_ms} ms, {WINDOW_MS} of it the batch window"
    );
    assert!(middle < Duration::from_secs(3), "{times:?}");

    assert_eq!(
        region.bench.deleted_for_taints(),
        Vec::<String>::new(),
        "they came to nodes that were not open"
    );

    // Without pods nothing is left running, and nothing is bought any more.
    ["first", "second", "third"].iter().for_each(|name| region.bench.scale(name, 0));
    for round in 0..ROUNDS {
        let path = format!("{}/pod-{round}", pods_of(&region));
        region.bench.plane.api.delete(&path).expect("it ends");
    }
    region.bench.wait("all machines ended", || region.living().is_empty());
    // That a machine has ended is seen when all are listed, every two minutes.
    region.bench.wait("empty", || region.is_empty());
    assert_eq!(running.stop(), 130, "asked to end, it ends");
    assert_eq!(region.machines().len(), 3 + ROUNDS, "one machine for each pod");
    region.expect_one_machine_a_claim();
    region.bench.expect_untouched(&strangers);
    region.expect_others(&others);
}

fn pods_of(region: &Region) -> String {
    format!("/api/v1/namespaces/{}/pods", region.bench.namespace)
}

/// Creates a pod and waits for it, so that the next one does not find its machine free; tells when it was created.
fn pod_that_runs(region: &Region, round: usize) -> f64 {
    let name = format!("pod-{round}");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "pause", "resources": { "requests": { "cpu": CPU } } }],
        },
    });
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    region.bench.plane.api.post(&pods_of(region), &pod).expect("a pod");
    region.bench.wait("running", || {
        let pod = region.bench.plane.api.get(&format!("{}/{name}", pods_of(region))).body;
        text(&pod, "/status/phase") == "Running"
    });
    begun
}
