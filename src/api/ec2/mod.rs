//! What EC2 and its machines are told and tell, as text and values: selectors, images, user data, launch templates, answers, events.
//!
//! Everything here can be read, printed and tested without an account and without the SDK; `io::cloud::aws` only carries it.

pub mod spec;
pub mod query;
pub mod image;
pub mod userdata;
pub mod template;
pub mod refusal;
pub mod event;
pub mod permission;

/// The cluster that machines join, as they have to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Also the name under which our machines are tagged: two clusters of one name in one account would take each other's.
    pub name: String,
    /// An absolute URL.
    pub endpoint: String,
    /// PEM in base64.
    pub ca_bundle: String,
    /// The range of Service addresses, without which an AL2023 node cannot be configured.
    pub service_cidr: Option<String>,
    /// The address of the cluster's DNS.
    pub dns: Option<String>,
}

/// The tags by which machines and templates are known to be ours (aws.md 4.9).
pub mod tag {
    pub const CLUSTER_NAME: &str = "eks:eks-cluster-name";
    pub const POOL: &str = "karpenter.sh/nodepool";
    pub const CLAIM: &str = "karpenter.sh/nodeclaim";
    /// What consoles show of a machine.
    pub const NAME: &str = "Name";
    pub const CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
    /// Names of claims come again, uids do not.
    pub const CLAIM_UID: &str = "provisor.dev/claim-uid";
    /// The environment that made it: another one of the same cluster, or Karpenter, marks its own with all other tags alike.
    pub const OWNER: &str = "provisor.dev/owner";

    /// The tag that the cloud controller and every IAM policy of ours asks for; its value is `owned`.
    pub fn owned_by(cluster: &str) -> String {
        format!("kubernetes.io/cluster/{cluster}")
    }
}
