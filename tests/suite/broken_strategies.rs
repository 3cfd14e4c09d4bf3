//! Broken repositories, each with exactly what is said about it. `UPDATE=1 cargo test` rewrites the expectations; the diff is
//! the review.

use std::fmt::Write;
use std::sync::Arc;

use crate::fleet_files::repository_of_bytes;
use provisor::gitops::render::{RenderSettings, validate_repository};
use provisor::model::repository::{Refusal, Repository};

const EXPECTED: &str = "tests/suite/broken_strategies.expected";
const FLEET: (&str, &[u8]) = ("fleet.toml", b"name = \"shop\"\n");
const GOOD: &str = "[pools.general]\nstrategy = \"own\"\n";
const OBJECT: &str = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: { name: general }\nspec:\n  template:\n    spec:\n      requirements: []\n      nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }\n";

struct Case {
    name: &'static str,
    repository: Repository,
}

fn files(name: &'static str, files: &[(&str, &[u8])]) -> Case {
    Case { name, repository: repository_of_bytes(files) }
}

fn toml(name: &'static str, prod: &str) -> Case {
    files(name, &[FLEET, ("environments/prod.toml", prod.as_bytes())])
}

fn yaml(name: &'static str, prod: &str) -> Case {
    files(name, &[FLEET, ("environments/prod.yaml", prod.as_bytes())])
}

/// A pool whose template has this in front of its object.
fn template(name: &'static str, text: &str) -> Case {
    let own = format!("{text}\n{OBJECT}");
    files(
        name,
        &[FLEET, ("environments/prod.toml", GOOD.as_bytes()), ("templates/own.yaml.j2", own.as_bytes())],
    )
}

fn refused(name: &'static str, path: &str, refusal: Refusal) -> Case {
    let mut case = files(name, &[FLEET, ("environments/dev.toml", b"pools.a.strategy = 'spot'\n")]);
    case.repository.refused.insert(Arc::from(path), refusal);
    case
}

