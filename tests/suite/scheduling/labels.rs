//! What pods ask of labels, and what pools say about them.

use provisor::capacity::scheduling::Code;
use provisor::model::pool::NodePool;
use provisor::model::requirement::Operator::{self, *};

use super::world::*;

type Ask<'a> = (&'a str, Operator, &'a [&'a str]);

/// The value of `key` on the node of a pod that asks for `asked`, in a world of one pool; `None`: no node.
fn given(pool: NodePool, key: &str, asked: &[Ask]) -> Option<Option<&'static str>> {
    let mut world = World::of(pool);
    world.run(&[if asked.is_empty() { pod("a") } else { pod("a").or(asked) }]);
    world.is_bound("a").then(|| world.value_of("a", key))
}

/// Rows: SCH-108, SCH-109, SCH-110, SCH-111, SCH-112
#[test]
fn a_label_of_the_pool_is_a_value_to_ask_for() {
    let labelled = || pool("default").label("k", "v");
    assert_eq!(given(labelled(), "k", &[]), Some(Some("v")));
    assert_eq!(given(labelled(), "k", &[("k", In, &["other"])]), None);
    assert_eq!(given(pool("default"), "k", &[("k", In, &["v"])]), None);
    assert_eq!(given(labelled(), "k", &[("k", In, &["v", "w"])]), Some(Some("v")));
    assert_eq!(given(labelled(), "k", &[("k", In, &["w"])]), None);
}

/// Rows: SCH-113, SCH-114, SCH-116, SCH-117, SCH-122, SCH-123, SCH-124
#[test]
fn zones_are_chosen_by_pool_and_pod_together() {
    let zones = |values: &[&str]| pool("default").require(ZONE, In, values);
    assert_eq!(given(zones(&[Z2]), ZONE, &[]), Some(Some(Z2)));
    assert_eq!(given(zones(&[Z1, Z2]), ZONE, &[(ZONE, In, &[Z2])]), Some(Some(Z2)));
    assert_eq!(given(zones(&[Z1]), ZONE, &[(ZONE, In, &["unknown"])]), None);
    assert_eq!(given(zones(&[Z1]), ZONE, &[(ZONE, In, &[Z2])]), None);
    assert_eq!(given(pool("default"), ZONE, &[(ZONE, In, &[Z3])]), Some(Some(Z3)));
    assert_eq!(given(pool("default"), ZONE, &[(ZONE, In, &["unknown"])]), None);
    assert_eq!(given(pool("default"), ZONE, &[(ZONE, NotIn, &[Z1, Z2, "unknown"])]), Some(Some(Z3)));
    assert_eq!(given(pool("default"), ZONE, &[(ZONE, NotIn, &[Z1, Z2, Z3, "unknown"])]), None);
}

/// Rows: SCH-118, SCH-119, SCH-120, SCH-121
#[test]
fn numbers_are_compared() {
    let integer = |operator, value| given(pool("default").require(INTEGER, operator, &[value]), INTEGER, &[]);
    assert_eq!(integer(Gt, "8"), Some(Some("16")));
    assert_eq!(integer(Lt, "8"), Some(Some("2")));
    assert_eq!(integer(Gte, "16"), Some(Some("16")));
    assert_eq!(integer(Lte, "2"), Some(Some("2")));
}

/// Rows: SCH-125, SCH-126, SCH-127, SCH-128, SCH-143, SCH-144
#[test]
fn preferences_choose_within_what_is_required() {
    let required: &[Ask] = &[(ZONE, In, &[Z1, Z2, Z3, "unknown"])];
    let zone_when = |operator, preferred: &[&str]| {
        let mut world = World::plain();
        world.run(&[pod("a").or(required).prefer(1, ZONE, operator, preferred)]);
        world.value_of("a", ZONE)
    };
    assert_eq!(zone_when(In, &[Z2, "unknown"]), Some(Z2));
    assert!(zone_when(In, &["unknown"]).is_some());
    assert_eq!(zone_when(NotIn, &[Z1, Z3]), Some(Z2));
    assert!(zone_when(NotIn, &[Z1, Z2, Z3]).is_some());
    let mut world = World::plain();
    world.run(&[pod("a").or(&[(ZONE, In, &[Z3])]).prefer(1, ZONE, NotIn, &[Z3])]);
    assert_eq!(world.value_of("a", ZONE), Some(Z3));
    let mut contradictory = pod("b");
    contradictory
        .shape
        .node_preferred
        .push((1, term(&[(ZONE, In, &["invalid"]), (ZONE, NotIn, &["invalid"])])));
    world.run(&[contradictory]);
    assert!(world.is_bound("b"));
}

