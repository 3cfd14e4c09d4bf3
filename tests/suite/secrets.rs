//! Secrets that somebody left in a file: whatever else is wrong there, nobody who reads of it reads them.

mod told_apart;

use crate::fleet_files::{errors, fleet, render, repository};
use provisor::gitops::diagnostic::{Diagnostic, Diagnostics};
use provisor::gitops::render::{RenderSettings, validate_repository};
use provisor::ui::diagnostics::draw;

/// All that a reader gets to see of these mistakes.
fn seen(found: &[Diagnostic]) -> String {
    let mut all = Diagnostics::default();
    all.extend(found.iter().cloned());
    let json = serde_json::to_string(&all).expect("it serialises");
    format!("{}\n{all}\n{json}", draw(&all, false))
}

#[test]
fn ren_044_no_other_mistake_repeats_a_credential() {
    let forge = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let random = "wJalrXUtnFEMIxK7MDENGxbPxRfiCYzz";
    let pool = "[pools.a]\nstrategy = 'spot'\n";
    for (secret, prod, code) in [
        // As the value of a field that takes another one, of a field that does not exist, of a reference.
        (forge, format!("{pool}weight = '@'\n"), "PRV1203"),
        (forge, format!("{pool}weigth = '@'\n"), "PRV1201"),
        (forge, "[pools.a]\nstrategy = '@'\n".to_owned(), "PRV1207"),
        (forge, format!("{pool}instance-types = ['@']\n"), "PRV1609"),
        (forge, format!("{pool}'@' = 1\n"), "PRV1201"),
        // Beside a mistake, in what does not parse, and in no value at all.
        (forge, format!("{pool}labels = {{ a = '@' }}\nweigth = 1\n"), "PRV1201"),
        (forge, format!("{pool}labels = {{ token = '@', }}}}\n"), "PRV1009"),
        (forge, format!("{pool}weigth = 1 # ü @\n"), "PRV1201"),
        (random, format!("{pool}labels = {{ token = '@' }}\nweigth = 1\n"), "PRV1201"),
        (random, format!("{pool}password = '@'\n"), "PRV1201"),
        (random, format!("{pool}labels = {{ token = '@', }}}}\n"), "PRV1009"),
        (random, format!("{pool}labels = {{ token = '@\n"), "PRV1009"),
        ("AKIAZZZZQQQQWWWW1234", "[classes.default]\nuser-data = ['''\nexport A=@\n''']\n".into(), "PRV1202"),
    ] {
        let found = errors(&fleet(&prod.replace('@', secret)));
        let shown = seen(&found);
        for code in [code, "PRV1609"] {
            assert!(found.iter().any(|one| one.code == code), "{code} {prod}: {shown}");
        }
        assert!(!shown.contains(&secret[..12]), "{prod}: {shown}");
    }
    let yaml = format!("pools:\n  a:\n    strategy: spot\n    labels: {{ token: {random}\n    weight: [\n");
    let found = errors(&repository(&[("fleet.toml", "name = 'shop'\n"), ("environments/prod.yaml", &yaml)]));
    let shown = seen(&found);
    assert!(found.iter().any(|one| one.code == "PRV1609") && !shown.contains(random), "{shown}");
}

#[test]
fn ren_044_what_is_made_of_a_secret_hides_it_as_well() {
    // Names that DNS allows are proposed, and made, of what is written.
    let secret = "ghp_aBcDeFgHij_0123456789abcdef";
    for prod in [
        "[pools.a]\nstrategy = '@'\n",
        "[pools.'@']\nstrategy = 'spot'\n",
        "[pools.a]\nstrategy = 'spot'\nclass = '@'\n",
        "[classes.'@']\n[pools.a]\nstrategy = 'spot'\n",
        "extends = '@'\n[pools.a]\nstrategy = 'spot'\n",
        "[pools.a]\nstrategy = 'spot'\nzones = ['@']\n",
        "final = ['pools.@.weight']\n[pools.a]\nstrategy = 'spot'\n",
    ] {
        let found = errors(&fleet(&prod.replace('@', secret)));
        assert!(found.iter().any(Diagnostic::is_error), "{prod}");
        let shown = seen(&found);
        let letters = |text: &str| -> String {
            text.chars()
                .filter(char::is_ascii_alphanumeric)
                .map(|letter| letter.to_ascii_lowercase())
                .collect()
        };
        assert!(!letters(&shown).contains(&letters(secret)[..12]), "{prod}: {shown}");
    }
}

#[test]
fn ren_044_a_masked_line_is_underlined_where_the_mistake_is() {
    let prod = "[pools.a]\nstrategy = 'spot'\nlabels = { t = 'ghp_abcdefghijklmnopqrst' }; weigth = 1\n";
    let found = errors(&fleet(prod));
    let shown = seen(&found);
    let stars = "*".repeat(24);
    assert!(shown.contains(&format!(" 3 │ labels = {{ t = '{stars}' }}; weigth = 1\n")), "{shown}");
    let slip = found.iter().find(|one| one.code == "PRV1009").expect("it does not parse");
    let excerpt = slip.place.excerpt();
    assert_eq!(excerpt.text, prod.lines().nth(2).expect("there").replace("ghp_abcdefghijklmnopqrst", &stars));
    assert_eq!(&prod[slip.place.bytes()], &excerpt.text[excerpt.bytes]);
}

