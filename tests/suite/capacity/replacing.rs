//! A command on its way: marked, waiting for its replacements, carried out or taken back.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::Decision;
use provisor::capacity::disruption::command::{Method, replacement_patience};
use provisor::capacity::disruption::{Command, Kind};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::capacity::scheduling::{NewNode, Place, Supply};
use provisor::model::action::{Action, Notice, Subject};
use provisor::model::claim::ConditionStatus::True;
use provisor::model::claim::{ConditionType, Conditions, NodeClaim};
use provisor::model::label::{self, annotation};
use provisor::model::money::UsdPerHour;
use provisor::model::name::{ClaimName, NodeName, ObjectKey, ProviderId, Uid, Zone};
use provisor::model::observation::Observation;
use provisor::model::offering::{CapacityType, InstanceType, Offering, Reservation};
use provisor::model::pool::{Budget, BudgetNodes, ConsolidationPolicy};
use provisor::model::quantity::resource;
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::symbol::Symbol;
use provisor::model::taint::Taint;
use provisor::model::time::Patience;
use provisor::simulator::workload::{Workload, WorkloadKind};
use provisor::simulator::world::{Habits, World};

use super::town::*;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn claim_of(node: &str) -> ClaimName {
    ClaimName::new(&format!("{node}-claim"))
}

/// Nothing goes but what is drifted.
fn quiet() -> Town {
    Town::with(|pool| pool.disruption.consolidate_after = Patience::never())
}

/// A node that is full, and not what its pool asks for any more.
fn drifted(town: &mut Town, node: &str) {
    town.node(node, "m5.large");
    town.run(&format!("web-{node}"), node, shape("web", "1500m"));
    town.change_claim(node, |claim| {
        claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
        claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
    });
}

/// A full node that waits for these replacements, which were launched a moment ago.
fn waiting(town: &mut Town, node: &str, replacements: &[&str]) {
    town.node(node, "m5.large");
    town.run(&format!("web-{node}"), node, shape("web", "1500m"));
    let now = town.now;
    town.change_claim(node, |claim| {
        claim.conditions.set(ConditionType::DisruptionReason, True, "Drifted", "Drifted", now);
        claim.annotations.insert(*annotation::REPLACED_BY, Symbol::new(&replacements.join(",")));
    });
    town.change_node(node, |node| node.taints.push(Taint::disrupted()));
    let like = town.cluster.claims[&claim_of(node)].clone();
    for name in replacements {
        let mut conditions = Conditions::default();
        conditions.set(ConditionType::Launched, True, "Launched", "", now);
        let mut annotations = like.annotations.clone();
        annotations.remove(&*annotation::REPLACED_BY);
        town.cluster.put_claim(Arc::new(NodeClaim {
            name: ClaimName::new(name),
            uid: Uid::new(name),
            annotations,
            created: Some(now),
            node: None,
            provider_id: Some(provisor::model::name::ProviderId::new(&format!("aws:///us-west-2a/i-{name}"))),
            conditions,
            ..(*like).clone()
        }));
    }
}

/// A replacement is ready for pods.
fn initialize(engine: &mut Engine, now: Timestamp, name: &str) {
    let mut claim = (*engine.cluster().claims[&ClaimName::new(name)]).clone();
    for kind in [ConditionType::Launched, ConditionType::Registered, ConditionType::Initialized] {
        claim.conditions.set(kind, True, kind.as_str(), "", now);
    }
    engine.observe(now, Observation::Claim(Arc::new(claim)));
}

fn created(decision: &Decision) -> Vec<ClaimName> {
    let claims = decision.actions.iter().filter_map(|one| match &one.action {
        Action::CreateClaim(claim) => Some(claim.name),
        _ => None,
    });
    claims.collect()
}

fn deleted(decision: &Decision) -> Vec<String> {
    let claims = decision.actions.iter().filter_map(|one| match &one.action {
        Action::DeleteClaim { claim } => Some(claim.to_string()),
        _ => None,
    });
    claims.collect()
}

fn notices<'d>(decision: &'d Decision, reason: &str) -> Vec<&'d Notice> {
    let told = decision.actions.iter().filter_map(|one| match &one.action {
        Action::Publish(notice) if &*notice.reason == reason => Some(notice),
        _ => None,
    });
    told.collect()
}

fn is_tainted(engine: &Engine, node: &str) -> bool {
    let node = &engine.cluster().nodes[&NodeName::new(node)];
    node.taints.iter().any(|taint| taint.is_same(&Taint::disrupted()))
}

