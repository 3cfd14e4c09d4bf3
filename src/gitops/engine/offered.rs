//! What templates may use: operators, filters, tests and functions that pay for what they build, and nothing else.

use std::sync::Arc;

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters};

use super::{FUEL, RECURSION};
use crate::gitops::flow::Trail;
use crate::gitops::meter::{Capped, Meter, look, text_of_value, too_much, unpaid_text, weigh};
use crate::gitops::template::{
    ADD, CHARGE, CLOSE, EMIT, GIVEN, HELD, JOIN, LOOKED, MULTIPLY, NO_BLOCK, NUMBER_END, OPEN, SIZED, STEP,
};

/// An engine with metered operators, metered filters and nothing else.
pub(super) fn restricted(meter: &Arc<Meter>, trail: &Arc<Trail>) -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_debug(true);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    let metered = meter.clone();
    environment.set_formatter(move |out, _, value| {
        let text = text_of_value(&metered, value)?;
        out.write_str(&text).map_err(Error::from)
    });
    add_operators(&mut environment, meter);
    add_notes(&mut environment, meter, trail);
    add_filters(&mut environment, meter);
    add_tests(&mut environment, meter);
    // Lazy, so it costs nothing until something is made of it.
    environment.add_function("range", minijinja::functions::range);
    let dict = Value::from_function(minijinja::functions::dict);
    let metered = meter.clone();
    environment.add_function("dict", move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
        let args = args.into_values();
        args.iter().try_for_each(|input| weigh(&metered, input, true))?;
        dict.call(state, &args)
    });
    environment.add_function("namespace", minijinja::functions::namespace);
    environment
}

/// How an error says where what is undefined stands: by the bytes of its beginning and end.
pub(super) const STANDS: &str = "stands at ";

/// A value that must be defined.
fn defined(value: Value, start: u32, end: u32) -> Result<Value, Error> {
    match value.is_undefined() {
        true => Err(undefined(&format!("{STANDS}{start} {end}"))),
        false => Ok(value),
    }
}

/// How an error names an argument of a test: by its place behind it.
pub(super) const ARGUMENT: &str = "argument ";

pub(crate) fn undefined(what: &str) -> Error {
    Error::new(ErrorKind::UndefinedError, what.to_owned())
}

/// What says where values come from.
fn add_notes(environment: &mut Environment<'static>, meter: &Arc<Meter>, trail: &Arc<Trail>) {
    let (metered, noted) = (meter.clone(), trail.clone());
    let emit = move |state: &mut State<'_, '_>, mark: u32, value: Value, read: Option<Value>| {
        if value.is_undefined() {
            return Err(undefined(EMIT));
        }
        // The formatter charges for it.
        let text = unpaid_text(&metered, &value)?;
        let step = noted.step(state, mark as usize, read.as_ref());
        Ok(format!("{OPEN}{step}{NUMBER_END}{text}{CLOSE}"))
    };
    environment.add_function(EMIT, emit);
    let noted = trail.clone();
    environment.add_function(STEP, move |state: &mut State<'_, '_>, mark: u32, read: Option<Value>| {
        noted.step(state, mark as usize, read.as_ref()) as u64
    });
}

fn add_operators(environment: &mut Environment<'static>, meter: &Arc<Meter>) {
    let metered = meter.clone();
    environment.add_function(CHARGE, move |bytes: u32| metered.charge(bytes as usize).map(|()| ""));
    let metered = meter.clone();
    environment.add_function(SIZED, move |value: Value| weigh(&metered, &value, true).map(|()| value));
    environment.add_function(GIVEN, defined);
    environment.add_function(NO_BLOCK, || -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "`super()` stands outside of a block"))
    });
    let metered = meter.clone();
    environment.add_function(HELD, move |value: Value, start: u32, end: u32| {
        let value = defined(value, start, end)?;
        weigh(&metered, &value, false).map(|()| value)
    });
    let metered = meter.clone();
    environment.add_function(LOOKED, move |value: Value| look(&metered, &value).map(|()| value));
    let metered = meter.clone();
    environment.add_function(JOIN, move |left: Value, right: Value| {
        if left.is_undefined() || right.is_undefined() {
            return Err(undefined("~"));
        }
        let mut text = text_of_value(&metered, &left)?;
        text.push_str(&text_of_value(&metered, &right)?);
        metered.charge(text.len())?;
        Ok(text)
    });
    let metered = meter.clone();
    environment.add_function(ADD, move |left: Value, right: Value| add(&metered, &left, &right));
    environment.add_function(MULTIPLY, |left: Value, right: Value| {
        if left.is_undefined() || right.is_undefined() {
            return Err(undefined("*"));
        }
        if !(left.is_number() && right.is_number()) {
            let detail = "only numbers can be multiplied: texts and lists are not repeated";
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        numbers(&left, &right, i128::checked_mul, |a, b| a * b)
    });
}

