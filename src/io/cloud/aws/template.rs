//! Launch templates in EC2: made when first needed, found by name, deleted when nobody has asked for them for a while.

use aws_sdk_ec2::types::{
    ConnectionTrackingSpecificationRequest, Filter, LaunchTemplateBlockDeviceMappingRequest,
    LaunchTemplateCpuOptionsRequest, LaunchTemplateEbsBlockDeviceRequest, LaunchTemplateHttpTokensState,
    LaunchTemplateIamInstanceProfileSpecificationRequest, LaunchTemplateInstanceMetadataEndpointState,
    LaunchTemplateInstanceMetadataOptionsRequest, LaunchTemplateInstanceMetadataProtocolIpv6,
    LaunchTemplateInstanceMetadataTagsState, LaunchTemplateInstanceNetworkInterfaceSpecificationRequest,
    LaunchTemplateTagSpecificationRequest, LaunchTemplatesMonitoringRequest,
    NestedVirtualizationSpecification, RequestLaunchTemplateData, ResourceType, TagSpecification, VolumeType,
};
use aws_smithy_types::base64;
use jiff::{SignedDuration, Timestamp};

use super::super::CloudError;
use super::Shared;
use super::failure::CallFailure;
use super::resolve::ec2_tags;
use crate::api::ec2::refusal::Refusal;
use crate::api::ec2::tag;
use crate::api::ec2::template::{Device, Interface, LaunchTemplate, NAME_PREFIX};
use crate::io::clock;
use crate::model::name::ClassName;
use crate::model::offering::CapacityType;

/// How long a template stays that nothing was bought by.
const IDLE_MAX: SignedDuration = SignedDuration::from_mins(10);
const SWEEP_EVERY: SignedDuration = SignedDuration::from_mins(5);
const TEMPLATES_PER_PAGE: i32 = 200;

impl Shared {
    /// The name of the template in EC2, which is there when this returns.
    pub(super) async fn ensure_template(&self, template: &LaunchTemplate) -> Result<String, CallFailure> {
        const CALL: &str = "CreateLaunchTemplate";
        let name = template.name();
        let is_known = |shared: &Self| {
            let mut memory = shared.memory();
            let used = memory.templates.get_mut(&name).map(|used| *used = clock::now());
            used.is_some()
        };
        if is_known(self) {
            return Ok(name);
        }
        // Many machines of one kind are bought at once; one of them makes the template.
        let _turn = self.template_turn.lock().await;
        if is_known(self) {
            return Ok(name);
        }
        let tags = TagSpecification::builder()
            .resource_type(ResourceType::LaunchTemplate)
            .set_tags(Some(ec2_tags(&template.tags)))
            .build();
        let made = self
            .ec2
            .create_launch_template()
            .launch_template_name(&name)
            .launch_template_data(data(template))
            .tag_specifications(tags)
            .send()
            .await;
        if let Err(error) = made {
            let failure = CallFailure::new(CALL, error);
            // Equal names are equal contents: an earlier process made it.
            if !failure.message.starts_with("InvalidLaunchTemplateName.AlreadyExists") {
                return Err(failure);
            }
        }
        self.memory().templates.insert(name.clone(), clock::now());
        Ok(name)
    }

    /// Forgets templates that EC2 does not have.
    pub(super) fn forget_templates<'a>(&self, names: impl IntoIterator<Item = &'a String>) {
        let mut memory = self.memory();
        for name in names {
            memory.templates.remove(name);
        }
    }

    /// Deletes our templates that were neither made nor used lately. Looks every few minutes only.
    pub(super) async fn sweep_templates(&self, now: Timestamp) -> Result<(), CloudError> {
        {
            let mut memory = self.memory();
            if memory.templates_swept.is_some_and(|swept| now.duration_since(swept) < SWEEP_EVERY) {
                return Ok(());
            }
            memory.templates_swept = Some(now);
        }
        self.delete_idle_templates(now, IDLE_MAX).await
    }

    pub(super) async fn delete_idle_templates(
        &self,
        now: Timestamp,
        idle_max: SignedDuration,
    ) -> Result<(), CloudError> {
        let idle = self.our_templates(None).await?.into_iter().filter(|(name, made)| {
            let used = self.memory().templates.get(name).copied();
            used.max(*made).is_none_or(|last| now.duration_since(last) >= idle_max)
        });
        self.delete_templates(idle.map(|(name, _)| name).collect()).await
    }

    /// Deletes all that were made for machines of a class.
    pub(super) async fn delete_templates_of(&self, class: ClassName) -> Result<(), CloudError> {
        let made = self.our_templates(Some(class)).await?;
        self.delete_templates(made.into_iter().map(|(name, _)| name).collect()).await
    }

    /// Names of the templates of our environment, those of `class` if one is named, and when they were made.
    async fn our_templates(
        &self,
        class: Option<ClassName>,
    ) -> Result<Vec<(String, Option<Timestamp>)>, CloudError> {
        let cluster = &self.settings.cluster.name;
        let filter = |name: String, value: &str| Filter::builder().name(name).values(value).build();
        let mut filters = vec![
            filter(format!("tag:{}", tag::CLUSTER_NAME), cluster),
            filter(format!("tag:{}", tag::owned_by(cluster)), "owned"),
            filter(format!("tag:{}", tag::OWNER), &self.settings.owner.to_string()),
        ];
        filters.extend(class.map(|class| filter(format!("tag:{}", tag::CLASS), class.as_str())));
        let mut answer = self
            .ec2
            .describe_launch_templates()
            .set_filters(Some(filters))
            .into_paginator()
            .page_size(TEMPLATES_PER_PAGE)
            .items()
            .send();
        let mut found = Vec::new();
        while let Some(template) = answer.next().await {
            let failed = |error| self.failed(CallFailure::new("DescribeLaunchTemplates", error));
            let template = template.map_err(failed)?;
            let name = template.launch_template_name().filter(|name| name.starts_with(NAME_PREFIX));
            let made = template.create_time().and_then(|time| Timestamp::from_second(time.secs()).ok());
            found.extend(name.map(|name| (name.to_owned(), made)));
        }
        Ok(found)
    }

    async fn delete_templates(&self, names: Vec<String>) -> Result<(), CloudError> {
        self.forget_templates(&names);
        for name in names {
            let deleted = self.ec2.delete_launch_template().launch_template_name(&name).send().await;
            if let Err(error) = deleted {
                let failure = CallFailure::new("DeleteLaunchTemplate", error);
                if failure.refusal != Refusal::TemplateGone {
                    return Err(self.failed(failure));
                }
            }
            tracing::info!(template = name, "Launch template deleted.");
        }
        Ok(())
    }
}

