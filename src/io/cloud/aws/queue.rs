//! Notices about machines from an SQS queue that EventBridge fills (aws.md 5.1).
//!
//! A message is deleted when its consequences are written, or when it has none: what nobody understands would come back for
//! ever. Until then it stays, and is told again.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use futures_util::future::join_all;

use super::super::{CloudError, Notices, Receipt, Received};
use super::Shared;
use crate::api::ec2::event::{self, Meaning, Message, NotForUs};
use crate::model::name::ProviderId;
use crate::model::visible::{shortened, visible_line};

const MESSAGES_MAX: i32 = 10;
const POLL_SECONDS: i32 = 20;
/// How long a message is ours alone.
const VISIBILITY_SECONDS: i32 = 20;
/// Of a foreign message, as much as fits a line.
const SHOWN_CHARS_MAX: usize = 160;

/// What a message says, and how it is deleted. What is not for us is told in one line.
fn read(message: &aws_sdk_sqs::types::Message) -> Option<(Receipt, Result<Message, NotForUs>)> {
    let receipt = Receipt(message.receipt_handle()?.to_owned());
    let body = message.body().unwrap_or_default();
    let parsed = event::parse(body);
    if let Err(why) = &parsed {
        let why = in_a_line(&why.to_string());
        tracing::warn!(why, body = in_a_line(body), "A message in the queue was dropped.");
    }
    Some((receipt, parsed))
}

/// Whoever may send messages does not write the log: no line ends, and no more than fits.
fn in_a_line(text: &str) -> String {
    visible_line(&shortened(text, SHOWN_CHARS_MAX)).into_owned()
}

/// To whom a machine belongs that a message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Ours(ProviderId),
    Others,
    /// EC2 gave no answer.
    Unknown,
}

impl Shared {
    pub(super) async fn notices(&self) -> Result<Notices, CloudError> {
        let Some(queue) = &self.settings.queue else {
            return std::future::pending().await;
        };
        let url = self.queue_url(queue).await?;
        let answer = self
            .sqs
            .receive_message()
            .queue_url(&url)
            .max_number_of_messages(MESSAGES_MAX)
            .wait_time_seconds(POLL_SECONDS)
            .visibility_timeout(VISIBILITY_SECONDS)
            .send()
            .await
            .map_err(|error| self.queue_failed("ReceiveMessage", &error))?;
        let received: Vec<(Receipt, Result<Message, NotForUs>)> =
            answer.messages().iter().filter_map(read).collect();
        let whose = self.whose(&received).await;
        let mut told = Notices::default();
        let mut dropped = Vec::new();
        for (receipt, message) in received {
            let before = told.notices.len();
            let mut is_clear = true;
            if let Ok(message) = &message {
                told.received.push(Received { kind: message.kind(), sent: message.sent });
            }
            if let Ok(Message { meaning: Meaning::Notice { instances, notice, .. }, .. }) = message {
                let looked_up: Vec<&Whose> = instances.iter().filter_map(|one| whose.get(one)).collect();
                is_clear = !looked_up.contains(&&Whose::Unknown);
                told.notices.extend(looked_up.into_iter().filter_map(|whose| match whose {
                    Whose::Ours(id) => Some((*id, notice)),
                    Whose::Others | Whose::Unknown => None,
                }));
            }
            match told.notices.len() > before {
                // Told again until nothing about it is unclear.
                _ if !is_clear => {}
                true => told.receipts.push(receipt),
                false => dropped.push(receipt),
            }
        }
        told.dropped = dropped.len();
        // What is worth nothing does not stand in the way of what is.
        if let Err(error) = self.acknowledge(dropped).await {
            tracing::warn!("messages that come to nothing will be told again: {error}");
            told.dropped = 0;
        }
        Ok(told)
    }

    /// Whose the machines of `received` are. They are looked up together, so that a storm of warnings is one call.
    async fn whose(&self, received: &[(Receipt, Result<Message, NotForUs>)]) -> BTreeMap<String, Whose> {
        let named: BTreeSet<&String> = received
            .iter()
            .filter_map(|(_, message)| match message {
                Ok(Message { meaning: Meaning::Notice { instances, .. }, .. }) => Some(instances),
                _ => None,
            })
            .flatten()
            .collect();
        let found = named.into_iter().map(async |instance| {
            let whose = match self.provider_id(instance).await {
                Ok(Some(id)) => Whose::Ours(id),
                Ok(None) => {
                    tracing::debug!(instance, "A notice is about a machine that is not ours.");
                    Whose::Others
                }
                Err(error) => {
                    tracing::warn!(instance, "A notice will be told again: {error}");
                    Whose::Unknown
                }
            };
            (instance.clone(), whose)
        });
        join_all(found).await.into_iter().collect()
    }

    pub(super) async fn acknowledge(&self, receipts: Vec<Receipt>) -> Result<(), CloudError> {
        const CALL: &str = "DeleteMessageBatch";
        let Some(queue) = self.settings.queue.as_ref().filter(|_| !receipts.is_empty()) else {
            return Ok(());
        };
        let url = self.queue_url(queue).await?;
        for chunk in receipts.chunks(MESSAGES_MAX as usize) {
            let mut call = self.sqs.delete_message_batch().queue_url(&url);
            for (at, Receipt(handle)) in chunk.iter().enumerate() {
                let entry =
                    DeleteMessageBatchRequestEntry::builder().id(at.to_string()).receipt_handle(handle);
                call = call.entries(entry.build().map_err(|error| self.queue_failed(CALL, &error))?);
            }
            let answer = call.send().await.map_err(|error| self.queue_failed(CALL, &error))?;
            if let Some(failed) = answer.failed().first() {
                let message = format!("{}: {}", failed.code(), failed.message().unwrap_or_default());
                return Err(CloudError::Failed { call: CALL, region: self.settings.region.clone(), message });
            }
        }
        Ok(())
    }

    /// Asked for once; a queue that is not there is asked for again.
    async fn queue_url(&self, name: &str) -> Result<String, CloudError> {
        let known = self.memory().queue_url.clone();
        if let Some(url) = known {
            return Ok(url);
        }
        let answer = self
            .sqs
            .get_queue_url()
            .queue_name(name)
            .send()
            .await
            .map_err(|error| self.queue_failed("GetQueueUrl", &error))?;
        let url = answer.queue_url().unwrap_or_default().to_owned();
        self.memory().queue_url = Some(url.clone());
        Ok(url)
    }

    fn queue_failed(&self, call: &'static str, error: &(dyn std::error::Error + 'static)) -> CloudError {
        let message = aws_sdk_sqs::error::DisplayErrorContext(error).to_string();
        CloudError::Failed { call, region: self.settings.region.clone(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_makes_us_say_fits_a_line() {
        let forged = r#"{"version": "0", "id": "x", "detail-type": "x\n2026-11-28T00:00:00Z  INFO provisor: forged", "source": "aws.ec2",
            "time": "2026-01-02T03:04:05Z", "detail": {}}"#;
        for body in
            [forged.to_owned(), forged.replace("forged", &"x".repeat(60_000)), "\u{1b}[2J\r\nnot json".into()]
        {
            let why = event::parse(&body).expect_err(&body).to_string();
            for said in [in_a_line(&why), in_a_line(&body)] {
                assert!(!said.chars().any(char::is_control), "{said}");
                assert!(said.chars().count() < 2 * SHOWN_CHARS_MAX, "{said}");
            }
        }
    }
}
