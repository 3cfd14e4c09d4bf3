//! The words of a strategy file. These types are the language: the JSON Schemas that editors use are made from
//! them, and files are checked against those same schemas, so that the two cannot disagree.
//!
//! Layers are partial by nature (`strategy` may come from a base), so nearly everything is optional here; what an
//! environment as a whole must have is checked after its layers are merged.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::gitops::schema::{
    BudgetNodes, ClockText, CommitText, CronText, DaysText, DurationText, ExpiryText, Mixed, NameText,
    PercentText, Quantity, RequirementSet, TaintText, VolumeSize, WaitText, WordList, ZoneText,
};

/// `fleet.toml`: the name of the fleet and what all its environments share.
#[derive(JsonSchema)]
#[schemars(title = "Provisor fleet", extend("additionalProperties" = false))]
pub struct Fleet {
    /// The name of the fleet: lower-case letters, digits and hyphens. Environments call their cluster
    /// `FLEET-ENVIRONMENT` unless they say otherwise.
    #[schemars(example = &"shop")]
    pub name: NameText,
    /// The version of this language that the file is written in. `provisor migrate` makes version 1 of version 0.
    #[schemars(range(min = 0), extend("default" = 1), example = 1)]
    pub format_version: Option<u32>,
    /// What the fleet is for; nobody but people reads it.
    #[schemars(example = &"the shop, development and production")]
    pub description: Option<String>,
    /// What every environment starts from.
    pub defaults: Option<FleetDefaults>,
    /// Dotted paths that no environment may change, such as `pools.general.budgets`; `*` stands for any name.
    #[serde(rename = "final")]
    #[schemars(example = ["pools.*.budgets"])]
    pub finals: Option<Vec<String>>,
}

/// The lowest layer of every environment.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct FleetDefaults {
    /// Who provisions: `provisor`, or `karpenter` when an installed Karpenter does and we only render and sync.
    #[schemars(extend("default" = "provisor"), example = &"karpenter")]
    pub engine: Option<Engine>,
    /// Who sells the machines of the cluster: `aws`, or `simulated` for machines that exist only as objects. What
    /// `provisor run` is started with otherwise.
    #[schemars(example = &"simulated")]
    pub cloud: Option<Cloud>,
    /// The AWS region of the clusters.
    #[schemars(example = &"ap-northeast-2")]
    pub region: Option<String>,
    /// The name of the cluster: part of the node role's name and the value of the discovery tag.
    #[schemars(example = &"shop-prod")]
    pub cluster: Option<String>,
    /// Values for templates, as `vars.NAME`.
    #[schemars(example = BTreeMap::from([("team", "shop")]))]
    pub variables: Option<BTreeMap<String, Mixed>>,
    /// What every pool starts from.
    pub pool: Option<Pool>,
    /// What every class starts from.
    pub class: Option<Class>,
}

