//! Times of the week in which nodes of a pool may go, by the clock of a place.

use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::disruption::Method;
use provisor::capacity::disruption::budgets::{next_change, next_change_for};
use provisor::model::action::Action;
use provisor::model::claim::{ConditionStatus, ConditionType};
use provisor::model::name::{ClaimName, NodeName};
use provisor::model::observation::{InterruptionNotice, Observation};
use provisor::model::pool::{Budget, BudgetNodes, BudgetWindow, DisruptionReason, NodePool};
use provisor::model::terms::Word;
use provisor::model::time::Patience;
use provisor::model::window::{Clock, Days, Window, WindowKind, Windows, zone};

use super::town::*;

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

fn window(kind: WindowKind, from: &str, until: &str, reasons: &[DisruptionReason]) -> Window {
    let clock = |text: &str| text.parse::<Clock>().expect("a time");
    let zone = zone("Asia/Seoul").expect("a zone");
    Window { kind, reasons: reasons.to_vec(), days: Days::ALL, from: clock(from), until: clock(until), zone }
}

fn windows(all: Vec<Window>) -> impl FnOnce(&mut NodePool) {
    |pool| pool.terms.windows = Some(Word { text: "[]".into(), meaning: Ok(Windows(all)) })
}

/// Nodes go from 20:00 in Seoul on, half an hour from now, until 22:00.
fn evening(reasons: &[DisruptionReason]) -> Vec<Window> {
    vec![window(WindowKind::Allow, "20:00", "22:00", reasons)]
}

/// For a reason that lies outside of the cluster, so that it stays.
fn drift(town: &mut Town, node: &str) {
    town.change_claim(node, |claim| {
        let since = at("2026-03-04T09:00:00Z");
        claim.conditions.set(ConditionType::Drifted, ConditionStatus::True, "AMIDrifted", "", since);
    });
}

/// A drifted node with a pod, an empty one, and one whose pod fits elsewhere; one that stays.
fn town(change: impl FnOnce(&mut NodePool)) -> Town {
    let mut town = Town::with(change);
    town.node("drifted", "m5.large");
    town.run("d", "drifted", shape("web", "1900m"));
    drift(&mut town, "drifted");
    town.node("empty", "m5.large");
    town.node("spare", "m5.large");
    town.run("s", "spare", shape("web", "100m"));
    town.node("stays", "m5.xlarge");
    town.run("t", "stays", shape("web", "3000m"));
    town
}

const ALL: [&str; 3] = ["drifted", "empty", "spare"];

#[test]
fn nothing_goes_outside_of_the_window_and_all_of_it_inside() {
    let mut town = town(windows(evening(&[])));
    assert_eq!(town.gone(), [""; 0]);
    let told = "pool default is outside of its window until 2026-03-04T20:00:00+09:00[Asia/Seoul]";
    let plan = town.plan();
    for (node, message, reason) in [
        ("drifted", format!("drifted, but {told}"), DisruptionReason::Drifted),
        ("empty", told.to_owned(), DisruptionReason::Empty),
        ("spare", told.to_owned(), DisruptionReason::Underutilized),
    ] {
        let kept = plan.kept.iter().find(|kept| kept.node == NodeName::new(node)).expect("it stays");
        assert_eq!((kept.code, &kept.message), ("OutsideWindow", &message), "{node}");
        assert_eq!(kept.held_for, Some(reason), "it would go, but for the window");
    }
    assert!(plan.blocked.is_empty(), "a window closes every day, which is no news of the pool");
    let allowance = &plan.outlook.allowances[&("default".into(), DisruptionReason::Drifted)];
    assert_eq!((allowance.allowed, allowance.remaining()), (0, 0));
    town.now += minutes(30);
    assert_eq!(town.gone(), ALL);
    town.now += minutes(120);
    assert_eq!(town.gone(), [""; 0]);
}

