//! Pods that differ in nothing that matters, and what they ask for with fewer and fewer wishes.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::PreferencePolicy;
use super::amounts::{Amounts, Columns};
use super::marks::Marks;
use super::pods::full_and_strict;
use super::relax;
use super::room::Room;
use super::topology::{RuleBook, RuleId, Standing};
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
    /// Runs nowhere, or its node is going away.
    pub is_homeless: bool,
    pub standing: Standing,
    /// As far as anybody had to look.
    levels: RefCell<Vec<Rc<Level>>>,
    /// Rules of others that keep it away, and how many rules of that kind were looked at.
    shunned: RefCell<(Rc<Vec<RuleId>>, usize)>,
}

/// One state of a demand's wishes.
pub(super) struct Level {
    pub id: LevelId,
    pub shape: Arc<PodShape>,
    pub full: Requirements,
    pub strict: Requirements,
    /// Each with whether it selects the pod itself.
    pub owned: Vec<(RuleId, bool)>,
    /// Of existing nodes as they were found: which were asked, and which refused.
    pub asked: RefCell<(Marks, Marks)>,
}

/// All that were met so far in one picture of the cluster.
#[derive(Default)]
pub(super) struct Demands {
    all: Vec<Rc<Demand>>,
    by_address: FastMap<(usize, bool), (Arc<PodShape>, DemandId)>,
    by_content: FastMap<(Arc<PodShape>, Option<PodVolumes>, bool), DemandId>,
    sizes: FastMap<Amounts, usize>,
    levels: usize,
}

impl Demands {
    pub fn get(&self, id: DemandId) -> Rc<Demand> {
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
        let content = (pod.shape.clone(), volumes.as_ref().ok().cloned(), is_homeless);
        let id = match self.by_content.get(&content) {
            Some(known) => *known,
            None => {
                let requests = columns.row(&pod.shape.requests);
                let next = self.sizes.len();
                let size = *self.sizes.entry(requests.clone()).or_insert(next);
                self.all.push(Rc::new(Demand {
                    id: self.all.len(),
                    shape: pod.shape.clone(),
                    requests,
                    size,
                    volumes,
                    is_homeless,
                    standing: book.standing(cluster, rooms, &pod.shape),
                    levels: RefCell::default(),
                    shunned: RefCell::default(),
                }));
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
    ) -> Option<Rc<Level>> {
        let mut levels = demand.levels.borrow_mut();
        if let Some(known) = levels.get(level) {
            return Some(known.clone());
        }
        let shape = match levels.last() {
            None => relax::first_try(&demand.shape, policy),
            Some(last) => Arc::new(relax::relaxed(&last.shape, has_soft_taints)?),
        };
        let (full, strict) = full_and_strict(&shape);
        let owned = book.owned(cluster, rooms, &shape);
        self.levels += 1;
        let level = Level { id: self.levels - 1, shape, full, strict, owned, asked: RefCell::default() };
        levels.push(Rc::new(level));
        levels.last().cloned()
    }
}

impl Demand {
    /// Rules of others that keep its pods away.
    pub fn shunned(&self, book: &RuleBook) -> Rc<Vec<RuleId>> {
        let mut shunned = self.shunned.borrow_mut();
        if shunned.1 != book.shunning_count() {
            *shunned = (Rc::new(book.shunning(self.standing.class)), book.shunning_count());
        }
        shunned.0.clone()
    }
}
