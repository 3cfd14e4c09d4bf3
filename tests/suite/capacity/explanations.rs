//! Of a node that stays: since when, and when it is looked at again. Of one that goes: what was not done instead, and why.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::disruption::stays::{Since, awaited};
use provisor::capacity::disruption::{Alternative, Command, Kept, Method};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::claim::{Condition, ConditionStatus, ConditionType, NodeClaim};
use provisor::model::label::{self, annotation};
use provisor::model::money::UsdPerHour;
use provisor::model::name::NodeName;
use provisor::model::observation::Observation;
use provisor::model::pool::{Budget, BudgetNodes, BudgetWindow, ConsolidationPolicy, NodePool};
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::symbol::Symbol;
use provisor::model::terms::{Expiration, Return, Word};
use provisor::model::time::Patience;
use provisor::model::window::{Days, Window, WindowKind, Windows, zone};
use provisor::simulator::stage::Stage;

use super::town::*;

/// All nodes of a town are as old as this.
const BORN: &str = "2026-03-01T08:00:00Z";

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

fn hours(count: i64) -> SignedDuration {
    SignedDuration::from_hours(count)
}

fn kept(town: &Town, node: &str) -> Kept {
    let plan = town.plan();
    let found = plan.kept.iter().find(|kept| kept.node == NodeName::new(node));
    found.unwrap_or_else(|| panic!("{node} goes: {:#?}", plan.commands)).clone()
}

/// Why `n` stays, since when, and when time alone may change that: of today, but for the day's date.
fn told(town: &Town) -> (&'static str, String, String) {
    let kept = kept(town, "n");
    let shown = |at: Option<Timestamp>| {
        at.map_or_else(|| "-".into(), |at| at.to_string().trim_start_matches("2026-03-04T").to_owned())
    };
    assert!(kept.since.is_none_or(|since| !since.or_earlier), "objects tell exactly");
    (kept.code, shown(kept.since.map(|since| since.at)), shown(kept.next_look))
}

/// A node `n` with a pod that nothing else has room for, changed by `change`.
fn full(pool: impl FnOnce(&mut NodePool)) -> Town {
    let mut town = Town::with(pool);
    town.node("n", "m5.large");
    town.run("web", "n", shape("web", "1900m"));
    town
}

/// The node `n`, empty.
fn empty(pool: impl FnOnce(&mut NodePool)) -> Town {
    let mut town = Town::with(pool);
    town.node("n", "m5.large");
    town
}

fn closed(schedule: &str, length: SignedDuration) -> Budget {
    let window = BudgetWindow { schedule: schedule.into(), duration: length };
    Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: Some(window) }
}

fn protect(town: &mut Town, name: &str) {
    town.change_node(name, |node| {
        node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
    });
}

fn says(expected: [&str; 3]) -> (&str, String, String) {
    (expected[0], expected[1].to_owned(), expected[2].to_owned())
}

#[test]
fn quiet_is_counted_from_the_last_event_of_a_pod() {
    let waiting = |wait: SignedDuration, event: Option<&str>| {
        let mut town = full(|pool| pool.disruption.consolidate_after = Patience::of(wait));
        town.change_claim("n", |claim| claim.last_pod_event = event.map(at));
        told(&town)
    };
    let event = Some("2026-03-04T10:28:00Z");
    assert_eq!(waiting(minutes(5), event), says(["NotConsolidatable", "10:28:00Z", "10:33:00Z"]));
    assert_eq!(waiting(hours(80), None), says(["NotConsolidatable", BORN, "16:00:00Z"]), "since it is ready");
    assert_eq!(waiting(minutes(2), event).0, "NoCheaperReplacement", "they have been quiet for two minutes");
}

