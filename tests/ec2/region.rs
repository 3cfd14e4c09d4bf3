//! One emulated region and one control plane, Provisor between them, and machines that join.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::emulator::{Emulator, QUEUE, REGION};
use super::kubelets::Kubelets;
use crate::bench::{Bench, Running, text};
use crate::deploy::{AWS, rendered};

/// The name of the cluster in the account.
pub const CLUSTER: &str = "east";

/// Enough to choose from.
const FAMILIES: &str = "m5,m6i,m6g,c5,c6i,c6g,r5,r6i";
/// The access key by which its calls are told from those of a test.
const PROVISOR: &str = "provisor";

pub struct Region {
    // The first to go, because it asks both others.
    kubelets: Option<Kubelets>,
    pub bench: Bench,
    pub cloud: Emulator,
    pub runtime: Runtime,
    queue: String,
}

/// The environment `dev` with one pool whose nodes carry `generation` as a label.
pub fn environment(generation: &str) -> String {
    format!(
        r#"
        region = "{REGION}"
        cluster = "{CLUSTER}"
        [pools.general]
        strategy = "spot-with-on-demand-fallback"
        limits = {{ cpu = "400" }}
        max-instance-cpu = 16
        consolidation-policy = "WhenEmpty"
        consolidate-after = "2s"
        labels = {{ generation = "{generation}" }}
        budgets = [{{ nodes = "40%" }}]
        "#
    )
}

impl Region {
    /// With what the account of a cluster has: network, images, a role, a queue.
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let bench = Bench::with_rights(&environment("one"), rendered(&AWS));
        let version = bench.plane.api.get("/version").expect("a version");
        let version = format!("{}.{}", text(&version, "/major"), text(&version, "/minor"));
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
        Self { kubelets: Some(kubelets), bench, cloud, runtime, queue }
    }

    /// Starts Provisor; it ends with the test, or when the answer is dropped.
    pub fn start(&self, more: &[&str]) -> Running {
        let said = ["--cloud", "aws", "--cluster-name", CLUSTER, "--interruption-queue", QUEUE];
        let environment = [
            ("AWS_ENDPOINT_URL", self.cloud.url.as_str()),
            ("AWS_REGION", REGION),
            ("AWS_ACCESS_KEY_ID", PROVISOR),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ];
        self.bench.run(&[&said, more].concat(), &environment)
    }

    pub fn control(&self, name: &str, said: Value) {
        self.runtime.block_on(self.cloud.control(name, said));
    }

    /// Every machine that was ever ours.
    pub fn machines(&self) -> Vec<Value> {
        let mut machines = self.runtime.block_on(self.cloud.machines());
        machines.retain(|machine| text(machine, "/tags/eks:eks-cluster-name") == CLUSTER);
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

    /// Provisor called nothing that the shipped policies do not allow.
    pub fn expect_permitted(&self) {
        let allowed = provisor::api::ec2::permission::actions();
        let calls = self.runtime.block_on(self.cloud.every_call());
        let made: BTreeSet<String> = calls
            .iter()
            .filter(|call| call["who"] == PROVISOR)
            .map(|call| {
                format!("{}:{}", text(call, "/service"), text(call, "/action").trim_end_matches("Batch"))
            })
            .collect();
        assert!(made.len() > 10, "{made:?}");
        let refused: Vec<&String> = made.iter().filter(|action| !allowed.contains(action.as_str())).collect();
        assert!(refused.is_empty(), "no policy allows {refused:?}");
    }

    /// EventBridge's way to say so.
    pub fn warn_of_spot(&self, instance: &str) {
        let body = json!({
            "version": "0", "id": "1", "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2",
            "account": "123456789012", "time": jiff::Timestamp::now().to_string(), "region": REGION, "resources": [],
            "detail": { "instance-id": instance, "instance-action": "terminate" },
        });
        let send = self.cloud.sqs.send_message().queue_url(&self.queue).message_body(body.to_string()).send();
        self.runtime.block_on(send).expect("sent");
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

    /// No claim ever got two machines, not even one after the other.
    pub fn expect_one_machine_a_claim(&self) {
        let mut bought: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for machine in self.machines() {
            let uid = text(&machine, "/tags/provisor.dev~1claim-uid").to_owned();
            assert!(!uid.is_empty(), "a machine without a claim: {machine}");
            bought.entry(uid).or_default().push(text(&machine, "/id").to_owned());
        }
        let doubled: Vec<_> = bought.iter().filter(|(_, ids)| ids.len() > 1).collect();
        assert!(doubled.is_empty(), "claims with several machines: {doubled:?}");
    }

    pub fn is_empty(&self) -> bool {
        self.living().is_empty()
            && self.bench.pods().is_empty()
            && self.bench.nodes().is_empty()
            && self.bench.claims().is_empty()
    }

    /// Machines of the account that are somebody else's, as they are now.
    fn others(&self) -> Vec<Value> {
        let mut machines = self.runtime.block_on(self.cloud.machines());
        machines.retain(|machine| text(machine, "/tags/eks:eks-cluster-name") != CLUSTER);
        machines
    }

    /// A machine without a cluster, one of another cluster with all marks of a provisioner, and a template.
    pub fn plant_others(&self) -> Vec<Value> {
        use super::emulator::tag;
        use aws_sdk_ec2::types::{RequestLaunchTemplateData, ResourceType, TagSpecification};
        let marks = TagSpecification::builder()
            .resource_type(ResourceType::Instance)
            .tags(tag("karpenter.sh/nodepool", "general"))
            .tags(tag("karpenter.k8s.aws/ec2nodeclass", "default"))
            .tags(tag("karpenter.sh/nodeclaim", "general-1"))
            .tags(tag("eks:eks-cluster-name", "west"))
            .tags(tag("kubernetes.io/cluster/west", "owned"))
            .build();
        self.runtime.block_on(async {
            let ec2 = &self.cloud.ec2;
            let one = || ec2.run_instances().min_count(1).max_count(1).image_id("ami-1");
            one().send().await.expect("a machine");
            one().tag_specifications(marks).send().await.expect("a machine");
            let data = RequestLaunchTemplateData::builder().image_id("ami-1").build();
            let template =
                ec2.create_launch_template().launch_template_name("theirs").launch_template_data(data);
            template.send().await.expect("a template");
        });
        let others = self.others();
        assert_eq!(others.len(), 2);
        others
    }

    pub fn expect_others(&self, before: &[Value]) {
        assert_eq!(self.others(), before, "somebody else's machines were touched");
        let templates = self.cloud.ec2.describe_launch_templates().launch_template_names("theirs").send();
        assert_eq!(self.runtime.block_on(templates).expect("an answer").launch_templates().len(), 1);
    }
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
