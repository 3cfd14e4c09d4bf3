//! What the metric `build_info` says of the build: the compiler. The commit is in `PROVISOR_COMMIT`, if whoever builds says it.

use std::process::Command;

fn main() {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(compiler).arg("--version").output();
    let said = said.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    // `rustc 1.95.0 (59807616e 2026-04-14)`
    let version: Vec<&str> = said.split_whitespace().take(2).collect();
    println!("cargo::rustc-env=PROVISOR_RUSTC={}", version.join(""));
    println!("cargo::rerun-if-changed=build.rs");
}
