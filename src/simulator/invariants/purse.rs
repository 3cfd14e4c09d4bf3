//! Money, counted a second time: every stretch of time is paid for by what runs in it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::capacity::ledger::Statement;
use crate::model::money::{Usd, UsdPerHour};
use crate::model::name::PoolName;
use crate::model::offering::CapacityType;
use crate::simulator::world::World;

/// Millionths of a dollar an hour, for a millisecond.
type Drops = i128;
const DROPS_OF_A_MICRO_DOLLAR: Drops = 3_600_000;

pub(super) struct Purse {
    paid_until: Timestamp,
    running: Vec<(Option<PoolName>, CapacityType, UsdPerHour)>,
    machines: usize,
    by_pool: BTreeMap<PoolName, Drops>,
    by_capacity_type: BTreeMap<CapacityType, Drops>,
    total: Drops,
}

impl Purse {
    pub fn new(start: Timestamp) -> Self {
        Self {
            paid_until: start,
            running: Vec::new(),
            machines: 0,
            by_pool: BTreeMap::new(),
            by_capacity_type: BTreeMap::new(),
            total: 0,
        }
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Pays for what has run since the last time.
    pub fn pay(&mut self, world: &World) {
        let time = world.now().duration_since(self.paid_until).as_millis();
        for (pool, capacity_type, price) in &self.running {
            let cost = Drops::from(price.0) * time;
            self.total += cost;
            *self.by_capacity_type.entry(*capacity_type).or_default() += cost;
            if let Some(pool) = pool {
                *self.by_pool.entry(*pool).or_default() += cost;
            }
        }
        self.paid_until = world.now();
        let running = world.cloud().machines().filter(|machine| machine.ended.is_none());
        let entry = |machine: &crate::simulator::cloud::Machine| {
            (machine.instance.pool, machine.instance.capacity_type, machine.price)
        };
        self.running = running.map(entry).collect();
        self.machines = world.cloud().machines().count();
    }

    /// What differs from `ledger`, which rounds each machine down to a millionth of a dollar.
    pub fn agrees_with(&self, ledger: &Statement) -> Result<(), String> {
        let differs = |mine: Drops, theirs: Usd| {
            let mine = mine / DROPS_OF_A_MICRO_DOLLAR;
            let off = mine - Drops::from(theirs.0);
            (off < -1 || off > self.machines as Drops + 1)
                .then(|| format!("{} was spent, and the ledger says {theirs}", Usd(mine as i64)))
        };
        if let Some(what) = differs(self.total, ledger.total_usd) {
            return Err(what);
        }
        for (pool, mine) in &self.by_pool {
            if let Some(what) = differs(*mine, ledger.by_pool.get(pool).copied().unwrap_or_default()) {
                return Err(format!("pool {pool}: {what}"));
            }
        }
        for (kind, mine) in &self.by_capacity_type {
            let theirs = ledger.by_capacity_type.get(kind).copied().unwrap_or_default();
            if let Some(what) = differs(*mine, theirs) {
                return Err(format!("{kind}: {what}"));
            }
        }
        let sums = [
            ledger.by_pool.values().copied().sum::<Usd>(),
            ledger.by_capacity_type.values().copied().sum::<Usd>(),
        ];
        if sums.iter().any(|sum| *sum != ledger.total_usd) {
            return Err(format!("the parts of the ledger do not come to {}", ledger.total_usd));
        }
        let amounts = ledger.by_pool.values().chain(ledger.by_capacity_type.values());
        if amounts.chain([&ledger.total_usd]).any(|amount| *amount < Usd(0)) {
            return Err("the ledger has less than nothing".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::ledger::Account;

    /// A purse and a ledger after two hours of one machine at 0.1 dollars an hour.
    fn spent() -> (Purse, Statement) {
        let (pool, kind, usd) = (PoolName::new("web"), CapacityType::Spot, Usd(200_000));
        let mut purse = Purse::new(Timestamp::UNIX_EPOCH);
        let drops = 200_000 * DROPS_OF_A_MICRO_DOLLAR;
        purse.total = drops;
        purse.by_pool.insert(pool, drops);
        purse.by_capacity_type.insert(kind, drops);
        let mut ledger = Statement::default();
        let account = Account { pool: Some(pool), capacity_type: kind };
        ledger.pay(account, usd, jiff::SignedDuration::from_hours(2));
        (purse, ledger)
    }

    #[test]
    fn a_ledger_that_says_something_else_is_found() {
        let (purse, ledger) = spent();
        assert_eq!(purse.agrees_with(&ledger), Ok(()));
        let other = Statement { total_usd: Usd(200_010), ..ledger.clone() };
        assert!(purse.agrees_with(&other).is_err(), "another sum");
        let other = Statement { by_pool: BTreeMap::new(), ..ledger.clone() };
        assert!(purse.agrees_with(&other).is_err(), "a pool that paid nothing");
        let kinds = BTreeMap::from([(CapacityType::OnDemand, Usd(200_000))]);
        let other = Statement { by_capacity_type: kinds, ..ledger };
        assert!(purse.agrees_with(&other).is_err(), "another capacity type");
    }
}
