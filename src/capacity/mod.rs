//! Pending pod → running node → gone.

pub mod cluster;
mod late_copy;
mod pod_budgets;
pub mod scheduling;
pub mod provisioning;
pub mod decision;
pub mod engine;
pub mod planning;
pub mod ledger;
pub mod recording;
pub mod buffers;
mod pool_status;
pub mod disruption;
mod shortages;
mod batching;
mod agenda;
mod assume;
mod lifecycle;
mod registration;
mod consistency;
pub mod repair;
mod nominations;
mod openings;
mod plans;
mod termination;
pub mod static_capacity;
mod garbage;
