//! Provisor: a node provisioner whose desired state is a Git repository.
//!
//! Two ideas carry it. Everything outside [`io`], [`controllers`] and [`ui`] is pure: values in, values out, no clock,
//! chance, files or network. And two closed lists are the border: `model::observation::Observation`, all that Provisor can
//! learn, comes in; `model::action::Action`, all that it may do, goes out.

// Pure, in reading order: each uses only what stands above it.
pub mod model;
pub mod api;
pub mod gitops;
pub mod capacity;
pub mod simulator;
pub mod review;
// Effects.
pub mod io;
pub mod controllers;
pub mod ui;
