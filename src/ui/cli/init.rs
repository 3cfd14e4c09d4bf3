//! `provisor init`: a first fleet, small and full of comments, as a Git repository with one commit.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::validate::settings;
use crate::gitops::render::validate_repository;
use crate::gitops::schema::{Draft, SchemaKind, schema_of};
use crate::io::clock;
use crate::io::git::{Author, Limits, Symlinks, commit_files, has_commits, init_repository, read_directory};
use crate::model::count::counted;
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};

/// Write a commented starter fleet into an empty directory or repository and commit it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  provisor init fleet
  provisor init fleet --name shop
  cd fleet && provisor validate && provisor render dev")]
pub struct Args {
    /// An empty directory, a repository without a commit, or a directory that does not exist yet
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// The name of the fleet; the directory's name by default
    #[arg(long)]
    name: Option<String>,
    /// Write the files only: no repository, no commit
    #[arg(long)]
    no_git: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct InitDocument {
    version: u32,
    name: String,
    directory: String,
    files: Vec<String>,
    /// The first commit; null with `--no-git`.
    commit: Option<String>,
}

/// Path in the new repository, and content in which `FLEET` stands for the fleet's name.
const FILES: [(&str, &str); 4] = [
    ("fleet.toml", include_str!("init/starter/fleet.toml")),
    ("environments/dev.toml", include_str!("init/starter/dev.toml")),
    ("environments/prod.toml", include_str!("init/starter/prod.toml")),
    ("README.md", include_str!("init/starter/README.md")),
];

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let dir = &args.dir;
    let shown = dir.display();
    let written = |error: std::io::Error| {
        Failure::outside(format!("`{shown}` cannot be written"))
            .caused_by(&error)
            .help("Check the space and the rights.")
    };
    let is_cloned = must_be_empty(dir)? == Found::EmptyRepository;
    let name = match &args.name {
        Some(name) => fleet_name(name).filter(|plain| plain == name).ok_or_else(|| {
            Failure::usage(format!("`{name}` is no name for a fleet"))
                .help("Use lower-case letters, digits and hyphens, such as `shop`.")
        })?,
        None => name_of(dir).unwrap_or_else(|| "fleet".into()),
    };
    let files = files(&name);
    fs::create_dir_all(dir).map_err(written)?;
    let commit = if args.no_git {
        for (path, content) in &files {
            let path = dir.join(&**path);
            path.parent().map_or(Ok(()), fs::create_dir_all).map_err(written)?;
            fs::write(&path, content).map_err(written)?;
        }
        None
    } else {
        if !is_cloned {
            init_repository(dir)?;
        }
        Some(commit_files(dir, &files, "A first fleet\n", &author(), clock::now())?)
    };
    let report =
        validate_repository(&read_directory(dir, &Limits::default(), Symlinks::Refused)?, &settings());
    if !report.is_valid() {
        return Err(report.diagnostics.into());
    }
    if console.is_json() {
        console.json(&InitDocument {
            version: 1,
            name,
            directory: shown.to_string(),
            files: files.keys().map(ToString::to_string).collect(),
            commit: commit.map(|commit| commit.to_string()),
        })?;
        return Ok(Exit::Done);
    }
    for path in files.keys() {
        console.data(&format!("{}\n", dir.join(&**path).display()))?;
    }
    let committed = commit.map_or(String::new(), |commit| format!(", committed as {}", commit.short()));
    let change = if dir.as_path() == Path::new(".") {
        String::new()
    } else {
        format!("cd {} && ", quoted(&shown.to_string()))
    };
    console.talk(&format!(
        "\nFleet `{name}`: {}{committed}. Next:\n  {change}provisor validate\n  {change}provisor render dev",
        counted(files.len(), "file")
    ));
    Ok(Exit::Done)
}

/// A path as a shell takes it.
fn quoted(path: &str) -> String {
    let is_plain = path.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-+~@%".contains(letter));
    if is_plain { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[derive(PartialEq, Eq)]
enum Found {
    Nothing,
    /// A repository without a commit and without files, such as a fresh clone.
    EmptyRepository,
}

fn must_be_empty(dir: &Path) -> Result<Found, Failure> {
    let shown = dir.display();
    let unread = |error| Failure::outside(format!("`{shown}` cannot be read")).caused_by(&error);
    let mut entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(Failure::input(format!("`{shown}` is not a directory"))
                .help("Name an empty directory or a new one."));
        }
        Err(error) => return Err(unread(error)),
    };
    let Some(first) = entries.next().transpose().map_err(unread)? else { return Ok(Found::Nothing) };
    if first.file_name() == ".git" && entries.next().is_none() && !has_commits(dir)? {
        return Ok(Found::EmptyRepository);
    }
    Err(Failure::input(format!("`{shown}` is not empty"))
        .help("Name an empty directory or a new one: `provisor init fleet`."))
}

/// The directory's own name as far as it can name a fleet.
fn name_of(dir: &Path) -> Option<String> {
    let absolute = std::path::absolute(dir).ok()?;
    fleet_name(absolute.file_name()?.to_str()?)
}

/// Lower-case letters, digits and hyphens, beginning with a letter; everything else becomes a hyphen.
fn fleet_name(text: &str) -> Option<String> {
    let plain: String = text
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' })
        .collect();
    let plain = plain.trim_start_matches(|letter: char| !letter.is_ascii_lowercase()).trim_end_matches('-');
    (!plain.is_empty() && plain.len() <= 40).then(|| plain.to_owned())
}

fn files(name: &str) -> BTreeMap<Arc<str>, Arc<[u8]>> {
    let bytes = |text: &str| Arc::<[u8]>::from(text.as_bytes());
    let starter = FILES.iter().map(|(path, text)| (Arc::from(*path), bytes(&text.replace("FLEET", name))));
    let schemas = [SchemaKind::Fleet, SchemaKind::Environment].into_iter().map(|kind| {
        let path = format!("schema/{}.schema.json", kind.name());
        // The common TOML language server knows draft 4 only.
        (Arc::from(path), bytes(&schema_of(kind, Draft::Draft4)))
    });
    starter.chain(schemas).collect()
}

/// Whoever Git's own variables name, else the program.
fn author() -> Author {
    let read = |name| std::env::var(name).ok().filter(|value: &String| !value.trim().is_empty());
    Author {
        name: read("GIT_AUTHOR_NAME").unwrap_or_else(|| "Provisor".into()),
        email: read("GIT_AUTHOR_EMAIL").unwrap_or_else(|| "provisor@localhost".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_directory_can_name_a_fleet() {
        assert_eq!(fleet_name("shop").as_deref(), Some("shop"));
        assert_eq!(fleet_name("My Fleet_2").as_deref(), Some("my-fleet-2"));
        assert_eq!(fleet_name("2024"), None);
        assert_eq!(fleet_name(".tmpAb").as_deref(), Some("tmpab"));
    }
}
