//! What the selectors of a class find, and what it says when they find nothing.

use aws_sdk_ec2::types::ArchitectureValues;
use provisor::io::cloud::{CloudProvider, LaunchOrder};
use provisor::model::claim::ConditionStatus;
use provisor::model::class::ClassStatus;
use provisor::model::observation::LaunchFailure;
use serde_json::{Value, json};

use super::emulator::{Emulator, class, order};

fn failed(status: &ClassStatus) -> Vec<String> {
    let conditions =
        status.conditions.iter().filter(|(_, condition)| condition.status != ConditionStatus::True);
    conditions.map(|(kind, condition)| format!("{kind} {}", condition.reason)).collect()
}

#[tokio::test]
async fn a_class_finds_images_networks_and_its_profile() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let status = provider.resolve(class(json!({}))).await.expect("an answer");
    assert_eq!(failed(&status), Vec::<String>::new());
    assert_eq!(status.conditions.len(), 5);
    let zones: Vec<&str> = status.subnets.iter().map(|subnet| subnet.zone.as_str()).collect();
    assert_eq!(zones.len(), 3);
    assert!(status.subnets.iter().all(|subnet| subnet.addresses_free > 0 && !subnet.zone_id.is_empty()));
    assert_eq!(status.security_groups[0].name.as_str(), "nodes");
    assert_eq!(status.images.len(), 2);
    let profile = status.instance_profile.expect("a profile");
    assert!(profile.starts_with("east_"), "{profile}");
    let known =
        cloud.raw("iam", &[("Action", "GetInstanceProfile"), ("InstanceProfileName", &profile)]).await;
    assert!(
        known.contains("<RoleName>nodes</RoleName>") && known.contains("/karpenter/us-east-1/east/default/"),
        "{known}"
    );
    let again = cloud.provider().resolve(class(json!({}))).await.expect("an answer");
    assert_eq!(again.instance_profile, status.instance_profile, "a new process finds the same profile");
    assert_eq!(cloud.calls("CreateInstanceProfile").await.len(), 1);
    let asked = cloud.calls("GetParameter").await.len();
    provider.resolve(class(json!({}))).await.expect("an answer");
    assert_eq!(
        cloud.calls("GetParameter").await.len(),
        asked + 3,
        "only what was missing is asked for again"
    );
}

#[tokio::test]
async fn an_upgraded_cluster_gets_images_of_its_new_version() {
    let cloud = Emulator::furnished().await;
    let (states, version) = tokio::sync::watch::channel("1.34".to_owned());
    let provider = cloud.provider_of(version);
    let asked = async || {
        provider.resolve(class(json!({}))).await.expect("an answer");
        cloud.calls("GetParameter").await.iter().map(Value::to_string).collect::<String>()
    };
    let before = asked().await;
    assert!(before.contains("/optimized-ami/1.34/") && !before.contains("/optimized-ami/1.35/"), "{before}");
    states.send("1.35".to_owned()).expect("somebody listens");
    assert!(asked().await.contains("/optimized-ami/1.35/"));
}

/// Somebody tidies up: what was found before is not believed for longer than it is there.
#[tokio::test]
async fn an_image_or_a_profile_that_is_gone_is_looked_for_again() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let status = provider.resolve(class(json!({}))).await.expect("an answer");
    for image in &status.images {
        cloud.ec2.deregister_image().image_id(image.id.as_str()).send().await.expect("it is gone");
    }
    let new = cloud.image("new", ArchitectureValues::X8664).await;
    let asked = cloud.calls("GetParameter").await;
    let asked = asked.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let version = asked.split("optimized-ami/").nth(1).and_then(|rest| rest.split('/').next());
    let folder = format!("/aws/service/eks/optimized-ami/{}/amazon-linux-2023", version.expect("a version"));
    let parameter = format!("{folder}/x86_64/standard/recommended/image_id");
    cloud.control("parameters", json!({ parameter: new })).await;
    let status = provider.resolve(class(json!({}))).await.expect("an answer");
    let found: Vec<&str> = status.images.iter().map(|image| image.id.as_str()).collect();
    assert_eq!((found, failed(&status)), (vec![new.as_str()], Vec::new()));

    let profile = status.instance_profile.expect("a profile").to_string();
    let named = ("InstanceProfileName", profile.as_str());
    let without = [("Action", "RemoveRoleFromInstanceProfile"), named, ("RoleName", "nodes")];
    cloud.raw("iam", &without).await;
    cloud.raw("iam", &[("Action", "DeleteInstanceProfile"), named]).await;
    // EC2 tells so when it is to be given to a machine.
    cloud.fail("CreateFleet", "InvalidParameterValue", 400, 1).await;
    let launch = || LaunchOrder { class: class(json!({})), ..order("a", &["m5.large a spot"]) };
    let refused = provider.launch(launch()).await;
    assert!(matches!(refused, Err(LaunchFailure::Refused { .. })), "{refused:?}");
    provider.launch(launch()).await.expect("a machine with a new profile");
    assert_eq!(cloud.calls("CreateInstanceProfile").await.len(), 2);
}

