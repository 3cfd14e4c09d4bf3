//! What goes wrong in a world: spells in which calls fail and machines boot badly, and single blows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rand_chacha::ChaCha8Rng;

use super::{Event, World};
use crate::model::money::UsdPerHour;
use crate::model::name::{ObjectKey, ProviderId, TypeName, Zone};
use crate::model::node::Node;
use crate::model::observation::{Instance, InterruptionNotice, Observation};
use crate::model::offering::CapacityType;
use crate::model::quantity::resource;
use crate::simulator::chance;
use crate::simulator::cloud::OfferingKey;
use crate::simulator::faults::{DEATH_IS_SEEN, Incident};
use crate::simulator::kubelet;
use crate::simulator::story::Happening;

/// How long a Deployment that rolls looks at its new pod before it takes the next.
const ROLL_PAUSE: SignedDuration = SignedDuration::from_secs(20);

/// What is wrong now, and what follows from what was.
#[derive(Clone, Debug, Default)]
pub(super) struct Weather {
    throttled: Spell,
    answers_lost: Spell,
    endings_refused: Spell,
    late: Spell,
    never: Spell,
    small: Spell,
    unlisted: Spell,
    /// Machines whose kubelet is silent.
    dead: BTreeSet<ProviderId>,
    /// Machines with so many percent of their memory.
    shrunk: BTreeMap<ProviderId, u32>,
    /// Pods that a rolling Deployment has yet to replace.
    rolling: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
}

/// A time in which something happens to some of those that it could happen to.
#[derive(Clone, Copy, Debug, Default)]
struct Spell {
    permille: u32,
    until: Timestamp,
    /// How bad it is: milliseconds or percent.
    extent: i64,
}

impl Spell {
    /// The end of the world's rng is not touched while nothing is wrong: a seed without faults stays the same story.
    fn strikes(&self, now: Timestamp, rng: &mut ChaCha8Rng) -> bool {
        now < self.until && chance::happens(rng, self.permille)
    }
}

/// What follows later from something that went wrong.
#[derive(Clone, Debug)]
pub(super) enum Aftermath {
    /// The Node object of a dead machine is taken away.
    Forgotten(ProviderId),
    /// A rolling Deployment takes its next pod, if the last one runs.
    Roll(ObjectKey),
}

/// How a machine that was just bought will boot.
pub(super) enum Boot {
    After(SignedDuration),
    Never,
}

impl World {
    /// Lets `what` happen now, as far as it happens to the world and not on the way to it.
    pub fn suffer(&mut self, what: &Incident) {
        let now = self.now;
        let spell = |permille: u32, lasts: SignedDuration, extent: i64| Spell {
            permille,
            until: now + lasts,
            extent,
        };
        match what {
            Incident::Shortage { zone, instance_type, capacity_type, lasts } => {
                let covers = |(kind, place, capacity): &OfferingKey| {
                    instance_type.as_ref().is_none_or(|wanted| kind.as_str() == wanted)
                        && zone.as_ref().is_none_or(|wanted| place.as_str() == wanted)
                        && capacity_type.is_none_or(|wanted| *capacity == wanted)
                };
                self.run_dry(covers, lasts.0);
            }
            Incident::Storm { permille } => {
                for id in self.some_spot(*permille) {
                    self.warn_spot(id);
                }
            }
            Incident::Rebalance { permille } => {
                for instance in self.some_spot(*permille) {
                    let notice = InterruptionNotice::RebalanceRecommendation;
                    self.publish(Observation::Interruption { instance, notice });
                }
            }
            Incident::ZoneLost { zone, lasts } => {
                let zone = Zone::new(zone);
                self.tell(Happening::ZoneLost { zone });
                self.run_dry(|(_, place, _)| *place == zone, lasts.0);
                let of_zone = self.cloud.machines().filter(|machine| machine.instance.zone == zone);
                let running = of_zone.filter(|machine| machine.ended.is_none());
                let lost: Vec<ProviderId> = running.map(|machine| machine.instance.provider_id).collect();
                lost.into_iter().for_each(|id| self.die(id, false));
            }
            Incident::MachineDies { which, is_told } => {
                let running = self.cloud.machines().filter(|machine| machine.ended.is_none());
                let running: Vec<ProviderId> = running.map(|machine| machine.instance.provider_id).collect();
                if !running.is_empty() {
                    self.die(running[(*which % running.len() as u64) as usize], *is_told);
                }
            }
            Incident::Throttled { permille, lasts } => {
                self.weather.throttled = spell(*permille, lasts.0, 0);
            }
            Incident::AnswersLost { permille, lasts } => {
                self.weather.answers_lost = spell(*permille, lasts.0, 0);
            }
            Incident::EndingsRefused { permille, lasts } => {
                self.weather.endings_refused = spell(*permille, lasts.0, 0);
            }
            Incident::ListingLags { by, lasts } => {
                self.weather.unlisted = spell(1000, lasts.0, by.0.as_secs() * 1000);
            }
            Incident::BootsLate { permille, by, lasts } => {
                self.weather.late = spell(*permille, lasts.0, by.0.as_secs() * 1000);
            }
            Incident::NeverBoots { permille, lasts } => self.weather.never = spell(*permille, lasts.0, 0),
            Incident::LessMemory { permille, percent, lasts } => {
                self.weather.small = spell(*permille, lasts.0, i64::from((*percent).min(100)));
            }
            Incident::Prices { percent } => self.change_prices(*percent),
            Incident::Roll { workload } => self.roll(ObjectKey::new("default", workload)),
            Incident::Scale { workload, to } => {
                self.scale_at(now, ObjectKey::new("default", workload), *to);
            }
            Incident::Run { .. }
            | Incident::Drift { .. }
            | Incident::WritesRefused { .. }
            | Incident::WatchesLag { .. }
            | Incident::WatchesLost { .. }
            | Incident::Crash { .. }
            | Incident::ClockJumps { .. } => {}
        }
    }

