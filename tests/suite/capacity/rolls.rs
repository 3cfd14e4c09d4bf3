//! Rolls of drifted nodes: tries that fail, pools that take turns, and what people say of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::Decision;
use provisor::capacity::disruption::Method;
use provisor::capacity::engine::Engine;
use provisor::model::action::{Action, Subject};
use provisor::model::claim::ConditionStatus::{self, True};
use provisor::model::claim::{ConditionType, NodeClaim};
use provisor::model::label::{self, annotation};
use provisor::model::name::{ClaimName, NodeName, PoolName, Zone};
use provisor::model::node::Node;
use provisor::model::observation::{LaunchFailure, Observation, Shortage};
use provisor::model::offering::CapacityType;
use provisor::model::pool::{Budget, BudgetNodes, NodePool, PoolCondition};
use provisor::model::roll::{Roll, RollFault};
use provisor::model::time::Patience;

use super::town::*;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

/// A pool in which nothing goes to save money, and so many at a time because they have drifted.
fn rolling(name: &str, at_once: u32, roll: Roll) -> NodePool {
    let budget = Budget { nodes: BudgetNodes::Count(at_once), reasons: Vec::new(), window: None };
    let mut pool = pool(name);
    pool.disruption.consolidate_after = Patience::never();
    pool.disruption.budgets = vec![budget];
    pool.roll = Ok(roll);
    pool
}

/// A full node that was made from another template.
fn outdated(town: &mut Town, pool: &str, node: &str) {
    town.node_of(pool, node, "m5.large", "on-demand");
    let mut shape = shape("web", "1500m");
    shape.node_selector.insert(*label::NODEPOOL, pool.into());
    town.run(&format!("web-{node}"), node, shape);
    outdate(town, node);
}

fn outdate(town: &mut Town, node: &str) {
    town.change_claim(node, |claim| {
        claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
        claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
    });
}

/// Outdated nodes `POOL-0`, `POOL-1` and so on of each pool.
fn outdated_town(pools: Vec<NodePool>, count: usize) -> Town {
    let names: Vec<PoolName> = pools.iter().map(|pool| pool.name).collect();
    let mut town = Town::new(pools);
    for name in names {
        (0..count).for_each(|index| outdated(&mut town, name.as_str(), &format!("{name}-{index}")));
    }
    town
}

/// Decides until `until`, every second, everything being seen as done; what `watch` makes of each decision that starts something.
fn run(
    engine: &mut Engine,
    from: Timestamp,
    until: Timestamp,
    mut watch: impl FnMut(&mut Engine, Timestamp, &Decision),
) {
    let mut now = from;
    while now < until {
        let decision = engine.decide(now);
        echo(engine, now);
        watch(engine, now, &decision);
        now += seconds(1);
    }
}

fn created(decision: &Decision) -> Vec<Arc<NodeClaim>> {
    let claims = decision.actions.iter().filter_map(|one| match &one.action {
        Action::CreateClaim(claim) => Some(claim.clone()),
        _ => None,
    });
    claims.collect()
}

/// Loses every replacement as soon as it is made; when nodes of which pool were tried.
fn losing(engine: &mut Engine, from: Timestamp, until: Timestamp) -> Vec<(i64, String)> {
    let mut tried = Vec::new();
    run(engine, from, until, |engine, now, decision| {
        for command in &decision.started {
            let nodes: Vec<&str> = command.nodes.iter().map(|node| node.as_str()).collect();
            tried.push(((now.duration_since(from)).as_secs(), nodes.join(",")));
        }
        created(decision).iter().for_each(|claim| engine.observe(now, Observation::ClaimGone(claim.name)));
    });
    tried
}

/// The replacement joins: its node is ready and its claim initialized.
fn join(engine: &mut Engine, now: Timestamp, claim: &NodeClaim) -> NodeName {
    let mut claim = (*engine.cluster().claims[&claim.name]).clone();
    let name = NodeName::new(&format!("of-{}", claim.name));
    let id = provisor::model::name::ProviderId::new(&format!("aws:///us-west-2a/i-{}", claim.name));
    let kind = catalog().instance_types(None).iter().find(|kind| &*kind.name.0 == "m5.large").cloned();
    let kind = kind.expect("it is sold");
    claim.labels.insert(*label::INSTANCE_TYPE, "m5.large".into());
    claim.labels.insert(*label::ZONE, "us-west-2a".into());
    claim.labels.insert(*label::CAPACITY_TYPE, "on-demand".into());
    (claim.provider_id, claim.node, claim.image) = (Some(id), Some(name), Some("ami-1".into()));
    (claim.capacity, claim.allocatable) = (kind.capacity.clone(), kind.allocatable.clone());
    for kind in [ConditionType::Launched, ConditionType::Registered, ConditionType::Initialized] {
        claim.conditions.set(kind, True, kind.as_str(), "", now);
    }
    let mut labels = claim.labels.clone();
    labels.insert(*label::HOSTNAME, name.0);
    labels.insert(*label::REGISTERED, "true".into());
    labels.insert(*label::INITIALIZED, "true".into());
    let mut is_ready = ready("True");
    is_ready.since = Some(now);
    engine.observe(
        now,
        Observation::Node(Arc::new(Node {
            name,
            uid: provisor::model::name::Uid(name.0),
            labels,
            annotations: claim.annotations.clone(),
            created: Some(now),
            deleted: None,
            has_finalizer: true,
            provider_id: claim.provider_id,
            taints: Vec::new(),
            is_cordoned: false,
            capacity: claim.capacity.clone(),
            allocatable: claim.allocatable.clone(),
            conditions: vec![is_ready],
        })),
    );
    engine.observe(now, Observation::Claim(Arc::new(claim)));
    name
}

