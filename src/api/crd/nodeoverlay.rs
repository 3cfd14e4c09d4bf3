//! NodeOverlay `karpenter.sh/v1alpha1` (api.md 6).

use super::constraints::{Detail, conditions, requirements};
use super::schema::{Schema, cel_list};
use super::{AGE, Definition, READY, wide};
use crate::api::nodeoverlay::STANDARD_RESOURCES;
use crate::api::requirement::Place;

/// A signed number; a percentage up without end; a percentage down to nothing.
const ADJUSTMENT: &str = r"^([+-][0-9]*\.?[0-9]+|\+[0-9]*\.?[0-9]+%|-[0-9]{1,2}(\.[0-9]+)?%|-100%)$";

pub(super) fn definition() -> Definition {
    Definition {
        group: "karpenter.sh",
        version: "v1alpha1",
        kind: "NodeOverlay",
        plural: "nodeoverlays",
        short: &["overlays"],
        category: "karpenter",
        is_namespaced: false,
        about: "Corrects what is known about machines: their price, and resources that the cloud does not list.",
        columns: vec![READY, AGE, wide("Weight", "integer", ".spec.weight")],
        spec: spec(),
        status: Schema::object("Whether it is in effect.", [("conditions", conditions(Detail::Full))]),
        scale: None,
    }
}

fn spec() -> Schema {
    let standard = format!("self.all(name, !(name in {}))", cel_list(STANDARD_RESOURCES));
    let capacity = "Resources that the machines have besides those that the cloud lists.";
    let adjustment =
        "What to add to the price: signed dollars an hour or a signed percentage, such as +0.05 or -15%.";
    let weight = "Which overlay counts where several match: the heavier one. Without one it weighs 0.";
    let fields = [
        ("requirements", requirements("Which machines it is about; all conditions hold.", Place::Overlay)),
        ("price", Schema::text("Dollars an hour.").pattern(r"^\d+(\.\d+)?$")),
        ("priceAdjustment", Schema::text(adjustment).pattern(ADJUSTMENT)),
        ("capacity", Schema::resources(capacity).rule("an overlay adds extended resources only", &standard)),
        ("weight", Schema::small(weight).between(1, 10_000)),
    ];
    Schema::object("What is corrected.", fields)
        .required(&["requirements"])
        .rule("set price or priceAdjustment, not both", "!has(self.price) || !has(self.priceAdjustment)")
}
