//! Pods that their ReplicaSet is yet to make are planned with those that wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::action::{Action, Notice, Subject};
use provisor::model::buffer::Scalable;
use provisor::model::claim::NodeClaim;
use provisor::model::name::{ObjectKey, Uid};
use provisor::model::observation::Observation;
use provisor::model::pod::{Owner, Pod, PodShape, PodVolume};
use provisor::model::quantity::resource;
use provisor::model::workload::{PersistentVolumeClaim, StorageClass};
use provisor::simulator::workload::{Workload, WorkloadKind};
use provisor::simulator::world::{Habits, World};

use super::town::*;

fn millis(millis: i64) -> Timestamp {
    at(NOW) + SignedDuration::from_millis(millis)
}

/// An engine that sees pods of the ReplicaSet `web` being made.
struct Making {
    engine: Engine,
    claims: Vec<(Timestamp, Arc<NodeClaim>)>,
    /// What each pod was said to be planned for, in the end.
    told: BTreeMap<ObjectKey, Arc<str>>,
}

impl Making {
    fn new(foresees_pods: bool) -> Self {
        Self::in_town(&Town::with(|_| ()), foresees_pods)
    }

    fn in_town(town: &Town, foresees_pods: bool) -> Self {
        let settings = EngineSettings { foresees_pods, nominates: true, ..EngineSettings::default() };
        Self {
            engine: engine_of(&town.cluster, town.now, settings),
            claims: Vec::new(),
            told: BTreeMap::new(),
        }
    }

    fn wants(&mut self, when: i64, replicas: u32, is_refused: bool) {
        let set = Scalable {
            kind: "ReplicaSet".into(),
            key: ObjectKey::new("default", "web"),
            replicas,
            selector: None,
            shape: Arc::new(shape("web", "3500m")),
            is_refused,
        };
        self.engine.observe(millis(when), Observation::Scalable(Arc::new(set)));
    }

    /// The API server tells of pod `index` of those that `web` makes. The first is looked at by kube-scheduler at once.
    fn makes(&mut self, when: i64, index: u32) {
        self.engine.observe(millis(when), Observation::Pod(Arc::new(made(when, index))));
        self.decides(when);
    }

    fn decides(&mut self, when: i64) {
        let decision = self.engine.decide(millis(when));
        for planned in &decision.actions {
            assert!(!format!("{planned:?}").contains('~'), "nobody hears of a stand-in: {planned:?}");
            match &planned.action {
                Action::CreateClaim(claim) => self.claims.push((millis(when), claim.clone())),
                Action::Publish(Notice { subject: Subject::Pod(pod), reason, message, .. })
                    if &**reason == "Nominated" =>
                {
                    self.told.insert(*pod, message.clone());
                }
                _ => {}
            }
        }
        let plan = &self.engine.plan().provisioning;
        assert!(!format!("{plan:?}").contains('~'), "nor reads of one in the plan");
    }

    /// How many machines there were after so many milliseconds.
    fn bought_by(&self, when: i64) -> usize {
        self.claims.iter().filter(|(at, _)| *at <= millis(when)).count()
    }
}

fn made(when: i64, index: u32) -> Pod {
    let owner = Owner { name: "web".into(), uid: Uid::new("web-uid"), ..owned_by("ReplicaSet") };
    Pod {
        owners: vec![owner],
        is_unschedulable: index == 0,
        created: Some(millis(when)),
        ..pod(&format!("web-{index:03}"), None, shape("web", "3500m"))
    }
}

#[test]
fn machines_are_bought_for_pods_that_are_yet_to_be_made() {
    let bought = |foresees_pods| {
        let mut making = Making::new(foresees_pods);
        making.wants(0, 40, false);
        (0..40).for_each(|index| making.makes(i64::from(index) * 100, index));
        (4000..12_000).step_by(250).for_each(|when| making.decides(when));
        (making.bought_by(1_200), making.claims.len(), making.told.len())
    };
    // Two of them fit on one.
    assert_eq!(
        bought(true),
        (20, 20, 40),
        "a second after the first pod, when a dozen are there; and no more later"
    );
    assert_eq!(bought(false).0, 1, "without foresight only the one counts that kube-scheduler has refused");
}

