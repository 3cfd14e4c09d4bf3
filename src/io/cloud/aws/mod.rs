//! Amazon EC2 over its SDK. Credentials, endpoints and retries are configured as for every AWS tool.

mod catalog;

pub use catalog::describe_catalog;

use aws_config::{BehaviorVersion, Region};

async fn client(region: &str) -> aws_sdk_ec2::Client {
    let config =
        aws_config::defaults(BehaviorVersion::latest()).region(Region::new(region.to_owned())).load().await;
    aws_sdk_ec2::Client::new(&config)
}
