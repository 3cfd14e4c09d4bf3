//! Ports of hosts: each is there once, by address and protocol.

use provisor::model::name::NodeName;
use provisor::model::pod::HostPort;

use super::world::*;

fn port(ip: &str, port: u16, protocol: &str) -> HostPort {
    HostPort { ip: ip.into(), port, protocol: protocol.into() }
}

/// A pod with these ports of its host.
fn holding(name: &str, ports: &[HostPort]) -> A {
    let mut one = pod(name);
    one.shape.host_ports = ports.to_vec();
    one
}

/// Whether pods with these ports share a node.
fn share(one: HostPort, other: HostPort) -> bool {
    let mut world = World::plain();
    world.run(&[holding("a", &[one]), holding("b", &[other])]);
    assert_eq!(world.waiting(), 0);
    world.host_of("a") == world.host_of("b")
}

/// Rows: SCH-450, SCH-451, SCH-452
#[test]
fn ports_clash_on_one_address_or_on_all_of_them() {
    assert!(!share(port("10.0.0.1", 80, "TCP"), port("10.0.0.1", 80, "TCP")));
    for wildcard in ["0.0.0.0", "::"] {
        assert!(!share(port(wildcard, 80, "TCP"), port("10.0.0.1", 80, "TCP")), "{wildcard}");
        assert!(!share(port("10.0.0.1", 80, "TCP"), port(wildcard, 80, "TCP")), "{wildcard}");
    }
    assert!(share(port("10.0.0.1", 80, "TCP"), port("10.0.0.2", 80, "TCP")));
    assert!(share(port("0.0.0.0", 80, "TCP"), port("0.0.0.0", 80, "UDP")));
    assert!(share(port("0.0.0.0", 80, "TCP"), port("0.0.0.0", 81, "TCP")));
}

#[test]
fn sch_453_a_pod_does_not_clash_with_itself() {
    let twice = holding("a", &[port("0.0.0.0", 80, "TCP"), port("10.0.0.1", 80, "TCP")]);
    let mut world = World::plain();
    world.run(&[twice]);
    assert!(world.is_bound("a"));
}

#[test]
fn sch_462_ports_of_a_node_are_taken_until_their_pods_go() {
    let ports: Vec<u16> = (1..=10).map(|at| 8000 + at).collect();
    let name = |number: u16| format!("of-{number}");
    let mut world = World::plain();
    world.put_node("n1", &[(ZONE, Z1)], &[("cpu", "64"), ("memory", "64Gi"), ("pods", "100")]);
    let holders: Vec<A> = ports.iter().map(|number| pod(&name(*number)).host_port(*number)).collect();
    world.run(&holders);
    assert_eq!(world.cluster.nodes.len(), 1);
    // Seen again, with or without a change, a node still has them.
    for edit in [false, true] {
        world.edit_node("n1", |node| {
            node.labels.insert("seen".into(), edit.to_string().as_str().into());
        });
        for number in &ports {
            world.put_pods(&[pod("late").host_port(*number)]);
            let round = world.plan();
            assert!(round.solution.existing.is_empty(), "{number} is taken");
            world.drop_waiting();
        }
    }
    // The pod that holds one is no hindrance to itself.
    world.put_pods(&holders[..1]);
    let round = world.plan();
    assert_eq!(round.solution.existing.len(), 1);
    world.run(&[]);
    assert_eq!(world.host_of(&name(8001)), Some(NodeName::new("n1").as_str()));
    // And once a pod is gone, so is its claim to a port.
    world.remove_pods(|pod| &*pod.key.name != "of-8002");
    world.run(&[pod("late").host_port(8002)]);
    assert_eq!(world.host_of("late"), Some("n1"));
}
