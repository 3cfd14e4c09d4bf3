//! Repositories behind HTTP: what is asked, what is kept, and every way it can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use provisor::io::git::{
    self, ErrorClass, GitError, History, Limits, NextStep, Purpose, Reference, ReferenceFields, Rewrite,
    Source, Subdirectory,
};
use provisor::model::repository::{CommitId, Refusal};

use super::fixture::{Fixture, texts, told};
use super::server::{Asked, HttpServer, Reply, status};

fn source(server: &HttpServer) -> Source {
    Source { allow_insecure_http: true, ..Source::new(server.url()) }
}

fn following(server: &HttpServer, fields: ReferenceFields) -> Source {
    Source { reference: fields.choose(Purpose::Production).expect("valid"), ..source(server) }
}

fn fields() -> ReferenceFields {
    ReferenceFields::default()
}

/// The error with the port, which differs each time, cut out.
fn error_of(server: &HttpServer, error: &GitError) -> String {
    error.to_string().replace(&format!("127.0.0.1:{}", server.port), "HOST")
}

/// Rows: GIT-001, GIT-018
#[test]
fn git_018_a_repository_is_read_over_plain_http_if_allowed() {
    let fixture = Fixture::with(&[("fleet.toml", "x"), ("environments/prod.toml", "y")]);
    let server = HttpServer::start(fixture.dir.path());
    let refused = git::open(&Source::new(server.url()), &fixture.cache()).expect_err("not allowed");
    assert_eq!(error_of(&server, &refused), "`http://HOST/fleet/.git` is not encrypted");
    assert!(git::open(&source(&server), &fixture.cache()).expect("allowed").is_insecure());

    let repository = fixture.read(&source(&server)).expect("read");
    let local = fixture.read(&fixture.source()).expect("read");
    assert_eq!(repository, local);
    assert_eq!(repository.revision.reference.as_deref(), Some("refs/heads/main"));
    let with_credentials =
        server.asked().into_iter().filter(|asked| asked.headers.contains_key("authorization"));
    assert_eq!(with_credentials.count(), 0);
}

#[test]
fn git_002_no_object_is_fetched_twice() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let server = HttpServer::start(fixture.dir.path());
    let opened = git::open(&source(&server), &fixture.cache()).expect("opened");
    let read = |resolved| opened.fetch(&resolved, &|_| (), &AtomicBool::new(false)).expect("read");
    let first = opened.resolve().expect("resolved");
    assert_eq!(server.fetches(), 0, "resolving downloads nothing");
    let repository = read(first.clone());
    assert_eq!(server.fetches(), 1);
    assert_eq!(opened.resolve().expect("resolved"), first);
    assert_eq!(read(first.clone()), repository, "from the cache");
    assert_eq!(server.fetches(), 1);
    // Asking for one branch does not list the others.
    let listing = server.asked().into_iter().rfind(|asked| asked.method == "POST").expect("a listing");
    assert!(String::from_utf8_lossy(&listing.body).contains("ref-prefix HEAD"));

    fixture.commit("second", &[("fleet.toml", "y")]);
    let second = opened.resolve().expect("resolved");
    assert_eq!(texts(&read(second.clone()))["fleet.toml"], "y");
    assert_eq!(server.fetches(), 2);
    let fetch = server.asked().into_iter().rfind(Asked::is_fetch).expect("a fetch");
    let fetch = String::from_utf8_lossy(&fetch.body).into_owned();
    assert!(
        fetch.contains(&format!("want {}", second.commit))
            && fetch.contains(&format!("have {}", first.commit))
    );
    assert!(fetch.contains("deepen 1"), "{fetch}");
    assert_eq!(texts(&read(first))["fleet.toml"], "x", "the older commit is still there");
}

