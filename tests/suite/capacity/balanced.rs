//! Pools that give nodes back only where that saves enough for what it disrupts: what they count, and what is told of it.

use std::sync::Arc;

use provisor::capacity::decision::Decision;
use provisor::capacity::disruption::balanced::{Move, Score};
use provisor::capacity::disruption::cost::ONE;
use provisor::capacity::disruption::{Kind, Method};
use provisor::model::label::{self, annotation};
use provisor::model::money::UsdPerHour;
use provisor::model::pod::PodShape;
use provisor::model::pool::{Budget, BudgetNodes, ConsolidationPolicy, NodeOverlay, NodePool, PriceChange};
use provisor::model::requirement::{Operator, Requirement, Requirements};
use provisor::ui::metrics::Metrics;

use super::town::*;

fn balanced(name: &str) -> NodePool {
    let mut pool = pool(name);
    pool.disruption.policy = ConsolidationPolicy::Balanced;
    pool
}

fn protect(town: &mut Town, node: &str) {
    town.change_node(node, |node| {
        node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
    });
}

fn held_to(mut shape: PodShape, key: &str, value: &str) -> PodShape {
    shape.node_selector.insert(key.into(), value.into());
    shape
}

fn open_to_spot(pool: &mut NodePool) {
    let both = Requirement::new(Operator::In, ["spot", "on-demand"].map(Into::into));
    Arc::make_mut(&mut pool.template).requirements.replace(*label::CAPACITY_TYPE, both);
}

fn shown(score: &Score) -> (&str, String) {
    (score.pool.as_str(), format!("{:.2}", score.value()))
}

/// What is told of moves that were let: where, and by which words.
fn approvals(decision: &Decision) -> Vec<(String, String)> {
    let told = events(decision).into_iter().filter(|(_, word, _)| word == "ConsolidationApproved");
    told.map(|(subject, _, message)| (subject, message)).collect()
}

const BIG: &str = "big,amd64,8,32768,7910m,29317Mi,58,,,4.84,,us-west-2a,on-demand";

/// Nodes of one type with one small pod each.
fn uniform(count: usize) -> Town {
    let mut town = Town::selling(sold(BIG), vec![balanced("default")]);
    for index in 0..count {
        let node = format!("n{index}");
        town.node(&node, "big");
        town.run(&node, &node, shape("web", "500m"));
    }
    town
}

fn totals(moves: &[Move]) -> Vec<(UsdPerHour, i64)> {
    moves.iter().flat_map(|one| &one.scores).map(|score| score.total).collect()
}

/// Rows: DIS-290, DIS-291
#[test]
fn dis_290_a_pool_costs_what_its_nodes_cost_and_their_pods_weigh() {
    assert_eq!(totals(&uniform(5).plan().moves), [(UsdPerHour(24_200_000), 10 * ONE)]);
    // Nodes that may not go count, too.
    let mut town = uniform(5);
    protect(&mut town, "n0");
    assert_eq!(totals(&town.plan().moves), [(UsdPerHour(24_200_000), 10 * ONE)]);
    // One that is of a type nobody sells costs nothing, as far as is known.
    let mut town = uniform(3);
    town.change_node("n0", |node| {
        node.labels.insert(*label::INSTANCE_TYPE, "z9.huge".into());
    });
    assert_eq!(totals(&town.plan().moves), [(UsdPerHour(9_680_000), 6 * ONE)]);
}

#[test]
fn dis_294_a_pool_of_another_policy_has_no_score_and_no_veto() {
    let mut town = uniform(2);
    town.change_pool("default", |pool| {
        pool.disruption.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
    });
    let plan = town.plan();
    assert_eq!((plan.commands.len(), plan.moves.len()), (1, 1));
    assert!(plan.moves[0].scores.is_empty() && plan.moves[0].is_approved());
    assert_eq!(approvals(&town.engine().decide(town.now)), []);
}

#[test]
fn dis_299_the_only_node_of_a_pool_is_worth_one() {
    let mut town = Town::new(vec![balanced("alone"), pool("default")]);
    town.node_of("alone", "n1", "m5.large", "on-demand");
    town.run("web", "n1", shape("web", "500m"));
    town.node("n2", "m5.xlarge");
    protect(&mut town, "n2");
    let plan = town.plan();
    assert_eq!(plan.commands[0].kind(), Kind::Delete);
    assert_eq!(plan.moves[0].scores.iter().map(shown).collect::<Vec<_>>(), [("alone", "1.00".into())]);
}

