//! When rounds of provisioning begin and what is remembered of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::decision::Decision;
use provisor::capacity::engine::Engine;
use provisor::capacity::planning;
use provisor::capacity::provisioning;
use provisor::capacity::scheduling::{self, Code, Supply};
use provisor::model::action::Action;
use provisor::model::claim::NodeClaim;
use provisor::model::label;
use provisor::model::name::{NodeName, ObjectKey, PoolName, ProviderId};
use provisor::model::observation::Observation;
use provisor::model::pod::HostPort;
use provisor::model::pool::{ConsolidationPolicy, NodePool};
use provisor::model::quantity::{ResourceName, Resources};
use provisor::model::requirement::Requirement;

use super::town::*;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn created(decision: &Decision) -> usize {
    decision.actions.iter().filter(|one| matches!(one.action, Action::CreateClaim(_))).count()
}

#[test]
fn sch_005_without_a_pod_that_waits_no_round_begins() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town.run("web", "n1", shape("web", "1"));
    let mut engine = town.engine();
    for step in 0..10 {
        let decision = engine.decide(town.now + seconds(step));
        assert_eq!(created(&decision), 0);
        assert!(engine.plan().provisioning.existing.is_empty());
    }
    engine
        .observe(town.now + seconds(10), Observation::Pod(Arc::new(pod("late", None, shape("web", "500m")))));
    engine.decide(town.now + seconds(11));
    assert_eq!(engine.plan().provisioning.existing.len(), 1, "and with one it does");
}

/// Whoever pushes a first commit to a cluster where pods wait already.
#[test]
fn a_pool_that_becomes_ready_in_the_moment_of_a_round_is_bought_from_in_that_round() {
    let mut town = Town::with(|_| ());
    let class = town.cluster.classes.remove(&"default".into()).expect("there is one");
    town.cluster.put_pod(Arc::new(pod("first", None, shape("web", "1"))));
    let mut engine = town.engine();
    let refused = (0..3).find(|second| {
        let decision = engine.decide(town.now + seconds(*second));
        assert_eq!(created(&decision), 0);
        !engine.plan().provisioning.unschedulable.is_empty()
    });
    assert!(refused.is_some() && !engine.cluster().pools[&PoolName::new("default")].is_ready);

    engine.observe(town.now + seconds(3), Observation::Pod(Arc::new(pod("second", None, shape("web", "1")))));
    assert_eq!(created(&engine.decide(town.now + seconds(3))), 0);
    engine.observe(town.now + seconds(4), Observation::Class(class));
    assert_eq!(created(&engine.decide(town.now + seconds(4))), 1);
}

/// Rows: WEA-040
#[test]
fn wea_040_a_batch_of_pods_is_one_round_however_often_it_is_looked_for() {
    let mut town = Town::with(|_| ());
    // Given back while it is empty, and looked at for that: simulations of disruption are no rounds.
    town.node("n1", "m5.2xlarge");
    let mut engine = town.engine();
    let mut counted = Vec::new();
    for step in 0..60_i64 {
        let now = town.now + seconds(step);
        if step % 20 == 5 {
            for at in 0..3 {
                let name = format!("web-{step}-{at}");
                engine.observe(now, Observation::Pod(Arc::new(pod(&name, None, shape("web", "1")))));
            }
        }
        let before = engine.rounds();
        // The live loop takes one measure of each call after which the number is another.
        for _ in 0..3 {
            engine.decide(now);
        }
        counted.push(engine.rounds() - before);
        if engine.rounds() > before {
            let pods: Vec<ObjectKey> = engine.cluster().waiting_pods().map(|pod| pod.key).collect();
            for key in pods {
                engine.observe(now, Observation::PodGone(key));
            }
        }
    }
    assert!(counted.iter().all(|count| *count <= 1), "{counted:?}");
    assert_eq!(counted.iter().sum::<u64>(), 3, "{counted:?}");
}

/// What the last pass says of the node `n1`.
fn word_for(engine: &Engine) -> &'static str {
    let plan = &engine.plan().disruption;
    let kept = plan.kept.iter().find(|kept| kept.node == NodeName::new("n1"));
    kept.map_or("gone", |kept| kept.code)
}

#[test]
fn sch_469_a_nomination_lasts_for_twenty_seconds() {
    let mut town = Town::with(|pool| pool.disruption.policy = ConsolidationPolicy::WhenEmpty);
    town.node("n1", "m5.2xlarge");
    town.run("there", "n1", shape("there", "1"));
    let mut engine = town.engine();
    let gone = |name: &str| Observation::PodGone(ObjectKey::new("default", name));
    let mut nominated_at: Option<Timestamp> = None;
    let mut words = BTreeMap::new();
    for step in 0..90 {
        let now = town.now + seconds(step);
        if step == 20 {
            engine.observe(now, Observation::Pod(Arc::new(pod("big", None, shape("big", "6")))));
        }
        engine.decide(now);
        if nominated_at.is_none() && engine.plan().provisioning.existing.len() == 1 {
            nominated_at = Some(now);
            // It goes elsewhere, and so does what was there: nothing but the nomination keeps the node.
            ["big", "there"].into_iter().for_each(|name| engine.observe(now, gone(name)));
        }
        if let Some(at) = nominated_at {
            words.insert(now.duration_since(at).as_secs(), word_for(&engine));
        }
    }
    // A pass comes every ten seconds at most, so the first word about an empty node may be that late.
    assert_eq!((words[&11], words[&19]), ("Nominated", "Nominated"), "{words:?}");
    assert_eq!(words[&31], "gone", "{words:?}");
}

