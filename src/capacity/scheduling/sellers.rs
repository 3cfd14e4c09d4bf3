//! A new node as it is handed out: the ways to buy it, cheapest first, and what it will be labelled with.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::amounts::{self, Amounts};
use super::bin::Bin;
use super::ground::Ground;
use super::outlook::OutlookId;
use super::template::Template;
use super::{NewNode, Settings};
use crate::model::action::LaunchOption;
use crate::model::hash::FastMap;
use crate::model::label::{self, Labels};
use crate::model::offering::CapacityType;
use crate::model::quantity::Resources;
use crate::model::requirement::{Operator, Requirement, Requirements};

/// Ways to buy that nodes have in common, with the daemons that will certainly run.
#[derive(Default)]
pub(super) struct Sellers {
    by_open: FastMap<(usize, FixedBitSet), Seller>,
    /// By what a node may become and what it holds, where reservations play no part.
    by_outlook: FastMap<(OutlookId, Amounts), Seller>,
}

#[derive(Clone)]
struct Seller {
    options: Arc<Vec<LaunchOption>>,
    daemons: Option<Amounts>,
}

impl Sellers {
    fn of(&mut self, bin: &Bin, template: &Template, open: &FixedBitSet, settings: &Settings) -> Seller {
        let is_plain = template.reserved().is_empty();
        if is_plain && let Some(known) = self.by_outlook.get(&(bin.outlook, bin.requests.clone())) {
            return known.clone();
        }
        let mut open = bin.open(template, open);
        if settings.reserved_capacity {
            for at in template.reserved() {
                let reservation = template.offering(*at).reservation.map(|reservation| reservation.id);
                if open.contains(*at) && !reservation.is_some_and(|id| bin.held.contains(&id)) {
                    open.set(*at, false);
                }
            }
            if !bin.held.is_empty() {
                open.intersect_with(&template.reserved_set());
            }
        }
        let seller = self.by_open.entry((bin.template, open)).or_insert_with_key(|(_, open)| Seller {
            options: Arc::new(template.options(open)),
            daemons: template.least_daemons(open),
        });
        if is_plain {
            self.by_outlook.insert((bin.outlook, bin.requests.clone()), seller.clone());
        }
        seller.clone()
    }
}

pub(super) fn new_node(bin: &Bin, settings: &Settings, ground: &mut Ground) -> NewNode {
    let Ground { templates, outlooks, columns, sellers, .. } = ground;
    let template = &templates[bin.template];
    let outlook = outlooks.get(bin.outlook);
    let mut requirements = (*outlook.requirements).clone();
    requirements.remove(*label::HOSTNAME);
    if settings.reserved_capacity && !bin.held.is_empty() {
        requirements.add(*label::CAPACITY_TYPE, Requirement::one(CapacityType::Reserved.symbol()));
        let ids = Requirement::new(Operator::In, bin.held.iter().copied());
        requirements.add(*label::RESERVATION_ID, ids);
    }
    let Seller { options, daemons } = sellers.of(bin, template, &outlook.open, settings);
    let mut requests = bin.requests.clone();
    if let Some(daemons) = daemons {
        amounts::add(&mut requests, &daemons);
    }
    let requests: Resources = columns.resources(&requests);
    NewNode {
        pool: template.pool.name,
        labels: labels_of(template, &requirements),
        requirements,
        taints: template.taints().to_vec(),
        requests,
        pods: bin.pods.clone(),
        options,
        is_min_values_relaxed: bin.is_min_values_relaxed,
    }
}

/// The pool's labels, and one value for every other label of the user's that the node must have. Where any number will
/// do, the smallest that is allowed.
fn labels_of(template: &Template, requirements: &Requirements) -> Labels {
    let pool = &template.pool;
    let mut labels = pool.template.labels.clone();
    labels.insert(*label::NODEPOOL, pool.name.0);
    labels.insert(pool.template.class.label_key(), pool.template.class.name.0);
    for (key, requirement) in requirements.iter() {
        let is_of_pool = template.requirements.get(key).is_some();
        if is_of_pool
            && !label::is_well_known(key)
            && !label::is_restricted(key)
            && let Some(value) = requirement.some_value()
        {
            labels.entry(key).or_insert(value);
        }
    }
    labels
}
