//! All that one picture of the cluster says before anything is placed: worked out once, kept as the picture changes, shared by
//! every question that is asked in it.
//!
//! What differs from question to question is which node is gone and which pods move; what nodes have left, what pools sell and
//! what rules count does not. What differs from moment to moment is a pod here and a node there: only those are looked at
//! again. Where more changes than that (pools, what they sell, daemons, the resources that there are) it is made anew, and one that was
//! kept answers every question as one that was made anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::amounts::Columns;
use super::daemons::{Daemon, daemons};
use super::defaults::DefaultSpreads;
use super::demand::{DemandId, Demands};
use super::explain::{Code, Refusal};
use super::outlook::{OutlookId, Outlooks};
use super::places::Places;
use super::reservations::Reservations;
use super::room::{Load, NodeFacts, Room, facts_at, node_facts};
use super::sellers::Sellers;
use super::supply::Supply;
use super::template::Template;
use super::topology::{Leaving, RuleBook};
use super::{Place, Request};
use crate::capacity::cluster::{Cluster, Touched};
use crate::model::hash::FastMap;
use crate::model::name::{ClaimName, ClassName, NodeName, PoolName};
use crate::model::offering::InstanceType;
use crate::model::pod::Pod;
use crate::model::pool::NodePool;
use crate::model::quantity::{ResourceName, Resources, resource};
use crate::model::symbol::Symbol;
use crate::model::taint::Effect;

/// More things than this, beyond twice what it began with, are remembered for nobody.
const REMEMBERED_MAX: usize = 20_000;

/// A picture of the cluster, prepared. It is of no use for another one.
pub(crate) struct Ground {
    pub(super) columns: Columns,
    pub(super) templates: Vec<Template>,
    /// Pools that take part in name only, and why.
    pub(super) skipped: Vec<Refusal>,
    pub(super) has_soft_taints: bool,
    pub(super) places: Places,
    census: Census,
    /// Nodes on their way out.
    going: BTreeSet<NodeName>,
    /// Claims that count as on their way out, whatever they say of themselves.
    leaving: BTreeSet<ClaimName>,
    daemons: Vec<Daemon>,
    /// Pools and classes as they were when templates were made of them.
    pools: Vec<Arc<NodePool>>,
    classes: Vec<(ClassName, bool, bool)>,
    pub(super) reservations: Reservations,
    pub(super) book: RuleBook,
    pub(super) outlooks: Outlooks,
    pub(super) demands: Demands,
    default_spreads: DefaultSpreads,
    pub(super) sellers: Sellers,
    /// What opening a node takes from limits, by what it may become and the size of its first pod.
    pub(super) charges: FastMap<(OutlookId, usize), Resources>,
    /// How much was remembered when it was made.
    began_with: usize,
    /// Which of all grounds it is: numbers mean something in one of them only.
    identity: Arc<()>,
}

/// What nodes and claims come to.
#[derive(Default)]
struct Census {
    counted: FastMap<Place, Counted>,
    /// By pool, of nodes that stay: capacity in use, `nodes` included.
    used: BTreeMap<PoolName, Resources>,
    /// Resources that nodes know, and how many nodes know each.
    known: BTreeMap<ResourceName, usize>,
    /// Resources that types and daemons know.
    known_anyway: BTreeSet<ResourceName>,
    /// Those of either when amounts were last put into columns.
    known_then: BTreeSet<ResourceName>,
}

struct Counted {
    pool: Option<(PoolName, Resources)>,
    knows: Vec<ResourceName>,
}

impl Census {
    fn put(&mut self, place: Place, facts: Option<&NodeFacts>) {
        if let Some(Counted { pool, knows }) = self.counted.remove(&place) {
            if let Some((pool, capacity)) = pool
                && let Some(sum) = self.used.get_mut(&pool)
            {
                sum.subtract(&capacity);
            }
            for name in knows {
                if let Some(count) = self.known.get_mut(&name) {
                    *count -= 1;
                    if *count == 0 {
                        self.known.remove(&name);
                    }
                }
            }
        }
        let Some(facts) = facts else { return };
        let pool = facts.pool.filter(|_| !facts.is_going).map(|pool| {
            let mut capacity = facts.capacity.clone();
            capacity.add(&[(*resource::NODES, 1)].into_iter().collect());
            self.used.entry(pool).or_default().add(&capacity);
            (pool, capacity)
        });
        let knows: Vec<ResourceName> = facts.allocatable.iter().map(|(name, _)| name).collect();
        for name in &knows {
            *self.known.entry(*name).or_default() += 1;
        }
        self.counted.insert(place, Counted { pool, knows });
    }

