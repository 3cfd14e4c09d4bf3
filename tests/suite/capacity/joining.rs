//! A claim on its way to a working node: launched, joined, initialized, or given up.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::{Decision, Planned};
use provisor::capacity::engine::Engine;
use provisor::model::action::{Action, NodeChange, Notice, Subject};
use provisor::model::claim::ConditionStatus::{False, True, Unknown};
use provisor::model::claim::{ConditionType, Conditions, NodeClaim};
use provisor::model::label::{self, Labels, annotation};
use provisor::model::name::{ClaimName, NodeName, ProviderId};
use provisor::model::node::Node;
use provisor::model::observation::{Instance, LaunchFailure, Observation};
use provisor::model::pool::{ClassRef, PoolCondition};
use provisor::model::quantity::ResourceName;
use provisor::model::symbol::Symbol;
use provisor::model::taint::{Effect, Taint};
use provisor::model::time::Patience;

use super::town::*;

const CLAIM: &str = "n-claim";

fn name() -> ClaimName {
    ClaimName::new(CLAIM)
}

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

/// A machine that was launched for a claim a moment ago, and whose node has just joined.
fn joined() -> Town {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n", "m5.large");
    let now = town.now;
    town.change_claim("n", |claim| {
        claim.created = Some(now);
        claim.node = None;
        claim.conditions = Conditions::default();
        claim.conditions.set(ConditionType::Launched, True, "Launched", "", now);
    });
    town.change_node("n", |node| {
        node.created = Some(now);
        node.has_finalizer = false;
        node.labels = Labels::from([(*label::HOSTNAME, "n".into())]);
        node.taints = vec![Taint::unregistered()];
    });
    town
}

/// The same before its node has joined.
fn launched() -> Town {
    let mut town = joined();
    town.cluster.remove_node("n".into());
    town
}

/// A claim for which nothing was launched yet.
fn wanted() -> Town {
    let mut town = launched();
    town.change_claim("n", |claim| {
        claim.provider_id = None;
        claim.conditions = Conditions::default();
    });
    town
}

/// The same node with everything done but for its initialization.
fn registered() -> Town {
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n", "m5.large");
    town.change_claim("n", |claim| claim.conditions.clear(ConditionType::Initialized));
    town.change_node("n", |node| {
        node.labels.remove(&*label::INITIALIZED);
    });
    town
}

fn claim(engine: &Engine) -> &NodeClaim {
    &engine.cluster().claims[&name()]
}

fn node(engine: &Engine) -> &Node {
    &engine.cluster().nodes[&NodeName::new("n")]
}

/// What the claim says of `kind`: status and reason, `-` where it says nothing.
fn says(engine: &Engine, kind: ConditionType) -> String {
    claim(engine)
        .conditions
        .get(kind)
        .map_or("-".into(), |one| format!("{} {}", one.status.as_str(), one.reason))
}

fn message(engine: &Engine, kind: ConditionType) -> String {
    claim(engine).conditions.get(kind).map_or(String::new(), |one| one.message.to_string())
}

fn notices<'d>(decision: &'d Decision, reason: &str) -> Vec<&'d Notice> {
    let told = decision.actions.iter().filter_map(|one| match &one.action {
        Action::Publish(notice) if &*notice.reason == reason => Some(notice),
        _ => None,
    });
    told.collect()
}

fn deletes(decision: &Decision) -> Option<&'static str> {
    let is_it = |one: &&Planned| one.action == Action::DeleteClaim { claim: name() };
    decision.actions.iter().find(is_it).map(|one| one.reason.code)
}

fn launches(decision: &Decision) -> usize {
    decision.actions.iter().filter(|one| matches!(one.action, Action::Launch { .. })).count()
}

