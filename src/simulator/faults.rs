//! What may happen in a week, and when: demand that comes and goes, and everything that can go wrong, drawn from a seed.
//!
//! The plan is a list made before the week begins. So it can be printed, cut down to what matters, and played again.

use jiff::SignedDuration;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::chance;
use super::fleet::FleetPlan;
use crate::model::offering::CapacityType;
use crate::model::time::{parse_duration, render_duration};

/// A stretch of time, written like `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub SignedDuration);

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&render_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        parse_duration(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl Span {
    pub fn secs(seconds: i64) -> Self {
        Self(SignedDuration::from_secs(seconds))
    }
}

/// Something that happens at a moment, counted from the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub at: Span,
    #[serde(flatten)]
    pub what: Incident,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Incident {
    // What people and their programs want.
    /// A workload wants another number of pods.
    Scale {
        workload: String,
        to: u32,
    },
    /// A Deployment replaces its pods, one at a time.
    Roll {
        workload: String,
    },
    /// A CronJob starts: so many pods, each for so long.
    Run {
        name: String,
        pods: u32,
        cpu: u32,
        lasts: Span,
    },
    /// The template of a pool changes, so that all of its nodes have drifted.
    Drift {
        pool: String,
    },

    // The cloud.
    /// Offerings have no capacity; what is left out means all.
    #[serde(rename_all = "kebab-case")]
    Shortage {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        zone: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance_type: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        capacity_type: Option<CapacityType>,
        lasts: Span,
    },
    /// So many of a thousand running spot machines get the two-minute warning.
    Storm {
        permille: u32,
    },
    /// So many of a thousand running spot machines are said to be at risk.
    Rebalance {
        permille: u32,
    },
    /// Every machine of a zone dies, and none can be bought there.
    ZoneLost {
        zone: String,
        lasts: Span,
    },
    /// A machine dies, chosen by its place among those that run; the cloud may tell of it.
    #[serde(rename_all = "kebab-case")]
    MachineDies {
        which: u64,
        is_told: bool,
    },
    /// Launches are throttled.
    Throttled {
        permille: u32,
        lasts: Span,
    },
    /// Machines are bought, and the answer never arrives.
    AnswersLost {
        permille: u32,
        lasts: Span,
    },
    /// Machines cannot be told to end.
    EndingsRefused {
        permille: u32,
        lasts: Span,
    },
    /// New machines are missing from the list of all machines for so long.
    ListingLags {
        by: Span,
        lasts: Span,
    },
    /// What spot costs changes, by chance, to at most so many percent of what it cost.
    Prices {
        percent: u32,
    },

    // Machines that boot.
    BootsLate {
        permille: u32,
        by: Span,
        lasts: Span,
    },
    NeverBoots {
        permille: u32,
        lasts: Span,
    },
    /// Machines have so many percent of the memory that was promised.
    LessMemory {
        permille: u32,
        percent: u32,
        lasts: Span,
    },

    // The API server, and the way to it.
    /// Writes are refused, or meet a conflict.
    WritesRefused {
        permille: u32,
        lasts: Span,
    },
    /// News of each kind of object comes late, and so out of order between kinds.
    WatchesLag {
        by: Span,
        lasts: Span,
    },
    /// No news arrives; then everything is listed again.
    WatchesLost {
        lasts: Span,
    },

    // The process itself.
    /// It dies after so many more actions, and starts again from the objects.
    Crash {
        after: u32,
        down: Span,
    },
    /// Its clock is wrong, by so many seconds.
    ClockJumps {
        seconds: i64,
        lasts: Span,
    },
}

impl Incident {
    /// How long it is felt. Demand is no fault.
    pub fn lasts(&self) -> SignedDuration {
        match self {
            Self::Scale { .. } | Self::Roll { .. } | Self::Drift { .. } | Self::Prices { .. } => {
                SignedDuration::ZERO
            }
            Self::Run { lasts, .. }
            | Self::Shortage { lasts, .. }
            | Self::ZoneLost { lasts, .. }
            | Self::Throttled { lasts, .. }
            | Self::AnswersLost { lasts, .. }
            | Self::EndingsRefused { lasts, .. }
            | Self::NeverBoots { lasts, .. }
            | Self::LessMemory { lasts, .. }
            | Self::WritesRefused { lasts, .. }
            | Self::WatchesLost { lasts } => lasts.0,
            Self::ListingLags { by, lasts }
            | Self::BootsLate { by, lasts, .. }
            | Self::WatchesLag { by, lasts } => by.0 + lasts.0,
            Self::ClockJumps { seconds, lasts } => lasts.0 + SignedDuration::from_secs(seconds.abs()),
            Self::Storm { .. } | Self::Rebalance { .. } => SignedDuration::from_mins(2),
            Self::MachineDies { .. } => DEATH_IS_SEEN,
            Self::Crash { down, .. } => down.0,
        }
    }

    /// Whether it is something that goes wrong, and not something that is wanted.
    pub fn is_fault(&self) -> bool {
        !matches!(self, Self::Scale { .. } | Self::Roll { .. } | Self::Run { .. } | Self::Drift { .. })
    }
}

/// How long after a silent death the Node object is taken away.
pub(super) const DEATH_IS_SEEN: SignedDuration = SignedDuration::from_mins(2);

/// Everything that happens between the start and `until`, in order.
pub fn draw(fleet: &FleetPlan, until: SignedDuration, rng: &mut ChaCha8Rng) -> Vec<Event> {
    let mut events = Vec::new();
    let hours = until.as_hours().max(1) as u64;
    // One thing every eight to 24 hours: there is time to recover, and to be at rest.
    let count = hours / 24 + chance::below(rng, hours / 12 + 1);
    for _ in 0..count {
        let at = chance::between(rng, SignedDuration::from_secs(30), until);
        let what = if chance::happens(rng, 400) { demand(fleet, rng) } else { fault(fleet, rng) };
        events.push(Event { at: whole(at), what });
        // Trouble does not come alone: some of it strikes while something else is under way.
        if chance::happens(rng, 350) {
            let later = at + chance::between(rng, SignedDuration::from_secs(1), SignedDuration::from_mins(4));
            events.push(Event { at: whole(later.min(until)), what: fault(fleet, rng) });
        }
    }
    events.sort_by_key(|event| event.at);
    events
}

fn whole(span: SignedDuration) -> Span {
    Span::secs(span.as_secs())
}

fn one<'a, T>(list: &'a [T], rng: &mut ChaCha8Rng) -> Option<&'a T> {
    (!list.is_empty()).then(|| &list[chance::below(rng, list.len() as u64) as usize])
}

