//! Pending pod → running node → gone.

pub mod engine;
pub mod decision;
pub mod cluster;
pub mod scheduling;
pub mod provisioning;
pub mod lifecycle;
pub mod disruption;
pub mod termination;
