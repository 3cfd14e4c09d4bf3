//! Proposals played on a cluster that runs: what rolls, how fast, what is stuck, and whose fault it is.

use std::fmt::Write;

use serde_json::Value;

use super::{Proposal, environment, said};

const FLEET: &str = "name = \"shop\"\n[defaults]\nregion = \"us-east-1\"\n";
const CATALOG: &str = "\
instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types
m5.large,amd64,2,8192,1930m,6903Mi,29,,,0.096,0.041,us-east-1a us-east-1b,spot on-demand
";

/// A fleet whose pool asks for nothing but zones and a way to pay.
fn fleet(budget: &str) -> Proposal {
    fleet_with(&format!("{{ nodes: \"{budget}\" }}"), "us-east-1a, us-east-1b", CATALOG)
}

/// The same with budgets as they stand in a list, with other zones and another price list.
fn fleet_with(budgets: &str, zones: &str, catalog: &str) -> Proposal {
    let template = format!(
        r#"apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: {{{{ pool.name }}}}
spec:
  disruption: {{ consolidationPolicy: WhenEmpty, consolidateAfter: 0s, budgets: [{budgets}] }}
  template:
    spec:
      nodeClassRef: {{ group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }}
      expireAfter: Never
      requirements:
        - {{ key: karpenter.sh/capacity-type, operator: In, values: [{{{{ vars.pay }}}}] }}
        - {{ key: topology.kubernetes.io/zone, operator: In, values: [{{{{ vars.zones }}}}] }}
"#
    );
    let prod = format!(
        "[variables]\npay = \"on-demand\"\nzones = \"{zones}\"\n\n[pools.general]\nstrategy = \"mine\"\n"
    );
    let proposal = Proposal::new(&[
        ("fleet.toml", FLEET),
        ("templates/mine.yaml.j2", &template),
        ("environments/prod.toml", &prod),
    ]);
    std::fs::write(proposal.path().join("prices.csv"), catalog).expect("written");
    proposal
}

/// Nodes of a pool, each with one pod that asks for so much.
fn cluster(pool: &str, count: usize, cpu: &str, annotations: &str) -> String {
    let mut yaml = String::new();
    for number in 1..=count {
        let labels = format!(
            "karpenter.sh/nodepool: {pool}, node.kubernetes.io/instance-type: m5.large, topology.kubernetes.io/zone: us-east-1b, karpenter.sh/capacity-type: on-demand, kubernetes.io/arch: amd64, kubernetes.io/os: linux"
        );
        let size = "{ cpu: 1930m, memory: 6903Mi, pods: \"29\" }";
        let id = format!("aws:///us-east-1b/i-{pool}{number}");
        let annotations = if number == 1 { annotations } else { "" };
        let since = "lastTransitionTime: \"2026-03-02T08:00:00Z\"";
        write!(
            yaml,
            r#"---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {{ name: {pool}-{number}, creationTimestamp: "2026-03-02T08:00:00Z", labels: {{ {labels} }}, finalizers: [karpenter.sh/termination] }}
spec:
  nodeClassRef: {{ group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }}
  requirements: []
status:
  providerID: {id}
  nodeName: {pool}-node-{number}
  capacity: {size}
  allocatable: {size}
  conditions:
    - {{ type: Launched, status: "True", reason: Launched, {since} }}
    - {{ type: Registered, status: "True", reason: Registered, {since} }}
    - {{ type: Initialized, status: "True", reason: Initialized, {since} }}
---
apiVersion: v1
kind: Node
metadata:
  name: {pool}-node-{number}
  creationTimestamp: "2026-03-02T08:00:00Z"
  labels: {{ {labels}, karpenter.sh/registered: "true", karpenter.sh/initialized: "true", kubernetes.io/hostname: {pool}-node-{number} }}
spec: {{ providerID: {id} }}
status:
  capacity: {size}
  allocatable: {size}
  conditions: [{{ type: Ready, status: "True", {since} }}]
---
apiVersion: v1
kind: Pod
metadata:
  name: {pool}-pod-{number}
  namespace: shop
  creationTimestamp: "2026-03-02T08:00:00Z"
  annotations: {{ {annotations} }}
  ownerReferences: [{{ apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: web, controller: true }}]
spec:
  nodeName: {pool}-node-{number}
  containers: [{{ name: web, image: web, resources: {{ requests: {{ cpu: {cpu}, memory: 1Gi }} }} }}]
status: {{ phase: Running, startTime: "2026-03-02T08:00:00Z", conditions: [{{ type: Ready, status: "True" }}] }}
"#
        )
        .expect("text");
    }
    yaml
}

