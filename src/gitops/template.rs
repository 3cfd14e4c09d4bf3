//! A template made safe and traceable before the engine sees it.
//!
//! The engine counts instructions, not bytes, and forgets where text came from. So the source is rewritten, keeping every
//! line where it is: operators that build values (`+`, `*`, `~`) become calls that are metered, each `{{ … }}` says
//! which expression it was, each line of plain text which line, and beside each assignment stands another that says who set
//! the variable. The marks are Unicode noncharacters, which no input may contain; they are taken out again before the text
//! is read as YAML.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Stmt, UnaryOpKind};
use minijinja::machinery::{Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;

use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::flow::{FROM, Flow, Piece, UNTOLD};
use crate::gitops::nesting::with_brackets;

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
    for (token, span) in tokenize(text, false, SyntaxConfig::default()).flatten() {
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
            Stmt::Block(block) => self.statements(&block.body, context),
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
                self.arguments(&call.call.args);
                self.statements(&call.macro_decl.body, Context::Capture);
            }
            Stmt::Do(call) => {
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

    /// What is handed over must be defined, whatever is made of it.
    fn argument(&mut self, expr: &Expr<'_>) {
        if may_be_undefined(expr) {
            self.checked(GIVEN, extent(expr));
            self.chosen(expr);
        }
        self.expression(expr);
    }

    /// What a filter or a test is asked about. Of a statement of one line the engine tells itself where that is.
    fn asked_about(&mut self, name: &str, expr: &Expr<'_>) {
        let range = extent(expr);
        let statement = self.bracket(range.start).map_or("", |one| &self.source.text[one.open..one.close]);
        let is_question = matches!(name, "default" | "d" | "defined" | "undefined");
        if statement.contains('\n') && !is_question && may_be_undefined(expr) {
            self.checked(GIVEN, range);
        }
        self.expression(expr);
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

    fn expression(&mut self, expr: &Expr<'_>) {
        match expr {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(slice) => {
                self.sliced(expr);
                self.expression(&slice.expr);
                for part in [&slice.start, &slice.stop, &slice.step].into_iter().flatten() {
                    self.argument(part);
                }
            }
            Expr::UnaryOp(unary) => match unary.op {
                UnaryOpKind::Neg => self.argument(&unary.expr),
                UnaryOpKind::Not => self.expression(&unary.expr),
            },
            Expr::BinOp(binary) => {
                let function = match binary.op {
                    BinOpKind::Add => Some(ADD),
                    BinOpKind::Mul => Some(MULTIPLY),
                    BinOpKind::Concat => Some(JOIN),
                    BinOpKind::In
                    | BinOpKind::Eq
                    | BinOpKind::Ne
                    | BinOpKind::Lt
                    | BinOpKind::Lte
                    | BinOpKind::Gt
                    | BinOpKind::Gte => {
                        self.comparison(binary.span().end_offset as usize, &binary.right);
                        None
                    }
                    _ => None,
                };
                if let Some(function) = function {
                    let span = binary.span();
                    self.operator(
                        function,
                        span.start_offset as usize,
                        span.end_offset as usize,
                        &binary.right,
                    );
                }
                match binary.op {
                    BinOpKind::Sub
                    | BinOpKind::Div
                    | BinOpKind::FloorDiv
                    | BinOpKind::Rem
                    | BinOpKind::Pow => {
                        self.argument(&binary.left);
                        self.argument(&binary.right);
                    }
                    _ => {
                        self.expression(&binary.left);
                        self.expression(&binary.right);
                    }
                }
            }
            Expr::Compare(compare) => {
                let place = self.place_of(leftmost(&compare.expr)..compare.span().end_offset as usize);
                self.refused.push(
                    Diagnostic::error("PRV1402", place, "several comparisons stand in a row here")
                        .help("compare two values at a time: `a < b and b < c`"),
                );
                self.expression(&compare.expr);
                compare.ops.iter().for_each(|op| self.expression(&op.expr));
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.test_expr);
                self.expression(&choice.true_expr);
                if let Some(other) = &choice.false_expr {
                    self.expression(other);
                }
            }
            Expr::Filter(filter) => {
                if let Some(inner) = &filter.expr {
                    self.note_asked(expr.span().start_offset as usize, inner, &filter.args);
                    self.asked_about(filter.name, inner);
                }
                match filter.name {
                    // One default may stand in for another.
                    "default" | "d" => filter.args.iter().for_each(|value| self.expression(value_of(value))),
                    _ => self.arguments(&filter.args),
                }
            }
            Expr::Test(test) => {
                self.note_asked(expr.span().start_offset as usize, &test.expr, &test.args);
                self.asked_about(test.name, &test.expr);
                self.arguments(&test.args);
            }
            Expr::GetAttr(attribute) => self.expression(&attribute.expr),
            Expr::GetItem(item) => {
                self.expression(&item.expr);
                self.argument(&item.subscript_expr);
            }
            Expr::Call(call) => {
                if let Expr::GetAttr(method) = &call.expr
                    && method.name == "changed"
                {
                    let place = self.place_of(leftmost(&call.expr)..method.span().end_offset as usize);
                    self.refused.push(
                        Diagnostic::error("PRV1408", place, "`loop.changed` is not offered here")
                            .help("keep the last value in a `namespace` and compare with it"),
                    );
                }
                self.expression(&call.expr);
                self.arguments(&call.args);
            }
            Expr::List(list) => self.collection(expr, &list.items),
            Expr::Tuple(tuple) => self.collection(expr, &tuple.items),
            Expr::Map(map) => {
                map.keys.iter().for_each(|key| self.expression(key));
                self.collection(expr, &map.values);
            }
        }
    }

    /// What the filter or test whose name begins at `name` is asked about.
    fn note_asked(&mut self, name: usize, about: &Expr<'_>, arguments: &[CallArg<'_>]) {
        let text = &self.source.text[..name];
        // Before the name stands `|`, `is` or `is not`.
        let mut end = text.trim_end();
        for sign in ["|", "not", "is"] {
            end = end.strip_suffix(sign).unwrap_or(end).trim_end();
        }
        let mut asked = vec![balanced(&self.source.text, leftmost(about)..end.len())];
        for argument in arguments {
            if let CallArg::Pos(value) = argument {
                asked.push(leftmost(value)..value.span().end_offset as usize);
            }
        }
        self.asked.insert(name, asked);
    }

    /// A list of lists can hold far more than it looks, so it pays for its depth. What is in it must be defined.
    fn collection(&mut self, expr: &Expr<'_>, items: &[Expr<'_>]) {
        let span = expr.span();
        let range = span.start_offset as usize..span.end_offset as usize;
        let is_bracketed = self.source.text[range.clone()].starts_with(['[', '(', '{']);
        if is_bracketed && items.iter().any(|item| !matches!(item, Expr::Const(_))) {
            self.wrap(SIZED, range);
            items.iter().for_each(|item| self.argument(item));
        } else {
            items.iter().for_each(|item| self.expression(item));
        }
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) {
        arguments.iter().for_each(|argument| self.argument(value_of(argument)));
    }

    /// `a in b` becomes `a in _looked((b))`: what stands on the right bounds what is looked at. Between the operator and its
    /// right side stand only spaces and opening brackets.
    fn comparison(&mut self, end: usize, right: &Expr<'_>) {
        let before = &self.source.text[..leftmost(right)];
        let start = before.trim_end_matches(|c: char| c.is_whitespace() || c == '(' || c == '-').len();
        if !matches!(right, Expr::Const(_)) {
            // The operator may be a word.
            self.insert(start, format!(" {LOOKED}(("));
            self.close(end, "))".to_owned());
        }
    }

    /// `a.b[1:]` becomes `_looked((a.b[1:]))`. Only of names and their attributes: where else a slice begins is not told.
    fn sliced(&mut self, expr: &Expr<'_>) {
        let Expr::Slice(slice) = expr else { return };
        let (start, end) = (leftmost(&slice.expr), slice.span().end_offset as usize);
        let base = slice.expr.span().end_offset as usize;
        let is_path = {
            let mut base = &slice.expr;
            loop {
                match base {
                    Expr::Var(_) => break true,
                    Expr::GetAttr(attribute) => base = &attribute.expr,
                    Expr::GetItem(item) => base = &item.expr,
                    _ => break false,
                }
            }
        };
        let is_bare = !self.source.text[start..base].contains(')')
            && self.source.text[base..end].trim_start().starts_with('[');
        if is_path && is_bare {
            self.wrap(LOOKED, start..end);
        } else {
            let place = self.place_of(start..end);
            self.refused.push(
                Diagnostic::error("PRV1402", place, "only a plain name can be cut with `[…:…]`")
                    .help("name it first: `{% set all = … %}`, then `all[1:]`"),
            );
        }
    }

    fn place_of(&self, range: Range<usize>) -> Place {
        Place::new(self.source, range)
    }

    /// `a ~ b` becomes `_join((a),(b))`.
    fn operator(&mut self, function: &str, start: usize, end: usize, right: &Expr<'_>) {
        let sign = match function {
            ADD => '+',
            MULTIPLY => '*',
            _ => '~',
        };
        // Between the operator and its right side stand only spaces and opening brackets.
        let Some(at) = self.source.text[start..leftmost(right)].rfind(sign).map(|at| start + at) else {
            return;
        };
        self.insert(start, format!("{function}(("));
        self.edits.push(Edit { at, removes: 1, text: "),(".to_owned(), rank: 0 });
        self.close(end, "))".to_owned());
    }
}

