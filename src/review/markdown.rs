//! The comment under a pull request: one screen, the verdict first, everything else folded.
//!
//! Equal results give equal text, so that a comment that says nothing new need not be touched. Words of the repository go
//! through [`super::escape`]; the marker in the first line, by which the one comment is found again, cannot be forged by them.

use super::escape::{cell, code, text};
use super::headline::{self, in_cents, signed_dollars};
use super::report::{
    Change, EnvironmentReview, FieldReview, Mode, ObjectReview, OriginReview, PolicyReview, Remark, Review,
    Verdict, WaitingPod,
};
use crate::gitops::diff::show;
use crate::model::count::counted;

/// Letters of a comment: GitHub takes 65,536; the rest is slack for what a pipeline adds.
pub const LETTERS_MAX: usize = 62_000;
/// Rows of one table or list; the rest is counted.
const ROWS_MAX: usize = 25;

/// The review as one comment. `set` tells it from other reviews of the same proposal.
pub fn markdown(review: &Review, set: &str) -> String {
    let needs_action = needs_action(review);
    let sign = match (review.verdict, needs_action.is_empty()) {
        (Verdict::Fail, _) => "❌",
        (Verdict::Pass, false) => "⚠️",
        (Verdict::Pass, true) => "✅",
    };
    let mut body = format!("{}\n### {sign} provisor: {}\n", marker(set), text(&review.headline));
    let footer = footer(review);
    let mut sections = vec![table(review), needs_action];
    let changed: Vec<&EnvironmentReview> =
        review.environments.iter().filter(|environment| environment.change != Change::Unchanged).collect();
    for environment in changed.iter().filter(|environment| environment.change != Change::Unknown) {
        sections.push(what_changes(environment));
    }
    for environment in &changed {
        sections.push(cost(environment));
        sections.push(roll(environment));
    }
    sections.push(assumptions(review));
    let mut dropped = 0;
    let mut left = LETTERS_MAX.saturating_sub(body.chars().count() + footer.chars().count() + 200);
    for section in sections.into_iter().filter(|section| !section.is_empty()) {
        let letters = section.chars().count() + 1;
        // Once something is left out, what follows is less important still.
        if dropped > 0 || letters > left {
            dropped += 1;
            continue;
        }
        left -= letters;
        body.push('\n');
        body.push_str(&section);
    }
    if dropped > 0 {
        let parts = counted(dropped, "section");
        body.push_str(&format!("\n{parts} left out for length; `--output json` has everything.\n"));
    }
    body.push('\n');
    body.push_str(&footer);
    body
}

/// The comment if there is nothing to review: the mistakes of the proposal, or that it cannot be merged.
pub fn refusal(message: &str, mistakes: impl Iterator<Item = Remark>, set: &str) -> String {
    let mistakes: Vec<String> = mistakes.map(|mistake| format!("- ❌ {}", remark(&mistake))).collect();
    let headline = if message.is_empty() { "the proposal is not valid" } else { message };
    let mut body = format!("{}\n### ❌ provisor: {}\n", marker(set), text(headline));
    if !mistakes.is_empty() {
        let more = match mistakes.len().saturating_sub(ROWS_MAX) {
            0 => String::new(),
            more => format!("\n- {more} more; `provisor validate` tells all"),
        };
        let shown: Vec<String> = mistakes.into_iter().take(ROWS_MAX).collect();
        body.push_str(&format!("\n**Needs action**\n\n{}{more}\n", shown.join("\n")));
    }
    body.push_str("\nNothing was reviewed.\n");
    body
}

/// The first line, by which the one comment of a set is found again.
fn marker(set: &str) -> String {
    // Without a dash that could end it, a set cannot close the comment that it is part of.
    let set: String = set.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect();
    format!("<!-- provisor:review set={set} -->")
}

