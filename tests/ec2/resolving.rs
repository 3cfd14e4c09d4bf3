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

#[tokio::test]
async fn aws_142_a_cloud_that_does_not_answer_is_no_verdict_on_the_class() {
    let cloud = Emulator::furnished().await;
    cloud.fail("DescribeImages", "UnauthorizedOperation", 403, 1).await;
    let error = cloud.provider().resolve(class(json!({}))).await.expect_err("no answer").to_string();
    assert!(error.contains("DescribeImages") && error.contains("UnauthorizedOperation"), "{error}");
}
