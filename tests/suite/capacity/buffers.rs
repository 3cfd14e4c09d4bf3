//! Room that is kept free: how much, for whom, and what becomes of it when others need it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::buffers::{self, Hosting, resolve, size, virtual_pods};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::capacity::planning;
use provisor::capacity::scheduling::{Place, Settings};
use provisor::model::action::{Action, Subject};
use provisor::model::buffer::{
    BufferCondition, BufferSource, BufferStatus, CapacityBuffer, PodTemplate, Scalable,
};
use provisor::model::condition::ConditionStatus;
use provisor::model::name::{NodeName, ObjectKey};
use provisor::model::observation::Observation;
use provisor::model::pod::{PodShape, PodVolume};
use provisor::model::quantity::{Quantity, ResourceName, Resources};
use provisor::model::time::Patience;
use provisor::simulator::settle::settle;
use provisor::simulator::workload::{Workload, WorkloadKind};
use provisor::simulator::world::{Habits, World};
use provisor::ui::metrics::Metrics;

use super::town::*;

fn amounts(list: &[(&str, &str)]) -> Resources {
    let read = |(name, amount): &(&str, &str)| {
        let name = ResourceName::new(name);
        (name, name.amount(amount.parse::<Quantity>().expect("a quantity")))
    };
    list.iter().map(read).collect()
}

fn buffer(name: &str) -> CapacityBuffer {
    CapacityBuffer {
        key: ObjectKey::new("default", name),
        uid: name.into(),
        created: None,
        is_deleting: false,
        strategy: "buffer.x-k8s.io/active-capacity".into(),
        source: Some(BufferSource::Template("unit".into())),
        replicas: None,
        percentage: None,
        limits: None,
        status: BufferStatus::default(),
    }
}

fn of(kind: &str, group: &str) -> Option<BufferSource> {
    Some(BufferSource::Scalable { group: group.into(), kind: kind.into(), name: "web".into() })
}

fn template(cpu: &str, generation: i64) -> Arc<PodTemplate> {
    Arc::new(PodTemplate {
        key: ObjectKey::new("default", "unit"),
        generation,
        shape: Arc::new(shape("unit", cpu)),
    })
}

fn deployment(replicas: u32) -> Arc<Scalable> {
    Arc::new(Scalable {
        kind: "Deployment".into(),
        key: ObjectKey::new("default", "web"),
        replicas,
        selector: None,
        shape: Arc::new(shape("web", "1")),
        is_refused: false,
    })
}

/// A town with a PodTemplate `unit` of so much CPU and a buffer of so many of it.
fn town_with(cpu: &str, replicas: u32) -> Town {
    let mut town = Town::with(|_| ());
    let unit = template(cpu, 1);
    town.cluster.pod_templates.insert(unit.key, unit);
    put(&mut town, CapacityBuffer { replicas: Some(replicas), ..buffer("spare") });
    town
}

fn put(town: &mut Town, buffer: CapacityBuffer) {
    town.cluster.buffers.insert(buffer.key, Arc::new(buffer));
}

fn size_of(change: impl FnOnce(&mut CapacityBuffer), scalable: Option<u32>, cpu: &str) -> u32 {
    let mut buffer = buffer("spare");
    change(&mut buffer);
    size(&buffer, scalable, &amounts(&[("cpu", cpu), ("memory", "1Gi"), ("pods", "1")]))
}

