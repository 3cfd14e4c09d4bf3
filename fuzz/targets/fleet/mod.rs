//! A repository of a few files.

use std::collections::BTreeMap;
use std::sync::Arc;

use provisor::gitops::render::{RenderSettings, render_environment, validate_repository};
use provisor::model::repository::{CommitId, Repository, Revision};

/// Renders and validates `files`, with a sound file in the place of each that is missing.
pub fn render(files: &[(&str, &[u8])]) {
    let mut all: BTreeMap<Arc<str>, Arc<[u8]>> = BTreeMap::new();
    all.insert("fleet.toml".into(), Arc::from(b"name = \"shop\"\n".as_slice()));
    all.insert(
        "environments/prod.toml".into(),
        Arc::from(b"[pools.general]\nstrategy = \"spot\"\n".as_slice()),
    );
    all.extend(files.iter().map(|(path, bytes)| (Arc::from(*path), Arc::from(*bytes))));
    if all.contains_key("environments/prod.yaml") {
        all.remove("environments/prod.toml");
    }
    let commit = CommitId::parse(&"a".repeat(40)).expect("forty digits");
    let revision = Revision { commit, reference: None, subject: "fuzz".into(), author: "nobody".into() };
    let repository = Repository { revision, files: all, refused: Default::default() };
    let settings = RenderSettings::default();
    if let Err(found) = render_environment(&repository, "prod", &settings) {
        drop(found.to_string());
    }
    validate_repository(&repository, &settings);
}
