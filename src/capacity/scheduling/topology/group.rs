//! One rule about other pods, and the count of pods per domain that it goes by.
//!
//! Pods with an equal rule share one group. Spread and affinity count a pod only where it certainly is; anti-affinity
//! counts it wherever it may still end up.

use std::collections::{BTreeMap, BTreeSet};

use super::super::explain::TopologyRule;
use crate::model::label::{self, Labels};
use crate::model::name::Namespace;
use crate::model::pod::Selector;
use crate::model::requirement::{Requirement, Requirements, Undefined};
use crate::model::symbol::Symbol;
use crate::model::taint::{Taint, Toleration, first_untolerated};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Namespaces {
    All,
    Listed(BTreeSet<Namespace>),
}

impl Namespaces {
    pub fn contains(&self, namespace: Namespace) -> bool {
        match self {
            Self::All => true,
            Self::Listed(listed) => listed.contains(&namespace),
        }
    }
}

/// Which nodes a spread rule looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct NodeFilter {
    /// One must hold; empty: every node.
    pub alternatives: Vec<Requirements>,
    /// `Some`: these must tolerate the node's taints.
    pub tolerations: Option<Vec<Toleration>>,
}

impl NodeFilter {
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// Where a pod may go by one or more rules on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Permitted {
    /// Domain to rank: lower is better.
    pub domains: BTreeMap<Symbol, i64>,
    /// One of them has to be chosen now.
    pub must_choose: bool,
}

impl Permitted {
    pub fn meet(self, other: Self) -> Self {
        let both = self
            .domains
            .into_iter()
            .filter_map(|(domain, rank)| Some((domain, rank + other.domains.get(&domain)?)))
            .collect();
        Self { domains: both, must_choose: self.must_choose || other.must_choose }
    }
}

#[derive(Debug)]
pub(in super::super) struct Group {
    pub rule: Rule,
    /// Known domains with the pods counted in each.
    counts: BTreeMap<Symbol, i64>,
    /// How many counted pods each new node holds.
    on_bins: BTreeMap<usize, i64>,
    /// Counted pods in all domains.
    total: i64,
}

impl Group {
    pub fn new(rule: Rule, domains: impl IntoIterator<Item = Symbol>) -> Self {
        let counts = domains.into_iter().map(|domain| (domain, 0)).collect();
        Self { rule, counts, on_bins: BTreeMap::new(), total: 0 }
    }

    fn is_by_host(&self) -> bool {
        self.rule.key == *label::HOSTNAME
    }

    fn count(&self, domain: Symbol) -> i64 {
        self.counts.get(&domain).copied().unwrap_or(0)
    }

    /// Pods by domain, as many as anybody reads.
    pub fn counts(&self) -> Vec<(Symbol, i64)> {
        const SHOWN: usize = 25;
        self.counts.iter().take(SHOWN).map(|(domain, count)| (*domain, *count)).collect()
    }

    pub fn refusal(&self) -> TopologyRule {
        match self.rule.kind {
            Kind::Spread { .. } => TopologyRule::Spread,
            Kind::Affinity => TopologyRule::Affinity,
            Kind::AntiAffinity => TopologyRule::AntiAffinity,
            Kind::Shunned => TopologyRule::Shunned,
        }
    }

