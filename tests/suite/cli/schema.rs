//! Answers for programs against the schemas that the program publishes, and those against what is checked in.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::{VERBS, code, edit, err, fleet, json, out, recorded, run};

/// Fails unless `document` is what the schema `name` says, and has no field that the schema does not know.
pub fn conforms(name: &str, document: &Value) {
    let schemas = provisor::ui::cli::output_schemas();
    let (_, schema) = schemas.iter().find(|(known, _)| *known == name).expect("the schema exists");
    let mut wrong = Vec::new();
    check(schema, schema, document, name, &mut wrong);
    assert_eq!(wrong, Vec::<String>::new());
}

/// The part of JSON Schema that our types need.
pub fn check(root: &Value, schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = root.pointer(name.trim_start_matches('#')).expect(name);
        return check(root, schema, value, path, wrong);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let fits = |choice: &Value| {
            let mut tried = Vec::new();
            check(root, choice, value, path, &mut tried);
            tried.is_empty()
        };
        if !choices.iter().any(fits) {
            wrong.push(format!("{path} fits none of its forms: {value}"));
        }
        return;
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !kinds.contains(&kind) {
        wrong.push(format!("{path} is {kind}, not {}", kinds.join(" or ")));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(root, &schema["items"], item, &format!("{path}[{index}]"), wrong);
    }
    let Some(fields) = value.as_object() else { return };
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(required) {
            wrong.push(format!("{path}.{required} is missing"));
        }
    }
    for (key, field) in fields {
        let path = format!("{path}.{key}");
        match (schema["properties"].get(key), schema.get("additionalProperties")) {
            (None, _)
                if schema["patternProperties"].as_object().is_some_and(|all| !all.contains_key("^x-")) =>
            {
                let patterns = schema["patternProperties"].as_object().into_iter().flatten();
                patterns.for_each(|(_, named)| check(root, named, field, &path, wrong));
            }
            // Notes may stand everywhere in what people write.
            (None, Some(Value::Bool(false))) if !key.starts_with("x-") => {
                wrong.push(format!("{path} is not in the schema"));
            }
            (Some(known), _) | (None, Some(known)) => check(root, known, field, &path, wrong),
            (None, None) if schema.get("properties").is_some() => {
                wrong.push(format!("{path} is not in the schema"))
            }
            _ => {}
        }
    }
}

#[test]
fn published_schemas_are_checked_in() {
    for (name, schema) in provisor::ui::cli::output_schemas() {
        recorded(&format!("config-schema/output/{name}.schema.json"), &format!("{schema:#}\n"));
    }
}

#[test]
fn syn_067_every_answer_is_one_versioned_document_of_its_schema() {
    let (_dir, fleet) = fleet();
    for (verb, line) in VERBS {
        let done = run(&fleet, &format!("{line} --output json"));
        assert_eq!(code(&done), 0, "{verb}: {}", err(&done));
        let document = json(&out(&done));
        assert_eq!(document["version"], 1, "{verb}");
        conforms(verb, &document);
    }
    let done = run(&fleet, "diff --env dev --env prod --output json");
    assert_eq!(code(&done), 1);
    conforms("diff", &json(&out(&done)));
}

#[test]
fn schemas_are_printed_by_the_program() {
    let (_dir, fleet) = fleet();
    for kind in ["fleet", "environment", "simulation", "output/plan", "output/run", "environment --draft 4"] {
        let schema = json(&out(&run(&fleet, &format!("schema {kind}"))));
        assert!(schema["$schema"].as_str().is_some_and(|name| name.contains("json-schema.org")), "{kind}");
    }
}

/// The verbs that the program says it has.
fn verbs() -> Vec<String> {
    let help = out(&run(std::path::Path::new("."), "--help"));
    let commands = help.split("Commands:\n").nth(1).expect("there are commands");
    let lines = commands.lines().take_while(|line| !line.is_empty());
    let words = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    words
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| *word != "help")
        .map(str::to_owned)
        .collect()
}

pub fn git(fleet: &Path, words: &[&str]) -> String {
    let done = std::process::Command::new("git")
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.com"])
        .args(words)
        .current_dir(fleet)
        .output()
        .expect("git starts");
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text").trim().to_owned()
}

