//! What belongs to somebody else stays as it is, whatever state it is in.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::engine::Engine;
use provisor::model::action::Action;
use provisor::model::claim::ConditionType;
use provisor::model::label::{Labels, annotation};
use provisor::model::name::{ClaimName, NodeName, PoolName};
use provisor::model::observation::{Instance, Observation};
use provisor::model::owner::Owner;
use provisor::model::pool::{HashStamp, NodePool};
use provisor::model::symbol::Symbol;

use super::town::*;

fn us() -> Owner {
    Owner::new("provisor", "dev")
}

/// Two pools with a node each: `ours` of the environment dev, `theirs` of `owner`.
fn two_pools(owner: Option<Owner>) -> Town {
    let stamp = HashStamp { hash: "1".into(), version: "provisor-v1".into(), is_new_version: true };
    let of = |name: &str, owner| NodePool { owner, new_stamp: Some(stamp), ..pool(name) };
    let mut town = Town::new(vec![of("ours", Some(us())), of("theirs", owner)]);
    town.settings.owner = Some(us());
    town.node_of("ours", "a", "m5.large", "on-demand");
    town.node_of("theirs", "b", "m5.large", "on-demand");
    town
}

/// Whose objects the engine writes within two minutes: the names that its actions speak of.
fn written(engine: &mut Engine, town: &Town) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for step in 0..120 {
        let decision = engine.decide(town.now + SignedDuration::from_secs(step));
        for planned in &decision.actions {
            names.insert(match &planned.action {
                Action::CreateClaim(claim) => claim.pool().map(|pool| pool.to_string()).unwrap_or_default(),
                Action::DeleteClaim { claim }
                | Action::UpdateClaim { claim, .. }
                | Action::FinalizeClaim { claim }
                | Action::NameMachine { claim, .. }
                | Action::Launch { claim, .. } => claim.to_string(),
                Action::HoldClass { class, .. }
                | Action::ResolveClass { class }
                | Action::ClearClass { class, .. } => class.to_string(),
                Action::UpdateNode { node, .. }
                | Action::DeleteNode { node }
                | Action::FinalizeNode { node } => node.to_string(),
                Action::Terminate { instance } => instance.instance().to_string(),
                Action::Evict { pod, .. }
                | Action::DeletePod { pod, .. }
                | Action::NominatePod { pod, .. } => pod.to_string(),
                Action::UpdatePool { pool, .. } => pool.to_string(),
                Action::UpdateOverlay { overlay, .. } => overlay.to_string(),
                Action::UpdateBuffer { buffer, .. } => buffer.to_string(),
                Action::Publish(_) => continue,
            });
        }
    }
    names
}

fn expect_only_ours(town: &Town) -> Engine {
    let mut engine = town.engine();
    let names = written(&mut engine, town);
    assert!(names.contains("ours") && names.contains("a-claim"), "ours is kept: {names:?}");
    let theirs = ["theirs", "b", "b-claim", "i-b", "default/web"];
    assert!(theirs.iter().all(|name| !names.contains(*name)), "{names:?}");
    engine
}

#[test]
fn pools_of_nobody_and_of_others_are_neither_stamped_nor_used() {
    for owner in [None, Some(Owner::new("provisor", "prod")), Some(Owner::new("other", "dev"))] {
        let engine = expect_only_ours(&two_pools(owner));
        assert!(!engine.cluster().pools.contains_key(&PoolName::new("theirs")));
        assert!(!engine.cluster().claims.contains_key(&ClaimName::new("b-claim")));
        assert!(engine.cluster().nodes.contains_key(&NodeName::new("b")), "pods may run there");
    }
    let mut town = two_pools(None);
    town.settings.owner = None;
    assert!(written(&mut town.engine(), &town).contains("b-claim"), "without an owner everything is ours");
}

#[test]
fn what_others_delete_is_left_to_them() {
    let mut town = two_pools(None);
    let now = town.now;
    town.run("web", "b", shape("web", "100m"));
    town.change_claim("b", |claim| claim.deleted = Some(now));
    town.change_node("b", |node| node.deleted = Some(now));
    expect_only_ours(&town);

    // Nor is a node without any claim ours because of a label.
    let mut engine = town.engine();
    engine.observe(now, Observation::ClaimGone(ClaimName::new("b-claim")));
    let names = written(&mut engine, &town);
    assert!(!names.contains("b"), "{names:?}");
}

