//! What a change of the rules leaves as it is: nothing is done sooner for it, and nothing that came is forgotten.

use std::sync::Arc;

use provisor::gitops::policy::{BlastLimits, PruneMode, SyncMode, SyncPolicy};
use provisor::gitops::sync::{GitEvent, Outcome, Phase};
use provisor::gitops::window::{WindowSpec, Windows};
use provisor::model::provisioner::Provisioner;
use serde_json::{Value, json};

use super::bench::*;

fn pruning() -> SyncPolicy {
    SyncPolicy { prune: PruneMode::Now, prune_ceiling: PruneMode::Now, ..policy() }
}

/// The same for what is done in these tests, and not the same rules.
fn otherwise(policy: SyncPolicy) -> SyncPolicy {
    SyncPolicy { limits: BlastLimits { pools_max: 40, ..policy.limits }, ..policy }
}

fn windows(written: Value) -> Windows {
    Windows::new([serde_json::from_value::<WindowSpec>(written).expect("a window")])
}

/// Open all day.
fn open() -> Windows {
    windows(json!({ "kind": "allow", "schedule": "0 0 * * *", "duration": "24h" }))
}

fn closed() -> Windows {
    windows(json!({ "kind": "deny", "schedule": "0 0 * * *", "duration": "24h" }))
}

/// `old` was renamed to `new`, which was written and is not ready.
fn renamed() -> Bench {
    let mut bench = Bench::new(pruning());
    bench.push(&commit(1, [pool("old")]));
    bench.run_for(60);
    bench.server.never_ready.insert("new".into());
    bench.push(&commit(2, [pool("new")]));
    bench.run_for(30);
    assert_eq!(bench.writes(), ["apply NodePool/old", "apply NodePool/new"]);
    bench
}

fn gets_ready(bench: &mut Bench, name: &str) {
    bench.server.never_ready.clear();
    let object = bench.server.named(name);
    bench.server.report(&object);
}

#[test]
fn nothing_is_removed_before_what_was_written_is_ready_whatever_is_said_meanwhile() {
    let suspended = GitEvent::Suspended { reason: "x".into(), actor: "y".into(), until: None };
    for said in [vec![GitEvent::PolicyChanged(otherwise(pruning()))], vec![suspended, GitEvent::Resumed]] {
        let mut bench = renamed();
        for event in said.clone() {
            bench.sync.observe(bench.now, event);
            bench.run_for(30);
        }
        assert_eq!(bench.writes(), [""; 0], "{said:?}");
        assert!(bench.has_said("Waiting: NodePool/new is not ready yet"), "{:?}", bench.said);
        gets_ready(&mut bench, "new");
        bench.run_for(60);
        assert_eq!(bench.writes(), ["delete NodePool/old"], "{said:?}");
    }
}

#[test]
fn what_was_given_up_stays_given_up_when_only_windows_change() {
    let mut bench = renamed();
    bench.run_for(3600);
    assert_eq!(bench.sync.history().last().expect("one").phase, Phase::PartiallySynced);
    let ended = bench.sync.history().len();
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(pruning().with_windows(open())));
    bench.run_for(3600);
    assert_eq!((bench.writes(), bench.sync.history().len()), (vec![], ended));
    // Other rules are a reason to try it again, and none to go on without it.
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(otherwise(pruning())));
    bench.run_for(3600);
    assert_eq!(bench.writes(), [""; 0]);
    assert!(bench.sync.history().len() > ended || bench.sync.history().last().expect("one").count > 1);
}

#[test]
fn what_may_mend_it_does_not_wait_for_what_is_broken() {
    let mut bench = renamed();
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(otherwise(pruning())));
    bench.run_for(30);
    bench.push(&commit(3, [pool("newer")]));
    bench.run_for(60);
    let written = bench.writes();
    assert_eq!(written[0], "apply NodePool/newer", "another commit is another state: {written:?}");

    // In the same stage, too.
    let mut bench = Bench::new(pruning());
    bench.server.never_ready.insert("a".into());
    bench.push(&commit(1, [pool("a"), pool("b")]));
    bench.look();
    assert_eq!(bench.decide().actions.len(), 1);
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(otherwise(pruning())));
    bench.run_for(5);
    assert_eq!(bench.writes(), ["apply NodePool/a", "apply NodePool/b"]);
}

