//! What nodes cost so far: seconds of machines times their price, by pool and capacity type.
//!
//! A ledger is fed with what an engine is told and what it decides, so a simulation, a recording and a real cluster are counted
//! by one rule: a machine costs its price from its launch, or from when it was first seen, until it is told to end or is seen to
//! be gone. Nothing is ever taken off again. Where a clock jumps back, nothing is counted until it has caught up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::model::action::{Action, LaunchOption};
use crate::model::catalog::Catalog;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::label;
use crate::model::money::{Usd, UsdPerHour};
use crate::model::name::{ClaimName, PoolName, ProviderId, TypeName, Zone};
use crate::model::observation::{Instance, InterruptionNotice, Observation};
use crate::model::offering::CapacityType;
use crate::model::pool::PriceChange;
use crate::model::symbol::Symbol;

/// Whose account a machine is on; the environment is the ledger's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// `None`: no pool asked for the machine.
    pub pool: Option<PoolName>,
    pub capacity_type: CapacityType,
}

/// What was spent on an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    pub usd: Usd,
    /// Whole seconds of each machine.
    pub machine_seconds: i64,
}

/// What was spent until a moment. The parts come to the total.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    pub total_usd: Usd,
    pub machine_seconds: i64,
    pub accounts: BTreeMap<Account, Spent>,
    pub by_pool: BTreeMap<PoolName, Usd>,
    pub by_capacity_type: BTreeMap<CapacityType, Usd>,
}

impl Statement {
    /// Puts what a machine cost on its account; less than nothing counts as nothing.
    pub fn pay(&mut self, account: Account, usd: Usd, lived: SignedDuration) {
        let (usd, seconds) = (usd.max(Usd(0)), lived.as_secs().max(0));
        let spent = self.accounts.entry(account).or_default();
        spent.usd += usd;
        spent.machine_seconds += seconds;
        self.total_usd += usd;
        self.machine_seconds += seconds;
        *self.by_capacity_type.entry(account.capacity_type).or_default() += usd;
        if let Some(pool) = account.pool {
            *self.by_pool.entry(pool).or_default() += usd;
        }
    }
}

/// What runs on an account at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    pub machines: u32,
    pub usd_per_hour: UsdPerHour,
}

/// Adds up what machines cost while news of them comes in.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The first and the latest moment that it was told of.
    span: Option<(Timestamp, Timestamp)>,
    catalog: Option<Arc<Catalog>>,
    /// What overlays make of list prices.
    overlays: BTreeMap<Symbol, PriceChange>,
    /// Launches on their way.
    asked: BTreeMap<ClaimName, Asked>,
    machines: BTreeMap<ProviderId, Machine>,
    running: Running,
    /// More than one, where a launch was answered twice.
    of_claim: BTreeMap<ClaimName, BTreeSet<ProviderId>>,
    /// Of machines that are gone with their claims.
    settled: Statement,
}

/// What runs now, kept up to date with every machine that comes, goes or costs something else.
#[derive(Clone, Debug, Default)]
struct Running {
    rates: BTreeMap<Account, Rate>,
    /// How often it changed.
    changes: u64,
}

impl Running {
    /// A machine ran at the price `before`, and runs at `after`; `None`: it does not.
    fn shift(&mut self, account: Account, before: Option<UsdPerHour>, after: Option<UsdPerHour>) {
        if before == after {
            return;
        }
        self.changes += 1;
        let rate = self.rates.entry(account).or_default();
        if let Some(price) = before {
            rate.machines = rate.machines.saturating_sub(1);
            rate.usd_per_hour = rate.usd_per_hour - price;
        }
        if let Some(price) = after {
            rate.machines += 1;
            rate.usd_per_hour += price;
        }
        if rate.machines == 0 {
            self.rates.remove(&account);
        }
    }
}

/// A launch on its way.
#[derive(Clone, Debug)]
struct Asked {
    /// At which prices.
    options: Vec<LaunchOption>,
    /// The claim went meanwhile: nobody will tell of it again.
    is_forsaken: bool,
}

