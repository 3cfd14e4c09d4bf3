//! Repositories for tests, written as a list of files.

use std::sync::Arc;

use provisor::gitops::desired::DesiredState;
use provisor::gitops::diagnostic::{Diagnostic, Diagnostics};
use provisor::gitops::render::{RenderSettings, Rendered, render_environment};
use provisor::model::repository::{CommitId, Repository, Revision};
use serde_json::Value;

/// A commit with exactly these files.
pub fn repository(files: &[(&str, &str)]) -> Repository {
    let bytes: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
    repository_of_bytes(&bytes)
}

pub fn repository_of_bytes(files: &[(&str, &[u8])]) -> Repository {
    Repository {
        revision: Revision {
            commit: CommitId::parse(&"a".repeat(40)).expect("forty digits"),
            reference: None,
            subject: "test".into(),
            author: "nobody".into(),
        },
        files: files.iter().map(|(path, bytes)| (Arc::from(*path), Arc::from(*bytes))).collect(),
        refused: Default::default(),
    }
}

/// A fleet named `shop` with one environment `prod` in TOML.
pub fn fleet(prod: &str) -> Repository {
    repository(&[("fleet.toml", "name = \"shop\"\n"), ("environments/prod.toml", prod)])
}

pub fn render(repository: &Repository) -> Result<Rendered, Diagnostics> {
    render_environment(repository, "prod", &RenderSettings::default())
}

/// Renders what must be right.
pub fn state(repository: &Repository) -> DesiredState {
    match render(repository) {
        Ok((state, _)) => state,
        Err(found) => panic!("{found}"),
    }
}

/// The manifest of one object.
pub fn manifest(state: &DesiredState, kind: &str, name: &str) -> Value {
    let object = state.objects.iter().find(|(key, _)| &*key.kind == kind && &*key.name == name);
    object.unwrap_or_else(|| panic!("no {kind} {name}")).1.manifest.clone()
}

/// Renders what must be wrong.
pub fn errors(repository: &Repository) -> Vec<Diagnostic> {
    match render(repository) {
        Ok(_) => panic!("it rendered"),
        Err(found) => found.into_iter().collect(),
    }
}
