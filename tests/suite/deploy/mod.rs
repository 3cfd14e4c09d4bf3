//! What `deploy/` ships, as a real API server sees it.

mod chart;
mod eks;
mod kinds;
mod pipelines;
mod run;

use std::path::Path;

use serde_json::Value;

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
