//! `provisor plan`, whose answer other programs rely on.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{code, command, err, fleet, json as parse, out, run, schema};

const CATALOG: &str = "\
instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types
m5.large,amd64,2,8192,1930m,6903Mi,29,,,0.096,0.041,us-west-2a us-west-2b,spot on-demand
m5.xlarge,amd64,4,16384,3920m,14162Mi,58,,,0.192,0.08,us-west-2a us-west-2b,spot on-demand
";

const POOL: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: { name: default, creationTimestamp: "2026-03-04T10:00:00Z" }
spec:
  template:
    metadata: { labels: { team: green } }
    spec:
      nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }
      taints: [{ key: example.com/green, effect: NoSchedule }]
      requirements:
        - { key: karpenter.sh/capacity-type, operator: In, values: [on-demand] }
        - { key: topology.kubernetes.io/zone, operator: In, values: [us-west-2a] }
"#;

const DEPLOYMENT: &str = r#"
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: shop }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      tolerations: [{ operator: Exists }]
      containers: [{ name: web, image: web, resources: { requests: { cpu: 500m, memory: 512Mi } } }]
---
apiVersion: v1
kind: Pod
metadata: { name: huge, namespace: shop, creationTimestamp: "2026-03-04T10:30:00Z" }
spec:
  tolerations: [{ operator: Exists }]
  containers: [{ name: huge, image: huge, resources: { requests: { cpu: "64" } } }]
status: { phase: Pending, conditions: [{ type: PodScheduled, status: "False", reason: Unschedulable }] }
---
apiVersion: example.com/v1
kind: Widget
metadata: { name: one }
"#;

fn cluster(dir: &Path) {
    std::fs::write(dir.join("catalog.csv"), CATALOG).expect("the catalogue is written");
    std::fs::write(dir.join("cluster.yaml"), format!("{POOL}{DEPLOYMENT}")).expect("the snapshot is written");
}

const PLAN: &str = "plan --snapshot cluster.yaml --catalog catalog.csv";

#[test]
fn the_answer_has_the_shape_of_its_contract() {
    let dir = TempDir::new().expect("a temporary directory");
    cluster(dir.path());
    let done = run(dir.path(), &format!("{PLAN} --output json"));
    assert_eq!(code(&done), 0, "{}", err(&done));
    let plan = parse(&out(&done));
    schema::conforms("plan", &plan);
    assert_eq!(plan["now"], "2026-03-04T10:30:00Z", "the latest moment of the snapshot");
    let provisioning = &plan["capacity"]["provisioning"];
    let node = &provisioning["newNodes"][0];
    let expected = json!({
        "id": "new-1",
        "pool": "default",
        "taints": [{ "key": "example.com/green", "effect": "NoSchedule" }],
        "capacityType": "on-demand",
        "zones": ["us-west-2a"],
        "instanceTypes": ["m5.large", "m5.xlarge"],
        "launch": {
            "instanceType": "m5.large", "zone": "us-west-2a", "capacityType": "on-demand", "usdPerHour": "0.096",
        },
        "requests": { "cpu": "1", "memory": "1Gi", "pods": "2" },
    });
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&node[key], value, "{key}");
    }
    assert_eq!(node["labels"]["team"], "green");
    assert_eq!(node["pods"].as_array().map(Vec::len), Some(2));
    assert_eq!(provisioning["usdPerHour"], "0.096");
    assert_eq!(
        (&provisioning["lowerBoundUsdPerHour"], &provisioning["gap"]),
        (&json!("0.096"), &json!("0.0000"))
    );
    let left = &provisioning["unschedulable"][0];
    assert_eq!((&left["pod"], &left["reasons"][0]["pool"]), (&json!("shop/huge"), &json!("default")));
    assert_eq!(left["reasons"][0]["code"], "ResourcesExceedEveryType");
    assert_eq!(plan["sync"], json!({}));
}

#[test]
fn the_same_input_gives_the_same_bytes_from_a_file_or_a_pipe() {
    let dir = TempDir::new().expect("a temporary directory");
    cluster(dir.path());
    let first = out(&run(dir.path(), &format!("{PLAN} --output json")));
    assert_eq!(out(&run(dir.path(), &format!("{PLAN} --output json"))), first);
    let piped = command(dir.path(), "plan --snapshot - --catalog catalog.csv --output json")
        .write_stdin(format!("{POOL}{DEPLOYMENT}"))
        .output()
        .expect("the program starts");
    assert_eq!(out(&piped), first);
}

