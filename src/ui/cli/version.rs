//! `provisor version`: which program this is, and what it was built with.

use schemars::JsonSchema;
use serde::Serialize;

use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};

/// Print the version and what this build can do
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  provisor version
  provisor version --output json")]
pub struct Args {}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionDocument {
    version: u32,
    /// The version of the program.
    provisor: String,
    /// Cargo features of this build, such as `aws`.
    features: Vec<String>,
    os: String,
    architecture: String,
}

pub fn run(_args: &Args, console: &Console) -> Result<Exit, Failure> {
    let features: Vec<String> = cfg!(feature = "aws").then(|| "aws".to_owned()).into_iter().collect();
    let number = env!("CARGO_PKG_VERSION");
    if console.is_json() {
        console.json(&VersionDocument {
            version: 1,
            provisor: number.into(),
            features,
            os: std::env::consts::OS.into(),
            architecture: std::env::consts::ARCH.into(),
        })?;
    } else {
        let clouds = if features.is_empty() { "simulated cloud only" } else { "simulated cloud, EC2" };
        console.data(&format!("provisor {number} ({clouds})\n"))?;
    }
    Ok(Exit::Done)
}
