//! Pods that want to be near others, and pods that do not.

use provisor::capacity::scheduling::Code;
use provisor::model::pod::Selector;
use provisor::model::requirement::Operator::*;
use provisor::model::taint::Effect;

use super::world::*;

fn target() -> A {
    pod("target").label("app", "target")
}

fn follower(key: &str) -> A {
    pod("follower").near(near(key, with_label("app", "target")))
}

fn loner(key: &str) -> A {
    pod("loner").label("app", "loner").far(near(key, with_label("app", "target")))
}

fn herd(key: &str) -> A {
    pod("herd").label("app", "herd").near(near(key, with_label("app", "herd")))
}

fn spreading() -> Vec<A> {
    many(10, &pod("filler").label("app", "filler").spread(spread(HOSTNAME, 1, with_label("app", "filler"))))
}

#[test]
fn sch_303_empty_lists_of_terms_ask_for_nothing() {
    let written = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "namespace": "default" },
        "spec": {
            "containers": [{ "name": "a" }],
            "affinity": {
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [],
                    "preferredDuringSchedulingIgnoredDuringExecution": [],
                },
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [],
                    "preferredDuringSchedulingIgnoredDuringExecution": [],
                },
            },
        },
    });
    let Ok(provisor::api::Object::Pod(read)) = provisor::api::parse(&written) else { panic!("a pod") };
    let mut world = World::plain();
    world.run(&[A { shape: (*read.shape).clone(), ..pod("a") }, pod("b")]);
    assert!(world.is_bound("a"));
    assert_eq!(world.host_of("a"), world.host_of("b"));
}

#[test]
fn sch_304_a_follower_finds_its_target_among_others() {
    let mut world = World::plain();
    let mut pods = spreading();
    pods.extend([target(), follower(HOSTNAME)]);
    world.run(&pods);
    assert_eq!(world.host_of("target"), world.host_of("follower"));
    assert_eq!(world.waiting(), 0);
}

#[test]
fn sch_305_near_by_architecture_need_not_be_on_one_host() {
    let mut world = World::of(pool("default").require(ARCH, In, &["amd64", "arm64"]));
    let apart = |pod: A| pod.label("kind", "x").spread(spread(HOSTNAME, 1, with_label("kind", "x")));
    world.run(&[apart(target().cpu("2").select(ARCH, "arm64")), apart(follower(ARCH).cpu("1"))]);
    assert_eq!(world.value_of("follower", ARCH), Some("arm64"));
    assert_ne!(world.host_of("target"), world.host_of("follower"));
}

/// Rows: SCH-306, SCH-307
#[test]
fn a_herd_shares_one_host() {
    let mut world = World::plain();
    world.run(&many(3, &herd(HOSTNAME)));
    assert_eq!(world.cluster.nodes.len(), 1);
    assert_eq!(world.waiting(), 0);
    let mut world = World::plain();
    world.run(&many(10, &herd(HOSTNAME)));
    assert_eq!((world.cluster.nodes.len(), world.waiting()), (1, 5));
    let mut later = herd(HOSTNAME);
    later.name = "later".into();
    world.run(&many(10, &later));
    assert_eq!((world.cluster.nodes.len(), world.waiting()), (1, 15));
}

#[test]
fn sch_308_a_herd_is_founded_only_once() {
    let mut world = World::plain();
    world.run(&[A { name: "first".into(), ..herd(HOSTNAME).select(ZONE, Z1) }]);
    world.run(&many(10, &herd(HOSTNAME).or(&[(ZONE, In, &[Z2, Z3])])));
    assert_eq!(world.waiting(), 10);
}

/// Rows: SCH-309, SCH-310
#[test]
fn a_herd_shares_one_zone() {
    let mut world = World::plain();
    world.run(&many(3, &herd(ZONE)));
    assert_eq!(world.cluster.nodes.len(), 1);
    let mut world = World::plain();
    world.run(&many(3, &herd(ZONE).select(ZONE, Z3)));
    assert_eq!(world.skew(ZONE, "app", "herd"), [3]);
    assert_eq!(world.value_of("herd-001", ZONE), Some(Z3));
}

