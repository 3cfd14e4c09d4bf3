//! What the interruption queue told.

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::state::seconds;
use super::{Counts, moments, register};
use crate::io::cloud::Notices;

#[derive(Debug)]
pub(super) struct Messages {
    received: Counts,
    deleted: Counter,
    seconds: Histogram,
}

impl Messages {
    pub fn of(registry: &mut Registry) -> Self {
        Self {
            received: register(
                registry,
                "interruption_received_messages",
                "Messages about machines that the queue told and that were understood",
                Counts::default(),
            ),
            deleted: register(
                registry,
                "interruption_deleted_messages",
                "Messages that were deleted from the queue",
                Counter::default(),
            ),
            seconds: register(
                registry,
                "interruption_message_queue_duration_seconds",
                "From when a message was sent to when it was read",
                moments(),
            ),
        }
    }

    /// The queue told this at `now`.
    pub fn heard(&self, now: Timestamp, told: &Notices) {
        for message in &told.received {
            let series = vec![("message_type", message.kind.to_owned())];
            self.received.get_or_create(&series).inc();
            self.seconds.observe(seconds(message.sent, now));
        }
        self.forgot(told.dropped);
    }

    /// So many messages were deleted from the queue.
    pub fn forgot(&self, messages: usize) {
        self.deleted.inc_by(u64::try_from(messages).unwrap_or(u64::MAX));
    }
}
