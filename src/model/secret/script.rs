//! Where texts that people write for a shell, a program or a cluster give a secret to something: by a name, to a flag, in a
//! header.

use std::ops::Range;

use super::name::says_secret;
use super::value::{is_chosen, is_login, is_random_secret, is_scheme, is_secret_under};
use super::{command, encoded, login};

/// No value is longer than this.
pub(super) const LONGEST: usize = 4096;
/// A value inside of another one is looked at as far as this: many may begin in one.
const LONGEST_INSIDE: usize = 64;

pub(super) fn given(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    assigned(text, &mut found);
    flags(text, &mut found);
    headers(text, &mut found);
    command::given(text, &mut found);
    login::given(text, &mut found);
    found
}

/// The name of a flag that takes a secret from what stands behind it.
pub(super) fn flag(text: &str) -> Option<&str> {
    let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-').filter(|name| name.len() > 3))?;
    (name.chars().all(is_name) && says_secret(name)).then_some(name)
}

/// Whether a flag of this name is given a secret.
pub(super) fn is_secret_of_flag(name: &str, value: &str) -> bool {
    is_chosen(value) || is_secret_under(name, value)
}

pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')
}

/// One `NAME=value` or `name: value`.
struct Entry<'t> {
    name: &'t str,
    /// What is behind its sign.
    behind: usize,
    begins_item: bool,
}

/// Names that say secret with their values, and pairs of a name and a value, such as the variables of a container.
fn assigned(text: &str, found: &mut Vec<Range<usize>>) {
    // What an entry before gave: a name that waits for its value, or a value that waits for its name.
    let (mut name, mut value) = (None, None);
    let mut words = Words::default();
    for entry in entries(text) {
        let behind = match entry.name {
            "" => 0..0,
            _ => value_of(text, entry.behind, &mut words),
        };
        let written = &text[behind.clone()];
        if entry.begins_item {
            (name, value) = (None, None);
        }
        match entry.name {
            "name" | "key" => match value.take() {
                Some(value) => found.extend(named(text, written, value)),
                None => name = Some(written),
            },
            "value" | "values" => match name.take() {
                Some(name) => found.extend(named(text, name, behind)),
                None => value = Some(behind),
            },
            own => {
                (name, value) = (None, None);
                found.extend(named(text, own, behind));
            }
        }
    }
}

fn named(text: &str, name: &str, value: Range<usize>) -> Option<Range<usize>> {
    is_secret_under(name, &text[value.clone()]).then_some(value)
}

/// Every entry of a text, in order. Those of no interest have no name: they part others.
fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    let mut line_start = 0;
    text.split_inclusive('\n').flat_map(move |line| {
        let start = line_start;
        line_start += line.len();
        let is_comment = line.trim_start().starts_with('#');
        line.match_indices(['=', ':']).filter_map(move |(sign, letter)| {
            let before = line[..sign].trim_end_matches([' ', '"', '\'', '\\']);
            let name = &before[before.trim_end_matches(is_name).len()..];
            let behind = &line[sign + 1..];
            let is_sign =
                letter == "=" || behind.is_empty() || behind.starts_with([' ', '"', '\'', '\r', '\n']);
            if !is_sign {
                return None;
            }
            if !matches!(name, "name" | "key" | "value" | "values") && !says_secret(name) {
                return (!is_comment).then_some(Entry { name: "", behind: 0, begins_item: false });
            }
            let begin = before[..before.len() - name.len()].trim_end_matches([' ', '"', '\'']);
            let begins_item = begin.ends_with(['-', '{']);
            Some(Entry { name, behind: start + sign + 1, begins_item })
        })
    })
}

/// Where the value behind a sign begins; that may be in the next line.
fn value_start(text: &str, behind: usize) -> usize {
    let rest = &text[behind..];
    let gap = |c: char| matches!(c, ' ' | '\t' | '\r');
    let block = rest.trim_start_matches(gap);
    let block = match block.strip_prefix(['|', '>']) {
        Some(block) => block.strip_prefix(['-', '+']).unwrap_or(block).trim_start_matches(gap),
        None => block,
    };
    let next = block.strip_prefix('\n');
    let content = next.unwrap_or(rest).trim_start_matches([' ', '\t', '[']);
    let content = if next.is_some() { content.strip_prefix("- ").unwrap_or(content) } else { content };
    text.len() - content.len()
}

/// The value behind a sign. The next line may begin a table of its own.
fn value_of(text: &str, behind: usize, words: &mut Words) -> Range<usize> {
    let value = words.next(text, value_start(text, behind));
    let is_name = text[value.clone()].ends_with(':') || text[value.end..].starts_with(':');
    if is_name && text[behind..value.start].contains('\n') { value.start..value.start } else { value }
}

