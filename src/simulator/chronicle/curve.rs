//! How things stood over time: of a run with few changes each of them, of one with many each stretch of time, and the peaks of all.

use jiff::Timestamp;

use super::Moment;
use crate::model::money::UsdPerHour;

/// So many moments are kept, far more than a screen can show; beyond, stretches grow.
const MOMENTS_MAX: usize = 8_192;

/// The most there was of a thing, and when first.
pub type Peak<T> = Option<(Timestamp, T)>;

/// The most of all, whatever the curve leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    pub machines: Peak<u32>,
    pub waiting_pods: Peak<usize>,
    pub usd_per_hour: Peak<UsdPerHour>,
}

impl Peaks {
    fn take(&mut self, moment: &Moment) {
        fn raise<T: Copy + PartialOrd>(peak: &mut Peak<T>, at: Timestamp, value: T) {
            if peak.is_none_or(|(_, most)| value > most) {
                *peak = Some((at, value));
            }
        }
        raise(&mut self.machines, moment.at, moment.machines.iter().sum());
        raise(&mut self.waiting_pods, moment.at, moment.waiting_pods);
        raise(&mut self.usd_per_hour, moment.at, moment.usd_per_hour);
    }
}

/// Takes in moments, in order.
#[derive(Default)]
pub struct Curve {
    moments: Vec<Moment>,
    peaks: Peaks,
    /// Milliseconds that a moment stands for; `None`: the moments are all changes there were.
    step: Option<i64>,
    start: Option<Timestamp>,
    /// In the stretch that has not ended something changed; the most pods that waited in it.
    changed: Option<usize>,
}

impl Curve {
    /// Things changed, and stand as in `now` until `next`, or until the end. Returns whether this moment is to be kept.
    pub fn change(&mut self, now: &Moment, next: Option<Timestamp>) -> bool {
        self.peaks.take(now);
        let start = *self.start.get_or_insert(now.at);
        let Some(step) = self.step else {
            let stands = |last: &Moment| {
                (&last.machines, last.waiting_pods, last.usd_per_hour)
                    == (&now.machines, now.waiting_pods, now.usd_per_hour)
            };
            return !self.moments.last().is_some_and(stands);
        };
        self.changed = self.changed.max(Some(now.waiting_pods));
        next.is_none_or(|next| stretch(start, step, next) != stretch(start, step, now.at))
    }

    /// Whether the stretch in which something changed ends between these moments.
    pub fn ends_between(&self, now: Timestamp, next: Option<Timestamp>) -> bool {
        let (Some(step), Some(start), Some(_)) = (self.step, self.start, self.changed) else { return false };
        next.is_none_or(|next| stretch(start, step, next) != stretch(start, step, now))
    }

    /// Keeps a moment.
    pub fn keep(&mut self, moment: Moment) {
        let waiting_pods = self.changed.take().unwrap_or(0).max(moment.waiting_pods);
        self.moments.push(Moment { waiting_pods, ..moment });
        if self.moments.len() > MOMENTS_MAX {
            self.thin();
        }
    }

    fn thin(&mut self) {
        let (Some(first), Some(last)) = (self.moments.first(), self.moments.last()) else { return };
        let start = first.at;
        let whole = i64::try_from(last.at.duration_since(start).as_millis()).unwrap_or(i64::MAX);
        let step = whole / (MOMENTS_MAX as i64 / 2) + 1;
        self.step = Some(step);
        let mut kept: Vec<Moment> = Vec::new();
        for moment in self.moments.drain(..) {
            match kept
                .last_mut()
                .filter(|last| stretch(start, step, last.at) == stretch(start, step, moment.at))
            {
                Some(last) => {
                    let waiting_pods = last.waiting_pods.max(moment.waiting_pods);
                    *last = Moment { waiting_pods, ..moment };
                }
                None => kept.push(moment),
            }
        }
        self.moments = kept;
    }

    /// All moments, with `end` as the last, the peaks, and whether something is left out.
    pub fn finish(mut self, end: Moment) -> (Vec<Moment>, Peaks, bool) {
        let is_thinned = self.step.is_some();
        if is_thinned || self.moments.last().is_none_or(|last| last.at < end.at) {
            self.moments.push(end);
        }
        (self.moments, self.peaks, is_thinned)
    }
}

/// Which stretch of time a moment is in.
fn stretch(start: Timestamp, step: i64, at: Timestamp) -> i64 {
    i64::try_from(at.duration_since(start).as_millis()).unwrap_or(i64::MAX) / step
}
