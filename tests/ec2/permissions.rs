//! Nothing is called that the shipped policies do not allow.

use std::collections::BTreeSet;

use provisor::api::ec2::permission;
use provisor::io::cloud::CloudProvider;
use provisor::model::name::{ClaimName, NodeName};
use serde_json::json;

use super::emulator::{Emulator, QUEUE, class, order};

#[tokio::test]
async fn a_life_needs_no_more_than_the_policies_allow() {
    let cloud = Emulator::furnished().await;
    cloud.sqs.create_queue().queue_name(QUEUE).send().await.expect("a queue");
    let url = cloud.sqs.get_queue_url().queue_name(QUEUE).send().await.expect("its address");
    let url = url.queue_url().expect("an address").to_owned();
    cloud.sqs.send_message().queue_url(&url).message_body("not for us").send().await.expect("sent");
    let before = cloud.every_call().await.len();
    let provider = cloud.provider();
    provider.catalog().await.expect("what EC2 sells");
    provider.resolve(class(json!({}))).await.expect("an answer");
    let instance = provider.launch(order("a", &["m5.large a spot"])).await.expect("a machine").instance;
    provider.instances().await.expect("a list");
    let node = NodeName::new("ip-10-0-0-1");
    provider.name(instance.provider_id, node, ClaimName::new("a")).await.expect("named");
    provider.terminate(instance.provider_id).await.expect("told");
    provider.notices().await.expect("nothing");
    provider.delete_idle_templates(jiff::SignedDuration::ZERO).await.expect("looked");
    provider.clear(class(json!({})), true).await.expect("cleared away");
    let allowed = permission::actions();
    let mut made = BTreeSet::new();
    for call in cloud.every_call().await.split_off(before) {
        let action = call["action"].as_str().expect("a word").trim_end_matches("Batch").to_owned();
        let action = format!("{}:{action}", call["service"].as_str().expect("a word"));
        assert!(allowed.contains(action.as_str()), "{action} is not allowed");
        made.insert(action);
    }
    assert!(made.len() >= 18, "{made:?}");
}
