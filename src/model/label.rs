//! Label keys that Kubernetes, Karpenter and the AWS provider give a meaning, and what kind of key a key is.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::symbol::Symbol;

/// Labels or annotations of an object.
pub type Labels = BTreeMap<Symbol, Symbol>;

macro_rules! keys {
    ($($name:ident = $text:literal),* $(,)?) => {$(
        pub static $name: LazyLock<Symbol> = LazyLock::new(|| Symbol::new($text));
    )*};
}

keys! {
    NODEPOOL = "karpenter.sh/nodepool",
    CAPACITY_TYPE = "karpenter.sh/capacity-type",
    REGISTERED = "karpenter.sh/registered",
    INITIALIZED = "karpenter.sh/initialized",
    DO_NOT_SYNC_TAINTS = "karpenter.sh/do-not-sync-taints",
    ZONE = "topology.kubernetes.io/zone",
    REGION = "topology.kubernetes.io/region",
    INSTANCE_TYPE = "node.kubernetes.io/instance-type",
    WINDOWS_BUILD = "node.kubernetes.io/windows-build",
    ARCH = "kubernetes.io/arch",
    OS = "kubernetes.io/os",
    HOSTNAME = "kubernetes.io/hostname",
    EC2_NODE_CLASS = "karpenter.k8s.aws/ec2nodeclass",
    RESERVATION_ID = "karpenter.k8s.aws/capacity-reservation-id",
}

/// Annotation keys.
pub mod annotation {
    use super::{LazyLock, Symbol};

    keys! {
        DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt",
        NODEPOOL_HASH = "karpenter.sh/nodepool-hash",
        NODEPOOL_HASH_VERSION = "karpenter.sh/nodepool-hash-version",
        TERMINATION_TIMESTAMP = "karpenter.sh/nodeclaim-termination-timestamp",
        MIN_VALUES_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed",
        PRICE_OVERLAY_APPLIED = "karpenter.sh/price-overlay-applied",
        CAPACITY_OVERLAY_APPLIED = "karpenter.sh/capacity-overlay-applied",
        CLASS_HASH = "karpenter.k8s.aws/ec2nodeclass-hash",
        CLASS_HASH_VERSION = "karpenter.k8s.aws/ec2nodeclass-hash-version",
        TAGGED = "karpenter.k8s.aws/tagged",
        TRACKING_ID = "provisor.dev/tracking-id",
        OWNER = "provisor.dev/owner",
        HELD = "provisor.dev/held",
        REPLACED_BY = "provisor.dev/replaced-by",
        ROLL = "provisor.dev/roll",
        ROLL_FAILURES = "provisor.dev/roll-failures",
        RETURNS = "provisor.dev/returns",
        POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost",
    }
}

/// Well-known labels (scheduling.md 3.2; the AWS ones from aws.md 3.4): a new node may leave them open and still take
/// a pod that asks for them, because the choice of instance type and offering settles them.
static WELL_KNOWN: &[&str] = &[
    "karpenter.sh/nodepool",
    "karpenter.sh/capacity-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/windows-build",
    "topology.k8s.aws/zone-id",
];

/// The labels under `karpenter.k8s.aws/` (aws.md 3.4). No machine has any other of that domain.
pub const OF_AWS: [&str; 29] = [
    "ec2nodeclass",
    "instance-category",
    "instance-family",
    "instance-generation",
    "instance-size",
    "instance-capability-flex",
    "instance-cpu",
    "instance-cpu-manufacturer",
    "instance-cpu-sustained-clock-speed-mhz",
    "instance-memory",
    "instance-ebs-bandwidth",
    "instance-network-bandwidth",
    "instance-hypervisor",
    "instance-encryption-in-transit-supported",
    "instance-nitro-enclaves-supported",
    "instance-tenancy",
    "instance-local-nvme",
    "instance-gpu-name",
    "instance-gpu-manufacturer",
    "instance-gpu-count",
    "instance-gpu-memory",
    "instance-accelerator-name",
    "instance-accelerator-manufacturer",
    "instance-accelerator-count",
    "capacity-reservation-id",
    "capacity-reservation-type",
    "capacity-reservation-interruptible",
    "placement-group-id",
    "placement-group-partition",
];

/// Old or provider-specific spellings of a key, and the key they stand for.
static ALIASES: &[(&str, &str)] = &[
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"),
];

/// Whether the provider decides this label when it launches a node.
pub fn is_well_known(key: Symbol) -> bool {
    WELL_KNOWN.contains(&key.as_str())
        || key.strip_prefix("karpenter.k8s.aws/").is_some_and(|name| OF_AWS.contains(&name))
}

/// Whether users may not set or select this key: Karpenter's own domain, and the host name.
pub fn is_restricted(key: Symbol) -> bool {
    if is_well_known(key) {
        return false;
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    key == *HOSTNAME || domain == "karpenter.sh" || domain.ends_with(".karpenter.sh")
}

/// The key that `key` stands for.
pub fn canonical(key: Symbol) -> Symbol {
    let known = ALIASES.iter().find(|(alias, _)| *alias == key.as_str());
    known.map_or(key, |(_, meant)| Symbol::new(meant))
}

/// `key` and every other spelling of it.
pub fn spellings(key: Symbol) -> Vec<Symbol> {
    let others = ALIASES.iter().filter(|(_, meant)| *meant == key.as_str());
    std::iter::once(key).chain(others.map(|(alias, _)| Symbol::new(alias))).collect()
}

/// Whether `key` is a qualified label name: an optional DNS prefix of at most 253 characters and a name of at most 63.
pub fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_dns = |prefix: &str| {
        !prefix.is_empty()
            && prefix.len() <= 253
            && prefix.split('.').all(|part| {
                let bytes = part.as_bytes();
                let is_edge = |byte: Option<&u8>| {
                    byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
                };
                is_edge(bytes.first())
                    && is_edge(bytes.last())
                    && bytes
                        .iter()
                        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
            })
    };
    prefix.is_none_or(is_dns) && !name.is_empty() && is_label_value(name)
}

/// Whether `value` may be a label's value: empty, or at most 63 characters that begin and end with a letter or digit.
pub fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let is_edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_classed() {
        assert!(is_well_known(*ZONE) && is_well_known("karpenter.k8s.aws/instance-family".into()));
        assert!(is_restricted(*HOSTNAME) && is_restricted("karpenter.sh/custom".into()));
        assert!(is_restricted("sub.karpenter.sh/x".into()));
        assert!(!is_restricted("node-role.kubernetes.io/worker".into()) && !is_restricted("team".into()));
        assert_eq!(canonical("beta.kubernetes.io/arch".into()), *ARCH);
    }

    #[test]
    fn label_syntax_is_kubernetes_own() {
        for key in ["a", "example.com/name", "a.b-c/d_e.f"] {
            assert!(is_qualified_name(key), "{key}");
        }
        for key in ["", "/a", "a/", "A.com/x y", "-a", "a/b/c", "Example.com/a"] {
            assert!(!is_qualified_name(key), "{key}");
        }
        assert!(
            is_label_value("") && is_label_value("v1.2_x") && !is_label_value("-x") && !is_label_value("a b")
        );
    }
}
