//! NodePool and NodeClaim: defaults and rules.

use provisor::api::{self, Stage};
use provisor::model::pool::{BudgetNodes, ConsolidationPolicy};
use serde_json::{Value, json};

use super::{accepts, claim, fails_at_runtime, finds, parse_claim, parse_pool, pool, refuses, told, with};

const TEMPLATE: &str = "spec/template/spec";

fn requirement(key: &str, operator: &str, values: Value) -> Value {
    json!([{ "key": key, "operator": operator, "values": values }])
}

fn pool_with(field: &str, value: Value) -> Value {
    with(pool(), &format!("{TEMPLATE}/{field}"), value)
}

fn claim_with(field: &str, value: Value) -> Value {
    with(claim(), &format!("spec/{field}"), value)
}

fn pool_requiring(key: &str, operator: &str, values: Value) -> Value {
    pool_with("requirements", requirement(key, operator, values))
}

fn budget(budget: Value) -> Value {
    with(pool(), "spec/disruption/budgets", json!([budget]))
}

#[test]
fn api_001_a_pool_without_disruption_gets_every_default() {
    let pool = parse_pool(&pool());
    assert_eq!(pool.disruption.consolidate_after.to_string(), "0s");
    assert_eq!(pool.disruption.policy, ConsolidationPolicy::WhenEmptyOrUnderutilized);
    assert_eq!(pool.disruption.budgets.len(), 1);
    assert_eq!(pool.disruption.budgets[0].nodes, BudgetNodes::Percent(10));
    assert!(pool.disruption.budgets[0].reasons.is_empty() && pool.disruption.budgets[0].window.is_none());
    assert_eq!(pool.template.expire_after.to_string(), "720h");
    assert_eq!((pool.weight, pool.replicas, pool.limits), (0, None, None));
}

#[test]
fn api_002_an_empty_disruption_block_is_filled() {
    let pool = with(pool(), "spec/disruption", json!({}));
    accepts(&pool);
    assert_eq!(parse_pool(&pool).disruption.consolidate_after.to_string(), "0s");
}

/// Rows: API-003, API-004
#[test]
fn a_wait_is_a_duration_or_never() {
    for text in ["30s", "1h30m5s", "Never", "0s", "720h"] {
        accepts(&pool_with("expireAfter", json!(text)));
        accepts(&claim_with("expireAfter", json!(text)));
        accepts(&with(pool(), "spec/disruption/consolidateAfter", json!(text)));
    }
    for text in ["-1s", "1hr", "FooNever", "", "never", "1.5h"] {
        refuses(&pool_with("expireAfter", json!(text)), "spec.template.spec.expireAfter");
        refuses(&claim_with("expireAfter", json!(text)), "spec.expireAfter");
        let path = "spec.disruption.consolidateAfter";
        refuses(&with(pool(), "spec/disruption/consolidateAfter", json!(text)), path);
    }
}

#[test]
fn api_005_a_drain_is_limited_by_a_duration_and_never_by_never() {
    for text in ["30s", "1h30m5s"] {
        accepts(&pool_with("terminationGracePeriod", json!(text)));
        accepts(&claim_with("terminationGracePeriod", json!(text)));
    }
    for text in ["-1s", "1hr", "Never", "FooNever"] {
        let path = "spec.template.spec.terminationGracePeriod";
        refuses(&pool_with("terminationGracePeriod", json!(text)), path);
        refuses(&claim_with("terminationGracePeriod", json!(text)), "spec.terminationGracePeriod");
    }
}

/// Rows: API-006, API-007
#[test]
fn every_policy_goes_with_every_wait() {
    for policy in ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] {
        for wait in ["0s", "30s", "1h", "Never"] {
            let value = json!({ "consolidationPolicy": policy, "consolidateAfter": wait });
            accepts(&with(pool(), "spec/disruption", value));
        }
    }
    for policy in ["balanced", "whenempty", "WhenUnderutilized", "1", "0", "", "foo"] {
        let pool = with(pool(), "spec/disruption/consolidationPolicy", json!(policy));
        refuses(&pool, "spec.disruption.consolidationPolicy");
    }
}