/// Rows: SCH-472, SCH-476
#[test]
fn everything_that_was_listed_is_known_and_what_comes_later_stops_nothing() {
    let mut town = Town::with(|_| ());
    for at in 0..1000 {
        town.node(&format!("n{at:04}"), "m5.large");
        if at % 3 == 0 {
            // Not ours, and without an id of a machine.
            town.cluster.remove_claim(format!("n{at:04}-claim").as_str().into());
            town.change_node(&format!("n{at:04}"), |node| node.provider_id = None);
        }
        town.run(&format!("full-{at}"), &format!("n{at:04}"), shape("full", "1900m"));
    }
    let mut engine = town.engine();
    assert_eq!((engine.cluster().nodes.len(), engine.cluster().claims.len()), (1000, 666));
    let waiting = |name: &str| Observation::Pod(Arc::new(pod(name, None, shape("web", "1"))));
    engine.observe(town.now, waiting("first"));
    engine.decide(town.now);
    assert_eq!(created(&engine.decide(town.now + seconds(1))), 1, "decisions are made");
    let mut later = Town::with(|_| ());
    later.node("later", "m5.large");
    let node = later.cluster.nodes[&NodeName::new("later")].clone();
    engine.observe(town.now + seconds(2), Observation::Node(node));
    engine.observe(town.now + seconds(2), waiting("second"));
    engine.decide(town.now + seconds(2));
    engine.decide(town.now + seconds(3));
    let placed = |engine: &Engine| engine.plan().provisioning.unschedulable.is_empty();
    assert!(placed(&engine), "{:?}", engine.plan().provisioning);
    assert_eq!(engine.cluster().nodes.len(), 1001);
}

#[test]
fn sch_917_a_pool_that_vanished_takes_only_its_own_claims_along() {
    let mut town = Town::new(vec![pool("one"), pool("two")]);
    for name in ["one", "two"] {
        let mut asked = shape(name, "1");
        asked.node_selector.insert(*label::NODEPOOL, name.into());
        town.cluster.put_pod(Arc::new(pod(name, None, asked)));
    }
    let settings = scheduling::Settings::default();
    let supply = Supply::of(&town.cluster, &settings);
    let solution = provisor::capacity::planning::place(&town.cluster, &supply, town.now, &settings);
    assert_eq!(solution.new_nodes.len(), 2);
    town.cluster.pools.remove(&PoolName::new("one"));
    let purchase = provisioning::claims_for(&town.cluster, &supply, &solution, &settings, town.now, 1);
    let pools: Vec<_> = purchase.claims.iter().filter_map(|(claim, _)| claim.pool()).collect();
    assert_eq!(pools, [PoolName::new("two")]);
    let dropped: Vec<_> = purchase.dropped.iter().map(|(_, why)| (why.pool, why.code)).collect();
    assert_eq!(dropped, [(Some(PoolName::new("one")), Code::PoolNotReady)]);
}

fn nodes(count: i64) -> Resources {
    [(ResourceName::new("nodes"), count)].into_iter().collect()
}

#[test]
fn sch_487_a_static_pool_never_makes_more_than_its_limit_allows() {
    let mut fixed = pool("base");
    fixed.limits = Some(nodes(5));
    fixed.replicas = Some(3);
    let town = Town::new(vec![fixed.clone()]);
    let mut engine = town.engine();
    let mut now = town.now;
    let granted = |engine: &mut Engine, now: &mut Timestamp, replicas: u32| {
        *now += seconds(1);
        let wanted = NodePool { replicas: Some(replicas), ..fixed.clone() };
        engine.observe(*now, Observation::Pool(Arc::new(wanted)));
        let made = created(&engine.decide(*now));
        echo(engine, *now);
        assert_eq!(created(&engine.decide(*now)), 0, "what was made is not made again");
        made
    };
    assert_eq!(granted(&mut engine, &mut now, 3), 3);
    assert_eq!(granted(&mut engine, &mut now, 9), 2, "as many as the limit leaves");
    assert_eq!(granted(&mut engine, &mut now, 5), 0);
    assert_eq!(granted(&mut engine, &mut now, 12), 0, "the limit is reached");
    let leaving = engine.cluster().claims.values().next().expect("five are there").clone();
    // Its machine has to stop first.
    let machine = Some(ProviderId::new("aws:///us-west-2a/i-1"));
    let deleted = NodeClaim { deleted: Some(now), provider_id: machine, ..(*leaving).clone() };
    engine.observe(now, Observation::Claim(Arc::new(deleted)));
    assert_eq!(granted(&mut engine, &mut now, 9), 0, "one that goes is still there");
    engine.observe(now, Observation::ClaimGone(leaving.name));
    assert_eq!(granted(&mut engine, &mut now, 9), 1, "now there is room again");
    assert_eq!(engine.cluster().claims.len(), 5);
}

