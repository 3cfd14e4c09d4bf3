//! The figures that docs/reference/performance.md states: `cargo bench` prints them again.

mod timing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use provisor::gitops::render::{RenderSettings, validate_repository};
use provisor::model::repository::{CommitId, Repository, Revision};

use timing::best_of;

fn main() {
    println!("{:<52} {:>10} {:>10}", "figure", "best", "limit");
    let fleet = large_fleet(100, 10);
    let took = best_of(5, || {
        let report = validate_repository(&fleet, &RenderSettings::default());
        assert!(report.is_valid(), "the generated fleet is valid");
    });
    figure("validate 100 environments with 1,000 pools", took, Duration::from_secs(1));
    if let Some(peak) = peak_mebibytes() {
        println!("{:<52} {peak:>7} MiB {:>7} MiB", "the same, most memory of this process", 100);
    }
}

/// As Linux counts it; elsewhere nobody says.
fn peak_mebibytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes.div_ceil(1024))
}

fn figure(name: &str, took: Duration, limit: Duration) {
    println!("{name:<52} {:>8} ms {:>8} ms", took.as_millis(), limit.as_millis());
}

/// A fleet with a base and `environments` files of `pools` pools each.
fn large_fleet(environments: usize, pools: usize) -> Repository {
    let mut files: BTreeMap<Arc<str>, Arc<[u8]>> = BTreeMap::new();
    let mut put = |path: String, text: String| files.insert(path.into(), text.into_bytes().into());
    put("fleet.toml".into(), "name = \"large\"\n".into());
    put(
        "environments/base.toml".into(),
        "abstract = true\n[defaults.pool]\ninstance-categories = [\"c\", \"m\", \"r\"]\nlabels = { team = \"shop\" }\n".into(),
    );
    for environment in 0..environments {
        let mut text = String::from("extends = \"base\"\n");
        for pool in 0..pools {
            let strategy = ["spot", "on-demand", "spot-with-on-demand-fallback"][pool % 3];
            text.push_str(&format!(
                "\n[pools.pool-{pool}]\nstrategy = \"{strategy}\"\nweight = {}\nlimits = {{ cpu = \"{}\", memory = \"1Ti\" }}\nlabels = {{ slot = \"{pool}\" }}\n",
                pool % 100 + 1,
                100 + pool,
            ));
        }
        put(format!("environments/env-{environment:03}.toml"), text);
    }
    let commit = CommitId::parse(&"0".repeat(40)).expect("forty zeros are a commit id");
    let revision = Revision { commit, reference: None, subject: "generated".into(), author: "".into() };
    Repository { revision, files, refused: BTreeMap::new() }
}
