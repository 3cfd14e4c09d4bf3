//! The files that a merge would have: three versions of each path, and the one that comes of them.
//!
//! Nothing is checked out and nothing is written. Where both sides changed lines that touch each other, a person has to
//! decide, and there is no result at all: half a merge would be reviewed as if it were somebody's intention.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::model::repository::{Refusal, Repository};

/// Longer texts are not merged line by line.
const LINES_MAX: usize = 20_000;

/// A path that both sides changed, each in its own way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    pub path: Arc<str>,
    /// The first line of the base at which the two disagree; `None` if the file as a whole is in question.
    pub line: Option<usize>,
}

/// What is under a path.
#[derive(Clone, PartialEq, Eq)]
enum Entry {
    File(Arc<[u8]>),
    Refused(Refusal),
}

/// `head` merged onto `base`; both come from `ancestor`. The revision is that of `head`.
pub fn merge(
    ancestor: &Repository,
    base: &Repository,
    head: &Repository,
) -> Result<Repository, Vec<Conflict>> {
    let paths: BTreeSet<&Arc<str>> = [ancestor, base, head]
        .into_iter()
        .flat_map(|side| side.files.keys().chain(side.refused.keys()))
        .collect();
    let mut merged =
        Repository { revision: head.revision.clone(), files: BTreeMap::new(), refused: BTreeMap::new() };
    let mut conflicts = Vec::new();
    for path in paths {
        match merge_entry(entry(ancestor, path), entry(base, path), entry(head, path)) {
            Ok(Some(Entry::File(content))) => drop(merged.files.insert(path.clone(), content)),
            Ok(Some(Entry::Refused(why))) => drop(merged.refused.insert(path.clone(), why)),
            Ok(None) => {}
            Err(line) => conflicts.push(Conflict { path: path.clone(), line }),
        }
    }
    if conflicts.is_empty() { Ok(merged) } else { Err(conflicts) }
}

fn entry(side: &Repository, path: &Arc<str>) -> Option<Entry> {
    let refused = || side.refused.get(path).map(|why| Entry::Refused(*why));
    side.files.get(path).map(|content| Entry::File(content.clone())).or_else(refused)
}

fn merge_entry(
    ancestor: Option<Entry>,
    base: Option<Entry>,
    head: Option<Entry>,
) -> Result<Option<Entry>, Option<usize>> {
    if base == head || ancestor == head {
        return Ok(base);
    }
    if ancestor == base {
        return Ok(head);
    }
    let (Some(Entry::File(base)), Some(Entry::File(head))) = (base, head) else { return Err(None) };
    let before = match ancestor {
        Some(Entry::File(before)) => before,
        _ => Arc::from(&b""[..]),
    };
    let texts = [&before, &base, &head].map(|content| std::str::from_utf8(content));
    let [Ok(before), Ok(base), Ok(head)] = texts else { return Err(None) };
    let text = merge_lines(before, base, head)?;
    Ok(Some(Entry::File(text.as_bytes().into())))
}

/// Lines that both sides kept hold the text together; what is between two of them is taken from the side that changed it.
fn merge_lines(before: &str, base: &str, head: &str) -> Result<String, Option<usize>> {
    let [before, base, head] =
        [before, base, head].map(|text| text.split_inclusive('\n').collect::<Vec<&str>>());
    if [&before, &base, &head].iter().any(|lines| lines.len() > LINES_MAX) {
        return Err(None);
    }
    let (in_base, in_head) = (kept(&before, &base), kept(&before, &head));
    let mut text = String::new();
    let (mut at, mut base_at, mut head_at) = (0, 0, 0);
    loop {
        let anchor = (at..before.len()).find_map(|line| Some((line, in_base[line]?, in_head[line]?)));
        let (end, base_end, head_end) = anchor.unwrap_or((before.len(), base.len(), head.len()));
        let (old, ours, theirs) = (&before[at..end], &base[base_at..base_end], &head[head_at..head_end]);
        let chosen = if ours == theirs || old == theirs {
            ours
        } else if old == ours {
            theirs
        } else {
            return Err(Some(base_at + 1));
        };
        text.extend(chosen.iter().copied());
        let Some((line, base_line, head_line)) = anchor else { return Ok(text) };
        text.push_str(before[line]);
        (at, base_at, head_at) = (line + 1, base_line + 1, head_line + 1);
    }
}

/// Where each line of `before` is in `after`, if it is there unchanged.
fn kept(before: &[&str], after: &[&str]) -> Vec<Option<usize>> {
    let mut places = vec![None; before.len()];
    for operation in capture_diff_slices(Algorithm::Myers, before, after) {
        if let DiffOp::Equal { old_index, new_index, len } = operation {
            for offset in 0..len {
                places[old_index + offset] = Some(new_index + offset);
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(
        before: &[(&str, &str)],
        base: &[(&str, &str)],
        head: &[(&str, &str)],
    ) -> Vec<(String, String)> {
        let merged =
            merge(&Repository::for_test(before), &Repository::for_test(base), &Repository::for_test(head))
                .expect("no conflict");
        let text = |content: &Arc<[u8]>| String::from_utf8(content.to_vec()).expect("text");
        merged.files.iter().map(|(path, content)| (path.to_string(), text(content))).collect()
    }

    #[test]
    fn both_sides_keep_what_they_did() {
        let before = [("a", "1\n2\n3\n4\n5\n"), ("gone", "x"), ("same", "y")];
        let base = [("a", "1\n2\n3\n4\n5\n6\n"), ("gone", "x"), ("same", "y"), ("new", "base")];
        let head = [("a", "0\n1\n3\n4\n5\n"), ("same", "y"), ("other", "head")];
        let pairs = [("a", "0\n1\n3\n4\n5\n6\n"), ("new", "base"), ("other", "head"), ("same", "y")];
        let expected: Vec<(String, String)> =
            pairs.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
        assert_eq!(merged(&before, &base, &head), expected);
    }

    #[test]
    fn the_same_change_on_both_sides_is_one_change() {
        let pairs = merged(&[("a", "1\n2\n")], &[("a", "1\n3\n")], &[("a", "1\n3\n")]);
        assert_eq!(pairs, [("a".to_owned(), "1\n3\n".to_owned())]);
    }

    #[test]
    fn what_touches_is_a_conflict_with_its_line() {
        let conflicts = |before, base, head| {
            merge(
                &Repository::for_test(&[("a", before)]),
                &Repository::for_test(base),
                &Repository::for_test(head),
            )
            .unwrap_err()
        };
        let found = conflicts("1\n2\n3\n", &[("a", "1\nours\n3\n")], &[("a", "1\ntheirs\n3\n")]);
        assert_eq!(found, [Conflict { path: "a".into(), line: Some(2) }]);
        // Removed on one side, changed on the other.
        let found = conflicts("1\n", &[], &[("a", "2\n")]);
        assert_eq!(found, [Conflict { path: "a".into(), line: None }]);
        // Neighbouring lines without an unchanged one between them.
        let found = conflicts("1\n2\n3\n4\n", &[("a", "1\nx\n3\n4\n")], &[("a", "1\n2\ny\n4\n")]);
        assert_eq!(found, [Conflict { path: "a".into(), line: Some(2) }]);
    }

    #[test]
    fn a_missing_newline_at_the_end_is_kept_apart() {
        let pairs = merged(&[("a", "1\n2\n3")], &[("a", "0\n1\n2\n3")], &[("a", "1\n2\n3\n")]);
        assert_eq!(pairs, [("a".to_owned(), "0\n1\n2\n3\n".to_owned())]);
    }
}
