//! The names that a pool spells: instance types, families, categories, sizes, zones. All that mean nothing are told
//! at once, each at its own entry.
//!
//! A misspelt name in a list is easily missed, because the rest of the list still buys nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Asked, Instances, known_regions};
use crate::gitops::diagnostic::{Diagnostic, Place, listed};
use crate::model::catalog::{NameParts, region_of};
use crate::model::label;
use crate::model::name::Zone;
use crate::model::near::nearest;
use crate::model::offering::InstanceType;
use crate::model::requirement::Operator;
use crate::model::symbol::Symbol;

/// What the types of a catalogue are called.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    /// Each with whether it can be bought.
    types: BTreeMap<&'static str, bool>,
    families: BTreeMap<&'static str, bool>,
    categories: BTreeSet<&'static str>,
    sizes: BTreeSet<&'static str>,
    /// Where something is sold.
    zones: BTreeSet<&'static str>,
    region: Option<&'static str>,
}

impl Words {
    pub fn of(types: &[InstanceType]) -> Self {
        let mut words = Self::default();
        for kind in types {
            let is_sold = !kind.offerings.is_empty();
            words.types.insert(kind.name.as_str(), is_sold);
            if let Some(parts) = NameParts::of(kind.name.as_str()) {
                *words.families.entry(parts.family).or_default() |= is_sold;
                words.categories.insert(parts.category);
                words.sizes.insert(parts.size);
            }
            words.zones.extend(kind.offerings.iter().map(|offering| offering.zone.0.as_str()));
            words.region =
                words.region.or_else(|| kind.requirements.get(*label::REGION)?.single().map(Symbol::as_str));
        }
        words
    }
}

/// Checks one requirement. `region` is the one that the environment names.
pub(super) fn check(
    one: &Asked<'_>,
    instances: Option<&Instances>,
    region: Option<&str>,
    found: &mut Vec<Diagnostic>,
) {
    if !matches!(one.operator, Operator::In | Operator::NotIn) {
        return;
    }
    let key = label::canonical(Symbol::new(one.key));
    if key == *label::ZONE {
        return zones(one, instances, region, found);
    }
    let Some(instances) = instances.filter(|instances| !instances.types.is_empty()) else { return };
    let words = instances.words();
    match key.as_str() {
        "node.kubernetes.io/instance-type" => sold(one, "type", &words.types, instances, found),
        "karpenter.k8s.aws/instance-family" => sold(one, "family", &words.families, instances, found),
        "karpenter.k8s.aws/instance-category" => {
            known(one, "category", "categories", &words.categories, found)
        }
        "karpenter.k8s.aws/instance-size" => known(one, "size", "sizes", &words.sizes, found),
        _ => {}
    }
}

/// Types and families: those that do not exist, and those that nobody sells.
fn sold(
    one: &Asked<'_>,
    what: &str,
    names: &BTreeMap<&'static str, bool>,
    instances: &Instances,
    found: &mut Vec<Diagnostic>,
) {
    let is_bought = one.values.iter().any(|value| names.get(value).copied().unwrap_or(false));
    for (value, place) in one.values.iter().zip(&one.places) {
        match names.get(value) {
            None => found.push(unknown(one, value, place, what, near(value, names, what))),
            Some(false) if one.operator == Operator::In && !instances.is_anywhere => {
                let region = instances.words().region.unwrap_or("the catalogue");
                let message = format!("`{value}` is not sold in {region}");
                let diagnostic = match is_bought {
                    true => Diagnostic::warning("PRV1618", (*place).clone(), message),
                    false => Diagnostic::error("PRV1618", (*place).clone(), message),
                };
                found.push(diagnostic.help(format!(
                    "the catalogue knows the {what}, and no offer of it there; `provisor catalog show {value}` says what is known"
                )));
            }
            Some(_) => {}
        }
    }
}

fn unknown(one: &Asked<'_>, value: &str, place: &Place, what: &str, near: Option<String>) -> Diagnostic {
    let message = format!("there is no instance {what} `{value}`");
    let help = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "the catalogue of this build and region does not have it".to_owned(),
    };
    // To exclude what does not exist does no harm, and no good.
    match one.operator {
        Operator::NotIn => Diagnostic::warning("PRV1618", place.clone(), message).help(help),
        _ => Diagnostic::error("PRV1618", place.clone(), message).help(help),
    }
}

/// The name that was most likely meant: of a type, one of the same family, or of the same size in a family spelt alike.
fn near(value: &str, names: &BTreeMap<&'static str, bool>, what: &str) -> Option<String> {
    let names = || names.keys().copied();
    let Some((family, size)) = value.split_once('.').filter(|_| what == "type") else {
        return nearest(value, names()).map(str::to_owned);
    };
    let sizes = names().filter_map(|name| name.strip_prefix(family)?.strip_prefix('.'));
    let mut sizes = sizes.peekable();
    if sizes.peek().is_some() {
        return nearest(size, sizes).map(|size| format!("{family}.{size}"));
    }
    let families = names().filter_map(|name| name.strip_suffix(size)?.strip_suffix('.'));
    nearest(family, families).map(|family| format!("{family}.{size}"))
}

