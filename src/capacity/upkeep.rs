//! What is kept beside machines: the status of node classes, what was made for them in the cloud, and the names of machines there.
//!
//! A class that is ours is held before anything is made for it, and asked about again and again. One that is deleted waits for its
//! claims; then what was made for it is cleared away, and it goes.

mod classes;
mod names;

pub(crate) use classes::{Asked, Classes};
pub(crate) use names::Names;

/// How much of it there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Upkeep {
    /// The status of node classes.
    Classes,
    /// Also what is made for classes in the cloud, and names of machines that people find there.
    Belongings,
}
