//! What guardrails say of one environment: each breach once, those that only a review can find included.
//!
//! A rule about `review` sees the numbers of the comparison. Where nothing was played there are none, and a rule that needs
//! one cannot be judged: if it denies, it denies.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::impact::{Wanted, origin_review};
use super::report::{Change, EnvironmentReview, PolicyReview, WaivedReview};
use crate::gitops::diagnostic::Diagnostic;
use crate::gitops::guardrail::{Breach, Guardrails};

/// The rules of the base, which are in force, and those that the proposal brings.
pub struct Rules {
    pub standing: Guardrails,
    pub proposed: Guardrails,
}

/// Everything that the rules have against what `review` speaks of.
pub fn policies(
    review: &EnvironmentReview,
    base: Option<&Wanted>,
    head: Option<&Wanted>,
    rules: &Rules,
    now: Timestamp,
) -> Vec<PolicyReview> {
    let Some(head) = head else { return Vec::new() };
    let known = |breach: &Breach| {
        let before = base.into_iter().flat_map(|side| &side.breaches);
        before.into_iter().any(|old| {
            old.rule == breach.rule
                && old.why == breach.why
                && old.diagnostic.place.file() == breach.diagnostic.place.file()
        })
    };
    let mut found: Vec<PolicyReview> =
        head.breaches.iter().map(|breach| policy(breach, !known(breach))).collect();
    if review.change != Change::Unchanged {
        let numbers = numbers(review);
        let standing = Some(&rules.standing);
        let breaches = rules.proposed.judge_review(standing, &head.subject, &numbers, &head.place, Some(now));
        found.extend(breaches.iter().map(|breach| policy(breach, true)));
    }
    // Denials first; a rule that the base has in another form may say the same twice.
    found.sort_by(|a, b| {
        let order = |one: &PolicyReview| (one.severity != "deny", one.id.clone(), one.message.clone());
        order(a).cmp(&order(b))
    });
    found.dedup_by(|b, a| (&a.id, &a.severity, &a.message) == (&b.id, &b.severity, &b.message));
    found
}

fn policy(breach: &Breach, is_new: bool) -> PolicyReview {
    let Diagnostic { place, chain, .. } = &breach.diagnostic;
    PolicyReview {
        id: breach.rule.to_string(),
        severity: if breach.denies { "deny" } else { "warn" }.into(),
        message: breach.why.clone(),
        violation: breach.name.to_string(),
        waived: breach.waived.as_ref().map(|waived| WaivedReview {
            until: waived.until.clone(),
            reason: waived.reason.clone(),
            approvers: waived.approvers.clone(),
        }),
        origin: Some(origin_review(&place.origin())),
        rule: chain.first().map(|link| origin_review(&link.place.origin())),
        is_new,
    }
}

/// What rules see as `review`; what is not known is not there.
fn numbers(review: &EnvironmentReview) -> Value {
    let mut numbers = Map::new();
    // A decimal of ours is a number of JSON as it is.
    let dollars = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    if let Some(cost) = review.cost.as_ref().filter(|cost| cost.unpriced.is_empty()) {
        numbers.insert("costBefore".into(), dollars(&cost.before));
        numbers.insert("costAfter".into(), dollars(&cost.after));
        numbers.insert("costIncrease".into(), dollars(&cost.delta));
    }
    if let Some(nodes) = &review.nodes {
        numbers.insert("nodesBefore".into(), json!(nodes.before));
        numbers.insert("nodesAfter".into(), json!(nodes.after));
        numbers.insert("nodesReplaced".into(), json!(review.nodes_replaced()));
    }
    if let Some(pods) = &review.pods {
        numbers.insert("podsMoved".into(), json!(pods.moved));
        numbers.insert("podsWithoutPlace".into(), json!(pods.new_unschedulable.len()));
        numbers.insert("podsOnFallback".into(), json!(pods.fallback_only.len()));
    }
    if let Some(choice) = &review.choice {
        numbers.insert("offeringsBefore".into(), json!(choice.offerings.before));
        numbers.insert("offeringsAfter".into(), json!(choice.offerings.after));
        numbers.insert("largestShare".into(), dollars(&choice.largest_share.after));
    }
    Value::Object(numbers)
}