const FORGE: &str = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
const OWN: &str = "templates/own.yaml.j2";
const OWN_TEXT: &str = "{% include 'built-in/spot.yaml.j2' %}\n";
const USES_OWN: &str = "[pools.general]\nstrategy = 'own'\n";

/// The mistakes of `prod` in this repository, of which one tells a secret and none repeats it.
fn told(files: &[(&str, &str)], secret: &str) -> Vec<Diagnostic> {
    let mut all =
        vec![("fleet.toml", "name = 'shop'\n"), (OWN, OWN_TEXT), ("environments/prod.toml", USES_OWN)];
    all.retain(|(path, _)| !files.iter().any(|(own, _)| own == path));
    all.extend(files);
    let found = errors(&repository(&all));
    let shown = seen(&found);
    assert!(!shown.contains(secret), "{files:?}: {shown}");
    let count = found.iter().filter(|one| one.code == "PRV1609").count();
    assert_eq!(count, 1, "{files:?}: {shown}");
    found
}

#[test]
fn ren_044_every_file_that_is_read_is_looked_through() {
    let rule = "[[guardrail]]\nid = 'a'\ncheck = 'true'\nmessage = 'b'\n";
    for (path, text, line) in [
        (OWN, format!("{{# @ #}}\n{OWN_TEXT}"), 1),
        (OWN, format!("{OWN_TEXT}{{% set t = '@' %}}\n"), 2),
        (OWN, format!("# @\n{OWN_TEXT}"), 1),
        (OWN, format!("{{# @ #}}\n{OWN_TEXT}{{{{ nope }}}}\n"), 1),
        (OWN, "{# @ #}{% if %}\n".to_owned(), 1),
        ("policies/a.toml", format!("{rule}# @\n"), 5),
        ("policies/a.toml", rule.replace("'b'", "'@'"), 4),
        ("policies/a.yaml", "guardrail: []\n# @\n".to_owned(), 2),
        ("provisor.lock", "version = 1\n# @\n".to_owned(), 2),
        ("provisor.lock", "version = 1\n[images]\nal2023 = '@'\n".to_owned(), 3),
    ] {
        let found = told(&[(path, &text.replace('@', FORGE))], FORGE);
        let one = found.iter().find(|one| one.code == "PRV1609").expect("told");
        assert_eq!((&**one.place.file(), one.place.position().0), (path, line), "{text}");
    }
    // An included template, and none that is not.
    let part = ("templates/deep/part.j2", "{# AKIAZZZZQQQQWWWW1234 #}");
    let include = format!("{{% include 'deep/part.j2' %}}{OWN_TEXT}");
    let found = told(&[(OWN, &include), part], "AKIAZZZZ");
    assert_eq!(found[0].to_string().lines().next().expect("one").split(':').next(), Some(part.0));
    let apart = repository(&[
        ("fleet.toml", "name = 'shop'\n"),
        ("environments/prod.toml", "[pools.a]\nstrategy = 'spot'\n"),
        part,
    ]);
    assert!(render(&apart).is_ok(), "nothing of it is rendered");
    let report = validate_repository(&apart, &RenderSettings::default());
    assert!(report.diagnostics.iter().any(|one| one.code == "PRV1609"), "and a review tells it");
}

#[test]
fn ren_044_what_a_template_puts_together_does_not_reach_an_object() {
    let random = "wJalrXUtnFEMIxK7MDENGxbPxRfiCYzz";
    let class = "{% include 'built-in/ec2nodeclass.yaml.j2' %}\n";
    for (class, prod, line) in [
        (
            format!("{class}  userData: {{{{ ('#!/bin/sh\\necho ' ~ vars.a ~ vars.b) | tojson }}}}\n"),
            "variables = { a = 'ghp_abcdefghij', b = 'klmnopqrstuvwxyz0123456789' }\n",
            "ec2nodeclass",
        ),
        (
            format!(
                "{class}  context: {{{{ ('ghp_' ~ 'abcdefghijklmnopqrstuvwxyz0123456789') | tojson }}}}\n"
            ),
            "",
            "ec2nodeclass",
        ),
        (class.to_owned() + "  tags:\n    db-password: " + random + "\n", "", "ec2nodeclass"),
    ] {
        let prod = format!("{prod}{USES_OWN}");
        let files = [("templates/ec2nodeclass.yaml.j2", &*class), ("environments/prod.toml", &*prod)];
        let found = told(&files, &FORGE[..14]);
        let one = found.iter().find(|one| one.code == "PRV1609").expect("told");
        assert!(one.place.file().contains(line), "{class}: {one}");
        assert!(!seen(&found).contains(random), "{one}");
    }
}

