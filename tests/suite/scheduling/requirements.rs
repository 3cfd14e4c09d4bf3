//! The algebra of requirements: what sets of label values have in common, contain, and look like in text.

use provisor::api::{self, Object};
use provisor::model::requirement::Operator::{self, *};
use provisor::model::requirement::{Requirement, Requirements};
use provisor::model::symbol::Symbol;
use serde_json::{Value, json};

use super::world::*;

fn both(one: &Requirement, other: &Requirement) -> Requirement {
    let met = one.intersection(other);
    assert_eq!(met, other.intersection(one), "the order does not matter");
    met
}

fn no(values: &[&str]) -> Requirement {
    requirement(NotIn, values)
}

fn is(values: &[&str]) -> Requirement {
    requirement(In, values)
}

fn over(bound: &str) -> Requirement {
    requirement(Gt, &[bound])
}

fn under(bound: &str) -> Requirement {
    requirement(Lt, &[bound])
}

fn shown(requirement: &Requirement) -> String {
    requirement.to_string()
}

#[test]
fn sch_438_what_exclusions_and_bounds_have_in_common_is_exact() {
    let (absent, nothing) = (requirement(DoesNotExist, &[]), is(&[]));
    assert_eq!(both(&no(&["A"]), &no(&["1", "2"])), no(&["1", "2", "A"]));
    assert_eq!(shown(&both(&no(&["1", "2"]), &over("1"))), "NotIn [2] >=2");
    assert_eq!(shown(&both(&no(&["1", "2"]), &over("9"))), "Exists >=10");
    assert_eq!(shown(&both(&no(&["1", "2"]), &under("1"))), "Exists <=0");
    assert_eq!(shown(&both(&no(&["1", "2"]), &under("9"))), "NotIn [1, 2] <=8");
    assert_eq!(shown(&both(&over("1"), &under("9"))), "Exists >=2 <=8");
    assert_eq!(both(&over("9"), &under("1")), nothing);
    assert_eq!(both(&is(&["1", "9"]), &under("9")), is(&["1"]));
    assert_eq!(both(&is(&["A"]), &over("1")), nothing);
    for any in [is(&["A"]), requirement(Exists, &[]), over("1"), under("9"), nothing.clone()] {
        assert_eq!(both(&any, &nothing), nothing, "{any}");
        assert_eq!(both(&any, &absent), nothing, "{any} asks for a value");
    }
    for any in [no(&["A"]), absent.clone()] {
        assert_eq!(both(&any, &absent), absent, "{any}");
        assert_eq!(both(&any, &nothing), nothing, "{any}");
    }
}

#[test]
fn sch_439_the_larger_minimum_survives() {
    let least = |count| is(&["A", "B"]).with_min_values(count);
    assert_eq!(both(&least(Some(1)), &least(None)).min_values, Some(1));
    assert_eq!(both(&least(Some(1)), &least(Some(2))).min_values, Some(2));
    let nothing = both(&over("9").with_min_values(Some(3)), &under("1").with_min_values(Some(2)));
    assert_eq!(shown(&nothing), "In [] minValues 3");
}

#[test]
fn sch_440_membership_heeds_exclusions_and_bounds() {
    let members = |set: Requirement, among: &[&'static str]| -> Vec<&str> {
        among.iter().copied().filter(|value| set.has(Symbol::new(value))).collect()
    };
    assert_eq!(members(requirement(Exists, &[]), &["A", ""]), ["A", ""]);
    assert_eq!(members(no(&["A"]), &["A", "B"]), ["B"]);
    assert_eq!(members(over("1"), &["A", "0", "1", "2", "3", "100"]), ["2", "3", "100"]);
    assert_eq!(members(requirement(Gte, &["2"]), &["A", "0", "1", "2", "3", "100"]), ["2", "3", "100"]);
    assert_eq!(members(requirement(Lte, &["8"]), &["A", "0", "7", "8", "9", "10"]), ["0", "7", "8"]);
    assert_eq!(members(requirement(Gte, &["0"]), &["-1", "0", "1"]), ["0", "1"]);
}

#[test]
fn sch_441_bounds_read_as_existence() {
    for set in [over("1"), under("9"), both(&over("1"), &under("9"))] {
        assert_eq!(set.operator(), Exists);
    }
}

/// What a node is labelled with if its pool leaves a label open and a pod asks for it.
///
/// Rows: WEA-027
#[test]
fn sch_442_a_label_that_is_left_open_gets_a_value_that_is_allowed() {
    let value = |operator: Operator, values: &[&str]| -> Option<&'static str> {
        let mut world = World::of(pool("default").require("open", operator, values));
        let round = world.run(&[pod("a")]);
        round.new_nodes()[0].labels.get(&Symbol::new("open")).map(|value| value.as_str())
    };
    let number =
        |operator, values: &[&str]| value(operator, values).and_then(|text| text.parse::<i64>().ok());
    assert!(["a", "b"].contains(&value(In, &["a", "b"]).unwrap()));
    assert_eq!(value(DoesNotExist, &[]), None);
    assert!(!["", "0", "a"].contains(&value(NotIn, &["0", "a"]).unwrap()));
    assert!(number(Gt, &["9"]).unwrap() >= 10);
    assert_eq!(value(Lt, &["1"]), Some("0"));
    assert_eq!(value(Lt, &["0"]), None, "no label is a negative number");
    assert_eq!(value(NotIn, &["0"]), Some("1"));
    assert!((0..=8).contains(&number(Lt, &["9"]).unwrap()));
}

