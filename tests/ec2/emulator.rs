//! One emulated EC2 for one test, with a network, images and a role in it. It ends with the test, however that ends.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_ec2::types::{ArchitectureValues, Filter, ResourceType, Tag, TagSpecification};
use provisor::api::ec2::Cluster;
use provisor::api::{self, Object};
use provisor::io::cloud::LaunchOrder;
use provisor::io::cloud::aws::{AwsProvider, AwsSettings, CapacitySettings};
use provisor::model::action::LaunchOption;
use provisor::model::claim::NodeClaim;
use provisor::model::class::NodeClass;
use provisor::model::money::UsdPerHour;
use provisor::model::name::{TypeName, Zone};
use provisor::model::offering::CapacityType;
use provisor::model::owner::Owner;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::plane::made_by;

pub const REGION: &str = "us-east-1";
pub const QUEUE: &str = "notices";

pub struct Emulator {
    process: Child,
    pub url: String,
    pub config: SdkConfig,
    pub ec2: aws_sdk_ec2::Client,
    pub sqs: aws_sdk_sqs::Client,
    http: reqwest::Client,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It ends by itself when its input does; this only makes sure.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Emulator {
    /// An empty cloud that sells everything.
    pub async fn start() -> Self {
        Self::selling("").await
    }

    /// An empty cloud that sells a few families; all of them if none is named.
    pub async fn selling(families: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator");
        let python = made_by("python-tool", &["emulator"]).expect("an environment for moto");
        let mut process = Command::new(python)
            .arg(folder.join("emulator.py"))
            .args(["--families", families])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python runs");
        let mut url = String::new();
        let output = process.stdout.take().expect("its output is a pipe");
        BufReader::new(output).read_line(&mut url).expect("it prints its address");
        let url = url.trim().to_owned();
        assert!(url.starts_with("http://"), "the emulator did not start: {url}");
        let credentials = Credentials::new("test", "test", None, None, "test");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .endpoint_url(&url)
            .build();
        Self {
            process,
            ec2: aws_sdk_ec2::Client::new(&config),
            sqs: aws_sdk_sqs::Client::new(&config),
            config,
            url,
            http: reqwest::Client::new(),
        }
    }

    /// A cloud with what the class of [`class`] selects: tagged subnets in three zones, a security group, images, a role.
    pub async fn furnished() -> Self {
        let cloud = Self::start().await;
        cloud.furnish(("net", "nodes"), "nodes", "1.34").await;
        cloud
    }

    /// Makes subnets in three zones and a security group with a tag, images for a version of Kubernetes, and a role.
    pub async fn furnish(&self, (key, value): (&str, &str), role: &str, version: &str) {
        let cloud = self;
        let zones = Filter::builder()
            .name("availability-zone")
            .set_values(Some(["a", "b", "c"].map(|zone| format!("{REGION}{zone}")).to_vec()))
            .build();
        let subnets = cloud.ec2.describe_subnets().filters(zones).send().await.expect("subnets");
        let ids: Vec<String> =
            subnets.subnets().iter().filter_map(|subnet| subnet.subnet_id()).map(str::to_owned).collect();
        assert_eq!(ids.len(), 3, "moto has a subnet in every zone");
        cloud.ec2.create_tags().set_resources(Some(ids)).tags(tag(key, value)).send().await.expect("tags");
        cloud
            .ec2
            .create_security_group()
            .group_name("nodes")
            .description("nodes")
            .tag_specifications(
                TagSpecification::builder()
                    .resource_type(ResourceType::SecurityGroup)
                    .tags(tag(key, value))
                    .build(),
            )
            .send()
            .await
            .expect("a security group");
        cloud.offer_images(version).await;
        cloud
            .raw("iam", &[("Action", "CreateRole"), ("RoleName", role), ("AssumeRolePolicyDocument", "{}")])
            .await;
    }

    /// What Amazon has for everybody: images of AL2023 for a version of Kubernetes.
    pub async fn offer_images(&self, version: &str) {
        let amd64 = self.image("al2023-amd64", ArchitectureValues::X8664).await;
        let arm64 = self.image("al2023-arm64", ArchitectureValues::Arm64).await;
        let folder = format!("/aws/service/eks/optimized-ami/{version}/amazon-linux-2023");
        let named = json!({
            format!("{folder}/x86_64/standard/recommended/image_id"): amd64,
            format!("{folder}/arm64/standard/recommended/image_id"): arm64,
        });
        self.control("parameters", named).await;
    }

    pub async fn image(&self, name: &str, arch: ArchitectureValues) -> String {
        let made = self
            .ec2
            .register_image()
            .name(name)
            .architecture(arch)
            .root_device_name("/dev/xvda")
            .send()
            .await
            .expect("an image");
        made.image_id().expect("an id").to_owned()
    }

    /// A request as somebody else would make it; nobody checks its signature.
    pub async fn raw(&self, service: &str, parameters: &[(&str, &str)]) -> String {
        let mut form = reqwest::Url::parse("http://x").expect("a URL");
        form.query_pairs_mut().extend_pairs(parameters).append_pair("Version", "2010-05-08");
        let scope =
            format!("AWS4-HMAC-SHA256 Credential=test/20260101/{REGION}/{service}/aws4_request, Signature=0");
        let answer = self
            .http
            .post(format!("{}/", self.url))
            .header("authorization", scope)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.query().unwrap_or_default().to_owned())
            .send()
            .await
            .expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("a text");
        assert!(status.is_success(), "{text}");
        text
    }

