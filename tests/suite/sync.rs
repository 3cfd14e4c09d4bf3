//! Diff, plan and sync of one environment against a small model of an API server.

mod bench;
mod differences;
mod last_good;
mod operations;
mod properties;
mod readiness;
mod removals;
mod retiring;
mod room;
mod rules;
mod selfheal;
mod takeover;
mod windows;
