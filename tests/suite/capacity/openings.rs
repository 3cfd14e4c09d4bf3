//! Nodes open in waves, when the pods that they were bought for know of them; and who took another's room leaves its own to it.

mod few;
mod tried;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::Decision;
use provisor::capacity::engine::Engine;
use provisor::model::action::{Action, Subject};
use provisor::model::buffer::Scalable;
use provisor::model::claim::{ConditionStatus, ConditionType, NodeClaim};
use provisor::model::name::{NodeName, ObjectKey};
use provisor::model::node::{Node, NodeCondition};
use provisor::model::observation::Observation;
use provisor::model::pod::{Owner, Pod, PodShape};
use provisor::model::quantity::{Resources, resource};
use provisor::simulator::world::World;

use super::nominations::{crowd_of, engine, large_crowd};
use super::town::*;

/// The moment in which the pods of a wave are told.
#[derive(Clone)]
struct Telling {
    /// An engine that has yet to decide it.
    before: Engine,
    engine: Engine,
    now: Timestamp,
    told: Vec<(ObjectKey, NodeName)>,
}

fn told_by(decision: &Decision) -> Vec<(ObjectKey, NodeName)> {
    let told = decision.actions.iter().filter_map(|planned| match planned.action {
        Action::NominatePod { pod, node, .. } => Some((pod, node)),
        _ => None,
    });
    told.collect()
}

/// Those that were told for the first time.
fn told_first_by(decision: &Decision) -> Vec<(ObjectKey, NodeName)> {
    let told = decision.actions.iter().filter_map(|planned| match planned.action {
        Action::NominatePod { pod, node, before_opening: true, .. } => Some((pod, node)),
        _ => None,
    });
    told.collect()
}

fn opened_by(decision: &Decision) -> BTreeSet<NodeName> {
    opened_in_order_by(decision).into_iter().collect()
}

fn opened_in_order_by(decision: &Decision) -> Vec<NodeName> {
    let opened = decision.actions.iter().filter_map(|planned| match &planned.action {
        Action::UpdateNode { node, change } if change.opens() => Some(*node),
        _ => None,
    });
    opened.collect()
}

impl Telling {
    /// The first wave that has pods with `app` on two of its nodes, while others come: the next of them has room in it, and not
    /// all have.
    fn of(app: &str) -> Self {
        (0..200)
            .find_map(|seed| {
                let telling = Self::in_a_crowd(crowd_of(seed, 46, 8), 3, app, 2)?;
                let first = telling.coming().first()?.name;
                let more = telling.engine.cluster().pods.keys().filter(|pod| telling.is_at(**pod, first));
                (telling.told.len() + more.count() <= 50).then_some(telling)
            })
            .expect("large pods are on two nodes in some of the crowds")
    }

    /// A wave that those that are yet to come may join, all of them.
    fn of_few() -> Self {
        let few = (0..50).find_map(|seed| {
            let telling = Self::in_a_crowd(crowd_of(seed, 36, 6), 2, "large", 2)?;
            (!telling.coming().is_empty()).then_some(telling)
        });
        let mut few = few.expect("large pods are on two nodes in some of the crowds");
        // Nobody else is to join, and nobody waits for it.
        let cluster = few.engine.cluster();
        let claims = cluster.claims.values().filter(|claim| cluster.node_of(claim).is_none());
        let claims = claims.map(|claim| Observation::ClaimGone(claim.name));
        let has_room = |pod: ObjectKey| cluster.nodes.keys().any(|node| few.is_at(pod, *node));
        let pods = cluster.pods.keys().filter(|pod| !has_room(**pod)).map(|pod| Observation::PodGone(*pod));
        let gone: Vec<Observation> = pods.chain(claims).collect();
        gone.into_iter().for_each(|gone| few.engine.observe(few.now, gone));
        few
    }

    /// The same, and they have joined it.
    fn of_few_that_are_ready() -> Self {
        let mut few = Self::of_few();
        for node in few.coming() {
            few.gets_ready(&node, 10);
        }
        few
    }

    /// A wave of ten nodes, each with large pods, and others come.
    fn of_many() -> Self {
        (0..50)
            .find_map(|seed| Self::in_a_crowd(crowd_of(seed, 10, 160), 10, "large", 10))
            .expect("so many large pods need forty nodes")
    }

