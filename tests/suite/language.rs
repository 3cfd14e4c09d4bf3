//! The strategy language: what is wrong in a file is told with its place, and layers keep their history.

use std::time::Duration;

use crate::cost::{self, MIB};
use crate::fleet_files::{errors, fleet, manifest, render, repository, repository_of_bytes, state};
use provisor::gitops::diagnostic::{Diagnostic, Severity};
use provisor::gitops::explain::explain;
use provisor::gitops::render::{Reach, RenderSettings, reach, render_all, validate_repository};
use provisor::model::repository::Repository;
use serde_json::{Value, json};

const FLEET: (&str, &str) = ("fleet.toml", "name = \"shop\"\n");

fn yaml(prod: &str) -> Repository {
    repository(&[FLEET, ("environments/prod.yaml", prod)])
}

fn only(found: Vec<Diagnostic>) -> Diagnostic {
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().expect("one")
}

fn at(diagnostic: &Diagnostic) -> (&str, String) {
    (diagnostic.code, diagnostic.place.to_string())
}

#[test]
fn ren_007_all_mistakes_of_all_files_come_in_one_run_in_order() {
    let repository = repository(&[
        ("fleet.toml", "name = \"Shop\"\nnmae = 1\n"),
        (
            "environments/dev.toml",
            "[pools.a]\nstrategy = 'spot'\nweight = 0\nzone = ['a']\n[pools.b]\nstrategy = 'spot'\nexpire-after = '7d'\n",
        ),
        (
            "environments/prod.yaml",
            "pools:\n  a:\n    strategy: spot\n    limits: { cpu: -1 }\n    labels: [a]\n",
        ),
    ]);
    let report = validate_repository(&repository, &RenderSettings::default());
    let places: Vec<String> =
        report.diagnostics.iter().map(|one| format!("{} {}", one.code, one.place)).collect();
    assert_eq!(
        places,
        [
            "PRV1206 environments/dev.toml:3:10",
            "PRV1201 environments/dev.toml:4:1",
            "PRV1203 environments/dev.toml:7:16",
            "PRV1206 environments/prod.yaml:4:20",
            "PRV1202 environments/prod.yaml:5:13",
            "PRV1207 fleet.toml:1:8",
            "PRV1201 fleet.toml:2:1",
        ]
    );
}

#[test]
fn ren_007_what_is_wrong_hides_nothing_beside_it() {
    let prod = "[pools.a]\nstrategy = \"spott\"\nzonse = [\"us-east-1a\"]\n[pools.b]\nstrategy = \"spot\"\nweight = 500\n\
                labels = { team = \"not a value!\" }\noverrides = { spec.wieght = 3 }\n";
    let found = errors(&repository(&[FLEET, ("environments/prod.toml", prod)]));
    let told: Vec<(&str, u32)> = found.iter().map(|one| (one.code, one.place.position().0)).collect();
    assert_eq!(
        told,
        [("PRV1401", 2), ("PRV1201", 3), ("PRV1206", 6), ("PRV1503", 7), ("PRV1503", 8)],
        "{found:?}"
    );
    let prod = "[pools.e]\nstrategy = \"spot\"\nclass = \"nope\"\noverrides = { spec.foo = 1 }\n\
                [pools.f]\nstrategy = \"spot\"\nclass = \"gone\"\nweight = 700\n\
                [pools.g]\nstrategy = \"spot\"\nclass = \"big\"\n[classes]\nbig = 3\n";
    let found = errors(&repository(&[FLEET, ("environments/prod.toml", prod)]));
    let told: Vec<(&str, u32)> = found.iter().map(|one| (one.code, one.place.position().0)).collect();
    assert_eq!(
        told,
        [("PRV1607", 3), ("PRV1503", 4), ("PRV1607", 7), ("PRV1206", 8), ("PRV1203", 13)],
        "{found:?}"
    );
    // What follows from a mistake is not told with it.
    let prod = "[pools.a]\nstrategy = 5\nclass = [\"x\"]\n[classes.own]\nami = 7\n";
    let found = errors(&repository(&[FLEET, ("environments/prod.toml", prod)]));
    assert!(found.iter().all(|one| one.code.starts_with("PRV120")), "{found:?}");
}

#[test]
fn ren_008_fifty_are_shown_and_the_rest_is_counted() {
    let wrong: String =
        (0..80).map(|at| format!("[pools.p{at}]\nstrategy = 'spot'\nlimts = {at}\n")).collect();
    let report = validate_repository(&fleet(&wrong), &RenderSettings::default());
    assert_eq!((report.diagnostics.shown().len(), report.diagnostics.hidden()), (50, 30));
    assert!(report.diagnostics.to_string().ends_with("\nand 30 more"));
}

#[test]
fn ren_009_an_unknown_key_gets_the_nearest_name_and_notes_are_welcome() {
    let found = only(errors(&fleet(
        "[pools.general]\nstrategy = \"spot\"\nlimts = { cpu = 1 }\nx-owner = \"ann\"\n",
    )));
    assert_eq!(at(&found), ("PRV1201", "environments/prod.toml:3:1".to_owned()));
    let help = found.help.expect("help");
    assert!(help.starts_with("did you mean `limits`? The fields are `annotations`, "), "{help}");
    for name in ["budgets", "weight", "zones", "overrides"] {
        assert!(help.contains(&format!("`{name}`")), "{help}");
    }
    assert!(!help.contains("x-owner"));
}

#[test]
fn ren_010_duplicate_keys_cite_both_places() {
    let found = only(errors(&fleet("[pools.general]\nstrategy = \"spot\"\nweight = 1\nweight = 2\n")));
    assert_eq!(at(&found), ("PRV1011", "environments/prod.toml:4:1".to_owned()));
    assert_eq!(found.chain[0].place.to_string(), "environments/prod.toml:3:1");
    let found = only(errors(&fleet(
        "[pools.general]\nstrategy = \"spot\"\n[pools.other]\nstrategy = \"spot\"\n[pools.general]\n",
    )));
    assert_eq!(found.code, "PRV1011", "{found}");
    assert_eq!(found.place.position().0, 5, "{found}");
    assert_eq!(
        found.chain.first().unwrap_or_else(|| panic!("{}", found.to_string())).place.position().0,
        1,
        "{found}"
    );
    let found = only(errors(&yaml("pools:\n  general:\n    strategy: spot\n    weight: 1\n    weight: 2\n")));
    assert_eq!(at(&found), ("PRV1011", "environments/prod.yaml:5:5".to_owned()));
    assert_eq!(found.chain[0].place.to_string(), "environments/prod.yaml:4:5");
}

