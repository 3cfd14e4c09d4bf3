//! Topology spread: pods kept even over zones, hosts, capacity types and labels of one's own.

use provisor::model::pod::Spread;
use provisor::model::requirement::Operator::*;
use provisor::model::taint::Effect;

use super::world::*;

fn web() -> A {
    pod("web").label("app", "web")
}

fn by(key: &str, skew: u32) -> provisor::model::pod::Spread {
    spread(key, skew, with_label("app", "web"))
}

fn spread_of(world: &World, key: &str) -> Vec<usize> {
    world.skew(key, "app", "web")
}

/// Batches have names of their own.
fn batch(at: usize, count: usize, one: &A) -> Vec<A> {
    let mut named = one.clone();
    named.name = format!("{}-{at}", one.name);
    many(count, &named)
}

/// Rows: SCH-256
#[test]
fn a_key_that_nobody_defines_holds_up_only_its_own_pod() {
    let mut world = World::plain();
    world.run(&[web().spread(by("unknown", 1)), pod("plain")]);
    assert!(!world.is_bound("web") && world.is_bound("plain"));
}

/// Rows: SCH-257, SCH-268
#[test]
fn a_rule_without_selector_selects_nobody() {
    let mut world = World::plain();
    world.run(&many(2, &web().spread(spread(ZONE, 1, None))));
    assert_eq!(world.host_of("web-001"), world.host_of("web-002"));
}

/// Rows: SCH-258, SCH-259, SCH-260
#[test]
fn pods_spread_over_the_zones_that_the_pool_allows() {
    let mut world = World::plain();
    world.run(&many(4, &web().spread(by(ZONE, 1))));
    assert_eq!(spread_of(&world, ZONE), [1, 1, 2]);
    let mut world = World::of(pool("default").require(ZONE, In, &[Z1, Z2]));
    world.run(&many(4, &web().spread(by(ZONE, 1))));
    assert_eq!(spread_of(&world, ZONE), [2, 2]);
}

/// kube-scheduler counts the nodes of every term, whichever term the pod ends up with.
#[test]
fn a_rule_looks_at_the_nodes_of_every_affinity_term() {
    let one = web().spread(by(ZONE, 1)).or(&[(ZONE, In, &[Z1])]).or(&[(ZONE, In, &[Z2])]);
    let mut world = World::plain();
    world.run(&many(4, &one));
    assert_eq!(spread_of(&world, ZONE), [2, 2]);
}

#[test]
fn a_term_that_no_node_can_meet_gives_no_domains() {
    let one = web().spread(by(ZONE, 1)).or(&[("tier", In, &["front"])]).or(&[(ZONE, In, &[Z1])]);
    let mut world = World::plain();
    world.run(&many(4, &one));
    assert_eq!(spread_of(&world, ZONE), [4]);
    // A pool that gives the label in one more zone makes that a domain.
    let front = pool("front").label("tier", "front").require(ZONE, In, &[Z2]).weight(10);
    let mut world = World::new(vec![pool("default"), front], ladder(8));
    world.run(&many(4, &one));
    assert_eq!(spread_of(&world, ZONE), [2, 2]);
}

/// Rows: SCH-261, SCH-262
#[test]
fn a_zone_label_of_the_pool_is_its_only_domain() {
    for pinned in
        [pool("default").label(ZONE, Z1), pool("default").require(ZONE, In, &[Z1, Z2]).label(ZONE, Z1)]
    {
        let mut world = World::of(pinned);
        world.run(&many(4, &web().spread(by(ZONE, 1))));
        assert_eq!(spread_of(&world, ZONE), [4]);
    }
    let pools = vec![pool("a").require(ZONE, In, &[Z1, Z2]).label(ZONE, Z1), pool("b").label(ZONE, Z2)];
    let mut world = World::new(pools, assorted());
    world.run(&many(4, &web().spread(by(ZONE, 1))));
    assert_eq!(spread_of(&world, ZONE), [2, 2]);
}

