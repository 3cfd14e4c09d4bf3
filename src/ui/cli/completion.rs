//! `provisor completion`: what shells offer after a tab.

use clap::CommandFactory;
use schemars::JsonSchema;
use serde::Serialize;

use super::Cli;
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  provisor completion bash > /etc/bash_completion.d/provisor
  provisor completion zsh > \"${fpath[1]}/_provisor\"
  provisor completion fish > ~/.config/fish/completions/provisor.fish")]
pub struct Args {
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct CompletionDocument {
    version: u32,
    shell: String,
    script: String,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "provisor", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    if console.is_json() {
        console.json(&CompletionDocument { version: 1, shell: args.shell.to_string(), script })?;
    } else {
        console.data(&script)?;
    }
    Ok(Exit::Done)
}
