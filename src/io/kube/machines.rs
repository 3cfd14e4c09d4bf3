//! Which machines an environment has, asked once before anything is done.

use kube::api::ListParams;
use serde_json::Value;

use super::{Kind, Kube, KubeError};
use crate::model::label::{Labels, annotation};
use crate::model::name::{ClaimName, ProviderId};
use crate::model::owner::Owner;
use crate::model::symbol::Symbol;

const CLAIMS_PER_PAGE: u32 = 100;

impl Kube {
    /// The claims of `owner` that name a machine. A cluster that does not know claims has none.
    pub async fn machines_of(&self, owner: Owner) -> Result<Vec<(ClaimName, ProviderId)>, KubeError> {
        let mut found = Vec::new();
        let mut parameters = ListParams::default().limit(CLAIMS_PER_PAGE);
        loop {
            let page: Value = match self.list(Kind::NodeClaim.resource(), &parameters).await {
                Err(error) if error.is_missing() => return Ok(found),
                page => page?,
            };
            let claims = page["items"].as_array().map_or(&[][..], Vec::as_slice);
            found.extend(claims.iter().filter_map(|claim| machine_of(claim, owner)));
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(next) if !next.is_empty() => parameters = parameters.continue_token(next),
                _ => return Ok(found),
            }
        }
    }
}

fn machine_of(claim: &Value, owner: Owner) -> Option<(ClaimName, ProviderId)> {
    let text = |pointer: &str| claim.pointer(pointer).and_then(Value::as_str);
    let of = claim.pointer("/metadata/annotations")?.get(annotation::OWNER.as_str())?.as_str()?;
    let marks = Labels::from([(*annotation::OWNER, Symbol::new(of))]);
    (Owner::who_made(&marks) == Some(owner)).then_some(())?;
    let machine = text("/status/providerID").filter(|id| !id.is_empty())?;
    Some((ClaimName::new(text("/metadata/name")?), ProviderId::new(machine)))
}
