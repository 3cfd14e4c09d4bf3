//! What can be known to be wrong before any cluster is asked.
//!
//! The API's own rules come from [`crate::api::validate`]; here stand those that no API server knows: what contradicts
//! itself, what can never be bought, what surely means something else than it says.

mod class;
mod room;
mod words;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::api::{self, FieldError};
use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::overlap;
use crate::gitops::rendered::{Draft, place_of};
use crate::gitops::roll;
use crate::gitops::text_form;
use crate::gitops::tree::Node;
use crate::model::catalog::{Catalog, region_of, regions};
use crate::model::label;
use crate::model::name::Zone;
use crate::model::near::nearest;
use crate::model::offering::InstanceType;
use crate::model::requirement::{Operator, Requirement, Requirements};
use crate::model::schedule;
use crate::model::symbol::Symbol;

/// The instance types that can be bought.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    types: Arc<Vec<InstanceType>>,
    /// Where they are sold is not known: what a pool says of places is taken on trust.
    is_anywhere: bool,
    words: Arc<OnceLock<words::Words>>,
    /// What requirements come to: the pools of many environments ask for the same.
    verdicts: Arc<Mutex<BTreeMap<String, Option<Verdict>>>>,
}

/// Verdicts that are remembered.
const VERDICTS_MAX: usize = 10_000;

impl Instances {
    pub fn of(types: Arc<Vec<InstanceType>>) -> Self {
        Self { types, ..Self::default() }
    }

    /// The same for fleets of any region, whatever region `types` are from.
    pub fn anywhere(types: Arc<Vec<InstanceType>>) -> Self {
        Self { types, is_anywhere: true, ..Self::default() }
    }

    /// Those of the region, where it is one of which more is known.
    pub(crate) fn in_region(given: Option<Arc<Self>>, region: Option<&str>) -> Option<Arc<Self>> {
        match given {
            Some(given) if !given.is_anywhere => Some(given),
            given => region.and_then(Self::of_region).or(given),
        }
    }

    /// The verdict on what `text` stands for, judged once.
    fn verdict(&self, text: String, judge: impl FnOnce() -> Option<Verdict>) -> Option<Verdict> {
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        if verdicts.len() >= VERDICTS_MAX {
            verdicts.clear();
        }
        verdicts.entry(text).or_insert_with(judge).clone()
    }

    fn words(&self) -> &words::Words {
        self.words.get_or_init(|| words::Words::of(&self.types))
    }

    fn ignores(&self, key: Symbol) -> bool {
        let is_place = key == *label::ZONE || key == *label::REGION || &*key == "topology.k8s.aws/zone-id";
        self.is_anywhere && is_place
    }

    /// Whether any type is as wanted; places and ways to pay are not looked at.
    pub(crate) fn has_type_for(&self, wanted: &Requirements) -> bool {
        self.types.is_empty() || self.types_for(wanted).next().is_some()
    }

    fn types_for(&self, wanted: &Requirements) -> impl Iterator<Item = &InstanceType> {
        self.types.iter().filter(|shape| {
            wanted.iter().all(|(key, asked)| {
                shape.requirements.get(key).is_none_or(|has| self.ignores(key) || has.agrees_with(asked))
            })
        })
    }

    /// What the built-in catalogue knows of a region; nothing for a region that it does not have.
    pub(crate) fn of_region(region: &str) -> Option<Arc<Self>> {
        static KNOWN: Mutex<BTreeMap<String, Option<Arc<Instances>>>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || Some(Arc::new(Self::of(Catalog::builtin(region).ok()?.instance_types(None))));
        known.entry(region.to_owned()).or_insert_with(read).clone()
    }
}

/// Kinds that a commit may contain: node configuration and nothing else.
const ALLOWED: [(&str, &str); 6] = [
    ("karpenter.sh/v1", "NodePool"),
    ("karpenter.k8s.aws/v1", "EC2NodeClass"),
    ("karpenter.sh/v1alpha1", "NodeOverlay"),
    ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer"),
    ("autoscaling.x-k8s.io/v1alpha1", "CapacityBuffer"),
    ("v1", "PodTemplate"),
];

