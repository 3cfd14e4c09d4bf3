//! Pending pod → running node → gone.

pub mod cluster;
