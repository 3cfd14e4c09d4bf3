//! Moments at which a process is killed: while it is at work, and what was under way then.
//!
//! A process that dies before it did anything shows nothing. So most do something first, and then die: as soon as a certain
//! thing is under way, or a moment later that looks like chance and is the same in every run. In others chance alone decides.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::bench::{Bench, Running, is_true, text};

/// How long a process may take to begin: another's lease may have to run out before, or a notice be told again.
const PATIENCE: Duration = Duration::from_secs(90);

/// So many seconds deaf pods take to end whose leaving is to be met: it is looked for in three lists that a busy machine takes seconds for.
pub const LINGER: u32 = 4;

/// What is under way in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A pod has no node.
    Waiting,
    /// A claim has no machine.
    Ordered,
    /// A machine was bought, and its claim does not know.
    Bought,
    /// A machine is no node yet.
    Booting,
    /// A node is not open to pods yet.
    Joining,
    /// A node shall go once it is replaced.
    Condemned,
    /// Pods leave a node.
    Draining,
    /// A claim goes, and no pod is on its node any more.
    Ending,
}

/// Kills processes.
pub struct Killer<'b> {
    bench: &'b Bench,
    /// The machines that a cloud knows.
    machines: &'b dyn Fn() -> Vec<Value>,
    chance: u64,
    struck: Vec<BTreeSet<Stage>>,
    /// How many of those that chance struck had written something.
    at_work: usize,
}

impl<'b> Killer<'b> {
    pub fn new(bench: &'b Bench, seed: u64, machines: &'b dyn Fn() -> Vec<Value>) -> Self {
        Self { bench, machines, chance: seed, struck: Vec::new(), at_work: 0 }
    }

    /// At other moments in every run. They are told; the variable `KILLS_SEED` has them again.
    pub fn by_chance(bench: &'b Bench, machines: &'b dyn Fn() -> Vec<Value>) -> Self {
        let given =
            std::env::var("KILLS_SEED").ok().map(|seed| seed.parse().expect("KILLS_SEED is a number"));
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(()));
        eprintln!("moments of KILLS_SEED={seed}");
        Self::new(bench, seed, machines)
    }

    /// Kills `running`, which was started just now, while `stage` is under way, or at a moment of chance after its first
    /// writes and after something is under way.
    #[track_caller]
    pub fn strike(&mut self, running: Running, stage: Option<Stage>) {
        let mut read = 0;
        self.bench.plane.audit_after(&mut read);
        let least = if stage.is_some() { 1 } else { 1 + self.draw(3) as usize };
        let start = Instant::now();
        let mut deeds = 0;
        let under_way = loop {
            deeds += self.bench.deeds_after(&mut read);
            let seen = if deeds < least { BTreeSet::new() } else { self.under_way() };
            if stage.map_or(!seen.is_empty(), |stage| seen.contains(&stage)) {
                break seen;
            }
            let logs = || format!("{seen:?} after {deeds} deeds\n{}", self.bench.logs());
            assert!(start.elapsed() < PATIENCE, "kill {}: not {stage:?}, {}", self.struck.len() + 1, logs());
            std::thread::sleep(Duration::from_millis(30));
        };
        if stage.is_none() {
            std::thread::sleep(Duration::from_millis(self.draw(300)));
        }
        running.kill();
        eprintln!(
            "kill {} after {:?} and {deeds} deeds: {under_way:?}",
            self.struck.len() + 1,
            start.elapsed()
        );
        self.struck.push(under_way);
    }

    /// Kills `running`, which was started just now, while it starts: it reads, asks for the lease, or does what comes first.
    pub fn strike_early(&mut self, running: Running) {
        let after = Duration::from_millis(self.draw(1_500));
        std::thread::sleep(after);
        running.kill();
        eprintln!("killed {after:?} after it was started");
    }

    /// Kills `running`, which was started just now, at a moment that nothing but chance decides: before `longest` after it began, or
    /// so long after its first deed, which comes sooner or later unless there is nothing left to do: `is_over`.
    pub fn strike_at_chance(&mut self, running: Running, longest: Duration, is_over: &dyn Fn() -> bool) {
        let mut read = 0;
        self.bench.plane.audit_after(&mut read);
        let after = Duration::from_millis(self.draw(longest.as_millis() as u64));
        let (start, mut deeds) = (Instant::now(), 0);
        // On a busy machine a process takes all of that time to begin.
        if self.draw(2) == 0 {
            while deeds == 0 && (start.elapsed() < longest || start.elapsed() < PATIENCE && !is_over()) {
                std::thread::sleep(Duration::from_millis(20));
                deeds = self.bench.deeds_after(&mut read);
            }
        }
        std::thread::sleep(after);
        running.kill();
        deeds += self.bench.deeds_after(&mut read);
        let under_way = self.under_way();
        eprintln!(
            "kill {} {:?} and {deeds} deeds after the start: {under_way:?}",
            self.struck.len() + 1,
            start.elapsed()
        );
        self.struck.push(under_way);
        self.at_work += usize::from(deeds > 0);
    }

    /// Below `below`.
    pub fn draw(&mut self, below: u64) -> u64 {
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % below
    }

    fn under_way(&self) -> BTreeSet<Stage> {
        let (claims, nodes, pods) = (self.bench.claims(), self.bench.nodes(), self.bench.pods());
        let machines = (self.machines)();
        let mut seen = BTreeSet::new();
        if pods.iter().any(|pod| text(pod, "/spec/nodeName").is_empty()) {
            seen.insert(Stage::Waiting);
        }
        for claim in &claims {
            let node = text(claim, "/status/nodeName");
            let uid = text(claim, "/metadata/uid");
            let is_bought = || machines.iter().any(|one| text(one, "/tags/provisor.dev~1claim-uid") == uid);
            let is_condemned = || {
                let node = nodes.iter().find(|known| text(known, "/metadata/name") == node);
                let taints = node.and_then(|node| node["spec"]["taints"].as_array()).into_iter().flatten();
                taints.into_iter().any(|taint| taint["key"] == "karpenter.sh/disrupted")
            };
            if !claim["metadata"]["deletionTimestamp"].is_null() {
                let has_pods = !node.is_empty() && pods.iter().any(|pod| text(pod, "/spec/nodeName") == node);
                seen.insert(if has_pods { Stage::Draining } else { Stage::Ending });
            } else if text(claim, "/status/providerID").is_empty() {
                seen.insert(if is_bought() { Stage::Bought } else { Stage::Ordered });
            } else if !is_true(claim, "Registered") {
                seen.insert(Stage::Booting);
            } else if !is_true(claim, "Initialized") {
                seen.insert(Stage::Joining);
            } else if is_condemned() {
                seen.insert(Stage::Condemned);
            }
        }
        seen
    }

    /// So many processes died at moments of chance, enough of them at work that it shows something: how many that is beyond one for each
    /// part of the story is a matter of chance, too, and of how soon a busy machine lets them begin.
    pub fn expect_struck_by_chance(&self, times: usize) {
        assert_eq!(self.struck.len(), times);
        assert!(self.at_work >= 3, "only {} of {times} had done anything", self.at_work);
    }

    /// So many processes died, in each of these stages at least one, and none while nothing was under way.
    pub fn expect_struck(&self, times: usize, stages: &[Stage]) {
        assert_eq!(self.struck.len(), times);
        let all: BTreeSet<Stage> = self.struck.iter().flatten().copied().collect();
        assert!(stages.iter().all(|stage| all.contains(stage)), "{:?}", self.struck);
        assert!(self.struck.iter().all(|seen| !seen.is_empty()), "{:?}", self.struck);
    }
}
