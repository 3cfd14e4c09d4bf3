//! `docs/guide/eks.md`, from the first command to the last: an emulated account, a real API server, the program as its chart
//! starts it, and machines that join.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::emulator::{Emulator, REGION};
use super::kubelets::{Kubelets, endpoint_of};
use super::region::{FAMILIES, is_true, version_of};
use crate::bench::{CLAIMS, CLASSES, PATIENCE, POOLS, Running, text};
use crate::plane::{AUDITED, Plane, Size, bound, made_by};

/// What no emulator does: its arguments are checked against the definition of the service, and nothing is called.
/// An engine for images is not there at all.
const STAND_INS: &str = r#"
aws() {
  case "$1 $2" in
    "eks create-addon" | "eks create-pod-identity-association" | "eks create-access-entry")
      command aws "$@" --generate-cli-skeleton output >/dev/null ;;
    *) command aws "$@" ;;
  esac
}
docker() { [ "$1" = push ] || [ -f "${@: -1}/Dockerfile" ]; }
"#;

/// The account as somebody has it who has a cluster with a node of its own.
const ACCOUNT: &str = r##"
subnets=$(aws ec2 describe-subnets --query 'Subnets[].SubnetId' --output text | tr '\t' ,)
group=$(aws ec2 describe-security-groups --query 'SecurityGroups[0].GroupId' --output text)
aws eks create-cluster --name shop --role-arn arn:aws:iam::123456789012:role/shop \
  --resources-vpc-config "subnetIds=$subnets,securityGroupIds=$group" >/dev/null
of_cluster() { kubectl config view --flatten --raw --output "jsonpath={.clusters[0].cluster.$1}"; }
aws ec2 run-instances --image-id ami-1 --instance-type m5.large --user-data "#!/bin/sh
/etc/eks/bootstrap.sh shop --apiserver-endpoint '$(of_cluster server)' --b64-cluster-ca '$(of_cluster certificate-authority-data)'
" >/dev/null
echo "$group"
"##;

/// What must be there once the account, the network and the fleet are.
const QUESTIONS: &str = r#"
aws iam list-policies --scope Local --query 'Policies[].PolicyName' --output text
aws iam get-role --role-name ProvisorController-shop --query Role.AssumeRolePolicyDocument --output json
aws iam get-role --role-name KarpenterNodeRole-shop --query Role.RoleName --output text
aws iam list-roles --path-prefix /aws-service-role/ --query 'Roles[].Path' --output text
aws --endpoint-url "$AWS_ENDPOINT_URL" sqs get-queue-url --queue-name shop --output text
aws ec2 describe-subnets --filters Name=tag:karpenter.sh/discovery,Values=shop --query 'length(Subnets)' --output text
git --git-dir "$FLEET" log --format=%s main
"#;

const PROFILES: &str =
    "aws iam list-instance-profiles --query 'InstanceProfiles[].InstanceProfileName' --output text";

/// The commands of a page, in their order.
fn commands(page: &str) -> String {
    let mut script = String::new();
    let mut is_going_on = false;
    for line in page.lines() {
        let line = match line.strip_prefix("$ ") {
            Some(command) => command,
            None if is_going_on => line,
            None => continue,
        };
        is_going_on = line.ends_with('\\');
        script.push_str(line);
        script.push('\n');
    }
    script
}

/// Someone who follows the guide, with an account and a cluster.
struct Reader {
    // The first to go, because they ask both others.
    kubelets: Option<Kubelets>,
    plane: Plane,
    cloud: Emulator,
    runtime: Runtime,
    folder: TempDir,
}

