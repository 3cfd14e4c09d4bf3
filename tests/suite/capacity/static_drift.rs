//! Nodes of static pools that have drifted: one for one, as far as budgets and limits leave room for both.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::disruption::Method;
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::claim::{ConditionStatus, ConditionType};
use provisor::model::label::annotation;
use provisor::model::name::ClaimName;
use provisor::model::observation::Observation;
use provisor::model::pool::{Budget, BudgetNodes, DisruptionReason, NodePool};
use provisor::model::quantity::resource;
use provisor::simulator::world::{Habits, World};

use super::town::*;

/// A pool of so many nodes, of which so many may be away, and of which there are never more than so many.
fn fixed(name: &str, replicas: u32, nodes: BudgetNodes, limit: Option<i64>) -> NodePool {
    let mut pool = pool(name);
    pool.replicas = Some(replicas);
    pool.disruption.budgets = vec![Budget { nodes, reasons: vec![DisruptionReason::Drifted], window: None }];
    pool.limits = limit.map(|limit| [(*resource::NODES, limit)].into_iter().collect());
    pool
}

fn all() -> BudgetNodes {
    BudgetNodes::Percent(100)
}

/// Pools with so many nodes each, all of which have drifted.
fn drifted(pools: &[(NodePool, usize)]) -> Town {
    let mut town = Town::new(pools.iter().map(|(pool, _)| pool.clone()).collect());
    for (pool, count) in pools {
        for index in 0..*count {
            let node = format!("{}-{index}", pool.name);
            town.node_of(pool.name.as_str(), &node, "m5.large", "on-demand");
            town.drift(&node, NOW);
        }
    }
    town
}

/// Of each pool, how many of its nodes would be replaced in one pass.
fn replaced(town: &Town) -> Vec<usize> {
    let commands = town.plan().commands;
    let drift: Vec<_> = commands.iter().filter(|command| command.method == Method::StaticDrift).collect();
    for command in &drift {
        assert_eq!((command.nodes.len(), command.replacements.len()), (1, 1), "one for one");
        assert_eq!(command.replacements[0].pool, command.pools[0]);
    }
    let of = |pool| drift.iter().filter(|command| command.pools[0] == pool).count();
    town.cluster.pools.keys().map(|pool| of(*pool)).collect()
}

/// Rows: DIS-187, DIS-189, DIS-191, DIS-194, DIS-195
#[test]
fn dis_189_budgets_and_limits_say_how_many_are_replaced_at_once() {
    let count = BudgetNodes::Count;
    for (nodes, replicas, budget, limit, expected) in [
        (5, 5, count(2), None, 2),
        (5, 5, BudgetNodes::Percent(20), None, 1),
        (5, 5, all(), None, 5),
        (5, 5, all(), Some(5), 0),
        (5, 5, all(), Some(6), 1),
        (5, 5, all(), Some(7), 2),
        (5, 5, count(1), Some(7), 1),
        (5, 5, count(0), None, 0),
        (2, 0, all(), None, 0),
    ] {
        let town = drifted(&[(fixed("default", replicas, budget, limit), nodes)]);
        assert_eq!(replaced(&town), [expected], "{nodes} nodes, {replicas} wanted, {budget:?}, {limit:?}");
    }
    let full = drifted(&[(fixed("default", 2, all(), Some(2)), 2)]);
    assert_eq!(full.kept("default-0"), "LimitReached");
}

/// Rows: DIS-188, DIS-193
#[test]
fn dis_188_pools_are_replaced_beside_each_other() {
    let count = BudgetNodes::Count;
    let three = drifted(&[
        (fixed("a", 4, count(1), None), 2),
        (fixed("b", 3, count(2), None), 2),
        (fixed("c", 2, all(), None), 2),
    ]);
    assert_eq!(replaced(&three), [1, 2, 2]);
    let limited = drifted(&[
        (fixed("a", 3, all(), None), 3),
        (fixed("b", 2, all(), Some(2)), 2),
        (fixed("c", 2, all(), None), 2),
    ]);
    assert_eq!(replaced(&limited), [3, 0, 2]);
}

#[test]
fn dis_192_what_is_too_many_goes_first_and_what_is_left_is_replaced() {
    let town = drifted(&[(fixed("default", 1, all(), None), 2)]);
    let commands = town.plan().commands;
    let methods: Vec<_> = commands.iter().map(|command| command.method).collect();
    assert_eq!(methods, [Method::StaticScaleDown, Method::StaticDrift]);
    assert_ne!(commands[0].nodes, commands[1].nodes);
}