    /// When first pods with `app` are told on so many nodes; `together` kubelets get ready in the same moment.
    fn in_a_crowd(mut world: World, together: usize, app: &str, nodes: usize) -> Option<Self> {
        let mut engine = engine(true);
        let mut ready: BTreeMap<NodeName, Arc<Node>> = BTreeMap::new();
        while world.now() < at(NOW) + SignedDuration::from_mins(3) {
            for (at, seen) in world.take_news() {
                match seen {
                    Observation::Node(node) if node.is_ready() => drop(ready.insert(node.name, node)),
                    seen => engine.observe(at, seen),
                }
            }
            if ready.len() >= together {
                let ready = std::mem::take(&mut ready).into_values();
                ready.for_each(|node| engine.observe(world.now(), Observation::Node(node)));
            }
            let (before, now) = (engine.clone(), world.now());
            let decision = engine.decide(now);
            let told = told_first_by(&decision);
            let is_such = |(pod, _): &&(ObjectKey, NodeName)| {
                engine.cluster().pods[pod].shape.labels[&"app".into()] == app.into()
            };
            if told.iter().filter(is_such).map(|(_, node)| node).collect::<BTreeSet<_>>().len() >= nodes {
                // What else was decided is done.
                let mut actions = decision.actions;
                while !actions.is_empty() {
                    let others =
                        actions.iter().filter(|one| !matches!(one.action, Action::NominatePod { .. }));
                    others.for_each(|planned| world.perform(&planned.action));
                    world.take_news().into_iter().for_each(|(at, seen)| engine.observe(at, seen));
                    actions = engine.decide(now).actions;
                }
                return Some(Self { before, engine, now, told });
            }
            decision.actions.iter().for_each(|planned| world.perform(&planned.action));
            if decision.actions.is_empty() {
                world.advance(now + SignedDuration::from_millis(100));
            }
        }
        None
    }

    /// Before that: all nodes of more than a thousand pods have joined, and none is ready.
    fn of_those_that_joined(mut world: World) -> Self {
        let mut engine = engine(true);
        let until = world.now() + SignedDuration::from_mins(3);
        let mut claims = BTreeSet::new();
        while world.now() < until {
            for (at, seen) in world.take_news() {
                if !matches!(&seen, Observation::Node(node) if node.is_ready()) {
                    engine.observe(at, seen);
                }
            }
            let (before, now) = (engine.clone(), world.now());
            let decision = engine.decide(now);
            claims.extend(decision.actions.iter().filter_map(|planned| match &planned.action {
                Action::CreateClaim(claim) => Some(claim.name),
                _ => None,
            }));
            decision.actions.iter().for_each(|planned| world.perform(&planned.action));
            let nodes = engine.cluster().nodes.values();
            if decision.actions.is_empty() && !claims.is_empty() && nodes.count() == claims.len() {
                return Self { before, engine, now, told: Vec::new() };
            }
            world.advance(now + SignedDuration::from_millis(100));
        }
        panic!("some have not joined")
    }

    /// Where somebody has room that is kept, and where nobody has.
    fn with_room_and_without(&self) -> (Vec<Arc<Node>>, Vec<Arc<Node>>) {
        let cluster = self.engine.cluster();
        let is_kept = |node: &Arc<Node>| cluster.guests_of(node.name).any(|pod| !pod.is_daemon());
        cluster.nodes.values().cloned().partition(is_kept)
    }

    fn opens_at(&mut self, millis: i64) -> BTreeSet<NodeName> {
        opened_by(&self.engine.decide(self.after(millis)))
    }

    fn nodes(&self) -> BTreeSet<NodeName> {
        self.told.iter().map(|(_, node)| *node).collect()
    }

    fn after(&self, millis: i64) -> Timestamp {
        self.now + SignedDuration::from_millis(millis)
    }

    fn pod(&self, key: ObjectKey) -> Pod {
        (*self.engine.cluster().pods[&key]).clone()
    }

    /// The pod is seen with the node that it was told.
    fn hears(&mut self, (pod, node): (ObjectKey, NodeName), millis: i64) {
        let pod = Pod { nominated_node: Some(node), ..self.pod(pod) };
        self.engine.observe(self.after(millis), Observation::Pod(Arc::new(pod)));
    }

    /// All that were told `node` are seen with it.
    fn remember(&mut self, node: NodeName, millis: i64) {
        let told = self.told.clone().into_iter().filter(|(_, home)| *home == node);
        told.for_each(|one| self.hears(one, millis));
    }

    /// None of them is any more.
    fn forget(&mut self, node: NodeName, millis: i64) {
        let told = self.told.clone().into_iter().filter(|(_, home)| *home == node);
        for (pod, _) in told {
            let cleared = Pod { nominated_node: None, ..self.pod(pod) };
            self.engine.observe(self.after(millis), Observation::Pod(Arc::new(cleared)));
        }
    }

    fn claim_of(&self, node: NodeName) -> NodeClaim {
        let cluster = self.engine.cluster();
        (**cluster.claim_of(&cluster.nodes[&node]).expect("it was bought")).clone()
    }

    fn requests_at(&self, node: NodeName) -> Resources {
        let mut used = Resources::new();
        self.engine.cluster().guests_of(node).for_each(|pod| used.add(&pod.shape.requests));
        used
    }

    /// From now on `node` has room for those that have room there, and for nobody else.
    fn tighten(&mut self, node: NodeName) {
        let node =
            Node { allocatable: self.requests_at(node), ..(*self.engine.cluster().nodes[&node]).clone() };
        self.engine.observe(self.now, Observation::Node(Arc::new(node)));
    }