/// Checks of a pool's own words that its object cannot show any more.
pub(crate) fn pool_fields(pool: &Node, found: &mut Vec<Diagnostic>) {
    for budget in pool.get("budgets").and_then(Node::as_list).unwrap_or_default() {
        let (schedule, duration) = (budget.entry("schedule"), budget.entry("duration"));
        let (present, missing) = match (schedule, duration) {
            (Some(schedule), None) => (schedule, "duration"),
            (None, Some(duration)) => (duration, "schedule"),
            _ => continue,
        };
        let has = if missing == "duration" { "schedule" } else { "duration" };
        let message = format!("the budget has a `{has}` but no `{missing}`");
        found.push(
            Diagnostic::error("PRV1605", present.key.clone(), message)
                .help("a window needs both: `schedule` says when it starts, `duration` how long it lasts"),
        );
    }
}

/// Checks everything that was rendered for an environment.
pub(crate) fn drafts(
    drafts: &[Draft],
    instances: Option<&Instances>,
    region: Option<&str>,
    found: &mut Vec<Diagnostic>,
) {
    for draft in drafts {
        if !is_allowed(draft, found) {
            continue;
        }
        let before = found.len();
        if draft.manifest["kind"] == "NodePool" {
            pool(draft, instances, region, found);
            roll::check_draft(draft, found);
        } else if draft.manifest["kind"] == "EC2NodeClass" {
            class::check(draft, found);
        }
        let mut known: Vec<Place> =
            found[before..].iter().filter(|one| one.is_error()).map(|one| one.place.clone()).collect();
        for error in api::validate(&draft.manifest) {
            let diagnostic = refused_by_api(draft, &error);
            // What was said better already is not said again; nor what follows from a file's own mistake.
            let overlaps = |known: &Place| {
                let (one, other) = (known, &diagnostic.place);
                one.source == other.source && one.start <= other.end && other.start <= one.end
            };
            let is_half_a_window =
                |one: &Diagnostic| one.code == "PRV1605" && one.place.source == diagnostic.place.source;
            let is_said = known.iter().any(overlaps) || found[..before].iter().any(is_half_a_window);
            if !is_said {
                // Two rules of the API about one list are one mistake of the person who wrote a line of it.
                if error.path.ends_with("minValues") || error.path.ends_with("values") {
                    known.push(diagnostic.place.clone());
                }
                found.push(diagnostic);
            }
        }
    }
    overlap::check(drafts, instances, found);
    room::check(drafts, instances, found);
}

fn is_allowed(draft: &Draft, found: &mut Vec<Diagnostic>) -> bool {
    let text = |key: &str| draft.manifest[key].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if ALLOWED.contains(&(version, kind)) {
        return true;
    }
    let place = place_of(&draft.origins, "kind").cloned().unwrap_or_else(|| draft.origins[""].clone());
    let diagnostic = match (version, kind) {
        ("", _) | (_, "") => {
            Diagnostic::error("PRV1502", place, "a rendered object lacks `apiVersion` or `kind`")
                .help("write both, such as `apiVersion: karpenter.sh/v1` and `kind: NodePool`")
        }
        _ => {
            let message = format!("objects of kind {kind} ({version}) are not allowed");
            let help = match ALLOWED.iter().find(|(_, known)| *known == kind) {
                Some((known, _)) => format!("{kind} is taken as {known}"),
                None => {
                    "a fleet holds NodePool, EC2NodeClass, NodeOverlay, CapacityBuffer and PodTemplate only"
                        .to_owned()
                }
            };
            Diagnostic::error("PRV1502", place, message).help(help)
        }
    };
    found.push(diagnostic.also("rendered for this entry", draft.origins[""].clone()));
    false
}

fn refused_by_api(draft: &Draft, error: &FieldError) -> Diagnostic {
    let entry = &draft.origins[""];
    let key = draft.keys.get(error.path.as_str()).filter(|place| error.is_of_key && !is_ours(place));
    let place = key.or_else(|| person_place(draft, &error.path)).unwrap_or(entry).clone();
    let kind = draft.manifest["kind"].as_str().unwrap_or("object");
    let name = draft.manifest["metadata"]["name"].as_str().unwrap_or_default();
    let message = match error.path.is_empty() {
        true => format!("{kind}/{name}: {}", error.message),
        false => format!("{kind}/{name} {}: {}", error.path, error.message),
    };
    let mut diagnostic = Diagnostic::error("PRV1503", place.clone(), message);
    if place != *entry && place.source != entry.source {
        diagnostic = diagnostic.also("rendered for this entry", entry.clone());
    }
    let general = || "correct the value here; `provisor render` shows the whole object".to_owned();
    diagnostic.help(error.help.clone().unwrap_or_else(general))
}

