//! Nodes that were bought on demand because spot was sold out go back to spot.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::disruption::{Kind, Method};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::action::Action;
use provisor::model::claim::{Condition, ConditionStatus, ConditionType};
use provisor::model::label::{self, annotation};
use provisor::model::name::{ClaimName, NodeName, ObjectKey, TypeName, Zone};
use provisor::model::observation::{LaunchFailure, Observation, Shortage};
use provisor::model::offering::CapacityType;
use provisor::model::pool::{Budget, BudgetNodes, ConsolidationPolicy, DisruptionReason, NodePool};
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::symbol::Symbol;
use provisor::model::terms::{Return, Word};
use provisor::model::time::Patience;
use provisor::simulator::workload::{Workload, WorkloadKind};
use provisor::simulator::world::{Habits, World};

use super::town::*;

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

fn word(after: Option<SignedDuration>) -> Word<Return> {
    Word { text: "{}".into(), meaning: Ok(Return { after }) }
}

/// A pool of both kinds that only gives back empty nodes, and would return after half an hour.
fn prefers_spot(pool: &mut NodePool) {
    let template = Arc::make_mut(&mut pool.template);
    let kinds = ["spot", "on-demand"].map(Symbol::new);
    template.requirements.replace(*label::CAPACITY_TYPE, Requirement::new(Operator::In, kinds));
    pool.disruption.policy = ConsolidationPolicy::WhenEmpty;
    pool.terms.returns = Some(word(Some(minutes(30))));
}

/// One on-demand node with a pod that became ready so long ago.
fn town_after(age: SignedDuration, change: impl FnOnce(&mut NodePool)) -> Town {
    selling(catalog(), age, change)
}

fn selling(
    catalog: Arc<provisor::model::catalog::Catalog>,
    age: SignedDuration,
    change: impl FnOnce(&mut NodePool),
) -> Town {
    let mut default = pool("default");
    prefers_spot(&mut default);
    change(&mut default);
    let mut town = Town::selling(catalog, vec![default]);
    add(&mut town, "n", "m5.large", age);
    town.run("web", "n", shape("web", "500m"));
    town
}

fn add(town: &mut Town, name: &str, kind: &str, age: SignedDuration) {
    town.node(name, kind);
    let since = Some(town.now - age);
    town.change_claim(name, |claim| {
        let (status, reason) = (ConditionStatus::True, "Initialized".into());
        let condition = Condition { status, reason, message: "".into(), since };
        claim.conditions.insert(ConditionType::Initialized, condition);
    });
}

fn message(town: &Town, node: &str) -> String {
    let plan = town.plan();
    let kept = plan.kept.into_iter().find(|kept| kept.node == NodeName::new(node));
    kept.expect("it stays").message
}

#[test]
fn a_pool_that_only_gives_back_empty_nodes_returns_after_the_dwell() {
    let town = town_after(minutes(30), |_| ());
    let command = town.command();
    assert_eq!((command.method, command.kind()), (Method::Return, Kind::Replace));
    assert_eq!(command.reason(), DisruptionReason::Underutilized);
    let kinds = command.replacements[0].capacity_types();
    assert_eq!(Vec::from_iter(kinds), [CapacityType::Spot], "or a shortage would end on demand again");
    assert!(command.why().starts_with("what its pool prefers is to be had again; a replacement comes first"));

    let young = town_after(minutes(29), |_| ());
    assert_eq!(young.kept("n"), "ReturnsLater");
    let told = "it was bought as on-demand, which pool default likes less, and goes back from 2026-03-04T10:31:00Z on";
    assert_eq!(message(&young, "n"), told);

    // A plain pool of Karpenter does what it did.
    let plain = town_after(minutes(30), |pool| pool.terms.returns = None);
    assert_eq!(plain.kept("n"), "PolicyWhenEmpty");
}

