//! The small languages inside texts: durations, quantities, taints, names, cron. One place says what each looks like.

use std::time::Duration;

use crate::model::schedule::{self, MONTHS};
use crate::model::window::{self, Clock, Days};

/// Why a text is not of its form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// `a duration`, to follow "is not".
    pub expected: &'static str,
    pub example: &'static str,
    /// A better help than the example alone.
    pub help: Option<String>,
}

struct Form {
    name: &'static str,
    expected: &'static str,
    example: &'static str,
    matches: fn(&str) -> bool,
    hint: fn(&str) -> Option<String>,
}

const FORMS: [Form; 18] = [
    Form {
        name: "name",
        expected: "a name: lower-case letters, digits and hyphens, at most 63 characters",
        example: "\"general\"",
        matches: is_name,
        hint: name_hint,
    },
    Form {
        name: "duration",
        expected: "a duration",
        example: "\"30m\"",
        matches: |text| duration(text).is_some(),
        hint: duration_hint,
    },
    Form {
        name: "duration-or-never",
        expected: "a duration or `Never`",
        example: "\"720h\"",
        matches: |text| text == "Never" || duration(text).is_some(),
        hint: duration_hint,
    },
    Form {
        name: "wait",
        expected: "a duration or `never`",
        example: "\"30m\"",
        matches: |text| matches!(text, "never" | "Never") || duration(text).is_some(),
        hint: duration_hint,
    },
    Form {
        name: "percent",
        expected: "a percentage",
        example: "\"10%\"",
        matches: |text| text.strip_suffix('%').is_some_and(|digits| is_digits(digits) && digits.len() <= 2),
        hint: |_| None,
    },
    Form {
        name: "weekdays",
        expected: "a list of weekdays",
        example: "\"mon-fri\"",
        matches: |text| text.parse::<Days>().is_ok(),
        hint: |_| {
            Some("write the first three letters of each, such as \"mon-fri\" or \"sat,sun\"".to_owned())
        },
    },
    Form {
        name: "clock",
        expected: "a time of the day",
        example: "\"22:00\"",
        matches: |text| text.parse::<Clock>().is_ok(),
        hint: |_| Some("write hours and minutes, such as \"06:30\", up to \"24:00\"".to_owned()),
    },
    Form {
        name: "time-zone",
        expected: "a time zone of the IANA database",
        example: "\"Asia/Seoul\"",
        matches: |text| window::zone(text).is_some(),
        hint: |text| window::nearest_zone(text).map(|near| format!("did you mean \"{near}\"?")),
    },
    Form {
        name: "date-time",
        expected: "a moment",
        example: "\"2026-03-02T08:00:00Z\"",
        matches: |text| text.parse::<jiff::Timestamp>().is_ok(),
        hint: |_| None,
    },
    Form {
        name: "cron",
        expected: "a schedule of five cron fields",
        example: "\"0 9 * * mon-fri\"",
        matches: schedule::is_well_formed,
        hint: |_| None,
    },
    Form {
        name: "volume-size",
        expected: "a disk size",
        example: "\"100Gi\"",
        matches: |text| {
            let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
            is_digits(digits) && matches!(&text[digits.len()..], "G" | "T" | "Gi" | "Ti")
        },
        hint: quantity_hint,
    },
    Form {
        name: "quantity",
        expected: "a quantity",
        example: "\"4Gi\"",
        matches: is_quantity,
        hint: quantity_hint,
    },
    Form {
        name: "cpu-amount",
        expected: "an amount of CPU",
        example: "\"200\"",
        matches: |text| is_quantity(text) && matches!(suffix(text), "" | "m" | "k"),
        hint: |text| {
            let words = ["core", "cores", "cpu", "cpus", "vcpu", "vcpus"];
            let number = text.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
            let unit = text.trim()[number.len()..].trim().to_lowercase();
            (is_quantity(number) && suffix(number).is_empty() && words.contains(&unit.as_str()))
                .then(|| format!("write \"{number}\""))
                .or_else(|| Some(CPU_HELP.to_owned()))
        },
    },
    Form {
        name: "memory-amount",
        expected: "an amount of memory",
        example: "\"800Gi\"",
        matches: |text| {
            is_quantity(text) && suffix(text) != "m" && (!suffix(text).is_empty() || is_zero_or_large(text))
        },
        hint: |text| {
            match suffix(text) {
                "m" | "" => None,
                _ => quantity_hint(text),
            }
            .or_else(|| Some(MEMORY_HELP.to_owned()))
        },
    },
    Form {
        name: "count-amount",
        expected: "a count",
        example: "\"20\"",
        matches: |text| is_digits(text.strip_suffix('k').unwrap_or(text)),
        hint: |_| Some(COUNT_HELP.to_owned()),
    },
    Form {
        name: "nodes-or-percent",
        expected: "a number of nodes or a percentage up to 100%",
        example: "\"10%\"",
        matches: |text| match text.strip_suffix('%') {
            Some(percent) => is_digits(percent) && percent.parse::<u32>().is_ok_and(|percent| percent <= 100),
            None => is_digits(text),
        },
        hint: |_| None,
    },
    Form {
        name: "commit",
        expected: "a commit: its first seven hexadecimal digits or more",
        example: "\"3f2a9c1\"",
        matches: |text| (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        hint: |_| None,
    },
    Form {
        name: "taint",
        expected: "a taint",
        example: "\"dedicated=batch:NoSchedule\"",
        matches: |text| taint(text).is_some(),
        hint: taint_hint,
    },
];

const CPU_HELP: &str = "CPU is counted in cores: \"200\", or \"500m\" for half a core";
const MEMORY_HELP: &str = "memory is counted in bytes with a unit: \"800Gi\" or \"512Mi\"";
const COUNT_HELP: &str = "it is counted in whole numbers: \"20\"";

/// The form of amounts of a resource: `4Gi` is memory, and no number of cores or nodes. `None` for a resource of which
/// nothing is known.
pub(crate) fn amount_of(resource: &str) -> Option<&'static str> {
    match resource {
        "cpu" => Some("cpu-amount"),
        "memory" | "ephemeral-storage" => Some("memory-amount"),
        _ if resource.starts_with("hugepages-") => Some("memory-amount"),
        // Devices and the like, which Kubernetes counts in whole numbers only.
        "nodes" | "pods" => Some("count-amount"),
        _ if resource.contains('/') => Some("count-amount"),
        _ => None,
    }
}

