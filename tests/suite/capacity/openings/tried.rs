//! Whom kube-scheduler tries for the first time while its node is about to open forgets what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use jiff::SignedDuration;
use provisor::model::name::{NodeName, ObjectKey};
use provisor::model::node::Node;
use provisor::model::observation::Observation;
use provisor::model::pod::{Pod, PodShape};
use provisor::simulator::workload::{Workload, WorkloadKind};
use provisor::simulator::world::{Habits, World};

use super::super::nominations::engine;
use super::super::town::*;
use super::{Telling, told_first_by};

/// What is known of the pods of one node.
#[derive(Clone, Copy)]
struct Known {
    is_tried: bool,
    /// So many seconds ago they were made.
    age: i64,
    /// So many milliseconds after the others they were seen.
    seen: i64,
}

const TRIED: Known = Known { is_tried: true, age: 50, seen: 0 };
const UNTRIED: Known = Known { is_tried: false, ..TRIED };

/// Three nodes that get ready together; at each of them more than fifty pods are to be told.
fn three(known: [Known; 3]) -> (Telling, [NodeName; 3]) {
    let mut world = World::new(1, at(NOW), catalog(), Habits::default());
    world.apply(Observation::Class(Arc::new(class("default"))));
    world.apply(Observation::Pool(Arc::new(pool("default"))));
    let key = ObjectKey::new("default", "web");
    world.add_workload(Workload::new(key, WorkloadKind::Deployment, Arc::new(shape("web", "130m")), 172));
    let (mut engine, mut ready) = (engine(true), BTreeMap::new());
    while ready.len() < 3 {
        for (at, seen) in world.take_news() {
            match seen {
                Observation::Node(node) if node.is_ready() => drop(ready.insert(node.name, node)),
                seen => engine.observe(at, seen),
            }
        }
        let decision = engine.decide(world.now());
        decision.actions.iter().for_each(|planned| world.perform(&planned.action));
        if decision.actions.is_empty() {
            world.advance(world.now() + SignedDuration::from_millis(100));
        }
    }
    let (start, after) = (world.now(), |millis| world.now() + SignedDuration::from_millis(millis));
    let nodes: Vec<NodeName> = ready.keys().copied().collect();
    let mut in_order: Vec<(Known, NodeName)> = known.into_iter().zip(nodes.iter().copied()).collect();
    in_order.sort_by_key(|(known, _)| known.seen);
    for (known, node) in in_order {
        let pods: Vec<Arc<Pod>> = engine.cluster().guests_of(node).cloned().collect();
        assert!(pods.len() > 50, "{}", pods.len());
        for pod in pods {
            let created = Some(start - SignedDuration::from_secs(known.age));
            let pod = Pod { is_unschedulable: known.is_tried, created, ..(*pod).clone() };
            engine.observe(after(known.seen), Observation::Pod(Arc::new(pod)));
        }
    }
    let now = after(known.iter().map(|known| known.seen).max().unwrap_or(0));
    let ready: Vec<Arc<Node>> = ready.into_values().collect();
    ready.into_iter().for_each(|node| engine.observe(now, Observation::Node(node)));
    let telling = Telling { before: engine.clone(), engine, now, told: Vec::new() };
    (telling, nodes.try_into().expect("three nodes"))
}

impl Telling {
    /// Nodes whose pods are told in `span`, in milliseconds, in this order; they hear of it, and the nodes open.
    fn told_in(&mut self, span: Range<i64>) -> Vec<NodeName> {
        let mut order = Vec::new();
        for millis in span.step_by(100) {
            self.told = told_first_by(&self.engine.decide(self.after(millis)));
            order.extend(self.nodes());
            let told = self.told.clone();
            told.into_iter().for_each(|one| self.hears(one, millis + 50));
            let all: BTreeSet<NodeName> = self.engine.cluster().nodes.keys().copied().collect();
            self.see(&all, millis + 60);
        }
        order
    }

    /// Those that are told in each half second from `millis` on, while kube-scheduler tries one of `pods` in each.
    fn told_while_tried(&mut self, pods: &[ObjectKey], millis: i64) -> Vec<Vec<NodeName>> {
        let told = pods.iter().zip((millis..).step_by(500)).map(|(pod, millis)| {
            self.is_tried(*pod, millis);
            self.told_in(millis..millis + 500)
        });
        told.collect()
    }

    /// kube-scheduler finds no place for the pod.
    fn is_tried(&mut self, pod: ObjectKey, millis: i64) {
        let pod = Pod { is_unschedulable: true, ..self.pod(pod) };
        self.engine.observe(self.after(millis), Observation::Pod(Arc::new(pod)));
    }
}

#[test]
fn the_first_wave_is_of_pods_that_were_tried_and_the_next_of_those_that_are_tried_last() {
    let (mut telling, nodes) = three([Known { age: 60, ..UNTRIED }, TRIED, Known { age: 40, ..UNTRIED }]);
    assert_eq!(telling.told_in(0..6_000), [nodes[1], nodes[2], nodes[0]]);
    let (mut telling, nodes) = three([Known { age: 40, ..UNTRIED }, TRIED, Known { age: 60, ..UNTRIED }]);
    assert_eq!(telling.told_in(0..6_000), [nodes[1], nodes[0], nodes[2]]);
}

/// The API server says in whole seconds when they were made.
#[test]
fn of_pods_that_were_made_in_one_second_those_that_were_seen_first_are_tried_first() {
    for (seen, order) in [([20, 0, 700], [1, 2, 0]), ([700, 0, 20], [1, 0, 2])] {
        let known = |index: usize| Known { seen: seen[index], ..UNTRIED };
        let (mut telling, nodes) = three([known(0), TRIED, known(2)]);
        assert_eq!(telling.told_in(0..6_000), order.map(|index: usize| nodes[index]));
    }
}

