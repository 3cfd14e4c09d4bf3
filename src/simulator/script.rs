//! What happens to a simulated fleet, and what should come of it: `simulation.toml` beside the strategies.
//!
//! Moments are counted from the start of the simulation. Events of one moment happen in the order of the file;
//! expectations are looked at after everything of their moment.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::capacity::cluster::Cluster;
use crate::model::count::{agreeing, counted};
use crate::model::label;
use crate::model::name::{ObjectKey, Zone};
use crate::model::offering::CapacityType;
use crate::model::time::parse_duration;

/// Hours, minutes and seconds, such as `1h30m`.
const DURATION: &str = "^([0-9]+(h|m|s))+$";

/// A Monday morning: the present of a script that names none.
pub const DEFAULT_START: &str = "2026-03-02T08:00:00Z";

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "Provisor simulation")]
pub struct Script {
    /// One sentence about what it shows.
    #[serde(default)]
    pub about: String,
    /// The environment that is played.
    pub environment: String,
    #[serde(default = "default_start", deserialize_with = "moment")]
    #[schemars(with = "String", extend("format" = "date-time", "examples" = ["2026-03-02T08:00:00Z"]))]
    pub start: Timestamp,
    /// At most 2160h.
    #[serde(deserialize_with = "span")]
    #[schemars(with = "String", regex(pattern = DURATION), extend("format" = "duration"))]
    pub duration: SignedDuration,
    #[serde(default)]
    #[schemars(range(max = 9_223_372_036_854_775_807_u64))]
    pub seed: u64,
    /// The region whose instance types and prices are used.
    #[serde(default = "default_region")]
    pub region: String,
    /// How long a spot machine lives on average before EC2 takes it back; absent: only the events take machines.
    #[serde(default, deserialize_with = "optional_span")]
    #[schemars(with = "Option<String>", regex(pattern = DURATION), extend("format" = "duration"))]
    pub spot_life: Option<SignedDuration>,
    /// Kubernetes manifests of what runs there, by path in the repository.
    #[serde(default)]
    pub workloads: Vec<String>,
    #[serde(default)]
    pub events: Vec<ScriptEvent>,
    #[serde(default)]
    pub expect: Vec<Expectation>,
}

fn default_start() -> Timestamp {
    DEFAULT_START.parse().expect("the constant is a time stamp")
}

fn default_region() -> String {
    "us-east-1".to_string()
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ScriptEvent {
    #[serde(deserialize_with = "span")]
    #[schemars(with = "String", regex(pattern = DURATION), extend("format" = "duration"))]
    pub at: SignedDuration,
    /// A workload's new count of pods.
    pub scale: Option<Scale>,
    /// So many running spot machines get the two-minute warning.
    #[schemars(range(min = 1, max = 10_000))]
    pub reclaim: Option<u32>,
    pub shortage: Option<Shortage>,
    /// Every machine of this zone is gone at once.
    pub lose_zone: Option<String>,
    /// Files of the repository change.
    pub commit: Option<Commit>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Scale {
    /// `NAMESPACE/NAME`.
    pub workload: String,
    #[schemars(range(max = 300_000))]
    pub to: u32,
}

/// Offerings that cannot be bought for a while. A list that is absent means all.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Shortage {
    pub capacity_type: Option<CapacityType>,
    /// Instance types, or families with a trailing `.*`.
    #[serde(default)]
    pub types: Vec<String>,
    #[serde(default)]
    pub zones: Vec<String>,
    #[serde(rename = "for", deserialize_with = "span")]
    #[schemars(with = "String", regex(pattern = DURATION), extend("format" = "duration"))]
    pub lasts: SignedDuration,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Commit {
    pub message: String,
    /// The path that changes, and the path of the file in the repository with its new content.
    pub files: BTreeMap<String, String>,
}

/// What must hold at one moment. Every field that is there is checked.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Expectation {
    #[serde(deserialize_with = "span")]
    #[schemars(with = "String", regex(pattern = DURATION), extend("format" = "duration"))]
    pub at: SignedDuration,
    /// Why, for people.
    pub about: String,
    /// Only nodes of this pool.
    pub pool: Option<String>,
    /// Only nodes of this capacity type.
    pub capacity_type: Option<CapacityType>,
    /// Nodes that were bought and are not on their way out: exactly so many, or between two counts.
    pub nodes: Option<Count>,
    /// Pods without a node.
    pub pending: Option<Count>,
    /// Every one of the nodes is of one of these families.
    #[serde(default)]
    pub families: Vec<String>,
    /// Every one of the nodes is in one of these zones.
    #[serde(default)]
    pub zones: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Count {
    Exactly(#[schemars(range(max = 1_000_000))] u32),
    Between(Range),
}

/// Two counts and all between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Range {
    #[schemars(range(max = 1_000_000))]
    pub least: u32,
    #[schemars(range(max = 1_000_000))]
    pub most: u32,
}

impl Count {
    pub fn holds(self, count: usize) -> bool {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match self {
            Self::Exactly(wanted) => count == wanted,
            Self::Between(Range { least, most }) => (least..=most).contains(&count),
        }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exactly(wanted) => write!(out, "{wanted}"),
            Self::Between(Range { least, most }) => write!(out, "{least} to {most}"),
        }
    }
}

/// The JSON Schema of `simulation.toml`, for editors and for us.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Script).to_value();
    without_null(&mut schema);
    schema
}

/// TOML has no null: what may be absent is simply not required.
fn without_null(schema: &mut serde_json::Value) {
    use serde_json::Value;

    match schema {
        Value::Array(items) => items.iter_mut().for_each(without_null),
        Value::Object(map) => {
            if map.get("default") == Some(&Value::Null) {
                map.remove("default");
            }
            if let Some(Value::Array(kinds)) = map.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [only] = kinds.as_slice() {
                    let only = only.clone();
                    map.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(choices)) = map.get_mut("anyOf") {
                choices.retain(|choice| choice["type"] != "null");
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    map.remove("anyOf");
                    map.extend(only);
                }
            }
            map.values_mut().for_each(without_null);
        }
        _ => {}
    }
}

