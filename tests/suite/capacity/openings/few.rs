//! Nodes of few pods open together, when all are ready and kube-scheduler is through with the pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::model::claim::NodeClaim;
use provisor::model::name::{NodeName, ObjectKey};
use provisor::model::node::{Node, NodeCondition};
use provisor::model::observation::Observation;
use provisor::model::pod::Pod;
use provisor::model::taint::{Effect, Taint};

use super::{Telling, opened_by, told_by};

/// Whom kube-scheduler tries for the first of them would take what is free there, and another place than planned.
#[test]
fn nodes_of_few_pods_wait_for_each_other_for_as_long_as_a_wave_may() {
    let mut telling = Telling::of_few();
    telling.make_alike();
    let (mut all, coming) = (telling.nodes(), telling.coming());
    telling.told.clone().into_iter().for_each(|one| telling.hears(one, 10));
    let mut alone = telling.engine.clone();
    for millis in [10, 250, 1_000, 2_010, 2_990] {
        let decision = alone.decide(telling.after(millis));
        assert_eq!(opened_by(&decision), BTreeSet::new(), "{millis} ms");
        assert!(decision.wake_at.is_some_and(|at| at <= telling.after(3_000)), "{millis} ms");
    }
    assert_eq!(opened_by(&alone.decide(telling.after(3_000))), all, "none of them is ready by now");

    // Those that should have been ready long ago are not counted on.
    let mut stuck = telling.engine.clone();
    for node in &coming {
        let created = Some(telling.now - SignedDuration::from_secs(60));
        stuck.observe(telling.after(20), Observation::Node(Arc::new(Node { created, ..(**node).clone() })));
    }
    assert_eq!(opened_by(&stuck.decide(telling.after(240))), BTreeSet::new());
    assert_eq!(opened_by(&stuck.decide(telling.after(250))), all);

    for node in &coming {
        assert!(!telling.gets_ready(node, 2_900).is_empty());
        all.insert(node.name);
    }
    assert_eq!(telling.opens(2_950), all, "nobody else comes");
}

/// They are told when kube-scheduler has tried them, and the others open with them.
#[test]
fn nodes_of_few_pods_wait_for_one_whose_pods_are_about_to_be_tried() {
    let mut telling = Telling::of_few();
    telling.make_alike();
    let (mut all, coming) = (telling.nodes(), telling.coming());
    let late = coming[0].name;
    let pods: Vec<Pod> = telling.engine.cluster().guests_of(late).map(|pod| (**pod).clone()).collect();
    let judge = |telling: &mut Telling, is_unschedulable: bool, millis: i64| {
        for pod in &pods {
            let pod = Pod { is_unschedulable, ..pod.clone() };
            telling.engine.observe(telling.after(millis), Observation::Pod(Arc::new(pod)));
        }
    };
    judge(&mut telling, false, 5);
    for node in &coming {
        telling.gets_ready(node, 10);
        all.insert(node.name);
    }
    assert!(!telling.nodes().contains(&late), "its pods are told later");
    telling.told.clone().into_iter().for_each(|one| telling.hears(one, 20));
    for millis in [20, 300, 1_000, 1_900] {
        assert_eq!(telling.opens_at(millis), BTreeSet::new(), "{millis} ms");
    }
    judge(&mut telling, true, 1_950);
    telling.told.extend(told_by(&telling.engine.decide(telling.after(1_950))));
    telling.remember(late, 1_960);
    assert_eq!(telling.opens_at(2_300), all);
}

