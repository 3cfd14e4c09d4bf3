//! EC2NodeClass: what an API server takes.

use provisor::api;
use provisor::model::class::{AmiFamily, Holding, InstanceStorePolicy};
use provisor::model::quantity::Bytes;
use serde_json::{Value, json};

use super::{accepts, class, parse_class, refuses, told, with};

fn class_with(field: &str, value: Value) -> Value {
    with(class(), &format!("spec/{field}"), value)
}

/// A class whose images are selected by id, so that `amiFamily` may be anything.
fn custom_class() -> Value {
    with(class_with("amiSelectorTerms", json!([{ "id": "ami-0abc" }])), "spec/amiFamily", json!("AL2023"))
}

#[track_caller]
fn refuses_term(list: &str, term: Value, path: &str) {
    let path = match path {
        "" => format!("spec.{list}[0]"),
        path => format!("spec.{list}[0].{path}"),
    };
    refuses(&class_with(list, json!([term])), &path);
}

/// Karpenter holds its classes by the same finalizer.
#[test]
fn a_class_is_held_by_us_if_the_finalizer_is_there_and_says_for_what() {
    let held = |finalizers: Value, mark: Value| {
        let marked = with(class(), "metadata/annotations", json!({ "provisor.dev/held": mark }));
        parse_class(&with(marked, "metadata/finalizers", finalizers)).held
    };
    let ours = || json!(["somebody/else", "karpenter.k8s.aws/termination"]);
    assert_eq!(held(ours(), json!("profiles")), Some(Holding::Profiles));
    assert_eq!(held(ours(), json!("templates")), Some(Holding::Templates));
    assert_eq!(held(json!(["somebody/else"]), json!("profiles")), None);
    assert_eq!(parse_class(&with(class(), "metadata/finalizers", ours())).held, None);
}

/// Rows: AWS-001, AWS-002, AWS-003, AWS-004, AWS-005, AWS-006, AWS-007
#[test]
fn a_class_has_a_role_or_a_profile() {
    let profiled = with(class_with("role", Value::Null), "spec/instanceProfile", json!("nodes"));
    accepts(&class());
    accepts(&profiled);
    refuses(&class_with("instanceProfile", json!("nodes")), "spec");
    refuses(&class_with("role", Value::Null), "spec");
    refuses(&class_with("role", json!("")), "spec.role");
    let other_role = class_with("role", json!("others"));
    for (old, new) in [(class(), other_role), (class(), profiled.clone()), (profiled, class())] {
        assert!(api::validate_change(&old, &new).is_empty());
    }
}

/// Rows: AWS-008, AWS-009, AWS-010, AWS-011, AWS-012, AWS-013, AWS-014
#[test]
fn the_image_family_follows_from_the_alias_or_is_named() {
    accepts(&class_with("userData", json!("")));
    let families = ["AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025"];
    for family in families.into_iter().chain(["Custom"]) {
        accepts(&with(custom_class(), "spec/amiFamily", json!(family)));
    }
    refuses(&with(custom_class(), "spec/amiFamily", json!("Ubuntu")), "spec.amiFamily");
    refuses(&with(custom_class(), "spec/amiFamily", Value::Null), "spec.amiFamily");
    for alias in families {
        let aliased = format!("{}@latest", alias.to_lowercase());
        let aliased = class_with("amiSelectorTerms", json!([{ "alias": aliased }]));
        for family in families {
            let both = with(aliased.clone(), "spec/amiFamily", json!(family));
            if family == alias { accepts(&both) } else { refuses(&both, "spec.amiFamily") }
        }
        let custom = with(aliased, "spec/amiFamily", json!("Custom"));
        accepts(&custom);
        assert_eq!(parse_class(&custom).ami_family, AmiFamily::Custom);
    }
}

/// Rows: AWS-015, AWS-016
#[test]
fn tags_leave_the_provisioners_own_alone() {
    accepts(&class_with("tags", json!({})));
    accepts(&class_with("tags", json!({ "Name": "x", "team": "", "kubernetes.io/role": "y" })));
    for key in [
        "eks:eks-cluster-name",
        "kubernetes.io/cluster/x",
        "kubernetes.io/cluster",
        "karpenter.sh/nodepool",
        "karpenter.sh/nodeclaim",
        "karpenter.k8s.aws/ec2nodeclass",
        "",
    ] {
        refuses(&class_with("tags", json!({ key: "value" })), &format!("spec.tags.{key}"));
    }
}