#[test]
fn pods_that_are_tried_next_are_told_afterwards() {
    let (mut telling, nodes) = three([UNTRIED, TRIED, TRIED]);
    assert_eq!(telling.told_in(0..1_000), [nodes[1], nodes[2]]);
    let pods: Vec<ObjectKey> = telling.engine.cluster().guests_of(nodes[0]).map(|pod| pod.key).collect();
    let mut through = telling.clone();
    pods.iter().for_each(|pod| through.is_tried(*pod, 1_000));
    assert_eq!(through.told_in(1_000..1_100), [nodes[0]], "all were tried");

    // Not while it goes from one to the next, and not for ever.
    assert_eq!(telling.told_while_tried(&pods[..8], 1_000).concat(), []);
    assert_eq!(telling.told_in(5_000..5_100), [nodes[0]]);
}

#[test]
fn nobody_is_waited_for_whom_kube_scheduler_does_not_try_for_two_seconds() {
    let (mut telling, nodes) = three([UNTRIED, TRIED, TRIED]);
    let pods: Vec<ObjectKey> = telling.engine.cluster().guests_of(nodes[0]).map(|pod| pod.key).collect();
    assert_eq!(telling.told_in(0..1_000), [nodes[1], nodes[2]]);
    telling.is_tried(pods[0], 1_000);
    assert_eq!(telling.told_in(1_000..2_500), []);
    // It did not do that.
    let deleted = Some(telling.after(2_500));
    let going = Pod { deleted, ..telling.pod(pods[1]) };
    telling.engine.observe(telling.after(2_500), Observation::Pod(Arc::new(going)));
    telling.engine.observe(telling.after(2_500), Observation::PodGone(pods[2]));
    let wake = telling.engine.decide(telling.after(2_500)).wake_at.expect("it is looked at again");
    assert!(telling.after(2_500) < wake && wake <= telling.after(3_000), "{wake}");
    assert_eq!(telling.told_in(2_500..3_000), []);
    assert_eq!(telling.told_in(3_000..3_100), [nodes[0]]);
}

#[test]
fn each_scheduler_tries_its_own() {
    let (mut telling, nodes) = three([UNTRIED, TRIED, Known { age: 60, ..TRIED }]);
    let others: Vec<Arc<Pod>> = telling.engine.cluster().guests_of(nodes[2]).cloned().collect();
    for pod in others {
        let shape = PodShape { scheduler_name: "other".into(), ..(*pod.shape).clone() };
        let pod = Pod { shape: Arc::new(shape), is_unschedulable: false, ..(*pod).clone() };
        telling.engine.observe(telling.now, Observation::Pod(Arc::new(pod)));
    }
    let pods: Vec<ObjectKey> = telling.engine.cluster().guests_of(nodes[0]).map(|pod| pod.key).collect();
    let told = telling.told_while_tried(&pods[..6], 0);
    assert_eq!(told[0], [nodes[1]]);
    assert_eq!(told[1..4].concat(), [], "both may be about to");
    assert_eq!(told[4..].concat(), [nodes[2]], "the other one does nothing");
}

/// Sixteen are about as many as it tries while some are told.
#[test]
fn pods_that_are_not_tried_soon_are_told_before() {
    let (mut telling, nodes) = three([Known { age: 60, ..UNTRIED }, TRIED, Known { age: 40, ..UNTRIED }]);
    let next: Vec<ObjectKey> = telling.engine.cluster().guests_of(nodes[0]).map(|pod| pod.key).collect();
    assert_eq!(telling.told_while_tried(&next[..10], 0).concat(), [nodes[1], nodes[2]]);
}

#[test]
fn the_most_important_pods_are_tried_first() {
    let (mut telling, nodes) = three([Known { age: 60, ..UNTRIED }, TRIED, Known { age: 40, ..UNTRIED }]);
    // As if they had just been made.
    let important: Vec<Arc<Pod>> = telling.engine.cluster().guests_of(nodes[2]).cloned().collect();
    for pod in important {
        telling.is_tried(pod.key, 0);
        let shape = PodShape { priority: 100, ..(*pod.shape).clone() };
        let pod = Pod { shape: Arc::new(shape), is_unschedulable: false, ..(*pod).clone() };
        telling.engine.observe(telling.now, Observation::Pod(Arc::new(pod)));
    }
    assert_eq!(telling.told_in(0..6_000), [nodes[1], nodes[0], nodes[2]]);
}

/// Nobody else opens, so nobody is tried for another.
#[test]
fn the_last_node_of_many_pods_opens_although_one_has_forgotten_it() {
    let (mut telling, _) = three([TRIED; 3]);
    let (mut opened, mut millis) = (0, 0);
    let last = loop {
        telling.told = told_first_by(&telling.engine.decide(telling.after(millis)));
        opened += telling.nodes().len();
        if opened == 3 {
            break telling.told[0].1;
        }
        telling.told.clone().into_iter().for_each(|one| telling.hears(one, millis + 50));
        let all: BTreeSet<NodeName> = telling.engine.cluster().nodes.keys().copied().collect();
        telling.see(&all, millis + 60);
        millis += 100;
    };
    telling.remember(last, millis + 2_950);
    telling.forget(last, millis + 2_960);
    assert_eq!(telling.opens_at(millis + 2_990), BTreeSet::new(), "they may know again");
    assert_eq!(telling.opens_at(millis + 3_000), [last].into());
}
