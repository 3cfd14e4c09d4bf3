//! Whether a pool says that its machines do not come to be nodes.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::engine::Engine;
use provisor::model::claim::{ConditionStatus, ConditionType, NodeClaim};
use provisor::model::class::NodeClass;
use provisor::model::label;
use provisor::model::name::{ClaimName, NodeName, PoolName, ProviderId};
use provisor::model::node::Node;
use provisor::model::observation::Observation;
use provisor::model::pool::{NodePool, PoolCondition};
use provisor::model::taint::Taint;

use super::town::*;
use ConditionStatus::{False, True, Unknown};

/// An engine, and the machines that it is shown one after the other.
struct Yard {
    engine: Engine,
    now: Timestamp,
    claim: Arc<NodeClaim>,
    node: Arc<Node>,
    shown: usize,
}

impl Yard {
    fn new(change: impl FnOnce(&mut NodePool)) -> Self {
        let mut town = Town::with(change);
        town.node("n", "m5.large");
        let claim = town.cluster.claims[&ClaimName::new("n-claim")].clone();
        let node = town.cluster.nodes[&NodeName::new("n")].clone();
        town.cluster.remove_claim(claim.name);
        town.cluster.remove_node(node.name);
        let mut engine = town.engine();
        engine.decide(town.now);
        Self { engine, now: town.now, claim, node, shown: 0 }
    }

    /// A claim of its own that is launched, or not with these words.
    fn next_claim(&mut self, refused: Option<(&str, &str)>) -> NodeClaim {
        self.shown += 1;
        let mut claim = (*self.claim).clone();
        claim.name = ClaimName::new(&format!("c{}", self.shown));
        claim.created = Some(self.now);
        claim.conditions = Default::default();
        claim.node = None;
        claim.provider_id = Some(ProviderId::new(&format!("aws:///us-west-2a/i-{}", self.shown)));
        match refused {
            None => claim.conditions.set(ConditionType::Launched, True, "Launched", "", self.now),
            Some((reason, message)) => {
                claim.provider_id = None;
                claim.conditions.set(ConditionType::Launched, Unknown, reason, message, self.now);
            }
        }
        claim
    }

    fn fail(&mut self, refused: Option<(&str, &str)>) {
        let claim = self.next_claim(refused);
        self.engine.observe(self.now, Observation::Claim(Arc::new(claim.clone())));
        self.engine.decide(self.now);
        self.now += SignedDuration::from_mins(if refused.is_some() { 5 } else { 15 });
        self.engine.decide(self.now);
        self.engine.observe(self.now, Observation::ClaimGone(claim.name));
    }

    fn join(&mut self) {
        let claim = self.next_claim(None);
        let mut node = (*self.node).clone();
        node.name = NodeName::new(claim.name.as_str());
        node.provider_id = claim.provider_id;
        node.labels.remove(&*label::REGISTERED);
        node.labels.remove(&*label::INITIALIZED);
        node.taints = vec![Taint::unregistered()];
        self.engine.observe(self.now, Observation::Claim(Arc::new(claim.clone())));
        self.engine.observe(self.now, Observation::Node(Arc::new(node.clone())));
        self.engine.decide(self.now);
        self.now += SignedDuration::from_secs(1);
        self.engine.observe(self.now, Observation::NodeGone(node.name));
        self.engine.observe(self.now, Observation::ClaimGone(claim.name));
    }

    fn pool(&self) -> NodePool {
        (*self.engine.cluster().pools[&PoolName::new("default")]).clone()
    }

    fn health(&self) -> (ConditionStatus, String) {
        let pool = self.pool();
        let health = pool.conditions.get(PoolCondition::NodeRegistrationHealthy).expect("it is always said");
        (health.status, format!("{}: {}", health.reason, health.message))
    }

    fn status(&self) -> ConditionStatus {
        self.health().0
    }

    fn see(&mut self, news: Observation) {
        self.engine.observe(self.now, news);
        self.engine.decide(self.now);
    }
}