#[test]
fn people_read_tables_and_learn_what_was_skipped() {
    let dir = TempDir::new().expect("a temporary directory");
    cluster(dir.path());
    let done = run(dir.path(), PLAN);
    for part in [
        "new-1  default  m5.large  us-west-2a  on-demand  $0.096",
        "shop/huge  default  ResourcesExceedEveryType",
    ] {
        assert!(out(&done).contains(part), "`{part}` is missing in\n{}", out(&done));
    }
    assert!(
        out(&done)
            .ends_with("1 new node for 2 pods at $0.096/h (no plan is cheaper), 1 pod without a place\n"),
        "{}",
        out(&done)
    );
    assert_eq!(err(&done).lines().count(), 1);
    assert!(err(&done).contains("Widget"), "{}", err(&done));
    let silent = run(dir.path(), &format!("{PLAN} --output json"));
    assert!(parse(&err(&silent))["notice"].is_string());
}

#[test]
fn something_to_do_is_an_exit_code_only_if_asked_for() {
    let dir = TempDir::new().expect("a temporary directory");
    cluster(dir.path());
    assert_eq!(code(&run(dir.path(), &format!("{PLAN} --detailed-exitcode"))), 4);
    std::fs::write(dir.path().join("cluster.yaml"), POOL).expect("the snapshot is written");
    let done = run(dir.path(), &format!("{PLAN} --detailed-exitcode"));
    assert_eq!((code(&done), out(&done).as_str()), (0, "nothing to do\n"));
}

#[test]
fn a_broken_snapshot_or_catalogue_is_told_with_its_line() {
    let dir = TempDir::new().expect("a temporary directory");
    cluster(dir.path());
    let broken = POOL.replace("name: default, creation", "name: [default, creation");
    std::fs::write(dir.path().join("cluster.yaml"), broken).expect("the snapshot is written");
    let done = run(dir.path(), PLAN);
    assert_eq!(code(&done), 2);
    assert!(err(&done).contains("cluster.yaml:4:"), "{}", err(&done));
    std::fs::write(dir.path().join("cluster.yaml"), [b'a', 0xff]).expect("the snapshot is written");
    assert_eq!(code(&run(dir.path(), PLAN)), 2);
    // A pod that asks for less than nothing would make room for others.
    let negative = format!("{POOL}{}", DEPLOYMENT.replace("cpu: \"", "cpu: \"-"));
    std::fs::write(dir.path().join("cluster.yaml"), negative).expect("the snapshot is written");
    let done = run(dir.path(), PLAN);
    assert_eq!(code(&done), 2);
    assert!(err(&done).contains("must not be negative"), "{}", err(&done));

    cluster(dir.path());
    let broken = CATALOG.replace("0.192", "cheap");
    std::fs::write(dir.path().join("catalog.csv"), broken).expect("the catalogue is written");
    let done = run(dir.path(), PLAN);
    assert_eq!(code(&done), 2);
    assert!(err(&done).contains("catalog.csv:3:44"), "{}", err(&done));
}

#[test]
fn a_repository_replaces_the_pools_and_says_what_it_changes() {
    let (dir, fleet) = fleet();
    cluster(dir.path());
    let pods = DEPLOYMENT.trim_start().trim_start_matches("---");
    std::fs::write(dir.path().join("cluster.yaml"), format!("{POOL}---{pods}"))
        .expect("the snapshot is written");
    let line = "plan prod --snapshot ../cluster.yaml --catalog ../catalog.csv --output json";
    let done = run(&fleet, line);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let plan = parse(&out(&done));
    schema::conforms("plan", &plan);
    assert_eq!(plan["capacity"]["provisioning"]["newNodes"][0]["pool"], "general");
    assert_eq!(plan["capacity"]["provisioning"]["newNodes"][0]["capacityType"], "spot");
    let changes: Vec<&Value> = plan["sync"]["changes"].as_array().expect("changes").iter().collect();
    assert!(changes.iter().all(|change| change["action"] == "create"), "{changes:?}");
    assert_eq!(changes.len(), 3);
    let unmanaged = plan["sync"]["unmanaged"].as_array().expect("unmanaged");
    assert_eq!(unmanaged[0]["name"], "default");
    let remote = run(
        dir.path(),
        "plan --repo fleet prod --ref main --snapshot cluster.yaml --catalog catalog.csv --output json",
    );
    assert_eq!(parse(&out(&remote))["capacity"], plan["capacity"]);
}

