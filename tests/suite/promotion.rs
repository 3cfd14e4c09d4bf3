//! From one environment to the next: soak, rollbacks, proposals.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::gitops::diagnostic::Severity;
use provisor::gitops::promotion::{
    Memory, Promotion, PromotionDecision, PromotionEvent, Promotions, Refusal, Rules, Standing, offer, rules,
};
use provisor::gitops::render::{RenderSettings, render_environment, validate_repository};
use provisor::gitops::sync::{Health, Rollout, SyncState};
use provisor::model::repository::{CommitId, Repository, Revision};
use serde_json::json;

use crate::fleet_files::repository;

const RULES: &str = "[promotion]\nfrom = ['dev']\npaths = ['pools.*.limits']\nsoak = '2h'\n";

fn start() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().expect("a moment")
}

fn minute(minutes: i64) -> Timestamp {
    start() + SignedDuration::from_mins(minutes)
}

/// A commit, named by one hexadecimal digit, with these limits of CPU.
fn commit(id: char, dev: u32, prod: u32, more: &str) -> Repository {
    let pool = |cpu: u32| format!("[pools.general]\nstrategy = 'spot'\nlimits = {{ cpu = {cpu} }}\n");
    let prod = format!("{}[pools.own]\nstrategy = 'spot'\nlimits = {{ cpu = 7 }}\n{RULES}{more}", pool(prod));
    let mut repository = repository(&[
        ("fleet.toml", "name = 'shop'\n"),
        ("environments/dev.toml", &pool(dev)),
        ("environments/prod.toml", &prod),
    ]);
    repository.revision = Revision {
        commit: CommitId::parse(&id.to_string().repeat(40)).expect("forty digits"),
        reference: None,
        subject: "test".into(),
        author: "ann".into(),
    };
    repository
}

fn rules_for(repository: &Repository) -> Rules {
    rules::rules_of(repository).expect("the rules are right").pop().expect("prod has rules")
}

fn read(promotion: &mut Promotion, at: Timestamp, repository: &Repository) {
    let rules = rules_for(repository);
    let offer = offer(repository, &rules).expect("both resolve");
    promotion.observe(at, PromotionEvent::Read { rules, offer });
}

fn promotion(repository: &Repository) -> Promotion {
    let rules = rules_for(repository);
    let offer = offer(repository, &rules).expect("both resolve");
    Promotion::new(rules, offer)
}

fn standing(repository: &Repository, health: Health) -> Standing {
    let (state, _) = render_environment(repository, "dev", &RenderSettings::default()).expect("it renders");
    Standing {
        digest: state.digest,
        revision: state.revision,
        sync: SyncState::Synced,
        health,
        rollout: Rollout::Complete,
    }
}

fn stood(promotion: &mut Promotion, at: Timestamp, repository: &Repository, health: Health) {
    let standing = standing(repository, health);
    promotion.observe(at, PromotionEvent::Stood { stage: "dev".into(), standing });
}

