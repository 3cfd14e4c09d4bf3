//! What it costs to move pods, what a node is worth, and which node comes first by that.

use std::cmp::Ordering;

use provisor::api;
use provisor::capacity::disruption::Method;
use provisor::capacity::disruption::cost::{ONE, by_savings, disruption_cost, eviction_cost, price};
use provisor::model::label::annotation;
use provisor::model::money::UsdPerHour;
use provisor::model::name::{NodeName, TypeName, Zone};
use provisor::model::offering::{CapacityType, InstanceType, Offering};
use provisor::model::pod::PodShape;
use provisor::model::pool::{Budget, BudgetNodes, ConsolidationPolicy, DisruptionReason};
use provisor::model::quantity::resource;
use serde_json::json;

use super::town::*;

fn cost_of(priority: i32, deletion_cost: i32) -> i64 {
    eviction_cost(&pod("web", Some("n1"), PodShape { priority, deletion_cost, ..shape("web", "100m") }))
}

/// Rows: DIS-079, DIS-080, DIS-081, DIS-082
#[test]
fn dis_079_a_pod_costs_one_more_or_less_by_what_it_says() {
    assert_eq!(cost_of(0, 0), ONE);
    let rising = [-500, -100, 0, 100, 300, 500].map(|deletion_cost| cost_of(0, deletion_cost));
    assert!(rising.is_sorted_by(|a, b| a < b) && rising[1] < ONE && rising[3] > ONE, "{rising:?}");
    let rising = [-1_000_000, -1, 0, 1, 1_000_000_000].map(|priority| cost_of(priority, 0));
    assert!(rising.is_sorted_by(|a, b| a < b) && rising[1] < ONE && rising[3] > ONE, "{rising:?}");
    // A whole pod more for a priority of 2^25, or a deletion cost of 2^27.
    assert_eq!((cost_of(1 << 25, 0), cost_of(0, 1 << 27)), (2 * ONE, 2 * ONE));
    assert_eq!((cost_of(i32::MAX, i32::MAX), cost_of(i32::MIN, i32::MIN)), (10 * ONE, -10 * ONE));
    for (written, expected) in [("2147483647", 16 * ONE + ONE), ("much", ONE), ("1.5", ONE), ("", ONE)] {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web", "namespace": "default", "uid": "u",
                "annotations": {"controller.kubernetes.io/pod-deletion-cost": written},
            },
            "spec": {"containers": [{"name": "c", "image": "c"}]},
        });
        let Ok(api::Object::Pod(pod)) = api::parse(&object) else { panic!("it is a pod") };
        let expected = expected.min(10 * ONE);
        assert_eq!(eviction_cost(&pod), expected, "{written:?}");
    }
}

fn offering(zone: &str, dollars: &str, is_available: bool) -> Offering {
    Offering {
        zone: Zone::new(zone),
        capacity_type: CapacityType::OnDemand,
        price: dollars.parse().expect("a price"),
        is_available,
        reservation: None,
    }
}

fn sold(name: &str, offerings: Vec<Offering>) -> InstanceType {
    let found = catalog().instance_types(None)[0].clone();
    InstanceType { name: TypeName::new(name), offerings, ..found }
}

/// A node in zone a with so many ordinary pods, and what giving it back saves per disruption.
fn worth(pods: usize, types: &[InstanceType]) -> (UsdPerHour, i64) {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    (0..pods).for_each(|index| town.run(&format!("web-{index}"), "n1", shape("web", "10m")));
    let node = town.cluster.nodes[&NodeName::new("n1")].clone();
    (price(&node, types), disruption_cost(&town.cluster, node.name))
}

/// Rows: DIS-083, DIS-088
#[test]
fn dis_083_a_node_is_worth_its_own_price_per_disruption() {
    let at = |dollars: &str| [sold("m5.large", vec![offering("us-west-2a", dollars, true)])];
    let is_like = |a, b| by_savings(a, b) == Ordering::Equal;
    let dollars = |text: &str| text.parse::<UsdPerHour>().expect("a price");
    assert!(is_like(worth(0, &at("4.84")), (dollars("4.84"), ONE)));
    assert!(is_like(worth(3, &at("4.84")), (dollars("1.21"), ONE)));
    let unknown = [sold("m5.xlarge", vec![offering("us-west-2a", "4.84", true)])];
    assert_eq!(worth(0, &unknown).0, UsdPerHour::ZERO);
    let elsewhere = [sold("m5.large", vec![offering("us-west-2b", "5", true)])];
    assert_eq!(worth(0, &elsewhere).0, UsdPerHour::ZERO, "not sold in its zone");
    let sold_out =
        [sold("m5.large", vec![offering("us-west-2b", "5", true), offering("us-west-2a", "1", false)])];
    assert_eq!(worth(0, &sold_out).0, dollars("1"), "what is sold out still costs what it costs");
}

