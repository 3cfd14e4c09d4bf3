//! The requirements algebra: sets of label values, and what it means for two lists of them to agree.
//!
//! One requirement is a set of strings, either listed or everything but a list, possibly between two integers.
//! NodePools, pods, instance types, offerings, nodes, volumes and topology all speak it (scheduling.md 3).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::label;
use super::symbol::Symbol;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    Gte,
    Lte,
}

impl Operator {
    pub const ALL: [Self; 8] =
        [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist, Self::Gt, Self::Lt, Self::Gte, Self::Lte];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operator| operator.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }

    /// Whether it compares integers, and so takes exactly one.
    pub fn is_comparison(self) -> bool {
        matches!(self, Self::Gt | Self::Lt | Self::Gte | Self::Lte)
    }
}

/// Words in order, each once. Copies share what is long and hold what is short, so that copying costs nothing.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<Symbol>", into = "Vec<Symbol>")]
enum Words {
    None,
    One(Symbol),
    Many(Arc<[Symbol]>),
}

impl Words {
    fn as_slice(&self) -> &[Symbol] {
        match self {
            Self::None => &[],
            Self::One(word) => std::slice::from_ref(word),
            Self::Many(words) => words,
        }
    }

    /// Of words that are in order.
    fn of_sorted(words: Vec<Symbol>) -> Self {
        match words[..] {
            [] => Self::None,
            [word] => Self::One(word),
            _ => Self::Many(words.into()),
        }
    }

    /// Comparing addresses is quicker than comparing texts, while the list is short.
    fn contains(&self, word: Symbol) -> bool {
        const SHORT: usize = 32;
        let words = self.as_slice();
        if words.len() <= SHORT { words.contains(&word) } else { words.binary_search(&word).is_ok() }
    }

    /// Those for which `keeps` holds.
    fn retained(&self, keeps: impl Fn(Symbol) -> bool) -> Self {
        let words = self.as_slice();
        if words.iter().all(|word| keeps(*word)) {
            return self.clone();
        }
        Self::of_sorted(words.iter().copied().filter(|word| keeps(*word)).collect())
    }

    fn union(&self, other: &Self) -> Self {
        if other.as_slice().iter().all(|word| self.contains(*word)) {
            return self.clone();
        }
        self.as_slice().iter().chain(other.as_slice()).copied().collect()
    }
}

impl From<Vec<Symbol>> for Words {
    fn from(words: Vec<Symbol>) -> Self {
        words.into_iter().collect()
    }
}

impl From<Words> for Vec<Symbol> {
    fn from(words: Words) -> Self {
        words.as_slice().to_vec()
    }
}

impl FromIterator<Symbol> for Words {
    fn from_iter<T: IntoIterator<Item = Symbol>>(words: T) -> Self {
        let mut words: Vec<Symbol> = words.into_iter().collect();
        words.sort_unstable();
        words.dedup();
        Self::of_sorted(words)
    }
}

impl PartialEq for Words {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Words {}

impl PartialOrd for Words {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Words {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl Hash for Words {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

/// A set of label values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Requirement {
    /// `false`: exactly `values`. `true`: every string but `values`, within the bounds if there are any.
    complement: bool,
    values: Words,
    /// Inclusive.
    lower: Option<i64>,
    /// Inclusive.
    upper: Option<i64>,
    /// An absent label does not satisfy it: `NotIn` alone is satisfied, with anything beside it that asks for a value it is not.
    demands_presence: bool,
    /// How many distinct values the instance types of a node must still offer.
    pub min_values: Option<u32>,
}

impl Requirement {
    /// The set that `operator` and `values` stand for. A comparison reads the first value; one that is no
    /// integer leaves nothing (the API refuses it before).
    pub fn new(operator: Operator, values: impl IntoIterator<Item = Symbol>) -> Self {
        let values: Words = values.into_iter().collect();
        let bound = values.as_slice().first().and_then(|value| value.parse::<i64>().ok());
        let compared = |lower: Option<Option<i64>>, upper: Option<Option<i64>>| match (lower, upper) {
            (Some(None), _) | (_, Some(None)) => Self::nothing(),
            (lower, upper) => Self { lower: lower.flatten(), upper: upper.flatten(), ..Self::anything() },
        };
        match operator {
            Operator::In => Self { complement: false, values, ..Self::anything() },
            Operator::NotIn => {
                Self { demands_presence: values.as_slice().is_empty(), values, ..Self::anything() }
            }
            Operator::Exists => Self::anything(),
            Operator::DoesNotExist => Self::nothing(),
            Operator::Gt => compared(Some(bound.and_then(|bound| bound.checked_add(1))), None),
            Operator::Lt => compared(None, Some(bound.and_then(|bound| bound.checked_sub(1)))),
            Operator::Gte => compared(Some(bound), None),
            Operator::Lte => compared(None, Some(bound)),
        }
    }

