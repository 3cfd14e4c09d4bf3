//! The command line: one file per verb, one table of exit codes, one way to print.

mod repository;
mod rewrite;
pub(in crate::ui) mod document;
pub(in crate::ui) mod line;
mod demo;
mod run;
pub(in crate::ui) mod simulate;
mod recording;
mod report;
mod replay;
pub(in crate::ui) mod why;
mod weeks;
mod validate;
mod render;
mod diff;
mod plan;
mod explain;
mod ack;
mod promote;
mod review;
mod snapshot;
mod init;
mod lock;
mod migrate;
mod schema;
mod catalog;
mod completion;
mod version;
mod reference;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use super::console::{ColorChoice, Console, Output};
use super::exit::{Exit, Failure};
use super::interrupt;
use super::log::{self, LogFormat};
pub use document::output_schemas;
pub use reference::reference;

/// A node provisioner for Kubernetes whose desired state is a Git repository.
#[derive(Debug, Parser)]
#[command(
    name = "provisor",
    version,
    max_term_width = HELP_WIDTH,
    after_help = "\
Exit codes: 0 done, 1 the answer is no, 2 the input is wrong, 3 the outside world failed,
4 something to do (--detailed-exitcode), 5 stale or out of time, 64 wrong command line, 130 interrupted.

Start here:
  provisor init fleet && provisor validate fleet"
)]
pub struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    verb: Verb,
}

/// What every verb understands.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct GlobalArgs {
    /// Print tables for people, or one versioned JSON document for programs
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORM", help_heading = GLOBAL)]
    output: Output,
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", help_heading = GLOBAL)]
    color: ColorChoice,
    /// Form of the log on standard error
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORM", help_heading = GLOBAL)]
    log_format: LogFormat,
    /// Log more: -v what happens, -vv decisions and why, -vvv everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = GLOBAL)]
    verbose: u8,
}

/// Where help lists what every verb understands.
const GLOBAL: &str = "Global options";
/// The width of help where no terminal tells a smaller one.
const HELP_WIDTH: usize = 120;

#[derive(Debug, Subcommand)]
enum Verb {
    Demo(demo::Args),
    Run(Box<run::Args>),
    Simulate(simulate::Args),
    Replay(replay::Args),
    Why(why::Args),
    Validate(validate::Args),
    Render(render::Args),
    Diff(diff::Args),
    Plan(plan::Args),
    Review(review::Args),
    Snapshot(snapshot::Args),
    Explain(explain::Args),
    Ack(ack::Args),
    Promote(promote::Args),
    Init(init::Args),
    Lock(lock::Args),
    Migrate(migrate::Args),
    Schema(schema::Args),
    Catalog(catalog::Args),
    Completion(completion::Args),
    Version(version::Args),
}

impl Verb {
    fn run(&self, console: &Console) -> Result<Exit, Failure> {
        match self {
            Self::Demo(args) => demo::run(args, console),
            Self::Run(args) => run::run(args, console),
            Self::Simulate(args) => simulate::run(args, console),
            Self::Replay(args) => replay::run(args, console),
            Self::Why(args) => why::run(args, console),
            Self::Validate(args) => validate::run(args, console),
            Self::Render(args) => render::run(args, console),
            Self::Diff(args) => diff::run(args, console),
            Self::Plan(args) => plan::run(args, console),
            Self::Review(args) => review::run(args, console),
            Self::Snapshot(args) => snapshot::run(args, console),
            Self::Explain(args) => explain::run(args, console),
            Self::Ack(args) => ack::run(args, console),
            Self::Promote(args) => promote::run(args, console),
            Self::Init(args) => init::run(args, console),
            Self::Lock(args) => lock::run(args, console),
            Self::Migrate(args) => migrate::run(args, console),
            Self::Schema(args) => schema::run(args, console),
            Self::Catalog(args) => catalog::run(args, console),
            Self::Completion(args) => completion::run(args, console),
            Self::Version(args) => version::run(args, console),
        }
    }

    /// Whether Ctrl-C simply ends the verb. Others end themselves, because there is something to put away.
    fn ends_at_once(&self) -> bool {
        !matches!(self, Self::Run(_) | Self::Demo(_))
    }
}

/// Runs the program on its own command line.
pub fn main() -> ExitCode {
    run(std::env::args_os().collect()).into()
}

/// A variable that is set to nothing is as good as not set.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|arg| match arg.get_env().is_some_and(is_empty) {
        true => arg.env(None),
        false => arg,
    });
    command.mut_subcommands(without_empty_variables)
}

