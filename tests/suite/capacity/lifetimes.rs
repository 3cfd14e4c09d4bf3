//! Nodes that may live for a moment only.

use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::action::Action;
use provisor::model::catalog::Catalog;
use provisor::model::observation::Observation;
use provisor::model::pool::NodeTemplate;
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::symbol::Symbol;
use provisor::model::time::Patience;
use provisor::simulator::world::{Habits, World};

use super::town::*;

#[test]
fn a_machine_on_its_way_does_not_expire() {
    for lifetime in [SignedDuration::ZERO, SignedDuration::from_secs(1)] {
        let mut fixed = pool("fixed");
        let expire_after = Patience::of(lifetime);
        fixed.template = Arc::new(NodeTemplate { expire_after, ..(*fixed.template).clone() });
        fixed.replicas = Some(1);
        let mut world = World::new(5, at(NOW), catalog(), Habits::default());
        world.apply(Observation::Class(Arc::new(class("default"))));
        world.apply(Observation::Pool(Arc::new(fixed)));
        let mut bought = 0;
        let until = world.now() + SignedDuration::from_mins(5);
        live(&mut world, &mut Engine::new(EngineSettings::default()), until, |_, decision| {
            let is_new = |planned: &&_| matches!(planned, Action::CreateClaim(_));
            bought += decision.actions.iter().map(|planned| &planned.action).filter(is_new).count();
        });
        // It takes half a minute at least until one has joined, and then it goes.
        assert!((2..=10).contains(&bought), "{bought} machines in five minutes of {lifetime:?} each");
    }
}

/// A catalogue file tells of a type what its name and its columns tell: of this name neither category nor generation.
#[test]
fn a_machine_of_which_the_catalogue_knows_little_stays_what_its_pool_asked_for() {
    let table = "instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,\
                 on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types\n\
                 own-4x,amd64,4,16384,3900m,14000Mi,58,,,0.2,0.1,us-west-2a,on-demand spot\n";
    let catalog = Arc::new(Catalog::parse_csv(table, "types.csv").expect("the table is well formed"));
    let mut fixed = pool("fixed");
    let mut template = (*fixed.template).clone();
    let category = Requirement::new(Operator::In, ["c", "m"].map(Symbol::new));
    template.requirements.add(Symbol::new("karpenter.k8s.aws/instance-category"), category);
    let above_two = Requirement::new(Operator::Gt, [Symbol::new("2")]);
    template.requirements.add(Symbol::new("karpenter.k8s.aws/instance-generation"), above_two);
    fixed.template = Arc::new(template);
    fixed.replicas = Some(1);
    let mut world = World::new(5, at(NOW), catalog, Habits::default());
    world.apply(Observation::Class(Arc::new(class("default"))));
    world.apply(Observation::Pool(Arc::new(fixed)));
    let mut bought = 0;
    let until = world.now() + SignedDuration::from_mins(30);
    live(&mut world, &mut Engine::new(EngineSettings::default()), until, |_, decision| {
        let is_new = |planned: &&_| matches!(planned, Action::CreateClaim(_));
        bought += decision.actions.iter().map(|planned| &planned.action).filter(is_new).count();
    });
    assert_eq!(bought, 1, "one machine, for good");
    let node = world.objects().nodes.values().next().expect("it joined");
    let labelled = |key: &str| node.labels.get(&Symbol::new(key)).map(|value| value.as_str());
    assert_eq!(labelled("karpenter.k8s.aws/instance-category"), Some("c"));
    assert_eq!(labelled("karpenter.k8s.aws/instance-generation"), Some("3"));
}
