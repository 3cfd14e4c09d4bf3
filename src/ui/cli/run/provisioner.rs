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

/// A change of who provisions that a commit asks for, and that was allowed while it ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    pub named: Provisioner,
    pub instead_of: Provisioner,
}

/// The record of one environment, and by which rules it is changed.
pub(super) struct Standing {
    kube: Kube,
    environment: String,
    policy: SyncPolicy,
    ledger: Ledger,
}

impl Standing {
    pub fn of(args: &Args, kube: Kube, environment: &str) -> Self {
        let namespace = args.live.namespace.clone().unwrap_or_else(|| kube.namespace().to_owned());
        let owner = Owner::new(&args.live.installation, environment);
        let ledger = Ledger::of(&owner, &namespace, Provisioner::default());
        Self { kube, environment: environment.to_owned(), policy: policy(args), ledger }
    }

    /// Asks before anything is known of the cluster.
    pub async fn ask(
        args: &Args,
        commits: &Commits,
        agreed: Option<Agreed>,
    ) -> Result<Option<Provisioner>, Failure> {
        let kube = Kube::connect(&args.live.address(), args.live.kube_qps).await?;
        let standing = Self::of(args, kube, commits.environment());
        Ok(standing.in_force(commits.provisioner(), agreed).await?)
    }

    /// Who provisioned when a commit was applied last.
    pub async fn recorded(args: &Args, commits: &Commits) -> Result<Option<Provisioner>, Failure> {
        let kube = Kube::connect(&args.live.address(), args.live.kube_qps).await?;
        let standing = Self::of(args, kube, commits.environment());
        Ok(standing.ledger.provisioner(&standing.kube).await?)
    }

    /// Who provisions now: whom a commit has `named`, if that may be applied now or already was, and else who did before.
    /// Nobody, if neither says anything.
    pub async fn in_force(
        &self,
        named: Option<Provisioner>,
        agreed: Option<Agreed>,
    ) -> Result<Option<Provisioner>, KubeError> {
        let former = self.ledger.provisioner(&self.kube).await?;
        let (Some(named), Some(former)) = (named, former) else { return Ok(named.or(former)) };
        let is_agreed = agreed.is_some_and(|agreed| agreed.named == named && agreed.instead_of == former);
        let changes = named == former || is_agreed || self.may_change().await?;
        Ok(Some(if changes { named } else { former }))
    }

    /// Whether the Environment lets a commit change who provisions now.
    async fn may_change(&self) -> Result<bool, KubeError> {
        let object = self.kube.get(Resource::ENVIRONMENT, None, &self.environment).await?;
        let rules = SyncRules::of(object.as_ref());
        Ok(rules.let_provisioner_change(&self.policy, &self.environment, clock::now()))
    }
}

/// Says that a commit waits which has `named` somebody else.
pub(super) fn notice_held(console: &Console, environment: &str, named: Provisioner, stays: Provisioner) {
    console.notice(&format!(
        "the commit has `engine = \"{}\"`, which Environment/{environment} lets nobody apply now: it stays {}",
        named.as_str(),
        stays.as_str(),
    ));
}