    pub fn one(value: Symbol) -> Self {
        Self { complement: false, values: Words::One(value), ..Self::anything() }
    }

    /// Any value, as long as there is one (`Exists`).
    pub fn anything() -> Self {
        Self {
            complement: true,
            values: Words::None,
            lower: None,
            upper: None,
            demands_presence: true,
            min_values: None,
        }
    }

    /// No value at all (`DoesNotExist`).
    pub fn nothing() -> Self {
        Self { complement: false, demands_presence: false, ..Self::anything() }
    }

    /// A value, and yet none: conditions that contradict each other.
    fn impossible() -> Self {
        Self { complement: false, ..Self::anything() }
    }

    pub fn with_min_values(mut self, min_values: Option<u32>) -> Self {
        self.min_values = min_values;
        self
    }

    pub fn has(&self, value: Symbol) -> bool {
        self.values.contains(value) != self.complement && self.is_within_bounds(value)
    }

    fn is_within_bounds(&self, value: Symbol) -> bool {
        if self.lower.is_none() && self.upper.is_none() {
            return true;
        }
        value.parse::<i64>().is_ok_and(|number| {
            self.lower.is_none_or(|lower| number >= lower) && self.upper.is_none_or(|upper| number <= upper)
        })
    }

    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.as_slice().is_empty()) {
            (false, false) => Operator::In,
            // What contradicts itself has no operator of its own.
            (false, true) => Operator::DoesNotExist,
            (true, false) => Operator::NotIn,
            (true, true) => Operator::Exists,
        }
    }

    /// The listed values in order, if the set is a list.
    pub fn listed(&self) -> Option<&[Symbol]> {
        (!self.complement).then(|| self.values.as_slice())
    }

    /// The excluded values in order, if the set is everything else.
    pub fn excluded(&self) -> Option<&[Symbol]> {
        self.complement.then(|| self.values.as_slice())
    }

    /// The value, if only one is left.
    pub fn single(&self) -> Option<Symbol> {
        self.listed().filter(|values| values.len() == 1).and_then(|values| values.first().copied())
    }

    /// A value that satisfies it, if one comes to mind: the first that is listed, or the smallest number.
    pub fn some_value(&self) -> Option<Symbol> {
        if let Some(values) = self.listed() {
            return values.first().copied();
        }
        let excluded = self.excluded().map_or(0, <[Symbol]>::len);
        // No label is a negative number: those begin with what a label may not begin with.
        let start = self.lower().unwrap_or(0).max(0);
        (start..=self.upper().unwrap_or(i64::MAX))
            .take(excluded + 1)
            .map(|number| Symbol::new(&number.to_string()))
            .find(|value| self.has(*value))
    }

    pub fn lower(&self) -> Option<i64> {
        self.lower
    }

    pub fn upper(&self) -> Option<i64> {
        self.upper
    }

    pub fn is_empty(&self) -> bool {
        !self.complement && self.values.as_slice().is_empty()
    }

    /// Whether an absent label satisfies it: `DoesNotExist`, and `NotIn` with nothing beside it that asks for a value.
    pub fn accepts_absence(&self) -> bool {
        !self.demands_presence
    }

    /// Whether it is what conditions leave that contradict each other: nothing satisfies it, not even an absent label.
    pub fn is_contradictory(&self) -> bool {
        self.is_empty() && self.demands_presence
    }