/// What a former process wrote of the claim's machine stopped in the middle: the order is repeated, which meets the same machine, and all
/// of it is written.
#[test]
fn a_claim_that_says_it_was_launched_and_not_as_what_is_launched_again() {
    let mut town = joined();
    let machine = town.cluster.claims[&name()].provider_id.expect("it has a machine");
    let is_registered = |claim: &mut NodeClaim| {
        claim.conditions.set(
            ConditionType::Registered,
            True,
            "Registered",
            "",
            claim.created.expect("a time"),
        );
    };
    town.change_claim("n", |claim| {
        is_registered(claim);
        claim.provider_id = None;
    });
    let mut engine = town.engine();
    assert_eq!(launches(&engine.decide(town.now)), 1);
    let instance = Instance { claim: Some(name()), ..instance_of(machine, town.now) };
    engine.observe(town.now, Observation::Launched { claim: name(), instance, shortage: None });
    engine.decide(town.now);
    assert_eq!(claim(&engine).provider_id, Some(machine));
    assert_eq!(says(&engine, ConditionType::Initialized), "True Initialized");
}

/// Nothing is bought a second time for it, and an API server that refuses is asked less and less often.
#[test]
fn a_write_that_is_refused_is_tried_again_later_each_time() {
    let town = wanted();
    let mut engine = town.engine();
    engine.decide(town.now);
    let machine = ProviderId::new("aws:///us-west-2a/i-n");
    let instance = Instance { claim: Some(name()), ..instance_of(machine, town.now) };
    engine.observe(town.now, Observation::Launched { claim: name(), instance, shortage: None });
    let written = |decision: &Decision| {
        decision.actions.iter().any(|one| match &one.action {
            Action::UpdateClaim { claim, change } => *claim == name() && change.launched.is_some(),
            _ => false,
        })
    };
    assert!(written(&engine.decide(town.now)));
    let mut now = town.now;
    let pauses = (0..12).map(|_| {
        let (subject, message) = (format!("NodeClaim {CLAIM}"), "no".into());
        engine.observe(now, Observation::ActionFailed { subject: subject.as_str().into(), message });
        let begun = now;
        let mut decision = engine.decide(now);
        while !written(&decision) {
            assert_eq!(launches(&decision), 0, "{decision:#?}");
            now = decision.wake_at.expect("it is tried again");
            decision = engine.decide(now);
        }
        now.duration_since(begun).as_millis()
    });
    let pauses: Vec<i128> = pauses.collect();
    let expected = [0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000];
    assert_eq!(pauses, expected);
}

fn see_node(engine: &mut Engine, now: Timestamp, change: impl FnOnce(&mut Node)) -> Decision {
    let mut seen = node(engine).clone();
    change(&mut seen);
    engine.observe(now, Observation::Node(Arc::new(seen)));
    engine.decide(now)
}

/// Whatever state a claim of another provisioner's class is in, nothing is done about it.
///
/// Rows: LIF-001
#[test]
fn lif_001_a_claim_of_another_provisioner_is_left_alone() {
    let foreign = ClassRef { group: "other.dev".into(), kind: "OtherClass".into(), name: "default".into() };
    let states: [fn(&mut Town); 5] = [
        |_| (),
        |town| town.change_claim("n", |claim| claim.has_finalizer = false),
        |town| {
            let now = town.now;
            town.change_claim("n", |claim| claim.deleted = Some(now));
        },
        |town| {
            let old = town.now - minutes(60);
            town.change_claim("n", |claim| {
                claim.created = Some(old);
                claim.spec.expire_after = Patience::of(minutes(30));
            });
        },
        |town| town.change_claim("n", |claim| claim.labels.clear()),
    ];
    for make in [wanted, launched, joined, registered] {
        for state in states {
            for is_ours in [false, true] {
                let mut town = make();
                town.settings.repairs = true;
                state(&mut town);
                let instance = town.cluster.claims[&name()].provider_id;
                town.change_claim("n", |claim| {
                    claim.spec.class = if is_ours { claim.spec.class } else { foreign }
                });
                let mut engine = town.engine();
                let mut done = Vec::new();
                for step in 0..40 {
                    let now = town.now + minutes(step);
                    if let Some(id) = instance {
                        let mut old = instance_of(id, town.now - minutes(60));
                        old.is_terminating = false;
                        engine.observe(now, Observation::Instances([old].into()));
                    }
                    done.extend(engine.decide(now).actions);
                }
                let touched = done.iter().filter(|one| match &one.action {
                    Action::UpdatePool { .. } => false,
                    Action::Publish(notice) => notice.subject == Subject::Claim(name()),
                    _ => true,
                });
                let count = touched.count();
                assert_eq!(count == 0, !is_ours, "{done:#?}");
            }
        }
    }
}

