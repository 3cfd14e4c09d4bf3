//! Rules that speak of other pods: topology spread, pod affinity and anti-affinity.
//!
//! For one pod and one candidate node every rule says which domains of its key it permits. The sets are intersected,
//! and only then is a domain chosen, so two rules never fail over two choices when a common one exists.

mod book;
mod group;
mod keys;
mod rules;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::explain::{Refused, TopologyRule};
use super::marks::Marks;
use super::outlook::{Choice, OutlookId, Outlooks};
use super::room::Room;
use super::template::Template;
use crate::model::hash::FastMap;
use crate::model::requirement::{Requirement, Requirements, Undefined};
use crate::model::symbol::Symbol;

use group::{Group, Kind, Test};

use book::StandingId;
pub(super) use book::{ClassId, HostId, RuleBook, RuleId, Standing};
use keys::RoomDomain;
pub(super) use keys::{DomainId, KeyId, Keys, Reach};

/// A node of the solve, as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    Room(usize),
    Bin(usize),
}

/// What a pod demands of nodes.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// With those alternatives given up that were of no use.
    pub strict: &'a Requirements,
    /// Before any was given up: one of these.
    pub alternatives: &'a [Requirements],
}

impl Asked<'_> {
    /// Whether the pod might go into this domain of `key`, by one of its alternatives.
    fn may_use(self, key: Symbol, domain: Symbol) -> bool {
        let allows = |wanted: &Requirements| wanted.get(key).is_none_or(|wanted| wanted.has(domain));
        self.alternatives.iter().any(allows)
    }
}

/// What one rule asks for one pod at one moment.
#[derive(Clone, Copy)]
pub(super) struct Stance<'a> {
    rule: RuleId,
    key: KeyId,
    test: Test,
    /// What the pod itself demands of the key.
    asked: Option<&'a Requirement>,
}

impl Stance<'_> {
    /// The rule, if the pod would be the first of those that it wants to be near to.
    pub fn founded(&self) -> Option<RuleId> {
        (self.test == Test::First).then_some(self.rule)
    }
}

/// Domains that one key permits, each with how well it would do: the least is best.
type Ranked = Vec<(i64, DomainId)>;

/// A bound pod that is moved, and so counts nowhere.
#[derive(Clone, Copy)]
pub(super) struct Leaving {
    pub standing: StandingId,
    pub host: HostId,
    /// It counted for those that want to be near it or away from it.
    pub is_counted: bool,
}

/// The counts of one solve. A copy shares every group that neither counts further.
#[derive(Clone, Default)]
pub(super) struct Topology {
    groups: Vec<Option<Arc<Group>>>,
    leaving: Vec<Leaving>,
    /// Of `leaving`, those that a rule has counted; once for each time.
    leaving_of: FastMap<RuleId, Vec<usize>>,
    /// How many rules there were when that was found out.
    rules_noted: usize,
    /// Nodes that are taken away.
    removed: Vec<HostId>,
    placed: Vec<(StandingId, Spot)>,
    /// Of `placed`, those that do not hold any more.
    withdrawn: BTreeSet<usize>,
    /// Rules by which pods of the solve keep others away.
    shunning: Marks,
    /// Of each new node: what it may still become, and the groups that count pods on it.
    bins: Vec<(OutlookId, Vec<(RuleId, i64)>)>,
    /// New nodes by key and the domains that each may be in; hosts aside.
    bins_in: Vec<Option<BinsIn>>,
    /// Templates whose taints some pod of the solve tolerates.
    wanted: Marks,
    /// Domains of rules that are not there as long as none of these templates is wanted.
    unwanted: Vec<(RuleId, DomainId, Vec<usize>)>,
}

/// Which new nodes may be in which domain of one key.
#[derive(Clone, Default)]
struct BinsIn {
    by_domain: Vec<Marks>,
    /// They may be in domains that nobody has heard of yet.
    anywhere: Marks,
}

impl BinsIn {
    fn mark(&mut self, reach: &Reach, bin: usize, is_in: bool) {
        if !reach.is_listed {
            self.anywhere.set(bin, is_in);
        }
        for domain in &reach.domains {
            let domain = *domain as usize;
            if domain >= self.by_domain.len() {
                self.by_domain.resize(domain + 1, Marks::default());
            }
            self.by_domain[domain].set(bin, is_in);
        }
    }
}