    /// That something satisfies it, as what is asked of the label `key`.
    pub fn satisfiable(&self, key: Symbol) -> Result<(), Conflict> {
        if self.is_contradictory() { Err(Conflict::Contradiction { key }) } else { Ok(()) }
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let lower = self.lower.max(other.lower);
        let upper = match (self.upper, other.upper) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let min_values = self.min_values.max(other.min_values);
        if lower.zip(upper).is_some_and(|(lower, upper)| lower > upper) {
            return Self::impossible().with_min_values(min_values);
        }
        let (complement, mut values) = match (self.complement, other.complement) {
            (true, true) => (true, self.values.union(&other.values)),
            (true, false) => (false, other.values.retained(|value| !self.values.contains(value))),
            (false, true) => (false, self.values.retained(|value| !other.values.contains(value))),
            (false, false) => (false, self.values.retained(|value| other.values.contains(value))),
        };
        if lower.is_some() || upper.is_some() {
            let bounds = Self { lower, upper, ..Self::anything() };
            values = values.retained(|value| bounds.is_within_bounds(value));
        }
        let demands_presence = self.demands_presence || other.demands_presence;
        if complement && let Some((lower, upper)) = lower.zip(upper) {
            // Excluding every number between the bounds leaves none.
            let is_short =
                upper.checked_sub(lower).is_some_and(|width| (width as usize) < values.as_slice().len());
            if is_short && (lower..=upper).all(|number| values.contains(Symbol::new(&number.to_string()))) {
                return Self::impossible().with_min_values(min_values);
            }
        }
        if complement {
            Self { complement, values, lower, upper, demands_presence, min_values }
        } else {
            Self { complement, values, lower: None, upper: None, demands_presence, min_values }
        }
    }

    /// Whether some value is in both, without building the intersection.
    pub fn overlaps(&self, other: &Self) -> bool {
        let lower = self.lower.max(other.lower);
        let upper = match (self.upper, other.upper) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if lower.zip(upper).is_some_and(|(lower, upper)| lower > upper) {
            return false;
        }
        match (self.complement, other.complement) {
            (true, true) => true,
            (false, _) => self.values.as_slice().iter().any(|value| self.has(*value) && other.has(*value)),
            (true, false) => {
                other.values.as_slice().iter().any(|value| self.has(*value) && other.has(*value))
            }
        }
    }

    /// Whether a label with this key can satisfy both: an overlap, or both are satisfied by the label being absent.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.overlaps(other) || (self.accepts_absence() && other.accepts_absence())
    }
}

impl fmt::Display for Requirement {
    /// `In [a, b and 7 others]`, `Exists >=4 <=16`, `NotIn [x] minValues 3`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        match self.is_contradictory() {
            true => out.write_str("In []")?,
            false => out.write_str(self.operator().as_str())?,
        }
        let values = self.values.as_slice();
        if !values.is_empty() {
            let shown: Vec<&str> = values.iter().take(SHOWN).map(|value| value.as_str()).collect();
            write!(out, " [{}", shown.join(", "))?;
            if values.len() > SHOWN {
                write!(out, " and {} others", values.len() - SHOWN)?;
            }
            out.write_str("]")?;
        }
        if let Some(lower) = self.lower {
            write!(out, " >={lower}")?;
        }
        if let Some(upper) = self.upper {
            write!(out, " <={upper}")?;
        }
        if let Some(count) = self.min_values {
            write!(out, " minValues {count}")?;
        }
        Ok(())
    }
}

/// One requirement per label key; a key that is not there means "anything". They are few, in the order of their keys, and
/// found by comparing addresses.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Requirements(Vec<(Symbol, Requirement)>);

/// Why two lists of requirements do not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The label is asked for, but nothing on the other side defines it.
    Undefined { key: Symbol, asked: Box<Requirement> },
    /// What is asked of the label contradicts itself.
    Contradiction { key: Symbol },
    /// Both sides speak of the label and no value satisfies both.
    Disjoint { key: Symbol, ours: Box<Requirement>, theirs: Box<Requirement> },
}

impl fmt::Display for Conflict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined { key, asked } => {
                write!(out, "label {key} {asked} is asked for, but nothing defines it")
            }
            Self::Contradiction { key } => {
                write!(out, "what is asked of label {key} contradicts itself: no value meets all of it")
            }
            Self::Disjoint { key, ours, theirs } => {
                write!(out, "label {key} {theirs} is asked for, but it is {ours}")
            }
        }
    }
}

