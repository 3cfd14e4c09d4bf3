//! What looks like a secret, and how it is hidden from everybody who reads what we say.
//!
//! Secrets that somebody left in a file must not travel on into terminals, logs and comments. Recognising them in a text that
//! need not even parse is guesswork, and the guess is generous: what is hidden by mistake costs a look into the file.

mod command;
mod encoded;
mod login;
mod name;
mod script;
mod shape;
mod value;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

/// What stands for a secret inside of a sentence.
const HIDDEN: &str = "***";
/// Bytes from its beginning by which a secret is known again, even if a sentence quotes it cut off.
const KNOWN_BY: usize = 12;
/// Names of secrets in one line whose value may be all that is left of it.
const RESTS_MAX: usize = 16;

/// A secret in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub stretch: Range<usize>,
    pub what: What,
}

/// What a secret is, as a noun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct What {
    noun: &'static str,
    is_encoded: bool,
}

impl What {
    /// One that only its name tells of.
    pub const NAMED: Self = Self { noun: "a secret", is_encoded: false };
}

impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encoded = if self.is_encoded { " in base 64" } else { "" };
        write!(out, "{}{encoded}", self.noun)
    }
}

impl Finding {
    fn new(stretch: Range<usize>, noun: &'static str) -> Self {
        Self { stretch, what: What { noun, is_encoded: false } }
    }
}

/// The first thing in a text that is a secret by its shape alone.
pub(crate) fn credential(text: &str) -> Option<What> {
    shape::credentials(text).into_iter().map(|one| one.what).next()
}

/// The first secret in a value, and where it is: by its shape, by the name of the value, or by one that the value gives
/// itself, as scripts do.
pub(crate) fn secret_in(name: &str, value: &str) -> Option<Finding> {
    let named = || {
        let is_secret = |line: &str| match name.starts_with('-').then(|| script::flag(name)).flatten() {
            Some(flag) => script::is_secret_of_flag(flag, line),
            None => value::is_secret_under(name, line),
        };
        value
            .lines()
            .any(|line| is_secret(line.trim()))
            .then_some(Finding { stretch: 0..value.len(), what: What::NAMED })
    };
    searched(value).into_iter().next().or_else(named)
}

/// Whether a name says that its value is secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    name::says_secret(name)
}

/// Whether a word is a flag whose secret is the next word.
pub(crate) fn is_secret_flag(word: &str) -> bool {
    script::flag(word).is_some()
}

/// What is a secret in a text of any kind, in order and apart from each other; base 64 in it is read once.
fn searched(text: &str) -> Vec<Finding> {
    let mut found = plain(text);
    for (stretch, plain_text) in encoded::texts(text) {
        if let Some(one) = plain(&plain_text).into_iter().next() {
            found.push(Finding { stretch, what: What { is_encoded: true, ..one.what } });
        }
    }
    apart(found)
}

fn plain(text: &str) -> Vec<Finding> {
    let mut found = shape::credentials(text);
    found.extend(script::given(text).into_iter().map(|stretch| Finding { stretch, what: What::NAMED }));
    apart(found)
}

/// Of those that overlap the first, which is the one that says most.
fn apart(mut found: Vec<Finding>) -> Vec<Finding> {
    found.sort_by_key(|one| one.stretch.start);
    let mut end = 0;
    found.retain(|one| {
        let is_apart = one.stretch.start >= end;
        end = end.max(one.stretch.end);
        is_apart
    });
    found
}

/// A sentence without the secrets that are known by their shape.
pub(crate) fn masked(words: &str) -> Cow<'_, str> {
    replaced(words, shape::credentials(words).into_iter().map(|one| one.stretch))
}

/// The secrets of one text, to be hidden in it and in what is said of it.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    /// Those that are none by mistake.
    findings: Vec<Finding>,
    /// Where all are, in order and apart from each other.
    stretches: Vec<Range<usize>>,
    /// Those of them that are one line, and the lines of the others, in the order of their letters.
    sorted: Vec<Range<usize>>,
    /// The same as [`folded`] leaves them, in order.
    folded: Vec<String>,
}

