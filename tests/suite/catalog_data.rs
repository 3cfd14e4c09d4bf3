//! The built-in EC2 catalogue: the tables hold together, and the formulas give what is published of real nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use provisor::model::catalog::{CapacitySettings, Catalog, PriceSource, TypeFacts, region_of, regions};
use provisor::model::class::{AmiFamily, EvictionThreshold, InstanceStorePolicy, KubeletSettings, NodeClass};
use provisor::model::label;
use provisor::model::name::{ClassName, TypeName, Zone};
use provisor::model::offering::{CapacityType, InstanceType};
use provisor::model::quantity::{Bytes, Quantity, ResourceName, resource};
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::symbol::Symbol;

const MIB: i64 = 1 << 20;

fn catalog() -> Catalog {
    Catalog::builtin("us-east-1").unwrap()
}

/// Without the share of the hypervisor, as the published worked examples are.
fn bare_catalog() -> Catalog {
    catalog().with_settings(CapacitySettings { vm_memory_overhead: 0, reserved_enis: 0 })
}

fn class(family: AmiFamily) -> NodeClass {
    NodeClass {
        name: ClassName::new("test"),
        owner: None,
        is_ready: true,
        readiness: None,
        is_deleting: false,
        held: None,
        ami_family: family,
        kubelet: KubeletSettings::default(),
        root_volume: None,
        instance_store: InstanceStorePolicy::None,
        zones: Vec::new(),
        hash: None,
        hash_version: None,
        spec: Arc::new(serde_json::json!({})),
    }
}

fn with_kubelet(family: AmiFamily, kubelet: KubeletSettings) -> NodeClass {
    NodeClass { kubelet, ..class(family) }
}

fn shape(catalog: &Catalog, class: &NodeClass, name: &str) -> InstanceType {
    let types = catalog.instance_types(Some(class));
    types.iter().find(|kind| kind.name.as_str() == name).unwrap_or_else(|| panic!("{name} is listed")).clone()
}

fn plain(name: &str) -> InstanceType {
    shape(&catalog(), &class(AmiFamily::Al2023), name)
}

fn quantities(entries: &[(&str, &str)]) -> BTreeMap<Symbol, Quantity> {
    entries.iter().map(|(key, text)| (Symbol::new(key), text.parse().unwrap())).collect()
}

/// Memory that is kept from pods, in MiB.
fn kept_memory(kind: &InstanceType) -> i64 {
    (kind.capacity.memory().0 - kind.allocatable.memory().0) / MIB
}

fn kept(kind: &InstanceType, name: ResourceName) -> i64 {
    kind.capacity.get(name) - kind.allocatable.get(name)
}

/// Rows: WEA-026
#[test]
fn wea_026_what_a_machine_attaches_is_what_its_volumes_and_interfaces_leave() {
    let ebs = Symbol::new("ebs.csi.aws.com");
    let most = |kind: &InstanceType| {
        let [(driver, most)] = kind.volumes_max[..] else { panic!("one driver is limited") };
        assert_eq!(driver, ebs);
        most
    };
    // What EC2 says of the type, less the root volume and, where they share slots, a second interface.
    for (name, expected) in [
        ("m5.large", 27 - 2),
        ("m5d.large", 26 - 2),
        ("g5.48xlarge", 9 - 2),
        ("d3.8xlarge", 1),
        ("m7i.large", 32 - 1),
        ("m7i.48xlarge", 128 - 1),
        ("t2.medium", 39 - 1),
    ] {
        assert_eq!(most(&plain(name)), expected, "{name}");
    }
    let mut two_disks = class(AmiFamily::Al2023);
    two_disks.spec = Arc::new(serde_json::json!({"blockDeviceMappings": [{}, {}]}));
    assert_eq!(most(&shape(&catalog(), &two_disks, "m7i.large")), 30);
    assert_eq!(most(&shape(&catalog(), &class(AmiFamily::Bottlerocket), "m7i.large")), 30);
    let rows = "instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,\
                on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types\n\
                m5.large,amd64,2,8192,,,,,,1,,a,on-demand\nours.large,amd64,2,8192,,,,,,1,,a,on-demand\n";
    let file = Catalog::parse_csv(rows, "types.csv").unwrap();
    let types = file.instance_types(None);
    assert_eq!(most(&types[0]), 25, "a name that EC2 has");
    assert!(types[1].volumes_max.is_empty(), "of others nothing is known");
}

// ------------------------------------------------------------------------------------------------------- the tables

#[test]
fn every_region_lists_types_in_order_with_zones_and_prices() {
    for region in regions().keys() {
        let catalog = Catalog::builtin(region).unwrap();
        assert!(catalog.facts().len() >= 250, "{region}: {}", catalog.facts().len());
        assert!(
            catalog.facts().windows(2).all(|pair| pair[0].name < pair[1].name),
            "{region}: sorted, unique"
        );
        for facts in catalog.facts() {
            let TypeFacts { name, vcpus, memory_mib, zones, prices, .. } = facts;
            assert!(*vcpus > 0 && *memory_mib > 0, "{region}: {name}");
            // What a region does not sell is listed without zone and price.
            assert!(!zones.is_empty() || prices.is_empty(), "{region}: {name}");
            assert!(matches!(facts.arch.as_str(), "amd64" | "arm64"), "{region}: {name}");
            assert!(zones.is_sorted() && zones.iter().all(|zone| region_of(*zone) == Some(region)), "{name}");
            assert!(prices.values().all(|price| price.0 > 0), "{region}: {name}");
            assert!(
                !prices.contains_key(&CapacityType::Spot) || prices.contains_key(&CapacityType::OnDemand)
            );
        }
    }
}

