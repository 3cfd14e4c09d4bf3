//! When nodes of a pool may be disrupted, by the clock of a place.
//!
//! A window is open while a clock on the wall of its zone shows a day and a time that it names. So an hour that the clock skips in
//! spring is in no window, an hour that it repeats in autumn is in its window twice, and nobody has to know when either happens.
//! A window that ends before it begins goes over midnight, and belongs to the day on which it begins.
//!
//! An open denial wins. Else, if any windows allow the reason, one of those has to be open.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::near::nearest;
use super::pool::DisruptionReason;

/// The reasons that windows may name: what we choose to do. What has to be is not held up by a clock.
pub const REASONS: [DisruptionReason; 4] = [
    DisruptionReason::Underutilized,
    DisruptionReason::Empty,
    DisruptionReason::Drifted,
    DisruptionReason::Expired,
];

/// How far ahead an opening is looked for: what a week has, the next one has, too, unless the clock skips it.
const AHEAD_DAYS: i64 = 15;
/// So long a stretch tells how long one has to wait at the most.
const SAMPLE_DAYS: i64 = 29;
/// Nothing opens or closes for so short a time.
const JUST_BEFORE: SignedDuration = SignedDuration::from_secs(1);
const MINUTES_OF_DAY: u16 = 24 * 60;
const WEEK: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum WindowKind {
    Allow,
    Deny,
}

/// Days of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Days([bool; 7]);

impl Days {
    pub const ALL: Self = Self([true; 7]);

    fn has(self, day: Weekday) -> bool {
        self.0[usize::from(day.to_monday_zero_offset().unsigned_abs())]
    }
}

impl FromStr for Days {
    type Err = String;

    /// Names and ranges of them: `mon-fri`, `sat,sun`, `fri-mon`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no list of weekdays; write them like `mon-fri` or `sat,sun`");
        let day = |name: &str| WEEK.iter().position(|(word, _)| word.eq_ignore_ascii_case(name.trim()));
        let mut days = [false; 7];
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = day(first).zip(day(last)).ok_or_else(wrong)?;
            let length = (last + 7 - first) % 7;
            (0..=length).for_each(|step| days[(first + step) % 7] = true);
        }
        Ok(Self(days))
    }
}

/// A time of the day, in minutes since midnight; 24:00 is the end of the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Clock(u16);

impl Clock {
    pub const MIDNIGHT: Self = Self(0);
    pub const END_OF_DAY: Self = Self(MINUTES_OF_DAY);

    /// The moment of the clock on `date`.
    fn on(self, date: Date) -> Option<DateTime> {
        let date = if self == Self::END_OF_DAY { date.tomorrow().ok()? } else { date };
        let (hour, minute) = (self.0 / 60 % 24, self.0 % 60);
        let time = Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()?;
        Some(DateTime::from_parts(date, time))
    }
}

impl FromStr for Clock {
    type Err = String;

