//! A machine that is taken back with notice: its pods leave when there is room for them elsewhere, and in time all the same.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::Decision;
use provisor::capacity::engine::Engine;
use provisor::model::action::Action;
use provisor::model::claim::{ConditionType, NodeClaim};
use provisor::model::name::{ClaimName, NodeName, ProviderId};
use provisor::model::node::Node;
use provisor::model::observation::InterruptionNotice::{
    self, ReservationReclaim, ScheduledChange, SpotReclaim, StateChange, StatusCheckFailed, Terminating,
};
use provisor::model::observation::Observation;
use provisor::model::pod::PodShape;
use provisor::model::taint::{Effect, Taint};
use provisor::model::time::Patience;

use super::town::*;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn graceful(app: &str, grace: u32) -> PodShape {
    PodShape { termination_grace_seconds: grace, ..shape(app, "1") }
}

/// One node with two pods, of which one takes a minute to end and the other half of one.
fn town() -> Town {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n", "m5.xlarge");
    town.run("slow", "n", graceful("slow", 60));
    town.run("web", "n", graceful("web", 30));
    town
}

/// An engine that was told `notice` of the machine of that node, and whose decisions are seen as done.
fn warned(town: &Town, notice: InterruptionNotice) -> Engine {
    let mut engine = town.engine();
    engine.decide(town.now);
    let instance = ProviderId::new("aws:///us-west-2a/i-n");
    engine.observe(town.now, Observation::Interruption { instance, notice });
    engine
}

fn spot(town: &Town) -> InterruptionNotice {
    SpotReclaim { at: town.now + seconds(120) }
}

/// Who was asked to go in which second after `from`, until `until` seconds after it.
fn asked(engine: &mut Engine, from: Timestamp, until: i64) -> Vec<(String, i64)> {
    let mut asked = Vec::new();
    for (at, decision) in decisions(engine, from, from + seconds(until)) {
        asked.extend(evicted(&decision).into_iter().map(|pod| (pod, at.duration_since(from).as_secs())));
    }
    asked
}

fn evicted(decision: &Decision) -> Vec<String> {
    let pods = decision.actions.iter().filter_map(|one| match &one.action {
        Action::Evict { pod, .. } => Some(pod.name.to_string()),
        _ => None,
    });
    pods.collect()
}

fn drained(engine: &Engine) -> String {
    let claim = &engine.cluster().claims[&ClaimName::new("n-claim")];
    claim.conditions.get(ConditionType::Drained).map_or("-".into(), |drained| drained.reason.to_string())
}

type Change<'a> = &'a dyn Fn(&mut NodeClaim, &mut Node);

/// The claim that was made for the pods, and its node, which serves but for `change`.
fn replacement(engine: &Engine, change: impl FnOnce(&mut NodeClaim, &mut Node)) -> [Observation; 2] {
    let made = engine.cluster().claims.values().find(|claim| claim.name != ClaimName::new("n-claim"));
    let made = made.expect("one was made for the pods").clone();
    let mut scratch = Town::with(|_| ());
    scratch.node("fresh", "m5.xlarge");
    let like = scratch.cluster.claims[&ClaimName::new("fresh-claim")].clone();
    let mut claim = NodeClaim { name: made.name, uid: made.uid, spec: made.spec.clone(), ..(*like).clone() };
    let mut node = (*scratch.cluster.nodes[&NodeName::new("fresh")]).clone();
    change(&mut claim, &mut node);
    [Observation::Claim(Arc::new(claim)), Observation::Node(Arc::new(node))]
}