    fn knows(&self) -> BTreeSet<ResourceName> {
        self.known_anyway.iter().chain(self.known.keys()).copied().collect()
    }
}

impl Ground {
    /// `more`: pods that will be asked about and are not in the cluster.
    pub(crate) fn new(cluster: &Cluster, supply: &Supply, more: &[Arc<Pod>]) -> Self {
        Self::with_leaving(cluster, supply, more, &BTreeSet::new())
    }

    /// The same with claims that are on their way out whatever they say of themselves.
    pub(crate) fn with_leaving(
        cluster: &Cluster,
        supply: &Supply,
        more: &[Arc<Pod>],
        leaving: &BTreeSet<ClaimName>,
    ) -> Self {
        let daemons = daemons(cluster);
        let facts = node_facts(cluster, supply, leaving);
        let mut census = Census::default();
        for facts in &facts {
            census.put(facts.place, Some(facts));
        }
        let types: Vec<_> = cluster.pools.keys().map(|pool| supply.types(*pool)).collect();
        let of_types = types.iter().flat_map(|types| types.iter()).map(|kind| &kind.allocatable);
        let of_daemons = daemons.iter().map(|daemon| &daemon.shape.requests);
        census.known_anyway =
            of_types.chain(of_daemons).flat_map(|known| known.iter().map(|(name, _)| name)).collect();
        census.known_then = census.knows();
        let asked = more.iter().flat_map(|pod| pod.shape.requests.iter().map(|(name, _)| name));
        let names = census.known_then.iter().copied().chain(cluster.requested()).chain(asked);
        let columns = Columns::of(names, &scarce_drivers(cluster, supply));
        let (templates, skipped) = templates_of(cluster, supply, &daemons, &columns);
        let mut ground = Self {
            has_soft_taints: templates
                .iter()
                .flat_map(|template| template.taints())
                .any(|taint| taint.effect == Effect::PreferNoSchedule),
            reservations: Reservations::of(&templates),
            places: Places::default(),
            book: RuleBook::new(cluster, &templates),
            columns,
            templates,
            skipped,
            census,
            going: BTreeSet::new(),
            leaving: leaving.clone(),
            daemons,
            pools: cluster.pools.values().cloned().collect(),
            classes: classes_of(cluster),
            outlooks: Outlooks::default(),
            demands: Demands::default(),
            default_spreads: DefaultSpreads::default(),
            sellers: Sellers::default(),
            charges: FastMap::default(),
            began_with: 0,
            identity: Arc::default(),
        };
        ground.take_in(cluster, facts);
        ground.began_with = ground.remembered();
        ground
    }

    /// Every node and claim at once, in the order in which they are asked.
    fn take_in(&mut self, cluster: &Cluster, facts: Vec<NodeFacts>) {
        let loads = Loads::of(self);
        let mut rooms = Vec::with_capacity(facts.len());
        let mut hosts = Vec::with_capacity(cluster.nodes.len());
        for facts in facts {
            if let Place::Node(name) = facts.place {
                hosts.push((name, !facts.is_going));
            }
            if !facts.is_going {
                let load = loads.at(cluster, facts.place);
                rooms.push(Room::new(facts, load, &self.daemons, &self.columns));
            }
        }
        self.places = Places::new(rooms);
        for (name, stays) in &hosts {
            self.book.put_node(*name, cluster.nodes.get(name).map(|node| (node, *stays)));
            if !stays {
                self.going.insert(*name);
            }
        }
        for (name, _) in hosts {
            self.bind(cluster, name);
        }
    }

    fn bind(&mut self, cluster: &Cluster, node: NodeName) {
        if let Some(host) = self.book.host(node) {
            self.book.bind(cluster, self.places.rooms(), host, cluster.guests_of(node));
        }
    }

