//! One rule about other pods, and the count of pods per domain that it goes by.
//!
//! Pods with an equal rule share one group. Spread and affinity count a pod only where it certainly is; anti-affinity
//! counts it wherever it may still end up.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::explain::TopologyRule;
use super::super::marks::Marks;
use super::Asked;
use super::keys::{DomainId, KeyId, Reach, Table};
use crate::model::label::Labels;
use crate::model::name::Namespace;
use crate::model::pod::Selector;
use crate::model::requirement::{Requirements, Undefined};
use crate::model::symbol::Symbol;
use crate::model::taint::{Taint, Toleration, first_untolerated};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in super::super) enum Kind {
    Spread {
        max_skew: i64,
        min_domains: Option<u32>,
    },
    Affinity,
    AntiAffinity,
    /// Anti-affinity seen from the other side: counts the pods that have the term and keeps away those it selects.
    Shunned,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in super::super) enum Namespaces {
    All,
    Listed(BTreeSet<Namespace>),
}

impl Namespaces {
    pub fn contains(&self, namespace: Namespace) -> bool {
        match self {
            Self::All => true,
            Self::Listed(listed) => listed.iter().any(|known| *known == namespace),
        }
    }
}

/// Which nodes a spread rule looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in super::super) struct NodeFilter {
    /// One must hold; empty: every node.
    pub alternatives: Vec<Requirements>,
    /// `Some`: these must tolerate the node's taints.
    pub tolerations: Option<Vec<Toleration>>,
}

impl NodeFilter {
    /// Whether it looks at every node.
    pub fn is_open(&self) -> bool {
        self.alternatives.is_empty() && self.tolerations.is_none()
    }

    pub fn accepts(&self, node: &Requirements, taints: &[Taint], undefined: Undefined) -> bool {
        let is_chosen = self.alternatives.is_empty()
            || self.alternatives.iter().any(|wanted| node.compatible(wanted, undefined).is_ok());
        is_chosen && self.tolerates(taints)
    }

    pub fn tolerates(&self, taints: &[Taint]) -> bool {
        self.tolerations.as_ref().is_none_or(|tolerations| first_untolerated(taints, tolerations).is_none())
    }
}

/// What makes two rules the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in super::super) struct Rule {
    pub kind: Kind,
    pub key: Symbol,
    pub namespaces: Namespaces,
    /// `None` selects nothing.
    pub selector: Option<Selector>,
    pub filter: NodeFilter,
}

impl Rule {
    pub fn selects(&self, namespace: Namespace, labels: &Labels) -> bool {
        self.namespaces.contains(namespace)
            && self.selector.as_ref().is_some_and(|selector| selector.selects(labels))
    }
}

/// What a rule asks of the count of pods in a domain, for one pod at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Test {
    AtMost(i64),
    Populated,
    /// The first of its kind goes anywhere, unless its kind is already where it could be.
    First,
    Empty,
}

impl Test {
    pub fn passes(self, count: i64) -> bool {
        match self {
            Self::AtMost(most) => count <= most,
            Self::Populated => count > 0,
            Self::First => true,
            Self::Empty => count == 0,
        }
    }

    /// Whether one of the domains has to be chosen now.
    pub fn must_choose(self) -> bool {
        matches!(self, Self::AtMost(_) | Self::First)
    }

    /// Among domains that pass, lower is better.
    pub fn rank(self, count: i64) -> i64 {
        if let Self::AtMost(_) = self { count } else { 0 }
    }
}

#[derive(Clone, Debug)]
pub(in super::super) struct Group {
    pub rule: Arc<Rule>,
    pub key: KeyId,
    pub is_by_host: bool,
    /// Pods by domain.
    counts: Vec<i64>,
    /// Domains that there are.
    pub known: Marks,
    /// Pods on each new node, if a domain is a host.
    on_new: Vec<i64>,
    /// Counted pods in all domains.
    total: i64,
    /// Of hosts: where there is a pod, and where there are as many as a spread rule allows.
    pub occupied_rooms: Marks,
    pub occupied_bins: Marks,
    pub full_rooms: Marks,
    pub full_bins: Marks,
}

