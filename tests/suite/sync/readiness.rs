//! What was written and never seen ready holds up removals and later waves, whoever wrote it and whatever came since.

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
    let inventory = bench.sync.inventory().expect("a record");
    assert!(inventory.entries.values().all(|entry| !entry.is_unproven));
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
fn what_somebody_changed_is_put_back_meanwhile_and_nothing_is_proven_by_it() {
    let healing = SyncPolicy { mode: SyncMode::AutoHeal, ..pruning() };
    let mut bench = settled(healing.clone());
    bench.server.never_ready.insert("new".into());
    bench.push(&commit(2, [pool("new"), later("web")]));
    bench.run_for(3600);
    assert_eq!(bench.sync.history().last().expect("one").phase, Phase::PartiallySynced);
    bench.writes();
    bench.server.edit("web", "/spec/limits/cpu", json!("1"), "kubectl-edit");
    bench.run_for(10);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    assert_eq!(bench.sync.history().last().expect("one").phase, Phase::Succeeded);
    let limits = BlastLimits { pools_max: 12, ..healing.limits };
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(SyncPolicy { limits, ..healing }));
    expect_removed_once_ready(&mut bench, "new");
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
fn news_from_before_the_write_proves_nothing() {
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
    expect_removed_once_ready(&mut bench, "a");
}

/// Who was killed between a write and its record leaves an object that the record does not know.
#[test]
fn what_is_there_without_a_record_is_proven_by_nothing_else_either() {
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
    let inventory = bench.sync.inventory().expect("a record");
    assert!(inventory.entries.values().all(|entry| !entry.is_unproven), "{inventory:?}");
}
