//! The objects that `deploy/` ships: those of its files, and those that its chart makes.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::plane::made_by;

/// What the chart has no default for, as the plain manifests have it.
pub(crate) const REPO: &str = "source.repo=https://git.example.com/fleet.git,source.environment=dev";

/// What `cloud=aws` needs besides.
pub(crate) const AWS: [&str; 2] =
    ["--set", "cloud=aws,aws.clusterName=east,aws.clusterEndpoint=https://api.east"];

/// What sets every optional part of the chart.
const EVERYTHING: &str = r#"
source: { ref: main }
imagePullSecrets: [{ name: registry }]
serviceAccount: { name: buyer, annotations: { "eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/buyer" } }
schedulerConfig:
  podTopologySpread:
    defaultConstraints: [{ maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway }]
extraArgs: [--prune=off]
recording: { enabled: true, size: 300Mi, volume: { persistentVolumeClaim: { claimName: recording } } }
env: [{ name: HTTPS_PROXY, value: "http://proxy:3128" }]
aws: { region: eu-west-1, interruptionQueue: east }
"#;

/// The objects of a folder's YAML files, in the order of their names.
pub(crate) fn manifests(folder: &str) -> Vec<Value> {
    files(folder).iter().flat_map(|text| objects_of(text)).collect()
}

/// The texts of a folder's files, in the order of their names.
pub(crate) fn files(folder: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).expect("a text")).collect()
}

/// What `helm template` prints for either cloud, with as little as it takes and with everything, by name.
pub(crate) fn flavours() -> Vec<(String, String)> {
    let everything = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(everything.path(), EVERYTHING).expect("a file");
    let values = ["--values", everything.path().to_str().expect("a path")];
    let clouds = [("simulated", &[][..]), ("aws", &AWS[..])];
    let shapes = clouds.into_iter().flat_map(|(cloud, said)| {
        [(cloud.to_owned(), said.to_vec()), (format!("{cloud}-everything"), [said, &values].concat())]
    });
    shapes.map(|(name, said)| (name, template(&said))).collect()
}

/// The objects of a stream of YAML documents.
pub(crate) fn objects_of(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("YAML");
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

pub(crate) fn helm(arguments: &[&str]) -> Output {
    let helm = made_by("go-tool", &["helm"]).expect("helm");
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/chart");
    let home = tempfile::TempDir::new().expect("a temporary directory");
    let mut command = Command::new(helm);
    command.args(["template", "provisor"]).arg(chart).args(["--namespace", "provisor"]).args(arguments);
    command.env("HOME", home.path()).output().expect("helm runs")
}

/// What the chart makes of these settings.
pub(crate) fn rendered(arguments: &[&str]) -> Vec<Value> {
    objects_of(&template(arguments))
}

fn template(arguments: &[&str]) -> String {
    let output = helm(&[&["--set", REPO], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
