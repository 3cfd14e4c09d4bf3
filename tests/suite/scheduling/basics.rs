//! What a new node is, and what its claim says.

use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::decision::{Decision, Plan};
use provisor::capacity::scheduling::Code;
use provisor::model::label::annotation;
use provisor::model::observation::Observation;
use provisor::model::requirement::Operator::*;
use provisor::model::taint::Effect;
use provisor::ui::metrics::Metrics;

use super::world::*;

/// Whether a pod gets a node in a fresh world.
fn is_served(one: A) -> bool {
    let mut world = World::plain();
    let name = one.name.clone();
    world.run(&[one]);
    world.is_bound(&name)
}

/// The samples of waiting that monitoring reads, of pods that were seen at one moment and decided about two seconds later.
fn decision_samples(pods: &[A], rounds: &[&Round]) -> (u64, f64) {
    let metrics = Metrics::new();
    for pod in pods {
        metrics.see(now(), &Observation::Pod(pod.build()));
    }
    for (at, round) in rounds.iter().enumerate() {
        let plan = Plan { provisioning: round.solution.clone(), ..Plan::default() };
        let decision = Decision { plan: Arc::new(plan), ..Decision::default() };
        // The same judgement again says nothing new, and neither does another about the same pods.
        for _ in 0..2 {
            metrics.decided(now() + SignedDuration::from_secs(2 + at as i64), &decision);
        }
    }
    let text = metrics.text(now());
    let figure = |what: &str| {
        let name = format!("karpenter_pods_scheduling_decision_duration_seconds_{what} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.and_then(|figure| figure.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name}in {text}"))
    };
    (figure("count") as u64, figure("sum"))
}

#[test]
fn sch_006_one_pod_gets_one_node() {
    let mut world = World::plain();
    let pods = [pod("a")];
    let round = world.run(&pods);
    assert_eq!(round.new_nodes().len(), 1);
    assert!(world.is_bound("a"));
    assert_eq!(decision_samples(&pods, &[&round, &round]), (1, 2.0));
}

#[test]
fn sch_007_a_hundred_pods_all_find_room() {
    let mut world = World::plain();
    let pods = many(100, &pod("a"));
    let round = world.run(&pods);
    assert_eq!(world.waiting(), 0);
    assert_eq!(round.new_nodes().iter().map(|node| node.pods.len()).sum::<usize>(), 100);
    assert_eq!(decision_samples(&pods, &[&round]), (100, 200.0));
}

/// Rows: SCH-012
#[test]
fn sch_011_a_pool_being_deleted_buys_nothing() {
    let mut leaving = pool("default");
    leaving.is_deleting = true;
    let mut world = World::of(leaving);
    let round = world.run(&[pod("a")]);
    assert!(!world.is_bound("a"));
    assert_eq!(round.codes("a"), [Code::NoUsablePool]);
    // That it found no place was decided too.
    assert_eq!(decision_samples(&[pod("a")], &[&round]).0, 1);
}

/// Rows: SCH-225, SCH-227
#[test]
fn pods_that_fit_nowhere_are_counted_and_every_pod_is_timed_once() {
    let impossible = many(10, &pod("huge").cpu("10000"));
    let possible = many(5, &pod("small").cpu("100m"));
    let all: Vec<A> = impossible.into_iter().chain(possible).collect();
    let mut world = World::plain();
    let round = world.run(&all);
    assert_eq!(decision_samples(&all, &[&round]), (15, 30.0));
    let metrics = Metrics::new();
    all.iter().for_each(|pod| metrics.see(now(), &Observation::Pod(pod.build())));
    let plan = Plan { provisioning: round.solution.clone(), ..Plan::default() };
    metrics.decided(now(), &Decision { plan: Arc::new(plan), ..Decision::default() });
    let count = "karpenter_scheduler_unschedulable_pods_count{controller=\"provisioner\"} 10";
    assert!(metrics.text(now()).lines().any(|line| line == count), "{}", metrics.text(now()));
}