fn reviewed(proposal: &mut Proposal, from: &str, to: &str, snapshot: &str, code: i32) -> Value {
    proposal.edit("environments/prod.toml", from, to);
    proposal.git(&["branch", "base", "HEAD~1"]);
    std::fs::write(proposal.path().join("cluster.yaml"), snapshot).expect("written");
    let line = "--base base --snapshot cluster.yaml --catalog prices.csv --now 2026-03-02T09:00:00Z";
    let review = proposal.json(line, code);
    assert_eq!(review["mode"], "snapshot");
    environment(&review, "prod").clone()
}

/// `run` leaves pools alone that its repository did not put there, and so does the review of its cluster.
#[test]
fn nothing_is_bought_from_the_pools_of_others() {
    let pool = |name: &str, annotations: &str, weight: u32| {
        let class = "nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }";
        format!(
            "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{ name: {name}, annotations: {{ {annotations} }} }}\n\
             spec: {{ weight: {weight}, template: {{ spec: {{ {class}, requirements: [] }} }} }}\n"
        )
    };
    let waiting = "---\napiVersion: v1\nkind: Pod\nmetadata: { name: waits, namespace: shop }\nspec: { containers: [{ name: web, image: web, resources: { requests: { cpu: 1 } } }] }\nstatus: { phase: Pending, conditions: [{ type: PodScheduled, status: \"False\", reason: Unschedulable }] }\n";
    let pools_of = |tracking: &str| -> Vec<String> {
        let snapshot = cluster("theirs", 1, "1", "")
            + &pool("general", tracking, 1)
            + &pool("theirs", "", 100)
            + waiting;
        let review = reviewed(&mut fleet("10%"), "on-demand", "spot", &snapshot, 0);
        let pools = review["cost"]["byPool"].as_array().expect("a list");
        pools.iter().map(|pool| pool["pool"].as_str().expect("a name").to_owned()).collect()
    };
    let tracking = "provisor.dev/tracking-id: \"provisor:prod:karpenter.sh/NodePool:/general\"";
    assert_eq!(pools_of(tracking), ["general"]);
    // A cluster that nobody runs with Provisor yet: what serves its pods is what counts.
    assert_eq!(pools_of(""), ["general", "theirs"]);
}

/// Rows: REV-008
#[test]
fn rev_008_a_roll_goes_in_waves_of_its_budget() {
    let snapshot = cluster("general", 19, "1500m", "");
    let prod = reviewed(&mut fleet("20%"), "\"on-demand\"", "\"spot\"", &snapshot, 0);
    assert_eq!((&prod["nodes"]["drifted"], &prod["pods"]["moved"]), (&19.into(), &19.into()), "{prod:#}");
    let roll = &prod["roll"]["pools"][0];
    assert_eq!((&roll["nodes"], &roll["atOnce"], &roll["waves"]), (&19.into(), &4.into(), &5.into()));
    assert_eq!(prod["cost"]["usdPerHour"]["before"], "1.824");
    assert_eq!(prod["cost"]["usdPerHour"]["after"], "0.779");
}

/// What the base alone kept from being replaced is replaced by whoever lets it loose.
#[test]
fn nodes_that_a_proposal_lets_go_count_as_replaced() {
    let mut proposal = fleet("0");
    proposal.edit("environments/prod.toml", "\"on-demand\"", "\"spot\"");
    proposal.edit("templates/mine.yaml.j2", "nodes: \"0\"", "nodes: \"100%\"");
    proposal.git(&["branch", "base", "HEAD~1"]);
    let snapshot = cluster("general", 3, "1500m", "");
    std::fs::write(proposal.path().join("cluster.yaml"), snapshot).expect("written");
    for gate in ["--max-nodes-replaced 0", "--protect general"] {
        let line = "--base base --snapshot cluster.yaml --catalog prices.csv --now 2026-03-02T09:00:00Z";
        let review = proposal.json(&format!("{line} {gate}"), 1);
        let prod = environment(&review, "prod");
        assert_eq!(
            (&prod["nodes"]["drifted"], &prod["nodes"]["consolidated"]),
            (&3.into(), &0.into()),
            "{prod:#}"
        );
        assert_eq!(prod["roll"]["pools"][0]["nodes"], 3);
    }
}