/// Which keys may be asked for although the other side does not define them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undefined {
    /// Well-known labels: a launch will settle them.
    WellKnown,
    /// None: the node exists, what it lacks it lacks.
    Nothing,
}

impl Requirements {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn of_labels(labels: &label::Labels) -> Self {
        labels.iter().map(|(key, value)| (*key, Requirement::one(*value))).collect()
    }

    /// Narrows `key` to what is also in `requirement`. Aliases count as the key that they stand for.
    pub fn add(&mut self, key: Symbol, requirement: Requirement) {
        let key = label::canonical(key);
        match self.find(key) {
            Some(at) => self.0[at].1 = self.0[at].1.intersection(&requirement),
            None => self.insert(key, requirement),
        }
    }

    fn find(&self, key: Symbol) -> Option<usize> {
        self.0.iter().position(|(present, _)| *present == key)
    }

    /// Of a key that is not there.
    fn insert(&mut self, key: Symbol, requirement: Requirement) {
        let at = match self.0.last() {
            Some((last, _)) if *last < key => self.0.len(),
            _ => self.0.partition_point(|(present, _)| *present < key),
        };
        self.0.insert(at, (key, requirement));
    }

    pub fn add_all(&mut self, others: &Self) {
        for (key, requirement) in &others.0 {
            self.add(*key, requirement.clone());
        }
    }

    /// Puts `requirement` in the place of whatever was there.
    pub fn replace(&mut self, key: Symbol, requirement: Requirement) {
        let key = label::canonical(key);
        match self.find(key) {
            Some(at) => self.0[at].1 = requirement,
            None => self.insert(key, requirement),
        }
    }

    /// Where conditions contradict each other, the label is absent: so Karpenter reads them of pools and claims.
    pub fn forgive(&mut self) {
        for (_, requirement) in &mut self.0 {
            if requirement.is_contradictory() {
                *requirement = Requirement::nothing().with_min_values(requirement.min_values);
            }
        }
    }

    pub fn remove(&mut self, key: Symbol) -> Option<Requirement> {
        self.find(key).map(|at| self.0.remove(at).1)
    }

    pub fn get(&self, key: Symbol) -> Option<&Requirement> {
        self.0.iter().find(|(present, _)| *present == key).map(|(_, requirement)| requirement)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Symbol, &Requirement)> {
        self.0.iter().map(|(key, requirement)| (*key, requirement))
    }

