//! Which nodes may be considered at all, and what is told of those that may not.

use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::disruption::Method;
use provisor::model::label::{self, annotation};
use provisor::model::name::NodeName;
use provisor::model::observation::Observation;
use provisor::model::pod::{Pod, PodPhase};
use provisor::model::time::Patience;
use provisor::model::workload::{CountOrPercent, PodDisruptionBudget};

use super::town::*;

/// What stands against the node `n1`, in full; nothing if it goes.
fn objection(town: &Town) -> Option<String> {
    let plan = town.plan();
    plan.kept.iter().find(|kept| kept.node == NodeName::new("n1")).map(|kept| kept.message.clone())
}

/// What is published at `n1` and its claim when the town is looked at for the first time, each by its word.
fn told(town: &Town) -> Vec<(String, String, String)> {
    let mut told = events(&town.engine().decide(town.now));
    told.retain(|(subject, ..)| subject.starts_with("n1"));
    told
}

/// The same said at a node and at its claim.
fn at_both(word: &str, message: &str) -> Vec<(String, String, String)> {
    ["n1", "n1-claim"].map(|subject| (subject.into(), word.into(), message.into())).into()
}

/// A node that would go: it is empty.
fn empty(change: impl FnOnce(&mut Town)) -> Town {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    change(&mut town);
    town
}

/// A node that would go: its pods fit on a smaller one.
fn oversized(change: impl FnOnce(&mut Town)) -> Town {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.2xlarge");
    town.run("web", "n1", shape("web", "500m"));
    change(&mut town);
    town
}

fn of_kind(name: &str, app: &str, kind: &str) -> Pod {
    Pod { owners: vec![owned_by(kind)], ..pod(name, Some("n1"), shape(app, "100m")) }
}

fn put(town: &mut Town, pod: Pod) {
    town.cluster.put_pod(Arc::new(pod));
}

/// Rows: DIS-036, DIS-063
#[test]
fn dis_036_a_healthy_node_that_nothing_speaks_for_goes() {
    assert_eq!(objection(&empty(|_| ())), None);
    let free = oversized(|town| town.add_budget(pdb("other", "other", 0)));
    assert_eq!((objection(&free), told(&free)), (None, vec![]));
}

/// Rows: DIS-037, DIS-038
#[test]
fn dis_037_a_node_needs_a_claim_and_a_claim_a_node() {
    let foreign = empty(|town| town.cluster.remove_claim("n1-claim".into()));
    let why = objection(&foreign).expect("it stays");
    assert!(why.starts_with("node isn't managed"), "{why}");
    assert_eq!(told(&foreign), [], "somebody else's node is told nothing");

    let lonely = empty(|town| town.cluster.remove_node("n1".into()));
    let expected =
        ("n1-claim".into(), "DisruptionBlocked".into(), "Nodeclaim does not have an associated node".into());
    assert_eq!(told(&lonely), [expected]);
    assert_eq!(lonely.gone(), Vec::<&str>::new());
}

#[test]
fn dis_041_a_node_that_a_waiting_pod_is_sent_to_stays() {
    let mut town = empty(|town| {
        town.change_pool("default", |pool| {
            pool.disruption.consolidate_after = Patience::of(SignedDuration::from_hours(1));
        });
        let now = town.now;
        town.change_claim("n1", |claim| claim.last_pod_event = Some(now));
    });
    let mut engine = town.engine();
    assert_eq!(events(&engine.decide(town.now)), []);
    engine.observe(town.now, Observation::Pod(Arc::new(pod("web", None, shape("web", "1")))));
    let until = town.now + SignedDuration::from_secs(15);
    let all = decisions(&mut engine, town.now, until);
    let mut said: Vec<_> = all.iter().flat_map(|(_, decision)| events(decision)).collect();
    said.retain(|(subject, ..)| subject.starts_with("n1"));
    assert_eq!(said, at_both("DisruptionBlocked", "Node is nominated for a pending pod"));
    let kept = &engine.plan().disruption.kept;
    assert_eq!(kept[0].message, "node is nominated for a pending pod");
    town.cluster.put_pod(Arc::new(pod("web", None, shape("web", "1"))));
    assert_eq!(town.kept("n1"), "Nominated");
}

