//! A node that does not exist yet: what it may still become, and who is on it.
//!
//! It only ever narrows. A pod that comes adds its requirements and its requests; what is left of the ways to buy must
//! still suit everybody.

use std::collections::BTreeSet;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::amounts::{self, Amounts, Columns};
use super::demand::{Demand, Level};
use super::explain::Refused;
use super::outlook::{Choice, OutlookId};
use super::reservations::Reservations;
use super::template::Template;
use super::topology::{Sight, Stance, Topology};
use super::volumes::PodVolumes;
use super::{MinValuesPolicy, Settings};
use crate::model::money::UsdPerHour;
use crate::model::name::ObjectKey;
use crate::model::pod::HostPort;
use crate::model::symbol::Symbol;

#[derive(Clone)]
pub(super) struct Bin {
    pub template: usize,
    pub outlook: OutlookId,
    /// Of its pods, without daemons.
    pub requests: Amounts,
    /// In the order of arrival.
    pub pods: Vec<ObjectKey>,
    ports: Vec<HostPort>,
    attached: BTreeSet<(Symbol, ObjectKey)>,
    /// Reservations that it may draw on; they are kept for it.
    pub held: BTreeSet<Symbol>,
    pub is_min_values_relaxed: bool,
    /// It takes no more pods than a machine of this price carries.
    pub price_max: Option<UsdPerHour>,
}

/// What a bin becomes with one more pod.
pub(super) struct Admission {
    outlook: OutlookId,
    held: BTreeSet<Symbol>,
    is_min_values_relaxed: bool,
}

impl Admission {
    pub fn outlook(&self) -> OutlookId {
        self.outlook
    }
}

/// The pod that asks.
pub(super) struct Guest<'a> {
    pub demand: &'a Demand,
    pub level: &'a Level,
    pub volumes: &'a PodVolumes,
    pub stances: &'a [Stance<'a>],
}

impl Guest<'_> {
    /// Whether ports and volumes of new nodes are nothing to it.
    pub fn is_plain(&self) -> bool {
        self.level.shape.host_ports.is_empty() && self.volumes.attached.is_empty()
    }
}

/// What admission looks at besides the bin and its guest.
pub(super) struct Surroundings<'s> {
    pub sight: Sight<'s>,
    pub topology: &'s Topology,
    pub reservations: &'s Reservations,
    pub settings: &'s Settings,
    pub columns: &'s Columns,
    /// Whether losing reserved capacity is a refusal.
    pub insists_on_reserved: bool,
}

impl Surroundings<'_> {
    /// What topology leaves of a node: alternatives, best first.
    fn choices(&mut self, guest: &Guest, bin: usize, outlook: OutlookId) -> Result<Vec<Choice>, Refused> {
        if guest.stances.is_empty() {
            return Ok(vec![Choice::new()]);
        }
        self.topology.choices(guest.stances, bin, outlook, &mut self.sight)
    }
}

impl Bin {
    pub fn new(template: usize, outlook: OutlookId, columns: &Columns) -> Self {
        Self {
            template,
            outlook,
            requests: columns.row(&Default::default()),
            pods: Vec::new(),
            ports: Vec::new(),
            attached: BTreeSet::new(),
            held: BTreeSet::new(),
            is_min_values_relaxed: false,
            price_max: None,
        }
    }

    fn is_new(&self) -> bool {
        self.pods.is_empty()
    }

    /// What its pods and the guest ask for, into `requests`. A volume that several of them share counts once.
    pub fn sum_with(&self, guest: &Guest, columns: &Columns, requests: &mut Amounts) {
        requests.clone_from(&self.requests);
        amounts::add(requests, &guest.demand.requests);
        if !self.attached.is_empty() {
            columns.detach(guest.volumes.attached.intersection(&self.attached), requests);
        }
    }

    /// Whether the pod may come to this node, the `at`-th of the new ones. `requests`: what is asked of it then.
    pub fn admits(
        &self,
        at: usize,
        guest: &Guest,
        requests: &[i64],
        around: &mut Surroundings,
    ) -> Result<Admission, Refused> {
        let of = &around.sight.templates[self.template];
        let met = around.sight.outlooks.meet(self.outlook, of, guest.level)?;
        if !self.is_new() && !around.sight.outlooks.get(met).has_room(requests) {
            return Err(Refused::NodeFull);
        }
        let clash = |port: &&HostPort| self.ports.iter().any(|present| present.clashes_with(port));
        if let Some(port) = guest.level.shape.host_ports.iter().find(clash) {
            return Err(Refused::HostPort(port.port));
        }
        let choices = around.choices(guest, at, met)?;
        if !around.sight.outlooks.get(met).has_room(requests) {
            return Err(self.none_left(met, requests, around));
        }
        if guest.volumes.alternatives.is_empty() {
            return self.first_of(choices, met, guest, requests, around);
        }
        let mut first_refusal = None;
        for (index, place) in guest.volumes.alternatives.iter().enumerate() {
            let with = around.sight.outlooks.with_volume(met, of, guest.demand, index, place);
            let tried = with.and_then(|with| {
                // Topology comes last of the requirements, because it may leave a single value.
                if !around.sight.outlooks.get(with).has_room(requests) {
                    return Err(self.none_left(with, requests, around));
                }
                let choices = around.choices(guest, at, with)?;
                self.first_of(choices, with, guest, requests, around)
            });
            match tried {
                Ok(admission) => return Ok(admission),
                // What may change is worth more than what may not: the pod is not given up for good.
                Err(refused)
                    if first_refusal.as_ref().is_none_or(Refused::is_final) && !refused.is_final() =>
                {
                    first_refusal = Some(refused);
                }
                Err(refused) => drop(first_refusal.get_or_insert(refused)),
            }
        }
        Err(first_refusal.expect("there is at least one alternative"))
    }