/// Rows: REV-011
#[test]
fn rev_011_a_roll_that_never_ends_names_what_stops_it() {
    let snapshot = cluster("general", 3, "1500m", "");
    let prod = reviewed(&mut fleet("0"), "\"on-demand\"", "\"spot\"", &snapshot, 0);
    assert_eq!(
        (&prod["nodes"]["drifted"], prod["nodes"]["stuck"].as_array().unwrap().len()),
        (&0.into(), 3),
        "{prod:#}"
    );
    assert_eq!(prod["roll"]["pools"][0]["waves"], Value::Null);
    assert!(prod["roll"]["blockers"][0].as_str().unwrap().starts_with("general: "), "{:#}", prod["roll"]);
    // One pod that must not be disturbed keeps its own node only.
    let snapshot = cluster("general", 3, "1500m", "karpenter.sh/do-not-disrupt: \"true\"");
    let prod = reviewed(&mut fleet("100%"), "\"on-demand\"", "\"spot\"", &snapshot, 0);
    assert_eq!(prod["nodes"]["drifted"], 2, "{prod:#}");
    assert_eq!(prod["nodes"]["stuck"][0]["node"], "general-node-1", "{prod:#}");
    assert!(!prod["roll"]["blockers"].as_array().unwrap().is_empty());
}

/// Rows: REV-013
#[test]
fn rev_013_a_pod_whose_volume_stays_behind_loses_its_zone() {
    let mut snapshot = cluster("general", 1, "1500m", "");
    snapshot = snapshot.replace(
        "  containers: [",
        "  volumes: [{ name: data, persistentVolumeClaim: { claimName: data } }]\n  containers: [",
    );
    snapshot.push_str(
        r#"---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: data, namespace: shop, annotations: { pv.kubernetes.io/bind-completed: "yes" } }
spec: { volumeName: pv-data, storageClassName: "" }
status: { phase: Bound }
---
apiVersion: v1
kind: PersistentVolume
metadata: { name: pv-data }
spec:
  csi: { driver: ebs.csi.aws.com, volumeHandle: vol-1 }
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{ key: topology.kubernetes.io/zone, operator: In, values: [us-east-1b] }]
"#,
    );
    let prod = reviewed(&mut fleet("100%"), "\"us-east-1a, us-east-1b\"", "\"us-east-1a\"", &snapshot, 1);
    let pod = &prod["pods"]["newUnschedulable"][0];
    assert_eq!(pod["pod"], "shop/general-pod-1", "{prod:#}");
    assert_eq!((&pod["lostOnlyPool"], &pod["stillRuns"]), (&true.into(), &true.into()));
    assert_eq!(pod["reasons"][0]["pool"], "general");
}

/// Rows: REV-016
#[test]
fn rev_016_what_has_no_price_is_named_and_is_not_free() {
    let snapshot =
        cluster("general", 2, "1500m", "").replacen("instance-type: m5.large", "instance-type: x9.huge", 2);
    let mut proposal = fleet("0");
    let prod = reviewed(&mut proposal, "\"on-demand\"", "\"spot\"", &snapshot, 0);
    assert_eq!(prod["cost"]["unpriced"], serde_json::json!(["x9.huge"]), "{prod:#}");
    let line = "--base base --snapshot cluster.yaml --catalog prices.csv --now 2026-03-02T09:00:00Z";
    assert!(said(&proposal.review(line)).contains("(partial)"));
    // Nobody can say that it stays below a limit.
    let review = proposal.json(&format!("{line} --max-usd-per-hour 100"), 1);
    assert_eq!(review["verdict"], "fail");
}

/// Rows: REV-018
#[test]
fn rev_018_what_would_be_bought_anew_is_compared() {
    // Five nodes run what one could.
    let snapshot = cluster("general", 5, "100m", "");
    let prod = reviewed(&mut fleet("100%"), "\"on-demand\"", "\"spot\"", &snapshot, 0);
    let hour = &prod["cost"]["usdPerHour"];
    assert_eq!((&hour["before"], &hour["after"]), (&"0.096".into(), &"0.041".into()), "{prod:#}");
}

/// Rows: REV-009
#[test]
fn rev_009_the_tightest_budget_less_those_that_are_away_counts() {
    let budgets = r#"{ nodes: "20%" }, { nodes: "5" }"#;
    let mut proposal = fleet_with(budgets, "us-east-1a, us-east-1b", CATALOG);
    let (leaving, silent) = ("metadata: { name: general-30, ", "name: general-node-29\n");
    let mut snapshot = cluster("general", 30, "1500m", "");
    assert!(snapshot.contains(leaving) && snapshot.contains(silent));
    snapshot = snapshot
        .replace(leaving, "metadata: { name: general-30, deletionTimestamp: \"2026-03-02T08:59:00Z\", ");
    let at = snapshot.rfind(silent).expect("the node is there");
    let ready = snapshot[at..].find("status: \"True\"").expect("it has a condition") + at;
    snapshot.replace_range(ready..ready + "status: \"True\"".len(), "status: \"False\"");
    let prod = reviewed(&mut proposal, "\"on-demand\"", "\"spot\"", &snapshot, 0);
    let roll = &prod["roll"]["pools"][0];
    // The least of 6 and 5, and two of them are away already.
    assert_eq!(roll["atOnce"], 3, "{prod:#}");
}

