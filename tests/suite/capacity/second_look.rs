//! What becomes of a decision to save money while it waits for its second look.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::Decision;
use provisor::capacity::disruption::{Kind, Method};
use provisor::capacity::engine::Engine;
use provisor::model::action::{Action, Subject};
use provisor::model::label::{self, annotation};
use provisor::model::name::{ClaimName, NodeName, ObjectKey, PoolName};
use provisor::model::observation::Observation;
use provisor::model::pod::{Pod, PodShape};
use provisor::model::pool::{Budget, BudgetNodes};
use provisor::model::requirement::{Operator, Requirement};
use provisor::ui::metrics::Metrics;

use super::town::*;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

/// Two nodes of which each could hold all, a third one that stays.
fn merging() -> Town {
    let mut town = Town::with(|_| ());
    for node in ["n1", "n2", "n3"] {
        town.node(node, "m5.xlarge");
        town.run(node, node, shape("web", "300m"));
    }
    protect(&mut town, "n3");
    town
}

/// One node that is too large.
fn oversized() -> Town {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.2xlarge");
    town.run("n1", "n1", shape("web", "500m"));
    town
}

/// One node whose pods fit on another one that stays.
fn superfluous() -> Town {
    let mut town = Town::with(|_| ());
    for node in ["n1", "n2"] {
        town.node(node, "m5.large");
        town.run(node, node, shape("web", "500m"));
    }
    protect(&mut town, "n2");
    town
}

fn idle() -> Town {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town
}

fn protect(town: &mut Town, node: &str) {
    town.change_node(node, |node| {
        node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
    });
}

/// A town, the method that alone finds something in it, and what that does to how many nodes.
type Case = (fn() -> Town, Method, Kind, usize);

const TOWNS: [Case; 4] = [
    (idle, Method::Emptiness, Kind::Delete, 1),
    (superfluous, Method::SingleNodeConsolidation, Kind::Delete, 1),
    (oversized, Method::SingleNodeConsolidation, Kind::Replace, 1),
    (merging, Method::MultiNodeConsolidation, Kind::Delete, 2),
];

/// What is decided at the end of the pause, if `news` come ten seconds after the decision.
fn looked_at_again(town: &Town, news: Vec<Observation>) -> (Engine, Decision) {
    let mut engine = town.engine();
    engine.decide(town.now);
    let proposed = engine.plan().disruption.commands.len();
    assert_eq!(proposed, 1, "{:#?}", engine.plan().disruption);
    news.into_iter().for_each(|seen| engine.observe(town.now + seconds(10), seen));
    let before = engine.decide(town.now + seconds(12));
    assert!(before.started.is_empty());
    let decision = engine.decide(town.now + seconds(15));
    (engine, decision)
}

/// What is read at nodes and claims of what did not stand.
fn rejections(decision: &Decision) -> Vec<(Subject, String)> {
    let notices = decision.actions.iter().filter_map(|one| match &one.action {
        Action::Publish(notice) if &*notice.reason == "ConsolidationRejected" => Some(notice),
        _ => None,
    });
    notices.map(|notice| (notice.subject, notice.message.to_string())).collect()
}

/// By its first word, why the decision did not stand.
fn rejected(decision: &Decision) -> Option<String> {
    let (_, message) = rejections(decision).into_iter().next()?;
    Some(message.split(": ").next().unwrap_or_default().to_owned())
}

fn arrives(pod: Pod) -> Observation {
    Observation::Pod(Arc::new(pod))
}

fn runs(name: &str, node: &str, shape: PodShape) -> Observation {
    arrives(pod(name, Some(node), shape))
}

fn closed(town: &Town) -> Observation {
    let mut pool = (*town.cluster.pools[&PoolName::new("default")]).clone();
    pool.disruption.budgets =
        vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: None }];
    Observation::Pool(Arc::new(pool))
}

/// A pod that waits and may go to the first node alone.
fn sent_to_n1() -> Observation {
    let mut wants = shape("sent", "100m");
    wants.node_selector.insert("example.com/slot".into(), "1".into());
    arrives(pod("sent", None, wants))
}