fn instance_of(id: ProviderId, launched: Timestamp) -> Instance {
    let mut town = Town::with(|_| ());
    town.node("x", "m5.large");
    Instance { provider_id: id, claim: Some(name()), launched, ..town.instance("x") }
}

/// Rows: LIF-002, LIF-003
#[test]
fn lif_002_nothing_is_launched_for_a_claim_that_nothing_holds() {
    let mut town = wanted();
    town.change_claim("n", |claim| claim.has_finalizer = false);
    let mut engine = town.engine();
    let actions = engine.decide(town.now).actions;
    let at = |is_it: fn(&Action) -> bool| actions.iter().position(|one| is_it(&one.action));
    let held = at(|action| matches!(action, Action::UpdateClaim { change, .. } if change.add_finalizer));
    let ordered = at(|action| matches!(action, Action::Launch { .. }));
    assert!(
        held.is_some() && held < ordered,
        "whoever carries them out stops at what cannot be written: {actions:#?}"
    );
    // Somebody else changed the claim meanwhile, so nothing was bought.
    let failed =
        Observation::ActionFailed { subject: "NodeClaim n-claim".into(), message: "conflict".into() };
    engine.observe(town.now + seconds(1), failed);
    assert!(!claim(&engine).has_finalizer, "what was not written is not believed");
    let again = engine.decide(town.now + seconds(1));
    let holds =
        |one: &Planned| matches!(&one.action, Action::UpdateClaim { change, .. } if change.add_finalizer);
    assert!(again.actions.iter().any(holds), "it is tried again: {:#?}", again.actions);
    assert_eq!(launches(&again), 1, "and the machine is ordered after it");
}

/// Rows: LIF-007
#[test]
fn lif_007_a_claim_whose_class_is_not_ready_is_given_back() {
    let town = wanted();
    let mut engine = town.engine();
    assert_eq!(launches(&engine.decide(town.now)), 1);
    let failure = LaunchFailure::ClassNotReady { message: "no subnet was found".into() };
    engine.observe(town.now, Observation::LaunchFailed { claim: name(), failure });
    let decision = engine.decide(town.now);
    assert_eq!(deletes(&decision), Some("NodeclassNotReady"), "counted as nodeclass_not_ready");
    let told = decision.actions.iter().filter(|one| matches!(one.action, Action::Publish(_)));
    assert_eq!(told.count(), 0, "the class tells what is wrong with it");
}

/// Rows: LIF-008, LIF-009
#[test]
fn lif_008_a_failed_launch_is_told_at_the_claim_and_tried_again() {
    let reason = || Some(Symbol::new("UnauthorizedOperation"));
    let long = "x".repeat(1000);
    let cases = [
        (
            LaunchFailure::Refused { reason: reason(), message: "you may not".into() },
            "UnauthorizedOperation",
            "you may not".to_owned(),
        ),
        (
            LaunchFailure::Refused { reason: None, message: long.as_str().into() },
            "LaunchFailed",
            format!("{}...", "x".repeat(300)),
        ),
        (LaunchFailure::Transient { message: "throttled".into() }, "LaunchFailed", "throttled".to_owned()),
    ];
    for (failure, word, text) in cases {
        let town = wanted();
        let mut engine = town.engine();
        engine.decide(town.now);
        engine.observe(town.now, Observation::LaunchFailed { claim: name(), failure: failure.clone() });
        let decision = engine.decide(town.now);
        assert_eq!(says(&engine, ConditionType::Launched), format!("Unknown {word}"));
        assert_eq!(message(&engine, ConditionType::Launched), text);
        assert_eq!((launches(&decision), deletes(&decision)), (0, None));
        let told = notices(&decision, word);
        assert_eq!(told.len(), 1, "what the claim says goes with it");
        assert_eq!(
            (told[0].subject, told[0].is_warning, &*told[0].message),
            (Subject::Claim(name()), true, &*text)
        );
        assert_eq!(launches(&engine.decide(town.now + seconds(1))), 1, "a second later");
        // Refused as long as it is waited for, and no longer.
        let later = town.now + seconds(2);
        engine.observe(later, Observation::LaunchFailed { claim: name(), failure: failure.clone() });
        assert!(notices(&engine.decide(later), word).is_empty(), "it says nothing new");
        let given_up = engine.decide(town.now + seconds(300));
        assert_eq!(deletes(&given_up), Some("LaunchTimeout"));
        let why = given_up.actions.iter().find(|one| matches!(one.action, Action::DeleteClaim { .. }));
        let why = why.map(|one| one.reason.message.to_string());
        assert_eq!(why, Some(format!("not launched within 5 minutes; the last answer: {text}")));
    }
}