/// Rows: AWS-017, AWS-018, AWS-019, AWS-020, AWS-021, AWS-022
#[test]
fn subnets_are_selected_by_tags_or_id() {
    const LIST: &str = "subnetSelectorTerms";
    accepts(&class_with(LIST, json!([{ "tags": { "team": "*" } }, { "id": "subnet-12345749" }])));
    refuses(&class_with(LIST, Value::Null), "spec.subnetSelectorTerms");
    refuses(&class_with(LIST, json!([])), "spec.subnetSelectorTerms");
    refuses_term(LIST, json!({}), "");
    refuses_term(LIST, json!({ "tags": {} }), "tags");
    refuses_term(LIST, json!({ "tags": { "": "value" } }), "tags.");
    refuses_term(LIST, json!({ "tags": { "key": "" } }), "tags.key");
    refuses_term(LIST, json!({ "id": "vpc-1" }), "id");
    refuses_term(LIST, json!({ "id": "subnet-1", "tags": { "a": "b" } }), "");
    let last_empty = json!([{ "tags": { "a": "b" } }, { "id": "subnet-1" }, {}]);
    refuses(&class_with(LIST, last_empty), "spec.subnetSelectorTerms[2]");
    let good_beside_bad = json!([{ "id": "subnet-1", "tags": { "a": "b" } }, { "id": "subnet-1" }]);
    refuses(&class_with(LIST, good_beside_bad), "spec.subnetSelectorTerms[0]");
}

/// Rows: AWS-023, AWS-024, AWS-025
#[test]
fn security_groups_are_selected_by_tags_id_or_name() {
    const LIST: &str = "securityGroupSelectorTerms";
    for term in [json!({ "tags": { "a": "b" } }), json!({ "id": "sg-12345749" }), json!({ "name": "web" })] {
        accepts(&class_with(LIST, json!([term])));
    }
    refuses(&class_with(LIST, Value::Null), "spec.securityGroupSelectorTerms");
    refuses(&class_with(LIST, json!([])), "spec.securityGroupSelectorTerms");
    refuses_term(LIST, json!({}), "");
    refuses_term(LIST, json!({ "tags": {} }), "tags");
    refuses_term(LIST, json!({ "tags": { "": "b" } }), "tags.");
    refuses_term(LIST, json!({ "tags": { "a": "" } }), "tags.a");
    let last_empty = json!([{ "tags": { "a": "b" } }, {}]);
    refuses(&class_with(LIST, last_empty), "spec.securityGroupSelectorTerms[1]");
    refuses_term(LIST, json!({ "id": "sg-1", "tags": { "a": "b" } }), "");
    refuses_term(LIST, json!({ "id": "sg-1", "name": "web" }), "");
    refuses_term(LIST, json!({ "name": "web", "tags": { "a": "b" } }), "");
}

/// Rows: AWS-026, AWS-027, AWS-028, AWS-029, AWS-030, AWS-031, AWS-032, AWS-033
#[test]
fn reservations_are_selected_by_tags_id_or_criteria() {
    const LIST: &str = "capacityReservationSelectorTerms";
    accepts(&class());
    for term in [
        json!({ "tags": { "a": "b" } }),
        json!({ "id": "cr-123456789abc" }),
        json!({ "tags": { "a": "b" }, "ownerID": "012345678901" }),
        json!({ "instanceMatchCriteria": "open" }),
        json!({ "instanceMatchCriteria": "targeted", "tags": { "a": "b" } }),
        json!({ "instanceMatchCriteria": "open", "tags": { "a": "b" }, "ownerID": "012345678901" }),
    ] {
        accepts(&class_with(LIST, json!([term])));
    }
    for id in ["r-1", "cr-", "cr-UPPER", "xcr-1"] {
        refuses_term(LIST, json!({ "id": id }), "id");
    }
    refuses_term(LIST, json!({}), "");
    refuses_term(LIST, json!({ "tags": {} }), "tags");
    refuses_term(LIST, json!({ "tags": { "": "b" } }), "tags.");
    refuses_term(LIST, json!({ "tags": { "a": "" } }), "tags.a");
    let last_empty = json!([{ "id": "cr-1" }, {}]);
    refuses(&class_with(LIST, last_empty), "spec.capacityReservationSelectorTerms[1]");
    refuses_term(LIST, json!({ "id": "cr-1", "tags": { "a": "b" } }), "");
    refuses_term(LIST, json!({ "id": "cr-1", "ownerID": "012345678901" }), "");
    refuses_term(LIST, json!({ "id": "cr-1", "instanceMatchCriteria": "open" }), "");
    refuses_term(LIST, json!({ "tags": { "a": "b" }, "ownerID": "0123" }), "ownerID");
    refuses_term(LIST, json!({ "ownerID": "012345678901" }), "");
    refuses_term(LIST, json!({ "instanceMatchCriteria": "other" }), "instanceMatchCriteria");
}

