//! Mistakes that a cluster would take without a word: each is told, at the entry that a person wrote.

use crate::fleet_files::{errors, fleet, render, repository};
use provisor::gitops::diagnostic::{Diagnostic, Severity};
use provisor::gitops::render::{RenderSettings, validate_repository};
use provisor::model::repository::Refusal;
use provisor::ui::diagnostics::draw;

/// `error PRV1618 4:20` for everything that validating says, in order.
fn told(files: &[(&str, &str)]) -> Vec<Diagnostic> {
    validate_repository(&repository(files), &RenderSettings::default()).diagnostics.into_iter().collect()
}

fn at(one: &Diagnostic) -> String {
    let (line, column) = one.place.position();
    format!("{} {} {line}:{column}", one.severity, one.code)
}

/// What is said of an environment in us-east-1 whose one pool has these lines, the first of them line 4.
fn of_pool(lines: &str) -> Vec<Diagnostic> {
    let prod = format!("region = 'us-east-1'\n[pools.a]\nstrategy = 'spot'\n{lines}\n");
    match render(&fleet(&prod)) {
        Ok((_, warnings)) => warnings,
        Err(found) => found.into_iter().collect(),
    }
}

fn places(found: &[Diagnostic]) -> Vec<String> {
    found.iter().map(at).collect()
}

fn help(one: &Diagnostic) -> &str {
    one.help.as_deref().unwrap_or_default()
}

#[test]
fn every_unknown_type_and_family_is_told_at_its_own_entry() {
    let found = of_pool(
        "instance-types = ['m5.lage', 'm5.large', 'm55.xlarge']\ninstance-families = ['zz9', 'm5', 'm5zz']",
    );
    assert_eq!(
        places(&found),
        ["error PRV1618 4:19", "error PRV1618 4:42", "error PRV1618 5:22", "error PRV1618 5:35",],
        "{found:#?}"
    );
    assert_eq!(help(&found[0]), "did you mean `m5.large`?");
    assert_eq!(help(&found[1]), "did you mean `m5.xlarge`?");
    assert_eq!(help(&found[3]), "did you mean `m5zn`?");
    let found = of_pool(
        "requirements = { 'node.kubernetes.io/instance-type' = { operator = 'NotIn', values = ['m5.lage'] } }",
    );
    assert_eq!(places(&found), ["warning PRV1618 4:87"], "{found:#?}");
}

#[test]
fn a_key_that_no_node_could_carry_is_told() {
    let found = of_pool("annotations = { 'bad key!' = 'x', 'Fine.example.com/Key' = 'y' }");
    assert_eq!(places(&found), ["error PRV1503 4:17"], "{found:#?}");
    assert!(found[0].message.contains("`bad key!` is not an annotation key"), "{found:#?}");
}

#[test]
fn types_without_something_can_be_asked_for() {
    for (key, asked, left) in [
        ("instance-gpu-count", "{ operator = 'DoesNotExist' }", "m7i.large"),
        ("instance-local-nvme", "{ operator = 'DoesNotExist' }", "m7i.large"),
        ("instance-gpu-name", "{ operator = 'NotIn', values = ['t4'] }", "m7i.large"),
        ("instance-gpu-count", "{ operator = 'Exists' }", "g5.xlarge"),
    ] {
        let with = |name: &str| {
            of_pool(&format!(
                "requirements = {{ 'karpenter.k8s.aws/{key}' = {asked} }}\ninstance-types = ['{name}']"
            ))
        };
        let is_refused = |found: &[Diagnostic]| found.iter().any(|one| one.code == "PRV1602");
        assert!(!is_refused(&with(left)), "{key} {asked}: {:#?}", with(left));
        let other = if left == "m7i.large" { "g4dn.xlarge" } else { "m7i.large" };
        assert!(is_refused(&with(other)), "{key} {asked} {other}");
    }
}

