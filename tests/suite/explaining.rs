//! Where a value came from, whatever way it took: through variables, templates and overrides, to the line that set it.

use crate::fleet_files::{errors, manifest, repository, state};
use provisor::gitops::explain::{ExplainedField, explain};
use provisor::gitops::render::RenderSettings;
use provisor::model::repository::Repository;

const FLEET: (&str, &str) = ("fleet.toml", "name = \"shop\"\n");
const PROD: (&str, &str) = ("environments/prod.toml", "[pools.general]\nstrategy = \"mine\"\n");

/// A pool of the strategy `mine`, whose template is this.
fn mine(template: &str) -> Repository {
    repository(&[FLEET, PROD, ("templates/mine.yaml.j2", template)])
}

fn explained(repository: &Repository, field: &str) -> Vec<ExplainedField> {
    let found = explain(repository, "prod", "general", Some(field), &RenderSettings::default());
    found.unwrap_or_else(|found| panic!("{found}")).fields
}

/// Value and place of every layer of a field, the winner last.
fn told(repository: &Repository, field: &str) -> Vec<String> {
    let fields = explained(repository, field);
    assert_eq!(fields.len(), 1, "{fields:#?}");
    let layers = fields[0].layers.iter();
    layers.map(|layer| format!("{} {}", layer.origin, layer.value)).collect()
}

/// The place that set a value of a requirement of the NodePool.
fn requirement(repository: &Repository, label: &str) -> String {
    let fields = explained(repository, "spec.template.spec.requirements");
    let key = fields.iter().find(|field| field.path.ends_with(".key") && field.value == label);
    let entry = key.unwrap_or_else(|| panic!("no {label}: {fields:#?}")).path.trim_end_matches(".key");
    let value = format!("{entry}.values[0]");
    let found = fields.iter().find(|field| field.path == value).expect("it has a value");
    found.layers.last().expect("somebody set it").origin.to_string()
}

const QUIET: &str = "spec.disruption.consolidateAfter";

#[test]
fn a_value_that_a_template_sets_for_a_built_in_one_leads_to_the_line_that_sets_it() {
    let repository = mine(
        "{%- set capacity_types = [\"spot\"] -%}\n{%- set quiet = \"10m\" -%}\n{%- include \"nodepool.yaml.j2\" -%}\n",
    );
    assert_eq!(told(&repository, QUIET), ["templates/mine.yaml.j2:2:17 \"10m\""]);
    assert_eq!(requirement(&repository, "karpenter.sh/capacity-type"), "templates/mine.yaml.j2:1:27");
    // What nobody set is the built-in template's own.
    let own = requirement(&repository, "kubernetes.io/arch");
    assert!(own.starts_with("built-in:nodepool.yaml.j2:12:"), "{own}");
    let own = told(&repository, "spec.disruption.consolidationPolicy");
    assert!(own[0].starts_with("built-in:nodepool.yaml.j2:51:"), "{own:?}");
}

#[test]
fn of_several_assignments_the_one_that_was_made_counts() {
    let template = |weight: &str| {
        let template = "{% set quiet = \"1m\" %}\n{% if pool.weight is defined %}{% set quiet = \"2m\" %}{% endif %}\n\
                        {% if false %}\n{% set quiet = \"3m\" %}{% endif %}\n{% set policy, taints = [\"WhenEmpty\", []] %}\n\
                        {% for quiet in [\"4m\"] %}{% endfor %}{% include \"nodepool.yaml.j2\" %}\n";
        let prod = format!("[pools.general]\nstrategy = \"mine\"\n{weight}");
        repository(&[FLEET, ("environments/prod.toml", &prod), ("templates/mine.yaml.j2", template)])
    };
    assert_eq!(told(&template(""), QUIET), ["templates/mine.yaml.j2:1:16 \"1m\""]);
    assert_eq!(told(&template("weight = 4\n"), QUIET), ["templates/mine.yaml.j2:2:47 \"2m\""]);
    let policy = told(&template(""), "spec.disruption.consolidationPolicy");
    assert_eq!(policy, ["templates/mine.yaml.j2:5:26 \"WhenEmpty\""]);
    // A strategy's own line wins over the template, and says so.
    let own = told(&template("consolidate-after = \"9m\"\n"), QUIET);
    assert_eq!(own, ["environments/prod.toml:3:21 \"9m\""]);
}