    /// From now on those that have room at `node` could run nowhere else.
    fn bind_to(&mut self, node: NodeName) {
        let label = ("example.com/own", node.as_str());
        let mut host = (*self.engine.cluster().nodes[&node]).clone();
        host.labels.insert(label.0.into(), label.1.into());
        let guests: Vec<Arc<Pod>> = self.engine.cluster().guests_of(node).cloned().collect();
        for pod in guests {
            let mut shape = (*pod.shape).clone();
            shape.node_selector.insert(label.0.into(), label.1.into());
            let pod = Pod { shape: Arc::new(shape), ..(*pod).clone() };
            self.engine.observe(self.now, Observation::Pod(Arc::new(pod)));
        }
        self.engine.observe(self.now, Observation::Node(Arc::new(host)));
    }

    fn is_at(&self, pod: ObjectKey, node: NodeName) -> bool {
        self.engine.cluster().guests_of(node).any(|guest| guest.key == pod)
    }

    /// What is decided when all have heard, and as long as others may join.
    fn opens(&mut self, millis: i64) -> BTreeSet<NodeName> {
        let told = self.told.clone();
        told.into_iter().for_each(|one| self.hears(one, millis));
        opened_by(&self.engine.decide(self.after(millis)))
    }

    /// Nodes that have joined and are not ready.
    fn coming(&self) -> Vec<Arc<Node>> {
        let nodes = self.nodes();
        let is_coming = |node: &&Arc<Node>| !node.is_ready() && !nodes.contains(&node.name);
        self.engine.cluster().nodes.values().filter(is_coming).cloned().collect()
    }

    /// The kubelet of `node` gets ready, and who is told of it.
    fn gets_ready(&mut self, node: &Node, millis: i64) -> Vec<(ObjectKey, NodeName)> {
        let now = self.after(millis);
        let ready = NodeCondition { kind: "Ready".into(), status: "True".into(), since: Some(now) };
        let taints = node.taints.iter().filter(|taint| taint.key.starts_with("karpenter.sh/")).cloned();
        let node = Node { conditions: vec![ready], taints: taints.collect(), ..node.clone() };
        self.engine.observe(now, Observation::Node(Arc::new(node)));
        let told = told_by(&self.engine.decide(now));
        self.told.extend(told.iter().copied());
        told
    }

    /// `nodes` are seen as they are by now.
    fn see(&mut self, nodes: &BTreeSet<NodeName>, millis: i64) {
        for node in nodes {
            let node = self.engine.cluster().nodes[node].clone();
            self.engine.observe(self.after(millis), Observation::Node(node));
        }
    }

    /// From now on all that wait ask for as much as the smallest.
    fn make_alike(&mut self) {
        let waiting: Vec<Arc<Pod>> =
            self.engine.cluster().pods.values().filter(|pod| pod.node.is_none()).cloned().collect();
        let requests = waiting.iter().map(|pod| &pod.shape.requests);
        let least = requests.min_by_key(|requests| requests.cpu()).expect("some wait").clone();
        for pod in waiting {
            let shape = Arc::new(PodShape { requests: least.clone(), ..(*pod.shape).clone() });
            self.engine.observe(self.now, Observation::Pod(Arc::new(Pod { shape, ..(*pod).clone() })));
        }
    }

    /// kube-scheduler places `pod` on `node`.
    fn binds(&mut self, pod: ObjectKey, node: NodeName) {
        let pod = Pod { node: Some(node), nominated_node: None, ..self.pod(pod) };
        self.engine.observe(self.now, Observation::Pod(Arc::new(pod)));
    }
}

#[test]
fn the_nodes_of_a_wave_open_together_when_the_last_of_their_pods_was_seen_to_have_heard() {
    let mut telling = Telling::of("large");
    let nodes = telling.nodes();
    assert!(nodes.len() > 1);
    let mut told = telling.told.clone();
    let last = told.pop().expect("somebody was told");
    told.into_iter().for_each(|one| telling.hears(one, 300));
    assert_eq!(opened_by(&telling.engine.decide(telling.after(300))), BTreeSet::new(), "one has not heard");
    telling.hears(last, 310);
    assert_eq!(opened_by(&telling.engine.decide(telling.after(310))), nodes);
    assert_eq!(opened_by(&telling.engine.decide(telling.after(311))), BTreeSet::new(), "once");
}

#[test]
fn a_nomination_that_is_lost_keeps_nodes_closed_for_two_seconds_after_the_last_that_arrived() {
    let mut telling = Telling::of("large");
    let first = telling.told[0];
    telling.hears(first, 1_000);
    for millis in [1_000, 2_000, 2_990] {
        assert_eq!(opened_by(&telling.engine.decide(telling.after(millis))), BTreeSet::new(), "{millis} ms");
    }
    assert_eq!(opened_by(&telling.engine.decide(telling.after(3_000))), telling.nodes());
}

