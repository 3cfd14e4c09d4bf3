//! Carrying a plan out: one object after another, failures, retries, waiting, stopping, status.

use provisor::gitops::plan::Consent;
use provisor::gitops::policy::{SyncMode, SyncPolicy};
use provisor::gitops::sync::{GitEvent, Health, Outcome, Phase, Rollout, SyncAction, SyncRequest, SyncState};
use provisor::gitops::window::Windows;
use serde_json::json;

use super::bench::*;

fn suspended(bench: &mut Bench, until: Option<jiff::Timestamp>) {
    let event = GitEvent::Suspended { reason: "release freeze".into(), actor: "ada".into(), until };
    bench.sync.observe(bench.now, event);
}

#[test]
fn syn_001_a_new_pool_is_created_once_and_tracked() {
    let mut bench = Bench::new(policy());
    bench.push(&commit(1, [class("default")]));
    bench.run_for(60);
    bench.writes();
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.look();
    let decision = bench.decide();
    let [SyncAction::Apply { object, uid, .. }] = &decision.actions[..] else { panic!("one write") };
    assert_eq!((object.to_string().as_str(), uid), ("NodePool/web", &None));
    assert!(decision.reasons.iter().any(|reason| reason.message.contains("environments/prod/web.toml:1:1")));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    let live = bench.server.get("web");
    assert_eq!(live["metadata"]["managedFields"][0]["manager"], "provisor");
    assert_eq!(
        live["metadata"]["annotations"]["provisor.dev/tracking-id"],
        "main:prod:karpenter.sh/NodePool:/web"
    );
    assert_eq!(live["spec"]["template"]["metadata"], json!(null), "nothing of ours in the template");
    let entry = &bench.sync.inventory().expect("kept").entries[&bench.server.named("web")];
    assert_eq!(json!(&*entry.uid), live["metadata"]["uid"]);
    let status = bench.sync.status(bench.now);
    assert_eq!((status.sync, status.health), (SyncState::Synced, Health::Healthy));
    assert_eq!(status.observed_revision.as_deref(), Some(&*format!("main@sha1:{}", revision(2).commit)));
}