#[test]
fn the_home_region_is_complete() {
    let catalog = catalog();
    assert!(catalog.facts().len() > 1_300, "{}", catalog.facts().len());
    let count = |is: fn(&TypeFacts) -> bool| catalog.facts().iter().filter(|facts| is(facts)).count();
    assert!(count(|facts| facts.prices.contains_key(&CapacityType::OnDemand)) > 1_290);
    assert!(count(|facts| facts.prices.contains_key(&CapacityType::Spot) && !facts.is_spot_estimated) > 550);
    assert!(count(|facts| facts.eni.is_some()) == catalog.facts().len());
    assert!(count(|facts| facts.gpus.is_some()) > 50);
    assert!(count(|facts| facts.accelerators.is_some()) > 8);
    assert!(count(|facts| facts.local_nvme_gb.is_some()) > 300);
    let zones: Vec<&str> = catalog.zones().iter().map(Zone::as_str).collect();
    assert_eq!(zones.len(), 6, "{zones:?}");
}

#[test]
fn prices_of_another_region_are_never_passed_off_as_its_own() {
    assert_eq!(catalog().prices, PriceSource::Published);
    for region in ["us-west-2", "eu-west-1", "ap-northeast-2"] {
        let catalog = Catalog::builtin(region).unwrap();
        assert_eq!(catalog.prices, PriceSource::StandIn { region: "us-east-1".into() });
        assert!(catalog.notes()[0].contains(region) && catalog.notes()[0].contains("stand in"));
    }
    let gov = Catalog::builtin("us-gov-west-1").unwrap();
    assert_eq!(gov.prices, PriceSource::Published);
    assert!(gov.facts().iter().all(|facts| facts.is_spot_estimated || facts.prices.len() < 2));
}

#[test]
fn aws_398_regions_with_a_price_list_are_served_from_it() {
    let price = |region: &str, name: &str| {
        let catalog = Catalog::builtin(region).unwrap();
        catalog.find(name).unwrap().prices[&CapacityType::OnDemand].to_string()
    };
    assert_eq!(price("us-east-1", "c3.2xlarge"), "0.42");
    assert_eq!(price("us-east-1", "m5.large"), "0.096");
    assert_eq!(price("us-gov-west-1", "c3.2xlarge"), "0.504");
    assert_eq!(price("eu-west-1", "m5.large"), "0.096", "the home region's price stands in");
}

/// The estimate is the on-demand price times the median share of the family, or of the nearest group that has one.
#[test]
fn an_unrecorded_spot_price_is_an_estimate_below_on_demand() {
    let catalog = catalog();
    let facts = catalog.find("m7i.large").unwrap();
    let estimated: Vec<&TypeFacts> = catalog.facts().iter().filter(|facts| facts.is_spot_estimated).collect();
    assert!(estimated.len() > 300);
    for facts in estimated {
        let (spot, full) = (facts.prices[&CapacityType::Spot], facts.prices[&CapacityType::OnDemand]);
        assert!(spot <= full && spot.0 * 10 > full.0, "{}: {spot} of {full}", facts.name);
    }
    assert_eq!(facts.name, TypeName::new("m7i.large"));
    let recorded = catalog.find("m5.large").unwrap();
    assert!(!recorded.is_spot_estimated);
    assert_eq!(recorded.prices[&CapacityType::Spot].to_string(), "0.0537");
}

// ----------------------------------------------------------------------------------------------------- the formulas

/// What AL2023 nodes without settings have left for pods, as Karpenter's reference of instance types states it on 2026-07-11.
const PUBLISHED: [(&str, i64, i64, i64); 28] = [
    ("a1.medium", 940, 1392, 8),
    ("c5.4xlarge", 15_890, 27_381, 234),
    ("c6a.48xlarge", 191_450, 355_262, 737),
    ("c6gn.medium", 940, 1392, 8),
    ("c7i-flex.large", 1930, 3114, 29),
    ("c8g.24xlarge", 95_690, 173_341, 737),
    ("d3.xlarge", 3920, 29_845, 10),
    ("g4ad.16xlarge", 63_770, 239_554, 234),
    ("g4dn.8xlarge", 31_850, 120_248, 58),
    ("g5g.xlarge", 3920, 6525, 58),
    ("g6f.large", 1930, 7002, 20),
    ("hpc7g.16xlarge", 63_770, 118_649, 198),
    ("i3.large", 1930, 13_770, 29),
    ("inf1.xlarge", 3920, 6804, 38),
    ("inf2.xlarge", 3920, 14_162, 58),
    ("m5.24xlarge", 95_690, 355_262, 737),
    ("m5.large", 1930, 6903, 29),
    ("m5.metal", 95_690, 355_262, 737),
    ("m6g.large", 1930, 6844, 29),
    ("m7i-flex.large", 1930, 6903, 29),
    ("p4d.24xlarge", 95_690, 1_082_712, 737),
    ("p5.48xlarge", 191_450, 1_938_410, 100),
    ("r5.large", 1930, 14_481, 29),
    ("t2.micro", 940, 548, 4),
    ("t3.small", 1930, 1418, 11),
    ("trn1.32xlarge", 127_610, 481_894, 247),
    ("vt1.3xlarge", 11_900, 21_739, 58),
    ("x2gd.metal", 63_770, 961_411, 737),
];

