//! What nodes cost: seconds times prices, whatever the machines, the cloud and the clock do.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use provisor::capacity::ledger::{Account, Ledger, Spent};
use provisor::model::action::{Action, LaunchOption};
use provisor::model::catalog::Catalog;
use provisor::model::money::{Usd, UsdPerHour};
use provisor::model::name::{ClaimName, PoolName, ProviderId};
use provisor::model::observation::{Instance, InterruptionNotice, Observation};
use provisor::model::offering::CapacityType;
use provisor::model::pool::{NodeOverlay, PriceChange};
use provisor::model::quantity::Resources;
use provisor::model::requirement::Requirements;

use super::town::{NOW, Town, at, catalog, pool};

fn start() -> Timestamp {
    at(NOW)
}

fn after(minutes: i64) -> Timestamp {
    start() + SignedDuration::from_mins(minutes)
}

/// A machine of `m5.2xlarge`, which costs 0.384 dollars an hour on demand and 0.14 as spot.
fn machine(name: &str, capacity_type: CapacityType) -> Instance {
    let mut town = Town::new(vec![pool("web")]);
    town.node_of("web", name, "m5.2xlarge", "on-demand");
    Instance { launched: start(), capacity_type, ..town.instance(name) }
}

fn id(name: &str) -> ProviderId {
    machine(name, CapacityType::OnDemand).provider_id
}

fn claim_of(instance: &Instance) -> ClaimName {
    instance.claim.expect("it has a claim")
}

fn launched(instance: Instance) -> Observation {
    Observation::Launched { claim: claim_of(&instance), instance, shortage: None }
}

/// A ledger that saw `a` on demand and `b` as spot come at the start.
fn two() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.observe(start(), &Observation::Catalog(catalog()));
    ledger.observe(start(), &launched(machine("a", CapacityType::OnDemand)));
    ledger.observe(start(), &launched(machine("b", CapacityType::Spot)));
    ledger
}

fn usd(text: &str) -> Usd {
    Usd(text.parse::<UsdPerHour>().expect("an amount").0)
}

fn total(ledger: &Ledger, minutes: i64) -> String {
    ledger.statement(after(minutes)).total_usd.to_string()
}

#[test]
fn a_machine_costs_its_price_from_its_launch_until_it_is_told_to_end() {
    let mut ledger = two();
    assert_eq!(ledger.usd_per_hour(), "0.524".parse().expect("a price"));
    ledger.decide(after(60), &Action::Terminate { instance: id("a") });
    assert_eq!(ledger.usd_per_hour(), "0.14".parse().expect("a price"));
    // The machine takes its time to go, for which nobody pays.
    ledger.observe(after(61), &Observation::Terminated { instance: id("a") });
    ledger.observe(after(61), &Observation::ClaimGone(ClaimName::new("a-claim")));
    let spent = ledger.statement(after(120));
    let account = |capacity_type| Account { pool: Some(PoolName::new("web")), capacity_type };
    let (on_demand, spot) = (account(CapacityType::OnDemand), account(CapacityType::Spot));
    assert_eq!(spent.accounts[&on_demand], Spent { usd: usd("0.384"), machine_seconds: 3600 });
    assert_eq!(spent.accounts[&spot], Spent { usd: usd("0.28"), machine_seconds: 7200 });
    assert_eq!((spent.total_usd, spent.machine_seconds), (usd("0.664"), 10_800));
    assert_eq!(spent.by_pool[&PoolName::new("web")], usd("0.664"));
    assert_eq!(spent.by_capacity_type[&CapacityType::Spot], usd("0.28"));
}

#[test]
fn a_price_that_changes_counts_from_then_on() {
    let mut ledger = two();
    let dearer = [(("m5.2xlarge".into(), CapacityType::Spot), Some(UsdPerHour(280_000)))];
    let dearer: Arc<Catalog> = Arc::new(catalog().with_prices(&dearer.into()));
    ledger.observe(after(60), &Observation::Catalog(dearer.clone()));
    assert_eq!(ledger.statement(after(60)).total_usd, usd("0.524"), "nothing of before");
    assert_eq!(ledger.statement(after(120)).total_usd, usd("1.188"), "0.524, then 0.384 + 0.28");
    // The same list again, and one in which nobody sells it, change nothing.
    ledger.observe(after(90), &Observation::Catalog(dearer.clone()));
    let unsold = [(("m5.2xlarge".into(), CapacityType::Spot), None)];
    ledger.observe(after(100), &Observation::Catalog(Arc::new(dearer.with_prices(&unsold.into()))));
    assert_eq!(ledger.statement(after(120)).total_usd, usd("1.188"));
}

