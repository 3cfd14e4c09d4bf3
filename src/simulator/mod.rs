//! The same decisions in memory: virtual clock, seeded chance.

pub mod world;
pub mod cloud;
pub mod scheduler;
pub mod kubelet;
pub mod workload;
pub mod story;
pub mod script;
pub mod settle;
pub mod roll;
pub mod stage;
pub mod replay;
pub mod what_if;
pub mod why;
pub mod chronicle;
pub mod faults;
pub mod fleet;
pub mod invariants;
mod wire;
pub mod trial;
pub mod shrink;
pub mod chance;
