//! New nodes keep their room for the pods that they were bought for.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::Decision;
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::action::Action;
use provisor::model::claim::{Condition, ConditionStatus, ConditionType, NodeClaim};
use provisor::model::name::{NodeName, ObjectKey, Uid};
use provisor::model::node::{Node, NodeCondition};
use provisor::model::observation::Observation;
use provisor::model::pod::{Owner, Pod, PodShape};
use provisor::model::taint::{Effect, Taint, Toleration, TolerationOperator};
use provisor::model::workload::DaemonSet;
use provisor::simulator::workload::{Workload, WorkloadKind};
use provisor::simulator::world::{Habits, World};

use super::town::*;

/// A world with nothing in it but six large and seventy small pods that wait.
pub fn crowd(seed: u64) -> World {
    crowd_of(seed, 70, 6)
}

pub fn crowd_of(seed: u64, small: u32, large: u32) -> World {
    let mut world = World::new(seed, at(NOW), catalog(), Habits::default());
    world.apply(Observation::Class(Arc::new(class("default"))));
    world.apply(Observation::Pool(Arc::new(pool("default"))));
    let deployment = |name: &str, shape: PodShape, replicas| {
        Workload::new(ObjectKey::new("default", name), WorkloadKind::Deployment, Arc::new(shape), replicas)
    };
    world.add_workload(deployment("early", shape("small", "200m"), small));
    world.add_workload(deployment("late", shape("large", "3500m"), large));
    world
}

pub fn engine(nominates: bool) -> Engine {
    Engine::new(EngineSettings { nominates, foresees_pods: true, ..EngineSettings::default() })
}

/// How many nodes were bought in four minutes, and whether all pods run then.
fn bought(seed: u64, nominates: bool) -> (usize, bool) {
    let mut world = crowd(seed);
    let mut claims = BTreeSet::new();
    let until = world.now() + SignedDuration::from_mins(4);
    live(&mut world, &mut engine(nominates), until, |_, decision| {
        let made = decision.actions.iter().filter_map(|planned| match &planned.action {
            Action::CreateClaim(claim) => Some(claim.name),
            _ => None,
        });
        claims.extend(made);
    });
    (claims.len(), world.objects().pods.values().all(|pod| pod.is_ready && pod.nominated_node.is_none()))
}

/// Rows: WEA-031
#[test]
fn small_pods_do_not_take_the_room_that_was_bought_for_large_ones() {
    for seed in 0..8 {
        assert_eq!(bought(seed, true), (5, true), "seed {seed}: what was planned, and nothing else");
        assert!(bought(seed, false).0 > 5, "seed {seed}: else the case shows nothing");
    }
}

/// All that is decided in the next tenth of a second.
fn decided(world: &mut World, engine: &mut Engine) -> Vec<Action> {
    let mut actions = Vec::new();
    let until = world.now() + SignedDuration::from_millis(100);
    live(world, engine, until, |_, decision| {
        actions.extend(decision.actions.iter().map(|planned| planned.action.clone()));
    });
    actions
}

/// kube-scheduler forgets the node of a pod that it tries before that is ready. So they are told in the breath in which it opens, and it is
/// ready then; until then it is known and closed.
#[test]
fn a_node_opens_when_it_is_ready_for_the_pods_it_was_bought_for_and_they_are_told_right_before() {
    let (mut world, mut engine) = (crowd(3), engine(true));
    let (mut joined, mut opened, mut told) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    while world.now() < at(NOW) + SignedDuration::from_mins(2) {
        let actions = decided(&mut world, &mut engine);
        let is_ready = |node: &NodeName| engine.cluster().nodes[node].is_ready();
        for action in &actions {
            match action {
                Action::UpdateNode { node, change } if change.owner.is_some() => {
                    joined.insert(*node);
                    assert_eq!(change.remove_taints, [Taint::unregistered()]);
                    assert_eq!(change.add_taints, [Taint::unopened()], "{node} stays closed");
                    assert!(!change.opens() && !is_ready(node));
                }
                Action::NominatePod { node, before_opening: true, .. } => {
                    assert!(is_ready(node) && !opened.contains(node), "its pods are told of {node} in time");
                    told.insert(*node);
                }
                Action::UpdateNode { node, change } if change.opens() => {
                    assert!(
                        joined.contains(node) && told.contains(node),
                        "its pods are told of {node} first"
                    );
                    let cluster = engine.cluster();
                    let has_heard =
                        |pod: &Arc<Pod>| world.objects().pods[&pod.key].nominated_node == Some(*node);
                    let waits = |pod: &&Arc<Pod>| pod.node.is_none();
                    assert!(cluster.guests_of(*node).filter(waits).all(has_heard), "and have heard");
                    opened.insert(*node);
                }
                _ => {}
            }
        }
    }
    assert!(opened.len() > 3 && opened == joined, "{opened:?} of {joined:?}");
}