#[test]
fn the_formulas_give_the_published_figures() {
    let types = catalog().instance_types(None);
    for (name, cpu, memory, pods) in PUBLISHED {
        let kind = types.iter().find(|kind| kind.name.as_str() == name).unwrap();
        assert_eq!(kind.allocatable.cpu().0, cpu, "{name}");
        assert!((kind.allocatable.memory().0 / MIB - memory).abs() <= 1, "{name}: {}", kind.allocatable);
        assert_eq!(kind.allocatable.pods(), pods, "{name}");
        assert_eq!(kind.allocatable.get(*resource::EPHEMERAL_STORAGE), Bytes::gibi(17).0, "{name}");
    }
}

/// Rows: AWS-345, AWS-348
#[test]
fn aws_345_addresses_limit_pods() {
    let pods = |catalog: &Catalog, name| shape(catalog, &class(AmiFamily::Al2023), name).capacity.pods();
    assert_eq!(pods(&catalog(), "t3.large"), 35);
    assert_eq!(pods(&catalog(), "m6idn.32xlarge"), 394);
    let reserved =
        |enis| catalog().with_settings(CapacitySettings { reserved_enis: enis, ..Default::default() });
    assert_eq!(pods(&reserved(1), "t3.large"), 24);
    assert_eq!(pods(&reserved(1_000_000), "t3.large"), 0);
}

#[test]
fn aws_337_windows_pods_are_not_limited_by_addresses() {
    for family in [AmiFamily::Windows2019, AmiFamily::Windows2022, AmiFamily::Windows2025] {
        let types = catalog().instance_types(Some(&class(family)));
        assert!(types.iter().all(|kind| kind.capacity.pods() == 110));
    }
    for family in [AmiFamily::Al2, AmiFamily::Al2023, AmiFamily::Bottlerocket] {
        let types = catalog().instance_types(Some(&class(family)));
        assert!(types.iter().all(|kind| kind.capacity.pods() != 110));
    }
}

#[test]
fn aws_339_nothing_is_reserved_for_the_system_unless_asked() {
    let usual = plain("m5.xlarge");
    let asked = KubeletSettings {
        system_reserved: quantities(&[("cpu", "200m"), ("memory", "1Gi"), ("ephemeral-storage", "2Gi")]),
        ..Default::default()
    };
    let kind = shape(&catalog(), &with_kubelet(AmiFamily::Al2023, asked), "m5.xlarge");
    assert_eq!(kept(&kind, *resource::CPU) - kept(&usual, *resource::CPU), 200);
    assert_eq!(kept_memory(&kind) - kept_memory(&usual), 1024);
    let storage = *resource::EPHEMERAL_STORAGE;
    assert_eq!(kept(&kind, storage) - kept(&usual, storage), Bytes::gibi(2).0);
}

#[test]
fn aws_340_the_kubelet_keeps_its_share_key_by_key() {
    let usual = plain("m5.xlarge");
    assert_eq!(kept(&usual, *resource::CPU), 80);
    assert_eq!(kept_memory(&usual), 893 + 100);
    assert_eq!(kept(&usual, *resource::EPHEMERAL_STORAGE), Bytes::gibi(1 + 2).0);
    let asked = KubeletSettings { kube_reserved: quantities(&[("memory", "2Gi")]), ..Default::default() };
    let kind = shape(&catalog(), &with_kubelet(AmiFamily::Al2023, asked), "m5.xlarge");
    assert_eq!((kept(&kind, *resource::CPU), kept_memory(&kind)), (80, 2048 + 100));
}

fn eviction(entries: &[(&str, EvictionThreshold)]) -> BTreeMap<Symbol, EvictionThreshold> {
    entries.iter().map(|(signal, threshold)| (Symbol::new(signal), *threshold)).collect()
}

fn memory_kept_with(kubelet: KubeletSettings) -> i64 {
    kept_memory(&shape(&catalog(), &with_kubelet(AmiFamily::Al2023, kubelet), "m5.xlarge")) - 893
}

/// Rows: AWS-341, AWS-343
#[test]
fn aws_341_hard_eviction_thresholds_are_kept_free() {
    let hard = |threshold| KubeletSettings {
        eviction_hard: eviction(&[("memory.available", threshold)]),
        ..Default::default()
    };
    let capacity = plain("m5.xlarge").capacity.memory().0;
    assert_eq!(memory_kept_with(KubeletSettings::default()), 100);
    assert_eq!(memory_kept_with(hard(EvictionThreshold::Amount("500Mi".parse().unwrap()))), 500);
    let tenth = shape(
        &catalog(),
        &with_kubelet(AmiFamily::Al2023, hard(EvictionThreshold::Share(1000))),
        "m5.xlarge",
    );
    let kept = tenth.capacity.memory().0 - tenth.allocatable.memory().0 - 893 * MIB;
    assert_eq!(kept, (capacity + 9) / 10);
    assert_eq!(memory_kept_with(hard(EvictionThreshold::Share(10_000))), 0, "100 % switches the signal off");
}