#[test]
fn references_of_every_kind_are_found_on_a_server() {
    let fixture = Fixture::with(&[("fleet.toml", "1")]);
    let first = fixture.git(&["rev-parse", "HEAD"]);
    fixture.git(&["tag", "-a", "prod/v1.2.0", "-m", "one"]);
    let tag = fixture.git(&["rev-parse", "prod/v1.2.0"]);
    let second = fixture.commit("second", &[("fleet.toml", "2")]);
    fixture.git(&["tag", "prod/v2.0.0"]);
    fixture.git(&["branch", "v1"]);
    fixture.git(&["tag", "v1"]);
    let third = fixture.commit("third", &[("fleet.toml", "3")]);
    let server = HttpServer::start(fixture.dir.path());
    let content = |fields: ReferenceFields| {
        let repository = fixture.read(&following(&server, fields)).expect("read");
        (repository.revision.commit.to_string(), texts(&repository)["fleet.toml"].clone())
    };
    assert_eq!(content(fields()), (third, "3".into()));
    let semver = ReferenceFields { semver: Some("1.x".into()), tag_prefix: Some("prod/".into()), ..fields() };
    let resolved = fixture.resolve(&following(&server, semver.clone())).expect("resolved");
    assert_eq!(resolved.tag.expect("annotated").as_str(), tag);
    assert_eq!(content(semver), (first.clone(), "1".into()));
    assert_eq!(
        content(ReferenceFields { branch: Some("v1".into()), ..fields() }),
        (second.clone(), "2".into())
    );
    assert_eq!(
        content(ReferenceFields { tag: Some("prod/v1.2.0".into()), ..fields() }),
        (first.clone(), "1".into())
    );
    assert_eq!(content(ReferenceFields { commit: Some(first.clone()), ..fields() }), (first, "1".into()));
    let named = ReferenceFields { name: Some("refs/heads/v1".into()), ..fields() };
    assert_eq!(content(named), (second, "2".into()));
    let word = Source { reference: Reference::any("v1").expect("a word"), ..source(&server) };
    let error = fixture.resolve(&word).expect_err("ambiguous");
    assert_eq!(error.help(), "Name it in full: `refs/heads/v1` or `refs/tags/v1`.");
}

#[test]
fn git_012_a_commit_with_a_branch_is_looked_for_in_its_history() {
    let fixture = Fixture::with(&[("a", "0")]);
    let old = fixture.git(&["rev-parse", "HEAD"]);
    fixture.grow(79);
    fixture.git(&["checkout", "--quiet", "-b", "side"]);
    let side = fixture.commit("aside", &[("a", "aside")]);
    let server = HttpServer::start(fixture.dir.path());
    let at = |commit: &str| {
        let fields = ReferenceFields { commit: Some(commit.into()), branch: Some("main".into()), ..fields() };
        fixture.read(&following(&server, fields))
    };
    assert_eq!(texts(&at(&old).expect("79 commits down"))["a"], "0");
    let error = at(&side).expect_err("not part of main");
    assert_eq!(
        error_of(&server, &error),
        format!("commit {side} of `http://HOST/fleet/.git` is not part of the branch `main`")
    );
    let unknown = "0123456789abcdef0123456789abcdef01234567";
    let fields = ReferenceFields { commit: Some(unknown.into()), ..fields() };
    let error = fixture.read(&following(&server, fields)).expect_err("unknown");
    assert_eq!(
        error_of(&server, &error),
        format!("the server of `http://HOST/fleet/.git` does not hand out commit {unknown} by its id")
    );
}

#[test]
fn a_branch_deleted_on_the_server_is_not_found() {
    let fixture = Fixture::with(&[("a", "1")]);
    fixture.git(&["branch", "release"]);
    let server = HttpServer::start(fixture.dir.path());
    let release = following(&server, ReferenceFields { branch: Some("release".into()), ..fields() });
    fixture.resolve(&release).expect("there");
    fixture.git(&["branch", "-D", "release"]);
    let error = fixture.resolve(&release).expect_err("gone");
    let port = server.port;
    assert_eq!(
        told(&error),
        format!("`http://127.0.0.1:{port}/fleet/.git` has no branch `release`\nThere is `main`.")
    );
    assert_eq!(error.reason(), "RefNotFound");
}

