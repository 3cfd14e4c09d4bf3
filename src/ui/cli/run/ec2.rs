//! What `run --cloud aws` has to know besides the account: which cluster machines join, and who tells of their end.

use tokio::sync::watch;

use crate::api::ec2::Cluster;
use crate::io::cloud::AwsSettings;
use crate::io::kube::joining::Joining;
use crate::model::catalog::CapacitySettings;
use crate::model::owner::Owner;
use crate::ui::exit::Failure;

/// What machines of EC2 are told, and what is kept for them. The names in the environment are those of Karpenter.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Machines of EC2")]
pub struct Ec2Args {
    /// The cluster's name: machines of the account that carry it are ours, and those without a claim are ended
    #[arg(long, value_name = "NAME", env = "CLUSTER_NAME")]
    cluster_name: Option<String>,
    /// Where machines reach the API server; by default where the kubeconfig does
    #[arg(long, value_name = "URL", env = "CLUSTER_ENDPOINT")]
    cluster_endpoint: Option<String>,
    /// By what machines recognise the API server, PEM in base64; by default the kubeconfig's authority
    #[arg(long, value_name = "BASE64", env = "CLUSTER_CA_BUNDLE")]
    cluster_ca_bundle: Option<String>,
    /// The addresses of Services; by default those of the cluster's ServiceCIDR
    #[arg(long, value_name = "CIDR", env = "CLUSTER_SERVICE_CIDR")]
    cluster_service_cidr: Option<String>,
    /// The name of the SQS queue that tells when machines are taken back; without it nobody does
    #[arg(long, value_name = "NAME", env = "INTERRUPTION_QUEUE")]
    interruption_queue: Option<String>,
    /// What the hypervisor takes of the memory that EC2 advertises, as a fraction
    #[arg(long, value_name = "N", env = "VM_MEMORY_OVERHEAD_PERCENT", default_value = "0.075", value_parser = fraction)]
    vm_memory_overhead_percent: u32,
    /// Network interfaces of each machine that pods may not use
    #[arg(long, value_name = "N", env = "RESERVED_ENIS", default_value_t = 0)]
    reserved_enis: u32,
}

/// In hundredths of a percent.
fn fraction(text: &str) -> Result<u32, String> {
    let number: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    if (0.0..1.0).contains(&number) {
        Ok((number * 10_000.0).round() as u32)
    } else {
        Err("it is not between 0 and 1".into())
    }
}

impl Ec2Args {
    /// What the command line says, and for the rest what the API server said. Everything that is missing is told at once.
    pub(super) fn settings(
        &self,
        owner: Owner,
        region: &str,
        (joining, version): (Joining, watch::Receiver<String>),
        is_in_cluster: bool,
    ) -> Result<AwsSettings, Failure> {
        let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        let mut missing = Vec::new();
        let mut need = |value: Option<String>, why: &str| {
            value.unwrap_or_else(|| {
                missing.push(why.to_owned());
                String::new()
            })
        };
        let name = need(given(&self.cluster_name), "--cluster-name NAME: machines are known by it");
        // A pod reaches the API server by an address that machines cannot use before they have joined.
        let own = Some(joining.endpoint).filter(|_| !is_in_cluster);
        let endpoint = need(
            given(&self.cluster_endpoint).or(own),
            "--cluster-endpoint URL: machines do not reach the address that pods use",
        );
        let ca_bundle = need(
            given(&self.cluster_ca_bundle).or(joining.ca_bundle),
            "--cluster-ca-bundle BASE64: the kubeconfig names no authority",
        );
        if !missing.is_empty() {
            let message = format!("machines of EC2 need {}", missing.join(", and "));
            return Err(Failure::usage(message).help("Each can be set in the environment too; see --help."));
        }
        let is_absolute =
            endpoint.parse::<http::Uri>().is_ok_and(|url| url.scheme().is_some() && url.host().is_some());
        if !is_absolute {
            let message = format!("the cluster endpoint `{endpoint}` is no absolute URL");
            return Err(Failure::usage(message)
                .help("It looks like https://0123ABCD.gr7.eu-west-1.eks.amazonaws.com."));
        }
        Ok(AwsSettings {
            owner,
            region: region.to_owned(),
            cluster: Cluster {
                name,
                endpoint,
                ca_bundle,
                service_cidr: given(&self.cluster_service_cidr).or(joining.service_cidr),
                dns: joining.dns,
            },
            version,
            queue: given(&self.interruption_queue),
            capacity: CapacitySettings {
                vm_memory_overhead: self.vm_memory_overhead_percent,
                reserved_enis: self.reserved_enis,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ec2: Ec2Args,
    }

    fn settings(words: &[&str], is_in_cluster: bool) -> Result<AwsSettings, Failure> {
        let joining = Joining {
            endpoint: "https://10.0.0.1:6443".into(),
            ca_bundle: Some("Y2E=".into()),
            service_cidr: Some("10.96.0.0/12".into()),
            dns: None,
            version: "1.36".into(),
        };
        let line = Line::try_parse_from([&["x"], words].concat()).expect("a command line");
        let version = watch::channel(joining.version.clone()).1;
        line.ec2.settings(Owner::new("provisor", "dev"), "us-east-1", (joining, version), is_in_cluster)
    }

    #[test]
    fn what_is_not_said_is_the_clusters_own() {
        let found = settings(&["--cluster-name", "east"], false).expect("enough");
        assert_eq!(found.cluster.endpoint, "https://10.0.0.1:6443");
        assert_eq!(found.cluster.service_cidr.as_deref(), Some("10.96.0.0/12"));
        assert_eq!(found.capacity, CapacitySettings::default());
        let more = [
            "--cluster-name",
            "east",
            "--cluster-service-cidr",
            "10.1.0.0/16",
            "--vm-memory-overhead-percent",
            "0.1",
        ];
        let found = settings(&more, false).expect("enough");
        assert_eq!(found.cluster.service_cidr.as_deref(), Some("10.1.0.0/16"));
        assert_eq!(found.capacity.vm_memory_overhead, 1_000);
        assert!(found.queue.is_none());
    }

    #[test]
    fn everything_that_is_missing_is_told_at_once() {
        let message = settings(&[], true).expect_err("too little").message;
        assert!(message.contains("--cluster-name") && message.contains("--cluster-endpoint"), "{message}");
        let wrong = settings(&["--cluster-name", "east", "--cluster-endpoint", "api.east"], true);
        assert!(wrong.expect_err("no URL").message.contains("no absolute URL"));
        assert!(Line::try_parse_from(["x", "--vm-memory-overhead-percent", "7.5"]).is_err());
    }
}
