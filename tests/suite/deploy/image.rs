//! The Dockerfile, as far as it can be held to the rest of the repository without building an image.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::shipped::rendered;

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

/// The instructions, one line each, without comments.
fn instructions() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("Dockerfile")).expect("the Dockerfile");
    let lines = text.replace("\\\n", " ");
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split =
        |line: &str| line.split_once(' ').map(|(word, rest)| (word.to_owned(), rest.trim().to_owned()));
    lines.map(|line| split(line).unwrap_or_else(|| panic!("`{line}` is no instruction"))).collect()
}

fn all(word: &str) -> Vec<String> {
    instructions().into_iter().filter(|(known, _)| known == word).map(|(_, rest)| rest).collect()
}

/// A toolchain file that asks for more than the image has, or for another version, would be fetched on every build.
#[test]
fn the_image_builds_with_the_pinned_compiler_and_fetches_no_other() {
    let pinned = std::fs::read_to_string(root().join("rust-toolchain.toml")).expect("a toolchain");
    let pinned: toml::Table = pinned.parse().expect("TOML");
    let version = pinned["toolchain"]["channel"].as_str().expect("a version");
    assert!(all("FROM").contains(&format!("rust:{version}-slim-bookworm AS build")), "{:?}", all("FROM"));
    assert!(all("ENV").contains(&format!("RUSTUP_TOOLCHAIN={version}")), "{:?}", all("ENV"));
}

#[test]
fn what_is_copied_into_images_is_there() {
    let mut made: BTreeSet<String> = BTreeSet::new();
    for (word, rest) in instructions() {
        let parts: Vec<&str> = rest.split_whitespace().collect();
        match (word.as_str(), parts.as_slice()) {
            // What steps of the first stage leave.
            ("RUN", _) => made.extend(parts.iter().map(|part| part.trim_end_matches('/').to_owned())),
            ("COPY", ["--from=build", from, _]) => {
                let from = from.trim_end_matches('/');
                let is_installed = from.starts_with("/etc/ssl/certs/") && made.contains("ca-certificates");
                assert!(made.contains(from) || is_installed, "no step makes {from}");
            }
            ("COPY", [from, to]) => {
                let file = root().join(from);
                assert!(file.exists(), "{from}");
                let mode = file.metadata().expect("it is there").permissions().mode();
                assert!(!to.contains("/bin/") || mode & 0o111 != 0, "{from} cannot be run");
            }
            _ => {}
        }
    }
    let ignored = std::fs::read_to_string(root().join(".dockerignore")).expect("a list");
    assert!(ignored.lines().any(|line| line == "target"), "hundreds of files that nobody needs");
}

/// What the shell gets of a step.
fn command(step: &str) -> String {
    let words = step.split_whitespace().skip_while(|word| word.starts_with("--mount="));
    words.collect::<Vec<_>>().join(" ")
}

/// What steps of the first stage ask of `rustup`, `cargo` and `cp` on a machine with this processor. No program is run.
fn asked_on(machine: &str) -> Vec<String> {
    let says = |name: &str| format!("{name}() {{ echo {name} \"$@\"; }}\n");
    let stand_ins = ["rustup", "cargo", "cp"].map(says).concat();
    let mut asked = Vec::new();
    for step in all("RUN").iter().map(|step| command(step)) {
        if step.contains("rustup") || step.contains("cargo") {
            let script = format!("uname() {{ echo {machine}; }}\n{stand_ins}{step}");
            let ran =
                Command::new("/bin/sh").args(["-c", &script]).env("PATH", "").output().expect("a shell");
            let said = String::from_utf8(ran.stdout).expect("text");
            asked.extend(said.lines().map(|line| line.trim_end().to_owned()));
        }
    }
    asked
}

/// The C library of the program is in the program, so it runs in an image that has none.
#[test]
fn the_program_is_static_whatever_processor_builds_it() {
    for machine in ["x86_64", "aarch64"] {
        let target = format!("{machine}-unknown-linux-musl");
        let expected = [
            format!("rustup target add {target}"),
            format!("cargo build --release --locked --target {target} --features"),
            format!("cp target/{target}/release/provisor /provisor"),
        ];
        assert_eq!(asked_on(machine), expected);
    }
}

/// The shell understands every step.
#[test]
fn every_step_is_a_shell_command() {
    let steps = all("RUN");
    assert!(steps.len() >= 3, "{steps:?}");
    for step in steps {
        let checked = Command::new("sh").args(["-n", "-c", &command(&step)]).status().expect("a shell");
        assert!(checked.success(), "{step}");
    }
}

/// Nothing else of the container can be written: passphrases of ssh are asked for by a script in the second.
#[test]
fn the_folders_that_the_program_writes_are_mounted() {
    let objects = rendered(&[]);
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    let volumes: BTreeSet<&str> = pod["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|volume| volume["emptyDir"]["sizeLimit"].is_string())
        .filter_map(|volume| volume["name"].as_str())
        .collect();
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let writable: BTreeSet<&str> = mounts
        .filter(|mount| mount["name"].as_str().is_some_and(|name| volumes.contains(name)))
        .filter_map(|mount| mount["mountPath"].as_str())
        .collect();
    let cache = container["env"].as_array().into_iter().flatten().find(|one| one["name"] == "XDG_CACHE_HOME");
    let cache = cache.and_then(|one| one["value"].as_str()).expect("where repositories are kept");
    assert!(writable.contains(cache), "{cache}: {writable:?}");
    assert!(writable.contains("/tmp"), "{writable:?}");
}