#[test]
fn aws_342_soft_eviction_thresholds_never_count() {
    let soft = |threshold| eviction(&[("memory.available", threshold)]);
    let amount = |text: &str| EvictionThreshold::Amount(text.parse().unwrap());
    for threshold in [amount("1Gi"), EvictionThreshold::Share(10_000)] {
        let kubelet = KubeletSettings { eviction_soft: soft(threshold), ..Default::default() };
        assert_eq!(memory_kept_with(kubelet), 100);
    }
    let both = KubeletSettings {
        eviction_soft: soft(EvictionThreshold::Share(5_000)),
        eviction_hard: soft(amount("300Mi")),
        ..Default::default()
    };
    assert_eq!(memory_kept_with(both), 300);
}

#[test]
fn aws_344_overheads_of_image_families() {
    let overhead = |class: &NodeClass| kept_memory(&shape(&bare_catalog(), class, "m5.xlarge"));
    let many = KubeletSettings { max_pods: Some(110), ..Default::default() };
    assert_eq!(overhead(&class(AmiFamily::Al2)), 993);
    assert_eq!(overhead(&class(AmiFamily::Bottlerocket)), 993);
    assert_eq!(overhead(&with_kubelet(AmiFamily::Bottlerocket, many)), 1565);
    assert_eq!(
        shape(&bare_catalog(), &class(AmiFamily::Al2), "m5.xlarge").capacity.memory(),
        Bytes::gibi(16)
    );
}

#[test]
fn aws_346_max_pods_changes_the_reservation_of_some_families() {
    for (family, reserved) in [
        (AmiFamily::Al2, 640),
        (AmiFamily::Al2023, 640),
        (AmiFamily::Custom, 640),
        (AmiFamily::Bottlerocket, 365),
        (AmiFamily::Windows2022, 365),
    ] {
        let few = KubeletSettings { max_pods: Some(10), ..Default::default() };
        let kind = shape(&catalog(), &with_kubelet(family, few), "t3.large");
        assert_eq!((kind.capacity.pods(), kept_memory(&kind)), (10, reserved + 100), "{family:?}");
    }
}

#[test]
fn aws_347_reserved_interfaces_change_pods_and_reservation() {
    let catalog = catalog().with_settings(CapacitySettings { reserved_enis: 1, ..Default::default() });
    for (family, pods, reserved) in [
        (AmiFamily::Al2, 24, 640),
        (AmiFamily::Al2023, 24, 640),
        (AmiFamily::Bottlerocket, 24, 519),
        (AmiFamily::Windows2022, 110, 1465),
    ] {
        let kind = shape(&catalog, &class(family), "t3.large");
        assert_eq!((kind.capacity.pods(), kept_memory(&kind)), (pods, reserved + 100), "{family:?}");
    }
}

#[test]
fn aws_349_pods_per_core_caps_pods() {
    let pods = |family, per_core, most| {
        let kubelet = KubeletSettings { pods_per_core: Some(per_core), max_pods: most, ..Default::default() };
        shape(&catalog(), &with_kubelet(family, kubelet), "m5.xlarge").capacity.pods()
    };
    assert_eq!(pods(AmiFamily::Al2023, 1, None), 4);
    assert_eq!(pods(AmiFamily::Al2023, 4, Some(20)), 16);
    assert_eq!(pods(AmiFamily::Al2023, 10, Some(20)), 20);
    assert_eq!(pods(AmiFamily::Al2023, 0, None), 58);
    assert_eq!(pods(AmiFamily::Bottlerocket, 1, None), 58);
}

/// Real nodes of these types report this much; a node must never be promised more.
#[test]
fn aws_350_no_more_is_promised_than_real_nodes_have() {
    for (name, cpu, kibibytes) in [
        ("t4g.small", 1930, 1_408_312),
        ("t4g.medium", 1930, 3_377_496),
        ("t4g.xlarge", 3920, 15_136_012),
        ("m5.large", 1930, 7_220_184),
    ] {
        let kind = plain(name);
        assert!(kind.allocatable.cpu().0 <= cpu && kind.allocatable.memory().0 <= kibibytes * 1024, "{name}");
    }
}

#[test]
fn the_root_volume_is_the_ephemeral_storage() {
    let storage = |class: &NodeClass| {
        let kind = shape(&catalog(), class, "m5.large");
        (kind.capacity.get(*resource::EPHEMERAL_STORAGE), kind.allocatable.get(*resource::EPHEMERAL_STORAGE))
    };
    assert_eq!(storage(&class(AmiFamily::Al2023)), (Bytes::gibi(20).0, Bytes::gibi(17).0));
    assert_eq!(storage(&class(AmiFamily::Windows2022)).0, Bytes::gibi(50).0);
    let large = NodeClass { root_volume: Some(Bytes::gibi(100)), ..class(AmiFamily::Al2023) };
    assert_eq!(storage(&large), (Bytes::gibi(100).0, Bytes::gibi(89).0));
}