/// Rows: AWS-034, AWS-035, AWS-036, AWS-037, AWS-038
#[test]
fn images_are_selected_by_alias_tags_id_or_name() {
    const LIST: &str = "amiSelectorTerms";
    accepts(&class_with(LIST, json!([{ "alias": "al2023@latest" }])));
    let with_terms = |terms: Value| with(custom_class(), "spec/amiSelectorTerms", terms);
    for term in [
        json!({ "tags": { "a": "b" } }),
        json!({ "id": "ami-12345749" }),
        json!({ "name": "my-image" }),
        json!({ "name": "my-image", "owner": "self" }),
        json!({ "tags": { "a": "b" }, "owner": "012345678901" }),
        json!({ "ssmParameter": "/my/image" }),
    ] {
        accepts(&with_terms(json!([term])));
    }
    let refuses_term = |term: Value, path: &str| {
        let path = format!("spec.amiSelectorTerms[0]{path}");
        refuses(&with_terms(json!([term])), &path);
    };
    refuses_term(json!({}), "");
    refuses_term(json!({ "tags": {} }), ".tags");
    refuses_term(json!({ "tags": { "": "b" } }), ".tags.");
    refuses_term(json!({ "tags": { "a": "" } }), ".tags.a");
    refuses_term(json!({ "owner": "self" }), "");
    refuses(&with_terms(json!([{ "id": "ami-1" }, {}])), "spec.amiSelectorTerms[1]");
    for (key, value) in [
        ("alias", json!("al2023@latest")),
        ("tags", json!({ "a": "b" })),
        ("name", json!("n")),
        ("owner", json!("self")),
        ("ssmParameter", json!("/p")),
    ] {
        refuses_term(json!({ "id": "ami-1", key: value }), "");
        if key != "alias" {
            refuses_term(json!({ "alias": "al2023@latest", key: value }), "");
        }
    }
    let beside = json!([{ "alias": "al2023@latest" }, { "id": "ami-1" }]);
    refuses(&with_terms(beside), "spec.amiSelectorTerms[0].alias");
}

/// Rows: AWS-039, AWS-040, AWS-041, AWS-042
#[test]
fn an_alias_is_a_family_and_a_version() {
    for (alias, family) in [
        ("al2@latest", AmiFamily::Al2),
        ("al2@v20240625", AmiFamily::Al2),
        ("al2023@latest", AmiFamily::Al2023),
        ("al2023@v20240625", AmiFamily::Al2023),
        ("bottlerocket@latest", AmiFamily::Bottlerocket),
        ("bottlerocket@1.10.0", AmiFamily::Bottlerocket),
        ("windows2019@latest", AmiFamily::Windows2019),
        ("windows2022@latest", AmiFamily::Windows2022),
        ("windows2025@latest", AmiFamily::Windows2025),
    ] {
        let class = class_with("amiSelectorTerms", json!([{ "alias": alias }]));
        accepts(&class);
        assert_eq!(parse_class(&class).ami_family, family);
    }
    for alias in [
        "@latest",
        "al2023",
        "al2023@",
        "al2023-latest",
        "ubuntu@latest",
        "AL2023@latest",
        "windows2019@v1.0",
        "windows2022@v1.0",
        "windows2025@v1.0",
        "bottlerocket@1.2345678901234567890",
    ] {
        refuses_term("amiSelectorTerms", json!({ "alias": alias }), "alias");
    }
}