/// What topology looks things up in.
pub(super) struct Sight<'s> {
    pub book: &'s mut RuleBook,
    pub outlooks: &'s mut Outlooks,
    pub templates: &'s [Template],
    pub rooms: &'s [Room],
}

impl Topology {
    /// From now on pods of `leaving` and placements of `withdrawn` count nowhere, and nodes of `removed` are not there.
    pub fn depart(
        &mut self,
        leaving: Vec<Leaving>,
        removed: Vec<HostId>,
        withdrawn: Vec<usize>,
        sight: &mut Sight,
    ) {
        let (start, first_removed) = (self.leaving.len(), self.removed.len());
        self.leaving.extend(leaving);
        self.removed.extend(removed);
        if self.rules_noted < sight.book.len() {
            for at in 0..start {
                self.note_leaving(at, self.rules_noted, sight.book);
            }
        }
        // Rules for which that may change anything.
        let mut concerned: BTreeSet<RuleId> = BTreeSet::new();
        for at in start..self.leaving.len() {
            concerned.extend(self.note_leaving(at, 0, sight.book));
            for rule in sight.book.standing(self.leaving[at].standing).shuns.iter() {
                self.leaving_of.entry(*rule).or_default().push(at);
                concerned.insert(*rule);
            }
        }
        self.rules_noted = sight.book.len();
        for at in &withdrawn {
            let Standing { class, shuns, .. } = sight.book.standing(self.placed[*at].0).clone();
            concerned.extend(sight.book.selecting(class).iter().chain(shuns.iter()));
        }
        for host in &self.removed[first_removed..] {
            concerned.extend(sight.book.losing(*host, self.removed.len()));
        }
        for rule in concerned {
            let Some(mut group) = self.groups.get_mut(rule).and_then(Option::take) else { continue };
            let mut touched = Vec::new();
            for at in &withdrawn {
                self.count_placed(&mut group, rule, *at, -1, sight);
                touched.extend(domain_of(self.placed[*at].1, group.key, sight.book));
            }
            let noted = self.leaving_of.get(&rule).into_iter().flatten().copied();
            let noted = noted.filter(|at| *at >= start).collect();
            self.discount(&mut group, rule, noted, touched, sight.book);
            self.groups[rule] = Some(group);
        }
        self.withdrawn.extend(withdrawn);
    }

    /// Finds the rules from `first` on that count a pod that leaves.
    fn note_leaving(&mut self, at: usize, first: RuleId, book: &mut RuleBook) -> Vec<RuleId> {
        let Leaving { standing, is_counted, .. } = self.leaving[at];
        if !is_counted {
            return Vec::new();
        }
        let class = book.standing(standing).class;
        let selecting = book.selecting(class);
        let counts = |rule: &RuleId| *rule >= first && book.base(*rule).group.rule.kind != Kind::Shunned;
        let counting: Vec<RuleId> = selecting.iter().copied().filter(counts).collect();
        for rule in &counting {
            self.leaving_of.entry(*rule).or_default().push(at);
        }
        counting
    }

    /// Takes out of `group` the pods of `noted`, and domains of `touched` and of removed nodes that are no more.
    fn discount(
        &self,
        group: &mut Arc<Group>,
        rule: RuleId,
        noted: Vec<usize>,
        mut touched: Vec<DomainId>,
        book: &mut RuleBook,
    ) {
        for at in noted {
            if let Some(domain) = book.seen_on(rule, self.leaving[at].host) {
                let table = book.keys.get(group.key);
                Arc::make_mut(group).shift(domain, -1, table);
                touched.push(domain);
            }
        }
        if group.is_by_host {
            return;
        }
        let mut without: Vec<(DomainId, u32)> = Vec::new();
        for host in &self.removed {
            if book.stays(*host)
                && book.may_vanish(rule, *host, self.removed.len())
                && let Some(domain) = book.seen_on(rule, *host)
            {
                touched.push(domain);
                match without.iter_mut().find(|(known, _)| *known == domain) {
                    Some((_, count)) => *count += 1,
                    None => without.push((domain, 1)),
                }
            }
        }
        let base = book.base(rule);
        for domain in touched {
            let less = without.iter().find(|(known, _)| *known == domain).map_or(0, |(_, count)| *count);
            let givers = base.givers.get(domain as usize).copied().unwrap_or(0);
            if givers <= less && !base.offered.contains_key(&domain) && group.count(domain) == 0 {
                Arc::make_mut(group).forget(domain);
            }
        }
    }