#[test]
fn ren_011_a_bare_no_is_a_text_with_a_hint() {
    let repository = yaml("pools:\n  general:\n    strategy: spot\n    labels:\n      country: no\n");
    let (state, warnings) = render(&repository).expect("it renders");
    let hint = only(warnings);
    assert_eq!(
        (hint.severity, at(&hint)),
        (Severity::Warning, ("PRV1018", "environments/prod.yaml:5:16".to_owned()))
    );
    assert_eq!(hint.help.as_deref(), Some("write \"no\" if you mean the word"));
    let pool = manifest(&state, "NodePool", "general");
    assert_eq!(pool["spec"]["template"]["metadata"]["labels"]["country"], "no");
    // Numbers of YAML 1.1 are read by the rules of 1.2 as well.
    let found = only(errors(&yaml(
        "pools:\n  general:\n    strategy: spot\n    weight: 0o12\n    annotations: { a: 1:30 }\n    x: 1\n",
    )));
    assert_eq!(found.code, "PRV1201");
}

#[test]
fn ren_012_a_wrong_unit_shows_the_right_one() {
    let found = only(errors(&yaml("pools:\n  general:\n    strategy: spot\n    limits: { memory: 4GB }\n")));
    assert_eq!(at(&found), ("PRV1203", "environments/prod.yaml:4:23".to_owned()));
    assert_eq!(found.message, "`memory` is \"4GB\", which is not an amount of memory");
    assert_eq!(found.help.as_deref(), Some("write \"4Gi\""));
}

#[test]
fn ren_013_columns_count_characters_behind_tabs_and_wide_letters() {
    let toml = "# ünïcödé\r\n[pools.general]\r\nstrategy = \"spot\"\r\nlabels = { ö = \"ä\", b = 1 }\r\n"
        .replace("ö =", "\"ö\" =");
    let found = only(errors(&fleet(&toml)));
    assert_eq!(at(&found), ("PRV1203", "environments/prod.toml:4:27".to_owned()));
    assert_eq!(&found.place.source.text[found.place.bytes()], "1");
    let tabbed = "[pools.general]\n\tstrategy = \"spot\"\n\tweigth = 1\n";
    assert_eq!(at(&only(errors(&fleet(tabbed)))), ("PRV1201", "environments/prod.toml:3:2".to_owned()));
    let text = "pools:\r\n  general:\r\n    strategy: spot\r\n    labels: { \"ключ\": \"ä\", b: [] }\r\n";
    let found = only(errors(&yaml(text)));
    assert_eq!(at(&found), ("PRV1202", "environments/prod.yaml:4:31".to_owned()));
    let found = only(errors(&yaml("pools:\n\tgeneral:\n")));
    assert_eq!(found.code, "PRV1010", "{found}");
    assert!(found.help.as_deref().is_some_and(|help| help.contains("tabs")));
    // The reader trips over the line before, and the tab is what is wrong.
    for (yaml, place) in [
        ("pools:\n  g:\n    strategy: spot\n\tweight: 5\n", "4:1"),
        ("pools:\n  g:\n    strategy: spot\n\n  \tweight: 5\n", "5:3"),
        ("pools:\n\tg:\n\t\tstrategy: spot\n", "2:1"),
    ] {
        let found = only(errors(&repository(&[FLEET, ("environments/prod.yaml", yaml)])));
        assert_eq!(at(&found), ("PRV1010", format!("environments/prod.yaml:{place}")), "{yaml:?}");
        assert!(found.help.as_deref().is_some_and(|help| help.contains("tabs")), "{yaml:?}");
    }
}

#[test]
fn ren_014_bytes_that_are_no_text_are_told_by_offset() {
    let repository = repository_of_bytes(&[
        ("fleet.toml", b"name = \"shop\"\n"),
        ("environments/prod.toml", b"# \xc3\xa4\nx = \"\xff\"\n"),
    ]);
    let found = only(errors(&repository));
    assert_eq!(at(&found), ("PRV1001", "environments/prod.toml:2:6".to_owned()));
    assert_eq!(found.message, "the file is not UTF-8: byte 0xFF at offset 10");
}

