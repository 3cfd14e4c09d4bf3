//! Credentials, proxies and submodules: what is sent, to whom, and what is refused before anybody is asked.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use provisor::io::git::{
    self, Access, CredentialTemplate, ErrorClass, GitError, NextStep, Source, UrlPrefix,
};
use provisor::model::repository::Refusal;

use super::fixture::{Fixture, git_in, texts};
use super::server::{Asked, HttpServer, Reply, status};
use super::tls::Authority;

/// A mounted Secret.
fn secret(fixture: &Fixture, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let directory = fixture.dir.path().join(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    for (file, content) in files {
        std::fs::write(directory.join(file), content).expect("written");
    }
    directory
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// As Git does for those who say this, and 401 for the others.
fn only_for(wanted: String) -> impl Fn(&Asked) -> Reply + Send + Sync + 'static {
    move |asked| match asked.headers.get("authorization") == Some(&wanted) {
        true => Reply::Backend,
        false => status("401 Unauthorized", "WWW-Authenticate: Basic realm=\"git\"\r\n"),
    }
}

fn with_credentials(url: String, credentials: &Path) -> Source {
    let access = Access { credentials: Some(credentials.into()), ..Access::default() };
    Source { access, ..Source::new(url) }
}

fn said_to(server: &HttpServer) -> Vec<String> {
    server.asked().into_iter().filter_map(|asked| asked.headers.get("authorization").cloned()).collect()
}

#[test]
fn git_027_a_client_certificate_and_its_key_come_together() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let authority = Authority::new();
    let (certificate, key) = authority.vouch("ada");
    let server = HttpServer::listen(fixture.dir.path(), Some(authority.server(true)), |_| Reply::Backend);
    let pem = (certificate.pem(), key.serialize_pem());
    for (given, content, missing) in [("tls.crt", &pem.0, "tls.key"), ("tls.key", &pem.1, "tls.crt")] {
        let half = secret(&fixture, given, &[(given, content), ("ca.crt", &authority.pem())]);
        let error =
            git::open(&with_credentials(server.url(), &half), &fixture.cache()).expect_err("half of it");
        let expected = format!("`{}` has `{given}` and no `{missing}`: they come together", half.display());
        assert_eq!(error.to_string(), expected);
        assert_eq!((error.class(), error.next_step()), (ErrorClass::Input, NextStep::NeedsPerson));
    }
    assert!(server.asked().is_empty(), "nobody was asked");
    let both =
        secret(&fixture, "both", &[("tls.crt", &pem.0), ("tls.key", &pem.1), ("ca.crt", &authority.pem())]);
    let read = fixture.read(&with_credentials(server.url(), &both)).expect("with a certificate");
    assert_eq!(texts(&read)["fleet.toml"], "x");
    let none = secret(&fixture, "none", &[("ca.crt", &authority.pem())]);
    let error = fixture.resolve(&with_credentials(server.url(), &none)).expect_err("without one");
    assert_eq!(error.class(), ErrorClass::Outside, "{error}");
}

#[test]
fn an_authority_of_ones_own_is_needed_and_several_may_overlap() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let (old, new) = (Authority::new(), Authority::new());
    let server = HttpServer::listen(fixture.dir.path(), Some(new.server(false)), |_| Reply::Backend);
    let error = fixture.resolve(&Source::new(server.url())).expect_err("nobody vouches for it");
    assert!(matches!(error, GitError::Unreachable { .. }), "{error}");
    let only_old = secret(&fixture, "old", &[("ca.crt", &old.pem())]);
    assert!(fixture.resolve(&with_credentials(server.url(), &only_old)).is_err());
    let both = secret(&fixture, "both", &[("ca.crt", &format!("{}{}", old.pem(), new.pem()))]);
    fixture.read(&with_credentials(server.url(), &both)).expect("during the rotation");
}

