//! `spec.kubelet` of a node class: the API server stores any map, so everything here is found by the controller
//! (aws.md 1.4).

// Only how an address is written: nothing is asked of a network.
use core::net::IpAddr;
use std::collections::BTreeMap;

use super::field::{Field, FieldError, Findings, Stage};
use crate::model::class::{AmiFamily, EvictionThreshold, KubeletSettings, NodeClass};
use crate::model::near::nearest;
use crate::model::quantity::Quantity;
use crate::model::symbol::Symbol;

const RESERVED_KEYS: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
const SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];

/// What we act upon ourselves; the rest is handed to the kubelet as it stands.
const MANAGED: [&str; 12] = [
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
];

/// Why machines of a class would not get the kubelet that it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeletError {
    /// No kubelet would start with it.
    #[error("{0}")]
    Invalid(Symbol),
    /// A text that Karpenter would take for an expression, behind a gate that is off.
    #[error("{0}")]
    Expression(Symbol),
    /// Images of the class's family cannot hand it to theirs.
    #[error("{0}")]
    Unsupported(Symbol),
}

/// Whether machines of `class` would get the kubelet that it asks for. The API server stores any map: this is for classes that did not come out
/// of a repository.
pub fn check_kubelet(class: &NodeClass) -> Result<(), KubeletError> {
    let check = |look: &dyn Fn(&Field<'_, '_>)| {
        let findings = Findings::default();
        look(&Field::root(&class.spec, &findings).get("kubelet"));
        findings.told(Stage::Runtime).map_or(Ok(()), Err)
    };
    check(&|kubelet| {
        read_settings(kubelet);
        check_start(kubelet);
    })
    .map_err(KubeletError::Invalid)?;
    check(&check_expressions).map_err(KubeletError::Expression)?;
    check(&|kubelet| check_family(kubelet, Some(class.ami_family))).map_err(KubeletError::Unsupported)
}

/// Reads the settings and notes what the kubelet, or the image family, cannot do.
pub(crate) fn read(kubelet: &Field<'_, '_>, family: Option<AmiFamily>) -> KubeletSettings {
    let settings = read_settings(kubelet);
    check_family(kubelet, family);
    settings
}

/// What in `kubelet` of the `spec` of a class has the right form, and no kubelet could do anything with; paths are those below `spec`.
pub fn unusable_in_kubelet(spec: &serde_json::Value) -> Vec<FieldError> {
    let findings = Findings::default();
    check_start(&Field::root(spec, &findings).get("kubelet"));
    findings.into_errors()
}

/// What a kubelet uses where one of the two is not said.
const GC_DEFAULTS: (i64, i64) = (85, 80);
/// An empty text stands for the first.
const POLICIES: [(&str, &[&str]); 4] = [
    ("cpuManagerPolicy", &["none", "static"]),
    ("memoryManagerPolicy", &["None", "Static"]),
    ("topologyManagerPolicy", &["none", "best-effort", "restricted", "single-numa-node"]),
    ("topologyManagerScope", &["container", "pod"]),
];
/// Numbers of 64 bits; all others have 32.
const LONG: [&str; 2] = ["podPidsLimit", "maxOpenFiles"];