/// No value is in both, and a node without the label meets neither.
#[test]
fn sch_436_what_contradicts_itself_is_met_by_no_node() {
    let parts: [&[Ask]; 3] = [
        &[("tier", In, &["a"]), ("tier", In, &["b"])],
        &[("tier", In, &["a"]), ("tier", DoesNotExist, &[])],
        &[(INSTANCE_TYPE, In, &["small-instance-type"]), (INSTANCE_TYPE, NotIn, &["small-instance-type"])],
    ];
    for asked in parts {
        let mut world = World::plain();
        world.run(&[pod("first")]);
        world.run(&[pod("a").or(asked)]);
        assert!(!world.is_bound("a"), "{asked:?}");
        world.run(&[pod("b").or(asked).or(&[(ZONE, In, &[Z1])])]);
        assert!(world.is_bound("b"), "the other term is met, {asked:?}");
    }
}

/// Nobody labels a machine so; bought for such a pod, it would stand empty, be taken back, and be bought again.
#[test]
fn sch_448_a_label_of_aws_that_does_not_exist_is_defined_by_no_machine() {
    for (key, meant) in [
        ("karpenter.k8s.aws/instance-famly", "; did you mean karpenter.k8s.aws/instance-family?"),
        ("karpenter.k8s.aws/colour", ""),
    ] {
        let mut world = World::plain();
        let round = world.run(&[pod("a").select(key, "m5")]);
        assert_eq!(round.codes("a"), [Code::LabelNotDefined], "{key}");
        let message = round.message("a");
        assert!(message.ends_with(&format!("nothing defines it{meant}")), "{message}");
    }
}

/// Rows: SCH-129, SCH-130
#[test]
fn selectors_requirements_and_preferences_are_taken_together() {
    let all: &[&str] = &[Z1, Z2, Z3];
    let mut world = World::plain();
    world.run(&[pod("a").select(ZONE, Z3).or(&[(ZONE, In, all)]).prefer(1, ZONE, In, all)]);
    assert_eq!(world.value_of("a", ZONE), Some(Z3));
    let one = pod("b")
        .select(ZONE, Z3)
        .select(INSTANCE_TYPE, "arm-instance-type")
        .or(&[(ZONE, In, &[Z1, Z3]), (INSTANCE_TYPE, In, &["default-instance-type", "arm-instance-type"])])
        .prefer(1, ZONE, NotIn, &["unknown"])
        .prefer(1, INSTANCE_TYPE, NotIn, &["unknown"]);
    world.run(&[one]);
    assert_eq!(world.value_of("b", ZONE), Some(Z3));
    assert_eq!(world.value_of("b", INSTANCE_TYPE), Some("arm-instance-type"));
}

/// Rows: SCH-115, SCH-131, SCH-132
#[test]
fn restricted_labels_are_refused_by_name() {
    for key in [HOSTNAME, "karpenter.sh/test", "sub.karpenter.sh/test", "karpenter.sh/initialized"] {
        let mut world = World::plain();
        let round = world
            .run(&[pod("a").select(key, "x"), pod("b").or(&[(ZONE, Exists, &[])]).or(&[(key, Exists, &[])])]);
        for name in ["a", "b"] {
            assert!(!world.is_bound(name), "{key}");
            assert_eq!(round.rejected.get(name), Some(&Code::RestrictedLabel), "{key}, in any term");
        }
    }
}

#[test]
fn sch_134_well_known_labels_are_served_as_selectors() {
    for (key, value) in [
        (ZONE, Z1),
        (INSTANCE_TYPE, "default-instance-type"),
        (ARCH, "arm64"),
        (OS, "linux"),
        (CAPACITY_TYPE, "spot"),
    ] {
        assert!(given(pool("default"), key, &[(key, In, &[value])]).is_some(), "{key}");
    }
}

