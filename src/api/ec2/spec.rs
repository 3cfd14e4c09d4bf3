//! An EC2NodeClass's `spec` in full, for whoever buys machines. Whether it is allowed was settled when the object was read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::model::class::NodeClass;

/// All terms that a subnet or security group may be selected by; the API rules say which go together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkTerm {
    pub tags: BTreeMap<String, String>,
    pub id: Option<String>,
    pub name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageTerm {
    pub alias: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub id: Option<String>,
    pub name: Option<String>,
    pub owner: Option<String>,
    pub ssm_parameter: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockDeviceMapping {
    pub device_name: Option<String>,
    pub ebs: Option<Ebs>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ebs {
    pub delete_on_termination: Option<bool>,
    pub encrypted: Option<bool>,
    pub iops: Option<i32>,
    #[serde(rename = "kmsKeyID")]
    pub kms_key_id: Option<String>,
    #[serde(rename = "snapshotID")]
    pub snapshot_id: Option<String>,
    pub throughput: Option<i32>,
    pub volume_initialization_rate: Option<i32>,
    pub volume_size: Option<String>,
    pub volume_type: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataOptions {
    pub http_endpoint: Option<String>,
    #[serde(rename = "httpProtocolIPv6")]
    pub http_protocol_ipv6: Option<String>,
    pub http_put_response_hop_limit: Option<i32>,
    pub http_tokens: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkInterface {
    pub network_card_index: i32,
    pub device_index: i32,
    pub interface_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionTracking {
    pub tcp_established_timeout: Option<i32>,
    pub udp_stream_timeout: Option<i32>,
    pub udp_timeout: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuOptions {
    pub nested_virtualization: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassSpec {
    pub subnet_selector_terms: Vec<NetworkTerm>,
    pub security_group_selector_terms: Vec<NetworkTerm>,
    pub ami_selector_terms: Vec<ImageTerm>,
    pub user_data: Option<String>,
    pub role: Option<String>,
    pub instance_profile: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub kubelet: Map<String, Value>,
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    pub detailed_monitoring: bool,
    pub metadata_options: MetadataOptions,
    #[serde(rename = "associatePublicIPAddress")]
    pub associate_public_ip_address: Option<bool>,
    pub ip_prefix_count: Option<i32>,
    pub network_interfaces: Vec<NetworkInterface>,
    pub connection_tracking: Option<ConnectionTracking>,
    pub cpu_options: CpuOptions,
    pub context: Option<String>,
    pub capacity_reservation_selector_terms: Vec<Value>,
    pub placement_group_selector: Option<Value>,
}

impl ClassSpec {
    /// Fails where the object holds what no API server would have stored; the message names the place.
    pub fn read(class: &NodeClass) -> Result<Self, serde_json::Error> {
        Self::deserialize(&*class.spec)
    }

    /// The alias, which stands alone if there is one.
    pub fn alias(&self) -> Option<&str> {
        self.ami_selector_terms.iter().find_map(|term| term.alias.as_deref())
    }
}
