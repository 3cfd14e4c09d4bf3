//! What `deploy/` ships, as a real API server sees it.

mod chart;
mod eks;
mod kinds;
mod pipelines;
mod readme;
mod run;
mod shipped;

pub(crate) use shipped::manifests;
