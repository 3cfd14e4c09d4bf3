//! EC2NodeClass `karpenter.k8s.aws/v1` (aws.md 1).
//!
//! Stricter than Karpenter's where Karpenter's rules miss what they are meant to refuse: of a list of terms each must be
//! sound, not just one of them.

use serde_json::json;

use super::constraints::{Detail, unkeyed_conditions};
use super::schema::{Schema, cel_list};
use super::{AGE, Definition, READY, wide};
use crate::api::ec2nodeclass::{
    ALIAS_CHARS_MAX, BLOCK_DEVICES_MAX, FAMILIES, INTERFACES_MAX, OWN_TAGS, TERM_TAGS_MAX, TERMS_MAX,
    VOLUME_TYPES,
};

/// Whole numbers of Gi up to 59000, of G up to 64000, of Ti up to 58, of T up to 64.
const VOLUME_SIZE: &str = "^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|\
                           ([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|\
                           ([1-9]|[1-4][0-9]|5[0-8])Ti|([1-9]|[1-5][0-9]|6[0-4])T)$";
const SWITCH: [&str; 2] = ["enabled", "disabled"];

pub(super) fn definition() -> Definition {
    Definition {
        group: "karpenter.k8s.aws",
        version: "v1",
        kind: "EC2NodeClass",
        plural: "ec2nodeclasses",
        short: &["ec2nc", "ec2ncs"],
        category: "karpenter",
        is_namespaced: false,
        about: "How machines of EC2 are made: images, networks, disks, identity.",
        columns: vec![READY, AGE, wide("Role", "string", ".spec.role")],
        spec: spec(),
        status: status(),
        scale: None,
    }
}

fn spec() -> Schema {
    let identity = |about: &str| Schema::text(about).rule("must not be empty", "self != ''");
    let family_names = FAMILIES.map(|(_, name, _)| name);
    let store =
        "What becomes of disks inside the machine: RAID0 makes them one volume for pods; unset: nothing.";
    let family = "What kind of system the images hold. Needed where no alias says it.";
    let prefixes = "How many address prefixes a machine gets at its start.";
    let fields = [
        ("subnetSelectorTerms", subnets()),
        ("securityGroupSelectorTerms", security_groups()),
        ("capacityReservationSelectorTerms", reservations()),
        ("placementGroupSelector", placement_group()),
        ("associatePublicIPAddress", Schema::boolean("Whether machines get a public address.")),
        ("ipPrefixCount", Schema::small(prefixes).at_least(0)),
        ("amiSelectorTerms", images()),
        ("amiFamily", Schema::text(family).one_of(&family_names)),
        ("userData", Schema::text("What machines run at their start, besides joining the cluster.")),
        ("role", identity("The IAM role that machines run as.")),
        ("instanceProfile", identity("The instance profile that machines run as, instead of a role.")),
        ("tags", tags()),
        ("kubelet", Schema::open("Settings of the kubelet; the controller checks them.")),
        ("blockDeviceMappings", devices()),
        ("instanceStorePolicy", Schema::text(store).one_of(&["RAID0"])),
        ("networkInterfaces", interfaces()),
        ("detailedMonitoring", Schema::boolean("Whether EC2 reports metrics every minute.")),
        ("metadataOptions", metadata_options()),
        ("connectionTracking", connection_tracking()),
        ("context", Schema::text("Reserved by EC2.")),
        ("cpuOptions", cpu_options()),
    ];
    Schema::object("How machines are made.", fields)
        .required(&["amiSelectorTerms", "securityGroupSelectorTerms", "subnetSelectorTerms"])
        .rule("set role or instanceProfile, and not both", "has(self.role) != has(self.instanceProfile)")
        .rule(
            "amiFamily is needed where no image is selected by alias",
            "has(self.amiFamily) || self.amiSelectorTerms.exists(term, has(term.alias))",
        )
        .rule("amiFamily must be that of the alias, or Custom", &alias_rule())
}

fn alias_rule() -> String {
    let named = FAMILIES.iter().filter(|(_, _, alias)| !alias.is_empty());
    let pairs: Vec<String> = named.map(|(_, name, alias)| format!("'{alias}': '{name}'")).collect();
    // An alias of no known family is refused where it stands.
    format!(
        "!has(self.amiFamily) || self.amiFamily == 'Custom' || self.amiSelectorTerms.all(term, !has(term.alias) || \
         !(term.alias.split('@')[0] in {{{map}}}) || {{{map}}}[term.alias.split('@')[0]] == self.amiFamily)",
        map = pairs.join(", "),
    )
}

