//! One emulated region and one control plane, Provisor between them, and machines that join.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_ec2::types::{Filter, RequestLaunchTemplateData, ResourceType, TagSpecification};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::emulator::{Emulator, QUEUE, REGION, tag, tagged};
use super::kubelets::{Kubelets, endpoint_of};
use crate::bench::{Bench, Running, text};
use crate::deploy::{AWS, rendered};
use crate::plane::{AUDITED, Plane};

/// A launch template as Karpenter names them.
const KARPENTERS: &str = "karpenter.k8s.aws/1234567890";
const THEIR_ROLE: &str = "theirs";
/// Names and paths.
const THEIR_PROFILES: [(&str, &str); 2] =
    [("west_1", "/karpenter/us-east-1/west/general/"), ("bastion", "/")];
/// The name of the cluster in the account.
pub const CLUSTER: &str = "east";

/// Enough to choose from.
pub const FAMILIES: &str = "m5,m6i,m6g,c5,c6i,c6g,r5,r6i";

/// What is somebody else's in the account, as it was when it was made.
pub struct Others {
    pub machines: Vec<Value>,
    network: Vec<String>,
    identities: Vec<String>,
}

pub struct Region {
    // The first to go, because it asks both others.
    kubelets: Option<Kubelets>,
    pub bench: Bench,
    pub cloud: Emulator,
    pub runtime: Runtime,
    /// Of Kubernetes, such as `1.36`.
    pub version: String,
    queue: String,
}

/// The environment `dev` with one pool whose nodes carry `generation` as a label. Within a budget, empty machines would go in turns, each
/// after the fifteen seconds in which it is looked at twice: they go together.
pub fn environment(generation: &str) -> String {
    format!(
        r#"
        region = "{REGION}"
        cluster = "{CLUSTER}"
        [pools.general]
        strategy = "spot-with-on-demand-fallback"
        limits = {{ cpu = "400" }}
        instance-cpu-max = 16
        consolidation-policy = "WhenEmpty"
        consolidate-after = "2s"
        labels = {{ generation = "{generation}" }}
        budgets = [{{ nodes = "40%", reasons = ["Drifted"] }}]
        "#
    )
}

impl Region {
    /// With what the account of a cluster has: network, images, a role, a queue.
    pub fn new() -> Self {
        Self::of(&environment("one"))
    }

    /// The same with a repository whose environment `dev` says this.
    pub fn of(environment: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let bench = Bench::with_rights(environment, rendered(&AWS));
        let version = version_of(&bench.plane);
        let (cloud, queue) = runtime.block_on(async {
            let cloud = Emulator::selling(FAMILIES).await;
            let role = format!("KarpenterNodeRole-{CLUSTER}");
            cloud.furnish(("karpenter.sh/discovery", CLUSTER), &role, &version).await;
            let made = cloud.sqs.create_queue().queue_name(QUEUE).send().await.expect("a queue");
            let queue = made.queue_url().expect("an address").to_owned();
            cloud.control("delays", json!({ "running": 0.3, "terminated": 0.3 })).await;
            (cloud, queue)
        });
        let kubelets = Kubelets::start(&cloud.url, bench.plane.kubeconfig());
        Self { kubelets: Some(kubelets), bench, cloud, runtime, version, queue }
    }

    /// Starts Provisor; it ends with the test, or when the answer is dropped.
    pub fn start(&self, more: &[&str]) -> Running {
        self.start_as(0, more)
    }

    /// The same as one of two replicas: both the API server and the account tell them apart.
    pub fn start_as(&self, replica: usize, more: &[&str]) -> Running {
        let said = ["--cloud", "aws", "--cluster-name", CLUSTER, "--interruption-queue", QUEUE];
        let environment = [&self.credentials(replica)[..], &[("AWS_REGION", REGION)]].concat();
        self.bench.run_as(replica, &[&said, more].concat(), &environment)
    }

    /// Starts it with the arguments of the chart, but for what says where a test has its things.
    pub fn start_shipped(&self) -> Running {
        let endpoint = endpoint_of(self.bench.plane.kubeconfig());
        let settings = format!(
            "cloud=aws,aws.clusterName={CLUSTER},aws.clusterEndpoint={endpoint},aws.region={REGION},aws.interruptionQueue={QUEUE}"
        );
        let objects = rendered(&["--set", &settings]);
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a deployment");
        let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
        let arguments = arguments.expect("a list").iter().map(|argument| argument.as_str().expect("text"));
        let of_the_place =
            ["run", "--repo", "--env", "--metrics-address", "--health-address", "--log-format"];
        let is_of_the_place =
            |argument: &&str| of_the_place.iter().any(|name| argument.split('=').next() == Some(name));
        let said: Vec<&str> = arguments.filter(|argument| !is_of_the_place(argument)).collect();
        assert!(said.len() > 5, "{said:?}");
        self.bench.run_as(0, &said, &self.credentials(0))
    }