#[test]
fn ren_044_a_value_that_an_object_names_a_secret_is_in_no_other_sentence() {
    let pool = |labels: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{ name: {{{{ pool.name | tojson }}}} }}\nspec:\n  template:\n    \
             metadata: {{ labels: {labels} }}\n    spec:\n      nodeClassRef: {{ group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }}\n      requirements: []\n"
        )
    };
    for (variables, label, secrets) in [
        ("db = 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzAB=='", "vars.db", ["wJalrXUtnFEM", "bPxRfiCYzzAB"]),
        (
            "a = 'wJalrXUtnFEMIxK7', b = 'MDENGxbPxRfiCYzz'",
            "(vars.a ~ vars.b ~ '!!')",
            ["wJalrXUtnFEM", "MDENGxbPxRfi"],
        ),
    ] {
        let template = pool(&format!("{{ \"db-password\": {{{{ {label} | tojson }}}} }}"));
        let prod = format!("variables = {{ {variables} }}\n[pools.a]\nstrategy = 'own'\n");
        let files = [
            ("fleet.toml", "name = 'shop'\n"),
            ("environments/prod.toml", &*prod),
            ("templates/own.yaml.j2", &*template),
        ];
        let found = errors(&repository(&files));
        let shown = seen(&found);
        assert!(found.iter().any(|one| one.code == "PRV1609"), "{shown}");
        assert!(found.iter().any(|one| one.code == "PRV1503"), "{shown}");
        assert!(secrets.iter().all(|secret| !shown.contains(secret)), "{shown}");
    }
}

#[test]
fn ren_044_a_name_that_says_secret_is_heard_in_every_form() {
    let random = "wJalrXUtnFEMIxK7MDENGxbPxRfiCYzz";
    let pool = "[pools.a]\nstrategy = 'spot'\n";
    let boot = ("boot.sh", "#!/bin/sh\nexport DB_PASSWORD='@'\n");
    let plain = (
        "boot.sh",
        "#!/bin/sh\nTOKEN=\"$(curl -s -X PUT http://169.254.169.254/latest/api/token)\"\ncurl -H \"X-aws-ec2-metadata-token: ${TOKEN}\" x\nSECRET_NAME=shop/prod-2/database-credentials\nkubeadm join --discovery-token-ca-cert-hash=sha256:0123456789abcdef0123456789abcdef\n",
    );
    let file = format!("{pool}[classes.default]\nuser-data-file = 'boot.sh'\n");
    let block = "pools: { a: { strategy: spot } }\nclasses:\n  default:\n    tags:\n      db-password: |\n        @\n";
    let key = "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOYBGNx\n-----END PGP PRIVATE KEY BLOCK-----";
    for (name, prod, place) in [
        ("prod.yaml", block.to_owned(), "environments/prod.yaml:6"),
        (
            "prod.toml",
            format!("{pool}[classes.default]\ntags.db-password = \"\"\"\n@\n\"\"\"\n"),
            "environments/prod.toml:4",
        ),
        (
            "prod.toml",
            format!("{pool}[classes.default]\nuser-data = \"\"\"#!/bin/sh\nDB_PASSWORD=@\n\"\"\"\n"),
            "environments/prod.toml:4",
        ),
        (
            "prod.toml",
            format!("{pool}[classes.default]\nuser-data = \"\"\"\n{key}\n\"\"\"\n"),
            "environments/prod.toml:4",
        ),
        (
            "prod.toml",
            format!("{pool}requirements = [{{ key = 'password', operator = 'In', values = ['@'] }}]\n"),
            "environments/prod.toml:3",
        ),
        ("prod.toml", file.clone(), "boot.sh:2"),
    ] {
        let (path, prod) = (format!("environments/{name}"), prod.replace('@', random));
        let boot = boot.1.replace('@', random);
        let files = [("fleet.toml", "name = 'shop'\n"), (&*path, &*prod), ("boot.sh", &*boot)];
        let found = errors(&repository(&files));
        let shown = seen(&found);
        let told =
            found.iter().find(|one| one.code == "PRV1609").unwrap_or_else(|| panic!("{prod}: {shown}"));
        assert!(told.place.to_string().starts_with(place), "{prod}: {shown}");
        assert!(!shown.contains(random) && !shown.contains("lQOYBGNx"), "{prod}: {shown}");
    }
    let files = [("fleet.toml", "name = 'shop'\n"), ("environments/prod.toml", &*file), plain];
    assert!(render(&repository(&files)).is_ok(), "{:?}", render(&repository(&files)).err());
    // A requirement whose value a template made.
    let own = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: { name: a }\nspec:\n  template:\n    spec:\n      \
               nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }\n      \
               requirements: [{ key: password, operator: In, values: [{{ (vars.a ~ vars.b) | tojson }}] }]\n";
    let prod =
        "variables = { a = 'wJalrXUtnFEMIxK7', b = 'MDENGxbPxRfiCYzz' }\n[pools.a]\nstrategy = 'own'\n";
    let files =
        [("fleet.toml", "name = 'shop'\n"), ("environments/prod.toml", prod), ("templates/own.yaml.j2", own)];
    let found = errors(&repository(&files));
    assert!(
        found.iter().any(|one| one.code == "PRV1609") && !seen(&found).contains("wJalrXUtnFEM"),
        "{}",
        seen(&found)
    );
}
