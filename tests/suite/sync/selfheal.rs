//! Drift: put back when it may be, reported when not, and not for ever.

use provisor::gitops::policy::{BlastLimits, PruneMode, SyncMode, SyncPolicy};
use provisor::gitops::sync::SyncState;
use serde_json::json;

use super::bench::*;

fn healing() -> Bench {
    let mut bench = Bench::new(SyncPolicy { mode: SyncMode::AutoHeal, ..policy() });
    bench.push(&commit(1, [pool("web"), pool("batch")]));
    bench.run_for(60);
    bench.writes();
    bench.said.clear();
    bench
}

fn has_condition(bench: &Bench, kind: &str, words: &[&str]) -> bool {
    let status = bench.sync.status(bench.now);
    status
        .conditions
        .iter()
        .any(|condition| condition.kind == kind && words.iter().all(|word| condition.message.contains(word)))
}

#[test]
fn syn_032_an_edit_by_hand_is_put_back_within_five_seconds() {
    let mut bench = healing();
    bench.server.edit("web", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.run();
    assert!(bench.writes().is_empty(), "waits a moment for more of the same");
    bench.run_for(5);
    assert_eq!(bench.writes(), ["apply NodePool/web"], "and leaves what did not drift");
    assert_eq!(bench.server.get("web")["spec"]["limits"]["cpu"], "100");
    assert!(
        bench.has_said("spec.limits.cpu") || bench.has_said("limits.cpu  1 → 100: changed by kubectl-edit")
    );
    assert!(bench.has_said("kubectl-edit"));
}

#[test]
fn healing_slows_down() {
    let mut bench = healing();
    let mut healed_at = Vec::new();
    for round in 0..4 {
        bench.server.edit("web", "/spec/weight", json!(round + 1), "kubectl-edit");
        bench.server.edit("web", &format!("/spec/limits/r{round}"), json!("1"), "kubectl-edit");
        let start = bench.now;
        while bench.server.writes.is_empty() {
            bench.run_for(1);
        }
        bench.writes();
        healed_at.push(bench.now.duration_since(start).as_secs());
    }
    assert_eq!(healed_at[0], 1);
    assert!(healed_at.windows(2).all(|pair| pair[0] <= pair[1]), "{healed_at:?}");
    assert!(healed_at[3] >= 18, "{healed_at:?}");
}

#[test]
fn syn_033_a_field_that_is_changed_back_again_and_again_is_left_alone_for_an_hour() {
    let mut bench = healing();
    for round in 0..3 {
        bench.server.edit("web", "/spec/limits/cpu", json!(format!("{}", round + 1)), "other-controller");
        bench.run_for(60);
        assert_eq!(bench.writes(), ["apply NodePool/web"], "round {round}");
    }
    bench.server.edit("web", "/spec/limits/cpu", json!("7"), "other-controller");
    bench.run_for(600);
    assert!(bench.writes().is_empty());
    assert!(has_condition(&bench, "DriftFight", &["spec.limits.cpu", "other-controller"]));
    assert_eq!(bench.sync.status(bench.now).sync, SyncState::OutOfSync);
    // Everything else is healed as before.
    bench.server.edit("web", "/spec/template/spec/expireAfter", json!("1h"), "kubectl-edit");
    bench.run_for(300);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    let live = bench.server.get("web");
    assert_eq!(
        (&live["spec"]["limits"]["cpu"], &live["spec"]["template"]["spec"]["expireAfter"]),
        (&json!("7"), &json!("720h"))
    );
    bench.run_for(3600);
    assert_eq!(bench.server.get("web")["spec"]["limits"]["cpu"], "100", "the hour is over");
}

#[test]
fn syn_007_a_webhook_that_always_differs_is_named_and_not_fought() {
    let mut bench = Bench::new(SyncPolicy { mode: SyncMode::AutoHeal, ..policy() });
    bench.server.webhook = Some(|live| {
        live["spec"]["limits"]["cpu"] = json!("1");
        let fields = json!({ "f:spec": { "f:limits": { "f:cpu": {} } } });
        let entry = json!({ "manager": "cost-webhook", "operation": "Update", "time": "2026-03-02T12:00:09Z", "fieldsV1": fields });
        live["metadata"]["managedFields"].as_array_mut().expect("kept").push(entry);
    });
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(1800);
    let written = bench.writes().len();
    assert!(written <= 4, "one sync and three attempts to heal, not {written}");
    assert!(has_condition(&bench, "UnstableDiff", &["NodePool/web", "spec.limits.cpu", "cost-webhook"]));
    bench.run_for(600);
    assert!(bench.writes().is_empty());
}

#[test]
fn what_never_lasts_is_tried_ever_more_slowly() {
    // Something takes the mark of a retiring pool off again and again.
    let mut bench = Bench::new(SyncPolicy {
        prune: PruneMode::Retire,
        limits: BlastLimits { nodes_percent: 100, ..BlastLimits::default() },
        ..policy()
    });
    bench.push(&commit(1, [pool("web"), pool("old")]));
    bench.run_for(60);
    bench.writes();
    bench.fleet = fleet([("old", 2)]);
    bench.server.webhook = Some(|live| {
        live["metadata"]["annotations"].as_object_mut().expect("a map").remove("provisor.dev/retire");
    });
    bench.push(&commit(2, [pool("web")]));
    bench.run_for(1800);
    let written = bench.writes().len();
    assert!((2..=12).contains(&written), "{written} writes in half an hour");
}

#[test]
fn syn_036_without_self_heal_drift_is_reported_and_left() {
    let mut bench = Bench::new(policy());
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(60);
    bench.writes();
    bench.server.edit("web", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.run_for(3600);
    assert!(bench.writes().is_empty());
    assert!(bench.has_said("Drifted: NodePool/web limits.cpu  1 → 100: changed by kubectl-edit"));
    assert_eq!(bench.sync.status(bench.now).sync, SyncState::OutOfSync);
    // The next commit puts all of it right.
    bench.push(&commit(2, [with(pool("web"), "/spec/weight", json!(2))]));
    bench.run_for(60);
    assert_eq!(bench.server.get("web")["spec"]["limits"]["cpu"], "100");
}

#[test]
fn a_deleted_pool_comes_back_and_healing_never_prunes() {
    let mut bench = healing();
    let web = bench.server.named("web");
    bench.server.objects.remove(&web);
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    assert!(bench.has_said("NodePool/web is gone"));
}

#[test]
fn the_record_of_a_former_life_tells_drift_from_a_new_wish() {
    let mut first = Bench::new(policy());
    first.push(&commit(1, [pool("web")]));
    first.run_for(60);
    first.server.edit("web", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    let stored = first.sync.inventory().cloned();
    let mut bench = Bench::new(policy());
    bench.sync = provisor::gitops::sync::Sync::new("prod", policy(), stored);
    bench.server = first.server;
    bench.writes();
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(600);
    assert!(bench.writes().is_empty(), "self-heal is off, restart or not");
}
