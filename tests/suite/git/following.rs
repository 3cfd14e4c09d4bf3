//! One environment follows a real repository on a simulated cluster: which commits are work, which are only noted, and which
//! wait for a person.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use provisor::capacity::engine::EngineSettings;
use provisor::controllers::reconciler::Reconciler;
use provisor::controllers::source::{FollowSettings, Follower, Told};
use provisor::gitops::desired::ObjectRef;
use provisor::gitops::live::LiveObject;
use provisor::gitops::policy::{BlastLimits, PruneMode, SyncMode, SyncPolicy};
use provisor::gitops::reads::WatchPath;
use provisor::gitops::render::RenderSettings;
use provisor::gitops::source::SourcePolicy;
use provisor::gitops::sync::{GitEvent, Health, SyncState, SyncStatus};
use provisor::io::cloud::simulated::SimulatedCluster;
use provisor::io::git::{self, Acknowledgement, Purpose, Reference, ReferenceFields, Source};
use provisor::model::catalog::Catalog;
use provisor::simulator::world::Habits;
use serde_json::{Value, json};

use super::fixture::Fixture;
use super::server::HttpServer;

const FLEET: (&str, &str) = ("fleet.toml", "name = \"shop\"\n");
pub const PROD: &str = "environments/prod.toml";
const DEV: (&str, &str) = ("environments/dev.toml", "[pools.small]\nstrategy = \"spot\"\n");

/// An environment whose one pool has this weight, and a second pool if `extra`.
pub fn prod(weight: u32, extra: bool) -> String {
    let extra = if extra { "[pools.extra]\nstrategy = \"spot\"\n" } else { "" };
    format!("[pools.general]\nstrategy = \"on-demand\"\nweight = {weight}\n{extra}")
}

fn fixture() -> Fixture {
    Fixture::with(&[FLEET, DEV, (PROD, &prod(10, false))])
}

pub struct Bench {
    follower: Follower,
    reconciler: Reconciler,
}

fn follow_settings(policy: SourcePolicy, watched: &[&str]) -> FollowSettings {
    FollowSettings {
        environment: "prod".into(),
        watched: watched.iter().map(|text| WatchPath::parse(text).expect(text)).collect(),
        policy,
        interval: Duration::from_secs(60),
        render: RenderSettings::default(),
    }
}

impl Bench {
    /// Follows the source; its first commit is applied.
    pub fn new(fixture: &Fixture, source: &Source, policy: SourcePolicy) -> Self {
        let catalog = Arc::new(Catalog::builtin("ap-northeast-2").expect("a region"));
        let start = "2026-03-02T12:00:00Z".parse().expect("a moment");
        let cluster = SimulatedCluster::new(7, start, catalog, Habits::default());
        let rules = SyncPolicy {
            mode: SyncMode::AutoHeal,
            prune: PruneMode::Retire,
            limits: BlastLimits::none(),
            ..SyncPolicy::new("simulated")
        };
        let reconciler = Reconciler::new(cluster, "prod", rules, EngineSettings::default());
        let source = Arc::new(git::open(source, &fixture.cache()).expect("opened"));
        let acknowledgement = Acknowledgement::of(&source, "prod", &fixture.cache());
        let follower = Follower::new(source, follow_settings(policy, &[]), acknowledgement, 1);
        let mut bench = Self { follower, reconciler };
        assert!(matches!(bench.poll(), Told::Followed { rendered: Ok(_), .. }));
        bench
    }

    /// Asks the source, without acting on what it says.
    fn ask(&mut self) -> Told {
        let answer = self.follower.question().ask();
        let heard = self.follower.hear(self.reconciler.now(), answer);
        heard.events.into_iter().for_each(|event| self.reconciler.observe(event));
        heard.told
    }

    pub fn poll(&mut self) -> Told {
        let told = self.ask();
        self.live(SignedDuration::from_secs(30));
        told
    }