/// Rows: REV-010
#[test]
fn rev_010_a_roll_pauses_while_a_window_is_closed() {
    let budgets = r#"{ nodes: "1" }, { nodes: "0", schedule: "0 9 * * 1-5", duration: 8h }"#;
    let mut proposal = fleet_with(budgets, "us-east-1a, us-east-1b", CATALOG);
    proposal.edit("environments/prod.toml", "\"on-demand\"", "\"spot\"");
    proposal.git(&["branch", "base", "HEAD~1"]);
    std::fs::write(proposal.path().join("cluster.yaml"), cluster("general", 20, "1500m", ""))
        .expect("written");
    let at = |now: &str| {
        let line = format!("--base base --snapshot cluster.yaml --catalog prices.csv --now {now}");
        environment(&proposal.json(&line, 0), "prod")["roll"]["pools"][0].clone()
    };
    // A Monday.
    let roll = at("2026-03-02T08:00:00Z");
    let pause = serde_json::json!([{ "from": "2026-03-02T09:00:00Z", "until": "2026-03-02T17:00:00Z" }]);
    assert_eq!((&roll["nodes"], &roll["atOnce"], &roll["waves"]), (&20.into(), &1.into(), &20.into()));
    assert_eq!((&roll["pauses"], &roll["ends"]), (&pause, &"2026-03-02T17:40:00Z".into()), "{roll:#}");
    // In the middle of the window nothing goes yet, and all of it goes later: that is no node that stays for ever.
    let roll = at("2026-03-02T12:00:00Z");
    assert_eq!((&roll["nodes"], &roll["atOnce"], &roll["waves"]), (&20.into(), &0.into(), &20.into()));
    assert_eq!(roll["pauses"][0]["until"], "2026-03-02T17:00:00Z");
    let line = "--base base --snapshot cluster.yaml --catalog prices.csv --now 2026-03-02T12:00:00Z";
    let prod = environment(&proposal.json(line, 0), "prod").clone();
    assert_eq!((&prod["nodes"]["drifted"], &prod["roll"]["blockers"]), (&20.into(), &serde_json::json!([])));
    // On a Saturday there is none.
    assert_eq!(at("2026-03-07T12:00:00Z")["pauses"], serde_json::json!([]));
}

/// Rows: REV-012
#[test]
fn rev_012_what_becomes_too_old_meanwhile_is_told_apart() {
    let mut snapshot = cluster("general", 8, "1500m", "");
    // Due a quarter of an hour after the review; the roll takes forty minutes.
    let (from, to) = ("  requirements: []\n", "  requirements: []\n  expireAfter: 75m\n");
    let at = snapshot.rfind(from).expect("a claim");
    snapshot.replace_range(at..at + from.len(), to);
    let prod = reviewed(&mut fleet("1"), "\"on-demand\"", "\"spot\"", &snapshot, 0);
    let expiring = serde_json::json!([{ "node": "general-node-8", "at": "2026-03-02T09:15:00Z" }]);
    assert_eq!(prod["roll"]["expiring"], expiring, "{prod:#}");
    // It would have gone without the change, at that moment or another.
    assert_eq!(prod["roll"]["pools"][0]["waves"], 8);
}

/// Rows: REV-014
#[test]
fn rev_014_pods_that_fall_back_and_those_that_waited_before_are_no_failure() {
    let catalog =
        format!("{CATALOG}m5.xlarge,amd64,4,16384,3920m,14162Mi,58,,,0.192,0.082,us-east-1c,on-demand\n");
    let mut proposal = fleet_with("{ nodes: \"100%\" }", "us-east-1b", &catalog);
    proposal.edit("environments/prod.toml", "\"on-demand\"", "\"spot, on-demand\"");
    // One pod fits no machine at all, before and after.
    let mut snapshot =
        cluster("general", 1, "1500m", "").replace("capacity-type: on-demand", "capacity-type: spot");
    snapshot.push_str(
        "---\napiVersion: v1\nkind: Pod\nmetadata: { name: giant, namespace: shop }\nspec:\n  containers: [{ name: web, image: web, resources: { requests: { cpu: \"64\" } } }]\nstatus: { phase: Pending, conditions: [{ type: PodScheduled, status: \"False\", reason: Unschedulable }] }\n",
    );
    // In the other zone nobody sells spot.
    let prod = reviewed(&mut proposal, "\"us-east-1b\"", "\"us-east-1c\"", &snapshot, 0);
    let pods = &prod["pods"];
    assert_eq!(pods["newUnschedulable"], serde_json::json!([]), "{prod:#}");
    assert_eq!(pods["waitingAnyway"], 1);
    assert_eq!(pods["fallbackOnly"], serde_json::json!(["shop/general-pod-1"]));
}