    /// Takes in what was `touched` since it was last asked; `supply` is what it was made with. `false`: it is of no use any more,
    /// because more than nodes and pods has changed.
    pub(crate) fn follow(
        &mut self,
        cluster: &Cluster,
        supply: &Supply,
        touched: &Touched,
        more: &[Arc<Pod>],
        leaving: &BTreeSet<ClaimName>,
    ) -> bool {
        if self.is_worn() || !self.still_sells(cluster) || !self.still_expects(cluster) {
            return false;
        }
        if touched.has_namespaces && !self.book.put_namespaces(cluster) {
            return false;
        }
        let asked = more.iter().flat_map(|pod| pod.shape.requests.iter().map(|(name, _)| name));
        if !cluster.requested().chain(asked).all(|name| self.columns.has(name)) {
            return false;
        }
        if touched.has_companions {
            self.default_spreads = DefaultSpreads::default();
        }
        if touched.has_volumes {
            if !scarce_drivers(cluster, supply).into_iter().eq(self.columns.drivers()) {
                return false;
            }
            self.places.forget_volumes();
        }
        let mut claims = touched.claims.clone();
        claims.extend(self.leaving.symmetric_difference(leaving));
        self.leaving = leaving.clone();
        let mut places: BTreeSet<Place> = touched.nodes.iter().map(|name| Place::Node(*name)).collect();
        for name in claims {
            places.insert(Place::Claim(name));
            let node = cluster.claims.get(&name).and_then(|claim| cluster.node_of(claim));
            places.extend(node.map(|node| Place::Node(node.name)));
        }
        let loads = Loads::of(self);
        for place in places {
            let facts = facts_at(cluster, supply, &self.leaving, place);
            self.census.put(place, facts.as_ref());
            self.look_at(cluster, place, facts, &loads);
        }
        self.census.knows() == self.census.known_then
    }

    /// What is at `place` now.
    fn look_at(&mut self, cluster: &Cluster, place: Place, facts: Option<NodeFacts>, loads: &Loads) {
        let stays = facts.as_ref().is_some_and(|facts| !facts.is_going);
        if let Place::Node(name) = place {
            self.book.put_node(name, cluster.nodes.get(&name).map(|node| (node, stays)));
            if stays || facts.is_none() {
                self.going.remove(&name);
            } else {
                self.going.insert(name);
            }
        }
        let room = facts.filter(|_| stays).map(|facts| {
            let load = loads.at(cluster, place);
            Room::new(facts, load, &self.daemons, &self.columns)
        });
        let moved = self.places.put(place, room);
        if let Some(left) = moved.left {
            self.book.put_room(left, None);
        }
        if let Some(at) = moved.come {
            self.book.put_room(at, Some(self.places.room(at)));
        }
        if let Some(at) = moved.differs {
            self.demands.forget_room(at);
        }
        if let Place::Node(name) = place {
            self.bind(cluster, name);
        }
    }

    pub(super) fn identity(&self) -> &Arc<()> {
        &self.identity
    }

    fn remembered(&self) -> usize {
        self.book.size() + self.demands.len() + self.outlooks.len()
    }

    /// Whether it has grown old: too much of what is remembered is of things that are no more.
    fn is_worn(&self) -> bool {
        self.places.are_scattered() || self.remembered() > 2 * self.began_with + REMEMBERED_MAX
    }

    /// Whether pools and classes are what templates were made of, their reports aside.
    fn still_sells(&mut self, cluster: &Cluster) -> bool {
        let is_same = |known: &Arc<NodePool>, pool: &Arc<NodePool>| {
            Arc::ptr_eq(known, pool)
                || (known.is_ready == pool.is_ready && known.is_same_but_for_status(pool))
        };
        let stands = self.pools.len() == cluster.pools.len()
            && self.pools.iter().zip(cluster.pools.values()).all(|(known, pool)| is_same(known, pool))
            && self.classes == classes_of(cluster);
        if stands {
            self.pools = cluster.pools.values().cloned().collect();
        }
        stands
    }

    /// Whether daemons are those that room was kept for.
    fn still_expects(&self, cluster: &Cluster) -> bool {
        let now = daemons(cluster);
        now.len() == self.daemons.len() && now.iter().zip(&self.daemons).all(|(one, other)| one.is(other))
    }

    /// By pool: capacity in use, `nodes` included.
    pub(crate) fn used(&self) -> &BTreeMap<PoolName, Resources> {
        &self.census.used
    }

