//! What a budget keeps from going is told where people look.

use super::bench::{Bench, text};

/// Rows: DIS-113
#[test]
fn dis_113_a_budget_of_zero_is_an_event_at_its_pool() {
    let bench = Bench::of(
        r#"
        region = "us-east-1"
        [pools.general]
        strategy = "on-demand"
        instance-cpu-max = 16
        consolidate-after = "1s"
        budgets = [{ nodes = 0 }]
        "#,
    );
    bench.deploy("web", 1, "500m", "256Mi");
    let running = bench.start(&[]);
    bench.wait("running", || bench.all_run(1));
    bench.scale("web", 0);
    let kept = "the budgets of pool general allow no disruption for reason Empty now";
    bench.wait("told", || running.log().contains(kept));

    let blocked = "No allowed disruptions for disruption reason Empty due to blocking budget";
    let events = || {
        let all = bench.list("/api/v1/namespaces/default/events").into_iter();
        all.filter(|event| text(event, "/message") == blocked).collect::<Vec<_>>()
    };
    bench.wait("published", || !events().is_empty());
    let [event] = &events()[..] else { panic!("once: {:?}", events()) };
    assert_eq!(text(event, "/involvedObject/kind"), "NodePool");
    assert_eq!(text(event, "/involvedObject/name"), "general");
    assert!(!text(event, "/involvedObject/uid").is_empty());
    assert_eq!((text(event, "/reason"), text(event, "/type")), ("DisruptionBlocked", "Normal"));
    assert_eq!(running.log().matches(kept).count(), 1);
    assert!(running.log().contains(blocked));
}
