//! Buying one machine for one claim, once (aws.md 4.1, 4.4).
//!
//! The claim's uid is in the client token, so EC2 answers a repeated order with the machine that it already sold. An order
//! that says something else under the same token is refused; then, and whenever an earlier process may have ordered, the
//! machine is looked for by the claim's uid among its tags before anything is bought.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_sdk_ec2::operation::create_fleet::CreateFleetOutput;
use aws_sdk_ec2::types::{
    CreateFleetError, DefaultTargetCapacityType, FleetLaunchTemplateConfigRequest,
    FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest,
    FleetOnDemandAllocationStrategy, FleetType, InstanceType as Ec2Type, OnDemandOptionsRequest,
    ResourceType, SpotAllocationStrategy, SpotOptionsRequest, TagSpecification,
    TargetCapacitySpecificationRequest,
};
use jiff::{SignedDuration, Timestamp};

use super::super::{Bought, LaunchOrder};
use super::failure::CallFailure;
use super::resolve::{ec2_tags, image_version, unready};
use super::shortages::OfferingKey;
use super::{Resolved, Shared};
use crate::api::ec2::image::image_for;
use crate::api::ec2::refusal::{Refusal, classify};
use crate::api::ec2::tag;
use crate::api::ec2::template::{self, LaunchTemplate, Purpose};
use crate::api::ec2::userdata::{self, Boot};
use crate::io::clock;
use crate::model::action::LaunchOption;
use crate::model::catalog::EFA;
use crate::model::class::Subnet;
use crate::model::name::{ProviderId, TypeName, Zone};
use crate::model::observation::{Advice, Instance, LaunchFailure, Shortage};
use crate::model::offering::{CapacityType, InstanceType};
use crate::model::symbol::Symbol;

/// EC2 takes no more in one order.
const OVERRIDES_MAX: usize = 300;
/// A machine shows up in DescribeInstances within this time of its purchase.
const VISIBLE_WITHIN: SignedDuration = SignedDuration::from_secs(15);
/// EC2 forgets a token later than claims are given up.
const ORDER_MEMORY: SignedDuration = SignedDuration::from_hours(1);
/// Clocks of this process and of the API server may differ by so much.
const CLOCK_DRIFT: SignedDuration = SignedDuration::from_secs(5);

/// What is remembered about the orders for one claim.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    /// Orders that EC2 is known to have refused in full, each of which has used up a token.
    refused: u32,
    /// When EC2 first said that the token was used for another order.
    mismatch: Option<Timestamp>,
    last: Timestamp,
}

/// What the orders for one claim tell about other machines.
#[derive(Debug)]
struct Learned {
    /// When it was begun to order.
    now: Timestamp,
    sold_out: BTreeSet<OfferingKey>,
    /// The account has to be changed before it can buy spot.
    is_without_spot: bool,
}

impl Learned {
    fn of(now: Timestamp) -> Self {
        Self { now, sold_out: BTreeSet::new(), is_without_spot: false }
    }
}

/// How one order ended.
enum Outcome {
    Bought(Box<Instance>),
    NoCapacity,
    /// No address was left where it was to be; another subnet of the zone has some.
    SubnetFull,
    Failed(LaunchFailure),
    /// A template is gone that was there a minute ago.
    TemplateGone,
    OtherOrder,
}

/// Machines of one template.
struct Group<'a> {
    template: LaunchTemplate,
    options: Vec<(&'a LaunchOption, Symbol)>,
}

impl Shared {
    pub(super) async fn launch(&self, order: LaunchOrder, now: Timestamp) -> Result<Bought, LaunchFailure> {
        let claim = &order.claim;
        let uid = claim.uid;
        let is_fresh = claim.created.is_some_and(|created| created >= self.started + CLOCK_DRIFT);
        let was_ordered = {
            let mut memory = self.memory();
            memory.orders.retain(|_, orders| now.duration_since(orders.last) < ORDER_MEMORY);
            let orders = memory.orders.entry(uid);
            let is_known = matches!(orders, std::collections::btree_map::Entry::Occupied(_));
            orders.or_insert_with(|| Orders { refused: 0, mismatch: None, last: now }).last = now;
            is_known
        };
        if (was_ordered || !is_fresh)
            && let Some(instance) = self.bought_before(&order).await?
        {
            return Ok(instance.into());
        }
        let resolved = self
            .resolved(&order.class)
            .await
            .map_err(|error| LaunchFailure::Transient { message: error.to_string().into() })?;
        if let Some(why) = unready(&resolved.status) {
            return Err(LaunchFailure::ClassNotReady { message: why.into() });
        }
        let bought = self.buy(&order, &resolved, now).await;
        if let Err(LaunchFailure::Refused { .. }) = &bought {
            self.doubt(&resolved, &order);
        }
        bought
    }

