//! Text that somebody else wrote, made fit to be looked at: what cannot be seen is shown as `\u{1b}`, what is endless is cut.
//!
//! A name or a comment of a repository may hold letters that move a cursor, set a title, turn a line round, or hide. Whoever
//! reads a terminal, a log or a comment must see them instead of obeying them. The form is the one of Rust's own strings.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a letter cannot be seen for what it is: controls, other separators than a space, marks of direction, letters
/// without width or without a shape. Line ends and tabs are hidden too; it is for the caller to keep them.
pub fn is_hidden(letter: char) -> bool {
    match letter {
        ' '..='~' => false,
        // The wide space between words of Chinese, Japanese and Korean is seen well.
        '\u{3000}' => false,
        letter if letter.is_ascii() => true,
        // Behind another letter an accent is no reason to escape, and what is left is what cannot be printed.
        letter => {
            let mut pair = [0; 5];
            pair[0] = b'a';
            let end = 1 + letter.encode_utf8(&mut pair[1..]).len();
            std::str::from_utf8(&pair[..end]).is_ok_and(|pair| pair.escape_debug().nth(1) == Some('\\'))
        }
    }
}

/// Seen, or what lines are made of.
fn is_fit(letter: char) -> bool {
    matches!(letter, '\n' | '\t') || !is_hidden(letter)
}

/// `text` with every hidden letter shown, except for line ends and tabs.
pub fn visible(text: &str) -> Cow<'_, str> {
    let Some(first) = text.find(|letter| !is_fit(letter)) else { return Cow::Borrowed(text) };
    let mut safe = text[..first].to_owned();
    for letter in text[first..].chars() {
        match is_fit(letter) {
            true => safe.push(letter),
            false => safe.extend(letter.escape_unicode()),
        }
    }
    Cow::Owned(safe)
}

/// `text` as one line: white space of lines is a space, every other hidden letter is shown.
pub fn visible_line(text: &str) -> Cow<'_, str> {
    match text.contains(['\n', '\r', '\t']) {
        false => visible(text),
        true => Cow::Owned(visible(&text.replace("\r\n", " ").replace(['\n', '\r', '\t'], " ")).into_owned()),
    }
}

/// JSON of which every hidden letter inside of strings is written as `\u001b`: for a reader of JSON it is the same.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    escaped(json, |safe, letter| {
        for half in letter.encode_utf16(&mut [0; 2]) {
            write!(safe, "\\u{half:04x}").expect("a string takes every write");
        }
    })
}

/// JSON as YAML that says the same without a hidden letter: in YAML large letters have an escape of their own.
pub fn visible_yaml(json: &str) -> Cow<'_, str> {
    escaped(json, |safe, letter| {
        let number = u32::from(letter);
        let written = match number {
            0..=0xffff => write!(safe, "\\u{number:04x}"),
            _ => write!(safe, "\\U{number:08x}"),
        };
        written.expect("a string takes every write");
    })
}

/// Outside of its strings JSON has no hidden letters but line ends and tabs, and inside of them it has neither.
fn escaped(json: &str, write: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if json.chars().all(is_fit) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 64);
    for letter in json.chars() {
        match is_fit(letter) {
            true => safe.push(letter),
            false => write(&mut safe, letter),
        }
    }
    Cow::Owned(safe)
}

/// `text` as it is if it has at most `letters_max` letters; else its beginning and its end, with how much is left out.
///
/// Most of the room is for the beginning, where a sentence says what it is about.
pub fn shortened(text: &str, letters_max: usize) -> Cow<'_, str> {
    if text.len() <= letters_max || text.char_indices().nth(letters_max).is_none() {
        return Cow::Borrowed(text);
    }
    let last = letters_max / 4;
    let first = letters_max - last;
    let head_end = text.char_indices().nth(first).map_or(text.len(), |(at, _)| at);
    let tail_start = match last {
        0 => text.len(),
        last => text.char_indices().rev().nth(last - 1).map_or(0, |(at, _)| at),
    };
    let left_out = text[head_end..tail_start].chars().count();
    Cow::Owned(format!("{} … {left_out} more … {}", &text[..head_end], &text[tail_start..]))
}

/// A text whose hidden letters are shown, and which byte of the one belongs to which of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleText {
    pub text: String,
    /// Behind every shown letter: the byte of the original and the byte of the text.
    steps: Vec<(usize, usize)>,
}