/// Rows: AWS-043, AWS-044, AWS-045, AWS-046
#[test]
fn the_server_stores_any_kubelet_map() {
    for kubelet in [
        json!({ "maxPods": 42, "clusterDNS": ["10.0.0.10"] }),
        json!({ "someDay": true }),
        json!({ "maxPods": "many", "cpuCFSQuota": "perhaps", "evictionHard": { "x": "y" } }),
        json!({ "authentication": { "webhook": { "cacheTTL": "2m0s" } } }),
    ] {
        let class = class_with("kubelet", kubelet.clone());
        let errors = api::validate(&class);
        assert!(errors.iter().all(|error| error.stage == api::Stage::Runtime), "{}", told(&errors));
        assert_eq!(parse_class(&class).spec["kubelet"], kubelet, "stored untouched");
    }
}

/// Rows: AWS-047, AWS-048
#[test]
fn metadata_options_are_from_closed_lists() {
    for (key, values) in [
        ("httpEndpoint", ["enabled", "disabled"]),
        ("httpProtocolIPv6", ["enabled", "disabled"]),
        ("httpTokens", ["required", "optional"]),
    ] {
        for value in values {
            accepts(&class_with(&format!("metadataOptions/{key}"), json!(value)));
        }
        let path = format!("spec.metadataOptions.{key}");
        refuses(&class_with(&format!("metadataOptions/{key}"), json!("maybe")), &path);
    }
    for hops in [1, 2, 64] {
        accepts(&class_with("metadataOptions/httpPutResponseHopLimit", json!(hops)));
    }
    for hops in [-5, 0, 65] {
        let class = class_with("metadataOptions/httpPutResponseHopLimit", json!(hops));
        refuses(&class, "spec.metadataOptions.httpPutResponseHopLimit");
    }
}

/// Rows: AWS-049, AWS-050, AWS-051, AWS-052, AWS-053
#[test]
fn volumes_have_a_size_that_exists() {
    let mapping =
        |ebs: Value, is_root: bool| json!({ "deviceName": "/dev/xvda", "ebs": ebs, "rootVolume": is_root });
    let sized =
        |size: &str| class_with("blockDeviceMappings", json!([mapping(json!({ "volumeSize": size }), true)]));
    let ebs = json!({ "volumeSize": "50Gi" });
    let two = |second: bool| json!([mapping(ebs.clone(), true), mapping(ebs.clone(), second)]);
    accepts(&class_with("blockDeviceMappings", two(false)));
    refuses(&class_with("blockDeviceMappings", two(true)), "spec.blockDeviceMappings");
    for size in ["58G", "45T", "500G", "50T", "1Gi", "59000Gi", "64000G", "18Ti", "29Ti", "58Ti", "64T"] {
        accepts(&sized(size));
    }
    for size in ["1m", "100T", "", "50", "59Ti", "65T", "59001Gi", "0Gi", "050Gi", "1.5Ti", "50GB"] {
        refuses(&sized(size), "spec.blockDeviceMappings[0].ebs.volumeSize");
    }
    let neither = json!([mapping(json!({ "volumeType": "gp3" }), true)]);
    refuses(&class_with("blockDeviceMappings", neither), "spec.blockDeviceMappings[0].ebs");
    let rated = |rate: i64, snapshot: Option<&str>| {
        let mut ebs = json!({ "volumeSize": "50Gi", "volumeInitializationRate": rate });
        if let Some(snapshot) = snapshot {
            ebs["snapshotID"] = snapshot.into();
        }
        class_with("blockDeviceMappings", json!([mapping(ebs, true)]))
    };
    accepts(&rated(100, Some("snap-1")));
    for wrong in [rated(100, None), rated(99, Some("snap-1")), rated(888, Some("snap-1"))] {
        refuses(&wrong, "spec.blockDeviceMappings[0].ebs.volumeInitializationRate");
    }
}

