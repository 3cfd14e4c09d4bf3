//! How much of anything a source accepts, and how a person writes another limit.

use std::time::Duration;

use thiserror::Error;

/// How much of anything is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files considered, and directories looked into.
    pub files: usize,
    /// A larger file is left out and named; only what needs it fails.
    pub file_bytes: u64,
    pub total_bytes: u64,
    /// What one fetch may download.
    pub pack_bytes: u64,
    /// What the cache of one repository may hold; it is started anew above that.
    pub store_bytes: u64,
    /// What a server may list as references.
    pub reference_bytes: u64,
    pub connect_timeout: Duration,
    pub list_timeout: Duration,
    pub fetch_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            files: 5_000,
            file_bytes: 1 << 20,
            total_bytes: 10 << 20,
            pack_bytes: 256 << 20,
            store_bytes: 1 << 30,
            reference_bytes: 16 << 20,
            connect_timeout: Duration::from_secs(10),
            list_timeout: Duration::from_secs(15),
            fetch_timeout: Duration::from_secs(60),
        }
    }
}

const NAMES: [&str; 9] = [
    "files",
    "file_bytes",
    "total_bytes",
    "pack_bytes",
    "store_bytes",
    "reference_bytes",
    "connect_timeout",
    "list_timeout",
    "fetch_timeout",
];

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LimitError {
    #[error("`{text}` is not `NAME=VALUE`")]
    NoValue { text: String },
    #[error("there is no limit `{name}`")]
    UnknownName { name: String },
    #[error("`{value}` is not {expected} (limit `{name}`)")]
    BadValue { name: String, value: String, expected: &'static str },
}

impl LimitError {
    pub fn help(&self) -> String {
        match self {
            Self::NoValue { .. } => "Write it like `files=10000`.".into(),
            Self::UnknownName { .. } => format!("The limits are {}.", NAMES.join(", ")),
            Self::BadValue { .. } => "Write `10000`, `20MiB` or `2m`.".into(),
        }
    }
}

impl Limits {
    /// Takes one limit as a person writes it: `files=10000`, `total_bytes=20MiB`, `fetch_timeout=2m`.
    pub fn set(&mut self, assignment: &str) -> Result<(), LimitError> {
        let Some((name, value)) = assignment.split_once('=') else {
            return Err(LimitError::NoValue { text: assignment.into() });
        };
        let (name, value) = (name.trim(), value.trim());
        let bad = |expected| LimitError::BadValue { name: name.into(), value: value.into(), expected };
        let bytes = || parse_bytes(value).ok_or(bad("a number of bytes above zero"));
        let time = || parse_time(value).ok_or(bad("a duration of at least one second"));
        match name {
            "files" => {
                let count = value.parse().ok().filter(|count| *count > 0);
                self.files = count.ok_or(bad("a count above zero"))?;
            }
            "file_bytes" => self.file_bytes = bytes()?,
            "total_bytes" => self.total_bytes = bytes()?,
            "pack_bytes" => self.pack_bytes = bytes()?,
            "store_bytes" => self.store_bytes = bytes()?,
            "reference_bytes" => self.reference_bytes = bytes()?,
            "connect_timeout" => self.connect_timeout = time()?,
            "list_timeout" => self.list_timeout = time()?,
            "fetch_timeout" => self.fetch_timeout = time()?,
            _ => return Err(LimitError::UnknownName { name: name.into() }),
        }
        Ok(())
    }
}

fn parse_bytes(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let scale = match unit {
        "" | "B" => 1,
        "KiB" | "Ki" => 1 << 10,
        "MiB" | "Mi" => 1 << 20,
        "GiB" | "Gi" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale).filter(|bytes| *bytes > 0)
}

fn parse_time(text: &str) -> Option<Duration> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let scale = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    let seconds = digits.parse::<u64>().ok()?.checked_mul(scale)?;
    (1..=86_400).contains(&seconds).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_like_quantities() {
        let mut limits = Limits::default();
        for assignment in
            ["files=10000", "total_bytes = 20MiB", "pack_bytes=1Gi", "fetch_timeout=2m", "list_timeout=30"]
        {
            limits.set(assignment).expect(assignment);
        }
        assert_eq!((limits.files, limits.total_bytes, limits.pack_bytes), (10_000, 20 << 20, 1 << 30));
        assert_eq!(limits.fetch_timeout, Duration::from_secs(120));
        assert_eq!(limits.list_timeout, Duration::from_secs(30));
    }

    #[test]
    fn wrong_limits_are_named() {
        for (assignment, message) in [
            ("files", "`files` is not `NAME=VALUE`"),
            ("filez=1", "there is no limit `filez`"),
            ("files=0", "`0` is not a count above zero (limit `files`)"),
            (
                "pack_bytes=99999999999GiB",
                "`99999999999GiB` is not a number of bytes above zero (limit `pack_bytes`)",
            ),
            ("fetch_timeout=1d", "`1d` is not a duration of at least one second (limit `fetch_timeout`)"),
        ] {
            let error = Limits::default().set(assignment).expect_err(assignment);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn every_limit_can_be_set() {
        for name in NAMES {
            let mut limits = Limits::default();
            limits.set(&format!("{name}=7")).expect(name);
            assert_ne!(limits, Limits::default(), "{name}");
        }
    }
}