#[test]
fn dis_270_nothing_is_done_before_the_pause_is_over() {
    for (town, method, kind, nodes) in TOWNS {
        let town = town();
        let mut engine = town.engine();
        let early: [i64; 5] = [0, 1, 5, 10, 14];
        for second in early {
            let decision = engine.decide(town.now + seconds(second));
            let done = reasons(&decision);
            assert!(
                !done.contains_key("Underutilized") && !done.contains_key("Empty"),
                "{method:?}: {done:?}"
            );
            assert!(decision.started.is_empty());
        }
        assert!(engine.cluster().nodes.values().all(|node| node.taints.is_empty()));
        let started = engine.decide(town.now + seconds(15)).started;
        let found: Vec<_> = started.iter().map(|one| (one.method, one.kind(), one.nodes.len())).collect();
        assert_eq!(found, [(method, kind, nodes)]);
    }
}

#[test]
fn dis_271_what_needs_a_larger_machine_meanwhile_is_not_replaced_by_a_small_one() {
    let town = oversized();
    let (_, decision) = looked_at_again(&town, vec![runs("late", "n1", shape("web", "2500m"))]);
    assert_eq!((decision.started.len(), rejected(&decision)), (0, Some("scheduling".into())));
    // A pod for which there is room all the same changes nothing.
    let (_, decision) = looked_at_again(&town, vec![runs("late", "n1", shape("web", "100m"))]);
    assert_eq!(decision.started.len(), 1);
}

/// Rows: DIS-272, DIS-273
#[test]
fn dis_272_pods_that_may_not_be_moved_any_more_keep_their_node() {
    let mut staying = shape("web", "100m");
    staying.do_not_disrupt = Some("true".into());
    for (town, method, _, _) in TOWNS {
        let by_pod = runs("late", "n1", staying.clone());
        let by_budget = Observation::Budget(Arc::new(pdb("web", "web", 0)));
        // What is empty has no pods that a budget could hold.
        let is_empty = method == Method::Emptiness;
        let both = [Some(by_pod), Some(by_budget).filter(|_| !is_empty)];
        for news in both.into_iter().flatten() {
            let shown = format!("{method:?}: {news:?}");
            let (engine, decision) = looked_at_again(&town(), vec![news]);
            assert_eq!((decision.started.len(), rejected(&decision)), (0, Some("churn".into())), "{shown}");
            assert!(engine.cluster().nodes.values().all(|node| node.taints.is_empty()), "{shown}");
        }
    }
}

