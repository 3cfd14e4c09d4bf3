//! What each pool could buy: the catalogue as its node class would boot it, less what is sold out, with overlays applied.
//!
//! A supply is made once per round and shared by every simulation of that round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::template::requirements_of;
use super::{Settings, overlay};
use crate::capacity::cluster::Cluster;
use crate::model::hash::FastMap;
use crate::model::name::{ClassName, PoolName, TypeName, Zone};
use crate::model::offering::{CapacityType, InstanceType};
use crate::model::pool::NodePool;
use crate::model::requirement::Requirements;
use crate::model::symbol::Symbol;

/// An offering by its names.
pub type OfferingKey = (TypeName, Zone, CapacityType);

/// Instance types by pool.
#[derive(Clone, Debug, Default)]
pub struct Supply {
    by_pool: BTreeMap<PoolName, Arc<Vec<InstanceType>>>,
    /// Before the pools' own requirements: what a node of an earlier requirement is priced by.
    sold: BTreeMap<PoolName, Sold>,
    overlaid: overlay::Applied,
    /// Pools for which overlays were not judged, and why.
    unlisted: BTreeMap<PoolName, String>,
}

/// All that a class sells, and where each type stands in it.
#[derive(Clone, Debug, Default)]
struct Sold {
    types: Arc<Vec<InstanceType>>,
    by_name: Arc<FastMap<TypeName, usize>>,
}

impl Sold {
    fn of(types: &Arc<Vec<InstanceType>>) -> Self {
        let mut by_name: FastMap<TypeName, usize> = FastMap::default();
        for (at, kind) in types.iter().enumerate() {
            by_name.entry(kind.name).or_insert(at);
        }
        Self { types: types.clone(), by_name: Arc::new(by_name) }
    }

    /// Pools that are sold the same share it.
    fn by_pool(types: &BTreeMap<PoolName, Arc<Vec<InstanceType>>>) -> BTreeMap<PoolName, Self> {
        let mut known: FastMap<usize, Self> = FastMap::default();
        let mut of = |types: &Arc<Vec<InstanceType>>| {
            known.entry(Arc::as_ptr(types) as usize).or_insert_with(|| Self::of(types)).clone()
        };
        types.iter().map(|(pool, types)| (*pool, of(types))).collect()
    }
}

impl Supply {
    pub fn new(by_pool: BTreeMap<PoolName, Arc<Vec<InstanceType>>>) -> Self {
        Self { sold: Sold::by_pool(&by_pool), by_pool, ..Self::default() }
    }

    /// What the cluster's catalogue offers to each of its pools, overlays applied if `settings` let them; nothing before
    /// there is a catalogue.
    pub fn of(cluster: &Cluster, settings: &Settings) -> Self {
        let Some(catalog) = &cluster.catalog else { return Self::default() };
        let mut by_class: BTreeMap<ClassName, Arc<Vec<InstanceType>>> = BTreeMap::new();
        let by_pool = cluster.pools.values().map(|pool| {
            let class = pool.template.class.name;
            let types = by_class
                .entry(class)
                .or_insert_with(|| catalog.instance_types(cluster.classes.get(&class).map(|class| &**class)));
            (pool.name, types.clone())
        });
        let mut by_pool: BTreeMap<PoolName, Arc<Vec<InstanceType>>> = by_pool.collect();
        let overlays = cluster.overlays.values().map(|overlay| &**overlay);
        let overlays = overlays.filter(|overlay| settings.node_overlay && overlay.fault.is_none());
        // A pool whose types nobody can list now keeps the others' overlays from nothing: it is judged once it can.
        let unlisted: BTreeMap<PoolName, String> =
            cluster.pools.values().filter_map(|pool| Some((pool.name, unlisted(cluster, pool)?))).collect();
        let mut judged = by_pool.clone();
        judged.retain(|pool, _| !unlisted.contains_key(pool));
        // Overlays are judged over every type, those that no pool allows included; only then is the rest put away.
        let overlaid = overlay::apply(overlays, &cluster.pools, &mut judged);
        by_pool.extend(judged);
        let sold = Sold::by_pool(&by_pool);
        for (name, types) in &mut by_pool {
            *types = Arc::new(allowed(types, &requirements_of(&cluster.pools[name])));
        }
        Self { by_pool, sold, overlaid, unlisted }
    }

