//! What left Git: guarded, limited, emptied before it is deleted, last of all.

use std::sync::Arc;

use provisor::gitops::live::{Fleet, Inventory, LiveState};
use provisor::gitops::plan::{ChangeAction, Consent, PlanInput, RenderProof, Verdict, plan_sync};
use provisor::gitops::policy::{BlastLimits, PruneMode, RepositoryRules, SyncPolicy};
use provisor::gitops::sync::{GitEvent, Outcome, SyncRequest, SyncState};
use provisor::gitops::tracking::Owner;
use serde_json::{Value, json};

use super::bench::*;

fn pruning() -> SyncPolicy {
    let limits = BlastLimits { pools_max: 100, nodes_percent: 100, ..BlastLimits::default() };
    SyncPolicy { prune: PruneMode::Retire, limits, ..policy() }
}

/// Pools `web` and `old` as applied, `old` gone from the next commit.
fn leaving(old: Value, fleet: Fleet) -> (Arc<provisor::gitops::desired::DesiredState>, LiveState) {
    let before = commit(1, [class("default"), pool("web"), old]);
    (commit(2, [class("default"), pool("web")]), LiveState::of_commit(&before, "main", fleet))
}

/// A bench on which commit 1 with `manifests` was applied.
fn applied(policy: SyncPolicy, manifests: impl IntoIterator<Item = Value>) -> Bench {
    let mut bench = Bench::new(policy);
    bench.push(&commit(1, manifests));
    bench.run_for(60);
    bench.writes();
    bench
}

#[test]
fn syn_011_a_copy_of_our_object_is_left_alone_and_not_counted() {
    let mut bench = applied(pruning(), [class("default"), pool("web")]);
    let copy = annotated(pool("copy"), "provisor.dev/tracking-id", "main:prod:karpenter.sh/NodePool:/web");
    bench.server.put(&copy, "kubectl-create", "Update");
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    let plan = bench.sync.plan().expect("planned");
    assert!(plan.is_in_sync());
    assert_eq!(&*plan.skipped[0].object.name, "copy");
}

#[test]
fn syn_012_an_object_made_anew_by_somebody_else_is_not_deleted() {
    let mut bench = applied(pruning(), [class("default"), pool("web"), pool("old")]);
    let again = bench.server.get("old").clone();
    let object = bench.server.named("old");
    bench.server.objects.remove(&object);
    bench.server.put(&again, "kubectl-create", "Update");
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    assert_eq!(code(bench.sync.plan().expect("planned"), "old"), "Recreated");
    assert!(bench.has_said("Recreated: refused to delete NodePool/old"));
}

/// All of `objects` are applied, and the record of it is lost.
fn without_record(objects: impl IntoIterator<Item = Value>) -> Bench {
    let first = applied(pruning(), objects);
    let mut bench = Bench::new(pruning());
    bench.server = first.server;
    bench.server.writes.clear();
    bench
}

