//! `simulation.toml`: judged like the strategies, every mistake at its place and all of them at once.

use std::path::Path;

use provisor::model::money::UsdPerHour;
use serde_json::Value;

use super::{code, err, fleet, json, out, run};

fn write(fleet: &Path, path: &str, text: &str) {
    let file = fleet.join(path);
    std::fs::create_dir_all(file.parent().expect("a parent")).expect("directories");
    std::fs::write(file, text).expect("written");
}

fn commit_all(fleet: &Path) {
    for words in ["add -A", "commit -q -m script"] {
        let done = std::process::Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b.c"])
            .args(words.split(' '))
            .current_dir(fleet)
            .status();
        assert!(done.expect("git starts").success());
    }
}

const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: default }
spec:
  replicas: 1
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec: { containers: [{ name: web, image: web, resources: { requests: { cpu: 1 } } }] }
";

const GOOD: &str = r#"environment = "dev"
duration = "10m"
region = "us-west-2"
workloads = ["workload/web.yaml"]
[[events]]
at = "1m"
scale = { workload = "default/web", to = 3 }
[[events]]
at = "2m"
shortage = { capacity-type = "spot", types = ["m7i.*", "c7i.large"], zones = ["us-west-2a"], for = "1m" }
[[events]]
at = "3m"
commit = { message = "more", files = { "environments/dev.toml" = "environments/dev.toml" } }
[[expect]]
at = "9m"
about = "three pods run"
pending = 0
nodes = { least = 1, most = 3 }
"#;

/// Code, line and column of each mistake of a script.
fn mistakes(text: &str) -> Vec<(String, u64, u64)> {
    let (_dir, fleet) = fleet();
    write(&fleet, "workload/web.yaml", WEB);
    write(&fleet, "simulation.toml", text);
    let mut answers = Vec::new();
    for line in ["validate -o json", "simulate --repo . -o json", "run --repo . --for 1s -o json"] {
        if line.starts_with("run") {
            commit_all(&fleet);
        }
        let done = run(&fleet, line);
        assert_eq!(code(&done), 2, "{line}: {}", err(&done));
        let last = err(&done).lines().last().expect("a complaint").to_owned();
        let found = json(&last)["error"]["diagnostics"].clone();
        let found: Vec<_> = found
            .as_array()
            .expect("a list")
            .iter()
            .filter(|one| one["severity"] == "error")
            .map(|one| {
                assert!(one["help"].is_string(), "{one}");
                assert!(!one["message"].as_str().expect("a text").contains("u32"), "{one}");
                let code = one["code"].as_str().expect("a text").to_owned();
                (code, one["line"].as_u64().expect("a line"), one["column"].as_u64().expect("a column"))
            })
            .collect();
        answers.push(found);
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "every verb says the same: {answers:?}");
    answers.remove(0)
}