#[test]
fn sch_263_a_zone_that_cannot_grow_holds_the_others_back() {
    let mut world = World::plain();
    let one = web().cpu("1.1");
    world.run(&[A { name: "first".into(), ..one.clone().select(ZONE, Z3) }]);
    world.put_pool(pool("default").require(ZONE, In, &[Z1, Z2]));
    world.run(&many(6, &one.spread(by(ZONE, 1))));
    assert_eq!(spread_of(&world, ZONE), [1, 2, 2]);
}

#[test]
fn sch_264_a_wide_skew_lets_one_zone_run_ahead() {
    let mut world = World::plain();
    let one = web().cpu("1.1");
    world.run(&[A { name: "in-1".into(), ..one.clone().select(ZONE, Z1) }]);
    world.run(&[A { name: "in-2".into(), ..one.clone().select(ZONE, Z2) }]);
    world.put_pool(pool("default").require(ZONE, In, &[Z3]));
    world.run(&many(10, &one.spread(by(ZONE, 5))));
    assert_eq!(spread_of(&world, ZONE), [1, 1, 6]);
}

#[test]
fn sch_265_zones_that_emptied_are_filled_first() {
    let mut world = World::plain();
    let one = web().spread(by(ZONE, 1));
    world.run(&many(9, &one));
    assert_eq!(spread_of(&world, ZONE), [3, 3, 3]);
    let in_first: Vec<_> = world
        .cluster
        .pods
        .values()
        .filter(|pod| world.value_of(&pod.key.name, ZONE) == Some(Z1))
        .map(|pod| pod.key)
        .collect();
    world.remove_pods(|pod| in_first.contains(&pod.key));
    world.run(&batch(2, 3, &one));
    assert_eq!(spread_of(&world, ZONE), [1, 2, 3]);
}

#[test]
fn sch_266_pods_without_the_rule_count_when_selected() {
    let mut world = World::plain();
    world.run(&[A { name: "first".into(), ..web().cpu("1.1").select(ZONE, Z1) }]);
    world.put_pool(pool("default").require(ZONE, In, &[Z2, Z3]));
    world.run(&many(10, &web().cpu("1.1").spread(by(ZONE, 1))));
    assert_eq!(spread_of(&world, ZONE), [1, 2, 2]);
}

/// Rows: SCH-267, SCH-920
#[test]
fn only_pods_that_run_somewhere_count() {
    let mut world = World::plain();
    let room: &[(&str, &str)] = &[("cpu", "10"), ("memory", "10Gi"), ("pods", "5")];
    world.put_node("n1", &[(ZONE, Z1)], room);
    world.put_node("n2", &[(ZONE, Z2)], room);
    world.put_node("bare", &[], room);
    let on = |name: &str, node: &str| A { name: name.into(), ..web().on(node) };
    let mut unlabelled = on("unlabelled", "n1");
    unlabelled.shape.labels.clear();
    let mut leaving = on("leaving", "n1");
    leaving.is_terminating = true;
    let mut failed = on("failed", "n1");
    failed.phase = provisor::model::pod::PodPhase::Failed;
    let mut done = on("done", "n1");
    done.phase = provisor::model::pod::PodPhase::Succeeded;
    world.put_pods(&[
        unlabelled,
        on("nowhere", "bare"),
        on("elsewhere", "n1").namespace("other"),
        leaving,
        failed,
        done,
        on("ghost", "gone"),
        on("one", "n1"),
        on("two", "n1"),
        on("three", "n2"),
    ]);
    let round = world.run(&many(2, &web().spread(by(ZONE, 1))));
    assert!(round.solution.unschedulable.is_empty());
    let zone = |pod| world.value_of(pod, ZONE);
    let mut zones = [zone("web-001"), zone("web-002")];
    zones.sort();
    assert_eq!(zones, [Some(Z2), Some(Z3)], "two in the first zone, so the next go to the others");
}

/// Rows: SCH-269
#[test]
fn pods_that_their_own_rule_does_not_select_share_a_host() {
    let mut world = World::plain();
    world.run(&many(5, &pod("plain").spread(by(HOSTNAME, 1))));
    assert_eq!(world.cluster.nodes.len(), 1);
}

