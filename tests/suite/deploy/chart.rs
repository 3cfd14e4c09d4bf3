//! The chart and the plain manifests: the same objects, taken by a real API server, with no more rights than are used.

use std::time::Duration;

use provisor::io::kube::Kind;
use serde_json::{Value, json};

use super::shipped::{AWS, REPO, flavours, helm, manifests, objects_of, rendered};
use crate::plane::{Api, Plane, Size, collection_of, path_of};

fn sorted(mut objects: Vec<Value>) -> Vec<(String, Value)> {
    objects.retain(|object| object["kind"] != "Namespace");
    let mut named: Vec<_> = objects.into_iter().map(|object| (path_of(&object), object)).collect();
    named.sort_by(|one, other| one.0.cmp(&other.0));
    named
}

/// But for one thing: the chart knows the environment, and so the names of its lease and record. Whoever edits the manifests should
/// not have to say them twice, so their role is for any in its namespace.
#[test]
fn the_manifests_are_the_chart_with_its_defaults() {
    let mut chart = rendered(&[]);
    let roles = chart.iter_mut().filter(|object| object["kind"] == "Role");
    for rule in roles.filter_map(|object| object.get_mut("rules")?.as_array_mut()).flatten() {
        rule.as_object_mut().expect("a rule").remove("resourceNames");
    }
    let (chart, plain) = (sorted(chart), sorted(manifests("deploy/manifests")));
    let names = |list: &[(String, Value)]| list.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&chart), names(&plain));
    for ((name, chart), (_, plain)) in chart.iter().zip(&plain) {
        assert_eq!(chart, plain, "{name}");
    }
}

#[test]
fn the_chart_brings_the_kinds_and_refuses_what_it_does_not_know() {
    let with_kinds = rendered(&["--include-crds"]);
    let kinds: Vec<&Value> =
        with_kinds.iter().filter(|object| object["kind"] == "CustomResourceDefinition").collect();
    assert_eq!(kinds.len(), manifests("deploy/crds").len());
    for wrong in [
        vec![],
        vec!["--set", REPO, "--set", "cloud=azure"],
        vec!["--set", REPO, "--set", "aws.clusterNames=east"],
        vec!["--set", "source.repo=https://git.example.com/fleet.git"],
        vec!["--set", REPO, "--set", "source.environment=Prod"],
        vec!["--set", REPO, "--set", "installation=a.b"],
        vec!["--set", REPO, "--set", "replica=1"],
        vec!["--set", REPO, "--set-string", "replicas=two"],
    ] {
        assert!(!helm(&wrong).status.success(), "{wrong:?}");
    }
}

#[test]
fn who_wants_no_disruption_budget_gets_none() {
    let budgets = |more: &[&str]| {
        let objects = rendered(more);
        objects.iter().filter(|object| object["kind"] == "PodDisruptionBudget").count()
    };
    assert_eq!((budgets(&[]), budgets(&["--set", "podDisruptionBudget=null"])), (1, 0));
    // Kubernetes takes one of the two.
    let other = rendered(&["--set", "podDisruptionBudget.minAvailable=1"]);
    let budget = other.iter().find(|object| object["kind"] == "PodDisruptionBudget").expect("it is there");
    let spec = &budget["spec"];
    assert_eq!((&spec["minAvailable"], &spec["maxUnavailable"]), (&json!(1), &Value::Null));
}

#[test]
fn the_keys_of_a_private_repository_are_mounted_where_the_program_looks() {
    let objects = rendered(&["--set", "source.credentials=fleet"]);
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().expect("volumes");
    let volume = volumes.iter().find(|volume| volume["secret"]["secretName"] == "fleet").expect("the Secret");
    let container = &pod["containers"][0];
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).expect("a mount of it");
    assert_eq!(mount["readOnly"], true);
    let argument = format!("--credentials={}", mount["mountPath"].as_str().expect("a path"));
    assert!(container["args"].as_array().expect("arguments").contains(&json!(argument)));
}

