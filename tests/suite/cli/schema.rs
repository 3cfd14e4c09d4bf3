//! Answers for programs against the schemas that the program publishes, and those against what is checked in.

use serde_json::Value;

use super::{VERBS, code, err, fleet, json, out, recorded, run};

/// Fails unless `document` is what the schema `name` says, and has no field that the schema does not know.
pub fn conforms(name: &str, document: &Value) {
    let schemas = provisor::ui::cli::output_schemas();
    let (_, schema) = schemas.iter().find(|(known, _)| *known == name).expect("the schema exists");
    let mut wrong = Vec::new();
    check(schema, schema, document, name, &mut wrong);
    assert_eq!(wrong, Vec::<String>::new());
}

/// The part of JSON Schema that our types need.
fn check(root: &Value, schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.trim_start_matches("#/$defs/");
        return check(root, &root["$defs"][name], value, path, wrong);
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
        if verb != "schema" {
            conforms(verb, &document);
        }
    }
    let done = run(&fleet, "diff --env dev --env prod --output json");
    assert_eq!(code(&done), 1);
    conforms("diff", &json(&out(&done)));
}

#[test]
fn schemas_are_printed_by_the_program() {
    let (_dir, fleet) = fleet();
    for kind in ["fleet", "environment", "output/plan", "environment --draft 4"] {
        let schema = json(&out(&run(&fleet, &format!("schema {kind}"))));
        assert!(schema["$schema"].as_str().is_some_and(|name| name.contains("json-schema.org")), "{kind}");
    }
}