/// Rows: DIS-085, DIS-087
#[test]
fn dis_087_what_saves_most_per_disruption_comes_first() {
    let dollar = UsdPerHour(1_000_000);
    assert_eq!(
        by_savings((dollar, 2 * ONE), (dollar, 3 * ONE)),
        Ordering::Less,
        "fewer pods at the same price"
    );
    let groups = [20, 5, 1].into_iter().flat_map(|disruption| [disruption; 3]);
    let mut nine: Vec<_> = groups.map(|disruption| (dollar, disruption * ONE)).collect();
    nine.sort_by(|a, b| by_savings(*a, *b));
    assert_eq!(nine.iter().map(|(_, cost)| cost / ONE).collect::<Vec<_>>(), [1, 1, 1, 5, 5, 5, 20, 20, 20]);
    // By the ratio, not by either of its parts: 5, 1.25, 0.11.
    let mut three = [(UsdPerHour(1), 9 * ONE), (UsdPerHour(5), 4 * ONE), (UsdPerHour(10), 2 * ONE)];
    three.sort_by(|a, b| by_savings(*a, *b));
    assert_eq!(three.iter().map(|(price, _)| price.0).collect::<Vec<_>>(), [10, 5, 1]);
}

/// Three nodes of which each one's pods fit on the others; which would go if only one may, and which after that.
#[test]
fn dis_084_every_policy_takes_nodes_in_the_same_order() {
    use ConsolidationPolicy::{Balanced, WhenEmptyOrUnderutilized};
    for [first, second] in [
        [WhenEmptyOrUnderutilized, WhenEmptyOrUnderutilized],
        [Balanced, Balanced],
        [WhenEmptyOrUnderutilized, Balanced],
        [Balanced, WhenEmptyOrUnderutilized],
    ] {
        let pools = [("first", first), ("second", second)].map(|(name, policy)| {
            let mut pool = pool(name);
            pool.disruption.policy = policy;
            let nodes = BudgetNodes::Count(1);
            pool.disruption.budgets = vec![Budget { nodes, reasons: Vec::new(), window: None }];
            pool
        });
        let mut order = Vec::new();
        for protected in [vec![], vec!["dear"], vec!["dear", "fair"]] {
            let mut town = Town::new(pools.clone().into());
            // Dollars per disruption: 0.192, 0.048, 0.024.
            for (pool, node, kind, pods) in [
                ("first", "dear", "m5.2xlarge", 1),
                ("second", "fair", "m5.xlarge", 3),
                ("first", "full", "m5.large", 3),
            ] {
                town.node_of(pool, node, kind, "on-demand");
                for index in 0..pods {
                    town.run(&format!("{node}-{index}"), node, shape("web", "300m"));
                }
            }
            for node in protected {
                town.change_node(node, |node| {
                    node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
                });
            }
            let first = town.plan().commands.into_iter().next();
            let nodes = first.map_or_else(Vec::new, |command| command.nodes);
            order.push(nodes.iter().map(|node| node.as_str()).collect::<Vec<_>>());
        }
        assert!(order[0].contains(&"dear"), "{first:?} and {second:?}: {order:?}");
        assert!(order[1].contains(&"fair"), "{first:?} and {second:?}: {order:?}");
        // Of its pool it is a fifth of the price, and two thirds of the pods: too little for the balanced policy.
        let last: &[&str] = if first == Balanced { &[] } else { &["full"] };
        assert_eq!(order[2], last, "{first:?} and {second:?}");
    }
}

#[test]
fn dis_091_a_node_whose_pods_nobody_would_miss_is_empty() {
    for (priority, deletion_cost, is_empty) in
        [(-(1 << 25), 0, true), (0, -(1 << 27), true), (i32::MIN, i32::MIN, true), (1 - (1 << 25), 0, false)]
    {
        let mut town = Town::with(|pool| {
            pool.disruption.policy = ConsolidationPolicy::WhenEmpty;
            // Nothing more can be bought: nobody asks where the pod would go.
            pool.limits = Some([(*resource::NODES, 1)].into_iter().collect());
        });
        town.node("n1", "m5.large");
        let shape = PodShape { priority, deletion_cost, ..shape("web", "1500m") };
        town.run("web", "n1", shape);
        let commands = town.plan().commands;
        let found: Vec<_> = commands.iter().map(|command| (command.method, command.reason())).collect();
        let expected = is_empty.then_some((Method::Emptiness, DisruptionReason::Empty));
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{priority} {deletion_cost}");
    }
    // What one pod lacks does not make up for what another has.
    let mut town = Town::with(|pool| pool.disruption.policy = ConsolidationPolicy::WhenEmpty);
    town.node("n1", "m5.large");
    town.run("a", "n1", PodShape { priority: i32::MIN, ..shape("web", "100m") });
    town.run("b", "n1", shape("web", "100m"));
    assert_eq!(town.kept("n1"), "PolicyWhenEmpty");
}
