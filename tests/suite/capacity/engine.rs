//! A cluster that lives: claims are launched, join, serve and go, and a new engine goes on where the last one stopped.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::Planned;
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::action::{Action, Subject};
use provisor::model::claim::ConditionType;
use provisor::model::label::{self, annotation};
use provisor::model::name::{ClaimName, NodeName, ObjectKey, ProviderId};
use provisor::model::observation::{
    Advice, EvictionBlock, Instance, InterruptionNotice, LaunchFailure, Observation, Shortage,
};
use provisor::model::offering::CapacityType;
use provisor::model::pod::{Pod, PodShape};
use provisor::model::pool::NodePool;
use provisor::model::provisioner::Provisioner;
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::taint::Taint;
use provisor::model::time::Patience;
use provisor::model::workload::VolumeAttachment;
use provisor::simulator::workload::{Workload, WorkloadKind};
use provisor::simulator::world::{Habits, World};

use super::town::*;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn world(pools: Vec<NodePool>) -> World {
    let mut world = World::new(7, at(NOW), catalog(), Habits::default());
    world.apply(Observation::Class(Arc::new(class("default"))));
    pools.into_iter().for_each(|pool| world.apply(Observation::Pool(Arc::new(pool))));
    world
}

fn deployment(name: &str, shape: PodShape, replicas: u32) -> Workload {
    Workload::new(ObjectKey::new("default", name), WorkloadKind::Deployment, Arc::new(shape), replicas)
}

fn running(world: &World) -> usize {
    world.objects().pods.values().filter(|pod| pod.is_ready).count()
}

/// Pods wait, a node is empty and a machine is taken back: whoever provisions answers to that.
#[test]
fn an_engine_that_leaves_provisioning_to_karpenter_decides_nothing() {
    let decided = |provisioner: Provisioner| {
        let mut world = world(vec![pool("default")]);
        world.add_workload(deployment("web", shape("web", "1500m"), 1));
        let until = world.now() + SignedDuration::from_mins(3);
        live(&mut world, &mut Engine::new(EngineSettings::default()), until, |_, _| ());
        world.add_workload(deployment("more", shape("more", "1500m"), 9));
        let settings = EngineSettings { provisioner, ..EngineSettings::default() };
        let mut engine = engine_of(world.objects(), world.now(), settings);
        let (until, mut actions, mut wakes) = (until + SignedDuration::from_mins(3), 0, 0);
        let claim = world.objects().claims.values().next().expect("one was bought").clone();
        engine.observe(
            world.now(),
            Observation::Interruption {
                instance: claim.provider_id.expect("launched"),
                notice: InterruptionNotice::StateChange,
            },
        );
        live(&mut world, &mut engine, until, |_, decision| {
            actions += decision.actions.len();
            wakes += usize::from(decision.wake_at.is_some());
        });
        assert_eq!(engine.cluster().claims.len(), world.objects().claims.len(), "it knows the cluster");
        (actions, wakes, running(&world))
    };
    assert_eq!(decided(Provisioner::Karpenter), (0, 0, 1));
    let (actions, _, running) = decided(Provisioner::Provisor);
    assert!(actions > 10 && running == 10, "{actions} {running}");
}

/// Rows: LIF-004, LIF-011, LIF-027
#[test]
fn lif_004_waiting_pods_become_running_pods_on_initialized_nodes() {
    let mut world = world(vec![pool("default")]);
    world.add_workload(deployment("web", shape("web", "1500m"), 3));
    let mut engine = Engine::new(EngineSettings::default());
    let until = world.now() + SignedDuration::from_mins(3);
    live(&mut world, &mut engine, until, |_, _| ());
    assert_eq!(running(&world), 3);
    for claim in world.objects().claims.values() {
        for kind in [ConditionType::Launched, ConditionType::Registered, ConditionType::Initialized] {
            assert!(claim.conditions.is_true(kind), "{} {kind:?}", claim.name);
        }
        let node = world.objects().node_of(claim).expect("it joined");
        assert!(node.has_finalizer && !node.taints.iter().any(|taint| taint.is_same(&Taint::unregistered())));
        assert_eq!(&*node.labels[&*label::INITIALIZED], "true");
        assert_eq!(claim.node, Some(node.name));
    }
}

