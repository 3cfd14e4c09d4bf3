//! Words of a pool that travel to the cluster as annotations: rendered, checked with their place, read strictly.

use crate::fleet_files::{errors, fleet, manifest, render, repository, state};
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

#[test]
fn windows_become_an_annotation_without_their_names_and_layers_merge_by_name() {
    let key = "provisor.dev/windows";
    let pool = "[pools.a]\nstrategy = 'spot'\n[[pools.a.windows]]\nname = 'nights'\nkind = 'allow'\nfrom = '22:00'\nuntil = '6:00'\n\
                time-zone = 'Asia/Seoul'\n[[pools.a.windows]]\nname = 'sale'\nkind = 'deny'\ndays = 'fri'\nreasons = ['Empty']\nx-why = 'the sale'\n";
    let nights = r#"{"kind":"allow","from":"22:00","until":"6:00","time-zone":"Asia/Seoul"}"#;
    let sale = r#"{"kind":"deny","days":"fri","reasons":["Empty"]}"#;
    assert_eq!(annotations(pool)[key], json!(format!("[{nights},{sale}]")));
    let layered = |upper: &str| {
        let base = pool.replace("pools.a", "defaults.pool").replacen(
            "[defaults.pool]",
            "abstract = true\n[defaults.pool]",
            1,
        );
        let prod = format!("extends = 'base'\n[pools.a]\n{upper}\n");
        let files = [
            ("fleet.toml", "name = 'shop'\n"),
            ("environments/base.toml", &*base),
            ("environments/prod.toml", &*prod),
        ];
        manifest(&state(&repository(&files)), "NodePool", "a")["metadata"]["annotations"][key].clone()
    };
    assert_eq!(
        layered("windows = [{ name = 'sale', days = 'sat' }]"),
        json!(format!("[{nights},{}]", sale.replace("fri", "sat")))
    );
    assert_eq!(layered("windows = [{ name = 'nights', '$remove' = true }]"), json!(format!("[{sale}]")));
}

#[test]
fn mistakes_in_windows_are_told_once_with_their_place() {
    let of = |window: &str| {
        let found =
            told(&format!("[pools.a]\nstrategy = 'spot'\nwindows = [{{ kind = 'deny' }}, {{ {window} }}]\n"));
        let [(place, message, help)] = &found[..] else { panic!("{window}: {found:?}") };
        let column = place.rsplit(':').next().unwrap_or_default().parse::<usize>().expect("a column");
        assert!(place.contains(" environments/prod.toml:3:") && column > 30, "{place}");
        (message.clone(), help.clone().unwrap_or_default())
    };
    for (window, message, help) in [
        (
            "kind = 'allow', time-zone = 'Asia/Soul'",
            "`time-zone` is \"Asia/Soul\", which is not a time zone of the IANA database",
            "did you mean \"Asia/Seoul\"?",
        ),
        (
            "kind = 'allow', days = 'monday'",
            "`days` is \"monday\", which is not a list of weekdays",
            "first three letters",
        ),
        (
            "kind = 'allow', from = '25:00'",
            "`from` is \"25:00\", which is not a time of the day",
            "\"06:30\"",
        ),
        ("kind = 'alow'", "`kind` is \"alow\", which is not one of its words", "did you mean `allow`?"),
        (
            "kind = 'deny', reasons = ['Interrupted']",
            "`reasons` is \"Interrupted\", which is not one of its words",
            "",
        ),
        ("days = 'fri'", "`windows[1].kind`: is required", "correct it"),
        (
            "kind = 'deny', from = '22:00', until = '22:00'",
            "`windows[1].until`: is when the window begins, so it has no length",
            "whole days",
        ),
        ("kind = 'deny', from = '24:00'", "`windows[1].from`: is the end of a day", "`00:00`"),
    ] {
        let told = of(window);
        assert_eq!(told.0, message);
        assert!(told.1.contains(help), "{window}: {}", told.1);
    }
    let many = vec!["{ kind = 'deny' }"; 51].join(", ");
    let found = told(&format!("[pools.a]\nstrategy = 'spot'\nwindows = [{many}]\n"));
    assert!(
        found.iter().any(|(_, message, _)| message == "`windows` has 51 entries; 50 is the most"),
        "{found:?}"
    );
}

