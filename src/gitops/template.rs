//! A template made safe and traceable before the engine sees it.
//!
//! The engine counts instructions, not bytes, and forgets where text came from. So the source is rewritten, keeping every
//! line where it is: operators that build values (`+`, `*`, `~`) become calls that are metered, each `{{ … }}` says
//! which expression it was, each line of plain text which line, and beside each assignment stands another that says who set
//! the variable. The marks are Unicode noncharacters, which no input may contain; they are taken out again before the text
//! is read as YAML.

mod expression;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use minijinja::machinery::ast::{Expr, Stmt};
use minijinja::machinery::{Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;

use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::flow::{FROM, Flow, Piece, UNTOLD};
use crate::gitops::nesting::with_brackets;

pub(crate) use expression::leftmost;
use expression::{extent, is_quoted, may_be_undefined};

/// Opens the text of an expression; the number of its step follows.
pub(crate) const OPEN: char = '\u{fdd0}';
/// Ends a number.
pub(crate) const NUMBER_END: char = '\u{fdd1}';
/// Closes the text of an expression.
pub(crate) const CLOSE: char = '\u{fdd2}';
/// Says that the line so far is plain text; the number of its place follows.
pub(crate) const LINE: char = '\u{fdd3}';

/// Names of the functions that rewritten operators call.
pub(crate) const EMIT: &str = "_emit";
/// The note of an assignment.
pub(crate) const STEP: &str = "_step";
pub(crate) const ADD: &str = "_add";
pub(crate) const MULTIPLY: &str = "_multiply";
pub(crate) const JOIN: &str = "_join";
pub(crate) const CHARGE: &str = "_charge";
/// Pays for a list or table with all that is inside.
pub(crate) const SIZED: &str = "_sized";
/// Pays for looking through what is compared, searched or cut.
pub(crate) const LOOKED: &str = "_looked";
/// What is assigned, or handed to a filter, a test or a function, is defined: a later `default` must not hide a slip. Where
/// it stands follows, because the engine knows no place of what is on another line than its statement begins.
pub(crate) const GIVEN: &str = "_given";
/// The same for what a namespace is to hold, which may not be a namespace.
pub(crate) const HELD: &str = "_held";
/// Stands for `super` where there is no block.
pub(crate) const NO_BLOCK: &str = "_no_block";

/// Plain text in a capture that is longer than this is metered; shorter text is bounded by fuel.
const UNMETERED_BYTES: usize = 64;

/// A place in a template that output can be traced to.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub place: Place,
    /// What stands there.
    pub piece: Piece,
}

/// A template as the engine gets it.
#[derive(Debug)]
pub(crate) struct Traced {
    pub source: Arc<Source>,
    pub text: String,
    /// What was inserted or replaced: position in the new text, its length there, position in the old, length there.
    shifts: Vec<Shift>,
    /// Strings put into YAML without a filter that quotes them.
    pub unquoted: Vec<Place>,
    /// Names of templates that this one includes, imports or extends by a constant name.
    pub uses: Vec<(String, Place)>,
    /// What is legal in the engine and not here.
    pub refused: Vec<Diagnostic>,
    /// By the first byte of its name, what a filter or a test is asked about, and its arguments in order.
    pub asked: BTreeMap<usize, Vec<Range<usize>>>,
}

#[derive(Clone, Copy, Debug)]
struct Shift {
    new: usize,
    new_length: usize,
    old: usize,
    old_length: usize,
}

impl Traced {
    /// A range of the rewritten text in the words of the original.
    pub fn original(&self, range: Range<usize>) -> Range<usize> {
        let start = self.original_byte(range.start, false);
        let end = self.original_byte(range.end, true);
        start..end.max(start)
    }

    fn original_byte(&self, byte: usize, is_end: bool) -> usize {
        let before = self.shifts.partition_point(|shift| shift.new <= byte);
        match before.checked_sub(1).map(|at| self.shifts[at]) {
            None => byte,
            Some(shift) if byte < shift.new + shift.new_length => {
                if is_end && byte > shift.new {
                    shift.old + shift.old_length
                } else {
                    shift.old
                }
            }
            Some(shift) => byte - (shift.new + shift.new_length) + shift.old + shift.old_length,
        }
    }
}