/// Rows: API-057, SCH-393, SCH-394, SCH-397, SCH-399, SCH-400, SCH-401
#[test]
fn api_057_the_size_follows_count_share_and_limits() {
    let limits = |list: &[(&str, &str)]| Some(amounts(list));
    assert_eq!(size_of(|it| it.replicas = Some(3), None, "1"), 3);
    let capped = |it: &mut CapacityBuffer| {
        it.replicas = Some(3);
        it.limits = limits(&[("cpu", "2")]);
    };
    assert_eq!(size_of(capped, None, "1"), 2);
    assert_eq!(size_of(|it| it.limits = limits(&[("cpu", "5")]), None, "1"), 5);
    assert_eq!(size_of(|it| it.limits = limits(&[("cpu", "10")]), None, "3"), 3, "rounded down");
    assert_eq!(size_of(|it| it.limits = limits(&[("cpu", "1")]), None, "2"), 0);
    assert_eq!(size_of(|it| it.limits = limits(&[("cpu", "1")]), None, "250m"), 4);
    assert_eq!(size_of(|it| it.limits = limits(&[("cpu", "8"), ("memory", "4Gi")]), None, "1"), 4);
    assert_eq!(size_of(|it| it.limits = limits(&[("x.com/a", "1")]), None, "1"), 0, "it limits nothing");
    let with_other_limit = |it: &mut CapacityBuffer| {
        it.replicas = Some(7);
        it.limits = limits(&[("x.com/a", "1")]);
    };
    assert_eq!(size_of(with_other_limit, None, "1"), 7);
    for (percent, replicas, expected) in
        [(20, 10, 2), (10, 3, 1), (1, 1, 1), (50, 0, 0), (0, 10, 0), (200, 5, 10), (20, 5, 1), (100, 1, 1)]
    {
        assert_eq!(size_of(|it| it.percentage = Some(percent), Some(replicas), "1"), expected, "{percent}%");
    }
}

/// Rows: API-058, SCH-398
#[test]
fn api_058_the_greater_of_count_and_share_holds_under_the_limit() {
    let both = |replicas, percent| {
        move |it: &mut CapacityBuffer| {
            it.replicas = Some(replicas);
            it.percentage = Some(percent);
        }
    };
    assert_eq!(size_of(both(5, 30), Some(10), "1"), 5);
    assert_eq!(size_of(both(2, 40), Some(10), "1"), 4);
    assert_eq!(size_of(both(5, 20), Some(10), "1"), 5);
    let limited = |it: &mut CapacityBuffer| {
        both(5, 80)(it);
        it.limits = Some(amounts(&[("cpu", "4")]));
    };
    assert_eq!(size_of(limited, Some(10), "1"), 4);
}

#[test]
fn no_number_is_too_large_to_be_planned_for() {
    let huge = |it: &mut CapacityBuffer| {
        it.percentage = Some(i32::MAX as u32);
        it.replicas = Some(i32::MAX as u32);
    };
    assert_eq!(size_of(huge, Some(u32::MAX), "1"), buffers::PODS_MAX);
}

fn status(engine: &Engine) -> BufferStatus {
    engine.cluster().buffers[&ObjectKey::new("default", "spare")].status.clone()
}

fn said(engine: &Engine, kind: BufferCondition) -> (ConditionStatus, String) {
    let status = status(engine);
    let found = status.conditions.get(kind).expect("it was written");
    (found.status, found.reason.to_string())
}

fn bought(engine: &mut Engine, town: &Town, seconds: std::ops::Range<i64>) -> usize {
    let mut count = 0;
    for second in seconds {
        let decision = engine.decide(town.now + SignedDuration::from_secs(second));
        count += decision.actions.iter().filter(|one| matches!(one.action, Action::CreateClaim(_))).count();
    }
    count
}