fn change_node(engine: &mut Engine, now: Timestamp, name: NodeName, status: &str) {
    let mut node = (*engine.cluster().nodes[&name]).clone();
    let mut condition = ready(status);
    condition.since = Some(now);
    node.conditions = vec![condition];
    engine.observe(now, Observation::Node(Arc::new(node)));
}

/// Lets every replacement join at once, and what was replaced be gone; the nodes that went, with when.
fn rolling_on(engine: &mut Engine, from: Timestamp, until: Timestamp) -> Vec<(i64, String)> {
    let mut gone = Vec::new();
    run(engine, from, until, |engine, now, decision| {
        for claim in created(decision) {
            join(engine, now, &claim);
        }
        for planned in &decision.actions {
            if let Action::DeleteClaim { claim } = &planned.action {
                gone.push((now.duration_since(from).as_secs(), claim.to_string()));
                leave(engine, now, *claim);
            }
        }
    });
    gone
}

/// The claim, its node and its pods are no more.
fn leave(engine: &mut Engine, now: Timestamp, claim: ClaimName) {
    let known = engine.cluster().claims[&claim].clone();
    if let Some(node) = known.node {
        let pods: Vec<_> = engine.cluster().pods_of(node).map(|pod| pod.key).collect();
        pods.into_iter().for_each(|pod| engine.observe(now, Observation::PodGone(pod)));
        engine.observe(now, Observation::NodeGone(node));
    }
    engine.observe(now, Observation::ClaimGone(claim));
}

fn pool_of<'e>(engine: &'e Engine, name: &str) -> &'e Arc<NodePool> {
    &engine.cluster().pools[&PoolName::new(name)]
}

fn failures(engine: &Engine, pool: &str) -> u32 {
    pool_of(engine, pool).roll_failures.map_or(0, |failures| failures.count)
}

/// The word for why a node stays, as the engine judged last, and what people are told.
fn kept(engine: &Engine, node: &str) -> (&'static str, String) {
    let plan = engine.plan().disruption.clone();
    let kept = plan.kept.iter().find(|kept| kept.node == NodeName::new(node)).expect("it stays");
    (kept.code, kept.message.clone())
}

/// When time alone may let a node go, as the engine judged last.
fn next_look(engine: &Engine, node: &str) -> Option<Timestamp> {
    let plan = engine.plan().disruption.clone();
    plan.kept.iter().find(|kept| kept.node == NodeName::new(node)).expect("it stays").next_look
}

fn code(town: &Town, node: &str) -> &'static str {
    town.kept(node)
}

/// Waits between one try and the next.
fn waits(tried: &[(i64, String)]) -> Vec<i64> {
    tried.windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
}

fn never_halting() -> Roll {
    Roll { halt_after: 1000, ..Roll::default() }
}

#[test]
fn a_pool_whose_try_failed_is_left_alone_longer_and_longer_and_others_go_on() {
    let town = outdated_town(vec![rolling("a", 1, never_halting()), rolling("b", 1, never_halting())], 1);
    let mut engine = town.engine();
    let mut b_went = None;
    let (mut tried, mut stays) = (Vec::new(), Vec::new());
    run(&mut engine, town.now, town.now + minutes(40), |engine, now, decision| {
        let second = now.duration_since(town.now).as_secs();
        stays.extend(decision.stays.iter().map(|stay| (stay.subject, stay.reason.code)));
        for command in &decision.started {
            if command.pools[0] == PoolName::new("a") {
                tried.push((second, String::new()));
            }
        }
        for claim in created(decision) {
            match claim.pool() == Some(PoolName::new("a")) {
                true => engine.observe(now, Observation::ClaimGone(claim.name)),
                false => drop(join(engine, now, &claim)),
            }
        }
        let is_gone = engine.cluster().claims[&ClaimName::new("b-0-claim")].deleted.is_some();
        b_went = b_went.or(is_gone.then_some(second));
        if second == 30 {
            let (code, message) = kept(engine, "a-0");
            assert_eq!(code, "RollBackingOff");
            let looks_at = next_look(engine, "a-0").expect("it waits for a moment");
            assert!(looks_at > now && looks_at < now + minutes(1), "{looks_at}");
            assert!(
                message.contains("waits until 2026-03-04T10:3") && message.contains("1 try"),
                "{message}"
            );
        }
    });
    assert!(b_went.is_some_and(|second| second < 15), "the other pool goes on: {b_went:?}");
    // A pass follows at most ten seconds after the wait is over; up to a fifth of it is left out.
    let waits = waits(&tried);
    for (wait, whole) in waits.iter().zip([60, 120, 240, 480, 600]) {
        assert!((whole * 4 / 5..=whole + 12).contains(wait), "{waits:?}");
    }
    assert!(waits.len() >= 5, "{waits:?}");
    assert!(stays.contains(&(Subject::Node(NodeName::new("a-0")), "RollBackingOff")), "{stays:?}");
}