#[test]
fn where_a_plan_ends_is_part_of_the_answer_if_asked_for() {
    let dir = TempDir::new().expect("a temporary directory");
    cluster(dir.path());
    let done = run(dir.path(), &format!("{PLAN} --until-settled --output json"));
    assert_eq!(code(&done), 0, "{}", err(&done));
    let plan = parse(&out(&done));
    schema::conforms("plan", &plan);
    let settled = &plan["capacity"]["settled"];
    assert_eq!(settled["quiescent"], true);
    let nodes = settled["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 1);
    assert_eq!((&nodes[0]["pool"], &nodes[0]["instanceType"]), (&json!("default"), &json!("m5.large")));
}

/// A buffer of a snapshot is planned for, after the pods that wait, and says what becomes of it.
#[test]
fn a_plan_keeps_the_room_that_buffers_ask_for() {
    let dir = TempDir::new().expect("a temporary directory");
    let pool = POOL.replace("      taints: [{ key: example.com/green, effect: NoSchedule }]\n", "");
    let buffers = r#"
---
apiVersion: v1
kind: PodTemplate
metadata: { name: unit, namespace: shop, generation: 4 }
template: { spec: { containers: [{ name: unit, resources: { requests: { cpu: 1500m } } }] } }
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: { name: spare, namespace: shop }
spec: { podTemplateRef: { name: unit }, replicas: 2, percentage: null }
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: { name: lost, namespace: shop }
spec: { scalableRef: { apiGroup: apps, kind: Deployment, name: nobody }, replicas: 2 }
"#;
    std::fs::write(dir.path().join("catalog.csv"), CATALOG).expect("the catalogue is written");
    std::fs::write(dir.path().join("cluster.yaml"), format!("{pool}{buffers}")).expect("written");
    let done = run(dir.path(), &format!("{PLAN} --until-settled --output json"));
    assert_eq!(code(&done), 0, "{}", err(&done));
    assert!(!err(&done).contains("skipped"), "{}", err(&done));
    let plan = parse(&out(&done));
    schema::conforms("plan", &plan);
    let provisioning = &plan["capacity"]["provisioning"];
    let node = &provisioning["newNodes"][0];
    assert_eq!(provisioning["newNodes"].as_array().map(Vec::len), Some(1));
    assert_eq!(node["launch"]["instanceType"], "m5.xlarge");
    assert_eq!(node["pods"], json!([]), "nobody waits");
    let names = json!(["shop/capacity-buffer-spare-1", "shop/capacity-buffer-spare-2"]);
    assert_eq!(node["bufferPods"], names);
    assert_eq!(provisioning["unschedulable"], json!([]));
    let told: Vec<_> = provisioning["buffers"].as_array().expect("a list").iter().collect();
    assert_eq!(told[0]["buffer"], "shop/lost");
    assert_eq!(told[0]["reason"], "ScalableRefNotFound");
    let spare = json!({ "buffer": "shop/spare", "pods": 2, "fitting": 0, "onNewNodes": 2, "reason": "RequiresNewCapacity" });
    for (key, value) in spare.as_object().expect("a map") {
        assert_eq!(&told[1][key], value, "{key}");
    }
    let settled = &plan["capacity"]["settled"];
    assert_eq!(settled["quiescent"], true);
    assert_eq!(settled["nodes"].as_array().map(Vec::len), Some(1), "the room stays");
    let off = run(dir.path(), &format!("{PLAN} --output json --feature-gates CapacityBuffer=false"));
    assert_eq!(parse(&out(&off))["capacity"]["provisioning"]["newNodes"], json!([]));
    let text = run(dir.path(), PLAN);
    assert!(out(&text).contains("Room that is kept"), "{}", out(&text));
    for (gates, is_told) in [("StaticCapacity=false", true), ("NodeRepair=true,StaticCapacity=true", false)] {
        let done = run(dir.path(), &format!("{PLAN} --feature-gates {gates}"));
        assert_eq!(code(&done), 0, "{}", err(&done));
        assert_eq!(err(&done).contains("`StaticCapacity=false` changes nothing"), is_told, "{}", err(&done));
    }
}

/// Pods of a node that is being deleted need a place like those that wait, and are named like them.
#[test]
fn pods_of_a_node_that_is_being_deleted_are_planned_for_by_name() {
    let dir = TempDir::new().expect("a temporary directory");
    let pool = POOL.replace("      taints: [{ key: example.com/green, effect: NoSchedule }]\n", "");
    let leaving = r#"
---
apiVersion: v1
kind: Node
metadata:
  name: n1
  labels:
    karpenter.sh/nodepool: default
    karpenter.sh/capacity-type: on-demand
    karpenter.sh/registered: "true"
    karpenter.sh/initialized: "true"
    node.kubernetes.io/instance-type: m5.xlarge
    topology.kubernetes.io/zone: us-west-2a
spec: { providerID: "aws:///us-west-2a/i-1" }
status:
  allocatable: { cpu: 3920m, memory: 14162Mi, pods: "58" }
  capacity: { cpu: "4", memory: 16384Mi, pods: "58" }
  conditions: [{ type: Ready, status: "True" }]
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: default-1
  labels: { karpenter.sh/nodepool: default, karpenter.sh/capacity-type: on-demand }
  deletionTimestamp: "2026-03-04T10:29:00Z"
  finalizers: [karpenter.sh/termination]
spec:
  nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }
  requirements: []
status: { providerID: "aws:///us-west-2a/i-1", nodeName: n1 }
---
apiVersion: v1
kind: Pod
metadata:
  name: moves
  namespace: shop
  ownerReferences: [{ apiVersion: apps/v1, kind: ReplicaSet, name: moves, uid: "1", controller: true }]
spec: { nodeName: n1, containers: [{ name: one, resources: { requests: { cpu: CPU } } }] }
status: { phase: Running }
"#;
    std::fs::write(dir.path().join("catalog.csv"), CATALOG).expect("the catalogue is written");
    for (cpu, is_placed) in [("1", true), ("500", false)] {
        let cluster = format!("{pool}{}", leaving.replace("CPU", cpu));
        std::fs::write(dir.path().join("cluster.yaml"), cluster).expect("written");
        let done = run(dir.path(), &format!("{PLAN} --output json"));
        assert_eq!(code(&done), 0, "{}", err(&done));
        let plan = parse(&out(&done));
        let provisioning = &plan["capacity"]["provisioning"];
        let new = provisioning["newNodes"].as_array().expect("a list");
        let lost = provisioning["unschedulable"].as_array().expect("a list");
        assert_eq!((new.len(), lost.len()), if is_placed { (1, 0) } else { (0, 1) }, "{plan:#}");
        match is_placed {
            true => assert_eq!(new[0]["pods"], json!(["shop/moves"])),
            false => assert_eq!(lost[0]["pod"], "shop/moves"),
        }
    }
}

