//! How the drifted nodes of a pool are rolled: what people say of it, and what is remembered of tries that failed.

use jiff::SignedDuration;

use super::pool::BudgetNodes;
use super::symbol::Symbol;

/// What a pool says of its rolls (annotation `provisor.dev/roll`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Roll {
    /// Nothing drifted is replaced.
    pub is_paused: bool,
    /// So many new nodes have to prove themselves before the others are replaced; 0: none.
    pub canary: u32,
    /// How long each of them has to be ready for that.
    pub soak: SignedDuration,
    /// The most replacements that there may be at once beside the nodes that they replace. `None`: as many as budgets let go.
    pub surge: Option<BudgetNodes>,
    /// After so many tries in a row that failed nothing more is tried.
    pub halt_after: u32,
}

impl Default for Roll {
    fn default() -> Self {
        Self { is_paused: false, canary: 0, soak: SignedDuration::from_mins(10), surge: None, halt_after: 3 }
    }
}

/// An annotation about rolls that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RollFault {
    /// The annotation, and what it says.
    pub key: Symbol,
    pub text: Symbol,
    pub message: Symbol,
}

/// Tries to replace nodes of a pool that failed in a row (annotation `provisor.dev/roll-failures`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RollFailures {
    /// None: there is nothing to remember.
    pub count: u32,
    /// What the pool asked for then: of anything else nothing has failed yet.
    pub goal: Symbol,
}
