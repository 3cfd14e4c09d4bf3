//! Jobs of a simulated world end: machines that they needed go, and nothing begins them again.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::name::{ObjectKey, Uid};
use provisor::model::observation::Observation;
use provisor::model::pod::PodPhase;
use provisor::simulator::workload::{Workload, WorkloadKind};
use provisor::simulator::world::{Habits, World};

use super::town::*;

/// What became of a Job in two hours: the pods that were made, those that ran at once at most, and the machines at the end.
fn played(at_once: u32, completions: Option<u32>) -> (usize, usize, usize) {
    let mut world = World::new(7, at(NOW), catalog(), Habits::default());
    world.apply(Observation::Class(Arc::new(class("default"))));
    world.apply(Observation::Pool(Arc::new(pool("default"))));
    let kind = WorkloadKind::Job { runs_for: SignedDuration::from_mins(5), completions };
    let shape = Arc::new(shape("sum", "500m"));
    world.add_workload(Workload::new(ObjectKey::new("default", "sum"), kind, shape, at_once));
    let mut engine = Engine::new(EngineSettings { foresees_pods: true, ..EngineSettings::default() });
    let (mut made, mut most) = (BTreeSet::<Uid>::new(), 0);
    for minute in 1..=120 {
        live(&mut world, &mut engine, at(NOW) + SignedDuration::from_mins(minute), |_, _| ());
        let pods = &world.objects().pods;
        made.extend(pods.values().map(|pod| pod.uid));
        most = most.max(pods.values().filter(|pod| pod.phase == PodPhase::Running).count());
    }
    (made.len(), most, world.objects().nodes.len())
}

#[test]
fn a_job_makes_as_many_pods_as_have_to_succeed() {
    assert_eq!(played(2, Some(5)), (5, 2, 0));
    assert_eq!(played(3, Some(2)), (2, 2, 0), "never more than are left");
}

#[test]
fn a_job_without_a_number_ends_with_the_first_success() {
    assert_eq!(played(2, None), (2, 2, 0));
}
