//! The command line as a page of documentation, made from what the parser knows.

use clap::{Command, CommandFactory};

use super::{Cli, HELP_WIDTH};

/// `docs/reference/cli.md`: every verb with its help, as the program prints it.
pub fn reference() -> String {
    let mut page = String::from(
        "# Command line\n\n\
         <!-- Generated from the program: `make accept` rewrites it. -->\n\n\
         Data goes to standard output, everything else to standard error. Exit codes mean the same for every verb:\n\n\
         | code | meaning |\n\
         |---|---|\n\
         | 0 | done; planned; same; pass |\n\
         | 1 | the answer is no: differs (`diff`), failed, not healthy |\n\
         | 2 | the input is wrong: file, line, column, why, what to do |\n\
         | 3 | the outside world failed or refuses for now; a retry may help |\n\
         | 4 | only with `--detailed-exitcode`: there is something to do |\n\
         | 5 | stale or out of time |\n\
         | 64 | the command line is wrong; also: asking for AWS in a build without the feature `aws` |\n\
         | 130 | interrupted: by Ctrl-C; `run` also by a closed terminal (SIGHUP), and on a real cluster by SIGTERM |\n\n\
         With `--output json` the answer is one JSON document with a `version`, described by the schemas in\n\
         `config-schema/output/`; errors and notices are JSON on standard error, one document per line.\n\
         `NO_COLOR`, `CLICOLOR_FORCE` and `--color` choose colours, `PROVISOR_LOG` filters the log (`provisor::io=debug`).\n",
    );
    let mut root = Cli::command().term_width(HELP_WIDTH);
    root.build();
    write_command(&mut page, &mut root, 2);
    page
}

fn write_command(page: &mut String, command: &mut Command, depth: usize) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    page.push_str(&format!(
        "\n{} {name}\n\n```text\n{}\n```\n",
        "#".repeat(depth.min(4)),
        help.join("\n").trim_end()
    ));
    let verbs: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for verb in verbs.iter().filter(|verb| *verb != "help") {
        if let Some(verb) = command.find_subcommand_mut(verb) {
            write_command(page, verb, depth + 1);
        }
    }
}
