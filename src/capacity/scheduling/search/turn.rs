//! In what order pods are placed.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::super::bin::Guest;
use super::super::demand::{Demand, DemandId};
use super::super::topology::RuleId;
use super::Search;
use crate::model::hash::FastMap;
use crate::model::pod::{Pod, PodShape};
use crate::model::quantity::{Bytes, Millicores};

/// Whose turn it is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// What comes next counts only among the equally important.
    pub is_by_priority: bool,
    pub by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// CPU, then memory, largest first.
    Cpu,
    /// The same, but of pods that ask for as much one of each kind in turn.
    Turns,
    /// Memory, then CPU, largest first.
    Memory,
    /// Whom others must be near, then those others, then the rest, each by CPU.
    Company,
    /// Who fared worst in an earlier answer.
    Grievance,
    /// For whom the fewest machines are sold that it could be on, then by CPU.
    Choice,
    /// CPU, or memory if the number is odd, of which between half and all counts, as chance has it.
    Chance(u8),
}

impl Turn {
    pub const BY_SIZE: Self = Self { is_by_priority: false, by: By::Cpu };
    pub const BY_PRIORITY: Self = Self { is_by_priority: true, ..Self::BY_SIZE };

    fn importance(self, one: &Pod, other: &Pod) -> Ordering {
        match self.is_by_priority {
            true => other.shape.priority.cmp(&one.shape.priority),
            false => Ordering::Equal,
        }
    }
}

/// What a pod is to others by rules of nearness that have to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Company {
    /// Others must be near it.
    Leads,
    /// It must be near others.
    Follows,
    None,
}

/// CPU, then memory, largest first; then the older; then by what they are, so that names decide only between equals.
pub(super) fn sooner(one: &Pod, other: &Pod) -> Ordering {
    let shapes = || match Arc::ptr_eq(&one.shape, &other.shape) {
        true => Ordering::Equal,
        false => one.shape.cmp(&other.shape),
    };
    size(other)
        .cmp(&size(one))
        .then_with(|| age(one).cmp(&age(other)))
        .then_with(shapes)
        .then_with(|| name(one).cmp(&name(other)))
}

fn age(pod: &Pod) -> impl Ord + use<> {
    (pod.created.is_none(), pod.created)
}

fn name(pod: &Pod) -> impl Ord + use<> {
    (pod.uid, pod.key)
}

/// The same order, with what shapes have in it worked out once for each of them.
struct Sizes {
    /// By pod: what is compared first, and its shape's place among all.
    by_pod: Vec<((i64, i64), usize)>,
}

impl Sizes {
    fn of(pods: &[Arc<Pod>], by: By) -> Self {
        let mut numbers: FastMap<usize, usize> = FastMap::default();
        let mut shapes: Vec<&Arc<PodShape>> = Vec::new();
        let of_pods: Vec<usize> = pods
            .iter()
            .map(|pod| {
                *numbers.entry(Arc::as_ptr(&pod.shape) as usize).or_insert_with(|| {
                    shapes.push(&pod.shape);
                    shapes.len() - 1
                })
            })
            .collect();
        let sizes: Vec<(i64, i64)> = shapes
            .iter()
            .map(|shape| {
                let (cpu, memory) = (shape.requests.cpu().0, shape.requests.memory().0);
                if by == By::Memory { (memory, cpu) } else { (cpu, memory) }
            })
            .collect();
        let mut order: Vec<usize> = (0..shapes.len()).collect();
        order.sort_by(|one, other| {
            sizes[*one].cmp(&sizes[*other]).then_with(|| shapes[*one].cmp(shapes[*other]))
        });
        let mut ranks = vec![0; shapes.len()];
        for pair in order.windows(2) {
            ranks[pair[1]] = ranks[pair[0]] + usize::from(shapes[pair[0]] != shapes[pair[1]]);
        }
        Self { by_pod: of_pods.into_iter().map(|shape| (sizes[shape], ranks[shape])).collect() }
    }

    fn compare(&self, pods: &[Arc<Pod>], one: usize, other: usize) -> Ordering {
        let ((size, rank), (other_size, other_rank)) = (self.by_pod[one], self.by_pod[other]);
        let (one, other) = (&pods[one], &pods[other]);
        other_size
            .cmp(&size)
            .then_with(|| age(one).cmp(&age(other)))
            .then(rank.cmp(&other_rank))
            .then_with(|| name(one).cmp(&name(other)))
    }
}

fn size(pod: &Pod) -> (Millicores, Bytes) {
    (pod.shape.requests.cpu(), pod.shape.requests.memory())
}