/// Rows: LIF-010
#[test]
fn lif_010_a_claim_without_a_node_says_so() {
    // As it is launched here, and as a former version left it.
    let town = wanted();
    let mut engine = town.engine();
    engine.decide(town.now);
    let instance = instance_of(ProviderId::new("aws:///us-west-2a/i-n"), town.now);
    engine.observe(town.now, Observation::Launched { claim: name(), instance, shortage: None });
    engine.decide(town.now);
    let mut adopted = launched().engine();
    adopted.decide(town.now);
    for engine in [engine, adopted] {
        assert_eq!(says(&engine, ConditionType::Registered), "Unknown NodeNotFound");
        assert_eq!(says(&engine, ConditionType::Ready), "Unknown ReconcilingDependents");
        assert_eq!(claim(&engine).node, None);
    }
}

/// Rows: LIF-013
#[test]
fn lif_013_a_node_without_the_taint_registers_and_is_told_of_once() {
    let mut town = joined();
    town.change_node("n", |node| node.taints.clear());
    let mut engine = town.engine();
    let decision = engine.decide(town.now);
    assert_eq!(says(&engine, ConditionType::Registered), "True Registered");
    let told = notices(&decision, "UnregisteredTaintMissing");
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].subject, told[0].is_warning), (Subject::Node("n".into()), true));
    echo(&mut engine, town.now);
    assert!(notices(&engine.decide(town.now + seconds(1)), "UnregisteredTaintMissing").is_empty());
    assert!(
        notices(&joined().engine().decide(town.now), "UnregisteredTaintMissing").is_empty(),
        "it was there"
    );
}

/// Rows: LIF-014, LIF-015
#[test]
fn lif_014_what_a_claim_says_of_its_node_arrives_there() {
    let mut town = joined();
    let plain = Taint::new("team", "web", Effect::NoSchedule);
    let startup = Taint::new("cilium.io/agent-not-ready", "", Effect::NoExecute);
    town.change_claim("n", |claim| {
        claim.labels.insert("team".into(), "web".into());
        claim.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
        claim.spec.taints = vec![plain];
        claim.spec.startup_taints = vec![startup];
    });
    town.change_node("n", |node| {
        node.labels.insert("team".into(), "other".into());
        node.labels.insert("mine".into(), "kept".into());
        node.annotations.insert(*annotation::DO_NOT_DISRUPT, "false".into());
        // Its kubelet brought one of them along already.
        node.taints.push(plain);
    });
    let mut engine = town.engine();
    engine.decide(town.now);
    let node = node(&engine);
    for (key, value) in &claim(&engine).labels {
        assert_eq!(node.labels.get(key), Some(value), "{key}");
    }
    assert_eq!(node.labels.get(&Symbol::new("mine")).map(|value| value.as_str()), Some("kept"));
    assert_eq!(node.annotations[&*annotation::DO_NOT_DISRUPT].as_str(), "true");
    assert_eq!(node.labels[&*label::REGISTERED].as_str(), "true");
    assert!(node.has_finalizer);
    let mut taints = node.taints.clone();
    taints.sort_by_key(ToString::to_string);
    assert_eq!(taints, [startup, plain], "each of them once, and pods may come");
}

/// Rows: LIF-016, LIF-017
#[test]
fn lif_016_a_node_may_decline_taints_by_one_word_alone() {
    for (word, is_declined) in [("true", true), ("True", false), ("yes", false)] {
        let mut town = joined();
        town.change_claim("n", |claim| {
            claim.spec.taints = vec![Taint::new("team", "web", Effect::NoSchedule)];
            claim.spec.startup_taints = vec![Taint::new("boot", "", Effect::NoExecute)];
        });
        town.change_node("n", |node| {
            node.labels.insert(*label::DO_NOT_SYNC_TAINTS, word.into());
        });
        let mut engine = town.engine();
        engine.decide(town.now);
        assert_eq!(node(&engine).taints.len(), if is_declined { 0 } else { 2 }, "{word}");
        assert_eq!(says(&engine, ConditionType::Registered), "True Registered");
    }
}

