use super::*;

fn tip(name: &str, digit: char) -> Tip {
    Tip { name: name.into(), id: id(digit), peeled: None }
}

fn id(digit: char) -> ObjectId {
    ObjectId::from_hex(digit.to_string().repeat(40).as_bytes()).expect("40 digits")
}

fn pick_from(reference: &Reference, tips: &[Tip]) -> Result<Picked, GitError> {
    let head = tips.first().map(|tip| AdvertisedHead { branch: Some(tip.name.clone()), id: Some(tip.id) });
    let advertised = Advertised { head, tips: tips.to_vec() };
    pick(reference, "`fleet`", &advertised, || Ok(advertised.clone()))
}

fn semver(range: &str, prefix: &str) -> Reference {
    let fields = ReferenceFields {
        semver: Some(range.into()),
        tag_prefix: Some(prefix.into()),
        ..ReferenceFields::default()
    };
    fields.choose(Purpose::Production).expect(range)
}

fn name_of(picked: Result<Picked, GitError>) -> String {
    picked.expect("picked").reference.expect("a reference").to_string()
}

#[test]
fn git_004_the_most_exact_field_wins() {
    let mut fields = ReferenceFields {
        commit: Some("a".repeat(40)),
        name: Some("refs/heads/named".into()),
        semver: Some("1.x".into()),
        tag_prefix: None,
        tag: Some("v1".into()),
        branch: Some("main".into()),
    };
    let choose = |fields: &ReferenceFields| fields.choose(Purpose::Production).expect("valid");
    assert!(matches!(choose(&fields), Reference::Commit { branch: Some(_), .. }));
    fields.commit = None;
    assert!(matches!(choose(&fields), Reference::Name(name) if name.as_str() == "refs/heads/named"));
    fields.name = None;
    assert!(matches!(choose(&fields), Reference::Semver { .. }));
    fields.semver = None;
    assert!(matches!(choose(&fields), Reference::Tag(name) if name.as_str() == "refs/tags/v1"));
    fields.tag = None;
    assert!(matches!(choose(&fields), Reference::Branch(name) if name.as_str() == "refs/heads/main"));
    fields.branch = None;
    assert_eq!(choose(&fields), Reference::Head);
}

#[test]
fn git_005_pre_releases_count_only_if_the_range_names_one() {
    let tips =
        [tip("refs/tags/v1.2.3", '1'), tip("refs/tags/v1.3.0", '2'), tip("refs/tags/v2.0.0-rc.1", '3')];
    assert_eq!(name_of(pick_from(&semver(">=1.0.0", ""), &tips)), "refs/tags/v1.3.0");
    let picked = pick_from(&semver(">=1.0.0-0", ""), &tips).expect("picked");
    assert_eq!(picked.version.expect("a version").to_string(), "2.0.0-rc.1");
}

#[test]
fn git_006_a_tag_prefix_is_cut_before_comparing() {
    let tips =
        [tip("refs/tags/prod/v1.0.1", '1'), tip("refs/tags/dev/v9.0.0", '2'), tip("refs/tags/v1.5.0", '3')];
    assert_eq!(name_of(pick_from(&semver("1.x", "prod/"), &tips)), "refs/tags/prod/v1.0.1");
}

#[test]
fn git_007_branches_are_no_versions() {
    let tips = [tip("refs/heads/1.5.0", '1'), tip("refs/tags/1.4.0", '2')];
    assert_eq!(name_of(pick_from(&semver("1.x", ""), &tips)), "refs/tags/1.4.0");
    let error = pick_from(&semver("1.x", ""), &tips[..1]).expect_err("no tag");
    assert_eq!(error.to_string(), "no tag of `fleet` is a version in the range `1.x`");
}

#[test]
fn versions_of_equal_precedence_are_ordered_by_name() {
    let tips = [tip("refs/tags/1.0.0+b", '1'), tip("refs/tags/1.0.0+c", '2'), tip("refs/tags/1.0.0+a", '3')];
    assert_eq!(name_of(pick_from(&semver("1.x", ""), &tips)), "refs/tags/1.0.0+c");
}

#[test]
fn git_008_a_branch_and_a_tag_of_one_name() {
    let tips = [tip("refs/heads/release-1", '1'), tip("refs/tags/release-1", '2')];
    let fields = ReferenceFields { branch: Some("release-1".into()), ..ReferenceFields::default() };
    let branch = fields.choose(Purpose::Production).expect("a branch");
    assert_eq!(pick_from(&branch, &tips).expect("picked").id, id('1'));
    let any = Reference::any("release-1").expect("a word");
    let error = pick_from(&any, &tips).expect_err("ambiguous");
    assert_eq!(error.help(), "Name it in full: `refs/heads/release-1` or `refs/tags/release-1`.");
    assert_eq!(pick_from(&any, &tips[1..]).expect("only the tag").id, id('2'));
    let full = Reference::any("refs/tags/release-1").expect("full");
    assert_eq!(pick_from(&full, &tips).expect("picked").id, id('2'));
}

#[test]
fn git_011_abbreviated_commits_are_refused() {
    let fields = |text: &str| ReferenceFields { commit: Some(text.into()), ..ReferenceFields::default() };
    let error = fields("0123456789ab").choose(Purpose::Production).expect_err("abbreviated");
    assert_eq!(error.to_string(), "`0123456789ab` is an abbreviated commit id (12 digits)");
    let error = fields("main").choose(Purpose::Production).expect_err("a branch");
    assert_eq!(error.to_string(), "`main` is not a commit id");
}

#[test]
fn git_013_pull_requests_are_for_review() {
    let fields = ReferenceFields { name: Some("refs/pull/7/head".into()), ..ReferenceFields::default() };
    let error = fields.choose(Purpose::Production).expect_err("not for production");
    assert_eq!(
        error.to_string(),
        "`refs/pull/7/head` is neither a branch nor a tag, and may change without a merge"
    );
    assert!(fields.choose(Purpose::Review).is_ok());
}

#[test]
fn names_that_are_commands_or_nonsense_are_refused() {
    let is_no_branch = |text: &str| {
        let fields = ReferenceFields { branch: Some(text.into()), ..ReferenceFields::default() };
        fields.choose(Purpose::Production).is_err()
    };
    for text in ["-x", "a b", "a..b", "a\nb", "", "x.lock", "@{-1}", "a//b"] {
        assert!(Reference::any(text).is_err(), "{text:?}");
        assert!(is_no_branch(text), "{text:?}");
    }
    assert!(Reference::any("a~1").is_ok() && is_no_branch("a~1"), "a way back from a branch is none");
}

#[test]
fn a_missing_branch_lists_the_nearest_names() {
    let tips = [tip("refs/heads/main", '1'), tip("refs/heads/staging", '2'), tip("refs/tags/mian", '3')];
    let fields = ReferenceFields { branch: Some("mian".into()), ..ReferenceFields::default() };
    let error = pick_from(&fields.choose(Purpose::Production).expect("valid"), &tips).expect_err("missing");
    assert_eq!(error.to_string(), "`fleet` has no branch `mian`");
    assert_eq!(error.help(), "There is `main` and `staging`.");
    let error = pick_from(&Reference::any("stagging").expect("a word"), &tips).expect_err("missing");
    assert_eq!(error.help(), "There is `staging`, `main` and `mian`.");
}
