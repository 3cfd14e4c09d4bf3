//! The outside world: Observations from it, Actions to it.
pub mod git;
pub mod cloud;