impl Secrets {
    pub fn of(text: &str) -> Self {
        let findings = searched(text);
        let mut all: Vec<Range<usize>> = findings.iter().map(|one| one.stretch.clone()).collect();
        all.extend(shape::credentials(text).into_iter().map(|one| one.stretch));
        Named { text, key: "", rests: 0, open: [0..0, 0..0], found: &mut all }.look();
        all.sort_by_key(|stretch| (stretch.start, stretch.end));
        let mut stretches: Vec<Range<usize>> = Vec::new();
        for stretch in &all {
            match stretches.last_mut() {
                Some(last) if stretch.start < last.end => last.end = last.end.max(stretch.end),
                _ => stretches.push(stretch.clone()),
            }
        }
        let mut sorted: Vec<Range<usize>> =
            all.iter().flat_map(|stretch| lines(text, stretch.clone())).collect();
        sorted.retain(|line| line.len() >= KNOWN_BY);
        sorted.sort_by(|a, b| text[a.clone()].cmp(&text[b.clone()]));
        let mut all: Vec<String> = sorted
            .iter()
            .map(|line| folded(&text[line.clone()]).map(|(_, letter)| letter).collect())
            .filter(|line: &String| line.len() >= KNOWN_BY)
            .collect();
        all.sort();
        Self { findings, stretches, sorted, folded: all }
    }

    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    pub fn stretches(&self) -> &[Range<usize>] {
        &self.stretches
    }

    /// A part of their text with a star for every byte of a secret, so that what is underlined stays underlined.
    pub fn starred<'a>(&self, text: &'a str, part: Range<usize>) -> Cow<'a, str> {
        let first = self.stretches.partition_point(|stretch| stretch.end <= part.start);
        let inside = self.stretches[first..].iter().take_while(|stretch| stretch.start < part.end);
        let inside: Vec<_> =
            inside.map(|stretch| stretch.start.max(part.start)..stretch.end.min(part.end)).collect();
        if inside.is_empty() {
            return Cow::Borrowed(&text[part]);
        }
        let mut starred = String::with_capacity(part.len());
        let mut at = part.start;
        for stretch in inside {
            starred.push_str(&text[at..stretch.start]);
            for letter in text[stretch.clone()].chars() {
                match letter {
                    '\n' | '\r' => starred.push(letter),
                    letter => starred.extend(std::iter::repeat_n('*', letter.len_utf8())),
                }
            }
            at = stretch.end;
        }
        starred.push_str(&text[at..part.end]);
        Cow::Owned(starred)
    }

    /// A sentence about their text without them, and without what was made of them: a name that DNS allows, another case.
    pub fn masked<'a>(&self, text: &str, words: &'a str) -> Cow<'a, str> {
        match self.masked_as_written(text, words) {
            Cow::Borrowed(words) => self.masked_as_folded(words),
            Cow::Owned(words) => Cow::Owned(self.masked_as_folded(&words).into_owned()),
        }
    }

    fn masked_as_folded<'a>(&self, words: &'a str) -> Cow<'a, str> {
        if self.folded.is_empty() {
            return Cow::Borrowed(words);
        }
        let (places, letters): (Vec<usize>, String) = folded(words).unzip();
        let mut found = Vec::new();
        let mut at = 0;
        while at < letters.len() {
            let secrets = || self.folded.iter().map(String::as_str);
            let next = self.folded.partition_point(|secret| secret.as_str() < &letters[at..]);
            let neighbours = secrets().skip(next.saturating_sub(1)).take(2);
            let length = neighbours.map(|secret| alike(secret, &letters[at..])).max().unwrap_or(0);
            if length >= KNOWN_BY {
                found.push(places[at]..places[at + length - 1] + 1);
            }
            at += if length >= KNOWN_BY { length } else { 1 };
        }
        replaced(words, found.into_iter())
    }

    fn masked_as_written<'a>(&self, text: &str, words: &'a str) -> Cow<'a, str> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < words.len() && !self.sorted.is_empty() {
            let length = if words.is_char_boundary(at) { self.known(text, &words[at..]) } else { 0 };
            if length >= KNOWN_BY {
                found.push(at..at + length);
            }
            at += length.max(1);
        }
        replaced(words, found.into_iter())
    }

    /// How much of a secret these words begin with. The most alike ones are neighbours in the order.
    fn known(&self, text: &str, words: &str) -> usize {
        let next = self.sorted.partition_point(|secret| &text[secret.clone()] < words);
        let neighbours = &self.sorted[next.saturating_sub(1)..(next + 1).min(self.sorted.len())];
        neighbours.iter().map(|secret| alike(&text[secret.clone()], words)).max().unwrap_or(0)
    }
}

