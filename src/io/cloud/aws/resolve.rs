//! What the selectors of a class find: images, subnets, security groups, an instance profile (aws.md 1.3, 2.1 to 2.3).

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{Filter, Image as Ec2Image, Tag};
use jiff::{SignedDuration, Timestamp};

use super::super::CloudError;
use super::failure::CallFailure;
use super::profile::Profile;
use super::{Resolved, Shared};
use crate::api::ec2::image::{
    AliasError, AliasParameter, Candidate, Variant, alias_parameters, arch_of, choose,
};
use crate::api::ec2::query::{self, Query};
use crate::api::ec2::spec::ClassSpec;
use crate::api::ec2::userdata::{self, Boot, UserDataError};
use crate::api::{self, KubeletError};
use crate::io::clock;
use crate::model::claim::{Condition, ConditionStatus};
use crate::model::class::{AmiFamily, ClassStatus, Image, NodeClass, SecurityGroup, Subnet};
use crate::model::name::Zone;
use crate::model::symbol::Symbol;

const IMAGES_PER_PAGE: i32 = 1000;
const NETWORKS_PER_PAGE: i32 = 500;
/// What a public parameter says is believed for a day, what an account's own says for five minutes.
const PUBLIC_PARAMETER_AGE_MAX: SignedDuration = SignedDuration::from_hours(24);
const OWN_PARAMETER_AGE_MAX: SignedDuration = SignedDuration::from_mins(5);
/// The same of one that recommends an image which is deprecated meanwhile.
const DEPRECATED_AGE_MAX: SignedDuration = SignedDuration::from_mins(30);

impl Shared {
    pub(super) async fn resolve(&self, class: &NodeClass) -> Result<Resolved, CloudError> {
        let now = clock::now();
        let mut status = ClassStatus::default();
        let spec = match ClassSpec::read(class) {
            Ok(spec) => spec,
            Err(error) => {
                let message = format!("its spec cannot be read: {error}");
                set(&mut status, "ValidationSucceeded", Err(("InvalidSpec", message)), now);
                return Ok(Resolved { spec: ClassSpec::default(), written: class.spec.clone(), status });
            }
        };
        status.subnets = self.subnets(&spec).await?;
        let found =
            check(!status.subnets.is_empty(), "SubnetsNotFound", "subnetSelectorTerms select no subnet");
        set(&mut status, "SubnetsReady", found, now);
        status.security_groups = self.security_groups(&spec).await?;
        let found = check(
            !status.security_groups.is_empty(),
            "SecurityGroupsNotFound",
            "securityGroupSelectorTerms select no security group",
        );
        set(&mut status, "SecurityGroupsReady", found, now);
        let images = match self.images(&spec, now).await? {
            Ok(images) => {
                status.images = images;
                check(!status.images.is_empty(), "AMINotFound", "amiSelectorTerms select no image")
            }
            Err(error) => Err(("UnsupportedAlias", error.to_string())),
        };
        set(&mut status, "AMIsReady", images, now);
        let profile = match self.profile(class, &spec, now).await? {
            Profile::Ready(name) => {
                status.instance_profile = Some(Symbol::new(&name));
                Ok(())
            }
            Profile::NoSuchRole(message) => Err(("RoleNotFound", message)),
        };
        set(&mut status, "InstanceProfileReady", profile, now);
        set(&mut status, "ValidationSucceeded", self.validate(class, &spec), now);
        Ok(Resolved { spec, written: class.spec.clone(), status })
    }

    /// Writes the user data of a machine once, so that what is wrong with it is known before one is bought.
    fn validate(&self, class: &NodeClass, spec: &ClassSpec) -> Result<(), (&'static str, String)> {
        if !spec.capacity_reservation_selector_terms.is_empty() {
            return Err((
                "Unsupported",
                "capacityReservationSelectorTerms have no effect yet; leave them out".into(),
            ));
        }
        if spec.placement_group_selector.is_some() {
            return Err(("Unsupported", "placementGroupSelector has no effect yet; leave it out".into()));
        }
        api::check_kubelet(class).map_err(|error| {
            let reason = match error {
                KubeletError::Invalid(_) => "InvalidKubeletConfiguration",
                KubeletError::Expression(_) => "KubeletExpressionsDisabled",
                KubeletError::Unsupported(_) => "UnsupportedKubeletConfiguration",
            };
            (reason, error.to_string())
        })?;
        let boot = Boot {
            cluster: &self.settings.cluster,
            class,
            spec,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            max_pods: 110,
            image_version: None,
        };
        userdata::render(&boot).map(drop).map_err(|error| {
            let reason = match error {
                UserDataError::NoServiceCidr => "ClusterCIDRResolutionFailed",
                UserDataError::TooLong(_) => "UserDataSizeLimitExceeded",
                UserDataError::Family(_) => "Unsupported",
                _ => "InvalidUserData",
            };
            (reason, error.to_string())
        })
    }