impl Search<'_, '_> {
    pub(super) fn ordered(&mut self) -> Vec<usize> {
        let pods = self.request.pods;
        let mut order: Vec<usize> = match &self.waiting {
            Some(waiting) => waiting.to_vec(),
            None => (0..pods.len()).collect(),
        };
        let companies = if self.turn.by == By::Company { self.companies() } else { FastMap::default() };
        let choices = if self.turn.by == By::Choice { self.choices() } else { FastMap::default() };
        let company = |pod: usize| companies.get(&self.demands[pod]);
        let choice = |pod: usize| choices.get(&self.demands[pod]);
        let grievance = |pod: usize| self.grievances.get(&pods[pod].key).copied().unwrap_or_default();
        let sizes = Sizes::of(pods, self.turn.by);
        // Runs that are in order already cost next to nothing.
        order.sort_by(|one, other| {
            let importance = self.turn.importance(&pods[*one], &pods[*other]);
            let company = || company(*one).cmp(&company(*other));
            let choice = || choice(*one).cmp(&choice(*other));
            let grievance = || grievance(*other).cmp(&grievance(*one));
            let size = || sizes.compare(pods, *one, *other);
            importance.then_with(company).then_with(choice).then_with(grievance).then_with(size)
        });
        match self.turn.by {
            By::Turns => self.take_turns(&mut order),
            By::Chance(seed) => self.take_chances(&mut order, seed),
            _ => {}
        }
        order
    }

    /// What pods are called plays no part in it: chance is drawn in the order in which they are.
    fn take_chances(&self, order: &mut [usize], seed: u8) {
        let pods = self.request.pods;
        let mut chance = ChaCha8Rng::seed_from_u64(seed.into());
        let mut sizes: FastMap<usize, i64> = FastMap::default();
        for pod in order.iter() {
            let (Millicores(cpu), Bytes(memory)) = size(&pods[*pod]);
            let amount = if seed.is_multiple_of(2) { cpu } else { memory };
            let part = 512 + (chance.next_u64() % 512) as i64;
            sizes.insert(
                *pod,
                (amount / 1024).saturating_mul(part).saturating_add(amount % 1024 * part / 1024),
            );
        }
        order.sort_by(|one, other| {
            let importance = self.turn.importance(&pods[*one], &pods[*other]);
            importance.then_with(|| sizes[other].cmp(&sizes[one]))
        });
    }

    /// Puts those first of whose kind fewer came before, among those that ask for as much.
    fn take_turns(&self, order: &mut [usize]) {
        let pods = self.request.pods;
        let mut met: FastMap<DemandId, usize> = FastMap::default();
        let mut before: FastMap<usize, usize> = FastMap::default();
        for pod in order.iter() {
            let met = met.entry(self.demands[*pod]).or_default();
            before.insert(*pod, *met);
            *met += 1;
        }
        order.sort_by(|one, other| {
            let size = |pod: usize| size(&pods[pod]);
            let importance = self.turn.importance(&pods[*one], &pods[*other]);
            importance
                .then_with(|| size(*other).cmp(&size(*one)))
                .then_with(|| before[one].cmp(&before[other]))
        });
    }

    /// In how many ways a node can be bought for a pod of each demand alone.
    fn choices(&mut self) -> FastMap<DemandId, usize> {
        let waiting: BTreeSet<DemandId> = self.demands.iter().copied().collect();
        waiting.into_iter().map(|id| (id, self.choice(id))).collect()
    }

    /// By what it asks of nodes itself: a rule about other pods only says which of them comes first. None at all is no choice: it waits
    /// for ever.
    fn choice(&mut self, id: DemandId) -> usize {
        let demand = self.ground.demands.get(id);
        let Ok(volumes) = &demand.volumes else { return usize::MAX };
        let mut at = 0;
        while let Some(level) = self.level(&demand, at) {
            let guest = Guest { demand: &demand, level: &level, volumes, stances: &[] };
            let ways = (0..self.ground.templates.len()).map(|index| {
                let Ok((_, admission)) = self.open_bin(index, &guest) else { return 0 };
                let open = &self.ground.outlooks.get(admission.outlook()).open;
                self.ground.templates[index].with_room(open, &demand.requests).count_ones(..)
            });
            match ways.sum() {
                0 => at += 1,
                count => return count,
            }
        }
        usize::MAX
    }

    fn companies(&mut self) -> FastMap<DemandId, Company> {
        let waiting: BTreeSet<DemandId> = self.demands.iter().copied().collect();
        let waiting: Vec<Arc<Demand>> = waiting.into_iter().map(|id| self.ground.demands.get(id)).collect();
        let follows = |demand: &Demand| !demand.shape.affinity_required.is_empty();
        let mut rules: BTreeSet<RuleId> = BTreeSet::new();
        for demand in waiting.iter().filter(|demand| follows(demand)) {
            let owned =
                self.level(demand, 0).map(|level| level.owned.iter().map(|(rule, _)| *rule).collect());
            let owned: Vec<RuleId> = owned.unwrap_or_default();
            rules.extend(owned.into_iter().filter(|rule| self.ground.book.is_of_nearness(*rule)));
        }
        let company = |demand: &Arc<Demand>| {
            let is_led = |rule: &RuleId| self.ground.book.selects(*rule, demand.standing.class);
            let company = match () {
                () if rules.iter().any(is_led) => Company::Leads,
                () if follows(demand) => Company::Follows,
                () => Company::None,
            };
            (demand.id, company)
        };
        waiting.iter().map(company).collect()
    }
}