    pub fn live(&mut self, time: SignedDuration) {
        let until = self.reconciler.now() + time;
        self.reconciler.run_until(until, |_, _| {});
    }

    fn weight(&self) -> Option<Value> {
        Some(self.reconciler.cluster().manifest("NodePool", "general")?["spec"]["weight"].clone())
    }

    fn has(&self, pool: &str) -> bool {
        self.reconciler.cluster().manifest("NodePool", pool).is_some()
    }

    /// Every object and how often an operation ran: equal only if nothing was written between.
    pub fn writes(&self) -> (Vec<Value>, u32) {
        let operations = self.reconciler.sync().history().iter().map(|entry| entry.count).sum();
        (self.reconciler.cluster().manifests().cloned().collect(), operations)
    }

    fn status(&self) -> SyncStatus {
        self.reconciler.sync().status(self.reconciler.now())
    }

    fn condition(&self, kind: &str) -> Option<String> {
        let found = self.status().conditions.into_iter().find(|condition| condition.kind == kind)?;
        Some(format!("{} {}: {}", found.is_true, found.reason, found.message))
    }
}

fn reference(fields: &ReferenceFields) -> Reference {
    fields.choose(Purpose::Production).expect("valid")
}

fn branch(name: &str) -> Reference {
    reference(&ReferenceFields { branch: Some(name.into()), ..ReferenceFields::default() })
}

#[test]
fn git_003_other_watched_paths_render_again_at_the_same_head() {
    let fixture = fixture();
    let mut bench = Bench::new(&fixture, &fixture.source(), SourcePolicy::open());
    assert!(matches!(bench.poll(), Told::Nothing), "nothing changed");
    bench.follower.configure(follow_settings(SourcePolicy::open(), &["shared/**"]));
    assert!(matches!(bench.poll(), Told::Followed { rendered: Ok(_), .. }), "the same head, rendered");
    fixture.commit("shared", &[("shared/deep/part.txt", "x")]);
    assert!(matches!(bench.poll(), Told::Followed { .. }), "what is watched counts");
    fixture.commit("elsewhere", &[("other/part.txt", "x")]);
    assert!(matches!(bench.poll(), Told::Advanced(_)));
}

#[test]
fn a_commit_that_makes_the_environment_abstract_cannot_be_used() {
    let fixture = fixture();
    let mut bench = Bench::new(&fixture, &fixture.source(), SourcePolicy::open());
    let before = bench.writes();
    fixture.commit("only extended", &[(PROD, &format!("abstract = true\n{}", prod(20, false)))]);
    let told = bench.poll();
    let Told::Followed { rendered: Err(found), .. } = &told else { panic!("{told:?}") };
    let one = found.iter().next().expect("told");
    assert_eq!((one.code, one.place.to_string().as_str()), ("PRV1306", "environments/prod.toml:1:12"));
    assert_eq!(bench.writes(), before, "the last good state is kept");
}

#[test]
fn git_041_a_commit_outside_of_what_is_read_advances_without_work() {
    let fixture = fixture();
    let mut bench = Bench::new(&fixture, &fixture.source(), SourcePolicy::open());
    let before = bench.writes();
    let rendered = bench.reconciler.sync().plan().cloned();
    let mut last = String::new();
    for (path, content) in
        [("docs/index.md", "# Nodes"), ("environments/dev.toml", "[pools.x]\nstrategy = 'spot'\n")]
    {
        last = fixture.commit("beside", &[(path, content)]);
        let answer = bench.follower.question().ask();
        let heard = bench.follower.hear(bench.reconciler.now(), answer);
        assert!(
            matches!(&heard.events[..], [GitEvent::Unchanged { revision: Some(_) }]),
            "{path}: {heard:?}"
        );
        heard.events.into_iter().for_each(|event| bench.reconciler.observe(event));
        bench.live(SignedDuration::from_secs(30));
    }
    let status = bench.status();
    assert!(status.observed_revision.expect("a commit").contains(&last), "the newest commit was looked at");
    assert_eq!(status.sync, SyncState::Synced);
    assert_eq!(bench.writes(), before, "no operation and no write");
    assert_eq!(bench.reconciler.sync().plan().cloned(), rendered, "no other plan");
}

