//! Fleets that Karpenter's users saw churn, played for hours: once everybody has a place, and nothing is asked of the fleet, no node
//! comes or goes and no pod is moved.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

/// What moves something, or tries to.
const MOVES: [&str; 5] = ["ClaimCreated", "NoCapacity", "Launched", "Evicted", "Terminating"];

/// A fleet in a directory, with a pool that may give back any number of nodes at once, as soon as their pods have been quiet.
struct Fleet {
    pools: String,
    workloads: String,
    script: String,
}

/// A Deployment: how many pods, what each asks for, and further lines of its pods' spec.
struct Deployment<'a> {
    name: &'a str,
    pods: u32,
    cpu: &'a str,
    memory: &'a str,
    more: &'a str,
}

impl Fleet {
    fn new(hours: u32) -> Self {
        let script = format!(
            "environment = \"prod\"\nregion = \"us-west-2\"\nduration = \"{hours}h\"\nworkloads = [\"workload/all.yaml\"]\n"
        );
        Self { pools: String::new(), workloads: String::new(), script }
    }

    /// A pool of these types in these zones.
    fn pool(mut self, name: &str, capacity_type: &str, zones: &[&str], key: &str, values: &[&str]) -> Self {
        let zones: Vec<String> = zones.iter().map(|zone| format!("us-west-2{zone}")).collect();
        write!(
            self.pools,
            r#"[pools.{name}]
strategy = "on-demand"
weight = 10
[pools.{name}.overrides]
spec.disruption.consolidateAfter = "0s"
spec.disruption.budgets = [{{ nodes = "100%" }}]
spec.template.spec.requirements = [
  {{ key = "{key}", operator = "In", values = {values:?} }},
  {{ key = "karpenter.sh/capacity-type", operator = "In", values = ["{capacity_type}"] }},
  {{ key = "topology.kubernetes.io/zone", operator = "In", values = {zones:?} }},
]
"#
        )
        .expect("a string takes it");
        self
    }

    fn run(mut self, deployment: &Deployment) -> Self {
        let Deployment { name, pods, cpu, memory, more } = deployment;
        write!(
            self.workloads,
            r#"---
apiVersion: apps/v1
kind: Deployment
metadata: {{ name: {name}, namespace: default }}
spec:
  replicas: {pods}
  selector: {{ matchLabels: {{ app: {name} }} }}
  template:
    metadata: {{ labels: {{ app: {name} }} }}
    spec:
{more}      containers: [{{ name: main, image: x, resources: {{ requests: {{ cpu: {cpu}, memory: {memory} }} }} }}]
"#
        )
        .expect("a string takes it");
        self
    }

    fn at(mut self, minute: u32, event: &str) -> Self {
        writeln!(self.script, "[[events]]\nat = \"{minute}m\"\n{event}").expect("a string takes it");
        self
    }

    /// Plays it; what moved in which minute.
    fn play(&self) -> Played {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (path, text) in [
            ("fleet.toml", "name = \"churn\"\n"),
            ("environments/prod.toml", &self.pools),
            ("workload/all.yaml", &self.workloads),
            ("simulation.toml", &self.script),
        ] {
            write(dir.path(), path, text);
        }
        let mut command = Command::cargo_bin("provisor").expect("the binary is built for the tests");
        let place = dir.path().display().to_string();
        let output = command
            .args(["simulate", "--output", "json", "--repo", &place])
            .env_remove("PROVISOR_REPO")
            .output()
            .expect("it starts");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{told}");
        Played(serde_json::from_slice(&output.stdout).expect("one document"))
    }
}

fn write(dir: &Path, path: &str, text: &str) {
    let file = dir.join(path);
    std::fs::create_dir_all(file.parent().expect("a parent")).expect("directories");
    std::fs::write(file, text).expect("written");
}

struct Played(Value);

impl Played {
    /// What moved from `minute` on, by kind.
    fn moves_after(&self, minute: i64) -> BTreeMap<&str, usize> {
        let moment = |value: &Value| -> jiff::Timestamp {
            value.as_str().expect("a moment").parse().expect("a moment")
        };
        let from = moment(&self.0["start"]) + jiff::SignedDuration::from_mins(minute);
        let mut moves = BTreeMap::new();
        for event in self.0["events"].as_array().expect("a list") {
            let kind = event["kind"].as_str().expect("a word");
            if MOVES.contains(&kind) && moment(&event["at"]) >= from {
                *moves.entry(kind).or_default() += 1;
            }
        }
        moves
    }

    fn types(&self) -> BTreeMap<&str, usize> {
        let mut types = BTreeMap::new();
        for node in self.0["nodes"].as_array().expect("a list") {
            *types.entry(node["instanceType"].as_str().expect("a type")).or_default() += 1;
        }
        types
    }

    fn nodes(&self) -> usize {
        self.types().values().sum()
    }

    #[track_caller]
    fn expect_rest_after(&self, minute: i64) {
        assert_eq!(self.0["pendingPods"], 0);
        let moves = self.moves_after(minute);
        assert!(moves.is_empty(), "{moves:?} after {minute} minutes, {:?}", self.types());
    }
}

fn deployment<'a>(name: &'a str, pods: u32, cpu: &'a str, memory: &'a str) -> Deployment<'a> {
    Deployment { name, pods, cpu, memory, more: "" }
}

const TYPE: &str = "node.kubernetes.io/instance-type";
const FAMILY: &str = "karpenter.k8s.aws/instance-family";