fn is_marked(engine: &Engine, node: &str) -> bool {
    engine.cluster().claims[&claim_of(node)].conditions.is_true(ConditionType::DisruptionReason)
}

/// Rows: DIS-312, DIS-316, DIS-326
#[test]
fn dis_316_a_replacement_that_is_ready_lets_the_old_node_go() {
    let mut town = quiet();
    drifted(&mut town, "n");
    let mut engine = town.engine();
    let decision = engine.decide(town.now);
    let made = created(&decision);
    assert_eq!(made.len(), 1);
    let launching = notices(&decision, "DisruptionLaunching");
    assert_eq!(launching.iter().map(|told| told.subject).collect::<Vec<_>>(), [Subject::Claim(made[0])]);
    assert!(launching[0].message.contains("Drifted"), "{}", launching[0].message);
    let claim = &engine.cluster().claims[&claim_of("n")];
    let reason = claim.conditions.get(ConditionType::DisruptionReason).expect("it is marked");
    assert_eq!((reason.status, &*reason.reason), (True, "Drifted"));
    echo(&mut engine, town.now);

    let mut told = notices(&decision, "DisruptionWaitingReadiness").len();
    for second in 1..300 {
        let decision = engine.decide(town.now + seconds(second));
        let waits = notices(&decision, "DisruptionWaitingReadiness");
        assert!(waits.iter().all(|told| told.subject == Subject::Claim(made[0])));
        told += waits.len();
        assert_eq!(deleted(&decision), [""; 0], "after {second} seconds");
        assert!(!reasons(&decision).contains_key("DisruptionFailed"));
        assert!(is_tainted(&engine, "n") && is_marked(&engine, "n"));
    }
    assert_eq!(told, 1, "somebody may ask what is waited for");
    let now = town.now + seconds(300);
    initialize(&mut engine, now, made[0].as_str());
    let decision = engine.decide(now);
    assert_eq!(deleted(&decision), ["n-claim"]);
    let ended: BTreeSet<Subject> =
        notices(&decision, "DisruptionTerminating").iter().map(|told| told.subject).collect();
    assert_eq!(ended, BTreeSet::from([Subject::Node("n".into()), Subject::Claim(claim_of("n"))]));
    // Whatever becomes of the replacement afterwards, it goes.
    echo(&mut engine, now);
    assert!(is_marked(&engine, "n"), "why it went is known to the end");
}

/// Rows: DIS-313
#[test]
fn dis_313_a_replacement_that_nobody_has_seen_yet_is_given_time() {
    let mut town = quiet();
    drifted(&mut town, "n");
    let mut engine = town.engine();
    let made = created(&engine.decide(town.now));
    // The old objects are seen as they were written, the new one is not.
    let claim = engine.cluster().claims[&claim_of("n")].clone();
    let node = engine.cluster().nodes[&NodeName::new("n")].clone();
    engine.observe(town.now, Observation::Claim(claim));
    engine.observe(town.now, Observation::Node(node));
    let through = Observation::CarriedOut { claims: made.clone(), nodes: Vec::new() };
    engine.observe(town.now + seconds(60), through);
    let failed = (1..300)
        .find(|second| reasons(&engine.decide(town.now + seconds(*second))).contains_key("DisruptionFailed"));
    assert_eq!(failed, Some(90), "half a minute after it should have been there");
    assert!(!is_tainted(&engine, "n") || is_marked(&engine, "n"), "it serves on, or is replaced anew");
}

/// Rows: DIS-317, DIS-319
#[test]
fn dis_317_every_replacement_has_to_be_ready() {
    let mut town = quiet();
    waiting(&mut town, "n", &["r1", "r2"]);
    waiting(&mut town, "m", &["s"]);
    waiting(&mut town, "o", &["t"]);
    let mut engine = town.engine();
    let at = |second: i64| town.now + seconds(second);
    assert_eq!(deleted(&engine.decide(at(0))), [""; 0]);
    for (second, ready, gone) in
        [(1, "r2", vec![]), (2, "t", vec!["o-claim"]), (3, "r1", vec!["n-claim"]), (4, "s", vec!["m-claim"])]
    {
        initialize(&mut engine, at(second), ready);
        assert_eq!(deleted(&engine.decide(at(second))), gone, "{ready} is ready");
    }
}

