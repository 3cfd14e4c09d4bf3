//! The CustomResourceDefinitions of `deploy/crds`: printed from the types, and as strict as our own readers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use provisor::api::{self, Object, Stage};
use provisor::gitops::environment::{EnvironmentSpec, definitions};
use serde_json::{Value, json};

use super::manifests;
use crate::plane::{Answer, Plane, Size, collection_of, path_of};

const FOLDER: &str = "deploy/crds";

#[test]
fn checked_in_definitions_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let mut expected: Vec<String> = Vec::new();
    for definition in definitions() {
        let name = format!("{}.yaml", definition.file());
        let command =
            format!("provisor schema crd/{}", definition.name().split('.').next().unwrap_or_default());
        let made = format!("# Printed by `{command}`; edit the types, not this file.\n{}", definition.yaml());
        let file = folder.join(&name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(&folder).expect("folders can be made");
            std::fs::write(&file, &made).expect("recorded files can be written");
        }
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(found == made, "{FOLDER}/{name} is stale: run `make accept`, then read the diff");
        expected.push(name);
    }
    let entries = std::fs::read_dir(&folder).expect("the folder is there");
    let mut found: Vec<String> =
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "one file for each kind");
}

#[test]
fn every_field_says_what_it_is_for() {
    fn walk(path: &str, schema: &Value, silent: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if !field["description"].is_string() && !path.ends_with(".metadata") {
                silent.push(path.clone());
            }
            walk(&path, field, silent);
            walk(&format!("{path}[]"), &field["items"], silent);
        }
    }
    let mut silent = Vec::new();
    for definition in definitions() {
        let schema = &definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        walk(&definition.name(), schema, &mut silent);
    }
    assert_eq!(silent, Vec::<String>::new());
}

/// Every object that the tests of our readers judge, judged by the API server too: refused by both or by none, and read the
/// same before and after the server has filled in what it fills in.
#[test]
fn the_api_server_refuses_what_our_readers_refuse() {
    let plane = Plane::start(Size::Objects);
    plane.install_kinds();
    let judged = judged_objects();
    let mut quarrels = Vec::new();
    let mut verdicts: BTreeMap<(String, &str), u32> = BTreeMap::new();
    for object in &judged {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let ours = api::validate(object);
        let refused: Vec<String> =
            ours.iter().filter(|error| error.stage == Stage::Admission).map(ToString::to_string).collect();
        let theirs = try_to_create(&plane, object, "Ignore");
        let verdict = if theirs.is_success() { "accepted" } else { "refused" };
        *verdicts.entry((kind, verdict)).or_default() += 1;
        match (refused.is_empty(), theirs.is_success()) {
            // What `kubectl scale` writes has 32 bits, and the server holds whole objects to it.
            (true, false) if theirs.message().contains("less than or equal to 2147483647") => {}
            (true, false) => quarrels.push(format!("only the server refuses {object}: {}", theirs.message())),
            (false, true) => quarrels.push(format!("only we refuse {object}: {}", refused.join("; "))),
            (false, false) => {}
            (true, true) => {
                let has_unknown = ours.iter().any(|error| error.stage == Stage::UnknownField);
                let strict = try_to_create(&plane, object, "Strict");
                if has_unknown == strict.is_success() {
                    let by = if has_unknown { "us" } else { "the server" };
                    quarrels
                        .push(format!("a field is unknown only to {by} in {object}: {}", strict.message()));
                }
                if read(object) != read(&theirs.body) {
                    quarrels.push(format!("read otherwise once it is stored: {object}\n{}", theirs.body));
                }
            }
        }
    }
    assert!(quarrels.is_empty(), "{} of {}:\n{}", quarrels.len(), judged.len(), quarrels.join("\n"));
    for kind in ["NodePool", "NodeClaim", "EC2NodeClass", "NodeOverlay", "CapacityBuffer"] {
        for verdict in ["accepted", "refused"] {
            let count = verdicts.get(&(kind.to_owned(), verdict)).copied().unwrap_or_default();
            assert!(count >= 2, "only {count} objects of kind {kind} are {verdict}: {verdicts:?}");
        }
    }
}

/// What the engine sees of an object.
fn read(object: &Value) -> Option<String> {
    Some(match api::parse(object).ok()? {
        Object::NodePool(pool) => format!("{:?} {:?} {:?}", pool.template, pool.disruption, pool.limits),
        Object::NodeClaim(claim) => format!("{:?}", claim.spec),
        Object::NodeClass(class) => format!("{:?} {:?}", class.ami_family, class.kubelet),
        Object::NodeOverlay(overlay) => format!("{overlay:?}"),
        _ => String::new(),
    })
}