#[test]
fn a_wave_waits_neither_for_nodes_that_go_nor_for_pods_that_do() {
    let mut telling = Telling::of("large");
    let gone = telling.told[0].1;
    let (here, there): (Vec<_>, Vec<_>) = telling.told.iter().copied().partition(|(_, node)| *node == gone);
    assert!(!here.is_empty() && there.len() > 1);
    let now = telling.after(300);
    telling.engine.observe(now, Observation::NodeGone(gone));
    telling.engine.observe(now, Observation::PodGone(there[0].0));
    there[1..].iter().for_each(|one| telling.hears(*one, 300));
    let others: BTreeSet<NodeName> = telling.nodes().into_iter().filter(|node| *node != gone).collect();
    assert_eq!(opened_by(&telling.engine.decide(now)), others);
}

#[test]
fn a_wave_waits_for_nodes_that_are_about_to_be_ready_but_not_for_long() {
    let mut telling = Telling::of("large");
    telling.make_alike();
    let (nodes, coming) = (telling.nodes(), telling.coming());
    assert!(!coming.is_empty());
    let told = telling.told.clone();
    told.into_iter().for_each(|one| telling.hears(one, 10));
    let decision = telling.engine.decide(telling.after(10));
    assert_eq!((opened_by(&decision), decision.wake_at), (BTreeSet::new(), Some(telling.after(250))));
    let mut alone = telling.engine.clone();
    assert_eq!(opened_by(&alone.decide(telling.after(249))), BTreeSet::new());
    assert_eq!(opened_by(&alone.decide(telling.after(250))), nodes, "none of them is ready by now");
    let mut gone = telling.engine.clone();
    coming.iter().for_each(|node| gone.observe(telling.after(20), Observation::NodeGone(node.name)));
    assert_eq!(opened_by(&gone.decide(telling.after(20))), nodes, "nobody comes any more");
}

#[test]
fn a_node_that_gets_ready_while_others_are_told_opens_with_them() {
    let mut telling = Telling::of("large");
    let (nodes, late) = (telling.nodes(), telling.coming()[0].clone());
    let told = telling.gets_ready(&late, 100);
    assert!(!told.is_empty() && told.iter().all(|(_, node)| *node == late.name), "{told:?}");
    assert_eq!(telling.opens(200), BTreeSet::new(), "the next may come until 350 ms");
    let all = nodes.into_iter().chain([late.name]).collect();
    assert_eq!(opened_by(&telling.engine.decide(telling.after(350))), all);
}

#[test]
fn no_node_joins_a_wave_that_began_three_seconds_ago() {
    let mut telling = Telling::of("large");
    let (nodes, late) = (telling.nodes(), telling.coming()[0].clone());
    // Some hear, one does not.
    let told = telling.told.clone();
    telling.hears(told[0], 1_500);
    telling.hears(told[1], 2_900);
    assert_eq!(telling.gets_ready(&late, 3_000), [], "its turn comes");
    assert_eq!(telling.opens(3_010), nodes);
}

/// Whoever has lost what it was told is waited for as long as nodes may join, and no longer.
#[test]
fn pods_that_have_heard_and_forgotten_hold_nobody_else_up_after_three_seconds() {
    let mut telling = Telling::of("large");
    let mut others = telling.nodes();
    let told = telling.told.clone();
    told.iter().for_each(|one| telling.hears(*one, 2_790));
    let (pod, home) = told[0];
    let cleared = Pod { nominated_node: None, ..telling.pod(pod) };
    telling.engine.observe(telling.after(2_800), Observation::Pod(Arc::new(cleared)));
    let decision = telling.engine.decide(telling.after(2_800));
    assert_eq!((opened_by(&decision), decision.wake_at), (BTreeSet::new(), Some(telling.after(3_000))));
    others.remove(&home);
    assert_eq!(opened_by(&telling.engine.decide(telling.after(3_000))), others);
}

/// It was known to all its pods before the last of others had heard.
#[test]
fn a_node_that_is_forgotten_while_others_are_told_does_not_open_with_them() {
    let mut telling = Telling::of("large");
    let mut told = telling.told.clone();
    let mut others = telling.nodes();
    let last = told.pop().expect("somebody was told");
    let forgotten = told[0].1;
    assert_ne!(last.1, forgotten);
    told.into_iter().for_each(|one| telling.hears(one, 300));
    assert_eq!(telling.opens_at(300), BTreeSet::new(), "one has not heard");
    telling.forget(forgotten, 310);
    assert_eq!(telling.opens_at(310), BTreeSet::new());
    telling.hears(last, 320);
    others.remove(&forgotten);
    assert_eq!(telling.opens_at(320), others);
}

/// Of thousands of pods fifty are told at a time.
#[test]
fn a_node_that_is_ready_waits_for_its_turn_for_five_minutes() {
    let opens = |ready_for: i64| {
        let mut telling = Telling::of("large");
        let late = telling.coming()[0].clone();
        let since = telling.now - SignedDuration::from_secs(ready_for);
        let mut claim = telling.claim_of(late.name);
        claim.conditions.clear(ConditionType::Registered);
        claim.conditions.set(ConditionType::Registered, ConditionStatus::True, "", "", since);
        telling.engine.observe(telling.now, Observation::Claim(Arc::new(claim)));
        let ready = NodeCondition { kind: "Ready".into(), status: "True".into(), since: Some(since) };
        let taints = late.taints.iter().filter(|taint| taint.key.starts_with("karpenter.sh/")).cloned();
        let node = Node { conditions: vec![ready], taints: taints.collect(), ..(*late).clone() };
        telling.engine.observe(telling.now, Observation::Node(Arc::new(node)));
        telling.opens_at(0).contains(&late.name)
    };
    assert_eq!([125, 299, 301].map(opens), [false, false, true]);
}