#[test]
fn git_042_a_changed_include_is_noticed_by_its_content() {
    let include = "{% include 'deep/weight.j2' %}";
    let template =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/env-templates/on-demand.yaml.j2"))
            .expect("a built-in template");
    let fixture = Fixture::with(&[
        FLEET,
        (PROD, "[pools.general]\nstrategy = \"own\"\n"),
        ("templates/own.yaml.j2", &format!("{include}\n{template}")),
        ("templates/deep/weight.j2", "{# one #}"),
        ("templates/deep/unused.md", "x"),
    ]);
    let server = HttpServer::start(fixture.dir.path());
    let source = Source { allow_insecure_http: true, ..Source::new(server.url()) };
    let mut bench = Bench::new(&fixture, &source, SourcePolicy::open());
    fixture.commit("beside", &[("README.md", "x")]);
    assert!(matches!(bench.poll(), Told::Advanced(_)));
    fixture.commit("part", &[("templates/deep/weight.j2", "{# two #}")]);
    assert!(
        matches!(bench.poll(), Told::Followed { rendered: Ok(_), .. }),
        "nothing but the included file changed"
    );
    fixture.commit("broken part", &[("templates/deep/weight.j2", "{{ undefined_word }}")]);
    assert!(matches!(bench.poll(), Told::Followed { rendered: Err(_), .. }), "and it was really read");
    assert!(bench.has("general"));
    let shallow =
        server.asked().iter().any(|asked| String::from_utf8_lossy(&asked.body).contains("deepen 1"));
    assert!(shallow, "one commit without its history is fetched");
}

#[test]
fn git_010_a_moved_tag_is_told_and_waits_where_protected() {
    for policy in [SourcePolicy::open(), SourcePolicy::protected()] {
        let fixture = fixture();
        fixture.git(&["tag", "v1"]);
        let tag = reference(&ReferenceFields { tag: Some("v1".into()), ..ReferenceFields::default() });
        let mut bench = Bench::new(&fixture, &fixture.following(tag), policy);
        let before = bench.writes();
        let moved = fixture.commit("heavier", &[(PROD, &prod(20, false))]);
        assert!(matches!(bench.poll(), Told::Nothing), "the branch is not followed");
        fixture.git(&["tag", "--force", "v1"]);
        let told = bench.poll();
        let condition = bench.condition("TagMoved").expect("told");
        assert!(condition.contains("the tag `v1` moved from "), "{condition}");
        if policy == SourcePolicy::open() {
            let Told::Followed { notice: Some(notice), .. } = told else { panic!("{told:?}") };
            assert_eq!(notice.reason, "TagMoved");
            assert_eq!(bench.weight(), Some(json!(20)));
        } else {
            assert!(matches!(told, Told::Held { .. }), "{told:?}");
            assert_eq!(bench.writes(), before, "the last good state is kept");
            assert_eq!(bench.status().sync, SyncState::Blocked);
            assert!(condition.contains(&format!("`provisor ack prod --revision {moved}`")), "{condition}");
        }
    }
}

