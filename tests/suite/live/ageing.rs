//! Nodes that become too old: in an orderly way within a budget of their own, by force at a deadline; and a roll that waits for
//! its window. All of it at once, in pools of their own.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::bench::{Bench, is_true, text};
use super::chronicle::{Chronicle, Moment, REPLACED_BY};

/// How old nodes may become, and how long after that one goes that could not.
const AGE: SignedDuration = SignedDuration::from_secs(40);
const DEADLINE: SignedDuration = SignedDuration::from_secs(12);
const POOL: &str = "karpenter.sh/nodepool";

/// Nodes of `orderly` go one by one; those of `held` may not go at all before their deadline; those of `windowed` drift, and
/// may not go before `opens`.
fn environment(generation: &str, opens: Timestamp) -> String {
    let age = AGE.as_secs();
    let pool = r#"
        strategy = "on-demand"
        instance-cpu-max = 16
        consolidation-policy = "WhenEmpty"
        consolidate-after = "Never"
    "#;
    let clock = |at: Timestamp| at.to_zoned(TimeZone::UTC).strftime("%H:%M").to_string();
    let shut = opens - SignedDuration::from_hours(2);
    format!(
        r#"
        region = "us-east-1"
        [pools.orderly]{pool}
        expire-after = "{age}s"
        budgets = [{{ nodes = "100%" }}]
        expiration = {{ jitter = "0%", replace-first = true, nodes = "1", deadline = "5m" }}
        [pools.held]{pool}
        expire-after = "{age}s"
        budgets = [{{ nodes = "0" }}]
        expiration = {{ jitter = "0%", deadline = "{}s" }}
        [pools.windowed]{pool}
        labels = {{ generation = "{generation}" }}
        budgets = [{{ nodes = "100%" }}]
        windows = [{{ kind = "deny", reasons = ["Drifted"], from = "{}", until = "{}" }}]
        "#,
        DEADLINE.as_secs(),
        clock(shut),
        clock(opens)
    )
}

fn moment_of(object: &Value, pointer: &str) -> Timestamp {
    text(object, pointer).parse().unwrap_or_else(|_| panic!("{pointer} of {object}"))
}

fn pool_of(moment: &Moment) -> &str {
    text(&moment.object, "/metadata/labels/karpenter.sh~1nodepool")
}

/// Processes are killed while a replacement is on its way, and while pods leave.
///
/// Rows: LIF-071
#[test]
fn nodes_go_for_their_age_in_an_orderly_way_or_by_force_and_a_roll_waits_for_its_window() {
    let minute_after = |wait: SignedDuration| {
        let at = Timestamp::now() + wait;
        Timestamp::from_second(at.as_second().div_euclid(60) * 60 + 60).expect("a moment")
    };
    let bench = Bench::of(&environment("one", minute_after(SignedDuration::from_hours(1))));
    let on = |name: &str, replicas, pool: &str| {
        // Each pod needs a machine of its own.
        bench.deploy_on(name, replicas, "9", "1Gi", serde_json::json!({ POOL: pool }));
    };
    on("orderly", 2, "orderly");
    on("held", 1, "held");
    on("windowed", 1, "windowed");
    let mut running = bench.start(&["--no-lease"]);
    let pools = ["orderly", "held", "windowed"];
    let claims = || pools.map(|pool| bench.claims_of(pool)).concat();
    bench.wait("running", || {
        bench.all_run(4) && claims().len() == 4 && claims().iter().all(|claim| is_true(claim, "Initialized"))
    });
    let names = |pool: &str| {
        let claims = bench.claims_of(pool);
        claims.iter().map(|claim| text(claim, "/metadata/name").to_owned()).collect::<BTreeSet<_>>()
    };
    let [orderly, held, windowed] = pools.map(names);
    let chronicle = Chronicle::begin(&bench);
    let opens = minute_after(SignedDuration::from_secs(30));
    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two", opens))]);
    let is_left =
        |old: &BTreeSet<String>| claims().iter().any(|claim| old.contains(text(claim, "/metadata/name")));

    let waits = |claim: &Value| {
        orderly.contains(text(claim, "/metadata/name"))
            && !text(claim, REPLACED_BY).is_empty()
            && claim["metadata"]["deletionTimestamp"].is_null()
    };
    bench.wait("a replacement is on its way", || claims().iter().any(waits));
    running.kill();
    running = bench.start(&["--no-lease"]);
    let leaves = |claim: &Value| {
        orderly.contains(text(claim, "/metadata/name")) && !claim["metadata"]["deletionTimestamp"].is_null()
    };
    bench.wait("an old one leaves", || claims().iter().any(leaves));
    running.kill();
    running = bench.start(&["--no-lease"]);
    bench.wait("all old ones are gone", || !is_left(&orderly) && !is_left(&held) && !is_left(&windowed));
    let story = chronicle.end();
    let evictions = bench.evictions();
    assert!(evictions.values().all(|times| *times == 1), "nobody is evicted twice: {evictions:?}");

    // In an orderly way, one at a time.
    story.expect_replaced_first(&orderly, |old, replacement| {
        let created = |claim| moment_of(claim, "/metadata/creationTimestamp");
        let age = created(replacement).duration_since(created(old));
        assert!(age >= AGE, "one is replaced at the age of {age}");
    });
    story.replay(|_, picture| {
        let claims = picture.iter().filter(|((kind, _), _)| *kind == "nodeclaims").map(|(_, claim)| claim);
        let going = claims.filter(|claim| {
            orderly.contains(text(claim, "/metadata/name"))
                && !claim["metadata"]["deletionTimestamp"].is_null()
        });
        assert!(going.count() <= 1, "one at a time");
    });
    // By force, and not before.
    let late = held.first().expect("one");
    let forced = story.first("it goes", "nodeclaims", |moment| moment.name() == late && moment.is_going());
    let (created, asked) = (
        moment_of(&forced.object, "/metadata/creationTimestamp"),
        moment_of(&forced.object, "/metadata/deletionTimestamp"),
    );
    assert!(
        asked.duration_since(created) >= AGE + DEADLINE,
        "it had {AGE} and {DEADLINE}, and went after {}",
        asked.duration_since(created)
    );
    assert!(text(&forced.object, REPLACED_BY).is_empty(), "nothing comes first: {:#}", forced.object);
    // Within its window.
    let begun = story.first("it is replaced", "nodeclaims", |moment| {
        pool_of(moment) == "windowed" && !windowed.contains(moment.name())
    });
    let begun = moment_of(&begun.object, "/metadata/creationTimestamp");
    assert!(begun >= opens, "its window opens at {opens}, and its replacement is of {begun}");
    story.expect_replaced_first(&windowed, |_, _| ());
    let log = bench.logs();
    assert!(log.contains("pool windowed is outside of its window until"), "it is said why it waits\n{log}");
    assert!(log.contains("the budgets of pool held allow no disruption for reason Expired now"), "{log}");
    drop(running);
}