#[test]
fn a_type_that_exists_and_is_not_sold_is_named_as_such() {
    let found = of_pool("instance-types = ['hpc7a.48xlarge']");
    assert_eq!(places(&found), ["error PRV1618 4:19"], "{found:#?}");
    assert_eq!(found[0].message, "`hpc7a.48xlarge` is not sold in us-east-1");
    let found = of_pool("instance-types = ['m5.large', 'p5e.48xlarge']\ninstance-families = ['m5', 'p5e']");
    assert_eq!(places(&found), ["warning PRV1618 4:31", "warning PRV1618 5:28"], "{found:#?}");
    // Without a region it may well be sold where the cluster is.
    let prod = "[pools.a]\nstrategy = 'on-demand'\ninstance-types = ['trn2.48xlarge']\n";
    let found = told(&[("fleet.toml", "name = 'shop'\n"), ("environments/prod.toml", prod)]);
    assert!(found.iter().all(|one| !one.is_error()), "{found:#?}");
}

#[test]
fn amounts_are_of_their_resource() {
    let found = of_pool(
        "limits = { cpu = '4Gi', memory = '500m', nodes = '3Gi', pods = 'many', 'nvidia.com/gpu' = '1Gi', ephemeral-storage = 5 }",
    );
    assert_eq!(
        places(&found),
        [
            "error PRV1203 4:18",
            "error PRV1203 4:34",
            "error PRV1203 4:50",
            "error PRV1203 4:64",
            "error PRV1203 4:91",
            "error PRV1203 4:118"
        ]
    );
    assert!(help(&found[0]).contains("\"500m\" for half a core"), "{}", found[0]);
    assert!(help(&found[1]).contains("\"800Gi\""), "{}", found[1]);
    assert!(help(&found[2]).contains("whole numbers"), "{}", found[2]);
    assert_eq!(help(&of_pool("limits.cpu = '4 cores'")[0]), "write \"4\"");
    assert!(help(&of_pool("limits.nodes = '10%'")[0]).contains("\"20\""));
    // The same through an override, which no schema looks at.
    let found = of_pool("limits.cpu = 4\noverrides = { 'spec.limits.memory' = '500m' }");
    assert_eq!(places(&found), ["error PRV1203 5:38"], "{found:#?}");
    let found = of_pool("limits = { cpu = 4, memroy = '4Gi' }");
    assert_eq!(places(&found), ["warning PRV1622 4:21"], "{found:#?}");
    assert_eq!(help(&found[0]), "did you mean `memory`?");
    assert_eq!(
        of_pool("limits = { cpu = '1500m', memory = '1Ti', nodes = 3, 'nvidia.com/gpu' = '8', pods = '1k' }"),
        []
    );
}

#[test]
fn a_role_or_a_profile_not_both() {
    let found = errors(&fleet(
        "[pools.a]\nstrategy = 'spot'\n[classes.default]\nrole = 'a'\ninstance-profile = 'b'\n",
    ));
    assert_eq!(places(&found), ["error PRV1611 5:20"], "{found:#?}");
    // The profile of one environment in place of the role of all.
    let prod = "[pools.a]\nstrategy = 'spot'\n[classes.default]\ninstance-profile = 'b'\n[defaults.class]\nrole = { '$remove' = true }\n";
    let files =
        [("fleet.toml", "name = 'shop'\n[defaults.class]\nrole = 'a'\n"), ("environments/prod.toml", prod)];
    let manifest = crate::fleet_files::manifest(
        &crate::fleet_files::state(&repository(&files)),
        "EC2NodeClass",
        "default",
    );
    assert_eq!(
        (&manifest["spec"]["instanceProfile"], &manifest["spec"]["role"]),
        (&"b".into(), &serde_json::Value::Null)
    );
}

#[test]
fn a_family_of_images_without_a_version_is_no_image() {
    let of_ami = |ami: &str| of_pool(&format!("[classes.default]\nami = {ami}"));
    for (ami, place, advice) in [
        ("'al2023'", "5:7", "write \"al2023@latest\""),
        ("'AL2023'", "5:7", "write \"al2023@latest\""),
        ("'al2'", "5:7", "write \"al2@latest\""),
        ("['bottlerocket']", "5:8", "write \"bottlerocket@latest\""),
        ("'bottlerocket:1.20.0'", "5:7", "write \"bottlerocket@1.20.0\""),
        ("'windows2019'", "5:7", "write \"windows2019@latest\""),
        ("'windows2022'", "5:7", "write \"windows2022@latest\""),
        ("'windows2025'", "5:7", "write \"windows2025@latest\""),
        ("'custom'", "5:7", "name the image itself"),
    ] {
        let found = of_ami(ami);
        assert_eq!(places(&found), [format!("error PRV1203 {place}")], "{ami}: {found:#?}");
        assert!(help(&found[0]).starts_with(advice), "{ami}: {found:#?}");
        assert!(help(&found[0]).contains("[{ name = "), "{ami}: the way to mean the name: {found:#?}");
    }
    for ami in
        ["'al2023@latest'", "[{ name = 'al2023' }]", "{ name = 'al2023' }", "'al2023-mine'", "'my-custom-*'"]
    {
        assert_eq!(of_ami(ami), [], "{ami}");
    }
}

