//! Snapshots that may be handed to anybody: nothing of what is left is secret, and it plans the same.

use provisor::api::reduced::reduce;
use provisor::api::snapshot;

use super::{Proposal, said};

/// A cluster as `kubectl` prints it, with much that is nobody's business.
const CLUSTER: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Secret
  metadata: { name: token, namespace: shop }
  data: { token: aHVudGVyMg== }
- apiVersion: v1
  kind: ConfigMap
  metadata: { name: settings, namespace: shop }
  data: { password: hunter2 }
- apiVersion: v1
  kind: Node
  metadata:
    name: node-1
    uid: n1
    creationTimestamp: "2026-03-02T08:00:00Z"
    labels: { kubernetes.io/hostname: node-1, node.kubernetes.io/instance-type: m5.large }
    annotations: { csi.volume.kubernetes.io/nodeid: hunter2, karpenter.sh/do-not-disrupt: "true" }
    managedFields: [{ manager: hunter2 }]
  spec: { providerID: "aws:///us-east-1a/i-1", taints: [{ key: a, effect: NoSchedule }], podCIDR: 10.9.8.0/24 }
  status:
    capacity: { cpu: "2", memory: 8Gi, pods: "29" }
    allocatable: { cpu: 1930m, memory: 6903Mi, pods: "29" }
    addresses: [{ type: InternalIP, address: 10.9.8.7 }]
    nodeInfo: { machineID: hunter2 }
    images: [{ names: [registry.example.com/hunter2] }]
    conditions: [{ type: Ready, status: "True", lastTransitionTime: "2026-03-02T08:00:00Z", message: hunter2 }]
- apiVersion: v1
  kind: Pod
  metadata:
    name: web-1
    namespace: shop
    uid: p1
    creationTimestamp: "2026-03-02T08:00:00Z"
    labels: { app: web }
    annotations:
      kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"containers":[{"env":[{"value":"hunter2"}]}]}}'
      controller.kubernetes.io/pod-deletion-cost: "7"
      example.com/note: hunter2
    ownerReferences: [{ apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: r1, controller: true }]
  spec:
    nodeName: node-1
    serviceAccountName: hunter2
    imagePullSecrets: [{ name: hunter2 }]
    priority: 5
    tolerations: [{ key: a, operator: Exists }]
    topologySpreadConstraints: [{ maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: { matchLabels: { app: web } } }]
    volumes:
    - { name: data, persistentVolumeClaim: { claimName: data } }
    - { name: scratch, ephemeral: { volumeClaimTemplate: { metadata: { annotations: { a: hunter2 } }, spec: { storageClassName: fast } } } }
    - { name: secret, secret: { secretName: hunter2 } }
    - { name: config, configMap: { name: hunter2 } }
    initContainers:
    - { name: setup, image: hunter2, command: [hunter2], resources: { requests: { cpu: "1" } } }
    - { name: proxy, image: hunter2, restartPolicy: Always, resources: { requests: { cpu: 100m } } }
    containers:
    - name: web
      image: registry.example.com/hunter2
      command: [serve]
      args: [--password=hunter2]
      env: [{ name: PASSWORD, value: hunter2 }]
      envFrom: [{ secretRef: { name: hunter2 } }]
      livenessProbe: { exec: { command: [hunter2] } }
      lifecycle: { preStop: { exec: { command: [hunter2] } } }
      ports: [{ name: hunter2, containerPort: 80, hostPort: 8080 }]
      resources: { requests: { cpu: 500m, memory: 1Gi } }
  status: { phase: Running, startTime: "2026-03-02T08:00:00Z", podIP: 10.9.8.6, message: hunter2, conditions: [{ type: Ready, status: "True", message: hunter2 }] }
- apiVersion: apps/v1
  kind: Deployment
  metadata: { name: api, namespace: shop, annotations: { note: hunter2 } }
  spec:
    replicas: 2
    selector: { matchLabels: { app: api } }
    template:
      metadata: { labels: { app: api }, annotations: { note: hunter2, karpenter.sh/do-not-disrupt: "true" } }
      spec: { containers: [{ name: api, image: hunter2, env: [{ name: A, value: hunter2 }], resources: { limits: { cpu: "1" } } }] }
- apiVersion: apps/v1
  kind: DaemonSet
  metadata: { name: logs, namespace: kube-system }
  spec:
    selector: { matchLabels: { app: logs } }
    template:
      metadata: { labels: { app: logs } }
      spec: { containers: [{ name: logs, image: hunter2, args: [hunter2], resources: { requests: { cpu: 50m } } }] }
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata: { name: data, namespace: shop, annotations: { pv.kubernetes.io/bind-completed: "yes", note: hunter2 } }
  spec: { volumeName: pv-data, storageClassName: fast }
  status: { phase: Bound }