fn suffix(text: &str) -> &str {
    &text[text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len()..]
}

/// Bytes without a unit are nothing at all, or at least a MiB; anything between lacks its unit.
fn is_zero_or_large(text: &str) -> bool {
    text.split('.')
        .next()
        .and_then(|whole| whole.parse::<u64>().ok())
        .is_none_or(|it| it == 0 || it >= 1 << 20)
}

/// What a form is called, such as `a duration`.
pub(crate) fn described(form: &str) -> Option<&'static str> {
    FORMS.iter().find(|known| known.name == form).map(|known| known.expected)
}

/// A text of a form, in quotes.
pub(crate) fn example_of(form: &str) -> &'static str {
    FORMS.iter().find(|known| known.name == form).map_or("\"…\"", |known| known.example)
}

/// Checks a text against a form; an unknown form takes everything.
pub(crate) fn check(form: &str, text: &str) -> Result<(), Wrong> {
    match FORMS.iter().find(|known| known.name == form) {
        Some(known) if !(known.matches)(text) => {
            Err(Wrong { expected: known.expected, example: known.example, help: (known.hint)(text) })
        }
        _ => Ok(()),
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A DNS label.
pub(crate) fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn name_hint(text: &str) -> Option<String> {
    let plain: String = text
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .collect();
    let plain: String = plain.trim_matches('-').chars().take(63).collect();
    is_name(&plain).then(|| format!("call it `{plain}`"))
}

/// `1h30m`: one or more groups of a number and `h`, `m` or `s`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let seconds = match rest.as_bytes()[digits] {
            b'h' => number.checked_mul(3600)?,
            b'm' => number.checked_mul(60)?,
            b's' => number,
            _ => return None,
        };
        total = total.checked_add(Duration::from_secs(seconds))?;
        rest = &rest[digits + 1..];
    }
    Some(total)
}

