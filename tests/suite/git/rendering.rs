//! What a source refuses, as a person meets it: where it is needed it is an error that names it, elsewhere nothing.

use provisor::gitops::render::{RenderSettings, render_environment};
use provisor::io::git::{Limits, Source, Symlinks, read_directory};

use super::fixture::{Fixture, git_in};
use super::server::{HttpServer, Reply};

const FLEET: (&str, &str) = ("fleet.toml", "name = \"shop\"\n");
const PROD: (&str, &str) = ("environments/prod.toml", "[pools.general]\nstrategy = \"custom\"\n");

/// The mistakes of rendering `prod`, judged as a commit and as files on disk, which must agree.
fn mistakes(fixture: &Fixture) -> Vec<String> {
    let commit = fixture.read(&fixture.source()).expect("the commit is read");
    let disk = read_directory(&fixture.work_tree(), &Limits::default(), Symlinks::Refused)
        .expect("the directory is read");
    let [from_commit, from_disk] = [commit, disk].map(|repository| {
        let rendered = render_environment(&repository, "prod", &RenderSettings::default());
        let found = rendered.err().into_iter().flatten();
        found.map(|found| format!("{}: {}", found.place.file(), found.message)).collect::<Vec<_>>()
    });
    assert_eq!(from_commit, from_disk);
    from_commit
}

fn template() -> String {
    let built_in = concat!(env!("CARGO_MANIFEST_DIR"), "/env-templates/on-demand.yaml.j2");
    std::fs::read_to_string(built_in).expect("a built-in template")
}

#[test]
fn git_036_symbolic_links_are_errors_where_they_are_read() {
    let fixture = Fixture::with(&[FLEET, PROD, ("real.j2", &template())]);
    std::fs::create_dir(fixture.work_tree().join("templates")).expect("a directory");
    std::os::unix::fs::symlink("../real.j2", fixture.work_tree().join("templates/custom.yaml.j2"))
        .expect("a link");
    std::os::unix::fs::symlink("/etc/passwd", fixture.work_tree().join("elsewhere")).expect("a link");
    fixture.commit("links", &[]);
    let found = mistakes(&fixture);
    assert!(
        found.iter().any(|found| found.starts_with("templates/custom.yaml.j2: the path is a symbolic link")),
        "{found:?}"
    );
    assert!(!found.iter().any(|found| found.contains("elsewhere")), "{found:?}");
}

#[test]
fn git_038_a_submodule_is_an_error_where_it_is_read() {
    let fixture = Fixture::with(&[FLEET, PROD]);
    git_in(fixture.dir.path(), &["clone", "--quiet", "fleet", "other"], b"");
    fixture.git(&["submodule", "--quiet", "add", "../other", "templates"]);
    fixture.commit("read", &[]);
    let found = mistakes(&fixture);
    let expected = "templates: the path is a submodule or a nested repository";
    assert!(found.iter().any(|found| found == expected), "{found:?}");

    let fixture = Fixture::with(&[FLEET, PROD, ("templates/custom.yaml.j2", &template())]);
    git_in(fixture.dir.path(), &["clone", "--quiet", "fleet", "other"], b"");
    fixture.git(&["submodule", "--quiet", "add", "../other", "vendor/docs"]);
    fixture.commit("not read", &[]);
    assert_eq!(mistakes(&fixture), Vec::<String>::new());
}

#[test]
fn git_040_an_lfs_pointer_is_an_error_and_no_server_is_asked_for_it() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    let fixture = Fixture::with(&[FLEET, ("environments/prod.toml", pointer), ("docs/picture.png", pointer)]);
    let expected = ["environments/prod.toml: the path is a Git LFS pointer, not the content"];
    assert_eq!(mistakes(&fixture), expected);
    let server = HttpServer::scripted(fixture.dir.path(), |_| Reply::Backend);
    fixture
        .commit("server", &[(".lfsconfig", &format!("[lfs]\nurl = http://127.0.0.1:{}/lfs\n", server.port))]);
    let source = Source { allow_insecure_http: true, ..Source::new(server.url()) };
    fixture.read(&source).expect("read");
    assert!(!server.asked().iter().any(|asked| asked.path.contains("lfs")));
}

#[test]
fn git_043_an_include_of_an_ignored_file_is_an_error() {
    let including = format!("{{% include 'part.j2' %}}{}", template());
    let fixture = Fixture::with(&[
        FLEET,
        PROD,
        ("templates/custom.yaml.j2", &including),
        ("templates/part.j2", "{# nothing #}"),
        (".provisorignore", "templates/part.j2\n"),
    ]);
    let found = mistakes(&fixture);
    assert!(found.iter().any(|found| found.contains("left out by an ignore file")), "{found:?}");
    fixture.commit("not ignored", &[(".provisorignore", "")]);
    assert_eq!(mistakes(&fixture), Vec::<String>::new());
}

#[test]
fn git_063_a_large_strategy_file_is_an_error_with_its_path() {
    let fixture = Fixture::with(&[FLEET]);
    fixture.write("environments/prod.toml", &vec![b'#'; 2 << 20]);
    fixture.commit("large", &[]);
    let expected =
        ["environments/prod.toml: the path is too large: 2097152 bytes, and a file may have 1048576"];
    assert_eq!(mistakes(&fixture), expected);
}
