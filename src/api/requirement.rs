//! Requirements on the wire: a list of key, operator and values, into the algebra of sets and back.

use serde_json::{Value, json};

use super::field::{Field, Stage};
use crate::model::label;
use crate::model::near::nearest;
use crate::model::offering::CapacityType;
use crate::model::requirement::{Operator, Requirement, Requirements};
use crate::model::symbol::Symbol;

/// Which kind of object lists the requirements: each allows other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Pool,
    Claim,
    Overlay,
}

pub(crate) const COUNT_MAX: usize = 100;
pub(crate) const KEY_CHARS_MAX: usize = 316;

/// Reads a list of requirements; several of one key are narrowed to what all of them allow. If that is nothing, the label is
/// absent, as in Karpenter.
pub(crate) fn read(list: &Field<'_, '_>, place: Place) -> Requirements {
    list.at_most(COUNT_MAX);
    let mut requirements = Requirements::new();
    for item in list.items() {
        let known: &[&str] = match place {
            Place::Overlay => &["key", "operator", "values"],
            Place::Pool | Place::Claim => &["key", "operator", "values", "minValues"],
        };
        if !item.only(known) {
            continue;
        }
        let key = item.get("key");
        if let Some(text) = key.required_text() {
            check_key(&key, text, place);
        }
        let operator = item.get("operator").required().choice(&Operator::ALL.map(Operator::as_str));
        let values: Vec<Symbol> = item.get("values").items().filter_map(|value| value.symbol()).collect();
        let min_values = match place {
            Place::Overlay => None,
            Place::Pool | Place::Claim => item.get("minValues").integer_in(1..=50),
        };
        let Some(operator) = operator.and_then(Operator::parse) else { continue };
        check_values(&item, operator, &values, min_values, place);
        if let Some(key) = key.symbol() {
            check_known_values(&item, key, operator, &values, min_values);
            let set = Requirement::new(operator, values);
            requirements.add(key, set.with_min_values(min_values.and_then(|count| count.try_into().ok())));
        }
    }
    requirements.forgive();
    requirements
}

/// The rules for a label key that users may ask for.
pub(crate) fn check_key(field: &Field<'_, '_>, key: &str, place: Place) {
    if key.len() > KEY_CHARS_MAX {
        field.error(format!("has {} characters; {KEY_CHARS_MAX} is the most", key.len()));
    }
    if !is_key_pattern(key) {
        field.error_with_help(
            format!("`{key}` is not a label key"),
            "write a name of letters, digits, `-`, `_` and `.`, optionally after a DNS prefix and a slash",
        );
    } else if !label::is_qualified_name(key) {
        field.runtime_error(format!(
            "`{key}` is too long: 253 characters before the slash and 63 after it are the most"
        ));
    }
    check_domain(field, key, place);
}

/// Which label keys belong to Karpenter, its provider, or the kubelet.
pub(crate) fn check_domain(field: &Field<'_, '_>, key: &str, place: Place) {
    let domain = key.split('/').next().unwrap_or_default();
    let is_nodepool = key == label::NODEPOOL.as_str();
    let (message, help) = if is_nodepool && place == Place::Pool {
        let help = "nodes of a pool always carry the pool's name; leave it out";
        (format!("`{key}` may not be set here"), Some(help.to_owned()))
    } else if !is_nodepool && key != label::CAPACITY_TYPE.as_str() && domain.ends_with("karpenter.sh") {
        let message = format!("`{key}` is in the domain karpenter.sh, which is Karpenter's own");
        (message, Some("use a domain of yours".to_owned()))
    } else if key == label::HOSTNAME.as_str() {
        let help = "every node has its own name, which is not known before it starts";
        (format!("`{key}` may not be asked for"), Some(help.to_owned()))
    } else if let Some(name) = key.strip_prefix("karpenter.k8s.aws/") {
        if label::OF_AWS.contains(&name) {
            return;
        }
        let near = nearest(name, label::OF_AWS);
        let help = near.map(|near| format!("did you mean `karpenter.k8s.aws/{near}`?"));
        (format!("`{key}` is not a label that nodes of EC2 have"), help)
    } else if domain.ends_with("karpenter.k8s.aws") {
        (format!("`{key}` is in the domain karpenter.k8s.aws, which is the provider's own"), None)
    } else {
        return;
    };
    match field.is_entry(key) {
        true => field.note_key(Stage::Admission, message, help),
        false => field.note(Stage::Admission, message, help),
    }
}