#[test]
fn what_a_loop_calls_like_a_variable_is_not_that_variable() {
    let repository = mine(
        "{% set quiet = \"1m\" %}\n{% for quiet in [\"4m\"] -%}\n{% include \"nodepool.yaml.j2\" %}\n{%- endfor %}\n",
    );
    let told = told(&repository, QUIET);
    assert!(told[0].starts_with("built-in:nodepool.yaml.j2:52:"), "{told:?}");
    assert!(told[0].ends_with(" \"4m\""), "{told:?}");
}

#[test]
fn a_variable_of_the_strategy_is_followed_through_the_templates_with_all_its_layers() {
    let repository = repository(&[
        ("fleet.toml", "name = \"shop\"\n[defaults.variables]\nquiet = \"1m\"\npay = [\"spot\"]\n"),
        ("environments/base.toml", "abstract = true\n[variables]\nquiet = \"2m\"\n"),
        (
            "environments/prod.toml",
            "extends = \"base\"\n[pools.general]\nstrategy = \"mine\"\nvariables.quiet = \"3m\"\n",
        ),
        (
            "templates/mine.yaml.j2",
            "{% set q = vars.quiet %}{% set capacity_types = vars.pay %}\n{% include \"step.j2\" %}\n",
        ),
        ("templates/step.j2", "{% with quiet = q %}{% include \"nodepool.yaml.j2\" %}{% endwith %}\n"),
    ]);
    let layers =
        ["fleet.toml:3:9 \"1m\"", "environments/base.toml:3:9 \"2m\"", "environments/prod.toml:4:19 \"3m\""];
    assert_eq!(told(&repository, QUIET), layers);
    assert_eq!(told(&repository, "variables.quiet"), layers);
    assert_eq!(requirement(&repository, "karpenter.sh/capacity-type"), "fleet.toml:4:8");
    let all = explain(&repository, "prod", "general", None, &RenderSettings::default()).expect("it is right");
    assert!(all.fields.iter().any(|field| field.path == "variables.pay"));
}

#[test]
fn a_choice_leads_to_the_side_that_was_taken() {
    let object = |weight: &str| {
        format!(
            "{{% set heavy = 40 %}}\n{{% set light = {{\"weight\": 4}} %}}\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{ name: general }}\nspec:\n  weight: {{{{ {weight} | tojson }}}}\n  template:\n    spec:\n      requirements: []\n      nodeClassRef: {{ group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }}\n"
        )
    };
    for (weight, place) in [
        ("(heavy if true else light.weight)", "1:16 40"),
        ("(heavy if false else light.weight)", "2:27 4"),
        ("pool.weight | default(light.weight)", "2:27 4"),
        ("(heavy + 1)", "7:15 41"),
        ("(7 if false else 8)", "7:31 8"),
    ] {
        let found = told(&mine(&object(weight)), "spec.weight");
        assert_eq!(found, [format!("templates/mine.yaml.j2:{place}")], "{weight}");
    }
}