/// Rows: SCH-459, SCH-460
#[test]
fn pods_that_went_or_were_bound_are_not_timed() {
    let mut world = World::plain();
    let (gone, bound) = (pod("gone"), pod("bound"));
    let round = world.run(&[gone.clone(), bound.clone()]);
    let samples = |forgets: bool| {
        let metrics = Metrics::new();
        metrics.see(now(), &Observation::Pod(gone.build()));
        metrics.see(now(), &Observation::Pod(bound.build()));
        if forgets {
            metrics.see(now(), &Observation::PodGone(gone.build().key));
            metrics.see(now(), &Observation::Pod(bound.clone().on("n1").build()));
        }
        let plan = Plan { provisioning: round.solution.clone(), ..Plan::default() };
        metrics.decided(now(), &Decision { plan: Arc::new(plan), ..Decision::default() });
        let name = "karpenter_pods_scheduling_decision_duration_seconds_count ";
        metrics.text(now()).lines().find_map(|line| line.strip_prefix(name).map(str::to_owned))
    };
    assert_eq!((samples(false).as_deref(), samples(true).as_deref()), (Some("2"), Some("0")));
}

/// Rows: SCH-013, SCH-014, SCH-457, SCH-458
#[test]
fn the_way_from_a_place_to_a_node_is_timed_for_pools_whose_machines_join() {
    use provisor::model::claim::ConditionStatus::{False, True, Unknown};
    let mut world = World::plain();
    let one = pod("a");
    let placed = world.run(std::slice::from_ref(&one)).solution;
    let mut nowhere = World::of(pool("default").require(ZONE, In, &["nowhere"]));
    let lost = nowhere.run(std::slice::from_ref(&one)).solution;
    // The seconds that are counted for a pod that these rounds, a minute apart, speak of before it is bound after five.
    let seconds = |status, rounds: &[&provisor::capacity::scheduling::Solution]| {
        let metrics = Metrics::new();
        let mut pool = pool("default");
        let health = provisor::model::pool::PoolCondition::NodeRegistrationHealthy;
        pool.conditions.set(health, status, "Told", "", now());
        metrics.see(now(), &Observation::Pool(Arc::new(pool)));
        metrics.see(now(), &Observation::Pod(one.build()));
        for (at, solution) in rounds.iter().enumerate() {
            let plan = Plan { provisioning: (*solution).clone(), ..Plan::default() };
            let decision = Decision { plan: Arc::new(plan), ..Decision::default() };
            metrics.decided(now() + SignedDuration::from_mins(at as i64), &decision);
        }
        metrics.see(now() + SignedDuration::from_mins(5), &Observation::Pod(one.clone().on("n1").build()));
        let text = metrics.text(now());
        let figure = |what: &str| -> f64 {
            let name = format!("karpenter_pods_provisioning_bound_duration_seconds_{what} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("it is there");
            line.parse().expect("a number")
        };
        (figure("count") as u64, figure("sum"))
    };
    assert_eq!(seconds(True, &[&placed]), (1, 300.0));
    assert_eq!(seconds(False, &[&placed]), (0, 0.0));
    assert_eq!(seconds(Unknown, &[&placed]), (0, 0.0));
    assert_eq!(seconds(True, &[&placed, &placed]), (1, 300.0), "the first place counts");
    assert_eq!(seconds(True, &[&placed, &lost]), (0, 0.0), "it was lost again");
    assert_eq!(seconds(True, &[&placed, &lost, &placed]), (1, 180.0));
}

/// Rows: SCH-015, SCH-017
#[test]
fn well_known_values_on_offer_are_served() {
    for (key, value) in [
        (NODEPOOL, "default"),
        (ZONE, Z1),
        (INSTANCE_TYPE, "default-instance-type"),
        (ARCH, "arm64"),
        (OS, "linux"),
        (CAPACITY_TYPE, "spot"),
    ] {
        assert!(is_served(pod("a").select(key, value)), "{key}={value} as selector");
        assert!(is_served(pod("a").or(&[(key, In, &[value])])), "{key}={value} as affinity");
    }
}

/// Rows: SCH-016, SCH-017
#[test]
fn values_that_nobody_offers_leave_the_pod_waiting() {
    for (key, value) in [
        (NODEPOOL, "other"),
        (ZONE, "unknown"),
        (INSTANCE_TYPE, "unknown"),
        (ARCH, "unknown"),
        (OS, "unknown"),
        (CAPACITY_TYPE, "unknown"),
        ("foo", "bar"),
    ] {
        assert!(!is_served(pod("a").select(key, value)), "{key}={value} as selector");
        assert!(!is_served(pod("a").or(&[(key, In, &[value])])), "{key}={value} as affinity");
    }
}

#[test]
fn sch_018_pods_of_two_gpu_vendors_are_both_served() {
    let mut world = World::plain();
    world.run(&[pod("a").request("fake.com/vendor-a", "1"), pod("b").request("fake.com/vendor-b", "1")]);
    assert_eq!(world.value_of("a", INSTANCE_TYPE), Some("gpu-vendor-instance-type"));
    assert_eq!(world.value_of("b", INSTANCE_TYPE), Some("gpu-vendor-b-instance-type"));
}

#[test]
fn sch_019_types_of_one_pod_take_one_node_each() {
    let mut world = World::of(pool("default").require(INSTANCE_TYPE, In, &["single-pod-instance-type"]));
    assert_eq!(world.run(&many(3, &pod("a"))).new_nodes().len(), 3);
}

#[test]
fn sch_020_the_claim_carries_the_hash_of_its_pool() {
    let claim = World::plain().run(&[pod("a")]).claim().clone();
    assert_eq!(claim.annotations.get(&*annotation::NODEPOOL_HASH).map(|hash| hash.as_str()), Some("17"));
    assert_eq!(claim.annotations.get(&*annotation::NODEPOOL_HASH_VERSION).map(|v| v.as_str()), Some("v3"));
}

#[test]
fn sch_021_pods_of_a_dying_node_move_together_and_never_back() {
    let mut world = World::plain();
    let old = many(3, &pod("old"));
    world.run(&old);
    let dying = world.host_of("old-001").unwrap();
    world.edit_claim_of(dying, |claim| claim.deleted = Some(now()));
    let round = world.run(&many(2, &pod("new")));
    assert_eq!(round.new_nodes().len(), 1);
    assert_eq!(round.new_nodes()[0].pods.len(), 5, "the three that move and the two that wait");
    assert!(round.solution.existing.is_empty());
}

/// Rows: SCH-026
#[test]
fn what_the_template_annotates_the_claim_has_too() {
    let mut annotated = pool("default");
    annotated.template().annotations.insert("karpenter.sh/do-not-disrupt".into(), "true".into());
    let claim = World::of(annotated).run(&[pod("a")]).claim().clone();
    assert_eq!(claim.annotations.get(&*annotation::DO_NOT_DISRUPT).map(|v| v.as_str()), Some("true"));
    assert_eq!(claim.pool().unwrap().as_str(), "default");
}

#[test]
fn sch_027_requirements_become_labels_where_a_value_can_be_chosen() {
    let mut world = World::of(
        pool("default")
            .label("k1", "v1")
            .require("k2", In, &["v2"])
            .require("k3", NotIn, &["v3"])
            .require("k4", Lt, &["4"])
            .require("k5", Gt, &["5"])
            .require("k6", Exists, &[])
            .require("k7", DoesNotExist, &[]),
    );
    world.run(&[pod("a")]);
    let value = |key| world.value_of("a", key);
    assert_eq!(value(NODEPOOL), Some("default"));
    assert_eq!((value("k1"), value("k2")), (Some("v1"), Some("v2")));
    assert!(value("k3").is_some_and(|v| v != "v3"));
    assert!(value("k4").is_some_and(|v| v.parse::<i64>().unwrap() < 4));
    assert!(value("k5").is_some_and(|v| v.parse::<i64>().unwrap() > 5));
    assert!(value("k6").is_some());
    assert_eq!(value("k7"), None);
}

/// Rows: SCH-028, SCH-029, SCH-133
#[test]
fn labels_in_the_domains_of_kubernetes_can_be_asked_for() {
    for key in ["kubernetes.io/test", "k8s.io/test", "sub.kubernetes.io/test", "sub.k8s.io/test"] {
        let mut world = World::of(pool("default").label(key, "v"));
        world.run(&[pod("a").select(key, "v")]);
        assert_eq!(world.value_of("a", key), Some("v"));
        let mut world = World::of(pool("default").require(key, In, &["v"]));
        world.run(&[pod("a")]);
        assert_eq!(world.value_of("a", key), Some("v"));
    }
}

#[test]
fn sch_030_no_value_is_invented_for_an_excluded_well_known_label() {
    let mut world = World::of(pool("default").require("foo", In, &["bar"]).require(
        "node.kubernetes.io/windows-build",
        NotIn,
        &["x"],
    ));
    world.run(&[pod("a")]);
    assert_eq!(world.value_of("a", "foo"), Some("bar"));
    assert_eq!(world.value_of("a", "node.kubernetes.io/windows-build"), None);
}

#[test]
fn sch_031_every_toleration_that_matches_passes_the_taint() {
    let tainted = pool("default").taint("nvidia.com/gpu", "true", Effect::NoSchedule);
    for (name, key, value, effect) in [
        ("equal", "nvidia.com/gpu", Some("true"), Some(Effect::NoSchedule)),
        ("exists", "nvidia.com/gpu", None, Some(Effect::NoSchedule)),
        ("key", "nvidia.com/gpu", None, None),
        ("all", "", None, None),
    ] {
        let mut world = World::of(tainted.clone());
        world.run(&[pod(name).tolerate(key, value, effect)]);
        assert!(world.is_bound(name), "{name}");
    }
}

/// Rows: SCH-032, SCH-033, SCH-038
#[test]
fn the_claim_lists_types_pool_and_custom_requirements() {
    let mut world = World::of(pool("default").require("team", In, &["a", "b"]).require("tier", In, &["x"]));
    let claim = world.run(&[pod("a")]).claim().clone();
    assert_eq!(types_of(&claim).len(), 6);
    assert_eq!(values_of(&claim, NODEPOOL), ["default"]);
    assert_eq!(values_of(&claim, "team"), ["a", "b"]);
    assert_eq!(values_of(&claim, "tier"), ["x"]);
    assert_eq!(claim.spec.class.label_key().as_str(), "karpenter.test.sh/testnodeclass");
    assert_eq!(claim.spec.class.name.as_str(), "test");
}

/// Rows: SCH-034, SCH-035, SCH-036
#[test]
fn the_pool_and_the_pods_narrow_the_types_of_the_claim() {
    for narrowed in [pool("default").require(ARCH, In, &["arm64"]), pool("default").require(OS, In, &["ios"])]
    {
        assert_eq!(types_of(World::of(narrowed).run(&[pod("a")]).claim()), ["arm-instance-type"]);
    }
    let round = World::plain().run(&[pod("a").request("fake.com/vendor-a", "1")]);
    assert_eq!(types_of(round.claim()), ["gpu-vendor-instance-type"]);
}

#[test]
fn sch_039_the_claim_asks_for_exactly_what_its_pods_ask_for() {
    let one = pod("a").cpu("1").memory("1Mi").request("fake.com/vendor-a", "1");
    let round = World::plain().run(&[one]);
    let expected = amounts(&[("cpu", "1"), ("memory", "1Mi"), ("fake.com/vendor-a", "1"), ("pods", "1")]);
    assert_eq!(round.claim().spec.requests, expected);
}

/// Rows: SCH-040, SCH-041
#[test]
fn daemons_count_once_in_the_requests_of_a_claim() {
    let mut world = World::plain();
    world.put_daemon("agent", &pod("agent").cpu("1").memory("1Mi"));
    let one = pod("a").cpu("1").memory("1Mi");
    let claim = world.run(std::slice::from_ref(&one)).claim().clone();
    assert_eq!(claim.spec.requests, amounts(&[("cpu", "2"), ("memory", "2Mi"), ("pods", "2")]));
    let mut world = World::plain();
    world.put_daemon("agent", &pod("agent").cpu("1").memory("1Mi"));
    let claim = world.run(&many(2, &one)).claim().clone();
    assert_eq!(claim.spec.requests, amounts(&[("cpu", "3"), ("memory", "3Mi"), ("pods", "3")]));
}

#[test]
fn the_same_solution_is_bought_under_the_same_names() {
    let mut world = World::plain();
    world.put_pods(&many(12, &pod("a")));
    let (one, two) = (world.plan(), world.plan());
    assert_eq!(one.solution, two.solution);
    assert_eq!(one.purchase, two.purchase);
    let names: std::collections::BTreeSet<_> =
        one.purchase.claims.iter().map(|(claim, _)| claim.name).collect();
    assert_eq!(names.len(), one.new_nodes().len());
}

/// Rows: SCH-135
#[test]
fn a_pool_that_is_not_ready_is_named_as_the_reason() {
    let mut unready = pool("default");
    unready.is_ready = false;
    let mut world = World::of(unready);
    let round = world.run(&[pod("a")]);
    assert_eq!(round.codes("a"), [Code::PoolNotReady]);
}

/// A pod of `spec`, as it is written.
fn written(name: &str, spec: serde_json::Value) -> A {
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" }, "spec": spec,
    });
    let Ok(provisor::api::Object::Pod(read)) = provisor::api::parse(&object) else { panic!("a pod") };
    A { shape: (*read.shape).clone(), ..pod(name) }
}