#[test]
fn a_window_is_about_the_reasons_that_it_names() {
    for (reason, node) in [
        (DisruptionReason::Drifted, "drifted"),
        (DisruptionReason::Empty, "empty"),
        (DisruptionReason::Underutilized, "spare"),
    ] {
        let closed = town(windows(evening(&[reason])));
        let others: Vec<&str> = ALL.into_iter().filter(|other| *other != node).collect();
        assert_eq!(closed.gone(), others, "{reason:?}");
        let denied = town(windows(vec![window(WindowKind::Deny, "19:00", "20:00", &[reason])]));
        assert_eq!(denied.gone(), others, "{reason:?}");
    }
    // A denial wins over what allows, and budgets count besides, by their own clock.
    let both = vec![
        window(WindowKind::Allow, "19:00", "22:00", &[]),
        window(WindowKind::Deny, "19:30", "20:00", &[]),
    ];
    assert_eq!(town(windows(both)).gone(), [""; 0]);
    let open = vec![window(WindowKind::Allow, "19:00", "22:00", &[])];
    let morning = BudgetWindow { schedule: "0 10 * * *".into(), duration: SignedDuration::from_hours(1) };
    let closed = Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: Some(morning) };
    let budgeted = town(|pool| {
        windows(open)(pool);
        pool.disruption.budgets.push(closed);
    });
    assert_eq!((budgeted.gone(), budgeted.kept("empty")), (vec![], "BudgetExhausted"));
}

#[test]
fn windows_that_nobody_can_read_let_nothing_go() {
    let unreadable = |pool: &mut NodePool| {
        pool.terms.windows = Some(Word { text: "?".into(), meaning: Err("it is no JSON".into()) });
        let template = Arc::make_mut(&mut pool.template);
        template.expire_after = Patience::of(SignedDuration::from_hours(1));
    };
    let town = town(unreadable);
    assert_eq!(town.gone(), [""; 0]);
    for node in ALL {
        assert_eq!(town.kept(node), "OutsideWindow", "{node}");
    }
    let mut engine = town.engine();
    for (_, decision) in decisions(&mut engine, town.now, town.now + SignedDuration::from_hours(30)) {
        let deleted = decision.actions.iter().find(|one| matches!(one.action, Action::DeleteClaim { .. }));
        assert_eq!((deleted, decision.started.len()), (None, 0));
    }
}

#[test]
fn the_engine_sleeps_until_the_window_opens_and_begins_then() {
    let mut town = town(windows(evening(&[])));
    let opens = town.now + minutes(30);
    // Passes come every five minutes in any case: not at the moment of the opening.
    town.now += SignedDuration::from_secs(77);
    let mut engine = town.engine();
    let mut begun = Vec::new();
    for (at, decision) in decisions(&mut engine, town.now, opens + minutes(1)) {
        if at < opens {
            assert!(decision.started.is_empty(), "{at}");
            assert!(decision.wake_at.is_some_and(|wake| wake <= opens));
        }
        begun.extend(decision.started.iter().map(|command| (command.method, at)));
    }
    let of = |method: Method| begun.iter().find(|(known, _)| *known == method).map(|(_, at)| *at);
    assert_eq!(of(Method::Drift), Some(opens), "at the second");
    assert_eq!(of(Method::Emptiness), Some(opens + SignedDuration::from_secs(15)), "after its second look");
}

#[test]
fn what_has_begun_when_the_window_closes_is_finished_and_nothing_new_begins() {
    // Open until ten seconds from now.
    let mut town = Town::with(windows(vec![window(WindowKind::Allow, "18:00", "19:31", &[])]));
    town.now += SignedDuration::from_secs(50);
    town.node("old", "m5.large");
    town.run("web", "old", shape("web", "500m"));
    drift(&mut town, "old");
    town.node("empty", "m5.large");
    let start = town.now;
    let mut engine = town.engine();
    let first = engine.decide(start);
    let methods: Vec<Method> = first.started.iter().map(|command| command.method).collect();
    assert_eq!(methods, [Method::Drift]);
    let replacement = first.actions.iter().find_map(|planned| match &planned.action {
        Action::CreateClaim(claim) => Some((**claim).clone()),
        _ => None,
    });
    let mut replacement = replacement.expect("a replacement comes first");
    echo(&mut engine, start);
    // The empty node was decided on, too, but had not begun to go.
    let later = start + SignedDuration::from_secs(15);
    let second = engine.decide(later);
    assert!(second.started.is_empty());
    assert_eq!(second.withdrawn, [(Method::Emptiness, 1)]);
    for kind in [ConditionType::Launched, ConditionType::Registered, ConditionType::Initialized] {
        replacement.conditions.set(kind, ConditionStatus::True, kind.as_str(), "", later);
    }
    engine.observe(later, Observation::Claim(Arc::new(replacement)));
    let third = engine.decide(later + SignedDuration::from_secs(1));
    let deleted = third.actions.iter().any(|planned| {
        matches!(planned.action, Action::DeleteClaim { claim } if claim == ClaimName::new("old-claim"))
    });
    assert!(deleted, "its replacement is there");
    let end =
        decisions(&mut engine, later + SignedDuration::from_secs(2), start + SignedDuration::from_hours(20));
    assert!(end.iter().all(|(_, decision)| decision.started.is_empty()));
}

