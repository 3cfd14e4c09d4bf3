//! Commits made in the examples: each review is on record, and what it foretells is what a simulated cluster then does.
//!
//! The cluster is the one that `provisor simulate` plays, driven here by a script of its own, from its start to the commit and
//! hours beyond: machines that boot, a scheduler that knows no plan, evictions one by one, disruption budgets of pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use provisor::io::git::{Limits, Symlinks, read_directory};
use provisor::model::label::NODEPOOL;
use provisor::model::money::UsdPerHour;
use provisor::model::name::{ObjectKey, PoolName};
use provisor::model::repository::Repository;
use provisor::review::markdown::markdown;
use provisor::simulator::script::{Scale, ScriptEvent};
use provisor::simulator::story::Happening;
use provisor::ui::play::{Play, script_of, scripted_policy};
use serde_json::Value;

use super::{Proposal, environment, recorded};

/// One commit onto an example.
struct Pair {
    name: &'static str,
    example: &'static str,
    environment: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// Its gates stop it.
    code: i32,
}

const fn pair(name: &'static str, example: &'static str, environment: &'static str) -> Pair {
    Pair { name, example, environment, file: "environments/prod.toml", from: "", to: "", code: 0 }
}

#[test]
fn a_label_rolls_its_pool() {
    let from = "strategy = \"spot-with-on-demand-fallback\"";
    let to = "strategy = \"spot-with-on-demand-fallback\"\nlabels = { logging = \"on\" }";
    let review = comes_true(&Pair { from, to, ..pair("label", "eks-shop", "prod") });
    let prod = environment(&review, "prod");
    assert_eq!(prod["pods"]["moved"], 17);
    assert_eq!(prod["draws"].as_array().map(Vec::len), Some(3));
}

/// Rows: REV-001
#[test]
fn rev_001_a_comment_changes_nothing() {
    let pair = Pair {
        from: "# At most a third of the nodes",
        to: "# At most one third   of the nodes",
        ..pair("comment", "eks-shop", "prod")
    };
    let (proposal, review) = reviewed(&pair);
    assert_eq!(review["verdict"], "pass");
    assert_eq!(review["headline"], "nothing to say: no capacity change");
    assert!(review["environments"].as_array().unwrap().iter().all(|one| one["change"] == "unchanged"));
    let silent = proposal
        .review("--base main~ --output markdown --skip-no-diff".replace("main~", &base(&proposal)).as_str());
    assert_eq!((silent.status.code(), silent.stdout.len()), (Some(0), 0));
}

/// Every one that is exceeded is told.
#[test]
fn lower_limits_are_exceeded_and_roll_nothing() {
    let (from, to) = ("limits = { cpu = \"200\", nodes = 20 }", "limits = { cpu = \"8\", nodes = 2 }");
    let review = comes_true(&Pair { from, to, code: 1, ..pair("limit", "eks-shop", "prod") });
    let limits = environment(&review, "prod")["limits"].as_array().expect("a list");
    let told: Vec<[&str; 3]> = limits
        .iter()
        .map(|limit| ["pool", "resource", "limit"].map(|part| limit[part].as_str().expect("text")))
        .collect();
    assert_eq!(told, [["general", "cpu", "8"], ["general", "nodes", "2"]]);
    assert!(limits.iter().all(|limit| limit["isExceeded"] == true), "{limits:?}");
}

#[test]
fn pods_without_their_label_lose_their_only_pool() {
    let (from, to) = ("labels = { domain = \"checkout\" }", "labels = { domain = \"till\" }");
    let review = comes_true(&Pair { from, to, code: 1, ..pair("lost-label", "eks-shop", "prod") });
    let pods = environment(&review, "prod")["pods"]["newUnschedulable"].as_array().unwrap();
    assert_eq!(pods.len(), 2);
    assert!(pods.iter().all(|pod| pod["lostOnlyPool"] == true && pod["stillRuns"] == true));
}