/// The program writes where the volume is, no more than the size that was asked for, and the volume is the pod's own or what is named.
#[test]
fn a_recording_has_its_volume_and_its_size() {
    let pod = |said: &[&'static str]| {
        let objects = rendered(said);
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
        deployment["spec"]["template"]["spec"].clone()
    };
    let named = |list: &Value, name: &str| -> Option<Value> {
        list.as_array().expect("a list").iter().find(|one| one["name"] == name).cloned()
    };
    let without = pod(&[]);
    assert_eq!(named(&without["volumes"], "recording"), None);
    assert!(!without["containers"][0]["args"].to_string().contains("--record"), "{without:#}");

    let with = pod(&["--set", "recording.enabled=true,recording.size=300Mi"]);
    let container = &with["containers"][0];
    let mount = named(&container["volumeMounts"], "recording").expect("a mount");
    let place = format!("--record={}", mount["mountPath"].as_str().expect("a path"));
    let arguments = container["args"].as_array().expect("arguments");
    for expected in [place.as_str(), "--record-max=300Mi"] {
        assert!(arguments.contains(&json!(expected)), "{expected}: {arguments:?}");
    }
    assert_ne!(mount["readOnly"], true);
    assert_eq!(named(&with["volumes"], "recording"), Some(json!({ "name": "recording", "emptyDir": {} })));
    assert!(with["securityContext"]["fsGroup"].is_u64(), "what is mounted belongs to the program: {with:#}");

    let claim = "recording.enabled=true,recording.volume.persistentVolumeClaim.claimName=flights";
    let kept = named(&pod(&["--set", claim])["volumes"], "recording");
    let expected = json!({ "name": "recording", "persistentVolumeClaim": { "claimName": "flights" } });
    assert_eq!(kept, Some(expected));
    assert!(!helm(&["--set", REPO, "--set", "recording.size=lots"]).status.success());
}

/// What means something to YAML is a part of what was said.
#[test]
fn what_is_said_reaches_the_program_as_it_was_said() {
    let objects =
        rendered(&["--set-string", "source.ref=next #2", "--set-string", "source.environment=0123"]);
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
    let arguments = arguments.expect("arguments");
    for expected in ["--ref=next #2", "--env=0123"] {
        assert!(arguments.contains(&json!(expected)), "{expected}: {arguments:?}");
    }
}

#[test]
fn a_real_cloud_needs_no_right_to_make_nodes() {
    let rules = |cloud: [&str; 2]| {
        let objects = rendered(&cloud);
        let role = objects
            .iter()
            .find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == "provisor");
        let rules = role.expect("the role")["rules"].as_array().expect("rules").clone();
        let may = |resource: &str, verb: &str| {
            rules.iter().any(|rule| {
                let has = |key: &str, word: &str| {
                    rule[key].as_array().is_some_and(|list| list.contains(&word.into()))
                };
                has("resources", resource) && has("verbs", verb)
            })
        };
        let plays = [("nodes", "create"), ("nodes/status", "patch"), ("pods", "get")];
        (plays.map(|(resource, verb)| may(resource, verb)), may("servicecidrs", "get"), objects.len())
    };
    assert_eq!(rules(["--set", "cloud=simulated"]), ([true; 3], false, 10));
    assert_eq!(rules(AWS), ([false; 3], true, 8));
}

#[test]
fn a_real_cloud_needs_the_name_and_the_address_of_the_cluster() {
    assert!(!helm(&["--set", REPO, "--set", "cloud=aws"]).status.success());
    let objects = rendered(&[&AWS[..], &["--set", "aws.interruptionQueue=east"]].concat());
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a deployment");
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    for expected in
        ["--cluster-name=east", "--cluster-endpoint=https://api.east", "--interruption-queue=east"]
    {
        assert!(arguments.as_array().expect("a list").contains(&expected.into()), "{expected}: {arguments}");
    }
}

#[test]
fn the_arguments_in_the_deployment_are_those_of_the_program() {
    let objects =
        rendered(&["--set", "source.ref=main", "--set", "source.environment=prod,installation=blue"]);
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a deployment");
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments: Vec<&str> = arguments
        .as_array()
        .expect("a list")
        .iter()
        .map(|argument| argument.as_str().expect("text"))
        .collect();
    for expected in [
        "--repo=https://git.example.com/fleet.git",
        "--ref=main",
        "--env=prod",
        "--installation=blue",
        "--output=json",
    ] {
        assert!(arguments.contains(&expected), "{expected}: {arguments:?}");
    }
}