/// What has the right form, and with what no kubelet starts, or none joins.
fn check_start(kubelet: &Field<'_, '_>) {
    let whole = |key: &str| kubelet.get(key).value().and_then(serde_json::Value::as_i64);
    for (key, field) in kubelet.entries() {
        if let Some(number) =
            whole(key).filter(|number| *number > i64::from(i32::MAX) && !LONG.contains(&key))
        {
            field.runtime_error(format!("{key} is {number}, which is more than a kubelet can count"));
        }
    }
    let (over, under) = ("imageGCHighThresholdPercent", "imageGCLowThresholdPercent");
    let [high, low] = [over, under].map(|key| whole(key).filter(|share| (0..=100).contains(share)));
    if high.is_some() != low.is_some() && high.unwrap_or(GC_DEFAULTS.0) <= low.unwrap_or(GC_DEFAULTS.1) {
        kubelet.get(if high.is_some() { over } else { under }).runtime_error(format!(
            "{over}, {}, must be above {under}, {}; the kubelet's own are {} and {}",
            high.unwrap_or(GC_DEFAULTS.0),
            low.unwrap_or(GC_DEFAULTS.1),
            GC_DEFAULTS.0,
            GC_DEFAULTS.1
        ));
    }
    for table in ["evictionHard", "evictionSoft"] {
        for (signal, value) in entries(&kubelet.get(table)) {
            let amount = value.value().and_then(|value| value.as_str()?.parse::<Quantity>().ok());
            if amount.is_some_and(|amount| amount.millis() == 0) {
                let help = Some("write \"0%\" for none".to_owned());
                value.note(
                    Stage::Runtime,
                    format!("{signal} of {table} is nothing, which is no threshold"),
                    help,
                );
            }
        }
    }
    for (key, known) in POLICIES {
        let field = kubelet.get(key);
        if let Some(text) = field
            .value()
            .and_then(|value| value.as_str())
            .filter(|text| !text.is_empty() && !known.contains(text))
        {
            field.runtime_error(format!("{key} is \"{text}\", and may be {}", known.join(", ")));
        }
    }
    let joins = kubelet.get("registerNode");
    if joins.value() == Some(&serde_json::Value::Bool(false)) {
        joins.runtime_error("registerNode is false, so the machine would never become a node".into());
    }
    for server in kubelet.get("clusterDNS").items() {
        let text = server.value().and_then(|value| value.as_str());
        if let Some(text) = text.filter(|text| text.parse::<IpAddr>().is_err()) {
            let help = Some("write it like \"10.100.0.10\"".to_owned());
            server.note(Stage::Runtime, format!("\"{text}\" in `clusterDNS` is not an IP address"), help);
        }
    }
}

/// Texts in the place of numbers and amounts: we evaluate none.
fn check_expressions(kubelet: &Field<'_, '_>) {
    let pods = kubelet.get("maxPods");
    if let Some(text) = pods.value().and_then(|value| value.as_str()) {
        pods.runtime_error(format!("maxPods is \"{text}\", which is not a number of pods"));
    }
    for table in ["kubeReserved", "systemReserved"] {
        for (key, value) in entries(&kubelet.get(table)) {
            let text = value.value().and_then(|value| value.as_str());
            if let Some(text) = text.filter(|text| text.parse::<Quantity>().is_err()) {
                value.runtime_error(format!("{key} of {table} is \"{text}\", which is not an amount"));
            }
        }
    }
}

fn read_settings(kubelet: &Field<'_, '_>) -> KubeletSettings {
    let Some(map) = kubelet.map() else { return KubeletSettings::default() };
    for key in map.keys() {
        schema::check(&kubelet.get(key), key);
    }
    let owned = kubelet.get("registerWithTaints");
    if owned.is_present() {
        owned.note(
            Stage::Runtime,
            "registerWithTaints may not be set: it is written by the provisioner itself".into(),
            Some("set taints on the NodePool".into()),
        );
    }
    let max_pods = kubelet.get("maxPods");
    // Text is an expression, which only the catalogue of instance types can evaluate.
    let max_pods = match max_pods.value() {
        Some(value) if value.is_string() => None,
        _ => not_negative(&max_pods),
    };
    not_negative(&kubelet.get("evictionMaxPodGracePeriod"));
    let high = percentage(&kubelet.get("imageGCHighThresholdPercent"));
    let low = percentage(&kubelet.get("imageGCLowThresholdPercent"));
    if let (Some(high), Some(low)) = (high, low)
        && high <= low
    {
        kubelet.get("imageGCHighThresholdPercent").runtime_error(format!(
            "imageGCHighThresholdPercent is {high}, which is not above imageGCLowThresholdPercent, {low}"
        ));
    }
    let eviction_soft = read_thresholds(&kubelet.get("evictionSoft"));
    read_thresholds(&kubelet.get("evictionMinimumReclaim"));
    check_grace_periods(kubelet);
    KubeletSettings {
        max_pods,
        pods_per_core: not_negative(&kubelet.get("podsPerCore")),
        kube_reserved: read_reserved(&kubelet.get("kubeReserved")),
        system_reserved: read_reserved(&kubelet.get("systemReserved")),
        eviction_hard: read_thresholds(&kubelet.get("evictionHard")),
        eviction_soft,
    }
}