/// `environments/NAME.toml`, `.yaml` or `.yml`: the node pools and node classes of one cluster.
#[derive(JsonSchema)]
#[schemars(title = "Provisor environment", extend("additionalProperties" = false))]
pub struct EnvironmentFile {
    /// The version of this language that the file is written in. `provisor migrate` makes version 1 of version 0.
    #[schemars(range(min = 0), extend("default" = 1), example = 1)]
    pub format_version: Option<u32>,
    /// What the environment is for; nobody but people reads it.
    #[schemars(example = &"customers")]
    pub description: Option<String>,
    /// Another file of `environments/`, by name without its ending, whose values this one builds on.
    #[schemars(example = &"base")]
    pub extends: Option<NameText>,
    /// True for a file that is only extended: it is checked, never rendered.
    #[serde(rename = "abstract")]
    #[schemars(extend("default" = false), example = true)]
    pub is_abstract: Option<bool>,
    /// Who provisions: `provisor`, or `karpenter` when an installed Karpenter does and we only render and sync.
    #[schemars(extend("default" = "provisor"), example = &"karpenter")]
    pub engine: Option<Engine>,
    /// Who sells the machines of the cluster: `aws`, or `simulated` for machines that exist only as objects. What
    /// `provisor run` is started with otherwise.
    #[schemars(example = &"simulated")]
    pub cloud: Option<Cloud>,
    /// The AWS region of the cluster.
    #[schemars(example = &"ap-northeast-2")]
    pub region: Option<String>,
    /// The name of the cluster: part of the node role's name and the value of the discovery tag. `FLEET-ENVIRONMENT`
    /// by default.
    #[schemars(example = &"shop-prod")]
    pub cluster: Option<String>,
    /// Values for templates, as `vars.NAME`.
    #[schemars(example = BTreeMap::from([("team", "shop")]))]
    pub variables: Option<BTreeMap<String, Mixed>>,
    /// What every pool and every class of this environment starts from.
    pub defaults: Option<EnvironmentDefaults>,
    /// The node pools by name; each becomes one NodePool.
    pub pools: Option<BTreeMap<NameText, Pool>>,
    /// The node classes by name; each becomes one EC2NodeClass.
    pub classes: Option<BTreeMap<NameText, Class>>,
    /// NodeOverlays by name: corrections of prices and capacities, written as the `spec` of the object.
    #[schemars(example = BTreeMap::from([("licence", BTreeMap::from([("priceAdjustment", "+10%")]))]))]
    pub overlays: Option<BTreeMap<NameText, Map<String, Value>>>,
    /// CapacityBuffers by name: room that is kept free, written as the `spec` of the object.
    pub buffers: Option<BTreeMap<NameText, Map<String, Value>>>,
    /// Values that this environment takes over from others, once they have proven themselves there.
    pub promotion: Option<Promotion>,
    /// Dotted paths that files which extend this one may not change, such as `pools.general.budgets`; `*` stands for
    /// any name.
    #[serde(rename = "final")]
    #[schemars(example = ["pools.*.budgets"])]
    pub finals: Option<Vec<String>>,
}

/// Which values come from which environments, and when. Nothing is changed by itself: a promotion is proposed.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct Promotion {
    /// The environments that vouch for a value.
    #[schemars(example = ["dev"])]
    pub from: Vec<NameText>,
    /// Dotted paths that are promoted, with all below them; `*` stands for the names that both environments have.
    #[schemars(example = ["pools.*.limits", "classes.default.ami"])]
    pub paths: Vec<String>,
    /// How long an environment must have stood as `require` says, without a break, before its values are proposed.
    #[schemars(extend("default" = "0s"), example = &"2h")]
    pub soak: Option<DurationText>,
    /// How an environment must stand: `healthy`, or `healthy+rolled-out` if its nodes must follow its objects too.
    #[schemars(extend("default" = "healthy+rolled-out"), example = &"healthy")]
    pub require: Option<PromotionRequirement>,
    /// Whether `all` environments must vouch, or the first `one-of` them that can.
    #[schemars(rename = "match", extend("default" = "all"), example = &"one-of")]
    pub matching: Option<PromotionMatch>,
    /// The commit that went back to earlier values by hand: naming it lets promotions go on.
    #[schemars(example = &"3f2a9c1")]
    pub release: Option<CommitText>,
}

/// How an environment must stand before its values are promoted.
#[derive(JsonSchema)]
pub enum PromotionRequirement {
    #[schemars(rename = "healthy")]
    Healthy,
    #[schemars(rename = "healthy+rolled-out")]
    HealthyAndRolledOut,
}

/// How many of the environments must vouch.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub enum PromotionMatch {
    All,
    OneOf,
}

/// What the pools and classes of one environment start from.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct EnvironmentDefaults {
    /// What every pool starts from.
    pub pool: Option<Pool>,
    /// What every class starts from.
    pub class: Option<Class>,
}

/// Who acts on the rendered objects.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub enum Engine {
    Provisor,
    Karpenter,
}

/// Who sells machines.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub enum Cloud {
    Aws,
    Simulated,
}