/// Whoever applies the files, or the chart for either cloud, gets objects that the API server takes without a doubt, and takes again.
#[test]
fn an_api_server_takes_every_object_of_every_flavour() {
    let plane = Plane::start(Size::Objects);
    plane.install_kinds();
    let charts = flavours().into_iter().map(|(name, text)| (name, objects_of(&text)));
    for (flavour, objects) in [("plain".to_owned(), manifests("deploy/manifests"))].into_iter().chain(charts)
    {
        let mut paths = Vec::new();
        for object in objects {
            let path = path_of(&object);
            let strict = format!("{}?dryRun=All&fieldValidation=Strict", collection_of(&object));
            if object["kind"] == "Namespace" {
                // It stays: nobody here would ever finish with deleting it.
                plane.api.apply(&path, &object).expect(&path);
                continue;
            }
            plane.api.post(&strict, &object).expect(&format!("{flavour} {path}"));
            let made = plane.api.apply(&path, &object).expect(&path);
            let again = plane.api.apply(&path, &object).expect(&path);
            assert_eq!(made["metadata"]["uid"], again["metadata"]["uid"], "{flavour} {path}");
            paths.push(path);
        }
        assert!(paths.len() >= 8, "{flavour}: {paths:?}");
        // The next one is new again.
        paths.iter().rev().for_each(|path| drop(plane.api.delete(path).expect(path)));
    }
}

