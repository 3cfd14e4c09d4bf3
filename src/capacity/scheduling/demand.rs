//! Pods that differ in nothing that matters, and what they ask for with fewer and fewer wishes.

use std::sync::Arc;

use super::PreferencePolicy;
use super::amounts::{Amounts, Columns};
use super::marks::Marks;
use super::pods::{full_and_strict, required_alternatives};
use super::relax;
use super::room::Room;
use super::topology::{Asked, RuleBook, RuleId, Standing};
use super::volumes::{PodVolumes, VolumeFault, volumes_of};
use crate::capacity::cluster::Cluster;
use crate::model::hash::FastMap;
use crate::model::pod::{Pod, PodShape};
use crate::model::requirement::Requirements;

pub(super) type DemandId = usize;
pub(super) type LevelId = usize;

pub(super) struct Demand {
    pub id: DemandId,
    pub shape: Arc<PodShape>,
    pub requests: Amounts,
    /// Demands with the same requests have the same number.
    pub size: usize,
    pub volumes: Result<PodVolumes, VolumeFault>,
    /// What it wants of nodes before any of them is given up: one of these.
    pub alternatives: Arc<[Requirements]>,
    /// Runs nowhere, or its node is going away.
    pub is_homeless: bool,
    pub standing: Standing,
}

/// One state of a demand's wishes.
pub(super) struct Level {
    pub id: LevelId,
    pub shape: Arc<PodShape>,
    pub full: Requirements,
    pub strict: Requirements,
    /// Those of the demand.
    pub alternatives: Arc<[Requirements]>,
    /// Each with whether it selects the pod itself.
    pub owned: Vec<(RuleId, bool)>,
}

impl Level {
    pub fn asked(&self) -> Asked<'_> {
        Asked { strict: &self.strict, alternatives: &self.alternatives }
    }
}

/// What makes two pods the same: shape, volumes, and whether they have no place to stay.
type Content = (Arc<PodShape>, Result<PodVolumes, VolumeFault>, bool);

/// All that were met so far in one picture of the cluster.
#[derive(Default)]
pub(super) struct Demands {
    all: Vec<Arc<Demand>>,
    by_address: FastMap<(usize, bool), (Arc<PodShape>, DemandId)>,
    by_content: FastMap<Content, DemandId>,
    sizes: FastMap<Amounts, usize>,
    /// Of each demand, as far as anybody had to look.
    levels: Vec<Vec<Arc<Level>>>,
    /// By level, of existing nodes as they were found: which were asked, and which refused.
    asked: Vec<(Marks, Marks)>,
}

impl Demands {
    pub fn get(&self, id: DemandId) -> Arc<Demand> {
        self.all[id].clone()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn of(
        &mut self,
        cluster: &Cluster,
        pod: &Pod,
        is_homeless: bool,
        columns: &Columns,
        book: &mut RuleBook,
        rooms: &[Room],
    ) -> DemandId {
        let address = (Arc::as_ptr(&pod.shape) as usize, is_homeless);
        let has_volumes = !pod.shape.volumes.is_empty();
        if let Some((_, known)) = self.by_address.get(&address).filter(|_| !has_volumes) {
            return *known;
        }
        let volumes = if has_volumes { volumes_of(cluster, pod) } else { Ok(PodVolumes::default()) };
        let content = (pod.shape.clone(), volumes.clone(), is_homeless);
        let id = match self.by_content.get(&content) {
            Some(known) => *known,
            None => {
                let mut requests = columns.row(&pod.shape.requests);
                columns.attach(volumes.iter().flat_map(|volumes| &volumes.attached), &mut requests);
                let next = self.sizes.len();
                let size = *self.sizes.entry(requests.clone()).or_insert(next);
                let standing = book.standing_of(cluster, rooms, &pod.shape);
                self.all.push(Arc::new(Demand {
                    id: self.all.len(),
                    shape: pod.shape.clone(),
                    requests,
                    size,
                    volumes,
                    alternatives: required_alternatives(&pod.shape).into(),
                    is_homeless,
                    standing: book.standing(standing).clone(),
                }));
                self.levels.push(Vec::new());
                self.by_content.insert(content, self.all.len() - 1);
                self.all.len() - 1
            }
        };
        if !has_volumes {
            self.by_address.insert(address, (pod.shape.clone(), id));
        }
        id
    }

    /// The wishes of `demand` after `level` were given up.
    #[expect(
        clippy::too_many_arguments,
        reason = "the rules that a level has are looked up in the whole picture"
    )]
    pub fn level(
        &mut self,
        demand: &Demand,
        level: usize,
        policy: PreferencePolicy,
        has_soft_taints: bool,
        cluster: &Cluster,
        book: &mut RuleBook,
        rooms: &[Room],
    ) -> Option<Arc<Level>> {
        let levels = &mut self.levels[demand.id];
        if let Some(known) = levels.get(level) {
            return Some(known.clone());
        }
        let shape = match levels.last() {
            None => relax::first_try(&demand.shape, policy),
            Some(last) => {
                let first = &levels[0].shape;
                let next = relax::relaxed(&last.shape, has_soft_taints);
                Arc::new(next.or_else(|| relax::with_earlier_term(first, &last.shape))?)
            }
        };
        let (full, strict) = full_and_strict(&shape);
        let owned = book.owned(cluster, rooms, &shape, &demand.alternatives);
        let alternatives = demand.alternatives.clone();
        levels.push(Arc::new(Level { id: self.asked.len(), shape, full, strict, alternatives, owned }));
        self.asked.push(Default::default());
        levels.last().cloned()
    }

    /// Whether nothing about other pods, and no volume, matters to pods of `demand`, as far as they say so themselves.
    pub fn is_plain(&self, demand: &Demand) -> bool {
        demand.shape.volumes.is_empty()
            && demand.standing.shuns.is_empty()
            && self.levels[demand.id].iter().all(|level| level.owned.is_empty())
    }

    /// Nobody has asked the node with this number yet.
    pub fn forget_room(&mut self, room: usize) {
        for (asked, refused) in &mut self.asked {
            asked.remove(room);
            refused.remove(room);
        }
    }

    /// Of existing nodes as they were found: which a pod of `level` asked, and which refused.
    pub fn asked(&mut self, level: LevelId) -> &mut (Marks, Marks) {
        &mut self.asked[level]
    }
}
