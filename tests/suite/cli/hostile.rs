//! Repositories that try to speak to the terminal: what they hide in names, values and comments is shown, never obeyed.

use std::path::Path;

use provisor::model::visible::is_hidden;
use serde_json::Value;

use super::schema::git;
use super::{code, command, err, fleet, json, out, run};

/// Titles, colours, a bell, a line of another system, a word written backwards, a letter without width.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[8m\u{9b}2J\u{85}\u{202e}kcabdrow\u{2066}\u{200b}\u{7f}";

fn write(fleet: &Path, file: &str, text: &str) {
    let path = fleet.join(file);
    std::fs::create_dir_all(path.parent().expect("it is in the fleet")).expect("folders can be made");
    std::fs::write(path, text).expect("it is written");
}

/// Runs in both forms; nothing hidden comes out. What both streams said.
fn shown(fleet: &Path, line: &str, expected: i32) -> String {
    let mut said = String::new();
    for form in ["text", "json"] {
        let done = run(fleet, &format!("{line} --output {form}"));
        assert_eq!(code(&done), expected, "{line}: {}", err(&done));
        let all = format!("{}{}", out(&done), err(&done));
        let hidden = all.chars().find(|letter| is_hidden(*letter) && *letter != '\n');
        assert_eq!(hidden, None, "{line} as {form}: {}", all.escape_debug());
        if form == "text" {
            said = all;
        }
    }
    said
}

#[test]
fn ren_044_no_verb_repeats_a_credential() {
    let (_dir, fleet) = fleet();
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    for file in ["weight = \"@\"", "weigth = \"@\"", "labels = { token = \"@\", }}", "labels = 1 # @"] {
        let pool = format!("[pools.a]\nstrategy = \"spot\"\n{file}\n").replace('@', secret);
        write(&fleet, "environments/dev.toml", &pool);
        for verb in ["validate", "render dev", "explain dev a", "plan dev --now 2026-03-04T10:30:00Z"] {
            let said = shown(&fleet, verb, 2);
            assert!(said.contains("PRV1609"), "{verb} {file}: {said}");
            for form in ["text", "json"] {
                let done = run(&fleet, &format!("{verb} --output {form}"));
                let all = format!("{}{}", out(&done), err(&done));
                assert!(!all.contains("ghp_"), "{verb} {file}: {all}");
            }
        }
    }
}

#[test]
fn no_mistake_speaks_to_the_terminal() {
    let (_dir, fleet) = fleet();
    let escaped =
        HOSTILE.replace('\u{1b}', "\\u001b").replace('\u{7}', "\\u0007").replace('\u{7f}', "\\u007f");
    let escaped = escaped.replace('\u{85}', "\\u0085").replace('\u{9b}', "\\u009b");
    for (text, says) in [
        // In a value, in a key, in the name of a pool, behind the mistake, before the mistake, where nothing may be.
        (format!("[pools.a]\nstrategy = \"{escaped}\"\n"), "\\u{1b}]0;owned\\u{7}"),
        (format!("[pools.a]\nstrategy = \"spot\"\n\"{escaped}\" = 1\n"), "\\u{202e}kcabdrow"),
        (format!("[pools.\"{escaped}\"]\nstrategy = \"spot\"\n"), "\\u{202e}kcabdrow"),
        (format!("[pools.a]\nstrategi = \"spot\" # {HOSTILE}\n"), "\\u{1b}"),
        (format!("# {HOSTILE}\n[pools.a\n"), "\\u{1b}"),
        ("[pools.a]\nstrategy = \"spot\"\nlimits = { \u{202e}cpu = 1 }\n".to_owned(), "\\u{202e}cpu"),
    ] {
        write(&fleet, "environments/dev.toml", &text);
        let said = shown(&fleet, "validate", 2);
        assert!(said.contains(says), "{text:?}: {said}");
    }
    write(&fleet, "environments/dev.toml", "[pools.a]\nstrategy = \"own\"\n");
    for template in [
        format!("a: {{{{ nothing }}}} # {HOSTILE}\n"),
        format!("a: \"{HOSTILE}\n"),
        format!("{{{{ fail('{HOSTILE}') }}}}\n"),
    ] {
        write(&fleet, "templates/own.yaml.j2", &template);
        shown(&fleet, "validate", 2);
    }
    let colored = run(&fleet, "validate --color always");
    let said = err(&colored);
    assert!(
        said.contains("\u{1b}[31m") && !said.contains("\u{1b}]") && !said.contains("\u{1b}[8m"),
        "{said:?}"
    );
}

