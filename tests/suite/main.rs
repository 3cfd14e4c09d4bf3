//! One test binary: scenarios, properties, simulation, contracts and the command line.

#![allow(clippy::disallowed_methods, reason = "tests bound how long hostile input may take")]

mod api;
mod aws;
mod beside;
mod broken_strategies;
mod capacity;
mod catalog_data;
mod catalogue;
mod churn;
mod cli;
mod deploy;
mod cost;
mod examples;
mod explaining;
mod fleet_files;
mod git;
mod guardrails;
mod kube_scheduler;
mod language;
mod live;
mod plane;
#[path = "plane/selftest.rs"]
mod plane_itself;
mod mistakes;
mod promotion;
mod recording;
mod rendering;
mod report;
mod review;
mod rolls;
mod scheduling;
mod schemas;
mod secrets;
mod strategy;
mod sync;
mod terms;
mod weeks;
