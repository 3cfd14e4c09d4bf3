//! What the engine writes on pools and overlays.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::api::{self, Object};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::capacity::scheduling::{Settings, Supply};
use provisor::model::action::{Action, PoolChange};
use provisor::model::claim::{Condition, ConditionStatus, ConditionType};
use provisor::model::class::NodeClass;
use provisor::model::label::{self, annotation};
use provisor::model::money::UsdPerHour;
use provisor::model::name::{ClaimName, NodeName, ObjectKey, PoolName};
use provisor::model::node::Node;
use provisor::model::observation::Observation;
use provisor::model::offering::InstanceType;
use provisor::model::pool::{
    HashStamp, NodeOverlay, NodePool, OverlayCondition, PoolCondition, PoolUse, PriceChange,
};
use provisor::model::quantity::{Quantity, ResourceName};
use provisor::model::requirement::Requirements;
use provisor::simulator::workload::{Workload, WorkloadKind};
use provisor::simulator::world::{Habits, World};

use super::town::*;

/// The pool as the engine would have it on the API server.
fn pool_of<'a>(engine: &'a Engine, name: &str) -> &'a NodePool {
    &engine.cluster().pools[&PoolName::new(name)]
}

fn condition(engine: &Engine, kind: PoolCondition) -> (ConditionStatus, &'static str) {
    let conditions = &pool_of(engine, "default").conditions;
    let found = conditions.get(kind).expect("it was written");
    (found.status, found.reason.as_str())
}

fn used(engine: &Engine, pool: &str) -> PoolUse {
    pool_of(engine, pool).used.clone().expect("it was reported")
}

fn amount(used: &PoolUse, name: &str) -> String {
    let name = ResourceName::new(name);
    name.render(used.resources.listed(name).expect("it is reported even if it is zero"))
}

/// Decides until everything that is due within a minute is done.
fn settle(engine: &mut Engine, from: Timestamp) -> Timestamp {
    for step in 0..60 {
        engine.decide(from + SignedDuration::from_secs(step));
    }
    from + SignedDuration::from_mins(1)
}

fn with_class(change: impl FnOnce(&mut NodeClass)) -> Engine {
    let mut town = Town::with(|_| ());
    let mut changed = class("default");
    change(&mut changed);
    town.cluster.classes.insert("default".into(), Arc::new(changed));
    let mut engine = town.engine();
    engine.decide(town.now);
    engine
}

/// Rows: SCH-551
#[test]
fn api_041_pools_of_others_are_not_written_to() {
    let mut town = Town::with(|pool| {
        let template = Arc::make_mut(&mut pool.template);
        template.class.group = "karpenter.kwok.sh".into();
        template.class.kind = "KWOKNodeClass".into();
        pool.fault = Some("a label is wrong".into());
        pool.new_stamp =
            Some(HashStamp { hash: "1".into(), version: "provisor-v1".into(), is_new_version: true });
    });
    town.node("a", "m5.large");
    let mut engine = town.engine();
    for step in 0..60 {
        let decision = engine.decide(town.now + SignedDuration::from_secs(step));
        let writes = |action: &Action| matches!(action, Action::UpdatePool { .. });
        assert!(!decision.actions.iter().any(|one| writes(&one.action)), "{:#?}", decision.actions);
    }
    let claim = &engine.cluster().strangers.claims[&ClaimName::new("a-claim")];
    assert!(!claim.annotations.contains_key(&*annotation::NODEPOOL_HASH_VERSION));
}

/// Whoever waits for the pool as it is written now learns that it is well, although nothing about that is new.
#[test]
fn a_pool_that_was_changed_is_judged_again_in_the_same_words() {
    let mut engine = with_class(|_| ());
    let from = settle(&mut engine, Town::with(|_| ()).now + SignedDuration::from_mins(1));
    let mut changed = pool_of(&engine, "default").clone();
    changed.weight += 1;
    changed.is_judged_earlier = true;
    engine.observe(from, Observation::Pool(Arc::new(changed)));
    let decision = engine.decide(from);
    let written = decision.actions.iter().filter_map(|one| match &one.action {
        Action::UpdatePool { change: PoolChange { conditions, .. }, .. } => conditions.as_ref(),
        _ => None,
    });
    let written: Vec<_> = written.collect();
    assert_eq!(written.len(), 1, "{:#?}", decision.actions);
    assert!(written[0].is_true(PoolCondition::Ready));
    assert!(engine.decide(from + SignedDuration::from_secs(1)).actions.is_empty(), "once");
}

