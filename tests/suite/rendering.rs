//! Templates: strict, contained, deterministic, and traceable to the line that a person edits.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::cost::{self, MIB};
use crate::fleet_files::{errors, fleet, manifest, render, repository, repository_of_bytes, state};
use provisor::gitops::diagnostic::Diagnostic;
use provisor::gitops::render::{RenderSettings, check_determinism, render_environment, validate_repository};
use provisor::model::repository::Repository;

/// A fleet whose one pool is made by this template.
fn templated(template: &str) -> Repository {
    with_template(template, "[pools.general]\nstrategy = \"own\"\n", &[])
}

fn with_template(template: &str, prod: &str, more: &[(&str, &str)]) -> Repository {
    let mut files = vec![
        ("fleet.toml", "name = \"shop\"\n"),
        ("environments/prod.toml", prod),
        ("templates/own.yaml.j2", template),
    ];
    files.extend(more);
    repository(&files)
}

/// A NodePool in which `HOLE` is replaced.
fn pool(hole: &str) -> String {
    "apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: general
spec:
  HOLE
  template:
    spec:
      requirements: []
      nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }
"
    .replace("HOLE", hole)
}

fn only(found: Vec<Diagnostic>) -> Diagnostic {
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().expect("one")
}

fn caret(diagnostic: &Diagnostic) -> &str {
    &diagnostic.place.source.text[diagnostic.place.bytes()]
}

#[test]
fn ren_001_an_undefined_variable_is_an_error_at_its_name() {
    let found = only(errors(&templated(&pool("weight: {{ missing }}"))));
    assert_eq!((found.code, found.place.to_string().as_str()), ("PRV1403", "templates/own.yaml.j2:6:14"));
    assert_eq!(caret(&found), "missing");
    assert_eq!(found.place.source.line(6), "  weight: {{ missing }}");
    for filter in ["tojson", "quote", "upper", "int", "string", "join", "length"] {
        let found = only(errors(&templated(&pool(&format!("weight: {{{{ missing | {filter} }}}}")))));
        assert_eq!((found.code, caret(&found)), ("PRV1403", "missing"), "{filter}: {found}");
    }
}

#[test]
fn ren_002_the_error_points_at_the_undefined_part() {
    let found = only(errors(&templated(&pool("weight: {{ vars.b.c | tojson }}"))));
    assert_eq!((found.code, caret(&found)), ("PRV1403", "vars.b"));
    assert_eq!(found.message, "`vars.b` is not defined");
}

#[test]
fn what_a_filter_or_a_function_lacks_is_named() {
    for (call, message) in [
        ("'a' | replace", "`replace` is given no `from`"),
        ("'a' | replace('a')", "`replace` is given no `to`"),
        ("[1] | batch | list", "`batch` is given no `count`"),
        ("[1] | selectattr | list", "`selectattr` is given no `attribute`"),
        ("[1] | groupby | list", "`groupby` is given no `attribute`"),
        ("[1] | overlaid", "`overlaid` is given no `upper`"),
        ("range()", "`range` is given no `end`"),
        ("1 is divisibleby", "`divisibleby` is given no `number`"),
        ("catalog()", "`catalog` is given no `type`"),
    ] {
        let found = only(errors(&templated(&format!("{{% set x = {call} %}}\n{}", pool("weight: 1")))));
        assert_eq!((found.code, &*found.message), ("PRV1409", message), "{call}: {found}");
        assert!(found.help.as_ref().is_some_and(|help| help.contains('(')), "{call}: {found}");
    }
}

#[test]
fn ren_003_defaults_and_tests_are_the_explicit_escapes() {
    let template =
        pool("weight: {{ missing | default(7) }}\n  {%- if missing is defined %}\n  bad: 1\n  {%- endif %}");
    assert_eq!(manifest(&state(&templated(&template)), "NodePool", "general")["spec"]["weight"], 7);
}

#[test]
fn ren_004_undefined_values_are_errors_wherever_they_are_used() {
    for use_of in [
        "{% for x in missing %}{% endfor %}",
        "{% if missing is odd %}{% endif %}",
        "{% if missing == 1 %}{% endif %}",
        "{% if missing %}{% endif %}",
        "{% set x = missing %}",
        "{%- set x = vars.missing -%}",
        "{% with x = missing %}{% endwith %}",
        "{% with y = [1, 2], x = missing %}{% endwith %}",
        "{% with x = missing, y = 2 %}{% endwith %}",
        "{% set x = 'a' ~ missing %}",
        "{% set x = 1 + missing %}",
        "{% set x = missing * 2 %}",
        "{% set x = [1] | map(attribute='a') | list %}{{ x | tojson }}",
    ] {
        let found = only(errors(&templated(&format!("{use_of}\n{}", pool("weight: 1")))));
        assert!(matches!(found.code, "PRV1403" | "PRV1409"), "{use_of}: {found}");
        assert_eq!(found.place.position().0, 1, "{use_of}: {found}");
    }
}