#[test]
fn no_machine_is_bought_for_pods_that_are_refused() {
    let mut making = Making::new(true);
    making.wants(0, 40, false);
    (0..4).for_each(|index| making.makes(i64::from(index) * 10, index));
    making.wants(50, 40, true);
    (100..20_000).step_by(250).for_each(|when| making.decides(when));
    assert_eq!(making.claims.len(), 2);
}

/// Somebody lets them go one by one, maybe hours later.
#[test]
fn no_machine_is_bought_for_pods_that_will_be_held_back_by_a_gate() {
    let mut making = Making::new(true);
    making.wants(0, 40, false);
    let gated = |index: u32, is_gated: bool| {
        let owner = Owner { name: "web".into(), uid: Uid::new("web-uid"), ..owned_by("ReplicaSet") };
        let pod = pod(&format!("web-{index:03}"), None, shape("web", "3500m"));
        Observation::Pod(Arc::new(Pod { owners: vec![owner], is_unschedulable: !is_gated, is_gated, ..pod }))
    };
    (0..10).for_each(|index| making.engine.observe(millis(100), gated(index, true)));
    making.engine.observe(millis(200), gated(0, false));
    (200..4_000).step_by(250).for_each(|when| making.decides(when));
    assert_eq!(making.claims.len(), 1);
}

#[test]
fn no_more_is_bought_than_comes_while_a_machine_boots() {
    let mut making = Making::new(true);
    making.wants(0, 200, false);
    (0..4).for_each(|index| making.makes(i64::from(index) * 500, index));
    // Three pods in the first second: 135 in three quarters of a minute.
    assert_eq!(making.bought_by(1_400), (3_usize + 135).div_ceil(2));
}

/// Nobody waits for the next round to be told where it will run.
#[test]
fn a_pod_that_comes_has_the_place_that_was_kept_for_it() {
    let mut making = Making::new(true);
    making.wants(0, 40, false);
    (0..40).for_each(|index| making.makes(i64::from(index) * 100, index));
    let mut pods_of: BTreeMap<&str, usize> = BTreeMap::new();
    for message in making.told.values() {
        *pods_of.entry(message).or_default() += 1;
    }
    let claims: BTreeMap<String, usize> = making
        .claims
        .iter()
        .map(|(_, claim)| (format!("should schedule on nodeclaim/{}", claim.name), 2))
        .collect();
    assert!(pods_of.into_iter().eq(claims.iter().map(|(message, pods)| (message.as_str(), *pods))));
}

/// So many pods of another ReplicaSet come.
fn others(making: &mut Making, when: i64, name: &str, pods: u32) {
    for index in 0..pods {
        let pod = Pod {
            created: Some(millis(when)),
            ..pod(&format!("{name}-{index:02}"), None, shape("other", "3500m"))
        };
        making.engine.observe(millis(when), Observation::Pod(Arc::new(pod)));
    }
}

/// A limit leaves room for half of them: whoever comes first gets it, and not one that is yet to come.
#[test]
fn where_not_all_have_room_those_that_come_first_have_it() {
    let town = Town::with(|pool| pool.limits = Some([(*resource::NODES, 10)].into_iter().collect()));
    let mut making = Making::in_town(&town, true);
    making.wants(0, 40, false);
    (0..20).for_each(|index| making.makes(i64::from(index) * 100, index));
    let told = making.told.len();
    assert_eq!((told, making.claims.len()), (20, 10), "all of the first twenty");
}

/// What is evicted comes again, and has a place already.
#[test]
fn nothing_is_bought_ahead_for_a_set_that_loses_pods() {
    let mut making = Making::new(true);
    making.wants(0, 40, false);
    (0..9).for_each(|index| making.makes(i64::from(index) * 100, index));
    let leaves = Pod {
        deleted: Some(millis(850)),
        ..(*making.engine.cluster().pods[&ObjectKey::new("default", "web-008")]).clone()
    };
    making.engine.observe(millis(850), Observation::Pod(Arc::new(leaves)));
    (900..3_000).step_by(100).for_each(|when| making.decides(when));
    assert_eq!(making.claims.len(), 4, "for the eight that are there");
}