    /// `22:00`, `6:30`, up to `24:00`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no time of the day; write it like `22:00`, up to `24:00`");
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
        if !is_digits(hours) || !is_digits(minutes) || hours.len() > 2 || minutes.len() != 2 {
            return Err(wrong());
        }
        let (hours, minutes): (u16, u16) = hours.parse().ok().zip(minutes.parse().ok()).ok_or_else(wrong)?;
        let all = hours * 60 + minutes;
        if minutes < 60 && all <= MINUTES_OF_DAY { Ok(Self(all)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// The zone of that name in the database that every copy of this program carries: the answer is the same on every machine.
pub fn zone(name: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(name).ok()
}

/// The zone that was most likely meant by a misspelt one.
pub fn nearest_zone(name: &str) -> Option<String> {
    let known = TimeZoneDatabase::bundled();
    let names: Vec<String> = known.available().map(|name| name.to_string()).collect();
    nearest(name, names.iter().map(String::as_str)).map(str::to_owned)
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Window {
    pub kind: WindowKind,
    /// Of [`REASONS`]; empty: all of them.
    pub reasons: Vec<DisruptionReason>,
    /// On which it begins.
    pub days: Days,
    /// When it begins, and when it ends: on the next day, unless that is later.
    pub from: Clock,
    pub until: Clock,
    #[serde(with = "jiff::fmt::serde::tz::required")]
    pub zone: TimeZone,
}

impl Window {
    fn concerns(&self, reason: DisruptionReason) -> bool {
        REASONS.contains(&reason) && (self.reasons.is_empty() || self.reasons.contains(&reason))
    }

    fn is_open(&self, at: Timestamp) -> bool {
        let shown = self.zone.to_datetime(at);
        let now =
            Clock(u16::from(shown.hour().unsigned_abs()) * 60 + u16::from(shown.minute().unsigned_abs()));
        let today = self.days.has(shown.weekday());
        match self.from < self.until {
            true => today && self.from <= now && now < self.until,
            false => {
                let yesterday = self.days.has(shown.weekday().previous());
                (today && self.from <= now) || (yesterday && now < self.until)
            }
        }
    }

    /// Every moment after `after`, and up to `days` later, at which the window may open or close.
    fn edges(&self, after: Timestamp, days: i64) -> Option<BTreeSet<Timestamp>> {
        let end = after.checked_add(SignedDuration::from_hours(24 * days)).ok()?;
        let mut edges = BTreeSet::new();
        let mut date = self.zone.to_datetime(after).date().checked_sub(2.days()).ok()?;
        for _ in 0..days + 4 {
            for clock in [self.from, self.until] {
                // A time that the clock shows twice is an edge twice.
                let shown = self.zone.to_ambiguous_timestamp(clock.on(date)?);
                edges.extend([shown.earlier().ok()?, shown.later().ok()?]);
            }
            date = date.tomorrow().ok()?;
        }
        // The clock may jump over an edge.
        edges.extend(self.zone.following(after).map(|jump| jump.timestamp()).take_while(|at| *at <= end));
        edges.retain(|edge| after < *edge && *edge <= end);
        Some(edges)
    }
}

/// The windows of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Windows(pub Vec<Window>);

/// Why nothing may go now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// `None`: not for two weeks at least.
    pub until: Option<Timestamp>,
    /// Whose clock people go by.
    zone: TimeZone,
}

impl fmt::Display for Closed {
    /// `outside of its window until 2026-03-05T02:00:00+09:00[Asia/Seoul]`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.until {
            Some(until) => write!(out, "outside of its window until {}", until.to_zoned(self.zone.clone())),
            None => write!(out, "outside of its windows, none of which opens for two weeks"),
        }
    }
}

impl Windows {
    /// Whether nodes may go for `reason` at `at`.
    pub fn allows(&self, reason: DisruptionReason, at: Timestamp) -> bool {
        let of = |kind: WindowKind| {
            self.0.iter().filter(move |window| window.kind == kind && window.concerns(reason))
        };
        if of(WindowKind::Deny).any(|window| window.is_open(at)) {
            return false;
        }
        of(WindowKind::Allow).next().is_none() || of(WindowKind::Allow).any(|window| window.is_open(at))
    }

    /// Until when nodes may not go for `reason`, if they may not at `at`.
    pub fn closed(&self, reason: DisruptionReason, at: Timestamp) -> Option<Closed> {
        if self.allows(reason, at) {
            return None;
        }
        let until = self.edges(at, AHEAD_DAYS).into_iter().find(|edge| self.allows(reason, *edge));
        let zone = self.0.iter().find(|window| window.concerns(reason)).map(|window| window.zone.clone());
        Some(Closed { until, zone: zone.unwrap_or(TimeZone::UTC) })
    }

