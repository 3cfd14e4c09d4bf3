//! Hashes that decide whether a node drifted.

use serde_json::{Value, json};

use super::{class, parse_class, parse_pool, pool, with};

#[track_caller]
fn pool_hash(object: &Value) -> String {
    parse_pool(object).hash.expect("computed").to_string()
}

#[track_caller]
fn class_hash(object: &Value) -> String {
    parse_class(object).hash.expect("computed").to_string()
}

/// Rows: SCH-555
#[test]
fn api_046_a_pools_hash_is_of_its_template_less_requirements() {
    let base = pool_hash(&pool());
    let taint = |key: &str| json!([{ "key": key, "effect": "NoSchedule" }]);
    for (path, value) in [
        ("spec/template/metadata/labels", json!({ "team": "shop" })),
        ("spec/template/metadata/annotations", json!({ "team": "shop" })),
        ("spec/template/spec/taints", taint("a")),
        ("spec/template/spec/startupTaints", taint("a")),
        ("spec/template/spec/nodeClassRef/name", json!("other")),
        ("spec/template/spec/nodeClassRef/group", json!("other")),
        ("spec/template/spec/nodeClassRef/kind", json!("Other")),
        ("spec/template/spec/terminationGracePeriod", json!("1h")),
        ("spec/template/spec/expireAfter", json!("1h")),
        ("spec/template/spec/expireAfter", json!("Never")),
    ] {
        assert_ne!(pool_hash(&with(pool(), path, value)), base, "{path}");
    }
    for (path, value) in [
        ("spec/limits", json!({ "cpu": "10" })),
        ("spec/disruption", json!({ "consolidationPolicy": "WhenEmpty", "consolidateAfter": "5m" })),
        ("spec/weight", json!(10)),
        ("spec/replicas", json!(10)),
        ("spec/template/spec/requirements", json!([{ "key": "kubernetes.io/arch", "operator": "Exists" }])),
        ("spec/template/metadata/labels", json!({})),
        ("spec/template/spec/taints", json!([])),
        ("spec/template/spec/expireAfter", json!("43200m")),
    ] {
        assert_eq!(pool_hash(&with(pool(), path, value)), base, "{path}");
    }
    let two = |first: &str, second: &str| {
        let taints = [first, second].map(|key| json!({ "key": key, "effect": "NoSchedule" }));
        pool_hash(&with(pool(), "spec/template/spec/taints", json!(taints)))
    };
    assert_eq!(two("a", "b"), two("b", "a"), "a list is a set");
}

#[test]
fn a_hash_that_another_wrote_is_kept() {
    let annotated = with(
        pool(),
        "metadata/annotations",
        json!({ "karpenter.sh/nodepool-hash": "123", "karpenter.sh/nodepool-hash-version": "v3" }),
    );
    let pool = parse_pool(&annotated);
    assert_eq!((pool.hash, pool.hash_version), (Some("123".into()), Some("v3".into())));
    assert!(pool_hash(&super::pool()).parse::<u64>().is_ok(), "a decimal number");
    let mut ours = annotated.clone();
    ours["metadata"]["annotations"]["karpenter.sh/nodepool-hash-version"] = json!("provisor-v1");
    assert_eq!(
        pool_hash(&ours),
        pool_hash(&super::pool()),
        "ours may be of an older spec, and is computed anew"
    );
}