#[test]
fn what_consolidation_does_not_do_for_the_money_a_return_does() {
    let never = |pool: &mut NodePool| {
        pool.disruption.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
        pool.disruption.consolidate_after = Patience::never();
    };
    assert_eq!(town_after(minutes(30), never).command().method, Method::Return);
    let balanced = |pool: &mut NodePool| pool.disruption.policy = ConsolidationPolicy::Balanced;
    assert_eq!(town_after(minutes(30), balanced).command().method, Method::Return);

    // Spot costs next to nothing less, and then no less.
    let near = |spot: &str| {
        let row = format!(
            "m5.large,amd64,2,8192,1930m,6903Mi,29,,,0.096,{spot},us-west-2a us-west-2b,on-demand spot"
        );
        selling(sold(&row), minutes(30), |pool| {
            pool.disruption.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
        })
    };
    assert_eq!(near("0.0959").command().method, Method::Return);
    assert_eq!(near("0.096").kept("n"), "NothingPreferred");
    assert_eq!(message(&near("0.096"), "n"), "spot would cost no less than it does");
}

#[test]
fn consolidation_leaves_a_fallback_alone_until_its_dwell_is_over() {
    let eager = |pool: &mut NodePool| pool.disruption.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
    let young = town_after(minutes(10), eager);
    assert_eq!(young.kept("n"), "ReturnsLater");
    // A pool that wants no return, and one that says nothing of it, are consolidated as ever.
    for returns in [Some(word(None)), None] {
        let town = town_after(minutes(10), |pool| {
            eager(pool);
            pool.terms.returns = returns.clone();
        });
        assert_eq!(town.command().method, Method::SingleNodeConsolidation, "{returns:?}");
    }
    // What needs nothing new goes at any time.
    let mut two = town_after(minutes(10), eager);
    add(&mut two, "m", "m5.large", minutes(10));
    two.run("other", "m", shape("web", "500m"));
    let command = two.command();
    assert_eq!((command.method, command.kind()), (Method::SingleNodeConsolidation, Kind::Delete));
}

#[test]
fn of_an_unreadable_word_nothing_comes_and_the_pool_says_so() {
    let unreadable = Word { text: "soon".into(), meaning: Err("it is no JSON".into()) };
    let town = town_after(minutes(600), |pool| {
        pool.disruption.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
        pool.terms.returns = Some(unreadable);
    });
    assert_eq!(town.kept("n"), "ReturnsLater");
    assert!(message(&town, "n").ends_with("stays: provisor.dev/return of the pool cannot be read"));
    let decision = town.engine().decide(town.now);
    let said = decision.actions.iter().find_map(|planned| match &planned.action {
        Action::UpdatePool { change, .. } => change.conditions.as_ref(),
        _ => None,
    });
    let said = said.expect("its conditions are written");
    let kind = provisor::model::pool::PoolCondition::TermsUnderstood;
    let condition = said.get(kind).expect("it is said");
    assert_eq!((condition.status, &*condition.reason), (ConditionStatus::False, "AnnotationUnreadable"));
    assert!(
        condition.message.starts_with("provisor.dev/return: it is no JSON; what it is about is not done")
    );
    assert!(said.is_true(provisor::model::pool::PoolCondition::Ready), "pods go on having nodes bought");
}

#[test]
fn a_return_keeps_to_budgets_protection_and_what_pods_ask_for() {
    let budget = |reasons: &[DisruptionReason]| {
        let budget = Budget { nodes: BudgetNodes::Count(0), reasons: reasons.to_vec(), window: None };
        town_after(minutes(30), |pool| pool.disruption.budgets = vec![budget])
    };
    for reasons in [&[][..], &[DisruptionReason::Underutilized]] {
        let town = budget(reasons);
        assert_eq!(town.kept("n"), "NothingPreferred", "{reasons:?}");
        assert!(message(&town, "n").contains("but the budgets of pool default allow no disruption"));
    }
    assert_eq!(budget(&[DisruptionReason::Drifted]).gone(), ["n"]);

    let mut protected = town_after(minutes(30), |_| ());
    protected.change_node("n", |node| {
        node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
    });
    assert_eq!(protected.kept("n"), "DoNotDisrupt");

    let mut demanding = town_after(minutes(30), |_| ());
    let mut picky = shape("web", "500m");
    picky.node_selector.insert(*label::CAPACITY_TYPE, "on-demand".into());
    demanding.run("web", "n", picky);
    assert_eq!(
        message(&demanding, "n"),
        "its pods need a new node, and none that they can use is to be had as spot"
    );

    // A node without pods is emptiness's business, and of a pool that keeps those nobody's.
    let mut empty = town_after(minutes(30), |pool| pool.disruption.consolidate_after = Patience::never());
    empty.cluster.pods.clear();
    let mut bare = Town::new(vec![(*empty.cluster.pools[&"default".into()]).clone()]);
    add(&mut bare, "n", "m5.large", minutes(30));
    assert_eq!(bare.gone(), [""; 0]);

    // Nor is an on-demand node of a pool that does not allow it, or of a pool that wants nothing else.
    let only = |kind: &'static str| {
        town_after(minutes(30), |pool| {
            let template = Arc::make_mut(&mut pool.template);
            template.requirements.replace(*label::CAPACITY_TYPE, Requirement::one(kind.into()));
        })
    };
    assert_eq!(only("on-demand").kept("n"), "PolicyWhenEmpty");
    assert_eq!(only("spot").command().method, Method::Drift);
}

