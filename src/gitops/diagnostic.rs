//! What is wrong in a file that a person edits: what, where, why, what to do; all of it a value.
//!
//! A position always refers to the input. Whatever is found later, even in rendered output, travels back to
//! the key that fed it before it becomes a [`Diagnostic`]. Drawing them in colour is the printer's work.
//!
//! Secrets that somebody left in a file are in no sentence and in no excerpt: sentences lose them when a [`Diagnostic`] is
//! made, and what is shown of a file is [`Source::shown`].

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::gitops::desired::Origin;
use crate::model::secret::{self, Known, Secrets};
use crate::model::visible::shortened;

/// How many diagnostics of one run are shown; the rest is counted.
pub const SHOWN_MAX: usize = 50;
/// Letters of a message or of a help. What is quoted in it comes from a file, and a file may hold anything.
pub const WORDS_MAX: usize = 1_000;
/// Further places of one diagnostic: the nearest.
pub const CHAIN_MAX: usize = 20;
/// Letters of a line that are shown; of a longer one the part around the mistake.
pub const LINE_MAX: usize = 400;
/// Letters before and behind the mistake in a line that is cut, and of the mistake itself.
const AROUND: usize = 100;

/// One text file with its line starts, shared by everything that points into it.
pub struct Source {
    /// Path inside the repository, or `built-in:NAME` for what is compiled in.
    pub path: Arc<str>,
    pub text: Arc<str>,
    line_starts: Vec<u32>,
    /// Looked for when something is said of it for the first time.
    secrets: OnceLock<Secrets>,
}

impl Source {
    pub fn new(path: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Arc<Self> {
        let text = text.into();
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0).chain(newlines.map(|(at, _)| at as u32 + 1)).collect();
        Arc::new(Self { path: path.into(), text, line_starts, secrets: OnceLock::new() })
    }

    /// A file of which only the name is known, because it is missing or may not be read.
    pub fn nameless_text(path: impl Into<Arc<str>>) -> Arc<Self> {
        Self::new(path, "")
    }

    /// Line and column of a byte, both from 1, the column in Unicode scalar values. A byte order mark does not count.
    pub fn position(&self, byte: usize) -> (u32, u32) {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        let line = self.line_starts.partition_point(|start| *start as usize <= byte) - 1;
        let before = &self.text[self.line_starts[line] as usize..byte];
        let columns = before.strip_prefix('\u{feff}').unwrap_or(before).chars().count();
        (line as u32 + 1, columns as u32 + 1)
    }

    /// The byte where a line starts; lines count from 1.
    pub(crate) fn line_start(&self, line: usize) -> usize {
        let index = line.saturating_sub(1).min(self.line_starts.len() - 1);
        self.line_starts[index] as usize
    }

    /// The text of a line without its end.
    pub fn line(&self, line: usize) -> &str {
        let start = self.line_start(line);
        let rest = &self.text[start..];
        let end = rest.find('\n').unwrap_or(rest.len());
        rest[..end].trim_end_matches('\r')
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        self.secrets.get_or_init(|| Secrets::of(&self.text))
    }

    /// The text for people to see: of the same length, with stars for what looks like a secret.
    pub fn shown(&self) -> Cow<'_, str> {
        self.secrets().starred(&self.text, 0..self.text.len())
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.text == other.text
    }
}

impl Eq for Source {}

impl fmt::Debug for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Source({})", self.path)
    }
}

/// A stretch of bytes in a source.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    pub source: Arc<Source>,
    pub start: u32,
    pub end: u32,
}

impl Place {
    pub fn new(source: &Arc<Source>, bytes: Range<usize>) -> Self {
        Self { source: source.clone(), start: bytes.start as u32, end: bytes.end.max(bytes.start) as u32 }
    }

    /// The file as a whole: its first character.
    pub fn start_of(source: &Arc<Source>) -> Self {
        Self::new(source, 0..0)
    }

