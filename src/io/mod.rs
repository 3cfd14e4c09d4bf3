//! The outside world: Observations from it, Actions to it.
pub mod clock;
pub mod git;
pub mod cloud;
pub mod kube;
pub mod recording;
