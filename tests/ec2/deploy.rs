//! What `deploy/` ships, as far as these tests install it.

#[allow(dead_code, reason = "the suite uses the rest")]
#[path = "../suite/deploy/shipped.rs"]
mod shipped;

pub(crate) use shipped::{AWS, manifests, rendered};