/// Secrets that are known, wherever a part of one is written: each by every twelve letters and digits in a row.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<usize, BTreeSet<String>>);

impl Known {
    /// Nothing shorter is told from other words.
    const SHORTEST: usize = 8;

    pub fn of<'t>(secrets: impl IntoIterator<Item = &'t str>) -> Self {
        let mut known = Self::default();
        for line in secrets.into_iter().flat_map(str::lines) {
            let letters: String = folded(line).map(|(_, letter)| letter).collect();
            let length = letters.len().min(KNOWN_BY);
            if length >= Self::SHORTEST {
                let parts = (0..=letters.len() - length).map(|at| letters[at..at + length].to_owned());
                known.0.entry(length).or_default().extend(parts);
            }
        }
        known
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where parts of the secrets stand in a text, in order and apart from each other.
    fn stretches(&self, text: &str) -> Vec<Range<usize>> {
        let (places, letters): (Vec<usize>, String) = folded(text).unzip();
        let mut found: Vec<Range<usize>> = Vec::new();
        for at in 0..letters.len() {
            let length = |(length, parts): (&usize, &BTreeSet<String>)| {
                letters.get(at..at + length).is_some_and(|part| parts.contains(part)).then_some(*length)
            };
            let Some(length) = self.0.iter().filter_map(length).max() else { continue };
            let stretch = places[at]..places[at + length - 1] + 1;
            match found.last_mut() {
                Some(last) if stretch.start <= last.end => last.end = last.end.max(stretch.end),
                _ => found.push(stretch),
            }
        }
        // What is written behind in base 64 belongs to it.
        for stretch in &mut found {
            let behind = &text[stretch.end..];
            stretch.end += behind.len() - behind.trim_start_matches('=').len();
        }
        found
    }

    pub fn masked<'a>(&self, words: &'a str) -> Cow<'a, str> {
        replaced(words, self.stretches(words).into_iter())
    }

    /// The text with stars in place of the secrets, and as long; `None` if there are none in it.
    pub fn starred(&self, text: &str) -> Option<String> {
        let stretches = self.stretches(text);
        (!stretches.is_empty())
            .then(|| Secrets { stretches, ..Secrets::default() }.starred(text, 0..text.len()).into_owned())
    }
}

/// Bytes with which both begin.
fn alike(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}

/// Letters and digits alone and in one case, each with its place: what is left of a text in every name that is made of it.
fn folded(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let kept = text.char_indices().filter(|(_, letter)| letter.is_ascii_alphanumeric());
    kept.map(|(at, letter)| (at, letter.to_ascii_lowercase()))
}

fn replaced(words: &str, stretches: impl Iterator<Item = Range<usize>>) -> Cow<'_, str> {
    let mut stretches = stretches.peekable();
    if stretches.peek().is_none() {
        return Cow::Borrowed(words);
    }
    let (mut masked, mut at) = (String::with_capacity(words.len()), 0);
    for stretch in stretches.filter(|stretch| !stretch.is_empty()) {
        if stretch.start >= at {
            masked.push_str(&words[at..stretch.start]);
            masked.push_str(HIDDEN);
        }
        at = at.max(stretch.end);
    }
    masked.push_str(&words[at..]);
    Cow::Owned(masked)
}

fn lines(text: &str, stretch: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = stretch.start;
    text[stretch].split('\n').map(move |line| {
        let start = at + line.len() - line.trim_start().len();
        at += line.len() + 1;
        start..start + line.trim().len()
    })
}

/// Looks for values under names that say secret, in TOML, YAML, JSON and shell alike, as far as they are whole.
struct Named<'t, 'f> {
    text: &'t str,
    /// The name that was read last.
    key: &'t str,
    /// How often the rest of this line was looked at as one value.
    rests: usize,
    /// Where no double and no single quote closes: what was looked through once is not looked through again.
    open: [Range<usize>; 2],
    found: &'f mut Vec<Range<usize>>,
}