    /// What the class found may be gone, its profile for one: it is looked for again before the next machine.
    fn doubt(&self, resolved: &Resolved, order: &LaunchOrder) {
        let mut memory = self.memory();
        memory.doubted.insert(order.class.name);
        if let Some(profile) = &resolved.status.instance_profile {
            memory.profiles.remove(profile.as_str());
        }
    }

    async fn bought_before(&self, order: &LaunchOrder) -> Result<Option<Instance>, LaunchFailure> {
        let found = self.find_by_claim(order.claim.uid).await.map_err(CallFailure::of_launch)?;
        Ok(found.map(|found| self.instance(&found)))
    }

    async fn buy(
        &self,
        order: &LaunchOrder,
        resolved: &Resolved,
        now: Timestamp,
    ) -> Result<Bought, LaunchFailure> {
        let mut learned = Learned::of(now);
        let types = self.catalog_now().instance_types(Some(&order.class));
        let kinds: BTreeMap<TypeName, &InstanceType> = types.iter().map(|kind| (kind.name, kind)).collect();
        let zones: BTreeSet<Zone> = resolved.status.subnets.iter().map(|subnet| subnet.zone).collect();
        let asked: Vec<&LaunchOption> = order
            .options
            .iter()
            .filter(|option| option.capacity_type != CapacityType::Reserved && option.reservation.is_none())
            .filter(|option| zones.contains(&option.zone) && kinds.contains_key(&option.instance_type))
            .collect();
        if asked.is_empty() {
            let message = format!(
                "none of {} ways to buy it is spot or on-demand in a zone of the class's subnets",
                order.options.len()
            );
            return Err(LaunchFailure::Refused { reason: None, message: message.into() });
        }
        // What an earlier order found, and could not tell because nothing came of it.
        learned
            .sold_out
            .extend(asked.iter().map(|option| key(option)).filter(|key| self.is_short(*key, now)));
        learned.is_without_spot = self.memory().shortages.is_spot_closed(now)
            && asked.iter().any(|option| option.capacity_type == CapacityType::Spot);
        for round in rounds(asked.iter().copied().filter(|option| !self.is_short(key(option), now))) {
            let mut is_retried = false;
            loop {
                match self.order_round(order, resolved, &kinds, &round, &mut learned).await? {
                    Outcome::Bought(instance) => {
                        let shortage = (!learned.sold_out.is_empty()).then(|| self.shortage(learned).into());
                        return Ok(Bought { instance: *instance, shortage });
                    }
                    Outcome::NoCapacity => break,
                    Outcome::SubnetFull => {}
                    Outcome::Failed(failure) => return Err(failure),
                    Outcome::TemplateGone if !is_retried => is_retried = true,
                    Outcome::TemplateGone => {
                        let message = "launch templates vanish as soon as they are made";
                        return Err(LaunchFailure::Transient { message: message.into() });
                    }
                    Outcome::OtherOrder => {
                        if let Some(instance) = self.bought_before(order).await? {
                            return Ok(instance.into());
                        }
                        self.wait_for_other_order(order, clock::now())?;
                    }
                }
            }
        }
        learned.sold_out.extend(asked.into_iter().map(key));
        Err(LaunchFailure::InsufficientCapacity(self.shortage(learned).into()))
    }

    /// The token is taken, and no machine carries the claim's uid. Either one was bought and does not show yet, or nothing
    /// came of that order: then, once a machine would show, the next token may be used.
    fn wait_for_other_order(&self, order: &LaunchOrder, now: Timestamp) -> Result<(), LaunchFailure> {
        let mut memory = self.memory();
        let Some(orders) = memory.orders.get_mut(&order.claim.uid) else { return Ok(()) };
        let since = *orders.mismatch.get_or_insert(now);
        if now.duration_since(since) < VISIBLE_WITHIN {
            let message = "an earlier order for this claim may still bring a machine";
            return Err(LaunchFailure::Transient { message: message.into() });
        }
        orders.mismatch = None;
        orders.refused += 1;
        Ok(())
    }