/// A machine, while it runs or has a claim.
#[derive(Clone, Debug)]
struct Machine {
    account: Account,
    instance_type: TypeName,
    zone: Zone,
    /// `None`: nobody knows, so it is counted as nothing.
    price: Option<UsdPerHour>,
    /// What the catalogue says, by which the price is seen to change.
    listed: Option<UsdPerHour>,
    /// What an overlay makes of that; `None`: nothing, or it is not known which.
    overlaid: Option<PriceChange>,
    /// Since when it costs that price.
    since: Timestamp,
    /// What it cost before, at other prices.
    before: (Usd, SignedDuration),
    /// What it cost at other prices since it was told to end: it counts only if that is refused.
    disputed: (Usd, SignedDuration),
    end: End,
    /// It came when its claim was gone, so that its own end is the last that is heard of it.
    is_forsaken: bool,
}

/// How far the end of a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// It was told to end, and may refuse.
    Asked(Timestamp),
    Gone(Timestamp),
}

impl Machine {
    /// What it costs an hour if it runs.
    fn running(&self) -> Option<UsdPerHour> {
        (self.end == End::Open).then(|| self.price.unwrap_or_default())
    }

    fn lived_at_this_price(&self, until: Timestamp) -> SignedDuration {
        let until = match self.end {
            End::Open => until,
            End::Asked(at) | End::Gone(at) => until.min(at),
        };
        until.duration_since(self.since).max(SignedDuration::ZERO)
    }

    fn cost(&self, until: Timestamp) -> (Usd, SignedDuration) {
        let lived = self.lived_at_this_price(until);
        let (usd, before) = self.before;
        (usd + self.price.unwrap_or_default().over(lived), before.saturating_add(lived))
    }

    /// From `at` on it costs another price.
    fn reprice(&mut self, at: Timestamp, listed: Option<UsdPerHour>) {
        if listed == self.listed || listed.is_none() {
            return;
        }
        if let End::Asked(asked) = self.end {
            let lived = at.duration_since(self.since.max(asked)).max(SignedDuration::ZERO);
            let (usd, before) = self.disputed;
            self.disputed = (usd + self.price.unwrap_or_default().over(lived), before.saturating_add(lived));
        }
        self.before = self.cost(at);
        self.since = self.since.max(at);
        // What a NodeOverlay makes of the list price, it makes of the new one.
        self.price = match (self.overlaid, self.price, self.listed, listed) {
            (Some(change), _, _, Some(listed)) => Some(change.of(listed)),
            (None, Some(price), Some(former), Some(listed))
                if former != price && former > UsdPerHour::ZERO =>
            {
                Some(price.share(listed, former))
            }
            _ => listed,
        };
        self.listed = listed;
    }

    /// It runs on.
    fn refuse(&mut self) {
        if matches!(self.end, End::Asked(_)) {
            let ((usd, lived), (more_usd, more)) = (self.before, std::mem::take(&mut self.disputed));
            self.before = (usd + more_usd, lived.saturating_add(more));
            self.end = End::Open;
        }
    }
}

