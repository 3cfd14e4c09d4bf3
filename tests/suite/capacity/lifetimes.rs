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

/// Rows: LIF-071, LIF-072
#[test]
fn lif_071_a_claim_that_is_too_old_is_deleted_once() {
    let hours = SignedDuration::from_hours;
    let never = Patience::never();
    // Seventy-four and a half hours old.
    for (expire_after, expected) in
        [(Patience::of(hours(1)), Some(0)), (Patience::of(hours(75)), Some(30)), (never, None)]
    {
        let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
        town.node("n", "m5.large");
        town.change_claim("n", |claim| claim.spec.expire_after = expire_after.clone());
        // What the pool says by now is for the next ones.
        town.change_pool("default", |pool| {
            Arc::make_mut(&mut pool.template).expire_after = Patience::of(SignedDuration::from_mins(1));
        });
        let mut engine = town.engine();
        let mut deleted = Vec::new();
        for minute in 0..90 {
            let decision = engine.decide(town.now + SignedDuration::from_mins(minute));
            let is_it = |one: &&provisor::capacity::decision::Planned| {
                matches!(one.action, Action::DeleteClaim { .. }) && one.reason.code == "Expired"
            };
            deleted.extend(decision.actions.iter().filter(is_it).map(|_| minute));
            echo(&mut engine, town.now + SignedDuration::from_mins(minute));
            if minute == 0 && expected == Some(30) {
                let due = town.now + SignedDuration::from_mins(30);
                assert!(decision.wake_at.is_some_and(|at| at <= due), "nobody has to ask in between");
            }
        }
        assert_eq!(deleted, Vec::from_iter(expected), "{expire_after:?}");
    }
}

/// Rows: LIF-067, LIF-069
#[test]
fn lif_069_a_claim_notes_when_pods_come_and_end_and_nothing_else() {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n", "m5.2xlarge");
    town.run("web", "n", shape("web", "100m"));
    // A node that no claim is for, and a pod of which the node is not known.
    town.node("other", "m5.large");
    town.cluster.remove_claim("other-claim".into());
    let written = |engine: &mut Engine, minute: i64| {
        let now = town.now + SignedDuration::from_mins(minute);
        let decision = engine.decide(now);
        decision.actions.iter().any(|one| {
            matches!(&one.action, Action::UpdateClaim { change, .. } if change.last_pod_event.is_some())
        })
    };
    let see = |engine: &mut Engine, minute: i64, seen: Observation| {
        engine.observe(town.now + SignedDuration::from_mins(minute), seen);
    };
    let web = (*town.cluster.pods[&provisor::model::name::ObjectKey::new("default", "web")]).clone();
    let pod_of = |change: &dyn Fn(&mut provisor::model::pod::Pod)| {
        let mut changed = web.clone();
        change(&mut changed);
        Observation::Pod(Arc::new(changed))
    };
    let fresh = || {
        let mut engine = town.engine();
        engine.decide(town.now);
        // What was there at the start is noted once, and is of no interest here.
        engine.decide(town.now + SignedDuration::from_mins(1));
        engine
    };
    let later = town.now + SignedDuration::from_mins(2);
    use provisor::model::pod::PodPhase;
    let news: [(Observation, bool); 8] = [
        (pod_of(&|pod| pod.is_ready = false), false),
        (pod_of(&|pod| pod.phase = PodPhase::Succeeded), true),
        (pod_of(&|pod| pod.phase = PodPhase::Failed), true),
        (pod_of(&move |pod| pod.deleted = Some(later)), true),
        (Observation::PodGone(web.key), true),
        (Observation::Pod(Arc::new(pod("new", Some("n"), shape("web", "100m")))), true),
        (Observation::Pod(Arc::new(pod("lost", Some("nowhere"), shape("web", "100m")))), false),
        (Observation::Pod(Arc::new(pod("foreign", Some("other"), shape("web", "100m")))), false),
    ];
    for (index, (seen, expected)) in news.into_iter().enumerate() {
        let mut engine = fresh();
        see(&mut engine, 2, seen);
        assert_eq!(written(&mut engine, 2), expected, "{index}");
    }
    // One that has ended already ends once.
    let mut engine = fresh();
    see(&mut engine, 2, pod_of(&|pod| pod.phase = PodPhase::Succeeded));
    assert!(written(&mut engine, 2));
    see(&mut engine, 3, pod_of(&move |pod| (pod.phase, pod.deleted) = (PodPhase::Succeeded, Some(later))));
    assert!(!written(&mut engine, 3));
}