#[test]
fn a_pool_that_goes_takes_its_pods_along() {
    let from = "[pools.checkout]\nstrategy = \"on-demand\"";
    let to = "[pools.till]\nstrategy = \"on-demand\"";
    let pair = Pair { from, to, ..pair("renamed-pool", "eks-shop", "prod") };
    let review = comes_true(&pair);
    let prod = environment(&review, "prod");
    assert_eq!((&prod["nodes"]["retired"], &prod["pods"]["moved"]), (&1.into(), &2.into()));
}

/// Its budget is a third of three nodes: they go one after the other.
#[test]
fn a_pool_of_several_nodes_goes_within_its_budgets() {
    let (from, to) = ("pools.general", "pools.wide");
    let review = comes_true(&Pair { from, to, ..pair("renamed-large-pool", "eks-shop", "prod") });
    let prod = environment(&review, "prod");
    let roll = &prod["roll"]["pools"][0];
    assert_eq!((&roll["pool"], &roll["reason"]), (&"general".into(), &"retired".into()), "{roll:#}");
    assert_eq!((&roll["nodes"], &roll["atOnce"], &roll["waves"]), (&3.into(), &1.into(), &3.into()));
    assert_eq!(prod["nodes"]["retired"], 3);
}

/// A pool that goes, whose pods nobody else takes, does not go: nothing is saved, and the node that stays is told.
#[test]
fn a_pool_whose_pods_have_nowhere_to_go_stays() {
    let from = "[pools.checkout]\nstrategy = \"on-demand\"\ndescription = \"payments: never on spot\"\n\
                limits = { cpu = \"64\" }\ntaints = [\"domain=checkout:NoSchedule\"]\n\
                labels = { domain = \"checkout\" }\nconsolidate-after = \"10m\"\n";
    let review = comes_true(&Pair { from, code: 1, ..pair("removed-pool", "eks-shop", "prod") });
    let prod = environment(&review, "prod");
    let stuck = prod["nodes"]["stuck"].as_array().expect("a list");
    assert_eq!((stuck.len(), &stuck[0]["pool"]), (1, &"checkout".into()), "{stuck:?}");
    assert_eq!((&prod["nodes"]["retired"], &prod["limits"]), (&0.into(), &Value::Array(Vec::new())));
    let roll = &prod["roll"]["pools"][0];
    assert_eq!((&roll["pool"], &roll["atOnce"]), (&"checkout".into(), &0.into()), "{roll:#}");
    assert_eq!(roll["waves"], Value::Null);
    assert_eq!(prod["roll"]["blockers"].as_array().map(Vec::len), Some(1));
}

/// Rows: REV-017
#[test]
fn rev_017_on_demand_instead_of_spot_costs_more() {
    let from = "strategy = \"spot-with-on-demand-fallback\"";
    let review =
        comes_true(&Pair { from, to: "strategy = \"on-demand\"", ..pair("on-demand", "eks-shop", "prod") });
    let prod = environment(&review, "prod");
    // Three lives ended with different machines.
    assert_eq!(prod["draws"].as_array().map(Vec::len), Some(9));
    let cost = &prod["cost"];
    let micros = |value: &Value| {
        let text = value.as_str().expect("a decimal");
        text.parse::<provisor::model::money::UsdPerHour>().expect("money").0
    };
    let parts = &cost["byCapacityType"];
    assert!(micros(&parts["spot"]) < 0 && micros(&parts["on-demand"]) > 0, "{cost:#}");
    let sum = micros(&parts["spot"]) + micros(&parts["on-demand"]) + micros(&parts["reserved"]);
    assert_eq!(sum, micros(&cost["delta"]));
    assert_eq!(micros(&cost["before"]) + micros(&cost["delta"]), micros(&cost["after"]));
}

#[test]
fn a_larger_disk_rolls_every_pool_of_its_class() {
    let (from, to) = ("device = \"/dev/xvdb\"\nsize = \"50Gi\"", "device = \"/dev/xvdb\"\nsize = \"100Gi\"");
    comes_true(&Pair { from, to, ..pair("disk", "bottlerocket-arm64", "prod") });
}

