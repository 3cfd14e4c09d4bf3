//! Secrets do not belong into a repository. What looks like one is refused, and never repeated.

use std::sync::Arc;

use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::tree::{Node, Tree};

/// Looks through every text of a tree.
pub(crate) fn check(node: &Node, found: &mut Vec<Diagnostic>) {
    check_named(node, "", found);
}

fn check_named(node: &Node, key: &str, found: &mut Vec<Diagnostic>) {
    match &node.value {
        Tree::Map(map) => map.iter().for_each(|(key, entry)| check_named(&entry.node, key, found)),
        Tree::List(items) => items.iter().for_each(|item| check_named(item, key, found)),
        Tree::Text(text, _) => {
            if let Some(what) = credential(text).or_else(|| named_secret(key, text)) {
                found.push(refusal(what, node.place.clone()));
            }
        }
        _ => {}
    }
}

/// Looks through a whole file, such as user data.
pub(crate) fn check_text(source: &Arc<Source>, found: &mut Vec<Diagnostic>) {
    let mut at = 0;
    for line in source.text.split_inclusive('\n') {
        if let Some(what) = credential(line) {
            let start = at + line.len() - line.trim_start().len();
            found.push(refusal(what, Place::new(source, start..at + line.trim_end().len())));
        }
        at += line.len();
    }
}

fn refusal(what: &str, place: Place) -> Diagnostic {
    // The excerpt of a diagnostic shows the line, so the place points into a copy without it.
    let (line, column) = place.position();
    let blank = format!("{}{}***", "\n".repeat(line as usize - 1), " ".repeat(column as usize - 1));
    let start = blank.len() - 3;
    let redacted = Source::new(place.file().clone(), blank);
    Diagnostic::error(
        "PRV1609",
        Place::new(&redacted, start..start + 3),
        format!("this looks like {what} (value hidden)"),
    )
    .help("revoke it, keep it in a Secret or a parameter store, and name that here")
}

fn credential(text: &str) -> Option<&'static str> {
    if text.contains("-----BEGIN ") && text.contains("PRIVATE KEY-----") {
        return Some("a private key");
    }
    let lower = text.to_lowercase();
    let names_secret = lower.contains("secret_access_key") || lower.contains("secretaccesskey");
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '+'))) {
        let is_upper = |word: &str| word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
        if word.len() == 20 && (word.starts_with("AKIA") || word.starts_with("ASIA")) && is_upper(word) {
            return Some("an AWS access key");
        }
        if names_secret && word.len() == 40 && bits_per_character(word) > 350 {
            return Some("an AWS secret key");
        }
        let forge = ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"];
        if word.len() >= 20 && forge.iter().any(|prefix| word.starts_with(prefix)) {
            return Some("the token of a forge");
        }
    }
    None
}

/// A random-looking value under a name that says secret.
fn named_secret(key: &str, text: &str) -> Option<&'static str> {
    let key = key.to_lowercase();
    let is_secret =
        ["secret", "password", "passwd", "token", "private-key", "private_key", "api-key", "api_key"]
            .iter()
            .any(|word| key.contains(word));
    let is_plain = text.len() >= 16 && text.bytes().all(|b| b.is_ascii_graphic()) && !text.contains("${");
    let is_reference = text.starts_with('/') || text.starts_with("arn:") || text.contains("://");
    (is_secret && is_plain && !is_reference && bits_per_character(text) > 350).then_some("a secret")
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
    (sum / u64::from(total)) as u32
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_shapes_are_recognised() {
        assert_eq!(credential("id AKIAIOSFODNN7EXAMPLE"), Some("an AWS access key"));
        assert_eq!(credential("-----BEGIN RSA PRIVATE KEY-----"), Some("a private key"));
        assert_eq!(credential("t=ghp_0123456789abcdefghij"), Some("the token of a forge"));
        assert_eq!(credential("kubeadm join ${CLUSTER_ENDPOINT}"), None);
        assert_eq!(
            credential("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            Some("an AWS secret key")
        );
        assert_eq!(named_secret("db-password", "wJalrXUtnFEMIxK7MDENGxbPxRfiCYzz"), Some("a secret"));
        assert_eq!(named_secret("token-parameter", "/shop/join-token"), None);
    }
}
