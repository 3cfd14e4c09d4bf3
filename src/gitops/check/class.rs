//! What the API server stores of a node class and its controller, or EC2, cannot use.

// Only how an address is written: nothing is asked of a network.
use core::net::IpAddr;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::rendered::{Draft, place_of};
use crate::gitops::text_form;

pub(super) fn check(draft: &Draft, found: &mut Vec<Diagnostic>) {
    devices(draft, found);
    reservations(draft, found);
    name_servers(draft, found);
}

fn place(draft: &Draft, path: &str) -> Place {
    place_of(&draft.origins, path).unwrap_or(&draft.origins[""]).clone()
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

fn name_servers(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let servers = draft.manifest["spec"]["kubelet"]["clusterDNS"].as_array();
    for (at, server) in servers.into_iter().flatten().enumerate() {
        if let Some(text) = Value::as_str(server).filter(|text| text.parse::<IpAddr>().is_err()) {
            let here = place(draft, &format!("spec.kubelet.clusterDNS[{at}]"));
            let message = format!("\"{text}\" in `clusterDNS` is not an IP address");
            found.push(Diagnostic::error("PRV1623", here, message).help("write it like \"10.100.0.10\""));
        }
    }
}
