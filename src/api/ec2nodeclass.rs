//! EC2NodeClass `karpenter.k8s.aws/v1` (aws.md 1): rules, and the part of it that decides about capacity.

use std::sync::Arc;

use serde_json::Value;

use super::field::Field;
use super::{condition, hash, kubelet, metadata};
use crate::model::class::{self, AmiFamily, Holding, InstanceStorePolicy, NodeClass};
use crate::model::label;
use crate::model::name::{ClassName, Zone};
use crate::model::owner::Owner;
use crate::model::quantity::{Bytes, Quantity};
use crate::model::symbol::Symbol;

pub(crate) const API_VERSION: &str = "karpenter.k8s.aws/v1";
const HASH_ANNOTATION: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
const HASH_VERSION_ANNOTATION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";

const SPEC: [&str; 21] = [
    "subnetSelectorTerms",
    "securityGroupSelectorTerms",
    "capacityReservationSelectorTerms",
    "placementGroupSelector",
    "associatePublicIPAddress",
    "ipPrefixCount",
    "amiSelectorTerms",
    "amiFamily",
    "userData",
    "role",
    "instanceProfile",
    "tags",
    "kubelet",
    "blockDeviceMappings",
    "instanceStorePolicy",
    "networkInterfaces",
    "detailedMonitoring",
    "metadataOptions",
    "connectionTracking",
    "context",
    "cpuOptions",
];
pub(crate) const TERMS_MAX: usize = 30;
pub(crate) const TERM_TAGS_MAX: usize = 20;
pub(crate) const BLOCK_DEVICES_MAX: usize = 50;
pub(crate) const INTERFACES_MAX: usize = 150;
pub(crate) const ALIAS_CHARS_MAX: usize = 30;
pub(crate) const VOLUME_TYPES: [&str; 7] = ["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"];
/// Tags that the provisioner writes itself, besides those that begin with `kubernetes.io/cluster`.
pub(crate) const OWN_TAGS: [&str; 4] = [
    "eks:eks-cluster-name",
    "karpenter.sh/nodepool",
    "karpenter.sh/nodeclaim",
    "karpenter.k8s.aws/ec2nodeclass",
];

/// Every image family: its name, and the alias that stands for it.
pub(crate) const FAMILIES: [(AmiFamily, &str, &str); 7] = [
    (AmiFamily::Al2, "AL2", "al2"),
    (AmiFamily::Al2023, "AL2023", "al2023"),
    (AmiFamily::Bottlerocket, "Bottlerocket", "bottlerocket"),
    (AmiFamily::Windows2019, "Windows2019", "windows2019"),
    (AmiFamily::Windows2022, "Windows2022", "windows2022"),
    (AmiFamily::Windows2025, "Windows2025", "windows2025"),
    (AmiFamily::Custom, "Custom", ""),
];

pub(crate) fn read(object: &Field<'_, '_>) -> Option<NodeClass> {
    object.only(&["apiVersion", "kind", "metadata", "spec", "status"]);
    let metadata = metadata::read(object);
    let annotations = metadata::read_annotations(object);
    let spec = object.get("spec").required();
    spec.only(&SPEC);
    check_networks(&spec);
    check_identity(&spec);
    check_tags(&spec.get("tags"));
    check_devices(&spec.get("blockDeviceMappings"));
    check_interfaces(&spec.get("networkInterfaces"));
    check_options(&spec);
    let family = read_family(&spec);
    let kubelet = kubelet::read(&spec.get("kubelet"), family);
    let annotation = |key: &str| annotations.get(&Symbol::new(key)).copied();
    let status = object.get("status");
    let subnets = status.get("subnets");
    let mut zones: Vec<Zone> =
        subnets.items().filter_map(|subnet| subnet.get("zone").symbol().map(Zone)).collect();
    zones.sort();
    zones.dedup();
    let family = family?;
    let spec_value = spec.value().filter(|value| value.is_object())?;
    let (hash, hash_version) = hash::stored_or(
        annotation(HASH_ANNOTATION),
        annotation(HASH_VERSION_ANNOTATION),
        hash::NODECLASS_VERSION,
        || hash::of_class(spec_value, family, None),
    );
    Some(NodeClass {
        name: ClassName(metadata.name),
        owner: Owner::who_applied(&annotations, "karpenter.k8s.aws/EC2NodeClass", metadata.name),
        is_ready: condition::is_ready(object).unwrap_or(!object.findings().has(super::field::Stage::Runtime)),
        readiness: condition::readiness(object),
        is_deleting: metadata.deleted.is_some(),
        held: holding(object, annotation(label::annotation::HELD.as_str())),
        ami_family: family,
        kubelet,
        root_volume: root_volume(&spec, family),
        instance_store: match spec.get("instanceStorePolicy").text() {
            Some("RAID0") => InstanceStorePolicy::Raid0,
            _ => InstanceStorePolicy::None,
        },
        zones,
        hash: Some(hash),
        hash_version: Some(hash_version),
        spec: Arc::new(spec_value.clone()),
    })
}

