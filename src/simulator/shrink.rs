//! Cuts a trial that breaks a promise down to what is needed to break it: fewer events, less of a fleet, a shorter time.
//!
//! Parts are left out, larger ones first, as long as the same promise stays broken. What is left is not the smallest trial there
//! is, but nothing of it can be left out any more.

use jiff::SignedDuration;

use super::faults::{Incident, Span};
use super::fleet::PoolPlan;
use super::invariants::{Broken, Promise};
use super::trial::Trial;

/// Trials that are played at most.
const TRIES_MAX: u32 = 400;

/// What is left of a trial, and what is broken in it.
pub struct Shrunk {
    pub trial: Trial,
    pub broken: Broken,
    /// Trials that were played.
    pub tries: u32,
}

/// Shrinks `trial`, of which `play` says what is broken. `None` if nothing is. `report` hears how much is left.
pub fn shrink(
    trial: &Trial,
    play: &mut dyn FnMut(&Trial) -> Option<Broken>,
    report: &mut dyn FnMut(&Trial),
) -> Option<Shrunk> {
    let broken = play(trial)?;
    let promise = broken.promise;
    let mut search = Search { best: trial.clone(), broken, promise, tries: 1, play, report };
    search.shorten();
    while search.tries < TRIES_MAX {
        let before = search.best.clone();
        search.drop_events();
        search.drop_of_fleet();
        search.simplify();
        search.shorten();
        if search.best == before {
            break;
        }
    }
    let Search { best, broken, tries, .. } = search;
    Some(Shrunk { trial: best, broken, tries })
}

struct Search<'a> {
    best: Trial,
    broken: Broken,
    promise: Promise,
    tries: u32,
    play: &'a mut dyn FnMut(&Trial) -> Option<Broken>,
    report: &'a mut dyn FnMut(&Trial),
}

impl Search<'_> {
    /// Keeps `trial` if it breaks the same promise.
    fn offer(&mut self, trial: Trial) -> bool {
        if trial == self.best || self.tries >= TRIES_MAX {
            return false;
        }
        self.tries += 1;
        match (self.play)(&trial).filter(|broken| broken.promise == self.promise) {
            Some(broken) => {
                (self.best, self.broken) = (trial, broken);
                (self.report)(&self.best);
                true
            }
            None => false,
        }
    }

    /// Ends soon after the promise is broken.
    fn shorten(&mut self) {
        let start = Trial::start();
        let needed = self.broken.at.duration_since(start) + SignedDuration::from_secs(1);
        let duration = Span::secs(needed.as_secs() + 1);
        if duration < self.best.duration {
            let mut events = self.best.events.clone();
            events.retain(|event| event.at <= duration);
            self.offer(Trial { duration, events, ..self.best.clone() });
        }
    }

    /// Leaves out runs of events: halves first, single ones last.
    fn drop_events(&mut self) {
        let mut size = self.best.events.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.best.events.len() {
                let mut trial = self.best.clone();
                trial.events.drain(at..(at + size).min(trial.events.len()));
                if !self.offer(trial) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    fn drop_of_fleet(&mut self) {
        for at in (0..self.best.fleet.workloads.len()).rev() {
            let mut trial = self.best.clone();
            trial.fleet.workloads.remove(at);
            self.offer(trial);
        }
        for at in (0..self.best.fleet.pools.len()).rev() {
            let mut trial = self.best.clone();
            trial.fleet.pools.remove(at);
            self.offer(trial);
        }
        let mut trial = self.best.clone();
        (trial.fleet.strangers, trial.fleet.daemon_cpu) = (0, 0);
        self.offer(trial);
    }

    /// Fewer pods, plainer pods, plainer pools.
    fn simplify(&mut self) {
        for at in 0..self.best.fleet.workloads.len() {
            let most = self.best.fleet.workloads[at].replicas;
            for replicas in [1, 2, most / 2, most.saturating_sub(1)] {
                let mut trial = self.best.clone();
                if (1..most).contains(&replicas) {
                    trial.fleet.workloads[at].replicas = replicas;
                    if self.offer(trial) {
                        break;
                    }
                }
            }
            let plain = self.best.fleet.workloads[at].plain();
            let mut trial = self.best.clone();
            trial.fleet.workloads[at] = plain;
            self.offer(trial);
        }
        for at in 0..self.best.fleet.pools.len() {
            for trait_at in 0..PoolPlan::TRAITS {
                let mut trial = self.best.clone();
                trial.fleet.pools[at].drop_trait(trait_at);
                self.offer(trial);
            }
        }
        for at in 0..self.best.events.len() {
            let Incident::Scale { to, .. } = self.best.events[at].what.clone() else { continue };
            for fewer in [0, 1, to / 2] {
                let mut trial = self.best.clone();
                if fewer < to
                    && let Incident::Scale { to, .. } = &mut trial.events[at].what
                {
                    *to = fewer;
                    if self.offer(trial) {
                        break;
                    }
                }
            }
        }
    }
}