fn cases() -> Vec<Case> {
    vec![
        files("an empty repository", &[]),
        files("no fleet.toml", &[("environments/prod.toml", b"")]),
        files("a fleet in a folder", &[("infra/fleet.toml", b"name = \"shop\"\n")]),
        files(
            "a fleet without a name",
            &[("fleet.toml", b"defaults = {}\n"), ("environments/prod.toml", b"pools.a.strategy = 'spot'\n")],
        ),
        files("a fleet without environments", &[FLEET]),
        files(
            "one environment in two files",
            &[
                FLEET,
                ("environments/prod.toml", b"pools.a.strategy = 'spot'\n"),
                ("environments/prod.yaml", b"pools: { a: { strategy: spot } }\n"),
            ],
        ),
        files(
            "an environment's name",
            &[FLEET, ("environments/Prod_1.toml", b"pools.a.strategy = 'spot'\n")],
        ),
        toml("bad TOML: an unclosed quote", "[pools.general]\nstrategy = \"spot\nweight = 1\n"),
        toml("bad TOML: no value", "[pools.general]\nstrategy =\n"),
        toml("bad TOML: YAML instead", "pools:\n  general:\n    strategy: spot\n"),
        yaml("bad YAML: indentation", "pools:\n  general:\n    strategy: spot\n   weight: 1\n"),
        yaml("bad YAML: an unclosed bracket", "pools:\n  general:\n    strategy: spot\n    zones: [a, b\n"),
        yaml("bad YAML: a list", "- pools\n"),
        yaml("bad YAML: a merge key", "x-a: &a { strategy: spot }\npools:\n  general:\n    <<: *a\n"),
        yaml("a directive", "%YAML 1.1\n---\npools: {}\n"),
        toml("a key twice", "[pools.general]\nstrategy = \"spot\"\nstrategy = \"on-demand\"\n"),
        yaml("a tag", "pools: !include pools.yaml\n"),
        yaml("a dangling alias", "pools: *pools\n"),
        toml("a control character", "# \u{1}\n"),
        toml("an unknown field", "[pools.general]\nstrategy = \"spot\"\nstartupTaints = []\n"),
        toml("an unknown field far from all", "[pools.general]\nstrategy = \"spot\"\ncolour = \"red\"\n"),
        toml("an unknown field of the environment", "[pool.general]\nstrategy = \"spot\"\n"),
        toml(
            "a wrong unit of memory",
            "[pools.general]\nstrategy = \"spot\"\nlimits = { memory = \"64GB\" }\n",
        ),
        toml("a wrong unit of time", "[pools.general]\nstrategy = \"spot\"\nexpire-after = \"30 days\"\n"),
        toml(
            "a number where a duration is expected",
            "[pools.general]\nstrategy = \"spot\"\nconsolidate-after = 30\n",
        ),
        toml(
            "a text where a list is expected",
            "[pools.general]\nstrategy = \"spot\"\nzones = \"ap-northeast-2a\"\n",
        ),
        toml("a text where a number is expected", "[pools.general]\nstrategy = \"spot\"\nweight = \"10\"\n"),
        toml("a weight out of range", "[pools.general]\nstrategy = \"spot\"\nweight = 1000\n"),
        toml(
            "a word that is not one of them",
            "[pools.general]\nstrategy = \"spot\"\ncapacity-types = [\"ondemand\"]\n",
        ),
        toml(
            "an effect that does not exist",
            "[pools.general]\nstrategy = \"spot\"\ntaints = [\"a=b:NoShedule\"]\n",
        ),
        toml(
            "a schedule that is none",
            "[pools.general]\nstrategy = \"spot\"\nbudgets = [{ nodes = 1, schedule = \"0 25 * * *\", duration = \"1h\" }]\n",
        ),
        yaml("an empty value", "pools:\n  general:\n    strategy: spot\n    weight:\n"),
        toml("a pool's name", "[pools.\"General Pool\"]\nstrategy = \"spot\"\n"),
        toml("a pool without a strategy", "[pools.general]\nweight = 1\n"),
        toml("a strategy that does not exist", "[pools.general]\nstrategy = \"spott\"\n"),
        toml(
            "a class that does not exist",
            "[pools.general]\nstrategy = \"spot\"\nclass = \"gpuu\"\n[classes.gpu]\n",
        ),
        toml("a newer format", "format_version = 3\npools.general.strategy = \"spot\"\n"),
        toml("a base that does not exist", "extends = \"base\"\npools.general.strategy = \"spot\"\n"),
        files(
            "a circle of bases",
            &[
                FLEET,
                ("environments/a.toml", b"extends = 'b'\n"),
                ("environments/b.toml", b"extends = 'a'\n"),
            ],
        ),
        toml(
            "removing what is not there",
            "[pools.general]\nstrategy = \"spot\"\n[pools.old]\n\"$remove\" = true\n",
        ),
        toml(
            "contradicting requirements",
            "[pools.general]\nstrategy = \"spot\"\ninstance-cpu-min = 16\ninstance-cpu-max = 8\n",
        ),
        toml(
            "a label that no instance has",
            "[pools.general]\nstrategy = \"spot\"\nrequirements = { \"karpenter.k8s.aws/capacity-type\" = [\"spot\"] }\n",
        ),
        toml(
            "families as categories",
            "[pools.general]\nstrategy = \"spot\"\ninstance-categories = [\"p3\", \"g4dn\"]\n",
        ),
        toml(
            "half a window",
            "[pools.general]\nstrategy = \"spot\"\nbudgets = [{ nodes = \"0\", duration = \"8h\" }]\n",
        ),
        toml(
            "a window that starts every hour",
            "[pools.general]\nstrategy = \"spot\"\nbudgets = [{ nodes = \"0\", schedule = \"0 9-17 * * mon-fri\", duration = \"8h\" }]\n",
        ),
        toml(
            "a window that changes nothing",
            "[pools.general]\nstrategy = \"spot\"\nbudgets = [{ nodes = \"10%\" }, { nodes = \"100%\", schedule = \"@weekly\", duration = \"48h\" }]\n",
        ),
        toml(
            "a window that overlaps itself",
            "[pools.general]\nstrategy = \"spot\"\nbudgets = [{ nodes = \"0\", schedule = \"0 0 * * sat,sun\", duration = \"48h\" }]\n",
        ),
        toml(
            "nodes that drain longer than they live",
            "[pools.general]\nstrategy = \"spot\"\nexpire-after = \"1h\"\ntermination-grace-period = \"2h\"\n",
        ),
        toml(
            "a startup taint of Kubernetes",
            "[pools.general]\nstrategy = \"spot\"\nstartup-taints = [\"node.kubernetes.io/not-ready:NoSchedule\"]\n",
        ),
        toml(
            "an override of nothing",
            "[pools.general]\nstrategy = \"spot\"\noverrides = { \"spec.disruption.budgets[3].nodes\" = \"1\" }\n",
        ),
        toml(
            "an override that does not parse",
            "[pools.general]\nstrategy = \"spot\"\noverrides = { \"spec.disruption.budgets[x]\" = \"1\" }\n",
        ),
        toml(
            "an override of the name",
            "[pools.general]\nstrategy = \"spot\"\noverrides = { metadata.name = \"other\" }\n",
        ),
        toml(
            "an override with an unknown field",
            "[pools.general]\nstrategy = \"spot\"\noverrides = { spec.disruption.consolidateafter = \"1m\" }\n",
        ),
        toml(
            "a weight for a static pool",
            "[pools.general]\nstrategy = \"static\"\nreplicas = 2\nweight = 5\n",
        ),
        toml(
            "numbers as labels and tags",
            "[pools.general]\nstrategy = \"spot\"\nlabels = { a = 8, b = true, c = 1.50, d = [\"x\"] }\ndescription = 8\n[classes.default]\ntags = { cost = 5 }\n",
        ),
        yaml(
            "numbers as labels in YAML",
            "pools:\n  general:\n    strategy: spot\n    labels: { num: 08, nothing: , list: [a] }\n",
        ),
        toml(
            "fractions as limits",
            "[pools.general]\nstrategy = \"spot\"\nlimits = { cpu = 1.0005, memory = 1.5, \"example.com/fpga\" = 1.5, other = 1.5 }\n",
        ),
        toml(
            "something else as limits",
            "[pools.general]\nstrategy = \"spot\"\nlimits = { cpu = true, memory = [], nodes = -1.5 }\n",
        ),
        toml(
            "lists of tables for one label",
            "[pools.general]\nstrategy = \"spot\"\nrequirements = { \"karpenter.k8s.aws/instance-cpu\" = [{ operator = \"Gt\", values = [\"8\"] }], \"example.com/tier\" = [{ operator = \"Exists\" }, { values = [\"a\"] }] }\n",
        ),
        toml(
            "wrong parts of taints",
            "[pools.general]\nstrategy = \"spot\"\ntaints = [\"a=b c:NoSchedule\", \"gpu\", \"a:NoShedule\", \"a b:NoExecute\"]\n",
        ),
        toml("an image family of another system", "[classes.default]\nami-family = \"Ubuntu\"\n"),
        toml(
            "soft eviction without grace",
            "[classes.default]\nkubelet = { evictionSoft = { \"memory.available\" = \"5%\" } }\n",
        ),
        toml("a reserved tag", "[classes.default]\ntags = { \"karpenter.sh/nodepool\" = \"a\" }\n"),
        toml("a missing user-data file", "[classes.default]\nuser-data-file = \"boot.sh\"\n"),
        toml(
            "an access key",
            "[classes.default]\nuser-data = \"aws configure set aws_access_key_id AKIAIOSFODNN7EXAMPLE\"\n",
        ),
        template("an undefined variable", "{{ vars.team }}"),
        template("a misspelt variable", "{{ clustr | tojson }}"),
        template("a template that does not parse", "{% if pool.weight %}"),
        template("a template with a character that no expression has", "{%- include @nodepool.yaml.j2\" -%}"),
        template("a template with a text that does not end", "{{ \"general }}"),
        template(
            "an endless loop",
            "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
        ),
        template("endless recursion", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
        template("an include that escapes", "{% include \"../fleet.toml\" %}"),
        template("an include of itself", "{% include \"own.yaml.j2\" %}"),
        template("an include of nothing", "{% include \"nodepol.yaml.j2\" %}"),
        template("a clock", "{{ now() }}"),
        template("an unknown filter", "{{ cluster | tojsn }}"),
        template("a giant text", "{{ \"x\" * 100000000 }}"),
        template("output that is not YAML", "a: b: c"),
        template("output that is no object", "- a\n---"),
        template("a kind that is not allowed", "apiVersion: v1\nkind: Secret\nmetadata: { name: a }\n---"),
        template(
            "an old version",
            "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: { name: a }\n---",
        ),
        refused("a link", "environments/prod.toml", Refusal::Symlink),
        refused("a submodule", "environments", Refusal::Submodule),
        refused("a file in LFS", "templates/own.yaml.j2", Refusal::LfsPointer),
        refused(
            "a huge file",
            "environments/prod.yaml",
            Refusal::TooLarge { bytes: 104_857_600, limit: 1_048_576 },
        ),
        refused("an unsafe path", "environments/..\\prod.toml", Refusal::UnsafePath),
    ]
}

#[test]
fn each_broken_repository_gets_its_exact_diagnostics() {
    let mut said = String::new();
    for case in cases() {
        let report = validate_repository(&case.repository, &RenderSettings::default());
        assert!(!report.diagnostics.is_empty(), "{}: nothing was said", case.name);
        for found in report.diagnostics.iter() {
            assert!(found.help.is_some(), "{}: no help in {found}", case.name);
        }
        writeln!(said, "## {}\n{}\n", case.name, report.diagnostics).expect("a text takes it");
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(EXPECTED);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &said).expect("the folder is there");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (said, expected) in said.split("## ").zip(expected.split("## ")) {
        assert_eq!(said, expected);
    }
    assert_eq!(said.len(), expected.len(), "{EXPECTED} is stale");
}
