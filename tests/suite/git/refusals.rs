//! What is refused in a commit and on disk, and the limits; both must judge alike.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use provisor::io::git::{self, ErrorClass, GitError, Limits, Source, Subdirectory, Symlinks, read_directory};
use provisor::model::repository::{LinkProblem, Refusal, Repository};

use super::fixture::{Fixture, git_in, texts, told};

/// Reads the same content as a commit and as a directory.
fn both(fixture: &Fixture) -> [Repository; 2] {
    let commit = fixture.read(&fixture.source()).expect("the commit");
    let directory =
        read_directory(&fixture.work_tree(), &Limits::default(), Symlinks::Refused).expect("the directory");
    [commit, directory]
}

fn refused(repository: &Repository) -> Vec<(&str, Refusal)> {
    repository.refused.iter().map(|(path, reason)| (&**path, *reason)).collect()
}

#[test]
fn symbolic_links_are_refused_and_never_followed() {
    let fixture = Fixture::with(&[("fleet.toml", "x"), ("real/a.toml", "y")]);
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, fixture.work_tree().join(name)).expect("a link");
    };
    link("/etc/passwd", "absolute.toml");
    link("../../x", "outside.toml");
    link("real", "directory");
    link("loop", "loop");
    link("real/a.toml", "inside.toml");
    fixture.commit("links", &[]);
    for repository in both(&fixture) {
        assert_eq!(texts(&repository).into_keys().collect::<Vec<_>>(), ["fleet.toml", "real/a.toml"]);
        let names = ["absolute.toml", "directory", "inside.toml", "loop", "outside.toml"];
        assert_eq!(refused(&repository), names.map(|name| (name, Refusal::Symlink)));
        let (at, reason) = repository.refusal_of("directory/a.toml").expect("below a link");
        assert_eq!(format!("`{at}` {reason}"), "`directory` is a symbolic link");
    }
    // The directory of the fleet must not be a link either.
    let source =
        Source { subdirectory: Subdirectory::parse("directory").expect("inside"), ..fixture.source() };
    let error = fixture.read(&source).expect_err("a link");
    assert!(error.to_string().ends_with("is a symbolic link, not a directory"), "{error}");
}

/// Reads the same content as a commit and as a directory, following links within the repository.
fn both_with_links(fixture: &Fixture, root: &str) -> [Repository; 2] {
    let symlinks = Symlinks::WithinRepository;
    let subdirectory = Subdirectory::parse(root).expect("inside");
    let source = Source { symlinks, subdirectory, ..fixture.source() };
    let commit = fixture.read(&source).expect("the commit");
    let place = fixture.work_tree().join(root);
    let directory = read_directory(&place, &Limits::default(), symlinks).expect("the directory");
    assert_eq!(commit.files, directory.files);
    assert_eq!(commit.refused, directory.refused);
    [commit, directory]
}

fn link(fixture: &Fixture, target: &str, name: &str) {
    let place = fixture.work_tree().join(name);
    std::fs::create_dir_all(place.parent().expect("a parent")).expect("directories");
    std::os::unix::fs::symlink(target, place).expect("a link");
}

#[test]
fn git_036_links_within_the_repository_are_followed_where_that_is_allowed() {
    let fixture = Fixture::with(&[
        ("infra/fleet.toml", "x"),
        ("infra/real/a.toml", "a"),
        ("infra/real/deep/b.toml", "b"),
        ("shared/c.toml", "c"),
    ]);
    link(&fixture, "real/a.toml", "infra/file.toml");
    link(&fixture, "real/deep", "infra/folder");
    link(&fixture, "../shared/c.toml", "infra/beside.toml");
    link(&fixture, "folder/b.toml", "infra/over-a-link.toml");
    link(&fixture, "file.toml", "infra/twice.toml");
    fixture.commit("links", &[]);
    for repository in both_with_links(&fixture, "infra") {
        assert_eq!(refused(&repository), []);
        let found = texts(&repository);
        for (path, content) in [
            ("file.toml", "a"),
            ("folder/b.toml", "b"),
            ("beside.toml", "c"),
            ("over-a-link.toml", "b"),
            ("twice.toml", "a"),
        ] {
            assert_eq!(found.get(path).map(String::as_str), Some(content), "{path}");
        }
        assert_eq!(found.len(), 8, "{found:?}");
    }
}