#[test]
fn windows_that_never_open_and_words_that_nobody_acts_on_are_warned_of() {
    let of = |prod: &str| {
        let (_, warnings) = render(&fleet(prod)).expect("it is right");
        let told = |one: &Diagnostic| format!("{} {} {}", one.code, one.place, one.message);
        warnings.iter().map(told).collect::<Vec<_>>()
    };
    let shut = "[pools.a]\nstrategy = 'spot'\nwindows = [{ kind = 'deny', reasons = ['Drifted'] }]\n";
    assert_eq!(
        of(shut),
        ["PRV1633 environments/prod.toml:3:1 these windows never let a node go for Drifted"]
    );
    let both = "[pools.a]\nstrategy = 'spot'\n\
                windows = [{ kind = 'allow', from = '01:00', until = '03:00' }, { kind = 'deny', until = '05:00' }]\n";
    assert_eq!(
        of(both),
        ["PRV1633 environments/prod.toml:3:1 these windows never let a node go for any reason"]
    );
    let karpenter = "engine = 'karpenter'\n[pools.a]\nstrategy = 'spot'\nreturn = {}\nwindows = [{ kind = 'deny', days = 'fri' }]\n";
    let found = of(karpenter);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|told| told.starts_with("PRV1634 environments/prod.toml:")), "{found:?}");
    assert_eq!(of("[pools.a]\nstrategy = 'spot'\nwindows = [{ kind = 'deny', days = 'fri' }]\n"), [""; 0]);
}