/// A node of a crowd that pods wait for, right after it joined, and when it did. Nothing is heard of its kubelet from then on.
fn joined() -> (Engine, Node, Timestamp) {
    let (mut world, mut engine) = (crowd(3), engine(true));
    let node = loop {
        let joins = |action: &Action| match action {
            Action::UpdateNode { node, change } if change.owner.is_some() => Some(*node),
            _ => None,
        };
        if let Some(node) = decided(&mut world, &mut engine).iter().find_map(joins) {
            break (*engine.cluster().nodes[&node]).clone();
        }
    };
    let claim = engine.cluster().claim_of(&node).expect("it was bought");
    let since = claim.conditions.true_since(ConditionType::Registered).expect("it joined");
    (engine, node, since)
}

fn opened_by(decision: &Decision) -> Vec<NodeName> {
    let opened = decision.actions.iter().filter_map(|planned| match &planned.action {
        Action::UpdateNode { node, change } if change.opens() => Some(*node),
        _ => None,
    });
    opened.collect()
}

/// After how many of these seconds the node opens.
fn opens_after(
    engine: &mut Engine,
    node: NodeName,
    since: Timestamp,
    mut seconds: std::ops::Range<i64>,
) -> Option<i64> {
    seconds
        .find(|second| opened_by(&engine.decide(since + SignedDuration::from_secs(*second))).contains(&node))
}

/// What makes it ready may not run on a closed one.
#[test]
fn a_node_that_does_not_get_ready_opens_two_minutes_after_it_joined() {
    let (mut engine, node, since) = joined();
    assert_eq!(opens_after(&mut engine, node.name, since, 1..200), Some(120));
}

/// Then its turn comes: who waits there is told first, and has two seconds to hear.
#[test]
fn a_node_that_gets_ready_late_opens_when_its_pods_had_time_to_hear() {
    let (mut engine, mut node, since) = joined();
    assert_eq!(opens_after(&mut engine, node.name, since, 1..119), None);
    let ready = since + SignedDuration::from_secs(119);
    node = (*engine.cluster().nodes[&node.name]).clone();
    node.taints.retain(Taint::keeps_closed);
    node.conditions.retain(|condition| &*condition.kind != "Ready");
    node.conditions.push(NodeCondition { kind: "Ready".into(), status: "True".into(), since: Some(ready) });
    engine.observe(ready, Observation::Node(Arc::new(node.clone())));
    assert_eq!(opens_after(&mut engine, node.name, since, 119..200), Some(121));
}