/// Rows: DIS-318
#[test]
fn dis_318_a_node_that_needs_no_replacement_goes_at_once() {
    let mut town = quiet();
    drifted(&mut town, "n");
    town.node("other", "m5.2xlarge");
    let mut engine = town.engine();
    let decision = engine.decide(town.now);
    assert_eq!((created(&decision), deleted(&decision)), (vec![], vec!["n-claim".to_owned()]));
    let ended = notices(&decision, "DisruptionTerminating");
    assert_eq!(ended.len(), 2);
    assert_eq!(&*ended[0].message, "Drifted");
}

/// Rows: DIS-320
#[test]
fn dis_320_patience_grows_with_the_number_of_nodes_that_wait() {
    for (count, expected) in [
        (0, 600),
        (100, 600),
        (4_000, 600),
        (10_000, 800),
        (40_000, 3_200),
        (80_000, 3_600),
        (100_000, 3_600),
        (usize::MAX, 3_600),
    ] {
        assert_eq!(replacement_patience(count), seconds(expected), "{count}");
    }
    let mut town = quiet();
    waiting(&mut town, "n", &["r"]);
    let mut engine = town.engine();
    let failed = (590..700)
        .find(|second| reasons(&engine.decide(town.now + seconds(*second))).contains_key("DisruptionFailed"));
    assert_eq!(failed, Some(600));
}

/// What is on its way out makes room in its pool for what comes; if it serves on, a limit may have no room for both.
#[test]
fn a_replacement_that_came_too_late_goes_where_a_limit_has_no_room_for_both() {
    let given_up = |nodes: i64| {
        let mut town = quiet();
        town.change_pool("default", |pool| {
            pool.limits = Some([(*resource::NODES, nodes)].into_iter().collect());
        });
        waiting(&mut town, "n", &["r"]);
        let mut engine = town.engine();
        assert_eq!(deleted(&engine.decide(town.now + seconds(599))), [""; 0]);
        let decision = engine.decide(town.now + seconds(600));
        assert!(reasons(&decision).contains_key("DisruptionFailed"));
        deleted(&decision)
    };
    assert_eq!(given_up(1), ["r"]);
    assert_eq!(given_up(2), [""; 0], "what is left may be of use to the next command");
}

/// Rows: DIS-321
#[test]
fn dis_321_a_node_is_part_of_one_command_at_a_time() {
    let mut town = Town::with(|_| ());
    drifted(&mut town, "n");
    let mut engine = town.engine();
    let mut commands = 0;
    for second in 0..590 {
        let now = town.now + seconds(second);
        if second == 1 {
            let new = engine
                .cluster()
                .claims
                .values()
                .find(|claim| claim.name != claim_of("n"))
                .expect("one was made");
            let mut launched = (**new).clone();
            launched.conditions.set(ConditionType::Launched, True, "Launched", "", now);
            launched.provider_id = Some(ProviderId::new("aws:///us-west-2a/i-r"));
            engine.observe(now, Observation::Claim(Arc::new(launched)));
        }
        if second == 30 {
            // It would go for another reason now, too.
            engine.observe(now, Observation::PodGone(ObjectKey::new("default", "web-n")));
        }
        let started = engine.decide(now).started;
        commands += started.iter().filter(|command| command.nodes.contains(&"n".into())).count();
        echo(&mut engine, now);
    }
    assert_eq!(commands, 1);
}

fn fail(engine: &mut Engine, now: Timestamp, subject: &str) {
    engine.observe(now, Observation::ActionFailed { subject: subject.into(), message: "no".into() });
}

