//! Conditions of claims and pools as monitoring knows them under upstream's prefix `operator`: how each stands and since when, and how
//! long it stood otherwise before.

use jiff::Timestamp;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::page::{OPERATOR, Page, labels};
use super::state::{State, seconds};
use super::{Counts, Durations, Series, durations, register, text};
use crate::model::claim::NodeClaim;
use crate::model::condition::{ConditionKind, ConditionSet};
use crate::model::label;

/// What is counted when conditions of one kind of object change.
#[derive(Debug)]
pub(super) struct Changes {
    count: Counts,
    stood: Durations,
}

impl Changes {
    /// Of objects of `kind`, such as `nodeclaim`.
    pub fn of(registry: &mut Registry, kind: &str) -> Self {
        let name = |rest: &str| format!("{kind}_status_condition_{rest}");
        Self {
            count: register(
                registry,
                &name("transitions"),
                "Conditions that changed, by what they became",
                Counts::default(),
            ),
            stood: durations(
                registry,
                &name("transition_seconds"),
                "How long a condition had stood when it changed, by what it was",
                || Histogram::new(exponential_buckets(0.5, 2.0, 15)),
            ),
        }
    }

    /// An object's conditions were `former` and are `present`; a condition that is new has not changed.
    pub fn see<K: ConditionKind>(
        &self,
        former: &ConditionSet<K>,
        present: &ConditionSet<K>,
        own: &[(&'static str, String)],
    ) {
        for (kind, condition) in present.iter() {
            let Some(was) = former.get(kind).filter(|was| was.status != condition.status) else { continue };
            let series = |more: &[(&'static str, String)]| -> Series {
                [&[("type", kind.word().to_owned())], more, own].concat()
            };
            let became =
                [("status", condition.status.as_str().to_owned()), ("reason", condition.reason.to_string())];
            self.count.get_or_create(&series(&became)).inc();
            if let (Some(from), Some(to)) = (was.since, condition.since) {
                let was = [("status", was.status.as_str().to_owned())];
                self.stood.get_or_create(&series(&was)).observe(seconds(from, to));
            }
        }
    }
}

/// What tells the claims of one pool from those of another.
pub(super) fn claim_series(claim: &NodeClaim) -> Series {
    vec![
        ("karpenter_k8s_aws_ec2nodeclass", text(&claim.labels, *label::EC2_NODE_CLASS)),
        ("karpenter_sh_nodepool", text(&claim.labels, *label::NODEPOOL)),
    ]
}

/// How long a claim took to go, from when it was to.
pub(super) fn endings(registry: &mut Registry) -> Durations {
    durations(
        registry,
        "nodeclaim_termination_duration_seconds",
        "From when a NodeClaim was to go to when it was gone",
        || Histogram::new(exponential_buckets(0.5, 2.0, 15)),
    )
}

/// How all conditions stand, and which claims are on their way out.
pub(super) fn write(state: &State, now: Timestamp, page: &mut Page) {
    let claims = || state.claims.values().filter(|claim| state.owns(claim));
    let pools = || state.pools.values().filter(|pool| state.owns_pool(pool));
    let of_claims =
        claims().flat_map(|claim| stands(claim.name.0.as_str(), &claim.conditions, claim_series(claim)));
    write_conditions("nodeclaim", of_claims.collect(), now, page);
    let of_pools = pools().flat_map(|pool| stands(pool.name.0.as_str(), &pool.conditions, Vec::new()));
    write_conditions("nodepool", of_pools.collect(), now, page);
    let going = claims().filter_map(|claim| {
        let own = claim_series(claim);
        let own = own.iter().map(|(key, value)| (*key, value.as_str()));
        let name = [("namespace", ""), ("name", claim.name.0.as_str())];
        Some((labels(name.into_iter().chain(own)), seconds(claim.deleted?, now)))
    });
    let name = "nodeclaim_termination_current_time_seconds";
    page.gauges_of(OPERATOR, name, "How long a NodeClaim is on its way out", going);
}

/// The series of each condition of an object, and since when it stands so.
fn stands<K: ConditionKind>(
    name: &str,
    conditions: &ConditionSet<K>,
    own: Series,
) -> Vec<(String, Option<Timestamp>)> {
    let series = conditions.iter().map(|(kind, condition)| {
        let said = [
            ("namespace", ""),
            ("name", name),
            ("type", kind.word()),
            ("status", condition.status.as_str()),
            ("reason", condition.reason.as_str()),
        ];
        let own = own.iter().map(|(key, value)| (*key, value.as_str()));
        (labels(said.into_iter().chain(own)), condition.since)
    });
    series.collect()
}

fn write_conditions(kind: &str, stands: Vec<(String, Option<Timestamp>)>, now: Timestamp, page: &mut Page) {
    let name = |rest: &str| format!("{kind}_status_condition_{rest}");
    let counted = stands.iter().map(|(own, _)| (own.clone(), 1.0));
    page.gauges_of(OPERATOR, &name("count"), "A condition as it stands: its labels tell", counted);
    let ages = stands.iter().filter_map(|(own, since)| Some((own.clone(), seconds((*since)?, now))));
    let help = "How long a condition stands as it does";
    page.gauges_of(OPERATOR, &name("current_status_seconds"), help, ages);
}