/// Whether a template that comes with the program says it.
fn is_ours(place: &Place) -> bool {
    place.source.path.starts_with("built-in:")
}

/// The place of a value. Where a template of ours wrote it, the line of the strategy that changed a part of it, or of
/// its neighbours, is the likelier cause.
fn person_place<'d>(draft: &'d Draft, path: &str) -> Option<&'d Place> {
    let place = place_of(&draft.origins, path);
    if !place.is_some_and(is_ours) {
        return place;
    }
    let parent = path.rfind(['.', '[']).map_or(path, |end| &path[..end]);
    let is_part =
        |known: &str, whole: &str| known.strip_prefix(whole).is_some_and(|rest| rest.starts_with(['.', '[']));
    let near = [path, parent].into_iter().find_map(|whole| {
        let mut parts = draft.origins.iter().filter(|(known, _)| is_part(known, whole));
        parts.find(|(_, place)| !is_ours(place)).map(|(_, place)| place)
    });
    near.or_else(|| draft.origins.get("")).or(place)
}

/// The name of a cluster is part of names and tags, where nothing at all is no name.
pub(crate) fn cluster(node: &Node, found: &mut Vec<Diagnostic>) {
    if node.as_text().is_some_and(|text| text.trim().is_empty()) {
        let message = "`cluster` is an empty text, which no cluster is called";
        found.push(
            Diagnostic::error("PRV1627", node.place.clone(), message)
                .help("write the cluster's name, or leave the field out for FLEET-ENVIRONMENT"),
        );
    }
}

/// The regions of the built-in catalogue.
fn known_regions() -> &'static BTreeMap<String, Vec<Zone>> {
    static KNOWN: LazyLock<BTreeMap<String, Vec<Zone>>> = LazyLock::new(regions);
    &KNOWN
}

/// A region that is misspelt is known by nobody; a new one only by others than this build.
pub(crate) fn region(node: &Node, found: &mut Vec<Diagnostic>) {
    let Some(text) = node.as_text() else { return };
    let known = known_regions();
    if known.contains_key(&**text) {
        return;
    }
    if text.trim().is_empty() {
        found.push(
            Diagnostic::error("PRV1627", node.place.clone(), "`region` is an empty text, which is no region")
                .help("write it like \"eu-west-1\", or leave the field out"),
        );
        return;
    }
    let near = nearest(text, known.keys().map(String::as_str));
    let is_named_so = region_of(Zone::new(&format!("{text}a"))) == Some(&**text);
    let help = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None if !is_named_so => "regions are named like `eu-west-1`".to_owned(),
        None => "the catalogue of this build does not have it; what it sells is taken on trust".to_owned(),
    };
    let diagnostic = match is_named_so {
        true => Diagnostic::warning("PRV1624", node.place.clone(), format!("no region `{text}` is known")),
        false => Diagnostic::error(
            "PRV1624",
            node.place.clone(),
            format!("\"{}\" is not the name of a region", text.escape_debug()),
        ),
    };
    found.push(diagnostic.help(help));
}

fn pool(draft: &Draft, instances: Option<&Instances>, region: Option<&str>, found: &mut Vec<Diagnostic>) {
    let template = &draft.manifest["spec"]["template"];
    let asked = requirements(draft);
    tracking(draft, found);
    let before = found.len();
    misunderstood(&asked, found);
    asked.iter().for_each(|one| words::check(one, instances, region, found));
    let demanded: Vec<Asked<'_>> = requirements(draft).into_iter().chain(labels(draft)).collect();
    let of_machines = demanded[asked.len()..].iter().filter(|one| decides_about_machines(one.key));
    of_machines.for_each(|one| words::check(one, instances, region, found));
    contradictions(&demanded, found);
    limits(draft, found);
    if !found[before..].iter().any(Diagnostic::is_error)
        && let Some(instances) = instances
    {
        buyable(draft, &demanded, instances, found);
    }
    gpu_without_taint(draft, &asked, found);
    gpu_taint_without_gpu(draft, &asked, found);
    startup_taints(draft, found);
    lifetimes(draft, &template["spec"], found);
    windows(draft, found);
}

/// One requirement as it was rendered, with its place.
struct Asked<'a> {
    key: &'a str,
    operator: Operator,
    values: Vec<&'a str>,
    /// Of each value.
    places: Vec<&'a Place>,
    place: &'a Place,
    requirement: Requirement,
}