#[test]
fn a_narrower_choice_rolls_what_no_longer_fits() {
    let (from, to) = ("instance-families = [\"g4dn\", \"g5\"]", "instance-families = [\"g5\"]");
    comes_true(&Pair { from, to, ..pair("narrower", "gpu-studio", "prod") });
}

/// Rows: REV-007
#[test]
fn rev_007_a_wider_choice_rolls_nothing() {
    let (from, to) = ("instance-categories: [c, m, r, t]", "instance-categories: [c, m, r, t, i]");
    let review =
        comes_true(&Pair { file: "environments/lab.yaml", from, to, ..pair("wider", "inflate-lab", "lab") });
    let lab = environment(&review, "lab");
    assert_eq!(lab["objects"][0]["nodes"], 0);
    assert_eq!((&lab["nodes"]["drifted"], &lab["pods"]["moved"]), (&0.into(), &0.into()));
}

#[test]
fn a_higher_limit_lets_workers_in() {
    let (from, to) = ("limits = { cpu = \"40\", nodes = 10 }", "limits = { cpu = \"80\", nodes = 20 }");
    let review = comes_true(&Pair {
        file: "environments/onprem.toml",
        from,
        to,
        ..pair("higher-limit", "kubeadm-keda", "onprem")
    });
    assert!(!environment(&review, "onprem")["pods"]["fixed"].as_array().unwrap().is_empty());
}

#[test]
fn patience_is_behaviour_only() {
    let (from, to) = ("consolidate-after = \"10m\"", "consolidate-after = \"20m\"");
    let review = comes_true(&Pair { from, to, ..pair("patience", "eks-shop", "prod") });
    assert_eq!(environment(&review, "prod")["cost"]["delta"], "0.00");
}

fn base(proposal: &Proposal) -> String {
    proposal.git(&["rev-parse", "HEAD~1"])
}

/// Whose comments are told apart by it: what it is if nobody says.
const SET: &str = "default";

/// The review of a pair, whose comment is on record.
fn reviewed(pair: &Pair) -> (Proposal, Value) {
    let mut proposal = Proposal::of_example(pair.example);
    proposal.edit(pair.file, pair.from, pair.to);
    let line = format!("--base {} --head main", base(&proposal));
    let review = proposal.json(&line, pair.code);
    let comment =
        serde_json::from_value(review.clone()).map(|review| markdown(&review, SET)).expect("a review");
    // Another file of the example gives other commits, and the same review.
    let (before, after) = (base(&proposal), proposal.git(&["rev-parse", "HEAD"]));
    let comment = comment.replace(&before[..7], "0000000").replace(&after[..7], "1111111");
    recorded(&format!("{}.md", pair.name), &comment);
    (proposal, review)
}

/// What a cluster is, as far as a review foretells it.
#[derive(Clone, Debug, PartialEq)]
struct Foretold {
    /// Dollars an hour before the commit, and once it has been carried out.
    before: String,
    after: String,
    /// Of the nodes that were there, so many are gone.
    gone: usize,
    nodes: usize,
    /// Of the pods that ran, so many are not where they were.
    moved: usize,
    waiting: usize,
    /// What it takes: each eviction counts, and each machine.
    evictions: usize,
    bought: usize,
}

impl Foretold {
    fn of(draw: &Value) -> Self {
        let text = |name: &str| draw[name].as_str().expect("money").to_owned();
        Self {
            before: text("runningUsdPerHour"),
            after: text("reachedUsdPerHour"),
            gone: count(&draw["nodesGone"]),
            nodes: count(&draw["nodesAfter"]),
            moved: count(&draw["podsMoved"]),
            waiting: count(&draw["podsWaiting"]),
            evictions: count(&draw["evictions"]),
            bought: count(&draw["machinesBought"]),
        }
    }