    pub fn bytes(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    pub fn file(&self) -> &Arc<str> {
        &self.source.path
    }

    /// Line and column of the first character, from 1.
    pub fn position(&self) -> (u32, u32) {
        self.source.position(self.start as usize)
    }

    /// Line and column just behind the last character, from 1.
    pub fn end_position(&self) -> (u32, u32) {
        self.source.position(self.end as usize)
    }

    pub fn origin(&self) -> Origin {
        let (line, column) = self.position();
        Origin { file: self.source.path.clone(), line, column }
    }

    /// The line of the place, without its end; of a long one the part around the place.
    pub fn excerpt(&self) -> Excerpt {
        let number = self.position().0 as usize;
        let line_start = self.source.line_start(number);
        let line_end = line_start + self.source.line(number).len();
        let line = self.source.secrets().starred(&self.source.text, line_start..line_end);
        let start = self.bytes().start.clamp(line_start, line_end);
        let end = self.bytes().end.clamp(start, line_end);
        if line.len() <= LINE_MAX || line.char_indices().nth(LINE_MAX).is_none() {
            return Excerpt { bytes: start - line_start..end - line_start, text: line.into_owned() };
        }
        let (start, end) = (boundary(&line, start - line_start), boundary(&line, end - line_start));
        let shown_end = line[start..end].char_indices().nth(AROUND).map_or(end, |(at, _)| start + at);
        let first = line[..start].char_indices().rev().take(AROUND).last().map_or(start, |(at, _)| at);
        let last = line[shown_end..].char_indices().nth(AROUND).map_or(line.len(), |(at, _)| shown_end + at);
        let lead = if first > 0 { "…" } else { "" };
        let tail = if last < line.len() { "…" } else { "" };
        let at = lead.len() + start - first;
        Excerpt { text: format!("{lead}{}{tail}", &line[first..last]), bytes: at..at + (shown_end - start) }
    }

    fn order(&self) -> (&str, u32, u32) {
        (&self.source.path, self.start, self.end)
    }
}

/// What is shown of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    pub text: String,
    /// Where the place is in it.
    pub bytes: Range<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.position();
        write!(out, "{}:{line}:{column}", self.source.path)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing is applied.
    Error,
    /// Applied, and worth a look.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// A second place that belongs to the story: the other definition, the template, the includer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub message: String,
    pub place: Place,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable name, such as `PRV1203`; `docs/guide/strategy.md` lists them.
    pub code: &'static str,
    pub severity: Severity,
    /// One sentence without a full stop, of at most [`WORDS_MAX`] letters.
    pub message: String,
    pub place: Place,
    /// From the nearest to the farthest: template, include, strategy value. At most [`CHAIN_MAX`].
    pub chain: Vec<Link>,
    /// What to do.
    pub help: Option<String>,
}

impl Diagnostic {
    pub fn error(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: sentence(message.into(), [&*place.source]),
            place,
            chain: Vec::new(),
            help: None,
        }
    }

    pub fn warning(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, place, message) }
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(sentence(help.into(), self.sources()));
        self
    }

    #[must_use]
    pub fn also(mut self, message: impl Into<String>, place: Place) -> Self {
        if self.chain.len() < CHAIN_MAX {
            let message = sentence(message.into(), self.sources().chain([&*place.source]));
            // What was said before may quote this file too.
            let links = self.chain.iter_mut().map(|link| &mut link.message);
            for said in links.chain([&mut self.message]).chain(&mut self.help) {
                *said = sentence(std::mem::take(said), [&*place.source]);
            }
            self.chain.push(Link { message, place });
        }
        self
    }

    /// The same without secrets that are known from elsewhere: in no sentence, and in no line that is shown.
    #[must_use]
    pub(crate) fn without(mut self, known: &Known) -> Self {
        let links = self.chain.iter_mut().map(|link| &mut link.message);
        for words in links.chain([&mut self.message]).chain(&mut self.help) {
            replace(words, |words| known.masked(words));
        }
        let places = self.chain.iter_mut().map(|link| &mut link.place);
        for place in places.chain([&mut self.place]) {
            // As long as before, so that every place in it stays where it is.
            if let Some(text) = known.starred(&place.source.text) {
                place.source = Source::new(place.source.path.clone(), text);
            }
        }
        self
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        std::iter::once(&*self.place.source).chain(self.chain.iter().map(|link| &*link.place.source))
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Where its code is explained, as a path in the repository of this program.
    pub fn documentation(&self) -> String {
        format!("docs/guide/strategy.md#{}", self.code.to_lowercase())
    }
}

/// Words without the secrets of the files that they are about, and not too many.
fn sentence<'a>(words: String, sources: impl IntoIterator<Item = &'a Source>) -> String {
    let mut words = words;
    replace(&mut words, secret::masked);
    for source in sources {
        let secrets = source.secrets();
        if !secrets.is_empty() {
            replace(&mut words, |words| secrets.masked(&source.text, words));
        }
    }
    replace(&mut words, |words| shortened(words, WORDS_MAX));
    words
}

fn replace(words: &mut String, change: impl Fn(&str) -> Cow<'_, str>) {
    if let Cow::Owned(changed) = change(words) {
        *words = changed;
    }
}