/// Rows: API-008, API-009, API-010, API-011, API-012
#[test]
fn a_budget_says_how_many_and_optionally_when() {
    const PATH: &str = "spec.disruption.budgets[0]";
    for schedule in ["*", "* * * *", ""] {
        let budget = budget(json!({ "nodes": "10", "schedule": schedule, "duration": "20m" }));
        refuses(&budget, &format!("{PATH}.schedule"));
    }
    for schedule in
        ["@annually", "@yearly", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "0 9 * * mon-fri"]
    {
        accepts(&budget(json!({ "nodes": "10", "schedule": schedule, "duration": "20m" })));
    }
    for duration in ["20m", "8h", "2h20m", "8h0s", "30m0s", "8h30m0s"] {
        accepts(&budget(json!({ "nodes": "10", "schedule": "@daily", "duration": duration })));
    }
    for duration in ["-20m", "30s", "1h30s", "20m8h", "Never", ""] {
        let budget = budget(json!({ "nodes": "10", "schedule": "@daily", "duration": duration }));
        refuses(&budget, &format!("{PATH}.duration"));
    }
    for nodes in ["10", "0", "0%", "100%", "1000"] {
        accepts(&budget(json!({ "nodes": nodes })));
    }
    for nodes in ["-10", "-10%", "1000%", "101%", "", "%", "ten"] {
        refuses(&budget(json!({ "nodes": nodes })), &format!("{PATH}.nodes"));
    }
    refuses(&budget(json!({ "nodes": 10 })), &format!("{PATH}.nodes"));
    refuses(&budget(json!({ "nodes": "10", "schedule": "@daily" })), PATH);
    refuses(&budget(json!({ "nodes": "10", "duration": "8h" })), PATH);
}

#[test]
fn a_schedule_that_only_the_schema_likes_is_found() {
    for schedule in ["@daily anything", "61 * * * *", "0 9 * * 7", "a b c d e"] {
        let budget = budget(json!({ "nodes": "10", "schedule": schedule, "duration": "20m" }));
        fails_at_runtime(&budget, "spec.disruption.budgets[0].schedule");
    }
}

#[test]
fn api_013_one_wrong_budget_spoils_the_pool() {
    let budgets = json!([{ "nodes": "10" }, { "nodes": "10", "schedule": "*", "duration": "20m" }]);
    refuses(&with(pool(), "spec/disruption/budgets", budgets), "spec.disruption.budgets[1].schedule");
}

#[test]
fn api_014_budgets_name_reasons_from_a_closed_list() {
    for reasons in [
        json!(["Drifted"]),
        json!(["Underutilized"]),
        json!(["Empty"]),
        json!(["Drifted", "Underutilized", "Empty"]),
    ] {
        let pool = budget(json!({ "nodes": "10", "reasons": reasons }));
        accepts(&pool);
        let read = &parse_pool(&pool).disruption.budgets[0].reasons;
        let read: Vec<&str> = read.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(json!(read), reasons);
    }
    for reason in ["invalid", "expired", "", "Expired"] {
        let budget = budget(json!({ "nodes": "10", "reasons": ["Empty", reason] }));
        refuses(&budget, "spec.disruption.budgets[0].reasons[1]");
    }
}

#[test]
fn api_015_taints_are_checked_part_by_part() {
    for list in ["taints", "startupTaints"] {
        let with_taint = |taint: Value| pool_with(list, json!([taint]));
        let path = |part: &str| format!("spec.template.spec.{list}[0].{part}");
        for key in ["a", "test.com/test", "test.com.com/test"] {
            for effect in ["NoSchedule", "PreferNoSchedule", "NoExecute"] {
                accepts(&with_taint(json!({ "key": key, "value": "v.1", "effect": effect })));
            }
        }
        for key in ["test.com.com}", "Test.com/test", "test/test/test", "test/", "/test", ""] {
            refuses(&with_taint(json!({ "key": key, "effect": "NoSchedule" })), &path("key"));
        }
        refuses(&with_taint(json!({ "effect": "NoSchedule" })), &path("key"));
        refuses(&with_taint(json!({ "key": "a", "value": "???", "effect": "NoSchedule" })), &path("value"));
        refuses(&with_taint(json!({ "key": "a", "value": "b", "effect": "Sometimes" })), &path("effect"));
        refuses(&with_taint(json!({ "key": "a" })), &path("effect"));
    }
}

#[test]
fn api_016_a_key_may_have_two_effects_but_not_one_twice() {
    let two = json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoExecute" }]);
    accepts(&pool_with("taints", two));
    let one = json!([{ "key": "a", "effect": "NoSchedule" }]);
    let both = with(pool_with("taints", one.clone()), &format!("{TEMPLATE}/startupTaints"), one);
    fails_at_runtime(&both, "spec.template.spec.startupTaints");
}

