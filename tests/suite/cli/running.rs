//! `run` while it goes on: what it says, once; what it notices of its repository; how it ends.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::confirming::{MORE, OTHER, POOLS, Run};

#[test]
fn programs_are_told_each_thing_once() {
    let mut run = Run::of(&format!("{POOLS}{MORE}"), &["--prune", "retire", "--output", "json"]);
    let mut told = Vec::new();
    // Reads on until a line of this kind.
    let mut until = |run: &mut Run, kind: &str| -> Value {
        loop {
            let line = run.lines.next().unwrap_or_else(|| panic!("it ended before {kind}: {}", run.talk()));
            let document: Value = serde_json::from_str(&line).expect("a document a line");
            let is_it = document["kind"] == kind;
            if document["at"].is_string() {
                told.push(line);
            }
            if is_it {
                return document;
            }
        }
    };
    until(&mut run, "Synced");
    run.change(MORE, OTHER);
    let digits = until(&mut run, "Plan")["plan"]["hash"].as_str().expect("it has a name").to_owned();
    until(&mut run, "PruneNeedsConfirmation");
    until(&mut run, "PruneNeedsConfirmation");
    writeln!(run.child.stdin.as_ref().expect("piped"), "confirm {digits}").expect("it listens");
    until(&mut run, "Synced");
    run.change("[pools.other]", "[pools.another]");
    until(&mut run, "Plan");
    until(&mut run, "Synced");
    let different: BTreeSet<&String> = told.iter().collect();
    assert_eq!(different.len(), told.len(), "{told:#?}");
}

