//! What should happen and does not: told when it is new, and again when the reason is another one.
//!
//! A pass over all nodes finds it, so that nothing here is looked at more often than that.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::capacity::decision::{Planned, Reason, Stay};
use crate::capacity::disruption::DisruptionPlan;
use crate::model::action::{Action, Notice, Subject};
use crate::model::name::{NodeName, PoolName};
use crate::model::pool::DisruptionReason;

/// What is no longer held after a pass and is so again within this time is no news. What stays true is published again as
/// often, because events at objects do not live long.
const REMEMBER: SignedDuration = SignedDuration::from_mins(15);

#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    nodes: BTreeMap<NodeName, (Why, Timestamp)>,
    pools: BTreeMap<(PoolName, DisruptionReason), Known>,
    /// Not handed out yet.
    news: Vec<Stay>,
    notices: Vec<Planned>,
}

/// Why a node should go, and what keeps it.
type Why = (DisruptionReason, &'static str);

#[derive(Clone, Copy, Debug)]
struct Known {
    published: Timestamp,
    seen: Timestamp,
}

impl Held {
    /// Takes in what a pass at `now` found. It asked every method.
    pub fn learn(&mut self, plan: &DisruptionPlan, now: Timestamp) {
        let is_remembered = |seen: Timestamp| now.duration_since(seen) < REMEMBER;
        for (pool, reason) in plan.blocked.iter().copied() {
            let known = self.pools.get_mut(&(pool, reason)).filter(|known| is_remembered(known.seen));
            let message = format!(
                "No allowed disruptions for disruption reason {} due to blocking budget",
                reason.as_str()
            );
            let (is_new, is_due) = match known {
                None => {
                    self.pools.insert((pool, reason), Known { published: now, seen: now });
                    (true, true)
                }
                Some(known) => {
                    let is_due = now.duration_since(known.published) >= REMEMBER;
                    known.published = if is_due { now } else { known.published };
                    known.seen = now;
                    (false, is_due)
                }
            };
            let subject = Subject::Pool(pool);
            if is_due {
                let notice = Notice {
                    subject,
                    is_warning: false,
                    reason: "DisruptionBlocked".into(),
                    message: message.as_str().into(),
                };
                self.notices.push(Planned::new(
                    Action::Publish(notice),
                    "DisruptionBlocked",
                    message.as_str(),
                ));
            }
            if is_new {
                self.news.push(Stay { subject, reason: Reason::new("DisruptionBlocked", message) });
            }
        }
        for kept in &plan.kept {
            let Some(reason) = kept.held_for else { continue };
            let why = (reason, kept.code);
            let known = self.nodes.insert(kept.node, (why, now));
            if known.is_none_or(|(known, seen)| known != why || !is_remembered(seen)) {
                let reason = Reason::new(kept.code, kept.message.as_str());
                self.news.push(Stay { subject: Subject::Node(kept.node), reason });
            }
        }
        self.pools.retain(|_, known| is_remembered(known.seen));
        self.nodes.retain(|_, (_, seen)| is_remembered(*seen));
    }

    /// What is new since this was last asked, and what is to be published of it.
    pub fn take_news(&mut self) -> (Vec<Stay>, Vec<Planned>) {
        (std::mem::take(&mut self.news), std::mem::take(&mut self.notices))
    }
}