/// Why each node stays, since when, and what was not done instead of what is: for programs and for people.
#[test]
fn nodes_that_stay_and_nodes_that_go_are_explained() {
    let dir = TempDir::new().expect("a temporary directory");
    let pool = POOL.replace("      taints: [{ key: example.com/green, effect: NoSchedule }]\n", "");
    let machine = |name: &str, pod: &str| {
        format!(
            r#"
---
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels:
    team: green
    karpenter.sh/nodepool: default
    karpenter.sh/capacity-type: on-demand
    karpenter.sh/registered: "true"
    karpenter.sh/initialized: "true"
    node.kubernetes.io/instance-type: m5.xlarge
    topology.kubernetes.io/zone: us-west-2a
spec: {{ providerID: "aws:///us-west-2a/{name}" }}
status:
  allocatable: {{ cpu: 3920m, memory: 14162Mi, pods: "58" }}
  capacity: {{ cpu: "4", memory: 16384Mi, pods: "58" }}
  conditions: [{{ type: Ready, status: "True" }}]
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: {name}-claim
  creationTimestamp: "2026-03-04T08:00:00Z"
  labels:
    team: green
    karpenter.sh/nodepool: default
    karpenter.sh/capacity-type: on-demand
    node.kubernetes.io/instance-type: m5.xlarge
    topology.kubernetes.io/zone: us-west-2a
spec:
  nodeClassRef: {{ group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }}
  requirements: []
  expireAfter: Never
status:
  providerID: "aws:///us-west-2a/{name}"
  nodeName: {name}
  lastPodEventTime: "2026-03-04T10:00:00Z"
  conditions:
    - {{ type: Launched, status: "True", reason: Launched, message: "" }}
    - {{ type: Registered, status: "True", reason: Registered, message: "" }}
    - {{ type: Initialized, status: "True", reason: Initialized, message: "", lastTransitionTime: "2026-03-04T08:01:00Z" }}
---
apiVersion: v1
kind: Pod
metadata:
  name: on-{name}
  namespace: shop
{pod}
  ownerReferences: [{{ apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: "1", controller: true }}]
spec: {{ nodeName: {name}, containers: [{{ name: one, resources: {{ requests: {{ cpu: 1500m }} }} }}] }}
status: {{ phase: Running, startTime: "2026-03-04T10:00:00Z", conditions: [{{ type: Ready, status: "True" }}] }}
"#
        )
    };
    let asks = "  annotations: { karpenter.sh/do-not-disrupt: 1h }";
    let full = "  labels: { app: full }";
    let cluster = format!("{pool}{}{}", machine("n1", asks), machine("n2", full));
    // What n1 has left is not enough.
    let cluster = cluster.replacen("cpu: 1500m", "cpu: 3000m", 1);
    std::fs::write(dir.path().join("catalog.csv"), CATALOG).expect("the catalogue is written");
    std::fs::write(dir.path().join("cluster.yaml"), cluster).expect("written");
    let asked = format!("{PLAN} --now 2026-03-04T10:30:00Z");
    let done = run(dir.path(), &format!("{asked} --output json"));
    assert_eq!(code(&done), 0, "{}", err(&done));
    let plan = parse(&out(&done));
    schema::conforms("plan", &plan);
    let disruption = &plan["capacity"]["disruption"];
    let kept = json!([{
        "node": "n1",
        "code": "PodDoNotDisrupt",
        "message": "pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=shop/on-n1)",
        "since": "2026-03-04T10:00:00Z",
        "nextLook": "2026-03-04T11:00:00Z",
        "waitsFor": "the pod ends or protects itself no longer",
    }]);
    assert_eq!(disruption["kept"], kept, "{disruption:#}");
    let command = &disruption["commands"][0];
    assert_eq!((&command["nodes"], &command["savingsUsdPerHour"]), (&json!(["n2"]), &json!("0.096")));
    assert_eq!(command["leastSavingsUsdPerHour"], "0.0048");
    let instead = json!([{
        "decision": "delete",
        "nodes": ["n2"],
        "savingsUsdPerHour": "0.192",
        "pods": 1,
        "code": "NeedsReplacement",
        "message": "its pod finds no place on what stays",
    }]);
    assert_eq!(command["alternatives"], instead);

    let text = out(&run(dir.path(), &asked));
    for table in [
        "What else might go, or come\n\
         NODES  INSTEAD  PODS  SAVES/H  NOT BECAUSE\n\
         n2     delete      1   $0.192  its pod finds no place on what stays\n",
        "Nodes that stay\n\
         NODE  CODE             SINCE                 NEXT LOOK             WHY\n\
         n1    PodDoNotDisrupt  2026-03-04T10:00:00Z  2026-03-04T11:00:00Z  pod has",
    ] {
        assert!(text.contains(table), "{table}\nis missing in\n{text}");
    }
    // A node that no moment frees waits for a change.
    let later = out(&run(dir.path(), &format!("{PLAN} --now 2026-03-04T11:30:00Z")));
    assert!(later.contains("NODE  CODE"), "{later}");
    assert!(later.lines().any(|line| line.starts_with("n1 ") && line.contains("on a change")), "{later}");
}

