//! The instance profile that gives machines their role.
//!
//! A profile is made once for a class and role and never changed: another role is another profile, because machines that run
//! keep the one they started with.

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::super::CloudError;
use super::Shared;
use super::signed::{SignedFailure, between};
use crate::api::ec2::spec::ClassSpec;
use crate::api::ec2::tag;
use crate::model::class::NodeClass;

const NAME_CHARS_MAX: usize = 128;
/// So long a profile that was seen is believed to be there; less if EC2 refuses a machine.
const SEEN_AGE_MAX: SignedDuration = SignedDuration::from_mins(15);

/// A profile by name, or why the class has none.
pub(super) enum Profile {
    Ready(String),
    NoSuchRole(String),
}

impl Shared {
    pub(super) async fn profile(
        &self,
        class: &NodeClass,
        spec: &ClassSpec,
        now: Timestamp,
    ) -> Result<Profile, CloudError> {
        if let Some(named) = &spec.instance_profile {
            return Ok(Profile::Ready(named.clone()));
        }
        let role = spec.role.as_deref().unwrap_or_default();
        let name = self.profile_name(class, role);
        let seen = self.memory().profiles.get(&name).copied();
        if seen.is_some_and(|seen| now.duration_since(seen) < SEEN_AGE_MAX) {
            return Ok(Profile::Ready(name));
        }
        // A role may be written with its path, of which IAM wants only the last part.
        let role_name = role.rsplit('/').next().unwrap_or(role);
        match self.ensure_profile(class, spec, &name, role_name).await {
            Ok(()) => {
                self.memory().profiles.insert(name.clone(), now);
                Ok(Profile::Ready(name))
            }
            Err((_, failure)) if failure.code == "NoSuchEntity" => Ok(Profile::NoSuchRole(failure.message)),
            Err((call, failure)) => Err(failure.into_cloud(call, &self.settings.region)),
        }
    }

    fn profile_name(&self, class: &NodeClass, role: &str) -> String {
        let hash = Sha256::digest(format!("{}\n{}\n{role}", self.settings.region, class.name).as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hash[..8]);
        let suffix = format!("_{}", u64::from_be_bytes(first));
        let cluster: String =
            self.settings.cluster.name.chars().take(NAME_CHARS_MAX - suffix.len()).collect();
        format!("{cluster}{suffix}")
    }

    /// Where IAM keeps the profiles of a class.
    fn profile_path(&self, class: &NodeClass) -> String {
        format!("/karpenter/{}/{}/{}/", self.settings.region, self.settings.cluster.name, class.name)
    }

    /// Deletes the profiles that were made for a class, whatever role it had.
    pub(super) async fn delete_profiles_of(&self, class: &NodeClass) -> Result<(), CloudError> {
        let failed = |(call, failure): (_, SignedFailure)| failure.into_cloud(call, &self.settings.region);
        for name in self.profiles_of(class).await.map_err(failed)? {
            self.memory().profiles.remove(&name);
            self.delete_profile(&name).await.map_err(failed)?;
            tracing::info!(profile = name, "Instance profile deleted.");
        }
        Ok(())
    }

    async fn profiles_of(&self, class: &NodeClass) -> Result<Vec<String>, (&'static str, SignedFailure)> {
        let path = self.profile_path(class);
        // The ARN of a profile says both its path and its name; the other ARNs of the answer are those of roles.
        let place = format!(":instance-profile{path}");
        let mut found = Vec::new();
        let mut marker = None;
        loop {
            let mut parameters = vec![("PathPrefix".to_owned(), path.clone())];
            parameters.extend(marker.map(|marker| ("Marker".to_owned(), marker)));
            let answer = self.signed.iam("ListInstanceProfiles", &parameters).await;
            let answer = answer.map_err(|failure| ("ListInstanceProfiles", failure))?;
            let arns = answer.split("<Arn>").skip(1).filter_map(|rest| rest.split_once("</Arn>"));
            let names = arns.filter_map(|(arn, _)| arn.split_once(&place).map(|(_, name)| name));
            found.extend(names.map(str::to_owned));
            marker = between(&answer, "<Marker>", "</Marker>").map(str::to_owned);
            if marker.is_none() {
                return Ok(found);
            }
        }
    }