fn check_family(kubelet: &Field<'_, '_>, family: Option<AmiFamily>) {
    if matches!(family, None | Some(AmiFamily::Al2023 | AmiFamily::Custom)) {
        return;
    }
    let help = Some("AL2023 passes every field on; Custom leaves the kubelet to your user data".to_owned());
    for (key, value) in kubelet.entries() {
        if !MANAGED.contains(&key) && schema::is_known(key) && key != "registerWithTaints" {
            value.note(Stage::Runtime, format!("images of this family cannot apply `{key}`"), help.clone());
        }
    }
    let per_core = kubelet.get("podsPerCore");
    if family == Some(AmiFamily::Bottlerocket) && per_core.is_present() {
        per_core.note(Stage::Runtime, "Bottlerocket cannot apply `podsPerCore`".into(), None);
    }
    let dns = kubelet.get("clusterDNS");
    if dns.value().is_some_and(serde_json::Value::is_array) && dns.len() > 1 {
        dns.note(Stage::Runtime, "images of this family take one clusterDNS address".into(), help);
    }
}

fn not_negative(field: &Field<'_, '_>) -> Option<u32> {
    let number = field.value()?.as_i64()?;
    if number < 0 {
        field.runtime_error(format!("{} must be 0 or more, but it is {number}", name_of(field)));
    }
    u32::try_from(number).ok()
}

fn percentage(field: &Field<'_, '_>) -> Option<i64> {
    let number = field.value()?.as_i64()?;
    if !(0..=100).contains(&number) {
        field.runtime_error(format!("{} must be from 0 to 100, but it is {number}", name_of(field)));
        return None;
    }
    Some(number)
}

fn name_of(field: &Field<'_, '_>) -> String {
    let path = field.path();
    path.rsplit('.').next().unwrap_or_default().to_owned()
}

/// Amounts kept from pods. Text that is no quantity is an expression, which is evaluated per instance type.
fn read_reserved(map: &Field<'_, '_>) -> BTreeMap<Symbol, Quantity> {
    let mut reserved = BTreeMap::new();
    for (key, value) in entries(map) {
        if !RESERVED_KEYS.contains(&key) {
            let help = Some(format!("it is one of {}", RESERVED_KEYS.join(", ")));
            value.note_key(Stage::Runtime, format!("`{key}` cannot be reserved"), help);
        }
        let Some(text) = value.value().and_then(serde_json::Value::as_str) else { continue };
        if text.starts_with('-') {
            value.runtime_error(format!("`{text}` is negative"));
        } else if let Ok(quantity) = text.parse::<Quantity>() {
            reserved.insert(Symbol::new(key), quantity);
        }
    }
    reserved
}

fn read_thresholds(map: &Field<'_, '_>) -> BTreeMap<Symbol, EvictionThreshold> {
    let mut thresholds = BTreeMap::new();
    for (key, value) in entries(map) {
        check_signal(&value, key);
        let Some(text) = value.value().and_then(serde_json::Value::as_str) else { continue };
        match parse_threshold(text) {
            Some(threshold) => {
                thresholds.insert(Symbol::new(key), threshold);
            }
            None => value.note(
                Stage::Runtime,
                format!("`{text}` is neither an amount nor a percentage"),
                Some("write it like 100Mi or 5%, up to 100%".into()),
            ),
        }
    }
    thresholds
}

fn parse_threshold(text: &str) -> Option<EvictionThreshold> {
    let Some(share) = text.strip_suffix('%') else {
        let quantity = text.parse::<Quantity>().ok()?;
        return (!quantity.is_negative()).then_some(EvictionThreshold::Amount(quantity));
    };
    // A share in hundredths of a percent; `Quantity` reads the decimal exactly.
    let is_decimal = share.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let thousandths = share.parse::<Quantity>().ok().filter(|_| is_decimal)?.millis();
    let hundredths = u32::try_from(thousandths / 10).ok()?;
    (thousandths <= 100_000).then_some(EvictionThreshold::Share(hundredths))
}

