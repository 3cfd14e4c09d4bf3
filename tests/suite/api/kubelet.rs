//! The kubelet map of a node class: what its controller finds in it.

use provisor::api::{self, FieldError, Stage};
use provisor::model::class::EvictionThreshold;
use serde_json::{Value, json};

use super::{accepts, class, parse_class, told, with};

fn class_with(kubelet: Value) -> Value {
    with(class(), "spec/kubelet", kubelet)
}

fn errors(kubelet: Value) -> Vec<FieldError> {
    let errors = api::validate(&class_with(kubelet));
    assert!(errors.iter().all(|error| error.stage == Stage::Runtime), "{}", told(&errors));
    errors
}

#[track_caller]
fn fails(kubelet: Value) {
    assert!(!errors(kubelet.clone()).is_empty(), "{kubelet}");
}

/// Rows: AWS-075, AWS-076, AWS-079
#[test]
fn settings_that_decide_about_pods_are_read() {
    assert_eq!(parse_class(&class()).kubelet, Default::default());
    assert_eq!(parse_class(&class_with(json!({}))).kubelet, Default::default());
    let class = parse_class(&class_with(json!({
        "clusterDNS": ["10.0.0.10"],
        "maxPods": 42,
        "podsPerCore": 4,
        "systemReserved": { "cpu": "100m" },
        "kubeReserved": { "memory": "1Gi" },
        "evictionHard": { "memory.available": "5%", "nodefs.available": "10Gi" },
        "evictionSoft": { "memory.available": "7.5%" },
        "evictionSoftGracePeriod": { "memory.available": "1m30s" },
        "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        "cpuCFSQuota": true,
        "serializeImagePulls": false,
    })));
    let kubelet = &class.kubelet;
    assert_eq!((kubelet.max_pods, kubelet.pods_per_core), (Some(42), Some(4)));
    assert_eq!(kubelet.system_reserved[&"cpu".into()].millis(), 100);
    assert_eq!(kubelet.kube_reserved[&"memory".into()].units(), 1 << 30);
    assert_eq!(kubelet.eviction_hard[&"memory.available".into()], EvictionThreshold::Share(500));
    assert!(matches!(kubelet.eviction_hard[&"nodefs.available".into()], EvictionThreshold::Amount(_)));
    assert_eq!(kubelet.eviction_soft[&"memory.available".into()], EvictionThreshold::Share(750));
}

/// Rows: AWS-077, AWS-083
#[test]
fn expressions_are_left_for_the_catalogue_to_evaluate() {
    let kubelet = json!({
        "maxPods": "max_pods - 10",
        "podsPerCore": 4,
        "kubeReserved": { "cpu": "vcpus * 30", "memory": "1Gi" },
        "systemReserved": { "memory": "memory_mib / 100" },
    });
    accepts(&class_with(kubelet.clone()));
    let read = parse_class(&class_with(kubelet)).kubelet;
    assert_eq!(read.max_pods, None);
    assert_eq!(read.kube_reserved.len(), 1, "the quantity");
}