/// kube-controller-manager begins with few pods at a time.
#[test]
fn a_set_that_gets_quicker_is_planned_for_again() {
    let mut making = Making::new(true);
    making.wants(0, 1_000, false);
    (0..4).for_each(|index| making.makes(i64::from(index) * 500, index));
    let bought = making.bought_by(1_500);
    assert!(bought < 100, "{bought}");
    (4..100).for_each(|index| making.makes(1_500 + i64::from(index) * 40, index));
    let bought = making.bought_by(4_500);
    assert!(bought > 150, "{bought}: those that were planned for come until after five seconds");
}

#[test]
fn pods_that_do_not_come_lose_their_place() {
    let mut making = Making::new(true);
    making.wants(0, 40, false);
    (0..10).for_each(|index| making.makes(i64::from(index) * 100, index));
    making.decides(1_100);
    assert_eq!(making.claims.len(), 20);
    // The set stops there. Others take the room, as soon as nobody stands in for its pods any more.
    others(&mut making, 2_000, "early", 2);
    making.decides(3_100);
    assert_eq!(making.claims.len(), 21, "their room is kept");
    let wake = making.engine.decide(millis(3_200)).wake_at.expect("it looks again");
    assert!(wake <= millis(5_900), "five seconds after the last: {wake}");
    making.decides(5_900);
    others(&mut making, 6_000, "late", 30);
    making.decides(7_100);
    assert_eq!(making.claims.len(), 21, "there is room");
}

#[test]
fn a_set_that_slows_down_keeps_no_room_that_it_does_not_need_soon() {
    let mut making = Making::new(true);
    making.wants(0, 400, false);
    (0..12).for_each(|index| making.makes(i64::from(index) * 100, index));
    let bought = making.claims.len();
    assert!(bought > 150, "{bought}");
    (12..28).for_each(|index| making.makes(i64::from(index - 11) * 4_000, index));
    // After a minute it is expected to make nineteen in the next 45 seconds. Of the others but as many more nobody is waited for.
    others(&mut making, 64_100, "other", 250);
    (64_100..67_000).step_by(250).for_each(|when| making.decides(when));
    assert_eq!(making.claims.len(), bought, "there is room");
}

/// They were planned for when it was quick, and not so long ago.
#[test]
fn a_set_that_pauses_keeps_its_room() {
    let mut making = Making::new(true);
    making.wants(0, 100, false);
    (0..4).for_each(|index| making.makes(i64::from(index) * 100, index));
    making.decides(1_300);
    assert_eq!(making.claims.len(), 50);
    others(&mut making, 3_500, "other", 10);
    (3_500..4_600).step_by(100).for_each(|when| making.decides(when));
    assert_eq!(making.claims.len(), 55);
}

#[test]
fn pods_are_planned_for_as_those_were_that_came_last() {
    let mut making = Making::new(true);
    making.wants(0, 40, false);
    (0..4).for_each(|index| making.makes(i64::from(index) * 100, index));
    let smaller = Pod { shape: Arc::new(shape("web", "50m")), is_unschedulable: true, ..made(400, 4) };
    making.engine.observe(millis(400), Observation::Pod(Arc::new(smaller)));
    (400..3_000).step_by(100).for_each(|when| making.decides(when));
    assert_eq!(making.claims.len(), 2, "36 small ones have room beside the four");
}

/// A set lets go of a pod whose labels somebody changes, and makes another instead.
#[test]
fn a_pod_that_is_let_go_is_made_anew() {
    let mut making = Making::new(true);
    making.wants(0, 12, false);
    (0..10).for_each(|index| making.makes(i64::from(index) * 50, index));
    for index in 0..4 {
        let pod = Pod { owners: Vec::new(), ..made(i64::from(index) * 50, index) };
        making.engine.observe(millis(600), Observation::Pod(Arc::new(pod)));
    }
    (600..3_000).step_by(100).for_each(|when| making.decides(when));
    assert_eq!(making.claims.len(), 8, "ten that are there, and six that are yet to come");
}