#[test]
fn local_disks_are_storage_only_as_raid() {
    let storage = |policy| {
        let class = NodeClass { instance_store: policy, ..class(AmiFamily::Al2023) };
        shape(&catalog(), &class, "m6idn.32xlarge").capacity.get(*resource::EPHEMERAL_STORAGE)
    };
    assert_eq!(storage(InstanceStorePolicy::None), Bytes::gibi(20).0);
    assert_eq!(storage(InstanceStorePolicy::Raid0), 7_600_000_000_000);
}

#[test]
fn devices_are_counted() {
    let count = |name: &str, resource: &str| plain(name).capacity.get(ResourceName::new(resource));
    assert_eq!(count("p5.48xlarge", "nvidia.com/gpu"), 8);
    assert_eq!(count("g4ad.16xlarge", "amd.com/gpu"), 4);
    assert_eq!(count("inf2.24xlarge", "aws.amazon.com/neuron"), 6);
    assert_eq!(count("trn1.2xlarge", "aws.amazon.com/neuron"), 1);
    assert_eq!(count("inf2.xlarge", "aws.amazon.com/neuroncore"), 2);
    assert_eq!(count("p5.48xlarge", "vpc.amazonaws.com/efa"), 32);
    assert_eq!(count("m5.large", "vpc.amazonaws.com/pod-eni"), 9);
    assert_eq!(count("t3.large", "vpc.amazonaws.com/pod-eni"), 0);
    assert_eq!(count("g6f.large", "nvidia.com/gpu"), 0, "a share of a GPU is none that a pod can ask for");
    assert_eq!(count("m5.large", "vpc.amazonaws.com/PrivateIPv4Address"), 0);
}

#[test]
fn windows_nodes_offer_addresses() {
    let kind = shape(&catalog(), &class(AmiFamily::Windows2022), "m5.large");
    assert_eq!(kind.capacity.get(ResourceName::new("vpc.amazonaws.com/PrivateIPv4Address")), 9);
    let arm = shape(&catalog(), &class(AmiFamily::Windows2022), "m6g.large");
    assert!(arm.offerings.iter().all(|offering| !offering.is_available), "no Windows image boots on arm64");
}

fn with_interfaces(entries: serde_json::Value) -> NodeClass {
    let spec = serde_json::json!({ "networkInterfaces": entries });
    NodeClass { spec: Arc::new(spec), ..class(AmiFamily::Al2023) }
}

fn interface(card: u32, device: u32, kind: &str) -> serde_json::Value {
    serde_json::json!({ "networkCardIndex": card, "deviceIndex": device, "interfaceType": kind })
}

#[test]
fn aws_351_interfaces_without_addresses_take_the_place_of_pods() {
    let pods = |card| {
        let class = with_interfaces(serde_json::json!([
            interface(0, 0, "interface"),
            interface(card, 1, "efa-only")
        ]));
        shape(&catalog(), &class, "m6idn.32xlarge").capacity.pods()
    };
    assert_eq!((pods(1), pods(0)), (394, 345));
}

#[test]
fn aws_352_a_type_without_the_interfaces_that_a_class_wants_is_not_offered() {
    let is_offered = |entries: serde_json::Value, name: &str| {
        let kind = shape(&catalog(), &with_interfaces(entries), name);
        assert!(!kind.offerings.is_empty(), "listed all the same");
        kind.offerings.iter().any(|offering| offering.is_available)
    };
    let primary = interface(0, 0, "interface");
    let one = serde_json::json!([primary, interface(1, 1, "efa-only")]);
    assert!(is_offered(one.clone(), "m6idn.32xlarge"));
    assert!(!is_offered(one, "m5.large"), "no EFA and no second network card");
    let efa: Vec<_> = (0..3).map(|device| interface(device.min(1), device + 1, "efa-only")).collect();
    let many = [vec![primary.clone()], efa].concat();
    assert!(!is_offered(serde_json::json!(many), "m6idn.32xlarge"), "it has two");
    assert!(!is_offered(serde_json::json!([primary, interface(0, 99, "interface")]), "m5.large"));
}

#[test]
fn aws_353_the_first_graviton_does_not_boot_al2023() {
    let is_offered = |family| {
        let kind = shape(&catalog(), &class(family), "a1.medium");
        assert!(!kind.offerings.is_empty());
        kind.offerings.iter().any(|offering| offering.is_available)
    };
    assert!(!is_offered(AmiFamily::Al2023));
    assert!(is_offered(AmiFamily::Bottlerocket) && is_offered(AmiFamily::Al2));
}

// ------------------------------------------------------------------------------------------------- labels, offerings

fn label_of<'t>(kind: &'t InstanceType, key: &str) -> &'t Requirement {
    kind.requirements.get(Symbol::new(key)).unwrap_or_else(|| panic!("{} has {key}", kind.name))
}