#[test]
fn an_empty_repository_on_a_server_says_so() {
    let fixture = Fixture::empty();
    let server = HttpServer::start(fixture.dir.path());
    for source in
        [source(&server), following(&server, ReferenceFields { branch: Some("main".into()), ..fields() })]
    {
        let error = fixture.resolve(&source).expect_err("empty");
        assert_eq!(error_of(&server, &error), "`http://HOST/fleet/.git` is empty: it has no commit yet");
    }
}

#[test]
fn subdirectories_and_refusals_hold_over_the_wire() {
    let fixture = Fixture::with(&[("nodes/fleet.toml", "x"), ("docs/a.md", "1")]);
    std::os::unix::fs::symlink("/etc/passwd", fixture.work_tree().join("nodes/link")).expect("a link");
    fixture.write("nodes/big", &vec![0; 2 << 20]);
    fixture.commit("more", &[]);
    let server = HttpServer::start(fixture.dir.path());
    let nodes = Source { subdirectory: Subdirectory::parse("nodes").expect("inside"), ..source(&server) };
    let repository = fixture.read(&nodes).expect("read");
    assert_eq!(texts(&repository).into_keys().collect::<Vec<_>>(), ["fleet.toml"]);
    let refused: Vec<_> = repository.refused.values().copied().collect();
    assert_eq!(refused, [Refusal::TooLarge { bytes: 2 << 20, limit: 1 << 20 }, Refusal::Symlink]);
    fixture.commit("docs", &[("docs/a.md", "2")]);
    assert_eq!(fixture.read(&nodes).expect("read").content_digest(), repository.content_digest());
}

#[test]
fn git_021_one_redirect_on_the_same_host_is_followed() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let to_git = |asked: &Asked| match asked.path.strip_prefix("/fleet/info") {
        Some(_) => {
            status("301 Moved Permanently", "Location: /fleet/.git/info/refs?service=git-upload-pack\r\n")
        }
        None => Reply::Backend,
    };
    let server = HttpServer::scripted(fixture.dir.path(), to_git);
    let moved = Source {
        allow_insecure_http: true,
        ..Source::new(format!("http://127.0.0.1:{}/fleet", server.port))
    };
    assert_eq!(texts(&fixture.read(&moved).expect("followed"))["fleet.toml"], "x");
}

#[test]
fn git_021_other_redirects_name_their_target() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let elsewhere = HttpServer::start(fixture.dir.path());
    let tail = "info/refs?service=git-upload-pack";
    for (location, why) in [
        (format!("http://localhost:{}/fleet/.git/{tail}", elsewhere.port), "it is another host"),
        (format!("http://127.0.0.1:{}/fleet/.git/{tail}", elsewhere.port), "it is another port"),
        ("/login".to_owned(), "it is not an address of a repository"),
        (format!("/fleet/.git/{tail}"), "it is the second redirect"),
        (format!("ftp://127.0.0.1/fleet/.git/{tail}"), "it is less safe"),
    ] {
        let header = format!("Location: {location}\r\n");
        let server = HttpServer::scripted(fixture.dir.path(), move |_| status("302 Found", &header));
        let error = fixture.resolve(&source(&server)).expect_err(&location);
        assert!(
            matches!(&error, GitError::Redirected { why: said, .. } if *said == why),
            "{location}: {error}"
        );
        assert_eq!(error.class(), ErrorClass::Input);
    }
    assert_eq!(elsewhere.asked().len(), 0, "nobody else was asked");
}