/// Rows: AWS-054, AWS-055, AWS-056, AWS-057, AWS-058, AWS-059
#[test]
fn interfaces_are_unique_and_one_is_primary() {
    const PATH: &str = "spec.networkInterfaces";
    let list = |entries: &[(i64, i64, &str)]| {
        let entry = |(card, device, kind): &(i64, i64, &str)| json!({ "networkCardIndex": card, "deviceIndex": device, "interfaceType": kind });
        class_with("networkInterfaces", entries.iter().map(entry).collect())
    };
    let primary = (0, 0, "interface");
    accepts(&list(&[]));
    accepts(&list(&[primary, (0, 1, "efa-only"), (1, 0, "efa-only"), (1, 1, "interface")]));
    refuses(&list(&[primary, (0, 1, "trunk")]), &format!("{PATH}[1].interfaceType"));
    refuses(&list(&[primary, (-1, 1, "interface")]), &format!("{PATH}[1].networkCardIndex"));
    refuses(&list(&[primary, (0, -1, "interface")]), &format!("{PATH}[1].deviceIndex"));
    refuses(&list(&[primary, (0, 0, "interface")]), &format!("{PATH}[1]"));
    refuses(&list(&[(0, 1, "interface")]), PATH);
    refuses(&list(&[(0, 0, "efa-only")]), PATH);
    refuses(&list(&[primary, (0, 1, "efa-only"), (0, 2, "efa-only")]), &format!("{PATH}[2]"));
}

/// Rows: AWS-060, AWS-061, AWS-062, AWS-063, AWS-064
#[test]
fn connection_tracking_and_cpu_options_are_within_bounds() {
    refuses(&class_with("connectionTracking", json!({})), "spec.connectionTracking");
    let mut all = json!({});
    for (key, low, high) in
        [("tcpEstablishedTimeout", 60, 432_000), ("udpStreamTimeout", 60, 180), ("udpTimeout", 30, 60)]
    {
        for seconds in [low, high] {
            accepts(&class_with("connectionTracking", json!({ key: seconds })));
        }
        for seconds in [low - 1, high + 1] {
            let class = class_with("connectionTracking", json!({ key: seconds }));
            refuses(&class, &format!("spec.connectionTracking.{key}"));
        }
        all[key] = low.into();
    }
    accepts(&class_with("connectionTracking", all));
    for value in ["enabled", "disabled"] {
        accepts(&class_with("cpuOptions", json!({ "nestedVirtualization": value })));
    }
    accepts(&class_with("cpuOptions", json!({})));
    let maybe = class_with("cpuOptions", json!({ "nestedVirtualization": "maybe" }));
    refuses(&maybe, "spec.cpuOptions.nestedVirtualization");
}

// ------------------------------------------------------------------------------------------- beyond the catalogue

#[test]
fn the_model_gets_what_decides_about_capacity() {
    let mut object = class_with("instanceStorePolicy", json!("RAID0"));
    object = with(
        object,
        "spec/blockDeviceMappings",
        json!([
            { "deviceName": "/dev/xvdb", "ebs": { "volumeSize": "10Gi" } },
            { "deviceName": "/dev/xvda", "ebs": { "volumeSize": "100Gi" } },
        ]),
    );
    object = with(
        object,
        "status/subnets",
        json!([{ "id": "subnet-1", "zone": "b" }, { "id": "subnet-2", "zone": "a" }]),
    );
    let class = parse_class(&object);
    assert_eq!(class.instance_store, InstanceStorePolicy::Raid0);
    assert_eq!(class.root_volume, Some(Bytes::gibi(100)), "the device that AL2023 keeps pods' files on");
    assert_eq!(class.zones, ["a".into(), "b".into()]);
    assert!(class.is_ready && !class.is_deleting);
    let rooted = with(object, "spec/blockDeviceMappings/0/rootVolume", json!(true));
    assert_eq!(parse_class(&rooted).root_volume, Some(Bytes::gibi(10)));
}

#[test]
fn a_class_that_says_not_ready_is_not() {
    let unready = with(class(), "status/conditions", json!([{ "type": "Ready", "status": "False" }]));
    assert!(!parse_class(&unready).is_ready);
    let invalid = class_with("kubelet", json!({ "maxPods": -1 }));
    assert!(!parse_class(&invalid).is_ready, "its controller would say so");
}