/// Services of all sizes, most of which would rather be spread: nodes look underutilized for ever
/// (aws/karpenter-provider-aws#7146).
#[test]
fn spread_services_of_all_sizes_come_to_rest() {
    let families = ["m6a", "c6a", "r6a", "m7i", "c7i"];
    let mut fleet = Fleet::new(8).pool("general", "on-demand", &["a", "b", "c"], FAMILY, &families);
    for at in 0..14_u32 {
        let name = format!("svc{at}");
        let when = if at % 3 == 0 { "DoNotSchedule" } else { "ScheduleAnyway" };
        let more = format!(
            "      topologySpreadConstraints:\n\
             \x20     - {{ maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: {when}, labelSelector: {{ matchLabels: {{ app: {name} }} }} }}\n\
             \x20     - {{ maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {{ matchLabels: {{ app: {name} }} }} }}\n"
        );
        let cpu = ["100m", "250m", "500m", "800m", "1500m"][(at % 5) as usize];
        let memory = ["256Mi", "700Mi", "1500Mi", "3000Mi"][(at % 4) as usize];
        fleet = fleet.run(&Deployment { name: &name, pods: 1 + at * 5 % 9, cpu, memory, more: &more });
    }
    let played = fleet.play();
    assert!(played.nodes() > 3, "{:?}", played.types());
    played.expect_rest_after(60);
}

/// Full nodes, and a few pods of another family that come and go: what they leave behind is tidied up once
/// (aws/karpenter-provider-aws#8536).
#[test]
fn pods_of_another_family_that_come_and_go_start_no_reshuffling() {
    let types = ["c6a.xlarge", "c6a.2xlarge", "r7i.large", "r7i.xlarge", "m6a.xlarge"];
    let mut fleet = Fleet::new(10).pool("general", "spot", &["a", "b", "c"], TYPE, &types);
    let names: Vec<String> = (0..12).map(|at| format!("web{at}")).collect();
    for name in &names {
        fleet = fleet.run(&deployment(name, 4, "900m", "1700Mi"));
    }
    let more = format!("      nodeSelector: {{ {FAMILY}: r7i }}\n");
    fleet = fleet.run(&Deployment { name: "big", pods: 0, cpu: "1500m", memory: "12Gi", more: &more });
    fleet = fleet.at(60, "scale = { workload = \"default/big\", to = 3 }");
    let played = fleet.at(90, "scale = { workload = \"default/big\", to = 0 }").play();
    let coming = played.moves_after(60);
    assert!(coming["Launched"] > 0 && coming["Terminating"] > 0, "they came and went: {coming:?}");
    played.expect_rest_after(120);
}

/// Nodes that are nine tenths full are no others' better (kubernetes-sigs/karpenter#2388).
#[test]
fn full_nodes_are_not_replaced_by_their_like() {
    let types = ["m6a.8xlarge", "m6a.4xlarge", "m5.8xlarge", "m6i.8xlarge"];
    let mut fleet = Fleet::new(10).pool("general", "on-demand", &["a", "b", "c"], TYPE, &types);
    let names: Vec<String> = (0..10).map(|at| format!("job{at}")).collect();
    for (at, name) in names.iter().enumerate() {
        let cpu = ["2800m", "5100m", "7300m"][at % 3];
        let memory = ["9Gi", "18Gi", "27Gi"][at % 3];
        fleet = fleet.run(&deployment(name, 3 + at as u32 % 5, cpu, memory));
    }
    let played = fleet.play();
    assert!(played.nodes() > 5, "{:?}", played.types());
    played.expect_rest_after(30);
}

/// A pod a node, of which half are of the dearer type because the cheaper one is sold out: it is tried again less and less often, and
/// no pod moves before there is room for it (kubernetes-sigs/karpenter#1293).
#[test]
fn what_stays_sold_out_is_tried_less_and_less_often() {
    let types = ["x2gd.4xlarge", "r6g.8xlarge"];
    let played = Fleet::new(14)
        .pool("general", "on-demand", &["a", "b", "c"], TYPE, &types)
        .run(&deployment("multiplayer", 6, "14", "200Gi"))
        .at(20, "shortage = { types = [\"x2gd.4xlarge\"], for = \"9h\" }")
        .at(30, "scale = { workload = \"default/multiplayer\", to = 12 }")
        .play();
    let tried = |from: i64, until: i64| {
        let count = |minute| played.moves_after(minute).get("NoCapacity").copied().unwrap_or_default();
        count(from) - count(until)
    };
    let (first, later) = (tried(40, 160), tried(400, 520));
    assert!(first > 0, "it is tried at all");
    assert!(later <= 12, "once or twice in two hours, by each of six nodes: {later}, at first {first}");
    let moved: BTreeMap<&str, usize> = played.moves_after(40);
    assert_eq!(moved["Evicted"], 6, "each once, when there is room again");
    assert_eq!(
        played.types(),
        BTreeMap::from([("x2gd.4xlarge", 12)]),
        "and the cheaper type is come back to"
    );
    played.expect_rest_after(11 * 60);
}

/// A pool for each zone, all of the same weight: ten pods in the place of one are placed once (kubernetes-sigs/karpenter#1851).
#[test]
fn equal_pools_of_one_zone_each_do_not_pass_pods_around() {
    let families = ["m5", "c5", "r5"];
    let mut fleet = Fleet::new(8);
    for zone in ["a", "b", "c"] {
        fleet = fleet.pool(&format!("zone-{zone}"), "on-demand", &[zone], FAMILY, &families);
    }
    let played = fleet
        .run(&deployment("web", 1, "1700m", "3Gi"))
        .at(60, "scale = { workload = \"default/web\", to = 10 }")
        .play();
    assert!(played.moves_after(60)["Launched"] > 0);
    played.expect_rest_after(90);
}