/// The nearest beginning of a letter at or before a byte.
fn boundary(text: &str, byte: usize) -> usize {
    (0..=byte.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}[{}]: {}", self.place, self.severity, self.code, self.message)?;
        for link in &self.chain {
            write!(out, "\n  {}: {}", link.place, link.message)?;
        }
        match &self.help {
            Some(help) => write!(out, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("code", self.code)?;
        map.serialize_entry("severity", &self.severity.to_string())?;
        map.serialize_entry("message", &self.message)?;
        serialize_place(&mut map, &self.place)?;
        let (end_line, end_column) = self.place.end_position();
        map.serialize_entry("endLine", &end_line)?;
        map.serialize_entry("endColumn", &end_column)?;
        map.serialize_entry("excerpt", &self.place.excerpt().text)?;
        map.serialize_entry("chain", &self.chain)?;
        map.serialize_entry("help", &self.help)?;
        map.serialize_entry("documentation", &self.documentation())?;
        map.end()
    }
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("message", &self.message)?;
        serialize_place(&mut map, &self.place)?;
        map.end()
    }
}

fn serialize_place<M: SerializeMap>(map: &mut M, place: &Place) -> Result<(), M::Error> {
    let (line, column) = place.position();
    map.serialize_entry("file", &**place.file())?;
    map.serialize_entry("line", &line)?;
    map.serialize_entry("column", &column)
}

/// All mistakes of one run, sorted by file and position, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    items: Vec<Diagnostic>,
}

impl Diagnostics {
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.items.push(diagnostic);
    }

    pub fn extend(&mut self, more: impl IntoIterator<Item = Diagnostic>) {
        self.items.extend(more);
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.items.iter()
    }

    /// The first fifty; [`Diagnostics::hidden`] says how many more there are.
    pub fn shown(&self) -> &[Diagnostic] {
        &self.items[..self.items.len().min(SHOWN_MAX)]
    }

    pub fn hidden(&self) -> usize {
        self.items.len().saturating_sub(SHOWN_MAX)
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn has_errors(&self) -> bool {
        self.items.iter().any(Diagnostic::is_error)
    }

    pub fn errors(&self) -> usize {
        self.items.iter().filter(|item| item.is_error()).count()
    }

    /// Sorts by file, position and code, errors before warnings at one place, and drops repetitions.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.items.sort_by(|a, b| {
            (a.place.order(), a.severity, a.code, &a.message).cmp(&(
                b.place.order(),
                b.severity,
                b.code,
                &b.message,
            ))
        });
        self.items.dedup();
        self
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(one: Diagnostic) -> Self {
        Self { items: vec![one] }
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.shown().iter().enumerate() {
            if index > 0 {
                out.write_str("\n")?;
            }
            fmt::Display::fmt(diagnostic, out)?;
        }
        match self.hidden() {
            0 => Ok(()),
            hidden => write!(out, "\nand {hidden} more"),
        }
    }
}

impl std::error::Error for Diagnostics {}

/// Serialised as the shown diagnostics; a reader learns of the rest from the report around it.
impl Serialize for Diagnostics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.shown())
    }
}

/// `a, b and c`, each in backticks.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_not_bytes() {
        let source = Source::new("a.toml", "\u{feff}# ä\r\n\tü = x\n");
        let at = source.text.find('x').expect("x is there");
        assert_eq!(source.position(at), (2, 6));
        assert_eq!(source.position(3), (1, 1));
        assert_eq!(source.line(1), "\u{feff}# ä");
        assert_eq!(source.position(1_000), (3, 1));
    }

    #[test]
    fn a_long_list_is_cut_and_counted() {
        let source = Source::new("f", "\n".repeat(100));
        let mut all = Diagnostics::default();
        for byte in 0..80 {
            all.push(Diagnostic::error("PRV1", Place::new(&source, byte..byte), "no"));
        }
        assert_eq!(all.hidden(), 30);
        assert!(all.to_string().ends_with("and 30 more"));
    }
    #[test]
    fn a_message_is_never_huge() {
        let source = Source::new("f", format!("{}!{}\n", "[".repeat(90_000), "]".repeat(90_000)));
        let place = Place::new(&source, 90_000..170_000);
        let mut diagnostic = Diagnostic::error("PRV1", place.clone(), "x".repeat(90_000));
        for _ in 0..1_000 {
            diagnostic = diagnostic.also("y".repeat(90_000), place.clone());
        }
        let diagnostic = diagnostic.help("z".repeat(90_000));
        assert!(diagnostic.to_string().len() < 25_000);
        assert!(serde_json::to_string(&diagnostic).expect("it is written").len() < 30_000);
        let excerpt = place.excerpt();
        assert!(excerpt.text.starts_with("…[[") && excerpt.text.ends_with("]…"), "{}", excerpt.text);
        assert!(excerpt.text[excerpt.bytes].starts_with("!]"));
        assert_eq!(excerpt.text.chars().count(), 302);
    }
}