impl Group {
    pub fn new(rule: Arc<Rule>, key: KeyId, is_by_host: bool) -> Self {
        Self {
            rule,
            key,
            is_by_host,
            counts: Vec::new(),
            known: Marks::default(),
            on_new: Vec::new(),
            total: 0,
            occupied_rooms: Marks::default(),
            occupied_bins: Marks::default(),
            full_rooms: Marks::default(),
            full_bins: Marks::default(),
        }
    }

    pub fn count(&self, domain: DomainId) -> i64 {
        self.counts.get(domain as usize).copied().unwrap_or(0)
    }

    pub fn count_on_new(&self, bin: usize) -> i64 {
        self.on_new.get(bin).copied().unwrap_or(0)
    }

    pub fn is_known(&self, domain: DomainId) -> bool {
        // A host that nobody has heard of is empty.
        self.is_by_host || self.known.contains(domain as usize)
    }

    /// Whether `count` is all that a spread rule allows one more of its own pods to join.
    fn is_full(&self, count: i64) -> bool {
        matches!(self.rule.kind, Kind::Spread { max_skew, .. } if count >= max_skew)
    }

    pub fn shift(&mut self, domain: DomainId, by: i64, table: &Table) {
        let at = domain as usize;
        if at >= self.counts.len() {
            self.counts.resize(table.len().max(at + 1), 0);
        }
        self.counts[at] += by;
        self.total += by;
        self.known.insert(at);
        if self.is_by_host {
            let count = self.counts[at];
            let is_full = self.is_full(count);
            for room in table.rooms_at(domain) {
                self.occupied_rooms.set(room, count > 0);
                self.full_rooms.set(room, is_full);
            }
        }
    }

    /// Whether the room at `room`, in `domain`, is marked as another would be.
    pub fn differs_at(&self, room: usize, domain: Option<DomainId>) -> bool {
        let count = domain.map_or(0, |domain| self.count(domain));
        self.occupied_rooms.contains(room) != (count > 0)
            || self.full_rooms.contains(room) != (domain.is_some() && self.is_full(count))
    }

    /// The room at `room` is in `domain` now.
    pub fn see_room(&mut self, room: usize, domain: Option<DomainId>) {
        let count = domain.map_or(0, |domain| self.count(domain));
        self.occupied_rooms.set(room, count > 0);
        self.full_rooms.set(room, domain.is_some() && self.is_full(count));
    }

    pub fn shift_on_new(&mut self, bin: usize, by: i64) {
        if bin >= self.on_new.len() {
            self.on_new.resize(bin + 1, 0);
        }
        self.on_new[bin] += by;
        self.total += by;
        let count = self.on_new[bin];
        self.occupied_bins.set(bin, count > 0);
        self.full_bins.set(bin, self.is_full(count));
    }

    /// Pods by domain, as many as anybody reads.
    pub fn shown(&self, table: &Table) -> Vec<(Symbol, i64)> {
        const SHOWN: usize = 25;
        let mut counts: Vec<(Symbol, i64)> = self
            .known
            .iter()
            .filter_map(|domain| {
                let domain = DomainId::try_from(domain).ok()?;
                Some((table.symbol(domain), self.count(domain)))
            })
            .filter(|(_, count)| !self.is_by_host || *count != 0)
            .collect();
        let on_new = self.on_new.iter().enumerate().filter(|(_, count)| **count != 0);
        counts.extend(
            on_new.map(|(bin, count)| (Symbol::new(&format!("provisor.dev/new-{}", bin + 1)), *count)),
        );
        counts.sort_unstable();
        counts.truncate(SHOWN);
        counts
    }