fn try_to_create(plane: &Plane, object: &Value, unknown: &str) -> Answer {
    let mut object = object.clone();
    if object["kind"] == "CapacityBuffer" {
        object["metadata"]["namespace"] = "default".into();
    }
    let path = format!("{}?dryRun=All&fieldValidation={unknown}", collection_of(&object));
    plane.api.post(&path, &object)
}

/// What the tests in `api` judge: they run once more, in a process of their own that takes notes.
fn judged_objects() -> Vec<Value> {
    let notes = tempfile::NamedTempFile::new().expect("a temporary file");
    let own = std::env::current_exe().expect("this test");
    let ran = Command::new(own).args(["api::", "--quiet"]).env(crate::api::JUDGED, notes.path()).output();
    let ran = ran.expect("a test process");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    let text = std::fs::read_to_string(notes.path()).expect("notes");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    let served: Vec<Value> = definitions().iter().map(|definition| definition.manifest()).collect();
    let is_served = |object: &Value| {
        served.iter().any(|kind| {
            let version = format!(
                "{}/{}",
                kind["spec"]["group"].as_str().unwrap_or_default(),
                kind["spec"]["versions"][0]["name"].as_str().unwrap_or_default()
            );
            object["apiVersion"] == version.as_str() && object["kind"] == kind["spec"]["names"]["kind"]
        })
    };
    let objects = lines.into_iter().map(|line| serde_json::from_str::<Value>(line).expect("an object"));
    objects.filter(is_served).collect()
}

#[test]
fn the_api_server_refuses_changes_that_our_readers_refuse() {
    let plane = Plane::start(Size::Objects);
    plane.install_kinds();
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let template = json!({"spec": {"requirements": [], "nodeClassRef": class}});
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "pool"},
        "spec": {"template": template},
    });
    let fixed = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "fixed"},
        "spec": {"template": template, "replicas": 2},
    });
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "claim"},
        "spec": {"requirements": [], "nodeClassRef": class, "resources": {"requests": {"cpu": "1000m"}}},
    });
    let changes = [
        (&pool, "/spec/template/spec/nodeClassRef/name", json!("other")),
        (&pool, "/spec/template/spec/nodeClassRef/kind", json!("Other")),
        (&pool, "/spec/template/spec/nodeClassRef/group", json!("other")),
        (&pool, "/spec/replicas", json!(1)),
        (&pool, "/spec/weight", json!(7)),
        (&fixed, "/spec/replicas", Value::Null),
        (&fixed, "/spec/replicas", json!(5)),
        (&fixed, "/spec/limits", json!({"nodes": 9})),
        (&claim, "/spec/expireAfter", json!("1h")),
        (&claim, "/spec/resources/requests/cpu", json!("2")),
        (&claim, "/metadata/labels", json!({"team": "shop"})),
    ];
    for object in [&pool, &fixed, &claim] {
        plane.api.post(&collection_of(object), object).expect("it is accepted");
    }
    let mut refusals = 0;
    for (object, place, value) in changes {
        let patch =
            place.rsplit('/').filter(|step| !step.is_empty()).fold(value, |inner, step| json!({step: inner}));
        let (old, mut new) = (plane.api.get(&path_of(object)).expect("it is there"), Value::Null);
        let answer = plane.api.patch(&path_of(object), &patch);
        merge(&mut new, &old);
        merge(&mut new, &patch);
        let ours = api::validate_change(&old, &new);
        assert_eq!(
            ours.is_empty(),
            answer.is_success(),
            "{place}: {ours:?} {} {}",
            answer.code,
            answer.message()
        );
        refusals += u32::from(!answer.is_success());
    }
    assert_eq!(refusals, 6);
}

fn merge(into: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else { return into.clone_from(patch) };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in fields {
        match (value, into.as_object_mut()) {
            (Value::Null, Some(map)) => drop(map.remove(key)),
            _ => merge(&mut into[key], value),
        }
    }
}

