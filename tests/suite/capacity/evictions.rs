//! The simulated API server keeps disruption budgets of pods, however many come and go.

use std::sync::Arc;

use provisor::model::action::Action;
use provisor::model::name::ObjectKey;
use provisor::model::observation::{EvictionBlock, Observation};
use provisor::model::pod::Pod;
use provisor::model::workload::{CountOrPercent, PodDisruptionBudget};
use provisor::simulator::workload::{Workload, WorkloadKind};
use provisor::simulator::world::{Habits, World};

use super::town::*;

fn world(pods: &[&str]) -> World {
    let mut world = World::new(1, at(NOW), catalog(), Habits::default());
    pods.iter().for_each(|name| world.add_pod(running(name)));
    world
}

fn running(name: &str) -> Pod {
    pod(name, Some("node-a"), shape("web", "100m"))
}

fn keeps(name: &str, least: i64) -> PodDisruptionBudget {
    PodDisruptionBudget {
        min_available: Some(CountOrPercent::Count(least)),
        max_unavailable: None,
        ..pdb(name, "web", 0)
    }
}

fn apply(world: &mut World, budget: PodDisruptionBudget) {
    world.apply(Observation::Budget(Arc::new(budget)));
}

/// Whether the pod may go; the budget that says no is named.
fn goes(world: &mut World, name: &str) -> Result<(), String> {
    let key = ObjectKey::new("default", name);
    let uid = world.objects().pods[&key].uid;
    world.take_news();
    world.perform(&Action::Evict { pod: key, uid });
    let answer = world.take_news().into_iter().find_map(|(_, seen)| match seen {
        Observation::Evicted { pod } if pod == key => Some(Ok(())),
        Observation::EvictionBlocked { pod, why: EvictionBlock::Budget, message } if pod == key => {
            Some(Err(message.to_string()))
        }
        _ => None,
    });
    answer.expect("an eviction is answered")
}

#[test]
fn what_a_budget_allows_follows_pods_as_they_come_and_go() {
    let mut world = world(&["a", "b", "c"]);
    apply(&mut world, keeps("least", 2));
    assert_eq!(goes(&mut world, "a"), Ok(()));
    let blocked = Err("disruption budget default/least allows none now".to_owned());
    assert_eq!(goes(&mut world, "b"), blocked, "one of three is ending");
    world.add_pod(Pod { is_ready: false, ..running("d") });
    assert_eq!(goes(&mut world, "b"), blocked, "its successor is not ready");
    world.add_pod(running("d"));
    assert_eq!(goes(&mut world, "b"), Ok(()));
    assert_eq!(goes(&mut world, "c"), blocked);
    // A budget that comes later counts those that are there.
    world.apply(Observation::BudgetGone(ObjectKey::new("default", "least")));
    apply(&mut world, keeps("later", 1));
    assert_eq!(goes(&mut world, "c"), Ok(()), "one of two that are ready stays");
    assert!(goes(&mut world, "d").is_err_and(|message| message.contains("default/later")));
}

#[test]
fn pods_that_are_not_ready_may_go_where_their_budget_says_so() {
    let mut world = world(&["a", "b"]);
    world.add_pod(Pod { is_ready: false, ..running("b") });
    apply(&mut world, keeps("least", 2));
    assert!(goes(&mut world, "b").is_err());
    apply(&mut world, PodDisruptionBudget { always_allows_unhealthy: true, ..keeps("least", 2) });
    assert!(goes(&mut world, "a").is_err());
    assert_eq!(goes(&mut world, "b"), Ok(()));
}

/// Percents are of what the controllers of these pods want, as long as they have any.
#[test]
fn percents_are_of_the_controllers_that_still_have_pods() {
    let mut world = world(&["a", "b"]);
    let half = CountOrPercent::Percent(50);
    apply(&mut world, PodDisruptionBudget { min_available: Some(half), ..keeps("half", 0) });
    let key = ObjectKey::new("default", "web");
    let shape = Arc::new(shape("web", "100m"));
    world.add_workload(Workload::new(key, WorkloadKind::Deployment, shape, 4));
    assert!(
        goes(&mut world, "a").is_err(),
        "two of the four that are wanted have to stay, and its pods wait"
    );
    world.scale_at(at(NOW), key, 0);
    while world.objects().pods.len() > 2 {
        world.advance(world.now() + jiff::SignedDuration::from_mins(1));
        world.take_news();
    }
    assert_eq!(goes(&mut world, "a"), Ok(()), "one of the two that are left");
    assert!(goes(&mut world, "b").is_err());
}