// --------------------------------------------------------------------------------------------------- selector terms

fn term_tags() -> Schema {
    Schema::map("Tags that it has; the value `*` stands for every value.", Schema::text(""))
        .entries_max(TERM_TAGS_MAX)
        .with("minProperties", 1)
        .rule("a tag needs a key and a value", "self.all(key, key != '' && self[key] != '')")
}

/// A list of terms of which each selects by one of `keys`; what stands before `excludes` stands without what follows.
fn terms<'f>(
    about: &str,
    fields: impl IntoIterator<Item = (&'f str, Schema)>,
    keys: &[&str],
    excludes: &[(&str, &[&str])],
) -> Schema {
    let term = Schema::object("A thing is taken if any term selects it.", fields);
    let list = Schema::list(about, term).items_max(TERMS_MAX);
    let has_one: Vec<String> = keys.iter().map(|key| format!("has(term.{key})")).collect();
    let list = list.rule(
        &format!("a term needs one of {}", keys.join(", ")),
        &format!("self.all(term, {})", has_one.join(" || ")),
    );
    excludes.iter().fold(list, |list, (key, others)| {
        let has_other: Vec<String> = others.iter().map(|other| format!("has(term.{other})")).collect();
        list.rule(
            &format!("{key} cannot be combined with {} in one term", others.join(", ")),
            &format!("self.all(term, !has(term.{key}) || !({}))", has_other.join(" || ")),
        )
    })
}

fn subnets() -> Schema {
    let fields = [("tags", term_tags()), ("id", Schema::text("Its id.").pattern("subnet-[0-9a-z]+"))];
    let list = terms("Where machines are started.", fields, &["tags", "id"], &[("id", &["tags"])]);
    list.with("minItems", 1)
}

fn security_groups() -> Schema {
    let fields = [
        ("tags", term_tags()),
        ("id", Schema::text("Its id.").pattern("sg-[0-9a-z]+")),
        ("name", Schema::text("The group's name, which is not its tag `Name`.")),
    ];
    let excludes: [(&str, &[&str]); 2] = [("id", &["tags", "name"]), ("name", &["tags"])];
    terms("What machines may be reached by.", fields, &["tags", "id", "name"], &excludes).with("minItems", 1)
}

fn reservations() -> Schema {
    let fields = [
        ("tags", term_tags()),
        ("id", Schema::text("Its id.").pattern("^cr-[0-9a-z]+$")),
        ("ownerID", Schema::text("The account that it belongs to.").pattern("^[0-9]{12}$")),
        ("instanceMatchCriteria", Schema::text("Which machines it takes in.").one_of(&["open", "targeted"])),
    ];
    let excludes: [(&str, &[&str]); 1] = [("id", &["tags", "ownerID", "instanceMatchCriteria"])];
    let keys = ["tags", "id", "instanceMatchCriteria"];
    terms("Reserved capacity that may be used.", fields, &keys, &excludes)
}

fn images() -> Schema {
    let aliases: Vec<&str> =
        FAMILIES.iter().map(|(_, _, alias)| *alias).filter(|alias| !alias.is_empty()).collect();
    let windows = cel_list(aliases.iter().copied().filter(|alias| alias.starts_with("windows")));
    let known = cel_list(aliases.iter().copied());
    let alias = Schema::text("A family and a version of its images, such as al2023@latest.")
        .chars_max(ALIAS_CHARS_MAX)
        .rule("write family@version", "self.matches('^[a-zA-Z0-9]+@.+$')")
        .rule(
            &format!("the family is one of {}", aliases.join(", ")),
            &format!("self.split('@')[0] in {known}"),
        )
        .rule(
            "images of Windows cannot be pinned: write latest",
            &format!("!(self.split('@')[0] in {windows}) || self.split('@')[1] == 'latest'"),
        );
    let fields = [
        ("alias", alias),
        ("tags", term_tags()),
        ("id", Schema::text("Its id.").pattern("ami-[0-9a-z]+")),
        ("name", Schema::text("Its name; `*` stands for any letters.")),
        ("owner", Schema::text("The account, or the account alias, that it belongs to.")),
        ("ssmParameter", Schema::text("A parameter of Systems Manager that holds its id.")),
    ];
    let keys = ["alias", "tags", "id", "name", "ssmParameter"];
    let excludes: [(&str, &[&str]); 2] = [
        ("id", &["alias", "tags", "name", "owner", "ssmParameter"]),
        ("alias", &["tags", "name", "owner", "ssmParameter"]),
    ];
    terms("Which images machines run.", fields, &keys, &excludes)
        .with("minItems", 1)
        .rule("an alias must be the only term", "self.size() == 1 || !self.exists(term, has(term.alias))")
}

