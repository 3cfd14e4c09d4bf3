//! No mistake waits for another one to be repaired: each that a file can have is told beside a wrong number in it.

use std::collections::BTreeSet;

use crate::fleet_files::{errors, repository};

/// A wrong number, in a pool of its own.
const BESIDE: &str = "\n[pools.zz]\nstrategy = 'spot'\nweight = 500\n";
const POOL: &str = "\n[pools.a]\nstrategy = 'spot'\n";

/// Codes that no case here can have, and why.
const NONE_HERE: [(&str, &[&str]); 4] = [
    (
        "only ever a warning",
        &[
            "PRV1209", "PRV1210", "PRV1306", "PRV1410", "PRV1604", "PRV1606", "PRV1616", "PRV1619",
            "PRV1620", "PRV1622", "PRV1630", "PRV1631", "PRV1632", "PRV1633", "PRV1634", "PRV1635",
            "PRV1637", "PRV1641", "PRV1704", "PRV1808",
        ],
    ),
    (
        "may follow from what is left out",
        &["PRV1403", "PRV1409", "PRV1414", "PRV1501", "PRV1506", "PRV1801", "PRV1803", "PRV1806"],
    ),
    (
        "told of the repository, with everything",
        &["PRV1701", "PRV1702", "PRV1703", "PRV1804", "PRV1805", "PRV1807"],
    ),
    (
        "of other verbs, or of a file as a whole",
        &["PRV1208", "PRV1211", "PRV1302", "PRV1303", "PRV1413", "PRV1405", "PRV1505"],
    ),
];

