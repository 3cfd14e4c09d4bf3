//! Bytes of one file into a tree, or the reasons why not.

mod toml;
mod yaml;

use std::ops::Range;
use std::sync::Arc;

use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::tree::Node;

/// Levels of tables and lists inside each other.
pub(crate) const NESTING_MAX: usize = 64;
/// Values of one file, counted after aliases are expanded.
pub(crate) const NODES_MAX: usize = 100_000;
/// Documents of one YAML file.
pub(crate) const DOCUMENTS_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Toml,
    Yaml,
}

impl Format {
    /// By the end of the name.
    pub fn of(path: &str) -> Option<Self> {
        match path.rsplit_once('.')?.1 {
            "toml" => Some(Format::Toml),
            "yaml" | "yml" => Some(Format::Yaml),
            _ => None,
        }
    }
}

/// The text of a file: UTF-8 without control characters. A byte order mark is allowed with a warning.
pub(crate) fn text_of(path: &Arc<str>, bytes: &[u8], found: &mut Vec<Diagnostic>) -> Option<Arc<Source>> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            found.push(not_utf8(path, bytes, error.valid_up_to()));
            return None;
        }
    };
    let source = Source::new(path.clone(), text);
    if text.starts_with('\u{feff}') {
        let place = Place::new(&source, 0..'\u{feff}'.len_utf8());
        let message = "the file starts with a byte order mark, which is ignored";
        found.push(
            Diagnostic::warning("PRV1008", place, message).help("save the file as UTF-8 without a BOM"),
        );
    }
    let is_stray = |c: char| {
        matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}')
            || matches!(c, '\u{fdd0}'..='\u{fdef}')
    };
    if let Some((at, stray)) = text.char_indices().find(|(_, c)| is_stray(*c)) {
        let place = Place::new(&source, at..at + stray.len_utf8());
        let message = format!("the file contains the control character U+{:04X}", stray as u32);
        found.push(
            Diagnostic::error("PRV1002", place, message)
                .help("remove it; in a quoted text write it as an escape"),
        );
        return None;
    }
    Some(source)
}

fn not_utf8(path: &Arc<str>, bytes: &[u8], at: usize) -> Diagnostic {
    let before = String::from_utf8_lossy(&bytes[..at]).into_owned();
    let source = Source::new(path.clone(), before);
    let place = Place::new(&source, at..at);
    let message = format!("the file is not UTF-8: byte 0x{:02X} at offset {at}", bytes[at]);
    Diagnostic::error("PRV1001", place, message).help("save the file as UTF-8")
}

/// The one document of a file that people write. Every problem is pushed to `found`; `None` if there is no tree.
pub(crate) fn document(source: &Arc<Source>, format: Format, found: &mut Vec<Diagnostic>) -> Option<Node> {
    let node = match format {
        Format::Toml => toml::parse(source, found)?,
        Format::Yaml => {
            let mut documents = yaml::parse(source, found)?;
            if documents.len() > 1 {
                let place = documents[1].place.clone();
                let message = format!("the file holds {} documents instead of one", documents.len());
                found.push(
                    Diagnostic::error("PRV1014", place, message).help("give each environment its own file"),
                );
                return None;
            }
            documents.pop().unwrap_or_else(|| Node::map(Place::start_of(source)))
        }
    };
    if node.as_map().is_none() {
        let message = format!("the file holds {} where a table of keys is expected", node.kind());
        found
            .push(Diagnostic::error("PRV1017", node.place.clone(), message).help("write `key: value` lines"));
        return None;
    }
    Some(node)
}

/// All documents of a rendered text.
pub(crate) fn documents(source: &Arc<Source>, found: &mut Vec<Diagnostic>) -> Option<Vec<Node>> {
    yaml::parse(source, found)
}

fn too_deep(source: &Arc<Source>, at: Range<usize>) -> Diagnostic {
    Diagnostic::error(
        "PRV1012",
        Place::new(source, at),
        format!("tables and lists are nested more than {NESTING_MAX} levels deep"),
    )
    .help("flatten the value")
}

fn too_many_nodes(source: &Arc<Source>, at: Range<usize>) -> Diagnostic {
    Diagnostic::error(
        "PRV1013",
        Place::new(source, at),
        format!("the file holds more than {NODES_MAX} values, aliases expanded"),
    )
    .help("split the file, or use fewer aliases")
}