    /// Counts the placement `at`, or takes it away, if it is one of those that the rule counts.
    fn count_placed(&mut self, group: &mut Arc<Group>, rule: RuleId, at: usize, by: i64, sight: &mut Sight) {
        let (standing, spot) = self.placed[at];
        let times = sight.book.times_counted(rule, standing);
        for _ in 0..times {
            record_in(Arc::make_mut(group), spot, by, &mut self.bins, rule, sight);
        }
    }

    /// Pods of the solve keep others away by these.
    pub fn shun(&mut self, rules: &[RuleId]) {
        rules.iter().for_each(|rule| self.shunning.insert(*rule));
    }

    /// Rules of others that keep pods of `class` away: others that run, or are to be placed. In an order of their own, so that
    /// it does not matter when each was first met.
    pub fn shunned(&self, class: ClassId, book: &mut RuleBook) -> Vec<RuleId> {
        let selecting = book.selecting(class);
        let keeps_away = |rule: &&RuleId| {
            let base = book.base(**rule);
            base.group.rule.kind == Kind::Shunned && (base.keepers > 0 || self.shunning.contains(**rule))
        };
        let mut rules: Vec<RuleId> = selecting.iter().filter(keeps_away).copied().collect();
        rules.sort_by(|one, other| book.base(*one).group.rule.cmp(&book.base(*other).group.rule));
        rules
    }

    fn group(&self, rule: RuleId) -> &Group {
        self.groups[rule].as_ref().expect("a rule is taken up before it is asked")
    }

    /// Pods of the solve tolerate what keeps others off nodes of `template`: domains that only such nodes would have may come to be.
    pub fn want(&mut self, template: usize) {
        self.wanted.insert(template);
        let groups = &mut self.groups;
        self.unwanted.retain(|(rule, domain, templates)| {
            let is_wanted = templates.contains(&template);
            if is_wanted && let Some(Some(group)) = groups.get_mut(*rule) {
                Arc::make_mut(group).know(*domain);
            }
            !is_wanted
        });
    }

    pub fn is_wanted(&self, template: usize) -> bool {
        self.wanted.contains(template)
    }

    /// Of a rule with several terms of node affinity, takes domains out of `group` in which no node or claim is that the rule looks at, and
    /// that only pools offer from which nobody can get a node: nobody will, and the other terms are left.
    fn forget_unwanted(&mut self, group: &mut Arc<Group>, rule: RuleId, sight: &Sight) {
        if group.is_by_host || group.rule.filter.alternatives.len() < 2 {
            return;
        }
        let (base, table) = (sight.book.base(rule), sight.book.keys.get(group.key));
        let rules = group.rule.clone();
        let is_seen = |at: usize| {
            let room = &sight.rooms[at];
            rules.filter.accepts(room.requirements(), &room.taints, Undefined::Nothing)
        };
        for (domain, templates) in &base.offered {
            let at = *domain as usize;
            let is_given = base.givers.get(at).is_some_and(|givers| *givers > 0);
            let rooms =
                table.rooms_in.get(at).into_iter().flat_map(Marks::iter).chain(table.rooms_open.iter());
            let is_there = is_given || group.count(*domain) != 0 || rooms.into_iter().any(is_seen);
            if !is_there && !templates.iter().any(|of| self.wanted.contains(*of)) {
                Arc::make_mut(group).forget(*domain);
                self.unwanted.push((rule, *domain, templates.clone()));
            }
        }
    }