fn data(template: &LaunchTemplate) -> RequestLaunchTemplateData {
    let mut tagged = vec![ResourceType::NetworkInterface];
    if template.capacity_type == CapacityType::Spot {
        tagged.push(ResourceType::SpotInstancesRequest);
    }
    let tags = tagged.into_iter().map(|kind| {
        LaunchTemplateTagSpecificationRequest::builder()
            .resource_type(kind)
            .set_tags(Some(ec2_tags(&template.tags)))
            .build()
    });
    let devices: Vec<_> = template.devices.iter().map(device).collect();
    let profile = LaunchTemplateIamInstanceProfileSpecificationRequest::builder()
        .name(&template.instance_profile)
        .build();
    let nested = template.nested_virtualization.as_deref().map(|setting| {
        LaunchTemplateCpuOptionsRequest::builder()
            .nested_virtualization(NestedVirtualizationSpecification::from(setting))
            .build()
    });
    RequestLaunchTemplateData::builder()
        .image_id(&template.image)
        .iam_instance_profile(profile)
        .set_user_data((!template.user_data.is_empty()).then(|| base64::encode(&template.user_data)))
        .set_block_device_mappings((!devices.is_empty()).then_some(devices))
        .set_network_interfaces(Some(template.interfaces.iter().map(interface).collect()))
        .monitoring(LaunchTemplatesMonitoringRequest::builder().enabled(template.is_monitored).build())
        .metadata_options(metadata(template))
        .set_cpu_options(nested)
        .set_tag_specifications(Some(tags.collect()))
        .build()
}

fn device(device: &Device) -> LaunchTemplateBlockDeviceMappingRequest {
    let ebs = LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_volume_size(device.gib)
        .set_volume_type(device.kind.as_deref().map(VolumeType::from))
        .set_encrypted(device.is_encrypted)
        .set_delete_on_termination(device.delete_on_termination)
        .set_iops(device.iops)
        .set_throughput(device.throughput)
        .set_kms_key_id(device.kms_key.clone())
        .set_snapshot_id(device.snapshot.clone())
        .set_volume_initialization_rate(device.initialization_rate)
        .build();
    LaunchTemplateBlockDeviceMappingRequest::builder().device_name(&device.name).ebs(ebs).build()
}

fn metadata(template: &LaunchTemplate) -> LaunchTemplateInstanceMetadataOptionsRequest {
    let metadata = &template.metadata;
    LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .http_endpoint(LaunchTemplateInstanceMetadataEndpointState::from(metadata.endpoint.as_str()))
        .set_http_protocol_ipv6(
            metadata.ipv6.as_deref().map(LaunchTemplateInstanceMetadataProtocolIpv6::from),
        )
        .http_put_response_hop_limit(metadata.hop_limit)
        .http_tokens(LaunchTemplateHttpTokensState::from(metadata.tokens.as_str()))
        .instance_metadata_tags(LaunchTemplateInstanceMetadataTagsState::Disabled)
        .build()
}

fn interface(interface: &Interface) -> LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
    let tracking = ConnectionTrackingSpecificationRequest::builder()
        .set_tcp_established_timeout(interface.tcp_established_timeout)
        .set_udp_stream_timeout(interface.udp_stream_timeout)
        .set_udp_timeout(interface.udp_timeout)
        .build();
    let is_tracked = tracking != ConnectionTrackingSpecificationRequest::builder().build();
    let (v4, v6) = match interface.is_ipv6 {
        true => (None, interface.prefixes),
        false => (interface.prefixes, None),
    };
    LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .network_card_index(interface.card)
        .device_index(interface.device)
        .interface_type(&interface.kind)
        .set_groups(Some(interface.security_groups.clone()))
        .set_associate_public_ip_address(interface.has_public_ip)
        .set_ipv4_prefix_count(v4)
        .set_ipv6_prefix_count(v6)
        .set_primary_ipv6(interface.is_ipv6.then_some(true))
        .set_ipv6_address_count(interface.is_ipv6.then_some(1))
        .set_connection_tracking_specification(is_tracked.then_some(tracking))
        .build()
}
