//! Ranges of versions, as people write them for tags.
//!
//! The syntax is what Helm and Flux users know: `1.x`, `~1.2`, `>=1.0 <2.0`, `a || b`; a bare `1.2.3` means exactly that
//! version. A pre-release is in a range only if the range names a pre-release; then plain order decides.

use std::fmt;

use semver::{Comparator, Op, Prerelease, Version, VersionReq};

use super::ReferenceError;

/// Alternatives of comparisons that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRange {
    text: String,
    alternatives: Vec<VersionReq>,
}

impl VersionRange {
    pub(crate) fn parse(text: &str) -> Result<Self, ReferenceError> {
        let alternatives = text
            .split("||")
            .map(|alternative| {
                let spelled = spelled_for_parser(alternative);
                VersionReq::parse(&spelled)
                    .map_err(|why| ReferenceError::InvalidRange { text: text.into(), why: why.to_string() })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { text: text.trim().into(), alternatives })
    }

    pub(crate) fn contains(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|range| {
            let names_prerelease = range.comparators.iter().any(|comparator| !comparator.pre.is_empty());
            match version.pre.is_empty() {
                true => range.matches(version),
                false => {
                    names_prerelease
                        && range.comparators.iter().all(|comparator| is_in_order(comparator, version))
                }
            }
        })
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Puts commas between comparisons, joins an operator with its version, and makes a bare version exact.
fn spelled_for_parser(text: &str) -> String {
    let mut comparisons: Vec<String> = Vec::new();
    let mut operator = String::new();
    for word in text.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
        if word.bytes().all(|byte| b"<>=~^".contains(&byte)) {
            operator.push_str(word);
            continue;
        }
        let comparison = format!("{}{word}", std::mem::take(&mut operator));
        let digits = comparison.trim_start_matches(['<', '>', '=', '~', '^']);
        let version = digits.strip_prefix('v').unwrap_or(digits);
        let given = &comparison[..comparison.len() - digits.len()];
        let has_wildcard =
            version.split(['-', '+']).next().is_some_and(|core| core.contains(['x', 'X', '*']));
        let spelled = if given.is_empty() && !has_wildcard { "=" } else { given };
        comparisons.push(format!("{spelled}{version}"));
    }
    comparisons.push(operator);
    comparisons.retain(|comparison| !comparison.is_empty());
    match comparisons.is_empty() {
        // Refused by the parser, in its words; everything is spelled `*`.
        true => text.trim().into(),
        false => comparisons.join(", "),
    }
}

/// Plain order, for pre-releases: below the next release counts as outside of what ends there.
fn is_in_order(comparator: &Comparator, version: &Version) -> bool {
    let Comparator { major, minor, patch, pre, .. } = comparator;
    let major = *major;
    let exact = Version { pre: pre.clone(), ..Version::new(major, minor.unwrap_or(0), patch.unwrap_or(0)) };
    // The first version above everything that the written parts name.
    let above = match (minor, patch) {
        (None, _) => first_of(major.saturating_add(1), 0, 0),
        (Some(minor), None) => first_of(major, minor.saturating_add(1), 0),
        (Some(minor), Some(patch)) => first_of(major, *minor, patch.saturating_add(1)),
    };
    let is_full = minor.is_some() && patch.is_some();
    match comparator.op {
        Op::Exact | Op::Wildcard if is_full => version == &exact,
        Op::Exact | Op::Wildcard => *version >= exact && *version < above,
        Op::Greater if is_full => *version > exact,
        Op::Greater => *version >= above,
        Op::GreaterEq => *version >= exact,
        Op::Less if pre.is_empty() => *version < first_of(major, minor.unwrap_or(0), patch.unwrap_or(0)),
        Op::Less => *version < exact,
        Op::LessEq if is_full => *version <= exact,
        Op::LessEq => *version < above,
        Op::Tilde => *version >= exact && *version < first_of_next(major, *minor),
        Op::Caret => {
            let end = match (major, minor.unwrap_or(0), *patch) {
                (0, 0, Some(patch)) if minor.is_some() => first_of(0, 0, patch.saturating_add(1)),
                (0, minor_number, _) if minor.is_some() => first_of(0, minor_number.saturating_add(1), 0),
                _ => first_of(major.saturating_add(1), 0, 0),
            };
            *version >= exact && *version < end
        }
        _ => false,
    }
}

fn first_of_next(major: u64, minor: Option<u64>) -> Version {
    match minor {
        Some(minor) => first_of(major, minor.saturating_add(1), 0),
        None => first_of(major.saturating_add(1), 0, 0),
    }
}

/// The lowest pre-release of a version: `1.2.3-0`.
fn first_of(major: u64, minor: u64, patch: u64) -> Version {
    Version { pre: Prerelease::new("0").expect("0 is a pre-release"), ..Version::new(major, minor, patch) }
}

/// Reads a tag: an optional `v`, and missing parts count as zero (`v1.2` is 1.2.0).
pub(super) fn parse_tag(text: &str) -> Option<Version> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let core_end = text.find(['-', '+']).unwrap_or(text.len());
    let (core, rest) = text.split_at(core_end);
    let padding = match core.split('.').count() {
        1 => ".0.0",
        2 => ".0",
        _ => "",
    };
    Version::parse(&format!("{core}{padding}{rest}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(range: &str, version: &str) -> bool {
        let range = VersionRange::parse(range).expect(range);
        range.contains(&parse_tag(version).expect(version))
    }

    #[test]
    fn ranges_mean_what_people_expect_of_tags() {
        for (range, inside, outside) in [
            ("1.x", "v1.9.0", "2.0.0"),
            ("1.2", "1.2.9", "1.3.0"),
            ("1.2.3", "1.2.3", "1.2.4"),
            ("v1.2.3", "v1.2.3", "v1.2.4"),
            (">=1.0.0 <2.0.0", "1.5.0", "2.0.0"),
            (">= 1.0, < 2", "1.5", "2.0.0"),
            ("^1.4", "1.9", "1.3"),
            ("~1.4", "1.4.7", "1.5"),
            ("1.x || 3.x", "3.1.0", "2.0.0"),
            ("*", "7.0.0", "7.0.0-rc.1"),
            (">=1.0.0-0", "2.0.0-rc.1", "0.9.0"),
            ("^1.0.0-0", "1.1.0-rc.1", "2.0.0-rc.1"),
            ("<2.0.0, >1.0.0-0", "1.9.9-rc.1", "2.0.0-rc.1"),
            ("~1.2.0-0", "1.2.5-a", "1.3.0-a"),
        ] {
            assert!(contains(range, inside), "{range} has {inside}");
            assert!(!contains(range, outside), "{range} has not {outside}");
        }
    }

    #[test]
    fn a_bad_range_says_why() {
        for text in ["", "latest", ">=", "1.2.3.4", "|| 1.x"] {
            let error = VersionRange::parse(text).expect_err(text);
            assert!(matches!(error, ReferenceError::InvalidRange { .. }), "{text}: {error}");
        }
    }
}
