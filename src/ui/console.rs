//! Where words go: data to stdout, talk to stderr, colour only where a person sees it.
//!
//! Nothing is written that is not [`Shown`]: whatever letters a repository hides in its names, values and comments, a
//! terminal gets none that it would obey. A closed pipe is an ordinary end, not a panic: every write to stdout returns a
//! [`Failure`] that says nothing.

use std::borrow::Cow;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use serde_json::json;

use super::cli::document::{DiagnosticDocument, ErrorBody, ErrorDocument, NoticeDocument};
use super::diagnostics::draw;
use super::exit::Failure;
use crate::gitops::diagnostic::Diagnostics;
use crate::model::visible::{shortened, visible, visible_json};

/// The form of what a verb prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    #[default]
    Text,
    Json,
    // Of `review` only: a comment for a forge, and what programs that collect findings read.
    #[value(hide = true)]
    Markdown,
    #[value(hide = true)]
    Sarif,
    #[value(hide = true)]
    Junit,
    #[value(hide = true)]
    Gitlab,
    #[value(hide = true)]
    Github,
}

impl Output {
    /// The word that asks for a form that only `provisor review` has.
    pub fn of_review(self) -> Option<&'static str> {
        match self {
            Self::Text | Self::Json => None,
            Self::Markdown => Some("markdown"),
            Self::Sarif => Some("sarif"),
            Self::Junit => Some("junit"),
            Self::Gitlab => Some("gitlab"),
            Self::Github => Some("github"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    // On a terminal, unless NO_COLOR is set; everywhere if CLICOLOR_FORCE is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// What a colour stands for; the word it is given to says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Notice,
    Strong,
    Faint,
}

/// Letters of one sentence of a complaint.
const WORDS_MAX: usize = 2_000;

/// Stands for a tone in a text until it is written, one letter for each, then one for the end: no terminal ever gets them.
const MARKS: [char; 6] = ['\u{fdd0}', '\u{fdd1}', '\u{fdd2}', '\u{fdd3}', '\u{fdd4}', '\u{fdd5}'];
const CODES: [&str; 6] = ["32", "31", "33", "1", "2", "0"];

impl Tone {
    fn mark(self) -> char {
        MARKS[match self {
            Self::Good => 0,
            Self::Bad => 1,
            Self::Notice => 2,
            Self::Strong => 3,
            Self::Faint => 4,
        }]
    }
}

/// What may be written: every letter of it can be seen, and its colours are ours.
struct Shown<'a>(Cow<'a, str>);

impl<'a> Shown<'a> {
    fn text(text: &'a str, is_colored: bool) -> Self {
        if !is_colored || !text.contains(MARKS) {
            return Self(visible(text));
        }
        let mut shown = String::with_capacity(text.len() + 32);
        for piece in text.split_inclusive(MARKS) {
            let code =
                MARKS.iter().zip(CODES).find_map(|(mark, code)| Some((piece.strip_suffix(*mark)?, code)));
            match code {
                Some((piece, code)) => shown.push_str(&format!("{}\u{1b}[{code}m", visible(piece))),
                None => shown.push_str(&visible(piece)),
            }
        }
        Self(shown.into())
    }

    fn json(json: &'a str) -> Self {
        Self(visible_json(json))
    }

    /// What is quoted was made visible before it was drawn: lines and columns depend on it.
    fn drawn(diagnostics: &Diagnostics, is_colored: bool) -> Self {
        Self(draw(diagnostics, is_colored).trim_end().to_owned().into())
    }
}

/// The two streams of one run of the program.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    pub output: Output,
    out_color: bool,
    err_color: bool,
    err_is_terminal: bool,
    is_of_real_machines: bool,
}

