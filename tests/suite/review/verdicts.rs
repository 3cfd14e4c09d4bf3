//! What stops a proposal, what does not, and what is never believed.

use serde_json::Value;

use super::{Proposal, environment, said};

const FLEET: &str = "name = \"shop\"\n[defaults]\nregion = \"us-east-1\"\n";
const PROD: &str = "[pools.general]\nstrategy = \"on-demand\"\nlimits = { cpu = \"100\" }\n\n# end of prod\n";
const SCRIPT: &str = "environment = \"prod\"\nduration = \"30m\"\nworkloads = [\"web.yaml\"]\n";
const WEB: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: web, namespace: shop }\nspec:\n  replicas: 4\n  selector: { matchLabels: { app: web } }\n  template:\n    metadata: { labels: { app: web } }\n    spec:\n      containers: [{ name: web, image: web, resources: { requests: { cpu: \"1\", memory: 1Gi } } }]\n";

fn fleet() -> Proposal {
    Proposal::new(&[
        ("fleet.toml", FLEET),
        ("environments/prod.toml", PROD),
        ("simulation.toml", SCRIPT),
        ("web.yaml", WEB),
    ])
}

/// Rows: REV-002
#[test]
fn rev_002_what_the_base_gained_meanwhile_is_not_removed() {
    let mut proposal = fleet();
    proposal.edit("environments/prod.toml", "# end of prod", "[pools.batch]\nstrategy = \"spot\"\n");
    proposal.branch_from_first("next");
    proposal.edit(
        "environments/prod.toml",
        "strategy = \"on-demand\"",
        "strategy = \"on-demand\"\nweight = 5",
    );
    let review = proposal.json("--base main --head next", 0);
    assert_eq!(review["head"]["mergeResult"].as_str().map(str::len), Some(64));
    let objects = environment(&review, "prod")["objects"].as_array().unwrap().clone();
    let names: Vec<&str> = objects.iter().map(|object| object["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["general"], "{objects:#?}");
}

/// Rows: REV-003
#[test]
fn rev_003_a_conflict_is_named_and_nothing_is_counted() {
    let mut proposal = fleet();
    proposal.edit("environments/prod.toml", "cpu = \"100\"", "cpu = \"200\"");
    proposal.branch_from_first("next");
    proposal.edit("environments/prod.toml", "cpu = \"100\"", "cpu = \"300\"");
    let output = proposal.review("--base main --head next --output json");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(said(&output).contains("conflict in environments/prod.toml:3"), "{}", said(&output));
}

/// Rows: REV-005
#[test]
fn rev_005_reviews_repeat_byte_for_byte() {
    let mut proposal = fleet();
    proposal.edit("environments/prod.toml", "\"on-demand\"", "\"spot\"");
    proposal.git(&["branch", "base", "HEAD~1"]);
    for form in ["json", "markdown", "text"] {
        let line = format!("--base base --head main --output {form}");
        let (one, other) = (proposal.review(&line), proposal.review(&line));
        assert!(!one.stdout.is_empty() && one.stdout == other.stdout, "{form}");
    }
}

/// Rows: REV-006
#[test]
fn rev_006_every_environment_is_accounted_for() {
    let with_template = "[pools.general]\nstrategy = \"mine\"\n";
    let template = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: {{ pool.name }}\nspec:\n  limits: { cpu: \"10\" }\n  template:\n    spec:\n      nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }\n      requirements:\n        - { key: karpenter.sh/capacity-type, operator: In, values: [spot] }\n";
    let mut proposal = Proposal::new(&[
        ("fleet.toml", FLEET),
        ("templates/mine.yaml.j2", template),
        ("environments/a.toml", with_template),
        ("environments/b.toml", with_template),
        ("environments/c.toml", with_template),
        ("environments/d.toml", PROD),
        ("environments/e.toml", PROD),
    ]);
    proposal.edit("templates/mine.yaml.j2", "cpu: \"10\"", "cpu: \"20\"");
    proposal.git(&["branch", "base", "HEAD~1"]);
    let review = proposal.json("--base base", 0);
    let changes: Vec<(String, String)> = review["environments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap().into(), one["change"].as_str().unwrap().into()))
        .collect();
    let expected =
        [("a", "changed"), ("b", "changed"), ("c", "changed"), ("d", "unchanged"), ("e", "unchanged")];
    assert_eq!(changes, expected.map(|(name, change)| (name.to_owned(), change.to_owned())));
    let comment = said(&proposal.review("--base base --output markdown"));
    assert!(comment.contains("| `d`, `e` | no change |"), "{comment}");
}

/// Objects are the same whoever goes by them, and wherever.
#[test]
fn another_provisioner_and_another_region_are_told() {
    let mut proposal = fleet();
    proposal.edit("environments/prod.toml", "[pools.general]", "engine = \"karpenter\"\n\n[pools.general]");
    proposal.git(&["branch", "base", "HEAD~1"]);
    let review = proposal.json("--base base", 0);
    assert_eq!(review["headline"], "no capacity change, 1 new warning");
    let finding = environment(&review, "prod")["findings"][0].clone();
    assert_eq!(finding["code"], "PRV1808");
    assert!(
        finding["message"]
            .as_str()
            .unwrap()
            .starts_with("who provisions changes from provisor to karpenter: ")
    );
    proposal.json("--base base --fail-on warn", 1);

    proposal.edit("environments/prod.toml", "engine = \"karpenter\"", "region = \"eu-west-1\"");
    proposal.git(&["branch", "-f", "base", "HEAD~1"]);
    let review = proposal.json("--base base --fail-on none", 0);
    let findings = environment(&review, "prod")["findings"].as_array().unwrap().clone();
    let messages: Vec<&str> = findings.iter().map(|finding| finding["message"].as_str().unwrap()).collect();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[0].starts_with("who provisions changes from karpenter to provisor: "), "{messages:?}");
    assert!(messages[1].starts_with("`region` changes from `us-east-1` to `eu-west-1`: "), "{messages:?}");

    // A new environment changes nothing that was.
    proposal.commit(&[(
        "environments/dev.toml",
        Some("engine = \"karpenter\"\n[pools.a]\nstrategy = \"spot\"\n"),
    )]);
    proposal.git(&["branch", "-f", "base", "HEAD~1"]);
    let review = proposal.json("--base base --fail-on none", 0);
    assert_eq!(environment(&review, "dev")["findings"].as_array().map(Vec::len), Some(0));
}

/// A room is an object, and objects that left Git stay where nothing is pruned.
#[test]
fn that_room_is_given_back_depends_on_pruning() {
    let kept = PROD.replace("# end", "headroom = { pods = 4, cpu = \"1\", memory = \"1Gi\" }\n# end");
    let mut proposal = Proposal::new(&[
        ("fleet.toml", FLEET),
        ("environments/prod.toml", &kept),
        ("simulation.toml", SCRIPT),
        ("web.yaml", WEB),
    ]);
    proposal.edit("environments/prod.toml", "pods = 4", "pods = 2");
    proposal.git(&["branch", "base", "HEAD~1"]);
    let said_of = |proposal: &Proposal| said(&proposal.review("--base base --output markdown"));
    let note = "room that left Git is given back where pruning is on";
    assert!(!said_of(&proposal).contains(note));
    proposal.commit(&[("environments/prod.toml", Some(PROD))]);
    let comment = said_of(&proposal);
    assert!(comment.contains(note), "{comment}");
}

/// Rows: REV-020
#[test]
fn rev_020_without_demand_no_number_is_made_up() {
    let mut proposal = Proposal::new(&[("fleet.toml", FLEET), ("environments/prod.toml", PROD)]);
    proposal.edit("environments/prod.toml", "\"on-demand\"", "\"spot\"");
    proposal.git(&["branch", "base", "HEAD~1"]);
    let review = proposal.json("--base base", 0);
    assert_eq!(review["mode"], "static");
    let prod = environment(&review, "prod");
    for unknown in ["nodes", "cost", "pods", "roll", "limits"] {
        assert_eq!(prod[unknown], Value::Null, "{unknown}");
    }
    assert_eq!(prod["objects"][0]["nodes"], Value::Null);
    assert!(review["demand"].as_str().unwrap().contains("nothing was played"));
    // Not knowing is no pass.
    let review = proposal.json("--base base --max-usd-per-hour 10", 1);
    assert_eq!(review["gates"][1]["passed"], false);
    assert!(
        review["gates"][0]["message"].as_str().unwrap().starts_with("prod: not known without"),
        "{review}"
    );
}

#[test]
fn a_pool_or_an_environment_that_goes_where_nobody_knows_of_pods_is_no_pass() {
    let two = format!("{PROD}[pools.more]\nstrategy = \"on-demand\"\n");
    let files: [(&str, &str); 3] =
        [("fleet.toml", FLEET), ("environments/prod.toml", &two), ("environments/dev.toml", PROD)];
    let mut proposal = Proposal::new(&files);
    proposal.edit("environments/prod.toml", "[pools.more]\nstrategy = \"on-demand\"\n", "");
    proposal.git(&["branch", "base", "HEAD~1"]);
    let review = proposal.json("--base base", 1);
    assert_eq!((&review["mode"], &review["gates"][0]["passed"]), (&"static".into(), &false.into()));
    proposal.json("--base base --fail-on none", 0);
    proposal.git(&["branch", "pool-gone"]);
    proposal.commit(&[("environments/dev.toml", None)]);
    let review = proposal.json("--base pool-gone", 1);
    assert_eq!(
        review["gates"][0]["message"],
        "dev: not known without a snapshot or a simulation.toml for it"
    );
}

/// Nobody is left there to choose a machine.
#[test]
fn of_an_environment_that_goes_no_narrower_choice_is_told() {
    let mut proposal = fleet();
    let script = SCRIPT.replace("prod", "dev");
    proposal.commit(&[
        ("environments/prod.toml", None),
        ("environments/dev.toml", Some(PROD)),
        ("simulation.toml", Some(&script)),
    ]);
    let comment = said(&proposal.review("--base HEAD~1 --output markdown"));
    assert!(comment.contains("is removed") && comment.contains("a month"), "{comment}");
    assert!(!comment.contains("the largest holds"), "{comment}");
}

#[test]
fn a_proposal_that_is_not_valid_is_an_error_with_its_place() {
    let mut proposal = fleet();
    proposal.edit("environments/prod.toml", "cpu = \"100\"", "cpu = \"many\"");
    proposal.git(&["branch", "base", "HEAD~1"]);
    let output = proposal.review("--base base");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(said(&output).contains("environments/prod.toml:3:"), "{}", said(&output));
    let output = proposal.review("--base nowhere");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let output = proposal.review("--base base --env prd");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

/// What stood in the comment would be of an earlier push.
#[test]
fn a_review_that_cannot_be_made_is_a_comment_that_says_so() {
    let proposal = fleet();
    for (arguments, code) in
        [("--base nowhere", 2), ("--base HEAD --env nowhere", 2), ("--base HEAD --snapshot nowhere.yaml", 2)]
    {
        let output = proposal.review(&format!("{arguments} --output markdown"));
        let comment = String::from_utf8_lossy(&output.stdout);
        assert!(comment.starts_with("<!-- provisor:review set=default -->\n### ❌ provisor: "), "{comment}");
        assert!(comment.contains("nowhere") && comment.ends_with("\nNothing was reviewed.\n"), "{comment}");
        assert_eq!(output.status.code(), Some(code), "{arguments}: {}", said(&output));
    }
}

#[test]
fn what_the_world_or_the_command_line_keeps_from_being_reviewed_has_a_code_of_its_own() {
    let proposal = fleet();
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it is bound");
    let nobody = format!("--repo http://{deaf}/fleet.git --allow-insecure-http --base main --head next");
    let missing = format!("--base {}", "0123456789".repeat(4));
    for (arguments, code) in [
        (nobody.as_str(), 3),
        // It is no revision of this repository: asking again does not help.
        (&missing, 2),
        ("--base HEAD --nowhere", 64),
        ("", 64),
        ("--base HEAD --fail-on everything", 64),
        ("--base HEAD --max-cost-increase much", 64),
        ("--base HEAD --max-snapshot-age 1h", 64),
        ("--base HEAD --from review.json", 64),
        ("--base HEAD --limit files=many", 64),
        ("--base HEAD --output markdwn", 64),
    ] {
        let output = proposal.review(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {}", said(&output));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments}: {}", said(&output));
    }
}

#[test]
fn gates_stop_what_is_too_dear_or_protected() {
    let mut proposal = fleet();
    proposal.edit("environments/prod.toml", "\"on-demand\"", "\"spot\"");
    proposal.git(&["branch", "base", "HEAD~1"]);
    let gate =
        |line: &str, code: i32| proposal.json(&format!("--base base {line}"), code)["gates"][1].clone();
    assert_eq!(gate("--max-usd-per-hour 100", 0)["passed"], true);
    assert_eq!(gate("--max-usd-per-hour 0.001", 1)["gate"], "max-usd-per-hour");
    assert_eq!(gate("--protect gen*", 1)["message"], "protected: prod/general has its nodes replaced");
    assert_eq!(gate("--protect batch", 0)["passed"], true);
    assert_eq!(gate("--max-nodes-replaced 0", 1)["gate"], "max-nodes-replaced");
    // The other way round it is dearer.
    let review = proposal.json("--base main --head base --max-cost-increase 1000%", 0);
    assert_eq!(review["verdict"], "pass");
}

#[test]
fn a_proposal_does_not_choose_its_own_demand() {
    let mut proposal = fleet();
    let web = WEB.replace("replicas: 4", "replicas: 1");
    let script = SCRIPT.replace("30m", "31m");
    let prod = PROD.replace("\"on-demand\"", "\"spot\"");
    proposal.commit(&[
        ("web.yaml", Some(&web)),
        ("simulation.toml", Some(&script)),
        ("environments/prod.toml", Some(&prod)),
    ]);
    proposal.git(&["branch", "base", "HEAD~1"]);
    let review = proposal.json("--base base", 0);
    assert!(review["demand"].as_str().unwrap().contains("4 × shop/web"), "{}", review["demand"]);
    assert_eq!(review["diagnostics"][0]["code"], "DemandChanges");
}

/// Whoever comes after it is not blamed, nor whoever mends it.
#[test]
fn a_proposal_that_breaks_the_simulation_is_not_valid() {
    let many = WEB.replace("replicas: 4", "replicas: many");
    for (file, broken, whole) in [
        ("web.yaml", None, WEB),
        ("web.yaml", Some(many.as_str()), WEB),
        ("simulation.toml", Some("environment = 3\n"), SCRIPT),
    ] {
        let mut proposal = fleet();
        proposal.commit(&[(file, broken)]);
        let output = proposal.review("--base HEAD~1");
        assert_eq!(output.status.code(), Some(2), "{file}: {}", said(&output));
        assert!(said(&output).contains(file), "{}", said(&output));
        proposal.git(&["branch", "broken"]);
        proposal.commit(&[("environments/prod.toml", Some(&format!("# A remark.\n{PROD}")))]);
        let is_told = |proposal: &Proposal| {
            let review = proposal.json("--base broken", 0);
            assert_eq!(review["diagnostics"][0]["code"], "DemandNotValid", "{file}");
            assert!(review["diagnostics"][0]["message"].as_str().unwrap().len() > 80, "it says why");
        };
        is_told(&proposal);
        proposal.commit(&[(file, Some(whole))]);
        is_told(&proposal);
    }
}

#[test]
fn a_proposal_does_not_bring_the_first_demand_either() {
    let two = format!("{PROD}[pools.more]\nstrategy = \"on-demand\"\n");
    let mut proposal =
        Proposal::new(&[("fleet.toml", FLEET), ("environments/prod.toml", &two), ("web.yaml", WEB)]);
    proposal.commit(&[("environments/prod.toml", Some(PROD))]);
    proposal.git(&["branch", "base", "HEAD~1"]);
    let plain = proposal.json("--base base", 1);
    // The same with a script under which nobody would miss the pool.
    proposal.commit(&[("simulation.toml", Some(SCRIPT))]);
    for gate in ["", "--fail-on destructive,unschedulable", "--max-nodes-replaced 0"] {
        let review = proposal.json(&format!("--base base {gate}"), 1);
        assert_eq!(review["demand"], plain["demand"]);
        assert_eq!(review["diagnostics"][0]["code"], "DemandIsNew", "{}", review["diagnostics"]);
    }
}

/// A proposal that waits for Monday is not blamed for what grows old until then.
#[test]
fn what_expires_while_a_change_waits_for_its_window_would_have_expired_without_it() {
    let waits = "[pools.slow]\nstrategy = \"on-demand\"\nlimits = { cpu = \"100\" }\nlabels = { pool = \"slow\", step = \"one\" }\nexpire-after = \"Never\"\nbudgets = [{ nodes = \"100%\" }, { nodes = \"0\", schedule = \"0 0 * * mon\", duration = \"96h\" }]\n";
    let ages = "[pools.young]\nstrategy = \"on-demand\"\nlimits = { cpu = \"100\" }\nlabels = { pool = \"young\" }\nexpire-after = \"12h\"\n";
    let web = |pool: &str| {
        let spec = "    spec:\n";
        let chosen = format!("{spec}      nodeSelector: {{ pool: {pool} }}\n");
        WEB.replace(spec, &chosen).replace("web", pool)
    };
    let script = SCRIPT.replace("[\"web.yaml\"]", "[\"slow.yaml\", \"young.yaml\"]");
    let mut proposal = Proposal::new(&[
        ("fleet.toml", FLEET),
        ("environments/prod.toml", &format!("{waits}{ages}")),
        ("simulation.toml", &script),
        ("slow.yaml", &web("slow")),
        ("young.yaml", &web("young")),
    ]);
    proposal.edit("environments/prod.toml", "step = \"one\"", "step = \"two\"");
    let review = proposal.json("--base HEAD~1 --head HEAD", 0);
    let nodes = &environment(&review, "prod")["nodes"];
    assert_eq!((&nodes["before"], &nodes["drifted"]), (&4.into(), &2.into()), "{nodes:#}");
    assert_eq!(nodes["consolidated"], 0, "{nodes:#}");
    assert_eq!(
        environment(&review, "prod")["pods"]["moved"],
        4,
        "those of the pool that changes: {review:#}"
    );
}

/// Nodes that live half an hour are replaced for ever; hours of that are enough to see it, and nobody lives through two weeks.
#[test]
fn a_cluster_that_never_comes_to_rest_is_said_to_be_none() {
    let mut proposal = fleet();
    let brief = format!("{PROD}expire-after = \"30m\"\n");
    proposal.commit(&[("environments/prod.toml", Some(&brief))]);
    let review = proposal.json("--base HEAD~1 --head HEAD", 0);
    let stays = environment(&review, "prod")["nodes"]["stuck"].to_string();
    assert!(review.to_string().contains("does not come to rest"), "{stays} {review:#}");
}

#[test]
fn a_proposal_does_not_write_its_own_prices() {
    let mut proposal = fleet();
    proposal.commit(&[("environments/prod.toml", Some(&PROD.replace("\"on-demand\"", "\"spot\"")))]);
    proposal.git(&["branch", "base"]);
    proposal.commit(&[("environments/prod.toml", Some(PROD))]);
    let plain = proposal.json("--base base --max-cost-increase 0", 1);
    let cheap = "[overlays.cheap]\npriceAdjustment = \"-99%\"\nrequirements = [{ key = \"karpenter.sh/capacity-type\", operator = \"In\", values = [\"on-demand\"] }]\n";
    proposal.commit(&[("environments/prod.toml", Some(&format!("{PROD}{cheap}")))]);
    let review = proposal.json("--base base --max-cost-increase 0", 1);
    assert_eq!(environment(&review, "prod")["cost"], environment(&plain, "prod")["cost"]);
}

#[test]
fn a_remote_branch_has_the_name_that_git_gives_it() {
    let mut proposal = fleet();
    proposal.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    proposal.edit("environments/prod.toml", "cpu = \"100\"", "cpu = \"101\"");
    let review = proposal.json("--base origin/main --head HEAD", 0);
    assert_eq!(review["base"]["ref"], "refs/remotes/origin/main");
    assert_eq!(environment(&review, "prod")["objects"][0]["fields"][0]["path"], "spec.limits.cpu");
}

/// Rows: REV-037
#[test]
fn rev_037_hostile_words_are_shown_and_not_obeyed() {
    let mut proposal = fleet();
    let hostile = "a|b `c` @org/team </details><script>alert(1)</script> [x](https://evil.example) <!-- provisor:review set=default -->";
    let labels = format!("strategy = \"on-demand\"\nannotations = {{ \"example.com/a\" = '{hostile}' }}");
    proposal.edit("environments/prod.toml", "strategy = \"on-demand\"", &labels);
    proposal.git(&["branch", "base", "HEAD~1"]);
    let comment = String::from_utf8(proposal.review("--base base --output markdown").stdout).unwrap();
    let row = comment.lines().find(|line| line.contains("evil")).expect("the value is shown");
    // Six cells: a pipe of the value ends none of them, and the value is one code span.
    assert_eq!(row.replace("\\|", "").matches('|').count(), 7, "{row}");
    assert_eq!(row.matches('`').count() % 2, 0, "{row}");
    let outside: String = row.split('`').step_by(2).collect();
    for word in ["<", "@org", "evil", "script"] {
        assert!(!outside.contains(word), "{word} outside of code in {row}");
    }
    assert_eq!(comment.lines().filter(|line| line.starts_with("<!-- provisor:review")).count(), 1);
    assert_eq!(
        comment.matches("<details>").count(),
        comment.lines().filter(|line| *line == "</details>").count()
    );
}

/// Rows: REV-036
#[test]
fn rev_036_a_long_review_is_cut_between_sections() {
    let pool = |number: usize| {
        format!("[pools.p{number}]\nstrategy = \"spot\"\ndescription = \"{}\"\n", "x".repeat(190))
    };
    let pools: String = (0..25).map(pool).collect();
    let names: Vec<String> = (0..8).map(|number| format!("environments/e{number}.toml")).collect();
    let mut files: Vec<(&str, &str)> = vec![("fleet.toml", FLEET)];
    files.extend(names.iter().map(|path| (path.as_str(), pools.as_str())));
    let mut proposal = Proposal::new(&files);
    let changed = pools.replace("xxx", "yyy");
    let changes: Vec<(&str, Option<&str>)> =
        names.iter().map(|path| (path.as_str(), Some(changed.as_str()))).collect();
    proposal.commit(&changes);
    proposal.git(&["branch", "base", "HEAD~1"]);
    let output = proposal.review("--base base --output markdown");
    let comment = String::from_utf8(output.stdout).unwrap();
    let letters = comment.chars().count();
    assert!((40_000..65_536).contains(&letters), "{letters}");
    assert_eq!(comment.matches("<details>").count(), comment.matches("</details>").count());
    assert!(comment.contains("left out for length"), "what is missing is said");
    assert!(comment.contains("| Environment | Nodes |") && comment.contains("Base `"));
}

/// Rows: REV-043
#[test]
fn rev_043_a_base_that_is_not_valid_is_no_pass_and_no_fault_of_the_proposal() {
    let mut proposal = fleet();
    proposal.edit("environments/prod.toml", "\"on-demand\"", "\"on-demant\"");
    proposal.git(&["branch", "broken"]);
    proposal.edit("environments/prod.toml", "\"on-demant\"", "\"spot\"");
    // What changes is not known, so nothing passes that nobody agreed to.
    let review = proposal.json("--base broken", 1);
    let gate = &review["gates"][0];
    assert_eq!((&gate["gate"], &gate["passed"]), (&"base".into(), &false.into()), "{review:#}");
    assert_eq!(review["headline"], "prod cannot be compared: the base is not valid", "it is not new");
    // No number is made up of it, and none that was asked for passes.
    let prod = &review["environments"][0];
    assert_eq!((&prod["change"], &prod["objects"]), (&"unknown".into(), &serde_json::json!([])));
    assert!(
        ["nodes", "cost", "pods", "roll", "choice", "limits"].iter().all(|part| prod[part].is_null()),
        "{prod:#}"
    );
    let review = proposal.json("--base broken --fail-on none --max-cost-increase 5%", 1);
    assert_eq!(review["gates"][0]["message"], "prod: not known, because the base is not valid");
    let review = proposal.json("--base broken --fail-on destructive,unschedulable --protect *", 1);
    let gates = review["gates"].as_array().expect("a list");
    assert!(
        gates.len() == 4 && gates.iter().all(|gate| gate["passed"] == false),
        "not knowing is no pass: {gates:#?}"
    );
    let table = proposal.review("--base broken --output markdown");
    assert!(said(&table).contains("| `prod` | not known: the base is not valid |"), "{}", said(&table));
    // Beside one that does not change: a comment is still worth writing (deploy/ci/provisor-comment).
    let mut beside = Proposal::new(&[
        ("fleet.toml", FLEET),
        ("environments/dev.toml", PROD),
        ("environments/prod.toml", &PROD.replace("on-demand", "on-demant")),
        ("simulation.toml", SCRIPT),
        ("web.yaml", WEB),
    ]);
    beside.git(&["branch", "broken"]);
    beside.edit("environments/prod.toml", "\"on-demant\"", "\"spot\"");
    let headline = beside.json("--base broken", 1)["headline"].clone();
    assert_eq!(headline, "prod cannot be compared: the base is not valid; no capacity change elsewhere");
    assert!(gate["message"].as_str().unwrap().contains("prod"), "{gate}");
    proposal.json("--base broken --fail-on none", 0);
    proposal.json("--base broken~1", 0);
    // An older commit is proposed, and one that makes it worse.
    let output = proposal.review("--base broken --head broken~1 --output markdown");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("the base is not valid, and the proposal leaves it so"),
        "{}",
        said(&output)
    );
    proposal.git(&["checkout", "--quiet", "-b", "worse", "broken"]);
    proposal.edit("environments/prod.toml", "cpu = \"100\"", "cpu = \"many\"");
    let output = proposal.review("--base broken --head worse");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("the proposal adds 1 mistake to 1 mistake of the base"),
        "{}",
        said(&output)
    );
}

/// Rows: REV-043
#[test]
fn rev_043_a_base_without_a_list_of_environments_is_not_taken_for_an_empty_one() {
    let mut proposal = fleet();
    proposal.edit("fleet.toml", "name = \"shop\"", "name = \"shop");
    proposal.git(&["branch", "broken"]);
    proposal.edit("fleet.toml", "name = \"shop", "name = \"shop\"");
    let review = proposal.json("--base broken", 1);
    assert_eq!(review["gates"][0]["gate"], "base", "{review:#}");
}
