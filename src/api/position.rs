//! Where in a YAML or JSON text a field stands: asked only once something is wrong, so that reading stays fast.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

/// A text as a tree of places.
enum Tree {
    Leaf,
    List(Vec<Spanned<Tree>>),
    Map(Vec<(String, Spanned<Tree>)>),
}

/// Line and column, from 1, of the field at `path` or of its nearest parent that is there.
pub(crate) fn locate(text: &str, path: &str) -> Option<(u32, u32)> {
    let root: Spanned<Tree> =
        serde_saphyr::from_str_with_options(text, super::document::yaml_options()).ok()?;
    let mut at = &root;
    let mut rest = path;
    loop {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let next = match &at.value {
            Tree::Leaf => None,
            Tree::List(list) => rest.strip_prefix('[').and_then(|rest| {
                let (index, rest) = rest.split_once(']')?;
                Some((list.get(index.parse::<usize>().ok()?)?, rest))
            }),
            // A key may contain dots itself: the longest that fits is the one meant.
            Tree::Map(entries) => entries
                .iter()
                .filter_map(|(key, node)| Some((node, rest.strip_prefix(key.as_str())?)))
                .filter(|(_, rest)| rest.is_empty() || rest.starts_with(['.', '[']))
                .min_by_key(|(_, rest)| rest.len()),
        };
        match next {
            Some((node, left)) => (at, rest) = (node, left),
            None => return position(at.referenced),
        }
    }
}

pub(crate) fn position(location: Location) -> Option<(u32, u32)> {
    let (line, column) = (u32::try_from(location.line()).ok()?, u32::try_from(location.column()).ok()?);
    (line > 0).then_some((line, column))
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Planter;

        impl<'de> Visitor<'de> for Planter {
            type Value = Tree;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("any value")
            }

            fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Tree, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = from.next_element()? {
                    list.push(item);
                }
                Ok(Tree::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Tree, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = from.next_entry()? {
                    entries.push(entry);
                }
                Ok(Tree::Map(entries))
            }
        }

        from.deserialize_any(Planter)
    }
}