    pub(super) fn follow(&mut self, aftermath: Aftermath) {
        match aftermath {
            Aftermath::Forgotten(id) => {
                if let Some(node) = self.node_of(id) {
                    self.delete_node(node.name);
                }
            }
            Aftermath::Roll(workload) => self.take_next_of_roll(workload),
        }
    }

    /// Every machine that carries our tags, as the cloud lists them now.
    pub fn listing(&self) -> Arc<[Instance]> {
        let spell = self.weather.unlisted;
        let lag = SignedDuration::from_millis(if self.now < spell.until { spell.extent } else { 0 });
        let is_listed = |machine: &&crate::simulator::cloud::Machine| {
            let is_visible = self.now.duration_since(machine.instance.launched) >= lag;
            let id = machine.instance.provider_id;
            let is_there = machine.ended.is_none() || self.queue.values().any(|event| event.ends(id));
            is_visible && is_there
        };
        self.cloud.machines().filter(is_listed).map(|machine| machine.instance.clone()).collect()
    }

    pub(super) fn is_throttled(&mut self) -> bool {
        let usual = chance::happens(&mut self.rng, self.habits.cloud.throttled_permille);
        usual || self.weather.throttled.strikes(self.now, &mut self.rng)
    }

    pub(super) fn loses_answer(&mut self) -> bool {
        self.weather.answers_lost.strikes(self.now, &mut self.rng)
    }

    pub(super) fn refuses_ending(&mut self) -> bool {
        self.weather.endings_refused.strikes(self.now, &mut self.rng)
    }

    pub(super) fn boot(&mut self, usual: SignedDuration, id: ProviderId) -> Boot {
        if self.weather.small.strikes(self.now, &mut self.rng) {
            let percent = u32::try_from(self.weather.small.extent).unwrap_or(100);
            self.weather.shrunk.insert(id, percent);
        }
        if self.weather.never.strikes(self.now, &mut self.rng) {
            return Boot::Never;
        }
        if self.weather.late.strikes(self.now, &mut self.rng) {
            return Boot::After(usual + SignedDuration::from_millis(self.weather.late.extent));
        }
        Boot::After(usual)
    }

    /// The node of `id` as its kubelet finds it.
    pub(super) fn as_booted(&self, id: ProviderId, mut node: Node) -> Node {
        if let Some(percent) = self.weather.shrunk.get(&id) {
            for amounts in [&mut node.capacity, &mut node.allocatable] {
                let memory = amounts.get(*resource::MEMORY) * i64::from(*percent) / 100;
                amounts.set(*resource::MEMORY, memory);
            }
        }
        node
    }

    pub(super) fn is_dead(&self, id: ProviderId) -> bool {
        self.weather.dead.contains(&id)
    }

