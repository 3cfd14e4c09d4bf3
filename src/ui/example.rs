//! The fleet that is played when none is given: `examples/eks-shop`, compiled in.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::repository::{CommitId, Repository, Revision};

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../examples/eks-shop/", $path)))),*]
    };
}

const FILES: &[(&str, &str)] = files![
    "README.md",
    "fleet.toml",
    "environments/base.toml",
    "environments/dev.toml",
    "environments/prod.toml",
    "later/prod.toml",
    "simulation.toml",
    "workload/shop.yaml",
];

/// Its files by path.
pub fn files() -> BTreeMap<Arc<str>, Arc<[u8]>> {
    FILES.iter().map(|(path, text)| (Arc::from(*path), Arc::from(text.as_bytes()))).collect()
}

/// The same as a commit that exists nowhere.
pub fn repository() -> Repository {
    Repository {
        revision: Revision {
            commit: CommitId::parse(&"0".repeat(40)).expect("forty zeros are a commit id"),
            reference: None,
            subject: "the built-in example".into(),
            author: "".into(),
        },
        files: files(),
        refused: BTreeMap::new(),
    }
}
