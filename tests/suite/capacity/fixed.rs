//! Pools that keep a number of nodes: when one is made, which one goes.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::action::Action;
use provisor::model::claim::ConditionType;
use provisor::model::claim::NodeClaim;
use provisor::model::label;
use provisor::model::name::{ClaimName, NodeName, PoolName};
use provisor::model::observation::Observation;
use provisor::model::pool::{Budget, BudgetNodes, ClassRef, NodePool, PoolCondition};
use provisor::model::quantity::{Resources, resource};
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::taint::Taint;
use provisor::model::time::Patience;
use provisor::simulator::world::{Habits, World};

use super::town::*;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn limited(nodes: i64) -> Option<Resources> {
    let mut limits = Resources::new();
    limits.set(*resource::NODES, nodes);
    Some(limits)
}

/// A pool `fixed` that keeps so many nodes.
fn keeping(replicas: u32) -> Town {
    let mut fixed = pool("fixed");
    fixed.replicas = Some(replicas);
    Town::new(vec![fixed])
}

fn made(engine: &mut Engine, town: &Town, second: i64) -> Vec<Arc<NodeClaim>> {
    let actions = engine.decide(town.now + seconds(second)).actions;
    let claims = actions.into_iter().filter_map(|one| match one.action {
        Action::CreateClaim(claim) => Some(claim),
        _ => None,
    });
    claims.collect()
}

fn deleted(engine: &mut Engine, town: &Town, until: i64) -> BTreeSet<String> {
    let actions = (0..=until).flat_map(|second| engine.decide(town.now + seconds(second)).actions);
    let names = actions.filter_map(|one| match one.action {
        Action::DeleteClaim { claim } => Some(claim.to_string()),
        _ => None,
    });
    names.collect()
}

fn see_pool(engine: &mut Engine, town: &Town, second: i64, change: impl FnOnce(&mut NodePool)) {
    let mut pool = (*engine.cluster().pools[&PoolName::new("fixed")]).clone();
    change(&mut pool);
    engine.observe(town.now + seconds(second), Observation::Pool(Arc::new(pool)));
}

/// Rows: LIF-083, LIF-084, LIF-085
#[test]
fn lif_085_a_limit_of_nodes_is_never_passed() {
    for (replicas, limit, existing, expected) in [
        (3, Some(1), 1, 0),
        (15, Some(10), 3, 7),
        (15, Some(10), 10, 0),
        (3, None, 3, 0),
        (2, None, 3, 0),
        (100, Some(0), 0, 0),
    ] {
        let mut town = keeping(replicas);
        town.change_pool("fixed", |pool| pool.limits = limit.and_then(limited));
        for index in 0..existing {
            town.node_of("fixed", &format!("n{index}"), "m5.large", "on-demand");
        }
        let mut engine = town.engine();
        let total: usize = (0..90).map(|second| made(&mut engine, &town, second).len()).sum();
        assert_eq!(total, expected, "{replicas} wanted, {limit:?} allowed, {existing} there");
    }
}

/// Rows: LIF-081, LIF-086
#[test]
fn lif_086_only_ready_pools_of_ours_make_nodes() {
    let foreign: fn(&mut NodePool) = |pool| {
        let class = ClassRef { group: "other.dev".into(), kind: "OtherClass".into(), name: "default".into() };
        Arc::make_mut(&mut pool.template).class = class;
    };
    let ready: fn(&mut NodePool) = |_| ();
    let going: fn(&mut NodePool) = |pool| pool.is_deleting = true;
    let dynamic: fn(&mut NodePool) = |pool| pool.replicas = None;
    let classless: fn(&mut NodePool) = |pool| Arc::make_mut(&mut pool.template).class.name = "missing".into();
    let changes = [(ready, 2), (going, 0), (foreign, 0), (dynamic, 0), (classless, 0)];
    for (index, (change, expected)) in changes.into_iter().enumerate() {
        let mut town = keeping(2);
        town.change_pool("fixed", change);
        let mut engine = town.engine();
        let claims: Vec<_> = (0..70).flat_map(|second| made(&mut engine, &town, second)).collect();
        assert_eq!(claims.len(), expected, "{index}");
    }
    // What they are made from is the template alone.
    let mut town = keeping(1);
    town.change_pool("fixed", |pool| {
        let template = Arc::make_mut(&mut pool.template);
        template.labels.insert("team".into(), "web".into());
        template.annotations.insert("note".into(), "kept".into());
        template.taints = vec![Taint::disrupted()];
        let newer = Requirement::new(Operator::Gt, ["2".into()]);
        template.requirements.add("karpenter.k8s.aws/instance-generation".into(), newer);
    });
    let mut engine = town.engine();
    let claims = made(&mut engine, &town, 0);
    let claim = &claims[0];
    assert_eq!(claim.labels.get(&"team".into()).map(|one| one.as_str()), Some("web"));
    assert_eq!(claim.annotations.get(&"note".into()).map(|one| one.as_str()), Some("kept"));
    assert_eq!(claim.labels[&*label::NODEPOOL].as_str(), "fixed");
    assert_eq!(claim.spec.class.name, "default".into());
    assert_eq!(claim.spec.taints, [Taint::disrupted()]);
    let has = |key: &str| claim.spec.requirements.iter().any(|(known, _)| known.as_str() == key);
    assert!(has("karpenter.k8s.aws/instance-generation") && has("karpenter.sh/capacity-type"));
    assert!(claim.spec.requests.is_empty(), "no pod asked for it");
}

