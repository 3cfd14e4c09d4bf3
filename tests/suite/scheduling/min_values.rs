//! How many different types, zones or sizes a node must be able to choose from.

use provisor::capacity::provisioning;
use provisor::capacity::scheduling::{Code, MinValuesPolicy};
use provisor::model::label::annotation;
use provisor::model::offering::{CapacityType, InstanceType};
use provisor::model::pool::NodePool;
use provisor::model::requirement::Operator::*;

use super::world::*;

const FAMILY: &str = "karpenter.k8s.aws/family";

/// One type of so many CPUs and Gi, spot in two zones, with a number as its family.
fn kind(name: &str, size: &str, family: &str) -> InstanceType {
    let memory = format!("{size}Gi");
    let spot = [(Z1, CapacityType::Spot, 0.52), (Z2, CapacityType::Spot, 0.52)];
    let mut kind = machine(name, &[("cpu", size), ("memory", &memory), ("pods", "10")], &spot);
    label(&mut kind, FAMILY, requirement(In, &[family]));
    kind
}

fn two_kinds() -> Vec<InstanceType> {
    vec![kind("1", "4", "1"), kind("2", "4", "2")]
}

fn wanting_three_types() -> NodePool {
    pool("default").require_at_least(INSTANCE_TYPE, In, &["1", "2", "3"], 3)
}

fn small() -> A {
    pod("a").cpu("0.9").memory("0.9Gi")
}

fn best_effort(pools: Vec<NodePool>, types: Vec<InstanceType>) -> World {
    let mut world = World::new(pools, types);
    world.settings.min_values = MinValuesPolicy::BestEffort;
    world
}

#[test]
fn sch_101_too_few_types_are_refused() {
    let mut world = World::new(vec![wanting_three_types()], two_kinds());
    let round = world.run(&[small()]);
    assert_eq!(round.codes("a"), [Code::MinValuesNotMet]);
}

#[test]
fn sch_102_by_best_effort_the_minimum_is_lowered_and_said_to_be() {
    let mut world = best_effort(vec![wanting_three_types()], two_kinds());
    let round = world.run(&[small()]);
    let claim = round.claim();
    assert_eq!(types_of(claim), ["1", "2"]);
    assert_eq!(claim.spec.requirements.get(INSTANCE_TYPE.into()).unwrap().min_values, Some(2));
    assert_eq!(claim.annotations[&*annotation::MIN_VALUES_RELAXED].as_str(), "true");
    let plain = best_effort(vec![pool("default")], two_kinds()).run(&[small()]);
    assert_eq!(plain.claim().annotations[&*annotation::MIN_VALUES_RELAXED].as_str(), "false");
}

/// Rows: SCH-103, SCH-104
#[test]
fn a_lowered_minimum_comes_before_a_lighter_pool() {
    let mut lighter = wanting_three_types();
    lighter.name = "lighter".into();
    for other in [pool("lighter"), lighter] {
        let mut world = best_effort(vec![wanting_three_types().weight(100), other], two_kinds());
        world.run(&[small()]);
        assert_eq!(world.value_of("a", NODEPOOL), Some("default"));
    }
}

fn wanting_three_zones() -> NodePool {
    pool("default").require_at_least(ZONE, In, &[Z1, Z2, Z3], 3)
}

/// Rows: SCH-105, SCH-106, SCH-107
#[test]
fn zones_can_be_too_few_as_well() {
    let one_kind = || vec![kind("1", "4", "1")];
    let mut world = World::new(vec![wanting_three_zones()], one_kind());
    assert_eq!(world.run(&[small()]).codes("a"), [Code::MinValuesNotMet]);
    let mut world = best_effort(vec![wanting_three_zones()], one_kind());
    let round = world.run(&[small()]);
    assert_eq!(values_of(round.claim(), ZONE), [Z1, Z2, Z3]);
    assert_eq!(round.claim().spec.requirements.get(ZONE.into()).unwrap().min_values, Some(2));
    let both = wanting_three_zones().require_at_least(INSTANCE_TYPE, In, &["1", "2", "3"], 3);
    let round = best_effort(vec![both], one_kind()).run(&[small()]);
    let least = |key: &str| round.claim().spec.requirements.get(key.into()).unwrap().min_values;
    assert_eq!((least(INSTANCE_TYPE), least(ZONE)), (Some(1), Some(2)));
    assert_eq!(types_of(round.claim()), ["1"]);
}