#[test]
fn what_an_installed_karpenter_looks_at_only_with_a_feature_gate_is_told() {
    let gated = "[pools.a]\nstrategy = 'spot'\nheadroom = { pods = 1, cpu = '1' }\n\
                 [pools.b]\nstrategy = 'spot'\nreplicas = 2\n\
                 [overlays.cheap]\nrequirements = [{ key = 'topology.kubernetes.io/zone', operator = 'In', values = ['us-east-1a'] }]\n\
                 priceAdjustment = '-1%'\n";
    let of = |prod: &str| {
        let (_, warnings) = render(&fleet(prod)).expect("it is right");
        let told = |one: &Diagnostic| format!("{} {} {}", one.code, one.place, one.message);
        warnings.iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(of(gated), [""; 0]);
    let found = of(&format!("engine = 'karpenter'\n{gated}"));
    for (gate, line) in [("CapacityBuffer", 4), ("StaticCapacity", 7), ("NodeOverlay", 8)] {
        let begin = format!("PRV1637 environments/prod.toml:{line}:");
        let is_told =
            |told: &&String| told.starts_with(&begin) && told.contains(&format!("`{gate}`, which is off"));
        assert_eq!(found.iter().filter(is_told).count(), 1, "{gate}: {found:?}");
    }
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn windows_of_an_annotation_are_read_strictly() {
    let of = |text: &str| {
        let pool = read(json!({ "provisor.dev/windows": text }));
        assert_eq!((pool.fault, pool.is_ready), (None, true));
        pool.terms.windows.expect("there is a word").meaning
    };
    let read = of(
        r#"[{"kind":"deny","days":"mon-fri","from":"9:00","until":"17:00","time-zone":"Europe/Berlin"},{"kind":"allow"}]"#,
    );
    assert_eq!(read.map(|windows| windows.0.len()), Ok(2));
    for text in [
        "{}",
        "null",
        "\"deny\"",
        "[1]",
        "[{}]",
        r#"[{"kind":"deny","timezone":"UTC"}]"#,
        r#"[{"kind":"deny","time-zone":"Mars/Base"}]"#,
        r#"[{"kind":"deny","time-zone":null}]"#,
        r#"[{"kind":"deny","reasons":"Drifted"}]"#,
        r#"[{"kind":"deny","reasons":["Drifting"]}]"#,
        r#"[{"kind":"deny","name":"x"}]"#,
        r#"[{"kind":"deny"}"#,
    ] {
        assert!(of(text).is_err(), "{text}");
    }
}

#[test]
fn expiration_becomes_an_annotation_and_its_mistakes_have_their_place() {
    let of = |said: &str| format!("[pools.a]\nstrategy = 'spot'\nexpiration = {said}\n");
    let said = "{ jitter = '20%', nodes = 1, replace-first = false, deadline = '72h' }";
    let written = r#"{"jitter":"20%","nodes":1,"replace-first":false,"deadline":"72h"}"#;
    assert_eq!(annotations(&of(said))["provisor.dev/expiration"], json!(written));
    for (said, message) in [
        ("{ jitter = '60%' }", "`expiration.jitter`: `60%` is no percentage from 0% to 50%"),
        ("{ jitter = 'some' }", "`jitter` is \"some\", which is not a percentage"),
        ("{ deadline = 'soon' }", "`deadline` is \"soon\", which is not a duration or `never`"),
        (
            "{ nodes = '200%' }",
            "`nodes` is \"200%\", which is not a number of nodes or a percentage up to 100%",
        ),
        ("{ replace-first = 'no' }", "`replace-first` is \"no\" (a text) where true or false is expected"),
    ] {
        let found = told(&of(said));
        let [(place, told, _)] = &found[..] else { panic!("{said}: {found:?}") };
        assert_eq!(told, message);
        assert!(
            place.starts_with("PRV1203 environments/prod.toml:3:") || place.starts_with("PRV1202"),
            "{place}"
        );
    }
    let warned = |prod: &str| {
        let (_, warnings) = render(&fleet(prod)).expect("it is right");
        warnings.iter().map(|one| format!("{} {}", one.code, one.message)).collect::<Vec<_>>()
    };
    assert_eq!(
        warned(
            "[pools.a]\nstrategy = 'spot'\nexpiration.deadline = '24h'\nwindows = [{ kind = 'allow', days = 'sun' }]\n"
        ),
        [
            "PRV1635 nodes may go outside of their windows: those are closed for up to 144h, and after 24h nodes go by force"
        ]
    );
    assert_eq!(
        warned("[pools.a]\nstrategy = 'spot'\nexpire-after = 'Never'\nexpiration = {}\n"),
        ["PRV1635 `expiration` has no effect: no node of the pool ever expires"]
    );
    assert_eq!(
        warned(
            "[pools.a]\nstrategy = 'spot'\nexpiration = {}\nwindows = [{ kind = 'allow', days = 'sun' }]\n"
        ),
        [""; 0]
    );
}

#[test]
fn expiration_of_an_annotation_is_read_strictly() {
    let of = |text: &str| {
        let pool = read(json!({ "provisor.dev/expiration": text }));
        assert_eq!((pool.fault, pool.is_ready), (None, true));
        pool.terms.expiration.expect("there is a word").meaning
    };
    let usual = of("{}").expect("it can be read");
    assert_eq!((usual.jitter, usual.replaces_first, usual.nodes), (10, true, None));
    assert_eq!(usual.deadline, Some(SignedDuration::from_hours(168)));
    let read = of(r#"{"jitter":"0%","replace-first":false,"nodes":"5%","deadline":"never"}"#)
        .expect("it can be read");
    assert_eq!((read.jitter, read.replaces_first, read.deadline), (0, false, None));
    for text in [
        "[]",
        r#"{"jitter":10}"#,
        r#"{"jitter":"-1%"}"#,
        r#"{"nodes":-1}"#,
        r#"{"nodes":true}"#,
        r#"{"deadline":""}"#,
        r#"{"hard":1}"#,
    ] {
        assert!(of(text).is_err(), "{text}");
    }
}
