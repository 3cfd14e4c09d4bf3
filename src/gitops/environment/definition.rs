//! How an API server is taught the kind: every field of the types beside, and of the status that a sync reports.

use super::{INTERVAL_DEFAULT, Limits, SyncCeilings};
use crate::api::crd::schema::Schema;
use crate::api::crd::{AGE, Definition, Detail, READY, column, conditions, wide};

const DURATION: &str = "^([0-9]+(s|m|h))+$";
const VERIFICATION: [&str; 5] = ["none", "head", "tag", "tagAndHead", "range"];
const MODES: [&str; 3] = ["manual", "auto", "autoHeal"];
const PRUNES: [&str; 3] = ["off", "retire", "now"];
const ADOPTS: [&str; 3] = ["fail", "match", "take"];
const CLASSES: [&str; 4] = ["additive", "behavioural", "rolling", "destructive"];

pub fn definition() -> Definition {
    Definition {
        group: "provisor.dev",
        version: "v1alpha1",
        kind: super::KIND,
        plural: "environments",
        short: &["penv"],
        category: "provisor",
        is_namespaced: false,
        about: "Which part of which repository this cluster follows, and under which rules.",
        columns: vec![
            column("Sync", "string", ".status.sync"),
            column("Rollout", "string", ".status.rollout.state"),
            column("Health", "string", ".status.health"),
            column("Revision", "string", ".status.lastAppliedRevision"),
            READY,
            AGE,
            wide("URL", "string", ".spec.source.url"),
            wide("Path", "string", ".spec.path"),
        ],
        spec: spec(),
        status: status(),
        scale: None,
    }
}

fn secret(about: &str) -> Schema {
    let name = Schema::text("The name of a Secret in the controller's namespace.").not_empty();
    Schema::object(about, [("name", name)]).required(&["name"])
}

fn spec() -> Schema {
    let environment = "Which of the fleet's environments; the name of this object if it is not set.";
    let suspension = [
        ("reason", Schema::text("Why; people read it wherever the environment is shown.").not_empty()),
        ("until", Schema::moment("When it ends by itself.")),
    ];
    let suspension = Schema::object(
        "That no commit is to be applied, and why. Nodes are bought and given back as before.",
        suspension,
    );
    let fields = [
        ("source", source()),
        ("path", Schema::text("The directory of the fleet inside the repository; unset: its top.")),
        ("environment", Schema::text(environment).not_empty()),
        ("verification", verification()),
        ("sync", sync()),
        ("windows", windows()),
        ("suspend", suspension.required(&["reason"])),
    ];
    Schema::object("What is followed, and under which rules. `provisor run` goes by `sync`, `windows` and `suspend`, and applies nothing where `verification` asks for signatures; which repository and what of it its command line says: that is not read here.", fields).required(&["source"])
}

fn source() -> Schema {
    let references = ["commit", "name", "semver", "tag", "branch"];
    let has_one: Vec<String> = references.iter().map(|name| format!("has(self.{name})")).collect();
    let commit = "A commit by its 40 digits; with `branch` it must be part of that branch.";
    let fields = [
        ("url", Schema::text("The address of the repository.").not_empty()),
        ("commit", Schema::text(commit).pattern("^[0-9a-f]{40}$")),
        ("name", Schema::text("A full name, such as refs/heads/main.").pattern("^refs/")),
        ("semver", Schema::text("A range of versions among the tags, such as 1.x.").not_empty()),
        ("tagPrefix", Schema::text("Cut from tags before they are compared with `semver`.")),
        ("tag", Schema::text("A tag.").not_empty()),
        ("branch", Schema::text("A branch.").not_empty()),
        (
            "interval",
            Schema::text("How often the repository is asked.").pattern(DURATION).default(INTERVAL_DEFAULT),
        ),
        ("secretRef", secret("Credentials for the repository.")),
    ];
    Schema::object("The repository. The first reference that is set counts.", fields)
        .required(&["url"])
        .rule(&format!("set one of {}", references.join(", ")), &has_one.join(" || "))
}

