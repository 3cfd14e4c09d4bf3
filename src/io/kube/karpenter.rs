//! Whether a Karpenter acts in the cluster: it holds a Lease as long as it does, and renews it every two seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use serde_json::Value;
use tokio::time::Instant;

use super::{Kube, KubeError, Resource};

/// The name of its Lease, in the namespace where it is installed (`--leader-election-name` of Karpenter 1.14).
const NAME: &str = "karpenter-leader-election";
/// What its Lease says of its duration, if it does not.
const USUAL: Duration = Duration::from_secs(15);
/// The longest that is believed: nobody who wrote once holds everybody up for years.
const LONGEST: Duration = Duration::from_secs(60);
/// Clocks of a cluster may differ by so much: older leases are of a Karpenter that is gone.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// A Karpenter that acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Karpenter {
    pub namespace: String,
    /// The name of its pod, and more.
    pub holder: String,
}

/// Leases as they were last seen, and since when they have been so, by namespace.
#[derive(Debug, Default)]
pub struct Lookout(BTreeMap<String, (Value, Instant)>);

impl Lookout {
    /// Looks at `now`. A Lease that is held counts until it was seen unchanged for its whole duration.
    pub async fn look(&mut self, kube: &Kube, now: Timestamp) -> Result<Option<Karpenter>, KubeError> {
        let only = ListParams::default().fields(&format!("metadata.name={NAME}"));
        let list: Value = kube.list(Resource::LEASE, &only).await?;
        let leases = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(self.judge(leases, now, Instant::now()))
    }

    fn judge(&mut self, leases: &[Value], now: Timestamp, seen_at: Instant) -> Option<Karpenter> {
        let former = std::mem::take(&mut self.0);
        let mut found = None;
        for lease in leases {
            let text = |pointer: &str| lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let (namespace, holder) = (text("/metadata/namespace"), text("/spec/holderIdentity"));
            let spec = lease["spec"].clone();
            let since = former.get(namespace).filter(|(known, _)| *known == spec);
            let since = since.map_or(seen_at, |(_, since)| *since);
            let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64);
            let duration = seconds.map_or(USUAL, Duration::from_secs).min(LONGEST);
            let is_recent = text("/spec/renewTime")
                .parse::<Timestamp>()
                .is_ok_and(|renewed| now.duration_since(renewed).abs() < SKEW);
            if !holder.is_empty() && is_recent && seen_at.duration_since(since) < duration {
                found.get_or_insert_with(|| Karpenter { namespace: namespace.into(), holder: holder.into() });
            }
            self.0.insert(namespace.to_owned(), (spec, since));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(namespace: &str, holder: &str, renewed: &str) -> Value {
        json!({
            "metadata": { "name": NAME, "namespace": namespace },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed },
        })
    }

    #[test]
    fn a_karpenter_acts_until_its_lease_was_not_renewed_for_its_duration() {
        let now: Timestamp = "2026-03-04T10:30:00Z".parse().unwrap();
        let start = Instant::now();
        let mut lookout = Lookout::default();
        let mut look = |leases: &[Value], seconds: i64| {
            let later = start + Duration::from_secs(seconds.unsigned_abs());
            let found = lookout.judge(leases, now + SignedDuration::from_secs(seconds), later);
            found.map(|found| (found.namespace, found.holder))
        };
        let acts = Some(("karpenter".to_owned(), "pod-1".to_owned()));
        let first = [lease("karpenter", "pod-1", "2026-03-04T10:29:59.000000Z")];
        assert_eq!(look(&first, 0), acts);
        assert_eq!(look(&first, 14), acts, "it may be slow");
        assert_eq!(look(&first, 15), None, "it is gone");
        let renewed = [lease("karpenter", "pod-1", "2026-03-04T10:30:16.000000Z")];
        assert_eq!(look(&renewed, 16), acts, "it was only slow");
        assert_eq!(look(&[], 17), None);
        let given_back = [lease("karpenter", "", "2026-03-04T10:30:17.000000Z")];
        assert_eq!(look(&given_back, 18), None);
        let forgotten = [lease("karpenter", "pod-1", "2026-03-04T10:20:00.000000Z")];
        assert_eq!(look(&forgotten, 19), None, "nobody waits for what ended minutes ago");
        let mut absurd = lease("shop", "nobody", "2099-01-01T00:00:00Z");
        assert_eq!(look(&[absurd.clone()], 19), None, "nor for what never was");
        absurd["spec"]["renewTime"] = json!("2026-03-04T10:30:19Z");
        absurd["spec"]["leaseDurationSeconds"] = json!(2_147_483_647);
        assert!(look(&[absurd.clone()], 20).is_some());
        assert_eq!(look(&[absurd], 80), None, "a minute at most");
        let elsewhere =
            [lease("old", "", "2026-03-04T10:30:19Z"), lease("new", "pod-2", "2026-03-04T10:31:55Z")];
        assert_eq!(
            look(&elsewhere, 81),
            Some(("new".to_owned(), "pod-2".to_owned())),
            "its clock may be ahead"
        );
    }
}
