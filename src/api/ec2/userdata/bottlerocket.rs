//! Bottlerocket: one TOML document, in which our settings replace those of the same name.

use toml::{Table, Value};

use super::{Boot, UserDataError};

/// Images from this version on know where local disks are mounted.
const DEFAULT_BIND_SINCE: (u32, u32, u32) = (1, 46, 0);
const BOUND_FOLDERS: [&str; 3] = ["/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"];

pub(super) fn render(boot: &Boot<'_>, own: &str) -> Result<String, UserDataError> {
    let mut document: Table =
        own.parse().map_err(|error: toml::de::Error| UserDataError::Toml(error.message().to_owned()))?;
    let settings = table(&mut document, "settings")?;
    if boot.uses_raid() {
        let commands = table(settings, "bootstrap-commands")?;
        commands.insert("000-mount-instance-storage".into(), mount_instance_storage(boot).into());
    }
    let kubernetes = table(settings, "kubernetes")?;
    join(boot, kubernetes);
    set_kubelet(boot, kubernetes);
    let labels = table(kubernetes, "node-labels")?;
    for (key, value) in &boot.labels {
        labels.insert(key.to_string(), value.as_str().into());
    }
    // Taints are replaced: two that disagree on one key would leave it to chance which of them holds.
    let mut taints = Table::new();
    for taint in &boot.taints {
        let text = format!("{}:{}", taint.value, taint.effect.as_str());
        match taints.get_mut(taint.key.as_str()) {
            Some(Value::Array(effects)) => effects.push(text.into()),
            _ => drop(taints.insert(taint.key.to_string(), vec![text].into())),
        }
    }
    kubernetes.insert("node-taints".into(), taints.into());
    toml::to_string(&document).map_err(|error| UserDataError::Merge(error.to_string()))
}

fn table<'a>(parent: &'a mut Table, key: &str) -> Result<&'a mut Table, UserDataError> {
    let value = parent.entry(key.to_owned()).or_insert_with(|| Table::new().into());
    value.as_table_mut().ok_or_else(|| UserDataError::Merge(format!("`{key}` is not a table")))
}

fn join(boot: &Boot<'_>, kubernetes: &mut Table) {
    let cluster = boot.cluster;
    kubernetes.insert("cluster-name".into(), cluster.name.as_str().into());
    kubernetes.insert("api-server".into(), cluster.endpoint.as_str().into());
    kubernetes.insert("cluster-certificate".into(), cluster.ca_bundle.as_str().into());
    kubernetes.insert("max-pods".into(), boot.max_pods.into());
}

fn set_kubelet(boot: &Boot<'_>, kubernetes: &mut Table) {
    let kubelet = boot.kubelet();
    let dns = kubelet.get("clusterDNS").and_then(|list| list.get(0)).and_then(|address| address.as_str());
    if let Some(dns) = dns {
        kubernetes.insert("cluster-dns-ip".into(), dns.into());
    }
    let maps = [
        ("systemReserved", "system-reserved"),
        ("kubeReserved", "kube-reserved"),
        ("evictionHard", "eviction-hard"),
        ("evictionSoft", "eviction-soft"),
        ("evictionSoftGracePeriod", "eviction-soft-grace-period"),
    ];
    for (from, to) in maps {
        let Some(entries) = kubelet.get(from).and_then(|value| value.as_object()) else { continue };
        let mut map = Table::new();
        for (key, value) in entries {
            map.insert(key.clone(), text(value).into());
        }
        if !map.is_empty() {
            kubernetes.insert(to.into(), map.into());
        }
    }
    if let Some(seconds) = kubelet.get("evictionMaxPodGracePeriod").and_then(|value| value.as_i64()) {
        kubernetes.insert("eviction-max-pod-grace-period".into(), seconds.into());
    }
    let percentages = [
        ("imageGCHighThresholdPercent", "image-gc-high-threshold-percent"),
        ("imageGCLowThresholdPercent", "image-gc-low-threshold-percent"),
    ];
    for (from, to) in percentages {
        if let Some(value) = kubelet.get(from) {
            kubernetes.insert(to.into(), text(value).into());
        }
    }
    if let Some(is_enforced) = kubelet.get("cpuCFSQuota").and_then(|value| value.as_bool()) {
        kubernetes.insert("cpu-cfs-quota-enforced".into(), is_enforced.into());
    }
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn mount_instance_storage(boot: &Boot<'_>) -> Table {
    let words = |words: &[&str]| Value::Array(words.iter().map(|word| (*word).into()).collect());
    let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
    if !boot.image_version.as_deref().is_some_and(binds_by_default) {
        bind.push("--dirs");
        bind.extend(BOUND_FOLDERS);
    }
    let commands = vec![words(&["apiclient", "ephemeral-storage", "init"]), words(&bind)];
    let mut command = Table::new();
    command.insert("commands".into(), commands.into());
    command.insert("mode".into(), "always".into());
    command.insert("essential".into(), true.into());
    command
}

/// Whether an image of `version` knows by itself what to bind; one of an unreadable version is taken to be old.
fn binds_by_default(version: &str) -> bool {
    if version == "latest" {
        return true;
    }
    let mut numbers =
        version.strip_prefix('v').unwrap_or(version).splitn(3, '.').map(|part| part.parse::<u32>().ok());
    let mut next = || numbers.next().flatten();
    match (next(), next(), next()) {
        (Some(major), Some(minor), Some(patch)) => (major, minor, patch) >= DEFAULT_BIND_SINCE,
        _ => false,
    }
}

/// The version of a Bottlerocket image by what selects it: an alias says it, else the name of the image does.
pub fn image_version(alias: Option<&str>, image_name: &str) -> Option<String> {
    if let Some(version) = alias.and_then(|alias| alias.strip_prefix("bottlerocket@")) {
        return Some(version.trim_start_matches('v').to_owned());
    }
    // Such as bottlerocket-aws-k8s-1.34-x86_64-v1.40.0-1a2b3c4d.
    image_name.split('-').find_map(|word| {
        let version = word.strip_prefix('v')?;
        (version.split('.').count() == 3).then(|| version.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_255_new_images_bind_by_themselves() {
        for old in ["1.45.0", "v1.45.0", "1.9.0", "", "1", "1.46", "invalid", "abc.def.ghi"] {
            assert!(!binds_by_default(old), "{old}");
        }
        for new in ["1.46.0", "v1.46.0", "1.47.0", "2.0.0", "latest"] {
            assert!(binds_by_default(new), "{new}");
        }
    }

    #[test]
    fn aws_254_the_version_is_in_the_alias_or_the_name() {
        let of = |alias: Option<&str>, name: &str| image_version(alias, name);
        assert_eq!(of(Some("bottlerocket@v1.45.0"), "").as_deref(), Some("1.45.0"));
        assert_eq!(of(Some("bottlerocket@latest"), "x").as_deref(), Some("latest"));
        let name = "bottlerocket-aws-k8s-1.34-x86_64-v1.40.0-1a2b3c4d";
        assert_eq!(of(None, name).as_deref(), Some("1.40.0"));
        assert_eq!(of(None, "my own image"), None);
    }
}