    /// The first of the choices that leaves something to buy.
    fn first_of(
        &self,
        choices: Vec<Choice>,
        outlook: OutlookId,
        guest: &Guest,
        requests: &[i64],
        around: &mut Surroundings,
    ) -> Result<Admission, Refused> {
        let mut refusal = None;
        for choice in choices {
            match self.chosen(&choice, outlook, requests, around) {
                Ok(admission) => return Ok(admission),
                Err(refused) => drop(refusal.get_or_insert(refused)),
            }
        }
        let refused = refusal.expect("there is at least one choice");
        let is_about_domain = !guest.stances.is_empty() && refused != Refused::Reserved;
        Err(if is_about_domain { Refused::InDomain(Box::new(refused)) } else { refused })
    }

    /// Only for a node that would be opened does anybody ask why; there, all pods before this one play no part.
    fn none_left(&self, outlook: OutlookId, requests: &[i64], around: &Surroundings) -> Refused {
        if !self.is_new() {
            return Refused::NodeFull;
        }
        let of = &around.sight.templates[self.template];
        let requirements = &around.sight.outlooks.get(outlook).requirements;
        Refused::Types(Arc::new(of.why_none(requirements, requests, around.columns)))
    }

    fn chosen(
        &self,
        choice: &Choice,
        outlook: OutlookId,
        requests: &[i64],
        around: &mut Surroundings,
    ) -> Result<Admission, Refused> {
        let of = &around.sight.templates[self.template];
        let mut outlook = around.sight.outlooks.choose(outlook, of, choice, &around.sight.book.keys)?;
        if !around.sight.outlooks.get(outlook).has_room(requests) {
            return Err(self.none_left(outlook, requests, around));
        }
        let mut is_min_values_relaxed = self.is_min_values_relaxed;
        let facts = around.sight.outlooks.get(outlook);
        if facts.has_min_values {
            let open = of.with_room(&facts.open, requests);
            let missing = of.missing_values(&facts.requirements, &open);
            if let Some((key, wanted, found)) = missing.first().copied() {
                if around.settings.min_values == MinValuesPolicy::Strict || !self.is_new() {
                    return Err(Refused::MinValues { key, wanted, found });
                }
                let (mut requirements, open) = ((*facts.requirements).clone(), (*facts.open).clone());
                for (key, _, found) in missing {
                    let asked = requirements.get(key).cloned();
                    let lowered = asked.map(|asked| asked.with_min_values(Some(found)));
                    requirements.replace(key, lowered.expect("a minimum is part of a requirement"));
                }
                outlook = around.sight.outlooks.number(self.template, of, requirements, open);
                is_min_values_relaxed = true;
            }
        }
        let mut held = BTreeSet::new();
        if !around.reservations.is_empty() {
            let open = of.with_room(&around.sight.outlooks.get(outlook).open, requests);
            let wanted = around.reservations.wanted(of, &open, &self.held, around.settings.reserved_capacity);
            let is_lost = wanted.is_refused || (!self.held.is_empty() && wanted.ids.is_empty());
            if around.insists_on_reserved && is_lost {
                return Err(Refused::Reserved);
            }
            held = wanted.ids;
        }
        Ok(Admission { outlook, held, is_min_values_relaxed })
    }

    /// What it costs at the least with what is on it now.
    pub fn price(&self, around: &mut Surroundings) -> Option<UsdPerHour> {
        let of = &around.sight.templates[self.template];
        around.sight.outlooks.price(self.outlook, of, &self.requests)
    }

    /// The same once it becomes this.
    pub fn price_as(
        &self,
        becomes: &Admission,
        requests: &[i64],
        around: &mut Surroundings,
    ) -> Option<UsdPerHour> {
        let of = &around.sight.templates[self.template];
        around.sight.outlooks.price(becomes.outlook, of, requests)
    }

    /// Whether it still is of its price if it becomes this.
    pub fn affords(&self, becomes: &Admission, requests: &[i64], around: &mut Surroundings) -> bool {
        let Some(most) = self.price_max else { return true };
        self.price_as(becomes, requests, around).is_some_and(|price| price <= most)
    }

    /// Takes the pod in.
    pub fn take(&mut self, pod: ObjectKey, guest: &Guest, becomes: Admission, columns: &Columns) {
        self.outlook = becomes.outlook;
        let mut requests = Amounts::new();
        self.sum_with(guest, columns, &mut requests);
        self.requests = requests;
        self.attached.extend(&guest.volumes.attached);
        self.held = becomes.held;
        self.is_min_values_relaxed = becomes.is_min_values_relaxed;
        self.ports.extend(guest.level.shape.host_ports.iter().copied());
        self.pods.push(pod);
    }

    /// The ways to buy it.
    pub fn open(&self, of: &Template, open: &FixedBitSet) -> FixedBitSet {
        of.with_room(open, &self.requests)
    }
}