/// Rows: DIS-042, DIS-044
#[test]
fn dis_042_an_annotation_and_a_missing_label_keep_a_node_and_are_told() {
    let town = empty(|town| {
        town.change_node("n1", |node| {
            node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
        });
    });
    let why = "disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation";
    assert_eq!(objection(&town).as_deref(), Some(why));
    assert_eq!(told(&town), at_both("DisruptionBlocked", &why.replacen('d', "D", 1)));

    let town = empty(|town| {
        town.change_node("n1", |node| {
            node.labels.remove(&*label::NODEPOOL);
        })
    });
    let why = "node doesn't have required label (label=karpenter.sh/nodepool)";
    assert_eq!(objection(&town).as_deref(), Some(why));
    assert_eq!(told(&town), at_both("DisruptionBlocked", &why.replacen('n', "N", 1)));
}

#[test]
fn dis_045_a_pool_that_is_gone_or_of_which_nobody_knows_what_it_can_buy_keeps_its_nodes() {
    let gone = empty(|town| town.cluster.pools.clear());
    let unlisted = empty(|town| {
        let mut class = class("default");
        class.is_ready = false;
        town.cluster.classes.insert("default".into(), Arc::new(class));
    });
    for town in [gone, unlisted] {
        assert_eq!(objection(&town).as_deref(), Some("nodepool not found (NodePool=default)"));
        assert_eq!(told(&town), at_both("DisruptionBlocked", "NodePool not found (NodePool=default)"));
    }
}

/// Rows: DIS-046, DIS-047
#[test]
fn dis_046_a_node_whose_type_or_price_is_not_known_can_be_given_back() {
    for key in [*label::CAPACITY_TYPE, *label::ZONE, *label::INSTANCE_TYPE] {
        let town = empty(|town| {
            town.change_node("n1", |node| {
                node.labels.remove(&key);
            })
        });
        let command = town.command();
        assert_eq!((command.method, command.savings.0), (Method::Emptiness, 0), "{key}");
    }
    let unknown = empty(|town| {
        town.change_node("n1", |node| {
            node.labels.insert(*label::INSTANCE_TYPE, "z9.huge".into());
        });
    });
    assert_eq!(unknown.command().method, Method::Emptiness);
}

#[test]
fn dis_048_a_node_that_waits_for_its_replacement_is_not_taken_again() {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "1500m"));
    town.change_claim("n1", |claim| {
        claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
        claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
    });
    let mut engine = town.engine();
    let mut all = decisions(&mut engine, town.now, town.now + SignedDuration::from_secs(5));
    // Something happens, so that nodes are judged again.
    let later = town.now + SignedDuration::from_secs(5);
    engine.observe(later, Observation::Pod(Arc::new(pod("late", Some("n1"), shape("web", "10m")))));
    all.extend(decisions(&mut engine, later, later + SignedDuration::from_secs(30)));
    let started: usize = all.iter().map(|(_, decision)| decision.started.len()).sum();
    assert_eq!((started, engine.cluster().claims.len()), (1, 2));
    let kept = &engine.plan().disruption.kept;
    let why = kept.iter().find(|kept| kept.node == NodeName::new("n1")).expect("it is still there");
    assert_eq!(why.code, "BeingDisrupted");
    assert!(why.message.contains("already being disrupted"), "{}", why.message);
    let said = all.iter().flat_map(|(_, decision)| events(decision));
    let at_it: Vec<_> =
        said.filter(|(subject, word, _)| subject == "n1" && word == "DisruptionBlocked").collect();
    assert_eq!(at_it, [], "nobody is told");
}

#[test]
fn dis_049_a_pod_of_any_kind_can_keep_its_node() {
    for kind in ["ReplicaSet", "DaemonSet", "Node"] {
        let town = oversized(|town| {
            let mut kept = of_kind("kept", "kept", kind);
            Arc::make_mut(&mut kept.shape).do_not_disrupt = Some("true".into());
            put(town, kept);
        });
        let why = "pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/kept)";
        assert_eq!(objection(&town).as_deref(), Some(why), "{kind}");
        assert_eq!(told(&town), at_both("DisruptionBlocked", &why.replacen('p', "P", 1)), "{kind}");
    }
}

#[test]
fn dis_051_a_pod_that_is_over_keeps_nothing() {
    for phase in [PodPhase::Succeeded, PodPhase::Failed] {
        let town = empty(|town| {
            let mut over = Pod { phase, ..of_kind("job", "job", "Job") };
            Arc::make_mut(&mut over.shape).do_not_disrupt = Some("true".into());
            put(town, over);
        });
        assert_eq!(objection(&town), None, "{phase:?}");
    }
}

