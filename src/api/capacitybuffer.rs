//! CapacityBuffer `autoscaling.x-k8s.io` (api.md 7): room kept free for pods to come. Checked here; the engine does not act
//! on it yet.

use super::field::Field;
use super::metadata;

/// Notes everything wrong with a buffer.
pub(crate) fn check(object: &Field<'_, '_>) {
    object.only(&["apiVersion", "kind", "metadata", "spec", "status"]);
    metadata::read(object);
    let spec = object.get("spec").required();
    spec.only(&["provisioningStrategy", "podTemplateRef", "scalableRef", "replicas", "percentage", "limits"]);
    spec.get("provisioningStrategy").text();
    let (template, scalable) = (spec.get("podTemplateRef"), spec.get("scalableRef"));
    if template.only(&["name"]) {
        template.get("name").required_text();
    }
    if scalable.only(&["apiGroup", "kind", "name"]) {
        scalable.get("apiGroup").text();
        scalable.get("kind").required_text();
        scalable.get("name").required_text();
    }
    if template.is_present() && scalable.is_present() {
        spec.error_with_help("names both `podTemplateRef` and `scalableRef`".into(), "leave one of them out");
    }
    let (replicas, percentage) = (spec.get("replicas"), spec.get("percentage"));
    replicas.integer_in(0..=i64::from(i32::MAX));
    percentage.integer_in(0..=i64::from(i32::MAX));
    let limits = spec.get("limits");
    limits.resources();
    if template.is_present() && !replicas.is_present() && !limits.is_present() {
        spec.error_with_help(
            "has a `podTemplateRef`, but nothing says how many pods to keep room for".into(),
            "set `replicas` or `limits`",
        );
    }
}