/// Others would take all its room.
#[test]
fn a_node_that_its_pods_have_forgotten_opens_with_the_next_wave() {
    let mut telling = Telling::of("large");
    telling.make_alike();
    let forgotten = telling.told[0].1;
    let mut others = telling.nodes();
    others.remove(&forgotten);
    assert!(!others.is_empty());
    let all = telling.told.clone();
    all.into_iter().for_each(|one| telling.hears(one, 2_790));
    telling.forget(forgotten, 2_800);
    assert_eq!(telling.opens_at(2_800), BTreeSet::new());
    assert_eq!(telling.opens_at(3_000), others);
    telling.see(&others, 3_100);
    assert_eq!(telling.opens_at(3_100), BTreeSet::new(), "it has to know again");
    let mut unlucky = telling.engine.clone();
    telling.remember(forgotten, 3_400);
    assert_eq!(telling.opens_at(6_090), BTreeSet::new(), "the few others would make one wave with it");
    assert_eq!(telling.opens_at(6_100), [forgotten].into());

    // Another node joins it, and they forget it again: it has been put back once.
    std::mem::swap(&mut telling.engine, &mut unlucky);
    let late = telling.coming()[0].clone();
    assert!(!telling.gets_ready(&late, 3_200).is_empty());
    telling.remember(late.name, 4_900);
    assert_eq!(telling.opens_at(4_900), BTreeSet::new());
    let ended = (5_000..9_000).step_by(50).find_map(|millis| {
        let opened = telling.opens_at(millis);
        (!opened.is_empty()).then_some(opened)
    });
    assert_eq!(ended, Some([forgotten, late.name].into()));
}

/// Nobody else opens, so nobody else is tried.
#[test]
fn a_node_that_is_alone_opens_although_its_pods_have_forgotten_it() {
    let mut telling = Telling::of("large");
    let alone = telling.told[0].1;
    let others: Vec<Arc<Node>> = telling.engine.cluster().nodes.values().cloned().collect();
    for other in others.iter().filter(|node| node.name != alone) {
        telling.engine.observe(telling.after(10), Observation::NodeGone(other.name));
    }
    telling.remember(alone, 2_790);
    telling.forget(alone, 2_800);
    assert_eq!(telling.opens_at(2_800), BTreeSet::new());
    assert_eq!(telling.opens_at(3_000), [alone].into());
}

/// kube-scheduler tries some pods while the nodes open, and lets them forget: the nodes of the larger ones open when they know again.
#[test]
fn of_a_large_wave_those_whose_pods_are_tried_first_open_when_the_others_were_seen_to_be_open() {
    let mut telling = Telling::of_many();
    let nodes = telling.nodes();
    // In the order of their names kube-scheduler has not tried the pods of a node for the longest time.
    let told = telling.told.clone();
    for (pod, node) in told {
        let order = nodes.iter().position(|one| *one == node).expect("it is one of them");
        let seen = Observation::Pod(Arc::new(telling.pod(pod)));
        telling.engine.observe(telling.after(i64::try_from(order).expect("few") - 60_000), seen);
    }
    let mut order: Vec<NodeName> = nodes.iter().rev().copied().collect();
    let held: BTreeSet<NodeName> = order.split_off(9).into_iter().collect();
    let told = telling.told.clone();
    told.into_iter().for_each(|one| telling.hears(one, 300));
    assert_eq!(opened_in_order_by(&telling.engine.decide(telling.after(300))), order);
    assert_eq!(opened_by(&telling.engine.decide(telling.after(310))), BTreeSet::new(), "none is seen open");
    let mut lost = telling.engine.clone();
    // The next wave has nobody to tell, and waits for those that are about to be ready.
    lost.decide(telling.after(5_300));
    assert_eq!(opened_by(&lost.decide(telling.after(5_550))), held, "after five seconds all the same");
    telling.see(&order.into_iter().collect(), 400);
    let mut many = telling.engine.clone();
    // One of the pods has lost what it was told.
    let (pod, home) = *telling.told.iter().find(|(_, node)| held.contains(node)).expect("they were told");
    let cleared = Pod { nominated_node: None, ..telling.pod(pod) };
    telling.engine.observe(telling.after(400), Observation::Pod(Arc::new(cleared)));
    let decision = telling.engine.decide(telling.after(400));
    assert_eq!(told_by(&decision), [(pod, home)]);
    assert_eq!(
        opened_by(&telling.engine.decide(telling.after(690))),
        BTreeSet::new(),
        "it has to know again"
    );
    telling.hears((pod, home), 700);
    assert_eq!(opened_by(&telling.engine.decide(telling.after(700))), held);
    // Others join the wave of those that were held back: these are not a second time.
    std::mem::swap(&mut telling.engine, &mut many);
    let coming = telling.coming();
    assert!(coming.len() >= 9, "{}", coming.len());
    telling.told.clear();
    coming.iter().for_each(|node| drop(telling.gets_ready(node, 450)));
    assert!(held.is_subset(&telling.opens(800)));
}

