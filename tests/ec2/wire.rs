//! The emulator itself: what it adds to moto must be what EC2 does, or the tests beside this one prove nothing.

use aws_sdk_ec2::error::ProvideErrorMetadata;
use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetFluentBuilder;
use aws_sdk_ec2::types::{
    ArchitectureValues, DefaultTargetCapacityType, FleetLaunchTemplateConfigRequest,
    FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest, FleetType,
    InstanceStateName, InstanceType, RequestLaunchTemplateData, TargetCapacitySpecificationRequest,
};
use serde_json::json;

use super::emulator::{Emulator, REGION};

async fn furnish(cloud: &Emulator) {
    let image = cloud.image("any", ArchitectureValues::X8664).await;
    let data = RequestLaunchTemplateData::builder().image_id(image).build();
    cloud
        .ec2
        .create_launch_template()
        .launch_template_name("template")
        .launch_template_data(data)
        .send()
        .await
        .expect("a template");
}

fn fleet(cloud: &Emulator, token: &str, types: &[&str]) -> CreateFleetFluentBuilder {
    let overrides = types.iter().enumerate().map(|(at, name)| {
        FleetLaunchTemplateOverridesRequest::builder()
            .instance_type(InstanceType::from(*name))
            .availability_zone(format!("{REGION}a"))
            .priority(1.0 + at as f64)
            .build()
    });
    let template = FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name("template")
        .version("$Latest")
        .build();
    let config = FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template)
        .set_overrides(Some(overrides.collect()))
        .build();
    let target = TargetCapacitySpecificationRequest::builder()
        .default_target_capacity_type(DefaultTargetCapacityType::Spot)
        .total_target_capacity(1);
    cloud
        .ec2
        .create_fleet()
        .client_token(token)
        .r#type(FleetType::Instant)
        .launch_template_configs(config)
        .target_capacity_specification(target.build())
}

#[tokio::test]
async fn an_order_is_carried_out_once_and_says_what_was_sold_out() {
    let cloud = Emulator::start().await;
    furnish(&cloud).await;
    cloud.has_no(&[("m5.large", "*", "spot")]).await;
    let order = fleet(&cloud, "one", &["m5.large", "m5.xlarge"]);
    let answer = order.clone().send().await.expect("an answer");
    let sold = answer.instances().first().expect("one was sold");
    assert_eq!(sold.instance_type().map(InstanceType::as_str), Some("m5.xlarge"));
    assert_eq!(
        answer.errors().first().and_then(|error| error.error_code()),
        Some("InsufficientInstanceCapacity")
    );
    let again = order.send().await.expect("an answer");
    assert_eq!(again.instances().first().map(|sold| sold.instance_ids()), Some(sold.instance_ids()));
    assert_eq!(cloud.machines().await.len(), 1);
    let other = fleet(&cloud, "one", &["m5.xlarge"]).send().await.expect_err("another order");
    assert_eq!(other.code(), Some("IdempotentParameterMismatch"));
    let none = fleet(&cloud, "two", &["m5.large"]).send().await.expect("an answer");
    assert!(none.instances().is_empty() && none.errors().len() == 1);
    let unknown = fleet(&cloud, "three", &["m5.unheard-of"]).send().await.expect("an answer");
    assert_eq!(unknown.errors().first().and_then(|error| error.error_code()), Some("InvalidParameterValue"));
}

#[tokio::test]
async fn machines_take_their_time_and_calls_fail_when_told_to() {
    let cloud = Emulator::start().await;
    furnish(&cloud).await;
    cloud.control("delays", json!({ "running": 0.3, "terminated": 0.3, "visible": 0.3 })).await;
    let answer = fleet(&cloud, "one", &["m5.large"]).send().await.expect("an answer");
    let id = answer.instances()[0].instance_ids()[0].clone();
    assert!(
        cloud.ec2.describe_instances().send().await.expect("an answer").reservations().is_empty(),
        "not yet"
    );
    let until = async |wanted: InstanceStateName| {
        for _ in 0..100 {
            let answer = cloud.ec2.describe_instances().send().await.expect("an answer");
            let state = answer
                .reservations()
                .first()
                .and_then(|found| found.instances().first()?.state()?.name().cloned());
            if state == Some(wanted.clone()) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("{wanted:?} never came");
    };
    until(InstanceStateName::Running).await;
    cloud.ec2.terminate_instances().instance_ids(&id).send().await.expect("told");
    until(InstanceStateName::ShuttingDown).await;
    until(InstanceStateName::Terminated).await;
    let again = cloud.ec2.terminate_instances().instance_ids(&id).send().await.expect("told again");
    let told = again.terminating_instances()[0].current_state().and_then(|state| state.name());
    assert_eq!(told, Some(&InstanceStateName::Terminated), "it is no less gone for that");
    until(InstanceStateName::Terminated).await;
    cloud.fail("DescribeSubnets", "UnauthorizedOperation", 403, 1).await;
    let refused = cloud.ec2.describe_subnets().send().await.expect_err("once");
    assert_eq!(refused.code(), Some("UnauthorizedOperation"));
    cloud.ec2.describe_subnets().send().await.expect("only once");
}