#[test]
fn git_066_what_the_server_refuses_is_told_apart() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let again = |after| NextStep::Retry { after };
    let moment = "Date: Fri, 31 Dec 2100 23:00:00 GMT\r\nRetry-After: Fri, 31 Dec 2100 23:10:00 GMT\r\n";
    for (line, headers, message, reason) in [
        (
            "401 Unauthorized",
            "WWW-Authenticate: Basic\r\n",
            "`URL` asks for credentials (HTTP 401)",
            "AuthenticationFailed",
        ),
        ("403 Forbidden", "", "`URL` refuses access (HTTP 403)", "AuthenticationFailed"),
        ("404 Not Found", "", "the server has no repository at `URL` (HTTP 404)", "RepositoryNotFound"),
        (
            "429 Too Many Requests",
            "Retry-After: 120\r\n",
            "the server of `URL` limits the rate of requests (HTTP 429)",
            "RateLimited",
        ),
        ("503 Service Unavailable", moment, "the server of `URL` failed (HTTP 503)", "GitOperationFailed"),
        (
            "418 Teapot",
            "",
            "what answers at `URL` is not a Git repository: it answers with HTTP 418",
            "RepositoryNotFound",
        ),
    ] {
        let server = HttpServer::scripted(fixture.dir.path(), move |_| status(line, headers));
        let error = fixture.resolve(&source(&server)).expect_err(line);
        assert_eq!(error_of(&server, &error).replace("http://HOST/fleet/.git", "URL"), message);
        assert_eq!((error.class(), error.reason()), (ErrorClass::Outside, reason), "{line}");
        match line {
            "429 Too Many Requests" => assert_eq!(error.next_step(), again(Some(Duration::from_secs(120)))),
            "503 Service Unavailable" => assert_eq!(error.next_step(), again(Some(Duration::from_secs(600)))),
            _ => assert_eq!(error.next_step(), again(None), "{line}"),
        }
    }
}

#[test]
fn what_is_no_repository_says_what_it_is() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let page =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: close\r\n\r\n<p/>";
    let server = HttpServer::scripted(fixture.dir.path(), move |_| Reply::Raw(page.into()));
    let error = fixture.resolve(&source(&server)).expect_err("a page");
    assert_eq!(
        error_of(&server, &error),
        "what answers at `http://HOST/fleet/.git` is not a Git repository: it answers with `text/html`"
    );
    let garbage = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\
                   Content-Length: 9\r\nConnection: close\r\n\r\nnot a git";
    let server = HttpServer::scripted(fixture.dir.path(), move |_| Reply::Raw(garbage.into()));
    let error = fixture.resolve(&source(&server)).expect_err("garbage");
    assert!(matches!(error, GitError::Protocol { .. }), "{error}");

    let gone =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let nobody =
        Source { allow_insecure_http: true, ..Source::new(format!("http://127.0.0.1:{gone}/fleet")) };
    let error = fixture.resolve(&nobody).expect_err("nobody listens");
    assert!(matches!(error, GitError::Unreachable { .. }), "{error}");
    assert_eq!((error.class(), error.next_step()), (ErrorClass::Outside, NextStep::Retry { after: None }));
}

#[test]
fn git_053_a_fetch_that_breaks_leaves_what_was_there() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let is_broken = Arc::new(AtomicBool::new(false));
    let script = is_broken.clone();
    let server = HttpServer::scripted(fixture.dir.path(), move |asked| {
        match asked.is_fetch() && script.load(Ordering::Relaxed) {
            true => Reply::Cut(150),
            false => Reply::Backend,
        }
    });
    let opened = git::open(&source(&server), &fixture.cache()).expect("opened");
    let read = |resolved: &git::Resolved| opened.fetch(resolved, &|_| (), &AtomicBool::new(false));
    let good = opened.resolve().expect("resolved");
    read(&good).expect("read");
    let noise: String = (0..2000).map(|number| format!("{}\n", number * 7919)).collect();
    fixture.commit("second", &[("fleet.toml", &noise)]);
    let next = opened.resolve().expect("resolved");
    is_broken.store(true, Ordering::Relaxed);
    let error = read(&next).expect_err("cut");
    assert_eq!(error.class(), ErrorClass::Outside, "{error}");
    assert_eq!(texts(&read(&good).expect("still there"))["fleet.toml"], "x");
    is_broken.store(false, Ordering::Relaxed);
    assert_eq!(texts(&read(&next).expect("now it works"))["fleet.toml"], noise);
    let leftovers: Vec<_> = walk(&fixture.cache())
        .into_iter()
        .filter(|path| path.contains("objects/pack") && !path.ends_with(".pack") && !path.ends_with(".idx"))
        .collect();
    assert_eq!(leftovers, Vec::<String>::new(), "no partial packs");
}

