//! NodeClaim `karpenter.sh/v1` (api.md 5).

use super::constraints::{DURATION, DURATION_OR_NEVER, Detail, class_ref, conditions, requirements, taints};
use super::schema::Schema;
use super::{AGE, Definition, READY, column, wide};
use crate::api::nodepool::EXPIRE_AFTER_DEFAULT;
use crate::api::requirement::Place;

pub(super) fn definition() -> Definition {
    Definition {
        group: "karpenter.sh",
        version: "v1",
        kind: "NodeClaim",
        plural: "nodeclaims",
        short: &[],
        category: "karpenter",
        is_namespaced: false,
        about: "One machine: asked for, bought, joined, given back.",
        columns: vec![
            column("Type", "string", r".metadata.labels.node\.kubernetes\.io/instance-type"),
            column("Capacity", "string", r".metadata.labels.karpenter\.sh/capacity-type"),
            column("Zone", "string", r".metadata.labels.topology\.kubernetes\.io/zone"),
            column("Node", "string", ".status.nodeName"),
            READY,
            AGE,
            wide("ImageID", "string", ".status.imageID"),
            wide("ID", "string", ".status.providerID"),
            wide("NodePool", "string", r".metadata.labels.karpenter\.sh/nodepool"),
            wide("NodeClass", "string", ".spec.nodeClassRef.name"),
            wide("Drifted", "string", r#".status.conditions[?(@.type=="Drifted")].status"#),
        ],
        spec: spec(),
        status: status(),
        scale: None,
    }
}

fn spec() -> Schema {
    let grace = "How long the node may take to drain before its pods are ended by force; unset: as long as they need.";
    let startup =
        "Taints that something on the node takes away once it has started; pods need not tolerate them.";
    let requests = [("requests", Schema::resources("What the pods it was made for ask for."))];
    let expire = Schema::text("How old the node may become before it is replaced.");
    let fields = [
        ("requirements", requirements("What the machine must be; all conditions hold.", Place::Claim)),
        ("resources", Schema::object("What the machine must hold.", requests)),
        ("taints", taints("Taints of the node.")),
        ("startupTaints", taints(startup)),
        ("nodeClassRef", class_ref(false)),
        ("expireAfter", expire.pattern(DURATION_OR_NEVER).default(EXPIRE_AFTER_DEFAULT)),
        ("terminationGracePeriod", Schema::text(grace).pattern(DURATION)),
    ];
    Schema::object("What was asked for; it never changes.", fields)
        .required(&["nodeClassRef", "requirements"])
        .rule("the spec of a claim cannot change: change its pool, and new claims follow", "self == oldSelf")
}

fn status() -> Schema {
    let allocatable = "What of the machine is left for pods.";
    let pod_event = "When a pod last came to the node or left it.";
    let fields = [
        ("allocatable", Schema::resources(allocatable)),
        ("capacity", Schema::resources("What the machine has.")),
        ("conditions", conditions(Detail::Terse)),
        ("imageID", Schema::text("The image it runs.")),
        ("lastPodEventTime", Schema::moment(pod_event)),
        ("nodeName", Schema::text("The Node it became.")),
        ("providerID", Schema::text("The machine, as its cloud names it.")),
    ];
    Schema::object("How far the machine is.", fields)
}
