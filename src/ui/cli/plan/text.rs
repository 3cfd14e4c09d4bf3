//! The plan for people: what would be bought, where waiting pods go, what would go away, and why the rest stays.

use jiff::Timestamp;

use super::document::{Advice, Command, NewNode, PlanDocument, Unschedulable};
use crate::gitops::diff::NodeImpact;
use crate::model::count::counted;
use crate::ui::console::{Console, Tone};
use crate::ui::table::Table;

pub fn render(plan: &PlanDocument, console: &Console) -> String {
    let mut parts = Vec::new();
    let mut part = |title: &str, table: Table| {
        if !table.is_empty() {
            parts.push(format!("{}\n{table}", console.paint(Tone::Strong, title)));
        }
    };
    let mut sync = Table::new(&["OBJECT", "CHANGE", "FIELD", "FROM", "TO", "NODES", "WHERE"]);
    for row in &plan.sync.rows {
        let impact = match row.impact {
            NodeImpact::NoRoll => String::new(),
            impact => impact.to_string(),
        };
        let origin = row.origin.as_ref().map(ToString::to_string).unwrap_or_default();
        let cells = [&row.object, row.change, &row.field, &row.from, &row.to, &impact, &origin];
        sync.row(cells.map(str::to_owned));
    }
    part("Sync", sync);
    let provisioning = &plan.capacity.provisioning;
    part("New nodes", new_nodes(provisioning.new_nodes.iter()));
    let mut places = Table::new(&["POD", "NODE"]);
    for (pod, node) in pods_and_nodes(plan) {
        places.row([pod, node]);
    }
    part("Waiting pods", places);
    let mut waiting = Table::new(&["POD", "POOL", "CODE", "WHY"]);
    for pod in &provisioning.unschedulable {
        for reason in &pod.reasons {
            let nearest = reason.nearest.iter().map(|nearest| format!("; {nearest}"));
            let why: String = std::iter::once(reason.message.clone()).chain(nearest).collect();
            waiting.row([&pod.pod, reason.pool.as_deref().unwrap_or(""), &reason.code, &why]);
        }
    }
    part("Pods without a place", waiting);
    part("What would help", advice(&provisioning.unschedulable));
    let mut buffers = Table::new(&["BUFFER", ">PODS", ">FIT", ">ON NEW NODES", "STATE", "WHY"]);
    for buffer in &provisioning.buffers {
        let counts = [buffer.pods, buffer.fitting, buffer.on_new_nodes].map(|count| count.to_string());
        let [pods, fitting, new] = &counts;
        buffers.row([&buffer.buffer, pods, fitting, new, &buffer.reason, &buffer.message]);
    }
    part("Room that is kept", buffers);
    let mut fixed = Table::new(&["POOL", ">REPLICAS", ">NODES", ">NEW", "STATE", "WHY"]);
    for pool in &provisioning.static_pools {
        let (replicas, nodes) = (pool.replicas.to_string(), pool.nodes.to_string());
        let new = pool.new_nodes.to_string();
        fixed.row([&pool.pool, &replicas, &nodes, &new, &pool.reason, &pool.message]);
    }
    part("Pools that keep a number of nodes", fixed);
    let disruption = &plan.capacity.disruption;
    let mut commands = Table::new(&["DO", "NODES", "REASON", "BY", ">PODS", ">SAVES/H", "METHOD"]);
    for command in &disruption.commands {
        let replacements: Vec<&str> = command.replacements.iter().map(|node| node.id.as_str()).collect();
        commands.row([
            command.decision.clone(),
            command.nodes.join(" "),
            command.reason.clone(),
            replacements.join(" "),
            command.pods.len().to_string(),
            dollars(&command.savings_usd_per_hour),
            command.method.clone(),
        ]);
    }
    part("Nodes that go", commands);
    let replacements = disruption.commands.iter().flat_map(|command| &command.replacements);
    part("Replacements", new_nodes(replacements));
    part("What else might go, or come", alternatives(&disruption.commands));
    let mut kept = Table::new(&["NODE", "CODE", "SINCE", "NEXT LOOK", "WHY"]);
    for node in &disruption.kept {
        let [since, next] = [&node.since, &node.next_look].map(|at| at.as_deref().map(to_the_second));
        let next = next.unwrap_or_else(|| "on a change".into());
        kept.row([&node.node, &node.code, &since.unwrap_or_default(), &next, &node.message]);
    }
    part("Nodes that stay", kept);
    if let Some(settled) = &plan.capacity.settled {
        let mut nodes = Table::new(&["NODE", "POOL", "TYPE", "ZONE", "CAPACITY"]);
        for node in &settled.nodes {
            let pool = node.pool.as_deref().unwrap_or("");
            nodes.row([&node.name, pool, &node.instance_type, &node.zone, &node.capacity_type]);
        }
        let end = if settled.quiescent { "nothing is left to do" } else { "not settled" };
        let mut history = Table::new(&["TIME", "METHOD", "NODES GO", "COME", "PODS MOVE", "$/H"]);
        for step in &settled.history {
            let counts = [step.nodes, step.new_nodes, step.pods].map(|count| count.to_string());
            let [go, come, pods] = &counts;
            history.row([&step.at, &step.method, go, come, pods, &step.usd_per_hour]);
        }
        part("What is carried out", history);
        part(&format!("After {}: {end}", counted(settled.steps, "step")), nodes);
        parts.push(format!(
            "${} an hour before, ${} after; {}\n",
            settled.start_usd_per_hour,
            settled.usd_per_hour,
            counted(settled.evictions, "eviction")
        ));
    }
    parts.push(format!("{}\n", summary(plan)));
    parts.join("\n")
}