#[test]
fn classes_come_before_pools() {
    let mut bench = Bench::new(policy());
    bench.push(&commit(1, [pool("web"), class("default")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply EC2NodeClass/default", "apply NodePool/web"]);
}

#[test]
fn syn_027_a_wave_that_never_becomes_ready_ends_the_operation() {
    let mut bench = Bench::new(policy());
    bench.server.never_ready.insert("canary".into());
    bench.push(&commit(1, [pool("canary"), annotated(pool("web"), "provisor.dev/wave", "1")]));
    bench.run_for(599);
    assert_eq!(bench.writes(), ["apply NodePool/canary"]);
    assert!(bench.sync.history().is_empty(), "still waiting");
    bench.run_for(3600);
    assert!(bench.writes().is_empty());
    let entry = &bench.sync.history()[0];
    assert_eq!(entry.phase, Phase::PartiallySynced);
    assert!(
        entry.summary.contains("waited 600 s in vain: NodePool/canary is not ready yet"),
        "{}",
        entry.summary
    );
    assert_eq!(entry.objects[1].result, "notStarted");
    let status = bench.sync.status(bench.now);
    assert_eq!(status.sync, SyncState::PartiallySynced);
    assert_eq!(status.last_applied_revision, None);
}

#[test]
fn syn_028_a_denied_object_fails_alone_and_is_not_tried_again() {
    let mut bench = Bench::new(policy());
    bench.server.denied.insert("p2".into());
    let pools = ["p0", "p1", "p2", "p3", "p4"].map(pool);
    bench.push(&commit(1, pools.into_iter().chain([annotated(pool("later"), "provisor.dev/wave", "1")])));
    bench.run_for(3600);
    let written = ["p0", "p1", "p3", "p4"].map(|name| format!("apply NodePool/{name}"));
    assert_eq!(bench.writes(), written);
    let status = bench.sync.status(bench.now);
    assert_eq!(status.sync, SyncState::PartiallySynced);
    let rejected = status.conditions.iter().find(|condition| condition.kind == "Rejected").expect("listed");
    assert!(rejected.message.contains("NodePool/p2: admission webhook denied"), "{}", rejected.message);
    // A commit that mends it is applied at once.
    bench.server.denied.clear();
    bench.push(&commit(
        2,
        ["p0", "p1", "p2", "p3", "p4"].map(|name| with(pool(name), "/spec/weight", json!(1))),
    ));
    bench.run_for(60);
    assert_eq!(bench.writes().len(), 5);
}

#[test]
fn syn_029_transient_failures_are_retried_ever_more_slowly_and_not_for_ever() {
    let mut bench = Bench::new(policy());
    let busy = || Outcome::Transient("429 Too Many Requests".into());
    bench.server.failures.insert("web".into(), (0..100).map(|_| busy()).collect());
    bench.push(&commit(1, [pool("web")]));
    let mut waits = Vec::new();
    loop {
        let decision = bench.run();
        let Some(wake_at) = decision.wake_at else { break };
        waits.push(wake_at.duration_since(bench.now).as_secs());
        bench.now = wake_at;
    }
    assert_eq!(waits, [5, 10, 20, 40, 80]);
    assert_eq!(bench.server.failures["web"].len(), 94, "one attempt and five retries");
    let status = bench.sync.status(bench.now);
    let failed =
        status.conditions.iter().find(|condition| condition.kind == "OperationFailed").expect("said");
    assert!(failed.message.contains("429 Too Many Requests"), "{}", failed.message);
    assert_eq!(bench.sync.history()[0].count, 6);
}

#[test]
fn syn_030_a_retry_uses_the_newest_commit_at_once() {
    let mut bench = Bench::new(policy());
    bench.server.failures.insert("web".into(), vec![Outcome::Transient("503".into())]);
    bench.push(&commit(1, [pool("web")]));
    bench.run();
    bench.push(&commit(2, [with(pool("web"), "/spec/weight", json!(2))]));
    bench.run();
    assert_eq!(bench.writes(), ["apply NodePool/web"], "no waiting for the old attempt's pause");
    assert_eq!(bench.server.get("web")["spec"]["weight"], 2);
}

#[test]
fn syn_031_a_failed_commit_is_not_tried_for_ever_and_a_person_can_try_it_again() {
    let mut bench = Bench::new(policy());
    let busy = || Outcome::Transient("timeout".into());
    bench.server.failures.insert("web".into(), (0..6).map(|_| busy()).collect());
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(24 * 3600);
    for _ in 0..20 {
        bench.push(&commit(1, [pool("web")]));
        bench.run_for(60);
    }
    assert!(bench.writes().is_empty());
    assert!(bench.server.failures["web"].is_empty());
    bench.sync.observe(
        bench.now,
        GitEvent::Requested(SyncRequest { actor: "ada".into(), ..SyncRequest::default() }),
    );
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);

    // The cluster's change alone is reason enough to try again, if the failure may have passed.
    let mut bench = Bench::new(policy());
    bench.server.failures.insert("web".into(), (0..6).map(|_| busy()).collect());
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(3600);
    bench.server.put(&pool("another"), "kubectl-create", "Update");
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
}

#[test]
fn a_new_commit_takes_the_place_of_one_that_still_waits() {
    let mut bench = Bench::new(policy());
    bench.server.never_ready.insert("canary".into());
    bench.push(&commit(1, [pool("canary"), annotated(pool("web"), "provisor.dev/wave", "1")]));
    bench.run_for(30);
    bench.push(&commit(2, [pool("canary"), pool("web")]));
    bench.run_for(30);
    assert_eq!(bench.writes(), ["apply NodePool/canary", "apply NodePool/web"]);
    let phases: Vec<_> = bench.sync.history().iter().map(|entry| entry.phase).collect();
    assert_eq!(phases, [Phase::Superseded, Phase::Succeeded]);
}

#[test]
fn a_write_without_an_answer_counts_as_interrupted() {
    let mut bench = Bench::new(policy());
    bench.push(&commit(1, [pool("web")]));
    bench.look();
    let decision = bench.sync.decide(bench.now);
    assert_eq!(decision.actions.len(), 1);
    assert!(bench.sync.decide(bench.now).actions.is_empty(), "one at a time");
    bench.now = bench.now.checked_add(seconds(121)).expect("in range");
    bench.run_for(10);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    assert_eq!(bench.sync.history()[0].phase, Phase::Interrupted);
}

#[test]
fn syn_043_a_suspended_environment_writes_nothing_and_goes_on_once_afterwards() {
    let mut bench = Bench::new(SyncPolicy { mode: SyncMode::AutoHeal, ..policy() });
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(60);
    bench.writes();
    let until = bench.now.checked_add(seconds(3600)).expect("in range");
    suspended(&mut bench, Some(until));
    bench.server.edit("web", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.push(&commit(2, [pool("web"), pool("batch")]));
    bench.run_for(1800);
    bench.push(&commit(3, [pool("web"), with(pool("batch"), "/spec/weight", json!(3))]));
    bench.run_for(1700);
    assert!(bench.writes().is_empty());
    let status = bench.sync.status(bench.now);
    assert_eq!(status.health, Health::Missing, "worse than suspended: batch is not there");
    assert_eq!(status.observed_revision.as_deref(), Some(&*format!("main@sha1:{}", revision(3).commit)));
    let before = bench.sync.history().len();
    bench.run_for(200);
    assert_eq!(bench.writes(), ["apply NodePool/batch", "apply NodePool/web"]);
    assert_eq!(bench.sync.history().len(), before + 1);
}

#[test]
fn syn_050_requests_for_one_environment_run_one_after_the_other() {
    let manual = SyncPolicy { mode: SyncMode::Manual, ..policy() };
    let mut bench = Bench::new(manual.clone());
    bench.push(&commit(1, [pool("a"), pool("b"), pool("c")]));
    bench.run_for(60);
    assert!(bench.writes().is_empty(), "a person starts each sync");
    let request =
        |actor: &str| GitEvent::Requested(SyncRequest { actor: actor.into(), ..SyncRequest::default() });
    bench.sync.observe(bench.now, request("ada"));
    assert_eq!(bench.decide().actions.len(), 1);
    bench.sync.observe(bench.now, request("grace"));
    bench.run_for(60);
    assert_eq!(bench.writes().len(), 3, "each object once");
    assert_eq!(bench.sync.history().len(), 1, "the second found nothing left to do");
    // Another environment is another value: nothing of one holds the other.
    let mut other = Bench::new(manual);
    other.push(&commit(1, [pool("a")]));
    other.sync.observe(other.now, request("ada"));
    other.run_for(60);
    assert_eq!(other.writes().len(), 1);
}

#[test]
fn syn_052_a_cancelled_operation_ends_after_the_object_under_way() {
    let mut bench = Bench::new(policy());
    bench.push(&commit(1, [pool("a"), pool("b"), pool("c")]));
    bench.look();
    bench.decide();
    bench.sync.observe(bench.now, GitEvent::Cancelled);
    bench.run_for(3600);
    assert_eq!(bench.writes(), ["apply NodePool/a"]);
    let entry = &bench.sync.history()[0];
    assert_eq!(entry.phase, Phase::Cancelled);
    let results: Vec<_> = entry.objects.iter().map(|report| report.result).collect();
    assert_eq!(results, ["done", "notStarted", "notStarted"]);
}

#[test]
fn syn_053_a_pool_whose_controller_lags_behind_is_never_healthy() {
    let mut bench = Bench::new(policy());
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(60);
    assert_eq!(bench.sync.status(bench.now).health, Health::Healthy);
    let web = bench.server.named("web");
    let live = bench.server.objects.get_mut(&web).expect("there");
    live["metadata"]["generation"] = json!(9);
    bench.run();
    assert_eq!(bench.sync.status(bench.now).health, Health::Progressing);
}

#[test]
fn syn_054_the_worst_child_decides_health() {
    let mut bench = Bench::new(policy());
    bench.push(&commit(1, [pool("web"), pool("batch")]));
    bench.run_for(60);
    suspended(&mut bench, None);
    bench.run();
    assert_eq!(bench.sync.status(bench.now).health, Health::Suspended);
    let web = bench.server.named("web");
    bench.server.objects.remove(&web);
    bench.run();
    assert_eq!(bench.sync.status(bench.now).health, Health::Missing);
    let batch = bench.server.named("batch");
    bench.server.objects.get_mut(&batch).expect("there")["status"] =
        json!({ "conditions": [{ "type": "Ready", "status": "False", "message": "no such class" }] });
    bench.run();
    let status = bench.sync.status(bench.now);
    assert_eq!(status.health, Health::Degraded);
    assert_eq!(status.objects[0].message, "no such class");
}

#[test]
fn syn_055_a_roll_is_counted_while_the_environment_is_synced() {
    let mut bench = Bench::new(policy());
    bench.fleet = fleet([("web", 12)]);
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(60);
    assert_eq!(bench.sync.status(bench.now).rollout, Rollout::Complete);
    let mark = |bench: &mut Bench, drifted: usize| {
        bench.fleet = fleet([("web", 12)]);
        let nodes = bench.fleet.nodes_by_pool.get_mut("web").expect("made");
        nodes.iter_mut().take(drifted).for_each(|node| node.is_drifted = true);
        bench.run();
    };
    mark(&mut bench, 12);
    let started = bench.now;
    bench.now = started.checked_add(seconds(300)).expect("in range");
    mark(&mut bench, 9);
    let status = bench.sync.status(bench.now);
    let eta = started.checked_add(seconds(1200)).ok();
    assert_eq!(status.rollout, Rollout::Rolling { done: 3, total: 12, eta });
    assert_eq!(status.rollout.to_string(), "Rolling 3/12");
    assert_eq!((status.sync, status.health), (SyncState::Synced, Health::Progressing));
    mark(&mut bench, 0);
    assert_eq!(bench.sync.status(bench.now).rollout, Rollout::Complete);
}

#[test]
fn syn_056_a_budget_of_zero_stalls_the_rollout() {
    let mut bench = Bench::new(policy());
    bench.fleet = fleet([("web", 3)]);
    bench.fleet.nodes_by_pool.get_mut("web").expect("made")[0].is_drifted = true;
    let budgets = json!([{ "nodes": "50%" }, { "nodes": "0", "reasons": ["Drifted"] }]);
    bench.push(&commit(1, [with(pool("web"), "/spec/disruption/budgets", budgets)]));
    bench.run_for(60);
    let rollout = bench.sync.status(bench.now).rollout;
    assert_eq!(rollout.to_string(), "Stalled (the budget of web lets no drifted node go)");
}

#[test]
fn what_was_planned_by_rules_that_hold_no_more_is_not_finished() {
    let mut bench = Bench::new(policy());
    bench.push(&commit(1, [pool("a"), pool("b"), pool("c")]));
    bench.look();
    assert_eq!(bench.decide().actions.len(), 1);
    // Windows are asked before each step, so others are no reason to begin anew.
    let windows = policy().with_windows(Windows::default());
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(windows));
    assert_eq!(bench.decide().actions.len(), 1);
    assert!(bench.sync.history().is_empty());
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(SyncPolicy { read_only: true, ..policy() }));
    bench.run_for(60);
    let written = bench.writes().len();
    assert!((1..=2).contains(&written), "{written}: no more than was under way");
    assert_eq!(bench.sync.history()[0].phase, Phase::Superseded);
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(policy()));
    bench.run_for(60);
    assert_eq!(written + bench.writes().len(), 3);
}