#[test]
fn pods_that_come_together_are_planned_together_after_a_quiet_second() {
    let mut town = Town::with(|_| ());
    let mut engine = town.engine();
    engine.decide(town.now);
    let mut creations = Vec::new();
    for index in 0..40 {
        let name = format!("web-{index}");
        engine.observe(town.now, Observation::Pod(Arc::new(pod(&name, None, shape("web", "100m")))));
        let created =
            engine.decide(town.now).actions.iter().any(|one| matches!(one.action, Action::CreateClaim(_)));
        if created {
            creations.push(town.now);
        }
        town.now = town.now.checked_add(SignedDuration::from_millis(500)).unwrap();
    }
    let first = creations.first().expect("it did not wait for silence for ever");
    assert_eq!(
        first.duration_since(at(NOW)),
        seconds(10),
        "the window closes after ten seconds at the latest"
    );
}

#[test]
fn a_crowd_is_planned_as_a_whole_before_each_of_it_is_marked() {
    let claims_of = |foresees_pods: bool| {
        let town = Town::with(|_| ());
        let mut engine =
            engine_of(&town.cluster, town.now, EngineSettings { foresees_pods, ..EngineSettings::default() });
        let pod_of = |index: u32, is_unschedulable: bool| {
            let name = format!("web-{index}");
            Observation::Pod(Arc::new(Pod { is_unschedulable, ..pod(&name, None, shape("web", "1500m")) }))
        };
        // One is marked, five are not yet looked at, and one of another kind is kube-scheduler's business alone.
        for index in 0..6 {
            engine.observe(town.now, pod_of(index, index == 0));
        }
        let other = Pod { is_unschedulable: false, ..pod("other", None, shape("other", "1500m")) };
        engine.observe(town.now, Observation::Pod(Arc::new(other)));
        let mut rounds = Vec::new();
        for step in 0..40 {
            let now = town.now + SignedDuration::from_millis(250 * step);
            // The marks come one by one, when all is planned.
            if (8..28).contains(&step) && step % 4 == 0 {
                engine.observe(now, pod_of(u32::try_from(step / 4 - 1).unwrap(), true));
            }
            let decision = engine.decide(now);
            let made =
                decision.actions.iter().filter(|one| matches!(one.action, Action::CreateClaim(_))).count();
            if made > 0 {
                rounds.push((step, made));
            }
        }
        let placed: usize = engine.plan().provisioning.new_nodes.iter().map(|node| node.pods.len()).sum();
        (rounds, placed)
    };
    let (rounds, placed) = claims_of(true);
    assert_eq!(
        (rounds.len(), rounds[0].0, placed),
        (1, 4, 6),
        "one round, a second after the first mark: {rounds:?}"
    );
    let (rounds, _) = claims_of(false);
    assert!(rounds.len() > 1, "without foresight every mark is waited for: {rounds:?}");
}

/// Rows: LIF-005
#[test]
fn lif_005_a_launch_is_asked_for_once() {
    let town = Town::with(|_| ());
    let mut engine = town.engine();
    engine.observe(town.now, Observation::Pod(Arc::new(pod("web", None, shape("web", "1")))));
    let mut launches = 0;
    for step in 0..40 {
        let now = town.now + SignedDuration::from_millis(500 * step);
        let decision = engine.decide(now);
        launches += decision.actions.iter().filter(|one| matches!(one.action, Action::Launch { .. })).count();
    }
    assert_eq!(launches, 1);
}

fn launch_of(engine: &mut Engine, from: Timestamp) -> (Timestamp, ClaimName, usize) {
    for step in 0..600 {
        let now = from + SignedDuration::from_millis(500 * step);
        for planned in engine.decide(now).actions {
            if let Action::Launch { claim, options } = planned.action {
                return (now, claim, options.len());
            }
        }
    }
    panic!("nothing was launched");
}

/// A pod waits, and its pool may buy spot or on demand.
fn town_of_both() -> Town {
    let mut town = Town::with(|pool| {
        let both = Requirement::new(Operator::In, ["spot".into(), "on-demand".into()]);
        Arc::make_mut(&mut pool.template).requirements.replace(*label::CAPACITY_TYPE, both);
    });
    town.cluster.put_pod(Arc::new(pod("web", None, shape("web", "1"))));
    town
}