#[test]
fn pods_do_not_go_to_a_node_that_returns_itself() {
    // Each would hold the pods of the other; a pool that gives back only empty nodes wants no merge.
    let mut town = town_after(minutes(30), |_| ());
    add(&mut town, "m", "m5.large", minutes(20));
    town.run("other", "m", shape("web", "500m"));
    let command = town.command();
    assert_eq!((command.method, command.kind()), (Method::Return, Kind::Replace));
    // Room on a spot node is as good as a new one.
    town.node_of("default", "s", "m5.xlarge", "spot");
    town.run("third", "s", shape("web", "500m"));
    let command = town.command();
    assert_eq!((command.method, command.kind(), command.nodes.len()), (Method::Return, Kind::Delete, 1));
}

/// What is written of returns on the claim of `n`.
fn written(engine: &Engine, claim: &str) -> Option<String> {
    let claim = engine.cluster().claims.get(&ClaimName::new(claim))?;
    claim.annotations.get(&*annotation::RETURNS).map(|text| text.to_string())
}

#[test]
fn a_return_that_finds_nothing_to_buy_waits_twice_as_long() {
    let mut town = town_after(minutes(25), |_| ());
    let mut engine = town.engine();
    let first = engine.decide(town.now);
    assert!(first.started.is_empty());
    let due = town.now + minutes(5);
    assert!(first.wake_at.is_some_and(|at| at <= due), "nobody has to ask in between");
    let mut now = town.now;
    let mut starts: Vec<(i64, Option<String>)> = Vec::new();
    let began = now;
    while now < began + minutes(24 * 60 * 4) {
        let decision = engine.decide(now);
        if !decision.started.is_empty() {
            starts.push((now.duration_since(began).as_mins(), written(&engine, "n-claim")));
        }
        // Spot is never to be had when it is asked for.
        for planned in &decision.actions {
            if let Action::Launch { claim, options } = &planned.action {
                let offerings =
                    options.iter().map(|one| (one.instance_type, one.zone, one.capacity_type)).collect();
                let shortage = Shortage { offerings, until: now + minutes(3), advice: None };
                let failure = LaunchFailure::InsufficientCapacity(Arc::new(shortage));
                engine.observe(now, Observation::LaunchFailed { claim: *claim, failure });
            }
        }
        let wake = decision.wake_at.unwrap_or(now + minutes(5));
        echo(&mut engine, now);
        now = wake.clamp(now + SignedDuration::from_secs(1), now + minutes(5));
    }
    let times: Vec<i64> = starts.iter().map(|(at, _)| *at).collect();
    let waits: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!((times[0], &waits[..]), (5, &[60, 120, 240, 480, 960, 1440, 1440][..waits.len()]));
    assert!(waits.len() >= 6, "{waits:?}");
    let first = starts[0].1.as_deref().unwrap_or_default();
    assert_eq!(
        first,
        format!("1 {}", began + minutes(5)),
        "it is on the claim, so a successor waits as well"
    );
    assert_eq!(engine.cluster().nodes.len(), 1, "the node serves on");

    // A successor that sees the same objects does not begin anew.
    town.now = began + minutes(6);
    town.change_claim("n", |claim| {
        claim.annotations.insert(*annotation::RETURNS, Symbol::new(&format!("1 {}", began + minutes(5))));
    });
    assert!(message(&town, "n").contains("from 2026-03-04T11:35:00Z on, longer after each return"));
}

