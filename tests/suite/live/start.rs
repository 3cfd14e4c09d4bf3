//! What a process finds when it starts: a commit that cannot be used, or a branch that is gone.

use serde_json::json;

use super::bench::{Bench, CLAIMS, POOLS, environment, is_true, text};

#[test]
fn a_successor_goes_on_while_no_commit_can_be_used() {
    let bench = Bench::of("region = \"us-east-1\"\nnonsense = [");
    let strangers = bench.plant_strangers();
    // A cluster that was never synced has nothing to go on with.
    let (code, log) = bench.start(&[]).end();
    assert_eq!(code, 2, "{log}");
    assert!(log.contains("environments/dev.toml:2"), "{log}");

    bench.fleet.commit("good", &[("environments/dev.toml", &environment("one"))]);
    let first = bench.start(&["--no-lease"]);
    bench.deploy("web", 2, "900m", "1Gi");
    bench.wait("all running", || bench.all_run(2));
    // As `kubectl get pods` shows them: 1/1.
    for pod in bench.pods() {
        let containers = &pod["status"]["containerStatuses"];
        assert_eq!(
            (&containers[0]["name"], &containers[0]["ready"]),
            (&"main".into(), &true.into()),
            "{pod:#}"
        );
    }
    first.stop();

    let broken = bench.fleet.commit("broken", &[("environments/dev.toml", "pools = 3\n")]);
    let second = bench.start(&["--no-lease"]);
    bench.deploy("more", 2, "15", "1Gi");
    bench.wait("all running", || bench.all_run(4));
    assert!(second.log().contains("the cluster stays as the last good one left it"), "{}", second.log());
    second.stop();

    bench.fleet.git(&["update-ref", "-d", "refs/heads/main"]);
    let _third = bench.start(&["--no-lease"]);
    bench.scale("more", 0);
    bench.scale("web", 1);
    bench.wait("smaller", || bench.all_run(1) && bench.nodes().len() == 1);
    bench.fleet.git(&["update-ref", "refs/heads/main", &broken]);
    bench.fleet.commit("good again", &[("environments/dev.toml", &environment("two"))]);
    let generation = || {
        let pool = bench.plane.api.get(&format!("{POOLS}/general")).expect("it is never removed");
        text(&pool, "/spec/template/metadata/labels/generation").to_owned()
    };
    bench.wait("mended", || generation() == "two");
    bench.expect_untouched(&strangers);
}

/// A pool changed hands: its claims say whose it is now, and its nodes still name a former owner.
#[test]
fn a_successor_plays_the_machines_of_its_claims_whatever_their_nodes_say() {
    let bench = Bench::new();
    let first = bench.start(&["--no-lease"]);
    bench.deploy("web", 2, "900m", "1Gi");
    bench.wait("all running", || bench.all_run(2));
    bench.wait("all initialized", || bench.claims().iter().all(|claim| is_true(claim, "Initialized")));
    first.stop();
    let nodes: Vec<String> =
        bench.nodes().iter().map(|node| text(node, "/metadata/name").to_owned()).collect();
    let renewed = || -> Vec<String> {
        let lease = |name: &String| {
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
            text(&bench.plane.api.get(&path).expect("a lease"), "/spec/renewTime").to_owned()
        };
        nodes.iter().map(lease).collect()
    };
    for name in &nodes {
        let former = json!({ "metadata": { "annotations": { "provisor.dev/owner": "provisor:former" } } });
        bench.plane.api.patch(&format!("/api/v1/nodes/{name}"), &former).expect("another owner's name");
    }
    let before = renewed();
    let _second = bench.start(&["--no-lease"]);
    let is_newer = |(now, before): (String, &String)| now != *before;
    bench.wait("kept alive", || renewed().into_iter().zip(&before).all(is_newer));
    bench.scale("web", 3);
    bench.wait("one more runs", || bench.all_run(3));
}

/// Machines were bought for the environment before, and somebody tries it now.
#[test]
fn simulated_machines_do_not_take_the_place_of_real_ones() {
    let bench = Bench::new();
    let class = json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "general" });
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": "real", "finalizers": ["karpenter.sh/termination"],
            "labels": { "karpenter.sh/nodepool": "general" },
            "annotations": { "provisor.dev/owner": "provisor:dev" },
        },
        "spec": { "nodeClassRef": class, "expireAfter": "Never", "requirements": [] },
    });
    bench.plane.api.post(CLAIMS, &claim).expect("a claim");
    let path = format!("{CLAIMS}/real");
    let machine = "aws:///us-east-1a/i-0123456789abcdef0";
    let status = json!({ "status": { "providerID": machine } });
    bench.plane.api.patch(&format!("{path}/status"), &status).expect("a launched claim");
    let before = bench.plane.api.get(&path).expect("it is there");
    let (code, log) = bench.run_as(0, &["--cloud", "simulated"], &[]).end();
    assert_eq!(code, 64, "{log}");
    assert!(log.contains(&format!("real of dev has the machine {machine}, which is real")), "{log}");
    assert_eq!(bench.plane.api.get(&path).expect("it stays"), before);
}
