//! The commands of `docs/guide/eks.md`, each of them, against an emulated account and a real API server.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::plane::{Plane, Size, bound, made_by};

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

/// The account as somebody has it who has a cluster.
const ACCOUNT: &str = r#"
subnets=$(aws ec2 describe-subnets --query 'Subnets[].SubnetId' --output text | tr '\t' ,)
group=$(aws ec2 describe-security-groups --query 'SecurityGroups[0].GroupId' --output text)
aws eks create-cluster --name shop --role-arn arn:aws:iam::123456789012:role/shop \
  --resources-vpc-config "subnetIds=$subnets,securityGroupIds=$group" >/dev/null
"#;

/// What the program makes of the fleet, which finds no machines here and is not started.
const OBJECTS: &str = r#"
provisor render dev --repo fleet | kubectl apply --server-side -f - >/dev/null
kubectl patch ec2nodeclasses default --type=merge --patch '{"metadata":{"finalizers":["karpenter.k8s.aws/termination"]}}' >/dev/null
"#;

/// What must be there afterwards.
const QUESTIONS: &str = r#"
aws iam list-policies --scope Local --query 'Policies[].PolicyName' --output text
aws iam get-role --role-name ProvisorController-shop --query Role.AssumeRolePolicyDocument --output json
aws iam get-role --role-name KarpenterNodeRole-shop --query Role.RoleName --output text
aws iam list-roles --path-prefix /aws-service-role/ --query 'Roles[].Path' --output text
aws --endpoint-url "$AWS_ENDPOINT_URL" sqs get-queue-url --queue-name shop --output text
aws ec2 describe-subnets --filters Name=tag:karpenter.sh/discovery,Values=shop --query 'length(Subnets)' --output text
git --git-dir "$FLEET" log --format=%s main
"#;

/// What machines leave behind.
const LEFT_BEHIND: &str = r#"
aws iam create-instance-profile --instance-profile-name shop_of_machines >/dev/null
aws iam add-role-to-instance-profile --instance-profile-name shop_of_machines --role-name KarpenterNodeRole-shop
"#;

/// What must be gone in the end.
const LAST_QUESTIONS: &str = r#"
aws iam list-instance-profiles --query 'InstanceProfiles[].InstanceProfileName' --output text
timeout 20 kubectl delete ec2nodeclasses --all >/dev/null
kubectl get ec2nodeclasses --output name
"#;

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

struct Cloud {
    process: Child,
    url: String,
    bin: std::path::PathBuf,
}

impl Cloud {
    fn start() -> Self {
        let python = made_by("python-tool", &["emulator"]).expect("an emulator");
        let mut command = bound::command(&python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator/emulator.py"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = bound::spawn(command).expect("python runs");
        let mut url = String::new();
        let said = process.stdout.take().expect("a pipe");
        BufReader::new(said).read_line(&mut url).expect("its address");
        let bin = python.parent().expect("a folder").to_owned();
        Self { process, url: url.trim().to_owned(), bin }
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).ok();
    }
}

#[test]
fn every_command_of_the_guide_to_eks_works_as_far_as_emulators_reach() {
    let (plane, cloud) = (Plane::start(Size::Objects), Cloud::start());
    let folder = TempDir::new().expect("a temporary directory");
    let tools = folder.path().join("bin");
    std::fs::create_dir(&tools).expect("a folder");
    for (name, program) in [
        ("aws", cloud.bin.join("aws")),
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
    let remote = folder.path().join("fleet.git");
    let made = Command::new("git").args(["init", "--quiet", "--bare"]).arg(&remote).status();
    assert!(made.expect("git runs").success());

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/eks.md");
    let page = std::fs::read_to_string(page).expect("the guide");
    // Of GNU alone: elsewhere the first is told as a missing suffix, and the second is the letter n.
    let edits: Vec<&str> = page.lines().filter(|line| line.starts_with("$ sed ")).collect();
    assert!(edits.iter().all(|line| !line.contains("-i ") && !line.contains("\\n")), "{edits:?}");
    let (until_there, rest) = page.split_once("## 5.").expect("a program that is there");
    let (at_work, away) = rest.split_once("## Away").expect("how to get rid of it");
    let address = remote.display().to_string();
    let here = |part: &str| commands(part).replace("https://git.example.com/fleet.git", &address);
    let counted = here(&page).lines().filter(|line| !line.starts_with(' ')).count();
    assert!(counted > 20, "the guide has commands: {counted}");
    let script = format!(
        "set -euo pipefail\n{STAND_INS}{ACCOUNT}set -x\n{}set +x\n{OBJECTS}set -x\n{}set +x\necho ---\n{QUESTIONS}{LEFT_BEHIND}echo ---\nset -x\n{}\nset +x\necho ---\n{LAST_QUESTIONS}",
        here(until_there),
        here(at_work),
        here(away)
    );
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let ran = Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path())
        .env("PATH", path)
        .env("HOME", folder.path())
        .env("KUBECONFIG", plane.kubeconfig())
        .env("AWS_ENDPOINT_URL", &cloud.url)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_DEFAULT_REGION", "us-east-1")
        .env("GIT_AUTHOR_NAME", "test")
        .env("GIT_AUTHOR_EMAIL", "test@example.com")
        .env("GIT_COMMITTER_NAME", "test")
        .env("GIT_COMMITTER_EMAIL", "test@example.com")
        .output()
        .expect("bash runs");
    let (said, told) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}\n{told}");

    let seen = said.split("---\n").next().expect("what is seen at work");
    for expected in ["nodepool.karpenter.sh/", "ec2nodeclass.karpenter.k8s.aws/default"] {
        assert!(seen.contains(expected), "no `{expected}` in\n{seen}\n{told}");
    }
    let answers = said.split("---\n").nth(1).expect("what was asked in between");
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
        assert!(answers.contains(expected), "no `{expected}` in\n{answers}\n{told}");
    }
    assert!(!answers.lines().any(|line| line == "0"), "subnets are found by their tag:\n{answers}");
    // What was installed is gone again.
    let left = said.split("---\n").nth(3).expect("what was asked in the end");
    assert_eq!(left.trim(), "", "a role could not be deleted, or a class\n{told}");
    let left = plane.api.get("/apis/apps/v1/namespaces/provisor/deployments").expect("a list");
    assert_eq!(left["items"].as_array().map(Vec::len), Some(0), "{left}");
    let inflate = plane.api.get("/apis/apps/v1/namespaces/default/deployments").expect("a list");
    assert_eq!(inflate["items"], Value::Array(Vec::new()));
}