#[test]
fn git_057_a_deleted_branch_keeps_what_it_last_said() {
    let fixture = fixture();
    let mut bench = Bench::new(&fixture, &fixture.following(branch("main")), SourcePolicy::open());
    let before = bench.writes();
    fixture.git(&["checkout", "--quiet", "-b", "other"]);
    fixture.git(&["branch", "--quiet", "-D", "main"]);
    let told = bench.poll();
    assert!(matches!(&told, Told::Failed { error, .. } if error.reason() == "RefNotFound"), "{told:?}");
    bench.live(SignedDuration::from_hours(3));
    assert_eq!(bench.writes(), before, "nothing is deleted");
    let condition = bench.condition("SourceReady").expect("told");
    assert!(condition.starts_with("false FetchFailed: RefNotFound: "), "{condition}");
    // An empty repository and a repository that is gone are no empty wish either.
    std::fs::rename(fixture.work_tree(), fixture.dir.path().join("away")).expect("moved");
    assert!(matches!(bench.poll(), Told::Failed { .. }));
    std::fs::create_dir(fixture.work_tree()).expect("a directory");
    fixture.git(&["init", "--quiet", "--initial-branch=main"]);
    assert!(matches!(bench.poll(), Told::Failed { .. }));
    assert_eq!(bench.writes(), before);
}

fn replace_history(fixture: &Fixture) -> String {
    fixture.git(&["checkout", "--quiet", "--orphan", "new"]);
    let commit = fixture.commit("another repository", &[(PROD, &prod(90, false))]);
    fixture.git(&["branch", "--quiet", "-M", "new", "main"]);
    commit
}

/// Runs the program's `ack` for `prod` of this repository.
fn acknowledge(fixture: &Fixture, environment: &str, revision: &str) -> std::process::Output {
    let mut command = assert_cmd::Command::cargo_bin("provisor").expect("the program is built");
    command.env("XDG_CACHE_HOME", fixture.dir.path()).args(["ack", environment, "--revision", revision]);
    command.arg("--repo").arg(fixture.work_tree()).output().expect("it runs")
}

/// The bench's cache is the program's: `$XDG_CACHE_HOME/provisor`.
fn shared_cache(fixture: &Fixture) {
    std::fs::create_dir_all(fixture.cache()).expect("a directory");
    std::os::unix::fs::symlink(fixture.cache(), fixture.dir.path().join("provisor")).expect("a link");
}

#[test]
fn git_058_unrelated_history_waits_for_a_person_where_protected() {
    let fixture = fixture();
    shared_cache(&fixture);
    let mut bench = Bench::new(&fixture, &fixture.source(), SourcePolicy::protected());
    let before = bench.writes();
    let unrelated = replace_history(&fixture);
    let told = bench.poll();
    assert!(matches!(&told, Told::Held { notice, .. } if notice.reason == "UnrelatedHistory"), "{told:?}");
    assert!(matches!(bench.poll(), Told::Nothing), "told once");
    assert_eq!(bench.status().sync, SyncState::Blocked);
    assert_eq!(bench.writes(), before);

    let output = acknowledge(&fixture, "prodd", &unrelated);
    assert_eq!(output.status.code(), Some(2), "no such environment");
    assert!(matches!(bench.poll(), Told::Nothing));
    assert_eq!(acknowledge(&fixture, "prod", "8c1f0a9").status.code(), Some(64), "an abbreviation");
    assert_eq!(acknowledge(&fixture, "prod", &"8".repeat(40)).status.code(), Some(2), "no such commit");
    assert_eq!(bench.writes(), before);

    assert_eq!(acknowledge(&fixture, "prod", &unrelated).status.code(), Some(0));
    let told = bench.poll();
    assert!(matches!(&told, Told::Followed { rendered: Ok(_), .. }), "{told:?}");
    assert_eq!(bench.weight(), Some(json!(90)));
    assert_eq!(bench.status().sync, SyncState::Synced);
}