fn placement_group() -> Schema {
    let fields = [
        ("name", Schema::text("Its name.").not_empty()),
        ("id", Schema::text("Its id.").pattern("^pg-[0-9a-z]+$")),
    ];
    Schema::object("The placement group that machines start in.", fields)
        .rule("set exactly one of name and id", "has(self.name) != has(self.id)")
}

fn tags() -> Schema {
    let rule = format!(
        "self.all(key, !(key in {}) && !key.startsWith('kubernetes.io/cluster'))",
        cel_list(OWN_TAGS)
    );
    Schema::map("Tags of everything that is made in EC2.", Schema::text(""))
        .rule("a tag needs a key", "self.all(key, key != '')")
        .rule("the provisioner's own tags cannot be set", &rule)
}

// ---------------------------------------------------------------------------------------------------------- devices

fn devices() -> Schema {
    let rate = "How many MiB a second of the snapshot are loaded ahead.";
    let kind = Schema::text("What kind of volume.").one_of(&VOLUME_TYPES);
    let ebs = [
        ("deleteOnTermination", Schema::boolean("Whether it ends with the machine.")),
        ("encrypted", Schema::boolean("Whether it is encrypted.")),
        ("iops", Schema::large("How many operations a second.")),
        ("kmsKeyID", Schema::text("The key it is encrypted with.")),
        ("snapshotID", Schema::text("What it starts as a copy of.")),
        ("throughput", Schema::large("How many MiB a second.")),
        ("volumeInitializationRate", Schema::small(rate).between(100, 300)),
        ("volumeSize", Schema::text("Its size, such as 100Gi.").pattern(VOLUME_SIZE)),
        ("volumeType", kind),
    ];
    let ebs = Schema::object("The volume.", ebs)
        .rule("set volumeSize or snapshotID", "has(self.snapshotID) || has(self.volumeSize)")
        .rule(
            "volumeInitializationRate needs snapshotID",
            "!has(self.volumeInitializationRate) || has(self.snapshotID)",
        );
    let root = "Whether pods' own storage lives on it.";
    let fields = [
        ("deviceName", Schema::text("What the machine calls it, such as /dev/xvda.")),
        ("rootVolume", Schema::boolean(root)),
        ("ebs", ebs),
    ];
    Schema::list("The disks of a machine.", Schema::object("One disk.", fields))
        .items_max(BLOCK_DEVICES_MAX)
        .rule(
            "one root volume is the most",
            "self.filter(device, has(device.rootVolume) && device.rootVolume).size() <= 1",
        )
}

fn interfaces() -> Schema {
    let fields = [
        ("networkCardIndex", Schema::small("The card that it is on.").at_least(0)),
        ("deviceIndex", Schema::small("Its place on the card.").at_least(0)),
        ("interfaceType", Schema::text("What it carries.").one_of(&["interface", "efa-only"])),
    ];
    let one = Schema::object("One network interface.", fields);
    let one = one.required(&["networkCardIndex", "deviceIndex", "interfaceType"]);
    Schema::list("The network interfaces of a machine; unset: the usual one.", one)
        .items_max(INTERFACES_MAX)
        .rule(
            "one entry must be card 0, device 0, of type interface",
            "self.size() == 0 || self.exists(one, one.networkCardIndex == 0 && one.deviceIndex == 0 && \
             one.interfaceType == 'interface')",
        )
        .rule(
            "a card and device may stand once, and a card has at most one efa-only interface",
            "self.all(one, self.filter(other, other.networkCardIndex == one.networkCardIndex && \
             other.deviceIndex == one.deviceIndex).size() == 1 && (one.interfaceType != 'efa-only' || \
             self.filter(other, other.networkCardIndex == one.networkCardIndex && \
             other.interfaceType == 'efa-only').size() == 1))",
        )
}

