//! The node half: what is judged, and how a cluster lives under it.

mod town;

mod advice;
mod marking;
mod candidates;
mod protection;
mod costs;
mod emptiness;
mod drift;
mod static_drift;
mod unconsolidatable;
mod passes;
mod gauges;
mod disruption;
mod consolidation;
mod balanced;
mod second_look;
mod engine;
mod rounds;
mod registration;
mod buffers;
mod status;
mod property;
mod unreadable;
mod kept;
mod lifetimes;
mod joining;
mod ending;
mod repair;
mod fixed;
mod replacing;
mod nominations;
mod held;
mod plans;
mod jobs;
mod decisions;
