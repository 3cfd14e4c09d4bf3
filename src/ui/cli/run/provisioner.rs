//! Who provisions when a process begins: as the commit says, if it may be applied now, and else as it was.

use super::Args;
use super::commits::Commits;
use crate::controllers::live::{Ledger, LiveSettings};
use crate::gitops::environment::SyncRules;
use crate::gitops::policy::{SyncMode, SyncPolicy};
use crate::io::clock;
use crate::io::kube::{Kube, KubeError, Resource};
use crate::model::owner::Owner;
use crate::model::provisioner::Provisioner;
use crate::ui::console::Console;
use crate::ui::exit::Failure;

/// How commits are applied where the Environment says nothing.
pub(super) fn policy(args: &Args) -> SyncPolicy {
    SyncPolicy {
        mode: SyncMode::AutoHeal,
        prune: args.prune.into(),
        ..SyncPolicy::new(&args.live.installation)
    }
}

/// Who provisioned when a commit was applied last, for those who have none that can be used.
pub(super) async fn recorded(args: &Args, commits: &Commits) -> Result<Provisioner, Failure> {
    let kube = Kube::connect(&args.live.address(), args.live.kube_qps).await?;
    let namespace = args.live.namespace.clone().unwrap_or_else(|| kube.namespace().to_owned());
    let owner = Owner::new(&args.live.installation, commits.environment());
    let ledger = Ledger::of(&owner, &namespace, Provisioner::default());
    Ok(ledger.provisioner(&kube).await?.unwrap_or_default())
}

/// Who goes on provisioning although a commit has `named` somebody else, because that may not be applied now.
pub(super) async fn in_force(
    kube: &Kube,
    console: &Console,
    LiveSettings { environment, policy, ledger, .. }: &LiveSettings,
    named: Option<Provisioner>,
) -> Result<Option<Provisioner>, KubeError> {
    let (Some(named), Some(former)) = (named, ledger.provisioner(kube).await?) else { return Ok(None) };
    if former == named || may_change(kube, environment, policy).await? {
        return Ok(None);
    }
    console.notice(&format!(
        "the commit has `engine = \"{}\"`, which Environment/{environment} lets nobody apply now: it stays {}",
        named.as_str(),
        former.as_str(),
    ));
    Ok(Some(former))
}

/// Whether the Environment lets a commit change who provisions now.
pub(super) async fn may_change(
    kube: &Kube,
    environment: &str,
    policy: &SyncPolicy,
) -> Result<bool, KubeError> {
    let object = kube.get(Resource::ENVIRONMENT, None, environment).await?;
    Ok(SyncRules::of(object.as_ref()).let_provisioner_change(policy, environment, clock::now()))
}