fn add(meter: &Meter, left: &Value, right: &Value) -> Result<Value, Error> {
    if left.is_undefined() || right.is_undefined() {
        return Err(undefined("+"));
    }
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        meter.charge(left.len() + right.len())?;
        return Ok(Value::from([left, right].concat()));
    }
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if is_list(left) && is_list(right) {
        weigh(meter, left, true)?;
        weigh(meter, right, true)?;
        let items: Vec<Value> = left.try_iter()?.chain(right.try_iter()?).collect();
        return Ok(Value::from(items));
    }
    if left.is_number() && right.is_number() {
        return numbers(left, right, i128::checked_add, |a, b| a + b);
    }
    let detail = format!("{} and {} cannot be added", left.kind(), right.kind());
    Err(Error::new(ErrorKind::InvalidOperation, detail))
}

fn numbers(
    left: &Value,
    right: &Value,
    whole: fn(i128, i128) -> Option<i128>,
    fraction: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    if left.is_integer() && right.is_integer() {
        let (left, right) = (i128::try_from(left.clone())?, i128::try_from(right.clone())?);
        let sum = whole(left, right);
        return match sum.map(|sum| i64::try_from(sum).map_or_else(|_| Value::from(sum), Value::from)) {
            Some(sum) => Ok(sum),
            None => Err(Error::new(ErrorKind::InvalidOperation, "the number is too large")),
        };
    }
    Ok(Value::from(fraction(f64::try_from(left.clone())?, f64::try_from(right.clone())?)))
}

/// What filters, tests and functions cannot do without, besides what they are asked about.
pub(super) const NEEDS: [(&str, &[&str]); 20] = [
    ("attr", &["name"]),
    ("batch", &["count"]),
    ("catalog", &["type"]),
    ("divisibleby", &["number"]),
    ("endingwith", &["text"]),
    ("eq", &["other"]),
    ("ge", &["other"]),
    ("groupby", &["attribute"]),
    ("gt", &["other"]),
    ("in", &["values"]),
    ("le", &["other"]),
    ("lt", &["other"]),
    ("ne", &["other"]),
    ("overlaid", &["upper"]),
    ("range", &["end"]),
    ("rejectattr", &["attribute"]),
    ("replace", &["from", "to"]),
    ("selectattr", &["attribute"]),
    ("slice", &["count"]),
    ("startingwith", &["text"]),
];

/// What filters may be given by its name; all else is given by its place only.
pub(super) const NAMED: [(&str, &[&str]); 12] = [
    ("dictsort", &["by", "case_sensitive", "reverse"]),
    ("float", &["default"]),
    ("groupby", &["attribute", "default", "case_sensitive"]),
    ("indent", &["width", "first"]),
    ("int", &["default", "base"]),
    ("map", &["attribute", "default"]),
    ("max", &["attribute", "case_sensitive"]),
    ("min", &["attribute", "case_sensitive"]),
    ("round", &["precision", "method"]),
    ("sort", &["attribute", "case_sensitive", "reverse"]),
    ("sum", &["attribute", "start"]),
    ("unique", &["attribute", "case_sensitive"]),
];

/// Names for suggestions.
pub(super) const FILTER_NAMES: [&str; 46] = [
    "abs",
    "attr",
    "batch",
    "bool",
    "capitalize",
    "count",
    "d",
    "default",
    "dictsort",
    "first",
    "float",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "overlaid",
    "quote",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "split",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "unique",
    "upper",
    "zip",
    "chain",
];