/// What silence means is the same for the API server and for us, and what it refuses we refuse.
#[test]
fn an_environment_is_read_as_it_is_stored() {
    let plane = Plane::start(Size::Objects);
    plane.install_kinds();
    let environment = |name: &str, spec: Value| {
        json!({
            "apiVersion": provisor::gitops::environment::API_VERSION,
            "kind": provisor::gitops::environment::KIND,
            "metadata": {"name": name}, "spec": spec,
        })
    };
    let source = json!({"url": "https://git.example/fleet.git", "branch": "main"});
    let full = json!({
        "source": {
            "url": "ssh://git@git.example/fleet", "commit": "0123456789abcdef0123456789abcdef01234567",
            "name": "refs/heads/main", "semver": "1.x", "tagPrefix": "prod/", "tag": "v1", "branch": "main",
            "interval": "30s", "secretRef": {"name": "git"},
        },
        "path": "fleets/shop", "environment": "prod",
        "verification": {"mode": "tagAndHead", "secretRef": {"name": "keys"}},
        "sync": {
            "mode": "manual", "prune": "retire", "pruneCeiling": "retire", "adopt": "take", "allowEmpty": true,
            "confirmPrune": true, "readOnly": true, "protected": ["db-*"],
            "ignore": [{"kind": "NodePool", "name": "web", "path": "/spec/limits"}],
            "limits": {
                "poolsMax": 2, "poolsPercent": 10, "nodesPercent": 5, "nodesMax": 7, "rollNodesMax": 9,
            },
        },
        "windows": [{
            "kind": "deny", "schedule": "0 8 * * *", "duration": "1h", "timeZone": "Europe/Amsterdam",
            "environments": ["prod"], "pools": ["web"], "classes": ["rolling"], "manual": true, "overrun": true,
        }],
        "suspend": {"reason": "a migration", "until": "2026-03-04T10:30:00Z"},
    });
    let minimal = json!({"source": source});
    for (name, spec) in [("minimal", &minimal), ("full", &full)] {
        let object = environment(name, spec.clone());
        let path = format!("{}?fieldValidation=Strict", collection_of(&object));
        let stored = plane.api.post(&path, &object).expect("an environment");
        let (sent, kept) = (parse(spec), parse(&stored["spec"]));
        assert_eq!(sent.expect("we read it"), kept.expect("we read what is stored"), "{name}");
    }
    // Everything that we know is in the longest form, so a field that the server does not know would have been refused.
    assert_eq!(serde_json::to_value(parse(&full).expect("we read it")).expect("JSON"), full);
    for wrong in [
        json!({}),
        json!({"source": {"url": "https://git.example/fleet.git"}}),
        json!({"source": {"branch": "main"}}),
        json!({"source": source, "sync": {"mode": "always"}}),
        json!({"source": source, "sync": {"prune": "Off"}}),
        json!({"source": source, "verification": {"mode": "head"}}),
        json!({"source": source, "sync": {"ignore": [{"path": "/spec/limits"}]}}),
        json!({"source": source, "sync": {"limits": {"nodesPercent": 101}}}),
        json!({"source": source, "windows": [{"kind": "deny", "schedule": "0 8 * * *"}]}),
        json!({"source": source, "suspend": {}}),
    ] {
        let object = environment("wrong", wrong);
        let answer = plane.api.post(&collection_of(&object), &object);
        assert_eq!(answer.code, 422, "{object} {}", answer.body);
    }
}

fn parse(spec: &Value) -> Result<EnvironmentSpec, String> {
    serde_json::from_value(spec.clone()).map_err(|error| error.to_string())
}

#[test]
fn kubectl_prints_the_columns_that_people_know() {
    let plane = Plane::start(Size::Objects);
    plane.install_kinds();
    for object in manifests(FOLDER) {
        let plural = object["spec"]["names"]["plural"].as_str().expect("it has one");
        let shown = plane.kubectl(&["get", plural, "--all-namespaces", "--output", "wide"]);
        assert!(shown.status.success(), "{plural}: {}", String::from_utf8_lossy(&shown.stderr));
    }
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "fixed"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": class}}, "replicas": 2},
    });
    plane.api.post(&collection_of(&pool), &pool).expect("a pool");
    let scaled = plane.kubectl(&["scale", "nodepool", "fixed", "--replicas", "3"]);
    assert!(scaled.status.success(), "{}", String::from_utf8_lossy(&scaled.stderr));
    let shown = plane.kubectl(&["get", "nodepools"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let header: Vec<&str> = text.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["NAME", "NODECLASS", "NODES", "READY", "AGE"], "{text}");
    assert_eq!(plane.api.get(&path_of(&pool)).expect("it is there")["spec"]["replicas"], 3);
}