#[test]
fn a_node_that_is_too_old_waits_for_the_window_and_what_must_be_does_not() {
    let aged = |all: Vec<Window>| {
        let mut town = Town::with(|pool| {
            windows(all)(pool);
            pool.disruption.consolidate_after = Patience::never();
        });
        town.node("n", "m5.large");
        town.run("web", "n", shape("web", "500m"));
        town.change_claim("n", |claim| claim.spec.expire_after = Patience::of(SignedDuration::from_hours(1)));
        town
    };
    let town = aged(evening(&[]));
    assert_eq!(town.kept("n"), "OutsideWindow");
    let plan = town.plan();
    let told =
        "expired, but pool default is outside of its window until 2026-03-04T20:00:00+09:00[Asia/Seoul]";
    assert_eq!(plan.kept[0].message, told);
    let mut engine = town.engine();
    let all = decisions(&mut engine, town.now, town.now + minutes(40));
    let expired = all.iter().filter(|(_, decision)| reasons(decision).contains_key("Expired"));
    assert_eq!(expired.map(|(at, _)| *at).next(), Some(town.now + minutes(30)), "at the second");
    // A window for another reason is none of its business.
    assert_eq!(aged(evening(&[DisruptionReason::Drifted])).gone(), ["n"]);

    // What the cloud takes back is drained at once.
    let mut engine = town.engine();
    engine.decide(town.now);
    let instance = town.instance("n").provider_id;
    let notice = InterruptionNotice::SpotReclaim { at: town.now + minutes(2) };
    engine.observe(town.now, Observation::Interruption { instance, notice });
    assert!(reasons(&engine.decide(town.now)).contains_key("Interrupted"));
}

#[test]
fn static_pools_have_windows_too() {
    let mut town = Town::with(|pool| {
        windows(evening(&[]))(pool);
        pool.replicas = Some(1);
    });
    town.node("n", "m5.large");
    drift(&mut town, "n");
    assert_eq!((town.gone(), town.kept("n")), (vec![], "OutsideWindow"));
    town.now += minutes(30);
    assert_eq!(town.command().method, Method::StaticDrift);
}

#[test]
fn the_next_change_for_a_reason_is_not_that_of_a_budget_about_others() {
    let budget = |schedule: &str, reasons: &[DisruptionReason]| Budget {
        nodes: BudgetNodes::Count(0),
        reasons: reasons.to_vec(),
        window: Some(BudgetWindow { schedule: schedule.into(), duration: SignedDuration::from_hours(1) }),
    };
    let (drifted, underutilized) = (DisruptionReason::Drifted, DisruptionReason::Underutilized);
    let mut pool = pool("default");
    pool.disruption.budgets = vec![
        budget("0 13 * * *", &[underutilized]),
        budget("0 16 * * *", &[drifted, DisruptionReason::Empty]),
    ];
    let noon = at("2026-06-15T12:00:00Z");
    assert_eq!(next_change_for(&pool, underutilized, noon), Some(at("2026-06-15T13:00:00Z")));
    assert_eq!(next_change_for(&pool, drifted, noon), Some(at("2026-06-15T16:00:00Z")));
    assert_eq!(next_change(&pool, noon), Some(at("2026-06-15T13:00:00Z")));
    pool.disruption.budgets.truncate(1);
    assert_eq!(next_change_for(&pool, drifted, noon), None);
}