/// Rows: AWS-124, AWS-125, AWS-126, AWS-127, AWS-128
#[test]
fn a_classs_hash_is_of_what_an_instance_cannot_change() {
    let full = |changes: &[(&str, Value)]| {
        let mut object = class();
        for (path, value) in [
            ("spec/tags", json!({ "a": "1", "b": "2" })),
            (
                "spec/blockDeviceMappings",
                json!([
                    { "deviceName": "/dev/xvda", "ebs": { "volumeSize": "20Gi", "volumeType": "gp3" } },
                    { "deviceName": "/dev/xvdb", "ebs": { "volumeSize": "30Gi" } },
                ]),
            ),
            ("spec/metadataOptions", json!({ "httpEndpoint": "enabled", "httpTokens": "required" })),
            ("spec/connectionTracking", json!({ "udpTimeout": 30 })),
            ("spec/kubelet", json!({ "maxPods": 12 })),
        ] {
            object = with(object, path, value);
        }
        for (path, value) in changes {
            object = with(object, path, value.clone());
        }
        class_hash(&object)
    };
    let base = full(&[]);
    assert_eq!(base, full(&[]));
    for (path, value) in [
        ("spec/userData", json!("#!/bin/sh")),
        ("spec/tags", json!({ "a": "1", "b": "3" })),
        ("spec/context", json!("c")),
        ("spec/role", json!("others")),
        ("spec/detailedMonitoring", json!(true)),
        ("spec/instanceStorePolicy", json!("RAID0")),
        ("spec/associatePublicIPAddress", json!(true)),
        ("spec/metadataOptions/httpEndpoint", json!("disabled")),
        ("spec/metadataOptions/httpProtocolIPv6", json!("enabled")),
        ("spec/metadataOptions/httpPutResponseHopLimit", json!(10)),
        ("spec/metadataOptions/httpTokens", json!("optional")),
        ("spec/blockDeviceMappings/0/deviceName", json!("/dev/sda")),
        ("spec/blockDeviceMappings/0/rootVolume", json!(true)),
        ("spec/blockDeviceMappings/0/ebs/volumeSize", json!("21Gi")),
        ("spec/blockDeviceMappings/0/ebs/volumeType", json!("io2")),
        ("spec/blockDeviceMappings/0/ebs/iops", json!(10)),
        ("spec/blockDeviceMappings/0/ebs/throughput", json!(10)),
        ("spec/blockDeviceMappings/0/ebs/encrypted", json!(true)),
        ("spec/blockDeviceMappings/0/ebs/deleteOnTermination", json!(true)),
        ("spec/blockDeviceMappings/0/ebs/kmsKeyID", json!("k")),
        ("spec/blockDeviceMappings/0/ebs/snapshotID", json!("s")),
        ("spec/connectionTracking/udpTimeout", json!(31)),
        ("spec/connectionTracking/udpStreamTimeout", json!(60)),
        ("spec/connectionTracking/tcpEstablishedTimeout", json!(60)),
        ("spec/cpuOptions", json!({ "nestedVirtualization": "enabled" })),
        ("spec/amiFamily", json!("Custom")),
        ("spec/kubelet", json!({ "maxPods": 21 })),
        ("spec/kubelet", json!({})),
    ] {
        assert_ne!(full(&[(path, value)]), base, "{path}");
    }
    let profiled = [("spec/role", Value::Null), ("spec/instanceProfile", json!("nodes"))];
    assert_ne!(full(&profiled), base);
    for (path, value) in [
        ("spec/subnetSelectorTerms", json!([{ "id": "subnet-1" }])),
        ("spec/securityGroupSelectorTerms", json!([{ "id": "sg-1" }])),
        ("spec/capacityReservationSelectorTerms", json!([{ "id": "cr-1" }])),
        ("spec/amiSelectorTerms", json!([{ "alias": "al2023@v20240625" }])),
        ("spec/amiFamily", json!("AL2023")),
        ("spec/ipPrefixCount", json!(2)),
        ("spec/tags", json!({ "b": "2", "a": "1" })),
        ("spec/detailedMonitoring", json!(false)),
        (
            "spec/blockDeviceMappings",
            json!([
                { "deviceName": "/dev/xvdb", "ebs": { "volumeSize": "30Gi" } },
                { "ebs": { "volumeType": "gp3", "volumeSize": "20Gi" }, "deviceName": "/dev/xvda" },
            ]),
        ),
    ] {
        assert_eq!(full(&[(path, value)]), base, "{path}");
    }
    assert_eq!(class_hash(&with(class(), "spec/kubelet", json!({}))), class_hash(&class()));
}

#[test]
fn aws_130_the_clusters_certificate_is_part_of_a_classs_hash() {
    use provisor::api::hash::of_class;
    use provisor::model::class::AmiFamily;
    let class = class();
    let spec = &class["spec"];
    let of = |bundle: Option<&str>| of_class(spec, AmiFamily::Al2023, bundle);
    assert_ne!(of(Some("one")), of(Some("two")));
    assert_ne!(of(Some("one")), of(None));
}
