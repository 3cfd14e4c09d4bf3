//! Guardrails in CEL, and pools between which nothing decides.

use std::sync::Arc;

use provisor::gitops::diagnostic::{Diagnostic, Severity};
use provisor::gitops::guardrail::Guardrails;
use provisor::gitops::render::{RenderSettings, render_environment, validate_repository};
use provisor::model::repository::Repository;

use crate::fleet_files::repository;

fn fleet(policy: &str, prod: &str) -> Repository {
    repository(&[
        ("fleet.toml", "name = 'shop'\ndefaults.region = 'us-east-1'\n"),
        ("environments/prod.toml", prod),
        ("policies/all.toml", policy),
    ])
}

fn found(repository: &Repository) -> Vec<Diagnostic> {
    match render_environment(repository, "prod", &RenderSettings::default()) {
        Ok((_, warnings)) => warnings,
        Err(found) => found.into_iter().collect(),
    }
}

fn said(repository: &Repository) -> Vec<String> {
    found(repository).iter().map(ToString::to_string).collect()
}

fn rule(check: &str) -> String {
    format!("[[guardrail]]\nid = 'rule'\ncheck = \"{check}\"\n")
}

const GPU: &str = "[pools.a]\nstrategy = 'on-demand'\ninstance-families = ['g5']\n";

#[test]
fn ren_042_a_guardrail_denies_a_gpu_pool_without_a_taint() {
    let rule = "[[guardrail]]\nid = 'gpu-taint'\ncheck = '!pool.buysGpus || pool.taints.size() > 0'\nmessage = \"'pool ' + pool.name + ' needs a taint'\"\nowners = ['group:capacity']\n";
    let denied = found(&fleet(rule, GPU));
    let [warning, denial] = denied.as_slice() else { panic!("{denied:?}") };
    // Both stand at the pool; the guardrail's word is the error.
    let (warning, denial) = if denial.is_error() { (warning, denial) } else { (denial, warning) };
    assert_eq!((warning.code, warning.severity), ("PRV1604", Severity::Warning));
    assert_eq!((denial.code, denial.severity), ("PRV1801", Severity::Error));
    assert_eq!(denial.message, "denied by the guardrail `gpu-taint`: pool a needs a taint");
    assert_eq!(denial.place.to_string(), "environments/prod.toml:1:8");
    assert_eq!(denial.chain[0].place.to_string(), "policies/all.toml:2:6");
    assert_eq!(denial.help.as_deref(), Some("change what it is about, or ask group:capacity"));
    let tainted = format!("{GPU}taints = ['nvidia.com/gpu=true:NoSchedule']\n");
    assert_eq!(said(&fleet(rule, &tainted)), [""; 0]);
    let report = validate_repository(&fleet(rule, GPU), &RenderSettings::default());
    assert!(!report.is_valid());
    let warn = rule.replace("check =", "severity = 'warn'\ncheck =");
    assert!(render_environment(&fleet(&warn, GPU), "prod", &RenderSettings::default()).is_ok());
}

#[test]
fn rules_see_pools_objects_and_the_environment() {
    let prod = "variables = { team = 'shop' }\n[pools.a]\nstrategy = 'spot'\nlimits = { cpu = 200 }\nweight = 3\n[pools.b]\nstrategy = 'on-demand'\nweight = 4\n";
    for (check, holds) in [
        ("pool.name in ['a', 'b'] && pool.after.name == pool.name", true),
        ("pool.weight < 4", false),
        ("pool.capacityTypes == ['spot'] || pool.capacityTypes == ['on-demand']", true),
        ("pool.architectures == ['amd64']", true),
        ("pool.name == 'b' || pool.limits.cpu == '200'", true),
        ("has(pool.limits.cpu)", false),
        ("pool.class.metadataOptions.httpTokens == 'required'", true),
        ("env.pools.size() <= 2 && env.region == 'us-east-1' && env.variables.team == 'shop'", true),
        ("pool.weight + 1 > pool.requirements.size() - 100", true),
        ("env.name != 'prod'", false),
        ("object.kind != 'NodePool' || object.spec.template.spec.expireAfter == '720h'", true),
        (
            "pool.requirements.all(one, one.values.exists(value, size(value) > 0) || one.operator == 'Exists')",
            true,
        ),
        ("pool.name.matches('^[a-z]+$')", true),
    ] {
        let all = said(&fleet(&rule(check), prod));
        let is_denied = all.iter().any(|one| one.contains("PRV1801"));
        assert_eq!(!is_denied, holds, "{check}: {all:?}");
        assert!(is_denied || all.is_empty(), "{check}: {all:?}");
    }
    let only = "[[guardrail]]\nid = 'rule'\napplies = \"pool.name == 'a'\"\ncheck = 'pool.weight > 3'\n";
    assert_eq!(said(&fleet(only, prod)).len(), 1);
}