/// The node controller looks every five seconds which nodes are ready.
#[test]
fn nodes_of_few_pods_wait_for_one_that_is_ready_and_still_tainted() {
    let mut telling = Telling::of_few();
    telling.make_alike();
    let (mut all, coming) = (telling.nodes(), telling.coming());
    telling.told.clone().into_iter().for_each(|one| telling.hears(one, 10));
    let (now, in_vain) = (telling.after(2_900), telling.after(3_000));
    let tainted_since = |node: &Arc<Node>, since: Timestamp, key: Option<&str>| {
        let ready = NodeCondition { kind: "Ready".into(), status: "True".into(), since: Some(since) };
        // Its kubelet took long.
        let created = Some(now - SignedDuration::from_secs(60));
        let mut node = Node { conditions: vec![ready], created, ..(**node).clone() };
        node.taints.retain(|taint| !taint.is_ephemeral() || taint.keeps_closed());
        node.taints.extend(key.map(|key| Taint::new(key, "", Effect::NoExecute)));
        Observation::Node(Arc::new(node))
    };
    let tainted = |node: &Arc<Node>, key: Option<&str>| tainted_since(node, now, key);
    let not_ready = Some("node.kubernetes.io/not-ready");
    let (mut held_by_others, mut too_late) = (telling.engine.clone(), telling.engine.clone());
    for node in &coming {
        telling.engine.observe(now, tainted(node, not_ready));
        held_by_others.observe(now, tainted(node, Some("readiness.k8s.io/network")));
        too_late.observe(in_vain, tainted_since(node, in_vain, not_ready));
    }
    assert_eq!(opened_by(&held_by_others.decide(in_vain)), all, "nobody knows for how long");
    assert_eq!(opened_by(&too_late.decide(in_vain)), all, "it was not ready in time");
    for millis in [3_000, 5_000, 9_890] {
        let decision = telling.engine.decide(telling.after(millis));
        assert_eq!(opened_by(&decision), BTreeSet::new(), "{millis} ms");
        assert!(decision.wake_at.is_some_and(|at| at <= telling.after(9_900)), "{millis} ms");
    }
    let mut forgotten = telling.engine.clone();
    assert_eq!(opened_by(&forgotten.decide(telling.after(9_900))), all, "nobody looks");
    for node in &coming {
        telling.engine.observe(telling.after(6_000), tainted(node, None));
        all.insert(node.name);
    }
    telling.told.extend(told_by(&telling.engine.decide(telling.after(6_000))));
    assert_eq!(telling.nodes(), all, "their pods are told with the others");
    let late = coming[0].name;
    telling.remember(late, 6_010);
    telling.forget(late, 6_020);
    coming[1..].iter().for_each(|node| telling.remember(node.name, 6_020));
    assert_eq!(telling.opens_at(6_030), BTreeSet::new(), "it has to know again");
    telling.remember(late, 6_100);
    assert_eq!(telling.opens_at(6_350), all);
}

/// It goes over all that wait whenever a node changes; whom it tries while the nodes open one after the other may have to go elsewhere.
#[test]
fn nodes_of_few_pods_open_when_kube_scheduler_is_through_with_them() {
    let mut telling = Telling::of_few();
    telling.make_alike();
    let (mut all, coming) = (telling.nodes(), telling.coming());
    for node in &coming {
        telling.gets_ready(node, 10);
        all.insert(node.name);
    }
    let told = telling.told.clone();
    told.iter().for_each(|one| telling.hears(*one, 20));
    let forgetful = told[0].1;
    for (forgets, hears) in [(30, 40), (60, 70)] {
        telling.forget(forgetful, forgets);
        assert_eq!(telling.opens_at(forgets), BTreeSet::new(), "it has forgotten at {forgets} ms");
        telling.remember(forgetful, hears);
        let decision = telling.engine.decide(telling.after(hears));
        assert_eq!(opened_by(&decision), BTreeSet::new(), "the next may be tried at {hears} ms");
        assert_eq!(decision.wake_at, Some(telling.after(forgets + 100)));
    }
    let mut slow = telling.engine.clone();
    assert_eq!(opened_by(&slow.decide(telling.after(159))), BTreeSet::new());
    assert_eq!(opened_by(&slow.decide(telling.after(160))), all);

    // It is not waited for for ever.
    for millis in (160..2_950).step_by(50) {
        telling.forget(forgetful, millis);
        telling.remember(forgetful, millis + 10);
        assert_eq!(telling.opens_at(millis + 40), BTreeSet::new(), "{millis} ms");
    }
    telling.forget(forgetful, 2_990);
    assert_eq!(telling.opens_at(3_000), BTreeSet::new(), "it is told again");
    assert_eq!(telling.opens_at(3_500), all);
}