#[test]
fn a_pool_of_a_fixed_size_is_left_alone_as_well() {
    let mut pool = rolling("a", 1, Roll::default());
    pool.replicas = Some(2);
    let town = outdated_town(vec![pool], 2);
    let mut engine = town.engine();
    let tried = losing(&mut engine, town.now, town.now + minutes(60));
    let nodes: Vec<&str> = tried.iter().map(|(_, node)| node.as_str()).collect();
    assert_eq!(nodes, ["a-0", "a-1", "a-0"], "and halts");
    assert!(waits(&tried)[0] >= 48 && waits(&tried)[1] >= 96, "{tried:?}");
    assert_eq!(kept(&engine, "a-1").0, "RollHalted");
}

#[test]
fn what_fails_together_is_one_try_and_a_success_clears_it() {
    let town = outdated_town(vec![rolling("a", 3, never_halting())], 3);
    let mut engine = town.engine();
    let tried = losing(&mut engine, town.now, town.now + seconds(30));
    assert_eq!(tried.len(), 3, "{tried:?}");
    assert_eq!(failures(&engine, "a"), 1, "three at once are one try");
    let from = town.now + seconds(30);
    let gone = rolling_on(&mut engine, from, from + minutes(3));
    assert_eq!(gone.len(), 3, "{gone:?}");
    assert_eq!(failures(&engine, "a"), 0);
    assert_eq!(pool_of(&engine, "a").roll_failures, None, "the annotation is taken away");
}

#[test]
fn a_node_that_nothing_comes_of_makes_room_for_the_others() {
    let town = outdated_town(vec![rolling("a", 1, never_halting())], 3);
    let mut engine = town.engine();
    let tried = losing(&mut engine, town.now, town.now + minutes(9));
    let nodes: Vec<&str> = tried.iter().map(|(_, node)| node.as_str()).collect();
    assert_eq!(&nodes[..4], ["a-0", "a-1", "a-2", "a-0"], "each in turn");
}

#[test]
fn pools_take_turns() {
    let mut town = Town::new(vec![rolling("a", 100, Roll::default()), rolling("b", 100, Roll::default())]);
    // Those of `a` have drifted long before.
    for index in 0..50 {
        outdated(&mut town, "a", &format!("a-{index:02}"));
        town.drift(&format!("a-{index:02}"), "2026-03-02T00:00:00Z");
    }
    for index in 0..3 {
        outdated(&mut town, "b", &format!("b-{index}"));
        town.drift(&format!("b-{index}"), "2026-03-04T00:00:00Z");
    }
    let started = town.engine().decide(town.now).started;
    let pools: Vec<&str> = started.iter().take(6).map(|command| command.pools[0].as_str()).collect();
    assert_eq!(pools, ["a", "b", "a", "b", "a", "b"]);
    let of_a: Vec<&str> = started
        .iter()
        .filter(|command| &*command.pools[0].0 == "a")
        .map(|command| command.nodes[0].as_str())
        .collect();
    assert_eq!(&of_a[..3], ["a-00", "a-01", "a-02"], "the oldest first within a pool");
}

#[test]
fn turns_go_on_from_pass_to_pass() {
    let names: Vec<String> = (0..30).map(|index| format!("p{index:02}")).collect();
    let pools = names.iter().map(|name| rolling(name, 100, Roll::default())).collect();
    let town = outdated_town(pools, 3);
    let mut engine = town.engine();
    let pools_of = |decision: &Decision| -> BTreeSet<PoolName> {
        decision.started.iter().map(|command| command.pools[0]).collect()
    };
    let first = pools_of(&engine.decide(town.now));
    echo(&mut engine, town.now);
    let second = pools_of(&engine.decide(town.now + seconds(10)));
    assert_eq!((first.len(), second.len()), (20, 20));
    let all: BTreeSet<_> = first.union(&second).collect();
    assert_eq!(all.len(), 30, "those without a turn come first");
}

/// An engine that has halted the roll of `a`.
fn halted(roll: Roll) -> (Town, Engine, Timestamp, Vec<(String, String, String)>) {
    let town = outdated_town(vec![rolling("a", 1, roll), rolling("b", 1, roll)], 2);
    let mut engine = town.engine();
    let (mut now, mut told) = (town.now, Vec::new());
    while failures(&engine, "a") < roll.halt_after && now < town.now + minutes(60) {
        let decision = engine.decide(now);
        told.extend(events(&decision));
        echo(&mut engine, now);
        for claim in created(&decision).iter().filter(|claim| claim.pool() == Some(PoolName::new("a"))) {
            engine.observe(now, Observation::ClaimGone(claim.name));
        }
        now += seconds(1);
    }
    (town, engine, now, told)
}

fn tries_of_a(tried: &[(i64, String)]) -> usize {
    tried.iter().filter(|(_, nodes)| nodes.starts_with("a-")).count()
}

