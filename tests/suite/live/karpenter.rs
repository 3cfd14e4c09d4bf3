//! The real Karpenter, with its own simulated machines, on a bench in Provisor's place or beside it. Its definitions are ours, but for
//! the class of those machines.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::bench::{Bench, Running};
use crate::plane::{bound, made_by, path_of};

/// Of its node class.
pub const GROUP: &str = "karpenter.kwok.sh";
/// The name of the one node class.
pub const CLASS: &str = "default";

/// Makes what it needs to run.
pub fn install(bench: &Bench) {
    for object in [definition(), all_rights()] {
        bench.plane.api.apply(&path_of(&object), &object).expect("it is accepted");
    }
    let classes = format!("/apis/{GROUP}/v1alpha1/kwoknodeclasses");
    bench.wait("class known", || bench.plane.api.get(&classes).is_success());
    let class = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "KWOKNodeClass", "metadata": { "name": CLASS },
    });
    bench.plane.api.post(&classes, &class).expect("a class");
    // Its own definition says so by default.
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": Timestamp::now(),
    });
    let status = json!({ "status": { "conditions": [ready] } });
    bench.plane.api.patch(&format!("{classes}/{CLASS}/status"), &status).expect("a class that is ready");
}

/// Starts it; it ends with the test, or when the answer is dropped. Its lease is in `kube-system`.
pub fn start(bench: &Bench) -> Running {
    let program = made_by("go-tool", &["karpenter"]).expect("Karpenter is built");
    let mut command = bound::command(program);
    command
        .args(["--leader-election-namespace=kube-system", "--log-level=info"])
        .env("KUBECONFIG", bench.plane.user("karpenter"))
        .env("SYSTEM_NAMESPACE", "kube-system")
        // Any port that is free.
        .envs([("METRICS_PORT", "0"), ("HEALTH_PROBE_PORT", "0")]);
    bench.begin(command)
}

fn definition() -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = json!({
        "name": "v1alpha1", "served": true, "storage": true,
        "schema": { "openAPIV3Schema": schema }, "subresources": { "status": {} },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("kwoknodeclasses.{GROUP}") },
        "spec": {
            "group": GROUP, "scope": "Cluster", "versions": [version],
            "names": { "kind": "KWOKNodeClass", "plural": "kwoknodeclasses", "singular": "kwoknodeclass" },
        },
    })
}

fn all_rights() -> Value {
    let rbac = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "karpenter" },
        "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": rbac, "kind": "User", "name": "karpenter" }],
    })
}