fn duration_hint(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    if !is_digits(digits) {
        return match text {
            "Never" => Some("this one cannot be `Never`: leave it out for no limit".to_owned()),
            _ => text.eq_ignore_ascii_case("never").then(|| "write `Never` with a capital N".to_owned()),
        };
    }
    let unit = text[digits.len()..].trim().to_lowercase();
    let count: u64 = digits.parse().ok()?;
    let meant = match unit.as_str() {
        "" => return Some(format!("say which unit: \"{count}s\", \"{count}m\" or \"{count}h\"")),
        "d" | "day" | "days" => format!("{}h", count.checked_mul(24)?),
        "w" | "week" | "weeks" => format!("{}h", count.checked_mul(168)?),
        "min" | "mins" | "minute" | "minutes" => format!("{count}m"),
        "hr" | "hrs" | "hour" | "hours" => format!("{count}h"),
        "sec" | "secs" | "second" | "seconds" => format!("{count}s"),
        _ => return None,
    };
    Some(format!("write \"{meant}\": the units are h, m and s"))
}

/// What Kubernetes calls a quantity, without a sign.
pub(crate) fn is_quantity(text: &str) -> bool {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_scaled = matches!(
        &text[number.len()..],
        "" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei"
    );
    is_digits(whole) && is_digits(fraction) && is_scaled
}

fn quantity_hint(text: &str) -> Option<String> {
    let number = text.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let unit = text.trim()[number.len()..].trim().to_lowercase();
    let scale = match unit.as_str() {
        "kb" | "kib" | "ki" => "Ki",
        "mb" | "mib" | "mi" | "m" => "Mi",
        "gb" | "gib" | "gi" | "g" => "Gi",
        "tb" | "tib" | "ti" | "t" => "Ti",
        _ => return None,
    };
    Some(format!("write \"{number}{scale}\""))
}

/// Whether a schedule that is written well still names no day that there is, such as the 31st of February.
pub(crate) fn never_starts(schedule: &str) -> bool {
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    let [_, _, day, month, weekday] = fields.as_slice() else { return false };
    // A restricted weekday is an alternative to the day of the month.
    if !schedule::is_well_formed(schedule) || !matches!(*weekday, "*" | "?") {
        return false;
    }
    let (days, months) = (values_of(day, 1, 31, &[]), values_of(month, 1, 12, &MONTHS));
    let last_day = |month: &u32| match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    !months.iter().any(|month| days.iter().any(|day| *day <= last_day(month)))
}

