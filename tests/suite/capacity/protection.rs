//! `karpenter.sh/do-not-disrupt` on pods: for ever, for a time, or in vain.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::Decision;
use provisor::model::action::Action;
use provisor::model::label::annotation;
use provisor::model::name::NodeName;
use provisor::model::observation::Observation;
use provisor::model::pod::{Pod, PodPhase, PodShape};
use provisor::model::time::Patience;

use super::town::*;

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

fn protected(name: &str, node: &str, value: &str, started: Timestamp) -> Pod {
    let shape = PodShape { do_not_disrupt: Some(value.into()), ..shape("web", "500m") };
    Pod { started: Some(started), ..pod(name, Some(node), shape) }
}

/// What is published at the pods `web` and `api`.
fn told(decision: &Decision) -> Vec<(String, String)> {
    let of_pods = events(decision).into_iter().filter(|(subject, ..)| subject.starts_with("default/"));
    of_pods.map(|(_, word, message)| (word, message)).collect()
}

/// A node on which everything would fit on a smaller one.
fn oversized(pod: Option<Pod>) -> Town {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.2xlarge");
    town.run("other", "n1", shape("other", "100m"));
    pod.into_iter().for_each(|pod| town.cluster.put_pod(Arc::new(pod)));
    town
}

/// Rows: DIS-066, DIS-067, DIS-068, DIS-069, DIS-070, DIS-071, DIS-072
#[test]
fn dis_069_the_value_says_for_how_long_and_people_are_told_what_it_comes_to() {
    let now = at(NOW);
    let value = |value: &str, ago: Option<i64>| {
        let mut pod = protected("web", "n1", value, now);
        pod.started = ago.map(|ago| now - minutes(ago));
        Some(pod)
    };
    let over = |phase: PodPhase, known: &str| Some(Pod { phase, ..value(known, Some(1)).expect("a pod") });
    let invalid = Some(("InvalidDoNotDisruptAnnotation", "protects nothing"));
    for (pod, is_kept, expected) in [
        (None, false, None),
        (value("true", Some(10_000)), true, None),
        (value("true", None), true, None),
        (value("nonsense", Some(1)), false, invalid),
        (value("0s", Some(1)), false, invalid),
        (value("-5m", Some(1)), false, invalid),
        (value("false", Some(1)), false, invalid),
        (value("10m", Some(5)), true, Some(("DoNotDisruptUntil", "2026-03-04T10:35:00Z"))),
        (value("5m", Some(10)), false, Some(("DoNotDisruptGracePeriodElapsed", "is over"))),
        (value("5m", Some(5)), false, Some(("DoNotDisruptGracePeriodElapsed", "is over"))),
        (value("5m", None), true, Some(("DoNotDisruptUntil", "when it starts"))),
        (over(PodPhase::Succeeded, "true"), false, None),
        (over(PodPhase::Failed, "10m"), false, None),
        (over(PodPhase::Succeeded, "nonsense"), false, None),
    ] {
        let town = oversized(pod.clone());
        let expected_word = if is_kept { "PodDoNotDisrupt" } else { "gone" };
        assert_eq!(town.kept("n1"), expected_word, "{pod:?}");
        let said = told(&town.engine().decide(now));
        let words: Vec<_> = said.iter().map(|(word, _)| word.as_str()).collect();
        assert_eq!(words, expected.iter().map(|(word, _)| *word).collect::<Vec<_>>(), "{pod:?}");
        for ((_, message), (_, part)) in said.iter().zip(expected) {
            assert!(message.contains(part), "{message}");
        }
    }
}

fn outdate(town: &mut Town, node: &str) {
    town.change_claim(node, |claim| {
        claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
        claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
    });
}

