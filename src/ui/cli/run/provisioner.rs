//! Who provisions when a process begins: as the commit says, if it may be applied now, and else as it was.

use super::Args;
use super::commits::Commits;
use crate::controllers::live::Ledger;
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
    Ok(kept(&kube, args, commits).await?.unwrap_or_default())
}

/// Who provisions where the commit has `named` somebody: it is carried out as other changes are, when it may be.
pub(super) async fn in_force(
    args: &Args,
    console: &Console,
    commits: &Commits,
    named: Provisioner,
) -> Result<Provisioner, Failure> {
    let kube = Kube::connect(&args.live.address(), args.live.kube_qps).await?;
    let environment = commits.environment();
    match kept(&kube, args, commits).await? {
        Some(former) if former != named && !may_change(&kube, environment, &policy(args)).await? => {
            console.notice(&format!(
                "the commit has `engine = \"{}\"`, which Environment/{environment} lets nobody apply now: it stays {}",
                named.as_str(),
                former.as_str(),
            ));
            Ok(former)
        }
        _ => Ok(named),
    }
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

async fn kept(kube: &Kube, args: &Args, commits: &Commits) -> Result<Option<Provisioner>, KubeError> {
    let namespace = args.live.namespace.clone().unwrap_or_else(|| kube.namespace().to_owned());
    let owner = Owner::new(&args.live.installation, commits.environment());
    Ledger::of(&owner, &namespace, Provisioner::default()).provisioner(kube).await
}