    fn counts(&self) -> [i64; 8] {
        let micros = |text: &str| text.parse::<UsdPerHour>().expect("money").0;
        let counts = [self.gone, self.nodes, self.moved, self.waiting, self.evictions, self.bought];
        let [gone, nodes, moved, waiting, evictions, bought] = counts.map(|count| count as i64);
        [micros(&self.before), micros(&self.after), gone, nodes, moved, waiting, evictions, bought]
    }

    /// Whether each number is as in one of `draws`, or between them.
    fn is_among(&self, draws: &[Self]) -> bool {
        self.counts().iter().enumerate().all(|(at, count)| {
            let drawn = draws.iter().map(|draw| draw.counts()[at]);
            drawn.clone().min() <= Some(*count) && Some(*count) <= drawn.max()
        })
    }
}

fn count(value: &Value) -> usize {
    value.as_u64().expect("a count") as usize
}

/// The review of a pair, after a cluster has done what it foretells: with each seed that it was drawn with the very same, and with
/// others something between.
fn comes_true(pair: &Pair) -> Value {
    let (proposal, review) = reviewed(pair);
    let one = environment(&review, pair.environment);
    let (cost, pods, nodes) = (&one["cost"], &one["pods"], &one["nodes"]);
    let still_run = |pod: &&Value| pod["stillRuns"] == false;
    let draws = one["draws"].as_array().expect("draws");
    let of_shown: Vec<_> = draws.iter().filter(|draw| draw["isShown"] == true).map(Foretold::of).collect();
    let [of_shown] = of_shown.as_slice() else { panic!("one is shown: {of_shown:?}") };
    let shown = Foretold {
        before: cost["runningUsdPerHour"].as_str().expect("money").into(),
        after: cost["reachedUsdPerHour"].as_str().expect("money").into(),
        gone: count(&nodes["drifted"]) + count(&nodes["retired"]) + count(&nodes["consolidated"]),
        nodes: count(&nodes["after"]),
        moved: count(&pods["moved"]),
        waiting: pods["newUnschedulable"].as_array().expect("a list").iter().filter(still_run).count()
            + count(&pods["waitingAnyway"]),
        // Nowhere but there.
        evictions: of_shown.evictions,
        bought: of_shown.bought,
    };
    assert_eq!(of_shown, &shown, "{}", pair.name);
    let rolls = one["roll"]["pools"].as_array().into_iter().flatten().filter(|roll| roll["atOnce"] != 0);
    let rolls: BTreeSet<&str> = rolls.filter_map(|roll| roll["pool"].as_str()).collect();
    let lives = Lives::of(&proposal, pair);
    let seeds: Vec<u64> = draws.iter().map(|draw| draw["seed"].as_u64().expect("a seed")).collect();
    let draws: Vec<Foretold> = draws.iter().map(Foretold::of).collect();
    for (seed, draw) in seeds.into_iter().zip(&draws) {
        let (lived, _) = lives.live(seed);
        // The proposal arrives at another moment here, and another pod may have to move twice.
        let alike = Foretold { evictions: draw.evictions, bought: draw.bought, ..lived.clone() };
        assert_eq!(&alike, draw, "{} with seed {seed}", pair.name);
        assert!(lived.is_among(&draws), "{} with seed {seed}: {lived:?}, and foretold {draws:?}", pair.name);
    }
    for seed in OTHER_SEEDS {
        let (other, gone) = lives.live(seed);
        let said = format!("{} with seed {seed}: {other:?}, and foretold {draws:?}", pair.name);
        let gone: BTreeSet<&str> = gone.iter().map(|pool| pool.0.as_str()).collect();
        assert_eq!(gone, rolls, "the pools whose nodes went: {said}");
        assert!(other.is_among(&draws), "{said}");
    }
    review
}

/// Other machines are slow, other ties fall otherwise; the review has not drawn them.
const OTHER_SEEDS: [u64; 3] = [1001, 99_999, 20_261_125];

