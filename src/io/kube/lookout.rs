//! Who else acts in the cluster: whoever does holds a Lease, and renews it every few seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use serde_json::Value;
use tokio::time::Instant;

use super::lease::LeaseSettings;
use super::{Kube, KubeError, Resource};

/// The name of Karpenter's Lease, in the namespace where it is installed (`--leader-election-name` of Karpenter 1.14).
const KARPENTER: &str = "karpenter-leader-election";
/// What a Lease says of its duration, if it does not.
const USUAL: Duration = Duration::from_secs(15);
/// The longest that is believed: nobody who wrote once holds everybody up for years.
const LONGEST: Duration = Duration::from_secs(60);
/// Clocks of a cluster may differ by so much: older leases are of somebody who is gone.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Somebody who acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub namespace: String,
    /// The name of its pod, and more.
    pub name: String,
    /// It had its lease before we had ours, so we give way to it; else it will give way to us once it has looked.
    pub comes_first: bool,
}

/// Leases of one name as they were last seen, and since when they have been so, by namespace.
#[derive(Debug)]
pub struct Lookout {
    name: String,
    /// Where our own of that name is, if there is one.
    home: Option<String>,
    seen: BTreeMap<String, (Value, Instant)>,
}

impl Lookout {
    /// For a Karpenter, wherever it is installed.
    pub fn for_karpenter() -> Self {
        Self { name: KARPENTER.into(), home: None, seen: BTreeMap::new() }
    }

    /// For those who act for the same installation and environment as we do and keep their lease in another namespace, so that
    /// neither waits for the other. Of all of them the one acts that has had its lease for longest.
    pub fn for_twins(ours: &LeaseSettings) -> Self {
        Self { name: ours.name.clone(), home: Some(ours.namespace.clone()), seen: BTreeMap::new() }
    }

    /// Looks at `now` for somebody, those first who come before us. A Lease that is held counts until it was seen unchanged for its whole
    /// duration.
    pub async fn look(&mut self, kube: &Kube, now: Timestamp) -> Result<Option<Holder>, KubeError> {
        let only = ListParams::default().fields(&format!("metadata.name={}", self.name));
        let list: Value = kube.list(Resource::LEASE, &only).await?;
        let leases = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(self.judge(leases, now, Instant::now()))
    }

    fn judge(&mut self, leases: &[Value], now: Timestamp, seen_at: Instant) -> Option<Holder> {
        let former = std::mem::take(&mut self.seen);
        let home = self.home.as_deref();
        let ours = leases
            .iter()
            .find(|lease| home.is_some() && text(lease, "/metadata/namespace") == home.unwrap_or_default());
        let mut found = None;
        for lease in leases {
            let (namespace, holder) =
                (text(lease, "/metadata/namespace"), text(lease, "/spec/holderIdentity"));
            if home == Some(namespace) {
                continue;
            }
            let spec = lease["spec"].clone();
            let known = former.get(namespace);
            let since = known.filter(|(known, _)| *known == spec).map_or(seen_at, |(_, since)| *since);
            // Whatever its clock says.
            let was_renewed = known.is_some() && since == seen_at;
            let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64);
            let duration = seconds.map_or(USUAL, Duration::from_secs).min(LONGEST);
            let is_recent = text(lease, "/spec/renewTime")
                .parse::<Timestamp>()
                .is_ok_and(|renewed| now.duration_since(renewed).abs() < SKEW);
            let comes_first = ours.is_none_or(|ours| standing(lease) < standing(ours));
            if !holder.is_empty() && (is_recent || was_renewed) && seen_at.duration_since(since) < duration {
                let holder = Holder { namespace: namespace.into(), name: holder.into(), comes_first };
                if found.as_ref().is_none_or(|found: &Holder| comes_first && !found.comes_first) {
                    found = Some(holder);
                }
            }
            self.seen.insert(namespace.to_owned(), (spec, since));
        }
        found
    }
}

fn text<'l>(lease: &'l Value, pointer: &str) -> &'l str {
    lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Since when somebody has had a Lease; the namespace tells apart those who got theirs at the same moment.
fn standing(lease: &Value) -> (Option<Timestamp>, &str) {
    (text(lease, "/spec/acquireTime").parse().ok(), text(lease, "/metadata/namespace"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(namespace: &str, holder: &str, renewed: &str) -> Value {
        json!({
            "metadata": { "name": KARPENTER, "namespace": namespace },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed },
        })
    }

    #[test]
    fn a_karpenter_acts_until_its_lease_was_not_renewed_for_its_duration() {
        let now: Timestamp = "2026-03-04T10:30:00Z".parse().unwrap();
        let start = Instant::now();
        let mut lookout = Lookout::for_karpenter();
        let mut look = |leases: &[Value], seconds: i64| {
            let later = start + Duration::from_secs(seconds.unsigned_abs());
            let found = lookout.judge(leases, now + SignedDuration::from_secs(seconds), later);
            found.map(|found| (found.namespace, found.name))
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
        let forgotten = [lease("once", "pod-1", "2026-03-04T10:20:00.000000Z")];
        assert_eq!(look(&forgotten, 19), None, "nobody waits for what ended minutes ago");
        let behind = [lease("once", "pod-1", "2026-03-04T10:20:02.000000Z")];
        assert_eq!(
            look(&behind, 19),
            Some(("once".into(), "pod-1".into())),
            "it is renewed by a clock that is behind"
        );
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

    #[test]
    fn of_two_for_one_environment_the_one_acts_that_came_first() {
        let now: Timestamp = "2026-03-04T10:30:00Z".parse().unwrap();
        let lease = |namespace: &str, holder: &str, acquired: &str| {
            let mut lease = lease(namespace, holder, "2026-03-04T10:29:59Z");
            lease["spec"]["acquireTime"] = json!(acquired);
            lease
        };
        let gives_way = |home: &str, leases: &[Value]| {
            let settings = LeaseSettings {
                namespace: home.into(),
                name: "provisor.dev".into(),
                holder: "us".into(),
                duration: USUAL,
                period: Duration::from_secs(4),
            };
            let found = Lookout::for_twins(&settings).judge(leases, now, Instant::now());
            found.filter(|found| found.comes_first).map(|found| found.namespace)
        };
        let (early, late) = ("2026-03-04T10:20:00.000001Z", "2026-03-04T10:20:00.000002Z");
        let both = [lease("a", "one", late), lease("b", "other", early)];
        assert_eq!((gives_way("a", &both), gives_way("b", &both)), (Some("b".into()), None));
        let at_once = [lease("a", "one", early), lease("b", "other", early)];
        assert_eq!((gives_way("a", &at_once), gives_way("b", &at_once)), (None, Some("a".into())));
        assert_eq!(gives_way("a", &both[..1]), None, "nobody gives way to itself");
        assert_eq!(gives_way("a", &both[1..]), Some("b".into()), "without a lease nobody was first");
        let given_back = [lease("a", "one", late), lease("b", "", early)];
        assert_eq!(gives_way("a", &given_back), None);
    }
}
