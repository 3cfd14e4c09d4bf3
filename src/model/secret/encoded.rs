//! Texts in base 64: what is in them is searched like any other text, once.

use std::ops::Range;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Nothing shorter holds a secret.
const SHORTEST: usize = 24;
/// Far more than the user data of a machine has; what is longer is no text for one.
const LONGEST: usize = 256 * 1024;
/// A line of at least this length may go on in the next one.
const LINE_MIN: usize = 40;

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Where texts are written in base 64, and what they say.
pub(super) fn texts(text: &str) -> Vec<(Range<usize>, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(is_letter).map(|start| at + start) {
        let (end, letters) = run(text, start);
        at = end;
        if (SHORTEST..=LONGEST).contains(&letters.len())
            && let Some(plain) = decoded(&letters)
        {
            found.push((start..end, plain));
        }
    }
    found
}

/// The name and the password of a header.
pub(super) fn login(value: &str) -> Option<String> {
    decoded(value).filter(|login| login.contains(':'))
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/')
}

/// The end of what is one text in base 64, be it on several lines, and its letters.
fn run(text: &str, start: usize) -> (usize, String) {
    let mut letters = String::new();
    let mut at = start;
    loop {
        let rest = &text[at..];
        let length = rest.find(|c| !is_letter(c)).unwrap_or(rest.len());
        letters.push_str(&rest[..length]);
        at += length;
        let behind = &rest[length..];
        if behind.starts_with('=') {
            return (at + behind.len() - behind.trim_start_matches('=').len(), letters);
        }
        let next = behind.strip_prefix("\r\n").or_else(|| behind.strip_prefix('\n')).unwrap_or_default();
        let line = next.lines().next().unwrap_or_default();
        let content = line.trim();
        let goes_on =
            length >= LINE_MIN && !content.is_empty() && content.chars().all(|c| is_letter(c) || c == '=');
        if !goes_on {
            return (at, letters);
        }
        at = text.len() - next.len() + line.len() - line.trim_start().len();
    }
}

fn decoded(letters: &str) -> Option<String> {
    let plain = String::from_utf8(ENGINE.decode(letters).ok()?).ok()?;
    let is_text = plain.chars().all(|c| !c.is_control() || c.is_ascii_whitespace());
    is_text.then_some(plain)
}