/// Waits until the program has said `part` to people.
#[expect(clippy::disallowed_methods, reason = "the promise is one of real time")]
fn told_within(run: &Run, part: &str, limit: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if run.talk().contains(part) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

#[test]
fn a_repository_that_is_moved_away_is_missed_soon_and_so_is_its_return() {
    let mut run = Run::of(POOLS, &[]);
    run.until("the cluster is as the commit wants it");
    let (here, there) = (run.fleet.path().to_owned(), run.fleet.path().with_extension("elsewhere"));
    // Without anybody looking it would be missed after a minute.
    let soon = Duration::from_secs(10);
    std::fs::rename(&here, &there).expect("moved");
    assert!(told_within(&run, "the last good commit stays in force", soon), "{}", run.talk());
    std::fs::rename(&there, &here).expect("moved");
    assert!(told_within(&run, "answers again", soon), "{}", run.talk());
    run.change("spot", "on-demand");
    run.until("update NodePool/a");
}

/// Nobody would scrape an address that is not served, or trust a lease that is not taken.
#[test]
fn flags_of_a_real_cluster_are_refused_without_one() {
    let dir = tempfile::tempdir().expect("a directory");
    for flag in
        ["--metrics-address 127.0.0.1:0", "--health-address 127.0.0.1:0", "--namespace a", "--no-lease"]
    {
        let output = super::run(dir.path(), &format!("run --repo . --env prod {flag}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{said}");
        let name = flag.split(' ').next().expect("a flag");
        assert!(
            said.contains(&format!("{name} is for a real cluster")) && said.contains("--kubeconfig"),
            "{said}"
        );
    }
}

#[test]
fn a_repository_is_not_asked_all_the_time() {
    let dir = tempfile::tempdir().expect("a directory");
    assert!(super::run(dir.path(), "init fleet --name shop").status.success());
    for (interval, why) in [("1s", "every 10 s at most"), ("9s", "every 10 s at most"), ("often", "often")] {
        let output =
            super::run(dir.path(), &format!("run --repo fleet --env dev --for 1s --interval {interval}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

/// A script that waits for its end must not take silence for a cluster at rest.
#[test]
fn a_cluster_that_never_answered_is_no_success() {
    let run = Run::of(POOLS, &[]);
    let nobody = run.fleet.path().with_extension("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
        clusters: [{ name: a, cluster: { server: 'https://127.0.0.1:1' } }]\n\
        users: [{ name: a, user: { token: secret } }]\ncontexts: [{ name: a, context: { cluster: a, user: a } }]\n";
    std::fs::write(&nobody, text).expect("written");
    // Who waits for the lease tries again; who needs none gives up at once.
    for (more, word) in
        [("", "nothing was known of the cluster 127.0.0.1 when"), (" --no-lease", "reading ConfigMap")]
    {
        let line = format!(
            "run --repo . --env dev --cloud simulated --for 1s{more} --kubeconfig {}",
            nobody.display()
        );
        let output = super::run(run.fleet.path(), &line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(word), "{said}");
        assert!(said.contains("onnection refused"), "{said}");
    }
    std::fs::remove_file(&nobody).expect("it is there");
}

/// An API server that grants leases and is unwell otherwise.
fn unwell() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let serve = |stream: std::net::TcpStream| -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first).ok()?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            match line.trim().to_ascii_lowercase().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().ok()?,
                None => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let refusal = |code: u16, reason: &str| {
            let status = json!({ "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
                "message": "unwell", "reason": reason, "code": code });
            (code, status)
        };
        let (code, answer) = match (first.contains("/leases"), serde_json::from_slice::<Value>(&body)) {
            // Karpenter's.
            (true, Err(_)) if first.contains("/leases?") => {
                (200, json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": [] }))
            }
            (true, Ok(mut lease)) => {
                lease["metadata"]["resourceVersion"] = "1".into();
                (200, lease)
            }
            (true, Err(_)) => refusal(404, "NotFound"),
            (false, _) => refusal(503, "ServiceUnavailable"),
        };
        let answer = answer.to_string();
        let head = format!("HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nConnection: close");
        write!(&stream, "{head}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).ok()
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream);
        }
    });
    address
}

/// Another replica may fare better, and this one does not give up.
#[test]
fn who_holds_the_lease_and_is_told_nothing_gives_it_back_and_tries_again() {
    let run = Run::of(POOLS, &[]);
    let kubeconfig = run.fleet.path().with_extension("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         clusters: [{{ name: a, cluster: {{ server: 'http://{}' }} }}]\n\
         users: [{{ name: a, user: {{ token: secret }} }}]\ncontexts: [{{ name: a, context: {{ cluster: a, user: a }} }}]\n",
        unwell()
    );
    std::fs::write(&kubeconfig, text).expect("written");
    let line =
        format!("run --repo . --env dev --cloud simulated --for 2s --kubeconfig {}", kubeconfig.display());
    let output = super::run(run.fleet.path(), &line);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("the cluster is not known yet") && said.contains("trying again"), "{said}");
    assert!(said.contains("nothing was known of the cluster 127.0.0.1 when"), "{said}");
    std::fs::remove_file(&kubeconfig).expect("it is there");
}

#[test]
fn every_request_to_end_gets_a_last_word() {
    // Whoever runs the tests may have told their children to mind no terminal.
    let minding = ["env", "--default-signal=HUP"];
    for (signal, code, word) in [
        ("-INT", 130, "interrupted; "),
        ("-TERM", 0, "told to end; "),
        ("-HUP", 130, "the terminal is closed; "),
    ] {
        let mut run = Run::under(&minding, POOLS, &[]);
        run.until("the cluster is as the commit wants it");
        run.signal(signal);
        assert_eq!(run.child.wait().expect("it ends").code(), Some(code), "{signal}");
        assert!(run.talk().contains(word), "{signal}: {}", run.talk());
    }
}

#[test]
fn under_nohup_a_closed_terminal_changes_nothing() {
    let mut run = Run::under(&["env", "--ignore-signal=HUP"], POOLS, &[]);
    run.until("the cluster is as the commit wants it");
    run.signal("-HUP");
    run.change("spot", "on-demand");
    run.until("update NodePool/a");
    run.signal("-TERM");
    assert_eq!(run.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn warnings_of_a_commit_are_told_before_it_is_applied() {
    let rule = "[[guardrail]]\nid = \"most\"\nseverity = \"warn\"\ncheck = \"int(pool.limits.cpu) <= 100\"\n\
                message = \"'too much: ' + pool.limits.cpu\"\n";
    let files = [
        ("environments/dev.toml", &*format!("{POOLS}limits = {{ cpu = 500 }}\n")),
        ("policies/a.toml", rule),
    ];
    let patience = Duration::from_secs(20);

    let mut run = Run::start(&[], &files, &[]);
    run.until("the cluster is as the commit wants it");
    assert!(run.talk().contains("too much: 500"), "of the first: {}", run.talk());
    run.change("500", "600");
    assert!(told_within(&run, "too much: 600", patience), "of the next: {}", run.talk());
    run.change("[pools.a]", "[pools.b]\nstrategy = \"spot\"\nlimits = { cpu = 1 }\n[pools.a]");
    assert!(told_within(&run, "PRV1619", patience), "not of rules alone: {}", run.talk());
    let before = run.talk().len();
    run.change("600", "60");
    run.until("60");
    assert!(!run.talk()[before..].contains("too much"), "what is mended is not told: {}", run.talk());

    let mut run = Run::start(&[], &files, &["--output", "json"]);
    run.until("Synced");
    let notice = run.talk().lines().find(|line| line.contains("warnings")).expect("told").to_owned();
    let notice: Value = serde_json::from_str(&notice).expect("a document");
    assert_eq!(notice["warnings"][0]["severity"], "warning", "{notice}");
    assert!(
        notice["warnings"][0]["message"].as_str().is_some_and(|said| said.contains("too much")),
        "{notice}"
    );
}
