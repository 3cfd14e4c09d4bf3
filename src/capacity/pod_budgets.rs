//! PodDisruptionBudgets, found by the pods that they are about.
//!
//! A namespace may have as many budgets as Deployments. Most select pods by the value of a label, and are looked for under one such value,
//! so that a pod asks only those that may be about it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use crate::model::hash::FastMap;
use crate::model::label::Labels;
use crate::model::name::{Namespace, ObjectKey};
use crate::model::requirement::Operator;
use crate::model::symbol::Symbol;
use crate::model::workload::PodDisruptionBudget;

/// Reads like the map of all of them by name.
#[derive(Clone, Debug, Default)]
pub struct PodBudgets {
    by_key: BTreeMap<ObjectKey, Arc<PodDisruptionBudget>>,
    /// Those that select only pods with this value of this label.
    by_label: FastMap<Label, BTreeSet<ObjectKey>>,
    /// Those that may select pods with any labels.
    others: FastMap<Namespace, BTreeSet<ObjectKey>>,
}

/// A label of the pods of a namespace.
type Label = (Namespace, Symbol, Symbol);

impl Deref for PodBudgets {
    type Target = BTreeMap<ObjectKey, Arc<PodDisruptionBudget>>;

    fn deref(&self) -> &Self::Target {
        &self.by_key
    }
}

impl PodBudgets {
    pub fn insert(&mut self, key: ObjectKey, budget: Arc<PodDisruptionBudget>) {
        self.remove(&key);
        match labels_of(&budget) {
            Some(labels) => labels.for_each(|label| self.by_label.entry(label).or_default().extend([key])),
            None => self.others.entry(key.namespace).or_default().extend([key]),
        }
        self.by_key.insert(key, budget);
    }

    pub fn remove(&mut self, key: &ObjectKey) {
        let Some(budget) = self.by_key.remove(key) else { return };
        match labels_of(&budget) {
            Some(labels) => labels.for_each(|label| forget(&mut self.by_label, label, key)),
            None => forget(&mut self.others, key.namespace, key),
        }
    }

    /// Those that select a pod of `namespace` with these `labels`, by name.
    pub fn of(&self, namespace: Namespace, labels: &Labels) -> Vec<&Arc<PodDisruptionBudget>> {
        if self.by_key.is_empty() {
            return Vec::new();
        }
        let named = labels.iter().filter_map(|(key, value)| {
            let label = (namespace, *key, *value);
            self.by_label.get(&label)
        });
        let asked = named.chain(self.others.get(&namespace)).flatten().filter_map(|key| self.by_key.get(key));
        let selects = |budget: &&Arc<PodDisruptionBudget>| {
            budget.selector.as_ref().is_some_and(|selector| selector.selects(labels))
        };
        let mut found: Vec<_> = asked.filter(selects).collect();
        found.sort_unstable_by_key(|budget| budget.key);
        found
    }
}

/// Labels of which each pod that `budget` selects has one; `None` if there are none of which that is known.
fn labels_of(budget: &PodDisruptionBudget) -> Option<impl Iterator<Item = Label>> {
    let terms = &budget.selector.as_ref()?.terms;
    let term =
        terms.iter().filter(|term| term.operator == Operator::In).min_by_key(|term| term.values.len())?;
    let namespace = budget.key.namespace;
    Some(term.values.iter().map(move |value| (namespace, term.key, *value)))
}

fn forget<K: Eq + std::hash::Hash>(lists: &mut FastMap<K, BTreeSet<ObjectKey>>, at: K, key: &ObjectKey) {
    if let Some(list) = lists.get_mut(&at) {
        list.remove(key);
        if list.is_empty() {
            lists.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod::{Selector, SelectorTerm};

    fn budget(name: &str, terms: &[(&str, Operator, &[&str])]) -> Arc<PodDisruptionBudget> {
        let term = |(key, operator, values): &(&str, Operator, &[&str])| SelectorTerm {
            key: Symbol::new(key),
            operator: *operator,
            values: values.iter().map(|value| Symbol::new(value)).collect(),
        };
        Arc::new(PodDisruptionBudget {
            key: ObjectKey::new("shop", name),
            selector: Some(Selector { terms: terms.iter().map(term).collect() }),
            min_available: None,
            max_unavailable: None,
            disruptions_allowed: None,
            always_allows_unhealthy: false,
        })
    }

    fn names(budgets: &PodBudgets, namespace: &str, labels: &[(&str, &str)]) -> Vec<&'static str> {
        let labels: Labels =
            labels.iter().map(|(key, value)| (Symbol::new(key), Symbol::new(value))).collect();
        let found = budgets.of(Namespace::new(namespace), &labels).into_iter();
        found.map(|budget| budget.key.name.as_str()).collect()
    }

    #[test]
    fn a_pod_finds_the_budgets_that_select_it_and_no_others() {
        let mut budgets = PodBudgets::default();
        let all = [
            budget("z-web", &[("part-of", Operator::In, &["shop"]), ("app", Operator::In, &["web"])]),
            budget("either", &[("app", Operator::In, &["web", "api"])]),
            budget("has-app", &[("app", Operator::Exists, &[])]),
            budget("not-web", &[("app", Operator::NotIn, &["web"])]),
            budget("everything", &[]),
            Arc::new(PodDisruptionBudget { selector: None, ..(*budget("nothing", &[])).clone() }),
        ];
        all.iter().for_each(|budget| budgets.insert(budget.key, budget.clone()));
        let web = [("app", "web"), ("part-of", "shop")];
        assert_eq!(names(&budgets, "shop", &web), ["either", "everything", "has-app", "z-web"]);
        assert_eq!(names(&budgets, "shop", &[("app", "web")]), ["either", "everything", "has-app"]);
        assert_eq!(
            names(&budgets, "shop", &[("app", "api")]),
            ["either", "everything", "has-app", "not-web"]
        );
        assert_eq!(names(&budgets, "shop", &[]), ["everything", "not-web"]);
        assert_eq!(names(&budgets, "other", &web), [""; 0]);

        // What a budget selects changes, and it goes.
        let changed = budget("either", &[("app", Operator::In, &["api"])]);
        budgets.insert(changed.key, changed);
        assert_eq!(names(&budgets, "shop", &[("app", "web")]), ["everything", "has-app"]);
        assert_eq!(budgets.len(), 6);
        all.iter().for_each(|budget| budgets.remove(&budget.key));
        assert!(budgets.is_empty() && budgets.by_label.is_empty() && budgets.others.is_empty());
    }
}
