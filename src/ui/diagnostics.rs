//! Diagnostics drawn for people: the sentence, the excerpt with the place underlined, what else belongs to it, what to do.

use std::fmt;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, SourceCode,
    SourceSpan, SpanContents, ThemeStyles,
};

use crate::gitops::diagnostic::{Diagnostic, Diagnostics, Place, Severity};

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
    if handler.render_report(&mut text, &Drawn(diagnostic)).is_err() {
        // A place that does not fit its text; the plain form needs none.
        text = format!("{diagnostic}\n");
    }
    let mut text = text.trim().to_owned();
    for link in diagnostic.chain.iter().filter(|link| !is_near(&link.place, &diagnostic.place)) {
        text.push_str(&format!("\n  note: {}: {}", link.place, link.message));
    }
    text.push('\n');
    text
}

/// Whether a linked place is drawn as a second label: it is in the same text.
fn is_near(link: &Place, main: &Place) -> bool {
    link.source == main.source && has_excerpt(main)
}

fn has_excerpt(place: &Place) -> bool {
    !place.source.text.is_empty()
}

#[derive(Debug)]
struct Drawn<'a>(&'a Diagnostic);

impl fmt::Display for Drawn<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if has_excerpt(&self.0.place) {
            out.write_str(&self.0.message)
        } else {
            write!(out, "{}: {}", self.0.place, self.0.message)
        }
    }
}

impl std::error::Error for Drawn<'_> {}

impl miette::Diagnostic for Drawn<'_> {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.0.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        has_excerpt(&self.0.place).then_some(self)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = |place: &Place| {
            let bytes = place.bytes();
            SourceSpan::new(bytes.start.into(), bytes.len())
        };
        let main = LabeledSpan::new_primary_with_span(None, span(&self.0.place));
        let links = self.0.chain.iter().filter(|link| is_near(&link.place, &self.0.place));
        let links =
            links.map(move |link| LabeledSpan::new_with_span(Some(link.message.clone()), span(&link.place)));
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
        let source = &self.0.place.source;
        let contents = (*source.text).read_span(span, lines_before, lines_after)?;
        let column = match lines_before {
            0 => source.position(span.offset()).1 as usize - 1,
            _ => contents.column(),
        };
        Ok(Box::new(MietteSpanContents::new_named(
            source.path.to_string(),
            contents.data(),
            *contents.span(),
            contents.line(),
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
"
        );
    }

    #[test]
    fn columns_are_characters_and_a_missing_file_has_no_excerpt() {
        let drawn = draw(&Diagnostic::error("PRV1", at("äöü = x\n", "x"), "no").into(), false);
        assert!(drawn.contains("environments/dev.toml:1:7]"), "{drawn}");
        let nothing = Place::start_of(&Source::nameless_text("fleet.toml"));
        let drawn = draw(&Diagnostic::error("PRV2", nothing, "there is no fleet").into(), false);
        assert_eq!(drawn, "error[PRV2]: fleet.toml:1:1: there is no fleet\n");
    }
}