#[test]
fn git_037_no_link_reads_a_byte_from_outside() {
    let fixture = Fixture::with(&[("fleet.toml", "x"), ("real/a.toml", "a")]);
    std::fs::write(fixture.dir.path().join("secret"), "SECRET").expect("written");
    std::fs::create_dir(fixture.dir.path().join("outside")).expect("a directory");
    std::fs::write(fixture.dir.path().join("outside/secret"), "SECRET").expect("written");
    link(&fixture, "/etc/passwd", "absolute.toml");
    link(&fixture, "../../secret", "real/escapes.toml");
    link(&fixture, "round.toml", "circle.toml");
    link(&fixture, "circle.toml", "round.toml");
    // An intermediate directory leads out, and the link itself looks harmless.
    link(&fixture, "../outside", "door");
    link(&fixture, "door/secret", "through.toml");
    link(&fixture, ".git/config", "git.toml");
    link(&fixture, "..", "real/parent");
    link(&fixture, "nowhere", "dangling.toml");
    fixture.commit("links", &[]);
    use LinkProblem::{Absolute, Circle, Dangling, Escapes};
    let expected = [
        ("absolute.toml", Absolute),
        ("circle.toml", Circle),
        ("dangling.toml", Dangling),
        ("door", Escapes),
        ("git.toml", Escapes),
        ("real/escapes.toml", Escapes),
        ("real/parent", Circle),
        ("round.toml", Circle),
        ("through.toml", Escapes),
    ];
    for repository in both_with_links(&fixture, "") {
        assert_eq!(refused(&repository), expected.map(|(path, problem)| (path, Refusal::Link(problem))));
        assert_eq!(texts(&repository).into_keys().collect::<Vec<_>>(), ["fleet.toml", "real/a.toml"]);
    }
}

#[test]
fn submodules_are_named_and_not_entered() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    git_in(fixture.dir.path(), &["clone", "--quiet", "fleet", "other"], b"");
    fixture.git(&["submodule", "--quiet", "add", "../other", "templates"]);
    fixture.commit("submodule", &[]);
    for repository in both(&fixture) {
        assert_eq!(refused(&repository), [("templates", Refusal::Submodule)]);
        let (at, reason) = repository.refusal_of("templates/spot.yaml.j2").expect("below a submodule");
        assert_eq!(format!("`{at}` {reason}"), "`templates` is a submodule or a nested repository");
    }
}

#[test]
fn lfs_pointers_are_not_content() {
    let pointer = "version https://git-lfs.github.com/spec/v1\n\
                   oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
    let fixture = Fixture::with(&[("environments/prod.toml", pointer), ("fleet.toml", "x")]);
    for repository in both(&fixture) {
        assert_eq!(refused(&repository), [("environments/prod.toml", Refusal::LfsPointer)]);
        assert!(!repository.files.contains_key("environments/prod.toml"));
    }
}

#[test]
fn git_063_large_files_are_named_with_the_limit() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    fixture.write("environments/huge.toml", &vec![b'#'; 2 << 20]);
    fixture.write("environments/fits.toml", &vec![b'#'; 1 << 20]);
    fixture.commit("large", &[]);
    for repository in both(&fixture) {
        assert_eq!(
            refused(&repository),
            [("environments/huge.toml", Refusal::TooLarge { bytes: 2 << 20, limit: 1 << 20 })]
        );
        let (at, reason) = repository.refusal_of("environments/huge.toml").expect("refused");
        assert_eq!(
            format!("`{at}` {reason}"),
            "`environments/huge.toml` is too large: 2097152 bytes, and a file may have 1048576"
        );
        assert_eq!(
            texts(&repository).into_keys().collect::<Vec<_>>(),
            ["environments/fits.toml", "fleet.toml"]
        );
    }
}

#[test]
fn a_file_of_100_mb_is_refused_without_loading_it() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    std::fs::create_dir(fixture.work_tree().join("environments")).expect("a directory");
    let file = std::fs::File::create(fixture.work_tree().join("environments/prod.toml")).expect("a file");
    file.set_len(100 << 20).expect("sparse");
    fixture.commit("100 MB", &[]);
    for repository in both(&fixture) {
        let expected = Refusal::TooLarge { bytes: 100 << 20, limit: 1 << 20 };
        assert_eq!(refused(&repository), [("environments/prod.toml", expected)]);
    }
}