/// Rows: API-059, SCH-389, SCH-392, SCH-395, SCH-396, SCH-402
#[test]
fn api_059_a_buffer_that_cannot_be_resolved_says_why_and_buys_nothing() {
    use BufferCondition::{Provisioning, ReadyForProvisioning};
    for (source, reason) in [
        (Some(BufferSource::Template("lost".into())), "PodTemplateNotFound"),
        (of("Deployment", "apps"), "ScalableRefNotFound"),
        (of("Job", "apps"), "ResolutionFailed"),
        (of("Deployment", "batch"), "ResolutionFailed"),
        (None, "ResolutionFailed"),
    ] {
        let mut town = town_with("1500m", 3);
        put(&mut town, CapacityBuffer { source, replicas: Some(3), ..buffer("spare") });
        assert!(virtual_pods(&town.cluster, &Settings::default()).is_empty());
        let mut engine = town.engine();
        assert_eq!(bought(&mut engine, &town, 0..60), 0, "{source:?}");
        assert_eq!(said(&engine, ReadyForProvisioning), (ConditionStatus::False, reason.to_owned()));
        assert_eq!(said(&engine, Provisioning).1, "NotReadyForProvisioning");
    }
    // What worked before and is gone now drops its pods, and with them the nodes.
    let town = town_with("1500m", 3);
    let mut engine = town.engine();
    assert!(bought(&mut engine, &town, 0..60) > 0);
    assert_eq!(said(&engine, ReadyForProvisioning), (ConditionStatus::True, "Resolved".into()));
    let later = town.now + SignedDuration::from_secs(60);
    engine.observe(later, Observation::PodTemplateGone(ObjectKey::new("default", "unit")));
    engine.decide(later);
    assert_eq!(said(&engine, ReadyForProvisioning).1, "PodTemplateNotFound");
    assert_eq!(status(&engine).replicas, None);
}

/// Rows: API-060, SCH-403
#[test]
fn api_060_a_changed_template_makes_other_pods() {
    let town = town_with("1500m", 3);
    let mut engine = town.engine();
    bought(&mut engine, &town, 0..60);
    assert_eq!(status(&engine).template, Some(("unit".into(), 1)));
    let before = virtual_pods(engine.cluster(), &Settings::default());
    let later = town.now + SignedDuration::from_secs(60);
    engine.observe(later, Observation::PodTemplate(template("3", 2)));
    assert!(bought(&mut engine, &town, 60..120) > 0, "the larger pods do not fit on what was bought");
    assert_eq!(status(&engine).template, Some(("unit".into(), 2)));
    let after = virtual_pods(engine.cluster(), &Settings::default());
    assert_eq!(before.len(), after.len());
    assert_ne!(before[0].shape, after[0].shape);
    assert_eq!(before[0].uid, after[0].uid);
}

/// Rows: SCH-385, SCH-404, SCH-405, SCH-406
#[test]
fn sch_404_virtual_pods_are_the_templates_without_its_volumes() {
    let mut town = town_with("1500m", 3);
    let unit = PodShape {
        volumes: vec![PodVolume::Claim("data".into())],
        node_selector: [("disk".into(), "fast".into())].into(),
        ..shape("unit", "1500m")
    };
    let unit = PodTemplate { shape: Arc::new(unit), ..(*template("1", 1)).clone() };
    town.cluster.pod_templates.insert(unit.key, Arc::new(unit));
    put(&mut town, CapacityBuffer { replicas: Some(0), ..buffer("none") });
    put(&mut town, CapacityBuffer { source: None, replicas: Some(1), ..buffer("nameless") });
    put(&mut town, CapacityBuffer { replicas: Some(1), is_deleting: true, ..buffer("leaving") });
    put(&mut town, CapacityBuffer { replicas: Some(1), strategy: "other".into(), ..buffer("foreign") });
    let pods = virtual_pods(&town.cluster, &Settings::default());
    let names: Vec<&str> = pods.iter().map(|pod| pod.key.name.as_str()).collect();
    assert_eq!(names, ["capacity-buffer-spare-1", "capacity-buffer-spare-2", "capacity-buffer-spare-3"]);
    assert_eq!(pods[2].uid.as_str(), "spare-3");
    for pod in &pods {
        assert_eq!(pod.shape.priority, i32::MIN);
        assert!(pod.shape.volumes.is_empty() && pod.node.is_none() && pod.is_unschedulable);
        assert_eq!(pod.shape.node_selector.len(), 1, "where it may run stays");
        assert_eq!(pod.buffer(), Some(ObjectKey::new("default", "spare")));
    }
    assert_eq!(pods, virtual_pods(&town.cluster, &Settings::default()), "made anew they are the same");
    assert_eq!(pod("web", None, shape("web", "1")).buffer(), None);
    let off = Settings { capacity_buffer: false, ..Settings::default() };
    assert!(virtual_pods(&town.cluster, &off).is_empty());
}