/// Terms are alternatives; one without conditions is none, whatever stands beside it.
#[test]
fn sch_436_an_affinity_term_without_conditions_selects_no_node() {
    let dir = TempDir::new().expect("a temporary directory");
    let pool = POOL.replace("      taints: [{ key: example.com/green, effect: NoSchedule }]\n", "");
    std::fs::write(dir.path().join("catalog.csv"), CATALOG).expect("the catalogue is written");
    let arch = "{ matchExpressions: [{ key: kubernetes.io/arch, operator: In, values: [amd64] }] }";
    let none = "{ matchExpressions: [{ key: kubernetes.io/arch, operator: In, values: [s390x] }] }";
    let cases = [
        ("[{}]".to_owned(), 0),
        (format!("[{{}}, {arch}]"), 1),
        (format!("[{none}, {{}}]"), 0),
        (format!("[{arch}]"), 1),
    ];
    for (terms, nodes) in cases {
        let pod = format!(
            r#"
---
apiVersion: v1
kind: Pod
metadata:
  name: picky
  namespace: shop
  ownerReferences: [{{ apiVersion: apps/v1, kind: ReplicaSet, name: picky, uid: "1", controller: true }}]
spec:
  containers: [{{ name: one, resources: {{ requests: {{ cpu: 1 }} }} }}]
  affinity: {{ nodeAffinity: {{ requiredDuringSchedulingIgnoredDuringExecution: {{ nodeSelectorTerms: {terms} }} }} }}
status: {{ phase: Pending, conditions: [{{ type: PodScheduled, status: "False", reason: Unschedulable }}] }}
"#
        );
        std::fs::write(dir.path().join("cluster.yaml"), format!("{pool}{pod}")).expect("written");
        let done = run(dir.path(), &format!("{PLAN} --output json"));
        assert_eq!(code(&done), 0, "{}", err(&done));
        let plan = parse(&out(&done));
        let provisioning = &plan["capacity"]["provisioning"];
        let count = |list: &str| provisioning[list].as_array().map_or(0, Vec::len);
        assert_eq!((count("newNodes"), count("unschedulable")), (nodes, 1 - nodes), "{terms}: {plan:#}");
    }
}