/// Else larger pods that are tried while their nodes are closed take the room of those that nobody is told of.
#[test]
fn nodes_of_a_crowd_where_nobody_is_told_open_when_the_others_have() {
    let mut joined = Telling::of_those_that_joined(large_crowd(1_100, |_| ()));
    let (kept, free) = joined.with_room_and_without();
    assert!(kept.len() > 1 && free.len() > 1, "{} and {}", kept.len(), free.len());
    let names = |nodes: &[Arc<Node>]| nodes.iter().map(|node| node.name).collect::<BTreeSet<_>>();
    assert_eq!(joined.opens_at(0), BTreeSet::new(), "none is ready");
    free.iter().for_each(|node| assert_eq!(joined.gets_ready(node, 100), []));
    let decision = joined.engine.decide(joined.after(3_099));
    assert_eq!(opened_by(&decision), BTreeSet::new(), "the others may be ready before long");
    assert_eq!(decision.wake_at, Some(joined.after(3_100)));
    let mut alone = joined.engine.clone();
    assert_eq!(opened_by(&alone.decide(joined.after(3_100))), names(&free), "but are not");
    kept.iter().for_each(|node| assert_ne!(joined.gets_ready(node, 3_099), []));
    let is_told = |node: &Arc<Node>| {
        let claim = joined.claim_of(node.name);
        let initialized = claim.conditions.get(ConditionType::Initialized).expect("it is said why not");
        &*initialized.reason == "KnownEphemeralTaintsExist"
    };
    assert!(!free.iter().chain(&kept).any(is_told), "they open before long");
    // Nobody is told anything any more.
    let mut moved = joined.engine.clone();
    let guests = moved.cluster().guests_of(kept[0].name).filter(|pod| !pod.is_daemon()).cloned();
    let guests: Vec<Arc<Pod>> = guests.collect();
    for pod in guests {
        let pod = Pod { node: Some(free[0].name), nominated_node: None, ..(*pod).clone() };
        moved.observe(joined.after(3_500), Observation::Pod(Arc::new(pod)));
    }
    let mut moved =
        Telling { engine: moved, before: joined.before.clone(), now: joined.now, told: joined.told.clone() };
    assert!(moved.opens(4_000).contains(&kept[0].name), "with the others");
    let opened = joined.opens(4_000);
    let held = &names(&kept) - &opened;
    assert_eq!(
        (opened.len(), held.len()),
        (kept.len() - 1, 1),
        "one opens when the others were seen to be open"
    );
    joined.see(&opened, 5_000);
    assert_eq!(joined.opens_at(5_000), held);
    assert_eq!(joined.opens_at(8_000), BTreeSet::new(), "it has yet to be seen");
    joined.see(&held, 8_100);
    assert_eq!(joined.opens_at(8_100), names(&free));
}

#[test]
fn of_equal_pods_nobody_is_held_back() {
    let mut telling = (0..50)
        .find_map(|seed| Telling::in_a_crowd(crowd_of(seed, 0, 160), 20, "large", 20))
        .expect("so many large pods need forty nodes");
    let nodes = telling.nodes();
    assert_eq!(telling.opens(300), nodes);
}

/// Nobody looks for a place for a pod that has one.
#[test]
fn who_has_room_begins_no_round() {
    let mut telling = Telling::of("large");
    let one = telling.told[0];
    let unjudged = Pod { is_unschedulable: false, ..telling.pod(one.0) };
    telling.engine.observe(telling.after(1), Observation::Pod(Arc::new(unjudged)));
    [1, 1_500].into_iter().for_each(|millis| drop(telling.engine.decide(telling.after(millis))));
    let before = telling.engine.rounds();
    telling.hears(one, 1_600);
    [1_600, 3_000].into_iter().for_each(|millis| drop(telling.engine.decide(telling.after(millis))));
    assert_eq!(telling.engine.rounds(), before);
}

/// Its equals were refused and have their room: it will be refused, too.
#[test]
fn a_latecomer_to_a_crowd_is_planned_for_before_kube_scheduler_looks_at_it() {
    let mut telling = Telling::of("large");
    let equal = Pod { is_unschedulable: true, ..telling.pod(telling.told[0].0) };
    let key = ObjectKey::new("default", "latecomer");
    let late = Pod {
        key,
        uid: provisor::model::name::Uid::new("latecomer"),
        is_unschedulable: false,
        ..equal.clone()
    };
    telling.engine.observe(telling.after(1), Observation::Pod(Arc::new(equal)));
    telling.engine.observe(telling.after(2), Observation::Pod(Arc::new(late)));
    assert_eq!(telling.engine.cluster().waiting_pods().count(), 0, "nobody else waits");
    let actions = telling.engine.decide(telling.after(1_010)).actions;
    let is_told =
        |action: &Action| matches!(action, Action::Publish(notice) if notice.subject == Subject::Pod(key));
    assert!(actions.iter().any(|planned| is_told(&planned.action)), "{actions:?}");
}