/// One node pool.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct Pool {
    /// The template that makes the NodePool: `templates/NAME.yaml.j2` of the repository, or a built-in one: `spot`,
    /// `spot-with-on-demand-fallback`, `on-demand`, `gpu-spot`, `gpu-premium`, `static`, `bottlerocket`, `self-managed`.
    #[schemars(example = &"spot-with-on-demand-fallback")]
    pub strategy: Option<NameText>,
    /// What the pool is for; becomes the annotation `kubernetes.io/description`.
    #[schemars(example = &"stateless services")]
    pub description: Option<String>,
    /// The node class: a name under `classes`. `default` unless the strategy brings its own.
    #[schemars(example = &"default")]
    pub class: Option<NameText>,
    /// How much the pool may hold: any resource, or `nodes`.
    #[schemars(example = BTreeMap::from([("cpu", "200"), ("memory", "800Gi"), ("nodes", "20")]))]
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// Pools with a higher weight are tried first.
    #[schemars(range(min = 1, max = 100), example = 10)]
    pub weight: Option<i64>,
    /// Availability zones by name; all that the subnets offer by default.
    #[schemars(example = ["ap-northeast-2a", "ap-northeast-2c"])]
    pub zones: Option<Vec<String>>,
    /// How nodes are paid for; the strategy's choice by default.
    #[schemars(example = ["spot"])]
    pub capacity_types: Option<Vec<CapacityType>>,
    /// Processor architectures; `amd64` by default.
    #[schemars(example = ["arm64"])]
    pub architectures: Option<Vec<Architecture>>,
    /// Exact instance types. Choosing any instances replaces the strategy's own choice.
    #[schemars(example = ["t3.medium", "t3a.medium"])]
    pub instance_types: Option<Vec<String>>,
    /// Instance families.
    #[schemars(example = ["m7i", "m7g"])]
    pub instance_families: Option<Vec<String>>,
    /// Instance categories: the letters a family starts with.
    #[schemars(example = ["c", "m", "r"])]
    pub instance_categories: Option<Vec<String>>,
    /// Instance sizes.
    #[schemars(example = ["large", "xlarge"])]
    pub instance_sizes: Option<Vec<String>>,
    /// The oldest instance generation.
    #[schemars(range(min = 1, max = 100), example = 5)]
    pub instance_generation_min: Option<i64>,
    /// The fewest virtual CPUs of a node.
    #[schemars(range(min = 1, max = 100_000), example = 2)]
    pub instance_cpu_min: Option<i64>,
    /// The most virtual CPUs of a node.
    #[schemars(range(min = 1, max = 100_000), example = 32)]
    pub instance_cpu_max: Option<i64>,
    /// Any other requirement on nodes, as a table by label (`{ "karpenter.k8s.aws/instance-hypervisor" = ["nitro"] }`,
    /// `{ key = { operator = "Gt", values = ["4"] } }`) or as the list of the NodePool. Layers merge by label.
    pub requirements: Option<RequirementSet>,
    /// Labels of the nodes.
    #[schemars(example = BTreeMap::from([("role", "web")]))]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the nodes.
    #[schemars(example = BTreeMap::from([("example.com/owner", "shop")]))]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Taints of the nodes, as `key=value:Effect`, `key:Effect` or tables. Layers merge by key and effect.
    #[schemars(example = ["dedicated=batch:NoSchedule"])]
    pub taints: Option<Vec<TaintText>>,
    /// Taints that something removes after boot; pods need not tolerate them.
    #[schemars(example = ["node.cilium.io/agent-not-ready:NoExecute"])]
    pub startup_taints: Option<Vec<TaintText>>,
    /// How old a node may become, or `Never`. 720h by default.
    #[schemars(extend("default" = "720h"), example = &"168h")]
    pub expire_after: Option<ExpiryText>,
    /// How long a drain may take before it is forced; unlimited by default.
    #[schemars(example = &"1h")]
    pub termination_grace_period: Option<DurationText>,
    /// Which nodes may be given back; the strategy's choice by default.
    #[schemars(example = &"WhenEmpty")]
    pub consolidation_policy: Option<ConsolidationPolicy>,
    /// How long a node must be quiet before it may be given back, or `Never`.
    #[schemars(example = &"5m")]
    pub consolidate_after: Option<ExpiryText>,
    /// How many nodes may be disrupted at a time. The most restrictive active budget wins. Layers merge by name.
    #[schemars(example = [BTreeMap::from([("name", "always"), ("nodes", "10%")])])]
    pub budgets: Option<Vec<Budget>>,
    /// How nodes go back to the capacity type that the pool prefers, after that was sold out.
    #[schemars(rename = "return", example = BTreeMap::from([("after", "30m")]))]
    pub returns: Option<Return>,
    /// When nodes may be disrupted, by the clock of a place. An open denial wins; else, if any window allows a reason, one of
    /// those has to be open. Layers merge by name.
    #[schemars(example = [BTreeMap::from([("kind", "allow"), ("from", "01:00"), ("until", "05:00"), ("time-zone", "Asia/Seoul")])])]
    pub windows: Option<Vec<Window>>,
    /// How nodes go for their age; by default all at once and by force, as in Karpenter.
    #[schemars(example = BTreeMap::from([("jitter", "10%"), ("deadline", "72h")]))]
    pub expiration: Option<Expiration>,
    /// Room for pods to come that nodes of this pool always keep free.
    #[schemars(example = BTreeMap::from([("cpu", "500m"), ("memory", "1Gi")]))]
    pub headroom: Option<Headroom>,
    /// How nodes that are not what the pool would make now are replaced.
    #[schemars(example = BTreeMap::from([("soak", "30m")]))]
    pub roll: Option<Roll>,
    /// A fixed number of nodes, for the strategy `static`.
    #[schemars(range(min = 0), example = 3)]
    pub replicas: Option<i64>,
    /// Values for the template of this pool, over those of the environment.
    #[schemars(example = BTreeMap::from([("team", "search")]))]
    pub variables: Option<BTreeMap<String, Mixed>>,
    /// Fields of the rendered NodePool, merged onto it last: as nested tables or dotted paths. `{ "$remove" = true }`
    /// deletes a field.
    #[schemars(example = BTreeMap::from([("spec.disruption.consolidateAfter", "5m")]))]
    pub overrides: Option<Map<String, Value>>,
}