/// Categories and sizes: a new one may be sold before a catalogue knows it, so this is a warning.
fn known(
    one: &Asked<'_>,
    what: &str,
    plural: &str,
    names: &BTreeSet<&'static str>,
    found: &mut Vec<Diagnostic>,
) {
    // A catalogue of a few types does not say which words exist.
    let builtin = Instances::of_region("us-east-1");
    let all = builtin.as_ref().map(|builtin| match what {
        "size" => &builtin.words().sizes,
        _ => &builtin.words().categories,
    });
    for (value, place) in one.values.iter().zip(&one.places) {
        let is_known = names.contains(value) || all.is_some_and(|all| all.contains(value));
        if is_known || (what == "category" && super::is_family(value)) {
            continue;
        }
        let words = || all.unwrap_or(names).iter().copied();
        let help = match nearest(value, words()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if what == "category" => format!("the {plural} are {}", listed(words())),
            None => "sizes are such as `large`, `2xlarge` or `metal`".to_owned(),
        };
        let message = format!("there is no instance {what} `{value}`");
        found.push(Diagnostic::warning("PRV1618", (*place).clone(), message).help(help));
    }
}

/// Zones: those that are none, those of another region, those in which nothing is sold.
fn zones(one: &Asked<'_>, instances: Option<&Instances>, region: Option<&str>, found: &mut Vec<Diagnostic>) {
    let words = instances.map(Instances::words);
    for (value, place) in one.values.iter().zip(&one.places) {
        if words.is_some_and(|words| words.zones.contains(value)) {
            continue;
        }
        let own = region_of(Zone::new(value));
        let diagnostic = match (own, region) {
            (None, _) => {
                let example = region.unwrap_or("eu-west-1");
                let message = format!("`{value}` is not the name of a zone");
                // Without a region nobody knows what the cluster calls its zones.
                let diagnostic = match region {
                    Some(_) => Diagnostic::error("PRV1626", (*place).clone(), message),
                    None => Diagnostic::warning("PRV1626", (*place).clone(), message),
                };
                diagnostic.help(format!("zones are named like `{example}a`"))
            }
            (Some(own), Some(region)) if own != region => {
                let message = format!("the zone `{value}` is not in {region}");
                Diagnostic::error("PRV1626", (*place).clone(), message)
                    .help(format!("it is in {own}; the environment's `region` is {region}"))
            }
            // Somebody's own catalogue, or of which region is not known.
            (Some(own), region) => {
                let is_covered = words.is_some_and(|words| words.region == Some(own));
                let known = known_regions();
                // An unknown region that the environment names is told where it is named.
                if region.is_none() && !is_covered && !known.contains_key(own) {
                    let help = match nearest(own, known.keys().map(String::as_str)) {
                        Some(near) => format!("did you mean a zone of `{near}`?"),
                        None => "the catalogue of this build does not have its region; what it sells is taken on trust".to_owned(),
                    };
                    let message = format!("the zone `{value}` is in no region that is known");
                    found.push(Diagnostic::warning("PRV1626", (*place).clone(), message).help(help));
                    continue;
                }
                if !is_covered || instances.is_none_or(|instances| instances.is_anywhere) {
                    continue;
                }
                Diagnostic::warning(
                    "PRV1626",
                    (*place).clone(),
                    format!("nothing is sold in the zone `{value}`"),
                )
                .help(
                    "the letters of zones differ between accounts; the catalogue has others for this region",
                )
            }
        };
        let diagnostic = match one.operator {
            Operator::NotIn => {
                Diagnostic { severity: crate::gitops::diagnostic::Severity::Warning, ..diagnostic }
            }
            _ => diagnostic,
        };
        found.push(diagnostic);
    }
    several_regions(one, region, found);
}

/// Without a region nothing says which of the zones the cluster can use; it cannot be all.
fn several_regions(one: &Asked<'_>, region: Option<&str>, found: &mut Vec<Diagnostic>) {
    if region.is_some() || one.operator != Operator::In {
        return;
    }
    let zones = one.values.iter().zip(&one.places);
    let mut named = zones.filter_map(|(value, place)| Some((region_of(Zone::new(value))?, value, place)));
    let Some((first, ..)) = named.next() else { return };
    if let Some((other, value, place)) = named.find(|(region, ..)| *region != first) {
        let message = format!("the zone `{value}` is in {other}, and others of this pool are in {first}");
        found.push(
            Diagnostic::warning("PRV1626", (*place).clone(), message)
                .help("a cluster is in one region; name it as the environment's `region`"),
        );
    }
}