/// Rows: LIF-006
#[test]
fn lif_006_a_shortage_of_spot_falls_back_to_on_demand() {
    let town = town_of_both();
    let mut engine = town.engine();
    let (now, first, _) = launch_of(&mut engine, town.now);
    let offerings = ["m5.large", "m5.xlarge", "m5.2xlarge"].into_iter().flat_map(|kind| {
        ["us-west-2a", "us-west-2b"].map(|zone| (kind.into(), zone.into(), CapacityType::Spot))
    });
    let until = now + SignedDuration::from_mins(3);
    let shortage = Shortage { offerings: offerings.collect(), until, advice: None };
    let failure = LaunchFailure::InsufficientCapacity(shortage.into());
    engine.observe(now, Observation::LaunchFailed { claim: first, failure });
    let decision = engine.decide(now);
    assert!(decision.actions.iter().any(|one| one.action == Action::DeleteClaim { claim: first }));
    assert_eq!(reasons(&decision).get("InsufficientCapacity"), Some(&1));
    engine.observe(now, Observation::ClaimGone(first));
    let (_, second, _) = launch_of(&mut engine, now);
    let claim = &engine.cluster().claims[&second];
    let kinds = claim.spec.requirements.get(*label::CAPACITY_TYPE).and_then(Requirement::single);
    assert_eq!(kinds.map(|one| one.as_str()), Some("on-demand"));
}

/// An API server that takes minutes to write a claim, or a cloud to sell a machine, gets no second order for the same pods.
#[test]
fn a_claim_that_is_written_slowly_is_not_forgotten_and_one_that_is_lost_is_made_again() {
    let mut town = Town::with(|_| ());
    town.cluster.put_pod(Arc::new(pod("web", None, shape("web", "1"))));
    let mut engine = town.engine();
    let (now, first, _) = launch_of(&mut engine, town.now);
    let made = |engine: &mut Engine, from: i64, to: i64| -> Vec<ClaimName> {
        let decisions = (from..to).flat_map(|second| engine.decide(now + seconds(second)).actions);
        let made = decisions.filter_map(|one| match one.action {
            Action::CreateClaim(claim) => Some(claim.name),
            _ => None,
        });
        made.collect()
    };
    assert_eq!(made(&mut engine, 1, 240), []);
    assert!(engine.cluster().claims.contains_key(&first));
    let mut slow = engine.clone();
    let through = Observation::CarriedOut { claims: vec![first], nodes: Vec::new() };
    engine.observe(now + seconds(240), through);
    assert_eq!(made(&mut engine, 240, 270), [], "it is seen soon");
    assert_eq!(made(&mut engine, 270, 290).len(), 1, "it was not");
    assert!(!engine.cluster().claims.contains_key(&first));
    // A machine that comes late belongs to its claim.
    let mut elsewhere = Town::with(|_| ());
    elsewhere.node("x", "m5.large");
    let instance = Instance { claim: Some(first), ..elsewhere.instance("x") };
    slow.observe(now + seconds(240), Observation::Launched { claim: first, instance, shortage: None });
    let decision = slow.decide(now + seconds(240));
    assert!(!decision.actions.iter().any(|one| matches!(one.action, Action::Terminate { .. })));
}

/// What is sold out on the way to a machine is not planned with either, and what people have to do is told once.
#[test]
fn a_shortage_beside_a_machine_that_was_bought_counts_for_the_next_ones() {
    let town = town_of_both();
    let mut engine = town.engine();
    let (now, first, _) = launch_of(&mut engine, town.now);
    let types = catalog().instance_types(None);
    let spot = types.iter().flat_map(|kind| {
        let zones: Vec<_> = kind.offerings.iter().map(|offering| offering.zone).collect();
        zones.into_iter().map(move |zone| (kind.name, zone, CapacityType::Spot))
    });
    let advice = Advice { reason: "SpotSLRCreationFailed".into(), message: "make the role".into() };
    let until = now + SignedDuration::from_mins(3);
    let shortage = Shortage { offerings: spot.collect(), until, advice: Some(advice) };
    let mut elsewhere = Town::with(|_| ());
    elsewhere.node("x", "m5.large");
    let instance = Instance { claim: Some(first), ..elsewhere.instance("x") };
    engine.observe(now, Observation::Launched { claim: first, instance, shortage: Some(shortage.into()) });
    engine.observe(now, Observation::Pod(Arc::new(pod("big", None, shape("big", "7")))));
    let decision = engine.decide(now);
    let told: Vec<_> = decision
        .actions
        .iter()
        .filter_map(|planned| match &planned.action {
            Action::Publish(notice) if &*notice.reason == "SpotSLRCreationFailed" => Some(notice.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].subject, told[0].is_warning), (Subject::Claim(first), true));
    let (now, second, _) = launch_of(&mut engine, now);
    let kinds = |engine: &Engine, name| {
        let requirements = &engine.cluster().claims[&name].spec.requirements;
        requirements.get(*label::CAPACITY_TYPE).and_then(Requirement::single).map(|one| one.to_string())
    };
    assert_ne!(first, second);
    assert_eq!(kinds(&engine, second).as_deref(), Some("on-demand"), "before {until} no spot is counted on");
    assert!(now < until);
}

