//! Nodes of pools that ask for it go for their age in an orderly way.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::disruption::{Kind, Method};
use provisor::model::action::Action;
use provisor::model::claim::{ConditionStatus, ConditionType};
use provisor::model::label::annotation;
use provisor::model::name::{ClaimName, NodeName, Uid};
use provisor::model::observation::Observation;
use provisor::model::pool::{Budget, BudgetNodes, DisruptionReason, NodePool};
use provisor::model::quantity::{ResourceName, Resources};
use provisor::model::terms::{Expiration, Word};
use provisor::model::time::Patience;
use provisor::model::window::{Clock, Days, Window, WindowKind, Windows, zone};

use super::town::*;

fn hours(count: i64) -> SignedDuration {
    SignedDuration::from_hours(count)
}

fn asks(expiration: Expiration) -> impl Fn(&mut NodePool) {
    move |pool| {
        pool.disruption.consolidate_after = Patience::never();
        pool.terms.expiration = Some(Word { text: "{}".into(), meaning: Ok(expiration) });
    }
}

/// To the hour, so that there is nothing to work out.
fn plain() -> Expiration {
    Expiration { jitter: 0, ..Expiration::default() }
}

/// Nodes `n0` and so on, each full, born 74 and a half hours before, that live for so long.
fn town(nodes: usize, life: SignedDuration, change: impl Fn(&mut NodePool)) -> Town {
    let mut town = Town::with(change);
    for at in 0..nodes {
        let name = format!("n{at}");
        town.node(&name, "m5.large");
        town.run(&name, &name, shape("web", "1500m"));
        town.change_claim(&name, |claim| claim.spec.expire_after = Patience::of(life));
    }
    town
}

fn message(town: &Town, node: &str) -> String {
    let plan = town.plan();
    plan.kept.into_iter().find(|kept| kept.node == NodeName::new(node)).expect("it stays").message
}

#[test]
fn a_replacement_comes_first_and_budgets_without_reasons_count() {
    let old = town(3, hours(74), asks(plain()));
    let commands = old.plan().commands;
    assert_eq!(commands.len(), 3);
    for command in &commands {
        assert_eq!((command.method, command.kind()), (Method::Renewal, Kind::Replace));
        assert_eq!((command.reason(), command.replacements.len()), (DisruptionReason::Expired, 1));
    }
    assert!(
        commands[0].why().starts_with("it is as old as its pool lets it become; a replacement comes first")
    );
    assert_eq!(town(3, hours(75), asks(plain())).gone(), [""; 0], "half an hour is left");

    let budgeted = |nodes: u32, reasons: &[DisruptionReason]| {
        let budget = Budget { nodes: BudgetNodes::Count(nodes), reasons: reasons.to_vec(), window: None };
        town(3, hours(74), |pool| {
            asks(plain())(pool);
            pool.disruption.budgets = vec![budget.clone()];
        })
    };
    assert_eq!(budgeted(1, &[]).gone().len(), 1);
    assert_eq!(budgeted(0, &[DisruptionReason::Drifted]).gone().len(), 3, "it is about something else");
    let closed = budgeted(0, &[]);
    assert_eq!((closed.gone(), closed.kept("n0")), (vec![], "BudgetExhausted"));
    assert_eq!(
        message(&closed, "n0"),
        "expired, but the budgets of pool default allow no disruption for reason Expired now"
    );
    // And the pool's own number.
    for (nodes, expected) in
        [(BudgetNodes::Count(2), 2), (BudgetNodes::Percent(34), 2), (BudgetNodes::Count(0), 0)]
    {
        let own = Expiration { nodes: Some(nodes), ..plain() };
        assert_eq!(town(3, hours(74), asks(own)).gone().len(), expected, "{nodes:?}");
    }
    // Without the word everything goes at once, by force.
    let karpenter = town(3, hours(74), |pool| {
        pool.disruption.budgets =
            vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: None }];
    });
    assert!(karpenter.plan().commands.iter().all(|command| command.method == Method::Expiration));
    assert_eq!(karpenter.gone().len(), 3);
}

#[test]
fn the_engine_waits_for_the_replacement_before_the_node_goes() {
    let mut old = town(1, hours(74), asks(plain()));
    let mut engine = old.engine();
    let first = engine.decide(old.now);
    let deleted = |decision: &provisor::capacity::decision::Decision| {
        let own = ClaimName::new("n0-claim");
        decision.actions.iter().any(|one| matches!(one.action, Action::DeleteClaim { claim } if claim == own))
    };
    assert!(!deleted(&first), "not before");
    let mut replacement = first
        .actions
        .iter()
        .find_map(|planned| match &planned.action {
            Action::CreateClaim(claim) => Some((**claim).clone()),
            _ => None,
        })
        .expect("it is bought");
    echo(&mut engine, old.now);
    let soon = old.now + SignedDuration::from_mins(2);
    for kind in [ConditionType::Launched, ConditionType::Registered, ConditionType::Initialized] {
        replacement.conditions.set(kind, ConditionStatus::True, kind.as_str(), "", soon);
    }
    engine.observe(soon, Observation::Claim(Arc::new(replacement)));
    assert!(deleted(&engine.decide(soon)));

    // Where there is no room for two the node goes first, within the budgets all the same.
    let sparing = Expiration { replaces_first: false, ..plain() };
    old = town(1, hours(74), asks(sparing));
    assert_eq!((old.command().method, old.command().kind()), (Method::Renewal, Kind::Delete));
}