#[test]
fn api_017_long_keys_pass_the_server_and_fail_later() {
    let name = "a".repeat(64);
    fails_at_runtime(
        &pool_with("taints", json!([{ "key": name, "effect": "NoSchedule" }])),
        "spec.template.spec.taints[0].key",
    );
    fails_at_runtime(
        &pool_requiring(&format!("test.com/{name}"), "Exists", json!([])),
        "spec.template.spec.requirements[0].key",
    );
    fails_at_runtime(
        &with(pool(), &format!("spec/template/metadata/labels/{name}"), json!("v")),
        &format!("spec.template.metadata.labels.{name}"),
    );
}

#[test]
fn api_018_every_operator_is_known_and_no_other() {
    for (operator, values) in [
        ("In", json!(["1"])),
        ("NotIn", json!(["1"])),
        ("Exists", json!([])),
        ("DoesNotExist", json!([])),
        ("Gt", json!(["1"])),
        ("Lt", json!(["1"])),
        ("Gte", json!(["1"])),
        ("Lte", json!(["1"])),
    ] {
        accepts(&pool_requiring("example.com/size", operator, values.clone()));
        accepts(&claim_with("requirements", requirement("example.com/size", operator, values)));
    }
    for operator in ["unknown", "in", "GT", ""] {
        let pool = pool_requiring("example.com/size", operator, json!(["1"]));
        refuses(&pool, "spec.template.spec.requirements[0].operator");
    }
}

/// Rows: API-019, API-020, API-021
#[test]
fn keys_of_karpenter_and_the_host_name_are_reserved() {
    const KEY: &str = "spec.template.spec.requirements[0].key";
    for key in
        ["karpenter.sh/custom", "sub.karpenter.sh/x", "kubernetes.io/hostname", "karpenter.sh/nodepool"]
    {
        refuses(&pool_requiring(key, "In", json!(["test"])), KEY);
        let labels = json!({ key: "test" });
        refuses(
            &with(pool(), "spec/template/metadata/labels", labels),
            &format!("spec.template.metadata.labels.{key}"),
        );
    }
    accepts(&pool_requiring("karpenter.sh/capacity-type", "In", json!(["spot"])));
    accepts(&with(pool(), "spec/template/metadata/labels", json!({ "karpenter.sh/capacity-type": "spot" })));
    accepts(&claim_with("requirements", requirement("karpenter.sh/nodepool", "In", json!(["general"]))));
    refuses(
        &claim_with("requirements", requirement("kubernetes.io/hostname", "In", json!(["n"]))),
        "spec.requirements[0].key",
    );
}

/// Rows: API-022, API-023, AWS-065
#[test]
fn labels_of_kubernetes_and_of_the_provider_may_be_asked_for() {
    for domain in
        ["kubernetes.io", "k8s.io", "node.kubernetes.io", "node-restriction.kubernetes.io", "kops.k8s.io"]
    {
        for key in [format!("{domain}/key"), format!("sub.{domain}/key")] {
            accepts(&pool_requiring(&key, "In", json!(["test"])));
            accepts(&with(pool(), "spec/template/metadata/labels", json!({ key: "test" })));
        }
    }
    let aws = [
        "instance-category",
        "instance-family",
        "instance-generation",
        "instance-size",
        "instance-capability-flex",
        "instance-cpu",
        "instance-cpu-manufacturer",
        "instance-cpu-sustained-clock-speed-mhz",
        "instance-memory",
        "instance-ebs-bandwidth",
        "instance-network-bandwidth",
        "instance-hypervisor",
        "instance-encryption-in-transit-supported",
        "instance-nitro-enclaves-supported",
        "instance-tenancy",
        "instance-local-nvme",
        "instance-gpu-name",
        "instance-gpu-manufacturer",
        "instance-gpu-count",
        "instance-gpu-memory",
        "instance-accelerator-name",
        "instance-accelerator-manufacturer",
        "instance-accelerator-count",
        "capacity-reservation-id",
        "capacity-reservation-type",
        "capacity-reservation-interruptible",
        "placement-group-id",
        "placement-group-partition",
        "ec2nodeclass",
    ];
    let aws = aws.map(|name| format!("karpenter.k8s.aws/{name}"));
    let kubernetes = [
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.k8s.aws/zone-id",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/windows-build",
        "failure-domain.beta.kubernetes.io/zone",
        "beta.kubernetes.io/arch",
    ];
    for key in aws.iter().map(String::as_str).chain(kubernetes) {
        accepts(&pool_requiring(key, "Exists", json!([])));
        accepts(&with(pool(), "spec/template/metadata/labels", json!({ key: "default" })));
    }
    let unknown = pool_requiring("karpenter.k8s.aws/instance-famly", "In", json!(["m5"]));
    refuses(&unknown, "spec.template.spec.requirements[0].key");
    assert!(told(&api::validate(&unknown)).contains("did you mean `karpenter.k8s.aws/instance-family`?"));
}

