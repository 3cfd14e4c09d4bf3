//! Room that is never kept and nodes that never come: what is asked for is legal, and something else makes it nothing.

use serde_json::Value;

use super::Instances;
use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::headroom::LABEL;
use crate::gitops::overlap::asks;
use crate::gitops::rendered::{Draft, place_of};
use crate::model::label;
use crate::model::quantity::{Quantity, ResourceName, resource};

/// Checks what the objects of an environment say of each other's amounts.
pub(super) fn check(drafts: &[Draft], instances: Option<&Instances>, found: &mut Vec<Diagnostic>) {
    for draft in drafts {
        match draft.manifest["kind"].as_str() {
            Some("NodePool") => fixed_size(draft, found),
            Some("CapacityBuffer") => sourceless(draft, found),
            Some("PodTemplate") => {
                nothing_asked(draft, found);
                if let Some(pool) = pool_of(draft, drafts) {
                    never_bought(draft, pool, found);
                    too_large(draft, pool, drafts, instances, found);
                }
            }
            _ => {}
        }
    }
}

fn place(draft: &Draft, path: &str) -> Place {
    place_of(&draft.origins, path).unwrap_or(&draft.origins[""]).clone()
}

/// A pool of a fixed size that may not have so many nodes.
fn fixed_size(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let spec = &draft.manifest["spec"];
    let most = match &spec["limits"]["nodes"] {
        Value::String(text) => text.parse::<Quantity>().ok().map(Quantity::units),
        other => other.as_i64(),
    };
    if let (Some(replicas), Some(most)) = (spec["replicas"].as_i64(), most)
        && replicas > most
    {
        let pool = name_of(draft);
        let message = format!("pool `{pool}` asks for {replicas} nodes and may have {most}");
        found.push(
            Diagnostic::warning("PRV1631", place(draft, "spec.replicas"), message)
                .also("the most that it may have", place(draft, "spec.limits.nodes"))
                .help("raise `limits.nodes`, or ask for fewer `replicas`"),
        );
    }
}

/// A buffer that names no pods to keep room for. The API server takes it, and nothing comes of it.
fn sourceless(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let spec = &draft.manifest["spec"];
    if spec["podTemplateRef"].is_null() && spec["scalableRef"].is_null() {
        let name = name_of(draft);
        let message = format!("the buffer `{name}` keeps no room: nothing says for which pods");
        found.push(Diagnostic::warning("PRV1630", draft.origins[""].clone(), message).help(
            "name a PodTemplate as `podTemplateRef`, or a Deployment as `scalableRef`; for room on one pool's nodes there is its `headroom`",
        ));
    }
}

fn requests(draft: &Draft) -> impl Iterator<Item = (&String, &Value)> {
    let containers = draft.manifest["template"]["spec"]["containers"].as_array();
    let requests = containers.and_then(|containers| containers.first()?["resources"]["requests"].as_object());
    requests.into_iter().flatten()
}

/// Headroom for pods that ask for nothing: they would fit anywhere without it.
fn nothing_asked(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let is_headroom = draft.manifest["template"]["metadata"]["labels"].get(LABEL).is_some();
    if is_headroom && requests(draft).next().is_none() {
        let message = "the headroom keeps no room: its pods ask for nothing";
        found
            .push(Diagnostic::warning("PRV1630", draft.origins[""].clone(), message).help(
                "say what each of them would ask for, such as `cpu = \"500m\"` and `memory = \"1Gi\"`",
            ));
    }
}

/// The pool on whose nodes alone the pods of a template may be.
fn pool_of<'d>(template: &Draft, drafts: &'d [Draft]) -> Option<&'d Draft> {
    let selected = &template.manifest["template"]["spec"]["nodeSelector"][label::NODEPOOL.as_str()];
    let mut pools = drafts.iter().filter(|one| one.manifest["kind"] == "NodePool");
    pools.find(|pool| pool.manifest["metadata"]["name"] == *selected)
}

fn name_of(draft: &Draft) -> &str {
    draft.manifest["metadata"]["name"].as_str().unwrap_or_default()
}

/// Headroom on a pool that has as many nodes as it says and buys no other.
fn never_bought(draft: &Draft, pool: &Draft, found: &mut Vec<Diagnostic>) {
    let is_headroom = draft.manifest["template"]["metadata"]["labels"].get(LABEL).is_some();
    if is_headroom && !pool.manifest["spec"]["replicas"].is_null() {
        let message = format!(
            "nothing is bought for the headroom of pool `{}`: its number of nodes is fixed",
            name_of(pool)
        );
        found.push(
            Diagnostic::warning("PRV1630", draft.origins[""].clone(), message)
                .also("as many and no more", place(pool, "spec.replicas"))
                .help("raise `replicas`, or give the headroom to a pool that grows"),
        );
    }
}

/// Pods for the nodes of one pool of which no type that it may buy can hold a single one.
fn too_large(
    draft: &Draft,
    pool: &Draft,
    drafts: &[Draft],
    instances: Option<&Instances>,
    found: &mut Vec<Diagnostic>,
) {
    let Some(instances) = instances else { return };
    let wanted = asks(pool);
    for (name, amount) in requests(draft) {
        let kind = ResourceName::new(name);
        let Some(asked) = amount.as_str().and_then(|text| text.parse::<Quantity>().ok()) else { continue };
        let asked = kind.amount(asked);
        // How large a disk is, the class says; a device that no type comes with may be one that a plugin adds.
        let is_of_machines = instances.types.iter().any(|shape| shape.capacity.get(kind) > 0);
        if kind == *resource::EPHEMERAL_STORAGE || !is_of_machines || is_overlaid(drafts, name) {
            continue;
        }
        let Some(most) = instances.types_for(&wanted).map(|shape| shape.capacity.get(kind)).max() else {
            return;
        };
        if asked <= most {
            continue;
        }
        let pool = name_of(pool);
        let message = format!(
            "no node of pool `{pool}` can hold such a pod: it asks for {} of `{name}`, and the largest has {}",
            kind.render(asked),
            kind.render(most)
        );
        let path = format!("template.spec.containers[0].resources.requests.{name}");
        found.push(
            Diagnostic::warning("PRV1630", place(draft, &path), message)
                .help("ask for less per pod and for more pods, or let the pool buy larger types"),
        );
    }
}

/// Whether an overlay gives nodes more of a resource than their machines come with.
fn is_overlaid(drafts: &[Draft], resource: &str) -> bool {
    let mut overlays = drafts.iter().filter(|draft| draft.manifest["kind"] == "NodeOverlay");
    overlays.any(|overlay| overlay.manifest["spec"]["capacity"].get(resource).is_some())
}
