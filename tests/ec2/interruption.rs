//! Notices come over the real queue, are told until they are acknowledged, and what is not for us is dropped.

use std::sync::Arc;

use provisor::io::cloud::{CloudProvider, Notices};
use provisor::model::observation::InterruptionNotice;
use provisor::ui::metrics::{Metered, Metrics};

use super::emulator::{Emulator, QUEUE, order};

fn spot_warning(instance: &str) -> String {
    format!(
        r#"{{"version": "0", "id": "1", "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2",
            "account": "123456789012", "time": "2026-03-05T17:20:00Z", "region": "us-east-1", "resources": [],
            "detail": {{"instance-id": "{instance}", "instance-action": "terminate"}}}}"#
    )
}

/// Messages in the queue, whether somebody has them in hand or not.
pub async fn left(cloud: &Emulator, url: &str) -> i32 {
    use aws_sdk_sqs::types::QueueAttributeName::{
        ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible,
    };
    let answer = cloud
        .sqs
        .get_queue_attributes()
        .queue_url(url)
        .attribute_names(ApproximateNumberOfMessages)
        .attribute_names(ApproximateNumberOfMessagesNotVisible)
        .send()
        .await
        .expect("attributes");
    let counts = answer.attributes().expect("two of them");
    [ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible]
        .iter()
        .map(|name| counts.get(name).and_then(|count| count.parse::<i32>().ok()).expect("a number"))
        .sum()
}

/// Rows: AWS-478
#[tokio::test]
async fn a_warning_is_told_until_it_is_acknowledged_and_the_rest_is_dropped() {
    let cloud = Emulator::furnished().await;
    let made = cloud.sqs.create_queue().queue_name(QUEUE).send().await.expect("a queue");
    let url = made.queue_url().expect("an address").to_owned();
    let instance =
        cloud.provider().launch(order("a", &["m5.large a spot"])).await.expect("a machine").instance;
    // A new process, which has not seen the machine.
    let metrics = Metrics::new();
    let provider = Metered::new(Arc::new(cloud.provider()), "aws", metrics.clone());
    let id = instance.provider_id.instance();
    for body in [spot_warning(id), spot_warning("i-0123456789abcdef0"), "not json".into(), "{}".into()] {
        cloud.sqs.send_message().queue_url(&url).message_body(body).send().await.expect("sent");
    }
    assert_eq!(left(&cloud, &url).await, 4);
    let mut told = Notices::default();
    while told.notices.is_empty() || left(&cloud, &url).await > 1 {
        let more = provider.notices().await.expect("notices");
        told.notices.extend(more.notices);
        told.receipts.extend(more.receipts);
    }
    let at = "2026-03-05T17:22:00Z".parse().expect("a time");
    assert_eq!(told.notices, [(instance.provider_id, InterruptionNotice::SpotReclaim { at })]);
    assert_eq!(left(&cloud, &url).await, 1, "the warning stays until its consequences are written");
    provider.acknowledge(told.receipts).await.expect("forgotten");
    assert_eq!(left(&cloud, &url).await, 0);
    let text = metrics.text(jiff::Timestamp::now());
    for line in [
        "received_messages_total{message_type=\"spot_interrupted\"} 2",
        "deleted_messages_total 4",
        "message_queue_duration_seconds_count 2",
    ] {
        assert!(text.contains(&format!("\nkarpenter_interruption_{line}\n")), "no {line} in\n{text}");
    }
}

#[tokio::test]
async fn what_cannot_be_deleted_or_looked_up_hides_no_warning() {
    let cloud = Emulator::furnished().await;
    let made = cloud.sqs.create_queue().queue_name(QUEUE).send().await.expect("a queue");
    let url = made.queue_url().expect("an address").to_owned();
    let buyer = cloud.provider();
    let known = buyer.launch(order("a", &["m5.large a spot"])).await.expect("a machine").instance.provider_id;
    let send = async |body: String| {
        cloud.sqs.send_message().queue_url(&url).message_body(body).send().await.expect("sent");
    };
    // Who does not know the machine has to ask EC2, which refuses.
    let stranger = cloud.provider();
    cloud.fail("DescribeInstances", "UnauthorizedOperation", 403, 1).await;
    send(spot_warning(known.instance())).await;
    let told = stranger.notices().await.expect("nothing");
    assert_eq!((told.notices.len(), told.receipts.len(), told.dropped), (0, 0, 0), "it comes again");
    assert_eq!(left(&cloud, &url).await, 1, "nobody deleted it");

    cloud.fail("DeleteMessageBatch", "AccessDenied", 403, 99).await;
    send("not json".into()).await;
    send(spot_warning(known.instance())).await;
    // Messages may come one by one.
    let mut told = buyer.notices().await.expect("notices");
    while told.notices.is_empty() {
        told = buyer.notices().await.expect("notices, whatever became of the other message");
    }
    assert_eq!((told.notices[0].0, told.dropped), (known, 0));
    assert_eq!(left(&cloud, &url).await, 3);
}

#[tokio::test]
async fn aws_482_a_queue_that_is_not_there_is_an_error() {
    let cloud = Emulator::start().await;
    let error = cloud.provider().notices().await.expect_err("there is no queue").to_string();
    assert!(error.contains("GetQueueUrl") && error.contains("us-east-1"), "{error}");
}
