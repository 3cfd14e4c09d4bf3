//! One field of a pool changed in everything that a recording tells of it: what would have been decided then?
//!
//! Only fields that nodes do not carry can be asked about. Another template would have rolled every node, and nothing that was
//! recorded after that would fit any more.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::stage::Stage;
use crate::capacity::engine::Engine;
use crate::model::money::UsdPerHour;
use crate::model::name::PoolName;
use crate::model::observation::Observation;
use crate::model::pool::{ConsolidationPolicy, NodePool};
use crate::model::quantity::{Quantity, ResourceName, Resources};
use crate::model::time::{Patience, Timestamp};

/// `pools.NAME.FIELD=VALUE`, in the words of the strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhatIf {
    pub pool: PoolName,
    change: Change,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Weight(u32),
    Limit(ResourceName, i64),
    ConsolidateAfter(Patience),
    ConsolidationPolicy(ConsolidationPolicy),
    Replicas(u32),
}

/// The fields that can be asked about, as they are written.
pub const FIELDS: &str =
    "weight, limits.cpu, limits.memory, limits.nodes, consolidate-after, consolidation-policy, replicas";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhatIfError {
    #[error("`{0}` is not of the form pools.NAME.FIELD=VALUE")]
    Malformed(String),
    #[error("`{0}` is no field that can be asked about")]
    Field(String),
    #[error("`{value}` is no value of {field}")]
    Value { field: String, value: String },
}

impl FromStr for WhatIf {
    type Err = WhatIfError;

    fn from_str(text: &str) -> Result<Self, WhatIfError> {
        let malformed = || WhatIfError::Malformed(text.to_owned());
        let (path, value) = text.split_once('=').ok_or_else(malformed)?;
        let (pool, field) =
            path.strip_prefix("pools.").and_then(|path| path.split_once('.')).ok_or_else(malformed)?;
        if pool.is_empty() {
            return Err(malformed());
        }
        let wrong = || WhatIfError::Value { field: field.to_owned(), value: value.to_owned() };
        let number = || value.parse::<u32>().map_err(|_| wrong());
        let change = match field {
            "weight" => Change::Weight(Some(number()?).filter(|weight| *weight <= 100).ok_or_else(wrong)?),
            "replicas" => Change::Replicas(number()?),
            "consolidate-after" => Change::ConsolidateAfter(value.parse().map_err(|_| wrong())?),
            "consolidation-policy" => {
                use ConsolidationPolicy::{Balanced, WhenEmpty, WhenEmptyOrUnderutilized};
                let known = [WhenEmpty, WhenEmptyOrUnderutilized, Balanced];
                let policy = known.into_iter().find(|policy| policy.as_str() == value);
                Change::ConsolidationPolicy(policy.ok_or_else(wrong)?)
            }
            "limits.cpu" | "limits.memory" | "limits.nodes" => {
                let name = ResourceName::new(field.trim_start_matches("limits."));
                let quantity: Quantity = value.parse().map_err(|_| wrong())?;
                if quantity.is_negative() {
                    return Err(wrong());
                }
                Change::Limit(name, name.amount(quantity))
            }
            _ => return Err(WhatIfError::Field(field.to_owned())),
        };
        Ok(Self { pool: PoolName::new(pool), change, text: text.to_owned() })
    }
}

impl fmt::Display for WhatIf {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// What a cluster comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    pub nodes: usize,
    pub price: UsdPerHour,
    /// Pods without a place.
    pub waiting: usize,
}

impl WhatIf {
    /// The news as it would have been.
    pub fn apply_to(&self, what: Observation) -> Observation {
        match what {
            Observation::Pool(pool) if pool.name == self.pool => {
                Observation::Pool(Arc::new(self.changed((*pool).clone())))
            }
            what => what,
        }
    }

    fn changed(&self, mut pool: NodePool) -> NodePool {
        match &self.change {
            Change::Weight(weight) => pool.weight = *weight,
            Change::Limit(name, amount) => pool.limits.get_or_insert_with(Resources::new).set(*name, *amount),
            Change::ConsolidateAfter(patience) => pool.disruption.consolidate_after = patience.clone(),
            Change::ConsolidationPolicy(policy) => pool.disruption.policy = *policy,
            Change::Replicas(replicas) => pool.replicas = Some(*replicas),
        }
        pool
    }

    /// What the cluster of `engine` would come to if nothing more happened: as it is, and with the change. `None` without the pool.
    pub fn compare_at_rest(&self, engine: &Engine, now: Timestamp) -> Option<(Rest, Rest)> {
        let pool = engine.cluster().pools.get(&self.pool)?;
        let as_it_is = Stage::new(engine.cluster().clone(), now, engine.settings().clone());
        let mut changed = as_it_is.clone();
        changed.add(&Observation::Pool(Arc::new(self.changed((**pool).clone()))));
        Some((rest(&as_it_is), rest(&changed)))
    }
}

fn rest(stage: &Stage) -> Rest {
    let scene = stage.at_rest().scene();
    Rest { nodes: scene.nodes.len(), price: scene.price(), waiting: scene.waiting.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_in_the_words_of_the_strategy() {
        let read = |text: &str| text.parse::<WhatIf>();
        assert_eq!(
            read("pools.web.limits.cpu=8").map(|it| it.change),
            Ok(Change::Limit(ResourceName::new("cpu"), 8_000))
        );
        assert_eq!(
            read("pools.web.weight=10").map(|it| (it.pool, it.change)),
            Ok((PoolName::new("web"), Change::Weight(10)))
        );
        assert!(read("pools.web.consolidate-after=Never").is_ok());
        for wrong in ["web.weight=1", "pools.web.weight", "pools.web=1", "pools..weight=1", ""] {
            assert!(matches!(read(wrong), Err(WhatIfError::Malformed(_))), "{wrong}");
        }
        assert!(matches!(read("pools.web.taints=x"), Err(WhatIfError::Field(_))));
        for wrong in
            ["weight=101", "weight=-1", "limits.cpu=-1", "consolidation-policy=Never", "consolidate-after=5"]
        {
            assert!(matches!(read(&format!("pools.web.{wrong}")), Err(WhatIfError::Value { .. })), "{wrong}");
        }
    }
}