#[test]
fn api_024_requirements_may_be_empty_but_not_absent() {
    accepts(&pool());
    refuses(&pool_with("requirements", Value::Null), "spec.template.spec.requirements");
    refuses(&claim_with("requirements", Value::Null), "spec.requirements");
}

#[test]
fn api_025_two_requirements_of_one_key_are_narrowed() {
    let pool = pool_with(
        "requirements",
        json!([
            { "key": "example.com/size", "operator": "In", "values": ["a", "b"] },
            { "key": "example.com/size", "operator": "NotIn", "values": ["b"] },
        ]),
    );
    accepts(&pool);
    let template = parse_pool(&pool).template;
    let left = template.requirements.get("example.com/size".into()).expect("asked for");
    assert_eq!(left.single(), Some("a".into()));
}

#[test]
fn api_026_a_comparison_takes_one_whole_number() {
    for operator in ["Gt", "Lt", "Gte", "Lte"] {
        for values in [json!([]), json!(["1", "2"]), json!(["a"]), json!(["-1"]), json!(["1.5"]), Value::Null]
        {
            let mut pool = pool_requiring("example.com/size", operator, values.clone());
            if values.is_null() {
                let entry = &mut pool["spec"]["template"]["spec"]["requirements"][0];
                entry.as_object_mut().expect("an entry").remove("values");
            }
            refuses(&pool, "spec.template.spec.requirements[0].values");
        }
        accepts(&pool_requiring("example.com/size", operator, json!(["0"])));
    }
}

#[test]
fn api_027_the_least_number_of_values_is_from_1_to_50_and_can_be_met() {
    const PATH: &str = "spec.template.spec.requirements[0].minValues";
    let asking = |count: i64, values: Vec<String>| {
        let list = json!([
            { "key": "example.com/size", "operator": "In", "values": values, "minValues": count },
        ]);
        pool_with("requirements", list)
    };
    let many = |count: usize| (0..count).map(|n| format!("v{n}")).collect::<Vec<_>>();
    for count in [-1, 0, 51] {
        refuses(&asking(count, many(60)), PATH);
    }
    accepts(&asking(50, many(60)));
    refuses(&asking(2, many(1)), PATH);
    accepts(&pool_requiring("example.com/size", "In", json!(many(90))));
}

#[test]
fn api_028_a_hundred_requirements_are_the_most() {
    let list = |count: usize| -> Value {
        (0..count).map(|n| json!({ "key": format!("example.com/k{n}"), "operator": "Exists" })).collect()
    };
    accepts(&pool_with("requirements", list(100)));
    refuses(&pool_with("requirements", list(101)), "spec.template.spec.requirements");
    refuses(&claim_with("requirements", list(101)), "spec.requirements");
}

/// Rows: API-029, AWS-066, AWS-067, AWS-068, AWS-069
#[test]
fn values_of_closed_lists_are_forgiven_while_enough_are_left() {
    const PATH: &str = "spec.template.spec.requirements[0].values";
    for (key, good, more) in [
        ("karpenter.sh/capacity-type", "spot", "on-demand"),
        ("karpenter.k8s.aws/instance-tenancy", "default", "dedicated"),
    ] {
        fails_at_runtime(&pool_requiring(key, "In", json!(["bad"])), PATH);
        assert!(!parse_pool(&pool_requiring(key, "In", json!(["bad"]))).is_ready);
        for values in [json!([good]), json!([more]), json!([good, more]), json!([good, "bad"])] {
            accepts(&pool_requiring(key, "In", values.clone()));
            assert!(parse_pool(&pool_requiring(key, "In", values)).is_ready);
        }
    }
    accepts(&pool_requiring("karpenter.sh/capacity-type", "In", json!(["reserved"])));
    let two = json!([{
        "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "bad"], "minValues": 2,
    }]);
    fails_at_runtime(&pool_with("requirements", two), PATH);
}