fn new_nodes<'a>(nodes: impl Iterator<Item = &'a NewNode>) -> Table {
    let mut table = Table::new(&[
        "NODE",
        "POOL",
        "LAUNCHES",
        "ZONE",
        "CAPACITY",
        ">USD/H",
        ">TYPES",
        ">PODS",
        "REQUESTS",
        "NEXT BEST",
    ]);
    for node in nodes {
        let requests = node.requests.iter().filter(|(resource, _)| *resource != "pods");
        let requests: Vec<String> =
            requests.map(|(resource, amount)| format!("{resource}={amount}")).collect();
        let others: Vec<String> = node
            .next_best
            .iter()
            .map(|next| format!("{} {}", next.instance_type, dollars(&next.usd_per_hour)))
            .collect();
        table.row([
            node.id.clone(),
            node.pool.clone(),
            node.launch.instance_type.clone(),
            node.launch.zone.clone(),
            node.launch.capacity_type.clone(),
            dollars(&node.launch.usd_per_hour),
            node.instance_types.len().to_string(),
            node.pods.len().to_string(),
            requests.join(" "),
            others.join(", "),
        ]);
    }
    table
}

/// Edits of pools, each with the pods that it is for, one by one.
fn advice(pods: &[Unschedulable]) -> Table {
    let mut by_advice: Vec<(&Advice, Vec<&str>)> = Vec::new();
    for (pod, advice) in pods.iter().filter_map(|pod| Some((pod.pod.as_str(), pod.advice.as_ref()?))) {
        match by_advice.iter_mut().find(|(known, _)| known.message == advice.message) {
            Some((_, pods)) => pods.push(pod),
            None => by_advice.push((advice, vec![pod])),
        }
    }
    let mut table = Table::new(&["FOR", "POOL", "EDIT", "WOULD LAUNCH", "ZONE", "CAPACITY", ">USD/H"]);
    for (Advice { pool, edits, launch, .. }, pods) in by_advice {
        let pods = match pods.as_slice() {
            [pod] => (*pod).to_owned(),
            [pod, others @ ..] => format!("each of {pod} and {}", counted(others.len(), "other")),
            [] => continue,
        };
        table.row([
            pods,
            pool.clone(),
            edits.join(", "),
            launch.instance_type.clone(),
            launch.zone.clone(),
            launch.capacity_type.clone(),
            dollars(&launch.usd_per_hour),
        ]);
    }
    table
}