/// A node of 50 cents with three pods, for which a type will do that is cheap as spot and hardly cheaper on demand.
fn tempted(change: fn(&mut NodePool)) -> Town {
    let rows = "old,amd64,8,32768,7910m,29317Mi,58,,,0.5,,us-west-2a,on-demand\n\
                new,amd64,4,16384,3920m,14162Mi,58,,,0.4,0.1,us-west-2a,on-demand spot";
    let mut default = balanced("default");
    change(&mut default);
    let mut town = Town::selling(sold(rows), vec![default]);
    for (node, pods, cpu) in [("n1", 3, "1"), ("n2", 5, "1500m")] {
        town.node(node, "old");
        for index in 0..pods {
            town.run(&format!("{node}-{index}"), node, shape("web", cpu));
        }
    }
    protect(&mut town, "n2");
    town
}

#[test]
fn dis_300_what_is_saved_is_reckoned_by_what_may_be_launched() {
    let town = tempted(|_| ());
    let plan = town.plan();
    assert_eq!(plan.commands, []);
    assert_eq!(town.kept("n1"), "BalancedScore");
    let [turned_down] = plan.moves.as_slice() else { panic!("{:?}", plan.moves) };
    let score = &turned_down.scores[0];
    assert_eq!(
        (score.savings, score.moved, score.total),
        (UsdPerHour(100_000), 4 * ONE, (UsdPerHour(1_000_000), 10 * ONE))
    );
    assert_eq!((shown(score).1.as_str(), turned_down.is_approved()), ("0.25", false));
    // Nobody is told; monitoring is.
    let decision = town.engine().decide(town.now);
    assert_eq!(approvals(&decision), []);
    let metrics = Metrics::new();
    metrics.decided(town.now, &decision);
    let text = metrics.text(town.now);
    let rejected = "consolidation_moves_total{decision=\"rejected\",nodepool=\"default\"";
    assert!(text.contains(rejected) && !text.contains("decision=\"approved\""), "{text}");
    // Where spot may be launched it is worth it.
    let town = tempted(open_to_spot);
    let plan = town.plan();
    assert_eq!(plan.commands[0].savings, UsdPerHour(400_000));
    assert_eq!(plan.moves[0].scores.iter().map(shown).collect::<Vec<_>>(), [("default", "1.00".into())]);
}

#[test]
fn dis_301_what_is_saved_is_reckoned_by_the_cheapest_that_rules_allow() {
    let saved = |zone: Option<&str>, change: fn(&mut NodePool)| {
        let rows = "old,amd64,8,32768,7910m,29317Mi,58,,,1.0,,us-west-2a,on-demand\n\
                    new,amd64,4,16384,3920m,14162Mi,58,,,0.4,0.2,us-west-2a us-west-2b,on-demand spot";
        let mut default = balanced("default");
        change(&mut default);
        let mut town = Town::selling(sold(rows), vec![default]);
        let mut requirements = Requirements::new();
        requirements.add(*label::ZONE, Requirement::one("us-west-2b".into()));
        requirements.add(*label::CAPACITY_TYPE, Requirement::one("on-demand".into()));
        let cheaper = NodeOverlay {
            name: "cheaper".into(),
            owner: None,
            requirements,
            price: Some(PriceChange::Set(UsdPerHour(300_000))),
            capacity: Default::default(),
            weight: 1,
            fault: None,
            conditions: Default::default(),
            is_judged_earlier: false,
        };
        town.cluster.overlays.insert(cheaper.name, Arc::new(cheaper));
        town.node("n1", "old");
        let mut web = shape("web", "500m");
        if let Some(zone) = zone {
            web = held_to(web, "topology.kubernetes.io/zone", zone);
        }
        town.run("web", "n1", web);
        town.plan().moves[0].scores[0].savings
    };
    assert_eq!(saved(None, |_| ()), UsdPerHour(700_000));
    assert_eq!(saved(Some("us-west-2a"), |_| ()), UsdPerHour(600_000));
    assert_eq!(saved(None, open_to_spot), UsdPerHour(800_000));
}

