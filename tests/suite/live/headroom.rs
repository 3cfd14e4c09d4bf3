//! Room that a pool keeps free for pods to come: two objects of the commit, a machine for nobody, and no waiting.

use serde_json::{Value, json};

use super::bench::{Bench, environment, is_true, text};

const BUFFER: &str = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers/headroom-general";
const TEMPLATE: &str = "/api/v1/namespaces/default/podtemplates/headroom-general";

/// Two pods of this size, which is that of the pods that come.
const KEPT: &str = r#"headroom = { pods = 2, cpu = "1", memory = "1Gi" }"#;

/// And something that goes when a commit does not want it any more.
const OVERLAY: &str = r#"
[overlays.cheap]
requirements = [{ key = "node.kubernetes.io/instance-type", operator = "In", values = ["c7i.large"] }]
priceAdjustment = "-1%"
"#;

fn with_headroom(generation: &str) -> String {
    format!("{}\n{KEPT}\n{OVERLAY}", environment(generation).trim_end())
}

/// How often the template was written.
fn writes(bench: &Bench) -> usize {
    bench.requests_for("podtemplates", "patch").len()
}

#[test]
fn headroom_of_a_commit_is_kept_free_until_pods_come() {
    let bench = Bench::of(&with_headroom("one"));
    let strangers = bench.plant_strangers();
    let path = bench.plant_environment();
    let running = bench.start(&["--output", "json", "--prune", "retire"]);
    let standing = || bench.plane.api.get(&path).body;
    bench.wait("room is kept", || {
        is_true(&bench.plane.api.get(BUFFER).body, "ReadyForProvisioning") && !bench.nodes().is_empty()
    });
    bench.wait("synced", || text(&standing(), "/status/sync") == "Synced");
    bench.wait("ready", || bench.claims().iter().all(|claim| is_true(claim, "Initialized")));
    let template = bench.plane.api.get(TEMPLATE).expect("what it is measured by");
    assert_eq!(
        text(&template, "/template/spec/restartPolicy"),
        "Always",
        "the API server fills in more than we wrote"
    );
    let kept: Vec<String> = bench.claims_made();

    // Pods of that size wait for no machine.
    bench.deploy("come", 2, "1", "1Gi");
    bench.wait("running", || bench.all_run(2));
    let names: Vec<String> =
        bench.nodes().iter().map(|node| text(node, "/metadata/name").to_owned()).collect();
    let claims = bench.claims();
    let is_kept = |node: &str| {
        let mut of = claims.iter().filter(|claim| text(claim, "/status/nodeName") == node);
        of.any(|claim| kept.iter().any(|name| name == text(claim, "/metadata/name")))
    };
    let used: Vec<Value> = bench.pods();
    assert!(
        used.iter().all(|pod| is_kept(text(pod, "/spec/nodeName"))),
        "on what was kept: {used:?} {names:?}"
    );
    // And as much is kept again.
    bench.wait("room is kept again", || bench.claims_made().len() > kept.len());

    // Another commit that says the same of it: it is not written again, and changes if the commit does.
    bench
        .fleet
        .commit("another limit", &[("environments/dev.toml", &with_headroom("one").replace("200", "201"))]);
    let limit = "/spec/limits/cpu";
    let pool = || bench.plane.api.get("/apis/karpenter.sh/v1/nodepools/general").body;
    bench.wait("applied", || text(&pool(), limit) == "201");
    assert_eq!(writes(&bench), 1, "{}", running.log());
    let overlay = || bench.plane.api.get("/apis/karpenter.sh/v1alpha1/nodeoverlays/cheap").code;
    assert_eq!(overlay(), 200);
    let smaller = with_headroom("one").replace("1Gi", "2Gi").replace(OVERLAY, "");
    bench.fleet.commit("another size", &[("environments/dev.toml", &smaller)]);
    let request = "/template/spec/containers/0/resources/requests/memory";
    bench.wait("applied", || text(&bench.plane.api.get(TEMPLATE).body, request) == "2Gi");
    bench.wait("what left Git is gone, though nobody judges templates", || overlay() == 404);
    assert_eq!(writes(&bench), 2);

    // Somebody puts another template under its name: no room is kept by its measure, and all is as before when it is gone.
    let replicas = || bench.plane.api.get(BUFFER).body.pointer("/spec/replicas").and_then(Value::as_i64);
    let mut theirs = bench.plane.api.get(TEMPLATE).body;
    theirs["metadata"] = json!({ "name": "headroom-general", "namespace": "default" });
    bench.wait("replaced", || {
        bench.plane.api.delete(TEMPLATE).expect("a template");
        bench.plane.api.post(TEMPLATE.rsplit_once('/').expect("a list").0, &theirs).code == 201
    });
    bench.wait("no room is kept", || replicas() == Some(0));
    bench.wait("told", || {
        text(&standing(), "/status/sync") == "OutOfSync"
            && running.log().contains("it would keep room for PodTemplate/default/headroom-general")
    });
    bench.plane.api.delete(TEMPLATE).expect("theirs");
    bench.wait("kept again", || replicas() == Some(2));
    bench.wait("synced", || text(&standing(), "/status/sync") == "Synced");

    // What a commit does not want any more goes, and with it the machines.
    bench.scale("come", 0);
    bench.fleet.commit("without", &[("environments/dev.toml", &environment("one"))]);
    bench.wait("gone", || [BUFFER, TEMPLATE].iter().all(|path| bench.plane.api.get(path).code == 404));
    bench.wait("given back", || bench.nodes().is_empty() && bench.claims().is_empty());
    bench.expect_untouched(&strangers);
}