    /// The same without room for more: for those that are kept by the thousand.
    pub fn fitted(mut self) -> Self {
        self.0.shrink_to_fit();
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the keys that both sides name agree; keys on one side only are ignored.
    pub fn intersects(&self, other: &Self) -> Result<(), Conflict> {
        for (key, theirs) in &other.0 {
            if let Some(ours) = self.get(*key).filter(|ours| !ours.agrees_with(theirs)) {
                return Err(Conflict::Disjoint {
                    key: *key,
                    ours: Box::new(ours.clone()),
                    theirs: Box::new(theirs.clone()),
                });
            }
        }
        Ok(())
    }

    /// Whether `incoming` can be met here: like [`intersects`](Self::intersects), and what it asks for must be defined
    /// here, unless an absent label satisfies it or `undefined` lets the key be open.
    pub fn compatible(&self, incoming: &Self, undefined: Undefined) -> Result<(), Conflict> {
        for (key, asked) in &incoming.0 {
            asked.satisfiable(*key)?;
            let may_be_open = undefined == Undefined::WellKnown && label::is_well_known(*key);
            if self.get(*key).is_none() && !may_be_open && !asked.accepts_absence() {
                return Err(Conflict::Undefined { key: *key, asked: Box::new(asked.clone()) });
            }
        }
        self.intersects(incoming)
    }
}

impl FromIterator<(Symbol, Requirement)> for Requirements {
    fn from_iter<T: IntoIterator<Item = (Symbol, Requirement)>>(entries: T) -> Self {
        let mut requirements = Self::default();
        for (key, requirement) in entries {
            requirements.add(key, requirement);
        }
        requirements
    }
}

impl fmt::Display for Requirements {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().filter(|(key, _)| !label::is_restricted(*key));
        for (index, (key, requirement)) in shown.enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(out, "{comma}{key} {requirement}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operator::*;

    fn set(operator: Operator, values: &[&str]) -> Requirement {
        Requirement::new(operator, values.iter().map(|value| Symbol::new(value)))
    }

    fn list(entries: &[(&str, Requirement)]) -> Requirements {
        entries.iter().map(|(key, requirement)| (Symbol::new(key), requirement.clone())).collect()
    }

    #[test]
    fn membership_follows_the_operator() {
        let has = |requirement: Requirement, value: &str| requirement.has(Symbol::new(value));
        assert!(has(set(In, &["a"]), "a") && !has(set(In, &["a"]), "b"));
        assert!(has(set(NotIn, &["a"]), "b") && !has(set(NotIn, &["a"]), "a"));
        assert!(has(set(Exists, &[]), "x") && !has(set(DoesNotExist, &[]), "x"));
        assert!(has(set(Gt, &["4"]), "5") && !has(set(Gt, &["4"]), "4") && !has(set(Gt, &["4"]), "many"));
        assert!(has(set(Lte, &["4"]), "4") && !has(set(Lt, &["4"]), "4") && has(set(Gte, &["4"]), "4"));
    }

    /// Each part has to hold, and `NotIn` is not all that is asked.
    #[test]
    fn sch_436_what_asks_for_a_value_beside_not_in_is_not_satisfied_by_an_absent_label() {
        let (tier, nothing) = (Symbol::new("tier"), Requirements::new());
        let meets = |node: &Requirements, parts: [Requirement; 2]| {
            let pod: Requirements = parts.into_iter().map(|part| (tier, part)).collect();
            node.compatible(&pod, Undefined::Nothing).is_ok()
        };
        let asks = [set(Exists, &[]), set(Gt, &["3"]), set(Lte, &["9"]), set(Gte, &["0"])];
        for asked in asks {
            for parts in [[set(NotIn, &["7"]), asked.clone()], [asked, set(NotIn, &["7"])]] {
                assert!(!meets(&nothing, parts.clone()), "{parts:?}");
                assert!(meets(&list(&[("tier", set(In, &["5"]))]), parts.clone()), "{parts:?}");
                assert!(!meets(&list(&[("tier", set(In, &["7"]))]), parts.clone()), "{parts:?}");
            }
        }
        assert!(meets(&nothing, [set(NotIn, &["7"]), set(NotIn, &["8"])]));
    }

    /// What is said of one label, if anything.
    type Said = Option<(Operator, &'static [&'static str])>;

    /// What a node's side (rows) and a pod's side (columns) may say; `U` says nothing.
    const SAID: [(&str, Said); 15] = [
        ("U", None),
        ("E", Some((Exists, &[]))),
        ("D", Some((DoesNotExist, &[]))),
        ("A", Some((In, &["A"]))),
        ("B", Some((In, &["B"]))),
        ("AB", Some((In, &["A", "B"]))),
        ("!A", Some((NotIn, &["A"]))),
        ("1", Some((In, &["1"]))),
        ("9", Some((In, &["9"]))),
        ("19", Some((In, &["1", "9"]))),
        ("!12", Some((NotIn, &["1", "2"]))),
        (">1", Some((Gt, &["1"]))),
        (">9", Some((Gt, &["9"]))),
        ("<1", Some((Lt, &["1"]))),
        ("<9", Some((Lt, &["9"]))),
    ];
    const COMPATIBLE: [&str; 15] = [
        "+++++++++++++++",
        "++-++++++++++++",
        "+-+---+---+----",
        "++-+-+----+----",
        "++--+++---+----",
        "++-++++---+----",
        "+++-+++++++++++",
        "++----++-+----+",
        "++----+-++++---",
        "++----++++++--+",
        "+++++++-+++++++",
        "++----+-+++++-+",
        "++----+---+++--",
        "++----+---+--++",
        "++----++-+++-++",
    ];