impl Named<'_, '_> {
    fn look(mut self) {
        let mut at = 0;
        for line in self.text.split_inclusive('\n') {
            self.rests = 0;
            self.part(at..at + line.trim_end().len());
            at += line.len();
        }
    }

    fn part(&mut self, part: Range<usize>) {
        let mut at = part.start;
        while at < part.end {
            let rest = &self.text[at..part.end];
            let Some(letter) = rest.chars().next() else { return };
            let length = match letter {
                '"' | '\'' => self.quoted(at, rest, letter),
                letter if is_bare(letter) => self.bare(at, rest),
                _ => letter.len_utf8(),
            };
            at += length;
        }
    }

    /// How much of `rest` is behind us.
    fn quoted(&mut self, at: usize, rest: &str, quote: char) -> usize {
        let whole = at..at + rest.len();
        let open = &mut self.open[usize::from(quote == '\'')];
        if open.start <= whole.start && whole.end <= open.end {
            return 1;
        }
        let mut is_escaped = false;
        let close = rest[1..].find(|letter| {
            let is_close = letter == quote && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            is_close
        });
        if close.is_none() {
            *open = whole;
        }
        // An empty one may be the beginning of three quotes, and one that stays open ends somewhere else.
        let Some(length) = close.filter(|length| *length > 0) else { return 1 };
        let inside = at + 1..at + 1 + length;
        let behind = rest[length + 2..].trim_start();
        if behind.starts_with([':', '=']) {
            self.key = &self.text[inside];
        } else if !self.value(inside.clone()) {
            self.part(inside);
        }
        length + 2
    }

    fn bare(&mut self, at: usize, rest: &str) -> usize {
        let ends = |(index, letter): &(usize, char)| !is_bare(*letter) || is_sign(rest, *index);
        let length = rest.char_indices().find(ends).map_or(rest.len(), |(index, _)| index);
        let behind = rest[length..].trim_start();
        let skipped = rest.len() - behind.len();
        if length > 0 && behind.starts_with(['=', ':']) && is_sign(rest, skipped) {
            self.key = &self.text[at..at + length];
            // The value may be all that is left of the line, whatever letters it has.
            let value = rest[skipped + 1..].trim_start();
            let start = at + rest.len() - value.len();
            let is_rest = !value.starts_with(['"', '\'', '[', '{'])
                && self.rests < RESTS_MAX
                && is_secret_name(self.key);
            if is_rest {
                self.rests += 1;
                if self.value(start..start + value.len()) {
                    return rest.len();
                }
            }
            return skipped + 1;
        }
        self.value(at..at + length);
        length.max(1)
    }

    fn value(&mut self, value: Range<usize>) -> bool {
        let is_secret = value::is_random_under(self.key, &self.text[value.clone()]);
        if is_secret {
            self.found.push(value);
        }
        is_secret
    }
}

fn is_bare(letter: char) -> bool {
    !letter.is_whitespace()
        && !matches!(letter, '"' | '\'' | '`' | ',' | ';' | '{' | '}' | '[' | ']' | '(' | ')')
}