/// A DaemonSet may be what makes a node ready: one that only the closed node keeps away is not kept away.
#[test]
fn a_node_that_keeps_a_daemon_away_by_being_closed_opens_before_it_is_ready() {
    let tolerates = |key: &str| Toleration {
        key: key.into(),
        operator: TolerationOperator::Exists,
        value: "".into(),
        effect: Some(Effect::NoSchedule),
    };
    // As it is while its network is yet to come, and its DaemonSet is made two seconds later.
    let opens_with = |tolerations: Vec<Toleration>, selector: &str, more: Option<Taint>| {
        let (mut engine, mut node, since) = joined();
        node = (*engine.cluster().nodes[&node.name]).clone();
        let taint = |key: &str, effect| Taint::new(&format!("node.kubernetes.io/{key}"), "", effect);
        node.taints.extend([Effect::NoSchedule, Effect::NoExecute].map(|effect| taint("not-ready", effect)));
        node.taints.push(taint("network-unavailable", Effect::NoSchedule));
        node.taints.push(taint("disk-pressure", Effect::NoSchedule));
        node.taints.extend(more);
        engine.observe(since, Observation::Node(Arc::new(node.clone())));
        assert_eq!(opens_after(&mut engine, node.name, since, 1..3), None);
        let node_selector = [("kubernetes.io/os".into(), selector.into())].into_iter().collect();
        let shape = PodShape { tolerations, node_selector, ..shape("network", "10m") };
        let key = ObjectKey::new("kube-system", "network");
        let set = DaemonSet { key, uid: Uid::new("network"), shape: Arc::new(shape) };
        engine.observe(since + SignedDuration::from_secs(2), Observation::DaemonSet(Arc::new(set)));
        opens_after(&mut engine, node.name, since, 3..200)
    };
    let not_ready = || tolerates("node.kubernetes.io/not-ready");
    assert_eq!(opens_with(vec![not_ready()], "linux", None), Some(3));
    assert_eq!(opens_with(vec![not_ready()], "windows", None), Some(120), "it does not belong there");
    assert_eq!(
        opens_with(vec![], "linux", None),
        Some(120),
        "it waits for the node to be ready all the same"
    );
    let tolerant = vec![not_ready(), tolerates("karpenter.sh/unregistered")];
    assert_eq!(opens_with(tolerant, "linux", None), Some(120), "it comes all the same");
    let gate = Taint::new("readiness.k8s.io/storage", "", Effect::NoExecute);
    assert_eq!(opens_with(vec![not_ready()], "linux", Some(gate)), Some(120), "another taint keeps it away");
}

/// Which pods a node was bought for is not written anywhere.
#[test]
fn after_a_restart_nodes_that_were_not_open_wait_for_the_first_plan() {
    let (engine, node, since) = joined();
    let settings = EngineSettings { nominates: true, foresees_pods: true, ..EngineSettings::default() };
    let mut successor = engine_of(engine.cluster(), since, settings.clone());
    assert_eq!(
        opens_after(&mut successor, node.name, since, 0..119),
        None,
        "its pods were planned there again"
    );
    // Once it is known that none is planned there it opens.
    let mut cluster = engine.cluster().clone();
    let pods: Vec<ObjectKey> = cluster.pods.keys().copied().collect();
    pods.into_iter().for_each(|pod| cluster.observe(since, &Observation::PodGone(pod)));
    let mut elsewhere = shape("elsewhere", "100m");
    elsewhere.node_selector.insert("disk".into(), "fast".into());
    cluster.observe(since, &Observation::Pod(Arc::new(pod("elsewhere", None, elsewhere))));
    let mut successor = engine_of(&cluster, since, settings.clone());
    let decision = successor.decide(since);
    assert_eq!(opened_by(&decision), vec![]);
    let planned = decision.wake_at.expect("a batch is open");
    assert_eq!(planned, since + SignedDuration::from_secs(1));
    assert_eq!(opened_by(&successor.decide(planned)), vec![node.name]);
    // A daemon brings no plan, and nobody waits for one.
    let mut daemon = pod("daemon", None, shape("daemon", "100m"));
    daemon.owners = vec![Owner { kind: "DaemonSet".into(), ..daemon.owners[0] }];
    cluster.observe(since, &Observation::PodGone(ObjectKey::new("default", "elsewhere")));
    cluster.observe(since, &Observation::Pod(Arc::new(daemon)));
    let mut successor = engine_of(&cluster, since, settings.clone());
    assert_eq!(opens_after(&mut successor, node.name, since, 0..119), Some(0));
    // Without pods nobody has to be told.
    let mut cluster = engine.cluster().clone();
    let pods: Vec<ObjectKey> = cluster.pods.keys().copied().collect();
    pods.into_iter().for_each(|pod| cluster.observe(since, &Observation::PodGone(pod)));
    let mut successor = engine_of(&cluster, since, settings);
    assert_eq!(opens_after(&mut successor, node.name, since, 0..119), Some(0));
}