fn check_signal(value: &Field<'_, '_>, key: &str) {
    if !SIGNALS.contains(&key) {
        let help = nearest(key, SIGNALS).map(|near| format!("did you mean `{near}`?"));
        let help = help.or_else(|| Some(format!("it is one of {}", SIGNALS.join(", "))));
        value.note_key(Stage::Runtime, format!("`{key}` is not an eviction signal"), help);
    }
}

/// A soft threshold and a grace period need each other.
fn check_grace_periods(kubelet: &Field<'_, '_>) {
    let (soft, grace) = (kubelet.get("evictionSoft"), kubelet.get("evictionSoftGracePeriod"));
    for (key, value) in entries(&grace) {
        check_signal(&value, key);
        if let Some(text) = value.value().and_then(serde_json::Value::as_str)
            && !is_go_duration(text)
        {
            let help = Some("write it like 1m30s".to_owned());
            value.note(Stage::Runtime, format!("`{text}` is not a duration of zero or more"), help);
        }
        if !soft.get(key).is_present() {
            value.runtime_error(format!(
                "`{key}` has a grace period, but evictionSoft has no threshold for it"
            ));
        }
    }
    for (key, value) in entries(&soft) {
        if !grace.get(key).is_present() {
            value.runtime_error(format!(
                "`{key}` has a threshold, but evictionSoftGracePeriod has none for it"
            ));
        }
    }
}

/// The entries of what should be a map; whether it is one was checked before.
fn entries<'s, 'v>(map: &'s Field<'_, 'v>) -> Vec<(&'v str, Field<'s, 'v>)> {
    match map.value() {
        Some(serde_json::Value::Object(_)) => map.entries().collect(),
        _ => Vec::new(),
    }
}

/// Groups of a decimal number and one of ns, us, µs, ms, s, m, h; or a bare zero.
fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut groups = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let is_number = number.bytes().any(|byte| byte.is_ascii_digit()) && number.matches('.').count() <= 1;
        let unit = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        let unit = unit.into_iter().filter(|unit| tail.starts_with(unit)).max_by_key(|unit| unit.len());
        let (true, Some(unit)) = (is_number, unit) else { return false };
        rest = &tail[unit.len()..];
        groups += 1;
    }
    groups > 0
}

/// The kubelet's own configuration, `kubelet.config.k8s.io/v1beta1`: which fields there are and of which type.
mod schema {
    use serde_json::Value;

    use super::super::field::{Field, Stage};
    use crate::model::near::nearest;