#[test]
fn dis_302_a_move_of_one_node_is_told_at_node_and_claim() {
    let mut town = Town::new(vec![balanced("default")]);
    town.node("n1", "m5.2xlarge");
    town.run("web", "n1", shape("web", "500m"));
    let mut engine = town.engine();
    let told = approvals(&engine.decide(town.now));
    assert_eq!(engine.plan().disruption.commands[0].kind(), Kind::Replace);
    let message = "score 0.75 >= threshold 0.50 (k: 2, savings 75.0%, disruption 100.0% of NodePool default)";
    assert_eq!(told, ["n1", "n1-claim"].map(|subject| (subject.to_owned(), message.to_owned())));
}

#[test]
fn dis_305_closed_budgets_let_nothing_be_approved() {
    let mut town = Town::new(vec![balanced("default")]);
    for node in ["n1", "n2"] {
        town.node(node, "m5.2xlarge");
        town.run(node, node, shape("web", "500m"));
    }
    let open = town.engine().decide(town.now);
    assert_eq!(approvals(&open).len(), 1);
    town.change_pool("default", |pool| {
        pool.disruption.budgets =
            vec![Budget { nodes: BudgetNodes::Percent(0), reasons: Vec::new(), window: None }];
    });
    let plan = town.plan();
    assert_eq!((plan.commands, plan.moves), (vec![], vec![]));
    assert_eq!(approvals(&town.engine().decide(town.now)), []);
}

#[test]
fn dis_307_only_what_balanced_pools_let_go_is_told() {
    let mut town = Town::new(vec![balanced("weighs"), pool("default")]);
    for (node, pool) in [("n1", "weighs"), ("n2", "default")] {
        town.node_of(pool, node, "m5.2xlarge", "on-demand");
        town.run(node, node, held_to(shape("web", "500m"), "karpenter.sh/nodepool", pool));
    }
    assert_eq!(town.gone(), ["n1", "n2"]);
    let told = approvals(&town.engine().decide(town.now));
    let subjects: Vec<_> = told.iter().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(subjects, ["n1", "n1-claim"]);
}

/// Nodes of two balanced pools and another one, which could all go to one that stays.
fn several() -> Town {
    let mut town = Town::new(vec![balanced("first"), balanced("second"), pool("default")]);
    for (pool, node) in [("first", "n1"), ("first", "n2"), ("second", "n3"), ("default", "n4")] {
        town.node_of(pool, node, "m5.large", "on-demand");
        town.run(node, node, shape("web", "100m"));
    }
    town.node("stays", "m5.2xlarge");
    protect(&mut town, "stays");
    town
}

#[test]
fn dis_308_a_move_of_several_nodes_is_told_once_at_each_balanced_pool() {
    let mut town = several();
    let command = town.command();
    assert_eq!((command.method, command.nodes.len()), (Method::MultiNodeConsolidation, 4));
    let told = approvals(&town.engine().decide(town.now));
    let subjects: Vec<_> = told.iter().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(subjects, ["first", "second"]);
    assert!(told[0].1.starts_with("score 1.00 >= threshold 0.50"), "{told:?}");
    // A pool that would gain too little is left out, and is not told: that happens too often.
    town.node_of("second", "dear", "m5.2xlarge", "on-demand");
    protect(&mut town, "dear");
    for index in 0..6 {
        town.run(&format!("more-{index}"), "n3", shape("web", "50m"));
    }
    assert_eq!(town.gone(), ["n1", "n2", "n4"]);
    let told = approvals(&town.engine().decide(town.now));
    let subjects: Vec<_> = told.iter().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(subjects, ["first"]);
}

#[test]
fn dis_309_no_place_is_looked_for_where_not_even_a_deletion_would_be_worth_it() {
    let mut town = Town::new(vec![balanced("default")]);
    for (node, kind, pods) in [("n1", "m5.large", 8), ("n2", "m5.2xlarge", 1)] {
        town.node(node, kind);
        for index in 0..pods {
            let pinned = held_to(shape("web", "100m"), "kubernetes.io/hostname", node);
            town.run(&format!("{node}-{index}"), node, pinned);
        }
    }
    let codes = |town: &Town| [town.kept("n1"), town.kept("n2")];
    assert_eq!(codes(&town), ["BalancedScore", "CannotReschedule"]);
    assert_eq!(town.plan().moves, [], "it was not weighed");
    town.change_pool("default", |pool| {
        pool.disruption.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
    });
    assert_eq!(codes(&town), ["CannotReschedule"; 2]);
}