    /// Since when nodes may not go for `reason`, if they may not at `at`; `None`: they may, or could not for two weeks at least.
    pub fn closed_since(&self, reason: DisruptionReason, at: Timestamp) -> Option<Timestamp> {
        let begin = at.checked_sub(SignedDuration::from_hours(24 * AHEAD_DAYS)).ok()?;
        let mut since = None;
        for edge in self.edges(begin, AHEAD_DAYS) {
            match self.allows(reason, edge) {
                true => since = None,
                false => since = since.or_else(|| self.allows(reason, edge - JUST_BEFORE).then_some(edge)),
            }
        }
        since.filter(|_| !self.allows(reason, at))
    }

    /// The next moment after `at` at which anything changes for any reason.
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        let answers = |at: Timestamp| REASONS.map(|reason| self.allows(reason, at));
        let now = answers(at);
        self.edges(at, AHEAD_DAYS).into_iter().find(|edge| answers(*edge) != now)
    }

    /// How long nodes may have to wait at the most that want to go for `reason`, in four weeks from `at`; `None`: for good.
    pub fn longest_wait(&self, reason: DisruptionReason, at: Timestamp) -> Option<SignedDuration> {
        let mut longest = SignedDuration::ZERO;
        let mut closed_since = (!self.allows(reason, at)).then_some(at);
        let mut was_open = closed_since.is_none();
        for edge in self.edges(at, SAMPLE_DAYS) {
            match (self.allows(reason, edge), closed_since) {
                (true, Some(since)) => {
                    longest = longest.max(edge.duration_since(since));
                    (closed_since, was_open) = (None, true);
                }
                (false, None) => closed_since = Some(edge),
                _ => {}
            }
        }
        was_open.then_some(longest)
    }

    fn edges(&self, after: Timestamp, days: i64) -> BTreeSet<Timestamp> {
        self.0.iter().filter_map(|window| window.edges(after, days)).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DisruptionReason::{Drifted, Empty, Underutilized};
    use WindowKind::{Allow, Deny};

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a moment")
    }

    fn window(kind: WindowKind, days: &str, from: &str, until: &str, name: &str) -> Window {
        Window {
            kind,
            reasons: Vec::new(),
            days: days.parse().expect("days"),
            from: from.parse().expect("a time"),
            until: until.parse().expect("a time"),
            zone: zone(name).expect("a zone"),
        }
    }

    /// Every stretch from `start` on in which drifted nodes may go, as a clock in UTC shows it.
    fn stretches(windows: &[Window], start: &str, end: &str) -> Vec<String> {
        let windows = Windows(windows.to_vec());
        let (mut now, end) = (at(start), at(end));
        let mut found = Vec::new();
        let mut since = windows.allows(Drifted, now).then_some(now);
        while let Some(next) = windows.next_change(now).filter(|next| *next < end) {
            // Nothing changes in between, whatever minute is asked.
            let mut minute = now;
            while minute < next {
                assert_eq!(windows.allows(Drifted, minute), since.is_some(), "{minute}");
                minute += SignedDuration::from_mins(1);
            }
            match since.take() {
                Some(since) => found.push(format!("{since} {next}").replace(":00Z", "Z")),
                None => since = Some(next),
            }
            now = next;
        }
        found
    }

    #[test]
    fn a_night_of_the_week_goes_over_midnight_and_belongs_to_the_day_it_begins_on() {
        let friday = [window(Allow, "fri", "22:00", "06:00", "Asia/Seoul")];
        // Friday evening in Seoul is Friday noon in UTC.
        assert_eq!(
            stretches(&friday, "2026-03-01T00:00:00Z", "2026-03-16T00:00:00Z"),
            ["2026-03-06T13:00Z 2026-03-06T21:00Z", "2026-03-13T13:00Z 2026-03-13T21:00Z"]
        );
        let until_morning = [window(Allow, "mon", "00:00", "24:00", "Asia/Seoul")];
        assert_eq!(
            stretches(&until_morning, "2026-03-01T00:00:00Z", "2026-03-04T00:00:00Z"),
            ["2026-03-01T15:00Z 2026-03-02T15:00Z"]
        );
    }