/// When the first command starts in the next six minutes, and how many claims it makes.
fn first_command(town: &Town) -> Option<(SignedDuration, usize)> {
    let all = decisions(&mut town.engine(), town.now, town.now + minutes(6));
    let (at, first) = all.iter().find(|(_, decision)| !decision.started.is_empty())?;
    let made = first.actions.iter().filter(|one| matches!(one.action, Action::CreateClaim(_))).count();
    Some((at.duration_since(town.now), made))
}

/// Rows: DIS-073, DIS-074, DIS-075
#[test]
fn dis_074_drift_waits_for_the_longest_protection_and_then_goes_on_by_itself() {
    for (values, expected) in [
        (vec!["2m"], minutes(2)),
        (vec!["1m", "3m"], minutes(3)),
        (vec!["invalid-format"], SignedDuration::ZERO),
        (vec![], SignedDuration::ZERO),
    ] {
        let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
        town.node("n1", "m5.large");
        town.run("web", "n1", shape("web", "500m"));
        for value in &values {
            town.cluster.put_pod(Arc::new(protected(&format!("web-{value}"), "n1", value, town.now)));
        }
        outdate(&mut town, "n1");
        let (at, made) = first_command(&town).unwrap_or_else(|| panic!("{values:?}: nothing came of it"));
        assert!(at >= expected && at < expected + SignedDuration::from_secs(11), "{values:?}: after {at}");
        assert_eq!(made, 1, "{values:?}: one replacement");
    }
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n1", "m5.large");
    town.cluster.put_pod(Arc::new(protected("web", "n1", "true", town.now)));
    outdate(&mut town, "n1");
    assert_eq!(first_command(&town), None, "for ever");
}

/// Rows: DIS-075, DIS-076, DIS-077
#[test]
fn dis_076_consolidation_takes_only_what_is_not_protected_now() {
    let two = |values: [&str; 2]| {
        let mut town = Town::with(|_| ());
        for (node, value) in ["n1", "n2"].into_iter().zip(values) {
            town.node(node, "m5.large");
            town.cluster.put_pod(Arc::new(protected(&format!("on-{node}"), node, value, town.now)));
        }
        town
    };
    assert_eq!(two(["invalid-format", "2m"]).gone(), ["n1"]);
    assert_eq!(two(["2m", "invalid-format"]).gone(), ["n2"]);
    let mut all = two(["2m", "2m"]);
    assert_eq!(all.gone(), Vec::<&str>::new());
    let (at, made) = first_command(&all).expect("it goes on by itself");
    assert!(at >= minutes(2) + SignedDuration::from_secs(15) && at < minutes(3), "after {at}");
    assert_eq!(made, 0);
    all.now += minutes(3);
    assert_eq!(all.plan().commands.len(), 1, "of two nodes one remains");
}

#[test]
fn dis_078_pods_of_a_draining_node_leave_one_by_one_as_their_time_is_over() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.2xlarge");
    for (name, value) in [("first", "1m"), ("second", "2m"), ("never", "true")] {
        town.cluster.put_pod(Arc::new(protected(name, "n1", value, town.now)));
    }
    let now = town.now;
    town.change_claim("n1", |claim| claim.deleted = Some(now));
    town.change_node("n1", |node| node.deleted = Some(now));
    let mut engine = town.engine();
    let mut left = Vec::new();
    let mut gone = BTreeSet::new();
    let mut at = now;
    while at < now + minutes(20) {
        let decision = engine.decide(at);
        for planned in &decision.actions {
            let Action::Evict { pod, .. } = &planned.action else { continue };
            if gone.insert(*pod) {
                left.push((pod.name.as_str(), at.duration_since(now)));
            }
        }
        for pod in &gone {
            engine.observe(at, Observation::PodGone(*pod));
        }
        at = decision.wake_at.unwrap_or(now + minutes(20)).max(at + SignedDuration::from_secs(1));
    }
    assert_eq!(left, [("first", minutes(1)), ("second", minutes(2))], "each at its own time");
    assert!(engine.cluster().nodes.contains_key(&NodeName::new("n1")), "what is protected for ever holds it");
}
