//! One of several replicas acts: it holds a Lease and renews it, and stops before another may take it.
//!
//! Time is measured from when we saw the lease change, on our own clock, so that clocks that disagree do no harm. An API server
//! that takes seconds to answer, because we ask much of it, does not cost us the lease: it is renewed on a beat, by one request.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Kube, KubeError, Resource};
use crate::model::owner::Owner;

/// How the lease is kept.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    pub namespace: String,
    pub name: String,
    /// Tells this process from every other.
    pub holder: String,
    /// For so long after its last renewal the lease counts as held.
    pub duration: Duration,
    /// How often it is renewed, from beginning to beginning, and how often others look.
    pub period: Duration,
}

impl LeaseSettings {
    /// That of `owner`, with Karpenter's figures but a slower renewal: 15 seconds, looked at every 4. Neither part of the name has a
    /// dot, so that no two owners share a lease.
    pub fn of(owner: &Owner, namespace: &str, holder: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: format!("{}.{}", owner.installation, owner.environment),
            holder: holder.into(),
            duration: Duration::from_secs(15),
            period: Duration::from_secs(4),
        }
    }

    /// After so long without a renewal the holder stops, well before another may begin.
    fn deadline(&self) -> Duration {
        self.duration * 2 / 3
    }
}

/// Whether we may act. Cheap to ask before every single write.
#[derive(Clone, Debug)]
pub struct Permit(Arc<watch::Sender<Option<Instant>>>);

impl Permit {
    /// A permit that is never lost, for those who run alone.
    pub fn unlimited() -> Self {
        let far = Instant::now() + Duration::from_secs(60 * 60 * 24 * 365 * 10);
        Self(Arc::new(watch::Sender::new(Some(far))))
    }

    fn until(at: Instant) -> Self {
        Self(Arc::new(watch::Sender::new(Some(at))))
    }

