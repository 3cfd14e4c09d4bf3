//! Machines of other families of images: they join by what they were told in their own form, and pods run on them.

use aws_sdk_ec2::types::ArchitectureValues;
use base64::Engine as _;
use serde_json::{Value, json};

use super::region::{CLUSTER, Region, environment, is_true};
use super::userdata;
use crate::bench::text;

/// The environment `dev` whose pool has this strategy, and whatever else.
fn with_strategy(strategy: &str, more: &str) -> String {
    let usual = environment("one");
    let changed = usual.replace(r#"strategy = "spot-with-on-demand-fallback""#, strategy);
    assert_ne!(changed, usual, "the strategy is there to be replaced");
    changed + more
}

/// Pods run on machines of the pool, which are nodes of this cluster like any other; what one of them was told.
fn expect_pods_to_run(region: &Region) -> String {
    let bench = &region.bench;
    bench.deploy("web", 3, "900m", "1Gi");
    bench.wait("all running", || bench.all_run(3) && region.are_one_to_one());
    bench.wait("all initialized", || bench.claims().iter().all(|claim| is_true(claim, "Initialized")));
    let (nodes, machines) = (bench.nodes(), region.living());
    for node in &nodes {
        let label = |key: &str| node["metadata"]["labels"][key].as_str().unwrap_or_default();
        assert_eq!((label("karpenter.sh/nodepool"), label("generation")), ("general", "one"), "{node}");
        let taints = node.pointer("/spec/taints").and_then(Value::as_array);
        assert!(taints.is_none_or(Vec::is_empty), "{node} is open");
    }
    let names: Vec<&str> = nodes.iter().map(|node| text(node, "/metadata/name")).collect();
    assert!(bench.pods().iter().all(|pod| names.contains(&text(pod, "/spec/nodeName"))));
    text(&machines[0], "/user_data").to_owned()
}

#[test]
fn pods_run_on_bottlerocket() {
    let region = Region::of(&with_strategy(r#"strategy = "bottlerocket""#, ""));
    let folder = format!("/aws/service/bottlerocket/aws-k8s-{}", region.version);
    for (machine, arch) in [("x86_64", ArchitectureValues::X8664), ("arm64", ArchitectureValues::Arm64)] {
        let image = region.runtime.block_on(region.cloud.image(&format!("bottlerocket-{machine}"), arch));
        region.control("parameters", json!({ format!("{folder}/{machine}/latest/image_id"): image }));
    }
    let running = region.start(&[]);
    let said = expect_pods_to_run(&region);
    let document: toml::Table = said.parse().expect("it is TOML");
    let kubernetes = &document["settings"]["kubernetes"];
    assert_eq!(kubernetes["cluster-name"].as_str(), Some(CLUSTER), "{said}");
    let told = userdata::read(&said).expect("it names a cluster");
    assert!(
        told.taints.contains(&json!({ "key": "karpenter.sh/unregistered", "effect": "NoExecute" })),
        "{told:?}"
    );
    assert_eq!(told.labels["generation"], "one");
    let pods = region.bench.nodes()[0]["status"]["allocatable"]["pods"].clone();
    assert_eq!(pods, told.max_pods.expect("it is told how many").to_string());
    drop(running);
}

/// A script of the repository's own is handed over as it is: what joins the machine to its cluster is its business.
#[test]
fn pods_run_on_machines_with_a_script_of_their_own() {
    let region = Region::new();
    let kubeconfig = std::fs::read_to_string(region.bench.plane.kubeconfig()).expect("a kubeconfig");
    let kubeconfig: Value = serde_json::from_str(&kubeconfig).expect("it is JSON");
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    let authority = std::fs::read(text(cluster, "/certificate-authority")).expect("a certificate");
    let script = format!(
        "#!/bin/bash\n/etc/eks/bootstrap.sh {CLUSTER} --apiserver-endpoint '{}' --b64-cluster-ca '{}' \\\n  \
         --kubelet-extra-args '--register-with-taints=karpenter.sh/unregistered:NoExecute'\n",
        text(cluster, "/server"),
        base64::engine::general_purpose::STANDARD.encode(authority),
    );
    region.runtime.block_on(region.cloud.image("mine", ArchitectureValues::X8664));
    let class = r#"
        [classes.mine]
        ami-family = "Custom"
        ami = [{ name = "mine" }]
        user-data-file = "user-data/join.sh"
        "#;
    let environment = with_strategy("strategy = \"on-demand\"\nclass = \"mine\"", class);
    let files = [("environments/dev.toml", environment.as_str()), ("user-data/join.sh", &script)];
    region.bench.fleet.commit("a class of its own", &files);
    let running = region.start(&[]);
    assert_eq!(expect_pods_to_run(&region), script);
    drop(running);
}