/// Rows: AWS-358
#[test]
fn every_label_has_its_value() {
    let kind = plain("g4dn.8xlarge");
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "g4dn.8xlarge"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("topology.kubernetes.io/region", "us-east-1"),
        ("karpenter.k8s.aws/instance-category", "g"),
        ("karpenter.k8s.aws/instance-family", "g4dn"),
        ("karpenter.k8s.aws/instance-generation", "4"),
        ("karpenter.k8s.aws/instance-size", "8xlarge"),
        ("karpenter.k8s.aws/instance-capability-flex", "false"),
        ("karpenter.k8s.aws/instance-cpu", "32"),
        ("karpenter.k8s.aws/instance-cpu-manufacturer", "intel"),
        ("karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz", "2500"),
        ("karpenter.k8s.aws/instance-memory", "131072"),
        ("karpenter.k8s.aws/instance-ebs-bandwidth", "9500"),
        ("karpenter.k8s.aws/instance-network-bandwidth", "50000"),
        ("karpenter.k8s.aws/instance-hypervisor", "nitro"),
        ("karpenter.k8s.aws/instance-encryption-in-transit-supported", "true"),
        ("karpenter.k8s.aws/instance-nitro-enclaves-supported", "true"),
        ("karpenter.k8s.aws/instance-local-nvme", "900"),
        ("karpenter.k8s.aws/instance-gpu-name", "t4"),
        ("karpenter.k8s.aws/instance-gpu-manufacturer", "nvidia"),
        ("karpenter.k8s.aws/instance-gpu-count", "1"),
        ("karpenter.k8s.aws/instance-gpu-memory", "16384"),
    ] {
        assert_eq!(label_of(&kind, key), &Requirement::one(Symbol::new(value)), "{key}");
    }
    for key in ["karpenter.k8s.aws/instance-accelerator-name", "node.kubernetes.io/windows-build"] {
        assert_eq!(label_of(&kind, key).operator(), Operator::DoesNotExist, "{key}");
    }
    let chips = plain("inf2.xlarge");
    for (key, value) in [("name", "inferentia2"), ("manufacturer", "aws"), ("count", "1")] {
        let key = format!("karpenter.k8s.aws/instance-accelerator-{key}");
        assert_eq!(label_of(&chips, &key), &Requirement::one(Symbol::new(value)), "{key}");
    }
    let flex = "karpenter.k8s.aws/instance-capability-flex";
    assert_eq!(label_of(&plain("m7i-flex.large"), flex), &Requirement::one(Symbol::new("true")));
    let metal = plain("m5.metal");
    assert_eq!(label_of(&metal, "karpenter.k8s.aws/instance-hypervisor"), &Requirement::one(Symbol::new("")));
    let enclaves = "karpenter.k8s.aws/instance-nitro-enclaves-supported";
    assert_eq!(label_of(&plain("m5.large"), enclaves), &Requirement::one(Symbol::new("false")));
}

#[test]
fn windows_classes_label_their_nodes_so() {
    let kind = shape(&catalog(), &class(AmiFamily::Windows2022), "m5.large");
    assert_eq!(label_of(&kind, "kubernetes.io/os"), &Requirement::one(Symbol::new("windows")));
    assert_eq!(
        label_of(&kind, "node.kubernetes.io/windows-build"),
        &Requirement::one(Symbol::new("10.0.20348"))
    );
}

#[test]
fn aws_373_each_offering_is_listed_once_cheapest_first() {
    for kind in catalog().instance_types(None).iter() {
        let mut ways: Vec<_> = kind.offerings.iter().map(|o| (o.zone, o.capacity_type)).collect();
        ways.sort();
        ways.dedup();
        assert_eq!(ways.len(), kind.offerings.len(), "{}", kind.name);
        assert!(kind.offerings.is_sorted_by_key(|o| (o.price, o.zone, o.capacity_type)), "{}", kind.name);
    }
}

#[test]
fn zones_without_a_subnet_are_listed_but_not_available() {
    let near = Zone::new("us-east-1a");
    let class = NodeClass { zones: vec![near], ..class(AmiFamily::Al2023) };
    let kind = shape(&catalog(), &class, "m5.large");
    assert!(kind.offerings.iter().all(|offering| offering.is_available == (offering.zone == near)));
    assert_eq!(kind.requirements.get(*label::ZONE), Some(&Requirement::one(near.0)));
}

// ----------------------------------------------------------------------------------------------------------- the file

const HEADER: &str = "instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,\
                      on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types\n";

fn file(rows: &str) -> Catalog {
    Catalog::parse_csv(&format!("{HEADER}{rows}"), "c.csv").unwrap_or_else(|errors| panic!("{}", errors[0]))
}

