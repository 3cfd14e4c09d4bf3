//! What an environment says about the values that it takes from others: `[promotion]` of its file, checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use serde::Serialize;

use super::changes::{has, sealed};
use crate::gitops::diagnostic::{Diagnostic, Diagnostics, Place, listed};
use crate::gitops::fleet::Fleet;
use crate::gitops::read::NESTING_MAX;
use crate::gitops::tree::Node;
use crate::model::near::nearest;
use crate::model::repository::Repository;
use crate::model::time::parse_duration;
use crate::model::visible::shortened;

/// Tables and values of an environment that can be promoted.
const ROOTS: [&str; 7] = ["buffers", "classes", "cluster", "overlays", "pools", "region", "variables"];

/// How a stage must stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Require {
    #[serde(rename = "healthy")]
    Healthy,
    #[serde(rename = "healthy+rolled-out")]
    HealthyAndRolledOut,
}

impl Require {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::HealthyAndRolledOut => "healthy+rolled-out",
        }
    }
}

/// How many stages must vouch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Match {
    All,
    OneOf,
}

/// The promotion into one environment, as its file says it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    pub environment: Arc<str>,
    /// The file that a promotion changes.
    pub file: Arc<str>,
    pub from: Vec<Arc<str>>,
    /// Dotted paths, split; `*` stands for a name.
    pub paths: Vec<Vec<String>>,
    pub soak: SignedDuration,
    pub require: Require,
    pub matching: Match,
    /// The commit of a rollback that is released.
    pub release: Option<Arc<str>>,
}

/// The rules of all environments that have some, by name.
pub fn rules_of(repository: &Repository) -> Result<Vec<Rules>, Diagnostics> {
    let fleet = Fleet::load(repository)?;
    let mut found = Vec::new();
    let rules = read(&fleet, &mut found);
    found.retain(Diagnostic::is_error);
    match found.is_empty() {
        true => Ok(rules),
        false => {
            let mut all = Diagnostics::default();
            all.extend(found);
            Err(all.sorted())
        }
    }
}

/// The same from files that are read already. Files with mistakes of form have no rules; they were told elsewhere.
pub(crate) fn read(fleet: &Fleet<'_>, found: &mut Vec<Diagnostic>) -> Vec<Rules> {
    let environments: Vec<_> = fleet.environments().collect();
    let mut links: BTreeMap<Arc<str>, Vec<(Arc<str>, Place)>> = BTreeMap::new();
    let mut all = Vec::new();
    for environment in &environments {
        let Some((file, Some(tree))) = fleet.own(&environment.name) else { continue };
        let Some(promotion) = tree.get("promotion") else { continue };
        let before = found.len();
        let entries = |key: &str| promotion.get(key).and_then(Node::as_list).unwrap_or_default().iter();
        let mut from: Vec<(Arc<str>, Place)> = Vec::new();
        for stage in entries("from") {
            let Some(name) = stage.as_text() else { continue };
            match environments.iter().find(|known| known.name == *name) {
                Some(known) if known.is_abstract => found.push(
                    Diagnostic::error(
                        "PRV1701",
                        stage.place.clone(),
                        format!(
                            "`{name}` is only extended: nothing of it ever runs, so it vouches for nothing"
                        ),
                    )
                    .help("name an environment that is not abstract"),
                ),
                Some(known) => match from.iter().find(|(first, _)| *first == known.name) {
                    Some((_, first)) => found.push(
                        Diagnostic::warning(
                            "PRV1701",
                            stage.place.clone(),
                            format!("`{name}` is named twice, and vouches once"),
                        )
                        .also("the first one", first.clone())
                        .help("remove one of the two"),
                    ),
                    None => from.push((known.name.clone(), stage.place.clone())),
                },
                None => found.push(unknown_stage(name, stage, environments.iter().map(|known| &*known.name))),
            }
        }
        if entries("from").next().is_none() {
            found.extend(promotion.get("from").map(|list| {
                Diagnostic::error("PRV1701", list.place.clone(), "`from` names no environment")
                    .help("write `from = [\"dev\"]`, or remove `promotion`")
            }));
        }
        if entries("paths").next().is_none() {
            found.extend(promotion.get("paths").map(|list| {
                Diagnostic::warning("PRV1704", list.place.clone(), "`paths` is empty, so nothing is promoted")
                    .help("name what is to be taken over, such as `pools.*.limits`, or remove `promotion`")
            }));
        }
        let mut paths = Vec::new();
        for path in entries("paths") {
            let Some(text) = path.as_text() else { continue };
            let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
            let is_too_deep = parts.len() > NESTING_MAX;
            if !ROOTS.contains(&&*parts[0]) || is_too_deep || parts.iter().any(String::is_empty) {
                let text = shortened(text, 60);
                let message = format!("`{text}` is no path of values that can be promoted");
                found.push(
                    Diagnostic::error("PRV1703", path.place.clone(), message)
                        .help(format!("paths start with {}, such as `pools.*.limits`", listed(ROOTS))),
                );
                continue;
            }
            let stages = from.iter().filter_map(|(stage, _)| fleet.resolve(stage).ok());
            let stages: Vec<_> = stages.collect();
            if stages.len() == from.len()
                && !stages.is_empty()
                && !stages.iter().any(|stage| has(stage, &parts))
            {
                let names: Vec<&str> = from.iter().map(|(name, _)| &**name).collect();
                let message = format!("`{text}` promotes nothing: {} has nothing there", names.join(" and "));
                found.push(
                    Diagnostic::warning("PRV1704", path.place.clone(), message)
                        .help("correct the path, or remove it"),
                );
            }
            let own = fleet.resolve(&environment.name).ok();
            let names: Vec<&str> = parts.iter().map(String::as_str).collect();
            if let Some(mark) = own.as_ref().and_then(|own| sealed(own, &names)) {
                let message = format!("`{text}` promotes nothing: it is final for `{}`", environment.name);
                found.push(
                    Diagnostic::warning("PRV1704", path.place.clone(), message)
                        .also("marked final here", mark.clone())
                        .help("remove the path, or lift the mark there"),
                );
            }
            paths.push(parts);
        }
        links.insert(environment.name.clone(), from.clone());
        if found[before..].iter().any(Diagnostic::is_error) {
            continue;
        }
        let text = |key: &str| promotion.get(key).and_then(Node::as_text);
        let soak = text("soak").and_then(|text| parse_duration(text).ok()).unwrap_or(SignedDuration::ZERO);
        all.push(Rules {
            environment: environment.name.clone(),
            file: file.clone(),
            from: from.into_iter().map(|(name, _)| name).collect(),
            paths,
            soak,
            require: match text("require").map(|text| &**text) {
                Some("healthy") => Require::Healthy,
                _ => Require::HealthyAndRolledOut,
            },
            matching: match text("match").map(|text| &**text) {
                Some("one-of") => Match::OneOf,
                _ => Match::All,
            },
            release: text("release").cloned(),
        });
    }
    circles(&links, found);
    all
}