/// Rewrites a template; marks are numbered through all templates of a run.
pub(crate) fn trace(source: &Arc<Source>, marks: &mut Vec<Mark>) -> Result<Traced, minijinja::Error> {
    let tree = parse(&source.text, &source.path, SyntaxConfig::default())?;
    let mut walk = Walk {
        source,
        marks,
        edits: Vec::new(),
        scope: Vec::new(),
        brackets: brackets(&source.text),
        unquoted: Vec::new(),
        uses: Vec::new(),
        refused: Vec::new(),
        asked: BTreeMap::new(),
        blocks: 0,
        order: 0,
    };
    walk.statement(&tree, Context::Output);
    let Walk { mut edits, unquoted, uses, refused, asked, .. } = walk;
    edits.sort_by_key(|edit| (edit.at, edit.rank));
    let mut text = String::with_capacity(source.text.len() + edits.len() * 16);
    let mut shifts = Vec::with_capacity(edits.len());
    let mut copied = 0;
    for edit in edits {
        text.push_str(&source.text[copied..edit.at]);
        shifts.push(Shift {
            new: text.len(),
            new_length: edit.text.len(),
            old: edit.at,
            old_length: edit.removes,
        });
        text.push_str(&edit.text);
        copied = edit.at + edit.removes;
    }
    text.push_str(&source.text[copied..]);
    Ok(Traced { source: source.clone(), text, shifts, unquoted, uses, refused, asked })
}

/// A `{{ … }}` or `{% … %}`.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    start: usize,
    /// What is between the two signs.
    open: usize,
    close: usize,
    end: usize,
}

/// All of them, in order.
fn brackets(text: &str) -> Vec<Bracket> {
    let mut out = Vec::new();
    let mut open = None;
    for (token, span) in tokenize(text, false, SyntaxConfig::default()).map_while(Result::ok) {
        match token {
            Token::VariableStart | Token::BlockStart => {
                open = Some((span.start_offset as usize, span.end_offset as usize))
            }
            Token::VariableEnd | Token::BlockEnd => {
                if let Some((start, open)) = open.take() {
                    let (close, end) = (span.start_offset as usize, span.end_offset as usize);
                    out.push(Bracket { start, open, close, end });
                }
            }
            _ => {}
        }
    }
    out
}

/// Whether text goes straight to the output, or is caught in a variable where marks would be seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Output,
    Capture,
}

struct Edit {
    at: usize,
    removes: usize,
    text: String,
    /// Orders edits at one place: closing from the inside out, then opening from the outside in.
    rank: i64,
}

struct Walk<'a> {
    source: &'a Arc<Source>,
    marks: &'a mut Vec<Mark>,
    edits: Vec<Edit>,
    /// What the variables of loops stand for.
    scope: Vec<(String, Vec<String>)>,
    brackets: Vec<Bracket>,
    unquoted: Vec<Place>,
    uses: Vec<(String, Place)>,
    refused: Vec<Diagnostic>,
    asked: BTreeMap<usize, Vec<Range<usize>>>,
    /// Blocks around.
    blocks: usize,
    order: i64,
}