/// Rows: LIF-087
#[test]
fn lif_087_a_claim_that_cannot_be_made_is_made_again() {
    let town = keeping(2);
    let mut engine = town.engine();
    let claims = made(&mut engine, &town, 0);
    assert_eq!(claims.len(), 2);
    for claim in &claims {
        let subject = format!("NodeClaim {}", claim.name).into();
        engine.observe(
            town.now + seconds(1),
            Observation::ActionFailed { subject, message: "denied by a webhook".into() },
        );
    }
    assert!(engine.cluster().claims.is_empty(), "none is there");
    let again: usize = (1..90).map(|second| made(&mut engine, &town, second).len()).sum();
    assert_eq!(again, 2);
}

/// Rows: LIF-088
#[test]
fn lif_088_a_pool_acts_when_it_becomes_ready_or_wants_another_number() {
    let mut town = keeping(1);
    let class = town.cluster.classes.remove(&"default".into()).expect("there is one");
    let mut engine = town.engine();
    assert_eq!(made(&mut engine, &town, 0).len(), 0);
    assert!(!engine.cluster().pools[&PoolName::new("fixed")].conditions.is_true(PoolCondition::Ready));
    engine.observe(town.now + seconds(10), Observation::Class(class));
    let claims: usize = (10..13).map(|second| made(&mut engine, &town, second).len()).sum();
    assert_eq!(claims, 1, "its class is there");
    see_pool(&mut engine, &town, 20, |pool| pool.weight = 7);
    assert_eq!(made(&mut engine, &town, 20).len(), 0, "that is no matter of numbers");
    see_pool(&mut engine, &town, 30, |pool| pool.replicas = Some(4));
    assert_eq!(made(&mut engine, &town, 30).len(), 3);
}

/// Two nodes each with only a daemon, one pod, two pods, and a pod that must not be disturbed.
fn eight() -> Town {
    let mut town = keeping(8);
    // Names that sort the other way round.
    for (kind, pods) in [("d-idle", 0), ("c-one", 1), ("b-two", 2), ("a-kept", 1)] {
        for index in 0..2 {
            let node = format!("{kind}{index}");
            town.node_of("fixed", &node, "m5.2xlarge", "on-demand");
            let mut daemon = pod(&format!("daemon-{node}"), Some(&node), shape("daemon", "10m"));
            daemon.owners = vec![owned_by("DaemonSet")];
            town.cluster.put_pod(Arc::new(daemon));
            for number in 0..pods {
                let mut web = shape("web", "100m");
                web.do_not_disrupt = (kind == "a-kept").then(|| "true".into());
                town.run(&format!("web-{node}-{number}"), &node, web);
            }
        }
    }
    town
}

fn claims(nodes: &[&str]) -> BTreeSet<String> {
    nodes.iter().map(|node| format!("{node}-claim")).collect()
}

/// Rows: LIF-091, LIF-092, LIF-093, LIF-096
#[test]
fn lif_093_idle_nodes_go_first_and_protected_ones_last() {
    let order = ["d-idle0", "d-idle1", "c-one0", "c-one1", "b-two0", "b-two1", "a-kept0", "a-kept1"];
    for (replicas, gone) in [(8, 0), (7, 1), (6, 2), (4, 4), (2, 6), (0, 8)] {
        let mut town = eight();
        town.change_pool("fixed", |pool| {
            pool.replicas = Some(replicas);
            // Budgets are about what somebody else decides, not about how many nodes a pool is to have.
            pool.disruption.budgets =
                vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: None }];
        });
        let mut engine = town.engine();
        assert_eq!(deleted(&mut engine, &town, 30), claims(&order[..gone]), "{replicas} are to stay");
    }
}