/// Their volumes are made after them: nothing is known of where they can be. So a batch waits for the last of them.
#[test]
fn nothing_is_bought_ahead_for_pods_with_volumes_of_their_own() {
    let mut making = Making::new(true);
    making.wants(0, 40, false);
    let class = StorageClass {
        name: "plain".into(),
        provisioner: "ebs.csi.aws.com".into(),
        binds_immediately: false,
        topologies: Vec::new(),
        is_default: false,
        created: None,
    };
    making.engine.observe(millis(0), Observation::StorageClass(Arc::new(class)));
    let storage_class = Some("plain".into());
    let volume = PodVolume::Ephemeral { volume: "data".into(), storage_class };
    let with_volume = PodShape { volumes: vec![volume], ..shape("web", "3500m") };
    for index in 0..40 {
        let when = i64::from(index) * 100;
        let pod = Pod { shape: Arc::new(with_volume.clone()), is_unschedulable: true, ..made(when, index) };
        let claim = PersistentVolumeClaim {
            key: ObjectKey::new("default", &format!("web-{index:03}-data")),
            volume: None,
            storage_class,
            is_lost: false,
            is_deleting: false,
            is_bind_completed: false,
        };
        making.engine.observe(millis(when), Observation::VolumeClaim(Arc::new(claim)));
        making.engine.observe(millis(when), Observation::Pod(Arc::new(pod)));
        making.decides(when);
    }
    assert_eq!(making.claims.len(), 0, "it goes on");
    (4_000..6_000).step_by(250).for_each(|when| making.decides(when));
    assert_eq!(making.claims.len(), 20);
}

#[test]
fn pods_that_are_yet_to_be_made_are_not_counted_among_those_that_wait() {
    let mut making = Making::new(true);
    making.wants(0, 40, false);
    (0..12).for_each(|index| making.makes(i64::from(index) * 100, index));
    assert_eq!(making.claims.len(), 20, "the plan knows of all");
    let waiting: usize = making.engine.plan().pending_zones.values().sum();
    assert!((1..=12).contains(&waiting), "{waiting}");
}

/// One of three nodes could go if its pod went where there is room: on the first that is kept for the pod that waits, on the second for
/// the one that is yet to be made.
#[test]
fn consolidation_leaves_pods_that_are_yet_to_be_made_their_room() {
    let kept_together = |replicas| {
        let types =
            "m5.2xlarge,amd64,8,32768,7910m,29317Mi,58,,,0.384,0.14,us-west-2a us-west-2b,on-demand spot";
        let mut town = Town::selling(sold(types), vec![pool("default")]);
        for node in ["one", "two", "three"] {
            town.node(node, "m5.2xlarge");
            town.run(&format!("at-{node}"), node, shape("settled", "3500m"));
        }
        let mut making = Making::in_town(&town, true);
        making.wants(0, replicas, false);
        making.engine.observe(millis(0), Observation::Pod(Arc::new(made(0, 0))));
        making.decides(1_000);
        assert_eq!(making.claims.len(), 0, "they fit on what is there");
        making.engine.plan().disruption.commands.len()
    };
    assert_eq!(kept_together(1), 1, "one of them may go");
    assert_eq!(kept_together(2), 0, "none may");
}

#[test]
fn a_set_that_is_scaled_down_meanwhile_gets_what_it_still_wants() {
    let mut making = Making::new(true);
    making.wants(0, 40, false);
    (0..10).for_each(|index| making.makes(i64::from(index) * 100, index));
    making.decides(1_100);
    making.wants(1_200, 12, false);
    making.decides(1_200);
    assert_eq!(making.engine.cluster().claims.len(), 20, "what is bought is bought");
    // Twenty-eight have nobody: as many others find room there.
    others(&mut making, 1_300, "other", 28);
    making.decides(2_400);
    (10..12).for_each(|index| making.makes(2_400 + i64::from(index), index));
    (2_500..9_000).step_by(250).for_each(|when| making.decides(when));
    assert_eq!(making.claims.len(), 20);
}

/// kube-scheduler may find a place for those that are left: nothing is bought for them as long as it says nothing else.
#[test]
fn nothing_is_bought_ahead_for_a_set_whose_pods_find_a_place() {
    let mut making = Making::new(true);
    making.wants(0, 40, false);
    for index in 1..20 {
        making.makes(i64::from(index) * 10, index);
    }
    others(&mut making, 200, "other", 2);
    (1_000..4_000).step_by(250).for_each(|when| making.decides(when));
    assert_eq!(making.claims.len(), 1, "for the others");
}

