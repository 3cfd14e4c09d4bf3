//! Pending pod → running node → gone.

pub mod cluster;
pub mod scheduling;
pub mod provisioning;
