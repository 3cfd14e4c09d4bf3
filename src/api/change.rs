//! Which changes of an existing object the API server refuses, however valid both states are on their own.

use serde_json::Value;

use super::field::{FieldError, Stage};
use super::{Object, parse};

/// Everything about the step from `old` to `new` that an API server would refuse. Both must be valid; of an object that
/// does not parse nothing is said here.
pub fn validate_change(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut refuse = |path: &str, message: String, help: &str| {
        let help = Some(help.to_owned());
        errors.push(FieldError {
            path: path.into(),
            message,
            help,
            stage: Stage::Admission,
            is_of_key: false,
        });
    };
    match (parse(old), parse(new)) {
        (Ok(Object::NodePool(old)), Ok(Object::NodePool(new))) => {
            let (was, is) = (old.template.class, new.template.class);
            let help = "make a pool with another name and remove this one";
            for (key, was, is) in [("group", was.group, is.group), ("kind", was.kind, is.kind)] {
                if was != is {
                    let path = format!("spec.template.spec.nodeClassRef.{key}");
                    refuse(&path, format!("cannot change from `{was}` to `{is}`"), help);
                }
            }
            if old.replicas.is_some() != new.replicas.is_some() {
                let message = match new.replicas {
                    Some(_) => "cannot be set on a pool that was made without",
                    None => "cannot be removed from a pool that was made with it",
                };
                refuse("spec.replicas", message.into(), help);
            }
        }
        // Compared as parsed, so that 1000m and 1 are the same.
        (Ok(Object::NodeClaim(old)), Ok(Object::NodeClaim(new))) if old.spec != new.spec => {
            let help = "a claim is one machine; change its NodePool, and new claims follow";
            refuse("spec", "of a NodeClaim cannot change".into(), help);
        }
        _ => {}
    }
    errors
}
