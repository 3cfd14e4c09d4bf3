//! What the cloud sells.

/// Instance types and their offerings in one region.
#[derive(Clone, Debug, Default)]
pub struct Catalog {}