#[test]
fn one_path_is_overridden_once() {
    let found = of_pool("[pools.a.overrides]\n'spec.weight' = 5\nspec.weight = 6");
    assert_eq!(places(&found), ["error PRV1509 6:6"], "{found:#?}");
    assert_eq!(found[0].chain[0].place.position(), (5, 1));
    let found = of_pool("[pools.a.overrides]\nspec.weight = { '$remove' = true, x = 1 }");
    assert!(places(&found).contains(&"error PRV1307 5:35".to_owned()), "{found:#?}");
    let fine = "[pools.a.overrides]\n'spec.template.metadata.labels.a' = '5'\nspec.template.metadata.labels.'a.b' = '6'";
    assert_eq!(of_pool(fine), []);
}

#[test]
fn a_mark_protects_something() {
    let marked = |finals: &str| {
        let fleet = format!("name = 'shop'\nfinal = [{finals}]\n");
        told(&[("fleet.toml", &fleet), ("environments/prod.toml", "[pools.general]\nstrategy = 'spot'\n")])
    };
    let found = marked("'][', 'pools.**', 'pools.*.budget', 'pools.genral.budgets', 'weight'");
    assert_eq!(
        places(&found),
        [
            "error PRV1308 2:10",
            "error PRV1308 2:16",
            "error PRV1308 2:28",
            "warning PRV1308 2:46",
            "error PRV1308 2:70"
        ],
        "{found:#?}"
    );
    assert_eq!(help(&found[2]), "did you mean `pools.*.budgets`?");
    assert_eq!(help(&found[3]), "did you mean `general`?");
    assert_eq!(
        marked("'pools.*.budgets', 'region', 'pools.*.limits.cpu', 'pools.*.labels.example.com/team'"),
        []
    );
    // A label's key is one key, dots and all.
    let prod = "[pools.general]\nstrategy = 'spot'\nlabels = { 'example.com/team' = 'b' }\n";
    let found = told(&[
        ("fleet.toml", "name = 'shop'\nfinal = ['pools.*.labels.example.com/team']\n"),
        ("environments/prod.toml", prod),
    ]);
    assert_eq!(places(&found), ["error PRV1304 3:12"], "{found:#?}");
}

#[test]
fn nothing_stands_beside_a_removal() {
    let found = of_pool("[pools.b]\n'$remove' = true\nweight = 4");
    assert_eq!(places(&found), ["error PRV1305 4:8", "error PRV1307 6:1"], "{found:#?}");
    let found = of_pool("budgets = [{ name = 'a', nodes = 1 }, { name = 'a', nodes = 2 }]");
    assert_eq!(places(&found), ["error PRV1625 4:48"], "{found:#?}");
    let found =
        of_pool("[classes.default]\nvolumes = [{ size = '20Gi' }, { device = '/dev/xvda', size = '30Gi' }]");
    assert_eq!(places(&found), ["error PRV1625 5:42"], "{found:#?}");
}

#[test]
fn categories_and_sizes_that_do_not_exist_are_worth_a_look() {
    let found = of_pool("instance-categories = ['c', 'compute']\ninstance-sizes = ['large', 'lrge']");
    assert_eq!(places(&found), ["warning PRV1618 4:29", "warning PRV1618 5:28"], "{found:#?}");
    assert_eq!(help(&found[1]), "did you mean `large`?");
    assert_eq!(of_pool("instance-categories = ['c', 'm']\ninstance-sizes = ['large', 'metal-24xl']"), []);
}

