//! Messages about machines as EventBridge writes them into a queue (aws.md 5.2).

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use crate::model::observation::InterruptionNotice;

/// How long after its warning a spot machine is taken.
const SPOT_WARNING: SignedDuration = SignedDuration::from_mins(2);

/// A message that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub sent: Timestamp,
    pub meaning: Meaning,
}

/// What a message means to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The machines, by the cloud's id, are told this. `kind`: such as `spot_interrupted`, as monitoring counts them.
    Notice { kind: &'static str, instances: Vec<String>, notice: InterruptionNotice },
    /// Nothing that we act upon, such as a machine that starts.
    Nothing,
}

impl Message {
    /// As monitoring counts messages.
    pub fn kind(&self) -> &'static str {
        match self.meaning {
            Meaning::Notice { kind, .. } => kind,
            Meaning::Nothing => "no_op",
        }
    }
}

/// Why a message is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotForUs {
    #[error("it is not JSON: {0}")]
    NotJson(String),
    #[error("it lacks what a message of EventBridge has: {0}")]
    NotAnEvent(String),
    #[error("nothing is known about `{detail_type}` of `{source_name}`, version `{version}`")]
    Foreign { source_name: String, detail_type: String, version: String },
    #[error("`{detail_type}` names no instance: {why}")]
    NoInstance { detail_type: String, why: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Envelope {
    version: String,
    source: String,
    detail_type: String,
    time: Timestamp,
    #[serde(default)]
    detail: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OfInstance {
    instance_id: String,
    #[serde(default)]
    state: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfHealth {
    service: String,
    event_type_category: String,
    #[serde(default)]
    affected_entities: Vec<Entity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entity {
    entity_value: String,
}

/// Reads the body of one message.
///
/// States are compared without regard to case. A health event counts only if it is a scheduled change of EC2.
pub fn parse(body: &str) -> Result<Message, NotForUs> {
    let value: Value = serde_json::from_str(body).map_err(|error| NotForUs::NotJson(error.to_string()))?;
    let envelope = Envelope::deserialize(&value).map_err(|error| NotForUs::NotAnEvent(error.to_string()))?;
    let foreign = || NotForUs::Foreign {
        source_name: envelope.source.clone(),
        detail_type: envelope.detail_type.clone(),
        version: envelope.version.clone(),
    };
    if envelope.version != "0" {
        return Err(foreign());
    }
    let of_instance = || read::<OfInstance>(&envelope).and_then(|detail| named(&envelope, detail));
    let message = |meaning| Message { sent: envelope.time, meaning };
    let (kind, instances, notice) = match (envelope.source.as_str(), envelope.detail_type.as_str()) {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => {
            let at = envelope.time.checked_add(SPOT_WARNING).unwrap_or(envelope.time);
            ("spot_interrupted", vec![of_instance()?.instance_id], InterruptionNotice::SpotReclaim { at })
        }
        ("aws.ec2", "EC2 Instance Rebalance Recommendation") => {
            let instances = vec![of_instance()?.instance_id];
            ("rebalance_recommendation", instances, InterruptionNotice::RebalanceRecommendation)
        }
        ("aws.ec2", "EC2 Instance State-change Notification") => {
            let detail = of_instance()?;
            let (kind, notice) = match detail.state.to_ascii_lowercase().as_str() {
                "stopping" | "stopped" => ("instance_stopped", InterruptionNotice::StateChange),
                "shutting-down" | "terminated" => ("instance_terminated", InterruptionNotice::Terminating),
                _ => return Ok(message(Meaning::Nothing)),
            };
            (kind, vec![detail.instance_id], notice)
        }
        ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning") => {
            let instances = vec![of_instance()?.instance_id];
            ("capacity_reservation_interrupted", instances, InterruptionNotice::ReservationReclaim)
        }
        ("aws.health", "AWS Health Event") => {
            let detail = read::<OfHealth>(&envelope)?;
            if detail.service != "EC2" || detail.event_type_category != "scheduledChange" {
                return Ok(message(Meaning::Nothing));
            }
            let instances: Vec<String> = detail
                .affected_entities
                .into_iter()
                .map(|entity| entity.entity_value)
                .filter(|id| is_instance(id))
                .collect();
            if instances.is_empty() {
                return Ok(message(Meaning::Nothing));
            }
            ("scheduled_change", instances, InterruptionNotice::ScheduledChange)
        }
        _ => return Err(foreign()),
    };
    Ok(message(Meaning::Notice { kind, instances, notice }))
}

fn read<T: for<'de> Deserialize<'de>>(envelope: &Envelope) -> Result<T, NotForUs> {
    T::deserialize(&envelope.detail).map_err(|error| NotForUs::NoInstance {
        detail_type: envelope.detail_type.clone(),
        why: error.to_string(),
    })
}

fn named(envelope: &Envelope, detail: OfInstance) -> Result<OfInstance, NotForUs> {
    if is_instance(&detail.instance_id) {
        return Ok(detail);
    }
    Err(NotForUs::NoInstance {
        detail_type: envelope.detail_type.clone(),
        why: format!("`{}` is not the id of one", detail.instance_id),
    })
}

fn is_instance(id: &str) -> bool {
    id.strip_prefix("i-")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(source: &str, detail_type: &str, detail: &str) -> String {
        format!(
            r#"{{"version": "0", "id": "x", "detail-type": "{detail_type}", "source": "{source}", "account": "1",
                "time": "2026-01-02T03:04:05Z", "region": "r", "resources": [], "detail": {detail}}}"#
        )
    }

    fn meaning(body: &str) -> (&'static str, Meaning) {
        let message = parse(body).unwrap_or_else(|why| panic!("{body}: {why}"));
        assert_eq!(message.sent, "2026-01-02T03:04:05Z".parse().expect("a time"));
        (message.kind(), message.meaning)
    }

    #[track_caller]
    fn expect(body: &str, kind: &'static str, instances: &[&str], notice: InterruptionNotice) {
        let instances = instances.iter().map(|id| (*id).to_owned()).collect();
        assert_eq!(meaning(body), (kind, Meaning::Notice { kind, instances, notice }));
    }

    #[test]
    fn every_kind_of_message_is_understood() {
        let spot = event("aws.ec2", "EC2 Spot Instance Interruption Warning", r#"{"instance-id": "i-0a"}"#);
        let at = "2026-01-02T03:06:05Z".parse().expect("a time");
        expect(&spot, "spot_interrupted", &["i-0a"], InterruptionNotice::SpotReclaim { at });
        let advice = event("aws.ec2", "EC2 Instance Rebalance Recommendation", r#"{"instance-id": "i-0b"}"#);
        let kind = "rebalance_recommendation";
        expect(&advice, kind, &["i-0b"], InterruptionNotice::RebalanceRecommendation);
        let reservation = event(
            "aws.ec2",
            "EC2 Capacity Reservation Instance Interruption Warning",
            r#"{"instance-id": "i-0c", "instance-action": "terminate"}"#,
        );
        let kind = "capacity_reservation_interrupted";
        expect(&reservation, kind, &["i-0c"], InterruptionNotice::ReservationReclaim);
        let health = event(
            "aws.health",
            "AWS Health Event",
            r#"{"service": "EC2", "eventTypeCategory": "scheduledChange",
                "affectedEntities": [{"entityValue": "i-0d"}, {"entityValue": "vol-1"}, {"entityValue": "i-0e"}]}"#,
        );
        expect(&health, "scheduled_change", &["i-0d", "i-0e"], InterruptionNotice::ScheduledChange);
    }

    #[test]
    fn only_states_on_the_way_out_matter_and_their_case_does_not() {
        let of = |state: &str| {
            let detail = format!(r#"{{"instance-id": "i-0a", "state": "{state}"}}"#);
            event("aws.ec2", "EC2 Instance State-change Notification", &detail)
        };
        for (state, kind, notice) in [
            ("stopping", "instance_stopped", InterruptionNotice::StateChange),
            ("stopped", "instance_stopped", InterruptionNotice::StateChange),
            ("shutting-down", "instance_terminated", InterruptionNotice::Terminating),
            ("terminated", "instance_terminated", InterruptionNotice::Terminating),
            ("Stopping", "instance_stopped", InterruptionNotice::StateChange),
        ] {
            expect(&of(state), kind, &["i-0a"], notice);
        }
        for state in ["pending", "running", "", "elsewhere"] {
            assert_eq!(meaning(&of(state)), ("no_op", Meaning::Nothing), "{state}");
        }
    }

    #[test]
    fn what_is_not_for_us_says_why_in_one_line() {
        let bodies = [
            String::new(),
            "not json".into(),
            "[]".into(),
            "{}".into(),
            r#"{"version": 0}"#.into(),
            event("aws.s3", "Object Created", "{}"),
            event("aws.health", "EC2 Spot Instance Interruption Warning", r#"{"instance-id": "i-0a"}"#),
            event("aws.ec2", "EC2 Spot Instance Interruption Warning", "{}"),
            event("aws.ec2", "EC2 Spot Instance Interruption Warning", "null"),
            event("aws.ec2", "EC2 Spot Instance Interruption Warning", r#"{"instance-id": "../etc"}"#),
            event("aws.ec2", "EC2 Spot Instance Interruption Warning", r#"{"instance-id": "i-0a"}"#)
                .replace("\"0\"", "\"1\""),
        ];
        for body in bodies {
            let why = parse(&body).expect_err(&body).to_string();
            assert!(!why.is_empty() && !why.contains('\n'), "{why}");
        }
        let other = r#"{"service": "RDS", "eventTypeCategory": "scheduledChange", "affectedEntities": []}"#;
        assert_eq!(meaning(&event("aws.health", "AWS Health Event", other)), ("no_op", Meaning::Nothing));
    }
}
