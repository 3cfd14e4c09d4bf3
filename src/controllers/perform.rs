//! Carrying out: one match over the closed list of actions, and what came of each as an observation.
//!
//! Actions about one machine, its claim, its node and the pods on it, are carried out one after the other, as they were decided;
//! machines do not wait for each other. An object that cannot be written ends its row: what was decided after it may rely on it, up to the
//! moment in which whoever decides hears of it.

mod cloud;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indexmap::IndexMap;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::capacity::cluster::Cluster;
use crate::capacity::decision::Planned;
use crate::capacity::disruption::command::replacements_in;
use crate::io::clock;
use crate::io::cloud::CloudProvider;
use crate::io::kube::apply::{Writer, Written};
use crate::io::kube::evict::{Eviction, evict};
use crate::io::kube::lease::Permit;
use crate::io::kube::{Change, Kind, KubeError, events};
use crate::model::action::{Action, ClaimChange, NodeChange, Subject};
use crate::model::claim::NodeClaim;
use crate::model::class::NodeClass;
use crate::model::label::Labels;
use crate::model::name::{ClaimName, ClassName, Namespace, NodeName, ObjectKey, PoolName, ProviderId, Uid};
use crate::model::observation::Observation;
use crate::model::symbol::Symbol;

/// Objects written at once. More keep an API server that is short of processors no busier, and everybody else waits the longer for
/// it: kube-scheduler for each pod that it finds no place for.
const WIDTH: usize = 16;
/// So many reports among them while machines and open nodes are waited for.
const YIELDING: usize = 4;
/// Claims made at once. Everything else waits for machines, so they may have more of an API server that is short of processors than others.
const PURCHASES: usize = 64;
/// So long most of what else is written waits for them, from the first on: nothing begins before they are there. 700 take five seconds and
/// more while kube-controller-manager makes thousands of pods (performance.md).
const PURCHASES_FIRST: Duration = Duration::from_secs(5);
/// Nominations at once, first and repeated ones each, and openings of nodes: none of them waits for what others ask.
const OPENINGS: usize = 16;
/// Events at once: people read them, and nothing waits for them.
const NOTICES: usize = 4;
/// Evictions and deletions of pods at once: an API server may take long for one of them.
const EVICTIONS: usize = 32;
/// A nomination that takes longer is left: it is a wish, and kube-scheduler finds a place without it.
const NOMINATION_PATIENCE: Duration = Duration::from_secs(5);
/// Why nothing is done any more.
const ANOTHER_ACTS: &str = "another replica acts now";
/// The status of a pool is written at most so often: while nodes are made it changes with each of them.
const POOL_REST: Duration = Duration::from_secs(1);

/// Which actions wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Row {
    Machine(ClaimName),
    Node(NodeName),
    Instance(ProviderId),
    Pool(PoolName),
    Class(ClassName),
    /// What the cloud has of a class: it may take long to answer, and the object waits for none of it.
    Belongings(ClassName),
    /// All names of machines: nobody waits for them.
    Names,
    Overlay(Symbol),
    Buffer(ObjectKey),
    Pod(ObjectKey),
    Notice(Subject),
}

/// Claims that are yet to be made.
#[derive(Clone, Copy, Debug)]
struct Purchases {
    claims: usize,
    since: Instant,
}

/// One of them.
struct Buying<'a>(&'a watch::Sender<Option<Purchases>>);

impl<'a> Buying<'a> {
    fn one(purchases: &'a watch::Sender<Option<Purchases>>) -> Self {
        purchases.send_modify(|known| {
            known.get_or_insert(Purchases { claims: 0, since: Instant::now() }).claims += 1;
        });
        Self(purchases)
    }
}

impl Drop for Buying<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|known| {
            known.iter_mut().for_each(|purchases| purchases.claims -= 1);
            *known = known.filter(|purchases| purchases.claims > 0);
        });
    }
}

/// Until none is to be made, or some have been for too long.
async fn purchases_first(purchases: &watch::Sender<Option<Purchases>>) {
    let mut known = purchases.subscribe();
    let since = known.borrow().map(|purchases| purchases.since);
    if let Some(since) = since {
        // Either way it goes on.
        let _ = tokio::time::timeout_at(since + PURCHASES_FIRST, known.wait_for(Option::is_none)).await;
    }
}

/// What somebody waits for is under way: reports have less of the API server meanwhile.
struct Urgent<'a>(&'a watch::Sender<usize>);

