//! One test binary: scenarios, properties, simulation, contracts and the command line.

mod api;
mod catalog_data;
mod catalogue;
mod cli;
mod fleet_files;
mod git;
mod language;
mod rendering;
mod scheduling;
mod strategy;
mod sync;
