//! Words of the repository inside Markdown: shown as they are, and never obeyed.
//!
//! Names, values and messages come from whoever proposes a change. On a forge they could break a table, close a fold, load
//! a picture, call a hundred people or pretend to be this program. Inside code spans nothing of that works, so nearly
//! everything goes there; sentences are escaped letter by letter.

use crate::model::visible::visible_line;

/// Longer words say nothing that a reader needs.
const LETTERS_MAX: usize = 200;

/// A letter without width, by its number: the comment itself has no letter that cannot be seen.
const NO_WIDTH: &str = "&#8203;";

/// As a code span outside of tables.
pub fn code(text: &str) -> String {
    span(text, "|")
}

/// As a code span in a cell of a table, where a pipe would end the cell even inside code.
pub fn cell(text: &str) -> String {
    span(text, "\\|")
}

fn span(text: &str, pipe: &str) -> String {
    let plain = visible(text, LETTERS_MAX);
    let plain = plain.trim();
    if plain.is_empty() {
        return "–".into();
    }
    let plain = plain.replace('`', "ˋ").replace('|', pipe);
    format!("`{plain}`")
}

/// As part of a sentence, also in a cell.
pub fn text(text: &str) -> String {
    let mut safe = String::new();
    for letter in visible(text, 2 * LETTERS_MAX).chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            // An apostrophe of another kind: spans of code are ours to open.
            '`' => safe.push('ˋ'),
            '|' => safe.push_str("\\|"),
            // A mention, an issue, an address: a letter without width keeps a forge from finding them.
            '@' | '#' => {
                safe.push(letter);
                safe.push_str(NO_WIDTH);
            }
            '*' | '_' | '[' | ']' | '(' | ')' | '!' | '~' => safe.extend(['\\', letter]),
            letter => safe.push(letter),
        }
    }
    safe.replace("://", &format!(":{NO_WIDTH}//"))
        .replace("www.", &format!("www{NO_WIDTH}."))
        .trim()
        .to_owned()
}

/// One line, its hidden letters shown, and not endless. The only backslashes in it are those of shown letters: one before a
/// pipe would turn its escape into text.
fn visible(text: &str, letters_max: usize) -> String {
    let mut line = String::new();
    for (count, letter) in visible_line(&text.replace('\\', "⧵")).chars().enumerate() {
        if count == letters_max {
            line.push('…');
            break;
        }
        line.push(letter);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_a_span() {
        assert_eq!(code("a`b`c"), "`aˋbˋc`");
        assert_eq!(cell("a|b\\|c"), "`a\\|b⧵\\|c`");
        assert_eq!(code("two\nlines\u{1b}[31m"), "`two lines\\u{1b}[31m`");
        assert_eq!(code(" "), "–");
        assert_eq!(code("\u{202e}evil"), "`\\u{202e}evil`");
        assert_eq!(code(&"x".repeat(500)).chars().count(), 203);
    }

    #[test]
    fn nothing_in_a_sentence_is_obeyed() {
        let hostile =
            "</details><script>x</script> @org/team #1 [a](http://b) ![c](d) **e** `f` | <!-- g --> www.h";
        let safe = text(hostile);
        assert!(!safe.chars().any(crate::model::visible::is_hidden), "{safe}");
        assert_eq!(text("a\u{1b}[m \\"), "a\\u{1b}\\[m ⧵");
        for broken in ["<", ">", "@o", "#1", "](", "://", "![", "**", "`", " | ", "www.h"] {
            assert!(!safe.contains(broken), "{broken} in {safe}");
        }
    }
}
