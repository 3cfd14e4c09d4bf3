//! Programs that are given a secret in a way of their own: `curl -u`, `docker login -p`, `mysql -p…`, `sshpass -p`.

use std::ops::Range;

use super::script::{LONGEST, Words, is_name, next_word};
use super::value::{is_given, is_login};

/// How a program is given a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `-u name:password`, in one word with other flags of a letter or not.
    Login,
    /// `-p password`: what stands in one word with it is another flag.
    Apart,
    /// `-ppassword`: what stands apart is something else.
    Attached,
    Both,
}

/// Words of commands. What logs in may be any program: `docker login`, `oc login`, `helm registry login`.
const PROGRAMS: [(&str, Way); 8] = [
    ("curl", Way::Login),
    ("login", Way::Apart),
    ("sshpass", Way::Both),
    ("mysql", Way::Attached),
    ("mysqladmin", Way::Attached),
    ("mysqldump", Way::Attached),
    ("mariadb", Way::Attached),
    ("mariadb-dump", Way::Attached),
];

/// What may stand between a flag and its value, besides white space.
const GAP: [char; 5] = ['"', '\'', ',', '=', '\\'];
/// How far before a program its command is looked at.
const LINE_MAX: usize = 256;

pub(super) fn given(text: &str, found: &mut Vec<Range<usize>>) {
    for (program, way) in PROGRAMS {
        let (mut words, mut looked) = (Words::default(), 0);
        for (at, _) in text.match_indices(program) {
            // Another one in the same command tells nothing new.
            if at < looked || !is_called(text, at..at + program.len()) {
                continue;
            }
            let behind = at + program.len();
            let command =
                command(&text[behind..text.floor_char_boundary((behind + LONGEST).min(text.len()))]);
            looked = behind + command.len();
            for (dash, _) in command.match_indices('-') {
                if command[..dash].ends_with([' ', '\t', '"', '\'', ',', '[']) {
                    found.extend(secret_of(text, behind + dash, way, &mut words));
                }
            }
        }
    }
}

/// Whether a word is the name of a program: `/usr/bin/mysql`, and not `/var/lib/mysql` or `-C mysql`.
fn is_called(text: &str, name: Range<usize>) -> bool {
    let (before, behind) = (&text[..name.start], &text[name.end..]);
    let is_whole = !before.ends_with(|c: char| is_name(c) && c != '/')
        && behind.starts_with([' ', '\t', '"', '\'', ',', '\\']);
    let line = &before[text.floor_char_boundary(before.len().saturating_sub(LINE_MAX))..];
    let line = &line[line.rfind('\n').map_or(0, |end| end + 1)..];
    let word = line.trim_end_matches(is_name);
    let path = &line[word.len()..];
    let before = word.trim_end().rsplit([' ', '\t']).next().unwrap_or_default();
    let is_value = before.starts_with('-') && before != "--" && word.ends_with([' ', '\t']);
    is_whole && !is_value && (path.is_empty() || path.ends_with("bin/"))
}

/// One command, over all its lines.
fn command(rest: &str) -> &str {
    let is_whole = |line: &str| !line.trim_end().ends_with('\\');
    let lines = rest.split_inclusive('\n').scan(false, |is_over, line| {
        (!*is_over).then(|| {
            *is_over = is_whole(line);
            line.len()
        })
    });
    let command = &rest[..lines.sum()];
    let command = &command[..command.find([';', '|']).unwrap_or(command.len())];
    &command[..command.find("&&").unwrap_or(command.len())]
}

/// What the flag at a dash is given, if that is a secret.
fn secret_of(text: &str, dash: usize, way: Way, words: &mut Words) -> Option<Range<usize>> {
    let rest = &text[dash..];
    let length = rest[1..].find(|c| !is_name(c)).map_or(rest.len(), |length| length + 1);
    let flag = &rest[..length];
    let start = match way {
        Way::Login => {
            let is_short = !flag.starts_with("--") && flag.ends_with('u');
            if !(is_short || matches!(flag, "--user" | "--proxy-user")) {
                return None;
            }
            value_of(text, dash + length)?
        }
        Way::Apart | Way::Attached | Way::Both => {
            let letter = text[dash + 1..].strip_prefix('p')?;
            // A quote begins a password, unless the flag is quoted itself.
            let is_quoted = letter.starts_with(['"', '\'']) && text[..dash].ends_with([' ', '\t']);
            let is_attached =
                is_quoted || letter.starts_with(|c: char| !(c.is_whitespace() || GAP.contains(&c)));
            match is_attached {
                true if way != Way::Apart => dash + 2,
                false if way != Way::Attached => value_of(text, dash + 2)?,
                _ => return None,
            }
        }
    };
    let value = words.next(text, start);
    let written = &text[value.clone()];
    match way {
        Way::Login => {
            let (name, _) = written.split_once(':').filter(|_| is_login(written))?;
            Some(value.start + name.len() + 1..value.end)
        }
        Way::Apart | Way::Attached | Way::Both => {
            let is_port = written.bytes().all(|b| b.is_ascii_digit() || matches!(b, b':' | b'.'))
                && (written.len() <= 5 || written.contains([':', '.']));
            let is_other = is_port || written.starts_with(['-', '/', '.', '~']);
            (is_given(written) && !is_other).then_some(value)
        }
    }
}

/// Where the value of a flag begins: behind `=`, or with the next word.
fn value_of(text: &str, behind: usize) -> Option<usize> {
    match text[behind..].starts_with('=') {
        true => Some(behind + 1),
        false => next_word(text, behind),
    }
}
