//! What the cloud says of a machine: nothing hides anything else, and nothing is forgotten before it is answered.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::engine::Engine;
use provisor::model::action::{Action, Subject};
use provisor::model::claim::Conditions;
use provisor::model::label::annotation;
use provisor::model::name::{ClaimName, ProviderId};
use provisor::model::observation::InterruptionNotice::{
    self, RebalanceRecommendation, ReservationReclaim, ScheduledChange, SpotReclaim, StateChange, Terminating,
};
use provisor::model::observation::Observation;
use provisor::model::time::Patience;

use super::town::*;

const CLAIM: &str = "n1-claim";

fn machine() -> ProviderId {
    ProviderId::new("aws:///us-west-2a/i-n1")
}

/// One spot node that serves.
fn town() -> Town {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node_of("default", "n1", "m5.large", "spot");
    town.run("web", "n1", shape("web", "1"));
    town
}

fn hear(engine: &mut Engine, town: &Town, notices: &[InterruptionNotice]) {
    for notice in notices {
        let seen = Observation::Interruption { instance: machine(), notice: *notice };
        engine.observe(town.now, seen);
    }
}

#[test]
fn what_comes_together_about_a_machine_is_all_answered() {
    let town = town();
    let at = town.now + SignedDuration::from_secs(120);
    let reclaim = SpotReclaim { at };
    for notices in [
        vec![reclaim],
        vec![reclaim, RebalanceRecommendation],
        vec![RebalanceRecommendation, reclaim],
        vec![reclaim, StateChange],
        vec![Terminating, reclaim, RebalanceRecommendation, reclaim],
    ] {
        let mut engine = town.engine();
        engine.decide(town.now);
        hear(&mut engine, &town, &notices);
        let actions = engine.decide(town.now).actions;
        let deleted = actions.iter().filter(|one| matches!(one.action, Action::DeleteClaim { .. })).count();
        assert_eq!(deleted, 1, "{notices:?}");
        let claim = &engine.cluster().claims[&ClaimName::new(CLAIM)];
        let deadline = claim.annotations.get(&*annotation::TERMINATION_TIMESTAMP);
        assert_eq!(deadline.map(|text| text.to_string()), Some(at.to_string()), "{notices:?}");
    }
}

#[test]
fn a_warning_is_told_again_while_a_claim_may_be_about_to_name_the_machine() {
    let mut town = town();
    let instance = town.instance("n1");
    town.cluster.remove_node("n1".into());
    let now = town.now;
    town.change_claim("n1", |claim| {
        claim.created = Some(now);
        (claim.provider_id, claim.node) = (None, None);
        claim.conditions = Conditions::default();
    });
    let notice = SpotReclaim { at: now + SignedDuration::from_secs(120) };
    let mut engine = town.engine();
    let ordered = engine.decide(now).actions;
    assert!(ordered.iter().any(|one| matches!(one.action, Action::Launch { .. })));
    hear(&mut engine, &town, &[notice, Terminating]);
    engine.decide(now);
    assert!(!engine.is_answered(machine(), notice), "a successor would not know of it");
    assert!(engine.is_answered(machine(), Terminating), "there is nothing left to save");
    // What the order brought is told to whom it is about to be written on.
    let mut told = engine.clone();
    told.observe(now, Observation::Launched { claim: CLAIM.into(), instance, shortage: None });
    told.decide(now);
    // The first news of it: here, that it is written.
    let named = told.cluster().claims[&ClaimName::new(CLAIM)].clone();
    told.observe(now, Observation::Claim(named));
    told.decide(now);
    let claim = told.cluster().claims[&ClaimName::new(CLAIM)].clone();
    assert!(claim.deleted.is_some(), "it was remembered");
    assert!(!told.is_answered(machine(), notice), "it is not yet written");
    told.observe(now, Observation::Claim(claim));
    assert!(told.is_answered(machine(), notice));
    // Nobody waits for a machine: it is one of those that ended.
    engine.observe(now, Observation::ClaimGone(CLAIM.into()));
    engine.decide(now);
    assert!(engine.is_answered(machine(), notice));
}

/// Rows: AWS-474, AWS-475
#[test]
fn each_kind_of_warning_is_told_and_counted_by_its_own_name() {
    let at = town().now;
    for (notice, event, kind) in [
        (SpotReclaim { at }, "SpotInterrupted", "SpotInterrupted"),
        (StateChange, "InstanceStopping", "InstanceStopped"),
        (Terminating, "InstanceTerminating", "InstanceTerminated"),
        (ScheduledChange, "InstanceUnhealthy", "ScheduledChange"),
        (ReservationReclaim, "CapacityReservationInstanceInterrupted", "CapacityReservationInterrupted"),
    ] {
        let town = town();
        let mut engine = town.engine();
        engine.decide(town.now);
        hear(&mut engine, &town, &[notice]);
        let actions = engine.decide(town.now).actions;
        let told: BTreeSet<String> = actions
            .iter()
            .filter_map(|one| match &one.action {
                Action::Publish(notice) if notice.reason.as_str() == event => Some(match notice.subject {
                    Subject::Claim(_) => "claim".to_owned(),
                    Subject::Node(_) => "node".to_owned(),
                    _ => "something else".to_owned(),
                }),
                _ => None,
            })
            .collect();
        assert_eq!(told, ["claim".to_owned(), "node".to_owned()].into(), "{event}");
        let why: Vec<&str> = actions
            .iter()
            .filter(|one| matches!(one.action, Action::DeleteClaim { .. }))
            .map(|one| one.reason.code)
            .collect();
        assert_eq!(why, [kind]);
    }
}

/// What stopped costs its disks for as long as nobody terminates it.
#[test]
fn a_stopped_machine_without_a_claim_is_terminated_and_one_with_a_claim_given_up() {
    let mut town = town();
    let mut stopped = town.instance("n1");
    stopped.is_stopped = true;
    let mut stray = stopped.clone();
    stray.provider_id = ProviderId::new("aws:///us-west-2a/i-stray");
    stray.claim = None;
    let mut ending = stray.clone();
    ending.provider_id = ProviderId::new("aws:///us-west-2a/i-ending");
    (ending.is_stopped, ending.is_terminating) = (false, true);
    town.change_node("n1", |node| node.conditions = vec![ready("False")]);
    let mut engine = town.engine();
    engine.decide(town.now);
    let now = town.now + SignedDuration::from_mins(5);
    engine.observe(now, Observation::Instances(Arc::from([stopped, stray.clone(), ending])));
    let collected: Vec<Action> = engine
        .decide(now)
        .actions
        .into_iter()
        .filter(|one| one.reason.code == "GarbageCollected")
        .map(|one| one.action)
        .collect();
    let expected =
        [Action::DeleteClaim { claim: CLAIM.into() }, Action::Terminate { instance: stray.provider_id }];
    assert_eq!(collected, expected);
}