fn table(review: &Review) -> String {
    let mut rows = String::new();
    let changed: Vec<&EnvironmentReview> =
        review.environments.iter().filter(|environment| environment.change != Change::Unchanged).collect();
    for environment in changed.iter().take(ROWS_MAX) {
        let name = cell(&environment.name);
        let row = if environment.nodes.is_some() {
            format!(
                "| {name} | {} | {} | {} | {} |\n",
                headline::nodes(environment),
                headline::per_hour(environment),
                headline::per_month(environment),
                headline::pods(environment)
            )
        } else if environment.change == Change::Unknown {
            format!("| {name} | not known: the base is not valid | | | |\n")
        } else {
            format!("| {name} | objects compared, not played | | | |\n")
        };
        rows.push_str(&row);
    }
    if changed.is_empty() {
        return String::new();
    }
    if changed.len() > ROWS_MAX {
        rows.push_str(&format!("| {} more | | | | |\n", changed.len() - ROWS_MAX));
    }
    let unchanged: Vec<String> = review
        .environments
        .iter()
        .filter(|environment| environment.change == Change::Unchanged)
        .map(|environment| cell(&environment.name))
        .collect();
    if !unchanged.is_empty() {
        rows.push_str(&format!("| {} | no change | | | |\n", unchanged.join(", ")));
    }
    let notes = changed.iter().take(ROWS_MAX).flat_map(|environment| {
        let notes = [
            headline::pruning(environment),
            headline::reached(environment),
            headline::course(environment),
            headline::chance(environment),
        ]
        .into_iter()
        .flatten();
        notes.map(|note| format!("\n{}: {}.\n", code(&environment.name), text(&note)))
    });
    let notes: String = notes.collect();
    format!("| Environment | Nodes | Per hour | Per month | Pods |\n|---|---|---|---|---|\n{rows}{notes}")
}

fn needs_action(review: &Review) -> String {
    let mut items = Vec::new();
    for gate in review.gates.iter().filter(|gate| !gate.passed) {
        items.push(format!("- ❌ gate {}: {}", code(&gate.gate), text(&gate.message)));
    }
    for environment in &review.environments {
        let name = code(&environment.name);
        items.extend(
            environment.policies.iter().map(|policy| format!("- {} {name}: {}", sign(policy), rule(policy))),
        );
        let waiting = environment.pods.iter().flat_map(|pods| &pods.new_unschedulable);
        for (pods, first) in alike(waiting) {
            let what = match (first.lost_only_pool, first.still_runs) {
                (true, true) => "would find no pool again if restarted",
                (true, false) => "no pool takes them any more",
                (false, true) => "would find no room again if restarted",
                (false, false) => "no room",
            };
            let reasons: Vec<String> = first
                .reasons
                .iter()
                .take(4)
                .map(|reason| match &reason.pool {
                    Some(pool) => format!("{} {}", code(pool), text(&reason.message)),
                    None => text(&reason.message),
                })
                .collect();
            let reasons =
                if reasons.is_empty() { String::new() } else { format!(" — {}", reasons.join("; ")) };
            items.push(format!(
                "- ❌ {name}: {} ({pods}): {what}{reasons}",
                counted_alike(environment, first)
            ));
        }
        for blocker in environment.roll.iter().flat_map(|roll| &roll.blockers) {
            items.push(format!("- ⚠️ {name}: nodes that should be replaced stay: {}", text(blocker)));
        }
        for limit in environment.limits.iter().flatten() {
            let what = if limit.is_exceeded { "is exceeded" } else { "leaves pods waiting" };
            let waiting = match limit.waiting_pods {
                0 => String::new(),
                count => format!(", {} waiting", counted(count, "pod")),
            };
            items.push(format!(
                "- ⚠️ {name}: limit {} of pool {} {what}: {} of {}{waiting}",
                code(&limit.resource),
                code(&limit.pool),
                text(&limit.used),
                text(&limit.limit)
            ));
        }
        for finding in &environment.findings {
            items.push(format!("- ⚠️ {name}: {}", remark(finding)));
        }
    }
    for diagnostic in &review.diagnostics {
        items.push(format!("- ⚠️ {}", remark(diagnostic)));
    }
    if items.is_empty() {
        return String::new();
    }
    let more = items.len().saturating_sub(ROWS_MAX);
    items.truncate(ROWS_MAX);
    if more > 0 {
        items.push(format!("- {more} more in `--output json`"));
    }
    format!("**Needs action**\n\n{}\n", items.join("\n"))
}

/// Pods that wait for the same reasons, once: the first of them and their names.
fn alike<'a>(pods: impl Iterator<Item = &'a WaitingPod>) -> Vec<(String, &'a WaitingPod)> {
    let mut groups: Vec<(&WaitingPod, Vec<&str>)> = Vec::new();
    for pod in pods {
        match groups.iter_mut().find(|(first, _)| is_alike(first, pod)) {
            Some((_, names)) => names.push(&pod.pod),
            None => groups.push((pod, vec![&pod.pod])),
        }
    }
    let shown = |names: Vec<&str>| {
        let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
        let first: Vec<String> = names.iter().take(3).map(|name| code(name)).collect();
        format!("{}{more}", first.join(", "))
    };
    groups.into_iter().map(|(first, names)| (shown(names), first)).collect()
}