/// A node that was bought as what its pool likes less, such as on-demand instead of spot, is replaced once what it prefers is to be
/// had for less again. Becomes the annotation `provisor.dev/return`.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct Return {
    /// How long the node stays as it was bought, or `never` for good. Twice as long after each return that did not last, up to a day.
    #[schemars(extend("default" = "30m"), example = &"2h")]
    pub after: Option<WaitText>,
}

/// Nodes that become too old go one after the other, within the budgets that name no reasons, their replacements first. Becomes the
/// annotation `provisor.dev/expiration`.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct Expiration {
    /// How much sooner than `expire-after` a node may go at the most, each by a share of its own, so that those that were bought
    /// together go apart. Up to 50%.
    #[schemars(extend("default" = "10%"), example = &"20%")]
    pub jitter: Option<PercentText>,
    /// Whether what comes in its place is ready before a node goes.
    #[schemars(extend("default" = true), example = false)]
    pub replace_first: Option<bool>,
    /// How many nodes of the pool may be away when one goes for its age, besides what budgets without reasons say.
    #[schemars(example = &"1")]
    pub nodes: Option<BudgetNodes>,
    /// How long after `expire-after` a node goes by force, whatever budgets, windows and pods say, or `never`.
    #[schemars(extend("default" = "168h"), example = &"72h")]
    pub deadline: Option<WaitText>,
}

/// A time of the week in which nodes may go, or may not. The annotation `provisor.dev/windows` has all of a pool's.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct Window {
    /// The name by which a higher layer replaces this window; not part of the object.
    #[schemars(example = &"nights")]
    pub name: Option<String>,
    /// Whether nodes may go in it (`allow`), or may not (`deny`).
    #[schemars(example = &"allow")]
    pub kind: Option<WindowKind>,
    /// The reasons that it is about; all by default.
    #[schemars(example = ["Drifted"])]
    pub reasons: Option<Vec<WindowReason>>,
    /// The weekdays on which it begins; all by default.
    #[schemars(extend("default" = "mon-sun"), example = &"mon-fri")]
    pub days: Option<DaysText>,
    /// When it begins.
    #[schemars(extend("default" = "00:00"), example = &"22:00")]
    pub from: Option<ClockText>,
    /// When it ends: on the next day, unless that is later than `from`.
    #[schemars(extend("default" = "24:00"), example = &"06:00")]
    pub until: Option<ClockText>,
    /// The time zone whose clock counts.
    #[schemars(extend("default" = "UTC"), example = &"Asia/Seoul")]
    pub time_zone: Option<ZoneText>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub enum WindowKind {
    Allow,
    Deny,
}