/// Rows: LIF-039, LIF-041
#[test]
fn lif_041_claims_that_never_launch_or_join_are_given_up() {
    for (is_launched, patience, word) in [(false, 5, "LaunchTimeout"), (true, 15, "RegistrationTimeout")] {
        let mut town = Town::with(|_| ());
        town.node("n1", "m5.large");
        let now = town.now;
        town.cluster.remove_node("n1".into());
        town.change_claim("n1", |claim| {
            claim.created = Some(now);
            claim.conditions = Default::default();
            if is_launched {
                use provisor::model::claim::ConditionStatus::True;
                claim.conditions.set(ConditionType::Launched, True, "Launched", "", now);
            } else {
                claim.provider_id = None;
            }
        });
        let mut engine = town.engine();
        let given_up = |engine: &mut Engine, minutes: i64| {
            reasons(&engine.decide(now + SignedDuration::from_mins(minutes))).contains_key(word)
        };
        engine.decide(now);
        assert!(!given_up(&mut engine, patience - 1));
        assert!(given_up(&mut engine, patience), "{word}");
    }
}

/// Rows: TER-001, TER-026
#[test]
fn ter_001_an_empty_node_is_drained_ended_and_let_go() {
    let mut world = world(vec![pool("default")]);
    world.add_workload(deployment("web", shape("web", "1500m"), 1));
    let mut engine = Engine::new(EngineSettings::default());
    let now = world.now();
    world.scale_at(now + SignedDuration::from_mins(3), ObjectKey::new("default", "web"), 0);
    let mut order = Vec::new();
    live(&mut world, &mut engine, now + SignedDuration::from_mins(8), |at, decision| {
        for planned in &decision.actions {
            let word = match planned.action {
                Action::DeleteClaim { .. } => "delete claim",
                Action::DeleteNode { .. } => "delete node",
                Action::Terminate { .. } => "terminate",
                Action::FinalizeNode { .. } => "finalize node",
                Action::FinalizeClaim { .. } => "finalize claim",
                _ => continue,
            };
            order.push((word, at));
        }
    });
    let words: Vec<_> = order.iter().map(|(word, _)| *word).collect();
    assert_eq!(words, ["delete claim", "delete node", "terminate", "finalize node", "finalize claim"]);
    assert!(order[2].1.duration_since(order[1].1) >= seconds(5), "a drain takes five seconds at least");
    assert!(world.objects().claims.is_empty() && world.objects().nodes.is_empty());
}

fn draining(change: impl FnOnce(&mut Town)) -> (Town, Engine) {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.2xlarge");
    change(&mut town);
    let now = town.now;
    town.change_claim("n1", |claim| claim.deleted = Some(now));
    town.change_node("n1", |node| node.deleted = Some(now));
    let engine = town.engine();
    (town, engine)
}

/// Names of the pods that are evicted, or deleted by force, at `now`.
fn asked_to_go(engine: &mut Engine, now: Timestamp) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut evicted, mut forced) = (BTreeSet::new(), BTreeSet::new());
    for planned in engine.decide(now).actions {
        match planned.action {
            Action::Evict { pod, .. } => drop(evicted.insert(pod.name.to_string())),
            Action::DeletePod { pod, grace, .. } => {
                assert!(grace >= seconds(1), "a grace of zero is never sent");
                forced.insert(pod.name.to_string());
            }
            _ => {}
        }
    }
    (evicted, forced)
}

