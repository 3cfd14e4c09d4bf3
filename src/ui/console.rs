//! Where words go: data to stdout, talk to stderr, colour only where a person sees it.
//!
//! A closed pipe is an ordinary end, not a panic: every write to stdout returns a [`Failure`] that says nothing.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use serde_json::json;

use super::cli::document::{DiagnosticDocument, ErrorBody, ErrorDocument, NoticeDocument};
use super::diagnostics::draw;
use super::exit::Failure;
use crate::gitops::diagnostic::Diagnostics;

/// The form of what a verb prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    #[default]
    Text,
    Json,
    // A comment for a forge: `review` only.
    #[value(hide = true)]
    Markdown,
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

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Notice => "33",
            Self::Strong => "1",
            Self::Faint => "2",
        }
    }
}

/// The two streams of one run of the program.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    pub output: Output,
    out_color: bool,
    err_color: bool,
    err_is_terminal: bool,
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
        }
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

    /// Writes to stdout as it is.
    pub fn data(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::closed(),
            _ => Failure::outside("standard output cannot be written").caused_by(&error),
        })
    }

    /// Writes one document to stdout.
    pub fn json<T: Serialize>(&self, document: &T) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(document)
            .map_err(|error| Failure::outside("the answer cannot be written as JSON").caused_by(&error))?;
        text.push('\n');
        self.data(&text)
    }

    /// Something a person should know that is no data. Under `--output json` it is one line of JSON.
    pub fn notice(&self, text: &str) {
        if self.is_json() {
            let notice = Some(text.to_owned());
            self.tell(
                &json!(NoticeDocument { version: 1, notice, warnings: Vec::new(), hidden: None }).to_string(),
            );
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
            self.tell(&json!(NoticeDocument { version: 1, notice: None, warnings, hidden }).to_string());
        } else {
            self.tell(draw(diagnostics, self.err_color).trim_end());
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
                "" => failure.diagnostics.shown().first().map_or("", |first| first.message.as_str()),
                message => message,
            };
            let document = ErrorDocument {
                version: 1,
                error: ErrorBody {
                    exit_code: failure.exit.code(),
                    message: message.to_owned(),
                    causes: failure.causes.clone(),
                    help: failure.help.clone(),
                    diagnostics: failure.diagnostics.shown().iter().map(DiagnosticDocument::from).collect(),
                    hidden: failure.diagnostics.hidden(),
                },
            };
            self.tell(&json!(document).to_string());
            return;
        }
        if !failure.diagnostics.is_empty() {
            self.tell(draw(&failure.diagnostics, self.err_color).trim_end());
        }
        if !failure.message.is_empty() {
            let mut text = format!("{} {}", paint(self.err_color, Tone::Bad, "error:"), failure.message);
            for cause in &failure.causes {
                text.push_str(&format!("\n  because: {cause}"));
            }
            if let Some(help) = &failure.help {
                text.push_str(&format!("\n  {} {help}", paint(self.err_color, Tone::Strong, "help:")));
            }
            self.tell(&text);
        }
    }

    /// One line to stderr. If nobody reads it, nothing is lost that could be said elsewhere.
    fn tell(&self, text: &str) {
        let mut err = io::stderr().lock();
        drop(err.write_all(format!("{text}\n").as_bytes()));
    }
}

fn paint(is_colored: bool, tone: Tone, text: &str) -> String {
    if is_colored { format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code()) } else { text.to_owned() }
}