/// Rows: LIF-018, LIF-031
#[test]
fn lif_018_a_startup_taint_that_was_removed_stays_away() {
    let mut town = joined();
    let startup = Taint::new("boot", "", Effect::NoExecute);
    town.change_claim("n", |claim| claim.spec.startup_taints = vec![startup]);
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!(node(&engine).taints, [startup]);
    assert_eq!(says(&engine, ConditionType::Initialized), "Unknown StartupTaintsExist");
    assert!(message(&engine, ConditionType::Initialized).contains("boot"));
    echo(&mut engine, town.now);
    for second in 1..5 {
        see_node(&mut engine, town.now + seconds(second), |node| node.taints.clear());
        assert_eq!(node(&engine).taints, []);
    }
    assert_eq!(says(&engine, ConditionType::Initialized), "True Initialized");
}

/// Rows: LIF-019
#[test]
fn lif_019_two_nodes_that_say_they_are_one_machine_do_not_register() {
    let mut town = joined();
    let twin = Node { name: "twin".into(), ..(*town.cluster.nodes[&NodeName::new("n")]).clone() };
    town.cluster.put_node(Arc::new(twin));
    let mut engine = town.engine();
    for second in [0, 1, 60] {
        engine.decide(town.now + seconds(second));
        echo(&mut engine, town.now + seconds(second));
        assert_eq!(says(&engine, ConditionType::Registered), "False MultipleNodesFound");
        assert!(
            ["-", "Unknown"].iter().any(|word| says(&engine, ConditionType::Initialized).starts_with(word))
        );
        assert_eq!(says(&engine, ConditionType::Ready), "False UnhealthyDependents");
        assert_eq!(node(&engine).taints, [Taint::unregistered()], "neither opens");
    }
    let mut stays = engine.clone();
    assert_eq!(deletes(&stays.decide(town.now + minutes(14))), None);
    assert_eq!(deletes(&stays.decide(town.now + minutes(15))), Some("RegistrationTimeout"));
    // One was a leftover, and is gone.
    engine.observe(town.now + seconds(90), Observation::NodeGone("twin".into()));
    engine.decide(town.now + seconds(90));
    assert_eq!(says(&engine, ConditionType::Registered), "True Registered");
}

/// Rows: LIF-028, LIF-029, LIF-032, LIF-033
#[test]
fn lif_029_a_node_is_initialized_once_nothing_is_in_the_way() {
    let in_the_way = [
        ("False", None, "NodeNotReady"),
        ("True", Some("node.kubernetes.io/not-ready"), "KnownEphemeralTaintsExist"),
        ("True", Some("node.kubernetes.io/unreachable"), "KnownEphemeralTaintsExist"),
        ("True", Some("node.cloudprovider.kubernetes.io/uninitialized"), "KnownEphemeralTaintsExist"),
        ("True", Some("readiness.k8s.io/network"), "KnownEphemeralTaintsExist"),
    ];
    for (ready_is, taint, word) in in_the_way {
        let mut town = registered();
        town.change_node("n", |node| {
            node.conditions = vec![ready(ready_is)];
            node.taints.extend(taint.map(|key| Taint::new(key, "", Effect::NoSchedule)));
        });
        let mut engine = town.engine();
        engine.decide(town.now);
        assert_eq!(says(&engine, ConditionType::Initialized), format!("Unknown {word}"));
        assert!(!node(&engine).labels.contains_key(&*label::INITIALIZED));
        see_node(&mut engine, town.now + seconds(1), |node| {
            node.taints.clear();
            node.conditions = vec![ready("True")];
        });
        assert_eq!(says(&engine, ConditionType::Initialized), "True Initialized");
        assert_eq!(says(&engine, ConditionType::Ready), "True Ready");
        assert_eq!(node(&engine).labels[&*label::INITIALIZED].as_str(), "true");
    }
    // Everything is there but the node of the claim.
    let town = launched();
    let mut engine = town.engine();
    engine.decide(town.now);
    assert!(!says(&engine, ConditionType::Initialized).starts_with("True"));
}