fn is_alike(one: &WaitingPod, other: &WaitingPod) -> bool {
    one.still_runs == other.still_runs
        && one.lost_only_pool == other.lost_only_pool
        && one.reasons == other.reasons
}

fn counted_alike(environment: &EnvironmentReview, first: &WaitingPod) -> String {
    let pods = environment.pods.iter().flat_map(|pods| &pods.new_unschedulable);
    counted(pods.filter(|pod| is_alike(first, pod)).count(), "pod")
}

fn remark(remark: &Remark) -> String {
    let place =
        remark.origin.as_ref().map(|origin| format!(" · {}", code(&place(origin)))).unwrap_or_default();
    format!("{} {}{place}", code(&remark.code), text(&remark.message))
}

fn sign(policy: &PolicyReview) -> &'static str {
    if policy.severity == "deny" { "❌" } else { "⚠️" }
}

/// What a guardrail says, of what, and where it stands.
fn rule(policy: &PolicyReview) -> String {
    let verb = match (policy.severity.as_str(), &policy.waived) {
        ("deny", _) => "denied by",
        (_, Some(_)) => "waived, else denied by",
        (_, None) => "warned by",
    };
    let at = |origin: &Option<OriginReview>| origin.as_ref().map(|origin| code(&place(origin)));
    let about = at(&policy.origin).map(|place| format!(" · {place}")).unwrap_or_default();
    let rule = at(&policy.rule).map(|place| format!(", rule {place}")).unwrap_or_default();
    let old = if policy.is_new { "" } else { " (the base breaks it too)" };
    let waived = policy.waived.as_ref().map(|waived| {
        let people = text(&waived.approvers.join(", "));
        format!(" (until {} by {people}: {})", text(&waived.until), text(&waived.reason))
    });
    // Only what is denied can be waived, and its name is what people write into the waiver.
    let name = match policy.severity.as_str() {
        "deny" => format!(", violation {}", code(&policy.violation)),
        _ => waived.unwrap_or_default(),
    };
    format!("{verb} {}: {}{old}{about}{rule}{name}", code(&policy.id), text(&policy.message))
}

fn place(origin: &OriginReview) -> String {
    format!("{}:{}:{}", origin.file, origin.line, origin.column)
}

fn what_changes(environment: &EnvironmentReview) -> String {
    let fields: usize = environment.objects.iter().map(|object| object.fields.len()).sum();
    let mut rows = Vec::new();
    for object in &environment.objects {
        let name = cell(&format!("{}/{}", object.kind, object.name));
        if object.fields.is_empty() {
            let what = match object.action.as_str() {
                "create" => "added",
                "delete" => "removed",
                _ => "changed",
            };
            rows.push(format!(
                "| {name} | {what} | | | {} | {} |",
                effect(&object.impact, object.nodes),
                origin(object.origin.as_ref())
            ));
        }
        rows.extend(object.fields.iter().map(|field| field_row(&name, object, field)));
    }
    let more = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    if more > 0 {
        rows.push(format!("| {more} more | | | | | |"));
    }
    format!(
        "<details><summary>{} — what changes ({}, {})</summary>\n\n\
         | Object | Field | Before | After | Nodes | Where |\n|---|---|---|---|---|---|\n{}\n\n</details>\n",
        text(&environment.name),
        counted(environment.objects.len(), "object"),
        counted(fields, "field"),
        rows.join("\n")
    )
}

fn field_row(name: &str, object: &ObjectReview, field: &FieldReview) -> String {
    let path = field.path.strip_prefix("spec.").unwrap_or(&field.path);
    format!(
        "| {name} | {} | {} | {} | {} | {} |",
        cell(path),
        cell(&show(field.before.as_ref())),
        cell(&show(field.after.as_ref())),
        effect(&field.impact, field.nodes),
        origin(field.origin.as_ref().or(object.origin.as_ref()))
    )
}

