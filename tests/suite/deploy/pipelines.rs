//! What pipelines copy from `deploy/ci`: the workflow, the job, and the script that keeps one comment.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::plane::made_by;
use crate::review::Proposal;

fn ci(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/ci").join(file)
}

#[test]
fn the_workflow_is_what_github_understands() {
    let actionlint = made_by("go-tool", &["actionlint"]).expect("actionlint");
    for file in ["github.yaml", "github-forks.yaml"] {
        let checked = Command::new(&actionlint).args(["-no-color", "-shellcheck="]).arg(ci(file)).output();
        let checked = checked.expect("it runs");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

/// Both pipelines must go on after a review that fails, so that its comment is written.
#[test]
fn the_verdict_comes_after_the_comment() {
    for file in ["github.yaml", "gitlab.yaml"] {
        let text = std::fs::read_to_string(ci(file)).expect("it is there");
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{file} has no `{part}`"));
        assert!(at("|| code=$?") < at("provisor-comment review.md"), "{file}");
        assert!(at("provisor-comment review.md") < text.rfind("exit \"$").unwrap_or(0), "{file}");
    }
    let checked = Command::new("bash").args(["-n", "-c", &gitlab_script()]).output().expect("bash");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

fn gitlab_script() -> String {
    let text = std::fs::read_to_string(ci("gitlab.yaml")).expect("it is there");
    let gitlab: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    let lines = gitlab["capacity review"]["script"].as_array().expect("a script");
    let script: Vec<&str> = lines.iter().map(|line| line.as_str().expect("text")).collect();
    script.join("\n")
}

/// The fork's `main` is old; what the proposal will be merged into has a pool more.
#[test]
fn the_job_of_a_fork_reviews_against_the_project_that_it_is_proposed_to() {
    const FLEET: &str = "name = \"shop\"\n[defaults]\nregion = \"us-east-1\"\n";
    const PROD: &str = "[pools.general]\nstrategy = \"on-demand\"\nlimits = { cpu = \"100\" }\n\n# a\n# b\n# c\n\n# end of prod\n";
    let mut upstream = Proposal::new(&[("fleet.toml", FLEET), ("environments/prod.toml", PROD)]);
    let work = tempfile::tempdir().expect("a directory");
    let at = |name: &str| work.path().join(name);
    let git = |directory: &Path, args: &[&str]| {
        let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"];
        let done =
            Command::new("git").args(identity).args(args).current_dir(directory).output().expect("git");
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    };
    let project = upstream.git(&["rev-parse", "--show-toplevel"]);
    git(work.path(), &["clone", "--quiet", "--bare", &project, "fork.git"]);
    upstream.edit("environments/prod.toml", "# end of prod", "[pools.batch]\nstrategy = \"spot\"\n");
    git(work.path(), &["clone", "--quiet", "--bare", &project, "upstream.git"]);
    git(work.path(), &["clone", "--quiet", "fork.git", "job"]);
    let prod = PROD.replace("strategy = \"on-demand\"", "strategy = \"on-demand\"\nweight = 5");
    std::fs::write(at("job/environments/prod.toml"), prod).expect("written");
    git(&at("job"), &["commit", "--quiet", "--all", "--message", "heavier"]);

    let run = |source: &str| {
        let programs = tempfile::tempdir().expect("a directory");
        let program = assert_cmd::cargo::cargo_bin("provisor");
        std::os::unix::fs::symlink(program, programs.path().join("provisor")).expect("linked");
        let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").expect("a path"));
        let job = Command::new("bash")
            .args(["-e", "-c", &gitlab_script()])
            .current_dir(at("job"))
            .env("PATH", path)
            .env("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", source)
            .env("CI_MERGE_REQUEST_PROJECT_ID", "1")
            .env("CI_MERGE_REQUEST_PROJECT_URL", at("upstream"))
            .env("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")
            .env("CI_SERVER_URL", "https://gitlab.example.com")
            .env("CI_JOB_TOKEN", "of-the-job")
            .env("CI_COMMIT_SHA", git(&at("job"), &["rev-parse", "HEAD"]))
            .env_remove("PROVISOR_TOKEN")
            .output()
            .expect("bash runs");
        let said = String::from_utf8_lossy(&job.stdout).into_owned();
        assert!(job.status.success(), "{said}{}", String::from_utf8_lossy(&job.stderr));
        said
    };
    let base = |commit: &str| format!("Base `{}", &commit[..7]);
    let (new, old) = (upstream.git(&["rev-parse", "HEAD"]), upstream.git(&["rev-parse", "HEAD~1"]));
    let of_fork = run("2");
    assert!(of_fork.contains(&base(&new)), "{new}: {of_fork}");
    let of_branch = run("1");
    assert!(of_branch.contains(&base(&old)), "{old}: {of_branch}");
}

/// What became of a job on GitHub.
struct Job {
    /// Of the step that failed.
    code: Option<i32>,
    summary: String,
    said: String,
    /// `review.json`, if a step keeps it.
    kept: Option<String>,
}

/// Runs the steps of `github.yaml` as GitHub does: one after the other until one fails, with what its expressions stand for.
fn run_on_github(upstream: &Proposal, base: &str, head: &str, from: &str, forge: &Forge) -> Job {
    let work = tempfile::tempdir().expect("a directory");
    let at = |name: &str| work.path().join(name);
    std::fs::create_dir(at("bin")).expect("a folder");
    let programs = [
        ("provisor", assert_cmd::cargo::cargo_bin("provisor")),
        ("provisor-comment", ci("provisor-comment")),
    ];
    for (name, program) in programs {
        std::os::unix::fs::symlink(program, at("bin").join(name)).expect("linked");
    }
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").expect("a path"));
    for file in ["output", "summary"] {
        std::fs::write(at(file), "").expect("written");
    }
    let text = std::fs::read_to_string(ci("github.yaml")).expect("it is there");
    let workflow: Value = serde_saphyr::from_str(&text).expect("YAML");
    let mut job = Job { code: None, summary: String::new(), said: String::new(), kept: None };
    for step in workflow["jobs"]["review"]["steps"].as_array().expect("steps") {
        let is_own = from == "shop/fleet";
        let same = "github.event.pull_request.head.repo.full_name == github.repository";
        let runs = match step["if"].as_str() {
            None => true,
            Some(condition) if condition == same => is_own,
            Some(condition) if condition == same.replace("==", "!=") => !is_own,
            Some(condition) => panic!("nobody knows what `{condition}` is"),
        };
        if !runs {
            continue;
        }
        if let Some(action) = step["uses"].as_str() {
            if action.starts_with("actions/checkout@") {
                assert_eq!(step["with"]["fetch-depth"], 0, "both sides are looked at");
                let project = upstream.git(&["rev-parse", "--show-toplevel"]);
                let cloned = Command::new("git").args(["clone", "--quiet", &project]).arg(at("job")).status();
                assert!(cloned.expect("git").success());
            } else {
                assert!(action.starts_with("actions/upload-artifact@"), "{action}");
                let file = at("job").join(step["with"]["path"].as_str().expect("a path"));
                job.kept = Some(std::fs::read_to_string(file).expect("it is kept"));
            }
            continue;
        }
        let outputs = std::fs::read_to_string(at("output")).expect("it is there");
        let fill_in = |text: &str| match text {
            "${{ github.event.pull_request.base.sha }}" => base.to_owned(),
            "${{ github.event.pull_request.head.sha }}" => head.to_owned(),
            "${{ github.event.pull_request.number }}" => "7".to_owned(),
            "${{ github.token }}" => "secret".to_owned(),
            "${{ steps.review.outputs.code }}" => {
                let code = outputs.lines().find_map(|line| line.strip_prefix("code="));
                code.unwrap_or_default().to_owned()
            }
            plain => {
                assert!(!plain.contains("${{"), "nobody knows what `{plain}` is");
                plain.to_owned()
            }
        };
        let given = step["env"].as_object().into_iter().flatten();
        let given = given.map(|(name, value)| (name, fill_in(value.as_str().expect("text"))));
        let script = step["run"].as_str().expect("a step uses or runs something");
        assert!(!script.contains("${{"), "what others wrote is no part of a script: {script}");
        let mut forge_of = forge.github("31");
        forge_of.retain(|(name, _)| !["PULL_REQUEST", "GITHUB_TOKEN"].contains(name));
        let ran = Command::new("bash")
            .args(["-e", "-c", script])
            .current_dir(at("job"))
            .env_remove("CI_API_V4_URL")
            .env_remove("GITHUB_EVENT_NAME")
            .env_remove("GITHUB_EVENT_PATH")
            .env_remove("PULL_REQUEST")
            .env_remove("GITHUB_TOKEN")
            .env("PATH", &path)
            .env("GITHUB_OUTPUT", at("output"))
            .env("GITHUB_STEP_SUMMARY", at("summary"))
            .envs(forge_of)
            .envs(given)
            .output()
            .expect("bash runs");
        job.said += &String::from_utf8_lossy(&ran.stdout);
        job.said += &String::from_utf8_lossy(&ran.stderr);
        if !ran.status.success() {
            job.code = ran.status.code();
            break;
        }
    }
    job.summary = std::fs::read_to_string(at("summary")).expect("it is there");
    job
}

#[test]
fn the_steps_of_the_workflow_comment_before_they_fail_and_leave_a_forks_review_to_be_fetched() {
    let mut upstream = Proposal::new(&[
        ("fleet.toml", "name = \"shop\"\n"),
        (
            "environments/prod.toml",
            "[pools.general]\nstrategy = \"spot\"\nlimits = { cpu = \"100\" }\n\n[pools.more]\nstrategy = \"spot\"\n",
        ),
    ]);
    let (base, prod) = (upstream.git(&["rev-parse", "HEAD"]), "environments/prod.toml");
    let harmless = upstream.edit(prod, "\"100\"", "\"50\"");
    let refused = upstream.edit(prod, "[pools.more]\nstrategy = \"spot\"\n", "");
    let invalid = upstream.edit(prod, "\"50\"", "\"many\"");
    for (head, code, says) in [
        (&harmless, None, "limits.cpu"),
        // A pool goes, and nobody knows of its pods.
        (&refused, Some(1), "not known without a snapshot"),
        (&invalid, Some(2), "Nothing was reviewed."),
    ] {
        let forge = Forge::new();
        let job = run_on_github(&upstream, &base, head, "shop/fleet", &forge);
        assert_eq!((job.code, &job.kept), (code, &None), "{}", job.said);
        let [comment] = &forge.bodies()[..] else {
            panic!("one comment: {:?}\n{}", forge.bodies(), job.said)
        };
        assert!(comment.contains(says), "{comment}");
        assert_eq!(*comment, format!("{}<!-- provisor:run 31 -->\n", job.summary));
        assert!(forge.requests().iter().all(|request| request.contains("Authorization: Bearer secret")));

        // The token of a fork's run cannot write.
        let forge = Forge::new();
        let of_fork = run_on_github(&upstream, &base, head, "eve/fleet", &forge);
        assert_eq!(of_fork.code, code, "{}", of_fork.said);
        assert!(forge.requests().is_empty(), "{:?}", forge.requests());
        assert_eq!(of_fork.summary, job.summary);
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("review.json");
        std::fs::write(&file, of_fork.kept.expect("its review is kept")).expect("written");
        let shown = upstream.review(&format!("--from {} --output markdown", file.display()));
        let is_reviewed = code != Some(2);
        assert_eq!(shown.status.code(), Some(if is_reviewed { 0 } else { 2 }));
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains(if is_reviewed { says } else { "left no review" }), "{shown}");
    }
}

const FIRST: &str = "<!-- provisor:review set=default -->\nfirst";
const SECOND: &str = "<!-- provisor:review set=default -->\n\"second\" `$HOME`\n";

#[test]
fn rev_034_a_second_review_edits_the_first_comment_and_none_of_others() {
    let forge = Forge::new();
    // Somebody quotes the marker, and somebody else has the bot's name but another marker: neither is ours.
    forge.add(json!({"body": FIRST, "user": {"login": "ada"}}));
    forge.add_of_bot("<!-- provisor:review set=other -->");
    let post = |text: &str| forge.post(text, &forge.github("1"));
    assert!(post(FIRST).status.success());
    assert!(post(SECOND).status.success());
    let bodies = forge.bodies();
    assert_eq!(bodies.len(), 3, "{bodies:?}");
    assert_eq!(bodies[0], FIRST);
    assert_eq!(bodies[2], format!("{SECOND}<!-- provisor:run 1 -->\n"));
    assert!(forge.requests().iter().all(|request| request.contains("Authorization: Bearer secret")));
    let asked = forge.requests().join("\n");
    assert!(asked.contains("POST /repos/shop/fleet/issues/7/comments "), "{asked}");
    assert!(asked.contains("PATCH /repos/shop/fleet/issues/comments/2 "), "{asked}");
    assert!(post("").status.success(), "nothing to say is no mistake");
    assert_eq!(forge.bodies().len(), 3);
}

/// Rows: REV-034
#[test]
fn rev_034_a_comment_whose_answer_was_lost_is_not_written_again() {
    let forge = Forge::new();
    forge.state.lock().expect("nobody panics here").lost_answers = 1;
    assert!(forge.post(FIRST, &forge.gitlab("1")).status.success());
    assert_eq!(forge.bodies(), [format!("{FIRST}\n<!-- provisor:run 1 -->\n")]);
}

/// Rows: REV-032
#[test]
fn rev_032_what_is_said_already_is_not_written_and_a_failing_forge_is_asked_again() {
    let forge = Forge::new();
    forge.fail(2);
    let begun = std::time::Instant::now();
    assert!(forge.post(FIRST, &forge.github("1")).status.success());
    assert!(begun.elapsed().as_secs() >= 3, "one second, then two");
    // Another commit and another run, the same words.
    let again = format!("{FIRST}\nBase `1` · proposal `2`\n");
    assert!(forge.post(&again, &forge.github("2")).status.success());
    assert_eq!(forge.bodies(), [format!("{FIRST}\n<!-- provisor:run 1 -->\n")]);
    assert!(forge.post(SECOND, &forge.github("3")).status.success());
    let writes = forge.requests().iter().filter(|request| !request.starts_with("GET")).count();
    assert_eq!((forge.bodies().len(), writes), (1, 2));
}

/// Rows: REV-032
#[test]
fn rev_032_a_list_that_is_refused_is_no_empty_one() {
    for forge_of in [Forge::github, Forge::gitlab] {
        let forge = Forge::new();
        assert!(forge.post(FIRST, &forge_of(&forge, "1")).status.success());
        for page in [1, 2] {
            forge.refuse_page(page);
            let refused = forge.post(SECOND, &forge_of(&forge, "2"));
            assert!(!refused.status.success(), "page {page} was not there");
            assert!(String::from_utf8_lossy(&refused.stderr).contains("403"), "curl says why");
            assert_eq!(forge.bodies().len(), if page == 1 { 1 } else { 101 });
            // The second page is asked for once the first is full.
            (0..100)
                .filter(|_| page == 1)
                .for_each(|_| forge.add(json!({"body": "x", "user": {"login": "ada"}})));
        }
    }
}

/// Rows: REV-033
#[test]
fn rev_033_a_run_that_was_overtaken_writes_nothing() {
    let forge = Forge::new();
    assert!(forge.post(SECOND, &forge.github("12")).status.success());
    assert!(forge.post(FIRST, &forge.github("9")).status.success());
    assert_eq!(forge.bodies(), [format!("{SECOND}<!-- provisor:run 12 -->\n")]);
}

/// Rows: REV-035
#[test]
fn rev_035_of_several_comments_the_newest_is_kept_and_the_others_are_put_away() {
    for forge_of in [Forge::github, Forge::gitlab] {
        let forge = Forge::new();
        forge.add_of_bot(FIRST);
        forge.add_of_bot(FIRST);
        forge.add_of_bot(FIRST);
        assert!(forge.post(SECOND, &forge_of(&forge, "1")).status.success());
        let bodies = forge.bodies();
        assert_eq!(bodies.last(), Some(&format!("{SECOND}<!-- provisor:run 1 -->\n")));
        let asked = forge.requests();
        let folded = asked.iter().filter(|request| request.starts_with("POST /graphql ")).count();
        assert!((bodies.len(), folded) == (3, 2) || (bodies.len(), folded) == (1, 0), "{asked:?}");
    }
}

/// Rows: REV-038
#[test]
fn rev_038_a_push_that_takes_the_change_back_is_told_in_the_same_comment() {
    let mut proposal = Proposal::new(&[
        ("fleet.toml", "name = \"shop\"\n"),
        ("environments/prod.toml", "[pools.general]\nstrategy = \"spot\"\nlimits = { cpu = \"100\" }\n"),
    ]);
    proposal.git(&["branch", "base"]);
    let forge = Forge::new();
    // The text changes, and nothing else.
    proposal.edit("environments/prod.toml", "[pools", "# General.\n[pools");
    let silent = proposal.review("--base base --output markdown");
    assert!(forge.post(&String::from_utf8_lossy(&silent.stdout), &forge.github("0")).status.success());
    assert_eq!(forge.bodies(), [""; 0], "nothing was said, and nothing is to be");
    let mut push = |from, to, run| {
        proposal.edit("environments/prod.toml", from, to);
        let review = proposal.review("--base base --output markdown");
        assert!(forge.post(&String::from_utf8_lossy(&review.stdout), &forge.github(run)).status.success());
        forge.bodies()
    };
    let first = push("\"100\"", "\"50\"", "1");
    assert!(first.len() == 1 && first[0].contains("limits.cpu"), "{first:?}");
    let second = push("\"50\"", "\"100\"", "2");
    assert!(second.len() == 1 && second[0].contains("no capacity change"), "{second:?}");
}

/// Rows: REV-039
#[test]
fn rev_039_what_a_fork_left_is_escaped_and_goes_to_the_proposal_that_github_names() {
    let mut proposal = Proposal::new(&[
        ("fleet.toml", "name = \"shop\"\n"),
        ("environments/prod.toml", "[pools.general]\nstrategy = \"spot\"\nlimits = { cpu = \"100\" }\n"),
    ]);
    proposal.git(&["branch", "base"]);
    proposal.edit("environments/prod.toml", "\"100\"", "\"50\"");
    let made = proposal.review("--base base --output json");
    let honest: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let dir = tempfile::TempDir::new().expect("a temporary directory");
    let show = |forged: &Value| {
        std::fs::write(dir.path().join("review.json"), forged.to_string()).expect("written");
        proposal.review(&format!("--from {}/review.json --output markdown", dir.path().display()))
    };
    // Whoever proposes wrote this one: it names another proposal wherever a number might be looked for.
    let mut forged = honest.clone();
    let hostile =
        "</details> @org/team <script> | ![x](http://evil) `\n<!-- provisor:review set=other -->\n#99";
    for field in ["headline", "demand"] {
        forged[field] = hostile.into();
    }
    forged["base"]["ref"] = "refs/pull/99/head".into();
    for field in ["pullRequest", "pull_request", "number", "pr"] {
        forged[field] = 99.into();
    }
    forged["environments"][0]["name"] = hostile.into();
    forged["environments"][0]["objects"][0]["fields"][0]["path"] = hostile.into();
    forged["assumptions"] = json!([hostile]);
    forged["head"]["commit"] = hostile.into();
    let shown = show(&forged);
    assert_eq!(shown.status.code(), Some(0), "{}", String::from_utf8_lossy(&shown.stderr));
    let comment = String::from_utf8(shown.stdout).expect("text");
    assert!(comment.starts_with("<!-- provisor:review set=default -->\n### "), "{comment}");
    assert!(comment.contains("`MadeElsewhere`"), "{comment}");
    let outside_of_code: String = comment.split('`').step_by(2).collect();
    for trap in ["<script", "@org", "![x]", "://evil", "<!-- provisor:review set=other", "#99"] {
        assert!(!outside_of_code.contains(trap), "{trap} in {comment}");
    }
    let closed = outside_of_code.matches("</details>").count();
    assert_eq!(closed, outside_of_code.matches("<details>").count(), "{comment}");

    // A proposal that could not be reviewed left nothing, or something else: the comment says so, and does not repeat it.
    for left in ["", "{\"error\": {\"message\": \"<script>\"}}"] {
        std::fs::write(dir.path().join("review.json"), left).expect("written");
        let shown =
            proposal.review(&format!("--from {}/review.json --output markdown", dir.path().display()));
        assert_eq!(shown.status.code(), Some(2), "{}", String::from_utf8_lossy(&shown.stderr));
        let comment = String::from_utf8(shown.stdout).expect("text");
        assert!(comment.starts_with("<!-- provisor:review set=default -->\n### ❌ provisor: "), "{comment}");
        assert!(comment.contains("left no review") && !comment.contains("script"), "{comment}");
    }

    // GitHub says whose run it was; the fork has pull request 7, and 8 is somebody else's.
    let forge = Forge::new();
    let pull = |number: u64, repository: &str, sha: &str| json!({"number": number, "head": {"sha": sha, "repo": {"full_name": repository}}});
    forge.pulls(json!([
        pull(8, "eve/fleet", "0ld"),
        pull(7, "eve/fleet", "abc"),
        pull(9, "ada/fleet", "abc")
    ]));
    let event = dir.path().join("event.json");
    let run = json!({"workflow_run": {
        "id": 31, "head_sha": "abc", "head_branch": "next/99",
        "head_repository": {"full_name": "eve/fleet", "owner": {"login": "eve"}},
        "pull_requests": [],
    }});
    std::fs::write(&event, run.to_string()).expect("written");
    let mut variables = forge.github("40");
    variables.retain(|(name, _)| *name != "PULL_REQUEST");
    variables.push(("PULL_REQUEST", "99".into()));
    variables.push(("GITHUB_EVENT_NAME", "workflow_run".into()));
    variables.push(("GITHUB_EVENT_PATH", event.display().to_string()));
    assert!(forge.post(&comment, &variables).status.success());
    assert_eq!(forge.bodies(), [format!("{comment}<!-- provisor:run 31 -->\n")]);
    let asked = forge.requests();
    assert!(
        asked[0].starts_with("GET /repos/shop/fleet/pulls?") && asked[0].contains("head=eve%3Anext%2F99")
    );
    let comments = asked.iter().filter(|request| request.contains("/issues/"));
    assert!(comments.clone().count() == 2, "{asked:?}");
    assert!(comments.clone().all(|request| request.contains("/issues/7/comments")), "{asked:?}");
    // The branch has gone on, or two proposals are made from it: nobody knows whose it is.
    for pulls in [
        json!([pull(7, "eve/fleet", "def")]),
        json!([pull(7, "eve/fleet", "abc"), pull(5, "eve/fleet", "abc")]),
    ] {
        forge.pulls(pulls);
        assert!(forge.post("<!-- provisor:review set=default -->\nother", &variables).status.success());
        assert_eq!(forge.bodies().len(), 1);
        assert!(forge.bodies()[0].starts_with(&comment));
    }

    // What is no review is not shown at all.
    let mut dear = honest.clone();
    dear["environments"][0]["cost"] = json!({
        "currency": "USD", "hoursPerMonth": "730", "before": "<b>1</b>", "after": "1", "delta": "0",
        "usdPerHour": {"before": "1", "after": "1", "delta": "0"}, "runningUsdPerHour": "1", "reachedUsdPerHour": "1",
        "byPool": [], "byCapacityType": {"spot": "0", "on-demand": "0", "reserved": "0"}, "unpriced": [],
        "unplaced": {"before": 0, "after": 0},
    });
    let mut late = honest.clone();
    late["dataAsOf"] = "<b>today</b>".into();
    let mut newer = honest;
    newer["version"] = 2.into();
    for (forged, why) in
        [(dear, "no amount"), (late, "no moment"), (newer, "version 2"), (json!({}), "no review")]
    {
        let shown = show(&forged);
        assert_eq!(shown.status.code(), Some(2), "{why}");
        assert!(String::from_utf8_lossy(&shown.stderr).contains(why), "{why}");
        let comment = String::from_utf8(shown.stdout).expect("text");
        assert!(comment.contains("left no review") && !comment.contains("today"), "{comment}");
    }
}

/// What stands in the workflow of forks, and what must never stand there.
#[test]
fn the_workflow_of_forks_runs_nothing_of_theirs() {
    let text = std::fs::read_to_string(ci("github-forks.yaml")).expect("it is there");
    assert!(!text.contains("checkout") && !text.contains("PULL_REQUEST"), "{text}");
    let workflow: Value = serde_saphyr::from_str(&text).expect("YAML");
    assert_eq!(workflow["on"]["workflow_run"]["workflows"], json!(["capacity review"]));
    let first = std::fs::read_to_string(ci("github.yaml")).expect("it is there");
    let first: Value = serde_saphyr::from_str(&first).expect("YAML");
    assert_eq!(first["name"], "capacity review");
    for step in workflow["jobs"]["comment"]["steps"].as_array().expect("steps") {
        let run = step["run"].as_str().unwrap_or_default();
        assert!(!run.contains("${{"), "what GitHub fills in is theirs: {run}");
    }
}

#[test]
fn a_second_review_edits_the_first_comment_on_gitlab() {
    let forge = Forge::new();
    assert!(forge.post(FIRST, &forge.gitlab("1")).status.success());
    assert!(forge.post(SECOND, &forge.gitlab("2")).status.success());
    assert_eq!(forge.bodies(), [format!("{SECOND}<!-- provisor:run 2 -->\n")]);
    let asked = forge.requests().join("\n");
    assert!(asked.contains("PUT /projects/3/merge_requests/9/notes/0 "), "{asked}");
    let lost = forge.post("<!-- m -->", &[]);
    assert_eq!(lost.status.code(), Some(2), "without a forge there is nowhere to write to");
}

const BOT: &str = "github-actions[bot]";

/// As much of a forge as keeps comments: both forges list, make and change them in the same way.
struct Forge {
    address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    comments: Vec<Value>,
    requests: Vec<String>,
    /// Open pull requests, whatever is asked of them.
    pulls: Value,
    /// So many requests more are answered with 502.
    failures: usize,
    /// The page of comments that is answered with 403.
    refused: Option<usize>,
    /// So many new comments more are kept, and answered with 502.
    lost_answers: usize,
}

impl Forge {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let state = Arc::<Mutex<State>>::default();
        let kept = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &kept);
            }
        });
        Self { address, state }
    }

    fn add(&self, comment: Value) {
        self.state.lock().expect("nobody panics here").add(comment);
    }

    fn add_of_bot(&self, body: &str) {
        self.add(json!({"body": body, "user": {"login": BOT}, "author": {"username": "bot"}}));
    }

    fn fail(&self, times: usize) {
        self.state.lock().expect("nobody panics here").failures = times;
    }

    fn refuse_page(&self, page: usize) {
        self.state.lock().expect("nobody panics here").refused = Some(page);
    }

    fn pulls(&self, pulls: Value) {
        self.state.lock().expect("nobody panics here").pulls = pulls;
    }

    fn bodies(&self) -> Vec<String> {
        let state = self.state.lock().expect("nobody panics here");
        state.comments.iter().filter_map(|comment| Some(comment["body"].as_str()?.to_owned())).collect()
    }

    /// What a workflow on GitHub has in its environment.
    fn github(&self, run: &str) -> Vec<(&'static str, String)> {
        vec![
            ("GITHUB_REPOSITORY", "shop/fleet".into()),
            ("GITHUB_TOKEN", "secret".into()),
            ("GITHUB_API_URL", self.address.clone()),
            ("GITHUB_GRAPHQL_URL", format!("{}/graphql", self.address)),
            ("PULL_REQUEST", "7".into()),
            ("GITHUB_RUN_ID", run.into()),
        ]
    }

    /// What a job on GitLab has in its environment.
    fn gitlab(&self, run: &str) -> Vec<(&'static str, String)> {
        vec![
            ("CI_API_V4_URL", self.address.clone()),
            ("CI_PROJECT_ID", "3".into()),
            ("CI_MERGE_REQUEST_IID", "9".into()),
            ("CI_PIPELINE_ID", run.into()),
            ("PROVISOR_TOKEN", "secret".into()),
        ]
    }

    fn requests(&self) -> Vec<String> {
        self.state.lock().expect("nobody panics here").requests.clone()
    }

    fn post(&self, text: &str, variables: &[(&str, String)]) -> Output {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("it can be written");
        let mut command = Command::new(ci("provisor-comment"));
        for name in [
            "GITHUB_REPOSITORY",
            "CI_API_V4_URL",
            "GITHUB_RUN_ID",
            "GITHUB_EVENT_NAME",
            "GITHUB_EVENT_PATH",
            "CI_PIPELINE_ID",
            "http_proxy",
            "HTTP_PROXY",
            "ALL_PROXY",
        ] {
            command.env_remove(name);
        }
        let output = command.arg(file.path()).envs(variables.iter().cloned()).output().expect("bash");
        if !output.status.success() {
            println!("{}", String::from_utf8_lossy(&output.stderr));
        }
        output
    }
}