impl VisibleText {
    /// `None` if nothing is hidden in it. Line ends, also those of Windows, and tabs stay; a byte order mark at the
    /// beginning goes.
    pub fn of(original: &str) -> Option<Self> {
        let is_kept = |letter, next| matches!(letter, '\n' | '\t') || (letter == '\r' && next == Some('\n'));
        let mut letters = original.chars().peekable();
        let mut is_plain = true;
        while let Some(letter) = letters.next() {
            if is_hidden(letter) && !is_kept(letter, letters.peek().copied()) {
                is_plain = false;
                break;
            }
        }
        if is_plain {
            return None;
        }
        let mut made = Self { text: String::with_capacity(original.len() + 64), steps: Vec::new() };
        let mut letters = original.char_indices().peekable();
        while let Some((at, letter)) = letters.next() {
            if !is_hidden(letter) || is_kept(letter, letters.peek().map(|(_, next)| *next)) {
                made.text.push(letter);
                continue;
            }
            if at > 0 || letter != '\u{feff}' {
                made.text.extend(letter.escape_unicode());
            }
            made.steps.push((at + letter.len_utf8(), made.text.len()));
        }
        Some(made)
    }

    /// Where a byte of the original is in the text.
    pub fn shown(&self, original: usize) -> usize {
        let (from, to) = self.step(|(from, _)| *from <= original);
        // Within a shown letter there is no place of its own.
        let next = self.steps.get(self.steps.partition_point(|(from, _)| *from <= original));
        let at = to + (original - from);
        next.map_or(at, |(_, end)| at.min(*end)).min(self.text.len())
    }

    /// Which byte of the original a byte of the text stands for: inside of an escape, one of the letter's.
    pub fn original(&self, shown: usize) -> usize {
        let (from, to) = self.step(|(_, to)| *to <= shown);
        let at = from + (shown - to);
        let next = self.steps.get(self.steps.partition_point(|(_, to)| *to <= shown));
        next.map_or(at, |(end, _)| at.min(end - 1))
    }

    fn step(&self, is_before: impl Fn(&(usize, usize)) -> bool) -> (usize, usize) {
        let behind = self.steps.partition_point(is_before);
        if behind == 0 { (0, 0) } else { self.steps[behind - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_shown_and_what_can_is_kept() {
        assert_eq!(visible("a\u{1b}]0;owned\u{7}b"), "a\\u{1b}]0;owned\\u{7}b");
        for letter in [
            '\0',
            '\r',
            '\u{7f}',
            '\u{85}',
            '\u{9b}',
            '\u{a0}',
            '\u{ad}',
            '\u{200b}',
            '\u{200f}',
            '\u{2028}',
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{fdd0}',
            '\u{e000}',
            '\u{e0041}',
        ] {
            assert_eq!(
                visible(&format!("x{letter}y")),
                format!("x{}y", letter.escape_unicode()),
                "{letter:?}"
            );
        }
        let plain = "Straße → 서울 東京　ñ n\u{303} 🦀\n\t'\"\\";
        assert!(matches!(visible(plain), Cow::Borrowed(_)), "{}", visible(plain));
        assert_eq!(visible_line("a\r\nb\tc\u{1b}"), "a b c\\u{1b}");
    }

    #[test]
    fn json_says_the_same_without_a_hidden_letter() {
        let value = serde_json::json!({ "a\u{85}": ["\u{1b}[31m", "\u{202e}x", "\u{e0041}", "ü\n"] });
        let json = serde_json::to_string_pretty(&value).expect("it is written");
        let safe = visible_json(&json);
        assert!(!safe.chars().any(|letter| is_hidden(letter) && letter != '\n'), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).expect("it is read"), value);
        let safe = visible_yaml(&json);
        assert!(!safe.chars().any(|letter| is_hidden(letter) && letter != '\n'), "{safe}");
        assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&safe).expect("it is read"), value);
    }

    #[test]
    fn an_endless_text_keeps_its_beginning_and_its_end() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened(&format!("ab{}yz", "ü".repeat(100)), 8), "abüüüü … 96 more … yz");
        assert_eq!(
            shortened(&"x".repeat(90_000), 1_000).chars().count(),
            1_000 + " … 89000 more … ".len() - 4
        );
    }

    #[test]
    fn places_go_there_and_back() {
        let original = "\u{feff}a\u{1b}b\r\nü\u{202e}c\r";
        let made = VisibleText::of(original).expect("something is hidden");
        assert_eq!(made.text, "a\\u{1b}b\r\nü\\u{202e}c\\u{d}");
        for (at, letter) in original.char_indices().skip(1) {
            let shown = made.shown(at);
            assert_eq!(made.original(shown), at, "{letter:?}");
            let expected =
                match is_hidden(letter) && letter != '\n' && !made.text[shown..].starts_with("\r\n") {
                    true => letter.escape_unicode().to_string(),
                    false => letter.to_string(),
                };
            assert!(made.text[shown..].starts_with(&expected), "{letter:?} at {shown}");
        }
        assert_eq!(made.shown(original.len()), made.text.len());
        assert_eq!(made.original(made.text.len()), original.len());
        assert_eq!(VisibleText::of("a\r\n\tü"), None);
    }
}