/// What happens to a workload in a pool that prefers spot, in minutes from the start: capacity type by node.
struct Story {
    world: World,
    engine: Engine,
    start: Timestamp,
}

impl Story {
    fn new() -> Self {
        let mut world = World::new(11, at(NOW), catalog(), Habits::default());
        world.apply(Observation::Class(Arc::new(class("default"))));
        let mut default = pool("default");
        prefers_spot(&mut default);
        world.apply(Observation::Pool(Arc::new(default)));
        let start = world.now();
        Self { world, engine: Engine::new(EngineSettings::default()), start }
    }

    fn no_spot(&mut self, from: i64, lasts: i64) {
        let types = ["m5.large", "m5.xlarge", "m5.2xlarge"];
        let zones = ["us-west-2a", "us-west-2b"];
        let offerings = types.iter().flat_map(|kind| {
            zones.iter().map(|zone| (TypeName::new(kind), Zone::new(zone), CapacityType::Spot))
        });
        self.world.shortage_at(self.start + minutes(from), offerings.collect(), minutes(lasts));
    }

    fn until(&mut self, minute: i64) -> BTreeMap<String, usize> {
        let until = self.start + minutes(minute);
        live(&mut self.world, &mut self.engine, until, |_, _| ());
        let mut kinds = BTreeMap::new();
        for node in self.world.objects().nodes.values() {
            let kind = node.labels.get(&*label::CAPACITY_TYPE).map_or("", |kind| kind.as_str());
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
        kinds
    }

    fn returns(&self) -> Vec<String> {
        let claims = self.world.objects().claims.values();
        claims.filter_map(|claim| Some(claim.annotations.get(&*annotation::RETURNS)?.to_string())).collect()
    }
}

fn nodes(kind: &str) -> BTreeMap<String, usize> {
    BTreeMap::from([(kind.to_owned(), 1)])
}

#[test]
fn a_shortage_passes_and_comes_again_and_the_next_return_takes_its_time() {
    let mut story = Story::new();
    story.no_spot(0, 20);
    let shape = Arc::new(shape("web", "500m"));
    story.world.add_workload(Workload::new(
        ObjectKey::new("default", "web"),
        WorkloadKind::Deployment,
        shape,
        2,
    ));
    assert_eq!(story.until(10), nodes("on-demand"), "better than no node");
    // Spot is there from the twentieth minute on; the node stays for thirty since it was ready.
    assert_eq!(story.until(29), nodes("on-demand"));
    assert_eq!(story.until(40), nodes("spot"));
    assert_eq!(story.returns(), ["1"]);

    // Spot ends again, and so does the machine: a day later it would be another story.
    story.no_spot(50, 10);
    story.world.reclaim_at(story.start + minutes(52));
    assert_eq!(story.until(65), nodes("on-demand"));
    assert_eq!(story.returns(), ["1"], "what it came for is known");
    assert_eq!(story.until(100), nodes("on-demand"), "half an hour is not enough this time");
    assert_eq!(story.until(125), nodes("spot"));
    assert_eq!(story.returns(), ["2"]);
}

#[test]
fn a_machine_that_lasted_or_that_we_gave_back_ourselves_counts_for_nothing() {
    for (lasts, expected) in [(minutes(60), Some("1".to_owned())), (minutes(24 * 60), None)] {
        let mut town = town_after(minutes(1), |_| ());
        town.node_of("default", "old", "m5.large", "spot");
        let now = town.now;
        town.change_claim("old", |claim| {
            claim.annotations.insert(*annotation::RETURNS, "1".into());
            claim.created = Some(now - minutes(1) - lasts);
            claim.deleted = Some(now - minutes(1));
        });
        town.change_claim("n", |claim| claim.created = Some(now));
        let mut engine = town.engine();
        engine.decide(now);
        assert_eq!(written(&engine, "n-claim"), expected, "after {lasts:?}");

        // Nobody remembers what we ended for a reason of our own.
        town.change_claim("old", |claim| {
            let kind = ConditionType::DisruptionReason;
            claim.conditions.set(kind, ConditionStatus::True, "Drifted", "", now);
        });
        let mut engine = town.engine();
        engine.decide(now);
        assert_eq!(written(&engine, "n-claim"), None);
    }
}