    /// The machine is off, and its kubelet silent. Nobody takes its pods away until its Node is gone.
    fn die(&mut self, id: ProviderId, is_told: bool) {
        if !self.cloud.end(self.now, id) {
            return;
        }
        self.weather.dead.insert(id);
        if is_told {
            let notice = InterruptionNotice::Terminating;
            self.publish(Observation::Interruption { instance: id, notice });
        }
        if let Some(node) = self.node_of(id) {
            let mut silent = (*node).clone();
            silent.conditions = vec![kubelet::ready_condition(false, self.now)];
            let name = silent.name;
            self.publish(Observation::Node(Arc::new(silent)));
            let pods: Vec<_> = self.objects.pods_of(name).cloned().collect();
            for pod in pods.into_iter().filter(|pod| pod.is_ready) {
                let pod = crate::model::pod::Pod { is_ready: false, ..(*pod).clone() };
                self.publish(Observation::Pod(Arc::new(pod)));
            }
            self.plan(self.now + DEATH_IS_SEEN, Event::Aftermath(Aftermath::Forgotten(id)));
        }
    }

    pub(super) fn warn_spot(&mut self, id: ProviderId) {
        let Some(machine) = self.cloud.machine(id).filter(|machine| machine.ended.is_none()) else { return };
        let (instance_type, zone) = (machine.instance.instance_type, machine.instance.zone);
        let at = self.now + SignedDuration::from_mins(2);
        self.cloud.warn(id, at);
        self.tell(Happening::SpotWarning { instance: id, instance_type, zone });
        // The offering that is taken back has nothing left to sell for a while.
        self.cloud
            .run_dry((instance_type, zone, CapacityType::Spot), self.now + SignedDuration::from_mins(15));
        self.publish(Observation::Interruption {
            instance: id,
            notice: InterruptionNotice::SpotReclaim { at },
        });
        self.plan(at, Event::InstanceGone(id));
    }

    /// Whether the machine of a pod has died.
    pub(super) fn runs_on_the_dead(&self, key: ObjectKey) -> bool {
        let node = self.objects.pods.get(&key).and_then(|pod| self.objects.nodes.get(&pod.node?));
        node.and_then(|node| node.provider_id).is_some_and(|id| self.is_dead(id))
    }

    fn some_spot(&mut self, permille: u32) -> Vec<ProviderId> {
        let running: Vec<ProviderId> =
            self.cloud.running_spot().map(|machine| machine.instance.provider_id).collect();
        running.into_iter().filter(|_| chance::happens(&mut self.rng, permille)).collect()
    }

    fn run_dry(&mut self, covers: impl Fn(&OfferingKey) -> bool, lasts: SignedDuration) {
        let until = self.now + lasts;
        let keys: Vec<OfferingKey> = self
            .catalog
            .facts()
            .iter()
            .flat_map(|facts| facts.zones.iter().map(move |zone| (facts.name, *zone)))
            .flat_map(|(name, zone)| CapacityType::ALL.map(|kind| (name, zone, kind)))
            .filter(covers)
            .collect();
        keys.iter().for_each(|key| self.cloud.run_dry(*key, until));
        self.tell(Happening::Shortage { offerings: keys.len(), until });
    }

    fn change_prices(&mut self, percent: u32) {
        let mut changes: BTreeMap<(TypeName, CapacityType), Option<UsdPerHour>> = BTreeMap::new();
        for facts in self.catalog.facts() {
            if let Some(price) = facts.prices.get(&CapacityType::Spot) {
                let least = u64::from(percent.clamp(1, 100));
                let most = u64::from(percent.max(100));
                let factor = least + chance::below(&mut self.rng, most - least + 1);
                let price = UsdPerHour((price.0 * factor as i64 / 100).max(1000));
                changes.insert((facts.name, CapacityType::Spot), Some(price));
            }
        }
        self.catalog = Arc::new(self.catalog.with_prices(&changes));
        self.types.clear();
        self.publish(Observation::Catalog(self.catalog.clone()));
    }

    fn roll(&mut self, workload: ObjectKey) {
        let Some(pods) = self.staff.get(&workload).cloned() else { return };
        self.weather.rolling.insert(workload, pods);
        self.plan(self.now, Event::Aftermath(Aftermath::Roll(workload)));
    }

    fn take_next_of_roll(&mut self, workload: ObjectKey) {
        let Some(old) = self.weather.rolling.get_mut(&workload) else { return };
        let pods = &self.objects.pods;
        old.retain(|key| pods.get(key).is_some_and(|pod| pod.is_active()));
        let Some(next) = old.first().copied() else {
            self.weather.rolling.remove(&workload);
            return;
        };
        let all_run = self
            .staff
            .get(&workload)
            .is_some_and(|staff| staff.iter().all(|key| pods.get(key).is_some_and(|pod| pod.is_ready)));
        if all_run {
            self.end_pod(next, None);
        }
        self.plan(self.now + ROLL_PAUSE, Event::Aftermath(Aftermath::Roll(workload)));
    }
}