#[test]
fn ren_002_what_a_test_or_a_filter_is_asked_about_is_what_is_undefined() {
    for (line, part) in [
        ("{% if vars.nope is string %}{% endif %}", "vars.nope"),
        ("{% if vars.nope is not number %}{% endif %}", "vars.nope"),
        ("{% if not vars.nope is mapping %}{% endif %}", "vars.nope"),
        ("{% if nope is odd or true %}{% endif %}", "nope"),
        ("{% if vars.nope is in([1]) %}{% endif %}", "vars.nope"),
        ("{% if vars.nope is eq(1) %}{% endif %}", "vars.nope"),
        ("{% if 1 is eq(vars.nope) %}{% endif %}", "vars.nope"),
        ("{% if 1 is eq vars.nope %}{% endif %}", "vars.nope"),
        ("{% if vars.nope is none %}{% endif %}", "vars.nope"),
        ("{% if vars.nope is not none %}{% endif %}", "vars.nope"),
        ("{{ 'x' if vars.nope is none else 'y' }}", "vars.nope"),
        ("{% if (vars.nope) is true %}{% endif %}", "(vars.nope)"),
        ("{% if ([1] | first) is number and ([] | first) is string %}{% endif %}", "([] | first)"),
        ("{{ [] | first | tojson }}", "[] | first"),
        ("{{ ([] | max) | tojson }}", "([] | max)"),
        ("{{ [[]|first, 1] | map('upper') | list | tojson }}", "[]|first"),
        ("{{ [1, vars.nope] | tojson }}", "vars.nope"),
        ("{{ [1, (vars.nope)] | tojson }}", "vars.nope"),
        ("{{ [[1], [2, vars.nope]] | tojson }}", "vars.nope"),
        ("{{ (1, vars.nope) | tojson }}", "vars.nope"),
        ("{{ {'a': 1, 'b': vars.nope} | tojson }}", "vars.nope"),
        ("{% for x in [1,\n vars.nope] %}{% endfor %}", "vars.nope"),
        ("{{ -vars.nope }}", "vars.nope"),
        ("{{ 1 + -vars.nope }}", "vars.nope"),
        ("{{ -(vars.nope) }}", "vars.nope"),
        ("{% set x = -vars.nope %}", "vars.nope"),
        ("{{ -vars.nope | abs }}", "vars.nope"),
        ("{{ 1 - vars.nope }}", "vars.nope"),
        ("{{ vars.nope / 2 }}", "vars.nope"),
        ("{{ [{'a': 1}] | map(attribute='b') | list }}", "[{'a': 1}] | map(attribute='b')"),
    ] {
        let found = only(errors(&templated(&format!("{line}\n{}", pool("weight: 1")))));
        assert_eq!((found.code, caret(&found)), ("PRV1403", part), "{line}: {found}");
        assert_eq!(found.message, format!("`{part}` is not defined"), "{line}");
    }
    for line in [
        "{% if vars.nope is defined %}{% endif %}{% if vars.nope is not undefined %}{% endif %}",
        "{% if (vars.nope | default(none)) is none %}{% endif %}",
        "{% if vars.nope is undefined or vars.nope is string %}{% endif %}",
    ] {
        state(&templated(&format!("{line}\n{}", pool("weight: 1"))));
    }
}

/// Rows: REN-001, REN-002, REN-004
#[test]
fn what_is_handed_to_a_filter_a_test_or_a_function_is_defined() {
    let vars = |line: &str| {
        let prod =
            "variables = { list = ['x', 'y'], team = 'a b', n = 3 }\n[pools.general]\nstrategy = \"own\"\n";
        with_template(&format!("{line}\n{}", pool("weight: 1")), prod, &[])
    };
    let calls = [
        "vars.list | join(@)",
        "vars.list | join(d=@)",
        "vars.team | indent(@)",
        "vars.team | indent(2, first=@)",
        "vars.team | replace('a', @)",
        "vars.team | trim(@)",
        "vars.team | split(@)",
        "vars.list | sort(reverse=@) | list",
        "vars.list | sort(attribute=@) | list",
        "vars.list | unique(attribute=@) | list",
        "vars.list | batch(@) | list",
        "vars.list | slice(@) | list",
        "vars.list | groupby(@) | list",
        "vars.list | map(@) | list",
        "vars.list | map('default', @) | list",
        "vars.list | select('eq', @) | list",
        "vars.list | rejectattr('x', @) | list",
        "vars.list | attr(@)",
        "vars.list | zip(@) | list",
        "vars.list | chain(@) | list",
        "vars.list | sum(start=@)",
        "vars.list | overlaid([], @)",
        "vars.n | int(default=@)",
        "vars.n | round(@)",
        "vars | dictsort(by=@) | list",
        "range(@) | list",
        "range(3, @) | list",
        "range(0, 3, @) | list",
        "dict(a=@)",
        "namespace(x=@).x",
        "catalog(@).cpu",
        "vars.n is divisibleby(@)",
        "vars.n is divisibleby @",
        "vars.list[@:]",
        "vars[@]",
        "(vars.list | first | default('z')) | replace('x', @)",
    ];
    let holes = [
        "vars.nope",
        "vars.nope.deep",
        "vars.list[9]",
        "[] | first",
        "vars.nope if true",
        "vars.team and vars.nope",
    ];
    for call in calls {
        for hole in holes {
            if call.contains("divisibleby @") && hole.contains(' ') {
                continue;
            }
            let told = match hole {
                "vars.nope.deep" | "vars.nope if true" => "vars.nope",
                hole => hole,
            };
            for line in [
                format!("{{% set x = {} %}}", call.replace('@', hole)),
                format!("{{{{ ({}) | tojson }}}}", call.replace('@', hole)),
                format!("{{% if true and\n ({}) %}}{{% endif %}}", call.replace('@', hole)),
            ] {
                let found = only(errors(&vars(&line)));
                assert_eq!((found.code, caret(&found)), ("PRV1403", told), "{line}: {found}");
                assert_eq!(found.message, format!("`{told}` is not defined"), "{line}");
            }
        }
    }
    // A macro is a function too. What a choice may come to has to be said.
    let found = only(errors(&vars("{% macro m(x='a') %}{{ x }}{% endmacro %}{% set y = m(vars.nope) %}")));
    assert_eq!((found.code, caret(&found)), ("PRV1403", "vars.nope"), "{found}");
    for line in [
        "{% set x = 'a' if false %}",
        "{{ ('a' if false) | tojson }}",
        "{{ 'a' if vars.n > 5 }}",
        "{{ [1] | join('a' if false) }}",
    ] {
        let found = only(errors(&vars(line)));
        assert!(found.code == "PRV1403" && found.message.contains("no `else`"), "{line}: {found}");
    }
    // On whatever line it stands.
    for line in [
        "{%- if vars.nope is\n string %}{% endif %}",
        "{{ vars.list |\n join(\n vars.nope) }}",
        "{{\n vars.nope\n | upper }}",
        "{% set x =\n vars.nope %}",
    ] {
        let found = only(errors(&vars(line)));
        assert_eq!((found.code, caret(&found)), ("PRV1403", "vars.nope"), "{line:?}: {found}");
    }
    // One default may stand in for another.
    for line in [
        "{{ vars.nope | default(vars.none) | default('x') }}",
        "{{ vars.team | default(vars.nope) }}",
        "{{ (vars.nope if true) | default('x') }}",
        "{% set x = 'a' if vars.n == 3 %}{% set y = -vars.n | abs %}{{ [-vars.n, (vars.n)] | join((vars.team) ~ ('-' )) }}",
        "{{ range(-(vars.n) + 4, vars.n) | join(vars.team if true else vars.nope) }}",
    ] {
        drop(state(&vars(&format!("{{% set out %}}{line}{{% endset %}}"))));
    }
}