fn mistakes(rows: &str) -> Vec<String> {
    let errors = Catalog::parse_csv(&format!("{HEADER}{rows}"), "c.csv").unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_file_is_taken_at_its_word() {
    let catalog =
        file("m5.large,amd64,2,8192,1930m,6903Mi,29,,,0.096,0.0537,us-west-2a us-west-2b,on-demand spot\n");
    assert_eq!((&*catalog.region, &catalog.prices), ("us-west-2", &PriceSource::File));
    let kind = &catalog.instance_types(None)[0];
    assert_eq!(kind.offerings.len(), 4);
    assert_eq!(kind.offerings[0].price.to_string(), "0.0537");
    assert_eq!((kind.capacity.cpu().0, kind.capacity.memory()), (2000, Bytes::gibi(8)));
    assert_eq!((kind.allocatable.cpu().0, kind.allocatable.memory()), (1930, Bytes::mebi(6903)));
    assert_eq!((kind.allocatable.pods(), kind.capacity.pods()), (29, 29));
    assert_eq!(kind.allocatable.get(*resource::EPHEMERAL_STORAGE), Bytes::gibi(17).0);
    assert_eq!(label_of(kind, "karpenter.k8s.aws/instance-family"), &Requirement::one(Symbol::new("m5")));
    assert_eq!(label_of(kind, "karpenter.k8s.aws/instance-gpu-count").operator(), Operator::DoesNotExist);
    let unknown = Symbol::new("karpenter.k8s.aws/instance-hypervisor");
    assert_eq!(kind.requirements.get(unknown), None, "what a file cannot tell agrees with anything");
}

#[test]
fn max_pods_and_pods_per_core_of_a_class_hold_for_a_file_too() {
    let catalog = file("m5.large,amd64,2,8192,1930m,6903Mi,29,,,0.096,,us-west-2a,on-demand\n");
    let pods = |max_pods, pods_per_core| {
        let kubelet = KubeletSettings { max_pods, pods_per_core, ..Default::default() };
        shape(&catalog, &with_kubelet(AmiFamily::Al2023, kubelet), "m5.large").allocatable.pods()
    };
    assert_eq!(pods(None, None), 29);
    assert_eq!(pods(Some(5), None), 5);
    assert_eq!(pods(None, Some(4)), 8);
    assert_eq!(pods(Some(5), Some(4)), 5);
}

#[test]
fn devices_of_a_file_are_resources_and_labels() {
    let catalog = file(
        "g5.xlarge,amd64,4,16384,3920m,14162Mi,58,1,,1.006,0.3018,us-west-2a,on-demand spot\n\
         inf2.xlarge,amd64,4,16384,3920m,14162Mi,58,,1,0.7582,,us-west-2a,on-demand spot\n",
    );
    let types = catalog.instance_types(None);
    assert_eq!(types[0].allocatable.get(ResourceName::new("nvidia.com/gpu")), 1);
    assert_eq!(label_of(&types[0], "karpenter.k8s.aws/instance-gpu-name"), &Requirement::one("a10g".into()));
    assert_eq!(types[1].allocatable.get(ResourceName::new("aws.amazon.com/neuron")), 1);
    assert_eq!(types[1].offerings.len(), 1, "an empty price is no offering");
    let count = label_of(&types[1], "karpenter.k8s.aws/instance-accelerator-count");
    assert_eq!(count, &Requirement::one("1".into()));
}

#[test]
fn what_a_file_leaves_open_is_worked_out() {
    let catalog = file("m5.large,amd64,2,8192,,,,,,0.096,,us-west-2a,on-demand\n");
    assert_eq!(catalog.instance_types(None)[0].allocatable, {
        let mut expected = plain("m5.large").allocatable;
        expected.remove(ResourceName::new("vpc.amazonaws.com/pod-eni"));
        expected
    });
}

#[test]
fn rows_of_one_type_may_price_zones_differently() {
    let row = "m5.large,amd64,2,8192,1930m,6903Mi,29,,";
    let catalog =
        file(&format!("{row},0.096,,us-west-2a,on-demand\n{row},0.1,0.05,us-west-2b,on-demand spot\n"));
    let kind = &catalog.instance_types(None)[0];
    let shown: Vec<String> =
        kind.offerings.iter().map(|o| format!("{} {} {}", o.zone, o.capacity_type, o.price)).collect();
    assert_eq!(shown, ["us-west-2b spot 0.05", "us-west-2a on-demand 0.096", "us-west-2b on-demand 0.1"]);
}

#[test]
fn all_mistakes_of_a_file_are_named_with_their_place() {
    assert_eq!(
        mistakes(
            "m5.large,x86,two,8192,1930m,6903MB,29,,,$1,,a,on-demand\n\
             m5.xlarge,amd64,4,16384,,,,,,1,,a,cheap\n\
             ,amd64,0,16384,,,,,,1,,a,spot\n"
        ),
        [
            "c.csv:2:10: `x86` is not an architecture; write `amd64` or `arm64`",
            "c.csv:2:14: `two` in `vcpu` is not a whole number; write digits only, such as `4`",
            "c.csv:2:29: `6903MB` in `alloc_memory` is not a quantity; write one such as `1930m`, `6903Mi` or `29`",
            "c.csv:2:41: `$1` in `on_demand_usd_per_hour` is not a price; write dollars an hour, such as `0.096`",
            "c.csv:3:35: `cheap` is not a capacity type that a catalogue can price; write `on-demand`, `spot` or both, with a space between",
            "c.csv:4:1: `instance_type` is empty; every row needs it",
            "c.csv:4:8: `vcpu` is zero; a machine has at least one",
        ]
    );
    assert_eq!(
        mistakes(
            "m5.large,amd64,2,8192,3,9000Mi,29,,,0.09600001,0.05370000,us-west-2a,on-demand spot\n\
             m5.xlarge,amd64,4,16384,4,16Gi,58,,,0.192000,0.0000004,us-west-2a,on-demand spot\n"
        ),
        [
            "c.csv:2:23: `alloc_cpu` is 3, and the machine has 2; write what is left for pods, at most `vcpu`",
            "c.csv:2:25: `alloc_memory` is 9000Mi, and the machine has 8Gi; write what is left for pods, at most `memory_mib`",
            "c.csv:2:37: `0.09600001` in `on_demand_usd_per_hour` is finer than a micro-dollar; prices are exact to the micro-dollar: write at most six decimals",
            "c.csv:3:46: `0.0000004` in `spot_usd_per_hour` is finer than a micro-dollar; prices are exact to the micro-dollar: write at most six decimals",
        ]
    );
    let row = "m5.large,amd64,2,8192,1930m,6903Mi,29,,,0.096,,us-west-2a,on-demand\n";
    assert!(mistakes(&format!("{row}{row}"))[0].contains("second price as on-demand in us-west-2a"));
    assert!(mistakes("m5.large,amd64\n")[0].starts_with("c.csv:2:1: the row has 2 cells, the header 13"));
    assert!(mistakes("")[0].contains("no instance type"));
    assert!(Catalog::parse_csv("", "c.csv").unwrap_err()[0].message.contains("empty"));
}

#[test]
fn a_catalogue_written_as_a_file_reads_back_the_same() {
    for region in ["us-east-1", "us-gov-west-1"] {
        let before = Catalog::builtin(region).unwrap();
        let after =
            Catalog::parse_csv(&before.to_csv(), "c.csv").unwrap_or_else(|errors| panic!("{}", errors[0]));
        assert_eq!(&*after.region, region);
        // AL2023 does not boot a1, and a file is taken at its word.
        let sold = |catalog: &Catalog| -> Vec<InstanceType> {
            let types = catalog.instance_types(None);
            let is_kept =
                |kind: &&InstanceType| !kind.name.as_str().starts_with("a1.") && !kind.offerings.is_empty();
            types.iter().filter(is_kept).cloned().collect()
        };
        let (before, after) = (sold(&before), sold(&after));
        assert_eq!(before.len(), after.len());
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.name, after.name);
            assert_eq!(before.offerings, after.offerings, "{}", before.name);
            for name in [*resource::CPU, *resource::MEMORY, *resource::PODS, *resource::EPHEMERAL_STORAGE] {
                assert_eq!(
                    before.allocatable.get(name),
                    after.allocatable.get(name),
                    "{} {name}",
                    before.name
                );
            }
        }
    }
}