#[test]
fn an_overlay_that_was_changed_is_judged_again_in_the_same_words() {
    let mut town = Town::with(|_| ());
    town.cluster.overlays.insert("dear".into(), Arc::new(overlay("dear", 7)));
    let mut engine = town.engine();
    let from = settle(&mut engine, town.now);
    let known = engine.cluster().overlays[&"dear".into()].clone();
    assert!(known.conditions.is_true(OverlayCondition::Ready));
    let changed = NodeOverlay { weight: 3, is_judged_earlier: true, ..(*known).clone() };
    engine.observe(from, Observation::Overlay(Arc::new(changed)));
    let decision = engine.decide(from);
    let writes = |action: &Action| matches!(action, Action::UpdateOverlay { .. });
    assert_eq!(
        decision.actions.iter().filter(|one| writes(&one.action)).count(),
        1,
        "{:#?}",
        decision.actions
    );
    assert!(
        !engine.decide(from + SignedDuration::from_secs(1)).actions.iter().any(|one| writes(&one.action))
    );
}

/// Rows: SCH-552
#[test]
fn api_042_a_pool_is_as_ready_as_its_class() {
    use ConditionStatus::{False, True, Unknown};
    use PoolCondition::{NodeClassReady, Ready};
    let ready = with_class(|_| ());
    assert_eq!(condition(&ready, NodeClassReady), (True, "NodeClassReady"));
    assert_eq!(condition(&ready, Ready), (True, "Ready"));
    assert!(pool_of(&ready, "default").is_ready);

    let unready = with_class(|class| {
        class.is_ready = false;
        class.readiness = Some(Condition {
            status: False,
            reason: "SubnetsNotFound".into(),
            message: "no subnet has the tag".into(),
            since: None,
        });
    });
    assert_eq!(condition(&unready, NodeClassReady), (False, "SubnetsNotFound"));
    assert_eq!(condition(&unready, Ready), (False, "UnhealthyDependents"));
    let message = &pool_of(&unready, "default").conditions.get(NodeClassReady).expect("written").message;
    assert_eq!(&**message, "no subnet has the tag");
    assert!(!pool_of(&unready, "default").is_ready, "it takes no pods");

    let silent = with_class(|class| class.readiness = None);
    assert_eq!(condition(&silent, NodeClassReady), (Unknown, "NodeClassReadinessUnknown"));
    assert_eq!(condition(&silent, Ready), (Unknown, "ReconcilingDependents"));
    assert!(!pool_of(&silent, "default").is_ready);

    let leaving = with_class(|class| class.is_deleting = true);
    assert_eq!(condition(&leaving, NodeClassReady), (False, "NodeClassTerminating"));

    let mut town = Town::with(|_| ());
    town.cluster.classes.clear();
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!(condition(&engine, NodeClassReady), (False, "NodeClassNotFound"));
    assert_eq!(condition(&engine, Ready), (False, "UnhealthyDependents"));
    // It comes: the pool follows at once, and says since when.
    let later = town.now + SignedDuration::from_secs(3);
    engine.observe(later, Observation::Class(Arc::new(class("default"))));
    engine.decide(later);
    assert_eq!(condition(&engine, Ready), (True, "Ready"));
    assert_eq!(pool_of(&engine, "default").conditions.true_since(Ready), Some(later));
}

/// Rows: SCH-554
#[test]
fn what_the_controller_cannot_accept_makes_a_pool_not_ready() {
    let town = Town::with(|pool| pool.fault = Some("spec.x: is too long".into()));
    let mut engine = town.engine();
    engine.decide(town.now);
    let validated = condition(&engine, PoolCondition::ValidationSucceeded);
    assert_eq!(validated, (ConditionStatus::False, "NodePoolValidationFailed"));
    assert_eq!(condition(&engine, PoolCondition::Ready).0, ConditionStatus::False);
}

/// Rows: SCH-557
#[test]
fn api_043_a_pool_without_nodes_reports_zeros() {
    let town = Town::with(|_| ());
    let mut engine = town.engine();
    engine.decide(town.now);
    let used = used(&engine, "default");
    for name in ["cpu", "memory", "pods", "ephemeral-storage", "nodes"] {
        assert_eq!(amount(&used, name), "0", "{name}");
    }
    assert_eq!(used.nodes, 0);
}

