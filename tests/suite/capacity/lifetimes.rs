//! Nodes that may live for a moment only.

use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::action::Action;
use provisor::model::catalog::Catalog;
use provisor::model::observation::Observation;
use provisor::model::pool::{NodePool, NodeTemplate};
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::symbol::Symbol;
use provisor::model::time::Patience;
use provisor::simulator::settle::settle;
use provisor::simulator::world::{Habits, World};

use super::town::*;

#[test]
fn a_machine_on_its_way_does_not_expire() {
    for lifetime in [SignedDuration::ZERO, SignedDuration::from_secs(1)] {
        let mut fixed = pool("fixed");
        let expire_after = Patience::of(lifetime);
        fixed.template = Arc::new(NodeTemplate { expire_after, ..(*fixed.template).clone() });
        fixed.replicas = Some(1);
        let (_, bought) = lived(catalog(), fixed, 5);
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
    let pools = vec![fixed.clone()];
    let (world, bought) = lived(catalog.clone(), fixed, 30);
    assert_eq!(bought, 1, "one machine, for good");
    let node = world.objects().nodes.values().next().expect("it joined");
    let labelled = |key: &str| node.labels.get(&Symbol::new(key)).map(|value| value.as_str());
    assert_eq!(labelled("karpenter.k8s.aws/instance-category"), Some("c"));
    assert_eq!(labelled("karpenter.k8s.aws/instance-generation"), Some("3"));

    // A plan that is carried out in memory ends where the cluster does.
    let mut town = Town::new(pools);
    town.cluster.catalog = Some(catalog);
    let end = settle(&town.cluster, town.now, &town.settings);
    assert_eq!((end.quiescent, end.nodes.len()), (true, 1), "after {} steps", end.steps);
}

/// A world in which `pool` was alone for so many minutes, and how many machines were bought for it.
fn lived(catalog: Arc<Catalog>, pool: NodePool, minutes: i64) -> (World, usize) {
    let mut world = World::new(5, at(NOW), catalog, Habits::default());
    world.apply(Observation::Class(Arc::new(class("default"))));
    world.apply(Observation::Pool(Arc::new(pool)));
    let mut bought = 0;
    let until = world.now() + SignedDuration::from_mins(minutes);
    live(&mut world, &mut Engine::new(EngineSettings::default()), until, |_, decision| {
        let is_new = |planned: &&_| matches!(planned, Action::CreateClaim(_));
        bought += decision.actions.iter().map(|planned| &planned.action).filter(is_new).count();
    });
    (world, bought)
}
