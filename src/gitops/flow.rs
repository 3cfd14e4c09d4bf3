//! How values pass through templates, so that each can be followed back to the line that set it.
//!
//! The engine forgets where a value came from. So each assignment leaves a note in a variable of its own ([`FROM`] and the
//! name), in the same scope and under the same conditions as the assignment itself, whichever template it stands in. A [`Step`]
//! is one assignment or one `{{ … }}` as it happened, with the notes of the variables that it read; a [`Piece`] is the
//! expression in the source, as far as values pass through it unchanged. Together with the value that came out they say who
//! gave it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr};
use minijinja::{State, Value};

use crate::gitops::diagnostic::{Place, Source};
use crate::gitops::migrate::RENAMED;
use crate::gitops::template::{Mark, leftmost};
use crate::gitops::tree::{Node, Tree};

/// Begins the names of variables that say who set the variable behind it.
pub(crate) const FROM: &str = "_provisor_from_";
/// The note of a variable that nobody can follow, such as that of a loop.
pub(crate) const UNTOLD: i64 = -1;
/// Steps of one rendering that are told apart; later ones lead to their own line only.
const STEPS_MAX: usize = 20_000;
/// Variables that one step may read; of one that reads more nothing is followed.
const NAMES_MAX: usize = 16;
/// Assignments in a row that are followed.
const DEPTH_MAX: usize = 32;
/// Parts of expressions that are looked at for one rendering.
const LOOKED_MAX: usize = 1_000_000;

/// A part of an expression.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub place: Place,
    pub flow: Flow,
}

/// What an expression does with values.
#[derive(Clone, Debug)]
pub(crate) enum Flow {
    /// A name and what is read of it: `pool.limits`. `*` is an entry of a loop.
    Read(Vec<String>),
    Constant(serde_json::Value),
    List(Vec<Piece>),
    Table(Vec<(String, Piece)>),
    /// `a | default(b)`: the first that is there.
    FirstOf(Box<[Piece; 2]>),
    /// `a if … else b`.
    OneOf(Vec<Piece>),
    /// Lists whose entries are in the result, perhaps in another order.
    EntriesOf(Vec<Piece>),
    /// Something made of this.
    MadeOf(Box<Piece>),
    /// This itself, at most in another notation.
    Same(Box<Piece>),
    /// Plain text, or a value that only the engine knows.
    Untold,
}