/// Rows: LIF-090, LIF-094
#[test]
fn lif_090_what_was_never_launched_goes_before_what_serves() {
    let mut town = eight();
    town.change_pool("fixed", |pool| pool.replicas = Some(7));
    town.change_claim("a-kept1", |claim| {
        claim.provider_id = None;
        claim.conditions = Default::default();
    });
    town.cluster.remove_node("a-kept1".into());
    let mut engine = town.engine();
    assert_eq!(deleted(&mut engine, &town, 30), claims(&["a-kept1"]));

    // What is going already serves nobody: it is neither one too many nor counted as kept.
    let mut town = eight();
    let now = town.now;
    town.change_pool("fixed", |pool| pool.replicas = Some(6));
    for node in ["b-two0", "a-kept0"] {
        town.change_claim(node, |claim| claim.deleted = Some(now));
    }
    let mut engine = town.engine();
    assert_eq!(deleted(&mut engine, &town, 30), claims(&[]));
}

/// Rows: LIF-095
#[test]
fn lif_095_a_deletion_that_fails_stops_no_other() {
    let mut town = eight();
    town.change_pool("fixed", |pool| pool.replicas = Some(6));
    let mut engine = town.engine();
    assert_eq!(deleted(&mut engine, &town, 0), claims(&["d-idle0", "d-idle1"]));
    let subject = "NodeClaim d-idle0-claim".into();
    engine.observe(town.now + seconds(1), Observation::ActionFailed { subject, message: "no".into() });
    let claim = |name: &str| engine.cluster().claims[&ClaimName::new(name)].deleted.is_some();
    assert!(!claim("d-idle0-claim") && claim("d-idle1-claim"));
    assert_eq!(deleted(&mut engine, &town, 60), claims(&["d-idle0"]), "and is tried again");
}

/// However often an engine is followed by another one, and whatever it has not seen yet.
///
/// Rows: LIF-097
#[test]
fn lif_097_successors_in_the_middle_of_it_never_make_too_many() {
    let mut fixed = pool("fixed");
    fixed.replicas = Some(5);
    fixed.limits = limited(4);
    fixed.disruption.consolidate_after = Patience::never();
    for seed in 0..6 {
        let mut world = World::new(seed, at(NOW), catalog(), Habits::default());
        world.apply(Observation::Class(Arc::new(class("default"))));
        world.apply(Observation::Pool(Arc::new(fixed.clone())));
        let mut engine = Engine::new(EngineSettings::default());
        let (start, mut most) = (world.now(), 0);
        for step in 0..80 {
            let until = start + SignedDuration::from_millis(1_700 * (step + 1));
            live(&mut world, &mut engine, until, |_, _| ());
            most = most.max(world.objects().claims.len());
            // Somebody takes one away now and then; the replicas change; whoever acted is followed by another one.
            if step % 7 == 3
                && let Some(name) = world.objects().claims.keys().nth(step as usize % 3).copied()
            {
                world.perform(&Action::DeleteClaim { claim: name });
            }
            fixed.replicas = Some([5, 2, 9, 3][step as usize % 4]);
            if step % 3 == 0 {
                world.apply(Observation::Pool(Arc::new(fixed.clone())));
                engine = engine_of(
                    world.objects(),
                    world.now(),
                    EngineSettings { seed: step as u64, ..EngineSettings::default() },
                );
            }
        }
        assert!((3..=4).contains(&most), "seed {seed}: {most} at once");
    }
}

/// Rows: LIF-084
#[test]
fn lif_084_room_below_the_limit_is_used_once_it_is_there() {
    let mut town = keeping(3);
    town.change_pool("fixed", |pool| pool.limits = limited(1));
    town.node_of("fixed", "n", "m5.large", "on-demand");
    let mut engine = town.engine();
    assert_eq!((0..60).map(|second| made(&mut engine, &town, second).len()).sum::<usize>(), 0);
    see_pool(&mut engine, &town, 60, |pool| pool.limits = limited(2));
    assert_eq!((60..120).map(|second| made(&mut engine, &town, second).len()).sum::<usize>(), 1);
    let node = NodeName::new("n");
    assert!(engine.cluster().nodes[&node].deleted.is_none());
    assert!(engine.cluster().claims.values().any(|claim| !claim.conditions.is_true(ConditionType::Launched)));
}