/// Rows: SCH-557
#[test]
fn api_044_the_claim_counts_until_its_node_is_initialized() {
    let mut town = Town::with(|_| ());
    town.node("a", "m5.large");
    let cpu = ResourceName::new("cpu");
    let amount_of = |text: &str| cpu.amount(text.parse::<Quantity>().expect("a quantity"));
    town.change_claim("a", |claim| claim.capacity.set(cpu, amount_of("2")));
    town.change_node("a", |node| {
        node.capacity.set(cpu, amount_of("1900m"));
        node.labels.remove(&*label::INITIALIZED);
    });
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!(amount(&used(&engine, "default"), "cpu"), "2");
    assert_eq!(used(&engine, "default").nodes, 1);
    let known = engine.cluster().nodes[&NodeName::new("a")].clone();
    let mut node = (*known).clone();
    node.labels.insert(*label::INITIALIZED, "true".into());
    let later = town.now + SignedDuration::from_secs(20);
    engine.observe(later, Observation::Node(Arc::new(Node { ..node })));
    engine.decide(later);
    assert_eq!(amount(&used(&engine, "default"), "cpu"), "1900m");
}

/// What is left out of a change of a status stays as it was.
#[test]
fn a_resource_that_no_node_has_any_more_is_reported_as_none() {
    let mut town = Town::with(|_| ());
    town.node("a", "m5.large");
    let gpu = ResourceName::new("nvidia.com/gpu");
    town.change_claim("a", |claim| claim.capacity.set(gpu, 4));
    town.change_node("a", |node| node.capacity.set(gpu, 4));
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!(used(&engine, "default").resources.listed(gpu), Some(4));
    let later = town.now + SignedDuration::from_secs(20);
    engine.observe(later, Observation::NodeGone(NodeName::new("a")));
    engine.observe(later, Observation::ClaimGone(ClaimName::new("a-claim")));
    engine.decide(later);
    assert_eq!(used(&engine, "default").resources.listed(gpu), Some(0));
    // It is written once.
    let again = engine.decide(later + SignedDuration::from_secs(20)).actions;
    let reports = again.iter().filter(|one| one.reason.code == "PoolStatus").count();
    assert_eq!(reports, 0, "{again:?}");
}

/// Rows: SCH-557, SCH-558
#[test]
fn api_045_counters_follow_nodes_of_several_pools() {
    let mut fixed = pool("fixed");
    fixed.replicas = Some(1);
    let mut town = Town::new(vec![pool("default"), pool("other"), fixed]);
    for (pool, name) in [("default", "a"), ("default", "b"), ("other", "c"), ("fixed", "d")] {
        town.node_of(pool, name, "m5.large", "on-demand");
        town.run(&format!("on-{name}"), name, shape("web", "1500m"));
    }
    let mut engine = town.engine();
    engine.decide(town.now);
    let counts = |engine: &Engine| ["default", "other", "fixed"].map(|pool| used(engine, pool).nodes);
    assert_eq!(counts(&engine), [2, 1, 1]);
    assert_eq!(amount(&used(&engine, "default"), "cpu"), "4");
    let mut now = town.now + SignedDuration::from_secs(20);
    for name in ["b", "a", "c"] {
        engine.observe(now, Observation::PodGone(ObjectKey::new("default", &format!("on-{name}"))));
        engine.observe(now, Observation::NodeGone(NodeName::new(name)));
        engine.observe(now, Observation::ClaimGone(ClaimName::new(&format!("{name}-claim"))));
        engine.decide(now);
        now += SignedDuration::from_secs(20);
    }
    assert_eq!(counts(&engine), [0, 0, 1]);
    assert_eq!(amount(&used(&engine, "default"), "cpu"), "0");
    let joined = &town.cluster.claims[&ClaimName::new("a-claim")];
    engine.observe(now, Observation::Claim(joined.clone()));
    engine.observe(now, Observation::Node(town.cluster.nodes[&NodeName::new("a")].clone()));
    engine.decide(now);
    assert_eq!(counts(&engine), [1, 0, 1]);
}