#[tokio::test]
async fn images_are_found_by_id_name_and_tag() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let own = cloud.image("mine-2026", ArchitectureValues::X8664).await;
    let tagged =
        cloud.ec2.create_tags().resources(&own).tags(super::emulator::tag("role", "node")).send().await;
    tagged.expect("tags");
    for term in [json!({ "id": own }), json!({ "name": "mine-*" }), json!({ "tags": { "role": "node" } })] {
        let spec = json!({ "amiFamily": "Custom", "amiSelectorTerms": [term], "userData": "hello" });
        let status = provider.resolve(class(spec)).await.expect("an answer");
        let found: Vec<&str> = status.images.iter().map(|image| image.id.as_str()).collect();
        assert_eq!(found, [own.as_str()], "{term}");
    }
}

/// Rows: AWS-138
#[tokio::test]
async fn aws_138_the_alias_of_bottlerocket_finds_an_image_for_every_kind_of_machine() {
    let cloud = Emulator::furnished().await;
    let mut parameters = json!({});
    let mut known = Vec::new();
    for (suffix, machine, arch) in [
        ("", "x86_64", ArchitectureValues::X8664),
        ("", "arm64", ArchitectureValues::Arm64),
        ("-nvidia", "x86_64", ArchitectureValues::X8664),
        ("-nvidia", "arm64", ArchitectureValues::Arm64),
    ] {
        let image = cloud.image(&format!("bottlerocket{suffix}-{machine}"), arch).await;
        parameters[format!("/aws/service/bottlerocket/aws-k8s-1.34{suffix}/{machine}/latest/image_id")] =
            json!(image);
        known.push(image);
    }
    cloud.control("parameters", parameters).await;
    let spec = json!({ "amiSelectorTerms": [{ "alias": "bottlerocket@latest" }] });
    let status = cloud.provider().resolve(class(spec)).await.expect("an answer");
    assert_eq!(failed(&status), Vec::<String>::new());
    let found: Vec<&str> = status.images.iter().map(|image| image.id.as_str()).collect();
    let times = |image: &String| found.iter().filter(|id| **id == image.as_str()).count();
    // The plain one of x86 serves machines with Neuron devices, too.
    assert_eq!(known.iter().map(times).collect::<Vec<_>>(), [2, 1, 1, 1], "{found:?} of {known:?}");
}

/// Rows: AWS-444, AWS-445
#[tokio::test]
async fn aws_444_subnets_and_security_groups_are_found_by_id_name_and_tags() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let all = provider.resolve(class(json!({}))).await.expect("an answer");
    let mut subnets: Vec<String> = all.subnets.iter().map(|subnet| subnet.id.to_string()).collect();
    subnets.sort();
    let [one, two, _] = subnets.as_slice() else { panic!("three subnets: {subnets:?}") };
    let marked =
        cloud.ec2.create_tags().resources(two).tags(super::emulator::tag("role", "edge")).send().await;
    marked.expect("tags");
    let by_tag = json!({ "tags": { "role": "edge" } });
    for (terms, expected) in [
        (json!([{ "id": one }]), vec![one]),
        (json!([{ "id": one }, { "id": two }]), vec![one, two]),
        (json!([by_tag]), vec![two]),
        (json!([{ "tags": { "net": "nodes", "role": "*" } }]), vec![two]),
        (json!([{ "id": one }, by_tag]), vec![one, two]),
        (json!([{ "tags": { "net": "*" } }]), subnets.iter().collect()),
    ] {
        let status = provider.resolve(class(json!({ "subnetSelectorTerms": terms }))).await;
        let mut found: Vec<String> =
            status.expect("an answer").subnets.iter().map(|subnet| subnet.id.to_string()).collect();
        found.sort();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{terms}");
    }
    let group = all.security_groups[0].id.to_string();
    let other = cloud.ec2.create_security_group().group_name("edge").description("edge").send().await;
    let other = other.expect("a group").group_id().expect("an id").to_owned();
    let both = if group < other { vec![&group, &other] } else { vec![&other, &group] };
    for (terms, expected) in [
        (json!([{ "id": other }]), vec![&other]),
        (json!([{ "name": "edge" }]), vec![&other]),
        (json!([{ "name": "edge" }, { "name": "nodes" }]), both.clone()),
        (json!([{ "name": "edge" }, { "tags": { "net": "nodes" } }]), both),
        (json!([{ "tags": { "net": "nodes" } }]), vec![&group]),
    ] {
        let status = provider.resolve(class(json!({ "securityGroupSelectorTerms": terms }))).await;
        let mut found: Vec<String> =
            status.expect("an answer").security_groups.iter().map(|group| group.id.to_string()).collect();
        found.sort();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{terms}");
    }
}

