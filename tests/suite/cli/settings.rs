//! Settings of the node engine: from the command line, from the environment, or neither.

use super::{code, command, root};

/// The simplest command line that reads settings and needs no cluster.
const PLAN: &str = "plan --snapshot tests/suite/cli/settings.yaml --now 2026-03-04T10:30:00Z";

/// What is told of settings that are not heeded is enough to see which were heard.
fn told(line: &str, gates: Option<&str>) -> Vec<&'static str> {
    let mut command = command(root(), line);
    if let Some(gates) = gates {
        command.env("FEATURE_GATES", gates);
    }
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), 0, "{said}");
    ["StaticCapacity=false"].into_iter().filter(|gate| said.contains(gate)).collect()
}

/// Rows: OBS-002
#[test]
fn obs_002_a_flag_beats_a_variable_which_beats_the_default() {
    let with_flag = |value: &str| format!("{PLAN} --feature-gates StaticCapacity={value}");
    assert_eq!(told(PLAN, None), [""; 0]);
    assert_eq!(told(PLAN, Some("StaticCapacity=false")), ["StaticCapacity=false"]);
    assert_eq!(told(&with_flag("true"), Some("StaticCapacity=false")), [""; 0]);
    assert_eq!(told(&with_flag("false"), Some("StaticCapacity=true")), ["StaticCapacity=false"]);
    assert_eq!(told(&with_flag("false"), None), ["StaticCapacity=false"]);
}

/// Rows: OBS-003
#[test]
fn obs_003_a_variable_that_says_nonsense_is_named() {
    for (line, variable, value) in [
        (PLAN, "PREFERENCE_POLICY", "foo"),
        (PLAN, "MIN_VALUES_POLICY", "foo"),
        ("run --cloud simulated", "DISABLE_CLUSTER_STATE_OBSERVABILITY", "maybe"),
    ] {
        let output = command(root(), line).env(variable, value).output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(&output), 64, "{said}");
        assert!(said.contains(variable) && said.contains(value), "{said}");
    }
    // Whoever wrote the flag knows where it is.
    let line = format!("{PLAN} --preference-policy bar");
    let output = command(root(), &line).env("PREFERENCE_POLICY", "foo").output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(code(&output) == 64 && said.contains("bar") && !said.contains("PREFERENCE_POLICY"), "{said}");
}