/// A world in which a node opens, and an engine that has told its pods of it.
fn told() -> (World, Engine) {
    told_in(crowd(3))
}

fn told_in(mut world: World) -> (World, Engine) {
    let mut engine = engine(true);
    let mut has_told = false;
    while !has_told {
        let until = world.now() + SignedDuration::from_millis(200);
        live(&mut world, &mut engine, until, |_, decision| {
            has_told |=
                decision.actions.iter().any(|planned| matches!(planned.action, Action::NominatePod { .. }));
        });
    }
    (world, engine)
}

/// Its node is ready for pods since then, and no longer.
fn initialize(claim: &mut NodeClaim, since: Timestamp) {
    let (status, reason, message) = (ConditionStatus::True, "Initialized".into(), "".into());
    let condition = Condition { status, reason, message, since: Some(since) };
    claim.conditions.insert(ConditionType::Initialized, condition);
}

fn nominated(world: &World) -> Vec<Arc<Pod>> {
    let pods = world.objects().pods.values();
    pods.filter(|pod| pod.nominated_node.is_some() && pod.node.is_none()).cloned().collect()
}

#[test]
fn pods_that_were_told_their_node_are_not_planned_again() {
    let (world, engine) = told();
    let pods = nominated(&world);
    assert!(!pods.is_empty());
    let cluster = engine.cluster();
    for pod in &pods {
        assert!(cluster.waiting_pods().all(|waiting| waiting.key != pod.key), "{} has its room", pod.key);
        let node = pod.nominated_node.expect("it is nominated");
        assert!(cluster.guests_of(node).any(|guest| guest.key == pod.key), "{} has it there", pod.key);
        assert!(cluster.pods_of(node).all(|bound| bound.key != pod.key), "and is not bound");
    }
}

#[test]
fn a_node_that_goes_lets_its_pods_wait_again() {
    let (mut world, mut engine) = told();
    let pods = nominated(&world);
    let node = pods[0].nominated_node.expect("it is nominated");
    engine.observe(world.now(), Observation::NodeGone(node));
    engine.decide(world.now());
    let waits = |pod: &Arc<Pod>| engine.cluster().waiting_pods().any(|waiting| waiting.key == pod.key);
    for pod in pods.iter().filter(|pod| pod.nominated_node == Some(node)) {
        assert!(waits(pod), "{} waits like any other", pod.key);
    }
    world.take_news();
}

#[test]
fn a_nomination_is_given_up_when_its_node_was_open_long_enough() {
    let (world, mut engine) = told();
    let (told_at, pods) = (world.now(), nominated(&world));
    let (pod, other) = (pods[0].clone(), pods[1].clone());
    engine.observe(told_at, Observation::Pod(pod.clone()));
    // How long the pod's room is kept if the node is ready so many seconds after the pod was told, and another one that was told
    // is bound as soon as it is.
    let patience = |ready_after: i64, engine: &Engine| {
        let mut engine = engine.clone();
        let now = told_at + SignedDuration::from_secs(ready_after);
        let cluster = engine.cluster();
        let mut node = (*cluster.nodes[&pod.nominated_node.expect("it is nominated")]).clone();
        let mut claim = (**cluster.claim_of(&node).expect("it was bought")).clone();
        node.conditions = vec![provisor::simulator::kubelet::ready_condition(true, now)];
        initialize(&mut claim, now);
        engine.observe(now, Observation::Node(Arc::new(node)));
        engine.observe(now, Observation::Claim(Arc::new(claim)));
        let bound = Pod { node: other.nominated_node, nominated_node: None, ..(*other).clone() };
        engine.observe(now, Observation::Pod(Arc::new(bound)));
        (0..400).find(|seconds| {
            engine.decide(now + SignedDuration::from_secs(*seconds));
            engine.cluster().waiting_pods().any(|waiting| waiting.key == pod.key)
        })
    };
    let nomination =
        |node: Option<NodeName>| Observation::Pod(Arc::new(Pod { nominated_node: node, ..(*pod).clone() }));
    assert_eq!(patience(1, &engine), Some(300), "told before the node opened, and not tried since");
    let open_at = told_at + SignedDuration::from_secs(3);
    engine.decide(open_at);
    engine.observe(open_at, nomination(None));
    assert_eq!(patience(10, &engine), Some(20), "it was tried");
    let again = engine.decide(open_at).actions;
    let is_told =
        |action: &Action| matches!(action, Action::NominatePod { pod: told, .. } if *told == pod.key);
    assert!(again.iter().any(|planned| is_told(&planned.action)), "it is told again");
    engine.observe(open_at, nomination(pod.nominated_node));
    assert_eq!(patience(10, &engine), Some(300), "not tried since the node is ready");
    assert_eq!(patience(4, &engine), Some(20), "it may have been tried just before");
}

