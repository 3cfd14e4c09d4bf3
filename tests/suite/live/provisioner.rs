//! One of two provisions: Provisor itself, or a Karpenter that is installed in the cluster, whose objects Provisor keeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::bench::{Bench, PATIENCE, POOLS, Running, is_true, text};
use super::karpenter;
use super::kubelets::{Kubelets, LEFT_TO_US};
use crate::deploy::run::{ask, free_address};

/// A pool on Karpenter's own simulated machines, and one on ours.
fn environment(engine: &str, cpu: u32) -> String {
    let cloud = if engine == "karpenter" { "" } else { r#"cloud = "simulated""# };
    format!(
        r#"
        engine = "{engine}"
        {cloud}
        region = "us-east-1"
        [pools.theirs]
        strategy = "on-demand"
        class = "kwok"
        limits = {{ cpu = "{cpu}" }}
        [pools.theirs.overrides.spec.template.spec]
        nodeClassRef = {{ group = "{}", kind = "KWOKNodeClass", name = "{}" }}
        requirements = [
            {{ key = "kubernetes.io/os", operator = "In", values = ["linux"] }},
            {{ key = "karpenter.sh/capacity-type", operator = "In", values = ["on-demand"] }},
        ]
        [classes.kwok]
        external = true
        [pools.general]
        strategy = "on-demand"
        instance-cpu-max = 16
        "#,
        karpenter::GROUP,
        karpenter::CLASS,
    )
}

const NOTICE: &str = "Karpenter acts in this cluster";

/// So long nothing happens that would take two seconds.
fn expect_no_claim(bench: &Bench, running: &Running) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(8) {
        assert!(bench.claims().is_empty(), "somebody else provisions: {}", running.log());
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn pool(bench: &Bench, name: &str) -> Value {
    bench.plane.api.get(&format!("{POOLS}/{name}")).body
}

fn is_there(bench: &Bench, name: &str) -> bool {
    text(&pool(bench, name), "/metadata/name") == name
}

#[test]
fn karpenter_provisions_where_the_environment_says_so_and_nobody_acts_beside_it() {
    let bench = Bench::of(&environment("karpenter", 100));
    karpenter::install(&bench);
    let _kubelets = Kubelets::start(&bench);
    let probes = free_address();
    let health = probes.to_string();
    let said = ["--simulated-boot", "0s", LEFT_TO_US, "--output", "json", "--health-address", &health];
    let running = bench.run_as(0, &said, &[]);
    let is_well = || ask(probes, "/healthz").contains("200 OK");

    // What the commit says is in the cluster, and who goes by it is not.
    bench.wait("synced", || text(&pool(&bench, "theirs"), "/spec/limits/cpu") == "100");
    bench.wait("told", || running.log().contains("no Karpenter holds its lease here"));
    let on = |pool: &str| json!({ "karpenter.sh/nodepool": pool });
    bench.deploy_on("first", 4, "900m", "1Gi", on("theirs"));
    bench.deploy_on("later", 2, "900m", "1Gi", on("general"));

    // Who provisions is known to a process that finds no commit to go by.
    bench.wait("applied", || is_there(&bench, "general"));
    assert_eq!(running.stop(), 130);
    bench.fleet.commit("broken", &[("environments/dev.toml", "engine =")]);
    let running = bench.run_as(0, &said, &[]);
    let log = || running.log();
    bench.wait("told of the commit", || log().contains("as the last good one left it"));
    expect_no_claim(&bench, &running);
    bench.fleet.commit("mended", &[("environments/dev.toml", &environment("karpenter", 100))]);

    // Karpenter reads it, and buys.
    let theirs = karpenter::start(&bench);
    bench.wait("pool ready", || is_true(&pool(&bench, "theirs"), "Ready"));
    let run_of = |name: &str| {
        let pods = bench.pods();
        let is_up = |pod: &&Value| {
            text(pod, "/metadata/labels/app") == name && text(pod, "/status/phase") == "Running"
        };
        pods.iter().filter(is_up).count()
    };
    bench.wait("bought by Karpenter", || run_of("first") == 4);
    bench.fleet.commit("more", &[("environments/dev.toml", &environment("karpenter", 200))]);
    bench.wait("applied", || text(&pool(&bench, "theirs"), "/spec/limits/cpu") == "200");
    expect_no_claim(&bench, &running);
    let mut read = 0;
    assert_eq!(bench.deeds_after(&mut read), 0, "claims, nodes and pods are not ours to touch");
    assert!(!log().contains(NOTICE), "it is meant to act: {}", log());

    // A commit that names us, and nobody who sells, cannot be used.
    let nobody = environment("provisor", 250).replace(r#"cloud = "simulated""#, "");
    bench.fleet.commit("nobody sells", &[("environments/dev.toml", &nobody)]);
    let missing = "the last good state stays in force: nothing says who sells the machines";
    bench.wait("told what is missing", || log().contains(missing));
    let more = environment("karpenter", 200).replace("instance-cpu-max = 16", "instance-cpu-max = 8");
    let standing = text(&pool(&bench, "general"), "/metadata/resourceVersion").to_owned();
    bench.fleet.commit("still theirs", &[("environments/dev.toml", &more)]);
    bench.wait("goes on", || text(&pool(&bench, "general"), "/metadata/resourceVersion") != standing);
    assert_eq!(text(&pool(&bench, "theirs"), "/spec/limits/cpu"), "200");

    // A commit names us, but Karpenter is still there.
    let has_begun = AtomicBool::new(false);
    let unwell = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (mut unwell, start) = (0, Instant::now());
            while !has_begun.load(Ordering::Relaxed) && start.elapsed() < 2 * PATIENCE {
                unwell += u32::from(!is_well());
                std::thread::sleep(Duration::from_millis(5));
            }
            unwell
        });
        bench.fleet.commit("ours", &[("environments/dev.toml", &environment("provisor", 200))]);
        bench.wait("told that Karpenter acts", || log().contains(NOTICE));
        has_begun.store(true, Ordering::Relaxed);
        asking.join().expect("it asks")
    });
    assert_eq!(unwell, 0, "who begins anew goes on answering");
    expect_no_claim(&bench, &running);
    assert_eq!(bench.deeds_after(&mut read), 0);

    // Who is told so may give way.
    bench.fleet.commit("theirs", &[("environments/dev.toml", &environment("karpenter", 300))]);
    bench.wait("applied", || text(&pool(&bench, "theirs"), "/spec/limits/cpu") == "300");
    let told = log().matches(NOTICE).count();
    bench.fleet.commit("ours again", &[("environments/dev.toml", &environment("provisor", 300))]);
    bench.wait("told once more", || log().matches(NOTICE).count() > told);
    assert_eq!(bench.deeds_after(&mut read), 0);

    // Once it is gone, and its lease has run out, we provision.
    drop(theirs);
    bench.wait("bought by Provisor", || run_of("later") == 2);
    let count = bench.claims().len();

    // Who sells cannot change under machines that run.
    let bought = environment("provisor", 300).replace("simulated", "aws");
    bench.fleet.commit("EC2", &[("environments/dev.toml", &bought)]);
    bench.wait("told", || log().contains("this commit cannot be used; the last good state stays in force: "));

    // It comes back, and we stop.
    let told = log().matches(NOTICE).count();
    let _theirs = karpenter::start(&bench);
    bench.wait("told again", || log().matches(NOTICE).count() > told);
    bench.deploy_on("last", 2, "9", "1Gi", on("general"));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(8) {
        assert_eq!(bench.claims().len(), count, "{}", log());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(running.stop(), 130, "asked to end, it ends");
}

