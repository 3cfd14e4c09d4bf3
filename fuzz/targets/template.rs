//! A template: it is rendered within its fuel, or refused.
#![no_main]

mod fleet;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let prod = b"[pools.general]\nstrategy = \"own\"\n";
    fleet::render(&[("environments/prod.toml", prod), ("templates/own.yaml.j2", data)]);
});