fn walk(dir: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => found.extend(walk(&entry.path())),
            false => found.push(entry.path().display().to_string()),
        }
    }
    found
}

#[test]
fn a_damaged_or_deleted_cache_is_filled_again() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let server = HttpServer::start(fixture.dir.path());
    let expected = fixture.read(&source(&server)).expect("read");
    for damage in ["packs", "head", "everything"] {
        let before = server.fetches();
        for path in walk(&fixture.cache()) {
            let is_pack = path.ends_with(".pack");
            match damage {
                "packs" if is_pack => {
                    use std::os::unix::fs::PermissionsExt as _;
                    let mut bytes = std::fs::read(&path).expect("read");
                    let middle = bytes.len() / 2;
                    bytes[middle..middle + 20].fill(0xff);
                    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))
                        .expect("writable");
                    std::fs::write(&path, bytes).expect("written");
                }
                "head" if path.ends_with(".git/HEAD") || path.ends_with(".git/config") => {
                    std::fs::write(&path, "garbage").expect("written");
                }
                "everything" => std::fs::remove_file(&path).expect("removed"),
                _ => {}
            }
        }
        assert_eq!(fixture.read(&source(&server)).expect(damage), expected, "{damage}");
        // What is not needed for reading objects does not have to be intact.
        let needed = usize::from(damage != "head");
        assert_eq!(server.fetches(), before + needed, "{damage}");
    }
}

#[test]
fn git_062_a_pack_over_the_limit_is_not_finished() {
    let fixture = Fixture::empty();
    let mut noise = 1u64;
    let bytes: Vec<u8> = (0..3 << 20)
        .map(|_| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (noise >> 56) as u8
        })
        .collect();
    fixture.write("big.bin", &bytes);
    fixture.commit("big", &[("fleet.toml", "x")]);
    let server = HttpServer::start(fixture.dir.path());
    assert_eq!(Limits::default().pack_bytes, 256 << 20);
    let limits = Limits { pack_bytes: 1 << 20, ..Limits::default() };
    let error = fixture.read(&Source { limits, ..source(&server) }).expect_err("too large");
    assert_eq!(
        error_of(&server, &error),
        "the pack of `http://HOST/fleet/.git` is larger than 1048576 bytes"
    );
    assert_eq!(
        error.help(),
        "Move the fleet into a repository of its own, or raise the limit (`--limit pack_bytes=512MiB`)."
    );
    assert_eq!((error.class(), error.reason()), (ErrorClass::Input, "RepoTooLarge"));
    fixture.read(&source(&server)).expect("within the usual limits");

    let limits = Limits { reference_bytes: 100, ..Limits::default() };
    let error = fixture.resolve(&Source { limits, ..source(&server) }).expect_err("too many");
    assert!(matches!(error, GitError::TooManyReferences { .. }), "{error}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the deadline is one of real time")]
