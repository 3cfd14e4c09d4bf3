//! Names and passwords side by side: for `chpasswd`, in a netrc, in a connection string, in the `ENV` of a Dockerfile.

use std::ops::Range;

use super::name::says_secret;
use super::script::{LONGEST, is_name};
use super::value::{is_chosen, is_given, is_login, is_secret_under};

/// Fields of a connection string that are its secret.
const SECRET_FIELDS: [&str; 5] = ["password", "pwd", "accountkey", "sharedaccesskey", "sharedsecret"];
/// Fields that say that it is one.
const PLACE_FIELDS: [&str; 8] =
    ["accountname", "addr", "address", "data source", "endpoint", "host", "hostaddr", "server"];
/// Bytes before a password in a netrc that say what it is for.
const ENTRY_MAX: usize = 512;

pub(super) fn given(text: &str, found: &mut Vec<Range<usize>>) {
    of_chpasswd(text, found);
    of_netrc(text, found);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        of_connection(line, at, found);
        found.extend(of_environment(line).map(|value| at + value.start..at + value.end));
        at += line.len();
    }
}

/// Lines of `name:password` that `chpasswd` reads: from `echo`, from behind `<<<` or `<<EOF`, or in a list of cloud-init.
fn of_chpasswd(text: &str, found: &mut Vec<Range<usize>>) {
    let mut looked = 0;
    for (at, program) in text.match_indices("chpasswd") {
        if at < looked || text[..at].ends_with(|c: char| is_name(c) && c != '/') {
            continue;
        }
        let line = text[looked..at].rfind('\n').map_or(looked, |end| looked + end + 1);
        let before = &text[line..at];
        if let Some(pipe) = before.rfind('|') {
            logins(text, line..line + pipe, found);
        }
        let behind = at + program.len();
        let rest = &text[behind..text.floor_char_boundary((behind + LONGEST).min(text.len()))];
        let mut lines = rest.split_inclusive('\n');
        let own = lines.next().unwrap_or_default();
        let indent = before.len() - before.trim_start().len();
        let is_inside = |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() > indent;
        looked = behind;
        let length = match own.split_once("<<") {
            Some((_, word)) if word.starts_with('<') => 0,
            Some((_, mark)) => {
                let mark = mark.trim_matches(|c: char| !c.is_ascii_alphanumeric());
                lines.take_while(|line| line.trim() != mark).map(str::len).sum()
            }
            None if own.starts_with(':') && before.trim_matches(['"', '\'', ' ', '\t']).is_empty() => {
                lines.take_while(is_inside).map(str::len).sum()
            }
            None => continue,
        };
        looked += own.len() + length;
        logins(text, behind..looked, found);
    }
}

/// Words of `name:password`.
fn logins(text: &str, part: Range<usize>, found: &mut Vec<Range<usize>>) {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ',' | '<');
    let mut at = part.start;
    for word in text[part].split_inclusive(is_end) {
        let written = word.trim_end_matches(is_end).trim_end_matches(']');
        let login = written.trim_start_matches('[');
        let end = at + written.len();
        at += word.len();
        let Some((name, password)) = login.split_once(':').filter(|_| is_login(login)) else { continue };
        // cloud-init makes one up for `R` and `RANDOM`.
        if !name.is_empty() && name.chars().all(is_name) && !matches!(password, "R" | "RANDOM") {
            found.push(end - password.len()..end);
        }
    }
}

/// `machine h login u password p`, on one line or on three.
fn of_netrc(text: &str, found: &mut Vec<Range<usize>>) {
    let is_gap = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\');
    for (at, word) in text.match_indices("password") {
        let behind = &text[at + word.len()..];
        let value = behind.trim_start_matches([' ', '\t']);
        if value.len() == behind.len() {
            continue;
        }
        let before = &text[text.ceil_char_boundary(at.saturating_sub(ENTRY_MAX))..at];
        // What `printf` is given has its lines in one.
        let before = before.replace("\\n", "\n").replace("\\t", "\t");
        let mut words = before.rsplit(is_gap).filter(|word| !word.is_empty());
        let is_apart = before.ends_with(is_gap);
        let mut field = words.nth(1);
        if field == Some("account") {
            field = words.nth(1);
        }
        let is_entry = field == Some("login")
            && words.next().is_some_and(|host| host == "default" || words.next() == Some("machine"));
        let length = value.find(is_gap).unwrap_or(value.len());
        let start = text.len() - value.len();
        if is_apart && is_entry && is_given(&value[..length]) {
            found.push(start..start + length);
        }
    }
}

/// `Server=…;Password=…`, `host=… password=…`.
fn of_connection(line: &str, line_start: usize, found: &mut Vec<Range<usize>>) {
    let is_apart = |c: char| matches!(c, ';' | '"' | '\'' | ' ' | '\t' | '=' | ':');
    let lower = line.to_ascii_lowercase();
    let is_one_of = |sign: usize, fields: &[&str]| {
        let name = lower[..sign].trim_end();
        let begins = |field: &&str| name.strip_suffix(*field);
        fields.iter().filter_map(begins).any(|before| before.is_empty() || before.ends_with(is_apart))
    };
    let signs = || lower.match_indices('=').map(|(sign, _)| sign);
    if !signs().any(|sign| is_one_of(sign, &PLACE_FIELDS)) {
        return;
    }
    for sign in signs().filter(|sign| is_one_of(*sign, &SECRET_FIELDS)) {
        let is_end = |c: char| c.is_whitespace() || matches!(c, ';' | '"' | '\'' | '\\' | '`' | '&');
        let rest = &line[sign + 1..];
        let value = rest.trim_start_matches([' ', '"', '\'']);
        let length = value.find(is_end).unwrap_or(value.len());
        let start = line_start + line.len() - value.len();
        if is_given(&value[..length]) {
            found.push(start..start + length);
        }
    }
}

/// `ENV NAME value`, with no sign between.
fn of_environment(line: &str) -> Option<Range<usize>> {
    let line = line.trim_end();
    let (before, rest) = line.split_once("ENV ")?;
    let (name, value) = rest.trim_start().split_once([' ', '\t'])?;
    let is_instruction = before.trim().is_empty() || before.trim_end().ends_with('#');
    let value = value.trim_start();
    let is_secret = is_instruction
        && name.chars().all(is_name)
        && says_secret(name)
        && (is_chosen(value) || is_secret_under(name, value));
    is_secret.then_some(line.len() - value.len()..line.len())
}
