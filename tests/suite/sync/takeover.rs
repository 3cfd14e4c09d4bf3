//! Objects that exist already: whose they are, and when they may be taken over.

use provisor::gitops::live::LiveState;
use provisor::gitops::plan::{ChangeAction, Consent, Verdict};
use provisor::gitops::policy::{AdoptMode, IgnoreRule, SyncPolicy};
use provisor::gitops::sync::{GitEvent, SyncRequest};
use serde_json::{Value, json};

use super::bench::*;

fn adopting(adopt: AdoptMode) -> SyncPolicy {
    SyncPolicy { adopt, ..policy() }
}

/// A cluster with `manifest` in it, which nobody tracks, and three nodes of `web`.
fn existing(manifest: Value) -> LiveState {
    LiveState::from_manifests([manifest], fleet([("web", 3)]))
}

#[test]
fn syn_008_an_untracked_object_is_adopted_only_as_the_mode_says() {
    let desired = commit(1, [pool("web")]);
    let differing = with(pool("web"), "/spec/template/spec/expireAfter", json!("24h"));

    let seen = plan(&desired, &existing(differing.clone()), &adopting(AdoptMode::Fail));
    let found = change(&seen, "web");
    assert_eq!((found.action, code(&seen, "web")), (ChangeAction::Adopt, "Unowned"));
    assert_eq!(found.impact.nodes(), Some(3), "the nodes that would drift");
    assert!(found.fields.iter().any(|field| field.path == "spec.template.spec.expireAfter"));
    assert!(seen.is_noop());
    let shown: Vec<_> = seen.rows().into_iter().map(|row| (row.change, row.field)).collect();
    let reason = "adopt: exists, is tracked by nobody, and differs in 1 field".to_owned();
    assert_eq!(shown, [("refused", reason), ("refused", "template.spec.expireAfter".into())]);

    assert_eq!(code(&plan(&desired, &existing(pool("web")), &adopting(AdoptMode::Fail)), "web"), "Unowned");
    assert_eq!(code(&plan(&desired, &existing(pool("web")), &adopting(AdoptMode::Match)), "web"), "Proceed");
    assert_eq!(
        code(&plan(&desired, &existing(differing.clone()), &adopting(AdoptMode::Match)), "web"),
        "Unowned"
    );

    let take = adopting(AdoptMode::Take);
    let asked = plan(&desired, &existing(differing.clone()), &take);
    assert_eq!(code(&asked, "web"), "AdoptNeedsConfirmation");
    let consent = Consent { plan: Some(asked.hash), override_protection: None };
    assert_eq!(code(&plan_with(&desired, &existing(differing.clone()), &take, &consent), "web"), "Proceed");
    let released = annotated(differing.clone(), "provisor.dev/adopt", "prod");
    assert_eq!(code(&plan(&desired, &existing(released), &take), "web"), "Proceed");
    let for_another = annotated(differing, "provisor.dev/adopt", "dev");
    assert_eq!(code(&plan(&desired, &existing(for_another), &take), "web"), "AdoptNeedsConfirmation");
}

#[test]
fn syn_008_what_was_adopted_is_ours() {
    let mut bench = Bench::new(adopting(AdoptMode::Take));
    bench.server.put(&with(pool("web"), "/spec/weight", json!(3)), "kubectl-create", "Update");
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    let plan = bench.sync.plan().expect("planned").hash.clone();
    let consent = Consent { plan: Some(plan), override_protection: None };
    bench.sync.observe(bench.now, GitEvent::Requested(SyncRequest { consent, ..SyncRequest::default() }));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    assert_eq!(bench.server.get("web")["spec"]["weight"], Value::Null, "made by hand, now ours, not in Git");
    assert!(bench.sync.plan().expect("planned").is_in_sync());
}

#[test]
fn syn_009_an_object_of_another_owner_is_refused_by_name() {
    let label = |key: &str, value: &str| {
        with(pool("web"), &format!("/metadata/labels/{}", key.replace('/', "~1")), json!(value))
    };
    let cases = [
        (
            annotated(pool("web"), "provisor.dev/tracking-id", "other:prod:karpenter.sh/NodePool:/web"),
            "environment prod of installation other",
        ),
        (
            annotated(pool("web"), "provisor.dev/tracking-id", "main:dev:karpenter.sh/NodePool:/web"),
            "environment dev of installation main",
        ),
        (
            annotated(pool("web"), "argocd.argoproj.io/tracking-id", "shop:karpenter.sh/NodePool:/web"),
            "Argo CD application shop",
        ),
        (label("kustomize.toolkit.fluxcd.io/name", "infra"), "Flux Kustomization default/infra"),
        (
            annotated(pool("web"), "meta.helm.sh/release-name", "karpenter-pools"),
            "Helm release default/karpenter-pools",
        ),
    ];
    let desired = commit(1, [pool("web")]);
    for (manifest, owner) in cases {
        let manifest = annotated(manifest, "provisor.dev/adopt", "prod");
        let live = existing(manifest);
        let seen = plan(&desired, &live, &adopting(AdoptMode::Take));
        assert_eq!(code(&seen, "web"), "SharedResource");
        assert_eq!(change(&seen, "web").verdict.message(), format!("belongs to {owner}"));
        let consent = Consent { plan: Some(seen.hash), override_protection: Some("really".into()) };
        let confirmed = plan_with(&desired, &live, &adopting(AdoptMode::Take), &consent);
        assert_eq!(code(&confirmed, "web"), "SharedResource");
    }
}

