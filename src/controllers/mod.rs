//! Observe, decide, act: one short file per loop.

pub mod source;
mod fleet;
mod perform;
mod git_half;
mod standing;
mod confirm;
mod rules;
pub mod recorder;
pub mod live;
pub mod reconciler;