impl Console {
    /// Looks at the streams and at `NO_COLOR` and `CLICOLOR_FORCE`.
    pub fn new(output: Output, choice: ColorChoice) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colored = |is_terminal: bool| match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto if no_color => false,
            ColorChoice::Auto if is_set("CLICOLOR_FORCE") => true,
            ColorChoice::Auto => {
                is_terminal && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
            }
        };
        let err_is_terminal = io::stderr().is_terminal();
        Self {
            output,
            out_color: colored(io::stdout().is_terminal()) && output == Output::Text,
            err_color: colored(err_is_terminal) && output == Output::Text,
            err_is_terminal,
            is_of_real_machines: false,
        }
    }

    /// The same streams, for what is told of machines that cost money.
    pub fn of_real_machines(self) -> Self {
        Self { is_of_real_machines: true, ..self }
    }

    /// Whether the machines of which is told exist in memory only.
    pub fn is_simulated(&self) -> bool {
        !self.is_of_real_machines
    }

    pub fn is_json(&self) -> bool {
        self.output == Output::Json
    }

    /// Whether progress may be drawn in place: a terminal, and not a job of a continuous integration system.
    pub fn is_live(&self) -> bool {
        self.err_is_terminal && !self.is_json() && std::env::var_os("CI").is_none()
    }

    /// `text` in a colour, if stdout shows colours.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        paint(self.out_color, tone, text)
    }

    /// Writes to stdout.
    pub fn data(&self, text: &str) -> Result<(), Failure> {
        self.give(&Shown::text(text, self.out_color))
    }

    /// Writes to stdout what is JSON already.
    pub fn json_text(&self, json: &str) -> Result<(), Failure> {
        self.give(&Shown::json(json))
    }

    fn give(&self, shown: &Shown<'_>) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(shown.0.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::closed(),
            _ => Failure::outside("standard output cannot be written").caused_by(&error),
        })
    }

    /// Writes one document to stdout.
    pub fn json<T: Serialize>(&self, document: &T) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(document)
            .map_err(|error| Failure::outside("the answer cannot be written as JSON").caused_by(&error))?;
        text.push('\n');
        self.json_text(&text)
    }

    /// Something a person should know that is no data. Under `--output json` it is one line of JSON.
    pub fn notice(&self, text: &str) {
        if self.is_json() {
            let notice = Some(text.to_owned());
            self.tell_json(&NoticeDocument { version: 1, notice, warnings: Vec::new(), hidden: None });
        } else {
            self.tell(&format!("{} {text}", paint(self.err_color, Tone::Notice, "notice:")));
        }
    }

    /// Diagnostics that stop nothing. Under `--output json` they are one line of JSON.
    pub fn warn(&self, diagnostics: &Diagnostics) {
        if diagnostics.is_empty() {
        } else if self.is_json() {
            let warnings = diagnostics.shown().iter().map(DiagnosticDocument::from).collect();
            let hidden = Some(diagnostics.hidden());
            self.tell_json(&NoticeDocument { version: 1, notice: None, warnings, hidden });
        } else {
            self.say(&Shown::drawn(diagnostics, self.err_color));
        }
    }

    /// What goes on, for a person who watches. Nothing under `--output json`.
    pub fn talk(&self, text: &str) {
        if !self.is_json() {
            self.tell(text);
        }
    }

    /// Says why a verb failed, or warns: diagnostics with their excerpts, then the message, its causes and what to do.
    pub fn complain(&self, failure: &Failure) {
        if failure.message.is_empty() && failure.diagnostics.is_empty() {
            return;
        }
        if self.is_json() {
            let message = match failure.message.as_str() {
                "" => reason(failure),
                message => message,
            };
            let document = ErrorDocument {
                version: 1,
                error: ErrorBody {
                    exit_code: failure.exit.code(),
                    message: bounded(message),
                    causes: failure.causes.iter().map(|cause| bounded(cause)).collect(),
                    help: failure.help.as_deref().map(bounded),
                    diagnostics: failure.diagnostics.shown().iter().map(DiagnosticDocument::from).collect(),
                    hidden: failure.diagnostics.hidden(),
                },
            };
            self.tell_json(&document);
            return;
        }
        if !failure.diagnostics.is_empty() {
            self.say(&Shown::drawn(&failure.diagnostics, self.err_color));
        }
        if !failure.message.is_empty() {
            let mut text =
                format!("{} {}", paint(self.err_color, Tone::Bad, "error:"), bounded(&failure.message));
            for cause in &failure.causes {
                text.push_str(&format!("\n  because: {}", bounded(cause)));
            }
            if let Some(help) = &failure.help {
                let word = paint(self.err_color, Tone::Strong, "help:");
                text.push_str(&format!("\n  {word} {}", bounded(help)));
            }
            self.tell(&text);
        }
    }

    /// Writes to stderr.
    fn tell(&self, text: &str) {
        self.say(&Shown::text(text, self.err_color));
    }

    fn tell_json<T: Serialize>(&self, document: &T) {
        self.say(&Shown::json(&json!(document).to_string()));
    }

    /// One line to stderr. If nobody reads it, nothing is lost that could be said elsewhere.
    fn say(&self, shown: &Shown<'_>) {
        let mut err = io::stderr().lock();
        drop(err.write_all(format!("{}\n", shown.0).as_bytes()));
    }
}

/// A server, a file or a repository may have had a say in it.
fn bounded(words: &str) -> String {
    shortened(words, WORDS_MAX).into_owned()
}

/// Between two marks, if colours are shown.
fn paint(is_colored: bool, tone: Tone, text: &str) -> String {
    let [.., end] = MARKS;
    if is_colored { format!("{}{text}{end}", tone.mark()) } else { text.to_owned() }
}

/// The sentence of the first mistake: warnings before it are not why.
fn reason(failure: &Failure) -> &str {
    let mut all = failure.diagnostics.iter();
    let first = all.find(|one| one.is_error()).or_else(|| failure.diagnostics.iter().next());
    first.map_or("", |first| first.message.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_colours_reach_a_terminal() {
        let hostile = "\u{1b}[8m\u{9b}31m\u{202e}x\n";
        let text = format!("{} {hostile}", paint(true, Tone::Bad, "error:"));
        let shown = Shown::text(&text, true);
        assert_eq!(shown.0, "\u{1b}[31merror:\u{1b}[0m \\u{1b}[8m\\u{9b}31m\\u{202e}x\n");
        let text = format!("{} {hostile}\u{fdd0}", paint(false, Tone::Bad, "error:"));
        assert_eq!(Shown::text(&text, false).0, "error: \\u{1b}[8m\\u{9b}31m\\u{202e}x\n\\u{fdd0}");
    }
}