fn minutes(rng: &mut ChaCha8Rng, least: i64, most: i64) -> Span {
    Span(SignedDuration::from_mins(least + chance::below(rng, (most - least + 1) as u64) as i64))
}

fn seconds(rng: &mut ChaCha8Rng, least: i64, most: i64) -> Span {
    Span::secs(least + chance::below(rng, (most - least + 1) as u64) as i64)
}

fn permille(rng: &mut ChaCha8Rng) -> u32 {
    [150, 400, 700, 1000][chance::below(rng, 4) as usize]
}

fn demand(fleet: &FleetPlan, rng: &mut ChaCha8Rng) -> Incident {
    let workload = one(&fleet.workloads, rng);
    match (chance::below(rng, 10), workload) {
        (0..6, Some(workload)) => {
            let most = u64::from(workload.replicas) * 2 + 1;
            Incident::Scale { workload: workload.name.clone(), to: chance::below(rng, most) as u32 }
        }
        (6, Some(workload)) => Incident::Roll { workload: workload.name.clone() },
        (7, _) if !fleet.pools.is_empty() => {
            let pool = one(&fleet.pools, rng).map(|pool| pool.name.clone()).unwrap_or_default();
            Incident::Drift { pool }
        }
        _ => Incident::Run {
            name: format!("cron-{}", chance::below(rng, 3)),
            pods: 1 + chance::below(rng, 6) as u32,
            cpu: [300, 900, 1700][chance::below(rng, 3) as usize],
            lasts: minutes(rng, 3, 40),
        },
    }
}

fn fault(fleet: &FleetPlan, rng: &mut ChaCha8Rng) -> Incident {
    let zone = |rng: &mut ChaCha8Rng| one(&super::fleet::ZONES, rng).map(|zone| (*zone).to_owned());
    match chance::below(rng, 22) {
        0 => {
            let capacity_type = chance::happens(rng, 600).then_some(CapacityType::Spot);
            let instance_type = chance::happens(rng, 400)
                .then(|| one(&super::fleet::TYPES, rng).map(|(name, ..)| (*name).to_owned()))
                .flatten();
            let zone = chance::happens(rng, 400).then(|| zone(rng)).flatten();
            Incident::Shortage { zone, instance_type, capacity_type, lasts: minutes(rng, 5, 120) }
        }
        1 | 2 => Incident::Storm { permille: permille(rng) },
        3 => Incident::Rebalance { permille: permille(rng) },
        4 => Incident::ZoneLost { zone: zone(rng).unwrap_or_default(), lasts: minutes(rng, 10, 90) },
        5 | 6 => {
            Incident::MachineDies { which: chance::below(rng, 1000), is_told: chance::happens(rng, 500) }
        }
        7 => Incident::Throttled { permille: permille(rng), lasts: minutes(rng, 1, 20) },
        8 => Incident::AnswersLost { permille: permille(rng), lasts: minutes(rng, 1, 15) },
        9 => Incident::EndingsRefused { permille: permille(rng), lasts: minutes(rng, 1, 15) },
        10 => Incident::ListingLags { by: seconds(rng, 10, 300), lasts: minutes(rng, 5, 30) },
        11 => Incident::Prices { percent: [60, 130, 200, 400][chance::below(rng, 4) as usize] },
        12 => Incident::BootsLate {
            permille: permille(rng),
            by: minutes(rng, 1, 20),
            lasts: minutes(rng, 5, 40),
        },
        13 => Incident::NeverBoots { permille: permille(rng), lasts: minutes(rng, 5, 30) },
        14 => Incident::LessMemory {
            permille: permille(rng),
            percent: [60, 85, 95][chance::below(rng, 3) as usize],
            lasts: minutes(rng, 5, 40),
        },
        15 => Incident::WritesRefused { permille: permille(rng).min(700), lasts: minutes(rng, 1, 10) },
        16 => Incident::WatchesLag { by: seconds(rng, 1, 20), lasts: minutes(rng, 1, 20) },
        17 => Incident::WatchesLost { lasts: seconds(rng, 5, 240) },
        18 => {
            // Clocks that differ by more than a minute or two are told of by everybody else first.
            let seconds = chance::below(rng, 180) as i64 - 90;
            Incident::ClockJumps { seconds, lasts: minutes(rng, 1, 20) }
        }
        _ if fleet.pools.is_empty() => Incident::Rebalance { permille: 1000 },
        _ => Incident::Crash { after: chance::below(rng, 7) as u32, down: seconds(rng, 5, 120) },
    }
}
