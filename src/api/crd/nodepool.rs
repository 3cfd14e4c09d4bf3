//! NodePool `karpenter.sh/v1` (api.md 4).

use serde_json::json;

use super::constraints::{
    DURATION, DURATION_OR_NEVER, Detail, class_ref, conditions, labels, requirements, taints,
};
use super::schema::Schema;
use super::{AGE, Definition, READY, column, wide};
use crate::api::nodepool::{
    BUDGETS_MAX, CONSOLIDATE_AFTER_DEFAULT, EXPIRE_AFTER_DEFAULT, LABELS_MAX, MACROS, POLICIES, REASONS,
};
use crate::api::requirement::Place;

const BUDGET_NODES: &str = "^((100|[0-9]{1,2})%|[0-9]+)$";
const BUDGET_NODES_DEFAULT: &str = "10%";
/// Hours and minutes; Go prints `0s` after them.
const BUDGET_DURATION: &str = "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";

pub(super) fn definition() -> Definition {
    Definition {
        group: "karpenter.sh",
        version: "v1",
        kind: "NodePool",
        plural: "nodepools",
        short: &[],
        category: "karpenter",
        is_namespaced: false,
        about: "A kind of node that may be bought: which machines, how many, how they are replaced.",
        columns: vec![
            column("NodeClass", "string", ".spec.template.spec.nodeClassRef.name"),
            column("Nodes", "string", ".status.nodes"),
            READY,
            AGE,
            wide("Weight", "integer", ".spec.weight"),
            wide("CPU", "string", ".status.resources.cpu"),
            wide("Memory", "string", ".status.resources.memory"),
        ],
        spec: spec(),
        status: status(),
        scale: Some((".spec.replicas", ".status.nodes")),
    }
}

fn spec() -> Schema {
    let limits = "The most that all nodes of the pool may add up to, by resource; `nodes` counts nodes.";
    let replicas = "A fixed number of nodes, whatever pods ask for. Then only `limits.nodes` may be limited, there is \
                    no weight, and consolidation does nothing. An alpha feature.";
    let weight = "Which pool is asked first: the heavier one. Without one it weighs 0.";
    let fields = [
        ("template", template()),
        ("disruption", disruption()),
        ("limits", Schema::resources(limits)),
        ("weight", Schema::small(weight).between(1, 100)),
        ("replicas", Schema::large(replicas).at_least(0)),
    ];
    Schema::object("What is wanted of the pool.", fields)
        .required(&["template"])
        .rule(
            "replicas cannot be added to a pool or taken from it: make another pool",
            "has(self.replicas) == has(oldSelf.replicas)",
        )
        .rule(
            "with replicas only limits.nodes may be set",
            "!has(self.replicas) || !has(self.limits) || self.limits.all(name, name == 'nodes')",
        )
        .rule("with replicas there is no weight", "!has(self.replicas) || !has(self.weight)")
}

fn template() -> Schema {
    let annotations = Schema::map("Annotations of every node.", Schema::text(""));
    let metadata = [
        ("labels", labels("Labels of every node.", LABELS_MAX)),
        ("annotations", annotations.with("x-kubernetes-map-type", "granular")),
    ];
    let grace =
        "How long a node may take to drain before its pods are ended by force; unset: as long as they need.";
    let expire = "How old a node may become before it is replaced.";
    let startup =
        "Taints that something on the node takes away once it has started; pods need not tolerate them.";
    let spec = [
        ("requirements", requirements("What machines must be; all conditions hold.", Place::Pool)),
        ("taints", taints("Taints of every node.")),
        ("startupTaints", taints(startup)),
        ("nodeClassRef", class_ref(true)),
        ("expireAfter", Schema::text(expire).pattern(DURATION_OR_NEVER).default(EXPIRE_AFTER_DEFAULT)),
        ("terminationGracePeriod", Schema::text(grace).pattern(DURATION)),
    ];
    let spec = Schema::object("What every claim of the pool asks for.", spec);
    let fields = [
        ("metadata", Schema::object("What every node of the pool carries.", metadata)),
        ("spec", spec.required(&["nodeClassRef", "requirements"])),
    ];
    Schema::object("What nodes of the pool are like.", fields).required(&["spec"])
}

fn disruption() -> Schema {
    let after =
        "How long a node must be left alone by pods before it may be given back or replaced to save money.";
    let policy = "Which nodes may be given back to save money.";
    let fields = [
        ("budgets", budgets()),
        (
            "consolidateAfter",
            Schema::text(after).pattern(DURATION_OR_NEVER).default(CONSOLIDATE_AFTER_DEFAULT),
        ),
        ("consolidationPolicy", Schema::text(policy).one_of(&POLICIES).default("WhenEmptyOrUnderutilized")),
    ];
    Schema::object("How nodes of the pool may be given back and replaced.", fields)
        .default(json!({"consolidateAfter": CONSOLIDATE_AFTER_DEFAULT}))
}

fn budgets() -> Schema {
    let about = "How many nodes may go at once. Where several budgets are open, the smallest counts.";
    let reason = Schema::text("").one_of(&REASONS);
    let reasons = Schema::list("What the budget limits; unset: everything.", reason).items_max(BUDGETS_MAX);
    let schedule =
        "When the budget opens: five fields of cron in UTC, or a word such as @daily. Needs `duration`.";
    let duration = "How long the budget stays open, in hours and minutes. Needs `schedule`.";
    let nodes = "A number of nodes, or a percentage of the pool's nodes.";
    let words: Vec<&str> = MACROS.iter().map(|word| &word[1..]).collect();
    // Not anchored as a whole: Karpenter's is not either, and what cron cannot read is the controller's to report.
    let opens = format!(r"^(@({}))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$", words.join("|"));
    let fields = [
        ("nodes", Schema::text(nodes).pattern(BUDGET_NODES).default(BUDGET_NODES_DEFAULT)),
        ("reasons", reasons.with("x-kubernetes-list-type", "set")),
        ("schedule", Schema::text(schedule).pattern(&opens)),
        ("duration", Schema::text(duration).pattern(BUDGET_DURATION)),
    ];
    let budget = Schema::object("How many nodes may go at once, and when.", fields).required(&["nodes"]);
    Schema::list(about, budget)
        .items_max(BUDGETS_MAX)
        .atomic()
        .default(json!([{"nodes": BUDGET_NODES_DEFAULT}]))
        .rule(
            "a budget needs both schedule and duration, or neither",
            "self.all(budget, has(budget.schedule) == has(budget.duration))",
        )
}

fn status() -> Schema {
    let observed = "The generation of the class that nodes were last registered with.";
    let fields = [
        ("conditions", conditions(Detail::Full)),
        ("nodeClassObservedGeneration", Schema::large(observed)),
        ("nodes", Schema::large("How many nodes the pool has.").default(0)),
        ("resources", Schema::resources("What the pool's nodes add up to.")),
    ];
    Schema::object("How the pool stands.", fields)
}