#[test]
fn regions_and_zones_belong_together() {
    let of = |text: &str| {
        let prod = format!("{text}\n[pools.a]\nstrategy = 'on-demand'\n");
        told(&[("fleet.toml", "name = 'shop'\n"), ("environments/prod.toml", &prod)])
    };
    assert_eq!(places(&of("region = 'us-moon-1'")), ["warning PRV1624 1:10"]);
    assert_eq!(places(&of("region = 'us-east-1a'")), ["error PRV1624 1:10"]);
    let found = of("region = 'us-eest-1'");
    assert_eq!(
        (places(&found), help(&found[0])),
        (vec!["warning PRV1624 1:10".into()], "did you mean `us-east-1`?")
    );
    let found = of_pool("zones = ['us-east-1a', 'eu-west-1a', 'a', 'us-east-1', 'us-east-1z']");
    assert_eq!(
        places(&found),
        ["error PRV1626 4:24", "error PRV1626 4:38", "error PRV1626 4:43", "warning PRV1626 4:56"],
        "{found:#?}"
    );
    assert_eq!(found[0].message, "the zone `eu-west-1a` is not in us-east-1");
    assert_eq!(
        of_pool("zones = ['us-east-1a', 'us-east-1-bos-1a']").iter().filter(|one| one.is_error()).count(),
        0
    );
    // Nothing names a region: the zones speak for themselves.
    let of = |zones: &str| {
        let prod = format!("[pools.a]\nstrategy = 'on-demand'\nzones = {zones}\n");
        told(&[("fleet.toml", "name = 'shop'\n"), ("environments/prod.toml", &prod)])
    };
    let found = of("['us-moon-1a']");
    assert_eq!(places(&found), ["warning PRV1626 3:10"], "{found:#?}");
    assert_eq!(found[0].message, "the zone `us-moon-1a` is in no region that is known");
    assert_eq!(help(&of("['us-eest-1a']")[0]), "did you mean a zone of `us-east-1`?");
    let found = of("['us-east-1a', 'us-east-1b', 'eu-west-1a']");
    assert_eq!(places(&found), ["warning PRV1626 3:38"], "{found:#?}");
    assert!(found[0].message.contains("is in eu-west-1, and others of this pool are in us-east-1"));
    assert_eq!(of("['us-east-1a', 'us-east-1-bos-1a']"), []);
}

#[test]
fn ren_039_a_label_that_no_machine_of_the_pool_has_is_a_contradiction() {
    let found = of_pool("labels = { 'kubernetes.io/arch' = 'arm64' }");
    assert_eq!(places(&found), ["error PRV1601 4:35"], "{found:#?}");
    for (key, value) in [
        ("topology.kubernetes.io/zone", "eu-west-1a"),
        ("karpenter.sh/capacity-type", "reserved"),
        ("node.kubernetes.io/instance-type", "nope"),
    ] {
        let found = of_pool(&format!("labels = {{ '{key}' = '{value}' }}"));
        assert!(found.iter().any(|one| one.is_error()), "{key}={value}: {found:#?}");
    }
    assert_eq!(of_pool("labels = { team = 'shop', 'kubernetes.io/arch' = 'amd64' }"), []);
}

#[test]
fn a_window_that_never_closes_is_worth_a_look() {
    let schedules = [("*/5 * * * *", "1h"), ("@hourly", "2h"), ("@daily", "25h"), ("0 9 * * 0", "170h")];
    for (schedule, duration) in schedules {
        let found = of_pool(&format!(
            "budgets = [{{ nodes = '10%', schedule = '{schedule}', duration = '{duration}' }}]"
        ));
        assert_eq!(places(&found), ["warning PRV1606 4:40"], "{schedule}: {found:#?}");
        assert!(found[0].message.contains("starts again before"), "{}", found[0]);
    }
    assert_eq!(of_pool("budgets = [{ nodes = '10%', schedule = '0 0 1 * *', duration = '600h' }]"), []);
}

#[test]
fn a_window_that_never_opens_is_worth_a_look() {
    let found = of_pool("budgets = [{ nodes = '10%', schedule = '0 0 31 2 *', duration = '1h' }]");
    assert_eq!(places(&found), ["warning PRV1606 4:40"], "{found:#?}");
    assert!(found[0].message.contains("never opens"), "{}", found[0]);
}