/// Rows: SCH-386, SCH-390
#[test]
fn sch_386_room_is_counted_by_buffer_and_node() {
    let mut town = town_with("800m", 3);
    town.node("a", "m5.large");
    put(&mut town, CapacityBuffer { replicas: Some(1), ..buffer("other") });
    town.cluster.put_pod(Arc::new(pod("web", None, shape("web", "100m"))));
    let settings = Settings::default();
    let plan = planning::plan(&town.cluster, town.now, &town.settings);
    let hosting = Hosting::of(&virtual_pods(&town.cluster, &settings), &plan.provisioning);
    let (key, other) = (ObjectKey::new("default", "spare"), ObjectKey::new("default", "other"));
    let (here, new) = hosting.split(key);
    let (other_here, other_new) = hosting.split(other);
    assert_eq!((here + other_here, new + other_new), (2, 2), "a node of two CPUs has room for two");
    assert_eq!(here + new, 3);
    let counts = hosting.counts();
    assert_eq!(counts.get(&Place::Node(NodeName::new("a"))), Some(&2), "the real pod does not count");
}

/// Rows: SCH-387, SCH-388
#[test]
fn sch_387_a_buffer_says_whether_its_room_is_there() {
    use BufferCondition::Provisioning;
    let mut town = town_with("800m", 2);
    town.node("a", "m5.large");
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!(said(&engine, Provisioning), (ConditionStatus::True, "FitsExistingCapacity".into()));
    let mut grown = buffer("spare");
    grown.replicas = Some(4);
    let later = town.now + SignedDuration::from_secs(10);
    engine.observe(later, Observation::Buffer(Arc::new(grown)));
    assert_eq!(bought(&mut engine, &town, 10..15), 1);
    assert_eq!(status(&engine).replicas, Some(4));
    assert_eq!(said(&engine, Provisioning), (ConditionStatus::False, "RequiresNewCapacity".into()));
    let mut empty = buffer("spare");
    empty.replicas = Some(0);
    let later = town.now + SignedDuration::from_secs(20);
    engine.observe(later, Observation::Buffer(Arc::new(empty)));
    engine.decide(later);
    assert_eq!(said(&engine, Provisioning), (ConditionStatus::False, "BufferEmpty".into()));
}

/// Rows: SCH-940, WEA-024
#[test]
fn sch_940_real_pods_come_before_kept_room() {
    let mut town = town_with("1800m", 1);
    town.change_pool("default", |pool| pool.limits = Some(amounts(&[("cpu", "2")])));
    // Smaller than what the buffer asks for: by size alone it would come second.
    town.cluster.put_pod(Arc::new(pod("web", None, shape("web", "500m"))));
    let plan = planning::plan(&town.cluster, town.now, &town.settings);
    let pods: Vec<_> = plan.provisioning.new_nodes.iter().flat_map(|node| node.pods.clone()).collect();
    assert_eq!(pods, [ObjectKey::new("default", "web")]);
}

/// By CPU the largest pod alone is placed, and three times the room beside it; the other two fill the node instead of it.
#[test]
fn one_more_real_pod_is_worth_any_kept_room() {
    let mut town = town_with("1", 3);
    town.change_pool("default", |pool| pool.limits = Some(amounts(&[("cpu", "8")])));
    for (name, cpu, memory) in
        [("large", "4500m", "256Mi"), ("wide", "4300m", "2Gi"), ("slim", "3500m", "2Gi")]
    {
        let requests = amounts(&[("cpu", cpu), ("memory", memory), ("pods", "1")]);
        town.cluster.put_pod(Arc::new(pod(name, None, PodShape { requests, ..shape(name, cpu) })));
    }
    let plan = planning::plan(&town.cluster, town.now, &town.settings);
    let pods: Vec<_> = plan.provisioning.new_nodes.iter().flat_map(|node| node.pods.clone()).collect();
    assert_eq!(pods, ["wide", "slim"].map(|name| ObjectKey::new("default", name)));
}

