//! NodeOverlay `karpenter.sh/v1alpha1` (api.md 6): corrects prices, adds extended resources.

use super::field::{Field, Stage};
use super::requirement::{self, Place};
use super::{condition, metadata};
use crate::model::money::UsdPerHour;
use crate::model::owner::Owner;
use crate::model::pool::{NodeOverlay, PriceChange};

pub(crate) const STANDARD_RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

pub(crate) fn read(object: &Field<'_, '_>) -> Option<NodeOverlay> {
    object.only(&["apiVersion", "kind", "metadata", "spec", "status"]);
    let metadata = metadata::read(object);
    let spec = object.get("spec").required();
    spec.only(&["requirements", "price", "priceAdjustment", "capacity", "weight"]);
    let requirements = requirement::read(&spec.get("requirements").required_list(), Place::Overlay);
    let (price, adjustment) = (spec.get("price"), spec.get("priceAdjustment"));
    if price.is_present() && adjustment.is_present() {
        spec.error_with_help("sets both `price` and `priceAdjustment`".into(), "leave one of them out");
    }
    let set = price.text().and_then(|text| {
        let parsed = parse_price(text).map(PriceChange::Set);
        if parsed.is_none() {
            price.error_with_help(
                format!("`{text}` is not a price"),
                "write dollars an hour, such as \"0.42\"",
            );
        }
        parsed
    });
    let adjusted = adjustment.text().and_then(|text| {
        let parsed = parse_adjustment(text);
        if parsed.is_none() {
            adjustment.error_with_help(
                format!("`{text}` is not a price adjustment"),
                "write a sign and dollars or percent, such as \"+0.05\", \"-15%\"; no less than \"-100%\"",
            );
        }
        parsed
    });
    let capacity = spec.get("capacity");
    for (name, amount) in capacity.entries() {
        if STANDARD_RESOURCES.contains(&name) {
            amount.error_with_help(
                format!("`{name}` may not be changed"),
                "an overlay adds extended resources, such as example.com/dongle",
            );
        }
    }
    let weight = spec.get("weight").integer_in(1..=10_000);
    let annotations = metadata::read_annotations(object);
    Some(NodeOverlay {
        name: metadata.name,
        owner: Owner::who_applied(&annotations, "karpenter.sh/NodeOverlay", metadata.name),
        requirements,
        price: set.or(adjusted),
        capacity: capacity.resources().unwrap_or_default(),
        weight: weight.and_then(|weight| weight.try_into().ok()).unwrap_or(0),
        fault: object.findings().told(Stage::Runtime),
        conditions: condition::read(&object.get("status").get("conditions")),
        is_judged_earlier: condition::is_judged_earlier(object),
    })
}

/// Digits, optionally a point and more digits.
fn parse_price(text: &str) -> Option<UsdPerHour> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (is_digits(whole) && is_digits(fraction)).then(|| text.parse().ok())?
}

/// A signed amount or percentage. Percentages may raise without end and lower by at most all.
fn parse_adjustment(text: &str) -> Option<PriceChange> {
    let (is_negative, rest) = match text.as_bytes().first()? {
        b'+' => (false, &text[1..]),
        b'-' => (true, &text[1..]),
        _ => return None,
    };
    let number = rest.strip_suffix('%').unwrap_or(rest);
    // A point needs digits after it, not before.
    let (whole, fraction) = number.split_once('.').unwrap_or(("", number));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if fraction.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    // `UsdPerHour` reads a decimal into millionths; so it does a percentage.
    let millionths: UsdPerHour = number.parse().ok()?;
    let signed = if is_negative { -millionths } else { millionths };
    if !rest.ends_with('%') {
        return Some(PriceChange::Add(signed));
    }
    let is_whole_hundred = number == "100";
    let digits_before_point = number.split('.').next().unwrap_or_default().len();
    if is_negative && !is_whole_hundred && !(1..=2).contains(&digits_before_point) {
        return None;
    }
    Some(PriceChange::Scale(signed.0 / 10_000))
}
