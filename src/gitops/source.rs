//! Whether a new head of the source may be followed: what people do to branches and tags, judged before it is believed.
//!
//! Moving on is always fine. Going back, going elsewhere and moving a tag are how mistakes and attacks look, so they are told,
//! and where it matters they wait for a person: for the one commit that the person looked at, and for no other.

use std::sync::Arc;

use jiff::SignedDuration;

use crate::model::history::{DroppedCommit, History, Rewrite};
use crate::model::repository::{CommitId, Revision};

/// How long a source may be silent before its last word counts as stale.
pub const STALE_AFTER: SignedDuration = SignedDuration::from_hours(24);
/// Dropped commits that a message names.
const NAMED_MAX: usize = 5;

/// What happens when history is not simply continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRewrite {
    /// Followed, with an event.
    Allow,
    /// Followed, with a condition.
    Warn,
    /// Kept back until a person acknowledges it, or until history is continued after all.
    Block,
}

/// The rules for one source, from the cluster's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePolicy {
    pub on_rewrite: OnRewrite,
    pub on_tag_move: OnRewrite,
}

impl SourcePolicy {
    /// Told and followed.
    pub fn open() -> Self {
        Self { on_rewrite: OnRewrite::Warn, on_tag_move: OnRewrite::Warn }
    }

    /// Kept back, for environments that must not go where nobody looked.
    pub fn protected() -> Self {
        Self { on_rewrite: OnRewrite::Block, on_tag_move: OnRewrite::Block }
    }
}

/// A sentence about the source, under a word for conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNotice {
    pub reason: &'static str,
    pub message: String,
}

/// What becomes of a new head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceVerdict {
    Follow { notice: Option<SourceNotice> },
    Hold(SourceNotice),
}

/// The memory of what was followed, and of what a person acknowledged.
#[derive(Clone, Debug)]
pub struct SourceGate {
    /// What `provisor ack` is told.
    environment: Arc<str>,
    policy: SourcePolicy,
    followed: Option<Revision>,
    acknowledged: Option<CommitId>,
}

impl SourceGate {
    pub fn new(environment: Arc<str>, policy: SourcePolicy) -> Self {
        Self { environment, policy, followed: None, acknowledged: None }
    }

    /// The commit that a new head is compared with: the last one that could be used.
    pub fn followed(&self) -> Option<&CommitId> {
        self.followed.as_ref().map(|revision| &revision.commit)
    }

    /// A person has looked at `commit` and wants it, rewritten or not. A head that is another one stays blocked.
    pub fn acknowledge(&mut self, commit: CommitId) {
        self.acknowledged = Some(commit);
    }

    pub fn set_policy(&mut self, policy: SourcePolicy) {
        self.policy = policy;
    }

    /// Judges a head, given how it relates to [`SourceGate::followed`].
    pub fn judge(&self, head: &Revision, history: &History) -> SourceVerdict {
        let Some(before) = &self.followed else { return SourceVerdict::Follow { notice: None } };
        let Some((notice, rule)) = self.finding(before, head, history) else {
            return SourceVerdict::Follow { notice: None };
        };
        if rule != OnRewrite::Block {
            return SourceVerdict::Follow { notice: Some(notice) };
        }
        if self.acknowledged.as_ref() == Some(&head.commit) {
            let message = format!("{}; acknowledged", notice.message);
            return SourceVerdict::Follow { notice: Some(SourceNotice { message, ..notice }) };
        }
        let (environment, commit) = (&self.environment, &head.commit);
        let message = format!(
            "{}; it waits for `provisor ack {environment} --revision {commit}`, with --repo as here",
            notice.message
        );
        SourceVerdict::Hold(SourceNotice { message, ..notice })
    }

    /// The head was followed and could be used.
    pub fn accept(&mut self, head: Revision) {
        self.acknowledged = None;
        self.followed = Some(head);
    }

    fn finding(
        &self,
        before: &Revision,
        head: &Revision,
        history: &History,
    ) -> Option<(SourceNotice, OnRewrite)> {
        let is_same_reference = before.reference == head.reference;
        let tag = tag_of(head);
        if let Some(tag) = tag.filter(|_| is_same_reference && before.commit != head.commit) {
            let message =
                format!("the tag `{tag}` moved from {} to {}", before.commit.short(), head.commit.short());
            return Some((SourceNotice { reason: "TagMoved", message }, self.policy.on_tag_move));
        }
        let History::Rewritten { old, new, how, dropped } = history else { return None };
        // Another tag, chosen by a range, need not descend from the one before. Any other name that changes while the same
        // source is followed is a HEAD that was moved, to a branch or to a commit, and nobody chose that here.
        let is_other_tag = !is_same_reference && tag.is_some() && tag_of(before).is_some();
        if is_other_tag && *how != Rewrite::Unrelated {
            return None;
        }
        let reason = match how {
            Rewrite::Unrelated => "UnrelatedHistory",
            _ => "HistoryRewritten",
        };
        let by = match (&before.reference, &head.reference) {
            (was, is) if was == is => String::new(),
            (_, Some(is)) => format!(" (HEAD was moved to `{is}`)"),
            (_, None) => " (HEAD was moved to a commit, away from its branch)".to_owned(),
        };
        let message = format!("{} {how} {}{}{by}", new.short(), old.short(), named(dropped));
        Some((SourceNotice { reason, message }, self.policy.on_rewrite))
    }
}