/// Whether the letter at `index` parts a name from its value: `=` also ends what is written in base 64, and `:` is in the
/// middle of addresses.
fn is_sign(rest: &str, index: usize) -> bool {
    let mut letters = rest[index..].chars();
    let sign = letters.next();
    let behind = letters.as_str();
    match sign {
        Some('=') => {
            let value = behind.trim_start();
            let is_near = value.len() == behind.len();
            let is_far = value.starts_with(['"', '\'', '[', '{']);
            let stood_apart = rest[..index].ends_with(char::is_whitespace);
            !behind.starts_with('=') && !value.is_empty() && (is_near || is_far || stood_apart)
        }
        Some(':') => behind.is_empty() || behind.starts_with([' ', '\t', '"', '\'']),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: &str = "wJalrXUtnFEMIxK7MDENGxbPxRfiCYzz";
    const FORGE: &str = "ghp_0123456789abcdefghij";

    fn starred(text: &str) -> String {
        Secrets::of(text).starred(text, 0..text.len()).into_owned()
    }

    #[test]
    fn well_known_shapes_are_recognised() {
        let credential = |text: &str| credential(text).map(|what| what.to_string());
        let is = |what: &str| Some(what.to_owned());
        assert_eq!(credential("id AKIAIOSFODNN7EXAMPLE"), is("an AWS access key"));
        assert_eq!(credential("-----BEGIN RSA PRIVATE KEY-----"), is("a private key"));
        assert_eq!(credential(&format!("t={FORGE}")), is("the token of a forge"));
        assert_eq!(credential(&format!("https://{FORGE}@example.com/a.git")), is("the token of a forge"));
        assert_eq!(credential("https://ci:a:b@example.com/a.git"), is("a password in an address"));
        assert_eq!(credential("kubeadm join ${CLUSTER_ENDPOINT}"), None);
        assert_eq!(credential("-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----"), None);
        assert_eq!(
            credential("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            is("an AWS secret key")
        );
        let secret = |name: &str, value: &str| secret_in(name, value).map(|one| one.what.to_string());
        assert_eq!(secret("db-password", RANDOM), is("a secret"));
        assert_eq!(secret("token-parameter", "/shop/join-token"), None);
        assert_eq!(secret("--token", "abc123def"), is("a secret"));
        let encoded = "IyEvYmluL3NoCkE9QUtJQUlPU0ZPRE5ON0VYQU1QTEUK";
        assert_eq!(secret("user-data", encoded), is("an AWS access key in base 64"));
    }

    #[test]
    fn a_text_keeps_its_columns_and_loses_its_secrets() {
        let stars = "*".repeat(FORGE.len());
        assert_eq!(starred(&format!("a = \"{FORGE}\" # b\n")), format!("a = \"{stars}\" # b\n"));
        let key = "x = '''-----BEGIN EC PRIVATE KEY-----\nMIIE\n-----END EC PRIVATE KEY-----''' # y\n";
        let lines = ["*".repeat(30), "*".repeat(4), "*".repeat(28)].join("\n");
        assert_eq!(starred(key), format!("x = '''{lines}''' # y\n"));
        let text = "a = 1\n\n  b = \"2\"\n";
        assert!(matches!(Secrets::of(text).starred(text, 0..text.len()), Cow::Borrowed(_)));
    }

    #[test]
    fn a_value_under_a_name_that_says_secret_is_found_in_every_way_to_write_it() {
        let stars = "*".repeat(RANDOM.len());
        for form in [
            "token = \"@\"",
            "token=\"@\", }}",
            "labels = { a = \"b\", token = '@' }",
            "token = [\n  \"@\",\n",
            "db.password = \"\"\"\n@\n\"\"\"\n",
            "  api-key: @\n",
            "{\"token\":\"@\"}",
            "\"the token\" = \"@\"",
            "token:\n  - @\n",
            "x = \"export DB_PASSWORD=@\"",
            "x = \"export DB_PASSWORD='@'; y\"",
            "token= \"@",
        ] {
            assert_eq!(starred(&form.replace('@', RANDOM)), form.replace('@', &stars), "{form}");
        }
        for plain in ["name = \"@\"", "token = \"${A}\"\nname = \"@\"", "token: /a\nname: @\n"] {
            assert_eq!(starred(&plain.replace('@', RANDOM)), plain.replace('@', RANDOM), "{plain}");
        }
        assert!(!starred("password: aB3{xY,9%$kL0-qW7&zR=\n").contains("xY"));
    }

    #[test]
    fn a_sentence_is_rid_of_secrets_even_if_it_quotes_a_part() {
        let text = format!("token = \"{RANDOM}\"\n");
        let secrets = Secrets::of(&text);
        let said = |words: &str| secrets.masked(&text, words).into_owned();
        assert_eq!(said(&format!("`token` is \"{RANDOM}\" (a text)")), "`token` is \"***\" (a text)");
        assert_eq!(said(&format!("ü {}… and ü {RANDOM}!", &RANDOM[..14])), "ü ***… and ü ***!");
        assert_eq!(said("wJal is short"), "wJal is short");
        let slug = RANDOM.to_ascii_lowercase().replace('x', "-x-");
        assert_eq!(said(&format!("ü call it `{slug}`, or x-{slug}")), "ü call it `***`, or x-***");
        assert_eq!(masked(&format!("is {FORGE}, {FORGE}")), "is ***, ***");
    }
}