/// Whoever is tried while its own node is closed finds no room on a full one; when its pods are bound, nobody is left to take what is
/// free on the last.
#[test]
fn few_nodes_of_unlike_pods_open_in_turns_and_those_with_room_for_others_last() {
    let mut telling = Telling::of_few_that_are_ready();
    let (all, told) = (telling.nodes(), telling.told.clone());
    // One has room for whatever the others have, and these have just what they need: half of each is for pods of DaemonSets that are
    // yet to be made.
    let roomy = told[0].1;
    let mut room = telling.requests_at(roomy);
    for node in all.iter().filter(|node| **node != roomy) {
        let mut requests = telling.requests_at(*node);
        room.add(&requests);
        requests.add(&requests.clone());
        let mut claim = telling.claim_of(*node);
        claim.spec.requests = requests.clone();
        telling.engine.observe(telling.now, Observation::Claim(Arc::new(claim)));
        let full = (*telling.engine.cluster().nodes[node]).clone();
        telling
            .engine
            .observe(telling.now, Observation::Node(Arc::new(Node { allocatable: requests, ..full })));
    }
    let node = (*telling.engine.cluster().nodes[&roomy]).clone();
    telling.engine.observe(telling.now, Observation::Node(Arc::new(Node { allocatable: room, ..node })));
    told.iter().for_each(|one| telling.hears(*one, 20));
    let (mut order, mut millis) = (Vec::new(), 300);
    while order.len() < all.len() {
        let opened = telling.opens_at(millis);
        assert_eq!(opened.len(), 1, "{opened:?} of {all:?} at {millis} ms");
        let node = *opened.first().expect("one");
        order.push(node);
        telling.see(&opened, millis);
        let mut late: Vec<ObjectKey> = told.iter().filter(|one| one.1 == node).map(|one| one.0).collect();
        let last = late.pop().expect("it has pods");
        late.into_iter().for_each(|pod| telling.binds(pod, node));
        let left = order.len() < all.len();
        assert_eq!(telling.opens_at(millis + 100), BTreeSet::new(), "one is still on its way to {node}");
        let mut stuck = telling.engine.clone();
        let too_long = opened_by(&stuck.decide(telling.after(millis + 4_000)));
        assert_eq!(too_long.is_empty(), !left, "it is not waited for for ever");
        telling.binds(last, node);
        millis += 200;
    }
    assert_eq!(order.last(), Some(&roomy));

    let pods = |node: &NodeName| told.iter().filter(|one| one.1 == *node).count();
    assert!(order[..all.len() - 1].is_sorted_by_key(|node| std::cmp::Reverse(pods(node))), "the most first");
}

/// More full nodes may come for ever, and a pod may never be bound.
#[test]
fn the_last_of_few_nodes_open_together_four_seconds_after_the_first() {
    let mut telling = Telling::of_few_that_are_ready();
    let (all, told) = (telling.nodes(), telling.told.clone());
    all.iter().for_each(|node| telling.tighten(*node));
    told.iter().for_each(|one| telling.hears(*one, 20));
    let first = telling.opens_at(300);
    assert_eq!(first.len(), 1);
    telling.see(&first, 310);
    // Its pods stay where they are.
    let mut opened = first.clone();
    for millis in (350..4_300).step_by(50) {
        let more = telling.opens_at(millis);
        telling.see(&more, millis);
        opened.extend(more);
    }
    assert!(opened.len() < all.len(), "{opened:?}");
    assert_eq!(telling.opens_at(4_300), &all - &opened);
}