fn tag_of(revision: &Revision) -> Option<&str> {
    revision.reference.as_deref()?.strip_prefix("refs/tags/")
}

fn named(dropped: &[DroppedCommit]) -> String {
    if dropped.is_empty() {
        return String::new();
    }
    let names: Vec<String> = dropped.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = match dropped.len() > NAMED_MAX {
        true => format!(" and {} more", dropped.len() - NAMED_MAX),
        false => String::new(),
    };
    format!(", dropping {}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> CommitId {
        CommitId::parse(&digit.to_string().repeat(40)).expect("40 digits")
    }

    fn head(digit: char, reference: &str) -> Revision {
        Revision {
            commit: id(digit),
            reference: Some(reference.into()),
            subject: "".into(),
            author: "".into(),
        }
    }

    fn rewritten(old: char, new: char, how: Rewrite) -> History {
        let dropped = vec![DroppedCommit { commit: id(old), subject: "more nodes".into() }];
        History::Rewritten { old: id(old), new: id(new), how, dropped }
    }

    fn gate(policy: SourcePolicy, reference: &str) -> SourceGate {
        let mut gate = SourceGate::new("prod".into(), policy);
        gate.accept(head('1', reference));
        gate
    }

    fn reason(verdict: &SourceVerdict) -> (&'static str, bool) {
        match verdict {
            SourceVerdict::Follow { notice } => (notice.as_ref().map_or("", |notice| notice.reason), true),
            SourceVerdict::Hold(notice) => (notice.reason, false),
        }
    }

    #[test]
    fn what_is_told_and_what_waits() {
        let main = "refs/heads/main";
        for (history, open, protected) in [
            (History::FastForward, ("", true), ("", true)),
            (rewritten('1', '2', Rewrite::Rewound), ("HistoryRewritten", true), ("HistoryRewritten", false)),
            (rewritten('1', '2', Rewrite::Unknown), ("HistoryRewritten", true), ("HistoryRewritten", false)),
            (
                rewritten('1', '2', Rewrite::Unrelated),
                ("UnrelatedHistory", true),
                ("UnrelatedHistory", false),
            ),
        ] {
            let judge = |policy| reason(&gate(policy, main).judge(&head('2', main), &history));
            assert_eq!(judge(SourcePolicy::open()), open, "{history:?}");
            assert_eq!(judge(SourcePolicy::protected()), protected, "{history:?}");
        }
        let first = SourceGate::new("prod".into(), SourcePolicy::protected());
        let any = rewritten('1', '2', Rewrite::Unrelated);
        assert_eq!(reason(&first.judge(&head('2', main), &any)), ("", true), "nothing came before");
    }

    #[test]
    fn another_tag_is_no_moved_tag_and_need_not_descend() {
        let gate = gate(SourcePolicy::protected(), "refs/tags/v1.2.0");
        let diverged = rewritten('1', '2', Rewrite::Diverged);
        assert_eq!(reason(&gate.judge(&head('2', "refs/tags/v1.3.0"), &diverged)), ("", true));
        assert_eq!(
            reason(&gate.judge(&head('2', "refs/tags/v1.2.0"), &History::FastForward)),
            ("TagMoved", false)
        );
        let unrelated = rewritten('1', '2', Rewrite::Unrelated);
        assert_eq!(
            reason(&gate.judge(&head('2', "refs/tags/v1.3.0"), &unrelated)),
            ("UnrelatedHistory", false)
        );
    }

    #[test]
    fn a_head_that_is_moved_to_another_branch_or_to_a_commit_is_judged_like_any_other() {
        let detached = || Revision { reference: None, ..head('2', "") };
        let at = |name: &str| head('2', name);
        for (before, after) in [
            (at("refs/heads/main"), at("refs/heads/old")),
            (at("refs/heads/main"), detached()),
            (detached(), at("refs/heads/main")),
            (at("refs/heads/main"), at("refs/tags/v1")),
            (at("refs/tags/v1"), at("refs/heads/main")),
        ] {
            for how in [Rewrite::Rewound, Rewrite::Diverged, Rewrite::Unknown] {
                let judge = |policy| {
                    let mut gate = SourceGate::new("prod".into(), policy);
                    gate.accept(Revision { commit: id('1'), ..before.clone() });
                    let onward = gate.judge(&after, &History::FastForward);
                    assert_eq!(
                        reason(&onward),
                        ("", true),
                        "what goes on is no finding: {before:?}, {after:?}"
                    );
                    reason(&gate.judge(&after, &rewritten('1', '2', how)))
                };
                assert_eq!(
                    judge(SourcePolicy::protected()),
                    ("HistoryRewritten", false),
                    "{before:?}, {after:?}"
                );
                assert_eq!(judge(SourcePolicy::open()), ("HistoryRewritten", true), "{before:?}, {after:?}");
            }
        }
    }

    #[test]
    fn the_message_names_both_commits_and_what_is_dropped() {
        let gate = gate(SourcePolicy::open(), "refs/heads/main");
        let SourceVerdict::Follow { notice: Some(notice) } =
            gate.judge(&head('2', "refs/heads/main"), &rewritten('1', '2', Rewrite::Rewound))
        else {
            panic!("told and followed");
        };
        assert_eq!(notice.message, "2222222 goes back to before 1111111, dropping 1111111 \"more nodes\"");
    }
}
