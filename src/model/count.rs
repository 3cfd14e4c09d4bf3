//! Numbers of things in sentences: one thing is never told as if it were several.

use std::fmt;

/// `1 pod`, `2 pods`.
pub(crate) fn counted(count: impl fmt::Display, thing: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// The word that goes with so many: `agreeing(1, "needs", "need")` is `needs`.
pub(crate) fn agreeing<'w>(count: impl TryInto<u64>, one: &'w str, several: &'w str) -> &'w str {
    if matches!(count.try_into(), Ok(1)) { one } else { several }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_never_told_as_several() {
        let told = |count: usize| format!("{} {}", counted(count, "pod"), agreeing(count, "waits", "wait"));
        assert_eq!([0, 1, 2, 11].map(told), ["0 pods wait", "1 pod waits", "2 pods wait", "11 pods wait"]);
    }
}