/// A pod that loses its nomination frees room in the eyes of kube-scheduler, which tries all others again then.
#[test]
fn few_pods_that_forget_are_told_again_together_when_none_has_for_a_while() {
    let mut telling = Telling::of_few();
    let told = telling.told.clone();
    let (one, other) = (told[0], told[1]);
    told.iter().for_each(|one| telling.hears(*one, 10));
    let forgets = |telling: &mut Telling, (pod, _): (ObjectKey, NodeName), millis: i64| {
        let cleared = Pod { nominated_node: None, ..telling.pod(pod) };
        telling.engine.observe(telling.after(millis), Observation::Pod(Arc::new(cleared)));
    };
    let tells = |telling: &mut Telling, millis: i64| told_by(&telling.engine.decide(telling.after(millis)));
    let mut again = [one, other];
    again.sort();
    for (began, waits) in [(20, 100), (200, 200), (600, 400), (1_300, 400)] {
        forgets(&mut telling, one, began);
        assert_eq!(tells(&mut telling, began), []);
        forgets(&mut telling, other, began + 50);
        assert_eq!(tells(&mut telling, began + 49 + waits), []);
        let mut told = tells(&mut telling, began + 50 + waits);
        told.sort();
        assert_eq!(told, again, "after {waits} ms");
        again.iter().for_each(|one| telling.hears(*one, began + 60 + waits));
    }
}

/// Machines that were bought together boot together.
#[test]
fn nodes_of_few_pods_wait_a_second_for_machines_that_are_yet_to_join() {
    let mut telling = Telling::of_few();
    telling.make_alike();
    let all = telling.nodes();
    let joins: Vec<NodeName> = telling.coming().iter().map(|node| node.name).collect();
    for node in joins {
        telling.engine.observe(telling.after(5), Observation::NodeGone(node));
    }
    telling.told.clone().into_iter().for_each(|one| telling.hears(one, 10));
    let mut bought = telling.engine.clone();
    for millis in [10, 250, 990] {
        assert_eq!(opened_by(&bought.decide(telling.after(millis))), BTreeSet::new(), "{millis} ms");
    }
    assert_eq!(opened_by(&bought.decide(telling.after(1_000))), all);
    let cluster = telling.engine.cluster();
    let of_others = cluster.claims.values().filter(|claim| cluster.node_of(claim).is_none());
    for claim in of_others.cloned().collect::<Vec<_>>() {
        let created = claim.created.map(|created| created - SignedDuration::from_secs(60));
        let long_ago = NodeClaim { created, ..(*claim).clone() };
        telling.engine.observe(telling.after(10), Observation::Claim(Arc::new(long_ago)));
    }
    assert_eq!(telling.opens_at(250), all, "those have had their time");
}

/// Whoever could not run there takes nobody's room.
#[test]
fn few_nodes_open_together_if_their_pods_could_not_run_on_each_other() {
    let mut telling = Telling::of_few_that_are_ready();
    let all = telling.nodes();
    all.iter().for_each(|node| telling.tighten(*node));
    all.iter().for_each(|node| telling.bind_to(*node));
    telling.told.clone().into_iter().for_each(|one| telling.hears(one, 20));
    assert_eq!(telling.opens_at(300), all);
}

/// Who may run anywhere takes the room of an equal that may not, and nobody can give it another.
#[test]
fn few_nodes_of_equal_pods_open_in_turns_if_some_of_these_may_only_run_on_one() {
    let mut telling = Telling::of_few();
    telling.make_alike();
    for node in telling.coming() {
        telling.gets_ready(&node, 10);
    }
    let all = telling.nodes();
    all.iter().for_each(|node| telling.tighten(*node));
    let mut alike = telling.clone();
    telling.bind_to(*all.first().expect("some"));
    for telling in [&mut telling, &mut alike] {
        telling.told.clone().into_iter().for_each(|one| telling.hears(one, 20));
    }
    assert_eq!(alike.opens_at(300), all);
    assert_eq!(telling.opens_at(300).len(), 1);
}

/// Its kubelet may have died, or the API server refuses it.
#[test]
fn a_node_that_does_not_open_in_its_turn_holds_the_others_up_for_four_seconds_at_most() {
    let mut telling = Telling::of_few_that_are_ready();
    let all = telling.nodes();
    all.iter().for_each(|node| telling.tighten(*node));
    telling.told.clone().into_iter().for_each(|one| telling.hears(one, 20));
    let first = telling.opens_at(300);
    assert_eq!(first.len(), 1);
    let decision = telling.engine.decide(telling.after(4_290));
    assert_eq!(opened_by(&decision), BTreeSet::new());
    assert_eq!(decision.wake_at, Some(telling.after(4_300)));
    assert_eq!(telling.opens_at(4_300), &all - &first);
}
