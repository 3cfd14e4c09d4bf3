//! Clouds that sell nodes.

pub mod simulated;
#[cfg(feature = "aws")]
pub mod aws;

use jiff::Timestamp;

use crate::model::catalog::Catalog;

/// A build without the feature `aws` was asked for AWS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this build cannot talk to AWS; build one with `cargo build --release --features aws`")]
pub struct CloudUnavailable;

/// What to say when AWS is asked for in a build that cannot talk to it.
pub fn aws_unavailable() -> CloudUnavailable {
    CloudUnavailable
}

/// Why the cloud gave no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    #[error(transparent)]
    Unavailable(#[from] CloudUnavailable),
    #[error("{call} in {region} failed: {message}")]
    Failed { call: &'static str, region: String, message: String },
    /// EC2 always sells something, so an empty answer is a fault, not a fact.
    #[error("{call} in {region} answered with nothing")]
    Empty { call: &'static str, region: String },
}

/// Asks EC2 what `region` sells at `now`: types, zones and spot prices. On-demand prices stay those of the built-in catalogue,
/// because EC2 does not tell them.
pub async fn describe_catalog(region: &str, now: Timestamp) -> Result<Catalog, CloudError> {
    #[cfg(feature = "aws")]
    return aws::describe_catalog(region, now).await;
    #[cfg(not(feature = "aws"))]
    {
        let _ = (region, now);
        Err(aws_unavailable().into())
    }
}