/// The simulated cluster holds what the engine writes, and writes come to an end.
#[test]
fn the_simulated_cluster_shows_what_pools_use() {
    let mut world = World::new(7, at(NOW), catalog(), Habits::default());
    world.apply(Observation::Class(Arc::new(NodeClass { readiness: None, ..class("default") })));
    world.apply(Observation::Pool(Arc::new(pool("default"))));
    let web = Arc::new(shape("web", "1500m"));
    world.add_workload(Workload::new(ObjectKey::new("default", "web"), WorkloadKind::Deployment, web, 3));
    let mut engine = Engine::new(EngineSettings::default());
    let until = world.now() + SignedDuration::from_mins(5);
    let mut last_write = world.now();
    live(&mut world, &mut engine, until, |now, decision| {
        if decision.actions.iter().any(|one| matches!(one.action, Action::UpdatePool { .. })) {
            last_write = now;
        }
    });
    let pool = &world.objects().pools[&PoolName::new("default")];
    let used = pool.used.clone().expect("reported");
    assert_eq!(used.nodes as usize, world.objects().nodes.len());
    assert!(used.nodes > 0 && pool.conditions.is_true(PoolCondition::Ready));
    assert!(last_write < until - SignedDuration::from_mins(1), "nothing changed any more");
}

fn stamped(town: &mut Town, node: &str, hash: &str, version: &str) {
    town.change_claim(node, |claim| {
        claim.annotations.insert(*annotation::NODEPOOL_HASH, hash.into());
        claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, version.into());
    });
}

fn hash_of(engine: &Engine, node: &str) -> (&'static str, &'static str) {
    let claim = &engine.cluster().claims[&ClaimName::new(&format!("{node}-claim"))];
    let text = |key| claim.annotations.get(&key).map_or("", |value| value.as_str());
    (text(*annotation::NODEPOOL_HASH), text(*annotation::NODEPOOL_HASH_VERSION))
}

/// Rows: SCH-556, DIS-023
#[test]
fn api_047_a_new_hash_version_undoes_no_drift() {
    let stamp = HashStamp { hash: "99".into(), version: "provisor-v1".into(), is_new_version: true };
    let mut town = Town::with(|pool| pool.new_stamp = Some(stamp));
    for name in ["old", "drifted", "new"] {
        town.node(name, "m5.large");
        town.run(&format!("on-{name}"), name, shape("web", "1500m"));
    }
    stamped(&mut town, "old", "17", "v3");
    stamped(&mut town, "drifted", "12", "v2");
    stamped(&mut town, "new", "55", "provisor-v1");
    town.drift("drifted", NOW);
    // Nothing is disrupted, so that what is written stays to be seen.
    town.change_pool("default", |pool| {
        pool.disruption.budgets[0].nodes = provisor::model::pool::BudgetNodes::Count(0);
    });
    let mut engine = town.engine();
    let decision = engine.decide(town.now);
    let writes: Vec<&Action> = decision.actions.iter().map(|one| &one.action).collect();
    let change = PoolChange { stamp: Some(stamp), ..PoolChange::default() };
    let on_pool = Action::UpdatePool { pool: PoolName::new("default"), change };
    let place = writes.iter().position(|action| **action == on_pool).expect("the pool is stamped");
    let of_claims = writes[..place].iter().filter(|one| matches!(one, Action::UpdateClaim { .. })).count();
    assert_eq!(of_claims, 2, "claims come before their pool: {writes:#?}");
    assert_eq!(hash_of(&engine, "old"), ("99", "provisor-v1"));
    assert_eq!(hash_of(&engine, "drifted"), ("12", "provisor-v1"), "it stays what it was made from");
    assert_eq!(hash_of(&engine, "new"), ("55", "provisor-v1"), "its version is the new one already");
    settle(&mut engine, town.now);
    let drifted = |name: &str| {
        let claim = &engine.cluster().claims[&ClaimName::new(name)];
        claim.conditions.is_true(ConditionType::Drifted)
    };
    assert!(drifted("drifted-claim") && !drifted("old-claim"));
    assert_eq!(pool_of(&engine, "default").new_stamp, None);
}