fn add_filters(environment: &mut Environment<'static>, meter: &Arc<Meter>) {
    // What only looks at its input, or makes something no larger than it.
    let plain: [(&'static str, Value); 37] = [
        ("abs", Value::from_function(filters::abs)),
        ("attr", Value::from_function(filters::attr)),
        ("batch", Value::from_function(filters::batch)),
        ("bool", Value::from_function(filters::bool)),
        ("capitalize", Value::from_function(filters::capitalize)),
        ("chain", Value::from_function(filters::chain)),
        ("count", Value::from_function(filters::length)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("first", Value::from_function(filters::first)),
        ("float", Value::from_function(filters::float)),
        ("groupby", Value::from_function(filters::groupby)),
        ("int", Value::from_function(filters::int)),
        ("items", Value::from_function(filters::items)),
        ("last", Value::from_function(filters::last)),
        ("length", Value::from_function(filters::length)),
        ("lines", Value::from_function(filters::lines)),
        ("list", Value::from_function(filters::list)),
        ("lower", Value::from_function(filters::lower)),
        ("map", Value::from_function(filters::map)),
        ("max", Value::from_function(filters::max)),
        ("min", Value::from_function(filters::min)),
        ("reject", Value::from_function(filters::reject)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("reverse", Value::from_function(filters::reverse)),
        ("round", Value::from_function(filters::round)),
        ("safe", Value::from_function(filters::safe)),
        ("select", Value::from_function(filters::select)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("slice", Value::from_function(filters::slice)),
        ("sort", Value::from_function(filters::sort)),
        ("split", Value::from_function(filters::split)),
        ("sum", Value::from_function(filters::sum)),
        ("title", Value::from_function(filters::title)),
        ("trim", Value::from_function(filters::trim)),
        ("unique", Value::from_function(filters::unique)),
        ("upper", Value::from_function(filters::upper)),
        ("zip", Value::from_function(filters::zip)),
    ];
    for (name, filter) in plain {
        let metered = meter.clone();
        environment.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            if args.first().is_some_and(Value::is_undefined) {
                return Err(undefined(name));
            }
            // Its result is at most a copy of the input, which is paid before it is made.
            for input in args.iter() {
                match input.as_str() {
                    Some(text) => metered.charge(text.len())?,
                    None => weigh(&metered, input, true)?,
                }
            }
            // These two make as many lists, or entries of one, as their count says.
            if let ("batch" | "slice", Some(count)) = (name, args.get(1)) {
                let count = usize::try_from(count.clone()).unwrap_or(usize::MAX);
                metered.charge(count.saturating_mul(4 * size_of::<Value>()))?;
            }
            filter.call(state, &args)
        });
    }
    environment.add_filter("default", filters::default);
    environment.add_filter("d", filters::default);
    add_text_filters(environment, meter);
}

fn add_text_filters(environment: &mut Environment<'static>, meter: &Arc<Meter>) {
    for name in ["tojson", "quote"] {
        let metered = meter.clone();
        environment.add_filter(name, move |value: Value| json(&metered, &value, name));
    }
    let metered = meter.clone();
    environment.add_filter("string", move |value: Value| {
        if value.is_undefined() { Err(undefined("string")) } else { text_of_value(&metered, &value) }
    });
    let metered = meter.clone();
    environment.add_filter("join", move |values: Value, separator: Option<String>| {
        if values.is_undefined() {
            return Err(undefined("join"));
        }
        let separator = separator.unwrap_or_default();
        let mut out = String::new();
        for (at, value) in values.try_iter()?.enumerate() {
            if value.is_undefined() {
                return Err(undefined("join"));
            }
            if at > 0 {
                metered.charge(separator.len())?;
                out.push_str(&separator);
            }
            out.push_str(&text_of_value(&metered, &value)?);
        }
        Ok(out)
    });
    let metered = meter.clone();
    environment.add_filter("replace", move |text: Value, from: String, to: String| {
        if text.is_undefined() {
            return Err(undefined("replace"));
        }
        let text = text_of_value(&metered, &text)?;
        let hits = if from.is_empty() { text.chars().count() + 1 } else { text.matches(&from).count() };
        metered.charge(text.len().saturating_add(hits.saturating_mul(to.len())))?;
        Ok(text.replace(&from, &to))
    });
    let metered = meter.clone();
    environment.add_filter("indent", move |text: Value, width: Option<u32>, kwargs: Kwargs| {
        if text.is_undefined() {
            return Err(undefined("indent"));
        }
        let width = width.map_or_else(|| kwargs.get("width"), Ok).unwrap_or(4).min(100) as usize;
        let first: bool = kwargs.get::<Option<bool>>("first")?.unwrap_or(false);
        kwargs.assert_all_used()?;
        let text = text_of_value(&metered, &text)?;
        metered.charge(text.len().saturating_add(text.lines().count().saturating_mul(width)))?;
        let pad = " ".repeat(width);
        let mut out = String::new();
        for (at, line) in text.split_inclusive('\n').enumerate() {
            if !line.trim().is_empty() && (at > 0 || first) {
                out.push_str(&pad);
            }
            out.push_str(line);
        }
        Ok(out)
    });
    let metered = meter.clone();
    environment.add_filter("overlaid", move |lower: Value, upper: Value, fields: Rest<String>| {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        overlaid(&metered, &lower, &upper, if fields.is_empty() { &["key"] } else { &fields })
    });
}

/// JSON, which is also YAML that nothing inside the value can break.
fn json(meter: &Meter, value: &Value, name: &str) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(undefined(name));
    }
    weigh(meter, value, false)?;
    let mut out = Capped { text: Vec::new() };
    serde_json::to_writer(&mut out, value).map_err(|error| match error.is_io() {
        true => too_much(),
        false => Error::new(ErrorKind::BadSerialization, error.to_string()),
    })?;
    meter.charge(out.text.len())?;
    Ok(Value::from_safe_string(String::from_utf8_lossy(&out.text).into_owned()))
}