/// Rows: SCH-270, SCH-271
#[test]
fn too_few_domains_count_as_empty_ones() {
    let wanting = |count| {
        let mut rule = by(ZONE, 1);
        rule.min_domains = Some(count);
        web().spread(rule)
    };
    let mut world = World::of(pool("default").require(ZONE, In, &[Z1, Z2]));
    world.run(&many(3, &wanting(3)));
    assert_eq!(spread_of(&world, ZONE), [1, 1]);
    for count in [2, 3] {
        let mut world = World::plain();
        world.run(&many(11, &wanting(count)));
        assert_eq!(spread_of(&world, ZONE), [3, 4, 4]);
    }
}

/// Rows: SCH-272, SCH-273
#[test]
fn hosts_are_domains_that_can_always_be_added() {
    let mut world = World::plain();
    world.run(&many(4, &web().spread(by(HOSTNAME, 1))));
    assert_eq!(spread_of(&world, HOSTNAME), [1, 1, 1, 1]);
    let mut world = World::plain();
    world.run(&many(4, &web().spread(by(HOSTNAME, 4))));
    assert_eq!(spread_of(&world, HOSTNAME), [4]);
}

/// Rows: SCH-274, SCH-275
#[test]
fn two_applications_spread_independently() {
    let app = |name: &str| pod(name).label("app", name).spread(spread(HOSTNAME, 1, with_label("app", name)));
    let mut world = World::plain();
    let all: Vec<A> = many(2, &app("one")).into_iter().chain(many(2, &app("two"))).collect();
    world.run(&all);
    assert_eq!(world.cluster.nodes.len(), 2);
    let mut world = World::of(pool("default").require(ARCH, In, &["amd64", "arm64"]));
    let on = |name: &str, arch: &str| many(2, &app(name).select(ARCH, arch));
    world.run(&on("one", "amd64").into_iter().chain(on("two", "arm64")).collect::<Vec<_>>());
    assert_eq!(world.cluster.nodes.len(), 4);
}

/// As kube-scheduler counts: a node that the pods may not use is looked at all the same.
#[test]
fn a_rule_that_ignores_affinity_counts_zones_that_the_pod_cannot_use() {
    let cases =
        [(false, Some(Z3), vec![1, 1], 2), (false, None, vec![2, 2], 0), (true, Some(Z3), vec![2, 2], 0)];
    for (honors_affinity, zone, counts, waiting) in cases {
        let mut world = World::of(pool("default").require(ZONE, In, &[Z1, Z2]));
        if let Some(zone) = zone {
            world.put_node("full", &[(ZONE, zone)], &[("cpu", "1m"), ("memory", "1Mi"), ("pods", "1")]);
        }
        let rule = Spread { honors_affinity, ..spread(ZONE, 1, with_label("app", "web")) };
        world.run(&many(4, &pod("web").label("app", "web").or(&[(ZONE, NotIn, &[Z3])]).spread(rule)));
        assert_eq!(
            (world.skew(ZONE, "app", "web"), world.waiting()),
            (counts, waiting),
            "{honors_affinity} {zone:?}"
        );
    }
}

#[test]
fn sch_276_capacity_types_are_domains() {
    for balanced in [pool("default"), pool("default").require(CAPACITY_TYPE, In, &["spot", "on-demand"])] {
        let mut world = World::of(balanced);
        world.run(&many(4, &web().spread(by(CAPACITY_TYPE, 1))));
        assert_eq!(spread_of(&world, CAPACITY_TYPE), [2, 2]);
    }
}

#[test]
fn sch_277_a_soft_rule_gives_way_and_a_hard_one_does_not() {
    for (is_required, expected) in [(true, vec![1, 2]), (false, vec![1, 5])] {
        let mut rule = by(CAPACITY_TYPE, 1);
        rule.is_required = is_required;
        let mut world = World::plain();
        world.run(&[A { name: "first".into(), ..web().cpu("1.1").select(CAPACITY_TYPE, "spot") }]);
        world.put_pool(pool("default").require(CAPACITY_TYPE, In, &["on-demand"]));
        world.run(&many(5, &web().cpu("1.1").spread(rule)));
        assert_eq!(spread_of(&world, CAPACITY_TYPE), expected);
    }
}

