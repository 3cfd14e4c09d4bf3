//! What EC2 had none of, and until when it is not asked for again.
//!
//! The engine is told the same moment as is remembered here, and asks again as soon as that is over: a memory that lasts a little
//! longer would answer for EC2 then, without asking it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::model::name::{TypeName, Zone};
use crate::model::offering::CapacityType;

/// How long what EC2 has none of is not asked for again.
const SHORTAGE: SignedDuration = SignedDuration::from_mins(3);

pub(super) type OfferingKey = (TypeName, Zone, CapacityType);

#[derive(Debug, Default)]
pub(super) struct Shortages {
    sold_out: BTreeMap<OfferingKey, Timestamp>,
    /// No spot can be bought before.
    spot_closed: Option<Timestamp>,
}

impl Shortages {
    pub fn note(&mut self, offering: OfferingKey, now: Timestamp) {
        self.sold_out.retain(|_, until| now < *until);
        self.sold_out.insert(offering, now + SHORTAGE);
    }

    /// The account can buy no spot at all, of whatever type.
    pub fn close_spot(&mut self, now: Timestamp) {
        self.spot_closed = Some(now + SHORTAGE);
    }

    pub fn is_spot_closed(&self, now: Timestamp) -> bool {
        self.spot_closed.is_some_and(|until| now < until)
    }

    /// When an offering that is short at `now` may be asked for again.
    pub fn end(&self, offering: &OfferingKey, now: Timestamp) -> Option<Timestamp> {
        let closed = self.spot_closed.filter(|_| offering.2 == CapacityType::Spot);
        closed.max(self.sold_out.get(offering).copied()).filter(|until| now < *until)
    }

    /// When the last of `offerings` may be asked for again.
    pub fn last_end<'a>(
        &self,
        offerings: impl IntoIterator<Item = &'a OfferingKey>,
        now: Timestamp,
    ) -> Timestamp {
        offerings.into_iter().filter_map(|offering| self.end(offering, now)).max().unwrap_or(now)
    }
}