/// Rows: REN-001, REN-004
#[test]
fn what_a_strategy_hands_to_an_included_template_is_defined() {
    let own = |line: &str| format!("{line}\n{{%- include \"nodepool.yaml.j2\" -%}}\n");
    for name in ["capacity_types", "instances", "taints", "policy", "quiet"] {
        let found = only(errors(&templated(&own(&format!("{{%- set {name} = vars.typo -%}}")))));
        assert_eq!((found.code, caret(&found)), ("PRV1403", "vars.typo"), "{name}: {found}");
    }
    for line in [
        "{%- set quiet = vars.typo | default('9m') -%}",
        "{%- set quiet = '9m' if pool.name is defined -%}",
        "{%- with quiet = '9m', policy = 'WhenEmpty' -%}{%- endwith -%}",
    ] {
        drop(state(&templated(&own(line))));
    }
}

#[test]
fn ren_005_an_error_in_an_include_names_the_includer_too() {
    let own = format!("{{# one #}}\n{{% include \"parts/inner.j2\" %}}\n{}", pool("weight: 1"));
    let more = [("templates/parts/inner.j2", "\n{{ missing }}\n")];
    let found = only(errors(&with_template(&own, "[pools.general]\nstrategy = \"own\"\n", &more)));
    assert_eq!(found.place.to_string(), "templates/parts/inner.j2:2:4");
    let chain: Vec<String> =
        found.chain.iter().map(|link| format!("{} {}", link.place, link.message)).collect();
    assert_eq!(
        chain,
        [
            "templates/own.yaml.j2:2:4 included from here",
            "environments/prod.toml:1:8 rendered for pool `general`"
        ]
    );
}

#[test]
fn ren_006_broken_yaml_leads_back_to_the_strategy_value() {
    let prod = "[pools.general]\nstrategy = \"own\"\nvariables = { note = \"a: b: [\" }\n";
    let found = only(errors(&with_template(&pool("weight: {{ vars.note }}"), prod, &[])));
    assert_eq!((found.code, found.place.to_string().as_str()), ("PRV1501", "environments/prod.toml:3:22"));
    assert_eq!(found.chain[0].place.to_string(), "templates/own.yaml.j2:6:14");
    assert!(found.chain[0].message.contains("weight: a: b: ["), "{found}");
}

#[test]
fn a_key_that_is_too_long_for_yaml_is_told_as_that() {
    let key = "k".repeat(1_500);
    for table in
        [format!("labels = {{ \"{key}\" = \"b\" }}"), format!("limits = {{ \"example.com/{key}\" = 5 }}")]
    {
        let found = only(errors(&fleet(&format!("[pools.general]\nstrategy = \"spot\"\n{table}\n"))));
        assert_eq!((found.code, found.place.position().0), ("PRV1501", 3), "{found}");
        assert!(found.message.contains("a key has more than 1024 letters"), "{found}");
        assert!(found.help.as_deref().is_some_and(|help| help.starts_with("shorten it")), "{found}");
    }
}

#[test]
fn what_the_api_refuses_leads_back_to_the_strategy_value_or_the_template_line() {
    let prod =
        "[pools.general]\nstrategy = \"spot\"\noverrides = { spec.disruption.consolidateAfter = \"soon\" }\n";
    let found = only(errors(&fleet(prod)));
    assert_eq!(
        (found.code, found.place.to_string().as_str()),
        ("PRV1503", "environments/prod.toml:3:50"),
        "{found}"
    );
    let found = only(errors(&templated(&pool("weight: 1000"))));
    assert_eq!(
        (found.code, found.place.to_string().as_str()),
        ("PRV1503", "templates/own.yaml.j2:6:3"),
        "{found}"
    );
}