#[test]
fn kubelet_amounts_and_addresses_are_what_they_say() {
    let found = of_pool(
        "[classes.default.kubelet]\nkubeReserved = { cpu = 'lots', memory = '1Gi' }\nsystemReserved = { cpu = '1Gi' }\nclusterDNS = ['10.0.0.10', 'dns']",
    );
    assert_eq!(
        places(&found),
        ["error PRV1623 5:24", "error PRV1623 6:26", "error PRV1623 7:28"],
        "{found:#?}"
    );
    assert_eq!(
        of_pool(
            "[classes.default.kubelet]\nkubeReserved = { cpu = '80m', memory = '1Gi', pid = '1000' }\nclusterDNS = ['fd00::a']"
        ),
        []
    );
}

#[test]
fn a_buffer_lives_in_a_namespace_that_can_exist() {
    let buffer = "[buffers.a]\nnamespace = 'My Space'\nreplicas = 1\nscalableRef = { apiGroup = 'apps', kind = 'Deployment', name = 'web' }";
    let found = of_pool(buffer);
    assert!(places(&found).contains(&"error PRV1207 5:13".to_owned()), "{found:#?}");
}

#[test]
fn environments_without_pools_are_worth_a_look() {
    let base =
        ("environments/base.toml", "abstract = true\n[pools.a]\nstrategy = 'spot'\n[classes.default]\n");
    let fleet = ("fleet.toml", "name = 'shop'\n");
    assert_eq!(places(&told(&[fleet, base])), ["warning PRV1306 1:1"]);
    let emptied = ("environments/prod.toml", "extends = 'base'\n[pools.a]\n'$remove' = true\n");
    assert_eq!(places(&told(&[fleet, base, emptied])), ["warning PRV1306 1:1"]);
    let used = ("environments/prod.toml", "extends = 'base'\n");
    assert_eq!(told(&[fleet, base, used]), []);
}

#[test]
fn a_comparison_takes_a_number() {
    let found = of_pool(
        "requirements = { 'karpenter.k8s.aws/instance-cpu' = { operator = 'Gt', values = ['many'] } }",
    );
    assert_eq!(places(&found), ["error PRV1621 4:82"], "{found:#?}");
    assert!(found[0].message.contains("`Gt` compares"), "{}", found[0]);
}

#[test]
fn one_mistake_is_one_error_where_it_was_written() {
    let found = of_pool("overrides = { 'spec.template.spec.requirements[0].minValues' = 2 }");
    assert_eq!(places(&found), ["error PRV1503 4:64"], "{found:#?}");
    assert_eq!(&**found[0].place.file(), "environments/prod.toml");
    assert_eq!(found[0].severity, Severity::Error);
}

#[test]
fn an_empty_text_where_a_name_belongs_is_told() {
    for (lines, place) in [
        ("[classes.default]\nami = ''", "5:7"),
        ("[classes.default]\nami = [{ name = '', owner = 'self' }]\nami-family = 'AL2023'", "5:17"),
        ("[classes.default]\nsecurity-groups = [{ name = '' }]", "5:29"),
        ("[classes.default]\nvolumes = [{ device = '', size = '20Gi' }]", "5:23"),
        ("[classes.default]\nvolumes = [{ size = '20Gi', kms-key = '' }]", "5:39"),
        ("[classes.default]\nvolumes = [{ snapshot = ' ' }]", "5:25"),
    ] {
        let found = of_pool(lines);
        assert_eq!(places(&found), [format!("error PRV1627 {place}")], "{lines}: {found:#?}");
        assert!(!help(&found[0]).is_empty());
    }
    assert!(help(&of_pool("[classes.default]\nami = ''")[0]).contains("al2023@latest"));
    for (field, place) in [("region", "1:10"), ("cluster", "1:11")] {
        let found = errors(&fleet(&format!("{field} = ''\n[pools.a]\nstrategy = 'spot'\n")));
        assert!(places(&found).contains(&format!("error PRV1627 {place}")), "{found:#?}");
        assert!(!help(&found[0]).contains("trust"), "{found:#?}");
    }
    // Values of tags and labels may be empty.
    assert_eq!(of_pool("labels = { team = '' }\n[classes.default]\ntags = { team = '' }"), []);
}

