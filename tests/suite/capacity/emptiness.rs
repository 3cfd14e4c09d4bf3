//! Nodes that run nothing that has to stay.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::disruption::{Command, Method};
use provisor::capacity::engine::Engine;
use provisor::model::action::Action;
use provisor::model::label;
use provisor::model::name::{NodeName, ObjectKey};
use provisor::model::observation::Observation;
use provisor::model::pod::{Pod, PodShape};
use provisor::model::pool::{Budget, BudgetNodes, ConsolidationPolicy, DisruptionReason};
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::taint::{Effect, Toleration};
use provisor::model::time::Patience;
use provisor::model::workload::VolumeAttachment;

use super::town::*;

fn names(command: &Command) -> Vec<&'static str> {
    command.nodes.iter().map(|node| node.as_str()).collect()
}

#[test]
fn dis_153_a_pool_that_never_consolidates_keeps_its_empty_nodes_and_says_so() {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n1", "m5.large");
    assert_eq!(town.gone(), Vec::<&str>::new());
    let said = events(&town.engine().decide(town.now));
    let why = "NodePool \"default\" has consolidation disabled";
    let expected =
        ["n1", "n1-claim"].map(|one| (one.to_owned(), "Unconsolidatable".to_owned(), why.to_owned()));
    assert_eq!(said, expected);
}

#[test]
fn dis_160_an_empty_node_of_a_balanced_pool_goes_however_little_it_saves() {
    let mut town = Town::with(|pool| {
        pool.disruption.policy = ConsolidationPolicy::Balanced;
        let both = Requirement::new(Operator::In, ["spot".into(), "on-demand".into()]);
        Arc::make_mut(&mut pool.template).requirements.replace(*label::CAPACITY_TYPE, both);
    });
    // Of the pool's price it is a twelfth, of what there is to move a third: as a move of pods it would not be worth it.
    town.node_of("default", "cheap", "m5.large", "spot");
    town.node("dear", "m5.2xlarge");
    town.run("web", "dear", PodShape { do_not_disrupt: Some("true".into()), ..shape("web", "500m") });
    let command = town.command();
    assert_eq!((command.method, names(&command)), (Method::Emptiness, vec!["cheap"]));
    // With a pod that is so much as ordinary the policy counts.
    town.run("other", "cheap", shape("other", "100m"));
    assert_eq!(town.gone(), Vec::<&str>::new());
}

#[test]
fn dis_161_of_an_empty_and_an_underutilized_node_the_empty_one_goes() {
    for [first, second] in [["a", "b"], ["b", "a"]] {
        let budgets = vec![Budget { nodes: BudgetNodes::Count(1), reasons: Vec::new(), window: None }];
        let mut town = Town::with(|pool| pool.disruption.budgets = budgets);
        town.node(first, "m5.large");
        town.node(second, "m5.2xlarge");
        town.run("web", second, shape("web", "500m"));
        let command = town.command();
        assert_eq!((command.reason(), names(&command)), (DisruptionReason::Empty, vec![first]));
        assert_eq!(town.kept(second), "BudgetExhausted");
    }
}

#[test]
fn dis_163_a_daemon_that_must_not_be_disturbed_keeps_an_empty_node() {
    for (is_covered, is_marked, expected) in
        [(false, false, "gone"), (true, false, "PodDisruptionBudget"), (false, true, "PodDoNotDisrupt")]
    {
        let mut town = Town::with(|_| ());
        town.node("n1", "m5.large");
        let do_not_disrupt = is_marked.then(|| "true".into());
        let agent = PodShape { do_not_disrupt, ..shape("agent", "100m") };
        let agent = Pod { owners: vec![owned_by("DaemonSet")], ..pod("agent", Some("n1"), agent) };
        town.cluster.put_pod(Arc::new(agent));
        if is_covered {
            town.add_budget(pdb("agent", "agent", 0));
        }
        assert_eq!(town.kept("n1"), expected);
    }
}

#[test]
fn an_empty_node_is_kept_for_pods_of_a_node_that_takes_its_time_to_go() {
    let mut town = Town::with(|_| ());
    town.node("going", "m5.large");
    town.node("spare", "m5.large");
    // It stays until the machine ends, and a volume keeps that from ending.
    let tolerations = vec![Toleration::all_of(Effect::NoSchedule)];
    town.run("agent", "going", PodShape { tolerations, ..shape("agent", "500m") });
    let attachment =
        VolumeAttachment { name: "one".into(), node: NodeName::new("going"), volume: Some("pv".into()) };
    town.cluster.attachments.insert(attachment.name, Arc::new(attachment));
    let now = town.now;
    town.change_claim("going", |claim| claim.deleted = Some(now));
    town.change_node("going", |node| node.deleted = Some(now));
    let mut engine = town.engine();
    // What is said of claims and nodes is news to nobody: rounds are held for news.
    let fate = |engine: &mut Engine, from: Timestamp, until: Timestamp| {
        let (mut all, mut at) = (Vec::new(), from);
        while at < until {
            let decision = engine.decide(at);
            for planned in &decision.actions {
                match &planned.action {
                    Action::CreateClaim(_) => all.push("bought".to_owned()),
                    Action::DeleteClaim { claim } => all.push(format!("{claim} given back")),
                    Action::UpdateClaim { .. } | Action::UpdateNode { .. } => {}
                    _ => continue,
                }
                echo(engine, at);
            }
            at = decision.wake_at.unwrap_or(until).max(at + SignedDuration::from_secs(1));
        }
        all
    };
    let later = now + SignedDuration::from_mins(5);
    assert_eq!(fate(&mut engine, now, later), [""; 0]);
    let kept = engine.plan().disruption.kept.iter().find(|kept| &*kept.node.0 == "spare");
    assert_eq!(kept.map(|kept| kept.code), Some("PodsExpected"));

    // Once the pod is gone, nobody is expected any more.
    engine.observe(later, Observation::PodGone(ObjectKey::new("default", "agent")));
    let end = later + SignedDuration::from_mins(1);
    assert_eq!(fate(&mut engine, later, end), ["spare-claim given back"]);
}
