//! Diagnostics drawn for people: the sentence, the excerpt with the place underlined, what else belongs to it, what to do,
//! and where more is said of it.
//!
//! Letters that cannot be seen are shown before anything is drawn, so that what is underlined stands above its line. Lines
//! and columns that are named are those of the file.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, SourceCode,
    SourceSpan, SpanContents, ThemeStyles,
};

use crate::gitops::diagnostic::{Diagnostic, Diagnostics, LINE_MAX, Link, Place, Severity, Source};
use crate::model::visible::{VisibleText, visible, visible_line};

/// Wide enough that no sentence is broken: terminals do that better, and search tools find whole lines.
const WIDTH: usize = 10_000;

/// All that are shown, one blank line between two, and how many more there are.
pub fn draw(diagnostics: &Diagnostics, is_colored: bool) -> String {
    let mut text = String::new();
    for diagnostic in diagnostics.shown() {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&draw_one(diagnostic, is_colored));
    }
    match diagnostics.hidden() {
        0 => {}
        hidden => text.push_str(&format!("\nand {hidden} more\n")),
    }
    text
}

fn draw_one(diagnostic: &Diagnostic, is_colored: bool) -> String {
    let mut theme = GraphicalTheme::unicode();
    theme.styles = if is_colored { ThemeStyles::ansi() } else { ThemeStyles::none() };
    let head = format!("{}[{}]:", diagnostic.severity, diagnostic.code);
    theme.characters.error = head.clone();
    theme.characters.warning = head.clone();
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(WIDTH)
        .with_wrap_lines(false)
        .with_context_lines(1)
        .with_links(false);
    let mut text = String::new();
    let original = diagnostic;
    let (diagnostic, main) = seen(original);
    let cut = Cut::of(&diagnostic.place);
    let drawn = Drawn { original, diagnostic: &diagnostic, main, cut };
    if handler.render_report(&mut text, &drawn).is_err() {
        // A place that does not fit its text; the plain form needs none.
        text = format!("{diagnostic}\n");
    }
    let mut text = text.trim().to_owned();
    for (link, original) in diagnostic.chain.iter().zip(&original.chain) {
        if !drawn.is_near(&link.place) {
            text.push_str(&format!(
                "\n  note: {}: {}",
                visible_line(&original.place.to_string()),
                link.message
            ));
        }
    }
    text.push_str(&format!("\n  see: {}\n", diagnostic.documentation()));
    text
}

/// The diagnostic with every hidden letter shown, and how the text of its place was changed for that, if it was.
fn seen(diagnostic: &Diagnostic) -> (Diagnostic, Option<VisibleText>) {
    let mut seen = diagnostic.clone();
    let shown = |text: &mut String| {
        if let Cow::Owned(shown) = visible(text) {
            *text = shown;
        }
    };
    shown(&mut seen.message);
    seen.help.iter_mut().for_each(shown);
    let main = shown_place(&mut seen.place);
    for Link { message, place } in &mut seen.chain {
        shown(message);
        shown_place(place);
    }
    (seen, main)
}

fn shown_place(place: &mut Place) -> Option<VisibleText> {
    let text = place.source.shown();
    let changed = VisibleText::of(&text);
    let path = visible_line(&place.source.path);
    if changed.is_none() && matches!((&path, &text), (Cow::Borrowed(_), Cow::Borrowed(_))) {
        return None;
    }
    let path: Arc<str> = path.into();
    let place_of = |source| Place { source, ..*place };
    let seen = match &changed {
        None => place_of(Source::new(path, text)),
        Some(shown) => {
            let bytes = place.bytes();
            Place::new(
                &Source::new(path, shown.text.as_str()),
                shown.shown(bytes.start)..shown.shown(bytes.end),
            )
        }
    };
    *place = seen;
    changed
}

/// What is underlined: a script or a table of a thousand lines is known by its first.
fn first_line(place: &Place) -> SourceSpan {
    let bytes = place.bytes();
    let text = place.source.text.get(bytes.clone()).unwrap_or_default();
    let length = text.find('\n').map_or(bytes.len(), |end| text[..end].trim_end().len());
    SourceSpan::new(bytes.start.into(), length)
}

fn has_excerpt(place: &Place) -> bool {
    !place.source.text.is_empty()
}

/// The part of a long line that stands for it.
#[derive(Debug)]
struct Cut {
    text: String,
    /// Bytes of the mistake in `text`.
    span: SourceSpan,
    /// From 0.
    line: usize,
}

