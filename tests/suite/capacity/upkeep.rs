//! What is kept beside machines: when classes are held, asked about and let go, and when machines are named.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::engine::Engine;
use provisor::capacity::upkeep::Upkeep;
use provisor::model::action::{Action, Subject};
use provisor::model::class::{Holding, NodeClass};
use provisor::model::label::annotation;
use provisor::model::name::{ClaimName, ClassName, PoolName};
use provisor::model::observation::{Naming, Observation};
use provisor::model::owner::Owner;
use serde_json::json;

use super::town::*;

/// One step in the upkeep, in words.
fn told(action: &Action) -> Option<String> {
    Some(match action {
        Action::HoldClass { class, what } => format!("hold {class} for {}", what.as_str()),
        Action::ResolveClass { class } => format!("ask about {class}"),
        Action::ClearClass { class, holding } => format!("clear {class} of {}", holding.as_str()),
        Action::NameMachine { claim, machine, node } => format!("name {machine} of {claim} after {node}"),
        Action::UpdateClaim { claim, change } if change.annotations.contains_key(&*annotation::TAGGED) => {
            format!("write on {claim}")
        }
        Action::Publish(notice) if matches!(notice.subject, Subject::Class(_)) => {
            format!("tell {}: {}: {}", notice.subject, notice.reason, notice.message)
        }
        _ => return None,
    })
}

fn upkeep_at(engine: &mut Engine, now: Timestamp) -> Vec<String> {
    engine.decide(now).actions.iter().filter_map(|planned| told(&planned.action)).collect()
}

/// What is done from `start` on in the first so many seconds, asked once each, and in which.
fn upkeep_in(engine: &mut Engine, start: Timestamp, seconds: std::ops::Range<i64>) -> Vec<(i64, String)> {
    seconds
        .flat_map(|second| {
            let steps = upkeep_at(engine, start + SignedDuration::from_secs(second));
            steps.into_iter().map(move |step| (second, step))
        })
        .collect()
}

fn town_with(upkeep: Upkeep) -> Town {
    let mut town = Town::with(|_| {});
    town.settings.upkeep = Some(upkeep);
    town
}

fn see_class(engine: &mut Engine, at: Timestamp, change: impl FnOnce(&mut NodeClass)) {
    let mut class = (*engine.cluster().classes[&ClassName::new("default")]).clone();
    change(&mut class);
    engine.observe(at, Observation::Class(Arc::new(class)));
}

fn resolved(is_known: bool) -> Observation {
    Observation::ClassResolved { class: ClassName::new("default"), is_known }
}

#[test]
fn what_a_class_selects_is_asked_again_every_five_minutes_sooner_without_an_answer_and_at_once_when_it_changes()
 {
    let town = town_with(Upkeep::Classes);
    let mut engine = town.engine();
    let after = |seconds| town.now + SignedDuration::from_secs(seconds);
    let ask = "ask about default".to_owned();
    assert_eq!(upkeep_in(&mut engine, town.now, 0..590), [(0, ask.clone())]);
    assert_eq!(upkeep_in(&mut engine, town.now, 590..700), [(600, ask.clone())], "the answer was lost");

    engine.observe(after(700), resolved(false));
    assert_eq!(upkeep_in(&mut engine, town.now, 700..750), [(715, ask.clone())], "nobody answered");

    engine.observe(after(750), resolved(true));
    let decision = engine.decide(after(750));
    assert!(decision.wake_at.is_some_and(|at| at <= after(1_050)), "woken at {:?}", decision.wake_at);
    assert_eq!(upkeep_in(&mut engine, town.now, 750..1_100), [(1_050, ask.clone())]);

    // While it is being asked about: the same news is none, another specification is asked about at once.
    see_class(&mut engine, after(1_100), |class| class.is_ready = false);
    assert_eq!(upkeep_at(&mut engine, after(1_100)), Vec::<String>::new());
    see_class(&mut engine, after(1_101), |class| class.spec = Arc::new(json!({ "role": "another" })));
    assert_eq!(upkeep_at(&mut engine, after(1_101)), [ask]);
}

#[test]
fn classes_of_others_are_not_asked_about_and_nothing_is_without_being_told_to() {
    let prod = Owner::new("provisor", "prod");
    let mut town = Town::with(|pool| pool.owner = Some(prod));
    town.settings.owner = Some(Owner::new("provisor", "dev"));
    let going = |class: &str| NodeClass {
        owner: Some(prod),
        held: Some(Holding::Profiles),
        is_deleting: true,
        ..super::town::class(class)
    };
    town.cluster.classes.insert("going".into(), Arc::new(going("going")));
    for upkeep in [Upkeep::Classes, Upkeep::Belongings] {
        town.settings.upkeep = Some(upkeep);
        assert_eq!(upkeep_in(&mut town.engine(), town.now, 0..400), []);
    }

    let town = Town::with(|_| {});
    assert_eq!(upkeep_in(&mut town.engine(), town.now, 0..400), []);
}

