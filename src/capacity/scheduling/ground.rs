//! All that one picture of the cluster says before anything is placed: worked out once, shared by every solve in that picture.
//!
//! A round of disruption asks hundreds of times where the pods of one node would go. What differs from question to question is
//! which node is gone and which pods move; what nodes have left, what pools sell and what rules count does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::amounts::{self, Amounts, Columns};
use super::daemons::{Daemon, daemons};
use super::defaults::DefaultSpreads;
use super::demand::{DemandId, Demands};
use super::explain::{Code, Refusal};
use super::outlook::{OutlookId, Outlooks};
use super::reservations::Reservations;
use super::room::{Load, NodeFacts, Room, node_facts, used_by_pool};
use super::sellers::Sellers;
use super::supply::Supply;
use super::template::Template;
use super::topology::{Leaving, RuleBook};
use super::{Place, Request};
use crate::capacity::cluster::Cluster;
use crate::model::hash::FastMap;
use crate::model::name::{ClaimName, NodeName};
use crate::model::pod::{Pod, PodShape};
use crate::model::quantity::Resources;
use crate::model::taint::Effect;

/// A picture of the cluster, prepared. It is of no use for another one.
pub(crate) struct Ground {
    pub(super) columns: Columns,
    pub(super) templates: Vec<Template>,
    /// Pools that take part in name only, and why.
    pub(super) skipped: Vec<Refusal>,
    pub(super) has_soft_taints: bool,
    pub(super) rooms: Vec<Room>,
    rooms_by_place: FastMap<Place, usize>,
    /// Nodes on their way out.
    going: FastMap<NodeName, ()>,
    pub(super) reservations: Reservations,
    pub(super) book: RuleBook,
    pub(super) outlooks: Outlooks,
    pub(super) demands: Demands,
    default_spreads: DefaultSpreads,
    pub(super) sellers: Sellers,
    /// What opening a node takes from limits, by what it may become and the size of its first pod.
    pub(super) charges: FastMap<(OutlookId, usize), Resources>,
}

impl Ground {
    /// `more`: pods that will be asked about and are not in the cluster.
    pub(crate) fn new(cluster: &Cluster, supply: &Supply, more: &[Arc<Pod>]) -> Self {
        let facts = node_facts(cluster, supply);
        let daemons = daemons(cluster);
        let shapes = distinct_shapes(cluster, more);
        let (columns, of_nodes) = columns_of(cluster, supply, &facts, &daemons, &shapes);
        let (templates, skipped) = templates_of(cluster, supply, &facts, &daemons, &columns);
        let going: FastMap<NodeName, ()> = facts
            .iter()
            .filter(|facts| facts.is_going)
            .filter_map(|facts| match facts.place {
                Place::Node(name) => Some((name, ())),
                Place::Claim(_) => None,
            })
            .collect();
        let loads = loads(cluster, &columns, &of_nodes, !daemons.is_empty());
        let staying = facts.into_iter().filter(|facts| !facts.is_going);
        let rooms: Vec<Room> = staying
            .map(|facts| {
                let load = match facts.place {
                    Place::Node(name) => loads.get(&name),
                    Place::Claim(_) => None,
                };
                Room::new(facts, cluster, load, &daemons, &columns)
            })
            .collect();
        let mut book = RuleBook::new(cluster, &templates, |node| !going.contains_key(&node.name));
        for pod in cluster.pods.values().filter(|pod| !pod.is_terminal()) {
            if let Some(host) = pod.node.and_then(|node| book.host(node)) {
                book.bind(cluster, &rooms, &pod.shape, host, pod.deleted.is_some());
            }
        }
        Self {
            has_soft_taints: templates
                .iter()
                .flat_map(|template| template.taints())
                .any(|taint| taint.effect == Effect::PreferNoSchedule),
            reservations: Reservations::of(&templates),
            rooms_by_place: rooms.iter().enumerate().map(|(at, room)| (room.place, at)).collect(),
            columns,
            templates,
            skipped,
            rooms,
            going,
            book,
            outlooks: Outlooks::default(),
            demands: Demands::default(),
            default_spreads: DefaultSpreads::default(),
            sellers: Sellers::default(),
            charges: FastMap::default(),
        }
    }

    /// The group of `pod`.
    pub(super) fn demand(&mut self, request: &Request, pod: &Pod) -> DemandId {
        let is_homeless = pod
            .node
            .is_none_or(|node| self.going.contains_key(&node) && !request.without_nodes.contains(&node));
        let Self { demands, columns, book, rooms, default_spreads, .. } = self;
        let defaults = &request.settings.default_spreads;
        if let Some(shape) = default_spreads.applied(request.cluster, defaults, pod) {
            let pod = Pod { shape, ..pod.clone() };
            return demands.of(request.cluster, &pod, is_homeless, columns, book, rooms);
        }
        demands.of(request.cluster, pod, is_homeless, columns, book, rooms)
    }

    /// The place in the list of rooms of every node and claim that is taken away.
    pub(super) fn closed(&self, request: &Request) -> Vec<usize> {
        let of_claim = |name: &ClaimName| {
            let claim = request.cluster.claims.get(name);
            let node = claim.and_then(|claim| request.cluster.node_of(claim));
            node.map_or(Place::Claim(*name), |node| Place::Node(node.name))
        };
        let nodes = request.without_nodes.iter().map(|name| Place::Node(*name));
        let claims = request.without_claims.iter().map(of_claim);
        nodes.chain(claims).filter_map(|place| self.rooms_by_place.get(&place).copied()).collect()
    }

    pub(super) fn room(&self, node: NodeName) -> Option<usize> {
        self.rooms_by_place.get(&Place::Node(node)).copied()
    }