#[test]
fn what_an_overlay_makes_of_a_price_it_makes_of_the_next_one() {
    let mut ledger = Ledger::default();
    ledger.observe(start(), &Observation::Catalog(catalog()));
    let instance = machine("a", CapacityType::Spot);
    let option = LaunchOption {
        price: UsdPerHour(70_000),
        instance_type: instance.instance_type,
        zone: instance.zone,
        capacity_type: instance.capacity_type,
        reservation: None,
    };
    let elsewhere = LaunchOption { price: UsdPerHour(1), zone: "us-west-2b".into(), ..option };
    let claim = claim_of(&instance);
    ledger.decide(start(), &Action::Launch { claim, options: vec![elsewhere, option] });
    ledger.observe(start(), &launched(instance));
    assert_eq!(ledger.usd_per_hour(), UsdPerHour(70_000), "the way that was taken, not the first");
    let dearer = [(("m5.2xlarge".into(), CapacityType::Spot), Some(UsdPerHour(280_000)))];
    ledger.observe(after(60), &Observation::Catalog(Arc::new(catalog().with_prices(&dearer.into()))));
    assert_eq!(ledger.usd_per_hour(), UsdPerHour(140_000), "half of the list price, as before");
}

/// An overlay of every price.
fn overlay(change: PriceChange) -> Observation {
    Observation::Overlay(Arc::new(NodeOverlay {
        name: "ours".into(),
        owner: None,
        requirements: Requirements::new(),
        price: Some(change),
        capacity: Resources::new(),
        weight: 0,
        fault: None,
        conditions: Default::default(),
        is_judged_earlier: false,
    }))
}

#[test]
fn a_price_that_an_overlay_sets_stays_and_a_difference_stays_the_same() {
    let spot_at = |price| {
        let change = [(("m5.2xlarge".into(), CapacityType::Spot), Some(UsdPerHour(price)))];
        Observation::Catalog(Arc::new(catalog().with_prices(&change.into())))
    };
    // The list price is 140,000, and then 280,000.
    for (change, before, after_it) in [
        (PriceChange::Set(UsdPerHour(50_000)), 50_000, 50_000),
        (PriceChange::Add(UsdPerHour(20_000)), 160_000, 300_000),
        (PriceChange::Scale(-2_500), 105_000, 210_000),
    ] {
        let mut ledger = Ledger::default();
        ledger.observe(start(), &Observation::Catalog(catalog()));
        ledger.observe(start(), &overlay(change));
        let instance = machine("a", CapacityType::Spot);
        let option = LaunchOption {
            price: UsdPerHour(before),
            instance_type: instance.instance_type,
            zone: instance.zone,
            capacity_type: instance.capacity_type,
            reservation: None,
        };
        ledger.decide(start(), &Action::Launch { claim: claim_of(&instance), options: vec![option] });
        ledger.observe(start(), &launched(instance));
        assert_eq!(ledger.usd_per_hour(), UsdPerHour(before), "{change:?}");
        ledger.observe(after(60), &spot_at(280_000));
        assert_eq!(ledger.usd_per_hour(), UsdPerHour(after_it), "{change:?}");
        // What it was bought as counts, also once the overlay is gone.
        ledger.observe(after(60), &Observation::OverlayGone("ours".into()));
        ledger.observe(after(90), &spot_at(140_000));
        assert_eq!(ledger.usd_per_hour(), UsdPerHour(before), "{change:?}");
    }
}

#[test]
fn a_price_that_changes_while_a_machine_may_refuse_to_end_counts_if_it_does() {
    let mut ledger = two();
    ledger.decide(after(60), &Action::Terminate { instance: id("b") });
    for (minutes, price) in [(75, 200_000), (90, 280_000)] {
        let change = [(("m5.2xlarge".into(), CapacityType::Spot), Some(UsdPerHour(price)))];
        let dearer = catalog().with_prices(&change.into());
        ledger.observe(after(minutes), &Observation::Catalog(Arc::new(dearer)));
    }
    let mut other = ledger.clone();
    let refused = Observation::TerminateFailed { instance: id("b"), message: "throttled".into() };
    ledger.observe(after(100), &refused);
    // 75 minutes for 0.14 an hour, 15 for 0.20, 30 for 0.28; and the other two hours for 0.384.
    let spent = ledger.statement(after(120));
    assert_eq!((spent.total_usd, spent.machine_seconds), (usd("1.133"), 14_400));
    // One that goes costs nothing since it was told to.
    other.observe(after(100), &Observation::Terminated { instance: id("b") });
    let spent = other.statement(after(120));
    assert_eq!((spent.total_usd, spent.machine_seconds), (usd("0.908"), 10_800));
    // One that is told once more is paid until then.
    ledger.decide(after(120), &Action::Terminate { instance: id("b") });
    assert_eq!(total(&ledger, 180), "1.517");
}