// ---------------------------------------------------------------------------------------------------------- options

fn metadata_options() -> Schema {
    let hops = "How many network hops an answer may travel; pods are one further than the machine.";
    let fields = [
        ("httpEndpoint", Schema::text("Whether there is one.").one_of(&SWITCH).default("enabled")),
        ("httpProtocolIPv6", Schema::text("Whether it answers by IPv6.").one_of(&SWITCH).default("disabled")),
        ("httpPutResponseHopLimit", Schema::large(hops).between(1, 64).default(1)),
        (
            "httpTokens",
            Schema::text("Whether askers need a token.")
                .one_of(&["required", "optional"])
                .default("required"),
        ),
    ];
    Schema::object("The service that tells a machine about itself.", fields).default(json!({
        "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }))
}

fn connection_tracking() -> Schema {
    let fields = [
        ("tcpEstablishedTimeout", Schema::small("Seconds, for idle TCP.").between(60, 432_000)),
        ("udpStreamTimeout", Schema::small("Seconds, for UDP with answers.").between(60, 180)),
        ("udpTimeout", Schema::small("Seconds, for UDP without.").between(30, 60)),
    ];
    Schema::object("How long security groups remember idle connections.", fields).rule(
        "set at least one timeout",
        "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
    )
}

fn cpu_options() -> Schema {
    let nested = Schema::text("Whether machines may run machines.").one_of(&SWITCH);
    Schema::object("What processors can do.", [("nestedVirtualization", nested)])
}

// ----------------------------------------------------------------------------------------------------------- status

fn status() -> Schema {
    let named = |about: &str| Schema::text(about);
    let subnet =
        [("id", named("Its id.")), ("zone", named("Its zone.")), ("zoneID", named("The zone's id."))];
    let subnet = Schema::object("A subnet.", subnet).required(&["id", "zone"]);
    let group = Schema::object("A group.", [("id", named("Its id.")), ("name", named("Its name."))]);
    let fields = [
        ("subnets", Schema::list("Where machines are started; most free addresses first.", subnet)),
        ("securityGroups", Schema::list("What machines may be reached by.", group.required(&["id"]))),
        ("capacityReservations", Schema::list("Reserved capacity that may be used.", found_reservation())),
        ("amis", Schema::list("Which images machines run; newest first.", found_image())),
        ("instanceProfile", named("The instance profile that machines run as.")),
        ("conditions", unkeyed_conditions(Detail::Full)),
    ];
    Schema::object("What was found in EC2.", fields)
}

fn found_image() -> Schema {
    let requirement = [
        ("key", Schema::text("A label.")),
        ("operator", Schema::text("How it is compared.")),
        ("values", Schema::list("What with.", Schema::text("")).atomic()),
    ];
    let requirement = Schema::object("A condition on one label.", requirement).required(&["key", "operator"]);
    let fields = [
        ("id", Schema::text("Its id.")),
        ("name", Schema::text("Its name.")),
        ("deprecated", Schema::boolean("Whether its owner has retired it.")),
        ("requirements", Schema::list("The machines that it runs on.", requirement)),
    ];
    Schema::object("An image.", fields).required(&["id", "requirements"])
}

fn found_reservation() -> Schema {
    let choice = |about: &str, words: &[&str]| Schema::text(about).one_of(words);
    let fields = [
        ("id", Schema::text("Its id.").pattern("^cr-[0-9a-z]+$")),
        ("availabilityZone", Schema::text("Its zone.")),
        ("instanceType", Schema::text("The type of its machines.")),
        ("ownerID", Schema::text("The account that it belongs to.").pattern("^[0-9]{12}$")),
        ("instanceMatchCriteria", choice("Which machines it takes in.", &["open", "targeted"])),
        ("reservationType", choice("How it was bought.", &["default", "capacity-block"]).default("default")),
        ("interruptible", Schema::boolean("Whether its machines may be taken back.")),
        ("state", choice("Whether it is about to end.", &["active", "expiring"]).default("active")),
        ("endTime", Schema::moment("When it ends.")),
    ];
    let required = ["availabilityZone", "id", "instanceMatchCriteria", "instanceType", "ownerID"];
    Schema::object("A reservation.", fields).required(&required)
}