fn run(words: Vec<OsString>) -> Exit {
    let early = Early::read(&words);
    let console = Console::new(early.output, early.color);
    let command = Cli::command().color(match early.color {
        ColorChoice::Auto => clap::ColorChoice::Auto,
        ColorChoice::Always => clap::ColorChoice::Always,
        ColorChoice::Never => clap::ColorChoice::Never,
    });
    let command = if std::io::stdout().is_terminal() { command } else { command.term_width(HELP_WIDTH) };
    let mut command = without_empty_variables(command);
    let parsed = command.try_get_matches_from_mut(&words).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(mut error) => {
            name_variable(&mut error, &command, &words);
            name_forms(&mut error, &command, &words);
            return explain_usage(&error, &console);
        }
    };
    let console = Console::new(cli.global.output, cli.global.color);
    log::start(cli.global.log_format, cli.global.verbose);
    if cli.verb.ends_at_once() {
        interrupt::end_on_interrupt(|| ());
    }
    if let Some(form) = console.output.of_review().filter(|_| !matches!(cli.verb, Verb::Review(_))) {
        console.complain(
            &Failure::usage(format!("`--output {form}` is a form of `provisor review`"))
                .help("This verb prints `text` or `json`."),
        );
        return Exit::Usage;
    }
    match cli.verb.run(&console) {
        Ok(exit) => exit,
        Err(failure) => {
            console.complain(&failure);
            failure.exit
        }
    }
}

/// Adds the variable that a wrong value comes from: on the command line it is not to be seen.
fn name_variable(error: &mut clap::Error, command: &clap::Command, words: &[OsString]) {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return };
    let Some(flag) = argument.split(' ').next().filter(|flag| flag.starts_with("--")) else { return };
    let is_flag =
        |word: &str| word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
    if words.iter().filter_map(|word| word.to_str()).any(is_flag) {
        return;
    }
    if let Some(variable) = variable_of(command, flag.trim_start_matches('-')) {
        let tip = format!("the value is that of the environment variable {variable}");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

/// Names every form that `review` prints where none of them was asked for: in the lists of other verbs most would be wrong.
fn name_forms(error: &mut clap::Error, command: &clap::Command, words: &[OsString]) {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return };
    let is_verb = |word: &&str| command.get_subcommands().any(|verb| verb.get_name() == *word);
    let verb = words.iter().skip(1).filter_map(|word| word.to_str()).find(is_verb);
    if argument.starts_with("--output") && verb == Some("review") {
        let forms = Output::value_variants().iter().filter_map(Output::to_possible_value);
        let names = forms.map(|form| form.get_name().to_owned()).collect();
        error.insert(ContextKind::ValidValue, ContextValue::Strings(names));
    }
}

/// The variable that some argument of this name is read from, if it is set.
fn variable_of(command: &clap::Command, long: &str) -> Option<String> {
    let named = command.get_arguments().filter(|argument| argument.get_long() == Some(long));
    let set = named.filter_map(|argument| argument.get_env()).find(|name| std::env::var_os(name).is_some());
    let own = set.map(|name| name.to_string_lossy().into_owned());
    own.or_else(|| command.get_subcommands().find_map(|below| variable_of(below, long)))
}

/// Help and version are answers; everything else that the parser says is a wrong command line.
fn explain_usage(error: &clap::Error, console: &Console) -> Exit {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        drop(error.print());
        return Exit::Done;
    }
    if console.is_json() {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let help = text.lines().skip(1).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
        console.complain(&Failure::usage(message).help(help.join("\n")));
    } else {
        drop(error.print());
    }
    Exit::Usage
}

/// How to speak, known before the command line is understood, so that complaints about it have the right form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Early {
    output: Output,
    color: ColorChoice,
}

impl Early {
    fn read(words: &[OsString]) -> Self {
        let mut early = Self::default();
        let words: Vec<&str> =
            words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--").collect();
        for (index, word) in words.iter().enumerate() {
            let value = |names: &[&str]| {
                names.iter().find_map(|name| {
                    let rest = word.strip_prefix(name)?;
                    match rest.strip_prefix('=') {
                        Some(value) => Some(value),
                        None if rest.is_empty() => words.get(index + 1).copied(),
                        None if !name.starts_with("--") => Some(rest),
                        None => None,
                    }
                })
            };
            match value(&["--output", "-o"]) {
                Some("json") => early.output = Output::Json,
                Some("text") => early.output = Output::Text,
                Some("markdown") => early.output = Output::Markdown,
                _ => {}
            }
            match value(&["--color"]) {
                Some("always") => early.color = ColorChoice::Always,
                Some("never") => early.color = ColorChoice::Never,
                _ => {}
            }
        }
        early
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_form_of_complaints_is_known_before_the_command_line_is() {
        let read = |line: &str| Early::read(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in ["p plan --output json", "p -o json x", "p -ojson", "p --output=json plan --nonsense"] {
            assert_eq!(read(line).output, Output::Json, "{line}");
        }
        for line in ["p plan", "p plan -- --output json", "p --output", "p plan --output text"] {
            assert_eq!(read(line).output, Output::Text, "{line}");
        }
        assert_eq!(read("p plan --color=never").color, ColorChoice::Never);
    }
}