#[test]
fn a_roll_that_fails_again_and_again_halts_and_says_so() {
    let (town, mut engine, now, events) = halted(Roll::default());
    assert!((140..300).contains(&now.duration_since(town.now).as_secs()), "after the third try");
    let told = events.iter().find(|(subject, reason, _)| subject == "a" && reason == "RollHalted");
    let (_, _, message) = told.expect("an event at the pool");
    assert!(message.starts_with("3 tries in a row"), "{message}");
    assert!(message.contains("kubectl annotate nodepool a provisor.dev/roll-failures-"), "{message}");
    let condition =
        pool_of(&engine, "a").conditions.get(PoolCondition::RollHealthy).cloned().expect("it is said");
    assert_eq!((condition.status, &*condition.reason), (ConditionStatus::False, "RollHalted"));
    assert_eq!(pool_of(&engine, "b").conditions.get(PoolCondition::RollHealthy), None);

    let tried = losing(&mut engine, now, now + minutes(120));
    assert_eq!(tries_of_a(&tried), 0, "{tried:?}");
    let (code, message) = kept(&engine, "a-0");
    assert_eq!(code, "RollHalted");
    assert!(message.contains("kubectl annotate"), "{message}");

    // A successor knows it from the pool.
    let mut successor = engine_of(engine.cluster(), now, town.settings.clone());
    assert_eq!(tries_of_a(&losing(&mut successor, now, now + minutes(30))), 0);
}

#[test]
fn a_halt_ends_with_another_goal_or_by_a_person() {
    type Change = fn(&mut NodePool);
    let changes: [(&str, Change, bool); 5] = [
        ("the annotation is taken away", |pool| pool.roll_failures = None, true),
        ("the template changed", |pool| pool.hash = Some("18".into()), true),
        (
            "other machines are asked for",
            |pool| {
                let large = provisor::model::requirement::Requirement::one("m5.large".into());
                Arc::make_mut(&mut pool.template).requirements.add(*label::INSTANCE_TYPE, large);
            },
            true,
        ),
        ("more is borne", |pool| pool.roll = Ok(Roll { halt_after: 9, ..Roll::default() }), true),
        ("something else changed", |pool| pool.weight = 7, false),
    ];
    for (what, change, goes_on) in changes {
        let (_, mut engine, now, _) = halted(Roll::default());
        engine.decide(now);
        let mut pool = (**pool_of(&engine, "a")).clone();
        change(&mut pool);
        engine.observe(now, Observation::Pool(Arc::new(pool)));
        let tried = losing(&mut engine, now, now + minutes(12));
        assert_eq!(tries_of_a(&tried) > 0, goes_on, "{what}: {tried:?}");
        let healthy =
            pool_of(&engine, "a").conditions.get(PoolCondition::RollHealthy).map(|known| known.status);
        assert!(goes_on || healthy == Some(ConditionStatus::False), "{what}");
    }
    // The class is part of what is asked for.
    let (_, mut engine, now, _) = halted(Roll::default());
    let mut class = class("default");
    class.hash = Some("new".into());
    engine.observe(now, Observation::Class(Arc::new(class)));
    assert!(tries_of_a(&losing(&mut engine, now, now + minutes(2))) > 0);
}

#[test]
fn a_halt_that_ended_is_healthy() {
    let (_, mut engine, now, _) = halted(Roll::default());
    engine.decide(now);
    let mut pool = (**pool_of(&engine, "a")).clone();
    pool.roll_failures = None;
    engine.observe(now, Observation::Pool(Arc::new(pool)));
    engine.decide(now + seconds(1));
    assert!(pool_of(&engine, "a").conditions.is_true(PoolCondition::RollHealthy));
}

