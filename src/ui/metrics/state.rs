//! The cluster as monitoring has to know it, and the gauges that say what is there. They are worked out when somebody asks, so that
//! they cost nothing in between and go with their objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::page::{Page, labels};
use crate::model::catalog::Catalog;
use crate::model::claim::NodeClaim;
use crate::model::label::{self, Labels};
use crate::model::money::UsdPerHour;
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName, TypeName, Zone};
use crate::model::node::Node;
use crate::model::offering::CapacityType;
use crate::model::owner::Owner;
use crate::model::pod::{Pod, PodPhase};
use crate::model::pool::{NodePool, PoolUse};
use crate::model::quantity::{ResourceName, Resources, Unit};
use crate::model::symbol::Symbol;

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Whose pools and claims are counted; `None`: everybody's.
    pub owner: Option<Owner>,
    pub claims: BTreeMap<ClaimName, Arc<NodeClaim>>,
    pub nodes: BTreeMap<NodeName, Arc<Node>>,
    pub pods: BTreeMap<ObjectKey, Arc<Pod>>,
    pub pools: BTreeMap<PoolName, Arc<NodePool>>,
    pub usage: BTreeMap<PoolName, PoolUse>,
    pub catalog: Option<Arc<Catalog>>,
    /// Claims of types that nobody sells, each counted once.
    unpriced: BTreeSet<ClaimName>,
}

/// What a claim costs an hour.
enum Cost {
    /// It is not known yet what was bought.
    Open,
    NotSold,
    Known(UsdPerHour),
}

impl State {
    pub fn of(owner: Option<Owner>) -> Self {
        Self { owner, ..Self::default() }
    }

    pub fn owns_pool(&self, pool: &NodePool) -> bool {
        self.owner.is_none_or(|us| pool.owner == Some(us))
    }

    /// A claim belongs to whom its pool belongs to, and without it to whoever made it.
    pub fn owns(&self, claim: &NodeClaim) -> bool {
        let Some(us) = self.owner else { return true };
        match claim.pool().and_then(|name| self.pools.get(&name)) {
            Some(pool) => self.owns_pool(pool),
            None => Owner::who_made(&claim.annotations) == Some(us),
        }
    }

    /// Whether `node` runs on a machine of ours, told like a claim.
    pub fn is_managed(&self, node: &Node) -> bool {
        let Some(pool) = node.labels.get(&*label::NODEPOOL) else { return false };
        let Some(us) = self.owner else { return true };
        match self.pools.get(&PoolName(*pool)) {
            Some(pool) => self.owns_pool(pool),
            None => Owner::who_made(&node.annotations) == Some(us),
        }
    }