/// Rows: SCH-556
#[test]
fn api_048_hashes_of_the_current_version_stay() {
    let stamp = HashStamp { hash: "99".into(), version: "provisor-v1".into(), is_new_version: false };
    let mut town = Town::with(|pool| {
        pool.new_stamp = Some(stamp);
        pool.hash = Some("99".into());
        pool.hash_version = Some("provisor-v1".into());
    });
    town.node("a", "m5.large");
    town.run("on-a", "a", shape("web", "1500m"));
    stamped(&mut town, "a", "17", "provisor-v1");
    town.change_pool("default", |pool| {
        pool.disruption.budgets[0].nodes = provisor::model::pool::BudgetNodes::Count(0);
    });
    let mut engine = town.engine();
    settle(&mut engine, town.now);
    assert_eq!(hash_of(&engine, "a"), ("17", "provisor-v1"));
    assert_eq!(pool_of(&engine, "default").new_stamp, None, "the pool's own annotation is refreshed");
    let claim = &engine.cluster().claims[&ClaimName::new("a-claim")];
    assert!(claim.conditions.is_true(ConditionType::Drifted), "the difference is the drift");
}

fn overlay(name: &str, dollars: i64) -> NodeOverlay {
    NodeOverlay {
        name: name.into(),
        owner: None,
        requirements: Requirements::new(),
        price: Some(PriceChange::Set(UsdPerHour(dollars * 1_000_000))),
        capacity: Default::default(),
        weight: 1,
        fault: None,
        conditions: Default::default(),
        is_judged_earlier: false,
    }
}

/// Rows: SCH-522
#[test]
fn api_053_a_pool_without_types_holds_up_no_overlay() {
    let mut broken = pool("broken");
    Arc::make_mut(&mut broken.template).class.name = "lost".into();
    let mut town = Town::new(vec![pool("default"), broken]);
    let unready = NodeClass { is_ready: false, ..class("lost") };
    town.cluster.classes.insert("lost".into(), Arc::new(unready));
    town.cluster.overlays.insert("dear".into(), Arc::new(overlay("dear", 7)));
    let prices = |supply: &Supply, pool: &str| {
        let types = supply.sold(PoolName::new(pool));
        types.iter().all(|kind| kind.offerings.iter().all(|one| one.price == UsdPerHour(7_000_000)))
    };
    let supply = Supply::of(&town.cluster, &Settings::default());
    assert!(prices(&supply, "default") && !prices(&supply, "broken"));
    assert!(supply.unlisted()[&PoolName::new("broken")].contains("lost"));

    let mut engine = town.engine();
    let decision = engine.decide(town.now);
    assert_eq!(
        decision.actions.iter().filter(|one| one.reason.code == "InstanceTypesUnknown").count(),
        1,
        "somebody is told"
    );
    let valid = |engine: &Engine| {
        let overlay = &engine.cluster().overlays[&"dear".into()];
        overlay.conditions.is_true(OverlayCondition::ValidationSucceeded)
            && overlay.conditions.is_true(OverlayCondition::Ready)
    };
    assert!(valid(&engine));

    town.cluster.classes.insert("lost".into(), Arc::new(class("lost")));
    let supply = Supply::of(&town.cluster, &Settings::default());
    assert!(prices(&supply, "broken") && supply.unlisted().is_empty(), "applied once it recovers");
}

/// What is written on a pool whose manifest asks for these capacity types.
fn validated(values: serde_json::Value) -> ConditionStatus {
    let written = serde_json::json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
        "spec": { "template": { "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
            "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": values }],
        } } },
    });
    let Ok(Object::NodePool(pool)) = api::parse(&written) else { panic!("the API server takes it") };
    let town = Town::new(vec![pool]);
    let mut engine = town.engine();
    engine.decide(town.now);
    condition(&engine, PoolCondition::ValidationSucceeded).0
}

#[test]
fn sch_553_capacity_types_that_nobody_knows_are_forgiven_beside_known_ones() {
    use ConditionStatus::{False, True};
    assert_eq!(validated(serde_json::json!(["someday", "never"])), False);
    assert_eq!(validated(serde_json::json!(["spot", "on-demand", "reserved"])), True);
    assert_eq!(validated(serde_json::json!(["spot", "someday"])), True);
}

/// A manifest that changes all prices to 7, with more.
fn written_overlay(more: serde_json::Value) -> serde_json::Value {
    let mut overlay = serde_json::json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": "dear" },
        "spec": { "price": "7", "requirements": [] },
    });
    for (key, value) in more.as_object().expect("fields") {
        overlay["spec"][key] = value.clone();
    }
    overlay
}