#[test]
fn what_is_under_way_tells_since_when_and_what_takes_too_long_until_when() {
    let disrupted = |claim: &mut NodeClaim| {
        let since = at("2026-03-04T10:25:00Z");
        claim.conditions.set(ConditionType::DisruptionReason, ConditionStatus::True, "Drifted", "", since);
        claim.annotations.insert(*annotation::REPLACED_BY, "other".into());
    };
    type Change = fn(&mut NodeClaim);
    let cases: [(Change, [&str; 3]); 2] = [
        (|claim| claim.deleted = Some(at("2026-03-04T10:29:00Z")), ["Deleting", "10:29:00Z", "-"]),
        (|claim| claim.conditions.clear(ConditionType::Initialized), ["NotInitialized", BORN, "-"]),
    ];
    for (change, expected) in cases {
        let mut town = full(|_| ());
        town.change_claim("n", change);
        assert_eq!(told(&town), says(expected));
    }
    let mut town = full(|_| ());
    town.change_claim("n", disrupted);
    assert_eq!(told(&town), says(["BeingDisrupted", "10:25:00Z", "10:35:00Z"]), "patience is ten minutes");

    // Its replacement is ready, and it has begun to go.
    let deleted = Some(at("2026-03-04T10:29:00Z"));
    town.change_claim("n", |claim| claim.deleted = deleted);
    town.change_node("n", |node| node.deleted = deleted);
    assert_eq!(kept(&town, "n").message, "node is deleting or marked for deletion");
    town.add_budget(pdb("web", "web", 0));
    let kept = kept(&town, "n");
    assert_eq!(kept.code, "Deleting");
    let message = "node is being drained, and pdb prevents pod evictions (PodDisruptionBudget=[default/web])";
    assert_eq!(kept.message, message);
}

#[test]
fn a_protection_for_a_time_says_until_when_and_one_for_ever_says_nothing() {
    let with = |value: &'static str| {
        let mut town = Town::with(|_| ());
        town.node("n", "m5.large");
        let mut shape = shape("web", "500m");
        shape.do_not_disrupt = Some(Symbol::new(value));
        let started = Some(at("2026-03-04T10:10:00Z"));
        town.cluster.put_pod(Arc::new(provisor::model::pod::Pod { started, ..pod("web", Some("n"), shape) }));
        told(&town)
    };
    assert_eq!(with("1h"), says(["PodDoNotDisrupt", "10:10:00Z", "11:10:00Z"]));
    assert_eq!(with("true"), says(["PodDoNotDisrupt", "-", "-"]));
    let mut town = full(|_| ());
    town.add_budget(pdb("web", "web", 0));
    assert_eq!(told(&town), says(["PodDisruptionBudget", "-", "-"]));
    let mut town = full(|_| ());
    protect(&mut town, "n");
    assert_eq!(told(&town), says(["DoNotDisrupt", "-", "-"]), "the object does not say since when");
}

#[test]
fn a_closed_budget_says_since_when_and_when_it_really_opens() {
    let cases: [(&str, Vec<Budget>, [&str; 2]); 6] = [
        ("one window", vec![closed("0 10 * * *", hours(1))], ["10:00:00Z", "11:00:00Z"]),
        (
            "its end is inside of another one",
            vec![closed("0 10 * * *", hours(1)), closed("45 10 * * *", hours(2))],
            ["10:00:00Z", "12:45:00Z"],
        ),
        (
            "it begins anew before it ends",
            vec![closed("0 8-11 * * *", minutes(90))],
            ["08:00:00Z", "12:30:00Z"],
        ),
        ("it begins anew as it ends", vec![closed("0 8-11 * * *", hours(1))], ["08:00:00Z", "12:00:00Z"]),
        ("always", vec![closed("@daily", hours(24))], ["-", "-"]),
        (
            "as it is written",
            vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: None }],
            ["-", "-"],
        ),
    ];
    for (case, budgets, [since, next]) in cases {
        let town = empty(|pool| pool.disruption.budgets = budgets);
        assert_eq!(told(&town), says(["BudgetExhausted", since, next]), "{case}");
    }
    // It would not have gone before its pods had been quiet.
    let mut town = empty(|pool| {
        pool.disruption.budgets = vec![closed("0 10 * * *", hours(1))];
        pool.disruption.consolidate_after = Patience::of(minutes(5));
    });
    town.change_claim("n", |claim| claim.last_pod_event = Some(at("2026-03-04T10:07:00Z")));
    assert_eq!(told(&town), says(["BudgetExhausted", "10:12:00Z", "11:00:00Z"]));
    // Whoever waits for others waits for no moment.
    let mut town = empty(|pool| pool.disruption.budgets[0].nodes = BudgetNodes::Count(1));
    town.node("m", "m5.large");
    town.change_claim("m", |claim| claim.deleted = Some(town_moment()));
    assert_eq!(told(&town), says(["BudgetExhausted", "-", "-"]));
}