#[test]
fn no_answer_speaks_to_the_terminal() {
    let (dir, fleet) = fleet();
    let description = format!("words\t{HOSTILE}");
    let pool = |description: &str| {
        let note = Value::from(description).to_string();
        // Letters that YAML takes as they are beside those that have to be escaped.
        format!(
            "pools:\n  a:\n    strategy: spot\n    overrides:\n      spec.template.metadata.annotations: {{ note: {} }}\n",
            note.replace('\u{7f}', "\\u007f").replace('\u{85}', "\\u0085").replace('\u{9b}', "\\u009b")
        )
    };
    std::fs::remove_file(fleet.join("environments/dev.toml")).expect("the starter has it");
    write(&fleet, "environments/dev.yaml", &pool("nothing"));
    git(&fleet, &["add", "--all"]);
    git(&fleet, &["commit", "--quiet", "-m", "one"]);
    write(&fleet, "environments/dev.yaml", &pool(&description));
    for (line, expected) in [("diff dev", 1), ("plan dev", 0), ("explain dev a", 0), ("render dev", 0)] {
        let said = shown(&fleet, line, expected);
        assert!(line == "plan dev" || said.contains("kcabdrow"), "{line}: {said}");
    }
    // What is rendered for kubectl says exactly what the repository says.
    let rendered = out(&run(&fleet, "render dev"));
    let notes: Vec<String> = rendered
        .split("---\n")
        .filter(|text| !text.is_empty())
        .map(|text| serde_saphyr::from_str::<Value>(text).expect("it is YAML"))
        .filter_map(|object| {
            Some(object["spec"]["template"]["metadata"]["annotations"]["note"].as_str()?.to_owned())
        })
        .collect();
    assert_eq!(notes, [description.as_str()]);
    // A followed commit, whose own words are hostile too.
    git(&fleet, &["add", "--all"]);
    git(&fleet, &["commit", "--quiet", "-m", &format!("two {HOSTILE}")]);
    let said = shown(&fleet, "review --base HEAD~1 --head HEAD", 0);
    assert!(said.contains("kcabdrow"), "{said}");
    let comment = out(&run(&fleet, "review --base HEAD~1 --head HEAD --output markdown"));
    assert!(comment.contains("kcabdrow"), "{comment}");
    assert!(!comment.chars().any(|letter| is_hidden(letter) && letter != '\n'), "{comment}");
    for line in ["run --env dev --for 1s --repo .", "run --env dev --for 1s --repo . --color always"] {
        let done = command(&fleet, line)
            .env("XDG_CACHE_HOME", dir.path().join("cache"))
            .output()
            .expect("the program starts");
        assert_eq!(code(&done), 0, "{}", err(&done));
        let ours = |text: String| {
            ["0", "1", "2", "31", "32", "33"]
                .iter()
                .fold(text, |text, code| text.replace(&format!("\u{1b}[{code}m"), ""))
        };
        let all = ours(out(&done) + &err(&done));
        assert!(all.contains("\\u{202e}kcabdrow"), "{all}");
        assert!(!all.chars().any(|letter| is_hidden(letter) && letter != '\n'), "{all:?}");
    }
}

#[test]
fn no_message_is_huge() {
    let (_dir, fleet) = fleet();
    let long = "x".repeat(90_000);
    for (environment, template) in [
        (
            "[pools.a]\nstrategy = \"own\"\n".to_owned(),
            "a: {% for i in range(90000) %}[{% endfor %}".to_owned(),
        ),
        ("[pools.a]\nstrategy = \"own\"\n".to_owned(), format!("a: {{{{ {long} }}}}")),
        ("[pools.a]\nstrategy = \"own\"\n".to_owned(), format!("{{% include '{long}' %}}")),
        (format!("[pools.a]\nstrategy = \"{long}\"\n"), String::new()),
        (format!("[pools.a]\nstrategy = \"spot\"\n{long} = 1\n"), String::new()),
        (format!("extends = \"{long}\"\n[pools.a]\nstrategy = \"spot\"\n"), String::new()),
        (format!("[pools.a]\nstrategy = \"spot\"\noverrides = {{ \"spec.{long}\" = 1 }}\n"), String::new()),
        (format!("[pools.a]\nstrategy = \"spot\"\nlabels = {{ a = \"{long}\" }}\n"), String::new()),
        (format!("[pools.a]\nstrategy = \"spot\"\nweight = \"{long}\"\n"), String::new()),
    ] {
        write(&fleet, "environments/dev.toml", &environment);
        write(&fleet, "templates/own.yaml.j2", &template);
        let done = run(&fleet, "validate");
        assert_eq!(code(&done), 2, "{}", environment.get(..80).unwrap_or(&environment));
        let text = err(&done);
        let written = err(&run(&fleet, "validate --output json"));
        json(&written);
        assert!(text.len() < 6_000 && written.len() < 12_000, "{text}\n{written}");
    }
}
