//! `roll` of a pool in the strategy: what it becomes, and what is said of it.

use serde_json::json;

use crate::fleet_files::{fleet, manifest, render, repository, state};
use provisor::api::{self, Object};
use provisor::gitops::diagnostic::Diagnostic;
use provisor::io::cloud::simulated::SimulatedCluster;
use provisor::model::action::{Action, PoolChange};
use provisor::model::catalog::Catalog;
use provisor::model::observation::Observation;
use provisor::model::pool::BudgetNodes;
use provisor::model::roll::{Roll, RollFailures};
use provisor::model::time::SignedDuration;
use provisor::simulator::world::Habits;

const KEY: &str = "provisor.dev/roll";

fn pool(lines: &str) -> serde_json::Value {
    manifest(&state(&fleet(&format!("[pools.a]\nstrategy = 'spot'\n{lines}\n"))), "NodePool", "a")
}

fn read(pool: &serde_json::Value) -> provisor::model::pool::NodePool {
    match api::parse(pool) {
        Ok(Object::NodePool(pool)) => pool,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_roll_becomes_one_annotation_with_what_is_given() {
    let pool_with = pool(
        "description = 'x'\nroll = { soak = '30m', canary = 2, surge = '10%', paused = true, halt-after = 5, x-why = 1 }",
    );
    let annotations = &pool_with["metadata"]["annotations"];
    assert_eq!(
        annotations[KEY],
        json!(r#"{"paused":true,"canary":2,"soak":"30m","surge":"10%","halt-after":5}"#)
    );
    assert_eq!(annotations["kubernetes.io/description"], "x", "others stay");
    let expected = Roll {
        is_paused: true,
        canary: 2,
        soak: SignedDuration::from_mins(30),
        surge: Some(BudgetNodes::Percent(10)),
        halt_after: 5,
    };
    assert_eq!(read(&pool_with).roll, Ok(expected));
    let plain = pool("");
    assert!(plain["metadata"]["annotations"].get(KEY).is_none());
    assert_eq!(read(&plain).roll, Ok(Roll::default()));
    assert_eq!(read(&plain).hash, read(&pool_with).hash, "nodes do not drift by it");
}

#[test]
fn layers_of_a_roll_merge() {
    let files = [
        ("fleet.toml", "name = 'shop'\n"),
        (
            "environments/base.toml",
            "abstract = true\n[defaults.pool.roll]\ncanary = 1\nsoak = '5m'\n[pools.a]\nstrategy = 'spot'\n",
        ),
        ("environments/prod.toml", "extends = 'base'\n[pools.a.roll]\nsoak = '1h'\n"),
    ];
    let pool = manifest(&state(&repository(&files)), "NodePool", "a");
    assert_eq!(pool["metadata"]["annotations"][KEY], json!(r#"{"canary":1,"soak":"1h"}"#));
}

fn told(prod: &str) -> Vec<Diagnostic> {
    match render(&fleet(prod)) {
        Ok((_, warnings)) => warnings,
        Err(found) => found.into_iter().collect(),
    }
}

#[test]
fn a_roll_that_cannot_be_is_told_where_it_is_written() {
    for (line, expected) in [
        ("roll = { surge = 0 }", "error PRV1640 3:18"),
        ("roll = { soak = '0s', surge = '0%' }", "error PRV1640 3:31"),
        ("overrides = { metadata.annotations.'provisor.dev/roll' = '{\"paused\":1}' }", "error PRV1640 3:58"),
        (
            "overrides = { metadata.annotations.'provisor.dev/roll' = '{\"pause\":true}' }",
            "error PRV1640 3:58",
        ),
        // The schema knows these.
        ("roll = { canary = -1 }", "error PRV1206 3:19"),
        ("roll = { pause = true }", "error PRV1201 3:10"),
        ("roll = { paused = 'yes' }", "error PRV1202 3:19"),
        ("roll = { soak = 'ten' }", "error PRV1203 3:17"),
        ("roll = { halt-after = 0 }", "error PRV1206 3:23"),
    ] {
        let found = told(&format!("[pools.a]\nstrategy = 'spot'\n{line}\n"));
        let places: Vec<String> = found
            .iter()
            .map(|one| {
                let (line, column) = one.place.position();
                format!("{} {} {line}:{column}", one.severity, one.code)
            })
            .collect();
        assert_eq!(places, [expected], "{line}: {found:#?}");
    }
    let found = told("engine = 'karpenter'\n[pools.a]\nstrategy = 'spot'\nroll.paused = true\n");
    assert_eq!(found.iter().map(|one| one.code).collect::<Vec<_>>(), ["PRV1641"], "{found:#?}");
}

#[test]
fn an_annotation_that_cannot_be_read_holds_the_roll_of_a_pool_that_is_used() {
    for (key, text) in [(KEY, r#"{"paused":"yes"}"#), ("provisor.dev/roll-failures", "three")] {
        let mut object = pool("");
        object["metadata"]["annotations"][key] = json!(text);
        let read = read(&object);
        let fault = read.roll.expect_err("it cannot be read");
        assert_eq!((fault.key.as_str(), fault.text.as_str()), (key, text));
        assert!(read.is_ready && read.fault.is_none(), "nodes are bought all the same");
        // Whoever reads what we write knows it as well.
        let written = api::to_value(&Object::NodePool(read.clone())).expect("we write pools");
        assert_eq!(self::read(&written).roll, Err(fault));
    }
}

#[test]
fn a_simulated_cluster_keeps_what_is_remembered_at_a_pool() {
    let start = "2026-03-04T10:30:00Z".parse().expect("a moment");
    let catalog = std::sync::Arc::new(Catalog::builtin("us-east-1").expect("a region"));
    let mut cluster = SimulatedCluster::new(7, start, catalog, Habits::default());
    let remember = |count| {
        let failures = Some(RollFailures { count, goal: "ab".into() });
        let change = PoolChange { roll_failures: failures, ..PoolChange::default() };
        Action::UpdatePool { pool: "a".into(), change }
    };
    let remembered = |cluster: &mut SimulatedCluster| {
        let seen = cluster.take_news().into_iter().filter_map(|(_, seen)| match seen {
            Observation::Pool(pool) => Some(pool.roll_failures.map(|failures| failures.count)),
            _ => None,
        });
        let seen = seen.last().expect("the pool changed");
        let stored = &cluster.manifest("NodePool", "a").expect("it is there")["metadata"]["annotations"];
        assert_eq!(stored.get("provisor.dev/roll-failures").is_some(), seen.is_some());
        seen
    };
    cluster.apply(&pool("")).expect("it is taken");
    assert_eq!(remembered(&mut cluster), None);
    cluster.perform(&remember(2));
    assert_eq!(remembered(&mut cluster), Some(2));
    cluster.apply(&pool("weight = 3")).expect("it is taken");
    assert_eq!(remembered(&mut cluster), Some(2), "whoever applies the pool knows nothing of it");
    cluster.perform(&remember(0));
    assert_eq!(remembered(&mut cluster), None);
}