#[test]
fn git_030_a_rotated_secret_is_read_again_without_a_restart() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let authority = Authority::new();
    let tls = authority.server(false);
    let server = HttpServer::listen(fixture.dir.path(), Some(tls.clone()), only_for(basic("ada", "new")));
    let files = [("username", "ada"), ("password", "old\n"), ("ca.crt", &authority.pem())];
    let credentials = secret(&fixture, "secret", &files);
    let source = git::open(&with_credentials(server.url(), &credentials), &fixture.cache()).expect("opened");
    let error = source.resolve().expect_err("the old password");
    assert_eq!(
        (error.reason(), error.next_step()),
        ("AuthenticationFailed", NextStep::Retry { after: None })
    );
    assert!(!error.to_string().contains("old") && !format!("{source:?}").contains("old\""));
    assert_eq!(said_to(&server).len(), 1, "the same words are not said twice");
    std::fs::write(credentials.join("password"), "new\n").expect("rotated");
    let resolved = source.resolve().expect("the next attempt");
    source.fetch(&resolved, &|_| (), &false.into()).expect("fetched");

    // Rotated while the server was refusing: read again before the failure is told.
    let (file, wanted) = (credentials.join("password"), basic("ada", "newer"));
    let server = HttpServer::listen(fixture.dir.path(), Some(tls), move |asked| {
        if asked.headers.get("authorization") == Some(&wanted) {
            return Reply::Backend;
        }
        std::fs::write(&file, "newer").expect("rotated");
        status("401 Unauthorized", "")
    });
    fixture.read(&with_credentials(server.url(), &credentials)).expect("within one attempt");
}

fn template(prefix: &str, credentials: PathBuf) -> CredentialTemplate {
    CredentialTemplate { prefix: UrlPrefix::parse(prefix).expect(prefix), credentials }
}

#[test]
fn git_031_the_longest_template_wins_in_any_order() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let authority = Authority::new();
    let server =
        HttpServer::listen(fixture.dir.path(), Some(authority.server(false)), only_for("Bearer long".into()));
    let ca = authority.pem();
    let short = secret(&fixture, "short", &[("bearerToken", "short"), ("ca.crt", &ca)]);
    let long = secret(&fixture, "long", &[("bearerToken", "long"), ("ca.crt", &ca)]);
    let host = format!("https://127.0.0.1:{}", server.port);
    let mut templates = vec![
        template(&host, short.clone()),
        template(&format!("{host}/fleet"), long),
        template(&format!("{host}/fl"), short.clone()),
        template("https://127.0.0.1/fleet/.git", short),
    ];
    for _ in 0..2 {
        let access = Access { templates: templates.clone(), ..Access::default() };
        let source = Source { access, ..Source::new(server.url()) };
        fixture.read(&source).expect("the longest prefix");
        templates.reverse();
    }
    assert!(said_to(&server).iter().all(|said| said == "Bearer long"), "nothing else was sent");
}

#[test]
fn git_032_own_credentials_never_fall_back_to_a_template() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let authority = Authority::new();
    let server = HttpServer::listen(
        fixture.dir.path(),
        Some(authority.server(false)),
        only_for("Bearer right".into()),
    );
    let ca = authority.pem();
    let own = secret(&fixture, "own", &[("bearerToken", "wrong"), ("ca.crt", &ca)]);
    let shared = secret(&fixture, "shared", &[("bearerToken", "right"), ("ca.crt", &ca)]);
    let templates = vec![template(&format!("https://127.0.0.1:{}", server.port), shared)];
    let access = Access { credentials: Some(own), templates, ..Access::default() };
    let source = Source { access: access.clone(), ..Source::new(server.url()) };
    let error = fixture.resolve(&source).expect_err("no fallback");
    assert_eq!(error.reason(), "AuthenticationFailed", "{error}");
    assert_eq!(said_to(&server), ["Bearer wrong"]);
    let without_own = Source { access: Access { credentials: None, ..access }, ..source };
    fixture.resolve(&without_own).expect("the template would have worked");
}