#[test]
fn user_data_that_ec2_does_not_take_is_told() {
    let script = |bytes: usize| format!("#!/bin/sh\n{}", "#".repeat(bytes - 10));
    let prod = "[pools.a]\nstrategy = 'spot'\n[classes.default]\nuser-data-file = 'boot.sh'\n";
    let of = |bytes: usize| {
        let script = script(bytes);
        told(&[("fleet.toml", "name = 'shop'\n"), ("environments/prod.toml", prod), ("boot.sh", &script)])
    };
    let found = of(16_385);
    assert_eq!(places(&found), ["error PRV1628 4:18"], "{found:#?}");
    assert!(found[0].message.contains("16385 bytes"), "{found:#?}");
    let lines = "echo of many lines\n".repeat(1_000);
    let mut found = of_pool(&format!("[classes.default]\nuser-data = '''\n{lines}'''"));
    let drawn = draw(&found.remove(0).into(), false);
    assert!(drawn.contains("error[PRV1628]") && drawn.lines().count() < 10, "{drawn}");
    assert_eq!(of(16_384), []);
    let found = of_pool(&format!("[classes.default]\nuser-data = '''{}'''", script(20_000)));
    assert_eq!(places(&found), ["error PRV1628 5:13"], "{found:#?}");
}

#[test]
fn disks_have_the_speeds_that_their_type_has() {
    let of = |disk: &str| of_pool(&format!("[classes.default]\nvolumes = [{{ size = '20Gi', {disk} }}]"));
    for (disk, place, advice) in [
        ("type = 'gp2', iops = 3000", "5:50", "`gp3`, `io1` or `io2`"),
        ("type = 'st1', throughput = 250", "5:56", "the type `gp3`"),
        ("type = 'io2', iops = 4000, throughput = 250", "5:69", "the type `gp3`"),
        ("iops = 2000", "5:36", "3000 to 80000"),
        ("iops = 80001", "5:36", "3000 to 80000"),
        ("type = 'io1', iops = 64001", "5:50", "100 to 64000"),
        ("type = 'io2', iops = 256001", "5:50", "100 to 256000"),
        ("type = 'io1'", "5:36", "from 100 to 64000"),
        ("throughput = 124", "5:42", "125 to 2000"),
        ("throughput = 2001", "5:42", "125 to 2000"),
    ] {
        let found = of(disk);
        assert_eq!(places(&found), [format!("error PRV1629 {place}")], "{disk}: {found:#?}");
        assert!(help(&found[0]).contains(advice), "{disk}: {found:#?}");
    }
    for disk in [
        "iops = 3000, throughput = 2000",
        "iops = 80000",
        "type = 'io1', iops = 64000",
        "type = 'io2', iops = 256000",
        "type = 'gp2'",
        "throughput = 125",
    ] {
        assert_eq!(of(disk), [], "{disk}");
    }
}

#[test]
fn pods_per_node_are_a_number() {
    let of = |pods: &str| of_pool(&format!("[classes.default.kubelet]\nmaxPods = {pods}"));
    for (pods, advice) in
        [("'many'", "such as 110"), ("'110'", "without quotes: 110"), ("'-5'", "such as 110")]
    {
        let found = of(pods);
        assert_eq!(places(&found), ["error PRV1623 5:11"], "{pods}: {found:#?}");
        assert!(help(&found[0]).contains(advice), "{found:#?}");
    }
    assert_eq!(of("110"), []);
}