/// Rows: TER-012, TER-013, TER-015
#[test]
fn ter_015_pods_leave_in_four_tiers() {
    let (town, mut engine) = draining(|town| {
        for (name, owner, priority) in [
            ("plain", "ReplicaSet", 0),
            ("daemon", "DaemonSet", 0),
            ("critical", "ReplicaSet", 2_000_000_000),
            ("critical-daemon", "DaemonSet", 2_000_001_000),
        ] {
            let mut one = pod(name, Some("n1"), PodShape { priority, ..shape("web", "100m") });
            one.owners = vec![owned_by(owner)];
            town.cluster.put_pod(Arc::new(one));
        }
        let mut finished = pod("finished", Some("n1"), shape("web", "100m"));
        finished.phase = provisor::model::pod::PodPhase::Succeeded;
        town.cluster.put_pod(Arc::new(finished));
        let mut mirror = pod("mirror", Some("n1"), shape("web", "100m"));
        mirror.owners = vec![owned_by("Node")];
        town.cluster.put_pod(Arc::new(mirror));
    });
    for (step, name) in ["plain", "daemon", "critical", "critical-daemon"].into_iter().enumerate() {
        let now = town.now + seconds(20 * step as i64);
        let (evicted, _) = asked_to_go(&mut engine, now);
        assert_eq!(evicted, BTreeSet::from([name.to_string()]));
        let mut ending = (*engine.cluster().pods[&ObjectKey::new("default", name)]).clone();
        ending.deleted = Some(now);
        engine.observe(now, Observation::Pod(Arc::new(ending)));
        assert!(asked_to_go(&mut engine, now + seconds(1)).0.is_empty(), "{name} is still there");
        engine.observe(now, Observation::PodGone(ObjectKey::new("default", name)));
    }
}

/// Rows: TER-021, TER-022, TER-025
#[test]
fn ter_022_a_deadline_ends_what_pods_protect() {
    for (grace, pod_grace, forced_after) in
        [(Some(300), 60, Some(240)), (Some(300), 300, Some(0)), (None, 60, None)]
    {
        let (town, mut engine) = draining(|town| {
            let mut one = shape("web", "100m");
            one.do_not_disrupt = Some("true".into());
            one.termination_grace_seconds = pod_grace;
            town.run("web", "n1", one);
            town.change_claim("n1", |claim| claim.spec.termination_grace = grace.map(seconds));
        });
        let mut found = None;
        for second in 0..1000 {
            let (evicted, forced) = asked_to_go(&mut engine, town.now + seconds(second));
            assert!(evicted.is_empty());
            if !forced.is_empty() {
                found = Some(second);
                break;
            }
        }
        assert_eq!(found, forced_after, "{grace:?} {pod_grace}");
    }
}

#[test]
fn a_refused_eviction_is_tried_again_ever_more_rarely() {
    let (town, mut engine) = draining(|town| town.run("web", "n1", shape("web", "100m")));
    let key = ObjectKey::new("default", "web");
    let mut tries = Vec::new();
    for step in 0..1200 {
        let now = town.now + SignedDuration::from_millis(100 * step);
        if !asked_to_go(&mut engine, now).0.is_empty() {
            tries.push(step * 100);
            engine.observe(
                now,
                Observation::EvictionBlocked {
                    pod: key,
                    why: EvictionBlock::Budget,
                    message: "not now".into(),
                },
            );
        }
    }
    assert_eq!(&tries[..5], [0, 100, 300, 700, 1500]);
    assert!(tries.len() < 25, "{tries:?}");
}

#[test]
fn ter_027_attached_volumes_are_waited_for() {
    let attachment = VolumeAttachment { name: "a".into(), node: "n1".into(), volume: Some("pv".into()) };
    let (town, mut engine) = draining(|town| {
        town.cluster.attachments.insert("a".into(), Arc::new(attachment));
    });
    let ends = |engine: &mut Engine, second: i64| {
        let actions = engine.decide(town.now + seconds(second)).actions;
        echo(engine, town.now + seconds(second));
        actions.iter().any(|one| matches!(one.action, Action::Terminate { .. }))
    };
    assert!(!(0..30).any(|second| ends(&mut engine, second)));
    engine.observe(town.now + seconds(30), Observation::VolumeAttachmentGone("a".into()));
    assert!(ends(&mut engine, 31));
}

/// Rows: TER-017, TER-018
#[test]
fn ter_017_a_dead_machine_is_not_drained() {
    for (ready_is, is_freed) in [("False", true), ("True", false)] {
        let (town, mut engine) = draining(|town| {
            town.run("web", "n1", shape("web", "100m"));
            town.change_node("n1", |node| node.conditions = vec![ready(ready_is)]);
        });
        engine.observe(
            town.now,
            Observation::Terminated { instance: ProviderId::new("aws:///us-west-2a/i-n1") },
        );
        let actions = engine.decide(town.now).actions;
        let freed = actions.iter().any(|one| matches!(one.action, Action::FinalizeNode { .. }));
        assert_eq!(freed, is_freed);
    }
}