/// What a pool asks for beyond the fields of a NodePool is as visible as those; of a pool that asks for nothing it is empty.
#[test]
fn rules_see_rolls_windows_expiration_and_return() {
    let said_by = "[pools.a]
strategy = 'on-demand'
capacity-types = ['spot', 'on-demand']
roll = { canary = 2, soak = '15m', halt-after = 5 }
return = { after = '30m' }
expiration = { deadline = '48h' }
[[pools.a.windows]]
name = 'nights'
kind = 'allow'
from = '22:00'
until = '06:00'
time-zone = 'Europe/Berlin'
";
    let silent = "[pools.a]\nstrategy = 'on-demand'\n";
    for (check, of_words, of_nothing) in [
        ("has(pool.roll.canary) && pool.roll.canary >= 1 && pool.roll.soak == '15m'", true, false),
        ("pool.roll['halt-after'] == 5", true, false),
        ("pool.roll.size() == 3 || pool.roll.size() == 0", true, true),
        ("pool.returns.size() == 0 || pool.returns.after == '30m'", true, true),
        ("has(pool.expiration.deadline) && pool.expiration.deadline == '48h'", true, false),
        ("pool.windows.exists(one, one.kind == 'allow' && one['time-zone'] == 'Europe/Berlin')", true, false),
        ("pool.windows.all(one, one.from == '22:00')", true, true),
        ("pool.after.windows.size() == 1", true, false),
    ] {
        for (prod, holds) in [(said_by, of_words), (silent, of_nothing)] {
            let all = said(&fleet(&rule(check), prod));
            let is_denied = all.iter().any(|one| one.contains("denied by the guardrail"));
            assert_eq!(!is_denied, holds, "{check} of {prod}: {all:?}");
        }
    }
}

/// Rows: REV-026
#[test]
fn rules_that_cannot_be_judged_by_are_refused_with_their_place() {
    let prod = "[pools.a]\nstrategy = 'spot'\n";
    for (check, place, message) in [
        ("pool.weigth > 1", "3:14", "`pool` has no field `weigth`"),
        ("pool.after.weigth > 1", "3:20", "`pool` has no field `weigth`"),
        ("poool.weight > 1", "3:10", "there is no `poool`"),
        ("now() > 1", "3:9", "Undeclared reference to 'now'"),
        ("pool.weight", "3:9", "the answer is int, neither true nor false"),
        ("pool.weight > 'a'", "3:9", ""),
        ("pool.weight >", "3:23", "this is not CEL: "),
        ("pool.name == object.kind", "3:9", "a guardrail judges `pool` or `object`, not both"),
        ("[1].all(a, [1].all(b, [1].all(c, a == c)))", "3:10", "more than 2 loops stand inside each other"),
    ] {
        let all = found(&fleet(&rule(check), prod));
        let [one] = all.as_slice() else { panic!("{check}: {all:?}") };
        assert_eq!((one.code, one.is_error()), ("PRV1804", true), "{check}");
        assert_eq!(one.place.to_string(), format!("policies/all.toml:{place}"), "{check}");
        assert!(one.message.starts_with(message), "{check}: {}", one.message);
    }
    let long = rule(&format!("pool.name != '{}'", "a".repeat(5000)));
    assert!(said(&fleet(&long, prod))[0].contains("may have 4096"));
    let deep = rule(&format!("{}true{}", "(".repeat(500), ")".repeat(500)));
    assert!(said(&fleet(&deep, prod))[0].contains("PRV1804"));
    // Whatever fits into one expression is answered, and never by a crash.
    for expression in [
        format!("1{} == 1", "+1".repeat(2000)),
        format!("{}true", "!".repeat(4000)),
        format!("{}1 == 1", "- ".repeat(2000)),
        format!("{}true", "true?true:".repeat(400)),
        format!("pool.labels{} == 1", ".a".repeat(2000)),
        format!("pool.taints{} == 1", "[0]".repeat(1300)),
        format!("{}1{} == 1", "int(".repeat(30), ")".repeat(30)),
        format!("{}1{} == 1", "[".repeat(32), "]".repeat(32)),
        format!("'{}' != ''", "(".repeat(500)),
        format!("{}true", "(".repeat(32)),
    ] {
        drop(said(&fleet(&rule(&expression), prod)));
    }
    let twice = format!("{}{}", rule("true"), rule("false"));
    assert!(said(&fleet(&twice, prod)).iter().any(|one| one.contains("PRV1805")));
    assert!(
        said(&fleet("[[guardrail]]\nid = 'a'\nchek = 'true'\n", prod))
            .iter()
            .any(|one| one.contains("PRV1201"))
    );
}