#[test]
fn fields_that_cannot_change_are_refused_with_a_way_out() {
    let live = LiveState::of_commit(&commit(1, [pool("web")]), "main", fleet([("web", 3)]));
    for (pointer, value) in [
        ("/spec/template/spec/nodeClassRef/kind", json!("OtherNodeClass")),
        ("/spec/template/spec/nodeClassRef/group", json!("example.com")),
        ("/spec/replicas", json!(3)),
    ] {
        let seen = plan(&commit(2, [with(pool("web"), pointer, value)]), &live, &policy());
        let Verdict::Refused { help, .. } = &change(&seen, "web").verdict else {
            panic!("{pointer} is immutable")
        };
        assert_eq!(code(&seen, "web"), "ImmutableField");
        assert!(help.contains("new name"), "{help}");
    }
    let sized = |count: u32| with(pool("web"), "/spec/replicas", json!(count));
    let live = LiveState::of_commit(&commit(1, [sized(3)]), "main", fleet([("web", 3)]));
    assert_eq!(code(&plan(&commit(2, [sized(5)]), &live, &policy()), "web"), "Proceed");
}

#[test]
fn what_is_refused_is_told_with_the_way_out() {
    let mut bench = Bench::new(policy());
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(60);
    bench.push(&commit(2, [with(pool("web"), "/spec/replicas", json!(3))]));
    bench.run();
    let way_out = "a pool cannot become static or dynamic after it was made; give the pool a new name";
    assert!(bench.has_said(way_out), "{:#?}", bench.said);
}

#[test]
fn syn_034_an_ignored_field_is_left_to_whoever_holds_it() {
    let ignoring = SyncPolicy {
        ignore: vec![IgnoreRule::new(Some("NodePool"), None, "/spec/limits").expect("selects")],
        ..policy()
    };
    let mut bench = Bench::new(ignoring);
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(60);
    bench.server.edit("web", "/spec/limits/cpu", json!("7"), "kubectl-scale");
    bench.push(&commit(2, [with(pool("web"), "/spec/weight", json!(4))]));
    bench.run_for(60);
    let live = bench.server.get("web");
    assert_eq!(
        (&live["spec"]["limits"]["cpu"], &live["spec"]["weight"]),
        (&json!("7"), &json!(4)),
        "adopted"
    );

    let theirs = json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "web" }, "spec": { "limits": { "cpu": "9" } } });
    bench.server.put(&theirs, "autoscaler", "Apply");
    bench.push(&commit(3, [with(pool("web"), "/spec/weight", json!(5))]));
    bench.look();
    let decision = bench.decide();
    let sent = serde_json::to_value(&decision.actions[0]).expect("serialises");
    assert_eq!(sent["manifest"]["spec"]["limits"]["cpu"], Value::Null, "stripped from what we send");
    bench.run_for(60);
    assert_eq!(bench.server.get("web")["spec"]["limits"]["cpu"], "9");
    assert!(bench.sync.plan().expect("planned").is_in_sync());
}

#[test]
fn syn_035_a_rule_that_selects_nothing_is_an_error() {
    let error = IgnoreRule::new(None, None, "/spec/limits").expect_err("no selector");
    assert_eq!(
        error.to_string(),
        "a rule that ignores `spec.limits` selects no object; name its kind, its name or both"
    );
}

#[test]
fn syn_061_a_read_only_installation_shows_the_plan_and_writes_nothing() {
    let mut bench = Bench::new(SyncPolicy { read_only: true, ..policy() });
    bench.push(&commit(1, [class("default"), pool("web")]));
    bench.run_for(600);
    assert!(bench.writes().is_empty());
    let plan = bench.sync.plan().expect("planned");
    assert_eq!((plan.changes.len(), code(plan, "web")), (2, "ReadOnly"));
}
