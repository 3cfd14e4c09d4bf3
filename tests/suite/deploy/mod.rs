//! What `deploy/` ships, as a real API server sees it.

mod chart;
mod conform;
mod image;
mod kinds;
mod pipelines;
mod readme;
pub mod run;
mod shipped;

pub(crate) use shipped::manifests;