/// Rows: LIF-030, LIF-038
#[test]
fn lif_030_a_device_that_was_asked_for_has_to_show_up() {
    let gpu = ResourceName::new("nvidia.com/gpu");
    let mut town = registered();
    town.change_claim("n", |claim| {
        claim.spec.requests.set(gpu, 1);
        // Devices by dynamic allocation are not waited for: nothing here allocates them.
        claim.annotations.insert("karpenter.sh/requested-dra-drivers".into(), "gpu.example.com".into());
    });
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!(says(&engine, ConditionType::Initialized), "Unknown ResourceNotRegistered");
    assert!(message(&engine, ConditionType::Initialized).contains("nvidia.com/gpu"));
    see_node(&mut engine, town.now + seconds(1), |node| node.allocatable.set(gpu, 0));
    assert_eq!(says(&engine, ConditionType::Initialized), "Unknown ResourceNotRegistered");
    see_node(&mut engine, town.now + seconds(2), |node| node.allocatable.set(gpu, 1));
    assert_eq!(says(&engine, ConditionType::Initialized), "True Initialized");
}

/// When the claim is given up, in seconds from now, and why. Asked every fifteen seconds.
fn given_up(town: &Town) -> Option<(i64, &'static str)> {
    let mut engine = town.engine();
    (0..400).map(|step| 15 * step).find_map(|second| {
        let word = deletes(&engine.decide(town.now + seconds(second)))?;
        Some((second, word))
    })
}

/// Rows: LIF-040, LIF-042, LIF-043, LIF-044
#[test]
fn lif_042_patience_counts_from_the_last_change_and_can_be_set() {
    let old = |town: &mut Town| {
        let created = town.now - minutes(16);
        town.change_claim("n", |claim| claim.created = Some(created));
    };
    let mut town = wanted();
    assert_eq!(given_up(&town), Some((300, "LaunchTimeout")));
    town.settings.patience.launch = seconds(45);
    assert_eq!(given_up(&town), Some((45, "LaunchTimeout")));
    old(&mut town);
    assert_eq!(given_up(&town), Some((0, "LaunchTimeout")), "it is as old as its claim");
    let now = town.now;
    town.change_claim("n", |claim| {
        claim.conditions.set(ConditionType::Launched, Unknown, "LaunchFailed", "", now)
    });
    assert_eq!(given_up(&town), Some((45, "LaunchTimeout")), "it changed just now");

    let mut town = launched();
    old(&mut town);
    assert_eq!(given_up(&town), Some((900, "RegistrationTimeout")), "it was launched just now");
    town.change_claim("n", |claim| {
        claim.conditions.set(ConditionType::Launched, True, "Launched", "", now - minutes(16));
        let mut fresh = Conditions::default();
        for (kind, one) in claim.conditions.iter() {
            fresh.insert(
                kind,
                provisor::model::claim::Condition { since: Some(now - minutes(16)), ..one.clone() },
            );
        }
        claim.conditions = fresh;
    });
    assert_eq!(given_up(&town), Some((0, "RegistrationTimeout")));
    town.change_claim("n", |claim| {
        claim.conditions.set(ConditionType::Registered, Unknown, "NodeNotFound", "", now - minutes(1))
    });
    assert_eq!(given_up(&town), Some((840, "RegistrationTimeout")), "that changed a minute ago");
    town.settings.patience.registration = minutes(2);
    assert_eq!(given_up(&town), Some((60, "RegistrationTimeout")));

    assert_eq!(given_up(&joined()), None, "whoever joined is not given up");
}

