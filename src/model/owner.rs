//! Whose an object is: the environment of an installation whose repository describes it.

use std::fmt;

use super::label::{Labels, annotation};
use super::symbol::Symbol;

/// An environment of one installation. It owns what it applied, and the claims and nodes that were made from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    pub installation: Symbol,
    pub environment: Symbol,
}

impl Owner {
    pub fn new(installation: &str, environment: &str) -> Self {
        Self { installation: installation.into(), environment: environment.into() }
    }

    /// Who applied the object `name` of the cluster-wide kind `group/kind`, as its tracking id says; the id of another object
    /// was copied and says nothing.
    pub fn who_applied(annotations: &Labels, kind: &str, name: Symbol) -> Option<Self> {
        let id = annotations.get(&*annotation::TRACKING_ID)?;
        let mut parts = id.splitn(3, ':');
        let owner = Self::new(parts.next()?, parts.next()?);
        (parts.next()?.strip_prefix(kind)?.strip_prefix(":/")? == name.as_str()).then_some(owner)
    }

    /// Who made a claim, or the node that it became.
    pub fn who_made(annotations: &Labels) -> Option<Self> {
        let (installation, environment) = annotations.get(&*annotation::OWNER)?.split_once(':')?;
        Some(Self::new(installation, environment))
    }
}

/// As [`Owner::who_made`] reads it.
impl fmt::Display for Owner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.installation, self.environment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_tracking_id_says_nothing() {
        let marks = |id: &str| Labels::from([(*annotation::TRACKING_ID, id.into())]);
        let who = |id: &str| Owner::who_applied(&marks(id), "karpenter.sh/NodePool", "general".into());
        let us = Owner::new("provisor", "dev");
        assert_eq!(who("provisor:dev:karpenter.sh/NodePool:/general"), Some(us));
        for id in [
            "provisor:dev:karpenter.sh/NodePool:/other",
            "provisor:dev:karpenter.sh/NodeOverlay:/general",
            "provisor:dev",
            "",
        ] {
            assert_eq!(who(id), None, "{id}");
        }
        let made = Labels::from([(*annotation::OWNER, Symbol::new(&us.to_string()))]);
        assert_eq!(Owner::who_made(&made), Some(us));
        assert_eq!(Owner::who_made(&Labels::new()), None);
    }
}