    async fn order_round(
        &self,
        order: &LaunchOrder,
        resolved: &Resolved,
        kinds: &BTreeMap<TypeName, &InstanceType>,
        round: &[&LaunchOption],
        learned: &mut Learned,
    ) -> Result<Outcome, LaunchFailure> {
        let Some(first) = round.first() else { return Ok(Outcome::NoCapacity) };
        let capacity_type = first.capacity_type;
        let groups = self.groups(order, resolved, kinds, round)?;
        let mut configs = Vec::new();
        let mut names = Vec::new();
        for group in &groups {
            let name = self.ensure_template(&group.template).await.map_err(CallFailure::of_launch)?;
            let overrides = group.options.iter().filter_map(|(option, image)| {
                let subnet = self.subnet(&resolved.status.subnets, option.zone)?.id;
                Some(
                    FleetLaunchTemplateOverridesRequest::builder()
                        .instance_type(Ec2Type::from(option.instance_type.as_str()))
                        .availability_zone(option.zone.as_str())
                        .subnet_id(subnet.as_str())
                        .image_id(image.as_str())
                        // The wire wants dollars as a fraction, here and nowhere else.
                        .priority(option.price.0 as f64 / 1_000_000.0)
                        .build(),
                )
            });
            let template = FleetLaunchTemplateSpecificationRequest::builder()
                .launch_template_name(&name)
                .version("$Latest")
                .build();
            configs.push(
                FleetLaunchTemplateConfigRequest::builder()
                    .launch_template_specification(template)
                    .set_overrides(Some(overrides.collect()))
                    .build(),
            );
            names.push(name);
        }
        let answer = self.create_fleet(order, resolved, capacity_type, configs).await;
        let outcome = match answer {
            Ok(answer) => self.read_answer(order, resolved, kinds, round, learned, &answer),
            Err(failure) => match failure.refusal {
                Refusal::TemplateGone => Outcome::TemplateGone,
                Refusal::OtherOrder => Outcome::OtherOrder,
                // Of an order that it refuses as a whole EC2 keeps no token: the next one goes under the same, so that a successor who
                // knows nothing of it cannot buy under a token that is still free.
                Refusal::SubnetFull => {
                    let subnets = &resolved.status.subnets;
                    let zones: BTreeSet<Zone> = round.iter().map(|option| option.zone).collect();
                    // It does not say which subnet it means: any that was asked for.
                    let asked = zones.into_iter().filter_map(|zone| Some(self.subnet(subnets, zone)?.id));
                    let asked: Vec<Symbol> = asked.collect();
                    match asked.into_iter().filter(|full| self.has_other_subnet(subnets, *full)).count() {
                        0 => self.no_capacity(round, learned),
                        _ => Outcome::SubnetFull,
                    }
                }
                Refusal::NoCapacity => self.no_capacity(round, learned),
                Refusal::NoSpotRole => {
                    self.close_spot(kinds, learned);
                    Outcome::NoCapacity
                }
                _ => Outcome::Failed(failure.of_launch()),
            },
        };
        if matches!(outcome, Outcome::TemplateGone) {
            self.forget_templates(&names);
        }
        Ok(outcome)
    }

    async fn create_fleet(
        &self,
        order: &LaunchOrder,
        resolved: &Resolved,
        capacity_type: CapacityType,
        configs: Vec<FleetLaunchTemplateConfigRequest>,
    ) -> Result<CreateFleetOutput, CallFailure> {
        let claim = &order.claim;
        let refused = self.memory().orders.get(&claim.uid).map_or(0, |orders| orders.refused);
        let settings = &self.settings;
        let (class, spec) = (&order.class, &resolved.spec);
        let mut tags = template::tags(settings.owner, &settings.cluster, claim.pool(), class, spec);
        tags.insert(tag::CLAIM.into(), claim.name.to_string());
        tags.insert(tag::CLAIM_UID.into(), claim.uid.to_string());
        let tags = [ResourceType::Instance, ResourceType::Volume, ResourceType::Fleet].map(|kind| {
            TagSpecification::builder().resource_type(kind).set_tags(Some(ec2_tags(&tags))).build()
        });
        let default = match capacity_type {
            CapacityType::Spot => DefaultTargetCapacityType::Spot,
            _ => DefaultTargetCapacityType::OnDemand,
        };
        let target = TargetCapacitySpecificationRequest::builder()
            .default_target_capacity_type(default)
            .total_target_capacity(1);
        let call = self
            .ec2
            .create_fleet()
            // The same for spot and on demand: whichever is asked for after a lost answer, it is not a second machine.
            .client_token(format!("{}-{refused}", claim.uid))
            .r#type(FleetType::Instant)
            .set_launch_template_configs(Some(configs))
            .target_capacity_specification(target.build())
            .set_tag_specifications(Some(tags.to_vec()))
            .set_context(resolved.spec.context.clone());
        let call = match capacity_type {
            CapacityType::Spot => call.spot_options(
                SpotOptionsRequest::builder()
                    .allocation_strategy(SpotAllocationStrategy::PriceCapacityOptimized)
                    .build(),
            ),
            _ => call.on_demand_options(
                OnDemandOptionsRequest::builder()
                    .allocation_strategy(FleetOnDemandAllocationStrategy::LowestPrice)
                    .build(),
            ),
        };
        call.send().await.map_err(|error| CallFailure::new("CreateFleet", error))
    }