fn unknown_stage<'a>(name: &str, stage: &Node, known: impl Iterator<Item = &'a str>) -> Diagnostic {
    let known: Vec<&str> = known.collect();
    let help = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the environments are {}", listed(known)),
    };
    Diagnostic::error("PRV1701", stage.place.clone(), format!("there is no environment `{name}`")).help(help)
}

/// Environments that wait for each other; each circle is told once, at the first of its names.
fn circles(links: &BTreeMap<Arc<str>, Vec<(Arc<str>, Place)>>, found: &mut Vec<Diagnostic>) {
    for start in links.keys() {
        let mut trail: Vec<(Arc<str>, Place)> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        let Some(closing) = circle_from(start, start, links, &mut seen, &mut trail) else { continue };
        if trail.iter().any(|(name, _)| name < start) {
            continue;
        }
        let names: Vec<&str> =
            std::iter::once(&**start).chain(trail.iter().map(|(name, _)| &**name)).collect();
        let message = format!("promotion goes in a circle: {} ← {start}", names.join(" ← "));
        let first = trail.first().map_or_else(|| closing.clone(), |(_, place)| place.clone());
        let mut diagnostic =
            Diagnostic::error("PRV1702", first.clone(), message).help("remove one `from` of the circle");
        if first != closing {
            diagnostic = diagnostic.also("the circle closes here", closing);
        }
        found.push(diagnostic);
    }
}

/// The way from `at` back to `start`, without `start` itself, and the place of its last link.
fn circle_from(
    start: &Arc<str>,
    at: &Arc<str>,
    links: &BTreeMap<Arc<str>, Vec<(Arc<str>, Place)>>,
    seen: &mut std::collections::BTreeSet<Arc<str>>,
    trail: &mut Vec<(Arc<str>, Place)>,
) -> Option<Place> {
    for (next, place) in links.get(at).into_iter().flatten() {
        if next == start {
            return Some(place.clone());
        }
        if !seen.insert(next.clone()) {
            continue;
        }
        trail.push((next.clone(), place.clone()));
        if let Some(closing) = circle_from(start, next, links, seen, trail) {
            return Some(closing);
        }
        trail.pop();
    }
    None
}