#[test]
fn a_spot_warning_taints_drains_and_replaces_before_the_machine_is_gone() {
    let mut town = Town::with(|pool| {
        let both = Requirement::new(Operator::In, ["spot".into(), "on-demand".into()]);
        Arc::make_mut(&mut pool.template).requirements.replace(*label::CAPACITY_TYPE, both);
    });
    town.node_of("default", "n1", "m5.large", "spot");
    town.run("web", "n1", shape("web", "1"));
    let mut engine = town.engine();
    engine.decide(town.now);
    let instance = ProviderId::new("aws:///us-west-2a/i-n1");
    let reclaimed = town.now + seconds(120);
    let notice = InterruptionNotice::SpotReclaim { at: reclaimed };
    engine.observe(town.now, Observation::Interruption { instance, notice });
    engine.decide(town.now);
    let node = &engine.cluster().nodes[&NodeName::new("n1")];
    assert!(node.taints.iter().any(|taint| taint.is_same(&Taint::disrupted())));
    let claim = &engine.cluster().claims[&ClaimName::new("n1-claim")];
    assert!(claim.deleted.is_some());
    assert_eq!(claim.annotations[&*annotation::TERMINATION_TIMESTAMP].as_str(), reclaimed.to_string());
    assert!(!engine.is_answered(instance, notice), "a successor would not find it on the claim");
    let written = claim.clone();
    engine.observe(town.now, Observation::Claim(written));
    assert!(engine.is_answered(instance, notice), "it is seen in the cluster");
    for step in 0..80 {
        for planned in engine.decide(town.now + SignedDuration::from_millis(100 * step)).actions {
            if let Action::Launch { options, .. } = planned.action {
                let lost = |one: &provisor::model::action::LaunchOption| {
                    one.capacity_type == CapacityType::Spot
                        && &*one.instance_type.0 == "m5.large"
                        && &*one.zone.0 == "us-west-2a"
                };
                assert!(!options.iter().any(lost), "what was just taken back is not asked for");
                return;
            }
        }
    }
    panic!("no replacement was launched");
}

fn instance(id: &str, claim: Option<&str>, launched: Timestamp) -> Instance {
    Instance {
        provider_id: ProviderId::new(id),
        claim: claim.map(ClaimName::new),
        pool: Some("default".into()),
        instance_type: "m5.large".into(),
        zone: "us-west-2a".into(),
        capacity_type: CapacityType::OnDemand,
        reservation: None,
        image: "ami-1".into(),
        launched,
        is_stopped: false,
        is_terminating: false,
        capacity: requests("2"),
        allocatable: requests("2"),
    }
}

/// Rows: LIF-074, LIF-075
#[test]
fn lif_074_both_kinds_of_leftovers_are_collected() {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    for (name, is_ready) in [("alive", "True"), ("dead", "False"), ("present", "False")] {
        town.node(name, "m5.large");
        town.change_node(name, |node| node.conditions = vec![ready(is_ready)]);
    }
    let mut engine = town.engine();
    engine.decide(town.now);
    let old = town.now - SignedDuration::from_mins(5);
    let list = [
        instance("aws:///us-west-2a/i-present", Some("present-claim"), old),
        instance("aws:///us-west-2a/i-orphan", None, old),
        instance("aws:///us-west-2a/i-new", None, town.now - seconds(10)),
    ];
    engine.observe(town.now, Observation::Instances(list.into()));
    let actions = engine.decide(town.now).actions;
    let of = |word: &str| {
        actions.iter().filter(|one| one.reason.code == word).map(|one| &one.action).collect::<Vec<_>>()
    };
    let expected = [
        &Action::DeleteClaim { claim: "dead-claim".into() },
        &Action::Terminate { instance: ProviderId::new("aws:///us-west-2a/i-orphan") },
    ];
    assert_eq!(of("GarbageCollected"), expected);
}