impl Piece {
    /// What `expr` does; `scope` says what the variables of loops stand for.
    pub fn of(expr: &Expr<'_>, source: &Arc<Source>, scope: &[(String, Vec<String>)]) -> Self {
        let part = |expr: &Expr<'_>| Self::of(expr, source, scope);
        let start = leftmost(expr);
        let range = start..(expr.span().end_offset as usize).max(start);
        let flow = match expr {
            Expr::Var(name) => {
                let alias = scope.iter().rev().find(|(known, _)| known == name.id);
                Flow::Read(alias.map_or_else(|| vec![name.id.to_owned()], |(_, path)| path.clone()))
            }
            Expr::GetAttr(attribute) => read_of(part(&attribute.expr), attribute.name),
            Expr::GetItem(item) => match &item.subscript_expr {
                Expr::Const(key) => match key.value.as_str() {
                    Some(key) => read_of(part(&item.expr), key),
                    None => Flow::MadeOf(Box::new(part(&item.expr))),
                },
                _ => Flow::MadeOf(Box::new(part(&item.expr))),
            },
            Expr::Const(constant) => match serde_json::to_value(&constant.value) {
                Ok(value) => Flow::Constant(value),
                Err(_) => Flow::Untold,
            },
            Expr::List(list) => Flow::List(list.items.iter().map(part).collect()),
            Expr::Tuple(tuple) => Flow::List(tuple.items.iter().map(part).collect()),
            Expr::Map(map) => {
                let key = |key: &Expr<'_>| match key {
                    Expr::Const(key) => key.value.as_str().map(str::to_owned),
                    _ => None,
                };
                let entries = map.keys.iter().zip(&map.values);
                let entries = entries.map(|(name, value)| Some((key(name)?, part(value))));
                entries.collect::<Option<Vec<_>>>().map_or(Flow::Untold, Flow::Table)
            }
            Expr::IfExpr(choice) => {
                let others = choice.false_expr.iter().map(part);
                Flow::OneOf(std::iter::once(part(&choice.true_expr)).chain(others).collect())
            }
            Expr::BinOp(binary) if matches!(binary.op, BinOpKind::Add) => {
                Flow::EntriesOf(vec![part(&binary.left), part(&binary.right)])
            }
            Expr::Filter(filter) => {
                let Some(base) = filter.expr.as_ref().map(part) else { return Self::untold(source, range) };
                let first = match filter.args.first() {
                    Some(CallArg::Pos(first)) => Some(part(first)),
                    _ => None,
                };
                match (filter.name, first) {
                    ("default" | "d", Some(first)) => Flow::FirstOf(Box::new([base, first])),
                    ("overlaid", Some(over)) => Flow::EntriesOf(vec![over, base]),
                    (
                        "list" | "sort" | "unique" | "reverse" | "select" | "reject" | "selectattr"
                        | "rejectattr",
                        _,
                    ) => Flow::EntriesOf(vec![base]),
                    ("tojson" | "quote" | "safe" | "int" | "float" | "string" | "bool" | "indent", _) => {
                        Flow::Same(Box::new(base))
                    }
                    _ => Flow::MadeOf(Box::new(base)),
                }
            }
            _ => Flow::Untold,
        };
        Self { place: Place::new(source, range), flow }
    }

    pub fn untold(source: &Arc<Source>, range: std::ops::Range<usize>) -> Self {
        Self { place: Place::new(source, range), flow: Flow::Untold }
    }

    /// What it is in the end, whatever was done to it on the way.
    pub fn base(&self) -> &Flow {
        match &self.flow {
            Flow::Same(inner) | Flow::MadeOf(inner) => inner.base(),
            Flow::EntriesOf(parts) if parts.len() == 1 => parts[0].base(),
            Flow::FirstOf(parts) => parts[0].base(),
            Flow::OneOf(parts) if !parts.is_empty() => parts[0].base(),
            flow => flow,
        }
    }

    /// Names that it reads, each once; none if there are too many.
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.note_names(&mut names);
        names.sort_unstable();
        names.dedup();
        if names.len() > NAMES_MAX { Vec::new() } else { names }
    }

    fn note_names<'p>(&'p self, names: &mut Vec<&'p str>) {
        match &self.flow {
            Flow::Read(path) => {
                names.extend(path.first().map(String::as_str).filter(|name| !name.is_empty()))
            }
            Flow::Constant(_) | Flow::Untold => {}
            Flow::List(parts) | Flow::OneOf(parts) | Flow::EntriesOf(parts) => {
                parts.iter().for_each(|part| part.note_names(names));
            }
            Flow::FirstOf(parts) => parts.iter().for_each(|part| part.note_names(names)),
            Flow::Table(entries) => entries.iter().for_each(|(_, part)| part.note_names(names)),
            Flow::MadeOf(part) | Flow::Same(part) => part.note_names(names),
        }
    }
}

fn read_of(base: Piece, name: &str) -> Flow {
    match base.flow {
        Flow::Read(mut path) => {
            path.push(name.to_owned());
            Flow::Read(path)
        }
        _ => Flow::MadeOf(Box::new(base)),
    }
}

/// An assignment or an output, and the step that set each variable which it read; `None` for one that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    mark: usize,
    read: Vec<(String, Option<usize>)>,
}

/// The steps of one rendering, by number. Small numbers are those of marks, for steps that read nothing of interest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps {
    marks: usize,
    all: Vec<Step>,
    numbers: BTreeMap<Step, usize>,
}

impl Steps {
    /// The mark of a step.
    pub fn mark(&self, step: usize) -> usize {
        step.checked_sub(self.marks).and_then(|at| self.all.get(at)).map_or(step, |step| step.mark)
    }

    /// The step that set `name` for `step`; `Some(None)` if it cannot be followed, `None` if no template set it.
    fn read(&self, step: usize, name: &str) -> Option<Option<usize>> {
        let step = self.all.get(step.checked_sub(self.marks)?)?;
        step.read.iter().find(|(known, _)| known == name).map(|(_, set_by)| *set_by)
    }
}