#[test]
fn every_mistake_of_a_script_is_told_at_once_with_its_place() {
    let found = mistakes(
        r#"environment = "dve"
duration = "10m"
region = "us-west-2"
sede = 4
workloads = ["workload/wep.yaml", "../../etc/passwd"]
[[events]]
at = "11m"
scale = { workload = "default/web", to = -1 }
[[events]]
at = "1 minute"
lose-zone = "us-west-2x"
[[events]]
at = "1m"
[[events]]
at = "1m"
reclaim = 1
lose-zone = "us-west-2a"
[[events]]
at = "1m"
shortage = { capacity-type = "sport", types = ["m7j.*", "m7i.lage"], zones = ["eu-west-1a"], for = "1m" }
[[events]]
at = "2m"
commit = { message = "out", files = { "../x" = "nowhere", "/etc/x" = "environments/dev.toml", "a/.git/x" = "fleet.toml" } }
[[expect]]
at = "20m"
about = "never"
nodes = { least = 3, most = 1 }
families = ["m7j"]
pending = "two"
"#,
    );
    let expected = [
        ("PRV1103", 1, 15),
        ("PRV1201", 4, 1),
        ("PRV1612", 5, 14),
        ("PRV1612", 5, 35),
        ("PRV1902", 7, 6),
        ("PRV1206", 8, 42),
        ("PRV1203", 10, 6),
        ("PRV1626", 11, 13),
        ("PRV1901", 12, 1),
        ("PRV1901", 17, 1),
        ("PRV1205", 20, 30),
        ("PRV1618", 20, 48),
        ("PRV1618", 20, 57),
        ("PRV1626", 20, 79),
        ("PRV1905", 23, 39),
        ("PRV1612", 23, 48),
        ("PRV1905", 23, 59),
        ("PRV1905", 23, 95),
        ("PRV1902", 25, 6),
        ("PRV1206", 27, 9),
        ("PRV1618", 28, 13),
        ("PRV1203", 29, 11),
    ];
    let found: Vec<_> = found.iter().map(|(code, line, column)| (&**code, *line, *column)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_script_speaks_of_workloads_that_are_there_and_of_manifests_that_can_be_read() {
    let with = |from: &str, to: &str| GOOD.replace(from, to);
    for (text, expected) in [
        (with("default/web\"", "default/wep\""), ("PRV1904", 7, 22)),
        (with("default/web\"", "web\""), ("PRV1203", 7, 22)),
        (with("workloads = [\"workload/web.yaml\"]\n", ""), ("PRV1904", 6, 22)),
        (with("\"us-west-2\"", "\"us-wset-2\""), ("PRV1624", 3, 10)),
        (with("\"10m\"", "\"2161h\""), ("PRV1903", 2, 12)),
        (with("\"10m\"", "\"0s\""), ("PRV1903", 2, 12)),
        (with("\"10m\"", "\"99999999999999999999h\""), ("PRV1203", 2, 12)),
        (with("\"10m\"", "\"\""), ("PRV1203", 2, 12)),
        (with("to = 3", "to = 300001"), ("PRV1206", 7, 42)),
        (with("to = 3", "to = 5000000000"), ("PRV1206", 7, 42)),
        (with("environment = \"dev\"", "environment = dev"), ("PRV1009", 1, 15)),
    ] {
        let found = mistakes(&text);
        assert_eq!(
            found.first().map(|(code, line, column)| (&**code, *line, *column)),
            Some(expected),
            "{text}"
        );
    }
}

#[test]
fn a_mistake_in_a_manifest_of_the_script_has_its_place_in_the_manifest() {
    let (_dir, fleet) = fleet();
    write(&fleet, "simulation.toml", GOOD);
    write(&fleet, "workload/web.yaml", &WEB.replace("cpu: 1", "cpu: much"));
    let done = run(&fleet, "validate");
    assert_eq!(code(&done), 2);
    let said = err(&done);
    assert!(said.contains("PRV1906") && said.contains("workload/web.yaml:9:"), "{said}");
    assert!(said.contains("simulation.toml:4:"), "{said}");
    write(&fleet, "workload/web.yaml", &WEB.replace("replicas: 1", "replicas: 2000000000"));
    let said = err(&run(&fleet, "simulate --repo ."));
    assert!(said.contains("wants 2000000000 pods, and 300000 may be made up"), "{said}");
}

#[test]
fn what_a_simulation_does_not_play_is_named() {
    let (_dir, fleet) = fleet();
    write(&fleet, "simulation.toml", GOOD);
    let cron = "---\napiVersion: batch/v1\nkind: CronJob\nmetadata: { name: nightly }\nspec: {}\n";
    write(&fleet, "workload/web.yaml", &format!("{WEB}{cron}"));
    for line in ["validate", "simulate --repo ."] {
        let done = run(&fleet, line);
        assert_eq!(code(&done), 0, "{line}: {}", err(&done));
        let said = err(&done);
        assert!(said.contains("PRV1907") && said.contains("CronJob"), "{line}: {said}");
        let line_of_kind = WEB.lines().count() + 3;
        assert!(said.contains(&format!("workload/web.yaml:{line_of_kind}:")), "{line}: {said}");
    }
}

#[test]
fn a_password_in_a_workload_is_told_and_not_shown() {
    let (_dir, fleet) = fleet();
    write(&fleet, "simulation.toml", GOOD);
    let annotations = "metadata: { annotations: { db-password: wJalrXUtnFEMIxK7MDENGxbPxRfiCYzz },";
    let noted = WEB.replacen("metadata: {", annotations, 1);
    write(&fleet, "workload/web.yaml", &noted);
    let done = run(&fleet, "validate");
    let said = err(&done);
    assert_eq!(code(&done), 2, "{said}");
    assert!(said.contains("PRV1609") && said.contains("workload/web.yaml:"), "{said}");
    assert!(!said.contains("wJalrXUtnFEM"), "{said}");
}

#[test]
fn a_good_script_is_played() {
    let (_dir, fleet) = fleet();
    write(&fleet, "workload/web.yaml", WEB);
    write(&fleet, "simulation.toml", GOOD);
    let judged = run(&fleet, "validate");
    assert_eq!(code(&judged), 0, "{}", err(&judged));
    let played = run(&fleet, "simulate --repo . -o json");
    assert_eq!(code(&played), 0, "{}", err(&played));
    assert_eq!(json(&out(&played))["counts"]["Commit"], 1);
    assert_eq!(code(&run(&fleet, "simulate --repo . --for 2161h")), 64);
}

#[test]
fn as_many_machines_are_taken_back_as_the_script_says() {
    let (_dir, fleet) = fleet();
    write(
        &fleet,
        "environments/dev.toml",
        "region = \"us-west-2\"\n[pools.a]\nstrategy = \"spot\"\ninstance-families = [\"m7i\"]\nmax-instance-cpu = 2\n",
    );
    write(&fleet, "workload/web.yaml", WEB);
    let script = "environment = \"dev\"\nduration = \"13m\"\nregion = \"us-west-2\"\nworkloads = [\"workload/web.yaml\"]\n\
                  [[events]]\nat = \"1m\"\nscale = { workload = \"default/web\", to = 6 }\n\
                  [[events]]\nat = \"10m\"\nreclaim = 6\n";
    write(&fleet, "simulation.toml", script);
    for seed in 1..=4 {
        let played = run(&fleet, &format!("simulate --repo . --seed {seed} -o json"));
        assert_eq!(json(&out(&played))["counts"]["SpotWarning"], 6, "seed {seed}: {}", err(&played));
    }
}

/// One that is to go is paid for until it is told to end.
#[test]
fn the_nodes_in_the_end_cost_as_much_an_hour_as_is_said() {
    let (_dir, fleet) = fleet();
    write(&fleet, "workload/web.yaml", &WEB.replace("replicas: 1", "replicas: 9"));
    let script = "environment = \"dev\"\nduration = \"10m\"\nregion = \"us-west-2\"\nworkloads = [\"workload/web.yaml\"]\n\
                  [[events]]\nat = \"4m\"\nreclaim = 1\n";
    write(&fleet, "simulation.toml", script);
    let mut leaving = 0;
    for second in (225..375).step_by(15) {
        let told = json(&out(&run(&fleet, &format!("simulate --repo . --for {second}s -o json"))));
        let nodes = told["nodes"].as_array().expect("a list");
        leaving += nodes.iter().filter(|node| node["leaving"] == true).count();
        let price =
            |price: &Value| price.as_str().and_then(|usd| usd.parse::<UsdPerHour>().ok()).expect("money");
        let sum: UsdPerHour = nodes.iter().map(|node| price(&node["usdPerHour"])).sum();
        assert_eq!(sum, price(&told["cost"]["usdPerHourAtEnd"]), "after {second} s: {nodes:#?}");
    }
    assert!(leaving > 0, "one drains for a while");
}

#[test]
fn a_node_that_no_budget_lets_go_is_among_the_events() {
    let (_dir, fleet) = fleet();
    let dev = "region = \"us-west-2\"\n[pools.a]\nstrategy = \"spot\"\nbudgets = [{ nodes = 0 }]\nlabels = { round = \"one\" }\n";
    write(&fleet, "environments/dev.toml", dev);
    write(&fleet, "later/dev.toml", &dev.replace("one", "two"));
    write(&fleet, "workload/web.yaml", WEB);
    let script = "environment = \"dev\"\nduration = \"15m\"\nregion = \"us-west-2\"\nworkloads = [\"workload/web.yaml\"]\n\
                  [[events]]\nat = \"5m\"\ncommit = { message = \"two\", files = { \"environments/dev.toml\" = \"later/dev.toml\" } }\n";
    write(&fleet, "simulation.toml", script);
    let played = run(&fleet, "simulate --repo . -o json");
    assert_eq!(json(&out(&played))["counts"]["BudgetExhausted"], 1, "{}{}", out(&played), err(&played));
    let told = out(&run(&fleet, "simulate --repo ."));
    assert!(told.contains("drifted, but the budgets of pool a allow no"), "{told}");
}

/// Rows: DIS-113
#[test]
fn dis_113_what_a_window_keeps_is_told_once_with_its_reason() {
    let (_dir, fleet) = fleet();
    let budget = r#"{ name = "freeze", nodes = 0, schedule = "10 8 * * mon", duration = "30m" }"#;
    let dev = format!(
        "region = \"us-west-2\"\n[pools.a]\nstrategy = \"spot\"\nconsolidate-after = \"30s\"\nbudgets = [{budget}]\n"
    );
    write(&fleet, "environments/dev.toml", &dev);
    write(&fleet, "workload/web.yaml", WEB);
    let script = "environment = \"dev\"\nduration = \"1h\"\nregion = \"us-west-2\"\nworkloads = [\"workload/web.yaml\"]\n\
                  [[events]]\nat = \"11m\"\nscale = { workload = \"default/web\", to = 0 }\n";
    write(&fleet, "simulation.toml", script);

    let reason = "the budgets of pool a allow no disruption for reason Empty now";
    let blocked = "No allowed disruptions for disruption reason Empty due to blocking budget";
    let document = json(&out(&run(&fleet, "simulate --repo . -o json")));
    let told = |kind: &str| {
        let events = document["events"].as_array().expect("a list").iter();
        let of_kind = events.filter(|event| event["kind"] == kind);
        of_kind.map(|event| (event["subject"].clone(), event["message"].clone())).collect::<Vec<_>>()
    };
    let nodes = told("BudgetExhausted");
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert_eq!(nodes[0].1, reason);
    assert_eq!(told("DisruptionBlocked"), [("a".into(), blocked.into())]);
    assert_eq!(told("NodeGone").len(), 1, "after the window");

    let text = out(&run(&fleet, "simulate --repo ."));
    for sentence in [reason, blocked] {
        assert_eq!(text.matches(sentence).count(), 1, "{text}");
    }
    commit_all(&fleet);
    for line in ["run --repo . --speed 600 --for 6s", "run --repo . --speed 600 --for 6s -o json"] {
        let text = out(&run(&fleet, line));
        assert_eq!(text.matches(reason).count(), 1, "{line}: {text}");
        assert!(text.contains(blocked), "{line}: {text}");
    }
}

#[test]
fn more_pods_than_a_snapshot_may_have_made_up_are_refused_unless_they_are_asked_for() {
    let (_dir, fleet) = fleet();
    write(&fleet, "cluster.yaml", &WEB.replace("replicas: 1", "replicas: 2000000000"));
    let refused = run(&fleet, "plan --snapshot cluster.yaml");
    assert_eq!(code(&refused), 2);
    let said = err(&refused);
    assert!(said.contains("cluster.yaml:5:") && said.contains("Deployment default/web"), "{said}");
    assert!(said.contains("--max-pods N"), "{said}");
    let half = WEB.replace("replicas: 1", "replicas: 6");
    let both = format!("{half}---\n{}", half.replace("name: web,", "name: wab,"));
    write(&fleet, "cluster.yaml", &both);
    let refused = run(&fleet, "plan --snapshot cluster.yaml --max-pods 11");
    assert_eq!(code(&refused), 2);
    assert!(
        err(&refused).contains("the controllers want 12 pods, and 11 may be made up"),
        "{}",
        err(&refused)
    );
    let done = run(&fleet, "plan dev --snapshot cluster.yaml --max-pods 12");
    assert_eq!(code(&done), 0, "{}", err(&done));
}
