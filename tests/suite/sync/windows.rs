//! Sync windows: when, in which zone, for which changes.

use provisor::gitops::policy::SyncPolicy;
use provisor::gitops::sync::{GitEvent, Phase, SyncRequest, SyncState};
use provisor::gitops::window::{Answer, ChangeClass, Question, Window, WindowSpec, Windows};
use serde_json::{Value, json};

use super::bench::*;

fn spec(written: Value) -> WindowSpec {
    serde_json::from_value(written).expect("a window")
}

fn windows(written: impl IntoIterator<Item = Value>) -> Windows {
    Windows::new(written.into_iter().map(spec))
}

fn with_windows(written: impl IntoIterator<Item = Value>) -> SyncPolicy {
    policy().with_windows(windows(written))
}

fn ask(windows: &Windows, class: ChangeClass, now: &str) -> Answer {
    let question =
        Question { environment: "prod", pool: Some("web"), class, is_manual: false, started: None };
    windows.ask(&question, at(now))
}

fn evening() -> Value {
    json!({ "kind": "allow", "schedule": "0 22 * * *", "duration": "1h", "timeZone": "Europe/Amsterdam" })
}

#[test]
fn syn_037_an_allow_window_opens_and_closes_on_time() {
    let mut bench = Bench::new(with_windows([evening()]));
    bench.now = at("2026-03-02T20:59:00Z");
    bench.push(&commit(1, [pool("web")]));
    let decision = bench.run();
    assert!(bench.writes().is_empty(), "21:59 in Amsterdam");
    assert_eq!(decision.wake_at, Some(at("2026-03-02T21:00:00Z")), "the next opening");
    let status = bench.sync.status(bench.now);
    assert_eq!(status.sync, SyncState::Blocked);
    assert!(status.conditions.iter().any(|condition| condition.reason == "WindowClosed"));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"], "22:00");

    bench.push(&commit(2, [with(pool("web"), "/spec/weight", json!(2))]));
    bench.now = at("2026-03-02T22:00:00Z");
    let decision = bench.run();
    assert!(bench.writes().is_empty(), "23:00 is closed");
    assert_eq!(decision.wake_at, Some(at("2026-03-03T21:00:00Z")));
}

#[test]
fn syn_038_a_denial_wins_and_no_window_means_open() {
    let deny = json!({ "kind": "deny", "schedule": "30 21 * * *", "duration": "10m" });
    let both = windows([evening(), deny]);
    let behavioural = |now: &str| ask(&both, ChangeClass::Behavioural, now);
    assert_eq!(behavioural("2026-03-02T21:15:00Z"), Answer::Open);
    let Answer::Closed { until, .. } = behavioural("2026-03-02T21:35:00Z") else { panic!("denied") };
    assert_eq!(until, Some(at("2026-03-02T21:40:00Z")));
    assert_eq!(behavioural("2026-03-02T21:40:00Z"), Answer::Open);
    assert_eq!(ask(&windows([]), ChangeClass::Destructive, "2026-03-02T03:00:00Z"), Answer::Open);
    let elsewhere =
        json!({ "kind": "allow", "schedule": "0 0 1 1 *", "duration": "1h", "environments": ["dev-*"] });
    assert_eq!(ask(&windows([elsewhere]), ChangeClass::Rolling, "2026-03-02T03:00:00Z"), Answer::Open);
}

#[test]
fn syn_039_a_running_sync_overruns_only_windows_that_let_it() {
    let overrun = with(evening(), "/overrun", json!(true));
    let in_waves = || commit(1, [pool("canary"), annotated(pool("web"), "provisor.dev/wave", "1")]);
    let started = |policy: SyncPolicy| {
        let mut bench = Bench::new(policy);
        bench.now = at("2026-03-02T21:59:00Z");
        bench.server.never_ready.insert("canary".into());
        bench.push(&in_waves());
        bench.run();
        assert_eq!(bench.writes(), ["apply NodePool/canary"]);
        bench.now = at("2026-03-02T22:01:00Z");
        bench.server.never_ready.clear();
        let canary = bench.server.named("canary");
        bench.server.report(&canary);
        bench.run_for(30);
        (bench.writes(), bench.sync.history()[0].phase)
    };
    assert_eq!(
        started(with_windows([overrun.clone()])),
        (vec!["apply NodePool/web".into()], Phase::Succeeded)
    );
    assert_eq!(started(with_windows([evening()])), (vec![], Phase::Stopped));
    let freeze = json!({ "kind": "deny", "schedule": "0 22 * * *", "duration": "8h" });
    assert_eq!(started(with_windows([overrun, freeze])), (vec![], Phase::Stopped));
}