#[test]
fn a_confirmed_plan_that_is_stale_fails_and_writes_nothing() {
    let mut bench = Bench::new(SyncPolicy { mode: SyncMode::Manual, ..policy() });
    bench.push(&commit(1, [pool("web")]));
    bench.run();
    let seen = bench.sync.plan().expect("planned").hash.clone();
    assert!(seen.is_named_by(seen.short()) && !seen.is_named_by("abc"));
    bench.push(&commit(2, [pool("web"), pool("batch")]));
    let consent = Consent { plan: Some(seen), override_protection: None };
    bench.sync.observe(bench.now, GitEvent::Requested(SyncRequest { consent, ..SyncRequest::default() }));
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    let status = bench.sync.status(bench.now);
    assert!(status.conditions.iter().any(|condition| condition.reason == "StaleConfirmation"));
}

#[test]
fn the_same_events_give_the_same_decisions() {
    let story = || {
        let mut bench = Bench::new(SyncPolicy { mode: SyncMode::AutoHeal, ..policy() });
        bench.fleet = fleet([("a", 3), ("b", 2)]);
        bench.server.failures.insert("b".into(), vec![Outcome::Transient("503".into())]);
        bench.push(&commit(1, [pool("b"), class("default"), pool("a")]));
        bench.run_for(100);
        bench.server.edit("a", "/spec/limits/cpu", json!("1"), "kubectl-edit");
        bench.run_for(100);
        let status = serde_json::to_string(&bench.sync.status(bench.now)).expect("serialises");
        (bench.said.join("\n"), bench.writes(), status)
    };
    assert_eq!(story(), story());
}