fn value_of<'e, 's>(argument: &'e CallArg<'s>) -> &'e Expr<'s> {
    match argument {
        CallArg::Pos(value)
        | CallArg::Kwarg(_, value)
        | CallArg::PosSplat(value)
        | CallArg::KwargSplat(value) => value,
    }
}

/// Whether an expression can have no value and be no error by itself.
fn may_be_undefined(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Var(_)
        | Expr::GetAttr(_)
        | Expr::GetItem(_)
        | Expr::IfExpr(_)
        | Expr::Filter(_)
        | Expr::Call(_) => true,
        Expr::BinOp(binary) => matches!(binary.op, BinOpKind::ScAnd | BinOpKind::ScOr),
        _ => false,
    }
}

/// All of an expression with the sign before it, enclosing brackets aside.
fn extent(expr: &Expr<'_>) -> Range<usize> {
    let mut start = leftmost(expr);
    let mut first = expr;
    loop {
        first = match first {
            Expr::BinOp(binary) => &binary.left,
            Expr::IfExpr(choice) => &choice.true_expr,
            Expr::UnaryOp(unary) => {
                start = start.min(first.span().start_offset as usize);
                &unary.expr
            }
            _ => return start..(expr.span().end_offset as usize).max(start),
        };
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

/// A range with the brackets that open before it and close in it.
fn balanced(text: &str, range: Range<usize>) -> Range<usize> {
    let Range { mut start, end } = range;
    let start_max = start;
    let inside = text.get(start..end).unwrap_or_default();
    let depth =
        |open: char, close: char| inside.matches(close).count().saturating_sub(inside.matches(open).count());
    for _ in 0..depth('(', ')') + depth('[', ']') + depth('{', '}') {
        start = text[..start].rfind(['(', '[', '{']).unwrap_or(start);
    }
    start..end.max(start_max)
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

/// Whether the text of an expression is safe inside YAML.
fn is_quoted(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Filter(filter) => match filter.name {
            "tojson" | "quote" | "int" | "float" | "length" | "count" | "bool" => true,
            "indent" | "safe" | "trim" => filter.expr.as_ref().is_some_and(is_quoted),
            _ => false,
        },
        Expr::IfExpr(choice) => {
            is_quoted(&choice.true_expr) && choice.false_expr.as_ref().is_none_or(is_quoted)
        }
        Expr::Const(constant) => constant.value.as_str().is_none(),
        // Numbers and calls of macros decide for themselves.
        Expr::Call(_) | Expr::UnaryOp(_) | Expr::Compare(_) | Expr::Test(_) => true,
        Expr::BinOp(binary) => !matches!(binary.op, BinOpKind::Concat | BinOpKind::Add),
        _ => false,
    }
}

/// The first byte of an expression, enclosing brackets aside.
pub(crate) fn leftmost(expr: &Expr<'_>) -> usize {
    match expr {
        Expr::BinOp(binary) => leftmost(&binary.left),
        Expr::Compare(compare) => leftmost(&compare.expr),
        Expr::IfExpr(choice) => leftmost(&choice.true_expr),
        Expr::Filter(filter) => filter.expr.as_ref().map_or(expr.span().start_offset as usize, leftmost),
        Expr::Test(test) => leftmost(&test.expr),
        Expr::GetAttr(attribute) => leftmost(&attribute.expr),
        Expr::GetItem(item) => leftmost(&item.expr),
        Expr::Slice(slice) => leftmost(&slice.expr),
        Expr::Call(call) => leftmost(&call.expr),
        // Its sign may stand before or, in `a not in b`, behind it: what it negates is inside the same brackets.
        Expr::UnaryOp(unary) => leftmost(&unary.expr),
        _ => expr.span().start_offset as usize,
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