/// What commands were preferred to.
fn alternatives(commands: &[Command]) -> Table {
    let mut table = Table::new(&["NODES", "INSTEAD", ">PODS", ">SAVES/H", "NOT BECAUSE"]);
    for command in commands {
        for other in &command.alternatives {
            let launches: Vec<&str> =
                other.replacements.iter().map(|one| one.instance_type.as_str()).collect();
            let nodes = if other.nodes == command.nodes {
                String::new()
            } else {
                format!(" {}", some_of(&other.nodes))
            };
            let by = if launches.is_empty() { String::new() } else { format!(" by {}", launches.join(" ")) };
            table.row([
                some_of(&command.nodes),
                format!("{}{nodes}{by}", other.decision),
                other.pods.to_string(),
                dollars(&other.savings_usd_per_hour),
                other.message.clone(),
            ]);
        }
    }
    table
}

/// The first few of many nodes: what goes is listed in full elsewhere.
fn some_of(nodes: &[String]) -> String {
    const SHOWN: usize = 3;
    match nodes.len().saturating_sub(SHOWN) {
        0 => nodes.join(" "),
        more => format!("{} and {more} more", nodes[..SHOWN].join(" ")),
    }
}

fn to_the_second(moment: &str) -> String {
    let known = moment.parse::<Timestamp>().and_then(|at| Timestamp::from_second(at.as_second()));
    known.map_or_else(|_| moment.to_owned(), |at| at.to_string())
}

fn pods_and_nodes(plan: &PlanDocument) -> Vec<(&str, &str)> {
    let provisioning = &plan.capacity.provisioning;
    let new = provisioning.new_nodes.iter().map(|node| (&node.id, &node.pods));
    let existing = provisioning.existing_nodes.iter().map(|node| (&node.node, &node.pods));
    new.chain(existing)
        .flat_map(|(node, pods)| pods.iter().map(move |pod| (pod.as_str(), node.as_str())))
        .collect()
}

fn summary(plan: &PlanDocument) -> String {
    let provisioning = &plan.capacity.provisioning;
    let new = provisioning.new_nodes.len();
    let placed: usize = provisioning.new_nodes.iter().map(|node| node.pods.len()).sum();
    let existing: usize = provisioning.existing_nodes.iter().map(|node| node.pods.len()).sum();
    let going: usize = plan.capacity.disruption.commands.iter().map(|command| command.nodes.len()).sum();
    let mut said = Vec::new();
    if let Some(changes) = plan.sync.changes.as_ref().filter(|changes| changes.as_str() != "nothing to do") {
        said.push(format!("sync: {changes}"));
    }
    if new > 0 {
        let fixed = provisioning.new_nodes.iter().filter(|node| node.reason.is_some()).count();
        let mut nodes = counted(new, "new node");
        if fixed == new {
            nodes.push_str(" of static pools");
        } else if fixed > 0 {
            nodes.push_str(&format!(" ({fixed} of static pools)"));
        }
        if fixed < new {
            nodes.push_str(&format!(" for {}", counted(placed, "pod")));
        }
        let excess = provisioning.gap.as_deref().filter(|_| fixed < new).and_then(excess);
        said.push(format!("{nodes} at ${}/h{}", provisioning.usd_per_hour, excess.unwrap_or_default()));
    }
    if existing > 0 {
        said.push(format!("{} on nodes that exist", counted(existing, "pod")));
    }
    if !provisioning.unschedulable.is_empty() {
        said.push(format!("{} without a place", counted(provisioning.unschedulable.len(), "pod")));
    }
    if going > 0 {
        said.push(format!("{} to go", counted(going, "node")));
    }
    let kept = plan.capacity.disruption.kept.len();
    if kept > 0 {
        said.push(format!("{} {}", counted(kept, "node"), if kept == 1 { "stays" } else { "stay" }));
    }
    if said.is_empty() { "nothing to do".into() } else { said.join(", ") }
}

/// How far a plan is from the best, of its gap in parts with four decimals.
fn excess(gap: &str) -> Option<String> {
    let parts: u64 = gap.replace('.', "").parse().ok()?;
    let tenths = parts.div_ceil(10);
    Some(match tenths {
        0 => " (no plan is cheaper)".to_owned(),
        _ => format!(" (at most {}.{} % above any plan)", tenths / 10, tenths % 10),
    })
}

fn dollars(amount: &str) -> String {
    match amount.strip_prefix('-') {
        Some(amount) => format!("-${amount}"),
        None => format!("${amount}"),
    }
}