/// Rows: DIS-322, DIS-323
#[test]
fn dis_322_what_cannot_be_marked_is_not_replaced() {
    // Two nodes whose pods one larger machine takes: it is not made unless both say so.
    let two = || {
        let mut town = quiet();
        for (node, replacements) in [("a", &["r"][..]), ("b", &[])] {
            waiting(&mut town, node, replacements);
        }
        town.change_claim("b", |claim| {
            claim.annotations.insert(*annotation::REPLACED_BY, "r".into());
        });
        town
    };
    let town = two();
    let mut engine = town.engine();
    engine.observe(town.now, Observation::ClaimGone("r".into()));
    let done: Vec<&str> = (0..3)
        .flat_map(|second| engine.decide(town.now + seconds(second)).actions)
        .filter(|one| matches!(one.action, Action::DeleteClaim { .. } | Action::UpdateClaim { .. }))
        .map(|one| one.reason.code)
        .collect();
    assert!(done.iter().filter(|code| **code == "DisruptionFailed").count() == 2, "{done:?}");
    for node in ["a", "b"] {
        assert!(!is_marked(&engine, node) && !is_tainted(&engine, node), "{node} serves on");
        assert!(engine.cluster().claims[&claim_of(node)].deleted.is_none());
    }

    // The mark or the replacement itself could not be written.
    for subjects in [&["NodeClaim n-claim"][..], &[]] {
        let mut town = quiet();
        drifted(&mut town, "n");
        let mut engine = town.engine();
        let made = created(&engine.decide(town.now));
        let now = town.now + seconds(1);
        subjects.iter().for_each(|subject| fail(&mut engine, now, subject));
        fail(&mut engine, now, &format!("NodeClaim {}", made[0]));
        // The pass that follows would begin anew.
        town.change_pool("default", |pool| {
            pool.disruption.budgets =
                vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: None }];
        });
        let held = town.cluster.pools[&"default".into()].clone();
        engine.observe(now, Observation::Pool(held));
        let decision = engine.decide(now);
        assert_eq!(deleted(&decision), [""; 0]);
        assert!(!is_marked(&engine, "n") && !is_tainted(&engine, "n"), "{subjects:?}: {decision:#?}");
    }

    // Where nothing comes in their place the others go all the same.
    let mut town = Town::with(|_| ());
    for node in ["a", "b", "c"] {
        town.node(node, "m5.large");
    }
    let mut engine = town.engine();
    let gone =
        (0..20).flat_map(|second| deleted(&engine.decide(town.now + seconds(second)))).collect::<Vec<_>>();
    assert_eq!(gone, ["a-claim", "b-claim", "c-claim"]);
    fail(&mut engine, town.now + seconds(20), "Node b");
    fail(&mut engine, town.now + seconds(20), "NodeClaim b-claim");
    let is_going = |engine: &Engine, node: &str| engine.cluster().claims[&claim_of(node)].deleted.is_some();
    engine.decide(town.now + seconds(20));
    assert!(is_going(&engine, "a") && is_going(&engine, "c") && !is_going(&engine, "b"));
    assert!(!is_marked(&engine, "b"), "it is as it was");
}

/// Rows: DIS-324
#[test]
fn dis_324_a_pod_that_comes_meanwhile_uses_the_room_of_the_replacement() {
    let mut town = quiet();
    drifted(&mut town, "n");
    let mut engine = town.engine();
    let made = created(&engine.decide(town.now));
    echo(&mut engine, town.now);
    let now = town.now + seconds(5);
    engine.observe(now, Observation::Pod(Arc::new(pod("late", None, shape("late", "300m")))));
    let more: Vec<ClaimName> =
        (5..60).flat_map(|second| created(&engine.decide(town.now + seconds(second)))).collect();
    assert_eq!(more, []);
    let late = ObjectKey::new("default", "late");
    let places = &engine.plan().provisioning.existing;
    let place = places.iter().find(|(_, pods)| pods.contains(&late)).map(|(place, _)| *place);
    assert_eq!(place, Some(Place::Claim(made[0])));
}

fn world(pool: provisor::model::pool::NodePool) -> World {
    let mut world = World::new(11, at(NOW), catalog(), Habits::default());
    world.apply(Observation::Class(Arc::new(class("default"))));
    world.apply(Observation::Pool(Arc::new(pool)));
    world
}

fn deployment(name: &str, cpu: &str, replicas: u32) -> Workload {
    Workload::new(
        ObjectKey::new("default", name),
        WorkloadKind::Deployment,
        Arc::new(shape(name, cpu)),
        replicas,
    )
}

/// A node that stands empty for pods which are about to leave theirs is not given back as empty.
///
/// Rows: DIS-325
#[test]
fn dis_325_room_for_pods_on_their_way_is_kept() {
    for is_going in [true, false] {
        let mut town = Town::with(|_| ());
        let now = town.now;
        town.node("old", "m5.large");
        town.run("web", "old", shape("web", "1500m"));
        town.node("new", "m5.large");
        if is_going {
            town.change_claim("old", |claim| claim.deleted = Some(now));
            town.change_node("old", |node| node.deleted = Some(now));
        }
        let mut engine = town.engine();
        let mut gone = Vec::new();
        for second in 0..300 {
            let decision = engine.decide(now + seconds(second));
            gone.extend(deleted(&decision));
            // Its budget lets the pod go later.
            if decision.actions.iter().any(|one| matches!(one.action, Action::Evict { .. })) {
                let pod = ObjectKey::new("default", "web");
                let why = provisor::model::observation::EvictionBlock::Budget;
                engine.observe(
                    now + seconds(second),
                    Observation::EvictionBlocked { pod, why, message: "no".into() },
                );
            }
            echo(&mut engine, now + seconds(second));
        }
        let expected: &[&str] = if is_going { &[] } else { &["new-claim"] };
        assert_eq!(gone, expected);
    }
}

