//! What is not ready holds up removals and later waves, whoever wrote it and whatever came since; so does what is not written.

use provisor::gitops::live::LiveObject;
use provisor::gitops::policy::{BlastLimits, PruneMode, SyncMode, SyncPolicy};
use provisor::gitops::sync::{GitEvent, ObjectResult, Outcome, Phase, Sync};
use serde_json::json;

use super::bench::*;

fn pruning() -> SyncPolicy {
    let limits = BlastLimits { pools_max: 10, pools_percent: 100, ..policy().limits };
    SyncPolicy { prune: PruneMode::Now, prune_ceiling: PruneMode::Now, limits, ..policy() }
}

/// Other rules, which change nothing about what is done here.
fn otherwise() -> GitEvent {
    let limits = BlastLimits { pools_max: 11, ..pruning().limits };
    GitEvent::PolicyChanged(SyncPolicy { limits, ..pruning() })
}

/// `old` was there with `web`, which is of a later wave.
fn settled(policy: SyncPolicy) -> Bench {
    let mut bench = Bench::new(policy);
    bench.push(&commit(1, [pool("old"), later("web")]));
    bench.run_for(60);
    bench.writes();
    bench
}

fn later(name: &str) -> serde_json::Value {
    annotated(pool(name), "provisor.dev/wave", "1")
}

/// Nothing is removed for hours, until `name` gets ready.
#[track_caller]
fn expect_removed_once_ready(bench: &mut Bench, name: &str) {
    bench.run_for(2 * 3600);
    assert_eq!(bench.writes(), [""; 0]);
    assert!(bench.has_said(&format!("NodePool/{name} is not ready yet")), "{:?}", bench.said);
    bench.server.never_ready.clear();
    let object = bench.server.named(name);
    bench.server.report(&object);
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/old"], "nobody has to ask for it");
}

fn renamed() -> Bench {
    let mut bench = settled(pruning());
    bench.server.never_ready.insert("new".into());
    bench.push(&commit(2, [pool("new"), later("web")]));
    bench.run_for(30);
    assert_eq!(bench.writes(), ["apply NodePool/new"]);
    bench
}

#[test]
fn a_new_process_waits_as_the_former_did() {
    let mut bench = renamed();
    let stored =
        serde_json::to_string(bench.sync.inventory().expect("a record")).expect("it is kept as JSON");
    bench.sync = Sync::new("prod", pruning(), Some(serde_json::from_str(&stored).expect("it can be read")));
    bench.push(&commit(2, [pool("new"), later("web")]));
    expect_removed_once_ready(&mut bench, "new");
}

#[test]
fn another_commit_waits_for_what_the_former_wrote() {
    let mut bench = renamed();
    let web = with(later("web"), "/spec/limits/cpu", json!("7"));
    bench.push(&commit(3, [pool("new"), web.clone()]));
    bench.run_for(60);
    assert_eq!(bench.writes(), [""; 0], "it is of a later wave");
    bench.server.never_ready.clear();
    let new = bench.server.named("new");
    bench.server.report(&new);
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web", "delete NodePool/old"]);
}