#[test]
fn ren_024_alias_bombs_and_circles_are_refused_at_once() {
    let mut bomb = "x-a: &a [1,1,1,1,1,1,1,1,1,1]\n".to_owned();
    for (name, inner) in
        [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e"), ("g", "f"), ("h", "g"), ("i", "h")]
    {
        let many = vec![format!("*{inner}"); 10].join(",");
        bomb.push_str(&format!("x-{name}: &{name} [{many}]\n"));
    }
    for (text, code) in
        [(bomb.as_str(), "PRV1013"), ("x-a: &a [*a]\n", "PRV1016"), ("x-a: *nobody\n", "PRV1016")]
    {
        let repository = yaml(text);
        let (found, cost) = cost::of(|| only(errors(&repository)));
        assert_eq!(found.code, code, "{found}");
        cost.must_be_within(Duration::from_millis(100), 64 * MIB, &text[..10]);
    }
}

/// A path is as deep as the tables that it stands for.
#[test]
fn ren_025_paths_of_many_parts_are_too_deep() {
    let deep = |parts: usize| vec!["a"; parts].join(".");
    for parts in [65, 5_000, 100_000] {
        let path = deep(parts);
        for (text, code) in [
            (
                format!("[pools.general]\nstrategy = \"spot\"\noverrides = {{ \"spec.{path}\" = 1 }}\n"),
                "PRV1507",
            ),
            (
                format!(
                    "[pools.general]\nstrategy = \"spot\"\n[classes.default]\noverrides = {{ \"{path}\" = 1 }}\n"
                ),
                "PRV1507",
            ),
            (format!("final = [\"variables.{path}\"]\n[pools.general]\nstrategy = \"spot\"\n"), "PRV1308"),
            (
                format!(
                    "[pools.general]\nstrategy = \"spot\"\n[promotion]\nfrom = [\"dev\"]\npaths = [\"pools.{path}\"]\n"
                ),
                "PRV1703",
            ),
        ] {
            let found = validate_repository(&fleet(&text), &RenderSettings::default()).diagnostics;
            assert!(found.iter().any(|one| one.code == code), "{code}, {parts} parts: {found}");
        }
    }
    // Tables of paths add up.
    let half = deep(40);
    let text = format!(
        "[pools.general]\nstrategy = \"spot\"\noverrides.spec = {{ \"{half}\" = {{ \"{half}\" = 1 }} }}\n"
    );
    assert!(errors(&fleet(&text)).iter().any(|one| one.code == "PRV1507"));
}

#[test]
fn ren_025_ten_thousand_levels_are_too_deep() {
    let deep = 10_000;
    let toml_list = format!("x-a = {}{}\n", "[".repeat(deep), "]".repeat(deep));
    let toml_inline = format!("x-a = {}1{}\n", "{a=".repeat(deep), "}".repeat(deep));
    let toml_dotted = format!("x-a{} = 1\n", ".a".repeat(deep));
    let toml_header = format!("[x-a{}]\n", ".a".repeat(deep));
    for text in [toml_list, toml_inline, toml_dotted, toml_header] {
        let found = errors(&fleet(&text));
        assert_eq!(found[0].code, "PRV1012", "{}", found[0]);
    }
    let flow = format!("x-a: {}{}\n", "[".repeat(deep), "]".repeat(deep));
    let block: String = (0..200).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    let dashes = format!("x-a:\n  {}1\n", "- ".repeat(deep));
    for text in [flow, block, dashes] {
        let found = only(errors(&yaml(&text)));
        assert_eq!(found.code, "PRV1012", "{found}");
    }
}

#[test]
fn ren_026_tags_construct_nothing() {
    for tag in [
        "!!python/object/apply:os.system [ls]",
        "!include secrets.yaml",
        "!Ref x",
        "!<tag:example.com,2000:x> y",
    ] {
        let found = only(errors(&yaml(&format!("x-a: {tag}\n"))));
        assert_eq!((found.code, found.place.position().0), ("PRV1015", 1), "{tag}: {found}");
    }
}

#[test]
fn ren_027_two_hundred_documents_are_enough() {
    let found = only(errors(&yaml(&"---\nx-a: 1\n".repeat(201))));
    assert_eq!((found.code, found.place.position().0), ("PRV1014", 401), "{found}");
    let found = only(errors(&yaml("---\nx-a: 1\n---\nx-b: 1\n")));
    assert_eq!(found.code, "PRV1014", "{found}");
}

#[test]
fn ren_030_explain_shows_every_layer_in_order() {
    let repository = repository(&[
        ("fleet.toml", "name = \"shop\"\n[defaults.pool.limits]\ncpu = 100\n"),
        ("environments/group.toml", "abstract = true\n[defaults.pool.limits]\ncpu = 200\n"),
        (
            "environments/prod.toml",
            "extends = \"group\"\n[defaults.pool.limits]\ncpu = 300\n[pools.general]\nstrategy = \"spot\"\nlimits.cpu = 400\n",
        ),
    ]);
    let settings = RenderSettings::default();
    for field in ["limits.cpu", "spec.limits.cpu"] {
        let explanation = explain(&repository, "prod", "general", Some(field), &settings).expect("it is set");
        assert_eq!(explanation.fields.len(), 1, "{explanation:?}");
        let found = &explanation.fields[0];
        let layers: Vec<(String, Value)> =
            found.layers.iter().map(|layer| (layer.origin.to_string(), layer.value.clone())).collect();
        assert_eq!(
            layers,
            [
                ("fleet.toml:3:7".to_owned(), json!(100)),
                ("environments/group.toml:3:7".to_owned(), json!(200)),
                ("environments/prod.toml:3:7".to_owned(), json!(300)),
                ("environments/prod.toml:6:14".to_owned(), json!(400)),
            ],
            "{field}"
        );
    }
    let all = explain(&repository, "prod", "general", None, &settings).expect("all of it");
    assert!(all.fields.iter().any(|field| field.path == "spec.disruption.consolidateAfter"));
    let found = explain(&repository, "prod", "generl", None, &settings).expect_err("no such pool");
    assert!(found.to_string().contains("did you mean `general`?"), "{found}");
    let found =
        explain(&repository, "prod", "general", Some("limts.cpu"), &settings).expect_err("no such field");
    assert!(found.to_string().contains("did you mean `limits.cpu`?"), "{found}");
}

#[test]
fn explain_shows_where_variables_come_from() {
    let repository = repository(&[
        ("fleet.toml", "name = \"shop\"\n[defaults.variables]\nteam = \"core\"\nn = 1\n"),
        ("environments/base.toml", "abstract = true\n[variables]\nteam = \"web\"\n"),
        (
            "environments/prod.toml",
            "extends = \"base\"\n[pools.general]\nstrategy = \"spot\"\nvariables.n = 2\n",
        ),
    ]);
    let told = |field: &str| {
        let found = explain(&repository, "prod", "general", Some(field), &RenderSettings::default());
        let layers = found.expect("it is set").fields.remove(0).layers;
        layers.iter().map(|layer| format!("{} {}", layer.origin, layer.value)).collect::<Vec<_>>()
    };
    assert_eq!(told("variables.team"), ["fleet.toml:3:8 \"core\"", "environments/base.toml:3:8 \"web\""]);
    assert_eq!(told("variables.n"), ["fleet.toml:4:5 1", "environments/prod.toml:4:15 2"]);
}

#[test]
fn explain_says_what_promotion_holds_back_and_what_headroom_asks() {
    let repository = repository(&[
        FLEET,
        (
            "environments/dev.toml",
            "[pools.general]\nstrategy = 'spot'\nlimits = { cpu = 200, memory = '1Ti' }\n[pools.other]\nstrategy = 'spot'\nlimits.cpu = 7\n",
        ),
        (
            "environments/prod.toml",
            "[pools.general]\nstrategy = 'spot'\nlimits = { cpu = 100 }\nheadroom = { pods = 4, cpu = '500m' }\n\
             [promotion]\nfrom = ['dev']\npaths = ['pools.*.limits']\nsoak = '2h'\n",
        ),
    ]);
    let told = |field: Option<&str>| {
        let found = explain(&repository, "prod", "general", field, &RenderSettings::default());
        found.expect("the pool is there")
    };
    let all = told(None);
    let held: Vec<(&str, Option<&Value>, Option<&Value>)> =
        all.held_back.iter().map(|one| (&*one.path, one.today.as_ref(), one.there.as_ref())).collect();
    assert_eq!(
        held,
        [("limits.cpu", Some(&json!(100)), Some(&json!(200))), ("limits.memory", None, Some(&json!("1Ti")))]
    );
    let first = &all.held_back[0];
    assert_eq!((&*first.stage, &*first.soak, first.require), ("dev", "2h", "healthy+rolled-out"));
    assert_eq!(first.comes_from.as_ref().expect("a line").to_string(), "environments/dev.toml:3:18");
    let headroom = all.headroom.as_ref().expect("it asks for some");
    assert_eq!((&headroom.pods, &headroom.requests), (&json!(4), &json!({ "cpu": "500m" })));
    assert_eq!(headroom.buffer, "default/headroom-general");
    assert_eq!(headroom.origin.as_ref().expect("a line").to_string(), "environments/prod.toml:4:1");
    // Of one field only what belongs to it; also of one that exists nowhere but there.
    for field in ["limits.cpu", "spec.limits.cpu"] {
        let one = told(Some(field));
        assert_eq!((one.held_back.len(), one.headroom.is_none()), (1, true), "{field}");
    }
    let absent = told(Some("limits.memory"));
    assert_eq!((absent.fields.len(), absent.held_back.len()), (0, 1));
    assert_eq!(told(Some("headroom")).headroom, all.headroom);
}

#[test]
fn ren_031_requirements_merge_by_label_in_the_files_too() {
    let repository = repository(&[
        FLEET,
        (
            "environments/base.toml",
            "abstract = true\n[pools.general]\nstrategy = 'spot'\nzones = ['a']\nrequirements = { 'kubernetes.io/arch' = ['arm64'], 'topology.kubernetes.io/zone' = ['x'] }\n",
        ),
        (
            "environments/prod.yaml",
            "extends: base\npools:\n  general:\n    zones: [b]\n    requirements:\n      - { key: topology.kubernetes.io/zone, operator: NotIn, values: [y] }\n",
        ),
    ]);
    let pool = manifest(&state(&repository), "NodePool", "general");
    let of = |key: &str| -> Vec<Value> {
        let list = pool["spec"]["template"]["spec"]["requirements"].as_array().expect("a list");
        list.iter().filter(|one| one["key"] == key).cloned().collect()
    };
    assert_eq!(of("kubernetes.io/arch")[0]["values"], json!(["arm64"]));
    assert_eq!(
        of("topology.kubernetes.io/zone"),
        [
            json!({ "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"] }),
            json!({ "key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["y"] }),
        ]
    );
}

#[test]
fn ren_032_a_removed_pool_is_gone_and_removing_nothing_is_an_error() {
    let base =
        ("environments/base.toml", "abstract = true\npools.a.strategy = 'spot'\npools.b.strategy = 'spot'\n");
    let good = repository(&[
        FLEET,
        base,
        ("environments/prod.toml", "extends = 'base'\npools.a = { '$remove' = true }\n"),
    ]);
    let names: Vec<String> = state(&good).objects.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["EC2NodeClass/default", "NodePool/b"]);
    let bad = repository(&[
        FLEET,
        base,
        ("environments/prod.toml", "extends = 'base'\npools.c = { '$remove' = true }\n"),
    ]);
    assert_eq!(at(&only(errors(&bad))), ("PRV1305", "environments/prod.toml:2:7".to_owned()));
}

#[test]
fn ren_033_broken_chains_of_extends_are_told_with_the_chain() {
    let circle = repository(&[
        FLEET,
        ("environments/prod.toml", "extends = 'a'\n"),
        ("environments/a.toml", "extends = 'b'\n"),
        ("environments/b.toml", "extends = 'a'\n"),
    ]);
    let found = only(errors(&circle));
    assert_eq!(at(&found), ("PRV1302", "environments/prod.toml:1:11".to_owned()));
    assert!(
        found.message.ends_with(
            "environments/prod.toml → environments/a.toml → environments/b.toml → environments/a.toml"
        ),
        "{found}"
    );
    let deep: Vec<(String, String)> =
        (1..6).map(|at| (format!("environments/e{at}.toml"), format!("extends = 'e{}'\n", at + 1))).collect();
    let mut files = vec![FLEET, ("environments/prod.toml", "extends = 'e1'\n"), ("environments/e6.toml", "")];
    files.extend(deep.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    assert_eq!(only(errors(&repository(&files))).code, "PRV1303");
    let missing = repository(&[
        FLEET,
        ("environments/prod.toml", "extends = 'bsae'\n"),
        ("environments/base.toml", ""),
    ]);
    let found = only(errors(&missing));
    assert_eq!(at(&found), ("PRV1301", "environments/prod.toml:1:11".to_owned()));
    assert_eq!(found.help.as_deref(), Some("did you mean `base`?"));
}

#[test]
fn ren_034_final_fields_cannot_be_overridden() {
    let base = "abstract = true\nfinal = ['pools.*.budgets']\n[pools.a]\nstrategy = 'spot'\nbudgets = [{ nodes = 1 }]\n";
    for above in [
        "[pools.a]\nbudgets = [{ nodes = 5 }]\n",
        "[defaults.pool]\nbudgets = []\n",
        "pools.a = { '$remove' = true }\n",
    ] {
        let prod = format!("extends = 'base'\n{above}");
        let found = errors(&repository(&[
            FLEET,
            ("environments/base.toml", base),
            ("environments/prod.toml", &prod),
        ]));
        let found = only(found);
        assert_eq!(found.code, "PRV1304", "{found}");
        assert_eq!(found.chain[0].place.to_string(), "environments/base.toml:2:10");
    }
}

#[test]
fn ren_034_final_variables_hold_for_pools_and_classes_too() {
    let base = "[pools.a]\nstrategy = 'spot'\nvariables = { other = 1, team = 'base' }\n[classes.default]\n";
    let found = |path: &str, above: &str| {
        let base = format!(
            "abstract = true\nfinal = ['{path}']\nvariables = {{ team = 'x', db = {{ size = 1 }} }}\n{base}"
        );
        let prod = format!("extends = 'base'\n{above}\n");
        let files = [FLEET, ("environments/base.toml", &*base), ("environments/prod.toml", &*prod)];
        let report = validate_repository(&repository(&files), &RenderSettings::default());
        let errors = report.diagnostics.into_iter().filter(Diagnostic::is_error);
        errors.map(|one| (one.code, one.place.to_string())).collect::<Vec<_>>()
    };
    for (path, above, column) in [
        ("variables.team", "variables = { team = 'y' }", 15),
        ("variables.team", "pools.a.variables = { team = 'y' }", 23),
        ("variables.team", "pools.new = { strategy = 'spot', variables = { team = 'y' } }", 48),
        ("variables.team", "pools.a.variables = { team = { '$remove' = true } }", 23),
        ("variables.team", "pools.a.variables = { '$remove' = true }", 9),
        ("variables.team", "classes.default.variables.team = 'y'", 27),
        ("variables.team", "defaults.pool.variables.team = 'y'", 25),
        ("variables.team", "defaults.class.variables.team = 'y'", 26),
        ("variables.db.size", "pools.a.variables.db.size = 2", 22),
        ("variables", "pools.a.variables.own = 2", 9),
    ] {
        let place = format!("environments/prod.toml:2:{column}");
        assert_eq!(found(path, above), [("PRV1304", place)], "{path}: {above}");
    }
    for above in ["pools.a.variables.own = 2", "pools.a = { '$remove' = true }", "variables.own = 1"] {
        assert_eq!(found("variables.team", above), [], "{above}");
    }
}

#[test]
fn ren_034_final_fields_cannot_be_overridden_in_the_object() {
    let told = |fleet: &str, base: &str, prod: &str| -> Vec<(String, String)> {
        let files = [
            ("fleet.toml", format!("name = 'shop'\n{fleet}")),
            ("environments/base.toml", format!("abstract = true\n{base}")),
            ("environments/prod.toml", format!("extends = 'base'\n{prod}")),
        ];
        let repository = repository(&files.each_ref().map(|(path, text)| (*path, text.as_str())));
        let report = validate_repository(&repository, &RenderSettings::default());
        // Some of these values would be wrong in other ways, too.
        let finals = report.diagnostics.into_iter().filter(|one| one.code == "PRV1304");
        finals.map(|one| (one.place.to_string(), one.chain[0].place.to_string())).collect()
    };
    let base = "[pools.a]\nstrategy = 'spot'\n";
    let told_once = |word: &str, base: &str, prod: &str| {
        // Requirements that there are can be changed, others not.
        let set = if word.ends_with(".zones") { "[defaults.pool]\nzones = ['us-east-1a']\n" } else { "" };
        let found = told(&format!("final = ['{word}']\n{set}"), base, prod);
        let [(place, wish)] = found.as_slice() else { panic!("{word}: {prod}: {found:?}") };
        assert_eq!(
            (place.starts_with("environments/prod.toml:"), &**wish),
            (true, "fleet.toml:2:10"),
            "{word}"
        );
    };
    for (word, path, value) in [
        ("budgets", "spec.disruption.budgets", "[{ nodes = '100%' }]"),
        ("budgets", "spec.disruption.budgets[0].nodes", "'100%'"),
        ("budgets", "spec.disruption", "{ budgets = [{ nodes = '100%' }] }"),
        ("limits", "spec.limits.cpu", "20"),
        ("limits.cpu", "spec.limits.cpu", "20"),
        ("limits", "spec.limits", "{ nodes = 3 }"),
        ("weight", "spec.weight", "7"),
        ("replicas", "spec.replicas", "7"),
        ("labels", "spec.template.metadata.labels.team", "'b'"),
        ("labels.team", "spec.template.metadata.labels.team", "'b'"),
        ("labels.example.com/team", "spec.template.metadata.labels.example.com/team", "'b'"),
        ("annotations", "spec.template.metadata.annotations.team", "'b'"),
        ("description", "metadata.annotations['kubernetes.io/description']", "'b'"),
        ("class", "spec.template.spec.nodeClassRef.name", "'b'"),
        ("taints", "spec.template.spec.taints", "[]"),
        ("startup-taints", "spec.template.spec.startupTaints", "[]"),
        ("expire-after", "spec.template.spec.expireAfter", "'1h'"),
        ("expire-after", "spec.template.spec.expireAfter", "{ '$remove' = true }"),
        ("termination-grace-period", "spec.template.spec.terminationGracePeriod", "'1h'"),
        ("consolidation-policy", "spec.disruption.consolidationPolicy", "'WhenEmpty'"),
        ("consolidate-after", "spec.disruption.consolidateAfter", "'1h'"),
        ("zones", "spec.template.spec.requirements", "[]"),
        ("requirements", "spec.template.spec.requirements", "[]"),
        ("capacity-types", "spec.template.spec.requirements[0].values", "['on-demand']"),
    ] {
        let name = if path.contains('\'') { format!("\"{path}\"") } else { format!("'{path}'") };
        told_once(&format!("pools.*.{word}"), base, &format!("[pools.a.overrides]\n{name} = {value}\n"));
        told_once(
            &format!("pools.a.{word}"),
            base,
            &format!("[defaults.pool.overrides]\n{name} = {value}\n"),
        );
    }
    for (word, path, value) in [
        ("tags", "spec.tags.team", "'b'"),
        ("ami", "spec.amiSelectorTerms[0].alias", "'al2023@v20250101'"),
        ("volumes", "spec.blockDeviceMappings", "[]"),
        ("user-data", "spec.userData", "'b'"),
        ("user-data-file", "spec.userData", "'b'"),
        ("kubelet.maxPods", "spec.kubelet.maxPods", "20"),
        ("metadata-options", "spec.metadataOptions.httpTokens", "'optional'"),
        ("subnets", "spec.subnetSelectorTerms", "[]"),
    ] {
        let word = format!("classes.*.{word}");
        told_once(&word, base, &format!("[classes.default.overrides]\n'{path}' = {value}\n"));
        told_once(&word, base, &format!("[defaults.class.overrides]\n'{path}' = {value}\n"));
    }
    // What a lower layer overrides is part of what is final.
    let lower = format!("final = ['pools.*.weight']\n{base}overrides = {{ 'spec.weight' = 3 }}\n");
    let found = told("", &lower, "[pools.a]\noverrides = { '$remove' = true }\n");
    assert_eq!(found, [("environments/prod.toml:3:1".to_owned(), "environments/base.toml:2:10".to_owned())]);
    // Everything else stays free.
    for (word, prod) in [
        ("limits.cpu", "'spec.limits.nodes' = 3"),
        ("labels.team", "'spec.template.metadata.labels.team.example.com/x' = 'b'"),
        ("budgets", "'spec.disruption.consolidateAfter' = '1h'"),
        ("replicas", "'spec.weight' = 3"),
        ("zones", "'spec.template.spec.requirements[0].values' = ['on-demand']"),
    ] {
        let set = if word == "zones" { "[defaults.pool]\nzones = ['us-east-1a']\n" } else { "" };
        let fleet = format!("final = ['pools.*.{word}']\n{set}");
        let prod = format!("[pools.a.overrides]\n{prod}\n");
        assert_eq!(told(&fleet, base, &prod), [], "{word}");
    }
    // A template of one's own says itself what a word becomes.
    let own = "{% set quota = pool.limits | default({'cpu': '1'}) %}apiVersion: karpenter.sh/v1\nkind: NodePool\n\
               metadata: { name: {{ pool.name }} }\nspec:\n  limits: {{ quota | tojson }}\n  weight: {{ vars.rank }}\n  \
               template:\n    spec:\n      requirements: []\n      \
               nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }\n";
    for (word, path) in [("variables.rank", "spec.weight"), ("limits", "spec.limits.cpu")] {
        let fleet = format!(
            "name = 'shop'\nfinal = ['pools.*.{word}']\n[defaults.pool]\nvariables = {{ rank = 3 }}\n"
        );
        let prod = format!("[pools.a]\nstrategy = 'own'\noverrides = {{ '{path}' = 9 }}\n");
        let files =
            [("fleet.toml", &*fleet), ("environments/prod.toml", &*prod), ("templates/own.yaml.j2", own)];
        assert_eq!(only(errors(&repository(&files))).code, "PRV1304", "{word}");
    }
}

#[test]
fn ren_035_two_objects_of_one_name_cite_both_origins() {
    let template = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: { name: same }\nspec:\n  template:\n    spec:\n      requirements: []\n      nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }\n";
    let repository = repository(&[
        FLEET,
        ("environments/prod.toml", "pools.a.strategy = 'own'\npools.b.strategy = 'own'\n"),
        ("templates/own.yaml.j2", template),
    ]);
    let found = only(errors(&repository));
    assert_eq!(found.code, "PRV1504", "{found}");
    let text = found.to_string();
    assert!(
        text.contains("environments/prod.toml:1:7") || text.contains("environments/prod.toml:2:7"),
        "{text}"
    );
}

#[test]
fn one_broken_environment_does_not_hold_up_the_others() {
    let good = "pools.a.strategy = 'spot'\n";
    let repository = repository(&[
        FLEET,
        ("environments/a.toml", good),
        ("environments/b.toml", good),
        ("environments/c.toml", good),
        ("environments/d.toml", "pools.a.strategy = \n"),
    ]);
    let all = render_all(&repository, &RenderSettings::default()).expect("the fleet is there");
    let fine: Vec<&str> = all.iter().filter(|(_, result)| result.is_ok()).map(|(name, _)| &**name).collect();
    assert_eq!((all.len(), fine), (4, vec!["a", "b", "c"]));
}

#[test]
fn ren_037_a_newer_format_is_refused() {
    let found = only(errors(&fleet("format_version = 2\n[pools.a]\nstrategy = 'spot'\n")));
    assert_eq!(at(&found), ("PRV1208", "environments/prod.toml:1:18".to_owned()));
    assert_eq!(found.message, "the file needs format version 2, and this build reads 1");
    let found = only(errors(&fleet("format_version = -1\n")));
    assert_eq!(found.code, "PRV1206");
}

#[test]
fn ren_037_an_older_format_is_read_with_a_warning_that_offers_to_migrate() {
    let pool = "[pools.a]\nstrategy = 'spot'\nmin-instance-cpu = 4\n";
    let (old, warnings) = render(&fleet(&format!("format_version = 0\n{pool}"))).expect("it renders");
    let said: Vec<(Severity, &str, String)> =
        warnings.iter().map(|one| (one.severity, one.code, one.place.to_string())).collect();
    let at = |place: &str| format!("environments/prod.toml:{place}");
    assert_eq!(said, [(Severity::Warning, "PRV1209", at("1:18")), (Severity::Warning, "PRV1210", at("4:1"))]);
    assert!(
        warnings
            .iter()
            .all(|one| one.help.as_deref().is_some_and(|help| help.contains("`provisor migrate`")))
    );
    let new = pool.replace("min-instance-cpu", "instance-cpu-min");
    let (new, warnings) = render(&fleet(&format!("format_version = 1\n{new}"))).expect("it renders");
    assert_eq!((new.digest, warnings), (old.digest, vec![]), "both mean the same");
    let found = only(errors(&fleet(&format!("format_version = 1\n{pool}"))));
    assert_eq!(found.code, "PRV1210", "the newest version has the new words only");
}

#[test]
fn ren_039_contradictions_name_both_requirements() {
    let prod = "[pools.a]\nstrategy = 'spot'\nrequirements = [\n  { key = 'team', operator = 'In', values = ['a'] },\n  { key = 'team', operator = 'NotIn', values = ['a'] },\n]\n";
    let found = only(errors(&fleet(prod)));
    assert_eq!(at(&found), ("PRV1601", "environments/prod.toml:5:3".to_owned()));
    assert_eq!(found.message, "no node can meet both `team In [a]` and `team NotIn [a]`");
    assert_eq!(found.chain[0].place.to_string(), "environments/prod.toml:4:3");
    let bounds = "[pools.a]\nstrategy = 'spot'\ninstance-cpu-min = 8\ninstance-cpu-max = 4\n";
    assert_eq!(at(&only(errors(&fleet(bounds)))), ("PRV1601", "environments/prod.toml:4:20".to_owned()));
    let fine = "[pools.a]\nstrategy = 'spot'\ninstance-cpu-min = 4\ninstance-cpu-max = 4\n";
    state(&fleet(fine));
}

#[test]
fn ren_042_a_gpu_pool_without_a_taint_is_worth_a_look() {
    let prod = "[pools.a]\nstrategy = 'on-demand'\ninstance-families = ['g5']\n";
    let (_, warnings) = render(&fleet(prod)).expect("it renders");
    let warning = only(warnings);
    assert_eq!(
        (warning.severity, at(&warning)),
        (Severity::Warning, ("PRV1604", "environments/prod.toml:3:21".to_owned()))
    );
    let (_, warnings) = render(&fleet("[pools.a]\nstrategy = 'gpu-spot'\n")).expect("it renders");
    assert_eq!(warnings, []);
}

#[test]
fn ren_043_budgets_need_both_halves_of_a_window_and_at_most_everything() {
    let prod = "[pools.a]\nstrategy = 'spot'\nbudgets = [{ nodes = '110%' }, { schedule = '@daily' }]\n";
    let found = errors(&fleet(prod));
    assert_eq!(at(&found[0]), ("PRV1203", "environments/prod.toml:3:22".to_owned()));
    let prod = "[pools.a]\nstrategy = 'spot'\nbudgets = [{ nodes = 1, schedule = '@daily' }]\n";
    let found = only(errors(&fleet(prod)));
    assert_eq!(at(&found), ("PRV1605", "environments/prod.toml:3:25".to_owned()));
}

#[test]
fn ren_044_credentials_are_refused_and_never_repeated() {
    let secret = "AKIAIOSFODNN7EXAMPLE";
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----\n";
    let toml = format!("[classes.default]\nuser-data = \"export AWS_ACCESS_KEY_ID={secret}\"\n");
    let file = repository(&[
        FLEET,
        (
            "environments/prod.toml",
            "[pools.a]\nstrategy = 'spot'\n[classes.default]\nuser-data-file = 'boot.sh'\n",
        ),
        ("boot.sh", &format!("#!/bin/bash\ncat > key <<EOF\n{key}EOF\n")),
    ]);
    for (repository, place) in [(fleet(&toml), "environments/prod.toml:2:13"), (file, "boot.sh:3:1")] {
        let found = only(errors(&repository));
        assert_eq!(at(&found), ("PRV1609", place.to_owned()));
        let shown = format!("{found}{}", serde_json::to_string(&found).expect("it serialises"));
        assert!(!shown.contains(secret) && !shown.contains("BEGIN RSA"), "{shown}");
        assert!(!found.place.source.text.contains(secret));
    }
}

#[test]
fn ren_050_a_change_of_a_base_lists_whom_it_reaches() {
    let files = |weight: u32| {
        let base = format!("abstract = true\n[pools.a]\nstrategy = 'spot'\nweight = {weight}\n");
        repository(&[
            FLEET,
            ("environments/base.toml", &base),
            ("environments/dev.toml", "extends = 'base'\n"),
            ("environments/prod.toml", "extends = 'base'\n"),
            ("environments/lab.toml", "pools.a.strategy = 'spot'\n"),
        ])
    };
    let reached = reach(&files(1), &files(2), &RenderSettings::default()).expect("both are fleets");
    let reached: Vec<(&str, Reach)> = reached.iter().map(|(name, reach)| (&**name, *reach)).collect();
    assert_eq!(reached, [("dev", Reach::Changed), ("lab", Reach::Unchanged), ("prod", Reach::Changed)]);
}

#[test]
fn a_missing_environment_is_an_error_and_no_empty_set() {
    let base = "abstract = true\npools.a.strategy = 'spot'\n";
    let dev = ("environments/dev.toml", "extends = 'base'\n");
    let repository = repository(&[FLEET, ("environments/base.toml", base), dev]);
    let found = only(errors(&repository));
    assert_eq!(found.code, "PRV1103");
    assert_eq!(found.message, "PathNotFound: there is no environment `prod` at this commit");
    assert_eq!(found.help.as_deref(), Some("the environments are `dev`"), "nobody renders the base");
}

/// `[defaults.pool]` of the fleet, a base that is extended, and the environment on top of both.
fn three_layers(defaults: &str, base: &str, prod: &str) -> Repository {
    repository(&[
        ("fleet.toml", &format!("name = \"shop\"\n{defaults}")),
        ("environments/base.toml", &format!("abstract = true\n{base}")),
        ("environments/prod.toml", &format!("extends = \"base\"\n{prod}")),
    ])
}

const DEFAULTS: &str = "[defaults]\nvariables = { x = 1, y = 2 }\n[defaults.pool]\nweight = 10\nlimits = { cpu = 100 }\n\
                        labels = { a = \"1\", b = \"2\" }\nbudgets = [{ name = \"always\", nodes = \"7%\" }]\n\
                        taints = [\"own=1:NoSchedule\", \"two=1:NoSchedule\"]\nvariables = { z = 3 }\n\
                        overrides = { spec.template.spec.expireAfter = \"99h\" }\n\
                        [defaults.class]\ntags = { b = \"1\", c = \"2\" }\n";

#[test]
fn what_defaults_say_can_be_taken_away() {
    let prod = "[pools.web]\nstrategy = \"gpu-spot\"\nlabels.a = { \"$remove\" = true }\nlimits = { \"$remove\" = true }\n\
                weight = { \"$remove\" = true }\nbudgets = [{ name = \"always\", \"$remove\" = true }]\n\
                taints = [{ key = \"own\", effect = \"NoSchedule\", \"$remove\" = true }]\n\
                overrides = { \"$remove\" = true }\n\
                [pools.other]\nstrategy = \"spot\"\n[classes.default]\ntags.b = { \"$remove\" = true }\n";
    let (state, _) = render(&three_layers(DEFAULTS, "", prod)).expect("every marker meets something");
    let web = &manifest(&state, "NodePool", "web")["spec"];
    let gone = [&web["weight"], &web["limits"]];
    assert_eq!(gone, [&Value::Null, &Value::Null]);
    assert_eq!(web["template"]["metadata"]["labels"], json!({ "b": "2" }));
    // Nothing is said of budgets any more, so the template's own holds; the GPU taint stands beside what is left.
    assert_eq!(web["disruption"]["budgets"], json!([{ "nodes": "10%" }]));
    let taints = web["template"]["spec"]["taints"].as_array().expect("taints");
    let keys: Vec<&str> = taints.iter().filter_map(|taint| taint["key"].as_str()).collect();
    assert_eq!(keys, ["nvidia.com/gpu", "two"]);
    assert_eq!(web["template"]["spec"]["expireAfter"], "720h");
    let other = &manifest(&state, "NodePool", "other")["spec"];
    assert_eq!((&other["weight"], &other["limits"]["cpu"]), (&json!(10), &json!("100")));
    assert_eq!(other["template"]["spec"]["expireAfter"], "99h");
    let tags = &manifest(&state, "EC2NodeClass", "default")["spec"]["tags"];
    assert_eq!((&tags["b"], &tags["c"]), (&Value::Null, &json!("2")));
}

#[test]
fn the_last_taint_that_is_taken_away_leaves_the_strategys_own() {
    let defaults = "[defaults.pool]\ntaints = [\"own=1:NoSchedule\"]\n";
    let prod = "[pools.web]\nstrategy = \"gpu-spot\"\n\
                taints = [{ key = \"own\", effect = \"NoSchedule\", \"$remove\" = true }]\n";
    let (state, _) = render(&three_layers(defaults, "", prod)).expect("it renders");
    let web = manifest(&state, "NodePool", "web");
    assert_eq!(web["spec"]["template"]["spec"]["taints"][0]["key"], "nvidia.com/gpu");
}

#[test]
fn what_was_taken_away_does_not_come_back_from_below() {
    let base = "[defaults.pool]\nlabels = { c = \"3\" }\n[pools.web]\nstrategy = \"spot\"\n\
                labels = { \"$remove\" = true }\nlimits = { \"$remove\" = true }\n\
                [pools.old]\nstrategy = \"spot\"\nweight = 50\n";
    let prod = "[pools.web]\nlabels = { d = \"4\" }\nlimits = { nodes = 3 }\nweight = 20\n\
                [pools.old]\nweight = { \"$remove\" = true }\n";
    let repository = three_layers(DEFAULTS, base, prod);
    let (state, _) = render(&repository).expect("it renders");
    let web = &manifest(&state, "NodePool", "web")["spec"];
    assert_eq!(web["template"]["metadata"]["labels"], json!({ "d": "4" }));
    assert_eq!((&web["limits"], &web["weight"]), (&json!({ "nodes": "3" }), &json!(20)));
    // Both the base's and the fleet's weight lie below the marker.
    assert_eq!(manifest(&state, "NodePool", "old")["spec"]["weight"], Value::Null);
    let told = explain(&repository, "prod", "web", Some("weight"), &RenderSettings::default());
    let layers: Vec<(String, u32)> = told.expect("it is told").fields[0]
        .layers
        .iter()
        .map(|layer| (layer.origin.file.to_string(), layer.origin.line))
        .collect();
    assert_eq!(layers, [("fleet.toml".to_owned(), 5), ("environments/prod.toml".to_owned(), 5)]);
}

#[test]
fn variables_from_any_layer_below_can_be_taken_away() {
    let template = "{% set labels = {'seen': vars | length | string} %}apiVersion: karpenter.sh/v1\nkind: NodePool\n\
                    metadata:\n  name: {{ pool.name | tojson }}\n  annotations:\n    vars: {{ vars | tojson | tojson }}\n\
                    spec:\n  template:\n    spec:\n      nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }\n\
                    \x20     requirements: []\n";
    let vars = |base: &str, prod: &str| {
        let files = [
            ("fleet.toml", format!("name = \"shop\"\n{DEFAULTS}")),
            ("environments/base.toml", format!("abstract = true\n{base}")),
            ("environments/prod.toml", format!("extends = \"base\"\n{prod}")),
            ("templates/shown.yaml.j2", template.to_owned()),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let (state, _) = render(&repository(&files)).unwrap_or_else(|found| panic!("{found}"));
        let text = manifest(&state, "NodePool", "web")["metadata"]["annotations"]["vars"].clone();
        serde_json::from_str::<Value>(text.as_str().expect("a text")).expect("JSON")
    };
    let pool = "[pools.web]\nstrategy = \"shown\"\n";
    assert_eq!(vars("", pool), json!({ "x": 1, "y": 2, "z": 3 }));
    let some =
        format!("{pool}variables = {{ x = {{ \"$remove\" = true }}, z = {{ \"$remove\" = true }} }}\n");
    assert_eq!(vars("", &some), json!({ "y": 2 }));
    let all = format!("{pool}variables = {{ \"$remove\" = true }}\n");
    assert_eq!(vars("", &all), json!({}));
    assert_eq!(vars(&all, "[pools.web]\nvariables = { w = 4 }\n"), json!({ "w": 4 }));
    let nested =
        "[variables]\nt = { a = 1, b = 2 }\n[defaults.pool]\nvariables = { t = { \"$remove\" = true } }\n";
    let again = format!("{pool}variables = {{ t = {{ b = 3 }} }}\n");
    assert_eq!(vars(nested, &again), json!({ "x": 1, "y": 2, "z": 3, "t": { "b": 3 } }));
}

#[test]
fn a_marker_that_meets_nothing_in_any_layer_is_told() {
    let prod = "[defaults.pool]\nexpire-after = { \"$remove\" = true }\n[pools.web]\nstrategy = \"spot\"\n\
                replicas = { \"$remove\" = true }\nlabels = { q = { \"$remove\" = true } }\n\
                budgets = [{ name = \"never\", \"$remove\" = true }]\nvariables = { q = { \"$remove\" = true } }\n\
                [pools.gone]\n\"$remove\" = true\n[classes.default]\ntags.q = { \"$remove\" = true }\n";
    let found = errors(&three_layers(DEFAULTS, "", prod));
    let lines: Vec<(&str, u32)> = found.iter().map(|one| (one.code, one.place.position().0)).collect();
    assert_eq!(lines, [3, 6, 7, 8, 9, 10, 13].map(|line| ("PRV1305", line)), "{found:#?}");
}