    fn read_answer(
        &self,
        order: &LaunchOrder,
        resolved: &Resolved,
        kinds: &BTreeMap<TypeName, &InstanceType>,
        round: &[&LaunchOption],
        learned: &mut Learned,
        answer: &CreateFleetOutput,
    ) -> Outcome {
        let errors = answer.errors();
        let refusals: Vec<Refusal> = errors.iter().map(refusal).collect();
        let mut may_fit_elsewhere = false;
        for (error, refusal) in errors.iter().zip(&refusals) {
            match refusal {
                Refusal::NoSpotRole => self.close_spot(kinds, learned),
                Refusal::SubnetFull
                    if subnet_of(error)
                        .is_some_and(|full| self.has_other_subnet(&resolved.status.subnets, full)) =>
                {
                    may_fit_elsewhere = true;
                }
                Refusal::NoCapacity | Refusal::SubnetFull => {
                    self.note_shortages(offerings_of(error, round), learned);
                }
                _ => {}
            }
        }
        if let Some(instance) = self.sold(order, resolved, kinds, round, answer) {
            return Outcome::Bought(Box::new(instance));
        }
        if refusals.contains(&Refusal::TemplateGone) {
            self.use_up_token(order);
            return Outcome::TemplateGone;
        }
        self.use_up_token(order);
        let other = errors.iter().zip(&refusals).find(|(_, refusal)| {
            !matches!(refusal, Refusal::NoCapacity | Refusal::SubnetFull | Refusal::NoSpotRole)
        });
        match other {
            None if may_fit_elsewhere => Outcome::SubnetFull,
            // An empty answer without errors: EC2 found nothing and does not say why.
            None => self.no_capacity(round, learned),
            Some((error, refusal)) => Outcome::Failed(
                CallFailure {
                    call: "CreateFleet",
                    refusal: *refusal,
                    message: Arc::from(format!(
                        "{}: {}",
                        error.error_code().unwrap_or_default(),
                        error.error_message().unwrap_or_default()
                    )),
                }
                .of_launch(),
            ),
        }
    }

    /// The machine that an answer names.
    fn sold(
        &self,
        order: &LaunchOrder,
        resolved: &Resolved,
        kinds: &BTreeMap<TypeName, &InstanceType>,
        round: &[&LaunchOption],
        answer: &CreateFleetOutput,
    ) -> Option<Instance> {
        let sold = answer.instances().iter().find(|sold| !sold.instance_ids().is_empty())?;
        let id = sold.instance_ids().first()?;
        let chosen = sold.launch_template_and_overrides().and_then(|chosen| chosen.overrides());
        let name = sold.instance_type().or(chosen.and_then(|chosen| chosen.instance_type()));
        let name = TypeName::new(name?.as_str());
        let subnet = sold.subnet_id().or(chosen.and_then(|chosen| chosen.subnet_id()));
        let subnet = resolved.status.subnets.iter().find(|known| Some(known.id.as_str()) == subnet);
        let zone = sold.availability_zone().or(chosen.and_then(|chosen| chosen.availability_zone()));
        let zone = subnet.map(|subnet| subnet.zone).or_else(|| zone.map(Zone::new))?;
        let kind = kinds.get(&name);
        let image = chosen.and_then(|chosen| chosen.image_id()).map(Symbol::new);
        let image = image.or_else(|| Some(image_for(&resolved.status.images, kind?)?.id));
        let provider_id = ProviderId::new(&format!("aws:///{zone}/{id}"));
        {
            let mut memory = self.memory();
            memory.instances.insert(Symbol::new(id), provider_id);
            if let (Some(subnet), Some(kind)) = (subnet, kind) {
                *memory.addresses_taken.entry(subnet.id).or_default() += kind.capacity.pods().max(1);
            }
        }
        Some(Instance {
            provider_id,
            claim: Some(order.claim.name),
            pool: order.claim.pool(),
            instance_type: name,
            zone,
            capacity_type: round.first()?.capacity_type,
            reservation: None,
            image: image.unwrap_or_else(|| Symbol::new("")),
            launched: clock::now(),
            is_stopped: false,
            is_terminating: false,
            capacity: kind.map(|kind| kind.capacity.clone()).unwrap_or_default(),
            allocatable: kind.map(|kind| kind.allocatable.clone()).unwrap_or_default(),
        })
    }

