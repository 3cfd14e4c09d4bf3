//! What a pool asks for in words that Karpenter does not have. They travel as annotations of the NodePool and are read strictly:
//! of what cannot be read nobody guesses the meaning, and what it would allow is not done.

use jiff::SignedDuration;

use super::pool::BudgetNodes;
use super::symbol::Symbol;
use super::window::Windows;

/// One word, as its annotation has it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Word<T> {
    pub text: Symbol,
    /// What it means, or why nobody can tell.
    pub meaning: Result<T, Symbol>,
}

impl<T> Word<T> {
    fn fault(&self) -> Option<&Symbol> {
        self.meaning.as_ref().err()
    }
}

/// The words of one pool; a pool without any is Karpenter's.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Terms {
    /// `provisor.dev/return`.
    pub returns: Option<Word<Return>>,
    /// `provisor.dev/windows`.
    pub windows: Option<Word<Windows>>,
    /// `provisor.dev/expiration`.
    pub expiration: Option<Word<Expiration>>,
}

impl Terms {
    /// What cannot be read, each with the name of its annotation.
    pub fn faults(&self) -> Vec<String> {
        let returns = self.returns.as_ref().and_then(Word::fault);
        let windows = self.windows.as_ref().and_then(Word::fault);
        let expiration = self.expiration.as_ref().and_then(Word::fault);
        let named = [("return", returns), ("windows", windows), ("expiration", expiration)];
        let told = |(name, fault): (&str, Option<&Symbol>)| Some(format!("provisor.dev/{name}: {}", fault?));
        named.into_iter().filter_map(told).collect()
    }
}

/// How a node goes back to the capacity type that its pool prefers, after that was sold out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Return {
    /// How long it stays as it was bought; `None`: for good.
    pub after: Option<SignedDuration>,
}

impl Return {
    /// What it is if nobody says: longer than most shortages of spot, and than the quarter of an hour in which a machine that never
    /// joins is given up.
    pub const AFTER_DEFAULT: SignedDuration = SignedDuration::from_mins(30);
}

/// How nodes go for their age. Without it they go all at once and by force, as in Karpenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Expiration {
    /// In percent of `expireAfter`: each node may go so much sooner at the most, by a share of its own.
    pub jitter: u8,
    /// Whether what comes in its place is ready before a node goes.
    pub replaces_first: bool,
    /// How many of the pool's nodes may be away when one goes for its age.
    pub nodes: Option<BudgetNodes>,
    /// So long after `expireAfter` a node goes by force, whatever keeps it; `None`: never.
    pub deadline: Option<SignedDuration>,
}

impl Expiration {
    pub const JITTER_MOST: u8 = 50;
}

impl Default for Expiration {
    /// A tenth: of thirty days that is three, enough for nodes that were bought together to go apart, and little of what a node is there
    /// for. A week until force: every window of a week has been open by then.
    fn default() -> Self {
        let deadline = Some(SignedDuration::from_hours(7 * 24));
        Self { jitter: 10, replaces_first: true, nodes: None, deadline }
    }
}
