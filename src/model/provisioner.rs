//! Who buys and ends the machines of a cluster.

use serde::{Deserialize, Serialize};

/// What an environment says as its `engine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provisioner {
    #[default]
    Provisor,
    /// A Karpenter that is installed there. Provisor keeps the objects that it goes by, and leaves machines alone.
    Karpenter,
}

impl Provisioner {
    /// Any other word than `karpenter` does not validate.
    pub fn of(engine: &str) -> Self {
        if engine == "karpenter" { Self::Karpenter } else { Self::Provisor }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provisor => "provisor",
            Self::Karpenter => "karpenter",
        }
    }
}