/// Requirements of a claim, as the API server would hold them.
fn written(entries: &[(&str, Requirement)]) -> Value {
    let Ok(Object::NodeClaim(mut claim)) = api::parse(&json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": { "name": "c" },
        "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
            "requirements": [],
        },
    })) else {
        panic!("a claim")
    };
    claim.spec.requirements = entries.iter().map(|(key, set)| (Symbol::new(key), set.clone())).collect();
    api::to_value(&Object::NodeClaim(claim)).expect("claims are written")["spec"]["requirements"].clone()
}

/// Rows: SCH-443, SCH-444, SCH-445, SCH-446, WEA-027
#[test]
fn bounds_are_written_as_the_tightest_inclusive_ones() {
    let gte = |bound: &str| requirement(Gte, &[bound]);
    let lte = |bound: &str| requirement(Lte, &[bound]);
    let entry = |operator: &str, bound: &str| json!({ "key": "n", "operator": operator, "values": [bound] });
    for (set, expected) in [
        (both(&over("4"), &gte("5")), vec![entry("Gte", "5")]),
        (both(&over("5"), &gte("5")), vec![entry("Gte", "6")]),
        (both(&over("3"), &gte("6")), vec![entry("Gte", "6")]),
        (both(&under("5"), &lte("5")), vec![entry("Lte", "4")]),
        (both(&under("9"), &lte("5")), vec![entry("Lte", "5")]),
        (over(&i64::MAX.to_string()), vec![json!({ "key": "n", "operator": "DoesNotExist" })]),
        (over("1"), vec![entry("Gte", "2")]),
        (over("9"), vec![entry("Gte", "10")]),
        (under("1"), vec![entry("Lte", "0")]),
        (under("9"), vec![entry("Lte", "8")]),
        (both(&gte("8"), &lte("8")), vec![entry("Gte", "8"), entry("Lte", "8")]),
        (
            both(&no(&["2", "4"]), &over("1")),
            vec![json!({ "key": "n", "operator": "NotIn", "values": ["2", "4"] }), entry("Gte", "2")],
        ),
    ] {
        assert_eq!(written(&[("n", set.clone())]), json!(expected), "{set}");
    }
    let least = written(&[("n", over("1").with_min_values(Some(3)))]);
    assert_eq!(least, json!([{ "key": "n", "operator": "Gte", "values": ["2"], "minValues": 3 }]));
}

#[test]
fn sch_447_requirements_print_in_the_order_of_their_keys_and_not_at_length() {
    let all: Requirements = [
        ("not-in", no(&["1", "9"])),
        ("in", is(&["9", "1"])),
        ("lt", under("9")),
        ("gt", over("1")),
        ("exists", requirement(Exists, &[])),
        ("does-not-exist", requirement(DoesNotExist, &[])),
        (HOSTNAME, is(&["hidden"])),
    ]
    .into_iter()
    .map(|(key, set)| (Symbol::new(key), set))
    .collect();
    assert_eq!(
        all.to_string(),
        "does-not-exist DoesNotExist, exists Exists, gt Exists >=2, in In [1, 9], lt Exists <=8, not-in NotIn [1, 9]"
    );
    let many = is(&["a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!(many.to_string(), "In [a, b, c, d, e and 2 others]");
}

/// Rows: SCH-437
#[test]
fn old_names_of_labels_are_those_of_today_wherever_they_are_written() {
    for (old, value, new) in [
        ("failure-domain.beta.kubernetes.io/zone", Z2, ZONE),
        ("beta.kubernetes.io/arch", "arm64", ARCH),
        ("beta.kubernetes.io/instance-type", "default-instance-type", INSTANCE_TYPE),
    ] {
        let wished = pod("wished").prefer(1, old, In, &[value]);
        for one in [pod("selected").select(old, value), pod("required").or(&[(old, In, &[value])]), wished] {
            let mut world = World::plain();
            world.run(std::slice::from_ref(&one));
            assert_eq!(world.value_of(&one.name, new), Some(value), "{} by {old}", one.name);
        }
        let mut world = World::of(pool("default").label(old, value));
        world.run(&[pod("labelled")]);
        assert_eq!(world.value_of("labelled", new), Some(value), "{old} of a pool");
    }
    let of = |key: &str| -> Requirements { [(Symbol::new(key), is(&["x"]))].into_iter().collect() };
    assert_eq!(of("beta.kubernetes.io/os"), of(OS));
    assert_eq!(of("failure-domain.beta.kubernetes.io/region"), of("topology.kubernetes.io/region"));
}