/// What a change asks for, in words; whether it comes to pass is another question.
pub fn effect(impact: &str, nodes: Option<u32>) -> String {
    let count = nodes.map_or_else(|| "nodes".to_owned(), |nodes| counted(nodes as usize, "node"));
    match impact {
        "may-roll-nodes" => format!("may replace {count}"),
        "rolls-nodes" => format!("{count} to replace"),
        "destructive" => format!("{count} to remove"),
        _ => "none".into(),
    }
}

fn origin(origin: Option<&OriginReview>) -> String {
    origin.map(|origin| cell(&place(origin))).unwrap_or_default()
}

fn cost(environment: &EnvironmentReview) -> String {
    let Some(cost) = &environment.cost else { return String::new() };
    let mut rows = Vec::new();
    for pool in &cost.by_pool {
        let nodes = headline::span(&pool.nodes_before.to_string(), &pool.nodes_after.to_string());
        let offerings = headline::span(&pool.offerings_before.to_string(), &pool.offerings_after.to_string());
        rows.push(format!(
            "| {} | {nodes} | ${} | ${} | {} | {offerings} |",
            cell(&pool.pool),
            in_cents(&pool.before),
            in_cents(&pool.after),
            signed_dollars(&pool.delta)
        ));
    }
    let more = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    if more > 0 {
        rows.push(format!("| {more} more | | | | | |"));
    }
    rows.push(format!(
        "| all | | ${} | ${} | {} | |",
        in_cents(&cost.before),
        in_cents(&cost.after),
        signed_dollars(&cost.delta)
    ));
    let mut notes = String::new();
    if !cost.unpriced.is_empty() {
        let types: Vec<String> = cost.unpriced.iter().take(ROWS_MAX).map(|kind| code(kind)).collect();
        notes.push_str(&format!("\nWithout a price, and in no sum: {}.\n", types.join(", ")));
    }
    notes.extend(headline::choice(environment).map(|choice| format!("\nNote: {}.\n", text(&choice))));
    format!(
        "<details><summary>{} — cost by pool, a month</summary>\n\n\
         | Pool | Nodes | Before | After | Difference | Offerings |\n|---|---|---|---|---|---|\n{}\n{notes}\n</details>\n",
        text(&environment.name),
        rows.join("\n")
    )
}

fn roll(environment: &EnvironmentReview) -> String {
    let Some(roll) = environment.roll.as_ref().filter(|roll| !roll.pools.is_empty()) else {
        return String::new();
    };
    let mut rows = Vec::new();
    for pool in roll.pools.iter().take(ROWS_MAX) {
        rows.push(format!(
            "| {} | {} | {} | {} |",
            cell(&pool.pool),
            headline::goes(pool),
            pool.at_once,
            headline::waves(pool)
        ));
    }
    let mut notes: Vec<String> = Vec::new();
    for pool in &roll.pools {
        notes.extend(headline::pauses(pool).map(|pauses| format!("{}: {}", code(&pool.pool), text(&pauses))));
    }
    notes.extend(headline::expiring(roll).map(|nodes| text(&nodes)));
    let notes: String = notes.iter().map(|note| format!("\nNote: {note}.\n")).collect();
    format!(
        "<details><summary>{} — roll under budgets</summary>\n\n\
         | Pool | Nodes to replace | At once | Waves |\n|---|---|---|---|\n{}\n{notes}\n</details>\n",
        text(&environment.name),
        rows.join("\n")
    )
}

fn assumptions(review: &Review) -> String {
    if review.assumptions.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = review.assumptions.iter().map(|line| format!("- {}", text(line))).collect();
    format!("<details><summary>assumptions</summary>\n\n{}\n\n</details>\n", lines.join("\n"))
}

fn footer(review: &Review) -> String {
    let short = |id: &str| code(id.get(..7).unwrap_or(id));
    let merge = review.head.merge_result.as_ref().map(|id| format!(" · merge result {}", short(id)));
    let data = match (review.mode, &review.data_as_of) {
        (Mode::Static, _) => "config only: nothing was played".to_owned(),
        (Mode::Simulation, _) => "demand simulated".to_owned(),
        (Mode::Snapshot, Some(moment)) => format!("snapshot of {moment}"),
        (Mode::Snapshot, None) => "snapshot".to_owned(),
    };
    format!(
        "Base {} · proposal {}{} · {data}\n",
        short(&review.base.commit),
        short(&review.head.side.commit),
        merge.unwrap_or_default()
    )
}