/// The room was planned before the pod came, and is still the pod's.
#[test]
fn sch_940_a_real_pod_takes_the_room_that_was_kept() {
    let mut town = town_with("1500m", 1);
    town.node("a", "m5.large");
    let mut engine = town.engine();
    assert_eq!(bought(&mut engine, &town, 0..5), 0, "there is room");
    town.change_pool("default", |pool| pool.limits = Some(amounts(&[("cpu", "2")])));
    let limited = town.cluster.pools.values().next().expect("there is one").clone();
    let at = town.now + SignedDuration::from_secs(10);
    engine.observe(at, Observation::Pool(limited));
    engine.observe(at, Observation::Pod(Arc::new(pod("web", None, shape("web", "1500m")))));
    engine.decide(at + SignedDuration::from_secs(2));
    let places = &engine.plan().provisioning.existing;
    let there: Vec<_> = places.values().flatten().map(|pod| pod.name.to_string()).collect();
    assert_eq!(there, ["web"], "{:?}", engine.plan().provisioning);
}

/// What a buffer asks for is planned once, not with each node that goes as well.
#[test]
fn room_is_not_bought_with_the_replacement_of_a_node_that_is_too_old() {
    let mut town = town_with("3", 2);
    town.node("a", "m5.large");
    town.run("web", "a", shape("web", "300m"));
    let life = Patience::of(SignedDuration::from_hours(1));
    town.change_claim("a", |claim| claim.spec.expire_after = life);
    let plan = planning::plan(&town.cluster, town.now, &town.settings);
    let [expired] = &plan.disruption.commands[..] else { panic!("{:?}", plan.disruption.commands) };
    let [replacement] = &expired.replacements[..] else { panic!("{expired:?}") };
    assert_eq!(replacement.pods, [ObjectKey::new("default", "web")]);
    assert_eq!(replacement.requests.cpu().0, 300);
    let room = plan.provisioning.new_nodes.iter().flat_map(|node| &node.pods).count();
    assert_eq!(room, 2);
}

/// Rows: DIS-155, DIS-156, DIS-157, SCH-929
#[test]
fn dis_155_kept_room_keeps_its_node_and_no_other() {
    let mut town = town_with("1500m", 1);
    town.node("a", "m5.large");
    town.node("b", "m5.large");
    assert_eq!(town.gone(), ["b"], "one of them is enough");
    assert_eq!(town.kept("a"), "BufferPods");
    put(&mut town, CapacityBuffer { replicas: Some(2), ..buffer("spare") });
    assert!(town.gone().is_empty());
    town.cluster.buffers.clear();
    assert_eq!(town.gone(), ["a", "b"]);
}

/// Which of the nodes `a` and `b` an engine keeps for room, after it has looked for a while.
fn kept_for_room(engine: &mut Engine, now: Timestamp) -> Vec<&'static str> {
    for second in 0..30 {
        engine.decide(now + SignedDuration::from_secs(second));
    }
    let kept = engine.plan().disruption.kept.iter().filter(|kept| kept.code == "BufferPods");
    kept.map(|kept| kept.node.as_str()).collect()
}

#[test]
fn sch_409_where_the_room_is_follows_the_last_round() {
    let mut town = town_with("1500m", 2);
    town.node("a", "m5.large");
    town.node("b", "m5.large");
    let mut engine = town.engine();
    assert_eq!(kept_for_room(&mut engine, town.now), ["a", "b"]);
    let resize = |engine: &mut Engine, at: i64, replicas: u32| {
        let now = town.now + SignedDuration::from_secs(at);
        let resized = CapacityBuffer { replicas: Some(replicas), ..buffer("spare") };
        engine.observe(now, Observation::Buffer(Arc::new(resized)));
        // The first look at the new size; whatever is given back after it is not asked about.
        engine.decide(now);
        let room = virtual_pods(engine.cluster(), &Settings::default());
        assert_eq!(room.len(), replicas as usize);
        kept_for_room(engine, now).len()
    };
    assert_eq!(resize(&mut engine, 30, 1), 1, "one node is enough");
    assert_eq!(resize(&mut engine, 60, 0), 0);
}