#[test]
fn ren_015_rendering_twice_gives_the_same_bytes() {
    let repository = fleet("[pools.b]\nstrategy = \"spot\"\n[pools.a]\nstrategy = \"gpu-spot\"\n");
    let first = state(&repository);
    for _ in 0..3 {
        let again = state(&repository);
        assert_eq!(first, again);
        assert_eq!(first.digest, again.digest);
    }
    // What a machine could bring in: locale and time zone are the environment's, and the renderer cannot read it.
    let script = |locale: &str, zone: &str| {
        let exe = std::env::current_exe().expect("the test binary");
        let out = Command::new(exe)
            .args(["--exact", "rendering::print_a_digest", "--nocapture", "--ignored"])
            .env("LC_ALL", locale)
            .env("TZ", zone)
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.lines()
            .find_map(|line| line.split_once("digest=").map(|(_, rest)| rest.to_owned()))
            .expect("a digest")
    };
    assert_eq!(script("C", "UTC"), script("tr_TR.UTF-8", "Asia/Seoul"));
}

#[test]
#[ignore = "run by ren_015 in processes of its own"]
fn print_a_digest() {
    let repository = fleet("[pools.b]\nstrategy = \"spot\"\n[pools.a]\nstrategy = \"gpu-spot\"\n");
    println!("\ndigest={}", state(&repository).digest);
}

#[test]
fn ren_016_comments_order_and_spelling_do_not_change_the_digest() {
    let plain = "[pools.general]\nstrategy = \"spot\"\nlimits = { cpu = \"1\", memory = \"4Gi\" }\nlabels = { a = \"1\", b = \"2\" }\n";
    let other = "\u{feff}# a comment\r\n[pools.general]\r\nlabels = { b = \"2\", a = \"1\" } # x\r\nlimits = { memory = \"4096Mi\", cpu = \"1000m\" }\r\n  strategy   =   'spot'\r\n";
    let yaml = "pools:\n  general:\n    strategy: spot\n    labels: {a: '1', b: '2'}\n    limits: {cpu: 1, memory: 4Gi}\n";
    let first = state(&fleet(plain));
    assert_eq!(first.digest, state(&fleet(other)).digest);
    let as_yaml =
        state(&repository(&[("fleet.toml", "name = \"shop\"\n"), ("environments/prod.toml", plain)]));
    assert_eq!(first.digest, as_yaml.digest);
    // The annotation with the origin names the file, so only the spec is compared across formats.
    let as_yaml =
        state(&repository(&[("fleet.toml", "name = \"shop\"\n"), ("environments/prod.yaml", yaml)]));
    assert_eq!(
        manifest(&first, "NodePool", "general")["spec"],
        manifest(&as_yaml, "NodePool", "general")["spec"]
    );
}

#[test]
fn ren_017_a_template_that_leaks_the_order_of_keys_is_named() {
    let prod = "[pools.general]\nstrategy = \"own\"\nvariables = { a = \"1\", b = \"2\" }\n";
    let leaking = pool(
        "weight: {% for key in vars %}{{ loop.index0 * 10 + (1 if key == 'a' else 2) if loop.first }}{% endfor %}",
    );
    let leaking = leaking.replace("if loop.first }}", "if loop.first else '' }}");
    let repository = with_template(&leaking, prod, &[]);
    let found = check_determinism(&repository, "prod", &RenderSettings::default()).expect_err("it leaks");
    let found = only(found.into_iter().collect());
    assert_eq!(
        (found.code, found.message.as_str()),
        ("PRV1413", "NodePool/general spec.weight depends on the order of a table's keys")
    );
    let quiet = with_template(&pool("weight: {{ vars | length }}"), prod, &[]);
    assert!(check_determinism(&quiet, "prod", &RenderSettings::default()).is_ok());
}

#[test]
fn ren_018_there_is_nothing_to_ask_the_world_with() {
    for (call, name) in [
        ("now()", "now"),
        ("random()", "random"),
        ("env(\"HOME\")", ""),
        ("read_file(\"/etc/passwd\")", "read_file"),
        ("debug()", "debug"),
        ("lookup(\"v1\", \"Secret\", \"a\", \"b\")", "lookup"),
        ("\"a\" | random", "random"),
        ("\"HOME\" | getenv", "getenv"),
    ] {
        let found = only(errors(&templated(&pool(&format!("weight: {{{{ {call} }}}}")))));
        if name.is_empty() {
            // `env` is a table of ours, and a table cannot be called.
            assert_eq!(found.code, "PRV1409", "{found}");
        } else {
            assert_eq!(found.code, "PRV1408", "{call}: {found}");
            assert!(found.message.ends_with(&format!("`{name}`")), "{call}: {found}");
        }
        assert_eq!(found.place.position().0, 6, "{found}");
    }
}