#[test]
fn sch_279_domains_that_the_pod_cannot_use_do_not_hold_it_back() {
    let mut world = World::plain();
    world.run(&[A { name: "first".into(), ..web().select(CAPACITY_TYPE, "on-demand").select(ZONE, Z1) }]);
    let one = web().or(&[(ZONE, In, &[Z2]), (CAPACITY_TYPE, In, &["spot"])]).spread(by(CAPACITY_TYPE, 1));
    world.run(&many(5, &one));
    assert_eq!(spread_of(&world, CAPACITY_TYPE), [1, 5]);
}

/// Rows: SCH-280, SCH-281
#[test]
fn a_full_node_still_counts() {
    for (key, first, then) in [(CAPACITY_TYPE, "on-demand", "spot"), (ARCH, "amd64", "arm64")] {
        let mut world = World::of(pool("default").require(ARCH, In, &["amd64", "arm64"]));
        let full = web().cpu("1.85").select(key, first).select(INSTANCE_TYPE, "small-instance-type");
        world.run(&[A { name: "first".into(), ..full }]);
        world.put_pool(pool("default").require(key, In, &[then]));
        world.run(&many(5, &web().cpu("2").spread(by(key, 1))));
        assert_eq!(spread_of(&world, key), [1, 2], "{key}");
    }
}

#[test]
fn sch_282_a_label_of_ones_own_can_stand_for_a_ratio() {
    let pools = vec![
        pool("spot").require(CAPACITY_TYPE, In, &["spot"]).require("share", In, &["2", "3", "4", "5"]),
        pool("on-demand").require(CAPACITY_TYPE, In, &["on-demand"]).require("share", In, &["1"]),
    ];
    let mut world = World::new(pools, assorted());
    world.run(&many(20, &web().spread(by("share", 1))));
    assert_eq!(spread_of(&world, "share"), [4, 4, 4, 4, 4]);
    assert_eq!(spread_of(&world, CAPACITY_TYPE), [4, 16]);
}

/// Rows: SCH-283, SCH-176, SCH-177
#[test]
fn zone_and_host_rules_hold_together_over_rounds() {
    let one = web().spread(by(ZONE, 1)).spread(by(HOSTNAME, 3));
    let mut world = World::plain();
    for (at, count, expected) in
        [(1, 2, vec![1, 1]), (2, 3, vec![1, 2, 2]), (3, 5, vec![3, 3, 4]), (4, 11, vec![7, 7, 7])]
    {
        world.run(&batch(at, count, &one));
        assert_eq!(spread_of(&world, ZONE), expected);
        assert!(spread_of(&world, HOSTNAME).iter().all(|pods| *pods <= 3));
    }
}

#[test]
fn sch_284_a_pool_at_its_limit_holds_the_others_back() {
    let mut soft = by(HOSTNAME, 1);
    soft.is_required = false;
    let pools =
        vec![pool("a").require(ZONE, In, &[Z1, Z2]), pool("b").require(ZONE, In, &[Z3]).limit("cpu", "0")];
    let mut world = World::new(pools, assorted());
    world.run(&many(10, &web().spread(by(ZONE, 1)).spread(soft)));
    assert_eq!(spread_of(&world, ZONE), [1, 1]);
    assert_eq!(spread_of(&world, HOSTNAME), [1, 1]);
}

/// Rows: SCH-285, SCH-286
#[test]
fn capacity_type_rules_hold_beside_others() {
    let one = web().spread(by(CAPACITY_TYPE, 1)).spread(by(HOSTNAME, 3));
    let mut world = World::plain();
    for (at, count, expected) in
        [(1, 2, vec![1, 1]), (2, 3, vec![2, 3]), (3, 5, vec![5, 5]), (4, 11, vec![10, 11])]
    {
        world.run(&batch(at, count, &one));
        assert_eq!(spread_of(&world, CAPACITY_TYPE), expected);
        assert!(spread_of(&world, HOSTNAME).iter().all(|pods| *pods <= 3));
    }
    let one = web().spread(by(CAPACITY_TYPE, 1)).spread(by(ZONE, 1));
    let mut world = World::plain();
    for (at, count, kinds, zones) in [(1, 2, 1, 1), (2, 3, 3, 2), (3, 3, 5, 4), (4, 11, 11, 7)] {
        world.run(&batch(at, count, &one));
        assert!(spread_of(&world, CAPACITY_TYPE).iter().all(|pods| *pods <= kinds));
        assert!(spread_of(&world, ZONE).iter().all(|pods| *pods <= zones));
    }
}

