//! How a claim and its node go: in which order, what is waited for, and what ends the waiting.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::Decision;
use provisor::capacity::engine::Engine;
use provisor::model::action::{Action, Notice, Subject};
use provisor::model::claim::ConditionStatus::{True, Unknown};
use provisor::model::claim::{ConditionType, NodeClaim};
use provisor::model::label::{self, annotation};
use provisor::model::name::{ClaimName, NodeName, ObjectKey, ProviderId, Uid};
use provisor::model::node::Node;
use provisor::model::observation::{EvictionBlock, Instance, InterruptionNotice, Observation};
use provisor::model::pod::{PodShape, PodVolume};
use provisor::model::symbol::Symbol;
use provisor::model::taint::{Effect, Taint, Toleration, TolerationOperator};
use provisor::model::time::Patience;
use provisor::model::workload::{PersistentVolumeClaim, VolumeAttachment};

use super::town::*;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn machine(name: &str) -> ProviderId {
    ProviderId::new(&format!("aws:///us-west-2a/i-{name}"))
}

fn claim_of(name: &str) -> ClaimName {
    ClaimName::new(&format!("{name}-claim"))
}

/// A node `n` that serves, changed by `change`; nothing would have it go.
fn serving(change: impl FnOnce(&mut Town)) -> Town {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n", "m5.2xlarge");
    change(&mut town);
    town
}

/// The same whose claim is to go.
fn going(change: impl FnOnce(&mut Town)) -> Town {
    let mut town = serving(change);
    let now = town.now;
    town.change_claim("n", |claim| claim.deleted = Some(now));
    town
}

/// The same whose node is to go as well.
fn draining(change: impl FnOnce(&mut Town)) -> Town {
    let mut town = going(change);
    let now = town.now;
    town.change_node("n", |node| node.deleted = Some(now));
    town
}

fn says(engine: &Engine, kind: ConditionType) -> String {
    let claim = &engine.cluster().claims[&claim_of("n")];
    claim.conditions.get(kind).map_or("-".into(), |one| format!("{} {}", one.status.as_str(), one.reason))
}

/// What is done about machines, claims and nodes, in order.
fn words(decision: &Decision) -> Vec<String> {
    let word = |action: &Action| match action {
        Action::DeleteClaim { claim } => Some(format!("delete {claim}")),
        Action::DeleteNode { node } => Some(format!("delete {node}")),
        Action::Terminate { instance } => Some(format!("end {}", instance.instance())),
        Action::FinalizeNode { node } => Some(format!("free {node}")),
        Action::FinalizeClaim { claim } => Some(format!("free {claim}")),
        _ => None,
    };
    decision.actions.iter().filter_map(|one| word(&one.action)).collect()
}

fn notices<'d>(decision: &'d Decision, reason: &str) -> Vec<&'d Notice> {
    let told = decision.actions.iter().filter_map(|one| match &one.action {
        Action::Publish(notice) if &*notice.reason == reason => Some(notice),
        _ => None,
    });
    told.collect()
}