/// Words of one text, each looked at in full, except for those inside of others.
#[derive(Default)]
pub(super) struct Words {
    /// Where all that was looked at ends.
    end: usize,
}

impl Words {
    pub(super) fn next(&mut self, text: &str, at: usize) -> Range<usize> {
        let word = word(text, at, if at < self.end { LONGEST_INSIDE } else { LONGEST });
        self.end = self.end.max(word.end);
        word
    }
}

/// One word from here on: to the end of the quotes that it stands in, or to whatever ends a bare one.
fn word(text: &str, at: usize, longest: usize) -> Range<usize> {
    let content = text[at..].trim_start_matches(['"', '\'', '\\']);
    let start = text.len() - content.len();
    let content = &text[start..text.floor_char_boundary((start + longest).min(text.len()))];
    let quote = text[at..start].chars().next_back().filter(|quote| *quote != '\\');
    let is_escaped = text[at..start].contains('\\');
    let is_end = |c: char| match quote {
        Some(quote) => c == quote || c == '\n' || is_escaped && c == '\\',
        None => {
            c.is_whitespace()
                || matches!(c, '"' | '\'' | '`' | ';' | ')' | ']' | '}' | '|' | '&' | ',' | '\\')
        }
    };
    let length = content.find(is_end).unwrap_or(content.len());
    start..start + length
}

/// What flags are given that take a secret: `--token X`, `--password=X`, `["--token", "X"]`.
fn flags(text: &str, found: &mut Vec<Range<usize>>) {
    let mut words = Words::default();
    for (at, _) in text.match_indices('-') {
        let is_apart = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '[' | '(' | ',' | '`' | '=');
        if !(at == 0 || text[..at].ends_with(is_apart)) {
            continue;
        }
        let rest = &text[at..];
        let length = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let Some(name) = flag(&rest[..length]) else { continue };
        let behind = at + length;
        let start = match text[behind..].starts_with('=') {
            true => Some(behind + 1),
            false => next_word(text, behind),
        };
        let value = start.map(|start| words.next(text, start));
        found.extend(value.filter(|value| is_secret_of_flag(name, &text[value.clone()])));
    }
}

/// Where the next word of a command or of a list begins: behind the gap, whose end belongs to it if that is a quote.
pub(super) fn next_word(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let content = rest.trim_start_matches([' ', '\t', '"', '\'', ',', '\\', '\r', '\n']);
    let gap = &rest[..rest.len() - content.len()];
    let is_item = content.starts_with("- ");
    // A line ends a command, unless it says that it goes on, and no item of a list.
    let goes_on = is_item || gap.contains(',') || gap.contains("\\\n") || gap.contains("\\\r\n");
    if gap.is_empty() || gap.contains('\n') && !goes_on {
        return None;
    }
    if is_item {
        return Some(at + gap.len() + 2);
    }
    // The quote before the word is its own, the one behind the flag is not.
    let is_own = gap.len() > 1 && gap.ends_with(['"', '\'']);
    Some(at + gap.len() - usize::from(is_own))
}

/// `Authorization: Bearer X`, and `Bearer X` of what chance made.
fn headers(text: &str, found: &mut Vec<Range<usize>>) {
    let lower = text.to_ascii_lowercase();
    for (at, header) in lower.match_indices("authorization") {
        let behind = &text[at + header.len()..];
        let sign = behind.trim_start_matches([' ', '"', '\'', '\\']);
        let Some(rest) = sign.strip_prefix([':', '=']) else { continue };
        let scheme = rest.trim_start_matches([' ', '"', '\'', '\\']);
        let word = &scheme[..scheme.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(scheme.len())];
        if !is_scheme(word) || !scheme[word.len()..].starts_with(' ') {
            continue;
        }
        let value = credential_at(text, text.len() - scheme.len() + word.len());
        let written = &text[value.clone()];
        let is_login = word.eq_ignore_ascii_case("basic")
            && encoded::login(written).is_some_and(|login| is_login(&login));
        if is_login || is_chosen(written) || is_random_secret(written) {
            found.push(value);
        }
    }
    for (at, word) in lower.match_indices("bearer ") {
        let value = credential_at(text, at + word.len());
        if is_random_secret(&text[value.clone()]) {
            found.push(value);
        }
    }
}

/// What a header holds behind its scheme.
fn credential_at(text: &str, at: usize) -> Range<usize> {
    let rest = &text[at..];
    let content = rest.trim_start_matches(' ');
    let start = at + rest.len() - content.len();
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '\\' | ',' | ';');
    start..start + content.find(is_end).unwrap_or(content.len())
}