#[test]
fn classes_are_seen_to_before_it_is_known_what_is_sold() {
    let mut town = town_with(Upkeep::Classes);
    town.cluster.catalog = None;
    let mut engine = town.engine();
    let decision = engine.decide(town.now);
    let steps: Vec<String> = decision.actions.iter().filter_map(|planned| told(&planned.action)).collect();
    assert_eq!(steps, ["ask about default"]);
    assert!(decision.wake_at.is_some(), "and again, should there be no answer");
}

#[test]
fn a_class_is_held_before_it_is_asked_about_and_for_a_role_once_more() {
    let town = town_with(Upkeep::Belongings);
    let mut engine = town.engine();
    let after = |seconds| town.now + SignedDuration::from_secs(seconds);
    let hold = |what: &str| format!("hold default for {what}");
    assert_eq!(upkeep_in(&mut engine, town.now, 0..10), [(0, hold("templates"))]);
    let failed = Observation::ActionFailed { subject: "EC2NodeClass default".into(), message: "no".into() };
    engine.observe(after(10), failed);
    assert_eq!(upkeep_in(&mut engine, town.now, 10..30), [(25, hold("templates"))]);

    see_class(&mut engine, after(30), |class| class.held = Some(Holding::Templates));
    assert_eq!(upkeep_at(&mut engine, after(30)), ["ask about default"]);

    // It has a role now, for which there will be profiles; when it has none any more, they are still there.
    see_class(&mut engine, after(31), |class| class.spec = Arc::new(json!({ "role": "nodes" })));
    assert_eq!(upkeep_at(&mut engine, after(31)), [hold("profiles")]);
    see_class(&mut engine, after(32), |class| class.held = Some(Holding::Profiles));
    assert_eq!(upkeep_at(&mut engine, after(32)), ["ask about default"]);
    see_class(&mut engine, after(33), |class| class.spec = Arc::new(json!({})));
    assert_eq!(upkeep_at(&mut engine, after(33)), ["ask about default"]);
    see_class(&mut engine, after(34), |class| class.is_deleting = true);
    assert_eq!(upkeep_at(&mut engine, after(34)), ["clear default of profiles"]);
}

/// The failure names the class alone, whatever else has that name.
#[test]
fn a_class_that_cannot_be_written_changes_nothing_of_a_pool_of_its_name() {
    let mut town = Town::new(vec![pool("default")]);
    town.settings.upkeep = Some(Upkeep::Belongings);
    let mut engine = town.engine();
    for second in 0..5 {
        engine.decide(town.now + SignedDuration::from_secs(second));
    }
    let known = engine.cluster().pools[&PoolName::new("default")].clone();
    assert!(known.used.is_some(), "it was told what it uses");
    let failed = Observation::ActionFailed { subject: "EC2NodeClass default".into(), message: "no".into() };
    engine.observe(town.now + SignedDuration::from_secs(5), failed);
    assert_eq!(engine.cluster().pools[&PoolName::new("default")], known);
}

#[test]
fn a_deleted_class_waits_for_its_claims_and_for_what_was_made_for_it() {
    let mut town = town_with(Upkeep::Belongings);
    town.node("a", "m5.large");
    let name = ClaimName::new("a-claim");
    assert!(town.cluster.claims.contains_key(&name));
    let class = NodeClass { held: Some(Holding::Profiles), is_deleting: true, ..class("default") };
    town.cluster.classes.insert("default".into(), Arc::new(class));
    let mut engine = town.engine();
    let after = |seconds| town.now + SignedDuration::from_secs(seconds);
    let waits =
        "tell default: WaitingOnNodeClaimTermination: It stays until the 1 NodeClaims that use it are gone.";
    let is_of_class = |(_, step): &(i64, String)| !step.starts_with("name");
    let mut steps = upkeep_in(&mut engine, town.now, 0..10);
    steps.retain(is_of_class);
    assert_eq!(steps, [(0, waits.to_owned())], "it is told once");

    engine.observe(after(10), Observation::ClaimGone(name));
    let clear = "clear default of profiles".to_owned();
    assert_eq!(upkeep_in(&mut engine, town.now, 10..20), [(10, clear.clone())]);
    let message = "DeleteInstanceProfile is not allowed";
    let failed = Observation::ClearFailed { class: "default".into(), message: message.into() };
    engine.observe(after(20), failed);
    let stays = "tell default: NodeClassTerminationFailed: It stays until what was made for it is deleted: ";
    let steps = upkeep_in(&mut engine, town.now, 20..50);
    assert_eq!(steps, [(20, format!("{stays}{message}")), (35, clear)]);

    engine.observe(after(50), Observation::ClassGone("default".into()));
    assert_eq!(upkeep_in(&mut engine, town.now, 50..200), []);
}

