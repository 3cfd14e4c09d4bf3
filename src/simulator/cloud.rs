//! A model of EC2: machines that cost money from the moment they start, offerings that run dry, spot that is taken back.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use rand_chacha::ChaCha8Rng;

use crate::capacity::ledger::{Account, Statement};
use crate::model::action::LaunchOption;
use crate::model::money::UsdPerHour;
use crate::model::name::{ClaimName, PoolName, ProviderId, TypeName, Zone};
use crate::model::observation::{Instance, Shortage};
use crate::model::offering::{CapacityType, InstanceType};
use crate::model::symbol::Symbol;

use super::chance;

/// One thing that can be bought: type, zone, capacity type.
pub type OfferingKey = (TypeName, Zone, CapacityType);

/// How long an offering that had no capacity is worth avoiding, as upstream remembers it.
pub const SHORTAGE_MEMORY: SignedDuration = SignedDuration::from_mins(3);

/// A machine of the simulated account.
#[derive(Clone, Debug)]
pub struct Machine {
    pub instance: Instance,
    pub price: UsdPerHour,
    /// When EC2 was told to end it, or took it back.
    pub ended: Option<Timestamp>,
    /// When EC2 said that it will take it back.
    pub taken_back: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
pub struct Cloud {
    machines: BTreeMap<ProviderId, Machine>,
    /// The machine that each idempotency token bought: a repeated launch meets it again.
    by_claim: BTreeMap<ClaimName, ProviderId>,
    /// Offerings without capacity, until when.
    dry: BTreeMap<OfferingKey, Timestamp>,
    launched: u64,
}

/// What EC2 answers to a launch.
pub enum LaunchAnswer {
    Machine(Box<Instance>),
    /// The one that this token bought before.
    Known(Box<Instance>),
    /// None of these has capacity.
    NoCapacity(Vec<OfferingKey>),
    /// An option names a type that is not sold under this class.
    UnknownType(TypeName),
}

impl Cloud {
    /// Buys by the first option that has capacity. The same claim never buys twice.
    pub fn launch(
        &mut self,
        now: Timestamp,
        claim: ClaimName,
        pool: Option<PoolName>,
        options: &[LaunchOption],
        types: &[InstanceType],
    ) -> LaunchAnswer {
        if let Some(machine) = self.by_claim.get(&claim).and_then(|id| self.machines.get(id)) {
            return LaunchAnswer::Known(Box::new(machine.instance.clone()));
        }
        let Some(option) = self.first_open(now, options) else {
            return LaunchAnswer::NoCapacity(options.iter().map(key).collect());
        };
        let Some(kind) = types.iter().find(|kind| kind.name == option.instance_type) else {
            return LaunchAnswer::UnknownType(option.instance_type);
        };
        self.launched += 1;
        let id = format!("aws:///{}/i-{:017x}", option.zone, 0x5e1f_0000_u64 + self.launched);
        let instance = Instance {
            provider_id: ProviderId::new(&id),
            claim: Some(claim),
            pool,
            instance_type: option.instance_type,
            zone: option.zone,
            capacity_type: option.capacity_type,
            reservation: option.reservation,
            image: Symbol::new("ami-0simulated0000001"),
            launched: now,
            is_stopped: false,
            is_terminating: false,
            capacity: kind.capacity.clone(),
            allocatable: kind.allocatable.clone(),
        };
        let machine =
            Machine { instance: instance.clone(), price: option.price, ended: None, taken_back: None };
        self.by_claim.insert(claim, instance.provider_id);
        self.machines.insert(instance.provider_id, machine);
        LaunchAnswer::Machine(Box::new(instance))
    }