#[test]
fn nobody_is_sent_away_before_the_deadline_and_everybody_after_it() {
    let with = |deadline: Option<i64>, life: i64| {
        let mut town = town(1, hours(life), |pool| {
            asks(Expiration { deadline: deadline.map(hours), ..plain() })(pool);
            pool.disruption.budgets =
                vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: None }];
        });
        town.change_node("n0", |node| {
            node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
        });
        town
    };
    // Seventy-four and a half hours old.
    assert_eq!(with(Some(5), 70).kept("n0"), "DoNotDisrupt");
    assert_eq!(with(None, 1).kept("n0"), "DoNotDisrupt", "it may wait for ever");
    let forced = with(Some(4), 70);
    assert_eq!(forced.command().method, Method::Expiration);
    let town = with(Some(5), 70);
    let mut engine = town.engine();
    let all = decisions(&mut engine, town.now, town.now + hours(1));
    let gone = all.iter().find(|(_, decision)| reasons(decision).contains_key("Expired")).map(|(at, _)| *at);
    assert_eq!(gone, Some(town.now + SignedDuration::from_mins(30)), "at the second");
}

#[test]
fn each_node_goes_sooner_by_a_share_of_its_own() {
    // Three hundred nodes that were made at once and live for 1000 hours, with a tenth of that to choose from.
    let life = hours(1000);
    let born: Timestamp = at("2026-03-01T08:00:00Z");
    let count = 300;
    let mut old = town(count, life, asks(Expiration { jitter: 10, ..Expiration::default() }));
    let gone_at = |town: &mut Town, age: SignedDuration| {
        town.now = born + age;
        BTreeSet::from_iter(town.gone())
    };
    assert_eq!(gone_at(&mut old, hours(899)).len(), 0, "no sooner than a tenth before");
    let half = gone_at(&mut old, hours(950));
    assert!((100..=200).contains(&half.len()), "about half of them at half the time: {}", half.len());
    assert_eq!(gone_at(&mut old, hours(1000)).len(), count);
    // It hangs on the uid and on nothing else.
    let mut again = town(count, life, asks(Expiration { jitter: 10, ..Expiration::default() }));
    assert_eq!(gone_at(&mut again, hours(950)), half);
    again.change_claim("n0", |claim| claim.uid = Uid::new("another"));
    let changed = gone_at(&mut again, hours(950));
    assert!(changed.symmetric_difference(&half).all(|node| *node == "n0"));
}

#[test]
fn the_engine_wakes_for_the_share_of_a_node() {
    let young = town(1, hours(80), asks(Expiration { jitter: 10, ..Expiration::default() }));
    let mut engine = young.engine();
    let mut began = None;
    for (at, decision) in decisions(&mut engine, young.now, young.now + hours(6)) {
        if !decision.started.is_empty() {
            began = began.or(Some((at, decision.started[0].method)));
        }
    }
    let (at, method) = began.expect("it goes before it has to");
    let age = at.duration_since(self::at("2026-03-01T08:00:00Z"));
    assert_eq!(method, Method::Renewal);
    assert!(age > hours(72) && age < hours(80), "{age:?}");
    let mut before = town(1, hours(80), asks(Expiration { jitter: 10, ..Expiration::default() }));
    before.now = at - SignedDuration::from_secs(1);
    assert_eq!(before.gone(), [""; 0], "to the second");
}

#[test]
fn windows_and_unreadable_words_hold_what_is_too_old() {
    let clock = |text: &str| text.parse::<Clock>().expect("a time");
    let evening = Window {
        kind: WindowKind::Allow,
        reasons: vec![DisruptionReason::Expired],
        days: Days::ALL,
        from: clock("20:00"),
        until: clock("22:00"),
        zone: zone("Asia/Seoul").expect("a zone"),
    };
    let mut waits = town(1, hours(74), |pool| {
        asks(plain())(pool);
        pool.terms.windows = Some(Word { text: "[]".into(), meaning: Ok(Windows(vec![evening.clone()])) });
    });
    assert_eq!(waits.kept("n0"), "OutsideWindow");
    assert!(message(&waits, "n0").starts_with("expired, but pool default is outside of its window until"));
    waits.now += SignedDuration::from_mins(30);
    assert_eq!(waits.command().method, Method::Renewal);
    // By its deadline it goes although the window is closed.
    let late = town(1, hours(1), |pool| {
        asks(Expiration { deadline: Some(hours(1)), ..plain() })(pool);
        pool.terms.windows = Some(Word { text: "[]".into(), meaning: Ok(Windows(vec![evening.clone()])) });
    });
    assert_eq!(late.command().method, Method::Expiration);

    let unreadable = town(1, hours(1), |pool| {
        pool.disruption.consolidate_after = Patience::never();
        pool.terms.expiration = Some(Word { text: "?".into(), meaning: Err("it is no JSON".into()) });
    });
    assert_eq!(unreadable.kept("n0"), "ExpirationUnreadable");
    let mut engine = unreadable.engine();
    let all = decisions(&mut engine, unreadable.now, unreadable.now + hours(2));
    assert!(all.iter().all(|(_, decision)| !reasons(decision).contains_key("Expired")));
}

#[test]
fn a_static_pool_keeps_its_number_while_its_nodes_are_renewed() {
    let fixed = |limit: Option<i64>| {
        town(2, hours(74), move |pool| {
            asks(plain())(pool);
            pool.replicas = Some(2);
            pool.limits = limit.map(|count| Resources::from_iter([(ResourceName::new("nodes"), count)]));
        })
    };
    let commands = fixed(Some(3)).plan().commands;
    assert_eq!(commands.len(), 1, "there is room for one more");
    assert_eq!((commands[0].method, commands[0].replacements.len()), (Method::Renewal, 1));
    assert_eq!(fixed(None).plan().commands.len(), 2);
    let full = fixed(Some(2));
    assert_eq!((full.gone(), full.kept("n0")), (vec![], "LimitReached"));
}
