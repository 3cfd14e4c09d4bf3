//! Which machine image boots which machine: aliases as parameters that AWS publishes, and the choice among what is found.
//!
//! Of all images that suit the same machines one is kept. A list in which two would do is a list whose order decides, and
//! nobody reviews an order.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::class::Image;
use crate::model::label;
use crate::model::offering::InstanceType;
use crate::model::requirement::{Operator, Requirement, Requirements};
use crate::model::symbol::Symbol;

const GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
const ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";

/// What an image was made for beside its architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    Standard,
    Nvidia,
    Neuron,
}

/// One public parameter of Systems Manager whose value is an image, and the machines that the image is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasParameter {
    pub name: String,
    /// `amd64` or `arm64`.
    pub arch: &'static str,
    pub variants: Vec<Variant>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AliasError {
    #[error("`{0}` is not an alias; write family@version, such as al2023@latest")]
    Malformed(String),
    #[error("there are no AL2 images for Kubernetes {0}, which is 1.33 or newer; use al2023@latest")]
    Al2TooOld(String),
    #[error("there are no Windows 2025 images for Kubernetes {0}, which is older than 1.35")]
    Windows2025TooNew(String),
    #[error("`{0}` is none of the families of images that AWS publishes")]
    UnknownFamily(String),
}

/// The parameters that `alias` stands for under Kubernetes `version` (`major.minor`).
pub fn alias_parameters(alias: &str, version: &str) -> Result<Vec<AliasParameter>, AliasError> {
    use Variant::{Neuron, Nvidia, Standard};
    let malformed = || AliasError::Malformed(alias.into());
    let (family, release) = alias.split_once('@').ok_or_else(malformed)?;
    let is_latest = release == "latest";
    let release =
        release.strip_prefix('v').filter(|_| family != "al2" && family != "al2023").unwrap_or(release);
    let minor = minor_of(version);
    let one =
        |name: String, arch, variants: &[Variant]| AliasParameter { name, arch, variants: variants.to_vec() };
    match family {
        "al2" if minor >= 33 => Err(AliasError::Al2TooOld(version.into())),
        "al2" => Ok([
            ("", "amd64", &[Standard][..]),
            ("-arm64", "arm64", &[Standard]),
            ("-gpu", "amd64", &[Nvidia, Neuron]),
        ]
        .map(|(suffix, arch, variants)| {
            let of_release = match is_latest {
                true => "recommended".to_owned(),
                false => format!("amazon-eks{suffix}-node-{version}-{release}"),
            };
            let folder = format!("/aws/service/eks/optimized-ami/{version}/amazon-linux-2{suffix}");
            one(format!("{folder}/{of_release}/image_id"), arch, variants)
        })
        .to_vec()),
        "al2023" => Ok([
            ("x86_64", "standard", "amd64", Standard),
            ("x86_64", "nvidia", "amd64", Nvidia),
            ("x86_64", "neuron", "amd64", Neuron),
            ("arm64", "standard", "arm64", Standard),
            ("arm64", "nvidia", "arm64", Nvidia),
        ]
        .map(|(machine, variant, arch, serves)| {
            let of_release = match is_latest {
                true => "recommended".to_owned(),
                false => format!("amazon-eks-node-al2023-{machine}-{variant}-{version}-{release}"),
            };
            let folder =
                format!("/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{machine}/{variant}");
            one(format!("{folder}/{of_release}/image_id"), arch, &[serves])
        })
        .to_vec()),
        "bottlerocket" => Ok([
            ("", "x86_64", "amd64", &[Standard, Neuron][..]),
            ("", "arm64", "arm64", &[Standard]),
            ("-nvidia", "x86_64", "amd64", &[Nvidia]),
            ("-nvidia", "arm64", "arm64", &[Nvidia]),
        ]
        .map(|(suffix, machine, arch, variants)| {
            let folder = format!("/aws/service/bottlerocket/aws-k8s-{version}{suffix}/{machine}");
            one(format!("{folder}/{release}/image_id"), arch, variants)
        })
        .to_vec()),
        "windows2025" if minor < 35 => Err(AliasError::Windows2025TooNew(version.into())),
        "windows2019" | "windows2022" | "windows2025" => {
            let year = family.trim_start_matches("windows");
            let name = format!(
                "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{version}/image_id"
            );
            Ok(vec![one(name, "amd64", &[Standard])])
        }
        _ => Err(AliasError::UnknownFamily(family.into())),
    }
}

fn minor_of(version: &str) -> u32 {
    version.split('.').nth(1).and_then(|minor| minor.trim_end_matches('+').parse().ok()).unwrap_or(0)
}