#[test]
fn sch_311_a_herd_may_be_founded_in_a_zone_of_its_own() {
    let mut world = World::plain();
    let in_zone = |name: &str, zone| A { name: name.into(), ..herd(ZONE).select(ZONE, zone) };
    world.run(&[in_zone("a", Z2), in_zone("b", Z3)]);
    assert_eq!((world.value_of("a", ZONE), world.value_of("b", ZONE)), (Some(Z2), Some(Z3)));
}

/// As kube-scheduler sees it: the herd is where the first term allows, although no machine is left there.
#[test]
fn a_term_that_is_given_up_founds_no_second_herd() {
    let mut world = World::plain();
    world.put_node("n1", &[(ZONE, Z1), ("disk", "fast")], &[("cpu", "1"), ("memory", "1Gi"), ("pods", "10")]);
    world.put_pods(&[A { name: "first".into(), ..herd(ZONE).cpu("1") }.on("n1")]);
    let second = |name: &str| A { name: name.into(), ..herd(ZONE).cpu("1") }.or(&[("disk", In, &["fast"])]);
    let round = world.run(&[second("a").or(&[(ZONE, In, &[Z2])]), second("b").or(&[(ZONE, In, &[Z1])])]);
    assert_eq!(round.codes("a"), [Code::PodAffinity]);
    assert_eq!(world.value_of("b", ZONE), Some(Z1));
}

/// Where the others will be is not known before their node is launched, and a node in another zone would be of no use.
#[test]
fn a_herd_that_is_in_no_zone_yet_is_joined_or_waited_for() {
    let plain = |cpu: &str| pod("plain").label("app", "herd").cpu(cpu);
    let follower = || A { name: "follower".into(), ..herd(ZONE).cpu("1") };
    // There is room beside it.
    let mut joined = World::plain();
    joined.run(&[plain("2"), follower()]);
    assert_eq!((joined.waiting(), joined.host_of("plain")), (0, joined.host_of("follower")));
    // There is none, whichever type it is; the next round knows the zone.
    let mut waits = World::of(pool("default").require(INSTANCE_TYPE, In, &["small-instance-type"]));
    let round = waits.run(&[plain("1500m"), follower()]);
    assert_eq!(round.codes("follower"), [Code::PodAffinity]);
    waits.run(&[]);
    assert_eq!(waits.value_of("follower", ZONE), waits.value_of("plain", ZONE));
    // It is in none of the zones where the follower could be.
    let mut apart = World::plain();
    apart.run(&[plain("3").or(&[(ZONE, In, &[Z1, Z2])]), follower().select(ZONE, Z3)]);
    assert_eq!((apart.waiting(), apart.value_of("follower", ZONE)), (0, Some(Z3)));
}

/// Rows: SCH-312, SCH-313
#[test]
fn wishes_about_others_give_way() {
    let mut wishing = pod("wishing");
    wishing.shape.affinity_preferred.push((50, near(HOSTNAME, with_label("app", "nobody"))));
    let mut pods = spreading();
    pods.push(wishing);
    let mut world = World::plain();
    world.run(&pods);
    assert_eq!(world.waiting(), 0);
    let mut averse = pod("averse");
    averse.shape.anti_affinity_preferred.push((50, near(ZONE, with_label("app", "even"))));
    let even = pod("even").label("app", "even").spread(spread(ZONE, 1, with_label("app", "even")));
    let mut pods = many(3, &even);
    pods.extend(many(10, &averse));
    let mut world = World::plain();
    world.run(&pods);
    assert_eq!(world.waiting(), 0);
}

