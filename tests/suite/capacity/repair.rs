//! Nodes that do not work, or are not what was bought.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::{Decision, Planned};
use provisor::capacity::engine::Engine;
use provisor::model::action::{Action, Notice, Subject};
use provisor::model::claim::ConditionType;
use provisor::model::label::{self, annotation};
use provisor::model::name::{ClaimName, NodeName};
use provisor::model::node::{Node, NodeCondition};
use provisor::model::observation::Observation;
use provisor::model::pool::{Budget, BudgetNodes};
use provisor::model::quantity::ResourceName;
use provisor::model::symbol::Symbol;
use provisor::model::time::Patience;

use super::town::*;

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

fn condition(kind: &str, status: &str, since: Timestamp) -> NodeCondition {
    NodeCondition { kind: Symbol::new(kind), status: Symbol::new(status), since: Some(since) }
}

/// A pool with so many nodes, `n0` and on, under an engine that repairs.
fn town_of(count: usize) -> Town {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.settings.repairs = true;
    for index in 0..count {
        town.node(&format!("n{index}"), "m5.large");
    }
    town
}

/// What is wrong with a node from now on.
fn sicken(town: &mut Town, name: &str, kind: &str, status: &str) {
    let now = town.now;
    town.change_node(name, |node| {
        node.conditions.retain(|known| &*known.kind != kind);
        node.conditions.push(condition(kind, status, now));
    });
}

/// Claims that are deleted because their nodes are sick, and when, in minutes.
fn repaired(town: &Town, until: i64) -> Vec<(i64, String)> {
    let mut engine = town.engine();
    let mut done = Vec::new();
    for minute in 0..=until {
        let decision = engine.decide(town.now + minutes(minute));
        let deleted = decision.actions.iter().filter_map(|one| match &one.action {
            Action::DeleteClaim { claim } if one.reason.code == "Unhealthy" => {
                Some((minute, claim.to_string()))
            }
            _ => None,
        });
        done.extend(deleted);
        echo(&mut engine, town.now + minutes(minute));
    }
    done
}

fn deadline(engine: &Engine, node: &str) -> Option<Timestamp> {
    let claim = &engine.cluster().claims[&ClaimName::new(&format!("{node}-claim"))];
    claim.annotations.get(&*annotation::TERMINATION_TIMESTAMP).map(|at| at.parse().expect("a moment"))
}

fn notices(decision: &Decision, reason: &str) -> Vec<Notice> {
    let told = decision.actions.iter().filter_map(|one: &Planned| match &one.action {
        Action::Publish(notice) if &*notice.reason == reason => Some(notice.clone()),
        _ => None,
    });
    told.collect()
}

/// Rows: TER-043, TER-044
#[test]
fn ter_043_a_node_that_is_sick_for_too_long_is_replaced() {
    for (kind, status, after) in [
        ("Ready", "False", Some(30)),
        ("Ready", "Unknown", Some(30)),
        ("AcceleratedHardwareReady", "False", Some(10)),
        ("StorageReady", "False", Some(30)),
        ("NetworkingReady", "False", Some(30)),
        ("KernelReady", "False", Some(30)),
        ("ContainerRuntimeReady", "False", Some(30)),
        ("KernelReady", "Unknown", None),
        ("AcceleratedHardwareReady", "True", None),
        ("DiskPressure", "True", None),
    ] {
        let mut town = town_of(5);
        sicken(&mut town, "n1", kind, status);
        let expected: Vec<_> = after.map(|minute| (minute, "n1-claim".to_owned())).into_iter().collect();
        assert_eq!(repaired(&town, 90), expected, "{kind}={status}: once, and no other");
        town.settings.repairs = false;
        assert_eq!(repaired(&town, 90), [], "somebody else looks after sick nodes");
    }
    let mut town = town_of(5);
    sicken(&mut town, "n1", "KernelReady", "False");
    let mut engine = town.engine();
    let wake = engine.decide(town.now).wake_at;
    assert!(wake.is_some_and(|at| at <= town.now + minutes(30)), "nobody has to ask in between");
    engine.decide(town.now + minutes(30));
    assert_eq!(deadline(&engine, "n1"), Some(town.now + minutes(30)));
    // It recovers in time.
    let mut engine = town.engine();
    engine.decide(town.now);
    let healthy =
        Node { conditions: vec![ready("True")], ..(*engine.cluster().nodes[&NodeName::new("n1")]).clone() };
    engine.observe(town.now + minutes(29), Observation::Node(Arc::new(healthy)));
    let done = (29..90).flat_map(|minute| engine.decide(town.now + minutes(minute)).actions);
    assert!(!done.into_iter().any(|one| one.reason.code == "Unhealthy"));
}