    /// Counts for `rule` from now on, and all that was placed before.
    pub fn take_up(&mut self, rule: RuleId, sight: &mut Sight) {
        if rule >= self.groups.len() {
            self.groups.resize_with(rule + 1, || None);
        }
        if self.groups[rule].is_some() {
            return;
        }
        let mut group = sight.book.base(rule).group.clone();
        let noted = self.leaving_of.get(&rule).cloned().unwrap_or_default();
        let late = (rule >= self.rules_noted && group.rule.kind != Kind::Shunned).then(|| {
            let counts = |at: &usize| {
                let leaving = &self.leaving[*at];
                leaving.is_counted && sight.book.selects(rule, sight.book.standing(leaving.standing).class)
            };
            (0..self.leaving.len()).filter(counts).collect::<Vec<_>>()
        });
        self.discount(&mut group, rule, late.unwrap_or(noted), Vec::new(), sight.book);
        self.forget_unwanted(&mut group, rule, sight);
        if !group.is_by_host {
            self.index_bins(group.key, sight);
        }
        let mut is_counted: FastMap<StandingId, bool> = FastMap::default();
        for at in 0..self.placed.len() {
            let standing = self.placed[at].0;
            let counts = || sight.book.times_counted(rule, standing) > 0;
            if *is_counted.entry(standing).or_insert_with(counts) && !self.withdrawn.contains(&at) {
                self.count_placed(&mut group, rule, at, 1, sight);
            }
        }
        self.groups[rule] = Some(group);
    }

    /// Finds out which new nodes may be in which domain of `key`, unless that is known.
    fn index_bins(&mut self, key: KeyId, sight: &mut Sight) {
        if key >= self.bins_in.len() {
            self.bins_in.resize_with(key + 1, || None);
        }
        if self.bins_in[key].is_none() {
            let mut within = BinsIn::default();
            for (at, (outlook, _)) in self.bins.iter().enumerate() {
                let reach = sight.outlooks.reach(*outlook, key, &mut sight.book.keys);
                within.mark(&reach, at, true);
            }
            self.bins_in[key] = Some(within);
        }
    }

    /// Whether the domains of the rule, which counts, are hosts.
    pub fn is_by_host(&self, rule: RuleId) -> bool {
        self.group(rule).is_by_host
    }

    /// Whether some rule looks at which new node it is, and not only at what that may become and how many pods are counted there.
    pub fn tells_bins_apart(&self, stances: &[Stance]) -> bool {
        stances.iter().any(|stance| stance.test == Test::First && !self.is_by_host(stance.rule))
    }

    /// Whether the rules by which every node is a domain permit a new node.
    pub fn permits_host(&self, stances: &[Stance], bin: usize) -> bool {
        stances.iter().all(|stance| {
            let group = self.group(stance.rule);
            !group.is_by_host || stance.test.passes(group.count_on_new(bin))
        })
    }

