//! Objects that are there and cannot be understood: they, and the machines that hang on them, are left alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::engine::Engine;
use provisor::model::action::Action;
use provisor::model::name::{ClaimName, NodeName, PoolName};
use provisor::model::observation::{Observation, Unreadable};
use provisor::model::owner::Owner;
use provisor::model::pool::NodePool;

use super::town::*;

/// Two pools with an empty node each, which wait for nothing but to go: `a` of the pool `whole` and `b` of `torn`.
fn two_empty_nodes(owner: Option<Owner>) -> Town {
    let mut town = Town::new(["whole", "torn"].map(|name| NodePool { owner, ..pool(name) }).into());
    town.settings.owner = owner;
    town.node_of("whole", "a", "m5.large", "on-demand");
    town.node_of("torn", "b", "m5.large", "on-demand");
    town
}

/// The machines behind both claims, as the cloud lists them.
fn instances(town: &Town) -> Observation {
    Observation::Instances(Arc::from(["a", "b"].map(|node| town.instance(node))))
}

/// Which of the two machines is written to, or ended, within three minutes.
fn touched(engine: &mut Engine, town: &Town, after: i64) -> BTreeSet<&'static str> {
    let mut touched = BTreeSet::new();
    for step in after..after + 180 {
        let now = town.now + SignedDuration::from_secs(step);
        if step == after {
            engine.observe(now, instances(town));
        }
        for planned in &engine.decide(now).actions {
            let name = match &planned.action {
                Action::DeleteClaim { claim }
                | Action::UpdateClaim { claim, .. }
                | Action::FinalizeClaim { claim } => claim.to_string(),
                Action::UpdateNode { node, .. }
                | Action::DeleteNode { node }
                | Action::FinalizeNode { node } => node.to_string(),
                Action::Terminate { instance } => instance.instance().trim_start_matches("i-").to_owned(),
                _ => continue,
            };
            touched.insert(if name.starts_with('b') { "b" } else { "a" });
        }
    }
    touched
}

/// What of `b` cannot be read, by name.
fn tears(town: &Town) -> Vec<(&'static str, Unreadable)> {
    let machine = town.cluster.claims[&ClaimName::new("b-claim")].provider_id;
    let (claim, node) = (ClaimName::new("b-claim"), NodeName::new("b"));
    vec![
        ("pool", Unreadable::Pool(PoolName::new("torn"))),
        ("claim", Unreadable::Claim { name: claim, machine }),
        ("claim without a machine", Unreadable::Claim { name: claim, machine: None }),
        ("node", Unreadable::Node { name: node, machine }),
        ("node without a machine", Unreadable::Node { name: node, machine: None }),
    ]
}

fn owners() -> [Option<Owner>; 2] {
    [None, Some(Owner::new("provisor", "dev"))]
}

/// Without the object that `tear` speaks of.
fn never_read(town: &Town, tear: &Unreadable, is_told_first: bool) -> Engine {
    let mut cluster = town.cluster.clone();
    match tear {
        Unreadable::Pool(name) => drop(cluster.pools.remove(name)),
        Unreadable::Claim { name, .. } => cluster.observe(town.now, &Observation::ClaimGone(*name)),
        Unreadable::Node { name, .. } => cluster.observe(town.now, &Observation::NodeGone(*name)),
    }
    let mut engine = Engine::new(town.settings.clone());
    let mut all = objects(&cluster);
    all.insert(if is_told_first { 0 } else { all.len() }, Observation::Unreadable(*tear));
    all.push(Observation::Synced);
    all.into_iter().for_each(|seen| engine.observe(town.now, seen));
    engine
}

fn legible(town: &Town, tear: &Unreadable) -> Observation {
    match tear {
        Unreadable::Pool(name) => Observation::Pool(town.cluster.pools[name].clone()),
        Unreadable::Claim { name, .. } => Observation::Claim(town.cluster.claims[name].clone()),
        Unreadable::Node { name, .. } => Observation::Node(town.cluster.nodes[name].clone()),
    }
}

#[test]
fn what_could_never_be_read_is_left_alone_until_it_can() {
    for owner in owners() {
        let town = two_empty_nodes(owner);
        assert_eq!(touched(&mut town.engine(), &town, 0), ["a", "b"].into(), "both are empty");
        let orders = tears(&town).into_iter().flat_map(|tear| [(tear, true), (tear, false)]);
        for ((what, tear), is_told_first) in orders {
            let mut engine = never_read(&town, &tear, is_told_first);
            assert_eq!(touched(&mut engine, &town, 0), ["a"].into(), "{owner:?}: unreadable {what}");
            engine.observe(town.now, legible(&town, &tear));
            assert!(touched(&mut engine, &town, 180).contains("b"), "{owner:?}: {what} is legible again");
        }
    }
}

#[test]
fn what_cannot_be_read_any_more_is_left_alone_and_a_pool_stays_in_force() {
    for owner in owners() {
        let town = two_empty_nodes(owner);
        for (what, tear) in tears(&town) {
            let mut engine = town.engine();
            engine.observe(town.now, Observation::Unreadable(tear));
            let expected: BTreeSet<_> = if what == "pool" { ["a", "b"].into() } else { ["a"].into() };
            assert_eq!(touched(&mut engine, &town, 0), expected, "{owner:?}: unreadable {what}");
            engine.observe(town.now, legible(&town, &tear));
            assert!(touched(&mut engine, &town, 180).contains("b"), "{owner:?}: {what} is legible again");
        }
    }
}

#[test]
fn what_was_launched_for_a_claim_that_cannot_be_read_is_no_stray() {
    let town = two_empty_nodes(None);
    let mut engine = town.engine();
    let name = ClaimName::new("b-claim");
    engine.observe(town.now, Observation::Unreadable(Unreadable::Claim { name, machine: None }));
    engine.observe(
        town.now,
        Observation::Launched { claim: name, instance: town.instance("b"), shortage: None },
    );
    assert_eq!(touched(&mut engine, &town, 0), ["a"].into());

    engine.observe(town.now, Observation::ClaimGone(name));
    assert!(touched(&mut engine, &town, 180).contains("b"), "a machine without any claim is garbage");
}