fn cases() -> Vec<(&'static str, String)> {
    let pool = |lines: &str| format!("{POOL}{lines}\n");
    let class = |lines: &str| format!("{POOL}[classes.default]\n{lines}\n");
    let own = "[pools.own]\nstrategy = 'own'\n".to_owned();
    let disk =
        |lines: &str| class(&format!("volumes = [{{ device = '/dev/xvda', size = '50Gi', {lines} }}]"));
    vec![
        ("PRV1201", pool("limts = { cpu = 1 }")),
        ("PRV1202", pool("labels = ['a']")),
        ("PRV1203", pool("expire-after = '7 days'")),
        ("PRV1203", class("ami = 'al2023'")),
        ("PRV1204", "[pools.a]\nweight = 3\n".to_owned()),
        ("PRV1205", pool("consolidation-policy = 'Never'")),
        ("PRV1206", pool("replicas = -1")),
        ("PRV1207", "[pools.'A b']\nstrategy = 'spot'\n".to_owned()),
        ("PRV1301", "extends = 'nobody'\n".to_owned()),
        ("PRV1304", format!("extends = 'base'\n{POOL}weight = 7\n")),
        ("PRV1305", pool("replicas = { '$remove' = true }")),
        ("PRV1307", pool("limits = { '$remove' = true, cpu = 4 }")),
        ("PRV1308", format!("final = ['pools.a.wieght']\n{POOL}")),
        ("PRV1401", "[pools.a]\nstrategy = 'spott'\n".to_owned()),
        ("PRV1402", own.clone()),
        ("PRV1404", own.clone()),
        ("PRV1406", own.clone()),
        ("PRV1407", own.clone()),
        ("PRV1408", own.clone()),
        ("PRV1412", own.clone()),
        ("PRV1502", own.clone()),
        ("PRV1503", pool("labels = { team = 'not a value!' }")),
        ("PRV1504", own),
        ("PRV1507", pool("overrides = { 'spec.disruption.budgets[3].nodes' = '1' }")),
        ("PRV1508", pool("overrides = { metadata.name = 'b' }")),
        ("PRV1509", pool("[pools.a.overrides]\nspec.weight = 1\n'spec.weight' = 2")),
        (
            "PRV1601",
            pool("requirements = [{ key = 'x.io/a', values = ['b'] }, { key = 'x.io/a', values = ['c'] }]"),
        ),
        ("PRV1602", pool("instance-types = ['m5.large']\ninstance-cpu-min = 64")),
        ("PRV1603", pool("zones = ['us-east-1q']")),
        ("PRV1636", format!("cloud = 'simulated'\nengine = 'karpenter'\n{POOL}")),
        ("PRV1605", pool("budgets = [{ nodes = '1', schedule = '@daily' }]")),
        ("PRV1607", pool("class = 'gone'")),
        ("PRV1609", class("user-data = 'AKIAIOSFODNN7EXAMPLE'")),
        ("PRV1610", "[pools.a]\nstrategy = 'bottlerocket'\nclass = 'one'\n[pools.b]\nstrategy = 'self-managed'\nclass = 'one'\n[classes.one]\n".to_owned()),
        ("PRV1611", class("role = 'a'\ninstance-profile = 'b'")),
        ("PRV1612", class("user-data-file = 'boot.sh'")),
        ("PRV1613", pool("requirements = { 'karpenter.k8s.aws/instance-colour' = ['red'] }")),
        ("PRV1614", pool("instance-categories = ['m5']")),
        ("PRV1615", pool("expire-after = '1h'\ntermination-grace-period = '2h'")),
        ("PRV1617", pool("annotations = { 'provisor.dev/a' = 'b' }")),
        ("PRV1618", pool("instance-types = ['m5.lage']")),
        (
            "PRV1621",
            pool("requirements = { 'karpenter.k8s.aws/instance-cpu' = { operator = 'Gt', values = ['x'] } }"),
        ),
        ("PRV1623", class("kubelet = { clusterDNS = ['here'] }")),
        ("PRV1624", "region = 'Here'\n".to_owned()),
        ("PRV1625", pool("budgets = [{ name = 'a', nodes = '1' }, { name = 'a', nodes = '2' }]")),
        ("PRV1626", pool("zones = ['eu-west-1a']")),
        ("PRV1627", "region = ''\n".to_owned()),
        ("PRV1627", "cluster = ''\n".to_owned()),
        ("PRV1627", class("ami = ''")),
        ("PRV1628", class(&format!("user-data = '{}'", "x".repeat(17_000)))),
        ("PRV1629", disk("type = 'gp2', iops = 3000")),
        ("PRV1640", pool("roll = { surge = 0 }")),
    ]
}

/// What is in front of the object that a template of this code makes.
fn template(code: &str) -> &'static str {
    match code {
        "PRV1402" => "{% if pool.weight %}",
        "PRV1404" => "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
        "PRV1406" => "{% include \"../fleet.toml\" %}",
        "PRV1407" => "{% include \"own.yaml.j2\" %}",
        "PRV1408" => "{{ cluster | tojsn }}",
        "PRV1412" => "{% include \"nodepol.yaml.j2\" %}",
        "PRV1502" => "apiVersion: v1\nkind: Secret\nmetadata: { name: a }\n---",
        "PRV1504" => "{% set x = 1 %}{% include \"spot.yaml.j2\" %}\n---",
        _ => "",
    }
}

fn codes_of(code: &str, prod: &str) -> BTreeSet<&'static str> {
    let has_region = prod.lines().any(|line| line.starts_with("region"));
    let prod = format!("{}{prod}", if has_region { "" } else { "region = 'us-east-1'\n" });
    let own = format!("{}\n{{% include \"spot.yaml.j2\" %}}\n", template(code));
    let files = [
        ("fleet.toml", "name = 'shop'\n"),
        (
            "environments/base.toml",
            "abstract = true\nfinal = ['pools.a.weight']\n[pools.a]\nstrategy = 'spot'\n",
        ),
        ("environments/prod.toml", &prod),
        ("templates/own.yaml.j2", &own),
    ];
    errors(&repository(&files)).into_iter().filter(|one| one.is_error()).map(|one| one.code).collect()
}

