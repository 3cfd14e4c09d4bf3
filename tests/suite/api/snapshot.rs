//! A file that stands for a cluster.

use std::sync::Arc;

use provisor::api::Object;
use provisor::api::snapshot::{self, Snapshot};
use provisor::model::pod::{Pod, PodPhase};

fn read(text: &str) -> Snapshot {
    snapshot::read(text, "cluster.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str) -> String {
    snapshot::read(text, "cluster.yaml").expect_err("refused").to_string()
}

fn pods(snapshot: &Snapshot) -> Vec<&Pod> {
    let pods = snapshot.objects.iter().filter_map(|object| match object {
        Object::Pod(pod) => Some(pod),
        _ => None,
    });
    pods.collect()
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    pods(snapshot).iter().map(|pod| pod.key.to_string()).collect()
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: shop }
spec:
  replicas: 3
  template:
    metadata: { labels: { app: web } }
    spec: { containers: [{ name: web, resources: { requests: { cpu: 500m } } }] }
";

#[test]
fn a_controller_without_pods_gets_those_it_wants() {
    let snapshot = read(DEPLOYMENT);
    assert_eq!(names(&snapshot), ["shop/web-0", "shop/web-1", "shop/web-2"]);
    let pods = pods(&snapshot);
    assert!(pods.iter().all(|pod| pod.is_unschedulable && pod.phase == PodPhase::Pending));
    assert!(pods.iter().all(|pod| Arc::ptr_eq(&pod.shape, &pods[0].shape)), "equal pods share a shape");
    assert_eq!(pods[0].controller().map(|owner| &*owner.kind), Some("Deployment"));
}

#[test]
fn a_request_above_its_limit_is_refused_as_by_an_api_server() {
    let pod = |resources: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{ name: web }}\nspec:\n  containers:\n  - name: web\n    resources: {resources}\n"
        )
    };
    for (resources, place, message) in [
        ("{ requests: { cpu: 1 }, limits: { cpu: 500m } }", "7:35", "asks for 1, and the limit is 500m"),
        (
            "{ limits: { memory: 1Gi }, requests: { memory: 1025Mi } }",
            "7:63",
            "asks for 1025Mi, and the limit is 1Gi",
        ),
        (
            "{ requests: { nvidia.com/gpu: 1 }, limits: { nvidia.com/gpu: '2' } }",
            "7:46",
            "asks for 1, and the limit is 2: of nvidia.com/gpu both must be the same",
        ),
    ] {
        let refused = refused(&pod(resources));
        assert!(refused.contains(place) && refused.contains(message), "{resources}: {refused}");
    }
    let refused = refused(&pod("{ requests: { cpu: 1 }, limits: { cpu: 500m } }"));
    assert!(refused.contains("lower the request, or raise `limits.cpu`"), "{refused}");
    let template = DEPLOYMENT.replace("{ cpu: 500m } }", "{ cpu: 500m }, limits: { cpu: 400m } }");
    assert!(snapshot::read(&template, "cluster.yaml").is_err(), "of a template as well");
    for resources in [
        "{ requests: { cpu: '0.5' }, limits: { cpu: 500m } }",
        "{ requests: { cpu: 1 }, limits: { memory: 1Gi } }",
        "{ limits: { cpu: 2 } }",
        "{ requests: { nvidia.com/gpu: 1 }, limits: { nvidia.com/gpu: 1 } }",
    ] {
        assert_eq!(names(&read(&pod(resources))), ["default/web"], "{resources}");
    }
}

#[test]
fn a_file_that_nobody_wrote_into_is_no_empty_cluster() {
    for text in ["", "\n", "\u{feff}"] {
        assert_eq!(
            refused(text),
            "cluster.yaml: there is nothing in it; did what should have written it fail?"
        );
    }
    for text in ["apiVersion: v1\nkind: List\nitems: []\n", "{\"items\":[]}", "# nothing yet\n"] {
        assert!(read(text).objects.is_empty());
    }
}

/// As `kubectl get --raw` leaves it where the account may not list.
#[test]
fn the_refusal_of_an_api_server_is_no_cluster() {
    let status =
        "{\"kind\": \"Status\", \"apiVersion\": \"v1\",\n \"message\": \"pods is forbidden\", \"code\": 403}";
    let error = refused(status);
    assert!(error.starts_with("cluster.yaml:1:"), "{error}");
    assert!(error.contains("refusal of an API server") && error.contains("pods is forbidden"), "{error}");
}