impl Reader {
    fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let plane = Plane::start(Size::Everything);
        let version = version_of(&plane);
        let cloud = runtime.block_on(async {
            let cloud = Emulator::selling(FAMILIES).await;
            cloud.offer_images(&version).await;
            cloud.control("delays", json!({ "running": 0.3, "terminated": 0.3 })).await;
            cloud
        });
        let folder = TempDir::new().expect("a temporary directory");
        let tools = folder.path().join("bin");
        std::fs::create_dir(&tools).expect("a folder");
        let python = made_by("python-tool", &["emulator"]).expect("an emulator");
        for (name, program) in [
            ("aws", python.with_file_name("aws")),
            ("kubectl", made_by("control-plane/ensure", &[]).expect("a control plane").join("kubectl")),
            ("helm", made_by("go-tool", &["helm"]).expect("helm")),
            ("provisor", env!("CARGO_BIN_EXE_provisor").into()),
        ] {
            std::os::unix::fs::symlink(program, tools.join(name)).expect("a link");
        }
        for shipped in ["deploy", "Dockerfile"] {
            let there = Path::new(env!("CARGO_MANIFEST_DIR")).join(shipped);
            std::os::unix::fs::symlink(there, folder.path().join(shipped)).expect("a link");
        }
        let kubelets = Some(Kubelets::start(&cloud.url, plane.kubeconfig()));
        let reader = Self { kubelets, plane, cloud, runtime, folder };
        let made = Command::new("git").args(["init", "--quiet", "--bare"]).arg(reader.fleet()).status();
        assert!(made.expect("git runs").success());
        reader
    }

    /// The remote repository.
    fn fleet(&self) -> std::path::PathBuf {
        self.folder.path().join("fleet.git")
    }

    /// Types this into one shell, whose variables last from one time to the next, and answers with what it prints.
    #[track_caller]
    fn types(&self, script: &str) -> String {
        let address = self.fleet().display().to_string();
        let script = script.replace("https://git.example.com/fleet.git", &address);
        let lasting = "[ ! -f variables ] || . ./variables\ntrap 'export -p > variables' EXIT\n";
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.folder.path().join("bin").display());
        let ran = Command::new("bash")
            .args(["-c", &format!("set -euo pipefail\n{lasting}{STAND_INS}{script}")])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", self.plane.kubeconfig())
            .env("AWS_ENDPOINT_URL", &self.cloud.url)
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_REGION", REGION)
            .env("AWS_DEFAULT_REGION", REGION)
            .env("GIT_AUTHOR_NAME", "test")
            .env("GIT_AUTHOR_EMAIL", "test@example.com")
            .env("GIT_COMMITTER_NAME", "test")
            .env("GIT_COMMITTER_EMAIL", "test@example.com")
            .output()
            .expect("bash runs");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let told = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{script}\n{said}\n{told}");
        said
    }

    /// The controller as its Deployment starts it, with the rights of its service account and the role of its pod identity.
    fn starts_what_was_installed(&self) -> Running {
        let path = "/apis/apps/v1/namespaces/provisor/deployments/provisor";
        let deployment = self.plane.api.get(path).expect("it is installed");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let mut command = bound::command(env!("CARGO_BIN_EXE_provisor"));
        for argument in container["args"].as_array().expect("a list") {
            let argument = argument.as_str().expect("text");
            // Its pod has an address of its own.
            command
                .arg(argument.replace("0.0.0.0:8080", "127.0.0.1:0").replace("0.0.0.0:8081", "127.0.0.1:0"));
        }
        let account = self.plane.service_account("provisor", "provisor");
        command.args(["--namespace", "provisor", "--kubeconfig"]).arg(account);
        command.env("XDG_CACHE_HOME", self.folder.path().join("cache")).env("HOME", self.folder.path());
        command.env("AWS_ENDPOINT_URL", &self.cloud.url).env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("AWS_ACCESS_KEY_ID", AUDITED[0]).env("AWS_SECRET_ACCESS_KEY", "test");
        command.env_remove("AWS_REGION");
        Running::start(command, self.folder.path().join("log"))
    }

    fn list(&self, path: &str) -> Vec<Value> {
        let answer = self.plane.api.get(path).expect("a list");
        answer["items"].as_array().cloned().unwrap_or_default()
    }

    #[track_caller]
    fn waits(&self, what: &str, running: &Running, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(
                start.elapsed() < PATIENCE,
                "not {what} after {PATIENCE:?}\n{:#?}\n{}",
                [CLASSES, CLAIMS].map(|path| self.list(path)),
                running.log()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!("{what} after {:?}", start.elapsed());
    }

    /// How many machines are paid for: of the cluster itself, and bought by Provisor.
    fn machines(&self) -> [usize; 2] {
        let mut machines = self.runtime.block_on(self.cloud.machines());
        machines.retain(|machine| ["pending", "running"].contains(&text(machine, "/state")));
        [false, true]
            .map(|ours| machines.iter().filter(|machine| machine["token"].is_string() == ours).count())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.kubelets.take());
    }
}