    fn expect_compatible(undefined: Undefined, silent: &str) {
        let key = "kubernetes.io/arch";
        let said = |what: Said| match what {
            Some((operator, values)) => list(&[(key, set(operator, values))]),
            None => Requirements::new(),
        };
        for ((row, node), expected) in SAID.into_iter().zip(COMPATIBLE) {
            let expected = if row == "U" { silent } else { expected };
            for ((column, pod), expected) in SAID.into_iter().zip(expected.chars()) {
                let is_compatible = said(node).compatible(&said(pod), undefined).is_ok();
                assert_eq!(is_compatible, expected == '+', "{row} asked for {column}");
            }
        }
    }

    #[test]
    fn sch_435_a_label_that_may_still_be_set_agrees_as_the_table_says() {
        expect_compatible(Undefined::WellKnown, COMPATIBLE[0]);
    }

    #[test]
    fn sch_436_a_label_that_is_not_there_satisfies_only_its_absence() {
        expect_compatible(Undefined::Nothing, "+-+---+---+----");
    }

    #[test]
    fn the_largest_integer_has_nothing_above_it() {
        assert!(set(Gt, &[&i64::MAX.to_string()]).is_empty());
    }

    #[test]
    fn crossing_bounds_leave_nothing() {
        assert!(set(Gt, &["8"]).intersection(&set(Lt, &["8"])).is_empty());
        let between = set(Gt, &["2"]).intersection(&set(Lt, &["9"]));
        assert_eq!(between.operator(), Exists);
        assert_eq!(between.intersection(&set(In, &["1", "4", "x"])), set(In, &["4"]));
    }

    #[test]
    fn overlap_agrees_with_the_intersection() {
        let some = [
            set(In, &["1", "a"]),
            set(In, &["9"]),
            set(NotIn, &["1"]),
            set(Exists, &[]),
            set(DoesNotExist, &[]),
            set(Gt, &["3"]),
            set(Lt, &["3"]),
            set(NotIn, &["a", "9"]).intersection(&set(Gte, &["2"])),
        ];
        for a in &some {
            for b in &some {
                assert_eq!(a.overlaps(b), !a.intersection(b).is_empty(), "{a} and {b}");
                assert_eq!(a.intersection(b), b.intersection(a), "{a} and {b}");
            }
        }
    }

    #[test]
    fn an_undefined_custom_label_cannot_be_asked_for() {
        let pool = list(&[("team", set(Exists, &[]))]);
        assert!(pool.compatible(&list(&[("team", set(In, &["red"]))]), Undefined::WellKnown).is_ok());
        assert!(pool.compatible(&list(&[("tier", set(In, &["red"]))]), Undefined::WellKnown).is_err());
        assert!(pool.compatible(&list(&[("tier", set(NotIn, &["red"]))]), Undefined::WellKnown).is_ok());
        let zone = list(&[("topology.kubernetes.io/zone", set(In, &["us-west-2a"]))]);
        assert!(pool.compatible(&zone, Undefined::WellKnown).is_ok());
        assert!(pool.compatible(&zone, Undefined::Nothing).is_err());
    }

    #[test]
    fn absence_satisfies_both_sides() {
        let none = list(&[("gpu", set(DoesNotExist, &[]))]);
        assert!(none.compatible(&list(&[("gpu", set(NotIn, &["a10"]))]), Undefined::Nothing).is_ok());
        assert!(none.compatible(&list(&[("gpu", set(In, &["a10"]))]), Undefined::Nothing).is_err());
    }

    #[test]
    fn an_alias_is_the_key_it_stands_for() {
        let old = list(&[("beta.kubernetes.io/arch", set(In, &["arm64"]))]);
        assert_eq!(old, list(&[("kubernetes.io/arch", set(In, &["arm64"]))]));
    }

    #[test]
    fn the_larger_minimum_wins_and_long_lists_are_cut() {
        let both = set(Exists, &[])
            .with_min_values(Some(2))
            .intersection(&set(Exists, &[]).with_min_values(Some(5)));
        assert_eq!(both.to_string(), "Exists minValues 5");
        assert_eq!(set(In, &["a", "b", "c", "d", "e", "f"]).to_string(), "In [a, b, c, d, e and 1 others]");
    }
}