/// A buffer whose pods fit nowhere says why, as a pod does.
#[test]
fn a_buffer_without_a_place_says_why() {
    let dir = TempDir::new().expect("a temporary directory");
    let pool = POOL.replace("      taints: [{ key: example.com/green, effect: NoSchedule }]\n", "");
    let buffer = r#"
---
apiVersion: v1
kind: PodTemplate
metadata: { name: huge, namespace: shop, generation: 1 }
template: { spec: { containers: [{ name: unit, resources: { requests: { cpu: 9000 } } }] } }
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: { name: spare, namespace: shop }
spec: { podTemplateRef: { name: huge }, replicas: 2 }
"#;
    std::fs::write(dir.path().join("catalog.csv"), CATALOG).expect("the catalogue is written");
    std::fs::write(dir.path().join("cluster.yaml"), format!("{pool}{buffer}")).expect("written");
    let done = run(dir.path(), &format!("{PLAN} --output json"));
    assert_eq!(code(&done), 0, "{}", err(&done));
    let told = parse(&out(&done))["capacity"]["provisioning"]["buffers"][0]["message"].clone();
    let told = told.as_str().expect("a message");
    let (places, why) = told.split_once(", 2 have no place: ").expect(told);
    assert_eq!(places, "0 of its 2 pods have room, 0 need new nodes");
    assert!(why.contains("cpu") && why.ends_with("(default)"), "{why}");
}