/// What we hold a class for. Others use the same finalizer, so `mark`, an annotation of ours, has to be there, too.
fn holding(object: &Field<'_, '_>, mark: Option<Symbol>) -> Option<Holding> {
    let metadata = object.get("metadata");
    let is_held = metadata.get("finalizers").items().any(|item| item.text() == Some(class::FINALIZER));
    let of_mark = |mark: Symbol| match mark == Symbol::new(Holding::Profiles.as_str()) {
        true => Holding::Profiles,
        false => Holding::Templates,
    };
    mark.filter(|_| is_held).map(of_mark)
}

// --------------------------------------------------------------------------------------------------- selector terms

fn check_networks(spec: &Field<'_, '_>) {
    let subnets = terms(spec, "subnetSelectorTerms", true);
    for term in subnets.items() {
        if term.only(&["tags", "id"]) {
            check_term_tags(&term);
            check_id(&term, "subnet-", false);
            needs_one(&term, &["tags", "id"]);
            excludes(&term, "id", &["tags"]);
        }
    }
    let groups = terms(spec, "securityGroupSelectorTerms", true);
    for term in groups.items() {
        if term.only(&["tags", "id", "name"]) {
            check_term_tags(&term);
            check_id(&term, "sg-", false);
            term.get("name").text();
            needs_one(&term, &["tags", "id", "name"]);
            excludes(&term, "id", &["tags", "name"]);
            excludes(&term, "name", &["tags"]);
        }
    }
    let reservations = terms(spec, "capacityReservationSelectorTerms", false);
    for term in reservations.items() {
        if term.only(&["tags", "id", "ownerID", "instanceMatchCriteria"]) {
            check_term_tags(&term);
            check_id(&term, "cr-", true);
            let owner = term.get("ownerID");
            let is_account = |text: &str| text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit());
            if let Some(text) = owner.text().filter(|text| !is_account(text)) {
                owner.error_with_help(format!("`{text}` is not an account"), "an account has 12 digits");
            }
            term.get("instanceMatchCriteria").choice(&["open", "targeted"]);
            needs_one(&term, &["tags", "id", "instanceMatchCriteria"]);
            excludes(&term, "id", &["tags", "ownerID", "instanceMatchCriteria"]);
        }
    }
    let group = spec.get("placementGroupSelector");
    if group.only(&["name", "id"]) {
        if group.get("name").is_present() {
            group.get("name").required_text();
        }
        check_id(&group, "pg-", true);
        if group.get("name").is_present() == group.get("id").is_present() {
            group.error("needs exactly one of `name` and `id`".into());
        }
    }
}

fn terms<'s, 'v>(spec: &'s Field<'_, 'v>, key: &'s str, is_required: bool) -> Field<'s, 'v> {
    let list = spec.get(key);
    list.at_most(TERMS_MAX);
    if is_required && list.required_list().value().is_some_and(Value::is_array) && list.len() == 0 {
        list.error("needs at least one term".into());
    }
    list
}

fn check_term_tags(term: &Field<'_, '_>) {
    let tags = term.get("tags");
    tags.at_most(TERM_TAGS_MAX);
    if tags.value().is_some_and(Value::is_object) && tags.len() == 0 {
        tags.error("must not be empty".into());
    }
    for (key, value) in tags.entries() {
        if key.is_empty() || value.text() == Some("") {
            value.error_with_help(
                "a tag needs a key and a value".into(),
                "the value \"*\" stands for every value",
            );
        }
    }
}