/// A plan says of a static pool what the engine does, and for the same reason.
///
/// Rows: LIF-083, LIF-084, LIF-085
#[test]
fn lif_084_a_plan_launches_for_a_static_pool_what_the_engine_launches() {
    let ready: fn(&mut NodePool) = |_| ();
    let unready: fn(&mut NodePool) =
        |pool| (pool.is_ready, pool.fault) = (false, Some("its requirements contradict each other".into()));
    let going: fn(&mut NodePool) = |pool| pool.is_deleting = true;
    let nowhere: fn(&mut NodePool) = |pool| {
        let zone = Requirement::one("us-west-2z".into());
        Arc::make_mut(&mut pool.template).requirements.add(*label::ZONE, zone);
    };
    let cases = [
        (2, None, 0, ready, 2, None),
        (3, None, 1, ready, 2, None),
        (2, None, 2, ready, 0, None),
        (1, None, 3, ready, 0, None),
        (3, Some(1), 1, ready, 0, Some(Code::LimitReached)),
        (15, Some(10), 3, ready, 7, Some(Code::LimitReached)),
        (115, Some(10), 10, ready, 0, Some(Code::LimitReached)),
        (2, None, 0, unready, 0, Some(Code::PoolNotReady)),
        (2, None, 0, going, 0, Some(Code::PoolNotReady)),
        (2, None, 0, nowhere, 0, Some(Code::NoOfferingAvailable)),
    ];
    for (replicas, limit, there, change, made, why) in cases {
        let mut town = Town::with(|pool| {
            pool.replicas = Some(replicas);
            pool.limits = limit.map(nodes);
            change(pool);
        });
        for number in 0..there {
            town.node(&format!("n{number}"), "m5.large");
        }
        let case = format!("{there} of {replicas} with {limit:?}");
        let plan = planning::plan(&town.cluster, town.now, &town.settings);
        let [keeping] = &plan.kept[..] else { panic!("{case}: {:?}", plan.kept) };
        assert_eq!(keeping.new_nodes.len(), made, "{case}");
        assert_eq!(keeping.refusal.as_ref().map(|refusal| refusal.code), why, "{case}");
        assert_eq!(created(&town.engine().decide(town.now)), made, "{case}");
    }
    let town = Town::with(|_| ());
    assert_eq!(planning::plan(&town.cluster, town.now, &town.settings).kept, [], "pods make it grow");
}

#[test]
fn what_a_static_pool_lacks_and_what_has_drifted_are_counted_together() {
    let mut town = Town::with(|pool| {
        pool.replicas = Some(5);
        pool.limits = Some(nodes(6));
    });
    for name in ["n1", "n2"] {
        town.node(name, "m5.large");
        town.drift(name, "2026-03-02T00:00:00Z");
    }
    let plan = planning::plan(&town.cluster, town.now, &town.settings);
    assert_eq!(plan.kept[0].new_nodes.len(), 3);
    let replaced: usize = plan.disruption.commands.iter().map(|command| command.replacements.len()).sum();
    assert_eq!(replaced, 1, "six are allowed");
    assert_eq!(plan.disruption.kept[0].code, "LimitReached");
}

/// Rows: SCH-008, SCH-009, SCH-010
#[test]
fn claims_have_the_time_to_drain_of_their_pool_or_else_of_all() {
    let hours = SignedDuration::from_hours;
    for (of_all, of_pool, expected) in [
        (Some(hours(98)), None, Some(hours(98))),
        (None, None, None),
        (Some(hours(47)), Some(hours(223)), Some(hours(223))),
    ] {
        let mut town = Town::with(|pool| {
            let template = Arc::make_mut(&mut pool.template);
            template.termination_grace = of_pool;
        });
        town.settings.scheduling.termination_grace = of_all;
        town.cluster.put_pod(Arc::new(pod("web", None, shape("web", "1"))));
        let mut engine = engine_of(&town.cluster, town.now, town.settings.clone());
        engine.decide(town.now);
        engine.decide(town.now + seconds(1));
        let claim = engine.cluster().claims.values().next().expect("one is made");
        assert_eq!(claim.spec.termination_grace, expected);
    }
}

/// A port that is taken on the only node there is leads to another node, whatever else fits.
#[test]
fn a_round_heeds_what_runs_on_nodes() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.2xlarge");
    let mut holding = shape("web", "1");
    holding.host_ports.push(HostPort { ip: "".into(), port: 80, protocol: "TCP".into() });
    town.run("there", "n1", holding.clone());
    town.cluster.put_pod(Arc::new(pod("more", None, holding)));
    let mut engine = town.engine();
    engine.decide(town.now);
    assert_eq!(created(&engine.decide(town.now + seconds(1))), 1);
}