fn town_moment() -> Timestamp {
    at("2026-03-04T10:29:00Z")
}

#[test]
fn a_window_says_since_when_it_is_closed_and_when_it_opens() {
    let in_seoul = |pool: &mut NodePool| {
        let clock = |text: &str| text.parse().expect("a time");
        let zone = zone("Asia/Seoul").expect("a zone");
        let (from, until) = (clock("20:00"), clock("22:00"));
        let window = Window { kind: WindowKind::Allow, reasons: vec![], days: Days::ALL, from, until, zone };
        pool.terms.windows = Some(Word { text: "[]".into(), meaning: Ok(Windows(vec![window])) });
    };
    let night = "2026-03-03T13:00:00Z";
    assert_eq!(told(&empty(in_seoul)), says(["OutsideWindow", night, "11:00:00Z"]));
    let mut drifted = full(in_seoul);
    drifted.drift("n", "2026-03-04T09:00:00Z");
    assert_eq!(told(&drifted), says(["OutsideWindow", "09:00:00Z", "11:00:00Z"]), "it drifted after that");
    let mut old = full(in_seoul);
    old.change_claim("n", |claim| claim.spec.expire_after = Patience::of(hours(70)));
    assert_eq!(told(&old), says(["OutsideWindow", "06:00:00Z", "11:00:00Z"]), "it became too old after that");
}

#[test]
fn whatever_keeps_a_node_it_is_looked_at_again_once_it_is_too_old() {
    let aged = |pool: fn(&mut NodePool)| {
        let mut town = full(pool);
        town.change_claim("n", |claim| claim.spec.expire_after = Patience::of(hours(75)));
        told(&town)
    };
    assert_eq!(aged(|_| ()), says(["NoCheaperReplacement", "-", "11:00:00Z"]));
    let never = |pool: &mut NodePool| pool.disruption.consolidate_after = Patience::never();
    assert_eq!(aged(never), says(["ConsolidationDisabled", "-", "11:00:00Z"]));
    let orderly = |pool: &mut NodePool| {
        never_again(pool);
        let asked = Expiration { deadline: Some(hours(2)), ..Expiration { jitter: 0, ..Default::default() } };
        pool.terms.expiration = Some(Word { text: "{}".into(), meaning: Ok(asked) });
    };
    assert_eq!(aged(orderly), says(["ConsolidationDisabled", "-", "11:00:00Z"]), "before it goes by force");
}

fn never_again(pool: &mut NodePool) {
    pool.disruption.consolidate_after = Patience::never();
}

#[test]
fn a_fallback_says_when_it_goes_back() {
    let mut town = full(|pool| {
        let kinds = ["spot", "on-demand"].map(Symbol::new);
        let template = Arc::make_mut(&mut pool.template);
        template.requirements.replace(*label::CAPACITY_TYPE, Requirement::new(Operator::In, kinds));
        pool.disruption.policy = ConsolidationPolicy::WhenEmpty;
        let meaning = Ok(Return { after: Some(minutes(30)) });
        pool.terms.returns = Some(Word { text: "{}".into(), meaning });
    });
    town.change_claim("n", |claim| {
        let (status, reason) = (ConditionStatus::True, "Initialized".into());
        let since = Some(at("2026-03-04T10:20:00Z"));
        claim
            .conditions
            .insert(ConditionType::Initialized, Condition { status, reason, message: "".into(), since });
    });
    assert_eq!(told(&town), says(["ReturnsLater", "10:20:00Z", "10:50:00Z"]));
}

#[test]
fn reasons_that_end_by_themselves_say_what_is_waited_for() {
    let general = awaited("NoCommand");
    for code in
        ["BeingDisrupted", "PodDisruptionBudget", "BudgetExhausted", "NotConsolidatable", "RollHalted"]
    {
        assert_ne!(awaited(code), general, "{code}");
    }
}

fn of_engine(engine: &Engine, node: &str) -> Option<(&'static str, Since)> {
    let plan = engine.plan().disruption.clone();
    let kept = plan.kept.iter().find(|kept| kept.node == NodeName::new(node))?;
    Some((kept.code, kept.since?))
}

/// Lets `engine` decide whenever it wants to until `until`.
fn live_on(engine: &mut Engine, from: Timestamp, until: Timestamp) {
    decisions(engine, from, until);
}