    /// The first of `options` that has capacity.
    pub fn first_open<'o>(&self, now: Timestamp, options: &'o [LaunchOption]) -> Option<&'o LaunchOption> {
        options.iter().find(|option| !self.is_dry(now, key(option)))
    }

    /// Those of `options` that have none and would have been bought before the first that has.
    pub fn shortage(&self, now: Timestamp, options: &[LaunchOption]) -> Option<Shortage> {
        let dry = options.iter().map(key).take_while(|key| self.is_dry(now, *key));
        let offerings: Vec<OfferingKey> = dry.collect();
        let until = now + SHORTAGE_MEMORY;
        (!offerings.is_empty()).then_some(Shortage { offerings, until, advice: None })
    }

    pub(super) fn is_dry(&self, now: Timestamp, key: OfferingKey) -> bool {
        self.dry.get(&key).is_some_and(|until| now < *until)
    }

    /// No machine of this offering can be bought until `until`.
    pub fn run_dry(&mut self, key: OfferingKey, until: Timestamp) {
        let end = self.dry.entry(key).or_insert(until);
        *end = (*end).max(until);
    }

    /// Begins the end of a machine; billing stops here. `false` if there is no such machine, or it is ending already.
    pub fn end(&mut self, now: Timestamp, id: ProviderId) -> bool {
        match self.machines.get_mut(&id) {
            Some(machine) if machine.ended.is_none() => {
                machine.ended = Some(now);
                machine.instance.is_terminating = true;
                true
            }
            _ => false,
        }
    }

    pub fn machine(&self, id: ProviderId) -> Option<&Machine> {
        self.machines.get(&id)
    }

    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values()
    }

    /// Spot machines that run and that EC2 did not ask back yet.
    pub fn running_spot(&self) -> impl Iterator<Item = &Machine> {
        let is_spot = |machine: &Machine| machine.instance.capacity_type == CapacityType::Spot;
        self.machines().filter(move |machine| {
            machine.ended.is_none() && machine.taken_back.is_none() && is_spot(machine)
        })
    }

    /// Says that a machine is taken back then.
    pub fn warn(&mut self, id: ProviderId, at: Timestamp) {
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.taken_back = Some(at);
        }
    }

    /// The bill: every machine from its launch until it began to end; one that still runs until `until`.
    pub fn bill(&self, until: Timestamp) -> Statement {
        let mut bill = Statement::default();
        for Machine { instance, price, ended, .. } in self.machines() {
            let lived = ended.unwrap_or(until).min(until).duration_since(instance.launched);
            let account = Account { pool: instance.pool, capacity_type: instance.capacity_type };
            bill.pay(account, price.over(lived.max(SignedDuration::ZERO)), lived);
        }
        bill
    }

    pub fn price_now(&self) -> UsdPerHour {
        self.machines().filter(|machine| machine.ended.is_none()).map(|machine| machine.price).sum()
    }
}

/// What an option buys.
pub fn key(option: &LaunchOption) -> OfferingKey {
    (option.instance_type, option.zone, option.capacity_type)
}

/// How long EC2 takes for things, and how often it fails.
#[derive(Clone, Debug)]
pub struct CloudHabits {
    pub launch_least: SignedDuration,
    pub launch_most: SignedDuration,
    pub shutdown_least: SignedDuration,
    pub shutdown_most: SignedDuration,
    /// Launches of a thousand that are throttled.
    pub throttled_permille: u32,
    /// How long a spot machine lives on average before it is taken back; `None`: never.
    pub spot_life: Option<SignedDuration>,
}

impl Default for CloudHabits {
    /// A calm region: answers in one to three seconds, half a minute to shut down, no throttling, and spot interrupted
    /// about once in two weeks, which is EC2's "less than 5 % a month" to "over 20 %" seen from the middle.
    fn default() -> Self {
        Self {
            launch_least: SignedDuration::from_secs(1),
            launch_most: SignedDuration::from_secs(3),
            shutdown_least: SignedDuration::from_secs(15),
            shutdown_most: SignedDuration::from_secs(40),
            throttled_permille: 0,
            spot_life: Some(SignedDuration::from_hours(14 * 24)),
        }
    }
}

impl CloudHabits {
    pub(super) fn launch_time(&self, rng: &mut ChaCha8Rng) -> SignedDuration {
        chance::between(rng, self.launch_least, self.launch_most)
    }

    pub(super) fn shutdown_time(&self, rng: &mut ChaCha8Rng) -> SignedDuration {
        chance::between(rng, self.shutdown_least, self.shutdown_most)
    }
}
