//! What a value tells of itself: that chance made it, that somebody chose it, or that another one is to take its place.

use super::name::{self, says_secret};
use super::shape;

/// Nothing shorter is taken for a random secret.
const RANDOM_MIN: usize = 16;
/// Nothing shorter is taken for a password, even where one must stand.
const CHOSEN_MIN: usize = 6;
/// Longer rows of letters are no words.
const WORD_MAX: usize = 20;

/// Whether a value under this name is a secret.
pub(super) fn is_secret_under(name: &str, value: &str) -> bool {
    is_random_under(name, value) || is_password(value) && name::is_of_password(name) && says_secret(name)
}

/// Whether a value is a secret by its name, and because chance made it.
pub(super) fn is_random_under(name: &str, value: &str) -> bool {
    let value = without_scheme(name, value);
    if shape::is_aws_secret_key(value) && name::is_aws_secret_key(name) {
        return true;
    }
    let is_plain = value.len() >= RANDOM_MIN && value.bytes().all(|b| b.is_ascii_graphic());
    let is_address = value.starts_with(['/', '~']) || value.contains("://");
    is_plain
        && !is_address
        && is_random(value)
        && says_secret(name)
        && !is_placeholder(value)
        && (!refers(value) || name::is_of_password(name) && is_phrase(value))
        && !(name::is_of_encryption(name) && is_id_of_key(value))
}

/// Whether chance made it and nothing else says what it is.
pub(super) fn is_random_secret(value: &str) -> bool {
    value.len() >= RANDOM_MIN && is_random(value) && !is_placeholder(value) && !refers(value)
}

/// The value of a header without how it is meant: `Bearer …`.
fn without_scheme<'v>(name: &str, value: &'v str) -> &'v str {
    match value.split_once(' ') {
        Some((scheme, value)) if is_scheme(scheme) && says_secret(name) => value.trim_start(),
        _ => value,
    }
}

/// Whether the word before a credential in a header says how it is meant.
pub(super) fn is_scheme(word: &str) -> bool {
    ["basic", "bearer", "token"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Whether somebody chose this where only a secret can stand. It may be short; words of a sentence are none.
pub(super) fn is_chosen(value: &str) -> bool {
    let is_single = |b: u8| b.is_ascii_lowercase() || b == b'-' || b == b'_' || b == b'.';
    let has_digit = value.bytes().any(|b| b.is_ascii_digit());
    let has_sign = value.bytes().any(|b| b.is_ascii_punctuation() && !is_single(b));
    let has_letter = value.bytes().any(|b| b.is_ascii_alphabetic());
    let is_setting = ["id=", "src=", "type=", "env="].iter().any(|key| value.starts_with(key));
    value.len() >= CHOSEN_MIN
        && has_letter
        && (has_digit || has_sign)
        && !value.starts_with(['-', '/', '.', '~', '@'])
        && !value.contains("://")
        && !is_setting
        && !is_placeholder(value)
        && !refers(value)
}

/// `name:password`.
pub(super) fn is_login(text: &str) -> bool {
    text.split_once(':').is_some_and(|(_, password)| is_given(password))
}

/// Whether something stands where only a secret can, and nothing else is to take its place.
pub(super) fn is_given(value: &str) -> bool {
    !value.is_empty() && !is_placeholder(value)
}

/// Whether somebody chose this as a password, by its signs: what is put together of names and numbers may refer to one.
fn is_password(value: &str) -> bool {
    let has = |is: fn(&u8) -> bool| value.as_bytes().iter().any(is);
    let is_mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_digit);
    let is_one = !value.contains(['-', '_', '.']);
    let is_of_variable = value.starts_with('%') && value.ends_with('%');
    is_chosen(value)
        && value.bytes().all(|b| b.is_ascii_graphic())
        && !value.contains(['/', ':', '=', '(', ')', '[', ']', '{', '}', '<', '>', '|', '&', ';', ','])
        && (is_one || is_mixed || value.contains(['!', '#', '$', '%', '^', '+', '~']))
        && !is_of_variable
}

/// The identifier of a key of KMS: a UUID, or `mrk-` and as many digits.
fn is_id_of_key(value: &str) -> bool {
    let digits = value.strip_prefix("mrk-").unwrap_or(value).bytes().filter(|b| *b != b'-');
    value.contains('-') && digits.clone().count() == 32 && digits.clone().all(|b| b.is_ascii_hexdigit())
}

/// Whether another value is to take the place of this one, or nobody meant it to be kept.
pub(super) fn is_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let is_filler = |c: char| matches!(c, 'x' | '*' | '.' | '-' | '_' | '?' | '#' | '…');
    let is_between = |open: &str, close: &str| value.starts_with(open) && value.ends_with(close);
    let says_so = [
        "changeme",
        "change-me",
        "change_me",
        "placeholder",
        "redacted",
        "replaceme",
        "replace-me",
        "replace_me",
    ]
    .iter()
    .any(|words| lower.contains(words));
    has_variable(value)
        || lower.trim_matches(is_filler).is_empty()
        || is_between("<", ">")
        || is_between("{", "}")
        || is_between("__", "__")
        || value.starts_with("%(")
        || value.starts_with("ENC[")
        || says_so
}