fn git_064_a_slow_server_is_left_at_the_deadline() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let server = HttpServer::scripted(fixture.dir.path(), |asked| match asked.is_fetch() {
        true => Reply::Trickle(Duration::from_millis(100)),
        false => Reply::Backend,
    });
    assert_eq!(Limits::default().fetch_timeout, Duration::from_secs(60));
    let limits = Limits { fetch_timeout: Duration::from_millis(500), ..Limits::default() };
    let started = Instant::now();
    let error = fixture.read(&Source { limits, ..source(&server) }).expect_err("slow");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(error_of(&server, &error), "fetching of `http://HOST/fleet/.git` took longer than 0.5 s");
    assert_eq!(error.reason(), "FetchTimeout");

    // A server that takes the connection and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/fleet", silent.local_addr().expect("an address"));
    let limits = Limits { list_timeout: Duration::from_millis(300), ..Limits::default() };
    let mute = Source { allow_insecure_http: true, limits, ..Source::new(url) };
    let error = fixture.resolve(&mute).expect_err("silent");
    assert!(matches!(error, GitError::Timeout { .. }), "{error}");
}

#[test]
fn a_fetch_stops_when_asked() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let server = HttpServer::scripted(fixture.dir.path(), |asked| match asked.is_fetch() {
        true => Reply::Trickle(Duration::from_millis(50)),
        false => Reply::Backend,
    });
    let opened = git::open(&source(&server), &fixture.cache()).expect("opened");
    let resolved = opened.resolve().expect("resolved");
    let should_stop = AtomicBool::new(false);
    let told = AtomicUsize::new(0);
    let stop_at_first_byte = |step| {
        if let git::Step::Receiving { .. } = step {
            told.fetch_add(1, Ordering::Relaxed);
            should_stop.store(true, Ordering::Relaxed);
        }
    };
    let error = opened.fetch(&resolved, &stop_at_first_byte, &should_stop).expect_err("stopped");
    assert!(matches!(error, GitError::Stopped { .. }), "{error}");
    assert!(told.load(Ordering::Relaxed) > 0);
}

#[test]
fn rewrites_are_seen_through_a_shallow_store() {
    let fixture = Fixture::with(&[("a", "0")]);
    let server = HttpServer::start(fixture.dir.path());
    let opened = git::open(&source(&server), &fixture.cache()).expect("opened");
    let stop = AtomicBool::new(false);
    let fetch = || {
        let resolved = opened.resolve().expect("resolved");
        opened.fetch(&resolved, &|_| (), &stop).expect("read");
        resolved.commit
    };
    let history = |old: &CommitId, new: &CommitId| opened.history(old, new, &stop).expect("history");
    let how = |old: &CommitId, new: &CommitId| match history(old, new) {
        History::Rewritten { how, dropped, .. } => (how, dropped.len()),
        other => panic!("{other:?}"),
    };
    let first = fetch();
    fixture.grow(69);
    let far = fetch();
    assert_eq!(history(&first, &far), History::FastForward, "69 commits apart");
    fixture.git(&["reset", "--quiet", "--hard", "HEAD~3"]);
    let back = fetch();
    assert_eq!(how(&far, &back), (Rewrite::Rewound, 3));
    fixture.commit("other", &[("a", "other")]);
    let aside = fetch();
    assert_eq!(how(&far, &aside), (Rewrite::Diverged, 3));
    fixture.git(&["checkout", "--quiet", "--orphan", "new"]);
    fixture.commit("unrelated", &[("a", "new")]);
    fixture.git(&["branch", "--quiet", "-M", "new", "main"]);
    let unrelated = fetch();
    assert_eq!(how(&far, &unrelated), (Rewrite::Unrelated, 50));
}

#[test]
fn processes_share_a_cache_without_harm() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let server = HttpServer::start(fixture.dir.path());
    std::thread::scope(|threads| {
        for _ in 0..6 {
            threads.spawn(|| {
                let repository = fixture.read(&source(&server)).expect("read");
                assert_eq!(texts(&repository)["fleet.toml"], "x");
            });
        }
    });
}

#[test]
fn it_can_be_called_from_an_async_worker() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let server = HttpServer::start(fixture.dir.path());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let source = source(&server);
    let repository = runtime.block_on(async { fixture.read(&source) }).expect("read");
    assert_eq!(repository.files.len(), 1);
}
