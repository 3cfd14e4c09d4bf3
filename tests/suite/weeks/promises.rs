//! Promises can be broken: an engine with one bug planted into what it does is found out.
//!
//! The bugs sit between the engine and the world and spoil its decisions, so that nothing of them can be shipped. Every one is
//! played on a few weeks; it has to be found in one of them, as the promise that it breaks.

use std::collections::BTreeSet;

use provisor::capacity::decision::Planned;
use provisor::model::action::{Action, ClaimChange};
use provisor::model::claim::{ConditionStatus, ConditionType, NodeClaim};
use provisor::model::label::annotation;
use provisor::model::name::{ClaimName, ProviderId};
use provisor::model::pod::Pod;
use provisor::simulator::invariants::Promise;
use provisor::simulator::trial::Trial;
use provisor::simulator::world::World;

/// Weeks in which a bug is looked for.
const SEEDS: u64 = 40;

type Bug = fn(&World, &mut Vec<Planned>, &mut Memory);

/// What a bug remembers.
#[derive(Default)]
struct Memory {
    claims: BTreeSet<ClaimName>,
    count: u32,
}

/// Plays weeks with `bug` until one breaks something; that has to be one of `promises`.
fn expect_found(bug: Bug, promises: &[Promise]) {
    let mut met = Vec::new();
    for seed in 1..=SEEDS {
        let mut memory = Memory::default();
        let outcome =
            Trial::drawn(seed).play_spoiled(false, &mut |world, actions| bug(world, actions, &mut memory));
        if let Some(broken) = outcome.broken {
            met.push(format!("seed {seed}: {}: {}", broken.promise, broken.what));
            assert!(promises.contains(&broken.promise), "{met:#?}");
            return;
        }
    }
    panic!("the bug was not found in {SEEDS} weeks");
}

fn planned(action: Action) -> Planned {
    Planned::new(action, "Bug", "a bug")
}

#[test]
fn a_touched_stranger_is_found() {
    expect_found(
        |world, actions, _| {
            let strangers =
                world.objects().nodes.values().filter(|node| node.name.as_str().contains("stranger"));
            // A list of nodes that forgets to ask whose they are.
            if actions.iter().any(|one| matches!(one.action, Action::DeleteNode { .. })) {
                actions.extend(strangers.map(|node| planned(Action::DeleteNode { node: node.name })));
            }
        },
        &[Promise::LeavesOthersAlone],
    );
}

#[test]
fn a_machine_of_somebody_else_that_is_ended_is_found() {
    expect_found(
        |_, actions, memory| {
            for one in actions.iter_mut() {
                if let Action::Terminate { instance } = &mut one.action {
                    memory.count += 1;
                    if memory.count == 3 {
                        *instance = ProviderId::new("aws:///us-west-2a/i-somebodys");
                    }
                }
            }
        },
        &[Promise::LeavesOthersAlone],
    );
}

#[test]
fn a_budget_that_is_exceeded_is_found() {
    expect_found(
        |world, actions, _| {
            // Whoever may take one takes another of the same pool with it.
            let objects = world.objects();
            let chosen = actions.iter().find_map(|one| match &one.action {
                Action::DeleteClaim { claim }
                    if one.reason.code == "Underutilized" || one.reason.code == "Empty" =>
                {
                    objects.claims.get(claim).cloned()
                }
                _ => None,
            });
            let Some(chosen) = chosen else { return };
            let pool = chosen.pool().expect("it has a pool");
            for other in
                objects.claims_of(pool).filter(|other| other.deleted.is_none() && other.name != chosen.name)
            {
                let mut conditions = other.conditions.clone();
                let now = world.now();
                conditions.set(
                    ConditionType::DisruptionReason,
                    ConditionStatus::True,
                    "Drifted",
                    "Drifted",
                    now,
                );
                let change = ClaimChange { conditions: Some(conditions), ..ClaimChange::default() };
                actions.push(planned(Action::UpdateClaim { claim: other.name, change }));
                actions.push(planned(Action::DeleteClaim { claim: other.name }));
            }
        },
        &[Promise::KeepsDisruptionBudgets],
    );
}

#[test]
fn a_node_that_goes_before_its_replacement_is_ready_is_found() {
    expect_found(
        |_, actions, _| {
            // Nobody waits for what was bought in its place.
            let started = actions.iter().filter_map(|one| match &one.action {
                Action::UpdateClaim { claim, change }
                    if one.reason.code == "Underutilized"
                        && change.annotations.contains_key(&*annotation::REPLACED_BY) =>
                {
                    Some(planned(Action::DeleteClaim { claim: *claim }))
                }
                _ => None,
            });
            let too_soon: Vec<Planned> = started.collect();
            actions.extend(too_soon);
        },
        &[Promise::MovesOnlyWhatHasAPlace],
    );
}

