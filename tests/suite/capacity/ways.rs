//! Candidates for consolidation are offered in several ways, and sets are judged as a whole where none can go alone: a town for each way
//! in which only that one finds what saves most.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::Decision;
use provisor::capacity::disruption::DisruptionPlan;
use provisor::model::action::Action;
use provisor::model::label;
use provisor::model::money::UsdPerHour;
use provisor::model::observation::Observation;

use super::town::*;

/// Of four sizes, each a little cheaper for its size than the one before.
const SIZES: &str = "\
s,amd64,2,8192,2000m,7Gi,58,,,0.11,,us-west-2a,on-demand
m,amd64,4,16384,4000m,14Gi,58,,,0.2,,us-west-2a,on-demand
l,amd64,6,32768,6000m,20Gi,58,,,0.29,,us-west-2a,on-demand
x,amd64,8,32768,8000m,29Gi,58,,,0.36,,us-west-2a,on-demand";

/// Nodes n0, n1, … as `s 1500 500t`: the type, and the CPU of each pod in thousandths; a `t` behind it holds the pod to the type.
fn town(nodes: &[&str]) -> Town {
    let mut town = Town::selling(sold(SIZES), vec![pool("default")]);
    for (at, node) in nodes.iter().enumerate() {
        let (kind, pods) = node.split_once(' ').expect("a type and pods");
        let name = format!("n{at}");
        town.node(&name, kind);
        for (place, pod) in pods.split(' ').enumerate() {
            let size = pod.trim_end_matches('t');
            let mut shape = shape("web", &format!("{size}m"));
            if pod.ends_with('t') {
                shape.node_selector.insert(*label::INSTANCE_TYPE, kind.into());
            }
            town.run(&format!("p{at}-{place}"), &name, shape);
        }
    }
    town
}

/// What goes and what comes for it, command by command; and what all of it saves.
fn done(plan: &DisruptionPlan) -> (Vec<String>, String) {
    let told = plan.commands.iter().map(|command| {
        let nodes: Vec<&str> = command.nodes.iter().map(|node| node.as_str()).collect();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for node in &command.replacements {
            *counts.entry(node.launch().instance_type.as_str()).or_default() += 1;
        }
        let new: Vec<String> = counts.iter().map(|(kind, count)| format!("{count}{kind}")).collect();
        format!("{} > {}", nodes.join(" "), new.join(" ")).trim_end_matches(" > ").to_owned()
    });
    let saved: UsdPerHour = plan.commands.iter().map(|command| command.savings).sum();
    (told.collect(), saved.to_string())
}

fn check(nodes: &[&str], expected: &[&str], saved: &str) {
    let plan = town(nodes).plan();
    let expected: Vec<String> = expected.iter().map(|one| (*one).to_owned()).collect();
    assert_eq!(done(&plan), (expected, saved.to_owned()));
}

#[test]
fn who_saves_most_per_disruption_first_without_anything_new() {
    check(&["m 2500", "m 3000 1000", "l 2500 1000", "x 4000", "x 3500t 3000"], &["n0 n1"], "0.4");
}

#[test]
fn the_same_with_the_dearest_of_them_filled_first() {
    // Seven more that are full, so that there are too many to look at every set.
    let mut nodes = vec!["x 8000t"; 13];
    nodes[..6].copy_from_slice(&SIX);
    check(&nodes, &["n5", "n1 n4 > 1m"], "0.56");
}

const SIX: [&str; 6] =
    ["l 3500 1500 500", "l 1000 1500", "x 2000 1500 1000 3000", "x 1000 3500", "s 500 1500", "x 3500"];

#[test]
fn of_few_every_two_and_three_are_looked_at() {
    check(&SIX, &["n0 n1"], "0.58");
    check(&["m 1500", "s 2000", "s 2000", "x 1000"], &["n0 n1 n2"], "0.42");
}

#[test]
fn who_saves_most_per_disruption_first_with_new_nodes_from_the_beginning() {
    let nodes =
        ["m 3500", "m 500 500t 500 500", "l 2000 500", "l 3000", "l 2000 3000 1000t", "l 500 500 1000t 2000"];
    check(&nodes, &["n2 n3 n4 > 1x"], "0.51");
}