    /// Pools whose types cannot be listed now, and why: overlays have no effect on them until they can.
    pub fn unlisted(&self) -> &BTreeMap<PoolName, String> {
        &self.unlisted
    }

    /// Overlays without effect, because one of the same weight speaks of the same thing.
    pub fn overlay_conflicts(&self) -> &BTreeSet<Symbol> {
        &self.overlaid.conflicts
    }

    /// Whether overlays decide a price, and whether they decide a resource, of one of `types` of `pool`.
    pub fn overlaid(&self, pool: PoolName, types: &BTreeSet<TypeName>) -> (bool, bool) {
        let is_any = |of: &BTreeSet<(PoolName, TypeName)>| {
            !of.is_empty() && types.iter().any(|name| of.contains(&(pool, *name)))
        };
        (is_any(&self.overlaid.repriced), is_any(&self.overlaid.enlarged))
    }

    /// Everything that is sold under the class of `pool`, whether or not the pool asks for it now.
    pub fn sold(&self, pool: PoolName) -> Arc<Vec<InstanceType>> {
        self.sold.get(&pool).map(|sold| sold.types.clone()).unwrap_or_default()
    }

    /// The type of that name, if it is sold under the class of `pool`.
    pub(super) fn kind(&self, pool: PoolName, name: TypeName) -> Option<&InstanceType> {
        let sold = self.sold.get(&pool)?;
        sold.by_name.get(&name).map(|at| &sold.types[*at])
    }

    /// Types that `pool` may be offered, in no particular order; none for a pool that is not known.
    pub fn types(&self, pool: PoolName) -> Arc<Vec<InstanceType>> {
        self.by_pool.get(&pool).cloned().unwrap_or_default()
    }

    /// What `pool` could buy if it were as it is here; nothing of any other.
    pub fn edited(&self, pool: &NodePool) -> Self {
        let types = Arc::new(allowed(&self.sold(pool.name), &requirements_of(pool)));
        Self { by_pool: [(pool.name, types)].into_iter().collect(), ..Self::default() }
    }

    /// The same, with the offerings in `sold_out` marked as not available.
    pub fn without(mut self, sold_out: &BTreeSet<OfferingKey>) -> Self {
        if sold_out.is_empty() {
            return self;
        }
        for types in self.by_pool.values_mut() {
            for kind in Arc::make_mut(types) {
                for offering in &mut kind.offerings {
                    if sold_out.contains(&(kind.name, offering.zone, offering.capacity_type)) {
                        offering.is_available = false;
                    }
                }
            }
        }
        self
    }
}

/// Why nobody knows what `pool` could buy: subnets and images of its class are not resolved.
fn unlisted(cluster: &Cluster, pool: &NodePool) -> Option<String> {
    let class = cluster.classes.get(&pool.template.class.name)?;
    if class.is_deleting {
        return Some(format!("node class {} is being deleted", class.name));
    }
    (!class.is_ready).then(|| match &class.readiness {
        Some(ready) if !ready.message.is_empty() => {
            format!("node class {} is not ready: {}", class.name, ready.message)
        }
        _ => format!("node class {} is not ready", class.name),
    })
}

/// Types and offerings that a pool's own requirements leave: every solve looks at all that is here.
fn allowed(types: &[InstanceType], requirements: &Requirements) -> Vec<InstanceType> {
    let agrees = types.iter().filter(|kind| kind.requirements.intersects(requirements).is_ok());
    let narrowed = agrees.map(|kind| {
        let mut kind = kind.clone();
        kind.offerings.retain(|offering| offering.suits(requirements));
        kind
    });
    narrowed.filter(|kind| !kind.offerings.is_empty()).collect()
}
