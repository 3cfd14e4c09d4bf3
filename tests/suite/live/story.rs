//! The story of a pool: a commit, fifty pods of three sizes, another commit that rolls the pool under them, and no pods any more. Here it
//! is told by processes each of which is killed at a moment of chance, whatever it is at.

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, Running, is_true, text};
use super::moments::Killer;

/// Groups of pods each of which fits on one node, so that there is one right place for every pod: how many, of what size, and
/// in which zone.
pub const GROUPS: [(&str, u32, &str, &str, &str); 3] = [
    ("small", 25, "250m", "512Mi", "us-east-1a"),
    ("large", 15, "900m", "2Gi", "us-east-1b"),
    ("middle", 10, "500m", "2Gi", "us-east-1c"),
];
pub const PODS: usize = 50;

/// How many processes die while nodes are bought, while they are replaced, and while they are given back, and how long each lives at most:
/// an empty node is looked at twice, fifteen seconds apart, before it goes.
const KILLS: [(usize, Duration); 3] =
    [(8, Duration::from_secs(4)), (8, Duration::from_secs(4)), (4, Duration::from_secs(24))];

/// Where it is told.
pub struct Story<'a> {
    pub bench: &'a Bench,
    pub start: &'a dyn Fn(&[&str]) -> Running,
    /// Whether claims, nodes and machines belong together, one by one.
    pub are_one_to_one: &'a dyn Fn() -> bool,
    pub is_empty: &'a dyn Fn() -> bool,
    /// The environment `dev` of the second commit, whose nodes say `generation = "two"`.
    pub second: &'a str,
}

impl Story<'_> {
    pub fn deploy(bench: &Bench) {
        for (name, replicas, cpu, memory, zone) in GROUPS {
            bench.deploy_on(name, replicas, cpu, memory, json!({ "topology.kubernetes.io/zone": zone }));
        }
    }

    /// From beginning to end, killed on the way.
    pub fn tell(&self, killer: &mut Killer<'_>) {
        let bench = self.bench;
        Self::deploy(bench);
        bench.wait("pods made", || bench.pods().len() == PODS);
        self.go_on(killer, KILLS[0], "all running", &|| self.is_settled());
        let first = self.expect_none_twice(0);
        assert_eq!(first, GROUPS.len(), "one machine for each group is bought\n{}", bench.logs());

        bench.fleet.commit("second", &[("environments/dev.toml", self.second)]);
        let is_new = |node: &Value| text(node, "/metadata/labels/generation") == "two";
        self.go_on(killer, KILLS[1], "rolled", &|| bench.nodes().iter().all(is_new) && self.is_settled());
        let all = self.expect_none_twice(first);
        bench.expect_moved_once(PODS);

        GROUPS.iter().for_each(|(name, ..)| bench.scale(name, 0));
        self.go_on(killer, KILLS[2], "empty", self.is_empty);
        assert_eq!(bench.claims_made().len(), all, "nothing is bought for nobody\n{}", bench.logs());
        bench.expect_moved_once(PODS);
    }

    /// So many processes die, and the next one brings it to the end of this part.
    fn go_on(
        &self,
        killer: &mut Killer<'_>,
        (kills, longest): (usize, Duration),
        what: &str,
        is_so: &dyn Fn() -> bool,
    ) {
        for _ in 0..kills {
            // Some hold the lease, and keep a successor waiting that asks for it.
            let more: &[&str] = if killer.draw(4) == 0 { &[] } else { &["--no-lease"] };
            killer.strike_at_chance((self.start)(more), longest, is_so);
        }
        let running = (self.start)(&["--no-lease"]);
        self.bench.wait(what, is_so);
        running.kill();
    }

    fn is_settled(&self) -> bool {
        let claims = self.bench.claims();
        self.bench.all_run(PODS)
            && claims.iter().all(|claim| is_true(claim, "Initialized"))
            && (self.are_one_to_one)()
    }

    /// Of the claims that were made since there were `before`, all are there, and each has pods: none was made twice, and none to be given
    /// back at once. How many there are is for prices to say: two large machines may give way to a dozen small ones. How many were made.
    fn expect_none_twice(&self, before: usize) -> usize {
        let bench = self.bench;
        let (made, claims, pods) = (bench.claims_made(), bench.claims(), bench.pods());
        assert_eq!(made.len(), before + claims.len(), "made: {made:?}\n{}", bench.logs());
        let has_pods = |node: &str| pods.iter().any(|pod| text(pod, "/spec/nodeName") == node);
        let empty = claims.iter().filter(|claim| !has_pods(text(claim, "/status/nodeName"))).count();
        assert_eq!(empty, 0, "of {} claims nobody needs so many\n{}", claims.len(), bench.logs());
        made.len()
    }
}
