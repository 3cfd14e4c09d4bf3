//! Machines are bought once, of what there is, and given back.

use std::collections::BTreeSet;

use aws_sdk_ec2::types::{ResourceType, Tag, TagSpecification};
use provisor::io::cloud::{Bought, CloudProvider, Ending, LaunchOrder};
use provisor::model::name::{ProviderId, TypeName, Zone};
use provisor::model::observation::{Instance, LaunchFailure};
use provisor::model::offering::CapacityType;
use serde_json::{Value, json};

use super::emulator::{Emulator, claim, class, options, order, tag, tagged};

/// Such as `m5.large a`.
fn spot(text: &str) -> (TypeName, Zone, CapacityType) {
    let option = &options(&[&format!("{text} spot")])[0];
    (option.instance_type, option.zone, option.capacity_type)
}

fn living(machines: &[Value]) -> Vec<&Value> {
    machines.iter().filter(|machine| machine["state"] == "running" || machine["state"] == "pending").collect()
}

/// Rows: AWS-432
#[tokio::test]
async fn a_machine_is_bought_listed_and_ended() {
    let cloud = Emulator::furnished().await;
    let somebody_elses =
        cloud.ec2.run_instances().min_count(1).max_count(1).image_id("ami-1").send().await.expect("one");
    let theirs = somebody_elses.instances()[0].instance_id().expect("an id").to_owned();
    let provider = cloud.provider();
    let bought = LaunchOrder {
        claim: claim("a"),
        class: class(json!({ "tags": { "team": "web" } })),
        options: options(&["m5.large a spot", "m5.large b spot", "m5.xlarge a spot"]),
    };
    let instance = provider.launch(bought).await.expect("a machine").instance;
    assert_eq!(instance.instance_type.as_str(), "m5.large");
    assert_eq!(instance.zone.as_str(), "us-east-1a");
    assert_eq!(instance.capacity_type, CapacityType::Spot);
    assert_eq!(instance.claim.map(|name| name.to_string()).as_deref(), Some("a"));
    assert_eq!(instance.allocatable.cpu().0, 1930);
    assert!(instance.provider_id.as_str().starts_with("aws:///us-east-1a/i-"));
    let machines = cloud.machines().await;
    let ours = machines
        .iter()
        .find(|machine| machine["id"] == instance.provider_id.instance())
        .expect("it is there");
    for (key, value) in [
        ("kubernetes.io/cluster/east", "owned"),
        ("eks:eks-cluster-name", "east"),
        ("karpenter.sh/nodepool", "general"),
        ("karpenter.sh/nodeclaim", "a"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("team", "web"),
    ] {
        assert_eq!(ours["tags"][key], value, "{key}");
    }
    let user_data = ours["user_data"].as_str().expect("text");
    assert!(user_data.contains("kind: NodeConfig") && user_data.contains("maxPods: 29"), "{user_data}");
    let listed = provider.instances().await.expect("a list");
    assert_eq!(listed.len(), 1, "somebody else's machine is not ours: {listed:?}");
    assert_eq!(listed[0].provider_id, instance.provider_id);
    assert_eq!(
        (listed[0].capacity_type, &listed[0].allocatable),
        (CapacityType::Spot, &instance.allocatable)
    );
    cloud.control("delays", json!({ "terminated": 0.5 })).await;
    provider.terminate(instance.provider_id).await.expect("told");
    assert!(provider.instances().await.expect("a list")[0].is_terminating);
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert!(provider.instances().await.expect("a list").is_empty());
    provider.terminate(instance.provider_id).await.expect("told again");
    provider
        .terminate(ProviderId::new("aws:///us-east-1a/i-0123456789abcdef0"))
        .await
        .expect("one that never was");
    let machines = cloud.machines().await;
    assert_eq!(
        living(&machines).iter().map(|machine| machine["id"].clone()).collect::<Vec<_>>(),
        [json!(theirs)]
    );
}

#[tokio::test]
async fn a_claim_never_gets_two_machines() {
    let cloud = Emulator::furnished().await;
    let first = cloud
        .provider()
        .launch(order("a", &["m5.large a spot", "m5.large b spot"]))
        .await
        .expect("a machine")
        .instance;
    let same = cloud
        .provider()
        .launch(order("a", &["m5.large a spot", "m5.large b spot"]))
        .await
        .expect("a machine")
        .instance;
    assert_eq!(same.provider_id, first.provider_id, "a new process, the same order");
    let other = cloud.provider().launch(order("a", &["c5.large c on-demand"])).await;
    let other = other.expect("a machine").instance;
    assert_eq!(other.provider_id, first.provider_id, "a new process, another order");
    assert_eq!(
        (other.instance_type, other.zone, other.capacity_type),
        (first.instance_type, first.zone, first.capacity_type)
    );
    let again = cloud.provider();
    let (one, two) = tokio::join!(
        again.launch(order("b", &["m5.large a spot"])),
        again.launch(order("b", &["m5.large a spot"]))
    );
    let id = |bought: Result<Bought, LaunchFailure>| bought.expect("a machine").instance.provider_id;
    assert_eq!(id(one), id(two), "two at once");
    assert_eq!(cloud.machines().await.len(), 2);
}

/// The answer to an order is lost, and what was bought does not show at once.
#[tokio::test]
async fn a_lost_answer_costs_no_second_machine() {
    for other in ["m5.xlarge b spot", "m5.xlarge b on-demand"] {
        let cloud = Emulator::furnished().await;
        cloud
            .control(
                "fail",
                json!({ "action": "CreateFleet", "code": "InternalError", "status": 500, "times": 20, "after": true }),
            )
            .await;
        cloud.control("delays", json!({ "visible": 6 })).await;
        let provider = cloud.provider();
        let lost = provider.launch(order("a", &["m5.large a spot"])).await;
        assert!(matches!(lost, Err(LaunchFailure::Transient { .. })), "{lost:?}");
        // A new process with other prices: the token is taken, and the machine does not show yet.
        let instance = launched_in_the_end(&cloud.provider(), || order("a", &[other])).await;
        assert_eq!(instance.instance_type.as_str(), "m5.large");
        assert_eq!(cloud.machines().await.len(), 1);
    }
}

/// The machine that comes of it when the same is ordered as long as something passing stands against it.
async fn launched_in_the_end(provider: &impl CloudProvider, order: impl Fn() -> LaunchOrder) -> Instance {
    for _ in 0..40 {
        match provider.launch(order()).await {
            Ok(bought) => return bought.instance,
            Err(LaunchFailure::Transient { .. }) => {
                tokio::time::sleep(std::time::Duration::from_millis(500)).await
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("it never shows");
}

/// EC2 keeps no token of an order that it refuses as a whole. So the next order goes under the same one: a new process, which knows
/// nothing of the refusal and does not see the machine yet, finds the token taken.
#[tokio::test]
async fn an_order_after_one_that_was_refused_as_a_whole_costs_no_second_machine() {
    for refusal in ["MaxSpotInstanceCountExceeded", "AuthFailure.ServiceLinkedRoleCreationNotPermitted"] {
        let cloud = Emulator::furnished().await;
        cloud.fail("CreateFleet", refusal, 400, 1).await;
        cloud.control("delays", json!({ "visible": 6 })).await;
        let ordered = || order("a", &["m5.large a spot", "m5.large a on-demand"]);
        let first = cloud.provider().launch(ordered()).await.expect("on demand").instance;
        assert_eq!(first.capacity_type, CapacityType::OnDemand);
        let again = launched_in_the_end(&cloud.provider(), ordered).await;
        assert_eq!(again.provider_id, first.provider_id, "{refusal}");
        assert_eq!(cloud.machines().await.len(), 1);
    }
}

/// A new process looks for what an earlier one may have bought for each claim: all of them at once.
#[tokio::test]
async fn machines_of_several_claims_are_looked_for_in_one_call() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let names = ["a", "b", "c", "d", "e", "f"];
    let launches = names.map(|name| provider.launch(order(name, &["m5.large a spot"])));
    for bought in futures_util::future::join_all(launches).await {
        bought.expect("a machine");
    }
    assert_eq!(cloud.machines().await.len(), names.len());
    let asked = cloud.calls("DescribeInstances").await.len();
    assert!(asked > 0 && asked < names.len(), "{asked} calls for {} claims", names.len());
}

#[tokio::test]
async fn what_is_sold_out_is_passed_over() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let ways =
        ["m5.large a spot", "m5.large b spot", "c5.large a spot", "m5.xlarge a spot", "m5.large a on-demand"];
    cloud.has_no(&[("m5.large", "*", "spot"), ("c5.large", "us-east-1a", "spot")]).await;
    let Bought { instance: next, shortage } = provider.launch(order("a", &ways)).await.expect("the fourth");
    let dry = shortage.expect("three were asked for in vain");
    assert_eq!(dry.offerings, ["c5.large a", "m5.large a", "m5.large b"].map(spot), "and the engine is told");
    assert_eq!(dry.advice, None);
    assert_eq!((next.instance_type.as_str(), next.capacity_type), ("m5.xlarge", CapacityType::Spot));
    cloud.has_no(&[("*", "*", "spot")]).await;
    let dear = provider.launch(order("b", &ways)).await.expect("on demand").instance;
    assert_eq!((dear.instance_type.as_str(), dear.capacity_type), ("m5.large", CapacityType::OnDemand));
    cloud.has_no(&[("*", "*", "*")]).await;
    let before = cloud.calls("CreateFleet").await.len();
    let nothing = provider.launch(order("c", &ways)).await;
    let Err(LaunchFailure::InsufficientCapacity(shortage)) = nothing else {
        panic!("nothing is to be had: {nothing:?}");
    };
    assert_eq!(shortage.offerings.len(), ways.len());
    assert!(shortage.until > jiff::Timestamp::from_second(1_700_000_000).expect("a time"));
    let asked = cloud.calls("CreateFleet").await.split_off(before);
    assert_eq!(asked.len(), 1, "what had none a moment ago is not asked for again: {asked:?}");
    assert_eq!(asked[0]["parameters"]["TargetCapacitySpecification.DefaultTargetCapacityType"], "on-demand");
    assert_eq!(living(&cloud.machines().await).len(), 2);
}

/// Rows: AWS-378
#[tokio::test]
async fn what_was_sold_out_is_asked_for_again_once_its_time_is_over_and_not_before() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let begun = jiff::Timestamp::now();
    let after = |seconds| begun + jiff::SignedDuration::from_secs(seconds);
    let launch = async |name, at| {
        let ways = ["m5.large a spot", "m5.xlarge a spot"];
        let Bought { instance, shortage } = provider.launch_at(at, order(name, &ways)).await.expect("one");
        (instance.instance_type.to_string(), shortage)
    };
    cloud.has_no(&[("m5.large", "*", "spot")]).await;
    let (kind, shortage) = launch("a", begun).await;
    let shortage = shortage.expect("the cheaper one was sold out");
    assert_eq!((kind.as_str(), shortage.until), ("m5.xlarge", after(180)));

    // It is there again at once, and nobody looks before the time that the engine was told.
    cloud.has_no(&[]).await;
    let (kind, shortage) = launch("b", after(179)).await;
    let shortage = shortage.expect("it is still remembered");
    assert_eq!(
        (kind.as_str(), shortage.until),
        ("m5.xlarge", after(180)),
        "what is only remembered lasts no longer"
    );
    let (kind, shortage) = launch("c", after(180)).await;
    assert_eq!((kind.as_str(), shortage), ("m5.large", None));

    // The same of spot as a whole.
    let refusal = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
    cloud.fail("CreateFleet", refusal, 400, 1).await;
    let launch = async |name, at| {
        let ways = ["m5.large a spot", "m5.large a on-demand"];
        let Bought { instance, shortage } = provider.launch_at(at, order(name, &ways)).await.expect("one");
        (instance.capacity_type, shortage.map(|shortage| shortage.until))
    };
    assert_eq!(launch("d", after(600)).await, (CapacityType::OnDemand, Some(after(780))));
    assert_eq!(launch("e", after(779)).await, (CapacityType::OnDemand, Some(after(780))));
    assert_eq!(launch("f", after(780)).await, (CapacityType::Spot, None));
}

#[tokio::test]
async fn orders_say_how_to_choose() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    provider.launch(order("a", &["m5.large a spot", "m5.large b spot"])).await.expect("a machine");
    provider.launch(order("b", &["m5.large a on-demand"])).await.expect("a machine");
    let calls = cloud.calls("CreateFleet").await;
    assert_eq!(calls[0]["parameters"]["SpotOptions.AllocationStrategy"], "price-capacity-optimized");
    assert_eq!(calls[1]["parameters"]["OnDemandOptions.AllocationStrategy"], "lowest-price");
    let prefix = "LaunchTemplateConfigs.1.Overrides";
    for call in &calls {
        assert_eq!(call["parameters"]["Type"], "instant");
        assert_eq!(call["parameters"][format!("{prefix}.1.Priority")], "0.01");
        assert_eq!(
            call["parameters"]["LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version"],
            "$Latest"
        );
    }
    assert_ne!(
        calls[0]["parameters"][format!("{prefix}.1.SubnetId")],
        calls[0]["parameters"][format!("{prefix}.2.SubnetId")],
        "each zone has its subnet"
    );
}