#[test]
fn api_030_label_values_and_keys_are_checked_where_kubernetes_checks_them() {
    let labelled =
        |key: &str, value: &str| with(pool(), "spec/template/metadata/labels", json!({ key: value }));
    refuses(&labelled("team", "/ is not allowed"), "spec.template.metadata.labels.team");
    refuses(&labelled("team", &"a".repeat(64)), "spec.template.metadata.labels.team");
    fails_at_runtime(&labelled("two words", "v"), "spec.template.metadata.labels.two words");
    accepts(&labelled("team", ""));
}

#[test]
fn api_031_the_class_is_named_whole_and_its_kind_stays() {
    const PATH: &str = "spec.template.spec.nodeClassRef";
    for part in ["group", "kind", "name"] {
        refuses(&pool_with(&format!("nodeClassRef/{part}"), json!("")), &format!("{PATH}.{part}"));
        refuses(&pool_with(&format!("nodeClassRef/{part}"), Value::Null), &format!("{PATH}.{part}"));
        let changed = pool_with(&format!("nodeClassRef/{part}"), json!("other"));
        let errors = api::validate_change(&pool(), &changed);
        match part {
            "name" => assert!(errors.is_empty(), "{}", told(&errors)),
            part => assert_eq!(errors[0].path, format!("{PATH}.{part}")),
        }
    }
    refuses(&pool_with("nodeClassRef/group", json!("karpenter.k8s.aws/v1")), &format!("{PATH}.group"));
    refuses(&pool_with("nodeClassRef", Value::Null), PATH);
}

/// Rows: API-032, API-033
#[test]
fn a_static_pool_is_limited_by_its_nodes_alone() {
    let sized = |count: i64| with(pool(), "spec/replicas", json!(count));
    for count in [0, 5, 1_000_000_000_000] {
        accepts(&sized(count));
    }
    refuses(&sized(-1), "spec.replicas");
    for limit in ["cpu", "memory", "pods", "ephemeral-storage"] {
        let limited = with(sized(5), "spec/limits", json!({ limit: "10" }));
        refuses(&limited, &format!("spec.limits.{limit}"));
    }
    refuses(&with(sized(5), "spec/weight", json!(10)), "spec.weight");
    let taints = json!([{ "key": "a", "effect": "NoSchedule" }]);
    for (path, value) in [
        ("spec/limits", json!({ "nodes": "10" })),
        ("spec/limits", json!({})),
        ("spec/disruption/budgets", json!([{ "nodes": "1" }])),
        ("spec/template/metadata/labels", json!({ "team": "shop" })),
        ("spec/template/metadata/annotations", json!({ "team": "shop" })),
        ("spec/template/spec/taints", taints.clone()),
        ("spec/template/spec/startupTaints", taints),
        ("spec/template/spec/requirements", requirement("kubernetes.io/arch", "In", json!(["arm64"]))),
        ("spec/template/spec/expireAfter", json!("1h")),
        ("spec/template/spec/terminationGracePeriod", json!("1h")),
    ] {
        accepts(&with(sized(5), path, value));
    }
}

#[test]
fn api_034_a_pool_stays_static_or_dynamic() {
    let sized = |count: i64| with(pool(), "spec/replicas", json!(count));
    for (old, new) in [(sized(5), pool()), (pool(), sized(5))] {
        assert_eq!(api::validate_change(&old, &new)[0].path, "spec.replicas");
    }
    assert!(api::validate_change(&sized(5), &sized(7)).is_empty());
    let limited = |nodes: &str| with(sized(5), "spec/limits", json!({ "nodes": nodes }));
    assert!(api::validate_change(&limited("5"), &limited("9")).is_empty());
}

#[test]
fn api_035_a_claim_is_never_edited() {
    let asking = |cpu: &str| claim_with("resources", json!({ "requests": { "cpu": cpu } }));
    assert_eq!(api::validate_change(&asking("1"), &asking("2"))[0].path, "spec");
    assert!(
        api::validate_change(&asking("1000m"), &asking("1")).is_empty(),
        "the same amount, written otherwise"
    );
    let finalized = with(asking("1"), "metadata/finalizers", json!(["karpenter.sh/termination"]));
    assert!(api::validate_change(&asking("1"), &finalized).is_empty());
}

#[test]
fn api_036_a_duration_is_written_back_as_it_was() {
    let pool =
        with(pool_with("expireAfter", json!("720h")), "spec/disruption/consolidateAfter", json!("90m"));
    let back = api::render_node_pool(&parse_pool(&pool));
    assert_eq!(back["spec"]["template"]["spec"]["expireAfter"], "720h");
    assert_eq!(back["spec"]["disruption"]["consolidateAfter"], "90m");
    let claim = claim_with("expireAfter", json!("60m"));
    assert_eq!(api::render_node_claim(&parse_claim(&claim))["spec"]["expireAfter"], "60m");
}