#[test]
fn git_059_a_rewound_branch_is_applied_with_the_dropped_commits_named() {
    let fixture = fixture();
    let first = fixture.git(&["rev-parse", "HEAD"]);
    fixture.commit("more weight", &[(PROD, &prod(20, false))]);
    fixture.commit("even more", &[(PROD, &prod(30, false))]);
    let mut bench = Bench::new(&fixture, &fixture.source(), SourcePolicy::open());
    assert_eq!(bench.weight(), Some(json!(30)));
    fixture.git(&["reset", "--quiet", "--hard", &first]);
    let told = bench.poll();
    let Told::Followed { notice: Some(notice), .. } = told else { panic!("{told:?}") };
    assert_eq!(notice.reason, "HistoryRewritten");
    assert_eq!(bench.weight(), Some(json!(10)));
    let condition = bench.condition("HistoryRewritten").expect("a condition");
    assert!(condition.contains("\"even more\"") && condition.contains("\"more weight\""), "{condition}");
    assert!(!condition.contains("\"first\""), "what is kept is not dropped: {condition}");
    fixture.commit("on we go", &[(PROD, &prod(40, false))]);
    bench.poll();
    assert_eq!(bench.condition("HistoryRewritten"), None, "over with the next commit");
}

#[test]
fn git_059_a_head_that_leads_elsewhere_is_no_continued_history() {
    let moves: [(&str, &[&[&str]], u32); 4] = [
        ("a commit of before", &[&["checkout", "--quiet", "HEAD~2"]], 10),
        ("a branch of before", &[&["checkout", "--quiet", "-b", "old", "HEAD~2"]], 10),
        ("HEAD alone", &[&["branch", "old", "HEAD~1"], &["symbolic-ref", "HEAD", "refs/heads/old"]], 20),
        ("a fork", &[&["checkout", "--quiet", "fork"]], 77),
    ];
    for (about, commands, weight) in moves {
        for policy in [SourcePolicy::open(), SourcePolicy::protected()] {
            let fixture = fixture();
            fixture.git(&["checkout", "--quiet", "-b", "fork"]);
            fixture.commit("apart", &[(PROD, &prod(77, false))]);
            fixture.git(&["checkout", "--quiet", "main"]);
            fixture.commit("more weight", &[(PROD, &prod(20, false))]);
            let last = fixture.commit("even more", &[(PROD, &prod(30, false))]);
            let mut bench = Bench::new(&fixture, &fixture.source(), policy);
            let before = bench.writes();
            for command in commands {
                fixture.git(command);
            }
            let told = bench.poll();
            let condition = bench.condition("HistoryRewritten").expect(about);
            assert!(
                condition.contains("\"even more\"") && condition.contains("HEAD was moved"),
                "{condition}"
            );
            if policy == SourcePolicy::open() {
                assert!(matches!(&told, Told::Followed { notice: Some(_), .. }), "{about}: {told:?}");
                assert_eq!(bench.weight(), Some(json!(weight)), "{about}");
                continue;
            }
            assert!(matches!(&told, Told::Held { .. }), "{about}: {told:?}");
            assert_eq!(bench.writes(), before, "{about}: the last good state is kept");
            // Back where it was, or on another branch that goes on from there, nothing waits.
            fixture.git(&["checkout", "--quiet", "--force", "-B", "onward", &last]);
            bench.poll();
            fixture.commit("goes on", &[(PROD, &prod(40, false))]);
            let told = bench.poll();
            assert!(matches!(&told, Told::Followed { notice: None, .. }), "{about}: {told:?}");
            assert_eq!(bench.weight(), Some(json!(40)), "{about}");
        }
    }
}

#[test]
fn git_060_history_that_descends_again_needs_no_word() {
    let fixture = fixture();
    let first = fixture.git(&["rev-parse", "HEAD"]);
    let applied = fixture.commit("applied", &[(PROD, &prod(20, false))]);
    let mut bench = Bench::new(&fixture, &fixture.source(), SourcePolicy::protected());
    fixture.git(&["reset", "--quiet", "--hard", &first]);
    assert!(matches!(bench.poll(), Told::Held { .. }));
    assert_eq!(bench.weight(), Some(json!(20)), "the last good state is kept");
    assert!(bench.condition("HistoryRewritten").is_some());
    fixture.git(&["reset", "--quiet", "--hard", &applied]);
    fixture.commit("descends", &[(PROD, &prod(50, false))]);
    let told = bench.poll();
    assert!(matches!(&told, Told::Followed { notice: None, rendered: Ok(_), .. }), "{told:?}");
    assert_eq!(bench.weight(), Some(json!(50)));
    assert_eq!(bench.condition("HistoryRewritten"), None);
    assert_eq!(bench.status().sync, SyncState::Synced);
}

