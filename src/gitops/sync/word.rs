//! A person's yes to the plan that some digits name: it covers that plan and no other.

use std::sync::Arc;

use super::SyncRequest;
use crate::gitops::plan::{Consent, SyncPlan};

/// Who says yes to what.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub named: Arc<str>,
    pub actor: Arc<str>,
}

impl Word {
    /// What it asks for of the plan as it is now, or why it asks for nothing.
    pub fn about(self, plan: &SyncPlan) -> Result<SyncRequest, String> {
        let Self { named, actor } = self;
        if !plan.hash.is_named_by(&named) {
            let digits = plan.hash.short();
            return Err(format!("{actor}: `{named}` does not name the plan, which is {digits} by now"));
        }
        let consent = Consent { plan: Some(plan.hash.clone()), override_protection: None };
        Ok(SyncRequest { actor, prune: None, consent })
    }
}
