//! The commands of the README, from a repository of one's own to pods that run on a real cluster.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::plane::{Plane, Size, bound, has_condition, made_by};

/// A cluster is there already; what makes one is not.
const STAND_INS: &str = "kind() { [ \"$*\" = 'create cluster' ]; }\n";

const PATIENCE: Duration = Duration::from_secs(240);

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
    let mut wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            let ended = running.try_wait().expect("it is ours");
            let said = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            assert!(
                ended.is_none() && start.elapsed() < PATIENCE,
                "not {what}: {ended:?} after {:?}\n{said}",
                start.elapsed()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let list = |path: &str| plane.api.get(path).body["items"].as_array().cloned().unwrap_or_default();
    wait("a pool", &|| !list("/apis/karpenter.sh/v1/nodepools").is_empty());

    // And beside it what does not fit.
    let inflate = block(&page, "$ kubectl create deployment");
    let replicas = inflate.split("--replicas ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let replicas: usize = replicas.and_then(|count| count.parse().ok()).expect("so many pods");
    let ran = Command::new("bash")
        .args(["-c", &format!("set -euxo pipefail\n{inflate}")])
        .env("PATH", format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default()))
        .env("HOME", folder.path())
        .env("KUBECONFIG", &kubeconfig)
        .output()
        .expect("bash runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let requests = "/spec/containers/0/resources/requests/cpu";
    let runs = |pod: &Value| pod["status"]["phase"] == "Running" && pod.pointer(requests).is_some();
    wait("so many pods that run", &|| {
        let pods = list("/api/v1/namespaces/default/pods");
        pods.len() == replicas && pods.iter().all(runs)
    });
    let nodes = list("/api/v1/nodes");
    assert!(nodes.iter().any(|node| has_condition(node, "Ready")), "{nodes:#?}");
    let claims = list("/apis/karpenter.sh/v1/nodeclaims");
    assert!(claims.iter().any(|claim| has_condition(claim, "Initialized")), "{claims:#?}");
    running.kill().and_then(|()| running.wait()).expect("it ends");
}