    pub fn refusal(&self) -> TopologyRule {
        match self.rule.kind {
            Kind::Spread { .. } => TopologyRule::Spread,
            Kind::Affinity => TopologyRule::Affinity,
            Kind::AntiAffinity => TopologyRule::AntiAffinity,
            Kind::Shunned => TopologyRule::Shunned,
        }
    }

    /// What it asks now for a pod that demands `asked` of nodes. `counts_itself`: the rule selects the pod; `givers`: nodes that give
    /// each domain.
    pub fn test(&self, counts_itself: bool, asked: Asked, table: &Table, givers: &[u32]) -> Test {
        match self.rule.kind {
            Kind::Spread { max_skew, min_domains } => Test::AtMost(
                max_skew + self.least(asked, min_domains, table, givers) - i64::from(counts_itself),
            ),
            Kind::Affinity if counts_itself && !self.is_populated(asked, table) => Test::First,
            Kind::Affinity => Test::Populated,
            Kind::AntiAffinity | Kind::Shunned => Test::Empty,
        }
    }

    /// Whether there is a counted pod in a domain that the pod could use.
    fn is_populated(&self, asked: Asked, table: &Table) -> bool {
        if self.total == 0 {
            return false;
        }
        let is_open =
            |wanted: &Requirements| wanted.get(table.key).is_none_or(|on_key| on_key.listed().is_none());
        let is_any = |wanted: &Requirements| wanted.get(table.key).is_none();
        let mut of_table = (0..).zip(&self.counts);
        asked.alternatives.iter().any(is_any)
            || (!self.occupied_bins.is_clear() && asked.alternatives.iter().any(is_open))
            || of_table.any(|(domain, count)| *count > 0 && asked.may_use(table.key, table.symbol(domain)))
    }

    /// The smallest count among the domains that the pod could use. A host can always be added, so the smallest there
    /// is zero; so it is while there are fewer domains than the rule wants. A rule that looks at every node, whatever the pod demands
    /// of nodes, also counts domains of nodes that it could not use.
    fn least(&self, asked: Asked, min_domains: Option<u32>, table: &Table, givers: &[u32]) -> i64 {
        if self.is_by_host {
            return 0;
        }
        let (mut usable, mut least) = (0, None);
        let looks_everywhere = self.rule.filter.alternatives.is_empty();
        let is_given = |domain: DomainId| givers.get(domain as usize).is_some_and(|givers| *givers > 0);
        for domain in self.known.iter().filter_map(|domain| DomainId::try_from(domain).ok()) {
            let is_seen = looks_everywhere && is_given(domain);
            if is_seen || asked.may_use(table.key, table.symbol(domain)) {
                let count = self.count(domain);
                usable += 1;
                least = Some(least.map_or(count, |least: i64| least.min(count)));
            }
        }
        if min_domains.is_some_and(|wanted| usable < wanted) {
            return 0;
        }
        least.unwrap_or(0)
    }

    /// The domains in which a pod on a node within `reach` is counted. `is_open`: a node that is not there yet, and may get
    /// any value that it does not rule out.
    pub fn counted_in(&self, reach: &Reach, is_open: bool) -> Vec<DomainId> {
        let is_known = |domain: &DomainId| self.known.contains(*domain as usize);
        match self.rule.kind {
            Kind::Spread { .. } | Kind::Affinity => reach.single.into_iter().collect(),
            _ if reach.is_listed => reach.domains.clone(),
            _ if reach.is_absent && !is_open => Vec::new(),
            _ => reach.domains.iter().copied().filter(is_known).collect(),
        }
    }

    /// A domain that there may be.
    pub fn know(&mut self, domain: DomainId) {
        self.known.insert(domain as usize);
    }

    /// Domains that there are no more, once the pods of some nodes are not counted and some nodes are not there.
    pub fn forget(&mut self, domain: DomainId) {
        self.known.remove(domain as usize);
    }
}