fn check_values(
    item: &Field<'_, '_>,
    operator: Operator,
    values: &[Symbol],
    min_values: Option<i64>,
    place: Place,
) {
    let field = item.get("values");
    let needs_values = operator == Operator::In || (operator == Operator::NotIn && place == Place::Overlay);
    if needs_values && field.len() == 0 {
        field.error(format!("operator {} needs at least one value", operator.as_str()));
    }
    if operator.is_comparison() {
        let is_number = |value: &Symbol| value.parse::<i64>().is_ok_and(|number| number >= 0);
        if field.len() != 1 || !values.iter().all(is_number) {
            field.error_with_help(
                format!("operator {} needs exactly one whole number of 0 or more", operator.as_str()),
                "write it as a list of one text, such as [\"4\"]",
            );
        }
    }
    for value in field.items() {
        if let Some(text) = value.text().filter(|text| !label::is_label_value(text)) {
            value.runtime_error(format!("`{text}` is not a label value"));
        }
    }
    if let Some(count) = min_values
        && operator == Operator::In
        && (field.len() as i64) < count
    {
        item.get("minValues").error(format!("asks for {count} values, but only {} are listed", field.len()));
    }
}

/// Keys whose values are a closed list: some unknown ones are forgiven, none left is an error.
fn check_known_values(
    item: &Field<'_, '_>,
    key: Symbol,
    operator: Operator,
    values: &[Symbol],
    min_values: Option<i64>,
) {
    let known: &[&str] = match label::canonical(key).as_str() {
        "karpenter.sh/capacity-type" => &CapacityType::ALL.map(CapacityType::as_str),
        "karpenter.k8s.aws/instance-tenancy" => &["default", "dedicated"],
        _ => return,
    };
    if operator != Operator::In || values.is_empty() {
        return;
    }
    let valid = values.iter().filter(|value| known.contains(&value.as_str())).count();
    let wanted = min_values.unwrap_or(1);
    if (valid as i64) < wanted {
        let message = match valid {
            0 => format!("none of the values exists for `{key}`"),
            _ => format!("only {valid} of the values exist for `{key}`, and minValues asks for {wanted}"),
        };
        let help = Some(format!("there are {}", known.join(", ")));
        item.get("values").note(Stage::Runtime, message, help);
    }
}

/// A qualified name without a limit on its length: what the schema checks.
pub(crate) fn is_key_pattern(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_dns = |prefix: &str| {
        prefix.split('.').all(|part| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|byte| is_plain(*byte))
                && bytes.last().is_some_and(|byte| is_plain(*byte))
                && bytes.iter().all(|byte| is_plain(*byte) || *byte == b'-')
        })
    };
    prefix.is_none_or(is_dns) && is_name_pattern(name)
}

/// Letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit; not empty.
pub(crate) fn is_name_pattern(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// As few entries as say the same: a set with bounds and exclusions takes up to three.
pub(crate) fn render(requirements: &Requirements) -> Value {
    let mut list = Vec::new();
    for (key, requirement) in requirements.iter() {
        let first = list.len();
        let mut push = |operator: Operator, values: Vec<String>| {
            let mut entry = json!({ "key": key.as_str(), "operator": operator.as_str() });
            if !values.is_empty() {
                entry["values"] = values.into();
            }
            list.push(entry);
        };
        let listed =
            |values: &[Symbol]| values.iter().map(|value| value.as_str().to_owned()).collect::<Vec<_>>();
        match (requirement.listed(), requirement.excluded()) {
            (Some([]), _) => push(Operator::DoesNotExist, Vec::new()),
            (Some(values), _) => push(Operator::In, listed(values)),
            (None, excluded) => {
                if let Some(values) = excluded.filter(|values| !values.is_empty()) {
                    push(Operator::NotIn, listed(values));
                }
                if let Some(lower) = requirement.lower() {
                    push(Operator::Gte, vec![lower.to_string()]);
                }
                match requirement.upper() {
                    // The API takes no negative numbers.
                    Some(upper) if upper < 0 => push(Operator::Lt, vec![(upper + 1).to_string()]),
                    Some(upper) => push(Operator::Lte, vec![upper.to_string()]),
                    None => {}
                }
                if !requirement.accepts_absence()
                    && requirement.lower().is_none()
                    && requirement.upper().is_none()
                {
                    push(Operator::Exists, Vec::new());
                }
            }
        }
        if let Some(count) = requirement.min_values {
            list[first]["minValues"] = count.into();
        }
    }
    list.into()
}