impl Cut {
    /// `None` if the line, and those above and below it, can be shown whole.
    fn of(place: &Place) -> Option<Self> {
        let number = place.position().0 as usize;
        let is_long =
            |line: usize| line > 0 && place.source.line(line).char_indices().nth(LINE_MAX).is_some();
        if !(number - 1..=number + 1).any(is_long) {
            return None;
        }
        let excerpt = place.excerpt();
        let span = SourceSpan::new(excerpt.bytes.start.into(), excerpt.bytes.len());
        Some(Self { text: excerpt.text + "\n", span, line: number - 1 })
    }
}

#[derive(Debug)]
struct Drawn<'a> {
    /// What is said about lines and columns is true for this one.
    original: &'a Diagnostic,
    /// What is shown.
    diagnostic: &'a Diagnostic,
    main: Option<VisibleText>,
    cut: Option<Cut>,
}

impl Drawn<'_> {
    /// Whether a linked place is drawn as a second label: it is in the same text, and that is shown whole.
    fn is_near(&self, link: &Place) -> bool {
        let main = &self.diagnostic.place;
        link.source == main.source && has_excerpt(main) && self.cut.is_none() && Cut::of(link).is_none()
    }
}

impl fmt::Display for Drawn<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if has_excerpt(&self.diagnostic.place) {
            out.write_str(&self.diagnostic.message)
        } else {
            write!(out, "{}: {}", visible_line(&self.original.place.to_string()), self.diagnostic.message)
        }
    }
}

impl std::error::Error for Drawn<'_> {}

impl miette::Diagnostic for Drawn<'_> {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.diagnostic.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        has_excerpt(&self.diagnostic.place).then_some(self)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let shown = self.cut.as_ref().map_or_else(|| first_line(&self.diagnostic.place), |cut| cut.span);
        let main = LabeledSpan::new_primary_with_span(None, shown);
        let links = self.diagnostic.chain.iter().filter(|link| self.is_near(&link.place));
        let links = links
            .map(move |link| LabeledSpan::new_with_span(Some(link.message.clone()), first_line(&link.place)));
        Some(Box::new(std::iter::once(main).chain(links)))
    }
}