#[test]
fn sch_314_a_loner_never_shares_the_host_of_its_target() {
    for first_is_larger in [true, false] {
        let mut world = World::plain();
        let (a, b) = if first_is_larger { ("1", "0.5") } else { ("0.5", "1") };
        world.run(&[loner(HOSTNAME).cpu(a), target().cpu(b)]);
        assert!(world.is_bound("loner") && world.is_bound("target"));
        assert_ne!(world.host_of("loner"), world.host_of("target"));
    }
}

fn target_in(zone: &str) -> A {
    A { name: format!("target-{zone}"), ..target().cpu("2").select(ZONE, zone) }
}

/// Rows: SCH-315, SCH-316
#[test]
fn every_zone_that_a_target_may_end_up_in_is_avoided() {
    let mut world = World::plain();
    world.run(&[target_in(Z1), target_in(Z2), target_in(Z3), loner(ZONE)]);
    assert!(!world.is_bound("loner"));
    let mut world = World::plain();
    world.run(&[target().cpu("2"), loner(ZONE)]);
    assert!(world.is_bound("target") && !world.is_bound("loner"));
}

#[test]
fn sch_317_loners_keep_away_by_architecture() {
    let mut world = World::of(pool("default").require(ARCH, In, &["amd64", "arm64"]));
    world.run(&[target().cpu("1").select(ARCH, "arm64"), loner(ARCH)]);
    assert_eq!(world.value_of("loner", ARCH), Some("amd64"));
}

/// Three pods, one per zone, that do not want `target` near; by wish or by demand.
fn guards(is_required: bool) -> Vec<A> {
    let guard = |zone: &str| {
        let mut guard = A { name: format!("guard-{zone}"), ..pod("guard").cpu("2").select(ZONE, zone) };
        let term = near(ZONE, with_label("app", "target"));
        if is_required {
            guard.shape.anti_affinity_required.push(term);
        } else {
            guard.shape.anti_affinity_preferred.push((10, term));
        }
        guard
    };
    [Z1, Z2, Z3].map(guard).into()
}

/// Rows: SCH-318, SCH-319, SCH-321, SCH-322
#[test]
fn a_demand_to_be_alone_binds_the_others_and_a_wish_does_not() {
    for (is_required, is_placed) in [(false, true), (true, false)] {
        let mut together = World::plain();
        let mut pods = guards(is_required);
        pods.push(target());
        together.run(&pods);
        assert_eq!(together.is_bound("target"), is_placed, "in one batch");
        let mut later = World::plain();
        later.run(&guards(is_required));
        later.run(&[target()]);
        assert_eq!(later.is_bound("target"), is_placed, "once the guards run");
    }
}

#[test]
fn sch_320_what_a_launch_settles_is_free_again() {
    let mut world = World::plain();
    let guard = pod("guard").cpu("2").far(near(ZONE, with_label("app", "target")));
    world.run(&[guard, target()]);
    assert!(world.is_bound("guard") && !world.is_bound("target"));
    world.run(&[]);
    assert!(world.is_bound("target"));
    assert_ne!(world.value_of("guard", ZONE), world.value_of("target", ZONE));
}

#[test]
fn sch_323_hosts_stay_even_beside_a_wish_to_be_near() {
    let mut world = World::plain();
    let mut one = pod("web").label("app", "web").spread(spread(HOSTNAME, 1, with_label("app", "web")));
    one.shape.affinity_preferred.push((50, near(HOSTNAME, with_label("app", "target"))));
    let mut pods = many(3, &one);
    pods.push(target());
    world.run(&pods);
    assert_eq!(world.waiting(), 0);
    assert_eq!(world.skew(HOSTNAME, "app", "web"), [1, 1, 1]);
}

