//! Expressions of a template: operators become calls that are metered, and what is handed over is checked to be there.

use std::ops::Range;

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, UnaryOpKind};

use super::{ADD, Edit, GIVEN, JOIN, LOOKED, MULTIPLY, NO_BLOCK, SIZED, Walk};
use crate::gitops::diagnostic::{Diagnostic, Place};

impl Walk<'_> {
    pub(super) fn expression(&mut self, expr: &Expr<'_>) {
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
                self.check_super(&call.expr);
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

    /// The engine looks for the block that `super` extends even where there is none, and falls over it. What it calls
    /// instead is a mistake of a template that includes this one, too.
    pub(super) fn check_super(&mut self, called: &Expr<'_>) {
        if let Expr::Var(name) = called
            && name.id == "super"
            && self.blocks == 0
        {
            let at = leftmost(called);
            let place = self.place_of(at..called.span().end_offset as usize);
            self.edits.push(Edit { at, removes: name.id.len(), text: NO_BLOCK.to_owned(), rank: i64::MAX });
            self.refused.push(
                Diagnostic::error("PRV1402", place, "`super()` stands outside of a block")
                    .help("call it between `{% block … %}` and `{% endblock %}`"),
            );
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

    pub(super) fn arguments(&mut self, arguments: &[CallArg<'_>]) {
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
pub(super) fn may_be_undefined(expr: &Expr<'_>) -> bool {
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
pub(super) fn extent(expr: &Expr<'_>) -> Range<usize> {
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

/// Whether the text of an expression is safe inside YAML.
pub(super) fn is_quoted(expr: &Expr<'_>) -> bool {
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