/// Rows: TER-045
#[test]
fn ter_045_of_several_sicknesses_the_one_that_is_due_first_counts() {
    let mut town = town_of(5);
    sicken(&mut town, "n1", "KernelReady", "False");
    town.now += minutes(5);
    sicken(&mut town, "n1", "AcceleratedHardwareReady", "False");
    assert_eq!(repaired(&town, 60), [(10, "n1-claim".to_owned())]);
    let mut town = town_of(5);
    sicken(&mut town, "n1", "KernelReady", "False");
    town.now += minutes(25);
    sicken(&mut town, "n1", "AcceleratedHardwareReady", "False");
    assert_eq!(repaired(&town, 60), [(5, "n1-claim".to_owned())]);
}

/// Rows: TER-046
#[test]
fn ter_046_a_sick_node_has_no_time_left() {
    for (grace, agreed) in
        [(Some(60), None), (None, None), (None, Some(20)), (None, Some(40)), (Some(60), Some(20))]
    {
        let mut town = town_of(5);
        sicken(&mut town, "n1", "KernelReady", "False");
        let now = town.now;
        town.change_claim("n1", |claim| {
            claim.spec.termination_grace = grace.map(minutes);
            let agreed = agreed.map(|minute| now + minutes(minute));
            claim
                .annotations
                .extend(agreed.map(|at| (*annotation::TERMINATION_TIMESTAMP, Symbol::new(&at.to_string()))));
        });
        let mut engine = town.engine();
        engine.decide(now);
        engine.decide(now + minutes(30));
        let expected = now + minutes(agreed.filter(|minute| *minute < 30).unwrap_or(30));
        assert_eq!(deadline(&engine, "n1"), Some(expected), "{grace:?} {agreed:?}");
    }
    // A drain that is held up by its pods ends, too.
    let mut town = town_of(5);
    let mut protected = shape("web", "100m");
    protected.do_not_disrupt = Some("true".into());
    town.run("web", "n1", protected);
    sicken(&mut town, "n1", "KernelReady", "False");
    let now = town.now;
    town.change_claim("n1", |claim| claim.deleted = Some(now));
    town.change_node("n1", |node| node.deleted = Some(now));
    let mut engine = town.engine();
    let forced = (0..60).find(|minute| {
        let decision = engine.decide(now + minutes(*minute));
        decision.actions.iter().any(|one| matches!(one.action, Action::DeletePod { .. }))
    });
    assert_eq!(forced, Some(30));
}

/// Rows: TER-047
#[test]
fn ter_047_neither_budgets_nor_protection_keep_a_sick_node() {
    let mut town = town_of(5);
    town.change_pool("default", |pool| {
        pool.disruption.budgets =
            vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: None }];
    });
    let mut protected = shape("web", "100m");
    protected.do_not_disrupt = Some("true".into());
    town.run("web", "n1", protected);
    town.add_budget(pdb("web", "web", 0));
    town.change_node("n1", |node| {
        node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
    });
    town.change_claim("n1", |claim| {
        claim.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
    });
    sicken(&mut town, "n1", "Ready", "Unknown");
    assert_eq!(repaired(&town, 60), [(30, "n1-claim".to_owned())]);
}

/// Rows: TER-048
#[test]
fn ter_048_where_many_are_sick_none_is_repaired() {
    let after = |count: usize, sick: usize| {
        let mut town = town_of(count);
        for index in 0..sick {
            sicken(&mut town, &format!("n{index}"), "Ready", "Unknown");
        }
        repaired(&town, 44).len()
    };
    // A fifth of them, rounded up.
    for (count, sick, expected) in
        [(1, 1, 1), (3, 1, 1), (3, 2, 0), (5, 1, 1), (5, 2, 0), (6, 2, 2), (10, 2, 2), (10, 3, 0)]
    {
        assert_eq!(after(count, sick), expected, "{sick} of {count}");
    }
    // One that has just become sick counts as well, other pools do not.
    let mut town = Town::new(vec![pool("default"), pool("other")]);
    town.settings.repairs = true;
    for name in ["a", "b", "c"] {
        town.node(name, "m5.large");
    }
    for name in ["x", "y", "z"] {
        town.node_of("other", name, "m5.large", "on-demand");
        // They run something, so they stay.
        town.run(&format!("web-{name}"), name, shape("web", "1500m"));
    }
    for name in ["a", "b", "c"] {
        town.run(&format!("web-{name}"), name, shape("web", "1500m"));
    }
    sicken(&mut town, "a", "Ready", "False");
    sicken(&mut town, "x", "Ready", "False");
    town.now += minutes(29);
    sicken(&mut town, "b", "KernelReady", "False");
    let mut engine = town.engine();
    engine.decide(town.now);
    let decision = engine.decide(town.now + minutes(1));
    let deleted: Vec<&Action> =
        decision.actions.iter().filter(|one| one.reason.code == "Unhealthy").map(|one| &one.action).collect();
    assert!(deleted.contains(&&Action::DeleteClaim { claim: "x-claim".into() }), "{deleted:?}");
    assert!(!deleted.contains(&&Action::DeleteClaim { claim: "a-claim".into() }), "{deleted:?}");
    let told: BTreeSet<Subject> =
        notices(&decision, "NodeRepairBlocked").into_iter().map(|notice| notice.subject).collect();
    let expected =
        [Subject::Node("a".into()), Subject::Claim("a-claim".into()), Subject::Pool("default".into())];
    assert_eq!(told, BTreeSet::from(expected));
    assert!(decision.wake_at.is_some_and(|at| at <= town.now + minutes(6)), "it is looked at again");
    // The other one recovers.
    let healthy =
        Node { conditions: vec![ready("True")], ..(*engine.cluster().nodes[&NodeName::new("b")]).clone() };
    engine.observe(town.now + minutes(2), Observation::Node(Arc::new(healthy)));
    let done =
        (2..8).flat_map(|minute| engine.decide(town.now + minutes(minute)).actions).collect::<Vec<_>>();
    assert!(done.iter().any(|one| one.action == Action::DeleteClaim { claim: "a-claim".into() }));
}

