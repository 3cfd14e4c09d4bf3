//! When nodes are judged, in which order methods are asked, and how what was begun is taken back.

use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::decision::Decision;
use provisor::capacity::disruption::{Kind, Method};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::action::{Action, Subject};
use provisor::model::claim::{ConditionStatus, ConditionType};
use provisor::model::label::{self, annotation};
use provisor::model::name::{ClaimName, NodeName, ObjectKey};
use provisor::model::observation::Observation;
use provisor::model::pool::{Budget, BudgetNodes, BudgetWindow};
use provisor::model::roll::Roll;
use provisor::model::taint::Taint;
use provisor::model::time::Patience;

use super::town::*;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn deletes(decision: &Decision) -> Vec<&'static str> {
    let names = decision.actions.iter().filter_map(|one| match &one.action {
        Action::DeleteClaim { claim } => Some(claim.as_str()),
        _ => None,
    });
    names.collect()
}

fn outdate(town: &mut Town, node: &str) {
    town.change_claim(node, |claim| {
        claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
        claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
    });
}

#[test]
fn dis_129_nothing_goes_before_the_picture_is_complete() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    let mut engine = Engine::new(EngineSettings::default());
    objects(&town.cluster).into_iter().for_each(|seen| engine.observe(town.now, seen));
    for minute in 0..10 {
        assert_eq!(engine.decide(town.now + SignedDuration::from_mins(minute)).actions, []);
    }
    let now = town.now + SignedDuration::from_mins(10);
    engine.observe(now, Observation::Synced);
    let gone: Vec<_> =
        decisions(&mut engine, now, now + seconds(20)).iter().flat_map(|(_, one)| deletes(one)).collect();
    assert_eq!(gone, ["n1-claim"], "then it is judged at once");
}

#[test]
fn dis_130_after_a_pass_without_a_find_the_next_one_is_ten_seconds_later() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "1500m"));
    let mut engine = town.engine();
    engine.decide(town.now);
    assert!(engine.plan().disruption.commands.is_empty());
    let news = town.now + seconds(1);
    engine.observe(news, Observation::PodGone(ObjectKey::new("default", "web")));
    assert_eq!(engine.decide(news).wake_at, Some(town.now + seconds(10)));
    for second in 1..10 {
        engine.decide(town.now + seconds(second));
        assert!(engine.plan().disruption.commands.is_empty(), "after {second} s");
    }
    engine.decide(town.now + seconds(10));
    assert_eq!(engine.plan().disruption.commands.len(), 1);
}

#[test]
fn dis_205_what_was_judged_is_judged_again_after_five_minutes_or_when_something_happens() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "1500m"));
    let mut engine = town.engine();
    engine.decide(town.now);
    let first = engine.plan().disruption.clone();
    for second in [1, 10, 60, 299] {
        engine.decide(town.now + seconds(second));
        assert!(Arc::ptr_eq(&first, &engine.plan().disruption), "nothing happened for {second} s");
    }
    let mut other = engine.clone();
    engine.decide(town.now + seconds(300));
    assert!(!Arc::ptr_eq(&first, &engine.plan().disruption));
    other.observe(town.now + seconds(299), Observation::PodGone(ObjectKey::new("default", "web")));
    other.decide(town.now + seconds(299));
    assert!(!Arc::ptr_eq(&first, &other.plan().disruption));
}

/// What one method finds is begun before the next one is asked, at the same moment.
#[test]
fn dis_131_each_method_sees_what_the_one_before_it_began() {
    let mut town = Town::with(|_| ());
    town.node("empty", "m5.large");
    town.node("old", "m5.large");
    town.run("web", "old", shape("web", "1500m"));
    town.drift("old", NOW);
    let commands = town.plan().commands;
    let found: Vec<_> = commands.iter().map(|one| (one.method, one.nodes[0].as_str(), one.kind())).collect();
    assert_eq!(found, [(Method::Emptiness, "empty", Kind::Delete), (Method::Drift, "old", Kind::Replace)]);
    // The same node without the one that goes first.
    town.change_node("empty", |node| {
        node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
    });
    let commands = town.plan().commands;
    let found: Vec<_> = commands.iter().map(|one| (one.method, one.nodes[0].as_str(), one.kind())).collect();
    assert_eq!(found, [(Method::Drift, "old", Kind::Delete)]);
}

