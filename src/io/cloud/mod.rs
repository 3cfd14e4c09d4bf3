//! Clouds that sell machines.
//!
//! A provider carries out what was decided and answers with facts. It may remember what the cloud said, never choose: which offerings
//! to try, in which order, is in the order it is given.

pub mod nobody;
pub mod simulated;
// Without the feature the same names are there, and say so.
#[cfg_attr(not(feature = "aws"), path = "absent.rs")]
pub mod aws;

use std::future::Future;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::api::ec2::Cluster;
use crate::model::action::LaunchOption;
use crate::model::catalog::{CapacitySettings, Catalog};
use crate::model::claim::NodeClaim;
use crate::model::class::{ClassStatus, NodeClass};
use crate::model::name::{ClaimName, NodeName, ProviderId};
use crate::model::observation::{Instance, InterruptionNotice, LaunchFailure, Shortage};
use crate::model::owner::Owner;

/// A cloud that sells machines for claims.
pub trait CloudProvider: Send + Sync + 'static {
    /// What can be bought: types, zones, prices. Asked for at the start and every few minutes.
    fn catalog(&self) -> impl Future<Output = Result<Arc<Catalog>, CloudError>> + Send;

    /// What the selectors of a class find. What is wrong with the class itself is in the status; an error means that the cloud did
    /// not answer, and the former status stays.
    fn resolve(&self, class: Arc<NodeClass>) -> impl Future<Output = Result<ClassStatus, CloudError>> + Send;

    /// Buys one machine. The same claim never gets two, however often it is ordered: its uid is the idempotency token, and an
    /// instance that already carries its tags is the answer.
    fn launch(&self, order: LaunchOrder) -> impl Future<Output = Result<Bought, LaunchFailure>> + Send;

    /// Tells a machine to stop for good, and how far it is. It may be told again.
    fn terminate(&self, instance: ProviderId) -> impl Future<Output = Result<Ending, CloudError>> + Send;

    /// Every machine that carries our tags, stopping ones included, gone ones not.
    fn instances(&self) -> impl Future<Output = Result<Vec<Instance>, CloudError>> + Send;

    /// Waits for notices about machines. They are told again, perhaps, until they are acknowledged.
    fn notices(&self) -> impl Future<Output = Result<Notices, CloudError>> + Send;

    /// Forgets notices whose consequences are written on objects.
    fn acknowledge(&self, receipts: Vec<Receipt>) -> impl Future<Output = Result<(), CloudError>> + Send;

    /// Whether anything of ours is to be seen in the cloud beside machines: without, [`Self::name`] and [`Self::clear`] are not asked for.
    fn has_belongings(&self) -> bool;

    /// Has people see which node and claim a machine is, where nothing is said about it; `false` if it is not there, or not ours.
    fn name(
        &self,
        machine: ProviderId,
        node: NodeName,
        claim: ClaimName,
    ) -> impl Future<Output = Result<bool, CloudError>> + Send;

    /// Deletes what was made for machines of a class, of which there are none any more: for one that had a role, profiles as well. It may be
    /// told again.
    fn clear(
        &self,
        class: Arc<NodeClass>,
        had_role: bool,
    ) -> impl Future<Output = Result<(), CloudError>> + Send;
}

/// One machine to buy, and all that is to be known for it.
#[derive(Clone, Debug)]
pub struct LaunchOrder {
    pub claim: Arc<NodeClaim>,
    pub class: Arc<NodeClass>,
    /// Cheapest first.
    pub options: Vec<LaunchOption>,
}

/// A machine, and what was sold out before it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bought {
    pub instance: Instance,
    pub shortage: Option<Arc<Shortage>>,
}

/// How far a machine is that was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It still runs, or is stopping.
    UnderWay,
    Gone,
}

impl From<Instance> for Bought {
    fn from(instance: Instance) -> Self {
        Self { instance, shortage: None }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    pub notices: Vec<(ProviderId, InterruptionNotice)>,
    pub receipts: Vec<Receipt>,
    /// Messages that were understood, whosever machines they are about.
    pub received: Vec<Received>,
    /// Messages that came to nothing and are deleted already.
    pub dropped: usize,
}

/// One message, as monitoring counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Such as `spot_interrupted`.
    pub kind: &'static str,
    pub sent: Timestamp,
}

/// What names a message to the queue that it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt(pub String);

/// Where machines of EC2 are bought, and for which cluster.
#[derive(Clone, Debug)]
pub struct AwsSettings {
    /// Whose the machines are, and what is made for them.
    pub owner: Owner,
    pub region: String,
    pub cluster: Cluster,
    /// `major.minor` of Kubernetes as it is now, by which image aliases choose.
    pub version: watch::Receiver<String>,
    /// The name of the SQS queue for notices; `None`: nobody tells us when machines are taken.
    pub queue: Option<String>,
    pub capacity: CapacitySettings,
}

/// Whether this build can talk to AWS.
pub const HAS_AWS: bool = cfg!(feature = "aws");

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