    /// Options that boot alike share a template: the same image, the same number of pods and, where the claim is for a pod that wants
    /// one, of interfaces for EFA.
    fn groups<'a>(
        &self,
        order: &LaunchOrder,
        resolved: &Resolved,
        kinds: &BTreeMap<TypeName, &InstanceType>,
        round: &[&'a LaunchOption],
    ) -> Result<Vec<Group<'a>>, LaunchFailure> {
        let not_ready = |message: String| LaunchFailure::ClassNotReady { message: message.into() };
        let claim = &order.claim;
        let wants_efa = claim.spec.requests.get(*EFA) > 0 && resolved.spec.network_interfaces.is_empty();
        let mut groups: BTreeMap<(Symbol, i64, i64), Group<'a>> = BTreeMap::new();
        for option in round {
            let Some(kind) = kinds.get(&option.instance_type) else { continue };
            let Some(image) = image_for(&resolved.status.images, kind) else { continue };
            let pods = kind.capacity.pods();
            let efa = if wants_efa { kind.capacity.get(*EFA) } else { 0 };
            if let Some(group) = groups.get_mut(&(image.id, pods, efa)) {
                group.options.push((option, image.id));
                continue;
            }
            let family = order.class.ami_family;
            let boot = Boot {
                cluster: &self.settings.cluster,
                class: &order.class,
                spec: &resolved.spec,
                labels: userdata::labels(claim, order.class.name, family, option.capacity_type),
                taints: userdata::taints(claim),
                max_pods: pods,
                image_version: image_version(family, &resolved.spec, image),
            };
            let purpose = Purpose {
                owner: self.settings.owner,
                cluster: &self.settings.cluster,
                region: &self.settings.region,
                pool: claim.pool(),
                capacity_type: option.capacity_type,
                image: &image.id,
                user_data: userdata::render(&boot).map_err(|error| not_ready(error.to_string()))?,
                efa_interfaces: i32::try_from(efa).unwrap_or(i32::MAX),
            };
            let template = LaunchTemplate::new(&order.class, &resolved.spec, &resolved.status, purpose);
            groups.insert((image.id, pods, efa), Group { template, options: vec![(option, image.id)] });
        }
        if groups.is_empty() {
            return Err(not_ready("no image of the class boots any of the types asked for".into()));
        }
        Ok(groups.into_values().collect())
    }

    fn use_up_token(&self, order: &LaunchOrder) {
        if let Some(orders) = self.memory().orders.get_mut(&order.claim.uid) {
            orders.refused += 1;
        }
    }

    fn is_short(&self, offering: OfferingKey, now: Timestamp) -> bool {
        self.memory().shortages.end(&offering, now).is_some()
    }

    fn note_shortages(&self, offerings: impl IntoIterator<Item = OfferingKey>, learned: &mut Learned) {
        let mut memory = self.memory();
        for offering in offerings {
            memory.shortages.note(offering, learned.now);
            learned.sold_out.insert(offering);
        }
    }

    /// The account can buy no spot at all, of whatever type.
    fn close_spot(&self, kinds: &BTreeMap<TypeName, &InstanceType>, learned: &mut Learned) {
        if std::mem::replace(&mut learned.is_without_spot, true) {
            return;
        }
        self.memory().shortages.close_spot(learned.now);
        let offerings = kinds.values().flat_map(|kind| {
            let spot = kind.offerings.iter().filter(|offering| offering.capacity_type == CapacityType::Spot);
            spot.map(|offering| (kind.name, offering.zone, CapacityType::Spot))
        });
        learned.sold_out.extend(offerings);
    }

    fn shortage(&self, learned: Learned) -> Shortage {
        let until = self.memory().shortages.last_end(&learned.sold_out, learned.now);
        let advice = learned.is_without_spot.then(|| Advice {
            reason: Symbol::new("SpotSLRCreationFailed"),
            message: "the account has no role for spot (AuthFailure.ServiceLinkedRoleCreationNotPermitted): \
                      run `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com` once; \
                      on-demand is bought until then where it is allowed"
                .into(),
        });
        Shortage { offerings: learned.sold_out.into_iter().collect(), until, advice }
    }

    /// Nothing of what the round asks for is for sale.
    fn no_capacity(&self, round: &[&LaunchOption], learned: &mut Learned) -> Outcome {
        self.note_shortages(round.iter().map(|option| key(option)), learned);
        Outcome::NoCapacity
    }

    /// The subnet `full` has no address left, until somebody looks again; whether another one of its zone has some.
    fn has_other_subnet(&self, subnets: &[Subnet], full: Symbol) -> bool {
        let Some(full) = subnets.iter().find(|subnet| subnet.id == full) else { return false };
        self.memory().addresses_taken.insert(full.id, i64::from(full.addresses_free));
        self.subnet(subnets, full.zone).is_some_and(|next| self.memory().addresses_free(next) > 0)
    }
}

