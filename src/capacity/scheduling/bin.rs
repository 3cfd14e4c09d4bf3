//! A node that does not exist yet: what it must be, what it may be bought as, and who is on it.
//!
//! It only ever narrows. A pod that comes adds its requirements and its requests; what is left of the ways to buy must
//! still suit everybody.

use std::collections::BTreeSet;
use std::rc::Rc;

use fixedbitset::FixedBitSet;

use super::amounts::{self, Amounts, Columns};
use super::explain::Refused;
use super::reservations::Reservations;
use super::template::Template;
use super::topology::{Topology, View};
use super::volumes::PodVolumes;
use super::{MinValuesPolicy, Settings};
use crate::model::label;
use crate::model::pod::{HostPort, PodShape};
use crate::model::requirement::{Conflict, Requirement, Requirements};
use crate::model::symbol::Symbol;
use crate::model::taint::first_untolerated;

pub(super) struct Bin {
    pub template: usize,
    pub requirements: Rc<Requirements>,
    pub open: FixedBitSet,
    /// Of its pods, without daemons.
    pub requests: Amounts,
    /// Indexes into the batch, in the order of arrival.
    pub pods: Vec<usize>,
    ports: Vec<HostPort>,
    /// Reservations that it may draw on; they are kept for it.
    pub held: BTreeSet<Symbol>,
    /// The most room that one of its types has, by resource: more than that cannot fit.
    ceiling: Amounts,
    pub is_min_values_relaxed: bool,
    is_new: bool,
}

/// What a bin becomes with one more pod.
pub(super) struct Admission {
    requirements: Requirements,
    open: FixedBitSet,
    requests: Amounts,
    held: BTreeSet<Symbol>,
    is_min_values_relaxed: bool,
}

/// The pod that asks.
pub(super) struct Guest<'a> {
    pub shape: &'a PodShape,
    pub full: &'a Requirements,
    pub requests: &'a [i64],
    pub volumes: &'a PodVolumes,
    pub view: View<'a>,
}

/// What admission looks at besides the bin and its guest.
pub(super) struct Surroundings<'a, 'c> {
    pub topology: &'a Topology<'c>,
    pub reservations: &'a Reservations,
    pub settings: &'a Settings,
    pub columns: &'a Columns,
    /// Whether losing reserved capacity is a refusal.
    pub insists_on_reserved: bool,
}

impl Surroundings<'_, '_> {
    /// What topology leaves of a node with these requirements: alternatives, best first.
    fn narrowings(&self, view: &View, node: &Requirements) -> Result<Vec<Requirements>, Refused> {
        if view.is_free() { Ok(vec![Requirements::new()]) } else { self.topology.narrowings(view, node) }
    }
}

impl Bin {
    /// An empty node of the template, by the name of its future host; `open`: what limits allow.
    pub fn new(template: usize, of: &Template, host: Symbol, open: FixedBitSet, columns: &Columns) -> Self {
        let mut requirements = of.requirements.clone();
        requirements.add(*label::HOSTNAME, Requirement::one(host));
        let ceiling = ceiling(of, &open, columns);
        Self {
            template,
            requirements: Rc::new(requirements),
            open,
            requests: columns.row(&Default::default()),
            pods: Vec::new(),
            ports: Vec::new(),
            held: BTreeSet::new(),
            ceiling,
            is_min_values_relaxed: false,
            is_new: true,
        }
    }