#[test]
fn machines_of_others_are_not_garbage() {
    let town = two_pools(None);
    let nameless = |node| Instance { claim: None, pool: None, ..town.instance(node) };
    let stray = Instance { provider_id: "aws:///us-west-2a/i-stray".into(), ..nameless("b") };
    let theirs = Instance { pool: Some(PoolName::new("theirs")), ..stray.clone() };
    let theirs = Instance { provider_id: "aws:///us-west-2a/i-gone".into(), ..theirs };
    let mut engine = town.engine();
    engine
        .observe(town.now, Observation::Instances(Arc::from([nameless("a"), nameless("b"), stray, theirs])));
    let names = written(&mut engine, &town);
    assert!(names.contains("i-stray"), "{names:?}");
    assert!(!names.contains("i-b") && !names.contains("b") && !names.contains("i-gone"), "{names:?}");
}

#[test]
fn an_adopted_pool_brings_its_claims_and_a_lost_one_takes_them_along() {
    let town = two_pools(None);
    let mut engine = expect_only_ours(&town);
    let theirs = town.cluster.pools[&PoolName::new("theirs")].clone();
    let claim = ClaimName::new("b-claim");

    let adopted = Arc::new(NodePool { owner: Some(us()), ..(*theirs).clone() });
    engine.observe(town.now, Observation::Pool(adopted));
    let names = written(&mut engine, &town);
    assert!(names.contains("theirs") && names.contains("b-claim"), "{names:?}");
    let signed = engine.cluster().claims[&claim].annotations.get(&*annotation::OWNER).copied();
    assert_eq!(signed, Some("provisor:dev".into()));

    engine.observe(town.now, Observation::Pool(theirs.clone()));
    assert!(
        !engine.cluster().claims.contains_key(&claim) && !engine.cluster().pools.contains_key(&theirs.name)
    );
    assert!(!written(&mut engine, &town).contains("b-claim"));
}

#[test]
fn a_claim_that_we_made_stays_ours_when_its_pool_is_gone() {
    let mut town = two_pools(None);
    let now = town.now;
    let mark = |by: &str| Labels::from([(*annotation::OWNER, Symbol::new(by))]);
    for node in ["a", "b"] {
        town.change_claim(node, |claim| claim.deleted = Some(now));
        town.change_node(node, |node| node.deleted = Some(now));
    }
    town.change_claim("a", |claim| claim.annotations = mark("provisor:dev"));
    town.change_claim("b", |claim| claim.annotations = mark("provisor:prod"));
    town.cluster.pools.clear();
    let mut engine = town.engine();
    let names = written(&mut engine, &town);
    assert!(names.contains("a"), "{names:?}");
    assert!(!names.contains("b") && !names.contains("b-claim") && !names.contains("i-b"), "{names:?}");
}

#[test]
fn claims_are_signed_by_whom_they_are_made_for() {
    let mut town = Town::with(|pool| pool.owner = Some(us()));
    town.settings.owner = Some(us());
    town.cluster.put_pod(Arc::new(pod("web", None, shape("web", "1"))));
    let mut engine = town.engine();
    for seconds in 0..5 {
        engine.decide(town.now + SignedDuration::from_secs(seconds));
    }
    let claims: Vec<_> = engine.cluster().claims.values().collect();
    assert!(!claims.is_empty());
    assert!(claims.iter().all(|claim| Owner::who_made(&claim.annotations) == Some(us())));
    assert!(claims.iter().all(|claim| !claim.conditions.is_true(ConditionType::Drifted)));
}

#[test]
fn a_class_is_kept_by_whoever_describes_it_or_refers_to_it() {
    let mut town = Town::with(|pool| pool.owner = Some(us()));
    town.settings.owner = Some(us());
    let add = |town: &mut Town, name: &str, owner| {
        let class = provisor::model::class::NodeClass { owner, ..class(name) };
        town.cluster.classes.insert(name.into(), Arc::new(class));
    };
    add(&mut town, "ours", Some(us()));
    add(&mut town, "unused", None);
    add(&mut town, "other", Some(Owner::new("provisor", "prod")));
    let engine = town.engine();
    let names: Vec<String> = engine.own_classes().map(|class| class.name.to_string()).collect();
    assert_eq!(names, ["default", "ours"], "our pool refers to `default`");
}