#[test]
fn a_limit_that_is_exceeded_is_found() {
    expect_found(
        |_, actions, memory| {
            // Everything is bought twice, under two names.
            let doubles: Vec<Planned> = actions
                .iter()
                .filter_map(|one| match &one.action {
                    Action::CreateClaim(claim) => {
                        let name = ClaimName::new(&format!("{}-twin", claim.name));
                        memory.claims.insert(name);
                        let claim = NodeClaim { name, ..(**claim).clone() };
                        Some(planned(Action::CreateClaim(claim.into())))
                    }
                    _ => None,
                })
                .collect();
            actions.extend(doubles);
        },
        &[Promise::KeepsLimits],
    );
}

#[test]
fn a_pod_that_is_deleted_past_its_budget_is_found() {
    expect_found(
        |_, actions, _| {
            for one in actions.iter_mut() {
                if let Action::Evict { pod, uid } = one.action {
                    let grace = jiff::SignedDuration::from_secs(1);
                    one.action = Action::DeletePod { pod, uid, grace };
                }
            }
        },
        &[Promise::ProtectsPods],
    );
}

#[test]
fn a_machine_that_is_ended_before_it_is_drained_is_found() {
    expect_found(
        |world, actions, _| {
            for one in actions.iter_mut() {
                let Action::Evict { pod, .. } = &one.action else { continue };
                let objects = world.objects();
                let of_pod = |pod: &Pod| objects.nodes.get(&pod.node?)?.provider_id;
                if let Some(instance) = objects.pods.get(pod).and_then(|pod| of_pod(pod)) {
                    one.action = Action::Terminate { instance };
                    return;
                }
            }
        },
        &[Promise::DrainsBeforeItEnds],
    );
}

#[test]
fn a_machine_that_is_forgotten_is_found() {
    expect_found(
        |_, actions, _| {
            // The object goes, and the machine was never told to.
            actions.retain(|one| !matches!(one.action, Action::Terminate { .. }));
            for one in actions.iter_mut() {
                if let Action::UpdateClaim { claim, change } = &one.action
                    && change.conditions.as_ref().is_some_and(|now| now.is_true(ConditionType::Drained))
                {
                    one.action = Action::FinalizeClaim { claim: *claim };
                }
            }
        },
        &[Promise::ForgetsNoMachine, Promise::Converges],
    );
}

#[test]
fn a_pod_that_waits_for_nothing_is_found() {
    expect_found(
        |_, actions, memory| {
            // After a while nothing is bought any more.
            memory.count +=
                actions.iter().filter(|one| matches!(one.action, Action::CreateClaim(_))).count() as u32;
            if memory.count > 3 {
                actions.retain(|one| !matches!(one.action, Action::CreateClaim(_)));
            }
        },
        &[Promise::LetsNobodyWait],
    );
}

#[test]
fn an_engine_that_finds_no_rest_is_found() {
    expect_found(
        |world, actions, memory| {
            // Every day a node that is not used much is closed and opened again.
            let day = (world.now().as_second() / 86_400) as u32;
            if memory.count < day {
                memory.count = day;
                let ours = world.objects().claims.values().find(|claim| claim.deleted.is_none());
                actions.extend(ours.map(|claim| planned(Action::DeleteClaim { claim: claim.name })));
            }
        },
        &[Promise::ComesToRest],
    );
}

#[test]
fn what_a_crash_leaves_behind_is_found() {
    expect_found(
        |_, actions, _| {
            // Taints of commands that were taken back stay.
            for one in actions.iter_mut() {
                if let Action::UpdateNode { change, .. } = &mut one.action {
                    change.remove_taints.retain(|taint| &*taint.key != "karpenter.sh/disrupted");
                }
            }
            // So do nodes whose machine is gone.
            actions.retain(|one| !matches!(one.action, Action::FinalizeNode { .. }));
        },
        &[Promise::LeaksNothing, Promise::Converges, Promise::LetsNobodyWait],
    );
}

#[test]
fn claims_that_never_go_are_found() {
    expect_found(
        |_, actions, _| actions.retain(|one| !matches!(one.action, Action::FinalizeClaim { .. })),
        &[Promise::Converges],
    );
}