    async fn subnets(&self, spec: &ClassSpec) -> Result<Vec<Subnet>, CloudError> {
        const CALL: &str = "DescribeSubnets";
        let mut found: BTreeMap<Symbol, Subnet> = BTreeMap::new();
        for query in query::subnets(&spec.subnet_selector_terms) {
            let mut answer = self
                .ec2
                .describe_subnets()
                .set_filters(Some(filters(&query)))
                .into_paginator()
                .page_size(NETWORKS_PER_PAGE)
                .items()
                .send();
            while let Some(subnet) = answer.next().await {
                let subnet = subnet.map_err(|error| self.failed(CallFailure::new(CALL, error)))?;
                let (Some(id), Some(zone)) = (subnet.subnet_id(), subnet.availability_zone()) else {
                    continue;
                };
                let id = Symbol::new(id);
                let free = subnet.available_ip_address_count().and_then(|count| u32::try_from(count).ok());
                let subnet = Subnet {
                    id,
                    zone: Zone::new(zone),
                    zone_id: Symbol::new(subnet.availability_zone_id().unwrap_or_default()),
                    addresses_free: free.unwrap_or(0),
                };
                found.insert(id, subnet);
            }
        }
        let mut subnets: Vec<Subnet> = found.into_values().collect();
        subnets.sort_by_key(|subnet| (std::cmp::Reverse(subnet.addresses_free), subnet.id));
        Ok(subnets)
    }

    async fn security_groups(&self, spec: &ClassSpec) -> Result<Vec<SecurityGroup>, CloudError> {
        const CALL: &str = "DescribeSecurityGroups";
        let mut found: BTreeMap<Symbol, SecurityGroup> = BTreeMap::new();
        for query in query::security_groups(&spec.security_group_selector_terms) {
            let mut answer = self
                .ec2
                .describe_security_groups()
                .set_filters(Some(filters(&query)))
                .into_paginator()
                .page_size(NETWORKS_PER_PAGE)
                .items()
                .send();
            while let Some(group) = answer.next().await {
                let group = group.map_err(|error| self.failed(CallFailure::new(CALL, error)))?;
                let Some(id) = group.group_id().map(Symbol::new) else { continue };
                let name = Symbol::new(group.group_name().unwrap_or_default());
                found.insert(id, SecurityGroup { id, name });
            }
        }
        Ok(found.into_values().collect())
    }

    async fn images(
        &self,
        spec: &ClassSpec,
        now: Timestamp,
    ) -> Result<Result<Vec<Image>, AliasError>, CloudError> {
        let mut candidates = Vec::new();
        if let Some(alias) = spec.alias() {
            let version = self.settings.version.borrow().clone();
            let parameters = match alias_parameters(alias, &version) {
                Ok(parameters) => parameters,
                Err(error) => return Ok(Err(error)),
            };
            let (mut found, are_all_there) =
                self.images_of(&parameters, PUBLIC_PARAMETER_AGE_MAX, now).await?;
            if !are_all_there {
                (found, _) = self.images_of(&parameters, SignedDuration::ZERO, now).await?;
            } else if alias.ends_with("@latest") && found.iter().any(|image| image.is_deprecated(now)) {
                (found, _) = self.images_of(&parameters, DEPRECATED_AGE_MAX, now).await?;
            }
            candidates.extend(found);
        }
        let mut ids = Vec::new();
        for name in spec.ami_selector_terms.iter().filter_map(|term| term.ssm_parameter.as_deref()) {
            ids.extend(self.image_parameter(name, OWN_PARAMETER_AGE_MAX, now).await?);
        }
        candidates.extend(self.images_by_id(ids).await?.iter().filter_map(candidate));
        for query in query::images(&spec.ami_selector_terms) {
            candidates.extend(self.describe_images(&query).await?.iter().filter_map(candidate));
        }
        Ok(Ok(choose(candidates, now)))
    }