/// An id of AWS. Where `is_whole` is false the API server only looks for one somewhere in the text.
fn check_id(term: &Field<'_, '_>, prefix: &str, is_whole: bool) {
    let id = term.get("id");
    let Some(text) = id.text() else { return };
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = match is_whole {
        true => text.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_plain)),
        false => text
            .match_indices(prefix)
            .any(|(at, _)| text.as_bytes().get(at + prefix.len()).is_some_and(|byte| is_plain(*byte))),
    };
    if !fits {
        id.error_with_help(
            format!("`{text}` is not an id"),
            &format!("it begins with `{prefix}`, followed by lower-case letters and digits"),
        );
    }
}

fn needs_one(term: &Field<'_, '_>, keys: &[&str]) {
    if !keys.iter().any(|key| term.get(key).is_present()) {
        term.error(format!("selects nothing; it needs one of {}", keys.join(", ")));
    }
}

fn excludes(term: &Field<'_, '_>, key: &str, others: &[&str]) {
    if !term.get(key).is_present() {
        return;
    }
    for other in others.iter().filter(|other| term.get(other).is_present()) {
        term.error_with_help(
            format!("`{key}` cannot be combined with `{other}`"),
            "write two terms: a thing is taken if any term selects it",
        );
    }
}

// ----------------------------------------------------------------------------------------------------------- images

/// The family that the images are of: that of the alias, unless `amiFamily` says `Custom`.
fn read_family(spec: &Field<'_, '_>) -> Option<AmiFamily> {
    let list = terms(spec, "amiSelectorTerms", true);
    let mut alias_family = None;
    let mut has_alias = false;
    for term in list.items() {
        if !term.only(&["alias", "tags", "id", "name", "owner", "ssmParameter"]) {
            continue;
        }
        check_term_tags(&term);
        check_id(&term, "ami-", false);
        term.get("name").text();
        term.get("owner").text();
        term.get("ssmParameter").text();
        needs_one(&term, &["alias", "tags", "id", "name", "ssmParameter"]);
        excludes(&term, "id", &["alias", "tags", "name", "owner", "ssmParameter"]);
        excludes(&term, "alias", &["tags", "name", "owner", "ssmParameter"]);
        let alias = term.get("alias");
        if alias.is_present() {
            has_alias = true;
            alias_family = read_alias(&alias);
            if list.len() > 1 {
                alias.error_with_help(
                    "an alias must be the only term".into(),
                    "leave out the other terms, or select images by tags, id or name",
                );
            }
        }
    }
    let family = spec.get("amiFamily");
    let names = FAMILIES.map(|(_, name, _)| name);
    let named = family.choice(&names);
    let named = named.and_then(|chosen| FAMILIES.iter().find(|(_, name, _)| *name == chosen));
    match (named, alias_family) {
        (Some((AmiFamily::Custom, ..)), _) => Some(AmiFamily::Custom),
        (Some((named, name, _)), Some((of_alias, alias_name))) if *named != of_alias => {
            family.error_with_help(
                format!("is {name}, but the alias is of {alias_name}"),
                &format!("leave `amiFamily` out, or set it to {alias_name} or Custom"),
            );
            None
        }
        (Some((named, ..)), _) => Some(*named),
        (None, Some((of_alias, _))) => Some(of_alias),
        (None, None) => {
            if !has_alias && !family.is_present() {
                family.error_with_help(
                    "is required, because no image is selected by alias".into(),
                    &format!("it is one of {}", names.join(", ")),
                );
            }
            None
        }
    }
}

fn read_alias(alias: &Field<'_, '_>) -> Option<(AmiFamily, &'static str)> {
    let text = alias.text()?;
    let help = "write family@version, such as al2023@latest or bottlerocket@1.20.0";
    if text.len() > ALIAS_CHARS_MAX {
        alias.error(format!("has {} characters; {ALIAS_CHARS_MAX} is the most", text.len()));
    }
    let (family, version) = text.split_once('@').unwrap_or((text, ""));
    if family.is_empty() || version.is_empty() {
        alias.error_with_help(format!("`{text}` is not an alias"), help);
        return None;
    }
    let Some((kind, name, _)) = FAMILIES.iter().find(|(_, _, known)| *known == family && !known.is_empty())
    else {
        let families: Vec<&str> =
            FAMILIES.iter().map(|(_, _, alias)| *alias).filter(|alias| !alias.is_empty()).collect();
        alias.error(format!("`{family}` is none of the families {}", families.join(", ")));
        return None;
    };
    if name.starts_with("Windows") && version != "latest" {
        alias.error_with_help(
            format!("{name} has no version `{version}`"),
            &format!("Windows images cannot be pinned; write {family}@latest"),
        );
    }
    Some((*kind, name))
}

