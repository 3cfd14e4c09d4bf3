//! Objects on the wire: what is accepted, what is refused and why, and what comes out in the model.

mod ec2nodeclass;
mod hash;
mod kubelet;
mod nodepool;
mod overlay_and_buffer;
mod request;
mod roundtrip;
mod snapshot;
mod workload;

use provisor::api::{self, FieldError, Object, Stage};
use provisor::model::claim::NodeClaim;
use provisor::model::class::NodeClass;
use provisor::model::pool::NodePool;
use serde_json::{Value, json};

/// A pool of which everything that is required is there, and nothing else.
fn pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": "general" },
        "spec": { "template": { "spec": {
            "requirements": [],
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
        } } },
    })
}

fn claim() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": { "name": "general-x7k2p" },
        "spec": {
            "requirements": [],
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
        },
    })
}

fn class() -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": { "name": "default" },
        "spec": {
            "role": "nodes",
            "amiSelectorTerms": [{ "alias": "al2023@latest" }],
            "subnetSelectorTerms": [{ "tags": { "team": "shop" } }],
            "securityGroupSelectorTerms": [{ "tags": { "team": "shop" } }],
        },
    })
}

/// `object` with the field at `path` set; missing parents are made. `null` removes it.
fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, key) = path.rsplit_once('/').unwrap_or(("", path));
    let mut at = &mut object;
    for step in parent.split('/').filter(|step| !step.is_empty()) {
        at = match step.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => {
                let map = at.as_object_mut().expect("the parent of a field is a map");
                map.entry(step).or_insert_with(|| json!({}))
            }
        };
    }
    let map = at.as_object_mut().expect("the parent of a field is a map");
    match value {
        Value::Null => map.remove(key),
        value => map.insert(key.into(), value),
    };
    object
}

/// Names a file to which every judged object is written, one a line, for whoever judges them again (`deploy/kinds.rs`).
pub(crate) const JUDGED: &str = "PROVISOR_TEST_JUDGED";

fn note(object: &Value) {
    use std::io::Write;
    if let Some(path) = std::env::var_os(JUDGED) {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        // One write, so that lines of tests that run at once do not mix.
        file.and_then(|mut file| file.write_all(format!("{object}\n").as_bytes()))
            .expect("it can be written");
    }
}

/// Nobody finds anything wrong with it.
#[track_caller]
fn accepts(object: &Value) {
    note(object);
    let errors = api::validate(object);
    assert!(errors.is_empty(), "{}\n{object:#}", told(&errors));
}

/// The API server refuses it, and the message points at `path`.
#[track_caller]
fn refuses(object: &Value, path: &str) {
    finds(object, path, Stage::Admission);
    assert!(api::parse(object).is_err(), "refused by validate, but not by parse");
}

/// The API server takes it, the controller does not.
#[track_caller]
fn fails_at_runtime(object: &Value, path: &str) {
    finds(object, path, Stage::Runtime);
    let errors = api::validate(object);
    assert!(errors.iter().all(|error| error.stage != Stage::Admission), "{}", told(&errors));
    assert!(api::parse(object).is_ok(), "what the API server stores can be read");
}

#[track_caller]
fn finds(object: &Value, path: &str, stage: Stage) {
    note(object);
    let errors = api::validate(object);
    let found = errors.iter().any(|error| error.path == path && error.stage == stage);
    assert!(found, "nothing at `{path}` by {stage:?}:\n{}\n{object:#}", told(&errors));
}

fn told(errors: &[FieldError]) -> String {
    errors.iter().map(|error| format!("{:?} {error}\n", error.stage)).collect()
}

fn parse_pool(object: &Value) -> NodePool {
    match api::parse(object) {
        Ok(Object::NodePool(pool)) => pool,
        other => panic!("{other:?}"),
    }
}

fn parse_claim(object: &Value) -> NodeClaim {
    match api::parse(object) {
        Ok(Object::NodeClaim(claim)) => *claim,
        other => panic!("{other:?}"),
    }
}

fn parse_class(object: &Value) -> NodeClass {
    match api::parse(object) {
        Ok(Object::NodeClass(class)) => class,
        other => panic!("{other:?}"),
    }
}