/// A crowd of small and large pods that wait.
fn slow_crowd(seed: u64, small: u32, large: u32, habits: Habits) -> World {
    let mut world = World::new(seed, at(NOW), catalog(), habits);
    world.apply(Observation::Class(Arc::new(class("default"))));
    world.apply(Observation::Pool(Arc::new(pool("default"))));
    for (name, cpu, replicas) in [("early", "200m", small), ("late", "3500m", large)] {
        let shape = Arc::new(shape(name, cpu));
        let key = ObjectKey::new("default", name);
        world.add_workload(Workload::new(key, WorkloadKind::Deployment, shape, replicas));
    }
    world
}

/// How many machines were bought in five minutes, when the last of them was, and how many pods do not run then.
fn outcome(mut world: World) -> (usize, SignedDuration, usize) {
    let settings = EngineSettings { nominates: true, foresees_pods: true, ..EngineSettings::default() };
    let mut engine = Engine::new(settings);
    let mut bought: BTreeMap<_, Timestamp> = BTreeMap::new();
    let until = world.now() + SignedDuration::from_mins(5);
    live(&mut world, &mut engine, until, |now, decision| {
        for planned in &decision.actions {
            if let Action::CreateClaim(claim) = &planned.action {
                bought.insert(claim.name, now);
            }
        }
    });
    let last = bought.values().max().map_or(SignedDuration::ZERO, |last| last.duration_since(at(NOW)));
    let pods = &world.objects().pods;
    (bought.len(), last, pods.values().filter(|pod| !pod.is_ready).count())
}

#[test]
fn a_crowd_that_comes_slowly_gets_the_machines_of_one_that_comes_at_once() {
    // Mostly a machine boots longer than it takes the crowd to come; where not, its node stays closed until they are there.
    for boot in [None, Some(SignedDuration::from_secs(1))] {
        for seed in 0..6 {
            let at_once = Habits { boot, ..Habits::default() };
            let (all_at_once, ..) = outcome(slow_crowd(seed, 70, 6, at_once));
            let slowly = Habits { boot, pods_a_second: Some(10), ..Habits::default() };
            let (machines, last, waiting) = outcome(slow_crowd(seed, 70, 6, slowly));
            assert_eq!((machines, waiting), (all_at_once, 0), "seed {seed}, boot {boot:?}");
            assert!(last < SignedDuration::from_secs(3), "seed {seed}: the last was bought after {last:#}");
        }
    }
}

/// Machines that boot quickly, for a ReplicaSet that wants sixty pods, too many for one wave, and makes `made`, ten in a second: when the first and the last of
/// their nodes opened.
fn opened(made: u32) -> (SignedDuration, SignedDuration) {
    let habits =
        Habits { boot: Some(SignedDuration::from_millis(300)), pods_a_second: Some(10), ..Habits::default() };
    let mut world = slow_crowd(1, 0, made, habits);
    let set = Scalable {
        kind: "ReplicaSet".into(),
        key: ObjectKey::new("default", "late"),
        replicas: 60,
        selector: None,
        shape: Arc::new(shape("late", "3500m")),
        is_refused: false,
    };
    world.apply(Observation::Scalable(Arc::new(set)));
    let settings = EngineSettings { nominates: true, foresees_pods: true, ..EngineSettings::default() };
    let (mut engine, mut opened) = (Engine::new(settings), Vec::new());
    let until = world.now() + SignedDuration::from_mins(1);
    live(&mut world, &mut engine, until, |now, decision| {
        for planned in &decision.actions {
            if matches!(&planned.action, Action::UpdateNode { change, .. } if change.opens()) {
                opened.push(now.duration_since(at(NOW)));
            }
        }
    });
    assert_eq!(opened.len(), 30, "two pods fit on each");
    (opened[0], opened[29])
}

#[test]
fn a_node_is_closed_until_those_are_there_for_whom_it_was_bought_or_will_not_come() {
    let millis = SignedDuration::from_millis;
    let (first, last) = opened(60);
    assert!(first < millis(5_900) && last >= millis(5_900), "until the last: {first:#} to {last:#}");
    let (_, last) = opened(30);
    assert!((7_900..8_000).contains(&last.as_millis()), "five seconds after the last: {last:#}");
}
