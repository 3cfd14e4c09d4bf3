//! What a node that does not exist yet may still become.
//!
//! New nodes start alike and are narrowed alike. So the state of one (its pool, what it must be, what it may be bought as, room
//! aside) is kept once and has a number, and what a pod or a choice of domains makes of it is worked out once and then
//! looked up.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::amounts::{self, Amounts};
use super::demand::{Demand, DemandId, Level, LevelId};
use super::explain::Refused;
use super::template::Template;
use super::topology::{DomainId, KeyId, Keys, Reach};
use crate::model::hash::FastMap;
use crate::model::label;
use crate::model::money::UsdPerHour;
use crate::model::requirement::{Conflict, Operator, Requirement, Requirements};
use crate::model::symbol::Symbol;
use crate::model::taint::first_untolerated;

pub(super) type OutlookId = usize;

/// What topology makes of a node: for some keys, the domains that are left.
pub(super) type Choice = Vec<(KeyId, Vec<DomainId>)>;

pub(super) struct Outlook {
    pub template: usize,
    pub requirements: Arc<Requirements>,
    /// Ways to buy that the requirements, limits and ports leave, whether or not they have room.
    pub open: Arc<FixedBitSet>,
    /// The room of types than which no other has more of everything.
    largest: Vec<Amounts>,
    pub has_min_values: bool,
}

impl Outlook {
    /// Whether some type has room for `requests`.
    pub fn has_room(&self, requests: &[i64]) -> bool {
        self.largest.iter().any(|room| amounts::fits(requests, room))
    }
}

/// All that were met so far.
#[derive(Default)]
pub(super) struct Outlooks {
    all: Vec<Outlook>,
    numbers: FastMap<(usize, Arc<Requirements>, Arc<FixedBitSet>), OutlookId>,
    fresh: FastMap<(usize, Arc<FixedBitSet>), OutlookId>,
    /// By template, the latest of those: the set itself is not looked through again.
    freshest: Vec<Option<(Arc<FixedBitSet>, OutlookId)>>,
    met: FastMap<(OutlookId, LevelId), Result<OutlookId, Refused>>,
    with_volume: FastMap<(OutlookId, DemandId, usize), Result<OutlookId, Refused>>,
    chosen: FastMap<(OutlookId, Choice), Result<OutlookId, Refused>>,
    reaches: FastMap<(OutlookId, KeyId), Arc<Reach>>,
    /// Of each, prices that buy room which no lower price buys, cheapest first.
    prices: Vec<Option<Vec<(UsdPerHour, Amounts)>>>,
}