/// The numbers that a field of a schedule stands for.
fn values_of(field: &str, min: u32, max: u32, words: &[&str]) -> Vec<u32> {
    let number = |text: &str| {
        let word = words.iter().position(|word| text.eq_ignore_ascii_case(word)).map(|at| at as u32 + min);
        word.or_else(|| text.parse().ok())
    };
    let mut values = Vec::new();
    for part in field.split(',') {
        let (range, step) =
            part.split_once('/').map_or((part, None), |(range, step)| (range, step.parse().ok()));
        let ends = match range.split_once('-') {
            Some((from, to)) => number(from).zip(number(to)),
            None if matches!(range, "*" | "?") => Some((min, max)),
            None => number(range).map(|from| (from, if step.is_some() { max } else { from })),
        };
        let Some((from, to)) = ends else { continue };
        values.extend((from..=to).step_by(step.unwrap_or(1_usize).max(1)));
    }
    values
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// `key=value:Effect` or `key:Effect`.
pub(crate) fn taint(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let (key, value, effect) = parts_of_taint(text)?;
    (EFFECTS.contains(&effect) && !key.is_empty() && is_word_of_taint(key))
        .then_some((key, value, effect))
        .filter(|(_, value, _)| value.is_none_or(is_word_of_taint))
}

fn parts_of_taint(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let (name, effect) = text.rsplit_once(':')?;
    Some(match name.split_once('=') {
        Some((key, value)) => (key, Some(value), effect),
        None => (name, None, effect),
    })
}

fn is_word_of_taint(text: &str) -> bool {
    !text.contains(|c: char| matches!(c, '=' | ':') || c.is_whitespace())
}

/// What of a taint is wrong.
fn taint_hint(text: &str) -> Option<String> {
    let Some((key, value, effect)) = parts_of_taint(text) else {
        return is_word_of_taint(text.split('=').next()?)
            .then(|| format!("say what it does to pods: \"{text}:NoSchedule\""))
            .filter(|_| taint(&format!("{text}:NoSchedule")).is_some());
    };
    if !EFFECTS.contains(&effect) {
        let near = crate::model::near::nearest(effect, EFFECTS);
        return Some(match near {
            Some(near) => format!("did you mean the effect `{near}`?"),
            None => "the effects are `NoSchedule`, `PreferNoSchedule` and `NoExecute`".to_owned(),
        });
    }
    if key.is_empty() {
        return Some("name the key in front: \"dedicated=batch:NoSchedule\"".to_owned());
    }
    let (what, wrong) = match value {
        Some(value) if is_word_of_taint(key) => ("value", value),
        _ => ("key", key),
    };
    Some(format!("the {what} \"{}\" must do without spaces, `=` and `:`", wrong.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_unit_gets_the_right_one_proposed() {
        let help = |form: &str, text: &str| check(form, text).expect_err("it is wrong").help;
        assert_eq!(help("quantity", "4GB"), Some("write \"4Gi\"".to_owned()));
        assert_eq!(help("duration", "7d"), Some("write \"168h\": the units are h, m and s".to_owned()));
        assert_eq!(help("name", "GPU Pool"), Some("call it `gpu-pool`".to_owned()));
        assert_eq!(help("taint", "a=b:NoShedule"), Some("did you mean the effect `NoSchedule`?".to_owned()));
    }

    #[test]
    fn of_a_wrong_taint_the_wrong_part_is_named() {
        for (text, part) in [
            ("a=b c:NoSchedule", "the value \"b c\""),
            ("a=b=c:NoSchedule", "the value \"b=c\""),
            ("a b:NoSchedule", "the key \"a b\""),
            ("a b=c:NoExecute", "the key \"a b\""),
            (":NoSchedule", "name the key"),
            ("=b:NoSchedule", "name the key"),
            ("a=b:Schedule not", "the effects are"),
            ("gpu", "\"gpu:NoSchedule\""),
        ] {
            let help = check("taint", text).expect_err("it is wrong").help.expect("it has a help");
            assert!(help.contains(part), "{text}: {help}");
        }
    }

    #[test]
    fn a_day_that_no_month_has_never_starts() {
        for schedule in ["0 0 31 2 *", "0 0 30,31 feb *", "0 9 31 4,6,9,11 *", "0 0 31 4-6/2 ?"] {
            assert!(never_starts(schedule), "{schedule}");
        }
        for schedule in ["0 0 31 * *", "0 0 29 2 *", "0 0 31 2 mon", "0 0 */30 2 *", "0 0 31 3-4 *", "@daily"]
        {
            assert!(!never_starts(schedule), "{schedule}");
        }
    }

    #[test]
    fn the_forms_take_what_kubernetes_takes() {
        for (form, text) in [
            ("quantity", "1.5"),
            ("quantity", "250m"),
            ("duration-or-never", "Never"),
            ("duration", "1h30m5s"),
            ("cron", "*/5 0-6 1,15 jan mon-fri"),
            ("cron", "@daily"),
            ("nodes-or-percent", "100%"),
            ("taint", "nvidia.com/gpu:NoSchedule"),
            ("volume-size", "100Gi"),
            ("cpu-amount", "1500m"),
            ("cpu-amount", "1.5"),
            ("memory-amount", "0"),
            ("memory-amount", "800Gi"),
            ("memory-amount", "1099511627776"),
            ("count-amount", "20"),
        ] {
            assert_eq!(check(form, text), Ok(()), "{form} {text}");
        }
        for (form, text) in [
            ("quantity", "-1"),
            ("duration", "Never"),
            ("cron", "61 * * * *"),
            ("nodes-or-percent", "110%"),
            ("taint", "gpu"),
            ("volume-size", "100"),
            ("cpu-amount", "4Gi"),
            ("memory-amount", "500m"),
            ("memory-amount", "800"),
            ("count-amount", "3Gi"),
            ("count-amount", "10%"),
            ("name", "a".repeat(64).leak()),
        ] {
            assert!(check(form, text).is_err(), "{form} {text}");
        }
    }
}