// ------------------------------------------------------------------------------------------------- identity and tags

fn check_identity(spec: &Field<'_, '_>) {
    let (role, profile) = (spec.get("role"), spec.get("instanceProfile"));
    for field in [role, profile] {
        if field.is_present() {
            field.required_text();
        }
    }
    if role.is_present() && profile.is_present() {
        spec.error_with_help("sets both `role` and `instanceProfile`".into(), "leave one of them out");
    } else if !role.is_present() && !profile.is_present() {
        spec.error_with_help(
            "needs `role` or `instanceProfile`".into(),
            "set `role` to the IAM role that nodes run as",
        );
    }
}

fn check_tags(tags: &Field<'_, '_>) {
    for (key, value) in tags.entries() {
        value.text();
        if key.is_empty() {
            value.error("a tag needs a key".into());
        } else if OWN_TAGS.contains(&key) || key.starts_with("kubernetes.io/cluster") {
            let message = format!("`{key}` is written by the provisioner itself");
            value.note_key(super::field::Stage::Admission, message, Some("leave it out".into()));
        }
    }
}

// ---------------------------------------------------------------------------------------------------------- devices

fn check_devices(mappings: &Field<'_, '_>) {
    mappings.at_most(BLOCK_DEVICES_MAX);
    let mut roots = 0;
    for mapping in mappings.items() {
        if !mapping.only(&["deviceName", "rootVolume", "ebs"]) {
            continue;
        }
        mapping.get("deviceName").text();
        roots += usize::from(mapping.get("rootVolume").boolean() == Some(true));
        let ebs = mapping.get("ebs");
        if !ebs.only(&[
            "deleteOnTermination",
            "encrypted",
            "iops",
            "kmsKeyID",
            "snapshotID",
            "throughput",
            "volumeInitializationRate",
            "volumeSize",
            "volumeType",
        ]) {
            continue;
        }
        ebs.get("deleteOnTermination").boolean();
        ebs.get("encrypted").boolean();
        ebs.get("iops").integer();
        ebs.get("throughput").integer();
        ebs.get("kmsKeyID").text();
        ebs.get("snapshotID").text();
        ebs.get("volumeType").choice(&VOLUME_TYPES);
        let size = ebs.get("volumeSize");
        if let Some(text) = size.text().filter(|text| parse_volume_size(text).is_none()) {
            size.error_with_help(
                format!("`{text}` is not the size of a volume"),
                "write 1 to 59000 Gi, 64000 G, 58 Ti or 64 T, such as 100Gi",
            );
        }
        let has_snapshot = ebs.get("snapshotID").is_present();
        if !has_snapshot && !size.is_present() {
            ebs.error("needs `volumeSize` or `snapshotID`".into());
        }
        let rate = ebs.get("volumeInitializationRate");
        if rate.integer_in(100..=300).is_some() && !has_snapshot {
            rate.error("has a meaning only together with `snapshotID`".into());
        }
    }
    if roots > 1 {
        mappings.error(format!("has {roots} root volumes; one is the most"));
    }
}

/// Whole numbers of Gi, G, Ti or T, up to what EBS can make.
fn parse_volume_size(text: &str) -> Option<Bytes> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let count: i64 = number.parse().ok().filter(|count| *count >= 1)?;
    let most = match unit {
        "Gi" => 59_000,
        "G" => 64_000,
        "Ti" => 58,
        "T" => 64,
        _ => return None,
    };
    if number.starts_with('0') || count > most {
        return None;
    }
    text.parse::<Quantity>().ok().map(|size| Bytes(size.units()))
}