/// Takes the notes while a template renders.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    steps: Mutex<Steps>,
}

impl Trail {
    /// Another rendering begins, of templates with so many marks.
    pub fn begin(&self, marks: usize) {
        *self.steps.lock().unwrap_or_else(PoisonError::into_inner) = Steps { marks, ..Steps::default() };
    }

    pub fn taken(&self) -> Steps {
        std::mem::take(&mut *self.steps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of a step that reads `names`.
    pub fn step(&self, state: &State<'_, '_>, mark: usize, names: Option<&Value>) -> usize {
        let names = names.and_then(|names| names.try_iter().ok()).into_iter().flatten();
        let read: Vec<(String, Option<usize>)> = names
            .filter_map(|name| {
                let name = name.as_str()?;
                let note = state.lookup(&format!("{FROM}{name}"))?;
                Some((name.to_owned(), usize::try_from(note).ok()))
            })
            .collect();
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let step = Step { mark, read };
        if let Some(number) = steps.numbers.get(&step) {
            return *number;
        }
        if step.read.is_empty() || steps.all.len() >= STEPS_MAX {
            return mark;
        }
        let number = steps.marks + steps.all.len();
        steps.all.push(step.clone());
        steps.numbers.insert(step, number);
        number
    }
}

/// Names of what a template is given besides what the strategy says of it.
const GIVEN: [&str; 6] = ["fleet", "env", "cluster", "region", "pools", "catalog"];
/// Fields of pools and classes that are there although nobody wrote them.
const MADE: [&str; 6] = ["name", "class", "requirements", "chooses_instances", "preset", "user_data"];

/// Who gave a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Giver<'a> {
    /// A line of the strategy.
    Strategy(&'a Node),
    /// A template, in this step.
    Template(&'a Piece, usize),
}

impl<'a> Giver<'a> {
    pub fn place(&self) -> &'a Place {
        match self {
            Self::Strategy(node) => &node.place,
            Self::Template(piece, _) => &piece.place,
        }
    }
}

/// Follows values of one rendering back.
pub(crate) struct Follow<'a> {
    pub marks: &'a [Mark],
    pub steps: &'a Steps,
    /// What the names of a template stand for in the strategy.
    roots: &'a [(&'static str, &'a Node)],
    looked: Cell<usize>,
}

impl<'a> Follow<'a> {
    pub fn new(marks: &'a [Mark], steps: &'a Steps, roots: &'a [(&'static str, &'a Node)]) -> Self {
        Self { marks, steps, roots, looked: Cell::new(0) }
    }

    /// Whether this goes too far: choices of choices could be followed for ever.
    fn is_spent(&self, depth: usize) -> bool {
        self.looked.set(self.looked.get() + 1);
        depth >= DEPTH_MAX || self.looked.get() > LOOKED_MAX
    }

    /// Who gave what a step put out; `value` is that, if it is known.
    pub fn giver(&self, step: usize, value: Option<&Node>) -> Option<Giver<'a>> {
        let piece = &self.marks.get(self.steps.mark(step))?.piece;
        Some(self.reduced(piece, step, value, 0))
    }

