//! The name that was most likely meant by a misspelt one.
//!
//! A wrong guess is worse than none: a person follows it. So only a slip of the finger counts as near, and a short word leaves
//! room for fewer of them than a long one.

/// The nearest of `names`; `-`, `_` and case do not count. `None` if none is near.
pub(crate) fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['-', '_'], "").to_lowercase();
    let wanted = plain(wrong);
    let letters = wanted.chars().count();
    let slips = slips_of(letters);
    names
        .into_iter()
        // What differs by more letters than that need not be compared, however long it is.
        .filter(|name| plain(name).chars().count().abs_diff(letters) <= slips)
        .map(|name| (strsim::damerau_levenshtein(&wanted, &plain(name)), name))
        .filter(|(distance, _)| *distance <= slips)
        .min_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(b.1)))
        .map(|(_, name)| name)
}

/// Letters that may be wrong, missing, too many or swapped in a word of so many.
fn slips_of(letters: usize) -> usize {
    match letters {
        0 | 1 => 0,
        2..=5 => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_near() {
        let names = ["limits", "labels", "startup-taints"];
        assert_eq!(nearest("limts", names), Some("limits"));
        assert_eq!(nearest("startupTaints", names), Some("startup-taints"));
        assert_eq!(nearest("startup-tiants", names), Some("startup-taints"));
        assert_eq!(nearest("eu-wst-1", ["eu-west-1", "eu-west-2"]), Some("eu-west-1"));
        assert_eq!(nearest("spto", ["spot", "static"]), Some("spot"));
    }

    #[test]
    fn another_word_is_not_near() {
        assert_eq!(nearest("budget", ["limits", "labels", "startup-taints"]), None);
        assert_eq!(nearest("mars-1", ["ca-west-1", "us-east-1", "sa-east-1"]), None);
        assert_eq!(nearest("b", ["a", "c"]), None);
        assert_eq!(nearest("gpu1", ["spot"]), None);
        assert_eq!(nearest("", ["a"]), None);
    }
}