/// A node that a command of a former life left tainted.
fn left_behind() -> Town {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "1500m"));
    town.change_node("n1", |node| node.taints.push(Taint::disrupted()));
    let now = town.now;
    town.change_claim("n1", |claim| {
        claim.conditions.set(ConditionType::DisruptionReason, ConditionStatus::True, "Empty", "Empty", now);
    });
    town
}

fn is_clean(engine: &Engine) -> bool {
    let claim = &engine.cluster().claims[&ClaimName::new("n1-claim")];
    engine.cluster().nodes[&NodeName::new("n1")].taints.is_empty()
        && claim.conditions.get(ConditionType::DisruptionReason).is_none()
}

#[test]
fn dis_132_taint_and_reason_without_a_command_are_taken_away() {
    let town = left_behind();
    let mut engine = town.engine();
    let decision = engine.decide(town.now);
    assert!(is_clean(&engine));
    assert_eq!(deletes(&decision), Vec::<&str>::new());
    // A taint alone, too.
    let mut town = left_behind();
    town.change_claim("n1", |claim| claim.conditions.clear(ConditionType::DisruptionReason));
    let mut engine = town.engine();
    engine.decide(town.now);
    assert!(is_clean(&engine));
}

#[test]
fn dis_141_what_could_not_be_taken_away_is_tried_again_at_once() {
    for subject in ["Node n1", "NodeClaim n1-claim"] {
        let town = left_behind();
        let mut engine = town.engine();
        engine.decide(town.now);
        assert!(is_clean(&engine));
        let failed = Observation::ActionFailed {
            subject: subject.into(),
            message: "the object has been modified".into(),
        };
        engine.observe(town.now, failed);
        assert!(!is_clean(&engine), "{subject}");
        let decision = engine.decide(town.now);
        assert!(is_clean(&engine), "{subject}");
        let again = decision.actions.iter().filter(|one| one.reason.code == "DisruptionFailed").count();
        assert!(again > 0, "{subject}: {:?}", decision.actions);
        let warnings = decision
            .actions
            .iter()
            .filter(|one| matches!(&one.action, Action::Publish(notice) if notice.is_warning));
        assert_eq!(warnings.count(), 0, "{subject}: nobody is troubled");
    }
}

#[test]
fn dis_134_a_node_whose_replacements_are_lost_is_tried_again_and_again() {
    let mut town = Town::with(|pool| {
        pool.disruption.consolidate_after = Patience::never();
        pool.roll = Ok(Roll { halt_after: 9, ..Roll::default() });
    });
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "1500m"));
    outdate(&mut town, "n1");
    let mut engine = town.engine();
    let mut now = town.now;
    for time in 0..4 {
        let first = engine.decide(now);
        assert_eq!(reasons(&first).contains_key("DisruptionFailed"), time > 0, "time {time}");
        echo(&mut engine, now);
        // Four minutes are what its pool is left alone after the third time.
        let later = decisions(&mut engine, now, now + seconds(255));
        let started: Vec<_> =
            first.started.iter().chain(later.iter().flat_map(|(_, decision)| &decision.started)).collect();
        assert_eq!(started.len(), 1, "time {time}");
        assert_eq!(started[0].nodes, [NodeName::new("n1")]);
        now += seconds(255);
        let is_new = |name: &ClaimName| name.as_str() != "n1-claim";
        let new: Vec<ClaimName> = engine.cluster().claims.keys().copied().filter(is_new).collect();
        assert_eq!(new.len(), 1, "time {time}");
        engine.observe(now, Observation::ClaimGone(new[0]));
    }
}

#[test]
fn dis_138_pods_of_a_node_that_is_going_may_wait_for_one_that_is_not_ready() {
    let mut town = Town::with(|_| ());
    town.node("going", "m5.large");
    town.run("leaves", "going", shape("leaves", "1800m"));
    town.node("new", "m5.2xlarge");
    for (node, cpu) in [("a", "400m"), ("b", "900m")] {
        town.node(node, "m5.large");
        town.run(&format!("on-{node}"), node, shape("web", cpu));
    }
    let now = town.now;
    town.change_claim("going", |claim| claim.deleted = Some(now));
    town.change_node("going", |node| node.deleted = Some(now));
    town.change_claim("new", |claim| claim.conditions.clear(ConditionType::Initialized));
    town.change_node("new", |node| node.labels.retain(|key, _| *key != *label::INITIALIZED));
    // The pod of the one that goes fits on the new one alone, and holds up nobody.
    let command = town.command();
    assert_eq!((command.kind(), command.nodes.len()), (Kind::Delete, 1));
    let node = command.nodes[0].as_str();
    assert!(["a", "b"].contains(&node), "{node}");
}