    #[test]
    fn in_spring_what_the_clock_skips_is_in_no_window() {
        // Berlin goes from 02:00 to 03:00 on 29 March, Sydney on 4 October.
        for (name, day, night) in [
            ("Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00Z 2026-03-29T02:00Z"),
            ("Australia/Sydney", "2026-10-03T02:00:00Z", "2026-10-03T16:00Z 2026-10-03T17:00Z"),
        ] {
            let end = at(day) + SignedDuration::from_hours(24);
            let half_past_two = [window(Allow, "mon-sun", "02:30", "04:00", name)];
            assert_eq!(stretches(&half_past_two, day, &end.to_string()), [night], "{name}");
            let within = [window(Allow, "mon-sun", "02:00", "03:00", name)];
            assert_eq!(
                stretches(&within, day, &end.to_string()),
                [""; 0],
                "{name}: the clock never shows it"
            );
        }
        // The wait for it is a day longer then, and no more.
        let within = Windows(vec![window(Allow, "mon-sun", "02:00", "03:00", "Europe/Berlin")]);
        let closed = within.closed(Drifted, at("2026-03-28T12:00:00Z")).expect("it is closed");
        assert_eq!(
            closed.to_string(),
            "outside of its window until 2026-03-30T02:00:00+02:00[Europe/Berlin]"
        );
        let weekly = Windows(vec![window(Allow, "sun", "02:00", "03:00", "Europe/Berlin")]);
        let closed = weekly.closed(Drifted, at("2026-03-22T12:00:00Z")).expect("it is closed");
        assert_eq!(closed.until, Some(at("2026-04-05T00:00:00Z")), "two weeks, for want of that hour");
    }

    #[test]
    fn in_autumn_what_the_clock_repeats_is_in_its_window_twice() {
        // Berlin shows the hour from 02:00 twice on 25 October, Sydney on 5 April (in UTC still the day before).
        for (name, day, twice) in [
            (
                "Europe/Berlin",
                "2026-10-24T12:00:00Z",
                ["2026-10-25T00:00Z 2026-10-25T00:30Z", "2026-10-25T01:00Z 2026-10-25T01:30Z"],
            ),
            (
                "Australia/Sydney",
                "2026-04-04T02:00:00Z",
                ["2026-04-04T15:00Z 2026-04-04T15:30Z", "2026-04-04T16:00Z 2026-04-04T16:30Z"],
            ),
        ] {
            let end = (at(day) + SignedDuration::from_hours(24)).to_string();
            assert_eq!(
                stretches(&[window(Allow, "mon-sun", "02:00", "02:30", name)], day, &end),
                twice,
                "{name}"
            );
            // What is longer than the hour is an hour longer.
            let whole = [window(Allow, "mon-sun", "01:00", "04:00", name)];
            let found = stretches(&whole, day, &end);
            let (from, until) = found[0].split_once(' ').expect("two moments");
            let length = at(&until.replace('Z', ":00Z")).duration_since(at(&from.replace('Z', ":00Z")));
            assert_eq!((found.len(), length), (1, SignedDuration::from_hours(4)), "{name}");
        }
        // In Santiago midnight itself is shown twice, at the end of a Saturday: 23:00 to 24:00 belongs to it both times.
        let saturday = [window(Allow, "sat", "23:00", "24:00", "America/Santiago")];
        assert_eq!(
            stretches(&saturday, "2026-04-03T12:00:00Z", "2026-04-06T12:00:00Z"),
            ["2026-04-05T02:00Z 2026-04-05T04:00Z"]
        );
    }

