//! What the fleet cost: seconds of machines times their price, by pool and capacity type.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::money::Usd;
use crate::model::name::PoolName;
use crate::model::offering::CapacityType;

use super::cloud::Cloud;

/// Money spent from the beginning of the world until `until`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    pub total_usd: Usd,
    /// What the same machines would have cost on demand is not known here; this is what was paid.
    pub by_pool: BTreeMap<PoolName, Usd>,
    pub by_capacity_type: BTreeMap<CapacityType, Usd>,
    pub machine_seconds: i64,
}

impl Ledger {
    /// Adds up the machines of `cloud`; one that still runs is billed until `until`.
    pub fn of(cloud: &Cloud, until: Timestamp) -> Self {
        let mut ledger = Self::default();
        for machine in cloud.machines() {
            let lived = machine.ended.unwrap_or(until).min(until).duration_since(machine.instance.launched);
            let cost = machine.price.over(lived.max(jiff::SignedDuration::ZERO));
            ledger.total_usd += cost;
            ledger.machine_seconds += lived.as_secs().max(0);
            *ledger.by_capacity_type.entry(machine.instance.capacity_type).or_default() += cost;
            if let Some(pool) = machine.instance.pool {
                *ledger.by_pool.entry(pool).or_default() += cost;
            }
        }
        ledger
    }
}