    async fn delete_profile(&self, name: &str) -> Result<(), (&'static str, SignedFailure)> {
        let named = ("InstanceProfileName".to_owned(), name.to_owned());
        let is_gone = |failure: &SignedFailure| failure.code == "NoSuchEntity";
        let known = match self.signed.iam("GetInstanceProfile", std::slice::from_ref(&named)).await {
            Err(failure) if is_gone(&failure) => return Ok(()),
            answer => answer.map_err(|failure| ("GetInstanceProfile", failure))?,
        };
        // IAM deletes only a profile without a role.
        if let Some(role) = role_of(&known) {
            let parameters = [named.clone(), ("RoleName".into(), role.into())];
            match self.signed.iam("RemoveRoleFromInstanceProfile", &parameters).await {
                Err(failure) if !is_gone(&failure) => return Err(("RemoveRoleFromInstanceProfile", failure)),
                _ => {}
            }
        }
        match self.signed.iam("DeleteInstanceProfile", &[named]).await {
            Err(failure) if !is_gone(&failure) => Err(("DeleteInstanceProfile", failure)),
            _ => Ok(()),
        }
    }

    async fn ensure_profile(
        &self,
        class: &NodeClass,
        spec: &ClassSpec,
        name: &str,
        role: &str,
    ) -> Result<(), (&'static str, SignedFailure)> {
        let named = ("InstanceProfileName".to_owned(), name.to_owned());
        let known = match self.signed.iam("GetInstanceProfile", std::slice::from_ref(&named)).await {
            Ok(answer) => Some(answer),
            Err(failure) if failure.code == "NoSuchEntity" => None,
            Err(failure) => return Err(("GetInstanceProfile", failure)),
        };
        if known.as_deref().and_then(role_of) == Some(role) {
            return Ok(());
        }
        if known.is_none() {
            let cluster = &self.settings.cluster.name;
            let mut parameters = vec![named.clone(), ("Path".into(), self.profile_path(class))];
            let mut tags = spec.tags.clone();
            tags.insert(tag::owned_by(cluster), "owned".into());
            tags.insert(tag::CLUSTER_NAME.into(), cluster.clone());
            tags.insert(tag::CLASS.into(), class.name.to_string());
            tags.insert("topology.kubernetes.io/region".into(), self.settings.region.clone());
            for (at, (key, value)) in tags.into_iter().enumerate() {
                parameters.push((format!("Tags.member.{}.Key", at + 1), key));
                parameters.push((format!("Tags.member.{}.Value", at + 1), value));
            }
            match self.signed.iam("CreateInstanceProfile", &parameters).await {
                Ok(_) => {}
                Err(failure) if failure.code == "EntityAlreadyExists" => {}
                Err(failure) => return Err(("CreateInstanceProfile", failure)),
            }
        }
        let added = [named.clone(), ("RoleName".into(), role.into())];
        let Err(failure) = self.signed.iam("AddRoleToInstanceProfile", &added).await else { return Ok(()) };
        // A profile holds one role. If it is this one, somebody else was first.
        let now = match failure.code == "LimitExceeded" {
            true => self.signed.iam("GetInstanceProfile", &[named]).await.ok(),
            false => None,
        };
        match now.as_deref().and_then(role_of) == Some(role) {
            true => Ok(()),
            false => Err(("AddRoleToInstanceProfile", failure)),
        }
    }
}

/// The role of the profile that IAM tells of.
fn role_of(answer: &str) -> Option<&str> {
    between(answer, "<RoleName>", "</RoleName>")
}
