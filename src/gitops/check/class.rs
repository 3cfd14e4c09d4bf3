//! What the API server stores of a node class and its controller, or EC2, cannot use.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::api;
use crate::api::ec2nodeclass::VOLUME_TYPES;
use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::rendered::{Draft, place_of};
use crate::gitops::text_form;

pub(super) fn check(draft: &Draft, found: &mut Vec<Diagnostic>) {
    empty_texts(draft, found);
    devices(draft, found);
    performance(draft, found);
    reservations(draft, found);
    pods_per_node(draft, found);
    kubelet(draft, found);
    user_data(draft, found);
}

fn place(draft: &Draft, path: &str) -> Place {
    place_of(&draft.origins, path).unwrap_or(&draft.origins[""]).clone()
}

/// The lists of a node class in which an empty text names nothing that there is. Values of tags may well be empty.
const NAMING: [&str; 4] = [
    "amiSelectorTerms",
    "blockDeviceMappings",
    "capacityReservationSelectorTerms",
    "securityGroupSelectorTerms",
];

/// A variable that was never filled in, most likely. To EC2 it is a name that nothing has.
fn empty_texts(draft: &Draft, found: &mut Vec<Diagnostic>) {
    for list in NAMING {
        empty_texts_of(draft, &draft.manifest["spec"][list], &format!("spec.{list}"), found);
    }
}

fn empty_texts_of(draft: &Draft, value: &Value, path: &str, found: &mut Vec<Diagnostic>) {
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(at, item)| empty_texts_of(draft, item, &format!("{path}[{at}]"), found));
        }
        Value::Object(map) => {
            let fields = map.iter().filter(|(key, _)| *key != "tags");
            fields.for_each(|(key, item)| empty_texts_of(draft, item, &format!("{path}.{key}"), found));
        }
        Value::String(text) if text.trim().is_empty() => {
            let field = path.rsplit('.').next().unwrap_or(path);
            let (message, help) = match path.starts_with("spec.amiSelectorTerms") {
                true => (
                    format!("the `{field}` of an image is an empty text, and no image has that"),
                    "write an alias such as \"al2023@latest\", an id or a name; without `ami` the class takes the newest image of its system",
                ),
                false => (
                    format!("`{field}` is an empty text, which names nothing"),
                    "write what it is called, or leave the field out",
                ),
            };
            found.push(Diagnostic::error("PRV1627", place(draft, path), message).help(help));
        }
        _ => {}
    }
}

/// EC2 refuses to launch an instance with two disks at one device.
fn devices(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let disks = draft.manifest["spec"]["blockDeviceMappings"].as_array();
    let mut seen: BTreeMap<&str, Place> = BTreeMap::new();
    for (at, disk) in disks.into_iter().flatten().enumerate() {
        let Some(device) = disk["deviceName"].as_str() else { continue };
        let here = place(draft, &format!("spec.blockDeviceMappings[{at}].deviceName"));
        match seen.get(device) {
            Some(first) => found.push(
                Diagnostic::error("PRV1625", here, format!("two disks have the device `{device}`"))
                    .also("the first one", first.clone())
                    .help("give each a `device` of its own, such as `/dev/xvdb`"),
            ),
            None => {
                seen.insert(device, here);
            }
        }
    }
}

/// Operations per second that can be bought for a type of disk (EC2, `EbsBlockDevice`).
fn operations_of(kind: &str) -> Option<RangeInclusive<i64>> {
    match kind {
        "gp3" => Some(3_000..=80_000),
        "io1" => Some(100..=64_000),
        "io2" => Some(100..=256_000),
        _ => None,
    }
}

/// MiB per second that can be bought for a disk of type gp3 (EC2, `EbsBlockDevice`).
const THROUGHPUT: RangeInclusive<i64> = 125..=2_000;

