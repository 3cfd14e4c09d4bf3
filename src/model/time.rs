//! Durations as Kubernetes writes them. Moments are `jiff::Timestamp` and always arrive as arguments.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use jiff::{SignedDuration, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("`{0}` is not a duration; write hours, minutes and seconds, such as `30s`, `5m` or `1h30m`")]
    Malformed(String),
    #[error("`{0}` is longer than a duration may be (2^63 nanoseconds, about 292 years)")]
    TooLong(String),
}

/// Reads one or more groups of a number and `h`, `m` or `s`.
pub fn parse_duration(text: &str) -> Result<SignedDuration, DurationError> {
    let malformed = || DurationError::Malformed(text.into());
    let too_long = || DurationError::TooLong(text.into());
    let mut rest = text;
    let mut seconds: i64 = 0;
    if rest.is_empty() {
        return Err(malformed());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(malformed)?;
        let (digits, tail) = rest.split_at(end);
        let unit = match tail.as_bytes()[0] {
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return Err(malformed()),
        };
        if digits.is_empty() {
            return Err(malformed());
        }
        let count: i64 = digits.parse().map_err(|_| too_long())?;
        seconds =
            count.checked_mul(unit).and_then(|group| seconds.checked_add(group)).ok_or_else(too_long)?;
        rest = &tail[1..];
    }
    if seconds > i64::MAX / 1_000_000_000 {
        return Err(too_long());
    }
    Ok(SignedDuration::from_secs(seconds))
}

/// A wait that may be `Never`. Keeps the text it was written in (`720h` stays `720h`), which equality ignores.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Patience {
    text: Arc<str>,
    /// `None` is `Never`.
    pub duration: Option<SignedDuration>,
}

impl Patience {
    pub fn never() -> Self {
        Self { text: "Never".into(), duration: None }
    }

    pub fn of(duration: SignedDuration) -> Self {
        Self { text: render_duration(duration).into(), duration: Some(duration) }
    }
}

impl PartialEq for Patience {
    fn eq(&self, other: &Self) -> bool {
        self.duration == other.duration
    }
}

impl Eq for Patience {}

impl FromStr for Patience {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let duration = if text == "Never" { None } else { Some(parse_duration(text)?) };
        Ok(Self { text: text.into(), duration })
    }
}

impl fmt::Display for Patience {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// The shortest text that parses back: `1h30m`, `45s`, `0s`. Negative durations print as `0s`, fractions of a second are cut.
pub fn render_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let mut text = String::new();
    for (size, unit) in [(3600, 'h'), (60, 'm')] {
        let count = if size == 60 { seconds % 3600 / 60 } else { seconds / size };
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if seconds % 60 > 0 || text.is_empty() {
        text.push_str(&format!("{}s", seconds % 60));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_and_print() {
        for (text, seconds) in [("30s", 30), ("1h30m5s", 5405), ("720h", 2_592_000), ("0s", 0), ("90m", 5400)]
        {
            assert_eq!(parse_duration(text).unwrap().as_secs(), seconds);
        }
        assert_eq!(render_duration(SignedDuration::from_secs(5405)), "1h30m5s");
        assert_eq!(render_duration(SignedDuration::from_secs(0)), "0s");
    }

    #[test]
    fn what_the_api_server_refuses_is_refused() {
        for text in ["", "1hr", "-5m", "FooNever", "5", "m", "1.5h", "never"] {
            assert!(text.parse::<Patience>().is_err(), "{text}");
        }
        assert!(matches!(parse_duration("99999999999999h"), Err(DurationError::TooLong(_))));
    }

    #[test]
    fn patience_keeps_its_text_and_compares_by_length() {
        let (hours, minutes): (Patience, Patience) = ("1h".parse().unwrap(), "60m".parse().unwrap());
        assert_eq!(hours, minutes);
        assert_eq!(minutes.to_string(), "60m");
    }
}