impl Ledger {
    /// Takes in what an engine is told.
    pub fn observe(&mut self, at: Timestamp, seen: &Observation) {
        let now = self.reach(at);
        match seen {
            Observation::Catalog(catalog) => {
                for machine in self.machines.values_mut() {
                    let Account { capacity_type, .. } = machine.account;
                    let listed = catalog.list_price(machine.instance_type, machine.zone, capacity_type);
                    let before = machine.running();
                    machine.reprice(now, listed);
                    self.running.shift(machine.account, before, machine.running());
                }
                self.catalog = Some(catalog.clone());
            }
            Observation::Launched { claim, instance, .. } => {
                let ago = at.duration_since(instance.launched).max(SignedDuration::ZERO);
                self.launched(now, ago, *claim, instance);
            }
            Observation::LaunchFailed { claim, .. } => drop(self.asked.remove(claim)),
            Observation::Claim(claim) => self.meet(now, claim),
            Observation::ClaimGone(claim) => {
                self.asked.entry(*claim).and_modify(|asked| asked.is_forsaken = true);
                let ids = self.of_claim.remove(claim).unwrap_or_default();
                ids.into_iter().for_each(|id| self.settle(now, id));
            }
            Observation::Overlay(overlay) => {
                self.overlays.remove(&overlay.name);
                let change = overlay.price.filter(|_| overlay.fault.is_none());
                self.overlays.extend(change.map(|change| (overlay.name, change)));
            }
            Observation::OverlayGone(name) => drop(self.overlays.remove(name)),
            Observation::Terminating { instance } => self.end(*instance, End::Asked(now)),
            Observation::Terminated { instance }
            | Observation::Interruption {
                instance,
                notice: InterruptionNotice::StateChange | InterruptionNotice::Terminating,
            } => {
                self.end(*instance, End::Gone(now));
                if self.machines.get(instance).is_some_and(|machine| machine.is_forsaken) {
                    self.settle(now, *instance);
                }
            }
            Observation::TerminateFailed { instance, .. } => {
                self.alter(*instance, Machine::refuse);
            }
            Observation::Instances(listed) => {
                for instance in listed.iter().filter(|one| one.is_terminating || one.is_stopped) {
                    self.end(instance.provider_id, End::Asked(now));
                }
            }
            _ => {}
        }
    }

    /// Takes in what an engine wants done.
    pub fn decide(&mut self, at: Timestamp, action: &Action) {
        let now = self.reach(at);
        match action {
            Action::Launch { claim, options } => {
                let asked = Asked { options: options.clone(), is_forsaken: false };
                self.asked.insert(*claim, asked);
            }
            Action::Terminate { instance } => self.end(*instance, End::Asked(now)),
            _ => {}
        }
    }

    /// Time has come to `at`, or was there already. The moment up to which is counted.
    pub fn reach(&mut self, at: Timestamp) -> Timestamp {
        let (_, latest) = self.span.get_or_insert((at, at));
        *latest = (*latest).max(at);
        *latest
    }

    /// Nobody tells of these machines any more; what they cost until now stays counted.
    pub fn let_go(&mut self, at: Timestamp) {
        let now = self.reach(at);
        let ids: Vec<ProviderId> = self.machines.keys().copied().collect();
        ids.into_iter().for_each(|id| self.settle(now, id));
        self.of_claim.clear();
        self.asked.clear();
        // What is met again is counted from then on: its launch was counted, here or by another.
        self.span = Some((now, now));
    }

    /// What was spent until `at`, or until the latest moment that it was told of.
    pub fn statement(&self, at: Timestamp) -> Statement {
        let until = self.span.map_or(at, |(_, latest)| latest.max(at));
        let mut statement = self.settled.clone();
        for machine in self.machines.values() {
            let (usd, lived) = machine.cost(until);
            statement.pay(machine.account, usd, lived);
        }
        statement
    }

    /// The total of the [`statement`](Self::statement) alone.
    pub fn usd(&self, at: Timestamp) -> Usd {
        let until = self.span.map_or(at, |(_, latest)| latest.max(at));
        let open = self.machines.values().map(|machine| machine.cost(until).0.max(Usd(0)));
        open.fold(self.settled.total_usd, |sum, usd| sum + usd)
    }

    /// What runs now, by account; an account of which nothing runs is left out.
    pub fn rates(&self) -> &BTreeMap<Account, Rate> {
        &self.running.rates
    }

    /// How often what runs has changed.
    pub fn changes(&self) -> u64 {
        self.running.changes
    }

    /// What all that runs now costs.
    pub fn usd_per_hour(&self) -> UsdPerHour {
        self.rates().values().map(|rate| rate.usd_per_hour).sum()
    }

    /// What a machine costs an hour, if it is known.
    pub fn price_of(&self, id: ProviderId) -> Option<UsdPerHour> {
        self.machines.get(&id)?.price
    }