    pub fn admits(&self, of: &Template, guest: &Guest, around: &Surroundings) -> Result<Admission, Refused> {
        let requests = amounts::sum(&self.requests, guest.requests);
        if !self.is_new && !amounts::fits(&requests, &self.ceiling) {
            return Err(Refused::NodeFull);
        }
        if let Some(taint) = first_untolerated(of.taints(), &guest.shape.tolerations) {
            return Err(Refused::Taint(*taint));
        }
        can_become(of, &self.requirements, guest.full).map_err(Refused::Requirements)?;
        let mut requirements = (*self.requirements).clone();
        requirements.add_all(guest.full);
        let clash = |port: &&HostPort| self.ports.iter().any(|present| present.clashes_with(port));
        if let Some(port) = guest.shape.host_ports.iter().find(clash) {
            return Err(Refused::HostPort(port.port));
        }
        // The cheapest way to be refused by a crowded node, and a volume could only make it worse.
        let narrowings = around.narrowings(&guest.view, &requirements)?;
        let mut open = self.open.clone();
        of.narrow(&mut open, &self.requirements, &requirements);
        of.keep_free_ports(&mut open, &guest.shape.host_ports).map_err(Refused::DaemonPort)?;
        if !of.keep_fitting(&mut open, &requests) {
            return Err(self.none_left(of, &requirements, &requests, around));
        }
        if guest.volumes.alternatives.is_empty() {
            return self.narrowed_to_first(of, around, &requirements, narrowings, &open, &requests);
        }
        let mut first_refusal = None;
        for volume in &guest.volumes.alternatives {
            let tried = match can_become(of, &requirements, volume) {
                Ok(()) => self.with_volume(of, guest, around, &requirements, volume, &open, &requests),
                Err(conflict) => Err(Refused::Volume(conflict)),
            };
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

    /// Topology comes last of the requirements, because it may leave a single value.
    #[expect(clippy::too_many_arguments, reason = "one step of admission, split off to be readable")]
    fn with_volume(
        &self,
        of: &Template,
        guest: &Guest,
        around: &Surroundings,
        requirements: &Requirements,
        volume: &Requirements,
        open: &FixedBitSet,
        requests: &[i64],
    ) -> Result<Admission, Refused> {
        let mut placed = requirements.clone();
        placed.add_all(volume);
        let mut open = open.clone();
        of.narrow(&mut open, requirements, &placed);
        if open.is_clear() {
            return Err(self.none_left(of, &placed, requests, around));
        }
        let narrowings = around.narrowings(&guest.view, &placed)?;
        self.narrowed_to_first(of, around, &placed, narrowings, &open, requests)
    }

    /// The first of the narrowings that leaves something to buy.
    fn narrowed_to_first(
        &self,
        of: &Template,
        around: &Surroundings,
        placed: &Requirements,
        narrowings: Vec<Requirements>,
        open: &FixedBitSet,
        requests: &[i64],
    ) -> Result<Admission, Refused> {
        let by_choice = narrowings.len() > 1 || narrowings.iter().any(|narrowing| !narrowing.is_empty());
        let mut refusal = None;
        for narrowing in narrowings {
            match self.narrowed(of, around, placed, &narrowing, open, requests) {
                Ok(admission) => return Ok(admission),
                Err(refused) => drop(refusal.get_or_insert(refused)),
            }
        }
        let refused = refusal.expect("there is at least one narrowing");
        let is_about_domain = by_choice && refused != Refused::Reserved;
        Err(if is_about_domain { Refused::InDomain(Box::new(refused)) } else { refused })
    }

    /// Only for a node that would be opened does anybody ask why; there, all pods before this one play no part.
    fn none_left(
        &self,
        of: &Template,
        requirements: &Requirements,
        requests: &[i64],
        around: &Surroundings,
    ) -> Refused {
        if self.is_new {
            Refused::Types(of.why_none(requirements, requests, around.columns))
        } else {
            Refused::NodeFull
        }
    }

    fn narrowed(
        &self,
        of: &Template,
        around: &Surroundings,
        before: &Requirements,
        narrowing: &Requirements,
        open: &FixedBitSet,
        requests: &[i64],
    ) -> Result<Admission, Refused> {
        can_become(of, before, narrowing).map_err(Refused::Requirements)?;
        let mut requirements = before.clone();
        requirements.add_all(narrowing);
        let mut open = open.clone();
        of.narrow(&mut open, before, &requirements);
        if open.is_clear() {
            return Err(self.none_left(of, &requirements, requests, around));
        }
        let mut is_min_values_relaxed = self.is_min_values_relaxed;
        let missing = of.missing_values(&requirements, &open);
        if let Some((key, wanted, found)) = missing.first().copied() {
            if around.settings.min_values == MinValuesPolicy::Strict || !self.is_new {
                return Err(Refused::MinValues { key, wanted, found });
            }
            for (key, _, found) in missing {
                let lowered = requirements.get(key).cloned().map(|asked| asked.with_min_values(Some(found)));
                requirements.replace(key, lowered.expect("a minimum is part of a requirement"));
            }
            is_min_values_relaxed = true;
        }
        let held = around.reservations.wanted(of, &open, &self.held, around.settings.reserved_capacity);
        if around.insists_on_reserved && (held.is_refused || (!self.held.is_empty() && held.ids.is_empty())) {
            return Err(Refused::Reserved);
        }
        Ok(Admission {
            requirements,
            open,
            requests: requests.to_vec(),
            held: held.ids,
            is_min_values_relaxed,
        })
    }

    /// Takes the pod in.
    pub fn take(&mut self, pod: usize, guest: &Guest, becomes: Admission, of: &Template, columns: &Columns) {
        self.requirements = Rc::new(becomes.requirements);
        if self.open != becomes.open || self.is_new {
            self.ceiling = ceiling(of, &becomes.open, columns);
        }
        self.open = becomes.open;
        self.requests = becomes.requests;
        self.held = becomes.held;
        self.is_min_values_relaxed = becomes.is_min_values_relaxed;
        self.ports.extend(guest.shape.host_ports.iter().copied());
        self.pods.push(pod);
        self.is_new = false;
    }
}

/// Whether a node with requirements `node` can also meet `wanted`. What a label may be is for the pool to define: that an
/// earlier pod refused some value of it defines nothing.
fn can_become(of: &Template, node: &Requirements, wanted: &Requirements) -> Result<(), Conflict> {
    for (key, asked) in wanted.iter() {
        let is_defined =
            of.requirements.get(key).is_some() || label::is_well_known(key) || key == *label::HOSTNAME;
        if !is_defined && !asked.accepts_absence() {
            return Err(Conflict::Undefined { key, asked: Box::new(asked.clone()) });
        }
    }
    node.intersects(wanted)
}

fn ceiling(of: &Template, open: &FixedBitSet, columns: &Columns) -> Amounts {
    let mut most = columns.row(&Default::default());
    for kind in of.alive(open) {
        for (most, room) in most.iter_mut().zip(&of.rows[kind].room) {
            *most = (*most).max(*room);
        }
    }
    most
}
