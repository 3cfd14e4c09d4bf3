//! The more important pods come first where not all find a place, and priority decides nothing otherwise.

use provisor::model::requirement::Operator::*;

use super::world::*;

/// Pods of a CPU each.
fn pods(count: usize, name: &str, priority: i32) -> Vec<A> {
    let mut one = pod(name).cpu("1");
    one.shape.priority = priority;
    many(count, &one)
}

fn bound(world: &World, name: &str) -> usize {
    let is_bound = |pod: &&std::sync::Arc<provisor::model::pod::Pod>| {
        pod.key.name.starts_with(name) && world.is_bound(&pod.key.name)
    };
    world.cluster.pods.values().filter(is_bound).count()
}

/// Rows: WEA-025
#[test]
fn what_a_node_has_left_goes_to_the_important() {
    let mut world = World::new(Vec::new(), assorted());
    world.put_node("only", &[], &[("cpu", "3"), ("memory", "64Gi"), ("pods", "10")]);
    let mut large = pod("large").cpu("3");
    large.shape.priority = 5;
    world.run(&[pods(2, "vital", 1000), pods(3, "idle", -10), vec![large]].concat());
    assert_eq!((bound(&world, "vital"), bound(&world, "large"), bound(&world, "idle")), (2, 0, 1));
}

/// Rows: WEA-025
#[test]
fn what_a_limit_leaves_goes_to_the_important() {
    let only_small = pool("default").require(INSTANCE_TYPE, In, &["small-instance-type"]).limit("nodes", "2");
    let mut world = World::of(only_small);
    let alone = |mut one: A| {
        one = one.label("app", "a").far(near(HOSTNAME, with_label("app", "a")));
        let cpu = if one.shape.priority < 0 { "600m" } else { "100m" };
        one.cpu(cpu)
    };
    world
        .run(&[pods(2, "idle", -1), pods(2, "vital", 1)].concat().into_iter().map(alone).collect::<Vec<_>>());
    assert_eq!((bound(&world, "vital"), bound(&world, "idle")), (2, 0));
}

/// A hundred pods and more are packed by price, which must not cost the important ones their places.
#[test]
fn nor_does_a_cheaper_plan_take_it_from_them() {
    let limited = || World::of(pool("default").limit("cpu", "150"));
    let mut alone = limited();
    alone.run(&pods(60, "vital", 7));
    let mut among_many = limited();
    let idle: Vec<A> = pods(150, "idle", 0).into_iter().map(|one| one.cpu("1.5")).collect();
    among_many.run(&[pods(60, "vital", 7), idle].concat());
    assert!(bound(&among_many, "vital") >= bound(&alone, "vital"));
    assert!(bound(&among_many, "idle") < 150);
}

#[test]
fn where_all_find_a_place_priority_moves_nothing() {
    let mut equal = World::plain();
    let mut graded = World::plain();
    let of = |priority| [pods(3, "a", priority), vec![pod("b").cpu("3")], pods(2, "c", -priority)].concat();
    let (one, other) = (equal.run(&of(0)), graded.run(&of(50)));
    assert_eq!(equal.waiting() + graded.waiting(), 0);
    let nodes = |round: &Round| -> Vec<_> {
        round.solution.new_nodes.iter().map(|node| (*node.launch(), node.pods.len())).collect()
    };
    assert_eq!(nodes(&one), nodes(&other));
}

#[test]
fn an_important_pod_that_fits_nowhere_costs_nobody_a_place() {
    let mut world = World::plain();
    let mut hopeless = pod("hopeless").cpu("100000");
    hopeless.shape.priority = 1000;
    world.run(&[pods(4, "a", 0), vec![hopeless]].concat());
    assert_eq!((bound(&world, "a"), world.waiting()), (4, 1));
}

/// Rows: WEA-025
#[test]
fn pods_on_their_way_out_and_those_that_ended_want_no_place() {
    use provisor::model::pod::PodPhase;
    let mut world = World::plain();
    let over = |phase: PodPhase| A { phase, ..pod(&format!("{phase:?}").to_lowercase()) };
    let leaving = A { is_terminating: true, ..pod("leaving") };
    world.put_pods(&[leaving, over(PodPhase::Succeeded), over(PodPhase::Failed)]);
    assert_eq!(world.waiting(), 0);
    assert!(world.plan().new_nodes().is_empty());
}
