//! The numbers of a review in a few words: what the first line says, and the cells under it.

use super::gate::counted;
use super::report::{Change, EnvironmentReview, decimal};
use crate::model::money::UsdPerHour;

/// One sentence for all environments, those that change first.
pub fn headline(environments: &[EnvironmentReview]) -> String {
    let changed: Vec<&EnvironmentReview> =
        environments.iter().filter(|environment| environment.change != Change::Unchanged).collect();
    match changed.as_slice() {
        [] => match environments.iter().map(|environment| environment.findings.len()).sum() {
            0 => "nothing to say: no capacity change".to_owned(),
            count => format!("no capacity change, {}", counted(count, "new warning")),
        },
        [one] => format!("{} {}", one.name, of_environment(one)),
        some if some.len() <= 3 => {
            let parts: Vec<String> =
                some.iter().map(|one| format!("{} {}", one.name, of_environment(one))).collect();
            parts.join("; ")
        }
        many => {
            let sum =
                |count: fn(&EnvironmentReview) -> usize| many.iter().map(|one| count(one)).sum::<usize>();
            let replaced = sum(|one| one.nodes.as_ref().map_or(0, |nodes| nodes.drifted + nodes.retired));
            let lost = sum(|one| one.pods.as_ref().map_or(0, |pods| pods.new_unschedulable.len()));
            let mut said = vec![format!("{} change", counted(many.len(), "environment"))];
            said.extend((replaced > 0).then(|| format!("{} replaced or removed", counted(replaced, "node"))));
            said.extend((lost > 0).then(|| format!("{} without a place", counted(lost, "pod"))));
            said.join(", ")
        }
    }
}

fn of_environment(environment: &EnvironmentReview) -> String {
    let mut said: Vec<String> = Vec::new();
    match environment.change {
        Change::Added => said.push("is new".into()),
        Change::Removed => said.push("is removed".into()),
        Change::Changed | Change::Unchanged => {}
    }
    if let Some(nodes) = &environment.nodes {
        let verbs = [
            ("replaces", nodes.drifted),
            ("removes", nodes.retired),
            ("gives back", nodes.consolidated),
            ("cannot replace", nodes.stuck.len()),
        ];
        let verbs = verbs.iter().filter(|(_, count)| *count > 0);
        said.extend(verbs.map(|(verb, count)| format!("{verb} {}", counted(*count, "node"))));
    }
    if let Some(pods) = &environment.pods {
        let lost = pods.new_unschedulable.iter().filter(|pod| pod.lost_only_pool).count();
        let waiting = pods.new_unschedulable.len() - lost;
        said.extend((pods.moved > 0).then(|| format!("moves {}", counted(pods.moved, "pod"))));
        said.extend((lost > 0).then(|| {
            format!("{} {} their only pool", counted(lost, "pod"), if lost == 1 { "loses" } else { "lose" })
        }));
        said.extend((waiting > 0).then(|| format!("leaves {} pending", counted(waiting, "pod"))));
    }
    // What is saved on pods that no longer run is no saving.
    let all_run = environment.pods.as_ref().is_none_or(|pods| pods.new_unschedulable.is_empty());
    let cost = environment.cost.as_ref().filter(|cost| all_run && cost.usd_per_hour.delta != "0");
    if let Some(cost) = cost {
        said.push(format!("{} a month", signed_dollars(&cost.delta)));
    }
    if environment.nodes.is_none() && environment.change == Change::Changed {
        let fields: usize = environment.objects.iter().map(|object| object.fields.len().max(1)).sum();
        let rolls = environment.objects.iter().any(|object| object.impact != "none");
        let nodes = if rolls { "nodes may be replaced" } else { "no node is replaced" };
        said.push(format!("changes {}, {nodes}", counted(fields, "field")));
    } else if said.is_empty()
        || (said.len() == 1
            && environment.nodes.is_some()
            && environment.change == Change::Changed
            && is_quiet(environment))
    {
        said.insert(0, "replaces no node".into());
    }
    said.join(", ")
}

