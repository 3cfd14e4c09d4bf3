//! Three commands of the README, from a repository of one's own to a real cluster.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::plane::{Plane, Size, bound, made_by};

/// A cluster is there already; what makes one is not.
const STAND_INS: &str = "kind() { [ \"$*\" = 'create cluster' ]; }\n";

const PATIENCE: Duration = Duration::from_secs(120);

/// The commands of the block that begins with `first`, without what is said about them.
fn block(page: &str, first: &str) -> String {
    let lines = page.lines().skip_while(|line| !line.starts_with(first));
    let commands =
        lines.take_while(|line| !line.starts_with("```")).filter_map(|line| line.strip_prefix("$ "));
    commands.map(|line| format!("{}\n", line.split(" #").next().unwrap_or_default())).collect()
}

#[test]
fn the_way_of_the_readme_to_a_real_cluster_leads_there() {
    let plane = Plane::start(Size::Everything);
    let folder = TempDir::new().expect("a temporary directory");
    let tools = folder.path().join("bin");
    std::fs::create_dir(&tools).expect("a folder");
    for (name, program) in [
        ("kubectl", made_by("control-plane/ensure", &[]).expect("a control plane").join("kubectl")),
        ("provisor", env!("CARGO_BIN_EXE_provisor").into()),
    ] {
        std::os::unix::fs::symlink(program, tools.join(name)).expect("a link");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = std::fs::read_to_string(page).expect("the README");
    let first = "$ provisor init my-fleet && cd my-fleet";
    let begun = format!("{}\n", first.trim_start_matches("$ "));
    let live = block(&page, "$ kind create cluster");
    assert!(page.contains(first) && live.lines().count() == 3, "{live}");
    // Where the last one is a process that goes on.
    let (before, run) = live.trim_end().rsplit_once('\n').expect("three lines");
    let kubeconfig = plane.kubeconfig().display().to_string();
    let script = format!("set -euo pipefail\n{STAND_INS}{begun}{before}\nexec {run}\n");
    let log = std::fs::File::create(folder.path().join("log")).expect("a log");
    let mut command: Command = bound::command("bash");
    command
        .args(["-c", &script.replace("~/.kube/config", &kubeconfig)])
        .current_dir(folder.path())
        .env("PATH", format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default()))
        .env("HOME", folder.path())
        .env("KUBECONFIG", &kubeconfig)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log);
    let mut running = bound::spawn(command).expect("bash runs");
    let start = Instant::now();
    let is_there = || {
        let pools = plane.api.get("/apis/karpenter.sh/v1/nodepools").body;
        pools["items"].as_array().is_some_and(|pools| !pools.is_empty())
    };
    while !is_there() {
        let ended = running.try_wait().expect("it is ours");
        let said = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        assert!(
            ended.is_none() && start.elapsed() < PATIENCE,
            "{ended:?} after {:?}\n{said}",
            start.elapsed()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    running.kill().and_then(|()| running.wait()).expect("it ends");
}