#[test]
fn sch_408_buffers_follow_what_is_seen_of_them() {
    let town = town_with("100m", 3);
    let mut engine = town.engine();
    let room = |engine: &Engine| virtual_pods(engine.cluster(), &Settings::default()).len();
    assert_eq!(room(&engine), 3);
    engine.observe(
        town.now,
        Observation::Buffer(Arc::new(CapacityBuffer { replicas: Some(2), ..buffer("spare") })),
    );
    assert_eq!(room(&engine), 2, "fewer");
    engine.observe(town.now, Observation::BufferGone(ObjectKey::new("default", "unknown")));
    assert_eq!(room(&engine), 2, "one that nobody knew goes");
    engine.observe(town.now, Observation::PodTemplateGone(ObjectKey::new("default", "unit")));
    assert_eq!(room(&engine), 0, "it cannot be acted upon");
    engine.observe(town.now, Observation::PodTemplate(template("100m", 2)));
    assert_eq!(room(&engine), 2);
    engine.observe(town.now, Observation::BufferGone(ObjectKey::new("default", "spare")));
    assert_eq!(room(&engine), 0);
}

#[test]
fn sch_391_room_that_cannot_be_had_is_nobodys_failure() {
    let mut town = town_with("900", 3);
    town.cluster.put_pod(Arc::new(pod("huge", None, shape("huge", "900"))));
    let mut engine = town.engine();
    let metrics = Metrics::new();
    metrics.see(town.now, &Observation::Pod(town.cluster.pods[&ObjectKey::new("default", "huge")].clone()));
    let mut failed = Vec::new();
    for second in 0..20 {
        let decision = engine.decide(town.now + SignedDuration::from_secs(second));
        metrics.decided(town.now, &decision);
        failed.extend(decision.actions.into_iter().filter_map(|one| match one.action {
            Action::Publish(notice) if &*notice.reason == "FailedScheduling" => Some(notice.subject),
            _ => None,
        }));
    }
    assert_eq!(failed, [Subject::Pod(ObjectKey::new("default", "huge"))]);
    assert_eq!(engine.plan().provisioning.unschedulable.len(), 4, "the plan itself knows of them");
    let count = "karpenter_scheduler_unschedulable_pods_count{controller=\"provisioner\"} 1";
    assert!(metrics.text(town.now).lines().any(|line| line == count), "{}", metrics.text(town.now));
}

/// Rows: DIS-185
#[test]
fn dis_185_kept_room_does_not_stop_drift() {
    let mut town = town_with("1500m", 1);
    town.node("a", "m5.large");
    town.drift("a", NOW);
    let command = town.command();
    assert_eq!(command.nodes, [NodeName::new("a")]);
    assert_eq!(command.reason().as_str(), "Drifted");
}

/// Rows: DIS-335
#[test]
fn dis_335_a_smaller_node_holds_the_kept_room_too() {
    let mut town = town_with("1500m", 1);
    town.node("dear", "m5.2xlarge");
    town.run("web", "dear", shape("web", "1500m"));
    let command = town.command();
    assert_eq!(command.nodes, [NodeName::new("dear")]);
    assert_eq!(command.replacements.len(), 1);
    assert_eq!(command.replacements[0].launch().instance_type.as_str(), "m5.xlarge", "both need three CPUs");
    town.cluster.buffers.clear();
    assert_eq!(town.command().replacements[0].launch().instance_type.as_str(), "m5.large");
}