/// It is planned at a node that has joined and is closed, whose other pods were told already.
#[test]
fn who_is_planned_at_a_node_before_it_opens_is_told_too() {
    let mut telling = Telling::of("large");
    let late = pod("latecomer", None, shape("tiny", "10m"));
    let key = late.key;
    telling.engine.observe(telling.after(1), Observation::Pod(Arc::new(late)));
    telling.engine.decide(telling.after(1));
    let told = told_by(&telling.engine.decide(telling.after(1_010)));
    let [(pod, node)] = told[..] else { panic!("the others were told already: {told:?}") };
    assert_eq!(pod, key, "there is room on every one of them");
    let others = telling.told.clone();
    others.into_iter().for_each(|one| telling.hears(one, 1_020));
    assert_eq!(opened_by(&telling.engine.decide(telling.after(1_020))), BTreeSet::new(), "it has to hear");
    telling.hears((key, node), 1_030);
    assert_eq!(opened_by(&telling.engine.decide(telling.after(1_030))), telling.nodes());
    assert!(telling.is_at(key, node), "and it is kept");
    assert!(telling.told.iter().any(|(pod, at)| *at == node && telling.is_at(*pod, node)), "for all of them");
}

/// A set goes on for a while, and its pods are planned on a node whose other pods were told.
#[test]
fn a_node_whose_turn_has_come_does_not_wait_for_pods_that_are_yet_to_be_made() {
    let mut telling = Telling::of("large");
    let nodes = telling.nodes();
    let shape = Arc::new(self::shape("web", "10m"));
    let set = Scalable {
        kind: "ReplicaSet".into(),
        key: ObjectKey::new("default", "web"),
        replicas: 4,
        selector: None,
        shape: shape.clone(),
        is_refused: false,
    };
    let owners = vec![Owner { name: "web".into(), uid: "web-uid".into(), ..owned_by("ReplicaSet") }];
    let created = Some(telling.after(10));
    let one = Pod { owners, shape, created, ..pod("web-0", None, self::shape("web", "10m")) };
    telling.engine.observe(telling.after(10), Observation::Scalable(Arc::new(set)));
    telling.engine.observe(telling.after(10), Observation::Pod(Arc::new(one)));
    let mut told = Vec::new();
    for millis in (10..2_500).step_by(100) {
        if millis == 1_510 {
            // The wave goes on: all but one have heard.
            let heard = telling.told[1..].to_vec();
            heard.into_iter().for_each(|one| telling.hears(one, millis));
        }
        let decision = telling.engine.decide(telling.after(millis));
        assert_eq!(opened_by(&decision), BTreeSet::new(), "{millis} ms");
        told.extend(told_by(&decision));
    }
    let (pod, home) = *told.iter().find(|(pod, _)| &*pod.name == "web-0").expect("it is told");
    assert!(nodes.contains(&home), "it has room at one of them");
    telling.told.push((pod, home));
    assert_eq!(telling.opens(2_600), nodes);
}

/// kube-scheduler tries first whom it has not tried for the longest time: who is told just before the nodes open is in the least danger.
#[test]
fn who_was_tried_last_is_told_first() {
    let telling = Telling::of("large");
    let (mut engine, now) = (telling.before.clone(), telling.now);
    let tried: Vec<ObjectKey> = telling.told.iter().rev().map(|(pod, _)| *pod).collect();
    for (order, key) in tried.iter().enumerate() {
        let pod = engine.cluster().pods[key].clone();
        let at = now - SignedDuration::from_millis(i64::try_from(order).expect("few"));
        engine.observe(at, Observation::Pod(pod));
    }
    let told: Vec<ObjectKey> = told_by(&engine.decide(now)).into_iter().map(|(pod, _)| pod).collect();
    assert_eq!(told, tried);
}

/// Pods of one Deployment on two nodes of a wave: one of `here`, and all of `there`.
fn neighbours(telling: &Telling, app: &str) -> ((ObjectKey, NodeName), NodeName, Vec<ObjectKey>) {
    let mut by_node: BTreeMap<NodeName, Vec<ObjectKey>> = BTreeMap::new();
    for (pod, node) in
        telling.told.iter().filter(|(pod, _)| telling.pod(*pod).shape.labels[&"app".into()] == app.into())
    {
        by_node.entry(*node).or_default().push(*pod);
    }
    let mut nodes = by_node.into_iter();
    let (here, pods) = nodes.next().expect("two nodes have such pods");
    let (there, others) = nodes.next().expect("two nodes have such pods");
    ((pods[0], here), there, others)
}

