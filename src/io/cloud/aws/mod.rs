//! Amazon EC2 over its SDK. Credentials, endpoints and retries are configured as for every AWS tool.
//!
//! What is said to EC2 and what its answers mean is in `api::ec2`; here is who says it when, and what is remembered.

mod catalog;
mod prices;
mod failure;
mod signed;
mod profile;
mod resolve;
mod template;
mod shortages;
mod launch;
mod batch;
mod instance;
mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub use catalog::describe_catalog;

use super::{Bought, CloudError, CloudProvider, CloudUnavailable, Ending, LaunchOrder, Notices, Receipt};
use crate::api::ec2::spec::ClassSpec;
use crate::io::clock;
use crate::model::catalog::{Catalog, OnDemandPrices, SpotPrices};
use crate::model::class::{ClassStatus, NodeClass, Subnet};
use crate::model::name::{ClaimName, ClassName, NodeName, ProviderId, Uid, Zone};
use crate::model::observation::{Instance, LaunchFailure};
use crate::model::symbol::Symbol;
use batch::{Batcher, Missing};
use failure::CallFailure;
use shortages::Shortages;
use signed::SignedClient;

pub use super::AwsSettings;
pub use crate::model::catalog::CapacitySettings;

/// What the environment says about AWS: credentials, endpoints, retries, and the region unless one is named.
#[derive(Clone, Debug)]
pub struct Account(SdkConfig);

impl Account {
    pub async fn of_environment(region: Option<&str>) -> Result<Self, CloudUnavailable> {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT_MAX)
            .operation_attempt_timeout(ATTEMPT_MAX)
            .operation_timeout(CALL_MAX);
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).timeout_config(timeouts.build());
        if let Some(region) = region {
            loader = loader.region(Region::new(region.to_owned()));
        }
        Ok(Self(loader.load().await))
    }

    /// `None` if nothing says which.
    pub fn region(&self) -> Option<&str> {
        self.0.region().map(Region::as_ref)
    }

    /// A provider that remembers nothing yet. Must be called inside a runtime, which then carries the batches.
    pub fn provider(&self, settings: AwsSettings) -> AwsProvider {
        AwsProvider::new(&self.0, settings)
    }
}

/// Who accepts a connection and never answers is given up: each try, which the long poll of a queue has to fit into, and all tries of a
/// call (aws.md 4.8).
const CONNECT_MAX: Duration = Duration::from_secs(5);
const ATTEMPT_MAX: Duration = Duration::from_secs(60);
const CALL_MAX: Duration = Duration::from_secs(240);
/// On-demand prices change some times a year.
const PRICE_LIST_PERIOD: SignedDuration = SignedDuration::from_hours(12);
const PRICE_LIST_RETRY: SignedDuration = SignedDuration::from_mins(30);
/// A catalogue waits so long for it; what comes later is in the next.
const PRICE_LIST_PATIENCE: Duration = Duration::from_secs(10);

/// EC2 as a provider of machines.
#[derive(Clone)]
pub struct AwsProvider {
    shared: Arc<Shared>,
}

struct Shared {
    settings: AwsSettings,
    started: Timestamp,
    ec2: aws_sdk_ec2::Client,
    sqs: aws_sdk_sqs::Client,
    signed: SignedClient,
    finder: Batcher<Uid, aws_sdk_ec2::types::Instance, CallFailure>,
    reader: Batcher<Symbol, aws_sdk_ec2::types::Instance, CallFailure>,
    ender: Batcher<Symbol, Ending, CallFailure>,
    template_turn: tokio::sync::Mutex<()>,
    memory: Mutex<Memory>,
}

/// What the cloud said. Losing all of it costs calls and nothing else.
#[derive(Default)]
struct Memory {
    catalog: Option<Arc<Catalog>>,
    /// What the price list said, and when it is to be asked next.
    on_demand: Option<Arc<OnDemandPrices>>,
    on_demand_due: Option<Timestamp>,
    /// What spot cost when that was last told, type by type.
    spot: Option<Arc<SpotPrices>>,
    classes: BTreeMap<ClassName, (Arc<NodeClass>, Arc<Resolved>)>,
    /// Those of them for which a machine was refused since: what they found may be gone.
    doubted: BTreeSet<ClassName>,
    /// Instance profiles that are complete, and when that was seen.
    profiles: BTreeMap<String, Timestamp>,
    /// Values of parameters, and when they were read.
    parameters: BTreeMap<String, (String, Timestamp)>,
    /// Templates that EC2 has, and when they were last used.
    templates: BTreeMap<String, Timestamp>,
    templates_swept: Option<Timestamp>,
    /// Addresses that machines bought since the last look will take.
    addresses_taken: BTreeMap<Symbol, i64>,
    shortages: Shortages,
    orders: BTreeMap<Uid, launch::Orders>,
    /// Provider ids of our machines by the cloud's own id.
    instances: BTreeMap<Symbol, ProviderId>,
    queue_url: Option<String>,
}

