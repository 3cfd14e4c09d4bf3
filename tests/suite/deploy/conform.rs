//! What `helm template` prints and what the folders hold, judged by kubeconform: by the schemas of the very API server that the
//! tests run, closed against fields that do not exist.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::shipped::{flavours, objects_of};
use crate::plane::{Api, Plane, Size, made_by};

/// Objects as the files have them, by what they are called here.
type Texts = Vec<(String, String)>;

#[test]
fn kubeconform_takes_every_object_and_knows_every_field() {
    let plane = Plane::start(Size::Objects);
    plane.install_kinds();
    let mut texts: Texts = flavours();
    for folder in ["deploy/manifests", "deploy/crds"] {
        let text: Vec<String> = super::shipped::files(folder);
        texts.push((folder.replace('/', "-"), text.join("\n---\n")));
    }
    texts.push(("fleet".into(), rendered_fleet()));
    let objects: Vec<Value> = texts.iter().flat_map(|(_, text)| objects_of(text)).collect();
    let schemas = TempDir::new().expect("a temporary directory");
    let kinds = write_schemas(&plane.api, &objects, schemas.path());
    assert!(kinds.len() >= 10, "{kinds:?}");

    let judged = kubeconform(schemas.path(), &texts);
    assert_eq!(judged["resources"], json!([]), "{judged:#}");
    assert_eq!(judged["summary"]["valid"], objects.len(), "{judged:#}");
    assert_eq!(judged["summary"]["skipped"], 0, "{judged:#}");

    // A field that does not exist, of Kubernetes' own kinds and of ours, at the top and deep inside.
    for (from, to) in [
        ("replicas: 2", "replicaz: 2"),
        ("readOnlyRootFilesystem: true", "readOnlyRootFileSystem: true"),
        ("maxUnavailable: 1", "maxUnavaiable: 1"),
        ("resourceNames: ", "resourceName: "),
        ("consolidateAfter: ", "consolidatesAfter: "),
        ("served: true", "serves: true"),
    ] {
        let changed = |text: &String| text.replacen(from, to, 1);
        let wrong: Texts = texts.iter().map(|(name, text)| (name.clone(), changed(text))).collect();
        let judged = kubeconform(schemas.path(), &wrong);
        let invalid = judged["summary"]["invalid"].as_u64().unwrap_or_default();
        assert!(invalid >= 1, "`{to}` is not found: {judged:#}");
    }
}

/// What the fleet that `provisor init` makes is rendered to.
fn rendered_fleet() -> String {
    let folder = TempDir::new().expect("a temporary directory");
    let provisor = |arguments: &[&str], place: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_provisor"));
        let output = command.args(arguments).current_dir(place).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    provisor(&["init", "fleet", "--name", "shop"], folder.path());
    provisor(&["render"], &folder.path().join("fleet"))
}

fn kubeconform(schemas: &Path, texts: &Texts) -> Value {
    let folder = TempDir::new().expect("a temporary directory");
    for (name, text) in texts {
        std::fs::write(folder.path().join(format!("{name}.yaml")), text).expect("a file");
    }
    let location = format!(
        "{}/{{{{.ResourceKind}}}}-{{{{.Group}}}}-{{{{.ResourceAPIVersion}}}}.json",
        schemas.display()
    );
    let output = Command::new(made_by("go-tool", &["kubeconform"]).expect("kubeconform"))
        .args(["-strict", "-summary", "-output", "json", "-schema-location", &location])
        .arg(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {} {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// One file for each kind of `objects`, under the name by which kubeconform looks for it; the names.
fn write_schemas(api: &Api, objects: &[Value], folder: &Path) -> BTreeSet<String> {
    let text = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let wanted: BTreeSet<(String, String)> =
        objects.iter().map(|object| (text(object, "apiVersion"), text(object, "kind"))).collect();
    let versions: BTreeSet<&String> = wanted.iter().map(|(version, _)| version).collect();
    let mut written = BTreeSet::new();
    for version in versions {
        let (prefix, group, short) = match version.split_once('/') {
            Some((group, short)) => ("apis", group, short),
            None => ("api", "", version.as_str()),
        };
        let document = api.get(&format!("/openapi/v3/{prefix}/{version}")).expect(version);
        let mut schemas = document["components"]["schemas"].as_object().cloned().expect("schemas");
        schemas.values_mut().for_each(close);
        for (name, schema) in &schemas {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
            for kind in kinds.filter(|kind| kind["group"] == group && kind["version"] == short) {
                let kind = text(kind, "kind");
                if !wanted.contains(&(version.clone(), kind.clone())) {
                    continue;
                }
                let whole = json!({
                    "$ref": format!("#/components/schemas/{name}"), "components": {"schemas": schemas},
                });
                // kubeconform calls the version of the first kinds their group, too.
                let group = if group.is_empty() { short } else { group };
                let file = format!("{}-{group}-{short}.json", kind.to_lowercase());
                std::fs::write(folder.join(&file), whole.to_string()).expect("a file");
                written.insert(file);
            }
        }
    }
    written
}

/// Forbids what a schema does not name, where it names anything.
fn close(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    let is_open = schema.get("x-kubernetes-preserve-unknown-fields").is_some_and(|open| open == true);
    if schema.contains_key("properties")
        && schema.get("type").is_some_and(|kind| kind == "object")
        && !is_open
    {
        schema.entry("additionalProperties").or_insert(false.into());
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(Map::values_mut).for_each(close);
    for key in ["items", "additionalProperties"] {
        schema.get_mut(key).into_iter().for_each(close);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        schema.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(close);
    }
}
