//! For people: command line, tables, progress.
//!
//! Data goes to stdout, talk to stderr. Nothing here decides about nodes; it shows what others decided.

pub mod exit;
pub mod console;
pub mod table;
pub mod progress;
pub mod diagnostics;
mod interrupt;
mod log;
mod example;
mod script;
pub mod play;
mod story;
mod live_story;
pub mod metrics;
pub mod report;
pub mod cli;