/// Rows: AWS-172, AWS-296
#[tokio::test]
async fn aws_172_a_profile_that_is_named_is_used_and_iam_is_not_asked() {
    let cloud = Emulator::furnished().await;
    let furnished = cloud.every_call().await.len();
    let class = class(json!({ "role": null, "instanceProfile": "theirs" }));
    let provider = cloud.provider();
    let status = provider.resolve(class.clone()).await.expect("an answer");
    assert_eq!(failed(&status), Vec::<String>::new());
    assert_eq!(status.instance_profile.as_ref().map(|name| name.as_str()), Some("theirs"));
    provider.launch(LaunchOrder { class, ..order("a", &["m5.large a spot"]) }).await.expect("a machine");
    let template = cloud.calls("CreateLaunchTemplate").await.pop().expect("a template");
    let named = &template["parameters"]["LaunchTemplateData.IamInstanceProfile.Name"];
    assert_eq!(named, "theirs", "{template}");
    let is_about_roles = |call: &Value| {
        let action = call["action"].as_str().unwrap_or_default();
        action.contains("InstanceProfile") || action.contains("Role")
    };
    let asked = cloud.every_call().await.split_off(furnished);
    assert!(!asked.iter().any(is_about_roles), "{asked:?}");
}

/// Rows: AWS-149, AWS-152, AWS-282
#[tokio::test]
async fn a_class_says_what_is_wrong_with_it_and_buys_nothing() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let nowhere = json!([{ "tags": { "net": "nowhere" } }]);
    let bottlerocket =
        json!({ "amiSelectorTerms": [{ "alias": "bottlerocket@latest" }], "userData": "not toml" });
    let wrong: [(Value, &[&str]); 6] = [
        (json!({ "subnetSelectorTerms": nowhere }), &["SubnetsReady SubnetsNotFound"]),
        (json!({ "securityGroupSelectorTerms": nowhere }), &["SecurityGroupsReady SecurityGroupsNotFound"]),
        (bottlerocket, &["AMIsReady AMINotFound", "ValidationSucceeded InvalidUserData"]),
        (
            json!({ "amiSelectorTerms": [{ "alias": "al2@latest" }] }),
            &["AMIsReady UnsupportedAlias", "ValidationSucceeded Unsupported"],
        ),
        (json!({ "role": "nobody" }), &["InstanceProfileReady RoleNotFound"]),
        (json!({ "placementGroupSelector": { "name": "x" } }), &["ValidationSucceeded Unsupported"]),
    ];
    for (spec, expected) in wrong {
        let class = class(spec.clone());
        let status = provider.resolve(class.clone()).await.expect("an answer");
        assert_eq!(failed(&status), expected, "{spec}");
        let order = LaunchOrder { class, ..order("a", &["m5.large a spot"]) };
        let refused = provider.launch(order).await;
        assert!(matches!(refused, Err(LaunchFailure::ClassNotReady { .. })), "{spec}: {refused:?}");
    }
    assert!(cloud.machines().await.is_empty());
}

