//! Spread constraints that a cluster has for pods without any.

use std::sync::Arc;

use provisor::model::buffer::Scalable;
use provisor::model::name::ObjectKey;
use provisor::model::pod::{Selector, Spread};
use provisor::model::requirement::Operator::*;
use provisor::model::workload::Service;

use super::world::*;

/// A pod of the ReplicaSet `web`.
fn web() -> A {
    pod("web").label("app", "web").owned_by("ReplicaSet", "web")
}

fn by(key: &str, skew: u32) -> Spread {
    spread(key, skew, None)
}

fn put_set(world: &mut World, name: &str, selector: Option<Selector>) {
    let key = ObjectKey::new("default", name);
    let shape = Arc::new(pod(name).shape);
    let set = Scalable { kind: "ReplicaSet".into(), key, replicas: 3, selector, shape, is_refused: false };
    world.cluster.scalables.insert((set.kind, key), Arc::new(set));
}

/// A world with the ReplicaSet `web` and these defaults.
fn world_of(pool: provisor::model::pool::NodePool, defaults: Vec<Spread>) -> World {
    let mut world = World::of(pool);
    put_set(&mut world, "web", with_label("app", "web"));
    world.settings.default_spreads = defaults;
    world
}

fn zones_of(world: &World) -> Vec<usize> {
    world.skew(ZONE, "app", "web")
}

#[test]
fn sch_333_zones_are_filled_evenly_by_default() {
    let mut world = world_of(pool("default"), vec![by(ZONE, 1)]);
    world.run(&many(4, &web()));
    assert_eq!(zones_of(&world), [1, 1, 2]);
}

#[test]
fn sch_334_hosts_are_filled_evenly_by_default() {
    let mut world = world_of(pool("default"), vec![by(HOSTNAME, 1)]);
    world.run(&many(3, &web()));
    assert_eq!(world.skew(HOSTNAME, "app", "web"), [1, 1, 1]);
}

#[test]
fn sch_335_constraints_of_a_pod_replace_all_defaults() {
    let mut world = world_of(pool("default"), vec![by(HOSTNAME, 1), by(ZONE, 1)]);
    world.run(&many(3, &web().spread(spread(HOSTNAME, 3, with_label("app", "web")))));
    assert_eq!(world.skew(HOSTNAME, "app", "web"), [3]);
}

fn at_least_three_zones(is_required: bool) -> Spread {
    Spread { min_domains: Some(3), is_required, ..by(ZONE, 1) }
}

/// Rows: SCH-336, SCH-337, SCH-338
#[test]
fn the_least_number_of_domains_holds_for_defaults() {
    let mut world = world_of(pool("default").require(ZONE, In, &[Z1, Z2]), vec![at_least_three_zones(true)]);
    world.run(&many(3, &web()));
    assert_eq!(zones_of(&world), [1, 1]);
    for (is_required, expected) in [(true, 1), (false, 3)] {
        let mut world =
            world_of(pool("default").require(ZONE, In, &[Z1]), vec![at_least_three_zones(is_required)]);
        world.run(&many(3, &web()));
        assert_eq!(zones_of(&world), [expected], "{is_required}");
    }
}

#[test]
fn sch_339_without_defaults_nothing_is_spread() {
    let mut world = world_of(pool("default"), Vec::new());
    world.run(&many(3, &web()));
    assert_eq!(world.skew(HOSTNAME, "app", "web"), [3]);
}

#[test]
fn sch_340_pods_that_belong_to_nothing_are_not_spread() {
    let mut world = world_of(pool("default"), vec![by(HOSTNAME, 1)]);
    world.run(&many(3, &A { owner: None, ..web() }));
    assert_eq!(world.skew(HOSTNAME, "app", "web"), [3]);
}

#[test]
fn sch_341_pods_that_run_count() {
    let mut world = world_of(pool("default").require(ZONE, In, &[Z1, Z2]), Vec::new());
    let first = A { name: "first".into(), ..web() };
    world.run(&many(2, &first.select(ZONE, Z1)));
    world.settings.default_spreads = vec![by(ZONE, 1)];
    world.run(&many(2, &web()));
    assert_eq!(zones_of(&world), [2, 2]);
    assert!(["web-001", "web-002"].iter().all(|pod| world.value_of(pod, ZONE) == Some(Z2)));
}

#[test]
fn sch_342_owners_are_spread_apart_from_each_other() {
    let mut world = world_of(pool("default"), vec![by(ZONE, 1)]);
    put_set(&mut world, "api", with_label("app", "api"));
    let api = pod("api").label("app", "api").owned_by("ReplicaSet", "api");
    let both: Vec<A> = many(3, &web()).into_iter().chain(many(3, &api)).collect();
    world.run(&both);
    assert_eq!(zones_of(&world), [1, 1, 1]);
    assert_eq!(world.skew(ZONE, "app", "api"), [1, 1, 1]);
}

#[test]
fn sch_343_revisions_are_spread_apart_from_each_other() {
    let mut world = world_of(pool("default"), vec![by(ZONE, 1)]);
    let revision = |hash: &'static str| {
        let one = web().label("pod-template-hash", hash).owned_by("ReplicaSet", hash);
        many(3, &A { name: hash.into(), ..one })
    };
    for hash in ["r1", "r2"] {
        let mut selector = with_label("app", "web").unwrap();
        selector.terms.push(expression("pod-template-hash", In, &[hash]));
        put_set(&mut world, hash, Some(selector));
    }
    let both: Vec<A> = revision("r1").into_iter().chain(revision("r2")).collect();
    world.run(&both);
    for hash in ["r1", "r2"] {
        assert_eq!(world.skew(ZONE, "pod-template-hash", hash), [1, 1, 1]);
    }
}

#[test]
fn sch_344_a_service_says_which_pods_of_a_job_belong_together() {
    let mut world = world_of(pool("default"), vec![by(ZONE, 1)]);
    let key = ObjectKey::new("default", "web");
    let selector = [("app".into(), "web".into())].into_iter().collect();
    let of_job = web().owned_by("Job", "web");
    world.run(&many(3, &A { name: "before".into(), ..of_job.clone().label("app", "before") }));
    assert_eq!(world.skew(ZONE, "app", "before"), [3], "without a Service nothing is known");
    world.cluster.services.insert(key, Arc::new(Service { key, selector }));
    world.run(&many(4, &of_job));
    assert_eq!(zones_of(&world), [1, 1, 2]);
}