#[test]
fn an_engine_knows_since_when_a_reason_holds_from_its_first_pass_on() {
    let mut town = full(|_| ());
    town.node("other", "m5.large");
    town.run("api", "other", shape("api", "1900m"));
    protect(&mut town, "n");
    let mut engine = town.engine();
    engine.decide(town.now);
    let first = Since { at: town.now, or_earlier: true };
    assert_eq!(of_engine(&engine, "n"), Some(("DoNotDisrupt", first)), "it may have been so before");

    let change_at = town.now + minutes(20);
    live_on(&mut engine, town.now, change_at);
    assert_eq!(of_engine(&engine, "n"), Some(("DoNotDisrupt", first)), "many passes later");
    let mut freed = (*engine.cluster().nodes[&NodeName::new("n")]).clone();
    freed.annotations.clear();
    engine.observe(change_at, Observation::Node(Arc::new(freed.clone())));
    let end = change_at + minutes(30);
    live_on(&mut engine, change_at, end);
    let (code, since) = of_engine(&engine, "n").expect("it stays");
    assert_eq!((code, since.or_earlier), ("NoCheaperReplacement", false));
    assert!(since.at >= change_at && since.at <= change_at + SignedDuration::from_secs(10), "{since:?}");
    let (_, other) = of_engine(&engine, "other").expect("it stays");
    assert_eq!(other, first, "what happens to others is nothing to it");

    // What is gone is forgotten.
    engine.observe(end, Observation::NodeGone(NodeName::new("n")));
    live_on(&mut engine, end, end + minutes(1));
    assert_eq!(of_engine(&engine, "n"), None);
    engine.observe(end + minutes(1), Observation::Node(Arc::new(freed)));
    live_on(&mut engine, end + minutes(1), end + minutes(2));
    let (_, since) = of_engine(&engine, "n").expect("it is there again");
    assert!(since.at >= end + minutes(1) && !since.or_earlier, "{since:?}");

    // A successor has only the objects.
    let later = end + minutes(3);
    let mut successor = engine_of(engine.cluster(), later, town.settings.clone());
    successor.decide(later);
    let begun = Since { at: later, or_earlier: true };
    assert_eq!(of_engine(&successor, "other"), Some(("NoCheaperReplacement", begun)));
}

#[test]
fn an_engine_and_its_successor_read_the_same_off_objects() {
    let mut town = empty(|pool| pool.disruption.consolidate_after = Patience::of(hours(5)));
    town.change_claim("n", |claim| claim.last_pod_event = Some(at("2026-03-04T10:00:00Z")));
    let expected = Some(("NotConsolidatable", Since::exactly(at("2026-03-04T10:00:00Z"))));
    let mut engine = town.engine();
    live_on(&mut engine, town.now, town.now + minutes(20));
    assert_eq!(of_engine(&engine, "n"), expected);
    let later = town.now + minutes(20);
    let mut successor = engine_of(engine.cluster(), later, town.settings.clone());
    successor.decide(later);
    assert_eq!(of_engine(&successor, "n"), expected);
    let next = successor.plan().disruption.kept[0].next_look;
    assert_eq!(next, Some(at("2026-03-04T15:00:00Z")));
}

#[test]
fn a_node_that_is_kept_for_a_pod_says_for_how_long() {
    let mut town = Town::with(|_| ());
    town.node("n", "m5.large");
    town.run("web", "n", shape("web", "1400m"));
    let mut engine = town.engine();
    engine.decide(town.now);
    engine.observe(town.now, Observation::Pod(Arc::new(pod("new", None, shape("new", "500m")))));
    live_on(&mut engine, town.now, town.now + SignedDuration::from_secs(18));
    let plan = engine.plan().disruption.clone();
    let [kept] = plan.kept.as_slice() else { panic!("{plan:#?}") };
    assert_eq!(kept.code, "Nominated");
    let until = kept.next_look.expect("it is kept for a time");
    assert!(until > town.now && until <= town.now + SignedDuration::from_secs(30), "{until}");
}

fn dollars(text: &str) -> UsdPerHour {
    text.parse().expect("an amount")
}

/// Nodes, the types that come, savings, pods, and why not.
type Told<'c> = (Vec<&'c str>, Vec<&'c str>, String, usize, &'static str);