/// Rows: DIS-338
#[test]
fn dis_338_a_workload_that_comes_and_goes_does_not_drive_the_number_of_nodes() {
    for policy in [ConsolidationPolicy::WhenEmpty, ConsolidationPolicy::WhenEmptyOrUnderutilized] {
        let mut small = pool("default");
        small.disruption.policy = policy;
        let only = Requirement::new(Operator::In, ["m5.large".into()]);
        Arc::make_mut(&mut small.template).requirements.add(*label::INSTANCE_TYPE, only);
        let mut world = world(small);
        world.add_workload(deployment("web", "1500m", 2));
        world.add_workload(deployment("churn", "300m", 1));
        let start = world.now();
        world.scale_at(start + SignedDuration::from_mins(4), ObjectKey::new("default", "web"), 8);
        // One pod is made again and again.
        for step in 0..90 {
            let moment = start + seconds(120 + 10 * step);
            world.scale_at(moment, ObjectKey::new("default", "churn"), if step % 2 == 0 { 2 } else { 1 });
        }
        let mut engine = Engine::new(EngineSettings::default());
        let (mut most, mut bought) = (0, 0);
        let mut until = start;
        while until < start + SignedDuration::from_mins(20) {
            until += seconds(5);
            live(&mut world, &mut engine, until, |_, decision| bought += created(decision).len());
            most = most.max(world.objects().claims.len());
        }
        assert!(most <= 10, "{policy:?}: {most} nodes at once, eight are needed");
        assert!(bought <= 14, "{policy:?}: {bought} were bought");
        assert_eq!(world.objects().pods.values().filter(|pod| pod.is_ready && pod.node.is_some()).count(), 9);
    }
}

fn command(nodes: &[&str], replacements: Vec<NewNode>, pods: usize, savings: i64) -> Command {
    use provisor::capacity::disruption::Destination;
    Command {
        method: Method::MultiNodeConsolidation,
        nodes: nodes.iter().map(|name| NodeName::new(name)).collect(),
        claims: nodes.iter().map(|name| claim_of(name)).collect(),
        pools: nodes.iter().map(|_| "default".into()).collect(),
        replacements,
        savings: UsdPerHour(savings),
        pods: (0..pods)
            .map(|index| (ObjectKey::new("default", &format!("p{index}")), Destination::Nowhere))
            .collect(),
        least_savings: None,
        alternatives: Vec::new(),
    }
}

/// Rows: DIS-343
#[test]
fn dis_343_a_command_is_one_line() {
    let mut town = quiet();
    town.cluster.put_pod(Arc::new(pod("web", None, shape("web", "1"))));
    let solution = provisor::capacity::planning::plan(&town.cluster, town.now, &town.settings).provisioning;
    let node = solution.new_nodes[0].clone();
    let line = |nodes: &[&str], replacements: usize, savings| {
        command(nodes, vec![node.clone(); replacements], 3, savings).describe()
    };
    let head = "underutilized/multi-node-consolidation: ";
    for (nodes, replacements, savings, expected) in [
        (
            &["node-1", "node-2"][..],
            0,
            192_000,
            "delete: [node-1, node-2]; pool default; 3 pods move; saves $0.19 an hour",
        ),
        (
            &["node-1"],
            1,
            5_000,
            "replace: [node-1] -> [1 replacement]; pool default; 3 pods move; saves $0.01 an hour",
        ),
        (
            &["node-1"],
            2,
            1_996_000,
            "replace: [node-1] -> [2 replacements]; pool default; 3 pods move; saves $2.00 an hour",
        ),
        (
            &["node-1"],
            1,
            -96_000,
            "replace: [node-1] -> [1 replacement]; pool default; 3 pods move; costs $0.10 an hour more",
        ),
    ] {
        assert_eq!(line(nodes, replacements, savings), format!("{head}{expected}"));
    }
    assert_eq!(command(&[], Vec::new(), 0, 0).describe(), format!("{head}no-op: []; saves $0.00 an hour"));
}