    fn reduced(&self, piece: &'a Piece, step: usize, value: Option<&Node>, depth: usize) -> Giver<'a> {
        let own = Giver::Template(piece, step);
        if self.is_spent(depth) {
            return own;
        }
        match &piece.flow {
            Flow::Read(path) => self.read(path, step, value, depth).unwrap_or(own),
            Flow::FirstOf(parts) => {
                let [first, second] = &**parts;
                if self.is_there(first, step, depth + 1) {
                    return self.reduced(first, step, value, depth + 1);
                }
                match value.is_none_or(|value| self.fits(second, step, value, depth + 1)) {
                    true => self.reduced(second, step, value, depth + 1),
                    false => own,
                }
            }
            Flow::OneOf(parts) => {
                let Some(value) = value else { return own };
                let fitting: Vec<&Piece> =
                    parts.iter().filter(|part| self.fits(part, step, value, depth + 1)).collect();
                match fitting.as_slice() {
                    [only] => self.reduced(only, step, Some(value), depth + 1),
                    [] => match self.reduced(&parts[0], step, Some(value), depth + 1) {
                        strategy @ Giver::Strategy(_) => strategy,
                        Giver::Template(..) => own,
                    },
                    _ => own,
                }
            }
            Flow::Same(inner) => self.reduced(inner, step, value, depth + 1),
            Flow::MadeOf(inner) => match self.reduced(inner, step, None, depth + 1) {
                // A table that something was made of says less than the expression that made it.
                Giver::Template(
                    Piece { flow: Flow::List(_) | Flow::Table(_) | Flow::EntriesOf(_), .. },
                    _,
                ) => own,
                giver => giver,
            },
            Flow::Constant(_) | Flow::List(_) | Flow::Table(_) | Flow::EntriesOf(_) | Flow::Untold => own,
        }
    }

    fn read(&self, path: &'a [String], step: usize, value: Option<&Node>, depth: usize) -> Option<Giver<'a>> {
        let (root, rest) = path.split_first()?;
        let Some(set_by) = self.steps.read(step, root) else {
            return self.find(path).map(Giver::Strategy);
        };
        let set_by = set_by?;
        let piece = &self.marks.get(self.steps.mark(set_by))?.piece;
        let whole = self.reduced(piece, set_by, value.filter(|_| rest.is_empty()), depth + 1);
        rest.iter().try_fold(whole, |giver, name| match name.as_str() {
            "*" => Some(giver),
            name => self.entry(giver, name, None, depth + 1),
        })
    }

    fn find(&self, path: &[String]) -> Option<&'a Node> {
        let (root, rest) = path.split_first()?;
        let mut node = self.roots.iter().find(|(name, _)| name == root)?.1;
        for name in rest {
            if name == "*" {
                return Some(node);
            }
            node = child(node, name)?;
        }
        Some(node)
    }

    /// Whether an expression has a value, as `default` asks.
    fn is_there(&self, piece: &'a Piece, step: usize, depth: usize) -> bool {
        if self.is_spent(depth) {
            return true;
        }
        match &piece.flow {
            Flow::Read(path) => {
                let Some((root, rest)) = path.split_first() else { return false };
                match self.steps.read(step, root) {
                    Some(_) if rest.is_empty() => true,
                    // Of what cannot be followed nothing better is known.
                    Some(set_by) => set_by.is_none() || self.read(path, step, None, depth).is_some(),
                    None => match self.roots.iter().find(|(name, _)| name == root) {
                        Some(_) => {
                            self.find(path).is_some()
                                || rest.first().is_some_and(|name| MADE.contains(&&**name))
                        }
                        None => GIVEN.contains(&root.as_str()),
                    },
                }
            }
            Flow::FirstOf(parts) => parts.iter().any(|part| self.is_there(part, step, depth + 1)),
            Flow::Same(inner) | Flow::MadeOf(inner) => self.is_there(inner, step, depth + 1),
            _ => true,
        }
    }

    /// Whether a value can come from an expression, as far as that is known.
    fn fits(&self, piece: &'a Piece, step: usize, value: &Node, depth: usize) -> bool {
        if self.is_spent(depth) {
            return true;
        }
        match &piece.flow {
            Flow::Constant(constant) => is_like_constant(constant, value),
            Flow::List(items) => value.as_list().is_some_and(|values| {
                values.len() == items.len()
                    && items.iter().zip(values).all(|(item, value)| self.fits(item, step, value, depth + 1))
            }),
            Flow::Table(entries) => value.as_map().is_some_and(|map| {
                let has = |(key, entry): &'a (String, Piece)| {
                    map.get(key).is_some_and(|value| self.fits(entry, step, value, depth + 1))
                };
                map.iter().count() == entries.len() && entries.iter().all(has)
            }),
            Flow::OneOf(parts) => parts.iter().any(|part| self.fits(part, step, value, depth + 1)),
            Flow::Same(inner) => self.fits(inner, step, value, depth + 1),
            Flow::Read(_) | Flow::FirstOf(_) => match self.reduced(piece, step, Some(value), depth + 1) {
                Giver::Strategy(node) => is_like(node, value),
                Giver::Template(other, _) if std::ptr::eq(other, piece) => true,
                Giver::Template(other, step) => self.fits(other, step, value, depth + 1),
            },
            Flow::EntriesOf(_) | Flow::MadeOf(_) | Flow::Untold => true,
        }
    }