/// Rows: REV-045
#[test]
fn a_pool_with_many_nodes_does_not_go_unnoticed() {
    let mut proposal = fleet("100%");
    proposal.edit(
        "environments/prod.toml",
        "strategy = \"mine\"\n",
        "strategy = \"mine\"\n[pools.batch]\nstrategy = \"mine\"\n",
    );
    let snapshot = cluster("batch", 30, "1500m", "");
    let prod = reviewed(&mut proposal, "[pools.batch]\nstrategy = \"mine\"\n", "", &snapshot, 0);
    assert_eq!((&prod["nodes"]["retired"], &prod["pods"]["moved"]), (&30.into(), &30.into()), "{prod:#}");
    assert_eq!(prod["objects"][0]["impact"], "destructive");
    let roll = &prod["roll"]["pools"][0];
    assert_eq!(
        (&roll["pool"], &roll["reason"], &roll["nodes"]),
        (&"batch".into(), &"retired".into(), &30.into())
    );
    let line = "--base base --snapshot cluster.yaml --catalog prices.csv --fail-on destructive";
    let review = proposal.json(line, 1);
    assert_eq!(review["gates"][0]["message"], "removed with nodes: prod/batch (30 nodes)");
}

/// Rows: REV-021
#[test]
fn rev_021_an_old_snapshot_is_told_and_a_broken_one_is_an_error() {
    let mut proposal = fleet("100%");
    reviewed(&mut proposal, "\"on-demand\"", "\"spot\"", &cluster("general", 1, "1500m", ""), 0);
    let at = |moment: &str, more: &str| {
        proposal.review(&format!(
            "--base base --snapshot cluster.yaml --catalog prices.csv --now {moment} {more}"
        ))
    };
    let old = "2026-03-10T09:00:00Z";
    assert_eq!(at(old, "").status.code(), Some(0));
    assert!(said(&at(old, "")).contains("8 days ago"));
    assert_eq!(at(old, "--strict").status.code(), Some(5));
    assert_eq!(at(old, "--max-snapshot-age 10d").status.code(), Some(0));
    assert_eq!(at("2026-03-02T12:00:00Z", "--max-snapshot-age 1h").status.code(), Some(5));
    // "No" is an answer, however old what it is about: both are said, and neither hides the other.
    let both = at(old, "--strict --max-nodes-replaced 0 --output json");
    assert_eq!(both.status.code(), Some(1), "{}", said(&both));
    let review: serde_json::Value = serde_json::from_slice(&both.stdout).expect("a document");
    let codes: Vec<&str> =
        review["diagnostics"].as_array().unwrap().iter().filter_map(|one| one["code"].as_str()).collect();
    assert_eq!((&review["verdict"], &codes[..]), (&"fail".into(), &["SnapshotTooOld"][..]), "{review:#}");
    let told = String::from_utf8_lossy(&both.stderr).into_owned();
    assert!(
        told.contains("8 days ago") && told.contains("a gate failed, on a snapshot that is too old"),
        "{told}"
    );
    let comment = said(&at(old, "--strict --output markdown"));
    assert!(comment.contains("`SnapshotTooOld`"), "{comment}");
    for broken in [
        "kind: [",
        "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [{\"kind\": \"Pod\"",
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: { name: a }\nspec: { template: 5 }\n",
        "\u{0}\u{1}",
        "{\"kind\": \"List\", \"apiVersion\": \"v1\", \"items\": []}",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: a }\n",
        "{\"kind\": \"Status\", \"apiVersion\": \"v1\", \"status\": \"Failure\", \"message\": \"Unauthorized\", \"code\": 401}",
    ] {
        std::fs::write(proposal.path().join("cluster.yaml"), broken).expect("written");
        let output = at(old, "");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{broken}: {}", said(&output));
        assert!(said(&output).contains("cluster.yaml"), "{broken}: {}", said(&output));
    }
}