#[test]
fn ren_019_rendering_opens_nothing_and_starts_nothing() {
    let exe = std::env::current_exe().expect("the test binary");
    let out = Command::new(exe)
        .args(["--exact", "rendering::render_without_descriptors_and_processes", "--nocapture", "--ignored"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("rendered in a box"), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
#[ignore = "run by ren_019 in a process of its own, which cannot do anything afterwards"]
fn render_without_descriptors_and_processes() {
    let repository = fleet("[pools.general]\nstrategy = \"self-managed\"\n");
    let pid = std::process::id().to_string();
    let boxed = Command::new("prlimit").args(["--pid", &pid, "--nofile=0:0", "--nproc=0:0"]).status();
    assert!(boxed.expect("prlimit is part of util-linux").success());
    assert!(std::fs::File::open("/etc/hostname").is_err(), "the box holds");
    assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_err(), "the box holds");
    assert_eq!(state(&repository).objects.len(), 2);
    println!("\nrendered in a box");
}

#[test]
fn ren_020_includes_stay_inside_templates() {
    for include in [
        "{% include \"../../secrets.j2\" %}",
        "{% include \"/etc/passwd\" %}",
        "{% include \".hidden.j2\" %}",
        "{% include \"parts/../../fleet.toml\" %}",
        "{% set up = \"..\" %}{% include up ~ \"/fleet.toml\" %}",
        "{% import \"../x.j2\" as x %}",
        "{% extends \"../x.j2\" %}",
    ] {
        let more = [("templates/.hidden.j2", "secret"), ("secrets.j2", "secret")];
        let template = format!("{include}\n{}", pool("weight: 1"));
        let found = only(errors(&with_template(&template, "[pools.general]\nstrategy = \"own\"\n", &more)));
        assert_eq!((found.code, found.place.position().0), ("PRV1406", 1), "{include}: {found}");
        assert!(!found.to_string().contains("secret\n"), "{found}");
    }
}

#[test]
fn ren_021_a_circle_of_includes_is_named() {
    let more = [("templates/a.j2", "{% include \"b.j2\" %}"), ("templates/b.j2", "{% include \"a.j2\" %}")];
    let repository = with_template("{% include \"a.j2\" %}", "[pools.general]\nstrategy = \"own\"\n", &more);
    let (found, cost) = cost::of(|| only(errors(&repository)));
    cost.must_be_within(Duration::from_millis(100), 64 * MIB, "a circle");
    assert_eq!(found.code, "PRV1407", "{found}");
    assert!(
        found.message.contains("a.j2 → b.j2 → a.j2") || found.message.contains("b.j2 → a.j2 → b.j2"),
        "{found}"
    );
}

#[test]
fn ren_022_endless_loops_run_out_of_fuel() {
    let loops = "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}{% set x = a %}{% endfor %}{% endfor %}{% endfor %}";
    // One instruction that looks at many entries pays for all of them.
    for costly in [
        "{% set l = range(10000) | list %}{% for i in range(50000) %}{% if -1 in l %}a{% endif %}{% endfor %}",
        "{% set l = range(10000) | list %}{% for i in range(50000) %}{% if -1 not in (l) %}a{% endif %}{% endfor %}",
        "{% set l = range(10000) | list %}{% for i in range(50000) %}{% if l == l %}a{% endif %}{% endfor %}",
        "{% set l = range(10000) | list %}{% for i in range(50000) %}{% if -1 is in(l) %}a{% endif %}{% endfor %}",
        "{% set l = range(10000) | list %}{% for i in range(50000) %}{% set m = l[1:] %}{% endfor %}",
    ] {
        let found = only(errors(&templated(&format!("{costly}\n{}", pool("weight: 1")))));
        assert_eq!(found.code, "PRV1404", "{costly}: {found}");
    }
    let endless = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
    for (template, codes) in [(loops, ["PRV1404", "PRV1405"]), (endless, ["PRV1404", "PRV1407"])] {
        let repository = templated(&format!("{template}\n{}", pool("weight: 1")));
        let (found, cost) = cost::of(|| only(errors(&repository)));
        cost.must_be_within(Duration::from_secs(1), 64 * MIB, template);
        assert!(codes.contains(&found.code), "{found}");
    }
}

/// Many pools that each stay below the limit of one rendering still end together.
#[test]
fn ren_022_all_renderings_of_an_environment_share_a_limit() {
    let busy = "{% for a in range(100) %}{% for b in range(300) %}{% set x = a %}{% endfor %}{% endfor %}";
    let pools: String = (0..100).map(|at| format!("[pools.p{at}]\nstrategy = \"own\"\n")).collect();
    let found = errors(&with_template(&format!("{busy}\n{}", pool("weight: 1")), &pools, &[]));
    assert!(found.iter().any(|found| found.code == "PRV1404" && found.message.contains("together")));
}

#[test]
fn an_argument_by_a_name_that_nobody_knows_is_named() {
    for (call, name, argument) in [
        ("'a' | replace(from='a')", "replace", "from"),
        ("'a' | replace('a', to='b')", "replace", "to"),
        ("[1] | batch(count=2) | list", "batch", "count"),
        ("[1] | join(separator=', ')", "join", "separator"),
        ("'a' | upper(locale='de')", "upper", "locale"),
        ("1 | tojson(indent=2)", "tojson", "indent"),
        ("[1] | sort(by='a')", "sort", "by"),
        ("'a' | indent(2, blank=true)", "indent", "blank"),
        ("[1] | overlaid(upper=[2])", "overlaid", "upper"),
        ("none | default(value='a')", "default", "value"),
        ("range(stop=3) | list", "range", "stop"),
        ("catalog(type='m7i.large')", "catalog", "type"),
        ("1 is divisibleby(number=2)", "divisibleby", "number"),
    ] {
        let found = only(errors(&templated(&format!("{{% set x = {call} %}}\n{}", pool("weight: 1")))));
        let message = format!("`{name}` takes no argument by the name `{argument}`");
        assert_eq!((found.code, &*found.message), ("PRV1409", &*message), "{call}: {found}");
        assert!(found.help.is_some(), "{call}: {found}");
    }
    let fine = "{% set x = [{'a': 2}] | sort(attribute='a', reverse=1 == 1) %}{% set y = 'a' | replace('x=', 'b') %}\n";
    assert!(render(&templated(&format!("{fine}{}", pool("weight: 1")))).is_ok());
}

/// A template that fails at once costs little, however many pools use it: what is right elsewhere still renders.
#[test]
fn a_mistake_in_a_template_leaves_the_other_pools_their_instructions() {
    let mut pools: String = (0..40).map(|at| format!("[pools.p{at}]\nstrategy = \"own\"\n")).collect();
    pools += "[pools.q]\nstrategy = \"spot\"\n";
    let found = errors(&with_template(&format!("{{{{ vars.nope }}}}\n{}", pool("weight: 1")), &pools, &[]));
    assert!(found.iter().all(|found| found.code == "PRV1403"), "{found:?}");
    // One that fails late is charged what it burnt, from what those that fail have for themselves.
    let late = "{% for a in range(8000) %}{% set x = a %}{% endfor %}";
    let mut pools: String = (0..60).map(|at| format!("[pools.p{at}]\nstrategy = \"own\"\n")).collect();
    pools += "[pools.q]\nstrategy = \"spot\"\nclass = \"none\"\n";
    let found = errors(&with_template(&format!("{late}{{{{ vars.nope }}}}\n"), &pools, &[]));
    assert_eq!(found.iter().filter(|found| found.code == "PRV1403").count(), 60, "{found:?}");
    // The healthy one is judged like any other.
    assert!(found.iter().any(|found| found.code == "PRV1607"), "{found:?}");
    assert_eq!(found.len(), 61, "{found:?}");
}

/// Templates that never end leave little to those behind them, which is told once, and not as their mistake.
#[test]
fn what_templates_that_fail_leave_no_instructions_for_is_told_once() {
    let endless = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}";
    let mut pools: String = (0..24).map(|at| format!("[pools.p{at}]\nstrategy = \"own\"\n")).collect();
    pools += "[pools.q]\nstrategy = \"spot\"\n";
    let repository = with_template(endless, &pools, &[]);
    let (found, cost) = cost::of(|| errors(&repository));
    cost.must_be_within(Duration::from_secs(10), 64 * MIB, endless);
    let unfinished = found.iter().filter(|found| found.message.contains("not judged")).count();
    assert_eq!(unfinished, 1, "{found:?}");
    // What needs little still renders.
    assert!(found.iter().all(|found| found.code == "PRV1404" && !found.message.contains("`q`")), "{found:?}");
}

/// The engine falls over a block that is nowhere: outside of one there is none that could be extended.
#[test]
fn super_outside_of_a_block_is_a_mistake() {
    let include = "{% block a %}{% include \"part.j2\" %}{% endblock %}";
    for (template, part, code) in [
        ("{{ super() }}", "", "PRV1402"),
        (include, "{{ super() }}", "PRV1409"),
        (include, "{% set x = super() %}", "PRV1409"),
    ] {
        let pool = "[pools.general]\nstrategy = \"own\"\n";
        let found = only(errors(&with_template(template, pool, &[("templates/part.j2", part)])));
        assert_eq!((found.code, &*found.message), (code, "`super()` stands outside of a block"), "{found}");
    }
}

/// A pool that renders to nothing would be retired without a word.
#[test]
fn a_template_that_renders_nothing_is_a_mistake() {
    for nothing in ["", "{# todo #}", "{% if false %}{% include 'nodepool.yaml.j2' %}{% endif %}"] {
        let found = only(errors(&templated(nothing)));
        assert_eq!(found.code, "PRV1506", "{found}");
        assert!(found.message.contains("renders nothing"), "{found}");
    }
}

#[test]
fn templates_too_deep_to_read_are_refused() {
    for deep in [format!("{{{{ {}1 }}}}", "-".repeat(9200)), format!("{{{{ pool{} }}}}", ".a".repeat(5500))] {
        let found = only(errors(&templated(&deep)));
        assert_eq!(found.code, "PRV1407", "{found}");
        assert_eq!(found.place.position().0, 1);
    }
}

#[test]
fn ren_023_output_cannot_grow_without_bounds() {
    let doubled = "{% set a = 'x' %}".to_owned() + &"{% set a = a ~ a %}".repeat(40);
    let added = "{% set a = 'x' %}".to_owned() + &"{% set a = a + a %}".repeat(40);
    let listed = "{% set a = [1] %}".to_owned() + &"{% set a = a + a %}".repeat(40);
    let captured =
        "{% set a %}xxxxxxxxxx{% endset %}".to_owned() + &"{% set a %}{{ a }}{{ a }}{% endset %}".repeat(40);
    let raw = format!("{{% for i in range(9000) %}}{}{{% endfor %}}", "y".repeat(1000));
    let raw_captured =
        format!("{{% set a %}}{{% for i in range(9000) %}}{}{{% endfor %}}{{% endset %}}", "y".repeat(1000));
    for template in [
        "{{ 'x' * 100000000 }}",
        "{{ [1] * 100000000 }}",
        "{{ range(100000000) }}",
        "{{ [1] | slice(4000000000, 0) | list | length }}",
        "{{ [1] | slice(200000) | list | length }}",
        "{{ [1] | batch(4000000000, 0) | list | length }}",
        "{{ [1] | batch(18446744073709551615) | list | length }}",
        "{% set a = 'x' * 100000000 %}",
        "{{ ('x,' ~ range(90000) | join(',')) | replace(',', range(9000) | join('-')) }}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% macro f(s) %}{{ f(s ~ s) }}{% endmacro %}{{ f('xxxxxxxxxxxxxxxxxxxx') }}",
        "{{ 'x' | indent(4000000000) }}{% for i in range(20000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}",
        &doubled,
        &added,
        &listed,
        &captured,
        &raw,
        &raw_captured,
    ] {
        let repository = templated(&format!("{template}\n{}", pool("weight: 1")));
        let (found, cost) = cost::of(|| only(errors(&repository)));
        // A rendering may build 4 MiB, in buffers that double as they grow.
        assert!(cost.largest < 8 * MIB, "{}: {cost:?}", &template[..60.min(template.len())]);
        cost.must_be_within(Duration::from_secs(1), 16 * MIB, &template[..60.min(template.len())]);
        assert!(
            matches!(found.code, "PRV1404" | "PRV1405" | "PRV1407" | "PRV1409"),
            "{}: {found}",
            &template[..60.min(template.len())]
        );
    }
}

#[test]
fn nested_lists_cannot_explode_when_written() {
    let nested = "{% set a = [1, 1] %}".to_owned() + &"{% set a = [a, a] %}".repeat(40);
    for use_of in
        ["{{ a | tojson }}", "{{ a }}", "{{ a ~ '' }}", "{{ a | string }}", "{{ a == a }}", "{{ a in [a] }}"]
    {
        let start = Instant::now();
        let found = errors(&templated(&format!("{nested}{use_of}\n{}", pool("weight: 1"))));
        assert!(!found.is_empty());
        assert!(start.elapsed() < Duration::from_secs(3), "{use_of} {:?}", start.elapsed());
    }
}

#[test]
fn ren_028_quoted_values_survive_and_unquoted_ones_are_flagged() {
    let prod = "[pools.general]\nstrategy = \"own\"\nvariables = { note = \"a: b # c\" }\n";
    let hole = "weight: 1\n  template: null\n".replace("\n  template: null\n", "");
    let quoted = pool(&hole)
        .replace("  name: general", "  name: general\n  annotations: { note: {{ vars.note | quote }} }");
    let state = state(&with_template(&quoted, prod, &[]));
    assert_eq!(manifest(&state, "NodePool", "general")["metadata"]["annotations"]["note"], "a: b # c");
    let bare = quoted.replace("{ note: {{ vars.note | quote }} }", "\n    note: {{ vars.note }}");
    let report = validate_repository(&with_template(&bare, prod, &[]), &RenderSettings::default());
    let flagged = report.diagnostics.iter().find(|one| one.code == "PRV1410").expect("it is flagged");
    assert_eq!(flagged.place.to_string(), "templates/own.yaml.j2:6:14");
}

#[test]
fn ren_029_a_name_cannot_bring_in_keys() {
    let found = errors(&fleet("[pools.\"a\\\"\\nkind: Secret\"]\nstrategy = \"spot\"\n"));
    assert_eq!(only(found).code, "PRV1207");
}

#[test]
fn ren_045_what_changes_outside_git_changes_nothing() {
    let repository = fleet("[pools.general]\nstrategy = \"spot\"\n");
    let bare = render_environment(&repository, "prod", &RenderSettings::default()).expect("it renders").0;
    let instances = std::sync::Arc::new(provisor::gitops::check::Instances::default());
    let settings = RenderSettings { instances: Some(instances), ..RenderSettings::default() };
    let priced = render_environment(&repository, "prod", &settings).expect("it renders").0;
    assert_eq!(bare.digest, priced.digest);
}

#[test]
fn ren_051_nothing_of_the_commit_stands_in_the_node_template() {
    for strategy in provisor::gitops::engine::BUILT_IN_STRATEGIES {
        let state = state(&fleet(&format!("[pools.general]\nstrategy = \"{strategy}\"\n")));
        let pool = manifest(&state, "NodePool", "general");
        let template = pool["spec"]["template"].to_string();
        for trace in ["provisor", "aaaaaaa", "environments/", env!("CARGO_PKG_VERSION")] {
            assert!(!template.contains(trace), "{strategy}: {trace} in {template}");
        }
    }
    let prod = "[pools.general]\nstrategy = \"spot\"\nlabels = { \"provisor.dev/revision\" = \"abc\" }\n";
    let found = only(errors(&fleet(prod)));
    assert_eq!((found.code, found.place.to_string().as_str()), ("PRV1617", "environments/prod.toml:3:38"));
}

#[test]
fn ren_052_only_node_configuration_is_allowed() {
    let role =
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: { name: a }\n";
    let found = only(errors(&templated(&format!("{}{role}", pool("weight: 1")))));
    assert_eq!((found.code, found.place.to_string().as_str()), ("PRV1502", "templates/own.yaml.j2:13:1"));
    assert_eq!(
        found.message,
        "objects of kind ClusterRoleBinding (rbac.authorization.k8s.io/v1) are not allowed"
    );
}

#[test]
fn ren_053_errors_never_show_the_values_around_them() {
    let prod = "[pools.general]\nstrategy = \"own\"\nvariables = { db-password = \"correct horse\" }\n";
    let found = errors(&with_template(&pool("weight: {{ vars.missing }}"), prod, &[]));
    let text = format!("{found:?}{}{}", found[0], serde_json::to_string(&found).expect("it serialises"));
    assert!(!text.contains("correct horse"), "{text}");
}

#[test]
fn invalid_bytes_in_a_template_are_told() {
    let found = validate_repository(
        &repository_of_bytes(&[
            ("fleet.toml", b"name = \"shop\"\n"),
            ("environments/prod.toml", b"[pools.general]\nstrategy = \"own\"\n"),
            ("templates/own.yaml.j2", b"ab\xff"),
        ]),
        &RenderSettings::default(),
    );
    let found: Vec<&Diagnostic> = found.diagnostics.iter().collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].code, found[0].place.to_string().as_str()),
        ("PRV1001", "templates/own.yaml.j2:1:3")
    );
}