impl Walk<'_> {
    fn statements(&mut self, body: &[Stmt<'_>], context: Context) {
        body.iter().for_each(|statement| self.statement(statement, context));
    }

    fn statement(&mut self, statement: &Stmt<'_>, context: Context) {
        match statement {
            Stmt::Template(template) => self.statements(&template.children, context),
            Stmt::EmitExpr(emit) => {
                if context == Context::Output {
                    self.emission(&emit.expr);
                }
                self.expression(&emit.expr);
            }
            Stmt::EmitRaw(raw) => self.plain(raw.raw, context),
            Stmt::ForLoop(each) => {
                self.expression(&each.iter);
                let known = self.scope.len();
                self.bind_loop(&each.target, &each.iter);
                self.note_loop(&each.target);
                if let Some(filter) = &each.filter_expr {
                    self.expression(filter);
                }
                let context = if each.recursive { Context::Capture } else { context };
                self.statements(&each.body, context);
                self.scope.truncate(known);
                self.statements(&each.else_body, context);
            }
            Stmt::IfCond(choice) => {
                self.expression(&choice.expr);
                self.statements(&choice.true_body, context);
                self.statements(&choice.false_body, context);
            }
            Stmt::WithBlock(with) => {
                let known = self.scope.len();
                let mut notes = Vec::new();
                for (at, (target, value)) in with.assignments.iter().enumerate() {
                    if let Some(Bracket { close, .. }) = self.bracket(leftmost(target)) {
                        let next = with.assignments.get(at + 1).map(|(target, _)| leftmost(target));
                        let comma = next.and_then(|next| self.source.text[..next].rfind(','));
                        self.given(target, value, comma.unwrap_or(close));
                    }
                    self.expression(value);
                    notes.extend(self.notes(target, Some(value), value));
                }
                if let Some(bracket) =
                    with.assignments.first().and_then(|(name, _)| self.bracket(leftmost(name)))
                {
                    self.insert_behind(bracket, &notes);
                }
                self.statements(&with.body, context);
                self.scope.truncate(known);
            }
            Stmt::Set(set) => {
                self.assignment(&set.target, &set.expr);
                self.expression(&set.expr);
                let notes = self.notes(&set.target, Some(&set.expr), &set.expr);
                self.insert_before(&set.target, &notes);
            }
            Stmt::SetBlock(set) => {
                if let Some(filter) = &set.filter {
                    self.expression(filter);
                }
                let notes = self.notes(&set.target, None, &set.target);
                self.insert_before(&set.target, &notes);
                self.statements(&set.body, Context::Capture);
            }
            Stmt::AutoEscape(escape) => {
                self.expression(&escape.enabled);
                self.statements(&escape.body, context);
            }
            Stmt::FilterBlock(filter) => {
                self.expression(&filter.filter);
                self.statements(&filter.body, Context::Capture);
            }
            Stmt::Block(block) => {
                self.blocks += 1;
                self.statements(&block.body, context);
                self.blocks -= 1;
            }
            Stmt::Import(import) => {
                self.used(&import.expr);
                self.insert_before(&import.expr, &untold(&import.name));
            }
            Stmt::FromImport(import) => {
                self.used(&import.expr);
                let names = import.names.iter().map(|(name, alias)| alias.as_ref().unwrap_or(name));
                self.insert_before(&import.expr, &names.flat_map(untold).collect::<Vec<_>>());
            }
            Stmt::Extends(extends) => self.used(&extends.name),
            Stmt::Include(include) => self.used(&include.name),
            Stmt::Macro(declared) => {
                declared.defaults.iter().for_each(|default| self.expression(default));
                self.statements(&declared.body, Context::Capture);
            }
            Stmt::CallBlock(call) => {
                self.check_super(&call.call.expr);
                self.arguments(&call.call.args);
                self.statements(&call.macro_decl.body, Context::Capture);
            }
            Stmt::Do(call) => {
                self.check_super(&call.call.expr);
                self.expression(&call.call.expr);
                self.arguments(&call.call.args);
            }
        }
    }

    fn assignment(&mut self, target: &Expr<'_>, value: &Expr<'_>) {
        if let Expr::Tuple(tuple) = value
            && let Some(first) = tuple.items.first().map(leftmost)
            && first <= value.span().start_offset as usize
        {
            let place = Place::new(self.source, first..value.span().end_offset as usize);
            self.refused.push(
                Diagnostic::error("PRV1402", place, "several values stand here without brackets")
                    .help("write them as a list: `[a, b]`"),
            );
        }
        if let Some(Bracket { close, .. }) = self.bracket(leftmost(target)) {
            self.given(target, value, close);
        }
    }

    /// Looks at what `target` is given, which ends at `end`.
    fn given(&mut self, target: &Expr<'_>, value: &Expr<'_>, end: usize) {
        let behind = target.span().end_offset as usize;
        let Some(equals) = self.source.text.get(behind..end).and_then(|text| text.find('=')) else { return };
        let function = match target {
            Expr::GetAttr(_) => HELD,
            _ => GIVEN,
        };
        let start = behind + equals + 1;
        let text = &self.source.text[start..end];
        let lead = text.len() - text.trim_start().len();
        self.checked(function, start + lead..start + text.trim_end().len().max(lead));
        self.chosen(value);
    }

    /// Encloses a range in a call that refuses what is not defined, and says where it stands.
    fn checked(&mut self, function: &str, range: Range<usize>) {
        // Brackets around the first or the last part belong to no part.
        let Some(range) = with_brackets(&self.source.text, range) else { return };
        self.insert(range.start, format!("{function}(("));
        self.close(range.end, format!("), {}, {})", range.start, range.end));
    }

    /// Of a choice without `else` that comes to nothing only the condition may be the reason.
    fn chosen(&mut self, expr: &Expr<'_>) {
        if let Expr::IfExpr(choice) = expr
            && choice.false_expr.is_none()
            && may_be_undefined(&choice.true_expr)
        {
            self.checked(GIVEN, extent(&choice.true_expr));
        }
    }

    fn used(&mut self, name: &Expr<'_>) {
        if let Expr::Const(constant) = name
            && let Some(name) = constant.value.as_str()
        {
            let span = constant.span();
            let place = Place::new(self.source, span.start_offset as usize..span.end_offset as usize);
            self.uses.push((name.to_owned(), place));
        }
        self.expression(name);
    }

    /// `{{ x }}` becomes `{{ _emit(7, (x)) }}`.
    fn emission(&mut self, expr: &Expr<'_>) {
        let start = leftmost(expr);
        let Some(Bracket { open, close, .. }) = self.bracket(start) else { return };
        let inner = &self.source.text[open..close];
        let lead = inner.len() - inner.trim_start().len();
        let range = open + lead..open + inner.trim_end().len().max(lead);
        let place = Place::new(self.source, range.clone());
        if !is_quoted(expr) && self.follows_a_key(open) {
            self.unquoted.push(place.clone());
        }
        let mut piece = Piece::of(expr, self.source, &self.scope);
        piece.place = place.clone();
        let read = read_by(&piece);
        let number = self.mark(place, piece);
        self.insert(range.start, format!("{EMIT}({number}, ("));
        self.close(range.end, format!("){read})"));
        self.chosen(expr);
    }

    /// Assignments that say who sets the names of `target`: `value`, or if there is none what stands at `at`.
    fn notes(&mut self, target: &Expr<'_>, value: Option<&Expr<'_>>, at: &Expr<'_>) -> Vec<String> {
        let whole = |walk: &Self| match value {
            Some(value) => Piece::of(value, walk.source, &walk.scope),
            None => Piece::untold(walk.source, leftmost(at)..at.span().end_offset as usize),
        };
        match target {
            Expr::Var(name) => {
                let piece = whole(self);
                let read = read_by(&piece);
                let number = self.mark(piece.place.clone(), piece);
                // From here on it is no longer what a loop around it calls so.
                self.scope.push((name.id.to_owned(), vec![name.id.to_owned()]));
                vec![format!("set {FROM}{} = {STEP}({number}{read})", name.id)]
            }
            Expr::List(_) | Expr::Tuple(_) => {
                let (names, values) = (items_of(target), value.map(items_of).unwrap_or_default());
                let is_even = names.len() == values.len();
                let one = |(at, name): (usize, &Expr<'_>)| match is_even {
                    true => self.notes(name, Some(&values[at]), &values[at]),
                    false => untold(name),
                };
                names.iter().enumerate().flat_map(one).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whatever assignments of other templates said of the variables of a loop does not hold inside it.
    fn note_loop(&mut self, target: &Expr<'_>) {
        if let Some(bracket) = self.bracket(leftmost(target)) {
            self.insert_behind(bracket, &untold(target));
        }
    }

    /// Statements before the one that `expr` belongs to. They take over how it cuts the white space before it.
    fn insert_before(&mut self, expr: &Expr<'_>, statements: &[String]) {
        let Some(bracket) = self.bracket(leftmost(expr)) else { return };
        let sign = &self.source.text[bracket.start..bracket.open];
        let text: String = statements.iter().map(|statement| format!("{sign} {statement} %}}")).collect();
        if !text.is_empty() {
            self.insert(bracket.start, text);
        }
    }

    /// Statements behind one. They take over how it cuts the white space behind it.
    fn insert_behind(&mut self, bracket: Bracket, statements: &[String]) {
        let sign = &self.source.text[bracket.close..bracket.end];
        let text: String = statements.iter().map(|statement| format!("{{% {statement} {sign}")).collect();
        if !text.is_empty() {
            self.insert(bracket.end, text);
        }
    }

    /// The inside of the `{{ }}` or `{% %}` around a byte.
    fn bracket(&self, byte: usize) -> Option<Bracket> {
        let at = self.brackets.partition_point(|bracket| bracket.open <= byte).checked_sub(1)?;
        Some(self.brackets[at]).filter(|bracket| byte < bracket.close)
    }

    /// Encloses a range in a call.
    fn wrap(&mut self, function: &str, range: Range<usize>) {
        self.insert(range.start, format!("{function}(("));
        self.close(range.end, "))".to_owned());
    }

    fn mark(&mut self, place: Place, piece: Piece) -> usize {
        self.marks.push(Mark { place, piece });
        self.marks.len() - 1
    }

    fn insert(&mut self, at: usize, text: String) {
        self.order += 1;
        let rank = self.order;
        self.edits.push(Edit { at, removes: 0, text, rank });
    }

    fn close(&mut self, at: usize, text: String) {
        self.order += 1;
        let rank = -self.order;
        self.edits.push(Edit { at, removes: 0, text, rank });
    }

    /// Whether the output so far on this line ends like a key or a list entry, so that a bare text would be YAML.
    fn follows_a_key(&self, open: usize) -> bool {
        let before = &self.source.text[..open];
        let line = before[before.rfind('\n').map_or(0, |end| end + 1)..].trim_end_matches('-');
        let line = line.strip_suffix("{{").unwrap_or(line).trim_end();
        line.ends_with(':') || line.trim_start() == "-"
    }

    /// Marks after the last visible character of each line; whitespace control is not disturbed there.
    fn plain(&mut self, raw: &str, context: Context) {
        let text: &str = &self.source.text;
        let Some(start) = (raw.as_ptr() as usize).checked_sub(text.as_ptr() as usize) else { return };
        if start + raw.len() > text.len() || raw.is_empty() {
            return;
        }
        if context == Context::Capture {
            let first = raw.find(|c: char| !c.is_whitespace());
            if raw.len() > UNMETERED_BYTES
                && !self.is_raw_block(start)
                && let Some(first) = first
            {
                let after = first + raw[first..].chars().next().map_or(0, char::len_utf8);
                self.insert(start + after, format!("{{{{ {CHARGE}({}) }}}}", raw.len()));
            }
            return;
        }
        let mut at = start;
        for line in raw.split_inclusive('\n') {
            let visible = line.trim_end();
            if !visible.is_empty() {
                let end = at + visible.len();
                let lead = visible.len() - visible.trim_start().len();
                let place = Place::new(self.source, at + lead..end);
                let number = self.mark(place.clone(), Piece { place, flow: Flow::Untold });
                self.insert(end, format!("{LINE}{number}{NUMBER_END}"));
            }
            at += line.len();
        }
    }

    fn is_raw_block(&self, start: usize) -> bool {
        let before = &self.source.text[..start];
        let tag = before.rfind("{%").map(|at| &before[at + 2..]);
        tag.is_some_and(|tag| tag.trim_matches(|c: char| c.is_whitespace() || "-+%}".contains(c)) == "raw")
    }

    fn bind_loop(&mut self, target: &Expr<'_>, iter: &Expr<'_>) {
        let path = match Piece::of(iter, self.source, &self.scope).base() {
            Flow::Read(path) => Some([path.as_slice(), &["*".to_owned()]].concat()),
            _ => None,
        };
        let names = items_of(target);
        for (at, name) in names.iter().enumerate() {
            let Expr::Var(name) = name else { continue };
            // Of a pair the second is the value.
            let is_value = names.len() == 1 || at == 1;
            let path = path.clone().filter(|_| is_value);
            // A name that nothing has.
            self.scope.push((name.id.to_owned(), path.unwrap_or_else(|| vec![String::new()])));
        }
    }
}

/// The parts of a list, or the expression itself.
fn items_of<'e, 's>(expr: &'e Expr<'s>) -> &'e [Expr<'s>] {
    match expr {
        Expr::List(list) => &list.items,
        Expr::Tuple(tuple) => &tuple.items,
        other => std::slice::from_ref(other),
    }
}

/// Assignments that say that nobody can follow the names of `target`.
fn untold(target: &Expr<'_>) -> Vec<String> {
    let name = |target: &Expr<'_>| match target {
        Expr::Var(name) => Some(format!("set {FROM}{} = {UNTOLD}", name.id)),
        _ => None,
    };
    items_of(target).iter().filter_map(name).collect()
}

/// The last argument of a step: the variables that it reads.
fn read_by(piece: &Piece) -> String {
    match piece.names().as_slice() {
        [] => String::new(),
        names => format!(", {names:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(text: &str) -> Traced {
        trace(&Source::new("t.j2", text), &mut Vec::new()).expect("it parses")
    }

    #[test]
    fn operators_become_metered_calls() {
        assert_eq!(
            traced("{% set x = a ~ (b + 1) ~ c %}").text,
            "{% set _provisor_from_x = _step(0) %}{% set x = _given((_join((_join((a ),( (_add((b ),( 1))))) ),( c))), 11, 26) %}"
        );
    }

    #[test]
    fn expressions_and_lines_are_marked_and_positions_lead_back() {
        let traced = traced("a: {{ x | tojson }}\nb: {{- y }}\n");
        assert!(traced.text.contains("_emit(1, (x | tojson), [\"x\"])"), "{}", traced.text);
        let at = traced.text.find("x | tojson").expect("kept");
        assert_eq!(traced.original(at..at + 10), 6..16);
        assert_eq!(traced.unquoted.len(), 1);
        assert_eq!(traced.unquoted[0].position(), (2, 8));
    }
}