#[test]
fn a_controller_with_pods_gets_no_more() {
    let replica_set = "
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-5d4f
  namespace: shop
  ownerReferences: [{ apiVersion: apps/v1, kind: Deployment, name: web, uid: u, controller: true }]
spec: { replicas: 2, template: { spec: { containers: [] } } }
";
    let pod = "
apiVersion: v1
kind: Pod
metadata:
  name: web-5d4f-abcde
  namespace: shop
  ownerReferences: [{ apiVersion: apps/v1, kind: ReplicaSet, name: web-5d4f, uid: u, controller: true }]
spec: { containers: [] }
status: { phase: Running }
";
    assert_eq!(names(&read(&format!("{DEPLOYMENT}---{pod}"))), ["shop/web-5d4f-abcde"]);
    let both = read(&format!("{DEPLOYMENT}---{replica_set}"));
    assert_eq!(names(&both), ["shop/web-5d4f-0", "shop/web-5d4f-1"], "not doubled");
    assert_eq!(names(&read(&format!("{DEPLOYMENT}---{replica_set}---{pod}"))), ["shop/web-5d4f-abcde"]);
}

#[test]
fn jobs_want_what_is_left_to_do() {
    let job = |spec: &str, status: &str| {
        let text = format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{ name: sum }}\nspec: {{ {spec} template: {{ spec: {{ containers: [] }} }} }}\nstatus: {status}\n"
        );
        names(&read(&text)).len()
    };
    assert_eq!(job("", "{}"), 1);
    assert_eq!(job("parallelism: 4,", "{}"), 4);
    assert_eq!(job("parallelism: 4, completions: 6,", "{ succeeded: 5 }"), 1);
    assert_eq!(job("suspend: true,", "{}"), 0);
    assert_eq!(job("", "{ conditions: [{ type: Complete, status: 'True' }] }"), 0);
}

#[test]
fn a_stateful_sets_claims_follow_its_pods_if_their_class_is_known() {
    let set = "
apiVersion: apps/v1
kind: StatefulSet
metadata: { name: db }
spec:
  replicas: 2
  template: { spec: { containers: [] } }
  volumeClaimTemplates: [{ metadata: { name: data }, spec: { storageClassName: fast } }]
";
    let class = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: { name: fast }
provisioner: kubernetes.io/aws-ebs
volumeBindingMode: WaitForFirstConsumer
";
    let claims = |snapshot: &Snapshot| {
        snapshot.objects.iter().filter(|object| matches!(object, Object::PersistentVolumeClaim(_))).count()
    };
    let without = read(set);
    assert!(pods(&without).iter().all(|pod| pod.shape.volumes.is_empty()) && claims(&without) == 0);
    let with = read(&format!("{set}---{class}"));
    assert!(pods(&with).iter().all(|pod| pod.shape.volumes.len() == 1) && claims(&with) == 2);
    let Some(Object::StorageClass(class)) = with.objects.get(1) else { panic!("in the order of the file") };
    assert_eq!(&*class.provisioner, "ebs.csi.aws.com", "translated to the driver that does the work now");
}

#[test]
fn a_pod_that_was_never_applied_waits_and_one_just_created_does_not_yet() {
    let pod = |rest: &str| {
        let text = format!("apiVersion: v1\nkind: Pod\nmetadata: {{ name: p }}\n{rest}");
        let snapshot = read(&text);
        let pod = pods(&snapshot)[0];
        (pod.is_unschedulable, pod.is_gated)
    };
    assert_eq!(pod("spec: { containers: [] }\n"), (true, false));
    assert_eq!(pod("spec: { containers: [] }\nstatus: { phase: Pending }\n"), (false, false));
    assert_eq!(pod("spec: { containers: [], nodeName: n }\n"), (false, false));
    assert_eq!(pod("spec: { containers: [], schedulingGates: [{ name: g }] }\n"), (false, true));
    let status = "status: { phase: Pending, conditions: [{ type: PodScheduled, status: 'False', reason: Unschedulable }] }\n";
    assert_eq!(pod(&format!("spec: {{ containers: [] }}\n{status}")), (true, false));
}