impl Asked<'_> {
    fn shown(&self) -> String {
        match self.values.is_empty() {
            true => format!("`{} {}`", self.key, self.operator.as_str()),
            false => format!("`{} {} [{}]`", self.key, self.operator.as_str(), self.values.join(", ")),
        }
    }
}

fn requirements(draft: &Draft) -> Vec<Asked<'_>> {
    let path = "spec.template.spec.requirements";
    let list = draft.manifest["spec"]["template"]["spec"]["requirements"].as_array();
    let list = list.map(Vec::as_slice).unwrap_or_default();
    let mut out = Vec::new();
    for (at, entry) in list.iter().enumerate() {
        let (Some(key), Some(operator)) = (entry["key"].as_str(), entry["operator"].as_str()) else {
            continue;
        };
        let Some(operator) = Operator::parse(operator) else { continue };
        let values: Vec<&str> =
            entry["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let Some(place) = place_of(&draft.origins, &format!("{path}[{at}]")) else { continue };
        let placed =
            |index| place_of(&draft.origins, &format!("{path}[{at}].values[{index}]")).unwrap_or(place);
        let places = (0..values.len()).map(placed).collect();
        let requirement = Requirement::new(operator, values.iter().map(|value| Symbol::new(value)));
        out.push(Asked { key, operator, values, places, place, requirement });
    }
    out
}

/// The labels of a pool's nodes: what a node is labelled as, its machine has to be.
fn labels(draft: &Draft) -> Vec<Asked<'_>> {
    let labels = draft.manifest["spec"]["template"]["metadata"]["labels"].as_object().into_iter().flatten();
    let asked = labels.filter_map(|(key, value)| {
        let value = value.as_str()?;
        let place = place_of(&draft.origins, &format!("spec.template.metadata.labels.{key}"))?;
        let requirement = Requirement::new(Operator::In, [Symbol::new(value)]);
        Some(Asked {
            key,
            operator: Operator::In,
            values: vec![value],
            places: vec![place],
            place,
            requirement,
        })
    });
    asked.collect()
}

/// Whether machines differ in this label by what they are.
fn decides_about_machines(key: &str) -> bool {
    let key = label::canonical(Symbol::new(key));
    [*label::ZONE, *label::CAPACITY_TYPE, *label::INSTANCE_TYPE, *label::ARCH, *label::OS].contains(&key)
        || key.starts_with("karpenter.k8s.aws/instance-")
}

/// The requirements of a pool under the newest names of their labels.
pub(crate) fn canonical_requirements(draft: &Draft) -> Vec<(Symbol, Requirement)> {
    let asked = requirements(draft).into_iter();
    asked.map(|one| (label::canonical(Symbol::new(one.key)), one.requirement)).collect()
}