#[test]
fn syn_040_a_start_that_the_clock_skips_or_repeats_happens_once() {
    let window = |zone: &str| {
        Window::parse(spec(
            json!({ "kind": "allow", "schedule": "30 2 * * *", "duration": "30m", "timeZone": zone }),
        ))
        .expect("a window")
    };
    let amsterdam = window("Europe/Amsterdam");
    // 29 March 2026: 02:00 becomes 03:00 at 01:00 UTC.
    assert_eq!(amsterdam.next_start(at("2026-03-28T12:00:00Z")), Some(at("2026-03-29T01:00:00Z")));
    assert_eq!(amsterdam.open_until(at("2026-03-29T00:59:59Z")), None);
    assert_eq!(amsterdam.open_until(at("2026-03-29T01:00:00Z")), Some(at("2026-03-29T01:30:00Z")));
    assert_eq!(amsterdam.open_until(at("2026-03-29T01:30:00Z")), None);
    assert_eq!(amsterdam.next_start(at("2026-03-29T01:00:00Z")), Some(at("2026-03-30T00:30:00Z")));
    // 25 October 2026: 03:00 becomes 02:00 at 01:00 UTC, so 02:30 comes at 00:30 and again at 01:30 UTC.
    assert_eq!(amsterdam.next_start(at("2026-10-24T12:00:00Z")), Some(at("2026-10-25T00:30:00Z")));
    assert_eq!(amsterdam.open_until(at("2026-10-25T00:45:00Z")), Some(at("2026-10-25T01:00:00Z")));
    assert_eq!(amsterdam.open_until(at("2026-10-25T01:45:00Z")), None, "once only");
    assert_eq!(amsterdam.next_start(at("2026-10-25T00:30:00Z")), Some(at("2026-10-26T01:30:00Z")));
    assert_eq!(window("UTC").next_start(at("2026-03-29T00:00:00Z")), Some(at("2026-03-29T02:30:00Z")));
}

#[test]
fn syn_041_a_freeze_of_rolls_lets_limits_be_raised() {
    let freeze = json!({ "kind": "deny", "schedule": "0 0 * * *", "duration": "24h", "classes": ["rolling", "destructive"] });
    let mut bench = Bench::new(with_windows([freeze]));
    bench.fleet = fleet([("web", 3)]);
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"], "capacity may be added");
    bench.push(&commit(2, [with(pool("web"), "/spec/limits/cpu", json!("200"))]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
    bench.push(&commit(3, [with(pool("web"), "/spec/template/spec/expireAfter", json!("24h"))]));
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    assert_eq!(code(bench.sync.plan().expect("planned"), "web"), "WindowClosed");
}

#[test]
fn syn_042_a_window_that_cannot_be_read_denies() {
    let bad = [
        (json!({ "kind": "allow", "schedule": "0 25 * * *", "duration": "1h" }), "no schedule"),
        (json!({ "kind": "allow", "schedule": "* *", "duration": "1h" }), "no schedule"),
        (json!({ "kind": "allow", "schedule": "* * * * *", "duration": "soon" }), "no duration"),
        (json!({ "kind": "deny", "schedule": "* * * * *", "duration": "0s" }), "no duration"),
        (
            json!({ "kind": "deny", "schedule": "@daily", "duration": "1h", "timeZone": "Mars/Olympus" }),
            "no time zone",
        ),
    ];
    for (written, why) in bad {
        let broken = windows([written]);
        assert!(broken.errors()[0].to_string().contains(why), "{}", broken.errors()[0]);
        let Answer::Closed { until: None, why: said } =
            ask(&broken, ChangeClass::Additive, "2026-03-02T12:00:00Z")
        else {
            panic!("fails closed");
        };
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_person_may_pass_where_the_window_says_so() {
    let freeze = json!({ "kind": "deny", "schedule": "0 0 * * *", "duration": "24h", "manual": true });
    let mut bench = Bench::new(with_windows([freeze]));
    bench.push(&commit(1, [pool("web")]));
    bench.run_for(60);
    assert!(bench.writes().is_empty());
    bench.sync.observe(
        bench.now,
        GitEvent::Requested(SyncRequest { actor: "ada".into(), ..SyncRequest::default() }),
    );
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply NodePool/web"]);
}

#[test]
fn windows_of_one_pool_leave_the_others() {
    let freeze = json!({ "kind": "deny", "schedule": "0 0 * * *", "duration": "24h", "pools": ["pay*"] });
    let mut bench = Bench::new(with_windows([freeze]));
    bench.push(&commit(1, [pool("web"), pool("payments"), class("default")]));
    bench.run_for(60);
    assert_eq!(bench.writes(), ["apply EC2NodeClass/default", "apply NodePool/web"]);
}
