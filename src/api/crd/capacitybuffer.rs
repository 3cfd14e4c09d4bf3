//! CapacityBuffer `autoscaling.x-k8s.io/v1beta1` (api.md 7).

use super::constraints::{Detail, conditions};
use super::schema::Schema;
use super::{AGE, Definition, column};

const STRATEGY_DEFAULT: &str = "buffer.x-k8s.io/active-capacity";

pub(super) fn definition() -> Definition {
    Definition {
        group: "autoscaling.x-k8s.io",
        version: "v1beta1",
        kind: "CapacityBuffer",
        plural: "capacitybuffers",
        short: &["cb"],
        category: "autoscaling",
        is_namespaced: true,
        about: "Room that is kept free for pods to come.",
        columns: vec![
            column("Strategy", "string", ".spec.provisioningStrategy"),
            column("PodTemplate", "string", ".status.podTemplateRef.name"),
            column("Replicas", "integer", ".status.replicas"),
            column("ConditionsType", "string", ".status.conditions[*].type"),
            column("ConditionsStatus", "string", ".status.conditions[*].status"),
            column("ConditionsReason", "string", ".status.conditions[*].reason"),
            AGE,
        ],
        spec: spec(),
        status: status(),
        scale: None,
    }
}

fn template_ref(about: &str) -> Schema {
    let name = Schema::text("The name of a PodTemplate beside the buffer.").not_empty();
    Schema::object(about, [("name", name)]).required(&["name"])
}

fn spec() -> Schema {
    let scalable = [
        ("apiGroup", Schema::text("Its API group.")),
        ("kind", Schema::text("Its kind, such as Deployment.").not_empty()),
        ("name", Schema::text("Its name.").not_empty()),
    ];
    let scalable = Schema::object("A workload beside the buffer whose pods to keep room for.", scalable);
    let strategy = "How the room is kept.";
    let percentage = "How many pods to keep room for, as a share of the workload's replicas; rounded up.";
    let fields = [
        ("provisioningStrategy", Schema::text(strategy).default(STRATEGY_DEFAULT)),
        ("podTemplateRef", template_ref("What the pods to keep room for look like.")),
        ("scalableRef", scalable.required(&["kind", "name"])),
        ("replicas", Schema::small("How many pods to keep room for.").at_least(0)),
        ("percentage", Schema::small(percentage).at_least(0)),
        ("limits", Schema::resources("The most that the room may add up to.")),
    ];
    Schema::object("What room is wanted.", fields)
        .rule(
            "with podTemplateRef, replicas or limits must say how much room",
            "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        )
        .rule(
            "set podTemplateRef or scalableRef, not both",
            "!has(self.podTemplateRef) || !has(self.scalableRef)",
        )
}

fn status() -> Schema {
    let fields = [
        ("conditions", conditions(Detail::Full)),
        ("podTemplateGeneration", Schema::large("The generation of the template that was read.")),
        ("podTemplateRef", template_ref("The template that was read.")),
        ("provisioningStrategy", Schema::text("How the room is kept.")),
        ("replicas", Schema::small("How many pods room is kept for.")),
    ];
    Schema::object("What room there is.", fields)
}
