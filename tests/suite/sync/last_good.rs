//! From the files of a commit to writes: an environment that cannot be rendered keeps what it has, alone.

use provisor::gitops::policy::{BlastLimits, PruneMode, SyncPolicy};
use provisor::gitops::render::{RenderSettings, render_environment};
use provisor::gitops::sync::{GitEvent, Sync, SyncState};
use provisor::model::repository::{CommitId, Repository};

use super::bench::*;
use crate::fleet_files::repository;

const FLEET: (&str, &str) = ("fleet.toml", "name = \"shop\"\n");
const GOOD: &str = "[pools.web]\nstrategy = 'spot'\n[pools.batch]\nstrategy = 'spot'\n";
/// One pool is gone and the other one changed.
const NEXT: &str = "[pools.web]\nstrategy = 'spot'\nweight = 7\n";

/// An environment that may remove all it likes, with what it did.
fn environment(name: &str) -> Bench {
    let limits = BlastLimits { pools_max: 100, nodes_percent: 100, ..BlastLimits::default() };
    let policy = SyncPolicy { prune: PruneMode::Retire, limits, ..policy() };
    let mut bench = Bench::new(policy.clone());
    bench.sync = Sync::new(name, policy, None);
    bench
}

/// A commit reaches an environment, as the controller hands it on.
fn arrives(bench: &mut Bench, number: u32, mut files: Repository) {
    files.revision.commit = CommitId::parse(&format!("{number:040x}")).expect("forty digits");
    let name = bench.sync.environment().to_string();
    match render_environment(&files, &name, &RenderSettings::default()) {
        Ok((state, _)) => bench.push(&std::sync::Arc::new(state)),
        Err(found) => {
            let errors = found.into_iter().map(|one| one.to_string()).collect();
            bench.sync.observe(bench.now, GitEvent::RenderFailed { revision: files.revision, errors });
        }
    }
    bench.run_for(600);
}

#[test]
fn ren_036_three_of_four_environments_sync_and_the_broken_one_keeps_its_last_good_state() {
    let names = ["a", "b", "c", "d"];
    let path = |name: &str| format!("environments/{name}.toml");
    let commit = |of: &dyn Fn(&str) -> &'static str| {
        let files: Vec<(String, &str)> = names.iter().map(|name| (path(name), of(name))).collect();
        let mut all = vec![FLEET];
        all.extend(files.iter().map(|(path, text)| (path.as_str(), *text)));
        repository(&all)
    };
    for name in names {
        let mut bench = environment(name);
        arrives(&mut bench, 1, commit(&|_| GOOD));
        assert_eq!(bench.writes().len(), 3, "{name}: a class and two pools");
        let good = bench.server.objects.clone();
        arrives(&mut bench, 2, commit(&|name| if name == "d" { "[pools.web]\nstrategy = \n" } else { NEXT }));
        let status = bench.sync.status(bench.now);
        if name == "d" {
            assert_eq!(bench.writes(), [""; 0]);
            assert_eq!(bench.server.objects, good);
            assert_eq!(status.sync, SyncState::Blocked);
            assert_eq!(status.last_applied_revision.as_deref(), Some(&*format!("{:040x}", 1)));
            assert!(
                status.conditions[0].message.contains("environments/d.toml:2:"),
                "{:?}",
                status.conditions
            );
        } else {
            assert_eq!(bench.writes(), ["apply NodePool/web", "delete NodePool/batch"], "{name}");
            assert_eq!(bench.server.get("web")["spec"]["weight"], 7);
            assert_eq!(status.last_applied_revision.as_deref(), Some(&*format!("{:040x}", 2)));
        }
    }
}

#[test]
fn ren_054_an_environment_that_vanished_keeps_its_last_good_state_and_loses_nothing() {
    for vanished in [
        repository(&[FLEET, ("environments/dev.toml", GOOD)]),
        repository(&[FLEET, ("environments/dev.toml", GOOD), ("environments/old/prod.toml", GOOD)]),
        repository(&[FLEET]),
        repository(&[]),
    ] {
        let mut bench = environment("prod");
        arrives(&mut bench, 1, repository(&[FLEET, ("environments/prod.toml", GOOD)]));
        assert_eq!(bench.writes().len(), 3);
        let good = bench.server.objects.clone();
        let has_fleet = vanished.files.contains_key("fleet.toml");
        arrives(&mut bench, 2, vanished);
        bench.run_for(24 * 3600);
        assert_eq!(bench.writes(), [""; 0], "nothing is written and nothing deleted");
        assert_eq!(bench.server.objects, good);
        let status = bench.sync.status(bench.now);
        assert_eq!(status.sync, SyncState::Blocked);
        assert_eq!(status.last_applied_revision.as_deref(), Some(&*format!("{:040x}", 1)));
        if has_fleet {
            let message = &status.conditions[0].message;
            assert!(message.contains("PathNotFound: there is no environment `prod`"), "{message}");
        }
        // Nothing is lost either when it comes back.
        arrives(&mut bench, 3, repository(&[FLEET, ("environments/prod.toml", NEXT)]));
        assert_eq!(bench.writes(), ["apply NodePool/web", "delete NodePool/batch"]);
    }
}
