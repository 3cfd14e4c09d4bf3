//! What pipelines copy from `deploy/ci`: the workflow, the job, and the script that keeps one comment.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::plane::made_by;

fn ci(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/ci").join(file)
}

#[test]
fn the_workflow_is_what_github_understands() {
    let actionlint = made_by("go-tool", &["actionlint"]).expect("actionlint");
    let checked =
        Command::new(actionlint).args(["-no-color", "-shellcheck="]).arg(ci("github.yaml")).output();
    let checked = checked.expect("it runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
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
    let gitlab: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(ci("gitlab.yaml")).expect("it is there"))
            .expect("it is YAML");
    let lines = gitlab["capacity review"]["script"].as_array().expect("a script");
    let script: Vec<&str> = lines.iter().map(|line| line.as_str().expect("text")).collect();
    let checked = Command::new("bash").args(["-n", "-c", &script.join("\n")]).output().expect("bash");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn a_second_review_edits_the_first_comment_on_github() {
    let forge = Forge::new();
    // Somebody quotes the marker, and somebody else has the bot's name but another marker: neither is ours.
    forge.add(json!({"body": "<!-- provisor:review set=default -->\nme too", "user": {"login": "ada"}}));
    forge
        .add(json!({"body": "<!-- provisor:review set=other -->", "user": {"login": "github-actions[bot]"}}));
    let post = |text: &str| {
        forge.post(
            text,
            &[
                ("GITHUB_REPOSITORY", "shop/fleet"),
                ("GITHUB_TOKEN", "secret"),
                ("GITHUB_API_URL", &forge.address()),
                ("PULL_REQUEST", "7"),
            ],
        )
    };
    assert!(post("<!-- provisor:review set=default -->\nfirst").status.success());
    assert!(post("<!-- provisor:review set=default -->\n\"second\" `$HOME`\n").status.success());
    let bodies: Vec<Value> = forge.comments().iter().map(|comment| comment["body"].clone()).collect();
    assert_eq!(bodies.len(), 3, "{bodies:?}");
    assert_eq!(bodies[2], "<!-- provisor:review set=default -->\n\"second\" `$HOME`\n");
    assert!(forge.requests().iter().all(|request| request.contains("Authorization: Bearer secret")));
    let asked = forge.requests().join("\n");
    assert!(asked.contains("POST /repos/shop/fleet/issues/7/comments "), "{asked}");
    assert!(asked.contains("PATCH /repos/shop/fleet/issues/comments/2 "), "{asked}");
    assert!(post("").status.success(), "nothing to say is no mistake");
    assert_eq!(forge.comments().len(), 3);
}

#[test]
fn a_second_review_edits_the_first_comment_on_gitlab() {
    let forge = Forge::new();
    let post = |text: &str| {
        forge.post(
            text,
            &[
                ("CI_API_V4_URL", &forge.address()),
                ("CI_PROJECT_ID", "3"),
                ("CI_MERGE_REQUEST_IID", "9"),
                ("PROVISOR_TOKEN", "secret"),
            ],
        )
    };
    assert!(post("<!-- provisor:review set=default -->\nfirst").status.success());
    assert!(post("<!-- provisor:review set=default -->\nsecond").status.success());
    let comments = forge.comments();
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert_eq!(comments[0]["body"], "<!-- provisor:review set=default -->\nsecond");
    let asked = forge.requests().join("\n");
    assert!(asked.contains("PUT /projects/3/merge_requests/9/notes/0 "), "{asked}");
    let lost = forge.post("<!-- m -->", &[]);
    assert_eq!(lost.status.code(), Some(2), "without a forge there is nowhere to write to");
}

/// As much of a forge as keeps comments: both forges list, make and change them in the same way.
struct Forge {
    address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    comments: Vec<Value>,
    requests: Vec<String>,
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

    fn address(&self) -> String {
        self.address.clone()
    }

    fn add(&self, comment: Value) {
        self.state.lock().expect("nobody panics here").add(comment);
    }

    fn comments(&self) -> Vec<Value> {
        self.state.lock().expect("nobody panics here").comments.clone()
    }

    fn requests(&self) -> Vec<String> {
        self.state.lock().expect("nobody panics here").requests.clone()
    }

    fn post(&self, text: &str, variables: &[(&str, &str)]) -> Output {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("it can be written");
        let mut command = Command::new(ci("provisor-comment"));
        for name in ["GITHUB_REPOSITORY", "CI_API_V4_URL", "http_proxy", "HTTP_PROXY", "ALL_PROXY"] {
            command.env_remove(name);
        }
        let output = command.arg(file.path()).envs(variables.iter().copied()).output().expect("bash");
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
    let reply = match (method, id) {
        ("GET", _) if path == "/user" => json!({"username": "bot"}),
        ("GET", _) => json!(state.comments),
        ("POST", _) => state.add(json!({
            "body": sent["body"], "user": {"login": "github-actions[bot]"}, "author": {"username": "bot"},
        })),
        (_, Some(id)) => {
            state.comments[id]["body"] = sent["body"].clone();
            state.comments[id].clone()
        }
        _ => Value::Null,
    };
    state.requests.push(head);
    let text = reply.to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
    let sent = write!(reader.get_mut(), "{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    sent.expect("the script waits for it");
}
