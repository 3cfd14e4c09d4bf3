//! A commit → the objects that should exist → a plan to get there.

pub mod desired;
pub mod live;
pub mod tracking;
pub mod diff;
pub mod window;
pub mod policy;
pub mod plan;
pub mod sync;