- apiVersion: v1
  kind: PersistentVolume
  metadata: { name: pv-data }
  spec:
    csi: { driver: ebs.csi.aws.com, volumeHandle: hunter2, volumeAttributes: { a: hunter2 } }
    nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [{ key: topology.kubernetes.io/zone, operator: In, values: [us-east-1a] }] }] } }
- apiVersion: storage.k8s.io/v1
  kind: StorageClass
  metadata: { name: fast, annotations: { storageclass.kubernetes.io/is-default-class: "true" } }
  provisioner: ebs.csi.aws.com
  parameters: { kmsKeyId: hunter2 }
  volumeBindingMode: WaitForFirstConsumer
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: { name: web, namespace: shop }
  spec: { maxUnavailable: 1, selector: { matchLabels: { app: web } } }
- apiVersion: karpenter.k8s.aws/v1
  kind: EC2NodeClass
  metadata: { name: default }
  spec:
    role: nodes
    userData: "TOKEN=hunter2"
    amiSelectorTerms: [{ alias: al2023@latest }]
    subnetSelectorTerms: [{ tags: { a: b } }]
    securityGroupSelectorTerms: [{ tags: { a: b } }]
- apiVersion: karpenter.sh/v1
  kind: NodePool
  metadata: { name: general }
  spec:
    limits: { cpu: "10" }
    template:
      metadata: { labels: { team: green } }
      spec:
        nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }
        requirements: [{ key: karpenter.sh/capacity-type, operator: In, values: [on-demand] }]
"#;

/// Rows: REV-022
#[test]
fn rev_022_a_reduced_snapshot_holds_nothing_secret_and_plans_the_same() {
    let proposal = Proposal::new(&[("fleet.toml", "name = \"shop\"\n")]);
    let run = |args: &[&str]| {
        let mut command = assert_cmd::Command::cargo_bin("provisor").expect("the binary is built");
        command.current_dir(proposal.path()).env_remove("PROVISOR_REPO").args(args).output().expect("it runs")
    };
    std::fs::write(proposal.path().join("cluster.yaml"), CLUSTER).expect("written");
    let reduced = run(&["snapshot", "cluster.yaml"]);
    assert_eq!(reduced.status.code(), Some(0), "{}", said(&reduced));
    assert!(said(&reduced).contains("2 objects of kinds"), "{}", said(&reduced));
    let text = String::from_utf8(reduced.stdout.clone()).expect("text");
    for secret in
        ["hunter2", "aHVudGVyMg", "Secret", "ConfigMap", "10.9.8", "last-applied", "\"env\"", "\"command\""]
    {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    std::fs::write(proposal.path().join("cluster.json"), &reduced.stdout).expect("written");
    let plan = |file: &str| {
        let plan = run(&["plan", "--snapshot", file, "--output", "json"]);
        assert_eq!(plan.status.code(), Some(0), "{}", said(&plan));
        String::from_utf8(plan.stdout).expect("text")
    };
    assert!(plan("cluster.yaml").contains("shop/api-0"));
    assert_eq!(plan("cluster.json"), plan("cluster.yaml"));
    // What is reduced once is as small as it gets.
    assert_eq!(run(&["snapshot", "cluster.json"]).stdout, reduced.stdout);
    std::fs::write(proposal.path().join("cluster.yaml"), "kind: [").expect("written");
    let broken = run(&["snapshot", "cluster.yaml"]);
    assert_eq!((broken.status.code(), broken.stdout.len()), (Some(2), 0), "{}", said(&broken));
}

/// Rows: REV-022
#[test]
fn rev_022_workloads_of_the_examples_are_read_as_before() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut files = Vec::new();
    super::read_all(&root, &root, &mut files);
    let manifests = files.iter().filter(|(path, _)| path.contains("workload") && path.ends_with(".yaml"));
    let mut compared = 0;
    for (path, text) in manifests {
        let small = serde_json::to_string(&reduce(text, path).expect("objects").objects).expect("JSON");
        let (whole, small) =
            (snapshot::read(text, path).expect("objects"), snapshot::read(&small, path).expect("objects"));
        assert_eq!(small.objects, whole.objects, "{path}");
        compared += whole.objects.len();
    }
    assert!(compared > 10, "{compared}");
}