#[test]
fn lists_are_unwrapped_in_yaml_and_json() {
    let items = r#"[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{}},
                    {"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{}}]}]"#;
    let list = format!(r#"{{"apiVersion":"v1","items":{items},"kind":"List","metadata":{{}}}}"#);
    for text in [list.clone(), format!("# as YAML\n{list}"), items.to_owned()] {
        assert_eq!(names(&read(&text)), ["default/a", "default/b"]);
    }
    let typed = r#"{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"c"},"spec":{}}]}"#;
    assert_eq!(names(&read(typed)), ["default/c"]);
    let stream = format!("{typed}\n{items}");
    assert_eq!(names(&read(&stream)), ["default/c", "default/a", "default/b"]);
}

#[test]
fn kinds_that_decide_nothing_are_skipped_with_one_notice() {
    let text = "
apiVersion: v1
kind: Endpoints
metadata: { name: a }
---
apiVersion: v1
kind: Endpoints
metadata: { name: b }
---
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: { name: c }
";
    let snapshot = read(text);
    assert!(snapshot.objects.is_empty());
    assert_eq!(snapshot.notices.len(), 1);
    assert!(snapshot.notices[0].contains("2 Endpoints (v1)"), "{:?}", snapshot.notices);
    assert!(snapshot.notices[0].contains("v1beta1 was removed"), "{:?}", snapshot.notices);
}

#[test]
fn priority_comes_from_the_class_wherever_it_stands() {
    let text = "
apiVersion: v1
kind: Pod
metadata: { name: a }
spec: { priorityClassName: high, containers: [] }
---
apiVersion: v1
kind: Pod
metadata: { name: b }
spec: { containers: [] }
---
apiVersion: v1
kind: Pod
metadata: { name: c }
spec: { priority: 7, priorityClassName: high, containers: [] }
---
{ apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: { name: high }, value: 1000 }
---
{ apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: { name: usual }, value: 5, globalDefault: true }
";
    let snapshot = read(text);
    let priorities: Vec<i32> = pods(&snapshot).iter().map(|pod| pod.shape.priority).collect();
    assert_eq!(priorities, [1000, 5, 7]);
}

#[test]
fn mistakes_are_told_with_file_line_and_column() {
    let text = "# a cluster
---
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    resources:
      requests:
        cpu: 4GB
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: general
spec:
  weight: 500
  template: {}
";
    let told = refused(text);
    let lines: Vec<&str> = told.lines().collect();
    assert!(
        lines[0].starts_with("cluster.yaml:12:14: Pod web: spec.containers[0].resources.requests.cpu: `4GB`"),
        "{told}"
    );
    assert!(
        lines[1].starts_with("cluster.yaml:20:13: NodePool general: spec.template.spec: is required"),
        "{told}"
    );
    assert!(lines[2].starts_with("cluster.yaml:19:11: NodePool general: spec.weight: "), "{told}");
}

#[test]
fn items_of_a_list_keep_their_place() {
    let text = "apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: { name: ok }
  spec: {}
- apiVersion: v1
  kind: Pod
  metadata: { name: bad }
  spec:
    priority: high
";
    assert!(refused(text).starts_with("cluster.yaml:12:15: Pod bad: spec.priority: "), "{}", refused(text));
}

#[test]
fn broken_files_give_an_error_and_never_a_panic() {
    for (text, part) in [
        ("a: [1\n", "cluster.yaml:1:"),
        ("a: 1\na: 2\n", "the key `a` is set twice"),
        ("hello", "expected a Kubernetes object"),
        ("{\"kind\": \"Pod\", ", "cluster.yaml:1:"),
        ("- 1\n- 2\n", "must be a map"),
        ("{}", "apiVersion: is required"),
        ("\t- x", "cluster.yaml:1:"),
        (
            "kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {}\n---\nkind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {}\n",
            "twice",
        ),
    ] {
        let told = refused(text);
        assert!(told.starts_with("cluster.yaml") && told.contains(part), "{text:?}: {told}");
    }
    for nothing in ["---\n", "# only a comment\n---\n# and another\n", "[]"] {
        assert!(read(nothing).objects.is_empty());
    }
}

#[test]
fn an_alias_bomb_is_stopped() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let previous = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{previous}]\n"));
    }
    assert!(refused(&text).contains("aliases repeat"), "{}", refused(&text));
}