    fn credentials(&self, replica: usize) -> [(&str, &str); 4] {
        [
            ("AWS_ENDPOINT_URL", self.cloud.url.as_str()),
            ("AWS_ACCESS_KEY_ID", AUDITED[replica]),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ]
    }

    pub fn control(&self, name: &str, said: Value) {
        self.runtime.block_on(self.cloud.control(name, said));
    }

    fn every_machine(&self) -> Vec<Value> {
        self.runtime.block_on(self.cloud.machines())
    }

    /// Every machine that was ever bought for a claim of ours.
    pub fn machines(&self) -> Vec<Value> {
        let mut machines = self.every_machine();
        machines.retain(|machine| machine["token"].is_string());
        machines
    }

    /// Ours that cost money.
    pub fn living(&self) -> Vec<Value> {
        let mut machines = self.machines();
        machines.retain(|machine| ["pending", "running"].contains(&text(machine, "/state")));
        machines
    }

    pub fn calls(&self, action: &str) -> Vec<Value> {
        self.runtime.block_on(self.cloud.calls(action))
    }

    /// What Provisor asked for, in the order of arrival.
    pub fn own_calls(&self) -> Vec<Value> {
        let mut calls = self.runtime.block_on(self.cloud.every_call());
        calls.retain(|call| AUDITED.contains(&text(call, "/who")));
        calls
    }

    /// Provisor called nothing that the shipped policies do not allow.
    pub fn expect_permitted(&self) {
        let allowed = provisor::api::ec2::permission::actions();
        let calls = self.own_calls();
        let made: BTreeSet<String> = calls
            .iter()
            .map(|call| {
                format!("{}:{}", text(call, "/service"), text(call, "/action").trim_end_matches("Batch"))
            })
            .collect();
        assert!(made.len() > 10, "{made:?}");
        let refused: Vec<&String> = made.iter().filter(|action| !allowed.contains(action.as_str())).collect();
        assert!(refused.is_empty(), "no policy allows {refused:?}");
    }

    /// EventBridge's way to say that a spot machine will be taken.
    pub fn warn_of_spot(&self, instance: &str) {
        let detail = json!({ "instance-id": instance, "instance-action": "terminate" });
        self.tell("aws.ec2", "EC2 Spot Instance Interruption Warning", detail);
    }

    /// EventBridge's way to say anything.
    pub fn tell(&self, source: &str, kind: &str, detail: Value) {
        let body = json!({
            "version": "0", "id": "1", "detail-type": kind, "source": source,
            "account": "123456789012", "time": jiff::Timestamp::now().to_string(), "region": REGION, "resources": [],
            "detail": detail,
        });
        self.send(body.to_string());
    }

    /// A message in the queue, whoever may have written it.
    pub fn send(&self, body: String) {
        let send = self.cloud.sqs.send_message().queue_url(&self.queue).message_body(body).send();
        self.runtime.block_on(send).expect("sent");
    }

    /// Messages that nobody has deleted yet.
    pub fn waiting_messages(&self) -> i32 {
        self.runtime.block_on(super::interruption::left(&self.cloud, &self.queue))
    }

    /// Claims, nodes and living machines are the same, one each.
    pub fn are_one_to_one(&self) -> bool {
        let (claims, nodes, machines) = (self.bench.claims(), self.bench.nodes(), self.living());
        let of = |objects: &[Value], pointer: &str| -> BTreeSet<String> {
            objects
                .iter()
                .map(|object| text(object, pointer).rsplit('/').next().unwrap_or_default().to_owned())
                .collect()
        };
        let bought = of(&machines, "/id");
        bought == of(&claims, "/status/providerID")
            && bought == of(&nodes, "/spec/providerID")
            && [claims.len(), nodes.len(), machines.len()] == [bought.len(); 3]
    }

    /// The uids of all claims that were ever made, in their order.
    pub fn claim_uids_made(&self) -> Vec<String> {
        self.bench.of_claims_made("/metadata/uid")
    }

    /// Every machine that was ever bought is of a claim that was made, and of no other's: no claim ever got two machines, not
    /// even one after the other, and no order brought two.
    pub fn expect_one_machine_a_claim(&self) {
        let made: BTreeSet<String> = self.claim_uids_made().into_iter().collect();
        let mut bought: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut tokens: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for machine in self.machines() {
            let id = text(&machine, "/id");
            let uid = text(&machine, "/tags/provisor.dev~1claim-uid");
            assert!(made.contains(uid), "a machine without a claim: {machine}");
            assert!(text(&machine, "/token").starts_with(uid), "a token tells of its claim: {machine}");
            bought.entry(uid.to_owned()).or_default().push(id.to_owned());
            tokens.entry(text(&machine, "/token").to_owned()).or_default().push(id.to_owned());
        }
        for machines in [bought, tokens] {
            let doubled: Vec<_> = machines.iter().filter(|(_, ids)| ids.len() > 1).collect();
            assert!(doubled.is_empty(), "claims or tokens with several machines: {doubled:?}");
        }
    }