#[test]
fn sch_278_only_pods_that_run_somewhere_count_by_capacity_type() {
    let mut world = World::plain();
    let room: &[(&str, &str)] = &[("cpu", "10"), ("memory", "10Gi"), ("pods", "9")];
    world.put_node("n1", &[(CAPACITY_TYPE, "spot")], room);
    world.put_node("n2", &[(CAPACITY_TYPE, "on-demand")], room);
    world.put_node("bare", &[], room);
    let on = |name: &str, node: &str| A { name: name.into(), ..web().on(node) };
    let mut leaving = on("leaving", "n2");
    leaving.is_terminating = true;
    let over = |phase| A { phase, name: format!("{phase:?}").to_lowercase(), ..web().on("n2") };
    let mut unlabelled = on("unlabelled", "n2");
    unlabelled.shape.labels.clear();
    world.put_pods(&[
        unlabelled,
        on("nowhere", "bare"),
        on("elsewhere", "n2").namespace("other"),
        leaving,
        over(provisor::model::pod::PodPhase::Failed),
        over(provisor::model::pod::PodPhase::Succeeded),
        on("one", "n1"),
        on("two", "n1"),
        on("three", "n2"),
    ]);
    let round = world.run(&many(2, &web().spread(by(CAPACITY_TYPE, 1))));
    assert!(round.solution.unschedulable.is_empty());
    let among = ["one", "two", "three", "web-001", "web-002"];
    let count = |kind| among.iter().filter(|pod| world.value_of(pod, CAPACITY_TYPE) == Some(kind)).count();
    let mut counts = [count("spot"), count("on-demand")];
    counts.sort_unstable();
    assert_eq!(counts, [2, 3]);
}

#[test]
fn sch_287_three_rules_over_many_types_hold_after_every_batch() {
    let one = web().cpu("100m").spread(by(CAPACITY_TYPE, 1)).spread(by(ZONE, 2)).spread(by(HOSTNAME, 3));
    let mut world = World::new(vec![pool("default")], super::packing::grid());
    let mut sum = 0;
    for count in 1..=14 {
        world.run(&batch(count, count, &one));
        sum += count;
        assert_eq!(world.waiting(), 0, "after {sum}");
        for (key, domains, skew) in [(CAPACITY_TYPE, 2, 1), (ZONE, 3, 2)] {
            let mut counts = spread_of(&world, key);
            assert_eq!(counts.iter().sum::<usize>(), sum);
            counts.resize(domains, 0);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= skew, "{key} after {sum}: {counts:?}");
        }
        assert!(spread_of(&world, HOSTNAME).iter().all(|pods| *pods <= 3));
    }
}

/// Rows: WEA-004
#[test]
fn two_rules_meet_in_a_domain_that_suits_both() {
    // One rule alone would choose the first zone, the other the second: only the third suits both.
    let mut world = World::plain();
    let room: &[(&str, &str)] = &[("cpu", "1"), ("memory", "1Gi"), ("pods", "1")];
    for (node, zone, app) in [("n1", Z1, "blue"), ("n2", Z2, "red")] {
        world.put_node(node, &[(ZONE, zone)], room);
        world.put_pods(&[pod(app).label("app", app).on(node)]);
    }
    let one = pod("both")
        .label("app", "blue")
        .spread(spread(ZONE, 1, with_label("app", "blue")))
        .far(near(ZONE, with_label("app", "red")));
    world.run(&[one]);
    assert_eq!(world.value_of("both", ZONE), Some(Z3));
}