/// The machines that an image of this architecture and variant is for; `None`: any of the architecture.
pub fn requirements(arch: &str, variant: Option<Variant>) -> Requirements {
    let mut requirements = Requirements::new();
    requirements.add(*label::ARCH, Requirement::one(arch.into()));
    let mut add = |key: &str, operator| {
        requirements.add(Symbol::new(key), Requirement::new(operator, []));
    };
    match variant {
        None => {}
        Some(Variant::Standard) => {
            add(GPU_COUNT, Operator::DoesNotExist);
            add(ACCELERATOR_COUNT, Operator::DoesNotExist);
        }
        Some(Variant::Nvidia) => add(GPU_COUNT, Operator::Exists),
        Some(Variant::Neuron) => add(ACCELERATOR_COUNT, Operator::Exists),
    }
    requirements
}

/// An image as EC2 describes it, and one kind of machine that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub id: String,
    pub name: String,
    pub created: Option<Timestamp>,
    pub deprecated: Option<Timestamp>,
    pub arch: &'static str,
    pub variant: Option<Variant>,
}

impl Candidate {
    pub fn is_deprecated(&self, now: Timestamp) -> bool {
        self.deprecated.is_some_and(|at| at <= now)
    }
}

/// The architecture of an image by Kubernetes' name; `None` for one that no node has.
pub fn arch_of(ec2_name: &str) -> Option<&'static str> {
    match ec2_name {
        "x86_64" => Some("amd64"),
        "arm64" => Some("arm64"),
        _ => None,
    }
}