/// What keeps a node comes while the decision waits; each of the command's nodes is counted.
///
/// Rows: DIS-274, DIS-275, DIS-276, DIS-279
#[test]
fn dis_274_what_does_not_stand_is_counted_and_sorted_by_what_has_changed() {
    let kinds = ["empty", "single", "single", "multi"];
    for ((town, method, _, nodes), kind) in TOWNS.into_iter().zip(kinds) {
        type Change = (&'static str, fn(&Town) -> Observation);
        let cases: [Change; 3] = [
            ("budget", |_| sent_to_n1()),
            ("budget", closed),
            ("churn", |town| {
                let mut node = (*town.cluster.nodes[&NodeName::new("n1")]).clone();
                node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
                Observation::Node(Arc::new(node))
            }),
        ];
        for (at, (word, news)) in cases.into_iter().enumerate() {
            let mut town = town();
            town.change_node("n1", |node| {
                node.labels.insert("example.com/slot".into(), "1".into());
            });
            let (_, decision) = looked_at_again(&town, vec![news(&town)]);
            let shown = format!("{method:?}, case {at}");
            assert_eq!(decision.started, [], "{shown}");
            assert_eq!(decision.withdrawn, [(method, nodes)], "{shown}");
            // An empty node is dropped from its command alone, so what is left of that is nothing.
            let expected = if method == Method::Emptiness { "churn" } else { word };
            assert_eq!(rejected(&decision).as_deref(), Some(expected), "{shown}");
            let metrics = Metrics::new();
            metrics.decided(town.now, &decision);
            let line = format!(
                "karpenter_voluntary_disruption_failed_validations_total{{consolidation_type=\"{kind}\"}} {nodes}\n"
            );
            assert!(metrics.text(town.now).contains(&line), "{shown}: {line}");
        }
    }
}

#[test]
fn dis_268_a_decision_that_does_not_stand_is_told_at_its_nodes_and_claims() {
    let town = merging();
    let (_, decision) = looked_at_again(&town, vec![closed(&town)]);
    let told = rejections(&decision);
    let subjects: Vec<Subject> = told.iter().map(|(subject, _)| *subject).collect();
    let nodes = ["n1", "n2"].map(|name| Subject::Node(NodeName::new(name)));
    let claims = ["n1-claim", "n2-claim"].map(|name| Subject::Claim(ClaimName::new(name)));
    assert_eq!(subjects, nodes.into_iter().chain(claims).collect::<Vec<_>>());
    let why = "budget: the budgets of pool default allow no disruption for reason Underutilized now";
    assert!(told.iter().all(|(_, message)| message == why), "{told:?}");
    assert_eq!(decision.started, []);
    // What else was decided in that pass goes all the same.
    let mut town = Town::new(vec![pool("default"), pool("other")]);
    for (node, pool) in [("n1", "default"), ("n2", "other")] {
        town.node_of(pool, node, "m5.2xlarge", "on-demand");
        let mut own = shape("web", "500m");
        own.node_selector.insert(*label::NODEPOOL, pool.into());
        town.run(node, node, own);
    }
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!(engine.plan().disruption.commands.len(), 2);
    engine.observe(town.now + seconds(10), closed(&town));
    let decision = engine.decide(town.now + seconds(15));
    let started: Vec<_> = decision.started.iter().map(|one| one.nodes.clone()).collect();
    assert_eq!(started, [[NodeName::new("n2")]]);
    assert_eq!(decision.withdrawn, [(Method::SingleNodeConsolidation, 1)]);
}

/// More, fewer or none of the nodes that were to come.
#[test]
fn dis_277_another_number_of_replacements_is_another_decision() {
    let refused = |town: &Town, news: Vec<Observation>| {
        let (_, decision) = looked_at_again(town, news);
        assert_eq!(decision.started, []);
        rejections(&decision).remove(0).1
    };
    let other = "scheduling: scheduling simulation produced new results";
    // None is needed any more.
    let town = oversized();
    let mut larger = oversized();
    larger.node("n2", "m5.large");
    protect(&mut larger, "n2");
    let of_n2 = |seen: &Observation| match seen {
        Observation::Node(node) => node.name == NodeName::new("n2"),
        Observation::Claim(claim) => claim.name == ClaimName::new("n2-claim"),
        _ => false,
    };
    let joins: Vec<_> = objects(&larger.cluster).into_iter().filter(of_n2).collect();
    assert_eq!(joins.len(), 2);
    assert_eq!(refused(&town, joins), other);
    // One is needed after all.
    let mut town = superfluous();
    town.cluster.remove_node("n1".into());
    town.cluster.remove_claim("n1-claim".into());
    town.node("n1", "m5.2xlarge");
    assert_eq!(refused(&town, vec![runs("late", "n2", shape("web", "1400m"))]), other);
    // Two large ones go for one, and then for two.
    let rows = "big,amd64,8,32768,7910m,29317Mi,58,,,1.0,,us-west-2a,on-demand\n\
                middle,amd64,4,16384,3920m,14162Mi,58,,,0.15,,us-west-2a,on-demand\n\
                small,amd64,2,8192,1930m,6903Mi,29,,,0.1,,us-west-2a,on-demand";
    let mut town = Town::selling(sold(rows), vec![pool("default")]);
    for node in ["n1", "n2"] {
        town.node(node, "big");
        town.run(node, node, shape("web", "900m"));
    }
    let mut engine = town.engine();
    engine.decide(town.now);
    let command = engine.plan().disruption.commands[0].clone();
    assert_eq!((command.nodes.len(), command.replacements.len()), (2, 1));
    // The pods of each fit on a type that was planned, and those of both do not.
    let news = vec![runs("late-1", "n1", shape("web", "2500m")), runs("late-2", "n2", shape("web", "2500m"))];
    assert_eq!(refused(&town, news), other);
}

#[test]
fn dis_278_every_planned_type_must_still_do() {
    let mut town = oversized();
    town.run("more", "n1", shape("web", "2500m"));
    let mut engine = town.engine();
    engine.decide(town.now);
    let types = |engine: &Engine| engine.plan().disruption.commands[0].replacements[0].instance_types();
    assert_eq!(types(&engine), ["m5.xlarge".into()]);
    // More would do: what was planned is bought.
    let gone = Observation::PodGone(ObjectKey::new("default", "more"));
    let (_, decision) = looked_at_again(&town, vec![gone]);
    let replacement = &decision.started[0].replacements[0];
    assert_eq!(replacement.instance_types(), ["m5.xlarge".into()]);
    // Fewer would do.
    let town = oversized();
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!(types(&engine), ["m5.large".into(), "m5.xlarge".into()]);
    let (_, decision) = looked_at_again(&town, vec![runs("late", "n1", shape("web", "1500m"))]);
    assert_eq!(decision.started, []);
    assert_eq!(rejections(&decision)[0].1, "scheduling: some of its instance types no longer suit");
}

/// A merge that does not stand leaves the single nodes to be judged, each with a pause of its own.
/// What is sold ten seconds after the decision to replace a machine that is too large.
fn sold_later(rows: &str) -> Decision {
    let mut town = oversized();
    town.change_pool("default", |pool| {
        let types = Requirement::new(Operator::In, ["m5.large".into(), "m5.2xlarge".into()]);
        Arc::make_mut(&mut pool.template).requirements.add(*label::INSTANCE_TYPE, types);
    });
    looked_at_again(&town, vec![Observation::Catalog(sold(rows))]).1
}

#[test]
fn what_costs_more_meanwhile_or_is_sold_elsewhere_is_looked_at_again() {
    let rows = |price: &str, zones: &str| {
        format!(
            "m5.large,amd64,2,8192,1930m,6903Mi,29,,,{price},0.035,{zones},on-demand spot\n\
             m5.2xlarge,amd64,8,32768,7910m,29317Mi,58,,,0.384,0.14,us-west-2a us-west-2b,on-demand spot"
        )
    };
    let both = "us-west-2a us-west-2b";
    let same = sold_later(&rows("0.096", both));
    assert_eq!(same.started[0].replacements[0].zones().len(), 2);
    // It would still save something, and not what was decided for.
    for price in ["0.2", "0.38", "0.5"] {
        let dearer = sold_later(&rows(price, both));
        assert!(dearer.started.is_empty(), "{price}");
        assert_eq!(rejected(&dearer).as_deref(), Some("scheduling"), "{price}");
    }
    let cheaper = sold_later(&rows("0.05", both));
    assert_eq!(cheaper.started[0].savings.to_string(), "0.334");
    let elsewhere = sold_later(&rows("0.096", "us-west-2b"));
    let zones: Vec<String> =
        elsewhere.started[0].replacements[0].zones().iter().map(ToString::to_string).collect();
    assert_eq!(zones, ["us-west-2b"], "nothing is asked for where it is not sold any more");
}

#[test]
fn dis_255_after_a_failed_merge_another_node_goes() {
    let town = merging();
    let (mut engine, decision) = looked_at_again(&town, vec![runs("late", "n1", shape("late", "3"))]);
    assert_eq!(decision.withdrawn, [], "there is room for it on the node that stays");
    assert_eq!(decision.started.len(), 1);
    drop(engine);
    // Too much for the one that stays.
    let news = vec![runs("late", "n1", shape("late", "3500m"))];
    let (next, decision) = looked_at_again(&town, news);
    engine = next;
    assert_eq!(decision.withdrawn, [(Method::MultiNodeConsolidation, 2)]);
    assert_eq!(decision.started, []);
    let found = |engine: &Engine| -> Vec<_> {
        let commands = &engine.plan().disruption.commands;
        commands.iter().map(|one| (one.method, one.nodes.clone())).collect()
    };
    let alone = [(Method::SingleNodeConsolidation, vec![NodeName::new("n2")])];
    assert_eq!(found(&engine), alone, "it is found in the same breath");
    assert_eq!(engine.decide(town.now + seconds(29)).started, []);
    let started = engine.decide(town.now + seconds(30)).started;
    assert_eq!(started.iter().map(|one| (one.method, one.nodes.clone())).collect::<Vec<_>>(), alone);
}

#[test]
fn dis_280_a_process_that_ends_during_the_pause_leaves_nothing_behind() {
    for (town, method, _, _) in TOWNS {
        let town = town();
        let mut engine = town.engine();
        let mut until: Timestamp = town.now;
        for second in [0, 14] {
            until = town.now + seconds(second);
            let decision = engine.decide(until);
            let writes = decision.actions.iter().filter(|one| match &one.action {
                Action::UpdateNode { change, .. } => !change.add_taints.is_empty(),
                Action::DeleteClaim { .. } | Action::CreateClaim(_) => true,
                _ => false,
            });
            assert_eq!(writes.count(), 0, "{method:?}");
        }
        // Its successor knows nothing of it, and thinks for as long.
        let mut successor = engine_of(engine.cluster(), until, town.settings.clone());
        drop(engine);
        for second in [0, 1, 14] {
            assert_eq!(successor.decide(until + seconds(second)).started, [], "{method:?}");
        }
        assert_eq!(successor.decide(until + seconds(15)).started.len(), 1, "{method:?}");
    }
}