fn others(command: &Command) -> Vec<Told<'_>> {
    let names = |one: &Alternative| one.nodes.iter().map(|node| node.as_str()).collect();
    let types =
        |one: &Alternative| one.replacements.iter().map(|option| option.instance_type.as_str()).collect();
    let told = |one: &Alternative| (names(one), types(one), one.savings.to_string(), one.pods, one.code);
    command.alternatives.iter().map(told).collect()
}

#[test]
fn a_replacement_says_why_nothing_less_would_do_and_what_the_next_type_saves() {
    let mut town = Town::with(|_| ());
    town.node("n", "m5.2xlarge");
    town.run("web", "n", shape("web", "500m"));
    town.run("api", "n", shape("api", "500m"));
    let command = town.command();
    assert_eq!(command.savings, dollars("0.288"));
    assert_eq!(command.least_savings, Some(dollars("0.0096")), "a fortieth of what the pool pays for it");
    assert_eq!(
        others(&command),
        [
            (vec!["n"], vec![], "0.384".into(), 2, "NeedsReplacement"),
            (vec!["n"], vec!["m5.xlarge"], "0.192".into(), 2, "SavesLess"),
        ]
    );
    let messages: Vec<&str> = command.alternatives.iter().map(|one| one.message.as_str()).collect();
    assert_eq!(messages, ["none of its 2 pods finds a place on what stays", "it saves $0.096 an hour less"]);
}

#[test]
fn a_drifted_node_says_the_same() {
    let mut town = full(|_| ());
    town.drift("n", "2026-03-04T09:00:00Z");
    let command = town.command();
    assert_eq!((command.method, command.least_savings), (Method::Drift, None));
    assert_eq!(
        others(&command),
        [
            (vec!["n"], vec![], "0.096".into(), 1, "NeedsReplacement"),
            (vec!["n"], vec!["m5.xlarge"], "-0.096".into(), 1, "SavesLess"),
        ]
    );
    // What is given back for nothing has no better way, and a fixed number of nodes was never less.
    assert_eq!(others(&empty(|_| ()).command()), []);
    let mut fixed = full(|pool| pool.replicas = Some(1));
    fixed.drift("n", "2026-03-04T09:00:00Z");
    let others = fixed.command().alternatives;
    assert!(!others.is_empty() && others.iter().all(|one| one.code == "SavesLess"), "{others:?}");
}

/// Three nodes of which none can go alone: what else was looked at as a whole is told.
#[test]
fn a_set_that_goes_as_a_whole_says_which_others_it_beat() {
    let mut town = Town::with(|_| ());
    town.node("a", "m5.xlarge");
    town.run("a-0", "a", shape("web", "2300m"));
    town.run("a-1", "a", shape("web", "1100m"));
    town.node("b", "m5.xlarge");
    town.run("b-0", "b", shape("web", "2900m"));
    town.node("c", "m5.xlarge");
    town.run("c-0", "c", shape("web", "2400m"));
    let command = town.command();
    assert_eq!(command.method, Method::MultiNodeConsolidation);
    assert!(!command.alternatives.is_empty() && command.alternatives.len() <= 3, "{command:#?}");
    let sorted = command.alternatives.windows(2).all(|pair| pair[0].savings >= pair[1].savings);
    assert!(sorted, "{:#?}", command.alternatives);
    let all = command.alternatives.iter();
    assert!(all.clone().all(|one| one.nodes != command.nodes || one.savings != command.savings), "{all:#?}");
}

#[test]
fn who_waits_at_rest_and_is_refused_by_nobody_has_a_reason() {
    let mut town = Town::with(|_| ());
    let waiting = |town: &Town| -> Vec<(&str, bool)> {
        let settings = EngineSettings::default();
        let scene = Stage::resting(town.cluster.clone(), town.now, settings, true).scene();
        scene.waiting.into_values().flatten().map(|reason| (reason.code, reason.is_refusal())).collect()
    };
    town.cluster.put_pod(Arc::new(pod("web", None, shape("web", "1900m"))));
    let reasons = waiting(&town);
    assert_eq!(reasons, [("NotReached", false)], "a pool would take it");
    town.cluster.put_pod(Arc::new(pod("large", None, shape("large", "90"))));
    let refused = ("ResourcesExceedEveryType", true);
    assert_eq!(waiting(&town), [refused, ("NotReached", false)], "in the order of their names");
}