/// What a window may be about.
#[derive(JsonSchema)]
pub enum WindowReason {
    Underutilized,
    Empty,
    Drifted,
    Expired,
}

/// Room that is kept free: so many pods of one size would start without waiting for a node. Rendered as a CapacityBuffer and
/// the PodTemplate that it measures by.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct Headroom {
    /// How many pods there is room for.
    #[schemars(range(min = 0, max = 10_000), extend("default" = 1), example = 4)]
    pub pods: Option<i64>,
    /// The CPU that each of them would ask for.
    #[schemars(example = &"500m")]
    pub cpu: Option<Quantity>,
    /// The memory that each of them would ask for.
    #[schemars(example = &"1Gi")]
    pub memory: Option<Quantity>,
    /// Other resources that each of them would ask for.
    #[schemars(example = BTreeMap::from([("nvidia.com/gpu", "1")]))]
    pub resources: Option<BTreeMap<String, Quantity>>,
    /// The namespace of the rendered objects.
    #[schemars(extend("default" = "default"), example = &"shop")]
    pub namespace: Option<NameText>,
}

/// How nodes that have drifted are replaced, within the pool's budgets. Rendered as the annotation `provisor.dev/roll` of the
/// NodePool; the nodes do not drift by it.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct Roll {
    /// Replaces nothing that has drifted as long as it is true.
    #[schemars(extend("default" = false), example = true)]
    pub paused: Option<bool>,
    /// How many new nodes have to prove themselves before the others are replaced; 0 for none.
    #[schemars(range(min = 0, max = 1000), extend("default" = 0), example = 1)]
    pub canary: Option<i64>,
    /// How long those nodes have to be ready for that.
    #[schemars(extend("default" = "10m"), example = &"30m")]
    pub soak: Option<DurationText>,
    /// How many replacements there may be at once beside the nodes that they replace: a number, or a percentage of the pool's
    /// nodes. As many as budgets let go by default.
    #[schemars(example = &"10%")]
    pub surge: Option<BudgetNodes>,
    /// After so many tries in a row that failed nothing more is tried until the pool asks for something else, or a person says so.
    #[schemars(range(min = 1, max = 1000), extend("default" = 3), example = 5)]
    pub halt_after: Option<i64>,
}

/// How a node is paid for.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub enum CapacityType {
    Spot,
    OnDemand,
    Reserved,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub enum Architecture {
    Amd64,
    Arm64,
}

/// Which nodes may be given back.
#[derive(JsonSchema)]
pub enum ConsolidationPolicy {
    WhenEmpty,
    WhenEmptyOrUnderutilized,
    Balanced,
}

/// One disruption budget.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct Budget {
    /// The name by which a higher layer replaces this budget; not part of the object.
    #[schemars(example = &"business-hours")]
    pub name: Option<String>,
    /// How many nodes at a time: a number or a percentage of the pool.
    #[schemars(extend("default" = "10%"), example = &"10%")]
    pub nodes: Option<BudgetNodes>,
    /// The reasons that the budget restrains; all by default.
    #[schemars(example = ["Underutilized"])]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// When the budget starts to apply: five cron fields or a macro such as `@daily`, in UTC. Needs `duration`.
    #[schemars(example = &"0 9 * * mon-fri")]
    pub schedule: Option<CronText>,
    /// How long it then applies: hours and minutes. Needs `schedule`.
    #[schemars(example = &"8h")]
    pub duration: Option<DurationText>,
}

#[derive(JsonSchema)]
pub enum DisruptionReason {
    Underutilized,
    Empty,
    Drifted,
}

