//! The outside world: Observations from it, Actions to it.
pub mod cloud;