/// The text of the place, with columns in characters, as everywhere else.
impl SourceCode for Drawn<'_> {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let source = &self.diagnostic.place.source;
        if let Some(cut) = &self.cut {
            let contents = cut.text.as_str().read_span(span, lines_before, lines_after)?;
            let column = self.original.place.position().1 as usize - 1;
            let (path, line) = (source.path.to_string(), cut.line);
            // Where the excerpt begins is asked with the context lines, where the mistake is without.
            let column = if lines_before == 0 { column } else { 0 };
            return Ok(Box::new(MietteSpanContents::new_named(
                path,
                contents.data(),
                *contents.span(),
                line,
                column,
                1,
            )));
        }
        let contents = (*source.text).read_span(span, lines_before, lines_after)?;
        let column = match lines_before {
            0 => {
                let byte = self.main.as_ref().map_or(span.offset(), |main| main.original(span.offset()));
                self.original.place.source.position(byte).1 as usize - 1
            }
            _ => contents.column(),
        };
        Ok(Box::new(MietteSpanContents::new_named(
            source.path.to_string(),
            contents.data(),
            *contents.span(),
            source.position(contents.span().offset()).0 as usize - 1,
            column,
            contents.line_count(),
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gitops::diagnostic::Source;

    fn at(text: &str, word: &str) -> Place {
        let source = Source::new("environments/dev.toml", text);
        let start = text.find(word).expect("the word is in the text");
        Place::new(&source, start..start + word.len())
    }

    #[test]
    fn a_mistake_shows_where_why_and_what_to_do() {
        let place = at("# ä\n[pools.general]\nü = 1\nlimts = { cpu = \"200\" }\nweight = 1\n", "limts");
        let mistake = Diagnostic::error("PRV1203", place, "`limts` is no field of a pool")
            .help("did you mean `limits`?");
        assert_eq!(
            draw(&mistake.into(), false),
            "error[PRV1203]: `limts` is no field of a pool
   ╭─[environments/dev.toml:4:1]
 3 │ ü = 1
 4 │ limts = { cpu = \"200\" }
   · ─────
 5 │ weight = 1
   ╰────
  help: did you mean `limits`?
  see: docs/guide/strategy.md#prv1203
"
        );
    }

    #[test]
    fn of_a_long_line_the_part_around_the_mistake_is_shown() {
        let text =
            format!("# one\nx = [{}]; limts = 1 {}\n# three\n", "ü, ".repeat(40_000), "y".repeat(70_000));
        let drawn = draw(&Diagnostic::error("PRV1", at(&text, "limts"), "no field").into(), false);
        assert!(drawn.contains("environments/dev.toml:2:120009]"), "{drawn}");
        assert!(drawn.contains(" 2 │ …") && drawn.contains("ü, ]; limts = 1 yyy"), "{drawn}");
        assert!(drawn.len() < 1500, "{}", drawn.len());
        let under = drawn.lines().find(|line| line.contains('─') && line.contains('·')).expect("underlined");
        let line = drawn.lines().find(|line| line.contains("limts")).expect("shown");
        let column = |line: &str, what: &str| line[..line.find(what).expect("there")].chars().count();
        assert_eq!(column(under, "─"), column(line, "limts"), "{drawn}");
    }

    #[test]
    fn of_a_long_value_the_first_line_is_shown() {
        let script = "echo ü\n".repeat(4_000);
        let place = at(&format!("a = 1\nb = '''\n{script}''' # end\nc = 1\n"), &format!("'''\n{script}'''"));
        let drawn = draw(&Diagnostic::error("PRV1", place.clone(), "too much").into(), false);
        assert_eq!(
            drawn,
            "error[PRV1]: too much
   ╭─[environments/dev.toml:2:5]
 1 │ a = 1
 2 │ b = '''
   ·     ───
 3 │ echo ü
   ╰────
  see: docs/guide/strategy.md#prv1
"
        );
        let start = place.start as usize + 6;
        let near = Place::new(&place.source, start..start);
        let drawn = draw(&Diagnostic::error("PRV1", near, "no").also("inside of this", place).into(), false);
        assert!(drawn.contains("inside of this") && drawn.lines().count() < 20, "{drawn}");
    }

    #[test]
    fn columns_are_characters_and_a_missing_file_has_no_excerpt() {
        let drawn = draw(&Diagnostic::error("PRV1", at("äöü = x\n", "x"), "no").into(), false);
        assert!(drawn.contains("environments/dev.toml:1:7]"), "{drawn}");
        let nothing = Place::start_of(&Source::nameless_text("fleet.toml"));
        let drawn = draw(&Diagnostic::error("PRV2", nothing, "there is no fleet").into(), false);
        assert_eq!(
            drawn,
            "error[PRV2]: fleet.toml:1:1: there is no fleet\n  see: docs/guide/strategy.md#prv2\n"
        );
    }
    #[test]
    fn hidden_letters_are_shown_and_the_mistake_stays_underlined() {
        let text = "\u{feff}# \u{1b}]0;owned\u{7}\r\n\u{202e}x\u{85} = \"a\u{1b}\" # \u{9b}\r\n";
        for word in ["x", "\"a\u{1b}\"", "\u{85}"] {
            let place = at(text, word);
            let (_, column) = place.position();
            let drawn = draw(&Diagnostic::error("PRV1", place, "no \u{1b}[2J").into(), false);
            assert!(drawn.contains(&format!("environments/dev.toml:2:{column}]")), "{drawn}");
            assert!(drawn.starts_with("error[PRV1]: no \\u{1b}[2J\n"), "{drawn}");
            assert!(drawn.contains(" 1 │ # \\u{1b}]0;owned\\u{7}\n"), "{drawn}");
            assert!(drawn.contains(" 2 │ \\u{202e}x\\u{85} = \"a\\u{1b}\" # \\u{9b}\n"), "{drawn}");
            let under = drawn.lines().find(|line| line.contains('·')).expect("underlined");
            let line = drawn.lines().find(|line| line.contains(" 2 │")).expect("shown");
            let shown: String = visible(word).into_owned();
            let marks: Vec<usize> = under
                .chars()
                .enumerate()
                .filter(|(_, mark)| "─┬".contains(*mark))
                .map(|(at, _)| at)
                .collect();
            let first = line[..line.find(&shown).expect("there")].chars().count();
            assert_eq!(marks.first(), Some(&first), "{drawn}");
            assert_eq!(marks.len(), shown.chars().count(), "{drawn}");
        }
        let long = format!("{}\u{1b}x\n", "y\u{1b}".repeat(500));
        let drawn = draw(&Diagnostic::error("PRV1", at(&long, "x"), "no").into(), false);
        assert!(drawn.contains("environments/dev.toml:1:1002]") && drawn.contains("\\u{1b}x"), "{drawn}");
        assert!(!drawn.contains('\u{1b}') && drawn.len() < 1_000, "{drawn}");
    }

    #[test]
    fn a_path_with_hidden_letters_is_shown() {
        let source = Source::new("environments/\u{202e}lmot.toml", "x = 1\n");
        let near = Diagnostic::error("PRV1", Place::new(&source, 0..1), "no");
        let far = Place::start_of(&Source::nameless_text("\u{1b}[2J"));
        let drawn = draw(&near.also("see \u{7}", far).into(), false);
        assert!(drawn.contains("[environments/\\u{202e}lmot.toml:1:1]"), "{drawn}");
        assert!(drawn.contains("note: \\u{1b}[2J:1:1: see \\u{7}"), "{drawn}");
    }
}