/// `${A}`, `$(a)`, `{{ a }}`, `$A`: a value that is found out later.
fn has_variable(value: &str) -> bool {
    let is_variable = |at: usize| {
        let name = &value[at + 1..];
        let name =
            &name[..name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len())];
        let has_capital = name.bytes().any(|b| b.is_ascii_uppercase());
        let has_small = name.bytes().any(|b| b.is_ascii_lowercase());
        let is_apart = !value[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        // Passwords have a `$` in their middle, too.
        let is_one_case = !(has_capital && has_small) && (has_capital || is_apart);
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        is_name && (at == 0 || name.len() >= 2 && is_one_case)
    };
    ["${", "$(", "{{", "{%", "<%"].iter().any(|sign| value.contains(sign))
        || value.match_indices('$').any(|(at, _)| is_variable(at))
}

/// Whether a value is a digest, or a name of words with little else.
fn refers(value: &str) -> bool {
    let parts = value.split(['-', '.', '_', '/', ':', '@', '#']).filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.collect();
    let words = parts.iter().filter(|part| is_word(part)).count();
    let is_long = |part: &&str| part.len() >= RANDOM_MIN && !is_word(part) && is_random(part);
    let is_of_words = 2 * words > parts.len() && !parts.iter().any(is_long);
    is_of_words || value.starts_with("arn:") || value.contains("sha256:")
}

/// Words and no path: what people choose as a password when they mean it well.
fn is_phrase(value: &str) -> bool {
    value.split(['-', '_']).count() > 3
        && value.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'-' | b'_'))
}

/// `database`, `Main`, `ClusterAutoscaler`.
fn is_word(part: &str) -> bool {
    let capitals = part.bytes().skip(1).filter(u8::is_ascii_uppercase).count();
    let has_acronym = part.as_bytes().windows(2).any(|two| two.iter().all(u8::is_ascii_uppercase));
    let is_several = 4 * (capitals + 1) <= part.len() && !has_acronym;
    let is_word = if capitals == 0 { part.len() <= WORD_MAX } else { is_several };
    is_word && part.bytes().all(|b| b.is_ascii_alphabetic())
}

/// Whether its letters are as different from each other as chance makes them. Sixteen digits, as in a UUID, differ less.
pub(super) fn is_random(text: &str) -> bool {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b) || b == b'-';
    let is_hexadecimal = text.len() >= 32 && text.bytes().all(is_digit);
    bits_per_character(text) > if is_hexadecimal { 300 } else { 350 }
}

/// Shannon entropy in hundredths of a bit per character.
fn bits_per_character(text: &str) -> u32 {
    let mut counts = [0u32; 256];
    for byte in text.bytes() {
        counts[byte as usize] += 1;
    }
    let total = text.len() as u32;
    // The sum of c·log2(total/c)/total, with the logarithm in hundredths.
    let sum: u64 = counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| u64::from(*count) * u64::from(log2_hundredths(total, *count)))
        .sum();
    (sum / u64::from(total.max(1))) as u32
}

fn log2_hundredths(numerator: u32, denominator: u32) -> u32 {
    let (mut value, mut whole) = (u64::from(numerator) * 1_000_000 / u64::from(denominator), 0);
    while value >= 2_000_000 {
        value /= 2;
        whole += 100;
    }
    // Between powers of two a straight line is near enough for a threshold.
    whole + ((value - 1_000_000) / 10_000) as u32
}
