//! AWS in a build without it: the names are there, the values are not.

use std::convert::Infallible;
use std::sync::Arc;

use jiff::Timestamp;

use super::{
    AwsSettings, Bought, CloudError, CloudProvider, CloudUnavailable, Ending, LaunchOrder, Notices, Receipt,
    aws_unavailable,
};
use crate::model::catalog::Catalog;
use crate::model::class::{ClassStatus, NodeClass};
use crate::model::name::{ClaimName, NodeName, ProviderId};
use crate::model::observation::{Instance, LaunchFailure};

pub async fn describe_catalog(_: &str, _: Timestamp) -> Result<Catalog, CloudError> {
    Err(aws_unavailable().into())
}

/// There is none.
#[derive(Clone, Debug)]
pub struct Account(Infallible);

impl Account {
    pub async fn of_environment(_: Option<&str>) -> Result<Self, CloudUnavailable> {
        Err(aws_unavailable())
    }

    pub fn region(&self) -> Option<&str> {
        match self.0 {}
    }

    pub fn provider(&self, _: AwsSettings) -> AwsProvider {
        match self.0 {}
    }
}

/// There is none.
#[derive(Clone, Debug)]
pub struct AwsProvider(Infallible);

impl CloudProvider for AwsProvider {
    async fn catalog(&self) -> Result<Arc<Catalog>, CloudError> {
        match self.0 {}
    }

    async fn resolve(&self, _: Arc<NodeClass>) -> Result<ClassStatus, CloudError> {
        match self.0 {}
    }

    async fn launch(&self, _: LaunchOrder) -> Result<Bought, LaunchFailure> {
        match self.0 {}
    }

    async fn terminate(&self, _: ProviderId) -> Result<Ending, CloudError> {
        match self.0 {}
    }

    async fn instances(&self) -> Result<Vec<Instance>, CloudError> {
        match self.0 {}
    }

    async fn notices(&self) -> Result<Notices, CloudError> {
        match self.0 {}
    }

    async fn acknowledge(&self, _: Vec<Receipt>) -> Result<(), CloudError> {
        match self.0 {}
    }

    fn has_belongings(&self) -> bool {
        match self.0 {}
    }

    async fn name(&self, _: ProviderId, _: NodeName, _: ClaimName) -> Result<bool, CloudError> {
        match self.0 {}
    }

    async fn clear(&self, _: Arc<NodeClass>, _: bool) -> Result<(), CloudError> {
        match self.0 {}
    }
}
