//! `provisor snapshot`: a cluster in a file, reduced to what decides about nodes, so that it may be handed to a pipeline.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::plan::read_input;
use crate::api::reduced::reduce;
use crate::model::count::counted;
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};

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

/// What is printed in either form: the objects in the frame of Kubernetes, so that `kubectl` reads it too.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotDocument {
    /// `v1`.
    api_version: &'static str,
    /// `List`.
    kind: &'static str,
    /// Objects of Kubernetes, each reduced to what decides about nodes.
    items: Vec<Value>,
}

impl SnapshotDocument {
    /// One object a line: a cluster has many, and they are read again by a program.
    fn lines(&self) -> String {
        let Self { api_version, kind, items } = self;
        let mut text =
            format!("{{\"apiVersion\":{},\"kind\":{},\"items\":[", json!(api_version), json!(kind));
        for (number, object) in items.iter().enumerate() {
            text.push_str(if number > 0 { ",\n" } else { "\n" });
            text.push_str(&object.to_string());
        }
        text.push_str("\n]}\n");
        text
    }
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
    let document = SnapshotDocument { api_version: "v1", kind: "List", items: reduced.objects };
    console.json_text(&document.lines())?;
    Ok(Exit::Done)
}
