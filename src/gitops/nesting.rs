//! A template too deep to be read is refused before anybody reads it.
//!
//! The engine's parser bounds how deep brackets and statements nest, and follows everything else by recursion: a thousand minus
//! signs, a thousand attributes in a row, a thousand `elif`. A few kilobytes of them would overflow the stack, which no
//! caller can catch. Counting words needs no stack.

use std::ops::Range;
use std::sync::Arc;

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use crate::gitops::diagnostic::{Diagnostic, Place, Source};

/// Words of one expression that can lie inside each other: entries of a list count for themselves.
const WORDS_MAX: usize = 200;
/// Branches of `if`s that are open at the same time.
const BRANCHES_MAX: usize = 100;

/// What is too deep in a template, if anything is.
pub(crate) fn check(source: &Arc<Source>) -> Option<Diagnostic> {
    let mut expression = Depth::default();
    let mut branches = Depth::default();
    let mut is_tag_new = false;
    for (token, span) in tokenize(&source.text, false, SyntaxConfig::default()).map_while(Result::ok) {
        let is_first = std::mem::take(&mut is_tag_new);
        match token {
            Token::VariableStart | Token::BlockStart => {
                expression = Depth::default();
                is_tag_new = matches!(token, Token::BlockStart);
            }
            Token::Ident("if") if is_first => branches.open(),
            Token::Ident("elif") if is_first => branches.grow(),
            Token::Ident("endif") if is_first => branches.close(),
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => {
                expression.grow();
                expression.open();
            }
            Token::ParenClose | Token::BracketClose | Token::BraceClose => expression.close(),
            Token::Comma => expression.restart(),
            Token::VariableEnd | Token::BlockEnd | Token::TemplateData(_) => {}
            _ => expression.grow(),
        }
        let excess = if expression.total > WORDS_MAX {
            Some(("this expression is too long", "split it with `{% set %}`"))
        } else if branches.total > BRANCHES_MAX {
            Some(("this `if` has too many branches", "look the value up in a table"))
        } else {
            None
        };
        if let Some((what, help)) = excess {
            let place = Place::new(source, span.start_offset as usize..span.end_offset as usize);
            let message = format!(
                "{what}: more than {} parts inside each other",
                match branches.total {
                    total if total > BRANCHES_MAX => BRANCHES_MAX,
                    _ => WORDS_MAX,
                }
            );
            return Some(Diagnostic::error("PRV1407", place, message).help(help));
        }
    }
    None
}

/// `range` with the round brackets before and behind it that are closed or opened inside; `None` if that is not to be told.
pub(crate) fn with_brackets(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let (mut open, mut missing, mut quote) = (0_usize, 0_usize, None);
    let mut letters = text.get(range.clone())?.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(_), '\\') => drop(letters.next()),
            (Some(mark), _) if mark == letter => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(' | '[' | '{') => open += 1,
            (None, ')' | ']' | '}') if open > 0 => open -= 1,
            (None, ')' | ']' | '}') => missing += 1,
            (None, _) => {}
        }
    }
    let Range { mut start, mut end } = range;
    for _ in 0..missing {
        start = text[..start].trim_end().strip_suffix('(')?.len();
    }
    for _ in 0..open {
        let behind = text[end..].trim_start().strip_prefix(')')?;
        end = text.len() - behind.len();
    }
    quote.is_none().then_some(start..end)
}

/// How much stands inside what is open.
#[derive(Default)]
struct Depth {
    /// Of each level that encloses the current one.
    outer: Vec<usize>,
    current: usize,
    total: usize,
}

impl Depth {
    fn open(&mut self) {
        self.outer.push(std::mem::take(&mut self.current));
    }

    fn grow(&mut self) {
        self.current += 1;
        self.total += 1;
    }

    fn restart(&mut self) {
        self.total -= std::mem::take(&mut self.current);
    }

    fn close(&mut self) {
        self.restart();
        self.current = self.outer.pop().unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_at_the_ends_belong_to_what_they_enclose() {
        let whole = |text: &str, part: &str| {
            let start = text.find(part).expect("it is part of it");
            with_brackets(text, start..start + part.len()).map(|range| text[range].to_owned())
        };
        assert_eq!(whole("f((a) or b)", "a) or b").as_deref(), Some("(a) or b"));
        assert_eq!(whole("f(( (a | d) ) or b)", "a | d) ) or b").as_deref(), Some("( (a | d) ) or b"));
        assert_eq!(whole("f(a or (b))", "a or (b").as_deref(), Some("a or (b)"));
        assert_eq!(whole("f(a or ')')", "a or ')'").as_deref(), Some("a or ')'"));
        assert_eq!(whole("f(x[a] or b)", "a] or b"), None);
    }

    fn is_refused(text: String) -> bool {
        check(&Source::new("t.j2", text)).is_some()
    }

    #[test]
    fn chains_of_every_kind_are_refused_before_they_are_parsed() {
        for text in [
            format!("{{{{ {}1 }}}}", "-".repeat(9200)),
            format!("{{{{ pool{} }}}}", "()".repeat(4500)),
            format!("{{{{ pool{} }}}}", "(1, 2)".repeat(4500)),
            format!("{{{{ pool{} }}}}", ".a".repeat(5500)),
            format!("{{{{ pool{} }}}}", "|upper".repeat(5500)),
            format!("{{{{ {} }}}}", vec!["1"; 14200].join("+")),
            format!("{{{{ {}true }}}}", "not ".repeat(9700)),
            format!("{{{{ {}1 }}}}", "1 if a else ".repeat(3000)),
            format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}".repeat(3500)),
        ] {
            assert!(is_refused(text.clone()), "{}", &text[..40]);
        }
    }

    #[test]
    fn long_lists_and_many_short_expressions_are_no_trouble() {
        let types: Vec<String> = (0..5000).map(|at| format!("\"m{at}.large\"")).collect();
        assert!(!is_refused(format!("{{% set types = [{}] %}}", types.join(", "))));
        assert!(!is_refused("{{ a.b.c | tojson }}{% if x %}{% elif y %}{% endif %}".repeat(5000)));
    }

    /// What just passes must be read and run on the stack of an ordinary thread.
    #[test]
    fn the_deepest_template_that_passes_fits_the_stack() {
        let deepest = [
            format!("{{{{ {}1 }}}}", "-".repeat(WORDS_MAX - 1)),
            format!("{{{{ {}1 }}}}", "1 if a else ".repeat(WORDS_MAX / 4 - 1)),
            format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}".repeat(BRANCHES_MAX)),
            format!(
                "{{{{ {}{}1{} }}}}",
                "1 if a else ".repeat((WORDS_MAX - 70) / 4 - 1),
                "(".repeat(70),
                ")".repeat(70)
            ),
        ];
        for text in deepest {
            assert!(!is_refused(text.clone()), "{text}");
            let traced = crate::gitops::template::trace(&Source::new("t.j2", text), &mut Vec::new());
            assert!(traced.is_ok(), "{:?}", traced.err());
        }
    }
}
