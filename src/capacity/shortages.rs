//! What was sold out when it was last asked for: left alone for a while, so that the next launch tries something else.
//!
//! Pods that wait ask again as soon as that is over. Who only wants to save money has time: each time that an offering was asked for
//! once more and was sold out again, savings wait twice as long for it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::scheduling::OfferingKey;

/// So much longer than pods savings wait for an offering that was sold out once, and at the most.
const DOUBT: (SignedDuration, SignedDuration) = (SignedDuration::from_mins(3), SignedDuration::from_hours(1));

/// Offerings that had no room when they were last asked for, and until when they are left alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shortages {
    sold_out: BTreeMap<OfferingKey, Timestamp>,
    doubts: BTreeMap<OfferingKey, Doubt>,
}

/// Whether a saving may rely on an offering.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    until: Timestamp,
    /// How much longer than pods savings waited this time.
    wait: SignedDuration,
}

impl Shortages {
    pub fn note(&mut self, offering: OfferingKey, until: Timestamp) {
        let end = self.sold_out.entry(offering).or_insert(until);
        *end = (*end).max(until);
        let (least, most) = DOUBT;
        let first = Doubt { until: until + least, wait: least };
        let doubt = self.doubts.entry(offering).or_insert(first);
        // Others that were told meanwhile are the same shortage, and one after a long time without is another one.
        if until > doubt.until {
            let is_another = until.duration_since(doubt.until) > most;
            let wait = if is_another { least } else { (doubt.wait * 2).min(most) };
            *doubt = Doubt { until: until + wait, wait };
        }
    }

    /// It was to be had.
    pub fn was_bought(&mut self, offering: &OfferingKey) {
        self.doubts.remove(offering);
    }

    /// Forgets what is over at `now`; tells whether there was any.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let before = self.sold_out.len();
        self.sold_out.retain(|_, until| now < *until);
        self.sold_out.len() < before
    }

    pub fn offerings(&self) -> BTreeSet<OfferingKey> {
        self.sold_out.keys().copied().collect()
    }

    /// What no saving relies on at `now`, and until when.
    pub fn doubted(&self, now: Timestamp) -> BTreeMap<OfferingKey, Timestamp> {
        let doubted = self.doubts.iter().filter(|(_, doubt)| now < doubt.until);
        doubted.map(|(offering, doubt)| (*offering, doubt.until)).collect()
    }

    /// When the next one is over.
    pub fn next_end(&self) -> Option<Timestamp> {
        self.sold_out.values().min().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.sold_out.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::name::{TypeName, Zone};
    use crate::model::offering::CapacityType;

    fn minute(count: i64) -> Timestamp {
        Timestamp::from_second(1_772_620_200 + 60 * count).unwrap()
    }

    /// Notes that it was sold out at each of these minutes, as EC2's answers are remembered; when the doubt ends.
    fn doubted_until(asked: &[i64]) -> i64 {
        let offering = (TypeName::new("m7i.large"), Zone::new("a"), CapacityType::Spot);
        let mut shortages = Shortages::default();
        asked.iter().for_each(|at| shortages.note(offering, minute(at + 3)));
        let until = shortages.doubted(minute(0))[&offering];
        assert!(shortages.doubted(until).is_empty());
        until.duration_since(minute(0)).as_secs() / 60
    }

    #[test]
    fn savings_wait_twice_as_long_each_time() {
        assert_eq!(doubted_until(&[0]), 6);
        assert_eq!(doubted_until(&[0, 0, 1]), 6, "several that ask at once learn the same");
        assert_eq!(doubted_until(&[0, 6]), 6 + 3 + 6);
        assert_eq!(doubted_until(&[0, 6, 15]), 15 + 3 + 12);
        assert_eq!(doubted_until(&[0, 6, 15, 30, 57, 108, 171]), 171 + 3 + 60, "an hour at the most");
        assert_eq!(doubted_until(&[0, 6, 90]), 90 + 6, "after a long time it is another shortage");
    }
}