    /// What the rules of a pod, and those of others that select it, ask now. `owned`: each with whether it selects the pod
    /// itself.
    pub fn stances<'a>(
        &self,
        owned: &[(RuleId, bool)],
        shunned: &[RuleId],
        asked: Asked<'a>,
        book: &RuleBook,
    ) -> Vec<Stance<'a>> {
        let all = owned.iter().copied().chain(shunned.iter().map(|rule| (*rule, false)));
        all.map(|(rule, counts_itself)| {
            let group = self.group(rule);
            let table = book.keys.get(group.key);
            let test = group.test(counts_itself, asked, table, &book.base(rule).givers);
            Stance { rule, key: group.key, test, asked: asked.strict.get(table.key) }
        })
        .collect()
    }

    /// Domains of `key` that all of a pod's own rules about it permit now; `None`: there is no such rule.
    pub fn permitted(
        &mut self,
        owned: &[(RuleId, bool)],
        asked: Asked,
        key: Symbol,
        sight: &mut Sight,
    ) -> Option<Vec<Symbol>> {
        let is_about = |(rule, _): &(RuleId, bool)| sight.book.base(*rule).group.rule.key == key;
        let about: Vec<(RuleId, bool)> = owned.iter().copied().filter(is_about).collect();
        about.iter().for_each(|(rule, _)| self.take_up(*rule, sight));
        let stances = self.stances(&about, &[], asked, sight.book);
        let table = sight.book.keys.get(stances.first()?.key);
        let permits = |domain: &DomainId| {
            stances.iter().all(|stance| self.permits(stance, self.group(stance.rule), *domain, sight.book))
        };
        let domains = (0..DomainId::try_from(table.len()).ok()?).filter(permits);
        Some(domains.map(|domain| table.symbol(domain)).collect())
    }

    /// Takes out of `rooms` those that a rule refuses; some that it would refuse may stay.
    pub fn narrow_rooms(&self, stances: &[Stance], rooms: &mut Marks, book: &RuleBook) {
        for stance in stances {
            let group = self.group(stance.rule);
            let table = book.keys.get(stance.key);
            if group.is_by_host {
                match (stance.test, group.rule.kind) {
                    (Test::Populated, _) => {
                        let mut there = group.occupied_rooms.clone();
                        there.add_all(&table.rooms_open);
                        rooms.keep_only(&there);
                    }
                    (Test::Empty, _) => rooms.take_away(&group.occupied_rooms),
                    (Test::AtMost(most), Kind::Spread { max_skew, .. }) if most < max_skew => {
                        rooms.take_away(&group.full_rooms);
                    }
                    _ => {}
                }
                continue;
            }
            let mut there = table.rooms_open.clone();
            if stance.test == Test::Empty {
                there.add_all(&table.rooms_nowhere);
            }
            for (domain, within) in (0..).zip(&table.rooms_in) {
                if self.permits(stance, group, domain, book) {
                    there.add_all(within);
                }
            }
            rooms.keep_only(&there);
        }
    }

    /// Takes out of `bins` those that a rule refuses; some that it would refuse may stay.
    pub fn narrow_bins(&self, stances: &[Stance], bins: &mut Marks, book: &RuleBook) {
        for stance in stances {
            let group = self.group(stance.rule);
            if group.is_by_host {
                match (stance.test, group.rule.kind) {
                    (Test::Populated, _) => bins.keep_only(&group.occupied_bins),
                    (Test::Empty, _) => bins.take_away(&group.occupied_bins),
                    (Test::AtMost(most), Kind::Spread { max_skew, .. }) if most < max_skew => {
                        bins.take_away(&group.full_bins);
                    }
                    _ => {}
                }
                continue;
            }
            let Some(Some(bins_in)) = self.bins_in.get(stance.key) else { continue };
            let mut there = bins_in.anywhere.clone();
            for (domain, within) in (0..).zip(&bins_in.by_domain) {
                if self.permits(stance, group, domain, book) {
                    there.add_all(within);
                }
            }
            bins.keep_only(&there);
        }
    }

    fn permits(&self, stance: &Stance, group: &Group, domain: DomainId, book: &RuleBook) -> bool {
        let is_asked =
            || stance.asked.is_none_or(|asked| asked.has(book.keys.get(stance.key).symbol(domain)));
        group.is_known(domain) && stance.test.passes(group.count(domain)) && is_asked()
    }

    /// Whether the rules permit an existing node, in whatever domain it may still turn out to be. A node without the key is
    /// nobody's neighbour, so anti-affinity has nothing to say about it.
    pub fn admits_room(&self, stances: &[Stance], at: usize, sight: &mut Sight) -> bool {
        stances.iter().all(|stance| {
            let group = self.group(stance.rule);
            if self.is_unsettled(stance, None, sight) {
                return false;
            }
            match sight.book.keys.get(stance.key).rooms[at] {
                RoomDomain::Nowhere => stance.test == Test::Empty,
                RoomDomain::In(domain) => self.permits(stance, group, domain, sight.book),
                RoomDomain::Open => {
                    let requirement = sight.rooms[at].may_be(sight.book.keys.get(stance.key).key);
                    let reach = sight.book.keys.reach(stance.key, requirement.as_ref());
                    let permits = |domain: &DomainId| self.permits(stance, group, *domain, sight.book);
                    if reach.is_listed {
                        !reach.domains.is_empty() && reach.domains.iter().all(permits)
                    } else {
                        reach.domains.iter().any(permits)
                    }
                }
            }
        })
    }

    /// What a new node may be narrowed to so that every rule is kept: alternatives, best first. `bin`: which it is.
    pub fn choices(
        &self,
        stances: &[Stance],
        bin: usize,
        outlook: OutlookId,
        sight: &mut Sight,
    ) -> Result<Vec<Choice>, Refused> {
        const TRIED: usize = 256;
        let mut by_key: Vec<(KeyId, Ranked, bool)> = Vec::new();
        for stance in stances {
            let group = self.group(stance.rule);
            let key = sight.book.keys.get(stance.key).key;
            let refuse =
                |rule| Err(Refused::Topology { rule, key, group: Some(stance.rule), domains: Vec::new() });
            if group.is_by_host {
                if !stance.test.passes(group.count_on_new(bin)) {
                    return refuse(group.refusal());
                }
                continue;
            }
            if self.is_unsettled(stance, Some(bin), sight) {
                return refuse(group.refusal());
            }
            let reach = sight.outlooks.reach(outlook, stance.key, &mut sight.book.keys);
            let permitted =
                reach.domains.iter().filter(|domain| self.permits(stance, group, **domain, sight.book));
            let ranked: Ranked =
                permitted.map(|domain| (stance.test.rank(group.count(*domain)), *domain)).collect();
            if ranked.is_empty() {
                return refuse(group.refusal());
            }
            let must_choose = stance.test.must_choose();
            match by_key.iter_mut().find(|(key, _, _)| *key == stance.key) {
                None => by_key.push((stance.key, ranked, must_choose)),
                Some((_, present, chooses)) => {
                    present.retain_mut(|(rank, domain)| {
                        let other = ranked.iter().find(|(_, other)| other == domain);
                        *rank += other.map_or(0, |(rank, _)| *rank);
                        other.is_some()
                    });
                    *chooses |= must_choose;
                    if present.is_empty() {
                        return refuse(TopologyRule::Together);
                    }
                }
            }
        }
        by_key.sort_by_key(|(key, _, _)| sight.book.keys.get(*key).key);
        let mut alternatives: Vec<Choice> = vec![Choice::new()];
        for (key, mut ranked, must_choose) in by_key {
            let table = sight.book.keys.get(key);
            ranked.sort_unstable_by_key(|(rank, domain)| (*rank, table.symbol(*domain)));
            let domains = ranked.into_iter().map(|(_, domain)| domain);
            let choices: Vec<Vec<DomainId>> = if must_choose {
                domains.map(|domain| vec![domain]).collect()
            } else {
                vec![domains.collect()]
            };
            let mut next = Vec::new();
            for present in &alternatives {
                for choice in &choices {
                    let mut narrowed = present.clone();
                    narrowed.push((key, choice.clone()));
                    next.push(narrowed);
                }
            }
            next.truncate(TRIED);
            alternatives = next;
        }
        Ok(alternatives)
    }

    /// Whether the pod would be the first of its kind anywhere, while others of it are on new nodes, the `at`-th not among them, of
    /// which nobody knows yet in which domain they will be: one where the pod could be, too.
    fn is_unsettled(&self, stance: &Stance, at: Option<usize>, sight: &mut Sight) -> bool {
        if stance.test != Test::First || self.group(stance.rule).is_by_host {
            return false;
        }
        let members =
            |bin: usize| self.bins[bin].1.iter().any(|(rule, count)| *rule == stance.rule && *count > 0);
        if at.is_some_and(|at| at < self.bins.len() && members(at)) {
            return false;
        }
        (0..self.bins.len()).filter(|bin| members(*bin)).any(|bin| {
            let reach = sight.outlooks.reach(self.bins[bin].0, stance.key, &mut sight.book.keys);
            let table = sight.book.keys.get(stance.key);
            let is_asked =
                |domain: &DomainId| stance.asked.is_none_or(|asked| asked.has(table.symbol(*domain)));
            reach.single.is_none() && reach.domains.iter().any(is_asked)
        })
    }

    /// Takes note of a new node, or of what it has been narrowed to.
    pub fn see_bin(&mut self, at: usize, outlook: OutlookId, sight: &mut Sight) {
        let before = if at == self.bins.len() {
            self.bins.push((outlook, Vec::new()));
            None
        } else {
            let before = std::mem::replace(&mut self.bins[at].0, outlook);
            if before == outlook {
                return;
            }
            Some(before)
        };
        for (key, within) in self.bins_in.iter_mut().enumerate() {
            let Some(within) = within else { continue };
            if let Some(before) = before {
                let reach = sight.outlooks.reach(before, key, &mut sight.book.keys);
                within.mark(&reach, at, false);
            }
            let reach = sight.outlooks.reach(outlook, key, &mut sight.book.keys);
            within.mark(&reach, at, true);
        }
        let Some(before) = before else { return };
        for (rule, count) in &self.bins[at].1 {
            let group = self.groups[*rule].as_mut().expect("a group that counts is there");
            let group = Arc::make_mut(group);
            if group.is_by_host {
                continue;
            }
            let from = sight.outlooks.reach(before, group.key, &mut sight.book.keys);
            let to = sight.outlooks.reach(outlook, group.key, &mut sight.book.keys);
            if from.domains == to.domains && from.single == to.single {
                continue;
            }
            let (from, to) = (group.counted_in(&from, true), group.counted_in(&to, true));
            let table = sight.book.keys.get(group.key);
            for domain in from {
                group.shift(domain, -count, table);
            }
            for domain in to {
                group.shift(domain, *count, table);
            }
        }
    }

    /// Counts a pod at `spot`.
    pub fn record(&mut self, standing: &Standing, spot: Spot, sight: &mut Sight) {
        let selecting = sight.book.selecting(standing.class);
        let selecting = selecting.iter().filter(|rule| {
            let group = self.groups.get(**rule).and_then(Option::as_ref);
            group.is_some_and(|group| group.rule.kind != Kind::Shunned)
        });
        let counting: Vec<RuleId> = selecting.chain(standing.shuns.iter()).copied().collect();
        for rule in counting {
            if let Some(Some(group)) = self.groups.get_mut(rule) {
                record_in(Arc::make_mut(group), spot, 1, &mut self.bins, rule, sight);
            }
        }
        self.placed.push((standing.id, spot));
    }

    /// Pods by domain, for a person.
    pub fn shown(&self, rule: RuleId, book: &RuleBook) -> Vec<(Symbol, i64)> {
        let group = self.group(rule);
        group.shown(book.keys.get(group.key))
    }
}