#[test]
fn git_063_too_many_files_are_an_error_with_the_count() {
    let fixture = Fixture::empty();
    for number in 0..6_000 {
        fixture.write(&format!("many/{number:04}.toml"), b"");
    }
    fixture.write("nodes/fleet.toml", b"x");
    fixture.commit("6000 files", &[]);
    let commit = fixture.read(&fixture.source()).expect_err("too many");
    let directory =
        read_directory(&fixture.work_tree(), &Limits::default(), Symlinks::Refused).expect_err("too many");
    let name = fixture.work_tree().display().to_string();
    for error in [commit, directory] {
        assert_eq!(
            told(&error),
            format!(
                "`{name}` has more than 5000 files to consider; `many/5000.toml` is one too many\n\
                 Name the directory of the fleet (`--path`), leave files out with `.provisorignore`, or raise the limit (`--limit files=10000`)."
            )
        );
        assert_eq!((error.class(), error.reason()), (ErrorClass::Input, "TooManyFiles"));
    }
    // Both ways out that the help names.
    let part = Source { subdirectory: Subdirectory::parse("nodes").expect("inside"), ..fixture.source() };
    assert_eq!(fixture.read(&part).expect("a part").files.len(), 1);
    fixture.commit("ignore", &[(".provisorignore", "/many/\n")]);
    for repository in both(&fixture) {
        assert_eq!(
            texts(&repository).into_keys().collect::<Vec<_>>(),
            [".provisorignore", "nodes/fleet.toml"]
        );
    }
}

#[test]
fn the_sum_of_all_files_is_limited() {
    let fixture = Fixture::empty();
    for number in 0..11 {
        fixture.write(&format!("{number:02}.toml"), &vec![b'#'; 1 << 20]);
    }
    fixture.commit("11 MiB", &[]);
    let commit = fixture.read(&fixture.source()).expect_err("too much");
    let directory =
        read_directory(&fixture.work_tree(), &Limits::default(), Symlinks::Refused).expect_err("too much");
    let name = fixture.work_tree().display().to_string();
    for error in [commit, directory] {
        assert_eq!(
            error.to_string(),
            format!("the files of `{name}` are more than 10485760 bytes together; `10.toml` is one too many")
        );
        assert_eq!(error.reason(), "ContentTooLarge");
    }
}

/// A tree of ten trees of ten trees …: small to store, endless to walk.
#[test]
fn a_tree_bomb_ends_at_the_limit() {
    let fixture = Fixture::empty();
    let blob = fixture.git_with_input(&["hash-object", "-w", "--stdin"], b"boom");
    let mut tree = fixture.git_with_input(&["mktree"], format!("100644 blob {blob}\tf\n").as_bytes());
    for _ in 0..12 {
        let entries: String = (0..10).map(|number| format!("040000 tree {tree}\td{number}\n")).collect();
        tree = fixture.git_with_input(&["mktree"], entries.as_bytes());
    }
    let commit = fixture.git_with_input(&["commit-tree", &tree], b"bomb");
    fixture.git(&["update-ref", "refs/heads/main", &commit]);
    let error = fixture.read(&fixture.source()).expect_err("a bomb");
    assert!(matches!(error, GitError::TooManyFiles { .. }), "{error}");
}

#[test]
fn unsafe_paths_are_listed_and_not_taken() {
    let fixture = Fixture::empty();
    let blob = fixture.git_with_input(&["hash-object", "-w", "--stdin"], b"x");
    let mut tree = Vec::new();
    for name in [&b"a\\b"[..], b"caf\xe9.toml", b"new\nline"] {
        tree.extend_from_slice(format!("100644 blob {blob}\t").as_bytes());
        tree.extend_from_slice(name);
        tree.push(0);
    }
    // What `mktree` refuses to write can still be pushed by somebody.
    let raw_id: Vec<u8> =
        (0..40).step_by(2).map(|at| u8::from_str_radix(&blob[at..at + 2], 16).expect("hex")).collect();
    let mut evil = Vec::new();
    for name in ["..", ".git"] {
        evil.extend_from_slice(format!("100644 {name}\0").as_bytes());
        evil.extend_from_slice(&raw_id);
    }
    let listed = fixture.git_with_input(&["mktree", "-z"], &tree);
    let evil = fixture.git_with_input(&["hash-object", "-w", "-t", "tree", "--literally", "--stdin"], &evil);
    let top =
        format!("100644 blob {blob}\tfleet.toml\n040000 tree {listed}\tnames\n040000 tree {evil}\ttraps\n");
    let top = fixture.git_with_input(&["mktree"], top.as_bytes());
    let commit = fixture.git_with_input(&["commit-tree", &top], b"names");
    fixture.git(&["update-ref", "refs/heads/main", &commit]);
    let repository = fixture.read(&fixture.source()).expect("read");
    assert_eq!(texts(&repository).into_keys().collect::<Vec<_>>(), ["fleet.toml"]);
    let names = ["names/a\\b", "names/caf\\xe9.toml", "names/new\\nline", "traps/..", "traps/.git"];
    assert_eq!(refused(&repository), names.map(|name| (name, Refusal::UnsafePath)));
}