/// Rows: SCH-136, SCH-137, SCH-138, SCH-139
#[test]
fn undefined_labels_can_be_avoided_but_not_asked_for() {
    let silent = || pool("default");
    assert_eq!(given(silent(), "k", &[("k", In, &["v"])]), None);
    assert_eq!(given(silent(), "k", &[("k", Exists, &[])]), None);
    assert_eq!(given(silent(), "k", &[("k", NotIn, &["v"])]), Some(None));
    assert_eq!(given(silent(), "k", &[("k", DoesNotExist, &[])]), Some(None));
    let speaking = || pool("default").require("k", In, &["v"]);
    for asked in [&[][..], &[("k", In, &["v"] as &[&str])], &[("k", Exists, &[])], &[("k", NotIn, &["w"])]] {
        assert_eq!(given(speaking(), "k", asked), Some(Some("v")), "{asked:?}");
    }
    for asked in [("k", NotIn, &["v"] as &[&str]), ("k", DoesNotExist, &[]), ("k", In, &["w"])] {
        assert_eq!(given(speaking(), "k", &[asked]), None, "{asked:?}");
    }
}

/// Rows: SCH-140, SCH-141
#[test]
fn two_values_of_one_label_need_two_nodes() {
    let open = || pool("default").require("k", In, &["v", "w"]);
    let mut world = World::of(open());
    world.run(&[pod("a").or(&[("k", In, &["v"])]), pod("b").or(&[("k", NotIn, &["w"])])]);
    assert_eq!(world.host_of("a"), world.host_of("b"));
    assert_eq!(world.value_of("a", "k"), Some("v"));
    let mut world = World::of(open());
    world.run(&[pod("a").or(&[("k", In, &["v"])]), pod("b").or(&[("k", In, &["w"])])]);
    assert_ne!(world.host_of("a"), world.host_of("b"));
    assert_eq!((world.value_of("a", "k"), world.value_of("b", "k")), (Some("v"), Some("w")));
}

#[test]
fn sch_142_exists_does_not_widen() {
    assert_eq!(given(pool("default"), ZONE, &[(ZONE, In, &["nowhere"]), (ZONE, Exists, &[])]), None);
}

/// Rows: SCH-902, SCH-903
#[test]
fn pods_that_cannot_be_planned_for_are_left_out_with_a_reason() {
    let mut world = World::plain();
    let mut pinned = pod("pinned").or(&[]);
    pinned.shape.node_required[0].has_fields = true;
    let round = world.run(&[pod("aloof").or(&[(NODEPOOL, DoesNotExist, &[])]), pinned, pod("plain")]);
    assert_eq!(round.rejected.get("aloof"), Some(&Code::AvoidsManagedNodes));
    assert_eq!(round.rejected.get("pinned"), Some(&Code::FieldSelector));
    assert!(world.is_bound("plain"));
}

#[test]
fn sch_448_a_label_that_was_probably_meant_is_suggested() {
    for (asked, meant) in [
        ("zone", ZONE),
        ("region", "topology.kubernetes.io/region"),
        ("nodepool", NODEPOOL),
        ("instance-type", INSTANCE_TYPE),
        ("arch", ARCH),
        ("capacity-type", CAPACITY_TYPE),
        ("topology.kubernetesio/zone", ZONE),
        ("node.io/zone", ZONE),
        ("topology.kubernetes.io/regio", "topology.kubernetes.io/region"),
        ("node.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("karpenter/nodepool", NODEPOOL),
    ] {
        let message = World::plain().run(&[pod("a").select(asked, "x")]).message("a");
        assert!(message.contains(&format!("did you mean {meant}")), "{asked}: {message}");
    }
}

#[test]
fn sch_449_an_unrelated_label_gets_no_suggestion() {
    let message = World::plain().run(&[pod("a").select("deployment", "x")]).message("a");
    assert!(message.contains("deployment") && !message.contains("did you mean"), "{message}");
}