/// Requirements on one label that leave nothing together.
fn contradictions(asked: &[Asked<'_>], found: &mut Vec<Diagnostic>) {
    for (at, later) in asked.iter().enumerate() {
        for earlier in &asked[..at] {
            let is_same =
                label::canonical(Symbol::new(earlier.key)) == label::canonical(Symbol::new(later.key));
            // `DoesNotExist` and `In []` are empty alone; a contradiction needs two that are not.
            let was_possible =
                |asked: &Asked<'_>| !asked.requirement.is_empty() || asked.operator == Operator::DoesNotExist;
            let is_absent = |asked: &Asked<'_>| asked.operator == Operator::DoesNotExist;
            if is_same
                && was_possible(earlier)
                && was_possible(later)
                && is_absent(earlier) != is_absent(later)
                && !(earlier.requirement.accepts_absence() && later.requirement.accepts_absence())
                || is_same
                    && !is_absent(earlier)
                    && !is_absent(later)
                    && was_possible(earlier)
                    && was_possible(later)
                    && earlier.requirement.intersection(&later.requirement).is_empty()
            {
                let message = format!("no node can meet both {} and {}", earlier.shown(), later.shown());
                found.push(
                    Diagnostic::error("PRV1601", later.place.clone(), message)
                        .also("the other requirement", earlier.place.clone())
                        .help("remove one of the two"),
                );
            }
        }
    }
}

/// Labels of Karpenter's domains that pools choose instances by.
const PROVIDER_LABELS: [&str; 31] = [
    "karpenter.sh/capacity-type",
    "karpenter.k8s.aws/ec2nodeclass",
    "karpenter.k8s.aws/capacity-reservation-id",
    "karpenter.k8s.aws/capacity-reservation-type",
    "karpenter.k8s.aws/capacity-reservation-interruptible",
    "karpenter.k8s.aws/placement-group-id",
    "karpenter.k8s.aws/placement-group-partition",
    "karpenter.k8s.aws/instance-accelerator-count",
    "karpenter.k8s.aws/instance-accelerator-manufacturer",
    "karpenter.k8s.aws/instance-accelerator-name",
    "karpenter.k8s.aws/instance-capability-flex",
    "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-cpu",
    "karpenter.k8s.aws/instance-cpu-manufacturer",
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz",
    "karpenter.k8s.aws/instance-ebs-bandwidth",
    "karpenter.k8s.aws/instance-encryption-in-transit-supported",
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-generation",
    "karpenter.k8s.aws/instance-gpu-count",
    "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.k8s.aws/instance-gpu-memory",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-hypervisor",
    "karpenter.k8s.aws/instance-local-nvme",
    "karpenter.k8s.aws/instance-memory",
    "karpenter.k8s.aws/instance-network-bandwidth",
    "karpenter.k8s.aws/instance-size",
    "karpenter.k8s.aws/instance-tenancy",
    "node.kubernetes.io/instance-type",
    "topology.k8s.aws/zone-id",
];

/// Keys and values that look right and mean nothing.
fn misunderstood(asked: &[Asked<'_>], found: &mut Vec<Diagnostic>) {
    for one in asked {
        if one.key.starts_with("karpenter.k8s.aws/") && !PROVIDER_LABELS.contains(&one.key) {
            let message = format!("no instance type has the label `{}`", one.key);
            let name = one.key.split('/').nth(1).unwrap_or_default();
            let same = PROVIDER_LABELS.iter().find(|label| label.split('/').nth(1) == Some(name));
            let near = same.copied().or_else(|| nearest(one.key, PROVIDER_LABELS));
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "see the labels in docs/guide/strategy.md".to_owned(),
            };
            found.push(Diagnostic::error("PRV1613", one.place.clone(), message).help(help));
        }
        let is_category = one.key == "karpenter.k8s.aws/instance-category";
        for (family, place) in one.values.iter().zip(&one.places).filter(|_| is_category) {
            if is_family(family) {
                let message = format!("`{family}` is an instance family, not a category");
                found.push(
                    Diagnostic::error("PRV1614", (*place).clone(), message)
                        .help("use `instance-families`, or the label `karpenter.k8s.aws/instance-family`"),
                );
            }
        }
        for (value, place) in one.values.iter().zip(&one.places).filter(|_| one.operator.is_comparison()) {
            if value.parse::<i64>().is_err() {
                let message = format!(
                    "`{}` compares `{}` with a whole number, and `{value}` is none",
                    one.operator.as_str(),
                    one.key
                );
                found.push(
                    Diagnostic::error("PRV1621", (*place).clone(), message)
                        .help("write one number as a text, such as [\"4\"]"),
                );
            }
        }
    }
}

fn is_family(value: &str) -> bool {
    value.len() > 1 && value.chars().any(|c| c.is_ascii_digit())
}

/// Limits of a resource that no node has, or in the unit of another, hold nothing.
fn limits(draft: &Draft, found: &mut Vec<Diagnostic>) {
    const PLAIN: [&str; 5] = ["cpu", "memory", "nodes", "pods", "ephemeral-storage"];
    for (resource, amount) in draft.manifest["spec"]["limits"].as_object().into_iter().flatten() {
        let path = format!("spec.limits.{resource}");
        let place = || place_of(&draft.origins, &path).unwrap_or(&draft.origins[""]).clone();
        let Some(form) = text_form::amount_of(resource) else {
            let message = format!("no node has the resource `{resource}`, so the limit holds nothing");
            let help = match nearest(resource, PLAIN) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    "resources are `cpu`, `memory`, `nodes` or devices such as `nvidia.com/gpu`".to_owned()
                }
            };
            let place = draft.keys.get(path.as_str()).cloned().unwrap_or_else(place);
            found.push(Diagnostic::warning("PRV1622", place, message).help(help));
            continue;
        };
        let text = match amount {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        // What is no quantity at all is told by the API's own rule.
        if text_form::is_quantity(&text)
            && let Err(wrong) = text_form::check(form, &text)
        {
            let message = format!("`{resource}` is \"{text}\", which is not {}", wrong.expected);
            let help = wrong.help.unwrap_or_else(|| format!("write it like {}", wrong.example));
            found.push(Diagnostic::error("PRV1203", place(), message).help(help));
        }
    }
}