#[test]
fn room_that_is_never_kept_is_worth_a_look() {
    for (lines, place, said) in [
        ("[buffers.b]\nreplicas = 3", "4:10", "for which pods"),
        ("headroom = { pods = 4 }", "4:1", "ask for nothing"),
        ("headroom = { pods = 4, cpu = '10000' }", "4:30", "asks for 10000 of `cpu`, and the largest has"),
        ("headroom = { cpu = 1, memory = '900Ti' }", "4:32", "of `memory`"),
        ("headroom = { cpu = 1, resources = { 'nvidia.com/gpu' = 1 } }", "4:56", "of `nvidia.com/gpu`"),
    ] {
        let found = of_pool(lines);
        assert_eq!(places(&found), [format!("warning PRV1630 {place}")], "{lines}: {found:#?}");
        assert!(found[0].message.contains(said), "{found:#?}");
    }
    // The pool decides what the largest is.
    let found = of_pool("instance-types = ['m5.large']\nheadroom.cpu = 3");
    assert_eq!(places(&found), ["warning PRV1630 5:16"], "{found:#?}");
    for fine in [
        "headroom = { pods = 4, cpu = '500m', memory = '1Gi' }",
        "instance-types = ['m5.large']\nheadroom.cpu = 1",
        // Devices of a plugin, and of an overlay.
        "headroom.resources = { 'example.com/fpga' = 1 }",
        "headroom.resources = { 'nvidia.com/gpu' = 1 }\n[overlays.o]\nrequirements = []\ncapacity = { 'nvidia.com/gpu' = '4' }",
        "[buffers.b]\nreplicas = 3\nscalableRef = { apiGroup = 'apps', kind = 'Deployment', name = 'web' }",
    ] {
        assert_eq!(of_pool(fine), [], "{fine}");
    }
}

#[test]
fn a_fixed_size_above_the_limit_is_worth_a_look() {
    let of = |lines: &str| {
        let prod = format!("region = 'us-east-1'\n[pools.a]\nstrategy = 'static'\n{lines}\n");
        told(&[("fleet.toml", "name = 'shop'\n"), ("environments/prod.toml", &prod)])
    };
    let found = of("replicas = 5\nlimits.nodes = 3");
    assert_eq!(places(&found), ["warning PRV1631 4:12"], "{found:#?}");
    assert_eq!(found[0].chain[0].place.position(), (5, 16));
    assert_eq!(of("replicas = 5\nlimits.nodes = 5"), []);
}

#[test]
fn what_makes_classes_is_no_strategy() {
    let found = errors(&fleet("[pools.a]\nstrategy = 'ec2nodeclass'\n"));
    assert_eq!(places(&found), ["error PRV1401 2:12"], "{found:#?}");
    assert!(found[0].message.contains("`ec2nodeclass` is no strategy"), "{found:#?}");
    assert!(help(&found[0]).contains("`spot`") && !help(&found[0]).contains("ec2nodeclass"), "{found:#?}");
}

#[test]
fn a_base_is_named_without_its_ending() {
    for named in ["base.toml", "environments/base.toml", "base.yaml"] {
        let prod = format!("extends = '{named}'\n[pools.a]\nstrategy = 'spot'\n");
        let found = told(&[
            ("fleet.toml", "name = 'shop'\n"),
            ("environments/base.toml", "abstract = true\n"),
            ("environments/prod.toml", &prod),
        ]);
        assert_eq!(places(&found), ["error PRV1207 1:11"], "{named}: {found:#?}");
        assert!(help(&found[0]).ends_with("`extends = \"base\"`"), "{found:#?}");
    }
}

#[test]
fn what_no_override_changes_is_said_with_its_reason() {
    for (path, message, advice) in [
        ("status", "written by the cluster, not by people", "under `spec`"),
        ("'status.nodes'", "written by the cluster, not by people", "under `spec`"),
        ("kind", "what kind of object", "a template of your own"),
        ("'metadata.name'", "names the object", "rename the pool"),
        ("'metadata.namespace'", "in a namespace", "cluster as a whole"),
    ] {
        let found = of_pool(&format!("overrides = {{ {path} = 'x' }}"));
        assert_eq!(places(&found), ["error PRV1508 4:15"], "{path}: {found:#?}");
        assert!(found[0].message.contains(message) && help(&found[0]).contains(advice), "{found:#?}");
    }
}

#[test]
fn a_number_beyond_all_numbers_is_told_the_range_of_its_field() {
    for number in ["99999999999999999999", "-99999999999999999999"] {
        let found = of_pool(&format!("weight = {number}"));
        assert_eq!(places(&found), ["error PRV1206 4:10"], "{found:#?}");
        assert_eq!(help(&found[0]), "it takes whole numbers from 1 to 100");
    }
    // Where any value will do it would become another number.
    for lines in
        ["variables.n = 99999999999999999999", "overrides = { 'spec.weight' = 99999999999999999999 }"]
    {
        let found = of_pool(lines);
        assert!(found[0].code == "PRV1206" && help(&found[0]) == "write it as a text", "{lines}: {found:#?}");
    }
}

