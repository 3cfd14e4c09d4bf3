//! The review for a terminal: the verdict, one table of numbers, then what is to be done and where it comes from.

use crate::gitops::diff::show;
use crate::model::visible::visible_line;
use crate::review::headline;
use crate::review::markdown::effect;
use crate::review::report::{Change, EnvironmentReview, OriginReview, Review, Verdict};
use crate::ui::console::{Console, Tone};
use crate::ui::table::Table;

/// Pods without a place that are listed; all are counted.
const PODS_MAX: usize = 25;

pub fn render(review: &Review, console: &Console) -> String {
    let verdict = match review.verdict {
        Verdict::Pass => console.paint(Tone::Good, "pass"),
        Verdict::Fail => console.paint(Tone::Bad, "fail"),
    };
    let mut parts = vec![format!("{verdict}: {}\n", visible_line(&review.headline))];
    let changed: Vec<&EnvironmentReview> =
        review.environments.iter().filter(|environment| environment.change != Change::Unchanged).collect();
    let mut part = |title: &str, table: Table| {
        if !table.is_empty() {
            parts.push(format!("{}\n{table}", console.paint(Tone::Strong, title)));
        }
    };
    let mut numbers = Table::new(&["ENVIRONMENT", "NODES", "PER HOUR", "PER MONTH", "PODS"]);
    for environment in &changed {
        let cells = [headline::nodes, headline::per_hour, headline::per_month, headline::pods];
        let cells = cells.map(|cell| cell(environment));
        numbers.row([environment.name.clone()].into_iter().chain(cells));
    }
    for environment in review.environments.iter().filter(|one| one.change == Change::Unchanged) {
        if !changed.is_empty() {
            numbers.row([&environment.name, "no change"]);
        }
    }
    part("Numbers", numbers);
    let mut changes = Table::new(&["ENVIRONMENT", "OBJECT", "FIELD", "FROM", "TO", "NODES", "WHERE"]);
    for environment in &changed {
        for object in &environment.objects {
            let name = format!("{}/{}", object.kind, object.name);
            let row = |path: &str, from: String, to: String, nodes: String, origin: Option<&OriginReview>| {
                [environment.name.clone(), name.clone(), path.to_owned(), from, to, nodes, place(origin)]
            };
            if object.fields.is_empty() {
                let what = match object.action.as_str() {
                    "create" => "added",
                    "delete" => "removed",
                    _ => "changed",
                };
                let nodes = effect(&object.impact, object.nodes);
                changes.row(row(what, String::new(), String::new(), nodes, object.origin.as_ref()));
            }
            for field in &object.fields {
                let path = field.path.strip_prefix("spec.").unwrap_or(&field.path);
                let (from, to) = (show(field.before.as_ref()), show(field.after.as_ref()));
                let nodes = effect(&field.impact, field.nodes);
                let origin = field.origin.as_ref().or(object.origin.as_ref());
                changes.row(row(path, from.into_owned(), to.into_owned(), nodes, origin));
            }
        }
    }
    part("Changes", changes);
    let mut waiting = Table::new(&["POD", "POOL", "CODE", "WHY"]);
    let pods = changed.iter().filter_map(|environment| environment.pods.as_ref());
    let pods: Vec<_> = pods.flat_map(|pods| &pods.new_unschedulable).collect();
    for pod in pods.iter().take(PODS_MAX) {
        for reason in &pod.reasons {
            let pool = reason.pool.clone().unwrap_or_default();
            waiting.row([&pod.pod, &pool, &reason.code, &reason.message].map(String::clone));
        }
        if pod.reasons.is_empty() {
            waiting.row([pod.pod.clone()]);
        }
    }
    if pods.len() > PODS_MAX {
        waiting.row([format!("{} more", pods.len() - PODS_MAX)]);
    }
    part("Pods that lose their place", waiting);
    let mut limits = Table::new(&["POOL", "LIMIT", ">USED", ">OF", ">WAITING"]);
    for limit in changed.iter().filter_map(|environment| environment.limits.as_ref()).flatten() {
        let waiting = limit.waiting_pods.to_string();
        limits.row([&limit.pool, &limit.resource, &limit.used, &limit.limit, &waiting].map(String::clone));
    }
    part("Limits", limits);
    let mut roll = Table::new(&["POOL", ">NODES", ">AT ONCE", ">WAVES"]);
    for pool in
        changed.iter().filter_map(|environment| environment.roll.as_ref()).flat_map(|roll| &roll.pools)
    {
        let waves = headline::waves(pool);
        roll.row([pool.pool.clone(), headline::goes(pool), pool.at_once.to_string(), waves]);
    }
    part("Roll under budgets", roll);
    let mut policies =
        Table::new(&["ENVIRONMENT", "SEVERITY", "GUARDRAIL", "VIOLATION", "WHY", "WHERE", "RULE"]);
    for environment in &review.environments {
        for policy in &environment.policies {
            let why = match &policy.waived {
                Some(waived) => {
                    format!("{} (waived until {}: {})", policy.message, waived.until, waived.reason)
                }
                None => policy.message.clone(),
            };
            let (about, rule) = (place(policy.origin.as_ref()), place(policy.rule.as_ref()));
            let words =
                [&environment.name, &policy.severity, &policy.id, &policy.violation, &why, &about, &rule];
            policies.row(words.map(String::clone));
        }
    }
    part("Guardrails", policies);
    let mut findings = Table::new(&["CODE", "WHAT", "WHERE"]);
    let found = review.environments.iter().flat_map(|environment| &environment.findings);
    for finding in found.chain(&review.diagnostics) {
        let cells = [finding.code.clone(), finding.message.clone(), place(finding.origin.as_ref())];
        findings.row(cells);
    }
    part("Worth a look", findings);
    let mut gates = Table::new(&["GATE", "VERDICT", "FOUND"]);
    for gate in review.gates.iter().filter(|gate| !gate.passed) {
        gates.row([gate.gate.as_str(), "fail", &gate.message]);
    }
    part("Gates", gates);
    for environment in &changed {
        for blocker in environment.roll.iter().flat_map(|roll| &roll.blockers) {
            parts.push(format!(
                "{}: nodes that should be replaced stay: {}\n",
                environment.name,
                visible_line(blocker)
            ));
        }
        for pool in environment.roll.iter().flat_map(|roll| &roll.pools) {
            if let Some(pauses) = headline::pauses(pool) {
                parts.push(format!(
                    "{}: {}: {}\n",
                    environment.name,
                    visible_line(&pool.pool),
                    visible_line(&pauses)
                ));
            }
        }
        let expiring = environment.roll.as_ref().and_then(headline::expiring);
        let (course, chance) = (headline::course(environment), headline::chance(environment));
        for note in [headline::pruning(environment), course, chance, expiring, headline::choice(environment)]
            .into_iter()
            .flatten()
        {
            parts.push(format!("{}: {note}\n", environment.name));
        }
        if let Some(reached) = headline::reached(environment) {
            parts.push(format!("{}: {reached}\n", environment.name));
        }
    }
    if review.says_something() {
        parts.push(format!("{}\n", visible_line(&review.demand)));
    }
    parts.join("\n")
}

fn place(origin: Option<&OriginReview>) -> String {
    origin.map(|origin| format!("{}:{}:{}", origin.file, origin.line, origin.column)).unwrap_or_default()
}
