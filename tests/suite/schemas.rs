//! The JSON Schemas that editors use are made from the types of the language, and checked in.

use provisor::gitops::diagnostic::{Diagnostic, Place, Source};
use provisor::gitops::schema::{Draft, SchemaKind, schema_of};
use serde_json::json;

/// File names of the checked-in schemas.
fn files() -> Vec<(String, SchemaKind, Draft)> {
    let of = |kind: SchemaKind| {
        [
            (format!("config-schema/{}.schema.json", kind.name()), kind, Draft::Latest),
            (format!("config-schema/{}.draft4.schema.json", kind.name()), kind, Draft::Draft4),
        ]
    };
    SchemaKind::ALL.into_iter().flat_map(of).collect()
}

#[test]
fn checked_in_schemas_are_those_of_the_types() {
    for (file, kind, draft) in files() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&file);
        let made = schema_of(kind, draft);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &made).expect("the folder is there");
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == made, "{file} is stale: run `UPDATE=1 cargo test`, then read the diff");
    }
}

#[test]
fn every_field_has_a_description_and_an_example() {
    let schema: serde_json::Value =
        serde_json::from_str(&schema_of(SchemaKind::Environment, Draft::Latest)).expect("JSON");
    for name in ["Pool", "Class", "Budget", "Volume"] {
        for (field, shape) in schema["$defs"][name]["properties"].as_object().expect(name) {
            assert!(shape["description"].is_string(), "{name}.{field} has no description");
            let is_example = shape["examples"].is_array() || field == "requirements";
            assert!(is_example, "{name}.{field} has no example");
        }
    }
}

/// What the guide says of `$remove`, an editor must not underline.
#[test]
fn entries_of_lists_can_be_removed_by_what_names_them() {
    use provisor::gitops::render::{RenderSettings, validate_repository};
    let base = "abstract = true\n[pools.a]\nstrategy = 'on-demand'\nbudgets = [{ name = 'b', nodes = '1' }]\n\
                taints = ['k=v:NoSchedule']\nstartup-taints = ['s=v:NoSchedule']\n\
                requirements = [{ key = 'a/b', operator = 'Exists' }]\nclass = 'c'\n\
                [classes.c]\nvolumes = [{ device = '/dev/xvda', size = '20Gi' }, { device = '/dev/xvdb', size = '20Gi' }]\n";
    for (path, entry) in [
        ("pools.a.budgets", json!({ "name": "b", "$remove": true })),
        ("pools.a.taints", json!({ "key": "k", "effect": "NoSchedule", "$remove": true })),
        ("pools.a.startup-taints", json!({ "key": "s", "effect": "NoSchedule", "$remove": true })),
        ("pools.a.requirements", json!({ "key": "a/b", "$remove": true, "x-why": "no" })),
        ("classes.c.volumes", json!({ "device": "/dev/xvdb", "$remove": true })),
    ] {
        let fields = entry.as_object().expect("a table");
        let written: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\" = {value}")).collect();
        let prod = format!("extends = 'base'\n{path} = [{{ {} }}]\n", written.join(", "));
        let files = [
            ("fleet.toml", "name = 'shop'\n"),
            ("environments/base.toml", base),
            ("environments/prod.toml", &prod),
        ];
        let report = validate_repository(&crate::fleet_files::repository(&files), &RenderSettings::default());
        assert!(report.is_valid(), "{prod}: {}", report.diagnostics);
        for draft in [Draft::Latest, Draft::Draft4] {
            let schema: serde_json::Value =
                serde_json::from_str(&schema_of(SchemaKind::Environment, draft)).expect("JSON");
            let steps: Vec<&str> = path.split('.').collect();
            let of = |entry: &serde_json::Value| json!({ steps[0]: { steps[1]: { steps[2]: [entry] } } });
            let wrong = |document: serde_json::Value| {
                let mut wrong = Vec::new();
                crate::cli::schema::check(&schema, &schema, &document, path, &mut wrong);
                wrong
            };
            assert_eq!(wrong(of(&entry)), [""; 0], "{draft:?}");
            let mut nameless = entry.clone();
            nameless.as_object_mut().expect("a table").retain(|key, _| key == "$remove");
            assert_ne!(wrong(of(&nameless)), [""; 0], "{draft:?}: nothing says which");
        }
    }
}

#[test]
fn editors_that_know_draft_four_only_get_draft_four() {
    let text = schema_of(SchemaKind::Environment, Draft::Draft4);
    for newer in ["$defs", "\"const\"", "propertyNames", "2020-12"] {
        assert!(!text.contains(newer), "{newer}");
    }
}

/// Codes in the sources and codes in the guide are the same.
#[test]
fn the_guide_lists_every_code() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let codes = |text: &str, out: &mut std::collections::BTreeSet<String>| {
        let is_code = |at: usize| text[at..].bytes().skip(3).take(4).filter(u8::is_ascii_digit).count() == 4;
        out.extend(
            text.match_indices("PRV")
                .filter(|(at, _)| is_code(*at))
                .map(|(at, _)| text[at..at + 7].to_owned()),
        );
    };
    let guide = std::fs::read_to_string(root.join("docs/guide/strategy.md")).expect("the guide");
    let (mut listed, mut used) = (Default::default(), Default::default());
    codes(&guide, &mut listed);
    let mut paths = ["src/gitops", "src/review", "src/ui/script.rs"].map(|path| root.join(path)).to_vec();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("the module");
            paths.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("diagnostic.rs") {
            codes(&std::fs::read_to_string(&path).expect("a source"), &mut used);
        }
    }
    assert_eq!(used.difference(&listed).collect::<Vec<_>>(), [""; 0], "not in the guide");
    assert_eq!(listed.difference(&used).collect::<Vec<_>>(), [""; 0], "in the guide only");
    // Every diagnostic names the anchor of its code.
    let source = Source::nameless_text("fleet.toml");
    for code in &used {
        let code: &'static str = code.clone().leak();
        let link = Diagnostic::error(code, Place::start_of(&source), "").documentation();
        let (page, anchor) = link.split_once('#').expect("an anchor");
        assert_eq!(page, "docs/guide/strategy.md");
        let anchor = format!("<a id=\"{anchor}\"></a>");
        assert_eq!(guide.matches(&anchor).count(), 1, "{code} has not one anchor in the guide");
    }
}

/// Every file that the guide shows is a valid one.
#[test]
fn the_guide_shows_what_works() {
    use provisor::gitops::render::{RenderSettings, validate_repository};
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("docs/guide/strategy.md")).expect("the guide");
    let base =
        "abstract = true\n[pools.general]\nstrategy = 'spot'\nweight = 1\n[pools.batch]\nstrategy = 'spot'\n";
    for block in guide.split("```").skip(1).step_by(2) {
        let Some((path, _)) = block.split_once('\n').and_then(|(language, text)| {
            let path = text.strip_prefix("# ")?.lines().next()?;
            matches!(language, "toml" | "yaml").then_some((path, text))
        }) else {
            continue;
        };
        let text = block.split_once('\n').expect("a block has lines").1;
        let own = ("environments/own.toml", "extends = 'base'\n");
        let mut files = vec![("environments/base.toml", base), own, (path, text)];
        if path != "fleet.toml" {
            files.push(("fleet.toml", "name = 'shop'\n"));
        }
        let report = validate_repository(&crate::fleet_files::repository(&files), &RenderSettings::default());
        assert!(report.diagnostics.is_empty(), "{path}: {}", report.diagnostics);
    }
}