/// Pods that are evicted, and deleted with so many seconds left.
fn pods(decision: &Decision) -> (BTreeSet<String>, Vec<(String, i64)>) {
    let (mut evicted, mut forced) = (BTreeSet::new(), Vec::new());
    for planned in &decision.actions {
        match &planned.action {
            Action::Evict { pod, .. } => drop(evicted.insert(pod.name.to_string())),
            Action::DeletePod { pod, grace, .. } => forced.push((pod.name.to_string(), grace.as_secs())),
            _ => {}
        }
    }
    (evicted, forced)
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(ToString::to_string).collect()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// Lets a pod be on its way out, to its end at `ends`.
fn ends(engine: &mut Engine, now: Timestamp, name: &str, ends: Timestamp) {
    let mut pod = (*engine.cluster().pods[&key(name)]).clone();
    pod.deleted = Some(ends);
    engine.observe(now, Observation::Pod(Arc::new(pod)));
}

/// Rows: LIF-056, LIF-057, LIF-058
#[test]
fn lif_056_node_machine_and_claim_go_one_after_the_other() {
    let town = going(|_| ());
    let mut engine = town.engine();
    let at = |second: i64| town.now + seconds(second);
    assert_eq!(words(&engine.decide(at(0))), ["delete n"], "the machine has to wait");
    echo(&mut engine, at(0));
    assert_eq!(words(&engine.decide(at(4))), [""; 0], "a drain takes five seconds");
    assert_eq!(words(&engine.decide(at(5))), ["end i-n"]);
    assert_eq!(says(&engine, ConditionType::InstanceTerminating), "True InstanceTerminating");
    echo(&mut engine, at(5));
    // The cloud does not answer as it should: it is asked again, and everything stays.
    engine
        .observe(at(6), Observation::TerminateFailed { instance: machine("n"), message: "throttled".into() });
    assert_eq!(words(&engine.decide(at(6))), [""; 0]);
    assert_eq!(words(&engine.decide(at(11))), ["end i-n"], "five seconds later");
    // It stops, and is not gone: pods that nobody could move may still run there.
    for second in [12, 17, 22] {
        engine.observe(at(second), Observation::Terminating { instance: machine("n") });
        assert_eq!(words(&engine.decide(at(second))), [""; 0]);
        assert!(engine.cluster().nodes.contains_key(&NodeName::new("n")));
        assert_eq!(words(&engine.decide(at(second + 5))), ["end i-n"], "it is looked at again");
    }
    engine.observe(at(28), Observation::Terminated { instance: machine("n") });
    assert_eq!(words(&engine.decide(at(28))), ["free n", "free n-claim"]);
    assert!(engine.cluster().claims.is_empty() && engine.cluster().nodes.is_empty());
    assert_eq!(words(&engine.decide(at(90))), [""; 0]);
}

/// Rows: LIF-059
#[test]
fn lif_059_every_node_of_the_machine_goes_before_it() {
    let mut town = going(|_| ());
    let node = town.cluster.nodes[&NodeName::new("n")].clone();
    for name in ["n2", "n3"] {
        town.cluster.put_node(Arc::new(Node { name: name.into(), uid: Uid::new(name), ..(*node).clone() }));
    }
    let mut engine = town.engine();
    let mut done = words(&engine.decide(town.now));
    done.sort();
    assert_eq!(done, ["delete n", "delete n2", "delete n3"]);
    for name in ["n2", "n"] {
        engine.observe(town.now, Observation::NodeGone(name.into()));
        assert!(
            !words(&engine.decide(town.now)).contains(&"end i-n".to_owned()),
            "one is there: {name} went"
        );
    }
    engine.observe(town.now, Observation::NodeGone("n3".into()));
    assert_eq!(words(&engine.decide(town.now)), ["end i-n"]);
}

/// Rows: LIF-060, LIF-061
#[test]
fn lif_060_a_claim_takes_no_more_with_it_than_it_became() {
    // Without a machine it just goes, and a node of which nobody knows the machine is not its.
    let town = going(|town| {
        town.change_claim("n", |claim| claim.provider_id = None);
        town.change_node("n", |node| node.provider_id = None);
    });
    let mut engine = town.engine();
    let why_freed = |decision: &Decision| {
        let mut all = decision.actions.iter();
        let freed = all.find(|one| matches!(one.action, Action::FinalizeClaim { .. }));
        freed.map(|one| one.reason.message.to_string())
    };
    let decisions: Vec<Decision> = (0..60).map(|second| engine.decide(town.now + seconds(second))).collect();
    assert_eq!(decisions.iter().flat_map(words).collect::<Vec<_>>(), ["free n-claim"]);
    assert_eq!(decisions.iter().find_map(why_freed).as_deref(), Some("it never had a machine"));
    assert!(engine.cluster().nodes[&NodeName::new("n")].deleted.is_none());

    // A node that never registered has no finalizer of ours: whoever watches machines takes it away.
    let town = going(|town| {
        town.change_claim("n", |claim| {
            claim.conditions.set(ConditionType::Registered, Unknown, "NodeNotFound", "", at(NOW))
        });
        town.change_node("n", |node| node.has_finalizer = false);
    });
    let mut engine = town.engine();
    assert_eq!(words(&engine.decide(town.now)), ["end i-n"]);
    engine.observe(town.now, Observation::Terminated { instance: machine("n") });
    let last = engine.decide(town.now);
    assert_eq!(words(&last), ["free n-claim"]);
    assert_eq!(why_freed(&last).as_deref(), Some("its machine is gone"));
}

/// Rows: LIF-062, TER-038
#[test]
fn lif_062_a_deadline_is_written_once_and_never_put_off() {
    let deadline = |engine: &Engine| {
        let claim = &engine.cluster().claims[&claim_of("n")];
        claim
            .annotations
            .get(&*annotation::TERMINATION_TIMESTAMP)
            .map(|at| at.parse::<Timestamp>().expect("a moment"))
    };
    for (grace, agreed, expected) in [
        (Some(300), None, Some(300)),
        (None, None, None),
        (Some(300), Some(60), Some(60)),
        (None, Some(60), Some(60)),
    ] {
        let now = at(NOW);
        let town = going(|town| {
            town.run("web", "n", shape("web", "100m"));
            town.change_claim("n", |claim| {
                claim.spec.termination_grace = grace.map(seconds);
                let agreed = agreed.map(|agreed| now + seconds(agreed));
                claim.annotations.extend(
                    agreed.map(|at| (*annotation::TERMINATION_TIMESTAMP, Symbol::new(&at.to_string()))),
                );
            });
        });
        let mut engine = town.engine();
        let decision = engine.decide(now);
        let expected = expected.map(|second| now + seconds(second));
        assert_eq!(deadline(&engine), expected, "{grace:?} {agreed:?}");
        let told: BTreeSet<Subject> =
            notices(&decision, "TerminationGracePeriodExpiring").iter().map(|told| told.subject).collect();
        let written = grace.is_some() && agreed.is_none();
        assert_eq!(told.contains(&Subject::Claim(claim_of("n"))), written);
        assert_eq!(told.contains(&Subject::Node("n".into())), expected.is_some());
        // The cloud takes the machine later than that: its pods have to go when they had to.
        if agreed.is_some() {
            let notice = InterruptionNotice::SpotReclaim { at: now + seconds(120) };
            engine.observe(now + seconds(1), Observation::Interruption { instance: machine("n"), notice });
            engine.decide(now + seconds(1));
            assert_eq!(deadline(&engine), expected);
            assert_eq!(pods(&engine.decide(now + seconds(30))).1, [("web".to_owned(), 30)]);
        }
    }
}

/// Rows: TER-002, TER-003
#[test]
fn ter_002_a_node_without_one_claim_is_let_go_and_no_machine_ended() {
    // Without any claim.
    let mut town = draining(|_| ());
    town.cluster.remove_claim(claim_of("n"));
    let mut engine = town.engine();
    assert_eq!(words(&engine.decide(town.now)), ["free n"], "at once: nothing may come to it late");

    // With two: which of them it is cannot be told. Pods are drained all the same.
    let mut town = draining(|town| town.run("web", "n", shape("web", "100m")));
    let second = NodeClaim {
        name: "second".into(),
        uid: Uid::new("second"),
        deleted: None,
        ..(*town.cluster.claims[&claim_of("n")]).clone()
    };
    town.cluster.put_claim(Arc::new(second));
    let mut engine = town.engine();
    let decision = engine.decide(town.now);
    assert_eq!(pods(&decision).0, names(&["web"]));
    assert_eq!(words(&decision), [""; 0]);
    engine.observe(town.now + seconds(1), Observation::PodGone(key("web")));
    let done = words(&engine.decide(town.now + seconds(1)));
    assert_eq!(done.first().map(String::as_str), Some("free n"), "the node first: {done:?}");
    assert!(!done.contains(&"delete second".to_owned()), "neither claim goes for the sake of the node");
}

/// Rows: TER-004
#[test]
fn ter_004_nodes_of_others_and_nodes_that_nothing_holds_are_left_alone() {
    let states: [fn(&mut Town); 2] = [
        |town| town.change_node("n", |node| node.has_finalizer = false),
        |town| {
            town.cluster.remove_claim(claim_of("n"));
            town.change_node("n", |node| {
                node.labels.remove(&*label::NODEPOOL);
            });
        },
    ];
    for state in states {
        let mut town = draining(|town| town.run("web", "n", shape("web", "100m")));
        state(&mut town);
        let mut engine = town.engine();
        for second in 0..20 {
            let decision = engine.decide(town.now + seconds(second));
            assert_eq!((words(&decision), pods(&decision)), (Vec::new(), Default::default()));
            let writes = |action: &Action| matches!(action, Action::UpdateNode { .. });
            assert!(!decision.actions.iter().any(|one| writes(&one.action)));
        }
    }
}

/// Rows: TER-005, TER-050
#[test]
fn ter_005_a_node_that_somebody_deletes_takes_its_claim_along() {
    let mut town = serving(|_| ());
    let now = town.now;
    town.change_node("n", |node| node.deleted = Some(now));
    let mut engine = town.engine();
    let mut done = Vec::new();
    for second in 0..30 {
        done.extend(words(&engine.decide(now + seconds(second))));
        echo(&mut engine, now + seconds(second));
        if done.last().is_some_and(|last| last == "end i-n") {
            engine.observe(now + seconds(second), Observation::Terminated { instance: machine("n") });
        }
    }
    assert_eq!(
        done,
        ["delete n-claim", "end i-n", "free n", "free n-claim"],
        "its claim is deleted once, and ends last"
    );
}

/// Rows: TER-006
#[test]
fn ter_006_many_nodes_go_side_by_side() {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    let all: Vec<String> = (0..10).map(|index| format!("n{index}")).collect();
    let now = town.now;
    for (index, name) in all.iter().enumerate() {
        town.node(name, "m5.large");
        town.change_claim(name, |claim| claim.deleted = Some(now));
        town.change_node(name, |node| node.deleted = Some(now));
        // Half of them run a pod, and one of these does not go.
        if index % 2 == 0 {
            town.run(&format!("web-{index}"), name, shape("web", "100m"));
        }
    }
    let mut engine = town.engine();
    let mut done: BTreeSet<String> = BTreeSet::new();
    for second in 0..30 {
        let decision = engine.decide(now + seconds(second));
        for pod in pods(&decision).0.iter().filter(|pod| *pod != "web-4") {
            engine.observe(now + seconds(second), Observation::PodGone(key(pod)));
        }
        for word in words(&decision) {
            if let Some(id) = word.strip_prefix("end i-") {
                engine.observe(now + seconds(second), Observation::Terminated { instance: machine(id) });
            }
            assert!(done.insert(word.clone()), "{word} twice");
        }
    }
    let freed: Vec<&String> =
        all.iter().filter(|name| done.contains(&format!("free {name}-claim"))).collect();
    assert_eq!(freed.len(), 9, "{done:?}");
    assert!(!freed.iter().any(|name| *name == "n4"), "its pod is still there");
}

/// Rows: TER-007, TER-008, TER-014, TER-016, TER-033
#[test]
fn ter_014_a_budget_holds_the_node_and_nothing_new_comes_to_it() {
    let town = draining(|town| {
        for name in ["a", "b"] {
            town.run(name, "n", shape("web", "100m"));
        }
        let wrong = Taint { effect: Effect::NoExecute, ..Taint::disrupted() };
        town.change_node("n", |node| node.taints.push(wrong));
    });
    let mut engine = town.engine();
    let at = |second: i64| town.now + seconds(second);
    let decision = engine.decide(at(0));
    assert_eq!(pods(&decision).0, names(&["a", "b"]));
    let order = |is_it: fn(&Action) -> bool| decision.actions.iter().position(|one| is_it(&one.action));
    let closed = order(|action| matches!(action, Action::UpdateNode { .. }));
    assert!(closed.is_some() && closed < order(|action| matches!(action, Action::Evict { .. })));
    let node = &engine.cluster().nodes[&NodeName::new("n")];
    assert_eq!(node.taints, [Taint::disrupted()], "in the place of the wrong one");
    let excluded = Symbol::new("node.kubernetes.io/exclude-from-external-load-balancers");
    assert_eq!(node.labels.get(&excluded).map(|word| word.as_str()), Some("karpenter"));
    assert_eq!(says(&engine, ConditionType::Drained), "Unknown Draining");
    let told = notices(&decision, "FailedDraining");
    assert_eq!(
        (told[0].subject, &*told[0].message),
        (Subject::Node("n".into()), "2 pods are waiting to be evicted")
    );

    engine.observe(at(0), Observation::PodGone(key("b")));
    let mut tries = 1;
    let mut is_asked = true;
    for second in 1..120 {
        let budget = "Cannot evict pod as it would violate the pod's disruption budget.";
        if is_asked {
            let why = EvictionBlock::Budget;
            engine.observe(
                at(second),
                Observation::EvictionBlocked { pod: key("a"), why, message: budget.into() },
            );
        }
        let decision = engine.decide(at(second));
        is_asked = pods(&decision).0 == names(&["a"]);
        tries += usize::from(is_asked);
        if second == 1 {
            let told = notices(&decision, "FailedDraining");
            let of_pod = told.iter().find(|told| told.subject == Subject::Pod(key("a"))).expect("it is told");
            assert!(
                of_pod.message.contains("violates a disruption budget: Cannot evict"),
                "{}",
                of_pod.message
            );
        }
        assert_eq!(words(&decision), [""; 0]);
        assert_eq!(says(&engine, ConditionType::Drained), "Unknown Draining");
    }
    assert!((5..40).contains(&tries), "it is asked ever more rarely: {tries}");
    // The budget gives way.
    engine.observe(at(120), Observation::PodGone(key("a")));
    assert_eq!(words(&engine.decide(at(120))), ["end i-n"]);
    assert_eq!(says(&engine, ConditionType::Drained), "True Drained");
}

fn tolerating(key: &str, operator: TolerationOperator) -> PodShape {
    let toleration = Toleration { key: key.into(), operator, ..Toleration::all_of(Effect::NoSchedule) };
    PodShape { tolerations: vec![toleration], ..shape("web", "100m") }
}

/// Rows: TER-009, TER-010, TER-011
#[test]
fn ter_009_only_pods_that_tolerate_being_disrupted_stay() {
    let town = draining(|town| {
        town.run("exists", "n", tolerating("karpenter.sh/disrupted", TolerationOperator::Exists));
        town.run("equal", "n", tolerating("karpenter.sh/disrupted", TolerationOperator::Equal));
        town.run("cordon", "n", tolerating("node.kubernetes.io/unschedulable", TolerationOperator::Exists));
        let mut bare = pod("bare", Some("n"), shape("web", "100m"));
        bare.owners.clear();
        town.cluster.put_pod(Arc::new(bare));
    });
    let mut engine = town.engine();
    assert_eq!(pods(&engine.decide(town.now)).0, names(&["bare", "cordon"]));
    engine.observe(town.now, Observation::PodGone(key("bare")));
    engine.observe(town.now, Observation::PodGone(key("cordon")));
    let done: Vec<String> =
        (1..10).flat_map(|second| words(&engine.decide(town.now + seconds(second)))).collect();
    assert_eq!(done, ["end i-n"], "the others are not waited for");
}

/// Rows: TER-019
#[test]
fn ter_019_a_pod_that_hangs_for_a_minute_is_not_waited_for() {
    let town = draining(|town| town.run("web", "n", shape("web", "100m")));
    let mut engine = town.engine();
    engine.decide(town.now);
    let end = town.now + seconds(30);
    ends(&mut engine, town.now, "web", end);
    let freed = (0..200).find(|second| !words(&engine.decide(town.now + seconds(*second))).is_empty());
    assert_eq!(freed, Some(91), "more than a minute after it should have been gone");
}

/// Rows: TER-020, TER-031
#[test]
fn ter_020_a_namesake_is_left_alone() {
    let mut town = draining(|town| town.run("db-0", "n", shape("db", "100m")));
    town.node("other", "m5.large");
    let mut engine = town.engine();
    assert_eq!(pods(&engine.decide(town.now)).0, names(&["db-0"]));
    // Its StatefulSet made it again elsewhere, and what became of the first was never seen.
    let mut again = pod("db-0", Some("other"), shape("db", "100m"));
    again.uid = Uid::new("another");
    engine.observe(town.now + seconds(1), Observation::Pod(Arc::new(again)));
    for second in 1..200 {
        let now = town.now + seconds(second);
        let decision = engine.decide(now);
        assert_eq!(pods(&decision), Default::default(), "after {second} seconds");
        assert!(notices(&decision, "Evicted").is_empty(), "nothing was evicted");
    }
    let town = draining(|town| town.run("web", "n", shape("web", "100m")));
    let mut engine = town.engine();
    engine.decide(town.now);
    engine.observe(town.now, Observation::PodGone(key("web")));
    engine.observe(town.now, Observation::Evicted { pod: key("web") });
    assert!(
        notices(&engine.decide(town.now + seconds(1)), "Evicted").is_empty(),
        "of a pod that is gone nothing is told"
    );
}

/// Rows: TER-023, TER-049
#[test]
fn ter_023_what_takes_too_long_to_stop_is_cut_off_at_the_deadline() {
    for (grace, is_cut) in [(6000, true), (299, false)] {
        let town = draining(|town| {
            let long = PodShape { termination_grace_seconds: grace, ..shape("web", "100m") };
            town.run("web", "n", PodShape { termination_grace_seconds: 10, ..long });
            town.change_claim("n", |claim| claim.spec.termination_grace = Some(seconds(300)));
        });
        let mut engine = town.engine();
        assert_eq!(pods(&engine.decide(town.now)).0, names(&["web"]));
        // Its stop hook runs for as long as its grace allows, which says when it will be ended.
        ends(&mut engine, town.now, "web", town.now + seconds(i64::from(grace)));
        let mut forced = Vec::new();
        for second in 1..100 {
            let now = town.now + seconds(second);
            let decision = engine.decide(now);
            assert_eq!(pods(&decision).0, names(&[]));
            if let Some((_, left)) = pods(&decision).1.first() {
                forced.push((second, *left));
                ends(&mut engine, now, "web", now + seconds(*left));
            }
        }
        assert_eq!(
            forced,
            if is_cut { vec![(1, 299)] } else { vec![] },
            "its end is moved to the deadline, once"
        );
    }
}

/// Rows: TER-024
#[test]
fn ter_024_a_pod_that_needs_the_time_does_not_wait_for_its_tier() {
    let town = draining(|town| {
        let long =
            PodShape { termination_grace_seconds: 600, priority: 2_000_000_000, ..shape("dns", "100m") };
        town.run("dns", "n", long);
        town.run("web", "n", shape("web", "100m"));
        town.change_claim("n", |claim| claim.spec.termination_grace = Some(seconds(300)));
    });
    let (evicted, forced) = pods(&town.engine().decide(town.now));
    assert_eq!(evicted, names(&["web"]));
    assert_eq!(forced, [("dns".to_owned(), 300)]);
}

/// Rows: TER-036, TER-039, TER-040
#[test]
fn ter_036_a_deadline_ends_what_budgets_protect() {
    let town = draining(|town| {
        town.run("web", "n", shape("web", "100m"));
        town.change_claim("n", |claim| claim.spec.termination_grace = Some(seconds(60)));
    });
    let mut engine = town.engine();
    let at = |second: i64| town.now + seconds(second);
    let blocked =
        || Observation::EvictionBlocked { pod: key("web"), why: EvictionBlock::Budget, message: "no".into() };
    for second in 0..30 {
        let decision = engine.decide(at(second));
        assert_eq!(pods(&decision).1, [], "after {second} seconds");
        engine.observe(at(second), blocked());
    }
    let decision = engine.decide(at(30));
    assert_eq!(
        pods(&decision),
        (names(&[]), vec![("web".to_owned(), 30)]),
        "its grace ends with the deadline"
    );
    let told = notices(&decision, "Disrupted");
    assert_eq!((told[0].subject, told[0].is_warning), (Subject::Pod(key("web")), true));
    // It went, and nothing more is asked of it.
    let mut gone = engine.clone();
    gone.observe(at(31), Observation::PodGone(key("web")));
    assert!((31..90).all(|second| pods(&gone.decide(at(second))) == Default::default()));
    // Nobody heard: the last moments are asked for again, and never none at all.
    let late: Vec<i64> =
        (31..90).flat_map(|second| pods(&engine.decide(at(second))).1).map(|(_, left)| left).collect();
    assert!(late.len() > 3 && late.iter().all(|left| (1..30).contains(left)), "{late:?}");
    assert_eq!(late.last(), Some(&1), "past the deadline a second is granted");
}

#[test]
fn an_eviction_that_is_refused_again_makes_nobody_judge_the_cluster_anew() {
    let town = draining(|town| town.run("web", "n", shape("web", "100m")));
    let mut engine = town.engine();
    let blocked =
        || Observation::EvictionBlocked { pod: key("web"), why: EvictionBlock::Budget, message: "no".into() };
    let (mut asked, mut judged) = (0, 0);
    for second in 0..240 {
        let now = town.now + seconds(second);
        let before = Arc::as_ptr(engine.plan());
        let (evicted, _) = pods(&engine.decide(now));
        if second < 5 {
            echo(&mut engine, now);
        }
        asked += evicted.len();
        judged += usize::from(second >= 60 && before != Arc::as_ptr(engine.plan()));
        evicted.iter().for_each(|_| engine.observe(now, blocked()));
    }
    assert!(asked > 20, "it is asked every ten seconds: {asked}");
    assert!(judged <= 1, "{judged} times in three minutes in which nothing changed");
}

/// Rows: TER-037
#[test]
fn ter_037_a_deadline_that_comes_later_ends_an_eviction_that_waits() {
    let town = draining(|town| town.run("web", "n", shape("web", "100m")));
    let mut engine = town.engine();
    assert_eq!(pods(&engine.decide(town.now)).0, names(&["web"]));
    let why = EvictionBlock::Budget;
    engine.observe(town.now, Observation::EvictionBlocked { pod: key("web"), why, message: "no".into() });
    echo(&mut engine, town.now);
    // The cloud takes the machine back although it is on its way out already.
    let reclaimed = town.now + seconds(125);
    let notice = InterruptionNotice::SpotReclaim { at: reclaimed };
    engine.observe(town.now + seconds(5), Observation::Interruption { instance: machine("n"), notice });
    engine.decide(town.now + seconds(5));
    assert!(!engine.is_answered(machine("n"), notice), "a successor would not find it on the claim");
    echo(&mut engine, town.now + seconds(5));
    assert!(engine.is_answered(machine("n"), notice));
    let forced = (5..200).find_map(|second| {
        let (_, forced) = pods(&engine.decide(town.now + seconds(second)));
        forced.first().map(|(_, left)| (second, *left))
    });
    assert_eq!(forced, Some((95, 30)), "its grace ends when the machine does");
}

/// The API server is unwell when the deadline is to be written.
#[test]
fn a_deadline_that_was_not_written_is_told_again() {
    let town = draining(|town| town.run("web", "n", shape("web", "100m")));
    let mut engine = town.engine();
    engine.decide(town.now);
    echo(&mut engine, town.now);
    let notice = InterruptionNotice::SpotReclaim { at: town.now + seconds(125) };
    let told = |engine: &mut Engine, second: i64| {
        let now = town.now + seconds(second);
        engine.observe(now, Observation::Interruption { instance: machine("n"), notice });
        engine.decide(now)
    };
    told(&mut engine, 5);
    let subject = format!("NodeClaim {}", claim_of("n"));
    let failed = Observation::ActionFailed { subject: subject.as_str().into(), message: "500".into() };
    engine.observe(town.now + seconds(6), failed);
    engine.decide(town.now + seconds(6));
    assert!(!engine.is_answered(machine("n"), notice), "it is on no object, so the queue keeps it");
    told(&mut engine, 25);
    echo(&mut engine, town.now + seconds(25));
    assert!(engine.is_answered(machine("n"), notice));
    let claim = &engine.cluster().claims[&claim_of("n")];
    assert!(claim.annotations.contains_key(&*annotation::TERMINATION_TIMESTAMP));
}

/// Rows: TER-028, TER-029
#[test]
fn ter_029_volumes_are_waited_for_until_the_deadline() {
    let attach = |town: &mut Town, name: &str| {
        let attached = VolumeAttachment { name: name.into(), node: "n".into(), volume: Some(name.into()) };
        town.cluster.attachments.insert(name.into(), Arc::new(attached));
    };
    let ended = |town: &Town, engine: &mut Engine| {
        (0..120).find(|second| words(&engine.decide(town.now + seconds(*second))) == ["end i-n"])
    };
    let town = draining(|town| {
        attach(town, "pv");
        town.change_claim("n", |claim| claim.spec.termination_grace = Some(seconds(60)));
    });
    let mut engine = town.engine();
    let decision = engine.decide(town.now + seconds(0));
    assert_eq!(words(&decision), [""; 0]);
    let decision = engine.decide(town.now + seconds(5));
    assert_eq!(notices(&decision, "AwaitingVolumeDetachment").len(), 1);
    assert_eq!(says(&engine, ConditionType::VolumesDetached), "Unknown AwaitingVolumeDetachment");
    assert_eq!(ended(&town, &mut engine), Some(60));
    assert_eq!(says(&engine, ConditionType::VolumesDetached), "False TerminationGracePeriodElapsed");

    // The volume of a pod that stays to the end is detached by nobody.
    let town = draining(|town| {
        attach(town, "log-pv");
        let staying = tolerating("karpenter.sh/disrupted", TolerationOperator::Exists);
        town.run("log", "n", PodShape { volumes: vec![PodVolume::Claim("log".into())], ..staying });
    });
    let mut engine = town.engine();
    let bound = |volume: &str| {
        let claim = PersistentVolumeClaim {
            key: key("log"),
            volume: Some(volume.into()),
            storage_class: None,
            is_lost: false,
            is_deleting: false,
            is_bind_completed: true,
        };
        Observation::VolumeClaim(Arc::new(claim))
    };
    engine.observe(town.now, bound("log-pv"));
    assert_eq!(ended(&town, &mut engine), Some(5));
    let mut engine = town.engine();
    engine.observe(town.now, bound("another"));
    assert_eq!(ended(&town, &mut engine), None, "that one is nobody's");
}

/// Rows: TER-032
#[test]
fn ter_032_an_eviction_is_told_with_its_reason() {
    for reason in [Some("Drifted"), None] {
        let town = draining(|town| {
            town.run("web", "n", shape("web", "100m"));
            town.change_claim("n", |claim| {
                if let Some(reason) = reason {
                    claim.conditions.set(ConditionType::DisruptionReason, True, reason, reason, at(NOW));
                }
            });
        });
        let mut engine = town.engine();
        assert!(notices(&engine.decide(town.now), "Evicted").is_empty(), "it was asked, no more");
        engine.observe(town.now, Observation::Evicted { pod: key("web") });
        let decision = engine.decide(town.now);
        let told = notices(&decision, "Evicted");
        assert_eq!((told[0].subject, told[0].is_warning), (Subject::Pod(key("web")), false));
        assert!(told[0].message.ends_with(reason.unwrap_or("Forceful Termination")), "{}", told[0].message);
    }
}

/// Rows: TER-034
#[test]
fn ter_034_a_pod_of_two_budgets_is_told_of_and_asked_again() {
    let town = draining(|town| town.run("web", "n", shape("web", "100m")));
    let mut engine = town.engine();
    engine.decide(town.now);
    let message =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let blocked =
        Observation::EvictionBlocked { pod: key("web"), why: EvictionBlock::Fault, message: message.into() };
    engine.observe(town.now, blocked);
    let decision = engine.decide(town.now);
    let told = notices(&decision, "FailedDraining");
    let of_pod = told.iter().find(|told| told.subject == Subject::Pod(key("web"))).expect("it is told");
    assert!(of_pod.message.contains("several disruption budgets") && of_pod.message.contains(message));
    assert_eq!(pods(&engine.decide(town.now + seconds(1))).0, names(&["web"]));
}

/// Rows: TER-042
#[test]
fn ter_042_a_deadline_that_cannot_be_read_stops_everything() {
    let town = draining(|town| {
        town.run("web", "n", shape("web", "100m"));
        town.change_claim("n", |claim| {
            claim.annotations.insert(*annotation::TERMINATION_TIMESTAMP, "soon".into());
        });
    });
    let mut engine = town.engine();
    let decision = engine.decide(town.now);
    let told = notices(&decision, "FailedDraining");
    assert!(told[0].message.contains("`soon`"), "{}", told[0].message);
    for second in 0..60 {
        let decision = engine.decide(town.now + seconds(second));
        assert_eq!((words(&decision), pods(&decision)), (Vec::new(), Default::default()));
    }
}

/// The cloud's own list tells of machines that ended by themselves.
#[test]
fn a_machine_that_is_not_listed_any_more_is_not_drained_unless_its_node_says_it_lives() {
    for (ready_is, freed) in [("Unknown", vec!["free n", "free n-claim"]), ("True", vec![])] {
        let town = draining(|town| {
            town.run("web", "n", shape("web", "100m"));
            town.change_node("n", |node| node.conditions = vec![ready(ready_is)]);
        });
        let mut engine = town.engine();
        assert_eq!(words(&engine.decide(town.now)), [""; 0]);
        let stopping = Instance { is_terminating: true, ..town.instance("n") };
        engine.observe(town.now + seconds(1), Observation::Instances([stopping].into()));
        assert_eq!(
            words(&engine.decide(town.now + seconds(1))),
            [""; 0],
            "it is stopping, and pods may run there"
        );
        engine.observe(town.now + seconds(2), Observation::Instances([].into()));
        assert_eq!(words(&engine.decide(town.now + seconds(2))), freed);
    }
}

/// Rows: LIF-076, LIF-077, LIF-078
#[test]
fn lif_076_a_claim_is_collected_only_once_its_machine_is_known_to_be_lost() {
    let lost = |change: &dyn Fn(&mut Town), list: Option<Vec<Instance>>| {
        let town = serving(|town| change(town));
        let mut engine = town.engine();
        let mut done = Vec::new();
        for minute in 0..10 {
            let now = town.now + SignedDuration::from_mins(minute);
            if let Some(list) = &list {
                engine.observe(now, Observation::Instances(list.clone().into()));
            }
            let decision = engine.decide(now);
            done.extend(decision.actions.iter().filter_map(|one| match &one.action {
                Action::DeleteClaim { .. } => Some(one.reason.code),
                _ => None,
            }));
        }
        done
    };
    let without_node: &dyn Fn(&mut Town) = &|town| town.cluster.remove_node("n".into());
    assert_eq!(lost(without_node, Some(vec![])), ["GarbageCollected"], "once");
    let never_registered: &dyn Fn(&mut Town) = &|town| {
        town.cluster.remove_node("n".into());
        let now = town.now;
        town.change_claim("n", |claim| {
            claim.conditions.set(ConditionType::Registered, Unknown, "NodeNotFound", "", now)
        });
        town.change_claim("n", |claim| claim.conditions.clear(ConditionType::Initialized));
    };
    assert_eq!(
        lost(never_registered, Some(vec![])),
        [""; 0],
        "it may be too young to be listed; patience ends it"
    );
    let town = serving(|_| ());
    let living = town.instance("n");
    assert_eq!(lost(without_node, Some(vec![living.clone()])), [""; 0]);
    let stopping = Instance { is_terminating: true, ..living };
    assert_eq!(
        lost(without_node, Some(vec![stopping])),
        ["GarbageCollected"],
        "what is stopping is as good as gone"
    );
    assert_eq!(lost(without_node, None), [""; 0], "nobody could list the machines");
}