/// Rows: REV-027
#[test]
fn a_rule_that_fails_denies_and_a_warning_that_fails_warns() {
    let prod = "[pools.a]\nstrategy = 'spot'\n";
    let deny = found(&fleet(&rule("pool.limits.cpu != ''"), prod));
    assert_eq!((deny.len(), deny[0].code, deny[0].is_error()), (1, "PRV1803", true));
    let warn = rule("pool.limits.cpu != ''") + "severity = 'warn'\n";
    let warn = found(&fleet(&warn, prod));
    assert_eq!((warn.len(), warn[0].code, warn[0].is_error()), (1, "PRV1803", false));
}

/// Rows: REV-028
#[test]
fn rev_028_a_rule_that_would_run_for_ever_counts_as_broken() {
    let words: Vec<String> = (0..3000).map(|number| format!("'w{number}'")).collect();
    let prod = format!("[variables]\nwords = [{}]\n[pools.a]\nstrategy = 'spot'\n", words.join(", "));
    let square = "env.variables.words.all(a, env.variables.words.all(b, a != b || a == b))";
    let ((deny, warn), cost) = crate::cost::of(|| {
        let warn = rule(square) + "severity = 'warn'\n";
        (found(&fleet(&rule(square), &prod)), found(&fleet(&warn, &prod)))
    });
    assert_eq!((deny.len(), deny[0].code, deny[0].is_error()), (1, "PRV1803", true));
    assert!(deny[0].message.contains("9000000 turns"), "{}", deny[0].message);
    assert_eq!((warn.len(), warn[0].code, warn[0].is_error()), (1, "PRV1803", false));
    cost.must_be_within(std::time::Duration::from_secs(1), 256 * crate::cost::MIB, "two hopeless rules");
    // Once over the list is little, and twice over a short one too.
    assert_eq!(said(&fleet(&rule("env.variables.words.all(a, a != '')"), &prod)), Vec::<String>::new());
    let short = "[variables]\nwords = ['a', 'b']\n[pools.a]\nstrategy = 'spot'\n";
    assert_eq!(said(&fleet(&rule(square), short)), Vec::<String>::new());
}

#[test]
fn a_commit_is_judged_by_the_rules_in_force_too() {
    let strict = fleet(&rule("pool.weight > 0"), "[pools.a]\nstrategy = 'spot'\nweight = 1\n");
    let standing = Some(Arc::new(Guardrails::read(&strict)));
    let settings = RenderSettings { standing, ..RenderSettings::default() };
    let codes = |repository: &Repository| -> (bool, Vec<&str>) {
        match render_environment(repository, "prod", &settings) {
            Ok((_, warnings)) => (true, warnings.iter().map(|one| one.code).collect()),
            Err(found) => (false, found.iter().map(|one| one.code).collect()),
        }
    };
    assert_eq!(codes(&strict), (true, vec![]));
    let lax = "[pools.a]\nstrategy = 'spot'\n";
    let (is_fine, said) = codes(&fleet("", lax));
    assert!(!is_fine && said.contains(&"PRV1801") && said.contains(&"PRV1806"), "{said:?}");
    assert_eq!(codes(&fleet("", "[pools.a]\nstrategy = 'spot'\nweight = 1\n")), (true, vec!["PRV1806"]));
}

