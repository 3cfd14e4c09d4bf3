//! Room that DaemonSets take on every new node.

use provisor::capacity::scheduling::Code;
use provisor::model::pool::NodePool;
use provisor::model::requirement::Operator::*;
use provisor::model::taint::{Effect, Taint};

use super::world::*;

fn daemon() -> A {
    pod("agent").cpu("2").memory("2Gi")
}

/// The type launched for a pod of 1 CPU and 1 Gi beside these daemons.
fn launched(pool: NodePool, daemons: &[A], one: A) -> Option<&'static str> {
    let mut world = World::of(pool);
    for (at, daemon) in daemons.iter().enumerate() {
        world.put_daemon(&format!("daemon-{at}"), daemon);
    }
    world.run(&[one]);
    world.value_of("a", INSTANCE_TYPE)
}

fn app() -> A {
    pod("a").cpu("1").memory("1Gi")
}

const BIG: Option<&str> = Some("default-instance-type");
const SMALL: Option<&str> = Some("small-instance-type");

#[test]
fn sch_049_overhead_pushes_a_pod_to_a_larger_type() {
    assert_eq!(launched(pool("default"), &[], app()), SMALL);
    assert_eq!(launched(pool("default"), &[daemon()], app()), BIG);
}

/// Rows: WEA-015
#[test]
fn sch_050_a_host_port_of_a_daemon_is_taken() {
    let mut world = World::plain();
    world.put_daemon("agent", &pod("agent").host_port(8080));
    let round = world.run(&[pod("a").host_port(8080)]);
    assert_eq!(round.codes("a"), [Code::HostPortTaken]);
    assert!(round.message("a").contains("8080"));
}

#[test]
fn sch_051_startup_taints_keep_no_daemon_out() {
    let mut starting = pool("default");
    starting.template().startup_taints.push(Taint::new("foo.com/taint", "", Effect::NoSchedule));
    assert_eq!(launched(starting, &[daemon()], app()), BIG);
}

#[test]
fn sch_052_an_impossible_daemon_makes_pods_impossible() {
    let huge = pod("agent").cpu("10000").memory("10000Gi");
    assert_eq!(launched(pool("default"), &[huge], pod("a")), None);
}

/// Rows: SCH-053, SCH-065
#[test]
fn a_real_daemon_pod_counts_more_than_its_template() {
    let mut world = World::of(pool("default").label("foo", "bar"));
    let template = pod("agent").cpu("4").memory("4Gi").or(&[("foo", In, &["bar"])]);
    world.put_daemon("agent", &template);
    let mut real = daemon().owned_by("DaemonSet", "agent").on("elsewhere").or(&[]);
    real.name = "agent-1".into();
    real.shape.node_required[0].has_fields = true;
    world.put_pods(&[real]);
    world.run(&[app().or(&[("foo", In, &["bar"])])]);
    assert_eq!(world.value_of("a", INSTANCE_TYPE), BIG);
}

#[test]
fn sch_058_a_daemon_without_requests_costs_nothing() {
    assert_eq!(launched(pool("default"), &[pod("agent")], app()), SMALL);
}

/// Rows: SCH-059, SCH-060, SCH-061
#[test]
fn daemons_that_will_not_run_there_cost_nothing() {
    let tainted = pool("default").taint("foo", "bar", Effect::NoSchedule);
    assert_eq!(launched(tainted, &[daemon()], app().tolerate("foo", Some("bar"), None)), SMALL);
    assert_eq!(launched(pool("default"), &[daemon().select("node", "invalid")], app()), SMALL);
    assert_eq!(
        launched(pool("default"), &[daemon().or(&[(INSTANCE_TYPE, In, &["none-such"])])], app()),
        SMALL
    );
}

/// Rows: SCH-062, SCH-066
#[test]
fn daemons_follow_the_labels_of_the_pool_in_any_of_their_terms() {
    let labelled = pool("default").label("purpose", "monitoring");
    assert_eq!(launched(labelled.clone(), &[daemon().select("purpose", "monitoring")], app()), BIG);
    let second = daemon().or(&[("purpose", In, &["voo"])]).or(&[("purpose", In, &["monitoring"])]);
    assert_eq!(launched(labelled, &[second], app()), BIG);
}

#[test]
fn sch_063_overhead_is_counted_by_type() {
    let on_small = pod("small").cpu("1").or(&[(SIZE, In, &["small"])]);
    let on_large = pod("large").cpu("10").or(&[(SIZE, In, &["large"])]);
    assert_eq!(launched(pool("default"), &[on_small, on_large], app()), BIG);
}

/// Rows: SCH-064, SCH-067, SCH-068
#[test]
fn only_what_binds_a_daemon_keeps_it_out() {
    let elsewhere = daemon().or(&[("foo", NotIn, &["bar"])]);
    assert_eq!(launched(pool("default"), &[elsewhere], app().select(ZONE, Z2)), BIG);
    let wishing = daemon().prefer(1, ZONE, In, &["nowhere"]);
    assert_eq!(launched(pool("default"), &[wishing], app()), BIG);
    let soft = pool("default").taint("foo", "bar", Effect::PreferNoSchedule);
    assert_eq!(launched(soft, &[daemon()], app()), BIG);
}

#[test]
fn sch_069_ports_of_daemons_count_only_where_they_run() {
    let large = pod("large").cpu("4").memory("4Gi").host_port(8080).or(&[(SIZE, In, &["large"])]);
    let small = daemon().host_port(8081).or(&[(SIZE, In, &["small"])]);
    let one = app().host_port(8080).or(&[(SIZE, In, &["small"])]);
    assert_eq!(launched(pool("default"), &[large, small], one), BIG);
}

#[test]
fn sch_187_daemons_that_wait_for_a_joined_node_count() {
    let mut world = World::plain();
    for key in ["karpenter.sh/initialized", "karpenter.sh/registered"] {
        world.put_daemon(key.rsplit('/').next().unwrap(), &pod("agent").cpu("1").select(key, "true"));
    }
    let round = world.run(&[pod("a").cpu("2").memory("2Gi")]);
    assert_eq!(world.value_of("a", INSTANCE_TYPE), Some("arm-instance-type"));
    let claim = round.claim();
    for key in ["karpenter.sh/initialized", "karpenter.sh/registered"] {
        assert!(claim.spec.requirements.get(key.into()).is_none() && !claim.labels.contains_key(&key.into()));
    }
}

/// Rows: WEA-015
#[test]
fn any_term_of_a_daemon_counts_on_nodes_that_are_there_and_in_pools_asked_later() {
    let picky = || daemon().or(&[("tier", In, &["x"])]).or(&[("tier", In, &["y"])]);
    let mut there = World::new(Vec::new(), assorted());
    there.put_node("n1", &[("tier", "y")], &[("cpu", "4"), ("memory", "4Gi"), ("pods", "10")]);
    there.put_daemon("agent", &picky());
    there.run(&[pod("large").cpu("3"), pod("small").cpu("2")]);
    assert_eq!((there.host_of("large"), there.host_of("small")), (None, Some("n1")));

    let pools = vec![pool("heavy").weight(10).label("tier", "y"), pool("light").label("tier", "x")];
    let mut later = World::new(pools, assorted());
    later.put_daemon("agent", &picky());
    later.run(&[app().select("tier", "x")]);
    assert_eq!(later.value_of("a", INSTANCE_TYPE), BIG);
}