#[test]
fn the_dearest_first_without_anything_new() {
    check(
        &["l 3000", "l 3000 3000", "x 1000", "x 4000 3000t", "s 1500 500", "x 3500 1500"],
        &["n0 n2"],
        "0.65",
    );
}

#[test]
fn the_dearest_first_with_the_dearest_of_them_filled_first() {
    check(&["x 1000 1500", "l 3500 2500", "m 1000", "x 1000"], &["n1 n3"], "0.65");
}

#[test]
fn the_dearest_first_with_new_nodes_from_the_beginning() {
    check(
        &["l 3000 1000", "s 2000", "m 3500", "m 2000 500 1000t", "l 1500", "m 500"],
        &["n0 n2 n4 n5 > 1s 1x"],
        "0.51",
    );
}

#[test]
fn where_none_can_go_alone_the_first_few_go_together() {
    let town = town(&["s 2000", "s 2000", "s 2000"]);
    let plan = town.plan();
    assert_eq!(done(&plan), (vec!["n0 n1 n2 > 1l".to_owned()], "0.04".to_owned()));
    // Two of them would have been replaced by one for less gain.
    let others = &plan.commands[0].alternatives;
    let pair = others.iter().find(|one| one.nodes.len() == 2).expect("pairs were looked at");
    assert_eq!((pair.savings.to_string().as_str(), pair.code), ("0.02", "SavesLess"), "{others:#?}");
    assert_eq!(pair.message, "it saves $0.02 an hour less");
}

#[test]
fn where_none_can_go_alone_two_of_several_go_together() {
    // The first of them is the largest there is, and full.
    check(&["x 8000", "m 4000", "m 3500"], &["n1 n2 > 1x"], "0.04");
}

#[test]
fn of_many_that_cannot_go_alone_the_cheapest_are_tried_in_pairs() {
    let mut nodes = vec!["x 8000"; 24];
    nodes.extend(["m 4000", "m 3500"]);
    check(&nodes, &["n24 n25 > 1x"], "0.04");
}

#[test]
fn later_looks_take_up_the_pairs_of_others() {
    // Those with pods that need their type come first, because they cost less.
    let mut nodes = vec!["s 2000t"; 24];
    nodes.extend(["x 8000", "m 4000", "m 3500"]);
    let town = town(&nodes);
    let (mut engine, begun) = (town.engine(), town.now);
    let decided = decisions(&mut engine, begun, begun + SignedDuration::from_mins(130));
    let is_bought =
        |decision: &Decision| decision.actions.iter().any(|one| matches!(one.action, Action::CreateClaim(_)));
    let at = decided.iter().find(|(_, decision)| is_bought(decision)).map(|(at, _)| *at);
    let at = at.expect("one comes for two in the second look");
    assert!(at > begun + SignedDuration::from_mins(4), "{at}, begun {begun}");
}

#[test]
fn who_can_only_go_together_is_looked_for_again_five_minutes_after_a_look_in_vain() {
    let mut town = town(&["x 8000", "m 4000", "m 3500t"]);
    let (mut engine, begun) = (town.engine(), town.now);
    let after = |minutes| begun + SignedDuration::from_mins(minutes);
    let bought = |decisions: &[(Timestamp, Decision)]| {
        let buys = |decision: &Decision| {
            decision.actions.iter().any(|one| matches!(one.action, Action::CreateClaim(_)))
        };
        decisions.iter().find(|(_, decision)| buys(decision)).map(|(at, _)| *at)
    };
    assert_eq!(bought(&decisions(&mut engine, begun, after(1))), None, "its pod needs the type");

    let pod = pod("p2-0", None, shape("web", "3500m"));
    engine.observe(after(1), Observation::PodGone(pod.key));
    town.run("free", "n2", shape("web", "3500m"));
    let free = town.cluster.pods.values().find(|pod| pod.key.name.as_str() == "free").expect("it runs");
    engine.observe(after(1), Observation::Pod(free.clone()));
    let at = bought(&decisions(&mut engine, after(1), after(7))).expect("one comes for two");
    assert!((after(5)..after(6)).contains(&at), "{at}, begun {begun}");
}