/// Rows: LIF-049, LIF-053
#[test]
fn lif_049_health_is_written_on_pools_of_ours_that_are_there() {
    let town = launched();
    let mut engine = town.engine();
    engine.decide(town.now);
    let health = |decision: &Decision| {
        decision.actions.iter().filter(|one| one.reason.code == "RegistrationHealth").count()
    };
    engine.observe(town.now, Observation::PoolGone("default".into()));
    let decision = engine.decide(town.now + minutes(15));
    assert_eq!((deletes(&decision), health(&decision)), (Some("RegistrationTimeout"), 0));
    assert!(!engine.cluster().pools.contains_key(&"default".into()));
    // Another pool of its name is not the one that these were made for: they say nothing of it.
    let mut town = launched();
    let second = NodeClaim {
        name: "second".into(),
        provider_id: Some(ProviderId::new("aws:///us-west-2a/i-second")),
        ..(*town.cluster.claims[&name()]).clone()
    };
    town.cluster.put_claim(Arc::new(second));
    let known = |engine: &Engine| {
        let pool = &engine.cluster().pools[&"default".into()];
        pool.conditions.get(PoolCondition::NodeRegistrationHealthy).map(|known| known.status)
    };
    for is_another in [true, false] {
        let mut engine = town.engine();
        engine.decide(town.now);
        if is_another {
            let mut other = pool("default");
            (other.uid, other.created) = ("another".into(), Some(town.now + minutes(1)));
            engine.observe(town.now + minutes(1), Observation::PoolGone("default".into()));
            engine.observe(town.now + minutes(1), Observation::Pool(Arc::new(other)));
        }
        engine.decide(town.now + minutes(1));
        let given_up = reasons(&engine.decide(town.now + minutes(15)));
        assert_eq!(given_up.get("RegistrationTimeout"), Some(&2));
        assert_eq!(known(&engine), Some(if is_another { Unknown } else { False }));
    }

    // A class that is not there leaves the pool unready, and says nothing of its machines.
    town.cluster.classes.clear();
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!(known(&engine), Some(Unknown));
    // A pool of somebody else's class has no status of ours.
    town.change_pool("default", |pool| {
        let class = ClassRef { group: "other.dev".into(), kind: "OtherClass".into(), name: "default".into() };
        Arc::make_mut(&mut pool.template).class = class;
    });
    let mut engine = town.engine();
    for minute in 0..20 {
        let written = engine.decide(town.now + minutes(minute)).actions;
        assert!(!written.iter().any(|one| matches!(one.action, Action::UpdatePool { .. })));
    }
    let cluster = engine.cluster();
    assert!(
        !cluster.pools.contains_key(&"default".into()) && cluster.strangers.pools.contains(&"default".into())
    );
}

/// Rows: LIF-055
#[test]
fn lif_055_a_claim_on_its_way_out_stays_as_ready_as_it_was() {
    for is_ready in [true, false] {
        let mut town = registered();
        let now = town.now;
        if is_ready {
            town.change_claim("n", |claim| {
                claim.conditions.set(ConditionType::Initialized, True, "Initialized", "", now)
            });
        }
        town.change_claim("n", |claim| claim.deleted = Some(now));
        town.cluster.remove_node("n".into());
        let mut engine = town.engine();
        let decision = engine.decide(town.now);
        assert!(decision.actions.iter().any(|one| matches!(one.action, Action::Terminate { .. })));
        assert_eq!(says(&engine, ConditionType::InstanceTerminating), "True InstanceTerminating");
        assert_eq!(claim(&engine).conditions.is_true(ConditionType::Ready), is_ready);
    }
}

/// Rows: LIF-070
#[test]
fn lif_070_claims_and_nodes_of_old_versions_come_to_name_their_class() {
    let key = Symbol::new("karpenter.k8s.aws/ec2nodeclass");
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.node("n", "m5.large");
    town.change_claim("n", |claim| {
        claim.labels.remove(&key);
    });
    town.change_node("n", |node| {
        node.labels.remove(&key);
    });
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!(claim(&engine).labels.get(&key).map(|value| value.as_str()), Some("default"));
    assert_eq!(node(&engine).labels.get(&key).map(|value| value.as_str()), Some("default"));
    echo(&mut engine, town.now);
    let again = reasons(&engine.decide(town.now + seconds(1)));
    assert!(!again.contains_key("Labelled"), "once: {again:?}");
}

