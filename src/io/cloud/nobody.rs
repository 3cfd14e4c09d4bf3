//! Nobody sells machines here: somebody else provisions, and Provisor only keeps the objects that this one goes by.

use std::future::pending;
use std::sync::Arc;

use super::{
    Bought, CloudError, CloudProvider, Ending, Instance, LaunchFailure, LaunchOrder, Notices, Receipt,
};
use crate::model::catalog::Catalog;
use crate::model::class::{ClassStatus, NodeClass};
use crate::model::name::{ClaimName, NodeName, ProviderId};

/// Whoever asks it waits for ever: an engine that leaves provisioning to others asks for nothing.
pub struct Nobody;

impl CloudProvider for Nobody {
    async fn catalog(&self) -> Result<Arc<Catalog>, CloudError> {
        pending().await
    }

    async fn resolve(&self, _: Arc<NodeClass>) -> Result<ClassStatus, CloudError> {
        pending().await
    }

    async fn launch(&self, _: LaunchOrder) -> Result<Bought, LaunchFailure> {
        pending().await
    }

    async fn terminate(&self, _: ProviderId) -> Result<Ending, CloudError> {
        pending().await
    }

    async fn instances(&self) -> Result<Vec<Instance>, CloudError> {
        pending().await
    }

    async fn notices(&self) -> Result<Notices, CloudError> {
        pending().await
    }

    async fn acknowledge(&self, _: Vec<Receipt>) -> Result<(), CloudError> {
        pending().await
    }

    fn has_belongings(&self) -> bool {
        false
    }

    async fn name(&self, _: ProviderId, _: NodeName, _: ClaimName) -> Result<bool, CloudError> {
        pending().await
    }

    async fn clear(&self, _: Arc<NodeClass>, _: bool) -> Result<(), CloudError> {
        pending().await
    }
}
