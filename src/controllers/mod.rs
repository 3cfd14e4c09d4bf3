//! Observe, decide, act: one short file per loop.

pub mod source;
pub mod reconciler;