/// One image for each kind of machine, newest first, equal ones by id.
///
/// One that is not deprecated beats one that is, then the newer, then the greater name.
pub fn choose(candidates: Vec<Candidate>, now: Timestamp) -> Vec<Image> {
    let mut best: BTreeMap<(&'static str, Option<Variant>), Candidate> = BTreeMap::new();
    for candidate in candidates {
        let rank = |image: &Candidate| {
            (
                !image.is_deprecated(now),
                image.created,
                image.name.clone(),
                std::cmp::Reverse(image.id.clone()),
            )
        };
        match best.get(&(candidate.arch, candidate.variant)) {
            Some(known) if rank(known) >= rank(&candidate) => {}
            _ => drop(best.insert((candidate.arch, candidate.variant), candidate)),
        }
    }
    let mut chosen: Vec<Candidate> = best.into_values().collect();
    chosen.sort_by(|a, b| {
        b.created
            .cmp(&a.created)
            .then_with(|| a.id.cmp(&b.id))
            .then_with(|| (a.arch, a.variant).cmp(&(b.arch, b.variant)))
    });
    chosen
        .iter()
        .map(|image| Image {
            id: Symbol::new(&image.id),
            name: Symbol::new(&image.name),
            is_deprecated: image.is_deprecated(now),
            requirements: requirements(image.arch, image.variant),
        })
        .collect()
}

/// The first image that boots `kind`.
pub fn image_for<'a>(images: &'a [Image], kind: &InstanceType) -> Option<&'a Image> {
    images.iter().find(|image| kind.requirements.intersects(&image.requirements).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::catalog::Catalog;

    fn now() -> Timestamp {
        "2026-06-01T00:00:00Z".parse().expect("a time")
    }

    fn image(id: &str, name: &str, created: &str, deprecated: Option<&str>) -> Candidate {
        let time = |text: &str| text.parse().expect("a time");
        Candidate {
            id: id.into(),
            name: name.into(),
            created: Some(time(created)),
            deprecated: deprecated.map(time),
            arch: "amd64",
            variant: None,
        }
    }

    fn ids(candidates: &[Candidate]) -> Vec<String> {
        choose(candidates.to_vec(), now()).iter().map(|image| image.id.to_string()).collect()
    }

    #[test]
    fn aws_228_al2_ends_with_kubernetes_1_32() {
        assert!(alias_parameters("al2@latest", "1.32").is_ok());
        for version in ["1.33", "1.34"] {
            assert_eq!(alias_parameters("al2@latest", version), Err(AliasError::Al2TooOld(version.into())));
        }
        assert!(alias_parameters("al2023@latest", "1.33").is_ok());
    }

    #[test]
    fn aws_229_windows_2025_begins_with_kubernetes_1_35() {
        let error = alias_parameters("windows2025@latest", "1.34").expect_err("too early");
        assert!(error.to_string().contains("1.35"));
        assert_eq!(alias_parameters("windows2025@latest", "1.35").map(|found| found.len()), Ok(1));
    }

    #[test]
    fn aliases_stand_for_the_parameters_that_aws_publishes() {
        let names = |alias: &str, version: &str| -> Vec<String> {
            alias_parameters(alias, version)
                .expect("a known alias")
                .into_iter()
                .map(|parameter| format!("{} {} {:?}", parameter.name, parameter.arch, parameter.variants))
                .collect()
        };
        let latest = names("al2023@latest", "1.34");
        let folder = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023";
        assert_eq!(latest[0], format!("{folder}/x86_64/standard/recommended/image_id amd64 [Standard]"));
        assert_eq!(latest[4], format!("{folder}/arm64/nvidia/recommended/image_id arm64 [Nvidia]"));
        assert_eq!(
            names("al2023@v20250101", "1.34")[1],
            format!(
                "{folder}/x86_64/nvidia/amazon-eks-node-al2023-x86_64-nvidia-1.34-v20250101/image_id amd64 [Nvidia]"
            )
        );
        assert_eq!(
            names("bottlerocket@v1.40.0", "1.34"),
            [
                "/aws/service/bottlerocket/aws-k8s-1.34/x86_64/1.40.0/image_id amd64 [Standard, Neuron]",
                "/aws/service/bottlerocket/aws-k8s-1.34/arm64/1.40.0/image_id arm64 [Standard]",
                "/aws/service/bottlerocket/aws-k8s-1.34-nvidia/x86_64/1.40.0/image_id amd64 [Nvidia]",
                "/aws/service/bottlerocket/aws-k8s-1.34-nvidia/arm64/1.40.0/image_id arm64 [Nvidia]",
            ]
        );
        assert_eq!(
            names("al2@latest", "1.30")[2],
            "/aws/service/eks/optimized-ami/1.30/amazon-linux-2-gpu/recommended/image_id amd64 [Nvidia, Neuron]"
        );
        assert!(matches!(alias_parameters("ubuntu@latest", "1.34"), Err(AliasError::UnknownFamily(_))));
    }

    /// Rows: AWS-234, AWS-235, AWS-236
    #[test]
    fn of_images_for_the_same_machines_the_best_is_kept() {
        let (old, new) = ("2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
        let (past, future) = (Some("2026-02-01T00:00:00Z"), Some("2027-01-01T00:00:00Z"));
        assert_eq!(ids(&[image("ami-1", "a", new, past), image("ami-2", "a", old, None)]), ["ami-2"]);
        assert_eq!(ids(&[image("ami-1", "a", new, past), image("ami-2", "a", new, future)]), ["ami-2"]);
        assert_eq!(ids(&[image("ami-1", "a", new, None), image("ami-2", "b", new, None)]), ["ami-2"]);
        assert_eq!(ids(&[image("ami-1", "a", old, past), image("ami-2", "a", new, past)]), ["ami-2"]);
    }

    #[test]
    fn aws_244_the_list_is_newest_first_and_then_by_id() {
        let on = |mut candidate: Candidate, arch, variant| {
            candidate.arch = arch;
            candidate.variant = variant;
            candidate
        };
        let (old, new) = ("2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
        let mut candidates = vec![
            on(image("ami-3", "a", old, None), "amd64", Some(Variant::Standard)),
            on(image("ami-2", "a", new, None), "arm64", Some(Variant::Standard)),
            on(image("ami-1", "a", new, None), "amd64", Some(Variant::Nvidia)),
        ];
        assert_eq!(ids(&candidates), ["ami-1", "ami-2", "ami-3"]);
        candidates.reverse();
        assert_eq!(ids(&candidates), ["ami-1", "ami-2", "ami-3"]);
    }

    #[test]
    fn a_machine_gets_the_image_made_for_it() {
        let variants = [
            ("ami-s", Some(Variant::Standard)),
            ("ami-g", Some(Variant::Nvidia)),
            ("ami-n", Some(Variant::Neuron)),
        ];
        let candidates = variants
            .map(|(id, variant)| Candidate { variant, ..image(id, id, "2026-01-01T00:00:00Z", None) });
        let images = choose(candidates.to_vec(), now());
        let catalog = Catalog::builtin("us-east-1").expect("a built-in region");
        let types = catalog.instance_types(None);
        let of = |name: &str| {
            let kind = types.iter().find(|kind| kind.name.as_str() == name).expect("a type of the region");
            image_for(&images, kind).map(|image| image.id.as_str())
        };
        assert_eq!(of("m5.large"), Some("ami-s"));
        assert_eq!(of("g4dn.8xlarge"), Some("ami-g"));
        assert_eq!(of("inf2.xlarge"), Some("ami-n"));
        assert_eq!(of("c6g.large"), None, "no image is of arm64");
    }
}