/// Rows: SCH-384, OBS-006
#[test]
fn defaults_for_spreading_are_read_from_the_command_line_or_the_environment() {
    let dir = TempDir::new().expect("a temporary directory");
    cluster(dir.path());
    let nodes_with = |config: Option<&str>| {
        let mut plan = command(dir.path(), &format!("{PLAN} --output json"));
        if let Some(config) = config {
            plan.args(["--scheduler-config", config]);
        }
        let done = plan.output().expect("the program starts");
        assert_eq!(code(&done), 0, "{}", err(&done));
        parse(&out(&done))["capacity"]["provisioning"]["newNodes"].as_array().map_or(0, Vec::len)
    };
    let default =
        r#"{"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}"#;
    let config =
        |constraint: &str| format!(r#"{{"podTopologySpread": {{"defaultConstraints": [{constraint}]}}}}"#);
    assert_eq!((nodes_with(None), nodes_with(Some(""))), (1, 1));
    assert_eq!(nodes_with(Some(&config(default))), 2, "the two pods of the Deployment are kept apart");
    let mut plan = command(dir.path(), &format!("{PLAN} --output json"));
    plan.env("SCHEDULER_CONFIG", config(default));
    let by_environment = plan.output().expect("the program starts");
    let plan = parse(&out(&by_environment));
    assert_eq!(plan["capacity"]["provisioning"]["newNodes"].as_array().map(Vec::len), Some(2));
    for (faulty, wanted) in [
        (config(&default.replace('1', "0")), "defaultConstraints[0].maxSkew: must be from 1"),
        (config(&format!("{default}, {default}")), "defaultConstraints[1]: has the topologyKey"),
        ("podTopologySpread: [".into(), "--scheduler-config: "),
    ] {
        let mut plan = command(dir.path(), PLAN);
        plan.args(["--scheduler-config", &faulty]);
        let done = plan.output().expect("the program starts");
        assert_eq!((code(&done), out(&done).as_str()), (64, ""), "nothing is planned with {faulty}");
        assert!(err(&done).contains(wanted), "{}", err(&done));
    }
}

/// The shell of somebody who works with AWS names a region, and it is not that of every input.
#[test]
fn the_region_of_the_shell_decides_nothing() {
    let dir = TempDir::new().expect("a temporary directory");
    cluster(dir.path());
    for verb in
        [&format!("{PLAN} --output json"), "catalog show --output json", "plan --snapshot cluster.yaml"]
    {
        let plain = run(dir.path(), verb);
        assert_eq!(code(&plain), 0, "{verb}: {}", err(&plain));
        for region in ["eu-west-1", ""] {
            let mut other = command(dir.path(), verb);
            let done = other.env("AWS_REGION", region).output().expect("the program starts");
            assert_eq!((code(&done), out(&done)), (0, out(&plain)), "{verb} in {region}: {}", err(&done));
        }
    }
}

/// In a manifest every variable may be there, most of them empty.
#[test]
fn variables_that_are_set_to_nothing_say_nothing() {
    let dir = TempDir::new().expect("a temporary directory");
    cluster(dir.path());
    let with = |name: &str, value: &str| {
        let mut plan = command(dir.path(), &format!("{PLAN} --output json"));
        plan.env(name, value);
        plan.output().expect("the program starts")
    };
    let plain = out(&run(dir.path(), &format!("{PLAN} --output json")));
    for name in [
        "FEATURE_GATES",
        "SCHEDULER_CONFIG",
        "UNSUPPORTED_STORAGE_DRIVERS",
        "UNSUPPORTED_STORAGE_TOPOLOGIES",
        "TERMINATION_GRACE_PERIOD",
        "PREFERENCE_POLICY",
        "MIN_VALUES_POLICY",
        "PROVISOR_REPO",
    ] {
        let done = with(name, "");
        assert_eq!((code(&done), out(&done)), (0, plain.clone()), "{name}: {}", err(&done));
    }
    let done = with("TERMINATION_GRACE_PERIOD", "soon");
    assert_eq!(code(&done), 64);
    assert!(err(&done).contains("--termination-grace-period: "), "{}", err(&done));
}

#[test]
fn pods_whose_volume_needs_what_machines_do_not_run_are_left_out() {
    const STORED: &str = r#"
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: { name: auto }
provisioner: ebs.csi.eks.amazonaws.com
volumeBindingMode: WaitForFirstConsumer
allowedTopologies: [{ matchLabelExpressions: [{ key: topology.kubernetes.io/zone, values: [us-west-2a] }] }]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: data, namespace: shop }
spec: { storageClassName: auto, accessModes: [ReadWriteOnce], resources: { requests: { storage: 1Gi } } }
---
apiVersion: v1
kind: Pod
metadata: { name: stored, namespace: shop }
spec:
  tolerations: [{ operator: Exists }]
  containers: [{ name: c, image: c, resources: { requests: { cpu: 500m } } }]
  volumes: [{ name: data, persistentVolumeClaim: { claimName: data } }]
"#;
    let dir = TempDir::new().expect("a temporary directory");
    cluster(dir.path());
    std::fs::write(dir.path().join("cluster.yaml"), format!("{POOL}{STORED}")).expect("it is written");
    let codes = |more: &str| {
        let done = run(dir.path(), &format!("{PLAN} --output json {more}"));
        assert_eq!(code(&done), 0, "{}", err(&done));
        let left = parse(&out(&done))["capacity"]["provisioning"]["unschedulable"].clone();
        let left: Vec<String> =
            left.as_array().into_iter().flatten().map(|pod| pod["reasons"][0]["code"].to_string()).collect();
        left
    };
    assert!(codes("").is_empty());
    for more in [
        "--unsupported-storage-drivers other.example.com,ebs.csi.eks.amazonaws.com",
        "--unsupported-storage-topologies topology.kubernetes.io/zone",
    ] {
        assert_eq!(codes(more), ["\"VolumeNotUsable\""], "{more}");
    }
}