#[test]
fn aws_082_what_the_kubelet_takes_is_taken() {
    for kubelet in [
        json!({}),
        json!({ "maxPods": 0, "podsPerCore": 0, "evictionMaxPodGracePeriod": 0 }),
        json!({ "topologyManagerPolicy": "best-effort", "registryPullQPS": 20, "featureGates": { "X": true } }),
        json!({ "logging": { "format": "json", "verbosity": 2, "options": { "json": { "splitStream": true } } } }),
        json!({ "shutdownGracePeriodByPodPriority": [{ "priority": 1, "shutdownGracePeriodSeconds": 30 }] }),
        json!({ "evictionHard": { "memory.available": "100Mi", "pid.available": "5%", "imagefs.inodesFree": "100%" } }),
        json!({ "evictionSoft": { "memory.available": "1Gi" }, "evictionSoftGracePeriod": { "memory.available": "0" } }),
        json!({ "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 0 }),
        json!({ "streamingConnectionIdleTimeout": "4h0m0s", "containerLogMaxSize": "10Mi" }),
    ] {
        accepts(&class_with(kubelet));
    }
}

/// Rows: AWS-084, AWS-085, AWS-096
#[test]
fn unknown_fields_and_wrong_types_are_found_at_any_depth() {
    for (kubelet, named) in [
        (json!({ "maxPod": 10 }), "maxPod"),
        (json!({ "memorySwap": { "swapBehaviour": "x" } }), "swapBehaviour"),
        (json!({ "logging": { "options": { "json": { "split": true } } } }), "split"),
    ] {
        let errors = errors(kubelet);
        assert_eq!(errors.len(), 1, "{}", told(&errors));
        assert!(errors[0].message.contains(named), "{}", errors[0]);
    }
    for kubelet in [
        json!({ "serializeImagePulls": "no" }),
        json!({ "authentication": { "anonymous": { "enabled": "no" } } }),
        json!({ "memorySwap": [] }),
        json!({ "reservedMemory": [5] }),
        json!({ "syncFrequency": "soon" }),
    ] {
        fails(kubelet);
    }
}

/// Rows: AWS-078, AWS-097
#[test]
fn every_managed_field_has_its_type() {
    for kubelet in [
        json!({ "clusterDNS": "10.0.0.10" }),
        json!({ "maxPods": true }),
        json!({ "podsPerCore": "4" }),
        json!({ "systemReserved": { "cpu": 1 } }),
        json!({ "kubeReserved": { "cpu": 1 } }),
        json!({ "evictionHard": { "memory.available": 5 } }),
        json!({ "evictionSoft": { "memory.available": 5 }, "evictionSoftGracePeriod": { "memory.available": "1m" } }),
        json!({ "evictionSoft": { "memory.available": "5%" }, "evictionSoftGracePeriod": { "memory.available": 60 } }),
        json!({ "evictionMaxPodGracePeriod": "60" }),
        json!({ "imageGCHighThresholdPercent": "85" }),
        json!({ "imageGCLowThresholdPercent": "80" }),
        json!({ "cpuCFSQuota": "true" }),
    ] {
        fails(kubelet);
    }
}

/// Rows: AWS-086, AWS-087, AWS-088, AWS-089, AWS-090, AWS-091, AWS-092, AWS-093
#[test]
fn amounts_signals_and_grace_periods_make_sense() {
    for key in ["maxPods", "podsPerCore", "evictionMaxPodGracePeriod"] {
        fails(json!({ key: -1 }));
    }
    for key in ["imageGCHighThresholdPercent", "imageGCLowThresholdPercent"] {
        fails(json!({ key: 101 }));
        fails(json!({ key: -1 }));
    }
    for key in ["kubeReserved", "systemReserved"] {
        fails(json!({ key: { "gpu": "1" } }));
        fails(json!({ key: { "cpu": "-1" } }));
    }
    for key in ["evictionHard", "evictionSoft", "evictionMinimumReclaim", "evictionSoftGracePeriod"] {
        fails(json!({ key: { "memory.free": "5%" } }));
    }
    for key in ["evictionHard", "evictionSoft", "evictionMinimumReclaim"] {
        for value in ["lots", "101%", "-5%", "-1Gi", "%"] {
            fails(json!({ key: { "memory.available": value } }));
        }
    }
    for grace in ["soon", "-1m", "5"] {
        fails(json!({
            "evictionSoft": { "memory.available": "5%" },
            "evictionSoftGracePeriod": { "memory.available": grace },
        }));
    }
    fails(json!({ "evictionSoft": { "memory.available": "5%" } }));
    fails(json!({ "evictionSoft": { "memory.available": "5%" }, "evictionSoftGracePeriod": {} }));
    fails(json!({ "evictionSoftGracePeriod": { "memory.available": "1m" } }));
    fails(json!({ "imageGCHighThresholdPercent": 60, "imageGCLowThresholdPercent": 80 }));
    fails(json!({ "imageGCHighThresholdPercent": 70, "imageGCLowThresholdPercent": 70 }));
}

#[test]
fn aws_094_taints_belong_on_the_pool() {
    let errors = errors(json!({ "registerWithTaints": [{ "key": "a", "effect": "NoSchedule" }] }));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].message.contains("registerWithTaints"));
}

#[test]
fn aws_095_all_mistakes_are_told_at_once() {
    let errors = errors(json!({
        "podsPerCore": -1,
        "kubeReserved": { "gpu": "1", "cpu": "-1" },
        "evictionHard": { "memory.free": "5%" },
    }));
    assert!(errors.len() >= 4, "{}", told(&errors));
}

#[test]
fn families_say_what_they_cannot_apply() {
    let of = |alias: &str, kubelet: Value| {
        let class = with(class_with(kubelet), "spec/amiSelectorTerms", json!([{ "alias": alias }]));
        api::validate(&class)
    };
    let dns = json!({ "clusterDNS": ["10.0.0.10", "10.0.0.11"] });
    let passthrough = json!({ "serializeImagePulls": false });
    for kubelet in [&dns, &passthrough] {
        assert!(of("al2023@latest", kubelet.clone()).is_empty());
        for alias in ["al2@latest", "bottlerocket@latest", "windows2022@latest"] {
            assert_eq!(of(alias, kubelet.clone()).len(), 1, "{alias} {kubelet}");
        }
    }
    assert_eq!(of("bottlerocket@latest", json!({ "podsPerCore": 4 })).len(), 1);
    assert!(of("al2@latest", json!({ "podsPerCore": 4 })).is_empty());
}
