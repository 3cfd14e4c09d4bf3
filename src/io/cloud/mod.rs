//! Clouds that sell nodes.
