//! `provisor snapshot`: a cluster in a file, reduced to what decides about nodes, so that it may be handed to a pipeline.

use std::path::PathBuf;

use serde_json::json;

use super::plan::read_input;
use crate::api::reduced::reduce;
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};
use crate::ui::table::counted;

/// Reduce the objects of a cluster to what decides about nodes: nothing secret is left
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Environment, commands, images, Secrets, ConfigMaps, user data and annotations of others are left out; a plan or a review made from
what is left is the same. What is printed is a `List` in JSON, for --snapshot of `plan` and `review`.

Exit codes: 0 printed, 2 the input is wrong.

Examples:
  kubectl get nodes,pods,nodeclaims,nodepools,ec2nodeclasses,daemonsets -A -o yaml | provisor snapshot > cluster.json
  provisor snapshot cluster.yaml > cluster.json")]
pub struct Args {
    /// Kubernetes objects, as YAML documents or JSON; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let (bytes, name) = read_input(&args.file)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::input(format!("{name} is not UTF-8 text")).help("Write it with `kubectl get … -o yaml`.")
    })?;
    let reduced = reduce(&text, &name).map_err(|error| {
        Failure::input(error.to_string()).help("`kubectl get … -A -o yaml` writes what is expected here.")
    })?;
    if reduced.left_out > 0 {
        let objects = counted(reduced.left_out, "object");
        console.notice(&format!("{objects} of kinds that decide nothing about nodes left out"));
    }
    // One object a line: a cluster has many, and they are read again by a program.
    let mut text = String::from("{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[");
    for (number, object) in reduced.objects.iter().enumerate() {
        text.push_str(if number > 0 { ",\n" } else { "\n" });
        text.push_str(&json!(object).to_string());
    }
    text.push_str("\n]}\n");
    console.json_text(&text)?;
    Ok(Exit::Done)
}