#[test]
fn notes_of_assignments_leave_the_text_as_it_was() {
    let text = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: { name: general }\nspec:\n  {%- set a = \"x\" -%} \n\n  {%- with b = a +%}\n  weight: {% set c = 3 -%}\n    {{ c }}\n  {%- endwith %}\n  template:\n    metadata: { labels: { l: \"{% for k in [a, a] %}{% set a = k ~ 1 %}{{ a }}{% endfor %}{{ a }}\" } }\n    spec:\n      requirements: []\n      nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }\n";
    let pool = manifest(&state(&mine(text)), "NodePool", "general");
    assert_eq!(pool["spec"]["weight"], 3);
    assert_eq!(pool["spec"]["template"]["metadata"]["labels"]["l"], "x1x1x");
}

#[test]
fn an_overridden_field_tells_what_it_replaced_and_who_set_that() {
    let repository = repository(&[
        ("fleet.toml", "name = \"shop\"\n[defaults.pool.limits]\ncpu = 100\n"),
        (
            "environments/base.toml",
            "abstract = true\n[pools.general]\nstrategy = \"spot\"\nlimits.cpu = 250\noverrides.\"spec.limits.cpu\" = 450\n",
        ),
        (
            "environments/prod.toml",
            "extends = \"base\"\n[pools.general]\nlimits.cpu = 400\noverrides.\"spec.limits.cpu\" = 500\n\
             [pools.general.overrides.spec.disruption]\nconsolidateAfter = \"3m\"\nbudgets = [{ nodes = \"5%\" }]\n\
             [pools.general.overrides.spec.template.metadata.labels]\n\"example.com/team\" = \"core\"\n",
        ),
    ]);
    assert_eq!(
        told(&repository, "spec.limits.cpu"),
        [
            "fleet.toml:3:7 100",
            "environments/base.toml:4:14 250",
            "environments/prod.toml:3:14 400",
            "environments/base.toml:5:31 450",
            "environments/prod.toml:4:31 500",
        ]
    );
    // The word of the strategy is not what counts any more.
    let word = explained(&repository, "limits");
    assert_eq!(
        (word.len(), &word[0].value, word[0].overridden.as_deref()),
        (1, &"500".into(), Some("spec.limits.cpu"))
    );
    assert_eq!(
        told(&repository, "limits")[3..],
        ["environments/base.toml:5:31 450", "environments/prod.toml:4:31 500"]
    );
    assert_eq!(explained(&repository, "strategy")[0].overridden, None);
    let quiet = told(&repository, QUIET);
    assert!(
        quiet[0].starts_with("built-in:nodepool.yaml.j2:52:") && quiet[0].ends_with(" \"1m\""),
        "{quiet:?}"
    );
    assert_eq!(quiet[1..], ["environments/prod.toml:6:20 \"3m\""]);
    let budget = told(&repository, "spec.disruption.budgets");
    assert!(
        budget[0].starts_with("built-in:nodepool.yaml.j2:57:") && budget[0].ends_with(" \"10%\""),
        "{budget:?}"
    );
    assert_eq!(budget[1..], ["environments/prod.toml:7:22 \"5%\""]);
    // One that was not there replaced nothing.
    assert_eq!(told(&repository, "spec.template.metadata.labels"), ["environments/prod.toml:9:22 \"core\""]);
}

#[test]
fn a_word_whose_field_is_overridden_tells_the_value_that_counts() {
    let repository = repository(&[
        FLEET,
        (
            "environments/prod.toml",
            "[pools.general]\nstrategy = \"spot\"\nzones = [\"us-east-1a\"]\nweight = 3\nlimits = { cpu = 1, nodes = 4 }\n\
             budgets = [{ nodes = \"10%\" }]\nlabels = { team = \"a\" }\n[pools.general.overrides]\n\
             \"spec.disruption.budgets[0].nodes\" = \"20%\"\n\"spec.weight\" = { \"$remove\" = true }\n\
             \"spec.limits\" = { cpu = 20 }\n\"spec.template.spec.requirements\" = [\
             { key = \"topology.kubernetes.io/zone\", operator = \"In\", values = [\"us-east-1b\"] }]\n",
        ),
    ]);
    let of = |field: &str| {
        let found = explained(&repository, field).remove(0);
        let last = found.layers.last().expect("somebody set it").origin.to_string();
        (found.value, found.overridden, last)
    };
    let at = |place: &str| format!("environments/prod.toml:{place}");
    let by = |path: &str| Some(path.to_owned());
    assert_eq!(of("limits.cpu"), ("20".into(), by("spec.limits.cpu"), at("11:25")));
    assert_eq!(of("limits.nodes"), (4.into(), None, at("5:29")));
    assert_eq!(
        of("budgets"),
        (serde_json::json!([{ "nodes": "20%" }]), by("spec.disruption.budgets[0].nodes"), at("9:38"))
    );
    assert_eq!(of("weight"), (serde_json::Value::Null, by("spec.weight"), at("10:17")));
    assert_eq!(
        of("zones"),
        (serde_json::json!(["us-east-1b"]), by("spec.template.spec.requirements"), at("12:37"))
    );
    assert_eq!(of("labels.team"), ("a".into(), None, at("7:19")));
}

/// `prod` over a base, both as TOML.
fn over_base(base: &str, prod: &str) -> Repository {
    let (base, prod) = (format!("abstract = true\n{base}"), format!("extends = \"base\"\n{prod}"));
    repository(&[FLEET, ("environments/base.toml", &base), ("environments/prod.toml", &prod)])
}

#[test]
fn what_was_taken_away_tells_who_set_it_and_who_took_it() {
    let base = "[pools.general]\nstrategy = \"spot\"\nweight = 10\nlimits = { cpu = 5, memory = \"9Gi\" }\n\
                budgets = [{ name = \"b\", nodes = \"1\" }]\nlabels = { \"a.b/c\" = \"d\" }\n";
    for (taken, field) in [
        ("pools.general.weight", "weight"),
        ("pools.general.limits.cpu", "limits.cpu"),
        ("pools.general.labels.\"a.b/c\"", "labels.a.b/c"),
    ] {
        let prod = format!("{taken} = {{ \"$remove\" = true }}\n");
        let repository = over_base(base, &prod);
        let fields = explained(&repository, field);
        assert_eq!(fields.len(), 1, "{fields:#?}");
        assert!(fields[0].value.is_null(), "{fields:#?}");
        let told = told(&repository, field);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("environments/base.toml:"), "{told:?}");
        assert!(told[1].starts_with("environments/prod.toml:2:") && told[1].ends_with(" null"), "{told:?}");
        let all =
            explain(&repository, "prod", "general", None, &RenderSettings::default()).expect("it is right");
        assert!(all.fields.iter().any(|one| one.path == field), "{field} is missing: {all:#?}");
    }
    // A table that went as a whole, and a list whose last entry went.
    let whole = over_base(base, "pools.general.limits = { \"$remove\" = true }\n");
    assert_eq!(told(&whole, "limits")[1], "environments/prod.toml:2:24 null");
    let last = over_base(base, "pools.general.budgets = [{ name = \"b\", \"$remove\" = true }]\n");
    assert_eq!(told(&last, "budgets").len(), 2, "{:?}", told(&last, "budgets"));
    assert!(explained(&last, "budgets")[0].value.is_null());
    // What is set again above counts, and the whole story is told.
    let files = [
        FLEET,
        ("environments/low.toml", "abstract = true\n[pools.general]\nstrategy = \"spot\"\nweight = 1\n"),
        (
            "environments/base.toml",
            "abstract = true\nextends = \"low\"\npools.general.weight = { \"$remove\" = true }\n",
        ),
        ("environments/prod.toml", "extends = \"base\"\npools.general.weight = 3\n"),
    ];
    let again = told(&repository(&files), "weight");
    let ends: Vec<&str> = again.iter().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(ends, ["1", "null", "3"], "{again:?}");
}