/// Rows: LIF-025
#[test]
fn lif_025_a_node_registers_by_what_is_seen_of_it_alone() {
    let mut engine = joined().engine();
    let decision = engine.decide(at(NOW));
    let opens = decision.actions.iter().find_map(|one| match &one.action {
        Action::UpdateNode { node, change } if *node == NodeName::new("n") => Some(change.clone()),
        _ => None,
    });
    let NodeChange { remove_taints, owner, .. } = opens.expect("it opens");
    assert_eq!((remove_taints, owner), (vec![Taint::unregistered()], Some(name())));
    assert_eq!(claim(&engine).node, Some("n".into()));
    assert_eq!(says(&engine, ConditionType::Registered), "True Registered");
}

/// Kubernetes deletes a pod whose node it takes for one with a taint `NoExecute`, and it may hear of the pod before it hears that the taint is gone.
#[test]
fn a_node_that_is_ready_as_it_joins_takes_no_pods_in_the_write_that_lets_them_live_there() {
    let town = joined();
    assert!(town.cluster.nodes.values().all(|node| node.is_ready()));
    let mut engine = town.engine();
    let decision = engine.decide(at(NOW));
    let changes: Vec<&NodeChange> = decision
        .actions
        .iter()
        .filter_map(|one| match &one.action {
            Action::UpdateNode { node, change } if *node == NodeName::new("n") => Some(change),
            _ => None,
        })
        .filter(|change| !change.remove_taints.is_empty())
        .collect();
    let [first, second] = changes.as_slice() else { panic!("two writes: {changes:#?}") };
    assert_eq!(
        (&*first.remove_taints, &*first.add_taints),
        (&[Taint::unregistered()][..], &[Taint::unopened()][..])
    );
    assert_eq!((&*second.remove_taints, second.add_taints.is_empty()), (&[Taint::unopened()][..], true));
    assert_eq!((first.opens(), second.opens()), (false, true));
    assert!(node(&engine).taints.is_empty());
}

/// Rows: LIF-079, LIF-080
#[test]
fn lif_079_a_claim_that_nobody_finds_is_forgotten_and_one_that_is_there_is_not() {
    let made = |decision: &Decision| {
        let claims = decision.actions.iter().filter_map(|one| match &one.action {
            Action::CreateClaim(claim) => Some(claim.clone()),
            _ => None,
        });
        claims.collect::<Vec<_>>()
    };
    let mut town = Town::with(|pool| pool.disruption.consolidate_after = Patience::never());
    town.cluster.put_pod(Arc::new(pod("web", None, shape("web", "1"))));
    let mut engine = town.engine();
    engine.decide(town.now);
    let first = made(&engine.decide(town.now + seconds(1)))[0].clone();
    let through = || Observation::CarriedOut { claims: vec![first.name], nodes: Vec::new() };
    let at = |second: i64| town.now + seconds(second);
    let again = |engine: &mut Engine, until: i64| {
        (2..until).find(|second| !made(&engine.decide(at(*second))).is_empty())
    };
    // It was made and deleted before anybody saw it.
    let mut lost = engine.clone();
    lost.observe(at(1), through());
    assert!(again(&mut lost, 60).is_some_and(|second| second >= 31), "its pod gets another one");
    assert!(!lost.cluster().claims.contains_key(&first.name));
    // It is there.
    let mut seen = engine.clone();
    seen.observe(at(1), through());
    seen.observe(at(20), Observation::Claim(first.clone()));
    assert_eq!(again(&mut seen, 250), None);
    // It has a machine, so it was there: only its news is late.
    let mut bought = engine.clone();
    let instance =
        Instance { claim: Some(first.name), ..instance_of(ProviderId::new("aws:///us-west-2a/i-7"), at(1)) };
    bought.observe(
        at(1),
        Observation::Launched { claim: first.name, instance: instance.clone(), shortage: None },
    );
    bought.decide(at(1));
    bought.observe(at(1), through());
    assert_eq!(again(&mut bought, 250), None);
    bought.observe(at(250), Observation::Instances([instance].into()));
    let ended = bought.decide(at(250)).actions;
    assert!(!ended.iter().any(|one| matches!(one.action, Action::Terminate { .. })), "{ended:#?}");
    // It is gone, which is told once.
    let mut gone = engine.clone();
    gone.observe(at(20), Observation::Claim(first.clone()));
    gone.observe(at(21), Observation::ClaimGone(first.name));
    gone.observe(at(22), through());
    assert!(again(&mut gone, 60).is_some());
}