    pub fn is_empty(&self) -> bool {
        self.living().is_empty()
            && self.bench.pods().is_empty()
            && self.bench.nodes().is_empty()
            && self.bench.claims().is_empty()
    }

    /// What is in the account beside what Provisor made, as it is now: machines that were bought for no claim of ours; networks and
    /// templates as EC2 describes them; the tags of whatever is selected by tags, ours included; and a role with instance profiles.
    fn others(&self) -> Others {
        let mut machines = self.every_machine();
        machines.retain(|machine| !machine["token"].is_string() && machine["tags"]["leaked"] != "yes");
        let ec2 = &self.cloud.ec2;
        let network = self.runtime.block_on(async {
            let subnets = ec2.describe_subnets().filters(tagged("owner", "them")).send().await;
            let groups = ec2.describe_security_groups().filters(tagged("owner", "them")).send().await;
            let templates = ec2.describe_launch_templates().launch_template_names("theirs");
            let templates = templates.launch_template_names("theirs-west");
            let templates = templates.launch_template_names(KARPENTERS).send().await;
            let versions =
                ec2.describe_launch_template_versions().launch_template_name("theirs").send().await;
            let selected = ["subnet", "security-group", "image"].map(str::to_owned).to_vec();
            let selected = Filter::builder().name("resource-type").set_values(Some(selected)).build();
            let tags = ec2.describe_tags().filters(selected).send().await;
            vec![
                format!("{:?}", subnets.expect("subnets").subnets()),
                format!("{:?}", groups.expect("groups").security_groups()),
                format!("{:?}", templates.expect("templates").launch_templates()),
                format!("{:?}", versions.expect("versions").launch_template_versions()),
                format!("{:?}", tags.expect("tags").tags()),
            ]
        });
        let identities = self.runtime.block_on(self.identities());
        Others { machines, network, identities }
    }

    /// Buys a machine by hand, with these tags.
    fn plant_machine(&self, tags: &[(&str, &str)]) -> String {
        let marks = specification(ResourceType::Instance, tags);
        let order = self.cloud.ec2.run_instances().min_count(1).max_count(1).image_id("ami-1");
        let answer = self.runtime.block_on(order.tag_specifications(marks).send()).expect("a machine");
        answer.instances().first().and_then(|made| made.instance_id()).expect("an id").to_owned()
    }