#[test]
fn what_keeps_a_class_is_told_once_whether_or_not_it_is_known_what_is_sold() {
    for is_known in [true, false] {
        let mut town = town_with(Upkeep::Belongings);
        town.node("a", "m5.large");
        let class = NodeClass { held: Some(Holding::Templates), is_deleting: true, ..class("default") };
        town.cluster.classes.insert("default".into(), Arc::new(class));
        town.cluster.catalog = town.cluster.catalog.filter(|_| is_known);
        let mut engine = town.engine();
        let mut steps = upkeep_in(&mut engine, town.now, 0..300);
        let failed = Observation::ClearFailed { class: "default".into(), message: "no".into() };
        engine.observe(town.now + SignedDuration::from_secs(300), failed);
        steps.extend(upkeep_in(&mut engine, town.now, 300..600));
        let told = steps.iter().filter(|(_, step)| step.starts_with("tell"));
        let when: Vec<i64> = told.map(|(second, _)| *second).collect();
        assert_eq!(when, [0, 300], "why it waits, and why it stays");
    }
}

#[test]
fn a_class_that_we_do_not_hold_goes_without_us() {
    let mut town = town_with(Upkeep::Belongings);
    town.cluster
        .classes
        .insert("default".into(), Arc::new(NodeClass { is_deleting: true, ..class("default") }));
    assert_eq!(upkeep_in(&mut town.engine(), town.now, 0..100), []);
}

#[test]
fn a_class_that_another_cloud_holds_goes_once_our_pools_have_no_claims_of_it() {
    let mut town = town_with(Upkeep::Classes);
    let class = NodeClass { held: Some(Holding::Profiles), is_deleting: true, ..class("default") };
    town.cluster.classes.insert("default".into(), Arc::new(class));
    let clear = "clear default of profiles".to_owned();
    assert_eq!(upkeep_in(&mut town.engine(), town.now, 0..10), [(0, clear)]);
}

#[test]
fn machines_are_named_one_at_a_time_and_those_that_are_refused_later() {
    let mut town = town_with(Upkeep::Belongings);
    ["a", "b", "c"].into_iter().for_each(|node| town.node(node, "m5.large"));
    let class = NodeClass { held: Some(Holding::Templates), is_deleting: true, ..class("default") };
    town.cluster.classes.insert("default".into(), Arc::new(class));
    let mut engine = town.engine();
    let after = |seconds| town.now + SignedDuration::from_secs(seconds);
    let answer = |engine: &mut Engine, second, claim: &str, naming| {
        engine.observe(after(second), Observation::MachineNamed { claim: ClaimName::new(claim), naming });
    };
    let steps = |engine: &mut Engine, seconds| {
        let mut steps = upkeep_in(engine, town.now, seconds);
        steps.retain(|(_, step)| !step.starts_with("tell"));
        steps
    };
    let named = |node: &str| {
        let machine = town.instance(node).provider_id;
        format!("name {machine} of {node}-claim after {node}")
    };
    assert_eq!(steps(&mut engine, 0..30), [(0, named("a"))]);
    // As soon as it is answered the next has its turn, a second later.
    answer(&mut engine, 30, "a-claim", Naming::Done);
    assert_eq!(steps(&mut engine, 30..40), [(30, "write on a-claim".to_owned()), (31, named("b"))]);
    // It was written.
    echo(&mut engine, after(40));
    // What is refused may be all of them.
    answer(&mut engine, 40, "b-claim", Naming::Failed);
    assert_eq!(steps(&mut engine, 40..110), [(100, named("c"))]);
    answer(&mut engine, 110, "c-claim", Naming::NotThere);
    assert_eq!(steps(&mut engine, 110..350), [(340, named("b"))], "after five minutes");
    // An answer is waited for for ten minutes.
    assert_eq!(steps(&mut engine, 350..1_000), [(940, named("b"))]);
    // One whose claim is gone meanwhile is forgotten.
    engine.observe(after(1_000), Observation::ClaimGone(ClaimName::new("b-claim")));
    answer(&mut engine, 1_001, "b-claim", Naming::Done);
    assert_eq!(steps(&mut engine, 1_001..2_000), []);
}
