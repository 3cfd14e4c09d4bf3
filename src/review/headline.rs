//! The numbers of a review in a few words: what the first line says, and the cells under it.

use std::collections::BTreeSet;

use super::report::{
    Change, CostReview, Counts, DrawReview, EnvironmentReview, ObjectReview, Pause, PolicyReview, PoolCost,
    PoolRoll, RollReview, Span, WaitingPod, decimal,
};
use crate::model::count::counted;
use crate::model::money::UsdPerHour;

/// How a headline begins if nobody need read on; comments are not written for it (`deploy/ci/provisor-comment`).
const NOTHING: &str = "nothing to say: ";

/// Pauses of a roll that are listed; all are counted.
const PAUSES_MAX: usize = 3;

/// One sentence for all environments, those that change first; `without_base` are those whose base is not valid.
pub fn headline(environments: &[EnvironmentReview], without_base: &[&str]) -> String {
    if !without_base.is_empty() {
        let is_compared = |one: &&EnvironmentReview| !without_base.contains(&one.name.as_str());
        let compared: Vec<EnvironmentReview> = environments.iter().filter(is_compared).cloned().collect();
        let unknown = format!("{} cannot be compared: the base is not valid", without_base.join(", "));
        if compared.is_empty() {
            return unknown;
        }
        let others = headline(&compared, &[]);
        // There is something to say, if not of these.
        return match others.strip_prefix(NOTHING) {
            Some(nothing) => format!("{unknown}; {nothing} elsewhere"),
            None => format!("{unknown}; {others}"),
        };
    }
    let policies = environments.iter().flat_map(|environment| &environment.policies);
    let denials = policies.filter(|policy| policy.severity == "deny");
    let rules: BTreeSet<&str> = denials.map(|policy| policy.id.as_str()).collect();
    let sentence = sentence(environments);
    if rules.is_empty() {
        return sentence;
    }
    let sentence = sentence.strip_prefix(NOTHING).unwrap_or(&sentence);
    format!("{sentence}, denied by {}", counted(rules.len(), "guardrail"))
}

/// A warning that the base does not have, and that nobody has agreed to.
pub fn is_new_warning(policy: &PolicyReview) -> bool {
    policy.severity == "warn" && policy.is_new && policy.waived.is_none()
}

/// Warnings that the base does not have.
fn warnings(environment: &EnvironmentReview) -> usize {
    let policies = environment.policies.iter();
    environment.findings.len() + policies.filter(|policy| is_new_warning(policy)).count()
}

