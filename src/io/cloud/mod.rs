//! Clouds that sell nodes.

pub mod simulated;