#[test]
fn templates_can_compute() {
    let template = pool(
        "weight: {{ [3, 1, 2] | sort | last + 2 * 3 }}\n  limits: {{ dict(cpu=\"1\" ~ 0) | tojson }}\n  {%- set n = namespace(total=0) %}{% for x in range(4) %}{% set n.total = n.total + x %}{% endfor %}",
    );
    let pool = manifest(&state(&templated(&template)), "NodePool", "general");
    assert_eq!((&pool["spec"]["weight"], &pool["spec"]["limits"]["cpu"]), (&9.into(), &"10".into()));
    assert!(render(&templated(&template)).is_ok());
}

/// A pool's headroom becomes a buffer and the pod that it measures by, which only that pool's nodes would take.
#[test]
fn headroom_becomes_a_buffer_for_nodes_of_its_pool() {
    let prod = r#"
[pools.web]
strategy = "spot"
taints = ["dedicated=web:NoSchedule", "quiet:NoExecute"]
headroom = { pods = 4, cpu = "500m", memory = "1Gi", resources = { "example.com/dongle" = 2 }, namespace = "shop" }

[pools.batch]
strategy = "spot"
headroom = { cpu = 2 }
"#;
    let files = [("fleet.toml", "name = \"shop\"\n"), ("environments/prod.toml", prod)];
    let state = state(&repository(&files));
    let buffer = manifest(&state, "CapacityBuffer", "headroom-web");
    assert_eq!(buffer["metadata"]["namespace"], "shop");
    assert_eq!(buffer["spec"]["replicas"], 4);
    assert_eq!(buffer["spec"]["podTemplateRef"]["name"], "headroom-web");
    let template = manifest(&state, "PodTemplate", "headroom-web");
    assert_eq!(template["metadata"]["namespace"], "shop");
    let pod = &template["template"]["spec"];
    assert_eq!(pod["nodeSelector"]["karpenter.sh/nodepool"], "web");
    let tolerations = serde_json::json!([
        { "key": "dedicated", "effect": "NoSchedule", "operator": "Equal", "value": "web" },
        { "key": "quiet", "effect": "NoExecute", "operator": "Exists" },
    ]);
    assert_eq!(pod["tolerations"], tolerations);
    let requests = serde_json::json!({ "cpu": "500m", "memory": "1Gi", "example.com/dongle": "2" });
    assert_eq!(pod["containers"][0]["resources"]["requests"], requests);
    assert_eq!(manifest(&state, "CapacityBuffer", "headroom-batch")["spec"]["replicas"], 1);
    let batch = manifest(&state, "PodTemplate", "headroom-batch");
    assert_eq!(batch["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
    assert_eq!(batch["metadata"]["namespace"], "default");
    // The engine understands what comes out: there is room for that many pods of that size.
    let objects =
        [buffer, template].map(|object| provisor::api::parse(&object).expect("an API server takes it"));
    let [provisor::api::Object::CapacityBuffer(buffer), provisor::api::Object::PodTemplate(template)] =
        objects
    else {
        panic!("a buffer and its template");
    };
    let mut cluster = provisor::capacity::cluster::Cluster::default();
    cluster.pod_templates.insert(template.key, template.into());
    let room = provisor::capacity::buffers::resolve(&cluster, &buffer).expect("it is resolved");
    assert_eq!((room.replicas, room.shape.requests.cpu().0), (4, 500));
}

#[test]
fn wrong_headroom_is_told_where_it_is_written() {
    let found = |headroom: &str| {
        let prod = format!("[pools.web]\nstrategy = \"spot\"\nheadroom = {headroom}\n");
        let files = [("fleet.toml", "name = \"shop\"\n"), ("environments/prod.toml", &prod)];
        let found = errors(&repository(&files));
        (found[0].code, found[0].place.to_string())
    };
    assert_eq!(found("{ pods = -1 }"), ("PRV1206", "environments/prod.toml:3:21".to_owned()));
    assert_eq!(found("{ cpus = 1 }"), ("PRV1201", "environments/prod.toml:3:14".to_owned()));
    assert_eq!(found("{ cpu = \"much\" }").0, "PRV1203");
}

/// A list of the strategy and one of the pool are merged by the names of their entries, as layers are.
#[test]
fn a_taint_of_the_strategy_stays_beside_those_of_the_pool() {
    let taint = |key: &str, value: &str, effect: &str| serde_json::json!({ "key": key, "value": value, "effect": effect });
    let gpu = || taint("nvidia.com/gpu", "true", "NoSchedule");
    for (taints, expected) in [
        ("taints = [\"k=v:NoSchedule\"]", vec![gpu(), taint("k", "v", "NoSchedule")]),
        (
            "taints = [\"nvidia.com/gpu=a100:NoSchedule\"]",
            vec![taint("nvidia.com/gpu", "a100", "NoSchedule")],
        ),
        (
            "taints = [\"nvidia.com/gpu=true:NoExecute\"]",
            vec![gpu(), taint("nvidia.com/gpu", "true", "NoExecute")],
        ),
        ("", vec![gpu()]),
        ("taints = []", vec![]),
    ] {
        for strategy in ["gpu-spot", "gpu-premium"] {
            let state = state(&fleet(&format!("[pools.g]\nstrategy = \"{strategy}\"\n{taints}\n")));
            let pool = manifest(&state, "NodePool", "g");
            let found = pool["spec"]["template"]["spec"]["taints"].as_array().cloned().unwrap_or_default();
            assert_eq!(found, expected, "{strategy}, {taints}");
        }
    }
    // What the defaults add does not take it away either.
    let files = [
        ("fleet.toml", "name = \"shop\"\ndefaults.pool.taints = [\"k=v:NoSchedule\"]\n"),
        ("environments/prod.toml", "[pools.g]\nstrategy = \"gpu-spot\"\n"),
    ];
    let pool = manifest(&state(&repository(&files)), "NodePool", "g");
    let found = &pool["spec"]["template"]["spec"]["taints"];
    assert_eq!(*found, serde_json::json!([gpu(), taint("k", "v", "NoSchedule")]));
}