/// No window keeps what is empty, neither in the plan nor when it is carried out.
#[test]
fn a_pool_that_was_emptied_goes_although_the_window_closed_meanwhile() {
    let limits = BlastLimits { pools_max: 10, pools_percent: 100, nodes_percent: 100, ..policy().limits };
    let prune = PruneMode::Retire;
    let retiring = SyncPolicy { prune, prune_ceiling: prune, limits, ..policy() };
    let mut bench = Bench::new(retiring.clone());
    bench.push(&commit(1, [pool("old"), pool("new")]));
    bench.run_for(60);
    bench.fleet = fleet([("old", 2)]);
    bench.push(&commit(2, [pool("new")]));
    bench.run_for(60);
    assert_eq!(bench.writes()[2..], ["apply NodePool/old"], "it is retired");
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(retiring.with_windows(closed())));
    bench.run_for(60);
    assert_eq!(bench.writes(), [""; 0], "it has nodes");
    bench.push(&commit(3, [pool("new"), pool("late")]));
    bench.fleet = fleet([]);
    bench.run_for(60);
    assert_eq!(bench.writes(), ["delete NodePool/old"], "nor does it wait for what the window keeps out");
}

#[test]
fn a_namespace_that_comes_while_the_rules_change_is_not_forgotten() {
    let buffer = json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": { "namespace": "shop", "name": "room" },
        "spec": { "podTemplateRef": { "name": "room" }, "replicas": 1 },
    });
    let mut bench = Bench::new(policy());
    bench.push(&commit(1, [buffer]));
    bench.look();
    let decision = bench.sync.decide(bench.now);
    let [action] = &decision.actions[..] else { panic!("{:?}", decision.actions) };
    bench.sync.observe(bench.now, GitEvent::NamespaceChanged { namespace: "shop".into() });
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(otherwise(policy())));
    let outcome = Outcome::Permanent("namespaces \"shop\" not found".into());
    let result = provisor::gitops::sync::ObjectResult { object: action.object().clone(), outcome };
    let plan = decision.plan.clone().expect("it belongs to a plan");
    bench.sync.observe(bench.now, GitEvent::Applied { plan, results: vec![result] });
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply CapacityBuffer/shop/room"]);
}

/// A commit changes who provisions when it may be applied, and not before.
#[test]
fn who_provisions_changes_as_other_things_do() {
    let by_karpenter = || {
        let mut desired = (*commit(1, [pool("web")])).clone();
        desired.provisioner = Provisioner::Karpenter;
        Arc::new(desired)
    };
    let named_by = |policy: SyncPolicy| {
        let mut bench = Bench::new(policy);
        bench.push(&by_karpenter());
        bench.sync.provisioner(bench.now)
    };
    let karpenter = Some(Provisioner::Karpenter);
    assert_eq!(named_by(policy()), karpenter);
    assert_eq!(named_by(policy().with_windows(open())), karpenter);
    assert_eq!(named_by(policy().with_windows(closed())), None);
    assert_eq!(named_by(SyncPolicy { read_only: true, ..policy() }), None);

    let mut bench = Bench::new(policy());
    let until = bench.now.checked_add(seconds(60)).expect("in range");
    let suspended = GitEvent::Suspended { reason: "x".into(), actor: "y".into(), until: Some(until) };
    bench.sync.observe(bench.now, suspended);
    bench.push(&by_karpenter());
    assert_eq!((bench.sync.provisioner(bench.now), bench.sync.provisioner(until)), (None, karpenter));

    // Of what a person says yes to, it is the last.
    let mut bench = Bench::new(SyncPolicy { mode: SyncMode::Manual, ..policy() });
    bench.push(&by_karpenter());
    bench.run_for(60);
    assert_eq!(bench.sync.provisioner(bench.now), None);
    let named: Arc<str> = bench.sync.plan().expect("planned").hash.short().into();
    bench.sync.observe(bench.now, GitEvent::Confirmed { named, actor: "ada".into() });
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    assert_eq!(bench.sync.provisioner(bench.now), karpenter);
}

/// A yes to a plan of which nothing may be written proves nothing about what is in the cluster.
#[test]
fn a_record_that_was_made_again_is_not_believed_for_a_yes_that_writes_nothing() {
    let mut first = Bench::new(pruning());
    first.push(&commit(1, [class("default"), pool("web"), pool("old")]));
    first.run_for(60);
    let adopting = SyncPolicy { adopt: provisor::gitops::policy::AdoptMode::Take, ..pruning() };
    let mut bench = Bench::new(adopting.clone());
    bench.server = first.server;
    bench.server.writes.clear();
    bench.server.put(&pool("theirs"), "kubectl", "Update");
    bench.push(&commit(2, [class("default"), with(pool("web"), "/spec/weight", json!(5)), pool("theirs")]));
    bench.sync.observe(bench.now, GitEvent::PolicyChanged(SyncPolicy { read_only: true, ..adopting }));
    bench.run_for(60);
    let plan = bench.sync.plan().expect("planned");
    assert!(bench.sync.inventory().expect("rebuilt").is_rebuilt);
    let named: Arc<str> = plan.hash.short().into();
    bench.sync.observe(bench.now, GitEvent::Confirmed { named, actor: "ada".into() });
    bench.run_for(60);
    assert_eq!(bench.writes(), [""; 0]);
    assert!(bench.sync.inventory().expect("rebuilt").is_rebuilt);
}
