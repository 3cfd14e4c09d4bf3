//! Where budgets let nodes go only a few at a time, what is left in the end decides where pods go and who goes first.

use jiff::SignedDuration;
use provisor::capacity::disruption::Destination;
use provisor::capacity::scheduling::Place;
use provisor::model::label;
use provisor::model::name::{NodeName, ObjectKey};
use provisor::model::pool::{Budget, BudgetNodes};
use provisor::simulator::settle::settle;

use super::town::*;

/// Of four sizes, each a little cheaper for its size than the one before.
const SIZES: &str = "\
s,amd64,2,8192,2000m,7Gi,58,,,0.11,,us-west-2a,on-demand
m,amd64,4,16384,4000m,14Gi,58,,,0.2,,us-west-2a,on-demand
l,amd64,6,32768,6000m,20Gi,58,,,0.29,,us-west-2a,on-demand
x,amd64,8,32768,8000m,29Gi,58,,,0.36,,us-west-2a,on-demand";

/// Pools of which so many nodes may go at once.
fn town(pools: &[(&str, u32)]) -> Town {
    let pools = pools.iter().map(|(name, count)| {
        let mut pool = pool(name);
        pool.disruption.budgets =
            vec![Budget { nodes: BudgetNodes::Count(*count), reasons: Vec::new(), window: None }];
        pool
    });
    Town::selling(sold(SIZES), pools.collect())
}

/// Nodes `POOL-0`, `POOL-1`, … with as many pods each, which run only on nodes of the pool.
fn populate(town: &mut Town, pool: &str, kind: &str, nodes: usize, pods: usize) {
    for node in 0..nodes {
        let name = format!("{pool}-{node}");
        town.node_of(pool, &name, kind, "on-demand");
        for pod in 0..pods {
            let mut shape = shape(pool, "50m");
            shape.node_selector.insert(*label::NODEPOOL, pool.into());
            town.run(&format!("{name}-{pod}"), &name, shape);
        }
    }
}

/// Nothing may move from `node`.
fn held(town: &mut Town, node: &str) {
    let mut shape = shape("held", "50m");
    shape.do_not_disrupt = Some("true".into());
    town.run(&format!("{node}-held"), node, shape);
}

#[test]
fn pods_go_to_what_stays_in_the_end_and_move_once() {
    let mut town = town(&[("default", 1)]);
    for (node, kind, pods) in [("n0", "l", 1), ("n1", "x", 2), ("n2", "m", 2)] {
        town.node(node, kind);
        for pod in 0..pods {
            let mut shape = shape("web", if kind == "x" { "500m" } else { "1000m" });
            if kind == "x" {
                shape.node_selector.insert(*label::INSTANCE_TYPE, kind.into());
            }
            town.run(&format!("{node}-{pod}"), node, shape);
        }
    }
    let command = town.command();
    assert_eq!(&*command.nodes, [NodeName::new("n0")]);
    let stays = Destination::Existing(Place::Node("n1".into()));
    let expected = [(ObjectKey::new("default", "n0-0"), stays)];
    assert_eq!(&*command.pods, expected, "n2 saves least for its pods, and goes next all the same");
    let settled = settle(&town.cluster, town.now, &town.settings);
    let evictions: usize = settled.history.iter().map(|done| done.evictions).sum();
    let left: Vec<&str> = settled.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!((left, evictions), (vec!["n1"], 3));
}

#[test]
fn of_many_nodes_each_has_its_own_command_and_what_saves_most_for_each_pod_comes_first() {
    let told = |nodes| {
        let mut town = town(&[("cheap", 2), ("dear", 2)]);
        populate(&mut town, "cheap", "s", nodes, 1);
        populate(&mut town, "dear", "m", nodes, 1);
        held(&mut town, "cheap-0");
        held(&mut town, "dear-0");
        let commands = town.plan().commands.into_iter();
        commands.map(|one| (one.pools[0].as_str(), one.nodes.len())).collect::<Vec<_>>()
    };
    assert_eq!(told(11).len(), 1, "twenty that may go");
    assert_eq!(told(12), [("dear", 1), ("dear", 1), ("cheap", 1), ("cheap", 1)]);
}

#[test]
fn what_saves_little_for_its_pods_waits_for_what_saves_much() {
    let kept = |budget| {
        let mut town = town(&[("dear", budget), ("cheap", 2)]);
        populate(&mut town, "dear", "x", 30, 1);
        held(&mut town, "dear-29");
        populate(&mut town, "cheap", "s", 2, 10);
        town.kept("cheap-0")
    };
    assert_eq!(kept(3), "OthersFirst");
    assert_eq!(kept(2), "gone", "nobody waits for more than ten steps");
    assert_eq!(kept(30), "gone", "nobody waits where all may go at once");
}

#[test]
fn nobody_waits_for_nodes_that_leave_for_too_long() {
    let kept = |minutes| {
        let mut town = town(&[("dear", 3), ("cheap", 2)]);
        populate(&mut town, "dear", "x", 30, 1);
        held(&mut town, "dear-29");
        populate(&mut town, "cheap", "s", 2, 10);
        let since = town.now - SignedDuration::from_mins(minutes);
        for node in 0..3 {
            town.change_claim(&format!("dear-{node}"), |claim| claim.deleted = Some(since));
        }
        town.kept("cheap-0")
    };
    assert_eq!((kept(10), kept(20)), ("OthersFirst", "gone"));
}

#[test]
fn who_can_go_for_less_together_in_a_moment_does_not_go_alone_now() {
    let kept = |minutes| {
        let mut town = town(&[("free", 9), ("tight", 1)]);
        for (pool, node, kind, pods) in
            [("free", "n0", "x", 1), ("tight", "t0", "s", 0), ("tight", "t1", "x", 5)]
        {
            town.node_of(pool, node, kind, "on-demand");
            for pod in 0..pods {
                let mut shape = shape("web", "1000m");
                if pool == "free" {
                    shape.node_selector.insert(*label::NODEPOOL, pool.into());
                }
                town.run(&format!("{node}-{pod}"), node, shape);
            }
        }
        let since = town.now - SignedDuration::from_mins(minutes);
        town.change_claim("t0", |claim| claim.deleted = Some(since));
        (town.kept("n0"), town.kept("t1"))
    };
    assert_eq!(
        kept(1).1,
        "BudgetExhausted",
        "it goes with n0 as soon as t0 is gone: one for both saves $0.43"
    );
    assert_ne!(kept(1).0, "gone", "a smaller node would save $0.25, and have no room for that");
    assert_eq!(kept(20).0, "gone", "nobody waits for what leaves for too long");
}