#[test]
fn git_061_an_acknowledgement_is_for_one_commit_only() {
    let fixture = fixture();
    shared_cache(&fixture);
    let mut bench = Bench::new(&fixture, &fixture.source(), SourcePolicy::protected());
    let seen = replace_history(&fixture);
    assert!(matches!(bench.poll(), Told::Held { .. }));
    assert_eq!(acknowledge(&fixture, "prod", &seen).status.code(), Some(0));
    let moved = fixture.commit("slipped in", &[(PROD, &prod(99, false))]);
    let told = bench.poll();
    assert!(matches!(&told, Told::Held { revision, .. } if revision.commit.as_str() == moved), "{told:?}");
    assert_eq!(bench.weight(), Some(json!(10)));
    fixture.git(&["reset", "--quiet", "--hard", &seen]);
    assert!(matches!(bench.poll(), Told::Followed { .. }), "the one that was looked at");
    assert_eq!(bench.weight(), Some(json!(90)));
}

#[test]
fn git_054_an_outage_heals_drift_and_removes_nothing() {
    let fixture = Fixture::with(&[FLEET, DEV, (PROD, &prod(10, true))]);
    let mut bench = Bench::new(&fixture, &fixture.source(), SourcePolicy::open());
    assert!(bench.has("extra"));
    // The source says that a pool is to go, and is away before that could be done.
    fixture.commit("without extra", &[(PROD, &prod(10, false))]);
    bench.ask();
    let away = fixture.dir.path().join("away");
    std::fs::rename(fixture.work_tree(), &away).expect("moved");
    assert!(matches!(bench.poll(), Told::Failed { .. }));
    let mut drifted = bench.reconciler.cluster().manifest("NodePool", "general").expect("applied").clone();
    drifted["spec"]["weight"] = json!(77);
    let stored = bench.reconciler.cluster_mut().apply(&drifted).expect("valid");
    let object = ObjectRef::of(&stored).expect("a name");
    bench.reconciler.observe(GitEvent::ObjectChanged { object, live: Some(LiveObject::new(stored)) });
    assert_eq!(bench.weight(), Some(json!(77)));
    for _ in 0..6 {
        bench.live(SignedDuration::from_mins(30));
        assert!(matches!(bench.poll(), Told::Failed { .. }));
    }
    assert_eq!(bench.weight(), Some(json!(10)), "healed from the last good commit");
    assert!(bench.has("extra"), "nothing is removed on old news");
    std::fs::rename(&away, fixture.work_tree()).expect("back");
    assert!(matches!(bench.poll(), Told::Nothing), "the head is the one that was seen");
    bench.live(SignedDuration::from_mins(5));
    assert!(!bench.has("extra"), "now it is known to be wanted still");
    assert!(bench.condition("SourceReady").expect("told").starts_with("true "));
}

#[test]
fn git_056_a_stale_source_is_told_and_causes_no_write() {
    let fixture = fixture();
    let mut bench = Bench::new(&fixture, &fixture.source(), SourcePolicy::open());
    let before = bench.writes();
    std::fs::rename(fixture.work_tree(), fixture.dir.path().join("away")).expect("moved");
    bench.poll();
    bench.live(SignedDuration::from_hours(23));
    assert_eq!(bench.status().health, Health::Healthy, "not yet");
    bench.live(SignedDuration::from_hours(2));
    bench.poll();
    assert_eq!(bench.status().health, Health::Degraded);
    let condition = bench.condition("SourceReady").expect("told");
    assert!(
        condition.starts_with("false SourceStale: source stale: no answer since 2026-03-02T12:"),
        "{condition}"
    );
    assert_eq!(bench.writes(), before, "and nothing was written");
}