/// The size of the volume that pods' ephemeral storage comes from (aws.md 3.2); `None`: the family's default.
fn root_volume(spec: &Field<'_, '_>, family: AmiFamily) -> Option<Bytes> {
    let mappings = spec.get("blockDeviceMappings");
    let size = |mapping: &Field<'_, '_>| {
        let ebs = mapping.get("ebs");
        ebs.get("volumeSize").value().and_then(Value::as_str).and_then(parse_volume_size)
    };
    let is_root =
        |mapping: &Field<'_, '_>| mapping.get("rootVolume").value().and_then(Value::as_bool) == Some(true);
    let sizes = |wanted: &dyn Fn(&Field<'_, '_>) -> bool| {
        mappings.items().filter(|mapping| wanted(mapping)).filter_map(|mapping| size(&mapping)).last()
    };
    let device = match family {
        AmiFamily::Al2 | AmiFamily::Al2023 => "/dev/xvda",
        AmiFamily::Bottlerocket => "/dev/xvdb",
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => "/dev/sda1",
        AmiFamily::Custom => {
            let last = mappings.items().last().and_then(|mapping| size(&mapping));
            return sizes(&is_root).or(last);
        }
    };
    sizes(&is_root).or_else(|| {
        sizes(&|mapping| mapping.get("deviceName").value().and_then(Value::as_str) == Some(device))
    })
}

fn check_interfaces(interfaces: &Field<'_, '_>) {
    interfaces.at_most(INTERFACES_MAX);
    let mut seen: Vec<(i64, i64, &str)> = Vec::new();
    for interface in interfaces.items() {
        if !interface.only(&["networkCardIndex", "deviceIndex", "interfaceType"]) {
            continue;
        }
        let card = interface.get("networkCardIndex").required().integer_in(0..=i64::from(i32::MAX));
        let device = interface.get("deviceIndex").required().integer_in(0..=i64::from(i32::MAX));
        let kind = interface.get("interfaceType").required().choice(&["interface", "efa-only"]);
        let (Some(card), Some(device), Some(kind)) = (card, device, kind) else { continue };
        if seen.iter().any(|(c, d, _)| (*c, *d) == (card, device)) {
            interface.error(format!("card {card}, device {device} is there twice"));
        }
        if kind == "efa-only" && seen.iter().any(|(c, _, k)| *c == card && *k == kind) {
            interface.error(format!("card {card} has more than one efa-only interface"));
        }
        seen.push((card, device, kind));
    }
    if interfaces.len() > 0 && !seen.contains(&(0, 0, "interface")) {
        interfaces.error_with_help(
            "has no primary interface".into(),
            "one entry must be networkCardIndex 0, deviceIndex 0, interfaceType interface",
        );
    }
}

// ---------------------------------------------------------------------------------------------------------- options

fn check_options(spec: &Field<'_, '_>) {
    spec.get("associatePublicIPAddress").boolean();
    spec.get("detailedMonitoring").boolean();
    spec.get("ipPrefixCount").integer_in(0..=i64::from(i32::MAX));
    spec.get("userData").text();
    spec.get("context").text();
    spec.get("instanceStorePolicy").choice(&["RAID0"]);
    let metadata = spec.get("metadataOptions");
    if metadata.only(&["httpEndpoint", "httpProtocolIPv6", "httpPutResponseHopLimit", "httpTokens"]) {
        metadata.get("httpEndpoint").choice(&["enabled", "disabled"]);
        metadata.get("httpProtocolIPv6").choice(&["enabled", "disabled"]);
        metadata.get("httpPutResponseHopLimit").integer_in(1..=64);
        metadata.get("httpTokens").choice(&["required", "optional"]);
    }
    let tracking = spec.get("connectionTracking");
    if tracking.only(&["tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout"]) {
        tracking.get("tcpEstablishedTimeout").integer_in(60..=432_000);
        tracking.get("udpStreamTimeout").integer_in(60..=180);
        tracking.get("udpTimeout").integer_in(30..=60);
        if tracking.len() == 0 {
            tracking.error("needs at least one timeout".into());
        }
    }
    let cpu = spec.get("cpuOptions");
    if cpu.only(&["nestedVirtualization"]) {
        cpu.get("nestedVirtualization").choice(&["enabled", "disabled"]);
    }
}