#[test]
fn every_verb_has_a_schema_and_its_real_answers_are_of_it() {
    let (dir, fleet) = fleet();
    let known: Vec<&str> = provisor::ui::cli::output_schemas().into_iter().map(|(name, _)| name).collect();
    let verbs = verbs();
    assert!(verbs.len() >= 17, "{verbs:?}");
    for verb in &verbs {
        assert!(known.contains(&verb.as_str()), "{verb} has no schema");
    }
    edit(
        &fleet,
        "environments/prod.toml",
        "region = ",
        "promotion = { from = [\"dev\"], paths = [\"pools.*.limits\"], soak = \"2h\" }\nregion = ",
    );
    git(&fleet, &["add", "--all"]);
    git(&fleet, &["commit", "--quiet", "-m", "one"]);
    let head = git(&fleet, &["rev-parse", "HEAD"]);
    let rendered = out(&run(&fleet, "render dev"));
    std::fs::write(fleet.join("cluster.yaml"), rendered).expect("it is written");
    let mut seen: Vec<String> = VERBS.iter().map(|(verb, _)| (*verb).to_owned()).collect();
    for (verb, line) in [
        ("ack", format!("ack dev --revision {head}")),
        ("lock", "lock --check".to_owned()),
        ("migrate", "migrate --check".to_owned()),
        ("promote", "promote prod --bypass incident".to_owned()),
        ("snapshot", "snapshot cluster.yaml".to_owned()),
    ] {
        let done = super::command(&fleet, &format!("{line} --output json"))
            .env("XDG_CACHE_HOME", dir.path().join("cache"))
            .output()
            .expect("the program starts");
        assert_eq!(code(&done), 0, "{verb}: {}", err(&done));
        conforms(verb, &json(&out(&done)));
        seen.push(verb.to_owned());
    }
    let tale = dir.path().join("tale.jsonl.zst");
    let told = run(&fleet, &format!("demo --no-wait -o json --record {}", tale.display()));
    assert_eq!(code(&told), 0, "{}", err(&told));
    let mut kinds = Vec::new();
    for line in out(&told).lines() {
        let line = json(line);
        conforms("demo", &line);
        kinds.push(line["kind"].as_str().expect("a kind").to_owned());
    }
    for kind in ["Note", "Plan", "Outcome", "Launched"] {
        assert!(kinds.iter().any(|known| known == kind), "{kind} is missing");
    }
    for (verb, line) in [
        ("replay", format!("replay {} --what-if pools.general.weight=1", tale.display())),
        ("why", format!("why node node-5e1f0003 --recording {}", tale.display())),
    ] {
        conforms(verb, &json(&out(&run(&fleet, &format!("{line} --output json")))));
        seen.push(verb.to_owned());
    }
    seen.extend(["demo".to_owned(), "run".to_owned()]);
    seen.sort();
    let mut verbs = verbs;
    verbs.sort();
    assert_eq!(seen, verbs, "every verb is tried");
}

#[test]
fn a_followed_commit_is_told_to_programs_as_a_commit_and_its_plan() {
    let (_dir, fleet) = fleet();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("provisor"))
        .args(["run", "--env", "prod", "--for", "10s", "-o", "json", "--repo"])
        .arg(&fleet)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut first = String::new();
    while !first.contains("following") {
        first.clear();
        assert!(std::io::BufRead::read_line(&mut stdout, &mut first).expect("text") > 0, "it follows");
        conforms("run", &json(&first));
    }
    edit(&fleet, "environments/prod.toml", "weight = 10", "weight = 11");
    git(&fleet, &["commit", "--quiet", "-a", "-m", "heavier"]);
    let commit = git(&fleet, &["rev-parse", "HEAD"]);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut rest).expect("text");
    let said = std::io::read_to_string(child.stderr.take().expect("piped")).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{said}");
    let lines: Vec<Value> = rest.lines().map(json).collect();
    lines.iter().for_each(|line| conforms("run", line));
    let of_kind =
        |kind: &str| lines.iter().find(|line| line["kind"] == kind).unwrap_or_else(|| panic!("{rest}"));
    assert_eq!(of_kind("Commit")["commit"]["id"], *commit);
    let plan = &of_kind("Plan")["plan"];
    assert_eq!((&plan["commit"], &plan["summary"]["update"]), (&Value::from(commit), &Value::from(1)));
    let change = &plan["changes"][0];
    assert_eq!((&change["action"], &change["verdict"]), (&Value::from("update"), &Value::from("proceed")));
    assert_eq!(change["fields"][0]["path"], "spec.weight");
    assert_eq!(
        (&change["fields"][0]["from"], &change["fields"][0]["to"]),
        (&Value::from(10), &Value::from(11))
    );
    for line in said.lines() {
        conforms(if line.contains("\"error\":") { "error" } else { "notice" }, &json(line));
    }
}

#[test]
fn a_fleet_of_another_provisioner_is_simulated_with_a_word_about_it() {
    let (_dir, fleet) = fleet();
    edit(&fleet, "environments/prod.toml", "region = ", "engine = \"karpenter\"\nregion = ");
    let played = run(&fleet, "simulate --repo . --env prod --for 1m -o json");
    assert_eq!(code(&played), 0, "{}", err(&played));
    let document = json(&out(&played));
    conforms("simulate", &document);
    assert_eq!(document["engine"], "karpenter");
    let notice = document["engineNotice"].as_str().expect("told");
    assert!(notice.contains("Provisor's own engine stands in for it"), "{notice}");
    assert!(out(&run(&fleet, "simulate --repo . --env prod --for 1m")).contains(notice));
    let ours = json(&out(&run(&fleet, "simulate --repo . --env dev --for 1m -o json")));
    assert_eq!((&ours["engine"], &ours["engineNotice"]), (&Value::from("provisor"), &Value::Null));
}