/// An engine that has told pods of a node which opens now, and that kube-scheduler has tried all of them before.
struct Opened {
    engine: Engine,
    pods: Vec<Arc<Pod>>,
    node: NodeName,
    at: Timestamp,
}

impl Opened {
    fn of((world, mut engine): (World, Engine)) -> Self {
        let told_at = world.now();
        let pods = nominated(&world);
        for pod in &pods {
            engine.observe(told_at, Observation::Pod(pod.clone()));
            let cleared = Pod { nominated_node: None, ..(**pod).clone() };
            engine.observe(told_at, Observation::Pod(Arc::new(cleared)));
        }
        let node = pods[0].nominated_node.expect("it is nominated");
        let at = told_at + SignedDuration::from_secs(1);
        let cluster = engine.cluster();
        let mut claim = (**cluster.claim_of(&cluster.nodes[&node]).expect("it was bought")).clone();
        initialize(&mut claim, at);
        let allocatable = claim.allocatable.clone();
        let known = Node { allocatable, ..(*cluster.nodes[&node]).clone() };
        engine.observe(at, Observation::Node(Arc::new(known)));
        engine.observe(at, Observation::Claim(Arc::new(claim)));
        Self { engine, pods, node, at }
    }

    fn after(&self, seconds: i64) -> Timestamp {
        self.at + SignedDuration::from_secs(seconds)
    }

    fn bound(&self, pod: &Pod) -> Pod {
        Pod { node: Some(self.node), nominated_node: None, ..pod.clone() }
    }

    /// After so many seconds another of those that were told is bound.
    fn bind(&mut self, pod: usize, seconds: i64) {
        let bound = self.bound(&self.pods[pod]);
        self.engine.observe(self.after(seconds), Observation::Pod(Arc::new(bound)));
    }

    /// The same after the first pod was told again, and forgot it after so many seconds.
    fn refused(&self, mut engine: Engine, seconds: i64) -> Engine {
        let waiting = &self.pods[0];
        engine.observe(self.after(seconds - 1), Observation::Pod(waiting.clone()));
        let cleared = Pod { nominated_node: None, ..(**waiting).clone() };
        engine.observe(self.after(seconds), Observation::Pod(Arc::new(cleared)));
        engine
    }

    /// The same with a node that has no room left.
    fn crowded(&self) -> Engine {
        let mut stranger = self.bound(&self.pods[0]);
        stranger.key = ObjectKey::new("default", "stranger");
        stranger.uid = provisor::model::name::Uid("stranger".into());
        stranger.shape = Arc::new(shape("stranger", "64"));
        let mut engine = self.engine.clone();
        engine.observe(self.at, Observation::Pod(Arc::new(stranger)));
        engine
    }

    /// After how many seconds the first pod waits again.
    fn given_up(&self, engine: &Engine) -> Option<i64> {
        self.given_up_beside(engine, |pod| pod, &[])
    }