impl Outlooks {
    pub fn get(&self, id: OutlookId) -> &Outlook {
        &self.all[id]
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn number(
        &mut self,
        template: usize,
        of: &Template,
        requirements: Requirements,
        open: FixedBitSet,
    ) -> OutlookId {
        let (requirements, open) = (Arc::new(requirements), Arc::new(open));
        let key = (template, requirements.clone(), open.clone());
        if let Some(known) = self.numbers.get(&key) {
            return *known;
        }
        let largest = of.largest(&open);
        let has_min_values = requirements.iter().any(|(_, requirement)| requirement.min_values.is_some());
        self.all.push(Outlook { template, requirements, open, largest, has_min_values });
        self.numbers.insert(key, self.all.len() - 1);
        self.all.len() - 1
    }

    /// What a node costs at the least that is no more than this and carries `requests`.
    pub fn price(&mut self, id: OutlookId, of: &Template, requests: &[i64]) -> Option<UsdPerHour> {
        if id >= self.prices.len() {
            self.prices.resize(self.all.len(), None);
        }
        let prices = self.prices[id].get_or_insert_with(|| of.prices(&self.all[id].open));
        let carrier = prices.iter().find(|(_, room)| amounts::fits(requests, room));
        carrier.map(|(price, _)| *price)
    }

    /// An empty node of `template`; `open`: what limits allow.
    pub fn fresh(&mut self, template: usize, of: &Template, open: &Arc<FixedBitSet>) -> OutlookId {
        if template >= self.freshest.len() {
            self.freshest.resize(template + 1, None);
        }
        if let Some((latest, id)) = &self.freshest[template]
            && Arc::ptr_eq(latest, open)
        {
            return *id;
        }
        let id = self.fresh_of(template, of, open);
        self.freshest[template] = Some((open.clone(), id));
        id
    }

    fn fresh_of(&mut self, template: usize, of: &Template, open: &Arc<FixedBitSet>) -> OutlookId {
        if let Some(known) = self.fresh.get(&(template, open.clone())) {
            return *known;
        }
        // Its name is not known yet, but it is none that anybody could ask for.
        let mut requirements = of.requirements.clone();
        requirements.add(*label::HOSTNAME, Requirement::one(Symbol::new("provisor.dev/new")));
        let id = self.number(template, of, requirements, (**open).clone());
        self.fresh.insert((template, open.clone()), id);
        id
    }

    /// With a pod of `level` on it, its volumes and rules about other pods aside.
    pub fn meet(&mut self, id: OutlookId, of: &Template, level: &Level) -> Result<OutlookId, Refused> {
        if of.taints().is_empty() && level.full.is_empty() && level.shape.host_ports.is_empty() {
            return Ok(id);
        }
        if let Some(known) = self.met.get(&(id, level.id)) {
            return known.clone();
        }
        let met = self.met_anew(id, of, level);
        self.met.insert((id, level.id), met.clone());
        met
    }

    fn met_anew(&mut self, id: OutlookId, of: &Template, level: &Level) -> Result<OutlookId, Refused> {
        if let Some(taint) = first_untolerated(of.taints(), &level.shape.tolerations) {
            return Err(Refused::Taint(*taint));
        }
        let before = self.all[id].requirements.clone();
        can_become(of, &before, &level.full).map_err(Refused::Requirements)?;
        if level.full.is_empty() && level.shape.host_ports.is_empty() {
            return Ok(id);
        }
        let mut open = (*self.all[id].open).clone();
        of.keep_free_ports(&mut open, &level.shape.host_ports).map_err(Refused::DaemonPort)?;
        Ok(self.narrowed(id, of, &level.full, open))
    }

    /// With the volumes of `demand` in the place that the alternative names.
    pub fn with_volume(
        &mut self,
        id: OutlookId,
        of: &Template,
        demand: &Demand,
        alternative: usize,
        place: &Requirements,
    ) -> Result<OutlookId, Refused> {
        if let Some(known) = self.with_volume.get(&(id, demand.id, alternative)) {
            return known.clone();
        }
        let before = self.all[id].requirements.clone();
        let with = match can_become(of, &before, place) {
            Ok(()) => {
                let open = (*self.all[id].open).clone();
                Ok(self.narrowed(id, of, place, open))
            }
            Err(conflict) => Err(Refused::Volume(conflict)),
        };
        self.with_volume.insert((id, demand.id, alternative), with.clone());
        with
    }

    /// In the domains of `choice`.
    pub fn choose(
        &mut self,
        id: OutlookId,
        of: &Template,
        choice: &Choice,
        keys: &Keys,
    ) -> Result<OutlookId, Refused> {
        if choice.is_empty() {
            return Ok(id);
        }
        if let Some(known) = self.chosen.get(&(id, choice.clone())) {
            return known.clone();
        }
        let named = choice.iter().map(|(key, domains)| {
            let table = keys.get(*key);
            (table.key, Requirement::new(Operator::In, domains.iter().map(|domain| table.symbol(*domain))))
        });
        let wanted: Requirements = named.collect();
        let before = self.all[id].requirements.clone();
        let chosen = match can_become(of, &before, &wanted) {
            Ok(()) => {
                let open = (*self.all[id].open).clone();
                Ok(self.narrowed(id, of, &wanted, open))
            }
            Err(conflict) => Err(Refused::Requirements(conflict)),
        };
        self.chosen.insert((id, choice.clone()), chosen.clone());
        chosen
    }

    fn narrowed(
        &mut self,
        id: OutlookId,
        of: &Template,
        wanted: &Requirements,
        mut open: FixedBitSet,
    ) -> OutlookId {
        let template = self.all[id].template;
        let before = self.all[id].requirements.clone();
        let mut requirements = (*before).clone();
        requirements.add_all(wanted);
        of.narrow(&mut open, &before, &requirements);
        self.number(template, of, requirements, open)
    }

    /// The domains of `key` that the node may still be in.
    pub fn reach(&mut self, id: OutlookId, key: KeyId, keys: &mut Keys) -> Arc<Reach> {
        if let Some(known) = self.reaches.get(&(id, key)).filter(|reach| keys.is_current(key, reach)) {
            return known.clone();
        }
        let requirement = self.all[id].requirements.get(keys.get(key).key);
        let reach = Arc::new(keys.reach(key, requirement));
        self.reaches.insert((id, key), reach.clone());
        reach
    }
}

/// Whether a node with requirements `node` can also meet `wanted`. What a label may be is for the pool to define: that an
/// earlier pod refused some value of it defines nothing.
pub(super) fn can_become(of: &Template, node: &Requirements, wanted: &Requirements) -> Result<(), Conflict> {
    for (key, asked) in wanted.iter() {
        asked.satisfiable(key)?;
        let is_defined =
            of.requirements.get(key).is_some() || label::is_well_known(key) || key == *label::HOSTNAME;
        if !is_defined && !asked.accepts_absence() {
            return Err(Conflict::Undefined { key, asked: Box::new(asked.clone()) });
        }
    }
    node.intersects(wanted)
}
