//! `provisor ack`: a person's word that a rewritten history is wanted.

use schemars::JsonSchema;
use serde::Serialize;

use super::repository::{RepositoryArgs, cache};
use crate::gitops::render::list_environments;
use crate::io::git::{self, Acknowledgement};
use crate::model::repository::CommitId;
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};

/// Accept a commit that rewrites history or moves a tag, for one protected environment
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It counts for that commit only: if the branch has moved on meanwhile, look at it again. The process that follows the repository
on this machine takes it at its next poll.

Examples:
  provisor ack prod --revision 8c1f0a9d4e0b6f7a2c3d5e6f708192a3b4c5d6e7 --repo https://git.example.com/fleet.git")]
pub struct Args {
    /// An environment by name
    #[arg(value_name = "ENV")]
    environment: String,
    /// The commit that waits, all 40 digits
    #[arg(long, value_name = "COMMIT")]
    revision: String,
    #[command(flatten)]
    repository: RepositoryArgs,
}

/// The commit that may be followed although history was rewritten.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AckDocument {
    version: u32,
    environment: String,
    /// All digits of its id.
    commit: String,
    /// The first line of its message.
    subject: String,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let commit = CommitId::parse(&args.revision).ok_or_else(|| {
        Failure::usage(format!("`{}` is not a whole commit id", args.revision))
            .help("copy all 40 digits from the notice of `provisor run`")
    })?;
    let repository = args.repository.open_at(commit.as_str(), console)?;
    let environments = list_environments(&repository)?;
    if !environments.iter().any(|known| *known.name == *args.environment && !known.is_abstract) {
        let names: Vec<&str> = environments.iter().map(|known| &*known.name).collect();
        return Err(Failure::input(format!(
            "commit {} has no environment `{}`",
            commit.short(),
            args.environment
        ))
        .help(format!("there is {}", names.join(", "))));
    }
    let source = git::open(&args.repository.at.source(&args.repository.repo)?, &cache())?;
    Acknowledgement::of(&source, &args.environment, &cache()).write(&commit)?;
    if console.is_json() {
        console.json(&AckDocument {
            version: 1,
            environment: args.environment.clone(),
            commit: commit.to_string(),
            subject: repository.revision.subject.to_string(),
        })?;
    }
    console.talk(&format!(
        "{} will follow {} \"{}\" at its next poll, if that is still the head",
        args.environment,
        commit.short(),
        repository.revision.subject
    ));
    Ok(Exit::Done)
}
