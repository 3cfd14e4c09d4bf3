//! Secrets that somebody left in a file: whatever else is wrong there, nobody who reads of it reads them.

use crate::fleet_files::{errors, fleet, repository};
use provisor::gitops::diagnostic::{Diagnostic, Diagnostics};
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