/// One node class.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct Class {
    /// True for a class that exists in the cluster and is made elsewhere: pools may name it, nothing is rendered.
    #[schemars(extend("default" = false), example = true)]
    pub external: Option<bool>,
    /// The operating system that fills in what is not given: `al2023`, `bottlerocket`, or `self-managed` (Ubuntu that
    /// joins by kubeadm). The strategies `bottlerocket` and `self-managed` choose theirs.
    #[schemars(extend("default" = "al2023"), example = &"bottlerocket")]
    pub preset: Option<Preset>,
    /// What the class is for; becomes the annotation `kubernetes.io/description`.
    #[schemars(example = &"nodes with a large disk")]
    pub description: Option<String>,
    /// The machine image: an alias (`al2023@latest`), an image id, or a list of selector terms.
    #[schemars(extend("default" = "al2023@latest"), example = &"al2023@v20250920")]
    pub ami: Option<Mixed>,
    /// The image family; follows from an alias.
    #[schemars(example = &"AL2023")]
    pub ami_family: Option<AmiFamily>,
    /// The IAM role of the nodes. `KarpenterNodeRole-CLUSTER` by default.
    #[schemars(example = &"KarpenterNodeRole-shop-prod")]
    pub role: Option<String>,
    /// An instance profile that already exists, instead of `role`.
    #[schemars(example = &"karpenter-node-profile")]
    pub instance_profile: Option<String>,
    /// The subnets: tags as a table, ids as a list, or a list of selector terms. The tag `karpenter.sh/discovery` with
    /// the name of the cluster by default.
    #[schemars(example = BTreeMap::from([("karpenter.sh/discovery", "shop-prod")]))]
    pub subnets: Option<Mixed>,
    /// The security groups, selected like `subnets`.
    #[schemars(example = BTreeMap::from([("karpenter.sh/discovery", "shop-prod")]))]
    pub security_groups: Option<Mixed>,
    /// Capacity reservations, as a list of selector terms.
    #[schemars(example = [BTreeMap::from([("id", "cr-0123456789abcdef0")])])]
    pub capacity_reservations: Option<Vec<Map<String, Value>>>,
    /// Tags of instances, volumes and interfaces.
    #[schemars(example = BTreeMap::from([("team", "shop")]))]
    pub tags: Option<BTreeMap<String, String>>,
    /// Disks. The family's own by default. Layers merge by device.
    #[schemars(example = [BTreeMap::from([("device", "/dev/xvda"), ("size", "100Gi")])])]
    pub volumes: Option<Vec<Volume>>,
    /// Kubelet settings, as in the EC2NodeClass: `maxPods`, `kubeReserved`, `evictionHard` and so on.
    #[schemars(example = BTreeMap::from([("maxPods", 110)]))]
    pub kubelet: Option<Map<String, Value>>,
    /// The text that the node runs at boot.
    #[schemars(example = &"#!/bin/bash\necho hello\n")]
    pub user_data: Option<String>,
    /// The same, read from a file of the repository.
    #[schemars(example = &"user-data/gpu.sh")]
    pub user_data_file: Option<String>,
    /// Instance metadata settings, as in the EC2NodeClass.
    #[schemars(example = BTreeMap::from([("httpTokens", "required")]))]
    pub metadata_options: Option<Map<String, Value>>,
    /// CloudWatch metrics every minute.
    #[schemars(extend("default" = false), example = true)]
    pub detailed_monitoring: Option<bool>,
    /// A public address for every node.
    #[schemars(example = false)]
    pub associate_public_ip: Option<bool>,
    /// What happens with local disks.
    #[schemars(example = &"RAID0")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// Values for the template of this class, over those of the environment.
    #[schemars(example = BTreeMap::from([("team", "search")]))]
    pub variables: Option<BTreeMap<String, Mixed>>,
    /// Fields of the rendered EC2NodeClass, merged onto it last: as nested tables or dotted paths.
    /// `{ "$remove" = true }` deletes a field.
    #[schemars(example = BTreeMap::from([("spec.metadataOptions.httpPutResponseHopLimit", 2)]))]
    pub overrides: Option<Map<String, Value>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub enum Preset {
    Al2023,
    Bottlerocket,
    SelfManaged,
}