#[test]
fn credentials_are_not_sent_without_encryption() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let server = HttpServer::start(fixture.dir.path());
    let own = secret(&fixture, "own", &[("bearerToken", "right")]);
    let source = Source { allow_insecure_http: true, ..with_credentials(server.url(), &own) };
    fixture.read(&source).expect("read by everybody");
    assert!(!server.asked().is_empty() && said_to(&server).is_empty());
}

/// A SOCKS5 server that wants a name and a password, and notes how often it was used.
fn socks(used: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let used = used.clone();
            std::thread::spawn(move || drop(socks_session(stream, &used)));
        }
    });
    port
}

fn socks_session(mut client: TcpStream, used: &AtomicUsize) -> std::io::Result<()> {
    let read = |client: &mut TcpStream, count: usize| {
        let mut bytes = vec![0; count];
        client.read_exact(&mut bytes).map(|()| bytes)
    };
    let greeting = read(&mut client, 2)?;
    let methods = read(&mut client, greeting[1].into())?;
    assert!(methods.contains(&2), "a name and a password are offered");
    client.write_all(&[5, 2])?;
    let length = read(&mut client, 2)?[1];
    let name = read(&mut client, length.into())?;
    let length = read(&mut client, 1)?[0];
    let password = read(&mut client, length.into())?;
    assert_eq!((name.as_slice(), password.as_slice()), (&b"ada"[..], &b"secret"[..]));
    client.write_all(&[1, 0])?;
    let kind = read(&mut client, 4)?[3];
    let length = if kind == 3 { read(&mut client, 1)?[0].into() } else { 4 };
    read(&mut client, length)?;
    let port = read(&mut client, 2)?;
    let server = TcpStream::connect(("127.0.0.1", u16::from_be_bytes([port[0], port[1]])))?;
    client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0])?;
    used.fetch_add(1, Ordering::Relaxed);
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    let upward = std::thread::spawn(move || std::io::copy(&mut from, &mut to).map(drop));
    let (mut from, mut to) = (server, client);
    std::io::copy(&mut from, &mut to)?;
    drop(to.shutdown(std::net::Shutdown::Both));
    drop(upward.join());
    Ok(())
}