fn verification() -> Schema {
    let mode = Schema::text("What must be signed by a trusted key.").one_of(&VERIFICATION).default("none");
    let fields = [("mode", mode), ("secretRef", secret("The trusted keys."))];
    Schema::object(
        "Whose signature a commit needs before it is looked at. No signature is looked at yet: `provisor run` applies nothing where `mode` is not `none`.",
        fields,
    )
    .rule("trusted keys are needed: set secretRef", "self.mode == 'none' || has(self.secretRef)")
}

fn sync() -> Schema {
    let usual = serde_json::to_value(SyncCeilings::default()).unwrap_or_default();
    let word = |name: &str, about: &str, words: &[&str]| {
        Schema::text(about).one_of(words).default(usual[name].clone())
    };
    let switch = |name: &str, about: &str| Schema::boolean(about).default(usual[name].clone());
    let ignored = [
        ("kind", Schema::text("Of objects of this kind.").not_empty()),
        ("name", Schema::text("Of objects of this name; `*` and `?` stand for letters.").not_empty()),
        ("path", Schema::text("A JSON pointer or a dotted path; all below is meant too.").not_empty()),
    ];
    let ignored = Schema::object("A field that somebody else may keep.", ignored)
        .required(&["path"])
        .rule("select objects by kind, name or both", "has(self.kind) || has(self.name)");
    let mode = "Who starts a sync: a person, each commit, or each commit and each drift. Unset: autoHeal.";
    let prune = "What happens to objects that left Git. Unset: as `--prune` of `provisor run` says.";
    let protected = "Pools that stay whatever Git says; `*` and `?` stand for letters.";
    let fields = [
        ("mode", Schema::text(mode).one_of(&MODES)),
        ("prune", Schema::text(prune).one_of(&PRUNES)),
        ("pruneCeiling", word("pruneCeiling", "The most that a person may ask for.", &PRUNES)),
        ("adopt", word("adopt", "What happens to objects that nobody tracks yet.", &ADOPTS)),
        ("allowEmpty", switch("allowEmpty", "Whether a commit that wants nothing may remove all.")),
        ("confirmPrune", switch("confirmPrune", "Whether removing a pool with nodes asks a person.")),
        ("readOnly", switch("readOnly", "Compute and report, write nothing.")),
        ("protected", Schema::list(protected, Schema::text("").not_empty()).atomic()),
        ("ignore", Schema::list("Fields that somebody else may keep.", ignored).items_max(100).atomic()),
        ("limits", limits()),
    ];
    Schema::object("How commits are applied; a repository has no say in it.", fields)
}

fn limits() -> Schema {
    let usual = Limits::default();
    let percent = |about: &str, usual: u32| Schema::small(about).between(0, 100).default(usual);
    let fields = [
        (
            "poolsMax",
            Schema::small("Pools; or `poolsPercent`, whichever is more.")
                .at_least(0)
                .default(usual.pools_max),
        ),
        ("poolsPercent", percent("Share of the pools.", usual.pools_percent)),
        ("nodesPercent", percent("Share of the cluster's nodes, and of its cores.", usual.nodes_percent)),
        ("nodesMax", Schema::small("Nodes.").at_least(0)),
        ("rollNodesMax", Schema::small("Nodes that may be replaced within their budgets.").at_least(0)),
    ];
    Schema::object("How much one plan may take away without a person's word.", fields)
}

fn windows() -> Schema {
    let names = |about: &str| Schema::list(about, Schema::text("").not_empty()).atomic();
    let class = Schema::text("").one_of(&CLASSES);
    let zone = Schema::text("The time zone of the schedule, by its IANA name.").not_empty().default("UTC");
    let fields = [
        (
            "kind",
            Schema::text("Whether changes may or may not pass while it is open.").one_of(&["allow", "deny"]),
        ),
        (
            "schedule",
            Schema::text("When it opens: five fields of cron, or a word such as @daily.").not_empty(),
        ),
        ("duration", Schema::text("How long it stays open.").pattern(DURATION)),
        ("timeZone", zone),
        ("environments", names("For which environments; unset: all.")),
        ("pools", names("For which pools; unset: all.")),
        ("classes", Schema::list("For which changes; unset: all.", class).atomic()),
        ("manual", Schema::boolean("Whether a person's own sync passes.").default(false)),
        ("overrun", Schema::boolean("Whether a sync that runs already may finish.").default(false)),
    ];
    let window = Schema::object("A time in which changes may or may not pass.", fields);
    Schema::list(
        "When changes may pass; where windows of the repository speak of a change as well, both must be open.",
        window.required(&["kind", "schedule", "duration"]),
    )
    .atomic()
}