/// The domain of a node that is there.
fn domain_of(spot: Spot, key: KeyId, book: &RuleBook) -> Option<DomainId> {
    let Spot::Room(at) = spot else { return None };
    match book.keys.get(key).rooms[at] {
        RoomDomain::In(domain) => Some(domain),
        RoomDomain::Nowhere | RoomDomain::Open => None,
    }
}

fn record_in(
    group: &mut Group,
    spot: Spot,
    by: i64,
    bins: &mut [(OutlookId, Vec<(RuleId, i64)>)],
    rule: RuleId,
    sight: &mut Sight,
) {
    let rules = group.rule.clone();
    match spot {
        Spot::Room(at) => {
            let room = &sight.rooms[at];
            if !rules.filter.is_open()
                && !rules.filter.accepts(room.requirements(), &room.taints, Undefined::Nothing)
            {
                return;
            }
            let domain = sight.book.keys.get(group.key).rooms[at];
            match domain {
                RoomDomain::Nowhere => {}
                RoomDomain::In(domain) => group.shift(domain, by, sight.book.keys.get(group.key)),
                RoomDomain::Open => {
                    let requirement = room.may_be(sight.book.keys.get(group.key).key);
                    let reach = sight.book.keys.reach(group.key, requirement.as_ref());
                    for domain in group.counted_in(&reach, false) {
                        group.shift(domain, by, sight.book.keys.get(group.key));
                    }
                }
            }
        }
        Spot::Bin(at) => {
            let (outlook, groups) = &mut bins[at];
            let facts = sight.outlooks.get(*outlook);
            let taints = sight.templates[facts.template].taints();
            if !rules.filter.is_open()
                && !rules.filter.accepts(&facts.requirements, taints, Undefined::WellKnown)
            {
                return;
            }
            if group.is_by_host {
                group.shift_on_new(at, by);
                return;
            }
            let reach = sight.outlooks.reach(*outlook, group.key, &mut sight.book.keys);
            for domain in group.counted_in(&reach, true) {
                group.shift(domain, by, sight.book.keys.get(group.key));
            }
            match groups.iter_mut().find(|(known, _)| *known == rule) {
                Some((_, count)) => *count += by,
                None => groups.push((rule, by)),
            }
        }
    }
}