fn sentence(environments: &[EnvironmentReview]) -> String {
    let changed: Vec<&EnvironmentReview> =
        environments.iter().filter(|environment| environment.change != Change::Unchanged).collect();
    match changed.as_slice() {
        [] => match environments.iter().map(warnings).sum() {
            0 => format!("{NOTHING}no capacity change"),
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
        Change::Changed | Change::Unchanged | Change::Unknown => {}
    }
    if let Some(nodes) = &environment.nodes {
        let verbs =
            [("replaces", nodes.drifted), ("removes", nodes.retired), ("gives back", nodes.consolidated)];
        let verbs = verbs.iter().filter(|(_, count)| *count > 0);
        said.extend(verbs.map(|(verb, count)| format!("{verb} {}", counted(*count, "node"))));
        let stuck = nodes.stuck.len();
        said.extend((stuck > 0).then(|| format!("keeps {} that should be replaced", counted(stuck, "node"))));
    }
    if let Some(pods) = &environment.pods {
        let (lost, others): (Vec<&WaitingPod>, Vec<_>) =
            pods.new_unschedulable.iter().partition(|pod| pod.lost_only_pool);
        let running = others.iter().filter(|pod| pod.still_runs).count();
        let (lost, waiting) = (lost.len(), others.len() - running);
        said.extend((pods.moved > 0).then(|| format!("moves {}", counted(pods.moved, "pod"))));
        said.extend((lost > 0).then(|| {
            format!("{} {} their only pool", counted(lost, "pod"), if lost == 1 { "loses" } else { "lose" })
        }));
        said.extend((waiting > 0).then(|| format!("leaves {} pending", counted(waiting, "pod"))));
        said.extend((running > 0).then(|| format!("leaves {} no room to restart", counted(running, "pod"))));
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

/// What stands in the place of a number.
fn unplayed(environment: &EnvironmentReview) -> String {
    match environment.change {
        Change::Unknown => "not known",
        _ => "not played",
    }
    .into()
}

/// `5 → 6: 3 replaced, 1 bought`.
pub fn nodes(environment: &EnvironmentReview) -> String {
    let Some(nodes) = &environment.nodes else { return unplayed(environment) };
    let kinds = [
        ("replaced", nodes.drifted),
        ("removed", nodes.retired),
        ("given back", nodes.consolidated),
        ("stuck", nodes.stuck.len()),
    ];
    let kinds: Vec<String> =
        kinds.iter().filter(|(_, count)| *count > 0).map(|(kind, count)| format!("{count} {kind}")).collect();
    let span = span(&nodes.before.to_string(), &nodes.after.to_string());
    if kinds.is_empty() { span } else { format!("{span}: {}", kinds.join(", ")) }
}

/// `$0.32 → $0.30`.
pub fn per_hour(environment: &EnvironmentReview) -> String {
    let Some(cost) = &environment.cost else { return unplayed(environment) };
    let span = &cost.usd_per_hour;
    let partial = if cost.unpriced.is_empty() { "" } else { " (partial)" };
    let without = without_pods(cost);
    match span.before == span.after {
        true => format!("${}{partial}{without}", span.after),
        false => format!("${} → ${}{partial}{without}", span.before, span.after),
    }
}

/// Who is not paid for any more: pods that find no node anew.
fn without_pods(cost: &CostReview) -> String {
    match cost.unplaced.after.saturating_sub(cost.unplaced.before) {
        0 => String::new(),
        lost => format!(" without {}", counted(lost, "pod")),
    }
}

/// `+$12.30 (spot +$2.30, on-demand +$10.00)`.
pub fn per_month(environment: &EnvironmentReview) -> String {
    let Some(cost) = &environment.cost else { return unplayed(environment) };
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
    let without = without_pods(cost);
    match (cost.delta.as_str(), parts.is_empty()) {
        ("0.00", true) => format!("±$0{without}"),
        (delta, true) => format!("{}{without}", signed_dollars(delta)),
        (delta, false) => format!("{} ({}){without}", signed_dollars(delta), parts.join(", ")),
    }
}

/// `9 moved, 2 without a place`.
pub fn pods(environment: &EnvironmentReview) -> String {
    let Some(pods) = &environment.pods else { return unplayed(environment) };
    let kinds = [
        ("moved", pods.moved),
        ("without a place", pods.new_unschedulable.len()),
        ("fixed", pods.fixed.len()),
        ("on demand for want of spot", pods.fallback_only.len()),
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

/// What runs, if that is not what its pools would buy anew.
pub fn reached(environment: &EnvironmentReview) -> Option<String> {
    let cost = environment.cost.as_ref()?;
    let (running, reached) = (&cost.running_usd_per_hour, &cost.reached_usd_per_hour);
    let Span { before, after, .. } = &cost.usd_per_hour;
    (running != before || reached != after).then(|| {
        let now = match running == reached {
            true => format!("what runs costs ${running}/h before and after the change"),
            false => format!("what runs costs ${running}/h, and ${reached}/h after the change"),
        };
        let anew = match before == after {
            true => format!("bought anew it would cost ${after}/h"),
            false => format!("bought anew it would cost ${before}/h, and ${after}/h with the change"),
        };
        format!("{now}; {anew}")
    })
}

/// On what it depends whether what left Git goes.
pub fn pruning(environment: &EnvironmentReview) -> Option<String> {
    let retires = environment.nodes.as_ref().is_some_and(|nodes| nodes.retired > 0);
    let is_gone = |object: &ObjectReview| object.kind == "CapacityBuffer" && object.action == "delete";
    match (retires, environment.objects.iter().any(is_gone)) {
        (false, false) => None,
        (true, false) => Some(
            "pools that left Git go, with their nodes, where pruning is on (provisor run --prune retire); else they stay"
                .into(),
        ),
        (false, true) => Some(
            "room that left Git is given back where pruning is on (provisor run --prune retire); else it is kept, and paid for"
                .into(),
        ),
        (true, true) => Some(
            "pools and room that left Git go, with their nodes, where pruning is on (provisor run --prune retire); else they \
             stay"
                .into(),
        ),
    }
}

/// What it takes to get there, if that is more than is to be seen in the end.
pub fn course(environment: &EnvironmentReview) -> Option<String> {
    let draws = environment.draws.as_ref()?;
    let is_plain = |draw: &DrawReview| {
        let more = draw.nodes_after.saturating_sub(draw.nodes_before);
        draw.evictions <= draw.pods_moved && draw.machines_bought <= draw.nodes_replaced + more
    };
    if draws.iter().all(is_plain) {
        return None;
    }
    let (evictions, machines) =
        (draws.iter().map(|draw| draw.evictions), draws.iter().map(|draw| draw.machines_bought));
    Some(format!(
        "until all is at rest: evictions {}, machines bought {}",
        least_to_most(evictions)?,
        least_to_most(machines)?
    ))
}

/// `3`, or `3 to 5`.
fn least_to_most(counts: impl Iterator<Item = usize> + Clone) -> Option<String> {
    let (least, most) = (counts.clone().min()?, counts.max()?);
    Some(if least < most { format!("{least} to {most}") } else { least.to_string() })
}

/// How far the numbers are chance, if they are: `in 9 runs of the simulated cluster 4 to 6 nodes after`.
pub fn chance(environment: &EnvironmentReview) -> Option<String> {
    let draws = environment.draws.as_ref()?;
    let span = |count: fn(&DrawReview) -> usize| {
        let (least, most) = (draws.iter().map(count).min()?, draws.iter().map(count).max()?);
        (least < most).then(|| format!("{least} to {most}"))
    };
    let prices = |price: fn(&DrawReview) -> &String| {
        let mut draws: Vec<&String> = draws.iter().map(price).collect();
        draws.sort_by_key(|text| text.parse::<UsdPerHour>().unwrap_or(UsdPerHour::ZERO));
        let (least, most) = (*draws.first()?, *draws.last()?);
        (least != most).then(|| format!("${least} to ${most}/h"))
    };
    let said = [
        span(|draw| draw.nodes_before).map(|nodes| format!("{nodes} nodes before")),
        prices(|draw| &draw.running_usd_per_hour).map(|price| format!("{price} before")),
        span(|draw| draw.nodes_gone).map(|nodes| format!("{nodes} nodes gone")),
        span(|draw| draw.blockers).map(|causes| format!("{causes} causes that keep it from ending")),
        span(|draw| draw.pods_moved).map(|pods| format!("{pods} pods moved")),
        span(|draw| draw.pods_lost).map(|pods| format!("{pods} pods without a place because of it")),
        span(|draw| draw.pods_waiting).map(|pods| format!("{pods} pods waiting")),
        span(|draw| draw.nodes_after).map(|nodes| format!("{nodes} nodes after")),
        prices(|draw| &draw.reached_usd_per_hour).map(|price| format!("{price} after")),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    let runs = counted(draws.len(), "run");
    (!said.is_empty())
        .then(|| format!("some of it is chance: in {runs} of the simulated cluster {}", said.join(", ")))
}

/// `3`, or `3, with the pool` if they are not replaced.
pub fn goes(pool: &PoolRoll) -> String {
    match pool.reason.as_str() {
        "retired" => format!("{}, with the pool", pool.nodes),
        _ => pool.nodes.to_string(),
    }
}

/// Their number, or why there is none.
pub fn waves(pool: &PoolRoll) -> String {
    match pool.waves {
        Some(waves) => waves.to_string(),
        None if pool.at_once == 0 => "none may go now".into(),
        None => "never all".into(),
    }
}

/// While a window lets nothing go, and when it is over then.
pub fn pauses(pool: &PoolRoll) -> Option<String> {
    let pause = |pause: &Pause| format!("{} to {}", pause.from, pause.until);
    let pauses: Vec<String> = pool.pauses.iter().take(PAUSES_MAX).map(pause).collect();
    let more = match pool.pauses.len().saturating_sub(PAUSES_MAX) {
        0 => String::new(),
        more => format!(" and {more} times more"),
    };
    let end = pool.ends.as_ref().map(|end| format!(", done by {end}")).unwrap_or_default();
    (!pauses.is_empty()).then(|| format!("budgets let none go from {}{more}{end}", pauses.join(", from ")))
}

/// Nodes that no budget holds while the roll goes on.
pub fn expiring(roll: &RollReview) -> Option<String> {
    let first = roll.expiring.first()?;
    let nodes = counted(roll.expiring.len(), "node");
    Some(format!("{nodes} become too old meanwhile, the first at {}; no budget holds them", first.at))
}

/// How the choice of machines gets narrower, if it does, and somebody is left to choose.
pub fn choice(environment: &EnvironmentReview) -> Option<String> {
    let choice = environment.choice.as_ref().filter(|_| environment.change != Change::Removed)?;
    let Counts { before, after } = choice.offerings;
    // That a part of fewer nodes is larger says nothing.
    let nodes = |count: fn(&PoolCost) -> usize| -> usize {
        environment.cost.iter().flat_map(|cost| &cost.by_pool).map(count).sum()
    };
    let has_fewer = nodes(|pool| pool.nodes_after) < nodes(|pool| pool.nodes_before);
    let is_larger = choice.largest_share.delta.parse::<UsdPerHour>().is_ok_and(|delta| delta.0 > 0);
    let is_narrower = after < before || (is_larger && !has_fewer);
    let percent = |share: &str| {
        share.strip_prefix("0.").map_or("100 %".to_owned(), |part| {
            format!("{} %", part.trim_start_matches('0').parse::<u32>().unwrap_or(0))
        })
    };
    let share = &choice.largest_share;
    let share = span(&percent(&share.before), &percent(&share.after));
    let offerings = span(&before.to_string(), &after.to_string());
    is_narrower.then(|| format!("offerings {offerings}, and the largest holds {share} of the nodes"))
}

/// `5 → 6`, or `5`.
pub fn span(before: &str, after: &str) -> String {
    if before == after { after.to_owned() } else { format!("{before} → {after}") }
}
