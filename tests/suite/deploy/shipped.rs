//! The objects that `deploy/` ships: those of its files, and those that its chart makes.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::plane::made_by;

pub(crate) const REPO: &str = "source.repo=https://git.example.com/fleet.git";

/// What `cloud=aws` needs besides.
pub(crate) const AWS: [&str; 2] =
    ["--set", "cloud=aws,aws.clusterName=east,aws.clusterEndpoint=https://api.east"];

/// The objects of a folder's YAML files, in the order of their names.
pub(crate) fn manifests(folder: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).expect("a text"));
    texts.flat_map(|text| objects_of(&text)).collect()
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
    let output = helm(&[&["--set", REPO], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    objects_of(&String::from_utf8(output.stdout).expect("text"))
}
