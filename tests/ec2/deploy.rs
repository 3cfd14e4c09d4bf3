//! What `deploy/` ships, as far as these tests install it.

use std::path::Path;

use serde_json::Value;

/// The objects of a folder's YAML files, in the order of their names.
pub(crate) fn manifests(folder: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(&folder).expect("a folder");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).expect("a text"));
    texts.flat_map(|text| serde_saphyr::from_multiple::<Value>(&text).expect("YAML")).collect()
}