#[test]
fn dis_196_only_what_has_drifted_and_is_not_protected_is_replaced() {
    let mut town = Town::new(vec![fixed("default", 4, all(), None)]);
    for node in ["sound", "denied", "protected", "outdated"] {
        town.node(node, "m5.large");
    }
    let now = town.now;
    town.change_claim("denied", |claim| {
        claim.conditions.set(ConditionType::Drifted, ConditionStatus::False, "Moved", "", now);
    });
    town.drift("protected", NOW);
    town.drift("outdated", NOW);
    town.change_node("protected", |node| {
        node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
    });
    assert_eq!(town.gone(), ["outdated"]);
}

/// Rows: DIS-186, DIS-197
#[test]
fn dis_186_two_of_five_are_replaced_and_serve_until_their_replacements_do() {
    let mut town = Town::new(vec![fixed("default", 5, BudgetNodes::Count(2), None)]);
    for index in 0..5 {
        let node = format!("n{index}");
        town.node(&node, "m5.large");
        town.change_claim(&node, |claim| {
            claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
            claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
        });
    }
    let mut engine = town.engine();
    let started = engine.decide(town.now).started;
    assert_eq!(started.len(), 2, "both in one pass");
    echo(&mut engine, town.now);
    let is_old = |name: &ClaimName| name.as_str().ends_with("-claim");
    let new: Vec<_> =
        engine.cluster().claims.values().filter(|claim| !is_old(&claim.name)).cloned().collect();
    assert_eq!((engine.cluster().claims.len(), new.len()), (7, 2));
    let going =
        |engine: &Engine| engine.cluster().claims.values().filter(|claim| claim.deleted.is_some()).count();
    decisions(&mut engine, town.now, town.now + SignedDuration::from_secs(60));
    assert_eq!(going(&engine), 0, "none is there yet");
    let now = town.now + SignedDuration::from_secs(60);
    for (count, claim) in new.iter().enumerate() {
        assert_eq!(going(&engine), count, "each goes with its own replacement");
        let mut claim = (**claim).clone();
        for kind in [ConditionType::Launched, ConditionType::Registered, ConditionType::Initialized] {
            claim.conditions.set(kind, ConditionStatus::True, "", "", now);
        }
        engine.observe(now, Observation::Claim(Arc::new(claim)));
        engine.decide(now);
    }
    let left = engine.cluster().claims.values().filter(|claim| claim.deleted.is_none()).count();
    assert_eq!((left, going(&engine)), (5, 2));
}

/// Lets a pool of five live through a change of its template; tells the most claims that there were, and what is left of the old.
fn roll(budget: BudgetNodes, limit: Option<i64>) -> (usize, usize) {
    let mut pool = fixed("default", 5, budget, limit);
    let mut world = World::new(7, at(NOW), catalog(), Habits::default());
    world.apply(Observation::Class(Arc::new(class("default"))));
    world.apply(Observation::Pool(Arc::new(pool.clone())));
    let mut engine = Engine::new(EngineSettings::default());
    let mut until = world.now() + SignedDuration::from_mins(3);
    live(&mut world, &mut engine, until, |_, _| ());
    let old: BTreeSet<ClaimName> = world.objects().claims.keys().copied().collect();
    assert_eq!(old.len(), 5);
    pool.hash = Some("18".into());
    world.apply(Observation::Pool(Arc::new(pool)));
    let mut most = 0;
    for _ in 0..400 {
        until += SignedDuration::from_secs(5);
        live(&mut world, &mut engine, until, |_, _| ());
        most = most.max(world.objects().claims.len());
    }
    let claims = &world.objects().claims;
    assert_eq!(claims.len(), 5);
    (most, claims.keys().filter(|name| old.contains(name)).count())
}

/// Rows: DIS-191
#[test]
fn dis_191_a_limit_is_never_passed_and_all_are_replaced_in_the_end() {
    assert_eq!(roll(all(), Some(6)), (6, 0));
    assert_eq!(roll(all(), Some(7)), (7, 0));
    assert_eq!(roll(all(), Some(5)), (5, 5), "there is never room for one more");
}
