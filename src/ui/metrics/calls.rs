//! Requests to the cloud, timed and counted, under the names that Karpenter gives them where it makes the same.

use std::sync::Arc;

use super::Metrics;
use crate::io::clock::{self, Stopwatch};
use crate::io::cloud::{Bought, CloudError, CloudProvider, Ending, LaunchOrder, Notices, Receipt};
use crate::model::catalog::Catalog;
use crate::model::class::{ClassStatus, NodeClass};
use crate::model::name::{ClaimName, NodeName, ProviderId};
use crate::model::observation::{Instance, LaunchFailure};

/// One of the requests, and on whose behalf it is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub controller: &'static str,
    pub method: &'static str,
}

const CATALOG: Call = Call { controller: "provisioner", method: "GetInstanceTypes" };
const RESOLVE: Call = Call { controller: "nodeclass", method: "Resolve" };
const LAUNCH: Call = Call { controller: "nodeclaim.lifecycle", method: "Create" };
const TERMINATE: Call = Call { controller: "nodeclaim.lifecycle", method: "Delete" };
const INSTANCES: Call = Call { controller: "nodeclaim.garbagecollection", method: "List" };
const NAME: Call = Call { controller: "nodeclaim.tagging", method: "Name" };
const CLEAR: Call = Call { controller: "nodeclass", method: "Clear" };

/// A cloud whose requests are counted.
#[derive(Debug)]
pub struct Metered<P> {
    cloud: Arc<P>,
    /// `aws` or `simulated`.
    name: &'static str,
    metrics: Metrics,
}

impl<P: CloudProvider> Metered<P> {
    pub fn new(cloud: Arc<P>, name: &'static str, metrics: Metrics) -> Self {
        Self { cloud, name, metrics }
    }

    async fn timed<T, E>(
        &self,
        call: Call,
        request: impl Future<Output = Result<T, E>>,
        type_of: impl Fn(&E) -> &'static str,
    ) -> Result<T, E> {
        let watch = Stopwatch::start();
        let answer = request.await;
        self.metrics.called(self.name, call, watch.elapsed(), answer.as_ref().err().map(type_of));
        answer
    }
}

/// Karpenter has a type for errors of launches alone.
fn without_type(_: &CloudError) -> &'static str {
    ""
}

fn type_of(failure: &LaunchFailure) -> &'static str {
    match failure {
        LaunchFailure::InsufficientCapacity(_) => "InsufficientCapacityError",
        LaunchFailure::ClassNotReady { .. } => "NodeClassNotReadyError",
        LaunchFailure::Transient { .. } | LaunchFailure::Refused { .. } => "",
    }
}

impl<P: CloudProvider> CloudProvider for Metered<P> {
    async fn catalog(&self) -> Result<Arc<Catalog>, CloudError> {
        self.timed(CATALOG, self.cloud.catalog(), without_type).await
    }

    async fn resolve(&self, class: Arc<NodeClass>) -> Result<ClassStatus, CloudError> {
        self.timed(RESOLVE, self.cloud.resolve(class), without_type).await
    }

    async fn launch(&self, order: LaunchOrder) -> Result<Bought, LaunchFailure> {
        self.timed(LAUNCH, self.cloud.launch(order), type_of).await
    }

    async fn terminate(&self, instance: ProviderId) -> Result<Ending, CloudError> {
        self.timed(TERMINATE, self.cloud.terminate(instance), without_type).await
    }

    async fn instances(&self) -> Result<Vec<Instance>, CloudError> {
        self.timed(INSTANCES, self.cloud.instances(), without_type).await
    }

    /// Not timed: it waits until there is something to tell.
    async fn notices(&self) -> Result<Notices, CloudError> {
        let told = self.cloud.notices().await?;
        self.metrics.0.messages.heard(clock::now(), &told);
        Ok(told)
    }

    async fn acknowledge(&self, receipts: Vec<Receipt>) -> Result<(), CloudError> {
        let messages = receipts.len();
        self.cloud.acknowledge(receipts).await?;
        self.metrics.0.messages.forgot(messages);
        Ok(())
    }

    fn has_belongings(&self) -> bool {
        self.cloud.has_belongings()
    }

    async fn name(&self, machine: ProviderId, node: NodeName, claim: ClaimName) -> Result<bool, CloudError> {
        self.timed(NAME, self.cloud.name(machine, node, claim), without_type).await
    }

    async fn clear(&self, class: Arc<NodeClass>, had_role: bool) -> Result<(), CloudError> {
        self.timed(CLEAR, self.cloud.clear(class, had_role), without_type).await
    }
}