#[test]
fn a_machine_that_comes_when_its_claim_is_gone_is_forgotten_with_its_end() {
    let mut ledger = Ledger::default();
    ledger.observe(start(), &Observation::Catalog(catalog()));
    let instance = machine("a", CapacityType::OnDemand);
    ledger.decide(start(), &Action::Launch { claim: claim_of(&instance), options: Vec::new() });
    ledger.observe(start(), &Observation::ClaimGone(claim_of(&instance)));
    ledger.observe(start(), &launched(instance));
    assert_eq!(ledger.usd_per_hour(), UsdPerHour(384_000), "it runs, whoever asked for it");
    ledger.decide(after(60), &Action::Terminate { instance: id("a") });
    ledger.observe(after(61), &Observation::Terminated { instance: id("a") });
    assert_eq!(ledger.price_of(id("a")), None, "nobody will tell of it again");
    assert_eq!(total(&ledger, 120), "0.384");
}

#[test]
fn all_machines_of_a_claim_end_with_it() {
    let mut ledger = two();
    let second = Instance {
        provider_id: ProviderId::new("aws:///us-west-2a/i-second"),
        ..machine("a", CapacityType::OnDemand)
    };
    let its_id = second.provider_id;
    ledger.observe(start(), &launched(second));
    assert_eq!(total(&ledger, 60), "0.908");
    ledger.observe(after(60), &Observation::ClaimGone(ClaimName::new("a-claim")));
    assert_eq!((ledger.price_of(id("a")), ledger.price_of(its_id)), (None, None));
    assert_eq!(total(&ledger, 120), "1.048", "only the spot machine goes on");
}

#[test]
fn a_machine_that_dies_costs_nothing_more() {
    let notice = InterruptionNotice::StateChange;
    for death in [
        Observation::Interruption { instance: id("a"), notice },
        Observation::Terminated { instance: id("a") },
        Observation::Terminating { instance: id("a") },
        Observation::Instances(
            vec![Instance { is_terminating: true, ..machine("a", CapacityType::OnDemand) }].into(),
        ),
    ] {
        let mut ledger = two();
        ledger.observe(after(60), &death);
        // That it is told to end afterwards, and that its claim is seen once more, wakes nobody.
        ledger.decide(after(70), &Action::Terminate { instance: id("a") });
        let mut town = Town::new(vec![pool("web")]);
        town.node_of("web", "a", "m5.2xlarge", "on-demand");
        let claim = town.cluster.claims.values().next().expect("a claim").clone();
        ledger.observe(after(80), &Observation::Claim(claim));
        assert_eq!(total(&ledger, 120), "0.664", "{death:?}");
    }
}

#[test]
fn a_machine_that_refuses_to_end_goes_on_costing() {
    let mut ledger = two();
    ledger.decide(after(60), &Action::Terminate { instance: id("a") });
    assert_eq!(total(&ledger, 90), "0.594");
    let refused = Observation::TerminateFailed { instance: id("a"), message: "throttled".into() };
    ledger.observe(after(90), &refused);
    assert_eq!(total(&ledger, 90), "0.786", "it never stopped");
    ledger.decide(after(120), &Action::Terminate { instance: id("a") });
    ledger.observe(after(121), &Observation::Terminated { instance: id("a") });
    assert_eq!(total(&ledger, 180), "1.188");
}

#[test]
fn what_was_there_before_counts_from_when_it_is_seen() {
    let mut town = Town::new(vec![pool("web")]);
    town.node_of("web", "a", "m5.2xlarge", "on-demand");
    let claim = town.cluster.claims.values().next().expect("a claim").clone();
    let mut ledger = Ledger::default();
    ledger.observe(start(), &Observation::Catalog(catalog()));
    ledger.observe(after(30), &Observation::Claim(claim.clone()));
    assert_eq!(total(&ledger, 90), "0.384");
    // A launch that is asked for again is answered with the machine of long ago.
    ledger.observe(after(90), &launched(machine("a", CapacityType::OnDemand)));
    assert_eq!(total(&ledger, 90), "0.384");
    // Another replica acts for an hour: it counts that hour.
    ledger.let_go(after(90));
    assert_eq!(total(&ledger, 150), "0.384");
    ledger.observe(after(150), &Observation::Claim(claim));
    assert_eq!(total(&ledger, 210), "0.768");
    let mut other = Ledger::default();
    other.observe(after(60), &Observation::Catalog(catalog()));
    other.observe(after(60), &launched(machine("a", CapacityType::OnDemand)));
    assert_eq!(total(&other, 120), "0.384", "a former life paid for what was before");
}