// ------------------------------------------------------------------------------------------- beyond the catalogue

#[test]
fn a_misspelt_field_is_named_with_its_neighbour() {
    let pool = with(pool(), "spec/disruption/consolidatAfter", json!("30s"));
    finds(&pool, "spec.disruption.consolidatAfter", Stage::UnknownField);
    assert!(told(&api::validate(&pool)).contains("did you mean `consolidateAfter`?"));
    assert!(api::parse(&pool).is_ok(), "the API server drops it, so a cluster's pool is read without it");
}

#[test]
fn fields_of_old_versions_are_told_where_they_went() {
    for (path, value, way) in [
        ("spec/disruption/expireAfter", json!("1h"), "spec.template.spec.expireAfter"),
        ("spec/template/spec/kubelet", json!({}), "EC2NodeClass"),
        ("spec/template/spec/nodeClassRef/apiVersion", json!("karpenter.k8s.aws/v1"), "`group`"),
    ] {
        let pool = with(pool(), path, value);
        finds(&pool, &path.replace('/', "."), Stage::UnknownField);
        assert!(told(&api::validate(&pool)).contains(way), "{}", told(&api::validate(&pool)));
    }
}

#[test]
fn old_versions_are_told_the_way_to_the_new_one() {
    for (version, kind, way) in [
        ("karpenter.sh/v1beta1", "NodePool", "karpenter.sh/v1"),
        ("karpenter.sh/v1alpha5", "Provisioner", "NodePool"),
        ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate", "EC2NodeClass"),
        ("karpenter.k8s.aws/v1beta1", "EC2NodeClass", "karpenter.k8s.aws/v1"),
        ("karpenter.sh/v1", "NodeOverlay", "karpenter.sh/v1alpha1"),
    ] {
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "x" }, "spec": {} });
        let errors = api::validate(&object);
        assert_eq!(errors[0].path, "apiVersion");
        assert!(told(&errors).contains(way), "{}", told(&errors));
    }
}

#[test]
fn all_mistakes_of_a_pool_are_found_at_once() {
    let mut pool = with(pool(), "spec/weight", json!(0));
    pool = with(pool, "spec/limits", json!({ "cpu": "many" }));
    pool = with(pool, "metadata/name", json!("Not A Name"));
    pool = with(pool, "spec/template/spec/requirements", json!([{ "operator": "In" }]));
    let paths: Vec<String> = api::validate(&pool).into_iter().map(|error| error.path).collect();
    assert_eq!(
        paths,
        [
            "metadata.name",
            "spec.limits.cpu",
            "spec.template.spec.requirements[0].key",
            "spec.template.spec.requirements[0].values",
            "spec.weight",
        ]
    );
}

#[test]
fn nonsense_is_refused_without_a_panic() {
    for object in [
        json!(null),
        json!(5),
        json!([]),
        json!({}),
        json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool" }),
        json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": [], "spec": "x" }),
        json!({ "apiVersion": 1, "kind": {} }),
        with(pool(), "spec/template", json!([])),
        pool_with("requirements", json!({})),
        pool_with("requirements", json!(["x"])),
        pool_with("nodeClassRef", json!("default")),
        pool_with("taints", json!([null])),
        with(pool(), "spec/limits", json!([1])),
        with(pool(), "spec/disruption", json!("often")),
        with(pool(), "spec/disruption/budgets", json!([[]])),
    ] {
        assert!(!api::validate(&object).is_empty(), "{object}");
        assert!(api::parse(&object).is_err(), "{object}");
    }
}

#[test]
fn who_judged_an_earlier_generation_has_to_judge_again() {
    let judged = |generation: i64, observed: Value| {
        let mut pool = pool();
        pool["metadata"]["generation"] = generation.into();
        pool["status"]["conditions"] =
            json!([{ "type": "Ready", "status": "True", "observedGeneration": observed }]);
        parse_pool(&pool).is_judged_earlier
    };
    assert!(judged(2, json!(1)));
    assert!(!judged(2, json!(2)));
    assert!(!judged(2, Value::Null), "who counts no generations cannot be behind");
    assert!(!parse_pool(&pool()).is_judged_earlier, "nobody judged it yet");
}
