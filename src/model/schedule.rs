//! When windows open: five cron fields in UTC, or a macro.

use std::time::Duration;

use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Starts that are looked at for the time between two of them: two months of days, five years of months.
const STARTS: usize = 64;
const DAY: Duration = Duration::from_secs(24 * 3600);

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
        _ => text,
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