#[test]
fn a_clock_that_jumps_back_takes_nothing_off() {
    let mut ledger = two();
    assert_eq!(total(&ledger, 60), "0.524");
    ledger.reach(after(60));
    assert_eq!(total(&ledger, -600), "0.524");
    ledger.observe(after(-600), &launched(machine("c", CapacityType::Spot)));
    ledger.decide(after(-600), &Action::Terminate { instance: id("a") });
    assert_eq!(total(&ledger, 30), "0.524", "the clock has to catch up first");
    assert_eq!(total(&ledger, 120), "0.804", "an hour of two spot machines");
}

#[derive(Clone, Debug)]
enum Step {
    Launch(u8),
    Terminate(u8),
    Refuse(u8),
    Gone(u8),
    ClaimGone(u8),
    Price(i64),
    LetGo,
}

fn steps() -> impl Strategy<Value = Vec<(i64, Step)>> {
    let machine = 0..4u8;
    let step = prop_oneof![
        3 => machine.clone().prop_map(Step::Launch),
        2 => machine.clone().prop_map(Step::Terminate),
        1 => machine.clone().prop_map(Step::Refuse),
        2 => machine.clone().prop_map(Step::Gone),
        2 => machine.prop_map(Step::ClaimGone),
        1 => (1..900_000i64).prop_map(Step::Price),
        1 => Just(Step::LetGo),
    ];
    proptest::collection::vec((-90..120i64, step), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order, under a clock that jumps: nothing is ever taken off, and the parts come to the total.
    #[test]
    fn what_was_spent_only_grows(steps in steps()) {
        let names = ["a", "b", "c", "d"];
        let claim = |place: u8| ClaimName::new(&format!("{}-claim", names[usize::from(place)]));
        let mut ledger = Ledger::default();
        ledger.observe(start(), &Observation::Catalog(catalog()));
        let (mut clock, mut former) = (0, ledger.statement(start()));
        for (minutes, step) in steps {
            clock += minutes;
            let now = after(clock);
            match step {
                Step::Launch(place) => {
                    let kind = if place % 2 == 0 { CapacityType::Spot } else { CapacityType::OnDemand };
                    let instance = Instance { launched: now, ..machine(names[usize::from(place)], kind) };
                    ledger.observe(now, &launched(instance));
                }
                Step::Terminate(place) => {
                    ledger.decide(now, &Action::Terminate { instance: id(names[usize::from(place)]) });
                }
                Step::Refuse(place) => ledger.observe(now, &Observation::TerminateFailed {
                    instance: id(names[usize::from(place)]),
                    message: "no".into(),
                }),
                Step::Gone(place) => {
                    ledger.observe(now, &Observation::Terminated { instance: id(names[usize::from(place)]) });
                }
                Step::ClaimGone(place) => ledger.observe(now, &Observation::ClaimGone(claim(place))),
                Step::Price(micros) => {
                    let change = [(("m5.2xlarge".into(), CapacityType::Spot), Some(UsdPerHour(micros)))];
                    ledger.observe(now, &Observation::Catalog(Arc::new(catalog().with_prices(&change.into()))));
                }
                Step::LetGo => ledger.let_go(now),
            }
            let spent = ledger.statement(now);
            for (account, before) in &former.accounts {
                let after = spent.accounts.get(account).copied().unwrap_or_default();
                prop_assert!(after.usd >= before.usd, "{account:?}: {before:?}, then {after:?}");
                prop_assert!(after.machine_seconds >= before.machine_seconds, "{account:?}");
            }
            prop_assert!(spent.accounts.values().all(|spent| spent.usd >= Usd(0) && spent.machine_seconds >= 0));
            prop_assert_eq!(spent.accounts.values().map(|spent| spent.usd).sum::<Usd>(), spent.total_usd);
            prop_assert_eq!(spent.by_capacity_type.values().copied().sum::<Usd>(), spent.total_usd);
            prop_assert_eq!(ledger.usd(now), spent.total_usd);
            // What is said to run is what goes on costing.
            let end = ledger.reach(now);
            let (spent_then, later) = (ledger.statement(end), ledger.statement(end + SignedDuration::from_hours(1)));
            let machines: u32 = ledger.rates().values().map(|rate| rate.machines).sum();
            prop_assert_eq!(later.machine_seconds - spent_then.machine_seconds, 3600 * i64::from(machines));
            let rounding = (later.total_usd - spent_then.total_usd).0 - ledger.usd_per_hour().0;
            prop_assert!(rounding.abs() <= 4, "{rounding}");
            former = spent;
        }
    }
}