/// Rows: LIF-045, LIF-046, LIF-047
#[test]
fn two_machines_of_four_that_never_join_are_told_at_their_pool() {
    let mut yard = Yard::new(|_| ());
    assert_eq!(yard.status(), Unknown);
    yard.fail(None);
    assert_eq!(yard.status(), Unknown, "one may be an accident");
    yard.fail(None);
    assert_eq!(yard.health(), (False, "RegistrationFailed: Failed to register node".into()));
    assert!(yard.pool().conditions.is_true(PoolCondition::Ready), "it goes on being used");
    yard.join();
    yard.join();
    assert_eq!(yard.status(), False, "two of the last four failed");
    yard.join();
    assert_eq!(yard.status(), True);
    yard.fail(None);
    assert_eq!(yard.status(), True);

    let mut refused = Yard::new(|_| ());
    refused.join();
    assert_eq!(refused.status(), True);
    refused.fail(Some(("LaunchFailed", "the quota is used up")));
    refused.fail(Some(("LaunchFailed", "the quota is used up")));
    assert_eq!(refused.health(), (False, "LaunchFailed: the quota is used up".into()));
}

/// Rows: LIF-050, LIF-051
#[test]
fn sch_559_nothing_is_known_once_a_pool_or_its_class_changed() {
    let changed_pool = |yard: &mut Yard| {
        let mut pool = yard.pool();
        Arc::make_mut(&mut pool.template).annotations.insert("changed".into(), "yes".into());
        yard.see(Observation::Pool(Arc::new(pool)));
    };
    let changed_class = |yard: &mut Yard| {
        let spec = Arc::new(serde_json::json!({ "amiSelectorTerms": [{ "alias": "al2023@latest" }] }));
        yard.see(Observation::Class(Arc::new(NodeClass { spec, ..class("default") })));
    };
    for change in [changed_pool, changed_class] as [fn(&mut Yard); 2] {
        let mut yard = Yard::new(|_| ());
        yard.fail(None);
        yard.fail(None);
        assert_eq!(yard.status(), False);
        // Seen again as they are, they change nothing.
        let same = Arc::new(yard.pool());
        yard.see(Observation::Pool(same));
        yard.see(Observation::Class(Arc::new(class("default"))));
        assert_eq!(yard.status(), False);
        change(&mut yard);
        assert_eq!(yard.status(), Unknown);
        yard.fail(None);
        assert_eq!(yard.status(), Unknown, "what was before does not count");
        yard.join();
        assert_eq!(yard.status(), True);
    }
}

/// Rows: LIF-052
#[test]
fn a_successor_goes_on_with_what_is_written() {
    let written = |status| {
        move |pool: &mut NodePool| {
            pool.conditions.set(PoolCondition::NodeRegistrationHealthy, status, "Written", "", at(NOW));
        }
    };
    let mut well = Yard::new(written(True));
    assert_eq!(well.status(), True);
    well.fail(None);
    assert_eq!(well.status(), True);
    well.fail(None);
    assert_eq!(well.status(), False);
    // What is seen again as it was changes nothing.
    let same = Arc::new(well.pool());
    well.see(Observation::Pool(same));
    assert_eq!(well.status(), False);
    let mut ill = Yard::new(written(False));
    assert_eq!(ill.status(), False);
    ill.join();
    assert_eq!(ill.status(), False, "two failures are taken for granted");
}

/// The pool was changed a moment ago, and still says what was true before.
#[test]
fn lif_048_a_machine_that_joins_on_a_clean_record_restores_health() {
    let mut yard = Yard::new(|_| ());
    yard.fail(None);
    yard.fail(None);
    let mut changed = yard.pool();
    Arc::make_mut(&mut changed.template).annotations.insert("changed".into(), "yes".into());
    yard.engine.observe(yard.now, Observation::Pool(Arc::new(changed)));
    assert_eq!(yard.status(), False);
    yard.join();
    assert_eq!(yard.status(), True);
}