/// Rows: DIS-344
#[test]
fn dis_344_each_of_several_nodes_is_told_as_a_part() {
    let mut town = Town::with(|_| ());
    for node in ["a", "b", "c"] {
        town.node(node, "m5.2xlarge");
        town.run(&format!("one-{node}"), node, shape("web", "400m"));
        town.run(&format!("two-{node}"), node, shape("web", "400m"));
    }
    let mut engine = town.engine();
    let (mut told, mut started) = (Vec::new(), Vec::new());
    for second in 0..40 {
        let now = town.now + seconds(second);
        let decision = engine.decide(now);
        told.extend(notices(&decision, "DisruptionTerminating").into_iter().cloned());
        started.extend(decision.started.iter().cloned());
        echo(&mut engine, now);
        for name in created(&decision) {
            initialize(&mut engine, now, name.as_str());
        }
    }
    let first = &started[0];
    let count = first.nodes.len();
    assert!(count >= 2 && first.method == Method::MultiNodeConsolidation, "{first:?}");
    assert!(first.describe().contains(&format!("; {} pods move;", 2 * count)), "{}", first.describe());
    assert!(matches!(first.kind(), Kind::Delete | Kind::Replace));
    for node in &first.nodes {
        let mine = told.iter().find(|notice| notice.subject == Subject::Node(*node)).expect("it is told");
        assert_eq!(&*mine.message, format!("Underutilized, part of {count}-node consolidation"));
    }
}

/// What is sold, with machines of these types reserved in zone a at these prices.
fn with_reservations(reserved: &[(&str, &str, i64)]) -> Supply {
    let mut types: Vec<InstanceType> = (*catalog().instance_types(None)).clone();
    for (kind, id, price) in reserved {
        let kind = types.iter_mut().find(|one| &*one.name.0 == *kind).expect("it is sold");
        kind.offerings.push(Offering {
            zone: Zone::new("us-west-2a"),
            capacity_type: CapacityType::Reserved,
            price: UsdPerHour(*price),
            is_available: true,
            reservation: Some(Reservation { id: (*id).into(), remaining: 1 }),
        });
        let kinds = Requirement::new(Operator::In, ["reserved", "spot", "on-demand"].map(Symbol::new));
        Arc::make_mut(&mut kind.requirements).replace(*label::CAPACITY_TYPE, kinds);
    }
    Supply::new([("default".into(), Arc::new(types))].into())
}

/// Rows: DIS-327, DIS-328
#[test]
fn dis_327_reserved_machines_are_preferred_to_what_costs_more() {
    let cases = [
        // The node, how it is paid for, what is reserved, and which reservation is drawn on.
        (
            "m5.xlarge",
            "reserved",
            &[("m5.xlarge", "r-big", 20), ("m5.large", "r-small", 10)][..],
            Some("r-small"),
        ),
        ("m5.large", "on-demand", &[("m5.2xlarge", "r-huge", 1)], Some("r-huge")),
        ("m5.large", "spot", &[("m5.2xlarge", "r-huge", 1)], Some("r-huge")),
        ("m5.large", "on-demand", &[], None),
    ];
    for (kind, capacity_type, reserved, expected) in cases {
        let mut town = Town::with(|pool| {
            let kinds = Requirement::new(Operator::In, ["reserved", "spot", "on-demand"].map(Symbol::new));
            Arc::make_mut(&mut pool.template).requirements.replace(*label::CAPACITY_TYPE, kinds);
            // Spot would be cheaper than on demand by itself.
            if capacity_type == "on-demand" {
                let kinds = Requirement::new(Operator::In, ["reserved", "on-demand"].map(Symbol::new));
                Arc::make_mut(&mut pool.template).requirements.replace(*label::CAPACITY_TYPE, kinds);
            }
        });
        town.node_of("default", "n", kind, capacity_type);
        if capacity_type == "reserved" {
            town.change_claim("n", |claim| {
                claim.labels.insert(*label::RESERVATION_ID, "r-big".into());
            });
            town.change_node("n", |node| {
                node.labels.insert(*label::RESERVATION_ID, "r-big".into());
            });
        }
        town.run("web", "n", shape("web", "1500m"));
        let supply = with_reservations(reserved);
        let plan = provisor::capacity::planning::plan_with(&town.cluster, &supply, town.now, &town.settings);
        let commands = &plan.disruption.commands;
        let Some(id) = expected else {
            assert_eq!(commands, &[], "nothing is cheaper");
            continue;
        };
        assert_eq!(commands.len(), 1, "{kind} {capacity_type}: {:#?}", plan.disruption.kept);
        let launch = commands[0].replacements[0].launch();
        assert_eq!((launch.capacity_type, launch.reservation), (CapacityType::Reserved, Some(id.into())));
    }
}