#[test]
fn syn_013_a_lost_record_is_rebuilt_and_nothing_is_removed_before_one_success() {
    let mut bench = without_record([class("default"), pool("web"), pool("old")]);
    bench.push(&commit(2, [class("default"), with(pool("web"), "/spec/weight", json!(5))]));
    bench.look();
    assert!(bench.sync.inventory().expect("rebuilt").is_rebuilt);
    assert_eq!(bench.sync.inventory().expect("rebuilt").entries.len(), 3);
    let decision = bench.decide();
    assert_eq!(code(bench.sync.plan().expect("planned"), "old"), "InventoryRebuilt");
    assert_eq!(decision.actions.len(), 1);
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web", "delete NodePool/old"]);
    assert!(!bench.sync.inventory().expect("kept").is_rebuilt);

    // With nothing to write all is as a sync would leave it.
    let mut bench = without_record([class("default"), pool("web"), pool("old")]);
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.look();
    assert!(bench.sync.inventory().expect("rebuilt").is_rebuilt);
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/old"]);

    // An id that somebody copied is no record of ours.
    let mut bench = without_record([class("default"), pool("web")]);
    let forged =
        annotated(pool("forged"), "provisor.dev/tracking-id", "main:prod:karpenter.sh/NodePool:/forged");
    bench.server.put(&forged, "kubectl", "Update");
    bench.push(&commit(2, [class("default"), with(pool("web"), "/spec/weight", json!(5))]));
    bench.run_for(3600);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    assert_eq!(code(bench.sync.plan().expect("planned"), "forged"), "NotInInventory");

    // Nor is anything removed while something wanted is refused, though something else was written.
    let mut bench = without_record([class("default"), pool("web"), pool("old")]);
    let mut theirs = pool("theirs");
    theirs["metadata"]["annotations"] = json!({});
    bench.server.put(&theirs, "kubectl", "Update");
    let web = with(pool("web"), "/spec/weight", json!(5));
    bench.push(&commit(2, [class("default"), web, with(pool("theirs"), "/spec/weight", json!(5))]));
    bench.run_for(3600);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    assert_eq!(code(bench.sync.plan().expect("planned"), "theirs"), "Unowned");

    // Or could not be written.
    let mut bench = without_record([class("default"), pool("web"), pool("old")]);
    bench.server.denied.insert("web".into());
    bench.push(&commit(2, [class("default"), with(pool("web"), "/spec/weight", json!(5))]));
    bench.run_for(3600);
    assert!(bench.writes().is_empty());

    let (desired, mut live) = leaving(pool("old"), Fleet::default());
    live.inventory = None;
    assert_eq!(code(&plan(&desired, &live, &pruning()), "old"), "InventoryLost");
}

#[test]
fn syn_013_the_record_survives_as_json() {
    let bench = applied(pruning(), [class("default"), pool("web")]);
    let inventory = bench.sync.inventory().expect("kept");
    let text = serde_json::to_string(inventory).expect("writes");
    assert_eq!(serde_json::from_str::<Inventory>(&text).expect("reads"), *inventory);
}

#[test]
fn syn_014_without_prune_what_left_git_stays_and_is_reported() {
    let mut bench = applied(policy(), [class("default"), pool("web"), pool("old")]);
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    let status = bench.sync.status(bench.now);
    assert_eq!(status.sync, SyncState::OutOfSync);
    assert!(status.conditions.iter().any(|condition| condition.message.contains("requires prune")));
}

#[test]
fn syn_015_an_empty_render_removes_nothing() {
    let mut bench = applied(pruning(), [class("default"), pool("web")]);
    bench.push(&commit(2, []));
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    assert_eq!(code(bench.sync.plan().expect("planned"), "web"), "EmptyRender");
    assert_eq!(bench.sync.status(bench.now).sync, SyncState::Blocked);

    // Allowed by the cluster's configuration, it still takes a person.
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(SyncPolicy { allow_empty: true, ..pruning() }));
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    let plan = bench.sync.plan().expect("planned").clone();
    assert!(matches!(change(&plan, "web").verdict, Verdict::NeedsConfirmation { .. }));
    let consent = Consent { plan: Some(plan.hash.clone()), override_protection: None };
    bench.sync.observe(bench.now, GitEvent::Requested(SyncRequest { consent, ..SyncRequest::default() }));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/web", "delete EC2NodeClass/default"]);
}