#[test]
fn git_033_a_sources_own_proxy_outranks_the_environments() {
    let fixture = Fixture::with(&[
        ("fleet.toml", "name = \"shop\"\n"),
        ("environments/dev.toml", "pools.a.strategy = 'spot'\n"),
    ]);
    let authority = Authority::new();
    let server = HttpServer::listen(fixture.dir.path(), Some(authority.server(false)), |_| Reply::Backend);
    let credentials = secret(&fixture, "ca", &[("ca.crt", &authority.pem())]);
    let used = Arc::new(AtomicUsize::new(0));
    let port = socks(used.clone());
    let trap = TcpListener::bind("127.0.0.1:0").expect("a port");
    trap.set_nonblocking(true).expect("a flag");
    let trap_url = format!("http://{}", trap.local_addr().expect("an address"));
    let run = |more: &[String]| {
        let mut command = assert_cmd::Command::cargo_bin("provisor").expect("the program is built");
        command.env("XDG_CACHE_HOME", fixture.dir.path());
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            command.env(name, &trap_url);
        }
        command.env_remove("NO_PROXY").env_remove("no_proxy");
        command.args([
            "validate",
            &server.url(),
            "--limit",
            "connect_timeout=2",
            "--limit",
            "list_timeout=3",
        ]);
        command.arg("--credentials").arg(&credentials).args(more).output().expect("it runs")
    };
    let own = ["--proxy".to_owned(), format!("socks5h://ada:secret@127.0.0.1:{port}")];
    let output = run(&own);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(used.load(Ordering::Relaxed) >= 2, "references and objects came through it");
    assert!(trap.accept().is_err(), "nobody asked the other");
    // The environment's proxy counts for whoever has no other.
    assert_eq!(run(&[]).status.code(), Some(3));
    assert!(trap.accept().is_ok());
    let output = run(&["--proxy".to_owned(), "gopher://ada:secret@127.0.0.1:1".to_owned()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(
        said.contains("`gopher://127.0.0.1:1` cannot be used as a proxy") && !said.contains("secret"),
        "{said}"
    );
}

#[test]
fn git_039_submodules_pass_the_rules_of_sources_or_are_refused() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let other = Fixture { dir: tempfile::tempdir_in(fixture.dir.path()).expect("a directory") };
    let name = other.dir.path().file_name().expect("a name").to_string_lossy().into_owned();
    std::fs::create_dir(other.work_tree()).expect("a directory");
    other.git(&["init", "--quiet", "--initial-branch=main"]);
    other.commit("shared", &[("spot.yaml.j2", "shared"), ("deep/a.txt", "b")]);
    let server = HttpServer::start(fixture.dir.path());
    let host = format!("http://127.0.0.1:{}", server.port);
    let place = other.work_tree().display().to_string();
    fixture.git(&["submodule", "--quiet", "add", &place, "templates"]);
    let allowed = vec![UrlPrefix::parse(&format!("{host}/{name}")).expect("a prefix")];
    let source = Source { submodules: allowed, allow_insecure_http: true, ..Source::new(server.url()) };
    for (address, why) in [
        ("file:///etc", "`file:///etc` is a local repository, and local repositories are not allowed here"),
        ("/etc", "`/etc` is a local repository, and local repositories are not allowed here"),
        ("https://elsewhere.example.com/x", "it is not below an allowed prefix"),
        ("http://127.0.0.1:1/x", "it is not below an allowed prefix"),
        ("ext::sh -c true", "`ext::` names a program to run, not a repository"),
        ("../../../../../x", "it leaves its server"),
        ("ssh://-oProxyCommand=true/x", "begins with `-`"),
    ] {
        fixture.git(&["config", "-f", ".gitmodules", "submodule.templates.url", address]);
        fixture.commit("another address", &[]);
        let error = fixture.read(&source).expect_err(address);
        assert!(matches!(error, GitError::SubmoduleRefused { .. }), "{address}: {error}");
        assert!(error.to_string().starts_with("the submodule `templates`"), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!((error.class(), error.next_step()), (ErrorClass::Input, NextStep::NeedsPerson));
    }
    // Git counts a relative address from the address of the parent, which ends in `fleet/.git` here.
    for address in [format!("../../{name}/fleet/.git"), format!("{host}/{name}/fleet/.git")] {
        fixture.git(&["config", "-f", ".gitmodules", "submodule.templates.url", &address]);
        fixture.commit("allowed", &[]);
        let read = fixture.read(&source).expect("read");
        let found = texts(&read);
        assert_eq!(found["templates/spot.yaml.j2"], "shared", "{address}");
        assert_eq!(found["templates/deep/a.txt"], "b");
        assert_eq!(read.refusals_under("templates").count(), 0);
    }
    // Off by default, and one level deep.
    let off = Source { submodules: Vec::new(), ..source.clone() };
    assert_eq!(
        fixture.read(&off).expect("read").refusal_of("templates"),
        Some(("templates", Refusal::Submodule))
    );
    git_in(other.dir.path(), &["clone", "--quiet", "fleet", "third"], b"");
    other.git(&["submodule", "--quiet", "add", "../third", "deeper"]);
    let nested = other.commit("nested", &[]);
    git_in(&fixture.work_tree().join("templates"), &["pull", "--quiet", &place, "main"], b"");
    assert_eq!(git_in(&fixture.work_tree().join("templates"), &["rev-parse", "HEAD"], b""), nested);
    fixture.commit("nested", &[]);
    let read = fixture.read(&source).expect("read");
    assert_eq!(read.refusal_of("templates/deeper/x"), Some(("templates/deeper", Refusal::Submodule)));
}