/// What a role may do with the objects of one kind, and with which of them.
fn rules(objects: &[Value], role: &str, resource: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let words = |rule: &Value, key: &str| -> Vec<String> {
        rule[key]
            .as_array()
            .into_iter()
            .flatten()
            .map(|word| word.as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let roles = objects.iter().filter(|object| object["kind"] == role);
    let rules = roles.filter_map(|role| role["rules"].as_array()).flatten();
    let of_kind = rules.filter(|rule| words(rule, "resources").iter().any(|word| word == resource));
    of_kind.map(|rule| (words(rule, "verbs"), words(rule, "resourceNames"))).collect()
}

/// A right that only some settings need is given with those settings.
#[test]
fn services_and_replication_controllers_are_read_only_by_who_spreads_by_default() {
    let reads = |objects: &[Value], resource: &str| {
        rules(objects, "ClusterRole", resource)
            .iter()
            .any(|(verbs, _)| verbs.iter().any(|verb| verb == "list"))
    };
    for cloud in [&[][..], &AWS] {
        let spread = ["--set-json", r#"schedulerConfig={"podTopologySpread":{"defaultConstraints":[]}}"#];
        let (plain, spreading) = (rendered(cloud), rendered(&[cloud, &spread].concat()));
        for resource in ["services", "replicationcontrollers"] {
            assert!(!reads(&plain, resource), "{resource}");
            assert!(reads(&spreading, resource), "{resource}");
        }
        assert!(reads(&plain, "pods") && reads(&plain, "replicasets"));
        let deployment =
            spreading.iter().find(|object| object["kind"] == "Deployment").expect("a deployment");
        let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
        let arguments = arguments.expect("a list").iter().filter_map(Value::as_str);
        let told: Vec<&str> = arguments.filter_map(|one| one.strip_prefix("--scheduler-config=")).collect();
        assert_eq!(told, [r#"{"podTopologySpread":{"defaultConstraints":[]}}"#]);
    }
}

/// Two installations in one namespace have a lease and a record each, and may touch no other's.
#[test]
fn an_installation_may_touch_its_own_lease_and_record_alone() {
    let named = |said: &[&'static str]| {
        let objects = rendered(said);
        let own = |resource: &str| {
            let mut rules = rules(&objects, "Role", resource);
            // Machines that are simulated renew leases in a namespace of their own.
            rules.retain(|(verbs, _)| *verbs != ["create", "patch", "delete"]);
            rules
        };
        (own("leases"), own("configmaps"))
    };
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let expected = |name: &str| {
        (
            vec![(words(&["create"]), words(&[])), (words(&["get", "update"]), words(&[name]))],
            vec![(words(&["get", "create", "patch"]), words(&[&format!("{name}.inventory")]))],
        )
    };
    assert_eq!(named(&[]), expected("provisor.dev"));
    assert_eq!(named(&["--set", "installation=blue,source.environment=prod"]), expected("blue.prod"));
}

/// The program's account may do what the program does, and nothing that would let it do more.
#[test]
fn the_account_may_do_its_work_and_no_more() {
    let plane = Plane::start(Size::Objects);
    plane.install_kinds();
    let home = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "provisor" } });
    for object in [vec![home], rendered(&[])].concat() {
        plane.api.apply(&path_of(&object), &object).expect("it is accepted");
    }
    let account = Api::of(&plane.service_account("provisor", "provisor"));
    // RBAC is read from a cache of the API server.
    let ours = "/apis/karpenter.sh/v1/nodepools";
    account.wait(ours, Duration::from_secs(20), |answer| answer.is_success());
    // Of all objects of a kind, or of the one that is named behind `=`.
    let may = |verb: &str, group: &str, resource: &str, namespace: &str| {
        let (resource, name) = resource.split_once('=').unwrap_or((resource, ""));
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": part, "namespace": namespace,
                "name": name,
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        account.post(path, &question).expect("an answer")["status"]["allowed"] == true
    };
    // Without default spreads, as is the default; what they have to name is in another test.
    for resource in Kind::ALL.into_iter().filter(|kind| kind.is_watched(true, false)).map(Kind::resource) {
        let group = resource.api_version.split_once('/').map_or("", |(group, _)| group);
        for verb in ["list", "watch"] {
            assert!(may(verb, group, resource.plural, ""), "it must be able to {verb} {}", resource.plural);
        }
    }
    let needed: [(&[&str], &str, &[&str], &str); 11] = [
        (
            &["get", "list", "watch", "create", "patch", "delete"],
            "karpenter.sh",
            &["nodepools", "nodeclaims"],
            "",
        ),
        (&["get", "list", "watch", "create", "update"], "karpenter.k8s.aws", &["ec2nodeclasses"], ""),
        (&["patch"], "karpenter.sh", &["nodepools/status", "nodeclaims/status"], ""),
        (&["get", "patch", "delete", "create"], "", &["nodes"], ""),
        (&["create"], "", &["pods/eviction", "events"], "shop"),
        (&["get"], "", &["pods"], "shop"),
        (&["create"], "coordination.k8s.io", &["leases"], "provisor"),
        (&["get", "update"], "coordination.k8s.io", &["leases=provisor.dev"], "provisor"),
        (&["list"], "coordination.k8s.io", &["leases=provisor.dev", "leases=karpenter-leader-election"], ""),
        (&["get", "create", "patch"], "", &["configmaps=provisor.dev.inventory"], "provisor"),
        (&["create", "patch", "delete"], "coordination.k8s.io", &["leases"], "kube-node-lease"),
    ];
    for (verbs, group, resources, namespace) in needed {
        for (verb, resource) in verbs.iter().flat_map(|verb| resources.iter().map(move |name| (verb, name))) {
            assert!(may(verb, group, resource, namespace), "it must be able to {verb} {resource}");
        }
    }
    let forbidden = [
        ("get", "", "secrets", "provisor"),
        ("list", "", "secrets", ""),
        ("list", "", "configmaps", ""),
        ("list", "", "services", ""),
        ("list", "", "replicationcontrollers", ""),
        ("get", "", "configmaps", "provisor"),
        ("create", "", "configmaps", "provisor"),
        ("patch", "", "configmaps=other.dev.inventory", "provisor"),
        ("update", "coordination.k8s.io", "leases=other.dev", "provisor"),
        ("get", "", "configmaps", "shop"),
        ("get", "coordination.k8s.io", "leases", "provisor"),
        ("list", "coordination.k8s.io", "leases", ""),
        ("update", "coordination.k8s.io", "leases", "provisor"),
        ("update", "coordination.k8s.io", "leases", "kube-system"),
        ("create", "", "pods", "shop"),
        ("create", "", "pods/exec", "shop"),
        ("create", "", "pods/binding", "shop"),
        ("delete", "", "namespaces", ""),
        ("delete", "", "persistentvolumeclaims", "shop"),
        ("patch", "apps", "deployments", "shop"),
        ("update", "provisor.dev", "environments", ""),
        ("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
        ("bind", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("impersonate", "", "users", ""),
        ("*", "*", "*", ""),
    ];
    for (verb, group, resource, namespace) in forbidden {
        assert!(!may(verb, group, resource, namespace), "it must not be able to {verb} {resource}");
    }
}