/// Two pods, of which the small types hold one, so that sharing a node would leave a single type.
fn nodes_for(asked: NodePool, types: Vec<InstanceType>) -> Vec<usize> {
    let mut world = World::new(vec![asked], types);
    let round = world.run(&many(2, &small()));
    round.purchase.claims.iter().map(|(claim, _)| types_of(claim).len()).collect()
}

/// Rows: SCH-358, SCH-359, SCH-361, SCH-363, SCH-364, SCH-367, SCH-368
#[test]
fn a_second_pod_opens_a_node_rather_than_break_the_minimum() {
    let by_type = |min| pool("default").require_at_least(INSTANCE_TYPE, In, &["a", "b", "c"], min);
    let is_two_wide_nodes = |nodes: Vec<usize>| nodes.len() == 2 && nodes.iter().all(|types| *types >= 2);
    assert!(is_two_wide_nodes(nodes_for(by_type(2), vec![kind("a", "1", "1"), kind("b", "4", "4")])));
    let three = || vec![kind("a", "1", "2"), kind("b", "1", "3"), kind("c", "4", "4")];
    let asked = pool("default").require_at_least(FAMILY, Gt, &["2"], 2);
    assert!(is_two_wide_nodes(nodes_for(asked, three())));
    let asked = pool("default").require_at_least(FAMILY, Lt, &["4"], 2);
    let sizes = vec![kind("a", "1", "2"), kind("b", "2", "3"), kind("c", "4", "4")];
    assert!(is_two_wide_nodes(nodes_for(asked, sizes)));
    let asked = by_type(1).require_at_least(INSTANCE_TYPE, NotIn, &["c"], 2);
    assert!(is_two_wide_nodes(nodes_for(
        asked,
        vec![kind("a", "1", "1"), kind("b", "4", "2"), kind("c", "4", "3")]
    )));
    let four = vec![kind("a", "1", "2"), kind("b", "1", "3"), kind("c", "4", "4"), kind("d", "4", "5")];
    let asked =
        pool("default").require_at_least(FAMILY, Gt, &["2"], 1).require_at_least(FAMILY, Lt, &["5"], 2);
    assert!(is_two_wide_nodes(nodes_for(asked, four)));
    let asked = pool("default").require_at_least(INSTANCE_TYPE, Exists, &[], 1).require_at_least(
        INSTANCE_TYPE,
        In,
        &["a", "b"],
        2,
    );
    assert!(is_two_wide_nodes(nodes_for(asked, vec![kind("a", "1", "1"), kind("b", "4", "4")])));
    let mut arm = kind("a", "1", "1");
    label(&mut arm, ARCH, requirement(In, &["arm64"]));
    let asked = pool("default").require_at_least(ARCH, Exists, &[], 2).require_at_least(
        INSTANCE_TYPE,
        In,
        &["a", "b"],
        1,
    );
    assert!(is_two_wide_nodes(nodes_for(asked, vec![arm, kind("b", "4", "4")])));
}

/// Rows: SCH-360, SCH-362, SCH-365
#[test]
fn a_minimum_that_even_an_empty_node_misses_is_named() {
    let asked = pool("default").require_at_least(FAMILY, Exists, &[], 2);
    let mut world = World::new(vec![asked], vec![kind("a", "1", "2"), kind("b", "1", "3")]);
    let round = world.run(&many(2, &small().or(&[(FAMILY, Gt, &["2"])])));
    assert_eq!(world.waiting(), 2);
    assert!(round.message("a-001").contains(FAMILY), "{}", round.message("a-001"));
    let asked = pool("default").require_at_least(FAMILY, Lt, &["4"], 2);
    assert!(nodes_for(asked, vec![kind("a", "1", "2"), kind("b", "4", "4")]).is_empty());
    let ten = (0..10).map(|at| kind(&format!("t{at}"), "4", "1")).collect();
    let asked = pool("default").require_at_least(INSTANCE_TYPE, Exists, &[], 11);
    assert!(nodes_for(asked, ten).is_empty());
}

