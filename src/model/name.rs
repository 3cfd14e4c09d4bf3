//! Names of things, one type each, so that a node can never be looked up among claims.

use std::fmt;

use super::symbol::Symbol;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Symbol);

        impl $name {
            pub fn new(text: &str) -> Self {
                Self(Symbol::new(text))
            }

            pub fn as_str(&self) -> &'static str {
                self.0.as_str()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(out)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
    )*};
}

names! {
    /// A NodePool.
    PoolName,
    /// A node class (EC2NodeClass).
    ClassName,
    /// A NodeClaim.
    ClaimName,
    /// A Node.
    NodeName,
    Namespace,
    /// An EC2 instance type, such as `m7i.large`.
    TypeName,
    /// An availability zone, such as `us-west-2a`.
    Zone,
    /// `aws:///ZONE/INSTANCE`: joins a Node, its NodeClaim and its instance.
    ProviderId,
    /// The uid of a Kubernetes object.
    Uid,
}

impl ProviderId {
    /// The cloud's own id of the instance: what follows the last slash.
    pub fn instance(&self) -> &'static str {
        let text = self.as_str();
        text.rsplit('/').next().unwrap_or(text)
    }
}

/// A namespaced object: pods, budgets, volume claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: Namespace,
    pub name: Symbol,
}

impl ObjectKey {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: Namespace::new(namespace), name: Symbol::new(name) }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!("{}/{}", self.namespace, self.name))
    }
}

impl serde::Serialize for ObjectKey {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for ObjectKey {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        let (namespace, name) = text
            .split_once('/')
            .ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not NAMESPACE/NAME")))?;
        Ok(Self::new(namespace, name))
    }
}