#[derive(JsonSchema)]
pub enum AmiFamily {
    AL2,
    AL2023,
    Bottlerocket,
    Custom,
    Windows2019,
    Windows2022,
    Windows2025,
}

#[derive(JsonSchema)]
pub enum InstanceStorePolicy {
    #[serde(rename = "RAID0")]
    Raid0,
}

/// One disk.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct Volume {
    /// The device name.
    #[schemars(extend("default" = "/dev/xvda"), example = &"/dev/xvda")]
    pub device: Option<String>,
    /// How large it is.
    #[schemars(example = &"100Gi")]
    pub size: Option<VolumeSize>,
    /// The kind of disk.
    #[serde(rename = "type")]
    #[schemars(extend("default" = "gp3"), example = &"gp3")]
    pub kind: Option<VolumeType>,
    /// Operations per second.
    #[schemars(range(min = 100), example = 3000)]
    pub iops: Option<i64>,
    /// MiB per second.
    #[schemars(range(min = 1), example = 125)]
    pub throughput: Option<i64>,
    /// Encrypted at rest.
    #[schemars(extend("default" = true), example = true)]
    pub encrypted: Option<bool>,
    /// The key of the encryption; the account's own by default.
    #[schemars(example = &"alias/nodes")]
    pub kms_key: Option<String>,
    /// The snapshot it starts from.
    #[schemars(example = &"snap-0123456789abcdef0")]
    pub snapshot: Option<String>,
    /// Whether it is deleted with the node.
    #[schemars(extend("default" = true), example = true)]
    pub delete_on_termination: Option<bool>,
    /// Whether it is the root volume.
    #[schemars(extend("default" = false), example = true)]
    pub root: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub enum VolumeType {
    Standard,
    Io1,
    Io2,
    Gp2,
    Sc1,
    St1,
    Gp3,
}

/// One requirement on nodes, as the NodePool writes it.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("additionalProperties" = false))]
pub struct Requirement {
    /// The label.
    #[schemars(example = &"karpenter.k8s.aws/instance-category")]
    pub key: Option<String>,
    /// How values are compared.
    #[schemars(example = &"In")]
    pub operator: Option<Operator>,
    /// What they are compared with.
    #[schemars(example = ["c", "m"])]
    pub values: Option<WordList>,
    /// How many different values the chosen instance types must have.
    #[schemars(range(min = 1, max = 50), example = 2)]
    pub min_values: Option<i64>,
}

#[derive(JsonSchema)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    Gte,
    Lte,
}

/// One taint.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("additionalProperties" = false))]
pub struct Taint {
    /// The key.
    #[schemars(example = &"dedicated")]
    pub key: String,
    /// The value; empty by default.
    #[schemars(example = &"batch")]
    pub value: Option<String>,
    /// What it does to pods that do not tolerate it.
    #[schemars(example = &"NoSchedule")]
    pub effect: Effect,
}

#[derive(JsonSchema)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// `policies/NAME.toml`: what may not be, whoever wants it.
#[derive(JsonSchema)]
#[schemars(title = "Provisor policies", extend("additionalProperties" = false))]
pub struct PolicyFile {
    /// The rules.
    pub guardrail: Option<Vec<Guardrail>>,
    /// Breaches that people agreed to bear for a while.
    pub waiver: Option<Vec<Waiver>>,
}

/// One rule. What its expressions name decides what it judges: every `pool`, every `object`, or the environment.
#[derive(JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Guardrail {
    /// The name by which people talk of it.
    #[schemars(example = &"gpu-taint")]
    pub id: NameText,
    /// What becomes of a commit that breaks it: `deny` refuses it, `warn` says so.
    #[schemars(extend("default" = "deny"), example = &"warn")]
    pub severity: Option<GuardrailSeverity>,
    /// Whom it concerns, in CEL; everybody by default.
    #[schemars(example = &"env.name == 'prod'")]
    pub applies: Option<String>,
    /// What must hold, in CEL.
    #[schemars(example = &"!pool.buysGpus || pool.taints.size() > 0")]
    pub check: String,
    /// What to say if it does not hold: a text in CEL.
    #[schemars(example = &"'pool ' + pool.name + ' buys GPUs and has no taint'")]
    pub message: Option<String>,
    /// Who can be asked about it.
    #[schemars(example = ["group:capacity"])]
    pub owners: Option<Vec<String>>,
    /// Whether what it denies can be waived, and by whom; it cannot by default.
    pub waiver: Option<WaiverPolicy>,
}