/// Why a pool can buy nothing, as places in the list of its requirements.
#[derive(Clone, Debug)]
enum Verdict {
    /// The requirement that removed the last instance types, and how many.
    Types { last: usize, removed: usize },
    /// Types are left, but none is sold this way.
    Offerings { last: usize, left: usize },
}

fn buyable(draft: &Draft, asked: &[Asked<'_>], instances: &Instances, found: &mut Vec<Diagnostic>) {
    let template = &draft.manifest["spec"]["template"];
    let name = format!("{} {}", template["spec"]["requirements"], template["metadata"]["labels"]);
    let verdict = instances.verdict(name, || judge(asked, instances));
    let pool = draft.manifest["metadata"]["name"].as_str().unwrap_or_default();
    let diagnostic = match verdict {
        None => return,
        Some(Verdict::Types { last, removed }) => {
            let one = &asked[last];
            let message = format!(
                "no instance type is left for pool `{pool}`: {} removed the last {removed}",
                one.shown()
            );
            Diagnostic::error("PRV1602", one.place.clone(), message)
                .help("loosen it, or one of the requirements before it")
        }
        Some(Verdict::Offerings { last, left }) => {
            let one = &asked[last];
            let message = format!(
                "pool `{pool}` can buy nothing: none of its {left} instance types is sold with {}",
                one.shown()
            );
            Diagnostic::error("PRV1603", one.place.clone(), message)
                .help("allow another capacity type or zone, or other instance types")
        }
    };
    found.push(diagnostic);
}

fn judge(asked: &[Asked<'_>], instances: &Instances) -> Option<Verdict> {
    let types = &instances.types;
    if types.is_empty() {
        return None;
    }
    let mut left: Vec<&InstanceType> = types.iter().collect();
    let mut offering = Requirements::new();
    let mut sold_by = Vec::new();
    for (at, one) in asked.iter().enumerate() {
        let key = label::canonical(Symbol::new(one.key));
        if instances.ignores(key) {
            continue;
        }
        if key == *label::ZONE || key == *label::CAPACITY_TYPE {
            offering.add(key, one.requirement.clone());
            sold_by.push(at);
            continue;
        }
        if !types.iter().any(|shape| shape.requirements.get(key).is_some()) {
            continue;
        }
        let before = left.len();
        left.retain(|shape| shape.requirements.get(key).is_none_or(|has| has.agrees_with(&one.requirement)));
        if left.is_empty() {
            return Some(Verdict::Types { last: at, removed: before });
        }
    }
    let last = *sold_by.last()?;
    // What this region does not sell another one may.
    if instances.is_anywhere && left.iter().all(|shape| shape.offerings.is_empty()) {
        return None;
    }
    let is_sold = left.iter().any(|shape| shape.offerings.iter().any(|one| one.suits(&offering)));
    (!is_sold).then_some(Verdict::Offerings { last, left: left.len() })
}

/// All that a pool asks of one label; `None` if it asks nothing.
pub(crate) fn requirement_on(draft: &Draft, label: &str) -> Option<Requirement> {
    let same = requirements(draft).into_iter().filter(|asked| asked.key == label);
    same.map(|asked| asked.requirement).reduce(|one, other| one.intersection(&other))
}

/// Whether a pool buys nothing but types with GPUs or accelerators.
pub(crate) fn buys_gpus(draft: &Draft) -> bool {
    gpu_requirement(&requirements(draft)).is_some()
}

/// The requirement by which a pool buys GPUs only.
fn gpu_requirement<'r, 'a>(asked: &'r [Asked<'a>]) -> Option<&'r Asked<'a>> {
    let is_gpu_name = |name: &&str| {
        let family = name.split('.').next().unwrap_or(name);
        let letters = family.trim_end_matches(|c: char| !c.is_ascii_digit());
        ["g", "p", "gr"].iter().any(|prefix| {
            letters.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    let wants_gpu = |one: &&Asked<'_>| {
        let is_present =
            !matches!(one.operator, Operator::DoesNotExist | Operator::NotIn | Operator::Lt | Operator::Lte);
        match one.key {
            key if key.starts_with("karpenter.k8s.aws/instance-gpu") => is_present,
            key if key.starts_with("karpenter.k8s.aws/instance-accelerator") => is_present,
            "karpenter.k8s.aws/instance-category" => {
                one.operator == Operator::In
                    && one.values.iter().all(|value| matches!(*value, "g" | "p" | "gr"))
            }
            "karpenter.k8s.aws/instance-family" | "node.kubernetes.io/instance-type" => {
                one.operator == Operator::In && !one.values.is_empty() && one.values.iter().all(&is_gpu_name)
            }
            _ => false,
        }
    };
    asked.iter().find(wants_gpu)
}

fn gpu_without_taint(draft: &Draft, asked: &[Asked<'_>], found: &mut Vec<Diagnostic>) {
    let taints = draft.manifest["spec"]["template"]["spec"]["taints"].as_array();
    if taints.is_some_and(|taints| !taints.is_empty()) {
        return;
    }
    if let Some(one) = gpu_requirement(asked) {
        let pool = draft.manifest["metadata"]["name"].as_str().unwrap_or_default();
        let message = format!("pool `{pool}` buys GPUs and has no taint, so any pod may land on them");
        found.push(Diagnostic::warning("PRV1604", one.place.clone(), message).help(
            "add `taints = [\"nvidia.com/gpu=true:NoSchedule\"]` and tolerate it in the pods that need GPUs",
        ));
    }
}

/// Taints by which people keep nodes free for pods that need an accelerator.
const ACCELERATOR_TAINTS: [&str; 4] =
    ["amd.com/gpu", "aws.amazon.com/neuron", "habana.ai/gaudi", "nvidia.com/gpu"];

/// Nodes that are kept free for GPUs and may have none.
fn gpu_taint_without_gpu(draft: &Draft, asked: &[Asked<'_>], found: &mut Vec<Diagnostic>) {
    let taints = draft.manifest["spec"]["template"]["spec"]["taints"].as_array();
    let mut taints = taints.into_iter().flatten().enumerate();
    let Some((at, taint)) =
        taints.find(|(_, taint)| taint["key"].as_str().is_some_and(|key| ACCELERATOR_TAINTS.contains(&key)))
    else {
        return;
    };
    let is_neuron = |one: &Asked<'_>| {
        let names = ["inf", "trn", "dl"];
        one.operator == Operator::In
            && (one.key.ends_with("/instance-category")
                || one.key.ends_with("/instance-family")
                || one.key.ends_with("/instance-type"))
            && one.values.iter().all(|value| names.iter().any(|name| value.starts_with(name)))
    };
    if gpu_requirement(asked).is_some() || asked.iter().any(is_neuron) {
        return;
    }
    let pool = draft.manifest["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("spec.template.spec.taints[{at}]");
    let place = place_of(&draft.origins, &path).unwrap_or(&draft.origins[""]).clone();
    let key = taint["key"].as_str().unwrap_or_default();
    let message = format!("pool `{pool}` has the taint `{key}` and may buy types without any such device");
    found.push(Diagnostic::warning("PRV1620", place, message).help(
        "choose types that have one, such as `instance-categories = [\"g\"]` or the label `karpenter.k8s.aws/instance-gpu-count`",
    ));
}

/// Tracking data in the node template would make every commit replace every node.
fn tracking(draft: &Draft, found: &mut Vec<Diagnostic>) {
    for table in ["labels", "annotations"] {
        let keys = draft.manifest["spec"]["template"]["metadata"][table].as_object();
        for key in keys.into_iter().flatten().map(|(key, _)| key) {
            if !key.starts_with("provisor.dev/") {
                continue;
            }
            let path = format!("spec.template.metadata.{table}.{key}");
            let place = place_of(&draft.origins, &path).unwrap_or(&draft.origins[""]).clone();
            let message = format!(
                "`{key}` may not stand in the node template: a change of it would replace every node"
            );
            found.push(
                Diagnostic::error("PRV1617", place, message)
                    .help("put it on the object's own metadata, or leave it out"),
            );
        }
    }
}

fn startup_taints(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let taints = draft.manifest["spec"]["template"]["spec"]["startupTaints"].as_array();
    for (at, taint) in taints.into_iter().flatten().enumerate() {
        let key = taint["key"].as_str().unwrap_or_default();
        if key.starts_with("node.kubernetes.io/") {
            let path = format!("spec.template.spec.startupTaints[{at}]");
            let place = place_of(&draft.origins, &path).unwrap_or(&draft.origins[""]).clone();
            let message =
                format!("the startup taint `{key}` belongs to Kubernetes, which sets and removes it itself");
            found.push(Diagnostic::warning("PRV1616", place, message).help("remove it"));
        }
    }
}

/// Whoever wants nodes to live shorter has mistaken a unit.
const LIFETIME_LEAST: Duration = Duration::from_secs(600);

fn lifetimes(draft: &Draft, spec: &Value, found: &mut Vec<Diagnostic>) {
    let read = |key: &str| spec[key].as_str().and_then(text_form::duration);
    let place_at = |path: &str| place_of(&draft.origins, path).unwrap_or(&draft.origins[""]).clone();
    let Some(expiry) = read("expireAfter") else { return };
    if expiry < LIFETIME_LEAST {
        let message = "nodes expire while their pods are still settling: every one is replaced for ever";
        let place = place_at("spec.template.spec.expireAfter");
        found.push(
            Diagnostic::warning("PRV1632", place, message)
                .help("a machine takes a minute or two until its pods run; give it hours, such as `720h`"),
        );
    }
    let Some(grace) = read("terminationGracePeriod") else { return };
    if expiry < grace {
        let place = place_at("spec.template.spec.terminationGracePeriod");
        let other = place_at("spec.template.spec.expireAfter");
        found.push(
            Diagnostic::error("PRV1615", place, "nodes may take longer to drain than they may live")
                .also("they expire after this", other)
                .help("make `expire-after` longer than `termination-grace-period`"),
        );
    }
}

/// Budget windows that do something else than they say. The smallest of all active budgets counts.
fn windows(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let budgets = draft.manifest["spec"]["disruption"]["budgets"].as_array();
    let budgets = budgets.map(Vec::as_slice).unwrap_or_default();
    let always = budgets.iter().find(|budget| {
        budget["schedule"].is_null() && budget["reasons"].is_null() && budget["nodes"] != "100%"
    });
    for (at, budget) in budgets.iter().enumerate() {
        let place = |field: &str| {
            let path = format!("spec.disruption.budgets[{at}].{field}");
            place_of(&draft.origins, &path).unwrap_or(&draft.origins[""]).clone()
        };
        let (Some(schedule), Some(duration)) = (budget["schedule"].as_str(), budget["duration"].as_str())
        else {
            continue;
        };
        if budget["nodes"] == "100%"
            && let Some(always) = always
        {
            let message = format!(
                "this window changes nothing: the budget of {} always applies, and the smallest wins",
                always["nodes"].as_str().unwrap_or("10%")
            );
            found.push(
                Diagnostic::warning("PRV1606", place("nodes"), message)
                    .help("give the other budget a schedule for the rest of the time"),
            );
            continue;
        }
        if text_form::never_starts(schedule) {
            let message =
                format!("`{schedule}` names a day that no month of it has, so the window never opens");
            found.push(
                Diagnostic::warning("PRV1606", place("schedule"), message).help(
                    "the fields are minute, hour, day, month and weekday; correct the day or the month",
                ),
            );
            continue;
        }
        let Some(duration) = text_form::duration(duration) else { continue };
        if schedule::starts_again_within(schedule, duration) {
            let message = format!(
                "`{schedule}` starts again before the window of {} ends",
                budget["duration"].as_str().unwrap_or_default()
            );
            found.push(Diagnostic::warning("PRV1606", place("schedule"), message).help(
                meant_by(schedule).unwrap_or_else(|| {
                    "so the window never closes in between; start it less often".to_owned()
                }),
            ));
        }
    }
}

/// What was meant by a schedule that people get wrong.
fn meant_by(schedule: &str) -> Option<String> {
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields.as_slice() else { return None };
    if minute.contains(['*', ',', '-', '/']) || *hour == "*" {
        return None;
    }
    if let Some((first, _)) = hour.split_once('-') {
        let meant = format!("{minute} {first} {day} {month} {weekday}");
        return Some(format!("it starts every hour of the range; to start once write \"{meant}\" (UTC)"));
    }
    if *day != "*" || hour.contains(',') {
        return None;
    }
    let first = weekday.split_once([',', '-'])?.0;
    let meant = format!("{minute} {hour} {day} {month} {first}");
    Some(format!("it starts every listed day; to start once write \"{meant}\" (UTC)"))
}
