//! Pools between which nothing decides: of one weight, and a node of either would do for the same pod.
//!
//! Such pods go by the names of the pools, which nobody meant. Taints keep pools apart for all pods that tolerate
//! neither or only one, so only pools with the same ones are compared; labels and requirements keep them apart if no node
//! can have both.

use std::collections::BTreeMap;

use crate::gitops::check::{Instances, canonical_requirements};
use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::rendered::Draft;
use crate::model::label;
use crate::model::requirement::{Requirement, Requirements};
use crate::model::symbol::Symbol;

/// How often the catalogue is searched for one environment.
const LOOKS_MAX: usize = 2000;

struct Candidate<'a> {
    name: &'a str,
    place: &'a Place,
    asks: Requirements,
}

/// Finds, for each pool, the first before it that overlaps with it at the same weight.
pub(crate) fn check(drafts: &[Draft], instances: Option<&Instances>, found: &mut Vec<Diagnostic>) {
    let mut looks = LOOKS_MAX;
    let mut groups: BTreeMap<(i64, Vec<String>), Vec<Candidate<'_>>> = BTreeMap::new();
    for draft in drafts.iter().filter(|draft| draft.manifest["kind"] == "NodePool") {
        let spec = &draft.manifest["spec"];
        // A pool of a fixed size takes no part in choosing a pool for a pod.
        if !spec["replicas"].is_null() {
            continue;
        }
        let weight = spec["weight"].as_i64().unwrap_or(0);
        let candidate = Candidate {
            name: draft.manifest["metadata"]["name"].as_str().unwrap_or_default(),
            place: draft.origins.get("spec.weight").unwrap_or(&draft.origins[""]),
            asks: asks(draft),
        };
        let group = groups.entry((weight, hard_taints(draft))).or_default();
        if let Some(first) = group.iter().find(|other| overlaps(other, &candidate, instances, &mut looks)) {
            let weights = if weight == 0 { "no weight".to_owned() } else { format!("the weight {weight}") };
            let message = format!(
                "pools `{}` and `{}` overlap and both have {weights}, so a pod that fits both goes by their names",
                first.name, candidate.name
            );
            found.push(
                Diagnostic::warning("PRV1619", candidate.place.clone(), message)
                    .also("the other pool", first.place.clone())
                    .help("give the one that is to be tried first a higher `weight`, or keep them apart with `taints`"),
            );
        }
        group.push(candidate);
    }
}

/// Whether one node could be of either pool. Where the catalogue is not known, or was asked often enough, only what the
/// pools say of the same labels counts, and pools that choose types by different labels are given the benefit of doubt.
fn overlaps(
    one: &Candidate<'_>,
    other: &Candidate<'_>,
    instances: Option<&Instances>,
    looks: &mut usize,
) -> bool {
    // Two of one name are one mistake, which is told already.
    if one.name == other.name || one.asks.intersects(&other.asks).is_err() {
        return false;
    }
    let Some(instances) = instances else { return true };
    if *looks == 0 {
        return false;
    }
    *looks -= 1;
    let mut both = one.asks.clone();
    both.add_all(&other.asks);
    instances.has_type_for(&both)
}

/// What a node of the pool is like: its requirements and its labels.
pub(crate) fn asks(draft: &Draft) -> Requirements {
    let mut asks = Requirements::new();
    for (key, requirement) in canonical_requirements(draft) {
        asks.add(key, requirement);
    }
    let labels = draft.manifest["spec"]["template"]["metadata"]["labels"].as_object();
    for (key, value) in labels.into_iter().flatten() {
        if let Some(value) = value.as_str() {
            asks.add(label::canonical(Symbol::new(key)), Requirement::one(Symbol::new(value)));
        }
    }
    asks
}

/// Taints that keep pods away for good, sorted.
fn hard_taints(draft: &Draft) -> Vec<String> {
    let taints = draft.manifest["spec"]["template"]["spec"]["taints"].as_array();
    let hard = taints.into_iter().flatten().filter(|taint| taint["effect"] != "PreferNoSchedule");
    let mut hard: Vec<String> =
        hard.map(|taint| format!("{}={}:{}", taint["key"], taint["value"], taint["effect"])).collect();
    hard.sort();
    hard.dedup();
    hard
}
