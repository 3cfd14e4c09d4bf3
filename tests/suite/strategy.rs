//! The strategy language from files to objects.

use crate::fleet_files::{errors, fleet, manifest, render, repository, state};
use provisor::gitops::engine::BUILT_IN_STRATEGIES;
use serde_json::Value;

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
    assert_eq!(
        origin("spec.template.spec.requirements[0].values[1]"),
        "built-in:spot-with-on-demand-fallback.yaml.j2:2:35"
    );
}

#[test]
fn mistakes_are_told_together() {
    let found = errors(&fleet("[pools.general]\nstrategy = 'spott'\nlimts = { cpu = 1 }\nweight = '5'\n"));
    let codes: Vec<&str> = found.iter().map(|one| one.code).collect();
    assert_eq!(codes, ["PRV1401", "PRV1201", "PRV1203"], "{found:?}");
}

/// A hundred environments with ten pools each, all on one base.
fn large() -> provisor::model::repository::Repository {
    let pools = |environment: usize| -> String {
        (0..10)
            .map(|pool| {
                format!(
                    "[pools.p{pool}]\nstrategy = \"spot-with-on-demand-fallback\"\nzones = [\"ap-northeast-2a\", \"ap-northeast-2c\"]\nlimits = {{ cpu = \"{}\", memory = \"800Gi\" }}\nweight = 10\nlabels = {{ role = \"web\", team = \"t{environment}\" }}\ntaints = [\"dedicated=p{pool}:NoSchedule\"]\nbudgets = [{{ name = \"always\", nodes = \"10%\" }}]\noverrides = {{ spec.disruption.consolidateAfter = \"5m\" }}\n",
                    pool + 1
                )
            })
            .collect()
    };
    let files: Vec<(String, String)> = (0..100)
        .map(|at| (format!("environments/e{at}.toml"), format!("extends = \"base\"\n{}", pools(at))))
        .collect();
    let mut all = vec![("fleet.toml", "name = \"shop\"\n"), ("environments/base.toml", "abstract = true\n")];
    all.extend(files.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    repository(&all)
}

#[test]
fn a_thousand_pools_are_judged_quickly() {
    use provisor::gitops::render::{RenderSettings, validate_repository};
    let repository = large();
    let (report, cost) = crate::cost::of(|| validate_repository(&repository, &RenderSettings::default()));
    let took = cost.time;
    assert!(report.is_valid(), "{}", report.diagnostics);
    assert_eq!(report.environments.iter().map(|one| one.pools).sum::<usize>(), 1000);
    println!("{took:?}");
    // Without optimisation it takes a multiple of the second that a release build has.
    assert!(took < std::time::Duration::from_secs(30), "{took:?}");
}

#[test]
fn ren_040_ren_041_what_cannot_be_bought_is_told() {
    let said = |more: &str| {
        let prod = format!("region = 'ap-northeast-2'\n[pools.a]\n{more}");
        match crate::fleet_files::render(&fleet(&prod)) {
            Ok(_) => String::new(),
            Err(found) => found.to_string(),
        }
    };
    for strategy in BUILT_IN_STRATEGIES {
        assert_eq!(said(&format!("strategy = '{strategy}'\n")), "", "{strategy}");
    }
    let none = said("strategy = 'spot'\ninstance-families = ['t3']\ninstance-cpu-min = 64\n");
    assert!(
        none.starts_with(
            "environments/prod.toml:5:20: error[PRV1602]: no instance type is left for pool `a`"
        ),
        "{none}"
    );
    assert!(none.contains("`karpenter.k8s.aws/instance-cpu Gt [63]` removed the last "), "{none}");
    let typo = said("strategy = 'spot'\ninstance-types = ['t3.medum']\n");
    assert!(
        typo.starts_with("environments/prod.toml:4:19: error[PRV1618]: there is no instance type `t3.medum`"),
        "{typo}"
    );
    assert!(typo.contains("did you mean `t3.medium`?"), "{typo}");
    // Spot alone, where nothing is sold as spot.
    let catalog = provisor::model::catalog::Catalog::builtin("ap-northeast-2").expect("it is built in");
    let mut types = catalog.instance_types(None).to_vec();
    for shape in &mut types {
        shape
            .offerings
            .retain(|offering| offering.capacity_type != provisor::model::offering::CapacityType::Spot);
    }
    let settings = provisor::gitops::render::RenderSettings {
        instances: Some(std::sync::Arc::new(provisor::gitops::check::Instances::of(std::sync::Arc::new(
            types,
        )))),
        ..Default::default()
    };
    let repository = fleet("[pools.a]\nstrategy = 'spot'\ncapacity-types = ['spot']\n");
    let found =
        provisor::gitops::render::render_environment(&repository, "prod", &settings).expect_err("no spot");
    let found = found.to_string();
    assert!(
        found.starts_with("environments/prod.toml:3:18: error[PRV1603]: pool `a` can buy nothing"),
        "{found}"
    );
    let zone = said("strategy = 'spot'\nzones = ['ap-northeast-2z']\n");
    assert!(zone.contains("error[PRV1603]: pool `a` can buy nothing"), "{zone}");
}

#[test]
fn a_class_that_is_made_elsewhere_is_named_and_not_rendered() {
    let repository =
        fleet("[pools.a]\nstrategy = 'spot'\nclass = 'shared'\n[classes.shared]\nexternal = true\n");
    let state = state(&repository);
    assert_eq!(state.objects.keys().map(ToString::to_string).collect::<Vec<_>>(), ["NodePool/a"]);
}

/// The requirements of a pool on instances, as `label operator values`.
fn on_instances(strategy: &str, lines: &str) -> Vec<String> {
    let prod = format!("region = 'us-east-1'\n[pools.a]\nstrategy = '{strategy}'\n{lines}\n");
    let (state, _) = render(&fleet(&prod)).unwrap_or_else(|found| panic!("{strategy} {lines}: {found}"));
    let pool = manifest(&state, "NodePool", "a");
    let all = pool["spec"]["template"]["spec"]["requirements"].as_array().expect("requirements").clone();
    let short = |one: &Value| {
        let label = one["key"].as_str()?.split_once("/instance-")?.1.to_owned();
        let values = one["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Some(format!("{label} {} {}", one["operator"].as_str()?, values.collect::<Vec<_>>().join(",")))
    };
    all.iter().filter_map(short).collect()
}

#[test]
fn bounds_narrow_the_strategys_choice_of_instances() {
    let usual = ["category In c,m,r", "generation Gt 2"];
    for strategy in ["spot", "on-demand", "static"] {
        for (lines, more) in [
            ("instance-cpu-max = 8", "cpu Lt 9"),
            ("instance-cpu-min = 4", "cpu Gt 3"),
            ("requirements = { 'karpenter.k8s.aws/instance-hypervisor' = ['nitro'] }", "hypervisor In nitro"),
            (
                "requirements = { 'karpenter.k8s.aws/instance-category' = { operator = 'NotIn', values = ['m'] } }",
                "category NotIn m",
            ),
            (
                "requirements = { 'karpenter.k8s.aws/instance-family' = { operator = 'NotIn', values = ['m5'] } }",
                "family NotIn m5",
            ),
            (
                "requirements = { 'karpenter.k8s.aws/instance-generation' = { operator = 'Lt', values = ['7'] } }",
                "generation Lt 7",
            ),
        ] {
            assert_eq!(
                on_instances(strategy, lines),
                [usual.as_slice(), &[more]].concat(),
                "{strategy} {lines}"
            );
        }
        assert_eq!(
            on_instances(strategy, "instance-generation-min = 5"),
            ["category In c,m,r", "generation Gt 4"]
        );
    }
    let gpus = ["category In g,p", "gpu-manufacturer In nvidia"];
    for strategy in ["gpu-spot", "gpu-premium"] {
        let found = on_instances(strategy, "instance-cpu-max = 16\ninstance-generation-min = 5");
        assert_eq!(found, [gpus.as_slice(), &["generation Gt 4", "cpu Lt 17"]].concat(), "{strategy}");
    }
}

#[test]
fn types_families_categories_and_sizes_replace_the_strategys_choice() {
    for (field, label, values) in [
        ("instance-types", "node.kubernetes.io/instance-type", "m5.large"),
        ("instance-families", "karpenter.k8s.aws/instance-family", "m5"),
        ("instance-categories", "karpenter.k8s.aws/instance-category", "m"),
        ("instance-sizes", "karpenter.k8s.aws/instance-size", "large"),
    ] {
        let short = label.split_once("/instance-").expect("a label of instances").1;
        let expected = [format!("{short} In {values}"), "cpu Lt 9".to_owned()];
        let found = on_instances("spot", &format!("{field} = ['{values}']\ninstance-cpu-max = 8"));
        assert_eq!(found, expected, "{field}");
        let written = format!("instance-cpu-max = 8\nrequirements = {{ '{label}' = ['{values}'] }}");
        let mut found = on_instances("spot", &written);
        found.reverse();
        assert_eq!(found, expected, "{label}");
    }
}