/// Rows: DIS-152
#[test]
fn dis_152_what_saves_money_is_looked_at_again_after_fifteen_seconds() {
    for is_disturbed in [false, true] {
        let mut town = Town::with(|_| ());
        town.node("n1", "m5.large");
        let mut engine = town.engine();
        let deletes = |engine: &mut Engine, second: i64| {
            let actions = engine.decide(town.now + seconds(second)).actions;
            actions.iter().any(|one| matches!(one.action, Action::DeleteClaim { .. }))
        };
        assert!(!(0..15).any(|second| deletes(&mut engine, second)));
        if is_disturbed {
            let late = pod("late", Some("n1"), shape("late", "1500m"));
            engine.observe(town.now + seconds(14), Observation::Pod(Arc::new(late)));
        }
        assert_eq!(deletes(&mut engine, 15), !is_disturbed);
    }
}

/// Rows: DIS-133, DIS-177, DIS-311, DIS-314, DIS-315
#[test]
fn dis_133_a_node_whose_replacement_is_lost_serves_on() {
    for is_lost in [true, false] {
        let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
        town.node("n1", "m5.large");
        town.run("web", "n1", shape("web", "1500m"));
        town.change_claim("n1", |claim| {
            claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
            claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
        });
        let mut engine = town.engine();
        let created: Vec<ClaimName> = engine
            .decide(town.now)
            .actions
            .iter()
            .filter_map(|one| match &one.action {
                Action::CreateClaim(claim) => Some(claim.name),
                _ => None,
            })
            .collect();
        assert_eq!(created.len(), 1);
        let is_tainted = |engine: &Engine| {
            let node = &engine.cluster().nodes[&NodeName::new("n1")];
            node.taints.iter().any(|taint| taint.is_same(&Taint::disrupted()))
        };
        assert!(is_tainted(&engine));
        assert!(engine.cluster().claims[&ClaimName::new("n1-claim")].deleted.is_none(), "replacement first");
        // Everything was carried out, and a new engine takes over.
        let cluster = engine.cluster().clone();
        let mut engine = engine_of(&cluster, town.now, town.settings.clone());
        let later = if is_lost { town.now + seconds(30) } else { town.now + SignedDuration::from_mins(10) };
        if is_lost {
            engine.observe(later, Observation::ClaimGone(created[0]));
        }
        let decision = engine.decide(later);
        assert_eq!(reasons(&decision).get("DisruptionFailed"), Some(&2), "{decision:#?}");
    }
}

#[test]
fn a_changed_pool_is_rolled_under_its_budget_with_replacements_first() {
    let mut rolled = pool("default");
    rolled.disruption.consolidate_after = Patience::never();
    rolled.disruption.budgets = vec![provisor::model::pool::Budget {
        nodes: provisor::model::pool::BudgetNodes::Count(1),
        reasons: Vec::new(),
        window: None,
    }];
    let mut world = world(vec![rolled.clone()]);
    world.add_workload(deployment("web", shape("web", "1200m"), 4));
    // Large machines would hold several pods; one each makes the roll visible.
    let small = Requirement::new(Operator::In, ["m5.large".into()]);
    Arc::make_mut(&mut rolled.template).requirements.add(*label::INSTANCE_TYPE, small);
    world.apply(Observation::Pool(Arc::new(rolled.clone())));
    let mut engine = Engine::new(EngineSettings::default());
    let now = world.now();
    live(&mut world, &mut engine, now + SignedDuration::from_mins(3), |_, _| ());
    let old: BTreeSet<ClaimName> = world.objects().claims.keys().copied().collect();
    assert_eq!((running(&world), old.len()), (4, 4));
    rolled.hash = Some("18".into());
    world.apply(Observation::Pool(Arc::new(rolled)));
    let mut restarts = 0;
    let mut checked = world.now();
    while checked < now + SignedDuration::from_mins(30) {
        checked += seconds(23);
        live(&mut world, &mut engine, checked, |_, _| ());
        // A machine that was told to end no longer counts.
        let leaving = world.objects().nodes.values().filter(|node| {
            let claim = world.objects().claim_of(node);
            node.taints.iter().any(|taint| taint.is_same(&Taint::disrupted()))
                && claim.is_some_and(|one| !one.conditions.is_true(ConditionType::InstanceTerminating))
        });
        assert!(leaving.count() <= 1, "the budget allows one at a time");
        assert!(world.objects().claims.len() <= 6, "nothing is bought twice");
        // Whoever dies is followed by one that sees the objects only.
        engine = engine_of(world.objects(), world.now(), EngineSettings::default());
        restarts += 1;
    }
    let new: BTreeSet<ClaimName> = world.objects().claims.keys().copied().collect();
    assert!(new.is_disjoint(&old) && new.len() == 4, "after {restarts} restarts: {old:?} {new:?}");
    assert_eq!(running(&world), 4);
}

