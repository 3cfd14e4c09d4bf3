//! A commit → the objects that should exist → a plan to get there.

// The files that people edit, read.
pub mod diagnostic;
pub(crate) mod tree;
pub(crate) mod read;
pub mod strategy;
pub mod schema;
pub(crate) mod text_form;
pub(crate) mod shape;
pub(crate) mod credential;
pub mod migrate;
pub(crate) mod normal;
pub(crate) mod overlay;
pub(crate) mod inheritance;
pub(crate) mod hidden;
pub mod fleet;
pub mod reads;
// Rendered.
pub(crate) mod nesting;
pub mod lock;
pub(crate) mod template;
pub(crate) mod flow;
pub(crate) mod meter;
pub mod engine;
pub mod context;
pub(crate) mod rendered;
pub(crate) mod overrides;
pub(crate) mod headroom;
pub(crate) mod roll;
pub(crate) mod terms;
pub(crate) mod beside;
pub mod check;
pub(crate) mod overlap;
pub mod guardrail;
pub mod waiver;
pub mod render;
pub mod explain;
pub mod desired;
// Compared and carried out.
pub mod source;
pub mod live;
pub mod tracking;
pub mod diff;
pub mod window;
pub mod environment;
pub mod policy;
pub mod plan;
pub mod sync;
pub mod confirmation;
pub mod standing;
// From one environment to the next.
pub mod promotion;