#[test]
fn dis_055_a_deadline_lets_drift_pass_a_budget_and_nothing_else() {
    for (is_drifted, grace, expected) in [
        (true, Some(SignedDuration::from_hours(1)), "gone"),
        (true, None, "PodDisruptionBudget"),
        (false, Some(SignedDuration::from_hours(1)), "PodDisruptionBudget"),
        (false, None, "PodDisruptionBudget"),
    ] {
        let town = oversized(|town| {
            town.add_budget(pdb("web", "web", 0));
            town.change_claim("n1", |claim| claim.spec.termination_grace = grace);
            if is_drifted {
                town.drift("n1", NOW);
            }
        });
        assert_eq!(town.kept("n1"), expected, "drifted: {is_drifted}, grace: {grace:?}");
    }
}

/// Rows: DIS-056, DIS-059
#[test]
fn dis_059_budgets_are_named_and_told_once_at_the_node_and_once_at_its_claim() {
    let one = oversized(|town| town.add_budget(pdb("tight", "web", 0)));
    let why = "pdb prevents pod evictions (PodDisruptionBudget=[default/tight])";
    assert_eq!(objection(&one).as_deref(), Some(why));
    assert_eq!(told(&one), at_both("DisruptionBlocked", &why.replacen('p', "P", 1)));

    let two = oversized(|town| {
        ["loose", "tight"].map(|name| town.add_budget(pdb(name, "web", 1))).into_iter().for_each(drop)
    });
    let why = objection(&two).expect("it stays");
    for part in ["eviction does not support multiple PDBs", "default/loose", "default/tight"] {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(told(&two), at_both("DisruptionBlocked", &why.replacen('e', "E", 1)));
}

/// Rows: DIS-057, DIS-058
#[test]
fn dis_058_a_budget_counts_for_pods_that_would_be_evicted() {
    let with = |change: &dyn Fn(&mut Pod), kind: &str| {
        let town = empty(|town| {
            let mut covered = of_kind("covered", "covered", kind);
            change(&mut covered);
            put(town, covered);
            town.add_budget(pdb("covered", "covered", 0));
        });
        town.kept("n1")
    };
    assert_eq!(with(&|_| (), "DaemonSet"), "PodDisruptionBudget");
    assert_eq!(with(&|_| (), "Node"), "gone", "a mirror pod");
    assert_eq!(with(&|pod| pod.phase = PodPhase::Succeeded, "Job"), "gone", "over");
    assert_eq!(with(&|pod| pod.phase = PodPhase::Failed, "Job"), "gone", "over");
    assert_eq!(with(&|pod| pod.deleted = Some(at(NOW)), "ReplicaSet"), "gone", "on its way out");
}

#[test]
fn dis_064_one_covered_pod_of_several_is_enough() {
    let uncounted =
        PodDisruptionBudget { disruptions_allowed: None, max_unavailable: None, ..pdb("a", "db", 0) };
    let nothing: [Vec<PodDisruptionBudget>; 4] = [
        vec![PodDisruptionBudget { min_available: Some(CountOrPercent::Percent(100)), ..uncounted.clone() }],
        vec![PodDisruptionBudget { max_unavailable: Some(CountOrPercent::Percent(0)), ..uncounted.clone() }],
        vec![PodDisruptionBudget { max_unavailable: Some(CountOrPercent::Count(0)), ..uncounted }],
        vec![pdb("a", "db", 1), pdb("b", "db", 1)],
    ];
    for budgets in nothing {
        let mut town = oversized(|town| {
            ["web-2", "web-3", "api"].into_iter().for_each(|name| town.run(name, "n1", shape("web", "100m")));
        });
        assert_eq!(town.kept("n1"), "gone");
        town.run("db", "n1", shape("db", "100m"));
        assert_eq!(town.kept("n1"), "gone");
        let word = if budgets.len() > 1 { "PodDisruptionBudgets" } else { "PodDisruptionBudget" };
        budgets.iter().for_each(|budget| town.add_budget(budget.clone()));
        assert_eq!(town.kept("n1"), word, "{budgets:?}");
    }
}

/// What is said again is said seldom, and something else is said soon.
#[test]
fn the_same_objection_is_told_every_hour() {
    let town = empty(|town| {
        town.change_node("n1", |node| {
            node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
        });
    });
    let mut engine = town.engine();
    let all = decisions(&mut engine, town.now, town.now + SignedDuration::from_mins(119));
    let at_node = |(at, decision): &(_, _)| {
        let said = events(decision).into_iter().filter(|(subject, ..)| subject == "n1").count();
        (said > 0).then_some((*at, said))
    };
    let said: Vec<_> = all.iter().filter_map(at_node).collect();
    assert_eq!(said, [(town.now, 1), (town.now + SignedDuration::from_hours(1), 1)]);
}