/// A pool that keeps two nodes, of which none is there.
const FIXED: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: { name: base, creationTimestamp: "2026-03-04T10:00:00Z" }
spec:
  replicas: 2
  template:
    spec:
      nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }
      requirements:
        - { key: karpenter.sh/capacity-type, operator: In, values: [on-demand] }
"#;

#[test]
fn nodes_that_a_static_pool_lacks_are_among_the_new_nodes() {
    let dir = TempDir::new().expect("a temporary directory");
    cluster(dir.path());
    let write = |text: &str| std::fs::write(dir.path().join("cluster.yaml"), text).expect("it is written");
    write(FIXED);
    let done = run(dir.path(), &format!("{PLAN} --output json --detailed-exitcode"));
    assert_eq!(code(&done), 4, "{}", err(&done));
    let plan = parse(&out(&done));
    schema::conforms("plan", &plan);
    let provisioning = &plan["capacity"]["provisioning"];
    let nodes = provisioning["newNodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 2);
    for node in nodes {
        assert_eq!((&node["pool"], &node["pods"]), (&json!("base"), &json!([])));
        assert_eq!(node["launch"]["instanceType"], "m5.large");
        assert_eq!(node["reason"], "StaticPool");
        assert_eq!(node["message"], "pool base keeps 2 nodes");
    }
    assert_eq!(provisioning["usdPerHour"], "0.192");
    let expected = json!([{
        "pool": "base", "replicas": 2, "nodes": 0, "newNodes": 2, "reason": "Missing",
        "message": "it lacks 2 nodes, launched at once",
    }]);
    assert_eq!(provisioning["staticPools"], expected);
    let told = out(&run(dir.path(), PLAN));
    for part in [
        "new-2  base  m5.large  us-west-2a  on-demand  $0.096",
        "base         2      0    2  Missing  it lacks 2 nodes, launched at once",
        "2 new nodes of static pools at $0.192/h\n",
    ] {
        assert!(told.contains(part), "`{part}` is missing in\n{told}");
    }
    // Pods that wait come first and get nodes of their own.
    write(&format!("{FIXED}---{POOL}{DEPLOYMENT}"));
    let told = out(&run(dir.path(), &format!("{PLAN} --until-settled")));
    assert!(
        told.contains(
            "3 new nodes (2 of static pools) for 2 pods at $0.288/h (no plan is cheaper), 1 pod without"
        ),
        "{told}"
    );
    let ids = |line: &&str| line.starts_with("new-") && line.contains(" base ");
    let named: Vec<&str> = told.lines().filter(ids).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(named, ["new-2", "new-3", "new-2", "new-3"], "the end calls them by the same names");
    write(&FIXED.replace("replicas: 2", "replicas: 2\n  limits: { nodes: 1 }"));
    let told = out(&run(dir.path(), PLAN));
    let why = "LimitReached  limits.nodes of pool base leaves room for 1 of 2";
    assert!(told.contains(why) && told.ends_with("1 new node of static pools at $0.096/h\n"), "{told}");
}

#[test]
fn nodes_of_a_static_pool_that_a_repository_wants_are_planned_for() {
    let dir = TempDir::new().expect("a temporary directory");
    std::fs::create_dir(dir.path().join("environments")).expect("a folder");
    std::fs::write(dir.path().join("fleet.toml"), "name = \"shop\"\n").expect("the fleet is written");
    let pool = "[pools.base]\nstrategy = \"static\"\nreplicas = 3\n";
    std::fs::write(dir.path().join("environments/prod.toml"), pool).expect("the environment is written");
    let done = run(dir.path(), "plan prod --repo . --output json");
    assert_eq!(code(&done), 0, "{}", err(&done));
    let plan = parse(&out(&done));
    assert_eq!(plan["capacity"]["provisioning"]["newNodes"].as_array().map(Vec::len), Some(3));
    assert_eq!(plan["sync"]["changes"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_catalogue_of_other_bytes_than_text_names_the_place() {
    let dir = TempDir::new().expect("a directory");
    let mut bytes = CATALOG.as_bytes().to_vec();
    bytes.extend("zones: «ä».\u{e9}".as_bytes());
    bytes.push(0xe9);
    std::fs::write(dir.path().join("latin.csv"), bytes).expect("the catalogue is written");
    let output = run(dir.path(), "catalog show --catalog latin.csv");
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("latin.csv:4:13: this is not UTF-8 text"), "{}", err(&output));
    assert!(err(&output).contains("Save the catalogue as UTF-8."), "{}", err(&output));
}