    pub async fn control(&self, name: &str, said: Value) {
        let url = format!("{}/_emulator/{name}", self.url);
        let answer = self.http.post(url).body(said.to_string()).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{name} is refused");
    }

    async fn read(&self, name: &str) -> Vec<Value> {
        let url = format!("{}/_emulator/{name}", self.url);
        let text = self.http.get(url).send().await.expect("an answer").text().await.expect("a text");
        serde_json::from_str(&text).expect("a list")
    }

    pub async fn machines(&self) -> Vec<Value> {
        self.read("instances").await
    }

    /// What was asked for so far, by action.
    pub async fn calls(&self, action: &str) -> Vec<Value> {
        self.every_call().await.into_iter().filter(|call| call["action"] == action).collect()
    }

    pub async fn every_call(&self) -> Vec<Value> {
        self.read("calls").await
    }

    pub async fn has_no(&self, offerings: &[(&str, &str, &str)]) {
        self.control("no-capacity", json!(offerings)).await;
    }

    pub async fn fail(&self, action: &str, code: &str, status: u16, times: u32) {
        self.control("fail", json!({ "action": action, "code": code, "status": status, "times": times }))
            .await;
    }

    /// A process of Provisor that starts now.
    pub fn provider(&self) -> AwsProvider {
        self.provider_of(watch::channel("1.34".to_owned()).1)
    }

    /// The same for a cluster of this version of Kubernetes.
    pub fn provider_of(&self, version: watch::Receiver<String>) -> AwsProvider {
        let cluster = Cluster {
            name: "east".into(),
            endpoint: "https://api.east.example".into(),
            ca_bundle: "Y2E=".into(),
            service_cidr: Some("10.100.0.0/16".into()),
            dns: Some("10.100.0.10".into()),
        };
        let settings = AwsSettings {
            owner: Owner::new("provisor", "dev"),
            region: REGION.into(),
            cluster,
            version,
            queue: Some(QUEUE.into()),
            capacity: CapacitySettings::default(),
        };
        AwsProvider::new(&self.config, settings)
    }
}

pub fn tag(key: &str, value: &str) -> Tag {
    Tag::builder().key(key).value(value).build()
}

pub fn tagged(key: &str, value: &str) -> Filter {
    Filter::builder().name(format!("tag:{key}")).values(value).build()
}

/// A class whose selectors find what a furnished cloud has, with `more` in its spec.
pub fn class(more: Value) -> Arc<NodeClass> {
    let mut spec = json!({
        "amiSelectorTerms": [{ "alias": "al2023@latest" }],
        "subnetSelectorTerms": [{ "tags": { "net": "nodes" } }],
        "securityGroupSelectorTerms": [{ "tags": { "net": "*" } }],
        "role": "nodes",
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    // What is said to be nothing is left out.
    spec.as_object_mut().expect("a specification").retain(|_, value| !value.is_null());
    let manifest = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": { "name": "default" }, "spec": spec,
    });
    match api::parse(&manifest) {
        Ok(Object::NodeClass(class)) => Arc::new(class),
        other => panic!("{manifest} is not a class: {other:?}"),
    }
}

/// A claim of the pool `general`, created long ago: an earlier process may have bought for it.
pub fn claim(name: &str) -> Arc<NodeClaim> {
    let manifest = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": name, "uid": format!("00000000-0000-4000-8000-{name:0>12}"),
            "labels": { "karpenter.sh/nodepool": "general", "team": "web" },
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
            "requirements": [{ "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] }],
        },
    });
    match api::parse(&manifest) {
        Ok(Object::NodeClaim(claim)) => Arc::from(claim),
        other => panic!("{manifest} is not a claim: {other:?}"),
    }
}

/// Such as `m5.large a spot`, the first the cheapest.
pub fn options(texts: &[&str]) -> Vec<LaunchOption> {
    let option = |(at, text): (usize, &&str)| {
        let words: Vec<&str> = text.split(' ').collect();
        LaunchOption {
            price: UsdPerHour(10_000 * (i64::try_from(at).expect("few") + 1)),
            instance_type: TypeName::new(words[0]),
            zone: Zone::new(&format!("{REGION}{}", words[1])),
            capacity_type: CapacityType::parse(words[2]).expect("a capacity type"),
            reservation: None,
        }
    };
    texts.iter().enumerate().map(option).collect()
}

pub fn order(name: &str, texts: &[&str]) -> LaunchOrder {
    LaunchOrder { claim: claim(name), class: class(json!({})), options: options(texts) }
}

impl Emulator {
    /// One more subnet in the first zone, tagged `net=small`.
    pub async fn add_subnet(&self, vpc: &str, range: &str) {
        self.ec2
            .create_subnet()
            .vpc_id(vpc)
            .cidr_block(range)
            .availability_zone(format!("{REGION}a"))
            .tag_specifications(
                TagSpecification::builder()
                    .resource_type(ResourceType::Subnet)
                    .tags(tag("net", "small"))
                    .build(),
            )
            .send()
            .await
            .expect("a subnet");
    }
}