    /// Nodes on their way out, by name.
    pub(crate) fn going(&self) -> impl Iterator<Item = NodeName> + '_ {
        self.going.iter().copied()
    }

    pub(crate) fn is_going(&self, node: NodeName) -> bool {
        self.going.contains(&node)
    }

    /// The group of `pod`.
    pub(super) fn demand(&mut self, request: &Request, pod: &Pod) -> DemandId {
        let is_homeless =
            pod.node.is_none_or(|node| self.going.contains(&node) && !request.without_nodes.contains(&node));
        let Self { demands, columns, book, places, default_spreads, .. } = self;
        let defaults = &request.settings.default_spreads;
        if let Some(shape) = default_spreads.applied(request.cluster, defaults, pod) {
            let pod = Pod { shape, ..pod.clone() };
            return demands.of(request.cluster, &pod, is_homeless, columns, book, places.rooms());
        }
        demands.of(request.cluster, pod, is_homeless, columns, book, places.rooms())
    }

    /// The numbers of those of `places` that take pods.
    pub(super) fn numbers(&self, places: &BTreeSet<Place>) -> BTreeSet<usize> {
        places.iter().filter_map(|place| self.places.number(*place)).collect()
    }

    /// The number of `place`, if it takes pods.
    pub(super) fn number(&self, place: Place) -> Option<usize> {
        self.places.number(place)
    }

    /// What nodes and claims at `places` use of the limits of their pools.
    pub(super) fn used_at(&self, places: &BTreeSet<Place>) -> BTreeMap<PoolName, Resources> {
        let mut used: BTreeMap<PoolName, Resources> = BTreeMap::new();
        let counted = places.iter().filter_map(|place| self.census.counted.get(place)?.pool.as_ref());
        for (pool, capacity) in counted {
            used.entry(*pool).or_default().add(capacity);
        }
        used
    }

    pub(super) fn room(&self, node: NodeName) -> Option<usize> {
        self.places.number(Place::Node(node))
    }

    /// Pods of the request that run somewhere now and will not, as topology has counted them.
    pub(super) fn leaving(&mut self, request: &Request) -> Vec<Leaving> {
        let mut leaving = Vec::new();
        for pod in request.pods.iter().chain(request.departing) {
            if let Some(host) = pod.node.and_then(|node| self.book.host(node))
                && !pod.is_terminal()
            {
                let standing = self.book.standing_of(request.cluster, self.places.rooms(), &pod.shape);
                leaving.push(Leaving { standing, host, is_counted: pod.deleted.is_none() });
            }
        }
        leaving
    }
}

/// Drivers of which all volume claims together may be more than one machine can attach.
fn scarce_drivers(cluster: &Cluster, supply: &Supply) -> BTreeSet<Symbol> {
    let claims = cluster.volume_claims.len();
    if claims == 0 {
        return BTreeSet::new();
    }
    let types = cluster.pools.keys().map(|pool| supply.types(*pool));
    let scarce = |kind: &InstanceType| {
        let limits = kind.volumes_max.iter();
        limits.filter(|(_, most)| (*most as usize) < claims).map(|(driver, _)| *driver).collect::<Vec<_>>()
    };
    types.flat_map(|types| types.iter().flat_map(scarce).collect::<BTreeSet<Symbol>>()).collect()
}

fn classes_of(cluster: &Cluster) -> Vec<(ClassName, bool, bool)> {
    cluster.classes.values().map(|class| (class.name, class.is_ready, class.is_deleting)).collect()
}

/// What runs on nodes, in columns. What a pod has of a resource that no node and no type knows is not taken from anybody.
struct Loads {
    columns: Columns,
    is_known: Vec<bool>,
    has_daemons: bool,
}

impl Loads {
    fn of(ground: &Ground) -> Self {
        let known = &ground.census.known_then;
        Self {
            is_known: ground.columns.names().iter().map(|name| known.contains(name)).collect(),
            columns: ground.columns.clone(),
            has_daemons: !ground.daemons.is_empty(),
        }
    }

    fn at<'a>(&self, cluster: &'a Cluster, place: Place) -> Load<'a> {
        let nothing = vec![0; self.columns.len()];
        let mut load =
            Load { requests: nothing.clone(), of_daemons: nothing, ports: Vec::new(), daemons: Vec::new() };
        let Place::Node(name) = place else { return load };
        for pod in cluster.guests_of(name).filter(|pod| !pod.is_terminal()) {
            self.add(&mut load.requests, &pod.shape.requests);
            load.ports.extend(pod.shape.host_ports.iter().copied());
            if self.has_daemons && pod.is_daemon() {
                self.add(&mut load.of_daemons, &pod.shape.requests);
                load.daemons.push(pod);
            }
        }
        load
    }

    fn add(&self, row: &mut [i64], requests: &Resources) {
        for (name, amount) in requests.iter() {
            if let Some(at) = self.columns.position(name).filter(|at| self.is_known[*at]) {
                row[at] = row[at].saturating_add(amount);
            }
        }
    }
}

/// Templates of the pools that take demand, heaviest first, later names first among equals; and why others take none.
fn templates_of(
    cluster: &Cluster,
    supply: &Supply,
    daemons: &[Daemon],
    columns: &Columns,
) -> (Vec<Template>, Vec<Refusal>) {
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
            let template = Template::new(pool, supply.types(pool.name), daemons, columns);
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