/// Rows: DIS-170, DIS-218
#[test]
fn dis_170_the_old_node_goes_once_the_new_one_is_initialized() {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "1500m"));
    town.change_claim("n1", |claim| {
        claim.annotations.insert(*annotation::NODEPOOL_HASH, "16".into());
        claim.annotations.insert(*annotation::NODEPOOL_HASH_VERSION, "v3".into());
    });
    let mut engine = town.engine();
    engine.decide(town.now);
    echo(&mut engine, town.now);
    let old = ClaimName::new("n1-claim");
    let new = engine.cluster().claims.values().find(|claim| claim.name != old).expect("its replacement");
    let mut new = (**new).clone();
    let deletes = |engine: &mut Engine, second: i64| {
        let actions = engine.decide(town.now + seconds(second)).actions;
        actions.iter().any(|one| one.action == Action::DeleteClaim { claim: old })
    };
    assert!(!(1..20).any(|second| deletes(&mut engine, second)));
    for kind in [ConditionType::Launched, ConditionType::Registered, ConditionType::Initialized] {
        new.conditions.set(kind, provisor::model::claim::ConditionStatus::True, "", "", town.now);
    }
    engine.observe(town.now + seconds(20), Observation::Claim(Arc::new(new)));
    assert!(deletes(&mut engine, 20));
}

/// Rows: LIF-081, LIF-082, LIF-089
#[test]
fn lif_081_a_static_pool_keeps_its_number_of_nodes() {
    let mut fixed = pool("base");
    fixed.replicas = Some(3);
    let mut world = world(vec![fixed.clone()]);
    let mut engine = Engine::new(EngineSettings::default());
    let mut until = world.now();
    for replicas in [3, 1, 4, 0] {
        fixed.replicas = Some(replicas);
        world.apply(Observation::Pool(Arc::new(fixed.clone())));
        until += SignedDuration::from_mins(4);
        live(&mut world, &mut engine, until, |_, _| ());
        assert_eq!(world.objects().nodes.len(), replicas as usize);
    }
}

/// Rows: LIF-066, LIF-068
#[test]
fn lif_066_the_last_pod_event_is_written_at_most_every_ten_seconds() {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n1", "m5.2xlarge");
    let mut engine = town.engine();
    engine.decide(town.now);
    let mut written = Vec::new();
    for second in 0..25 {
        let now = town.now + seconds(second);
        let bound = pod(&format!("web-{second}"), Some("n1"), shape("web", "10m"));
        engine.observe(now, Observation::Pod(Arc::new(bound)));
        if reasons(&engine.decide(now)).contains_key("PodEvent") {
            written.push(second);
        }
    }
    assert_eq!(written, [0, 10, 20]);
}

#[test]
fn a_node_whose_registration_was_written_by_half_is_registered_again() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town.change_claim("n1", |claim| claim.conditions.clear(ConditionType::Initialized));
    town.change_node("n1", |node| node.taints.push(Taint::unregistered()));
    let actions = town.engine().decide(town.now).actions;
    let opens = |one: &Planned| matches!(&one.action, Action::UpdateNode { change, .. } if change.remove_taints == [Taint::unregistered()]);
    assert!(actions.iter().any(opens), "{actions:?}");
}

/// Rows: SCH-474
#[test]
fn nothing_is_decided_before_everything_was_listed() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    let mut engine = Engine::new(EngineSettings::default());
    engine.observe(town.now, Observation::Catalog(catalog()));
    engine.observe(town.now, Observation::Pod(Arc::new(pod("web", None, shape("web", "1")))));
    let decision = engine.decide(town.now + SignedDuration::from_mins(1));
    assert!(decision.actions.is_empty() && decision.wake_at.is_none());
}

#[test]
fn the_same_news_leads_to_the_same_decisions() {
    let story = || {
        let mut world = world(vec![pool("default")]);
        world.add_workload(deployment("web", shape("web", "700m"), 9));
        let now = world.now();
        world.scale_at(now + SignedDuration::from_mins(4), ObjectKey::new("default", "web"), 2);
        let mut engine = Engine::new(EngineSettings::default());
        let mut told = Vec::new();
        live(&mut world, &mut engine, now + SignedDuration::from_mins(15), |at, decision| {
            told.extend(decision.actions.iter().map(|one| format!("{at} {:?}", one)));
        });
        told
    };
    assert_eq!(story(), story());
}
