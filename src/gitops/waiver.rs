//! What may be broken for a while: waivers, from the same files as the rules, and whether one holds at a moment.
//!
//! A waiver never weakens the judge of its own commit: those of the commit in force count, not those that a proposal brings.
//! It holds for what its people saw: they approve breaches by their names, and as long as no other is there, all of them
//! are waived; with a new one among them, none is.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::tree::Node;
use crate::gitops::window::matches;

/// Digits of a breach's name.
const NAME_DIGITS: usize = 16;

/// What a rule says of its own waivers: none, unless it says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct WaiverPolicy {
    allowed: bool,
    max_days: Option<u32>,
    approvals: Option<u32>,
    author_may_approve: bool,
}

/// One `[[waiver]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiver {
    pub rule: String,
    text: WaiverText,
    from: Date,
    until: Date,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct WaiverText {
    rule: String,
    environments: Vec<String>,
    reason: String,
    from: String,
    until: String,
    author: String,
    approvers: Vec<String>,
    violations: Vec<String>,
}

/// A waiver that holds, as far as people are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waived {
    /// The last day of it.
    pub until: String,
    pub reason: String,
    /// Each person once, by name.
    pub approvers: Vec<String>,
}

impl WaiverPolicy {
    pub(crate) fn read(rule: &Node) -> Self {
        // What has another shape was told as a mistake already.
        let table = rule.get("waiver").map(Node::to_json);
        table.and_then(|table| serde_json::from_value(table).ok()).unwrap_or_default()
    }
}

impl Waiver {
    /// `None`: what is wrong with it is among the mistakes.
    pub(crate) fn read(node: &Node, found: &mut Vec<Diagnostic>) -> Option<Self> {
        let text: WaiverText = serde_json::from_value(node.to_json()).ok()?;
        let mut day = |key: &str, written: &str| {
            let day = written.parse::<Date>().ok();
            if day.is_none() {
                let place = node.get(key).map_or(&node.place, |node| &node.place).clone();
                let wrong = Diagnostic::error("PRV1807", place, format!("`{written}` is no day"));
                found.push(wrong.help("write it as `2026-03-14`"));
            }
            day
        };
        let (from, until) = (day("from", &text.from), day("until", &text.until));
        let (from, until) = (from?, until?);
        let place = node.get("rule")?.place.clone();
        Some(Self { rule: text.rule.clone(), from, until, place, text })
    }

    fn is_about(&self, rule: &str, environment: &str) -> bool {
        self.rule == rule && self.text.environments.iter().any(|glob| matches(glob, environment))
    }

    /// Why it does not hold for these breaches, if it does not.
    fn objection(&self, policy: &WaiverPolicy, breaches: &[&str], now: Timestamp) -> Option<String> {
        let today = now.to_zoned(TimeZone::UTC).date();
        let days = self.until.since(self.from).map_or(i64::MAX, |span| i64::from(span.get_days()) + 1);
        let (people, wanted) = (self.people(policy).len(), policy.approvals.unwrap_or(1));
        if !policy.allowed {
            return Some("its guardrail allows none".into());
        }
        if today > self.until {
            return Some(format!("it ended with {}", self.until));
        }
        if today < self.from {
            return Some(format!("it begins with {}", self.from));
        }
        if let Some(most) = policy.max_days.filter(|most| days > i64::from(*most)) {
            return Some(format!("it is for {days} days, and its guardrail allows {most}"));
        }
        if people < wanted as usize {
            let who = if policy.author_may_approve { "" } else { ", the author not counted" };
            return Some(format!("{people} approve it, and its guardrail asks for {wanted}{who}"));
        }
        let strangers =
            breaches.iter().filter(|name| !self.text.violations.iter().any(|known| known == *name));
        let strangers: Vec<&str> = strangers.copied().collect();
        (!strangers.is_empty()).then(|| format!("nobody has approved {}", strangers.join(", ")))
    }

    /// Who approves it, each person once however the name is written.
    fn people(&self, policy: &WaiverPolicy) -> BTreeSet<String> {
        let plain = |name: &str| name.trim().trim_start_matches('@').to_lowercase();
        let author = plain(&self.text.author);
        let names = self.text.approvers.iter().map(|name| plain(name));
        names.filter(|name| !name.is_empty() && (policy.author_may_approve || *name != author)).collect()
    }

    fn told(&self, policy: &WaiverPolicy) -> Waived {
        Waived {
            until: self.until.to_string(),
            reason: self.text.reason.clone(),
            approvers: self.people(policy).into_iter().collect(),
        }
    }
}

/// Whether one of `waivers` holds for all breaches of a rule in an environment; else each one that is about it, and why not.
pub(crate) fn judge_waivers(
    waivers: &[Waiver],
    rule: &str,
    policy: &WaiverPolicy,
    environment: &str,
    breaches: &[&str],
    now: Option<Timestamp>,
) -> Result<Waived, Vec<(Place, String)>> {
    let mut objections = Vec::new();
    for waiver in waivers.iter().filter(|waiver| waiver.is_about(rule, environment)) {
        let objection = match now {
            Some(now) => waiver.objection(policy, breaches, now),
            None => Some("nobody says what day it is".into()),
        };
        match objection {
            None => return Ok(waiver.told(policy)),
            Some(why) => objections.push((waiver.place.clone(), why)),
        }
    }
    Err(objections)
}

/// The name of a breach, by which people approve it: the same as long as rule, environment, subject and words are.
pub(crate) fn breach_name(rule: &str, environment: &str, subject: &str, why: &str) -> Arc<str> {
    let mut hash = Sha256::new();
    for part in [rule, environment, subject, why] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    digits[..NAME_DIGITS].into()
}
