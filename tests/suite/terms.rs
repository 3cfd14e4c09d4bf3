//! Words of a pool that travel to the cluster as annotations: rendered, checked with their place, read strictly.

use crate::fleet_files::{errors, fleet, manifest, state};
use provisor::api::hash::of_template;
use provisor::api::{Object, Reader, validate};
use provisor::gitops::diagnostic::Diagnostic;
use provisor::model::pool::NodePool;
use provisor::model::terms::Return;
use provisor::model::time::SignedDuration;
use serde_json::{Value, json};

/// The annotations of the pool `a` that `prod` makes.
fn annotations(prod: &str) -> Value {
    manifest(&state(&fleet(prod)), "NodePool", "a")["metadata"]["annotations"].clone()
}

fn told(prod: &str) -> Vec<(String, String, Option<String>)> {
    let found = errors(&fleet(prod));
    let shown = |one: Diagnostic| (format!("{} {}", one.code, one.place), one.message, one.help);
    found.into_iter().map(shown).collect()
}

/// A NodePool with these annotations.
fn object(annotations: Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": "a", "annotations": annotations },
        "spec": { "template": { "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
            "requirements": [],
        } } },
    })
}

fn read(annotations: Value) -> NodePool {
    match Reader::default().parse(&object(annotations)) {
        Ok(Object::NodePool(pool)) => pool,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_return_becomes_an_annotation_and_the_fallback_strategy_has_one_of_its_own() {
    let key = "provisor.dev/return";
    let of = |pool: &str| annotations(&format!("[pools.a]\n{pool}\n"))[key].clone();
    assert_eq!(of("strategy = 'spot-with-on-demand-fallback'"), json!(r#"{"after":"30m"}"#));
    assert_eq!(
        of("strategy = 'spot-with-on-demand-fallback'\nreturn.after = 'never'"),
        json!(r#"{"after":"never"}"#)
    );
    assert_eq!(of("strategy = 'spot'"), Value::Null);
    assert_eq!(
        of("strategy = 'on-demand'\nreturn = { after = '2h', x-why = 'noon' }"),
        json!(r#"{"after":"2h"}"#)
    );
    // Overrides have the last word, as everywhere.
    let overridden = "strategy = 'spot'\nreturn = {}\noverrides.metadata.annotations = { \"provisor.dev/return\" = '{\"after\":\"1h\"}' }";
    assert_eq!(of(overridden), json!(r#"{"after":"1h"}"#));

    // The line of the strategy is where it comes from.
    let files = fleet("[pools.a]\nstrategy = 'spot'\nreturn = { after = '1h' }\n");
    let state = state(&files);
    let pool = state.objects.iter().find(|(object, _)| &*object.kind == "NodePool").expect("the pool").1;
    let origin = pool.origin("metadata.annotations.provisor.dev/return").expect("it is known");
    assert_eq!(origin.to_string(), "environments/prod.toml:3:1");
}

#[test]
fn mistakes_in_a_return_are_told_once_with_their_place() {
    let of = |line: &str| told(&format!("[pools.a]\nstrategy = 'spot'\n{line}\n"));
    let [(place, message, help)] = &of("return = { after = 'soon' }")[..] else { panic!() };
    assert_eq!(place, "PRV1203 environments/prod.toml:3:20");
    assert_eq!(message, "`after` is \"soon\", which is not a duration or `never`");
    assert_eq!(help.as_deref(), Some("write it like \"2h\""));
    let [(place, message, _)] = &of("return = { after = '999999h' }")[..] else { panic!() };
    assert_eq!(place, "PRV1203 environments/prod.toml:3:20");
    assert_eq!(message, "`return.after`: is longer than ten years, or `never`");
    let [(place, _, help)] = &of("return = { aftr = '1h' }")[..] else { panic!() };
    assert_eq!(place, "PRV1201 environments/prod.toml:3:12");
    assert!(help.as_deref().is_some_and(|help| help.contains("after")), "{help:?}");
    let [(place, ..)] = &of("return = '1h'")[..] else { panic!() };
    assert_eq!(place, "PRV1203 environments/prod.toml:3:10");
}

#[test]
fn annotations_are_read_strictly_and_take_no_part_in_the_hash() {
    let of = |text: &str| read(json!({ "provisor.dev/return": text }));
    let meaning = |text: &str| of(text).terms.returns.expect("there is a word").meaning;
    let after = |minutes| Ok(Return { after: Some(SignedDuration::from_mins(minutes)) });
    assert_eq!(meaning("{}"), after(30));
    assert_eq!(meaning(r#"{"after":"1h"}"#), after(60));
    assert_eq!(meaning(r#"{"after":"never"}"#), Ok(Return { after: None }));
    let long = format!("{}{{}}", " ".repeat(20_000));
    for text in [
        "",
        "soon",
        "[]",
        "null",
        r#"{"after":30}"#,
        r#"{"after":"1h","afterr":"1h"}"#,
        r#"{"after":"-1h"}"#,
        &long,
    ] {
        let pool = of(text);
        assert!(pool.terms.returns.as_ref().is_some_and(|word| word.meaning.is_err()), "{text}");
        assert_eq!((pool.fault, pool.is_ready), (None, true), "the pool goes on being used");
        let found = validate(&object(json!({ "provisor.dev/return": text })));
        let [error] = &found[..] else { panic!("{text}: {found:?}") };
        assert_eq!(error.path, "metadata.annotations.provisor.dev/return");
        assert!(error.message.starts_with("cannot be read: "), "{error}");
    }
    assert_eq!(read(json!({})).terms, Default::default());
    assert_eq!(of_template(&of("{}").template), of_template(&read(json!({})).template));
    assert_eq!(of("{}").hash, read(json!({})).hash);
}