#[test]
fn what_ec2_describes_becomes_a_catalogue() {
    let known = catalog();
    let mut large = known.find("m5.large").unwrap().clone();
    (large.zones, large.prices) = (vec![Zone::new("eu-west-1a"), Zone::new("eu-west-1b")], BTreeMap::new());
    let spot = BTreeMap::from([((large.name, Zone::new("eu-west-1b")), "0.0402".parse().unwrap())]);
    let described = Catalog::described("eu-west-1", vec![(large.clone(), true)], Some(&spot), None);
    assert_eq!(described.prices, PriceSource::StandIn { region: "us-east-1".into() });
    let kind = &described.instance_types(None)[0];
    let shown: Vec<String> =
        kind.offerings.iter().map(|o| format!("{} {} {}", o.zone, o.capacity_type, o.price)).collect();
    assert_eq!(
        shown,
        ["eu-west-1b spot 0.0402", "eu-west-1a on-demand 0.096", "eu-west-1b on-demand 0.096"],
        "no record, no spot price"
    );
    assert_eq!(label_of(kind, "topology.kubernetes.io/region"), &Requirement::one("eu-west-1".into()));
    assert_eq!(kind.capacity.get(ResourceName::new("vpc.amazonaws.com/pod-eni")), 9, "from the tables");

    let listed = BTreeMap::from([(large.name, "0.107".parse().unwrap())]);
    let listed = Catalog::described("eu-west-1", vec![(large.clone(), true)], Some(&spot), Some(&listed));
    assert_eq!(listed.prices, PriceSource::Published);
    let on_demand = listed.facts()[0].price(Zone::new("eu-west-1a"), CapacityType::OnDemand);
    assert_eq!(on_demand, Some("0.107".parse().unwrap()), "the region's own");
    assert!(listed.notes()[0].contains("price list of eu-west-1"), "{:?}", listed.notes());

    // Where EC2 did not say what spot costs, the tables do.
    let untold = Catalog::described("eu-west-1", vec![(large.clone(), true), (large, false)], None, None);
    let [sold, unsold] = untold.facts() else { panic!("{:?}", untold.facts()) };
    let zone = Zone::new("eu-west-1a");
    assert_eq!(
        sold.price(zone, CapacityType::Spot),
        known.find("m5.large").unwrap().prices.get(&CapacityType::Spot).copied()
    );
    assert_eq!(unsold.price(zone, CapacityType::Spot), None, "nobody sells it as spot");
    assert!(untold.notes()[0].contains("Spot prices are those that are built in"), "{:?}", untold.notes());
}
