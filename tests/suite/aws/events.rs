//! Messages as AWS documents them, each with what is to be done about it.

use std::path::Path;

use provisor::api::ec2::event::{Meaning, parse};
use provisor::model::observation::InterruptionNotice;

#[test]
fn messages_as_aws_writes_them_are_understood() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/aws/events");
    let index = std::fs::read_to_string(folder.join("EXPECT.csv")).expect("the index of the messages");
    let mut seen = 0;
    for line in index.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let body = std::fs::read_to_string(folder.join(fields[0])).expect("a message");
        let Ok(Meaning::Notice { instances, notice, .. }) = parse(&body).map(|message| message.meaning)
        else {
            panic!("{} is not understood", fields[0]);
        };
        assert_eq!(instances.join(";"), fields[2], "{}", fields[0]);
        let is_report = notice == InterruptionNotice::RebalanceRecommendation;
        assert_eq!(if is_report { "report only" } else { "drain_and_replace" }, fields[3], "{}", fields[0]);
        let kind = match notice {
            InterruptionNotice::SpotReclaim { .. } => "spot_interruption",
            InterruptionNotice::RebalanceRecommendation => "rebalance_recommendation",
            InterruptionNotice::StateChange | InterruptionNotice::Terminating => "state_change",
            InterruptionNotice::ReservationReclaim => "capacity_reservation_interruption",
            InterruptionNotice::ScheduledChange => "scheduled_change",
            InterruptionNotice::StatusCheckFailed => "status_check",
        };
        assert_eq!(kind, fields[1], "{}", fields[0]);
        seen += 1;
    }
    assert_eq!(seen, 5);
}

/// Whatever part of a message is lost or turned around, it is read or refused, never a panic.
#[test]
fn broken_messages_are_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/aws/events");
    let mut refused = 0;
    for entry in std::fs::read_dir(folder).expect("the messages") {
        let path = entry.expect("a file").path();
        let body = std::fs::read_to_string(&path).expect("a message");
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        for end in (0..body.len()).filter(|end| body.is_char_boundary(*end)) {
            let is_whole = body[end..].trim().is_empty();
            refused += usize::from(parse(&body[..end]).is_err());
            assert!(is_whole || parse(&body[..end]).is_err(), "{} up to {end}", path.display());
        }
        let value: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        for key in value.as_object().expect("a map").keys() {
            for other in
                [serde_json::json!(null), serde_json::json!(7), serde_json::json!([]), serde_json::json!("x")]
            {
                let mut changed = value.clone();
                changed[key] = other;
                let _ = parse(&changed.to_string());
            }
        }
    }
    assert!(refused > 1000);
}