/// A repository is refused with such a class; one that was edited in the cluster buys nothing.
///
/// Rows: AWS-189, AWS-190, AWS-191, AWS-192, AWS-193, AWS-200
#[tokio::test]
async fn aws_189_a_kubelet_that_machines_would_not_get_is_no_valid_class() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let image = cloud.image("bottlerocket-x86_64", ArchitectureValues::X8664).await;
    let parameter = "/aws/service/bottlerocket/aws-k8s-1.34/x86_64/latest/image_id";
    cloud.control("parameters", json!({ parameter: image })).await;
    let own = cloud.image("mine", ArchitectureValues::X8664).await;
    let al2023 = json!({});
    let bottlerocket = json!({ "amiSelectorTerms": [{ "alias": "bottlerocket@latest" }] });
    let custom = json!({ "amiFamily": "Custom", "amiSelectorTerms": [{ "id": own }], "userData": "hello" });
    const INVALID: Option<&str> = Some("ValidationSucceeded InvalidKubeletConfiguration");
    const UNSUPPORTED: Option<&str> = Some("ValidationSucceeded UnsupportedKubeletConfiguration");
    const EXPRESSION: Option<&str> = Some("ValidationSucceeded KubeletExpressionsDisabled");
    for (family, kubelet, expected) in [
        (&al2023, json!({ "maxPods": "ten" }), EXPRESSION),
        (&al2023, json!({ "kubeReserved": { "cpu": "vcpus * 30" } }), EXPRESSION),
        (&custom, json!({ "systemReserved": { "memory": "100%" } }), EXPRESSION),
        (&al2023, json!({ "kubeReserved": { "cpu": "80m", "memory": "1Gi" } }), None),
        (&al2023, json!({ "maxPods": 5_000_000_000_i64 }), INVALID),
        (&al2023, json!({ "imageGCHighThresholdPercent": 50 }), INVALID),
        (&al2023, json!({ "imageGCLowThresholdPercent": 90 }), INVALID),
        (&al2023, json!({ "imageGCHighThresholdPercent": 90 }), None),
        (&al2023, json!({ "cpuManagerPolicy": "nope" }), INVALID),
        (&al2023, json!({ "cpuManagerPolicy": "" }), None),
        (&al2023, json!({ "evictionHard": { "memory.available": "0Mi" } }), INVALID),
        (&al2023, json!({ "evictionHard": { "memory.available": "0%" } }), None),
        (&al2023, json!({ "kubeAPIBurst": 5_000_000_000_i64 }), INVALID),
        (&al2023, json!({ "cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted" }), None),
        (&al2023, json!({ "registerNode": false }), INVALID),
        (&al2023, json!({ "clusterDNS": ["not-an-ip"] }), INVALID),
        (&al2023, json!({ "maxPods": -1 }), INVALID),
        (&al2023, json!({ "evictionHard": { "memory.available": "a lot" } }), INVALID),
        (&bottlerocket, json!({ "imageGCHighThresholdPercent": 101 }), INVALID),
        (&bottlerocket, json!({ "serializeImagePulls": false }), UNSUPPORTED),
        (&bottlerocket, json!({ "podsPerCore": 4 }), UNSUPPORTED),
        (&bottlerocket, json!({ "clusterDNS": ["10.0.0.10", "10.0.0.11"] }), UNSUPPORTED),
        (
            &bottlerocket,
            json!({ "clusterDNS": ["10.0.0.10"], "maxPods": 42, "kubeReserved": { "cpu": "100m" } }),
            None,
        ),
        (&al2023, json!({ "clusterDNS": ["10.0.0.10", "10.0.0.11"] }), None),
        (&al2023, json!({ "serializeImagePulls": false, "podsPerCore": 4 }), None),
        (&custom, json!({ "serializeImagePulls": false }), None),
    ] {
        let mut spec = family.clone();
        spec["kubelet"] = kubelet.clone();
        let class = class(spec);
        let status = provider.resolve(class.clone()).await.expect("an answer");
        let failed: Vec<String> =
            failed(&status).into_iter().filter(|word| word.starts_with("Validation")).collect();
        assert_eq!(failed.first().map(String::as_str), expected, "{family} {kubelet}");
        if expected.is_some() {
            let refused = provider.launch(LaunchOrder { class, ..order("a", &["m5.large a spot"]) }).await;
            assert!(matches!(refused, Err(LaunchFailure::ClassNotReady { .. })), "{kubelet}: {refused:?}");
        }
    }
}

#[tokio::test]
async fn aws_142_a_cloud_that_does_not_answer_is_no_verdict_on_the_class() {
    let cloud = Emulator::furnished().await;
    cloud.fail("DescribeImages", "UnauthorizedOperation", 403, 1).await;
    let error = cloud.provider().resolve(class(json!({}))).await.expect_err("no answer").to_string();
    assert!(error.contains("DescribeImages") && error.contains("UnauthorizedOperation"), "{error}");
}