#[test]
fn pods_of_a_spot_machine_stay_until_what_takes_its_place_is_ready() {
    let town = town();
    let mut engine = warned(&town, spot(&town));
    assert_eq!(asked(&mut engine, town.now, 40), [], "there is no room elsewhere");
    assert_eq!(drained(&engine), "AwaitingReplacement");
    let node = &engine.cluster().nodes[&NodeName::new("n")];
    assert!(node.taints.iter().any(|taint| taint.is_same(&Taint::disrupted())), "nothing new lands there");

    let now = town.now + seconds(40);
    engine.decide(now);
    // A moment later, and before pods are planned anew.
    let now = now + SignedDuration::from_millis(100);
    let startup = Taint { key: "example.com/starting".into(), value: "".into(), effect: Effect::NoSchedule };
    let unfit: [(&str, Change<'_>); 3] = [
        ("it is not ready", &|_, node| node.conditions = vec![ready("False")]),
        ("it has yet to become all that was bought", &|claim, node| {
            claim.conditions.clear(ConditionType::Initialized);
            claim.spec.startup_taints.push(startup);
            node.taints.push(startup);
        }),
        ("it is on its way out, too", &|claim, node| {
            (claim.deleted, node.deleted) = (Some(now), Some(now));
            node.taints.push(Taint::disrupted());
        }),
    ];
    for (why, change) in unfit {
        let mut engine = engine.clone();
        replacement(&engine, change).into_iter().for_each(|seen| engine.observe(now, seen));
        assert_eq!(evicted(&engine.decide(now)), [""; 0], "{why}");
        echo(&mut engine, now);
        assert_eq!(evicted(&engine.decide(now)), [""; 0], "{why}");
    }
    replacement(&engine, |_, _| ()).into_iter().for_each(|seen| engine.observe(now, seen));
    assert_eq!(evicted(&engine.decide(now)), ["slow", "web"]);
    assert_eq!(drained(&engine), "Draining");
}

#[test]
fn who_has_room_on_a_node_that_is_there_leaves_at_once() {
    let mut town = town();
    town.node("roomy", "m5.2xlarge");
    town.run("tenant", "roomy", graceful("tenant", 30));
    let mut engine = warned(&town, spot(&town));
    let asked = asked(&mut engine, town.now, 40);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked.iter().all(|(_, second)| *second < 5), "as soon as they are planned there: {asked:?}");
}

/// A pod that takes half a minute to end is deleted after 90 s, and asked fifteen seconds before that.
#[test]
fn whoever_finds_no_room_leaves_while_there_is_time_to_end() {
    let town = town();
    let mut engine = warned(&town, spot(&town));
    assert_eq!(asked(&mut engine, town.now, 80), [("slow".to_owned(), 45), ("web".to_owned(), 75)]);
    assert_eq!(drained(&engine), "Draining");
}

#[test]
fn a_pod_that_needs_all_of_the_notice_leaves_at_once() {
    let mut town = town();
    town.run("slow", "n", graceful("slow", 110));
    let mut engine = warned(&town, spot(&town));
    assert_eq!(asked(&mut engine, town.now, 10), [("slow".to_owned(), 0)]);
}

#[test]
fn only_a_machine_that_goes_on_running_keeps_its_pods() {
    for (notice, stays) in [
        (ScheduledChange, true),
        (ReservationReclaim, true),
        (StateChange, false),
        (Terminating, false),
        (StatusCheckFailed, false),
    ] {
        let town = town();
        let mut engine = warned(&town, notice);
        let gone: Vec<String> = decisions(&mut engine, town.now, town.now + seconds(10))
            .iter()
            .flat_map(|(_, decision)| &decision.actions)
            .filter_map(|one| match &one.action {
                Action::Evict { pod, .. } | Action::DeletePod { pod, .. } => Some(pod.name.to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(gone.is_empty(), stays, "{notice:?}: {gone:?}");
        // Nobody waits for ever where the cloud says no moment.
        if stays {
            let asked = asked(&mut engine, town.now + seconds(10), 90);
            assert_eq!(asked, [("slow".to_owned(), 35), ("web".to_owned(), 65)], "{notice:?}");
        }
    }
}

#[test]
fn a_successor_goes_on_waiting_and_no_longer() {
    let town = town();
    let mut engine = warned(&town, spot(&town));
    assert_eq!(asked(&mut engine, town.now, 20), []);
    let mut successor = engine_of(engine.cluster(), town.now + seconds(20), town.settings.clone());
    let asked = asked(&mut successor, town.now + seconds(20), 60);
    assert_eq!(asked, [("slow".to_owned(), 25), ("web".to_owned(), 55)]);
}

#[test]
fn a_grace_period_of_the_pool_that_ends_sooner_counts() {
    let mut town = town();
    town.change_claim("n", |claim| claim.spec.termination_grace = Some(seconds(90)));
    let mut engine = warned(&town, ScheduledChange);
    assert_eq!(asked(&mut engine, town.now, 50), [("slow".to_owned(), 15), ("web".to_owned(), 45)]);
}