#[test]
fn a_second_try_waits_for_what_the_first_wrote() {
    let mut bench = settled(pruning());
    bench.server.never_ready.insert("a".into());
    bench.server.failures.insert("b".into(), vec![Outcome::Transient("503".into())]);
    bench.push(&commit(2, [pool("a"), pool("b"), later("web")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/a", "apply NodePool/b"]);
    expect_removed_once_ready(&mut bench, "a");
}

#[test]
fn what_somebody_changed_is_put_back_meanwhile_and_what_had_to_wait_goes_on_as_before() {
    let healing = SyncPolicy { mode: SyncMode::AutoHeal, ..pruning() };
    let mut bench = settled(healing);
    bench.server.never_ready.insert("new".into());
    bench.push(&commit(2, [pool("new"), later("web")]));
    bench.run_for(3600);
    assert_eq!(bench.sync.history().last().expect("one").phase, Phase::PartiallySynced);
    bench.writes();
    bench.server.edit("web", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.run_for(10);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    assert_eq!(bench.sync.history().last().expect("one").phase, Phase::Succeeded);
    expect_removed_once_ready(&mut bench, "new");
}

#[test]
fn what_is_put_back_meanwhile_hastens_no_other_try() {
    let mut bench = settled(SyncPolicy { mode: SyncMode::AutoHeal, ..pruning() });
    bench.server.failures.insert("b".into(), vec![Outcome::Transient("503".into()); 9]);
    bench.push(&commit(2, [pool("old"), pool("b"), later("web")]));
    bench.run_for(60);
    let tries_left = |bench: &Bench| bench.server.failures["b"].len();
    let before = tries_left(&bench);
    bench.server.edit("web", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.run_for(5);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    assert_eq!(tries_left(&bench), before, "it is not time yet");
    bench.run_for(20);
    assert_eq!(tries_left(&bench), before - 1);
}

#[test]
fn what_somebody_deletes_while_it_is_waited_for_is_made_again_and_waited_for() {
    let mut bench = renamed();
    let new = bench.server.named("new");
    bench.server.objects.remove(&new);
    bench.run_for(10);
    assert_eq!(bench.writes(), ["apply NodePool/new"], "at once");
    expect_removed_once_ready(&mut bench, "new");
}

#[test]
fn what_somebody_breaks_is_mended_by_those_who_wait_for_it() {
    let mut bench = settled(SyncPolicy { mode: SyncMode::AutoHeal, ..pruning() });
    let late = annotated(pool("late"), "provisor.dev/wave", "2");
    bench.server.never_ready.insert("web".into());
    bench.push(&commit(2, [pool("first"), with(later("web"), "/spec/limits/cpu", json!("7")), late]));
    bench.run_for(30);
    assert_eq!(bench.writes(), ["apply NodePool/first", "apply NodePool/web"]);
    bench.server.edit("first", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.run_for(10);
    assert_eq!(bench.writes(), [""; 0], "it was written by this very sync");
    bench.run_for(3600);
    assert_eq!(bench.writes(), ["apply NodePool/first"], "healed once nobody waits");
    bench.server.never_ready.clear();
    let web = bench.server.named("web");
    bench.server.report(&web);
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/late", "delete NodePool/old"]);
}

#[test]
fn whoever_made_it_again_it_is_ready_once_it_is() {
    let mut bench = renamed();
    let new = bench.server.named("new");
    bench.server.objects.remove(&new);
    bench.server.put(&marked(pool("new")), "restore", "Update");
    expect_removed_once_ready(&mut bench, "new");
}

/// As a back-up has it.
fn marked(mut manifest: serde_json::Value) -> serde_json::Value {
    let id = format!(
        "main:prod:karpenter.sh/NodePool:/{}",
        manifest["metadata"]["name"].as_str().expect("a name")
    );
    manifest = with(manifest, "/metadata/labels/provisor.dev~1environment", json!("prod"));
    manifest = with(manifest, "/metadata/labels/provisor.dev~1installation", json!("main"));
    annotated(manifest, "provisor.dev/tracking-id", &id)
}

#[test]
fn what_is_annotated_to_be_left_alone_holds_up_nothing() {
    let mut bench = settled(pruning());
    bench.server.never_ready.insert("new".into());
    bench.push(&commit(2, [annotated(pool("new"), "provisor.dev/reconcile", "disabled"), later("web")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/old"]);
}

/// They may be judged by nobody, and be in conflict with what is removed last.
#[test]
fn overlays_hold_up_nothing() {
    let overlay = json!({
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": { "name": "dearer" },
        "spec": { "requirements": [], "priceAdjustment": "+10%" },
    });
    let mut bench = settled(pruning());
    bench.server.never_ready.insert("dearer".into());
    bench.push(&commit(2, [overlay, later("web"), later("next")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodeOverlay/dearer", "apply NodePool/next", "delete NodePool/old"]);
}

#[test]
fn a_pool_is_not_waited_for_by_the_class_that_mends_it() {
    let class_of_wave = |role: &str| {
        let class = annotated(class("default"), "provisor.dev/wave", "1");
        with(class, "/spec/role", json!(role))
    };
    let mut bench = Bench::new(pruning());
    bench.push(&commit(1, [pool("a"), class_of_wave("wrong")]));
    bench.run_for(60);
    bench.writes();
    let a = bench.server.named("a");
    bench.server.never_ready.insert("a".into());
    let pool_a = bench.server.objects.get_mut(&a).expect("there");
    pool_a["status"] =
        json!({ "conditions": [{ "type": "Ready", "status": "False", "message": "no such role" }] });
    bench.push(&commit(2, [pool("a"), class_of_wave("right")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply EC2NodeClass/default"]);
}

#[test]
fn what_the_plan_refuses_or_holds_holds_up_what_comes_later() {
    let mut bench = settled(SyncPolicy { mode: SyncMode::AutoHeal, ..pruning() });
    bench.server.put(&pool("new"), "kubectl-create", "Update");
    bench.push(&commit(2, [pool("new"), pool("beside"), later("web"), later("next")]));
    bench.run_for(3600);
    assert_eq!(bench.writes(), ["apply NodePool/beside"], "what belongs to nobody we know is not taken over");
    assert!(bench.has_said("Unowned: NodePool/new"), "{:?}", bench.said);
    assert_ne!(
        bench.sync.applied().map(|(commit, _)| commit.to_string()),
        Some(revision(2).commit.to_string())
    );
    bench.server.edit("web", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"], "what somebody changed is put back all the same");
    let new = bench.server.named("new");
    bench.server.objects.remove(&new);
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/new", "apply NodePool/next", "delete NodePool/old"]);
}

/// A second look at what was refused for want of a right is no reason to go on without what is refused for what it is.
#[test]
fn what_was_refused_holds_up_what_comes_later_too() {
    let mut bench = settled(pruning());
    bench.server.denied.insert("wrong".into());
    bench.server.failures.insert("right".into(), vec![Outcome::Forbidden("no".into())]);
    bench.push(&commit(2, [pool("wrong"), pool("right"), later("web"), later("next")]));
    bench.run_for(1200);
    assert_eq!(bench.writes(), ["apply NodePool/right"]);
    bench.server.denied.clear();
    bench.sync.observe(bench.now, otherwise());
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/wrong", "apply NodePool/next", "delete NodePool/old"]);
}

#[test]
fn what_was_refused_keeps_nobody_from_putting_back_what_somebody_changed() {
    let mut bench = settled(SyncPolicy { mode: SyncMode::AutoHeal, ..pruning() });
    bench.server.denied.insert("wrong".into());
    bench.server.failures.insert("right".into(), vec![Outcome::Forbidden("no".into())]);
    bench.push(&commit(2, [pool("wrong"), pool("right"), later("web"), pool("old")]));
    bench.run_for(1200);
    assert_eq!(bench.writes(), ["apply NodePool/right"]);
    bench.server.edit("web", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
}

#[test]
fn news_from_before_the_write_says_nothing_of_what_was_written() {
    let mut bench = settled(pruning());
    bench.push(&commit(2, [pool("old"), pool("a"), later("web")]));
    bench.run_for(60);
    bench.writes();
    let (object, before) = (bench.server.named("a"), bench.server.get("a").clone());
    bench.server.never_ready.insert("a".into());
    bench.push(&commit(3, [with(pool("a"), "/spec/limits/cpu", json!("7")), later("web")]));
    bench.look();
    bench.decide();
    assert_eq!(bench.writes(), ["apply NodePool/a"]);
    let live = Some(LiveObject::new(before));
    bench.sync.observe(bench.now, GitEvent::ObjectChanged { object, live });
    bench.decide();
    assert_eq!(bench.writes(), [""; 0]);
    expect_removed_once_ready(&mut bench, "a");
}

/// Who was killed between a write and its record leaves an object that the record does not know.
#[test]
fn what_is_there_without_a_record_is_waited_for_as_well() {
    for is_lost in [false, true] {
        let mut bench = settled(pruning());
        let before = bench.sync.inventory().cloned();
        bench.server.never_ready.insert("new".into());
        bench.push(&commit(2, [pool("new"), later("web")]));
        bench.run_for(30);
        assert_eq!(bench.writes(), ["apply NodePool/new"]);
        bench.sync = Sync::new("prod", pruning(), before.filter(|_| !is_lost));
        bench.push(&commit(2, [pool("new"), later("web")]));
        expect_removed_once_ready(&mut bench, "new");
    }
}

#[test]
fn whoever_is_heard_before_the_answer_is_ready() {
    let mut bench = settled(pruning());
    bench.server.never_ready.insert("new".into());
    bench.push(&commit(2, [pool("new"), later("web")]));
    bench.look();
    let decision = bench.sync.decide(bench.now);
    let [action] = &decision.actions[..] else { panic!("{:?}", decision.actions) };
    let outcome = bench.server.perform(action);
    bench.server.never_ready.clear();
    let object = action.object().clone();
    bench.server.report(&object);
    let live = Some(LiveObject::new(bench.server.get("new").clone()));
    bench.sync.observe(bench.now, GitEvent::ObjectChanged { object: object.clone(), live });
    let plan = decision.plan.clone().expect("it belongs to a plan");
    let results = vec![ObjectResult { object, outcome }];
    bench.sync.observe(bench.now, GitEvent::Applied { plan, results });
    let decision = bench.decide();
    assert!(
        decision.reasons.iter().all(|reason| !reason.message.contains("not ready")),
        "{:?}",
        decision.reasons
    );
}