#[test]
fn pools_of_one_weight_that_overlap_are_worth_a_look() {
    let overlap = |pools: &str| -> Vec<String> {
        let all = found(&fleet("", pools));
        all.iter().map(|one| format!("{} {} {}", one.severity, one.code, one.place)).collect()
    };
    let pools =
        |a: &str, b: &str| format!("[pools.a]\nstrategy = 'spot'\n{a}\n[pools.b]\nstrategy = 'spot'\n{b}\n");
    let warned = |place: &str| vec![format!("warning PRV1619 environments/prod.toml:{place}")];
    assert_eq!(overlap(&pools("", "")), warned("4:8"));
    assert_eq!(overlap(&pools("weight = 5", "weight = 5")), warned("6:10"));
    assert_eq!(
        overlap(&pools("labels = { team = 'x' }", "")),
        warned("4:8"),
        "a pod that asks for no team fits both"
    );
    for (a, b) in [
        ("weight = 5", ""),
        ("taints = ['a=b:NoSchedule']", ""),
        ("architectures = ['arm64']", ""),
        ("labels = { team = 'x' }", "labels = { team = 'y' }"),
        ("instance-types = ['t3.medium']", "instance-families = ['m7i']"),
        ("zones = ['us-east-1a']", "zones = ['us-east-1b']"),
    ] {
        assert_eq!(overlap(&pools(a, b)), [""; 0], "{a} / {b}");
    }
    let fixed =
        "[pools.a]\nstrategy = 'static'\nreplicas = 2\n[pools.b]\nstrategy = 'static'\nreplicas = 1\n";
    assert_eq!(overlap(fixed), [""; 0], "pools of a fixed size choose no pods");
    let three = pools("", "") + "[pools.c]\nstrategy = 'spot'\n";
    assert_eq!(overlap(&three).len(), 2, "each pool is told once");
}

#[test]
fn nodes_kept_free_for_gpus_should_have_some() {
    let taint = "taints = ['nvidia.com/gpu=true:NoSchedule']\n";
    let plain = found(&fleet("", &format!("[pools.a]\nstrategy = 'spot'\n{taint}")));
    let [one] = plain.as_slice() else { panic!("{plain:?}") };
    assert_eq!((one.code, one.place.to_string()), ("PRV1620", "environments/prod.toml:3:11".to_owned()));
    assert_eq!(said(&fleet("", &format!("{GPU}{taint}"))), [""; 0]);
    let neuron = "[pools.a]\nstrategy = 'on-demand'\ninstance-families = ['inf2']\ntaints = ['aws.amazon.com/neuron=true:NoSchedule']\n";
    assert_eq!(said(&fleet("", neuron)), [""; 0]);
}

#[test]
fn rules_are_read_from_yaml_too_and_other_files_are_named() {
    let of = |path: &str, text: &str| {
        said(&repository(&[
            ("fleet.toml", "name = 'shop'\ndefaults.region = 'us-east-1'\n"),
            ("environments/prod.toml", "[pools.a]\nstrategy = 'spot'\n"),
            (path, text),
        ]))
    };
    let yaml = "guardrail:\n  - id: no\n    check: \"false\"\n";
    for path in ["policies/no.yaml", "policies/no.yml"] {
        let denied = of(path, &yaml.replace("id: no", "id: nothing"));
        assert!(denied.iter().any(|one| one.contains("denied by the guardrail `nothing`")), "{denied:?}");
    }
    let ignored = of("policies/no.TOML", "x");
    assert!(matches!(ignored.as_slice(), [one] if one.contains("PRV1105")), "{ignored:?}");
    assert_eq!(of("policies/README.md", "x"), [""; 0]);
}

#[test]
fn mistakes_in_rules_are_told_with_those_of_their_shape() {
    let policy = "[[guardrail]]\nid = 'a'\ncheck = 'poool.weight > 1'\n[[guardrail]]\nid = 'a'\nseverity = 'loud'\ncheck = 'true'\n[[guardrail]]\nid = 'a'\ncheck = 'true'\n";
    let found = found(&fleet(policy, "[pools.a]\nstrategy = 'spot'\n"));
    let codes: Vec<&str> = found.iter().map(|one| one.code).collect();
    for code in ["PRV1205", "PRV1804", "PRV1805"] {
        assert!(codes.contains(&code), "{code} is not in {codes:?}: {found:#?}");
    }
}