    /// Domains for a pod on a node: `asked` is what the pod itself demands of the key, `node` what the node allows
    /// (`None`: anything). `counts_itself`: the rule selects the pod.
    pub fn permitted(
        &self,
        counts_itself: bool,
        asked: Option<&Requirement>,
        node: Option<&Requirement>,
    ) -> Permitted {
        let is_asked = |domain: Symbol| asked.is_none_or(|asked| asked.has(domain));
        let in_reach = |domain: Symbol| node.is_none_or(|node| node.has(domain)) && is_asked(domain);
        // A new node is a host that nobody has heard of: what is not counted is empty.
        let here = node.and_then(Requirement::single).filter(|domain| is_asked(*domain));
        let known = |domain: Symbol| self.counts.contains_key(&domain) || self.is_by_host();
        let candidates: Vec<(Symbol, i64)> = match here.filter(|domain| known(*domain)) {
            Some(domain) => vec![(domain, self.count(domain))],
            None if self.is_by_host() && node.is_none() => Vec::new(),
            None => self
                .counts
                .iter()
                .filter(|(domain, _)| in_reach(**domain))
                .map(|(domain, count)| (*domain, *count))
                .collect(),
        };
        match self.rule.kind {
            Kind::Spread { max_skew, min_domains } => {
                let least = self.least(asked, min_domains);
                let own = i64::from(counts_itself);
                let domains =
                    candidates.into_iter().filter(|(_, count)| count + own - least <= max_skew).collect();
                Permitted { domains, must_choose: true }
            }
            Kind::Affinity => {
                let populated: BTreeMap<Symbol, i64> = candidates
                    .iter()
                    .filter(|(_, count)| *count > 0)
                    .map(|(domain, _)| (*domain, 0))
                    .collect();
                if !populated.is_empty() {
                    return Permitted { domains: populated, must_choose: false };
                }
                // The first of its kind goes anywhere, unless its kind is already where it could be.
                let is_first = counts_itself
                    && (self.total == 0
                        || !self.counts.iter().any(|(domain, count)| *count > 0 && is_asked(*domain)));
                let domains = if is_first {
                    candidates.into_iter().map(|(domain, _)| (domain, 0)).collect()
                } else {
                    BTreeMap::new()
                };
                Permitted { domains, must_choose: true }
            }
            Kind::AntiAffinity | Kind::Shunned => {
                let domains = candidates
                    .into_iter()
                    .filter(|(_, count)| *count == 0)
                    .map(|(domain, _)| (domain, 0))
                    .collect();
                Permitted { domains, must_choose: false }
            }
        }
    }

    /// The smallest count among the domains that the pod could use. A host can always be added, so the smallest there
    /// is zero; so it is while there are fewer domains than the rule wants.
    fn least(&self, asked: Option<&Requirement>, min_domains: Option<u32>) -> i64 {
        if self.is_by_host() {
            return 0;
        }
        let usable = || {
            self.counts
                .iter()
                .filter(|(domain, _)| asked.is_none_or(|asked| asked.has(**domain)))
                .map(|(_, count)| *count)
        };
        if min_domains.is_some_and(|wanted| usable().count() < wanted as usize) {
            return 0;
        }
        usable().min().unwrap_or(0)
    }

    /// The domains in which a pod on a node that allows `node` of the key is counted. `is_open`: a node that is not
    /// there yet, and may get any value that it does not rule out.
    fn counted_in(&self, node: Option<&Requirement>, is_open: bool) -> Vec<Symbol> {
        let everywhere = || -> Vec<Symbol> {
            self.counts.keys().copied().filter(|domain| node.is_none_or(|node| node.has(*domain))).collect()
        };
        match (self.rule.kind, node) {
            (Kind::Spread { .. } | Kind::Affinity, node) => {
                node.and_then(Requirement::single).into_iter().collect()
            }
            (_, Some(node)) => match node.listed() {
                Some(values) => values.iter().copied().collect(),
                None => everywhere(),
            },
            (_, None) if is_open => everywhere(),
            (_, None) => Vec::new(),
        }
    }

    fn shift(&mut self, domains: &[Symbol], by: i64) {
        for domain in domains {
            *self.counts.entry(*domain).or_insert(0) += by;
            self.total += by;
        }
    }

    pub fn record_on_node(&mut self, node: Option<&Requirement>) {
        let domains = self.counted_in(node, false);
        self.shift(&domains, 1);
    }

    pub fn record_on_bin(&mut self, bin: usize, node: Option<&Requirement>) {
        let domains = self.counted_in(node, true);
        self.shift(&domains, 1);
        *self.on_bins.entry(bin).or_insert(0) += 1;
    }

    /// The pods already counted on a new node follow it when its domains get fewer.
    pub fn narrowed(&mut self, bin: usize, from: Option<&Requirement>, to: Option<&Requirement>) {
        let Some(count) = self.on_bins.get(&bin).copied() else { return };
        let (before, after) = (self.counted_in(from, true), self.counted_in(to, true));
        self.shift(&before, -count);
        self.shift(&after, count);
    }
}