/// Who may waive what a guardrail denies, and for how long.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct WaiverPolicy {
    /// Whether it can be waived at all.
    #[schemars(example = true)]
    pub allowed: bool,
    /// The most days of one waiver, the first and the last included; any number by default.
    #[schemars(range(min = 1), example = 14)]
    pub max_days: Option<u32>,
    /// How many people have to approve.
    #[schemars(range(min = 1), extend("default" = 1), example = 2)]
    pub approvals: Option<u32>,
    /// Whether whoever asks for a waiver counts among those who approve it.
    #[schemars(extend("default" = false), example = false)]
    pub author_may_approve: Option<bool>,
}

/// Breaches of one guardrail that people agreed to bear for a while. It counts from the commit after the one that brings it.
#[derive(JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Waiver {
    /// The guardrail.
    #[schemars(example = &"spot-floor")]
    pub rule: NameText,
    /// The environments, `*` and `?` standing for any letters.
    #[schemars(example = ["prod"])]
    pub environments: Vec<String>,
    /// Why it is borne.
    #[schemars(example = &"the migration needs spot for two weeks")]
    pub reason: String,
    /// Its first day, in UTC.
    #[schemars(example = &"2026-03-02")]
    pub from: String,
    /// Its last day, in UTC: it holds until 23:59:59.
    #[schemars(example = &"2026-03-14")]
    pub until: String,
    /// Who asks for it.
    #[schemars(example = &"ada")]
    pub author: String,
    /// Who approves it; one person counts once.
    #[schemars(example = ["bob", "eve"])]
    pub approvers: Vec<String>,
    /// What they approve: the names that `provisor review` gives to breaches. With any other breach of the rule in the
    /// environment the waiver does not hold.
    #[schemars(example = ["0f1e2d3c4b5a6978"])]
    pub violations: Vec<String>,
}

/// What becomes of a commit that breaks a guardrail.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub enum GuardrailSeverity {
    Deny,
    Warn,
}

/// `provisor.lock`: what changes outside of Git, as it was when it was locked. `provisor lock` writes it.
#[derive(JsonSchema)]
#[schemars(title = "Provisor lock", extend("additionalProperties" = false))]
pub struct LockFile {
    /// The version of this file's form.
    #[schemars(range(min = 1), example = 1)]
    pub version: u32,
    /// Versions of image families: what `ami = "al2023@locked"` becomes.
    #[schemars(example = BTreeMap::from([("al2023", "v20250920")]))]
    pub images: Option<BTreeMap<String, String>>,
    /// Instance types by region and name, as templates see them with `catalog("m7i.large")`.
    pub catalog: Option<BTreeMap<String, BTreeMap<String, LockedType>>>,
}

/// An instance type in one region.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", extend("additionalProperties" = false))]
pub struct LockedType {
    /// `amd64` or `arm64`.
    #[schemars(example = &"amd64")]
    pub arch: Option<String>,
    /// Virtual CPUs.
    #[schemars(range(min = 1), example = 2)]
    pub cpu: Option<i64>,
    /// Memory as EC2 advertises it.
    #[schemars(range(min = 1), example = 8192)]
    pub memory_mib: Option<i64>,
    /// Whole GPUs.
    #[schemars(range(min = 0), example = 0)]
    pub gpus: Option<i64>,
    /// Where it is sold.
    #[schemars(example = ["us-east-1a"])]
    pub zones: Option<Vec<String>>,
    /// The price in US dollars; absent if it is not sold that way.
    #[schemars(example = &"0.1008")]
    pub on_demand_usd_per_hour: Option<String>,
    /// The usual spot price in US dollars; absent if it is not sold that way.
    #[schemars(example = &"0.0403")]
    pub spot_usd_per_hour: Option<String>,
}
