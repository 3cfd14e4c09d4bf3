//! What an environment may not say, or says in vain, where an installed Karpenter provisions.

use super::diagnostic::{Diagnostic, Place};
use super::rendered::{Draft, place_of};
use super::tree::Node;

const SIMULATED: &str = "PRV1636";
const GATED: &str = "PRV1637";

/// `tree` is the environment with all that it inherits, `drafts` what became of it.
pub(crate) fn check(tree: &Node, drafts: &[Draft], found: &mut Vec<Diagnostic>) {
    if let Some(cloud) =
        tree.get("cloud").filter(|cloud| cloud.as_text().is_some_and(|word| &**word == "simulated"))
    {
        let message = "the environment has `engine = \"karpenter\"`: Karpenter buys machines for what is applied, and \
                       `cloud = \"simulated\"` says that nothing is bought";
        let place = cloud.place.clone();
        found.push(Diagnostic::error(SIMULATED, place, message).help("take one of them away"));
    }
    for draft in drafts {
        let Some((what, gate, path)) = gated(draft) else { continue };
        let place: &Place = place_of(&draft.origins, path).unwrap_or(&draft.origins[""]);
        let message = format!(
            "{what} has no effect unless the Karpenter that provisions this environment has the feature gate `{gate}`, \
             which is off by default"
        );
        let help = format!("start it with FEATURE_GATES={gate}=true, or write `engine = \"provisor\"`");
        found.push(Diagnostic::warning(GATED, place.clone(), message).help(help));
    }
}

/// The feature gate of Karpenter 1.14 without which it does not look at an object, and where that comes from.
fn gated(draft: &Draft) -> Option<(&'static str, &'static str, &'static str)> {
    match draft.manifest["kind"].as_str()? {
        "CapacityBuffer" => Some(("the room that a CapacityBuffer keeps", "CapacityBuffer", "")),
        "NodeOverlay" => Some(("a NodeOverlay", "NodeOverlay", "")),
        "NodePool" if !draft.manifest["spec"]["replicas"].is_null() => {
            Some(("a fixed number of nodes", "StaticCapacity", "spec.replicas"))
        }
        _ => None,
    }
}
