//! What a cloud is asked for: machines and their end, names for them, what classes select and what was made for them.

use std::sync::Arc;

use super::{Hands, Job};
use crate::io::clock;
use crate::io::cloud::{Bought, CloudProvider, Ending, LaunchOrder};
use crate::io::kube::{Kind, KubeError};
use crate::model::action::Action;
use crate::model::claim::NodeClaim;
use crate::model::class::{Holding, NodeClass};
use crate::model::name::{ClaimName, ClassName, Namespace, NodeName, ObjectKey, ProviderId};
use crate::model::observation::{LaunchFailure, Naming, Observation};

impl<P: CloudProvider> Hands<P> {
    pub(super) async fn launch(&self, job: &Job) {
        let Action::Launch { claim: name, options } = &job.action else { return };
        let key = ObjectKey { namespace: Namespace::new(""), name: name.0 };
        // The claim may have been made a moment ago: its real uid is the token by which a repetition is recognised.
        let known = job.claim.as_ref().zip(self.writer.uid_of(Kind::NodeClaim, key));
        let Some((claim, uid)) = known else { return };
        let claim = Arc::new(NodeClaim { uid, ..(**claim).clone() });
        let class = claim.spec.class.name;
        let answer = match &job.class {
            None => {
                let message = format!("there is no {} {class}", claim.spec.class.kind).into();
                Err(LaunchFailure::ClassNotReady { message })
            }
            Some(class) => {
                let order = LaunchOrder { claim, class: class.clone(), options: options.clone() };
                self.provider.launch(order).await
            }
        };
        self.see(match answer {
            Ok(Bought { instance, shortage }) => Observation::Launched { claim: *name, instance, shortage },
            Err(failure) => Observation::LaunchFailed { claim: *name, failure },
        });
    }

    pub(super) async fn terminate(&self, instance: ProviderId) {
        self.see(match self.provider.terminate(instance).await {
            Ok(Ending::UnderWay) => Observation::Terminating { instance },
            Ok(Ending::Gone) => Observation::Terminated { instance },
            Err(error) => Observation::TerminateFailed { instance, message: error.to_string().into() },
        });
    }

    /// Asks the cloud what `class` selects, and writes the answer in its status.
    pub(super) async fn resolve(&self, name: ClassName, class: Option<Arc<NodeClass>>) {
        let Some(class) = class else { return };
        let generation = self.writer.generation_of(Kind::NodeClass, name.0);
        let is_known = match self.provider.resolve(class).await {
            // Another one knows better by now.
            Ok(_) if !self.permit.is_valid() => false,
            Ok(found) => {
                match self.told(self.writer.report_class(name, generation, &found, clock::now()).await) {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::warn!("the status of EC2NodeClass {name} is not written: {error}");
                        false
                    }
                }
            }
            Err(error) => {
                tracing::warn!("what EC2NodeClass {name} selects is not known: {error}");
                false
            }
        };
        self.see(Observation::ClassResolved { class: name, is_known });
    }

    /// Deletes what was made for `class`, and lets it go.
    pub(super) async fn clear(
        &self,
        name: ClassName,
        class: Option<Arc<NodeClass>>,
        holding: Holding,
    ) -> Result<(), KubeError> {
        let Some(class) = class else { return Ok(()) };
        let had_role = holding == Holding::Profiles;
        if had_role && !self.provider.has_belongings() {
            tracing::warn!(
                "EC2NodeClass {name} goes; the instance profiles that were made for it in AWS stay"
            );
        }
        if let Err(error) = self.provider.clear(class, had_role).await {
            self.see(Observation::ClearFailed { class: name, message: error.to_string().into() });
            return Ok(());
        }
        self.told(self.writer.finalize_class(name).await)
    }

    pub(super) async fn name(&self, claim: ClaimName, machine: ProviderId, node: NodeName) {
        let naming = match self.provider.name(machine, node, claim).await {
            Ok(true) => Naming::Done,
            Ok(false) => Naming::NotThere,
            Err(error) => {
                tracing::warn!("machine {} is not named after node {node}: {error}", machine.instance());
                Naming::Failed
            }
        };
        self.see(Observation::MachineNamed { claim, naming });
    }
}
