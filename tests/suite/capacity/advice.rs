//! What would help a pod that has no place: the edit is the smallest, and it does help.

use std::sync::Arc;

use provisor::capacity::planning;
use provisor::capacity::scheduling::{Edit, Help};
use provisor::model::label;
use provisor::model::name::{ObjectKey, PoolName};
use provisor::model::pod::{NodeTerm, PodShape, SelectorTerm};
use provisor::model::pool::NodePool;
use provisor::model::quantity::resource;
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::symbol::Symbol;
use provisor::model::taint::{Effect, Taint};

use super::town::*;

const WEB: &str = "web";

fn key() -> ObjectKey {
    ObjectKey::new("default", WEB)
}

fn town_with(shape: PodShape, change: impl FnOnce(&mut NodePool)) -> Town {
    let mut town = Town::with(change);
    town.cluster.put_pod(Arc::new(pod(WEB, None, shape)));
    town
}

fn help(town: &Town) -> Help {
    let plan = planning::plan(&town.cluster, town.now, &town.settings);
    planning::help(&town.cluster, town.now, &town.settings, &plan).remove(&key()).unwrap_or_default()
}

fn require(pool: &mut NodePool, key: Symbol, operator: Operator, values: &[&str]) {
    let values: Vec<Symbol> = values.iter().map(|value| (*value).into()).collect();
    Arc::make_mut(&mut pool.template).requirements.replace(key, Requirement::new(operator, values));
}

fn asking(key: Symbol, value: &str) -> PodShape {
    PodShape { node_selector: [(key, value.into())].into_iter().collect(), ..shape(WEB, "1") }
}

/// As somebody would who reads the advice.
fn follow(pool: &mut NodePool, edit: &Edit) {
    match edit {
        Edit::RemoveTaint(taint) => {
            Arc::make_mut(&mut pool.template).taints.retain(|present| present != taint)
        }
        Edit::AddLabel { key, value } => {
            Arc::make_mut(&mut pool.template).labels.insert(*key, *value);
        }
        Edit::Allow { key, value } => {
            let template = Arc::make_mut(&mut pool.template);
            let allowed = template.requirements.get(*key).expect("it is restricted");
            let values: Vec<Symbol> =
                allowed.listed().expect("it is a list").iter().copied().chain([*value]).collect();
            template.requirements.replace(*key, Requirement::new(Operator::In, values));
        }
        Edit::RaiseLimit { name, to, .. } => pool.limits.as_mut().expect("it has limits").set(*name, *to),
        Edit::LowerMinValues { key, to, .. } => {
            let template = Arc::make_mut(&mut pool.template);
            let lowered = template.requirements.get(*key).expect("it has one").clone();
            template.requirements.replace(*key, lowered.with_min_values(Some(*to)));
        }
    }
}

/// The advice for the only pod, which gets a node once it is followed, and none after half of it.
fn advised(mut town: Town) -> Vec<String> {
    let advice = help(&town).advice.expect("something helps");
    let places = |town: &Town| planning::plan(&town.cluster, town.now, &town.settings).provisioning.new_nodes;
    for edit in &advice.edits {
        assert!(places(&town).is_empty(), "{advice} says too much");
        town.change_pool(advice.pool.0.as_str(), |pool| follow(pool, edit));
    }
    let nodes = places(&town);
    assert_eq!(nodes.len(), 1, "{advice}");
    assert_eq!(*nodes[0].launch(), advice.launch);
    advice.edits.iter().map(ToString::to_string).collect()
}