    /// The same if others that nobody was told of, made half a minute ago or as `as_made` says, are bound elsewhere after so many seconds.
    /// Time passes as the engine asks for.
    fn given_up_beside(&self, engine: &Engine, as_made: impl Fn(Pod) -> Pod, bound: &[i64]) -> Option<i64> {
        let mut engine = engine.clone();
        let others = bound.iter().map(|seconds| {
            let mut other = Pod { nominated_node: None, ..(*self.pods[0]).clone() };
            other.key = ObjectKey::new("default", &format!("other-{seconds}"));
            other.uid = Uid(format!("other-{seconds}").as_str().into());
            other.created = Some(self.after(seconds - 30));
            as_made(other)
        });
        let others: Vec<Pod> = others.collect();
        others.iter().for_each(|pod| engine.observe(self.at, Observation::Pod(Arc::new(pod.clone()))));
        let mut wake_at = Some(self.at);
        (0..400).find(|seconds| {
            let now = self.after(*seconds);
            for (pod, _) in others.iter().zip(bound).filter(|(_, at)| *at == seconds) {
                let pod = Pod { node: Some(NodeName::new("elsewhere")), ..pod.clone() };
                engine.observe(now, Observation::Pod(Arc::new(pod)));
                wake_at = Some(now);
            }
            if wake_at.is_some_and(|at| at <= now) {
                wake_at = engine.decide(now).wake_at;
            }
            engine.cluster().waiting_pods().any(|pod| pod.key == self.pods[0].key)
        })
    }
}

/// kube-scheduler has yet to come to a pod as long as it binds others that were told, and the pod's node has room for it.
#[test]
fn a_busy_kube_scheduler_is_waited_for_while_there_is_room() {
    let mut opened = Opened::of(told());
    let engine = opened.engine.clone();
    assert_eq!(opened.given_up(&engine), Some(300), "it has not begun");
    let (of_free, of_taken) = (opened.refused(engine, 10), opened.refused(opened.crowded(), 1));
    assert_eq!(opened.given_up(&of_free), Some(20), "it tried the pod there, and did not want it");
    assert_eq!(opened.given_up(&of_taken), Some(3), "it did, and there is no room left");
    assert_eq!(opened.given_up(&opened.crowded()), Some(3), "others took the room, and nothing else happens");
    opened.bind(1, 15);
    assert_eq!(opened.given_up(&opened.engine), Some(35), "it went on for fifteen seconds");
    assert_eq!(opened.given_up(&opened.crowded()), Some(18), "who took whose room is clear then");
    opened.bind(2, 30);
    assert_eq!(opened.given_up(&opened.engine), Some(50));
    assert_eq!(opened.given_up(&opened.crowded()), Some(33), "ever later");
    opened.bind(3, 90);
    assert_eq!(opened.given_up(&opened.crowded()), Some(60), "and at the latest then");
}

/// Pods that nobody was told of keep kube-scheduler as busy as others. Whom it has tried for the last time about when the node opened
/// stands behind all of them.
#[test]
fn a_pod_that_forgot_its_node_as_it_opened_is_waited_for_as_long_as_kube_scheduler_is_busy_with_others() {
    let mut opened = Opened::of(told());
    let late = opened.refused(opened.engine.clone(), 10);
    let early = opened.refused(opened.engine.clone(), 9);
    let queued = |pod: Pod| pod;
    assert_eq!(opened.given_up(&early), Some(20), "it has nothing else to do");
    assert_eq!(opened.given_up_beside(&early, queued, &[15]), Some(35), "it is yet to come to the pod");
    assert_eq!(opened.given_up_beside(&late, queued, &[15]), Some(20), "it knew that the node was open");
    let on_and_on: Vec<i64> = (0..20).map(|turn| 15 * turn).collect();
    assert_eq!(opened.given_up_beside(&early, queued, &on_and_on), Some(300), "and no longer than that");
    let new = |pod: Pod| Pod { created: pod.created.map(|at| at + SignedDuration::from_secs(26)), ..pod };
    assert_eq!(opened.given_up_beside(&early, new, &[15]), Some(20), "it has no queue");
    let daemon = |mut pod: Pod| {
        pod.owners = vec![Owner { kind: "DaemonSet".into(), api_version: "apps/v1".into(), ..pod.owners[0] }];
        pod
    };
    assert_eq!(opened.given_up_beside(&early, daemon, &[15]), Some(20), "there is one for each node");
    opened.bind(1, 15);
    assert_eq!(opened.given_up(&opened.engine), Some(35));
    assert_eq!(opened.given_up_beside(&opened.engine, queued, &[30]), Some(50), "it goes on with others");
}