    pub fn is_valid(&self) -> bool {
        self.0.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Returns once the permit is lost.
    pub async fn lost(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let until = *changes.borrow_and_update();
            let Some(until) = until.filter(|until| Instant::now() < *until) else { return };
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    fn extend(&self, until: Instant) {
        self.0.send_replace(Some(until));
    }

    fn revoke(&self) {
        self.0.send_replace(None);
    }
}

/// The lease while we hold it; it is given back when we end in peace.
#[derive(Debug)]
pub struct Held {
    pub permit: Permit,
    kube: Kube,
    settings: LeaseSettings,
    renewal: tokio::task::JoinHandle<()>,
}

impl Held {
    /// Lets another replica begin at once.
    pub async fn give_back(self) {
        self.renewal.abort();
        self.permit.revoke();
        let (kube, settings) = (&self.kube, &self.settings);
        if let Ok(Some(lease)) = read(kube, settings).await
            && holder(&lease) == settings.holder
        {
            let mut lease = lease;
            lease["spec"]["holderIdentity"] = "".into();
            lease["spec"]["leaseDurationSeconds"] = 1.into();
            drop(write(kube, settings, &lease).await);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.renewal.abort();
        self.permit.revoke();
    }
}

/// Waits until the lease is ours. `waiting` is told who holds it, once for each holder.
pub async fn acquire(
    kube: &Kube,
    settings: &LeaseSettings,
    clock: fn() -> Timestamp,
    mut waiting: impl FnMut(&str),
) -> Result<Held, KubeError> {
    // The lease as it was last seen, and since when it has been so.
    let mut seen: Option<(Value, Instant)> = None;
    let mut told = String::new();
    loop {
        let began = Instant::now();
        let lease = match read(kube, settings).await {
            Ok(lease) => lease,
            Err(error) if error.is_transient() => {
                tracing::warn!("{error}; trying again");
                tokio::time::sleep(settings.period).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let answer = match &lease {
            None => Some(create(kube, settings, clock()).await),
            Some(lease) => {
                let spec = lease.get("spec").cloned().unwrap_or_default();
                let since = match &seen {
                    Some((known, since)) if *known == spec => *since,
                    // It may have been written at any moment until it was read.
                    _ => Instant::now(),
                };
                seen = Some((spec, since));
                let who = holder(lease);
                if who.is_empty() || who == settings.holder || since.elapsed() >= duration_of(lease, settings)
                {
                    Some(take(kube, settings, lease, clock()).await)
                } else {
                    if told != who {
                        waiting(who);
                        who.clone_into(&mut told);
                    }
                    None
                }
            }
        };
        match answer {
            Some(Ok(lease)) => return Ok(hold(kube, settings, lease, began, clock)),
            // Somebody was faster.
            Some(Err(error)) if error.is_transient() || error.already_exists() => {}
            Some(Err(error)) => return Err(error),
            None => {}
        }
        tokio::time::sleep(settings.period / 2).await;
    }
}

fn hold(
    kube: &Kube,
    settings: &LeaseSettings,
    taken: Value,
    began: Instant,
    clock: fn() -> Timestamp,
) -> Held {
    let permit = Permit::until(began + settings.deadline());
    let renewal = {
        let (kube, settings, permit) = (kube.clone(), settings.clone(), permit.clone());
        tokio::spawn(async move {
            // As it was written last; after a failure nobody knows.
            let mut lease = Some(taken);
            let mut next = began + settings.period;
            // Two tries fit in before the deadline.
            let patience = (settings.deadline() - settings.period) / 2;
            loop {
                tokio::time::sleep_until(next).await;
                let began = Instant::now();
                next = began + settings.period;
                let renewed = renew(&kube, &settings, lease.take(), clock());
                match tokio::time::timeout(patience, renewed).await {
                    Ok(Ok(Some(written))) => {
                        permit.extend(began + settings.deadline());
                        lease = Some(written);
                    }
                    Ok(Ok(None)) => return permit.revoke(),
                    Ok(Err(error)) => tracing::warn!("{error}; the lease is not renewed"),
                    Err(_) => {
                        tracing::warn!("renewing the lease takes too long; it is tried again");
                        next = Instant::now();
                    }
                }
                if !permit.is_valid() {
                    return permit.revoke();
                }
            }
        })
    };
    Held { permit, kube: kube.clone(), settings: settings.clone(), renewal }
}

async fn read(kube: &Kube, settings: &LeaseSettings) -> Result<Option<Value>, KubeError> {
    kube.get(Resource::LEASE, Some(&settings.namespace), &settings.name).await
}

async fn write(kube: &Kube, settings: &LeaseSettings, lease: &Value) -> Result<Value, KubeError> {
    kube.replace(Resource::LEASE, Some(&settings.namespace), &settings.name, lease).await
}

async fn create(kube: &Kube, settings: &LeaseSettings, now: Timestamp) -> Result<Value, KubeError> {
    let lease = json!({
        "apiVersion": Resource::LEASE.api_version,
        "kind": Resource::LEASE.kind,
        "metadata": { "name": settings.name, "namespace": settings.namespace },
        "spec": {
            "holderIdentity": settings.holder,
            "leaseDurationSeconds": settings.duration.as_secs(),
            "acquireTime": micros(now),
            "renewTime": micros(now),
            "leaseTransitions": 0,
        },
    });
    kube.create(Resource::LEASE, Some(&settings.namespace), &lease).await
}

/// Takes the lease over as it was read; fails if anybody touched it since.
async fn take(
    kube: &Kube,
    settings: &LeaseSettings,
    lease: &Value,
    now: Timestamp,
) -> Result<Value, KubeError> {
    let transitions = lease.pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
    let mut lease = lease.clone();
    lease["spec"] = json!({
        "holderIdentity": settings.holder,
        "leaseDurationSeconds": settings.duration.as_secs(),
        "acquireTime": micros(now),
        "renewTime": micros(now),
        "leaseTransitions": transitions + 1,
    });
    write(kube, settings, &lease).await
}

/// Writes the lease anew as it was `known`; reads it first where that is not known, or not true any more. `None`: somebody else
/// holds it.
async fn renew(
    kube: &Kube,
    settings: &LeaseSettings,
    known: Option<Value>,
    now: Timestamp,
) -> Result<Option<Value>, KubeError> {
    if let Some(mut lease) = known {
        lease["spec"]["renewTime"] = micros(now).into();
        match write(kube, settings, &lease).await {
            Err(error) if error.is_conflict() => {}
            answer => return answer.map(Some),
        }
    }
    let Some(mut lease) = read(kube, settings).await? else { return Ok(None) };
    if holder(&lease) != settings.holder {
        return Ok(None);
    }
    lease["spec"]["renewTime"] = micros(now).into();
    write(kube, settings, &lease).await.map(Some)
}

fn holder(lease: &Value) -> &str {
    lease.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default()
}

fn duration_of(lease: &Value, settings: &LeaseSettings) -> Duration {
    let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64);
    seconds.map_or(settings.duration, Duration::from_secs)
}

/// As MicroTime is written: always six digits.
fn micros(at: Timestamp) -> String {
    format!("{at:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_six_digits() {
        let at: Timestamp = "2026-03-04T10:30:00Z".parse().unwrap();
        assert_eq!(micros(at), "2026-03-04T10:30:00.000000Z");
    }

    #[test]
    fn a_permit_ends_by_itself_and_when_it_is_revoked() {
        let past = Permit::until(Instant::now());
        assert!(!past.is_valid());
        past.extend(Instant::now() + Duration::from_secs(60));
        assert!(past.is_valid());
        past.revoke();
        assert!(!past.is_valid() && Permit::unlimited().is_valid());
    }
}