#[test]
fn sch_324_one_loner_per_round_while_zones_are_open() {
    let mut world = World::plain();
    let one = pod("lone").label("app", "lone").far(near(ZONE, with_label("app", "lone")));
    for (round, expected) in [vec![1], vec![1, 1], vec![1, 1, 1], vec![1, 1, 1]].into_iter().enumerate() {
        world.run(&many(3, &A { name: format!("lone-{round}"), ..one.clone() }));
        world.drop_waiting();
        assert_eq!(world.skew(ZONE, "app", "lone"), expected);
    }
}

/// Rows: SCH-325, SCH-329
#[test]
fn followers_of_nobody_wait() {
    let mut world = World::plain();
    world.run(&many(10, &follower(ZONE)));
    assert_eq!(world.waiting(), 10);
}

/// Rows: SCH-326, SCH-327
#[test]
fn followers_wait_until_the_zone_of_their_target_is_certain() {
    let mut world = World::plain();
    let mut pods = many(10, &follower(ZONE));
    pods.push(target());
    world.run(&pods);
    assert!(world.is_bound("target"));
    assert_eq!(world.waiting(), 10);
    world.run(&[]);
    assert_eq!(world.waiting(), 0);
    let zone = world.value_of("target", ZONE);
    assert!((1..=10).all(|at| world.value_of(&format!("follower-{at:03}"), ZONE) == zone));
    let mut world = World::plain();
    let mut pods = many(10, &follower(ZONE));
    pods.push(target().select(ZONE, Z1));
    world.run(&pods);
    assert_eq!(world.waiting(), 0);
    assert_eq!(world.value_of("follower-007", ZONE), Some(Z1));
}

#[test]
fn sch_328_chains_are_followed_whatever_the_order() {
    let chain = ["db", "web", "cache", "ui"];
    for turn in 0..chain.len() {
        let mut world = World::plain();
        let mut pods: Vec<A> = (0..chain.len())
            .map(|at| {
                let one = pod(chain[at]).label("app", chain[at]).cpu(&format!("{}m", 100 + (at + turn) % 4));
                if at == 0 { one } else { one.near(near(HOSTNAME, with_label("app", chain[at - 1]))) }
            })
            .collect();
        pods.rotate_left(turn);
        world.run(&pods);
        assert_eq!(world.waiting(), 0);
        assert_eq!(world.host_of("ui"), world.host_of("db"));
    }
}

/// Rows: SCH-330, SCH-331, SCH-332, SCH-924
#[test]
fn a_term_looks_into_the_namespaces_that_it_names() {
    let away = || target().namespace("other");
    let mut world = World::plain();
    world.run(&[away(), follower(HOSTNAME)]);
    assert!(world.is_bound("target") && !world.is_bound("follower"));
    let mut listed = follower(HOSTNAME);
    listed.shape.affinity_required[0].namespaces = vec!["other".into()];
    let mut all = follower(HOSTNAME);
    all.shape.affinity_required[0].namespace_selector = Some(Selector::default());
    let mut both = follower(HOSTNAME);
    both.shape.affinity_required[0].namespaces = vec!["other".into()];
    both.shape.affinity_required[0].namespace_selector =
        Some(Selector { terms: vec![expression("team", In, &["none"])] });
    for one in [listed, all, both] {
        let mut world = World::plain();
        world.run(&[away(), one]);
        assert_eq!(world.host_of("target"), world.host_of("follower"));
        assert!(world.is_bound("follower"));
    }
}

#[test]
fn sch_919_a_pod_that_is_shunned_everywhere_waits() {
    let mut world = World::plain();
    world.run(&guards(true));
    let round = world.run(&[target()]);
    assert!(round.message("target").contains("must not be near it"), "{}", round.message("target"));
}

/// Rows: WEA-037
#[test]
fn a_node_without_the_key_is_nobodys_neighbour() {
    let mut world = World::new(Vec::new(), assorted());
    world.put_node("bare", &[], &[("cpu", "4"), ("memory", "4Gi"), ("pods", "10")]);
    world.run(&[loner(ZONE)]);
    assert_eq!(world.host_of("loner"), Some("bare"));
}