impl Script {
    /// Five pods of one CPU that come after a minute and go after fifteen.
    pub fn made_up(environment: &str, workload: &str, region: Option<String>) -> Self {
        let scale = |minutes, to| ScriptEvent {
            at: SignedDuration::from_mins(minutes),
            scale: Some(Scale { workload: workload.to_owned(), to }),
            reclaim: None,
            shortage: None,
            lose_zone: None,
            commit: None,
        };
        Self {
            about: String::new(),
            environment: environment.to_owned(),
            start: default_start(),
            duration: SignedDuration::from_mins(30),
            seed: 0,
            region: region.unwrap_or_else(default_region),
            spot_life: None,
            workloads: Vec::new(),
            events: vec![scale(1, 5), scale(15, 0)],
            expect: Vec::new(),
        }
    }
}

impl Scale {
    pub fn workload(&self) -> Option<ObjectKey> {
        let (namespace, name) = self.workload.split_once('/')?;
        (!namespace.is_empty() && !name.is_empty()).then(|| ObjectKey::new(namespace, name))
    }
}

impl Shortage {
    /// Whether an offering is short.
    pub fn covers(&self, instance_type: &str, zone: Zone, capacity_type: CapacityType) -> bool {
        let is_type = |wanted: &String| match wanted.strip_suffix(".*") {
            Some(family) => instance_type.split_once('.').is_some_and(|(own, _)| own == family),
            None => wanted == instance_type,
        };
        self.capacity_type.is_none_or(|wanted| wanted == capacity_type)
            && (self.types.is_empty() || self.types.iter().any(is_type))
            && (self.zones.is_empty() || self.zones.iter().any(|wanted| wanted == zone.as_str()))
    }
}

impl Expectation {
    /// What does not hold, in sentences; empty: all is as expected.
    pub fn failures(&self, cluster: &Cluster) -> Vec<String> {
        let mut failures = Vec::new();
        let wanted = |key, value: &Option<String>, labels: &label::Labels| {
            value.as_ref().is_none_or(|wanted| labels.get(&key).is_some_and(|own| own.as_str() == wanted))
        };
        let capacity_type = self.capacity_type.map(|kind| kind.as_str().to_string());
        let claims: Vec<_> = cluster
            .claims
            .values()
            .filter(|claim| claim.deleted.is_none() && claim.provider_id.is_some())
            .filter(|claim| wanted(*label::NODEPOOL, &self.pool, &claim.labels))
            .filter(|claim| wanted(*label::CAPACITY_TYPE, &capacity_type, &claim.labels))
            .collect();
        if let Some(count) = self.nodes.filter(|count| !count.holds(claims.len())) {
            let (nodes, are) = (counted(count, "node"), agreeing(claims.len(), "is", "are"));
            failures.push(format!("{nodes} expected, {} {are} there", claims.len()));
        }
        let pending = cluster.pods.values().filter(|pod| pod.node.is_none() && pod.is_active()).count();
        if let Some(count) = self.pending.filter(|count| !count.holds(pending)) {
            let (pods, wait) = (counted(count, "waiting pod"), agreeing(pending, "waits", "wait"));
            failures.push(format!("{pods} expected, {pending} {wait}"));
        }
        for claim in claims {
            let label = |key| claim.labels.get(&key).map_or("-", |value| value.as_str());
            let (kind, zone) = (label(*label::INSTANCE_TYPE), label(*label::ZONE));
            let family = kind.split_once('.').map_or(kind, |(family, _)| family);
            if !self.families.is_empty() && !self.families.iter().any(|wanted| wanted == family) {
                failures.push(format!("{} is a {kind}: not of {}", claim.name, self.families.join(", ")));
            }
            if !self.zones.is_empty() && !self.zones.iter().any(|wanted| wanted == zone) {
                failures.push(format!("{} is in {zone}: not in {}", claim.name, self.zones.join(", ")));
            }
        }
        failures
    }
}

fn span<'de, D: serde::Deserializer<'de>>(from: D) -> Result<SignedDuration, D::Error> {
    let text = String::deserialize(from)?;
    parse_duration(&text).map_err(serde::de::Error::custom)
}

fn optional_span<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<SignedDuration>, D::Error> {
    span(from).map(Some)
}

fn moment<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read() {
        let script: Script = toml::from_str(
            r#"
            environment = "dev"
            duration = "45m"
            workloads = ["workload/inflate.yaml"]
            [[events]]
            at = "5m"
            scale = { workload = "default/inflate", to = 5 }
            [[events]]
            at = "20m"
            shortage = { capacity-type = "spot", types = ["m7i.*"], for = "10m" }
            [[expect]]
            at = "10m"
            about = "five pods run"
            pending = 0
            nodes = { least = 1, most = 3 }
            "#,
        )
        .unwrap();
        assert_eq!(
            script.events[0].scale.as_ref().unwrap().workload(),
            Some(ObjectKey::new("default", "inflate"))
        );
        let shortage = script.events[1].shortage.as_ref().unwrap();
        assert!(shortage.covers("m7i.large", Zone::new("a"), CapacityType::Spot));
        assert!(!shortage.covers("m7i.large", Zone::new("a"), CapacityType::OnDemand));
        assert!(!shortage.covers("m7i-flex.large", Zone::new("a"), CapacityType::Spot));
        assert!(script.expect[0].nodes.unwrap().holds(3) && !script.expect[0].nodes.unwrap().holds(4));
    }
}