/// What is bought for a pod of a crowd while the others find their places stands empty afterwards.
#[test]
fn who_took_whose_room_in_a_crowd_is_waited_for_longer() {
    let mut opened = Opened::of(told_in(large_crowd(1_100, zone)));
    assert_eq!(opened.given_up(&opened.crowded()), Some(3), "nothing else happens");
    for (pod, (seconds, until)) in [(90, 93), (200, 203), (299, 300)].into_iter().enumerate() {
        opened.bind(1 + pod, seconds);
        assert_eq!(opened.given_up(&opened.crowded()), Some(until));
    }
}

/// So many small pods and twenty large ones that wait.
pub fn large_crowd(small: u32, more: impl Fn(&mut PodShape)) -> World {
    let mut world = World::new(5, at(NOW), catalog(), Habits::default());
    world.apply(Observation::Class(Arc::new(class("default"))));
    world.apply(Observation::Pool(Arc::new(pool("default"))));
    let deployment = |name: &str, shape: PodShape, replicas| {
        Workload::new(ObjectKey::new("default", name), WorkloadKind::Deployment, Arc::new(shape), replicas)
    };
    let mut shape_of_small = shape("small", "200m");
    more(&mut shape_of_small);
    world.add_workload(deployment("small", shape_of_small, small));
    world.add_workload(deployment("large", shape("large", "3500m"), 20));
    world
}

/// No room in another zone is good for it.
fn zone(shape: &mut PodShape) {
    shape.node_selector.insert(*provisor::model::label::ZONE, "us-west-2a".into());
}

/// How many of so many small pods are told their first node where twenty large ones wait, too, and how many of these.
fn told_of_a_crowd(small: u32, more: impl Fn(&mut PodShape)) -> (usize, usize) {
    let mut world = large_crowd(small, more);
    let (mut told, mut first) = (BTreeSet::new(), BTreeSet::new());
    let until = world.now() + SignedDuration::from_mins(4);
    live(&mut world, &mut engine(true), until, |_, decision| {
        let made = decision.actions.iter().filter_map(|planned| match &planned.action {
            Action::CreateClaim(claim) => Some(claim.name),
            _ => None,
        });
        if first.is_empty() {
            first.extend(made);
        }
        for planned in &decision.actions {
            let is_first = first.iter().any(|claim| planned.reason.message.starts_with(claim.as_str()));
            if let Action::NominatePod { pod, .. } = &planned.action
                && is_first
            {
                told.insert(*pod);
            }
        }
    });
    assert!(world.objects().pods.values().all(|pod| pod.is_ready));
    let of = |app: &str| told.iter().filter(|pod| pod.name.starts_with(app)).count();
    (of("small"), of("large"))
}

#[test]
fn of_a_crowd_the_smallest_pods_that_fit_anywhere_are_not_told() {
    let (small, large) = told_of_a_crowd(150, |_| ());
    assert!(small > 120 && large > 15, "few are told, all that are not bound before: {small}, {large}");
    let (small, large) = told_of_a_crowd(1_100, |_| ());
    assert!(small == 0 && large > 2, "{small}, {large}");
    assert!(told_of_a_crowd(1_100, zone).0 > 900, "not every room is good for these");
    let larger =
        |shape: &mut PodShape| shape.requests.set(*provisor::model::quantity::resource::MEMORY, 1 << 30);
    assert!(told_of_a_crowd(1_100, larger).0 > 900, "nor for these: the others ask for less memory");
}

