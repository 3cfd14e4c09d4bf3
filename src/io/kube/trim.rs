//! JSON without the parts that decide nothing: they are skipped while the text is read, and never take memory.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Under which field what is skipped. A label of the same name is under `labels` and stays.
const SKIPPED: [(&str, &[&str]); 6] = [
    ("metadata", &["managedFields", "selfLink"]),
    ("containers", CONTAINER),
    ("initContainers", CONTAINER),
    ("ephemeralContainers", CONTAINER),
    ("status", &["images", "daemonEndpoints", "nodeInfo", "volumesInUse", "volumesAttached"]),
    ("annotations", &["kubectl.kubernetes.io/last-applied-configuration"]),
];
const CONTAINER: &[&str] = &[
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "securityContext",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeMounts",
];

/// An object without what nobody needs.
#[derive(Clone, Debug)]
pub(super) struct Trimmed(pub Value);

impl<'de> Deserialize<'de> for Trimmed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Part { under: "" }.deserialize(from).map(Self)
    }
}

/// A part of an object; `under` is the field that holds it, lists not counted.
struct Part<'a> {
    under: &'a str,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Part { under: self.under })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let skipped =
            SKIPPED.iter().find(|(under, _)| *under == self.under).map_or(&[][..], |(_, keys)| keys);
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if skipped.contains(&key.as_str()) {
                entries.next_value::<IgnoredAny>()?;
            } else {
                let value = entries.next_value_seed(Part { under: &key })?;
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_decides_is_kept() {
        let text = r#"{"metadata": {"name": "a", "managedFields": [{"manager": "x"}], "labels": {"env": "prod"}},
            "spec": {"containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": "secret"}],
            "resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]}, "status": {"images": [1, 2.5]}}"#;
        let Trimmed(value) = serde_json::from_str(text).unwrap();
        let expected = json!({
            "metadata": { "name": "a", "labels": { "env": "prod" } },
            "spec": { "containers": [{
                "name": "c", "resources": { "requests": { "cpu": "1" } }, "ports": [{ "hostPort": 80 }],
            }] },
            "status": {},
        });
        assert_eq!(value, expected);
    }
}