/// One pool on machines of ours, for whoever provisions.
fn of_one_pool(engine: &str) -> String {
    let cloud = if engine == "karpenter" { "" } else { "cloud = \"simulated\"\n" };
    format!(
        "engine = \"{engine}\"\n{cloud}region = \"us-east-1\"\n\
         [pools.general]\nstrategy = \"on-demand\"\ninstance-cpu-max = 16\n"
    )
}

/// A commit decides about every machine when it names another engine: that too waits until commits are applied.
#[test]
fn who_provisions_stays_while_the_environment_is_suspended() {
    let bench = Bench::of(&of_one_pool("karpenter"));
    let path = bench.plant_environment();
    let suspend = |said: Value| {
        let spec = json!({ "spec": { "suspend": said } });
        bench.plane.api.patch(&path, &spec).expect("the object takes it");
    };
    let commit = |engine: &str| {
        bench.fleet.commit(engine, &[("environments/dev.toml", &of_one_pool(engine))]);
    };
    let start = || bench.run_as(0, &["--simulated-boot", "0s"], &[]);
    let running = start();
    bench.wait("applied", || is_there(&bench, "general"));
    bench.deploy("first", 1, "900m", "1Gi");

    suspend(json!({ "reason": "the migration" }));
    bench.wait("told", || running.log().contains("Environment/dev is suspended"));
    commit("provisor");
    expect_no_claim(&bench, &running);
    assert_eq!(running.stop(), 130);

    // Nor does a new process wait for a Karpenter that is to go on.
    let theirs = bench.plant_lease_of_karpenter();
    let running = start();
    bench.wait("told", || {
        running.log().contains("which Environment/dev lets nobody apply now: it stays karpenter")
    });
    bench.wait("told of the suspension", || running.log().contains("Environment/dev is suspended"));
    expect_no_claim(&bench, &running);
    assert!(!running.log().contains(NOTICE), "{}", running.log());
    suspend(Value::Null);
    bench.wait("told that Karpenter acts", || running.log().contains(NOTICE));
    bench.plane.api.patch(&theirs, &json!({ "spec": { "holderIdentity": "" } })).expect("given back");
    bench.wait("bought", || bench.all_run(1));

    suspend(json!({ "reason": "another migration" }));
    bench.wait("told", || running.log().contains("another migration"));
    let begun = || running.log().matches("somebody else provisions from now on").count();
    let before = begun();
    commit("karpenter");
    std::thread::sleep(Duration::from_secs(8));
    bench.deploy("second", 1, "9", "1Gi");
    bench.wait("bought all the same", || bench.all_run(2));
    assert_eq!(begun(), before, "{}", running.log());
    suspend(Value::Null);
    // Whoever is told to end in the moment in which it begins anew has heard it.
    let start = Instant::now();
    while begun() == before {
        assert!(start.elapsed() < PATIENCE, "left to Karpenter: {}", running.log());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(running.stop(), 130);
}

/// A replica that waited goes by what the other was allowed, although nobody would be allowed it now.
#[test]
fn a_replica_that_takes_over_leaves_the_machines_to_whom_they_were_left() {
    let bench = Bench::of(&of_one_pool("provisor"));
    let path = bench.plant_environment();
    let replicas = [0, 1].map(|replica| bench.run_as(replica, &["--simulated-boot", "0s"], &[]));
    bench.wait("applied", || is_there(&bench, "general"));
    let tells = |words: &str| replicas.iter().position(|running| running.log().contains(words));
    bench.wait("one waits", || tells("this replica waits").is_some());
    bench.fleet.commit("karpenter", &[("environments/dev.toml", &of_one_pool("karpenter"))]);
    bench.wait("left to Karpenter", || tells("no Karpenter holds its lease here").is_some());
    let spec = json!({ "spec": { "suspend": { "reason": "the migration" } } });
    bench.plane.api.patch(&path, &spec).expect("the object takes it");
    bench.wait("told", || tells("Environment/dev is suspended").is_some());

    let acting = tells("Environment/dev is suspended").expect("one told");
    let [first, second] = replicas;
    let (dies, stays) = if acting == 0 { (first, second) } else { (second, first) };
    dies.kill();
    bench.deploy("web", 1, "900m", "1Gi");
    bench.wait("taken over", || stays.log().contains("Environment/dev is suspended"));
    expect_no_claim(&bench, &stays);
    assert_eq!(stays.stop(), 130);
}
