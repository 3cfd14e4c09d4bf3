//! Machines that exist: found by tag, read into facts, told to end.

use std::collections::BTreeMap;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{Filter, Instance as Ec2Instance, InstanceLifecycleType, InstanceStateName};
use jiff::Timestamp;

use super::super::{CloudError, Ending};
use super::Shared;
use super::failure::CallFailure;
use super::resolve::ec2_tags;
use crate::api::ec2::refusal::Refusal;
use crate::api::ec2::tag;
use crate::model::name::{ClaimName, ClassName, NodeName, PoolName, ProviderId, TypeName, Uid, Zone};
use crate::model::observation::Instance;
use crate::model::offering::CapacityType;
use crate::model::symbol::Symbol;

const INSTANCES_PER_PAGE: i32 = 1000;
/// All but the last: a terminated machine is shown for an hour and is nobody's.
const STATES: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];
/// States of a machine that can still become a node.
const LIVING: [&str; 2] = ["pending", "running"];

fn filter(name: impl Into<String>, values: &[&str]) -> Filter {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}

/// What makes an instance ours, in the words of a query.
fn ours(cluster: &str) -> Vec<Filter> {
    vec![
        filter("tag-key", &[tag::POOL]),
        filter("tag-key", &[tag::CLASS]),
        filter(format!("tag:{}", tag::CLUSTER_NAME), &[cluster]),
    ]
}

async fn describe(client: &Client, filters: Vec<Filter>) -> Result<Vec<Ec2Instance>, CallFailure> {
    let mut answer = client
        .describe_instances()
        .set_filters(Some(filters))
        .into_paginator()
        .page_size(INSTANCES_PER_PAGE)
        .items()
        .send();
    let mut found = Vec::new();
    while let Some(reservation) = answer.next().await {
        let reservation = reservation.map_err(|error| CallFailure::new("DescribeInstances", error))?;
        found.extend(reservation.instances().iter().cloned());
    }
    Ok(found)
}

/// Living machines by the uid of the claim that they were bought for; the oldest, if a claim has several.
pub(super) async fn by_claim(
    client: Client,
    cluster: String,
    uids: Vec<Uid>,
) -> Result<BTreeMap<Uid, Ec2Instance>, CallFailure> {
    let mut filters = ours(&cluster);
    let uids: Vec<&str> = uids.iter().map(Uid::as_str).collect();
    filters.push(filter(format!("tag:{}", tag::CLAIM_UID), &uids));
    filters.push(filter("instance-state-name", &LIVING));
    let mut instances = describe(&client, filters).await?;
    instances.sort_by_key(|instance| {
        (instance.launch_time().map(|time| time.secs()), instance.instance_id().map(str::to_owned))
    });
    let mut found = BTreeMap::new();
    for instance in instances {
        if let Some(uid) = tag_of(&instance, tag::CLAIM_UID) {
            found.entry(Uid::new(uid)).or_insert(instance);
        }
    }
    Ok(found)
}

/// Machines of ours by their ids; others of the account are not looked at.
pub(super) async fn by_id(
    client: Client,
    cluster: String,
    ids: Vec<Symbol>,
) -> Result<BTreeMap<Symbol, Ec2Instance>, CallFailure> {
    let mut filters = ours(&cluster);
    let ids: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
    filters.push(filter("instance-id", &ids));
    let instances = describe(&client, filters).await?;
    Ok(instances.into_iter().filter_map(|found| Some((Symbol::new(found.instance_id()?), found))).collect())
}

fn is_terminated(machine: &Ec2Instance) -> bool {
    machine.state().and_then(|state| state.name()) == Some(&InstanceStateName::Terminated)
}

/// Tells machines to end; whoever is in the answer was told.
pub(super) async fn terminate(
    client: Client,
    ids: Vec<Symbol>,
) -> Result<BTreeMap<Symbol, Ending>, CallFailure> {
    let answer = client
        .terminate_instances()
        .set_instance_ids(Some(ids.iter().map(ToString::to_string).collect()))
        .send()
        .await
        .map_err(|error| CallFailure::new("TerminateInstances", error))?;
    let told = answer.terminating_instances().iter().filter_map(|change| {
        let state = change.current_state().and_then(|state| state.name());
        let ending = match state {
            Some(InstanceStateName::Terminated) => Ending::Gone,
            _ => Ending::UnderWay,
        };
        Some((Symbol::new(change.instance_id()?), ending))
    });
    Ok(told.collect())
}