impl Memory {
    /// Addresses that `subnet` has for the next machine, less what those on their way will take.
    fn addresses_free(&self, subnet: &Subnet) -> i64 {
        i64::from(subnet.addresses_free) - self.addresses_taken.get(&subnet.id).copied().unwrap_or(0)
    }
}

/// A class, what it says, and what its selectors found.
#[derive(Clone, Debug)]
struct Resolved {
    spec: ClassSpec,
    /// The spec as it was written then: another one must be resolved anew.
    written: Arc<Value>,
    status: ClassStatus,
}

impl AwsProvider {
    /// Connects with what `config` says. Must be called inside a runtime, which then carries the batches.
    pub fn new(config: &SdkConfig, settings: AwsSettings) -> Self {
        let ec2 = aws_sdk_ec2::Client::new(config);
        let (finder_client, reader_client, ender_client) = (ec2.clone(), ec2.clone(), ec2.clone());
        let (finder_cluster, reader_cluster) = (settings.cluster.name.clone(), settings.cluster.name.clone());
        let shared = Shared {
            started: clock::now(),
            sqs: aws_sdk_sqs::Client::new(config),
            signed: SignedClient::new(config, &settings.region),
            finder: Batcher::new(Missing::IsAnAnswer, move |uids| {
                instance::by_claim(finder_client.clone(), finder_cluster.clone(), uids)
            }),
            reader: Batcher::new(Missing::IsAnAnswer, move |ids| {
                instance::by_id(reader_client.clone(), reader_cluster.clone(), ids)
            }),
            ender: Batcher::new(Missing::AskAlone, move |ids| instance::terminate(ender_client.clone(), ids)),
            template_turn: tokio::sync::Mutex::default(),
            memory: Mutex::default(),
            ec2,
            settings,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Buys a machine as [`CloudProvider::launch`] does. What is sold out is asked for again by this time and no other clock.
    pub async fn launch_at(&self, now: Timestamp, order: LaunchOrder) -> Result<Bought, LaunchFailure> {
        self.shared.launch(order, now).await
    }

    /// Deletes our launch templates that nothing was bought by for `idle`, at once.
    pub async fn delete_idle_templates(&self, idle: SignedDuration) -> Result<(), CloudError> {
        self.shared.delete_idle_templates(clock::now(), idle).await
    }
}

impl Shared {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no holder of the memory panics")
    }

    /// The catalogue as last described, or the built-in one until then.
    fn catalog_now(&self) -> Arc<Catalog> {
        if let Some(known) = &self.memory().catalog {
            return known.clone();
        }
        let region = &self.settings.region;
        let builtin =
            Catalog::builtin(region).unwrap_or_else(|_| Catalog::described(region, Vec::new(), None, None));
        let builtin = Arc::new(builtin.with_settings(self.settings.capacity));
        self.memory().catalog.get_or_insert(builtin).clone()
    }

    /// The price list of the region, asked again when it is old; `None`: nobody could tell yet. What a later answer leaves out
    /// stays, and so does all of it without an answer.
    /// A price list that cannot be reached is not waited for: machines that are taken back meanwhile are.
    async fn on_demand(self: &Arc<Self>, now: Timestamp) -> Option<Arc<OnDemandPrices>> {
        let is_due = self.memory().on_demand_due.is_none_or(|due| due <= now);
        if prices::are_listed(&self.settings.region) && is_due {
            self.memory().on_demand_due = Some(now + PRICE_LIST_RETRY);
            let shared = self.clone();
            let asking = tokio::spawn(async move { shared.ask_price_list(now).await });
            drop(tokio::time::timeout(PRICE_LIST_PATIENCE, asking).await);
        }
        self.memory().on_demand.clone()
    }

    async fn ask_price_list(&self, now: Timestamp) {
        let answer = prices::on_demand(&self.signed, &self.settings.region).await;
        let mut memory = self.memory();
        match answer {
            Ok(listed) => {
                memory.on_demand_due = Some(now + PRICE_LIST_PERIOD);
                let mut prices = memory.on_demand.take().map(Arc::unwrap_or_clone).unwrap_or_default();
                prices.extend(listed);
                memory.on_demand = Some(Arc::new(prices));
            }
            Err(error) => tracing::warn!("{error}; on-demand prices stay as they are (pricing:GetProducts)"),
        }
    }

    /// What spot costs, as EC2 says now; of types that it leaves out, and of all if it does not say, as it said last.
    async fn spot(&self, now: Timestamp) -> Option<Arc<SpotPrices>> {
        let answer = catalog::spot_prices(&self.ec2, &self.settings.region, now).await;
        let mut memory = self.memory();
        match answer {
            Ok(told) => {
                let known = memory.spot.take().map(Arc::unwrap_or_clone).unwrap_or_default();
                memory.spot = Some(Arc::new(catalog::updated(known, told)));
            }
            Err(error) => {
                tracing::warn!("{error}; spot prices stay as they are (ec2:DescribeSpotPriceHistory)");
            }
        }
        memory.spot.clone()
    }

    /// What the class found when it was last resolved; resolves it now if it was not, or has changed since.
    async fn resolved(&self, class: &Arc<NodeClass>) -> Result<Arc<Resolved>, CloudError> {
        let (known, is_doubted) = {
            let memory = self.memory();
            let known = memory.classes.get(&class.name).map(|(_, resolved)| resolved.clone());
            (known, memory.doubted.contains(&class.name))
        };
        match known {
            Some(resolved) if resolved.written == class.spec && !is_doubted => Ok(resolved),
            _ => self.resolve_anew(class).await,
        }
    }

    async fn resolve_anew(&self, class: &Arc<NodeClass>) -> Result<Arc<Resolved>, CloudError> {
        let resolved = Arc::new(self.resolve(class).await?);
        let mut memory = self.memory();
        for subnet in &resolved.status.subnets {
            memory.addresses_taken.remove(&subnet.id);
        }
        memory.classes.insert(class.name, (class.clone(), resolved.clone()));
        memory.doubted.remove(&class.name);
        Ok(resolved)
    }

    /// The subnet of a zone with most free addresses, counting those that machines on their way will take.
    fn subnet<'s>(&self, subnets: &'s [Subnet], zone: Zone) -> Option<&'s Subnet> {
        let memory = self.memory();
        subnets
            .iter()
            .filter(|subnet| subnet.zone == zone)
            .max_by_key(|subnet| (memory.addresses_free(subnet), std::cmp::Reverse(subnet.id)))
    }
}

