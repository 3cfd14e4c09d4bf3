//! The strategy language from files to objects.

use crate::fleet_files::{errors, fleet, manifest, repository, state};
use provisor::gitops::engine::BUILT_IN_STRATEGIES;

#[test]
fn every_built_in_strategy_renders() {
    for strategy in BUILT_IN_STRATEGIES {
        let state = state(&fleet(&format!("[pools.general]\nstrategy = \"{strategy}\"\n")));
        let pool = manifest(&state, "NodePool", "general");
        println!("{}", serde_json::to_string_pretty(&pool).unwrap());
        assert_eq!(pool["metadata"]["labels"]["provisor.dev/environment"], "prod", "{strategy}");
        assert_eq!(state.objects.len(), 2, "{strategy}: a pool and its class");
    }
}

#[test]
fn layers_overrides_and_classes_come_together() {
    let repository = repository(&[
        ("fleet.toml", "name = \"shop\"\n[defaults.pool]\nlimits = { cpu = 100 }\n"),
        (
            "environments/base.toml",
            "abstract = true\nregion = 'ap-northeast-2'\n[pools.general]\nstrategy = 'spot'\nlimits = { memory = '400Gi' }\n",
        ),
        (
            "environments/prod.toml",
            r#"
extends = "base"
variables = { team = "shop" }

[pools.general]
strategy = "spot-with-on-demand-fallback"
zones = ["ap-northeast-2a", "ap-northeast-2c"]
limits = { cpu = "200", nodes = 20 }
weight = 10
overrides = { spec.disruption.consolidateAfter = "5m", "spec.disruption.budgets[0].nodes" = "20%" }

[classes.default]
tags = { team = "shop" }
overrides = { spec.metadataOptions.httpPutResponseHopLimit = 2 }
"#,
        ),
    ]);
    let state = state(&repository);
    let pool = manifest(&state, "NodePool", "general");
    assert_eq!(pool["spec"]["limits"], serde_json::json!({ "cpu": "200", "memory": "400Gi", "nodes": "20" }));
    assert_eq!(pool["spec"]["weight"], 10);
    assert_eq!(pool["spec"]["disruption"]["consolidateAfter"], "5m");
    assert_eq!(pool["spec"]["disruption"]["budgets"][0]["nodes"], "20%");
    let class = manifest(&state, "EC2NodeClass", "default");
    assert_eq!(class["spec"]["metadataOptions"]["httpPutResponseHopLimit"], 2);
    assert_eq!(class["spec"]["role"], "KarpenterNodeRole-shop-prod");
    let object = state.objects.values().find(|object| object.manifest["kind"] == "NodePool").expect("a pool");
    let origin = |path: &str| object.origin(path).expect("an origin").to_string();
    assert_eq!(origin("spec.limits.cpu"), "environments/prod.toml:8:18");
    assert_eq!(origin("spec.limits.memory"), "environments/base.toml:5:21");
    assert_eq!(origin("spec.disruption.consolidateAfter"), "environments/prod.toml:10:50");
    assert_eq!(origin("spec.disruption.budgets[0].nodes"), "environments/prod.toml:10:93");
    assert_eq!(origin("spec.template.spec.requirements[0].values[1]"), "built-in:nodepool.yaml.j2:64:24");
}

#[test]
fn mistakes_are_told_together() {
    let found = errors(&fleet("[pools.general]\nstrategy = 'spott'\nlimts = { cpu = 1 }\nweight = '5'\n"));
    let codes: Vec<&str> = found.iter().map(|one| one.code).collect();
    assert_eq!(codes, ["PRV1201", "PRV1203"], "{found:?}");
}