    /// Pods of the request that run somewhere now, as topology has counted them.
    pub(super) fn leaving(&mut self, request: &Request) -> Vec<Leaving> {
        let mut leaving = Vec::new();
        for pod in request.pods {
            if let Some(host) = pod.node.and_then(|node| self.book.host(node))
                && !pod.is_terminal()
            {
                let standing = self.book.standing(request.cluster, &self.rooms, &pod.shape);
                leaving.push(Leaving { standing, host, is_counted: pod.deleted.is_none() });
            }
        }
        leaving
    }
}

fn distinct_shapes<'a>(cluster: &'a Cluster, more: &'a [Arc<Pod>]) -> Vec<&'a Arc<PodShape>> {
    let mut seen: FastMap<usize, ()> = FastMap::default();
    let pods = cluster.pods.values().filter(|pod| !pod.is_terminal()).chain(more);
    pods.map(|pod| &pod.shape)
        .filter(|shape| seen.insert(Arc::as_ptr(shape) as usize, ()).is_none())
        .collect()
}

/// A column for every resource that anybody names; and those that some node or type knows.
fn columns_of(
    cluster: &Cluster,
    supply: &Supply,
    facts: &[NodeFacts],
    daemons: &[Daemon],
    shapes: &[&Arc<PodShape>],
) -> (Columns, Columns) {
    let types: Vec<_> = cluster.pools.keys().map(|pool| supply.types(*pool)).collect();
    let of_types = types.iter().flat_map(|types| types.iter()).map(|kind| &kind.allocatable);
    let of_daemons = daemons.iter().map(|daemon| &daemon.shape.requests);
    let of_nodes = facts.iter().map(|facts| &facts.allocatable);
    let known = of_types.chain(of_daemons).chain(of_nodes);
    let of_pods = shapes.iter().map(|shape| &shape.requests);
    (Columns::of(known.clone().chain(of_pods)), Columns::of(known))
}

/// What runs on each node. What a pod has of a resource that no node and no type knows is not taken from anybody.
fn loads<'a>(
    cluster: &'a Cluster,
    columns: &Columns,
    known: &Columns,
    has_daemons: bool,
) -> FastMap<NodeName, Load<'a>> {
    let mut rows: FastMap<usize, Amounts> = FastMap::default();
    let mut loads: FastMap<NodeName, Load> = FastMap::default();
    for pod in cluster.pods.values().filter(|pod| !pod.is_terminal()) {
        let Some(node) = pod.node else { continue };
        let row = rows.entry(Arc::as_ptr(&pod.shape) as usize).or_insert_with(|| {
            let known: Resources = known.resources(&known.row(&pod.shape.requests));
            columns.row(&known)
        });
        let load = loads.entry(node).or_default();
        if load.requests.is_empty() {
            load.requests = columns.row(&Resources::new());
            load.of_daemons = load.requests.clone();
        }
        amounts::add(&mut load.requests, row);
        load.ports.extend(pod.shape.host_ports.iter().copied());
        if has_daemons && pod.is_daemon() {
            amounts::add(&mut load.of_daemons, row);
            load.daemons.push(pod);
        }
    }
    loads
}

/// Templates of the pools that take demand, heaviest first, later names first among equals; and why others take none.
fn templates_of(
    cluster: &Cluster,
    supply: &Supply,
    facts: &[NodeFacts],
    daemons: &[Daemon],
    columns: &Columns,
) -> (Vec<Template>, Vec<Refusal>) {
    let has_limits = cluster.pools.values().any(|pool| pool.limits.is_some());
    let used = if has_limits { used_by_pool(facts) } else { Default::default() };
    let mut pools: Vec<_> =
        cluster.pools.values().filter(|pool| !pool.is_static() && !pool.is_deleting).collect();
    pools.sort_by_key(|pool| std::cmp::Reverse((pool.weight, pool.name)));
    let (mut templates, mut skipped) = (Vec::new(), Vec::new());
    for pool in pools {
        let class = cluster.classes.get(&pool.template.class.name);
        let mut skip = |code, message: &str| {
            skipped.push(Refusal { pool: Some(pool.name), code, message: message.into() });
        };
        if !pool.is_ready {
            skip(Code::PoolNotReady, "the pool is not ready; its conditions say why");
        } else if class.is_some_and(|class| !class.is_ready || class.is_deleting) {
            skip(Code::PoolNotReady, "its node class is not ready; its conditions say why");
        } else {
            let usage = used.get(&pool.name).cloned().unwrap_or_default();
            let template = Template::new(pool, supply.types(pool.name), daemons, columns, &usage);
            if template.open.is_clear() {
                skip(
                    Code::PoolWithoutTypes,
                    "the pool's requirements filter out every instance type that is available",
                );
            } else {
                templates.push(template);
            }
        }
    }
    if templates.is_empty() && skipped.is_empty() {
        let message =
            "no NodePool takes waiting pods: there is none, or each has a fixed number of nodes".into();
        skipped.push(Refusal { pool: None, code: Code::NoUsablePool, message });
    }
    (templates, skipped)
}

/// Nodes of `request` that are taken away, as topology knows them.
pub(super) fn removed(ground: &Ground, request: &Request) -> Vec<usize> {
    let of_claims = request.without_claims.iter().filter_map(|claim| {
        let claim = request.cluster.claims.get(claim)?;
        Some(request.cluster.node_of(claim)?.name)
    });
    let nodes: BTreeSet<NodeName> = request.without_nodes.iter().copied().chain(of_claims).collect();
    nodes.into_iter().filter_map(|node| ground.book.host(node)).collect()
}