#[test]
fn a_machine_without_a_pool_is_weighed_against_the_whole_cluster() {
    for (others, is_repaired) in [(4, true), (0, true), (9, true)] {
        let mut town = town_of(others + 1);
        town.change_claim("n0", |claim| {
            claim.labels.remove(&*label::NODEPOOL);
        });
        sicken(&mut town, "n0", "Ready", "False");
        assert_eq!(repaired(&town, 31).len(), usize::from(is_repaired), "beside {others}");
    }
    let mut town = town_of(5);
    town.change_claim("n0", |claim| {
        claim.labels.remove(&*label::NODEPOOL);
    });
    sicken(&mut town, "n0", "Ready", "False");
    // Of another pool, and of no interest to a pool's own share.
    sicken(&mut town, "n1", "Ready", "False");
    assert_eq!(repaired(&town, 31), [], "two of five");
}

/// Rows: LIF-064, LIF-065
#[test]
fn lif_064_a_node_that_is_much_smaller_than_its_machine_is_told_of() {
    let memory = ResourceName::new("memory");
    for (percent, is_fine) in [(50, false), (89, false), (90, true), (100, true)] {
        let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
        town.node("n", "m5.large");
        town.change_claim("n", |claim| {
            claim.spec.requests = requests("1");
            claim.capacity.set(memory, 8 << 30);
        });
        town.change_node("n", |node| node.capacity.set(memory, ((8 << 30) / 100) * percent + 99));
        let mut engine = town.engine();
        let says = |engine: &Engine| {
            let claim = &engine.cluster().claims[&ClaimName::new("n-claim")];
            let known = claim.conditions.get(ConditionType::ConsistentStateFound).expect("it was compared");
            format!("{} {}", known.status.as_str(), known.reason)
        };
        let decision = engine.decide(town.now);
        let told = notices(&decision, "FailedConsistencyCheck");
        assert_eq!(told.len(), usize::from(!is_fine), "{percent}%");
        if is_fine {
            assert_eq!(says(&engine), "True ConsistentStateFound");
        } else {
            assert_eq!(says(&engine), "False ConsistencyCheckFailed");
            assert_eq!(told[0].subject, Subject::Claim("n-claim".into()));
            let text = &told[0].message;
            let words = ["expected 8Gi of resource memory", &format!("({percent}% of expected)")];
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        assert!(engine.cluster().claims[&ClaimName::new("n-claim")].deleted.is_none(), "its pods run");
        // What changes within ten minutes is seen when they are over.
        echo(&mut engine, town.now);
        let node = &engine.cluster().nodes[&NodeName::new("n")];
        let mut other = (**node).clone();
        other.capacity.set(memory, if is_fine { 1 << 30 } else { 8 << 30 });
        engine.observe(town.now + minutes(1), Observation::Node(Arc::new(other)));
        let before = says(&engine);
        let changed = (1..20).find(|minute| {
            engine.decide(town.now + minutes(*minute));
            says(&engine) != before
        });
        assert_eq!(changed, Some(10), "{percent}%");
    }
    // A node that has yet to be initialized may still grow.
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n", "m5.large");
    town.change_claim("n", |claim| {
        claim.spec.requests = requests("1");
        claim.conditions.clear(ConditionType::Initialized);
    });
    town.change_node("n", |node| {
        node.capacity.set(memory, 1 << 30);
        node.conditions = vec![ready("False")];
    });
    let mut engine = town.engine();
    engine.decide(town.now);
    let claim = &engine.cluster().claims[&ClaimName::new("n-claim")];
    assert_eq!(claim.conditions.get(ConditionType::ConsistentStateFound), None);
}