    pub fn pods_on(&self, node: NodeName) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values().filter(move |pod| pod.node == Some(node))
    }

    /// Whether `claim` turns out, for the first time, to be of a type that nobody sells.
    pub fn is_newly_unpriced(&mut self, claim: &NodeClaim) -> bool {
        matches!(self.cost(claim), Cost::NotSold) && self.unpriced.insert(claim.name)
    }

    pub fn forget_claim(&mut self, name: ClaimName) -> Option<Arc<NodeClaim>> {
        self.unpriced.remove(&name);
        self.claims.remove(&name)
    }

    fn cost(&self, claim: &NodeClaim) -> Cost {
        let of = |key: Symbol| claim.labels.get(&key).copied();
        let (Some(kind), Some(zone), Some(capacity_type)) =
            (of(*label::INSTANCE_TYPE), of(*label::ZONE), of(*label::CAPACITY_TYPE))
        else {
            return Cost::Open;
        };
        let Some(catalog) = &self.catalog else { return Cost::Open };
        let price = CapacityType::parse(&capacity_type)
            .and_then(|capacity_type| catalog.list_price(TypeName(kind), Zone(zone), capacity_type));
        price.map_or(Cost::NotSold, Cost::Known)
    }

    /// All gauges of objects.
    pub fn write(&self, now: Timestamp, page: &mut Page) {
        self.write_pools(page);
        self.write_nodes(now, page);
        self.write_pods(now, page);
    }

    fn write_pools(&self, page: &mut Page) {
        let ours = || self.pools.values().filter(|pool| self.owns_pool(pool));
        let limits = ours().filter_map(|pool| Some((pool.name, pool.limits.clone()?)));
        let limits: Vec<(PoolName, Resources)> = limits.collect();
        let used = ours().filter_map(|pool| {
            let used = self.usage.get(&pool.name)?;
            let mut amounts = used.resources.clone();
            amounts.set(ResourceName::new("nodes"), i64::from(used.nodes));
            Some((pool.name, amounts))
        });
        let used: Vec<(PoolName, Resources)> = used.collect();
        let series = |amounts: Vec<(PoolName, Resources)>| {
            let mut series = Vec::new();
            for (pool, amounts) in amounts {
                for (name, amount) in amounts.iter() {
                    let own = labels([("nodepool", pool.as_str()), ("resource_type", &resource_type(name))]);
                    series.push((own, in_units(name, amount)));
                }
            }
            series
        };
        page.gauges("nodepools_limit", "The most that a pool's nodes may add up to", series(limits));
        page.gauges("nodepools_usage", "What a pool's nodes add up to", series(used));
        let mut costs: BTreeMap<PoolName, i64> = ours().map(|pool| (pool.name, 0)).collect();
        for claim in self.claims.values() {
            if let (Some(pool), Cost::Known(price)) = (claim.pool(), self.cost(claim))
                && let Some(sum) = costs.get_mut(&pool)
            {
                *sum += price.0;
            }
        }
        let costs = costs.into_iter();
        let costs = costs.map(|(pool, micros)| (labels([("nodepool", pool.as_str())]), micros as f64 / 1e6));
        page.gauges(
            "nodepools_cost_total",
            "What a pool's machines cost an hour, in US dollars, by list price",
            costs,
        );
    }

    fn write_nodes(&self, now: Timestamp, page: &mut Page) {
        let mut requests: BTreeMap<NodeName, (Resources, Resources)> = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| !pod.is_terminal()) {
            let Some(node) = pod.node else { continue };
            let (all, daemons) = requests.entry(node).or_default();
            all.add(&pod.shape.requests);
            if pod.is_daemon() {
                daemons.add(&pod.shape.requests);
            }
        }
        let nodes: Vec<(String, &Node)> = self
            .nodes
            .values()
            .map(|node| {
                let managed = if self.is_managed(node) { "true" } else { "false" };
                let first = [("node_name", node.name.as_str()), ("phase", ""), ("managed", managed)];
                let words = node.labels.iter().filter(|(key, _)| label::is_well_known(**key));
                let words: Vec<(String, &str)> =
                    words.map(|(key, value)| (label_name(*key), value.as_str())).collect();
                let words = words.iter().map(|(key, value)| (key.as_str(), *value));
                (labels(first.into_iter().chain(words)), node.as_ref())
            })
            .collect();
        let none = (Resources::new(), Resources::new());
        let of = |node: &Node| requests.get(&node.name).unwrap_or(&none);
        let mut gauges = |name: &str, help: &str, amounts: &dyn Fn(&Node) -> Resources| {
            let series = nodes.iter().flat_map(|(own, node)| {
                let amounts = amounts(node);
                let listed = node.allocatable.iter().map(|(resource, _)| resource).collect::<Vec<_>>();
                listed.into_iter().map(move |resource| {
                    let own = format!("{own},resource_type=\"{}\"", resource_type(resource));
                    (own, in_units(resource, amounts.get(resource)))
                })
            });
            page.gauges(name, help, series);
        };
        gauges("nodes_allocatable", "What a node offers to pods", &|node| node.allocatable.clone());
        gauges("nodes_total_pod_requests", "What the pods of a node ask for, daemons included", &|node| {
            of(node).0.clone()
        });
        gauges("nodes_total_daemon_requests", "What the daemons of a node ask for", &|node| {
            of(node).1.clone()
        });
        gauges("nodes_system_overhead", "What a node has and does not offer to pods", &|node| {
            node.capacity.minus(&node.allocatable)
        });
        let ages = nodes.iter().filter_map(|(own, node)| Some((own.clone(), seconds(node.created?, now))));
        page.gauges("nodes_current_lifetime_seconds", "How old a node is", ages);
        let mut offered = Resources::new();
        let mut asked = Resources::new();
        for (_, node) in &nodes {
            offered.add(&node.allocatable);
            asked.add(&of(node).0);
        }
        let shares = offered.iter().filter(|(_, amount)| *amount > 0).map(|(resource, amount)| {
            let share = asked.get(resource) as f64 / amount as f64 * 100.0;
            (labels([("resource_type", resource_type(resource).as_str())]), share)
        });
        let shares: Vec<(String, f64)> = shares.collect();
        page.gauges("cluster_utilization_percent", "What pods ask for, of what all nodes offer", shares);
    }

    fn write_pods(&self, now: Timestamp, page: &mut Page) {
        let nothing = Labels::new();
        let states = self.pods.values().map(|pod| {
            let node = pod.node.and_then(|name| self.nodes.get(&name));
            let words = node.map_or(&nothing, |node| &node.labels);
            let word = |key: Symbol| words.get(&key).map_or("", |value| value.as_str());
            let owner = pod.controller().or(pod.owners.first()).map_or_else(String::new, |owner| {
                let kind = owner.kind.to_lowercase();
                format!("/apis/{}/namespaces/{}/{kind}s/{}", owner.api_version, pod.key.namespace, owner.name)
            });
            let yes = |is_so: bool| if is_so { "true" } else { "false" };
            let own = labels([
                ("name", pod.key.name.as_str()),
                ("namespace", pod.key.namespace.as_str()),
                ("owner", &owner),
                ("node", pod.node.map_or("", |node| Symbol::as_str(node.0))),
                ("scheduled", yes(pod.node.is_some())),
                ("nodepool", word(*label::NODEPOOL)),
                ("zone", word(*label::ZONE)),
                ("arch", word(*label::ARCH)),
                ("capacity_type", word(*label::CAPACITY_TYPE)),
                ("instance_type", word(*label::INSTANCE_TYPE)),
                ("phase", phase(pod.phase)),
                ("ready", yes(pod.is_ready)),
                ("managed", yes(node.is_some_and(|node| self.is_managed(node)))),
            ]);
            (own, 1.0)
        });
        page.gauges("pods_state", "A pod as it is: its labels tell", states);
        let ages = |is_so: fn(&Pod) -> bool| {
            let pods = self.pods.values().filter(move |pod| pod.is_active() && is_so(pod));
            pods.filter_map(move |pod| Some((pod_labels(&pod.key), seconds(pod.created?, now))))
        };
        page.gauges(
            "pods_unbound_time_seconds",
            "How old a pod is that has no node",
            ages(|pod| pod.node.is_none()),
        );
        page.gauges(
            "pods_unstarted_time_seconds",
            "How old a pod is that does not run",
            ages(|pod| pod.phase == PodPhase::Pending),
        );
    }
}

pub(super) fn pod_labels(pod: &ObjectKey) -> String {
    labels([("name", pod.name.as_str()), ("namespace", pod.namespace.as_str())])
}

pub(super) fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

fn phase(phase: PodPhase) -> &'static str {
    match phase {
        PodPhase::Pending => "Pending",
        PodPhase::Running => "Running",
        PodPhase::Succeeded => "Succeeded",
        PodPhase::Failed => "Failed",
        PodPhase::Unknown => "Unknown",
    }
}

/// `nvidia.com/gpu` stays; `ephemeral-storage` is `ephemeral_storage`.
fn resource_type(name: ResourceName) -> String {
    name.0.to_lowercase().replace('-', "_")
}

/// Cores are fractions; everything else is counted in pieces or bytes.
fn in_units(name: ResourceName, amount: i64) -> f64 {
    match name.unit() {
        Unit::Millicores => amount as f64 / 1000.0,
        Unit::Bytes | Unit::Pieces => amount as f64,
    }
}

/// `karpenter.sh/capacity-type` as a label of a series: `capacity_type`.
fn label_name(key: Symbol) -> String {
    let text = key.as_str();
    text.rsplit('/').next().unwrap_or(text).replace('-', "_")
}
