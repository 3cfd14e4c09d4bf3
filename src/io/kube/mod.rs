//! A Kubernetes API server: what it holds becomes Observations, what is decided becomes requests.
//!
//! Objects are read as JSON, trimmed while they are decoded, parsed into the model and dropped. Nothing here knows why
//! something is written; it says what came of it.

mod client;
pub mod joining;
mod kind;
mod trim;
mod record;
mod intake;
mod machines;
pub mod watch;
pub mod apply;
pub mod evict;
pub mod events;
pub mod status;
pub mod lease;
pub mod lookout;

pub use client::{Address, Kube, KubeError};
pub use kind::{Kind, Resource};
pub use record::{Change, Record, Version};