impl Shared {
    /// Every machine that carries the tags of our cluster.
    pub(super) async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        let mut filters = ours(&self.settings.cluster.name);
        filters.push(filter("instance-state-name", &STATES));
        let found = describe(&self.ec2, filters).await.map_err(|failure| self.failed(failure))?;
        let mut instances: Vec<Instance> = found.iter().map(|found| self.instance(found)).collect();
        instances.sort_by_key(|instance| instance.provider_id);
        let mut memory = self.memory();
        memory.instances = instances
            .iter()
            .map(|each| (Symbol::new(each.provider_id.instance()), each.provider_id))
            .collect();
        Ok(instances)
    }

    pub(super) async fn find_by_claim(&self, uid: Uid) -> Result<Option<Ec2Instance>, CallFailure> {
        self.finder.ask(uid).await.unwrap_or(Ok(None))
    }

    pub(super) async fn end(&self, instance: ProviderId) -> Result<Ending, CloudError> {
        match self.ender.ask(Symbol::new(instance.instance())).await {
            None => Ok(Ending::UnderWay),
            Some(Ok(told)) => Ok(told.unwrap_or(Ending::UnderWay)),
            Some(Err(failure)) if failure.refusal == Refusal::Gone => Ok(Ending::Gone),
            // Rights go by tags: of a machine that EC2 has forgotten with its tags it says that we may not, not that there is none.
            // One that has lost its tags, and runs, is not gone.
            Some(Err(failure)) if failure.refusal == Refusal::Refused("Unauthorized") => {
                match describe(&self.ec2, vec![filter("instance-id", &[instance.instance()])]).await {
                    Ok(found) if found.iter().all(is_terminated) => Ok(Ending::Gone),
                    _ => Err(self.failed(failure)),
                }
            }
            Some(Err(failure)) => Err(self.failed(failure)),
        }
    }

    /// Names a machine after its node and claim, where it says nothing about them; `false` if it is not there, or not ours.
    pub(super) async fn name(
        &self,
        machine: ProviderId,
        node: NodeName,
        claim: ClaimName,
    ) -> Result<bool, CloudError> {
        let id = Symbol::new(machine.instance());
        let found = self.reader.ask(id).await.unwrap_or(Ok(None)).map_err(|failure| self.failed(failure))?;
        let Some(found) = found else { return Ok(false) };
        let wanted = [(tag::NAME, node.0), (tag::CLAIM, claim.0)];
        let missing: BTreeMap<String, String> = wanted
            .into_iter()
            .filter(|(key, _)| tag_of(&found, key).is_none())
            .map(|(key, value)| (key.to_owned(), value.to_string()))
            .collect();
        if missing.is_empty() {
            return Ok(true);
        }
        match self.ec2.create_tags().resources(&*id).set_tags(Some(ec2_tags(&missing))).send().await {
            Ok(_) => Ok(true),
            Err(error) => match CallFailure::new("CreateTags", error) {
                failure if failure.refusal == Refusal::Gone => Ok(false),
                failure => Err(self.failed(failure)),
            },
        }
    }

    /// The provider id of one of our machines; `None` if it is somebody else's.
    pub(super) async fn provider_id(&self, instance: &str) -> Result<Option<ProviderId>, CloudError> {
        let id = Symbol::new(instance);
        let known = self.memory().instances.get(&id).copied();
        if known.is_some() {
            return Ok(known);
        }
        let found = self.reader.ask(id).await.unwrap_or(Ok(None)).map_err(|failure| self.failed(failure))?;
        Ok(found.map(|found| {
            let provider_id = provider_id(&found);
            self.memory().instances.insert(id, provider_id);
            provider_id
        }))
    }

    pub(super) fn instance(&self, found: &Ec2Instance) -> Instance {
        let name = TypeName::new(found.instance_type().map(|name| name.as_str()).unwrap_or_default());
        let class = tag_of(found, tag::CLASS).map(ClassName::new);
        let class = class.and_then(|class| self.memory().classes.get(&class).map(|(class, _)| class.clone()));
        let types = self.catalog_now().instance_types(class.as_deref());
        let kind = types.iter().find(|kind| kind.name == name);
        let state = found.state().and_then(|state| state.name());
        let is_stopped = matches!(state, Some(InstanceStateName::Stopping | InstanceStateName::Stopped));
        let is_spot = found.instance_lifecycle() == Some(&InstanceLifecycleType::Spot)
            || found.spot_instance_request_id().is_some();
        Instance {
            provider_id: provider_id(found),
            claim: tag_of(found, tag::CLAIM).map(ClaimName::new),
            pool: tag_of(found, tag::POOL).map(PoolName::new),
            instance_type: name,
            zone: zone(found),
            capacity_type: if is_spot { CapacityType::Spot } else { CapacityType::OnDemand },
            reservation: found.capacity_reservation_id().map(Symbol::new),
            image: Symbol::new(found.image_id().unwrap_or_default()),
            launched: found
                .launch_time()
                .and_then(|time| Timestamp::from_second(time.secs()).ok())
                .unwrap_or(Timestamp::UNIX_EPOCH),
            is_stopped,
            is_terminating: !(is_stopped
                || matches!(state, Some(InstanceStateName::Pending | InstanceStateName::Running))),
            capacity: kind.map(|kind| kind.capacity.clone()).unwrap_or_default(),
            allocatable: kind.map(|kind| kind.allocatable.clone()).unwrap_or_default(),
        }
    }
}

fn zone(found: &Ec2Instance) -> Zone {
    Zone::new(found.placement().and_then(|placement| placement.availability_zone()).unwrap_or_default())
}

fn provider_id(found: &Ec2Instance) -> ProviderId {
    ProviderId::new(&format!("aws:///{}/{}", zone(found), found.instance_id().unwrap_or_default()))
}

fn tag_of<'a>(found: &'a Ec2Instance, key: &str) -> Option<&'a str> {
    found.tags().iter().find(|tag| tag.key() == Some(key)).and_then(|tag| tag.value())
}