/// EC2 refuses speeds that a type of disk does not have.
fn performance(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let disks = draft.manifest["spec"]["blockDeviceMappings"].as_array();
    for (at, disk) in disks.into_iter().flatten().enumerate() {
        let here = |field: &str| place(draft, &format!("spec.blockDeviceMappings[{at}].ebs.{field}"));
        // What no API server would take is told by its rule.
        let Some(kind) = disk["ebs"]["volumeType"].as_str().filter(|kind| VOLUME_TYPES.contains(kind)) else {
            continue;
        };
        let mut wrong = |field: &str, message: String, help: String| {
            found.push(Diagnostic::error("PRV1629", here(field), message).help(help));
        };
        let asked = |field: &str| disk["ebs"][field].as_i64();
        match (asked("iops"), operations_of(kind)) {
            (Some(_), None) => wrong(
                "iops",
                format!("a disk of type `{kind}` has no `iops` of its own to set"),
                "leave `iops` out, or take the type `gp3`, `io1` or `io2`".to_owned(),
            ),
            (Some(iops), Some(range)) if !range.contains(&iops) => wrong(
                "iops",
                format!("`iops` is {iops}, which a disk of type `{kind}` cannot have"),
                format!("`{kind}` takes {} to {}", range.start(), range.end()),
            ),
            (None, Some(range)) if kind != "gp3" => wrong(
                "volumeType",
                format!("a disk of type `{kind}` needs `iops`"),
                format!("set `iops`, from {} to {}", range.start(), range.end()),
            ),
            _ => {}
        }
        match asked("throughput") {
            Some(_) if kind != "gp3" => wrong(
                "throughput",
                format!("a disk of type `{kind}` has no `throughput` of its own to set"),
                "leave `throughput` out, or take the type `gp3`".to_owned(),
            ),
            Some(throughput) if !THROUGHPUT.contains(&throughput) => wrong(
                "throughput",
                format!("`throughput` is {throughput}, which a disk of type `gp3` cannot have"),
                format!("`gp3` takes {} to {} MiB/s", THROUGHPUT.start(), THROUGHPUT.end()),
            ),
            _ => {}
        }
    }
}

/// A text would be an expression to Karpenter, behind the same gate.
fn pods_per_node(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let Some(text) = draft.manifest["spec"]["kubelet"]["maxPods"].as_str() else { return };
    let message = format!("`maxPods` is \"{}\", which is not a number of pods", text.escape_debug());
    let help = match text.trim().parse::<u32>() {
        Ok(number) => format!("write the number without quotes: {number}"),
        Err(_) => {
            "write a whole number such as 110, or leave it out for what the type of machine allows".to_owned()
        }
    };
    found.push(Diagnostic::error("PRV1623", place(draft, "spec.kubelet.maxPods"), message).help(help));
}

/// Bytes of user data that EC2 takes, before they are encoded.
const USER_DATA_MAX: usize = 16_384;

fn user_data(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let Some(text) = draft.manifest["spec"]["userData"].as_str() else { return };
    if text.len() > USER_DATA_MAX {
        let message = format!("the user data has {} bytes, and EC2 takes {USER_DATA_MAX}", text.len());
        let help = "let it fetch what is long, such as a script from a bucket; what joins the node to the cluster needs room, too";
        found.push(Diagnostic::error("PRV1628", place(draft, "spec.userData"), message).help(help));
    }
}

/// Amounts kept from pods. Something else than an amount is an expression to Karpenter, behind a gate that is off.
fn reservations(draft: &Draft, found: &mut Vec<Diagnostic>) {
    for table in ["kubeReserved", "systemReserved"] {
        let amounts = draft.manifest["spec"]["kubelet"][table].as_object();
        for (resource, amount) in amounts.into_iter().flatten() {
            // Signs are the API's matter.
            let Some(text) = amount.as_str().filter(|text| !text.starts_with('-')) else { continue };
            let form = text_form::amount_of(resource).unwrap_or("quantity");
            let is_fine = match form {
                "cpu-amount" => text_form::check(form, text).is_ok(),
                _ => text_form::is_quantity(text),
            };
            if is_fine {
                continue;
            }
            let (message, help) = match form {
                "cpu-amount" => ("an amount of CPU", "write it like \"80m\" or \"1\""),
                _ => ("an amount", "write it like \"255Mi\""),
            };
            let here = place(draft, &format!("spec.kubelet.{table}.{resource}"));
            let message = format!("`{resource}` of `{table}` is \"{text}\", which is not {message}");
            found.push(Diagnostic::error("PRV1623", here, message).help(help));
        }
    }
}

fn kubelet(draft: &Draft, found: &mut Vec<Diagnostic>) {
    for error in api::unusable_in_kubelet(&draft.manifest["spec"]) {
        let here = place(draft, &format!("spec.{}", error.path));
        let diagnostic = Diagnostic::error("PRV1623", here, error.message);
        found.push(match error.help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        });
    }
}