#[test]
fn a_plan_with_kept_room_comes_to_an_end() {
    let mut town = town_with("1500m", 2);
    town.node("a", "m5.large");
    town.run("web", "a", shape("web", "1500m"));
    let end = settle(&town.cluster, town.now, &town.settings);
    assert!(end.quiescent, "{end:?}");
    assert!(end.steps < 10, "{end:?}");
    let cpus: i64 = end
        .nodes
        .iter()
        .map(|node| match node.instance_type.expect("known").as_str() {
            "m5.large" => 2,
            "m5.xlarge" => 4,
            _ => 8,
        })
        .sum();
    assert!((6..=8).contains(&cpus), "room for three pods and little more: {end:?}");
}

/// Rows: DIS-336, DIS-337
#[test]
fn dis_336_room_is_bought_kept_used_renewed_and_given_back() {
    let mut world = World::new(7, at(NOW), catalog(), Habits::default());
    world.apply(Observation::Class(Arc::new(class("default"))));
    world.apply(Observation::Pool(Arc::new(pool("default"))));
    world.apply(Observation::PodTemplate(template("1500m", 1)));
    world.apply(Observation::Buffer(Arc::new(CapacityBuffer { replicas: Some(2), ..buffer("spare") })));
    let mut engine = Engine::new(EngineSettings::default());
    let mut go_on = |world: &mut World, minutes: i64| {
        let until = world.now() + SignedDuration::from_mins(minutes);
        live(world, &mut engine, until, |_, _| ());
    };
    let cpus = |world: &World| -> i64 {
        world.objects().nodes.values().map(|node| node.capacity.cpu().0 / 1000).sum()
    };
    let provisioning = |world: &World| {
        let buffer = &world.objects().buffers[&ObjectKey::new("default", "spare")];
        let found = buffer.status.conditions.get(BufferCondition::Provisioning).expect("it was written");
        found.reason.to_string()
    };
    go_on(&mut world, 10);
    assert_eq!(cpus(&world), 4, "room for two, without a single pod");
    assert!(world.objects().pods.is_empty(), "it exists nowhere");
    assert_eq!(provisioning(&world), "FitsExistingCapacity");
    let machines = world.objects().claims.len();
    go_on(&mut world, 60);
    assert_eq!(world.objects().claims.len(), machines, "and it stays");

    let web = Arc::new(shape("web", "1500m"));
    world.add_workload(Workload::new(ObjectKey::new("default", "web"), WorkloadKind::Deployment, web, 2));
    let asked = world.now();
    let until = asked + SignedDuration::from_secs(10);
    live(&mut world, &mut engine, until, |_, _| ());
    assert!(world.objects().pods.values().all(|pod| pod.node.is_some()), "they wait for no machine");
    let mut go_on = |world: &mut World, minutes: i64| {
        let until = world.now() + SignedDuration::from_mins(minutes);
        live(world, &mut engine, until, |_, _| ());
    };
    go_on(&mut world, 20);
    assert_eq!(cpus(&world), 8, "new room was bought for what they took");
    assert_eq!(provisioning(&world), "FitsExistingCapacity");

    world.apply(Observation::BufferGone(ObjectKey::new("default", "spare")));
    go_on(&mut world, 30);
    assert_eq!(cpus(&world), 4, "nobody keeps it any more");
}

/// Rows: SCH-393
#[test]
fn sch_393_a_share_follows_its_deployment() {
    let mut town = Town::with(|_| ());
    let web = deployment(10);
    town.cluster.scalables.insert((web.kind, web.key), web);
    let share = CapacityBuffer { source: of("Deployment", "apps"), percentage: Some(20), ..buffer("spare") };
    assert_eq!(resolve(&town.cluster, &share).map(|room| room.replicas).ok(), Some(2));
    put(&mut town, share);
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!((status(&engine).replicas, status(&engine).template), (Some(2), None));
    let later = town.now + SignedDuration::from_secs(5);
    engine.observe(later, Observation::Scalable(deployment(21)));
    engine.decide(later);
    assert_eq!(status(&engine).replicas, Some(5));
}
