//! A text of many objects, handed out one at a time: YAML documents or JSON values, lists unwrapped while they are read.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// One object and its place: the document, and the path inside it (`items[3]`, or nothing).
pub(crate) struct Found {
    pub(crate) value: Value,
    pub(crate) path: String,
}

/// Hands every object of a document to `sink`; the items of a list as soon as each is read.
pub(crate) struct Unwrap<'s>(pub(crate) &'s mut dyn FnMut(Found));

impl<'de> DeserializeSeed<'de> for Unwrap<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unwrap<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a Kubernetes object: a map with apiVersion and kind")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let mut object = Map::new();
        let mut is_list = false;
        // Items of a typed list (PodList) have no kind of their own, and the list's own may come after them.
        let mut unnamed = Vec::new();
        while let Some(key) = from.next_key::<String>()? {
            if key == "items" {
                is_list = true;
                from.next_value_seed(Items { sink: &mut *self.0, unnamed: &mut unnamed, path: "items" })?;
            } else {
                let value: Value = from.next_value()?;
                if object.insert(key.clone(), value).is_some() {
                    return Err(A::Error::custom(format!("the key `{key}` is set twice")));
                }
            }
        }
        if !is_list {
            (self.0)(Found { value: object.into(), path: String::new() });
            return Ok(());
        }
        let kind = object.get("kind").and_then(Value::as_str).and_then(|kind| kind.strip_suffix("List"));
        for mut found in unnamed {
            if let (Some(item), Some(kind)) =
                (found.value.as_object_mut(), kind.filter(|kind| !kind.is_empty()))
            {
                item.insert("kind".into(), kind.into());
                item.insert("apiVersion".into(), object.get("apiVersion").cloned().unwrap_or_default());
            }
            (self.0)(found);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, from: A) -> Result<(), A::Error> {
        let mut unnamed = Vec::new();
        Items { sink: &mut *self.0, unnamed: &mut unnamed, path: "" }.visit_seq(from)?;
        unnamed.into_iter().for_each(self.0);
        Ok(())
    }
}

/// The items of a list.
struct Items<'s> {
    sink: &'s mut dyn FnMut(Found),
    unnamed: &'s mut Vec<Found>,
    path: &'static str,
}

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of Kubernetes objects")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(value) = from.next_element::<Value>()? {
            let path = format!("{}[{index}]", self.path);
            if value.get("kind").is_none() {
                self.unnamed.push(Found { value, path });
            } else {
                unwrap_value(value, path, self.sink);
            }
            index += 1;
        }
        Ok(())
    }
}

/// A list inside a list.
fn unwrap_value(mut value: Value, path: String, sink: &mut dyn FnMut(Found)) {
    let is_list = value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match value.get_mut("items") {
        Some(Value::Array(items)) if is_list => {
            for (index, item) in std::mem::take(items).into_iter().enumerate() {
                unwrap_value(item, format!("{path}.items[{index}]"), sink);
            }
        }
        _ => sink(Found { value, path }),
    }
}

/// Limits for a file that the operator gave: it may be large, but its aliases may not make it larger.
pub(crate) fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: None,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_total_comment_bytes: usize::MAX,
            max_depth: 128,
            max_aliases: 10_000,
            max_recorded_anchor_events: 100_000,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        // `y` and `no` are names, as in YAML 1.2: nothing that kubectl prints depends on it.
        strict_booleans: true,
        with_snippet: false,
    }
}
