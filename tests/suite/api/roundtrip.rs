//! What we write reads back as the same thing.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use provisor::api::{self, Object};
use provisor::model::claim::{ClaimSpec, Condition, ConditionStatus, ConditionType, Conditions, NodeClaim};
use provisor::model::label::Labels;
use provisor::model::name::{ClassName, NodeName, ProviderId, Uid};
use provisor::model::node::{Node, NodeCondition};
use provisor::model::pool::{
    Budget, BudgetNodes, BudgetWindow, ClassRef, ConsolidationPolicy, Disruption, DisruptionReason, NodePool,
    NodeTemplate, PoolCondition, PoolConditions, PoolUse,
};
use provisor::model::quantity::{ResourceName, Resources};
use provisor::model::requirement::{Operator, Requirement, Requirements};
use provisor::model::roll::{Roll, RollFailures};
use provisor::model::symbol::Symbol;
use provisor::model::taint::{Effect, Taint};
use provisor::model::time::{Patience, SignedDuration, Timestamp};

fn word() -> impl Strategy<Value = Symbol> {
    "[a-z][a-z0-9]{0,6}".prop_map(|text| Symbol::new(&text))
}

fn labels() -> impl Strategy<Value = Labels> {
    btree_map(word(), word(), 0..4)
}

fn moment() -> impl Strategy<Value = Timestamp> {
    (1_700_000_000_i64..1_900_000_000).prop_map(|second| Timestamp::from_second(second).expect("in range"))
}

fn patience() -> impl Strategy<Value = Patience> {
    prop_oneof![
        Just(Patience::never()),
        (0_i64..10_000_000).prop_map(|seconds| Patience::of(SignedDuration::from_secs(seconds))),
    ]
}

fn grace() -> impl Strategy<Value = Option<SignedDuration>> {
    option::of((0_i64..10_000_000).prop_map(SignedDuration::from_secs))
}

fn resources() -> impl Strategy<Value = Resources> {
    let name =
        prop_oneof![Just("cpu"), Just("memory"), Just("pods"), Just("nvidia.com/gpu"), Just("hugepages-2Mi")];
    vec((name, 0_i64..1 << 40), 0..5)
        .prop_map(|list| list.into_iter().map(|(name, amount)| (ResourceName::new(name), amount)).collect())
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let number = (0_u32..50).prop_map(|number| Symbol::new(&number.to_string()));
    let listed =
        |operator: Operator| vec(word(), 1..4).prop_map(move |values| Requirement::new(operator, values));
    let compared =
        prop_oneof![Just(Operator::Gt), Just(Operator::Lt), Just(Operator::Gte), Just(Operator::Lte)];
    let one = prop_oneof![
        listed(Operator::In),
        listed(Operator::NotIn),
        Just(Requirement::anything()),
        Just(Requirement::nothing()),
        (compared, number).prop_map(|(operator, number)| Requirement::new(operator, [number])),
    ];
    (vec(one, 1..4))
        .prop_map(|list| list.iter().skip(1).fold(list[0].clone(), |all, next| all.intersection(next)))
}

fn requirements() -> impl Strategy<Value = Requirements> {
    // A set that lists fewer values than it must keep is refused, so the least number goes with open sets only.
    let entry = (word(), requirement(), option::of(1_u32..=50)).prop_map(|(key, set, count)| {
        let count = count.filter(|_| set.listed().is_none());
        (key, set.with_min_values(count))
    });
    vec(entry, 0..4).prop_map(|entries| {
        // One entry per key, so that none is narrowed to a list after it got its least number.
        let mut all = Requirements::new();
        for (key, set) in entries {
            all.replace(key, set);
        }
        all.forgive();
        all
    })
}

/// Taints of which no two are the same one.
fn taints() -> impl Strategy<Value = Vec<Taint>> {
    let effect =
        prop_oneof![Just(Effect::NoSchedule), Just(Effect::PreferNoSchedule), Just(Effect::NoExecute)];
    let taint = (word(), prop_oneof![Just(Symbol::new("")), word()], effect)
        .prop_map(|(key, value, effect)| Taint { key, value, effect });
    vec(taint, 0..3).prop_map(|mut list| {
        list.sort();
        list.dedup_by(|a, b| a.is_same(b));
        list
    })
}

fn class_ref() -> impl Strategy<Value = ClassRef> {
    (word(), word(), word()).prop_map(|(group, kind, name)| ClassRef { group, kind, name: ClassName(name) })
}

fn conditions() -> impl Strategy<Value = Conditions> {
    let status = prop_oneof![
        Just(ConditionStatus::True),
        Just(ConditionStatus::False),
        Just(ConditionStatus::Unknown)
    ];
    let kind = (0..ConditionType::ALL.len()).prop_map(|index| ConditionType::ALL[index]);
    let condition = (status, word(), word(), option::of(moment()))
        .prop_map(|(status, reason, message, since)| Condition { status, reason, message, since });
    vec((kind, condition), 0..4).prop_map(|list| {
        let mut conditions = Conditions::default();
        for (kind, condition) in list {
            conditions.insert(kind, condition);
        }
        conditions
    })
}

prop_compose! {
    fn claim_spec()(
        requirements in requirements(), requests in resources(), taints in taints(), class in class_ref(),
        expire_after in patience(), termination_grace in grace(),
    ) -> ClaimSpec {
        let startup_taints = Vec::new();
        ClaimSpec { requirements, requests, taints, startup_taints, class, expire_after, termination_grace }
    }
}