    /// The images that `parameters` name, and whether all that they name are there. What was read before is asked again if it is older than
    /// `age_max`.
    async fn images_of(
        &self,
        parameters: &[AliasParameter],
        age_max: SignedDuration,
        now: Timestamp,
    ) -> Result<(Vec<Candidate>, bool), CloudError> {
        let mut variants: BTreeMap<String, Vec<Variant>> = BTreeMap::new();
        for parameter in parameters {
            if let Some(id) = self.image_parameter(&parameter.name, age_max, now).await? {
                variants.entry(id).or_default().extend(&parameter.variants);
            }
        }
        let images = self.images_by_id(variants.keys().cloned().collect()).await?;
        let are_all_there = variants.keys().all(|id| images.iter().any(|image| image.image_id() == Some(id)));
        let found = images.iter().filter_map(candidate).flat_map(|found| {
            let of_image = variants.get(&found.id).cloned().unwrap_or_default();
            of_image.into_iter().map(move |variant| Candidate { variant: Some(variant), ..found.clone() })
        });
        Ok((found.collect(), are_all_there))
    }

    /// The image that a parameter names; `None` if there is no such parameter, or it names something else.
    async fn image_parameter(
        &self,
        name: &str,
        age_max: SignedDuration,
        now: Timestamp,
    ) -> Result<Option<String>, CloudError> {
        let known = self.memory().parameters.get(name).cloned();
        if let Some((value, at)) = known
            && now.duration_since(at) < age_max
        {
            return Ok(Some(value));
        }
        let value = self
            .signed
            .parameter(name)
            .await
            .map_err(|failure| failure.into_cloud("GetParameter", &self.settings.region))?;
        let value = value.filter(|value| value.starts_with("ami-"));
        match &value {
            Some(value) => drop(self.memory().parameters.insert(name.to_owned(), (value.clone(), now))),
            None => tracing::debug!(parameter = name, "A parameter names no image."),
        }
        Ok(value)
    }

    async fn images_by_id(&self, ids: Vec<String>) -> Result<Vec<Ec2Image>, CloudError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let filters = vec![("state".to_owned(), vec!["available".to_owned()]), ("image-id".to_owned(), ids)];
        self.describe_images(&Query { filters, owners: Vec::new() }).await
    }

    async fn describe_images(&self, query: &Query) -> Result<Vec<Ec2Image>, CloudError> {
        let mut answer = self
            .ec2
            .describe_images()
            .include_deprecated(true)
            .set_filters(Some(filters(query)))
            .set_owners((!query.owners.is_empty()).then(|| query.owners.clone()))
            .into_paginator()
            .page_size(IMAGES_PER_PAGE)
            .items()
            .send();
        let mut images = Vec::new();
        while let Some(image) = answer.next().await {
            images.push(image.map_err(|error| self.failed(CallFailure::new("DescribeImages", error)))?);
        }
        Ok(images)
    }

    pub(super) fn failed(&self, failure: CallFailure) -> CloudError {
        failure.in_region(&self.settings.region)
    }
}

/// Why a class whose status this is cannot be bought with; `None` if it can.
pub(super) fn unready(status: &ClassStatus) -> Option<String> {
    status
        .conditions
        .values()
        .find(|condition| condition.status != ConditionStatus::True)
        .map(|condition| format!("{}: {}", condition.reason, condition.message))
}

/// The version of the image, which only Bottlerocket's user data depends on.
pub(super) fn image_version(family: AmiFamily, spec: &ClassSpec, image: &Image) -> Option<String> {
    (family == AmiFamily::Bottlerocket)
        .then(|| userdata::bottlerocket::image_version(spec.alias(), &image.name))
        .flatten()
}

fn candidate(image: &Ec2Image) -> Option<Candidate> {
    let time = |text: Option<&str>| text.and_then(|text| text.parse::<Timestamp>().ok());
    Some(Candidate {
        id: image.image_id()?.to_owned(),
        name: image.name().unwrap_or_default().to_owned(),
        created: time(image.creation_date()),
        deprecated: time(image.deprecation_time()),
        arch: arch_of(image.architecture()?.as_str())?,
        variant: None,
    })
}

pub(super) fn filters(query: &Query) -> Vec<Filter> {
    query
        .filters
        .iter()
        .map(|(name, values)| Filter::builder().name(name).set_values(Some(values.clone())).build())
        .collect()
}

pub(super) fn ec2_tags(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect()
}

type Verdict = Result<(), (&'static str, String)>;

fn check(holds: bool, reason: &'static str, message: &str) -> Verdict {
    if holds { Ok(()) } else { Err((reason, message.to_owned())) }
}

fn set(status: &mut ClassStatus, kind: &str, verdict: Verdict, now: Timestamp) {
    let condition = match verdict {
        Ok(()) => Condition {
            status: ConditionStatus::True,
            reason: kind.into(),
            message: "".into(),
            since: Some(now),
        },
        Err((reason, message)) => Condition {
            status: ConditionStatus::False,
            reason: reason.into(),
            message: Symbol::new(&message),
            since: Some(now),
        },
    };
    status.conditions.insert(Symbol::new(kind), condition);
}