#[test]
fn sch_502_an_overlay_that_is_not_valid_is_not_applied() {
    let long = format!("test.com/{}", "a".repeat(64));
    let too_long = serde_json::json!({ "requirements": [{ "key": long, "operator": "DoesNotExist" }] });
    for (more, is_valid) in [(serde_json::json!({}), true), (too_long, false)] {
        let Ok(Object::NodeOverlay(overlay)) = api::parse(&written_overlay(more)) else {
            panic!("it is taken")
        };
        let mut town = Town::with(|_| ());
        town.cluster.overlays.insert(overlay.name, Arc::new(overlay));
        let supply = Supply::of(&town.cluster, &Settings::default());
        let is_dear =
            |kind: &InstanceType| kind.offerings.iter().all(|one| one.price == UsdPerHour(7_000_000));
        assert_eq!(supply.sold(PoolName::new("default")).iter().all(is_dear), is_valid);
        let mut engine = town.engine();
        engine.decide(town.now);
        let conditions = &engine.cluster().overlays[&"dear".into()].conditions;
        let reason = conditions.get(OverlayCondition::ValidationSucceeded).expect("written").reason;
        assert_eq!(reason.as_str(), if is_valid { "ValidationSucceeded" } else { "RuntimeValidation" });
    }
    // What no overlay may change does not even get past the API server.
    let forbidden = written_overlay(serde_json::json!({ "capacity": { "cpu": "1" } }));
    let errors = api::parse(&forbidden).expect_err("cpu is not to be changed");
    assert!(errors.iter().any(|error| error.path.starts_with("spec.capacity")), "{errors:?}");
}

/// Claims say whether an overlay had a part in what may be launched for them.
#[test]
fn sch_520_claims_bear_the_marks_of_the_overlays_that_made_them() {
    let marks = |overlays: Vec<NodeOverlay>| {
        let mut town = Town::with(|_| ());
        for one in overlays {
            town.cluster.overlays.insert(one.name, Arc::new(one));
        }
        town.cluster.put_pod(Arc::new(pod("web", None, shape("web", "1500m"))));
        let mut engine = town.engine();
        engine.decide(town.now);
        engine.decide(town.now + SignedDuration::from_secs(1));
        let claim = engine.cluster().claims.values().next().expect("one is made").clone();
        let is_marked = |key| claim.annotations.get(&key).is_some_and(|value| &**value == "true");
        (is_marked(*annotation::PRICE_OVERLAY_APPLIED), is_marked(*annotation::CAPACITY_OVERLAY_APPLIED))
    };
    let dear = || overlay("dear", 7);
    let mut large = overlay("large", 0);
    large.price = None;
    large.capacity.set(ResourceName::new("x.com/a"), 1);
    assert_eq!(marks(Vec::new()), (false, false));
    assert_eq!(marks(vec![dear()]), (true, false));
    assert_eq!(marks(vec![large.clone()]), (false, true));
    assert_eq!(marks(vec![dear(), large]), (true, true));
}

#[test]
fn an_overlay_says_why_it_has_no_effect() {
    let mut town = Town::with(|_| ());
    for one in [overlay("a", 1), overlay("b", 2)] {
        town.cluster.overlays.insert(one.name, Arc::new(one));
    }
    let wrong =
        NodeOverlay { fault: Some("spec.requirements[0].key: too long".into()), ..overlay("wrong", 3) };
    town.cluster.overlays.insert(wrong.name, Arc::new(wrong));
    let mut engine = town.engine();
    let reasons = |engine: &Engine| {
        let of = |one: &Arc<NodeOverlay>| {
            one.conditions.get(OverlayCondition::ValidationSucceeded).expect("written").reason.as_str()
        };
        engine.cluster().overlays.values().map(of).collect::<Vec<_>>()
    };
    engine.decide(town.now);
    assert_eq!(reasons(&engine), ["Conflict", "ValidationSucceeded", "RuntimeValidation"]);
    // The other one goes: the first is in nobody's way any more.
    engine.observe(town.now, Observation::OverlayGone("b".into()));
    engine.decide(town.now);
    assert_eq!(reasons(&engine), ["ValidationSucceeded", "RuntimeValidation"]);
}