#[test]
fn the_guide_to_eks_leads_from_an_account_to_pods_on_machines_and_back() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/eks.md");
    let page = std::fs::read_to_string(page).expect("the guide");
    // Of GNU alone: elsewhere the first is told as a missing suffix, and the second is the letter n.
    let edits: Vec<&str> = page.lines().filter(|line| line.starts_with("$ sed ")).collect();
    assert!(edits.iter().all(|line| !line.contains("-i ") && !line.contains("\\n")), "{edits:?}");
    let counted = commands(&page).lines().filter(|line| !line.starts_with(' ')).count();
    assert!(counted > 20, "the guide has commands: {counted}");
    let (account, rest) = page.split_once("## 4.").expect("a program");
    let (program, rest) = rest.split_once("## 5.").expect("a program that is there");
    let (at_work, away) = rest.split_once("## Away").expect("how to get rid of it");
    let (until_idle, uninstalled) = away.split_once("$ helm uninstall").expect("the end of the program");
    let (last, roles) =
        uninstalled.split_once("Machines know their role").expect("what machines leave behind");

    let reader = Reader::new();
    let (said, endpoint) = (reader.types(ACCOUNT), endpoint_of(reader.plane.kubeconfig()));
    let cluster = json!({ "name": "shop", "endpoint": endpoint, "group": said.trim() });
    reader.runtime.block_on(reader.cloud.control("cluster", cluster));
    reader.types(&commands(account));
    let answers = reader.types(QUESTIONS);
    for expected in [
        "ProvisorLaunching-shop",
        "ProvisorReading-shop",
        "ProvisorRoles-shop",
        "pods.eks.amazonaws.com",
        "123456789012:cluster/shop",
        "KarpenterNodeRole-shop",
        "spot.amazonaws.com",
        "/shop",
        "fleet: where shop is",
    ] {
        assert!(answers.contains(expected), "no `{expected}` in\n{answers}");
    }
    assert!(!answers.lines().any(|line| line == "0"), "subnets are found by their tag:\n{answers}");

    reader.types(&commands(program));
    let running = reader.starts_what_was_installed();
    let all_ready = |path| {
        let objects = reader.list(path);
        !objects.is_empty() && objects.iter().all(|object| is_true(object, "Ready"))
    };
    reader.waits("pools ready", &running, || all_ready(POOLS) && all_ready(CLASSES));
    let seen = reader.types(&commands(at_work));
    for expected in ["nodepool.karpenter.sh/", "ec2nodeclass.karpenter.k8s.aws/default"] {
        assert!(seen.contains(expected), "no `{expected}` in\n{seen}");
    }
    let pods = || reader.list("/api/v1/namespaces/default/pods");
    // Those of the first form ask for nothing, and go.
    let is_up = |pod: &&Value| {
        let asks = text(pod, "/spec/containers/0/resources/requests/cpu") == "1";
        asks && text(pod, "/status/phase") == "Running"
    };
    let run = || pods().iter().filter(is_up).count();
    reader.waits("all pods running", &running, || run() == 5);
    let [own, bought] = reader.machines();
    assert!(own == 1 && bought > 0, "{bought} were bought for them");

    reader.types(&commands(until_idle));
    let is_idle = || reader.list(CLAIMS).is_empty() && reader.list("/api/v1/nodes").len() == 1;
    reader.waits("all machines given back", &running, is_idle);
    assert_eq!(reader.machines(), [1, 0], "that of the cluster itself stays");
    let log = running.log();
    assert!(log.contains("\"simulated\":false") && !log.contains("\"simulated\":true"), "all of it is real");
    assert!(!log.to_lowercase().contains("forbidden"), "it lacks a right:\n{log}");
    reader.types(&commands(&format!("$ helm uninstall{}", last.split('\n').next().expect("one command"))));
    // Its pods are gone by then.
    assert_eq!(running.stop(), 130, "asked to end, it ends");
    reader.types(&commands(last));
    let profiles = reader.types(PROFILES);
    assert!(!profiles.trim().is_empty(), "the class outlives the program, and so does what was made for it");
    reader.types(&commands(roles));

    assert_eq!(reader.types(PROFILES).trim(), "", "a role that has one cannot be deleted");
    reader.types("timeout 20 kubectl delete ec2nodeclasses --all >/dev/null");
    for gone in [
        CLASSES,
        "/apis/apps/v1/namespaces/provisor/deployments",
        "/apis/apps/v1/namespaces/default/deployments",
    ] {
        assert_eq!(reader.list(gone), Vec::<Value>::new(), "{gone}");
    }
}