#[test]
fn failures_that_could_not_be_written_are_written_again() {
    let (_, mut engine, now, _) = halted(Roll::default());
    engine.decide(now);
    let failed = Observation::ActionFailed { subject: "NodePool a".into(), message: "no".into() };
    engine.observe(now + seconds(1), failed);
    let decision = engine.decide(now + seconds(1));
    let written = decision.actions.iter().filter_map(|one| match &one.action {
        Action::UpdatePool { pool, change } if *pool == PoolName::new("a") => change.roll_failures,
        _ => None,
    });
    assert_eq!(written.map(|failures| failures.count).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_shortage_of_capacity_holds_a_roll_back_and_never_halts_it() {
    let town = outdated_town(vec![rolling("a", 1, Roll { halt_after: 1, ..Roll::default() })], 1);
    let mut engine = town.engine();
    let mut tries = Vec::new();
    run(&mut engine, town.now, town.now + minutes(20), |engine, now, decision| {
        for claim in created(decision) {
            tries.push((now.duration_since(town.now).as_secs(), String::new()));
            // Of another zone, so that something is left to try.
            let key = ("m5.large".into(), Zone::new("us-west-2c"), CapacityType::OnDemand);
            let shortage = Shortage { offerings: vec![key], until: now + minutes(3), advice: None };
            let failure = LaunchFailure::InsufficientCapacity(Arc::new(shortage));
            engine.observe(now, Observation::LaunchFailed { claim: claim.name, failure });
        }
    });
    assert_eq!(failures(&engine, "a"), 0);
    assert!(tries.len() >= 4 && waits(&tries)[0] >= 48, "{tries:?}");
}

#[test]
fn a_paused_roll_replaces_nothing_and_an_unreadable_one_neither() {
    let fault = RollFault { key: *annotation::ROLL, text: "{".into(), message: "it is not JSON".into() };
    for (roll, expected) in [
        (Ok(Roll { is_paused: true, ..Roll::default() }), "RollPaused"),
        (Err(fault), "RollUnreadable"),
        (Ok(Roll::default()), "gone"),
    ] {
        let mut town = Town::with(|pool| pool.roll = roll);
        // It would be replaced for less money, too.
        town.node("n", "m5.2xlarge");
        town.run("web", "n", shape("web", "1500m"));
        town.drift("n", NOW);
        assert_eq!(code(&town, "n"), expected);
        let mut fixed = Town::with(|pool| (pool.replicas, pool.roll) = (Some(1), roll));
        fixed.node("n", "m5.large");
        fixed.drift("n", NOW);
        assert_eq!(code(&fixed, "n"), expected, "of a fixed size");
    }
    // Its other nodes are consolidated as ever.
    let mut town = Town::with(|pool| pool.roll = Ok(Roll { is_paused: true, ..Roll::default() }));
    town.node("n", "m5.2xlarge");
    town.run("web", "n", shape("web", "1500m"));
    assert_eq!(town.command().method, Method::SingleNodeConsolidation);
}

#[test]
fn what_cannot_be_read_is_told_at_the_pool() {
    let fault = RollFault { key: *annotation::ROLL, text: "{".into(), message: "it is not JSON".into() };
    let mut town = Town::with(|pool| pool.roll = Err(fault));
    outdated(&mut town, "default", "n");
    let mut engine = town.engine();
    let decision = engine.decide(town.now);
    let told = events(&decision);
    assert!(
        told.iter().any(|(subject, reason, _)| subject == "default" && reason == "RollUnreadable"),
        "{told:?}"
    );
    let condition = &pool_of(&engine, "default").conditions;
    let message = condition.get(PoolCondition::RollHealthy).expect("it is said").message;
    assert!(message.contains("provisor.dev/roll") && message.contains("it is not JSON"), "{message}");
    assert!(condition.is_true(PoolCondition::Ready), "nodes are bought all the same");
    let stays = &decision.stays;
    let node = Subject::Node(NodeName::new("n"));
    assert!(
        stays.iter().any(|stay| stay.subject == node && stay.reason.code == "RollUnreadable"),
        "{stays:?}"
    );
}

/// A pool that tries one node and then waits ten minutes.
fn careful() -> Roll {
    Roll { canary: 1, ..Roll::default() }
}

#[test]
fn a_canary_is_waited_for_before_the_others_go() {
    let town = outdated_town(vec![rolling("a", 10, careful())], 4);
    let mut engine = town.engine();
    let gone = rolling_on(&mut engine, town.now, town.now + minutes(9));
    assert_eq!(gone.len(), 1, "{gone:?}");
    let (code, message) = kept(&engine, "a-1");
    assert_eq!(code, "RollSoaking");
    assert!(message.contains("waits until 2026-03-04T10:40:0"), "{message}");
    let looks_at = next_look(&engine, "a-1").expect("it waits for a moment");
    assert!(looks_at.to_string().starts_with("2026-03-04T10:40:0"), "{looks_at}");
    // A successor reads it off the objects, and tries no second one.
    let now = town.now + minutes(9);
    let mut successor = engine_of(engine.cluster(), now, town.settings.clone());
    let gone = rolling_on(&mut successor, now, now + seconds(50));
    assert_eq!(gone, []);
    let gone = rolling_on(&mut successor, now + seconds(50), now + minutes(5));
    assert_eq!(gone.len(), 3, "{gone:?}");
}

#[test]
fn a_canary_that_falls_ill_keeps_the_others() {
    let town = outdated_town(vec![rolling("a", 10, careful())], 3);
    let mut engine = town.engine();
    rolling_on(&mut engine, town.now, town.now + minutes(2));
    let canary = engine.cluster().nodes.keys().copied().find(|name| name.as_str().starts_with("of-"));
    let canary = canary.expect("it has joined");
    let ill_at = town.now + minutes(2);
    change_node(&mut engine, ill_at, canary, "False");
    assert_eq!(rolling_on(&mut engine, ill_at, ill_at + minutes(30)), []);
    let (code, message) = kept(&engine, "a-1");
    assert_eq!(code, "RollSoaking");
    assert!(message.contains(&format!("node {canary} is not ready")), "{message}");
    // The time begins anew once it is well.
    let well_at = ill_at + minutes(30);
    change_node(&mut engine, well_at, canary, "True");
    assert_eq!(rolling_on(&mut engine, well_at, well_at + minutes(9)), []);
    let gone = rolling_on(&mut engine, well_at + minutes(9), well_at + minutes(12));
    assert_eq!(gone.len(), 2, "{gone:?}");
}

#[test]
fn as_many_canaries_as_are_asked_for() {
    for (canary, expected) in [(0, 4), (1, 1), (3, 3), (9, 4)] {
        let roll = Roll { canary, ..Roll::default() };
        let town = outdated_town(vec![rolling("a", 10, roll)], 4);
        let started: usize = town.engine().decide(town.now).started.len();
        assert_eq!(started, expected, "{canary}");
        let mut pool = rolling("a", 10, roll);
        pool.replicas = Some(4);
        let town = outdated_town(vec![pool], 4);
        assert_eq!(town.engine().decide(town.now).started.len(), expected, "{canary} of a fixed size");
    }
    // Nodes that are as they should be for long have nothing to prove.
    let mut town = outdated_town(vec![rolling("a", 10, careful())], 3);
    town.node_of("a", "good", "m5.large", "on-demand");
    town.run("web-good", "good", shape("web", "1500m"));
    assert_eq!(town.engine().decide(town.now).started.len(), 3);
}

#[test]
fn consolidation_does_not_bring_what_a_canary_has_not_proven() {
    for (canary, expected) in [(1, "RollSoaking"), (0, "gone")] {
        let mut town = Town::with(|pool| pool.roll = Ok(Roll { canary, ..Roll::default() }));
        // One has just been replaced; the other would be for less money.
        let now = town.now;
        town.node("new", "m5.large");
        town.run("one", "new", shape("web", "1500m"));
        town.change_claim("new", |claim| {
            claim.conditions.clear(ConditionType::Initialized);
            claim.conditions.set(ConditionType::Initialized, True, "", "", now);
        });
        town.node("old", "m5.2xlarge");
        town.run("web", "old", shape("web", "1500m"));
        town.drift("old", NOW);
        assert_eq!(code(&town, "old"), expected);
    }
}

/// Lets replacements join at once while what they replace is being drained for ever; how many nodes were replaced.
fn never_drained(town: &Town, until: SignedDuration) -> usize {
    let mut engine = town.engine();
    let mut replaced = 0;
    run(&mut engine, town.now, town.now + until, |engine, now, decision| {
        replaced += decision.started.iter().map(|command| command.nodes.len()).sum::<usize>();
        for claim in created(decision) {
            join(engine, now, &claim);
        }
    });
    replaced
}

#[test]
fn surge_bounds_what_stands_beside_the_nodes_of_a_pool() {
    for (surge, expected) in [
        (Some(BudgetNodes::Count(1)), 1),
        (Some(BudgetNodes::Count(3)), 3),
        (Some(BudgetNodes::Percent(21)), 3),
        (Some(BudgetNodes::Percent(1)), 1),
        (Some(BudgetNodes::Count(50)), 10),
        (None, 10),
    ] {
        for replicas in [None, Some(10)] {
            let mut pool = rolling("a", 100, Roll { surge, ..Roll::default() });
            pool.replicas = replicas;
            let town = outdated_town(vec![pool], 10);
            assert_eq!(town.engine().decide(town.now).started.len(), expected, "{surge:?} {replicas:?}");
            // Nor are there more once they are ready, as long as what they replace is there.
            let replaced = never_drained(&town, minutes(5));
            // Of a percentage the new nodes count, too: 21% of 13 are still 3.
            assert_eq!(replaced, expected, "{surge:?} {replicas:?}");
        }
    }
}

#[test]
fn what_stands_beside_is_counted_by_a_successor_too() {
    let town = outdated_town(
        vec![rolling("a", 100, Roll { surge: Some(BudgetNodes::Count(2)), ..Roll::default() })],
        5,
    );
    let mut engine = town.engine();
    engine.decide(town.now);
    echo(&mut engine, town.now);
    let mut successor = engine_of(engine.cluster(), town.now, town.settings.clone());
    assert_eq!(successor.decide(town.now + seconds(10)).started.len(), 0);
    let waiting = successor.plan().disruption.kept.iter().filter(|kept| kept.code == "SurgeReached").count();
    assert_eq!(waiting, 3);
    assert!(successor.plan().disruption.kept.iter().all(|kept| kept.held_for.is_none()), "each has its turn");
    // As what was replaced goes, others follow.
    let gone = rolling_on(&mut town.engine(), town.now, town.now + minutes(3));
    assert_eq!(gone.len(), 5, "{gone:?}");
}

#[test]
fn a_node_that_needs_more_than_the_surge_says_so() {
    for (surge, expected) in [(2, "SurgeReached"), (3, "gone")] {
        let mut pool =
            rolling("default", 10, Roll { surge: Some(BudgetNodes::Count(surge)), ..Roll::default() });
        let large = provisor::model::requirement::Requirement::one("m5.large".into());
        Arc::make_mut(&mut pool.template).requirements.add(*label::INSTANCE_TYPE, large);
        let mut town = Town::new(vec![pool]);
        town.node("n", "m5.2xlarge");
        (0..3).for_each(|index| town.run(&format!("web-{index}"), "n", shape("web", "1800m")));
        town.drift("n", NOW);
        assert_eq!(code(&town, "n"), expected, "{surge}");
    }
}

/// Nodes of one pool that are a little more than half full, so that none has room for another's pod.
fn half_full(roll: Roll, budget: u32, count: usize) -> Town {
    let mut town = Town::new(vec![rolling("default", budget, roll)]);
    for index in 0..count {
        let node = format!("n{index}");
        town.node(&node, "m5.large");
        town.run(&format!("web-{index}"), &node, shape("web", "1000m"));
        outdate(&mut town, &node);
    }
    town
}

/// How many nodes each command replaces, and by how many.
fn batches(town: &Town) -> Vec<(usize, usize)> {
    let commands = town.plan().commands;
    assert!(commands.iter().all(|command| command.method == Method::Drift));
    commands.iter().map(|command| (command.nodes.len(), command.replacements.len())).collect()
}

#[test]
fn nodes_that_cost_less_together_are_replaced_together() {
    // Three such pods share a machine of twice the size and price.
    let town = half_full(Roll::default(), 10, 3);
    assert_eq!(batches(&town), [(3, 1)]);
    let command = town.command();
    assert_eq!(&*command.replacements[0].launch().instance_type.0, "m5.xlarge");
    assert!(command.why().starts_with("they are not what their pool asks for any more (with 2 others)"));
    // Where there is nothing to be saved each goes alone.
    let mut full = Town::new(vec![rolling("default", 10, Roll::default())]);
    for node in ["a", "b", "c"] {
        full.node(node, "m5.large");
        full.run(&format!("web-{node}"), node, shape("web", "1500m"));
        full.drift(node, NOW);
    }
    assert_eq!(batches(&full), [(1, 1); 3]);
    assert_eq!(
        batches(&half_full(Roll::default(), 10, 2)),
        [(1, 1); 2],
        "two need a machine that costs as much"
    );
}

#[test]
fn a_batch_keeps_to_budget_surge_and_canary() {
    assert_eq!(batches(&half_full(Roll::default(), 1, 4)), [(1, 1)], "the budget lets one go");
    let all = |town: &Town| batches(town).iter().map(|(nodes, _)| nodes).sum::<usize>();
    assert_eq!(all(&half_full(Roll::default(), 3, 5)), 3);
    let of_one = Roll { surge: Some(BudgetNodes::Count(1)), ..Roll::default() };
    assert_eq!(batches(&half_full(of_one, 10, 4)), [(3, 1)]);
    let mut town = half_full(of_one, 10, 8);
    let small = provisor::model::requirement::Requirement::one("m5.large".into());
    town.change_pool("default", |pool| {
        Arc::make_mut(&mut pool.template).requirements.add(*label::INSTANCE_TYPE, small);
    });
    assert_eq!(batches(&town), [(1, 1)], "one machine for each");
    assert_eq!(batches(&half_full(careful(), 10, 4)), [(1, 1)], "one is to prove itself");
}

#[test]
fn what_nothing_came_of_together_is_tried_alone() {
    let town = half_full(never_halting(), 10, 3);
    let mut engine = town.engine();
    let tried = losing(&mut engine, town.now, town.now + minutes(2));
    let nodes: Vec<&str> = tried.iter().map(|(_, nodes)| nodes.as_str()).collect();
    assert_eq!(nodes, ["n0,n1,n2", "n0", "n1", "n2"], "{tried:?}");
    assert_eq!(failures(&engine, "default"), 2, "what fails together is one try");
}

#[test]
fn nodes_that_are_replaced_together_go_together() {
    let town = half_full(Roll::default(), 10, 3);
    let mut engine = town.engine();
    let decision = engine.decide(town.now);
    echo(&mut engine, town.now);
    let new = created(&decision);
    assert_eq!(new.len(), 1);
    let is_going = |engine: &Engine| {
        let names = ["n0-claim", "n1-claim", "n2-claim"].map(ClaimName::new);
        names.map(|name| engine.cluster().claims[&name].deleted.is_some())
    };
    engine.decide(town.now + seconds(60));
    assert_eq!(is_going(&engine), [false; 3]);
    join(&mut engine, town.now + seconds(61), &new[0]);
    engine.decide(town.now + seconds(61));
    assert_eq!(is_going(&engine), [true; 3]);
}

/// A node with two pods, each of which needs a machine of its own now.
fn splitting(roll: Roll) -> Town {
    let mut pool = rolling("default", 10, roll);
    let small = provisor::model::requirement::Requirement::one("m5.large".into());
    Arc::make_mut(&mut pool.template).requirements.add(*label::INSTANCE_TYPE, small);
    let mut town = Town::new(vec![pool]);
    town.node("n", "m5.2xlarge");
    (0..2).for_each(|index| town.run(&format!("web-{index}"), "n", shape("web", "1800m")));
    outdate(&mut town, "n");
    town
}

fn is_going(engine: &Engine, node: &str) -> bool {
    engine.cluster().claims[&ClaimName::new(&format!("{node}-claim"))].deleted.is_some()
}

#[test]
fn a_replacement_that_falls_ill_while_another_is_waited_for_keeps_the_old_node() {
    let town = splitting(Roll::default());
    let mut engine = town.engine();
    let new = created(&engine.decide(town.now));
    assert_eq!(new.len(), 2);
    echo(&mut engine, town.now);
    let at = |second: i64| town.now + seconds(second);
    let first = join(&mut engine, at(10), &new[0]);
    engine.decide(at(10));
    change_node(&mut engine, at(20), first, "False");
    engine.decide(at(20));
    join(&mut engine, at(30), &new[1]);
    engine.decide(at(30));
    assert!(!is_going(&engine, "n"), "one of its replacements takes no pods");
    change_node(&mut engine, at(40), first, "True");
    engine.decide(at(40));
    assert!(is_going(&engine, "n"));

    // One that stays ill is no replacement.
    let mut engine = town.engine();
    let new = created(&engine.decide(town.now));
    echo(&mut engine, town.now);
    let first = join(&mut engine, at(10), &new[0]);
    join(&mut engine, at(10), &new[1]);
    change_node(&mut engine, at(10), first, "Unknown");
    run(&mut engine, at(10), at(599), |_, _, _| ());
    assert!(!is_going(&engine, "n") && failures(&engine, "default") == 0);
    let decision = engine.decide(at(600));
    assert!(reasons(&decision).contains_key("DisruptionFailed"), "{:?}", decision.actions);
    assert_eq!(failures(&engine, "default"), 1);
}

#[test]
fn what_is_left_of_a_failed_command_is_used_by_the_next() {
    let town = splitting(never_halting());
    let mut engine = town.engine();
    let new = created(&engine.decide(town.now));
    echo(&mut engine, town.now);
    let at = |second: i64| town.now + seconds(second);
    // The second of the two could not be made.
    engine.observe(at(1), Observation::ClaimGone(new[1].name));
    engine.decide(at(1));
    assert!(
        !engine.cluster().claims[&ClaimName::new("n-claim")]
            .conditions
            .is_true(ConditionType::DisruptionReason)
    );
    join(&mut engine, at(20), &new[0]);
    let mut bought = Vec::new();
    run(&mut engine, at(20), at(120), |engine, now, decision| {
        for claim in created(decision) {
            bought.push(now.duration_since(town.now).as_secs());
            join(engine, now, &claim);
        }
    });
    assert_eq!(bought.len(), 1, "one is there already: {bought:?}");
    assert!(bought[0] >= 48, "{bought:?}");
    assert!(is_going(&engine, "n"));
    assert!(engine.cluster().claims[&new[0].name].deleted.is_none());
}

#[test]
fn a_plan_that_is_carried_out_waits_for_canaries() {
    use provisor::simulator::settle::settle;
    let roll = |roll| outdated_town(vec![rolling("a", 10, roll)], 4);
    let settled = |town: &Town| settle(&town.cluster, town.now, &town.settings);
    let (careful, hasty) = (settled(&roll(careful())), settled(&roll(Roll::default())));
    let came = |nodes: &[provisor::simulator::settle::SettledNode]| {
        nodes.iter().filter(|node| !node.name.as_str().starts_with("a-")).count()
    };
    assert_eq!((came(&careful.nodes), came(&hasty.nodes)), (4, 4));
    let now = at(NOW);
    assert!(
        careful.until.duration_since(now) >= minutes(10) && hasty.until.duration_since(now) < minutes(10)
    );
    let paused = settled(&roll(Roll { is_paused: true, ..Roll::default() }));
    assert_eq!(came(&paused.nodes), 0);
}

/// A cluster that lives: machines boot, pods move, and the process is started anew every minute.
#[test]
fn a_roll_of_a_living_cluster_keeps_to_its_word_across_restarts() {
    use provisor::capacity::engine::EngineSettings;
    use provisor::model::name::ObjectKey;
    use provisor::simulator::workload::{Workload, WorkloadKind};
    use provisor::simulator::world::{Habits, World};

    let roll = Roll { canary: 1, soak: minutes(20), surge: Some(BudgetNodes::Count(2)), ..Roll::default() };
    let mut pool = rolling("default", 3, roll);
    let small = provisor::model::requirement::Requirement::one("m5.large".into());
    Arc::make_mut(&mut pool.template).requirements.add(*label::INSTANCE_TYPE, small);
    let mut world = World::new(5, at(NOW), catalog(), Habits::default());
    world.apply(Observation::Class(Arc::new(class("default"))));
    world.apply(Observation::Pool(Arc::new(pool.clone())));
    let key = ObjectKey::new("default", "web");
    world.add_workload(Workload::new(key, WorkloadKind::Deployment, Arc::new(shape("web", "1500m")), 6));
    let mut engine = Engine::new(EngineSettings::default());
    let start = world.now();
    live(&mut world, &mut engine, start + minutes(10), |_, _| ());
    let old: BTreeSet<ClaimName> = world.objects().claims.keys().copied().collect();
    assert_eq!(old.len(), 6);
    let changed = NodePool { hash: Some("18".into()), ..(*world.objects().pools[&pool.name]).clone() };
    world.apply(Observation::Pool(Arc::new(changed)));
    let (mut until, mut first) = (world.now(), None);
    while until < start + minutes(90) {
        until += minutes(1);
        let mut engine = engine_of(world.objects(), world.now(), EngineSettings::default());
        live(&mut world, &mut engine, until, |_, _| ());
        let claims = &world.objects().claims;
        let left = old.iter().filter(|name| claims.contains_key(*name)).count();
        let new = claims.len() - left;
        assert!(claims.len() <= 8, "{left} old and {new} new, and two may stand beside the others");
        let soaking = first.is_none_or(|at| until.duration_since(at) < minutes(20));
        assert!(!soaking || new <= 1, "{new} new after {}", until.duration_since(start));
        first = first.or((new == 1).then_some(until));
    }
    let claims = &world.objects().claims;
    assert_eq!((claims.len(), old.iter().filter(|name| claims.contains_key(*name)).count()), (6, 0));
}