#[test]
fn a_list_that_adds_nothing_is_not_what_set_the_inherited_one() {
    let base = "[pools.general]\nstrategy = \"spot\"\ntaints = [\"d=1:NoSchedule\"]\n";
    let repository = over_base(base, "pools.general.taints = []\n");
    let layers = told(&repository, "taints");
    assert_eq!(layers.len(), 1, "{layers:?}");
    assert!(layers[0].starts_with("environments/base.toml:4:"), "{layers:?}");
    let key = told(&repository, "spec.template.spec.taints[0].key");
    assert!(key[0].starts_with("environments/base.toml:4:"), "{key:?}");
}

#[test]
fn a_misspelt_field_of_the_object_has_a_near_name_as_one_of_the_pool_has() {
    let prod = "[pools.general]\nstrategy = \"spot\"\nweight = 4\nlimits.cpu = 9\n";
    let repository = repository(&[FLEET, ("environments/prod.toml", prod)]);
    for (wrong, right) in [
        ("wieght", "weight"),
        ("spec.wieght", "spec.weight"),
        ("limts", "limits"),
        ("spec.limts", "spec.limits"),
        ("spec.disruption.consolidatAfter", "spec.disruption.consolidateAfter"),
        ("spec.tempalte.spec", "spec.template.spec"),
    ] {
        let settings = RenderSettings::default();
        let found =
            explain(&repository, "prod", "general", Some(wrong), &settings).expect_err("no such field");
        assert!(found.to_string().contains(&format!("did you mean `{right}`?")), "{wrong}: {found}");
    }
}

#[test]
fn a_misspelt_field_has_a_near_name_although_nothing_sets_that() {
    let prod = ("environments/prod.toml", "[pools.general]\nstrategy = \"spot\"\n");
    let repository = repository(&[FLEET, prod]);
    for (field, help) in [
        ("wieght", "did you mean `weight`?"),
        ("spec.wieght", "did you mean `spec.weight`?"),
        ("spec.disruption.budgets[0].shedule", "did you mean `spec.disruption.budgets[0].schedule`?"),
        ("heedroom.cpu", "did you mean `headroom.cpu`?"),
        ("weight", "nothing sets it; leave the field out to see all that is set"),
        ("spec.limits", "nothing sets it; leave the field out to see all that is set"),
        ("colour", "leave the field out to see all of them"),
    ] {
        let found = explain(&repository, "prod", "general", Some(field), &RenderSettings::default());
        let found = found.expect_err(field);
        let told = found.iter().next().expect("one");
        assert_eq!((told.code, told.help.as_deref()), ("PRV1108", Some(help)), "{field}");
    }
}