#[test]
fn the_present_is_the_latest_moment_spoken_of() {
    let text = "
apiVersion: v1
kind: Pod
metadata: { name: a, creationTimestamp: '2026-03-04T10:00:00Z', deletionTimestamp: '2026-03-05T00:00:00Z' }
spec: { containers: [] }
---
apiVersion: v1
kind: Node
metadata: { name: n, creationTimestamp: '2026-03-04T09:00:00Z' }
status: { conditions: [{ type: Ready, status: 'True', lastTransitionTime: '2026-03-04T10:05:00Z' }] }
";
    let latest = snapshot::latest_moment(&read(text).objects).expect("moments are named");
    assert_eq!(latest.to_string(), "2026-03-04T10:05:00Z");
    assert_eq!(snapshot::latest_moment(&[]), None);
}

#[test]
fn karpenters_objects_are_kept_as_written() {
    let text = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: { name: general }
spec:
  template:
    spec: { requirements: [], nodeClassRef: { group: g, kind: K, name: n } }
";
    let snapshot = read(text);
    assert_eq!(snapshot.manifests.len(), 1);
    assert_eq!(snapshot.manifests[0]["metadata"]["name"], "general");
}

#[test]
fn what_a_server_lets_pass_is_noticed() {
    let text = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: { name: general }
spec:
  disruption: { consolidatAfter: 5m }
  template:
    spec:
      requirements: [{ key: karpenter.sh/capacity-type, operator: In, values: [cheap] }]
      nodeClassRef: { group: g, kind: K, name: n }
";
    let snapshot = read(text);
    let Object::NodePool(pool) = &snapshot.objects[0] else { panic!("a pool") };
    assert!(!pool.is_ready, "its controller would not use it");
    let told = snapshot.notices.join("\n");
    assert!(
        told.contains("NodePool general: spec.disruption.consolidatAfter: ")
            && told.contains("capacity-type"),
        "{told}"
    );
}

/// Programs in Go print what is not set as `null`, empty lists included.
#[test]
fn a_null_of_a_printed_object_is_a_field_that_is_not_set() {
    let class = r#"{ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" }"#;
    let objects = format!(
        r#"{{ "apiVersion": "v1", "kind": "List", "metadata": null, "items": [
        {{ "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
          "metadata": {{ "name": "a", "creationTimestamp": null, "labels": null }},
          "spec": {{ "limits": null, "weight": null, "replicas": null, "disruption": {{ "consolidateAfter": "0s", "budgets": null }},
            "template": {{ "metadata": {{ "labels": null }}, "spec": {{
              "requirements": null, "taints": null, "nodeClassRef": {class} }} }} }} }},
        {{ "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {{ "name": "a-1" }},
          "spec": {{ "requirements": null, "taints": null, "startupTaints": null, "resources": {{ "requests": null }},
            "terminationGracePeriod": null, "nodeClassRef": {class} }},
          "status": {{ "conditions": null, "capacity": null }} }},
        {{ "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {{ "name": "o" }},
          "spec": {{ "requirements": null, "price": "1", "priceAdjustment": null, "capacity": null, "weight": null }} }},
        {{ "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {{ "name": "default" }},
          "spec": {{ "role": "nodes", "tags": null, "kubelet": null, "amiFamily": "AL2023", "amiSelectorTerms": null,
            "subnetSelectorTerms": null, "securityGroupSelectorTerms": null }} }},
        {{ "apiVersion": "v1", "kind": "Node", "metadata": {{ "name": "n" }}, "spec": {{ "taints": null }}, "status": null }},
        {{ "apiVersion": "v1", "kind": "Pod", "metadata": {{ "name": "p", "ownerReferences": null }},
          "spec": {{ "containers": null, "tolerations": null, "affinity": null, "volumes": null }} }}
        ] }}"#
    );
    let snapshot = read(&objects);
    assert_eq!(snapshot.objects.len(), 6);
    let pool = snapshot.objects.iter().find_map(|object| match object {
        Object::NodePool(pool) => Some(pool),
        _ => None,
    });
    let pool = pool.expect("it is there");
    assert!(pool.template.requirements.is_empty() && pool.limits.is_none() && pool.replicas.is_none());
    assert_eq!(pool.disruption.budgets.len(), 1, "the default budget, as for a field that is left out");
    // What has to be said is missing all the same.
    let nameless = objects.replace(class, r#"{ "group": "karpenter.k8s.aws", "kind": null, "name": null }"#);
    let message = refused(&nameless);
    assert!(message.contains("nodeClassRef.kind: is required"), "{message}");
    let message = refused(&objects.replace(class, "null"));
    assert!(message.contains("nodeClassRef: is required"), "{message}");
}
