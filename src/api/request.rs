//! What one pod asks for, by the rule that kube-scheduler and kubelet follow (scheduling.md 2.7).

use super::field::Field;
use crate::model::quantity::{ResourceName, Resources, resource};

/// The effective request of a pod, with `pods` 1. Limits count as requests where none is written, because the API server
/// has already made it so for pods and never does for templates. `status` brings what an in-place resize has settled.
pub(crate) fn of_pod(spec: &Field<'_, '_>, status: Option<&Field<'_, '_>>) -> Resources {
    let is_infeasible = status.is_some_and(is_resize_infeasible);
    let of = |container: &Field<'_, '_>, list: &str| {
        let asked = of_resources(&container.get("resources"));
        match status {
            Some(status) => after_resize(asked, container, &status.get(list), is_infeasible),
            None => asked,
        }
    };
    let mut running = Resources::new();
    for container in spec.get("containers").items() {
        running.add(&of(&container, "containerStatuses"));
    }
    let mut sidecars = Resources::new();
    let mut peak = Resources::new();
    for container in spec.get("initContainers").items() {
        let asked = of(&container, "initContainerStatuses");
        if container.get("restartPolicy").text() == Some("Always") {
            sidecars.add(&asked);
            peak.raise(&sidecars);
        } else {
            peak.raise(&asked.plus(&sidecars));
        }
    }
    let mut request = running;
    request.add(&sidecars);
    request.raise(&peak);
    apply_pod_level(&mut request, &spec.get("resources"));
    request.add(&spec.get("overhead").resources().unwrap_or_default());
    request.set(*resource::PODS, 1);
    request
}

/// The requests of one container, limits where none is written.
fn of_resources(resources: &Field<'_, '_>) -> Resources {
    let mut asked = resources.get("requests").resources().unwrap_or_default();
    let limits = resources.get("limits").resources().unwrap_or_default();
    check_limits(resources, &asked, &limits);
    for (name, amount) in limits.iter() {
        if asked.listed(name).is_none() {
            asked.set(name, amount);
        }
    }
    asked
}

/// An API server takes no request above its limit; of what a node cannot lend twice both are the same.
fn check_limits(resources: &Field<'_, '_>, requests: &Resources, limits: &Resources) {
    let (asked_at, limited_at) = (resources.get("requests"), resources.get("limits"));
    for (name, request) in requests.iter() {
        let Some(limit) = limits.listed(name) else { continue };
        let is_whole = name.0.starts_with("hugepages-")
            || (name.0.contains('/')
                && !name.0.contains("kubernetes.io/")
                && !name.0.starts_with("requests."));
        if request <= limit && !(is_whole && request < limit) {
            continue;
        }
        let (asked, limited) = (asked_at.get(&name.0), limited_at.get(&name.0));
        let (wanted, most) = (asked.written(), limited.written());
        if request > limit {
            let help = format!("lower the request, or raise `limits.{}`", name.0);
            asked.error_with_help(format!("asks for {wanted}, and the limit is {most}"), &help);
        } else {
            let message =
                format!("asks for {wanted}, and the limit is {most}: of {} both must be the same", name.0);
            asked.error_with_help(message, "leave the request out: then it is the limit");
        }
    }
}

/// The largest of what a container's spec, its kubelet and its node's books say; the spec does not count where the
/// kubelet has refused the resize for good.
fn after_resize(
    asked: Resources,
    container: &Field<'_, '_>,
    statuses: &Field<'_, '_>,
    is_infeasible: bool,
) -> Resources {
    let Some(name) = container.get("name").text() else { return asked };
    let Some(status) = statuses.items().find(|status| status.get("name").text() == Some(name)) else {
        return asked;
    };
    let actual = status.get("resources").get("requests").resources();
    let allocated = status.get("allocatedResources").resources();
    if actual.is_none() && allocated.is_none() {
        return asked;
    }
    let mut largest = if is_infeasible { Resources::new() } else { asked };
    for other in actual.iter().chain(&allocated) {
        largest.raise(other);
    }
    largest
}

fn is_resize_infeasible(status: &Field<'_, '_>) -> bool {
    let conditions = status.get("conditions");
    let mut pending =
        conditions.items().filter(|condition| condition.get("type").text() == Some("PodResizePending"));
    pending.any(|condition| condition.get("reason").text() == Some("Infeasible"))
        || status.get("resize").text() == Some("Infeasible")
}

/// Requests of the pod as a whole replace the sum of its containers. A limit of the whole only counts where no container
/// asks for the resource.
fn apply_pod_level(request: &mut Resources, resources: &Field<'_, '_>) {
    let is_supported = |name: ResourceName| {
        name == *resource::CPU || name == *resource::MEMORY || name.0.starts_with("hugepages-")
    };
    let whole = resources.get("requests").resources().unwrap_or_default();
    for (name, amount) in whole.iter().filter(|(name, _)| is_supported(*name)) {
        request.set(name, amount);
    }
    let limits = resources.get("limits").resources().unwrap_or_default();
    check_limits(resources, &whole, &limits);
    for (name, amount) in limits.iter().filter(|(name, _)| is_supported(*name)) {
        if request.listed(name).is_none() {
            request.set(name, amount);
        }
    }
}
