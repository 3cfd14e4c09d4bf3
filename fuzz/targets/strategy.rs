//! An environment, in TOML or in YAML: it is rendered, or each mistake has its place.
#![no_main]

mod fleet;

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Some((kind, text)) = data.split_first() else { return Corpus::Reject };
    let path = match kind % 4 {
        0 => "environments/prod.yaml",
        1 => "fleet.toml",
        2 => "policies/rules.toml",
        _ => "environments/prod.toml",
    };
    fleet::render(&[(path, text)]);
    Corpus::Keep
});