    /// It was launched so long `ago` by the clock of the news, which may not have caught up with `now`.
    fn launched(&mut self, now: Timestamp, ago: SignedDuration, claim: ClaimName, instance: &Instance) {
        let asked = self.asked.remove(&claim);
        if self.machines.contains_key(&instance.provider_id) {
            return;
        }
        let is_it = |option: &&LaunchOption| {
            (option.instance_type, option.zone, option.capacity_type, option.reservation)
                == (instance.instance_type, instance.zone, instance.capacity_type, instance.reservation)
        };
        let Instance { instance_type, zone, capacity_type, .. } = *instance;
        let begun = self.span.map_or(now, |(begun, _)| begun);
        let options = asked.iter().flat_map(|asked| &asked.options);
        self.open(
            claim,
            instance.provider_id,
            Account { pool: instance.pool, capacity_type },
            (instance_type, zone),
            options.into_iter().find(is_it).map(|option| option.price),
            now.checked_sub(ago).unwrap_or(begun).max(begun),
        );
        if asked.is_some_and(|asked| asked.is_forsaken)
            && let Some(machine) = self.machines.get_mut(&instance.provider_id)
        {
            machine.is_forsaken = true;
            self.of_claim.remove(&claim);
        }
    }

    /// A machine that somebody else launched, or a former life of the engine.
    fn meet(&mut self, now: Timestamp, claim: &NodeClaim) {
        let Some(id) = claim.provider_id.filter(|id| !self.machines.contains_key(id)) else { return };
        let of = |key| claim.labels.get(key).copied();
        let (Some(kind), Some(zone), Some(capacity_type)) =
            (of(&*label::INSTANCE_TYPE), of(&*label::ZONE), of(&*label::CAPACITY_TYPE))
        else {
            return;
        };
        let Some(capacity_type) = CapacityType::parse(&capacity_type) else { return };
        if !claim.conditions.is_true(ConditionType::InstanceTerminating) {
            let account = Account { pool: claim.pool(), capacity_type };
            self.open(claim.name, id, account, (TypeName(kind), Zone(zone)), None, now);
        }
    }

    fn open(
        &mut self,
        claim: ClaimName,
        id: ProviderId,
        account: Account,
        (instance_type, zone): (TypeName, Zone),
        price: Option<UsdPerHour>,
        since: Timestamp,
    ) {
        let catalog = self.catalog.as_ref();
        let listed =
            catalog.and_then(|catalog| catalog.list_price(instance_type, zone, account.capacity_type));
        let machine = Machine {
            account,
            instance_type,
            zone,
            price: price.or(listed),
            listed,
            overlaid: price.zip(listed).and_then(|(price, listed)| self.overlaid(price, listed)),
            since,
            before: (Usd(0), SignedDuration::ZERO),
            disputed: (Usd(0), SignedDuration::ZERO),
            end: End::Open,
            is_forsaken: false,
        };
        self.running.shift(account, None, machine.running());
        self.machines.insert(id, machine);
        self.of_claim.entry(claim).or_default().insert(id);
    }

    /// The overlay's change that makes this price of what is listed; one that sets it before others.
    fn overlaid(&self, price: UsdPerHour, listed: UsdPerHour) -> Option<PriceChange> {
        let changes = self.overlays.values().filter(|change| price != listed && change.of(listed) == price);
        changes.copied().min_by_key(|change| !matches!(change, PriceChange::Set(_)))
    }

    /// The first end counts, unless it is refused.
    fn end(&mut self, id: ProviderId, end: End) {
        self.alter(id, |machine| {
            machine.end = match (machine.end, end) {
                (End::Open, end) => end,
                (End::Asked(at), End::Gone(_)) => End::Gone(at),
                (former, _) => former,
            };
        });
    }

    fn alter(&mut self, id: ProviderId, change: impl FnOnce(&mut Machine)) {
        if let Some(machine) = self.machines.get_mut(&id) {
            let before = machine.running();
            change(machine);
            self.running.shift(machine.account, before, machine.running());
        }
    }

    fn settle(&mut self, now: Timestamp, id: ProviderId) {
        if let Some(machine) = self.machines.remove(&id) {
            self.running.shift(machine.account, machine.running(), None);
            let (usd, lived) = machine.cost(now);
            self.settled.pay(machine.account, usd, lived);
        }
    }
}