#[test]
fn each_refusal_has_the_edit_that_lifts_it() {
    let no_schedule = Taint { key: "team".into(), value: "a".into(), effect: Effect::NoSchedule };
    let tainted = |pool: &mut NodePool| Arc::make_mut(&mut pool.template).taints.push(no_schedule);
    assert_eq!(advised(town_with(shape(WEB, "1"), tainted)), ["take taint team=a:NoSchedule off its nodes"]);

    let limited = |pool: &mut NodePool| {
        require(pool, *label::INSTANCE_TYPE, Operator::In, &["m5.xlarge"]);
        pool.limits = Some([(*resource::CPU, 2_000), (*resource::NODES, 9)].into_iter().collect());
    };
    assert_eq!(advised(town_with(shape(WEB, "1"), limited)), ["raise limit cpu from 2 to 4"]);

    let labelled = asking("tier".into(), "front");
    assert_eq!(advised(town_with(labelled, |_| {})), ["label its nodes tier=front"]);

    let one_zone = |pool: &mut NodePool| require(pool, *label::ZONE, Operator::In, &["us-west-2a"]);
    let elsewhere = asking(*label::ZONE, "us-west-2b");
    assert_eq!(
        advised(town_with(elsewhere.clone(), one_zone)),
        ["allow topology.kubernetes.io/zone us-west-2b"]
    );

    let small = |pool: &mut NodePool| require(pool, *label::INSTANCE_TYPE, Operator::In, &["m5.large"]);
    assert_eq!(
        advised(town_with(shape(WEB, "3"), small)),
        ["allow node.kubernetes.io/instance-type m5.xlarge"]
    );

    let many = |pool: &mut NodePool| {
        require(pool, *label::INSTANCE_TYPE, Operator::In, &["m5.large", "m5.xlarge"]);
        let template = Arc::make_mut(&mut pool.template);
        let some = template.requirements.get(*label::INSTANCE_TYPE).unwrap().clone();
        template.requirements.replace(*label::INSTANCE_TYPE, some.with_min_values(Some(4)));
    };
    assert_eq!(
        advised(town_with(shape(WEB, "1"), many)),
        ["lower minValues of node.kubernetes.io/instance-type from 4 to 2"]
    );

    let term = |terms: &[(Symbol, &str)]| NodeTerm {
        expressions: terms
            .iter()
            .map(|(key, value)| SelectorTerm {
                key: *key,
                operator: Operator::In,
                values: vec![(*value).into()],
            })
            .collect(),
        has_fields: false,
    };
    let either = PodShape {
        node_required: vec![
            term(&[("tier".into(), "front"), ("team".into(), "a")]),
            term(&[(*label::ZONE, "us-west-2b")]),
        ],
        ..shape(WEB, "1")
    };
    assert_eq!(advised(town_with(either, one_zone)), ["allow topology.kubernetes.io/zone us-west-2b"]);

    let varied = |pool: &mut NodePool| {
        many(pool);
        require(pool, *label::ZONE, Operator::In, &["us-west-2a", "us-west-2b"]);
        let template = Arc::make_mut(&mut pool.template);
        let zones = template.requirements.get(*label::ZONE).unwrap().clone();
        template.requirements.replace(*label::ZONE, zones.with_min_values(Some(2)));
    };
    assert_eq!(
        advised(town_with(shape(WEB, "1"), varied)),
        ["lower minValues of node.kubernetes.io/instance-type from 4 to 2"]
    );

    let all = |pool: &mut NodePool| {
        one_zone(pool);
        limited(pool);
    };
    assert_eq!(
        advised(town_with(elsewhere, all)),
        ["allow topology.kubernetes.io/zone us-west-2b", "raise limit cpu from 2 to 4"]
    );
}

/// One pool is a taint away, the other a limit; taints are meant.
#[test]
fn the_least_edit_is_told_and_a_taint_comes_last() {
    let mut town = town_with(shape(WEB, "1"), |pool| {
        let taint = Taint { key: "team".into(), value: "a".into(), effect: Effect::NoExecute };
        Arc::make_mut(&mut pool.template).taints.push(taint);
    });
    let mut full = pool("full");
    require(&mut full, *label::INSTANCE_TYPE, Operator::In, &["m5.large"]);
    full.limits = Some([(*resource::NODES, 1)].into_iter().collect());
    town.cluster.pools.insert(full.name, Arc::new(full));
    town.node_of("full", "n1", "m5.large", "on-demand");
    town.run("busy", "n1", shape("busy", "1500m"));
    let found = help(&town);
    assert_eq!(
        found.nearest[&PoolName::new("full")],
        "fits m5.large ($0.096/h), but its limit of nodes, 1, is reached"
    );
    assert_eq!(advised(town), ["raise limit nodes from 1 to 2"]);
}

#[test]
fn a_pod_that_is_too_large_for_anything_on_sale_is_told_what_comes_nearest() {
    let found = help(&town_with(shape(WEB, "4000"), |_| {}));
    assert_eq!(found.advice, None);
    let nearest = &found.nearest[&PoolName::new("default")];
    assert!(
        nearest.contains("comes nearest") && nearest.ends_with("cpu 7910m for pods, 4000 are asked for"),
        "{nearest}"
    );
}

/// No node may have such a label, or no label such a value.
#[test]
fn advice_is_nothing_that_would_be_refused() {
    assert_eq!(
        help(&town_with(asking("karpenter.k8s.aws/instance-famly".into(), "m5"), |_| {})).advice,
        None
    );
    let below_zero = SelectorTerm { key: "gen".into(), operator: Operator::Lt, values: vec!["0".into()] };
    let term = NodeTerm { expressions: vec![below_zero], has_fields: false };
    let never = PodShape { node_required: vec![term], ..shape(WEB, "1") };
    assert_eq!(help(&town_with(never, |_| {})).advice, None);
}

/// Nothing is known to help against what the pod itself gets wrong.
#[test]
fn a_pod_at_fault_gets_no_advice() {
    let mut broken = shape(WEB, "1");
    broken.has_resource_claims = true;
    assert_eq!(help(&town_with(broken, |_| {})), Help::default());
}