// ----------------------------------------------------------------------------------------------------------- status

fn status() -> Schema {
    let origin = "The line of the repository that it comes from.";
    let observed = "The newest commit that was looked at.";
    let health = ["Healthy", "Suspended", "Progressing", "Missing", "Degraded", "Unknown"];
    let count = |about: &str| Schema::small(about).at_least(0);
    let rollout = [
        (
            "state",
            Schema::text("How far it is.").one_of(&[
                "Complete",
                "Rolling",
                "Stalled",
                "Paused",
                "NotApplicable",
            ]),
        ),
        ("done", count("Nodes that are replaced.")),
        ("total", count("Nodes that were to be replaced.")),
        ("eta", Schema::moment("When the rest is done if it goes on like this.")),
        ("reason", Schema::text("Why it does not go on.")),
    ];
    let object = [
        ("apiVersion", Schema::text("Group and version.")),
        ("kind", Schema::text("Kind.")),
        ("name", Schema::text("Name.")),
        ("namespace", Schema::text("Namespace.")),
        ("uid", Schema::text("The object that was applied, not another of its name.")),
        ("digest", Schema::text("SHA-256 of what was applied.")),
        ("wave", Schema::small("The wave it belongs to.")),
        ("revision", Schema::text("The commit that last changed it.")),
        ("retiringSince", Schema::moment("Since when the pool is being emptied.")),
        ("health", Schema::text("Whether it works.").one_of(&health)),
        ("message", Schema::text("Why it does not.")),
        ("origin", Schema::text(origin)),
    ];
    let object = Schema::object("One object.", object).required(&["apiVersion", "kind", "name"]);
    let sync = ["Synced", "OutOfSync", "PartiallySynced", "Blocked", "Unknown"];
    let fields = [
        ("observedGeneration", Schema::large("The generation of the spec that this is about.")),
        ("sync", Schema::text("Whether the objects are what Git wants.").one_of(&sync)),
        (
            "rollout",
            Schema::object("Whether the nodes are what the objects want.", rollout).required(&["state"]),
        ),
        ("health", Schema::text("Whether the objects work.").one_of(&health)),
        ("observedRevision", Schema::text(observed)),
        ("lastAppliedRevision", Schema::text("The commit that was applied completely.")),
        ("plan", Schema::text("The plan that stands, by its hash.")),
        ("inventory", Schema::list("What was applied.", object).atomic()),
        ("history", Schema::list("What was done, oldest first.", history()).items_max(20).atomic()),
        ("conditions", conditions(Detail::Full)),
    ];
    Schema::object("How the environment stands.", fields)
}

fn history() -> Schema {
    let phases =
        ["Succeeded", "PartiallySynced", "Failed", "Interrupted", "Cancelled", "Superseded", "Stopped"];
    let fields = [
        ("id", Schema::large("Its number.")),
        ("revision", Schema::text("The commit.")),
        ("author", Schema::text("Who wrote the commit.")),
        ("subject", Schema::text("The commit's first line.")),
        ("plan", Schema::text("The plan that was carried out, by its hash.")),
        ("initiator", Schema::text("Who started it.")),
        ("started", Schema::moment("When it began.")),
        ("ended", Schema::moment("When it ended.")),
        ("phase", Schema::text("How it ended.").one_of(&phases)),
        ("summary", Schema::text("What it did, in words.")),
        ("count", Schema::small("How often in a row the same was done with the same outcome.")),
    ];
    Schema::object("One operation.", fields).required(&["id", "revision", "started", "phase"])
}