#[test]
fn after_a_restart_a_nomination_hinders_nothing_but_one_of_kube_scheduler_counts() {
    let (world, _) = told();
    let pods = nominated(&world);
    let mut successor = engine_of(
        world.objects(),
        world.now(),
        EngineSettings { nominates: true, ..EngineSettings::default() },
    );
    successor.decide(world.now());
    for pod in &pods {
        let waits = successor.cluster().waiting_pods().any(|waiting| waiting.key == pod.key);
        assert!(waits, "{} waits like any other", pod.key);
    }
    // Whom kube-scheduler nominates puts others out: they are leaving.
    let mut cluster = world.objects().clone();
    let node = pods[0].nominated_node.expect("it is nominated");
    let leaving =
        Pod { deleted: Some(world.now()), ..pod("leaving", Some(&node.to_string()), shape("leaving", "1")) };
    cluster.observe(world.now(), &Observation::Pod(Arc::new(leaving)));
    let mut successor =
        engine_of(&cluster, world.now(), EngineSettings { nominates: true, ..EngineSettings::default() });
    successor.decide(world.now());
    let waits = successor.cluster().waiting_pods().any(|waiting| waiting.key == pods[0].key);
    assert!(!waits, "{} is promised its room", pods[0].key);
}

/// kube-scheduler clears the nomination of a pod that it tries before the node is ready.
#[test]
fn a_pod_whose_nomination_was_cleared_is_told_again_as_long_as_there_is_room() {
    let (world, mut engine) = told();
    let now = world.now();
    let pod = nominated(&world)[0].clone();
    let node = pod.nominated_node.expect("it is nominated");
    let told_at = |at: Timestamp, seen: &Pod, engine: &mut Engine| {
        engine.observe(at, Observation::Pod(Arc::new(seen.clone())));
        let decision = engine.decide(at);
        let told = decision.actions.iter().filter_map(|planned| match planned.action {
            Action::NominatePod { pod, node, .. } => Some((pod, node)),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    let told_after = |seen: &Pod, engine: &mut Engine| told_at(now, seen, engine);
    let cleared = Pod { nominated_node: None, ..(*pod).clone() };
    assert_eq!(told_after(&pod, &mut engine), []);
    assert!(engine.has_nominated(pod.uid), "the driver lets no news of it fall");
    assert_eq!(told_after(&cleared, &mut engine), [], "kube-scheduler may be at others because of it");
    let soon = now + SignedDuration::from_millis(100);
    assert_eq!(told_at(soon, &cleared, &mut engine), [(pod.key, node)]);
    assert_eq!(told_at(soon, &cleared, &mut engine), [], "once for each time");
    let later = soon + SignedDuration::from_secs(3);
    assert_eq!(told_at(later, &cleared, &mut engine), [(pod.key, node)], "and once more if it was lost");
    assert_eq!(told_after(&pod, &mut engine), []);
    let cluster = engine.cluster();
    let mut claim = (**cluster.claim_of(&cluster.nodes[&node]).expect("it was bought")).clone();
    claim.conditions.set(ConditionType::Initialized, ConditionStatus::True, "Initialized", "", now);
    let allocatable = claim.allocatable.clone();
    let opened = Node { allocatable, ..(*cluster.nodes[&node]).clone() };
    engine.observe(now, Observation::Node(Arc::new(opened)));
    engine.observe(now, Observation::Claim(Arc::new(claim)));
    assert_eq!(
        told_after(&cleared, &mut engine),
        [(pod.key, node)],
        "kube-scheduler may not have seen it open"
    );
    assert_eq!(told_after(&pod, &mut engine), []);
    let mut stranger = Pod { node: Some(node), ..cleared.clone() };
    stranger.key = ObjectKey::new("default", "stranger");
    stranger.uid = provisor::model::name::Uid("stranger".into());
    stranger.shape = Arc::new(shape("stranger", "64"));
    engine.observe(now, Observation::Pod(Arc::new(stranger)));
    assert_eq!(told_after(&cleared, &mut engine), [], "others have taken its room");
}

/// Pods that wait again wait for company once more; until then there is nothing to do.
#[test]
fn an_open_batch_is_waited_for() {
    let opened = Opened::of(told());
    let mut engine = opened.engine.clone();
    let at = opened.after(300);
    let asks_again = engine.decide(at).wake_at.expect("there is more to do");
    assert!(engine.cluster().waiting_pods().any(|pod| pod.key == opened.pods[0].key), "it is given up");
    assert!(asks_again > at, "{asks_again}");
}