/// Two lists of tables as one: entries of `lower` whose `field` also occurs in `upper` give way to those.
fn overlaid(meter: &Meter, lower: &Value, upper: &Value, fields: &[&str]) -> Result<Value, Error> {
    if lower.is_undefined() || upper.is_undefined() {
        return Err(undefined("overlaid"));
    }
    let name_of = |entry: &Value| -> Result<Vec<Value>, Error> {
        fields.iter().map(|field| entry.get_attr(field)).collect()
    };
    let names: Vec<Vec<Value>> = upper.try_iter()?.map(|entry| name_of(&entry)).collect::<Result<_, _>>()?;
    let mut out = Vec::new();
    for entry in lower.try_iter()? {
        let name = name_of(&entry)?;
        meter.look(names.len() * fields.len())?;
        if !names.contains(&name) {
            out.push(entry);
        }
    }
    out.extend(upper.try_iter()?);
    meter.charge(out.len() * size_of::<Value>())?;
    Ok(Value::from(out))
}

fn add_tests(environment: &mut Environment<'static>, meter: &Arc<Meter>) {
    use minijinja::tests;
    let plain: [(&'static str, Value); 23] = [
        ("none", Value::from_function(tests::is_none)),
        ("boolean", Value::from_function(tests::is_boolean)),
        ("odd", Value::from_function(tests::is_odd)),
        ("even", Value::from_function(tests::is_even)),
        ("divisibleby", Value::from_function(tests::is_divisibleby)),
        ("number", Value::from_function(tests::is_number)),
        ("integer", Value::from_function(tests::is_integer)),
        ("float", Value::from_function(tests::is_float)),
        ("string", Value::from_function(tests::is_string)),
        ("sequence", Value::from_function(tests::is_sequence)),
        ("iterable", Value::from_function(tests::is_iterable)),
        ("mapping", Value::from_function(tests::is_mapping)),
        ("startingwith", Value::from_function(tests::is_startingwith)),
        ("endingwith", Value::from_function(tests::is_endingwith)),
        ("eq", Value::from_function(tests::is_eq)),
        ("ne", Value::from_function(tests::is_ne)),
        ("lt", Value::from_function(tests::is_lt)),
        ("le", Value::from_function(tests::is_le)),
        ("gt", Value::from_function(tests::is_gt)),
        ("ge", Value::from_function(tests::is_ge)),
        ("in", Value::from_function(tests::is_in)),
        ("true", Value::from_function(tests::is_true)),
        ("false", Value::from_function(tests::is_false)),
    ];
    for (name, test) in plain {
        let metered = meter.clone();
        environment.add_test(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            if let Some(at) = args.iter().position(Value::is_undefined) {
                return Err(undefined(&format!("{ARGUMENT}{at}")));
            }
            args.iter().try_for_each(|looked| look(&metered, looked))?;
            Ok::<_, Error>(test.call(state, &args)?.is_true())
        });
    }
    // The ones that are about being there.
    environment.add_test("defined", |value: &Value| !value.is_undefined());
    environment.add_test("undefined", |value: &Value| value.is_undefined());
}