impl<'a> Urgent<'a> {
    fn one(action: &Action, urgent: &'a watch::Sender<usize>) -> Option<Self> {
        let is_urgent = match action {
            Action::CreateClaim(_) | Action::NominatePod { before_opening: true, .. } => true,
            Action::UpdateNode { change, .. } => change.opens(),
            _ => false,
        };
        is_urgent.then(|| {
            urgent.send_if_modified(|urgent| {
                *urgent += 1;
                false
            });
            Self(urgent)
        })
    }
}

impl Drop for Urgent<'_> {
    fn drop(&mut self) {
        self.0.send_if_modified(|urgent| {
            *urgent -= 1;
            *urgent == 0
        });
    }
}

/// A turn once few other reports are under way, or nothing is waited for any more.
async fn turn_among_reports<'a>(
    yielding: &'a Semaphore,
    urgent: &watch::Sender<usize>,
) -> Option<SemaphorePermit<'a>> {
    let mut urgent = urgent.subscribe();
    tokio::select! {
        biased;
        _ = urgent.wait_for(|urgent| *urgent == 0) => None,
        turn = yielding.acquire() => turn.ok(),
    }
}

/// An object that is written, so that older news of it is not believed meanwhile.
pub(super) type ObjectId = (Kind, ObjectKey);

/// What comes back.
#[derive(Debug)]
pub(super) enum Answer {
    /// An object as the API server answered.
    Changed(Box<Change>),
    Observed(Observation),
    Done(Done),
}

/// A row of actions is through.
#[derive(Debug)]
pub(super) struct Done {
    /// What was written, or not.
    pub objects: Vec<ObjectId>,
    /// What could not be done.
    pub failed: Vec<Observation>,
    pub broken: Option<Broken>,
}

/// An object could not be written. What was decided for its row before that was known must not begin ([`Performer::break_off`]).
#[derive(Debug)]
pub(super) struct Broken {
    row: Row,
    why: String,
    /// The row waits until this is gone.
    _known: oneshot::Sender<()>,
}

/// One action with what was known when it was decided.
struct Job {
    action: Action,
    claim: Option<Arc<NodeClaim>>,
    class: Option<Arc<NodeClass>>,
    uid: Option<Uid>,
    /// Of a pod that is evicted: what it asks for itself, in seconds.
    grace: Option<u32>,
    /// Who waits until this is written.
    tells: Vec<oneshot::Sender<()>>,
    /// What has to be written before.
    waits_for: Vec<oneshot::Receiver<()>>,
}

/// What has yet to begin in a row, in its order.
type Queue = Arc<Mutex<VecDeque<Job>>>;

/// The next one.
fn begin(queue: &Queue) -> Option<Job> {
    queue.lock().expect("no holder of a row panics").pop_front()
}

/// The next ones, as long as they are such.
fn begin_all(queue: &Queue, are_such: fn(&Action) -> bool) -> Vec<Job> {
    let mut queue = queue.lock().expect("no holder of a row panics");
    let end = queue.iter().position(|job| !are_such(&job.action)).unwrap_or(queue.len());
    queue.drain(..end).collect()
}

/// A replacement is made once the nodes that it replaces name it: after a crash it would be made again otherwise.
#[derive(Default)]
struct Marks(HashMap<ClaimName, Vec<oneshot::Receiver<()>>>);

impl Marks {
    /// Who waits until a node's claim, which gets `annotations`, names what replaces it.
    fn made_by(&mut self, annotations: &Labels) -> Vec<oneshot::Sender<()>> {
        let mut tells = Vec::new();
        for replacement in replacements_in(annotations) {
            let (teller, mark) = oneshot::channel();
            tells.push(teller);
            self.0.entry(replacement).or_default().push(mark);
        }
        tells
    }

    /// What `claim` waits for before it is made.
    fn before(&mut self, claim: ClaimName) -> Vec<oneshot::Receiver<()>> {
        self.0.remove(&claim).unwrap_or_default()
    }
}