/// Rows: WEA-004
#[test]
fn a_domain_without_a_fitting_offering_is_passed_over() {
    // The first zone sells nothing large enough: the next best is taken.
    let mut types =
        vec![machine("small", &[("cpu", "2"), ("memory", "4Gi"), ("pods", "10")], &everywhere(0.1))];
    let elsewhere: Vec<_> = everywhere(0.2).into_iter().filter(|(zone, ..)| *zone != Z1).collect();
    types.push(machine("large", &[("cpu", "8"), ("memory", "16Gi"), ("pods", "10")], &elsewhere));
    let mut world = World::new(vec![pool("default")], types);
    world.run(&[web().cpu("4").spread(by(ZONE, 1))]);
    assert_eq!(world.value_of("web", ZONE), Some(Z2));
}

/// Rows: SCH-288, SCH-289, SCH-923
#[test]
fn revisions_spread_by_themselves() {
    let keyed = |keys: &[&str]| {
        let mut rule = by(HOSTNAME, 1);
        rule.match_label_keys = keys.iter().map(|key| (*key).into()).collect();
        web().spread(rule)
    };
    let mut world = World::plain();
    let of = |value: &str| {
        let one = keyed(&["k"]).label("k", value);
        many(2, &A { name: format!("web-{value}"), ..one })
    };
    world.run(&of("a").into_iter().chain(of("b")).collect::<Vec<_>>());
    assert_eq!(spread_of(&world, HOSTNAME), [2, 2]);
    let mut world = World::plain();
    world.run(&many(4, &keyed(&["absent"])));
    assert_eq!(spread_of(&world, HOSTNAME), [1, 1, 1, 1]);
    // The API server may have merged the key already: that is the same rule.
    let mut merged = keyed(&["k"]).label("k", "a");
    merged.name = "merged".into();
    merged.shape.spreads[0].selector.as_mut().unwrap().terms.push(expression("k", In, &["a"]));
    let mut world = World::plain();
    world.run(&[of("a").remove(0), merged]);
    assert_eq!(spread_of(&world, HOSTNAME), [1, 1]);
}

/// Rows: SCH-290, SCH-291
#[test]
fn tainted_nodes_are_domains_unless_taints_are_honoured() {
    for (honors, placed) in [(false, vec![1]), (true, vec![5])] {
        let mut world = World::of(pool("default").label("team", "baz"));
        for (node, team) in [("n1", "foo"), ("n2", "bar")] {
            world.put_node(node, &[("team", team)], &[("cpu", "100m"), ("pods", "10")]);
            world.edit_node(node, |node| {
                node.taints.push(provisor::model::taint::Taint::new("t", "v", Effect::NoSchedule));
            });
        }
        let mut rule = by("team", 1);
        rule.honors_taints = honors;
        world.run(&many(5, &web().cpu("1").spread(rule)));
        assert_eq!(spread_of(&world, "team"), placed);
    }
}

/// Rows: SCH-292, SCH-293, SCH-294
#[test]
fn domains_of_tainted_pools_count_for_those_who_tolerate_them() {
    for (honors, placed) in [(false, vec![1]), (true, vec![2])] {
        let pools = vec![
            pool("a").require("team", In, &["foo"]),
            pool("b").require("team", In, &["bar"]).taint("t", "v", Effect::NoSchedule),
        ];
        let mut world = World::new(pools, assorted());
        let mut rule = by("team", 1);
        rule.honors_taints = honors;
        world.run(&many(2, &web().spread(rule)));
        assert_eq!(spread_of(&world, "team"), placed);
    }
    let pools = vec![
        pool("a").require("team", In, &["foo", "bar"]).taint("t", "a", Effect::NoSchedule),
        pool("b").require("team", In, &["foo", "baz"]).taint("t", "b", Effect::NoSchedule),
    ];
    let mut world = World::new(pools, assorted());
    let of = |taint: &str, count| {
        let mut rule = by("team", 1);
        rule.honors_taints = true;
        let one = web().spread(rule).tolerate("t", Some(taint), None);
        many(count, &A { name: format!("web-{taint}"), ..one })
    };
    world.run(&of("a", 2));
    world.run(&of("b", 4));
    assert_eq!(spread_of(&world, "team"), [1, 2, 3]);
}