/// 700 types, each dearer than the one before: the first 650 of family 1 in the first zone, then of families 2 to 51 in the
/// second.
fn too_many_kinds() -> Vec<InstanceType> {
    let one = |at: u32| {
        let (family, zone) = if at < 650 { (1, Z1) } else { (at - 648, Z2) };
        let mut one = kind(&format!("t{at:03}"), "4", &family.to_string());
        offer(&mut one, &[(zone, CapacityType::Spot, f64::from(at) + 1.0)]);
        one
    };
    (0..700).map(one).collect()
}

/// Rows: SCH-366
#[test]
fn a_list_of_types_that_had_to_be_cut_below_the_minimum_buys_nothing() {
    let wanted = u32::try_from(provisioning::TYPES_MAX).unwrap() + 1;
    let asked = pool("default").require_at_least(INSTANCE_TYPE, Exists, &[], wanted);
    let round = World::new(vec![asked], too_many_kinds()).run(&[small()]);
    assert!(round.purchase.claims.is_empty());
    assert_eq!(round.purchase.dropped[0].1.code, Code::MinValuesNotMet);
}

/// Rows: WEA-022
#[test]
fn wea_022_a_list_of_types_that_has_to_be_cut_keeps_what_minimums_ask_for() {
    type Minimums = &'static [(&'static str, u32)];
    let cases: [(&str, Minimums, usize); 4] = [
        ("nothing asked for", &[], 600),
        ("the two cheapest families", &[(FAMILY, 2)], 599),
        ("families and zones", &[(FAMILY, 7), (ZONE, 2)], 594),
        ("what the cheapest have anyway", &[(INSTANCE_TYPE, 40)], 600),
    ];
    for (what, minimums, cheapest) in cases {
        let asked = minimums
            .iter()
            .fold(pool("default"), |pool, (key, least)| pool.require_at_least(key, Exists, &[], *least));
        for is_strict in [true, false] {
            let mut world = World::new(vec![asked.clone()], too_many_kinds());
            if !is_strict {
                world.settings.min_values = MinValuesPolicy::BestEffort;
            }
            let round = world.run(&[small()]);
            let named = types_of(round.claim());
            assert_eq!(named.len(), provisioning::TYPES_MAX, "{what}");
            // Named by name, which is by price here.
            let expected: Vec<String> =
                (0..cheapest).chain(650..650 + 600 - cheapest).map(|at| format!("t{at:03}")).collect();
            assert_eq!(named, expected, "{what}");
        }
    }
}

/// Rows: WEA-022
#[test]
fn wea_022_a_zone_counts_only_if_a_named_type_is_sold_there() {
    let asked = pool("default").require_at_least(ZONE, Exists, &[], 2);
    let round = World::new(vec![asked], too_many_kinds()).run(&[small()]);
    let named = types_of(round.claim());
    assert!(named.contains(&"t650"), "the cheapest of the second zone");
    assert!(!named.contains(&"t599"), "its place is taken from the dearest of the others");
}

#[test]
fn sch_926_an_open_node_is_not_relaxed_further() {
    let mut world = best_effort(vec![wanting_three_types()], vec![kind("1", "1", "1"), kind("2", "4", "2")]);
    let round = world.run(&many(2, &small()));
    assert_eq!(round.new_nodes().len(), 2);
    assert!(round.purchase.claims.iter().all(|(claim, _)| types_of(claim).len() == 2));
}

/// Rows: WEA-028
#[test]
fn each_claim_says_for_itself_whether_its_minimum_was_lowered() {
    let types = vec![kind("1", "4", "1"), kind("2", "4", "2"), kind("3", "1", "3")];
    let mut world = best_effort(vec![wanting_three_types()], types);
    let round = world.run(&[pod("big").cpu("3").select(ZONE, Z1), small().select(ZONE, Z2)]);
    let said = |at: usize| round.purchase.claims[at].0.annotations[&*annotation::MIN_VALUES_RELAXED];
    assert_eq!((said(0).as_str(), said(1).as_str()), ("true", "false"));
}

/// Rows: WEA-038
#[test]
fn values_that_a_pod_has_ruled_out_do_not_count() {
    let world_of = || {
        let asked = pool("default").require_at_least(ZONE, In, &[Z1, Z2], 2);
        World::new(vec![asked], vec![kind("1", "4", "1")])
    };
    let mut free = world_of();
    free.run(&[small()]);
    assert!(free.is_bound("a"));
    let round = world_of().run(&[small().select(ZONE, Z1)]);
    assert_eq!(round.codes("a"), [Code::MinValuesNotMet]);
}