#[test]
fn sch_921_a_host_without_its_label_goes_by_its_name() {
    let mut world = World::plain();
    world.put_node("n1", &[], &[("cpu", "4"), ("memory", "4Gi"), ("pods", "10")]);
    world.edit_node("n1", |node| {
        node.labels.remove(&HOSTNAME.into());
    });
    world.put_pods(&[target().on("n1")]);
    world.run(&[loner(HOSTNAME), follower(HOSTNAME)]);
    assert_ne!(world.host_of("loner"), Some("n1"));
    assert_eq!(world.host_of("follower"), Some("n1"));
}

#[test]
fn sch_922_pods_that_move_are_not_counted_where_they_leave() {
    let mut world = World::plain();
    let one = pod("web").label("app", "web").spread(spread(ZONE, 1, with_label("app", "web")));
    world.run(&many(3, &one));
    let dying = world.host_of("web-001").unwrap();
    let zone = world.value_of("web-001", ZONE);
    world.edit_claim_of(dying, |claim| claim.deleted = Some(now()));
    let round = world.plan();
    assert_eq!(round.new_nodes().len() + round.solution.existing.len(), 1);
    assert_eq!(
        round.new_nodes()[0].zones().first().map(|zone| zone.as_str()),
        zone,
        "its zone is empty again"
    );
}

/// The target's node may be anywhere until another pod pins it; both are in that zone then.
///
/// Rows: WEA-006
#[test]
fn a_target_counts_in_the_zone_that_another_pod_pins_its_node_to() {
    let mut world = World::plain();
    let pin = pod("pin").cpu("500m").select(ZONE, Z2);
    world.run(&[target().cpu("1"), pin, follower(ZONE)]);
    assert_eq!(world.host_of("pin"), world.host_of("target"));
    assert_eq!(world.value_of("follower", ZONE), Some(Z2));
}

/// Rows: WEA-012
#[test]
fn what_the_first_pod_does_not_tolerate_is_a_domain_for_the_next() {
    for (plain, tolerant) in [("1", "500m"), ("500m", "1")] {
        let pools = vec![
            pool("a").require("team", In, &["foo"]),
            pool("b").require("team", In, &["bar"]).taint("t", "v", Effect::NoSchedule),
        ];
        let mut world = World::new(pools, assorted());
        let alone = |name: &str, cpu: &str| {
            pod(name).cpu(cpu).label("app", "x").far(near("team", with_label("app", "x")))
        };
        world.run(&[alone("plain", plain), alone("tolerant", tolerant).tolerate("t", Some("v"), None)]);
        let teams = (world.value_of("plain", "team"), world.value_of("tolerant", "team"));
        assert_eq!(teams, (Some("foo"), Some("bar")), "{plain} {tolerant}");
    }
}

/// Rows: WEA-014
#[test]
fn who_is_kept_away_may_go_where_only_nodes_that_are_there_are() {
    let mut world = World::new(Vec::new(), assorted());
    for (node, rack) in [("n1", "r1"), ("n2", "r2")] {
        world.put_node(node, &[("rack", rack)], &[("cpu", "4"), ("memory", "4Gi"), ("pods", "10")]);
    }
    world.put_pods(&[pod("guard").far(near("rack", with_label("app", "x"))).on("n1")]);
    world.run(&[pod("x").label("app", "x")]);
    assert_eq!(world.host_of("x"), Some("n2"));
}

/// Rows: WEA-041
#[test]
fn a_herd_settles_in_one_zone_the_first_by_name() {
    for (zones, first) in [(&[Z1, Z2, Z3][..], Z1), (&[Z2, Z3][..], Z2)] {
        let mut world = World::of(pool("default").require(ZONE, In, zones));
        let round = world.run(&many(3, &herd(ZONE)));
        assert_eq!(values_of(round.claim(), ZONE), [first]);
    }
}
