//! When windows open: five cron fields in UTC, or a macro.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Starts that are looked at for the time between two of them: two months of days, five years of months.
const STARTS: usize = 64;
const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const MACROS: [&str; 7] = ["@annually", "@yearly", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// What the five fields may hold: a name, the least and the most, and words for the numbers.
const FIELDS: [(&str, u32, u32, &[&str]); 5] = [
    ("minute", 0, 59, &[]),
    ("hour", 0, 23, &[]),
    ("day", 1, 31, &[]),
    ("month", 1, 12, &MONTHS),
    ("weekday", 0, 6, &DAYS),
];

/// When a window opens, as it was written, and read once. One that cannot be read is kept: it says so whenever it is asked.
#[derive(Clone)]
pub struct Schedule {
    text: Arc<str>,
    meaning: Result<Arc<Cron>, Arc<str>>,
}

impl Schedule {
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first start after `after`; `None`: there is none. The `Err` says what is wrong with the schedule.
    pub fn next_after(&self, after: Timestamp) -> Result<Option<Timestamp>, String> {
        self.next(after, false)
    }

    /// The first start at `from` or after it.
    pub fn next_from(&self, from: Timestamp) -> Result<Option<Timestamp>, String> {
        self.next(from, true)
    }

    fn next(&self, after: Timestamp, inclusive: bool) -> Result<Option<Timestamp>, String> {
        let cron = self.meaning.as_ref().map_err(|fault| fault.to_string())?;
        let next = cron.find_next_occurrence(&after.to_zoned(TimeZone::UTC), inclusive);
        Ok(next.ok().map(|next| next.timestamp()))
    }
}

impl<Text: Into<Arc<str>>> From<Text> for Schedule {
    fn from(text: Text) -> Self {
        let text = text.into();
        let meaning = parse(&text).map(Arc::new).map_err(Arc::from);
        Self { text, meaning }
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Schedule {}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(deserializer)?))
    }
}

/// Whether Karpenter could read it.
pub(crate) fn is_well_formed(schedule: &str) -> bool {
    MACROS.contains(&schedule) || (!schedule.starts_with('@') && fault(schedule).is_none())
}

/// The first field that Karpenter could not read, and what it takes. Its cron knows fewer forms than others: no weekday 7, no
/// ranges over the end, no `L`, `W` or `#`.
fn fault(schedule: &str) -> Option<String> {
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Some(format!("it has {} fields, not five", fields.len()));
    }
    let mut fields = fields.into_iter().zip(FIELDS);
    let (field, (name, min, max, _)) =
        fields.find(|(field, (_, min, max, words))| !is_field(field, *min, *max, words))?;
    Some(format!("the {name} `{field}` is not made of numbers from {min} to {max}"))
}

fn is_field(field: &str, min: u32, max: u32, words: &[&str]) -> bool {
    let number = |text: &str| {
        let word = words.iter().position(|word| text.eq_ignore_ascii_case(word)).map(|at| at as u32 + min);
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        word.or_else(|| text.parse().ok().filter(|_| is_digits)).filter(|number| (min..=max).contains(number))
    };
    field.split(',').all(|part| {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let is_step = step.is_none_or(|step| {
            !step.is_empty()
                && step.bytes().all(|byte| byte.is_ascii_digit())
                && step.parse::<u32>().is_ok_and(|step| step > 0)
        });
        let is_range = match range.split_once('-') {
            Some((from, to)) => number(from).zip(number(to)).is_some_and(|(from, to)| from <= to),
            None => matches!(range, "*" | "?") || number(range).is_some(),
        };
        is_step && is_range
    })
}

/// The `Err` says what is wrong with it.
pub fn parse(schedule: &str) -> Result<Cron, String> {
    let text = schedule.trim();
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ if text.starts_with('@') || text.split_whitespace().count() != 5 => {
            return Err(format!(
                "`{schedule}` is no schedule; write five cron fields or a macro such as @daily"
            ));
        }
        _ => match fault(text) {
            Some(fault) => return Err(format!("`{schedule}` is no schedule: {fault}")),
            None => text,
        },
    };
    fields.parse().map_err(|error| format!("`{schedule}` is no schedule: {error}"))
}

/// Whether a window that opens by `schedule` and stays open for `duration` is still open when the next one begins.
pub fn starts_again_within(schedule: &str, duration: Duration) -> bool {
    let Ok(cron) = parse(schedule) else { return false };
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    let is_number = |field: &&str| field.bytes().all(|byte| byte.is_ascii_digit());
    // Most start once a day at the most.
    if duration <= DAY && fields.len() == 5 && fields[..2].iter().all(is_number) {
        return false;
    }
    // The first day of a leap year, so that every day of a year comes up.
    let Ok(first) = "2024-01-01T00:00:00Z".parse::<Timestamp>() else { return false };
    let next = |after: Timestamp| {
        let next = cron.find_next_occurrence(&after.to_zoned(TimeZone::UTC), false).ok()?;
        Some(next.timestamp())
    };
    let starts = std::iter::successors(next(first), |last| next(*last)).take(STARTS);
    let starts: Vec<i64> = starts.map(Timestamp::as_second).collect();
    starts.windows(2).any(|pair| pair[1].abs_diff(pair[0]) < duration.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_karpenter_cannot_read_is_no_schedule() {
        for (schedule, why) in [
            ("0 9 * * 7", "the weekday `7` is not made of numbers from 0 to 6"),
            ("0 9 * * 1-7", "the weekday"),
            ("0 9 * * fri-mon", "the weekday"),
            ("0 22-4 * * *", "the hour"),
            ("0 9 L * *", "the day"),
            ("0 9 * * mon#2", "the weekday"),
            ("61 * * * *", "the minute"),
        ] {
            let error = parse(schedule).expect_err("it is refused");
            assert!(error.contains(why), "{error}");
            assert!(!is_well_formed(schedule));
        }
        for schedule in ["*/5 0-6 1,15 jan mon-fri", "0 9 ? * SUN", "@daily", "0 0-23/2 * * 0"] {
            assert!(parse(schedule).is_ok() && is_well_formed(schedule), "{schedule}");
        }
    }

    #[test]
    fn a_window_may_be_open_when_the_next_one_begins() {
        const HOUR: u64 = 3600;
        for (schedule, seconds) in [
            ("*/5 * * * *", 300),
            ("@hourly", HOUR),
            ("0 9-17 * * mon-fri", HOUR),
            ("0 8,20 * * *", 12 * HOUR),
            ("30 7 * * *", 24 * HOUR),
            ("0 0 * * sat,sun", 24 * HOUR),
            ("0 9 * * 0", 7 * 24 * HOUR),
            ("0 0 1 * *", 28 * 24 * HOUR),
            ("@yearly", 365 * 24 * HOUR),
        ] {
            let within = |seconds| starts_again_within(schedule, Duration::from_secs(seconds));
            assert!(!within(seconds), "{schedule} within {seconds} s");
            assert!(within(seconds + 60), "{schedule} within {seconds} s and a minute");
        }
        assert!(!starts_again_within("never", Duration::from_secs(HOUR)));
    }
}