impl State {
    fn add(&mut self, mut comment: Value) -> Value {
        comment["id"] = self.comments.len().into();
        self.comments.push(comment.clone());
        comment
    }
}

fn answer(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned))
        .map_or(0, |length| length.trim().parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("as long as it said");
    let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut state = state.lock().expect("nobody panics here");
    let id = path.rsplit('/').next().and_then(|id| id.parse::<usize>().ok());
    let page = path.rsplit("&page=").next().and_then(|page| page.parse::<usize>().ok());
    let refused = method == "GET" && page.is_some() && page == state.refused;
    let mut is_failing = state.failures > 0;
    state.failures = state.failures.saturating_sub(1);
    let reply = match (method, id) {
        _ if is_failing => Value::Null,
        _ if path == "/graphql" => json!({"data": {}}),
        ("DELETE", Some(id)) => {
            state.comments.retain(|comment| comment["id"] != id);
            Value::Null
        }
        ("GET", _) if path.contains("/pulls?") => state.pulls.clone(),
        ("GET", _) if path == "/user" => json!({"username": "bot"}),
        ("GET", _) if refused => Value::Null,
        ("GET", _) => {
            let page = page.unwrap_or(1);
            json!(state.comments.iter().skip(100 * (page - 1)).take(100).collect::<Vec<_>>())
        }
        ("POST", _) => {
            is_failing = state.lost_answers > 0;
            state.lost_answers = state.lost_answers.saturating_sub(1);
            state.add(json!({"body": sent["body"], "user": {"login": BOT}, "author": {"username": "bot"}}))
        }
        (_, Some(id)) => {
            let known = state.comments.iter_mut().find(|comment| comment["id"] == id).expect("it is there");
            known["body"] = sent["body"].clone();
            known.clone()
        }
        _ => Value::Null,
    };
    state.requests.push(head);
    let text = reply.to_string();
    let status = match (is_failing, refused) {
        (true, _) => "502 Bad Gateway",
        (_, true) => "403 Forbidden",
        _ => "200 OK",
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close");
    let sent = write!(reader.get_mut(), "{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    sent.expect("the script waits for it");
}