/// The subnet of which `error` speaks.
fn subnet_of(error: &CreateFleetError) -> Option<Symbol> {
    let chosen = error.launch_template_and_overrides()?.overrides()?;
    chosen.subnet_id().map(Symbol::new)
}

fn key(option: &LaunchOption) -> OfferingKey {
    (option.instance_type, option.zone, option.capacity_type)
}

/// The options in the order of their prices as orders of one capacity type each: the cheapest kind for as long as it is the
/// cheapest, then each kind in turn.
fn rounds<'a>(options: impl Iterator<Item = &'a LaunchOption>) -> Vec<Vec<&'a LaunchOption>> {
    let options: Vec<&LaunchOption> = options.collect();
    let Some(first) = options.first() else { return Vec::new() };
    let run = options.iter().take_while(|option| option.capacity_type == first.capacity_type).count();
    let mut rounds = vec![options[..run.min(OVERRIDES_MAX)].to_vec()];
    for option in &options[run.min(OVERRIDES_MAX)..] {
        let round = rounds[1..]
            .iter()
            .position(|round| round[0].capacity_type == option.capacity_type && round.len() < OVERRIDES_MAX);
        match round {
            Some(at) => rounds[at + 1].push(*option),
            None => rounds.push(vec![*option]),
        }
    }
    rounds
}

fn refusal(error: &CreateFleetError) -> Refusal {
    classify(error.error_code().unwrap_or_default(), error.error_message().unwrap_or_default())
}

/// The offerings that an error of a fleet speaks of.
fn offerings_of(error: &CreateFleetError, round: &[&LaunchOption]) -> Vec<OfferingKey> {
    let chosen = error.launch_template_and_overrides().and_then(|chosen| chosen.overrides());
    let name = chosen.and_then(|chosen| chosen.instance_type()).map(|name| name.as_str());
    let zone = chosen.and_then(|chosen| chosen.availability_zone());
    round
        .iter()
        .filter(|option| name.is_none_or(|name| name == option.instance_type.as_str()))
        .filter(|option| zone.is_none_or(|zone| zone == option.zone.as_str()))
        .map(|option| key(option))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::money::UsdPerHour;

    fn option(price: i64, name: &str, capacity_type: CapacityType) -> LaunchOption {
        LaunchOption {
            price: UsdPerHour(price),
            instance_type: TypeName::new(name),
            zone: Zone::new("us-east-1a"),
            capacity_type,
            reservation: None,
        }
    }

    #[test]
    fn an_order_is_of_one_capacity_type_and_cheap_ones_come_first() {
        use CapacityType::{OnDemand, Spot};
        let options = [
            option(1, "a", Spot),
            option(2, "b", Spot),
            option(3, "a", OnDemand),
            option(4, "c", Spot),
            option(5, "b", OnDemand),
        ];
        let names: Vec<Vec<String>> = rounds(options.iter())
            .iter()
            .map(|round| {
                round
                    .iter()
                    .map(|option| format!("{} {}", option.instance_type, option.capacity_type))
                    .collect()
            })
            .collect();
        assert_eq!(names, [vec!["a spot", "b spot"], vec!["a on-demand", "b on-demand"], vec!["c spot"]]);
        assert!(rounds([].iter()).is_empty());
        let many: Vec<LaunchOption> = (0..700).map(|price| option(price, "a", Spot)).collect();
        assert_eq!(rounds(many.iter()).iter().map(Vec::len).collect::<Vec<_>>(), [300, 300, 100]);
    }
}
