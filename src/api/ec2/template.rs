//! A launch template: all that machines bought in one order have in common, named by its content.
//!
//! Equal content gives an equal name, so a template is made once, found again after a restart, and never changed. What
//! differs between machines, such as types and zones, is in the order and not here.

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::spec::{
    BlockDeviceMapping, ClassSpec, ConnectionTracking, Ebs, MetadataOptions, NetworkInterface,
};
use super::{Cluster, tag};
use crate::model::class::{AmiFamily, ClassStatus, NodeClass};
use crate::model::name::PoolName;
use crate::model::offering::CapacityType;
use crate::model::owner::Owner;

/// Templates of ours are known by it; IAM policies written for Karpenter name it.
pub const NAME_PREFIX: &str = "karpenter.k8s.aws/";
const GIB: u64 = 1 << 30;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaunchTemplate {
    pub image: String,
    pub instance_profile: String,
    /// As text; it is put into base64 on its way.
    pub user_data: String,
    pub devices: Vec<Device>,
    pub metadata: Metadata,
    pub is_monitored: bool,
    pub interfaces: Vec<Interface>,
    /// Nested virtualisation, where the class says something about it.
    pub nested_virtualization: Option<String>,
    pub capacity_type: CapacityType,
    /// Also on the template itself.
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    pub name: String,
    pub gib: Option<i32>,
    pub kind: Option<String>,
    pub is_encrypted: Option<bool>,
    pub delete_on_termination: Option<bool>,
    pub iops: Option<i32>,
    pub throughput: Option<i32>,
    pub kms_key: Option<String>,
    pub snapshot: Option<String>,
    pub initialization_rate: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Metadata {
    pub endpoint: String,
    /// `None` where the region does not know the setting.
    pub ipv6: Option<String>,
    pub hop_limit: i32,
    pub tokens: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interface {
    pub card: i32,
    pub device: i32,
    /// `interface`, `efa` or `efa-only`.
    pub kind: String,
    pub security_groups: Vec<String>,
    pub has_public_ip: Option<bool>,
    pub prefixes: Option<i32>,
    pub is_ipv6: bool,
    pub tcp_established_timeout: Option<i32>,
    pub udp_stream_timeout: Option<i32>,
    pub udp_timeout: Option<i32>,
}

/// The parts of a template that do not come from its class.
#[derive(Clone, Debug)]
pub struct Purpose<'a> {
    pub owner: Owner,
    pub cluster: &'a Cluster,
    pub region: &'a str,
    pub pool: Option<PoolName>,
    pub capacity_type: CapacityType,
    pub image: &'a str,
    pub user_data: String,
    /// How many interfaces for EFA the machine gets where the class lists none; zero: it gets a plain one.
    pub efa_interfaces: i32,
}

impl LaunchTemplate {
    /// The template of a class whose selectors found `status`.
    pub fn new(class: &NodeClass, spec: &ClassSpec, status: &ClassStatus, purpose: Purpose<'_>) -> Self {
        let tags = tags(purpose.owner, purpose.cluster, purpose.pool, class, spec);
        let is_ipv6 = purpose.cluster.dns.as_deref().is_some_and(|dns| dns.contains(':'));
        let mut groups: Vec<String> =
            status.security_groups.iter().map(|group| group.id.to_string()).collect();
        groups.sort();
        Self {
            image: purpose.image.to_owned(),
            instance_profile: status.instance_profile.map(|name| name.to_string()).unwrap_or_default(),
            user_data: purpose.user_data,
            devices: devices(class.ami_family, &spec.block_device_mappings),
            metadata: Metadata::new(&spec.metadata_options, purpose.region),
            is_monitored: spec.detailed_monitoring,
            interfaces: interfaces(spec, &groups, is_ipv6, purpose.efa_interfaces),
            nested_virtualization: spec.cpu_options.nested_virtualization.clone(),
            capacity_type: purpose.capacity_type,
            tags,
        }
    }

    pub fn name(&self) -> String {
        let content = serde_json::to_string(self).unwrap_or_default();
        let hash = Sha256::digest(content.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hash[..8]);
        format!("{NAME_PREFIX}{}", u64::from_be_bytes(first))
    }
}

/// The tags of everything that is bought for a class and pool; those of the class come first and ours win, but for `Name`,
/// which is nobody's.
pub fn tags(
    owner: Owner,
    cluster: &Cluster,
    pool: Option<PoolName>,
    class: &NodeClass,
    spec: &ClassSpec,
) -> BTreeMap<String, String> {
    let mut tags = spec.tags.clone();
    tags.insert(tag::owned_by(&cluster.name), "owned".into());
    tags.insert(tag::CLUSTER_NAME.into(), cluster.name.clone());
    tags.insert(tag::OWNER.into(), owner.to_string());
    tags.insert(tag::CLASS.into(), class.name.to_string());
    tags.insert(tag::POOL.into(), pool.map(|pool| pool.to_string()).unwrap_or_default());
    tags
}

fn devices(family: AmiFamily, mappings: &[BlockDeviceMapping]) -> Vec<Device> {
    if !mappings.is_empty() {
        return mappings.iter().map(Device::new).collect();
    }
    let of_family: &[(&str, i32)] = match family {
        AmiFamily::Al2 | AmiFamily::Al2023 => &[("/dev/xvda", 20)],
        AmiFamily::Bottlerocket => &[("/dev/xvda", 4), ("/dev/xvdb", 20)],
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => &[("/dev/sda1", 50)],
        AmiFamily::Custom => &[],
    };
    of_family
        .iter()
        .map(|(name, gib)| {
            let ebs = Ebs {
                volume_size: Some(format!("{gib}Gi")),
                volume_type: Some("gp3".into()),
                encrypted: Some(true),
                ..Ebs::default()
            };
            Device::new(&BlockDeviceMapping { device_name: Some((*name).into()), ebs: Some(ebs) })
        })
        .collect()
}

impl Device {
    fn new(mapping: &BlockDeviceMapping) -> Self {
        let ebs = mapping.ebs.clone().unwrap_or_default();
        Self {
            name: mapping.device_name.clone().unwrap_or_default(),
            gib: ebs.volume_size.as_deref().and_then(gib),
            kind: ebs.volume_type,
            is_encrypted: ebs.encrypted,
            delete_on_termination: ebs.delete_on_termination,
            iops: ebs.iops.filter(|iops| *iops != 0),
            throughput: ebs.throughput.filter(|throughput| *throughput != 0),
            kms_key: ebs.kms_key_id,
            snapshot: ebs.snapshot_id,
            initialization_rate: ebs.volume_initialization_rate,
        }
    }
}

/// Whole GiB, rounded up: 200G are 187.
fn gib(size: &str) -> Option<i32> {
    let digits = size.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &size[digits.len()..] {
        "Gi" => GIB,
        "Ti" => GIB << 10,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return None,
    };
    i32::try_from(digits.parse::<u64>().ok()?.checked_mul(unit)?.div_ceil(GIB)).ok()
}

impl Metadata {
    fn new(options: &MetadataOptions, region: &str) -> Self {
        let text = |value: &Option<String>, default: &str| value.clone().unwrap_or_else(|| default.into());
        // Isolated regions refuse the setting, whatever its value.
        let knows_ipv6 = !region.starts_with("us-iso");
        Self {
            endpoint: text(&options.http_endpoint, "enabled"),
            ipv6: knows_ipv6.then(|| text(&options.http_protocol_ipv6, "disabled")),
            hop_limit: options.http_put_response_hop_limit.unwrap_or(1),
            tokens: text(&options.http_tokens, "required"),
        }
    }
}

fn interfaces(spec: &ClassSpec, groups: &[String], is_ipv6: bool, efa: i32) -> Vec<Interface> {
    let unlisted: Vec<NetworkInterface> = match efa {
        0 => vec![NetworkInterface { interface_type: "interface".into(), ..NetworkInterface::default() }],
        // One a network card; each card but the first has its EFA behind the first place.
        _ => (0..efa)
            .map(|card| NetworkInterface {
                network_card_index: card,
                device_index: i32::from(card > 0),
                interface_type: "efa".into(),
            })
            .collect(),
    };
    let listed = if spec.network_interfaces.is_empty() { &unlisted } else { &spec.network_interfaces };
    let nothing = ConnectionTracking::default();
    listed
        .iter()
        .map(|interface| {
            let is_plain = interface.interface_type != "efa-only";
            let tracking = spec.connection_tracking.as_ref().filter(|_| is_plain).unwrap_or(&nothing);
            Interface {
                card: interface.network_card_index,
                device: interface.device_index,
                kind: interface.interface_type.clone(),
                security_groups: groups.to_vec(),
                has_public_ip: spec.associate_public_ip_address.filter(|_| is_plain),
                prefixes: spec.ip_prefix_count.filter(|_| is_plain),
                is_ipv6: is_ipv6 && is_plain,
                tcp_established_timeout: tracking.tcp_established_timeout,
                udp_stream_timeout: tracking.udp_stream_timeout,
                udp_timeout: tracking.udp_timeout,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::class::SecurityGroup;

    fn class(more: Value) -> NodeClass {
        let mut spec = json!({
            "amiSelectorTerms": [{ "alias": "al2023@latest" }],
            "subnetSelectorTerms": [{ "tags": { "net": "a" } }],
            "securityGroupSelectorTerms": [{ "tags": { "net": "a" } }],
            "role": "nodes",
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let manifest = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": { "name": "c" }, "spec": spec,
        });
        match crate::api::parse(&manifest) {
            Ok(crate::api::Object::NodeClass(class)) => class,
            other => panic!("{manifest} is not a class: {other:?}"),
        }
    }

    fn cluster(dns: &str) -> Cluster {
        Cluster {
            name: "east".into(),
            endpoint: "https://api".into(),
            ca_bundle: "Y2E=".into(),
            service_cidr: None,
            dns: Some(dns.into()),
        }
    }

    fn of(class: &NodeClass, cluster: &Cluster, region: &str, user_data: &str) -> LaunchTemplate {
        with_efa(class, cluster, region, user_data, 0)
    }

    fn with_efa(
        class: &NodeClass,
        cluster: &Cluster,
        region: &str,
        user_data: &str,
        efa_interfaces: i32,
    ) -> LaunchTemplate {
        let spec = ClassSpec::read(class).expect("a spec");
        let group = |id: &str| SecurityGroup { id: id.into(), name: "n".into() };
        let status = ClassStatus {
            security_groups: vec![group("sg-2"), group("sg-1")],
            instance_profile: Some("profile".into()),
            ..ClassStatus::default()
        };
        let purpose = Purpose {
            owner: Owner::new("provisor", "dev"),
            cluster,
            region,
            pool: Some("general".into()),
            capacity_type: CapacityType::Spot,
            image: "ami-1",
            user_data: user_data.into(),
            efa_interfaces,
        };
        LaunchTemplate::new(class, &spec, &status, purpose)
    }

    fn template(more: Value) -> LaunchTemplate {
        of(&class(more), &cluster("10.0.0.10"), "us-east-1", "hello")
    }

    #[test]
    fn the_name_follows_the_content() {
        let name = template(json!({})).name();
        assert!(name.strip_prefix(NAME_PREFIX).is_some_and(|hash| hash.parse::<u64>().is_ok()), "{name}");
        assert_eq!(name, template(json!({})).name());
        assert_eq!(name, template(json!({ "tags": {} })).name());
        let others = [
            template(json!({ "tags": { "a": "b" } })),
            template(json!({ "detailedMonitoring": true })),
            template(json!({ "associatePublicIPAddress": true })),
            template(json!({ "metadataOptions": { "httpPutResponseHopLimit": 2 } })),
            of(&class(json!({})), &cluster("10.0.0.10"), "us-east-1", "other"),
            of(
                &class(json!({})),
                &Cluster { name: "west".into(), ..cluster("10.0.0.10") },
                "us-east-1",
                "hello",
            ),
            of(&class(json!({})), &cluster("fd00::a"), "us-east-1", "hello"),
        ];
        let names: std::collections::BTreeSet<String> = others.iter().map(LaunchTemplate::name).collect();
        assert!(names.len() == others.len() && !names.contains(&name), "{names:?}");
    }

    #[test]
    fn aws_305_devices_are_those_of_the_family() {
        let sizes = |alias: &str| -> Vec<(String, Option<i32>)> {
            let devices = template(json!({ "amiSelectorTerms": [{ "alias": alias }] })).devices;
            for device in &devices {
                assert_eq!(
                    (device.kind.as_deref(), device.is_encrypted, device.iops),
                    (Some("gp3"), Some(true), None)
                );
            }
            devices.into_iter().map(|device| (device.name, device.gib)).collect()
        };
        assert_eq!(sizes("al2023@latest"), [("/dev/xvda".into(), Some(20))]);
        assert_eq!(
            sizes("bottlerocket@latest"),
            [("/dev/xvda".into(), Some(4)), ("/dev/xvdb".into(), Some(20))]
        );
    }

    /// Rows: AWS-306, AWS-307
    #[test]
    fn sizes_are_whole_gibibytes() {
        let mapping = |size: &str| json!({ "deviceName": "/dev/x", "ebs": { "volumeSize": size, "iops": 0, "throughput": 200 } });
        let mappings: Vec<Value> = ["200G", "200Gi", "4G", "2G", "1Ti"].map(mapping).to_vec();
        let custom = json!({
            "amiFamily": "Custom", "amiSelectorTerms": [{ "id": "ami-1" }], "blockDeviceMappings": mappings,
        });
        let devices = template(custom).devices;
        let sizes: Vec<Option<i32>> = devices.iter().map(|device| device.gib).collect();
        assert_eq!(sizes, [Some(187), Some(200), Some(4), Some(2), Some(1024)]);
        assert!(devices.iter().all(|device| device.iops.is_none() && device.throughput == Some(200)));
        let none = json!({ "amiFamily": "Custom", "amiSelectorTerms": [{ "id": "ami-1" }] });
        assert!(template(none).devices.is_empty());
    }

    /// Rows: AWS-251, AWS-310
    #[test]
    fn metadata_is_safe_unless_the_class_says_otherwise() {
        let of_region = |region: &str| of(&class(json!({})), &cluster("10.0.0.10"), region, "").metadata;
        let expected = Metadata {
            endpoint: "enabled".into(),
            ipv6: Some("disabled".into()),
            hop_limit: 1,
            tokens: "required".into(),
        };
        assert_eq!(of_region("us-east-1"), expected);
        for isolated in ["us-iso-east-1", "us-isob-east-1", "us-isof-south-1"] {
            assert_eq!(of_region(isolated).ipv6, None);
        }
        let custom =
            json!({ "metadataOptions": { "httpTokens": "optional", "httpProtocolIPv6": "enabled" } });
        let metadata = template(custom).metadata;
        assert_eq!((metadata.tokens.as_str(), metadata.ipv6.as_deref()), ("optional", Some("enabled")));
    }

    /// Rows: AWS-315, AWS-317, AWS-319
    #[test]
    fn interfaces_are_those_of_the_class_with_the_groups_inside() {
        let plain = template(json!({ "associatePublicIPAddress": false, "ipPrefixCount": 10 })).interfaces;
        assert_eq!(plain.len(), 1);
        assert_eq!(plain[0].security_groups, ["sg-1", "sg-2"]);
        assert_eq!(
            (plain[0].has_public_ip, plain[0].prefixes, plain[0].is_ipv6),
            (Some(false), Some(10), false)
        );
        let listed = json!({
            "networkInterfaces": [
                { "networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface" },
                { "networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only" },
            ],
            "connectionTracking": { "udpTimeout": 40 }, "ipPrefixCount": 1, "associatePublicIPAddress": true,
        });
        let interfaces = of(&class(listed), &cluster("fd00::a"), "us-east-1", "").interfaces;
        let kinds: Vec<(i32, i32, &str)> =
            interfaces.iter().map(|each| (each.card, each.device, each.kind.as_str())).collect();
        assert_eq!(kinds, [(0, 0, "interface"), (1, 1, "efa-only")]);
        assert_eq!((interfaces[0].udp_timeout, interfaces[0].tcp_established_timeout), (Some(40), None));
        assert!(interfaces[0].is_ipv6);
        let efa = &interfaces[1];
        assert_eq!(
            (efa.udp_timeout, efa.prefixes, efa.has_public_ip, efa.is_ipv6),
            (None, None, None, false)
        );
        assert_eq!(efa.security_groups.len(), 2);
    }

    /// Rows: AWS-311, AWS-314, AWS-316, AWS-318
    #[test]
    fn who_asks_for_efa_gets_one_a_card_unless_the_class_lists_interfaces() {
        let of = |more: Value, efa| with_efa(&class(more), &cluster("fd00::a"), "us-east-1", "", efa);
        let more = json!({ "associatePublicIPAddress": false, "connectionTracking": { "udpTimeout": 40 } });
        let made = of(more.clone(), 3);
        let kinds: Vec<(i32, i32, &str)> =
            made.interfaces.iter().map(|each| (each.card, each.device, each.kind.as_str())).collect();
        assert_eq!(kinds, [(0, 0, "efa"), (1, 1, "efa"), (2, 1, "efa")]);
        for each in &made.interfaces {
            let settings = (each.has_public_ip, each.udp_timeout, each.is_ipv6);
            assert_eq!(settings, (Some(false), Some(40), true), "an EFA carries IP too");
        }
        assert_ne!(made.name(), of(more, 0).name());
        let places = [(0, 0, "interface"), (0, 1, "efa-only"), (1, 1, "efa-only"), (2, 1, "efa-only")];
        let listed = places.map(|(card, device, kind)| {
            json!({ "networkCardIndex": card, "deviceIndex": device, "interfaceType": kind })
        });
        let made = of(json!({ "networkInterfaces": listed }), 3).interfaces;
        let kinds: Vec<(i32, i32, &str)> =
            made.iter().map(|each| (each.card, each.device, each.kind.as_str())).collect();
        assert_eq!(kinds, places);
    }

    #[test]
    fn aws_327_only_what_the_class_says_about_processors() {
        let of = |options: Value| template(json!({ "cpuOptions": options })).nested_virtualization;
        assert_eq!(of(json!({})), None);
        assert_eq!(of(json!({ "nestedVirtualization": "enabled" })).as_deref(), Some("enabled"));
        assert_eq!(of(json!({ "nestedVirtualization": "disabled" })).as_deref(), Some("disabled"));
    }

    #[test]
    fn aws_293_two_classes_never_share_a_template() {
        let mut other = class(json!({}));
        other.name = "d".into();
        let of = |class: &NodeClass| of(class, &cluster("10.0.0.10"), "us-east-1", "hello");
        let (mine, theirs) = (of(&class(json!({}))), of(&other));
        assert_ne!(mine.name(), theirs.name());
        assert_eq!(theirs.tags[tag::CLASS], "d");
    }
}