/// Nothing happens to what runs; only what is bought next differs.
fn is_quiet(environment: &EnvironmentReview) -> bool {
    environment
        .nodes
        .as_ref()
        .is_some_and(|nodes| nodes.drifted + nodes.retired + nodes.consolidated + nodes.stuck.len() == 0)
        && environment.pods.as_ref().is_some_and(|pods| pods.moved + pods.new_unschedulable.len() == 0)
}

/// `5 → 6: 3 replaced, 1 bought`.
pub fn nodes(environment: &EnvironmentReview) -> String {
    let Some(nodes) = &environment.nodes else { return "not played".into() };
    let kinds = [
        ("replaced", nodes.drifted),
        ("removed", nodes.retired),
        ("given back", nodes.consolidated),
        ("stuck", nodes.stuck.len()),
    ];
    let kinds: Vec<String> =
        kinds.iter().filter(|(_, count)| *count > 0).map(|(kind, count)| format!("{count} {kind}")).collect();
    let span = match nodes.before == nodes.after {
        true => nodes.after.to_string(),
        false => format!("{} → {}", nodes.before, nodes.after),
    };
    if kinds.is_empty() { span } else { format!("{span}: {}", kinds.join(", ")) }
}

/// `$0.32 → $0.30`.
pub fn per_hour(environment: &EnvironmentReview) -> String {
    let Some(cost) = &environment.cost else { return "not played".into() };
    let span = &cost.usd_per_hour;
    let partial = if cost.unpriced.is_empty() { "" } else { " (partial)" };
    match span.before == span.after {
        true => format!("${}{partial}", span.after),
        false => format!("${} → ${}{partial}", span.before, span.after),
    }
}

/// `+$12.30 (spot +$2.30, on-demand +$10.00)`.
pub fn per_month(environment: &EnvironmentReview) -> String {
    let Some(cost) = &environment.cost else { return "not played".into() };
    let parts = [
        ("spot", &cost.by_capacity_type.spot),
        ("on-demand", &cost.by_capacity_type.on_demand),
        ("reserved", &cost.by_capacity_type.reserved),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, delta)| delta.as_str() != "0.00")
        .map(|(kind, delta)| format!("{kind} {}", signed_dollars(delta)))
        .collect();
    match (cost.delta.as_str(), parts.is_empty()) {
        ("0.00", true) => "±$0".into(),
        (delta, true) => signed_dollars(delta),
        (delta, false) => format!("{} ({})", signed_dollars(delta), parts.join(", ")),
    }
}

/// `9 moved, 2 without a place`.
pub fn pods(environment: &EnvironmentReview) -> String {
    let Some(pods) = &environment.pods else { return "not played".into() };
    let kinds = [
        ("moved", pods.moved),
        ("without a place", pods.new_unschedulable.len()),
        ("fixed", pods.fixed.len()),
        ("waiting anyway", pods.waiting_anyway),
    ];
    let kinds: Vec<String> =
        kinds.iter().filter(|(_, count)| *count > 0).map(|(kind, count)| format!("{count} {kind}")).collect();
    if kinds.is_empty() { "none moved".into() } else { kinds.join(", ") }
}

/// `+$12.30`, `−$3.00`, `±$0`.
pub fn signed_dollars(amount: &str) -> String {
    let cents = in_cents(amount);
    match cents.strip_prefix('-') {
        Some(cents) => format!("−${cents}"),
        None if cents == "0.00" => "±$0".into(),
        None => format!("+${cents}"),
    }
}

/// An amount for people: to the cent, halves away from zero.
pub fn in_cents(amount: &str) -> String {
    let Ok(micros) = amount.parse::<UsdPerHour>() else { return amount.to_owned() };
    let cents = (i128::from(micros.0).abs() + 5_000) / 10_000 * i128::from(micros.0.signum());
    decimal(cents * 10_000)
}

/// Where the cluster stops by itself, if that is not what its pools would buy anew.
pub fn reached(environment: &EnvironmentReview) -> Option<String> {
    let cost = environment.cost.as_ref()?;
    let reached: UsdPerHour = cost.reached_usd_per_hour.parse().ok()?;
    let steady: UsdPerHour = cost.usd_per_hour.after.parse().ok()?;
    (reached != steady).then(|| {
        format!("what runs now is left at ${reached}/h by the change; bought anew it would cost ${steady}/h")
    })
}