impl CloudProvider for AwsProvider {
    async fn catalog(&self) -> Result<Arc<Catalog>, CloudError> {
        let settings = &self.shared.settings;
        let now = clock::now();
        let (described, on_demand, spot) = tokio::join!(
            catalog::describe(&self.shared.ec2, &settings.region),
            self.shared.on_demand(now),
            self.shared.spot(now)
        );
        let (spot, on_demand) = (spot.as_deref(), on_demand.as_deref());
        let catalog = Catalog::described(&settings.region, described?, spot, on_demand);
        let catalog = Arc::new(catalog.with_settings(settings.capacity));
        self.shared.memory().catalog = Some(catalog.clone());
        Ok(catalog)
    }

    async fn resolve(&self, class: Arc<NodeClass>) -> Result<ClassStatus, CloudError> {
        Ok(self.shared.resolve_anew(&class).await?.status.clone())
    }

    async fn launch(&self, order: LaunchOrder) -> Result<Bought, LaunchFailure> {
        self.launch_at(clock::now(), order).await
    }

    async fn terminate(&self, instance: ProviderId) -> Result<Ending, CloudError> {
        self.shared.end(instance).await
    }

    async fn instances(&self) -> Result<Vec<Instance>, CloudError> {
        let instances = self.shared.list().await?;
        if let Err(error) = self.shared.sweep_templates(clock::now()).await {
            tracing::warn!(%error, "Idle launch templates could not be deleted.");
        }
        Ok(instances)
    }

    async fn notices(&self) -> Result<Notices, CloudError> {
        self.shared.notices().await
    }

    async fn acknowledge(&self, receipts: Vec<Receipt>) -> Result<(), CloudError> {
        self.shared.acknowledge(receipts).await
    }

    fn has_belongings(&self) -> bool {
        true
    }

    async fn name(&self, machine: ProviderId, node: NodeName, claim: ClaimName) -> Result<bool, CloudError> {
        self.shared.name(machine, node, claim).await
    }

    async fn clear(&self, class: Arc<NodeClass>, had_role: bool) -> Result<(), CloudError> {
        self.shared.delete_templates_of(class.name).await?;
        // Where a profile was always named there may be no permission about any.
        if had_role {
            self.shared.delete_profiles_of(&class).await?;
        }
        let mut memory = self.shared.memory();
        memory.classes.remove(&class.name);
        memory.doubted.remove(&class.name);
        Ok(())
    }
}