/// A term of node affinity that only nodes behind a taint could meet adds domains as soon as somebody may have such a node.
#[test]
fn a_term_that_only_pools_meet_from_which_nobody_gets_a_node_adds_no_domains() {
    for (is_wanted, waiting) in [(false, 0), (true, 4)] {
        let pools =
            vec![pool("plain"), pool("front").label("tier", "front").taint("t", "v", Effect::NoSchedule)];
        let mut world = World::new(pools, assorted());
        for (node, zone) in [("n2", Z2), ("n3", Z3)] {
            world.put_node(node, &[(ZONE, zone)], &[("cpu", "100m"), ("pods", "10")]);
            world.put_pods(&[A { name: format!("web-on-{node}"), ..web().cpu("10m").on(node) }]);
        }
        let either = web().cpu("1").or(&[("tier", In, &["front"])]).or(&[(ZONE, NotIn, &[Z1])]);
        let mut pods = many(4, &either.spread(by(ZONE, 1)));
        if is_wanted {
            pods.push(pod("front").cpu("1").select("tier", "front").tolerate("t", Some("v"), None));
        }
        world.run(&pods);
        assert_eq!(world.waiting(), waiting, "{is_wanted}");
    }
}

/// Rows: SCH-295, SCH-296
#[test]
fn nodes_that_the_pod_does_not_select_are_no_domains_unless_ignored() {
    for (honors, placed) in [(false, vec![1]), (true, vec![5])] {
        let mut world = World::of(pool("default").label("team", "baz").label("sel", "match"));
        for (node, team) in [("n1", "foo"), ("n2", "bar")] {
            world.put_node(node, &[("team", team), ("sel", "mismatch")], &[("cpu", "100m"), ("pods", "10")]);
        }
        let mut rule = by("team", 1);
        rule.honors_affinity = honors;
        world.run(&many(5, &web().cpu("1").select("sel", "match").spread(rule)));
        assert_eq!(spread_of(&world, "team"), placed);
    }
}

/// Rows: SCH-297, SCH-298, SCH-300
#[test]
fn what_a_pod_requires_narrows_its_domains_and_what_it_prefers_does_not() {
    let mut world = World::plain();
    let in_zone = |zone: &str, count| {
        many(count, &A { name: format!("web-{zone}"), ..web().spread(by(ZONE, 1)).select(ZONE, zone) })
    };
    world.run(&in_zone(Z1, 5).into_iter().chain(in_zone(Z2, 10)).collect::<Vec<_>>());
    assert_eq!(spread_of(&world, ZONE), [5, 10]);
    let mut world = World::plain();
    world.run(&many(10, &web().spread(by(ZONE, 1)).or(&[(ZONE, In, &[Z1, Z2])])));
    assert_eq!(spread_of(&world, ZONE), [5, 5]);
    let mut world = World::plain();
    world.run(&many(6, &web().spread(by(ZONE, 1)).prefer(1, ZONE, In, &[Z1, Z2])));
    assert_eq!(spread_of(&world, ZONE), [2, 2, 2]);
}

/// Rows: SCH-299, SCH-302
#[test]
fn pods_outside_the_required_domains_stay_counted() {
    let mut world = World::plain();
    let one = web().spread(by(ZONE, 1));
    world.run(&batch(1, 6, &one.clone().or(&[(ZONE, In, &[Z1, Z2])])));
    assert_eq!(spread_of(&world, ZONE), [3, 3]);
    world.run(&batch(2, 1, &one.clone().or(&[(ZONE, In, &[Z2, Z3])])));
    assert_eq!(spread_of(&world, ZONE), [1, 3, 3]);
    world.run(&batch(3, 5, &one));
    assert_eq!(spread_of(&world, ZONE), [4, 4, 4]);
    let mut world = World::plain();
    let one = web().spread(by(CAPACITY_TYPE, 1));
    world.run(&batch(1, 3, &one.clone().or(&[(CAPACITY_TYPE, In, &["spot"])])));
    assert_eq!(spread_of(&world, CAPACITY_TYPE), [3]);
    world.run(&batch(2, 1, &one.clone().or(&[(CAPACITY_TYPE, In, &["on-demand", "spot"])])));
    assert_eq!(spread_of(&world, CAPACITY_TYPE), [1, 3]);
    world.run(&batch(3, 5, &one));
    assert_eq!(spread_of(&world, CAPACITY_TYPE), [4, 5]);
}

