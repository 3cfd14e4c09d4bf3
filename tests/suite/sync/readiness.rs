//! What is not ready holds up removals and later waves, whoever wrote it and whatever came since; so does what is not written.

use provisor::gitops::live::LiveObject;
use provisor::gitops::policy::{BlastLimits, PruneMode, SyncMode, SyncPolicy};
use provisor::gitops::sync::{GitEvent, ObjectResult, Outcome, Phase, Sync, SyncRequest};
use provisor::model::provisioner::Provisioner;
use serde_json::json;

use super::bench::*;

fn pruning() -> SyncPolicy {
    let limits = BlastLimits { pools_max: 10, pools_percent: 100, ..policy().limits };
    SyncPolicy { prune: PruneMode::Now, prune_ceiling: PruneMode::Now, limits, ..policy() }
}

fn retiring() -> SyncPolicy {
    let limits = BlastLimits { nodes_percent: 100, ..pruning().limits };
    SyncPolicy { prune: PruneMode::Retire, limits, ..pruning() }
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
    renamed_by(pruning())
}

fn renamed_by(policy: SyncPolicy) -> Bench {
    let mut bench = settled(policy);
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
    let mut bench = renamed_by(SyncPolicy { mode: SyncMode::AutoHeal, ..pruning() });
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
    assert_eq!(bench.writes(), ["apply NodePool/first"], "although it was written by this very sync");
    bench.run_for(3600);
    assert_eq!(bench.writes(), [""; 0]);
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

/// Whoever may say yes has to be asked, although something else waits behind it.
#[test]
fn what_waits_for_a_person_asks_although_something_waits_for_it() {
    let limits = BlastLimits { roll_nodes_max: Some(1), ..pruning().limits };
    let mut bench = Bench::new(SyncPolicy { limits, ..pruning() });
    bench.fleet = fleet([("web", 4)]);
    bench.push(&commit(1, [pool("old"), pool("web")]));
    bench.run_for(60);
    bench.writes();
    let rolled = with(pool("web"), "/spec/template/metadata/labels/team", json!("shop"));
    bench.push(&commit(2, [rolled, pool("beside")]));
    let mut asked = 0;
    for _ in 0..30 {
        let decision = bench.run();
        asked += usize::from(decision.asks.is_some());
        bench.now = bench.now.checked_add(seconds(2)).expect("in range");
        if let Some(plan) = &decision.awaits {
            assert!(bench.has_said(&format!("this is plan {}", plan.short())), "{:?}", bench.said);
        }
    }
    assert_eq!(bench.writes(), ["apply NodePool/beside"]);
    let awaited = bench.run().awaits.expect("a plan");
    let named = awaited.short().to_string().into();
    bench.sync.observe(bench.now, GitEvent::Confirmed { named, actor: "ada".into() });
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web", "delete NodePool/old"]);
    assert!(asked <= 1, "once, not in each decision");
}

#[test]
fn whoever_deletes_it_again_and_again_is_not_fought_without_a_pause() {
    for mode in [SyncMode::Auto, SyncMode::AutoHeal] {
        let mut bench = settled(SyncPolicy { mode, ..pruning() });
        bench.server.never_ready.insert("new".into());
        bench.push(&commit(2, [pool("new"), later("web")]));
        let mut writes = 0;
        for _ in 0..1500 {
            bench.run();
            writes += bench.writes().len();
            bench.server.objects.retain(|object, _| &*object.name != "new");
            bench.now = bench.now.checked_add(seconds(1)).expect("in range");
        }
        let most = if mode == SyncMode::Auto { 1 } else { 40 };
        assert!((1..=most).contains(&writes), "{writes} in 25 minutes");
        assert!(bench.server.objects.keys().any(|object| &*object.name == "old"));
    }
}

#[test]
fn who_heals_is_held_up_by_nobody_who_changes_things_again() {
    let mut bench = settled(SyncPolicy { mode: SyncMode::AutoHeal, ..pruning() });
    bench.server.never_ready.insert("old".into());
    bench.server.edit("old", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.server.edit("web", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.run_for(5);
    assert_eq!(bench.writes(), ["apply NodePool/old"]);
    bench.server.never_ready.clear();
    bench.server.edit("old", "/spec/limits/cpu", json!("2"), "kubectl-edit");
    bench.run_for(60);
    let mut writes = bench.writes();
    writes.sort();
    assert_eq!(writes, ["apply NodePool/old", "apply NodePool/web"]);
}

#[test]
fn what_a_person_started_ends_when_it_is_undone() {
    let mut bench = settled(SyncPolicy { mode: SyncMode::Manual, ..pruning() });
    let web = with(later("web"), "/spec/limits/cpu", json!("7"));
    bench.push(&commit(2, [pool("old"), pool("new"), web]));
    bench.server.never_ready.insert("new".into());
    bench.sync.observe(
        bench.now,
        GitEvent::Requested(SyncRequest { actor: "ada".into(), ..SyncRequest::default() }),
    );
    bench.run_for(10);
    let first = bench.writes();
    assert!(first.contains(&"apply NodePool/new".into()), "{first:?}");
    bench.server.edit("new", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.run_for(10);
    assert_eq!(bench.sync.history().last().expect("one").phase, Phase::Superseded);
    assert_eq!(bench.writes(), [""; 0], "they are asked again");
    assert!(bench.run().awaits.is_some());
}

/// Whoever is to judge the objects must not wait for their being judged.
#[test]
fn who_provisions_changes_with_what_a_person_asked_for_although_nobody_judges_it() {
    let mut bench = Bench::new(SyncPolicy { mode: SyncMode::Manual, ..pruning() });
    bench.server.never_ready.insert("a".into());
    bench.push(&commit(1, [pool("a"), later("web")]));
    bench.run_for(10);
    assert_eq!(bench.sync.provisioner(bench.now), None, "nobody asked for it");
    bench.sync.observe(
        bench.now,
        GitEvent::Requested(SyncRequest { actor: "ada".into(), ..SyncRequest::default() }),
    );
    bench.run_for(30);
    assert_eq!(bench.sync.provisioner(bench.now), None, "it is under way");
    bench.run_for(900);
    assert_eq!(bench.writes(), ["apply NodePool/a"]);
    assert_eq!(bench.sync.provisioner(bench.now), Some(Provisioner::Provisor));
}

#[test]
fn what_the_plan_held_from_the_beginning_is_not_undone() {
    let mut bench = Bench::new(retiring());
    bench.push(&commit(1, [pool("old"), pool("web")]));
    bench.run_for(60);
    bench.fleet = fleet([("old", 2)]);
    bench.push(&commit(2, [pool("web")]));
    bench.run_for(60);
    bench.fleet = fleet([]);
    bench.server.put(&pool("taken"), "kubectl-create", "Update");
    bench.server.never_ready.insert("new".into());
    bench.push(&commit(3, [pool("web"), pool("taken"), pool("new")]));
    bench.run_for(10);
    bench.server.put(&pool("stranger"), "kubectl-create", "Update");
    bench.run_for(60);
    assert!(bench.has_said("NodePool/new is not ready yet"), "{:?}", bench.said);
    assert!(!bench.has_said("any more"), "{:?}", bench.said);
}

#[test]
fn what_was_given_up_is_over_once_nothing_waits() {
    let mut bench = renamed();
    bench.run_for(3600);
    let has_failed = |bench: &Bench| {
        bench.sync.status(bench.now).conditions.iter().any(|condition| condition.kind == "OperationFailed")
    };
    assert!(has_failed(&bench));
    let old = bench.server.named("old");
    bench.server.objects.remove(&old);
    bench.run_for(60);
    assert!(has_failed(&bench), "it is not ready, and that is told");
    bench.server.never_ready.clear();
    let new = bench.server.named("new");
    bench.server.report(&new);
    bench.run_for(60);
    assert!(!has_failed(&bench));
}

#[test]
fn what_may_be_written_later_is_written_beside_what_is_refused() {
    let mut bench = Bench::new(retiring());
    bench.push(&commit(1, [pool("old"), pool("web")]));
    bench.run_for(60);
    bench.fleet = fleet([("old", 2)]);
    bench.push(&commit(2, [pool("web")]));
    bench.run_for(60);
    bench.writes();
    bench.server.put(&pool("taken"), "kubectl-create", "Update");
    bench.server.denied.insert("wrong".into());
    bench.push(&commit(3, [pool("web"), pool("wrong"), pool("taken")]));
    bench.run_for(600);
    assert_eq!(bench.writes(), [""; 0]);
    bench.fleet = fleet([]);
    let taken = bench.server.named("taken");
    bench.server.objects.remove(&taken);
    bench.run_for(600);
    assert_eq!(bench.writes(), ["apply NodePool/taken", "delete NodePool/old"]);
    let refusals = bench.said.iter().filter(|line| line.contains("1 failed")).count();
    assert_eq!(refusals, 1, "what is refused is not tried again: {:?}", bench.said);
}

#[test]
fn what_somebody_changed_since_it_was_written_does_not_count_as_written() {
    let mut bench = settled(pruning());
    bench.server.never_ready.insert("new".into());
    bench.push(&commit(2, [pool("new"), later("web")]));
    bench.run_for(30);
    assert_eq!(bench.writes(), ["apply NodePool/new"]);
    bench.server.never_ready.clear();
    bench.server.edit("new", "/spec/limits/cpu", json!("0"), "kubectl-edit");
    bench.run_for(3600);
    assert_eq!(bench.writes(), [""; 0], "it is ready, but not as it is wanted");
    assert!(bench.has_said("NodePool/new is not as the commit wants it any more"), "{:?}", bench.said);
    bench.server.edit("new", "/spec/limits/cpu", json!("100"), "kubectl-edit");
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/old"]);
}

#[test]
fn removals_after_one_that_is_refused_wait_whatever_is_looked_at_again() {
    let mut bench = Bench::new(pruning());
    let late = |name: &str| annotated(pool(name), "provisor.dev/wave", "5");
    bench.push(&commit(1, [late("denied"), late("forbidden"), pool("last"), pool("web")]));
    bench.run_for(60);
    bench.writes();
    bench.server.denied.insert("denied".into());
    bench.server.failures.insert("forbidden".into(), vec![Outcome::Forbidden("no".into())]);
    bench.push(&commit(2, [pool("web")]));
    bench.run_for(1200);
    assert_eq!(bench.writes(), ["delete NodePool/forbidden"]);
}

#[test]
fn pools_that_others_judge_hold_up_nothing() {
    let other = with(pool("other"), "/spec/template/spec/nodeClassRef/kind", json!("KWOKNodeClass"));
    let mut bench = settled(pruning());
    bench.server.never_ready.insert("other".into());
    bench.push(&commit(2, [other, later("web")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/other", "delete NodePool/old"]);
}

#[test]
fn a_commit_of_which_only_leftovers_are_left_was_applied() {
    let policy = SyncPolicy { prune: PruneMode::Off, ..policy() };
    let mut bench = settled(policy.clone());
    bench.push(&commit(2, [later("web")]));
    bench.run_for(60);
    let stored = bench.sync.inventory().cloned();
    bench.sync = Sync::new("prod", policy, stored);
    bench.push(&commit(2, [later("web")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), [""; 0]);
    let applied = bench.sync.applied().map(|(commit, _)| commit.to_string());
    assert_eq!(applied, Some(revision(2).commit.to_string()));
}

#[test]
fn what_the_plan_refuses_or_holds_holds_up_what_comes_later() {
    let mut bench = settled(SyncPolicy { mode: SyncMode::AutoHeal, ..pruning() });
    bench.server.put(&pool("new"), "kubectl-create", "Update");
    bench.push(&commit(2, [pool("new"), pool("beside"), later("web"), later("next")]));
    bench.run_for(3600);
    assert_eq!(bench.writes(), ["apply NodePool/beside"], "what belongs to nobody we know is not taken over");
    assert!(bench.has_said("Unowned: refused to adopt NodePool/new"), "{:?}", bench.said);
    assert!(
        bench.has_said("HeldUp: waits to create NodePool/next: what comes before it is held"),
        "{:?}",
        bench.said
    );
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