#[test]
fn ren_007_every_mistake_is_told_beside_another() {
    let mut missing = Vec::new();
    for (code, lines) in cases() {
        let (alone, both) = (codes_of(code, &lines), codes_of(code, &format!("{lines}{BESIDE}")));
        if !alone.contains(code) {
            missing.push(format!("{code} is not told alone: {alone:?}"));
        } else if !both.contains(code) || !both.contains("PRV1206") {
            missing.push(format!("{code} waits: {both:?}"));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A new code gets a case here, or says why it has none.
#[test]
fn every_code_of_an_environment_is_tried_beside_another() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/strategy.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let codes = guide.split("<a id=\"prv").skip(1).map(|rest| format!("PRV{}", &rest[..4]));
    let cases = cases();
    let is_tried = |code: &str| cases.iter().any(|(tried, _)| *tried == code);
    let is_none = |code: &str| NONE_HERE.iter().any(|(_, codes)| codes.contains(&code));
    let of_environments: Vec<String> =
        codes.filter(|code| ("PRV1200".."PRV1900").contains(&code.as_str())).collect();
    assert!(of_environments.len() > 60, "the guide has no list of codes");
    let wrong: Vec<&String> = of_environments.iter().filter(|code| is_tried(code) == is_none(code)).collect();
    assert!(wrong.is_empty(), "neither tried nor excused, or both: {wrong:?}");
}

fn told(prod: &str) -> Vec<(&'static str, u32)> {
    let files = [("fleet.toml", "name = 'shop'\n"), ("environments/prod.toml", prod)];
    errors(&repository(&files)).iter().map(|one| (one.code, one.place.position().0)).collect()
}

#[test]
fn what_follows_from_a_mistake_is_not_told_with_it() {
    assert_eq!(told("[pools.a]\nstratgy = 'spot'\n"), [("PRV1201", 2)]);
    let lives = "[pools.a]\nstrategy = 'spot'\nexpire-after = '99d'\ntermination-grace-period = '800h'\n";
    assert_eq!(told(lives), [("PRV1203", 3)]);
    let disk = "[pools.a]\nstrategy = 'spot'\n[[classes.default.volumes]]\ndevice = '/dev/xvda'\nsize = '50Gi'\n\
                type = 'io9'\niops = 100\n";
    let told_of_disk = told(disk);
    assert_eq!(told_of_disk.iter().map(|(_, line)| *line).collect::<Vec<_>>(), [6], "{told_of_disk:?}");
    let system = "[pools.a]\nstrategy = 'bottlerocket'\nclass = 'one'\n[pools.b]\nstrategy = 'self-managed'\n\
                  class = 'one'\n[classes.one]\npreset = 7\n";
    assert_eq!(told(system), [("PRV1203", 8)]);
}

#[test]
fn a_missing_base_hides_nothing_of_the_file_itself() {
    // The strategy of `b` and the class may be in the base.
    let prod = "extends = 'nobody'\nregion = 'us-east-1'\n[pools.a]\nstrategy = 'spott'\n[pools.b]\nweight = 5\n\
                [pools.c]\nstrategy = 'spot'\nzones = ['eu-west-1a']\nclass = 'big'\nreplicas = { '$remove' = true }\n";
    assert_eq!(told(prod), [("PRV1301", 1), ("PRV1401", 4), ("PRV1626", 9)]);
    let files = [
        ("fleet.toml", "name = 'shop'\n"),
        ("environments/base.toml", "abstract = = true\n"),
        ("environments/prod.toml", "extends = 'base'\n[pools.a]\nstrategy = 'spott'\nclass = 'big'\n"),
    ];
    let found = errors(&repository(&files));
    let codes: Vec<&str> = found.iter().map(|one| one.code).collect();
    assert_eq!(codes, ["PRV1009", "PRV1009", "PRV1401"], "{found:#?}");
}