impl Job {
    /// Whether all came that it waits for.
    async fn may_begin(&mut self) -> bool {
        for mark in self.waits_for.drain(..) {
            if mark.await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Carries out actions for one cloud and one cluster.
pub(super) struct Performer<P> {
    hands: Arc<Hands<P>>,
    waiting: IndexMap<Row, VecDeque<Job>>,
    running: JoinSet<Row>,
    /// Rows that are under way, and what has yet to begin there.
    busy: HashMap<Row, Queue>,
    nominations: Pace,
}

/// Where a pod is expected is told of the first pods of many: a burst, then so many a second, as in Karpenter.
const NOMINATED: &str = "Nominated";
const NOMINATED_BURST: usize = 10;
const NOMINATED_PERIOD: SignedDuration = SignedDuration::from_secs(2);

/// When the last things were told that are told only so often.
#[derive(Default)]
struct Pace(VecDeque<Timestamp>);

impl Pace {
    /// Whether one more may be told now: then it counts as told.
    fn allows(&mut self, now: Timestamp) -> bool {
        while self.0.front().is_some_and(|at| now.duration_since(*at) >= NOMINATED_PERIOD) {
            self.0.pop_front();
        }
        let is_allowed = self.0.len() < NOMINATED_BURST;
        if is_allowed {
            self.0.push_back(now);
        }
        is_allowed
    }
}

struct Hands<P> {
    writer: Writer,
    provider: Arc<P>,
    permit: Permit,
    width: Semaphore,
    purchases: Semaphore,
    buying: watch::Sender<Option<Purchases>>,
    yielding: Semaphore,
    /// How much of what somebody waits for is under way.
    urgent: watch::Sender<usize>,
    openings: Semaphore,
    nominations: Semaphore,
    renominations: Semaphore,
    notices: Semaphore,
    evictions: Semaphore,
    answers: mpsc::UnboundedSender<Answer>,
}

impl<P: CloudProvider> Performer<P> {
    pub fn new(
        writer: Writer,
        provider: Arc<P>,
        permit: Permit,
        answers: mpsc::UnboundedSender<Answer>,
    ) -> Self {
        let hands = Arc::new(Hands {
            writer,
            provider,
            permit,
            width: Semaphore::new(WIDTH),
            purchases: Semaphore::new(PURCHASES),
            buying: watch::Sender::new(None),
            yielding: Semaphore::new(YIELDING),
            urgent: watch::Sender::new(0),
            openings: Semaphore::new(OPENINGS),
            nominations: Semaphore::new(OPENINGS),
            renominations: Semaphore::new(OPENINGS),
            notices: Semaphore::new(NOTICES),
            evictions: Semaphore::new(EVICTIONS),
            answers,
        });
        Self {
            hands,
            waiting: IndexMap::new(),
            running: JoinSet::new(),
            busy: HashMap::new(),
            nominations: Pace::default(),
        }
    }

    /// Takes what was decided; tells which objects will be written.
    pub fn take(&mut self, actions: Vec<Planned>, cluster: &Cluster) -> Vec<ObjectId> {
        let mut objects = Vec::new();
        let mut marks = Marks::default();
        for planned in actions {
            let action = planned.action;
            if let Action::Publish(notice) = &action
                && &*notice.reason == NOMINATED
                && !self.nominations.allows(clock::now())
            {
                continue;
            }
            let row = row_of(&action, cluster);
            let object = written_by(&action);
            let claim = match &action {
                Action::Launch { claim, .. } => cluster.claims.get(claim).cloned(),
                _ => None,
            };
            let class = match &action {
                Action::ResolveClass { class } | Action::ClearClass { class, .. } => Some(*class),
                _ => claim.as_ref().map(|claim| claim.spec.class.name),
            };
            let class = class.and_then(|class| cluster.classes.get(&class)).cloned();
            let uid = match &action {
                Action::Publish(notice) => self.uid_of(notice.subject, cluster),
                _ => None,
            };
            let grace = match &action {
                Action::Evict { pod, .. } => {
                    cluster.pods.get(pod).map(|pod| pod.shape.termination_grace_seconds)
                }
                _ => None,
            };
            let (tells, waits_for) = match &action {
                Action::UpdateClaim { change, .. } => (marks.made_by(&change.annotations), Vec::new()),
                Action::CreateClaim(claim) => (Vec::new(), marks.before(claim.name)),
                _ => Default::default(),
            };
            if tells.is_empty() && waits_for.is_empty() && self.awaits_its_turn(row, &action) {
                continue;
            }
            let queue = self.waiting.entry(row).or_default();
            let job = Job { action, claim, class, uid, grace, tells, waits_for };
            // What was merged into another request is through with that one.
            if let Some(job) = absorb(queue, job) {
                queue.push_back(job);
                objects.extend(object);
            }
        }
        self.start();
        objects
    }

    fn uid_of(&self, subject: Subject, cluster: &Cluster) -> Option<Uid> {
        match subject {
            Subject::Pool(name) => cluster.pools.get(&name).map(|pool| pool.uid),
            Subject::Class(name) => {
                let key = ObjectKey { namespace: Namespace::new(""), name: name.0 };
                self.hands.writer.uid_of(Kind::NodeClass, key)
            }
            Subject::Claim(name) => cluster.claims.get(&name).map(|claim| claim.uid),
            Subject::Node(name) => cluster.nodes.get(&name).map(|node| node.uid),
            Subject::Pod(key) => cluster.pods.get(&key).map(|pod| pod.uid),
        }
    }

    /// Whether the same has yet to come to its turn: where the API server is slow it is decided again.
    fn awaits_its_turn(&self, row: Row, action: &Action) -> bool {
        let is_in = |queue: &VecDeque<Job>| queue.iter().any(|job| job.action == *action);
        let is_busy = |queue: &Queue| is_in(&queue.lock().expect("no holder of a row panics"));
        self.waiting.get(&row).is_some_and(is_in) || self.busy.get(&row).is_some_and(is_busy)
    }

    /// What waits in a row that broke, and relied on what was not written: these objects are not written either, and this failed. A
    /// machine that is not wanted costs money, whatever went wrong.
    pub fn break_off(&mut self, broken: &Broken) -> (Vec<ObjectId>, Vec<Observation>) {
        let Some(jobs) = self.waiting.shift_remove(&broken.row) else { return Default::default() };
        let (kept, void): (VecDeque<Job>, VecDeque<Job>) =
            jobs.into_iter().partition(|job| matches!(job.action, Action::Terminate { .. }));
        if !kept.is_empty() {
            self.waiting.insert(broken.row, kept);
        }
        let objects = void.iter().filter_map(|job| written_by(&job.action)).collect();
        (objects, void.iter().filter_map(|job| failure_of(&job.action, &broken.why)).collect())
    }

    /// Waits for a row to come to its end, and starts what waited for it.
    pub async fn tend(&mut self) {
        match self.running.join_next().await {
            Some(Ok(row)) => drop(self.busy.remove(&row)),
            Some(Err(error)) => tracing::error!("an action was not carried out: {error}"),
            None => std::future::pending().await,
        }
        self.start();
    }

    fn start(&mut self) {
        // The first to come is begun first; which of several the runtime takes up first is its own affair.
        let waiting = std::mem::take(&mut self.waiting);
        let (busy, ready): (IndexMap<_, _>, IndexMap<_, _>) =
            waiting.into_iter().partition(|(row, _)| self.busy.contains_key(row));
        self.waiting = busy;
        for (row, jobs) in ready {
            let jobs = Queue::new(jobs.into());
            self.busy.insert(row, jobs.clone());
            let hands = self.hands.clone();
            self.running.spawn(async move {
                hands.carry_out(row, &jobs).await;
                if matches!(row, Row::Pool(_)) {
                    tokio::time::sleep(POOL_REST).await;
                }
                row
            });
        }
    }
}

impl<P: CloudProvider> Hands<P> {
    async fn carry_out(self: &Arc<Self>, row: Row, jobs: &Queue) {
        let (mut objects, mut failed) = (Vec::new(), Vec::new());
        let mut broken: Option<String> = None;
        while let Some(job) = begin(jobs) {
            if is_about_a_pod(&job.action) && broken.is_none() {
                // Pods do not wait for each other, and nothing waits for them: an API server may take long to say that a budget is full,
                // and whoever is to be gone by a deadline has to be told all the same.
                for job in std::iter::once(job).chain(begin_all(jobs, is_about_a_pod)) {
                    drop(tokio::spawn(self.clone().perform_alone(job)));
                }
                continue;
            }
            objects.extend(written_by(&job.action));
            if broken.is_none() && !self.permit.is_valid() {
                broken = Some(ANOTHER_ACTS.into());
            }
            // A machine that is not wanted costs money, whatever else went wrong.
            let goes_on = matches!(job.action, Action::Terminate { .. }) && self.permit.is_valid();
            if let Some(why) = broken.as_ref().filter(|_| !goes_on) {
                failed.extend(failure_of(&job.action, why));
                continue;
            }
            let mut job = job;
            if let Err(why) = self.perform(&mut job).await {
                failed.extend(failure_of(&job.action, &why));
                broken = broken.or_else(|| written_by(&job.action).map(|_| why));
            }
        }
        let (known, is_known) = oneshot::channel();
        let broken = broken.map(|why| Broken { row, why, _known: known });
        let is_broken = broken.is_some();
        drop(self.answers.send(Answer::Done(Done { objects, failed, broken })));
        if is_broken {
            // Whoever decides drops its end, or is gone.
            let _ = is_known.await;
        }
    }

    async fn perform_alone(self: Arc<Self>, mut job: Job) {
        let done = match self.permit.is_valid() {
            true => self.perform(&mut job).await,
            false => Err(ANOTHER_ACTS.into()),
        };
        if let Err(why) = done {
            failure_of(&job.action, &why).into_iter().for_each(|failed| self.see(failed));
        }
    }

    /// One action when it has its turn; or why it could not be done.
    async fn perform(&self, job: &mut Job) -> Result<(), String> {
        if !job.may_begin().await {
            return Err("what it replaces could not be marked".into());
        }
        let _buying = matches!(&job.action, Action::CreateClaim(_)).then(|| Buying::one(&self.buying));
        let _urgent = Urgent::one(&job.action, &self.urgent);
        let turns = match &job.action {
            // A cloud takes its time, and nobody else's.
            Action::Launch { .. } | Action::Terminate { .. } | Action::NameMachine { .. } => None,
            Action::ResolveClass { .. } | Action::ClearClass { .. } => None,
            Action::CreateClaim(_) => Some(&self.purchases),
            // Others take its room meanwhile.
            Action::NominatePod { before_opening: false, .. } => Some(&self.renominations),
            Action::NominatePod { .. } => Some(&self.nominations),
            action if is_about_a_pod(action) => Some(&self.evictions),
            Action::UpdateNode { change, .. } if change.opens() => Some(&self.openings),
            action => {
                purchases_first(&self.buying).await;
                Some(if matches!(action, Action::Publish(_)) { &self.notices } else { &self.width })
            }
        };
        let _yielding = match is_report(&job.action) {
            true => turn_among_reports(&self.yielding, &self.urgent).await,
            false => None,
        };
        let _turn = match turns {
            Some(turns) => turns.acquire().await.ok(),
            None => None,
        };
        let writer = &self.writer;
        let answer = match &job.action {
            Action::CreateClaim(claim) => self.told(writer.create_claim(claim).await),
            Action::DeleteClaim { claim } => self.told(writer.delete_claim(*claim).await),
            Action::UpdateClaim { claim, change } => self.told(writer.change_claim(*claim, change).await),
            Action::FinalizeClaim { claim } => self.told(writer.finalize_claim(*claim).await),
            Action::Launch { .. } => {
                self.launch(job).await;
                Ok(())
            }
            Action::Terminate { instance } => {
                self.terminate(*instance).await;
                Ok(())
            }
            Action::NameMachine { claim, machine, node } => {
                self.name(*claim, *machine, *node).await;
                Ok(())
            }
            Action::HoldClass { class, what } => self.told(writer.hold_class(*class, *what).await),
            Action::ResolveClass { class } => {
                self.resolve(*class, job.class.take()).await;
                Ok(())
            }
            Action::ClearClass { class, holding } => self.clear(*class, job.class.take(), *holding).await,
            Action::UpdateNode { node, change } => self.told(writer.change_node(*node, change).await),
            Action::DeleteNode { node } => self.told(writer.delete_node(*node).await),
            Action::FinalizeNode { node } => self.told(writer.finalize_node(*node).await),
            Action::NominatePod { pod, uid, node, .. } => {
                match tokio::time::timeout(NOMINATION_PATIENCE, writer.nominate_pod(*pod, *uid, *node)).await
                {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!("a pod was not told its node: {error}"),
                    Err(_) => tracing::debug!("a pod was not told its node in time"),
                }
                Ok(())
            }
            Action::Evict { pod, uid } => match evict(writer.kube(), *pod, *uid, job.grace).await {
                Ok(Eviction::Granted) => {
                    self.see(Observation::Evicted { pod: *pod });
                    Ok(())
                }
                // The watch tells when it goes, or went.
                Ok(Eviction::Gone) => Ok(()),
                Ok(Eviction::Blocked(why, message)) => {
                    self.see(Observation::EvictionBlocked { pod: *pod, why, message: message.into() });
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Action::DeletePod { pod, uid, grace } => {
                let seconds = u32::try_from(grace.as_secs().max(0)).unwrap_or(u32::MAX);
                writer.delete_pod(*pod, *uid, seconds).await
            }
            Action::UpdatePool { pool, change } => self.told(writer.change_pool(*pool, change).await),
            Action::UpdateOverlay { overlay, conditions } => {
                self.told(writer.change_overlay(*overlay, conditions).await)
            }
            Action::UpdateBuffer { buffer, status } => writer.change_buffer(*buffer, status).await,
            Action::Publish(notice) => {
                // Nobody is told twice; whoever was not told finds the reason on the object.
                if let Err(error) = events::publish(writer.kube(), notice, job.uid, clock::now()).await {
                    tracing::debug!("an event was lost: {error}");
                }
                Ok(())
            }
        };
        answer.map_err(|error| error.to_string())?;
        for teller in job.tells.drain(..) {
            // Who waited may have given up.
            let _ = teller.send(());
        }
        Ok(())
    }

    fn told(&self, written: Written) -> Result<(), KubeError> {
        if let Some(change) = written? {
            drop(self.answers.send(Answer::Changed(Box::new(change))));
        }
        Ok(())
    }

    fn see(&self, seen: Observation) {
        drop(self.answers.send(Answer::Observed(seen)));
    }
}

/// That `action` could not be done, for whoever decided it.
fn failure_of(action: &Action, why: &str) -> Option<Observation> {
    let subject = subject_of(action)?;
    tracing::warn!("{subject}: {why}");
    Some(Observation::ActionFailed { subject: subject.into(), message: why.into() })
}

fn is_about_a_pod(action: &Action) -> bool {
    matches!(action, Action::Evict { .. } | Action::DeletePod { .. })
}

/// Whether it only says how things are: people read that, and whoever takes over.
fn is_report(action: &Action) -> bool {
    match action {
        Action::UpdateClaim { change, .. } => change.is_report(),
        Action::UpdatePool { .. } | Action::UpdateOverlay { .. } | Action::UpdateBuffer { .. } => true,
        _ => false,
    }
}

/// The object that an action writes.
fn written_by(action: &Action) -> Option<ObjectId> {
    let key = |name: Symbol| ObjectKey { namespace: Namespace::new(""), name };
    match action {
        Action::CreateClaim(claim) => Some((Kind::NodeClaim, key(claim.name.0))),
        Action::DeleteClaim { claim }
        | Action::UpdateClaim { claim, .. }
        | Action::FinalizeClaim { claim } => Some((Kind::NodeClaim, key(claim.0))),
        Action::UpdateNode { node, .. } | Action::DeleteNode { node } | Action::FinalizeNode { node } => {
            Some((Kind::Node, key(node.0)))
        }
        Action::HoldClass { class, .. } => Some((Kind::NodeClass, key(class.0))),
        _ => None,
    }
}

/// What a failed action was about: its last word is the name of the object that was to be written.
fn subject_of(action: &Action) -> Option<String> {
    if let Some((kind, key)) = written_by(action) {
        return Some(format!("{} {}", kind.resource().kind, key.name));
    }
    match action {
        Action::Evict { pod, .. } | Action::DeletePod { pod, .. } => Some(format!("Pod {pod}")),
        Action::ResolveClass { class } | Action::ClearClass { class, .. } => {
            Some(format!("EC2NodeClass {class}"))
        }
        Action::UpdatePool { pool, .. } => Some(format!("NodePool {pool}")),
        Action::UpdateOverlay { overlay, .. } => Some(format!("NodeOverlay {overlay}")),
        Action::UpdateBuffer { buffer, .. } => Some(format!("CapacityBuffer {buffer}")),
        _ => None,
    }
}

fn row_of(action: &Action, cluster: &Cluster) -> Row {
    let of_node = |name: NodeName| {
        let claim = cluster.nodes.get(&name).and_then(|node| cluster.claim_of(node));
        claim.map_or(Row::Node(name), |claim| Row::Machine(claim.name))
    };
    match action {
        Action::CreateClaim(claim) => Row::Machine(claim.name),
        Action::DeleteClaim { claim }
        | Action::UpdateClaim { claim, .. }
        | Action::FinalizeClaim { claim }
        | Action::Launch { claim, .. } => Row::Machine(*claim),
        Action::Terminate { instance } => cluster
            .claim_by_instance(*instance)
            .map_or(Row::Instance(*instance), |claim| Row::Machine(claim.name)),
        Action::NameMachine { .. } => Row::Names,
        Action::HoldClass { class, .. } => Row::Class(*class),
        Action::ResolveClass { class } | Action::ClearClass { class, .. } => Row::Belongings(*class),
        Action::UpdateNode { node, change } => change.owner.map_or_else(|| of_node(*node), Row::Machine),
        Action::DeleteNode { node } | Action::FinalizeNode { node } => of_node(*node),
        Action::NominatePod { pod, .. } => Row::Pod(*pod),
        // A pod goes only once its node is closed to its successor.
        Action::Evict { pod, .. } | Action::DeletePod { pod, .. } => {
            let node = cluster.pods.get(pod).and_then(|pod| pod.node);
            node.map_or(Row::Pod(*pod), of_node)
        }
        Action::UpdatePool { pool, .. } => Row::Pool(*pool),
        Action::UpdateOverlay { overlay, .. } => Row::Overlay(*overlay),
        Action::UpdateBuffer { buffer, .. } => Row::Buffer(*buffer),
        Action::Publish(notice) => Row::Notice(notice.subject),
    }
}

/// Merges an update into one of the same object that waits just before it, so that both are one request. An update of a
/// node may pass one of its claim, never the other way round: a claim speaks of what was written on its node.
fn absorb(queue: &mut VecDeque<Job>, job: Job) -> Option<Job> {
    for waiting in queue.iter_mut().rev() {
        match (&mut waiting.action, &job.action) {
            (
                Action::UpdateClaim { claim: first, change },
                Action::UpdateClaim { claim: second, change: more },
            ) if first == second => {
                add_claim_change(change, more);
                waiting.tells.extend(job.tells);
                return None;
            }
            (
                Action::UpdateNode { node: first, change },
                Action::UpdateNode { node: second, change: more },
            ) if first == second && more.add_taints.is_empty() && more.remove_taints.is_empty() => {
                add_node_change(change, more);
                return None;
            }
            (
                Action::UpdatePool { pool: first, change },
                Action::UpdatePool { pool: second, change: more },
            ) if first == second => {
                change.conditions = more.conditions.clone().or(change.conditions.take());
                change.used = more.used.clone().or(change.used.take());
                change.stamp = more.stamp.or(change.stamp);
                change.roll_failures = more.roll_failures.or(change.roll_failures);
                return None;
            }
            // What a claim says of its node is written after the node: a successor believes it.
            (Action::UpdateNode { .. }, Action::UpdateClaim { .. }) => return Some(job),
            (Action::UpdateClaim { .. } | Action::UpdateNode { .. }, _) => {}
            _ => return Some(job),
        }
    }
    Some(job)
}

fn add_claim_change(change: &mut ClaimChange, more: &ClaimChange) {
    change.add_finalizer |= more.add_finalizer;
    change.labels.extend(more.labels.iter().map(|(key, value)| (*key, *value)));
    change.annotations.extend(more.annotations.iter().map(|(key, value)| (*key, *value)));
    change.conditions = more.conditions.clone().or(change.conditions.take());
    change.launched = more.launched.clone().or(change.launched.take());
    change.node = more.node.or(change.node);
    change.last_pod_event = more.last_pod_event.or(change.last_pod_event);
}

fn add_node_change(change: &mut NodeChange, more: &NodeChange) {
    change.labels.extend(more.labels.iter().map(|(key, value)| (*key, *value)));
    change.annotations.extend(more.annotations.iter().map(|(key, value)| (*key, *value)));
    change.add_finalizer |= more.add_finalizer;
    change.owner = more.owner.or(change.owner);
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::model::label::annotation;
    use crate::model::taint::Taint;

    fn job(action: Action) -> Job {
        Job {
            action,
            claim: None,
            class: None,
            uid: None,
            grace: None,
            tells: Vec::new(),
            waits_for: Vec::new(),
        }
    }

    fn take(queue: &mut VecDeque<Job>, action: Action) {
        if let Some(job) = absorb(queue, job(action)) {
            queue.push_back(job);
        }
    }

    #[tokio::test]
    async fn what_else_is_written_waits_until_claims_are_made_but_not_for_long() {
        let purchases = watch::Sender::new(None);
        assert!(purchases_first(&purchases).now_or_never().is_some(), "there are none");
        let (one, other) = (Buying::one(&purchases), Buying::one(&purchases));
        drop(one);
        let mut waits = Box::pin(purchases_first(&purchases));
        assert!((&mut waits).now_or_never().is_none(), "one is left");
        drop(other);
        assert!(waits.now_or_never().is_some());
        let begun = Instant::now();
        purchases.send_replace(Some(Purchases { claims: 1, since: begun - PURCHASES_FIRST }));
        purchases_first(&purchases).await;
        assert!(begun.elapsed() < PURCHASES_FIRST, "it has been waited for already");
    }

    #[tokio::test]
    async fn few_reports_are_written_while_nodes_open() {
        let (yielding, urgent) = (Semaphore::new(2), watch::Sender::new(0));
        assert!(turn_among_reports(&yielding, &urgent).await.is_none(), "nobody waits for anything");
        let opens = NodeChange { remove_taints: vec![Taint::unopened()], ..NodeChange::default() };
        let opening = Action::UpdateNode { node: NodeName::new("one"), change: opens };
        let (one, other) = (Urgent::one(&opening, &urgent), Urgent::one(&opening, &urgent));
        let report = ClaimChange { last_pod_event: Some(Timestamp::UNIX_EPOCH), ..ClaimChange::default() };
        let step = ClaimChange { node: Some(NodeName::new("one")), ..report.clone() };
        let of = |change| Action::UpdateClaim { claim: ClaimName::new("one"), change };
        assert!(is_report(&of(report)) && !is_report(&of(step)) && !is_report(&opening));
        let turns =
            [turn_among_reports(&yielding, &urgent).await, turn_among_reports(&yielding, &urgent).await];
        assert!(turns.iter().all(Option::is_some));
        let mut third = Box::pin(turn_among_reports(&yielding, &urgent));
        assert!((&mut third).now_or_never().is_none());
        drop(one);
        assert!((&mut third).now_or_never().is_none(), "one has yet to open");
        drop(other);
        assert!(third.now_or_never().is_some_and(|turn| turn.is_none()), "it goes on beside the others");
    }

    #[tokio::test]
    async fn a_replacement_waits_until_every_node_that_it_replaces_names_it() {
        let new = ClaimName::new("new");
        let named = Labels::from([(*annotation::REPLACED_BY, new.0)]);
        for is_written in [true, false] {
            let mut marks = Marks::default();
            let (first, second) = (marks.made_by(&named), marks.made_by(&named));
            let mut creation = Job {
                waits_for: marks.before(new),
                ..job(Action::DeleteClaim { claim: ClaimName::new("x") })
            };
            let mut begins = std::pin::pin!(creation.may_begin());
            first.into_iter().for_each(|teller| teller.send(()).expect("it listens"));
            assert_eq!(begins.as_mut().now_or_never(), None, "one does not name it yet");
            if is_written {
                second.into_iter().for_each(|teller| teller.send(()).expect("it listens"));
            } else {
                drop(second);
            }
            assert_eq!(begins.await, is_written);
        }
    }

    /// Rows: SCH-932, OBS-008
    #[test]
    fn where_pods_are_expected_is_told_five_times_a_second_after_a_burst() {
        let at = |millis: i64| Timestamp::from_millisecond(1_772_620_200_000 + millis).expect("a moment");
        let mut pace = Pace::default();
        let burst = (0..100).filter(|_| pace.allows(at(0))).count();
        assert_eq!(burst, 10);
        let told = (1..=10_000).step_by(20).filter(|millis| pace.allows(at(*millis))).count();
        assert!((40..=50).contains(&told), "in ten seconds: {told}");
        let mut slow = Pace::default();
        assert!((0..50).all(|step| slow.allows(at(200 * step))), "five a second are all told");
    }

    #[test]
    fn updates_of_one_object_become_one_request_but_never_pass_another_step() {
        let claim = ClaimName::new("a");
        let label = |key: &str| Labels::from([(Symbol::new(key), Symbol::new("x"))]);
        let update = |key: &str| Action::UpdateClaim {
            claim,
            change: ClaimChange { labels: label(key), ..ClaimChange::default() },
        };
        let node = |key: &str| Action::UpdateNode {
            node: NodeName::new("n"),
            change: NodeChange { labels: label(key), ..NodeChange::default() },
        };
        let mut queue = VecDeque::new();
        for action in [node("1"), update("1"), node("2"), update("2")] {
            take(&mut queue, action);
        }
        assert_eq!(queue.len(), 2, "registering and initializing are two requests");
        take(&mut queue, Action::DeleteClaim { claim });
        take(&mut queue, update("3"));
        assert_eq!(queue.len(), 4);
        let Action::UpdateNode { change, .. } = &queue[0].action else { panic!("the node comes first") };
        assert_eq!(change.labels.len(), 2);

        let mut queue = VecDeque::new();
        for action in [update("launched"), node("registered"), update("registered")] {
            take(&mut queue, action);
        }
        assert_eq!(queue.len(), 3, "the claim never says that its node is registered before it is");
    }
}