#[tokio::test]
async fn throttling_passes_and_refusals_stay() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    cloud.fail("CreateFleet", "RequestLimitExceeded", 503, 1).await;
    provider.launch(order("a", &["m5.large a spot"])).await.expect("one refusal is waited out");
    cloud.fail("CreateFleet", "RequestLimitExceeded", 503, 20).await;
    let busy = provider.launch(order("b", &["m5.large a spot"])).await;
    assert!(matches!(busy, Err(LaunchFailure::Transient { .. })), "{busy:?}");
    let other = Emulator::furnished().await;
    let provider = other.provider();
    other.fail("CreateFleet", "UnauthorizedOperation", 403, 1).await;
    let Err(LaunchFailure::Refused { message, .. }) = provider.launch(order("a", &["m5.large a spot"])).await
    else {
        panic!("nobody may buy without permission");
    };
    assert!(message.contains("Unauthorized") && message.contains("CreateFleet"), "{message}");
    assert!(other.machines().await.is_empty());
}

/// Rows: AWS-298, AWS-303
#[tokio::test]
async fn templates_are_shared_made_again_and_cleared_away() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    provider.launch(order("a", &["m5.large a spot", "m5.xlarge a spot"])).await.expect("a machine");
    provider.launch(order("b", &["m5.large b spot", "m5.xlarge b spot"])).await.expect("a machine");
    let made = cloud.calls("CreateLaunchTemplate").await;
    let names: BTreeSet<&str> =
        made.iter().filter_map(|call| call["parameters"]["LaunchTemplateName"].as_str()).collect();
    assert_eq!((made.len(), names.len()), (2, 2), "29 and 58 pods boot differently; equal machines share");
    for name in &names {
        cloud.ec2.delete_launch_template().launch_template_name(*name).send().await.expect("deleted");
    }
    provider.launch(order("c", &["m5.large a spot"])).await.expect("the template is made again");
    let restarted = cloud.provider();
    restarted.launch(order("d", &["m5.large a spot"])).await.expect("the template is found again");
    // One that nobody marked, one of another cluster's provisioner, one that somebody marked as if it were ours, and two that carry
    // a provisioner's name and this cluster's marks: Karpenter's and those of another environment.
    let other =
        made[0]["parameters"]["LaunchTemplateName"].as_str().expect("a name").replace('/', "/theirs-");
    for (name, cluster, owner) in [
        ("somebody-elses", None, None),
        (other.as_str(), Some("west"), Some("provisor:dev")),
        ("by-hand", Some("east"), Some("provisor:dev")),
        ("karpenter.k8s.aws/1", Some("east"), None),
        ("karpenter.k8s.aws/2", Some("east"), Some("provisor:prod")),
    ] {
        let data = aws_sdk_ec2::types::RequestLaunchTemplateData::builder().image_id("ami-1").build();
        let template =
            cloud.ec2.create_launch_template().launch_template_name(name).launch_template_data(data);
        let marks = cluster.map(|cluster| {
            let owned = format!("kubernetes.io/cluster/{cluster}");
            let marks = TagSpecification::builder()
                .resource_type(ResourceType::LaunchTemplate)
                .tags(tag("eks:eks-cluster-name", cluster))
                .tags(tag(&owned, "owned"))
                .tags(tag("karpenter.sh/nodepool", "general"));
            match owner {
                Some(owner) => marks.tags(tag("provisor.dev/owner", owner)).build(),
                None => marks.build(),
            }
        });
        template.set_tag_specifications(marks.map(|marks| vec![marks])).send().await.expect("a template");
    }
    restarted.delete_idle_templates(jiff::SignedDuration::from_mins(5)).await.expect("looked");
    let left =
        async || cloud.ec2.describe_launch_templates().send().await.expect("a list").launch_templates().len();
    assert_eq!(left().await, 6, "what was just used stays");
    restarted.delete_idle_templates(jiff::SignedDuration::ZERO).await.expect("looked");
    assert_eq!(left().await, 5, "somebody else's stay");
}

