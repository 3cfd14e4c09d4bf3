//! Secrets that are known by their shape alone, whatever they are called.

use std::ops::Range;

use super::Finding;
use super::value::{is_placeholder, is_random};

/// How the tokens of forges and of other services begin.
const TOKENS: [(&str, &str); 19] = [
    ("ghp_", "the token of a forge"),
    ("gho_", "the token of a forge"),
    ("ghu_", "the token of a forge"),
    ("ghs_", "the token of a forge"),
    ("ghr_", "the token of a forge"),
    ("github_pat_", "the token of a forge"),
    ("glpat-", "the token of a forge"),
    ("glrt-", "the token of a forge"),
    ("dckr_pat_", "the token of a registry"),
    ("npm_", "the token of a registry"),
    ("pypi-", "the token of a registry"),
    ("xoxb-", "the token of a chat"),
    ("xoxp-", "the token of a chat"),
    ("xapp-", "the token of a chat"),
    ("sk_live_", "a key of payments"),
    ("rk_live_", "a key of payments"),
    ("tskey-auth-", "a key of a network"),
    ("tskey-client-", "a key of a network"),
    ("sk-proj-", "a key of a model"),
];
/// Letters that a token has at least.
const TOKEN_MIN: usize = 20;

/// What is a secret by its shape alone, in the order of the text.
pub(super) fn credentials(text: &str) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        private_keys(text).into_iter().map(|key| Finding::new(key, "a private key")).collect();
    let mut line_start = 0;
    let mut was_named = false;
    for line in text.split_inclusive('\n') {
        let lower = line.to_ascii_lowercase();
        let is_named = lower.contains("secret_access_key") || lower.contains("secretaccesskey");
        of_words(line, line_start, is_named || was_named, &mut found);
        was_named = is_named;
        line_start += line.len();
    }
    web_tokens(text, &mut found);
    vault_tokens(text, &mut found);
    hooks(text, &mut found);
    addresses(text, &mut found);
    found.sort_by_key(|one| one.stretch.start);
    found
}

/// Whether forty letters and digits are a key of AWS, under the name of one.
pub(super) fn is_aws_secret_key(word: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'+');
    let is_digest = word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    word.len() == 40 && word.bytes().all(is_letter) && !is_digest && is_random(word)
}

/// `names_key` is whether a key of AWS is named beside them.
fn of_words(line: &str, line_start: usize, names_key: bool, found: &mut Vec<Finding>) {
    let is_apart = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '+'));
    let mut at = line_start;
    for word in line.split_inclusive(is_apart) {
        let start = at;
        at += word.len();
        let word = word.trim_end_matches(is_apart);
        if names_key && is_aws_secret_key(word) {
            found.push(Finding::new(start..start + word.len(), "an AWS secret key"));
        }
        // An address holds a token between its slashes.
        let mut at = start;
        for word in word.split_inclusive(['/', '+']) {
            let start = at;
            at += word.len();
            let word = word.trim_end_matches(['/', '+']);
            let is_upper = word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
            let is_key = word.len() == 20 && (word.starts_with("AKIA") || word.starts_with("ASIA"));
            let is_google = word.len() == 39 && word.starts_with("AIza") && is_random(word);
            let token = TOKENS.iter().find(|(prefix, _)| word.starts_with(prefix));
            let what = match token {
                _ if is_key && is_upper => "an AWS access key",
                _ if is_google => "a key of Google",
                Some((prefix, what)) if word.len() >= TOKEN_MIN && !is_placeholder(&word[prefix.len()..]) => {
                    what
                }
                _ => continue,
            };
            found.push(Finding::new(start..start + word.len(), what));
        }
    }
}

/// JSON Web Tokens: three parts in base 64, of which two begin as an object does.
fn web_tokens(text: &str, found: &mut Vec<Finding>) {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut at = 0;
    while let Some(start) = text[at..].find("eyJ").map(|start| at + start) {
        let rest = &text[start..];
        let word = &rest[..rest.find(|c| !is_inside(c)).unwrap_or(rest.len())];
        let word = word.trim_end_matches('.');
        at = start + word.len();
        let parts: Vec<&str> = word.split('.').collect();
        let is_token = parts.len() == 3 && parts[1].starts_with("eyJ") && parts.iter().all(|p| p.len() >= 10);
        if is_token && !text[..start].ends_with(is_inside) {
            found.push(Finding::new(start..at, "a JSON Web Token"));
        }
    }
}

/// `hvs.…`, the tokens of Vault.
fn vault_tokens(text: &str, found: &mut Vec<Finding>) {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    for (start, sign) in text.match_indices("hvs.") {
        let rest = &text[start + sign.len()..];
        let word = &rest[..rest.find(|c| !is_inside(c)).unwrap_or(rest.len())];
        let is_token = word.len() >= TOKEN_MIN && is_random(word) && !is_placeholder(word);
        if is_token && !text[..start].ends_with(|c| is_inside(c) || c == '.') {
            found.push(Finding::new(start..start + sign.len() + word.len(), "a token of Vault"));
        }
    }
}

/// The part of an address of Slack that lets everybody write: a team, an app, and a token behind them.
fn hooks(text: &str, found: &mut Vec<Finding>) {
    for (at, service) in text.match_indices("hooks.slack.com/services/") {
        let start = at + service.len();
        let rest = &text[start..];
        let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '/';
        let path = &rest[..rest.find(|c| !is_inside(c)).unwrap_or(rest.len())];
        let parts: Vec<&str> = path.split('/').collect();
        if let [team, app, token, ..] = parts.as_slice()
            && team.starts_with('T')
            && app.starts_with('B')
            && token.len() >= 16
            && !is_placeholder(token)
        {
            found.push(Finding::new(start..start + path.len(), "an address that writes to a chat"));
        }
    }
}

/// Addresses with a password, or with a token in the place of a name.
fn addresses(text: &str, found: &mut Vec<Finding>) {
    for (sign, _) in text.match_indices("://") {
        let start = sign + "://".len();
        let is_end =
            |c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'' | '`' | '?' | '#' | '\\' | ',');
        let authority = &text[start..];
        let authority = &authority[..authority.find(is_end).unwrap_or(authority.len())];
        let Some((user, host)) = authority.rsplit_once('@') else { continue };
        if host.starts_with("sha256:") {
            continue;
        }
        let secret = match user.split_once(':') {
            Some((name, password)) if !password.is_empty() && !is_placeholder(password) => {
                start + name.len() + 1..start + user.len()
            }
            None if is_random(user) && user.len() >= TOKEN_MIN && !is_placeholder(user) => {
                start..start + user.len()
            }
            _ => continue,
        };
        found.push(Finding::new(secret, "a password in an address"));
    }
}

/// From the first line of each to its last. One without an end hides all that follows.
fn private_keys(text: &str) -> Vec<Range<usize>> {
    let (begin, mark, end) = ("-----BEGIN ", "PRIVATE KEY", "-----END ");
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(begin).map(|start| at + start) {
        let head = start + begin.len();
        let rest = &text[head..];
        let is_key = rest.find("-----").is_some_and(|head| {
            let words = &rest[..head];
            words.strip_suffix(" BLOCK").unwrap_or(words).ends_with(mark)
        });
        if !is_key {
            at = head;
            continue;
        }
        let close = rest.find(end).map(|close| head + close + end.len());
        let stop = close.and_then(|close| text[close..].find("-----").map(|last| close + last + 5));
        at = stop.unwrap_or(text.len());
        found.push(start..at);
    }
    found
}
