//! Words of the repository inside Markdown: shown as they are, and never obeyed.
//!
//! Names, values and messages come from whoever proposes a change. On a forge they could break a table, close a fold, load
//! a picture, call a hundred people or pretend to be this program. Inside code spans nothing of that works, so nearly
//! everything goes there; sentences are escaped letter by letter.

/// Longer words say nothing that a reader needs.
const LETTERS_MAX: usize = 200;

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
    // A backslash before a pipe would turn the escape into text.
    let plain = plain.replace('\\', "⧵").replace('`', "ˋ").replace('|', pipe);
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
            '\\' => safe.push('⧵'),
            // A mention, an issue, an address: the invisible letter keeps a forge from finding them.
            '@' | '#' => safe.extend([letter, '\u{200b}']),
            '*' | '_' | '[' | ']' | '(' | ')' | '!' | '~' => safe.extend(['\\', letter]),
            letter => safe.push(letter),
        }
    }
    safe.replace("://", ":\u{200b}//").replace("www.", "www\u{200b}.").trim().to_owned()
}

/// For a terminal: nothing that moves the cursor or turns the line round.
pub fn terminal(text: &str) -> String {
    visible(text, usize::MAX)
}

/// One line, without letters that cannot be seen, and not endless.
fn visible(text: &str, letters_max: usize) -> String {
    let mut line = String::new();
    for (count, letter) in text.chars().enumerate() {
        if count == letters_max {
            line.push('…');
            break;
        }
        match letter {
            '\n' | '\r' | '\t' => line.push(' '),
            letter if letter.is_control() || is_hidden(letter) => line.push('\u{fffd}'),
            letter => line.push(letter),
        }
    }
    line
}

/// Letters without width, and those that change the direction of what follows.
fn is_hidden(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_a_span() {
        assert_eq!(code("a`b`c"), "`aˋbˋc`");
        assert_eq!(cell("a|b\\|c"), "`a\\|b⧵\\|c`");
        assert_eq!(code("two\nlines\u{1b}[31m"), "`two lines\u{fffd}[31m`");
        assert_eq!(code(" "), "–");
        assert_eq!(code("\u{202e}evil"), "`\u{fffd}evil`");
        assert_eq!(code(&"x".repeat(500)).chars().count(), 203);
    }

    #[test]
    fn nothing_in_a_sentence_is_obeyed() {
        let hostile =
            "</details><script>x</script> @org/team #1 [a](http://b) ![c](d) **e** `f` | <!-- g --> www.h";
        let safe = text(hostile);
        for broken in ["<", ">", "@o", "#1", "](", "://", "![", "**", "`", " | ", "www.h"] {
            assert!(!safe.contains(broken), "{broken} in {safe}");
        }
    }
}