/// Rows: DIS-139, DIS-140
#[test]
fn dis_139_a_pool_that_is_broken_holds_up_no_other() {
    let mut broken = pool("broken");
    broken.fault = Some("a label is wrong".into());
    broken.is_ready = false;
    broken.weight = 100;
    let mut lost = pool("lost");
    Arc::make_mut(&mut lost.template).class.name = "lost".into();
    lost.weight = 90;
    let mut closed = pool("closed");
    Arc::make_mut(&mut closed.template).class.name = "unready".into();
    closed.weight = 80;
    for other in [broken, lost, closed] {
        let mut town = Town::new(vec![other.clone(), pool("default")]);
        let mut unready = class("unready");
        unready.is_ready = false;
        town.cluster.classes.insert("unready".into(), Arc::new(unready));
        town.node("empty", "m5.large");
        for node in ["a", "b"] {
            town.node(node, "m5.large");
            town.run(&format!("on-{node}"), node, shape("web", "500m"));
        }
        town.node("old", "m5.large");
        let mut pinned = shape("old", "1500m");
        pinned.node_selector.insert(*label::NODEPOOL, "default".into());
        town.run("on-old", "old", pinned);
        town.drift("old", NOW);
        let gone = town.gone();
        assert!(gone.contains(&"empty") && gone.contains(&"old"), "{}: {gone:?}", other.name);
        assert_eq!(
            gone.iter().filter(|node| ["a", "b"].contains(node)).count(),
            1,
            "{}: {gone:?}",
            other.name
        );
    }
}

#[test]
fn dis_142_a_budget_that_cannot_be_read_closes_its_pool_and_is_told_once() {
    let window = BudgetWindow { schedule: "0 0 * * tue-mon".into(), duration: SignedDuration::from_hours(1) };
    let mut broken = pool("broken");
    broken.disruption.budgets =
        vec![Budget { nodes: BudgetNodes::Count(9), reasons: Vec::new(), window: Some(window) }];
    let mut town = Town::new(vec![broken, pool("default")]);
    town.node("fine", "m5.large");
    ["a", "b"].into_iter().for_each(|node| town.node_of("broken", node, "m5.large", "on-demand"));
    let mut engine = town.engine();
    let all = decisions(&mut engine, town.now, town.now + SignedDuration::from_mins(10));
    let gone: Vec<_> = all.iter().flat_map(|(_, decision)| deletes(decision)).collect();
    assert_eq!(gone, ["fine-claim"]);
    let stays: Vec<_> = all.iter().flat_map(|(_, decision)| &decision.stays).collect();
    let of_pool = stays.iter().filter(|stay| matches!(stay.subject, Subject::Pool(_))).count();
    assert_eq!(of_pool, 1, "{stays:?}");
    let why = "a budget of pool broken cannot be read, so nothing of it may go: ";
    let of_nodes: Vec<_> = stays.iter().filter(|stay| stay.reason.message.contains(why)).collect();
    assert_eq!(of_nodes.len(), 2, "each node once: {stays:?}");
}

/// One after the other, because the dearest cannot go and so no two can go together.
#[test]
fn dis_122_five_passes_give_back_no_more_nodes_than_the_budget_lets() {
    let mut town = Town::with(|pool| {
        pool.disruption.budgets =
            vec![Budget { nodes: BudgetNodes::Percent(30), reasons: Vec::new(), window: None }];
    });
    town.node("n0", "m5.2xlarge");
    town.change_node("n0", |node| {
        node.labels.insert("example.com/slot".into(), "1".into());
    });
    let mut pinned = shape("pinned", "500m");
    pinned.node_selector.insert("example.com/slot".into(), "1".into());
    town.run("pinned", "n0", pinned);
    for index in 1..10 {
        let node = format!("n{index}");
        town.node(&node, "m5.large");
        town.run(&format!("web-{index}"), &node, shape("web", "100m"));
    }
    let mut engine = town.engine();
    let all = decisions(&mut engine, town.now, town.now + seconds(65));
    let started: Vec<_> = all.iter().flat_map(|(_, decision)| &decision.started).collect();
    let nodes: usize = started.iter().map(|command| command.nodes.len()).sum();
    assert_eq!(nodes, 3, "{started:#?}");
    assert!(started.iter().all(|command| command.kind() == Kind::Delete));
    let tainted = engine.cluster().nodes.values().filter(|node| node.taints.contains(&Taint::disrupted()));
    assert_eq!(tainted.count(), 3);
}