    enum Type {
        Text,
        Whole,
        Number,
        Flag,
        Texts,
        /// A map of texts.
        TextMap,
        /// A map of booleans.
        FlagMap,
        /// Seconds and units, as text.
        Duration,
        Record(&'static [(&'static str, Type)]),
        Records(&'static [(&'static str, Type)]),
    }

    use Type::*;

    const LOGGING_OPTIONS: &[(&str, Type)] = &[("splitStream", Flag), ("infoBufferSize", Text)];

    const FIELDS: &[(&str, Type)] = &[
        ("apiVersion", Text),
        ("kind", Text),
        ("enableServer", Flag),
        ("staticPodPath", Text),
        ("podLogsDir", Text),
        ("syncFrequency", Duration),
        ("fileCheckFrequency", Duration),
        ("httpCheckFrequency", Duration),
        ("staticPodURL", Text),
        ("staticPodURLHeader", TextMap),
        ("address", Text),
        ("port", Whole),
        ("readOnlyPort", Whole),
        ("tlsCertFile", Text),
        ("tlsPrivateKeyFile", Text),
        ("tlsCipherSuites", Texts),
        ("tlsMinVersion", Text),
        ("tlsCurvePreferences", Texts),
        ("rotateCertificates", Flag),
        ("serverTLSBootstrap", Flag),
        (
            "authentication",
            Record(&[
                ("x509", Record(&[("clientCAFile", Text)])),
                ("webhook", Record(&[("enabled", Flag), ("cacheTTL", Duration)])),
                ("anonymous", Record(&[("enabled", Flag)])),
            ]),
        ),
        (
            "authorization",
            Record(&[
                ("mode", Text),
                ("webhook", Record(&[("cacheAuthorizedTTL", Duration), ("cacheUnauthorizedTTL", Duration)])),
            ]),
        ),
        ("registryPullQPS", Whole),
        ("registryBurst", Whole),
        ("imagePullCredentialsVerificationPolicy", Text),
        ("preloadedImagesVerificationAllowlist", Texts),
        ("eventRecordQPS", Whole),
        ("eventBurst", Whole),
        ("enableDebuggingHandlers", Flag),
        ("enableContentionProfiling", Flag),
        ("healthzPort", Whole),
        ("healthzBindAddress", Text),
        ("oomScoreAdj", Whole),
        ("clusterDomain", Text),
        ("clusterDNS", Texts),
        ("streamingConnectionIdleTimeout", Duration),
        ("nodeStatusUpdateFrequency", Duration),
        ("nodeStatusReportFrequency", Duration),
        ("nodeLeaseDurationSeconds", Whole),
        ("imageMinimumGCAge", Duration),
        ("imageMaximumGCAge", Duration),
        ("imageGCHighThresholdPercent", Whole),
        ("imageGCLowThresholdPercent", Whole),
        ("volumeStatsAggPeriod", Duration),
        ("kubeletCgroups", Text),
        ("systemCgroups", Text),
        ("cgroupRoot", Text),
        ("cgroupsPerQOS", Flag),
        ("cgroupDriver", Text),
        ("cpuManagerPolicy", Text),
        ("singleProcessOOMKill", Flag),
        ("cpuManagerPolicyOptions", TextMap),
        ("cpuManagerReconcilePeriod", Duration),
        ("memoryManagerPolicy", Text),
        ("topologyManagerPolicy", Text),
        ("topologyManagerScope", Text),
        ("topologyManagerPolicyOptions", TextMap),
        ("qosReserved", TextMap),
        ("runtimeRequestTimeout", Duration),
        ("hairpinMode", Text),
        ("maxPods", Whole),
        ("podCIDR", Text),
        ("podPidsLimit", Whole),
        ("resolvConf", Text),
        ("runOnce", Flag),
        ("cpuCFSQuota", Flag),
        ("cpuCFSQuotaPeriod", Duration),
        ("nodeStatusMaxImages", Whole),
        ("maxOpenFiles", Whole),
        ("contentType", Text),
        ("kubeAPIQPS", Whole),
        ("kubeAPIBurst", Whole),
        ("serializeImagePulls", Flag),
        ("maxParallelImagePulls", Whole),
        ("evictionHard", TextMap),
        ("evictionSoft", TextMap),
        ("evictionSoftGracePeriod", TextMap),
        ("evictionPressureTransitionPeriod", Duration),
        ("evictionMaxPodGracePeriod", Whole),
        ("evictionMinimumReclaim", TextMap),
        ("mergeDefaultEvictionSettings", Flag),
        ("podsPerCore", Whole),
        ("enableControllerAttachDetach", Flag),
        ("protectKernelDefaults", Flag),
        ("makeIPTablesUtilChains", Flag),
        ("iptablesMasqueradeBit", Whole),
        ("iptablesDropBit", Whole),
        ("featureGates", FlagMap),
        ("failSwapOn", Flag),
        ("memorySwap", Record(&[("swapBehavior", Text)])),
        ("containerLogMaxSize", Text),
        ("containerLogMaxFiles", Whole),
        ("containerLogMaxWorkers", Whole),
        ("containerLogMonitorInterval", Duration),
        ("configMapAndSecretChangeDetectionStrategy", Text),
        ("systemReserved", TextMap),
        ("kubeReserved", TextMap),
        ("reservedSystemCPUs", Text),
        ("showHiddenMetricsForVersion", Text),
        ("systemReservedCgroup", Text),
        ("kubeReservedCgroup", Text),
        ("enforceNodeAllocatable", Texts),
        ("allowedUnsafeSysctls", Texts),
        ("volumePluginDir", Text),
        ("providerID", Text),
        ("kernelMemcgNotification", Flag),
        (
            "logging",
            Record(&[
                ("format", Text),
                ("flushFrequency", Text),
                ("verbosity", Whole),
                ("vmodule", Records(&[("filePattern", Text), ("verbosity", Whole)])),
                ("options", Record(&[("text", Record(LOGGING_OPTIONS)), ("json", Record(LOGGING_OPTIONS))])),
            ]),
        ),
        ("enableSystemLogHandler", Flag),
        ("enableSystemLogQuery", Flag),
        ("shutdownGracePeriod", Duration),
        ("shutdownGracePeriodCriticalPods", Duration),
        (
            "shutdownGracePeriodByPodPriority",
            Records(&[("priority", Whole), ("shutdownGracePeriodSeconds", Whole)]),
        ),
        ("crashLoopBackOff", Record(&[("maxContainerRestartPeriod", Duration)])),
        ("reservedMemory", Records(&[("numaNode", Whole), ("limits", TextMap)])),
        ("enableProfilingHandler", Flag),
        ("enableDebugFlagsHandler", Flag),
        ("seccompDefault", Flag),
        ("memoryThrottlingFactor", Number),
        (
            "registerWithTaints",
            Records(&[("key", Text), ("value", Text), ("effect", Text), ("timeAdded", Text)]),
        ),
        ("registerNode", Flag),
        ("tracing", Record(&[("endpoint", Text), ("samplingRatePerMillion", Whole)])),
        ("localStorageCapacityIsolation", Flag),
        ("containerRuntimeEndpoint", Text),
        ("imageServiceEndpoint", Text),
        ("failCgroupV1", Flag),
        ("userNamespaces", Record(&[("idsPerPod", Whole)])),
    ];

    pub(super) fn is_known(key: &str) -> bool {
        FIELDS.iter().any(|(known, _)| *known == key)
    }

    /// Notes unknown fields and wrong types below `key` of the kubelet map.
    pub(super) fn check(field: &Field<'_, '_>, key: &str) {
        // Text in maxPods is an expression.
        if key == "maxPods" && field.value().is_some_and(Value::is_string) {
            return;
        }
        check_known(field, key, FIELDS);
    }

    fn check_known(field: &Field<'_, '_>, key: &str, known: &'static [(&'static str, Type)]) {
        match known.iter().find(|(name, _)| *name == key) {
            Some((_, kind)) => check_type(field, key, kind),
            None => {
                let names = known.iter().map(|(name, _)| *name);
                let help = nearest(key, names).map(|near| format!("did you mean `{near}`?"));
                field.note_key(Stage::Runtime, format!("the kubelet has no field `{key}`"), help);
            }
        }
    }

    fn check_type(field: &Field<'_, '_>, name: &str, kind: &'static Type) {
        let Some(value) = field.value() else { return };
        let is_text_map = |is: fn(&Value) -> bool| value.as_object().is_some_and(|map| map.values().all(is));
        let (fits, wanted) = match kind {
            Text => (value.is_string(), "text"),
            Duration => (
                value.as_str().is_some_and(|text| super::is_go_duration(text.trim_start_matches('-'))),
                "a duration such as 1m30s",
            ),
            Whole => (value.is_i64() || value.is_u64(), "a whole number"),
            Number => (value.is_number(), "a number"),
            Flag => (value.is_boolean(), "true or false"),
            Texts => {
                (value.as_array().is_some_and(|list| list.iter().all(Value::is_string)), "a list of texts")
            }
            TextMap => (is_text_map(Value::is_string), "a map of texts"),
            FlagMap => (is_text_map(Value::is_boolean), "a map of booleans"),
            Record(fields) => {
                if let Some(map) = value.as_object() {
                    for key in map.keys() {
                        check_known(&field.get(key), key, fields);
                    }
                }
                (value.is_object(), "a map")
            }
            Records(fields) => {
                for item in value.is_array().then(|| field.items()).into_iter().flatten() {
                    check_type_of_record(&item, name, fields);
                }
                (value.is_array(), "a list of maps")
            }
        };
        if !fits {
            field.runtime_error(format!("{name} must be {wanted}"));
        }
    }

    fn check_type_of_record(item: &Field<'_, '_>, name: &str, fields: &'static [(&'static str, Type)]) {
        match item.value().and_then(Value::as_object) {
            Some(map) => {
                for key in map.keys() {
                    check_known(&item.get(key), key, fields);
                }
            }
            None => item.runtime_error(format!("{name} must be a list of maps")),
        }
    }
}
