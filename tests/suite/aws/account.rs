//! The permissions that are asked for are those that the calls need.

use std::collections::BTreeSet;
use std::path::Path;

use provisor::api::ec2::permission::{IMPLIED, POLICY_CHARS_MAX, actions, cloudformation, policies};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn checked_in_templates_are_those_of_the_program() {
    let yaml = serde_saphyr::to_string(&cloudformation()).expect("a template can be written");
    let mut files = vec![("cloudformation.yaml".to_owned(), yaml)];
    for policy in policies() {
        let text = serde_json::to_string_pretty(&policy.document).expect("a policy can be written");
        files.push((format!("policy-{}.json", policy.name.to_lowercase()), format!("{text}\n")));
    }
    for (name, made) in files {
        let path = root().join("deploy/aws").join(&name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &made).expect("the folder is there");
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == made, "deploy/aws/{name} is stale: run `UPDATE=1 cargo test`, then read the diff");
    }
}

#[test]
fn policies_fit_into_iam() {
    for policy in policies() {
        let chars = policy.document.to_string().chars().filter(|c| !c.is_whitespace()).count();
        assert!(chars < POLICY_CHARS_MAX, "{} has {chars} characters", policy.name);
    }
}

/// Every call that the sources make is allowed, and nothing is allowed that they do not make.
#[test]
fn the_policies_allow_the_calls_of_the_sources_and_no_others() {
    let mut sources = String::new();
    for entry in std::fs::read_dir(root().join("src/io/cloud/aws")).expect("the sources") {
        sources.push_str(&std::fs::read_to_string(entry.expect("a file").path()).expect("a source"));
    }
    let mut made = BTreeSet::new();
    // Calls of the two SDKs are methods by the name of the action that end in `send()`.
    for verb in ["create", "delete", "describe", "terminate", "get", "receive", "run", "modify", "cancel"] {
        for (at, _) in sources.match_indices(&format!(".{verb}_")) {
            let word: String =
                sources[at + 1..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if !sources[at + 1 + word.len()..].starts_with("()") || !is_call(&word) {
                continue;
            }
            let action: String = word.split('_').map(capital).collect();
            let service = if action.contains("Message") || action.contains("Queue") { "sqs" } else { "ec2" };
            made.insert(format!("{service}:{}", action.trim_end_matches("Batch")));
        }
    }
    for (service, open) in [("iam", ".iam(\""), ("ssm", "AmazonSSM."), ("pricing", "AWSPriceListService.")] {
        for (at, _) in sources.match_indices(open) {
            let word: String =
                sources[at + open.len()..].chars().take_while(char::is_ascii_alphanumeric).collect();
            made.insert(format!("{service}:{word}"));
        }
    }
    made.extend(IMPLIED.iter().map(|action| (*action).to_owned()));
    let allowed: BTreeSet<String> = actions().into_iter().map(str::to_owned).collect();
    assert_eq!(made, allowed);
}

/// Readers of answers, which are named like calls.
fn is_call(word: &str) -> bool {
    ![
        "create_fleet_output",
        "create_time",
        "delete_idle_templates",
        "delete_profile",
        "delete_profiles_of",
        "delete_templates",
        "delete_templates_of",
        "get_mut",
        "get_or_insert",
    ]
    .contains(&word)
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}