#[test]
fn an_ignored_file_is_listed_so_that_an_include_can_say_why() {
    let fixture = Fixture::with(&[
        (".provisorignore", "templates/old.j2\n*.md\n"),
        ("README.md", "x"),
        ("templates/old.j2", "x"),
        ("templates/new.j2", "x"),
    ]);
    for repository in both(&fixture) {
        assert_eq!(
            refused(&repository),
            [("README.md", Refusal::Ignored), ("templates/old.j2", Refusal::Ignored)]
        );
    }
}

#[test]
fn a_directory_leaves_out_what_git_would_not_commit() {
    let fixture = Fixture::with(&[(".gitignore", "/target/\n*.log\n"), ("nodes/fleet.toml", "x")]);
    fixture.write("target/big", b"x");
    fixture.write("nodes/debug.log", b"x");
    fixture.write("nodes/uncommitted.toml", b"x");
    let whole = read_directory(&fixture.work_tree(), &Limits::default(), Symlinks::Refused).expect("read");
    let names = [".gitignore", "nodes/fleet.toml", "nodes/uncommitted.toml"];
    assert_eq!(texts(&whole).into_keys().collect::<Vec<_>>(), names);
    assert_eq!(refused(&whole), [("nodes/debug.log", Refusal::Ignored), ("target", Refusal::Ignored)]);
    // The rules of the directories above count too.
    let part = read_directory(&fixture.work_tree().join("nodes"), &Limits::default(), Symlinks::Refused)
        .expect("read");
    assert_eq!(texts(&part).into_keys().collect::<Vec<_>>(), ["fleet.toml", "uncommitted.toml"]);
    assert_eq!(part.revision.commit.as_str().len(), 64, "not a commit");
    // Outside of a work tree nothing is a `.gitignore`.
    let plain = tempfile::tempdir().expect("a directory");
    std::fs::write(plain.path().join(".gitignore"), "*").expect("written");
    assert_eq!(
        read_directory(plain.path(), &Limits::default(), Symlinks::Refused).expect("read").files.len(),
        1
    );
}

#[test]
fn a_directory_opens_nothing_but_regular_files() {
    let plain = tempfile::tempdir().expect("a directory");
    std::fs::write(plain.path().join("fleet.toml"), "x").expect("written");
    let made = std::process::Command::new("mkfifo").arg(plain.path().join("pipe")).status().expect("mkfifo");
    assert!(made.success());
    let repository = read_directory(plain.path(), &Limits::default(), Symlinks::Refused)
        .expect("a pipe would block for ever");
    assert_eq!(refused(&repository), [("pipe", Refusal::NotAFile)]);
    let error = read_directory(&plain.path().join("fleet.toml"), &Limits::default(), Symlinks::Refused)
        .expect_err("a file");
    assert!(error.to_string().ends_with("is not a directory"), "{error}");
    let error = read_directory(Path::new("/nonexistent/fleet"), &Limits::default(), Symlinks::Refused)
        .expect_err("nothing");
    assert_eq!(error.to_string(), "there is nothing at `/nonexistent/fleet`");
}

#[test]
fn reading_stops_when_asked() {
    let fixture = Fixture::with(&[("fleet.toml", "x")]);
    let source = git::open(&fixture.source(), &fixture.cache()).expect("opened");
    let should_stop = AtomicBool::new(false);
    let resolved = source.resolve().expect("resolved");
    should_stop.store(true, Ordering::Relaxed);
    let error = source.fetch(&resolved, &|_| (), &should_stop).expect_err("stopped");
    assert_eq!(error.class(), ErrorClass::Outside);
}