#[test]
fn syn_016_too_many_removals_wait_for_a_person_and_additions_do_not() {
    let names: Vec<String> = (0..10).map(|index| format!("pool-{index}")).collect();
    let all = names.iter().map(|name| pool(name));
    let limits = BlastLimits { nodes_percent: 100, ..BlastLimits::default() };
    let mut bench = applied(SyncPolicy { limits, ..pruning() }, all);
    bench.push(&commit(2, [pool("pool-0"), pool("added")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/added"]);
    assert_eq!(code(bench.sync.plan().expect("planned"), "pool-7"), "PruneNeedsConfirmation");

    // Two of ten are within the limit.
    let kept: Vec<Value> = names[..8].iter().map(|name| pool(name)).collect();
    bench.push(&commit(3, kept.into_iter().chain([pool("added")])));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/pool-8", "delete NodePool/pool-9"]);
}

#[test]
fn syn_016_removals_are_limited_by_nodes_and_cores_too() {
    let size = |old: usize, limits: BlastLimits| {
        let (desired, live) = leaving(pool("old"), fleet([("web", 90), ("old", old)]));
        let plan = plan(&desired, &live, &SyncPolicy { limits, ..pruning() });
        change(&plan, "old").verdict.clone()
    };
    assert_eq!(size(10, BlastLimits::default()), Verdict::Proceed);
    let Verdict::NeedsConfirmation { message, .. } = size(11, BlastLimits::default()) else {
        panic!("eleven of 101 nodes are more than a tenth");
    };
    assert_eq!(message, "the plan removes 11 of 101 running nodes; the limit is 10 %");
    let Verdict::NeedsConfirmation { message, .. } =
        size(10, BlastLimits { nodes_max: Some(5), ..BlastLimits::default() })
    else {
        panic!("ten nodes are more than five");
    };
    assert_eq!(message, "the plan removes 10 running nodes; the limit is 5");
}

#[test]
fn syn_017_a_broken_commit_removes_and_changes_nothing() {
    let mut bench = applied(pruning(), [class("default"), pool("web"), pool("old")]);
    let errors = vec!["environments/prod.toml:3:1: unknown field `limts`".into()];
    bench.sync.observe(bench.now, GitEvent::RenderFailed { revision: revision(2), errors });
    bench.server.edit("web", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.run_for(600);
    assert!(bench.writes().is_empty());
    let status = bench.sync.status(bench.now);
    assert_eq!(status.sync, SyncState::Blocked);
    assert!(status.conditions[0].message.contains("environments/prod.toml:3:1"));
    assert_eq!(status.last_applied_revision.as_deref(), Some(revision(1).commit.as_str()));
}

#[test]
fn a_source_that_does_not_answer_removes_nothing() {
    let mut bench = applied(pruning(), [class("default"), pool("web"), pool("old")]);
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.sync.observe(bench.now, GitEvent::FetchFailed { error: "connection refused".into() });
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/old"]);
}

#[test]
fn syn_018_a_stale_render_that_lacks_a_pool_of_the_commit_removes_nothing() {
    let mut bench = applied(pruning(), [class("default"), pool("web"), pool("old")]);
    let heavier = with(pool("web"), "/spec/weight", json!(5));
    let fresh = commit(2, [class("default"), heavier.clone(), pool("old")]);
    // The same commit, as something that is not its rendering has it.
    let stale = commit(2, [class("default"), heavier]);
    bench.sync.observe(bench.now, GitEvent::Rendered { desired: stale, proof: twice(&fresh) });
    bench.run_for(3600);
    assert!(bench.writes().is_empty(), "nothing is removed, and nothing of it is applied");
    bench.push(&fresh);
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"], "the fresh render counts");
    assert_eq!(bench.sync.status(bench.now).sync, SyncState::Synced);
    assert!(bench.sync.plan().expect("planned").is_in_sync());
}

#[test]
fn syn_019_two_renders_that_differ_write_nothing() {
    let mut bench = applied(pruning(), [class("default"), pool("web"), pool("old")]);
    let desired = commit(2, [class("default"), pool("web"), pool("new")]);
    let proof = RenderProof::Twice { digest: "another".into() };
    bench.sync.observe(bench.now, GitEvent::Rendered { desired, proof });
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    assert!(bench.has_said("NonDeterministicRender"));
    assert_eq!(bench.sync.status(bench.now).sync, SyncState::Blocked);
    // One render alone may add, but never remove.
    let (desired, live) = leaving(pool("old"), Fleet::default());
    let plan = plan_sync(&PlanInput {
        desired: &desired,
        proof: RenderProof::Once,
        live: &live,
        policy: &pruning(),
        consent: &Consent::default(),
        now: noon(),
        is_manual: true,
        started: None,
    });
    assert_eq!(code(&plan, "old"), "UnprovenRender");
}

#[test]
fn syn_020_protected_pools_stay() {
    let by_policy = SyncPolicy { protected: ["o*".into()].into(), ..pruning() };
    let cases = [
        (annotated(pool("old"), "provisor.dev/prune", "false"), pruning()),
        (annotated(pool("old"), "provisor.dev/prune", "never"), pruning()),
        (annotated(pool("old"), "provisor.dev/protect", "true"), pruning()),
        (pool("old"), by_policy),
    ];
    for (old, policy) in cases {
        let mut bench = applied(policy, [class("default"), pool("web"), old]);
        bench.push(&commit(2, [class("default"), pool("web")]));
        bench.run_for(60);
        assert!(bench.writes().is_empty());
        let status = bench.sync.status(bench.now);
        assert_eq!(status.sync, SyncState::OutOfSync);
        assert!(status.conditions.iter().any(|condition| condition.reason == "Protected"));
    }
    let mut busy = fleet([("old", 1), ("web", 1)]);
    busy.nodes_by_pool.get_mut("old").expect("made")[0].do_not_disrupt = true;
    let (desired, live) = leaving(pool("old"), busy);
    assert_eq!(code(&plan(&desired, &live, &pruning()), "old"), "DoNotDisrupt");
}

#[test]
fn syn_021_a_confirmation_is_void_when_the_plan_becomes_another() {
    let old = annotated(pool("old"), "provisor.dev/prune", "confirm");
    let mut bench = applied(pruning(), [class("default"), pool("web"), old]);
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.run_for(60);
    let seen = bench.sync.plan().expect("planned").hash.clone();
    assert!(bench.writes().is_empty());
    let request = |plan| SyncRequest {
        consent: Consent { plan: Some(plan), override_protection: None },
        ..SyncRequest::default()
    };

    bench.push(&commit(3, [class("default")]));
    bench.sync.observe(bench.now, GitEvent::Requested(request(seen)));
    bench.run();
    assert!(bench.has_said("StaleConfirmation"));
    assert!(!bench.writes().contains(&"delete NodePool/old".to_owned()));

    // More nodes than the person saw make another plan as well.
    let (desired, live) =
        leaving(annotated(pool("old"), "provisor.dev/prune", "confirm"), fleet([("old", 3)]));
    let (_, grown) = leaving(annotated(pool("old"), "provisor.dev/prune", "confirm"), fleet([("old", 4)]));
    let hash = plan(&desired, &live, &pruning()).hash;
    let consent = Consent { plan: Some(hash), override_protection: None };
    assert_eq!(code(&plan_with(&desired, &live, &pruning(), &consent), "old"), "Proceed");
    assert_eq!(code(&plan_with(&desired, &grown, &pruning(), &consent), "old"), "PruneNeedsConfirmation");
}

#[test]
fn syn_021_a_word_covers_the_plan_that_its_digits_name() {
    let old = annotated(pool("old"), "provisor.dev/prune", "confirm");
    let mut bench = applied(pruning(), [class("default"), pool("web"), old]);
    bench.push(&commit(2, [class("default"), pool("web")]));
    let asked = bench.run();
    let plan = asked.awaits.clone().expect("it waits for a person");
    let word = |named: &str| GitEvent::Confirmed { named: named.into(), actor: "ann".into() };
    let decision = bench.run();
    assert_eq!(
        (decision.awaits, decision.asks),
        (Some(plan.clone()), None),
        "it asks once, and goes on waiting"
    );

    for named in ["0000000", &plan.short()[..6], ""] {
        bench.said.clear();
        bench.sync.observe(bench.now, word(named));
        let decision = bench.run();
        assert!(
            bench.has_said(&format!("StaleConfirmation: ann: `{named}` does not name the plan")),
            "{named}"
        );
        assert_eq!(decision.awaits.as_ref(), Some(&plan), "{named}");
    }
    assert!(bench.writes().is_empty());

    bench.sync.observe(bench.now, word(plan.short()));
    bench.run();
    assert!(bench.has_said("(asked for by ann)"), "{:#?}", bench.said);
    assert_eq!(bench.writes(), ["delete NodePool/old"]);
    bench.run_for(60);
    assert_eq!(bench.run().awaits, None);
}

#[test]
fn what_was_said_is_not_said_again_beside_something_new() {
    let old = annotated(pool("old"), "provisor.dev/prune", "confirm");
    let mut bench = applied(pruning(), [class("default"), pool("web"), old]);
    bench.push(&commit(2, [class("default"), pool("web"), pool("new")]));
    bench.look();
    let mut told: Vec<String> = Vec::new();
    for _ in 0..10 {
        let decision = bench.decide();
        told.extend(decision.news.iter().map(|reason| reason.reason.to_owned()));
    }
    let count = |word: &str| told.iter().filter(|told| *told == word).count();
    assert_eq!((count("Succeeded"), count("PruneNeedsConfirmation")), (1, 1), "{told:?}");
}

#[test]
fn syn_022_the_pool_of_the_controller_stays_even_when_confirmed() {
    let mut hosted = fleet([("old", 2), ("web", 2)]);
    hosted.controller_pools.insert("old".into());
    let (desired, live) = leaving(pool("old"), hosted);
    let seen = plan(&desired, &live, &pruning());
    assert_eq!(code(&seen, "old"), "HostsController");
    let confirmed = Consent { plan: Some(seen.hash), override_protection: None };
    assert_eq!(code(&plan_with(&desired, &live, &pruning(), &confirmed), "old"), "HostsController");
    let overridden = Consent { plan: None, override_protection: Some("moving to another cluster".into()) };
    assert_eq!(code(&plan_with(&desired, &live, &pruning(), &overridden), "old"), "Proceed");
}

#[test]
fn syn_023_a_pool_with_nodes_is_emptied_before_it_is_deleted() {
    let mut bench = applied(pruning(), [class("default"), pool("web"), pool("old")]);
    bench.fleet = fleet([("web", 4), ("old", 12)]);
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/old"], "told to launch nothing, not deleted");
    let live = bench.server.get("old");
    assert_eq!(live["spec"]["limits"]["nodes"], "0");
    assert_eq!(live["spec"]["limits"]["cpu"], "100", "all else stays");
    assert_eq!(live["spec"]["template"]["metadata"]["annotations"]["provisor.dev/retire"], "true");
    assert_eq!(code(bench.sync.plan().expect("planned"), "old"), "Retiring");

    // Pruning switched off does not strand a pool half-way.
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(SyncPolicy { prune: PruneMode::Off, ..pruning() }));
    bench.fleet = fleet([("web", 8), ("old", 5)]);
    bench.run_for(3600);
    assert!(bench.writes().is_empty());
    bench.fleet = fleet([("web", 12), ("old", 0)]);
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/old"]);
    assert!(bench.sync.plan().expect("planned").is_in_sync());
}

#[test]
fn syn_023_a_pool_that_does_not_empty_waits_for_a_person() {
    let mut bench = applied(pruning(), [class("default"), pool("web"), pool("old")]);
    bench.fleet = fleet([("web", 4), ("old", 2)]);
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.run_for(25 * 3600);
    assert_eq!(bench.writes(), ["apply NodePool/old"]);
    let plan = bench.sync.plan().expect("planned").clone();
    assert_eq!(code(&plan, "old"), "RetireTimeout");
    assert_eq!(change(&plan, "old").action, ChangeAction::Delete);
    let consent = Consent { plan: Some(plan.hash.clone()), override_protection: None };
    bench.sync.observe(bench.now, GitEvent::Requested(SyncRequest { consent, ..SyncRequest::default() }));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/old"]);
}

#[test]
fn a_retiring_pool_that_returns_to_git_is_restored() {
    let mut bench = applied(pruning(), [class("default"), pool("web"), pool("old")]);
    bench.fleet = fleet([("old", 2)]);
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.run_for(60);
    bench.writes();
    bench.push(&commit(3, [class("default"), pool("web"), pool("old")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/old"]);
    let live = bench.server.get("old");
    assert_eq!(live["spec"]["limits"], json!({ "cpu": "100" }));
    assert_eq!(live["metadata"]["annotations"]["provisor.dev/retire"], Value::Null);
    assert!(bench.sync.plan().expect("planned").is_in_sync());
    assert_eq!(
        bench.sync.inventory().expect("kept").entries[&bench.server.named("old")].retiring_since,
        None
    );
}

#[test]
fn a_person_may_prune_once_and_delete_at_once() {
    let mut bench = applied(
        SyncPolicy { prune: PruneMode::Off, ..pruning() },
        [class("default"), pool("web"), pool("old")],
    );
    bench.fleet = fleet([("web", 4), ("old", 2)]);
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    let request = SyncRequest { prune: Some(PruneMode::Now), ..SyncRequest::default() };
    bench.sync.observe(bench.now, GitEvent::Requested(request));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/old"]);
}

#[test]
fn syn_024_a_rename_creates_before_it_retires_and_names_both_sides() {
    let mut bench = applied(pruning(), [class("default"), pool("old")]);
    bench.fleet = fleet([("old", 3)]);
    bench.push(&commit(2, [class("default"), pool("new")]));
    bench.look();
    bench.decide();
    let plan = bench.sync.plan().expect("planned").clone();
    let order: Vec<_> = plan.changes.iter().map(|change| (change.action, &*change.object.name)).collect();
    assert_eq!(order, [(ChangeAction::Create, "new"), (ChangeAction::Retire, "old")]);
    assert_eq!(change(&plan, "new").renamed.as_deref(), Some("old"));
    assert_eq!(change(&plan, "old").renamed.as_deref(), Some("new"));
    assert!(change(&plan, "old").reasons.iter().any(|reason| reason == "renamed to new; its 3 nodes follow"));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/new", "apply NodePool/old"]);
}

#[test]
fn syn_025_a_delete_that_fails_is_tried_again() {
    let mut bench = applied(pruning(), [class("default"), pool("web"), pool("old")]);
    bench.server.failures.insert("old".into(), vec![Outcome::Transient("500 Internal Server Error".into())]);
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.run();
    let old = bench.server.named("old");
    assert!(bench.writes().is_empty());
    assert!(bench.sync.inventory().expect("kept").entries.contains_key(&old));
    bench.run_for(6);
    assert_eq!(bench.writes(), ["delete NodePool/old"]);
    assert!(!bench.sync.inventory().expect("kept").entries.contains_key(&old));
}

#[test]
fn syn_026_waves_go_up_and_removals_come_last_and_go_down() {
    let at_wave = |name: &str, wave: &str| annotated(pool(name), "provisor.dev/wave", wave);
    let old = [at_wave("old-a", "-1"), at_wave("old-b", "0"), at_wave("old-c", "5")];
    let mut bench = applied(pruning(), old);
    bench.push(&commit(2, [at_wave("new-c", "5"), at_wave("new-a", "-1"), at_wave("new-b", "0")]));
    bench.run();
    assert_eq!(bench.writes(), ["apply NodePool/new-a"], "the next wave waits");
    bench.run_for(60);
    assert_eq!(
        bench.writes(),
        [
            "apply NodePool/new-b",
            "apply NodePool/new-c",
            "delete NodePool/old-c",
            "delete NodePool/old-b",
            "delete NodePool/old-a",
        ]
    );

    let mut bench = applied(pruning(), [at_wave("old-a", "-1"), at_wave("old-c", "5"), pool("web")]);
    bench.server.denied.insert("old-c".into());
    bench.push(&commit(2, [pool("web")]));
    bench.run_for(600);
    assert!(bench.writes().is_empty(), "a wave of removals that failed stops the next");
}

#[test]
fn a_class_outlives_the_pools_that_use_it() {
    let using =
        |name: &str, class: &str| with(pool(name), "/spec/template/spec/nodeClassRef/name", json!(class));
    let mut bench = applied(pruning(), [class("default"), class("gpu"), pool("web"), using("train", "gpu")]);
    bench.fleet = fleet([("web", 9), ("train", 2)]);
    bench.push(&commit(2, [class("default"), pool("web")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/train"]);
    assert_eq!(code(bench.sync.plan().expect("planned"), "gpu"), "ClassInUse");
    bench.fleet = fleet([("web", 9)]);
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/train", "delete EC2NodeClass/gpu"]);
}

#[test]
fn syn_044_an_object_that_is_not_to_be_reconciled_is_left_alone() {
    let paused = annotated(pool("old"), "provisor.dev/reconcile", "disabled");
    let mut bench = applied(pruning(), [class("default"), pool("old")]);
    bench.server.edit(
        "old",
        "/metadata/annotations/provisor.dev~1reconcile",
        json!("disabled"),
        "kubectl-annotate",
    );
    bench.push(&commit(2, [class("default"), with(paused.clone(), "/spec/weight", json!(7))]));
    bench.run_for(60);
    bench.push(&commit(3, [class("default")]));
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    let plan = bench.sync.plan().expect("planned");
    assert_eq!(&*plan.skipped[0].object.name, "old");
}

#[test]
fn a_repository_can_only_forbid_more() {
    let cluster = SyncPolicy { confirm_prune: true, ..pruning() };
    let wishes: RepositoryRules = serde_json::from_value(json!({
        "prune": "now", "nodesPercent": 5, "poolsMax": 200, "nodesMax": 3, "protected": ["db"],
        "windows": [{ "kind": "deny", "schedule": "0 0 * * *", "duration": "24h" }],
    }))
    .expect("rules");
    let (policy, ignored) = cluster.tightened_by(&wishes);
    assert_eq!((policy.prune, policy.limits.nodes_percent), (PruneMode::Retire, 5));
    assert_eq!((policy.limits.pools_max, policy.limits.nodes_max), (100, Some(3)));
    assert!(policy.is_protected("db") && policy.confirm_prune);
    assert_eq!(ignored.len(), 2, "{ignored:?}");
    let (desired, live) = leaving(pool("old"), Fleet::default());
    assert_eq!(code(&plan(&desired, &live, &policy), "old"), "WindowClosed");
}

#[test]
fn what_belongs_to_another_environment_is_not_in_the_plan() {
    let owner = Owner { installation: "main".into(), environment: "dev".into() };
    assert_eq!(owner.to_string(), "environment dev of installation main");
    let mut other = Bench::new(pruning());
    other.server.put(
        &annotated(pool("theirs"), "provisor.dev/tracking-id", "main:dev:karpenter.sh/NodePool:/theirs"),
        "provisor",
        "Apply",
    );
    other.server.put(&pool("nobodys"), "kubectl-create", "Update");
    other.push(&commit(1, [class("default")]));
    other.run_for(60);
    assert_eq!(other.writes(), ["apply EC2NodeClass/default"]);
    let plan = other.sync.plan().expect("planned");
    assert_eq!(plan.unmanaged.iter().map(ToString::to_string).collect::<Vec<_>>(), ["NodePool/nobodys"]);
}