const BASE_RESTS_AFTER: SignedDuration = SignedDuration::from_hours(2);
/// The engine tries again what it regretted an hour ago.
const PROPOSAL_RESTS_AFTER: SignedDuration = SignedDuration::from_hours(4);

/// Both sides of a commit, and the demand of its base.
struct Lives {
    before: Repository,
    after: Repository,
    environment: &'static str,
}

impl Lives {
    fn of(proposal: &Proposal, pair: &Pair) -> Self {
        let limits = Limits::default();
        let after = read_directory(proposal.path(), &limits, Symlinks::Refused).expect("a fleet");
        proposal.git(&["checkout", "--quiet", &base(proposal)]);
        let before = read_directory(proposal.path(), &limits, Symlinks::Refused).expect("a fleet");
        Self { before, after, environment: pair.environment }
    }

    /// Plays the commit on a simulated cluster that came to rest before; and the pools of nodes that went.
    fn live(&self, seed: u64) -> (Foretold, BTreeSet<PoolName>) {
        let (before, after) = (self.before.clone(), self.after.clone());
        let mut script = script_of(&before, Some(self.environment)).expect("a script").script;
        script.seed = seed;
        // All that it is ever scaled to, from the beginning.
        let mut peaks: Vec<Scale> = Vec::new();
        for scale in script.events.iter().filter_map(|event| event.scale.clone()) {
            match peaks.iter_mut().find(|peak| peak.workload == scale.workload) {
                Some(peak) => peak.to = peak.to.max(scale.to),
                None => peaks.push(scale),
            }
        }
        let at_once = |scale| ScriptEvent {
            at: SignedDuration::ZERO,
            scale: Some(scale),
            reclaim: None,
            shortage: None,
            lose_zone: None,
            commit: None,
        };
        script.events = peaks.into_iter().filter(|peak| peak.to > 0).map(at_once).collect();
        let mut play = Play::new(before.clone(), script, None, scripted_policy()).expect("a stage");
        play.take_commit(before).expect("the base renders");
        let start = play.start();
        play.reconciler.run_until(start + BASE_RESTS_AFTER, |_, _| ());
        let world = play.reconciler.cluster().world();
        let ran: BTreeMap<_, _> = world
            .objects()
            .nodes
            .values()
            .map(|node| (node.name, node.label(*NODEPOOL).map(PoolName)))
            .collect();
        let pods: BTreeSet<_> = world
            .objects()
            .pods
            .values()
            .filter(|pod| pod.node.is_some() && !pod.is_daemon())
            .map(|pod| pod.key)
            .collect();
        let (dollars, told) = (world.cloud().price_now().to_string(), world.story().len());
        play.take_commit(after).expect("the proposal renders");
        play.reconciler.run_until(start + BASE_RESTS_AFTER + PROPOSAL_RESTS_AFTER, |_, _| ());
        let world = play.reconciler.cluster().world();
        let story = world.story().since(told);
        let evicted: Vec<ObjectKey> = story
            .iter()
            .filter_map(|(_, happening)| match happening {
                Happening::Evicted { pod, .. } => Some(*pod),
                _ => None,
            })
            .collect();
        let bought = story.iter().filter(|(_, happening)| matches!(happening, Happening::Launched { .. }));
        let objects = world.objects();
        let gone = ran.iter().filter(|(node, _)| !objects.nodes.contains_key(node));
        let pools = gone.clone().filter_map(|(_, pool)| *pool).collect();
        let foretold = Foretold {
            before: dollars,
            after: world.cloud().price_now().to_string(),
            gone: gone.count(),
            nodes: objects.nodes.len(),
            moved: evicted.iter().collect::<BTreeSet<_>>().intersection(&pods.iter().collect()).count(),
            waiting: objects.pods.values().filter(|pod| pod.node.is_none() && pod.is_active()).count(),
            evictions: evicted.len(),
            bought: bought.count(),
        };
        (foretold, pools)
    }
}