#[test]
fn who_takes_the_room_of_an_equal_leaves_its_own_to_it() {
    let mut telling = Telling::of("large");
    let ((thief, home), node, others) = neighbours(&telling, "large");
    let told = telling.told.clone();
    told.into_iter().for_each(|one| telling.hears(one, 0));
    telling.tighten(node);
    telling.binds(thief, node);
    let moved: Vec<ObjectKey> = others.iter().copied().filter(|pod| !telling.is_at(*pod, node)).collect();
    let [moved] = moved[..] else { panic!("one of {others:?} has lost its room, not {moved:?}") };
    assert!(telling.is_at(moved, home), "and has another");
    assert!(telling.requests_at(node).fits(&telling.engine.cluster().nodes[&node].allocatable));
    assert!(told_by(&telling.engine.decide(telling.now)).contains(&(moved, home)), "it is told at once");
    // Until that is seen, what it was told before is still ours, and no pod that kube-scheduler puts others out for.
    let still = Pod { nominated_node: Some(node), ..telling.pod(moved) };
    telling.engine.observe(telling.after(5), Observation::Pod(Arc::new(still)));
    assert_eq!(telling.pod(moved).nominated_node, None);
    assert!(telling.is_at(moved, home));
}

/// It was told again, and loses its room before that is seen.
#[test]
fn what_was_told_again_is_ours_too() {
    let mut telling = Telling::of("large");
    let ((thief, home), node, others) = neighbours(&telling, "large");
    telling.opens(300);
    telling.tighten(node);
    for pod in &others {
        let cleared = Pod { nominated_node: None, is_unschedulable: true, ..telling.pod(*pod) };
        telling.engine.observe(telling.after(400), Observation::Pod(Arc::new(cleared)));
    }
    let again = told_by(&telling.engine.decide(telling.after(400)));
    assert!(others.iter().all(|pod| again.contains(&(*pod, node))), "{again:?}");
    telling.binds(thief, node);
    let moved: Vec<ObjectKey> = others.iter().copied().filter(|pod| !telling.is_at(*pod, node)).collect();
    let [moved] = moved[..] else { panic!("one of {others:?} has lost its room, not {moved:?}") };
    let still = Pod { nominated_node: Some(node), ..telling.pod(moved) };
    telling.engine.observe(telling.after(405), Observation::Pod(Arc::new(still)));
    assert_eq!(telling.pod(moved).nominated_node, None, "no pod that kube-scheduler puts others out for");
    assert!(told_by(&telling.engine.decide(telling.after(410))).contains(&(moved, home)));
}

#[test]
fn who_comes_to_a_node_with_room_to_spare_moves_nobody() {
    let mut telling = Telling::of("large");
    let ((guest, _), node, _) = neighbours(&telling, "large");
    let mut roomy = (*telling.engine.cluster().nodes[&node]).clone();
    roomy.allocatable = telling.requests_at(node).plus(&telling.pod(guest).shape.requests);
    telling.engine.observe(telling.now, Observation::Node(Arc::new(roomy)));
    let before: BTreeSet<ObjectKey> = telling.engine.cluster().guests_of(node).map(|pod| pod.key).collect();
    telling.binds(guest, node);
    assert!(before.iter().all(|pod| telling.is_at(*pod, node)));
}

/// Small pods may have the room of a large one, but no large one that of a small.
#[test]
fn several_small_pods_have_the_room_of_a_large_one_that_took_theirs() {
    let mut telling = Telling::of("large");
    let ((thief, home), node, others) = neighbours(&telling, "large");
    telling.tighten(node);
    // Nobody like it is expected there any more.
    for pod in others {
        telling.engine.observe(telling.now, Observation::PodGone(pod));
    }
    let small: Vec<ObjectKey> = telling.engine.cluster().guests_of(node).map(|pod| pod.key).collect();
    assert!(small.len() > 1, "there are small ones");
    let one = telling.pod(small[0]).shape.requests.clone();
    let mut large = telling.pod(thief);
    let mut requests = large.shape.requests.clone();
    small.iter().for_each(|_| requests.add(&one));
    requests.set(*resource::PODS, 1);
    large.shape = Arc::new(PodShape { requests: requests.clone(), ..(*large.shape).clone() });
    let mut tight = (*telling.engine.cluster().nodes[&node]).clone();
    tight.allocatable = requests.plus(&one);
    tight.allocatable.set(*resource::PODS, 110);
    telling.engine.observe(telling.now, Observation::Node(Arc::new(tight)));
    let bound = Pod { node: Some(node), nominated_node: None, ..large };
    telling.engine.observe(telling.now, Observation::Pod(Arc::new(bound)));
    let moved: Vec<ObjectKey> = small.iter().copied().filter(|pod| telling.is_at(*pod, home)).collect();
    assert_eq!(moved.len(), small.len() - 1, "{moved:?} of {small:?}");
    let room = telling.claim_of(home).allocatable;
    assert!(telling.requests_at(home).fits(&room), "what the large one left is enough for {moved:?}");
}