fn remaining(decision: &PromotionDecision) -> &str {
    match &decision.outcome {
        Err(Refusal::Soaking { remaining, .. }) => remaining,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ren_047_promotion_waits_for_the_whole_soak_and_then_proposes() {
    let repository = commit('1', 200, 100, "");
    let mut promotion = promotion(&repository);
    assert_eq!(promotion.decide(start()).code(), "NotVerified", "nothing is known of dev");
    stood(&mut promotion, start(), &repository, Health::Healthy);
    for minutes in [10, 30, 60] {
        stood(&mut promotion, minute(minutes), &repository, Health::Healthy);
    }
    let early = promotion.decide(minute(60));
    assert_eq!(remaining(&early), "1h");
    assert_eq!(early.wake_at, Some(minute(120)));
    assert_eq!(early.to_string(), "prod: not yet: 1h of the soak remain, until 2026-03-02T10:00:00Z");
    let later = promotion.decide(minute(119));
    assert_eq!((remaining(&later), later.is_news), ("1m", false), "time that passes is no news");
    let ripe = promotion.decide(minute(120));
    assert!(ripe.is_news);
    let proposal = ripe.outcome.expect("two hours have passed");
    assert_eq!((&*proposal.file, &proposal.from), ("environments/prod.toml", &vec!["dev".into()]));
    let [change] = proposal.changes.as_slice() else { panic!("{:?}", proposal.changes) };
    assert_eq!(change.field, "pools.general.limits.cpu");
    assert_eq!((&change.from, &change.to), (&Some(json!(100)), &Some(json!(200))));
    let place =
        |origin: &Option<provisor::gitops::desired::Origin>| origin.as_ref().expect("a line").to_string();
    assert_eq!(place(&change.set_at), "environments/prod.toml:3:18");
    assert_eq!(place(&change.comes_from), "environments/dev.toml:3:18");
    assert!(!promotion.decide(minute(121)).is_news, "a proposal is told once");
}

#[test]
fn ren_047_another_commit_starts_the_soak_again_and_a_comment_does_not() {
    let first = commit('1', 200, 100, "");
    let mut promotion = promotion(&first);
    stood(&mut promotion, start(), &first, Health::Healthy);
    let comment = commit('2', 200, 100, "# a comment\n");
    read(&mut promotion, minute(90), &comment);
    stood(&mut promotion, minute(90), &comment, Health::Healthy);
    assert_eq!(remaining(&promotion.decide(minute(90))), "30m");
    let other = commit('3', 300, 100, "");
    read(&mut promotion, minute(100), &other);
    stood(&mut promotion, minute(100), &other, Health::Healthy);
    assert_eq!(remaining(&promotion.decide(minute(120))), "1h40m");
    // What is not rolled out is not verified, unless that is not asked.
    let mut rolling = standing(&other, Health::Healthy);
    rolling.rollout = Rollout::Rolling { done: 1, total: 3, eta: None };
    promotion.observe(minute(130), PromotionEvent::Stood { stage: "dev".into(), standing: rolling.clone() });
    assert_eq!(promotion.decide(minute(130)).to_string(), "prod: not yet: dev is Rolling 1/3");
    let lax = commit('4', 300, 100, "require = 'healthy'\n");
    read(&mut promotion, minute(140), &lax);
    promotion.observe(minute(140), PromotionEvent::Stood { stage: "dev".into(), standing: rolling });
    assert_eq!(remaining(&promotion.decide(minute(140))), "2h");
}

#[test]
fn ren_048_a_degraded_stage_starts_its_soak_again() {
    let repository = commit('1', 200, 100, "");
    let mut promotion = promotion(&repository);
    stood(&mut promotion, start(), &repository, Health::Healthy);
    stood(&mut promotion, minute(90), &repository, Health::Degraded);
    assert_eq!(promotion.decide(minute(90)).to_string(), "prod: not yet: dev is Degraded");
    assert_eq!(promotion.decide(minute(130)).code(), "NotVerified", "broken time does not count");
    stood(&mut promotion, minute(140), &repository, Health::Healthy);
    assert_eq!(remaining(&promotion.decide(minute(140))), "2h");
    assert_eq!(remaining(&promotion.decide(minute(259))), "1m");
    assert_eq!(promotion.decide(minute(260)).code(), "Proposed");
}

#[test]
fn ren_049_a_rollback_by_hand_holds_promotion_until_it_is_released() {
    let first = commit('1', 200, 100, "");
    let mut promotion = promotion(&first);
    stood(&mut promotion, start(), &first, Health::Healthy);
    let promoted = commit('2', 200, 200, "");
    read(&mut promotion, minute(120), &promoted);
    assert_eq!(promotion.decide(minute(120)).code(), "NothingToPromote");
    let back = commit('3', 200, 100, "");
    read(&mut promotion, minute(180), &back);
    let held = promotion.decide(minute(180));
    assert_eq!(
        held.to_string(),
        "prod: held: ann went back to earlier values with 3333333; to release that, set `release = \"3333333\"` in [promotion] of environments/prod.toml"
    );
    // Something new proves itself: it is held all the same.
    let new = commit('4', 300, 100, "");
    read(&mut promotion, minute(200), &new);
    stood(&mut promotion, minute(200), &new, Health::Healthy);
    assert_eq!(promotion.decide(minute(600)).code(), "HeldAfterRollback");
    let wrong = commit('5', 300, 100, "release = '4444444'\n");
    read(&mut promotion, minute(610), &wrong);
    assert_eq!(promotion.decide(minute(610)).code(), "HeldAfterRollback");
    let released = commit('6', 300, 100, "release = '3333333'\n");
    read(&mut promotion, minute(620), &released);
    assert_eq!(promotion.decide(minute(620)).code(), "Proposed");
    // Told by somebody else than Git, and released the same way.
    let revision = released.revision.clone();
    promotion.observe(minute(630), PromotionEvent::RolledBack { actor: "bob".into(), revision });
    assert!(promotion.decide(minute(630)).to_string().contains("held: bob"));
    promotion.observe(minute(640), PromotionEvent::Released);
    assert_eq!(promotion.decide(minute(640)).code(), "Proposed");
}

/// What a process remembers, as the next one reads it.
fn restarted(promotions: &Promotions, stopped: Timestamp) -> Promotions {
    let memory = Memory::parse(&promotions.memory(stopped).render()).expect("what is written is read");
    let mut next = Promotions::default();
    next.recall(memory);
    next
}

fn one(promotions: &mut Promotions, at: Timestamp) -> PromotionDecision {
    promotions.decide(at).pop().expect("one environment takes values")
}

#[test]
fn ren_047_a_soak_goes_on_after_a_restart_where_it_stopped() {
    let repository = commit('1', 200, 100, "");
    let mut promotions = Promotions::default();
    promotions.take_commit(start(), &repository, "dev").expect("the rules are right");
    promotions.observe(start(), "dev", &standing(&repository, Health::Healthy));
    assert_eq!(remaining(&one(&mut promotions, minute(60))), "1h");
    // Five hours in which nobody looked vouch for nothing.
    let mut next = restarted(&promotions, minute(60));
    next.take_commit(minute(360), &repository, "dev").expect("the rules are right");
    next.observe(minute(360), "dev", &standing(&repository, Health::Healthy));
    assert_eq!(remaining(&one(&mut next, minute(370))), "50m");
    assert_eq!(one(&mut next, minute(420)).code(), "Proposed");
    // Another thing to verify, or a stage that is not well, starts again as ever.
    for (other, health, code) in [
        (commit('2', 300, 100, ""), Health::Healthy, "Soaking"),
        (repository.clone(), Health::Degraded, "NotVerified"),
    ] {
        let mut next = restarted(&promotions, minute(60));
        next.take_commit(minute(360), &other, "dev").expect("the rules are right");
        next.observe(minute(360), "dev", &standing(&other, health));
        let decision = one(&mut next, minute(361));
        assert_eq!(decision.code(), code);
        assert!(code == "NotVerified" || remaining(&decision) == "1h59m", "{decision}");
    }
    assert_eq!(Memory::parse("{}"), None);
    assert_eq!(Memory::parse("{\"version\":2,\"environments\":{}}"), None);
}

#[test]
fn ren_049_a_rollback_is_noticed_and_held_across_restarts() {
    let (first, promoted) = (commit('1', 200, 100, ""), commit('2', 200, 200, ""));
    let back = commit('3', 200, 100, "");
    let mut promotions = Promotions::default();
    for repository in [&first, &promoted] {
        promotions.take_commit(start(), repository, "dev").expect("the rules are right");
    }
    // Somebody goes back while nothing runs.
    let mut next = restarted(&promotions, minute(1));
    next.take_commit(minute(2), &back, "dev").expect("the rules are right");
    assert!(one(&mut next, minute(2)).to_string().contains("ann went back to earlier values with 3333333"));
    // It stays held in the process after that, and after one that ended before it read a commit.
    let again = restarted(&restarted(&next, minute(3)), minute(4));
    let mut again = again;
    again.take_commit(minute(5), &back, "dev").expect("the rules are right");
    assert_eq!(one(&mut again, minute(600)).code(), "HeldAfterRollback");
    again.take_commit(minute(601), &commit('6', 300, 100, "release = '3333333'\n"), "dev").expect("right");
    assert_ne!(one(&mut again, minute(601)).code(), "HeldAfterRollback");
}

#[test]
fn a_value_that_comes_back_by_promotion_is_no_rollback() {
    let mut promotion = promotion(&commit('1', 200, 100, ""));
    read(&mut promotion, minute(1), &commit('2', 200, 200, ""));
    read(&mut promotion, minute(2), &commit('3', 100, 200, ""));
    read(&mut promotion, minute(3), &commit('4', 100, 100, ""));
    assert_eq!(promotion.decide(minute(3)).code(), "NothingToPromote");
    read(&mut promotion, minute(4), &commit('5', 300, 100, ""));
    assert_eq!(promotion.decide(minute(4)).code(), "NotVerified");
}

#[test]
fn a_bypass_needs_no_soak_and_names_who_answers() {
    let first = commit('1', 200, 100, "");
    let mut promotion = promotion(&first);
    let bypass = PromotionEvent::Bypassed { actor: "ann".into(), reason: "incident".into() };
    promotion.observe(start(), bypass);
    let proposal = promotion.decide(start()).outcome.expect("it is bypassed");
    assert_eq!(proposal.bypass.as_deref(), Some("ann answers for it: incident"));
    read(&mut promotion, minute(1), &commit('2', 300, 100, ""));
    assert_eq!(promotion.decide(minute(1)).code(), "NotVerified", "it was for what was offered then");
}

fn three(dev: &str, qa: &str, prod: &str) -> Repository {
    repository(&[
        ("fleet.toml", "name = 'shop'\n"),
        ("environments/dev.toml", dev),
        ("environments/qa.toml", qa),
        ("environments/prod.toml", prod),
    ])
}

#[test]
fn several_stages_vouch_together_or_the_first_that_may() {
    let pool = |cpu: u32| format!("[pools.a]\nstrategy = 'spot'\nlimits = {{ cpu = {cpu} }}\n");
    let rules = |how: &str| {
        format!("[promotion]\nfrom = ['dev', 'qa']\npaths = ['pools.*.limits']\nmatch = '{how}'\n")
    };
    let vouch = |repository: &Repository, stages: &[&str]| {
        let mut promotion = promotion(repository);
        for stage in stages {
            let event = PromotionEvent::Stood {
                stage: Arc::from(*stage),
                standing: Standing { digest: (*stage).into(), ..standing(repository, Health::Healthy) },
            };
            promotion.observe(start(), event);
        }
        promotion.decide(start())
    };
    let same = three(&pool(9), &pool(9), &(pool(1) + &rules("all")));
    assert_eq!(vouch(&same, &["dev"]).to_string(), "prod: not yet: nothing is known of qa");
    assert_eq!(vouch(&same, &["dev", "qa"]).outcome.expect("both").from.len(), 2);
    let apart = three(&pool(9), &pool(8), &(pool(1) + &rules("all")));
    let refused = vouch(&apart, &["dev", "qa"]);
    assert_eq!(refused.to_string(), "prod: not at all: the stages disagree about `pools.a.limits.cpu`");
    let one = three(&pool(9), &pool(8), &(pool(1) + &rules("one-of")));
    let proposal = vouch(&one, &["qa"]).outcome.expect("qa is enough");
    assert_eq!(proposal.changes[0].to, Some(json!(8)));
    let proposal = vouch(&one, &["qa", "dev"]).outcome.expect("dev comes first");
    assert_eq!(proposal.changes[0].to, Some(json!(9)));
}

#[test]
fn only_what_the_paths_say_is_promoted_with_bases_and_defaults_merged_in() {
    let dev = "variables = { a = 1, b = 2 }\ndefaults.pool.limits = { cpu = 9, nodes = 3 }\n[pools.a]\nstrategy = 'spot'\nweight = 5\n[pools.new]\nstrategy = 'spot'\n";
    let prod = "variables = { b = 2 }\n[pools.a]\nstrategy = 'spot'\nlimits = { cpu = 9, memory = '4Gi' }\n[pools.mine]\nstrategy = 'spot'\nlimits = { cpu = 1 }\n";
    let fields = |paths: &str| {
        let prod = format!("{prod}[promotion]\nfrom = ['dev']\npaths = {paths}\n");
        let repository = three(dev, "[pools.a]\nstrategy = 'spot'\n", &prod);
        let rules = rules_for(&repository);
        let offer = offer(&repository, &rules).expect("both resolve");
        offer.changes_of("dev").map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(fields("['pools.*.limits']"), ["pools.a.limits.memory 4Gi → -", "pools.a.limits.nodes - → 3"]);
    assert_eq!(fields("['variables.a', 'variables.b']"), ["variables.a - → 1"]);
    assert_eq!(fields("['pools.a.weight']"), ["pools.a.weight - → 5"]);
    let whole = fields("['pools.*']");
    assert!(whole.iter().any(|change| change == "pools.new.strategy - → spot"), "{whole:?}");
    assert!(!whole.iter().any(|change| change.contains("mine")), "what only prod has stays: {whole:?}");
}

#[test]
fn what_was_never_in_force_and_what_is_not_there_are_not_offered() {
    let pool = "[pools.a]\nstrategy = 'spot'\n";
    let rules = "[promotion]\nfrom = ['dev']\npaths = ['pools.*.limits', 'pools.a.weight']\n";
    let offered = |dev: &str, prod: &str| {
        let repository = three(dev, pool, &format!("{prod}{rules}"));
        let offer = offer(&repository, &rules_for(&repository)).expect("both resolve");
        let warned = validate_repository(&repository, &RenderSettings::default()).diagnostics;
        let warned = warned.iter().filter(|one| one.code == "PRV1704").count();
        (offer.changes_of("dev").map(ToString::to_string).collect::<Vec<_>>(), warned)
    };
    let prod = format!("{pool}limits = {{ cpu = 100, memory = '1Gi' }}\n");
    // An override of dev decides, so its limit never counted there; beside it the rest is offered.
    let dev = format!(
        "{pool}weight = 3\nlimits = {{ cpu = 5, memory = '9Gi' }}\noverrides = {{ spec.limits.cpu = '50' }}\n"
    );
    assert_eq!(offered(&dev, &prod).0, ["pools.a.limits.memory 1Gi → 9Gi", "pools.a.weight - → 3"]);
    // A stage without any limits takes none away, as `validate` says; one limit less is a value like any other.
    assert_eq!(offered(pool, &format!("{prod}weight = 2\n")), (vec![], 2));
    let removed = format!("defaults.pool.limits.cpu = 4\n{pool}limits = {{ \"$remove\" = true }}\n");
    assert_eq!(offered(&removed, &prod), (vec![], 2));
    let dev = format!("{pool}limits = {{ cpu = 100 }}\n");
    assert_eq!(offered(&dev, &prod), (vec!["pools.a.limits.memory 1Gi → -".to_owned()], 1));
    // Of two pools one may have limits there.
    let dev = format!("{pool}[pools.b]\nstrategy = 'spot'\nlimits = {{ cpu = 7 }}\n");
    let prod = format!("{prod}[pools.b]\nstrategy = 'spot'\nlimits = {{ cpu = 1 }}\n");
    assert_eq!(offered(&dev, &prod), (vec!["pools.b.limits.cpu 1 → 7".to_owned()], 1));
}

#[test]
fn why_there_is_nothing_to_promote_is_told_as_it_is() {
    let pool = "[pools.a]\nstrategy = 'spot'\n";
    let limited = format!("{pool}limits = {{ cpu = 100 }}\n");
    let said = |from: &str, dev: &str, qa: &str, prod: &str| {
        let rules = format!("[promotion]\nfrom = [{from}]\npaths = ['pools.*.limits']\n");
        let repository = three(dev, qa, &format!("{prod}{rules}"));
        promotion(&repository).decide(start()).outcome.expect_err("nothing is proposed").to_string()
    };
    let override_of_dev = format!("{pool}limits = {{ cpu = 5 }}\noverrides = {{ spec.limits.cpu = '50' }}\n");
    for (from, dev, qa, prod, expected) in [
        ("'dev'", &*limited, pool, &*limited, "prod has all that is promoted from dev"),
        ("'dev'", pool, pool, &*limited, "dev has none of the values that are promoted to prod"),
        (
            "'dev', 'qa'",
            pool,
            pool,
            &*limited,
            "dev and qa have none of the values that are promoted to prod",
        ),
        ("'dev', 'qa'", &*limited, pool, &*limited, "prod has all that is promoted from dev"),
        (
            "'dev'",
            &*override_of_dev,
            pool,
            &*limited,
            "where prod differs from dev, overrides or marks as final decide",
        ),
    ] {
        assert_eq!(said(from, dev, qa, prod), format!("nothing to promote: {expected}"), "{dev} {qa}");
    }
}

#[test]
fn mistakes_in_promotion_rules_are_told_with_their_place() {
    let pool = "[pools.a]\nstrategy = 'spot'\n";
    let found = |dev: &str, prod: &str| -> Vec<String> {
        let (dev, prod) = (format!("{dev}{pool}"), format!("{pool}{prod}"));
        let base = ("environments/base.toml", "abstract = true\n");
        let files = [
            ("fleet.toml", "name = 'shop'\n"),
            ("environments/dev.toml", &*dev),
            ("environments/prod.toml", &*prod),
            base,
        ];
        let report = validate_repository(&repository(&files), &RenderSettings::default());
        let said =
            report.diagnostics.iter().map(|one| format!("{} {} {}", one.severity, one.code, one.place));
        said.collect()
    };
    let rules = |from: &str, path: &str| format!("[promotion]\nfrom = {from}\npaths = ['{path}']\n");
    let at = |what: &str, place: &str| vec![format!("{what} environments/{place}")];
    assert_eq!(found("", &rules("['dev']", "pools.*.strategy")), [""; 0]);
    assert_eq!(found("", &rules("['dve']", "pools.*.strategy")), at("error PRV1701", "prod.toml:4:9"));
    assert_eq!(found("", &rules("['base']", "pools.*.strategy")), at("error PRV1701", "prod.toml:4:9"));
    assert_eq!(found("", &rules("[]", "pools.*.strategy")), at("error PRV1701", "prod.toml:4:8"));
    assert_eq!(found("", &rules("['dev']", "pool.a")), at("error PRV1703", "prod.toml:5:10"));
    assert_eq!(found("", &rules("['dev']", "pools.*.limits")), at("warning PRV1704", "prod.toml:5:10"));
    assert_eq!(found("", &rules("['prod']", "pools.*.strategy")), at("error PRV1702", "prod.toml:4:9"));
    assert_eq!(
        found("promotion = { from = ['prod'], paths = ['pools'] }\n", &rules("['dev']", "pools")),
        at("error PRV1702", "dev.toml:1:23")
    );
    assert_eq!(found("", "[promotion]\nfrom = ['dev']\n"), at("error PRV1204", "prod.toml:3:1"));
    assert_eq!(
        found("", &(rules("['dev']", "pools") + "soak = '2 hours'\nrelease = 'v1'\n")),
        ["error PRV1203 environments/prod.toml:6:8", "error PRV1203 environments/prod.toml:7:11"]
    );
}

#[test]
fn rules_that_are_wrong_leave_the_old_ones_in_force() {
    let first = commit('1', 200, 100, "");
    let mut all = Promotions::default();
    all.take_commit(start(), &first, "dev").expect("the rules are right");
    all.observe(start(), "dev", &standing(&first, Health::Healthy));
    let mut broken = first.clone();
    let text = "[pools.general]\nstrategy = 'spot'\n[promotion]\nfrom = ['nowhere']\npaths = ['pools']\n";
    broken.files.insert("environments/prod.toml".into(), text.as_bytes().into());
    all.take_commit(minute(1), &broken, "dev").expect_err("there is no such environment");
    assert_eq!(all.decide(minute(120)).len(), 1);
    assert_eq!(all.decide(minute(120))[0].code(), "Proposed");
    all.take_commit(minute(2), &first, "prod").expect("nobody takes values from prod");
    assert!(all.is_empty());
}

#[test]
fn severity_of_an_unknown_stage_is_an_error() {
    let repository = three("", "", "[promotion]\nfrom = ['x']\npaths = ['pools']\n");
    let found = rules::rules_of(&repository).expect_err("x does not exist");
    assert!(found.iter().all(|one| one.severity == Severity::Error));
}

#[test]
fn what_a_mark_keeps_as_it_is_is_not_offered() {
    let base = "abstract = true\nfinal = ['pools.*.limits', 'variables.team']\nvariables = { team = 'x' }\n\
                [pools.general]\nstrategy = 'spot'\nlimits = { cpu = 100 }\n";
    let dev = "variables = { team = 'y' }\n[pools.general]\nstrategy = 'spot'\nlimits = { cpu = 200 }\nweight = 7\n";
    let prod = "extends = 'base'\n[promotion]\nfrom = ['dev', 'dev']\npaths = ['pools.*.limits', 'pools.*.weight', 'variables']\n";
    let with = |base: &str, prod: &str| {
        repository(&[
            ("fleet.toml", "name = 'shop'\n"),
            ("environments/base.toml", base),
            ("environments/dev.toml", dev),
            ("environments/prod.toml", prod),
        ])
    };
    let fields = |repository: &Repository| -> Vec<String> {
        let offer = offer(repository, &rules_for(repository)).expect("both resolve");
        offer.changes_of("dev").map(|change| change.field.clone()).collect()
    };
    let marked = with(base, prod);
    assert_eq!(fields(&marked), ["pools.general.weight"]);
    // Its own marks are no obstacle: it may change what it marks.
    let base = base.replace("final = ['pools.*.limits', 'variables.team']\n", "");
    let own = with(&base, &prod.replace("[promotion]", "final = ['pools.*.limits']\n[promotion]"));
    assert_eq!(fields(&own), ["pools.general.limits.cpu", "pools.general.weight", "variables.team"]);

    // Nor is a value that an override of the environment decides.
    let over = with(&base, &format!("{prod}[pools.general.overrides]\n'spec.limits.cpu' = '5'\n"));
    assert_eq!(fields(&over), ["pools.general.weight", "variables.team"]);
    let beside = with(&base, &format!("{prod}[pools.general.overrides]\n'spec.limits.memory' = '5Gi'\n"));
    assert!(fields(&beside).contains(&"pools.general.limits.cpu".to_owned()));

    let told = |repository: &Repository| -> Vec<(&'static str, String, Option<String>)> {
        let found = validate_repository(repository, &RenderSettings::default()).diagnostics;
        let place = |one: &provisor::gitops::diagnostic::Diagnostic| one.place.to_string();
        let mark =
            |one: &provisor::gitops::diagnostic::Diagnostic| Some(one.chain.first()?.place.to_string());
        found.iter().map(|one| (one.code, place(one), mark(one))).collect()
    };
    let file = |at: &str| format!("environments/prod.toml:{at}");
    assert_eq!(
        told(&marked),
        [
            ("PRV1701", file("3:16"), Some(file("3:9"))),
            ("PRV1704", file("4:10"), Some("environments/base.toml:2:10".to_owned())),
        ]
    );
    let empty = with(&base, "extends = 'base'\n[promotion]\nfrom = ['dev']\npaths = []\n");
    assert_eq!(told(&empty), [("PRV1704", file("4:9"), None)]);
}