/// Rows: AWS-507
#[tokio::test]
async fn ends_are_told_in_one_call() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let mut instances = Vec::new();
    for at in 0..6 {
        instances.push(
            provider
                .launch(order(&format!("{at}"), &["m5.large a spot"]))
                .await
                .expect("a machine")
                .instance
                .provider_id,
        );
    }
    let tasks: Vec<_> = instances
        .iter()
        .map(|id| {
            let (provider, id) = (provider.clone(), *id);
            tokio::spawn(async move { provider.terminate(id).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic").expect("told");
    }
    assert!(cloud.calls("TerminateInstances").await.len() < 3, "six ends are not six calls");
    assert!(living(&cloud.machines().await).is_empty());
}

/// With the rights that we ship EC2 does not say of a machine without tags that it is none.
#[tokio::test]
async fn a_machine_that_ec2_has_forgotten_is_gone_whatever_rights_it_would_take() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let there =
        provider.launch(order("a", &["m5.large a spot"])).await.expect("a machine").instance.provider_id;
    cloud.fail("TerminateInstances", "UnauthorizedOperation", 403, 3).await;
    let error = provider.terminate(there).await.expect_err("it is there");
    assert!(error.to_string().contains("UnauthorizedOperation"), "{error}");
    // Somebody took a tag away, and it runs.
    let cluster = Tag::builder().key("eks:eks-cluster-name").value("east").build();
    cloud.ec2.delete_tags().resources(there.instance()).tags(cluster).send().await.expect("anybody may");
    assert_eq!(provider.instances().await.expect("machines"), [], "it does not count as ours");
    let error = provider.terminate(there).await.expect_err("it is there all the same");
    assert!(error.to_string().contains("UnauthorizedOperation"), "{error}");
    let forgotten = ProviderId::new("aws:///us-east-1a/i-0123456789abcdef0");
    assert_eq!(provider.terminate(forgotten).await, Ok(Ending::Gone));
}

/// A furnished cloud with two more subnets in its first zone, tagged `net=small`.
async fn with_two_small_subnets() -> Emulator {
    let cloud = Emulator::furnished().await;
    let subnets = cloud.ec2.describe_subnets().send().await.expect("subnets");
    let vpc = subnets.subnets()[0].vpc_id().expect("a network").to_owned();
    cloud.add_subnet(&vpc, "172.31.200.0/24").await;
    cloud.add_subnet(&vpc, "172.31.201.0/24").await;
    cloud
}

/// Rows: AWS-439
#[tokio::test]
async fn a_subnet_without_addresses_is_left_for_another_of_its_zone() {
    let cloud = with_two_small_subnets().await;
    let provider = cloud.provider();
    let small = class(json!({ "subnetSelectorTerms": [{ "tags": { "net": "small" } }] }));
    let order = |name| LaunchOrder { class: small.clone(), ..order(name, &["m5.large a spot"]) };
    provider.launch(order("a")).await.expect("a machine");
    let used = async || {
        let calls = cloud.calls("CreateFleet").await;
        let subnet =
            |call: &Value| call["parameters"]["LaunchTemplateConfigs.1.Overrides.1.SubnetId"].clone();
        calls.iter().map(subnet).collect::<Vec<Value>>()
    };
    let first = used().await[0].clone();
    let listed = cloud.ec2.describe_subnets().filters(tagged("net", "small")).send().await.expect("subnets");
    let ids: Vec<Value> = listed.subnets().iter().map(|subnet| json!(subnet.subnet_id())).collect();
    let other = ids.iter().find(|id| **id != first).expect("two");
    // The other one has more addresses now, as far as was last seen.
    cloud.control("full-subnets", json!([other])).await;
    for name in ["b", "c"] {
        let bought = provider.launch(order(name)).await.expect("the first has addresses");
        assert_eq!(bought.shortage, None, "the offering is there, only one subnet is full");
    }
    let expected = [&first, other, &first, &first].map(Clone::clone);
    assert_eq!(used().await, expected, "and it is not asked for again");
    cloud.control("full-subnets", json!(ids)).await;
    let Err(LaunchFailure::InsufficientCapacity(shortage)) = provider.launch(order("d")).await else {
        panic!("no subnet of the zone has an address");
    };
    assert_eq!(shortage.offerings, [spot("m5.large a")]);
    assert_eq!(living(&cloud.machines().await).len(), 3);
}

/// Rows: AWS-439
#[tokio::test]
async fn an_order_that_is_refused_as_a_whole_for_want_of_addresses_goes_to_another_subnet() {
    let cloud = with_two_small_subnets().await;
    let provider = cloud.provider();
    let small = class(json!({ "subnetSelectorTerms": [{ "tags": { "net": "small" } }] }));
    let order = |name| LaunchOrder { class: small.clone(), ..order(name, &["m5.large a spot"]) };
    let refusal = "InsufficientFreeAddressesInSubnet";
    cloud.fail("CreateFleet", refusal, 400, 1).await;
    let bought = provider.launch(order("a")).await.expect("the other one has addresses");
    assert_eq!(bought.shortage, None, "the offering is there");
    let calls = cloud.calls("CreateFleet").await;
    let subnets: BTreeSet<&str> = calls
        .iter()
        .filter_map(|call| call["parameters"]["LaunchTemplateConfigs.1.Overrides.1.SubnetId"].as_str())
        .collect();
    assert_eq!((calls.len(), subnets.len()), (2, 2), "{calls:?}");
    cloud.fail("CreateFleet", refusal, 400, 9).await;
    let Err(LaunchFailure::InsufficientCapacity(shortage)) = provider.launch(order("b")).await else {
        panic!("no subnet of the zone has an address");
    };
    assert_eq!(shortage.offerings, [spot("m5.large a")]);
}

#[tokio::test]
async fn an_account_without_the_role_for_spot_buys_on_demand_and_says_what_to_do() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let refusal = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
    cloud.control("no-capacity", json!([["*", "*", "spot", refusal]])).await;
    let ways = ["m5.large a spot", "m5.large a on-demand"];
    let bought = provider.launch(order("a", &ways)).await.expect("on demand");
    assert_eq!(bought.instance.capacity_type, CapacityType::OnDemand);
    let shortage = bought.shortage.expect("no spot");
    assert!(shortage.offerings.len() > 100, "of whatever type and zone: {}", shortage.offerings.len());
    assert!(shortage.offerings.iter().all(|(_, _, kind)| *kind == CapacityType::Spot));
    let advice = shortage.advice.clone().expect("somebody has to do something");
    assert_eq!(advice.reason.as_str(), "SpotSLRCreationFailed");
    assert!(advice.message.contains("aws iam create-service-linked-role"), "{}", advice.message);
    provider.launch(order("b", &["c5.large c spot", "c5.large c on-demand"])).await.expect("on demand");
    let asked = cloud.calls("CreateFleet").await;
    let kinds: Vec<&Value> = asked
        .iter()
        .map(|call| &call["parameters"]["TargetCapacitySpecification.DefaultTargetCapacityType"])
        .collect();
    assert_eq!(kinds, ["spot", "on-demand", "on-demand"], "no other spot is asked for meanwhile");
    // The same as an answer to the whole call.
    let other = Emulator::furnished().await;
    other.fail("CreateFleet", refusal, 400, 1).await;
    let bought = other.provider().launch(order("a", &ways)).await.expect("on demand");
    assert_eq!(bought.instance.capacity_type, CapacityType::OnDemand);
    assert!(bought.shortage.is_some_and(|shortage| shortage.advice.is_some()));
}

/// Rows: AWS-437
#[tokio::test]
async fn machines_spread_over_the_subnets_of_a_zone_by_free_addresses() {
    let cloud = with_two_small_subnets().await;
    let provider = cloud.provider();
    let mut used = BTreeSet::new();
    let small = class(json!({ "subnetSelectorTerms": [{ "tags": { "net": "small" } }] }));
    for at in 0..4 {
        let order = LaunchOrder { class: small.clone(), ..order(&format!("{at}"), &["m5.24xlarge a spot"]) };
        provider.launch(order).await.expect("a machine");
    }
    for call in cloud.calls("CreateFleet").await {
        used.insert(call["parameters"]["LaunchTemplateConfigs.1.Overrides.1.SubnetId"].to_string());
    }
    assert_eq!(used.len(), 2, "the first subnet has no room for what is on its way");
}