#[test]
fn sch_301_a_soft_rule_follows_the_selectors() {
    let mut rule = by(CAPACITY_TYPE, 1);
    rule.is_required = false;
    let of = |kind: &str| {
        many(5, &A { name: format!("web-{kind}"), ..web().spread(rule.clone()).select(CAPACITY_TYPE, kind) })
    };
    let mut world = World::plain();
    world.run(&of("spot").into_iter().chain(of("on-demand")).collect::<Vec<_>>());
    assert_eq!(spread_of(&world, CAPACITY_TYPE), [5, 5]);
}

/// Rows: WEA-009
#[test]
fn rules_that_look_at_other_nodes_or_want_more_domains_count_apart() {
    let mut world = World::new(vec![pool("a").label("tier", "a"), pool("b").label("tier", "b")], assorted());
    world.put_node("old", &[(ZONE, Z1), ("tier", "a")], &[("cpu", "1"), ("memory", "1Gi"), ("pods", "1")]);
    world.put_pods(&[A { name: "old".into(), ..web().on("old") }]);
    let of = |tier: &str| A { name: tier.into(), ..web().select("tier", tier).spread(by(ZONE, 1)) };
    world.run(&[of("a").cpu("1"), of("b")]);
    assert_eq!((world.value_of("a", ZONE), world.value_of("b", ZONE)), (Some(Z2), Some(Z1)));

    let mut world = World::of(pool("default").require(ZONE, In, &[Z1, Z2]));
    let mut strict = by(ZONE, 1);
    strict.min_domains = Some(3);
    let loose = A { name: "loose".into(), ..web().cpu("1").spread(by(ZONE, 1)) };
    let strict = A { name: "strict".into(), ..web().spread(strict) };
    // Those who run are not asked to let the strict ones go first, which would be legal.
    world.run(&many(2, &loose));
    world.run(&many(2, &strict));
    assert!(world.is_bound("loose-001") && world.is_bound("loose-002"));
    assert!(!world.is_bound("strict-001") && !world.is_bound("strict-002"));
}

/// Rows: WEA-010
#[test]
fn a_rule_without_selector_does_not_count_those_who_run() {
    let mut world = World::plain();
    world.put_node("n1", &[(ZONE, Z1)], &[("cpu", "4"), ("memory", "4Gi"), ("pods", "10")]);
    world.put_pods(&many(2, &pod("running").on("n1")));
    world.run(&[web().spread(spread(ZONE, 1, None))]);
    assert_eq!(world.host_of("web"), Some("n1"));
}

/// The first node may still be bought on demand, which is what the rule looks at.
///
/// Rows: WEA-011
#[test]
fn a_node_that_may_be_what_a_rule_looks_at_counts() {
    let mut world = World::plain();
    let open = A { name: "open".into(), ..web().cpu("1").select(ZONE, Z1) };
    // The first in every order: the largest, and with the least choice.
    let open = open.select(INSTANCE_TYPE, "default-instance-type");
    world.run(&[open, web().or(&[(CAPACITY_TYPE, In, &["on-demand"])]).spread(by(ZONE, 1))]);
    assert_eq!(world.value_of("web", ZONE), Some(Z2));
}

/// Rows: WEA-013
#[test]
fn a_value_that_a_pool_excludes_is_no_domain() {
    let pools = vec![
        pool("a").require("team", In, &["foo"]),
        pool("b").require("team", NotIn, &["bar"]).taint("t", "v", Effect::NoSchedule),
    ];
    let mut world = World::new(pools, assorted());
    world.run(&many(3, &web().spread(by("team", 1))));
    assert_eq!(spread_of(&world, "team"), [3]);
}