/// Rows: SCH-252, SCH-500
#[test]
fn claims_of_a_pod_or_of_any_of_its_containers_ask_for_devices() {
    let claims = serde_json::json!({ "claims": [{ "name": "gpu" }] });
    let of_pod = serde_json::json!({
        "containers": [{ "name": "a" }], "resourceClaims": [{ "name": "gpu", "resourceClaimName": "one" }],
    });
    let of_container = serde_json::json!({ "containers": [{ "name": "a", "resources": claims }] });
    let of_init = serde_json::json!({
        "containers": [{ "name": "a" }], "initContainers": [{ "name": "i", "resources": claims }],
    });
    let plain = serde_json::json!({
        "containers": [{ "name": "a", "resources": { "claims": [], "requests": { "cpu": "1" } } }],
        "resourceClaims": [],
    });
    let mut world = World::plain();
    let round = world.run(&[
        written("of-pod", of_pod),
        written("of-container", of_container),
        written("of-init", of_init),
        written("plain", plain),
    ]);
    for name in ["of-pod", "of-container", "of-init"] {
        assert_eq!(round.rejected.get(name), Some(&Code::NeedsDevices), "{name}");
    }
    assert!(world.is_bound("plain"));
}

#[test]
fn sch_251_pods_that_need_devices_are_refused_and_stop_nobody() {
    let mut world = World::plain();
    let mut needy = pod("needy");
    needy.shape.has_resource_claims = true;
    let round = world.run(&[needy, pod("plain")]);
    assert_eq!(round.rejected.get("needy"), Some(&Code::NeedsDevices));
    assert!(world.is_bound("plain"));
}