prop_compose! {
    fn claim()(
        (name, uid) in (word(), word()), (labels, annotations) in (labels(), labels()),
        (created, deleted, last_pod_event) in (option::of(moment()), option::of(moment()), option::of(moment())),
        has_finalizer in any::<bool>(), spec in claim_spec(),
        (node, id, image) in (option::of(word()), option::of(word()), option::of(word())),
        (capacity, allocatable) in (resources(), resources()), conditions in conditions(),
    ) -> NodeClaim {
        NodeClaim {
            name: provisor::model::name::ClaimName(name), uid: Uid(uid), labels, annotations, created, deleted,
            has_finalizer, spec, node: node.map(NodeName), provider_id: id.map(ProviderId), image, capacity,
            allocatable, conditions, last_pod_event,
        }
    }
}

prop_compose! {
    fn budget()(
        nodes in prop_oneof![(0_u32..1000).prop_map(BudgetNodes::Count), (0_u8..=100).prop_map(BudgetNodes::Percent)],
        reason in option::of(prop_oneof![
            Just(DisruptionReason::Empty), Just(DisruptionReason::Underutilized), Just(DisruptionReason::Drifted),
        ]),
        minutes in option::of(0_i64..6000),
    ) -> Budget {
        let window = minutes.map(|minutes| BudgetWindow {
            schedule: "0 9 * * mon-fri".into(),
            duration: SignedDuration::from_mins(minutes),
        });
        Budget { nodes, reasons: reason.into_iter().collect(), window }
    }
}

prop_compose! {
    fn pool()(
        (name, uid, created) in (word(), word(), option::of(moment())), is_ready in any::<bool>(),
        (labels, annotations) in (labels(), labels()), taints in taints(), requirements in requirements(),
        class in class_ref(), (expire_after, termination_grace) in (patience(), grace()),
        consolidate_after in patience(), budgets in vec(budget(), 0..3),
        limits in option::of(resources()), weight in 0_u32..=100, hash in word(),
        used in option::of((resources(), 0_u32..9)),
        roll in roll(), roll_failures in option::of((1_u32..9, word()).prop_map(|(count, goal)| RollFailures { count, goal })),
        policy in prop_oneof![
            Just(ConsolidationPolicy::WhenEmpty), Just(ConsolidationPolicy::WhenEmptyOrUnderutilized),
            Just(ConsolidationPolicy::Balanced),
        ],
    ) -> NodePool {
        let template = NodeTemplate {
            labels, annotations, taints, startup_taints: Vec::new(), requirements, class, termination_grace,
            expire_after,
        };
        let mut conditions = PoolConditions::default();
        let status = if is_ready { ConditionStatus::True } else { ConditionStatus::False };
        conditions.insert(PoolCondition::Ready, Condition { status, reason: hash, message: hash, since: created });
        NodePool {
        is_judged_earlier: false,
            name: provisor::model::name::PoolName(name), uid: Uid(uid), created, is_deleting: false,
            template: template.into(), disruption: Disruption { consolidate_after, policy, budgets }, terms: Default::default(), limits, weight,
            replicas: None, roll: Ok(roll), roll_failures, is_ready, hash: Some(hash), hash_version: Some(hash), new_stamp: None, owner: None, fault: None,
            conditions, used: used.map(|(resources, nodes)| PoolUse { resources, nodes }),
        }
    }
}

prop_compose! {
    fn roll()(
        is_paused in any::<bool>(), canary in 0_u32..9, soak in 0_i64..90_000, halt_after in 1_u32..9,
        surge in option::of(prop_oneof![
            (1_u32..9).prop_map(BudgetNodes::Count), (1_u8..=100).prop_map(BudgetNodes::Percent),
        ]),
    ) -> Roll {
        Roll { is_paused, canary, soak: SignedDuration::from_secs(soak), surge, halt_after }
    }
}

prop_compose! {
    fn node()(
        (name, uid) in (word(), word()), (labels, annotations) in (labels(), labels()),
        (created, deleted) in (option::of(moment()), option::of(moment())),
        (has_finalizer, is_cordoned) in (any::<bool>(), any::<bool>()), id in option::of(word()), taints in taints(),
        (capacity, allocatable) in (resources(), resources()),
        conditions in vec((word(), word(), option::of(moment())), 0..3),
    ) -> Node {
        let conditions = conditions.into_iter().map(|(kind, status, since)| NodeCondition { kind, status, since });
        Node {
            name: NodeName(name), uid: Uid(uid), labels, annotations, created, deleted, has_finalizer,
            provider_id: id.map(ProviderId), taints, is_cordoned, capacity, allocatable,
            conditions: conditions.collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_claim_reads_back_as_it_was(claim in claim()) {
        let object = Object::NodeClaim(Box::new(claim));
        let value = api::to_value(&object).expect("we write claims");
        prop_assert_eq!(api::parse(&value), Ok(object), "{:#}", value);
    }

    #[test]
    fn a_pool_reads_back_as_it_was(pool in pool()) {
        let value = api::to_value(&Object::NodePool(pool.clone())).expect("we write pools");
        // A hash that is not ours is to be replaced; that is no part of the object.
        let read = match api::parse(&value) {
            Ok(Object::NodePool(read)) => Ok(NodePool { new_stamp: None, ..read }),
            other => Err(other),
        };
        prop_assert_eq!(read, Ok(pool), "{:#}", value);
    }

    #[test]
    fn a_node_reads_back_as_it_was(node in node()) {
        let object = Object::Node(node);
        let value = api::to_value(&object).expect("we write nodes");
        prop_assert_eq!(api::parse(&value), Ok(object), "{:#}", value);
    }

    #[test]
    fn what_we_write_an_api_server_takes(claim in claim(), pool in pool()) {
        for value in [api::render_node_claim(&claim), api::render_node_pool(&pool)] {
            let errors = api::validate(&value);
            prop_assert!(errors.is_empty(), "{:?}\n{:#}", errors, value);
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "(?s).{0,200}") {
        let _ = api::snapshot::read(&text, "any");
    }
}