    #[test]
    fn denials_win_and_windows_that_overlap_are_one() {
        let all = [
            window(Allow, "mon-fri", "20:00", "23:00", "Europe/Berlin"),
            window(Allow, "mon-fri", "22:00", "02:00", "Europe/Berlin"),
            window(Deny, "wed", "21:00", "21:30", "Europe/Berlin"),
        ];
        // Tuesday evening, and Wednesday's with a hole in it.
        assert_eq!(
            stretches(&all, "2026-03-03T12:00:00Z", "2026-03-05T12:00:00Z"),
            [
                "2026-03-03T19:00Z 2026-03-04T01:00Z",
                "2026-03-04T19:00Z 2026-03-04T20:00Z",
                "2026-03-04T20:30Z 2026-03-05T01:00Z",
            ]
        );
    }

    #[test]
    fn windows_hold_the_reasons_that_they_name() {
        let night = Window { reasons: vec![Drifted], ..window(Allow, "mon-sun", "01:00", "05:00", "UTC") };
        let sale = Window { reasons: vec![Underutilized], ..window(Deny, "fri", "00:00", "24:00", "UTC") };
        let windows = Windows(vec![night, sale]);
        let friday = REASONS.into_iter().filter(|reason| windows.allows(*reason, at("2026-03-06T12:00:00Z")));
        let friday: Vec<DisruptionReason> = friday.collect();
        assert_eq!(friday, [Empty, DisruptionReason::Expired]);
        let all = Windows(vec![window(Deny, "mon-sun", "00:00", "24:00", "UTC")]);
        for reason in DisruptionReason::ALL {
            let is_chosen = REASONS.contains(&reason);
            assert_eq!(all.allows(reason, at("2026-03-06T12:00:00Z")), !is_chosen, "{reason:?}");
        }
        let closed = all.closed(Drifted, at("2026-03-06T12:00:00Z")).expect("it is closed");
        assert_eq!(closed.to_string(), "outside of its windows, none of which opens for two weeks");
        assert_eq!(all.next_change(at("2026-03-06T12:00:00Z")), None);
    }

    #[test]
    fn the_longest_wait_is_told_and_that_there_is_no_end_to_it() {
        let wait =
            |windows: &[Window]| Windows(windows.to_vec()).longest_wait(Drifted, at("2026-03-04T10:30:00Z"));
        let nights = window(Allow, "mon-sun", "22:00", "06:00", "Europe/Berlin");
        assert_eq!(wait(std::slice::from_ref(&nights)), Some(SignedDuration::from_hours(16)));
        // Four weeks from then the clock is put forward on a Sunday, in the window.
        let sunday = window(Allow, "sun", "01:00", "05:00", "Europe/Berlin");
        assert_eq!(wait(std::slice::from_ref(&sunday)), Some(SignedDuration::from_hours(7 * 24 - 4)));
        assert_eq!(wait(&[]), Some(SignedDuration::ZERO));
        assert_eq!(wait(&[nights, window(Deny, "mon-sun", "21:00", "07:00", "Europe/Berlin")]), None);
    }

    #[test]
    fn words_are_read_as_people_write_them() {
        for (text, count) in [("mon-fri", 5), ("sat,sun", 2), ("Fri-Mon", 4), ("wed", 1), ("mon, wed-thu", 3)]
        {
            let days: Days = text.parse().expect("days");
            assert_eq!(days.0.iter().filter(|day| **day).count(), count, "{text}");
        }
        for text in ["", "monday", "mon-", "1-5", "mon;tue", "*"] {
            assert!(text.parse::<Days>().is_err(), "{text}");
        }
        for (text, shown) in [("22:00", "22:00"), ("6:30", "06:30"), ("00:00", "00:00"), ("24:00", "24:00")] {
            assert_eq!(text.parse::<Clock>().expect("a time").to_string(), shown);
        }
        for text in ["24:01", "22", "22:60", "22:0", "-1:00", "10pm", "+1:00", "22:00:00", ""] {
            assert!(text.parse::<Clock>().is_err(), "{text}");
        }
        assert_eq!(nearest_zone("Asia/Soul").as_deref(), Some("Asia/Seoul"));
        for name in ["Asia/Soul", "KST", "", "../etc/passwd"] {
            assert_eq!(zone(name), None, "{name}");
        }
    }
}