/// Whoever installs the definitions after the program need not start it again.
#[test]
fn headroom_is_kept_once_somebody_can_make_a_buffer() {
    let kept = KEPT.replace(" }", ", namespace = \"rooms\" }");
    let bench = Bench::of(&with_headroom("one").replace(KEPT, &kept));
    let definition = |name: &str| format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let definitions = ["capacitybuffers.autoscaling.x-k8s.io", "nodeoverlays.karpenter.sh"].map(definition);
    let taken: Vec<Value> = definitions.iter().map(|path| bench.plane.api.get(path).body).collect();
    for path in &definitions {
        bench.plane.api.delete(path).expect("a definition");
        bench.wait("there is no such kind", || bench.plane.api.get(path).code == 404);
    }
    let path = bench.plant_environment();
    let running = bench.start(&["--output", "json", "--prune", "retire"]);
    let lacking = |object: &str, what: &str| {
        let standing = bench.plane.api.get(&path).body;
        let mut conditions = standing["status"]["conditions"].as_array().into_iter().flatten();
        let rejected = conditions.find(|condition| condition["type"] == "Rejected");
        rejected.is_some_and(|condition| {
            let message = text(condition, "/message");
            message.split("; ").any(|one| one.contains(object) && one.contains(what))
        })
    };
    bench.wait("the kinds are missing", || {
        ["NodeOverlay/", "CapacityBuffer/"].iter().all(|kind| lacking(kind, "knows no such kind"))
    });
    // What has nothing to do with either goes on.
    bench.deploy("first", 1, "1", "1Gi");
    bench.wait("running", || bench.all_run(1));
    let nodes = bench.nodes().len();
    for definition in taken {
        let wanted = json!({
            "apiVersion": definition["apiVersion"], "kind": definition["kind"],
            "metadata": { "name": definition["metadata"]["name"], "annotations": definition["metadata"]["annotations"] },
            "spec": definition["spec"],
        });
        let made = bench.plane.api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &wanted);
        made.expect("a definition");
    }
    bench.wait("the namespace is missing", || {
        let lacks = |kind: &str| lacking(kind, "namespaces \"rooms\" not found");
        lacks("PodTemplate/") && lacks("CapacityBuffer/") && !lacking("NodeOverlay/", "no such kind")
    });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "rooms" } });
    bench.plane.api.post("/api/v1/namespaces", &namespace).expect("a namespace");
    bench.wait("room is kept", || {
        let buffer = BUFFER.replace("default", "rooms");
        is_true(&bench.plane.api.get(&buffer).body, "ReadyForProvisioning") && bench.nodes().len() > nodes
    });
    bench.wait("synced", || text(&bench.plane.api.get(&path).body, "/status/sync") == "Synced");
    let said = |what: &str| running.log().matches(what).count();
    assert_eq!(said("nodeoverlays count from when there are any"), 1, "{}", running.log());
}
