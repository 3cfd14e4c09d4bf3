//! What a cluster's scheduler does with pods that say nothing: the default spread constraints of `podTopologySpread`.

use serde_json::Value;

use super::document::yaml_options;
use super::field::{Field, FieldError, Findings, Stage};
use super::selector;
use crate::model::label;
use crate::model::pod::Spread;

/// Fields of a constraint that a default can have.
const KNOWN: [&str; 6] =
    ["maxSkew", "minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy", "topologyKey", "whenUnsatisfiable"];
/// Fields that say which pods belong together.
const FOUND: [&str; 2] = ["labelSelector", "matchLabelKeys"];

/// The default constraints of `text`, YAML or JSON, without selectors; none for an empty one. Nothing that is not known is passed over.
pub fn parse(text: &str) -> Result<Vec<Spread>, Vec<FieldError>> {
    let found: Result<Option<Value>, _> = serde_saphyr::from_str_with_options(text, yaml_options());
    let value = match found {
        Ok(None) => return Ok(Vec::new()),
        Ok(Some(value)) => value,
        Err(error) => {
            let message = error.to_string();
            return Err(vec![FieldError {
                path: String::new(),
                message,
                help: None,
                stage: Stage::Admission,
                is_of_key: false,
            }]);
        }
    };
    let findings = Findings::default();
    let spreads = read(&Field::root(&value, &findings));
    let mut errors = findings.into_errors();
    errors.sort();
    errors.dedup();
    if errors.is_empty() { Ok(spreads) } else { Err(errors) }
}

fn read(config: &Field<'_, '_>) -> Vec<Spread> {
    if !config.only(&["podTopologySpread"]) {
        return Vec::new();
    }
    let plugin = config.get("podTopologySpread");
    if plugin.is_present() && !plugin.only(&["defaultConstraints"]) {
        return Vec::new();
    }
    let list = plugin.get("defaultConstraints");
    let mut spreads: Vec<Spread> = Vec::new();
    for constraint in list.items() {
        let spread = read_constraint(&constraint);
        let is_same = |known: &Spread| {
            (known.topology_key, known.is_required) == (spread.topology_key, spread.is_required)
        };
        if spreads.iter().any(is_same) {
            constraint.error_with_help(
                "has the topologyKey and whenUnsatisfiable of one before it".into(),
                "leave one of the two out: both would have to hold",
            );
        }
        spreads.push(spread);
    }
    spreads
}

fn read_constraint(constraint: &Field<'_, '_>) -> Spread {
    for key in FOUND {
        let field = constraint.get(key);
        if field.is_present() {
            field.error_with_help(
                "cannot be set on a default".into(),
                "leave it out: the Services and the controller of each pod say which pods belong together",
            );
        }
    }
    constraint.only(&[&KNOWN[..], &FOUND[..]].concat());
    constraint.get("maxSkew").required().integer_in(1..=i64::from(i32::MAX));
    constraint.get("minDomains").integer_in(1..=i64::from(i32::MAX));
    let key = constraint.get("topologyKey");
    if let Some(text) = key.required_text()
        && !label::is_qualified_name(text)
    {
        key.error(format!("`{text}` cannot be the key of a label"));
    }
    constraint.get("whenUnsatisfiable").required();
    for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        constraint.get(policy).choice(&["Honor", "Ignore"]);
    }
    selector::read_spread(constraint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let errors = parse(text).expect_err(text);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    fn with(constraint: &str) -> String {
        format!(r#"{{"podTopologySpread": {{"defaultConstraints": [{constraint}]}}}}"#)
    }

    const ZONAL: &str = r#"{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}"#;

    /// Rows: OBS-006
    #[test]
    fn sch_384_either_notation_is_read() {
        for empty in ["", "\n", "{}", "podTopologySpread: {}", "podTopologySpread: {defaultConstraints: []}"]
        {
            assert_eq!(parse(empty), Ok(Vec::new()), "{empty}");
        }
        let json = parse(&with(ZONAL)).unwrap();
        let yaml = "podTopologySpread:\n  defaultConstraints:\n  - topologyKey: topology.kubernetes.io/zone\n    \
                    maxSkew: 1\n    whenUnsatisfiable: DoNotSchedule\n";
        assert_eq!(parse(yaml).unwrap(), json);
        assert_eq!((json.len(), json[0].max_skew, json[0].is_required), (1, 1, true));
        assert_eq!(json[0].selector, None);
    }

    /// Rows: SCH-384, OBS-006
    #[test]
    fn faults_of_defaults_are_named_where_they_are() {
        for (part, text, wanted) in [
            ("maxSkew", ZONAL.replace(r#""maxSkew": 1"#, r#""maxSkew": 0"#), "must be from 1"),
            ("maxSkew", ZONAL.replace(r#""maxSkew": 1"#, r#""maxSkew": -3"#), "must be from 1"),
            (
                "topologyKey",
                ZONAL.replace("topology.kubernetes.io/zone", "a key"),
                "cannot be the key of a label",
            ),
            ("topologyKey", ZONAL.replace("topology.kubernetes.io/zone", ""), "must not be empty"),
            ("whenUnsatisfiable", ZONAL.replace("DoNotSchedule", "Never"), "is none of DoNotSchedule"),
            ("labelSelector", ZONAL.replace('{', r#"{"labelSelector": {}, "#), "cannot be set on a default"),
            (
                "matchLabelKeys",
                ZONAL.replace('{', r#"{"matchLabelKeys": ["a"], "#),
                "cannot be set on a default",
            ),
            ("maxskew", ZONAL.replace('{', r#"{"maxskew": 2, "#), "did you mean `maxSkew`?"),
        ] {
            let told = refused(&with(&text));
            assert!(told.contains(wanted), "{told}");
            assert!(told.contains(&format!("podTopologySpread.defaultConstraints[0].{part}: ")), "{told}");
        }
        assert!(
            refused(&with(&format!("{ZONAL}, {ZONAL}")))
                .contains("defaultConstraints[1]: has the topologyKey")
        );
        let other = ZONAL.replace("DoNotSchedule", "ScheduleAnyway");
        assert_eq!(parse(&with(&format!("{ZONAL}, {other}"))).map(|spreads| spreads.len()), Ok(2));
        assert!(refused("podtopologyspread: {}").contains("did you mean `podTopologySpread`?"));
        assert!(refused("podTopologySpread: {defaultingType: List}").contains("defaultingType"));
        assert!(refused("podTopologySpread: [").contains("line 1"));
        assert!(refused("17").contains("must be a map"));
    }
}