    /// Who gave an entry of a table.
    pub fn entry_of(&self, giver: Giver<'a>, key: &str, value: &Node) -> Option<Giver<'a>> {
        self.entry(giver, key, Some(value), 0)
    }

    fn entry(&self, giver: Giver<'a>, key: &str, value: Option<&Node>, depth: usize) -> Option<Giver<'a>> {
        match giver {
            Giver::Strategy(node) => child(node, key).map(Giver::Strategy),
            Giver::Template(Piece { flow: Flow::Table(entries), .. }, step) => {
                let (_, piece) = entries.iter().find(|(name, _)| name == key)?;
                Some(self.reduced(piece, step, value, depth + 1))
            }
            Giver::Template(..) => None,
        }
    }

    /// Who gave the item at `index` of a list.
    pub fn item_of(&self, giver: Giver<'a>, index: usize, value: &Node) -> Option<Giver<'a>> {
        match giver {
            Giver::Strategy(node) => node.as_list()?.get(index).map(Giver::Strategy),
            Giver::Template(Piece { flow: Flow::List(items), .. }, step) => {
                items.get(index).map(|item| self.reduced(item, step, Some(value), 0))
            }
            Giver::Template(Piece { flow: Flow::EntriesOf(parts), .. }, step) => {
                parts.iter().find_map(|part| self.among(part, step, value, 0))
            }
            Giver::Template(..) => None,
        }
    }

    /// The entry of a list that a value can be.
    fn among(&self, list: &'a Piece, step: usize, value: &Node, depth: usize) -> Option<Giver<'a>> {
        if self.is_spent(depth) {
            return None;
        }
        match self.reduced(list, step, None, depth + 1) {
            Giver::Strategy(node) => {
                node.as_list()?.iter().find(|item| is_like(item, value)).map(Giver::Strategy)
            }
            Giver::Template(Piece { flow: Flow::List(items), .. }, step) => {
                let item = items.iter().find(|item| self.fits(item, step, value, depth + 1))?;
                Some(self.reduced(item, step, Some(value), depth + 1))
            }
            Giver::Template(Piece { flow: Flow::EntriesOf(parts), .. }, step) => {
                parts.iter().find_map(|part| self.among(part, step, value, depth + 1))
            }
            Giver::Template(..) => None,
        }
    }
}

/// Templates write `startup_taints` for what the strategy calls `startup-taints`; those of older repositories know some
/// fields by their old names.
fn child<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let hyphened = name.replace('_', "-");
    let renamed = || RENAMED.iter().find(|(old, _)| *old == hyphened).and_then(|(_, new)| node.get(new));
    node.get(name).or_else(|| node.get(&hyphened)).or_else(renamed)
}

/// The text of a plain value, numbers and their texts being alike.
fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Tree::Text(text, _) | Tree::Float(text) => Some(text.to_string()),
        Tree::Int(number) => Some(number.to_string()),
        Tree::Bool(flag) => Some(flag.to_string()),
        Tree::Null | Tree::List(_) | Tree::Map(_) => None,
    }
}

fn is_like_constant(constant: &serde_json::Value, value: &Node) -> bool {
    match constant {
        serde_json::Value::String(text) => scalar(value).is_some_and(|value| value == *text),
        serde_json::Value::Null => value.value == Tree::Null,
        other => {
            let written = other.to_string();
            scalar(value).is_some_and(|value| value == written)
        }
    }
}

/// Whether a value of the strategy is in the object as it was written, notation aside.
fn is_like(node: &Node, value: &Node) -> bool {
    match (&node.value, &value.value) {
        (Tree::Map(wanted), Tree::Map(is)) => {
            wanted.iter().all(|(key, entry)| is.get(key).is_some_and(|value| is_like(&entry.node, value)))
        }
        (Tree::List(wanted), Tree::List(is)) => {
            wanted.len() == is.len() && wanted.iter().zip(is).all(|(node, value)| is_like(node, value))
        }
        _ => scalar(node).is_some_and(|node| scalar(value).is_some_and(|value| node == value)),
    }
}