    /// A machine that is nobody's in particular, one of another cluster with all marks of a provisioner, one of this cluster
    /// that belongs to somebody else's pool, one of this cluster that no provisioner bought; a subnet and a security group that
    /// this cluster may use and another one's provisioner selects; a template without marks, one of that provisioner, and one that a
    /// Karpenter beside us made for this cluster; a role with an instance profile of that provisioner and one of nobody in particular.
    pub fn plant_others(&self) -> Others {
        let marks = |cluster: &'static str, pool: &'static str, claim: &'static str| {
            [
                ("karpenter.sh/nodepool", pool),
                ("karpenter.k8s.aws/ec2nodeclass", "default"),
                ("karpenter.sh/nodeclaim", claim),
                ("eks:eks-cluster-name", cluster),
            ]
        };
        self.plant_machine(&[("Name", "bastion")]);
        self.plant_machine(&marks("west", "general", "general-1"));
        self.plant_machine(&marks(CLUSTER, "theirs", "theirs-gone"));
        let node_group = [("eks:eks-cluster-name", CLUSTER), ("eks:nodegroup-name", "system")];
        self.plant_machine(&node_group);
        self.runtime.block_on(self.plant_network(&marks("west", "general", "general-1")));
        self.runtime.block_on(self.plant_identities());
        let others = self.others();
        assert_eq!(others.machines.len(), 4);
        assert!(others.network.iter().all(|said| said.len() > 10), "all is there: {:?}", others.network);
        others
    }

    async fn plant_network(&self, marks: &[(&str, &str)]) {
        let ec2 = &self.cloud.ec2;
        let shared =
            [("owner", "them"), ("karpenter.sh/discovery", "west"), ("kubernetes.io/cluster/east", "shared")];
        let vpcs = ec2.describe_vpcs().send().await.expect("networks");
        let vpc = vpcs.vpcs().first().and_then(|vpc| vpc.vpc_id()).expect("moto has a network");
        let subnet = ec2.create_subnet().vpc_id(vpc).cidr_block("172.31.240.0/24");
        let subnet = subnet.tag_specifications(specification(ResourceType::Subnet, &shared));
        subnet.send().await.expect("a subnet");
        let group = ec2.create_security_group().group_name("theirs").description("theirs").vpc_id(vpc);
        let group = group.tag_specifications(specification(ResourceType::SecurityGroup, &shared));
        group.send().await.expect("a group");
        let karpenters = [
            ("karpenter.sh/nodepool", "theirs"),
            ("eks:eks-cluster-name", CLUSTER),
            ("kubernetes.io/cluster/east", "owned"),
        ];
        for (name, marks) in [("theirs", &[][..]), ("theirs-west", marks), (KARPENTERS, &karpenters)] {
            let data = RequestLaunchTemplateData::builder().image_id("ami-1").build();
            let template = ec2.create_launch_template().launch_template_name(name).launch_template_data(data);
            let template = match marks {
                [] => template,
                marks => template.tag_specifications(specification(ResourceType::LaunchTemplate, marks)),
            };
            template.send().await.expect("a template");
        }
    }

    /// A role of others, and who may be it: machines of another cluster's class of the name of ours, and some that no provisioner buys.
    async fn plant_identities(&self) {
        let trust = ("AssumeRolePolicyDocument", "{}");
        self.cloud.raw("iam", &[("Action", "CreateRole"), ("RoleName", THEIR_ROLE), trust]).await;
        for (name, path) in THEIR_PROFILES {
            let name = ("InstanceProfileName", name);
            self.cloud.raw("iam", &[("Action", "CreateInstanceProfile"), name, ("Path", path)]).await;
            let role = ("RoleName", THEIR_ROLE);
            self.cloud.raw("iam", &[("Action", "AddRoleToInstanceProfile"), name, role]).await;
        }
    }

    async fn identities(&self) -> Vec<String> {
        let asked = THEIR_PROFILES.map(|(name, _)| ("GetInstanceProfile", "InstanceProfileName", name));
        let mut said = Vec::new();
        for (action, key, name) in asked.into_iter().chain([("GetRole", "RoleName", THEIR_ROLE)]) {
            let answer = self.cloud.raw("iam", &[("Action", action), (key, name)]).await;
            // What follows is about the question.
            let (about, _) = answer.split_once("<ResponseMetadata>").expect("an answer of IAM");
            said.push(about.to_owned());
        }
        said
    }

    pub fn expect_others(&self, before: &Others) {
        let now = self.others();
        assert_eq!(now.machines, before.machines, "somebody else's machines were touched");
        for (now, before) in now.network.iter().zip(&before.network) {
            assert_eq!(now, before, "what is somebody else's, or tagged by somebody, was touched");
        }
        assert_eq!(now.identities, before.identities, "somebody else's role or profile was touched");
    }

    /// A machine that was bought for our pool, as its tags tell, and whose claim is gone; its id.
    pub fn plant_leaked(&self) -> String {
        self.plant_machine(&[
            ("karpenter.sh/nodepool", "general"),
            ("karpenter.k8s.aws/ec2nodeclass", "general"),
            ("karpenter.sh/nodeclaim", "general-gone"),
            ("eks:eks-cluster-name", CLUSTER),
            ("leaked", "yes"),
        ])
    }

    /// The state of a machine of anybody's.
    pub fn state_of(&self, instance: &str) -> String {
        let machines = self.every_machine();
        let found = machines.iter().find(|machine| text(machine, "/id") == instance);
        text(found.expect("it was bought"), "/state").to_owned()
    }

    /// When Provisor told EC2 to end a machine, in seconds since 1970.
    pub fn ended_at(&self, instance: &str) -> Option<f64> {
        let mut ends = self
            .own_calls()
            .into_iter()
            .filter(|call| call["action"] == "TerminateInstances" && call.to_string().contains(instance));
        ends.next().and_then(|call| call["at"].as_f64())
    }
}

/// That of Kubernetes, such as `1.36`.
pub fn version_of(plane: &Plane) -> String {
    let version = plane.api.get("/version").expect("a version");
    format!("{}.{}", text(&version, "/major"), text(&version, "/minor"))
}

fn specification(kind: ResourceType, tags: &[(&str, &str)]) -> TagSpecification {
    let tags = tags.iter().map(|(key, value)| tag(key, value)).collect();
    TagSpecification::builder().resource_type(kind).set_tags(Some(tags)).build()
}

impl Drop for Region {
    fn drop(&mut self) {
        drop(self.kubelets.take());
    }
}

/// Whether an object has a condition, and it is true.
pub fn is_true(object: &Value, kind: &str) -> bool {
    crate::plane::has_condition(object, kind)
}

/// The middle and the slowest but a twentieth.
pub fn quantiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    let at = |share: usize| times[(times.len() * share).div_ceil(100).max(1) - 1];
    (at(50), at(95))
}