#[test]
fn a_field_of_the_object_that_was_taken_away_is_told_with_the_line_that_took_it() {
    let explained = |files: &[(&str, &str)], field: &str| {
        let found = explain(&repository(files), "prod", "general", Some(field), &RenderSettings::default());
        let found = found.expect_err(field);
        let told = found.iter().next().expect("one");
        assert_eq!(told.code, "PRV1108", "{field}: {found}");
        assert!(told.message.contains("is taken away here"), "{field}: {found}");
        told.place.to_string()
    };
    let base =
        ("environments/base.toml", "abstract = true\n[pools.general]\nstrategy = 'spot'\nweight = 10\n");
    let prod =
        ("environments/prod.toml", "extends = 'base'\n[pools.general]\nweight = { \"$remove\" = true }\n");
    assert_eq!(explained(&[FLEET, base, prod], "spec.weight"), "environments/prod.toml:3:10");
    let over = (
        "environments/prod.toml",
        "[pools.general]\nstrategy = 'spot'\nlimits = { cpu = 5 }\noverrides = { spec.limits = { \"$remove\" = true } }\n",
    );
    assert_eq!(explained(&[FLEET, over], "spec.limits"), "environments/prod.toml:4:29");
    assert_eq!(explained(&[FLEET, over], "spec.limits.cpu"), "environments/prod.toml:4:29");
    let fleet = ("fleet.toml", "name = 'shop'\n[defaults.pool]\nlimits = { cpu = 5 }\n");
    let none = (
        "environments/prod.toml",
        "[defaults]\npool = { \"$remove\" = true }\n[pools.general]\nstrategy = 'spot'\n",
    );
    assert_eq!(explained(&[fleet, none], "limits"), "environments/prod.toml:2:8");
}

#[test]
fn a_wrong_key_is_the_fault_of_whoever_wrote_the_key() {
    let object = |line: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: {{{{ pool.name | tojson }}}}\nspec:\n  weight: 3\n  {line}\n  template:\n    spec:\n      requirements: []\n      nodeClassRef: {{ group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }}\n"
        )
    };
    let prod = "[pools.general]\nstrategy = \"mine\"\nlimits = { cpu = 5 }\nvariables.word = \"no/t/a/value\"\n\
                variables.tables = { limts = { cpu = 1 } }\n";
    let found = |line: &str| {
        let files = [FLEET, ("environments/prod.toml", prod), ("templates/mine.yaml.j2", &object(line))];
        let mut found = errors(&repository(&files));
        assert_eq!(found.len(), 1, "{found:#?}");
        found.remove(0)
    };
    let key = found("limts: {{ pool.limits | tojson }}");
    assert_eq!(
        (key.code, key.place.to_string().as_str()),
        ("PRV1503", "templates/mine.yaml.j2:7:3"),
        "{key}"
    );
    assert_eq!(key.help.as_deref(), Some("did you mean `limits`?"));
    assert_eq!(key.chain[0].place.to_string(), "environments/prod.toml:1:8");
    // The same name, written in the strategy.
    let key = found("disruption: {{ vars.tables | tojson }}");
    assert_eq!(key.place.to_string(), "environments/prod.toml:5:22", "{key}");
    // A value is the fault of whoever gave the value, and a key of the template is not.
    let value = found("disruption: { consolidateAfter: {{ vars.word | tojson }} }");
    assert_eq!(value.place.to_string(), "environments/prod.toml:4:18", "{value}");
}

#[test]
fn a_wrong_key_of_an_override_is_shown_where_the_key_stands() {
    let prod = "pools:\n  general:\n    strategy: spot\n    limits: { cpu: 5 }\n    overrides:\n      spec:\n        disruption:\n          consolidateafter:\n            3m\n";
    let found = errors(&repository(&[FLEET, ("environments/prod.yaml", prod)]));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].place.to_string(), "environments/prod.yaml:8:11");
    assert_eq!(found[0].help.as_deref(), Some("did you mean `consolidateAfter`?"));
}