#[test]
fn nodes_that_expire_before_they_are_of_use_are_worth_a_look() {
    for (lifetime, codes) in [("0s", &["PRV1632"][..]), ("9m59s", &["PRV1632"]), ("10m", &[]), ("Never", &[])]
    {
        let found = of_pool(&format!("expire-after = '{lifetime}'"));
        assert_eq!(found.iter().map(|one| one.code).collect::<Vec<_>>(), codes, "{lifetime}: {found:#?}");
        assert!(found.iter().all(|one| !one.is_error()));
    }
}

#[test]
fn headroom_on_a_fixed_number_of_nodes_is_worth_a_look() {
    let found = told(&[
        ("fleet.toml", "name = 'shop'\ndefaults.region = 'us-east-1'\n"),
        (
            "environments/prod.toml",
            "[pools.a]\nstrategy = 'static'\nreplicas = 2\nheadroom = { cpu = '500m' }\n",
        ),
    ]);
    let codes: Vec<&str> = found.iter().map(|one| one.code).collect();
    assert_eq!(codes, ["PRV1630"], "{found:#?}");
    assert!(found[0].message.contains("fixed"), "{found:#?}");
}

#[test]
fn a_duration_that_cannot_be_never_says_so() {
    let found = of_pool("termination-grace-period = 'Never'");
    assert_eq!(found.iter().map(|one| one.code).collect::<Vec<_>>(), ["PRV1203"]);
    assert_eq!(help(&found[0]), "this one cannot be `Never`: leave it out for no limit");
}

#[test]
fn a_fleet_file_under_another_name_is_named() {
    let prod = ("environments/prod.toml", "[pools.a]\nstrategy = 'spot'\n");
    for name in ["fleet.yaml", "fleet.yml", "fleet.json", "Fleet.toml"] {
        let found = told(&[(name, "name: shop\n"), prod]);
        assert_eq!(places(&found), ["error PRV1101 1:1"], "{found:#?}");
        assert_eq!(&**found[0].place.file(), name);
        assert!(help(&found[0]).contains("call it fleet.toml"), "{found:#?}");
        let found = told(&[("fleet.toml", "name = 'shop'\n"), (name, "name: shop\n"), prod]);
        assert_eq!(places(&found), ["warning PRV1105 1:1"], "{found:#?}");
    }
    let fleet = ("fleet.toml", "name = 'shop'\n");
    for (name, meant) in [("simulation.yaml", "simulation.toml"), ("Provisor.lock", "provisor.lock")] {
        let found = told(&[fleet, (name, "x: 1\n"), prod]);
        assert_eq!(places(&found), ["warning PRV1105 1:1"], "{found:#?}");
        assert!(found[0].message.contains(meant), "{found:#?}");
    }
}

#[test]
fn a_file_name_that_is_no_name_is_one_mistake() {
    let found = told(&[
        ("fleet.toml", "name = 'shop'\n"),
        ("environments/my dev.toml", "[pools.a]\nstrategy = 'spot'\n"),
    ]);
    assert_eq!(places(&found), ["error PRV1106 1:1"], "{found:#?}");
}

#[test]
fn what_an_ignore_file_hides_is_named_where_it_is_needed() {
    for (hidden, prod) in [
        ("environments/base.toml", "extends = 'base'\n"),
        ("environments/base.yml", "extends = 'base'\n"),
        ("u", "[pools.a]\nstrategy = 'spot'\n[classes.default]\nuser-data-file = 'u/deep/b.sh'\n"),
        ("u/deep/b.sh", "[pools.a]\nstrategy = 'spot'\n[classes.default]\nuser-data-file = 'u/deep/b.sh'\n"),
    ] {
        let mut repository = fleet(prod);
        repository.refused.insert(hidden.into(), Refusal::Ignored);
        let found = errors(&repository);
        let [one] = found.as_slice() else { panic!("{hidden}: {found:#?}") };
        assert_eq!((one.code, &**one.place.file()), ("PRV1007", hidden), "{one}");
        assert!(one.help.as_deref().is_some_and(|help| help.contains(".provisorignore")), "{one}");
        assert_eq!(&**one.chain[0].place.file(), "environments/prod.toml", "{one}");
    }
}
